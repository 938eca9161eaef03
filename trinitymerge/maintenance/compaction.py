"""Compaction: rewrite the base, or its changed segments (S38, S38b)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from trinitymerge import _format
from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError, counted, sized
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import (
    MAJOR,
    RESOLVED,
    UNRESOLVED,
    Action,
    Batch,
    RemoveBatch,
    SetHorizon,
    add_all,
    remove_all,
)
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import AppendOnlySince, ConcurrentCommits, NoConcurrentCommits, Predicate, publish, retry
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.maintenance.advice import rows_to_sort
from trinitymerge.maintenance.archives import Archived, archive_expired, archive_for_full
from trinitymerge.maintenance.rewrite import KEEP_ALL, TombstoneRetention, dated, rewrite, wanted_files
from trinitymerge.maintenance.segments import (
    CompactionPlan,
    RewriteTask,
    SegmentLayout,
    as_segments,
    everything,
    plan_partial_compaction,
)
from trinitymerge.rows.tombstones import has_payload
from trinitymerge.rows.watermarks import Watermark, is_above, is_at_least, sort_key, watermark_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, session
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.stores.base import ManagedStore, Staged, TableStore
from trinitymerge.stores.removed_files import naming_storage_errors
from trinitymerge.stores.staging import discarded_on_failure

FAULT_POINTS = ("compact.staged", "compact.committed")

_ATTEMPTS = 3
"""How often :func:`compact_all` rewrites a table before it gives way to concurrent commits."""


@attrs.frozen
class CompactionResult(_format.Result):
    """The result of a compaction.

    Attributes:
        version: the table's version afterwards; the unchanged one if nothing was committed.
        batches: batches that were replaced.
        rows: rows that were written, tombstones included; ``bytes`` is their size.
        rowsRemoved: stored rows that are gone: replaced versions, and forgotten tombstones.
        rowsArchived: rows of archives that were written: versions that a table with history keeps, and tombstones between them.
        tombstones: tombstones that were kept.
        tombstonesForgotten: tombstones older than the retention, which are gone.
        segmentsKept: segments of the base that stay as they are, for hardly anything in them has changed.
        skipped: why nothing was committed, or an empty string.
        isDryRun: nothing was done. ``batches`` would be replaced, ``rows`` and ``bytes`` are what they hold, and the other counts
            are unknown.
    """

    version: int
    batches: int = 0
    rows: int = 0
    rowsRemoved: int = 0
    tombstones: int = 0
    tombstonesForgotten: int = 0
    bytes: int = 0
    skipped: str = ""
    segmentsKept: int = 0
    rowsArchived: int = 0
    isDryRun: bool = False
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        if self.skipped:
            return f"version {self.version}: nothing compacted, {self.skipped}"
        if self.isDryRun:
            kept = f", and keep {counted(self.segmentsKept, 'segment')}" if self.segmentsKept else ""
            read = f"{counted(self.batches, 'batch', 'batches')} of {counted(self.rows)} ({sized(self.bytes)})"
            return f"version {self.version}: a compaction would rewrite {read}{kept}"
        became = f"became one base of {counted(self.rows)}"
        if self.segmentsKept:
            became = f"became {counted(self.rows)} beside {counted(self.segmentsKept, 'segment')} that did not change"
        if self.rowsArchived:
            became += f" and {counted(self.rowsArchived)} of history"
        return (
            f"version {self.version}: {counted(self.batches, 'batch', 'batches')} {became}; {counted(self.rowsRemoved)} removed, "
            f"{self.tombstonesForgotten:,} of them tombstones ({self.seconds:.1f} s)"
        )


def compact(store: TableStore, full: bool = False) -> CompactionResult:
    if isinstance(store, ManagedStore):
        return compact_segments(store, full)
    return compact_all(store, full)


@with_session_settings
def preview(store: TableStore, full: bool = False) -> CompactionResult:
    """Return what a compaction would rewrite now. At most one job looks for tombstones that can be dropped."""
    snapshot, kept = store.snapshot(), 0
    forget = TombstoneRetention.of(snapshot.definition)
    batches: Iterable[Batch] = snapshot.batches
    if isinstance(store, ManagedStore):
        work = _work(store, snapshot, forget, full)
        if isinstance(work, str):
            return CompactionResult(version=snapshot.version, skipped=work)
        batches, kept = {b.id: b for task in work.pieces for b in task.batches}.values(), len(work.kept)
    elif not full and (why_not := _why_not_all(store, snapshot, forget)):
        return CompactionResult(version=snapshot.version, skipped=why_not)
    replaced = list(batches)
    return CompactionResult(
        version=snapshot.version,
        batches=len(replaced),
        rows=sum(b.rows for b in replaced),
        bytes=sum(b.bytes for b in replaced),
        segmentsKept=kept,
        isDryRun=True,
    )


# By segments ----------------------------------------------------------------------------------------------------------


@with_session_settings
def compact_segments(store: ManagedStore, full: bool = False) -> CompactionResult:
    """Rewrite the resolved rows of all batches into one base, sorted by key (S38); segments that hardly changed stay (S38b)."""
    start = time.perf_counter()
    snapshot = store.snapshot()
    for forget in (TombstoneRetention.of(snapshot.definition), KEEP_ALL):
        try:
            working = reporting.working(store.path, "compact", "a compaction rewrites batches")
            with working, naming_storage_errors(store):
                return _compact(store, snapshot, forget, full, start)
        except ConcurrentCommitError as conflict:
            snapshot, requirement = store.snapshot(), conflict.facts["requirement"]
            if not isinstance(requirement, (Predicate, AppendOnlySince)):
                raise
            # Rows have landed that a tombstone hides which would be forgotten: once more, and none is. Beside anything
            # but appended rows it is given up.
            if isinstance(requirement, AppendOnlySince):
                break
        except FilesVacuumedError:
            before, snapshot = snapshot, store.snapshot()
            if snapshot.purged == before.purged and before.referenced_ids <= snapshot.referenced_ids:
                raise
            break  # a purge has found its keys in what was to be committed, or others have replaced what was read, and removed it
    why = "another compaction, a restore, a purge or an alteration was committed concurrently"
    return CompactionResult(version=snapshot.version, skipped=why)


def _compact(
    store: ManagedStore, snapshot: Snapshot, forget: TombstoneRetention, full: bool, start: float
) -> CompactionResult:
    work = _work(store, snapshot, forget, full)
    if isinstance(work, str):
        return CompactionResult(version=snapshot.version, skipped=work)
    with discarded_on_failure(store) as staged:
        written = _written(store, snapshot, work, forget, staged)
        archived = archive_for_full(store, snapshot, work, staged)
        rows_archived = sum(b.rows for b in archived.added)
        faults.fault("compact.staged")
        commit = _commit_of(snapshot, work, written, archived, start)
        asked = (AppendOnlySince(or_minor_compactions=True), Predicate(partial(_rows_below_horizon, commit)))
        done = publish(store, commit, snapshot, asked, partial(rebased, commit))
    faults.fault("compact.committed")
    return _result(done.version, snapshot, commit, start, rows_archived, len(work.kept))


def _result(
    version: int, before: Snapshot, commit: Commit, start: float, rows_archived: int = 0, kept: int = 0
) -> CompactionResult:
    counts, removed = commit.metrics, set(commit.removed)
    return CompactionResult(
        version=version,
        batches=len(removed),
        rows=counts["rows"],
        rowsRemoved=sum(b.rows for b in before.batches if b.id in removed) - counts["rows"] - rows_archived,
        rowsArchived=rows_archived,
        tombstones=counts["tombstones"],
        tombstonesForgotten=counts["forgotten"],
        bytes=sum(b.bytes for b in commit.added),
        segmentsKept=kept,
        seconds=time.perf_counter() - start,
    )


def _work(store: ManagedStore, snapshot: Snapshot, forget: TombstoneRetention, full: bool) -> CompactionPlan | str:
    layout = None if full else SegmentLayout.of(store, Batches.of(snapshot))
    if layout is None:
        if not snapshot.live_batches:
            return CompactionPlan(()) if archive_expired(snapshot) else "the table has no rows"
        why_not = "" if full else _why_not(store, snapshot, forget)
        return why_not or everything(snapshot, uuid.uuid4().hex, session.cores(store.spark))
    work, pending = plan_partial_compaction(store, snapshot, layout, forget), Batches.of(snapshot).pending
    if work.pieces:
        return work
    # Pending rows are rewritten with the archives: a compaction replaces all that it has read.
    if archive_expired(snapshot):
        return attrs.evolve(work, pieces=(RewriteTask(pending, is_base=False),) if pending else ())
    rows = sum(b.rows for b in pending)
    if not rows:
        return _nothing_else(snapshot)
    return f"{counted(rows)} beside {counted(len(layout.segments), 'segment')} are few in each: compact(full=True) rewrites all"


def _why_not(store: ManagedStore, snapshot: Snapshot, forget: TombstoneRetention) -> str:
    base = Batches.of(snapshot).base
    if len(base) < len(snapshot.live_batches) or snapshot.archives(UNRESOLVED) or archive_expired(snapshot):
        return ""
    if len(base) == 1 and base[0].files > max(8, 4 * wanted_files(base)):
        return ""
    return _why_not_base(store, snapshot, forget, base)


def _why_not_base(store: TableStore, snapshot: Snapshot, forget: TombstoneRetention, batches: Sequence[Batch]) -> str:
    """Return that all is compacted, unless a tombstone can be dropped or shortened: a job looks if there are any."""
    worth = E.any_of([forget.condition(snapshot.definition), has_payload(snapshot.definition)])
    if any(b.tombstones for b in batches) and not dated(store, Batches.of(snapshot)).filter(worth).isEmpty():
        return ""
    return _nothing_else(snapshot)


def _nothing_else(snapshot: Snapshot) -> str:
    sort = "; compact(full=True) sorts its rows" if rows_to_sort(Batches.of(snapshot)) else ""
    return f"there is one base and nothing else{sort}"


@attrs.frozen
class _Written:
    batches: tuple[Batch, ...]
    observed: Mapping[str, Any]


def _written(
    store: ManagedStore, snapshot: Snapshot, work: CompactionPlan, forget: TombstoneRetention, staged: list[Staged]
) -> list[_Written]:
    """Stage the batches of a compaction. They are added to the list of those to discard on failure."""
    found = []
    for piece in work.pieces:
        forgotten = forget if piece.is_base else KEEP_ALL
        rewritten = rewrite(store, snapshot.definition, piece.batches, forgotten, piece.within, piece.files)
        staged.append(rewritten.staged)
        batches: list[Batch] = []
        if not rewritten.observed["rows"]:
            store.discard(rewritten.staged)
        elif piece.is_base:
            batches = as_segments(store, rewritten, snapshot.version, work.segment_of, piece.together, staged)
        else:
            version = max(b.version for b in piece.batches if b.version is not None)
            batches = [attrs.evolve(rewritten.batch(version, base=False), merges=1)]
        found.append(_Written(tuple(batches), rewritten.observed))
    return found


def _commit_of(
    snapshot: Snapshot, work: CompactionPlan, written: Sequence[_Written], archived: Archived, start: float
) -> Commit:
    kept = {b.id for b in (*work.kept, *snapshot.archives(RESOLVED))} - archived.replaced
    horizon: Watermark | None = None
    for one in written:
        before = snapshot.horizon if horizon is None else horizon
        found = horizon_after(snapshot.definition, before, one.observed)
        horizon = horizon if found is None else found
    return snapshot.next_commit(
        "COMPACT",
        _replacing(
            [b for b in snapshot.batches if b.id not in kept],
            [*(b for one in written for b in one.batches), *archived.added],
            horizon,
        ),
        start,
        metrics={n: sum(one.observed[n] for one in written) for n in ("rows", "tombstones", "forgotten")},
    )


def _replacing(old: Iterable[Batch], new: Iterable[Batch], horizon: Watermark | None) -> list[Action]:
    forgotten: list[Action] = [] if horizon is None else [SetHorizon(horizon)]
    return [*remove_all(old, MAJOR), *add_all(new, MAJOR), *forgotten]


def horizon_after(
    definition: TableDefinition, before: Watermark | None, observed: Mapping[str, Any]
) -> Watermark | None:
    """Return the largest watermark forgotten so far, if this compaction forgets anything; empty if it is not known."""
    if not (observed["forgotten"] or observed["settled"]) or not definition.watermarkKey:
        return None
    found = watermark_of(observed, "max", definition, "horizon")
    if found is None or sort_key(found, definition) is None or before == ():
        return ()
    if before is None or is_at_least(found, before, definition):
        return found
    return before if is_at_least(before, found, definition) else ()


# Committing -----------------------------------------------------------------------------------------------------------


def rebased(commit: Commit, landed: ConcurrentCommits) -> Commit:
    """Rebase a compaction: appended batches stay, and minor compactions of nothing else.

    If a minor compaction included rows or archives that this compaction has read, the appended batches come back as they were, and
    the results of that minor compaction go, with their archives. They may hold a row that only a tombstone outside of them hides,
    and this compaction may have dropped that tombstone. Their archives would hold the rows of the restored batches twice.
    """
    now, of = landed.now, _new_rows(landed)
    kept = [b for b in landed.since.batches if b.id not in commit.removed]
    here = {b.id for b in now.batches}
    stay = here & {*of, *(b.id for b in kept)}
    held = {*stay, *(i for batch in stay & of.keys() for i in of[batch])}
    back = [b for b in (*kept, *landed.appended_batches) if b.id not in held]
    actions = [
        *remove_all((b for b in now.batches if b.id not in stay), MAJOR),
        *(a for a in commit.actions if not isinstance(a, RemoveBatch)),
        *add_all(back, MAJOR),
    ]
    return attrs.evolve(now.rebase(commit), actions=actions)


def _new_rows(landed: ConcurrentCommits) -> dict[str, frozenset[str]]:
    """Return the batches that may stay, also archives of minor compactions, and the appended batches that they hold."""
    appended = {b.id: frozenset([b.id]) for b in landed.appended_batches}
    of = dict(appended)
    for commit in landed.commits:
        if any(i not in of for i in commit.removed):
            return appended
        rows = frozenset().union(*(of[i] for i in commit.removed))
        of |= {b.id: rows for b in commit.added if b.id not in appended}
    return of


def _rows_below_horizon(commit: Commit, landed: ConcurrentCommits) -> str | None:
    """Return why concurrent batches may hold rows that only the dropped tombstones hid, or None."""
    definition = landed.now.definition
    if commit.horizon is None or all(
        is_above(definition, b.watermark_min, commit.horizon) for b in landed.appended_batches
    ):
        return None
    return "rows have landed that are older than tombstones which would be forgotten"


# As one batch ---------------------------------------------------------------------------------------------------------


@with_session_settings
def compact_all(store: TableStore, full: bool = False) -> CompactionResult:
    """Write the resolved rows of all batches as one base; if ``full``, even if there is one base and nothing else."""
    start = time.perf_counter()

    def attempt(snapshot: Snapshot) -> CompactionResult:
        forget = TombstoneRetention.of(snapshot.definition)
        why_not = "" if full else _why_not_all(store, snapshot, forget)
        if why_not or not snapshot.batches:
            return CompactionResult(version=snapshot.version, skipped=why_not or "the table has no rows")
        return _compact_all(store, snapshot, forget, start)

    with reporting.working(store.path, "compact", "a compaction rewrites all rows"):
        try:
            return retry(store, attempt, (ConcurrentCommitError,), _ATTEMPTS)
        except ConcurrentCommitError:
            skipped = "other writers committed during each attempt; this table allows no concurrent commit"
            return CompactionResult(version=store.snapshot().version, skipped=skipped)


def _why_not_all(store: TableStore, snapshot: Snapshot, forget: TombstoneRetention) -> str:
    return _why_not_base(store, snapshot, forget, snapshot.batches) if Batches.of(snapshot).are_resolved else ""


def _compact_all(store: TableStore, snapshot: Snapshot, forget: TombstoneRetention, start: float) -> CompactionResult:
    definition = snapshot.definition
    with discarded_on_failure(store) as staged:
        written = rewrite(store, definition, snapshot.batches, forget)
        staged.append(written.staged)
        found = written.observed
        counts = {n: found[n] for n in ("rows", "tombstones", "forgotten")}
        batch = attrs.evolve(written.batch(snapshot.version, base=True), version=None)
        commit = snapshot.next_commit(
            "COMPACT",
            _replacing(
                snapshot.batches, [batch] if counts["rows"] else [], horizon_after(definition, snapshot.horizon, found)
            ),
            start,
            metrics=counts,
        )
        done = publish(store, commit, snapshot, (NoConcurrentCommits(),))
    if not counts["rows"]:
        store.discard(written.staged)
    return _result(done.version, snapshot, commit, start)
