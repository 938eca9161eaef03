"""`health`: the state of a table, with its live rows counted and its files listed; and how many rows it stores of each key."""

from __future__ import annotations

from functools import partial

from pyspark.sql import functions as F

from trinitymerge import reader
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.advice import StoredKeys, TableHealth, health_of, newest_first, unneeded
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.stores.base import ManagedStore


@with_session_settings
def health(store: ManagedStore, snapshot: Snapshot) -> TableHealth:
    """Return the health of a table: one read counts the live rows, and one listing finds the files it does not need."""
    live = reader.live_rows(store, Batches.of(snapshot)).count()
    unused = unneeded(store, snapshot, newest_first(store, snapshot))
    return health_of(snapshot, partial(reader.fits_broadcast, store.spark), live, unused)


@with_session_settings
def stored_keys(store: ManagedStore, snapshot: Snapshot) -> StoredKeys:
    """Return how many rows a table stores of its keys: one read for the live rows, and one of all keys, with a shuffle."""
    own = snapshot.definition
    stored = [b for b in snapshot.batches if b.rows]
    key = ", ".join(map(E.quote, own.primaryKey))
    rows = store.scan_directories(own, [own.field(name) for name in own.primaryKey], [b.id for b in stored])
    counted = rows.groupBy(*map(E.quote, own.primaryKey)).agg(F.count(F.lit(1)).alias("rows"))
    example = F.expr(f"min(to_json(struct({key})))")
    found = (
        counted.groupBy("rows").agg(F.count(F.lit(1)).alias("keys"), example.alias("example")).orderBy("rows").collect()
    )
    return StoredKeys(
        liveRows=reader.live_rows(store, Batches.of(snapshot)).count(),
        keys={r["rows"]: r["keys"] for r in found},
        examples={r["rows"]: r["example"] for r in found},
    )
