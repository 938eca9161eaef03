"""What every store must do, as checks: the contract of ``trinitymerge/stores/base.py``.

A check says by the type of its argument which stores it is about: every ``TableStore``, or those that are a ``ManagedStore``;
:func:`checks_of` gives a store's. One that a check finds wanting raises AssertionError. ``test_contract.py`` runs the checks over
managed tables, and over stores that are wrong on purpose, each of which some check must notice; ``test_iceberg.py`` runs them over
Iceberg tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import attrs
import pytest
from helpers import assertRows
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tables import frame

from trinitymerge.errors import (
    CorruptTableError,
    FilesVacuumedError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedStorageError,
)
from trinitymerge.log.actions import AddBatch, Batch, SetDefinition
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import NoConcurrentCommits, VersionConflict, publish
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.system_columns import BATCH, VERSION
from trinitymerge.stores.base import ManagedStore, Staged, TableStore

FIELDS = [Field("id", "integer"), Field("ts", "long"), Field("v", "string")]

Check = Callable[[Any], None]


def definition(file_format: str) -> TableDefinition:
    """Of the tables that the checks work on."""
    return TableDefinition.of(FIELDS, "id", "ts", fileFormat=file_format)


def append(store: TableStore, *rows: tuple[int, int, str]) -> Snapshot:
    """Stages and commits one batch."""
    base = store.snapshot()
    return store.commit(commit_of(store, base, stage(store, *rows), len(rows)), base)


def stage(store: TableStore, *rows: tuple[int, int, str]) -> Staged:
    spark: SparkSession = store.spark
    stored = frame(spark, "id INT, ts BIGINT, v STRING", *rows).selectExpr("*", "false AS _tm_deleted")
    return store.stage(stored, store.snapshot().definition)


def commit_of(store: TableStore, base: Snapshot, staged: Staged, rows: int) -> Commit:
    batch = Batch(id=staged.id, rows=rows, tombstones=0, files=staged.files, bytes=staged.size_bytes)
    return base.next_commit("TEST", [AddBatch(batch)])


def rows_of(store: TableStore, snapshot: Snapshot) -> list[tuple[object, ...]]:
    return sorted(tuple(r) for r in store.scan(Batches.of(snapshot)).select("id", "v", VERSION).collect())


# The checks -----------------------------------------------------------------------------------------------------------


def check_a_table_is_created_once(store: TableStore) -> None:
    before = store.snapshot()
    assert (before.version, store.exists()) == (0, True)
    with pytest.raises(TableExistsError):
        store.create(before.definition, None)
    assert store.snapshot() == before


def check_a_batch_is_seen_as_a_whole_and_only_when_committed(store: TableStore) -> None:
    staged = stage(store, (1, 1, "a"), (2, 1, "b"))
    assert rows_of(store, store.snapshot()) == []
    assert store.snapshot().version == 0
    assertRows(store.read_staged(staged).select("id", "v"), [(1, "a"), (2, "b")])
    base = store.snapshot()
    after = store.commit(commit_of(store, base, staged, 2), base)
    assert after == store.snapshot()
    assert rows_of(store, after) == [(1, "a", 1), (2, "b", 1)]


def check_rows_count_as_the_version_that_committed_them(store: TableStore) -> None:
    for n in range(1, 4):
        append(store, (1, n, f"v{n}"))
    assert rows_of(store, store.snapshot()) == [(1, "v1", 1), (1, "v2", 2), (1, "v3", 3)]


def check_versions_are_told_either_way(store: TableStore) -> None:
    for n in (1, 2):
        append(store, (n, 1, "a"))
    rows, version = store.scan_and_version(Batches.of(store.snapshot()))
    assert sorted(tuple(r) for r in rows.selectExpr("id", version).collect()) == [(1, 1), (2, 2)]


def check_columns_that_batches_lack_are_null(store: TableStore) -> None:
    batches = Batches.of(append(store, (1, 1, "a")))
    rows = store.scan(batches, [Field("later", "string")])
    assert [tuple(r) for r in rows.select("id", "later").collect()] == [(1, None)]


def check_a_version_is_committed_once(store: TableStore) -> None:
    base = store.snapshot()
    ours, theirs = stage(store, (1, 1, "ours")), stage(store, (2, 1, "theirs"))
    store.commit(commit_of(store, base, theirs, 1), base)
    with pytest.raises(VersionConflict):
        store.commit(commit_of(store, base, ours, 1), base)
    assert rows_of(store, store.snapshot()) == [(2, "theirs", 1)]
    publish(store, commit_of(store, base, ours, 1), base, ())
    assert rows_of(store, store.snapshot()) == [(1, "ours", 2), (2, "theirs", 1)]


def check_requirements_are_asked_about_what_landed(store: TableStore) -> None:
    base = store.snapshot()
    ours = stage(store, (1, 1, "ours"))
    append(store, (2, 1, "theirs"))
    with pytest.raises(Exception, match="a commit has landed"):
        publish(store, commit_of(store, base, ours, 1), base, (NoConcurrentCommits(),))
    assert store.snapshot().version == 1


def check_a_batch_without_its_files_is_not_committed(store: TableStore) -> None:
    base, staged = store.snapshot(), stage(store, (1, 1, "a"))
    store.discard(staged)
    store.discard(staged)
    with pytest.raises(FilesVacuumedError):
        store.commit(commit_of(store, base, staged, 1), base)
    with pytest.raises(FilesVacuumedError):
        store.read_staged(staged).collect()
    assert store.snapshot() == base


def check_a_snapshot_reads_the_same_whatever_comes_later(store: TableStore) -> None:
    before = append(store, (1, 1, "a"))
    append(store, (1, 2, "b"))
    assert rows_of(store, before) == [(1, "a", 1)]


def check_the_range_of_a_batch_is_its_own_or_unknown(store: TableStore) -> None:
    base = store.snapshot()
    for n in (1, 5):
        staged = stage(store, (n, 1, "a"), (n + 3, 1, "a"))
        store.note_range(staged.id, KeyRange({"id": n}, {"id": n + 3}))
        base = store.commit(commit_of(store, base, staged, 2), base)
    found = store.ranges_of([batch for batch in base.batches if not batch.foreign])
    for keys, n in zip(found, (1, 5), strict=True):
        assert keys is None or (keys.low.get("id", n) <= n and keys.high.get("id", n + 3) >= n + 3)


def check_past_versions_can_be_read(store: TableStore) -> None:
    for n in (1, 2):
        append(store, (1, n, "a"))
    assert rows_of(store, store.snapshot_at(1)) == [(1, "a", 1)]
    assert rows_of(store, store.snapshot_at(0)) == []
    with pytest.raises(TableNotFoundError):
        store.snapshot_at(3)


def check_the_history_is_complete_and_in_order(store: TableStore) -> None:
    for n in range(3):
        append(store, (n, 1, "a"))
    assert [c.version for c in store.commits(1, 3)] == [1, 2, 3]
    assert [c.version for c in store.history()] == [3, 2, 1, 0]


def check_versions_are_found_by_their_times(store: TableStore) -> None:
    for n in range(3):
        append(store, (n, 1, "a"))
    times = [store.committed_at(v) for v in range(4)]
    assert times == sorted(set(times))
    assert [store.version_at(t) for t in times] == [0, 1, 2, 3]


def check_a_version_is_known_by_its_exact_time(store: TableStore) -> None:
    for n in range(3):
        append(store, (n, 1, "a"))
    assert [store.version_of(store.committed_at(v)) for v in range(4)] == [0, 1, 2, 3]


def check_a_table_begins_with_batches_or_not_at_all(store: ManagedStore) -> None:
    before = append(store, (1, 1, "a"), (2, 1, "b"))
    kind: Any = type(store)
    other: ManagedStore = kind(store.spark, f"{store.path}-other")
    copied, lost = (other.copy_batch_from(store, before.batches[0].id) for _ in range(2))
    assert set(other.directories()) == {copied, lost}
    other.remove(other.batch_path(lost))
    commits = []
    for id in (lost, copied):
        snapshot = attrs.evolve(before, batches=[attrs.evolve(before.batches[0], id=id)])
        commits.append(
            Commit(
                version=0,
                timestamp_ms=before.timestamp_ms,
                operation="T",
                actions=[SetDefinition(before.definition), snapshot.as_initial()],
            )
        )
    other.require_free()
    with pytest.raises(FilesVacuumedError):
        other.begin(commits[0])
    assert not other.exists()
    after = other.begin(commits[1])
    assert (after, rows_of(other, after)) == (other.snapshot(), rows_of(store, before))
    for begin in (other.require_free, lambda: other.begin(commits[1]), lambda: store.begin(commits[1])):
        with pytest.raises(TableExistsError):
            begin()
    with pytest.raises(UnsupportedStorageError):
        other.copy_batch_from(object(), copied)
    assert rows_of(store, append(store, (3, 1, "c"))) == [(1, "a", 1), (2, "b", 1), (3, "c", 2)]
    assert rows_of(other, append(other, (4, 1, "d"))) == [(1, "a", 1), (2, "b", 1), (4, "d", 2)]


def check_what_was_made_for_a_table_that_is_none_goes(store: ManagedStore) -> None:
    kind: Any = type(store)
    other: ManagedStore = kind(store.spark, f"{store.path}-none")
    rows = frame(store.spark, "id INT, ts BIGINT, v STRING", (1, 1, "a")).selectExpr("*", "false AS _tm_deleted")

    def fail() -> None:
        with other.cleanup_on_failure():
            other.discard(other.stage(rows, store.snapshot().definition))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (other.exists(), dict(other.directories())) == (False, {})
    other.require_free()


def check_lost_files_are_named_not_read_over(store: ManagedStore) -> None:
    append(store, (1, 1, "a"))
    after = append(store, (2, 1, "b"))
    lost = after.batches[-1]
    assert store.missing(after.batches) == []
    store.remove(store.batch_path(lost.id))
    assert store.missing(after.batches) == [lost]
    with pytest.raises(CorruptTableError, match=lost.id):
        store.scan(Batches.of(after)).collect()
    with pytest.raises(CorruptTableError, match=lost.id):
        store.verify_files(after.batches)


def check_a_job_does_not_read_over_files_that_it_lost(store: ManagedStore) -> None:
    append(store, (1, 1, "a"))
    after = append(store, (2, 1, "b"))
    rows = store.scan(Batches.of(after))
    store.remove(store.batch_path(after.batches[-1].id))

    def read() -> None:
        rows.collect()
        store.verify_files_after_read(after.batches)

    with pytest.raises((CorruptTableError, PySparkException, Py4JJavaError)):
        read()


def check_a_batch_is_divided_into_its_files(store: ManagedStore) -> None:
    own = store.snapshot().definition
    rows = store.spark.range(0, 9, 1, 3).selectExpr(
        "CAST(id AS INT) AS id", "id AS ts", "'a' AS v", "false AS _tm_deleted"
    )
    staged = store.stage(rows, own)
    parts = store.split(staged, 2)
    assert [part.files for part in parts] == [2, 1]
    assert set(store.directories()) == {part.id for part in parts}
    found = [sorted(r["id"] for r in store.read_staged(part).collect()) for part in parts]
    assert found == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    with pytest.raises(FilesVacuumedError):
        store.split(staged, 2)


def check_maintenance_sees_every_batch(store: ManagedStore) -> None:
    committed, staged = append(store, (1, 1, "a")).batches[0], stage(store, (2, 1, "b"))
    assert set(store.directories()) == {committed.id, staged.id}
    assert len(store.data_files(staged.id)) == staged.files
    assert {f.path for f in store.data_files(staged.id)} <= {f.path for f in store.all_files(staged.id)}
    found = store.scan_directories(store.snapshot().definition, FIELDS[:1], [committed.id, staged.id])
    assert sorted(tuple(r) for r in found.select("id", BATCH).collect()) == [(1, committed.id), (2, staged.id)]
    assert store.read_whole(committed, store.snapshot().definition).columns == ["id", "ts", "v", "_tm_deleted"]
    store.discard(staged)
    assert set(store.directories()) == {committed.id}
    assert store.data_files(staged.id) == []
    assert store.unfinished_files(committed.id) == []


CHECKS: tuple[Check, ...] = tuple(value for name, value in sorted(globals().items()) if name.startswith("check_"))


def checks_of(store: TableStore) -> list[Check]:
    """The checks that a store must pass, by what it can do."""
    about = {check: get_type_hints(check)["store"] for check in CHECKS}
    return [check for check, kind in about.items() if kind is TableStore or isinstance(store, kind)]
