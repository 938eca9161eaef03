"""Tables that earlier versions of the library have written open and work as they are.

`tests/data/table-0.1` was written before batches kept the range of their keys: 20 rows and a first set of changes, compacted; a
delete and a change; key 5 purged; a mistake, restored; and late, fresh and purged rows under the marker of a transaction.
"""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pytest
from tables import directory_of

from trinitymerge import TrinityTable

WRITTEN = Path(__file__).parents[1] / "data" / "table-0.1"
FIRST = {0, *range(8, 20)}
VISIBLE = {
    **{i: f"first {i}" for i in (*FIRST, 6)},
    1: "second",
    4: "third",
    7: "fourth",
    30: "new",
}
ROW = "id INT, day DATE, ts TIMESTAMP, v STRING, deleted BOOLEAN"


@pytest.fixture
def table(spark, tmp_path):
    shutil.copytree(WRITTEN, tmp_path / "table")
    return TrinityTable.forPath(spark, str(tmp_path / "table"))


def visible(table):
    return {row.id: row.v for row in table.toDF().collect()}


def rows(spark, *some):
    """Rows of an id, the day of its watermark and its value; None deletes."""
    day = datetime.date(2024, 1, 1)
    made = [(i, day, datetime.datetime(2024, 2, d), v, v is None) for i, d, v in some]
    return spark.createDataFrame(made, ROW)


def test_an_old_table_reads_the_same_now_and_then(table, spark):
    assert visible(table) == VISIBLE
    assert table.version == 8
    mistaken = TrinityTable.forPath(spark, table.path, versionAsOf=6)
    assert visible(mistaken) == {**VISIBLE, 6: "mistake", 7: "first 7"}


def test_an_old_table_is_merged_into_on_every_kind_of_lookup(table, spark):
    source = rows(spark, (1, 5, "fifth"), (3, 5, "back"), (40, 5, "newer"))
    keyed = table.alias("A").merge(source.alias("B"), "A.id = B.id AND A.day = B.day")
    keyed.whenMatched().updateExpr({"v": "concat(A.v, ', ', B.v)", "ts": "B.ts"}).execute()
    assert visible(table) == {**VISIBLE, 1: "second, fifth"}
    partly = table.alias("A").merge(source.alias("B"), "A.id = B.id AND A.deleted = false")
    new = {"id": "B.id", "day": "DATE'2024-03-01'", "ts": "B.ts", "v": "B.v", "deleted": "false"}
    result = (
        partly.whenMatched()
        .updateExpr({"v": "'closed'", "ts": "B.ts"})
        .insertExpr(new)
        .whenNotMatched()
        .insertExpr(new)
        .execute()
    )
    assert (result.rowsInserted, result.rowsUpdated) == (3, 1)
    assert sorted((r.id, r.day.month, r.v) for r in table.toDF().filter("id IN (1, 3, 40)").collect()) == [
        (1, 1, "closed"),
        (1, 3, "fifth"),
        (3, 3, "back"),
        (40, 3, "newer"),
    ]


def test_an_old_table_is_maintained_and_remembers_its_purge_and_its_transactions(table, spark):
    assert table.upsert(rows(spark, (9, 9, "again"))).withTransaction("daily", 3).execute().skipped
    assert table.upsert(rows(spark, (5, 9, "purged"))).execute().rowsPurged == 1
    table.compact()
    assert visible(table) == VISIBLE
    table.purge(spark.createDataFrame([(8, datetime.date(2024, 1, 1))], "id INT, day DATE"))
    table.vacuum(retentionHours=0)
    remaining = {i: v for i, v in VISIBLE.items() if i != 8}
    assert visible(table) == remaining
    assert visible(TrinityTable.forPath(spark, table.path)) == remaining
    assert b"first 8" not in b"".join(f.read_bytes() for f in directory_of(table).rglob("*.parquet"))
