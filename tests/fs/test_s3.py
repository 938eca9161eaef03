"""S33: tables on S3 through its own API, against moto's server on this machine (`s3server.py`): races, lost answers, failures.

The contract of storage runs over it in `test_local.py`, the log's own tests in `test_log.py`. Spark's part, the data, is
not here: the tests' sessions have no connector for S3.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import boto3
import botocore.config
import s3server
from fakehadoop import Storage
from s3server import BUCKET, S3Path, S3Server, any_conditional, conditional

from trinitymerge.errors import MissingPackageError, StorageError, UnsupportedStorageError
from trinitymerge.fs import s3
from trinitymerge.fs.hadoop import HadoopFileSystem
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.fs.s3 import S3FileSystem, place_of
from trinitymerge.log.actions import SetDefinition
from trinitymerge.log.commit import CommitStateUnknown, VersionConflict
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, well again after each test."""
    monkeypatch.setattr(s3, "_WAITS_SECONDS", (0.01, 0.01, 0.01))
    yield s3_server
    s3_server.heal()
    s3_server.pending.clear()


@pytest.fixture
def root(server: S3Server) -> S3Path:
    return server.directory()


def client(**settings: Any) -> Any:
    """boto3's client, less patient: it repeats at once."""
    config = {"retries": {"total_max_attempts": 3, "mode": "standard"}, "read_timeout": 0.5, **settings}
    made = boto3.client("s3", config=botocore.config.Config(**config))
    made.meta.events.register_first("needs-retry.s3", lambda **_: None)
    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between botocore's attempts."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.001)


@pytest.fixture
def fs(server: S3Server) -> S3FileSystem:
    return S3FileSystem(client=client())


def keys(root: S3Path) -> list[str]:
    """All objects below, by what boto3 says."""
    bucket, _, prefix = str(root).removeprefix("s3a://").partition("/")
    found = s3.connect().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", [])
    return [each["Key"].removeprefix(f"{prefix}/") for each in found]


# One winner -----------------------------------------------------------------------------------------------------------


def test_s33_one_winner_among_threads(root: S3Path, fs: S3FileSystem) -> None:
    def attempt(writer: int) -> int | None:
        try:
            fs.create_exclusive(f"{root}/entry", b"%d" % writer * 1000)
        except FileExistsError:
            return None
        return writer

    with ThreadPoolExecutor(12) as pool:
        (winner,) = [w for w in pool.map(attempt, range(12)) if w is not None]
    assert fs.read(f"{root}/entry") == b"%d" % winner * 1000
    assert keys(root) == ["entry"]  # and no probe


CONTENDER = """
import sys
from trinitymerge.fs.s3 import S3FileSystem
fs, root, me = S3FileSystem(), sys.argv[1], sys.argv[2].encode()
for n in range(12):
    try:
        fs.create_exclusive(f"{root}/{n}", me * 500)
        print(n)
    except FileExistsError:
        pass
"""


def test_s33_one_winner_among_processes(root: S3Path, fs: S3FileSystem) -> None:
    contenders = {
        name: subprocess.Popen(
            [sys.executable, "-c", CONTENDER, str(root), name], cwd=ROOT, text=True, stdout=subprocess.PIPE
        )
        for name in "abc"
    }
    won = {name: process.communicate()[0].split() for name, process in contenders.items()}
    assert sorted(int(n) for wins in won.values() for n in wins) == list(range(12))
    for name, wins in won.items():
        assert all(fs.read(f"{root}/{n}") == name.encode() * 500 for n in wins)
    assert len(keys(root)) == 12


# What can go wrong on the way -----------------------------------------------------------------------------------------


@pytest.fixture
def table(root: S3Path, fs: S3FileSystem) -> tuple[CommitLog, Snapshot]:
    log = CommitLog(fs, str(root))
    definition = TableDefinition.of([Field("id", "long")], "id")
    return log, log.create(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition)]))


RECOVERED = {
    "the answer is lost": [s3server.carried_out_and_lost],
    "the answer is lost, twice": [s3server.carried_out_and_lost] * 2,
    "an error after the fact": [s3server.carried_out_and_denied],
    "the answer is late": [s3server.late(0.8)],
    "lost before it was carried out": [s3server.lost],
    "cut off half-way": [s3server.half_way],
    "busy": [s3server.busy] * 2,
    "a conflict": [s3server.in_conflict] * 3,
    "lost, then a conflict": [s3server.carried_out_and_lost, s3server.in_conflict],
    "all answers are lost": [s3server.carried_out_and_lost] * 3,
    "lost, then denied": [s3server.carried_out_and_lost, s3server.forbidden],
}


@pytest.mark.parametrize("what", RECOVERED)
def test_s33_a_commit_stands_whatever_becomes_of_its_answer(
    server: S3Server, table: tuple[CommitLog, Snapshot], what: str
) -> None:
    log, base = table
    for fault in RECOVERED[what]:
        server.fail(conditional, fault, times=1)
    after = log.commit(base.next_commit("MERGE", user="me"), base)
    assert after == log.newest()
    assert [c.user for c in log.commits()] == ["me", None]


@pytest.mark.parametrize("what", ["the answer is lost", "lost before it was carried out", "a conflict"])
def test_s33_a_loser_is_told_so_whatever_becomes_of_its_answer(
    server: S3Server, table: tuple[CommitLog, Snapshot], what: str
) -> None:
    log, base = table
    winner = log.commit(base.next_commit("MERGE", user="other"), base)
    for fault in RECOVERED[what]:
        server.fail(conditional, fault, times=1)
    with pytest.raises(VersionConflict, match="MERGE by other"):
        log.commit(base.next_commit("MERGE", user="me"), base)
    assert log.newest() == winner


@pytest.mark.parametrize("fault", [s3server.lost, s3server.busy, s3server.in_conflict, s3server.half_way])
def test_s33_what_may_have_happened_is_not_called_failed(
    server: S3Server, table: tuple[CommitLog, Snapshot], fault: s3server.Fault
) -> None:
    log, base = table
    server.fail(conditional, fault)
    with pytest.raises(CommitStateUnknown, match=r"0001\.json"):
        log.commit(base.next_commit("MERGE"), base)
    server.heal()
    assert log.newest() == base


def test_s33_a_request_that_is_carried_out_later_is_a_commit(
    server: S3Server, table: tuple[CommitLog, Snapshot]
) -> None:
    log, base = table
    server.fail(conditional, s3server.comes_later(server))
    with pytest.raises(CommitStateUnknown):
        log.commit(base.next_commit("MERGE", user="slow"), base)
    server.heal()
    for carry_out in server.pending:  # the first one, and its repetitions
        carry_out()
    assert [c.user for c in log.commits()] == ["slow", None]
    with pytest.raises(VersionConflict, match="by slow"):
        log.commit(base.next_commit("MERGE"), base)


def test_s33_a_request_that_is_carried_out_too_late_changes_nothing(
    server: S3Server, table: tuple[CommitLog, Snapshot]
) -> None:
    log, base = table
    server.fail(conditional, s3server.comes_later(server))
    with pytest.raises(CommitStateUnknown):
        log.commit(base.next_commit("MERGE", user="slow"), base)
    server.heal()
    after = log.commit(base.next_commit("MERGE", user="other"), base)
    for carry_out in server.pending:
        carry_out()
    assert log.newest() == after


def test_s33_a_missing_permission_is_certain(server: S3Server, table: tuple[CommitLog, Snapshot]) -> None:
    log, base = table
    server.fail(conditional, s3server.forbidden)
    with pytest.raises(PermissionError, match=r"AccessDenied.*0001\.json"):
        log.commit(base.next_commit("MERGE"), base)
    server.heal()
    assert log.newest() == base


def test_s33_a_permission_that_goes_missing_after_a_lost_answer_is_not(
    server: S3Server, table: tuple[CommitLog, Snapshot]
) -> None:
    """Whoever took this for a failure would remove the files of a commit that stands."""
    log, base = table
    server.fail(conditional, s3server.carried_out_and_lost, times=1)
    server.fail(lambda request: "0001.json" in request.environ["PATH_INFO"], s3server.forbidden)
    with pytest.raises(CommitStateUnknown):
        log.commit(base.next_commit("MERGE", user="me"), base)
    server.heal()
    assert log.newest().version == 1


def test_s33_a_look_that_is_refused_after_a_lost_answer_tells_nothing(
    server: S3Server, root: S3Path, fs: S3FileSystem
) -> None:
    fs.create_exclusive(f"{root}/before", b"")
    server.fail(conditional, s3server.carried_out_and_lost, times=1)
    server.fail(lambda request: request.method == "GET", s3server.forbidden)
    with pytest.raises(OSError, match="unknown") as failed:
        fs.create_exclusive(f"{root}/entry", b"1")
    assert type(failed.value) is OSError


def test_an_object_of_the_same_content_is_another_writers_unless_a_request_was_repeated(
    root: S3Path, fs: S3FileSystem
) -> None:
    fs.create_exclusive(f"{root}/x", b"same")
    with pytest.raises(FileExistsError):
        fs.create_exclusive(f"{root}/x", b"same")


# Stores that keep no conditions ---------------------------------------------------------------------------------------


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that this process has not tried yet."""
    monkeypatch.setattr(s3, "_trusted", set())


STORES = {
    "overwrites": (s3server.without_condition, "has overwritten an object.*If-None-Match"),
    "refuses": (s3server.not_implemented, "does not support it .NotImplemented.*If-None-Match"),
    "is confused": (
        lambda request: request.refuse("412 Precondition Failed", "PreconditionFailed"),
        "reports that a new object exists",
    ),
}


@pytest.mark.parametrize("store", STORES)
def test_s33_a_store_without_conditions_is_refused(
    server: S3Server, root: S3Path, fs: S3FileSystem, unknown: None, store: str
) -> None:
    fault, message = STORES[store]
    server.fail(any_conditional, fault)
    for _ in range(2):  # also when asked again
        with pytest.raises(UnsupportedStorageError, match=message):
            fs.create_exclusive(f"{root}/t/_trinity_log/0.json", b"1")
    assert keys(root) == []


def test_s33_a_store_that_says_no_and_overwrites_is_refused(
    server: S3Server, root: S3Path, fs: S3FileSystem, unknown: None
) -> None:
    server.fail(any_conditional, s3server.carried_out, times=1)
    server.fail(any_conditional, s3server.overwritten_and_denied)
    with pytest.raises(UnsupportedStorageError, match="has overwritten"):
        fs.create_exclusive(f"{root}/entry", b"1")
    assert keys(root) == []


def test_s33_a_store_that_cannot_be_tried_is_not_trusted(
    server: S3Server, root: S3Path, fs: S3FileSystem, unknown: None
) -> None:
    server.fail(any_conditional, s3server.busy)
    with pytest.raises(OSError, match="SlowDown"):
        fs.create_exclusive(f"{root}/entry", b"1")
    server.heal()
    fs.create_exclusive(f"{root}/entry", b"1")
    assert keys(root) == ["entry"]


@pytest.mark.parametrize("fault", [s3server.carried_out_and_lost, s3server.in_conflict, s3server.busy])
def test_s33_trying_a_store_survives_what_creating_does(
    server: S3Server, root: S3Path, fs: S3FileSystem, unknown: None, fault: s3server.Fault
) -> None:
    server.fail(any_conditional, fault, times=1)
    fs.create_exclusive(f"{root}/entry", b"1")
    assert keys(root) == ["entry"]


def test_a_store_is_tried_once(server: S3Server, root: S3Path, unknown: None) -> None:
    server.requests.clear()
    for name in "abc":
        S3FileSystem().create_exclusive(f"{root}/{name}", b"1")
    assert server.requests["PUT"] == 2 + 3


def test_s33_a_store_that_spark_does_not_see_is_refused(root: S3Path, unknown: None) -> None:
    """boto3 and Hadoop are set up each for itself: the log would be in one store, the data in another."""
    elsewhere = Storage("s3").session()
    fs = S3FileSystem(spark_side=HadoopFileSystem(elsewhere, str(root), create="condition"))
    with pytest.raises(UnsupportedStorageError, match=r"Spark does not see.*fs\.s3a\.endpoint"):
        fs.create_exclusive(f"{root}/entry", b"1")
    assert keys(root) == []


# Which filesystem -----------------------------------------------------------------------------------------------------


def test_s3a_goes_through_hadoop_where_that_can_create_exclusively(server: S3Server) -> None:
    assert isinstance(filesystem_for(Storage("s3a", conditional=True).session(), "s3a://lake/t"), HadoopFileSystem)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_else_the_log_goes_through_boto3_and_paths_stay_sparks(server: S3Server, scheme: str) -> None:
    fs = filesystem_for(Storage("s3a").session(), f"{scheme}://lake/t")
    assert isinstance(fs, S3FileSystem)
    assert fs.qualify(f"{scheme}://lake//a b/./x/../%20ü/") == f"{scheme}://lake/a b/%20ü"
    assert fs.qualify(f"{scheme}://lake/") == f"{scheme}://lake"


@pytest.mark.parametrize(("scheme", "remedy"), [("s3", "Use 's3a://'.*boto3"), ("s3a", "connector"), ("s3n", "boto3")])
def test_s33_what_spark_cannot_write_is_refused(server: S3Server, scheme: str, remedy: str) -> None:
    with pytest.raises(UnsupportedStorageError, match=remedy):
        filesystem_for(Storage("s3a", known=False).session(), f"{scheme}://lake/t")


def test_s33_without_boto3_s3_is_refused_and_s3a_can_be_read(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UnsupportedStorageError, match=r"3\.4\.2.*trinitymerge\[s3\]"):
        filesystem_for(Storage("s3").session(), "s3://lake/t")
    storage = Storage("s3a")
    storage.files["s3a://lake/t/x"] = b"1"
    fs = filesystem_for(storage.session(), "s3a://lake/t")
    assert fs.read("s3a://lake/t/x") == b"1"
    with pytest.raises(UnsupportedStorageError, match=r"3\.4\.2.*trinitymerge\[s3\]"):
        fs.create_exclusive("s3a://lake/t/y", b"1")
    with pytest.raises(MissingPackageError, match=r"pip install 'trinitymerge\[s3\]'"):
        S3FileSystem()


def test_a_boto3_that_knows_no_conditions_is_as_none(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    old = client()
    members = old.meta.service_model.operation_model("PutObject").input_shape.members
    members.pop("IfNoneMatch")
    monkeypatch.setattr(boto3, "client", lambda name, **_settings: old)
    with pytest.raises(MissingPackageError, match=r"boto3 \d.* cannot create objects exclusively"):
        s3.connect()


# Names ----------------------------------------------------------------------------------------------------------------

NAMES = [
    "plain",
    "with space",
    "per%20cent",
    "ünï-码",
    "a+b#c",
    "[2024]",
    "{a,b}",
    "q?s*",
    "=x&y;",
    "a:b",
    "'\"<>",
    "~$@",
]


def test_keys_are_taken_literally(root: S3Path, fs: S3FileSystem) -> None:
    for name in NAMES:
        fs.create_exclusive(f"{root}/{name}/{name}.json", name.encode())
    assert keys(root) == sorted((f"{name}/{name}.json" for name in NAMES), key=str.encode)
    assert [info.name for info in fs.list(str(root))] == sorted(NAMES)
    files = list(fs.walk(str(root)))
    assert {fs.read(info.path).decode() for info in files} == set(NAMES)
    for name in NAMES:
        fs.copy(f"{root}/{name}/{name}.json", f"{root}/{name}/copy {name}")
        assert fs.read(f"{root}/{name}/copy {name}") == name.encode()
        fs.delete(f"{root}/{name}")
    assert keys(root) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3a://lake/../x", "leads out of its bucket"),
        ("s3a:/lake/x", "is not a path on S3"),
        ("s3a:///x", "is not a path on S3"),
        ("/lake/x", "is not a path on S3"),
        ("gs://lake/x", "is not a path on S3"),
        ("s3a://KEY:SECRET@lake/x", "credentials"),
    ],
)
def test_other_paths_are_refused(path: str, message: str) -> None:
    with pytest.raises(UnsupportedStorageError, match=message) as refused:
        place_of(path)
    assert "SECRET" not in str(refused.value)


# Listings and directories ---------------------------------------------------------------------------------------------


@pytest.fixture
def in_pages(fs: S3FileSystem) -> S3FileSystem:
    """Three keys to a page."""
    add = "provide-client-params.s3.ListObjectsV2"
    fs._client.meta.events.register(add, lambda params, **_: {**params, "MaxKeys": min(3, params.get("MaxKeys", 3))})
    return fs


def test_listings_of_many_pages(root: S3Path, in_pages: S3FileSystem) -> None:
    fs = in_pages
    paths = sorted([f"{root}/t/{n}" for n in range(8)] + [f"{root}/t/d{n}/x" for n in range(5)])
    for path in paths:
        fs.replace(path, b"1")
    fs.replace(f"{root}/t2", b"")  # begins with the same letters
    assert [info.path for info in fs.walk(f"{root}/t")] == paths
    assert [info.name for info in fs.list(f"{root}/t")] == [*map(str, range(8)), *(f"d{n}" for n in range(5))]
    fs.delete(f"{root}/t")
    assert keys(root) == ["t2"]


def test_what_stands_for_directories_is_no_file(root: S3Path, fs: S3FileSystem) -> None:
    fs.replace(f"{root}/t/d/x", b"1")
    (root / "t" / "empty").mkdir()
    (root / "t" / "d").mkdir()
    for name in ("d_$folder$", "/nobody can name this"):
        s3.connect().put_object(Bucket=BUCKET, Key=f"{place_of(f'{root}/t').key}/{name}", Body=b"")
    assert [(i.name, i.is_dir) for i in fs.list(f"{root}/t")] == [("d", True), ("empty", True)]
    assert [i.name for i in fs.walk(f"{root}/t")] == ["x"]
    assert fs.list(f"{root}/t/empty") == list(fs.walk(f"{root}/t/empty")) == []
    assert fs.exists(f"{root}/t/empty")
    fs.remove_empty(f"{root}/t/empty")
    fs.remove_empty(f"{root}/t/d")
    assert [fs.exists(f"{root}/t/{name}") for name in ("empty", "d")] == [False, True]
    fs.delete(f"{root}/t/d")
    fs.delete(f"{root}/t")
    assert keys(root) == []


def test_a_whole_bucket_can_be_listed_and_is_not_deleted(root: S3Path, fs: S3FileSystem) -> None:
    fs.replace(f"{root}/x", b"")
    assert "tests of" in [info.name for info in fs.list(f"s3a://{BUCKET}/")]
    assert fs.exists(f"s3a://{BUCKET}")
    with pytest.raises(PermissionError, match="whole bucket"):
        fs.delete(f"s3a://{BUCKET}/")


def test_files_move(root: S3Path, fs: S3FileSystem) -> None:
    fs.replace(f"{root}/a/x", b"1")
    fs.move(f"{root}/a/x", f"{root}/b/y")
    assert keys(root) == ["b/y"]
    with pytest.raises(FileNotFoundError, match="a/x"):
        fs.move(f"{root}/a/x", f"{root}/b/y")


def test_large_files_are_copied_in_parts(
    server: S3Server, root: S3Path, fs: S3FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "LARGEST_COPY_BYTES", 5 * 1024**2)
    content = bytes(range(256)) * (6 * 4096)  # 6 MB
    fs.replace(f"{root}/x", content)
    server.requests.clear()
    fs.copy(f"{root}/x", f"{root}/y")
    assert (server.requests["PUT"], server.requests["POST"]) == (2, 2)
    assert fs.read(f"{root}/y") == content


def test_files_are_copied_from_and_to_this_machine(root: S3Path, fs: S3FileSystem, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    fs.copy(f"file:{tmp_path}/x", f"{root}/x")
    fs.copy(f"{root}/x", f"{tmp_path}/y")
    assert LocalFileSystem().read(f"{tmp_path}/y") == b"1"
    with pytest.raises(UnsupportedStorageError, match="local path first"):
        fs.copy(f"{root}/x", "hdfs://name/x")
    with pytest.raises(FileNotFoundError, match="none"):
        fs.copy(f"{tmp_path}/none", f"{root}/x")


# Errors ---------------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[S3FileSystem, str], object]] = {
    "read": lambda fs, path: fs.read(path),
    "exists": lambda fs, path: fs.exists(path),
    "has_file": lambda fs, path: fs.has_file(path),
    "list": lambda fs, path: fs.list(path),
    "walk": lambda fs, path: list(fs.walk(path)),
    "create_exclusive": lambda fs, path: fs.create_exclusive(path, b""),
    "replace": lambda fs, path: fs.replace(path, b""),
    "delete": lambda fs, path: fs.delete(path),
    "move": lambda fs, path: fs.move(path, f"{path} moved"),
}


@pytest.mark.parametrize("call", CALLS)
def test_errors_name_what_is_missing(server: S3Server, fs: S3FileSystem, root: S3Path, call: str) -> None:
    if call not in ("move", "has_file"):  # boto3 sends a request whose answer has no words
        with pytest.raises(StorageError, match=r"no bucket 'nobucket' at http://127\.0\.0\.1.*AWS_ENDPOINT_URL"):
            CALLS[call](fs, "s3a://nobucket/d/x")
    server.fail(lambda request: not request.is_probe, s3server.forbidden)
    with pytest.raises(PermissionError, match="/some file"):
        CALLS[call](fs, f"{root}/some file")
    server.heal()
    server.fail(lambda request: not request.is_probe, s3server.busy)
    with pytest.raises(OSError, match="/some file") as failed:
        CALLS[call](fs, f"{root}/some file")
    assert type(failed.value) is OSError


def test_what_s3_does_not_delete_is_named(server: S3Server, root: S3Path, fs: S3FileSystem) -> None:
    fs.replace(f"{root}/t/x", b"")

    def kept(request: s3server.Request) -> list[bytes]:
        denied = "<Error><Key>some</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
        return request.answer("200 OK", f"<DeleteResult>{denied}</DeleteResult>")

    server.fail(lambda request: request.method == "POST", kept, times=1)
    with pytest.raises(PermissionError, match=r"AccessDenied.*lake/some"):
        fs.delete(f"{root}/t")


def test_without_credentials_the_remedy_is_named(
    server: S3Server, root: S3Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(PermissionError, match="AWS_PROFILE"):
        S3FileSystem().read(f"{root}/x")


def test_settings_that_boto3_cannot_read_are_an_error_of_ours(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(StorageError, match="nobody"):
        S3FileSystem()
