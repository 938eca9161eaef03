"""S7b: rows that exist become a table, all at once or not at all."""

from __future__ import annotations

import json
import os

import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from tables import batch_directories, directory_of, fill, frame, live_rows, new_table

from trinitymerge import (
    DuplicateKeyError,
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    StorageError,
    TableExistsError,
    TrinityTable,
)

ROWS = "id INT, ts INT, v STRING, deleted BOOLEAN"
SOME = [(1, 10, "a", False), (2, 10, "b", None), (3, 20, "was here", True)]


def converted(spark, directory, source, **options) -> TrinityTable:
    keys = {"primaryKey": "id", "watermarkKey": "ts", "tombstoneKey": "deleted"}
    return TrinityTable.convert(spark, source, str(directory / "table"), **{**keys, **options})


def test_S7b_a_frame_becomes_a_table_with_one_base(spark, tmp_path):
    table = converted(spark, tmp_path, frame(spark, ROWS, *SOME), comment="of old", properties={"team": "x"})
    opened = TrinityTable.forPath(spark, table.path)
    assert (opened.version, opened.definition.comment, opened.definition.properties) == (1, "of old", {"team": "x"})
    assert [f.text for f in opened.definition.fields] == ["int", "int", "string", "boolean"]
    (batch,) = opened._snapshot().batches
    assert (batch.rows, batch.tombstones, batch.version) == (3, 1, 1)
    assert (batch.base, batch.unique_keys) == (True, True)
    assert (batch.watermark_min, batch.watermark_max) == ((10,), (20,))
    (keys,) = opened._store.ranges_of([batch])
    assert (keys.low, keys.high, keys.first) == ({"id": 1}, {"id": 3}, (1,))
    assert live_rows(opened) == [(1, 10, "a", False), (2, 10, "b", None)]
    stored = opened._store.read_whole(batch, opened.definition)
    assertRows(stored.filter("id = 3"), [(3, 20, None, True)])
    assert batch_directories(opened) == {f"_tm_batch={batch.id}"}


def test_S7b_tombstones_keep_late_rows_away_and_merges_go_on(spark, tmp_path):
    table = fill(converted(spark, tmp_path, frame(spark, ROWS, *SOME)), spark, [(3, 15, "late", False)])
    assert [row[0] for row in live_rows(table)] == [1, 2]
    result = table.upsert(frame(spark, ROWS, (1, 30, "new", False))).withCounts().execute()
    assert (result.rowsUpdated, result.version) == (1, 3)
    assert table.compact().rows == 3
    rows = table.history().select("version", "operation").collect()
    assert [tuple(r) for r in rows] == [(4, "COMPACT"), (3, "UPSERT"), (2, "UPSERT"), (1, "CONVERT")]
    made = json.loads(table.history().filter("version = 1").first()["parameters"])
    assert made == {"sourceColumns": ["id", "ts", "v", "deleted"]}
    assertRows(table.changes(0).select("id", "_change_type"), [(1, "insert"), (2, "insert")])
    assert TrinityTable.forPath(spark, table.path, versionAsOf=0).toDF().isEmpty()


@pytest.mark.parametrize("history", [False, True])
def test_S7b_neither_watermark_nor_tombstone_is_needed(spark, tmp_path, history):
    source = spark.sql("SELECT id, CAST(id AS STRING) AS `a b`, array(id) AS list FROM range(50)")
    keys = {"watermarkKey": None, "tombstoneKey": None, "fileFormat": "orc", "history": history}
    table = converted(spark, tmp_path, source, **keys)
    assert table.toDF().count() == 50
    assert table.deleteWhere("id < 10").execute().rowsDeleted == 10
    assertRows(table.toDF(), source.filter("id >= 10"))
    if history:
        times = [r[0] for r in table.versions().select("validFrom").distinct().collect()]
        assert len(times) == 1
        assert times[0] == table.history().filter("version = 1").first()["timestamp"]
        assert table.versions().filter("NOT isCurrent").count() == 10


def test_S7b_a_directory_of_parquet_becomes_a_table_and_stays(spark, tmp_path):
    files, table = tmp_path / "files [1]", None
    spark.range(30).selectExpr("id % 10 AS id", "id AS n", "id div 10 AS part").write.partitionBy("part").parquet(
        str(files)
    )
    before = sorted(files.rglob("*"))
    table = converted(
        spark, tmp_path, str(files), primaryKey=["id", "part"], watermarkKey="n", tombstoneKey=None, fileFormat="orc"
    )
    assert sorted(files.rglob("*")) == before
    assertRows(table.toDF().select("id", "part"), [(i, p) for i in range(10) for p in range(3)])
    made = json.loads(table.history().first()["parameters"])
    assert made == {"source": str(files), "sourceColumns": ["id", "n", "part"]}


def test_S7b_no_rows_are_an_empty_table(spark, tmp_path):
    table = converted(spark, tmp_path, frame(spark, ROWS, *SOME).filter("id > 9"))
    assert (table.version, table.toDF().count(), batch_directories(table)) == (0, 0, set())
    fill(table, spark, SOME[:1])
    assert live_rows(table) == SOME[:1]


REFUSED = {
    "null key": (
        [*SOME, (None, 1, "x", False)],
        {},
        NullKeyError,
        r"1 row of the source's 4 .*\(id\).*\(None, 1, 'x', False\)",
    ),
    "key twice": (
        [*SOME, *SOME[:2], SOME[0]],
        {},
        DuplicateKeyError,
        r"5 rows of the source's 6 .*\(id\).*: 1: 3 rows; 2: 2 rows",
    ),
    "half a key twice": (
        [*SOME, SOME[2]],
        {"primaryKey": ["id", "v"], "tombstoneKey": None},
        DuplicateKeyError,
        r"\(id, v\) with others: 3, 'was here': 2 rows",
    ),
    "no such key": (SOME, {"primaryKey": "oid"}, InvalidDefinitionError, "oid"),
    "bad property": (
        SOME,
        {"properties": {"trinitymerge.minorCompactionMaxBytes": "x"}},
        InvalidDefinitionError,
        "minorCompactionMaxBytes",
    ),
    "bad format": (SOME, {"fileFormat": "csv"}, InvalidDefinitionError, "csv"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_S7b_what_is_refused_leaves_nothing_at_the_path(spark, tmp_path, case):
    rows, options, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        converted(spark, tmp_path, frame(spark, ROWS, *rows), **options)
    assert os.listdir(tmp_path) == []
    converted(spark, tmp_path, frame(spark, ROWS, *SOME))


def test_S7b_a_source_that_fails_leaves_nothing_at_the_path(spark, tmp_path):
    failing = frame(spark, ROWS, *SOME).withColumn("v", F.expr("CAST(raise_error('on purpose') AS STRING)"))
    with pytest.raises(
        InvalidMergeError, match=r"The source of convert\(\) to .* could not be evaluated: .*on purpose"
    ):
        converted(spark, tmp_path, failing)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("there", ["table", "other files"])
def test_S7b_the_path_must_be_free(spark, tmp_path, there):
    path = tmp_path / "table"
    if there == "table":
        TrinityTable.create(spark, str(path), ROWS, primaryKey="id")
    else:
        path.mkdir()
        (path / "x.csv").write_text("1")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TableExistsError):
        converted(spark, tmp_path, frame(spark, ROWS, *SOME))
    assert sorted(tmp_path.rglob("*")) == before


def test_S7b_what_is_no_source_is_refused(spark, tmp_path):
    table = new_table(spark, tmp_path)
    with pytest.raises(InvalidMergeError, match=r"is a table of this library.*clone\(path\)"):
        TrinityTable.convert(spark, table.path, str(tmp_path / "t"), "id")
    with pytest.raises(StorageError, match=r"No readable Parquet files at .*nowhere"):
        TrinityTable.convert(spark, str(tmp_path / "nowhere"), str(tmp_path / "t"), "id")
    with pytest.raises(InvalidMergeError, match="must be a DataFrame"):
        TrinityTable.convert(spark, [(1, 2)], str(tmp_path / "t"), "id")
    assert not (tmp_path / "t").exists()


def test_S7b_a_converted_table_can_be_cloned(spark, tmp_path):
    table = fill(converted(spark, tmp_path, frame(spark, ROWS, *SOME)), spark, [(4, 1, "d", False)])
    for source in (table, TrinityTable.forPath(spark, table.path, versionAsOf=1)):
        clone = source.clone(str(tmp_path / f"clone-{source.version}"))
        assert (clone.version, live_rows(clone)) == (source.version, live_rows(source))
        assert clone._store.committed_at(1) == table._store.committed_at(1)
    assert directory_of(table).exists()


def test_S7b_tombstones_of_a_padded_column_remain(spark, tmp_path):
    rows = frame(spark, "id INT, ts INT, op STRING", (1, 1, "D  "), (2, 1, "I  "))
    source = rows.withMetadata("op", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})
    table = TrinityTable.convert(spark, source, f"{tmp_path}/t", "id", "ts", "op", "D")
    assert ([b.tombstones for b in table._snapshot().batches], [row[0] for row in live_rows(table)]) == ([1], [2])
