"""Conditions over ``CHAR(n)`` columns: Spark pads what is compared with them, as in its own tables (S29)."""

from __future__ import annotations

import pytest
from tables import new_table

from trinitymerge import sql

SCHEMA = "id CHAR(4), v CHAR(3), u CHAR(5), w STRING, ts INT"
ROWS = [("ab", "x", "x", "x", 1), ("cd", "xyz", "xyz", "xyz", 1), ("ef", None, "x", "", 1), ("gh", "", "", "x  ", 1)]


@pytest.fixture
def table(spark, tmp_path):
    return filled(spark, tmp_path)


def filled(spark, tmp_path, **keys):
    made = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", **keys)
    made.upsert(spark.createDataFrame(ROWS, "id STRING, v STRING, u STRING, w STRING, ts INT")).execute()
    return made


def ids(rows, condition):
    return sorted(row.id.strip() for row in rows.where(condition).collect())


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("v = 'x'", ["ab"]),
        ("'x ' = v", ["ab"]),
        ("v = 'x    '", ["ab"]),
        ("v <=> 'x'", ["ab"]),
        ("v <> 'x'", ["cd", "gh"]),
        ("v > 'x'", ["cd"]),
        ("v IN ('x', '', 'q')", ["ab", "gh"]),
        ("CASE v WHEN 'x' THEN true END", ["ab"]),
        ("v = u", ["ab", "cd", "gh"]),
        ("id = 'ab' OR id IN ('cd')", ["ab", "cd"]),
        ("v = w", ["cd"]),
        ("length(v) = 3 AND v LIKE 'x'", []),
    ],
)
def test_S29_a_char_column_is_compared_as_in_a_table_of_spark(condition, found, table):
    assert ids(table.toDF(), condition) == found


@pytest.mark.parametrize("name", ["toDF", "changes", "versions", "asOf", "why", "view", "sql", "compacted"])
def test_S29_every_read_pads_what_a_char_column_is_compared_with(name, spark, tmp_path):
    table = filled(spark, tmp_path, history=name in ("versions", "asOf"))
    if name == "compacted":
        table.compact()
    if name == "view":
        table.toDF().createOrReplaceTempView("padded")
    rows = {
        "toDF": table.toDF,
        "compacted": table.toDF,
        "changes": lambda: table.changes(0),
        "versions": lambda: table.versions(),
        "asOf": lambda: table.asOf(1),
        "why": lambda: table.why("ab"),
        "view": lambda: spark.sql("SELECT * FROM padded WHERE v = 'x'"),
        "sql": lambda: sql(spark, "SELECT * FROM t WHERE v = 'x'", {"t": table}),
    }[name]()
    assert ids(rows, "v = 'x' AND id = 'ab'") == ["ab"]


def test_S29_conditions_of_merges_pad_what_a_char_column_is_compared_with(spark, table):
    source = spark.sql("SELECT 'ab  ' AS id, 'n' AS w, 2 AS ts UNION ALL SELECT 'cd  ', 'n', 2")
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id AND A.id IN ('ab', 'cd')")
    merge = merge.whenMatched("A.v = 'x'").updateExpr({"w": "if(A.v = 'x', B.w, A.w)", "ts": "B.ts"})
    merge.whenNotMatchedAndExistsOnlyOnTarget("A.v = ''").delete().execute()
    assert {row.id.strip(): row.w for row in table.toDF().collect()} == {"ab": "n", "cd": "xyz", "ef": ""}


@pytest.mark.parametrize("history", [False, True])
def test_S29_statements_find_rows_by_their_char_columns(history, spark, tmp_path):
    table = filled(spark, tmp_path, history=history)
    assert table.updateWhere("v = 'x'", {"w": "'u'", "ts": "ts + 1"}).execute().rowsUpdated == 1
    assert sql(spark, "UPDATE t SET w = 'q', ts = ts + 1 WHERE u = 'xyz'", {"t": table}).rowsUpdated == 1
    assert table.deleteWhere("id = 'ef'").at(9).execute().rowsDeleted == 1
    assert {row.id.strip(): row.w for row in table.toDF().collect()} == {"ab": "u", "cd": "q", "gh": "x  "}


def test_S29_purges_find_rows_by_their_char_columns(table):
    assert table.purgeWhere("v = 'x'").keys == 1
    assert ids(table.toDF(), "true") == ["cd", "ef", "gh"]


def test_S29_a_table_made_of_the_schema_of_a_DataFrame_has_strings(spark, table, tmp_path):
    made = new_table(spark, tmp_path, table.toDF().schema, watermarkKey="ts")
    assert [(f.name, f.dataType.typeName(), f.metadata) for f in made.definition.schema][1] == ("v", "string", {})
    made.upsert(table.toDF()).execute()
    made.upsert(spark.sql("SELECT 'zz' AS id, 'y' AS v, 'y' AS u, 'y' AS w, 3 AS ts")).execute()
    assert ids(made.toDF(), "v = 'y'") == ["zz"]
    assert ids(made.toDF(), "v = 'x'") == []


def test_S29_a_copy_by_spark_has_the_char_columns(spark, table, tmp_path):
    path = str(tmp_path / "copy")
    table.toDF().write.parquet(path)
    assert ids(spark.read.parquet(path), "v = 'x'") == ["ab"]
