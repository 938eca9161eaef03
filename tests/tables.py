"""What tests of merges share: small tables, copies of them, and one merge run on every sound path."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import filling
import iceberg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from remote_path import RemotePath

from trinitymerge import MergeBuilder, MergeResult, TrinityTable
from trinitymerge.fs.base import split_scheme
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.strategies import APPEND_ONLY, STRATEGIES, MergeStrategy
from trinitymerge.schema import properties
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.spark.session import is_connect

EVENTS = "id INT, ts INT, v STRING, deleted BOOLEAN"
"""The schema most tests use: a primary key, a watermark, a value and a tombstone."""


def set_default(patched: pytest.MonkeyPatch, name: str, text: str) -> None:
    """Change the default of a table property."""
    read, _, words = properties._KNOWN[name]
    patched.setitem(properties._KNOWN, name, (read, text, words))


def has_batches_to_compare(_store: object, snapshot: Snapshot, _has_compacted: bool) -> bool:
    """Deletion vectors are due after every merge that leaves something to compare."""
    return snapshot.definition.fileFormat == "parquet" and bool(Batches.of(snapshot).deltas)


ROOT: str | None = None
"""Where the tables that tests make are, if not on this machine's disk: `pytest --storage`."""

MAKES_ICEBERG = False
"""The tables that tests make are Iceberg's: `pytest --iceberg`."""


def as_they_are(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Rows whose values are known to be of these types, which need not be looked at; Spark Connect does so all the same."""
    how = {} if is_connect(spark) else {"verifySchema": False}
    return spark.createDataFrame(list(rows), schema, **how)


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    """A small DataFrame; a single column may be given as bare values."""
    return spark.createDataFrame([row if isinstance(row, tuple) else (row,) for row in rows], schema)


def new_table(spark: SparkSession, directory: FilePath, schema: str = EVENTS, **keys: Any) -> TrinityTable:
    """An empty table in a directory of its own; keyed by id, ts and deleted unless told otherwise."""
    if schema == EVENTS:
        keys = {"watermarkKey": "ts", "tombstoneKey": "deleted", **keys}
    if MAKES_ICEBERG:
        return TrinityTable.create(
            spark, iceberg.new_name(), schema, **{"primaryKey": "id", "using": "iceberg", **keys}
        )
    path = f"{ROOT or directory}/table-{uuid.uuid4().hex[:8]}"
    return TrinityTable.create(spark, path, schema, **{"primaryKey": "id", **keys})


def fill(table: TrinityTable, spark: SparkSession, *batches: Iterable[tuple[Any, ...]]) -> TrinityTable:
    """Appends batches of whole rows, tombstones among them, in the table's own schema, as merges do."""
    for rows in map(list, batches):
        if filling.is_plain(table, rows):
            filling.append(table, spark, rows)
        else:
            merge_into(table, spark, rows)
    return table


def merge_into(table: TrinityTable, spark: SparkSession, rows: Iterable[tuple[Any, ...]]) -> MergeResult:
    """Merges whole rows in the table's own schema."""
    schema = physical_schema(table.definition.fields)
    return table.upsert(spark.createDataFrame(list(rows), schema)).execute()


def copy_of(table: TrinityTable, spark: SparkSession) -> TrinityTable:
    """The same table once more, elsewhere: tables hold no absolute paths."""
    if MAKES_ICEBERG:
        return iceberg.copy_of(table, spark)
    path = directory_of(table)
    copy = path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}")
    if isinstance(path, RemotePath):
        path.copied_to(copy)
    else:
        shutil.copytree(path, copy)
    return TrinityTable.forPath(spark, str(copy))


def directory_of(table: TrinityTable) -> Any:
    """Where a table's files are: a ``Path``, or as much of one as there is on other storage."""
    if split_scheme(table.path)[0] in (None, "file"):
        return FilePath(table.path.removeprefix("file:"))
    files = table._store.files
    return RemotePath(table.path, lambda: files)


def batch_directories(table: TrinityTable) -> set[str]:
    """The batch directories on disk, committed or not."""
    data = directory_of(table) / "data"
    return {entry.name for entry in data.iterdir()} if data.exists() else set()


class Run(NamedTuple):
    """One merge on one path, into its own copy of the table, and the live rows it left."""

    path: MergeStrategy
    table: TrinityTable
    result: MergeResult
    rows: list[tuple[Any, ...]]

    def row(self, key: Any) -> tuple[Any, ...] | None:
        """The live row whose first column is ``key``."""
        return next((row for row in self.rows if row[0] == key), None)


def on_every_path(
    table: TrinityTable, merge: Callable[[TrinityTable], MergeBuilder], spark: SparkSession, uncertain: bool = False
) -> list[Run]:
    """Runs a merge on every path that is sound for it, each on a fresh copy; the full scan comes last (S31).

    What differs between the runs is an error here: the live rows, and any count that more than one path knows.
    A blind append is only tried where no source row may turn out to need the target, unless ``uncertain`` is set: then it
    becomes one with a keyed lookup for the rows that need it.
    """
    runs = []
    for path in sound_paths(merge(table), uncertain):
        copy = copy_of(table, spark)
        result = merge(copy)._with_strategy(path).execute()
        assert result.strategy == path.name or (uncertain and path is APPEND_ONLY)
        runs.append(Run(path, copy, result, live_rows(copy)))
    for run in runs[:-1]:
        assert run.rows == runs[-1].rows, f"{run.path.name} and full scan leave different rows"
        _assert_same_counts(run.result, runs[-1].result)
    return runs


def sound_paths(builder: MergeBuilder, uncertain: bool = False) -> list[MergeStrategy]:
    """The paths that are sound whatever the source holds; or also a blind append that may turn out not to be."""
    verdict = builder.build().choice
    tried = [p for p in STRATEGIES if (uncertain or not p.uncertainty(verdict))]
    return [path for path in tried if path not in verdict.unsound]


def live_rows(table: TrinityTable) -> list[tuple[Any, ...]]:
    """The live rows as tuples, in an order of their own."""
    return sorted((tuple(row) for row in table.toDF().collect()), key=repr)


def _assert_same_counts(result: MergeResult, reference: MergeResult) -> None:
    for name in ("rowsInserted", "rowsUpdated", "rowsDeleted", "rowsStale", "rowsAppended", "rowsSource"):
        found, expected = getattr(result, name), getattr(reference, name)
        assert found is None or found == expected, f"{name} is {found} as {result.strategy}, {expected} as full scan"
    for found, expected in zip(result.perClause, reference.perClause, strict=True):
        assert found is None or found == expected, f"perClause {result.perClause} and {reference.perClause}"
