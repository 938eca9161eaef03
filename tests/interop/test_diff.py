"""`difference`: two DataFrames compared by key, against a comparison in Python."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.interop.diff import DIFFERS, ONLY_A, ONLY_B, REPEATED, difference

SCHEMA = "id INT, part STRING, n BIGINT, x DOUBLE, tags MAP<STRING, INT>, s STRUCT<a: INT, m: ARRAY<INT>>"


def expected(a: list[tuple], b: list[tuple]) -> list[tuple]:
    found = []
    counts = [Counter(row[:2] for row in rows) for rows in (a, b)]
    by_key = [{row[:2]: row[2:] for row in rows} for rows in (a, b)]
    for key in {**by_key[0], **by_key[1]}:
        left, right = (rows.get(key) for rows in by_key)
        if max(c[key] for c in counts) > 1:
            found.append((REPEATED, *key, None))
        elif right is None:
            found.append((ONLY_A, *key, ["n", "x", "tags", "s"]))
        elif left is None:
            found.append((ONLY_B, *key, ["n", "x", "tags", "s"]))
        else:
            names = [n for n, v, w in zip(["n", "x", "tags", "s"], left, right, strict=True) if v != w]
            if names:
                found.append((DIFFERS, *key, names))
    return sorted(found, key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_rows_differ_as_they_do_in_python(spark, seed):
    chance = random.Random(seed)

    def some() -> list[tuple]:
        rows = []
        for _ in range(30):
            key = (chance.choice([None, *range(12)]), chance.choice([None, "a", "b"]))
            values = (chance.choice([None, 1, 2]), chance.choice([None, 0.5, 1.5]))
            nested = (chance.choice([None, {}, {"k": 1}, {"k": None}]), chance.choice([None, (1, [1, None]), (1, [])]))
            rows.append((*key, *values, *nested))
        return list({row[:2]: row for row in rows}.values()) + ([rows[0]] if seed % 2 else [])

    a, b = some(), some()
    found = difference(spark.createDataFrame(a, SCHEMA), spark.createDataFrame(b, SCHEMA), ["id", "part"]).collect()
    shown = [
        (r.difference, r.id, r.part, None if r.difference == REPEATED else [c.column for c in r.cells]) for r in found
    ]
    assert sorted(shown, key=repr) == expected(a, b)


def test_types_may_differ_and_columns_of_one_side_are_left_out(spark):
    a = spark.sql("VALUES (1, 5, 'a'), (2, 6, 'b') AS t(id, `a b`, only_a)")
    b = spark.sql("VALUES (1L, 5.0D), (2L, 6.5D) AS t(id, `a b`)")
    (row,) = difference(a, b, ["id"]).collect()
    assert (row.difference, row.id, [tuple(c) for c in row.cells]) == (DIFFERS, 2, [("a b", "6", "6.5")])
    assert difference(a.select("id"), b.select("id"), ["id"]).collect() == []


def test_a_missing_key_column_is_named(spark):
    with pytest.raises(SchemaMismatchError, match="Column 'part' is missing in B; it has 'id'"):
        difference(spark.range(1).selectExpr("id", "1 AS part"), spark.range(1), ["id", "part"])


def test_keys_may_have_any_name(spark):
    names = ["a", "b", "rows_a", "difference"]
    a, b = (spark.createDataFrame([(1, 2, 3, 4, v)], [*names, "cells"]) for v in ("x", "y"))
    ((kind, *key, cells),) = map(tuple, difference(a, b, names).collect())
    assert (kind, key, [tuple(c) for c in cells]) == (DIFFERS, [1, 2, 3, 4], [("cells", "x", "y")])


def test_names_are_compared_as_the_session_does_and_text_in_the_type_of_the_other_side(spark):
    a = spark.sql("VALUES (1, 5, 2.50), (2, NULL, 1.00), (3, 7, 1.00) AS t(id, Amount, x)")
    b = spark.sql("VALUES (1, '5', '2.5'), (2, 'abc', '1'), (3, '8', 'x') AS t(ID, amount, X)")
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            found = {row.id: [c.column for c in row.cells] for row in difference(a, b, ["id"]).collect()}
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
        assert found == {2: ["Amount"], 3: ["Amount", "x"]}


def test_S41_values_that_Spark_does_not_compare_are_compared_as_changes_are(spark):
    pairs = [
        *[(f"map('k', timestamp'2024-01-01 00:00:00.00000{i}')" for i in (1, 2))],
        *[(f"named_struct('t', timestamp'2024-01-01 00:00:00.00000{i}', 'm', map(1, 1))" for i in (1, 2))],
        ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
        ("map(X'01', 1)", "map(X'01', 1)"),
        *([("parse_json('[1]')", "parse_json('[ 1 ]')")] if spark.version >= "4" else []),
    ]
    texts = [", ".join(f"{value} AS c{i}" for i, value in enumerate(side)) for side in zip(*pairs, strict=True)]
    (row,) = difference(*(spark.sql(f"SELECT 1 AS id, {text}") for text in texts), ["id"]).collect()
    assert [cell.column for cell in row.cells] == ["c0", "c1"]
