"""The assertions of ``trinitymerge.testing`` on real tables; on the interpreter's tables see test_interpreter.py."""

from __future__ import annotations

import re

import attrs
import pytest
from tables import EVENTS, copy_of, fill, frame, live_rows, new_table

from trinitymerge import InvalidMergeError, NullKeyError
from trinitymerge.testing import TableMerge, assertClauseOrderIrrelevant, assertMerge, assertRows, clauseOrderDependence

CHANGES = "id INT, ts INT, v STRING, op STRING"


@pytest.fixture(scope="module")
def events(spark, tmp_path_factory):
    table = new_table(spark, tmp_path_factory.mktemp("asserts"))
    return fill(table, spark, [(1, 10, "a", False), (2, 10, "b", False)])


def cdc(*changes, spark, second="B.v IS NOT NULL"):
    source = frame(spark, CHANGES, *changes)

    def merge(table):
        merge = table.alias("A").merge(source.alias("B"), "A.id = B.id")
        return merge.whenMatched("B.op = 'D'").delete().whenMatched(second).updateExpr({"v": "B.v"})

    return merge


def row(id, ts, v):
    return {"id": id, "ts": ts, "v": v, "deleted": False}


def test_assertMerge_executes_and_returns_the_result(spark, events):
    table = copy_of(events, spark)
    result = assertMerge(table, cdc((1, 20, "x", "U"), (2, 20, None, "D"), spark=spark), [row(1, 20, "x")])
    assert (result.rowsAppended, result.rowsSource) == (2, 2)


def test_assertMerge_shows_the_rows_that_differ_side_by_side(spark, events):
    with pytest.raises(AssertionError) as error:
        assertMerge(copy_of(events, spark), cdc((1, 20, "x", "U"), spark=spark), [row(1, 20, "y"), row(2, 10, "b")])
    lines = [re.split(r"\s{2,}", line.strip()) for line in str(error.value).splitlines()]
    assert lines[0] == ["1 of 2 rows differ:"]
    assert lines[2] == [
        "{id: 1, ts: 20, v: 'y', deleted: False}",
        "{id: 1, ts: 20, v: 'x', deleted: False}",
        "v",
    ]


def test_assertMerge_takes_the_error_that_is_expected(spark, events):
    table = copy_of(events, spark)
    null_key = frame(spark, EVENTS, (None, 20, "x", False))
    error = assertMerge(table, lambda t: t.upsert(null_key), NullKeyError)
    assert "'id'" in str(error)
    with pytest.raises(AssertionError, match="Expected NullKeyError"):
        assertMerge(table, cdc((1, 20, "x", "U"), spark=spark), NullKeyError)


def test_clauseOrderDependence_says_which_rows_and_leaves_the_table_alone(spark, events):
    before = events.version, live_rows(events)
    merge = TableMerge(events, cdc((1, 20, "x", "D"), (2, 20, None, "D"), spark=spark))
    (found,) = clauseOrderDependence(merge)
    assert found.clause == 'clause 2, whenMatched("B.v IS NOT NULL")'
    assertRows(found.given, [])
    assertRows(found.reordered, [row(1, 20, "x")])
    with pytest.raises(AssertionError, match=r"(?s)The order of clauses matters.*id: 1.*unexpected"):
        assertClauseOrderIrrelevant(merge)
    assert (events.version, live_rows(events)) == before


def test_assertClauseOrderIrrelevant_passes_where_no_row_meets_two_clauses(spark, events):
    assertClauseOrderIrrelevant(TableMerge(events, cdc((1, 20, "x", "U"), (2, 20, None, "D"), spark=spark)))


def test_a_merge_that_can_never_run_proves_nothing(spark, events):
    with pytest.raises(InvalidMergeError, match="no_such_column"):
        assertClauseOrderIrrelevant(TableMerge(events, cdc((1, 20, "x", "U"), spark=spark, second="no_such_column")))


def test_only_tables_on_a_local_disk_can_be_copied(spark, events):
    @attrs.frozen
    class Remote:
        path: str = "s3a://bucket/table"

    merge = TableMerge(Remote(), cdc(spark=spark))
    with pytest.raises(ValueError, match="s3a://bucket/table"):
        merge.rowsAfter(())
