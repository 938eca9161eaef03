"""What happens between a merge and its table: one evaluation, one atomic commit, exactly once (S32-S37)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path as FilePath

import pytest
from pyspark.sql import functions as F
from tables import batch_directories, copy_of, directory_of, fill, frame, live_rows, new_table

from trinitymerge import AmbiguousMergeError, ConcurrentCommitError, InvalidMergeError, TrinityTable
from trinitymerge.fs import faults
from trinitymerge.log.commit import CommitStateUnknown, VersionConflict
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP
from trinitymerge.merge.execute.plan import MergePlan

EVERY_PATH = [APPEND_ONLY, KEY_LOOKUP, FULL_SCAN]


@pytest.fixture(scope="module")
def numbers(spark, tmp_path_factory):
    """Keys 0 to 9 with v = 0, no watermark."""
    table = new_table(spark, tmp_path_factory.mktemp("numbers"), "id BIGINT, v DOUBLE")
    return fill(table, spark, [(k, 0.0) for k in range(10)])


# Append only (S8, S16) ------------------------------------------------------------------------------------------------


def test_S8_merges_add_files_and_change_none(spark, numbers):
    table = copy_of(numbers, spark)

    def contents():
        return {p: p.read_bytes() for p in (directory_of(table) / "data").rglob("*.parquet")}

    before = contents()
    table.updateWhere("id < 5", {"v": 1.0}).execute()
    table.delete(frame(spark, "id BIGINT", 7, 8)).execute()
    after = contents()
    assert before.items() <= after.items()
    assert len(after) > len(before)


def test_S16_managed_table_is_all_below_its_path(spark, numbers, tmp_path):
    """Moved elsewhere as plain files, it is the same table, and merges into the copy leave the original alone."""
    moved = TrinityTable.forPath(spark, str(shutil.copytree(directory_of(numbers), tmp_path / "moved")))
    assert live_rows(moved) == live_rows(numbers)
    moved.deleteWhere("id = 1").execute()
    assert len(live_rows(moved)) == len(live_rows(numbers)) - 1


def test_S33_an_error_after_the_commit_deletes_nothing(spark, tmp_path, monkeypatch):
    """A timeout that a signal raises, a lost server: the batch is part of the table."""
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])

    def times_out(*_):
        raise TimeoutError("the job takes too long")

    monkeypatch.setattr(MergePlan, "explain", times_out)
    with pytest.raises(TimeoutError):
        table.upsert(frame(spark, "id INT, ts INT, v STRING", (2, 20, "b"))).execute()
    assert live_rows(TrinityTable.forPath(spark, table.path)) == [(1, 10, "a", False), (2, 20, "b", False)]


def test_S34_a_refused_merge_leaves_no_files(spark, numbers):
    table = copy_of(numbers, spark)
    before = batch_directories(table), table.version
    for path in EVERY_PATH:
        with pytest.raises(AmbiguousMergeError):
            table.upsert(frame(spark, "id BIGINT, v DOUBLE", (1, 1.0), (1, 2.0)))._with_strategy(path).execute()
    assert (batch_directories(table), table.version) == before


# One evaluation (S32) -------------------------------------------------------------------------------------------------


def test_S32_source_that_is_not_deterministic_never_contradicts_itself(spark, numbers):
    """Each row falls under one clause, and what that clause writes agrees with why it applied."""
    for path in (KEY_LOOKUP, FULL_SCAN):
        table = copy_of(numbers, spark)
        source = spark.range(20).select("id", F.rand().alias("r"))
        result = (
            table.merge(source)
            .whenMatched("r < 0.5")
            .updateExpr({"v": "r"})
            .whenMatched("r >= 0.5")
            .delete()
            .whenNotMatched("r < 0.5")
            .insertExpr({"id": "source.id", "v": "r"})
            ._with_strategy(path)
            .execute()
        )
        rows = live_rows(table)
        assert all(0 < v < 0.5 for _, v in rows)
        assert result.rowsUpdated + result.rowsDeleted == 10
        assert len(rows) == result.rowsUpdated + result.rowsInserted


@pytest.mark.filterwarnings("ignore:.*pandas:Warning")
def test_S32_source_is_evaluated_once_on_every_path(spark, numbers, tmp_path):
    evaluated = tmp_path / "evaluated"
    evaluated.touch()

    def count(number):
        with open(evaluated, "a") as file:  # Spark Connect has no accumulators
            file.write(".")
        return number + 0.5

    counted = F.udf(count, "double").asNondeterministic()
    for path in EVERY_PATH:
        table = copy_of(numbers, spark)
        before = evaluated.stat().st_size
        source = frame(spark, "id BIGINT", 1, 2, 30).select("id", counted("id").alias("v"))
        table.upsert(source)._with_strategy(path).execute()
        assert evaluated.stat().st_size - before == 3, path
        assert [row for row in live_rows(table) if row[1]] == [(1, 1.5), (2, 2.5), (30, 30.5)]


# Atomic (S33, S34) ----------------------------------------------------------------------------------------------------


def test_S33_refused_merge_leaves_no_version_and_no_files(spark, numbers):
    before, files = live_rows(numbers), batch_directories(numbers)
    ambiguous = frame(spark, "id BIGINT, v DOUBLE", (1, 1.0), (1, 2.0))
    failing = frame(spark, "id BIGINT", *range(5)).selectExpr("id", "if(id = 4, raise_error('late'), id) + 0.0D AS v")
    for source, error in ((ambiguous, AmbiguousMergeError), (failing, InvalidMergeError)):
        for path in EVERY_PATH:
            with pytest.raises(error):
                numbers.upsert(source)._with_strategy(path).execute()
    assert numbers.version == 1
    assert live_rows(numbers) == before
    assert batch_directories(numbers) == files


def test_S33_nothing_is_visible_before_the_commit(spark, numbers, monkeypatch):
    table = copy_of(numbers, spark)
    seen = []
    commit = table._store.commit

    def watched(*args):
        other = TrinityTable.forPath(spark, table.path)
        seen.append((other.version, other.toDF().count()))
        return commit(*args)

    monkeypatch.setattr(table._store, "commit", watched)
    table.delete(frame(spark, "id BIGINT", 1, 2)).execute()
    assert seen == [(1, 10)]
    assert table.toDF().count() == 8


def test_S33_failed_commit_leaves_the_table_as_it_was(spark, numbers, monkeypatch):
    table = copy_of(numbers, spark)
    files = batch_directories(table)

    def full_disk(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(table._store, "commit", full_disk)
    with pytest.raises(OSError, match="No space left"):
        table.delete(frame(spark, "id BIGINT", 1)).execute()
    monkeypatch.undo()
    assert batch_directories(table) == files
    assert table.toDF().count() == 10


@pytest.mark.parametrize(("point", "version"), [("commit.before", 1), ("commit.done", 2), ("hint.done", 2)])
def test_S33_interrupted_commit_is_all_or_nothing(spark, numbers, monkeypatch, point, version):
    """Ctrl-C may come when the batch is part of the table already; then its files must stay."""
    table = copy_of(numbers, spark)

    def interrupt(name):
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr(faults, "fault", interrupt)
    with pytest.raises(KeyboardInterrupt):
        table.delete(frame(spark, "id BIGINT", 1)).execute()
    monkeypatch.undo()
    again = TrinityTable.forPath(spark, table.path)
    assert again.version == version
    assert again.toDF().count() == 11 - version


def test_S33_files_of_an_unknown_batch_are_not_read(spark, numbers):
    table = copy_of(numbers, spark)
    foreign = directory_of(table) / "data" / "_tm_batch=0123456789abcdef"
    spark.range(100, 200).selectExpr("id", "0.0D AS v", "false AS _tm_deleted").write.parquet(str(foreign))
    assert table.toDF().count() == 10


def test_S33_files_stay_if_nobody_knows_whether_their_commit_took_place(spark, numbers, at_point):
    table = copy_of(numbers, spark)
    table.updateWhere("id < 5", {"v": 1.0}).execute()

    def lose_the_answer():
        raise CommitStateUnknown("the storage does not answer")

    at_point("commit.done", lose_the_answer)
    with pytest.raises(OSError, match="does not answer"):
        table.compact()
    assert live_rows(TrinityTable.forPath(spark, table.path)) == [(k, 1.0 if k < 5 else 0.0) for k in range(10)]


# Other writers (S35) --------------------------------------------------------------------------------------------------


def between_snapshot_and_commit(table, monkeypatch, action):
    """Runs an action once, when the next merge of the table has staged its batch."""
    stage, todo = table._store.stage, [action]

    def staged(*args):
        result = stage(*args)
        if todo:
            todo.pop()()
        return result

    monkeypatch.setattr(table._store, "stage", staged)


def test_S35_merge_that_read_the_target_is_evaluated_again(spark, numbers, monkeypatch):
    table = copy_of(numbers, spark)
    other = TrinityTable.forPath(spark, table.path)
    between_snapshot_and_commit(table, monkeypatch, lambda: other.updateWhere("id = 1", {"v": 5.0}).execute())
    source = frame(spark, "id BIGINT", 1, 2)
    result = table.merge(source).whenMatched().updateExpr({"v": "target.v + 1"}).execute()
    assert result.version == 3
    assert live_rows(table)[1:3] == [(1, 6.0), (2, 1.0)]
    assert len(batch_directories(table)) == 3


def test_S35_merge_that_never_read_the_target_commits_on_top(spark, numbers, monkeypatch):
    table = copy_of(numbers, spark)
    other = TrinityTable.forPath(spark, table.path)
    between_snapshot_and_commit(table, monkeypatch, lambda: other.updateWhere("id = 1", {"v": 5.0}).execute())
    result = table.upsert(frame(spark, "id BIGINT, v DOUBLE", (1, 7.0), (11, 7.0))).execute()
    assert (result.version, result.strategy) == (3, "blind append")
    assert live_rows(table)[1] == (1, 7.0)


def test_S35_key_that_another_writer_takes_meanwhile_is_noticed(spark, numbers, monkeypatch):
    table = copy_of(numbers, spark)
    other = TrinityTable.forPath(spark, table.path)
    new = frame(spark, "id BIGINT, v DOUBLE", (50, 1.0))
    between_snapshot_and_commit(table, monkeypatch, lambda: other.insert(new).execute())
    result = table.insert(frame(spark, "id BIGINT, v DOUBLE", (50, 2.0), (51, 2.0)), deduplicate=True).execute()
    assert result.rowsInserted == 1
    assert (50, 1.0) in live_rows(table)


def test_S35_conflicts_without_end_are_an_error(spark, tmp_path, monkeypatch):
    attempts = {"trinitymerge.maxCommitAttempts": "2", "trinitymerge.commitBackoffSeconds": "0"}
    table = new_table(spark, tmp_path, "id BIGINT, v DOUBLE", properties=attempts)
    fill(table, spark, [(1, 0.0)])

    def taken(commit, *_):
        raise VersionConflict(commit.version, commit)

    monkeypatch.setattr(table._store, "commit", taken)
    files = batch_directories(table)
    with pytest.raises(ConcurrentCommitError, match="expected version 1, found 1"):
        table.updateWhere("id = 1", {"v": 5.0}).execute()
    assert batch_directories(table) == files


def test_S35_concurrent_threads_lose_no_update(spark, numbers):
    table = copy_of(numbers, spark)
    errors = []

    def work(number):
        try:
            mine = TrinityTable.forPath(spark, table.path)
            mine.updateWhere("id = 1", {"v": "v + 1"}).execute()
            mine.upsert(frame(spark, "id BIGINT, v DOUBLE", (100 + number, 1.0))).execute()
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    rows = live_rows(table)
    assert (1, 3.0) in rows
    assert {(100 + n, 1.0) for n in range(3)} <= set(rows)
    assert table.version == 7


PROCESS = """
import sys
from pyspark.sql import SparkSession
from trinitymerge import TrinityTable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())
table = TrinityTable.forPath(spark, sys.argv[1])
for n in range(4):
    table.updateWhere("id = 1", {"v": "v + 1"}).execute()
    table.upsert(spark.sql(f"SELECT {sys.argv[2]} + {n} AS id, 1D AS v")).execute()
"""


@pytest.mark.long
def test_S35_concurrent_processes_lose_no_update(spark, numbers):
    table = copy_of(numbers, spark)
    command = [sys.executable, "-c", PROCESS, str(directory_of(table))]
    root = str(FilePath(__file__).parents[2])
    runs = [subprocess.Popen([*command, str(start)], cwd=root) for start in (100, 200)]
    assert [run.wait() for run in runs] == [0, 0]
    rows = live_rows(table)
    assert (1, 8.0) in rows
    assert len(rows) == 18
    assert table.version == 17


# Exactly once (S36) ---------------------------------------------------------------------------------------------------


def test_S36_transaction_runs_once(spark, numbers):
    table = copy_of(numbers, spark)

    def merge(app, version):
        return table.updateWhere("id = 1", {"v": "v + 1"}).withTransaction(app, version).execute()

    assert merge("app", 5).version == 2
    for version in (5, 4):
        again = merge("app", version)
        assert again.skipped == f"transaction {version} of 'app' was committed before (last is 5)"
        assert (again.version, again.rowsUpdated, again.rowsAppended) == (2, 0, 0)
    assert merge("other app", 1).version == 3
    assert merge("app", 6).version == 4
    assert live_rows(table)[1] == (1, 3.0)


def test_S36_marker_survives_reopening_and_other_commits(spark, numbers):
    table = copy_of(numbers, spark)
    source = frame(spark, "id BIGINT, v DOUBLE", (1, 1.0))
    table.upsert(source).withTransaction("app", 1).execute()
    table.upsert(source).execute()
    again = TrinityTable.forPath(spark, table.path).upsert(source).withTransaction("app", 1).execute()
    assert "transaction 1" in again.skipped
    assert str(again) == f"version 3: nothing committed, {again.skipped}"


def test_S36_refused_merge_leaves_no_marker(spark, numbers):
    table = copy_of(numbers, spark)
    with pytest.raises(AmbiguousMergeError):
        table.upsert(frame(spark, "id BIGINT, v DOUBLE", (1, 1.0), (1, 2.0))).withTransaction("app", 1).execute()
    assert table.upsert(frame(spark, "id BIGINT, v DOUBLE", (1, 1.0))).withTransaction("app", 1).execute().version == 2


def test_S36_S37_marker_is_recorded_when_nothing_is_written(spark, numbers):
    for path in EVERY_PATH:
        table = copy_of(numbers, spark)
        empty = frame(spark, "id BIGINT, v DOUBLE", (1, 1.0)).filter("id > 1")
        first = table.upsert(empty).withTransaction("app", 1)._with_strategy(path).execute()
        assert (first.version, first.rowsAppended, first.rowsSource) == (2, 0, 0)
        assert "the source is empty" in first.skipped
        assert "transaction 1" in table.upsert(empty).withTransaction("app", 1).execute().skipped
        assert table.toDF().count() == 10


def test_S36_the_same_transaction_from_two_writers_at_once_runs_once(spark, numbers, monkeypatch):
    table = copy_of(numbers, spark)
    other = TrinityTable.forPath(spark, table.path)

    def merge(t, path):
        source = frame(spark, "id BIGINT, v DOUBLE", (1, 1.0))
        return t.upsert(source).withTransaction("app", 1)._with_strategy(path).execute()

    for path, version in ((APPEND_ONLY, 2), (KEY_LOOKUP, 2)):
        between_snapshot_and_commit(table, monkeypatch, lambda path=path: merge(other, path))
        result = merge(table, path)
        assert "transaction 1" in result.skipped
        assert table.version == version
        monkeypatch.undo()


# File formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_file_formats(spark, tmp_path, kind):
    schema = "id CHAR(4), ts TIMESTAMP, n DECIMAL(9,2), m MAP<STRING, INT>, gone VARCHAR(4)"
    keys = {"watermarkKey": "ts", "tombstoneKey": "gone", "tombstoneStringValue": "gone"}
    table = new_table(spark, tmp_path, schema, **keys, fileFormat=kind)
    source = spark.sql(
        "SELECT id, TIMESTAMP'2024-01-01 00:00:00' AS ts, 1.5BD AS n, map('a', 1) AS m, CAST(NULL AS STRING) AS gone "
        "FROM VALUES ('a'), ('b'), ('c') AS t(id)"
    )
    table.upsert(source).execute()
    table.delete(source.filter("id = 'b'")).execute()
    table.updateWhere("id = 'c   '", {"n": "n * 2", "m": "map_concat(m, map('b', 2))"}).execute()
    assert [(r.id, float(r.n), r.m, r.gone) for r in table.toDF().orderBy("id").collect()] == [
        ("a   ", 1.5, {"a": 1}, None),
        ("c   ", 3.0, {"a": 1, "b": 2}, None),
    ]
    files = [f.suffix for f in directory_of(table).rglob("part-*")]
    assert set(files) == {f".{kind}"}


def test_session_settings_do_not_change_what_is_read(spark, numbers):
    """Settings under which Spark would skip files, merge schemas or drop rows silently."""
    table = copy_of(numbers, spark)
    settings = [
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.parquet.mergeSchema",
    ]
    for name in settings:
        spark.conf.set(name, "true")
    try:
        for file in directory_of(table).rglob("part-*.parquet"):
            file.write_bytes(b"x" * file.stat().st_size)  # a change of size would be noticed before
        with pytest.raises(Exception, match=r"(?i)parquet|footer|magic"):
            table.toDF().collect()
    finally:
        for name in settings:
            spark.conf.unset(name)
