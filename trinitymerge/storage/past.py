"""Past versions that can no longer be read, because their files are gone (S40).

Owns: the check that a version can still be read, and which ones are left if it cannot. Whoever opens a past version or
restores one asks here.
"""

from __future__ import annotations

from trinitymerge.errors import TableNotFoundError
from trinitymerge.storage.backend import TimeTravel
from trinitymerge.storage.entries import Snapshot


def require_files(store: TimeTravel, snapshot: Snapshot) -> None:
    """Checks that a past version can still be read (S40).

    Raises:
        TableNotFoundError: its files are gone, and which versions are left.
    """
    missing = store.missing(snapshot.batches)
    if not missing:
        return
    first = _first_readable(store, snapshot, {b.id for b in missing})
    left = f"the versions from {first} on can" if first is not None else "no later version can either"
    raise TableNotFoundError(
        f"Version {snapshot.version} of {store.path} can no longer be read: vacuum() or purge() has removed files it needs "
        f"(batch {missing[0].id}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}); {left}. To keep past versions "
        "longer, give vacuum() a longer retentionHours.",
        path=store.path,
        version=snapshot.version,
    )


def _first_readable(store: TimeTravel, snapshot: Snapshot, gone: set[str]) -> int | None:
    """The first version after an unreadable one whose batches are all there.

    Args:
        store: of the table.
        snapshot: the unreadable version.
        gone: ids of batches known to be missing. A version that still has one of them needs no look at the storage.
    """
    for commit in store.commits(snapshot.version + 1, store.snapshot().version):
        snapshot = snapshot.apply(commit)
        if gone.isdisjoint(b.id for b in snapshot.batches):
            missing = store.missing(snapshot.batches)
            if not missing:
                return snapshot.version
            gone = gone | {b.id for b in missing}
    return None
