"""`health`: the state of a table, with its live rows counted and its files listed."""

from __future__ import annotations

from functools import partial

from trinitymerge import reader
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.advice import TableHealth, health_of
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.stores.base import ManagedStore


@with_session_settings
def health(store: ManagedStore, snapshot: Snapshot) -> TableHealth:
    """Return the health of a table: one read counts the live rows, and one listing finds reclaimable files."""
    live = reader.live_rows(store, Batches.of(snapshot)).count()
    needed = snapshot.referenced_ids
    unused = [i for i in store.directories() if i not in needed]
    reclaimable = sum(f.size_bytes for i in unused for f in store.all_files(i))
    return health_of(snapshot, partial(reader.fits_broadcast, store.spark), live, reclaimable)
