"""The layout of a table: rows sorted within files by columns of the user's choice (S7c)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from helpers import assertRows
from pyspark.sql import DataFrame, SparkSession
from tables import frame, new_table

from trinitymerge import TableDefinition, TrinityTable
from trinitymerge.errors import InvalidDefinitionError, UnsupportedStorageError
from trinitymerge.log.actions import Batch
from trinitymerge.schema import evolution
from trinitymerge.schema.field import Field

DAYS = "id INT, day INT, v STRING"


def raising(kind: type[Exception], *words: str) -> Any:
    return pytest.raises(kind, match=".*".join(map(re.escape, words)))


def days(spark: SparkSession, count: int, v: str = "a") -> DataFrame:
    """Rows whose days do not follow their keys."""
    return spark.range(count).selectExpr("CAST(id AS INT) AS id", "CAST(id * 7 % 10 AS INT) AS day", f"'{v}' AS v")


def clustered(spark: SparkSession, directory: Any, **more: Any) -> TrinityTable:
    return new_table(spark, directory, DAYS, **{"clusterBy": "day", **more})


def in_files(spark: SparkSession, table: TrinityTable, *columns: str) -> list[list[tuple[Any, ...]]]:
    """The values of some columns, by file, in their order."""
    of_file: dict[str, list[tuple[Any, ...]]] = {}
    for batch in table._store.snapshot().batches:
        path, kind = table._store.batch_path(batch.id), table.definition.fileFormat
        for file in table._store.data_files(batch.id):
            rows = spark.read.format(kind).load(f"{path}/{file.name}").coalesce(1).selectExpr(*columns).collect()
            of_file[file.name] = [tuple(r) for r in rows]
    return list(of_file.values())


def assertSorted(spark: SparkSession, table: TrinityTable, *columns: str) -> None:
    found = in_files(spark, table, *columns)
    assert found
    assert [rows for rows in found if rows != sorted(rows)] == []


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_S7c_files_are_sorted_by_the_columns_of_the_layout_and_then_by_key(spark, tmp_path, file_format):
    table = clustered(spark, tmp_path, fileFormat=file_format)
    table.upsert(days(spark, 100)).execute()
    assertSorted(spark, table, "day", "id")
    table.upsert(days(spark, 30, "b")).execute()
    table.deleteWhere("id % 9 = 0").execute()
    before = table.toDF().collect()
    assertSorted(spark, table, "day", "id")
    table.compact()
    assertSorted(spark, table, "day", "id")
    assertRows(table.toDF(), [tuple(r) for r in before])


def test_S7c_without_a_layout_files_are_sorted_by_key(spark, tmp_path):
    table = new_table(spark, tmp_path, DAYS)
    table.upsert(days(spark, 100)).execute()
    table.compact(full=True)
    assertSorted(spark, table, "id")


def test_S7c_S38a_S38b_segments_and_minor_compactions_are_sorted_too(spark, tmp_path):
    settings = {"trinitymerge.targetSegmentBytes": "1000", "trinitymerge.minorCompactionAfterBatches": "2"}
    table = clustered(spark, tmp_path, properties=settings)
    table.upsert(days(spark, 600)).execute()
    table.compact(full=True)
    segments = [b for b in table._store.snapshot().batches if b.segment_of]
    assert len(segments) > 2
    for n in range(4):
        table.upsert(days(spark, 20, f"n{n}")).execute()
    assert len(table._store.snapshot().batches) < len(segments) + 4  # some were merged
    assertSorted(spark, table, "day", "id")
    table.compact()
    assertSorted(spark, table, "day", "id")
    keys = sorted([min(r), max(r)] for r in in_files(spark, table, "id"))
    assert all(one[1] < other[0] for one, other in pairwise(keys))  # segments are still ranges of keys


def test_S7c_H1_versions_of_rows_are_sorted_too(spark, tmp_path):
    table = clustered(spark, tmp_path, history=True)
    table.upsert(days(spark, 50)).execute()
    table.upsert(days(spark, 50, "b")).execute()
    table.compact(full=True)
    assertSorted(spark, table, "day", "id")
    assert table.versions().count() == 100


def test_S7c_S7b_S39a_conversions_and_purges_are_sorted_too(spark, tmp_path):
    rows = days(spark, 100)
    table = TrinityTable.convert(spark, rows, f"{tmp_path}/converted", primaryKey="id", clusterBy=["day"])
    assertSorted(spark, table, "day", "id")
    table.purge(frame(spark, "id INT", 3, 17))
    assertSorted(spark, table, "day", "id")
    assert (table.toDF().count(), table.health().rowsToSort) == (98, 0)


def test_S7c_a_layout_can_be_set_and_removed_later(spark, tmp_path):
    table = new_table(spark, tmp_path, DAYS)
    table.upsert(days(spark, 100)).execute()
    assert table.alter().clusterBy("DAY", "v").execute().changes == ("rows are clustered by day, v",)
    assert table.definition.clusterBy == ("day", "v")
    assert table.alter().clusterBy("day", "v").execute().changes == ()
    assert (table.health().rowsToSort, "rows to sort" in str(table.health())) == (100, True)
    assert table.compact().skipped == "there is one base and nothing else; compact(full=True) sorts its rows"
    table.upsert(days(spark, 1, "b")).execute()
    assert table.health().rowsToSort == 100
    table.compact(full=True)
    assert (table.health().rowsToSort, "rows to sort" in str(table.health())) == (0, False)
    assertSorted(spark, table, "day", "v", "id")
    assert table.alter().clusterBy().execute().changes == ("rows are clustered by nothing but the key",)
    assert table.health().rowsToSort == 100


def test_S7c_S38b_a_table_of_segments_says_that_its_rows_are_to_be_sorted(spark, tmp_path):
    table = new_table(spark, tmp_path, DAYS, properties={"trinitymerge.targetSegmentBytes": "1000"})
    table.upsert(days(spark, 600)).execute()
    table.compact(full=True)
    table.alter().clusterBy(["day"]).execute()
    assert table.compact().skipped == "there is one base and nothing else; compact(full=True) sorts its rows"


def test_S7c_orders_that_are_equal_need_no_sorting(spark, tmp_path):
    table = new_table(spark, tmp_path, DAYS, clusterBy="day")
    table.upsert(days(spark, 10)).execute()
    table.alter().clusterBy("day", "id").execute()
    assert table.health().rowsToSort == 0
    table.alter().clusterBy("id").execute()
    assert table.health().rowsToSort == 10
    table.purge(frame(spark, "id INT", 3))
    assert table.health().rowsToSort == 0, "the purge has sorted it"
    table.alter().clusterBy().execute()
    assert table.health().rowsToSort == 0


def test_S7c_S39a_a_purge_does_not_forget_that_rows_are_to_be_sorted(spark, tmp_path):
    table = clustered(spark, tmp_path)
    table.upsert(days(spark, 100)).execute()
    table.alter().clusterBy().execute()
    table.purge(frame(spark, "id INT", 3))
    assert table.health().rowsToSort == 99


def test_S7c_S43_columns_of_the_layout_can_be_renamed_and_widened_and_files_stay_sorted(spark, tmp_path):
    table = clustered(spark, tmp_path)
    table.upsert(days(spark, 20)).execute()
    changes = table.alter().renameColumn("day", "since").widenColumn("since", "BIGINT").execute().changes
    assert changes == ("column day is called since", "column since is bigint, not int")
    assert (table.definition.clusterBy, table.health().rowsToSort) == (("since",), 0)
    table.alter().addColumn("day", "INT").execute()
    assert table.definition.clusterBy == ("since",)
    with raising(InvalidDefinitionError, "Column 'since' is a column of clusterBy", "alter().clusterBy("):
        table.alter().dropColumn("since").execute()
    assert table.alter().clusterBy("v").dropColumn("since").execute().changes[0] == "column since is dropped"


def test_S7c_S35_a_merge_that_was_built_before_writes_in_the_new_layout(spark, tmp_path):
    table = new_table(spark, tmp_path, DAYS)
    merge = table.upsert(days(spark, 100))
    table.alter().clusterBy("day").execute()
    merge.execute()
    assertSorted(spark, table, "day", "id")
    assert table.health().rowsToSort == 0


def test_S7c_S40_copies_and_older_versions_keep_their_layout(spark, tmp_path):
    table = clustered(spark, tmp_path)
    table.upsert(days(spark, 20)).execute()
    assert table.clone(f"{tmp_path}/copy").definition.clusterBy == ("day",)
    table.alter().clusterBy().execute()
    assert TrinityTable.forPath(spark, table.path, versionAsOf=1).definition.clusterBy == ("day",)
    table.restore(1)
    assert (table.definition.clusterBy, table.health().rowsToSort) == (("day",), 0)


@pytest.mark.classic("counts what a scan returns, in Spark's JVM")
def test_S7c_a_filter_reads_a_part_of_each_file(spark, tmp_path):
    table = clustered(spark, tmp_path)
    count = 120_000  # a page has 5,000 rows
    table.upsert(days(spark, count).repartition(1)).execute()
    table.compact(full=True)
    rows = table.toDF().filter("day = 3")
    assert rows.count() == count // 10
    assert rows_read(rows) < count // 3
    table.alter().clusterBy().execute()
    table.compact(full=True)
    assert rows_read(table.toDF().filter("day = 3")) == count


def rows_read(rows: DataFrame) -> int:
    """How many rows Spark's scan returns, which skips pages of files by their smallest and largest values."""
    plan = rows._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    leaves = plan.collectLeaves()
    return sum(int(leaves.apply(i).metrics().apply("numOutputRows").value()) for i in range(leaves.size()))


def test_S7c_a_table_says_how_it_is_clustered(spark, tmp_path):
    table = clustered(spark, tmp_path, clusterBy=("day", "v"))
    assert "clustered by: day, v" in str(table.definition)
    assert table.detail().first()["clusterBy"] == ["day", "v"]
    again = TrinityTable.createIfNotExists(spark, table.path, DAYS, primaryKey="id")
    assert again.definition.clusterBy == ("day", "v")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("days", "Column 'days' is missing in the schema"),
        (["v", "V"], "clusterBy names v twice"),
        ("tags", "cannot be a column of clusterBy"),
    ],
)
def test_S7c_a_layout_that_cannot_be_is_refused(spark, tmp_path, names, words):
    schema = f"{DAYS}, tags ARRAY<STRING>"
    with raising(InvalidDefinitionError, words):
        TrinityTable.create(spark, f"{tmp_path}/none", schema, primaryKey="id", clusterBy=names)
    if isinstance(names, str):
        table = new_table(spark, tmp_path, schema)
        with raising(InvalidDefinitionError, "has no column" if names == "days" else words):
            table.alter().clusterBy(names).execute()
        assert table.version == 0


def test_S7c_the_log_says_how_a_batch_is_sorted_and_a_definition_is_clustered():
    own = TableDefinition.of([Field("id", "long"), Field("day", "date")], "id", clusterBy="DAY")
    assert own.clusterBy == ("day",)
    assert TableDefinition.from_json(json.loads(json.dumps(own.to_json()))) == own
    assert "clusterBy" not in evolution.clustered(own, ()).to_json()
    batch = Batch(id="b", rows=1, tombstones=0, files=1, bytes=1, cluster_by=("day",))
    assert Batch.from_json(batch.to_json()) == batch
    assert "clusterBy" not in Batch(id="b", rows=1, tombstones=0, files=1, bytes=1).to_json()


@pytest.mark.iceberg
def test_S7c_S16_iceberg_sorts_its_tables_itself(spark):
    with raising(UnsupportedStorageError, "WRITE ORDERED BY `day`"):
        TrinityTable.create(spark, "lake.db.ordered", DAYS, primaryKey="id", using="iceberg", clusterBy="day")
