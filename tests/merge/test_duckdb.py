"""The engine against another one: DuckDB's ``MERGE INTO``, over random clauses and data.

A table without a watermark key means what SQL means. So DuckDB's rows must be ours; and what SQL refuses, or what DuckDB
leaves under keys that are null or not unique, we must refuse, apart from the exceptions that S12 names: rows for one key
that are all tombstones, or equal. Only we refuse an insert and a recorded delete (S18) of one absent key: which came last
nobody can tell. A clause with an update and inserts in one has no counterpart.
"""

from __future__ import annotations

import attrs
import pytest
from helpers import quickly
from hypothesis import strategies as st
from lanes import Together, beside, draw, lanes_of, prepared, refusal_difference, rows_of
from smallest import as_text, smallest

from trinitymerge.errors import (
    AmbiguousMergeError,
    DuplicateKeyError,
    InvalidMergeError,
    NullKeyError,
    TrinityMergeError,
)
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import Expr, MergeCase, renderDifference
from trinitymerge.testing.model.expressions import KeyEquality, Row, bare, eq, literal, source, target
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.strategies import Columns, clause_lists, merge_conditions, source_tables, table_batches

pytestmark = pytest.mark.generated

duckdb = pytest.importorskip("duckdb", minversion="2.0")

FIELDS = [Field("k1", "integer"), Field("k2", "string"), Field("v", "integer"), Field("w", "string")]
DEFINITION = TableDefinition.of(FIELDS, primaryKey=["k1", "k2"])
SOURCE = (*FIELDS, Field("op", "string"), Field("n", "integer"))
TYPES = {"integer": "INTEGER", "string": "VARCHAR"}
KINDS = {
    WhenMatched: "WHEN MATCHED",
    WhenNotMatched: "WHEN NOT MATCHED BY TARGET",
    WhenOnlyOnTarget: "WHEN NOT MATCHED BY SOURCE",
}
LANES = 60


@st.composite
def merges(draw):
    """Merges that DuckDB can do too: one action for each clause."""
    one_action = clause_lists(Columns(DEFINITION, SOURCE)).filter(lambda cs: all(len(c.actions) == 1 for c in cs))
    return MergeCase(
        definition=DEFINITION,
        batches=draw(table_batches(DEFINITION)),
        source_schema=SOURCE,
        source_rows=draw(source_tables(DEFINITION, SOURCE)),
        condition=draw(merge_conditions(DEFINITION, SOURCE)),
        clauses=draw(one_action),
    )


# DuckDB ---------------------------------------------------------------------------------------------------------------


def in_duckdb(case):
    """The rows after the merge, or None if SQL refuses it or the primary key would."""
    connection = duckdb.connect()
    load(connection, "A", DEFINITION.fields, case.table().live())
    load(connection, "B", SOURCE, case.source_rows)
    if connection.execute(changed_more_than_once(case)).fetchall():
        return None
    connection.execute(statement(case))
    rows = [dict(zip(DEFINITION.names, row, strict=True)) for row in connection.execute("FROM A").fetchall()]
    keys = [RowRules(DEFINITION).key(row) for row in rows]
    return rows if len(set(keys)) == len(keys) and not any(None in key for key in keys) else None


def load(connection, name, fields, rows):
    columns = ", ".join(f"{field.name} {TYPES[field.type]}" for field in fields)
    connection.execute(f"CREATE TABLE {name} ({columns})")
    for row in rows:
        connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(fields))})", [row[f.name] for f in fields])


def changed_more_than_once(case):
    """A query for the target rows that several source rows change, which SQL forbids.

    Asked for, because releases of DuckDB differ: 2.0.0 refuses such a merge, 2.0.1 lets any of these source rows win.
    """
    whens = ["WHEN false THEN false"]
    for clause in case.clauses:
        if isinstance(clause, WhenMatched):
            condition = "true" if clause.condition is None else text(clause.condition)
            changes = not isinstance(clause.actions[0], Insert)
            whens.append(f"WHEN {condition} THEN {changes}")
    joined = f"A JOIN B ON ({text(case.condition)})"
    return f"SELECT A.rowid FROM {joined} WHERE CASE {' '.join(whens)} END GROUP BY A.rowid HAVING count(*) > 1"


def statement(case):
    """The merge as SQL text."""
    clauses = "\n".join(clause_text(clause) for clause in case.clauses)
    return f"MERGE INTO A USING B ON ({text(case.condition)})\n{clauses}"


def clause_text(clause):
    kind = type(clause)
    condition = "" if clause.condition is None else f" AND ({text(clause.condition)})"
    (action,) = clause.actions
    if isinstance(action, Delete):
        return f"{KINDS[kind]}{condition} THEN DELETE"
    values = {name: text(value) for name, value in assignments(action.values, isinstance(action, Update))}
    if isinstance(action, Update):
        return f"{KINDS[kind]}{condition} THEN UPDATE SET {', '.join(f'{n} = {v}' for n, v in values.items())}"
    return f"{KINDS[kind]}{condition} THEN INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def assignments(values, is_update):
    if not isinstance(values, All):
        return values.items
    listed = DEFINITION.names if values.columns is None else {*values.columns, *DEFINITION.primaryKey}
    names = [name for name in DEFINITION.names if name in listed and name not in values.exceptColumns]
    kept = {n for n in names if is_update and values.ignoreNulls and n not in DEFINITION.primaryKey}
    return [(name, f"coalesce(B.{name}, A.{name})" if name in kept else f"B.{name}") for name in names]


def text(expression):
    """An expression in DuckDB's dialect."""
    sql = expression if isinstance(expression, str) else getattr(expression, "sql", None) or literal(expression).sql
    return sql.replace("<=>", "IS NOT DISTINCT FROM").replace("\\'", "''")


@pytest.mark.parametrize(
    ("clause", "name"),
    [
        (WhenNotMatched(target("v"), [Insert(All())]), "A.v"),
        (
            WhenNotMatched(None, [Insert(Assignments({"k1": source("k1"), "k2": source("k2"), "v": target("v")}))]),
            "A.v",
        ),
        (WhenOnlyOnTarget(eq(source("op"), literal("D")), [Delete()]), "B.op"),
        (WhenOnlyOnTarget(eq(bare(source("op")), literal("D")), [Delete()]), "op"),
        (WhenOnlyOnTarget(None, [Update(Assignments({"v": bare(source("n"))}))]), "n"),
    ],
)
def test_S30_names_of_the_other_side_are_refused_by_both(clause, name, spark, tmp_path):
    case = MergeCase(DEFINITION, (), SOURCE, (), KeyEquality.of(DEFINITION, "A", "B"), (clause,))
    with pytest.raises(duckdb.BinderException, match=name.split(".")[-1]):
        in_duckdb(case)
    with pytest.raises(InvalidMergeError):
        case.run()
    _, table, frame = prepared(spark, tmp_path, Together((case,)))
    with pytest.raises(InvalidMergeError, match=f"Column '{name}' is the "):
        Together((case,)).builder(table, frame).build()


# Us -------------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Lane:
    """What both say about one merge: DuckDB's rows, or our error where both refuse it."""

    case: MergeCase
    rows: list[Row] | None
    error: TrinityMergeError | None


def lane(case):
    """Compares DuckDB and the interpreter; None where they differ as the rules say."""
    rows, shown = in_duckdb(case), f"{as_text(case)}\n{statement(case)}"
    try:
        result = case.run()
    except (NullKeyError, DuplicateKeyError, AmbiguousMergeError) as error:
        if rows is None:
            return Lane(case, None, error)
        assert_rows(rows, without_absent_deletes(case).run().rows, f"{error!r}, but DuckDB merges\n{shown}")
        return None
    if rows is None:
        assert is_named_by_S12(with_unchanged_rows(case).run()), f"only SQL refuses\n{shown}"
        return None
    assert_rows(rows, result.rows, shown)
    return Lane(case, rows, None)


def assert_rows(expected, actual, shown):
    found = renderDifference(expected, actual, DEFINITION.primaryKey)
    assert not found, f"('expected' is DuckDB) {found}\n{shown}"


def is_named_by_S12(result):
    """Are there several rows for one key, and all of these tombstones or equal."""
    rules, by_key = RowRules(DEFINITION), {}
    for row in result.appended:
        by_key.setdefault(rules.key(row), []).append(row)
    groups = [rows for rows in by_key.values() if len(rows) > 1]
    agree = [all(map(rules.is_tombstone, rows)) or len(set(map(rules.content, rows))) == 1 for rows in groups]
    return bool(groups) and all(agree)


def with_unchanged_rows(case):
    """Rows that change nothing (S22b) are not written, but agree or contradict as others do."""
    return attrs.evolve(case, clauses=tuple(map(_writing_all, case.clauses)))


def _writing_all(clause):
    actions = [attrs.evolve(a, onlyIfChanged=False) if isinstance(a, Update) else a for a in clause.actions]
    return attrs.evolve(clause, actions=actions)


def without_absent_deletes(case):
    """Deletes of absent keys are recorded under exact key equality only (S18); and so they can contradict an insert."""
    return attrs.evolve(case, condition=Expr(case.condition.sql, case.condition.call))


def difference(spark, directory, lanes):
    """What the engine makes of lanes that DuckDB merges."""
    together = Together(tuple(lane.case for lane in lanes))
    definition, table, source = prepared(spark, directory, together)
    together.builder(table, source).execute()
    return renderDifference(beside(lane.rows for lane in lanes), rows_of(table.toDF()), definition.primaryKey)


def lanes_in(cases):
    """The lanes that both merge, and those that both refuse; an empty source merges nothing (S37)."""
    found = [lane(case) for case in cases if case.source_rows]
    return [x for x in found if x and x.rows is not None], [x for x in found if x and x.error]


def check(number, spark, directory):
    merged, refused = lanes_in(lanes_of(draw(merges(), 3, number)[-1], LANES, number))

    def differs(cases):
        again, _ = lanes_in(cases)
        return difference(spark, directory, again) if again else ""

    cases = [lane.case for lane in merged]
    if cases and differs(cases):
        case, found = smallest(cases, differs)
        pytest.fail(f"program {number} ('expected' is DuckDB): {found}\n{as_text(case)}\n{statement(case)}")
    for kind in {type(lane.error) for lane in refused}:
        alone = next(lane for lane in refused if type(lane.error) is kind)
        found = refusal_difference(spark, directory, [(alone.case, alone.error)])
        assert not found, f"program {number}: {found}\n{as_text(alone.case)}\n{statement(alone.case)}"


@pytest.mark.parametrize("number", quickly(range(6), {0, 3}))
@pytest.mark.program
def test_engine_agrees_with_DuckDB(number, spark, tmp_path):
    check(number, spark, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("number", range(100, 130))
def test_engine_agrees_with_DuckDB_in_many_more_merges(number, spark, tmp_path):
    check(number, spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly(range(200, 212), range(200, 204)))
def test_interpreter_agrees_with_DuckDB(number):
    """Without Spark, and so with many more programs."""
    lanes_in(lanes_of(draw(merges(), 3, number)[-1], 20, number))
