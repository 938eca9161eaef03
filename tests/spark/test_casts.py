"""Store assignment (S29, C15): what may be stored in a column, how, and what is refused; the same on every Spark.

Spark 3.5 and 4 differ in the default of ``spark.sql.ansi.enabled``; here every case runs with both settings.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql.types import _parse_datatype_string
from tables import copy_of, fill, frame, live_rows, new_table

from trinitymerge import Field, SchemaMismatchError
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP
from trinitymerge.spark.casts import CastPolicy, cast_failure, cast_policy, cast_to_column

AS_IS, WIDENED, CHECKED, _, REFUSED = CastPolicy


@pytest.fixture(params=["true", "false"], ids=["ansi", "not-ansi"])
def ansi(spark, request):
    """Both settings of ANSI mode."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)


def field(kind):
    """A column of a type given as DDL."""
    schema = _parse_datatype_string(f"c {kind}")
    return Field.from_json(schema.jsonValue()["fields"][0])


def value_type(kind):
    """The type of an expression, which is never char or varchar."""
    return _parse_datatype_string(f"c {kind}").fields[0].dataType


# The decision table ---------------------------------------------------------------------------------------------------

NUMBERS = ["TINYINT", "SMALLINT", "INT", "BIGINT"]
DECISIONS = [
    *[(a, b, WIDENED) for i, a in enumerate(NUMBERS) for b in NUMBERS[i + 1 :]],
    *[(a, b, CHECKED) for i, a in enumerate(NUMBERS) for b in NUMBERS[:i]],
    *[(a, a, AS_IS) for a in [*NUMBERS, "DOUBLE", "STRING", "DATE", "DECIMAL(9,2)", "ARRAY<INT>", "MAP<INT, STRING>"]],
    ("INT", "DECIMAL(10,0)", WIDENED),
    ("INT", "DECIMAL(12,2)", WIDENED),
    ("INT", "DECIMAL(11,2)", CHECKED),
    ("DECIMAL(5,2)", "DECIMAL(7,3)", WIDENED),
    ("DECIMAL(5,2)", "DECIMAL(6,4)", CHECKED),
    ("DECIMAL(5,2)", "DECIMAL(9,1)", CHECKED),
    ("DECIMAL(5,0)", "INT", CHECKED),
    ("INT", "DOUBLE", WIDENED),
    ("FLOAT", "DOUBLE", WIDENED),
    ("SMALLINT", "FLOAT", WIDENED),
    ("BIGINT", "DOUBLE", CHECKED),
    ("DOUBLE", "FLOAT", CHECKED),
    ("DOUBLE", "INT", CHECKED),
    ("DOUBLE", "DECIMAL(9,2)", CHECKED),
    ("DATE", "TIMESTAMP", WIDENED),
    ("DATE", "TIMESTAMP_NTZ", WIDENED),
    ("TIMESTAMP", "DATE", CHECKED),
    ("TIMESTAMP", "TIMESTAMP_NTZ", CHECKED),
    *[
        ("STRING", kind, CHECKED)
        for kind in ["INT", "DECIMAL(5,2)", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "BINARY"]
    ],
    *[(kind, "STRING", WIDENED) for kind in ["INT", "DECIMAL(5,2)", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]],
    *[(kind, text, CHECKED) for kind in ["STRING", "INT", "DATE"] for text in ["CHAR(3)", "VARCHAR(3)"]],
    *[("VOID", kind, WIDENED) for kind in ["INT", "STRING", "CHAR(3)", "ARRAY<INT>", "STRUCT<x: INT>"]],
    *[("BOOLEAN", kind, REFUSED) for kind in ["INT", "DECIMAL(3,0)", "DATE"]],
    *[(kind, "BOOLEAN", REFUSED) for kind in ["INT", "DATE"]],
    *[("INT", kind, REFUSED) for kind in ["DATE", "TIMESTAMP", "BINARY", "ARRAY<INT>", "STRUCT<x: INT>"]],
    *[(kind, "BIGINT", REFUSED) for kind in ["DATE", "TIMESTAMP", "BINARY"]],
    *[(kind, "STRING", REFUSED) for kind in ["ARRAY<INT>", "MAP<INT, INT>", "STRUCT<x: INT>"]],
    ("ARRAY<INT>", "ARRAY<BIGINT>", WIDENED),
    ("ARRAY<BIGINT>", "ARRAY<INT>", REFUSED),
    ("ARRAY<STRING>", "ARRAY<INT>", REFUSED),
    ("MAP<INT, DATE>", "MAP<BIGINT, TIMESTAMP>", WIDENED),
    ("MAP<BIGINT, INT>", "MAP<INT, INT>", REFUSED),
    ("MAP<INT, INT>", "MAP<STRING, INT>", REFUSED),
    ("MAP<VOID, VOID>", "MAP<STRING, INT>", WIDENED),
    ("STRUCT<x: INT, y: STRING>", "STRUCT<X: BIGINT, y: STRING>", WIDENED),
    ("STRUCT<y: STRING, x: INT>", "STRUCT<x: INT, y: STRING>", REFUSED),
    ("STRUCT<x: INT>", "STRUCT<x: INT, y: INT>", REFUSED),
    ("INTERVAL DAY", "INTERVAL DAY TO SECOND", CHECKED),
    ("INTERVAL YEAR", "INTERVAL DAY", REFUSED),
]


@pytest.mark.parametrize(("value", "column", "way"), DECISIONS)
def test_S29_decision_table(spark, value, column, way):
    assert cast_policy(value_type(value), field(column)) is way


# Values ---------------------------------------------------------------------------------------------------------------

FITTING = [
    ("127", "TINYINT", 127),
    ("-128L", "TINYINT", -128),
    ("2147483647L", "INT", 2147483647),
    ("1.9D", "INT", 1),
    ("-1.9BD", "BIGINT", -1),
    ("1.55BD", "DECIMAL(5,1)", Decimal("1.6")),
    ("99999.94BD", "DECIMAL(6,1)", Decimal("99999.9")),
    ("12345", "DECIMAL(6,1)", Decimal("12345.0")),
    ("1.25D", "DECIMAL(5,1)", Decimal("1.3")),
    ("16777217", "FLOAT", 16777216.0),
    ("CAST('NaN' AS DOUBLE)", "FLOAT", float("nan")),
    ("' 12 '", "INT", 12),
    ("'-7'", "SMALLINT", -7),
    ("'1.5'", "DOUBLE", 1.5),
    ("'1.55'", "DECIMAL(4,1)", Decimal("1.6")),
    ("'yes'", "BOOLEAN", True),
    ("'F'", "BOOLEAN", False),
    ("'2024-02-29'", "DATE", dt.date(2024, 2, 29)),
    ("'2024-02-29 03:04:05.5'", "TIMESTAMP", dt.datetime(2024, 2, 29, 3, 4, 5, 500000)),
    ("'2024-02-29 03:04:05'", "TIMESTAMP_NTZ", dt.datetime(2024, 2, 29, 3, 4, 5)),
    ("TIMESTAMP'2024-02-29 03:04:05'", "DATE", dt.date(2024, 2, 29)),
    ("TIMESTAMP'2024-02-29 03:04:05'", "TIMESTAMP_NTZ", dt.datetime(2024, 2, 29, 3, 4, 5)),
    ("DATE'2024-02-29'", "TIMESTAMP", dt.datetime(2024, 2, 29)),
    ("'ab'", "BINARY", bytearray(b"ab")),
    ("5", "STRING", "5"),
    ("1.50BD", "STRING", "1.50"),
    ("true", "STRING", "true"),
    ("DATE'2024-02-29'", "STRING", "2024-02-29"),
    ("'ab'", "CHAR(3)", "ab "),
    ("''", "CHAR(3)", "   "),
    ("'abc   '", "CHAR(3)", "abc"),
    ("12", "CHAR(3)", "12 "),
    ("'ab'", "VARCHAR(3)", "ab"),
    ("'ab '", "VARCHAR(3)", "ab "),
    ("'abc   '", "VARCHAR(3)", "abc"),
    ("'ä😀'", "VARCHAR(2)", "ä😀"),
    ("array(1, null)", "ARRAY<BIGINT>", [1, None]),
    ("map(1, DATE'2024-02-29')", "MAP<BIGINT, TIMESTAMP>", {1: dt.datetime(2024, 2, 29)}),
    ("named_struct('x', 1, 'y', 'a')", "STRUCT<X: BIGINT, y: STRING>", (1, "a")),
    *[("NULL", kind, None) for kind in ["INT", "CHAR(3)", "DATE", "ARRAY<INT>", "STRUCT<x: INT>"]],
    *[("CAST(NULL AS STRING)", kind, None) for kind in ["INT", "CHAR(3)", "VARCHAR(3)", "DATE", "BOOLEAN"]],
]

MISFITS = [
    ("128", "TINYINT"),
    ("-32769", "SMALLINT"),
    ("2147483648L", "INT"),
    ("9223372036854775807L + 0.5D", "INT"),
    ("1e19D", "BIGINT"),
    ("CAST('NaN' AS DOUBLE)", "INT"),
    ("CAST('Infinity' AS DOUBLE)", "DECIMAL(9,2)"),
    ("99999.95BD", "DECIMAL(6,1)"),
    ("100000", "DECIMAL(6,1)"),
    ("'1.5'", "INT"),
    ("'12x'", "INT"),
    ("''", "INT"),
    ("'300'", "TINYINT"),
    ("'100000'", "DECIMAL(6,1)"),
    ("'maybe'", "BOOLEAN"),
    ("'2024-02-30'", "DATE"),
    ("'29.02.2024'", "DATE"),
    ("'2024-02-29 25:00:00'", "TIMESTAMP"),
    ("'abcd'", "CHAR(3)"),
    ("'abc d'", "CHAR(3)"),
    ("1234", "CHAR(3)"),
    ("'abcd'", "VARCHAR(3)"),
    ("'   x'", "VARCHAR(3)"),
]


def evaluated(spark, cases):
    """For each (expression, column type): what is stored, and what is said of a misfit; one job for all."""
    raw = spark.range(1).selectExpr(*[f"{case[0]} AS r{i}" for i, case in enumerate(cases)])
    outputs = []
    for i, case in enumerate(cases):
        column = field(case[1])
        way = cast_policy(raw.schema[f"r{i}"].dataType, column)
        assert way is not REFUSED, case
        outputs += [
            f"{cast_to_column(f'r{i}', way, column)} AS s{i}",
            f"{cast_failure(f'r{i}', way, column) or 'NULL'} AS m{i}",
        ]
    row = raw.selectExpr(*outputs).first()
    return [(row[f"s{i}"], row[f"m{i}"]) for i in range(len(cases))]


def test_S29_values_that_fit_are_converted_as_spark_does(spark, ansi):
    found = evaluated(spark, FITTING)
    assert [case for case, got in zip(FITTING, found, strict=True) if not _same(got, (case[2], None))] == []


def _same(got, expected):
    return got == expected or repr(got) == repr(expected)  # NaN equals itself by its text only


def test_S29_values_that_do_not_fit_are_found_and_named_never_silently_null(spark, ansi):
    found = evaluated(spark, MISFITS)
    unnoticed = [case for case, (value, said) in zip(MISFITS, found, strict=True) if value is not None or said is None]
    assert unnoticed == []
    assert found[0][1] == "c\t128"


# In merges ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """Two rows; columns that narrow, pad and parse."""
    schema = "id INT, n SMALLINT, code CHAR(3), day DATE"
    return fill(
        new_table(spark, tmp_path_factory.mktemp("store"), schema), spark, [(1, 1, "a", None), (2, 2, "b", None)]
    )


def test_S29_merge_stores_what_fits_on_every_path(spark, table, ansi):
    source = frame(
        spark, "id BIGINT, n STRING, code STRING, day STRING", (1, "10", "xy", "2024-01-02"), (3, "7", "z", None)
    )
    for path in (APPEND_ONLY, KEY_LOOKUP, FULL_SCAN):
        copy = copy_of(table, spark)
        copy.upsert(source)._with_strategy(path).execute()
        assert live_rows(copy) == [
            (1, 10, "xy ", dt.date(2024, 1, 2)),
            (2, 2, "b  ", None),
            (3, 7, "z  ", None),
        ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "40000", "x", None), r"Column 'n' is smallint, and values of 1 row .* '40000'"),
        ((1, "1", "toolong", None), r"Column 'code' is char\(3\), .* 'toolong'"),
        ((1, "1", "x", "yesterday"), r"Column 'day' is date, .* 'yesterday'"),
        ((2**40, "1", "x", None), r"Column 'id' is int, .* '1099511627776'"),
    ],
)
def test_S29_merge_with_a_value_that_does_not_fit_commits_nothing(spark, table, ansi, row, message):
    source = frame(spark, "id BIGINT, n STRING, code STRING, day STRING", row, (2, "5", "ok", None))
    version = table.version
    with pytest.raises(SchemaMismatchError, match=message):
        table.upsert(source).execute()
    assert table.version == version


def test_S29_only_rows_that_are_written_must_fit(spark, table, ansi):
    copy = copy_of(table, spark)
    source = frame(spark, "id INT, n INT", (1, 40000), (2, 7))
    merge = copy.merge(source).whenMatched("source.n < 10").updateExpr({"n": "source.n"})
    merge.whenMatched().delete().execute()
    assert [row[:2] for row in live_rows(copy)] == [(2, 7)]


def test_S29_only_the_clause_that_applies_is_evaluated(spark, table, ansi):
    copy = copy_of(table, spark)
    source = frame(spark, "id INT, text STRING", (1, "5"), (2, "no number"))
    copy.merge(source).whenMatched("source.id = 1").updateExpr({"n": "text"}).whenMatched().delete().execute()
    assert [row[:2] for row in live_rows(copy)] == [(1, 5)]


def test_S29_char_keys_are_padded_and_match_themselves(spark, tmp_path, ansi):
    table = new_table(spark, tmp_path, "id CHAR(5), v VARCHAR(5)")
    for v in ("1", "2"):
        table.upsert(frame(spark, "id STRING, v STRING", ("ab", v), ("abcde", v))).execute()
    assert live_rows(table) == [("ab   ", "2"), ("abcde", "2")]
    source = frame(spark, "id STRING, v STRING", ("ab", "3"))
    assert table.update(source).execute().rowsUpdated == 1
    assert table.delete(source).execute().rowsDeleted in (1, None)
    assert live_rows(table) == [("abcde", "2")]


def test_S29_python_decimals_and_floats_as_values(spark, table, ansi):
    copy = copy_of(table, spark)
    copy.updateWhere("id = 1", {"n": Decimal("7.00"), "day": dt.date(2024, 3, 4)}).execute()
    assert live_rows(copy)[0] == (1, 7, "a  ", dt.date(2024, 3, 4))
