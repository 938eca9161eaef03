"""Merge-on-read: one row per key, whatever the order of batches, files and rows (S13-S15), and `toDF()` (S14)."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import pytest
from helpers import assertRows, executed_plan
from pyspark.sql import functions as F
from tables import fill, frame, live_rows, merge_into, new_table

from trinitymerge import InvalidDefinitionError, TrinityTable
from trinitymerge.reader import ReadPlan, resolve
from trinitymerge.spark.session import is_connect
from trinitymerge.stores import managed

VERSIONS = "order_id STRING, ts INT, deleted BOOLEAN, v STRING"


def values(spark, schema, *rows):
    return frame(spark, schema, *rows).coalesce(1)


# resolve() ------------------------------------------------------------------------------------------------------------


def test_S13_TrinityLake_reader_examples(spark):
    rows = frame(
        spark, VERSIONS, ("1", 100, None, "a"), ("1", 200, None, "b"), ("2", 100, None, "c"), ("2", 200, True, "d")
    )
    assertRows(resolve(rows, "order_id", "ts", "deleted"), [("1", 200, None, "b")])


def in_every_order(rows):
    """The rows in every order, each order under a key of its own."""
    return [(key, *row) for key, order in enumerate(itertools.permutations(rows)) for row in order]


def test_S13_every_order_of_rows_gives_the_same(spark):
    rows = in_every_order([(1, False, "a"), (2, True, "b"), (3, False, "c"), (None, False, "d")])
    latest = resolve(frame(spark, "k INT, w INT, dead BOOLEAN, v STRING", *rows), "k", "w", "dead")
    assertRows(latest.select("k", "v"), [(key, "c") for key in range(24)])


def test_S3_null_watermark_is_smallest_also_where_it_is_alone(spark):
    rows = frame(spark, VERSIONS, ("1", None, False, "null"), ("1", -5, False, "number"), ("2", None, False, "alone"))
    assertRows(resolve(rows, "order_id", "ts").select("v"), ["number", "alone"])


def test_S3_composite_watermarks_compare_column_by_column(spark):
    rows = frame(
        spark,
        "k INT, a INT, b INT, v STRING",
        *[(1, 1, 9, "x"), (1, 2, 0, "fresher"), (1, 2, None, "y")],
        *[(2, None, 9, "x"), (2, 0, None, "fresher")],
        *[(3, 5, None, "x"), (3, 5, 0, "fresher"), (3, None, None, "y")],
    )
    assertRows(resolve(rows, "k", ["a", "b"]).select("k", "v"), [(1, "fresher"), (2, "fresher"), (3, "fresher")])


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        ("DOUBLE", [None, float("-inf"), -1.0, 0.5, float("inf"), float("nan")]),
        ("DECIMAL(5,2)", [None, Decimal("-9.5"), Decimal("9.50"), Decimal("10")]),
        ("STRING", [None, "", "Z", "a", "ab", "é", "￿", "😀"]),
        ("BINARY", [None, b"", b"\x00", b"\x7f", b"\x80"]),
        ("BOOLEAN", [None, False, True]),
        ("DATE", [None, dt.date(1582, 10, 15), dt.date(2024, 1, 1)]),
        ("TIMESTAMP", [None, dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    ],
)
def test_S3_C16_order_of_watermarks_by_type(spark, kind, ascending):
    pairs = list(itertools.combinations(enumerate(ascending), 2))
    rows = [(key, value, n) for key, pair in enumerate(pairs) for n, value in pair]
    latest = resolve(frame(spark, f"k INT, w {kind}, n INT", *rows), "k", "w")
    assertRows(latest.select("k", "n"), [(key, pair[1][0]) for key, pair in enumerate(pairs)])


def test_C16_negative_zero_and_zero_are_equal_watermarks(spark):
    rows = frame(spark, "k INT, w DOUBLE, n INT", (1, -0.0, 2), (1, 0.0, 1), (2, 0.0, 2), (2, -0.0, 1))
    assertRows(resolve(rows, "k", "w").select("k", "n"), [(1, 2), (2, 2)])


@pytest.mark.parametrize(
    ("kind", "value", "dead", "alive"),
    [
        ("BOOLEAN", None, [True], [False, None]),
        ("STRING", "gone", ["gone"], ["Gone", "gone ", "", None]),
        ("STRING", None, ["", "x"], [None]),
        ("INT", None, [0, 1], [None]),
        ("DOUBLE", None, [0.0, float("nan")], [None]),
        ("DATE", None, [dt.date(1970, 1, 1)], [None]),
        ("BINARY", None, [b""], [None]),
    ],
)
def test_S4_forms_of_tombstones(spark, kind, value, dead, alive):
    rows = [(k, 2, mark) for k, mark in enumerate([*dead, *alive])]
    older = [(k, 1, None) for k in range(len(rows))]
    live = resolve(frame(spark, f"k INT, w INT, dead {kind}", *rows, *older), "k", "w", "dead", value)
    assertRows(live, rows[len(dead) :])


def test_S15_a_tombstone_beats_a_row_of_equal_watermark(spark):
    rows = [("1", 1, False, "z"), ("1", 1, True, "a"), ("2", None, True, None), ("2", None, False, "z")]
    for order in (rows, rows[::-1]):
        assert resolve(values(spark, VERSIONS, *order), "order_id", "ts", "deleted").count() == 0


def test_S15_then_the_row_whose_remaining_columns_are_larger_in_schema_order(spark):
    rows = in_every_order([(5, "b", 0, [1]), (5, "a", 9, [9]), (5, None, 9, [9])])
    rows += [
        (key + 10, *row) for key, *row in in_every_order([(5, "a", 1, [2]), (5, "a", 1, [1, 9]), (5, "a", None, [9])])
    ]
    latest = resolve(frame(spark, "k INT, w INT, a STRING, b INT, c ARRAY<INT>", *rows), "k", "w")
    assertRows(latest, [(k, 5, "b", 0, [1]) for k in range(6)] + [(k, 5, "a", 1, [2]) for k in range(10, 16)])


def test_S15_maps_as_remaining_columns_are_decided_too(spark):
    rows = in_every_order([({"a": 1}, "x"), ({"a": 2}, "y"), (None, "z")])
    latest = resolve(frame(spark, "k INT, m MAP<STRING, INT>, v STRING", *rows), "k")
    assert latest.select("v").distinct().count() == 1


def test_S15_equal_maps_in_another_order_of_entries_are_equal(spark):
    rows = [("map('a', 1, 'b', 2)", "'x'"), ("map('b', 2, 'a', 1)", "'y'")]
    for order in (rows, rows[::-1]):
        parts = [spark.sql(f"SELECT 1 AS k, {m} AS m, {v} AS v") for m, v in order]
        assert resolve(parts[0].unionAll(parts[1]), "k").first().v == "y"


def test_S15_without_a_watermark_rows_are_decided_by_content(spark):
    assertRows(resolve(frame(spark, "k INT, v INT", (1, 1), (1, 3), (1, 2), (2, None)), "k"), [(1, 3), (2, None)])


def test_resolve_composite_primary_keys(spark):
    rows = frame(spark, "a INT, b STRING, w INT", (1, "x", 1), (1, "y", 2), (1, "x", 3), (2, "x", 1))
    assertRows(resolve(rows, ["a", "B"], "w"), [(1, "x", 3), (1, "y", 2), (2, "x", 1)])


def test_resolve_keeps_columns_and_is_lazy(spark):
    broken = spark.range(3).selectExpr("id", "CAST(raise_error('read') AS INT) AS w", "id AS `odd.name`")
    assert resolve(broken, "id", "w").columns == ["id", "w", "odd.name"]


def test_resolve_refuses_what_cannot_be_a_key(spark):
    rows = frame(spark, "k INT, f DOUBLE, m MAP<INT, INT>", (1, 1.0, None))
    with pytest.raises(InvalidDefinitionError, match=r"'f'.*cannot be part of the primary key"):
        resolve(rows, "f")
    with pytest.raises(InvalidDefinitionError, match=r"'K1'.*Did you mean 'k'"):
        resolve(rows, "K1")
    with pytest.raises(InvalidDefinitionError, match=r"'m'.*cannot be a watermark"):
        resolve(rows, "k", "m")


def test_S14_filter_after_resolve_does_not_bring_an_old_row_back(spark):
    rows = frame(spark, "k INT, w INT, v STRING", (1, 1, "old"), (1, 2, "new"))
    assert resolve(rows, "k", "w").filter("v = 'old'").count() == 0


# toDF() ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """Three batches, out of order, with a deletion and a row that was deleted before."""
    table = new_table(spark, tmp_path_factory.mktemp("reader"))
    return fill(
        table,
        spark,
        [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)],
        [(1, 20, "new", False), (2, 5, "late", False), (3, 15, "c", True), (5, 12, "e", True)],
        [(1, 15, "between", False), (4, 1, "d", None), (5, 14, "again", False)],
    )


def test_S13_toDF_resolves_batches_out_of_order(table):
    expected = [(1, 20, "new", False), (2, 10, "b", False), (4, 1, "d", None), (5, 14, "again", False)]
    assert live_rows(table) == expected


def test_S6_equal_watermarks_are_decided_by_the_last_of_many_commits(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, *[[(1, 10, v, False)] for v in "bac"])
    assert live_rows(table) == [(1, 10, "c", False)]


def test_S14_filters_on_other_columns_never_bring_old_versions_back(table):
    df = table.toDF()
    for condition in (
        "v IN ('a', 'late', 'c', 'between')",
        "ts < 10 AND v <> 'd'",
        "deleted",
        "NOT deleted AND ts = 10 AND id <> 2",
    ):
        assert df.filter(condition).collect() == [], condition
    assertRows(df.filter("v = 'b' OR ts = 20").select("id"), [1, 2])


def test_S14_filters_on_key_columns_give_the_same(table):
    df = table.toDF()
    assertRows(df.filter("id IN (1, 3)"), [(1, 20, "new", False)])
    assertRows(df.filter(F.col("id") > 1).select("id"), [2, 4, 5])


def test_S5_hidden_columns_do_not_show_however_they_are_asked_for(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT"), spark, [(1,), (2,)])
    table.delete(frame(spark, "id INT", 1)).execute()
    df = table.toDF()
    assert df.columns == ["id"]
    assertRows(df, [2])


def test_toDF_is_pinned_to_the_version_it_was_asked_at(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 1, "a", False)])
    before = table.toDF()
    fill(table, spark, [(1, 2, "b", False), (2, 1, "c", False)])
    assertRows(before, [(1, 1, "a", False)])
    assert table.toDF().count() == 2


def test_toDF_of_an_empty_table(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, m MAP<STRING, ARRAY<INT>>, s STRUCT<x: STRING>")
    assert table.toDF().collect() == []
    assert table.toDF().columns == ["id", "m", "s"]


def test_toDF_of_a_table_whose_rows_are_all_deleted(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 1, "a", True)])
    assert table.toDF().count() == 0


def test_nested_columns_come_back_as_they_were(spark, tmp_path):
    schema = (
        "id INT, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, ARRAY<INT>>, s STRUCT<x: INT, y: STRUCT<z: DATE>>, b BINARY"
    )
    rows = [
        (1, [(1,), None], {"k": [1, None]}, (1, (dt.date(2024, 1, 1),)), b"\x00"),
        (2, None, None, (None, None), None),
    ]
    for kind in ("parquet", "orc"):
        table = fill(new_table(spark, tmp_path, schema, fileFormat=kind), spark, rows, rows[:1])
        assertRows(table.toDF(), rows)


# Overlays -------------------------------------------------------------------------------------------------------------

WATERMARKS = {  # smaller and larger, where text or bytes would compare otherwise
    "INT": (9, 10),
    "BIGINT": (-10, -9),
    "DECIMAL(5,2)": (Decimal("9.5"), Decimal("10")),
    "DOUBLE": (float("inf"), float("nan")),
    "BOOLEAN": (False, True),
    "STRING": ("10", "9"),
    "DATE": (dt.date(1969, 12, 31), dt.date(1970, 1, 1)),
    "TIMESTAMP": (dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 1)),
    "BINARY": (b"\x7f", b"\x80"),
}


def either_way(table, monkeypatch):
    """The live rows, read in one scan as batches with unique keys are, and as those are where keys may be there twice."""
    rows = live_rows(table)
    with monkeypatch.context() as patched:
        patched.setattr(ReadPlan, "is_unique", False)
        assert repr(live_rows(table)) == repr(rows)  # NaN equals NaN
    return rows


def test_S13_pending_batches_are_listed_once(spark, tmp_path, monkeypatch):
    table = fill(new_table(spark, tmp_path), spark, [(i, 1, "a", False) for i in range(20)], [(1, 2, "b", False)])
    read, scans = managed.read_files, []
    monkeypatch.setattr(managed, "read_files", lambda *known: scans.append(known) or read(*known))
    rows = table.toDF()
    assert len(scans) == (2 if is_connect(spark) else 1)
    assert sorted(r.v for r in rows.collect()) == ["a"] * 19 + ["b"]


@pytest.mark.parametrize("kind", WATERMARKS)
def test_S13_few_changes_over_many_rows_are_resolved_by_every_type_of_watermark(spark, tmp_path, monkeypatch, kind):
    """Batch statistics may say that a later batch cannot lose; wrong statistics would let old rows win."""
    smaller, larger = WATERMARKS[kind]
    table = new_table(spark, tmp_path, f"id INT, w {kind}, v STRING", watermarkKey="w")
    fill(table, spark, [(k, larger, "base") for k in range(1, 11)], [(1, smaller, "late"), (11, smaller, "new")])
    assert [row[2] for row in either_way(table, monkeypatch) if row[0] in (1, 11)] == ["base", "new"]
    fill(table, spark, [(2, larger, "equal, and later"), (11, larger, "fresh")])
    rows = either_way(table, monkeypatch)
    assert {row[0]: row[2] for row in rows if row[2] != "base"} == {2: "equal, and later", 11: "fresh"}


def test_S3_composite_watermarks_with_nulls_over_many_rows(spark, tmp_path, monkeypatch):
    table = new_table(spark, tmp_path, "id INT, a INT, b DECIMAL(4,1), v STRING", watermarkKey=["a", "b"])
    base = [(k, 1 if k % 2 else None, Decimal("9.5"), "base") for k in range(1, 21)]
    changes = [
        (1, 1, Decimal("10"), "fresh"),
        (2, None, Decimal("9.4"), "late"),
        (3, 1, None, "late"),
        (4, 0, None, "fresh"),
    ]
    fill(table, spark, base, changes)
    rows = either_way(table, monkeypatch)
    assert {row[0]: row[3] for row in rows if row[3] != "base"} == {1: "fresh", 4: "fresh"}


@pytest.mark.parametrize("unique", [True, False])
def test_S14_filters_over_many_rows(spark, tmp_path, monkeypatch, unique):
    if not unique:
        monkeypatch.setattr(ReadPlan, "is_unique", False)
    table = new_table(spark, tmp_path)
    fill(
        table,
        spark,
        [(k, 10, "base", False) for k in range(20)],
        [(1, 20, "new", False), (2, 5, "late", False), (3, 20, "x", True)],
    )
    df = table.toDF()
    assert df.filter("id < 5 AND v = 'base'").count() == 3
    assert [row.id for row in df.filter("v = 'new'").collect()] == [1]
    assert df.filter("v = 'late' OR deleted").count() == 0
    assert df.filter("id = 3").count() == 0


def test_S14_a_filter_reaches_the_files_of_all_batches_and_no_row_that_is_compared(spark, tmp_path):
    table = fill(
        new_table(spark, tmp_path), spark, [(k, 10, "base", False) for k in range(20)], [(1, 20, "new", False)]
    )
    plan = executed_plan(table.toDF().filter("v = 'base' AND rand() >= 0"))
    scans = [line for line in plan.splitlines() if "FileScan" in line]
    assert ["EqualTo(v,base)" in line for line in scans] == [True, False]
    assert "hashpartitioning" not in plan


def test_S12_one_event_that_is_there_twice_over_many_rows_is_one_row(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(k, 10, "base", False) for k in range(20)])
    merge_into(table, spark, [(1, 20, "new", False), (1, 20, "new", False), (2, 20, "a", False), (2, 30, "b", False)])
    assert [row for row in live_rows(table) if row[2] != "base"] == [(1, 20, "new", False), (2, 30, "b", False)]
    assert table.toDF().count() == 20


def test_past_versions_are_read_as_they_were(spark, table):
    first = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    assert [row[2] for row in live_rows(first)] == ["a", "b", "c"]
    assert live_rows(TrinityTable.forPath(spark, table.path, versionAsOf=0)) == []


# Comments -------------------------------------------------------------------------------------------------------------


def comments_of(df):
    return {f.name: f.metadata.get("comment") for f in df.schema.fields}


@pytest.mark.parametrize("history", [False, True])
def test_toDF_has_the_comments_of_columns(spark, tmp_path, history):
    schema = "id INT NOT NULL COMMENT 'the key', v STRING COMMENT 'said', ts INT, `a.b` INT COMMENT 'dotted'"
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", history=history)
    said = {"id": "the key", "v": "said", "ts": None, "a.b": "dotted"}
    assert comments_of(table.toDF()) == said
    fill(table, spark, [(1, "a", 1, 1), (2, "b", 1, 1)], [(1, "c", 2, 1)])
    assert comments_of(table.toDF()) == said
    table.alter().renameColumn("v", "w").setColumnComment("w", "now").widenColumn("id", "BIGINT").execute()
    assert comments_of(table.toDF()) == {"id": "the key", "w": "now", "ts": None, "a.b": "dotted"}
    assert comments_of(TrinityTable.forPath(spark, table.path, versionAsOf=1).toDF()) == said
    assertRows(table.toDF(), [(1, "c", 2, 1), (2, "b", 1, 1)])
    assertRows(table.toDF().filter("id = 1").select("w"), ["c"])


def test_tables_made_of_toDF_have_the_comments_too(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT COMMENT 'the key', v STRING"), spark, [(1, "a")])
    made = TrinityTable.convert(spark, table.toDF(), str(tmp_path / "made"), primaryKey="id")
    assert comments_of(made.toDF()) == {"id": "the key", "v": None}


@pytest.mark.managed("Spark writes the plans of other sources otherwise")
def test_comments_keep_no_filter_from_the_files_and_add_nothing_to_the_plan(spark, tmp_path):
    plain = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(i, "a") for i in range(9)], [(1, "b")])
    told = fill(
        new_table(spark, tmp_path, "id INT COMMENT 'k', v STRING COMMENT 'v'"),
        spark,
        [(i, "a") for i in range(9)],
        [(1, "b")],
    )
    plans = [executed_plan(t.toDF().filter("id = 3")) for t in (plain, told)]
    assert all("EqualTo(id,3)" in plan for plan in plans)
    operators = [
        [word for word in ("Exchange", "Window", "Sort ", "FileScan", "Join") for _ in range(plan.count(word))]
        for plan in plans
    ]
    assert operators[0] == operators[1]
