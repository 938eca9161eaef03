"""Feeding a table: the calls that begin a merge, which a ``TrinityTable`` inherits.

Owns: the names of these calls. What a merge is stands in :mod:`trinitymerge.merge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
from pyspark.sql import Column, DataFrame

from trinitymerge import opening, paying
from trinitymerge.errors import InvalidMergeError
from trinitymerge.external import ExternalTable
from trinitymerge.lookback import TableWithAPast
from trinitymerge.merge import companions
from trinitymerge.merge.arguments import ExpressionMap, all_of_source
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.feeds.calls import apply_changes, derived
from trinitymerge.merge.feeds.events import Feed
from trinitymerge.merge.feeds.extracts import Extract
from trinitymerge.merge.feeds.firsts import deduplicated
from trinitymerge.merge.run.plan import Options
from trinitymerge.opened import DEFAULT_ALIAS
from trinitymerge.storage.stores import time_travel

_Table = TypeVar("_Table", bound="FedTable")


@attrs.frozen(eq=False, repr=False)
class FedTable(TableWithAPast):
    """A stored table that rows can be merged into."""

    def alias(self: _Table, name: str) -> _Table:
        """The same table under an alias, for merge expressions (default: ``target``).

        Example:
            >>> orders.alias("A").merge(orders.toDF().alias("B")).whenMatched("A.amount > B.amount").delete().execute().rowsDeleted
            0
        """
        if not isinstance(name, str) or not name:
            raise InvalidMergeError(f"An alias must be a name, got {name!r}.")
        return attrs.evolve(self, alias=name)

    def merge(
        self, source: DataFrame | FedTable | ExternalTable, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Begins a merge of a source into this table (S17-S37); see :class:`MergeBuilder`.

        Args:
            source: a DataFrame, under an alias or not (default alias: ``source``), or another table, external ones included.
            condition: boolean SQL text or Column that pairs rows; None pairs by the primary key, by name.

        Raises:
            ReadOnlyTableError: this is a past version, or the session is Spark Connect's of PySpark 3.5.
            InvalidMergeError: the arguments are of the wrong kind.
        """
        if isinstance(source, (FedTable, ExternalTable)):
            source = source._as_source()
        source = opening.check_source(self._backend.spark, source, self.path)
        if condition is not None and not isinstance(condition, (str, Column)):
            raise InvalidMergeError(
                f"The merge condition must be SQL text or a Column, got {type(condition).__name__} ({condition!r})."
            )
        return self._builder(source, condition)

    def _as_source(self) -> DataFrame:
        return self.toDF() if self._alias == DEFAULT_ALIAS else self.toDF().alias(self._alias)

    def _builder(self, source: DataFrame | None, condition: Any = None) -> MergeBuilder:
        store = self._writable()
        afterwards, options = partial(paying.after_merge, store), Options(before_attempt=paying.before_attempt)
        return MergeBuilder(store, self._alias, source, condition, options=options, afterwards=afterwards)

    def upsert(
        self,
        source: DataFrame | FedTable | ExternalTable,
        columns: Iterable[str] | None = None,
        exceptColumns: Iterable[str] = (),
        ignoreNulls: bool | Iterable[str] = False,
        onlyIfChanged: bool = False,
    ) -> MergeBuilder:
        """Updates rows whose primary key exists and inserts the others, by default all columns (TrinityLake, upsert).

        With any of the last four arguments the rows under the source's keys are read.

        Args:
            source: the rows.
            columns: take only these, besides the primary key; the others keep their value, and in new rows have their
                default, or are null.
            exceptColumns: or all but these.
            ignoreNulls: true, or columns: where the source has null, the stored value stays.
            onlyIfChanged: leave out rows that would change nothing, the watermark apart; they count as ``rowsUnchanged`` (S22b).

        Example:
            >>> orders.upsert(orders.toDF()).execute().rowsAppended
            2
            >>> orders.upsert(orders.toDF(), columns=["amount"], onlyIfChanged=True).execute().rowsUnchanged
            2
        """
        values = all_of_source("upsert", exceptColumns, columns, ignoreNulls)
        return companions.upsert(self.merge(source), values, onlyIfChanged)

    def update(
        self,
        source: DataFrame | FedTable | ExternalTable,
        columns: Iterable[str] | None = None,
        exceptColumns: Iterable[str] = (),
        ignoreNulls: bool | Iterable[str] = False,
        onlyIfChanged: bool = False,
    ) -> MergeBuilder:
        """Updates rows whose primary key exists, by default all columns; other source rows are left out.

        Args:
            source: the rows.
            columns: take only these, besides the primary key; the others keep their value.
            exceptColumns: or all but these.
            ignoreNulls: true, or columns: where the source has null, the stored value stays.
            onlyIfChanged: leave out rows that would change nothing, the watermark apart; they count as ``rowsUnchanged`` (S22b).

        Example:
            >>> orders.update(orders.toDF().filter("order_id = '1'")).execute().rowsUpdated
            1
        """
        values = all_of_source("update", exceptColumns, columns, ignoreNulls)
        return companions.update(self.merge(source), values, onlyIfChanged)

    def delete(self, source: DataFrame | FedTable | ExternalTable) -> MergeBuilder:
        """Deletes the rows whose primary key occurs in the source, which needs only those columns (and a watermark).

        Example:
            >>> orders.delete(spark.sql("SELECT '1' AS order_id, timestamp'2030-01-01' AS ts")).execute().rowsAppended
            1
        """
        return companions.delete(self.merge(source))

    def insert(
        self,
        source: DataFrame | FedTable | ExternalTable,
        deduplicate: bool = False,
        orderBy: str | Column | Sequence[str | Column] | None = None,
    ) -> MergeBuilder:
        """Inserts rows.

        Args:
            source: rows with all columns.
            deduplicate: leave out rows whose primary key is live already, instead of refusing them (S25).
            orderBy: with ``deduplicate``: of source rows with equal key and watermark take the first, by a column or several, as
                ``DataFrame.orderBy`` takes them (S12a). Columns that only order are left out. ``rowsSource`` counts what is
                taken. Costs one more shuffle of the source, and no job.

        Raises:
            InvalidMergeError: ``orderBy`` without ``deduplicate``, or it is no column.

        Example:
            >>> orders.insert(orders.toDF(), deduplicate=True).execute().rowsInserted
            0
            >>> from pyspark.sql import functions as F
            >>> loaded = spark.sql("SELECT * FROM VALUES ('7', 1.0, timestamp'2024-01-01', 1), "
            ...                    "('7', 2.0, timestamp'2024-01-01', 2) AS t(order_id, amount, ts, seq)")
            >>> orders.insert(loaded, deduplicate=True, orderBy=F.desc("seq")).execute().rowsInserted
            1
            >>> orders.toDF().filter("order_id = '7'").select("amount").collect()
            [Row(amount=Decimal('2.00'))]
        """
        if orderBy is not None and not deduplicate:
            raise InvalidMergeError(
                "insert(): orderBy says which row deduplicate=True takes; without it, no row is left out."
            )
        if not deduplicate:
            return companions.insert(self.merge(source, "1 = 0"))
        return companions.insert(deduplicated(self.merge(source), self._snapshot().definition, orderBy))

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

    # Feeds ----------------------------------------------------------------------------------------------------------

    def applyChanges(
        self,
        source: DataFrame,
        sequenceBy: str | Column | Sequence[str | Column] | None = None,
        applyAsDeletes: str | Column | None = None,
        applyAsTruncates: str | Column | None = None,
        columns: Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        ignoreNullUpdates: bool | Iterable[str] = False,
    ) -> MergeBuilder:
        """Applies change events, one row each, in any order (H9): type 1 on an ordinary table, type 2 on one with history.

        An event replaces the whole row of its key. Its place is its sequence, the table's watermark: what comes late or twice
        does no harm, and of a delete a tombstone is left that keeps earlier events from bringing the row back. Two different
        events of one key with an equal sequence are refused (S12).

        Appends without reading the table, but for ``ignoreNullUpdates``, which looks up the keys of the events, and a batch with a
        truncate in it, which reads the table and evaluates the source when the merge is built.

        Args:
            source: the events, with the columns of the table; others are left out, and said to be, or added by
                ``withSchemaEvolution()``.
            sequenceBy: what orders the events: SQL text or a Column over the source, or one for each watermark column. By default
                the source's columns that are called like the watermark's. No event may have a null there.
            applyAsDeletes: boolean SQL text or Column over the source: true on events that delete their key. Such an event needs
                nothing but key and sequence.
            applyAsTruncates: likewise for events that delete whatever is not fresher, in the table and in the batch. Not
                remembered: an earlier event that comes later is not kept away. Not for tables with history.
            columns: the source columns to take; the table's others are null. Keys and sequence always are among them.
            exceptColumns: source columns to leave out.
            ignoreNullUpdates: true, or columns: a null there means that nothing has changed, in fields of structs too. It is filled
                when it is written, with the value before it in the data's time (without history: in the current row), never
                across a delete (H10). So events that come late do not change what has been filled.

        Returns:
            A merge to be executed; it may be given ``withTransaction``, ``withSchemaEvolution``, ``onStale`` and
            ``maxDeleteFraction``.

        Raises:
            InvalidMergeError: an argument is of the wrong kind. When the merge is built: the table declares no watermark, or keeps
                history and is to be truncated, or the source lacks a column.

        Example:
            >>> events = spark.sql("SELECT * FROM VALUES ('1', 8.0, timestamp'2024-02-01', 'U'), "
            ...                    "('2', null, timestamp'2024-02-02', 'D') AS t(order_id, amount, ts, op)")
            >>> orders.applyChanges(events, applyAsDeletes="op = 'D'").execute().rowsAppended
            2
            >>> orders.toDF().select("order_id", "amount").collect()
            [Row(order_id='1', amount=Decimal('8.00'))]
        """
        source = opening.check_source(self._backend.spark, source, self.path)
        feed = Feed.of(sequenceBy, applyAsDeletes, applyAsTruncates, columns, exceptColumns, ignoreNullUpdates)
        return apply_changes(self._builder, time_travel(self._backend, "applyChanges()"), source, feed, self._alias)

    def snapshot(self, source: DataFrame, at: Any, missing: str = "delete") -> MergeBuilder:
        """Takes a full extract of the data as of a moment (H11): what differs from it is written, and what it lacks is deleted.

        Rows that are equal (null-safely, nested values included) are not written, and an extract that changes nothing appends
        nothing. In a table with history extracts may come in any order: one that comes late is compared with what held at its
        moment, and what held at the next moment that was taken remains. An empty extract does nothing (S37).

        Reads the table, as a whole, and the source, which is evaluated twice: is it empty, and what has changed. Counts what it
        inserts, updates and deletes; an extract that comes late does so ``withCounts()`` only.

        Args:
            source: all rows, with the columns of the table but the watermark; each key once. What was added to the table after
                it was created may be missing: it is not compared, and keeps its value.
            at: the moment: a value of the watermark column, of which there must be one. Text is read as that type.
            missing: ``"delete"``, or ``"keep"`` for keys that the extract lacks.

        Returns:
            A merge to be executed; it may be given ``withTransaction``, ``withSchemaEvolution`` and ``maxDeleteFraction``. What
            ``rowsSource`` counts is the rows that differ.

        Raises:
            InvalidMergeError: the table declares no watermark, or several columns. When the merge is built: the table keeps no
                history and a later moment has been taken; the extract lacks a column.
            ValueError: ``at`` or ``missing`` is none of these.

        Example:
            >>> cities = TrinityTable.create(spark, f"{tmp_path}/cities3", "name STRING, city STRING, day INT",
            ...     primaryKey="name", watermarkKey="day", history=True)
            >>> monday = spark.sql("SELECT * FROM VALUES ('ann', 'Rome'), ('bob', 'Oslo') AS t(name, city)")
            >>> tuesday = spark.sql("SELECT * FROM VALUES ('ann', 'Bonn') AS t(name, city)")
            >>> cities.snapshot(monday, at=1).execute().rowsInserted
            2
            >>> result = cities.snapshot(tuesday, at=2).execute()
            >>> result.rowsInserted, result.rowsUpdated, result.rowsDeleted
            (0, 1, 1)
            >>> cities.versions().select("name", "city", "validFrom", "validTo").orderBy("name", "validFrom").show()
            +----+----+---------+-------+
            |name|city|validFrom|validTo|
            +----+----+---------+-------+
            | ann|Rome|        1|      2|
            | ann|Bonn|        2|   NULL|
            | bob|Oslo|        1|      2|
            +----+----+---------+-------+
            <BLANKLINE>
        """
        source = opening.check_source(self._backend.spark, source, self.path)
        own = self._snapshot().definition
        if missing not in ("delete", "keep"):
            raise ValueError(f"missing takes 'delete' or 'keep', got {missing!r}.")
        extract = Extract.of(self._backend.spark, source, own, at, missing == "delete")
        derive = partial(extract.merged_into, time_travel(self._backend, "snapshot()"))
        return derived(self._builder, derive, f"snapshot(at={at})")
