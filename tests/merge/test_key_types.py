"""S17a: keys of another type are equal in the type of the key, or refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import reduce

import pytest
from helpers import assertRows
from pyspark.sql import DataFrame
from pyspark.sql.types import _parse_datatype_string
from tables import fill, frame, live_rows, new_table, on_every_path

from trinitymerge import Field, InvalidMergeError, SchemaMismatchError, TrinityTable
from trinitymerge.merge.compile.strategies import FULL_SCAN, KEY_LOOKUP
from trinitymerge.spark.casts import CastPolicy, cast_failure, cast_to_column, key_policy
from trinitymerge.spark.sql_text import Sql
from trinitymerge.testing.model.values import key_value

FIRST, DAY, NOON = dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 12)

PAIRS = [
    ("STRING", "INT", {1: "1", -7: "-7"}, []),
    ("STRING", "DOUBLE", {1.5: "1.5"}, []),
    ("STRING", "DECIMAL(4,2)", {Decimal("1.50"): "1.50"}, []),
    ("STRING", "BOOLEAN", {True: "true"}, []),
    ("STRING", "DATE", {FIRST: "2024-01-01"}, []),
    ("STRING", "TIMESTAMP", {NOON: "2024-01-01 12:00:00"}, []),
    ("CHAR(4)", "INT", {1: "1   ", 1234: "1234"}, [12345]),
    ("CHAR(4)", "STRING", {"ab": "ab  ", "ab     ": "ab  "}, ["abcde"]),
    ("VARCHAR(4)", "INT", {1: "1"}, [12345]),
    ("VARCHAR(4)", "STRING", {"ab": "ab", "ab ": "ab "}, ["abcde", "ab   "]),
    ("TINYINT", "BIGINT", {127: 127, -128: -128}, [128, -129]),
    ("INT", "STRING", {"1": 1, "-7": -7}, ["01", " 1", "1.0", "x", "", "99999999999"]),
    ("INT", "DOUBLE", {1.0: 1, -7.0: -7}, [1.5, 1e12, float("nan"), float("inf")]),
    ("INT", "DECIMAL(12,2)", {Decimal("1.00"): 1}, [Decimal("1.50"), Decimal("9999999999.00")]),
    ("DECIMAL(4,1)", "INT", {1: Decimal("1.0")}, [1000]),
    ("DECIMAL(4,1)", "DECIMAL(5,2)", {Decimal("1.50"): Decimal("1.5")}, [Decimal("1.55"), Decimal("999.96")]),
    ("DECIMAL(4,1)", "DOUBLE", {1.5: Decimal("1.5"), 0.1: Decimal("0.1")}, [1.55, 1e9]),
    ("DECIMAL(4,1)", "STRING", {"1.5": Decimal("1.5")}, ["1.55", "x"]),
    ("BOOLEAN", "STRING", {"true": True}, ["t", "1", "no", "x"]),
    ("DATE", "STRING", {"2024-01-01": FIRST}, ["2024-1-1", "2024", "2024-01-01 12:00:00", "x"]),
    ("DATE", "TIMESTAMP", {DAY: FIRST}, [NOON]),
    ("DATE", "TIMESTAMP_NTZ", {DAY: FIRST}, [NOON]),
    ("TIMESTAMP", "DATE", {FIRST: DAY}, []),
    ("TIMESTAMP", "STRING", {"2024-01-01 12:00:00": NOON}, ["2024-01-01", "2024-01-01 12:00:00.0", "x"]),
    ("TIMESTAMP_NTZ", "TIMESTAMP", {NOON: NOON}, []),
    ("BINARY", "STRING", {"ab": b"ab"}, []),
]
"""The type of the key and of the source, the source's values with the keys that they are, and its other values."""


def field(kind):
    return Field.from_json(_parse_datatype_string(f"c {kind}").jsonValue()["fields"][0])


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_S17a_values_are_keys_if_a_cast_and_back_does_not_change_them(spark, ansi):
    before, shown, expected = spark.conf.get("spark.sql.ansi.enabled"), [], []
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for n, (key, kind, same, other) in enumerate(PAIRS):
            values = frame(spark, f"c {kind}", *same, *other)
            given = values.schema["c"].dataType
            facts = {"way": key_policy(given, field(key)), "field": field(key), "is_key": True, "kind": given}
            failed = cast_failure(Sql("c"), **facts) or "NULL"
            held = f"CAST(({cast_to_column(Sql('c'), **facts)}) AS STRING)"
            shown.append(values.selectExpr(f"{n} AS n", f"{held} AS held", f"({failed}) IS NULL AS fits"))
            expected += [(n, text(key_value(field(key), value)), True) for value in same]
            expected += [(n, None, False) for _ in other]
            assert [key_value(field(key), value) for value in same] == [*same.values()]
            for value in other:
                with pytest.raises(SchemaMismatchError):
                    key_value(field(key), value)
        assertRows(reduce(DataFrame.unionAll, shown), expected)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def text(value):
    if isinstance(value, bool):
        return str(value).lower()
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def test_S17a_one_local_time_of_two_instants_is_the_key_of_one(spark):
    instants = spark.sql("SELECT timestamp_seconds(s) AS c FROM VALUES (1729989000), (1729992600) AS t(s)")
    before, kind = spark.conf.get("spark.sql.session.timeZone"), instants.schema["c"].dataType
    assert key_policy(kind, field("STRING")) is CastPolicy.EXACT
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        key = cast_to_column(Sql("c"), CastPolicy.EXACT, field("STRING"), is_key=True, kind=kind)
        found = {row["k"] for row in instants.selectExpr(f"{key} AS k").collect()}
        assert found == {"2024-10-27 02:30:00", None}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("spark")  # to parse types
def test_S17a_equal_types_and_exact_widening_compare_as_before():
    for key, kind in [
        ("INT", "INT"),
        ("BIGINT", "INT"),
        ("DECIMAL(12,2)", "INT"),
        ("TIMESTAMP", "DATE"),
        ("STRING", "INT"),
    ]:
        source = _parse_datatype_string(f"c {kind}").fields[0].dataType
        assert key_policy(source, field(key)) in (CastPolicy.AS_IS, CastPolicy.WIDENED)


# Merges -----------------------------------------------------------------------------------------------------------------

OLD, NEW = "old", "new"
CALLS = {
    "upsert": (lambda table, rows: table.upsert(rows), [("01", OLD), ("1", NEW)]),
    "update": (lambda table, rows: table.update(rows), [("01", OLD)]),
    "delete": (lambda table, rows: table.delete(rows), [("01", OLD)]),
    "insert": (lambda table, rows: table.insert(rows, deduplicate=True), [("01", OLD), ("1", NEW)]),
    "merge": (
        lambda table, rows: table.merge(rows).whenMatched("target.v = 'old'").delete().whenNotMatched().insertAll(),
        [("01", OLD), ("1", NEW)],
    ),
    "target-only": (
        lambda table, rows: (
            table.merge(rows).whenMatched().delete().whenNotMatchedBySource().updateExpr({"v": "'left'"})
        ),
        [("01", "left")],
    ),
}


@pytest.fixture(scope="module")
def texts(spark, tmp_path_factory):
    return fill(new_table(spark, tmp_path_factory.mktemp("texts"), "id STRING, v STRING"), spark, [("01", OLD)])


@pytest.mark.parametrize("call", CALLS)
def test_S17a_text_key_01_is_not_the_number_1(spark, texts, call):
    merge, expected = CALLS[call]
    number = spark.sql("SELECT 1 AS id, 'new' AS v")
    for run in on_every_path(texts, lambda table: merge(table, number), spark):
        assert run.rows == expected, run.path


@pytest.fixture(scope="module")
def numbers(spark, tmp_path_factory):
    return fill(new_table(spark, tmp_path_factory.mktemp("numbers"), "id INT, v STRING"), spark, [(1, OLD), (2, OLD)])


@pytest.mark.parametrize("call", ["upsert", "update", "target-only"])
def test_S17a_source_row_without_a_key_of_the_table_is_refused(spark, numbers, call):
    merge, _ = CALLS[call]
    rows = spark.sql("SELECT 1.5D AS id, 'new' AS v UNION ALL SELECT 2D, 'new'")
    for strategy in {KEY_LOOKUP, FULL_SCAN} - ({KEY_LOOKUP} if call == "target-only" else set()):
        with pytest.raises(SchemaMismatchError, match=r"'id' is int.*'1\.5' \(double\).*cast to int and back") as error:
            merge(numbers, rows)._with_strategy(strategy).execute()
        assert (error.value.column, error.value.values) == ("id", ("1.5",))
    assert live_rows(numbers) == [(1, OLD), (2, OLD)]


def test_S17a_such_a_row_goes_into_the_quarantine(spark, tmp_path, numbers):
    quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")
    rows = frame(spark, "id STRING, v STRING", ("1", NEW), ("01", NEW), ("x", NEW))
    for run in on_every_path(numbers, lambda table: table.update(rows).quarantine(quarantine), spark):
        assert run.rows == [(1, NEW), (2, OLD)]
        assert run.result.rowsQuarantined == 2
    found = {json.loads(row["row"])["id"] for row in quarantine.toDF().where("reason = 'type:id'").collect()}
    assert found == {"01", "x"}


TEXTS = {
    "INT": ("1", "01", "x"),
    "DECIMAL(4,1)": ("1.5", "1.50", "x"),
    "DATE": ("2024-01-01", "2024-1-1", "2024-13-01"),
    "BOOLEAN": ("true", "t", "x"),
}
"""Of a type of key: text that is the key, other text that Spark casts to it, and text that is no such value."""


@pytest.fixture
def ansi(spark):
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    yield
    spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.usefixtures("ansi")
@pytest.mark.parametrize("kind", TEXTS)
def test_S17a_S47_text_that_a_condition_cannot_cast_goes_into_the_quarantine(spark, tmp_path, kind):
    key, same, wrong = TEXTS[kind]
    table = new_table(spark, tmp_path, f"id {kind}, v STRING")
    table.insert(frame(spark, "id STRING, v STRING", (key, OLD)).selectExpr(f"CAST(id AS {kind}) AS id", "v")).execute()
    quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")
    rows = frame(spark, "key STRING, v STRING", (same, NEW), (wrong, NEW), (None, NEW)).alias("B")
    merge = table.alias("A").merge(rows, "A.id = B.key AND B.v = 'new'").whenMatched().updateExpr({"v": "B.v"})
    merge = merge.whenNotMatchedBySource().delete()
    with pytest.raises(InvalidMergeError, match=r"malformed|cannot be (cast|parsed)"):
        merge.execute()
    result = merge.quarantine(quarantine).execute()
    assert (result.quarantined, result.rowsSource, [row[1] for row in live_rows(table)]) == ({"type:id": 1}, 3, [NEW])
    assert [json.loads(row["row"])["key"] for row in quarantine.toDF().collect()] == [wrong]


def test_S17a_types_that_are_never_stored_are_refused_when_the_merge_is_built(spark, numbers):
    with pytest.raises(SchemaMismatchError, match=r"'id' is int in the table and boolean in the source.*Cast"):
        numbers.delete(spark.sql("SELECT true AS id")).build()


def test_S17a_explain_says_when_types_differ(spark, texts):
    number = spark.sql("SELECT 1 AS id, 'new' AS v").alias("B")
    assert "Keys: 'id' is string in the table and int in the source: compared as string" in str(
        texts.delete(number).build().explain()
    )
    written = texts.alias("A").merge(number, "A.id = B.id").whenMatched().delete().build()
    assert "Condition: 'id' is string in the table and int in the source: Spark compares" in str(written.explain())
    assert "in the source" not in str(texts.delete(number.selectExpr("CAST(id AS STRING) AS id")).build().explain())
