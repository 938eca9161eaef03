"""`clone`: a table as a copy of another (S40a)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import attrs

from trinitymerge.errors import ConcurrentCommitError, StorageError, TrinityMergeError
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import Batch, PurgeKeys, SetDefinition
from trinitymerge.log.commit import CommitStateUnknown, RetryPolicy
from trinitymerge.log.model import Commit, Snapshot, current_user
from trinitymerge.stores.base import ManagedStore, require_files

FAULT_POINTS = ("clone.batch", "clone.copied")
"""Where this module may be killed, see ``fs/faults.py``."""

CLONE = "CLONE"

_AT_ONCE = 8
"""So many batches are copied beside each other: each file takes a request or two of an object store."""


class _Changed(Exception):  # noqa: N818 - a reason to begin anew
    """Files of the original have gone, or keys were purged, while they were copied."""


def clone(source: ManagedStore, pinned: int | None, target: ManagedStore) -> Snapshot:
    """Makes a table of a version of another one.

    Args:
        source: of the original.
        pinned: the version to copy; None for the newest.
        target: where the copy will be.

    Returns:
        The copy, which is at the same version.

    Raises:
        TableExistsError: there is something at the path.
        TableNotFoundError: files of a past version are gone.
        CorruptTableError: files of the newest version are gone.
        ConcurrentCommitError: the original has changed each time while it was copied; nothing is left of the copy.
    """
    start, attempts = time.perf_counter(), RetryPolicy()
    target.require_free()
    with target.cleanup_on_failure(), reporting.if_slow(target.path, f"a clone copies the files of {source.path}"):
        while True:
            newest = source.snapshot()
            snapshot = newest if pinned is None else source.snapshot_at(pinned)
            try:
                return _attempt(source, target, snapshot, newest, start)
            except _Changed as changed:
                _require_files(source, snapshot, newest)
                error = ConcurrentCommitError(
                    f"{source.path} has changed while it was copied: {changed}. Nothing is left of the copy; run it again.",
                    path=source.path,
                )
                attempts.backoff(error, newest)


def _require_files(source: ManagedStore, snapshot: Snapshot, newest: Snapshot) -> None:
    """Checks that it makes sense to begin anew: that files of the newest version were lost, others have not changed since.

    Raises:
        TableNotFoundError: a past version cannot be read any more.
        CorruptTableError: the newest version has lost files.
    """
    if snapshot.version < newest.version:
        require_files(source, snapshot)
    elif source.snapshot().version == newest.version:
        source.verify_files([b for b in snapshot.batches if b.rows])


def _attempt(
    source: ManagedStore, target: ManagedStore, snapshot: Snapshot, newest: Snapshot, start: float
) -> Snapshot:
    batches = _copied(source, target, snapshot.batches)
    try:
        faults.fault("clone.copied")
        if source.snapshot().purged != newest.purged:
            raise _Changed("keys were purged")
        commit = _commit_of(source, snapshot, newest, batches)
        return target.begin(attrs.evolve(commit, duration_ms=int((time.perf_counter() - start) * 1000)))
    except CommitStateUnknown:
        raise  # the copy may be there: its files must stay
    except Exception:
        _discard(target, batches)
        raise


# Files ----------------------------------------------------------------------------------------------------------------


def _copied(source: ManagedStore, target: ManagedStore, batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """The batches as copies under names of their own, which nobody can see; none is left if one cannot be copied."""
    copies: list[Batch] = []
    failure: Exception | None = None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for running in [pool.submit(_copy, source, target, batch) for batch in batches]:
            try:
                if failure is None or not running.cancel():
                    copies.append(running.result())
                    faults.fault("clone.batch")
            except Exception as error:  # noqa: BLE001 - raised below, once no other is being copied
                failure = failure or error
    if failure is not None:
        _discard(target, copies)
        raise failure
    return tuple(copies)


def _copy(source: ManagedStore, target: ManagedStore, batch: Batch) -> Batch:
    try:
        copy = attrs.evolve(batch, id=target.copy_batch_from(source, batch.id))
    except FileNotFoundError as error:
        raise _Changed(f"files of {source.batch_path(batch.id)} are gone") from error
    except OSError as error:
        if isinstance(error, TrinityMergeError):
            raise
        raise StorageError(
            f"{source.batch_path(batch.id)} could not be copied to {target.path}: {error}. Nothing is left of the copy. Make room, "
            "or give the permission that is missing, and run it again.",
            path=target.path,
        ) from error
    files = target.data_files(copy.id)
    if batch.rows and (len(files), sum(f.size_bytes for f in files)) != (batch.files, batch.bytes):
        _discard(target, [copy])
        raise _Changed(f"files of {source.batch_path(batch.id)} are gone, or not what they were")
    return copy


def _discard(target: ManagedStore, batches: Sequence[Batch]) -> None:
    for batch in batches:
        target.remove(target.batch_path(batch.id))


# The log --------------------------------------------------------------------------------------------------------------


def _commit_of(source: ManagedStore, snapshot: Snapshot, newest: Snapshot, batches: Sequence[Batch]) -> Commit:
    """The commit that makes the copy. All that a snapshot holds goes along as it is; purged keys stay purged (S40)."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    purged = [PurgeKeys(newest.purged.salt, newest.purged.hashes)] if newest.purged else []
    commit = Commit(
        version=0,
        timestamp_ms=snapshot.timestamp_ms,
        operation=CLONE,
        parameters={"of": source.path, "version": snapshot.version, "at": now},
        actions=[SetDefinition(snapshot.definition), *purged],
        metrics={"rows": sum(b.rows for b in batches), "bytes": sum(b.bytes for b in batches)},
        user=current_user(),
    )
    if snapshot.version == 0:  # nothing has happened yet
        return commit
    # What the original still owes to other tables (S27) it pays itself.
    whole = attrs.evolve(snapshot, batches=batches, purged=newest.purged, outbox=(), pending_deletes=())
    return attrs.evolve(commit, actions=[*commit.actions, whole.as_initial(_times(source, snapshot))])


def _times(source: ManagedStore, snapshot: Snapshot) -> Mapping[int, int]:
    """When the versions were committed that rows count as. In archives rows keep their times: any version may be asked for."""
    if not snapshot.definition.history:
        return {
            v: source.committed_at(v) for v in sorted({b.version for b in snapshot.batches if b.version is not None})
        }
    times: dict[int, int] = {}
    for commit in source.commits(0, snapshot.version):
        times |= {} if commit.initial_snapshot is None else commit.initial_snapshot.commit_times
        times[commit.version] = commit.timestamp_ms
    return times
