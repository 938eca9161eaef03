"""S33: what the commit log needs of storage, on every kind of it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import tables
from pyspark.sql import SparkSession

from trinitymerge.errors import StorageError, UnsupportedStorageError
from trinitymerge.fs import faults, local
from trinitymerge.fs.base import FAULT_POINTS, FileSystem, escape_glob, read_many
from trinitymerge.fs.hadoop import HadoopFileSystem
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.fs.s3 import S3FileSystem

ROOT = Path(__file__).parents[2]
ODD_NAMES = ["plain", "with space", "per%20cent", "ünï-码", "a+b#c", "sales[2024]", "{a,b}", "q?s*", "=x&y;"]


def run(code: str, *arguments: object, fault: str = "") -> subprocess.Popen[str]:
    """Another Python process, without Spark."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), faults.VARIABLE: fault}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The contract is checked on each storage of this machine, or on a server."""
    if "storage" in metafunc.fixturenames:
        here = ["server"] if metafunc.config.getoption("--storage") else ["local", "rename", "precondition", "s3"]
        metafunc.parametrize("storage", here, indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A filesystem and a root on it; the Hadoop ones reach the local disk through viewfs."""
    if request.param == "server":
        session, root = request.getfixturevalue("spark"), f"{tables.ROOT}/{uuid.uuid4().hex}"
        return filesystem_for(session, root), root
    if request.param == "local":
        return LocalFileSystem(), f"file:{tmp_path}"
    if request.param == "s3":
        server = request.getfixturevalue("s3_server")
        return S3FileSystem(), str(server.directory())
    spark: SparkSession = request.getfixturevalue("spark")
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    mount = "".join(c for c in tmp_path.name if c.isalnum())
    configuration.set(f"fs.viewfs.mounttable.{mount}.link./data", tmp_path.as_uri())
    root = f"viewfs://{mount}/data"
    return HadoopFileSystem(spark, root, create=request.param), root


# The contract -----------------------------------------------------------------------------------------------


def test_s33_what_was_created_can_be_read_and_not_created_again(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    path = f"{root}/new parent/per%20cent/ü.json"
    fs.create_exclusive(path, b"\x00first\xff")
    with pytest.raises(FileExistsError, match=r"ü\.json"):
        fs.create_exclusive(path, b"second")
    assert fs.read(path) == b"\x00first\xff"
    assert [info.name for info in fs.list(f"{root}/new parent/per%20cent")] == ["ü.json"]


def test_a_name_that_is_too_long_is_an_error_of_the_library(tmp_path: Path) -> None:
    for call in (LocalFileSystem().mkdirs, lambda path: LocalFileSystem().create_exclusive(f"{path}/f", b"")):
        with pytest.raises(StorageError, match=r"x' cannot be written\. Choose a shorter name: .* 255 bytes\. Nothing"):
            call(f"{tmp_path}/{'x' * 256}")


def test_an_empty_file_can_be_created(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.create_exclusive(f"{root}/empty", b"")
    assert fs.read(f"{root}/empty") == b""


def test_replace_writes_and_overwrites(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.replace(f"{root}/d/hint", b"longer than the next")
    fs.replace(f"{root}/d/hint", b"new")
    assert fs.read(f"{root}/d/hint") == b"new"
    assert [info.name for info in fs.list(f"{root}/d")] == ["hint"]


def test_list_and_walk_tell_names_sizes_and_kinds(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.create_exclusive(f"{root}/t/b/two", b"22")
    fs.create_exclusive(f"{root}/t/a", b"1")
    listed = fs.list(f"{root}/t")
    assert [(i.name, i.size_bytes, i.is_dir) for i in listed] == [("a", 1, False), ("b", 0, True)]
    assert [(i.name, i.size_bytes) for i in fs.walk(f"{root}/t")] == [("a", 1), ("two", 2)]
    assert listed[0].modified_ms > 1_600_000_000_000
    assert fs.read(listed[0].path) == b"1"


def test_missing_things_are_file_not_found(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    assert not fs.exists(f"{root}/none")
    for call in (fs.read, fs.list, lambda path: list(fs.walk(path))):
        with pytest.raises(FileNotFoundError, match="none"):
            call(f"{root}/none")


def test_a_file_where_a_directory_should_be(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.create_exclusive(f"{root}/file", b"")
    for call in (fs.list, lambda path: fs.mkdirs(f"{path}/below")):
        with pytest.raises(NotADirectoryError, match="file"):
            call(f"{root}/file")
    if root.startswith("s3a:") and isinstance(fs, HadoopFileSystem):
        return  # Hadoop does not ask, and S3 keeps both
    with pytest.raises(NotADirectoryError, match="file"):
        fs.create_exclusive(f"{root}/file/below", b"")


def test_delete_is_recursive_and_idempotent(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.create_exclusive(f"{root}/d/e/f", b"")
    fs.mkdirs(f"{root}/d/empty")
    fs.mkdirs(f"{root}/d/empty")
    fs.sync_dir(f"{root}/d")
    fs.delete(f"{root}/d")
    fs.delete(f"{root}/d")
    assert not fs.exists(f"{root}/d")


def test_files_are_copied_to_where_they_are_told_also_elsewhere(
    storage: tuple[FileSystem, str], tmp_path: Path
) -> None:
    fs, root = storage
    elsewhere = f"file:{tmp_path}/elsewhere"
    for directory in (f"{root}/a", f"{root}/b", elsewhere):
        (fs if directory.startswith(root) else LocalFileSystem()).mkdirs(directory)
    fs.create_exclusive(f"{root}/a/x", b"\x00bytes\xff")
    fs.copy(f"{root}/a/x", f"{root}/b/per%20cent ü")
    fs.copy(f"{root}/a/x", f"{elsewhere}/x")
    fs.copy(f"{elsewhere}/x", f"{root}/b/y")
    copies = [fs.read(f"{root}/b/per%20cent ü"), LocalFileSystem().read(f"{elsewhere}/x"), fs.read(f"{root}/b/y")]
    assert copies == [b"\x00bytes\xff"] * 3
    with pytest.raises(FileNotFoundError):
        fs.copy(f"{root}/a/none", f"{root}/b/none")
    assert fs.read(f"{root}/a/x") == copies[0]


def test_only_an_empty_directory_is_removed_as_one(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.create_exclusive(f"{root}/full/x", b"")
    fs.mkdirs(f"{root}/empty")
    for name in ("full", "empty", "none", "full/x/below"):
        fs.remove_empty(f"{root}/{name}")
    assert [fs.exists(f"{root}/{name}") for name in ("full", "full/x", "empty")] == [True, True, False]


def test_qualified_paths_name_the_same_file(storage: tuple[FileSystem, str]) -> None:
    fs, root = storage
    fs.create_exclusive(f"{root}/x y", b"1")
    qualified = fs.qualify(f"{root}//sub/../x y")
    assert qualified == fs.qualify(qualified)
    assert fs.read(qualified) == b"1"


# Exclusiveness ----------------------------------------------------------------------------------------------


def test_s33_one_winner_among_threads(tmp_path: Path) -> None:
    fs = LocalFileSystem()

    def attempt(writer: int) -> int | None:
        try:
            fs.create_exclusive(str(tmp_path / "log" / "entry"), b"%d" % writer * 10_000)
        except FileExistsError:
            return None
        return writer

    with ThreadPoolExecutor(8) as pool:
        winners = [w for w in pool.map(attempt, range(8)) if w is not None]
    assert len(winners) == 1
    assert fs.read(str(tmp_path / "log" / "entry")) == b"%d" % winners[0] * 10_000


CONTENDER = """
import sys
from trinitymerge.fs.local import LocalFileSystem
fs, root, me = LocalFileSystem(), sys.argv[1], sys.argv[2].encode()
while not fs.exists(root + "/go"):
    pass
for n in range(60):
    try:
        fs.create_exclusive(f"{root}/log/{n}", me * 5000)
        print(n)
    except FileExistsError:
        pass
"""


def test_s33_one_winner_among_processes(tmp_path: Path) -> None:
    contenders = [run(CONTENDER, tmp_path, name) for name in "abcd"]
    (tmp_path / "go").touch()
    won = {name: p.communicate()[0].split() for name, p in zip("abcd", contenders, strict=True)}
    assert [p.returncode for p in contenders] == [0] * 4
    assert sorted(int(n) for wins in won.values() for n in wins) == list(range(60))
    for name, wins in won.items():
        assert all((tmp_path / "log" / n).read_text() == name * 5000 for n in wins)
    assert len(os.listdir(tmp_path / "log")) == 60  # no temporary file is left


WRITER = """
import sys
from trinitymerge.fs.local import LocalFileSystem
getattr(LocalFileSystem(), sys.argv[2])(sys.argv[1] + "/log/entry", b"x" * 100_000)
"""


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_s33_a_killed_writer_leaves_all_or_nothing(tmp_path: Path, point: str) -> None:
    writer = run(WRITER, tmp_path, "replace" if point.startswith("replace") else "create_exclusive", fault=point)
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    content = [(tmp_path / "log" / name).read_bytes() for name in visible(tmp_path / "log")]
    assert content == ([] if point.endswith(".written") else [b"x" * 100_000])


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            LocalFileSystem().create_exclusive(str(tmp_path / "entry"), b"1")
    assert os.listdir(tmp_path) == []


def unsupported(*_arguments: object, **_named: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_s33_without_hard_links_a_rename_that_refuses_to_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", unsupported)
    fs = LocalFileSystem()
    fs.create_exclusive(str(tmp_path / "entry"), b"1")
    with pytest.raises(FileExistsError):
        fs.create_exclusive(str(tmp_path / "entry"), b"2")
    with pytest.raises(FileExistsError):  # also in a race, past the first look
        local.rename_exclusive(str(tmp_path / "entry"), str(tmp_path / "entry"))
    assert fs.read(str(tmp_path / "entry")) == b"1"
    assert os.listdir(tmp_path) == ["entry"]


def test_s33_with_neither_the_storage_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", unsupported)
    monkeypatch.setattr(local, "_native_rename", lambda: None)
    with pytest.raises(UnsupportedStorageError, match="another filesystem"):
        LocalFileSystem().create_exclusive(str(tmp_path / "entry"), b"1")
    assert os.listdir(tmp_path) == []


def test_s33_a_link_whose_answer_got_lost_is_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_and_deny(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)

    monkeypatch.setattr(os, "link", link_and_deny)
    LocalFileSystem().create_exclusive(str(tmp_path / "entry"), b"1")
    assert os.listdir(tmp_path) == ["entry"]


# Staying inside ---------------------------------------------------------------------------------------------


def test_walk_and_delete_do_not_follow_links_out_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "link").symlink_to(tmp_path / "outside")
    fs = LocalFileSystem()
    assert [i.name for i in fs.walk(str(tmp_path / "table"))] == ["link"]
    fs.delete(str(tmp_path / "table" / "link"))
    (tmp_path / "table" / "link").symlink_to(tmp_path / "outside")
    fs.delete(str(tmp_path / "table"))
    assert (tmp_path / "outside" / "precious").exists()
    assert not (tmp_path / "table").exists()


# One directory, for Spark and for us ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_spark_writes_and_reads_where_we_do(spark: SparkSession, tmp_path: Path, name: str, prefix: str) -> None:
    path = f"{prefix}{tmp_path}/x/../{name}/"
    fs = filesystem_for(spark, path)
    qualified = fs.qualify(path)
    spark.createDataFrame([], "id INT").write.mode("overwrite").parquet(path if not prefix else qualified)
    assert os.listdir(tmp_path) == [name]
    assert "_SUCCESS" in [i.name for i in fs.list(qualified)]
    assert spark.read.parquet(escape_glob(qualified)).columns == ["id"]


@pytest.mark.classic("relative paths are the JVM's; on Spark Connect they are this process's")
def test_relative_paths_start_where_sparks_do(
    spark: SparkSession,
    work_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.createDataFrame([], "id INT").write.parquet("lake/t")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))  # Python may wander; the JVM does not
    fs = filesystem_for(spark, "lake/t")
    assert fs.qualify("lake/t") == f"file:{work_dir}/lake/t"
    assert fs.exists("lake/t/_SUCCESS")


def test_a_host_in_a_file_uri_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedStorageError, match=r"Did you mean 'file:///data/t'\?"):
        filesystem_for(spark, "file://data/t").qualify("file://data/t")


# Many files ---------------------------------------------------------------------------------------------------


class AtOnce(LocalFileSystem):
    """Reads as object stores are read."""

    reads_at_once = 16


def test_many_files_are_read_in_order_and_not_many_more_than_are_used() -> None:
    read: list[int] = []

    def one(number: int) -> int:
        read.append(number)
        if number == 170:
            raise FileNotFoundError(number)
        return number

    found = read_many(AtOnce(), one, range(10**20), ahead=(1, 4, 64))
    assert (next(found), read) == (0, [0])
    assert [next(found) for _ in range(4)] == [1, 2, 3, 4]
    assert sorted(read) == [0, 1, 2, 3, 4]
    assert [next(found) for _ in range(5, 170)] == list(range(5, 170))
    with pytest.raises(FileNotFoundError, match="170"):
        next(found)
    assert list(read_many(LocalFileSystem(), one, range(3))) == list(read_many(AtOnce(), one, range(3))) == [0, 1, 2]
    assert list(read_many(AtOnce(), one, [])) == []


# Which storage ----------------------------------------------------------------------------------------------


@pytest.fixture
def default_storage(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    before = configuration.get("fs.defaultFS")
    yield lambda uri: configuration.set("fs.defaultFS", uri)
    configuration.set("fs.defaultFS", before)


@pytest.mark.classic("reaches storage through Hadoop, in Spark's JVM")
def test_a_path_without_scheme_is_where_the_default_storage_is(
    spark: SparkSession, tmp_path: Path, default_storage: Callable[[str], None]
) -> None:
    assert isinstance(filesystem_for(spark, str(tmp_path)), LocalFileSystem)
    default_storage("nowhere://host/")
    with pytest.raises(UnsupportedStorageError, match="'nowhere'"):
        filesystem_for(spark, str(tmp_path))
    assert isinstance(filesystem_for(spark, f"file:{tmp_path}"), LocalFileSystem)


@pytest.mark.classic("reaches storage through Hadoop, in Spark's JVM")
@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("ftp://host/t", "Use one of: .*hdfs"),
        ("s3://bucket/t", "Use 's3a://'"),
        ("wasbs://c@account/t", "Use 'abfss://'"),
        ("s3a://bucket/t", "connector"),  # a session without hadoop-aws
    ],
)
def test_s33_storage_that_promises_nothing_is_refused(spark: SparkSession, path: str, remedy: str) -> None:
    with pytest.raises(UnsupportedStorageError, match=remedy):
        filesystem_for(spark, path)


@pytest.mark.classic("reaches storage through Hadoop, in Spark's JVM")
def test_s33_viewfs_promises_what_is_behind_it(spark: SparkSession, tmp_path: Path) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("fs.viewfs.mounttable.behind.link./data", tmp_path.as_uri())
    with pytest.raises(UnsupportedStorageError, match="'file'"):
        filesystem_for(spark, "viewfs://behind/data/t")


@pytest.mark.classic("reaches storage through Hadoop, in Spark's JVM")
def test_s33_a_conditional_create_that_hadoop_lacks_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    fs = HadoopFileSystem(spark, f"file:{tmp_path}", create="condition")
    with pytest.raises(UnsupportedStorageError, match=r"3\.4\.2"):
        fs.create_exclusive(f"file:{tmp_path}/entry", b"1")
    assert os.listdir(tmp_path) == []


def test_without_a_gateway_local_paths_work_and_others_are_refused(tmp_path: Path) -> None:
    connect = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: default))
    assert isinstance(filesystem_for(connect, str(tmp_path)), LocalFileSystem)
    with pytest.raises(UnsupportedStorageError, match="classic session"):
        filesystem_for(connect, "hdfs://name/t")


def test_a_unicode_path_needs_a_jvm_that_can_write_it(tmp_path: Path) -> None:
    hadoop = SimpleNamespace(
        getDefaultUri=lambda conf: SimpleNamespace(getScheme=lambda: "file"),
        getLocal=lambda conf: SimpleNamespace(getWorkingDirectory=lambda: SimpleNamespace(toString=lambda: "file:/")),
    )
    system = SimpleNamespace(getProperty=lambda name: "ANSI_X3.4-1968")
    jvm = SimpleNamespace(**{"java.lang.System": system, "org.apache.hadoop.fs.FileSystem": hadoop})
    state = SimpleNamespace(sessionState=lambda: SimpleNamespace(newHadoopConf=lambda: None))
    posix = SimpleNamespace(_jvm=jvm, _jsparkSession=state)
    assert filesystem_for(posix, "/plain").qualify("x") == "file:/x"
    with pytest.raises(UnsupportedStorageError, match=r"LC_ALL=C\.UTF-8"):
        filesystem_for(posix, "/ünï")


# Fault points -----------------------------------------------------------------------------------------------


def test_fault_points_do_nothing_unless_asked() -> None:
    for point in FAULT_POINTS:
        faults.fault(point)


def test_a_fault_point_may_wait_for_its_nth_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: killed.append(number))
    visit = faults.killer("here:2")
    visit("elsewhere")
    visit("here")
    assert killed == []
    visit("here")
    assert killed == [signal.SIGKILL]
