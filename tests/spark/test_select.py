"""What is asked of Spark by fewer calls is the same."""

from __future__ import annotations

import pytest
from helpers import assertRows
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from trinitymerge.spark.session import is_connect, may_have_alias, select_exprs

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
