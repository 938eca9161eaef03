"""S44 for feeds (H9-H11): a table that follows a source of events or of extracts, as the interpreter does."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest
from helpers import assertRows, quickly
from processes import fork
from tables import fill, frame, live_rows, new_table

from trinitymerge import InvalidMergeError, SchemaMismatchError, TrinityTable
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import widened, with_column
from trinitymerge.schema.field import Field
from trinitymerge.testing import ModelTable

PEOPLE = "id INT, ts INT, v STRING"
CONTROL = "op STRING, seq INT"
SQL = {"integer": "INT", "long": "BIGINT", "string": "STRING"}
MORE = {"n": ("integer", "long"), "w": ("string",), "x": ("long",)}
"""Columns that come and go, each with the types that it has in turn."""


def value_of(kind: str, chance: random.Random) -> Any:
    known = {"integer": [None, 1, 2], "long": [None, 1, 1 << 40], "string": [None, "a", "b"]}
    return chance.choice(known[kind])


class Source:
    """Some rows with some columns, for Spark and for the interpreter."""

    def __init__(self, chance: random.Random, step: int, with_v: bool) -> None:
        some = [n for n in MORE if chance.random() < 0.6]
        self.kinds = {n: MORE[n][-1] if step > 2 else MORE[n][0] for n in some}
        self.kinds = {**({"v": "string"} if with_v or chance.random() < 0.7 else {}), **self.kinds}
        names = list(self.kinds)
        chance.shuffle(names)
        self.names, self.chance = names, chance

    def rows(self, keys: list[int], **beside: Any) -> list[dict[str, Any]]:
        return [{"id": k, **beside, **{n: value_of(self.kinds[n], self.chance) for n in self.names}} for k in keys]

    def frame(self, spark, rows: list[dict[str, Any]], beside: str) -> Any:
        schema = ", ".join(
            ["id INT", *([beside] if beside else []), *(f"{n} {SQL[self.kinds[n]]}" for n in self.names)]
        )
        return frame(spark, schema, *[tuple(row.values()) for row in rows])

    def followed(self, own: TableDefinition) -> TableDefinition:
        """What the rule says becomes of the table."""
        for name in self.names:
            if name not in own.names:
                own = with_column(own, Field(name, self.kinds[name]))
            elif self.kinds[name] == "long":
                own = widened(own, name, "long")
        return own


def shown(rows: Any) -> list[tuple]:
    return sorted((tuple(r.values() if isinstance(r, dict) else r) for r in rows), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("seed", quickly([(s,) for s in range(8)], [(0,), (1,)]))
def test_S44_H9_U1_H11_a_table_follows_its_feeds_as_the_interpreter_does(spark, tmp_path, seed, history):
    chance = random.Random(seed)
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=history)
    model, at = ModelTable(table.definition), 10
    for step in range(6):
        source = Source(chance, step, with_v=step == 0)
        wide = source.followed(model.definition)
        if chance.random() < 0.5:
            at = chance.choice([at + 10, at - 5]) if history else at + 10
            rows = source.rows(chance.sample(range(4), chance.randint(1, 3)))
            told = model.snapshot(rows, at, follows=wide, sourceColumns=["id", *source.names])
            merge = table.snapshot(source.frame(spark, rows, ""), at=at)
        else:
            late = chance.choice([0, 3, 12])
            at = max(at, at - 5 + late)
            events = [
                row
                for place, key in enumerate(chance.choices(range(4), k=3))
                for row in source.rows([key], ts=at - late + place, op=chance.choice("UUUD"))
            ]
            nulls = chance.choice([False, True])
            told = model.applyChanges(
                events, applyAsDeletes=lambda row: row["op"] == "D", ignoreNullUpdates=nulls, follows=wide
            )
            merge = table.applyChanges(
                source.frame(spark, events, "ts INT, op STRING"), applyAsDeletes="op = 'D'", ignoreNullUpdates=nulls
            )
        result = merge.withSchemaEvolution().execute()
        assert result.rowsAppended == told.rowsAppended
        assert table.definition.names == model.definition.names
        assert [f.type for f in table.definition.fields] == [f.type for f in model.definition.fields]
        assert shown(table.toDF().collect()) == shown(model.live())
        if history:
            assert shown(table.versions().collect()) == shown(model.versions())


# What becomes a column ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"ignoreNullUpdates": True}, {"applyAsTruncates": "op = 'T' AND why = 'all'"}])
def test_S44_H9_what_would_be_left_out_is_added_and_what_is_of_use_is_not(spark, tmp_path, options):
    table = fill(new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), spark, [(1, 10, "a")])
    schema = f"id INT, v STRING, {CONTROL}, n INT, skip INT, why STRING"
    events = frame(spark, schema, (1, "A", "U", 20, 5, 1, "x"), (2, None, "D", 20, 6, 1, "x"))
    how = {"sequenceBy": "seq", "applyAsDeletes": "op = 'D'", "exceptColumns": ["skip"]} | options
    plain = table.applyChanges(events, **how).build().analysis.ignored
    plan = table.applyChanges(events, **how).withSchemaEvolution().build()
    assert plan.analysis.ignored == ()
    assert plan.columnsAdded == tuple(f"column {n} {'int' if n == 'n' else 'string'} is added" for n in plain)
    assert plain == (("n",) if "applyAsTruncates" in options else ("n", "why"))
    plan.execute()
    assertRows(table.toDF().select("id", "ts", "v", "n"), [(1, 20, "A", 5)])


def test_S44_H9_columns_that_are_named_are_added_and_no_others(spark, tmp_path):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    events = frame(spark, f"{PEOPLE}, op STRING, n INT, m INT", (1, 20, "A", "U", 5, 6))
    feed = table.applyChanges(events, applyAsDeletes="op = 'D'", columns=["id", "op", "n"])
    with pytest.raises(InvalidMergeError, match=r"Columns 'op', 'n' are missing in the table.*withSchemaEvolution"):
        feed.build()
    assert feed.withSchemaEvolution().execute().columnsAdded == ("column op string is added", "column n int is added")
    assertRows(table.toDF(), [(1, 20, None, "U", 5)])


@pytest.mark.parametrize("nulls", [False, True])
def test_S44_a_comment_comes_with_its_column_and_metadata_with_none(spark, tmp_path, nulls):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    told = frame(spark, f"{PEOPLE}, n INT", (1, 20, "A", 5)).withMetadata("n", {"comment": "how many"})
    table.applyChanges(told, ignoreNullUpdates=nulls).withSchemaEvolution().execute()
    assert table.definition.field("n").comment == "how many"
    more = frame(spark, "id INT, v STRING, m INT", (1, "B", 6)).withMetadata("m", {"comment": "more"})
    table.snapshot(more, at=30).withSchemaEvolution().execute()
    assert table.definition.field("m").comment == "more"
    assertRows(table.toDF(), [(1, 30, "B", 5, 6)])


@pytest.mark.parametrize("history", [False, True])
def test_S44_H11_a_new_column_makes_rows_with_values_different_and_no_others(spark, tmp_path, history):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=history)
    table.snapshot(frame(spark, "id INT, v STRING", (1, "a"), (2, "b"), (3, "c")), at=10).execute()
    wide = "id BIGINT, v STRING, n INT"
    nothing = table.snapshot(frame(spark, wide, (1, "a", None), (2, "b", None), (3, "c", None)), at=20)
    result = nothing.withSchemaEvolution().execute()
    assert (result.skipped, result.kept, result.columnsAdded) == (
        "nothing has changed",
        "the moment of the extract",
        (),
    )
    assert "n" not in table.definition.names
    some = table.snapshot(frame(spark, wide, (1, "a", 5), (2, "b", None)), at=30).withSchemaEvolution()
    assert "The table first: column n int is added" in some.explain()
    result = some.execute()
    assert (result.rowsAppended, result.columnsAdded) == (2, ("column n int is added",))
    assertRows(table.toDF(), [(1, 30, "a", 5), (2, 10, "b", None)])
    past = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    assert past.toDF().columns == ["id", "ts", "v"]
    if history:  # late: between the two, with a wider type, and a column that the later ones lack
        late = frame(
            spark, "id INT, v STRING, n BIGINT, m INT", (1, "a", 1 << 40, 1), (2, "b", None, None), (3, "c", None, 7)
        )
        table.snapshot(late, at=25).withSchemaEvolution().execute()
        told = [(1, "a", None, None, 10, 25), (1, "a", 1 << 40, 1, 25, 30), (1, "a", 5, None, 30, None)]
        told += [(2, "b", None, None, 10, None), (3, "c", None, None, 10, 25), (3, "c", None, 7, 25, 30)]
        assertRows(table.versions().select("id", "v", "n", "m", "validFrom", "validTo"), told)


@pytest.mark.parametrize("history", [False, True])
def test_S44_H9_fields_that_are_lacking_are_left_as_they_were_in_the_datas_time(spark, tmp_path, history):
    """A late event that lacks a field has what the field was before it, not what it is now."""
    table = new_table(spark, tmp_path, "id INT, ts INT, s STRUCT<a: INT>", watermarkKey="ts", history=history)

    def take(ts: int, struct: str, **options: Any) -> None:
        event = spark.sql(f"SELECT 1 AS id, {ts} AS ts, {struct} AS s")
        table.applyChanges(event, **options).withSchemaEvolution().execute()

    take(10, "named_struct('a', 1)")
    take(20, "named_struct('b', named_struct('c', 2, 'd', 2), 'a', 2)")
    take(40, "named_struct('a', 4, 'b', named_struct('c', 4, 'd', 4))")
    take(30, "named_struct('a', int(null), 'b', named_struct('c', 3))")  # without b.d
    take(50, "named_struct('b', named_struct('d', 5))", ignoreNullUpdates=["s"])
    assertRows(table.toDF().select("s.a", "s.b.c", "s.b.d"), [(4, 4, 5)])
    if history:
        found = table.versions().select("ts", "s.a", "s.b.c", "s.b.d")
        assertRows(found, [(10, 1, None, None), (20, 2, 2, 2), (30, None, 3, 2), (40, 4, 4, 4), (50, 4, 4, 5)])


def test_S44_what_does_not_fit_is_refused_and_alters_nothing(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), spark, [(1, 10, "a")])
    array = frame(spark, "id INT, ts INT, v ARRAY<INT>, n INT", (1, 20, [1], 5))
    with pytest.raises(SchemaMismatchError, match="'v'"):
        table.applyChanges(array).withSchemaEvolution().execute()
    with pytest.raises(SchemaMismatchError, match="'v'"):
        table.snapshot(array.drop("ts"), at=20).withSchemaEvolution().execute()
    with pytest.raises(InvalidMergeError, match="Column 'id' is missing"):
        table.snapshot(frame(spark, "ts INT, v STRING", (1, "a")), at=20).withSchemaEvolution().execute()
    assert (table.version, table.definition.names) == (1, ("id", "ts", "v"))


# Beside others, killed, and in streams --------------------------------------------------------------------------------


def events_with(spark, key: int, column: str = "n") -> Any:
    return frame(spark, f"{PEOPLE}, {column} INT", (key, 20, "w", key))


FEEDS = {
    "blind": lambda table, spark, key: table.applyChanges(events_with(spark, key)),
    "filled": lambda table, spark, key: table.applyChanges(events_with(spark, key), ignoreNullUpdates=True),
    "extract": lambda table, spark, key: table.snapshot(events_with(spark, key), at=20, missing="keep"),
}


@pytest.mark.parametrize("which", FEEDS)
@pytest.mark.parametrize("column", ["n", "m"])
def test_S35_S44_a_writer_that_adds_a_column_meanwhile_is_followed(spark, tmp_path, at_point, which, column):
    """The same column is added once; with another one the table has both."""
    table = fill(new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), spark, [(1, 10, "a")])
    other = TrinityTable.forPath(spark, table.path)
    merge = FEEDS[which](table, spark, 2).withSchemaEvolution()
    at_point("validate.done", lambda: other.applyChanges(events_with(spark, 3, column)).withSchemaEvolution().execute())
    result = merge.execute()
    assert result.columnsAdded == (() if column == "n" else ("column n int is added",))
    names = ["id", "n"] if column == "n" else ["id", "n", "m"]
    rows = [(1, None), (2, 2), (3, 3)] if column == "n" else [(1, None, None), (2, 2, None), (3, None, 3)]
    assertRows(table.toDF().select(names), rows)


@pytest.mark.parametrize("which", FEEDS)
def test_S35_a_feed_beside_an_alteration_is_made_again_unless_a_name_means_another_column(
    spark, tmp_path, at_point, which
):
    table = fill(new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), spark, [(1, 10, "a")])
    other = TrinityTable.forPath(spark, table.path)
    at_point("validate.done", lambda: other.alter().addColumn("n", "INT").execute())
    result = FEEDS[which](table, spark, 2).execute()
    assert result.columnsIgnored == ()
    assertRows(table.toDF().select("id", "n"), [(1, None), (2, 2)])


def follow(spark, table: TrinityTable) -> None:
    table.applyChanges(events_with(spark, 2)).withSchemaEvolution().withTransaction("feed", 1).execute()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["validate.done", "create.published"])
def test_S33_S44_a_feed_that_is_killed_leaves_before_or_after_and_can_be_repeated(spark, tmp_path, step):
    table = fill(new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), spark, [(1, 10, "a")])
    process = fork(follow, table.path, spark, fault=step)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    is_done = step == "create.published"
    assert (table.version, "n" in table.definition.names) == ((2, True) if is_done else (1, False))
    follow(spark, table)
    assert (table.version, live_rows(table)) == (2, [(1, 10, "a", None), (2, 20, "w", 2)])


def test_S36a_S44_a_stream_gets_a_column_with_the_micro_batch_that_brings_it(spark, tmp_path):
    table, results = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), []
    write = table.foreachBatch(
        lambda table, batch: table.applyChanges(batch).withSchemaEvolution(), "feed", onResult=results.append
    )
    write(frame(spark, PEOPLE, (1, 10, "a")), 0)
    write(events_with(spark, 2), 1)
    write(events_with(spark, 2), 1)
    write(frame(spark, PEOPLE, (1, 30, "b")), 2)
    assert [r.columnsAdded for r in results] == [(), ("column n int is added",), (), ()]
    assertRows(table.toDF(), [(1, 30, "b", None), (2, 20, "w", 2)])


def test_S44_the_alteration_is_part_of_the_feeds_own_commit(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, PEOPLE, watermarkKey="ts"), spark, [(1, 10, "a")])
    table.snapshot(events_with(spark, 2), at=20).withSchemaEvolution().execute()
    newest: Snapshot = table._snapshot()
    assert (newest.version, newest.definition_version) == (2, 2)
    assert table._store.history()[0].operation == "SNAPSHOT"


def test_S44_U1_events_may_leave_a_column_unset_that_they_bring(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, a STRING, ts INT", watermarkKey="ts")
    schema = "id INT, a STRING, x STRING, ts INT, unset ARRAY<STRING>"
    events = frame(spark, schema, (1, "p", "long", 1, None), (1, "q", None, 2, ["x"]))
    table.applyChanges(events, unchanged="unset", exceptColumns="unset").withSchemaEvolution().execute()
    assertRows(table.toDF().select("id", "a", "x"), [(1, "q", "long")])
