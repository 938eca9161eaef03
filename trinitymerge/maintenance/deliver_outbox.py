"""Deliver pending rows to other tables, before and after merges (S27)."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from trinitymerge.errors import ConcurrentCommitError, PendingHistoryInsertsError, TrinityMergeError, counted
from trinitymerge.fs import faults
from trinitymerge.log.actions import OutboxEntry, RemoveOutboxEntry
from trinitymerge.log.commit import ConcurrentCommits, publish
from trinitymerge.log.model import Snapshot, current_user
from trinitymerge.maintenance import auto
from trinitymerge.merge import builder
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.model.clauses import All
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import combined
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.expressions import null_of, physical_schema, quote
from trinitymerge.spark.system_columns import OUTBOX_ROW
from trinitymerge.stores.base import Staged, TableStore
from trinitymerge.stores.registry import open_store

FAULT_POINTS = ("outbox.before", "outbox.written", "outbox.committed", "outbox.removed")
"""Where this module may be killed, see ``fs/faults.py``."""

_logger = logging.getLogger(__name__)


# Around a merge -------------------------------------------------------------------------------------------------------


def post_commit_hook(store: TableStore, result: MergeResult, after: Snapshot | None) -> MergeResult:
    """Writes what a merge owes to other tables, then looks after its own. The merge stands, whatever becomes of that.

    Args:
        store: where the table is.
        result: of the merge.
        after: the table with its rows; None if it committed none.
    """
    try:
        left = _paid(store, result, after)
        result = auto.run_auto_maintenance(store, result, after)
    except KeyboardInterrupt:  # who stops it gets no result, and is to know that there is one
        done = f"the merge was committed as version {result.version}; what was to be done after it, the next one does"
        _logger.warning("%s: interrupted, but %s", store.path, done)
        raise
    return attrs.evolve(result, hint="; ".join(filter(None, (left, result.hint))))


def _paid(store: TableStore, result: MergeResult, after: Snapshot | None) -> str:
    """Writes what a merge owes to other tables. Why it could not, in words, or an empty string."""
    if after is None or not result.rowsHistory:
        return ""
    try:
        deliver_pending(store)
    except Exception as error:  # noqa: BLE001 - the merge has been committed
        left = f"rows for other tables are still to be written: {error}"
        _logger.warning("%s: after version %d, %s", store.path, result.version, left)
        return left
    return ""


def pre_attempt_hook(store: TableStore) -> Snapshot:
    """The newest version of a table, once what it owes to other tables is paid (:func:`deliver_pending`).

    Raises:
        PendingHistoryInsertsError: as :func:`deliver_pending`.
    """
    snapshot = store.snapshot()
    if not snapshot.outbox:
        return snapshot
    deliver_pending(store)
    return store.snapshot()


def deliver_pending(store: TableStore) -> None:
    """Write what merges into a table still owe to other tables, oldest first.

    Raises:
        PendingHistoryInsertsError: some cannot be written; says why, and what to do.
    """
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
        if not is_pending(store, entry):
            return  # another writer has done it meanwhile, and removed the rows
        raise _blocked(store, entry, error) from error
    faults.fault("outbox.written")
    mark_delivered(store, entry, "DELIVER")
    faults.fault("outbox.committed")
    store.discard(_staged(store, entry))
    faults.fault("outbox.removed")


def is_pending(store: TableStore, entry: OutboxEntry) -> bool:
    return entry.id in {r.id for r in store.snapshot().outbox}


def _blocked(store: TableStore, entry: OutboxEntry, error: Exception) -> PendingHistoryInsertsError:
    why = clean_message(error) if is_spark_error(error) else str(error)
    return PendingHistoryInsertsError(
        f"A merge into {store.path} has replaced rows, and {counted(entry.rows)} made of them are still to be written into "
        f"{entry.path}, which is not possible: {why.rstrip('.')}. Until then the table can be read, not "
        f"written. Make {entry.path} again what it was, and write; or give these rows up with discardPendingHistoryInserts().",
        path=store.path,
        table=entry.path,
        rows=entry.rows,
    )


# Writing into the other table -----------------------------------------------------------------------------------------


def _write(store: TableStore, entry: OutboxEntry) -> None:
    other = open_store(store.spark, entry.path)
    snapshot = other.snapshot()
    if entry.marker in snapshot.transactions:
        return
    rows = _fitted(_rows(store, entry), entry, snapshot.definition)
    # What the other table owes itself has no part in this: two tables may owe each other rows.
    afterwards = partial(auto.run_auto_maintenance, other)
    merge = builder.upsert(MergeBuilder(other, "target", rows, None, afterwards=afterwards), All(), False)
    merge.withTransaction(entry.marker, entry.since_ms).execute()


def _staged(store: TableStore, entry: OutboxEntry) -> Staged:
    schema = StructType().add(OUTBOX_ROW, physical_schema(entry.fields))
    return Staged(entry.id, entry.files, entry.bytes, schema, store.snapshot().definition)


def _rows(store: TableStore, entry: OutboxEntry) -> DataFrame:
    """The rows, as they were staged."""
    return store.read_staged(_staged(store, entry)).selectExpr(f"{OUTBOX_ROW}.*")


def _fitted(rows: DataFrame, entry: OutboxEntry, own: TableDefinition) -> DataFrame:
    """The rows with the columns of the other table, which may have got new ones.

    Raises:
        TrinityMergeError: it is another table than that they were made for.
    """
    now = {f.first_stored_as: f for f in own.fields}
    same = {f.name: now.get(f.first_stored_as) for f in entry.fields}
    changed = [f.name for f in entry.fields if not _holds(same[f.name], f)]
    keys = tuple(
        tuple(field.name if (field := same.get(n)) else n for n in names) for names in (entry.keys, entry.watermarks)
    )
    if changed or keys != (own.primaryKey, own.watermarkKey):
        what = f"its column {', '.join(changed)}" if changed else "its primary key or watermark"
        raise TrinityMergeError(f"{what} is not what it was when the rows were made.")
    renamed = [f"{quote(name)} AS {quote(field.name)}" for name, field in same.items() if field is not None]
    here = {field.name for field in same.values() if field is not None}
    return rows.selectExpr(*renamed, *[f"{null_of(f)} AS {quote(f.name)}" for f in own.fields if f.name not in here])


def _holds(now: Field | None, then: Field) -> bool:
    """True if a column is there that holds what one held: it may have become wider."""
    return now is not None and combined(then.type, now.type)[0] == now.type


# Ending what is owed --------------------------------------------------------------------------------------------------


@attrs.frozen
class _StillOwed:
    """Nobody else has said already that these rows are not owed any more."""

    id: str

    def violation(self, landed: ConcurrentCommits) -> str | None:
        """See :class:`~trinitymerge.log.commit.Requirement`."""
        return None if self.id in {r.id for r in landed.now.outbox} else "what it says has been said"


def mark_delivered(store: TableStore, entry: OutboxEntry, operation: str) -> None:
    """Commits that rows are not owed any more."""
    snapshot = store.snapshot()
    if entry.id not in {r.id for r in snapshot.outbox}:
        return
    told = {"table": entry.path, "rows": entry.rows}
    commit = snapshot.next_commit(operation, [RemoveOutboxEntry(entry.id)], parameters=told, user=current_user())
    try:
        publish(store, commit, snapshot, (_StillOwed(entry.id),))
    except ConcurrentCommitError as error:
        if not isinstance(error.facts.get("requirement"), _StillOwed):
            raise


def discard_pending(store: TableStore) -> tuple[dict[str, Any], ...]:
    """Deliver what can be delivered and discard the rest; see ``TrinityTable.discardPendingHistoryInserts``."""
    given_up = []
    for entry in store.snapshot().outbox:
        try:
            deliver(store, entry)
        except PendingHistoryInsertsError as error:
            _logger.warning("%s: gives up %s for %s: %s", store.path, counted(entry.rows), entry.path, error)
            mark_delivered(store, entry, "DISCARD")
            given_up.append({"table": entry.path, "rows": entry.rows, "batch": entry.id})
    return tuple(given_up)
