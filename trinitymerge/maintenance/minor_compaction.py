"""Minor compaction: small pending batches as one (S38a)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import MINOR, RESOLVED, Batch, add_all, remove_all
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import AppendOnlySince, publish
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.maintenance.archives import archive_for_minor
from trinitymerge.maintenance.rewrite import KEEP_ALL, rewrite
from trinitymerge.schema.properties import minor_compaction_after_batches, minor_compaction_max_bytes
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.stores.base import ManagedStore, Staged
from trinitymerge.stores.removed_files import naming_vacuums
from trinitymerge.stores.staging import discarded_on_failure

FAULT_POINTS = ("minor_compaction.staged", "minor_compaction.committed")

_GROWTH = 2
"""A batch is compacted with newer ones if it has at most so many times their bytes. So a row is rewritten only after at least half
as many bytes were appended."""

_CHEAP_BYTES = 4 << 20
"""Spark counts the time of opening a file as that of reading so many bytes (``spark.sql.files.openCostInBytes``). To write more
once again costs more than hundreds of reads gain."""


def mergeable_batches(snapshot: Snapshot) -> tuple[Batch, ...]:
    """Return the batches for a minor compaction, in commit order; empty if it does not pay yet.

    They are the whole of a small table, if that pays: then nothing is pending. Otherwise they are consecutive, cheaper to read
    than to open, and as many as possible: of those between two larger ones, or since the last larger one, all from the oldest that
    has at most twice the bytes of those after it. Rows that deletion vectors mark do not count: a batch becomes small again when
    most of its rows have been replaced.
    """
    limit, size = minor_compaction_after_batches(snapshot.properties), minor_compaction_max_bytes(snapshot.properties)
    if limit is None:
        return ()
    now = Batches.of(snapshot)
    # A base of one batch, or of one segment, may be small, too. Of several segments none has a key of what is older than it.
    batches = now.pending if len(now.base) > 1 else now.batches
    sizes, cheap = {b.id: now.unmarked_bytes(b) for b in batches}, min(size, _CHEAP_BYTES)

    def are_many(below: int) -> bool:
        return sum(sizes[b.id] < below and not b.base for b in batches) > limit

    is_whole = len(batches) == len(now.batches)
    if is_whole and are_many(size) and max(sizes.values()) < size and not _first([*sizes.values()]):
        return batches
    if not are_many(cheap):
        return ()
    runs = (tuple(run) for is_cheap, run in groupby(batches, lambda b: sizes[b.id] < cheap) if is_cheap)
    longest = max((run[_first([sizes[b.id] for b in run]) :] for run in runs), key=len, default=())
    return longest if len(longest) > limit // 2 else ()


def _first(sizes: Sequence[int]) -> int:
    """Return the place of the first of consecutive batches, given by their bytes, that are worth a minor compaction."""
    newer, first = 0, len(sizes)
    for n, size in reversed(tuple(enumerate(sizes))):
        if size <= _GROWTH * newer:
            first = n
        newer += size
    return first


@with_session_settings
def minor_compact(store: ManagedStore, snapshot: Snapshot, replaces: Sequence[Batch]) -> Snapshot | None:
    """Commit one batch with the resolved rows of consecutive others, as :func:`mergeable_batches` finds them.

    Return None if another writer has replaced batches or the definition, or a vacuum has deleted files: the next merge tries again.
    """
    start = time.perf_counter()
    try:
        with naming_vacuums(store), discarded_on_failure(store) as staged:
            commit = _commit_of(store, snapshot, replaces, staged, start)
            faults.fault("minor_compaction.staged")
            done = publish(store, commit, snapshot, (AppendOnlySince(),))
    except (ConcurrentCommitError, FilesVacuumedError):
        return None
    faults.fault("minor_compaction.committed")
    return done


def _commit_of(
    store: ManagedStore, snapshot: Snapshot, replaces: Sequence[Batch], staged: list[Staged], start: float
) -> Commit:
    """Stage the new batch and, with history, its archive. They are added to the list of those to discard on failure."""
    with reporting.working(store.path, "minor compact", f"a minor compaction writes {len(replaces)} batches as one"):
        rewritten = rewrite(store, snapshot.definition, replaces, KEEP_ALL)
    staged.append(rewritten.staged)
    # Beside resolved archives it is not a base: a late row may end one of their versions (H6).
    everything = len(replaces) == len(snapshot.live_batches) and not snapshot.archives(RESOLVED)
    version = max(b.version for b in replaces if b.version is not None)
    archived = archive_for_minor(store, snapshot, replaces, rewritten.observed["rows"], staged)
    return snapshot.next_commit(
        "MINOR COMPACT",
        [
            *remove_all([*replaces, *archived.replaced], MINOR),
            *add_all([rewritten.batch(version, base=everything), *archived.added], MINOR),
        ],
        start,
        parameters={"batches": len(replaces)},
        metrics={n: rewritten.observed[n] for n in ("rows", "tombstones")},
    )
