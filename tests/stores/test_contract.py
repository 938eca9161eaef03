"""Every store keeps the contract, and the contract notices stores that do not (S33, S39, S40).

And a table can be kept in a store that does no more than every store must; what it has no means for is refused.
"""

from __future__ import annotations

import functools
import uuid

import attrs
import contract
import pytest
import tables
from contract import CHECKS, checks_of, definition

from trinitymerge import TrinityTable, table
from trinitymerge.errors import TableNotFoundError, UnsupportedStorageError
from trinitymerge.log.actions import AddBatch, Batch, RemoveBatch, SetDefinition
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import VersionConflict
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import VERSION
from trinitymerge.stores.base import ManagedStore, TableStore, require_files
from trinitymerge.stores.managed import DirectoryStore

NAMES = [check.__name__.removeprefix("check_") for check in CHECKS]


def managed(spark, directory, file_format="parquet", kind=DirectoryStore):
    store = kind(spark, f"{tables.ROOT or directory}/table-{uuid.uuid4().hex[:8]}")
    store.create(definition(file_format), None)
    return store


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_contract(check, file_format, spark, tmp_path):
    check(managed(spark, tmp_path, file_format))


# No more than it must -------------------------------------------------------------------------------------------------


class Plain:
    """A store that has the methods of ``TableStore`` and no others."""

    def __init__(self, spark, path, using=None):
        store = DirectoryStore(spark, path)
        self.spark, self.path = spark, store.path
        for name in PLAIN:
            setattr(self, name, getattr(store, name))


PLAIN = [name for name in dir(TableStore) if not name.startswith("_")]

REFUSED = {
    "vacuum()": lambda spark, t: t.vacuum(),
    "restore()": lambda spark, t: t.restore(0),
    "purge()": lambda spark, t: t.purge([1]),
    "purgeWhere()": lambda spark, t: t.purgeWhere("id = 1"),
    "clone()": lambda spark, t: t.clone(f"{t.path}-clone"),
    "health()": lambda spark, t: t.health(),
    "why()": lambda spark, t: t.why(1),
}


@pytest.fixture
def plain(spark, tmp_path, monkeypatch):
    """A table in such a store, opened by the front door."""
    monkeypatch.setattr(table, "open_store", Plain)
    schema, properties = "id INT, v STRING", {"trinitymerge.compactAfterBatches": "1"}
    return TrinityTable.create(spark, str(tmp_path / "plain"), schema, primaryKey="id", properties=properties)


def test_a_plain_store_keeps_its_part_of_the_contract(spark, tmp_path):
    asked = checks_of(managed(spark, tmp_path, kind=Plain))
    assert 0 < len(asked) < len(CHECKS) == len(checks_of(managed(spark, tmp_path)))
    for check in asked:
        check(managed(spark, tmp_path, kind=Plain))


def test_what_a_store_can_do_is_what_it_has_methods_for(spark, tmp_path):
    store, managed_one = Plain(spark, str(tmp_path)), DirectoryStore(spark, str(tmp_path))
    assert [isinstance(each, ManagedStore) for each in (store, managed_one)] == [False, True]


def test_a_table_can_be_kept_in_a_plain_store_and_is_compacted_as_a_whole(plain, spark):
    for value in ("a", "b", "c"):
        result = plain.upsert(spark.sql(f"SELECT 1 AS id, '{value}' AS v")).execute()
    assert (result.version, result.hint, plain.version) == (3, "compacted into version 4", 4)
    opened = TrinityTable.forPath(spark, plain.path)
    assert [tuple(r) for r in opened.toDF().collect()] == [(1, "c")]
    assert [r["operation"] for r in opened.history().collect()] == ["COMPACT", "UPSERT", "UPSERT", "UPSERT", "CREATE"]
    assert [tuple(r) for r in TrinityTable.forPath(spark, plain.path, versionAsOf=1).toDF().collect()] == [(1, "a")]
    assert TrinityTable.isTrinityTable(spark, plain.path)
    assert "version 4" in repr(opened)


@pytest.mark.parametrize("call", REFUSED)
def test_S33_what_a_store_has_no_means_for_is_refused(call, plain, spark):
    with pytest.raises(UnsupportedStorageError) as refused:
        REFUSED[call](spark, plain)
    assert (refused.value.call, refused.value.store, refused.value.path) == (call, "Plain", plain.path)
    assert str(refused.value).startswith(f"{call} is not possible for '{plain.path}': Plain does not manage")
    assert plain.version == 0


# Lost versions --------------------------------------------------------------------------------------------------------


class Vacuumed:
    """A log without storage: some batches are lost, and it is noted after which ones was asked."""

    path = "memory"

    def __init__(self, commits, lost):
        self.log, self.lost, self.asked = commits, lost, []

    def commits(self, first, last):
        return iter(self.log[first : last + 1])

    def snapshot_at(self, version):
        return functools.reduce(Snapshot.apply, self.log[1 : version + 1], Snapshot.created(self.log[0]))

    def snapshot(self):
        return self.snapshot_at(len(self.log) - 1)

    def missing(self, batches):
        self.asked.append([b.id for b in batches])
        return [b for b in batches if b.id in self.lost]


def vacuumed(*changes, lost):
    """Commits that each add a batch, and remove some."""
    created = Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition("parquet"))])
    commits = [
        Commit(
            version=n,
            timestamp_ms=n + 1,
            operation="X",
            actions=[*map(RemoveBatch, removed), AddBatch(some_batch(added))],
        )
        for n, (added, *removed) in enumerate(changes, 1)
    ]
    return Vacuumed([created, *commits], lost)


def some_batch(name):
    return Batch(id=name, rows=1, tombstones=0, files=1, bytes=1)


def test_S40_what_shares_a_lost_batch_is_not_looked_for_again():
    store = vacuumed("a", "b", "c", "dabc", "e", lost="abc")
    with pytest.raises(TableNotFoundError, match=r"Version 2 of memory .*batch a and 1 more.*from 4 on can"):
        require_files(store, store.snapshot_at(2))
    assert store.asked == [["a", "b"], ["d"]]
    require_files(store, store.snapshot_at(4))


def test_S40_after_a_lost_version_another_may_be_lost_too():
    store = vacuumed("a", "ba", "cb", lost="abc")
    with pytest.raises(TableNotFoundError, match="no later version can either"):
        require_files(store, store.snapshot_at(1))
    assert store.asked == [["a"], ["b"], ["c"]]


# Wrong on purpose -----------------------------------------------------------------------------------------------------


class Overwrites(DirectoryStore):
    """The last writer of a version wins."""

    def commit(self, commit, base):
        try:
            return super().commit(commit, base)
        except VersionConflict:
            self.files.replace(self.log.files.entry_path(commit.version), b"")
            self.files.delete(self.log.files.entry_path(commit.version))
            return super().commit(commit, base)


class ShowsStaged(DirectoryStore):
    """A batch is visible as soon as it is written."""

    def scan(self, batches, extra=()):
        ids = [*self.directories()]
        fields = [*batches.definition.stored_fields, *extra]
        return self.scan_directories(batches.definition, fields, ids).selectExpr("*", f"1L AS {VERSION}")


class ForgetsVersions(DirectoryStore):
    """All rows count as equally old."""

    def scan(self, batches, extra=()):
        return super().scan(batches, extra).drop(VERSION).selectExpr("*", f"1L AS {VERSION}")


class CommitsGhosts(DirectoryStore):
    """A batch is committed whether or not its files are there."""

    def _file_mismatch(self, batch):
        return ""


class ReadsOver(DirectoryStore):
    """Batches that are gone are left out."""

    def scan(self, batches, extra=()):
        here = tuple(b for b in batches.batches if b.id in self.directories())
        return super().scan(attrs.evolve(batches, batches=here), extra)


class Impatient(DirectoryStore):
    """History newest first, whoever asks."""

    def commits(self, first, last):
        return self.log.commits(first, last)


class Leaky(DirectoryStore):
    """What is discarded stays."""

    def discard(self, staged):
        pass


class OneRange(DirectoryStore):
    """All batches have the range of the last one."""

    def note_range(self, batch_id, keys):
        self.last = keys

    def ranges_of(self, batches):
        return [self.last] * len(batches)


class OnlyNow(DirectoryStore):
    """Every version is the newest."""

    def snapshot_at(self, version):
        return self.snapshot()


class OneVersion(DirectoryStore):
    """Versions are told right with the rows, and wrong beside them."""

    def scan_and_version(self, batches):
        return super().scan_and_version(batches)[0], Sql("1L")


class Loses(DirectoryStore):
    """Of what is divided, the last part is lost."""

    def split(self, staged, count):
        return super().split(staged, count)[:-1]


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Overwrites, contract.check_a_version_is_committed_once),
        (Overwrites, contract.check_requirements_are_asked_about_what_landed),
        (ShowsStaged, contract.check_a_batch_is_seen_as_a_whole_and_only_when_committed),
        (ShowsStaged, contract.check_a_snapshot_reads_the_same_whatever_comes_later),
        (ForgetsVersions, contract.check_rows_count_as_the_version_that_committed_them),
        (CommitsGhosts, contract.check_a_batch_without_its_files_is_not_committed),
        (CommitsGhosts, contract.check_a_table_begins_with_batches_or_not_at_all),
        (ReadsOver, contract.check_lost_files_are_named_not_read_over),
        (Impatient, contract.check_the_history_is_complete_and_in_order),
        (Leaky, contract.check_maintenance_sees_every_batch),
        (Leaky, contract.check_what_was_made_for_a_table_that_is_none_goes),
        (OneRange, contract.check_the_range_of_a_batch_is_its_own_or_unknown),
        (OnlyNow, contract.check_past_versions_can_be_read),
        (OneVersion, contract.check_versions_are_told_either_way),
        (Loses, contract.check_a_batch_is_divided_into_its_files),
    ],
    ids=lambda given: given.__name__.removeprefix("check_"),
)
def test_contract_notices_a_bad_store(kind, check, spark, tmp_path):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(managed(spark, tmp_path, kind=kind))


def test_a_scan_of_no_batches_has_the_stored_columns(spark, tmp_path):
    store = managed(spark, tmp_path)
    found = store.scan(Batches(store.snapshot().definition, ()))
    assert found.columns == ["id", "ts", "v", "_tm_deleted", VERSION]
    assert found.isEmpty()
