"""Two versions of a table and what was committed between: which batches hold the keys that can have changed (S41).

Owns: :class:`Span`, and what the log and the statistics of batches say about it. No row is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from trinitymerge import reader
from trinitymerge.definition import TableDefinition
from trinitymerge.storage.backend import TimeTravel
from trinitymerge.storage.entries import RESTORE, REWRITES, Batch, Commit, Snapshot

# Versions -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Span:
    """Two versions of a table, and what was committed between them.

    Attributes:
        before: the earlier one.
        after: the later one.
        commits: those after the earlier one, up to the later one.
    """

    before: Snapshot
    after: Snapshot
    commits: tuple[Commit, ...]

    @property
    def changing(self) -> tuple[Commit, ...]:
        """The commits that can have changed what readers see: neither compactions nor folds, nor markers of transactions."""
        return tuple(c for c in self.commits if c.operation not in REWRITES and (c.added or c.removed))

    @property
    def steps(self) -> list[Span]:
        """One span for each commit of :attr:`changing`, with the state right before it."""
        found, snapshot, changing = [], self.before, {c.version for c in self.changing}
        for commit in self.commits:
            following = snapshot.apply(commit)
            if commit.version in changing:
                found.append(Span(snapshot, following, (commit,)))
            snapshot = following
        return found

    @property
    def unshared(self) -> tuple[Batch, ...]:
        """The batches that only one of the two versions has. Keys of others alone have the same rows in both."""
        here, there = ({b.id for b in s.current} for s in (self.before, self.after))
        return tuple(b for s in (self.before, self.after) for b in s.current if (b.id in here) != (b.id in there))

    @property
    def appended(self) -> tuple[Batch, ...] | None:
        """The batches that were appended between, rewritten since or not; None if a commit did more than append.

        Compactions and folds aside, nothing but an append changes a table, and it changes no keys but its own.
        """
        if any(c.removed for c in self.changing):
            return None
        return tuple(attrs.evolve(b, version=c.version) for c in self.changing for b in c.added)

    @property
    def restored_at(self) -> int | None:
        """The last restore, which made rows hold that are older than both versions; or what a copy begins with, likewise."""
        return max((c.version for c in self.changing if c.operation == RESTORE or c.begins is not None), default=None)

    @property
    def told(self) -> dict[int, int | None]:
        """For each version that newer rows of the later one count as: the newest commit that can have written them.

        Rows that a compaction or fold has written count as a version that may have added none.
        """
        versions = {b.version for b in self.after.current if b.version is not None and b.version > self.before.version}
        made, otherwise = [c.version for c in self.changing], self.restored_at
        return {v: max((m for m in made if m <= v), default=otherwise) for v in sorted(versions)}


# Keys that can have changed -------------------------------------------------------------------------------------------


def touched(store: TimeTravel, span: Span) -> tuple[Batch, ...]:
    """Batches whose keys are all that can differ between two versions, as few rows of them as there are."""
    unshared, appended = span.unshared, span.appended
    if appended is None or total_rows(appended) >= total_rows(unshared):
        return unshared
    known = {b.id for s in (span.before, span.after) for b in s.current}
    rewritten_since = [b for b in appended if b.id not in known]
    return unshared if store.missing(rewritten_since) else appended


def total_rows(batches: Iterable[Batch]) -> int:
    """How many rows some batches hold."""
    return sum(b.rows for b in batches)


def near(
    store: TimeTravel, definition: TableDefinition, batches: Sequence[Batch], sought: Sequence[Batch]
) -> tuple[Batch, ...]:
    """Those batches that may hold a key of the sought ones, by the ranges kept beside their files."""
    if len(sought) > reader.ASKED_BATCHES:
        return tuple(batches)
    return reader.near(store, definition, batches, [store.range_of(b) for b in sought])
