"""The steps of a merge: each runs on empty sides, and all together make the stored columns and what is known of each row."""

from __future__ import annotations

from itertools import product

import attrs
import pytest
from pyspark.sql import functions as F
from tables import fill, frame, new_table

from trinitymerge import TrinityTable
from trinitymerge.log.actions import PurgeKeys
from trinitymerge.log.batches import Batches
from trinitymerge.merge.compile.fire import FIRE, added_columns
from trinitymerge.merge.compile.pipeline import FILTERING, SETTLING, SHAPING, LeftOut, on_entry
from trinitymerge.merge.compile.probe import columns_of_probe, probe
from trinitymerge.merge.compile.steps import Select, fewer, present_after, selects_of
from trinitymerge.merge.compile.strategies import STRATEGIES, Merge
from trinitymerge.spark import system_columns
from trinitymerge.spark.expressions import quote
from trinitymerge.spark.sql_text import Sql

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


def reviving(table, source):
    """Values and conditions that are Columns, a recorded delete, and an update that may bring a tombstone."""
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id")
    return (
        merge.whenMatched(F.col("B.v") == "D")
        .delete()
        .whenMatched(F.col("B.v") == "U")
        .updateExpr({"v": F.upper("B.v"), "deleted": "B.deleted"})
        .whenNotMatched()
        .insertExpr({"id": "B.id", "v": F.lower("B.v")})
    )


ALL = (FIRE, *SHAPING, *SETTLING)
MERGES = [upsert, reading, moving, beside, reviving]


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    return fill(new_table(spark, tmp_path_factory.mktemp("steps")), spark, [(1, 1, "a", False), (2, 1, None, True)])


@pytest.fixture(scope="module")
def unordered(spark, tmp_path_factory):
    """A table without a watermark key, whose tombstone column is hidden."""
    schema = "id INT, ts INT, v STRING, deleted BOOLEAN"
    return TrinityTable.create(spark, str(tmp_path_factory.mktemp("steps") / "t"), schema, primaryKey="id")


def programs(table, spark, make, on_stale="skip"):
    """Every program of a merge, on each sound path, and an empty frame for it to begin with."""
    plan = make(table, frame(spark, SOURCE, (1, 2, "x", "1", False))).build()
    merge = Merge(plan.analysis, plan.choice, plan.spec.store, on_stale)
    for path in (p for p in STRATEGIES if p not in plan.choice.unsound):
        _, program = path.program(merge, tombstones_possible=True)
        target, source = plan.analysis.target.empty, plan.analysis.source.frame
        yield path, program, (target.crossJoin(source) if program.knows_target else source).limit(0)


def nothing_found(program):
    stored = [f"CAST(NULL AS {f.text}) AS {f.name}" for f in program.definition.stored_fields]
    return lambda keys: keys.sparkSession.range(0).selectExpr(*stored)


@pytest.mark.parametrize("make", MERGES)
def test_each_step_finds_the_columns_that_it_reads(make, table, spark):
    checked = 0
    for path, program, rows in programs(table, spark, make):
        present = on_entry(program)
        for step in ALL:
            where = f"{step.name} as {path.name}"
            if step is SETTLING[0] and program.unknown:
                batches = Batches(program.definition, (), truncated_at=(0,))
                rows, present = (
                    probe(rows, program, nothing_found(program), batches),
                    (*present, *columns_of_probe(program)),
                )
            for select in step.selects(program, present):
                rows = select.over(rows)
                present = present_after(select, present)
                own = {c for c in rows.columns if c.startswith("_tm_")}
                assert {n for n in present if n.startswith("_tm_")} <= own, (
                    f"{where} does not have what is said to be present"
                )
            checked += 1
        own = [
            system_columns.CLAUSE,
            system_columns.COUNTS_FOR_CLAUSE,
            system_columns.ACTION,
            system_columns.MISFIT,
            system_columns.EFFECT,
            system_columns.KEEP,
        ]
        promised = [*(f.name for f in program.definition.stored_fields), *own]
        assert sorted(n for n in rows.columns if n != system_columns.SLOT) == sorted(promised)
    assert checked >= len(ALL)


TRUNCATES = {
    "none": {},
    "fresher": {"truncated_at": (1000,)},
    "fresher, and stale rows are refused": {"truncated_at": (1000,), "refuses_stale": True},
    "with history": {"truncated_at": (1000,)},
}


@pytest.mark.parametrize("truncates", TRUNCATES)
def test_what_is_left_out_of_all_rows_is_steps_too(truncates, table, spark):
    definition = attrs.evolve(table.definition, history=truncates == "with history")
    for unchanged, is_purged in product((False, True), repeat=2):
        purged = PurgeKeys("ab", ["cd"]) if is_purged else None
        left_out = LeftOut(definition, purged, unchanged=unchanged, **TRUNCATES[truncates])
        own = {"_tm_keep": "true", "_tm_effect": "'updated'", **({"_tm_unchanged": "true"} if unchanged else {})}
        rows = table.toDF().selectExpr("*", *[f"{value} AS {name}" for name, value in own.items()])
        present = tuple(rows.columns)
        for step in FILTERING:
            for select in step.selects(left_out, present):
                rows, present = select.over(rows), present_after(select, present)
                assert rows.columns == list(present), step.name
        kept = [r["_tm_keep"] for r in rows.collect()]
        is_kept = not unchanged and not truncates.startswith("fresher")
        assert kept == [is_kept], "the only live row, which changes nothing and is not purged"
        assert ("_tm_unchanged" in present, "_tm_purged" in present) == (False, is_purged)


def test_what_is_left_out_can_be_read_as_SQL(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 1, "a", False), (2, 1, "b", False)])
    table.purge([2])
    truncate = frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (None, 0, None, None))
    table.applyChanges(truncate, applyAsTruncates="id IS NULL").execute()
    plan = table.upsert(
        frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (1, 2, "x", False)), onlyIfChanged=True
    )
    text = plan.build().sql()
    positions = [text.index(f"-- {step.name}: {step.does}") for step in (*FILTERING[::-1], SETTLING[-1], FIRE)]
    assert positions == sorted(positions), "the last step stands outermost"
    assert "LEFT JOIN purged_keys ON sha2(" in text


def test_the_steps_of_a_merge_can_be_read_as_SQL(table, spark, capsys):
    text = reading(table, frame(spark, SOURCE, (1, 2, "x", "1", False))).build().sql()
    positions = [
        text.index(f"-- {step.name}: {step.does}") for step in (SETTLING[-1], SETTLING[0], *SHAPING[:0:-1], FIRE)
    ]
    assert positions == sorted(positions), "the last step stands outermost"
    assert "concat(A.v, B.v)" in text
    assert "-- lookup: the rows that the written keys hold" in text


@pytest.mark.parametrize("given", [str, F.expr])
def test_the_condition_of_a_full_scan_can_be_read_as_SQL(given, table, spark):
    source = frame(spark, SOURCE, (1, 2, "x", "1", False)).alias("B")
    text = table.alias("A").merge(source, given("A.v = B.v")).whenMatched().delete().build().sql()
    assert ("ON (A.v = B.v)" in text, "ON the_merge_condition" in text) == (given is str, given is not str)


def test_SELECTs_that_read_what_another_computes_stay_apart(spark):
    rows = spark.sql("SELECT 1 AS `a b`, 2 AS c, 3 AS d")
    first = Select.setting(["a b", "c", "d"], {"c": Sql("c + 10"), "_tm_x": Sql("d")})
    apart = [
        Select.adding({"_tm_y": Sql("_tm_x + 1")}),
        Select.adding({"_tm_y": Sql("`c` + 1")}),
        Select.adding({"_tm_x": Sql("d")}),
        Select.adding({"_tm_y": Sql("d")}, where=Sql("_tm_y > 0")),
        Select.adding({"_tm_y": F.col("c")}),
    ]
    for other in apart:
        assert first.and_then(other) is None
    for other in (
        Select.adding({"_tm_y": Sql("`a b` + d")}),
        Select.setting(["a b", "c", "d", "_tm_x"], {"d": Sql("`a b` + d")}),
        Select.only({"c": quote("c"), "z": Sql("d")}),
    ):
        together = first.and_then(other)
        assert together is not None
        assert together.over(rows).columns == other.over(first.over(rows)).columns
        assert together.over(rows).collect() == other.over(first.over(rows)).collect()


def test_settling_takes_few_SELECTs_where_nothing_moves(table, spark):
    """Each costs an analysis of the whole plan."""
    for _, program, _ in programs(table, spark, reading):
        present = (*on_entry(program), *added_columns(program))
        present = selects_of(SHAPING, program, present)[1] + (columns_of_probe(program) if program.unknown else ())
        selects = selects_of(SETTLING, program, present)[0]
        assert len(fewer(selects)) <= 5 < len(selects), [s.names for s in fewer(selects)]
