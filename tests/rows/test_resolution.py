"""Which of ten rows of a key wins: in a window, in an aggregate, beside its neighbors, and of two (S3, S6, S13, S15)."""

from __future__ import annotations

import itertools

import pytest
from pyspark.sql import functions as F
from tables import frame

from trinitymerge.rows.resolution import Order, is_older, oldest, rank, winner, winners
from trinitymerge.rows.tie_breaking import weights
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql

OLDEST_FIRST = [
    (None, None, 1),
    (None, None, 2),  # S6: equal watermarks, a later commit
    (None, 9, 1),  # S3: null is the smallest, in each column
    (1, None, 3),
    (1, 1, 1),
    (1, 1, 4),
    (1, 2, 2),  # S3: column by column, before the commit
    (2, None, 1),
    (2, 0, None),  # S6: rows of other writers have no version, and are older than all that have
    (2, 0, 1),
]
"""Two watermark columns and a commit version."""

KEYED = TableDefinition.of([Field("k", "integer"), Field("a", "integer"), Field("b", "integer")], "k", ["a", "b"])
ORDER = Order.of(KEYED, [C.VERSION])


@pytest.fixture
def rows(spark):
    """The ten rows of key 1 in another order, each with its place ``n``, and one row of key 2."""
    placed = [(1, *row, n) for n, row in enumerate(OLDEST_FIRST)]
    shuffled = [*placed[::3], *placed[2::3], *placed[1::3]]
    return frame(spark, f"k INT, a INT, b INT, {C.VERSION} INT, n INT", *shuffled, (2, None, None, None, 0))


def test_S3_S6_items_of_a_window():
    order = Order.of(KEYED, [C.VERSION], [Sql("t")])
    watermark, commit = "`a` DESC NULLS LAST, `b` DESC NULLS LAST", f"{C.VERSION} DESC"
    assert ", ".join(order.freshest_first()) == f"{watermark}, {commit}, t DESC NULLS LAST"
    watermark, commit = "`a` ASC NULLS FIRST, `b` ASC NULLS FIRST", f"{C.VERSION} ASC"
    assert ", ".join(order.oldest_first()) == f"{watermark}, {commit}, t ASC NULLS FIRST"


def test_S5_order_of_a_table_without_watermark_and_version():
    order = Order.of(TableDefinition.of([Field("k", "integer")], "k"))
    assert order == Order(())
    assert rank([E.quote("k")], order.freshest_first()) == "row_number() OVER (PARTITION BY `k` ORDER BY 1)"
    assert is_older(order.values, order.values) == E.FALSE


def test_S13_one_row_of_each_key_wins(rows):
    assert sorted((r.k, r.n) for r in winners(rows, KEYED, ORDER).collect()) == [(1, 9), (2, 0)]


def test_S13_winners_keep_the_columns(rows):
    assert winners(rows, KEYED, ORDER).columns == rows.columns


def test_S13_rank_counts_from_the_winner(rows):
    places = rows.filter("k = 1").selectExpr("n", f"{rank([E.quote('k')], ORDER.freshest_first())} AS place").collect()
    assert {r.n: r.place for r in places} == {n: 10 - n for n in range(10)}


def test_S13_aggregates_pick_the_winner_and_the_oldest_row(rows):
    [found] = (
        rows.filter("k = 1")
        .groupBy("k")
        .agg(
            F.expr(f"{winner(Sql('n'), ORDER.packed())} AS n"), F.expr(f"{oldest(ORDER.packed(['x', 'y', 'z']))} AS o")
        )
        .collect()
    )
    assert (found.n, found.o.asDict()) == (9, dict(zip("xyz", OLDEST_FIRST[0], strict=True)))


def test_S6_H3_the_next_row_follows_in_time(rows):
    following = E.over(Sql("lead(n)"), [E.quote("k")], ORDER.oldest_first())
    beside = rows.filter("k = 1").selectExpr("n", f"{following} AS following").collect()
    assert {r.n: r.following for r in beside} == {**{n: n + 1 for n in range(9)}, 9: None}


def test_S3_S6_of_two_rows_the_earlier_in_the_order_is_older(spark):
    pairs = list(itertools.product(enumerate(OLDEST_FIRST), repeat=2))
    both = frame(
        spark, "n INT, a INT, b INT, c INT, m INT, x INT, y INT, z INT", *[(n, *p, m, *q) for (n, p), (m, q) in pairs]
    )
    mine, theirs = ([Sql(name) for name in names] for names in ("abc", "xyz"))
    found = both.selectExpr(
        "n", "m", f"{is_older(mine, theirs)} AS older", f"{is_older(mine[:2], theirs[:2])} AS by_watermark"
    )
    for r in found.collect():
        assert r.older is (r.n < r.m)
        equal = OLDEST_FIRST[r.n][:2] == OLDEST_FIRST[r.m][:2]
        assert r.by_watermark is (r.n < r.m and not equal), "S6: by watermarks alone, neither is older"


def test_S15_contents_decide_between_rows_without_a_version(spark):
    fields = [
        Field("k", "integer"),
        Field("w", "integer"),
        Field("dead", "boolean"),
        Field("v", "double"),
        Field("s", "string"),
    ]
    definition = TableDefinition.of(fields, "k", "w", "dead")
    oldest_first = [
        (1, True, 9.0, "z"),  # S3: the watermark is before all contents
        (2, None, None, None),
        (2, None, None, "a"),
        (2, None, -1.0, "a"),
        (2, False, 0.0, "a"),
        (2, False, 0.0, "b"),
        (2, False, float("inf"), None),
        (2, False, float("nan"), None),
        (2, True, None, None),  # S15.1: a tombstone is before the other columns
        (2, True, None, "a"),
    ]
    rows = frame(
        spark,
        "k INT, w INT, dead BOOLEAN, v DOUBLE, s STRING, n INT",
        *[(1, *r, n) for n, r in enumerate(oldest_first)],
    )
    order = Order.of(definition, ties=weights(rows.drop("n"), definition))
    assert [r.n for r in winners(rows, definition, order).collect()] == [9]
    places = rows.selectExpr("n", f"{rank([E.quote('k')], order.freshest_first())} AS place").collect()
    assert {r.n: r.place for r in places} == {n: 10 - n for n in range(10)}
    assert rows.groupBy("k").agg(F.expr(f"{winner(Sql('n'), order.packed())} AS n")).first().n == 9


def test_S15_two_zeros_are_decided_by_their_text(spark):
    definition = TableDefinition.of([Field("k", "integer"), Field("v", "double")], "k")
    for some in ([(1, 0.0), (1, -0.0)], [(1, -0.0), (1, 0.0)]):
        rows = frame(spark, "k INT, v DOUBLE", *some).coalesce(1)
        [found] = winners(rows, definition, Order.of(definition, ties=weights(rows, definition))).collect()
        assert str(found.v) == "0.0"
