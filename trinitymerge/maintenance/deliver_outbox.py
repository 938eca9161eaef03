"""Deliver outbox rows to other tables, before and after merges (S27)."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from trinitymerge.errors import ConcurrentCommitError, PendingHistoryInsertsError, TrinityMergeError, counted
from trinitymerge.fs import faults
from trinitymerge.log.actions import OutboxEntry, RemoveOutboxEntry, marker_prefix
from trinitymerge.log.commit import ConcurrentCommits, publish
from trinitymerge.log.model import Snapshot, now_ms
from trinitymerge.maintenance import auto
from trinitymerge.merge import builder
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.execute.request import MergeSpec, Transaction
from trinitymerge.merge.model.clauses import All
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import combined
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.stores.base import Staged, TableStore
from trinitymerge.stores.registry import open_store

FAULT_POINTS = ("outbox.before", "outbox.written", "outbox.committed", "outbox.removed")

_MARKERS_KEPT_MS = 24 * 3_600_000

_logger = logging.getLogger(__name__)


def post_commit_hook(store: TableStore, result: MergeResult, after: Snapshot | None) -> MergeResult:
    """Deliver the outbox rows of a merge, then run automatic maintenance. The merge stays committed if that fails."""
    try:
        left = _delivered(store, result, after)
        result = auto.run_auto_maintenance(store, result, after)
    except KeyboardInterrupt:  # the caller gets no result, so the log says that the merge is committed
        done = f"the merge was committed as version {result.version}; the next merge does the rest"
        _logger.warning("%s: interrupted, but %s", store.path, done)
        raise
    return attrs.evolve(result, hint="; ".join(filter(None, (left, result.hint))))


def _delivered(store: TableStore, result: MergeResult, after: Snapshot | None) -> str:
    if after is None or not (result.rowsHistory or result.rowsQuarantined):
        return ""
    try:
        deliver_pending(store)
    except Exception as error:  # noqa: BLE001 - the merge has been committed
        left = f"rows for other tables are still to be written: {error}"
        _logger.warning("%s: after version %d, %s", store.path, result.version, left)
        return left
    return ""


def pre_attempt_hook(store: TableStore) -> Snapshot:
    """Deliver outbox rows, and return the newest snapshot."""
    snapshot = store.snapshot()
    if not snapshot.outbox:
        return snapshot
    deliver_pending(store)
    return store.snapshot()


def deliver_pending(store: TableStore) -> None:
    """Deliver the outbox rows of a table to other tables, oldest first."""
    failed: list[PendingHistoryInsertsError] = []
    for entry in store.snapshot().outbox:
        try:
            deliver(store, entry)
        except PendingHistoryInsertsError as error:
            failed.append(error)
    if failed:
        raise failed[0]


@with_session_settings
def deliver(store: TableStore, entry: OutboxEntry) -> None:
    faults.fault("outbox.before")
    try:
        _write(store, entry)
    except Exception as error:
        if entry.id not in {r.id for r in store.snapshot().outbox}:
            return  # another writer has delivered the rows
        raise _blocked(store, entry, error) from error
    faults.fault("outbox.written")
    mark_delivered(store, entry, "DELIVER")
    faults.fault("outbox.committed")
    store.discard(_staged(store, entry))
    faults.fault("outbox.removed")


def _blocked(store: TableStore, entry: OutboxEntry, error: Exception) -> PendingHistoryInsertsError:
    why = clean_message(error) if is_spark_error(error) else str(error)
    return PendingHistoryInsertsError(
        f"{counted(entry.rows)} of a merge into {store.path} cannot be delivered to {entry.path}: {why.rstrip('.')}. Restore "
        f"{entry.path} and write again, or discard the rows with discardPendingHistoryInserts(). Until then the table is "
        "read-only.",
        path=store.path,
        table=entry.path,
        rows=entry.rows,
    )


def _write(store: TableStore, entry: OutboxEntry) -> None:
    other = open_store(store.spark, entry.path)
    snapshot = other.snapshot()
    mine = store.snapshot()
    marker = entry.marker(mine.table_id)
    if marker in snapshot.transactions:
        return
    rows = _fitted(_rows(store, entry), entry, snapshot.definition)
    # Without the hooks of the other table: two tables may have outbox rows for each other.
    spec = MergeSpec(other, "target", rows, post_commit_hook=partial(auto.run_auto_maintenance, other))
    merge = builder.upsert(MergeBuilder(spec), All(), False)
    done = Transaction(marker, entry.since_ms)
    merge._with(transaction=done, expired_transactions=_expired(mine, snapshot)).execute()


def _expired(mine: Snapshot, other: Snapshot) -> tuple[str, ...]:
    """Return the markers of this table's entries that ended a day ago: until then, a writer that read before may look for them."""
    pending = {entry.marker(mine.table_id) for entry in mine.outbox}
    prefix, long_ago = marker_prefix(mine.table_id), now_ms() - _MARKERS_KEPT_MS
    return tuple(
        name
        for name, since_ms in other.transactions.items()
        if name.startswith(prefix) and since_ms < long_ago and name not in pending
    )


def _staged(store: TableStore, entry: OutboxEntry) -> Staged:
    schema = StructType().add(C.OUTBOX_ROW, E.physical_schema(entry.fields))
    return Staged(entry.id, entry.files, entry.bytes, schema, store.snapshot().definition)


def _rows(store: TableStore, entry: OutboxEntry) -> DataFrame:
    rows = store.read_staged(_staged(store, entry)).selectExpr(f"{C.OUTBOX_ROW}.*")
    if not entry.is_quarantine:
        return rows
    stamps = {"version": f"{entry.version}L", "at": f"timestamp_millis({entry.since_ms}L)"}
    return rows.selectExpr(*[f"{stamps.get(c, E.quote(c))} AS {E.quote(c)}" for c in rows.columns])


def _fitted(rows: DataFrame, entry: OutboxEntry, own: TableDefinition) -> DataFrame:
    """Return the rows with the columns of the other table, which may have new columns."""
    now = {f.first_stored_as: f for f in own.fields}
    same = {f.name: now.get(f.first_stored_as) for f in entry.fields}
    changed = [f.name for f in entry.fields if not _holds(same[f.name], f)]
    keys = tuple(
        tuple(field.name if (field := same.get(n)) else n for n in names)
        for names in (entry.primary_key, entry.watermark_key)
    )
    if changed or keys != (own.primaryKey, own.watermarkKey):
        what = f"its column {', '.join(changed)}" if changed else "its primary key or watermark"
        raise TrinityMergeError(f"{what} is not what it was when the rows were made.")
    renamed = [f"{E.quote(name)} AS {E.quote(field.name)}" for name, field in same.items() if field is not None]
    here = {field.name for field in same.values() if field is not None}
    return rows.selectExpr(
        *renamed, *[f"{E.null_of(f)} AS {E.quote(f.name)}" for f in own.fields if f.name not in here]
    )


def _holds(now: Field | None, then: Field) -> bool:
    """Return True if the column still exists with its type, or a wider one."""
    return now is not None and combined(then.type, now.type)[0] == now.type


@attrs.frozen
class _StillPending:
    id: str

    def violation(self, landed: ConcurrentCommits) -> str | None:
        return None if self.id in {r.id for r in landed.now.outbox} else "another writer has removed the entry"


def mark_delivered(store: TableStore, entry: OutboxEntry, operation: str) -> None:
    snapshot = store.snapshot()
    if entry.id not in {r.id for r in snapshot.outbox}:
        return
    parameters = {"table": entry.path, "rows": entry.rows}
    commit = snapshot.next_commit(operation, [RemoveOutboxEntry(entry.id)], parameters=parameters)
    try:
        publish(store, commit, snapshot, (_StillPending(entry.id),))
    except ConcurrentCommitError as error:
        if not isinstance(error.facts.get("requirement"), _StillPending):
            raise


def discard_pending(store: TableStore) -> tuple[dict[str, Any], ...]:
    """Deliver what can be delivered and discard the rest."""
    given_up = []
    for entry in store.snapshot().outbox:
        try:
            deliver(store, entry)
        except PendingHistoryInsertsError as error:
            _logger.warning("%s: discarding %s for %s: %s", store.path, counted(entry.rows), entry.path, error)
            mark_delivered(store, entry, "DISCARD")
            given_up.append({"table": entry.path, "rows": entry.rows, "batch": entry.id})
    return tuple(given_up)
