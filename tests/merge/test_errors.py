"""Every mistake a user makes, and the essential words of what they then read.

No message may hold a JVM stack trace, a plan or internal names, and a refused merge leaves the table as it was.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import shutil

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructType
from tables import batch_directories, fill, frame, live_rows, new_table

from trinitymerge import (
    CorruptTableError,
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    ReadOnlyTableError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrinityMergeError,
    TrinityTable,
)
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP

ORDERS = (
    "id INT, amount DECIMAL(6,2), note VARCHAR(5), day DATE, ts INT, s STRUCT<x: INT, y: STRING>, n BIGINT NOT NULL"
)


@contextlib.contextmanager
def refused(error, *words):
    """Checks the class and the words of an error, and that nothing of Spark's or ours shines through."""
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    if os.environ.get("SHOW"):
        print(f"\n{type(caught.value).__name__}: {message}")
    assert isinstance(caught.value, TrinityMergeError)
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"
    for noise in ("Py4J", "\tat ", "org.apache", "SQLSTATE", "_tm_s", "_tm_v", "JVM", "== Plan", "'Project"):
        assert noise not in message, f"{noise!r} is in: {message}"
    assert len(message) < 900
    cause = caught.value.__cause__
    assert cause is None or "Traceback" in str(cause)  # a Python function's


@pytest.fixture(scope="module")
def orders(spark, tmp_path_factory):
    """A table of many types with two rows."""
    table = new_table(spark, tmp_path_factory.mktemp("orders"), ORDERS, watermarkKey="ts")
    return fill(table, spark, [(1, None, "a", None, 10, None, 1), (2, None, "b", None, 10, (1, "y"), 2)])


@pytest.fixture(scope="module")
def source(spark):
    """Changes for the table, of fitting types."""
    return spark.sql(
        "SELECT id, 1.5BD AS amount, 'x' AS note, DATE'2024-01-01' AS day, 20 AS ts, 3L AS n, 'U' AS op, true AS flag, "
        "array(1, 2) AS items FROM VALUES (1), (2), (3) AS t(id)"
    )


@pytest.fixture(scope="module")
def merge(orders, source):
    """The beginning of a merge, under the aliases A and B."""
    return orders.alias("A").merge(source.alias("B"), "A.id = B.id")


@pytest.fixture(autouse=True)
def nothing_changes(request):
    """No mistake changes the shared table or leaves files behind."""
    if "orders" not in request.fixturenames:
        yield
        return
    orders = request.getfixturevalue("orders")
    before = (orders.version, batch_directories(orders))
    yield
    assert (orders.version, batch_directories(orders)) == before


# The shape of the chain -----------------------------------------------------------------------------------------------


def test_merge_without_a_clause(orders, source):
    with refused(InvalidMergeError, "no clause", "Add whenMatched"):
        orders.merge(source).execute()


def test_clause_without_an_action_at_the_end(merge):
    with refused(InvalidMergeError, "clause 1, whenMatched(\"B.op = 'D'\")", "no action", "before execute()"):
        merge.whenMatched("B.op = 'D'").execute()


def test_clause_without_an_action_in_the_middle(merge):
    with refused(InvalidMergeError, "clause 1, whenMatched()", "no action", "before whenNotMatched()", "delete()"):
        merge.whenMatched().whenNotMatched().insertAll()


def test_action_before_any_clause(merge):
    with refused(InvalidMergeError, "delete()", "there is no clause yet", "whenMatched"):
        merge.delete()
    with refused(InvalidMergeError, "insertAll()", "whenNotMatched"):
        merge.insertAll()


def test_action_the_clause_does_not_take(merge):
    with refused(InvalidMergeError, "whenNotMatched()", "cannot have delete()", "insertAll()"):
        merge.whenNotMatched().delete()
    with refused(InvalidMergeError, "whenNotMatchedAndExistsOnlyOnTarget()", "cannot have updateAll()", "updateExpr"):
        merge.whenNotMatchedBySource().updateAll()


def test_two_replacing_actions_in_one_clause(merge):
    with refused(InvalidMergeError, "clause 1, whenMatched()", "update and delete", "at most one update or delete"):
        merge.whenMatched().updateExpr({"n": "1"}).delete()


def test_unreachable_clause(merge):
    with refused(InvalidMergeError, 'clause 2, whenMatched("A.n > 1")', "can never run", "clause 1, whenMatched()"):
        merge.whenMatched().delete().whenMatched("A.n > 1")


def test_unreachable_clause_of_another_kind_between(merge):
    with refused(InvalidMergeError, "clause 3, whenNotMatched()", "can never run", "clause 1, whenNotMatched()"):
        merge.whenNotMatched().insertAll(["s"]).whenMatched().delete().whenNotMatched()


def test_misspelled_method_is_an_ordinary_AttributeError(merge):
    with pytest.raises(AttributeError, match="whenMatchd"):
        merge.whenMatchd()
    with pytest.raises(AttributeError, match="updateAl"):
        merge.whenMatched().updateAl()


# Arguments ------------------------------------------------------------------------------------------------------------


def test_condition_of_another_type(merge, orders, source):
    with refused(InvalidMergeError, "condition must be SQL text or a Column", "bool", "True"):
        merge.whenMatched(True)
    with refused(InvalidMergeError, "merge condition must be SQL text or a Column", "list"):
        orders.merge(source, ["id"])


def test_source_that_is_no_DataFrame(orders):
    with refused(InvalidMergeError, "source of a merge must be a DataFrame or a TrinityTable", "dict"):
        orders.merge({"id": 1})


def test_map_that_is_no_map(merge):
    for wrong in ({}, None, "n = 1", ["n"], {"n"}):
        with refused(InvalidMergeError, "updateExpr takes a map", "at least one entry"):
            merge.whenMatched().updateExpr(wrong)


def test_map_key_or_value_of_another_type(merge):
    with refused(InvalidMergeError, "insertExpr", "column name or a Column", "3"):
        merge.whenNotMatched().insertExpr({3: "B.id"})
    with refused(InvalidMergeError, "updateExpr, column 'n'", "list", "functions.lit"):
        merge.whenMatched().updateExpr({"n": [1]})


def test_settings_out_of_range(merge):
    with refused(InvalidMergeError, "onStale takes 'skip', 'error' or 'force'", "'drop'"):
        merge.onStale("drop")
    with refused(InvalidMergeError, "maxDeleteFraction takes a number from 0 to 1", "50"):
        merge.maxDeleteFraction(50)
    with refused(InvalidMergeError, "withTransaction takes a name and a whole number", "'7'"):
        merge.withTransaction("app", "7")
    with refused(InvalidMergeError, "alias must be a name", "''"):
        TrinityTable.alias(merge, "")


def test_exceptColumns_of_another_type(merge):
    for wrong in (3, [3], None):
        with refused(InvalidMergeError, "updateAll", "exceptColumns takes column names"):
            merge.whenMatched().updateAll(exceptColumns=wrong)


# Names ----------------------------------------------------------------------------------------------------------------


def test_wrong_column_in_the_merge_condition(orders, source):
    with refused(InvalidMergeError, "The merge condition", "Column 'B.idd' not found. Did you mean 'B.id'?"):
        orders.alias("A").merge(source.alias("B"), "A.id = B.idd").whenMatched().delete().build()


def test_wrong_column_in_a_clause_condition(merge):
    with refused(
        InvalidMergeError,
        'clause 1, whenMatched("A.amuont > 1")',
        "Column 'A.amuont' not found. Did you mean 'A.amount'?",
    ):
        merge.whenMatched("A.amuont > 1").delete().build()


def test_wrong_column_in_a_value(merge):
    with refused(InvalidMergeError, "clause 2, whenNotMatched(), insertExpr, column 'n'", "'B.nn'"):
        merge.whenMatched().delete().whenNotMatched().insertExpr({"id": "B.id", "n": "B.nn"}).build()


def test_wrong_column_as_a_map_key(merge):
    with refused(
        InvalidMergeError, "clause 1, whenMatched(), updateExpr", "no column 'amuont'", "Did you mean 'amount'"
    ):
        merge.whenMatched().updateExpr({"amuont": "1"}).build()
    with refused(InvalidMergeError, "no column 'nn'"):
        merge.whenMatched().updateExpr({"A.nn": "1"}).build()


def test_source_column_as_a_map_key(merge):
    with refused(InvalidMergeError, "no column 'B.n'", "Known: id, amount"):
        merge.whenMatched().updateExpr({"B.n": "1"}).build()


def test_wrong_struct_field(merge):
    with refused(InvalidMergeError, "exceptColumns takes whole columns", "'s.x'"):
        merge.whenMatched().updateAll(exceptColumns=["s.x"]).build()
    with refused(InvalidMergeError, "column 's' has no field 'z'", "Known: x, y"):
        merge.whenMatched().updateExpr({"s.z": "1"}).build()


def test_wrong_alias(merge):
    with refused(InvalidMergeError, "The condition of clause 1", "'C.n'"):
        merge.whenMatched("C.n = 1").delete().build()


def test_both_sides_under_one_alias(orders, source):
    with refused(InvalidMergeError, "`A`.`id` is ambiguous", "same alias", "another alias"):
        orders.alias("A").merge(source.alias("A"), "A.id = A.id").whenMatched().delete().build()


def test_unqualified_name_that_both_sides_have(merge, orders, source):
    with refused(InvalidMergeError, "clause 1", "`n` is ambiguous", "Qualify"):
        merge.whenMatched("n > 1").delete().build()
    with refused(InvalidMergeError, "clause 1, whenMatched(), updateExpr, column 'amount'", "`n` is ambiguous"):
        merge.whenMatched().updateExpr({"amount": "n"}).build()
    with refused(InvalidMergeError, "The merge condition", "`id` is ambiguous"):
        orders.merge(source, "id = id").whenMatched().delete().build()


def test_source_without_the_primary_key_and_no_condition(orders, source):
    with refused(
        InvalidMergeError,
        "pairs rows by the primary key",
        "Column 'id' is missing in the source; it has ",
        "pass a condition",
    ):
        orders.upsert(source.withColumnRenamed("id", "order_id")).build()


def test_source_with_reserved_columns(orders, source):
    with refused(InvalidMergeError, "start with '_tm_'", "_TM_x", "Drop or rename"):
        orders.upsert(source.withColumn("_TM_x", F.lit(1))).build()


def test_source_with_a_column_twice(orders, source):
    twice = source.select("*", F.lit(5).alias("N"))
    with refused(InvalidMergeError, "The source has several columns called 'n'", "Rename or drop all but one"):
        orders.merge(twice).whenMatched().updateAll(["s"]).build()


def test_column_bound_to_the_source_or_target_DataFrame(orders, source):
    bound = orders.toDF()
    with refused(InvalidMergeError, "The condition of clause 1", "bound to that DataFrame", "F.col('B.x')"):
        orders.alias("A").merge(source.alias("B"), "A.id = B.id").whenMatched(bound["n"] > 1).delete().build()
    with refused(InvalidMergeError, "The merge condition", "bound to that DataFrame"):
        orders.merge(source, bound.id == source.id).whenMatched().delete().build()
    with refused(InvalidMergeError, "updateExpr, column 'n'", "bound to that DataFrame"):
        orders.merge(source).whenMatched().updateExpr({"n": bound["n"]}).build()


def test_condition_that_does_not_parse(merge):
    with refused(InvalidMergeError, 'clause 1, whenMatched("B.op == ")', "Syntax error"):
        merge.whenMatched("B.op == ").delete().build()
    with refused(InvalidMergeError, "updateExpr, column 'n'", "Syntax error"):
        merge.whenMatched().updateExpr({"n": "B.n +"}).build()


# Conditions and values ------------------------------------------------------------------------------------------------


def test_condition_that_is_not_boolean(merge, orders, source):
    with refused(InvalidMergeError, "The condition of clause 1", "is string, not boolean", "Compare it"):
        merge.whenMatched("B.op").delete().build()
    with refused(InvalidMergeError, "The merge condition is int, not boolean"):
        orders.merge(source, "source.id").whenMatched().delete().build()


@pytest.mark.parametrize("condition", ["sum(B.n) > 1", "row_number() OVER (ORDER BY B.n) = 1", "explode(B.items) = 1"])
def test_condition_that_is_no_condition_of_one_row(merge, condition):
    with refused(InvalidMergeError, "The condition of clause 1, whenMatched", condition, "aggregates, window"):
        merge.whenMatched(condition).delete().build()


@pytest.mark.parametrize("value", ["max(B.n)", "count(1) OVER (PARTITION BY B.n)", "explode(B.items)"])
def test_value_that_is_no_value_of_one_row(merge, value):
    with refused(InvalidMergeError, "clause 1, whenMatched(), updateExpr, column 'n'", "aggregates, window"):
        merge.whenMatched().updateExpr({"amount": "1", "n": value}).build()


def test_merge_condition_that_is_no_condition_of_one_row(orders, source):
    with refused(InvalidMergeError, "The merge condition", "one pair of rows at a time"):
        orders.merge(source, "max(source.id) = target.id").whenMatched().delete().build()


def test_assigning_a_column_twice(merge):
    for twice in ({"n": "1", "N": "2"}, {"n": "1", "A.n": "2"}, {"s": "A.s", "s.x": "1"}, {"s.x": "1", "S.X": "2"}):
        with refused(InvalidMergeError, "clause 1, whenMatched()", "twice", "Keep one"):
            merge.whenMatched().updateExpr(twice).build()


def test_assigning_a_struct_and_a_field_below_the_same_field(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, s STRUCT<x: STRUCT<y: INT>>")
    with refused(InvalidMergeError, "assigns 's.x.y' twice"):
        table.updateWhere(None, {"s.x": "NULL", "s.x.y": "1"}).build()


def test_insert_without_the_primary_key(merge):
    with refused(InvalidMergeError, "clause 1, whenNotMatched()", "does not assign id", "primary key"):
        merge.whenNotMatched().insertExpr({"n": "B.n"}).build()


def test_insert_without_a_column_that_cannot_be_null(merge):
    with refused(InvalidMergeError, "clause 1, whenNotMatched()", "does not assign n (not nullable)"):
        merge.whenNotMatched().insertExpr({"id": "B.id"}).build()
    with refused(InvalidMergeError, "does not assign n (not nullable)"):
        merge.whenNotMatched().insertAll(exceptColumns=["n", "s"]).build()


def test_insert_into_a_struct_field(merge):
    with refused(InvalidMergeError, "insertExpr assigns a field of 's'", "named_struct"):
        merge.whenNotMatched().insertExpr({"id": "B.id", "n": "B.n", "s.x": "1"}).build()


def test_updateAll_with_a_missing_source_column(merge):
    words = (
        "clause 1, whenMatched()",
        "updateAll",
        "Column 's' is missing in the source; it has 'id', 'amount', ",
        "exceptColumns",
    )
    with refused(InvalidMergeError, *words) as caught:
        merge.whenMatched().updateAll().build()
    assert caught.value.columns == ["s"]
    assert caught.value.clause == 1


def test_exceptColumns_that_do_not_exist(merge):
    with refused(InvalidMergeError, "clause 1, whenMatched(), updateAll", "no column 'nots'", "Did you mean 'note'"):
        merge.whenMatched().updateAll(exceptColumns=["nots"]).build()


# Types and values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "kinds"),
    [
        ("n", "B.flag", ("bigint", "boolean")),
        ("day", "5", ("date", "int")),
        ("amount", "B.items", ("decimal(6,2)", "array<int>")),
        ("s", "named_struct('x', 1)", ("struct<x:int,y:string>", "struct<x:int>")),
        ("note", "B.items", ("varchar(5)", "array<int>")),
    ],
)
def test_type_that_does_not_fit(merge, column, value, kinds):
    words = ("clause 1, whenMatched()", f"column '{column}' is {kinds[0]}", f"type {kinds[1]}", "Cast")
    with refused(SchemaMismatchError, *words) as caught:
        merge.whenMatched().updateExpr({column: value}).build()
    assert caught.value.column == column


def test_type_that_does_not_fit_a_struct_field(merge):
    with refused(SchemaMismatchError, "column 's.x' is int", "value string", "Cast"):
        merge.whenMatched().updateExpr({"s.x": "B.op"}).build()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("amount", "B.amount * 100000", ("decimal(6,2)", "150000")),
        ("note", "'too long'", ("varchar(5)", "'too long'")),
        ("day", "'31.12.2024'", ("date", "'31.12.2024'")),
        ("n", "'12x'", ("bigint", "'12x'")),
        ("ts", "B.n * 3000000000", ("int", "9000000000")),
    ],
)
def test_value_that_does_not_fit(merge, column, value, words):
    with refused(SchemaMismatchError, f"Column '{column}' is", "2 rows", *words, "Nothing was written") as caught:
        merge.whenMatched().updateExpr({column: value}).execute()
    assert caught.value.column == column


def test_null_in_a_column_that_cannot_be_null(merge):
    words = ("Column 'n' must not be null", "2 rows", "clause 1, whenMatched()", "id=1")
    with refused(SchemaMismatchError, *words):
        merge.whenMatched().updateExpr({"n": "nullif(B.n, 3)"}).execute()


def test_null_key(orders, source):
    nulls = source.withColumn("id", F.when(F.col("id") < 3, F.col("id")))
    with refused(
        NullKeyError, "primary-key column 'id' of 1 row ", "clause 1, whenNotMatched()", "id=None", "Filter such rows"
    ):
        orders.merge(nulls).whenNotMatched().insertAll(exceptColumns=["s"]).execute()


def test_expression_that_fails_when_it_runs(merge):
    with refused(InvalidMergeError, "could not be evaluated", "oops", "Nothing was written"):
        merge.whenMatched().updateExpr({"n": "B.n + CAST(raise_error('oops') AS INT)"}).execute()


@pytest.mark.filterwarnings("ignore:.*pandas:Warning")
def test_python_function_that_fails_when_it_runs(merge):
    def fail(number):
        raise ValueError(f"no {number}, please")

    function = F.udf(fail, "bigint")
    with refused(InvalidMergeError, "could not be evaluated: ValueError: no 3, please", "Nothing was written"):
        merge.whenMatched().updateExpr({"n": function("B.n")}).execute()


def test_source_that_fails_when_it_runs(orders, spark):
    broken = spark.range(3).selectExpr("CAST(id AS INT) AS id", "CAST(raise_error('broken source') AS BIGINT) AS n")
    with refused(InvalidMergeError, "broken source", "Nothing was written"):
        orders.merge(broken).whenMatched().updateExpr({"n": "source.n"}).execute()


# Tables ---------------------------------------------------------------------------------------------------------------


def test_no_table_at_the_path(spark, tmp_path):
    with refused(TableNotFoundError, "no trinitymerge table at", "nowhere", "TrinityTable.create"):
        TrinityTable.forPath(spark, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError):
        TrinityTable.forPath(spark, str(tmp_path))


def test_version_or_time_that_does_not_exist(spark, orders):
    with refused(TableNotFoundError, "no version 99", "versions 0 to 1"):
        TrinityTable.forPath(spark, orders.path, versionAsOf=99)
    with refused(TableNotFoundError, "did not exist at 2001-01-01"):
        TrinityTable.forPath(spark, orders.path, timestampAsOf="2001-01-01T00:00:00+00:00")
    with pytest.raises(ValueError, match="not both"):
        TrinityTable.forPath(spark, orders.path, versionAsOf=0, timestampAsOf="2001-01-01")


def test_time_that_does_not_parse(spark, orders):
    with pytest.raises(ValueError, match="yesterday"):
        TrinityTable.forPath(spark, orders.path, timestampAsOf="yesterday")


def test_path_holds_a_table_already(spark, orders):
    with refused(TableExistsError, "There is a table at", "forPath", "createIfNotExists"):
        TrinityTable.create(spark, orders.path, "id INT", primaryKey="id")


def test_path_is_taken_by_other_files(spark, tmp_path):
    spark.range(1).write.parquet(str(tmp_path / "lake"))
    with refused(TableExistsError, "lake is not empty and not a trinitymerge table", ".parquet", "Choose a path"):
        TrinityTable.create(spark, str(tmp_path / "lake"), "id INT", primaryKey="id")


def test_path_is_a_file(spark, tmp_path):
    (tmp_path / "file.csv").write_text("id")
    with refused(TableExistsError, "file.csv is a file", "Choose a path"):
        TrinityTable.create(spark, str(tmp_path / "file.csv"), "id INT", primaryKey="id")
    with refused(TableNotFoundError, "no trinitymerge table at"):
        TrinityTable.forPath(spark, str(tmp_path / "file.csv"))
    assert not TrinityTable.isTrinityTable(spark, str(tmp_path / "file.csv"))


def test_path_below_a_file(spark, tmp_path):
    (tmp_path / "file.csv").write_text("id")
    with refused(TableExistsError, "file.csv"):
        TrinityTable.create(spark, str(tmp_path / "file.csv" / "table"), "id INT", primaryKey="id")


def test_createIfNotExists_with_another_definition(spark, orders):
    with refused(TableExistsError, "another definition", "primaryKey is ('id',), not ('n',)", "forPath"):
        TrinityTable.createIfNotExists(spark, orders.path, ORDERS, primaryKey="n", watermarkKey="ts")
    with refused(TableExistsError, "its column 'ts' is", "not date"):
        TrinityTable.createIfNotExists(spark, orders.path, "id INT, ts DATE", primaryKey="id", watermarkKey="ts")


def test_schema_that_does_not_parse(spark, tmp_path):
    with refused(InvalidDefinitionError, "schema cannot be parsed", "INTEGERR"):
        TrinityTable.create(spark, str(tmp_path / "t"), "id INTEGERR", primaryKey="id")
    with refused(InvalidDefinitionError, "DDL text or a StructType", "list"):
        TrinityTable.create(spark, str(tmp_path / "t"), ["id"], primaryKey="id")


def test_writing_to_a_past_version(spark, orders, source):
    past = TrinityTable.forPath(spark, orders.path, versionAsOf=0)
    for write in (
        lambda: past.upsert(source),
        lambda: past.merge(source),
        lambda: past.deleteWhere("true"),
        lambda: past.updateWhere(None, {"n": "1"}),
    ):
        with refused(ReadOnlyTableError, "opened at version 0", "read only", "versionAsOf"):
            write()


def test_batch_that_somebody_removed(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT"), spark, [(1,)])
    (name,) = batch_directories(table)
    shutil.rmtree(tmp_path / table.path.rsplit("/", 1)[1] / "data" / name)
    with refused(CorruptTableError, name, "gone", "restore"):
        table.toDF()


def test_errors_survive_pickling(orders):
    """They cross process borders, for instance from a worker of a test runner."""
    with pytest.raises(InvalidMergeError) as caught:
        orders.alias("")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)


def test_errors_of_other_queries_stay_sparks_own(spark, merge):
    """Keeping Spark quiet about a merge must not break how Spark reports the next mistake elsewhere."""
    with refused(InvalidMergeError, "amuont"):
        merge.whenMatched("A.amuont > 1").delete().build()
    with pytest.raises(AnalysisException, match="no_such_column"):
        spark.range(1).select("no_such_column").collect()
    with pytest.raises(AnalysisException, match="no_such_column"):
        spark.sql("SELECT no_such_column FROM range(1)").collect()


# What looks like a mistake but is none --------------------------------------------------------------------------------


def test_target_as_its_own_source(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v INT"), spark, [(1, 5), (2, 6)])
    result = (
        table.alias("A")
        .merge(table.toDF().alias("B"), "A.id = B.id")
        .whenMatched("A.v > 5")
        .updateExpr({"v": "B.v + A.v"})
    ).execute()
    assert result.rowsUpdated == 1
    table.merge(table).whenMatched("target.id = 1").delete().execute()
    table.upsert(table.toDF().withColumn("v", F.col("v") + 1)).execute()
    assert [tuple(row) for row in table.toDF().collect()] == [(2, 13)]


def test_target_as_its_own_source_on_the_full_scan(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, boss INT, v INT"), spark, [(1, 1, 5), (2, 1, 6), (3, 9, 7)])
    condition = "A.boss = B.id AND A.id <> B.id"
    table.alias("A").merge(table.toDF().alias("B"), condition).whenMatched().updateExpr({"v": "B.v * 10"}).execute()
    assert sorted(tuple(row) for row in table.toDF().collect()) == [(1, 1, 5), (2, 1, 50), (3, 9, 7)]


HOSTILE = ["o'id", "a.b", "sp ace", 'qu"ote', "ba`ck", "größe", "sel;ect--", "100%", "π", "source", "target", "*"]


def test_hostile_column_names_work_end_to_end(spark, tmp_path):
    schema = StructType()
    for name in HOSTILE:
        schema = schema.add(name, IntegerType() if name in HOSTILE[:3] else StringType())
    table = TrinityTable.create(spark, str(tmp_path / "h"), schema, primaryKey=HOSTILE[:2], watermarkKey="sp ace")
    rest = [f"v{i}" for i in range(len(HOSTILE) - 3)]
    rows = [(key, key, 1, *rest) for key in (1, 2, 3)]
    table.upsert(spark.createDataFrame(rows, schema)).execute()
    changes = spark.createDataFrame([(1, 1, 2, *rest), (2, 2, 2, *rest), (4, 4, 2, *rest)], schema)
    result = (
        table.alias("A")
        .merge(changes.alias("B"), "A.`o'id` = B.`o'id` AND A.`a.b` = B.`a.b`")
        .whenMatched("B.`a.b` = 2")
        .delete()
        .whenMatched("A.`ba``ck` = 'v1'")
        .updateExpr({"`ba``ck`": "concat(A.`ba``ck`, '!')", "A.`größe`": "B.`sp ace`", "sel;ect--": "''", "*": "NULL"})
        .whenNotMatched()
        .insertAll()
        .execute()
    )
    assert (result.rowsInserted, result.rowsUpdated, result.rowsDeleted) == (1, 1, 1)
    found = {row[0]: dict(zip(HOSTILE, row, strict=True)) for row in table.toDF().collect()}
    assert sorted(found) == [1, 3, 4]
    changed = {n: v for n, v in found[1].items() if v != dict(zip(HOSTILE, rows[0], strict=True))[n]}
    assert changed == {"sp ace": 2, "ba`ck": "v1!", "größe": "2", "sel;ect--": "", "*": None}


def test_hostile_values_are_data(spark, tmp_path):
    texts = ["'; DROP TABLE x; --", "\\", "it's", "a\tb\nc", "`", "", " ", "\u0000", "ⅷ😀"]
    table = new_table(
        spark, tmp_path, "id STRING, v STRING, dead STRING", tombstoneKey="dead", tombstoneStringValue="it's \\"
    )
    table.upsert(frame(spark, "id STRING, v STRING", *[(t, t) for t in texts])).execute()
    table.delete(frame(spark, "id STRING", *texts[:2])).execute()
    assert sorted(row.v for row in table.toDF().collect()) == sorted(texts[2:])


def test_python_literals_are_stored_as_they_are(spark, tmp_path):
    at, day = dt.datetime(2024, 5, 6, 7, 8, 9, 123456), dt.date(2024, 5, 6)
    table = fill(
        new_table(spark, tmp_path, "id INT, at TIMESTAMP, day DATE, b BOOLEAN, x DOUBLE"), spark, [(1, *[None] * 4)]
    )
    table.updateWhere("id = 1", {"at": at, "day": day, "b": True, "x": 1.5}).execute()
    assert [tuple(row) for row in table.toDF().collect()] == [(1, at, day, True, 1.5)]


def test_S29_varchar_key_whose_trailing_blanks_do_not_fit_is_refused_on_every_path(spark, tmp_path):
    table = new_table(spark, tmp_path, "k VARCHAR(3), v VARCHAR(3)", primaryKey="k")
    table.upsert(spark.sql("SELECT 'abc' AS k, 'x' AS v")).execute()
    for path in (APPEND_ONLY, KEY_LOOKUP, FULL_SCAN):
        with pytest.raises(SchemaMismatchError, match=r"Column 'k' is varchar\(3\).*'abc '"):
            table.upsert(spark.sql("SELECT 'abc ' AS k, 'y' AS v"))._with_strategy(path).execute()
    table.upsert(spark.sql("SELECT 'abc' AS k, 'y  ' AS v UNION ALL SELECT 'd ', 'z    '")).execute()
    assert live_rows(table) == [("abc", "y  "), ("d ", "z  ")]


def test_a_source_with_two_columns_of_one_name(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, m MAP<STRING, INT>")
    with refused(InvalidMergeError, "several columns called 'm'", "Rename or drop all but one"):
        table.upsert(spark.sql("SELECT 1 AS id, map('a', 1) AS m, map() AS M")).build()
    table.upsert(spark.sql("SELECT 1 AS id, map() AS m")).execute()  # the empty map has no types
    assert [tuple(row) for row in table.toDF().collect()] == [(1, {})]
