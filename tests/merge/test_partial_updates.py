"""S22, S22b: updates of some columns, of what is not null, and of what changes."""

from __future__ import annotations

import pytest
from helpers import assertRows
from tables import fill, frame, live_rows, merge_into, new_table, on_every_path

from trinitymerge import InvalidMergeError

WIDE = "id INT, ts INT, a STRING, b INT, deleted BOOLEAN"
KEYS = {"watermarkKey": "ts", "tombstoneKey": "deleted"}
SOURCE = "id INT, ts INT, a STRING, b INT"


@pytest.fixture
def table(spark, tmp_path):
    """Two live rows, and one that is deleted."""
    rows = [(1, 10, "a", 1, False), (2, 10, None, 2, False), (3, 10, None, None, True)]
    return fill(new_table(spark, tmp_path, WIDE, **KEYS), spark, rows)


@pytest.mark.parametrize("only", [{"columns": ["A"]}, {"exceptColumns": ["b", "deleted"]}], ids=str)
def test_S22_only_some_columns(spark, table, only):
    source = frame(spark, SOURCE, (1, 20, "x", 9), (3, 20, "y", 9), (4, 20, "z", 9))
    updated = on_every_path(table, lambda t: t.update(source, **only), spark)
    assert [run.rows for run in updated] == [[(1, 20, "x", 1, False), (2, 10, None, 2, False)]] * 2
    rows = [(1, 20, "x", 1, False), (2, 10, None, 2, False), (3, 20, "y", None, False), (4, 20, "z", None, False)]
    if "columns" in only:
        assert [run.rows for run in on_every_path(table, lambda t: t.upsert(source, **only), spark)] == [rows] * 2


@pytest.mark.parametrize(
    ("nulls", "left"),
    [(True, (1, 20, "a", 1)), (["b"], (1, 20, None, 1)), (False, (1, 20, None, None))],
    ids=["all", "b", "none"],
)
def test_S22_a_null_of_the_source_keeps_what_is_stored(spark, table, nulls, left):
    source = frame(spark, SOURCE, (1, 20, None, None), (4, 20, None, None))
    for run in on_every_path(table, lambda t: t.upsert(source, ignoreNulls=nulls), spark, uncertain=True):
        assert run.rows[0] == (*left, False)
        assert run.row(4) == (4, 20, None, None, False)


def test_S22_what_does_not_fit_is_no_null(spark, table):
    source = frame(spark, "id INT, ts INT, a STRING, b STRING", (1, 20, "x", "many"))
    with pytest.raises(Exception, match="many"):
        table.upsert(source, ignoreNulls=True).execute()


def test_S22b_what_changes_nothing_is_not_written(spark, table):
    source = frame(spark, SOURCE, (1, 20, "a", 1), (2, 20, None, 3), (3, 20, "y", 9))
    for run in on_every_path(table, lambda t: t.upsert(source, onlyIfChanged=True), spark):
        assert (run.result.rowsUnchanged, run.result.rowsUpdated, run.result.rowsInserted, run.result.rowsAppended) == (
            1,
            1,
            1,
            2,
        )
        assert run.result.perClause == (2, 1)
        assert run.rows == [(1, 10, "a", 1, False), (2, 20, None, 3, False), (3, 20, "y", 9, False)]
    same = table.update(frame(spark, SOURCE, (1, 20, "a", 1), (2, 20, None, 2)), onlyIfChanged=True).execute()
    assert (same.skipped, same.rowsUnchanged, same.version) == ("no row would change", 2, 1)


def test_S22b_a_row_that_is_as_before_is_written_after_one_that_is_not(spark, table):
    """Of one key, oldest first: changed, and changed back. Without the second the first would hold."""
    source = frame(spark, SOURCE, (1, 20, "x", 1), (1, 30, "a", 1), (2, 30, None, 2))
    for run in on_every_path(table, lambda t: t.upsert(source, onlyIfChanged=True), spark):
        assert run.row(1) == (1, 30, "a", 1, False)
        assert run.row(2) == (2, 10, None, 2, False)
        assert (run.result.rowsUnchanged, run.result.rowsAppended) == (1, 2)


def test_S22b_late_rows_and_deletes_are_treated_as_ever(spark, table):
    """A late row that equals the current one may be news in a table with history."""
    late = table.update(frame(spark, SOURCE, (1, 5, "a", 1)), onlyIfChanged=True).execute()
    assert (late.rowsStale, late.rowsUnchanged, late.rowsAppended) == (1, 0, 1)
    dead = frame(spark, f"{SOURCE}, deleted BOOLEAN", (1, 20, "a", 1, True))
    assert table.update(dead, onlyIfChanged=True).execute().rowsDeleted == 1


def test_S22b_nested_values_and_maps_are_compared_by_what_they_hold(spark, tmp_path):
    schema = "id INT, m MAP<STRING,INT>, s STRUCT<x:INT,y:ARRAY<STRING>>"
    table = new_table(spark, tmp_path, schema)
    rows = [(1, {"a": 1, "b": 2}, (1, ["p"])), (2, None, None), (3, {}, (None, None))]
    merge_into(table, spark, rows)
    again = frame(spark, schema, (1, {"b": 2, "a": 1}, (1, ["p"])), *rows[1:])
    assert table.upsert(again, onlyIfChanged=True).execute().rowsUnchanged == 3
    other = frame(spark, schema, (1, {"b": 2}, (1, ["p"])), (2, {}, None), (3, {}, (None, [None])))
    assert table.upsert(other, onlyIfChanged=True).execute().rowsUpdated == 3


def test_S22b_in_a_map_only_what_it_assigns_counts_and_inserts_beside_are_written(spark, tmp_path):
    table = fill(
        new_table(spark, tmp_path, "id INT, k INT, v STRING", primaryKey=["id", "k"]), spark, [(1, 0, "a"), (2, 0, "b")]
    )
    source = frame(spark, "id INT, v STRING", (1, "a"), (2, "x"))
    result = (
        table.merge(source, "target.id = source.id")
        .whenMatched()
        .updateExpr({"v": "source.v"}, onlyIfChanged=True)
        .insertExpr({"id": "source.id", "k": "1", "v": "'beside'"})
        .execute()
    )
    assert (result.rowsUnchanged, result.rowsUpdated, result.rowsInserted) == (1, 1, 2)
    assertRows(table.toDF(), [(1, 0, "a"), (2, 0, "x"), (1, 1, "beside"), (2, 1, "beside")])


def test_S22b_S27_what_changes_nothing_is_not_remembered(spark, tmp_path, table):
    former = new_table(spark, tmp_path, "id INT, was STRING", primaryKey="id")
    source = frame(spark, SOURCE, (1, 20, "a", 1), (2, 20, "x", 2))
    merge = table.merge(source).whenMatched().updateAll(exceptColumns=["deleted"], onlyIfChanged=True)
    result = merge.insertHistoryExpr({"id": "id", "was": "coalesce(a, 'nothing')"}, former).execute()
    assert (result.rowsUnchanged, result.rowsUpdated, result.rowsHistory) == (1, 1, 1)
    assertRows(former.toDF(), [(2, "nothing")])


def test_what_makes_no_sense_is_refused(spark, table):
    source = frame(spark, SOURCE, (1, 20, "a", 1))
    for arguments, words in (
        ({"columns": ["a"], "exceptColumns": ["b"]}, "not both"),
        ({"columns": []}, "names none"),
        ({"columns": ["nope"]}, "no column 'nope'"),
        ({"ignoreNulls": ["id"]}, "a null in a key"),
        ({"ignoreNulls": ["nope"]}, "no column 'nope'"),
        ({"columns": 5}, "takes column names"),
    ):
        with pytest.raises(InvalidMergeError, match=words):
            table.upsert(source, **arguments).build()


def test_the_plan_says_why_it_reads_the_target(spark, table, capsys):
    source = frame(spark, SOURCE, (1, 20, "a", 1))
    assert (
        "onlyIfChanged"
        in table.upsert(source.withColumn("deleted", source.id < 0), onlyIfChanged=True).build().explain()
    )
    assert "columns a from" not in table.upsert(source, columns=["a"]).build().explain()
    assert (
        "update a from the source, where that changes the row"
        in table.update(source, columns="a", onlyIfChanged=True).build().explain()
    )


@pytest.mark.parametrize("spelled", ["op", "OP", "`op`", "target.op"])
def test_S22_S30_a_tombstone_column_that_is_excepted_keeps_its_value_however_it_is_spelled(spark, tmp_path, spelled):
    table = new_table(spark, tmp_path, "id INT, v STRING, op STRING", tombstoneKey="op", tombstoneStringValue="D")
    table.upsert(frame(spark, "id INT, v STRING, op STRING", (1, "a", "I"))).execute()
    table.update(frame(spark, "id INT, v STRING, op STRING", (1, "b", "U")), exceptColumns=[spelled]).execute()
    assert live_rows(table) == [(1, "b", "I")]
