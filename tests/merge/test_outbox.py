"""S27: what an update or delete replaces goes into another table, with the merge or not at all."""

from __future__ import annotations

import datetime as dt
import shutil

import attrs
import pytest
from helpers import assertRows, quickly
from lanes import Together, beside, lanes_of, led_by_lane, prepared, program, rows_of, traces_of
from processes import fork
from pyspark.sql import functions as F
from tables import batch_directories, copy_of, directory_of, fill, frame, live_rows, new_table

from trinitymerge import (
    AmbiguousMergeError,
    InvalidMergeError,
    NullKeyError,
    PendingHistoryInsertsError,
    SchemaMismatchError,
    TrinityTable,
)
from trinitymerge.errors import TrinityMergeError
from trinitymerge.log.actions import MARKER_PREFIX, SetTransaction
from trinitymerge.log.model import now_ms
from trinitymerge.maintenance import deliver_outbox
from trinitymerge.merge.compile.strategies import FULL_SCAN, STRATEGIES
from trinitymerge.merge.model.clauses import Assignments, InsertHistory, OtherTable, WhenOnlyOnTarget
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import Expr, ModelTable, renderDifference
from trinitymerge.testing.model.expressions import literal, source, target

PAST = "id INT, ts INT, v STRING, why STRING"
"""The other table of most tests: a row for each version that was replaced."""

KEEP = {"id": "id", "ts": "A.ts", "v": "v", "why": "B.why"}


@pytest.fixture
def table(spark, tmp_path):
    return fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)])


@pytest.fixture
def past(spark, tmp_path):
    return new_table(spark, tmp_path, PAST, primaryKey=["id", "ts"])


@pytest.fixture
def changes(spark):
    """One update, one that comes too late, one delete, and two of keys that are not there."""
    rows = [
        (1, 20, "x", "changed"),
        (2, 5, "y", "late"),
        (3, 20, None, "gone"),
        (7, 20, "z", "new"),
        (8, 20, None, "no"),
    ]
    return frame(spark, "id INT, ts INT, v STRING, why STRING", *rows)


def remembering(table, changes, past, **keep):
    merge = table.alias("A").merge(changes.alias("B"), "A.id = B.id")
    return (
        merge.whenMatched("B.v IS NULL")
        .delete()
        .insertHistoryExpr(KEEP | keep, past)
        .whenMatched()
        .updateExpr({"v": "B.v", "ts": "B.ts"})
        .insertHistoryExpr(KEEP | keep, past)
        .whenNotMatched("B.v IS NOT NULL")
        .insertExpr({"id": "B.id", "ts": "B.ts", "v": "B.v"})
    )


REPLACED = [(1, 10, "a", "changed"), (3, 10, "c", "gone")]


def interrupt():
    raise KeyboardInterrupt


def left_owing(table, changes, past, at_point):
    """The table after a merge whose process has died right after its commit."""
    at_point("commit.done", interrupt)
    with pytest.raises(KeyboardInterrupt):
        remembering(table, changes, past).execute()
    assert len(TrinityTable.forPath(table._store.spark, table.path)._snapshot().outbox) == 1
    return table


# What is written ------------------------------------------------------------------------------------------------------


def test_S27_rows_before_an_update_or_delete_that_takes_effect(table, changes, past):
    result = remembering(table, changes, past).execute()
    assert (result.rowsUpdated, result.rowsDeleted, result.rowsStale, result.rowsHistory) == (1, 1, 1, 2)
    assertRows(past.toDF(), REPLACED)
    assert live_rows(table)[0][:3] == (1, 20, "x")
    assert "2 rows for other tables" in str(result)
    assert "still to be written" not in result.hint
    assert table._snapshot().outbox == ()
    assert [c.operation for c in table._store.history()][:2] == ["DELIVER", "MERGE"]
    assert batch_directories(table) == {f"_tm_batch={b.id}" for b in table._snapshot().batches}


@pytest.mark.parametrize("path", STRATEGIES)
def test_S27_takes_the_target_on_every_sound_path(table, changes, past, path):
    merge = remembering(table, changes, past)
    reasons = merge.build().choice.unsound
    if path in reasons:
        assert reasons[path] == "insertHistoryExpr writes what is replaced into another table"
        return
    assert merge._with_strategy(path).execute().strategy == path.name
    assertRows(past.toDF(), REPLACED)


def test_S27_rows_that_exist_only_on_the_target(spark, table, past):
    merge = table.alias("A").merge(frame(spark, "id INT", 1).alias("B"), "A.id = B.id")
    keep = {"id": "id", "ts": "ts", "v": "concat(v, A.v)", "why": "'not there'"}
    result = merge.whenNotMatchedAndExistsOnlyOnTarget("A.id = 2").delete().insertHistoryTableExpr(keep, past).execute()
    assert (result.rowsDeleted, result.rowsHistory) == (1, 1)
    assertRows(past.toDF(), [(2, 10, "bb", "not there")])


def test_S27_values_may_be_Columns_and_are_stored_as_the_other_table_says(spark, table, past, tmp_path):
    other = new_table(spark, tmp_path, "id STRING, day DATE, gone BOOLEAN, n TINYINT", tombstoneKey="gone")
    merge = table.alias("A").merge(frame(spark, "id INT, n STRING", (1, "7")).alias("B"), "A.id = B.id")
    kept = [(F.col("id"), F.concat(F.col("v"), F.col("A.v"))), ("day", dt.date(2024, 5, 1)), ("n", F.col("B.n"))]
    merge.whenMatched().updateExpr({"v": "'new'"}).insertHistoryExpr(kept, other).execute()
    assertRows(other.toDF(), [("aa", dt.date(2024, 5, 1), False, 7)])


def test_S27_moves_and_keys_that_others_take_are_replaced_too(spark, table, past):
    """A swap, and a delete whose key another row takes: no tombstone is written for it."""
    moves = frame(
        spark, "id INT, ts INT, new INT, why STRING", (1, 20, 2, "to 2"), (2, 20, 1, "to 1"), (3, 20, 0, "taken")
    )
    merge = table.alias("A").merge(moves.alias("B"), "A.id = B.id")
    merge.whenMatched("B.new > 0").updateExpr({"id": "B.new", "ts": "B.ts"}).insertHistoryExpr(
        KEEP, past
    ).whenMatched().delete().insertExpr({"id": "A.id", "ts": "B.ts", "v": "'again'"}).insertHistoryExpr(
        KEEP, past
    ).execute()
    assert [(r[0], r[2]) for r in live_rows(table)] == [(1, "b"), (2, "a"), (3, "again")]
    assertRows(past.toDF(), [(1, 10, "a", "to 2"), (2, 10, "b", "to 1"), (3, 10, "c", "taken")])


def test_S27_several_tables_and_several_rows(spark, table, past, tmp_path):
    other = new_table(spark, tmp_path, "n INT, v STRING", primaryKey="n")
    merge = (
        table.alias("A").merge(frame(spark, "id INT, why STRING", (1, "why")).alias("B"), "A.id = B.id").whenMatched()
    )
    twice = merge.updateExpr({"v": "'new'"}).insertHistoryExpr({"n": "id", "v": "v"}, other)
    result = twice.insertHistoryExpr(KEEP, past).insertHistoryExpr({"n": "id + 100", "v": "A.v"}, other).execute()
    assert result.rowsHistory == 3
    assertRows(other.toDF(), [(1, "a"), (101, "a")])
    assertRows(past.toDF(), [(1, 10, "a", "why")])


def test_S27_the_freshest_row_of_a_key_holds_in_the_other_table(spark, table, changes, tmp_path):
    latest = new_table(spark, tmp_path, "id INT, until INT, v STRING", watermarkKey="until", history=True)
    for until in (30, 20):
        late = frame(spark, "id INT, until INT", (1, until)).alias("B")
        merge = table.alias("A").merge(late, "A.id = B.id").whenMatched().updateExpr({"v": f"'{until}'"})
        merge.insertHistoryExpr({"id": "id", "until": "B.until", "v": "v"}, latest).execute()
    assertRows(latest.toDF(), [(1, 30, "a")])
    assert latest.versions().count() == 2


def test_S32_values_are_computed_once_for_both_tables(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, at TIMESTAMP, u STRING"), spark, [(1, None, "a")])
    past = new_table(spark, tmp_path, "u STRING, at TIMESTAMP", primaryKey="u")
    merge = table.merge(frame(spark, "id INT, x INT", (1, 1)).withColumn("u", F.expr("uuid()"))).whenMatched()
    merge = merge.updateExpr({"u": "source.u", "at": "current_timestamp()"})
    merge.insertHistoryExpr({"u": "source.u", "at": "current_timestamp()"}, past).execute()
    assert live_rows(past) == [(u, at) for _, at, u in live_rows(table)]


# Engine and interpreter -----------------------------------------------------------------------------------------------


PROGRAMS = [2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 16]
"""Those in which rows are replaced."""


def other_definition(own: TableDefinition) -> TableDefinition:
    """One row for each key that was replaced; the freshest by the source's ``n`` holds."""
    keys = [attrs.evolve(own.field(k), nullable=False) for k in own.primaryKey]
    others = [
        Field("seen", "integer"),
        Field("v", "string"),
        attrs.evolve(own.field("w"), nullable=True),
        Field("op", "string"),
    ]
    return TableDefinition.of([*keys, *others, Field("c", "byte")], own.primaryKey, "seen")


def with_history(case, model):
    """The case with a history insert after each update and delete; names with and without aliases."""

    def keep(position):
        items = [(k, Expr(f"`{k}`", lambda t, s, k=k: t[k], reads_source=False)) for k in case.definition.primaryKey]
        items += [
            ("v", Expr("v", lambda t, s: t["v"], reads_source=False)),
            ("w", target("w")),
        ]
        if isinstance(case.clauses[position], WhenOnlyOnTarget):  # such a clause does not see the source (S30)
            items += [("seen", literal(0))]
        else:
            items += [("seen", source("n")), ("op", source("op"))]
        return InsertHistory(Assignments([*items, ("c", literal(position))]), OtherTable(model=model))

    clauses = []
    for position, clause in enumerate(case.clauses):
        kept = [keep(position)] if any(a.replaces_target for a in clause.actions) else []
        clauses.append(attrs.evolve(clause, actions=[*clause.actions, *kept]))
    return attrs.evolve(case, clauses=clauses)


def modelled(cases):
    """The lanes that the interpreter merges, with results and what is in the other table."""
    found = []
    for case in cases:
        if not case.source_rows and any(isinstance(c, WhenOnlyOnTarget) for c in case.clauses):
            continue
        model = ModelTable(other_definition(case.definition))
        whole = with_history(case, model)
        try:
            found.append((whole, whole.run(), model.live()))
        except TrinityMergeError:
            continue
    return found


def remembering_program(number):
    """A program with an update or delete."""
    cases = (program(1000 * number + number + 4 * n) for n in range(100))
    return next(c for c in cases if any(a.replaces_target for clause in c.clauses for a in clause.actions))


@pytest.mark.slow
@pytest.mark.generated
@pytest.mark.parametrize("number", quickly(PROGRAMS, {5}))
def test_S27_S31_engine_agrees_with_the_interpreter_on_every_sound_path(number, spark, tmp_path):
    lanes = modelled(lanes_of(remembering_program(number), 40, number))
    assert any(live for _, _, live in lanes)
    together = Together(tuple(case for case, _, _ in lanes))
    _, table, rows = prepared(spark, tmp_path, together)
    definition = led_by_lane(other_definition(together.program.definition))
    wanted = beside(live for _, _, live in lanes)
    for path in STRATEGIES:
        copy, other = copy_of(table, spark), empty_table(spark, tmp_path / f"other-{path.name}", definition)
        merge = together.builder(copy, rows)._evolve(clauses=into(together.clauses, other))._with_strategy(path)
        if path in together_verdict(merge):
            continue
        result = merge.execute()
        text = renderDifference(wanted, rows_of(other.toDF()), definition.primaryKey)
        assert not text, f"program {number}, as {path.name}, the other table ('expected' is the interpreter): {text}"
        assert result.rowsHistory == sum(r.rowsHistory for _, r, _ in lanes)
        expected = beside(r.rows for _, r, _ in lanes)
        text = renderDifference(expected, rows_of(copy.toDF()), together.definition.primaryKey)
        assert not text, f"program {number}, as {path.name}, the live rows ('expected' is the interpreter): {text}"


def together_verdict(merge):
    return merge._with(strategy=FULL_SCAN).build().choice.unsound


def into(clauses, other):
    place = OtherTable(path=other.path)
    return tuple(
        attrs.evolve(
            c, actions=[attrs.evolve(a, table=place) if isinstance(a, InsertHistory) else a for a in c.actions]
        )
        for c in clauses
    )


def empty_table(spark, path, definition):
    from lanes import created

    return TrinityTable(created(spark, str(path), definition))


# All or nothing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "error", "message"),
    [
        ({"id": "nullif(id, 3)"}, NullKeyError, "insertHistoryExpr into .*primary-key column 'id'"),
        ({"ts": "concat(v, 'x')"}, SchemaMismatchError, "insertHistoryExpr into .*'ts' is int.*'ax'"),
        ({"id": "7", "ts": "7"}, AmbiguousMergeError, "insertHistoryExpr into .*same primary key"),
    ],
)
def test_S34_rows_that_the_other_table_could_not_take_refuse_the_merge(table, changes, past, keep, error, message):
    before = traces_of(table), traces_of(past)
    with pytest.raises(error, match=message):
        remembering(table, changes, past, **keep).execute()
    assert (traces_of(table), traces_of(past)) == before


def test_S34_a_merge_that_is_refused_writes_nothing_into_the_other_table(table, changes, past):
    before = traces_of(table), traces_of(past)
    with pytest.raises(TrinityMergeError):
        remembering(table, changes.union(changes.selectExpr("id", "ts", "'other'", "why")), past).execute()
    with pytest.raises(TrinityMergeError):
        remembering(table, changes, past).onStale("error").execute()
    assert (traces_of(table), traces_of(past)) == before


def test_S36_a_replayed_transaction_writes_nothing_twice(table, changes, past):
    merge = remembering(table, changes, past).withTransaction("feed", 3)
    assert merge.execute().rowsHistory == 2
    before = traces_of(table), traces_of(past)
    assert merge.execute().skipped
    assert (traces_of(table), traces_of(past)) == before


def test_S35_a_merge_that_is_evaluated_again_writes_what_it_replaces_in_the_end(spark, table, changes, past, at_point):
    at_point("outbox.staged", lambda: fill(table, spark, [(1, 15, "between", False)]))
    assert remembering(table, changes, past).execute().rowsHistory == 2
    assertRows(past.toDF(), [(1, 15, "between", "changed"), (3, 10, "c", "gone")])
    assert batch_directories(table) == {f"_tm_batch={b.id}" for b in table._snapshot().batches}


def test_S27_a_definition_that_changes_before_the_commit_is_noticed(table, changes, past):
    plan = remembering(table, changes, past).build()
    past.alter().setComment("new").execute()
    with pytest.raises(InvalidMergeError, match=r"definition of .* has changed"):
        plan.execute()
    assert live_rows(table)[0][2] == "a"


# Unfinished -----------------------------------------------------------------------------------------------------------

NEXT_WRITERS = {
    "merge": lambda table: table.deleteWhere("id = 99").execute(),
    "compact": lambda table: table.compact(),
    "restore": lambda table: table.restore(1),
    "alter": lambda table: table.alter().setComment("x").execute(),
    "purge": lambda table: table.purge([3]),
}


@pytest.mark.parametrize("name", NEXT_WRITERS)
def test_S27_the_next_writer_finishes_what_a_dead_process_has_left(spark, table, changes, past, at_point, name):
    left_owing(table, changes, past, at_point)
    opened = TrinityTable.forPath(spark, table.path)
    assert (past.toDF().count(), opened.toDF().count()) == (0, 3)
    opened.vacuum(retentionHours=0)
    NEXT_WRITERS[name](opened)
    assertRows(past.toDF(), REPLACED)
    assert opened._snapshot().outbox == ()
    NEXT_WRITERS[name](opened)
    assertRows(past.toDF(), REPLACED)
    if name == "purge":
        assert all(f"_tm_batch={b.id}" in batch_directories(opened) for b in opened._snapshot().batches)


def test_S27_markers_of_delivered_rows_are_forgotten_after_a_day(spark, table, changes, past, monkeypatch):
    def markers() -> list[str]:
        return [n for n in past._snapshot().transactions if n.startswith(MARKER_PREFIX)]

    other, before = f"{MARKER_PREFIX}of-another-table-1", past._snapshot()
    past._store.commit(before.next_commit("MERGE", [SetTransaction(other, 1)]), before)
    remembering(table, changes, past).execute()
    (first,) = set(markers()) - {other}
    day = deliver_outbox._MARKERS_KEPT_MS
    monkeypatch.setattr(deliver_outbox, "now_ms", lambda: now_ms() + day // 2)
    remembering(table, changes.selectExpr("id", "ts + 100 AS ts", "v", "why"), past).execute()
    assert first in markers(), "a slow writer may look for it"
    monkeypatch.setattr(deliver_outbox, "now_ms", lambda: now_ms() + 2 * day)
    remembering(table, changes.selectExpr("id", "ts + 200 AS ts", "v", "why"), past).execute()
    assert (first in markers(), other in markers(), len(markers())) == (False, True, 2)


@pytest.mark.parametrize("point", ["stage.before", "validate.done"])
def test_S36_two_that_finish_at_once_write_the_rows_once(spark, table, changes, past, at_point, point):
    """The slower one has read the rows, or finds them gone."""
    left_owing(table, changes, past, at_point)
    at_point(point, lambda: deliver_outbox.deliver_pending(TrinityTable.forPath(spark, table.path)._store))
    deliver_outbox.deliver_pending(table._store)
    assertRows(past.toDF(), REPLACED)
    assert sum(b.rows for b in past._snapshot().batches) == 2
    assert [c.operation for c in table._store.history()].count("DELIVER") == 1


def test_S27_rows_that_cannot_be_written_block_writes_and_never_reads(spark, table, changes, past, at_point):
    left_owing(table, changes, past, at_point)
    hidden = directory_of(past).rename(directory_of(past).with_name("hidden"))
    opened, live = TrinityTable.forPath(spark, table.path), live_rows(table)
    for write in NEXT_WRITERS.values():
        with pytest.raises(
            PendingHistoryInsertsError, match=r"2 rows .*There is no trinitymerge table.*discardPendingHistoryInserts"
        ) as error:
            write(opened)
        assert (error.value.table, error.value.rows) == (past.path, 2)
    opened.vacuum(retentionHours=0)
    assert live_rows(opened) == live
    hidden.rename(directory_of(past))
    NEXT_WRITERS["merge"](opened)
    assertRows(past.toDF(), REPLACED)


def test_S27_health_says_what_is_owed(table, changes, past, at_point):
    left_owing(table, changes, past, at_point)
    health = table.health()
    assert (health.action, health.reason) == ("any write", f"2 rows for {past.path} are still to be written there")


def count_up(spark, table, rounds):
    """Adds one to every counter, and keeps what it was."""
    past = TrinityTable.forPath(spark, f"{table.path}-past")
    for _ in range(rounds):
        merge = table.merge(frame(spark, "id INT", 0, 1)).whenMatched("target.n >= 0").updateExpr({"n": "target.n + 1"})
        merge.insertHistoryExpr({"id": "id", "n": "n"}, past).execute()


@pytest.mark.slow
def test_S27_S35_writers_beside_each_other_remember_every_row_once(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, n INT"), spark, [(0, 0), (1, 0)])
    past = TrinityTable.create(spark, f"{table.path}-past", "id INT, n INT", primaryKey=["id", "n"])
    processes = [fork(count_up, table.path, spark, 3) for _ in range(2)]
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0]
    assert live_rows(table) == [(0, 6), (1, 6)]
    assertRows(past.toDF(), [(i, n) for i in (0, 1) for n in range(6)])
    assert sum(b.rows for c in past._store.history() for b in c.added if c.operation == "UPSERT") == 12
    assert table._snapshot().outbox == ()


def test_S27_rows_can_be_given_up(spark, table, changes, past, at_point):
    left_owing(table, changes, past, at_point)
    shutil.rmtree(directory_of(past))
    opened = TrinityTable.forPath(spark, table.path)
    (given_up,) = opened.discardPendingHistoryInserts()
    assert (given_up["table"], given_up["rows"]) == (past.path, 2)
    assert f"_tm_batch={given_up['batch']}" in batch_directories(opened)
    assert opened._store.history()[0].operation == "DISCARD"
    assert opened.discardPendingHistoryInserts() == ()
    assert opened.deleteWhere("id = 1").execute().rowsDeleted == 1
    opened.vacuum(retentionHours=0)
    assert f"_tm_batch={given_up['batch']}" not in batch_directories(opened)


@pytest.mark.parametrize(
    ("schema", "keys", "fits"),
    [
        (PAST + ", more STRING", ["id", "ts"], True),
        (PAST, ["id"], False),
        ("id INT, ts INT, v INT, why STRING", ["id", "ts"], False),
        ("id INT, ts INT, v STRING", ["id", "ts"], False),
    ],
)
def test_S27_another_table_in_its_place_takes_the_rows_if_they_fit(
    spark, table, changes, past, at_point, schema, keys, fits
):
    left_owing(table, changes, past, at_point)
    shutil.rmtree(directory_of(past))
    another = TrinityTable.create(spark, past.path, schema, primaryKey=keys)
    if fits:
        NEXT_WRITERS["merge"](table)
        assertRows(another.toDF(), [(*row, None) for row in REPLACED])
        return
    with pytest.raises(PendingHistoryInsertsError, match="is not what it was when the rows were made"):
        NEXT_WRITERS["merge"](table)
    assert another.toDF().count() == 0


def test_S27_a_merge_stands_whose_rows_cannot_be_written(table, changes, past, at_point):
    at_point("commit.done", lambda: shutil.rmtree(directory_of(past)))
    result = remembering(table, changes, past).execute()
    assert (result.rowsUpdated, result.rowsHistory) == (1, 2)
    assert "still to be written" in result.hint
    assert "discardPendingHistoryInserts" in result.hint


@pytest.mark.slow
def test_S27_tables_that_owe_each_other_rows(spark, table, changes, past, at_point):
    left_owing(table, changes, past, at_point)
    fill(past, spark, [(9, 9, "z", "here")])
    keep = {"id": "id", "ts": "ts", "v": "v"}
    at_point("commit.done", interrupt)
    merge = past.merge(frame(spark, "id INT, ts INT", (9, 9))).whenMatched().delete().insertHistoryExpr(keep, table)
    with pytest.raises(KeyboardInterrupt):
        merge.execute()
    TrinityTable.forPath(spark, table.path).deleteWhere("id = 99").execute()
    assert len(past._snapshot().outbox) == 1
    TrinityTable.forPath(spark, past.path).deleteWhere("id = 99").execute()
    assert (9, 9, "z", False) in live_rows(table)
    assertRows(past.toDF(), REPLACED)


def test_a_purge_leaves_nothing_of_rows_that_were_owed(spark, table, changes, past, at_point):
    left_owing(table, changes, past, at_point)
    (owed,) = table._snapshot().outbox
    assert f"_tm_batch={owed.id}" in batch_directories(table)
    table.purge([1])
    assert batch_directories(table) == {f"_tm_batch={b.id}" for b in table._snapshot().batches}
    assertRows(past.toDF(), REPLACED)


def test_a_purge_finds_rows_that_were_given_up(spark, table, changes, past, at_point):
    left_owing(table, changes, past, at_point)
    shutil.rmtree(directory_of(past))
    (given_up,) = table.discardPendingHistoryInserts()
    table.purge([2])
    assert f"_tm_batch={given_up['batch']}" in batch_directories(table), "it is about others"
    table.purge([1])
    assert f"_tm_batch={given_up['batch']}" not in batch_directories(table)


# Refused when it is built, and shown ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ({"id": "id"}, r"insertHistoryExpr into .*/table-\w+: the map does not assign ts \(primary key\)"),
        ({**KEEP, "wy": "1"}, "it has no column 'wy'.*Did you mean 'why'"),
        ({**KEEP, "ID": "1"}, "assigns 'id' twice"),
        ({**KEEP, "v": "why"}, "column 'v': Column 'why' not found"),
        ({**KEEP, "v": "C.v"}, "There is no alias 'C'"),
        ({**KEEP, "v": "max(v)"}, "insertHistoryExpr into .*aggregates"),
        ({**KEEP, "ts": "array(1)"}, "column 'ts' is int, and a value of type array"),
    ],
)
def test_S28_maps_that_are_refused(table, changes, past, keep, message):
    merge = table.alias("A").merge(changes.alias("B"), "A.id = B.id").whenMatched().delete()
    with pytest.raises(TrinityMergeError, match=message):
        merge.insertHistoryExpr(keep, past).build()


def test_S28_a_watermark_must_be_in_the_map(spark, table, changes, tmp_path):
    other = new_table(spark, tmp_path)
    merge = table.alias("A").merge(changes.alias("B"), "A.id = B.id").whenMatched().delete()
    with pytest.raises(InvalidMergeError, match=r"does not assign ts \(watermark\)"):
        merge.insertHistoryExpr({"id": "id"}, other).build()


def test_S28_tables_that_are_refused(spark, table, changes, past):
    merge = table.alias("A").merge(changes.alias("B"), "A.id = B.id").whenMatched().delete()
    with pytest.raises(InvalidMergeError, match="Use insertExpr"):
        merge.insertHistoryExpr({"id": "id"}, table).build()
    for other, got in (("db.past", "'db.past'"), (7, "int"), (changes, ".*DataFrame")):
        with pytest.raises(
            InvalidMergeError,
            match=rf"insertHistoryExpr inserts into a TrinityTable only, got {got}.*TrinityTable\.convert makes one.*Nothing was",
        ):
            merge.insertHistoryExpr({"id": "id"}, other)
    with pytest.raises(TrinityMergeError, match="read only"):
        merge.insertHistoryExpr({"id": "id"}, TrinityTable.forPath(spark, past.path, versionAsOf=0))


def test_S30_an_alias_that_is_also_a_column_is_refused(table, changes, past):
    merge = table.alias("v").merge(changes.alias("B"), "v.id = B.id").whenMatched().delete()
    assert merge.insertHistoryExpr({"id": "id", "ts": "ts", "v": "v"}, past).build()
    with pytest.raises(InvalidMergeError, match="'v' is an alias and a column"):
        merge.insertHistoryExpr({"id": "v.id", "ts": "ts", "v": "v"}, past).build()


def test_S22a_what_a_map_mentions_is_not_left_out(table, changes, past):
    merge = table.alias("A").merge(changes.alias("B"), "A.id = B.id").whenMatched().updateAll()
    assert merge.build().analysis.ignored == ("why",)
    assert merge.insertHistoryExpr(KEEP, past).build().analysis.ignored == ()


def test_it_is_explained(table, changes, past):
    merge = remembering(table, changes, past)
    assert f"insert id, ts, v, why of the row before into {past.path}" in merge.build().explain()
    assert "not blind append: insertHistoryExpr writes what is replaced" in merge.build().explain()
    assert f".delete().insertHistoryExpr(id, ts, v, why; {past.path})" in repr(merge)
    assert merge.build().preview().count() == 5, "a delete of a key that is not there is recorded all the same (S18)"
