"""`clone`: copy a table (S40a)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import attrs

from trinitymerge.errors import ConcurrentCommitError, StorageError, TrinityMergeError
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import Batch, CreateTable, Origin, SetDefinition
from trinitymerge.log.commit import CommitStateUnknown, retry
from trinitymerge.log.files import require_writable
from trinitymerge.log.model import Commit, Snapshot, current_user, elapsed_ms
from trinitymerge.stores.base import ManagedStore, require_files

FAULT_POINTS = ("clone.batch", "clone.copied")

CLONE = "CLONE"

_AT_ONCE = 8
"""Batches that are copied concurrently; each file takes one or two requests of an object store."""


class _Changed(Exception):  # noqa: N818 - a reason for another attempt
    """A writer deleted files of the source table, or purged keys, during the copy."""


def clone(source: ManagedStore, pinned: int | None, target: ManagedStore) -> Snapshot:
    """Create a table as a copy of a version of another table, by default the newest. The copy has the same version."""
    start = time.perf_counter()
    require_writable(source.path, source.snapshot())

    def attempt(newest: Snapshot) -> Snapshot:
        snapshot = newest if pinned is None else source.snapshot_at(pinned)
        try:
            return _attempt(source, target, snapshot, newest, start)
        except _Changed as changed:
            if snapshot.version < newest.version:  # checks that another attempt can succeed
                require_files(source, snapshot)
            elif source.snapshot().version == newest.version:
                source.verify_files([b for b in snapshot.batches if b.rows])
            raise ConcurrentCommitError(
                f"Table {source.path} changed while clone() copied it: {changed}. Run it again. Nothing was written.",
                path=source.path,
            ) from None

    target.require_free()
    with (
        target.cleanup_on_failure(),
        reporting.working(target.path, "clone", f"a clone copies the files of {source.path}"),
    ):
        return retry(source, attempt, (ConcurrentCommitError,))


def _attempt(
    source: ManagedStore, target: ManagedStore, snapshot: Snapshot, newest: Snapshot, start: float
) -> Snapshot:
    batches = _copied(source, target, snapshot.batches)
    try:
        faults.fault("clone.copied")
        if source.snapshot().purged != newest.purged:
            raise _Changed("keys were purged")
        commit = _commit_of(source, snapshot, newest, batches)
        return target.begin(attrs.evolve(commit, duration_ms=elapsed_ms(start)))
    except CommitStateUnknown:
        raise  # the copy may be there: its files must stay
    except Exception:
        _discard(target, batches)
        raise


def _copied(source: ManagedStore, target: ManagedStore, batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Copy batches under new names. If one copy fails, delete the others."""
    copies: list[Batch] = []
    failure: Exception | None = None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for batch, running in [(b, pool.submit(_copy, source, target, b)) for b in batches]:
            try:
                if failure is None or not running.cancel():
                    copies.append(running.result())
                    (keys,) = source.ranges_of([batch])
                    if keys is not None:  # the copied file names the original
                        target.note_range(copies[-1].id, keys)
                    faults.fault("clone.batch")
            except Exception as error:  # noqa: BLE001 - raised below, after the other copies have ended
                failure = failure or error
    if failure is not None:
        _discard(target, copies)
        raise failure
    return tuple(copies)


def _copy(source: ManagedStore, target: ManagedStore, batch: Batch) -> Batch:
    try:
        copy = attrs.evolve(batch, id=target.copy_batch_from(source, batch.id))
    except FileNotFoundError as error:
        raise _Changed(f"files of {source.batch_path(batch.id)} were deleted") from error
    except OSError as error:
        if isinstance(error, TrinityMergeError):
            raise
        raise StorageError(
            f"{source.batch_path(batch.id)} could not be copied to {target.path}: {error}. Free space or "
            "grant the missing permission, and run it again. Nothing was written.",
            path=target.path,
        ) from error
    files = target.data_files(copy.id)
    if batch.rows and (len(files), sum(f.size_bytes for f in files)) != (batch.files, batch.bytes):
        _discard(target, [copy])
        raise _Changed(f"files of {source.batch_path(batch.id)} were deleted or replaced")
    return copy


def _discard(target: ManagedStore, batches: Sequence[Batch]) -> None:
    for batch in batches:
        target.remove(target.batch_path(batch.id))


def _commit_of(source: ManagedStore, snapshot: Snapshot, newest: Snapshot, batches: Sequence[Batch]) -> Commit:
    """Return the first commit of the copy, with the whole snapshot. Keys that were purged later stay purged (S40)."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    created = CreateTable(uuid.uuid4().hex, (Origin(snapshot.table_id, snapshot.version), *snapshot.origins))
    purged = [newest.purged] if newest.purged else []
    commit = Commit(
        version=0,
        timestamp_ms=snapshot.timestamp_ms,
        operation=CLONE,
        parameters={"of": source.path, "version": snapshot.version, "at": now},
        actions=[created, SetDefinition(snapshot.definition), *purged],
        metrics={"rows": sum(b.rows for b in batches), "bytes": sum(b.bytes for b in batches)},
        user=current_user(),
    )
    if snapshot.version == 0:  # the table has no other commits
        return commit
    # The source table delivers its outbox rows itself (S27).
    whole = attrs.evolve(snapshot, batches=batches, purged=None, outbox=(), pending_deletes=())
    return attrs.evolve(commit, actions=[*commit.actions, whole.as_initial(_times(source, snapshot))])


def _times(source: ManagedStore, snapshot: Snapshot) -> Mapping[int, int]:
    """Return the commit times of the versions of rows and the truncate. With history, archived rows may need any version."""
    if not snapshot.definition.history:
        truncate = snapshot.truncate.version if snapshot.truncate is not None else None
        return {v: source.committed_at(v) for v in {truncate, *(b.version for b in snapshot.batches)} if v is not None}
    times: dict[int, int] = {}
    for commit in source.commits(0, snapshot.version):
        times |= {} if commit.initial_snapshot is None else commit.initial_snapshot.commit_times
        times[commit.version] = commit.timestamp_ms
    return times
