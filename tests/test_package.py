"""Stores and file systems that other packages register as entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from trinitymerge import TrinityTable, UnsupportedStorageError
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.resolve import filesystem_for

MODULE = """
from trinitymerge.fs.local import LocalFileSystem

class Elsewhere(LocalFileSystem):
    def __init__(self, spark, path):
        super().__init__("/elsewhere")

def store(spark, name):
    raise LookupError(name)
"""

ENTRY_POINTS = """
[trinitymerge.filesystems]
elsewhere = somebodys_package:Elsewhere

[trinitymerge.stores]
somebodys = somebodys_package:store
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package, as if it were installed."""
    (tmp_path / "somebodys_package.py").write_text(MODULE)
    (tmp_path / "somebodys_package-1.0.dist-info").mkdir()
    (tmp_path / "somebodys_package-1.0.dist-info" / "METADATA").write_text("Name: somebodys_package\nVersion: 1.0\n")
    (tmp_path / "somebodys_package-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_file_system_of_another_package_is_found_by_its_scheme(package: None) -> None:
    found = filesystem_for(None, "elsewhere://host/t")
    assert (type(found).__name__, isinstance(found, LocalFileSystem)) == ("Elsewhere", True)
    with pytest.raises(
        UnsupportedStorageError, match=r"'nobodys://host/t' can only be reached through Spark\. Without"
    ):
        filesystem_for(None, "nobodys://host/t")


def test_a_store_of_another_package_is_found_by_its_format(spark, package: None) -> None:
    with pytest.raises(LookupError, match=r"db\.t"):
        TrinityTable.create(spark, "db.t", "id INT", "id", using="Somebodys")
    with pytest.raises(
        UnsupportedStorageError, match=r"no store for the format 'nobodys'.*'iceberg', 'somebodys', not"
    ):
        TrinityTable.create(spark, "db.t", "id INT", "id", using="nobodys")
