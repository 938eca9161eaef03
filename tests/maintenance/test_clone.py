"""S40a: a copy of a table is the table, at another path: whatever happens to both afterwards, they hold the same."""

from __future__ import annotations

import os
import random
from typing import Any

import attrs
import pytest
from helpers import assertRows, quickly
from tables import batch_directories, directory_of, fill, frame, live_rows, new_table
from test_history_properties import (
    PHASES,
    QUICK,
    Life,
    in_segments as in_segments,  # a fixture
)

from trinitymerge import (
    ConcurrentCommitError,
    CorruptTableError,
    InvalidMergeError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TrinityTable,
)
from trinitymerge.fs import faults
from trinitymerge.fs.hadoop import HadoopFileSystem
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log import model
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance import clone as clone_module, rewrite
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import MINOR_COMPACTION_AFTER_BATCHES, TOMBSTONE_RETENTION_HOURS
from trinitymerge.spark.system_columns import CLAUSE, EFFECT, ENDED, SINCE, UNTIL
from trinitymerge.stores.directories import BatchDirectories

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def one_clock(monkeypatch):
    """Each commit is a millisecond after the one before: what happens to two tables happens at the same times."""
    monkeypatch.setattr(model, "now_ms", lambda: 0)


OF_EACH = {"batches", "first_version", "checksum", "table_id", "origins", "purged", "pending_deletes"}
"""In what of a snapshot a table and its clone may differ."""


def told(table: TrinityTable) -> dict[str, Any]:
    """All that a table says of itself and its rows, but for the names of its batches and what is drawn by lot.

    Each stored row with its batch, and each batch with what the log says of it, are what every answer is made of; why a key holds
    what it holds is asked of one key.
    """
    own, snapshot = table.definition, table._snapshot()
    versions = table.versions(emptyIntervals=True) if own.history else None
    stored = stored_rows(table)
    keys = sorted({row[: len(own.primaryKey)] for row in stored}, key=repr)
    asked = keys[snapshot.version % len(keys) :][:1] if keys else []
    return {
        **{f.name: getattr(snapshot, f.name) for f in attrs.fields(Snapshot) if f.name not in OF_EACH},
        "batches": [attrs.evolve(b, id="x", bytes=0, segment_of=b.segment_of and "t") for b in snapshot.batches],
        "purged": len(snapshot.purged.hashes) if snapshot.purged else 0,
        "ranges": table._store.ranges_of(snapshot.batches),
        "stored": stored,
        "rows": live_rows(table),
        "versions": versions and sorted(map(tuple, versions.collect()), key=repr),
        "why": [[tuple(r) for r in table.why(key).drop("_batch").collect()] for key in asked],
    }


def stored_rows(table: TrinityTable) -> list[tuple[Any, ...]]:
    """All rows of all batches as they stand in files: the key, the rest of the row, the library's columns, and its batch."""
    own, places = table.definition, {b.id: n for n, b in enumerate(table._snapshot().batches)}
    ends = own.field(own.watermarkKey[0]).type if own.watermarkKey else "long"
    theirs = [Field(CLAUSE, "integer"), Field(EFFECT, "string"), Field(SINCE, "long"), Field(UNTIL, ends)]
    columns = [*(own.field(k) for k in own.primaryKey), *own.stored_fields, *theirs, Field(ENDED, "long")]
    rows = table._store.scan_directories(own, list({f.name: f for f in columns}.values()), list(places)).collect()
    return sorted(((*row[:-1], places[row[-1]]) for row in rows), key=repr)


def clone_of(table: TrinityTable) -> TrinityTable:
    return table.clone(f"{table.path}-clone-{random.randrange(10**9)}")


# Everything goes along ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_S40a_a_clone_is_the_table_with_all_that_its_rows_do_not_show(spark, tmp_path):
    settings = {TOMBSTONE_RETENTION_HOURS: "0", MINOR_COMPACTION_AFTER_BATCHES: "none"}
    table = new_table(spark, tmp_path, properties=settings, comment="of orders")
    fill(table, spark, [(i, 10, "a", False) for i in range(6)], [(1, 20, None, True), (2, 20, "b", False)])
    table.compact()  # forgets a tombstone
    table.purge([5])
    table.upsert(frame(spark, "id INT, ts INT, v STRING", (3, 30, "c"))).withTransaction("app", 7).execute()
    table.deleteWhere("id = 4").at("40").execute()
    clone = clone_of(table)
    assert told(clone) == told(table)
    late = frame(spark, "id INT, ts INT, v STRING", (1, 15, "late"), (4, 35, "late"), (5, 99, "replayed"))
    for each in (table, clone):
        result = each.upsert(late).withTransaction("late", 1).execute()
        assert (result.rowsPurged, result.rowsBelowHorizon) == (1, 1)
        assert each.upsert(late).withTransaction("app", 7).execute().skipped
    assert told(clone) == told(table)
    assert 4 not in [row[0] for row in live_rows(clone)], "a copy of toDF() would have it again"


def test_S40a_a_clone_shares_nothing_with_its_original(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(2, 10, "a", False)])
    clone = clone_of(table)
    inodes = [{f.stat().st_ino for f in directory_of(t).rglob("*") if f.is_file()} for t in (table, clone)]
    assert inodes[0].isdisjoint(inodes[1])
    assert batch_directories(table).isdisjoint(batch_directories(clone))
    clone.deleteWhere("true").execute()
    table.compact()
    table.vacuum(retentionHours=0)
    assert [len(live_rows(t)) for t in (table, clone)] == [2, 0]
    assert clone.restore(2).version == 4
    assert live_rows(clone) == live_rows(table)
    files = [f for d in batch_directories(clone) for f in (directory_of(clone) / "data" / d).iterdir()]
    assert any(f.name == "_key_range.json" for f in files)
    assert any(f.name.endswith(".crc") for f in files), "rot is noticed in the copy, too"


def test_S40a_a_clone_of_a_past_version_is_that_version_and_can_be_written(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, *[[(n, 10 * n, "a", False)] for n in (1, 2, 3)])
    table.purge([2])
    table.upsert(frame(spark, "id INT, ts INT, v STRING", (4, 1, "d"))).withTransaction("app", 3).execute()
    past = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    clone = clone_of(past)
    assert (clone.version, live_rows(clone)) == (1, [(1, 10, "a", False)])
    again = frame(spark, "id INT, ts INT, v STRING", (2, 99, "replayed"), (4, 1, "d"))
    result = clone.upsert(again).withTransaction("app", 3).execute()
    assert (result.skipped, result.rowsPurged, result.version) == ("", 1, 2), "what was purged since stays purged"
    assert [row[0] for row in live_rows(clone)] == [1, 4]


def test_S40a_H2_a_clone_knows_when_rows_were_committed_whose_batches_are_gone(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING", history=True)
    for v in "abc":
        table.upsert(frame(spark, "id INT, v STRING", (1, v))).execute()
    table.compact()
    table.vacuum(retentionHours=0)
    told = ("v", "_commit_version", "_commit_timestamp")
    assertRows(clone_of(table).why(1).select(*told), table.why(1).select(*told).collect())


def test_S40a_a_clone_of_an_empty_table_is_empty(spark, tmp_path):
    table = new_table(spark, tmp_path, history=True)
    clone = clone_of(table)
    assert (clone.version, clone.definition, live_rows(clone)) == (0, table.definition, [])
    fill(clone, spark, [(1, 10, "a", False)])
    assert (clone.version, table.version) == (1, 0)


def test_S40a_the_log_of_a_clone_begins_with_it(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, *[[(n, n, "a", False)] for n in range(1, 5)])
    clone = fill(clone_of(table), spark, [(9, 9, "z", False)])
    rows = clone.history().select("version", "operation", "batchesAdded", "rowsAdded").collect()
    assert [tuple(r) for r in rows] == [(5, "UPSERT", 1, 1), (4, "CLONE", 4, 4)]
    assert [f.name for f in sorted((directory_of(clone) / "_trinity_log").glob("0*"))] == [
        "00000000000000000000.json",
        "00000000000000000005.json",
    ]
    with pytest.raises(TableNotFoundError, match=r"has no version 3; it has versions 4 to 5\."):
        TrinityTable.forPath(spark, clone.path, versionAsOf=3)
    assert TrinityTable.forPath(spark, clone.path, versionAsOf=0).toDF().isEmpty()
    assert len(live_rows(TrinityTable.forPath(spark, clone.path, versionAsOf=4))) == 4
    changes = clone.changes(0).select("id", "_change_type", "_commit_version").orderBy("id")
    assertRows(changes, [*((n, "insert", 4) for n in range(1, 5)), (9, "insert", 5)])
    assertRows(clone.changes(4).select("id", "_commit_version"), [(9, 5)])
    steps = clone.changes(0, net=False).select("id", "_commit_version")
    assertRows(steps, [*((n, 4) for n in range(1, 5)), (9, 5)])


def test_S40a_feeds_go_on_from_a_clone_on_either_side(spark, tmp_path):
    """The positions of feeds are versions of the table that feeds, in the markers of the one that is fed."""
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(2, 10, "a", False)])

    def feed(source: TrinityTable, target: TrinityTable) -> list[Any]:
        told = source.changesSince(target, "feed")
        rows = told.rows.filter("_change_type <> 'update_preimage'")
        merge = target.applyChanges(rows, "_watermark", "_change_type = 'delete'", columns=target.definition.names)
        merge.withTransaction(*told.transaction).execute()
        return live_rows(target)

    fed, early = new_table(spark, tmp_path), new_table(spark, tmp_path)
    early.upsert(table.toDF().filter("id = 1")).withTransaction("feed", 1).execute()
    assert feed(table, fed) == live_rows(table)
    clone, fed_clone = clone_of(table), clone_of(fed)
    fill(clone, spark, [(3, 10, "a", False), (1, 20, None, True)])
    fill(table, spark, [(4, 10, "a", False)])
    assert feed(table, fed_clone) == live_rows(table), "the copy of a table that is fed"
    assert feed(clone, fed) == live_rows(clone), "the copy of a table that feeds"
    assert feed(clone, new_table(spark, tmp_path)) == live_rows(clone), "from nothing"
    with pytest.raises(InvalidMergeError, match=r"knows version 1, and .* is a copy that begins with version 2"):
        clone.changesSince(early, "feed")


# The same life --------------------------------------------------------------------------------------------------------


class TwoTables:
    """A table and, from some moment on, its clone: the same is done to both."""

    def __init__(self, spark, directory, number: int) -> None:
        self.spark, self.chance = spark, random.Random(number)
        settings = {TOMBSTONE_RETENTION_HOURS: ("0", "1", "none")[number % 3], MINOR_COMPACTION_AFTER_BATCHES: "4"}
        shape: dict[str, Any] = {"watermarkKey": None} if number % 4 == 3 else {}
        table = new_table(spark, directory, properties=settings, history=number % 2 == 1, **shape)
        self.tables = [table]

    def batch(self) -> list[tuple[Any, ...]]:
        keys = self.chance.sample(range(12), 3)
        dead = [self.chance.random() < 0.3 for _ in keys]
        return [(k, self.chance.randrange(30), None if d else f"v{k}", d) for k, d in zip(keys, dead, strict=True)]

    def append(self) -> None:
        rows = self.batch()
        for table in self.tables:
            fill(table, self.spark, rows)

    def merge(self) -> None:
        source = frame(self.spark, "id INT, ts INT, v STRING, deleted BOOLEAN", *self.batch())
        results = [
            (table.merge(source).whenMatched("source.deleted").delete().whenMatched().updateAll())
            .whenNotMatched("NOT source.deleted")
            .insertAll()
            .withTransaction("app", table.version)
            .execute()
            for table in self.tables
        ]
        assert results[0] == results[-1]

    def compact(self) -> None:
        results = [attrs.evolve(t.compact(), bytes=0) for t in self.tables]
        assert results[0] == results[-1]

    def purge(self) -> None:
        key = self.chance.randrange(12)
        results = [t.purge([key]) for t in self.tables]
        assert results[0].rowsRemoved == results[-1].rowsRemoved

    def restore(self) -> None:
        version = self.chance.randrange(self.first, self.tables[0].version + 1)
        results = [t.restore(version) for t in self.tables]
        assert results[0] == results[-1]

    def vacuum(self) -> None:
        for table in self.tables:
            table.vacuum(retentionHours=0)
        self.first = self.tables[0].version

    def clone(self) -> None:
        self.tables = [self.tables[0], clone_of(self.tables[-1])]
        self.first = self.tables[0].version

    def check(self) -> None:
        assert len(self.tables) == 2
        original, clone = map(told, self.tables)
        assert clone == original


STEPS = ("append", "append", "append", "merge", "compact", "append", "merge", "append", "compact")


@pytest.mark.parametrize("number", quickly([*range(4), *range(10, 40)], {0}))
def test_S40a_whatever_happens_to_both_a_clone_holds_what_its_original_holds(spark, tmp_path, number):
    two = TwoTables(spark, tmp_path, number)
    for step in two.chance.sample(STEPS, len(STEPS)):
        getattr(two, step)()
    two.clone()
    two.check()
    for phase in (("append", "merge", "append"), ("compact", "append", "restore"), ("purge", "append"), ("vacuum",)):
        for step in two.chance.sample(phase, len(phase)):
            getattr(two, step)()
    two.check()
    two.clone()  # of the clone
    for step in ("append", "compact", "merge"):
        getattr(two, step)()
    two.check()


class GoesOnInAClone(Life):
    """A life whose table is replaced by its clone in the middle: the interpreter notices nothing."""

    def _note(self, *args: Any, **options: Any) -> None:
        before = self.known[max(self.known)].times
        super()._note(*args, **options)
        newest = max(self.known)
        self.known[newest] = attrs.evolve(self.known[newest], times={**before, **self.known[newest].times})

    def clone(self) -> None:
        old = self.table._store
        self.table = clone_of(self.table)
        self.ids = [self.table._store.copy_batch_from(old, i) for i in self.ids]
        self.first = self.table.version


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly([*QUICK[:3], *range(200, 230)], {QUICK[0]}))
def test_S40a_versions_in_a_clone_are_the_interpreters(number, spark, tmp_path):
    life = GoesOnInAClone(spark, tmp_path, number)
    moments = set(life.chance.sample(range(len(PHASES) - 1), 2))
    for place, phase in enumerate(PHASES):
        for step in life.chance.sample(phase, len(phase)):
            if step == "commit" and not life.batches:
                continue
            getattr(life, step)()
            life.done.append(f"{step} -> {life.table.version}")
        if place in moments:
            life.clone()
            life.done.append(f"clone -> {life.table.version}")
        life.check()
    life.check_changes()


def test_S38_a_clone_forgets_tombstones_when_its_original_does(spark, tmp_path, monkeypatch):
    table = new_table(spark, tmp_path, properties={TOMBSTONE_RETENTION_HOURS: "1"})
    fill(table, spark, [(i, 10, "a", False) for i in range(4)], [(1, 20, None, True)], [(2, 20, None, True)])
    clone, old = clone_of(table), table._store.committed_at(2)
    monkeypatch.setattr(rewrite, "now_ms", lambda: old + HOUR_MS)
    results = [t.compact() for t in (table, clone)]
    assert [(r.tombstones, r.tombstonesForgotten) for r in results] == [(1, 1)] * 2
    monkeypatch.setattr(rewrite, "now_ms", lambda: table._store.committed_at(3) + HOUR_MS)
    again = clone_of(clone)  # the time stands in the file by now
    assert again.compact(full=True).tombstonesForgotten == 1


# Beside others --------------------------------------------------------------------------------------------------------


def test_S40a_a_clone_beside_a_compaction_and_a_vacuum_begins_anew(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])

    def meanwhile() -> None:
        fill(table, spark, [(2, 10, "a", False)])
        table.compact()
        table.vacuum(retentionHours=0)

    fresh = TrinityTable.forPath(spark, table.path)
    seen: list[str] = []
    original = clone_module._copy

    def slow(source: Any, target: Any, batch: Any) -> Any:
        if not seen:
            seen.append(batch.id)
            meanwhile()
        return original(source, target, batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clone_module, "_copy", slow)
        clone = clone_of(fresh)
    assert told(clone) == told(table)
    assert batch_directories(clone) == {f"_tm_batch={b.id}" for b in clone._snapshot().batches}, "nothing is left over"


def test_S40a_a_key_that_is_purged_meanwhile_is_not_in_the_clone(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "secret", False)])
    at_point("clone.copied", lambda: table.purge([2]))
    clone = clone_of(TrinityTable.forPath(spark, table.path))
    assert told(clone) == told(table)
    everything = [spark.read.parquet(str(directory_of(clone) / "data" / d)) for d in batch_directories(clone)]
    assert "secret" not in str([df.collect() for df in everything])


@pytest.mark.classic("reaches storage through Hadoop, in Spark's JVM")
def test_S40a_batches_are_copied_between_filesystems(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "b", False)])
    there, back = BatchDirectories(), BatchDirectories()
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.clones.link./data", tmp_path.as_uri())
    there.files, there.path = (
        HadoopFileSystem(spark, "viewfs://clones/data", create="rename"),
        "viewfs://clones/data/there",
    )
    back.files, back.path = LocalFileSystem(), f"file:{tmp_path}/back"
    (batch,) = table._snapshot().batches
    copied = back.copy_batch_from(there, there.copy_batch_from(table._store, batch.id))
    names = [sorted(f.name for f in d.all_files(i)) for d, i in ((table._store, batch.id), (back, copied))]
    assert [n for n in names[0] if n[0] != "."] == [n for n in names[1] if n[0] != "."]
    assert spark.read.parquet(back.batch_path(copied)).select("id", "v").collect() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("there", ["table", "file", "other files"])
def test_S40a_a_clone_needs_a_free_path(spark, tmp_path, there):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    path = tmp_path / "there"
    if there == "table":
        new_table(spark, tmp_path).clone(str(path))
    elif there == "file":
        path.write_text("x")
    else:
        path.mkdir()
        (path / "x.csv").write_text("1")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TableExistsError):
        table.clone(str(path))
    assert sorted(tmp_path.rglob("*")) == before


def test_S40a_of_two_clones_to_one_path_one_is_made(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    path = str(tmp_path / "copy")
    at_point("clone.copied", lambda: table.clone(path))
    with pytest.raises(TableExistsError):
        TrinityTable.forPath(spark, table.path).clone(path)
    clone = TrinityTable.forPath(spark, path)
    assert told(clone) == told(table)
    assert batch_directories(clone) == {f"_tm_batch={b.id}" for b in clone._snapshot().batches}


@pytest.mark.parametrize("existed", [False, True])
def test_S40a_a_clone_that_fails_leaves_nothing(spark, tmp_path, monkeypatch, existed):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(2, 10, "a", False)])
    path = tmp_path / "copy"
    if existed:
        path.mkdir()
    real, calls = LocalFileSystem.copy, []

    def full(self: LocalFileSystem, source: str, target: str) -> None:
        calls.append(target)
        if len(calls) > 2:
            raise OSError(28, "No space left on device", target)
        real(self, source, target)

    monkeypatch.setattr(LocalFileSystem, "copy", full)
    with pytest.raises(StorageError, match=r"could not be copied .*No space left"):
        table.clone(str(path))
    assert path.exists() == existed
    assert not existed or not os.listdir(path)
    monkeypatch.undo()
    assert told(table.clone(str(path))) == told(table)


def test_S40a_a_table_that_has_lost_files_is_not_copied(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    past = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    lost = table._snapshot().batches[0]
    table._store.remove(table._store.batch_path(lost.id))
    with pytest.raises(CorruptTableError, match=lost.id):
        clone_of(table)
    with pytest.raises(TableNotFoundError, match="Version 1 of"):
        clone_of(past)
    assert not list(tmp_path.glob("*-clone-*"))


def test_S40a_a_clone_gives_up_if_keys_are_purged_each_time(spark, tmp_path, monkeypatch):
    settings = {"trinitymerge.maxCommitAttempts": "2", "trinitymerge.commitBackoffSeconds": "0"}
    table = fill(new_table(spark, tmp_path, properties=settings), spark, [(i, 10, "a", False) for i in range(5)])
    keys, purging = iter(range(5)), TrinityTable.forPath(spark, table.path)
    monkeypatch.setattr(faults, "fault", lambda name: name == "clone.copied" and purging.purge([next(keys)]) and None)
    with pytest.raises(ConcurrentCommitError, match=r"changed while clone\(\) copied it: keys were purged"):
        clone_of(table)
    assert not list(tmp_path.glob("*-clone-*"))


def test_S40a_changes_of_a_restored_clone_begin_with_its_first_version(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(2, 10, "b", False)])
    clone = fill(clone_of(table), spark, [(3, 10, "c", False)])
    clone.restore(2)
    told = clone.changes(0).select("id", "_change_type", "_commit_version")
    assertRows(told, [(1, "insert", 2), (2, "insert", 2)])
