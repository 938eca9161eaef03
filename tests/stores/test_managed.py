"""S33, S34: full disks, directories nobody may write, and files that vanish or rot: a clear error, and nothing is lost.

Damage to single files of the log is in test_log.py, what filesystems promise in test_local.py; here it is tables.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyspark
import pytest
from helpers import assertRows
from pyspark import SparkContext
from pyspark.sql import functions as F
from tables import batch_directories, directory_of, fill, frame, live_rows, merge_into, new_table

from trinitymerge import (
    CorruptTableError,
    FilesVacuumedError,
    JobFailedError,
    StorageError,
    TableExistsError,
    TrinityMergeError,
    TrinityTable,
)
from trinitymerge.fs import local
from trinitymerge.log.actions import AddBatch, Batch, SetDefinition
from trinitymerge.log.commit import SameDefinition, publish
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.maintenance.vacuum import vacuum
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.errors import classify_failure
from trinitymerge.stores.managed import DirectoryStore
from trinitymerge.stores.removed_files import naming_vacuums

COLUMNS = "id INT, v STRING"


@pytest.fixture
def table(spark, tmp_path) -> TrinityTable:
    return fill(new_table(spark, tmp_path, COLUMNS), spark, [(1, "a"), (2, "a")])


def upsert(table: TrinityTable, spark, *rows: tuple) -> None:
    table.upsert(frame(spark, COLUMNS, *rows)).execute()


def update(table: TrinityTable) -> None:
    """A merge that reads the table."""
    table.updateWhere("id > 0", {"v": "concat(v, '!')"}).execute()


def check_unchanged(table: TrinityTable, spark, rows: list[tuple], version: int) -> None:
    """The table is as it was, holds nothing that is not part of it, and takes the next merge."""
    opened = TrinityTable.forPath(spark, table.path)
    assert (opened.version, live_rows(opened)) == (version, rows)
    assert batch_directories(opened) == {f"_tm_batch={b.id}" for c in opened._store.history() for b in c.added}
    upsert(opened, spark, (9, "next"))
    assert live_rows(opened) == [*rows, (9, "next")]


# Storage that takes no more -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of three megabytes, where this user may mount one."""
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a small filesystem")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_S34_a_job_without_memory_is_no_wrong_merge(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, COLUMNS), spark, [(1, "a")])
    with pytest.raises(
        JobFailedError, match=r"did not finish: Requested array size.*Nothing was written\. Run it again"
    ):
        table.upsert(spark.sql("SELECT 1 AS id, repeat('x', 2147483647) AS v")).execute()
    check_unchanged(table, spark, [(1, "a")], 1)


@pytest.mark.slow
@pytest.mark.classic("cancels jobs by the SparkContext")
def test_S34_a_cancelled_job_is_no_wrong_merge(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, COLUMNS), spark, [(1, "a")])
    context = spark.sparkContext

    def cancel():
        while not context.statusTracker().getActiveJobsIds():
            time.sleep(0.05)
        context.cancelAllJobs()

    halves = spark.range(0, 1 << 50, 1, 2).groupBy((F.col("id") % 2).cast("int").alias("id"))
    endless = halves.agg(F.max("id").cast("string").alias("v"))
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(JobFailedError, match=r"Job \d+ cancelled .*Nothing was written"):
        table.upsert(endless).execute()
    canceller.join()
    check_unchanged(table, spark, [(1, "a")], 1)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (
            "Job aborted due to stage failure: Task 1 in stage 1.0 failed 1 times, most recent failure: Lost task 1.0 in stage 1.0 "
            "(TID 3) (10.0.0.2 executor 0): ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: "
            "Command exited with code 137",
            JobFailedError,
        ),
        ("(TID 3) (10.0.0.2 executor 0): java.lang.OutOfMemoryError: Java heap space\n\tat a.b.C", JobFailedError),
        ("(TID 3) (10.0.0.2 executor 0): java.io.IOException: No space left on device\n\tat a.b.C", StorageError),
        (
            '<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = X\n\tdetails = "no memory"\n\t',
            JobFailedError,
        ),
        ("[USER_RAISED_EXCEPTION] java.lang.OutOfMemoryError, says the user SQLSTATE: P0001", None),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", None),
    ],
)
def test_S34_what_failed_is_told_from_what_cannot_be_computed(text, failed):
    assert classify_failure(RuntimeError(text)) is failed


@pytest.mark.slow
def test_s33_a_full_disk_refuses_the_batch_and_keeps_the_table(spark, small_disk):
    table = fill(new_table(spark, small_disk, COLUMNS), spark, [(1, "a")])
    large = spark.range(400_000).selectExpr("CAST(id AS INT) AS id", "sha2(CAST(id AS STRING), 256) AS v")
    with pytest.raises(StorageError, match=r"No space left on device.*Nothing was written"):
        table.upsert(large).execute()
    jvm = SparkContext.getOrCreate()._jvm
    jvm.java.lang.System.gc()  # Spark leaves the file it could not write open, and so the disk full, until then
    table.vacuum(retentionHours=0)
    check_unchanged(table, spark, [(1, "a")], 1)


def refused(code: int) -> Callable[..., None]:
    def write(path: str, _data: bytes) -> None:
        raise OSError(code, os.strerror(code))

    return write


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (errno.ENOSPC, StorageError, "No space left on device"),
        (errno.EDQUOT, StorageError, "quota"),
        (errno.EACCES, PermissionError, "Permission denied"),
        (errno.EROFS, StorageError, "Read-only file system"),
    ],
)
def test_s33_an_entry_that_cannot_be_written_commits_nothing(spark, table, monkeypatch, code, error, text):
    """The batch is there, the entry is not: the error names the entry, and the batch goes."""
    with monkeypatch.context() as patched:
        patched.setattr(local, "_write_synced", refused(code))
        for attempt in (lambda: upsert(table, spark, (3, "c")), lambda: update(table)):
            with pytest.raises(error, match=rf"{text}.*00000002\.json"):
                attempt()
    check_unchanged(table, spark, [(1, "a"), (2, "a")], 1)


def test_s33_maintenance_that_cannot_be_committed_changes_nothing(spark, table, monkeypatch):
    upsert(table, spark, (2, "b"))
    with monkeypatch.context() as patched:
        patched.setattr(local, "_write_synced", refused(errno.ENOSPC))
        for attempt in (table.compact, lambda: table.purge([1]), lambda: table.restore(1)):
            with pytest.raises(
                StorageError, match=r"No space left.*00000003\.json.*Free disk space.*Nothing was written"
            ):
                attempt()
    check_unchanged(table, spark, [(1, "a"), (2, "b")], 2)


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 does not always name the file")
def test_S34_a_file_with_damaged_bytes_is_named(spark, table):
    """Object stores, and copies without hidden files, have no checksums that Spark could compare."""
    upsert(table, spark, (2, "b"))
    (first, *_) = table._snapshot().batches
    (file,) = table._store.data_files(first.id)
    path = Path(file.path.removeprefix("file:"))
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(b ^ 255 for b in content[4:-300]) + content[-300:])
    path.with_name(f".{path.name}.crc").unlink()
    for attempt in (lambda: table.compact(full=True), lambda: update(table)):
        with pytest.raises(StorageError, match=rf"{path.name}\. If it is damaged, restore it from a backup"):
            attempt()


def test_s33_a_data_directory_nobody_can_write_is_named(spark, table):
    data = directory_of(table) / "data"
    data.rename(data.with_name("aside"))
    data.touch()
    with pytest.raises(NotADirectoryError, match=f"{data}"):
        upsert(table, spark, (3, "c"))
    data.unlink()
    data.with_name("aside").rename(data)
    check_unchanged(table, spark, [(1, "a"), (2, "a")], 1)


def calls_of(table, spark, tmp_path):
    """The calls that read or write files, by name."""
    path = str(directory_of(table))
    return {
        "open": lambda: TrinityTable.forPath(spark, path).toDF().collect(),
        "merge": lambda: upsert(table, spark, (3, "c")),
        "compact": lambda: table.compact(full=True),
        "vacuum": lambda: table.vacuum(0),
        "purge": lambda: table.purge([1]),
        "purgeWhere": lambda: table.purgeWhere("id = 1"),
        "restore": lambda: table.restore(1),
        "clone": lambda: table.clone(str(tmp_path / "copy")),
        "create": lambda: TrinityTable.create(spark, f"{path}/data/below", COLUMNS, primaryKey="id"),
        "convert": lambda: TrinityTable.convert(spark, table.toDF(), f"{path}/data/below", primaryKey="id"),
    }


@pytest.mark.parametrize("place", ["data", "_trinity_log"])
def test_s33_a_directory_that_cannot_be_read_is_an_error_of_the_library(spark, table, tmp_path, monkeypatch, place):
    upsert(table, spark, (1, "b"))
    calls, directory = calls_of(table, spark, tmp_path), str(directory_of(table) / place)

    def refusing(call):
        def refuse(path, *args, **options):
            if str(path).startswith(directory):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *args, **options)

        return refuse

    wrong = {}
    with monkeypatch.context() as patch:
        for name in ("open", "scandir", "mkdir", "lstat", "unlink", "link"):
            patch.setattr(local.os, name, refusing(getattr(os, name)))
        for name, call in calls.items():
            try:
                call()
                said = "done"
            except StorageError as error:
                said = str(error)
            except Exception as error:  # noqa: BLE001 - the test shows all that are wrong
                said = f"{type(error).__name__}: {error}"
            if not all(words in said for words in (directory, "Permission denied", "Grant", "Nothing was written.")):
                wrong[name] = said
    # Spark itself lists and reads the data of a merge or a scan, and this process has the permission.
    expected = {"open", "compact"} if place == "data" else set()
    assert {name for name, said in wrong.items() if said != "done"} == set(), wrong
    assert set(wrong) <= expected, wrong


def test_s33_rows_that_this_process_may_not_see_are_not_said_to_be_gone(spark, table, monkeypatch):
    """Spark says of a directory below one without permission that it does not exist."""
    data = directory_of(table) / "data"
    data.rename(data.with_name("aside"))  # what Spark sees; this test may run as root, who may look everywhere

    def lstat(path):
        if str(data) in os.fspath(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return os.stat(path, follow_symlinks=False)

    calls = {"read": lambda: live_rows(table), "compact": lambda: table.compact(full=True), "health": table.health}
    with monkeypatch.context() as patch:
        patch.setattr(local.os, "lstat", lstat)
        for call in calls.values():
            with pytest.raises(StorageError, match=r"Permission denied: .*data/_tm_batch=") as caught:
                call()
            assert "Grant" in str(caught.value)
            assert "gone" not in str(caught.value)
    with pytest.raises(CorruptTableError, match=r"data/_tm_batch=[\w-]+ is gone"):
        live_rows(table)


def test_s33_a_file_in_the_place_of_the_log_is_named(spark, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_trinity_log").touch()
    with pytest.raises(
        TableExistsError, match=r"_trinity_log.* is a file, and a table keeps a directory there\. Remove the file"
    ):
        TrinityTable.create(spark, str(tmp_path / "t"), "id INT", primaryKey="id")
    assert (tmp_path / "t" / "_trinity_log").read_bytes() == b""


def test_s33_a_file_in_the_place_of_the_data_is_an_error_of_the_library(spark, table, tmp_path):
    calls, data = calls_of(table, spark, tmp_path), directory_of(table) / "data"
    data.rename(data.with_name("aside"))
    data.touch()
    found = {}
    for name, call in calls.items():
        with pytest.raises(TrinityMergeError) as caught:
            call()
        found[name] = type(caught.value).__mro__, str(caught.value)
    data.unlink()
    data.with_name("aside").rename(data)
    for name in ("merge", "vacuum", "purge", "purgeWhere", "clone"):
        kinds, said = found[name]
        assert StorageError in kinds, said
        assert all(words in said for words in (str(data), "is a file", "Nothing was written.")), said
    check_unchanged(table, spark, [(1, "a"), (2, "a")], 1)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_s33_a_directory_without_permission_is_named(spark, table):
    for name in ("data", "_trinity_log"):
        directory = directory_of(table) / name
        directory.chmod(0o500)
        try:
            with pytest.raises(StorageError, match=name):
                upsert(table, spark, (3, "c"))
        finally:
            directory.chmod(0o700)
    check_unchanged(table, spark, [(1, "a"), (2, "a")], 1)


def test_s33_a_table_cannot_be_made_where_nothing_can(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_write_synced", refused(errno.EACCES))
    with pytest.raises(PermissionError, match=r"Permission denied.*00000000\.json"):
        TrinityTable.create(spark, str(tmp_path / "t"), COLUMNS, primaryKey="id")
    assert not TrinityTable.isTrinityTable(spark, str(tmp_path / "t"))


# Files that vanish or rot ---------------------------------------------------------------------------------------------


def data_file(table: TrinityTable, position: int = 0) -> Path:
    (file,) = table._store.data_files(table._snapshot().batches[position].id)
    return Path(file.path.removeprefix("file:"))


def test_s33_a_batch_file_that_vanished_stops_what_reads_it(spark, table):
    """Reading and merging by what is left would lose rows without a word."""
    upsert(table, spark, (2, "b"))
    file = data_file(table)
    aside = file.rename(file.with_name("_aside"))
    where = file.parent.name
    for attempt in (lambda: table.toDF().collect(), lambda: update(table), table.compact, lambda: table.purge([1])):
        with pytest.raises(CorruptTableError, match=rf"{where}.*0 of 1 files.*restore"):
            attempt()
    aside.rename(file)
    check_unchanged(table, spark, [(1, "a"), (2, "b")], 2)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_s33_a_batch_file_that_was_cut_stops_what_reads_it(spark, tmp_path, file_format):
    """Cut to nothing most of all: Spark takes an empty ORC file for one without rows."""
    table = fill(new_table(spark, tmp_path, COLUMNS, fileFormat=file_format), spark, [(1, "a"), (2, "a")], [(2, "b")])
    file = data_file(table)
    good = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink()
    for left in (len(good) // 2, 0):
        file.write_bytes(good[:left])
        for attempt in (lambda: table.toDF().collect(), lambda: update(table), table.compact, lambda: table.purge([1])):
            with pytest.raises(CorruptTableError, match=rf"{file.parent.name} has {left:,} of {len(good):,} bytes"):
                attempt()
    file.write_bytes(good)
    check_unchanged(table, spark, [(1, "a"), (2, "b")], 2)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_s33_a_batch_file_of_zeroes_is_named(spark, tmp_path, file_format):
    table = fill(new_table(spark, tmp_path, COLUMNS, fileFormat=file_format), spark, [(1, "a"), (2, "a")])
    file = data_file(table)
    good = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink()  # of Spark's local files; elsewhere only the format itself can notice
    file.write_bytes(bytes(len(good)))
    with pytest.raises(StorageError, match=rf"{file.name}.*Nothing was written"):
        update(table)
    file.write_bytes(good)
    check_unchanged(table, spark, [(1, "a"), (2, "a")], 1)


def test_s33_sparks_checksums_notice_a_flipped_bit_of_local_files(spark, table):
    file = data_file(table)
    good = file.read_bytes()
    middle = len(good) // 2
    file.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    with pytest.raises(Exception, match=r"(?i)checksum"):
        table.toDF().collect()
    file.write_bytes(good)
    assertRows(table.toDF(), [(1, "a"), (2, "a")])


@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_s33_a_damaged_log_stops_everything_and_loses_nothing(spark, table, entry, damage):
    upsert(table, spark, (2, "b"))
    upsert(table, spark, (3, "c"))
    file = directory_of(table) / "_trinity_log" / f"{entry:020d}.json"
    good, before = file.read_bytes(), batch_directories(table)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(good[:-20])

    def opened() -> TrinityTable:
        return TrinityTable.forPath(spark, table.path)

    attempts = [
        lambda: opened().toDF(),
        lambda: update(opened()),
        lambda: opened().vacuum(0),
        lambda: opened().purge([1]),
    ]
    for attempt in attempts:
        with pytest.raises(CorruptTableError, match=file.name):
            attempt()
    assert batch_directories(table) == before
    file.write_bytes(good)
    check_unchanged(table, spark, [(1, "a"), (2, "b"), (3, "c")], 3)


# Power cuts -----------------------------------------------------------------------------------------------------------


def test_s33_a_commit_is_published_after_all_it_needs_has_been_synced(spark, tmp_path, monkeypatch):
    """What fsync promises survives a power cut: each file, and the entry of each directory up to the table's own."""
    synced, at_publication = set(), []
    fsync, link = os.fsync, os.link

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def published(source: str, target: str) -> None:
        at_publication.append((target, source in synced, set(synced)))
        link(source, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("only Linux tells the path of a descriptor")
    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(os, "link", published)
    table = new_table(spark, tmp_path, COLUMNS)
    merge_into(table, spark, [(1, "a")])
    root = directory_of(table)
    entry, itself, before = at_publication[-1]
    assert (Path(entry).name, itself) == ("00000000000000000001.json", True)
    found = [p for p in (root / "data").rglob("*") if not p.name.startswith("_key_range")]  # that may be lost
    needed = {str(root / "data"), *map(str, found)}
    assert needed <= before, "the batch"
    assert {str(root), str(root.parent)} <= before, "the way to it"
    assert str(root / "_trinity_log") in synced, "the entry itself, before the merge says that it is done"


def test_s33_what_is_there_is_synced_before_an_entry_is_published_on_top_of_it(tmp_path, monkeypatch):
    """Another writer may have published it a moment ago: after a power cut the log must not have the later entry alone."""
    order: list[str] = []
    sync, publish = local._sync_directory, local._publish
    monkeypatch.setattr(local, "_sync_directory", lambda path: (order.append(f"sync {Path(path).name}"), sync(path)))
    monkeypatch.setattr(local, "_publish", lambda source, target: (order.append("publish"), publish(source, target)))
    files = local.LocalFileSystem()
    (tmp_path / "log").mkdir()
    files.create_exclusive(str(tmp_path / "log" / "1.json"), b"1")
    assert order == ["sync log", "publish", "sync log"]


# A slow writer beside vacuums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "is_written_again", [False, True], ids=["it is gone", "a slow task has written its file since"]
)
def test_S39_a_batch_that_two_vacuums_have_deleted_and_forgotten_is_not_committed(is_written_again, tmp_path):
    """The first announces and deletes it, the second announces another one; the writer comes back after that."""
    path = str(tmp_path / "table")
    definition = TableDefinition.of([Field("id", "long")], primaryKey="id")
    writer, other = DirectoryStore(None, path), DirectoryStore(None, path)
    created = writer.begin(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition)]))

    def staged(name: str) -> Batch:
        directory = Path(writer.batch_path(name).removeprefix("file:"))
        directory.mkdir(parents=True)
        (directory / "part-0.parquet").write_bytes(b"1234")
        return Batch(id=name, rows=1, tombstones=0, files=1, bytes=4)

    slow, commit_to_log = staged("slow"), writer.log.commit

    def after_two_vacuums(commit: Commit, before: Snapshot) -> Snapshot:
        writer.log.commit = commit_to_log
        vacuum(other, 0, False)
        staged("another")
        vacuum(other, 0, False)
        if is_written_again:
            staged("slow")
        return commit_to_log(commit, before)

    writer.log.commit = after_two_vacuums
    with pytest.raises(FilesVacuumedError):
        publish(writer, created.next_commit("MERGE", [AddBatch(slow)]), created, (SameDefinition(),))
    assert (writer.snapshot().batches, writer.snapshot().pending_deletes) == ((), ("another",))


@pytest.mark.parametrize("directory", ["plain", "dt=2024%2F01", "a b"])
def test_S39_a_batch_that_a_vacuum_took_is_recognized_in_any_path(spark, tmp_path, directory):
    (tmp_path / directory).mkdir()
    table = new_table(spark, tmp_path / directory, COLUMNS)
    path = table._store.batch_path("0" * 32)
    for told in (path, quote(path, safe="/:=")):
        with pytest.raises(FilesVacuumedError), naming_vacuums(table._store):
            raise CorruptTableError(f"{told}/part-0.parquet is missing")
