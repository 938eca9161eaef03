"""Writes the tables of format 1 that `log/test_format.py` reads for ever: `python tests/format_1.py DIRECTORY`.

The first library with that format wrote them once. They are never written again.

- `orders`: segments, pending batches, minor compactions, tombstones; columns renamed, widened, added and dropped; a CHECK and a
  default; a purged key, a transaction marker, a restore, checkpoints.
- `customers`: a table with history, with archives of both kinds.
- `notes`: partial rows, two of them with values from an earlier key, some in a minor compaction.
- `copy`: a clone of an earlier version of `orders`.
- `expected.json`: the rows of each version, as they were read then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trinitymerge import TrinityTable

ORDERS = "id INT, ts TIMESTAMP, status STRING, amount INT, deleted BOOLEAN"


def rows_of(table: TrinityTable) -> list[str]:
    """Return the live rows as sorted JSON, a form that no library version changes."""
    return sorted(row[0] for row in table.toDF().selectExpr("to_json(struct(*))").collect())


def versions_of(table: TrinityTable) -> list[str]:
    """Return all versions of the rows of a table with history, as sorted JSON."""
    return sorted(row[0] for row in table.versions().selectExpr("to_json(struct(*))").collect())


def _orders(spark: SparkSession, path: str) -> TrinityTable:
    table = TrinityTable.create(
        spark,
        path,
        ORDERS,
        primaryKey="id",
        watermarkKey="ts",
        tombstoneKey="deleted",
        properties={
            "trinitymerge.checkpointInterval": "8",
            "trinitymerge.targetSegmentBytes": "2000",
            "trinitymerge.minorCompactionAfterBatches": "3",
        },
    )

    def source(*rows: tuple[int, int, Any, Any, bool]) -> DataFrame:
        amount = table.definition.fields[3]
        columns = f"id INT, day INT, status STRING, {amount.name} {amount.text}, deleted BOOLEAN"
        frame = spark.createDataFrame(list(rows), columns)
        return frame.selectExpr("id", "timestamp_seconds(1700000000 + 86400 * day) AS ts", "* EXCEPT (id, day)")

    for half in (range(200), range(200, 400)):
        table.upsert(source(*((i, 0, f"new {i * i}", i, False) for i in half))).execute()
    table.compact()
    for day in range(1, 6):
        changes = [(i, day, f"day {day}", 1000 * day + i, False) for i in range(day, 400, 97)]
        table.upsert(source(*changes, (100 + day, day, None, None, True))).execute()
    table.purge([7])
    table.alter().renameColumn("amount", "cents").widenColumn("cents", "bigint").execute()
    table.alter().addColumn("note", "string").setDefault("note", "'none'").addCheck("positive", "cents >= 0").execute()
    noted = source((9, 7, "late", 5_000_000_000, False)).selectExpr("*", "'first' AS note")
    table.upsert(noted).withTransaction("daily", 3).execute()
    before = table.version
    table.deleteWhere("id < 50").execute()
    table.restore(before)
    table.alter().dropColumn("note").execute()
    table.upsert(source((8, 9, "check", 1, False), (7, 9, "purged", 1, False), (500, 9, "last", 2, False))).execute()
    return table


def _customers(spark: SparkSession, path: str) -> TrinityTable:
    table = TrinityTable.create(
        spark, path, "id INT, ts INT, city STRING, deleted BOOLEAN", "id", "ts", "deleted", history=True
    )

    def write(*rows: tuple[int, int, Any, bool]) -> None:
        table.upsert(spark.createDataFrame(list(rows), "id INT, ts INT, city STRING, deleted BOOLEAN")).execute()

    write((1, 1, "Oslo", False), (2, 1, "Bern", False), (3, 1, "Rome", False))
    write((1, 3, "Lima", False), (2, 4, None, True))
    table.compact()
    write((1, 2, "Kyiv", False), (3, 5, "Riga", False))
    write((3, 6, "Wien", False), (4, 6, "Nice", False))
    return table


def _notes(spark: SparkSession, path: str) -> TrinityTable:
    table = TrinityTable.create(
        spark,
        path,
        "id INT, at TIMESTAMP, title STRING, body STRUCT<text: STRING, pages: INT>",
        primaryKey="id",
        watermarkKey="at",
        properties={"trinitymerge.minorCompactionAfterBatches": "2"},
    )
    for batch in NOTES[:-1]:
        notes_events(table, batch).execute()
    return table


NOTES = (
    [(1, 1, "one", "first", 1, None, None), (2, 1, "two", "second", 2, None, None)],
    [(1, 3, "one, again", None, None, ["body"], None), (3, 4, "three", None, None, ["body"], 2)],
    [(3, 6, None, "third", 3, ["title"], None), (4, 7, "four", None, None, ["body"], 3)],
    [(5, 5, "five", None, None, ["body"], None)],
    [(1, 2, "late", "late", 7, None, None), (3, 5, "late", "late", 8, None, None), (3, 6, "x", "y", 9, None, None)],
)
"""Batches of events. The last one is late: it comes when another library has opened the table."""


def notes_events(table: TrinityTable, batch: list[tuple[Any, ...]]) -> Any:
    """Return the merge of a batch."""
    columns = "id INT, day INT, title STRING, text STRING, pages INT, unset ARRAY<STRING>, was INT"
    source = table._store.spark.createDataFrame(batch, columns)
    at, body = "timestamp_seconds(1700000000 + 86400 * day) AS at", "struct(text, pages) AS body"
    source = source.selectExpr("id", at, "title", body, "unset", "was")
    return table.applyChanges(source, unchanged="unset", movedFrom="was", exceptColumns=["unset", "was"])


def main(directory: str) -> None:
    """Write the tables and what they hold."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    where = Path(directory).absolute()
    orders, customers = _orders(spark, f"{where}/orders"), _customers(spark, f"{where}/customers")
    notes = _notes(spark, f"{where}/notes")
    copy = TrinityTable.forPath(spark, orders.path, versionAsOf=orders.version - 3).clone(f"{where}/copy")
    expected: dict[str, Any] = {"versions": versions_of(customers)}
    for name, table in (("orders", orders), ("customers", customers), ("notes", notes), ("copy", copy)):
        expected[name] = {}
        for commit in table.history().collect():
            try:
                past = TrinityTable.forPath(spark, table.path, versionAsOf=commit.version)
                expected[name][commit.version] = rows_of(past)
            except Exception as error:  # noqa: BLE001 - a purge has removed what older versions need
                print(name, commit.version, type(error).__name__)
        print(name, [(c.version, c.operation) for c in table.history().collect()])
    (where / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
