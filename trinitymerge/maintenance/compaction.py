"""Compaction: the resolved rows of all batches, as one base (S38).

Owns: when it pays, the horizon that records which tombstones were forgotten, and committing beside other writers. It never
changes what readers see. How rows are resolved into a base stands in ``rewriting.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from trinitymerge.errors import ConcurrentCommitError, counted
from trinitymerge.expressions import any_of
from trinitymerge.maintenance.rewriting import FORGET_NOTHING, Dated, Forget, Rewritten, rewrite, wanted_files
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.statistics import Watermark, in_order, is_above, is_at_least, watermark_of
from trinitymerge.storage import faults
from trinitymerge.storage.backend import Batches, Maintained
from trinitymerge.storage.entries import COMPACT, Commit, Snapshot, current_user
from trinitymerge.storage.publish import Holds, Landed, OnlyAppends, OutcomeUnknown, publish
from trinitymerge.tombstones import holds_more

FAULT_POINTS = ("compact.staged", "compact.committed")
"""Where this module may be killed, see ``storage/faults.py``."""

PENDING_BATCHES = 50
"""With more batches than this beside the base, compaction pays."""

DELTA_SHARE = 0.5
"""With more rows beside the base than this share of the base's, compaction pays."""


@attrs.frozen
class CompactionResult:
    """What a compaction did.

    Attributes:
        version: the table's version afterwards; the unchanged one if nothing was committed.
        batches: batches that were replaced.
        rows: rows of the new base, tombstones included.
        rowsRemoved: stored rows that are gone: replaced versions, and forgotten tombstones.
        tombstones: tombstones that were kept.
        tombstonesForgotten: tombstones older than the retention, which are gone.
        bytes: size of the new base.
        skipped: why nothing was committed, or an empty string.
        seconds: how long it took.
    """

    version: int
    batches: int = 0
    rows: int = 0
    rowsRemoved: int = 0
    tombstones: int = 0
    tombstonesForgotten: int = 0
    bytes: int = 0
    skipped: str = ""
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        if self.skipped:
            return f"version {self.version}: nothing compacted, {self.skipped}"
        return (
            f"version {self.version}: {counted(self.batches, 'batch', 'batches')} became one base of {counted(self.rows)}; "
            f"{counted(self.rowsRemoved)} removed, {self.tombstonesForgotten:,} of them tombstones ({self.seconds:.1f} s)"
        )


# When it pays ---------------------------------------------------------------------------------------------------------


def why_compact(batches: Batches) -> str:
    """Why compaction would pay, from the log's statistics alone; an empty string if it would not."""
    waiting = batches.pending
    if len(waiting) > PENDING_BATCHES:
        return f"{len(waiting):,} batches are pending"
    base_rows = batches.base.rows if batches.base else 0
    waiting_rows = sum(b.rows for b in waiting)
    if waiting and len(batches.batches) > 1 and waiting_rows > DELTA_SHARE * base_rows:
        return f"{waiting_rows:,} rows are pending beside a base of {base_rows:,}"
    return ""


def _why_not(backend: Maintained, snapshot: Snapshot, forget: Forget) -> str:
    if not snapshot.batches:
        return "the table has no rows"
    if len(snapshot.batches) > 1 or not snapshot.batches[0].base:
        return ""
    base = snapshot.batches[0]
    if base.files > max(8, 4 * wanted_files(snapshot.batches)):
        return ""
    if base.tombstones:
        rows = Dated.of(backend, snapshot.batches).scan(Batches.of(snapshot))
        worth = any_of([forget.condition(snapshot.definition), holds_more(snapshot.definition)])
        if not rows.filter(worth).isEmpty():
            return ""
    return "there is one base and nothing else"


# Writing --------------------------------------------------------------------------------------------------------------


def compact(backend: Maintained) -> CompactionResult:
    """Rewrites the resolved rows of all batches into one base, sorted by primary key (S38).

    Raises:
        CorruptTableError: a file is missing.
        FilesVacuumedError: a vacuum with too short a retention has removed the new base, or what landed beside it and was folded;
            nothing was changed.
    """
    start = time.perf_counter()
    snapshot = backend.snapshot()
    for forget in (Forget.of(snapshot.definition), FORGET_NOTHING):
        try:
            with held(backend.spark, LITERAL_NAMES):
                return _compact(backend, snapshot, forget, start)
        except ConcurrentCommitError as conflict:
            snapshot, requirement = backend.snapshot(), conflict.facts["requirement"]
            if not isinstance(requirement, (Holds, OnlyAppends)):
                raise
            if isinstance(requirement, OnlyAppends):
                break  # else rows landed that a tombstone still hides which would be forgotten: forget none this time
    why = "another compaction, restore or purge was committed meanwhile"
    return CompactionResult(version=snapshot.version, skipped=why)


def _compact(backend: Maintained, snapshot: Snapshot, forget: Forget, start: float) -> CompactionResult:
    why_not = _why_not(backend, snapshot, forget)
    if why_not:
        return CompactionResult(version=snapshot.version, skipped=why_not)
    rewritten = rewrite(backend, snapshot, snapshot.batches, forget)
    observed = rewritten.observed
    try:
        faults.fault("compact.staged")
        commit = _commit_of(snapshot, rewritten, start)
        if not commit.added:
            backend.discard(rewritten.staged)
        asked = (OnlyAppends(and_folds=True), Holds(partial(_rows_below_horizon, commit)))
        done = publish(backend, commit, snapshot, asked, partial(beside_folds, commit))
    except OutcomeUnknown:
        raise  # the base may be part of the table: it must stay
    except Exception:  # after Ctrl-C, which may come right after the commit, the base stays for vacuum()
        backend.discard(rewritten.staged)
        raise
    faults.fault("compact.committed")
    return CompactionResult(
        version=done.version,
        batches=len(snapshot.batches),
        rows=observed["rows"],
        rowsRemoved=sum(b.rows for b in snapshot.batches) - observed["rows"],
        tombstones=observed["tombstones"],
        tombstonesForgotten=observed["forgotten"],
        bytes=sum(b.bytes for b in commit.added),
        seconds=time.perf_counter() - start,
    )


def _commit_of(snapshot: Snapshot, rewritten: Rewritten, start: float) -> Commit:
    observed = rewritten.observed
    names = ("rows", "tombstones", "forgotten")
    return snapshot.next_commit(
        COMPACT,
        added=[rewritten.batch(snapshot.version, base=True)] if observed["rows"] else [],
        removed=[b.id for b in snapshot.batches],
        horizon=_horizon(snapshot, observed),
        metrics={n: observed[n] for n in names},
        user=current_user(),
        duration_ms=int((time.perf_counter() - start) * 1000),
    )


def _horizon(snapshot: Snapshot, observed: Mapping[str, Any]) -> Watermark | None:
    """The largest watermark forgotten so far, if this compaction forgets any; empty when that cannot be told."""
    definition = snapshot.definition
    if not observed["forgotten"] or not definition.watermarkKey:
        return None
    found, before = watermark_of(observed, "max", definition, "horizon"), snapshot.horizon
    if found is None or in_order(found, definition) is None or before == ():
        return ()
    if before is None or is_at_least(found, before, definition):
        return found
    return before if is_at_least(before, found, definition) else ()


# Committing -----------------------------------------------------------------------------------------------------------


def beside_folds(commit: Commit, landed: Landed) -> Commit:
    """The commit on top of what landed: rows that were appended stay, and so do folds of nothing else.

    Of a fold with rows that were read the others come back as they were appended. It may hold a row that a tombstone outside of it
    hides, and that tombstone may be one that is now forgotten.
    """
    now, of = landed.now, _new_rows(landed)
    stay = {b.id for b in now.batches if b.id in of}
    held = {i for batch in stay for i in of[batch]}
    return attrs.evolve(
        now.rebase(commit),
        added=[*commit.added, *(b for b in landed.appended if b.id not in held)],
        removed=[b.id for b in now.batches if b.id not in stay],
    )


def _new_rows(landed: Landed) -> dict[str, frozenset[str]]:
    """The batches that hold nothing but rows that landed, and the appended batches whose rows these are."""
    of: dict[str, frozenset[str]] = {}
    for commit in landed.commits:
        if not commit.removed:
            of |= {b.id: frozenset([b.id]) for b in commit.added}
        elif all(i in of for i in commit.removed):
            of |= {b.id: frozenset().union(*(of[i] for i in commit.removed)) for b in commit.added}
    return of


def _rows_below_horizon(commit: Commit, landed: Landed) -> str | None:
    """Why batches that landed may hold rows which only the forgotten tombstones keep from view; None if they hold none."""
    definition = landed.now.definition
    if commit.horizon is None or all(is_above(definition, b.watermark_min, commit.horizon) for b in landed.appended):
        return None
    return "rows have landed that are older than tombstones which would be forgotten"
