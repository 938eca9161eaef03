"""Tables with history and several hands at once: no version is lost, and none comes back (H1, H6, H11, U3, S33, S35, S38-S40)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
from helpers import executed_plan
from pyspark.sql import SparkSession
from tables import EVENTS, fill, frame, live_rows, merge_into, new_table, set_default
from test_crashes import split

from trinitymerge import FilesVacuumedError, TrinityTable
from trinitymerge.log.actions import RESOLVED, UNRESOLVED
from trinitymerge.maintenance import segments
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.schema import properties
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES
from trinitymerge.testing import ModelTable

Rows = list[tuple[Any, ...]]

FIRST: Rows = [(1, 10, "a", False), (2, 10, "x", False), (3, 10, "u", False)]
SECOND: Rows = [(1, 20, "b", False), (2, 30, None, True)]
THIRD: Rows = [(1, 10, "A", False), (2, 20, "y", False), (3, 5, "t", False)]
"""A correction of what a fold or compaction has put aside, and late rows."""
FOURTH: Rows = [(1, 30, None, True), (2, 10, "X", False)]
FIFTH: Rows = [(1, 15, "late", False), (2, 40, "z", False)]
ALL = (FIRST, SECOND, THIRD, FOURTH, FIFTH)


def told(table: TrinityTable) -> Rows:
    rows = TrinityTable.forPath(table._store.spark, table.path).versions(emptyIntervals=True).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def expected(definition: TableDefinition, *batches: Iterable[tuple[Any, ...]]) -> Rows:
    """What the interpreter tells of these commits."""
    model = ModelTable(attrs.evolve(definition, history=True))
    for rows in batches:
        model.commit([dict(zip(definition.names, row, strict=True)) for row in rows])
    return sorted((tuple(row.values()) for row in model.versions(emptyIntervals=True)), key=repr)


def remembering(spark: SparkSession, directory: Any, *batches: Rows, **settings: Any) -> TrinityTable:
    own = {properties.MINOR_COMPACTION_AFTER_BATCHES: "none", **settings.pop("properties", {})}
    return fill(new_table(spark, directory, properties=own, **{"history": True, **settings}), spark, *batches)


def fold_last(table: TrinityTable, count: int) -> None:
    snapshot = table._store.snapshot()
    assert minor_compact(table._store, snapshot, snapshot.live_batches[-count:]) is not None


def check(table: TrinityTable, *batches: Rows) -> None:
    """The versions and the live rows are the interpreter's; also once all is compacted, and vacuumed."""
    wanted = expected(table.definition, *batches)
    assert told(table) == wanted
    alive = sorted((row[:4] for row in wanted if row[-1]), key=repr)
    assert live_rows(table) == alive
    table.compact(full=True)
    table.vacuum(retentionHours=0)
    assert told(table) == wanted
    assert live_rows(table) == alive


# Folds ----------------------------------------------------------------------------------------------------------------


def test_H6_an_archive_that_others_become_part_of_does_not_get_newer_than_a_correction_in_between(spark, tmp_path):
    table = remembering(spark, tmp_path, [(1, 10, "a", False)], [(1, 20, "b", False)])
    fold_last(table, 2)
    fill(table, spark, [(1, 10, "A", False)], [(1, 30, "c", False)], [(1, 40, "d", False)])
    fold_last(table, 2)
    (archive,) = table._snapshot().archives(UNRESOLVED)
    assert archive.rows == 2
    check(
        table,
        [(1, 10, "A", False), (1, 20, "b", False)],
        [(1, 30, "c", False), (1, 40, "d", False)],
    )


# Compaction -----------------------------------------------------------------------------------------------------------

Meanwhile = Callable[[TrinityTable, SparkSession], None]


def only_landed(table: TrinityTable, spark: SparkSession) -> None:
    fill(table, spark, FOURTH, FIFTH)
    fold_last(table, 2)


def landed_and_read(table: TrinityTable, spark: SparkSession) -> None:
    fill(table, spark, FOURTH)
    fold_last(table, 2)
    fill(table, spark, FIFTH)


def landed_and_landed_again(table: TrinityTable, spark: SparkSession) -> None:
    fill(table, spark, FOURTH, FIFTH)
    fold_last(table, 2)
    fold_last(table, 2)


@pytest.mark.parametrize("meanwhile", [only_landed, landed_and_read, landed_and_landed_again])
@pytest.mark.parametrize("before", ["appended", "folded"])
def test_H6_S38b_a_compaction_beside_merges_and_folds_loses_no_version(spark, tmp_path, at_point, meanwhile, before):
    table = remembering(spark, tmp_path, FIRST, SECOND)
    if before == "folded":
        fold_last(table, 2)
    fill(table, spark, THIRD)
    at_point("compact.staged", lambda: meanwhile(table, spark))
    assert not table.compact().skipped
    assert "COMPACT" in [c.operation for c in table._store.history()]
    check(table, *ALL)


@pytest.fixture
def in_segments(monkeypatch):
    set_default(monkeypatch, TARGET_SEGMENT_BYTES, "2000")
    monkeypatch.setattr(segments, "_PAYS", 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", [only_landed, landed_and_read])
def test_H6_S38b_so_does_one_that_leaves_keys_pending(spark, tmp_path, at_point, in_segments, meanwhile):
    base = [(i, 0, "base", False) for i in range(10, 900)]
    table = remembering(spark, tmp_path, base)
    split(spark, table)
    many = [(i, 1, "changed", False) for i in range(700, 900)]
    fill(table, spark, FIRST, many, SECOND)
    fold_last(table, 2)
    fill(table, spark, THIRD)
    at_point("compact.staged", lambda: meanwhile(table, spark))
    result = table.compact()
    assert result.segmentsKept > 0
    assert table._snapshot().archives(RESOLVED)
    assert table._snapshot().archives(UNRESOLVED)
    check(table, base, FIRST, many, SECOND, THIRD, FOURTH, FIFTH)


@pytest.mark.slow
def test_H6_S39_a_vacuum_beside_takes_no_archive_that_is_needed(spark, tmp_path, at_point):
    table = remembering(spark, tmp_path, FIRST, SECOND)
    table.compact()
    fill(table, spark, THIRD)
    at_point("compact.staged", lambda: table.vacuum(retentionHours=0))
    with pytest.raises(FilesVacuumedError):
        table.compact()
    fill(table, spark, FOURTH)
    at_point("compact.committed", lambda: table.vacuum(retentionHours=0))
    table.compact()
    fill(table, spark, FIFTH)
    check(table, *ALL)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["purge beside compaction", "compaction beside purge"])
def test_H7_a_purged_key_is_in_no_archive_whoever_comes_first(spark, tmp_path, at_point, order):
    table = remembering(spark, tmp_path, FIRST, SECOND)
    table.compact()
    fill(table, spark, THIRD, FOURTH)
    if order == "purge beside compaction":
        at_point("compact.staged", lambda: table.purge([1]))
        assert "purge" in table.compact().skipped
    else:
        at_point("purge.staged", table.compact)
        table.purge([1])
    assert merge_into(table, spark, FIFTH).rowsPurged == 1
    check(table, *[[row for row in rows if row[0] != 1] for rows in ALL])
    assert table.versions(keys=[1]).count() == 0


# What compactions write -----------------------------------------------------------------------------------------------


LATER: Rows = [(1, 30, "B", False), (1, 40, None, True), (3, 30, "v", False), (4, 50, "n", False)]
LATEST: Rows = [(3, 60, None, True), (2, 50, "w", False), (3, 50, "V", False), (4, 50, "N", False)]
"""Nothing before what is compacted ends, or only just: a correction, keys that end and come back, two events of a key."""


@pytest.mark.parametrize("folding", [False, True])
@pytest.mark.parametrize("forgetting", [False, True])
def test_H4_H6_what_is_later_than_all_that_is_settled_ends_it_at_one_look(spark, tmp_path, forgetting, folding):
    properties_ = {properties.TOMBSTONE_RETENTION_HOURS: "0"} if forgetting else {}
    table = remembering(spark, tmp_path, FIRST, SECOND, properties=properties_)
    table.compact()
    fill(table, spark, LATER, LATEST)
    if folding:
        fold_last(table, 2)
    assert executed_plan(table.versions()).count("LeftAnti") == 0, "nothing settled is looked at twice"
    wanted = expected(table.definition, FIRST, SECOND, (), LATER, LATEST)
    assert told(table) == wanted
    if not forgetting:
        check(table, FIRST, SECOND, (), LATER, LATEST)


def test_H4_H6_one_late_row_and_versions_are_put_in_order_anew(spark, tmp_path):
    table = remembering(spark, tmp_path, FIRST, SECOND)
    table.compact()
    fill(table, spark, LATER, [(2, 29, "late", False)])
    assert executed_plan(table.versions()).count("LeftAnti") == 1
    check(table, FIRST, SECOND, (), LATER, [(2, 29, "late", False)])


def test_H6_without_a_watermark_a_base_that_was_folded_is_not_before_the_rows_it_has_replaced(spark, tmp_path):
    table = new_table(
        spark,
        tmp_path,
        "id INT, v STRING",
        history=True,
        properties={properties.MINOR_COMPACTION_AFTER_BATCHES: "none"},
    )
    fill(table, spark, [(1, "a"), (2, "x")], [(1, "b")])
    fold_last(table, 2)
    assert [(b.base, b.archive) for b in table._snapshot().batches] == [(True, None), (False, UNRESOLVED)]
    rows = sorted((r.id, r.v, r.current) for r in table.versions(current="current").collect())
    assert rows == [(1, "a", False), (1, "b", True), (2, "x", True)]


def test_H6_of_large_archives_only_those_are_written_anew_that_change(spark, tmp_path):
    """A row that comes after all others changes none; a late one splits an interval, a correction takes a version's place."""
    old = [(i, 10, "a", False) for i in range(300)]
    new = [(i, 20, "b", False) for i in range(300)]
    table = remembering(spark, tmp_path, old, new)
    table.compact()
    (archive,) = table._snapshot().archives(RESOLVED)
    batches, changes = [old, new], ([(1, 30, "c", False)], [(2, 15, "late", False)], [(3, 10, "A", False)])
    for n, rows in enumerate(changes):
        fill(table, spark, rows)
        batches.append(rows)
        table.compact()
        assert (archive in table._snapshot().archives(RESOLVED)) == (n == 0)
        assert told(table) == expected(table.definition, *batches)
        archive = max(table._snapshot().archives(RESOLVED), key=lambda b: b.rows)
    assert archive.rows == 302


def test_H3_H6_tombstones_stay_between_versions_for_what_comes_late(spark, tmp_path):
    lived = [(1, 10, "a", False), (1, 20, None, True), (1, 30, "b", False)]
    table = remembering(spark, tmp_path, *([row] for row in lived))
    table.compact()
    fill(table, spark, [(1, 10, "A", False)])
    assert told(table) == expected(table.definition, lived, [(1, 10, "A", False)])
    table.compact()
    fill(table, spark, [(1, 15, "late", False)])
    check(table, lived, [(1, 10, "A", False)], [(1, 15, "late", False)])


def test_H6_live_rows_are_not_read_from_archives(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING", history=True)
    fill(table, spark, [(1, "z"), (2, "a")], [(1, "a")])
    table.compact()
    assert table._snapshot().archives(RESOLVED)
    assert live_rows(table) == [(1, "a"), (2, "a")]
    fill(table, spark, [(2, "b")])
    assert live_rows(table) == [(1, "a"), (2, "b")]


# Restore --------------------------------------------------------------------------------------------------------------


def test_H6_S40_a_restore_brings_archives_back(spark, tmp_path):
    table = remembering(spark, tmp_path, FIRST, SECOND)
    table.compact()
    version = table.version
    fill(table, spark, THIRD, FOURTH)
    table.compact()
    assert table.restore(version).batchesAdded > 1
    assert told(table) == expected(table.definition, FIRST, SECOND)
    fill(table, spark, FIFTH)
    check(table, FIRST, SECOND, FIFTH)


def test_H6_S40_a_restore_to_before_a_compaction_leaves_no_archive(spark, tmp_path):
    table = remembering(spark, tmp_path, FIRST, SECOND, THIRD)
    table.compact()
    table.restore(2)
    assert not table._snapshot().archives(RESOLVED)
    fill(table, spark, FOURTH)
    check(table, FIRST, SECOND, FOURTH)


@pytest.mark.parametrize("watermark", ["ts", None])
def test_H1_S40_a_restore_to_before_history_was_switched_on_switches_it_off(spark, tmp_path, watermark):
    keys = {"watermarkKey": watermark, "history": False}
    table = remembering(spark, tmp_path, FIRST, SECOND, **keys)
    before = live_rows(table)
    table.alter().setHistory().execute()
    table = TrinityTable.forPath(spark, table.path)
    fill(table, spark, THIRD)
    table.compact()
    with_history = table.version
    remembered = told(table)
    table.restore(2)
    table = TrinityTable.forPath(spark, table.path)
    assert not table.definition.history
    assert live_rows(table) == before
    fill(table, spark, FOURTH)
    table.restore(with_history)
    table = TrinityTable.forPath(spark, table.path)
    assert table.definition.history
    assert told(table) == remembered
    table.restore(2)
    TrinityTable.forPath(spark, table.path).alter().setHistory().execute()
    table = TrinityTable.forPath(spark, table.path)
    assert sorted(row[:4] for row in told(table)) == before


def test_H1_what_lands_beside_the_switch_is_a_version_or_older(spark, tmp_path, at_point):
    table = remembering(spark, tmp_path, FIRST, SECOND, history=False)
    at_point("alter.prepared", lambda: fill(table, spark, [(1, 50, "landed", False)]))
    table.alter().setHistory().execute()
    table = TrinityTable.forPath(spark, table.path)
    fill(table, spark, [(1, 60, "after", False)])
    assert [(row[2], row[4], row[5]) for row in told(table) if row[0] == 1] == [("landed", 50, 60), ("after", 60, None)]


# Feeds that read before they write ------------------------------------------------------------------------------------


def test_U1_S35_what_nulls_are_filled_with_is_looked_up_again(spark, tmp_path, at_point):
    table = remembering(spark, tmp_path, [(1, 10, "a", False)])
    at_point("commit.before", lambda: fill(table, spark, [(1, 15, "b", False)]))
    table.applyChanges(frame(spark, EVENTS, (1, 20, None, False)), ignoreNullUpdates=True).execute()
    assert [row[2] for row in told(table)] == ["a", "b", "b"]


def extract(spark: SparkSession, *rows: tuple[Any, ...]) -> Any:
    return frame(spark, "id INT, v STRING", *rows)


def test_H11_S35_an_extract_is_compared_again(spark, tmp_path, at_point):
    table = remembering(spark, tmp_path, [(1, 10, "a", False), (2, 10, "x", False)])
    at_point("commit.before", lambda: fill(table, spark, [(1, 15, "b", False), (3, 15, "new", False)]))
    table.snapshot(extract(spark, (1, "a"), (2, "x")), at=20).execute()
    assert [(row[0], row[2], row[4], row[5]) for row in told(table)] == [
        (1, "a", 10, 15),
        (1, "b", 15, 20),
        (1, "a", 20, None),
        (2, "x", 10, None),
        (3, "new", 15, 20),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("first", [20, 30])
def test_H11_S35_two_late_extracts_at_once_are_as_one_after_the_other(spark, tmp_path, at_point, first):
    extracts = {20: [(1, "b"), (2, "x")], 30: [(1, "a"), (3, "n")]}
    table = remembering(spark, tmp_path)
    table.snapshot(extract(spark, (1, "a"), (2, "x")), at=10).execute()
    table.snapshot(extract(spark, (1, "z"), (2, "x")), at=40).execute()
    second = 50 - first
    at_point("commit.before", lambda: table.snapshot(extract(spark, *extracts[first]), at=first).execute())
    table.snapshot(extract(spark, *extracts[second]), at=second).execute()
    for moment, rows in {10: [(1, "a"), (2, "x")], **extracts, 40: [(1, "z"), (2, "x")]}.items():
        assert sorted((r["id"], r["v"]) for r in table.asOf(moment).collect()) == rows
    assert len(table._snapshot().extracts) == 4


def test_H11_S35_a_moment_that_is_taken_meanwhile_counts_though_nothing_was_written(spark, tmp_path, at_point):
    table = remembering(spark, tmp_path)
    table.snapshot(extract(spark, (1, "a")), at=10).execute()
    at_point("commit.before", lambda: table.snapshot(extract(spark, (1, "a")), at=30).execute())
    table.snapshot(extract(spark, (1, "b")), at=20).execute()
    assert [(row[2], row[4], row[5]) for row in told(table)] == [("a", 10, 20), ("b", 20, 30), ("a", 30, None)]
