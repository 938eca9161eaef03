"""Changes since the last delivery to another table (S41)."""

from __future__ import annotations

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import InvalidMergeError
from trinitymerge.history.changes import changes
from trinitymerge.log.actions import PurgeKeys, RestoreVersion
from trinitymerge.log.model import Snapshot
from trinitymerge.stores.base import TableStore


@attrs.frozen(eq=False)
class Increment:
    """The changes since the last delivery to another table; made by ``TrinityTable.changesSince()``.

    Attributes:
        rows: the result of :meth:`changes` between the two versions, lazily.
        fromVersion: the last delivered version, 0 if none.
        toVersion: the version to deliver.
        appId: the name under which the other table records the version.
        tableId: the id of the changed table, which the other table records too.
    """

    rows: DataFrame
    fromVersion: int
    toVersion: int
    appId: str
    tableId: str

    @property
    def transaction(self) -> tuple[str, int, str]:
        """For ``withTransaction(*increment.transaction)``: the commit of that merge records the version and the table."""
        return self.appId, self.toVersion, self.tableId


def increment(store: TableStore, newest: int, target: Snapshot, app_id: str) -> Increment:
    """Return the changes since the last delivery to another table, up to the version that this table was opened at."""
    known, own = target.transactions.get(app_id, 0), store.snapshot()
    fed_by = target.streams.get(app_id, own.table_id)
    is_origin = any(o.table_id == fed_by and known <= o.version for o in own.origins)
    if fed_by != own.table_id and not is_origin:
        what = f"got version {known} from another table (id {fed_by}) than the one that is at {store.path} now"
        raise _starting_over(store, app_id, f"{what} (id {own.table_id})", newest)
    if known > newest:
        raise _starting_over(store, app_id, f"knows version {known}, and {store.path} is at version {newest}", newest)
    for commit in store.commits(known + 1, newest) if known else ():  # a first increment is all live rows
        if commit.initial_snapshot is not None:
            what = f"knows version {known}, and {store.path} is a copy that begins with version {commit.version}"
            raise _starting_over(store, app_id, what, newest)
        if commit.last(RestoreVersion) or commit.last(PurgeKeys):
            what = f"knows version {known}, and version {commit.version} is a {commit.operation.lower()}"
            raise _starting_over(store, app_id, what, newest)
    return Increment(changes(store, newest, known, newest, net=True), known, newest, app_id, own.table_id)


def _starting_over(store: TableStore, app_id: str, what: str, newest: int) -> InvalidMergeError:
    return InvalidMergeError(
        f"No increment of {store.path} goes on from where '{app_id}' is: the other table {what}. Bring the other table up to date "
        "as a whole, by a merge of toDF() that deletes what exists only there, and keep the new position in the same merge: "
        f'.withTransaction("{app_id}", {newest}, "{store.snapshot().table_id}").',
        appId=app_id,
        version=newest,
    )
