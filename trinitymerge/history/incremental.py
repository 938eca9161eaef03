"""Changes for another table, each delivered once (S41)."""

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
    """What has changed in one table since another was told last; made by ``TrinityTable.changesSince()``.

    Attributes:
        rows: what :meth:`changes` gives between the two versions, lazily.
        fromVersion: the version that the other table knows, 0 if none.
        toVersion: the version that it will know.
        appId: the name under which it does.
    """

    rows: DataFrame
    fromVersion: int
    toVersion: int
    appId: str

    @property
    def transaction(self) -> tuple[str, int]:
        """For ``withTransaction(*increment.transaction)``: the merge that has it moves the position, in its own commit."""
        return self.appId, self.toVersion


def increment(store: TableStore, newest: int, target: Snapshot, app_id: str) -> Increment:
    """What has changed since another table was told.

    Args:
        store: where the table is that has changed.
        newest: the version it is at, or was opened at.
        target: the other table.
        app_id: under which its position is kept.

    Raises:
        InvalidMergeError: no increment leads there, for the table was restored or purged, or is another one.
        TableNotFoundError: files that it takes are gone.
    """
    known = target.transactions.get(app_id, 0)
    if known > newest:
        raise _starting_over(store, app_id, f"knows version {known}, and {store.path} is at version {newest}", newest)
    for commit in store.commits(known + 1, newest):
        if commit.initial_snapshot is not None and known:
            what = f"knows version {known}, and {store.path} is a copy that begins with version {commit.version}"
            raise _starting_over(store, app_id, what, newest)
        if commit.last(RestoreVersion) or commit.last(PurgeKeys):
            what = f"knows version {known}, and version {commit.version} is a {commit.operation.lower()}"
            raise _starting_over(store, app_id, what, newest)
    return Increment(changes(store, newest, known, newest, net=True), known, newest, app_id)


def _starting_over(store: TableStore, app_id: str, what: str, newest: int) -> InvalidMergeError:
    return InvalidMergeError(
        f"No increment of {store.path} goes on from where '{app_id}' is: the other table {what}. Bring the other table up to date "
        "as a whole, by a merge of toDF() that deletes what exists only there, and keep the new position in the same merge: "
        f'.withTransaction("{app_id}", {newest}).',
        appId=app_id,
        version=newest,
    )
