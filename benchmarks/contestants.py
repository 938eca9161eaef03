"""The contestants that run in the Spark session: ours, Iceberg, Delta Lake, and Spark without any table format.

Every repetition starts from an equal table: ours from a copy of the pristine directory (the data files are immutable
and linked, not copied), those of Iceberg and Delta Lake from a rollback to what was loaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame, Row, SparkSession

from benchmarks import data
from benchmarks.race import Answer
from benchmarks.session import ICEBERG_CATALOG
from trinitymerge import TrinityTable
from trinitymerge.maintenance.compaction import CompactionResult
from trinitymerge.merge.builder import MergeBuilder

ICEBERG = "Iceberg MERGE INTO, merge on read"
DELTA = "Delta Lake MERGE INTO, deletion vectors"

MergeOf = Callable[[TrinityTable, DataFrame], MergeBuilder]


def link_copy(source: Path, to: Path) -> None:
    """Copies a table's directory, in place of what is there; data files are linked, for they never change."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to, copy_function=_link_data)


def _link_data(source: str, to: str) -> None:
    if "_trinity_log" in source or "_delta_log" in source:
        shutil.copy2(source, to)
    else:
        os.link(source, to)


# Ours -----------------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class OursMerging:
    """A merge of ours, one after the other for each batch of a repetition.

    Attributes:
        batches: the files merged in a repetition, by its number.
        source: their columns.
        columns: of the table.
        compared: is there another contestant that must come to the same rows.
        shown: the rows that are compared.
    """

    name: str
    spark: SparkSession
    pristine: Path
    scratch: Path
    merge: MergeOf
    batches: Callable[[int], Sequence[Path]]
    source: data.Columns = data.CHANGES
    columns: data.Columns = data.EVENTS
    turns: int | None = None
    compared: bool = True
    shown: Callable[[TrinityTable], DataFrame] = TrinityTable.toDF
    _table: TrinityTable | None = None

    def prepare(self, repetition: int) -> None:
        """A fresh copy of the table, opened."""
        link_copy(self.pristine, self.scratch)
        self._table = TrinityTable.forPath(self.spark, str(self.scratch))

    def run(self, repetition: int) -> None:
        """Merges the repetition's batches."""
        for batch in self.batches(repetition):
            self.merge(self._table, data.read(self.spark, self.source, batch)).execute()

    def answer(self) -> Answer | None:
        """The rows, where they can be compared."""
        return data.checksum(self.rows(), self.columns) if self.compared else None

    def rows(self) -> DataFrame:
        """The rows as the last repetition left them."""
        assert self._table is not None
        return self.shown(self._table)


@attrs.define(eq=False)
class Reading:
    """A read that is timed and whose aggregate is the answer.

    Attributes:
        rows: gives the rows, anew for every run; what it does counts.
    """

    name: str
    rows: Callable[[], DataFrame]
    columns: data.Columns = data.EVENTS
    compared: bool = True
    turns: int | None = None
    _found: Answer | None = None

    def prepare(self, repetition: int) -> None:
        """Nothing: reading changes nothing."""

    def run(self, repetition: int) -> None:
        """Reads all rows and all columns."""
        self._found = data.full_read(self.rows(), self.columns)

    def answer(self) -> Answer | None:
        """What was read, where it can be compared."""
        return self._found if self.compared else None


EVERYTHING: dict[str, Any] = {"full": True} if "full" in signature(TrinityTable.compact).parameters else {}
"""What tells `compact()` to rewrite everything; empty if it does so anyway."""


def compact_all(table: TrinityTable) -> None:
    """Rewrites all of a table: by `compact(full=True)`, or by `compact()` where there is no other."""
    _worked(table.compact(**EVERYTHING))


def _worked(result: CompactionResult) -> None:
    """Refuses a compaction that did nothing: neither its time nor its table are what they are called."""
    if result.skipped:
        raise AssertionError(str(result))


@attrs.define(eq=False)
class Compacting:
    """A compaction of ours.

    Attributes:
        options: of `compact()`.
    """

    name: str
    spark: SparkSession
    pristine: Path
    scratch: Path
    options: Mapping[str, Any]
    turns: int | None = None
    _table: TrinityTable | None = None

    def prepare(self, repetition: int) -> None:
        """A fresh copy of the table, opened."""
        link_copy(self.pristine, self.scratch)
        self._table = TrinityTable.forPath(self.spark, str(self.scratch))

    def run(self, repetition: int) -> None:
        """Compacts."""
        _worked(self._table.compact(**self.options))

    def answer(self) -> Answer:
        """The live rows."""
        return data.checksum(self._table.toDF(), data.EVENTS)


# Peers ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class SqlMerge:
    """A MERGE INTO a table of a peer.

    Attributes:
        clauses: after the condition.
        on: the condition, of A and B.
        using: the source, over the view `changes` and the table `{table}`.
        source: the columns of the files of changes.
    """

    clauses: str
    on: str = "A.id = B.id"
    using: str = "changes"
    source: data.Columns = attrs.field(factory=lambda: data.CHANGES)

    def run(self, spark: SparkSession, table: str, changes: Path) -> None:
        """Merges a file of changes into a table."""
        data.read(spark, self.source, changes).createOrReplaceTempView("changes")
        using = self.using.format(table=table)
        spark.sql(f"MERGE INTO {table} A USING {using} B ON {self.on} {self.clauses}").collect()


@attrs.define(eq=False)
class IcebergTable:
    """A format-version 2 table that merges on read, loaded from Parquet files."""

    spark: SparkSession
    name: str
    columns: data.Columns
    _first: int | None = None
    _file_bytes: int = 0

    def load(self, base: Path) -> None:
        """Creates the table with the rows of the files and remembers its first snapshot."""
        self.spark.sql(
            f"CREATE TABLE {self.name} ({data.ddl(self.columns)}) USING iceberg TBLPROPERTIES ("
            "'format-version' = '2', 'write.merge.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', "
            "'write.delete.mode' = 'merge-on-read')"
        )
        data.read(self.spark, self.columns, base).writeTo(self.name).append()
        (snapshot,) = self.spark.sql(f"SELECT snapshot_id FROM {self.name}.snapshots").collect()
        self._first = snapshot[0]
        (largest,) = self.spark.sql(f"SELECT max(file_size_in_bytes) FROM {self.name}.files").collect()
        self._file_bytes = largest[0]

    def reset(self) -> None:
        """Back to the rows as loaded."""
        self._call("rollback_to_snapshot", f"snapshot_id => {self._first}")

    def merge(self, changes: Path, merge: SqlMerge) -> None:
        """Merges a file of changes."""
        merge.run(self.spark, self.name, changes)

    def rewrite(self) -> None:
        """Rewrites the data files that have deletes, and small ones, and drops the delete files that become useless.

        Files get the size they were loaded with, so that no fewer tasks read them than before: by default one would.

        Raises:
            AssertionError: nothing was rewritten.
        """
        options = (
            f"'delete-file-threshold', '1', 'min-input-files', '2', 'target-file-size-bytes', '{self._file_bytes}'"
        )
        data_files = self._call("rewrite_data_files", f"options => map({options})")
        deletes = self._call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
        if not (data_files["rewritten_data_files_count"] and deletes["rewritten_delete_files_count"]):
            raise AssertionError(f"Iceberg rewrote nothing: {data_files}, {deletes}")

    def _call(self, procedure: str, arguments: str) -> Row:
        table = self.name.removeprefix(f"{ICEBERG_CATALOG}.")
        call = f"CALL {ICEBERG_CATALOG}.system.{procedure}(table => '{table}', {arguments})"
        (result,) = self.spark.sql(call).collect()
        return result

    def rows(self) -> DataFrame:
        """The live rows."""
        return self.spark.table(self.name)


@attrs.define(eq=False)
class DeltaTable:
    """A table of Delta Lake with deletion vectors, loaded from Parquet files."""

    spark: SparkSession
    path: Path
    columns: data.Columns
    _first: int | None = None

    @property
    def name(self) -> str:
        """The table in SQL."""
        return f"delta.`{self.path}`"

    def load(self, base: Path) -> None:
        """Creates the table with the rows of the files and remembers that version."""
        self.spark.sql(
            f"CREATE TABLE {self.name} ({data.ddl(self.columns)}) USING delta "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        data.read(self.spark, self.columns, base).write.format("delta").mode("append").save(str(self.path))
        self._first = self.spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").collect()[0]["version"]

    def reset(self) -> None:
        """Back to the rows as loaded."""
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {self._first}").collect()

    def merge(self, changes: Path, merge: SqlMerge) -> None:
        """Merges a file of changes."""
        merge.run(self.spark, self.name, changes)

    def rewrite(self) -> None:
        """Rewrites small files, and those of which more than a twentieth of the rows is deleted."""
        self.spark.sql(f"OPTIMIZE {self.name}").collect()

    def rows(self) -> DataFrame:
        """The live rows."""
        return self.spark.read.format("delta").load(str(self.path))


PeerTable: TypeAlias = IcebergTable | DeltaTable


@attrs.define(eq=False)
class SqlMerging:
    """The same merge, as MERGE INTO a table of a peer."""

    name: str
    table: PeerTable
    merge: SqlMerge
    batches: Callable[[int], Sequence[Path]]
    turns: int | None = None
    compared: bool = True

    def prepare(self, repetition: int) -> None:
        """Back to the rows as loaded."""
        self.table.reset()

    def run(self, repetition: int) -> None:
        """Merges the repetition's batches."""
        for batch in self.batches(repetition):
            self.table.merge(batch, self.merge)

    def answer(self) -> Answer | None:
        """The live rows, where they can be compared."""
        return data.checksum(self.table.rows(), self.table.columns) if self.compared else None


# Plain Spark ----------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class PlainAppend:
    """Spark appends the changes to a directory of Parquet files, as they are: no keys, no semantics."""

    name: str
    spark: SparkSession
    pristine: Path
    scratch: Path
    batches: Callable[[int], Sequence[Path]]
    columns: data.Columns = data.CHANGES
    turns: int | None = None

    def prepare(self, repetition: int) -> None:
        """A fresh directory with the rows before the changes."""
        link_copy(self.pristine, self.scratch)

    def run(self, repetition: int) -> None:
        """Appends the repetition's batches."""
        for batch in self.batches(repetition):
            data.read(self.spark, self.columns, batch).write.mode("append").parquet(str(self.scratch))

    def answer(self) -> None:
        """Nothing to compare: appending is not merging."""


@attrs.define(eq=False)
class InsertOverwrite:
    """CarbonData's other solution: join the day's changes, close what they replace, and rewrite the whole table."""

    name: str
    spark: SparkSession
    base: Path
    scratch: Path
    batches: Callable[[int], Sequence[Path]]
    turns: int | None = None

    def prepare(self, repetition: int) -> None:
        """No day written yet."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def run(self, repetition: int) -> None:
        """Rewrites the table once for each day."""
        current = self.base
        for day, batch in enumerate(self.batches(repetition), start=1):
            data.read(self.spark, data.ORDERS, current).createOrReplaceTempView("history")
            data.read(self.spark, data.ORDER_CHANGES, batch).createOrReplaceTempView("changes")
            current = self.scratch / f"day{day}"
            self.spark.sql(_OVERWRITE).write.parquet(str(current))

    def answer(self) -> Answer:
        """The rows of the last day."""
        last = max(self.scratch.iterdir())
        return data.checksum(data.read(self.spark, data.ORDERS, last), data.ORDERS)


_OVERWRITE = """
    SELECT A.order_id, A.customer_id, A.start_date,
           CASE WHEN A.end_date > B.update_date THEN B.update_date ELSE A.end_date END AS end_date, A.state
    FROM history A LEFT JOIN changes B ON A.order_id = B.order_id
    UNION ALL
    SELECT order_id, customer_id, update_date, DATE'9999-01-01', state FROM changes
"""
