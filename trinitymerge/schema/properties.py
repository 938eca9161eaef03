"""The settings that a table's properties hold, with their defaults and units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

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

_Number = TypeVar("_Number", int, float)

_PREFIX = "trinitymerge."
_DEFAULT_CHECKPOINT_INTERVAL = 50
_DEFAULT_RETENTION_HOURS = 7 * 24.0
_DEFAULT_FOLD_AFTER = 16
_DEFAULT_FOLD_BYTES = 32 << 20
_SMALLEST_SEGMENT, _MANY_SEGMENTS, _MOST_SEGMENTS = 16 << 20, 256, 4096
_DEFAULT_ATTEMPTS = 20
_MOST = 1e9
"""Hours or seconds: more than any clock counts to."""
_DEFAULT_BACKOFF_SECONDS = 0.05


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """A checkpoint of the log is written every so many versions; the default where the text means nothing."""
    try:
        return _positive(properties.get(CHECKPOINT_INTERVAL, ""))
    except ValueError:
        return _DEFAULT_CHECKPOINT_INTERVAL


def tombstone_retention_hours(properties: Mapping[str, str]) -> float | None:
    """How long compactions keep tombstones of tables with a declared watermark (S38); None means for ever.

    Example:
        >>> tombstone_retention_hours({}), tombstone_retention_hours({TOMBSTONE_RETENTION_HOURS: "none"})
        (168.0, None)
    """
    return _unless_none(_not_negative, properties.get(TOMBSTONE_RETENTION_HOURS, str(_DEFAULT_RETENTION_HOURS)))


def history_retention_hours(properties: Mapping[str, str]) -> float | None:
    """How long compactions keep versions after they have ended (H7); None means for ever."""
    return _unless_none(_not_negative, properties.get(HISTORY_RETENTION_HOURS, "none"))


def compact_after_batches(properties: Mapping[str, str]) -> int | None:
    """With more merges pending than this a merge compacts the table; None means never. What a compaction has left counts as one."""
    return _unless_none(_positive, properties.get(COMPACT_AFTER_BATCHES, "none"))


def minor_compaction_after_batches(properties: Mapping[str, str]) -> int | None:
    """With more small batches pending than this a merge folds those for which it pays (S38a); None means never.

    Example:
        >>> minor_compaction_after_batches({}), minor_compaction_after_batches({MINOR_COMPACTION_AFTER_BATCHES: "none"})
        (16, None)
    """
    return _unless_none(_positive, properties.get(MINOR_COMPACTION_AFTER_BATCHES, str(_DEFAULT_FOLD_AFTER)))


def minor_compaction_max_bytes(properties: Mapping[str, str]) -> int:
    """The size in bytes below which a batch counts as small."""
    return _positive(properties.get(MINOR_COMPACTION_MAX_BYTES, str(_DEFAULT_FOLD_BYTES)))


def segment_bytes(properties: Mapping[str, str], table_bytes: int) -> int:
    """About how large the segments of a base are (S38b).

    Args:
        properties: of the table.
        table_bytes: its size. Segments of large tables are larger, so that there are never too many to be listed.

    Example:
        >>> segment_bytes({}, 1 << 30) >> 20, segment_bytes({}, 1 << 40) >> 20
        (16, 4096)
    """
    text = properties.get(TARGET_SEGMENT_BYTES)
    if text is None:
        return max(_SMALLEST_SEGMENT, table_bytes // _MANY_SEGMENTS)
    return max(_positive(text), table_bytes // _MOST_SEGMENTS)


def max_commit_attempts(properties: Mapping[str, str]) -> int:
    """How often a merge is evaluated before it gives way to other writers (S35)."""
    return _positive(properties.get(MAX_COMMIT_ATTEMPTS, str(_DEFAULT_ATTEMPTS)))


def commit_backoff_seconds(properties: Mapping[str, str]) -> float:
    """The longest pause before the second attempt; it doubles with each further one (S35)."""
    return _not_negative(properties.get(COMMIT_BACKOFF_SECONDS, str(_DEFAULT_BACKOFF_SECONDS)))


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuses settings of the library that do not exist or whose text means nothing.

    Raises:
        InvalidDefinitionError: naming the property.

    Example:
        >>> check_properties({"trinitymerge.compactAfterBatches": "50", "owner": "me"})
    """
    for name in properties:
        if not name.startswith(_PREFIX):
            continue
        if name not in _KNOWN:
            raise InvalidDefinitionError(
                f"There is no table property '{name}'.{did_you_mean(name, _KNOWN)}", property=name
            )
    check_values(properties)


def check_values(properties: Mapping[str, str]) -> None:
    """Refuses settings whose text means nothing; those of newer libraries are let through.

    Raises:
        InvalidDefinitionError: naming the property.
    """
    for name in properties.keys() & _KNOWN.keys():
        read, expected = _KNOWN[name]
        try:
            read(properties)
        except (ValueError, OverflowError):
            raise InvalidDefinitionError(
                f"Table property '{name}' takes {expected}, got {properties[name]!r}.", property=name
            ) from None


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _unless_none(read: Callable[[str], _Number], text: str) -> _Number | None:
    return None if text.strip().lower() == "none" else read(text)


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number <= _MOST:
        raise ValueError(text)
    return number


_KNOWN: dict[str, tuple[Callable[[Mapping[str, str]], object], str]] = {
    CHECKPOINT_INTERVAL: (lambda p: _positive(p[CHECKPOINT_INTERVAL]), "a number of commits from 1 up"),
    TOMBSTONE_RETENTION_HOURS: (tombstone_retention_hours, "a number of hours from 0 up, or 'none' for ever"),
    HISTORY_RETENTION_HOURS: (history_retention_hours, "a number of hours from 0 up, or 'none' for ever"),
    COMPACT_AFTER_BATCHES: (compact_after_batches, "a number of merges from 1 up, or 'none'"),
    MINOR_COMPACTION_AFTER_BATCHES: (minor_compaction_after_batches, "a number of batches from 1 up, or 'none'"),
    MINOR_COMPACTION_MAX_BYTES: (minor_compaction_max_bytes, "a number of bytes from 1 up"),
    TARGET_SEGMENT_BYTES: (lambda p: _positive(p[TARGET_SEGMENT_BYTES]), "a number of bytes from 1 up"),
    MAX_COMMIT_ATTEMPTS: (max_commit_attempts, "a number of attempts from 1 up"),
    COMMIT_BACKOFF_SECONDS: (commit_backoff_seconds, "a number of seconds from 0 up"),
}
