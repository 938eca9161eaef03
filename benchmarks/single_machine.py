"""DuckDB and delta-rs doing the merge of P1 in this process: no Spark, no bar, for a sense of scale.

Both start every repetition from a copy of the loaded table, use as many threads as Spark has cores, and their rows are
compared with the others'.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import duckdb
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet
from pyspark.sql import SparkSession

from benchmarks import data
from benchmarks.contestants import link_copy
from benchmarks.race import Answer
from benchmarks.session import cores


@attrs.define(eq=False)
class DuckDBMerging:
    """`MERGE INTO` on a table of a DuckDB file; opening the file is not timed."""

    name: str
    spark: SparkSession
    pristine: Path
    scratch: Path
    batches: Callable[[int], Sequence[Path]]
    turns: int | None = None
    _connection: duckdb.DuckDBPyConnection | None = None

    def load(self, base: Path) -> None:
        """Creates the file with the rows of Parquet files."""
        with self._connect(self.pristine) as connection:
            connection.execute(f"CREATE TABLE target AS SELECT * FROM read_parquet('{base}/*.parquet')")

    def prepare(self, repetition: int) -> None:
        """A fresh copy of the file, opened."""
        self._close()
        shutil.copy2(self.pristine, self.scratch)
        self._connection = self._connect(self.scratch)

    def run(self, repetition: int) -> None:
        """Merges the repetition's batches."""
        assigned = ", ".join(f"{name} = B.{name}" for name in data.EVENTS)
        values = ", ".join(f"B.{name}" for name in data.EVENTS)
        for batch in self.batches(repetition):
            self._connection.execute(
                f"MERGE INTO target A USING (SELECT * FROM read_parquet('{batch}/*.parquet')) B ON A.id = B.id "
                f"WHEN MATCHED AND B.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {assigned} "
                f"WHEN NOT MATCHED AND B.op <> 'D' THEN INSERT ({', '.join(data.EVENTS)}) VALUES ({values})"
            )

    def answer(self) -> Answer:
        """The rows, through a Parquet file, so that the same function hashes them."""
        file = self.scratch.with_suffix(".parquet")
        self._connection.execute(f"COPY target TO '{file}' (FORMAT parquet)")
        self._close()
        found = data.checksum(self.spark.read.parquet(str(file)), data.EVENTS)
        file.unlink()
        return found

    def _connect(self, path: Path) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(path), config={"threads": cores()})
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@attrs.define(eq=False)
class DeltaRsMerging:
    """delta-rs merges into a Delta table; opening the table is not timed, reading the changes is."""

    name: str
    spark: SparkSession
    pristine: Path
    scratch: Path
    batches: Callable[[int], Sequence[Path]]
    turns: int | None = None
    _table: DeltaTable | None = None

    def load(self, base: Path) -> None:
        """Creates the table with the rows of Parquet files."""
        write_deltalake(str(self.pristine), parquet.read_table(str(base)))

    def prepare(self, repetition: int) -> None:
        """A fresh copy of the table, opened."""
        link_copy(self.pristine, self.scratch)
        self._table = DeltaTable(str(self.scratch))

    def run(self, repetition: int) -> None:
        """Merges the repetition's batches."""
        values = {name: f"B.{name}" for name in data.EVENTS}
        for batch in self.batches(repetition):
            (
                self._table.merge(parquet.read_table(str(batch)), "A.id = B.id", source_alias="B", target_alias="A")
                .when_matched_delete("B.op = 'D'")
                .when_matched_update(values)
                .when_not_matched_insert(values, "B.op <> 'D'")
                .execute()
            )

    def answer(self) -> Answer:
        """The rows of the table's current files."""
        return data.checksum(self.spark.read.parquet(*self._table.file_uris()), data.EVENTS)
