"""S39b: every key goes of which any stored row fulfils a condition, whatever version, file or writer the row is of."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from tables import batch_directories, directory_of, fill, frame, live_rows, new_table
from test_maintenance import age, all_files_hold

from trinitymerge import ConcurrentCommitError, InvalidMergeError, ReadOnlyTableError, TrinityTable
from trinitymerge.log.actions import AddBatch
from trinitymerge.log.commit import publish
from trinitymerge.maintenance import purge
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.schema.evolution import widened, with_column
from trinitymerge.schema.field import Field
from trinitymerge.spark.conf import session_conf
from trinitymerge.spark.expressions import physical_schema

PEOPLE = "id INT, ts INT, name STRING, deleted BOOLEAN"
KEYS = {"watermarkKey": "ts", "tombstoneKey": "deleted"}


def people(spark, directory, *batches, **options) -> TrinityTable:
    return fill(new_table(spark, directory, PEOPLE, **KEYS, **options), spark, *batches)


def staged(table: TrinityTable, *rows: tuple[Any, ...]) -> str:
    """A batch that a writer has left behind."""
    spark = table.toDF().sparkSession
    return table._store.stage(frame(spark, PEOPLE, *rows), table.definition).id


# What is found --------------------------------------------------------------------------------------------------------


def test_S39b_a_key_goes_for_any_row_that_is_stored_anywhere(spark, tmp_path):
    table = people(
        spark,
        tmp_path,
        [(1, 10, "ann", False), (2, 10, "bob", False), (3, 10, "ann", False), (4, 10, "cid", False)],
        [(1, 20, "renamed", False), (3, 20, None, True)],
    )
    table.compact()  # the names of 1 and 3 are in files of past versions only
    fill(table, spark, [(5, 10, "ann", False), (5, 5, "late", False)])
    left = staged(table, (6, 1, "ann", False), (7, 1, "bob", False))
    fill(table, spark, [(6, 10, "fay", False), (7, 10, "gus", False)])
    assert len(all_files_hold(table, "ann")) == 3
    result = table.purgeWhere("name = 'ann'")
    assert (result.version, result.keys, result.unverifiedFiles) == (6, 4, ())
    assertRows(table.toDF().select("id", "name"), [(2, "bob"), (4, "cid"), (7, "gus")])
    assert all_files_hold(table, "ann") == []
    assert left not in table._store.directories()
    again = frame(spark, PEOPLE, *[(i, 99, "replayed", False) for i in range(1, 8)])
    assert table.upsert(again).execute().rowsPurged == 4
    for file in (directory_of(table) / "_trinity_log").iterdir():
        assert b"ann" not in file.read_bytes()


def test_S39b_archives_and_tombstones_are_looked_into(spark, tmp_path):
    table = people(
        spark,
        tmp_path,
        [(1, 10, "ann", False), (2, 10, "bob", False)],
        [(1, 20, "x", False), (2, 20, "x", False)],
        [(1, 30, "y", False), (2, 30, None, True)],
        history=True,
    )
    minor_compact(table._store, table._snapshot(), table._snapshot().live_batches[-2:])
    table.compact()
    table.vacuum(retentionHours=0)
    assert table.purgeWhere("ts = 10 AND name = 'ann'").keys == 1
    assertRows(table.versions().select("id", "name"), [(2, "bob"), (2, "x")])
    assert table.purgeWhere("deleted AND ts = 30").keys == 1
    assert table.versions().isEmpty()
    assert batch_directories(table) == set()


def test_S39b_nothing_found_is_nothing_committed(spark, tmp_path):
    table = people(spark, tmp_path, [(1, 10, "ann", False), (2, 10, None, False)])
    before = batch_directories(table)
    result = table.purgeWhere("name = 'zoe'")
    assert (result.version, result.keys, result.filesDeleted) == (1, 0, 0)
    assert table.purgeWhere("name <> 'ann' OR name = NULL").keys == 0, "null is not true (S20)"
    assert batch_directories(table) == before


def test_S39b_what_writers_left_that_has_no_key_or_cannot_be_read_goes_too(spark, tmp_path):
    table = people(spark, tmp_path, [(1, 10, "bob", False)])
    nameless, other = staged(table, (None, 1, "ann", False)), staged(table, (None, 1, "bob", False))
    dead = directory_of(table) / "data" / "_tm_batch=dead" / "_temporary" / "0"
    dead.mkdir(parents=True)
    (dead / "part-0.parquet").write_bytes(b"half a file about ann")
    result = table.purgeWhere("name = 'ann'")
    assert result.unverifiedFiles == (f"{table.path}/data/_tm_batch=dead",), "its writer may be alive"
    assert (nameless in table._store.directories(), other in table._store.directories()) == (False, True)
    age(dead.parent.parent, hours=2)
    assert table.purgeWhere("name = 'ann'").unverifiedFiles == ()
    assert not dead.exists()
    assert live_rows(table) == [(1, 10, "bob", False)]


def test_S39a_a_directory_that_looks_abandoned_is_announced_before_it_goes(spark, tmp_path, monkeypatch):
    """Its writer may be alive, and commit between the purge's two looks: that commit must fail, or the files must stay."""
    table = people(spark, tmp_path, [(1, 10, "bob", False), (2, 10, "ann", False)])
    slow, writer = staged(table, (3, 10, "cy", False)), TrinityTable.forPath(spark, table.path)._store
    committed = []

    def commit_first(store, batch_id):
        if batch_id == slow and not committed:
            snapshot = writer.snapshot()
            files = writer.data_files(slow)
            size = {"files": len(files), "bytes": sum(f.size_bytes for f in files)}
            batch = attrs.evolve(snapshot.batches[0], id=slow, rows=1, base=False, version=None, **size)
            commit = snapshot.next_commit("COMPACT", [AddBatch(batch)])
            committed.append(publish(writer, commit, snapshot, ()))
        return batch_id == slow

    monkeypatch.setattr(purge, "is_abandoned", commit_first)
    table.purge([2])
    assert len(committed) == 1
    assert live_rows(table) == [(1, 10, "bob", False), (3, 10, "cy", False)]


CONDITIONS = {
    "alias": lambda t: t.alias("A").purgeWhere("A.name = 'ann'"),
    "default alias": lambda t: t.purgeWhere("target.name LIKE 'an%'"),
    "Column": lambda t: t.purgeWhere((F.col("name") == "ann") & (F.col("id") < 9)),
    "key": lambda t: t.purgeWhere("id IN (1)"),
    "subquery": lambda t: t.purgeWhere("id IN (SELECT 1)"),
}


@pytest.mark.parametrize("form", CONDITIONS)
def test_S39b_conditions_are_written_as_for_deleteWhere(spark, tmp_path, form):
    table = people(spark, tmp_path, [(1, 10, "ann", False), (2, 10, "bob", False)])
    assert CONDITIONS[form](table).keys == 1
    assert [row[0] for row in live_rows(table)] == [2]


REFUSED = {
    "none": (None, "takes a condition as SQL text or a Column, got NoneType"),
    "number": (1, "got int"),
    "not boolean": ("id", "is int, not boolean"),
    "no such column": ("nme = 'ann'", "nme"),
    "hidden column": ("_tm_clause = 1", "_tm_clause"),
    "nonsense": ("name =", "condition of purgeWhere"),
    "aggregate": ("max(id) = 1", "compute aggregates, window functions"),
    "random": ("rand() < 0.5", "not deterministic"),
    "fails": ("CAST(concat(name, '!') AS INT) = 1 OR raise_error('on purpose') IS NULL", "could not be evaluated"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_S39b_what_cannot_be_asked_is_refused_and_nothing_erased(spark, tmp_path, case):
    table = people(spark, tmp_path, [(1, 10, "ann", False)])
    condition, text = REFUSED[case]
    before = batch_directories(table)
    with pytest.raises(InvalidMergeError, match=text):
        table.purgeWhere(condition)
    assert (table.version, batch_directories(table)) == (1, before)


def test_S39b_too_many_keys_and_past_versions_are_refused(spark, tmp_path, monkeypatch):
    table = people(spark, tmp_path, [(i, 10, "ann", False) for i in range(3)])
    monkeypatch.setattr(purge, "MOST_KEYS", 2)
    with pytest.raises(ValueError, match=r"at most 2 keys at a time, and found 3\. Nothing was erased"):
        table.purgeWhere("name = 'ann'")
    with pytest.raises(ReadOnlyTableError):
        TrinityTable.forPath(spark, table.path, versionAsOf=1).purgeWhere("name = 'ann'")
    assert table.version == 1


# Beside others --------------------------------------------------------------------------------------------------------


def test_S39b_what_lands_meanwhile_is_looked_at_with_the_condition(spark, tmp_path, at_point):
    table = people(spark, tmp_path, [(1, 10, "ann", False), (2, 10, "bob", False)])
    other = TrinityTable.forPath(spark, table.path)
    at_point(
        "purge.staged", lambda: fill(other, spark, [(3, 10, "ann", False), (4, 10, "cid", False), (1, 20, "x", False)])
    )
    result = table.purgeWhere("name = 'ann'")
    assert (result.keys, result.version) == (2, 4)
    assert all_files_hold(table, "ann") == []
    assertRows(table.toDF().select("id"), [2, 4])
    assert str(result).startswith("version 4: 2 keys purged, 3 rows removed")


def test_S39b_a_batch_that_is_staged_before_and_lands_after_the_look_is_found(spark, tmp_path, at_point):
    """A merge beside it: its rows are written before the purge looks, or after, and are committed after the purge."""
    table = people(spark, tmp_path, [(1, 10, "ann", False), (2, 10, "bob", False)])
    other = TrinityTable.forPath(spark, table.path)
    source = frame(spark, PEOPLE, (1, 20, "ann", False), (3, 10, "ann", False), (4, 10, "cid", False))
    at_point("validate.done", lambda: table.purgeWhere("name = 'ann'"))
    result = other.upsert(source).execute()
    assert result.rowsPurged == 2, "3 was found in its staged file; it was written again, without it"
    assert all_files_hold(table, "ann") == []
    assertRows(table.toDF().select("id"), [2, 4])


@pytest.mark.parametrize("point", ["purge.found", "purge.staged", "purge.committed"])
def test_S39b_a_compaction_beside_it_hides_nothing(spark, tmp_path, at_point, point):
    table = people(spark, tmp_path, [(1, 10, "ann", False), (2, 10, "bob", False)], [(1, 20, "x", False)])
    other = TrinityTable.forPath(spark, table.path)
    at_point(point, other.compact)
    assert table.purgeWhere("name = 'ann'").keys == 1
    assert all_files_hold(table, "ann") == all_files_hold(table, "'x'") == []
    assertRows(table.toDF().select("id"), [2])


def test_S39b_a_vacuum_between_listing_and_reading_is_no_error(spark, tmp_path, monkeypatch):
    table = people(spark, tmp_path, [(1, 10, "ann", False)], [(1, 20, "bob", False)])
    table.compact()
    store, real, vacuums = table._store, type(table._store).scan_directories, []

    def late(self, *args):
        if not vacuums:
            vacuums.append(table.vacuum(retentionHours=0))
        return real(self, *args)

    monkeypatch.setattr(type(store), "scan_directories", late)
    assert table.purgeWhere("name = 'ann'").keys == 0
    assert len(vacuums[0]) == 2


def test_S39b_it_gives_up_if_such_rows_are_written_faster_than_they_are_erased(spark, tmp_path, monkeypatch):
    table = people(spark, tmp_path, [(0, 10, "ann", False)], properties={"trinitymerge.maxCommitAttempts": "2"})
    other, ids = TrinityTable.forPath(spark, table.path), iter(range(1, 99))
    monkeypatch.setattr(
        purge.faults,
        "fault",
        lambda name: name == "purge.found" and fill(other, spark, [(next(ids), 10, "ann", False)]) and None,
    )
    with pytest.raises(ConcurrentCommitError, match="faster than they are erased: 2 keys have been so far"):
        table.purgeWhere("name = 'ann'")


# Whatever happened ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(10, 40))])
def test_S39b_no_file_fulfils_the_condition_afterwards_and_other_keys_are_as_they_were(spark, tmp_path, number):
    chance, names = random.Random(number), ["ann", "bob", "cid", "dan", None]
    table = people(
        spark, tmp_path, history=number % 2 == 1, properties={"trinitymerge.minorCompactionAfterBatches": "3"}
    )
    rows = [
        [(i, chance.randrange(40), chance.choice(names), False) for i in chance.sample(range(30), 4)] for _ in range(9)
    ]
    for batch in rows:
        step = chance.random()
        if step < 0.2:
            table.compact()
        elif step < 0.3:
            staged(table, *batch)
        dead = [(*row[:2], None, True) if chance.random() < 0.2 else row for row in batch]
        table.upsert(frame(spark, PEOPLE, *dead)).execute()
    files = [f.path for i in table._store.directories() for f in table._store.data_files(i)]
    stored = {r["id"] for r in spark.read.parquet(*files).filter("name = 'ann'").select("id").collect()}
    assert stored
    before = [row for row in live_rows(table) if row[0] not in stored]
    assert table.purgeWhere("name = 'ann'").keys == len(stored)
    assert all_files_hold(table, "ann") == []
    assert live_rows(table) == before


def test_S39b_rows_for_other_tables_are_not_asked(spark, tmp_path):
    """Of this table's columns they have its keys alone: a condition that is true of nulls would be true of them."""
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, None, False)])
    store = table._store
    store.stage_outbox(frame(spark, "id INT", 1), table.definition)
    assert table.purgeWhere("v IS NULL").keys == 1
    assertRows(table.toDF(), [(1, 10, "a", False)])


@pytest.mark.parametrize("fileFormat", ["parquet", "orc"])
def test_S39b_a_condition_is_evaluated_on_rows_and_not_on_what_files_say_of_them(spark, tmp_path, fileFormat):
    """Files tell -0.0 from 0.0, and ORC fails on IN with a null: filters of Spark's that reach them miss rows."""
    table = new_table(spark, tmp_path, "id INT, x DOUBLE, v INT", fileFormat=fileFormat)
    rows = "VALUES (1, -1, 1), (3, 5, 3), (4, -1, 4), (6, 7, 6) AS t(id, s, v)"
    signed = f"SELECT id, CASE WHEN s < 0 THEN s * 0.0D ELSE double(s) END AS x, v FROM {rows}"
    table.insert(spark.sql(signed).coalesce(1)).execute()
    table.insert(spark.sql("SELECT 5 AS id, -1 * 0.0D AS x, 5 AS v")).execute()
    assert table.purgeWhere("v IN (1, NULL)").keys == 1
    assert table.purgeWhere("x = 0.0").keys == 2
    assertRows(table.toDF(), [(3, 5.0, 3), (6, 7.0, 6)])


# Writers that were about to change columns (S44) ----------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("staged", "later", "condition", "keys"),
    [
        (lambda d: widened(d, "v", "long"), None, "v = 7", 1),
        (lambda d: widened(d, "v", "long"), lambda a: a.widenColumn("v", "BIGINT"), "v = 7", 1),
        (lambda d: widened(d, "v", "long"), lambda a: a.widenColumn("v", "DOUBLE"), "v = 7", 0),
        (lambda d: with_column(d, Field("x", "integer")), lambda a: a.addColumn("x", "INT"), "x = 7", 1),
        (lambda d: with_column(d, Field("x", "integer")), lambda a: a.addColumn("x", "STRING"), "x = '7'", 0),
        (lambda d: with_column(d, Field("x", "varchar(9)")), lambda a: a.addColumn("x", "STRING"), "x = '7'", 1),
    ],
    ids=["wider", "wider, as the table later", "wider otherwise", "more", "more of another type", "text is text"],
)
def test_S39b_what_a_dead_writer_has_staged_with_other_columns_goes(
    spark, tmp_path, format, staged, later, condition, keys
):
    """No log entry has its definition; where the table has another form under its name since, it goes unjudged."""
    table = new_table(spark, tmp_path, "id INT, ts INT, v INT", watermarkKey="ts", fileFormat=format)
    fill(table, spark, [(1, 1, 5), (2, 1, 6)])
    definition = staged(table.definition)
    source = frame(spark, "id INT, ts INT, v INT, x INT", (3, 2, 7, 7), (4, 2, 8, 8))
    fields = physical_schema(definition.fields)
    source = source.selectExpr(*[f"CAST({f.name} AS {f.dataType.simpleString()}) AS {f.name}" for f in fields])
    left = table._store.stage(source, definition).id
    if later is not None:
        later(table.alter()).execute()
    result = table.purgeWhere(condition)
    assert result.keys == keys
    assert left not in table._store.directories()
    assertRows(table.toDF().select("id"), [1, 2])


def test_S39b_S44_a_writer_at_work_that_changes_columns_is_found(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id INT, ts INT, v INT", watermarkKey="ts")
    fill(table, spark, [(1, 1, 5)])
    many = 3_000_000_000
    source = frame(spark, "id INT, ts INT, v BIGINT", (1, 2, many), (2, 2, many), (3, 2, 7))
    other = TrinityTable.forPath(spark, table.path)
    at_point("validate.done", lambda: other.purgeWhere(f"v = {many}"))
    result = table.upsert(source).withSchemaEvolution().execute()
    assert (result.rowsAppended, result.rowsPurged) == (1, 2)
    assert live_rows(table) == [(3, 2, 7)]


@pytest.mark.parametrize("call", ["purge([2])", "purgeWhere(\"a = 'x'\")"])
def test_S39a_U7_keys_are_found_in_files_of_a_wider_type_that_a_restore_has_left(spark, tmp_path, call):
    columns = "id INT, ts INT, a STRING, b STRING"
    table = new_table(spark, tmp_path, columns, watermarkKey="ts")
    table.upsert(frame(spark, columns, (1, 5, "a", "b"))).execute()
    table.alter().widenColumn("ts", "BIGINT").execute()
    event = frame(
        spark,
        "id INT, ts BIGINT, a STRING, b STRING, unset ARRAY<STRING>, was INT",
        (2, 3 * 10**9, "x", None, ["b"], 1),
    )
    table.applyChanges(event, unchanged="unset", movedFrom="was", exceptColumns=["unset", "was"]).execute()
    table.restore(1)
    with session_conf(spark, {"spark.sql.ansi.enabled": "true"}):
        assert eval(f"table.{call}").filesDeleted > 0
