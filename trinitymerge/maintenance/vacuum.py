"""Vacuum and restore (S39, S40)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import attrs

from trinitymerge import _format
from trinitymerge.errors import ConcurrentCommitError, TableNotFoundError, counted
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import (
    Action,
    Batch,
    RestoreVersion,
    SetDefinition,
    SetPendingDeletes,
    add_all,
    remove_all,
)
from trinitymerge.log.commit import ConcurrentCommits, NoConcurrentCommits, Predicate, publish, retry
from trinitymerge.log.files import require_writable
from trinitymerge.log.model import Commit, Snapshot, now_ms
from trinitymerge.maintenance.advice import at_once, newest_first, unneeded
from trinitymerge.schema.evolution import restore_definition
from trinitymerge.stores.base import ManagedStore, require_files

FAULT_POINTS = ("vacuum.listed", "vacuum.announced", "vacuum.deleting", "vacuum.deleted", "restore.checked")

_MS_PER_HOUR = 3_600_000
_FOR_EVER_HOURS = 1e9
_CHECKPOINTS_KEPT = 2


def vacuum(store: ManagedStore, retention_hours: float, dry_run: bool) -> list[str]:
    """Delete, or only return, the files that no version within the retention needs (S39). A commit announces them before."""
    if isinstance(retention_hours, bool) or not isinstance(retention_hours, (int, float)) or not retention_hours >= 0:
        raise ValueError(f"retentionHours takes a number of hours from 0 up, got {retention_hours!r}.")
    cutoff_ms, start = now_ms() - int(min(retention_hours, _FOR_EVER_HOURS) * _MS_PER_HOUR), time.perf_counter()
    if not dry_run:
        require_writable(store.path, store.snapshot())
    with reporting.working(store.path, "vacuum", "a vacuum deletes files that no version needs"):
        removable = list(_removable(store, cutoff_ms))
        faults.fault("vacuum.listed")
        if dry_run:
            return [r.path for r in removable]
        gone = announce_deletes(store, {r.batch_id for r in removable if r.batch_id is not None}, "VACUUM")
        faults.fault("vacuum.announced")
        removed = [r.path for r in removable if r.batch_id is None or r.batch_id in gone]
        list(at_once(store, partial(_remove, store), removed))
    seconds = time.perf_counter() - start
    done = f"vacuum deleted {counted(len(removed), 'file or directory', 'files and directories')}, {seconds:.1f} s"
    reporting.done(store.path, lambda: done if removed else f"{done}. {held_back(store, retention_hours)}".strip())
    return removed


def _remove(store: ManagedStore, path: str) -> None:
    faults.fault("vacuum.deleting")
    store.remove(path)
    faults.fault("vacuum.deleted")


def held_back(store: ManagedStore, retention_hours: float) -> str:
    """Return what the retention keeps a vacuum from deleting, and the remedy; empty if nothing."""
    snapshot = store.snapshot()
    found = unneeded(store, snapshot, newest_first(store, snapshot), retention_hours)
    if found.bytes == found.freeBytes:
        return ""
    return (
        f"Files that the newest version does not need are kept for the retention of {retention_hours:,g} hours: a vacuum frees "
        f"{found.shown}. A shorter retention, longer than any running merge or read, deletes them earlier; the past versions "
        "that need them can then not be read."
    )


@attrs.frozen
class _Removable:
    path: str
    batch_id: str | None = None


def _removable(store: ManagedStore, cutoff_ms: int) -> Iterator[_Removable]:
    """Yield the batch directories, temporary files and checkpoints that are not needed and older than the cutoff."""
    # List before reading the log, so that the log knows each listed batch that was committed before the listing.
    directories = store.directories()
    latest = store.snapshot()
    try:
        first = store.version_at(cutoff_ms)
    except TableNotFoundError:  # the table is younger
        first = 0
    needed = _needed(store, first, latest)
    left = {batch_id: directory for batch_id, directory in directories.items() if batch_id not in needed}
    for (batch_id, directory), files in zip(left.items(), at_once(store, store.all_files, left), strict=True):
        times = (f.modified_ms for f in files)  # a write in progress modifies its files
        if max(times, default=directory.modified_ms) <= cutoff_ms:  # a directory of an object store has no time
            yield _Removable(directory.path, batch_id)
    helpers = list(store.helper_files())
    kept = sorted(v for v, _ in helpers if v is not None)[-_CHECKPOINTS_KEPT:]
    for checkpoint, file in helpers:
        is_needed = checkpoint is not None and (checkpoint >= first or checkpoint in kept)
        if not is_needed and file.modified_ms <= cutoff_ms:
            yield _Removable(file.path)


def announce_deletes(store: ManagedStore, ids: set[str], operation: str) -> set[str]:
    """Commit which batches will be deleted: none of them can be committed or restored then. Return those that are not needed."""

    def attempt(latest: Snapshot) -> set[str]:
        going = ids - latest.referenced_ids
        if going <= set(latest.pending_deletes):
            return going

        def why_not(landed: ConcurrentCommits) -> str | None:
            return "the table needs a batch again that was to be deleted" if going & landed.now.referenced_ids else None

        present = store.directories()
        announced = SetPendingDeletes(sorted(going | {i for i in latest.pending_deletes if i in present}))
        commit = latest.next_commit(operation, [announced], metrics={"directories": len(going)})
        publish(store, commit, latest, (Predicate(why_not),), partial(_with_others, commit))
        return going

    return retry(store, attempt, (ConcurrentCommitError,))


def _with_others(commit: Commit, landed: ConcurrentCommits) -> Commit:
    """Rebase the announcement on concurrent commits, and keep what they announce."""
    announced = {*(i for a in commit.all(SetPendingDeletes) for i in a.ids), *landed.now.pending_deletes}
    return attrs.evolve(landed.now.rebase(commit), actions=[SetPendingDeletes(sorted(announced))])


def _needed(store: ManagedStore, first: int, latest: Snapshot) -> set[str]:
    needed = latest.referenced_ids | store.snapshot_at(first).referenced_ids
    return needed.union(*(commit.added_ids for commit in store.commits(first + 1, latest.version)))


@attrs.frozen
class RestoreResult(_format.Result):
    """The result of a restore.

    Attributes:
        version: the table's version after the call.
        restored: the version that the table equals now.
        batchesRemoved: batches that are not part of the table any more; vacuum deletes their files.
        skipped: why nothing was committed, or an empty string.
    """

    version: int
    restored: int
    batchesAdded: int = 0
    batchesRemoved: int = 0
    skipped: str = ""
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        if self.skipped:
            return f"version {self.version}: nothing restored, {self.skipped}"
        return (
            f"version {self.version} equals version {self.restored}: {counted(self.batchesAdded, 'batch is', 'batches are')} back, "
            f"{self.batchesRemoved:,} are out"
        )


def restore(store: ManagedStore, version: int) -> RestoreResult:
    """Commit a version that equals an old one (S40). This also reverts concurrent commits.

    Dropped tombstones and the old horizon return. Purged keys stay purged. Transaction markers stay, so that a restore
    does not cause a replay.
    """
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError(f"restore() takes a version number, got {version!r}.")
    start = time.perf_counter()
    old = store.snapshot_at(version)
    require_files(store, old)
    faults.fault("restore.checked")

    def attempt(latest: Snapshot) -> RestoreResult:
        commit = _restoring(latest, old, start)
        if commit is None:
            return RestoreResult(latest.version, version, skipped=f"the table equals version {version} already")
        done = publish(store, commit, latest, (NoConcurrentCommits(),))
        seconds = time.perf_counter() - start
        return RestoreResult(done.version, version, len(commit.added), len(commit.removed), seconds=seconds)

    return retry(store, attempt, (ConcurrentCommitError,))


def _restoring(latest: Snapshot, old: Snapshot, start: float) -> Commit | None:
    """Return the commit that restores an old version; None if the latest equals it."""
    added, removed = _difference(old.batches, latest.batches), _difference(latest.batches, old.batches)
    restored = restore_definition(old.definition, latest.definition)
    definition = [SetDefinition(restored)] if restored != latest.definition else []
    is_same = (latest.horizon, latest.extracts, latest.truncate) == (old.horizon, old.extracts, old.truncate)
    if not added and not removed and not definition and is_same:
        return None
    actions: list[Action] = [*remove_all(removed), *definition, *add_all(added)]
    actions.append(RestoreVersion(old.version, old.horizon, old.extracts))
    actions += [] if old.truncate is None else [old.truncate]
    actions += [] if old.deletion_vectors is None else [old.deletion_vectors]
    return latest.next_commit("RESTORE", actions, start, parameters={"version": old.version})


def _difference(left: Sequence[Batch], right: Sequence[Batch]) -> list[Batch]:
    """Return the batches of ``left`` that ``right`` lacks. A batch never changes, but the version of its rows can (H1)."""
    known = {(b.id, b.version) for b in right}
    return [b for b in left if (b.id, b.version) not in known]
