"""The examples of the two documents this library comes from: CarbonData's merge guide and TrinityLake's upsert."""

from __future__ import annotations

import datetime as dt

import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from tables import fill, frame, live_rows, new_table

from trinitymerge import InvalidMergeError, TrinityTable
from trinitymerge.reader import resolve


def at(second):
    return dt.datetime(2024, 1, 1) + dt.timedelta(seconds=second)


# TrinityLake: upsert with watermark and tombstone keys ----------------------------------------------------------------

ORDERS = "order_id VARCHAR(10), amount INT, ts TIMESTAMP, deleted BOOLEAN"
KEYS = {"primaryKey": "order_id", "watermarkKey": "ts", "tombstoneKey": "deleted"}


@pytest.fixture
def orders(spark, tmp_path):
    return TrinityTable.create(spark, str(tmp_path / "orders"), ORDERS, **KEYS)


def test_TrinityLake_newer_row_is_read_and_deleted_row_is_not(spark, orders):
    for batch in (
        [("1", 1, at(100), None), ("2", 1, at(100), None)],
        [("1", 2, at(200), None), ("2", None, at(200), True)],
    ):
        fill(orders, spark, batch)
    assert live_rows(orders) == [("1", 2, at(200), None)]


def test_TrinityLake_order_of_arrival_does_not_matter(spark, orders):
    fill(orders, spark, [("2", None, at(200), True), ("1", 2, at(200), None)])
    fill(orders, spark, [("1", 1, at(100), None), ("2", 1, at(100), None)])
    assert live_rows(orders) == [("1", 2, at(200), None)]


def test_TrinityLake_definition_holds_for_external_data(spark):
    rows = frame(
        spark,
        "order_id STRING, ts INT, deleted BOOLEAN",
        *[("1", 100, None), ("1", 200, None), ("2", 100, None), ("2", 200, True)],
    )
    assertRows(resolve(rows, "order_id", "ts", "deleted"), [("1", 200, None)])


def test_TrinityLake_upsert_is_insert_or_overwrite(spark, orders):
    fill(orders, spark, [("1", 5, at(1), None)])
    rows = frame(spark, "order_id STRING, amount INT, ts TIMESTAMP", ("1", 7, at(2)), ("2", 9, at(2)))
    orders.upsert(rows).execute()
    assert live_rows(orders) == [("1", 7, at(2), False), ("2", 9, at(2), False)]


def test_TrinityLake_null_watermark_is_the_smallest(spark, orders):
    fill(orders, spark, [("1", 1, None, None)], [("1", 2, at(1), None)], [("1", 3, None, None)])
    assert live_rows(orders) == [("1", 2, at(1), None)]


# CarbonData: the merge API --------------------------------------------------------------------------------------------

TARGET = "id STRING, name STRING, c_name STRING, quantity INT, price INT, state INT"


@pytest.fixture
def target(spark, tmp_path):
    """As in CarbonData's MergeTestCase: ten orders in state 1."""
    table = new_table(spark, tmp_path, TARGET)
    return fill(table, spark, [(f"id{i}", f"order{i}", f"customer{i}", i * 10, i * 75, 1) for i in range(10)])


@pytest.fixture
def changes(spark):
    """As there: 0 and 1 in another state, 2 and 3 unchanged, 4 not there, two new ones."""
    rows = [
        (f"id{i}", f"order{i}", f"customer{i}", i * 10, i * 75, 2 if i < 2 else 1) for i in (0, 1, 2, 3, 5, 6, 7, 8)
    ]
    return frame(spark, TARGET, *rows, *[(f"newid{i}", f"order{i}", f"customer{i}", i * 10, i * 75, 1) for i in (1, 2)])


def test_CarbonData_chain_of_the_merge_guide(spark, target, changes):
    result = (
        target.alias("A")
        .merge(changes.alias("B"), "A.id = B.id")
        .whenMatched("A.state <> B.state")
        .updateExpr({"state": "B.state"})
        .insertExpr({"id": "concat(B.id, '-old')", "state": "A.state"})
        .whenNotMatched("B.quantity > 10")
        .insertExpr({"id": "B.id", "name": "B.name", "quantity": "B.quantity"})
        .whenNotMatchedAndExistsOnlyOnTarget("A.quantity > 50")
        .delete()
        .execute()
    )
    assert (result.rowsInserted, result.rowsUpdated, result.rowsDeleted) == (3, 2, 1)
    assert result.perClause == (2, 1, 1)
    rows = {row[0]: row for row in live_rows(target)}
    assert rows["id0"] == ("id0", "order0", "customer0", 0, 0, 2)
    assert rows["id0-old"] == ("id0-old", None, None, None, None, 1)
    assert rows["newid2"] == ("newid2", "order2", None, 20, None, None)
    assert "newid1" not in rows
    assert "id9" not in rows
    assert rows["id4"][3] == 40
    assert len(rows) == 12


def test_CarbonData_history_table(spark, tmp_path, target, changes):
    """As in MergeTestCase: what is updated and what is deleted goes into a history table, in the same merge."""
    schema = TARGET + ", why STRING"
    history = TrinityTable.create(spark, str(tmp_path / "history"), schema, primaryKey=["id", "why"])
    names = ["id", "name", "c_name", "quantity", "price", "state"]
    update_map = [
        (F.col("id"), F.col("A.id")),
        (F.col("price"), F.expr("B.price + 1")),
        (F.col("state"), F.col("B.state")),
    ]
    insert_map = [(F.col(name), F.col(f"B.{name}")) for name in names]
    history_map = [(F.col(name), F.col(name)) for name in names]
    result = (
        target.alias("A")
        .merge(changes.alias("B"), F.col("A.id") == F.col("B.id"))
        .whenMatched(F.col("A.state") != F.col("B.state"))
        .updateExpr(update_map)
        .insertHistoryTableExpr([*history_map, (F.col("why"), F.lit("U"))], history)
        .whenNotMatched()
        .insertExpr(insert_map)
        .whenNotMatchedAndExistsOnlyOnTarget()
        .delete()
        .insertHistoryTableExpr([*history_map, (F.col("why"), F.lit("D"))], history)
        .execute()
    )
    assert (result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsHistory) == (2, 2, 2, 4)
    before = {f"id{i}": (f"id{i}", f"order{i}", f"customer{i}", i * 10, i * 75, 1) for i in range(10)}
    assertRows(
        history.toDF(), [(*before[id], why) for id, why in [("id0", "U"), ("id1", "U"), ("id4", "D"), ("id9", "D")]]
    )


def test_CarbonData_update_changes_only_the_specified_columns(spark, target, changes):
    target.merge(changes).whenMatched("source.state = 2").updateExpr({"price": "source.price + 1"}).execute()
    rows = {row[0]: row for row in live_rows(target)}
    assert rows["id1"] == ("id1", "order1", "customer1", 10, 76, 1)


def test_CarbonData_first_of_two_clauses_must_have_a_condition(target, changes):
    with pytest.raises(InvalidMergeError, match="can never run"):
        target.merge(changes).whenMatched().delete().whenMatched("target.state = 1")


def test_CarbonData_clauses_are_evaluated_in_the_order_they_are_specified(spark, target, changes):
    """The guide's rule. (CarbonData's code evaluates all that match and puts deletes last.)"""
    target.merge(changes).whenMatched("source.state = 2").delete().whenMatched("source.state > 0").updateExpr(
        {"state": "9"}
    ).execute()
    states = {row[0]: row[5] for row in live_rows(target)}
    assert "id0" not in states
    assert states["id2"] == 9


def test_CarbonData_row_is_unchanged_when_neither_condition_holds(spark, target, changes):
    before = live_rows(target)
    result = (
        target.merge(changes)
        .whenMatched("target.state = 7")
        .delete()
        .whenMatched("target.state = 8")
        .updateExpr({"state": "9"})
    ).execute()
    assert result.skipped == "no clause applied to any row"
    assert live_rows(target) == before


def test_CarbonData_empty_source_does_not_wipe_the_table(spark, target, changes):
    target.merge(changes.limit(0)).whenNotMatchedAndExistsOnlyOnTarget().delete().execute()
    assert target.toDF().count() == 10


def test_CarbonData_slowly_changing_dimension(spark, tmp_path):
    """A customer's old row is closed and the new one opened by one clause: `updateExpr(u).insertExpr(i)`."""
    schema = "customer INT, since DATE, city STRING, until DATE"
    dimension = new_table(spark, tmp_path, schema, primaryKey=["customer", "since"])
    day = dt.date(2024, 1, 1)
    fill(dimension, spark, [(1, day, "Bern", None), (2, day, "Rome", None), (2, dt.date(2023, 1, 1), "Oslo", day)])
    extract = frame(spark, "customer INT, city STRING", (1, "Bern"), (2, "Kyiv"), (3, "Lima"))
    (
        dimension.alias("A")
        .merge(extract.alias("B"), "A.customer = B.customer AND A.until IS NULL")
        .whenMatched("A.city <> B.city")
        .updateExpr({"until": "DATE'2024-06-01'"})
        .insertExpr({"customer": "B.customer", "since": "DATE'2024-06-01'", "city": "B.city"})
        .whenNotMatched()
        .insertExpr({"customer": "B.customer", "since": "DATE'2024-06-01'", "city": "B.city"})
        .execute()
    )
    june = dt.date(2024, 6, 1)
    assertRows(
        dimension.toDF(),
        [
            (1, day, "Bern", None),
            (2, dt.date(2023, 1, 1), "Oslo", day),
            (2, day, "Rome", june),
            (2, june, "Kyiv", None),
            (3, june, "Lima", None),
        ],
    )
