"""Clauses as data and the chain that makes them (S21, S28): equality, immutability, and the grammar its types carry."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tables import frame, new_table

from trinitymerge import InvalidMergeError, MergeBuilder
from trinitymerge.merge.builder import MatchedClause, NotMatchedClause, TargetActions, TargetOnlyClause
from trinitymerge.merge.execute.request import Transaction
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Delete,
    Insert,
    InsertHistory,
    OtherTable,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
    check_clauses,
    describe,
)

UPDATE = Update(Assignments({"v": "B.v"}))
INSERT = Insert(All())
INSERT_ONE = Insert(Assignments({"id": "1"}))
KEEP = InsertHistory(Assignments({"id": "id"}), OtherTable(path="past"))


@pytest.fixture(scope="module")
def merge(spark, tmp_path_factory):
    """A builder without clauses; nothing here runs it."""
    table = new_table(spark, tmp_path_factory.mktemp("clauses"))
    return table.alias("A").merge(frame(spark, "id INT, ts INT, v STRING", (1, 1, "x")).alias("B"), "A.id = B.id")


# Clauses as data ------------------------------------------------------------------------------------------------------


def test_clauses_are_equal_when_all_they_say_is():
    assert WhenMatched("a", [Delete()]) == WhenMatched("a", (Delete(),))
    assert WhenMatched("a", [Delete()]) != WhenMatched("b", [Delete()])
    assert WhenMatched("a", [Delete()]) != WhenMatched("a", [UPDATE])
    assert WhenMatched(None, [INSERT]) != WhenOnlyOnTarget(None, [INSERT])
    assert len({WhenMatched("a", [Delete()]), WhenMatched("a", (Delete(),))}) == 1


def test_assignments_keep_their_order_and_tell_types_apart():
    assert Assignments({"a": "1", "b": "2"}).items == (("a", "1"), ("b", "2"))
    assert Assignments({"a": "1"}) == Assignments([("a", "1")])
    assert Assignments({"a": 1}) != Assignments({"a": "1"})
    assert Assignments({"a": 1}) != Assignments({"a": True})
    assert Assignments({"a": 0}) != Assignments({"a": None})


def test_columns_in_clauses_are_compared_without_building_expressions(spark):
    assert WhenMatched(F.col("a") > 1, [Delete()]) == WhenMatched(F.col("a") > 1, [Delete()])
    assert WhenMatched(F.col("a") > 1, [Delete()]) != WhenMatched(F.col("a") > 2, [Delete()])
    assert Assignments({"v": F.col("a")}) == Assignments({"v": F.col("a")})
    assert Assignments({"v": F.col("a")}) != Assignments({"v": "a"})
    assert hash(WhenMatched(F.col("a") > 1, [Delete()])) == hash(WhenMatched(F.col("a") > 1, [Delete()]))


def test_clauses_are_frozen():
    with pytest.raises(AttributeError):
        WhenMatched("a").condition = "b"
    with pytest.raises(AttributeError):
        Delete().name = "x"


def test_describe_names_a_clause_by_position_kind_and_text(spark):
    clauses = (WhenMatched("B.op = 'D'", [Delete()]), WhenNotMatched(), WhenOnlyOnTarget(F.col("v") > 1))
    assert describe(clauses, 0) == "clause 1, whenMatched(\"B.op = 'D'\")"
    assert describe(clauses, 1) == "clause 2, whenNotMatched()"
    assert describe(clauses, 2).startswith("clause 3, whenNotMatchedAndExistsOnlyOnTarget(Column<")


# S21, S28 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clauses",
    [
        [WhenMatched(None, [UPDATE])],
        [WhenMatched(None, [Delete()])],
        [WhenMatched(None, [INSERT])],
        [WhenMatched(None, [UPDATE, INSERT, INSERT])],
        [WhenMatched(None, [INSERT, Delete()])],
        [WhenOnlyOnTarget(None, [UPDATE, INSERT_ONE])],
        [WhenMatched(None, [UPDATE, KEEP, INSERT, KEEP])],
        [WhenOnlyOnTarget(None, [Delete(), KEEP])],
        [WhenNotMatched(None, [INSERT])],
        [WhenMatched("a", [UPDATE]), WhenNotMatched(None, [INSERT]), WhenMatched(None, [Delete()])],
        [WhenNotMatched("a", [INSERT]), WhenNotMatched(None, [INSERT]), WhenOnlyOnTarget(None, [Delete()])],
    ],
)
def test_S21_S28_clause_lists_that_are_allowed(clauses):
    check_clauses(tuple(clauses))


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ([], "no clause"),
        ([WhenMatched()], r"clause 1, whenMatched\(\), has no action"),
        ([WhenMatched(None, [UPDATE, Delete()])], "update and delete; .* at most one update or delete"),
        ([WhenMatched(None, [Delete(), Delete()])], "delete and delete"),
        ([WhenOnlyOnTarget(None, [UPDATE, INSERT, UPDATE])], "update and update"),
        ([WhenNotMatched(None, [UPDATE])], "exactly one insert: there is no target row"),
        ([WhenNotMatched(None, [Delete()])], "exactly one insert"),
        ([WhenNotMatched(None, [INSERT, INSERT])], "exactly one insert"),
        ([WhenNotMatched(None, [KEEP])], "exactly one insert"),
        ([WhenMatched(None, [INSERT, KEEP])], "what an update or delete replaces, and has neither"),
    ],
)
def test_S21_clauses_that_are_refused(clauses, message):
    with pytest.raises(InvalidMergeError, match=message):
        check_clauses(tuple(clauses))


@pytest.mark.parametrize("kind", [WhenMatched, WhenNotMatched, WhenOnlyOnTarget])
def test_S28_clause_behind_an_unconditional_one_of_its_kind_is_refused(kind):
    clauses = (kind(None, [INSERT_ONE]), kind("a", [INSERT_ONE]))
    with pytest.raises(InvalidMergeError, match=r'clause 2, .*\("a"\), can never run: clause 1, ') as error:
        check_clauses(clauses)
    assert error.value.clause == 2


@pytest.mark.parametrize("action", [Update(All()), Insert(All())])
def test_S21_rows_that_exist_only_on_the_target_have_no_columns_to_take(action):
    with pytest.raises(
        InvalidMergeError, match=r"clause 1, .* takes all columns from the source.* updateExpr"
    ) as error:
        check_clauses((WhenOnlyOnTarget(None, [action]),))
    assert error.value.clause == 1


def test_S28_is_checked_when_the_next_clause_is_added(merge):
    complete = merge.whenNotMatched().insertAll()
    with pytest.raises(InvalidMergeError, match=r"clause 2, whenNotMatched.* can never run"):
        complete.whenNotMatched("B.v = 'x'")
    with pytest.raises(InvalidMergeError, match="can never run"):
        merge.whenNotMatchedBySource().delete().whenNotMatchedAndExistsOnlyOnTarget()


# The chain ------------------------------------------------------------------------------------------------------------


def test_chain_makes_the_clauses_it_says(merge):
    builder = (
        merge.whenMatched("B.v = 'x'")
        .delete()
        .whenMatched()
        .updateExpr({"v": "B.v"})
        .insertExpr({"id": "B.id + 1"})
        .whenNotMatched(None)
        .insertAll(exceptColumns=["v"])
        .whenNotMatchedBySource("A.ts < 3")
        .delete()
    )
    assert builder._spec.clauses == (
        WhenMatched("B.v = 'x'", [Delete()]),
        WhenMatched(None, [UPDATE, Insert(Assignments({"id": "B.id + 1"}))]),
        WhenNotMatched(None, [Insert(All(["v"]))]),
        WhenOnlyOnTarget("A.ts < 3", [Delete()]),
    )


def test_companions_are_chains(merge, spark, tmp_path):
    table, source = new_table(spark, tmp_path), frame(spark, "id INT, ts INT, v STRING", (1, 1, "x"))
    every = All()
    assert table.upsert(source)._spec.clauses == (
        WhenMatched(None, [Update(every)]),
        WhenNotMatched(None, [Insert(every)]),
    )
    assert table.update(source)._spec.clauses == (WhenMatched(None, [Update(every)]),)
    assert table.delete(source)._spec.clauses == (WhenMatched(None, [Delete()]),)
    assert table.insert(source)._spec.clauses == (WhenNotMatched(None, [Insert(every)]),)
    assert table.insert(source, deduplicate=True)._spec.clauses == (WhenNotMatched(None, [Insert(every)]),)
    assert table.deleteWhere("id = 1")._spec.clauses == (WhenOnlyOnTarget("id = 1", [Delete()]),)
    assert table.updateWhere("id = 1", {"v": "B.v"})._spec.clauses == (WhenOnlyOnTarget("id = 1", [UPDATE]),)


def test_both_names_of_the_target_only_clause_are_the_same():
    assert MergeBuilder.whenNotMatchedBySource is MergeBuilder.whenNotMatchedAndExistsOnlyOnTarget


def test_builder_can_be_forked_twice(merge):
    shared = merge.whenMatched("B.v = 'x'").delete()
    one = shared.whenMatched().updateAll()
    two = shared.whenNotMatched().insertAll()
    three = shared.insertExpr({"id": "B.id + 1"})
    assert shared._spec.clauses == (WhenMatched("B.v = 'x'", [Delete()]),)
    assert one._spec.clauses == (*shared._spec.clauses, WhenMatched(None, [Update(All())]))
    assert two._spec.clauses == (*shared._spec.clauses, WhenNotMatched(None, [INSERT]))
    assert three._spec.clauses == (WhenMatched("B.v = 'x'", [Delete(), Insert(Assignments({"id": "B.id + 1"}))]),)
    assert merge._spec.clauses == ()


def test_unfinished_clause_can_be_forked_too(merge):
    clause = merge.whenMatched()
    assert clause.delete()._spec.clauses == (WhenMatched(None, [Delete()]),)
    assert clause.updateAll()._spec.clauses == (WhenMatched(None, [Update(All())]),)


def test_settings_return_new_builders_and_are_independent_of_clauses(merge):
    start = merge.whenMatched().delete()
    changed = start.onStale("error").withTransaction("app", 3).maxDeleteFraction(1)
    assert (
        start._spec.settings.on_stale,
        start._spec.settings.transaction,
        start._spec.settings.max_delete_fraction,
    ) == (
        "skip",
        None,
        None,
    )
    assert (changed._spec.settings.on_stale, changed._spec.settings.transaction) == ("error", Transaction("app", 3))
    assert changed._spec.settings.max_delete_fraction == 1.0
    assert changed._spec.clauses == start._spec.clauses
    assert merge.onStale("force").whenMatched().delete()._spec.settings.on_stale == "force"


def test_map_given_to_the_chain_may_change_afterwards(merge):
    values = {"v": "B.v"}
    builder = merge.whenMatched().updateExpr(values)
    values["v"] = "'changed'"
    assert builder._spec.clauses == (WhenMatched(None, [UPDATE]),)


def offered(kind):
    return {n for n in dir(kind) if not n.startswith("_")}


def test_types_offer_only_what_may_follow():
    assert offered(NotMatchedClause) == {"insertExpr", "insertAll"}
    assert offered(TargetOnlyClause) == {"updateExpr", "delete", "insertExpr"}
    assert offered(MatchedClause) == {"updateExpr", "updateAll", "delete", "insertExpr"}
    assert not offered(MergeBuilder) & {"updateExpr", "updateAll", "delete", "insertExpr", "insertAll"}
    remembering = {"insertHistoryExpr", "insertHistoryTableExpr"}
    assert offered(TargetActions) - offered(MergeBuilder) == {"updateExpr", "delete", "insertExpr", *remembering}


def test_steps_return_the_types_that_carry_the_grammar(merge):
    assert type(merge.whenMatched()) is MatchedClause
    assert type(merge.whenNotMatched()) is NotMatchedClause
    assert type(merge.whenNotMatchedBySource()) is TargetOnlyClause
    assert type(merge.whenMatched().delete()) is TargetActions
    assert type(merge.whenNotMatched().insertAll()) is MergeBuilder
    assert type(merge.whenMatched().delete().onStale("skip")) is MergeBuilder


def test_hasattr_can_probe_every_step(merge):
    assert not hasattr(merge.whenMatched(), "execute")
    assert not hasattr(merge, "delete")
    assert hasattr(merge.whenMatched().delete(), "execute")


CHAINS = {
    "m.whenMatched().delete().execute()": None,
    "m.whenMatched().updateExpr({'v': 'B.v'}).insertExpr({'id': 'B.id'}).whenNotMatched().insertAll()": None,
    "m.whenMatched().delete().insertHistoryExpr({'id': 'id'}, 'past').insertHistoryTableExpr({'id': 'id'}, 'past').execute()": None,
    "m.whenMatched().insertHistoryExpr({'id': 'id'}, 'past')": "insertHistoryExpr",
    "m.whenMatched().execute()": "execute",
    "m.whenNotMatched().delete()": "delete",
    "m.whenNotMatchedBySource().updateAll()": "updateAll",
    "m.whenNotMatched().insertAll().insertAll()": "insertAll",
    "m.delete()": "delete",
}


@pytest.mark.slow
def test_type_checkers_refuse_illegal_chains(tmp_path):
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "chains.py"
    head = "from trinitymerge import MergeBuilder\n\ndef f(m: MergeBuilder) -> None:\n"
    program.write_text(head + "".join(f"    {chain}\n" for chain in CHAINS))
    shown, _, _ = api.run([str(program), "--no-error-summary", "--cache-dir", str(tmp_path / "cache")])
    found = {int(line.split(":")[1]): line for line in shown.splitlines() if ": error: " in line}
    wanted = {number: name for number, name in enumerate(CHAINS.values(), 4) if name}
    assert sorted(found) == sorted(wanted), shown
    assert all(f'has no attribute "{name}"' in found[number] for number, name in wanted.items()), shown
