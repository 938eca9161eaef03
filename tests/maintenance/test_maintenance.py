"""S38-S40: compaction, vacuum, time travel, restore, purge and health."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import shutil
import threading
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path as FilePath

import attrs
import pytest
from helpers import assertRows
from lanes import write_table
from tables import EVENTS, batch_directories, directory_of, fill, frame, live_rows, new_table, sound_paths

from trinitymerge import (
    CorruptTableError,
    InvalidDefinitionError,
    NullKeyError,
    ReadOnlyTableError,
    SchemaMismatchError,
    TableNotFoundError,
    TrinityTable,
)
from trinitymerge.errors import FilesVacuumedError, sized
from trinitymerge.log.actions import Action, Batch, PurgeKeys, RestoreVersion, SetDefinition, SetHorizon
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Commit, Snapshot, now_ms
from trinitymerge.maintenance import advice, rewrite, vacuum
from trinitymerge.maintenance.deletion_vectors import make_deletion_vectors
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.merge.compile.strategies import APPEND_ONLY, KEY_LOOKUP
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import (
    MINOR_COMPACTION_AFTER_BATCHES,
    TARGET_SEGMENT_BYTES,
    TOMBSTONE_RETENTION_HOURS,
)

HOUR_MS = 3_600_000
KEEP_NONE = {TOMBSTONE_RETENTION_HOURS: "0"}


def age(path: FilePath, hours: float) -> None:
    """Makes files look as if they had been written long ago."""
    then = time.time() - hours * 3600
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(file, (then, then))


def stored_keys(table: TrinityTable) -> list[list[int]]:
    """The ids in each data file of the current version, in file order."""
    spark = table.toDF().sparkSession
    files = [f for b in table._snapshot().batches for f in table._store.data_files(b.id)]
    return [[r["id"] for r in spark.read.parquet(f.path).collect()] for f in files]


# Compaction -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_s38_compaction_never_changes_what_readers_see(spark, tmp_path):
    table = fill(
        new_table(spark, tmp_path),
        spark,
        [(1, 10, "a", False), (2, 10, "a", False), (3, 10, "a", False)],
        [(1, 20, "b", False), (2, 5, "late", False), (3, 20, None, True)],
        [(4, 10, "a", False), (3, 15, "late", False)],
    )
    before = live_rows(table)
    result = table.compact()
    assert (result.version, result.batches, result.rows, result.tombstones, result.rowsRemoved) == (4, 3, 4, 1, 4)
    assert live_rows(table) == before
    (base,) = table._snapshot().batches
    assert (base.base, base.unique_keys, base.version, base.rows, base.tombstones) == (True, True, 3, 4, 1)
    assert (base.watermark_min, base.watermark_max) == ((10,), (20,))
    fill(table, spark, [(1, 19, "late", False), (3, 19, "late", False)])
    assert live_rows(table) == before
    assert table.history().first()["operation"] == "UPSERT"
    assert str(result).startswith("version 4: 3 batches became one base of 4 rows; 4 rows removed")


@pytest.mark.slow
def test_s38_files_hold_ranges_of_sorted_keys(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "UNSHUFFLED_BYTES", 0)
    table = new_table(spark, tmp_path, "id INT, v STRING", properties={TARGET_SEGMENT_BYTES: "1000"})
    for start in (0, 1):
        table.upsert(spark.range(start, 400, 2).selectExpr("CAST(399 - id AS INT) AS id", "'x' AS v")).execute()
    table.compact()
    found = stored_keys(table)
    assert len(found) > 1
    assert all(keys == sorted(keys) for keys in found)
    ranges = sorted((keys[0], keys[-1]) for keys in found)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
    assert table.toDF().count() == 400


IN_FULL = [{"id": 1, "ts": 20, "v": "address", "n": 7, "deleted": True}]
"""A tombstone as older versions of the library wrote it."""


@pytest.mark.parametrize("alone", [True, False])
def test_s9_compaction_reduces_tombstones_that_were_written_in_full(spark, tmp_path, alone):
    fields = [Field("id", "integer"), Field("ts", "long"), Field("v", "string"), Field("n", "long", nullable=False)]
    definition = TableDefinition.of([*fields, Field("deleted", "boolean")], "id", "ts", "deleted")
    live = [{"id": n, "ts": 10, "v": "a", "n": 5, "deleted": False} for n in ((2,) if alone else (1, 2))]
    table = write_table(spark, tmp_path, definition, [live + IN_FULL] if alone else [live, IN_FULL])
    assert table.compact().tombstones == 1
    stored = table._store.scan(Batches.of(table._snapshot()).of_all_rows(), [Field("_tm_since", "long")])
    rows = stored.selectExpr("id", "ts", "v", "n", "deleted", "_tm_since IS NOT NULL")
    assertRows(rows, [(1, 20, None, 0, True, True), (2, 10, "a", 5, False, False)])
    assert table.compact().skipped == "there is one base and nothing else"


@pytest.mark.parametrize("properties", [{}, {TOMBSTONE_RETENTION_HOURS: "none"}])
def test_s38_young_tombstones_stay(spark, tmp_path, properties):
    table = new_table(spark, tmp_path, properties=properties)
    fill(table, spark, [(1, 10, "a", False)], [(1, 20, None, True)])
    assert table.compact().tombstones == 1
    fill(table, spark, [(1, 15, "late", False)])
    assertRows(table.toDF(), [])


def test_s38_old_tombstones_go_and_the_horizon_says_up_to_where(spark, tmp_path):
    table = new_table(spark, tmp_path, properties=KEEP_NONE)
    fill(
        table,
        spark,
        [(1, 10, "a", False), (2, 10, "a", False), (3, 30, "a", False)],
        [(1, 20, None, True), (2, 25, None, True)],
    )
    result = table.compact()
    assert (result.tombstones, result.tombstonesForgotten, result.rows) == (0, 2, 1)
    assert table._snapshot().horizon == (25,)
    fill(table, spark, [(4, 40, None, True), (5, 1, "a", False)])
    assert table._snapshot().horizon == (25,)
    table.compact()
    assert table._snapshot().horizon == (40,)
    assert TrinityTable.forPath(spark, table.path)._snapshot().horizon == (40,)


def test_s38_a_tombstone_ages_from_its_own_commit_however_often_it_is_compacted(spark, tmp_path, monkeypatch):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, None, True)])
    deleted_ms = now_ms()
    for day, tombstones in ((1, 1), (6, 1), (8, 0)):
        fill(table, spark, [(day + 100, 10, "a", False)])
        monkeypatch.setattr(rewrite, "now_ms", lambda day=day: deleted_ms + day * 24 * HOUR_MS)
        assert table.compact().tombstones == tombstones


def test_s38_without_a_watermark_tombstones_go_at_once(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING")
    fill(table, spark, [(1, "a"), (2, "a")])
    table.delete(frame(spark, "id INT", 1)).execute()
    assert table.compact().tombstonesForgotten == 1
    assert table._snapshot().horizon is None
    fill(table, spark, [(1, "again")])
    assertRows(table.toDF(), [(1, "again"), (2, "a")])


def test_s38_a_table_without_live_rows_becomes_empty(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a")])
    table.delete(frame(spark, "id INT", 1)).execute()
    table.compact()
    assert table._snapshot().batches == ()
    assertRows(table.toDF(), [])
    assert table.compact().skipped == "the table has no rows"


def test_s38_pointless_compaction_is_skipped(spark, tmp_path):
    table = new_table(spark, tmp_path, properties=KEEP_NONE)
    assert table.compact().skipped == "the table has no rows"
    fill(table, spark, [(1, 10, "a", False)])
    assert str(table.compact()) == "version 1: nothing compacted, there is one base and nothing else"
    fill(table, spark, [(1, 20, "b", False)])
    assert table.compact().skipped == ""
    assert table.compact().skipped == "there is one base and nothing else"
    fill(table, spark, [(1, 30, None, True)])
    assert table.compact().tombstonesForgotten == 1


def test_s35_merges_that_land_during_a_compaction_survive(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "a", False)], [(2, 20, "b", False)])
    at_point("compact.staged", lambda: fill(table, spark, [(1, 20, "b", False)], [(3, 10, "a", False)]))
    result = table.compact()
    assert (result.version, result.batches) == (5, 2)
    assertRows(table.toDF(), [(1, 20, "b", False), (2, 20, "b", False), (3, 10, "a", False)])
    assert [b.version for b in table._snapshot().batches] == [2, 3, 4]


def test_s38_rows_hidden_by_a_tombstone_stay_hidden_though_they_land_while_it_is_forgotten(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, properties=KEEP_NONE)
    fill(table, spark, [(1, 10, "a", False)], [(1, 20, None, True)])
    at_point("compact.staged", lambda: fill(table, spark, [(1, 15, "late", False)]))
    result = table.compact()
    assert (result.tombstonesForgotten, result.tombstones) == (0, 1)
    assertRows(table.toDF(), [])
    assert len(batch_directories(table)) == 4, "the first attempt's base is discarded"


@pytest.mark.parametrize("other", ["compact", "restore"])
def test_s35_compaction_gives_way_to_another_compaction_and_to_restore(spark, tmp_path, at_point, other):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    at_point("compact.staged", lambda: table.compact() if other == "compact" else table.restore(1))
    result = table.compact()
    assert "was committed concurrently" in result.skipped
    assertRows(table.toDF(), [(1, 20, "b", False)] if other == "compact" else [(1, 10, "a", False)])
    assert len(batch_directories(table)) == (3 if other == "compact" else 2)


def test_compaction_of_orc_tables_and_hidden_tombstones(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT", fileFormat="orc", watermarkKey="ts")
    fill(table, spark, [(1, 10), (2, 10)])
    table.delete(spark.sql("SELECT 1 AS id, 20 AS ts")).execute()
    for expected in (1, 1):
        assert table.compact().skipped or table._snapshot().batches[0].tombstones == expected
        fill(table, spark, [(1, 15), (3, 10)])
    assertRows(table.toDF(), [(2, 10), (3, 10)])


# Statistics -----------------------------------------------------------------------------------------------------------


def test_s13_decimal_watermarks_compare_as_numbers(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, w DECIMAL(6,2), v STRING", watermarkKey="w")
    fill(table, spark, [(i, Decimal(10), "base") for i in range(10)], [(1, Decimal(9), "late")])
    assertRows(table.toDF().filter("id = 1").select("v"), ["base"])


# Vacuum ---------------------------------------------------------------------------------------------------------------


def test_s39_vacuum_removes_what_no_retained_version_needs(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    table.compact()
    assert table.vacuum() == []
    old = sorted(f"{table.path}/data/_tm_batch={b.id}" for b in table._store.snapshot_at(2).batches)
    assert sorted(table.vacuum(retentionHours=0, dryRun=True)) == old
    assert len(batch_directories(table)) == 3
    assert sorted(table.vacuum(retentionHours=0)) == old
    assert batch_directories(table) == {f"_tm_batch={table._snapshot().batches[0].id}"}
    assertRows(table.toDF(), [(1, 20, "b", False)])
    assert table.vacuum(retentionHours=0) == []
    assert table.history().count() == 5, "log entries stay, and one says what went"


def test_s39_versions_of_the_retention_time_stay_readable(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    table.compact()
    for directory in (directory_of(table) / "data").iterdir():
        age(directory, hours=50)
    assert table.vacuum(retentionHours=24) == [], "old files, but their version was current a moment ago"
    assertRows(TrinityTable.forPath(spark, table.path, versionAsOf=1).toDF(), [(1, 10, "a", False)])


def test_s39_dead_writers_leftovers_go_and_young_files_stay(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    data, log = directory_of(table) / "data", directory_of(table) / "_trinity_log"
    dead, at_work = data / "_tm_batch=dead", data / "_tm_batch=atwork"
    for directory in (dead, at_work):
        (directory / "_temporary" / "0").mkdir(parents=True)
        (directory / "_temporary" / "0" / "part-0.parquet").write_bytes(b"x")
    dead_entry, young_entry = log / ".1.json.abc.tmp", log / ".2.json.abc.tmp"
    for file in (dead_entry, young_entry):
        file.write_bytes(b"{")
    strangers = [data / "notes.txt", data / "other", log / "readme"]
    strangers[1].mkdir()
    strangers[0].write_text("mine")
    strangers[2].write_text("mine")
    for path in (dead, dead_entry, *strangers):
        age(path, hours=200)
    assert sorted(table.vacuum()) == sorted([f"file:{dead}", f"file:{dead_entry}"])
    assert at_work.exists()
    assert young_entry.exists()
    assert all(s.exists() for s in strangers)


def test_s39_old_checkpoints_go_and_the_log_stays_whole(spark, tmp_path):
    table = new_table(spark, tmp_path, properties={"trinitymerge.checkpointInterval": "2"})
    fill(table, spark, *[[(i, 10, "a", False)] for i in range(9)])
    removed = table.vacuum(retentionHours=0)
    assert [FilePath(p).name for p in removed] == [
        "00000000000000000002.checkpoint.json",
        "00000000000000000004.checkpoint.json",
    ]
    assert TrinityTable.forPath(spark, table.path).toDF().count() == 9
    assert TrinityTable.forPath(spark, table.path, versionAsOf=3).toDF().count() == 3


def test_s39_a_batch_that_was_committed_since_it_was_listed_stays(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    table.restore(1)
    at_point("vacuum.listed", lambda: table.restore(2))
    assert table.vacuum(retentionHours=0) == []
    assertRows(table.toDF(), [(1, 20, "b", False)])


def test_S39_what_a_vacuum_has_named_is_not_brought_back_though_its_files_are_still_there(spark, tmp_path, at_point):
    """Else the newest version would need files that go."""
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    table.compact()
    refused = []

    def restore():
        with pytest.raises(FilesVacuumedError) as error:
            table.restore(1)
        refused.append(error.value)

    at_point("vacuum.announced", restore)
    assert len(table.vacuum(retentionHours=0)) == 2
    assert len(refused) == 1
    assert [r["operation"] for r in table.history().limit(2).collect()] == ["VACUUM", "COMPACT"]
    assertRows(table.toDF(), [(1, 20, "b", False)])


def test_S39_S35_a_merge_whose_batch_a_vacuum_has_named_is_evaluated_again(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    vacuuming = TrinityTable.forPath(spark, table.path)._store
    named = []

    def announce():
        named.extend(vacuum.announce_deletes(vacuuming, set(vacuuming.directories()), "VACUUM"))

    at_point("validate.done", announce)
    table.upsert(frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (2, 10, "b", False))).execute()
    assert len(named) == 1, "the batch that was staged, and not the one that is part of the table"
    assertRows(table.toDF(), [(1, 10, "a", False), (2, 10, "b", False)])
    assert named[0] not in {b.id for b in table._snapshot().batches}


def test_S39a_S35_a_merge_whose_batch_is_taken_while_it_is_written_is_evaluated_again(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    kept = batch_directories(table)

    def take():
        for name in batch_directories(table) - kept:
            shutil.rmtree(directory_of(table) / "data" / name)

    at_point("stage.written", take)
    table.upsert(frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (2, 10, "b", False))).execute()
    assertRows(table.toDF(), [(1, 10, "a", False), (2, 10, "b", False)])


@pytest.mark.parametrize("hours", [-1, "7", True, None, float("nan")])
def test_vacuum_refuses_what_is_no_retention(spark, tmp_path, hours):
    with pytest.raises(ValueError, match="retentionHours takes a number of hours"):
        new_table(spark, tmp_path).vacuum(retentionHours=hours)


# Time travel ----------------------------------------------------------------------------------------------------------


def test_s40_a_vacuumed_version_says_so(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    opened_before = TrinityTable.forPath(spark, table.path, versionAsOf=2)
    table.compact()
    table.vacuum(retentionHours=0)
    why = r"Version 2 of .* can no longer be read: vacuum\(\) .* the versions from 3 on can"
    with pytest.raises(TableNotFoundError, match=why):
        TrinityTable.forPath(spark, table.path, versionAsOf=2)
    with pytest.raises(TableNotFoundError, match=why):
        opened_before.toDF()
    assertRows(TrinityTable.forPath(spark, table.path, versionAsOf=3).toDF(), [(1, 20, "b", False)])
    at = table._store.committed_at(3) / 1000
    then = TrinityTable.forPath(spark, table.path, timestampAsOf=dt.datetime.fromtimestamp(at))
    assertRows(then.toDF(), [(1, 20, "b", False)])


def test_s40_a_version_that_lost_one_file_of_many_says_so(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING")
    table.upsert(spark.range(0, 1000, 1, 4).selectExpr("CAST(id AS INT) AS id", "'x' AS v")).execute()
    table.compact()
    fill(table, spark, [(1, "new")])
    files = [*(directory_of(table) / "data").glob(f"_tm_batch={table._snapshot().batches[0].id}/part-*")]
    files[0].unlink()
    with pytest.raises(TableNotFoundError, match=r"Version 1 .* no later version can either"):
        TrinityTable.forPath(spark, table.path, versionAsOf=1)
    with pytest.raises(CorruptTableError, match=rf"_tm_batch=\w+ has {len(files) - 1} of {len(files)} files?"):
        table.toDF()


def test_s33_a_vanished_batch_is_named(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    (directory,) = (directory_of(table) / "data").iterdir()
    hidden = directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(CorruptTableError, match=f"{directory.name} is gone"):
        table.toDF()
    with pytest.raises(CorruptTableError, match=f"{directory.name} is gone"):
        table.updateWhere("true", {"v": "'b'"}).execute()
    hidden.rename(directory)
    assertRows(table.toDF(), [(1, 10, "a", False)])


# Restore --------------------------------------------------------------------------------------------------------------


def test_s40_restore_commits_a_version_that_equals_an_old_one(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False), (2, 20, "b", False)])
    table.compact()
    result = table.restore(1)
    assert (result.version, result.restored, result.batchesAdded, result.batchesRemoved) == (4, 1, 1, 1)
    assertRows(table.toDF(), [(1, 10, "a", False)])
    assert table.restore(1).skipped == "the table equals version 1 already"
    fill(table, spark, [(1, 15, "c", False)])
    assertRows(table.toDF(), [(1, 15, "c", False)])
    table.restore(2)
    assertRows(table.toDF(), [(1, 20, "b", False), (2, 20, "b", False)])
    newest = table.history().first()
    assert (newest["operation"], json.loads(newest["parameters"])) == ("RESTORE", {"version": 2})


def test_s40_restored_rows_keep_their_place_in_commit_order(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a")], [(1, "b")], [(1, "c")])
    table.restore(2)
    assertRows(table.toDF(), [(1, "b")])
    fill(table, spark, [(1, "d")])
    assertRows(table.toDF(), [(1, "d")])


def test_s38_s40_restore_brings_the_old_horizon_back(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, properties=KEEP_NONE), spark, [(1, 10, "a", False)], [(1, 20, None, True)])
    table.compact()
    assert table._snapshot().horizon == (20,)
    table.restore(2)
    assert TrinityTable.forPath(spark, table.path)._snapshot().horizon is None
    assert below(table, spark, (9, 5, "late", False)) == 0
    assert below(table, spark, (1, 15, "late", False)) == 0
    assertRows(table.toDF(), [(9, 5, "late", False)])
    table.restore(3)
    assert table._snapshot().horizon == (20,)
    assert below(table, spark, (9, 5, "late", False)) == 1


def test_s38_s40_restore_changes_the_horizon_even_where_no_batch_changes(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, properties=KEEP_NONE), spark, [(1, 20, None, True)])
    table.compact()
    assert (table._snapshot().batches, table._snapshot().horizon) == ((), (20,))
    assert table.restore(0).version == 3
    assert table._snapshot().horizon is None
    assert table.restore(0).skipped


@pytest.mark.parametrize("path", [APPEND_ONLY, KEY_LOOKUP])
def test_s38_s40_a_restore_that_lands_meanwhile_decides_what_is_below_the_horizon(spark, tmp_path, at_point, path):
    table = fill(new_table(spark, tmp_path, properties=KEEP_NONE), spark, [(1, 10, "a", False)], [(1, 20, None, True)])
    table.compact()
    at_point("commit.before", lambda: table.restore(2))
    result = table.upsert(frame(spark, EVENTS, (9, 5, "late", False)))._with_strategy(path).execute()
    assert (result.version, result.rowsBelowHorizon) == (5, 0)
    assertRows(table.toDF(), [(9, 5, "late", False)])


def test_s38_compaction_gives_way_to_a_restore_that_only_brings_back(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a")], [(1, "b")], [(1, "c")])
    table.restore(2)
    at_point("compact.staged", lambda: table.restore(3))
    assert "restore" in table.compact().skipped
    assertRows(table.toDF(), [(1, "c")])


def test_s40_restore_refuses_what_it_cannot_give_back(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    table.compact()
    table.vacuum(retentionHours=0)
    with pytest.raises(TableNotFoundError, match=r"Version 2 of .* can no longer be read"):
        table.restore(2)
    with pytest.raises(TableNotFoundError, match="has no version 9"):
        table.restore(9)
    with pytest.raises(ValueError, match="takes a version number"):
        table.restore("1")
    assert table.version == 4


def test_s35_restore_undoes_what_lands_meanwhile(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)], [(1, 20, "b", False)])
    at_point("commit.before", lambda: fill(table, spark, [(3, 10, "a", False)]))
    assert table.restore(1).version == 4
    assertRows(table.toDF(), [(1, 10, "a", False)])


@pytest.mark.parametrize("call", ["compact", "vacuum", "restore", "purge", "foreachBatch"])
def test_past_versions_cannot_be_maintained(spark, tmp_path, call):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    past = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    with pytest.raises(ReadOnlyTableError):
        getattr(past, call)(*{"restore": [0], "purge": [[1]], "foreachBatch": [len, "app"]}.get(call, []))


# Health ---------------------------------------------------------------------------------------------------------------


@contextmanager
def later(monkeypatch, hours: int):
    with monkeypatch.context() as patch:
        for module in (advice, vacuum):
            patch.setattr(module, "now_ms", lambda: now_ms() + hours * 3_600_000)
        yield


def test_S39_health_says_what_a_vacuum_frees_and_when(spark, tmp_path, monkeypatch):
    """A batch is kept from the commit that removed it, not from its writing: as long as the vacuum keeps it."""
    table = fill(new_table(spark, tmp_path), spark, [(i, 10, "a", False) for i in range(8)])
    fill(table, spark, [(9, 10, "b", False)])
    for directory in (directory_of(table) / "data").iterdir():
        for file in directory.iterdir():
            os.utime(file, (1, 1))
    table.compact()
    unused = sum(f.size_bytes for b in table._store.snapshot_at(2).batches for f in table._store.all_files(b.id))
    for hours, free in ((1, False), (167, False), (169, True)):
        with later(monkeypatch, hours):
            health, listed = table.health(), table.vacuum(dryRun=True)
        assert (len(listed), health.reclaimableBytes, health.reclaimableNowBytes) == (2 * free, unused, unused * free)
        assert health.action == ("vacuum()" if free else "nothing")
        if not free:
            moment = health.reclaimableFrom[:16].replace("T", " ")
            assert (
                health.reason
                == f"reads are cheap; vacuum() frees {sized(unused)} from {moment} UTC on, after its retention"
            )
            assert f"vacuum() frees      {sized(unused)} from {moment} UTC on\n" in str(health)
    table.restore(1)  # a batch is back
    assert table.health().reclaimableBytes > 0


def test_S39_a_vacuum_that_the_retention_keeps_from_deleting_says_so(spark, tmp_path, caplog):
    table = fill(new_table(spark, tmp_path), spark, [(i, 10, "a", False) for i in range(8)])
    with caplog.at_level("INFO", "trinitymerge"):
        assert table.vacuum() == []
        assert "retention" not in caplog.text
        fill(table, spark, [(9, 10, "b", False)])
        table.compact()
        assert table.vacuum() == []
    assert "kept for the retention of 168 hours: a vacuum frees" in caplog.text
    assert "A shorter retention, longer than any running merge or read, deletes them earlier" in caplog.text


def test_S39_a_vacuum_deletes_several_directories_at_once_where_the_storage_answers_slowly(
    spark, tmp_path, monkeypatch
):
    table = fill(new_table(spark, tmp_path), spark, *([(i, 10, "a", False)] for i in range(4)))
    table.compact()
    files, together = type(table._store.files), threading.Barrier(4)
    delete = files.delete
    monkeypatch.setattr(files, "reads_at_once", 4)
    monkeypatch.setattr(files, "delete", lambda self, path: together.wait(20) is None or delete(self, path))
    assert len(table.vacuum(retentionHours=0)) == 4
    assert (len(batch_directories(table)), table.toDF().count()) == (1, 4)


def test_D1_a_read_by_deletion_vectors_costs_more_than_after_a_compaction(spark, tmp_path):
    """Each marked row is read in vain, and each stored row is asked for its position; compared rows cost the most."""
    table = fill(new_table(spark, tmp_path), spark, [(i, 10, "a", False) for i in range(8)])
    fill(table, spark, [(i, 20, "b", False) for i in range(4)])
    make_deletion_vectors(table._store, table._snapshot())
    batches = Batches.of(table._snapshot())
    large = attrs.evolve(
        batches,
        batches=tuple(attrs.evolve(b, rows=b.rows * 1_000_000) for b in batches.batches),
        deletion_vectors=attrs.evolve(
            batches.deletion_vectors,
            marked={i: n * 1_000_000 for i, n in batches.deletion_vectors.marked.items()},
        ),
    )
    assert (large.compared_rows, large.marked_rows) == (0, 4_000_000)
    assert advice.seconds_saved(large) == pytest.approx(4 * 0.156 + 12 * 0.035, abs=0.01)
    assert advice.seconds_saved(large.of_all_rows()) == pytest.approx(0.3 + 4 * 1.15, abs=0.01)
    table.compact()
    assert advice.seconds_saved(Batches.of(table._snapshot())) == 0


def test_health_counts_and_says_what_to_do(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(advice, "LEFT_ROWS", 4)
    table = fill(new_table(spark, tmp_path), spark, [(i, 10, "a", False) for i in range(8)])
    assert table.health().action == "nothing"
    fill(table, spark, [(i, 20, None, i < 2) for i in range(5)])
    health = table.health()
    assert (health.liveRows, health.storedRows, health.tombstones) == (6, 13, 2)
    assert (health.batches, health.pendingBatches, health.reclaimableBytes) == (2, 1, 0)
    assert health.readAmplification == pytest.approx(13 / 6)
    size = sum(b.bytes for b in table._snapshot().batches[1:])
    told = f"5 rows ({size / 1000:.1f} KB) are pending beside a base of 8"
    assert (health.action, health.reason) == ("compact()", told)
    assert (health.pendingRows, health.pendingBytes) == (5, size)
    files = sum(b.files for b in table._snapshot().batches)
    assert f"a read              opens {files} files of 13 rows, compares the keys of 5\n" in str(health)
    assert "compact() saves     each read about 0.3 s on two cores\n" in str(health)
    make_deletion_vectors(table._store, table._snapshot())
    marked = table.health()
    assert (marked.comparedRows, marked.markedRows, marked.secondsSaved) == (0, 5, 0.0)
    assert f"opens {files} files of 13 rows, passes over 5 that deletion vectors mark\n" in str(marked)
    assert marked.action == "nothing"
    table.compact()
    assert "compact() saves" not in str(table.health())
    health = table.health()
    assert (health.action, health.pendingBatches, health.storedRows) == ("nothing", 0, 8), (
        "its files are younger than a week"
    )
    assert health.reclaimableBytes > health.bytes
    assert health.reclaimableNowBytes == 0
    with later(monkeypatch, hours=169):
        health = table.health()
    assert (health.action, health.reclaimableNowBytes) == ("vacuum()", health.reclaimableBytes)
    assert (health.reclaimableFrom, health.reason[-40:]) == (
        None,
        "not needed by any version of the last 168 hours"[-40:],
    )
    table.vacuum(retentionHours=0)
    assert table.health().reclaimableBytes == 0
    assert "read amplification  1.33\n" in str(health)
    assert "<th" in health._repr_html_()
    assert new_table(spark, tmp_path).health().readAmplification == 1.0


def test_S38a_health_says_of_how_many_merges_the_pending_batches_are(spark, tmp_path):
    """Only where that is another number: after folds."""
    table = new_table(spark, tmp_path, properties={MINOR_COMPACTION_AFTER_BATCHES: "none"})
    fill(table, spark, [(i, 10, "a", False) for i in range(8)], *[[(i, 20, "b", False)] for i in range(4)])
    health = table.health()
    assert (health.pendingBatches, health.pendingMerges) == (4, 4)
    assert "batches             5 (4 pending)\n" in str(health)
    snapshot = table._store.snapshot()
    minor_compact(table._store, snapshot, snapshot.batches[2:])
    health = table.health()
    assert (health.batches, health.pendingBatches, health.pendingMerges, health.liveRows) == (3, 2, 4, 8)
    assert "batches             3 (2 pending, of 4 merges)\n" in str(health)
    assert "<td>3 (2 pending, of 4 merges)</td>" in health._repr_html_()
    table.compact()
    health = table.health()
    assert (health.pendingBatches, health.pendingMerges) == (0, 0)


# Properties -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("trinitymerge.tombstoneRetentionHour", "1", "Did you mean 'trinitymerge.tombstoneRetentionHours'"),
        (
            "trinitymerge.tombstoneRetentionHours",
            "-1",
            "takes a number of hours from 0 up, or 'none' for ever, got '-1'",
        ),
        ("trinitymerge.tombstoneRetentionHours", "nan", "takes a number of hours"),
        ("trinitymerge.compactAfterBatches", "0", "takes a number of merges from 1 up"),
        ("trinitymerge.maxCommitAttempts", "many", "takes a number of attempts from 1 up"),
        ("trinitymerge.commitBackoffSeconds", "inf", "takes a number of seconds from 0 up"),
        ("trinitymerge.checkpointInterval", "1.5", "takes a number of commits from 1 up"),
    ],
)
def test_properties_that_mean_nothing_are_refused(spark, tmp_path, name, text, match):
    with pytest.raises(InvalidDefinitionError, match=match):
        new_table(spark, tmp_path, EVENTS, properties={name: text})


# The horizon, hints and automatic compaction --------------------------------------------------------------------------


def below(table: TrinityTable, spark, *rows: tuple) -> int | None:
    source = spark.createDataFrame(list(rows), "id INT, ts INT, v STRING, deleted BOOLEAN")
    return table.upsert(source).execute().rowsBelowHorizon


def test_s38_rows_older_than_what_was_forgotten_are_counted(spark, tmp_path):
    table = new_table(spark, tmp_path, properties=KEEP_NONE)
    fill(table, spark, [(1, 10, "a", False), (2, 10, "a", False)])
    assert below(table, spark, (2, 5, "late", False)) == 0
    fill(table, spark, [(1, 20, None, True)])
    table.compact()
    assert below(table, spark, (1, 15, "back", False), (9, 19, "b", False), (8, None, "c", False)) == 3
    assert below(table, spark, (7, 20, "b", False), (6, 21, "c", False), (5, 1, None, True)) == 0
    source = frame(spark, "id INT, v STRING", (2, "b"))
    result = table.merge(source).whenMatched("target.v <> source.v").updateExpr({"v": "source.v"}).execute()
    assert (result.strategy, result.rowsBelowHorizon) == ("keyed lookup", 1)
    assert "\n  1 row older than tombstones that are forgotten" in str(result)


@pytest.mark.parametrize(
    ("kind", "old", "same"),
    [
        ("DECIMAL(6,2)", "9", "10"),
        ("STRING", "'it''s'", "'ju`st'"),
        ("DATE", "DATE'2024-01-01'", "DATE'2024-01-02'"),
        ("TIMESTAMP", "TIMESTAMP'2024-01-01 00:00:00'", "TIMESTAMP'2024-01-01 00:00:01'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'1900-01-01 00:00:00'", "TIMESTAMP_NTZ'1900-01-01 00:00:00.1'"),
        ("BINARY", "X'7F'", "X'80'"),
        ("BOOLEAN", "false", "true"),
    ],
)
def test_s3_the_horizon_compares_as_watermarks_do(spark, tmp_path, kind, old, same):
    table = new_table(spark, tmp_path, f"id INT, w {kind}", watermarkKey="w", properties=KEEP_NONE)
    table.upsert(spark.sql(f"SELECT 1 AS id, CAST({old} AS {kind}) AS w")).execute()
    table.delete(spark.sql(f"SELECT 1 AS id, CAST({same} AS {kind}) AS w")).execute()
    assert table.compact().tombstonesForgotten == 1
    values = f"VALUES (1, {old}), (2, {same}), (3, NULL) AS t(id, w)"
    assert table.upsert(spark.sql(f"SELECT id, CAST(w AS {kind}) AS w FROM {values}")).execute().rowsBelowHorizon == 2


def test_s38_below_an_untold_horizon_nothing_is_claimed(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, w DOUBLE", watermarkKey="w", properties=KEEP_NONE)
    table.upsert(spark.sql("SELECT 1 AS id, 1D AS w")).execute()
    table.delete(spark.sql("SELECT 1 AS id, 2D AS w")).execute()
    table.compact()
    assert table._snapshot().horizon == ()
    assert table.upsert(spark.sql("SELECT 2 AS id, 1D AS w")).execute().rowsBelowHorizon is None


def batches_of(base: list[tuple[int, int]], pending: list[tuple[int, int]], **facts) -> Batches:
    """Batches of so many rows and bytes each."""
    definition = TableDefinition.of([Field("id", "long")], "id")
    kinds = [(True, size) for size in base] + [(False, size) for size in pending]
    made = [
        Batch(
            **{
                "id": f"b{n}",
                "version": n,
                "rows": r,
                "bytes": b,
                "base": is_base,
                "tombstones": 0,
                "files": 1,
                "unique_keys": True,
                **facts,
            }
        )
        for n, (is_base, (r, b)) in enumerate(kinds)
    ]
    return Batches(definition, tuple(made))


FLOOR, MB32, MILLIONS = 100_000, 32 << 20, 10**7


@pytest.mark.parametrize(
    ("base", "pending", "why"),
    [
        ([(2, 999)], [(2, 999)], ""),
        ([(2, 999)], [(FLOOR, MB32)], ""),
        ([(2, 999)], [(FLOOR + 1, 999)], "100,001 rows (999 bytes) are pending beside a base of 2"),
        ([(2, 999)], [(FLOOR - 1, 999), (2, 1)], "100,001 rows (1.0 KB) are pending beside a base of 2"),
        ([(2, 999)], [(1, MB32 + 1)], "1 row (33.6 MB) is pending beside a base of 2"),
        ([(5 * FLOOR, 9)], [(FLOOR, MB32 + 1)], ""),
        ([(5 * FLOOR, 9)], [(FLOOR + 1, 9)], "100,001 rows (9 bytes) are pending beside a base of 500,000"),
        ([(5 * FLOOR + 5, 9)], [(FLOOR + 1, 9)], ""),
        ([(MILLIONS, 9)], [(1_000_000, 9)], ""),
        (
            [(MILLIONS, 9)],
            [(1_000_001, 9)],
            "1,000,001 rows (9 bytes) are pending beside a base of 10,000,000, too many to be broadcast, so each read shuffles "
            "the table",
        ),
        ([(MILLIONS, 9)], [(1, 9)] * 50, ""),
        ([(MILLIONS, 9)], [(1, 9)] * 51, "51 batches are pending"),
        ([], [(FLOOR + 1, MB32 + 1)], ""),
        ([], [(FLOOR + 1, 9), (FLOOR + 1, 9)], "100,001 rows (9 bytes) are pending beside a base of 100,001"),
        ([], [], ""),
    ],
)
def test_a_compaction_pays_by_what_reads_gain(base, pending, why):
    """Not below a floor, and above it by the share of the base that is pending, or if reads shuffle the table for it."""
    assert advice.compaction_hint(batches_of(base, pending)) == why


def test_rows_that_a_read_must_resolve_though_nothing_else_is_there_make_a_compaction_pay():
    told = advice.compaction_hint(batches_of([], [(FLOOR + 1, 9)], unique_keys=False))
    assert told == "100,001 rows (9 bytes) are pending beside a base of 0"


def test_micro_batches_into_a_small_table_are_given_no_advice(spark, tmp_path, caplog):
    table = new_table(spark, tmp_path)
    with caplog.at_level("INFO", "trinitymerge"):
        rows = spark.createDataFrame([(i, 10, "a", False) for i in range(2)], EVENTS)
        results = [table.upsert(rows).execute() for _ in range(6)]
    assert [r.hint for r in results] == [""] * 6
    assert "run compact()" not in caplog.text
    assert table.health().action == "nothing"


def test_a_merge_says_once_for_a_base_that_a_compaction_would_pay(spark, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(advice, "LEFT_ROWS", 2)
    table, other = new_table(spark, tmp_path), new_table(spark, tmp_path / "other")
    rows = spark.createDataFrame([(i, 10, "a", False) for i in range(4)], EVENTS)
    with caplog.at_level("INFO", "trinitymerge"):
        results = [table.upsert(part).execute() for part in (rows, rows.filter("id < 2"), *[rows.filter("id < 1")] * 3)]
        assert [r.hint.split(" (")[0] for r in results] == ["", "", "run compact(): 3 rows", "", ""]
        assert str(results[2]).endswith(results[2].hint)
        assert caplog.text.count("run compact()") == 1
        assert f"{table.path}: {results[2].hint}" in caplog.messages
        assert table.health().action == "compact()"
        table.compact()
        assert table.upsert(rows.filter("id < 3")).execute().hint.startswith("run compact()")
        hints = [other.upsert(rows).execute().hint for _ in range(3)]
        assert [bool(hint) for hint in hints] == [False, True, False]
        assert caplog.text.count("run compact()") == 3


def test_a_merge_compacts_when_the_table_asks_for_it(spark, tmp_path):
    table = new_table(spark, tmp_path, properties={"trinitymerge.compactAfterBatches": "2"})
    rows = spark.createDataFrame([(1, 10, "a", False)], EVENTS)
    results = [table.upsert(rows).execute() for _ in range(4)]
    assert [r.hint for r in results][3] == "compacted into version 5"
    assert (results[3].version, table.version, len(table._snapshot().batches)) == (4, 5, 1)
    assert [r["operation"] for r in table.history().collect()] == ["COMPACT", *["UPSERT"] * 4, "CREATE"]


def test_a_failed_automatic_compaction_fails_no_merge(spark, tmp_path, at_point, caplog):
    table = new_table(spark, tmp_path, properties={"trinitymerge.compactAfterBatches": "1"})
    fill(table, spark, [(1, 10, "a", False)], [(2, 10, "a", False)])

    def fail() -> None:
        raise OSError("disk full")

    at_point("compact.staged", fail)
    fill(table, spark, [(3, 10, "a", False)])
    assert "the compaction after version 3 failed: disk full" in caplog.text
    assert (table.version, table.toDF().count(), len(batch_directories(table))) == (3, 3, 3)


# Purge ----------------------------------------------------------------------------------------------------------------


def all_files_hold(table: TrinityTable, text: str) -> list[str]:
    """The data files, of whatever version, with a text somewhere in their rows."""
    spark = table.toDF().sparkSession
    files = [f for i in table._store.directories() for f in table._store.data_files(i)]
    return [f.path for f in files if text in str(spark.read.parquet(f.path).collect())]


@pytest.mark.slow
@pytest.mark.generated  # small batches are one file each
def test_purge_removes_every_version_of_a_key_history_included(spark, tmp_path):
    table = new_table(spark, tmp_path, "id STRING, ts INT, v STRING", watermarkKey="ts")
    fill(table, spark, [("ann", 10, "a"), ("bob", 10, "a")], [("ann", 20, "b")], [("cid", 20, "c")])
    table.compact()
    fill(table, spark, [("ann", 30, "c"), ("bob", 30, "b")])
    leftover = table._store.stage(
        spark.sql("SELECT 'ann' AS id, 1 AS ts, 'x' AS v, false AS _tm_deleted"), table.definition
    )
    before = [row for row in live_rows(table) if row[0] != "ann"]
    result = table.purge(["ann", "zoe"])
    assert (result.version, result.keys, result.rowsRemoved, result.filesRewritten) == (6, 2, 2, 2)
    assert result.filesDeleted == 5, "base, delta, two of the past, one left over"
    assert all_files_hold(table, "ann") == []
    assert all_files_hold(table, "cid") != []
    assert live_rows(table) == before
    assert [b.version for b in table._snapshot().batches] == [3, 5]
    assert leftover.id not in table._store.directories()
    for file in (directory_of(table) / "_trinity_log").iterdir():
        assert b"ann" not in file.read_bytes()
    with pytest.raises(TableNotFoundError, match=r"Version 2 of .*purge\(\).* the versions from 6 on can"):
        TrinityTable.forPath(spark, table.path, versionAsOf=2)
    assert str(result).startswith("version 6: 2 keys purged, 2 rows removed, 2 files rewritten, 5 deleted")


@pytest.mark.slow
def test_a_purged_key_does_not_come_back(spark, tmp_path):
    table = new_table(spark, tmp_path, "id STRING, ts INT, v STRING", watermarkKey="ts")
    fill(table, spark, [("ann", 10, "a"), ("bob", 10, "a")])
    table.purge(["ann"])
    events = frame(spark, "id STRING, ts INT, v STRING", ("ann", 99, "replayed"), ("bob", 99, "b"))
    result = table.upsert(events).execute()
    assert (result.rowsPurged, result.rowsAppended, result.rowsSource) == (1, 1, 2)
    assert "1 row of purged keys left out" in str(result)
    result = table.upsert(events.filter("id = 'ann'")).execute()
    assert (result.skipped, result.rowsPurged) == ("every row to write has a purged key", 1)
    assert "\n  1 row of purged keys left out; purge() is for good, but a new table takes such keys" in str(result)
    assert table.delete(frame(spark, "id STRING, ts INT", ("ann", 100))).execute().rowsAppended == 0
    keyed = table.merge(events).whenMatched("target.v <> 'x'").updateAll().whenNotMatched().insertAll().execute()
    assert (keyed.rowsInserted, keyed.rowsUpdated, keyed.rowsPurged) == (0, 1, 1)
    moved = table.updateWhere("id = 'bob'", {"id": "'ann'"}).execute()
    assert moved.rowsPurged == 1
    again = TrinityTable.convert(spark, table.toDF(), str(tmp_path / "again"), primaryKey="id", watermarkKey="ts")
    assert again.upsert(events).execute().rowsPurged == 0
    assertRows(again.toDF(), [("ann", 99, "replayed"), ("bob", 99, "b")])
    table.compact()
    reopened = TrinityTable.forPath(spark, table.path)
    assert reopened.upsert(events).execute().rowsPurged == 1
    assert all_files_hold(table, "ann") == []


def test_a_preview_leaves_purged_keys_out_as_the_merge_does(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id STRING, v STRING"), spark, [("ann", "a"), ("bob", "a")])
    table.purge(["ann"])
    replayed = frame(spark, "id STRING, v STRING", ("ann", "b"), ("bob", "b"))
    merge = table.upsert(replayed)
    for path in sound_paths(merge):
        shown = merge._with_strategy(path).build().preview()
        assertRows(shown.select("id", "v"), [("bob", "b")])
    assert merge.execute().rowsPurged == 1


def test_purge_looks_at_what_lands_meanwhile(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id STRING, v STRING")
    fill(table, spark, [("ann", "a"), ("bob", "a")])
    at_point("purge.staged", lambda: fill(table, spark, [("ann", "b"), ("cid", "b")]))
    result = table.purge(["ann"])
    assert (result.version, result.rowsRemoved) == (3, 2)
    assertRows(table.toDF(), [("bob", "a"), ("cid", "b")])
    assert all_files_hold(table, "ann") == []


def test_purge_survives_a_compaction_that_lands_meanwhile(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id STRING, v STRING")
    fill(table, spark, [("ann", "a"), ("bob", "a")], [("ann", "b")])
    at_point("purge.staged", table.compact)
    table.purge(["ann"])
    assertRows(table.toDF(), [("bob", "a")])
    assert all_files_hold(table, "ann") == []
    assert len(batch_directories(table)) == 1


def test_a_merge_that_staged_a_key_before_its_purge_leaves_it_out(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id STRING, v STRING")
    fill(table, spark, [("ann", "a"), ("bob", "a")])
    at_point("commit.before", lambda: table.purge(["ann"]))
    result = table.upsert(frame(spark, "id STRING, v STRING", ("ann", "b"), ("bob", "b"))).execute()
    assert (result.rowsPurged, result.version) == (1, 3)
    assertRows(table.toDF(), [("bob", "b")])
    assert all_files_hold(table, "ann") == []


def test_S39a_a_merge_that_reads_nothing_heeds_a_purge_that_lands_before_it_stages(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id STRING, ts INT", watermarkKey="ts")
    fill(table, spark, [("ann", 1), ("bob", 1)])
    at_point("stage.before", lambda: table.purge(["ann"]))
    merge = table.upsert(frame(spark, "id STRING, ts INT", ("ann", 2), ("bob", 2)))
    assert merge._with_strategy(APPEND_ONLY).execute().rowsPurged == 1
    assertRows(table.toDF(), [("bob", 2)])
    assert all_files_hold(table, "ann") == []


@pytest.mark.generated  # small batches are one file each
def test_purge_again_finishes_what_a_crash_left(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id STRING, v STRING")
    fill(table, spark, [("ann", "a"), ("bob", "a")])

    def die() -> None:
        raise KeyboardInterrupt

    at_point("purge.committed", die)
    with pytest.raises(KeyboardInterrupt):
        table.purge(["ann"])
    assertRows(table.toDF(), [("bob", "a")])
    assert all_files_hold(table, "ann") != []
    result = table.purge(["ann"])
    assert (result.rowsRemoved, result.filesDeleted) == (0, 1)
    assert all_files_hold(table, "ann") == []


@pytest.mark.parametrize(
    ("schema", "keys", "stored", "purged", "form"),
    [
        ("a INT, b TIMESTAMP, v STRING", ["a", "b"], "1, TIMESTAMP'2024-01-01'", "1, TIMESTAMP'2024-01-01'", "frame"),
        ("a CHAR(5), v STRING", ["a"], "'x'", "'x'", "values"),
        ("a BINARY, v STRING", ["a"], "X'00ff'", "X'00ff'", "values"),
        ("a DECIMAL(6,2), b DATE, v STRING", ["a", "b"], "1.5, DATE'2024-01-01'", "1.50, DATE'2024-01-01'", "dicts"),
        ('`we.ird ``k`` "x"` STRING, v STRING', ['we.ird `k` "x"'], "'it''s'", "'it''s'", "frame"),
    ],
)
def test_purge_takes_keys_of_any_type(spark, tmp_path, schema, keys, stored, purged, form):
    table = new_table(spark, tmp_path, schema, primaryKey=keys)
    columns = ", ".join(f"`{k.replace('`', '``')}`" for k in keys)
    row = f"SELECT * FROM VALUES ({stored}, 'v') AS t({columns}, v)"
    table.upsert(spark.sql(row)).execute()
    given = spark.sql(f"SELECT * FROM VALUES ({purged}) AS t({columns})")
    if form != "frame":
        given = [r.asDict() if form == "dicts" else tuple(r) for r in given.collect()]
    assert table.purge(given).rowsRemoved == 1
    assert table.upsert(spark.sql(row)).execute().rowsPurged == 1
    assertRows(table.toDF(), [])


@pytest.mark.parametrize(
    ("kind", "key", "others"),
    [
        ("INT", "1", ["1.5D", "'01'", "4294967297L", "DATE'2024-01-01'"]),
        ("DATE", "DATE'2024-01-01'", ["TIMESTAMP_NTZ'2024-01-01 10:00:00'", dt.datetime(2024, 1, 1, 10)]),
        ("DECIMAL(5,2)", "2.00", ["1.999BD", Decimal("1.999")]),
    ],
)
def test_S39a_S17a_a_key_that_a_cast_would_change_is_not_purged(spark, tmp_path, kind, key, others):
    table = new_table(spark, tmp_path, f"id {kind}", tombstoneKey=None)
    table.upsert(spark.sql(f"SELECT CAST({key} AS {kind}) AS id")).execute()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for other in others:
            with pytest.raises((SchemaMismatchError, NullKeyError), match="not of the key's type"):
                table.purge(spark.sql(f"SELECT {other} AS id") if isinstance(other, str) else [other])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert table.toDF().count() == 1
    assert table.purge(spark.sql(f"SELECT {key} AS id")).rowsRemoved == 1


@pytest.mark.parametrize(
    ("keys", "error", "match"),
    [
        ("ann", SchemaMismatchError, "purge takes a DataFrame or a list of keys, got str"),
        (7, SchemaMismatchError, "got int"),
        ([(1, 2)], SchemaMismatchError, r"has 2 values; a key is \(id\)"),
        ([{"name": 1}], SchemaMismatchError, "Column 'id' is missing in a key; it has 'name'"),
        (["x"], SchemaMismatchError, "not of the key's type"),
        ([None], NullKeyError, "1 key with a null"),
    ],
)
def test_purge_refuses_what_is_no_key(spark, tmp_path, keys, error, match):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    with pytest.raises(error, match=match):
        table.purge(keys)
    with pytest.raises(SchemaMismatchError, match="Column 'id' is missing"):
        table.purge(spark.range(1).toDF("other"))
    assert table.purge([]).version == table.version == 1


# Log ------------------------------------------------------------------------------------------------------------------


def test_s38_s40_a_restore_brings_the_horizon_of_its_version_back():
    definition = TableDefinition.of([Field("id", "long")], "id")
    empty = Snapshot.created(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition)]))
    forgetful = empty.apply(Commit(version=1, timestamp_ms=5, operation="COMPACT", actions=[SetHorizon((7,))]))
    for horizon, extracts in ((None, ()), ((3,), ((1,), (2, "a")))):
        restored = RestoreVersion(0, horizon, extracts)
        commit = Commit(version=2, timestamp_ms=6, operation="RESTORE", actions=[restored])
        assert Commit.from_json(json.loads(json.dumps(commit.to_json()))) == commit
        after = forgetful.apply(commit)
        assert (after.horizon, after.extracts) == (horizon, extracts)
        assert Snapshot.from_json(json.loads(json.dumps(after.to_json()))) == after


def test_s33_what_maintenance_records_survives_json_and_checkpoints():
    purged = PurgeKeys("ab12", ["cd", "ef"])
    commit = Commit(
        version=1,
        timestamp_ms=5,
        operation="PURGE",
        actions=[SetHorizon((1, None, "x")), PurgeKeys("ab12", ["cd", "ef"])],
    )
    assert Commit.from_json(json.loads(json.dumps(commit.to_json()))) == commit
    definition = TableDefinition.of([Field("id", "long")], "id")
    empty = Snapshot.created(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition)]))
    after = empty.apply(commit)
    assert (after.horizon, after.purged) == ((1, None, "x"), purged)
    assert Snapshot.from_json(json.loads(json.dumps(after.to_json()))) == after
    more = after.apply(
        Commit(
            version=2,
            timestamp_ms=6,
            operation="PURGE",
            actions=[PurgeKeys("ab12", ["99", "cd"])],
        )
    )
    assert (more.horizon, more.purged) == (after.horizon, PurgeKeys("ab12", ["99", "cd", "ef"]))


@pytest.mark.parametrize(
    "purged", [{"salt": "') OR 1=1 --", "hashes": []}, {"salt": "ab", "hashes": ["x'"]}, {"salt": "a"}]
)
def test_markers_are_data_that_nothing_can_break_out_of(purged):
    with pytest.raises(ValueError, match=r"salt holds|hashes holds|'hashes' is missing"):
        Action.from_json({"type": "purgeKeys", **purged})
