"""S33, S35: several writers on one table. No update is lost, no key lives twice, and every writer ends."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from helpers import assertRows
from processes import finish, start
from pyspark.errors import PySparkException
from tables import batch_directories, fill, frame, live_rows, new_table

from trinitymerge import ConcurrentCommitError, FilesVacuumedError, TrinityTable
from trinitymerge.fs import faults
from trinitymerge.schema.properties import (
    MAX_COMMIT_ATTEMPTS,
    MINOR_COMPACTION_AFTER_BATCHES,
    TOMBSTONE_RETENTION_HOURS,
)
from trinitymerge.stores import managed
from trinitymerge.stores.managed import DirectoryStore

COUNTERS = "id INT, n INT, v STRING"

# Conflicts, one at a time ---------------------------------------------------------------------------------------------


@pytest.fixture
def staged(monkeypatch) -> Counter:
    """Counts the batches written, and runs ``staged.meanwhile`` just before the first of them is committed."""
    visits = Counter()
    visits.meanwhile = None

    def hook(name: str) -> None:
        action, is_commit = visits.meanwhile, name == "commit.before"
        visits[name] += 1
        if is_commit and action is not None:
            visits.meanwhile = None
            action()
            visits.clear()  # what the others staged does not count

    monkeypatch.setattr(faults, "fault", hook)
    return visits


def counters(spark, tmp_path, **keys) -> TrinityTable:
    return fill(new_table(spark, tmp_path, COUNTERS, **keys), spark, [(i, 0, "a") for i in range(4)])


def add(table: TrinityTable, spark, *ids: int):
    """A merge that reads the target by key: adds one to the counters of some keys, but never to negative ones."""
    source = frame(spark, "id INT", *ids)
    merge = table.merge(source).whenMatched("target.n >= 0").updateExpr({"n": "target.n + 1"})
    assert merge.build().strategy == "keyed lookup"
    return merge


def test_s35_a_merge_whose_keys_others_left_alone_commits_as_it_is(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    staged.meanwhile = lambda: add(table, spark, 1, 2).execute()
    assert add(table, spark, 0, 3).execute().version == 3
    assert staged["stage.before"] == 0, "nothing was written again"
    assertRows(table.toDF(), [(i, 1, "a") for i in range(4)])


def test_s35_a_merge_whose_keys_others_wrote_is_evaluated_again(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    staged.meanwhile = lambda: add(table, spark, 3).execute()
    assert add(table, spark, 0, 3).execute().version == 3
    assert staged["stage.before"] == 1
    assertRows(table.toDF(), [(0, 1, "a"), (1, 0, "a"), (2, 0, "a"), (3, 2, "a")])
    assert len(batch_directories(table)) == 3, "the batch of the first attempt is gone"


def test_s35_a_key_that_was_only_read_counts_too(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    fill(table, spark, [(1, -5, "a")])
    staged.meanwhile = lambda: fill(table, spark, [(1, 5, "a")])
    assert add(table, spark, 0, 1).execute().rowsUpdated == 2
    assertRows(table.toDF().filter("id = 1"), [(1, 6, "a")])


def test_s35_a_key_that_others_inserted_is_not_inserted_twice(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    source = frame(spark, COUNTERS, (9, 1, "mine"))
    staged.meanwhile = lambda: fill(table, spark, [(9, 1, "theirs")])
    merge = table.merge(source).whenMatched("target.v <> 'x'").updateExpr({"n": "target.n + 1"})
    result = merge.whenNotMatched().insertAll().execute()
    assert (result.rowsInserted, result.rowsUpdated) == (0, 1)
    assertRows(table.toDF().filter("id = 9"), [(9, 2, "theirs")])


def test_s35_a_full_scan_is_evaluated_again_whatever_key_was_written(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    staged.meanwhile = lambda: fill(table, spark, [(9, 0, "new")])
    assert table.updateWhere("n = 0", {"n": "1"}).execute().rowsUpdated == 5
    assertRows(table.toDF().filter("n <> 1"), [])


def test_s35_moves_and_delete_limits_are_evaluated_again(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    staged.meanwhile = lambda: fill(table, spark, [(9, 0, "new")])
    source = frame(spark, "id INT, new_id INT", (1, 11))
    table.merge(source, "target.id = source.id").whenMatched().updateExpr({"id": "source.new_id"}).execute()
    assert staged["stage.before"] == 1
    staged.clear()
    staged.meanwhile = lambda: fill(table, spark, [(10, 0, "new")])
    table.delete(frame(spark, "id INT", 0)).maxDeleteFraction(0.5).execute()
    assert staged["stage.before"] == 1
    assertRows(table.toDF().select("id"), [2, 3, 9, 10, 11])


@pytest.mark.parametrize("path", ["keyed", "full"])
def test_s35_a_compaction_disturbs_no_merge(spark, tmp_path, staged, path):
    table = counters(spark, tmp_path)
    fill(table, spark, [(0, 5, "b")])
    staged.meanwhile = table.compact
    merge = add(table, spark, 0, 1) if path == "keyed" else table.updateWhere("id < 2", {"n": "n + 1"})
    assert merge.execute().version == 4
    assert staged["stage.before"] == 0
    assertRows(table.toDF().filter("id < 2"), [(0, 6, "b"), (1, 1, "a")])


def test_s35_a_late_row_does_not_outlive_the_tombstone_it_was_judged_by(spark, tmp_path, staged):
    table = new_table(spark, tmp_path, properties={TOMBSTONE_RETENTION_HOURS: "0"})
    fill(table, spark, [(1, 10, "a", False)], [(1, 20, None, True)])
    staged.meanwhile = table.compact
    source = frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (1, 15, "late", False))
    merge = table.merge(source).whenMatched("target.v <> 'x'").updateAll().whenNotMatched().insertAll()
    result = merge.execute()
    assert staged["stage.before"] == 1
    assert (result.rowsInserted, result.rowsStale, result.rowsBelowHorizon) == (1, 0, 1), "as if it had come later"


def test_s35_a_blind_append_says_when_it_cannot_tell_what_was_forgotten(spark, tmp_path, staged):
    table = new_table(spark, tmp_path, properties={TOMBSTONE_RETENTION_HOURS: "0"})
    rows = "id INT, ts INT, v STRING, deleted BOOLEAN"
    for low, expected in ((15, None), (60, 0)):
        fill(table, spark, [(1, 10 + low, "a", False), (2, 10 + low, "a", False)], [(1, 20 + low, None, True)])
        staged.meanwhile = table.compact
        result = table.upsert(frame(spark, rows, (3, 2 * low, "new", False))).execute()
        assert (result.strategy, result.rowsBelowHorizon, staged["stage.before"]) == ("blind append", expected, 0)


def test_s35_a_restore_makes_merges_that_read_the_target_read_again(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    fill(table, spark, [(0, 7, "b")])
    staged.meanwhile = lambda: table.restore(1)
    add(table, spark, 0).execute()
    assertRows(table.toDF().filter("id = 0"), [(0, 1, "a")])


@pytest.mark.parametrize("blind", [True, False])
def test_s35_a_change_of_what_names_mean_conflicts_with_whatever_uses_them(spark, tmp_path, staged, blind):
    table = counters(spark, tmp_path)
    staged.meanwhile = lambda: table.alter().renameColumn("n", "m").execute()
    merge = table.upsert(frame(spark, COUNTERS, (9, 9, "x"))) if blind else add(table, spark, 0)
    with pytest.raises(ConcurrentCommitError, match=r"has been altered .*: column n has become m"):
        merge.execute()
    assertRows(table.toDF(), [(i, 0, "a") for i in range(4)])


@pytest.mark.parametrize("blind", [True, False])
def test_s35_other_changes_of_the_definition_make_it_be_planned_again(spark, tmp_path, staged, blind):
    table = counters(spark, tmp_path)
    staged.meanwhile = lambda: table.alter().setComment("changed").addColumn("x", "INT").execute()
    merge = table.upsert(frame(spark, COUNTERS, (0, 1, "a"))) if blind else add(table, spark, 0)
    merge.execute()
    assertRows(table.toDF(), [(0, 1, "a", None), *((i, 0, "a", None) for i in range(1, 4))])


def test_s35_attempts_are_bounded_as_the_table_says(spark, tmp_path, monkeypatch):
    table = counters(spark, tmp_path, properties={MAX_COMMIT_ATTEMPTS: "3", "trinitymerge.commitBackoffSeconds": "0"})
    staged = Counter()

    def always_faster(name: str) -> None:
        staged[name] += 1
        if name == "commit.before":
            monkeypatch.setattr(faults, "fault", lambda name: None)
            fill(table, spark, [(0, 0, "theirs")])
            monkeypatch.setattr(faults, "fault", always_faster)

    monkeypatch.setattr(faults, "fault", always_faster)
    with pytest.raises(ConcurrentCommitError, match="Run it again"):
        add(table, spark, 0).execute()
    assert staged["commit.before"] == 3
    assert len(batch_directories(table)) == 4, "three by the others; no attempt left anything"


def test_s36_a_transaction_that_lands_twice_at_once_counts_once(spark, tmp_path, staged):
    table = counters(spark, tmp_path)
    blind = table.upsert(frame(spark, COUNTERS, (9, 9, "x"))).withTransaction("app", 7)
    staged.meanwhile = lambda: blind.execute()
    assert "transaction 7 of 'app' was committed before" in blind.execute().skipped
    assert table.version == 2


@pytest.mark.parametrize("operation", ["blind", "keyed", "compact", "purge"])
def test_s39_a_write_slower_than_a_vacuums_retention_commits_no_missing_files(spark, tmp_path, monkeypatch, operation):
    """A merge is evaluated again; nothing ever names files that are gone."""
    table = counters(spark, tmp_path)
    fill(table, spark, [(1, 1, "b")])
    before = live_rows(table)
    operations = {
        "blind": lambda: table.upsert(frame(spark, COUNTERS, (9, 9, "x"))).execute(),
        "keyed": lambda: add(table, spark, 0).execute(),
        "compact": table.compact,
        "purge": lambda: table.purge([1]),
    }

    def hook(name: str) -> None:
        if name == {"compact": "compact.staged", "purge": "purge.staged"}.get(operation, "validate.done"):
            monkeypatch.setattr(faults, "fault", lambda name: None)
            table.vacuum(retentionHours=0)

    monkeypatch.setattr(faults, "fault", hook)
    if operation == "purge":
        assert operations["purge"]().rowsRemoved > 0
        assert live_rows(TrinityTable.forPath(spark, table.path)) == [row for row in before if row[0] != 1]
    elif operation == "compact":
        with pytest.raises(FilesVacuumedError, match=r"vacuum\(\) of .* longer retentionHours"):
            operations[operation]()
        assert live_rows(TrinityTable.forPath(spark, table.path)) == before
    else:
        operations[operation]()
        assert len(live_rows(TrinityTable.forPath(spark, table.path))) == len(before) + (operation == "blind")
    assert table._store.missing(table._snapshot().batches) == []
    table.vacuum(retentionHours=0)
    assert len(batch_directories(table)) == len(table._snapshot().batches)


# Several processes ----------------------------------------------------------------------------------------------------

WRITER = """
me, rounds = int(sys.argv[2]), int(sys.argv[3])
for round in range(rounds):
    table.updateWhere("id = 0", {"n": "n + 1"}).execute()
    one = spark.sql(f"SELECT {me} AS id, 1 AS n, 'new' AS v")
    table.merge(one).whenMatched("target.n >= 0").updateExpr({"n": "target.n + 1"}).whenNotMatched().insertAll().execute()
    both = spark.sql(f"SELECT 1000 + {round} AS id, 1 AS n, 'w{me}' AS v")
    table.insert(both, deduplicate=True).execute()
    table.upsert(spark.sql(f"SELECT 10000 * {me} + {round} AS id, {round} AS n, 'blind' AS v")).execute()
"""

MAINTAINER = """
import pathlib
done = pathlib.Path(sys.argv[2])
count = 0
while not done.exists():
    count += not table.compact().skipped
    table.vacuum(retentionHours=60 / 3600)
    time.sleep(0.2)
print(count)
"""


MANY = {MAX_COMMIT_ATTEMPTS: "100", MINOR_COMPACTION_AFTER_BATCHES: "3"}
"""Properties of tables with many writers: each of them compacts what all of them have appended (S38a)."""


def finish_writers(table: TrinityTable, share, writers: int, rounds: int) -> None:
    working = [start(table.path, WRITER, share, me, rounds) for me in range(1, writers + 1)]
    for process in working:
        finish(process)


def check_many_writers(spark, tmp_path, share, writers: int, rounds: int) -> None:
    table = new_table(spark, tmp_path, COUNTERS, properties=MANY)
    fill(table, spark, [(0, 0, "shared")])
    done = tmp_path / "done"
    maintainer = start(table.path, MAINTAINER, share, done)
    finish_writers(table, share, writers, rounds)
    done.touch()
    compactions = int(finish(maintainer))
    operations = Counter(row["operation"] for row in table.history().collect())
    check_nothing_is_lost(table, writers, rounds)  # which compacts once more
    assert operations["COMPACT"] == compactions > 0


def check_nothing_is_lost(table: TrinityTable, writers: int, rounds: int) -> None:
    found = {row[0]: row for row in live_rows(table)}
    assert table.toDF().count() == len(found), "a key lives twice"
    assert found[0] == (0, writers * rounds, "shared")
    assert [found[me][1] for me in range(1, writers + 1)] == [rounds] * writers
    assert all(found[1000 + i][1] == 1 for i in range(rounds))
    assert all(found[10000 * me + i][1] == i for me in range(1, writers + 1) for i in range(rounds))
    assert len(found) == 1 + writers + rounds + writers * rounds
    table.compact()
    assert {row[0]: row for row in live_rows(table)} == found
    table.vacuum(retentionHours=0)
    assert len(batch_directories(table)) == 1


@pytest.mark.slow
def test_s35_writers_in_several_processes_lose_nothing(spark, tmp_path):
    check_many_writers(spark, tmp_path, spark, writers=3, rounds=2)


@pytest.mark.slow
def test_s35_S38a_writers_in_several_processes_compact_each_others_batches(spark, tmp_path):
    """There is a minor compaction for certain: if there was none before, the last merge finds all batches and no other commit."""
    table = fill(new_table(spark, tmp_path, COUNTERS, properties=MANY), spark, [(0, 0, "shared")])
    finish_writers(table, spark, 2, 2)
    assert "MINOR COMPACT" in [c.operation for c in table._store.history()]
    check_nothing_is_lost(table, 2, 2)


@pytest.mark.long
def test_s35_writers_with_sessions_of_their_own_lose_nothing(spark, tmp_path):
    check_many_writers(spark, tmp_path, None, writers=4, rounds=8)


@pytest.mark.long
def test_s36_a_feed_that_several_processes_deliver_counts_once(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, COUNTERS), spark, [(0, 0, "shared")])
    code = """
for batch in range(6):
    result = table.updateWhere("id = 0", {"n": "n + 1"}).withTransaction("feed", batch).execute()
    print(json.dumps(bool(result.skipped)))
"""
    processes = [start(table.path, code, None) for _ in range(3)]
    skipped = [json.loads(line) for p in processes for line in finish(p).splitlines()]
    assert (skipped.count(False), len(skipped)) == (6, 18)
    assertRows(table.toDF(), [(0, 6, "shared")])


# A vacuum without retention beside others ------------------------------------------------------------------------------


def replaced_meanwhile(monkeypatch, table: TrinityTable, method: str, vacuums_only: bool = False) -> None:
    """Right after the store has given the rows of some batches, others replace these, and a vacuum removes their files."""
    read, other = getattr(DirectoryStore, method), TrinityTable.forPath(table._store.spark, table.path)

    def then_vacuumed(store: DirectoryStore, *arguments):
        found = read(store, *arguments)
        monkeypatch.setattr(DirectoryStore, method, read)
        if not vacuums_only:
            other.compact(full=True)
        other.vacuum(retentionHours=0)
        return found

    monkeypatch.setattr(DirectoryStore, method, then_vacuumed)


def test_S39_a_merge_whose_target_is_vacuumed_while_it_is_read_is_evaluated_again(spark, tmp_path, monkeypatch):
    table = fill(counters(spark, tmp_path), spark, [(1, 5, "b")])
    merge = table.merge(frame(spark, "id INT", 1)).whenMatched("target.n >= 0").updateExpr({"n": "target.n + 1"})
    replaced_meanwhile(monkeypatch, table, "scan")
    merge.execute()
    assertRows(table.toDF().filter("id = 1"), [(1, 6, "b")])


def test_S35_S39_a_merge_that_looks_at_its_own_rows_while_they_are_vacuumed_is_evaluated_again(
    spark, tmp_path, monkeypatch
):
    table = counters(spark, tmp_path)

    def hook(name: str) -> None:
        if name == "commit.before":
            monkeypatch.setattr(faults, "fault", lambda name: None)
            fill(TrinityTable.forPath(spark, table.path), spark, [(3, 7, "theirs")])
            replaced_meanwhile(monkeypatch, table, "read_staged", vacuums_only=True)

    monkeypatch.setattr(faults, "fault", hook)
    add(table, spark, 0).execute()
    assertRows(table.toDF(), [(0, 1, "a"), (1, 0, "a"), (2, 0, "a"), (3, 7, "theirs")])


def test_S39_a_merge_whose_directory_is_vacuumed_while_spark_writes_it_is_evaluated_again(spark, tmp_path, monkeypatch):
    table, wrote = counters(spark, tmp_path), managed.write

    def write(rows, file_format: str, path: str) -> None:
        monkeypatch.setattr(managed, "write", wrote)
        raise PySparkException(
            f"ExitCodeException exitCode=1: chmod: cannot access '{path}/_temporary': No such file or directory"
        )

    monkeypatch.setattr(managed, "write", write)
    table.upsert(frame(spark, COUNTERS, (9, 9, "x"))).execute()
    assert len(live_rows(table)) == 5


def test_S39a_a_purge_beside_a_vacuum_is_done_and_says_so(spark, tmp_path, monkeypatch):
    table = fill(counters(spark, tmp_path), spark, [(1, 5, "b")])
    fill(table, spark, [(2, 6, "c")])
    table.compact(full=True)
    replaced_meanwhile(monkeypatch, table, "scan_directories")
    assert table.purge([1]).unverifiedFiles == ()
    assertRows(table.toDF(), [(0, 0, "a"), (2, 6, "c"), (3, 0, "a")])

    def hook(name: str) -> None:
        if name == "purge.committed":
            replaced_meanwhile(monkeypatch, table, "scan_directories", vacuums_only=True)

    monkeypatch.setattr(faults, "fault", hook)
    table.updateWhere("id = 2", {"n": "8"}).execute()
    assert table.purge([2]).unverifiedFiles == ()
    assertRows(table.toDF(), [(0, 0, "a"), (3, 0, "a")])


def test_S39a_a_purge_removes_what_a_writer_stages_that_had_begun_before(spark, tmp_path, monkeypatch):
    table = counters(spark, tmp_path)
    other = TrinityTable.forPath(spark, table.path)
    stage, late = DirectoryStore.stage, frame(spark, COUNTERS, (1, 9, "late"))

    def hook(name: str) -> None:
        if name == "purge.deleted" and len(staged) == 0:
            staged.append(stage(other._store, late.selectExpr("*", "false AS _tm_deleted"), other.definition))

    staged: list = []
    monkeypatch.setattr(faults, "fault", hook)
    table.purge([1])
    assert len(staged) == 1
    assert table._store.data_files(staged[0].id) == []


def test_S39_reads_and_alterations_beside_a_vacuum_say_what_has_happened_or_work(spark, tmp_path, monkeypatch):
    table = fill(counters(spark, tmp_path), spark, [(1, 5, "b")])
    snapshot = DirectoryStore.snapshot

    def then_replaced(store: DirectoryStore):
        found = snapshot(store)
        monkeypatch.setattr(DirectoryStore, "snapshot", snapshot)
        other = TrinityTable.forPath(spark, table.path)
        other.compact(full=True)
        other.vacuum(retentionHours=0)
        return found

    monkeypatch.setattr(DirectoryStore, "snapshot", then_replaced)
    with pytest.raises(FilesVacuumedError, match=r"vacuum\(\) of .* longer retentionHours"):
        table.toDF()
    assert table.toDF().count() == 4
    fill(table, spark, [(2, 5, "c")])
    replaced_meanwhile(monkeypatch, table, "scan")
    replaced_meanwhile(monkeypatch, table, "scan_and_version")
    table.alter().setNotNull("n").execute()
    assert not table.definition.field("n").nullable


def test_S33_S39_a_commit_whose_temporary_file_is_vacuumed_writes_it_again(spark, tmp_path, monkeypatch):
    table = counters(spark, tmp_path)

    def hook(name: str) -> None:
        if name == "create.written":
            monkeypatch.setattr(faults, "fault", lambda name: None)
            TrinityTable.forPath(spark, table.path).vacuum(retentionHours=0)

    monkeypatch.setattr(faults, "fault", hook)
    table.upsert(frame(spark, COUNTERS, (9, 9, "x"))).execute()
    assert len(live_rows(table)) == 5
