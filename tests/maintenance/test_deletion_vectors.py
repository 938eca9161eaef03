"""D1-D4: deletion vectors mark what is replaced. Reads are the same without them, and with damaged files."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import attrs
import pytest
from pyspark.sql import functions as F
from tables import frame, new_table, set_default

from trinitymerge import TrinityTable, reader
from trinitymerge.log.batches import Batches
from trinitymerge.maintenance import auto, deletion_vectors
from trinitymerge.maintenance.deletion_vectors import are_due, make_deletion_vectors
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.schema.properties import MINOR_COMPACTION_AFTER_BATCHES
from trinitymerge.stores import file_format
from trinitymerge.stores.managed import DirectoryStore
from trinitymerge.testing import assertRows

COLUMNS = "id INT, ts INT, v STRING, n STRUCT<a: INT, b: STRING>, d DECIMAL(10,2), t TIMESTAMP, deleted BOOLEAN"
ROWS = 400


def rows_at(spark, ts, keys, dead="false"):
    """Rows of some keys at a watermark; the values say which."""
    return (
        spark.range(0, ROWS, 1, 2)
        .filter(keys)
        .selectExpr(
            "CAST(id AS INT) AS id",
            f"{ts} AS ts",
            f"concat('v', id, '-{ts}') AS v",
            f"struct(CAST(id + {ts} AS INT) AS a, concat('b', {ts}) AS b) AS n",
            "CAST(id / 4 AS DECIMAL(10,2)) AS d",
            "TIMESTAMP'2024-01-01 00:00:00' + make_interval(0, 0, 0, CAST(id AS INT)) AS t",
            f"{dead} AS deleted",
        )
    )


@pytest.fixture
def table(spark, tmp_path):
    """Five batches: a base in two files, newer and late rows, deletes, and a later one without deletion vectors."""
    made = TrinityTable.create(spark, str(tmp_path / "t"), COLUMNS, "id", "ts", "deleted")
    made.upsert(rows_at(spark, 100, "id < 300").repartition(2, F.col("id"))).execute()
    made.upsert(rows_at(spark, 200, "id % 7 = 0")).execute()
    made.upsert(rows_at(spark, 50, "id % 5 = 0")).execute()
    made.applyChanges(rows_at(spark, 300, "id % 11 = 0"), applyAsDeletes="id >= 0").execute()
    assert make_deletion_vectors(made._store, made._store.snapshot()) is not None
    made.upsert(rows_at(spark, 250, "id % 13 = 0")).execute()
    return made


def snapshot_of(table):
    return table._store.snapshot()


def without(table, snapshot=None):
    """The live rows by the rules alone: every stored row is resolved."""
    batches = Batches.of(snapshot or snapshot_of(table)).of_all_rows()
    latest = reader.resolve_by_window(table._store.scan(batches), attrs.evolve(batches, batches=batches.batches))
    return latest.filter("NOT coalesce(deleted, false)").select(*[f.name for f in table.definition.fields])


def same(found, expected):
    """Two frames have the same rows."""
    rows = expected.collect() if hasattr(expected, "collect") else expected
    assertRows(found, [row.asDict(recursive=True) for row in rows])


def marked_of(snapshot):
    return [snapshot.deletion_vectors.marked.get(b.id) for b in snapshot.batches]


# What is marked -------------------------------------------------------------------------------------------------------


def test_D1_D2_each_file_has_a_bit_for_each_row_that_a_fresher_one_replaces(table, spark):
    snapshot = snapshot_of(table)
    replaced = [len([i for i in range(300) if i % 7 == 0 or i % 11 == 0])]
    replaced += [len([i for i in range(ROWS) if i % 77 == 0])]
    replaced += [len([i for i in range(ROWS) if i % 5 == 0 and (i < 300 or i % 7 == 0 or i % 11 == 0)])]
    assert marked_of(snapshot) == [*replaced, 0, None]
    same(table.toDF(), without(table))


def test_D1_more_rows_than_fit_a_broadcast_are_shuffled(table, monkeypatch):
    snapshot = snapshot_of(table)
    everything = attrs.evolve(snapshot, deletion_vectors=None)
    expected = marked_of(make_deletion_vectors(table._store, everything))
    monkeypatch.setattr(reader, "fits_broadcast", lambda *_: False)
    again = make_deletion_vectors(table._store, attrs.evolve(snapshot_of(table), deletion_vectors=None))
    assert marked_of(again) == expected
    assert sum(expected) > sum(filter(None, marked_of(snapshot)))
    same(table.toDF(), without(table))


def test_D1_of_one_event_that_is_there_twice_one_is_marked(spark, tmp_path):
    """Also in two files, and where both replace an older row, or are replaced."""
    table = TrinityTable.create(spark, str(tmp_path / "t"), COLUMNS, "id", "ts", "deleted")
    table.upsert(rows_at(spark, 100, "id < 6")).execute()
    for ts, keys in ((200, "id IN (1, 2, 9)"), (300, "id = 2")):
        twice = rows_at(spark, ts, keys).coalesce(1).unionByName(rows_at(spark, ts, keys).coalesce(1))
        table.applyChanges(twice).execute()
    snapshot = snapshot_of(table)
    assert [b.unique_keys for b in snapshot.batches] == [True, False, False]
    assert marked_of(make_deletion_vectors(table._store, snapshot)) == [2, 4, 1]
    same(table.toDF(), without(table))


@pytest.mark.classic("looks at the plan")
def test_D2_compared_batches_are_read_without_a_comparison(table, spark):
    compared = table._store.snapshot_at(table.version - 1)
    plan = reader.live_rows(table._store, Batches.of(compared))._jdf.queryExecution().executedPlan().toString()
    assert "Window" not in plan
    assert "SortMergeJoin" not in plan
    assert plan.count("FileScan parquet") == 2  # the rows and the vectors
    same(reader.live_rows(table._store, Batches.of(compared)), without(table, compared))


def test_D2_a_past_version_is_read_with_its_own_vectors(table, spark):
    make_deletion_vectors(table._store, snapshot_of(table))
    table.upsert(rows_at(spark, 400, "id % 2 = 0")).execute()
    for version in range(1, table.version + 1):
        past = table._store.snapshot_at(version)
        same(reader.live_rows(table._store, Batches.of(past)), without(table, past))


def test_D2_two_versions_meet_in_one_query(table, spark):
    before = TrinityTable.forPath(spark, table.path, versionAsOf=table.version - 1).toDF()
    both = table.toDF().alias("x").join(before.alias("y"), "id").filter("x.v <> y.v").select("id").orderBy("id")
    there = [i for i in range(ROWS) if i % 11 and (i < 300 or i % 7 == 0 or i % 5 == 0)]
    assert {r[0] for r in both.collect()} == {i for i in there if i % 13 == 0}
    table.toDF().createOrReplaceTempView("now")
    assert spark.sql("SELECT count(*) FROM now a JOIN now b ON a.id = b.id").first()[0] == table.toDF().count()


@pytest.mark.classic("looks at the plan")
def test_D2_keys_that_a_batch_has_twice_are_compared_once_for_all(spark, tmp_path):
    """A table with history has several versions of a key in one batch; after that, reads need no window."""
    table = TrinityTable.create(spark, str(tmp_path / "t"), "id INT, ts INT, v STRING", "id", "ts", history=True)
    rows = spark.range(60).selectExpr("CAST(id % 20 AS INT) AS id", "CAST(id AS INT) AS ts", "concat('v', id) AS v")
    table.applyChanges(rows).execute()
    table.applyChanges(rows.selectExpr("id", "ts + 30 AS ts", "v").filter("id < 5")).execute()
    assert not any(b.unique_keys for b in snapshot_of(table).batches)
    make_deletion_vectors(table._store, snapshot_of(table))
    table.upsert(spark.sql("SELECT 7 AS id, 5 AS ts, 'late' AS v UNION ALL SELECT 8, 500, 'new'")).execute()
    same(table.toDF(), without_watermark_filter(table))
    assert "Window" not in table.toDF()._jdf.queryExecution().executedPlan().toString()
    assert table.versions().count() == 60 + 15 + 2


# Damage ---------------------------------------------------------------------------------------------------------------


def vectors_file(table) -> Path:
    (file,) = table._store.data_files(snapshot_of(table).deletion_vectors.id)
    return Path(file.path.removeprefix("file:"))


def truncate(file, table, spark):
    file.write_bytes(file.read_bytes()[:-20])


def flip_a_bit(file, table, spark):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def remove(file, table, spark):
    shutil.rmtree(file.parent)


def empty(file, table, spark):
    file.unlink()


def mix_up(file, table, spark):
    """The file of earlier vectors in the place of later ones."""
    content = file.read_bytes()
    make_deletion_vectors(table._store, snapshot_of(table))
    vectors_file(table).write_bytes(content)


def add_another(file, table, spark):
    shutil.copy(file, file.with_name("part-00001-more.snappy.parquet"))


@pytest.mark.classic("the files are written by this process")
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, remove, empty, mix_up, add_another], ids=lambda d: d.__name__)
def test_D2_vectors_that_are_damaged_are_ignored_with_one_warning(table, spark, damage, caplog):
    expected = without(table).collect()
    same(table.toDF(), expected)  # this handle has found them whole
    damage(vectors_file(table), table, spark)
    for crc in vectors_file_directory(table).glob(".*.crc"):
        crc.unlink()
    again = TrinityTable.forPath(spark, table.path)
    for handle in (table, again):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            same(handle.toDF(), expected)
            assert handle.toDF().filter("id = 77").count() == 0
        said = [r.message for r in caplog.records if "deletion vectors" in r.message]
        assert len(said) == 1
        assert "reads are slower until new ones are made" in said[0]
    assert make_deletion_vectors(again._store, again._store.snapshot()) is not None
    same(TrinityTable.forPath(spark, table.path).toDF(), expected)


def test_D2_S40_vectors_that_a_vacuum_removes_are_missed_by_handles_that_have_read_them(table, spark):
    before = table.version
    expected = without(table).collect()
    pinned = TrinityTable.forPath(spark, table.path, versionAsOf=before)
    same(pinned.toDF(), expected)
    other = TrinityTable.forPath(spark, table.path)
    assert make_deletion_vectors(other._store, snapshot_of(other)) is not None
    other.vacuum(0)
    same(pinned.toDF(), expected)
    table.restore(before)
    same(table.toDF(), expected)
    assert table.updateWhere("id = 77", {"v": "'deleted'"}).execute().rowsUpdated == 0
    assert make_deletion_vectors(table._store, snapshot_of(table)) is not None
    same(TrinityTable.forPath(spark, table.path).toDF(), without(table).collect())


def test_D2_vectors_that_are_too_large_are_neither_read_nor_made(table, spark, monkeypatch):
    snapshot = table._store.snapshot_at(table.version - 1)
    monkeypatch.setattr(deletion_vectors, "LEAST_ROWS", 1)
    limit = sum(b.rows for b in snapshot_of(table).batches)
    for rows, fits in ((limit, True), (limit - 1, False)):
        monkeypatch.setattr(reader, "_SHARE_OF_VECTORS", rows / 8 / 2**30 / reader._gigabytes(spark))
        assert are_due(table._store, snapshot_of(table), True) == fits
    assert reader.usable(table._store, Batches.of(snapshot)).deletion_vectors is not None, "fewer rows are covered"
    monkeypatch.setattr(reader, "_SHARE_OF_VECTORS", 0)
    assert reader.usable(table._store, Batches.of(snapshot)).deletion_vectors is None
    same(table.toDF(), without(table))


def vectors_file_directory(table) -> Path:
    return Path(table._store.batch_path(snapshot_of(table).deletion_vectors.id).removeprefix("file:"))


# What ends them -------------------------------------------------------------------------------------------------------


def test_D3_a_minor_compaction_leaves_the_vectors_of_other_batches(table, spark):
    before = snapshot_of(table)
    expected = without(table).collect()
    after = minor_compact(table._store, before, before.batches[3:])
    assert marked_of(after)[:3] == marked_of(before)[:3]
    assert marked_of(after)[3:] == [None]
    same(table.toDF(), expected)
    again = make_deletion_vectors(table._store, after)
    assert None not in marked_of(again)
    same(table.toDF(), expected)


@pytest.mark.parametrize("how", ["compact", "purge", "rename the key", "restore"])
def test_D3_other_commits_that_remove_a_compared_batch_end_the_vectors(table, spark, how):
    if how == "compact":
        table.compact(full=True)
    elif how == "purge":
        table.purge([1])  # which only the base has
    elif how == "restore":
        table.restore(2)
    else:
        table.alter().renameColumn("id", "key").execute()
    assert snapshot_of(table).deletion_vectors is None
    count = {"compact": None, "purge": None, "restore": 300 + len([i for i in range(300, ROWS) if i % 7 == 0])}.get(how)
    assert count is None or table.toDF().count() == count


def test_D3_a_restored_version_has_its_vectors_again(table, spark):
    version, before = table.version, snapshot_of(table)
    table.upsert(rows_at(spark, 900, "id < 9")).execute()
    table.compact(full=True)
    table.restore(version)
    assert snapshot_of(table).deletion_vectors == before.deletion_vectors
    same(table.toDF(), without(table))


def test_D3_columns_may_change(table, spark):
    table.alter().renameColumn("v", "w").addColumn("x", "INT").dropColumn("n").execute()
    assert snapshot_of(table).deletion_vectors is not None
    table.updateWhere("id = 1", {"w": "'new'", "ts": "999"}).execute()
    same(table.toDF(), without(table))


def test_S39_a_vacuum_takes_vectors_that_no_version_needs(table, spark):
    old = vectors_file_directory(table)
    make_deletion_vectors(table._store, snapshot_of(table))
    table.vacuum(retentionHours=1)
    assert old.exists()
    table.vacuum(retentionHours=0)
    assert not old.exists()
    assert vectors_file_directory(table).exists()
    same(table.toDF(), without(table))


def test_S40a_a_clone_has_none(table, spark, tmp_path):
    clone = table.clone(str(tmp_path / "clone"))
    assert clone._store.snapshot().deletion_vectors is None
    same(clone.toDF(), without(table))


def test_D3_concurrent_commits(table, spark, monkeypatch):
    """Vectors land on top of an append, and not on top of a compaction of what they compare."""
    publish = deletion_vectors.publish

    def beside(*args):
        monkeypatch.setattr(deletion_vectors, "publish", publish)
        other = TrinityTable.forPath(spark, table.path)
        act[0](other)
        return publish(*args)

    act = []
    for compacts in (False, True):
        act[:] = [TrinityTable.compact if compacts else lambda t: t.upsert(rows_at(spark, 700, "id = 3")).execute()]
        monkeypatch.setattr(deletion_vectors, "publish", beside)
        made = make_deletion_vectors(table._store, snapshot_of(table))
        assert (made is None) is compacts
        same(table.toDF(), without(table))
    assert not [i for i in table._store.directories() if i.startswith("vectors-") and i not in known_vectors(table)]


def known_vectors(table):
    return {i for c in table._store.history() for i in c.added_ids}


# When they are made ---------------------------------------------------------------------------------------------------


def test_D2_a_merge_explains_what_its_scan_does(table, spark):
    health = table.health()
    scan = (
        f"a scan opens {health.readFiles} files of {health.storedRows} rows, passes over {health.markedRows} that deletion "
        f"vectors mark, compares the keys of {health.comparedRows}"
    )
    assert health.markedRows > 50 < health.storedRows - health.comparedRows
    assert health.comparedRows == sum(b.rows for b in snapshot_of(table).batches[-1:])
    assert scan in table.deleteWhere("id < 5").explain()
    assert "a scan" not in table.upsert(rows_at(spark, 400, "id < 5")).explain()


def test_D4_vectors_are_made_after_merges_when_that_is_cheap(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(deletion_vectors, "LEAST_ROWS", 40)
    set_default(monkeypatch, MINOR_COMPACTION_AFTER_BATCHES, "3")
    table = TrinityTable.create(spark, str(tmp_path / "t"), COLUMNS, "id", "ts", "deleted")
    table.upsert(rows_at(spark, 100, "true")).execute()
    found = []
    for n in range(6):
        result = table.upsert(rows_at(spark, 200 + n, f"id % 20 = {n}")).execute()
        made = snapshot_of(table).deletion_vectors
        last = [c.operation for c in table._store.history()[:2]]
        found.append((last, made is not None, "deletionVectors" in result.seconds))
        same(table.toDF(), without(table))
    assert [made for _, made, _ in found][:3] == [False, False, True]
    assert [said for _, _, said in found][:3] == [False, False, True]
    assert found[2][0] == ["DELETION VECTORS", "UPSERT"]


def test_D4_they_are_not_made_of_few_rows_or_at_a_high_cost(table, spark, monkeypatch):
    snapshot, store = snapshot_of(table), table._store
    assert not are_due(store, snapshot, True)  # 31 rows
    monkeypatch.setattr(deletion_vectors, "LEAST_ROWS", 1)
    assert are_due(store, snapshot, True)
    monkeypatch.setattr(deletion_vectors, "ROWS_LOOKED_AT", 1)
    assert not are_due(store, snapshot, True)
    monkeypatch.setattr(deletion_vectors, "_MOST_COMPARED", 5)
    assert are_due(store, snapshot, True)
    none = attrs.evolve(snapshot.definition, properties={MINOR_COMPACTION_AFTER_BATCHES: "none"})
    assert not are_due(store, attrs.evolve(snapshot, definition=none), True)


def test_D4_only_batches_with_such_keys_are_looked_at(spark, tmp_path, monkeypatch):
    """Segments of other keys are neither counted nor scanned."""
    monkeypatch.setattr(deletion_vectors, "LEAST_ROWS", 1)
    table = TrinityTable.create(spark, str(tmp_path / "t"), COLUMNS, "id", "ts", "deleted")
    for part in ("id < 200", "id >= 200"):
        table.upsert(rows_at(spark, 100, part)).execute()
    table.upsert(rows_at(spark, 200, "id > 396")).execute()
    scanned, scan = [], DirectoryStore.scan_positions
    monkeypatch.setattr(DirectoryStore, "scan_positions", lambda self, b: scanned.append(b) or scan(self, b))
    make_deletion_vectors(table._store, snapshot_of(table))
    first = snapshot_of(table).batches[0].id
    assert first in snapshot_of(table).deletion_vectors.marked
    table.upsert(rows_at(spark, 300, "id > 396")).execute()
    make_deletion_vectors(table._store, snapshot_of(table))
    assert first not in {b.id for b in scanned[1].batches}
    same(table.toDF(), without(table))


def test_D4_a_failure_leaves_the_merge(table, spark, monkeypatch, caplog):
    monkeypatch.setattr(auto, "are_due", lambda *_: True)
    monkeypatch.setattr(auto, "make_deletion_vectors", lambda *_: 1 / 0)
    result = table.upsert(rows_at(spark, 900, "id = 1")).execute()
    assert result.version == table.version
    assert "no deletion vectors were made" in caplog.text


def test_D1_orc_tables_have_none(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(deletion_vectors, "LEAST_ROWS", 1)
    table = TrinityTable.create(spark, str(tmp_path / "t"), "id INT, ts INT", "id", "ts", fileFormat="orc")
    for ts in (1, 2):
        table.upsert(spark.range(9).selectExpr("CAST(id AS INT) AS id", f"{ts} AS ts")).execute()
    assert not are_due(table._store, snapshot_of(table), True)


# Row numbers under odd conditions -------------------------------------------------------------------------------------

FILTERS = (
    "id = 33",
    "id BETWEEN 100 AND 140",
    "v = 'v7-200'",
    "v > 'v3'",
    "n.a > 300",
    "n.b = 'b100'",
    "d < 20.5",
    "t >= TIMESTAMP'2024-06-01 00:00:00'",
    "ts = 100",
    "v IS NULL",
    "id IN (1, 2, 3, 350, 399, 77)",
    "id % 3 = 1 AND d > 3",
)


@pytest.mark.parametrize("settings", ["default", "tiny splits", "row by row", "no pushdown"])
def test_D2_rows_are_found_whatever_is_skipped(spark, tmp_path, settings, monkeypatch):
    """Row groups and pages that filters skip, files that are split, rows that are read one by one."""
    options = {
        "default": {},
        "tiny splits": {"spark.sql.files.maxPartitionBytes": "2000", "spark.sql.files.openCostInBytes": "1"},
        "row by row": {"spark.sql.parquet.enableVectorizedReader": "false"},
        "no pushdown": {"spark.sql.parquet.filterPushdown": "false"},
    }[settings]
    small = {"parquet.block.size": "4000", "parquet.page.size": "200", "parquet.page.row.count.limit": "10"}
    monkeypatch.setattr(file_format, "_WRITING", {**file_format._WRITING, **small})
    table = TrinityTable.create(spark, str(tmp_path / "t"), COLUMNS, "id", "ts", "deleted")
    table.upsert(rows_at(spark, 100, "true").repartition(1).sortWithinPartitions("id")).execute()
    for ts, keys in ((200, "id % 7 = 0"), (300, "id BETWEEN 90 AND 120"), (50, "id % 5 = 0")):
        table.upsert(rows_at(spark, ts, keys)).execute()
    table.applyChanges(rows_at(spark, 400, "id % 9 = 0"), applyAsDeletes="true").execute()
    made = make_deletion_vectors(table._store, snapshot_of(table))
    assert sum(made.deletion_vectors.marked.values()) > 100
    before = {name: spark.conf.get(name) for name in options}
    try:
        for name, value in options.items():
            spark.conf.set(name, value)
        expected = without(table).cache()
        for condition in FILTERS:
            same(table.toDF().filter(condition), expected.filter(condition))
            same(table.toDF().filter(condition).select("d", "n.a"), expected.filter(condition).select("d", "n.a"))
        assert table.toDF().count() == expected.count()
        cached = table.toDF().cache()
        same(cached.filter("n.a > 300"), expected.filter("n.a > 300"))
        cached.unpersist()
        expected.unpersist()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_D2_files_of_equal_sizes_are_told_apart(spark, tmp_path, monkeypatch):
    """The batch and the name of the file count, not only its size."""
    monkeypatch.setattr(file_format, "_WRITING", {**file_format._WRITING, "compression": "none"})
    table = TrinityTable.create(spark, str(tmp_path / "t"), "id INT, ts INT, v STRING", "id", "ts")
    alike = "CAST(id AS INT) AS id", "1 AS ts", "'same' AS v"
    table.upsert(spark.range(0, 8).selectExpr(*alike).coalesce(1)).execute()
    table.upsert(spark.range(8, 16).selectExpr(*alike).coalesce(1)).execute()
    table.upsert(spark.range(0, 4).selectExpr("CAST(id AS INT) AS id", "2 AS ts", "'new' AS v")).execute()
    sizes = [f.size_bytes for b in snapshot_of(table).batches for f in table._store.data_files(b.id)]
    assert len(set(sizes[:2])) == 1
    make_deletion_vectors(table._store, snapshot_of(table))
    assert marked_of(snapshot_of(table)) == [4, 0, 0]
    assert table.toDF().count() == 16
    same(table.toDF(), without_watermark_filter(table))


def without_watermark_filter(table):
    batches = Batches.of(snapshot_of(table)).of_all_rows()
    return reader.resolve_by_window(table._store.scan(batches), batches).select("id", "ts", "v")


def test_D1_names_that_versions_of_spark_report_differently_are_refused(table, spark):
    (file, *_) = table._store.data_files(snapshot_of(table).batches[0].id)
    path = Path(file.path.removeprefix("file:"))
    path.rename(path.with_name(f"a b {path.name}"))
    for crc in path.parent.glob(".*.crc"):
        crc.unlink()
    assert make_deletion_vectors(table._store, snapshot_of(table)) is None


@pytest.mark.deletion_vectors
def test_D1_D2_a_column_that_hides_the_positions_of_rows_takes_no_vectors(spark, tmp_path):
    kind = "STRUCT<file_name: STRING, file_size: BIGINT, row_index: BIGINT>"
    table = new_table(spark, tmp_path, f"id INT, ts INT, `_metadata` {kind}", watermarkKey="ts", tombstoneKey=None)
    for ts in (1, 2, 3):
        rows = [(n, ts, ("in.parquet", 9, n)) for n in range(5)]
        table.upsert(frame(spark, f"id INT, ts INT, `_metadata` {kind}", *rows)).execute()
    assert table._snapshot().deletion_vectors is None
    assert sorted(tuple(row)[:2] for row in table.toDF().collect()) == [(n, 3) for n in range(5)]


@pytest.mark.deletion_vectors
@pytest.mark.parametrize("kind", ["STRING", "STRUCT<file_name: STRING, file_size: BIGINT, row_index: BIGINT>"])
def test_D2_S43_vectors_are_left_once_such_a_column_is_added(spark, tmp_path, kind):
    table = new_table(spark, tmp_path, "id INT, ts INT", watermarkKey="ts", tombstoneKey=None)
    for ts in (1, 2):
        table.upsert(frame(spark, "id INT, ts INT", *[(n, ts) for n in range(5)])).execute()
    assert table._snapshot().deletion_vectors is not None
    table.alter().addColumn("_metadata", kind).execute()
    assert sorted(tuple(row)[:2] for row in table.toDF().collect()) == [(n, 2) for n in range(5)]
