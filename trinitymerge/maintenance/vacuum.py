"""Vacuum and restore (S39, S40)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import attrs

from trinitymerge.errors import ConcurrentCommitError, TableNotFoundError, counted
from trinitymerge.fs import faults
from trinitymerge.fs.base import FileInfo
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
from trinitymerge.log.commit import ConcurrentCommits, NoConcurrentCommits, Predicate, RetryPolicy, publish
from trinitymerge.log.model import Commit, Snapshot, current_user, now_ms
from trinitymerge.schema.evolution import restore_definition
from trinitymerge.stores.base import ManagedStore, require_files

FAULT_POINTS = ("vacuum.listed", "vacuum.announced", "vacuum.deleting", "vacuum.deleted", "restore.checked")
"""Where this module may be killed, see ``fs/faults.py``."""

_MS_PER_HOUR = 3_600_000
_FOR_EVER_HOURS = 1e9
_CHECKPOINTS_KEPT = 2

# Vacuum ---------------------------------------------------------------------------------------------------------------


def vacuum(backend: ManagedStore, retention_hours: float, dry_run: bool) -> list[str]:
    """Removes files that no version of the retention time needs (S39).

    Batches that go are named in the log first, as a version of their own, which changes no row.

    Returns:
        The paths that were removed, or that would be.

    Raises:
        ValueError: the retention is not a number of hours.
    """
    if isinstance(retention_hours, bool) or not isinstance(retention_hours, (int, float)) or not retention_hours >= 0:
        raise ValueError(f"retentionHours takes a number of hours from 0 up, got {retention_hours!r}.")
    cutoff_ms, start = now_ms() - int(min(retention_hours, _FOR_EVER_HOURS) * _MS_PER_HOUR), time.perf_counter()
    with reporting.if_slow(backend.path, "a vacuum looks for files that no version needs and removes them"):
        removable = list(_removable(backend, cutoff_ms))
        faults.fault("vacuum.listed")
        if dry_run:
            return [r.path for r in removable]
        gone = _announce(backend, {r.batch_id for r in removable if r.batch_id is not None})
        faults.fault("vacuum.announced")
        removed = [r.path for r in removable if r.batch_id is None or r.batch_id in gone]
        for path in removed:
            faults.fault("vacuum.deleting")
            backend.remove(path)
            faults.fault("vacuum.deleted")
    seconds = time.perf_counter() - start
    reporting.done(
        backend.path,
        f"vacuum has removed {counted(len(removed), 'file or directory', 'files and directories')}, {seconds:.1f} s",
    )
    return removed


@attrs.frozen
class _Removable:
    """What can go: a batch's directory, or a file of the log that it can do without."""

    path: str
    batch_id: str | None = None


def _removable(backend: ManagedStore, cutoff_ms: int) -> Iterator[_Removable]:
    """What can go: batch directories, temporary files and checkpoints older than the cutoff."""
    # Listed before the log is read: what is listed and was committed before is known to the log by then.
    directories = backend.directories()
    latest = backend.snapshot()
    first = _first_retained(backend, cutoff_ms)
    needed = _needed(backend, first, latest)
    for batch_id, directory in directories.items():
        if batch_id not in needed and _last_touched_ms(backend, batch_id, directory) <= cutoff_ms:
            yield _Removable(directory.path, batch_id)
    helpers = list(backend.helper_files())
    kept = sorted(v for v, _ in helpers if v is not None)[-_CHECKPOINTS_KEPT:]
    for checkpoint, file in helpers:
        is_needed = checkpoint is not None and (checkpoint >= first or checkpoint in kept)
        if not is_needed and file.modified_ms <= cutoff_ms:
            yield _Removable(file.path)


def _announce(backend: ManagedStore, ids: set[str]) -> set[str]:
    """Says in the log which batches are about to go: from then on none of them can be committed, or brought back by a restore.

    Otherwise that might happen after the last look and before the removal, and the table would need files that are gone.

    Returns:
        Those that can go: not what a restore has taken back meanwhile, or a slow writer has committed.

    Raises:
        ConcurrentCommitError: others took some of them back faster than this could be said, each time.
    """
    attempts = RetryPolicy()
    while True:
        latest = backend.snapshot()
        going = ids - latest.referenced_ids
        if going <= set(latest.pending_deletes):
            return going
        here = backend.directories()
        commit = latest.next_commit(
            "VACUUM",
            [SetPendingDeletes(sorted(going | {i for i in latest.pending_deletes if i in here}))],
            metrics={"directories": len(going)},
            user=current_user(),
        )
        try:
            publish(backend, commit, latest, (Predicate(partial(_why_needed, going)),), partial(_with_others, commit))
        except ConcurrentCommitError as error:
            attempts.backoff(error, latest)
        else:
            return going


def _why_needed(going: set[str], landed: ConcurrentCommits) -> str | None:
    return "a batch that was about to be removed is needed again" if going & landed.now.referenced_ids else None


def _with_others(commit: Commit, landed: ConcurrentCommits) -> Commit:
    """On top of what landed: what others remove is gone, too."""
    gone = {*(i for a in commit.all(SetPendingDeletes) for i in a.ids), *landed.now.pending_deletes}
    return attrs.evolve(landed.now.rebase(commit), actions=[SetPendingDeletes(sorted(gone))])


def _first_retained(backend: ManagedStore, cutoff_ms: int) -> int:
    """The version that was current at the cutoff: it and all later ones stay readable."""
    try:
        return backend.version_at(cutoff_ms)
    except TableNotFoundError:  # the table is younger
        return 0


def _needed(backend: ManagedStore, first: int, latest: Snapshot) -> set[str]:
    """The batches of all versions from ``first`` to the latest."""
    needed = latest.referenced_ids | {b.id for b in backend.snapshot_at(first).batches}
    for commit in backend.commits(first + 1, latest.version):
        needed.update(b.id for b in commit.added)
    return needed


def _last_touched_ms(backend: ManagedStore, batch_id: str, directory: FileInfo) -> int:
    """When anything in a directory was last written: a write in progress touches its files."""
    files = (f.modified_ms for f in backend.all_files(batch_id))
    return max(files, default=directory.modified_ms)  # object stores give directories no time of their own


# Restore --------------------------------------------------------------------------------------------------------------


@attrs.frozen
class RestoreResult:
    """What a restore did.

    Attributes:
        version: the table's version afterwards.
        restored: the version it equals.
        batchesAdded: batches that are part of the table again.
        batchesRemoved: batches that no longer are; their files stay until vacuumed.
        skipped: why nothing was committed, or an empty string.
        seconds: how long it took.
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


def restore(backend: ManagedStore, version: int) -> RestoreResult:
    """Commits a version that equals an old one (S40). Whatever lands meanwhile is undone too.

    Tombstones that were forgotten since are there again, and so is the old horizon. Purged keys stay purged, and
    transaction markers stay: what was replayed once must not be replayed because of a restore.

    Raises:
        ValueError: not a version number.
        TableNotFoundError: there is no such version, or its files are gone.
        ConcurrentCommitError: other writers were faster each time; nothing was changed.
        FilesVacuumedError: a vacuum has just removed what was to be restored; nothing was changed.
    """
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError(f"restore takes a version number, got {version!r}.")
    start = time.perf_counter()
    old = backend.snapshot_at(version)
    require_files(backend, old)
    faults.fault("restore.checked")
    attempts = RetryPolicy()
    while True:
        latest = backend.snapshot()
        commit = _going_back(latest, old, start)
        if commit is None:
            why = f"the table equals version {version} already"
            return RestoreResult(version=latest.version, restored=version, skipped=why)
        try:
            done = publish(backend, commit, latest, (NoConcurrentCommits(),))
        except ConcurrentCommitError as error:
            attempts.backoff(error, latest)
            continue
        return RestoreResult(
            version=done.version,
            restored=version,
            batchesAdded=len(commit.added),
            batchesRemoved=len(commit.removed),
            seconds=time.perf_counter() - start,
        )


def _going_back(latest: Snapshot, old: Snapshot, start: float) -> Commit | None:
    """The commit that makes of the latest version an old one; None if they are equal."""
    added, removed = _difference(old.batches, latest.batches), _difference(latest.batches, old.batches)
    restored = restore_definition(old.definition, latest.definition)
    definition = [SetDefinition(restored)] if restored != latest.definition else []
    is_same = (latest.horizon, latest.extracts) == (old.horizon, old.extracts)
    if not added and not removed and not definition and is_same:
        return None
    actions: list[Action] = [*remove_all(removed), *definition, *add_all(added)]
    actions.append(RestoreVersion(old.version, old.horizon, old.extracts))
    return latest.next_commit(
        "RESTORE",
        actions,
        parameters={"version": old.version},
        user=current_user(),
        duration_ms=int((time.perf_counter() - start) * 1000),
    )


def _difference(left: Sequence[Batch], right: Sequence[Batch]) -> list[Batch]:
    """The batches of ``left`` that ``right`` does not have. A batch never changes, but what its rows count as may (H1)."""
    known = {(b.id, b.version) for b in right}
    return [b for b in left if (b.id, b.version) not in known]
