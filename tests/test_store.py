"""Every store keeps the contract, and the contract notices stores that do not (S33, S39, S40)."""

from __future__ import annotations

import uuid

import attrs
import pytest
from contract import CHECKS, definition

from trinitymerge.columns import VERSION
from trinitymerge.errors import TrinityMergeError
from trinitymerge.storage.backend import Batches
from trinitymerge.storage.parquet import ManagedBackend
from trinitymerge.storage.publish import VersionTaken

NAMES = [check.__name__.removeprefix("check_") for check in CHECKS]


def managed(spark, directory, file_format="parquet", kind=ManagedBackend):
    store = kind(spark, str(directory / f"table-{uuid.uuid4().hex[:8]}"))
    store.create(definition(file_format), None)
    return store


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_store(check, file_format, spark, tmp_path):
    check(managed(spark, tmp_path, file_format))


# Wrong on purpose -----------------------------------------------------------------------------------------------------


class Overwrites(ManagedBackend):
    """The last writer of a version wins."""

    def commit(self, commit, base):
        try:
            return super().commit(commit, base)
        except VersionTaken:
            self.files.replace(self.log.files.entry_path(commit.version), b"")
            self.files.delete(self.log.files.entry_path(commit.version))
            return super().commit(commit, base)


class ShowsStaged(ManagedBackend):
    """A batch is visible as soon as it is written."""

    def scan(self, batches, extra=()):
        ids = [*self.directories()]
        fields = [*batches.definition.stored_fields, *extra]
        return self.scan_directories(batches.definition, fields, ids).selectExpr("*", f"1L AS {VERSION}")


class ForgetsVersions(ManagedBackend):
    """All rows count as equally old."""

    def scan(self, batches, extra=()):
        return super().scan(batches, extra).drop(VERSION).selectExpr("*", f"1L AS {VERSION}")


class CommitsGhosts(ManagedBackend):
    """A batch is committed whether or not its files are there."""

    def _what_is_wrong(self, batch):
        return ""


class ReadsOver(ManagedBackend):
    """Batches that are gone are left out."""

    def scan(self, batches, extra=()):
        here = tuple(b for b in batches.batches if b.id in self.directories())
        return super().scan(attrs.evolve(batches, batches=here), extra)


class Impatient(ManagedBackend):
    """History newest first, whoever asks."""

    def commits(self, first, last):
        return self.log.commits(first, last)


class Leaky(ManagedBackend):
    """What is discarded stays."""

    def discard(self, staged):
        pass


class OnlyNow(ManagedBackend):
    """Every version is the newest."""

    def snapshot_at(self, version):
        return self.snapshot()


@pytest.mark.parametrize(
    "kind", [Overwrites, ShowsStaged, ForgetsVersions, CommitsGhosts, ReadsOver, Impatient, Leaky, OnlyNow]
)
def test_contract_notices_a_bad_store(kind, spark, tmp_path):
    for check in CHECKS:
        try:
            check(managed(spark, tmp_path, kind=kind))
        except (AssertionError, TrinityMergeError, pytest.fail.Exception):
            return
    pytest.fail(f"no check notices: {kind.__doc__}")


def test_a_scan_of_no_batches_has_the_stored_columns(spark, tmp_path):
    store = managed(spark, tmp_path)
    found = store.scan(Batches(store.snapshot().definition, ()))
    assert found.columns == ["id", "ts", "v", "_tm_deleted", VERSION]
    assert found.isEmpty()
