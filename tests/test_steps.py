"""The steps of a merge keep what they promise: each runs on empty sides, and adds just the columns it says."""

from __future__ import annotations

import pytest
from tables import fill, frame, new_table

from trinitymerge import columns
from trinitymerge.merge.compile.firing import FIRE
from trinitymerge.merge.compile.pipeline import SETTLING, STEPS, WRITING, on_entry
from trinitymerge.merge.compile.probing import probe, probed
from trinitymerge.merge.paths.base import Merge
from trinitymerge.merge.paths.choice import PATHS

SOURCE = "id INT, ts INT, v STRING, n STRING, deleted BOOLEAN"


def upsert(table, source):
    return table.upsert(source.select("id", "ts", "v", "deleted"))


def reading(table, source):
    """Clauses that read the target, values that are checked, deletes of rows that are not there."""
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id")
    return (
        merge.whenMatched("B.v = 'D'")
        .delete()
        .whenMatched("A.ts > 1")
        .updateExpr({"v": "concat(A.v, B.v)", "ts": "B.n"})
        .whenNotMatched()
        .insertExpr({"id": "B.n", "ts": "B.ts", "deleted": "B.deleted"})
    )


def moving(table, source):
    """Rows that move, with inserts beside them."""
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id")
    return (
        merge.whenMatched()
        .updateExpr({"id": "A.id + 100", "ts": "B.ts"})
        .insertExpr({"id": "A.id", "ts": "B.ts", "v": "'again'"})
        .whenNotMatchedAndExistsOnlyOnTarget("A.id > 5")
        .delete()
    )


def beside(table, source):
    """The shape of a type 2 dimension."""
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id AND A.v <> B.v")
    return merge.whenMatched().updateExpr({"v": "B.v", "ts": "B.ts"}).insertExpr({"id": "B.id + 7", "ts": "B.ts"})


MERGES = [upsert, reading, moving, beside]


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    return fill(new_table(spark, tmp_path_factory.mktemp("steps")), spark, [(1, 1, "a", False), (2, 1, None, True)])


def programs(table, spark, make):
    """Every program of a merge, on each sound path, and an empty frame for it to begin with."""
    plan = make(table, frame(spark, SOURCE, (1, 2, "x", "1", False))).build()
    merge = Merge(plan.analysis, plan.verdict, plan.backend, "skip")
    for path in (p for p in PATHS if p not in plan.verdict.why_not):
        for _, program in path.programs(merge, tombstones_possible=True):
            joined = plan.analysis.joined if program.knows_target else plan.analysis.source.frame
            yield path, program, joined.limit(0)


def nothing_found(program):
    stored = [f"CAST(NULL AS {f.text}) AS {f.name}" for f in program.definition.stored_fields]
    return lambda keys: keys.sparkSession.range(0).selectExpr(*stored)


@pytest.mark.parametrize("make", MERGES)
def test_each_step_finds_what_it_needs_and_adds_what_it_promises(make, table, spark):
    checked = 0
    for path, program, rows in programs(table, spark, make):
        present = on_entry(program)
        for step in STEPS:
            where = f"{step.name} as {path.name}"
            if step is SETTLING[0] and program.unknown:
                rows, present = probe(rows, program, nothing_found(program)), (*present, *probed(program))
            selects, before = step.selects(program, present), set(present)
            if selects:
                assert set(step.needs(program)) <= before, f"{where} reads columns that are not there"
            for select in selects:
                rows = select.over(rows)
                present = (*present, *select.names) if select.keeps_all else select.names
                own = {c for c in rows.columns if c.startswith("_tm_")}
                assert {n for n in present if n.startswith("_tm_")} <= own, (
                    f"{where} does not have what is said to be present"
                )
            added = {n for n in present if n.startswith("_tm_")} - before
            assert added <= set(step.adds(program)), f"{where} adds what it does not declare"
            if selects:
                assert set(step.adds(program)) <= set(present), f"{where} does not add what it declares"
            checked += 1
        own = [columns.CLAUSE, columns.STANDS_FOR, columns.ACTION, columns.MISFIT, columns.EFFECT, columns.KEEP]
        promised = [*(f.name for f in program.definition.stored_fields), *own]
        assert sorted(n for n in rows.columns if n != columns.SLOT) == sorted(promised)
    assert checked >= len(STEPS)


def test_the_steps_of_a_merge_can_be_read_as_SQL(table, spark, capsys):
    text = reading(table, frame(spark, SOURCE, (1, 2, "x", "1", False))).build().sql()
    positions = [
        text.index(f"-- {step.name}: {step.does}") for step in (SETTLING[-1], SETTLING[0], *WRITING[:0:-1], FIRE)
    ]
    assert positions == sorted(positions), "the last step stands outermost"
    assert "concat(A.v, B.v)" in text
    assert "-- probe: what the written keys hold" in text
