"""Lookups read only what can hold the keys they seek, and find the same rows (S18, S31)."""

from __future__ import annotations

import re

import pytest
from helpers import executed_plan
from tables import directory_of, new_table, on_every_path

from trinitymerge.merge.compile import join
from trinitymerge.rows import key_ranges

KEYS = {
    "TINYINT": ["-128Y", "0Y", "127Y"],
    "INT": ["-2147483648", "-1", "7"],
    "BIGINT": ["-9223372036854775808", "3L", "9223372036854775807"],
    "STRING": ["''", "'a''b\\\\c'", "'ünï \U0001f600'"],
    "VARCHAR(5)": ["'a'", "'b'", "'c'"],
    "CHAR(3)": ["'a'", "'b'", "'c'"],
    "DATE": ["DATE'1900-01-01'", "DATE'1969-12-31'", "DATE'9999-12-31'"],
    "TIMESTAMP": [
        "TIMESTAMP'1900-01-01'",
        "TIMESTAMP'2024-10-27 01:30:00.000001'",
        "TIMESTAMP'9999-12-31 23:59:59.999999'",
    ],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'1900-01-01'", "TIMESTAMP_NTZ'2024-10-27 02:30:00'", "TIMESTAMP_NTZ'2030-01-01'"],
    "DECIMAL(20,3)": ["-12345678901234567.125BD", "0BD", "12345678901234567.125BD"],
    "BOOLEAN": ["false", "true"],
    "BINARY": ["X''", "X'00'", "X'FF'"],
}
QUICK = {"INT", "STRING", "TIMESTAMP"}


def by_range_and_value() -> list:
    """By value, a type differs from others in its literals; so three of them stand for all, but in the long tests."""
    by_range = [pytest.param(kind, 10**6, id=f"{kind}-by range") for kind in KEYS]
    return by_range + [
        pytest.param(kind, 0, id=f"{kind}-by value", marks=[] if kind in QUICK else [pytest.mark.long]) for kind in KEYS
    ]


@pytest.mark.parametrize(("kind", "many_rows"), by_range_and_value())
def test_S31_rows_at_the_ends_of_the_sought_range_are_found(spark, tmp_path, monkeypatch, kind, many_rows):
    monkeypatch.setattr(join, "MANY_ROWS", many_rows)
    monkeypatch.setattr(key_ranges, "_NARROW", key_ranges._NARROW if many_rows else 10**30)  # no range is narrow enough
    values, text = KEYS[kind], kind if "CHAR" not in kind else "STRING"
    table = new_table(spark, tmp_path, f"k {kind}, n INT", primaryKey="k")

    def rows(*some):
        return spark.sql(f"SELECT k, 1 AS n FROM VALUES {', '.join(f'(CAST({v} AS {text}))' for v in some)} AS t(k)")

    table.upsert(rows(*values)).execute()
    for some in ([values[0]], [values[-1]], values):  # a single key is a range of its own
        merge = table.merge(rows(*some)).whenMatched().updateExpr({"n": "target.n + source.n"})
        if merge.build().strategy == "keyed lookup":
            assert merge.execute().rowsUpdated == len(some)
    if kind != "CHAR(3)":
        assert sorted(row.n for row in table.toDF().collect()) == [2] * (len(values) - 2) + [3, 3]


def pushed_filters(spark, plan):
    """The filters that reach the files of a merge's preview."""
    spark.conf.set("spark.sql.maxMetadataStringLength", "10000")
    try:
        shown = executed_plan(plan.preview())
    finally:
        spark.conf.unset("spark.sql.maxMetadataStringLength")
    return {f for listed in re.findall(r"PushedFilters: \[(.*?)\], ReadSchema", shown) for f in listed.split(", ")}


def test_S31_lookup_filters_files_by_leading_key_columns_whose_range_is_narrow(spark, tmp_path):
    table = new_table(spark, tmp_path, "a INT, b STRING, d DATE, n INT", primaryKey=["a", "b", "d"])
    table.upsert(spark.range(100).selectExpr("int(id) a", "'b' b", "DATE'2024-01-01' + int(id) d", "1 n")).execute()

    def filters(*rows):
        source = spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(a, b, d)")
        return pushed_filters(spark, table.merge(source).whenMatched().updateExpr({"n": "target.n + 1"}).build())

    narrow = filters("(3, 'b', DATE'2024-01-05')", "(9, 'b', DATE'2024-01-02')")
    assert {"GreaterThanOrEqual(a,3)", "LessThanOrEqual(a,9)"} <= narrow
    assert {"GreaterThanOrEqual(b,b)", "LessThanOrEqual(b,b)"} <= narrow
    assert {"GreaterThanOrEqual(d,2024-01-02)", "LessThanOrEqual(d,2024-01-05)"} <= narrow
    wide = filters("(3, 'b', DATE'2024-01-05')", "(90, 'c', DATE'2024-01-02')")
    assert not any("OrEqual" in f for f in wide)
    led = filters("(3, 'b', DATE'2024-01-05')", "(9, 'c', DATE'2024-01-02')")
    assert {f for f in led if "OrEqual" in f} == {"GreaterThanOrEqual(a,3)", "LessThanOrEqual(a,9)"}


def test_S31_few_keys_far_apart_are_handed_to_the_files_by_value(spark, tmp_path, monkeypatch):
    table = new_table(spark, tmp_path, "a STRING, b DATE, n INT", primaryKey=["a", "b"])
    table.upsert(spark.range(100).selectExpr("'k' || id a", "DATE'2024-01-01' + int(id) b", "1 n")).execute()
    source = spark.range(0, 100, 4).selectExpr("'k' || id a", "DATE'2024-01-01' + int(id) b")

    def plan():
        return table.merge(source).whenMatched().updateExpr({"n": "target.n + 1"}).build()

    assert not any("In(" in f for f in pushed_filters(spark, plan())), "the table is small: nothing is gained"
    monkeypatch.setattr(join, "MANY_ROWS", 100)
    pushed = pushed_filters(spark, plan())
    assert {"Or(In(a", "Or(In(b"} <= pushed, "in lists that are short enough to be handed on"
    assert plan().execute().rowsUpdated == 25
    table.alter().clusterBy("n").execute()
    table.compact(full=True)
    assert not any("In(" in f for f in pushed_filters(spark, plan())), "keys are anywhere in files of a layout (S7c)"
    assert plan().execute().rowsUpdated == 25
    source = source.limit(8)
    assert any("In(" in f for f in pushed_filters(spark, plan())), "few keys are in few segments"
    assert plan().execute().rowsUpdated == 8


@pytest.mark.classic("opens a file in Spark's JVM")
def test_S31_pages_are_small_so_that_few_keys_read_few_rows(spark, tmp_path):
    table = new_table(spark, tmp_path, "id BIGINT, v STRING")
    table.upsert(spark.range(60_000).selectExpr("id", "string(id) AS v").coalesce(1)).execute()
    (file,) = directory_of(table).rglob("part-*.parquet")
    parquet, hadoop = spark._jvm.org.apache.parquet.hadoop, spark._jvm.org.apache.hadoop
    path = hadoop.fs.Path(str(file))
    inside = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(path, hadoop.conf.Configuration()))
    try:
        column = inside.getFooter().getBlocks().get(0).getColumns().get(0)
        assert inside.readOffsetIndex(column).getPageCount() == 12
    finally:
        inside.close()


def test_S18_source_without_any_key_looks_nothing_up(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, n INT", primaryKey="k")
    table.upsert(spark.sql("SELECT 1 AS k, 1 AS n")).execute()
    source = spark.sql("SELECT CAST(NULL AS INT) AS k, 2 AS n")
    for run in on_every_path(table, lambda t: t.merge(source).whenMatched().updateExpr({"n": "target.n + 1"}), spark):
        assert run.rows == [(1, 1)]


@pytest.mark.slow
def test_S31_key_of_another_type_than_the_column_is_found(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, n INT", primaryKey="k")
    table.upsert(spark.sql("SELECT * FROM VALUES (2, 1), (10, 1) AS t(k, n)")).execute()
    for text in ("'10'", "10L", "CAST(10 AS DECIMAL(10, 0))"):
        source = spark.sql(f"SELECT {text} AS key UNION ALL SELECT {text.replace('10', '2', 1)}")

        def merge(t, source=source):
            return t.merge(source.alias("B"), "target.k = B.key").whenMatched().updateExpr({"n": "target.n + 1"})

        for run in on_every_path(table, merge, spark):
            assert run.rows == [(10, 2), (2, 2)]
