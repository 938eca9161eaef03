"""The messages of a feed, counted (F4)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


def _counts(value: Mapping[str, int]) -> dict[str, int]:
    return dict(value)


@attrs.frozen
class FeedCounts:
    """The messages of a feed that a merge has read. Each is an event, skipped, or rejected.

    Attributes:
        read: all messages.
        upserts: inserts and updates.
        skipped: messages that are not events, by kind: ``tombstone``, ``heartbeat``, ``transaction``, ``other table`` and others.
        rejected: messages that cannot be applied, by reason.
        oldest: the first time of a commit at the source, as text in the session's time zone; None if no message has one.
        newest: the last.
    """

    read: int
    upserts: int = 0
    deletes: int = 0
    truncates: int = 0
    skipped: Mapping[str, int] = attrs.field(factory=dict, converter=_counts)
    rejected: Mapping[str, int] = attrs.field(factory=dict, converter=_counts)
    oldest: str | None = None
    newest: str | None = None

    def __str__(self) -> str:
        parts = [(self.upserts, "upserts"), (self.deletes, "deletes"), (self.truncates, "truncates")]
        told = [f"{n:,} {word}" for n, word in parts if n]
        for word, kinds in (("skipped", self.skipped), ("rejected", self.rejected)):
            if kinds:
                listed = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items())
                told.append(f"{sum(kinds.values()):,} {word} ({listed})")
        return f"{self.read:,} messages: {', '.join(told) or 'no events'}"
