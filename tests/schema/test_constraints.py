"""S45 and S46: rules that the rows of a table fulfil, and what inserts put where nothing is said."""

from __future__ import annotations

import datetime as dt
from typing import Any

import attrs
import pytest
from helpers import assertRows
from lanes import Verdicts, difference, lanes_of, program, refusal_difference
from smallest import as_text, smallest
from tables import fill, frame, live_rows, new_table, on_every_path
from test_costs import jobs_of
from test_errors import refused

from trinitymerge import (
    Check,
    ConstraintError,
    InvalidDefinitionError,
    InvalidMergeError,
    SchemaMismatchError,
    TrinityTable,
    errors,
)
from trinitymerge.maintenance.alter import TableAlteration
from trinitymerge.merge.model.clauses import All, Assignments, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import with_check
from trinitymerge.schema.field import Field
from trinitymerge.spark.ddl import fields_of
from trinitymerge.testing import MergeCase, ModelTable
from trinitymerge.testing.model.expressions import source

STOCK = "id INT, ts INT, item STRING DEFAULT 'none', n INT DEFAULT 0, gone BOOLEAN"
KEYS = {"watermarkKey": "ts", "tombstoneKey": "gone"}
ROWS = [(1, 10, "a", 5, False), (2, 10, "b", 7, False), (3, 10, "c", None, False)]


@pytest.fixture
def stock(spark, tmp_path) -> TrinityTable:
    return fill(new_table(spark, tmp_path, STOCK, **KEYS), spark, ROWS)


def alter(table: TrinityTable, call: str, *arguments: Any) -> tuple[str, ...]:
    return getattr(table.alter(), call)(*arguments).execute().changes


# Checks -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_S45_a_merge_with_a_row_that_breaks_a_check_is_refused_whole_on_every_path(stock, spark):
    assert alter(stock, "addCheck", "enough", "n >= 0 -- of each") == (
        "CHECK enough (n >= 0 -- of each) is a constraint",
    )
    changes = frame(spark, "id INT, ts INT, item STRING, n INT", (1, 20, "A", -1), (2, 20, "B", 8), (9, 20, "z", -3))

    def upsert(table: TrinityTable) -> Any:
        return table.merge(changes).whenMatched().updateAll().whenNotMatched().insertAll()

    words = [
        "2 rows of the merge break the constraint 'enough' (n >= 0",
        "(id=1, n=-1); (id=9, n=-3)",
        "Nothing was written",
    ]
    for count in ("blind", "counted"):
        with refused(ConstraintError, *words) as caught:
            (upsert(stock) if count == "blind" else upsert(stock).withCounts()).execute()
        assert (caught.value.constraint, caught.value.rows, caught.value.keys) == ("enough", 2, [(1,), (9,)])
    with refused(ConstraintError, "1 row of the merge breaks", "(id=2, n=-93)", 'updateWhere("id = 2")'):
        stock.updateWhere("id = 2", {"n": "n - 100"}).execute()
    assertRows(stock.toDF(), ROWS)
    for run in on_every_path(stock, lambda table: upsert_of(table, changes.filter("n > 0")), spark):
        assert run.row(2) == (2, 20, "B", 8, False)


def upsert_of(table: TrinityTable, rows: Any) -> Any:
    return table.merge(rows).whenMatched().updateAll().whenNotMatched().insertAll()


def test_S45_null_passes_tombstones_and_rows_that_are_not_written_are_not_judged(stock, spark):
    stock.alter().addCheck("enough", "n > 0").addCheck("named", "item IS NOT NULL").execute()  # n of row 3 is null
    changes = frame(
        spark, STOCK_COLUMNS, (1, 20, None, -1, True), (2, 5, "late", None, False), (4, 20, "d", None, False)
    )
    stock.upsert(changes).execute()
    assert [row[0] for row in live_rows(stock)] == [2, 3, 4]
    left_out = frame(spark, STOCK_COLUMNS, (4, 30, "d", -5, False))
    stock.merge(left_out).whenMatched("source.n > 0").updateAll().execute()
    assert live_rows(stock)[-1] == (4, 20, "d", None, False)
    with refused(ConstraintError, "(id=2, n=-4)"):  # late, and yet a row of the table
        stock.upsert(frame(spark, STOCK_COLUMNS, (2, 1, "later", -4, False))).execute()


STOCK_COLUMNS = "id INT, ts INT, item STRING, n INT, gone BOOLEAN"


def test_S45_an_error_of_types_comes_before_one_of_checks_and_that_before_taken_keys(stock, spark):
    alter(stock, "addCheck", "enough", "n > 0")
    alter(stock, "setNotNull", "item")
    both = [(1, 20, "a", "-5"), (2, 20, "b", "many")]
    with refused(SchemaMismatchError, "'many'"):
        stock.upsert(frame(spark, "id INT, ts INT, item STRING, n STRING", *both)).execute()
    with refused(SchemaMismatchError, "Column 'item' must not be null"):
        stock.upsert(frame(spark, STOCK_COLUMNS, (1, 20, None, -1, False))).execute()
    with refused(ConstraintError, "(id=1, n=-1)"):
        stock.insert(frame(spark, STOCK_COLUMNS, (1, 20, "a", -1, False))).execute()


def test_S45_live_rows_that_break_a_new_rule_are_named_and_nothing_is_altered(stock, spark):
    fill(stock, spark, [(1, 20, None, 1, True), (4, 10, "d", -1, False)])
    version = stock.version
    with refused(ConstraintError, "1 row of", "breaks CHECK enough (n >= 0)", "(id=4, ts=10, item='d', n=-1"):
        alter(stock, "addCheck", "enough", "n >= 0")
    with refused(ConstraintError, "1 row of", "NOT NULL of column 'n'", "id=3"):
        alter(stock, "setNotNull", "n")
    assert (stock.version, stock.definition.checks) == (version, ())
    assert alter(stock, "setNotNull", "item") == ("column item must not be null",)  # null in a tombstone alone
    stock.updateWhere("n < 0 OR n IS NULL", {"n": "DEFAULT"}).execute()
    stock.alter().addCheck("enough", "n >= 0").setNotNull("n").execute()
    stock.compact(full=True)
    assert [row[3] for row in live_rows(stock)] == [7, 0, 0]
    alter(stock, "setNullable", "n")
    assert alter(stock, "dropCheck", "ENOUGH") == ("constraint enough is dropped",)
    fill(stock, spark, [(1, 30, "x", -9, False), (2, 30, "y", None, False)])


def test_S45_rows_that_land_while_a_check_is_added_are_looked_at(stock, spark, monkeypatch):
    commit, landed = TableAlteration._commit, []

    def late(self: Any, *arguments: Any) -> Any:
        if not landed:
            landed.append(fill(stock, spark, [(8, 10, "h", -8, False)]))
        return commit(self, *arguments)

    monkeypatch.setattr(TableAlteration, "_commit", late)
    with refused(ConstraintError, "id=8"):
        alter(stock, "addCheck", "enough", "n >= 0")
    assert landed
    assert not stock.definition.checks


@pytest.mark.parametrize("before", [True, False], ids=["before it runs", "while it runs"])
def test_S35_S45_a_merge_that_was_built_before_a_check_came_is_judged_by_it(stock, spark, monkeypatch, before):
    bad = frame(spark, STOCK_COLUMNS, (1, 20, "a", -1, False))
    plan = stock.upsert(bad).build()
    if before:
        alter(stock, "addCheck", "enough", "n >= 0")
    else:
        done, store = [], type(plan.spec.store)
        real = store.commit

        def commit(self: Any, *arguments: Any) -> Any:
            if not done:
                done.append(True)
                alter(stock, "addCheck", "enough", "n >= 0")
            return real(self, *arguments)

        monkeypatch.setattr(store, "commit", commit)
    with refused(ConstraintError, "(id=1, n=-1)"):
        plan.execute()
    assertRows(stock.toDF(), ROWS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("x", "n"), ["constraint 'x' is int, not boolean"]),
        (("x", "rand() > n"), ["not deterministic"]),
        (("x", "sum(n) > 1"), ["'x'", "aggregates"]),
        (("x", "row_number() OVER (ORDER BY n) > 1"), ["'x'"]),
        (("x", "n IN (SELECT 1)"), ["has a query in it"]),
        (("x", "m > 0"), ["'x'", "'m'"]),
        (("x", "id > 0 AND ITEM = '*'"), ["must spell column 'item'"]),
        (("x", "item <> user"), ["has a word in it", "Write it as a call: user()"]),
        (("x", "to_json(struct(*)) <> ''"), ["has a * in it"]),
        (("x", "N > 0"), ["must spell column 'n' as the table does", "`n`"]),
        (("x", "n > "), ["'x'", "SYNTAX"]),
        (("x", "1 / n > 0 OR assert_true(n > 100) IS NULL"), ["cannot be computed", "Nothing was altered"]),
        (("", "n > 0"), ["needs a name"]),
        (("x", ""), ["must be SQL text"]),
        (("x", None), ["must be SQL text"]),
    ],
)
def test_S45_what_cannot_be_a_check_is_refused(stock, arguments, words):
    with refused(InvalidDefinitionError, *words):
        alter(stock, "addCheck", *arguments)
    assert stock.definition.checks == ()


def test_S45_what_a_check_is_about_stays_as_it_is(stock, spark):
    alter(stock, "addCheck", "enough", "coalesce(n, 1) > 0 AND item <> 'ts'")
    assert stock.definition.checks == (Check("enough", "coalesce(n, 1) > 0 AND item <> 'ts'", ["item", "n"]),)
    for call in [("renameColumn", "n", "m"), ("dropColumn", "N"), ("widenColumn", "n", "BIGINT")]:
        with refused(InvalidDefinitionError, "constraint 'enough'", "Drop the constraint with dropCheck() first"):
            alter(stock, *call)
    with refused(InvalidDefinitionError, "already has a constraint 'ENOUGH'"):
        alter(stock, "addCheck", "ENOUGH", "true")
    with refused(InvalidDefinitionError, "no constraint 'enoug'", "Did you mean 'enough'?"):
        alter(stock, "dropCheck", "enoug")
    wide = frame(spark, "id INT, ts INT, item STRING, n BIGINT, colour STRING", (1, 20, "a", 3, "red"))
    stock.merge(wide).withSchemaEvolution().whenMatched().updateAll().execute()
    assert [f.text for f in stock.definition.fields] == ["int", "int", "string", "int", "boolean", "string"]
    listed = frame(spark, "id INT, ts INT, item ARRAY<STRING>", (1, 30, ["a"]))
    with refused(SchemaMismatchError, "It keeps its type, for the constraint 'enough' is about it"):
        stock.merge(listed).withSchemaEvolution().whenMatched().updateAll().build()
    assert stock.alter().dropCheck("enough").renameColumn("n", "m").addCheck("enough", "m > 0").execute().changes


def test_S45_a_check_that_comes_to_be_about_another_column_is_a_new_one(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, a INT, b INT", primaryKey="id"), spark, [(1, 5, -5)])
    alter(table, "addCheck", "c", "a > 0 AND id > 0")
    assert table.definition.checks[0].columns == ("id", "a")
    exchanged = (
        table.alter().dropCheck("c").renameColumn("a", "z").renameColumn("b", "a").addCheck("c", "a > 0 AND id > 0")
    )
    with refused(ConstraintError, "id=1, z=5, a=-5"):
        exchanged.execute()
    anew = table.alter().dropCheck("c").dropColumn("a").addColumn("a", "INT").addCheck("c", "a IS NOT NULL AND id > 0")
    with refused(ConstraintError, "id=1, b=-5, a=None"):
        anew.execute()
    assert table.definition.names == ("id", "a", "b")


def test_S45_what_is_quoted_or_a_comment_is_no_word(stock):
    condition = "item NOT IN ('user', '(select *', \"current_date\") -- (select user, *)"
    assert alter(stock, "addCheck", "c", condition) == (f"CHECK c ({condition}) is a constraint",)


def test_S46_a_table_with_defaults_is_created_without_a_job(spark, tmp_path):
    with jobs_of(spark) as jobs:
        new_table(spark, tmp_path, STOCK, **KEYS)
    assert jobs.count == 0


def test_S45_a_column_may_be_called_as_a_function_is(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, user STRING", primaryKey="id")
    alter(table, "addCheck", "c", "user <> 'root' AND current_user() IS NOT NULL")
    assert table.definition.checks[0].columns == ("user",)
    with refused(InvalidDefinitionError, "cannot be dropped"):
        alter(table, "dropColumn", "user")
    table.insert(frame(spark, "id INT, user STRING", (1, "ann"))).execute()
    with refused(ConstraintError, "user='root'"):
        table.insert(frame(spark, "id INT, user STRING", (2, "root"))).execute()


@pytest.mark.classic("asks another session of the JVM, which Spark Connect has none of")
def test_S45_S46_what_only_this_session_knows_is_refused(stock, spark):
    spark.udf.register("known_here", lambda n: True, "boolean")
    with refused(InvalidDefinitionError, "known_here", "This session knows more than others do"):
        alter(stock, "addCheck", "c", "known_here(n)")
    with refused(InvalidDefinitionError, "known_here", "Use what all of them know"):
        alter(stock, "setDefault", "item", "string(known_here(1))")
    assert stock.version == 1


def test_S45_a_check_that_cannot_be_computed_is_named(stock, spark):
    stock.updateWhere("n IS NULL", {"n": "1"}).execute()
    alter(stock, "addCheck", "c", "element_at(array(1), int(n <> 0)) > 0")
    with refused(InvalidMergeError, "could not be evaluated", "CHECK c (element_at"):
        stock.upsert(frame(spark, STOCK_COLUMNS, (1, 20, "a", 0, False))).execute()


def test_S45_checks_come_and_go_with_the_definition(stock, spark, tmp_path):
    alter(stock, "addCheck", "enough", "n >= 0")
    bad = frame(spark, STOCK_COLUMNS, (1, 20, "a", -1, False))
    clone = stock.clone(str(tmp_path / "clone"))
    with refused(ConstraintError, "enough"):
        clone.upsert(bad).execute()
    stock.restore(1)
    assert stock.upsert(bad).execute().rowsAppended == 1
    assert "n &gt;= 0" in clone.definition._repr_html_()


def test_S45_S46_rules_survive_json():
    plain = TableDefinition.of([Field("id", "long")], primaryKey="id")
    default = TableDefinition.of([Field("id", "long"), Field("n", "long", default="1")], primaryKey="id")
    for definition in (default, with_check(plain, Check("x", "id > 0", ["id"]))):
        assert TableDefinition.from_json(definition.to_json()) == definition


def test_S27_S45_rows_for_another_table_are_checked_before_the_merge_commits(stock, spark, tmp_path):
    past = new_table(spark, tmp_path, "id INT, was INT, why STRING DEFAULT 'merged'", primaryKey=["id", "was"])
    alter(past, "addCheck", "small", "was < 7 AND why <> ''")
    merge = stock.merge(frame(spark, "id INT, ts INT, n INT", (1, 20, 1), (2, 20, 2))).whenMatched()
    remembered = merge.updateExpr({"n": "source.n"}).insertHistoryExpr({"id": "id", "was": "n"}, past)
    with refused(ConstraintError, "insertHistoryExpr into", "1 row", "(id=2, was=7, why='merged')"):
        remembered.execute()
    assertRows(stock.toDF(), ROWS)
    alter(past, "dropCheck", "small")
    again = stock.merge(frame(spark, "id INT, ts INT, n INT", (1, 20, 1), (2, 20, 2))).whenMatched()
    again.updateExpr({"n": "source.n"}).insertHistoryExpr({"id": "id", "was": "n", "why": "DEFAULT"}, past).execute()
    assert sorted(live_rows(past)) == [(1, 5, "merged"), (2, 7, "merged")]


# Defaults ---------------------------------------------------------------------------------------------------------------


def test_S46_DDL_has_defaults(spark):
    columns = fields_of(
        "id INT, `a b` STRING NOT NULL DEFAULT 'x, y' COMMENT 'its', c BOOLEAN DEFAULT 1 < 2, default INT"
    )
    assert [(f.name, f.default, f.comment, f.nullable) for f in columns] == [
        ("id", None, None, True),
        ("a b", "'x, y'", "its", False),
        ("c", "1 < 2", None, True),
        ("default", None, None, True),
    ]
    nested = "a STRUCT<x: INT, y: STRING> DEFAULT named_struct('x', 1, 'y', ',') NOT NULL, b DECIMAL(4,2) DEFAULT -1.5"
    assert [(f.default, f.nullable) for f in fields_of(nested)] == [
        ("named_struct('x', 1, 'y', ',')", False),
        ("-1.5", True),
    ]


def test_S46_comments_in_DDL_are_none_of_its_columns(spark):
    schema = "id INT, -- key, don't touch; never DEFAULT 7, the identity\n x INT DEFAULT 1 -- of a, b\n, y INT /* c, DEFAULT d */"
    assert [(f.name, f.default) for f in fields_of(schema)] == [("id", None), ("x", "1"), ("y", None)]
    for computed in ("GENERATED BY DEFAULT AS IDENTITY", "GENERATED ALWAYS AS (id + 1)"):
        with refused(InvalidDefinitionError, computed.split(" AS ")[0]):
            fields_of(f"id BIGINT, x BIGINT {computed}, y INT DEFAULT 5")


def test_S46_inserts_put_the_default_where_nothing_is_said_and_updates_leave_what_is_there(stock, spark):
    """Each of the ways to say nothing: a map, `exceptColumns`, `columns`, a source that lacks the column."""
    keys = frame(spark, "id INT, ts INT", (1, 20), (9, 20))
    stock.upsert(keys).execute()
    maps = (
        stock.merge(frame(spark, "id INT, ts INT", (10, 20)))
        .whenNotMatched()
        .insertExpr({"id": "source.id", "gone": "false"})
    )
    maps.execute()
    whole = frame(spark, STOCK_COLUMNS, (11, 20, "k", 1, False), (12, 20, None, None, False))
    stock.merge(whole).whenNotMatched().insertAll(exceptColumns=["n"]).execute()
    stock.merge(frame(spark, STOCK_COLUMNS, (13, 20, "m", 1, False))).whenNotMatched().insertAll(
        columns=["n", "ts"]
    ).execute()
    assertRows(
        stock.toDF().filter("id = 1 OR id > 8"),
        [
            (1, 20, "a", 5, False),
            (9, 20, "none", 0, False),
            (10, 20, "none", 0, False),
            (11, 20, "k", 0, False),
            (12, 20, None, 0, False),  # a null is said
            (13, 20, "none", 1, False),
        ],
    )


def test_S46_the_word_DEFAULT_is_the_columns_default(stock, spark):
    merge = stock.merge(frame(spark, "id INT, ts INT", (1, 20), (9, 20)))
    merge.whenMatched().updateExpr({"n": "DEFAULT", "item": "default"}).whenNotMatched().insertExpr(
        {"id": "source.id", "n": "Default", "gone": "DEFAULT"}
    ).execute()
    assert [live_rows(stock)[0], live_rows(stock)[-1]] == [(1, 20, "none", 0, False), (9, 20, "none", 0, None)]
    named = frame(spark, "id INT, ts INT, `default` STRING", (1, 30, "mine"))
    stock.merge(named).whenMatched().updateExpr({"item": "default"}).execute()
    assert live_rows(stock)[0] == (1, 30, "mine", 0, False)


def test_S46_rows_that_are_there_stay_and_later_inserts_follow(stock, spark):
    result = (
        stock.alter()
        .addColumn("at", "DATE DEFAULT current_date()")
        .setDefault("n", "1 + 1")
        .dropDefault("item")
        .execute()
    )
    assert result.changes == (
        "the default of column item is null",
        "the default of column n is 1 + 1",
        "column at date DEFAULT current_date() is added",
    )
    assert stock.definition.field("at").default == "current_date()"
    stock.insert(frame(spark, "id INT, ts INT, item STRING", (9, 20, "i"))).execute()
    with refused(InvalidMergeError, "Column 'item' is missing in the source"):  # neither a default, nor added later
        stock.insert(frame(spark, "id INT, ts INT", (8, 20))).execute()
    today = spark.sql("SELECT current_date()").collect()[0][0]
    assert [live_rows(stock)[0], live_rows(stock)[-1]] == [(1, 10, "a", 5, False, None), (9, 20, "i", 2, False, today)]
    past = TrinityTable.forPath(spark, stock.path, versionAsOf=1)
    assert past.definition.field("n").default == "0"


@pytest.mark.parametrize(
    ("column", "default", "words"),
    [
        ("n", "'many'", ["column 'n' does not fit", "int", "'many'"]),
        ("n", "3000000000", ["does not fit", "'3000000000'"]),
        ("n", "array(1)", ["array<int>", "Cast it explicitly"]),
        ("n", "ts + 1", ["column 'n'", "'ts'"]),
        ("n", "rand()", ["is not deterministic"]),
        ("n", "sum(1)", ["column 'n'"]),
        ("n", "(SELECT 1)", ["has a query in it"]),
        ("n", "element_at(array(1), 0)", ["cannot be computed"]),
        ("item", "current_user", ["has a word in it", "Write it as a call: current_user()"]),
        ("id", "1", ["part of the primary key, and cannot have a default"]),
        ("ts", "1", ["part of the watermark"]),
        ("gone", "false", ["the tombstone key"]),
        ("m", "1", ["no column 'm'"]),
        ("n", " ", ["must be SQL text"]),
        ("n", 1, ["must be SQL text", "got 1"]),
    ],
)
def test_S46_what_cannot_be_a_default_is_refused(stock, spark, column, default, words):
    with refused(InvalidDefinitionError, *words):
        stock.alter().setDefault(column, default).execute()
    assert stock.version == 1


def test_S46_a_table_with_a_default_that_does_not_fit_is_not_created(spark, tmp_path):
    for schema, words in [
        ("id INT, n INT DEFAULT 'x'", "does not fit"),
        ("id INT, n INT NOT NULL DEFAULT NULL", "is null, and the column must not be null"),
        ("id INT, n INT DEFAULT", "a value follows the word DEFAULT"),
        ("id INT DEFAULT 1, n INT", "part of the primary key"),
        ("id INT, v CHAR(2) DEFAULT 'abc'", "does not fit"),
    ]:
        with refused(InvalidDefinitionError, words):
            new_table(spark, tmp_path, schema)
    table = new_table(
        spark, tmp_path, "id INT, v CHAR(3) NOT NULL DEFAULT 'a', at TIMESTAMP DEFAULT TIMESTAMP'2024-01-01 00:00:00'"
    )
    table.insert(frame(spark, "id INT", (1,))).execute()
    assert live_rows(table) == [(1, "a  ", dt.datetime(2024, 1, 1))]


def test_S46_defaults_of_a_table_of_Sparks_come_along_and_never_stand_in_for_nulls(spark, tmp_path):
    name = f"with_defaults_{tmp_path.name.replace('-', '_')}"
    spark.sql(f"CREATE TABLE {name} (id INT, n INT DEFAULT 5) USING parquet LOCATION '{tmp_path}/spark'")
    try:
        table = TrinityTable.create(spark, str(tmp_path / "t"), spark.table(name).schema, primaryKey="id")
    finally:
        spark.sql(f"DROP TABLE {name}")
    assert [(f.default, dict(f.metadata)) for f in table.definition.fields] == [(None, {}), ("5", {})]
    table.insert(frame(spark, "id INT", (1,))).execute()
    table.insert(frame(spark, "id INT, n INT", (2, None))).execute()
    assert live_rows(table) == [(1, 5), (2, None)]


@pytest.mark.parametrize("history", [False, True])
def test_H9_S46_events_that_lack_a_column_leave_it_and_new_keys_get_the_default(spark, tmp_path, history):
    table = new_table(spark, tmp_path, STOCK, history=history, **KEYS)
    fill(
        table,
        spark,
        [(1, 10, "a", 5, False), (2, 10, "b", None, False), (3, 10, "c", 7, False), (3, 20, None, None, True)],
    )
    events = [(1, 30, "A"), (2, 30, "B"), (3, 30, "C"), (9, 30, "i"), (9, 40, "I")]
    table.applyChanges(frame(spark, "id INT, ts INT, item STRING", *events)).execute()
    rows = [(1, 30, "A", 5, False), (2, 30, "B", None, False), (3, 30, "C", 0, False), (9, 40, "I", 0, False)]
    assertRows(table.toDF(), rows)
    if history:
        assert [r.n for r in table.versions().filter("id = 9").orderBy("ts").collect()] == [0, 0]


@pytest.mark.parametrize("history", [False, True])
def test_H11_S46_an_extract_that_lacks_a_column_leaves_it_and_new_keys_get_the_default(spark, tmp_path, history):
    table = fill(new_table(spark, tmp_path, STOCK, history=history, **KEYS), spark, ROWS)
    extract = [{"id": 1, "item": "A"}, {"id": 3, "item": "c"}, {"id": 9, "item": "i"}]
    table.snapshot(spark.createDataFrame([tuple(r.values()) for r in extract], "id INT, item STRING"), at=30).execute()
    rows = [(1, 30, "A", 5, False), (3, 10, "c", None, False), (9, 30, "i", 0, False)]
    assertRows(table.toDF(), rows)
    model = ModelTable(table.definition)
    model.commit([dict(zip(table.definition.names, row, strict=True)) for row in ROWS])
    model.snapshot(extract, 30)
    assert [tuple(row.values()) for row in model.live()] == rows


# Engine and interpreter -----------------------------------------------------------------------------------------------------


def test_S46_the_interpreter_knows_defaults():
    fields = [
        Field("id", "long"),
        Field("a", "string", default="'x'"),
        Field("b", "long", nullable=False, default="-2"),
    ]
    table = ModelTable(TableDefinition.of(fields, primaryKey="id"), checks={"small": lambda row: row["b"] < 5})
    table.merge([{"id": 1}], [WhenNotMatched(None, [Insert(All())])])
    table.merge(
        [{"id": 2, "b": 3}], [WhenNotMatched(None, [Insert(Assignments({"id": source("id"), "b": source("b")}))])]
    )
    assert table.live() == [{"id": 1, "a": "x", "b": -2}, {"id": 2, "a": "x", "b": 3}]
    with pytest.raises(ConstraintError, match="'small'"):
        table.merge([{"id": 1, "b": 7}], [WhenMatched(None, [Update(Assignments({"b": source("b")}))])])


def ruled(number: int) -> MergeCase:
    """A generated merge, into a table with a default and a check on the column that every generated table has."""
    case = program(number)
    fields = [attrs.evolve(f, default="3" if f.name == "v" else f.default) for f in case.definition.fields]
    check = Check("small", "`v` IS NULL OR `v` <> 2", ["v"])
    return attrs.evolve(
        case,
        definition=with_check(attrs.evolve(case.definition, fields=tuple(fields)), check),
        checks={"small": lambda row: row["v"] is None or row["v"] != 2},
    )


def ruled_lanes(number: int) -> Verdicts:
    base = ruled(number)
    return Verdicts.of(
        attrs.evolve(case, definition=base.definition, checks=base.checks) for case in lanes_of(base, 40, number)
    )


@pytest.mark.slow
@pytest.mark.generated
@pytest.mark.parametrize("number", [1, 2, 6, *(pytest.param(n, marks=pytest.mark.long) for n in range(20, 50))])
def test_S45_S46_engine_agrees_with_the_interpreter_on_every_sound_path(number, spark, tmp_path):
    found = ruled_lanes(number)

    def differs(cases: Any) -> str:
        again = Verdicts.of(cases).merged
        return difference(spark, tmp_path, again) if again else ""

    cases = [case for case, _ in found.merged]
    if cases and differs(cases):
        case, text = smallest(cases, differs)
        pytest.fail(f"program {number}, {text}\n{as_text(case)}")


@pytest.mark.slow
@pytest.mark.generated
def test_S45_the_engine_refuses_what_the_interpreter_refuses(spark, tmp_path):
    pairs = [(case, error) for number in (1, 2, 6) for case, error in ruled_lanes(number).refused]
    broken = [(case, error) for case, error in pairs if type(error) is errors.ConstraintError]
    assert broken
    for case, error in broken[:3]:
        text = refusal_difference(spark, tmp_path, [(case, error)])
        assert not text, f"{text}\n{as_text(case)}"
