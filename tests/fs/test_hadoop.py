"""S33: exclusive creation on HDFS, ABFS, GCS and S3A, each against a fake that loses races, fails half-way and answers late."""

from __future__ import annotations

import pytest
from fakehadoop import Fate, JavaError, Storage, after_other, answer_lost, comes_later, denied, fails

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.fs import hadoop
from trinitymerge.fs.hadoop import HadoopFileSystem
from trinitymerge.log.actions import SetDefinition
from trinitymerge.log.commit import CommitStateUnknown, VersionConflict
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

PUBLISHES = {"hdfs": "rename", "abfs": "rename", "gs": "close", "s3a": "close"}
"""The call that gives an entry its name."""
ROOTS = {"hdfs": "hdfs://name", "abfs": "abfs://c@account", "gs": "gs://bucket", "s3a": "s3a://bucket"}


@pytest.fixture(params=PUBLISHES)
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setattr(hadoop, "_trusted", {"bucket"})
    return Storage(request.param, conditional=True)


def on(storage: Storage) -> tuple[HadoopFileSystem, str]:
    """A filesystem, and the path of a file that is to be created."""
    root = ROOTS[storage.kind]
    return storage.filesystem(root), f"{root}/t/_trinity_log/5.json"


def test_s33_what_was_created_is_not_created_again(storage: Storage) -> None:
    fs, path = on(storage)
    fs.create_exclusive(path, b"first")
    with pytest.raises(FileExistsError, match=r"5\.json"):
        fs.create_exclusive(path, b"second")
    assert storage.files == {path: b"first"}


def test_s33_a_race_is_lost_at_the_last_moment(storage: Storage) -> None:
    """After every look at what is there: between the check and the rename, or before the stream is closed."""
    fs, path = on(storage)
    storage.at(PUBLISHES[storage.kind], after_other(path, b"other"))
    with pytest.raises(FileExistsError):
        fs.create_exclusive(path, b"mine")
    assert storage.files == {path: b"other"}


def test_s33_an_answer_that_is_lost_is_no_lost_file(storage: Storage) -> None:
    fs, path = on(storage)
    storage.at(PUBLISHES[storage.kind], answer_lost)
    fs.create_exclusive(path, b"mine")
    assert storage.files == {path: b"mine"}


def test_s33_a_client_that_repeats_what_it_did_is_told_that_it_exists(storage: Storage) -> None:
    def repeated(storage: Storage, call: object) -> object:
        call()
        return call()

    fs, path = on(storage)
    storage.at(PUBLISHES[storage.kind], repeated)
    fs.create_exclusive(path, b"mine")
    assert storage.files == {path: b"mine"}


@pytest.mark.parametrize("moment", ["write", "publish"])
def test_s33_a_failure_leaves_nothing(storage: Storage, moment: str) -> None:
    fs, path = on(storage)
    storage.at(PUBLISHES[storage.kind] if moment == "publish" else moment, fails)
    with pytest.raises(OSError, match="connection reset") as failed:
        fs.create_exclusive(path, b"mine")
    assert type(failed.value) is OSError  # whoever reads it must not take it for an answer
    assert storage.files == {}


def test_s33_a_file_that_cannot_be_closed_has_no_name(storage: Storage) -> None:
    fs, path = on(storage)
    storage.at("close", fails)
    with pytest.raises(OSError, match="connection reset"):
        fs.create_exclusive(path, b"mine")
    assert storage.files == {}


@pytest.mark.parametrize("look", ["exists", "read"])
def test_s33_who_may_not_look_does_not_know(storage: Storage, look: str) -> None:
    """A token that expires after a request whose answer was lost: that the look is refused says nothing of the request."""
    fs, path = on(storage)
    storage.at(PUBLISHES[storage.kind], answer_lost)
    storage.at(look, denied)
    with pytest.raises(OSError, match="could not be found out") as failed:
        fs.create_exclusive(path, b"mine")
    assert type(failed.value) is OSError
    assert storage.files == {path: b"mine"}


@pytest.mark.parametrize("kind", ["hdfs", "abfs"])
def test_s33_a_temporary_file_that_stays_changes_nothing(kind: str) -> None:
    storage = Storage(kind)
    fs, path = on(storage)
    storage.at("delete", denied)
    fs.create_exclusive(path, b"mine")
    storage.at("delete", denied)
    with pytest.raises(FileExistsError):
        fs.create_exclusive(path, b"again")
    assert storage.files[path] == b"mine"


# The log over them ----------------------------------------------------------------------------------------------------


@pytest.fixture
def table(storage: Storage) -> tuple[CommitLog, Snapshot]:
    log = CommitLog(storage.filesystem(ROOTS[storage.kind]), f"{ROOTS[storage.kind]}/t")
    definition = TableDefinition.of([Field("id", "long")], "id")
    return log, log.create(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition)]))


def first_entry(log: CommitLog, storage: Storage, fate: Fate) -> None:
    """What becomes of the next entry: not of hints, which come after it."""
    storage.at(PUBLISHES[storage.kind], fate)


def test_s33_a_commit_whose_answer_was_lost_stands(storage: Storage, table: tuple[CommitLog, Snapshot]) -> None:
    log, base = table
    first_entry(log, storage, answer_lost)
    assert log.commit(base.next_commit("MERGE"), base) == log.newest()


def test_s33_a_commit_that_comes_later_is_not_called_failed(
    storage: Storage, table: tuple[CommitLog, Snapshot]
) -> None:
    log, base = table
    first_entry(log, storage, comes_later)
    with pytest.raises(CommitStateUnknown):
        log.commit(base.next_commit("MERGE"), base)
    if storage.kind in ("hdfs", "abfs"):
        with pytest.raises(
            JavaError, match="tmp"
        ):  # the writer has removed its temporary file: too late for the rename
            storage.pending.pop()()
        assert log.newest() == base
    else:
        storage.pending.pop()()
        assert log.newest().version == 1


def test_s33_a_commit_that_comes_later_replaces_nothing(storage: Storage, table: tuple[CommitLog, Snapshot]) -> None:
    log, base = table
    first_entry(log, storage, comes_later)
    with pytest.raises(CommitStateUnknown):
        log.commit(base.next_commit("MERGE", user="slow"), base)
    after = log.commit(base.next_commit("MERGE", user="other"), base)
    with pytest.raises(JavaError, match=r"Precondition|json"):
        storage.pending.pop()()
    assert log.newest() == after


def test_s33_the_winner_of_a_lost_race_is_named(storage: Storage, table: tuple[CommitLog, Snapshot]) -> None:
    log, base = table
    other = CommitLog(log.files.fs, log.files.table_path)

    def beaten(storage: Storage, call: object) -> object:
        other.commit(base.next_commit("MERGE", user="other"), base)
        return call()

    first_entry(log, storage, beaten)
    with pytest.raises(VersionConflict, match="MERGE by other"):
        log.commit(base.next_commit("MERGE", user="me"), base)
    assert next(log.commits()).user == "other"


def test_s33_without_a_conditional_create_s3a_is_refused_with_both_remedies() -> None:
    storage = Storage("s3a")
    fs, path = on(storage)
    with pytest.raises(UnsupportedStorageError, match=r"3\.4\.2.*trinitymerge\[s3\]"):
        fs.create_exclusive(path, b"1")
    assert storage.files == {}


def test_s33_a_store_that_ignores_the_condition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hadoop, "_trusted", set())
    storage = Storage("s3a", conditional=True)
    storage.keeps_conditions = False
    fs, path = on(storage)
    with pytest.raises(UnsupportedStorageError, match="has overwritten an object"):
        fs.create_exclusive(path, b"1")
    assert storage.files == {}
    storage.keeps_conditions = True
    storage.at("close", answer_lost, answer_lost)
    fs.create_exclusive(path, b"1")
    assert storage.files == {path: b"1"}
    assert hadoop._trusted == {"bucket"}


def test_s33_abfs_without_a_hierarchical_namespace_is_refused() -> None:
    storage = Storage("abfs")
    storage.is_hierarchical = False
    fs, path = on(storage)
    with pytest.raises(UnsupportedStorageError, match=r"no hierarchical namespace.*Use an account"):
        fs.create_exclusive(path, b"1")
    assert storage.files == {}
