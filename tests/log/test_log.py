"""S7, S33, S36, S40: the commit log, without Spark."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import hostile
import opening
import pytest

import trinitymerge
from trinitymerge.errors import CorruptTableError, InvalidMergeError, TableNotFoundError, UnsupportedStorageError
from trinitymerge.fs import faults
from trinitymerge.fs.base import FAULT_POINTS, FileSystem, Infos
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log import log
from trinitymerge.log.actions import (
    REGISTERS,
    REQUIREMENTS,
    AddBatch,
    AddOutboxEntry,
    Batch,
    CreateTable,
    InapplicableCommit,
    InitialSnapshot,
    OutboxEntry,
    PurgeKeys,
    RemoveBatch,
    RemoveOutboxEntry,
    RemoveTransaction,
    SetDefinition,
    SetRequirements,
    SetTransaction,
)
from trinitymerge.log.commit import CommitStateUnknown, VersionConflict
from trinitymerge.log.files import decode_with_checksum, encode_with_checksum
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import FORMAT, Commit, Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

ROOT = Path(__file__).parents[2]
START_MS = 1_700_000_000_000


def definition(**properties: str) -> TableDefinition:
    fields = [Field("id", "long"), Field("ts", "timestamp"), Field("`o'dd` ü", "string")]
    return TableDefinition.of(fields, "id", "ts", properties=properties, comment="a\nb")


def batch(name: str, **fields: Any) -> Batch:
    return Batch(**{"id": name, "rows": 3, "tombstones": 1, "files": 1, "bytes": 100, **fields})


LONG_ON_S3 = {
    "a_damaged_entry_is_named",
    "every_flipped_byte_is_noticed",
    "a_missing_entry_is_named",
    "a_hint_is_only_a_hint",
    "a_checkpoint_that_disagrees_is_ignored",
    "without_any_checkpoint_the_entries_suffice",
    "opening_reads_as_few_files_for_1000_commits_as_for_10",
    "reading_on_costs_only_the_new_commits",
    "every_version_can_be_opened",
    "the_version_as_of_a_time",
}
"""What is about content, for which storage makes no difference: a commit there takes twenty times as long as here."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test of this file that needs a directory has one on each storage."""
    if "tmp_path" in metafunc.fixturenames:
        if metafunc.function is test_opening_takes_no_longer_after_10_000_commits_than_after_10:
            return  # a made-up log on a local disk
        is_long = any(metafunc.function.__name__.endswith(name) for name in LONG_ON_S3)
        if metafunc.config.getoption("--storage"):
            metafunc.parametrize("tmp_path", ["s3"], indirect=True)
            return
        on_s3 = pytest.param("s3", marks=pytest.mark.long if is_long else ())
        metafunc.parametrize("tmp_path", ["local", on_s3], indirect=True)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory of this machine, or of an S3 server on it."""
    return (
        tmp_path if getattr(request, "param", "local") == "local" else request.getfixturevalue("s3_server").directory()
    )


def filesystem_of(path: object) -> FileSystem:
    """What a directory is on, for plain Python."""
    return import_module("s3server").shared() if str(path).startswith("s3a:") else LocalFileSystem()


def create(path: Path, interval: int = 50, fs: FileSystem | None = None) -> tuple[CommitLog, Snapshot]:
    """A table at version 0."""
    table = CommitLog(fs or filesystem_of(path), str(path / "table"))
    properties = {"trinitymerge.checkpointInterval": str(interval)}
    return table, table.create(
        Commit(version=0, timestamp_ms=START_MS, operation="CREATE", actions=[SetDefinition(definition(**properties))])
    )


def grow(table: CommitLog, snapshot: Snapshot, to: int) -> Snapshot:
    """Commits up to a version, one batch each, a second apart."""
    for version in range(snapshot.version + 1, to + 1):
        added = [batch(f"b{version}", watermark_min=(version, None), watermark_max=(version, "z"))]
        timestamp_ms = START_MS + 1000 * version
        commit = Commit(version=version, timestamp_ms=timestamp_ms, operation="MERGE", actions=[*map(AddBatch, added)])
        snapshot = table.commit(commit, snapshot)
    return snapshot


def place_of(path: str) -> Path:
    """A file as ``pathlib`` has it, wherever it is."""
    if path.startswith("s3a:"):
        return import_module("s3server").S3Path(path)
    return Path(path.removeprefix("file:"))


def file_of(table: CommitLog, version: int, checkpoint: bool = False) -> Path:
    path = table.files.checkpoint_path(version) if checkpoint else table.files.entry_path(version)
    return place_of(path)


def hint_of(table: CommitLog) -> Path:
    return file_of(table, 0).with_name("_last.json")


def counting(path: Path) -> tuple[FileSystem, Counter[str]]:
    """A filesystem, and what is asked of it."""
    kind, calls = type(filesystem_of(path)), Counter[str]()

    class Counting(kind):
        def read(self, path: str) -> bytes:
            calls["read"] += 1
            return super().read(path)

        def has_file(self, path: str) -> bool:
            calls["has_file"] += 1
            return super().has_file(path)

        def list(self, path: str) -> Infos:
            calls["list"] += 1
            return super().list(path)

    return Counting(), calls


# The data ---------------------------------------------------------------------------------------------------


def test_s7_the_definition_is_data(tmp_path: Path) -> None:
    table, created = create(tmp_path)
    opened = CommitLog(filesystem_of(tmp_path), str(tmp_path / "table")).newest()
    assert opened == created
    assert opened.definition == definition(**{"trinitymerge.checkpointInterval": "50"})
    assert opened.properties["trinitymerge.checkpointInterval"] == "50"
    assert (opened.version, opened.definition_version, opened.timestamp_ms) == (0, 0, START_MS)
    assert table.files.exists()


def test_commits_survive_json() -> None:
    commit = Commit(
        version=7,
        timestamp_ms=START_MS,
        operation="MERGE",
        parameters={"condition": "A.id = B.id"},
        metrics={"rowsInserted": 2},
        user="ü",
        duration_ms=1,
        previous="0" * 64,
        actions=[
            RemoveBatch("y"),
            SetDefinition(definition()),
            AddBatch(batch("x", watermark_min=(1, None), base=True, version=3)),
            SetTransaction("app", 12),
        ],
    )
    assert Commit.from_json(json.loads(json.dumps(commit.to_json()))) == commit


def test_unknown_fields_are_kept_and_never_acted_upon() -> None:
    strange = {"__class__": "os.system", "py/reduce": ["rm"]}
    data = Commit(version=0, timestamp_ms=1, operation="X", actions=[AddBatch(batch("a"))]).to_json()
    data["colour"] = data["actions"][0]["reason"] = strange
    data["actions"][0]["batch"]["shape"] = "round"
    read = Commit.from_json(data)
    assert read.added[0].extra == {"shape": "round"}
    assert read.to_json()["actions"][0]["batch"] == data["actions"][0]["batch"]
    assert read == attrs.evolve(read, actions=[AddBatch(attrs.evolve(read.added[0], extra={"shape": "round"}))])


@pytest.mark.parametrize("name", ["../other", "a/b", "", ".hidden", "_tm", "a\0b", "a=b", "x" * 300, 7, None])
def test_no_batch_id_can_leave_the_table(name: object) -> None:
    with pytest.raises(ValueError, match="batch id"):
        Batch.from_json({**batch("x").to_json(), "id": name})


def test_s33_a_batch_that_points_outside_makes_the_entry_corrupt(tmp_path: Path) -> None:
    table, snapshot = create(tmp_path)
    data = snapshot.next_commit("MERGE", [AddBatch(batch("x"))], previous=snapshot.checksum).to_json()
    data["actions"][0]["batch"]["id"] = "../../etc"
    file_of(table, 1).write_bytes(encode_with_checksum(data)[0])
    with pytest.raises(CorruptTableError, match=r"0001\.json.*batch id"):
        table.newest()


def test_apply_is_pure_and_follows_removal_and_definition() -> None:
    first = Snapshot.created(
        Commit(
            version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition()), AddBatch(batch("a"))]
        )
    )
    second = first.apply(first.next_commit("MERGE", [AddBatch(batch("b")), AddBatch(batch("c"))]))
    third = second.apply(second.next_commit("ALTER", [RemoveBatch("b"), SetDefinition(definition(x="1"))]))
    assert [b.id for b in first.batches] == ["a"]
    assert [(b.id, b.version) for b in third.batches] == [("a", 0), ("c", 1)]
    assert (third.definition_version, third.properties) == (2, {"x": "1"})


def test_s6_a_batch_may_count_as_of_the_version_that_was_read() -> None:
    """A compaction that read version 1 must not win over version 2, which landed before it committed."""
    snapshot = Snapshot.created(
        Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition())])
    )
    for name in ("a", "b"):
        snapshot = snapshot.apply(snapshot.next_commit("MERGE", [AddBatch(batch(name))]))
    base = batch("base", version=1, base=True)
    compacted = snapshot.apply(snapshot.next_commit("COMPACT", [RemoveBatch("a"), AddBatch(base)]))
    assert [(b.id, b.version) for b in compacted.batches] == [("base", 1), ("b", 2)]


def test_s36_the_latest_version_of_each_application_is_known() -> None:
    snapshot = Snapshot.created(
        Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition())])
    )
    for transaction in (("a", 5), ("b", 1), None, ("a", 3), ("a", 6)):
        actions = [] if transaction is None else [SetTransaction(*transaction)]
        snapshot = snapshot.apply(snapshot.next_commit("MERGE", actions))
    assert snapshot.transactions == {"a": 6, "b": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "expected version 1, found 3"),
        ({"timestamp_ms": 1}, "expected a timestamp after 1"),
        ({"actions": [RemoveBatch("gone")]}, "removes batch 'gone', which version 0 does not have"),
        ({"actions": [AddBatch(batch("a"))]}, "adds batch 'a', which is part of the table already"),
        ({"actions": [AddBatch(batch("b")), AddBatch(batch("b"))]}, "adds batch 'b'"),
        ({"actions": [AddBatch(batch("b", version=9))]}, "batch 'b' is from version 9"),
    ],
)
def test_a_commit_checks_itself(change: dict[str, Any], message: str) -> None:
    snapshot = Snapshot.created(
        Commit(
            version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition()), AddBatch(batch("a"))]
        )
    )
    with pytest.raises(InapplicableCommit, match=message):
        snapshot.apply(attrs.evolve(snapshot.next_commit("MERGE"), **change))


@pytest.mark.parametrize(
    "commit",
    [
        Commit(version=1, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition())]),
        Commit(version=0, timestamp_ms=1, operation="CREATE"),
    ],
)
def test_the_first_commit_is_version_0_with_a_definition(tmp_path: Path, commit: Commit) -> None:
    with pytest.raises(InapplicableCommit):
        CommitLog(filesystem_of(tmp_path), str(tmp_path)).create(commit)
    assert list(tmp_path.iterdir()) == []


# Committing -------------------------------------------------------------------------------------------------


def test_s33_a_version_is_committed_once(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    winner = table.commit(base.next_commit("MERGE", [AddBatch(batch("a"))], user="w"), base)
    loser = base.next_commit("MERGE", [AddBatch(batch("b"))])
    with pytest.raises(VersionConflict, match="version 1 exists already: MERGE by w") as taken:
        table.commit(loser, base)
    assert taken.value.winner.added[0].id == "a"
    after = table.commit(table.newest(base).rebase(loser), table.newest(base))
    assert [(b.id, b.version) for b in after.batches] == [("a", 1), ("b", 2)]
    assert table.newest(winner) == table.newest() == after


def test_s33_without_a_base_the_outcome_is_the_same(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    table.commit(base.next_commit("MERGE"))
    with pytest.raises(VersionConflict):
        table.commit(base.next_commit("MERGE"))
    with pytest.raises(InapplicableCommit, match="expected version 2, found 9"):
        table.commit(Commit(version=9, timestamp_ms=START_MS, operation="MERGE"))
    assert table.newest().version == 1


def test_s33_a_table_is_created_once(tmp_path: Path) -> None:
    table, snapshot = create(tmp_path)
    with pytest.raises(FileExistsError, match="table"):
        create(tmp_path)
    assert table.newest() == snapshot


def test_a_table_is_not_created_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "table").touch()
    with pytest.raises(NotADirectoryError, match="table"):
        create(tmp_path)


def test_timestamps_never_go_back(tmp_path: Path) -> None:
    table, snapshot = create(tmp_path)
    for clock_ms in (START_MS + 50, START_MS - 7_000_000, 0):
        commit = Commit(version=snapshot.version + 1, timestamp_ms=clock_ms, operation="MERGE")
        snapshot = table.commit(commit, snapshot)
    assert [c.timestamp_ms - START_MS for c in table.commits()] == [52, 51, 50, 0]


WRITER = """
import sys
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.s3 import S3FileSystem
from trinitymerge.log.actions import AddBatch, Batch, SetTransaction
from trinitymerge.log.log import CommitLog
from trinitymerge.log.commit import VersionConflict
path, me, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = CommitLog(S3FileSystem() if path.startswith("s3a:") else LocalFileSystem(), path)
snapshot = table.newest()
for n in range(commits):
    batch = Batch(id=f"{me}{n}", rows=1, tombstones=0, files=1, bytes=1)
    commit = snapshot.next_commit("MERGE", [AddBatch(batch), SetTransaction(me, n)])
    while True:
        try:
            snapshot = table.commit(commit, snapshot)
            break
        except VersionConflict:
            snapshot = table.newest(snapshot)
            commit = snapshot.rebase(commit)
"""


def write(table: CommitLog, name: str, commits: int, fault: str = "") -> subprocess.Popen[bytes]:
    """Another process that commits to a table."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), faults.VARIABLE: fault}
    path = table.files.table_path.removeprefix("file:")
    return subprocess.Popen([sys.executable, "-c", WRITER, path, name, str(commits)], env=environment)


@pytest.mark.slow
def test_s33_s35_writers_in_several_processes_lose_nothing(tmp_path: Path) -> None:
    table, _ = create(tmp_path, interval=10)
    each = 40 if isinstance(tmp_path, Path) else 5
    writers = [write(table, name, each) for name in "abcd"]
    versions = [table.newest().version for _ in range(5 * each)]  # a reader among them
    assert [w.wait() for w in writers] == [0] * 4
    snapshot = table.newest()
    assert versions == sorted(versions)
    assert snapshot.version == 4 * each
    assert {b.id for b in snapshot.batches} == {f"{name}{n}" for name in "abcd" for n in range(each)}
    assert sorted(b.version for b in snapshot.batches if b.version) == list(range(1, 4 * each + 1))
    assert snapshot.transactions == dict.fromkeys("abcd", each - 1)
    assert [c.version for c in table.commits()] == list(range(4 * each, -1, -1))
    assert table.at(4 * each) == snapshot


# Crashes ----------------------------------------------------------------------------------------------------


def leftover_names(table: CommitLog) -> list[str]:
    return [p.name for p in hint_of(table).parent.iterdir() if p.name.startswith(".")]


POINTS = [
    *FAULT_POINTS,
    *log.FAULT_POINTS,
    "create.written:2",
    "create.published:2",
    "create.synced:2",
]
BEFORE = {"create.written", "commit.before"}


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_s33_a_commit_killed_anywhere_is_there_or_not(tmp_path: Path, point: str) -> None:
    table, base = create(tmp_path, interval=5)
    before = grow(table, base, to=4)
    writer = write(table, "killed", 1, fault=point)  # version 5, with its checkpoint and hint
    assert writer.wait() == -signal.SIGKILL
    opened = table.newest()
    assert opened == table.newest(before) == table.at(opened.version)
    assert opened.version == (4 if point in BEFORE else 5)
    assert [b.id for b in opened.batches] == [f"b{n}" for n in range(1, 5)] + ["killed0"] * (opened.version - 4)
    after = grow(table, opened, to=12)  # the next writer proceeds
    assert table.newest() == after


CREATOR = """
import sys
sys.path[:0] = sys.argv[2:]
import test_log
test_log.create(test_log.place_of(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", [*FAULT_POINTS, "commit.before", "commit.done", "hint.done"])
def test_s33_a_creation_killed_anywhere_is_there_or_not(tmp_path: Path, point: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), faults.VARIABLE: point}
    command = [sys.executable, "-c", CREATOR, str(tmp_path), str(ROOT / "tests"), str(ROOT / "tests" / "log")]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    table = CommitLog(filesystem_of(tmp_path), str(tmp_path / "table"))
    if point in BEFORE:
        with pytest.raises(TableNotFoundError):
            table.newest()
        create(tmp_path)
    assert table.newest().version == 0


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1])
def test_s33_a_writer_killed_at_a_random_moment(tmp_path: Path, seconds: float) -> None:
    table, base = create(tmp_path, interval=5)
    writer = write(table, "w", 100_000)
    while table.newest(base).version < 2:
        time.sleep(0.01)
    time.sleep(seconds)
    writer.kill()
    assert writer.wait() == -signal.SIGKILL
    opened = table.newest()
    assert [b.id for b in opened.batches] == [f"w{n}" for n in range(opened.version)]
    assert len(leftover_names(table)) <= 1
    assert table.commit(opened.next_commit("MERGE"), opened) == table.newest()


def test_a_checkpoint_or_hint_that_cannot_be_written_fails_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    table, base = create(tmp_path, interval=1)
    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "_write_checkpoint", full)
        after = grow(table, base, to=10)
    assert "No space left" in caplog.text
    assert table.newest() == after


def unreliable(path: Path, error: OSError, does_it: bool = True) -> FileSystem:
    """Fails to create entry 1: before or after doing so."""
    kind = type(filesystem_of(path))

    class Unreliable(kind):
        is_local = False

        def create_exclusive(self, path: str, data: bytes) -> None:
            is_first = path.endswith("0001.json")
            if does_it or not is_first:
                super().create_exclusive(path, data)
            if is_first:
                raise error

    return Unreliable()


@pytest.mark.parametrize("error", [OSError(errno.EIO, "lost"), FileExistsError(errno.EEXIST, "ours", "x")])
def test_s33_a_lost_answer_is_no_lost_commit(tmp_path: Path, error: OSError) -> None:
    table, base = create(tmp_path, fs=unreliable(tmp_path, error))
    assert table.commit(base.next_commit("MERGE", [AddBatch(batch("a"))]), base) == table.newest()


def test_s33_a_failure_that_may_have_succeeded_says_so(tmp_path: Path) -> None:
    table, base = create(tmp_path, fs=unreliable(tmp_path, OSError(errno.EIO, "lost"), does_it=False))
    with pytest.raises(CommitStateUnknown, match=r"0001\.json"):
        table.commit(base.next_commit("MERGE"), base)


def test_s33_a_failure_that_certainly_failed_is_just_that(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "x")
    table, base = create(tmp_path, fs=unreliable(tmp_path, error, does_it=False))
    with pytest.raises(PermissionError):
        table.commit(base.next_commit("MERGE"), base)
    honest = CommitLog(filesystem_of(tmp_path), table.files.table_path)
    with without_permission(table) as is_refused:
        if is_refused:
            with pytest.raises(PermissionError):
                honest.commit(base.next_commit("MERGE"), base)
    assert honest.newest() == base


@contextlib.contextmanager
def without_permission(table: CommitLog) -> Iterator[bool]:
    """While nobody may create an entry; false if that cannot be arranged."""
    directory = file_of(table, 0).parent
    if not isinstance(directory, Path):
        yield False  # tests/fs/test_s3.py
        return
    directory.chmod(0o500)
    yield os.getuid() != 0  # root may write anywhere
    directory.chmod(0o700)


# Damage -----------------------------------------------------------------------------------------------------


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def with_action(entry: bytes, action: dict[str, Any]) -> bytes:
    data, _ = decode_with_checksum(entry)
    return encode_with_checksum({**data, "actions": [*data["actions"], action]})[0]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda c: b"",
    "torn": lambda c: c[: len(c) // 2],
    "one byte short": lambda c: c[:-1],
    "one byte more": lambda c: c + b"\n",
    "zeroes": lambda c: bytes(len(c)),
    "not ours": lambda c: b'{"version": 3}',
    "not json": lambda c: encode_with_checksum({"x": 1})[0].replace(b"}", b""),
    "sealed nonsense": lambda c: encode_with_checksum({"format": 1, "version": 3, "actions": 7})[0],
    "another version": lambda c: encode_with_checksum({**decode_with_checksum(c)[0], "version": 4})[0],
    "another parent": lambda c: encode_with_checksum({**decode_with_checksum(c)[0], "previous": "0" * 64})[0],
    "removes what is not there": lambda c: with_action(c, {"type": "removeBatch", "id": "x"}),
    "a bad definition": lambda c: with_action(c, {"type": "setDefinition", "definition": {"fields": []}}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_s33_a_damaged_entry_is_named(tmp_path: Path, damage: str) -> None:
    table, base = create(tmp_path)
    known = grow(table, base, to=2)
    grow(table, known, to=5)
    entry = file_of(table, 3)
    entry.write_bytes(DAMAGE[damage](entry.read_bytes()))
    for call in (table.newest, lambda: table.newest(known), lambda: table.at(4)):
        with pytest.raises(CorruptTableError, match=r"00000003\.json"):
            call()
    assert table.at(2) == known  # what comes before is not lost


def test_s33_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    grow(table, base, to=1)
    content = file_of(table, 1).read_bytes()
    for position in range(len(content)):
        file_of(table, 1).write_bytes(flip(content, position))
        with pytest.raises(CorruptTableError, match=r"0001\.json"):
            table.newest()


@pytest.mark.parametrize("knows", ["hint", "handle", "neither"])
def test_s33_a_lost_end_that_a_hint_or_a_handle_remembers_is_noticed(tmp_path: Path, knows: str) -> None:
    table, base = create(tmp_path)
    after = grow(table, base, to=6)
    file_of(table, 6).unlink()
    if knows != "hint":
        hint_of(table).unlink()
    if knows == "neither":
        assert table.newest().version == 5
        return
    with pytest.raises(CorruptTableError, match=r"0006\.json' is lost.*_last\.json"):
        table.newest(after if knows == "handle" else None)


def test_s33_a_hint_of_another_table_or_without_its_seal_proves_nothing(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    other, other_base = create(tmp_path / "other")
    grow(table, base, to=5)
    grow(other, other_base, to=9)
    hint = json.loads(hint_of(other).read_bytes())
    for odd in (hint, {**hint, "seal": ""}, {**hint, "seal": 7}, {"version": 9, "starts": [0]}):
        hint_of(table).write_bytes(json.dumps(odd).encode())
        assert table.newest().version == 5


def test_s33_an_entry_of_another_table_is_noticed(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    other, other_base = create(tmp_path / "other")
    grow(table, base, to=5)
    grow(other, other_base, to=5)
    file_of(table, 5).write_bytes(file_of(other, 5).read_bytes())
    with pytest.raises(CorruptTableError, match=r"0005\.json.*does not follow"):
        table.newest()


@pytest.mark.parametrize("missing", [[0], [3], [3, 4], [1, 2, 3, 4], [0, 1]])
@pytest.mark.parametrize("hint", [True, False])
def test_s33_a_missing_entry_is_named(tmp_path: Path, missing: list[int], hint: bool) -> None:
    table, base = create(tmp_path)
    grow(table, base, to=6)
    for version in missing:
        file_of(table, version).unlink()
    if not hint:
        hint_of(table).unlink()
    for call in (table.newest, lambda: table.at(6), lambda: list(table.commits(last=6))):
        with pytest.raises(CorruptTableError, match=r"000000\d\.json.*missing"):
            call()
    if 0 in missing:
        with pytest.raises(CorruptTableError, match=r"0000\.json"):
            create(tmp_path)


def test_s33_a_missing_entry_behind_a_checkpoint_hurts_only_what_needs_it(tmp_path: Path) -> None:
    table, base = create(tmp_path, interval=5)
    after = grow(table, base, to=12)
    file_of(table, 7).unlink()
    assert table.newest() == after
    assert table.at(10).version == 10
    with pytest.raises(CorruptTableError, match=r"0007\.json"):
        table.at(8)


def test_s33_a_lost_end_that_a_checkpoint_remembers_is_noticed(tmp_path: Path) -> None:
    table, base = create(tmp_path, interval=5)
    grow(table, base, to=10)
    for version in range(6, 11):
        file_of(table, version).unlink()
    with pytest.raises(CorruptTableError, match=r"0006\.json"):
        table.newest()


HINTS: dict[str, bytes | None] = {
    "lost": None,
    "empty": b"",
    "torn": b'{"version": 1',
    "garbled": b"\xff\xfe[]",
    "another shape": b'{"version": null, "starts": "x"}',
    "stale": b'{"version": 2, "starts": [0]}',
    "very stale": b'{"version": 0, "starts": [0]}',
    "beyond the end": b'{"version": 999999, "starts": [999950, 999900]}',
    "beyond, from the start": b'{"version": 999999, "starts": [0]}',
    "negative": b'{"version": -7, "starts": [-1]}',
    "too long for a file name": b'{"version": 1, "starts": [1%s]}' % (b"0" * 300),
    "infinite": b'{"version": Infinity, "starts": [1e999]}',
    "no starts": b'{"version": 2, "starts": []}',
}


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_is_only_a_hint(tmp_path: Path, hint: str) -> None:
    table, base = create(tmp_path, interval=10)
    after = grow(table, base, to=57)
    content = HINTS[hint]
    if content is None:
        hint_of(table).unlink()
    else:
        hint_of(table).write_bytes(content)
    assert table.newest() == after


CHECKPOINTS: dict[str, Callable[[bytes], bytes | None]] = {
    "lost": lambda c: None,
    "torn": lambda c: c[: len(c) // 2],
    "flipped": lambda c: flip(c, len(c) // 2),
    "sealed nonsense": lambda c: encode_with_checksum({"version": 50})[0],
    "another version": lambda c: encode_with_checksum({**decode_with_checksum(c)[0], "version": 49})[0],
    "another entry": lambda c: encode_with_checksum({**decode_with_checksum(c)[0], "entry": "0" * 64, "batches": []})[
        0
    ],
}


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_s33_a_checkpoint_that_disagrees_is_ignored(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, base = create(tmp_path, interval=10)
    after = grow(table, base, to=57)
    path = file_of(table, 50, checkpoint=True)
    content = CHECKPOINTS[damage](path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert table.newest() == after
    assert table.at(53).version == 53
    assert ("Ignoring the checkpoint" in caplog.text) == (content is not None)


def test_s33_without_any_checkpoint_the_entries_suffice(tmp_path: Path) -> None:
    table, base = create(tmp_path, interval=10)
    after = grow(table, base, to=57)
    for path in hint_of(table).parent.glob("*.checkpoint.json"):
        path.write_bytes(b"")
    assert table.newest() == after


def test_leftovers_and_strangers_in_the_directory_are_ignored(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    after = grow(table, base, to=3)
    for name in (".00000000000000000004.json.abc.tmp", ".crc", "4.json", "x" * 20 + ".json", "readme"):
        (hint_of(table).parent / name).write_bytes(b"?")
    hint_of(table).unlink()
    assert table.newest() == after


def test_an_entry_far_behind_the_end_is_no_end(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    grow(table, base, to=3)
    (hint_of(table).parent / f"{9:0>20}.json".replace("0", "9")).write_bytes(b"?")
    hint_of(table).unlink()
    with pytest.raises(CorruptTableError, match=r"0004\.json' cannot be used: it is missing"):
        table.newest()


# Opening ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: (p / "_trinity_log").mkdir(parents=True)]
)
def test_no_table_is_said_so(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "table")
    table = CommitLog(filesystem_of(tmp_path), str(tmp_path / "table"))
    assert not table.files.exists()
    for call in (
        table.newest,
        lambda: table.at(0),
        lambda: table.version_at(0),
        lambda: list(table.commits()),
    ):
        with pytest.raises(TableNotFoundError, match="table"):
            call()


def test_a_table_that_was_replaced_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    old = grow(table, base, to=7)
    table.files.fs.delete(table.files.table_path)
    with pytest.raises(TableNotFoundError, match="dropped or replaced"):
        table.commit(old.next_commit("MERGE"), old)
    with pytest.raises(TableNotFoundError):
        table.newest(old)
    assert not table.files.fs.exists(table.files.table_path)  # the commit has not revived it
    _, new = create(tmp_path)
    assert table.newest(old) == new
    with pytest.raises(TableNotFoundError, match="dropped or replaced"):
        table.commit(old.next_commit("MERGE"), old)


def write_entry(table: CommitLog, snapshot: Snapshot, **changes: Any) -> None:
    """Write the next entry with other values than this library would."""
    commit = snapshot.next_commit("MERGE", previous=snapshot.checksum)
    file_of(table, commit.version).write_bytes(encode_with_checksum({**commit.to_json(), **changes})[0])


def test_S33_a_newer_format_is_refused(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    write_entry(table, base, format=FORMAT + 1, actions="in a way yet unknown")
    with pytest.raises(UnsupportedStorageError, match=rf"0001\.json'.*format {FORMAT + 1}.*knows {FORMAT}.*Upgrade"):
        table.newest()


@pytest.mark.parametrize("found", [None, 0, "1", True])
def test_S33_an_entry_without_a_format_is_damage(tmp_path: Path, found: object) -> None:
    table, base = create(tmp_path)
    write_entry(table, base, format=found)
    with pytest.raises(CorruptTableError, match=r"0001\.json' cannot be used: expected a format"):
        table.newest()


def test_S33_an_unknown_action_is_refused(tmp_path: Path) -> None:
    table, base = create(tmp_path, interval=1)
    write_entry(table, base, actions=[{"type": "rotateColumns", "by": 3}])
    with pytest.raises(UnsupportedStorageError, match=r"0001.*newer trinitymerge.*'rotateColumns'.*Upgrade"):
        reopened(table).newest()


@pytest.mark.parametrize("what", [{"format": FORMAT + 1}, {"actions": [{"type": "rotateColumns", "by": 3}]}])
def test_S33_a_checkpoint_of_a_newer_library_is_ignored(tmp_path: Path, what: dict[str, Any], caplog: Any) -> None:
    """The entries before it say what a reader must know."""
    table, base = create(tmp_path, interval=1)
    newest = grow(table, base, to=1)
    file_of(table, 1, checkpoint=True).write_bytes(encode_with_checksum({**newest.to_json(), **what})[0])
    assert reopened(table).newest() == newest
    assert "Ignoring the checkpoint" in caplog.text


def test_S33_an_unknown_action_that_may_be_ignored_changes_nothing(tmp_path: Path) -> None:
    table, base = create(tmp_path, interval=2)
    unknown = {"type": "addIndex", "ignorable": True, "file": "x"}
    write_entry(table, base, actions=[unknown])
    found = reopened(table).newest()
    assert (found.version, found.as_actions()) == (1, base.as_actions())
    assert [a.to_json() for a in table.files.entry(1).commit.actions] == [unknown]
    newest = grow(table, found, to=3)
    assert reopened(table).newest() == newest


@pytest.mark.parametrize(
    ("what", "message"),
    [({"archive": "frozen"}, "archive is 'frozen'"), ({"compaction": "partial"}, "compaction is 'partial'")],
)
def test_S33_an_unknown_kind_is_of_a_newer_library(tmp_path: Path, what: dict[str, str], message: str) -> None:
    table, base = create(tmp_path)
    stored = {**batch("b1").to_json(), **({} if "compaction" in what else what)}
    action = {"type": "addBatch", "batch": stored, **(what if "compaction" in what else {})}
    write_entry(table, base, actions=[action])
    with pytest.raises(UnsupportedStorageError, match=f"{message}, which this version of trinitymerge does not know"):
        reopened(table).newest()


def test_S33_requirements_are_asked_of_readers_and_of_writers(tmp_path: Path) -> None:
    table, base = create(tmp_path, interval=2)
    of_writers = table.commit(base.next_commit("ALTER", [SetRequirements(writers=["vectors"])]), base)
    assert reopened(table).newest() == of_writers, "it can be read"
    with pytest.raises(UnsupportedStorageError, match=r"'vectors' of writers.*only read.*Upgrade.*Nothing was written"):
        table.commit(of_writers.next_commit("MERGE"), of_writers)
    assert Snapshot.from_json(of_writers.to_json()).requirements == of_writers.requirements
    write_entry(table, of_writers, actions=[{"type": "setRequirements"}])
    undone = reopened(table).newest()
    assert table.commit(undone.next_commit("MERGE"), undone).version == 3, "a later action replaces the requirements"
    assert reopened(table).newest().version == 3
    undone = reopened(table).newest()
    write_entry(table, undone, actions=[{"type": "setRequirements", "readers": ["rotation"]}])
    with pytest.raises(UnsupportedStorageError, match=r"0004.*'rotation' of readers.*Upgrade"):
        reopened(table).newest()
    assert frozenset({REGISTERS}) == REQUIREMENTS


def test_S33_a_table_has_an_id_of_its_own(tmp_path: Path) -> None:
    first, second = (create(tmp_path / name)[1] for name in "ab")
    assert first.table_id != second.table_id
    assert Snapshot.from_json(first.to_json()).table_id == first.table_id
    with pytest.raises(InapplicableCommit, match="names the table again"):
        first.apply(first.next_commit("X", [CreateTable("other")]))


def test_S33_contents_to_begin_with_are_in_version_0_only(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    write_entry(table, base, actions=[InitialSnapshot(version=7, timestamp_ms=START_MS).to_json()])
    with pytest.raises(CorruptTableError, match=r"0001\.json' cannot be used.*would begin once more"):
        table.newest()


def test_S27_rows_are_owed_until_a_commit_says_otherwise(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    owed = OutboxEntry(
        id="b1", rows=2, files=1, bytes=9, path="/past", fields=(Field("id", "long"),), primary_key=("id",)
    )
    kind = {"type": "array", "elementType": "long", "containsNull": True}
    other = OutboxEntry(
        id="b2",
        rows=1,
        files=1,
        bytes=9,
        path="/other",
        fields=(Field("v", kind),),
    )
    first = table.commit(base.next_commit("MERGE", [AddOutboxEntry(owed), AddOutboxEntry(other)]), base)
    assert [attrs.evolve(r, since_ms=0) for r in first.outbox] == [owed, other]
    assert {r.since_ms for r in first.outbox} == {first.timestamp_ms}
    assert reopened(table).newest() == first
    second = table.commit(
        first.next_commit("DELIVER", [RemoveOutboxEntry("b1"), RemoveOutboxEntry("of-another-time")]), first
    )
    assert [r.id for r in reopened(table).newest().outbox] == [r.id for r in second.outbox] == ["b2"]
    assert Snapshot.from_json(second.to_json()) == second


def test_S36_a_transaction_can_be_forgotten(tmp_path: Path) -> None:
    _, base = create(tmp_path)
    kept = base.apply(base.next_commit("MERGE", [SetTransaction("a", 3, "q"), SetTransaction("b", 1)]))
    after = kept.apply(kept.next_commit("MERGE", [RemoveTransaction("a"), RemoveTransaction("unknown")]))
    assert (after.transactions, after.streams) == ({"b": 1}, {})


def reopened(table: CommitLog) -> CommitLog:
    return CommitLog(table.files.fs, table.files.table_path)


def test_opening_reads_as_few_files_for_1000_commits_as_for_10(tmp_path: Path) -> None:
    fs, calls = counting(tmp_path)
    table, snapshot = create(tmp_path, fs=fs)
    cost = {}
    for version in (10, 49, 50, 99, 500, 999, 1000):
        snapshot = grow(table, snapshot, to=version)
        calls.clear()
        assert table.newest() == snapshot
        cost[version] = dict(calls)
    assert cost[1000] == {
        "read": 4,
        "has_file": 1,
    }  # hint, checkpoint, its entry, and the one that is not there
    assert cost[1000]["read"] <= cost[10]["read"]
    assert max(c["read"] for c in cost.values()) <= 50 + 3
    assert all("list" not in c for c in cost.values())


@pytest.mark.long
def test_opening_takes_no_longer_after_10_000_commits_than_after_10(tmp_path: Path) -> None:
    few, many = opening.measure((10, 10_000), tmp_path)
    assert many.first_ms < 3 * few.first_ms + 5
    assert many.again_ms < 3 * few.again_ms + 5


def test_reading_on_costs_only_the_new_commits(tmp_path: Path) -> None:
    fs, calls = counting(tmp_path)
    table, snapshot = create(tmp_path, fs=fs)
    known = grow(table, snapshot, to=120)
    after = grow(table, known, to=123)
    calls.clear()
    assert table.newest(known) == after
    assert calls == {
        "read": 5,
        "has_file": 1,
    }  # the one that is known, three new ones, the one that is not there


# Time travel ------------------------------------------------------------------------------------------------


def test_s40_every_version_can_be_opened(tmp_path: Path) -> None:
    table, snapshot = create(tmp_path, interval=4)
    snapshots = [snapshot]
    for version in range(1, 15):
        snapshots.append(grow(table, snapshots[-1], to=version))
    assert [table.at(version) for version in range(15)] == snapshots
    for version in (-1, 15, 10**30):
        with pytest.raises(TableNotFoundError, match=f"no version {version}; it has versions 0 to 14"):
            table.at(version)


def test_s40_the_version_as_of_a_time(tmp_path: Path) -> None:
    fs, calls = counting(tmp_path)
    table, snapshot = create(tmp_path, fs=fs)
    grow(table, snapshot, to=300)
    for seconds, version in ((0, 0), (0.999, 0), (1, 1), (299.5, 299), (300, 300), (10**6, 300)):
        assert table.version_at(START_MS + int(1000 * seconds)) == version
    calls.clear()
    table.version_at(START_MS + 123_456)
    assert calls["read"] < 20
    with pytest.raises(
        TableNotFoundError, match=r"did not exist at 2023-11-14T22:13:19\.999\+00:00; it was created at"
    ):
        table.version_at(START_MS - 1)


def test_s40_history_is_read_lazily_in_either_order(tmp_path: Path) -> None:
    table, snapshot = create(tmp_path)
    grow(table, snapshot, to=5)
    assert [c.version for c in table.commits()] == [5, 4, 3, 2, 1, 0]
    assert [c.version for c in table.commits(first=3, newest_first=False)] == [3, 4, 5]
    assert [c.version for c in table.commits(first=2, last=3)] == [3, 2]
    assert next(table.commits()).operation == "MERGE"


def test_removed_batches_are_found_in_the_entries(tmp_path: Path) -> None:
    table, snapshot = create(tmp_path)
    snapshot = grow(table, snapshot, to=3)
    base = batch("base", version=3, base=True)
    snapshot = table.commit(
        snapshot.next_commit("COMPACT", [RemoveBatch("b1"), RemoveBatch("b2"), RemoveBatch("b3"), AddBatch(base)]),
        snapshot,
    )
    assert [b.id for b in table.newest().batches] == ["base"]
    assert [i for c in table.commits() for i in c.removed] == ["b1", "b2", "b3"]
    restored = table.commit(
        snapshot.next_commit("RESTORE", [RemoveBatch("base"), *map(AddBatch, table.at(3).batches)]), snapshot
    )
    assert restored.batches == table.at(3).batches == table.newest().batches


def test_a_log_on_other_storage_needs_spark() -> None:
    with pytest.raises(UnsupportedStorageError, match=r"'hdfs://n/t' can only be reached through Spark.*forPath"):
        CommitLog.open("hdfs://n/t")


def test_S33_an_entry_says_which_library_wrote_it(tmp_path: Path) -> None:
    table, base = create(tmp_path)
    grow(table, base, to=1)
    assert {c.writer for c in table.commits()} == {f"trinitymerge {trinitymerge.__version__}"}


def test_S35_of_two_first_loads_only_the_first_is_a_base() -> None:
    empty = Snapshot.created(
        Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition())])
    )
    slow = empty.next_commit("MERGE", [AddBatch(batch("b", base=True))])
    first = empty.apply(empty.next_commit("MERGE", [AddBatch(batch("a", base=True))]))
    assert [b.base for b in first.apply(first.rebase(slow)).batches] == [True, False]
    assert [b.base for b in empty.apply(empty.rebase(slow)).batches] == [True]


def test_S39a_purged_keys_of_another_salt_are_refused() -> None:
    empty = Snapshot.created(
        Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition())])
    )
    purged = empty.apply(empty.next_commit("PURGE", [PurgeKeys("aa", ["01"])]))
    with pytest.raises(InapplicableCommit, match="another salt"):
        purged.apply(purged.next_commit("PURGE", [PurgeKeys("bb", ["02"])]))


USERS = {"metadata", "properties", "parameters", "metrics", "commitTimes", "type", "marked"}
"""Objects whose names are the user's, Spark's, or ids."""


def with_unknown_fields(data: Any) -> Any:
    """Some JSON of the log as a newer library might write it."""
    if isinstance(data, list):
        return [with_unknown_fields(one) for one in data]
    if not isinstance(data, dict):
        return data
    return {n: v if n in USERS else with_unknown_fields(v) for n, v in data.items()} | {"inventedLater": [1, {"x": 2}]}


def test_S33_fields_that_a_newer_library_adds_are_ignored_wherever_they_are() -> None:
    empty = Snapshot.created(
        Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(hostile.definition())])
    )
    commit = hostile.commit_on(empty)
    after = empty.apply(commit)
    for kind, one in ((Commit, commit), (Snapshot, after), (Commit, hostile.beginning_on(empty, after))):
        read = kind.from_json(with_unknown_fields(one.to_json()))
        assert without_extra(read.to_json()) == one.to_json()


def without_extra(data: Any) -> Any:
    if isinstance(data, list):
        return [without_extra(one) for one in data]
    if not isinstance(data, dict):
        return data
    return {n: without_extra(v) for n, v in data.items() if n != "inventedLater"}


@pytest.mark.parametrize("said", [{"parameters": {"comment": "half \ud83d"}}, {"user": "half \ud83d"}])
def test_S33_a_value_that_no_reader_would_accept_is_not_committed(tmp_path: Path, said: dict[str, Any]) -> None:
    table, snapshot = create(tmp_path)
    with pytest.raises(
        InvalidMergeError, match=r"The log of .* cannot keep a value of this MERGE: .*Nothing was written"
    ):
        table.commit(snapshot.next_commit("MERGE", [], **said))
    assert table.newest().version == snapshot.version
