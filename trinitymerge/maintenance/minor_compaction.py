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
"""Where this module may be killed, see ``fs/faults.py``."""

_GROWTH = 2
"""A batch is compacted with newer ones if it has at most so many times their bytes. So a row is rewritten only after at least half
as many bytes were appended."""


def mergeable_batches(snapshot: Snapshot) -> tuple[Batch, ...]:
    """Return the batches for a minor compaction, in commit order; empty if it does not pay yet.

    They are small, consecutive, and as many as possible: of the small ones between two large ones, or since the last large one, all
    from the oldest that has at most twice the bytes of those after it. A small base that is one batch may be one of them.
    """
    limit, size = minor_compaction_after_batches(snapshot.properties), minor_compaction_max_bytes(snapshot.properties)
    now = Batches.of(snapshot)
    # A base of one batch, or of one segment, may be small, too. Of several segments none has a key of what is older than it.
    batches = now.pending if len(now.base) > 1 else now.batches
    if limit is None or sum(b.bytes < size and not b.base for b in batches) <= limit:
        return ()
    runs = (tuple(run) for is_small, run in groupby(batches, lambda b: b.bytes < size) if is_small)
    longest = max((_newest(run) for run in runs), key=len, default=())
    return longest if len(longest) > limit // 2 else ()


def _newest(run: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """Return the newest of consecutive batches that are worth a minor compaction."""
    size, oldest = 0, len(run)
    for n, batch in reversed(tuple(enumerate(run))):
        if batch.bytes <= _GROWTH * size:
            oldest = n
        size += batch.bytes
    return run[oldest:]


@with_session_settings
def minor_compact(store: ManagedStore, snapshot: Snapshot, replaces: Sequence[Batch]) -> Snapshot | None:
    """Commit one batch with the resolved rows of consecutive others.

    Args:
        store: where the table is.
        snapshot: with these batches.
        replaces: as :func:`mergeable_batches` says.

    Returns:
        The snapshot with the new batch. None if another writer has replaced batches or the definition, or a vacuum has deleted
        the files: then nothing was changed, and the next merge tries again.
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
    doing = f"a minor compaction writes {len(replaces)} batches as one"
    with reporting.working(store.path, "minor compact", doing):
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
