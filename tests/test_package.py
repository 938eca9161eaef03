"""Stores, file systems and formats of feeds that other packages register as entry points."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import assertRows

from trinitymerge import InvalidMergeError, TrinityTable, UnsupportedStorageError, feeds
from trinitymerge.commands.app import run
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.resolve import filesystem_for

MODULE = """
from trinitymerge.feeds import Format
from trinitymerge.feeds.json_text import scalar
from trinitymerge.feeds.sequences import number_part, sequence_of
from trinitymerge.feeds.wire import as_wire, kinds_of_change, reject
from trinitymerge.fs.local import LocalFileSystem

class Elsewhere(LocalFileSystem):
    def __init__(self, spark, path):
        super().__init__("/elsewhere")

def store(spark, name):
    raise LookupError(name)

def decoded(rows, options):
    is_put = f"m.op = '{options.own['word']}'"
    kinds = [("is_corrupt", reject("unparsable")), *kinds_of_change(is_put, "m.row", "m.op = 'drop'", "m.row")]
    place = sequence_of(options.epoch, [number_part(scalar("m.at"))])
    return as_wire(rows, kinds, {"source": "m.name", "seq": place, "row": "m.row", "key": "m.row"})

FORMAT = Format(
    "somebodys",
    decoded,
    "op: STRING, name: STRING, at: STRING, row: MAP<STRING, STRING>",
    allowed={"word": ("put", "set")},
)

def feed(df, table=None, *, word="put", epoch=1, sequence="log", rename=None):
    return FORMAT.feed(df, table, epoch=epoch, sequence=sequence, rename=rename, word=word)
"""

ENTRY_POINTS = """
[trinitymerge.filesystems]
elsewhere = somebodys_package:Elsewhere

[trinitymerge.stores]
somebodys = somebodys_package:store

[trinitymerge.formats]
somebodys = somebodys_package:feed
"""

MESSAGES = [
    '{"op":"drop","name":"shop.notes","at":3,"row":{"id":2}}',
    '{"op":"set","name":"shop.notes","at":2,"row":{"id":2,"v":"b"}}',
    '{"op":"set","name":"shop.notes","at":1,"row":{"id":1,"v":"a"}}',
    '{"op":"set","name":"shop.notes","at":4}',
    "{cut",
]
COLUMNS = "id INT, v STRING, _seq STRING"


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


def test_F1_a_format_of_another_package_is_merged(spark, tmp_path: Path, package: None) -> None:
    messages = spark.createDataFrame([(message,) for message in MESSAGES], "value STRING")
    table = TrinityTable.create(spark, str(tmp_path / "notes"), COLUMNS, primaryKey="id", watermarkKey="_seq")
    quarantine = TrinityTable.createQuarantine(spark, str(tmp_path / "rejected"))
    feed = feeds.of("somebodys", messages, table="notes", word="set", epoch=2)
    assertRows(feed.rejected(table).select("reason"), [("no-row",), ("unparsable",)])
    counts = table.applyChanges(feed).quarantine(quarantine).execute().feed
    assert (counts.upserts, counts.deletes, counts.rejected) == (2, 1, {"no-row": 1, "unparsable": 1})
    assertRows(table.toDF(), [(1, "a", f"0002/{1:016}")])
    with pytest.raises(InvalidMergeError, match=r"^feeds\.somebodys\(\): word takes 'put' or 'set', got 'get'\.$"):
        feeds.of("somebodys", messages, word="get")
    with pytest.raises(
        InvalidMergeError, match=r"no format 'nobodys'\. Did you mean 'somebodys'\? Known: canal, .*, somebodys\."
    ):
        feeds.of("nobodys", messages)


@pytest.mark.classic("ingest runs on classic sessions")
def test_F1_a_format_of_another_package_is_ingested(spark, tmp_path: Path, package: None, capsys) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(MESSAGES))
    text = f"""
        [source]
        kind = "files"
        path = "{tmp_path}/in"
        [feed]
        format = "somebodys"
        word = "set"
        [target]
        root = "{tmp_path}/lake"
        quarantine = "rejected"
        [[table]]
        path = "notes"
        keys = ["id"]
        schema = "id INT, v STRING"
    """
    (tmp_path / "ingest.toml").write_text(text)
    assert run(["ingest", str(tmp_path / "ingest.toml"), "--once"]) == 0, capsys.readouterr()
    assertRows(TrinityTable.forPath(spark, f"{tmp_path}/lake/notes").toDF().select("id", "v"), [(1, "a")])
    kept = TrinityTable.forPath(spark, f"{tmp_path}/lake/rejected").toDF()
    assertRows(kept.select("reason"), [("no-row",), ("unparsable",)])
    (tmp_path / "ingest.toml").write_text(text.replace("word =", "wrod ="))
    assert run(["ingest", str(tmp_path / "ingest.toml"), "--once"]) != 0
    assert "[feed] wrod is unknown for somebodys. Did you mean 'word'?" in capsys.readouterr().err
