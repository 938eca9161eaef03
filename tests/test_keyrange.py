"""Lookups read only what can hold the keys they seek, and find the same rows (S18, S31)."""

from __future__ import annotations

import re

import pytest
from tables import new_table, on_every_path

from trinitymerge.merge.paths import Path

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


@pytest.mark.parametrize("kind", KEYS)
def test_S31_rows_at_both_ends_of_the_sought_range_are_found(spark, tmp_path, kind):
    values = KEYS[kind]
    table = new_table(spark, tmp_path, f"k {kind}, ts INT, n INT", primaryKey="k", watermarkKey="ts")

    def rows(ts, n):
        listed = ", ".join(
            f"(CAST({v} AS {kind.replace('VARCHAR(5)', 'STRING').replace('CHAR(3)', 'STRING')}))" for v in values
        )
        return spark.sql(f"SELECT k, {ts} AS ts, {n} AS n FROM VALUES {listed} AS t(k)")

    table.upsert(rows(1, 10)).execute()
    runs = on_every_path(
        table, lambda t: t.merge(rows(2, 5)).whenMatched().updateExpr({"n": "target.n + source.n"}), spark
    )
    assert {run.path for run in runs} >= {Path.FULL}
    for run in runs:
        assert run.result.rowsUpdated == len(values)
        assert {row[2] for row in run.rows} == {15}


def test_S31_lookup_filters_files_by_the_range_of_each_key_column(spark, tmp_path):
    table = new_table(spark, tmp_path, "a INT, b STRING, d DATE, n INT", primaryKey=["a", "b", "d"])
    source = spark.sql(
        "SELECT * FROM VALUES (3, 'x', DATE'2024-01-05', 1), (9, 'm', DATE'2024-01-02', 1) AS t(a, b, d, n)"
    )
    table.upsert(source).execute()
    plan = table.merge(source).whenMatched().updateExpr({"n": "target.n + 1"}).build()
    spark.conf.set("spark.sql.maxMetadataStringLength", "10000")
    try:
        shown = plan.preview()._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.maxMetadataStringLength")
    pushed = {
        filter
        for filters in re.findall(r"PushedFilters: \[(.*?)\], ReadSchema", shown)
        for filter in filters.split(", ")
    }
    assert {"GreaterThanOrEqual(a,3)", "LessThanOrEqual(a,9)"} <= pushed
    assert {"GreaterThanOrEqual(b,m)", "LessThanOrEqual(b,x)"} <= pushed
    assert {"GreaterThanOrEqual(d,2024-01-02)", "LessThanOrEqual(d,2024-01-05)"} <= pushed


def test_S18_source_without_any_key_looks_nothing_up(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, n INT", primaryKey="k")
    table.upsert(spark.sql("SELECT 1 AS k, 1 AS n")).execute()
    source = spark.sql("SELECT CAST(NULL AS INT) AS k, 2 AS n")
    for run in on_every_path(table, lambda t: t.merge(source).whenMatched().updateExpr({"n": "target.n + 1"}), spark):
        assert run.rows == [(1, 1)]


def test_S31_key_of_another_type_than_the_column_is_found(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, n INT", primaryKey="k")
    table.upsert(spark.sql("SELECT * FROM VALUES (2, 1), (10, 1) AS t(k, n)")).execute()
    for text in ("'10'", "10L", "CAST(10 AS DECIMAL(10, 0))"):
        source = spark.sql(f"SELECT {text} AS key UNION ALL SELECT {text.replace('10', '2', 1)}")

        def merge(t, source=source):
            return t.merge(source.alias("B"), "target.k = B.key").whenMatched().updateExpr({"n": "target.n + 1"})

        for run in on_every_path(table, merge, spark):
            assert run.rows == [(10, 2), (2, 2)]
