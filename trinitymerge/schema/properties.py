"""The table properties of the library, with their defaults and units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from trinitymerge.errors import InvalidDefinitionError, did_you_mean

CHECKPOINT_INTERVAL = "trinitymerge.checkpointInterval"
TOMBSTONE_RETENTION_HOURS = "trinitymerge.tombstoneRetentionHours"
HISTORY_RETENTION_HOURS = "trinitymerge.historyRetentionHours"
COMPACT_AFTER_BATCHES = "trinitymerge.compactAfterBatches"
MINOR_COMPACTION_AFTER_BATCHES = "trinitymerge.minorCompactionAfterBatches"
MINOR_COMPACTION_MAX_BYTES = "trinitymerge.minorCompactionMaxBytes"
TARGET_SEGMENT_BYTES = "trinitymerge.targetSegmentBytes"
MAX_COMMIT_ATTEMPTS = "trinitymerge.maxCommitAttempts"
COMMIT_BACKOFF_SECONDS = "trinitymerge.commitBackoffSeconds"

_PREFIX = "trinitymerge."
_MAX_DURATION = 1e9
"""Hours or seconds."""
_MIN_SEGMENT_BYTES, _USUAL_SEGMENTS, _MAX_SEGMENTS = 16 << 20, 256, 4096


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _duration(text: str) -> float:
    number = float(text)
    if not 0 <= number <= _MAX_DURATION:
        raise ValueError(text)
    return number


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.strip().lower() == "none" else read(text)


_KNOWN: dict[str, tuple[Callable[[str], Any], str, str]] = {
    CHECKPOINT_INTERVAL: (_positive, "50", "a number of commits from 1 up"),
    TOMBSTONE_RETENTION_HOURS: (_or_none(_duration), "168", "a number of hours from 0 up, or 'none' for ever"),
    HISTORY_RETENTION_HOURS: (_or_none(_duration), "none", "a number of hours from 0 up, or 'none' for ever"),
    COMPACT_AFTER_BATCHES: (_or_none(_positive), "none", "a number of merges from 1 up, or 'none'"),
    MINOR_COMPACTION_AFTER_BATCHES: (_or_none(_positive), "16", "a number of batches from 1 up, or 'none'"),
    MINOR_COMPACTION_MAX_BYTES: (_positive, str(32 << 20), "a number of bytes from 1 up"),
    TARGET_SEGMENT_BYTES: (_positive, str(_MIN_SEGMENT_BYTES), "a number of bytes from 1 up"),
    MAX_COMMIT_ATTEMPTS: (_positive, "20", "a number of attempts from 1 up"),
    COMMIT_BACKOFF_SECONDS: (_duration, "0.05", "a number of seconds from 0 up"),
}
"""How to read a property, its default, and what it takes in words."""


def _value(properties: Mapping[str, str], name: str) -> Any:
    read, default, _ = _KNOWN[name]
    return read(properties.get(name, default))


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """Return the number of versions between checkpoints of the log; the default if the property is invalid."""
    try:
        return cast(int, _value(properties, CHECKPOINT_INTERVAL))
    except ValueError:
        return cast(int, _value({}, CHECKPOINT_INTERVAL))


def tombstone_retention_hours(properties: Mapping[str, str]) -> float | None:
    """Return how long compactions keep tombstones of tables with a declared watermark (S38); None means for ever.

    Example:
        >>> tombstone_retention_hours({}), tombstone_retention_hours({TOMBSTONE_RETENTION_HOURS: "none"})
        (168.0, None)
    """
    return cast("float | None", _value(properties, TOMBSTONE_RETENTION_HOURS))


def history_retention_hours(properties: Mapping[str, str]) -> float | None:
    """Return how long compactions keep row versions after they end (H7); None means for ever."""
    return cast("float | None", _value(properties, HISTORY_RETENTION_HOURS))


def compact_after_batches(properties: Mapping[str, str]) -> int | None:
    """Return how many pending merges start a compaction after a merge, or None. The rest of a compaction counts as one merge."""
    return cast("int | None", _value(properties, COMPACT_AFTER_BATCHES))


def minor_compaction_after_batches(properties: Mapping[str, str]) -> int | None:
    """Return how many small pending batches start a minor compaction after a merge (S38a), or None.

    Example:
        >>> minor_compaction_after_batches({}), minor_compaction_after_batches({MINOR_COMPACTION_AFTER_BATCHES: "none"})
        (16, None)
    """
    return cast("int | None", _value(properties, MINOR_COMPACTION_AFTER_BATCHES))


def minor_compaction_max_bytes(properties: Mapping[str, str]) -> int:
    """Return the size in bytes below which a batch is small."""
    return cast(int, _value(properties, MINOR_COMPACTION_MAX_BYTES))


def target_segment_bytes(properties: Mapping[str, str], table_bytes: int) -> int:
    """Return the target size in bytes of the segments of a base (S38b); the size of the table bounds their number.

    Example:
        >>> target_segment_bytes({}, 1 << 30) >> 20, target_segment_bytes({}, 1 << 40) >> 20
        (16, 4096)
    """
    segments = _MAX_SEGMENTS if TARGET_SEGMENT_BYTES in properties else _USUAL_SEGMENTS
    return cast(int, max(_value(properties, TARGET_SEGMENT_BYTES), table_bytes // segments))


def max_commit_attempts(properties: Mapping[str, str]) -> int:
    """Count how often a merge is attempted when other writers commit concurrently (S35)."""
    return cast(int, _value(properties, MAX_COMMIT_ATTEMPTS))


def commit_backoff_seconds(properties: Mapping[str, str]) -> float:
    """Return the longest pause before the second attempt; each further attempt doubles it (S35)."""
    return cast(float, _value(properties, COMMIT_BACKOFF_SECONDS))


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise if a property of the library is unknown or has an invalid value.

    Example:
        >>> check_properties({"trinitymerge.compactAfterBatches": "50", "owner": "me"})
    """
    for name in properties:
        if name.startswith(_PREFIX) and name not in _KNOWN:
            raise InvalidDefinitionError(
                f"Table property '{name}' does not exist.{did_you_mean(name, _KNOWN)}", property=name
            )
    check_values(properties)


def check_values(properties: Mapping[str, str]) -> None:
    """Raise if a known property has an invalid value; properties of newer libraries pass."""
    for name in properties.keys() & _KNOWN.keys():
        try:
            _value(properties, name)
        except (ValueError, OverflowError):
            expected = _KNOWN[name][2]
            raise InvalidDefinitionError(
                f"Table property '{name}' takes {expected}, got {properties[name]!r}.", property=name
            ) from None
