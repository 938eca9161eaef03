"""What the expressions of a clause see, on every path: the rows the clause is for, and of these the user's columns (S20, S30)."""

from __future__ import annotations

import json

import pyspark
import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from tables import copy_of, fill, frame, live_rows, new_table, on_every_path
from test_errors import refused

from trinitymerge import InvalidMergeError, sql

COLUMNS = "id INT, v INT, w STRING"
CHANGES = "id INT, v INT, w STRING, n INT"
ON_KEY, ON_MORE, ON_VALUE = "A.id = B.id", "A.id = B.id AND A.v <> 20", "A.v = B.v * 10"


@pytest.fixture(scope="module")
def stock(spark, tmp_path_factory):
    """Keys 1 to 3 live, 9 deleted."""
    table = fill(
        new_table(spark, tmp_path_factory.mktemp("stock"), COLUMNS), spark, [(k, 10 * k, "t") for k in (1, 2, 3, 9)]
    )
    table.deleteWhere("id = 9").execute()
    return table


@pytest.fixture(scope="module")
def changes(spark):
    return frame(spark, CHANGES, (1, 1, "a", 1), (2, 6, "b", None), (7, 7, "c", 1), (9, 8, "d", 2)).alias("B")


# What a clause sees ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_column", [False, True])
@pytest.mark.parametrize("on", [ON_KEY, ON_MORE, ON_VALUE])
def test_S30_a_bare_name_means_a_column_of_what_the_clause_sees(spark, stock, changes, on, as_column):
    def given(text):
        return F.expr(text) if as_column else text

    def merge(table):
        return (
            table.alias("A")
            .merge(changes, on)
            .whenMatched(given("A.v > 9 AND n = 1"))
            .updateExpr({"w": given("concat(A.w, B.w, n)"), "v": given("B.v + 1")})
            .whenNotMatched(given("v = 8"))
            .insertExpr({"id": given("id"), "v": given("v * 2"), "w": "'first'"})
            .whenNotMatched(given("v > 5 AND n = 1"))
            .insertExpr({"id": "B.id", "v": given("v"), "w": given("concat(w, n)")})
        )

    expected = [(1, 2, "ta1"), (2, 20, "t"), (3, 30, "t"), (7, 7, "c1"), (9, 16, "first")]
    runs = on_every_path(stock, merge, spark)
    assert {run.path.name for run in runs} == ({"full scan"} if on == ON_VALUE else {"keyed lookup", "full scan"})
    assert all(run.rows == expected for run in runs), runs[-1].rows

    def with_target_only(table):
        return (
            merge(table)
            .whenNotMatchedAndExistsOnlyOnTarget(given("v = 30 AND w = 't'"))
            .updateExpr({"v": given("v + id"), "w": given("concat(w, '!')")})
        )

    (run,) = on_every_path(stock, with_target_only, spark)
    assert run.rows == [row if row[0] != 3 else (3, 33, "t!") for row in expected]


def test_S30_S31_a_bare_name_needs_no_look_at_the_target(spark, stock, changes):
    runs = on_every_path(
        stock,
        lambda t: t.alias("A").merge(changes, ON_KEY).whenMatched().updateAll().whenNotMatched("v > 7").insertAll(),
        spark,
        uncertain=True,
    )
    assert [run.path.name for run in runs] == ["blind append", "keyed lookup", "full scan"]
    assert runs[0].result.strategy == "keyed lookup"  # 7 would be updated, and not inserted
    assert all(run.rows == [(1, 1, "a"), (2, 6, "b"), (3, 30, "t"), (9, 8, "d")] for run in runs), runs[-1].rows


def test_S18_S30_a_delete_of_an_absent_key_is_recorded_beside_bare_names(spark, stock, changes):
    def merge(table):
        clauses = table.alias("A").merge(changes, ON_KEY).whenMatched("n = 1").delete()
        return clauses.whenNotMatched("v = 8").insertExpr({"id": "id", "v": "v"})

    for run in on_every_path(stock, merge, spark):
        assert run.rows == [(2, 20, "t"), (3, 30, "t"), (9, 8, None)]
        assert run.result.rowsAppended == 3  # 7 is not there, and is recorded


def test_S30_a_value_is_computed_for_the_rows_of_its_clause_alone(spark, stock, changes):
    """It would fail for others."""
    fails = "IF(v = 8, v, raise_error(concat('v is ', v)))"

    def merge(table):
        clauses = table.alias("A").merge(changes, ON_KEY).whenNotMatched("v = 8")
        return clauses.insertExpr({"id": "id", "v": f"CAST({fails} AS INT)"})

    for run in on_every_path(stock, merge, spark):
        assert run.row(9) == (9, 8, None)


def test_S30_a_struct_that_is_called_like_the_other_side(spark, stock, tmp_path):
    source = frame(spark, "id INT, A STRUCT<v: INT>", (1, (5,)), (7, (6,))).alias("B")

    def merge(table):
        clauses = table.alias("A").merge(source, ON_KEY).whenMatched("A.v = 10").updateExpr({"v": "B.A.v"})
        return clauses.whenNotMatched("A.v = 6").insertExpr({"id": "B.id", "v": "A.v"})

    for run in on_every_path(stock, merge, spark):
        assert (run.row(1), run.row(7)) == ((1, 5, "t"), (7, 6, None))

    table = fill(new_table(spark, tmp_path, "id INT, B STRUCT<n: INT>, v INT"), spark, [(1, (3,), 0), (2, (4,), 0)])
    clauses = table.alias("A").merge(frame(spark, "id INT, n INT", (1, 9)).alias("B"), ON_KEY)
    clauses.whenNotMatchedAndExistsOnlyOnTarget("B.n = 4").updateExpr({"v": "B.n", "B.n": "B.n + 1"}).execute()
    assert live_rows(table) == [(1, (3,), 0), (2, (5,), 4)]


def test_S30_a_source_of_several_aliases(spark, stock):
    one, other = (
        frame(spark, "id INT, v INT", (1, 5), (7, 6)).alias("x"),
        frame(spark, "k INT, w STRING", (7, "y")).alias("y"),
    )
    source = one.join(other, F.expr("x.id = y.k"), "left")

    def merge(table):
        clauses = table.alias("A").merge(source, "A.id = x.id").whenMatched("x.v > 1").updateExpr({"w": "'m'"})
        return clauses.whenNotMatched("v = 6 AND y.w = w").insertExpr({"id": "id", "v": "x.v", "w": "w"})

    for run in on_every_path(stock, merge, spark):
        assert (run.row(1), run.row(7)) == ((1, 10, "m"), (7, 6, "y"))


@pytest.mark.parametrize("as_column", [False, True])
@pytest.mark.parametrize("name", ["A.v", "extra"])
def test_S30_a_clause_for_source_rows_does_not_see_the_target(spark, tmp_path, changes, name, as_column):
    given = F.col(name) > 3 if as_column else f"{name} > 3"
    table = new_table(spark, tmp_path, f"{COLUMNS}, extra INT").alias("A")
    words = ("is the target's", "source rows that have no target row", "The source has 'id', 'v', 'w', 'n'.")
    with refused(InvalidMergeError, "The condition of clause 1, whenNotMatched", *words):
        table.merge(changes, ON_KEY).whenNotMatched(given).insertAll().build()
    with refused(InvalidMergeError, "clause 1, whenNotMatched(), insertExpr, column 'w'", *words):
        table.merge(changes, ON_KEY).whenNotMatched().insertExpr({"id": "B.id", "w": given}).build()


@pytest.mark.parametrize("as_column", [False, True])
@pytest.mark.parametrize("name", ["B.v", "n"])
def test_S27_S30_a_clause_for_target_rows_does_not_see_the_source(spark, stock, changes, tmp_path, name, as_column):
    given = F.col(name) > 3 if as_column else f"{name} > 3"
    words = ("is the source's", "target rows that have no source row", "The target has 'id', 'v', 'w'.")
    clauses = stock.alias("A").merge(changes, ON_KEY)
    with refused(InvalidMergeError, "The condition of clause 1, whenNotMatchedAndExistsOnlyOnTarget", *words):
        clauses.whenNotMatchedAndExistsOnlyOnTarget(given).delete().build()
    with refused(InvalidMergeError, "column 'w'", *words):
        clauses.whenNotMatchedAndExistsOnlyOnTarget().updateExpr({"w": given}).build()
    past = new_table(spark, tmp_path, "id INT, w STRING")
    if name == "B.v":
        with refused(InvalidMergeError, "insertHistoryExpr", "column 'w'", *words):
            deletes = clauses.whenNotMatchedAndExistsOnlyOnTarget().delete()
            deletes.insertHistoryExpr({"id": "id", "w": given}, past).build()


def test_S27_S30_history_inserts_beside_bare_names(spark, stock, changes, tmp_path):
    for path in (None, "full"):
        past, table = new_table(spark, tmp_path, f"{COLUMNS}, n INT"), copy_of(stock, spark)
        clauses = table.alias("A").merge(changes, ON_KEY if path is None else "A.id <=> B.id")
        clauses = clauses.whenMatched("B.v = 6").updateExpr({"v": "B.v"})
        clauses = clauses.insertHistoryExpr({"id": "A.id", "v": "v", "w": "B.w", "n": "B.n"}, past)
        clauses = clauses.whenNotMatched("v = 8").insertExpr({"id": "id", "v": "v"})
        if path:
            clauses = clauses.whenNotMatchedAndExistsOnlyOnTarget("v = 30").delete()
            clauses = clauses.insertHistoryExpr({"id": "id", "v": "A.v"}, past)
        clauses.execute()
        assertRows(past.toDF(), [(2, 20, "b", None), *([(3, 30, None, None)] if path else [])])


def test_S30_S32a_statements_say_where_such_a_name_stands(spark, stock, changes):
    tables, begin = (
        {"stock": copy_of(stock, spark), "changes": changes},
        "MERGE INTO stock A USING changes B ON A.id = B.id\n",
    )
    with refused(InvalidMergeError, "Line 2, column 22: ", "Column 'A.v' is the target's"):
        sql(spark, f"{begin}WHEN NOT MATCHED AND A.v > 1 THEN INSERT *", tables)
    with refused(InvalidMergeError, "Line 2, column 32: ", "Column 'n' is the source's"):
        sql(spark, f"{begin}WHEN NOT MATCHED BY SOURCE AND n > 1 THEN DELETE", tables)
    whens = """WHEN NOT MATCHED AND v = 8 THEN INSERT (id, v, w) VALUES (id, v * 2, w)
        WHEN NOT MATCHED BY SOURCE AND v = 30 THEN UPDATE SET v = v + 1"""
    sql(spark, begin + whens, tables)
    assert live_rows(tables["stock"]) == [(1, 10, "t"), (2, 20, "t"), (3, 31, "t"), (9, 16, "d")]


def test_S30_a_column_that_is_called_like_the_default_alias(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, source INT, v INT"), spark, [(1, 10, 0)])
    changes = frame(spark, "id INT, source INT, v INT", (1, 5, 2), (7, 5, 2))

    def merge(table):
        clauses = (
            table.merge(changes, "target.id = source.id").whenMatched("target.source = source.source * 2").updateAll()
        )
        return clauses.whenNotMatched("source.source = 5 AND source = 5").insertAll()

    for run in on_every_path(table, merge, spark):
        assert run.rows == [(1, 5, 2), (7, 5, 2)]
    past = new_table(spark, tmp_path, "id INT, v INT")
    with refused(InvalidMergeError, "'source' is an alias and a column of the table", "Give the side another alias"):
        clauses = table.merge(changes, "target.id = source.id").whenMatched().updateAll()
        clauses.insertHistoryExpr({"id": "id", "v": "source.v"}, past).build()
    struct = frame(spark, "id INT, source STRUCT<v: INT>", (1, (2,)))
    with refused(InvalidMergeError, "'source' is a column of both sides, not an alias", "df.alias('B')") as error:
        table.merge(struct).whenMatched("source.v = 2").delete().build()
    assert "Qualify" not in str(error.value)
    table.merge(struct.alias("B")).whenMatched("B.source.v = 2").delete().execute()
    assert live_rows(table) == []


@pytest.mark.parametrize("name", ["nope", "_tm_live", "_tm_deleted", "_tm_source", "A._tm_key0", "_tm_s0"])
def test_S5_S30_columns_of_the_library_are_neither_found_nor_suggested(stock, changes, name):
    clauses = stock.alias("A").merge(changes, ON_KEY)
    for refuse in (
        lambda: clauses.whenMatched(f"{name} IS NULL").delete(),
        lambda: clauses.whenMatched().updateExpr({"w": name}),
        lambda: clauses.whenNotMatched(f"{name} IS NULL").insertAll(),
        lambda: clauses.whenNotMatchedAndExistsOnlyOnTarget(f"{name} IS NULL").delete(),
        lambda: stock.alias("A").updateWhere(f"{name} IS NULL", {"v": 1}),
    ):
        with pytest.raises(InvalidMergeError) as error:
            refuse().build()
        assert "_tm_" not in str(error.value).replace(name, "").replace(name.replace(".", "`.`"), "")


# What a star stands for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_bare", [False, True], ids=["as they are", "beside bare names"])
@pytest.mark.parametrize(
    ("both", "of_source", "of_target"),
    [("*", "*", "*"), ("A.*, B.*", "B.*", "A.*"), ("* /* all */", "\n*", "*")],
)
def test_S30_a_star_is_the_users_columns(spark, stock, changes, both, of_source, of_target, is_bare):
    def merge(table):
        return (
            table.alias("A")
            .merge(changes, ON_KEY)
            .whenMatched(f"hash({both}) IS NOT NULL")
            .updateExpr({"w": f"to_json(struct({both}), map('ignoreNullFields', 'false'))"})
            .whenNotMatched(f"size(array(struct({of_source}))) = 1")
            .insertExpr({"id": "id" if is_bare else "B.id", "w": f"to_json(struct({of_source}))"})
        )

    def with_target_only(table):
        clauses = merge(table).whenNotMatchedAndExistsOnlyOnTarget(f"to_json(struct({of_target})) LIKE '%30%'")
        return clauses.updateExpr({"w": f"to_json(struct({of_target}))"})

    runs = on_every_path(stock, merge, spark)
    assert [run.path.name for run in runs] == ["keyed lookup", "full scan"]
    for run in (*runs, *on_every_path(stock, with_target_only, spark)):
        assert run.row(2)[2] == '{"id":2,"v":20,"w":"t","id":2,"v":6,"w":"b","n":null}'
        assert json.loads(run.row(7)[2]) == {"id": 7, "v": 7, "w": "c", "n": 1}
    assert run.row(3)[2] == '{"id":3,"v":30,"w":"t"}'


def test_S30_a_star_in_a_merge_that_does_not_look_at_its_target(spark, stock, changes):
    def merge(table):
        clauses = table.merge(changes).whenMatched("hash(B.*) <> 0")
        clauses = clauses.updateExpr({"v": "B.v", "w": "to_json(struct(B.*))"})
        return clauses.whenNotMatched("hash(*) <> 0").insertExpr({"id": "B.id", "v": "B.v", "w": "to_json(struct(*))"})

    for run in on_every_path(stock, merge, spark, uncertain=True):
        assert run.row(7)[2] == '{"id":7,"v":7,"w":"c","n":1}'
        assert run.row(1)[2] == '{"id":1,"v":1,"w":"a","n":1}'


def test_S30_a_star_without_a_source_and_without_aliases(spark, stock, changes):
    table = copy_of(stock, spark)
    table.updateWhere("hash(*) = hash(target.*) AND id = 1", {"w": "to_json(struct(*))"}).execute()
    column = table.updateWhere("id = 2", {"w": F.to_json(F.struct("target.*"))})
    if pyspark.__version__ < "4":
        with refused(InvalidMergeError, "column 'w'", "Spark 3.5 takes no * of a Column here", "as SQL text"):
            column.build()
        column = table.updateWhere("id = 2", {"w": "to_json(struct(target.*))"})
    column.execute()
    assert [row[2] for row in live_rows(table)] == ['{"id":1,"v":10,"w":"t"}', '{"id":2,"v":20,"w":"t"}', "t"]
    source = frame(spark, "id INT, v INT", (7, 5))
    table.merge(source).whenNotMatched().insertExpr({"id": "source.id", "w": "to_json(struct(*))"}).execute()
    assert live_rows(table)[3] == (7, None, '{"id":7,"v":5}')


def test_S30_a_star_of_a_struct_and_in_a_merge_condition(spark, tmp_path):
    """The names of the columns need quotes, and a subquery has aliases that are its own."""
    columns = "id INT, s STRUCT<`a.b`: INT, `c d`: STRING>, w STRING"
    table = fill(new_table(spark, tmp_path, columns), spark, [(1, (1, "x"), "t"), (2, (2, "y"), "t")])
    source = frame(spark, columns, (1, (1, "x"), "c"), (2, (9, "y"), "c")).alias("`B")

    def merge(table):
        clauses = table.alias("A").merge(source, "A.id = ```B`.id AND hash(A.s.*) = hash(```B`.s.*) AND 2.*3 > 1")
        return clauses.whenMatched("EXISTS (SELECT A.* FROM VALUES (1) A)").updateExpr(
            {"w": "concat(```B`.w, to_json(struct(A.s.*, 2.*3 AS n)))"}
        )

    for run in on_every_path(table, merge, spark):
        assert run.rows == [(1, (1, "x"), 'c{"a.b":1,"c d":"x","n":6}'), (2, (2, "y"), "t")]


def test_S30_a_bare_star_in_a_matched_clause_reads_the_target(spark, stock, changes):
    """Without aliases, the text could be computed from the source alone, and mean fewer columns."""

    def merge(table):
        clauses = table.alias("A").merge(changes, ON_KEY).whenMatched("size(array(struct(*))) = 2").delete()
        return clauses.whenMatched("length(concat_ws('', *)) > 0").updateExpr({"v": "0"})

    def counted(table):
        return merge(table).whenNotMatched("false").insertAll()

    for made in (merge, counted):
        for run in on_every_path(copy_of(stock, spark), made, spark):
            assert run.rows == [(1, 0, "t"), (2, 0, "t"), (3, 30, "t")]


def test_S27_S30_a_star_in_a_history_insert(spark, stock, changes, tmp_path):
    past, table = new_table(spark, tmp_path, "id INT, w STRING"), copy_of(stock, spark)
    clauses = table.alias("A").merge(changes, ON_KEY).whenMatched().updateExpr({"v": "B.v"})
    clauses.insertHistoryExpr({"id": "id", "w": "to_json(struct(A.*, B.n))"}, past).execute()
    assert live_rows(past) == [(1, '{"id":1,"v":10,"w":"t","n":1}'), (2, '{"id":2,"v":20,"w":"t"}')]


def test_S30_a_star_that_cannot_be_told_is_refused(spark, stock, changes):
    matched = stock.alias("A").merge(changes, ON_KEY).whenMatched()
    with refused(InvalidMergeError, "column 'w'", "a Column has a * without an alias", "A.*"):
        matched.updateExpr({"w": F.to_json(F.struct("*"))}).build()
    source = changes.alias("x").join(changes.selectExpr("id AS k").alias("y"), F.expr("x.id = y.k"))
    with refused(InvalidMergeError, "do not all go by one alias"):
        stock.merge(source, "target.id = x.id").whenMatched().updateExpr({"w": "to_json(struct(*))"}).build()


# The literal NULL -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", ["NULL", "CAST(NULL AS BOOLEAN)", "IF(true, NULL, NULL)", None])
def test_S20_the_literal_null_is_not_true(spark, stock, changes, null):
    null = F.lit(None) if null is None else null

    def merge(table):
        clauses = (
            table.alias("A")
            .merge(changes, ON_KEY)
            .whenMatched(null)
            .delete()
            .whenMatched("B.id = 1")
            .updateExpr({"v": 0})
        )
        return clauses.whenNotMatched(null).insertAll().whenNotMatchedAndExistsOnlyOnTarget(null).delete()

    expected = [(1, 0, "t"), (2, 20, "t"), (3, 30, "t")]
    assert [run.rows for run in on_every_path(stock, merge, spark)] == [expected]

    def no_pairs(table):
        return table.alias("A").merge(changes, null).whenMatched().delete().whenNotMatched("B.id > 8").insertAll()

    for run in on_every_path(stock, no_pairs, spark):
        assert run.rows == [(1, 10, "t"), (2, 20, "t"), (3, 30, "t"), (9, 8, "d")]
    table = copy_of(stock, spark)
    assert table.updateWhere(null, {"v": 0}).execute().rowsUpdated == 0
    assert table.deleteWhere(null).execute().rowsDeleted == 0
    assert table.purgeWhere(null).keys == 0
    assert live_rows(table) == [(1, 10, "t"), (2, 20, "t"), (3, 30, "t")]


def test_S20_S45_a_check_that_is_null_passes(spark, tmp_path):
    table = new_table(spark, tmp_path, COLUMNS)
    table.alter().addCheck("unknown", "NULL").execute()
    table.insert(frame(spark, COLUMNS, (1, 2, "a"))).execute()
    assert live_rows(table) == [(1, 2, "a")]


def test_S30_a_star_in_a_subquery_is_of_the_subquery(spark, tmp_path):
    spark.sql("SELECT * FROM VALUES (1, 'x'), (1, 'y'), (2, 'x') AS d(id, w)").createOrReplaceTempView("counted")
    table = fill(new_table(spark, tmp_path, "id INT, v INT"), spark, [(1, 1), (2, 2)])
    many = "(SELECT count(*) FROM counted)"
    table.updateWhere(f"id = 1 AND {many} = 3", {"v": many}).execute()
    table.merge(spark.sql("SELECT 9 AS id")).whenNotMatched(f"{many} > 2").insertExpr({"id": "id", "v": many}).execute()
    sql(spark, f"UPDATE t SET v = size(array(t.*)) + {many} WHERE id = 9", {"t": table})
    assert live_rows(table) == [(1, 3), (2, 2), (9, 5)]
    table.deleteWhere("target.id IN (SELECT id FROM counted GROUP BY id HAVING count(*) > 1)").execute()
    assert live_rows(table) == [(2, 2), (9, 5)]


def _are_both(nulls):
    return F.col("A.id").isNull() & F.col("B.id").isNotNull() & (F.col("B.w") != F.lit("it's")) & ~nulls.isNotNull()


def test_S30_columns_of_the_absent_side_are_null(spark, stock, changes):
    written = "A.id IS NULL AND B.id IS NOT NULL AND NOT isnotnull(A.v) AND (B.w IS NULL OR B.w <> 'A.id IS NULL')"
    for condition in (written, _are_both(F.col("A.v"))):
        for run in on_every_path(
            stock,
            lambda table, condition=condition: (
                table.alias("A")
                .merge(changes, ON_MORE)
                .whenNotMatched(condition)
                .insertExpr({"id": "B.id + 100"})
                .whenNotMatchedBySource("B.id IS NULL AND NOT (b.n IS NOT NULL) AND A.id = 3")
                .delete()
            ),
            spark,
        ):
            assert [row[0] for row in run.rows] == [1, 102, 107, 109, 2], condition
    for use in ("A.id = 1", "coalesce(A.id, 1) IS NULL", "B.n = A.id IS NULL"):
        with refused(InvalidMergeError, "IS NULL is true"):
            stock.alias("A").merge(changes, ON_KEY).whenNotMatched(use).insertExpr({"id": "B.id"}).build()


def test_S30_IS_NULL_in_a_subquery_is_of_the_subquerys_table(spark, tmp_path):
    schema = "id INT, parent INT, closed STRING"
    stock = new_table(spark, tmp_path, schema, tombstoneKey=None)
    stock.upsert(frame(spark, schema, (1, 0, None), (2, 0, "yes"))).execute()
    changes = frame(spark, schema, (10, 1, "no"), (11, 2, "no"))
    sql(
        spark,
        "MERGE INTO stock USING changes ON stock.id = changes.id WHEN NOT MATCHED AND changes.parent IN "
        "(SELECT stock.id FROM stock WHERE stock.id > 0 AND stock.closed IS NULL) THEN INSERT *",
        {"stock": stock, "changes": changes},
    )
    assert [row[0] for row in live_rows(stock)] == [1, 10, 2]


def test_S30_IS_NULL_of_a_field_is_not_of_the_absent_side(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, B STRUCT<n: INT>", tombstoneKey=None)
    table.upsert(frame(spark, "id INT, B STRUCT<n: INT>", (1, (3,)), (2, (4,)), (3, (None,)))).execute()
    source = frame(spark, "id INT, n INT", (1, 9)).alias("B")
    table.alias("A").merge(source, "A.id = B.id").whenNotMatchedBySource("B.n IS NULL").delete().execute()
    assert [row[0] for row in live_rows(table)] == [1, 2]


def test_S30_IS_NULL_of_the_absent_side_by_a_quoted_name_and_by_case(spark, tmp_path):
    quoted = new_table(spark, tmp_path, "`order id` INT", primaryKey="order id", tombstoneKey=None)
    merge = quoted.alias("A").merge(frame(spark, "`order id` INT", 1).alias("B"), "A.`order id` = B.`order id`")
    merge.whenNotMatched("A.`order id` IS NULL").insertAll().execute()
    assert live_rows(quoted) == [(1,)]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        table = new_table(spark, tmp_path, "id INT, n INT", tombstoneKey=None)
        merge = table.alias("a").merge(frame(spark, "id INT, n INT", (7, 1), (8, None)).alias("A"), "a.id = A.id")
        merge.whenNotMatched("A.n IS NULL").insertAll().execute()
        assert live_rows(table) == [(8, None)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("condition", ["A.source.system = 'x'", "B.url <> 'http://source.example.com'"])
def test_S30_a_field_or_a_text_is_not_the_default_alias(spark, tmp_path, condition):
    schema = "id INT, source STRUCT<system: STRING>, v INT"
    table = new_table(spark, tmp_path, schema, tombstoneKey=None)
    table.upsert(frame(spark, schema, (1, ("x",), 0))).execute()
    source = frame(spark, "id INT, v INT, url STRING", (1, 5, "u")).alias("B")
    table.alias("A").merge(source, "A.id = B.id").whenMatched(condition).updateExpr({"v": "B.v"}).execute()
    assert [row["v"] for row in table.toDF().collect()] == [5]
