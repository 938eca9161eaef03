"""S38b: the base of a large table as segments, of which a compaction writes anew what has changed, and nobody sees a difference."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import pytest
from helpers import assertRows, for_each, quickly
from tables import batch_directories, copy_of, directory_of, fill, live_rows, new_table, set_default
from test_conf import session
from test_minor_compaction import ONE, Crowded, pending

from trinitymerge import FilesVacuumedError, InvalidDefinitionError, TrinityMergeError, TrinityTable, reader
from trinitymerge.log.actions import MAJOR, AddBatch, Batch, remove_all
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import AppendOnlySince, publish
from trinitymerge.maintenance import segments as segments_module
from trinitymerge.maintenance.compaction import rebased
from trinitymerge.maintenance.deletion_vectors import make_deletion_vectors
from trinitymerge.maintenance.minor_compaction import mergeable_batches, minor_compact
from trinitymerge.maintenance.segments import SegmentLayout
from trinitymerge.reader import ReadPlan
from trinitymerge.schema.properties import (
    MINOR_COMPACTION_AFTER_BATCHES,
    TARGET_SEGMENT_BYTES,
    TOMBSTONE_RETENTION_HOURS,
)
from trinitymerge.spark.expressions import TRUE
from trinitymerge.spark.system_columns import BATCH

SMALL = {TARGET_SEGMENT_BYTES: "2000", MINOR_COMPACTION_AFTER_BATCHES: "none"}
ROWS = "id INT, k STRING, ts INT, v STRING, deleted BOOLEAN"
KEYS = {"primaryKey": ["id", "k"], "watermarkKey": "ts", "tombstoneKey": "deleted"}


def row(id: int, ts: int = 1, deleted: bool = False) -> tuple[Any, ...]:
    return (id, f"k{id % 3}", ts, None if deleted else f"v{ts}", deleted)


def segmented(spark, directory, count: int = 600, **settings: str) -> TrinityTable:
    """A table whose base consists of segments."""
    table = new_table(spark, directory, ROWS, **KEYS, properties={**SMALL, **settings})
    fill(table, spark, [row(id) for id in range(count)], [row(0, 2)])
    table.compact()
    return table


def base_of(table: TrinityTable) -> tuple[Batch, ...]:
    return Batches.of(table._snapshot()).base


def layout_of(table: TrinityTable) -> SegmentLayout:
    found = SegmentLayout.of(table._store, Batches.of(table._snapshot()))
    assert found is not None
    return found


def check_tiled(table: TrinityTable) -> None:
    """Fails unless every key is in one segment only, the one it belongs to, and older rows of it in none."""
    found, batches = layout_of(table), {b.id: b for b in table._snapshot().batches}
    keys = [table.definition.field(k) for k in table.definition.primaryKey]
    place = {b.id: n for n, b in enumerate(found.segments)}
    rows = table._store.scan_directories(table.definition, keys, list(batches))
    columns = [f"struct({', '.join(table.definition.primaryKey)}) AS key", f"{found.number_of_row()} AS n", BATCH]
    stored = [tuple(r) for r in rows.selectExpr(*columns).collect()]
    segment = {key: batches[batch] for key, _, batch in stored if batch in place}
    assert len(segment) == sum(batch in place for _, _, batch in stored), "no key is in two segments"
    for key, belongs, batch in stored:
        assert batch not in place or place[batch] == belongs
        if batch not in place and key in segment:
            assert batches[batch].version > segment[key].version, "no older batch meets a segment"


# What is written ------------------------------------------------------------------------------------------------------


def test_S38b_a_compaction_writes_what_has_changed_and_leaves_the_rest(spark, tmp_path):
    table = segmented(spark, tmp_path)
    before = base_of(table)
    assert len(before) >= 3
    assert table.health().segments == len(before)
    assert f"{len(before)} ({len(before)} segments, 0 pending)" in str(table.health())
    check_tiled(table)
    fill(table, spark, [row(id, 3) for id in range(590, 620)] + [row(1, 3)])
    expected = live_rows(table)
    result = table.compact()
    kept = {b.id for b in before} & {b.id for b in base_of(table)}
    assert 0 < len(kept) == result.segmentsKept < len(before)
    assert "did not change" in str(result)
    assert result.rows < 600
    check_tiled(table)
    assert live_rows(table) == expected
    assert table.history().first()["operation"] == "COMPACT"
    assert TrinityTable.forPath(spark, table.path, versionAsOf=table.version - 1).toDF().count() == len(expected)


def test_S38b_few_changes_are_left_in_one_batch_that_is_laid_over_the_base(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(segments_module, "_PAYS", 0.05)
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(1, 3)], [row(1, 4), row(2, 4, deleted=True)])
    whole = layout_of(table).segments[-2]  # where segments begin is a matter of chance
    ids = table._store.scan_directories(table.definition, [table.definition.field("id")], [whole.id])
    fill(table, spark, [row(r["id"], 3) for r in ids.collect()])
    expected, first = live_rows(table), base_of(table)[0].id
    result = table.compact()
    (left,) = Batches.of(table._snapshot()).pending
    assert (left.rows, left.tombstones, left.merges, left.unique_keys) == (2, 1, 1, True)
    assert first in {b.id for b in base_of(table)}
    assert (live_rows(table), result.skipped) == (expected, "")
    check_tiled(table)
    assert "are few in each: compact(full=True)" in table.compact().skipped
    fill(table, spark, [row(3, 5)])
    assert table.compact().rows == 3, "the rows that were left, and one more"
    fill(table, spark, [row(1, 3), row(2, 3)])
    assert live_rows(table) == sorted({*expected, row(3, 5)} - {row(3)}, key=repr)
    assert table.compact(full=True).segmentsKept == 0
    assert Batches.of(table._snapshot()).pending == ()


def test_S38b_many_changes_are_not_left_however_thinly_they_are_spread(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(segments_module, "_PAYS", 0.5)
    monkeypatch.setattr(segments_module, "LEFT_ROWS", 5)
    monkeypatch.setattr(segments_module, "_MOST_LEFT_ROWS", 5)
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(id, 3) for id in range(0, 600, 50)])
    assert table.compact().segmentsKept == 0
    assert Batches.of(table._snapshot()).pending == ()


def test_S38b_tombstones_are_forgotten_where_they_are_old_and_nowhere_else(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(segments_module, "_PAYS", 0.001)
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(1, 5, deleted=True), row(900, 5, deleted=True)])
    assert (table.compact().tombstonesForgotten, sum(b.tombstones for b in base_of(table))) == (0, 2)
    kept = {b.id for b in base_of(table) if not b.tombstones}
    set_default(monkeypatch, TOMBSTONE_RETENTION_HOURS, "0")
    result = table.compact()
    assert (result.tombstonesForgotten, sum(b.tombstones for b in base_of(table))) == (2, 0)
    assert kept
    assert kept <= {b.id for b in base_of(table)}, "the others stay"
    assert table._snapshot().horizon == (5,)
    assert table.compact().skipped == "there is one base and nothing else"


def test_S38b_a_tombstone_that_is_left_stays_however_old_it_is(spark, tmp_path, monkeypatch):
    """The row that it hides is in a segment that is kept."""
    monkeypatch.setattr(segments_module, "_PAYS", 0.05)
    table = segmented(spark, tmp_path, **{TOMBSTONE_RETENTION_HOURS: "0"})
    fill(table, spark, [row(1, 5, deleted=True)], [row(id, 5) for id in range(400, 500)])
    assert table.compact().tombstonesForgotten == 0
    assert (sum(b.tombstones for b in table._snapshot().batches), len(live_rows(table))) == (1, 599)


def test_a_table_that_fits_into_one_segment_has_one_and_any_change_is_compacted(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, ROWS, **KEYS), spark, [row(id) for id in range(500)], [row(1, 2)])
    assert (table.compact().batches, len(base_of(table))) == (2, 1)
    fill(table, spark, [row(1, 3)])
    result = table.compact()
    assert (result.batches, result.rows, result.segmentsKept, len(table._snapshot().batches)) == (2, 500, 0, 1)


@pytest.mark.parametrize("key", quickly(["BINARY", "BOOLEAN", "CHAR(8)", "VARCHAR(9)", "TIMESTAMP_NTZ"], ["CHAR(8)"]))
def test_S38b_keys_whose_order_is_not_kept_have_a_base_of_one_batch(spark, tmp_path, key):
    table = new_table(spark, tmp_path, f"id INT, k {key}", primaryKey=["id", "k"], properties=SMALL)
    value = {"BINARY": "X'01'", "BOOLEAN": "true", "TIMESTAMP_NTZ": "TIMESTAMP_NTZ '2020-01-01 00:00:00'"}.get(
        key, "'a'"
    )
    for _ in range(2):
        table.upsert(spark.range(500).selectExpr("CAST(id AS INT) AS id", f"CAST({value} AS {key}) AS k")).execute()
        table.compact()
    assert (len(table._snapshot().batches), base_of(table)[0].segment_of, table.toDF().count()) == (1, None, 500)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param("STRING", "concat(repeat('x', 50), id % 7, 'é', id)", id="long text"),
        ("DATE", "date_from_unix_date(CAST(id AS INT) - 200000)"),
        ("TIMESTAMP", "timestamp_micros(id * 1234567 - 1000000000)"),
        ("DECIMAL(20, 3)", "CAST(id - 300 AS DECIMAL(20, 3)) / 8"),
        ("SMALLINT", "CAST(id - 300 AS SMALLINT)"),
        ("BIGINT", "id * 1234567890123"),
    ],
)
@pytest.mark.parametrize("file_format", ["parquet", pytest.param("orc", marks=pytest.mark.long)])
def test_S38b_every_type_of_key_that_is_told_belongs_to_one_segment(spark, tmp_path, kind, value, file_format):
    small = {**SMALL, TARGET_SEGMENT_BYTES: "600"}  # of ORC's files, which are
    table = new_table(spark, tmp_path, f"k {kind}, v INT", primaryKey="k", properties=small, fileFormat=file_format)
    source = spark.range(600).selectExpr(f"CAST({value} AS {kind}) AS k", "CAST(id AS INT) AS v")
    table.upsert(source).execute()
    table.upsert(source.filter("v % 7 = 1").selectExpr("k", "-v AS v")).execute()
    table.compact()
    check_tiled(table)
    assert len(base_of(table)) > 1
    table.upsert(source.filter("v BETWEEN 20 AND 60").selectExpr("k", "-2 * v AS v")).execute()
    table.compact()
    check_tiled(table)
    new = "CASE WHEN v BETWEEN 20 AND 60 THEN -2 * v WHEN v % 7 = 1 THEN -v ELSE v END"
    assertRows(table.toDF(), source.selectExpr("k", f"{new} AS v"))


def test_S38b_segments_of_a_large_table_have_several_files(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(segments_module, "_FILE_BYTES", 1500)
    table = segmented(spark, tmp_path, 2000, **{TARGET_SEGMENT_BYTES: "4500"})
    assert {b.files for b in base_of(table)} == {3}
    check_tiled(table)
    fill(table, spark, [row(id, 3) for id in range(1900, 2100)])
    expected = live_rows(table)
    assert table.compact().segmentsKept > 0
    check_tiled(table)
    assert live_rows(table) == expected


SESSIONS = {
    "one partition, no AQE, no broadcast": {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.requireAllClusterKeysForDistribution": "true",
    },
    "many partitions, no hints": {
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.optimizer.disableHints": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
        "spark.sql.adaptive.forceApply": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
    },
    "skew": {
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1000",
        "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
        "spark.sql.execution.rangeExchange.sampleSizePerPartition": "5",  # of one, all may end up in one segment
        "spark.sql.files.maxPartitionBytes": "500",
        "spark.sql.session.timeZone": "Asia/Kathmandu",
    },
}


@pytest.mark.parametrize("settings", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("keys", quickly([["id", "k"], ["k", "id"]], [["k", "id"]]), ids="-".join)
def test_S38b_segments_are_apart_whatever_the_session_is(spark, tmp_path, keys, settings):
    table = new_table(spark, tmp_path, ROWS, **KEYS | {"primaryKey": keys}, properties=SMALL)
    fill(table, spark, [row(id) for id in range(600)], [row(id, 2) for id in range(0, 600, 7)])
    changes = [row(id, 3) for id in range(590, 620)]
    with session(spark, settings):
        table.compact()
        check_tiled(table)
        assert len(base_of(table)) > 1
        fill(table, spark, changes)
        expected = live_rows(table)
        table.compact()
        check_tiled(table)
        assert live_rows(table) == expected
    assert len(expected) == 620


def test_S38b_rows_that_spark_arranges_otherwise_are_not_committed(spark, tmp_path, monkeypatch):
    table = new_table(spark, tmp_path, ROWS, **KEYS, properties=SMALL)
    fill(table, spark, [row(id) for id in range(600)], [row(0, 2)])
    expected, version = live_rows(table), table.version
    frames = type(spark.range(1))
    with monkeypatch.context() as patched:
        patched.setattr(frames, "repartitionByRange", lambda rows, files, *keys: rows.repartition(files, *keys))
        with pytest.raises(TrinityMergeError, match=r"keys overlap.*trinitymerge\.targetSegmentBytes"):
            table.compact()
    assert (table.version, live_rows(table)) == (version, expected)
    assert batch_directories(table) == {f"{BATCH}={b.id}" for b in table._snapshot().batches}
    table.compact()
    check_tiled(table)


def test_S38b_what_has_changed_is_counted_only_where_ranges_of_keys_do_not_tell(spark, tmp_path, monkeypatch):
    table = segmented(spark, tmp_path)
    first, last = layout_of(table).firsts[-1][0], len(base_of(table)) - 1
    changes = [[row(first, 3)], [row(first + 1, 3), row(700, 3)], [row(first - 1, 3), row(first, 3)], [row(0, 3)]]
    fill(table, spark, *changes)
    batches, asked = Batches.of(table._snapshot()), []
    pending, store, scan = batches.pending, table._store, table._store.scan
    monkeypatch.setattr(store, "scan", lambda some, *more: asked.extend(some.batches) or scan(some, *more))
    assert segments_module._changed(store, batches, layout_of(table)) == {0: 1, last - 1: 1, last: 4}
    assert asked == [pending[2]]
    lost = {b.id for b in pending[:2]}
    known = store.ranges_of
    monkeypatch.setattr(store, "ranges_of", lambda some: [None if b.id in lost else known([b])[0] for b in some])
    assert segments_module._changed(store, batches, layout_of(table)) == {0: 1, last - 1: 1, last: 4}
    assert asked[1:] == list(pending[:3])


# Whatever happens -----------------------------------------------------------------------------------------------------


@attrs.define
class Model:
    """What a table should show, by plain Python."""

    rows: dict[int, tuple[Any, ...]] = attrs.field(factory=dict)
    purged: set[int] = attrs.field(factory=set)

    def commit(self, batch: Sequence[tuple[Any, ...]]) -> None:
        for new in batch:
            old = self.rows.get(new[0])
            if new[0] not in self.purged and (old is None or new[2] >= old[2]):
                self.rows[new[0]] = new

    def live(self) -> list[tuple[Any, ...]]:
        return sorted((r for r in self.rows.values() if not r[4]), key=repr)


def some_rows(chance: random.Random) -> list[tuple[Any, ...]]:
    """Rows of neighbouring keys, a few far away, some late, some deleted, some new."""
    start, width = chance.choice([chance.randrange(700), 590]), chance.choice([3, 40, 150])
    ids = {start + chance.randrange(width) for _ in range(width)} | {chance.randrange(800) for _ in range(3)}
    return [row(id, chance.randrange(2, 9), chance.random() < 0.2) for id in ids]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 40))])
def test_S38_S38b_maintenance_in_any_order_changes_nothing_for_readers(seed, spark, tmp_path, monkeypatch):
    chance = random.Random(seed)
    monkeypatch.setattr(segments_module, "_PAYS", chance.choice([0.01, 0.1, 0.3]))
    table, model, kept, left = segmented(spark, tmp_path), Model(), 0, 0
    model.commit([row(id) for id in range(600)] + [row(0, 2)])
    for _ in range(4):
        for _ in range(chance.choice([1, 1, 2, 3])):
            batch = some_rows(chance)
            fill(table, spark, batch)
            model.commit(batch)
        pending = Batches.of(table._snapshot()).pending
        if chance.random() < 0.3 and len(pending) > 1:
            minor_compact(table._store, table._store.snapshot(), pending)
        if chance.random() < 0.2:
            gone = [chance.choice(base_of(table)) for _ in range(2)]
            firsts = {keys.first for keys in table._store.ranges_of(gone)}
            table.purge([tuple(first) for first in firsts])
            for id, _ in firsts:
                model.rows.pop(id, None)
                model.purged.add(id)
        result = table.compact(full=chance.random() < 0.1)
        kept, left = kept + result.segmentsKept, left + len(Batches.of(table._snapshot()).pending)
        assert live_rows(table) == model.live()
        check_tiled(table)
    assert kept > 0


def settled(table: TrinityTable) -> list[int]:
    """The rows of each pending batch that a read compares with nothing; it must find the rows that a full resolution does."""
    batches = Batches.of(table._snapshot())
    every_row = batches.of_all_rows()
    expected = reader.resolve_by_window(table._store.scan(every_row), every_row).filter("NOT deleted")
    assertRows(table.toDF(), expected.select(*table.definition.names).collect())
    return [b.rows for b in reader.settled_batches(table._store, batches)]


def test_S13_inserts_of_new_keys_are_read_as_they_are(spark, tmp_path):
    table = segmented(spark, tmp_path)
    assert settled(table) == [], "nothing is pending"
    fill(table, spark, [row(id) for id in range(600, 1300)])
    assert settled(table) == [700], "more rows than the base has"
    fill(table, spark, [row(2000), row(2001, 5, deleted=True)])
    assert settled(table) == [700, 2]
    fill(table, spark, [row(640, 5), row(641, 0)])
    assert settled(table) == [2], "the first ones have changed"
    fill(table, spark, [row(2001, 6), row(2001, 7)])
    assert settled(table) == []
    fill(table, spark, [row(3000, 2), row(3000, 1)])
    assert settled(table) == [], "it has a key twice"
    fill(table, spark, [row(5, 9), row(9000)])
    assert settled(table) == [], "its range meets all others"


@pytest.mark.classic("looks at the plan")
def test_S13_a_read_after_inserts_of_new_keys_is_a_scan(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(id) for id in range(600, 700)], [row(800)])
    plan = table.toDF()._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("FileScan"), "Join" in plan, "Window" in plan) == (1, False, False)
    fill(table, spark, [row(5, 9)])
    assert table.toDF()._jdf.queryExecution().executedPlan().toString().count("FileScan") == 2, (
        "the marks are of one batch"
    )
    assert settled(table) == [100, 1]


def test_S13_a_batch_whose_keys_are_not_known_is_compared(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(700)])
    (batch,) = Batches.of(table._snapshot()).pending
    assert settled(table) == [1]
    (directory_of(table) / "data" / f"{BATCH}={batch.id}" / "_key_range.json").unlink()
    assert settled(TrinityTable.forPath(spark, table.path)) == []


def test_S13_D2_inserts_beside_compared_batches(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(598, 5), row(599, 5, deleted=True)], [row(700)])
    make_deletion_vectors(table._store, table._store.snapshot())
    fill(table, spark, [row(800)])
    assert settled(table) == [1]
    fill(table, spark, [row(598, 6)])
    assert settled(table) == [1]
    fill(table, spark, [row(700, 6)])
    assert settled(table) == [1]


def test_S13_S43_settled_batches_are_read_with_the_columns_of_their_files(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(700)])
    table.alter().widenColumn("id", "BIGINT").widenColumn("ts", "BIGINT").renameColumn("v", "w x").execute()
    fill(table, spark, [(1 << 40, "k1", 5, "v5", False)])
    assert settled(table) == [1, 1]
    assert table.toDF().filter("`w x` = 'v5'").count() == 1


def test_S13_S38b_what_is_left_does_not_make_reads_resolve_segments_it_cannot_meet(spark, tmp_path, monkeypatch):
    """Late rows in a segment that was written anew, fresher than what is left beside the others."""
    monkeypatch.setattr(segments_module, "_PAYS", 0.05)
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(1, 5)], [row(id, 90) for id in range(500, 600)])
    table.compact()
    overlay = ReadPlan.of(Batches.of(table._snapshot()), spark)
    assert (overlay is not None and overlay.deltas_are_newer, len(Batches.of(table._snapshot()).pending)) == (True, 1)
    fill(table, spark, [row(550, 80)])
    overlay = ReadPlan.of(Batches.of(table._snapshot()), spark)
    assert (overlay is not None, overlay.deltas_are_newer) == (True, False), "this one may meet fresher rows"
    assert [r for r in live_rows(table) if r[0] in (1, 550)] == [row(1, 5), row(550, 90)]


def test_S38a_S38b_what_is_pending_is_folded_beside_segments_and_none_of_them(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(segments_module, "_PAYS", 0.05)
    table = segmented(spark, tmp_path, **{MINOR_COMPACTION_AFTER_BATCHES: "2"})
    fill(table, spark, [row(1, 5)], [row(id, 90) for id in range(500, 600)])
    table.compact()
    fill(table, spark, [row(2, 5)], [row(1, 6)])
    run = mergeable_batches(table._store.snapshot())
    assert len(run) == 3
    assert {b.id for b in run}.isdisjoint(b.id for b in base_of(table))
    expected = live_rows(table)
    minor_compact(table._store, table._store.snapshot(), run)
    assert live_rows(table) == expected
    check_tiled(table)


@pytest.mark.slow
def test_S40_versions_before_and_after_can_be_read_and_restored(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(id, 3) for id in range(590, 620)])
    segments, expected = len(base_of(table)), live_rows(table)
    before = table.version
    table.compact()
    after = table.version
    fill(table, spark, [row(id, 4, deleted=True) for id in range(300)])
    table.compact()
    for version in (before, after, before):
        table.restore(version)
        assert live_rows(table) == expected
        check_tiled(table)
    fill(table, spark, [row(595, 9)])
    assert table.compact().segmentsKept > 0
    assert (len(live_rows(table)), segments > 2) == (620, True)


def test_S39_a_vacuum_takes_the_segments_that_were_written_anew(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(id, 3) for id in range(590, 620)])
    table.compact()
    expected = live_rows(table)
    table.vacuum(retentionHours=0)
    assert batch_directories(table) == {f"{BATCH}={b.id}" for b in table._snapshot().batches}
    assert live_rows(TrinityTable.forPath(spark, table.path)) == expected


def test_a_purged_key_is_forgotten_by_the_segment_that_began_with_it(spark, tmp_path):
    table = segmented(spark, tmp_path)
    id, k = layout_of(table).firsts[1]
    table.purge([(id, k)])
    fill(table, spark, [row(n, 3) for n in range(id - 20, id + 20)])
    again = TrinityTable.forPath(spark, table.path)
    assert again.compact().segmentsKept > 0
    check_tiled(again)
    assert id not in {r[0] for r in live_rows(again)}
    kept = [(directory_of(again) / "data" / f"{BATCH}={b.id}" / "_key_range.json").read_text() for b in base_of(again)]
    assert all(f'"first":[{id},' not in text.replace(" ", "") for text in kept)


def test_S38b_where_first_keys_are_lost_everything_is_written_anew(spark, tmp_path):
    table = segmented(spark, tmp_path)
    before = base_of(table)
    (directory_of(table) / "data" / f"{BATCH}={before[1].id}" / "_key_range.json").unlink()
    again = fill(TrinityTable.forPath(spark, table.path), spark, [row(1, 3)])
    assert again.compact().segmentsKept == 0
    assert base_of(again)[0].segment_of != before[0].segment_of
    check_tiled(again)
    assert len(live_rows(again)) == 600


def test_S38b_where_no_first_key_is_kept_nothing_is_written_in_vain(spark, tmp_path):
    table = new_table(spark, tmp_path, "k STRING, v INT", primaryKey="k", properties=SMALL)
    for _ in range(2):
        table.upsert(spark.range(300).selectExpr("concat(repeat('x', 200), id) AS k", "CAST(id AS INT) AS v")).execute()
    assert table.compact().rows == 300
    assert len(base_of(table)) > 1
    assert table.compact().skipped == "there is one base and nothing else"
    table.upsert(spark.sql("SELECT 'y' AS k, 1 AS v")).execute()
    assert table.compact().rows == 301
    assert table.toDF().count() == 301


def test_S38b_a_segment_of_which_nothing_is_left_is_gone(spark, tmp_path):
    table = segmented(spark, tmp_path, **{TOMBSTONE_RETENTION_HOURS: "0"})
    first = base_of(table)[0].id
    fill(table, spark, [row(id, 5, deleted=True) for id in range(200)])
    assert table.compact().tombstonesForgotten == 200
    assert first not in {b.id for b in base_of(table)}
    assert all(b.rows for b in base_of(table))
    check_tiled(table)
    fill(table, spark, [row(1, 6), row(599, 6)])
    table.compact()
    check_tiled(table)
    assert len(live_rows(table)) == 401


# Beside others --------------------------------------------------------------------------------------------------------


def moved(table: TrinityTable) -> str:
    """The operation that came last, if nothing is left on disk that no version has named."""
    named = {f"{BATCH}={b.id}" for c in table._store.history() for b in c.added}
    assert batch_directories(table) <= named
    return str(table._store.history()[0].operation)


BESIDE = [
    (other, point)
    for other in ("merge", "fold", "merges and folds", "compact", "restore", "purge")
    for point in ("split.moved", "compact.staged")
]


@pytest.mark.parametrize(
    ("other", "point"),
    quickly(BESIDE, [*((o, p) for o, p in BESIDE if p == "compact.staged"), ("purge", "split.moved")]),
)
def test_S38b_a_compaction_of_a_part_beside_others(spark, tmp_path, at_point, monkeypatch, other, point):
    monkeypatch.setattr(segments_module, "_PAYS", 0.05)
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(1, 3)], [row(id, 3) for id in range(400, 800)])
    beside, model = copy_of(table, spark), live_rows(table)
    new = [row(1, 4), row(450, 4), row(5000, 4)]

    def fold_pending(table: TrinityTable) -> None:
        snapshot = table._store.snapshot()
        minor_compact(table._store, snapshot, Batches.of(snapshot).pending)

    others = {
        "merge": lambda t: fill(t, spark, new),
        "fold": fold_pending,
        "merges and folds": lambda t: (fill(t, spark, new[:1]), fold_pending(t), fill(t, spark, new[1:])),
        "compact": lambda t: t.compact(full=True),
        "restore": lambda t: t.restore(3),
        "purge": lambda t: t.purge([(450, "k0")]),
    }
    others[other](beside)
    at_point(point, lambda: others[other](table))
    result = table.compact()
    assert live_rows(table) == live_rows(beside) != ([] if other == "fold" else model if other != "compact" else [])
    gives_way = other in ("compact", "restore", "purge")
    assert (bool(result.skipped), moved(table)) == (gives_way, other.upper() if gives_way else "COMPACT")
    if not gives_way:
        assert result.segmentsKept > 0
        check_tiled(table)


@pytest.mark.parametrize("point", ["stage.synced", "split.moved", "compact.staged"])
def test_S39_a_vacuum_that_takes_what_is_being_divided_is_an_error_and_costs_nothing(spark, tmp_path, at_point, point):
    table = new_table(spark, tmp_path, ROWS, **KEYS, properties=SMALL)
    fill(table, spark, [row(id) for id in range(600)], [row(0, 2)])
    expected, version = live_rows(table), table.version
    at_point(point, lambda: table.vacuum(retentionHours=0))
    with pytest.raises(FilesVacuumedError, match="its retention is shorter than the call took"):
        table.compact()
    found = table.version, live_rows(TrinityTable.forPath(spark, table.path))
    assert found == (version + 1, expected), "what goes is named in a version of its own"
    assert batch_directories(table) == {f"{BATCH}={b.id}" for b in table._snapshot().batches}
    table.compact()
    assert live_rows(table) == expected


@for_each("seed", range(30))
def test_S38b_segments_that_are_kept_come_back_whatever_was_folded_beside(seed):
    history = Crowded(seed)
    read = history.snapshot()
    new = Batch(id="new", unique_keys=True, base=True, version=read.version, **ONE)
    kept = read.batches[0]
    commit = read.next_commit("COMPACT", [*remove_all(read.batches[1:], MAJOR), AddBatch(new, MAJOR)])
    done = publish(history, commit, read, (AppendOnlySince(or_minor_compactions=True),), partial(rebased, commit))
    appended = [b.id for c in history.log if c.operation == "MERGE" for b in c.added]
    found = [i for b in done.batches if b.id != "new" for i in history.rows_of(b.id)]
    assert found == [kept.id, *appended]


# Few and many ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "none", "16 MB"])
def test_segment_bytes_that_mean_nothing_are_refused(spark, tmp_path, text):
    with pytest.raises(InvalidDefinitionError, match=f"'{TARGET_SEGMENT_BYTES}' takes a number of bytes from 1 up"):
        new_table(spark, tmp_path, properties={TARGET_SEGMENT_BYTES: text})


@pytest.mark.parametrize(
    ("megabytes", "cores", "expected"),
    [(1, 4, 1), (40, 4, 4), (50, 4, 8), (117, 2, 12), (120, 1, 12), (310, 4, 32), (330, 4, 33), (330, 5, 35)],
)
def test_S38b_a_few_segments_are_as_many_as_cores_can_share_evenly(megabytes, cores, expected):
    piece = segments_module.RewriteTask.of_base((), TRUE, megabytes << 20, 10 << 20, cores)
    assert (piece.files, piece.together) == (expected, 1)
    large = segments_module.RewriteTask.of_base((), TRUE, megabytes << 30, 10 << 30, cores)
    assert (large.files, large.together) == (expected * 80, 80)


def runs(dirty: set[int], sizes: Sequence[int]) -> list[list[int]]:
    plain = {"rows": 1, "tombstones": 0, "files": 1, "unique_keys": True, "base": True, "version": 1, "segment_of": "t"}
    segments = [Batch(id=f"s{n}", bytes=size, **plain) for n, size in enumerate(sizes)]
    return segments_module._runs(SegmentLayout(pending().definition, tuple(segments), ()), dirty, 100)


@pytest.mark.parametrize(
    ("dirty", "sizes", "expected"),
    [
        (set(), [100] * 3, []),
        (set(), [1] * 3, []),
        ({1}, [100] * 3, [[1]]),
        ({0, 1, 4}, [100] * 5, [[0, 1], [4]]),
        ({1}, [24, 100, 25], [[0, 1]]),
        ({1}, [1, 1, 100, 1, 1], [[0, 1]]),
        ({0}, [100, 1, 1, 1, 100, 100, 100], [[0, 1, 2, 3]]),
        ({1, 3}, [100] * 6, [[1, 2, 3]]),
        ({0, 1, 2, 3}, [100] * 5, [[0, 1, 2, 3, 4]]),
        ({4}, [1, 100, 1, 1, 100], [[2, 3, 4]]),
        ({0, 2}, [100, 1, 100, 100], [[0, 1, 2]]),
    ],
)
def test_S38b_neighbours_are_written_together_and_small_ones_along(dirty, sizes, expected):
    assert runs(dirty, sizes) == expected


def test_S38b_of_too_many_segments_small_neighbours_are_joined():
    (run,) = runs(set(), [100] * 300 + [1] * 100)
    assert run == list(range(300, 400))
    assert runs(set(), [100] * 300 + [1] * 80) == []


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_S38b_a_key_belongs_to_the_last_segment_that_begins_at_or_before_it(spark, count):
    chance = random.Random(count)
    definition = new_definition()
    firsts = tuple(sorted({(chance.randrange(6), f"k{chance.randrange(9)}") for _ in range(count)}))
    plain = {"rows": 1, "tombstones": 0, "files": 1, "bytes": 1}
    found = SegmentLayout(definition, tuple(Batch(id=f"s{n}", **plain) for n in range(len(firsts))), firsts)
    keys = list(itertools.product(range(-1, 7), ("", *(f"k{n}" for n in range(9)), "z")))
    frame = spark.createDataFrame(keys, "id INT, k STRING")
    expected = [(id, k, max(0, sum(first <= (id, k) for first in firsts) - 1)) for id, k in keys]
    assertRows(frame.selectExpr("id", "k", f"{found.number_of_row()} AS n"), expected)
    for low, high in {
        (0, 0),
        (len(firsts) - 1,) * 2,
        (0, len(firsts) - 1),
        (min(1, len(firsts) - 1), len(firsts) // 2),
    }:
        inside = [(id, k) for id, k, n in expected if low <= n <= max(low, high)]
        assertRows(frame.filter(found.within(low, max(low, high))), inside)


def new_definition():
    from trinitymerge.schema.definition import TableDefinition
    from trinitymerge.schema.field import Field

    return TableDefinition.of([Field("id", "integer"), Field("k", "string")], ["id", "k"])
