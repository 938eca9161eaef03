"""S38a: many small pending batches become one, whoever else is at work, and nobody sees a difference."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial

import attrs
import pytest
from helpers import assertRows, executed_plan, for_each
from tables import batch_directories, fill, frame, live_rows, new_table

from trinitymerge import InvalidDefinitionError, TrinityTable
from trinitymerge.fs import faults
from trinitymerge.log.actions import (
    MAJOR,
    MINOR,
    RESOLVED,
    UNRESOLVED,
    AddBatch,
    Batch,
    SetDeletionVectors,
    add_all,
    remove_all,
)
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import AppendOnlySince, VersionConflict, publish
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.maintenance.compaction import rebased
from trinitymerge.maintenance.minor_compaction import mergeable_batches, minor_compact
from trinitymerge.reader import ReadPlan
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import (
    COMPACT_AFTER_BATCHES,
    MINOR_COMPACTION_AFTER_BATCHES,
    MINOR_COMPACTION_MAX_BYTES,
    TOMBSTONE_RETENTION_HOURS,
)

AFTER_TWO = {MINOR_COMPACTION_AFTER_BATCHES: "2"}
NEVER = {MINOR_COMPACTION_AFTER_BATCHES: "none"}
ROWS = "id INT, ts INT, v STRING, deleted BOOLEAN"
ALL_KINDS = [
    [(1, 10, "a", False), (2, 10, "a", False), (3, 10, "a", False)],
    [(1, 30, "b", False), (2, 30, None, True), (9, 10, None, True)],
    [(1, 20, "late", False), (2, 20, "late", False), (4, 10, "a", False)],
    [(3, 10, "tie", False), (4, 10, None, True)],
]
"""Four batches: changes, deletes, deletes of what never was, late rows, and ties, which the later commit wins."""
LIVE = [(1, 30, "b", False), (3, 10, "tie", False)]


def fold_last(table: TrinityTable, count: int) -> Snapshot | None:
    """Folds the newest batches of a table."""
    snapshot = table._store.snapshot()
    return minor_compact(table._store, snapshot, snapshot.batches[-count:])


def operations(table: TrinityTable) -> list[str]:
    """What has been done to a table, oldest first, without its creation."""
    return [c.operation for c in reversed(table._store.history())][1:]


# Which batches --------------------------------------------------------------------------------------------------------


def pending(*sizes: int, base: int = 0, **properties: str) -> Snapshot:
    """A table with batches of some sizes, oldest first, after a base of another."""
    definition = TableDefinition.of([Field("id", "long")], "id", properties=properties)
    plain = {"tombstones": 0, "files": 1, "unique_keys": True}
    batches = [Batch(id=f"b{v}", rows=size, bytes=size, version=v, **plain) for v, size in enumerate(sizes, 2)]
    first = [Batch(id="base", rows=base, bytes=base, version=1, base=True, **plain)] if base else []
    return Snapshot(version=len(sizes) + 1, timestamp_ms=0, definition=definition, batches=[*first, *batches])


@pytest.mark.parametrize(
    ("snapshot", "folded"),
    [
        (pending(*[5] * 16, base=10**9), 0),
        (pending(*[5] * 17, base=10**9), 17),
        (pending(*[5] * 17, base=170), 18),
        (pending(*[5] * 17, base=171), 17),
        (pending(33, *[1] * 16, base=10**9), 16),
        (pending(32, *[1] * 16, base=10**9), 17),
        (pending(*[40 << 20, *[1] * 8] * 2, base=10**9), 0),
        (pending(*[40 << 20, *[1] * 8] * 3, base=10**9), 0),
        (pending(*[1] * 20, 40 << 20, *[1] * 16, base=10**9), slice(1, 21)),
        (pending(*[1] * 8, 40 << 20, *[1] * 17, base=10**9), 17),
        (pending(*[6 << 20] * 5, *[1] * 16, base=10**9), 0),
        (pending(*[6 << 20] * 5, *[1] * 17, base=10**9), 17),
        (pending(*[6 << 20] * 17, base=10**9), 0),
        (pending(*[6 << 20] * 17, base=20 << 20), 18),
        (pending(*[6 << 20] * 17, base=33 << 20), 0),
        (pending(*[5] * 17, base=10**9, **NEVER), 0),
        (pending(*[5] * 3, base=10**9, **AFTER_TWO), 3),
        (pending(*[5] * 3, base=10**9, **AFTER_TWO, **{MINOR_COMPACTION_MAX_BYTES: "5"}), 0),
    ],
)
def test_S38a_neighbours_are_folded_and_none_that_is_large_beside_them(snapshot, folded):
    where = folded if isinstance(folded, slice) else slice(len(snapshot.batches) - folded, None)
    assert mergeable_batches(snapshot) == snapshot.batches[where]


def test_S38a_a_batch_is_small_again_when_its_rows_are_replaced():
    snapshot = pending(*[6 << 20] * 17, base=10**9)
    assert not mergeable_batches(snapshot)
    marked = {b.id: b.rows // 2 for b in snapshot.batches[1:]}
    vectors = SetDeletionVectors(id="v", checksum="0" * 64, bytes=1, marked={"base": 0, **marked})
    assert mergeable_batches(attrs.evolve(snapshot, deletion_vectors=vectors)) == snapshot.batches[1:]


@pytest.mark.slow
@pytest.mark.parametrize("large", [0, 12], ids=["small merges only", "a large one after every twelve"])
@for_each("seed", range(20))
def test_S38a_what_is_written_again_is_little_beside_what_was_appended(seed, large):
    """Whatever sizes merges have, few small batches wait, and rows are folded as often as the logarithm of the merges."""
    chance, sizes, appended, written, merges, longest = random.Random(seed), [], 0, 0, 1000, 0
    most = chance.choice([1, 10, 1000])
    for n in range(1, merges + 1):
        is_large = large and n % large == 0
        sizes.append(40 << 20 if is_large else chance.randint(1, most))
        appended += 0 if is_large else sizes[-1]
        snapshot = pending(*sizes, base=10**9)
        run = mergeable_batches(snapshot)
        if run:
            at = int(run[0].id[1:]) - 2
            sizes[at : at + len(run)] = [sum(b.bytes for b in run)]
            written += sizes[at]
        since_large = sum(size < 40 << 20 for size in sizes)
        longest = max(longest, since_large if not large else since_large - 3 * (n // large))
    assert longest <= 24
    assert written <= appended * math.log(merges, 1.5)


@pytest.mark.parametrize(
    ("name", "text"),
    [(MINOR_COMPACTION_AFTER_BATCHES, "0"), (MINOR_COMPACTION_MAX_BYTES, "none"), (MINOR_COMPACTION_MAX_BYTES, "1.5")],
)
def test_properties_that_mean_nothing_are_refused(spark, tmp_path, name, text):
    with pytest.raises(InvalidDefinitionError, match=f"'{name}' takes a number of"):
        new_table(spark, tmp_path, properties={name: text})


# What is left ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4])
def test_S38a_a_fold_changes_nothing_for_readers_now_or_after_more_late_rows(spark, tmp_path, count):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)
    replaced = table._snapshot().batches[-count:]
    fold_last(table, count)
    assert live_rows(table) == LIVE
    folded = table._snapshot().batches[-1]
    assert (folded.version, folded.merges, folded.unique_keys) == (4, 1 if count == 4 else count, True)
    assert folded.base == (count == 4), "all there is, resolved, is a base"
    assert folded.rows == folded.tombstones + {2: 3, 3: 2, 4: 2}[count]
    assert folded.watermark_max == max(b.watermark_max for b in replaced)
    fill(table, spark, [(2, 29, "late", False), (4, 9, "late", False), (9, 9, "late", False)])
    assert live_rows(table) == LIVE
    fill(table, spark, [(9, 10, "tie", False)])
    assert live_rows(table) == [*LIVE, (9, 10, "tie", False)]
    assert TrinityTable.forPath(spark, table.path, versionAsOf=2).toDF().count() == 2


def test_S38a_a_merge_that_finds_too_many_small_batches_folds_them(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, properties=AFTER_TWO), spark, *ALL_KINDS[:3])
    assert operations(table) == ["UPSERT"] * 3
    result = table.upsert(frame(spark, ROWS, *ALL_KINDS[3])).execute()
    assert (result.version, table.version, result.batches) == (4, 5, 1)
    assert result.seconds["minorCompaction"] > 0
    assert result.hint == "compacted 4 batches into one in version 5"
    assert operations(table) == [*["UPSERT"] * 4, "MINOR COMPACT"]
    assert live_rows(table) == LIVE


def test_S38_S38a_a_compaction_counts_merges_and_dates_tombstones_by_their_own_commit(spark, tmp_path, monkeypatch):
    from trinitymerge.log.model import now_ms
    from trinitymerge.maintenance import rewrite

    table = new_table(spark, tmp_path, properties={**NEVER, COMPACT_AFTER_BATCHES: "4"})
    fill(table, spark, *ALL_KINDS)
    fold_last(table, 3)
    assert fill(table, spark, [(5, 10, "a", False)])._snapshot().batches[-2].merges == 3, "four merges are pending"
    deleted_ms = now_ms()
    for day, operation in ((6, "COMPACT"), (8, "COMPACT")):
        monkeypatch.setattr(rewrite, "now_ms", lambda day=day: deleted_ms + day * 24 * 3_600_000)
        if day == 6:
            fill(table, spark, [(6, 10, "a", False)])
        else:
            table.compact()
        assert (operations(table)[-1], table._snapshot().batches[0].tombstones) == (operation, 3 if day == 6 else 0)
    assert live_rows(table) == [*LIVE, (5, 10, "a", False), (6, 10, "a", False)]


@pytest.mark.parametrize("falling", [False, True], ids=["rising", "falling"])
@pytest.mark.parametrize("watermark", [None, "ts"])
@pytest.mark.parametrize("unique", [True, False], ids=["unique keys", "keys that may be there twice"])
def test_S13_S38a_small_batches_and_a_fold_are_laid_over_the_base(
    spark, tmp_path, monkeypatch, watermark, falling, unique
):
    """Their rows tie, win and lose as if all were resolved at once; and hardly anything is shuffled.

    Nothing is where no batch has a key twice. Where one may have, small batches and the fold are resolved, and laid over the base.
    """
    if not unique:
        monkeypatch.setattr(ReadPlan, "is_unique", False)
    keys = {"primaryKey": "id", "watermarkKey": watermark, "tombstoneKey": "deleted", "properties": NEVER}
    table = new_table(spark, tmp_path, ROWS, **keys)
    for commit, (step, count) in enumerate([(1, 400), (2, 40), (3, 40), (5, 10), (7, 10)]):
        late = f"CASE WHEN id % 4 = 1 THEN {5 if falling else 50} - 10 * {commit} ELSE 10 * {commit} END"
        row = ("CAST(id AS INT) AS id", f"CAST({late} AS INT) AS ts", f"'{commit}' AS v", "id % 6 = 0 AS deleted")
        table.upsert(spark.range(0, step * count, step).selectExpr(*row)).execute()
    snapshot = table._store.snapshot()
    minor_compact(table._store, snapshot, snapshot.batches[1:3])
    plan = executed_plan(table.toDF())
    if unique:
        assert plan.count("BroadcastHashJoin") == 1 + (watermark is not None), plan
        assert "hashpartitioning" not in plan
    else:
        assert plan.count("BroadcastHashJoin") == 1 + 2 * (watermark is not None), plan
        assert plan.count("hashpartitioning") >= 1
    rows = table._store.scan(Batches.of(table._snapshot()).of_all_rows())
    order = ([watermark] if watermark else []) + ["_tm_version"]
    expected = rows.selectExpr(
        "*", f"row_number() OVER (PARTITION BY id ORDER BY {', '.join(f'{c} DESC' for c in order)}) AS n"
    )
    assertRows(table.toDF(), expected.filter("n = 1 AND NOT deleted").select("id", "ts", "v", "deleted"))


def test_S38a_without_watermark_or_tombstone_column_the_later_commit_wins(spark, tmp_path):
    table = fill(
        new_table(spark, tmp_path, "id INT, v STRING", properties=NEVER), spark, [(1, "a"), (2, "a"), (3, "a")]
    )
    fill(table, spark, [(1, "b")])
    table.delete(frame(spark, "id INT", 1, 2)).execute()
    fill(table, spark, [(2, "c")])
    fold_last(table, 3)
    assert live_rows(table) == [(2, "c"), (3, "a")]
    assert table._snapshot().batches[-1].tombstones == 1
    assert fill(table, spark, [(1, "again")]).toDF().count() == 3


# Beside others --------------------------------------------------------------------------------------------------------


def folded_or_not(table: TrinityTable) -> list[str]:
    """Operations after the first four merges; no directory is left that no version has named."""
    named = {f"_tm_batch={b.id}" for c in table._store.history() for b in c.added}
    assert batch_directories(table) <= named
    return operations(table)[4:]


def test_S38a_a_fold_goes_on_top_of_merges_that_land_meanwhile(spark, tmp_path, at_point):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)
    at_point(
        "minor_compaction.staged", lambda: fill(table, spark, [(3, 10, "newest tie", False), (1, 29, "late", False)])
    )
    assert fold_last(table, 3).version == 6
    assert [b.version for b in table._snapshot().batches] == [1, 4, 5]
    assert live_rows(table) == [(1, 30, "b", False), (3, 10, "newest tie", False)]


@pytest.mark.parametrize("other", ["compact", "fold", "restore", "purge"])
def test_S38a_a_fold_whose_batches_others_replace_is_forgotten(spark, tmp_path, at_point, other):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)

    others = {
        "compact": table.compact,
        "fold": lambda: fold_last(table, 2),
        "restore": lambda: table.restore(1),
        "purge": lambda: table.purge([9]),  # it finds the key in the fold, too, and removes it
    }
    at_point("minor_compaction.staged", others[other])
    assert fold_last(table, 3) is None
    assert folded_or_not(table) == ["MINOR COMPACT" if other == "fold" else other.upper()]
    assert live_rows(table) == (sorted(ALL_KINDS[0]) if other == "restore" else LIVE)
    if other == "purge":
        assert table.purge([9]).unverifiedFiles == ()


def test_S38a_a_merge_that_reads_the_target_is_not_disturbed_by_a_fold(spark, tmp_path, monkeypatch):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)
    visits = []

    def hook(name: str) -> None:
        visits.append(name)
        if visits.count("validate.done") == 1 and "minor_compaction.staged" not in visits and name == "validate.done":
            fold_last(table, 3)

    monkeypatch.setattr(faults, "fault", hook)
    assert table.updateWhere("v = 'b'", {"v": "'c'", "ts": "40"}).execute().version == 6
    assert operations(table)[-2:] == ["MINOR COMPACT", "UPDATE"]
    assert visits.count("validate.done") == 1, "it was evaluated once"
    assert live_rows(table) == [(1, 40, "c", False), (3, 10, "tie", False)]


NEW = [(3, 40, "newest", False), (1, 40, "newest", False), (7, 40, "new", False)]


@pytest.mark.parametrize("retention", ["0", "none"])
@pytest.mark.parametrize(
    "landed", ["fold of what was read", "fold of read and new", "fold of all", "merge, fold of both, merge"]
)
def test_S38_S38a_a_compaction_commits_beside_folds(spark, tmp_path, at_point, landed, retention):
    """None may starve it, and what it forgets stays forgotten: newer rows come back as they were before they were folded."""
    properties = {**NEVER, TOMBSTONE_RETENTION_HOURS: retention}
    table = fill(new_table(spark, tmp_path, properties=properties), spark, *ALL_KINDS)
    expected, batches = (LIVE, 1) if landed.endswith("was read") else (NEW, 2)

    def others() -> None:
        if expected is NEW:
            fill(table, spark, NEW)
        fold_last(table, 5 if landed == "fold of all" else 3)
        if landed.endswith("merge"):
            fill(table, spark, [(8, 41, "new", False)])

    at_point("compact.staged", others)
    result = table.compact()
    if landed.endswith("merge"):
        expected, batches = [*NEW, (8, 41, "new", False)], 3
    assert (result.skipped, result.tombstones) == ("", 0 if retention == "0" else 3)
    assert (operations(table)[-1], len(table._snapshot().batches)) == ("COMPACT", batches)
    assert live_rows(table) == sorted(expected)
    fill(table, spark, [(3, 9, "late", False)])
    assert live_rows(table) == sorted(expected)
    table.compact()
    assert (live_rows(table), len(table._snapshot().batches)) == (sorted(expected), 1)


def test_S38_S38a_a_compaction_beside_folds_and_late_rows_forgets_nothing(spark, tmp_path, at_point):
    properties = {**NEVER, TOMBSTONE_RETENTION_HOURS: "0"}
    table = fill(new_table(spark, tmp_path, properties=properties), spark, *ALL_KINDS)
    at_point("compact.staged", lambda: (fill(table, spark, [(2, 29, "late", False)]), fold_last(table, 3)))
    assert table.compact().tombstones == 3
    assert (live_rows(table), table._snapshot().horizon) == (LIVE, None)


ONE = {"rows": 1, "tombstones": 0, "files": 1, "bytes": 1}


class Crowded:
    """A history without files, in which others append and fold before each of the first commits of somebody else."""

    path = "memory"

    def __init__(self, seed: int) -> None:
        self.chance, self.now, self.log, self.others = random.Random(seed), pending(*[1] * 3), [], 4

    def snapshot(self) -> Snapshot:
        return self.now

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        return iter(self.log[first - pending(*[1] * 3).version - 1 :][: last - first + 1])

    def commit(self, commit: Commit, base: Snapshot) -> Snapshot:
        if self.others:
            self.others -= 1
            for _ in range(self.chance.randint(1, 3)):
                self.land(self.append() if self.chance.random() < 0.6 else self.fold())
        if commit.version <= self.now.version:
            raise VersionConflict(commit.version, self.log[-1])
        return self.land(commit)

    def land(self, commit: Commit) -> Snapshot:
        self.now = self.now.apply(commit)
        self.log.append(commit)
        return self.now

    def rows_of(self, batch: str) -> list[str]:
        """The appended batches whose rows are in one."""
        folds = {b.id: c.removed for c in self.log if c.operation == "MINOR COMPACT" for b in c.added}
        return [i for part in folds[batch] for i in self.rows_of(part)] if batch in folds else [batch]

    def append(self) -> Commit:
        return self.now.next_commit("MERGE", [AddBatch(Batch(id=f"b{self.now.version + 1}", **ONE))])

    def fold(self) -> Commit:
        run = self.now.batches[-self.chance.randint(1, len(self.now.batches)) :]
        folded = Batch(id=f"f{self.now.version}", version=run[-1].version, **ONE)
        return self.now.next_commit("MINOR COMPACT", [*remove_all(run, MINOR), AddBatch(folded, MINOR)])


@for_each("seed", range(30))
def test_S38_S38a_a_compaction_that_loses_many_races_to_merges_and_folds_keeps_every_merge(seed):
    history = Crowded(seed)
    read = history.snapshot()
    base = Batch(id="new", unique_keys=True, base=True, version=read.version, **ONE)
    commit = read.next_commit("COMPACT", [*remove_all(read.batches, MAJOR), AddBatch(base, MAJOR)])
    done = publish(history, commit, read, (AppendOnlySince(or_minor_compactions=True),), partial(rebased, commit))
    appended = [b.id for c in history.log if c.operation == "MERGE" for b in c.added]
    assert done.batches[0].id == "new"
    assert [i for b in done.batches[1:] for i in history.rows_of(b.id)] == appended
    assert all(b.version > read.version for b in done.batches[1:])


class Owing(Crowded):
    """A history of a table that keeps its versions: each fold archives what it has replaced, with some of the earlier archives."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now = self.now.apply(
            self.now.next_commit("MERGE", [AddBatch(Batch(id="read", archive=UNRESOLVED, **ONE))])
        )
        self.log.append(self.now.next_commit("MERGE"))
        self.held = {"read": frozenset()}

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        return iter([c for c in self.log[1:] if first <= c.version <= last])

    def fold(self) -> Commit:
        run = self.now.live_batches[-self.chance.randint(1, len(self.now.live_batches)) :]
        earlier = [b for b in self.now.archives(UNRESOLVED) if self.chance.random() < 0.4]
        folded = Batch(id=f"f{self.now.version}", version=run[-1].version, **ONE)
        archive = Batch(id=f"l{self.now.version}", archive=UNRESOLVED, version=run[-1].version, **ONE)
        commit = self.now.next_commit(
            "MINOR COMPACT", [*remove_all([*run, *earlier], MINOR), *add_all([folded, archive], MINOR)]
        )
        rows = frozenset(i for b in run for i in self.rows_of(b.id))
        self.held[archive.id] = rows.union(*(self.held[b.id] for b in earlier))
        return commit

    def rows_of(self, batch: str) -> list[str]:
        """The appended batches whose rows are in one; archives aside."""
        folds = {c.added[0].id: c.removed for c in self.log if c.operation == "MINOR COMPACT"}
        parts = (part for part in folds.get(batch, ()) if part not in self.held)
        return [i for part in parts for i in self.rows_of(part)] if batch in folds else [batch]


@for_each("seed", range(200))
def test_S38_H6_a_compaction_that_meets_folds_with_archives_keeps_every_merge_and_every_version(seed):
    history = Owing(seed)
    read = history.snapshot()
    base = Batch(id="new", unique_keys=True, base=True, version=read.version, **ONE)
    settled = Batch(id="settled", archive=RESOLVED, version=read.version, **ONE)
    commit = read.next_commit("COMPACT", [*remove_all(read.batches, MAJOR), *add_all([base, settled], MAJOR)])
    done = publish(history, commit, read, (AppendOnlySince(or_minor_compactions=True),), partial(rebased, commit))
    appended = [b.id for c in history.log if c.operation == "MERGE" for b in c.added]
    present = {b.id: history.rows_of(b.id) for b in done.live_batches if b.id != "new"}
    assert [i for rows in present.values() for i in rows] == appended
    kept = {i for b in done.archives(UNRESOLVED) for i in history.held[b.id]}
    assert kept >= {i for batch, rows in present.items() if batch.startswith("f") for i in rows}, "versions are lost"
    assert kept.isdisjoint(batch for batch in present if not batch.startswith("f")), "versions are there twice"
    assert done.archives(RESOLVED) == (settled,)


# Failing --------------------------------------------------------------------------------------------------------------


def test_S38a_a_fold_that_fails_is_tried_again_and_its_merge_stands(spark, tmp_path, at_point, caplog):
    table = fill(new_table(spark, tmp_path, properties=AFTER_TWO), spark, *ALL_KINDS[:3])

    def fail() -> None:
        raise OSError("disk full")

    at_point("minor_compaction.staged", fail)
    result = table.upsert(frame(spark, ROWS, *ALL_KINDS[3])).execute()
    assert (result.version, table.version, result.batches) == (4, 4, 4)
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "the minor compaction after version 4 failed: disk full" in warning
    assert folded_or_not(table) == []
    result = table.upsert(frame(spark, ROWS, (5, 10, "a", False))).execute()
    assert (operations(table)[-1], result.batches) == ("MINOR COMPACT", 1)
    assert live_rows(table) == [*LIVE, (5, 10, "a", False)]


def test_S38a_who_interrupts_a_fold_is_told_that_the_merge_is_committed(spark, tmp_path, at_point, caplog):
    table = fill(new_table(spark, tmp_path, properties=AFTER_TWO), spark, *ALL_KINDS[:3])

    def interrupt() -> None:
        raise KeyboardInterrupt

    at_point("minor_compaction.staged", interrupt)
    with pytest.raises(KeyboardInterrupt):
        table.upsert(frame(spark, ROWS, (8, 1, "new", False))).execute()
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "interrupted, but the merge was committed as version 4" in warning
    assert (8, 1, "new", False) in live_rows(TrinityTable.forPath(spark, table.path))
    result = table.upsert(frame(spark, ROWS, (9, 1, "new", False))).execute()
    assert "compacted" in result.hint


@pytest.mark.parametrize("point", ["stage.written", "stage.synced", "minor_compaction.staged"])
def test_S39_a_fold_whose_files_a_vacuum_takes_is_forgotten(spark, tmp_path, at_point, point):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)
    at_point(point, lambda: table.vacuum(retentionHours=0))
    assert fold_last(table, 3) is None
    assert live_rows(TrinityTable.forPath(spark, table.path)) == LIVE


def test_S40_versions_before_and_after_a_fold_can_be_read_and_restored(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)
    fold_last(table, 3)
    fill(table, spark, [(8, 1, "new", False)])
    assert live_rows(TrinityTable.forPath(spark, table.path, versionAsOf=4)) == LIVE
    assert live_rows(TrinityTable.forPath(spark, table.path, versionAsOf=5)) == LIVE
    table.restore(4)
    assert (live_rows(table), len(table._snapshot().batches)) == (LIVE, 4)
    table.restore(5)
    assert (live_rows(table), len(table._snapshot().batches)) == (LIVE, 2)


def test_S38a_purged_keys_go_from_folded_batches_and_the_rest_stays(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, properties=NEVER), spark, *ALL_KINDS)
    fold_last(table, 3)
    result = table.purge([9, 1])
    assert (result.unverifiedFiles, live_rows(table)) == ((), [LIVE[1]])
    folded = table._snapshot().batches[-1]
    assert (folded.merges, folded.version) == (3, 4)
    fill(table, spark, [(2, 29, "late", False)])
    assert live_rows(table) == [LIVE[1]]


def test_a_batch_says_how_many_merges_it_is_of():
    batch = Batch(id="b", rows=1, tombstones=0, files=1, bytes=1, merges=7)
    assert Batch.from_json(batch.to_json()) == batch
    older = {k: v for k, v in batch.to_json().items() if k != "merges"}
    assert Batch.from_json(older) == attrs.evolve(batch, merges=1)
