"""Feeding a table: the calls that begin a merge, which a ``TrinityTable`` inherits.

Owns: the names of these calls, and the table's alias in expressions. What a merge is stands in :mod:`trinitymerge.merge`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import attrs
from pyspark.sql import Column, DataFrame

from trinitymerge import opening
from trinitymerge.errors import InvalidMergeError
from trinitymerge.lookback import TableWithAPast
from trinitymerge.maintenance import automatic
from trinitymerge.merge import companions
from trinitymerge.merge.arguments import ExpressionMap
from trinitymerge.merge.builder import MergeBuilder

_DEFAULT_ALIAS = "target"

_Table = TypeVar("_Table", bound="FedTable")


@attrs.frozen(eq=False, repr=False)
class FedTable(TableWithAPast):
    """A stored table that rows can be merged into."""

    _alias: str = _DEFAULT_ALIAS

    def alias(self: _Table, name: str) -> _Table:
        """The same table under an alias, for merge expressions (default: ``target``).

        Example:
            >>> orders.alias("A").merge(orders.toDF().alias("B")).whenMatched("A.amount > B.amount").delete().execute().rowsDeleted
            0
        """
        if not isinstance(name, str) or not name:
            raise InvalidMergeError(f"An alias must be a name, got {name!r}.")
        return attrs.evolve(self, alias=name)

    def merge(self, source: DataFrame | FedTable, condition: str | Column | None = None) -> MergeBuilder:
        """Begins a merge of a source into this table (S17-S37); see :class:`MergeBuilder`.

        Args:
            source: a DataFrame, under an alias or not (default alias: ``source``), or another table.
            condition: boolean SQL text or Column that pairs rows; None pairs by the primary key, by name.

        Raises:
            ReadOnlyTableError: this is a past version, or the session is Spark Connect's of PySpark 3.5.
            InvalidMergeError: the arguments are of the wrong kind.
        """
        if isinstance(source, FedTable):
            source = source.toDF() if source._alias == _DEFAULT_ALIAS else source.toDF().alias(source._alias)
        source = opening.check_source(self._backend.spark, source, self.path)
        if condition is not None and not isinstance(condition, (str, Column)):
            raise InvalidMergeError(
                f"The merge condition must be SQL text or a Column, got {type(condition).__name__} ({condition!r})."
            )
        return self._builder(source, condition)

    def _builder(self, source: DataFrame | None, condition: Any = None) -> MergeBuilder:
        store = self._writable()
        upkeep = partial(automatic.after_merge, store)
        return MergeBuilder(store, self._alias, source, condition, afterwards=upkeep)

    def upsert(self, source: DataFrame | FedTable) -> MergeBuilder:
        """Updates rows whose primary key exists and inserts the others, all columns (TrinityLake, upsert).

        Example:
            >>> orders.upsert(orders.toDF()).execute().rowsAppended
            2
        """
        return companions.upsert(self.merge(source))

    def update(self, source: DataFrame | FedTable) -> MergeBuilder:
        """Updates rows whose primary key exists, all columns; other source rows are left out.

        Example:
            >>> orders.update(orders.toDF().filter("order_id = '1'")).execute().rowsUpdated
            1
        """
        return companions.update(self.merge(source))

    def delete(self, source: DataFrame | FedTable) -> MergeBuilder:
        """Deletes the rows whose primary key occurs in the source, which needs only those columns (and a watermark).

        Example:
            >>> orders.delete(spark.sql("SELECT '1' AS order_id, timestamp'2030-01-01' AS ts")).execute().rowsAppended
            1
        """
        return companions.delete(self.merge(source))

    def insert(self, source: DataFrame | FedTable, deduplicate: bool = False) -> MergeBuilder:
        """Inserts rows.

        Args:
            source: rows with all columns.
            deduplicate: leave out rows whose primary key is live already, instead of refusing them (S25).

        Example:
            >>> orders.insert(orders.toDF(), deduplicate=True).execute().rowsInserted
            0
        """
        return companions.insert(self.merge(source) if deduplicate else self.merge(source, "1 = 0"))

    def updateWhere(self, condition: str | Column | None, map: ExpressionMap) -> MergeBuilder:
        """Updates the live rows for which a condition is true; all of them if it is None (S22).

        Example:
            >>> orders.updateWhere("amount > 9", {"amount": "amount * 2"}).execute().rowsUpdated
            1
        """
        return companions.update_where(self._builder(None), condition, map)

    def deleteWhere(self, condition: str | Column) -> MergeBuilder:
        """Deletes the live rows for which a condition is true (S9); ``deleteWhere("true")`` deletes them all.

        Raises:
            InvalidMergeError: there is no condition: a filter that happened to be None would empty the table.

        Example:
            >>> orders.deleteWhere("amount < 6").execute().rowsDeleted
            1
        """
        return companions.delete_where(self._builder(None), condition)
