"""Columns that files cannot keep (S7a), source columns without a place (S22a), and expressions that change their mind (S32)."""

from __future__ import annotations

import logging

import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegerType, StructType
from tables import EVENTS, fill, frame, live_rows, new_table, on_every_path

from trinitymerge import InvalidDefinitionError, InvalidMergeError, TrinityTable
from trinitymerge.merge.analysis import ignored_columns, kept_watermarks
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP
from trinitymerge.stores import managed

# What files cannot keep (S7a) -----------------------------------------------------------------------------------------

KEPT = {
    "BOOLEAN": "true",
    "TINYINT": "CAST(1 AS TINYINT)",
    "SMALLINT": "CAST(1 AS SMALLINT)",
    "INT": "1",
    "BIGINT": "1L",
    "FLOAT": "CAST(1 AS FLOAT)",
    "DOUBLE": "1D",
    "DECIMAL(38,18)": "CAST(1 AS DECIMAL(38,18))",
    "STRING": "'a'",
    "BINARY": "X'01'",
    "DATE": "DATE'2024-01-01'",
    "TIMESTAMP": "TIMESTAMP'2024-01-01'",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'2024-01-01'",
    "INTERVAL YEAR TO MONTH": "INTERVAL '1-1' YEAR TO MONTH",
    "INTERVAL DAY TO SECOND": "INTERVAL '1 00:00:00' DAY TO SECOND",
}
"""Types of which a value can be stored alone and inside of others, in both formats, on every Spark version."""

REFUSED = {
    "INTERVAL": "calendar interval",
    "VOID": "nothing but nulls",
    "STRUCT<>": "without fields",
    "STRUCT<x: INT, X: INT>": "the field 'x' twice",
}

REFUSED_SINCE = {
    "4.0": {"STRING COLLATE UTF8_LCASE": r"collated \(.*UTF8_LCASE\).* Declare it STRING"},
    "4.1": {"TIME(3)": "time of day", "GEOMETRY(ANY)": "any spatial reference system"},
}
"""By the Spark that has them; those before cannot parse them."""

REFUSED_INSIDE = {"CHAR(3)": r"holds char\(3\) in", "VARCHAR(3)": "Use string there"}

NESTED = ["STRUCT<x: {}>", "ARRAY<{}>", "MAP<STRING, {}>", "MAP<{}, INT>", "ARRAY<STRUCT<y: INT, x: ARRAY<{}>>>"]


def is_spark_4(spark):
    return not spark.version.startswith("3.")


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_S7a_a_column_that_can_be_declared_can_be_stored_and_read_back(spark, tmp_path, file_format):
    """One table with a column for each type, alone and in a struct, an array and both sides of a map."""
    columns, values = ["id INT"], ["1 AS id"]
    for i, (kind, value) in enumerate(KEPT.items()):
        columns += [f"a{i} {kind}", f"b{i} STRUCT<x: {kind}>", f"c{i} ARRAY<{kind}>", f"d{i} MAP<{kind}, {kind}>"]
        values += [f"{value} AS a{i}", f"named_struct('x', {value}) AS b{i}", f"array({value}) AS c{i}"]
        values += [f"map({value}, {value}) AS d{i}"]
    table = new_table(spark, tmp_path, ", ".join(columns), fileFormat=file_format)
    source = spark.sql(f"SELECT {', '.join(values)}")
    table.upsert(source).execute()
    shown = [f"CAST(`{n}` AS STRING)" for n in source.columns]  # Python cannot hold every value
    assert [tuple(r) for r in table.toDF().selectExpr(*shown).collect()] == [
        tuple(r) for r in source.selectExpr(*shown).collect()
    ]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_S7a_what_cannot_be_stored_is_refused_when_the_table_is_created(spark, tmp_path, file_format):
    kinds = REFUSED | {
        k: why for since, more in REFUSED_SINCE.items() if spark.version >= since for k, why in more.items()
    }
    inside = {nested.format(kind): why for nested in NESTED for kind, why in {**kinds, **REFUSED_INSIDE}.items()}
    inside = {**kinds, **inside}
    more = {"VARIANT": "ORC files cannot keep", "STRUCT<x: ARRAY<VARIANT>>": "ORC"}
    more |= {"GEOGRAPHY(4326)": "ORC"} if spark.version >= "4.1" else {}
    if file_format == "orc" and is_spark_4(spark):
        inside = {kind: "ORC" if "GEO" in kind else why for kind, why in inside.items()}
        inside |= more
    if is_spark_4(spark):
        inside["MAP<STRUCT<k: VARIANT>, INT>"] = "ORC" if file_format == "orc" else "key is a map or variant"
    inside["MAP<STRUCT<k: MAP<INT, INT>>, INT>"] = "key is a map or variant"
    for i, (kind, why) in enumerate(inside.items()):
        parsed = is_spark_4(spark) or "INTERVAL" not in kind  # PySpark 3.5 has no calendar intervals
        message = rf"Column 'v' \(.*\) .*{why}" if parsed else "schema cannot be parsed: .* INTERVAL DAY TO SECOND"
        with pytest.raises(InvalidDefinitionError, match=message) as refused:
            new_table(spark, tmp_path / str(i), f"id INT, v {kind}", fileFormat=file_format)
        assert not parsed or refused.value.column == "v", kind
        assert not (tmp_path / str(i)).exists()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TIMESTAMP", "{}"),
        ("STRUCT<x: INT, at: TIMESTAMP>", "named_struct('x', 1, 'at', {})"),
        ("MAP<INT, ARRAY<STRUCT<at: TIMESTAMP>>>", "map(1, array(NULL, named_struct('at', {})), 2, NULL)"),
        ("MAP<TIMESTAMP, INT>", "map({}, 1)"),
    ],
)
def test_S7a_timestamps_that_orc_files_give_back_a_second_later_are_refused(spark, tmp_path, kind, value):
    """Of all in the second before 1970, each is kept exactly or refused, and what is refused changes nothing."""
    table = new_table(spark, tmp_path / "orc", f"id INT, v {kind}", fileFormat="orc")

    def at(micros):
        return spark.sql(f"SELECT 1 AS id, {value.format(f'timestamp_micros({micros})')} AS v")

    def shown(rows):
        return rows.selectExpr("CAST(v AS STRING)").collect()

    for micros in (-1_000_001, -1_000_000, -999_001, 0, 1):
        table.upsert(at(micros)).execute()
        assert shown(table.toDF()) == shown(at(micros)), micros
    before = table.version
    for micros in (-999_000, -1):
        with pytest.raises(InvalidMergeError, match="Column 'v' holds a timestamp in the last second before 1970"):
            table.upsert(at(micros)).execute()
        kept = new_table(spark, tmp_path / f"parquet{micros}", f"id INT, v {kind}")
        kept.upsert(at(micros)).execute()
        assert shown(kept.toDF()) == shown(at(micros)), micros
    assert table.version == before


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("{}", "{}"),
        ("ARRAY<STRUCT<at: {}>>", "array(NULL, named_struct('at', {}))"),
        ("MAP<{}, INT>", "map({}, 1)"),
    ],
)
def test_S7a_days_that_orc_files_give_back_as_another_are_refused(spark, tmp_path, kind, value, zone):
    """Dates around the change of calendars, and the last hours of timestamps beside it, are kept exactly or refused."""
    if "MAP" in kind and zone != "UTC":
        pytest.skip("one zone will do")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    day = 86_400
    try:
        for type, numbered, kept, lost, word in [
            ("DATE", "date_from_unix_date({})", (-141_438, -141_427), (-141_437, -141_428), "a date from 5 to 14"),
            (
                "TIMESTAMP_LTZ",
                "timestamp_seconds({})",
                (-141_438 * day - 1, -141_426 * day),
                (-141_437 * day, -141_427 * day - 1),
                "a timestamp from 4 to 15",
            ),
        ]:
            table = new_table(spark, tmp_path, f"id INT, v {kind.format(type)}", fileFormat="orc")

            made = value.format(numbered)

            def rows(numbers, made=made):
                return spark.sql(" UNION ALL ".join(f"SELECT {i} AS id, {made.format(n)} AS v" for i, n in numbers))

            source = rows(enumerate(kept))
            table.upsert(source).execute()
            assertRows(table.toDF().selectExpr("id", "CAST(v AS STRING)"), source.selectExpr("id", "CAST(v AS STRING)"))
            for number in lost:
                with pytest.raises(InvalidMergeError, match=f"Column 'v' holds {word} .*1582.* Change the value"):
                    table.upsert(rows([(1, number)])).execute()
            assert table.version == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("kind", [DecimalType(50, 2), DecimalType(5, -2), DecimalType(2, 5)])
def test_S7a_decimals_that_python_can_name_but_no_file_can_keep(spark, tmp_path, kind):
    schema = StructType().add("id", IntegerType()).add("v", StructType().add("x", kind))
    with pytest.raises(InvalidDefinitionError, match=r"Column 'v' .* at most 38 digits"):
        new_table(spark, tmp_path, schema)


@pytest.mark.generated  # Spark reads no variants without
def test_S7a_variants_are_kept_in_parquet(spark, tmp_path):
    if not is_spark_4(spark):
        pytest.skip("Spark 3.5 has no variants")
    table = new_table(spark, tmp_path, "id INT, v VARIANT, a ARRAY<VARIANT>")
    table.upsert(spark.sql("""SELECT 1 AS id, parse_json('{"x": 5}') AS v, array(parse_json('7')) AS a""")).execute()
    assert table.toDF().selectExpr("variant_get(v, '$.x', 'int')", "CAST(a[0] AS INT)").collect() == [(5, 7)]


# Collations (S7a) -----------------------------------------------------------------------------------------------------


def test_S7a_the_collation_of_a_char_column_is_not_dropped_without_a_word(spark, tmp_path):
    if not is_spark_4(spark):
        pytest.skip("Spark 3.5 has no collations")
    with pytest.raises(InvalidDefinitionError, match=r"CHAR\(3\) COLLATE UTF8_LCASE.* Leave the collation out"):
        new_table(spark, tmp_path, "id INT, v CHAR(3) COLLATE UTF8_LCASE")
    plain = " COLLATE UTF8_BINARY" if spark.version >= "4.1" else ""  # Spark 4.0 has none for CHAR
    new_table(spark, tmp_path, f"id INT, v CHAR(3){plain} COMMENT 'not char(3) collate UTF8_LCASE'")


def test_S7a_a_table_with_a_collated_column_still_opens(spark, tmp_path, monkeypatch):
    if not is_spark_4(spark):
        pytest.skip("Spark 3.5 has no collations")
    monkeypatch.setattr(managed, "check_storable", lambda definition: None)
    table = new_table(spark, tmp_path, "id INT, v STRING COLLATE UTF8_LCASE")
    monkeypatch.undo()
    table.upsert(spark.sql("SELECT 1 AS id, 'ABC' AS v")).execute()
    opened = TrinityTable.forPath(spark, table.path)
    assert live_rows(opened) == [(1, "ABC")]
    opened.upsert(spark.sql("SELECT 2 AS id, 'abc' AS v")).execute()
    assert opened.compact().version == 3
    assert live_rows(opened) == [(1, "ABC"), (2, "abc")]


@pytest.fixture
def collated(spark):
    """Rows whose text is equal without case, but not exactly."""
    if not is_spark_4(spark):
        pytest.skip("Spark 3.5 has no collations")
    rows = frame(spark, "k STRING, ts INT, v STRING", ("a", 2, "new"), ("B", 2, "new"))
    return rows.selectExpr(
        "k COLLATE UTF8_LCASE AS k", "ts", "v COLLATE UNICODE_CI AS v", "array(v COLLATE UTF8_LCASE) AS l"
    )


@pytest.fixture
def texts(spark, tmp_path):
    """A table keyed by text."""
    table = new_table(spark, tmp_path, "k STRING, ts INT, v STRING, l ARRAY<STRING>", primaryKey="k", watermarkKey="ts")
    return fill(table, spark, [("A", 1, "old", None), ("B", 1, "old", None)])


@pytest.mark.slow
def test_S7a_collated_source_columns_are_the_text_they_hold_on_every_path(spark, texts, collated):
    """Paired by name, the key is compared exactly: 'a' is not 'A', and 'B' is 'B'."""
    runs = on_every_path(texts, lambda t: t.upsert(collated), spark)
    assert [run.path for run in runs] == [APPEND_ONLY, KEY_LOOKUP, FULL_SCAN]
    assert runs[0].rows == [("A", 1, "old", None), ("B", 2, "new", ["new"]), ("a", 2, "new", ["new"])]
    on_every_path(texts, lambda t: t.delete(collated.filter("v = 'NEW'")), spark)


def test_S7a_collated_keys_and_values_in_the_users_own_expressions(spark, texts, collated):
    merge = texts.alias("A").merge(collated.alias("B"), "A.k = CAST(B.k AS STRING)")
    runs = on_every_path(
        texts,
        lambda t: (
            t.alias("A")
            .merge(collated.alias("B"), "A.k = CAST(B.k AS STRING)")
            .whenMatched("B.v = 'NEW'")
            .updateExpr({"v": "B.v"})
        ),
        spark,
    )
    assert runs[0].rows == [("A", 1, "old", None), ("B", 2, "new", None)]
    assert merge.whenMatched().delete().build().strategy == "blind append"
    with pytest.raises(
        InvalidMergeError, match=r"The merge condition: .* collations differ: compare plain text, e.g. CAST"
    ):
        texts.alias("A").merge(collated.alias("B"), "A.k = B.k").whenMatched().delete().build()


def test_S7a_equality_without_case_is_no_equality_of_keys(spark, texts, collated):
    merge = (
        texts.alias("A")
        .merge(collated.alias("B"), "A.k = B.k COLLATE UTF8_LCASE")
        .whenMatched()
        .updateExpr({"v": "'x'"})
    )
    assert merge.build().strategy == "full scan"
    assert merge.execute().rowsUpdated == 2


# Source columns without a place (S22a) --------------------------------------------------------------------------------


@pytest.fixture
def extra(spark):
    """Rows for the table of EVENTS, with columns it does not have."""
    return spark.sql(
        "SELECT 1 AS id, 5 AS ts, 'x' AS v, false AS deleted, 'U' AS op, 'north' AS region, 7 AS `odd name`"
    )


def ignored_by(build, table, extra):
    return build(table.alias("A").merge(extra.alias("B"), "A.id = B.id")).build().analysis.ignored


@pytest.mark.parametrize(
    ("build", "left_out"),
    [
        (lambda m: m.whenMatched().updateAll(), ["op", "region", "odd name"]),
        (lambda m: m.whenNotMatched().insertAll(), ["op", "region", "odd name"]),
        (lambda m: m.whenMatched("B.op = 'D'").delete().whenMatched().updateAll(), ["region", "odd name"]),
        (lambda m: m.whenMatched(F.col("B.op") == "U").updateAll(), ["region", "odd name"]),
        (lambda m: m.whenMatched("B.OP = 'U' AND `odd name` > 1").updateAll(), ["region"]),
        (lambda m: m.whenMatched().updateAll(exceptColumns=["op", "Region"]), ["odd name"]),
        (lambda m: m.whenMatched().updateExpr({"v": "B.region"}).whenNotMatched().insertAll(), ["op", "odd name"]),
        (
            lambda m: m.whenMatched().updateExpr({"v": F.upper("B.region")}).whenNotMatched().insertAll(),
            ["op", "odd name"],
        ),
        (lambda m: m.whenMatched().updateExpr({"v": "B.v"}), []),
        (lambda m: m.whenMatched().delete(), []),
    ],
)
def test_S22a_columns_that_nothing_mentions_are_left_out(spark, tmp_path, extra, build, left_out):
    assert list(ignored_by(build, new_table(spark, tmp_path), extra)) == left_out


@pytest.mark.parametrize("text", [True, False])
def test_S22a_a_star_mentions_every_column(spark, tmp_path, extra, text):
    if not is_spark_4(spark):
        pytest.skip("Spark 3.5 takes no star in a value")
    value = "to_json(struct(B.*))" if text else F.to_json(F.struct("B.*"))
    merge = new_table(spark, tmp_path).alias("A").merge(extra.alias("B"), "A.id = B.id")
    assert merge.whenMatched().updateExpr({"v": value}).whenNotMatched().insertAll().build().analysis.ignored == ()


def test_S22a_a_mention_in_the_merge_condition_counts_and_a_longer_name_does_not(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING")
    source = spark.sql("SELECT 1 AS id, 'x' AS v, 1 AS shard, 1 AS shard_no").alias("B")
    merge = table.alias("A").merge(source, "A.id = B.id AND B.shard_no = 1").whenMatched().updateAll()
    assert merge.build().analysis.ignored == ("shard",)


def test_S22a_left_out_columns_stand_in_result_and_explain_and_once_in_the_log(
    spark, tmp_path, extra, caplog, monkeypatch
):
    monkeypatch.setattr(ignored_columns, "_warned", set())
    table = new_table(spark, tmp_path)
    with caplog.at_level(logging.WARNING, "trinitymerge"):
        results = [table.upsert(extra).execute() for _ in range(3)]
        fewer = table.upsert(extra.drop("region", "odd name")).execute()
        silent = table.upsert(extra.select("id", "ts", "v", "deleted")).execute()
    assert [r.columnsIgnored for r in results] == [("op", "region", "odd name")] * 3
    assert (fewer.columnsIgnored, silent.columnsIgnored) == (("op",), ())
    assert "\n  source columns left out: op, region, odd name" in str(results[0])
    assert "left out" not in str(silent)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "leaves out source columns op, region, odd name: the table has no such column" in messages[0]
    assert "leaves out source column op:" in messages[1]
    text = table.upsert(extra).build().explain()
    assert "\nSource columns left out: op, region, odd name (not in the table" in text


def test_S10_a_forgotten_watermark_is_warned_of_once(spark, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(kept_watermarks, "_warned", set())
    table = new_table(spark, tmp_path)
    table.upsert(spark.sql("SELECT 1 AS id, 5 AS ts, 'x' AS v")).execute()
    source = spark.sql("SELECT 1 AS id, 'y' AS v")
    by_key = table.alias("A").merge(source.alias("B"), "A.id = B.id")
    with caplog.at_level(logging.WARNING, "trinitymerge"):
        table.upsert(source).at(6).execute()
        table.upsert(source).onStale("force").execute()
        table.updateWhere("id = 1", {"v": "'z'"}).execute()
        table.deleteWhere("id = 9").execute()
        table.insert(spark.sql("SELECT 2 AS id, 'y' AS v")).execute()
        table.upsert(spark.sql("SELECT 1 AS id, 7 AS ts, 'y' AS v"), columns=["v"]).execute()
        by_key.whenMatched().updateExpr({"v": "B.v", "ts": "A.ts + 1"}).execute()
        by_key.whenMatched().delete().execute()
    assert caplog.records == []
    with caplog.at_level(logging.WARNING, "trinitymerge"):
        for merge in (table.upsert(source), table.update(source), by_key.whenMatched().updateAll()):
            merge.execute()
    (record,) = caplog.records
    assert "the source lacks the watermark column ts, so updated rows keep the stored watermark" in record.getMessage()
    assert "Add the column to the source, or set the time of the change with .at(...)." in record.getMessage()


# Expressions that change their mind (S32) -----------------------------------------------------------------------------


@pytest.fixture
def numbers(spark, tmp_path):
    """A merge into a table of EVENTS from a source with an id."""
    source = spark.sql("SELECT 1 AS id, 5 AS ts, 'x' AS v, false AS deleted").alias("B")
    return new_table(spark, tmp_path).alias("A").merge(source, "A.id = B.id")


@pytest.mark.parametrize("odd", ["rand()", "monotonically_increasing_id()", "length(uuid())", "spark_partition_id()"])
def test_S32_conditions_and_keys_that_are_not_deterministic_are_refused(spark, numbers, odd):
    wrong = {
        "The merge condition": numbers._spec.source
        and _with_condition(numbers, f"A.id = B.id AND {odd} < 5").whenMatched().delete(),
        "The condition of clause 1, whenMatched": numbers.whenMatched(f"{odd} < 5").delete(),
        "The condition of clause 2, whenNotMatched": numbers.whenMatched()
        .delete()
        .whenNotMatched(F.expr(odd) < 5)
        .insertAll(),
        "clause 1, whenNotMatched\\(\\), insertExpr, column 'id'": numbers.whenNotMatched().insertExpr(
            {"v": "rand()", "id": f"CAST({odd} AS INT)"}
        ),
        "clause 1, whenMatched\\(\\), updateExpr, column 'id'": numbers.whenMatched().updateExpr(
            {"id": F.expr(odd).cast("int")}
        ),
    }
    for where, merge in wrong.items():
        with pytest.raises(InvalidMergeError, match=rf"^{where}.* is not deterministic") as refused:
            merge.build()
        for noise in ("_tm_", "NON_DETERMINISTIC", "SQLSTATE"):
            assert noise not in str(refused.value)


@pytest.mark.parametrize(
    "grouped", ["NOT ({})", "true AND ({})", "false or({})", "NOT (true AND NOT ({}))", "NOT ('NOT (' = '' OR {})"]
)
def test_S32_parentheses_do_not_hide_what_is_not_deterministic(numbers, grouped):
    with pytest.raises(InvalidMergeError, match="is not deterministic"):
        numbers.whenMatched(grouped.format("rand() < 0.5")).delete().build()


def _with_condition(merge, condition):
    return merge._evolve(condition=condition)


def test_S32_other_values_may_be_anything_and_a_moment_is_one_for_the_whole_merge(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, at TIMESTAMP, v STRING", primaryKey=["id", "at"])
    source = spark.range(50).selectExpr("CAST(id AS INT) AS id")
    merge = table.merge(source, "target.id = source.id AND target.at < current_timestamp()")
    insert = {"id": "source.id", "at": "current_timestamp()", "v": "uuid()"}
    result = merge.whenNotMatched("current_date() > DATE'2020-01-01'").insertExpr(insert).execute()
    assert result.rowsInserted == 50
    assert table.toDF().selectExpr("count(DISTINCT at)", "count(DISTINCT v)").collect() == [(1, 50)]


def test_S7a_the_schema_of_tests_is_storable(spark, tmp_path):
    assert new_table(spark, tmp_path, EVENTS).version == 0
