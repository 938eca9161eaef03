"""What is asked of Spark by fewer calls is the same."""

from __future__ import annotations

import pytest
from helpers import assertRows, executed_plan
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from trinitymerge.spark.session import is_connect, join, load, may_have_alias, select_exprs

TEXTS = [
    ["id"],
    ["*"],
    ["id", "*", "id + 1 AS `a``b,c`"],
    ["'a, b' AS x", "concat('line\n', 'tab\t', 'ü', '\\\\1') AS y", "id AS z"],
    ["'a\x1fb' AS x", "id"],
    ["explode(array(id, id + 1)) AS e", "id"],
]


@pytest.mark.parametrize("texts", TEXTS)
def test_texts_are_selected_as_by_PySpark(spark, texts):
    frame = spark.range(3)
    chosen, expected = select_exprs(frame, texts), frame.selectExpr(*texts)
    assert type(chosen) is type(expected)
    assert chosen.columns == expected.columns
    assertRows(chosen, expected)


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "left_outer", "left_semi", "left_anti", "full_outer"])
def test_frames_are_joined_as_by_PySpark(spark, how, is_small):
    left, right = spark.range(6), spark.range(3, 9).selectExpr("id AS other", "id % 2 AS `a``b,c`")
    found = join(left, right, "id = other AND `a``b,c` = 1", how, is_small)
    expected = left.join(right, F.expr("id = other AND `a``b,c` = 1"), how)
    assert type(found) is type(expected)
    assert found.columns == expected.columns
    assert ("BroadcastHashJoin" in executed_plan(found)) or not is_small or how == "full_outer"
    assertRows(found, expected)
    with pytest.raises(AnalysisException, match="nowhere"):
        join(left, right, "id = nowhere", how, is_small).schema  # noqa: B018


@pytest.mark.parametrize("schema", [None, StructType([StructField("id", LongType()), StructField("no", StringType())])])
@pytest.mark.parametrize("names", [["a"], ["a", "b, c", "d\n"], ["a", "e\x1ff"]])
def test_files_are_loaded_as_by_PySpark(spark, tmp_path, names, schema):
    paths = [str(tmp_path / name) for name in names]
    for n, path in enumerate(paths):
        spark.range(n, n + 2).write.parquet(path)
    reader = spark.read.format("parquet") if schema is None else spark.read.format("parquet").schema(schema)
    expected = reader.load(paths)
    found = load(spark, spark.read.format("parquet"), schema, paths)
    assert type(found) is type(expected)
    assert found.schema == expected.schema
    assertRows(found, expected)
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        load(spark, spark.read.format("parquet"), schema, [*paths, str(tmp_path / "nowhere")]).schema  # noqa: B018


def test_a_text_that_is_no_column_is_the_same_error(spark):
    with pytest.raises(AnalysisException, match="nowhere"):
        select_exprs(spark.range(3), ["id", "nowhere"]).schema  # noqa: B018


@pytest.fixture
def aliased(spark):
    """Frames by what they are, some with columns under the alias `source`."""
    rows = spark.range(3)
    rows.createOrReplaceTempView("source")
    yield {
        "the frame": rows.alias("source"),
        "in capitals": rows.alias("SOURCE"),
        "a part of a join": rows.selectExpr("id + 1 AS other").join(rows.alias("source"), F.expr("id = other")),
        "filtered": rows.alias("source").filter("source.id > 1"),
        "a view": spark.table("source"),
        "a generator": spark.sql("SELECT source.x FROM VALUES (array(1)) AS v(a) LATERAL VIEW explode(a) source AS x"),
        "no longer": rows.alias("source").selectExpr("source.id AS id"),
        "another": rows.alias("B"),
        "a column": rows.selectExpr("id AS source"),
        "none": rows,
    }
    spark.catalog.dropTempView("source")


def test_S30_an_alias_that_resolves_is_not_missed(aliased):
    for what, frame in aliased.items():
        try:
            frame.select("source.*").schema  # noqa: B018
        except AnalysisException:
            continue
        assert may_have_alias(frame, "source"), what


@pytest.mark.parametrize("length", ["5", "40", "80", "120", "200"])
def test_S30_an_alias_is_not_missed_where_spark_truncates_plans(spark, aliased, length):
    before = spark.conf.get("spark.sql.maxPlanStringLength")
    spark.conf.set("spark.sql.maxPlanStringLength", length)
    found = {what: may_have_alias(aliased[what], "source") for what in ("the frame", "a part of a join", "filtered")}
    spark.conf.set("spark.sql.maxPlanStringLength", before)
    assert all(found.values()), found


def test_a_plan_without_the_alias_need_not_be_tried(spark, aliased):
    found = {what: may_have_alias(frame, "source") for what, frame in aliased.items()}
    assert found["none"] is found["another"] is is_connect(spark)
    assert found["the frame"] is found["a part of a join"] is True
