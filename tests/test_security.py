"""Names, paths, values and log entries come from others: none may become code, and none may leave the table's directory."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import assertRows, quickly
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType
from tables import batch_directories, directory_of, fill, frame, live_rows, merge_into, new_table
from test_log import batch, create, file_of

from trinitymerge import (
    CorruptTableError,
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    TrinityTable,
    UnsupportedStorageError,
)
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.expressions import quote
from trinitymerge.storage.entries import Commit
from trinitymerge.storage.envelope import seal, unseal
from trinitymerge.storage.filesystem import LocalFileSystem
from trinitymerge.storage.forgotten import Purged
from trinitymerge.storage.log import CommitLog

# Names of columns -----------------------------------------------------------------------------------------------------

NAMES = [
    "a.b",
    "tick`tock",
    "it's",
    'say "hi"',
    " two  words ",
    "x; DROP TABLE t",
    "x -- y",
    "a /* b",
    "größe 码 🙂",
    "1) OR (1=1",
    "` OR 1=1 --",
    "back\\slash'",
    "*",
    "select",
    "$(HOME) $x {y}",
    "target.id",
    "`quoted`",
    "new\nline",
    "a=b,c%20d",
    "0",
]
"""Each plays every role of a column in turn."""


@pytest.fixture
def roles(request) -> list[str]:
    """The names, turned so that another four of them are key, watermark, tombstone and value."""
    turn = request.param
    return [*NAMES[turn:], *NAMES[:turn]]


def rotations() -> list:
    return [pytest.param(i, marks=[] if i % 10 == 0 else [pytest.mark.long], id=NAMES[i]) for i in range(len(NAMES))]


@pytest.mark.slow
@pytest.mark.parametrize("roles", rotations(), indirect=True)
def test_no_column_name_breaks_out_of_an_expression(spark, tmp_path, roles):
    key, watermark, tombstone, value, *others = roles
    k, w, v = map(quote, (key, watermark, value))
    schema = StructType([StructField(name, StringType()) for name in roles])
    table = new_table(spark, tmp_path, schema, primaryKey=key, watermarkKey=watermark, tombstoneKey=tombstone)

    def rows(*given: tuple[str, str, str | None, str]) -> Any:
        return spark.createDataFrame([(*row, *others) for row in given], schema)

    def live() -> list[tuple]:
        found = sorted(tuple(row) for row in table.toDF().collect())
        assert all(row[4:] == tuple(others) for row in found)
        return [(row[0], row[1], row[3]) for row in found]

    first = rows(("1", "1", None, "a"), ("2", "1", None, "a"), ("3", "1", None, "a"))
    assert table.upsert(first).execute().path == "blind append"
    changes = rows(("1", "2", None, "b"), ("2", "2", None, "b"), ("4", "2", None, "b"))
    merge = (
        table.alias("A ` '")
        .merge(changes.alias("B"), F.expr(f"`A `` '`.{k} = B.{k}"))
        .whenMatched(f"B.{v} = 'b' AND `A `` '`.{k} = '2'")
        .delete()
        .whenMatched(f"`A `` '`.{v} <> B.{v}")
        .updateExpr({value: f"concat(`A `` '`.{v}, B.{v})", f"`A `` '`.{w}": F.col(f"B.{w}")})
        .whenNotMatched(f"B.{k} <> 'x'")
        .insertAll()
        .whenNotMatchedAndExistsOnlyOnTarget(f"`A `` '`.{k} = '3'")
        .updateExpr({v: "'only'"})
    )
    plan = merge.build()
    assert value in plan.explain()
    assert {row["_tm_action"] for row in plan.preview().collect()} == {"delete", "update", "insert"}
    result = plan.execute()
    assert (result.rowsInserted, result.rowsUpdated, result.rowsDeleted) == (1, 2, 1)
    expected = [("1", "2", "ab"), ("3", "1", "only"), ("4", "2", "b")]
    assert live() == expected
    keyed = table.merge(rows(("1", "3", None, "c"))).whenMatched(f"target.{v} = 'ab'").updateAll(exceptColumns=[value])
    assert keyed.execute().path == "keyed lookup"
    moved = table.updateWhere(f"{k} = '4'", {key: "'5'"})
    assert moved.execute().rowsUpdated == 1
    expected = [("1", "3", "ab"), ("3", "1", "only"), ("5", "2", "b")]
    assert live() == expected
    assert table.toDF().filter(f"{k} = '5' AND {v} = 'b'").count() == 1
    with pytest.raises(NullKeyError):
        table.upsert(rows((None, "1", None, "a"))).execute()
    table.compact()
    assert (live(), table.health().liveRows) == (expected, 3)
    assert TrinityTable.forPath(spark, table.path, versionAsOf=1).toDF().count() == 3
    assert table.purge([{key: "1"}]).rowsRemoved == 1
    assert table.upsert(rows(("1", "9", None, "z"))).execute().rowsPurged == 1
    table.vacuum(retentionHours=0)
    assert live() == expected[1:]
    assert TrinityTable.forPath(spark, table.path).definition.names == tuple(roles)


@pytest.mark.parametrize("name", ["_tm_batch", "_TM_x", "_tm_deleted"])
def test_hidden_names_are_refused(spark, tmp_path, name):
    with pytest.raises(InvalidDefinitionError, match=f"'{name}' starts with '_tm_', which is reserved.*rename"):
        new_table(spark, tmp_path, f"id INT, {name} INT")
    table = new_table(spark, tmp_path, "id INT, v STRING")
    with pytest.raises(InvalidMergeError, match=rf"start with '_tm_' \({name}\).*[Rr]ename"):
        table.upsert(spark.sql(f"SELECT 1 AS id, 'a' AS v, 2 AS `{name}`")).execute()


@pytest.mark.parametrize("name", ["${env:HOME}", "x${spark.app.name}y"])
@pytest.mark.parametrize("nested", [False, True])
def test_names_that_spark_would_replace_by_settings_are_refused(name, nested):
    """Spark's parser puts settings, and the environment, in their place even between backticks."""
    inner = {"type": "struct", "fields": [Field(name, "string").to_json()]}
    field = (
        Field("v", {"type": "array", "elementType": inner, "containsNull": True}) if nested else Field(name, "string")
    )
    with pytest.raises(InvalidDefinitionError, match="which Spark would replace by a setting"):
        TableDefinition.of([Field("id", "long"), field], "id")


TEXTS = ["it's", "\\' OR 1=1 --", "${env:HOME}\n", "' OR '1'='1", 'a"b`c', "D\n", "🙂"]


@pytest.mark.parametrize("text", quickly(TEXTS, TEXTS[:3]))
def test_values_are_literals(spark, tmp_path, text):
    """A tombstone value, a comment, properties, an application's name, and rows that hold SQL."""
    table = new_table(
        spark,
        tmp_path,
        "id STRING, state STRING",
        tombstoneKey="state",
        tombstoneStringValue=text,
        comment=text,
        properties={f"own.{text}": text},
    )
    fill(table, spark, [(text, "alive"), ("2", "alive")], [("2", text)])
    assertRows(table.toDF(), [(text, "alive")])
    table.upsert(frame(spark, "id STRING, state STRING", ("3", "x"))).withTransaction(text, 1).execute()
    table.deleteWhere(F.col("id") == "3").execute()
    table.compact()
    opened = TrinityTable.forPath(spark, table.path)
    assertRows(opened.toDF(), [(text, "alive")])
    assert (opened.definition.comment, opened.definition.properties[f"own.{text}"]) == (text, text)
    assert opened._snapshot().transactions == {text: 1}
    opened.purge([text])
    assertRows(opened.toDF(), [])


# Paths ----------------------------------------------------------------------------------------------------------------

PATHS = [
    "with space",
    "100%20",
    "what?",
    "h#sh",
    "star*",
    "sales[24]",
    "{a,b}",
    "semi;colon",
    "quote's",
    'double"',
    "tick`",
    "a=b&c",
    "ümläut 码",
    "$HOME ${x}",
    "~",
    "-rf",
    "_tm_batch=x",
    "new\nline",
    "back\\slash",
]


@pytest.mark.slow
def test_paths_mean_what_they_say_and_nothing_beside_them_is_touched(spark, tmp_path):
    """A pattern in a table's path must neither read nor remove what it would match."""
    decoys = {name: tmp_path / name for name in ("sales2", "star1", "a", "b", "whatx")}
    table = fill(new_table(spark, tmp_path, "id INT"), spark, [(99,)])
    for decoy in decoys.values():
        shutil.copytree(directory_of(table), decoy)
    before = contents(tmp_path)
    made = []
    for name in PATHS:
        table = TrinityTable.create(spark, str(tmp_path / name), "id INT", primaryKey="id")
        merge_into(fill(table, spark, [(1,)]), spark, [(2,)])
        assert TrinityTable.forPath(spark, str(tmp_path / name)).toDF().count() == 2, name
        made.append(name)
    for name in PATHS[:8]:
        table = TrinityTable.forPath(spark, str(tmp_path / name))
        assert table.compact().rows == 2
        assert table.purge([1]).rowsRemoved == 1
        table.vacuum(retentionHours=0)
        assert len(batch_directories(table)) == 1
        assertRows(table.toDF(), [2])
    assert {p.name for p in tmp_path.iterdir()} == {path.parts[0] for path in before} | set(made)
    assert {path: c for path, c in contents(tmp_path).items() if path.parts[0] not in made} == before


def contents(root: Path) -> dict[Path, bytes]:
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_dots_are_resolved_by_name(spark, tmp_path):
    table = TrinityTable.create(spark, f"{tmp_path}/x/../y/./t", "id INT", primaryKey="id")
    merge_into(table, spark, [(1,)])
    assert table.path == f"file:{tmp_path}/y/t"
    assert [p.name for p in tmp_path.iterdir()] == ["y"]


# Log entries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../precious", "/precious", "a/../../../precious", "x\n", ".", "..", "%2e%2e"])
def test_s33_a_forged_batch_cannot_point_outside(spark, tmp_path, name):
    """Whatever an entry names, nothing outside is read or removed, and the entry is named in the error."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "part-0.parquet").write_bytes(b"x")
    table = fill(new_table(spark, tmp_path, "id INT"), spark, [(1,)])
    forge(table, {"added": [{**batch("x").to_json(), "id": name, "rows": 1}]})
    calls = [
        lambda: TrinityTable.forPath(spark, table.path).toDF().collect(),
        table.compact,
        lambda: table.vacuum(retentionHours=0),
        lambda: table.purge([1]),
        lambda: table.restore(1),
        lambda: merge_into(table, spark, [(2,)]),
    ]
    for call in calls:
        with pytest.raises(CorruptTableError, match=r"0002\.json.*batch id"):
            call()
    assert (precious / "part-0.parquet").read_bytes() == b"x"
    assert len(batch_directories(table)) == 1


def forge(table: TrinityTable, fields: dict[str, Any]) -> None:
    """Puts an entry on top of a table's log that has the right checksum and the wrong content."""
    log = CommitLog(LocalFileSystem(), str(directory_of(table)))
    snapshot = log.newest()
    commit = snapshot.next_commit("MERGE", previous=snapshot.checksum)
    file_of(log, commit.version).write_bytes(seal({**commit.to_json(), **fields})[0])


def test_links_in_the_data_directory_lead_nowhere(spark, tmp_path):
    """Vacuum and purge remove a link, or leave it, but never what it points to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.parquet").write_bytes(b"x")
    table = fill(new_table(spark, tmp_path, "id INT"), spark, [(1,)])
    data = directory_of(table) / "data"
    (data / "_tm_batch=link").symlink_to(outside)
    (data / "_tm_batch=left").mkdir()
    (data / "_tm_batch=left" / "link").symlink_to(outside)
    table.vacuum(retentionHours=0)
    assert not (data / "_tm_batch=left").exists()
    table.purge([1])
    assert (outside / "precious.parquet").read_bytes() == b"x"


CANARY = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
"""


@pytest.mark.parametrize("place", ["a column", "a field of a struct", "an array", "a map"])
def test_a_forged_type_runs_no_code(tmp_path, monkeypatch, place):
    """Spark's own reader of types would import, and in older versions unpickle, what a user-defined type names."""
    (tmp_path / "canary.py").write_text(CANARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    evil = {"type": "udt", "class": None, "pyClass": "canary.X", "serializedClass": "gASVCgAAAAA=", "sqlType": "string"}
    kinds = {
        "a column": evil,
        "a field of a struct": {"type": "struct", "fields": [Field("x", evil).to_json()]},
        "an array": {"type": "array", "elementType": evil, "containsNull": True},
        "a map": {"type": "map", "keyType": "string", "valueType": evil, "valueContainsNull": True},
    }
    log, snapshot = create(tmp_path)
    data = snapshot.next_commit("CHANGE", definition=snapshot.definition, previous=snapshot.checksum).to_json()
    data["definition"]["fields"].append(Field("evil", kinds[place]).to_json())
    file_of(log, 1).write_bytes(seal(data)[0])
    with pytest.raises(CorruptTableError, match=r"0001\.json.*'evil'.*is of no type a table can store"):
        log.newest()
    with pytest.raises(InvalidDefinitionError, match="no type a table can store"):
        TableDefinition.of([Field("id", "long"), Field("evil", kinds[place])], "id")
    assert not (tmp_path / "ran").exists()
    assert "canary" not in sys.modules


NONSENSE = [None, True, -1, 1.5, 10**30, "x", "../../x", "__import__('os')", [], ["x", 1, 2], {"a": 1}]


def places(data: Any, at: tuple = ()) -> Iterator[tuple]:
    """The paths to all values within some JSON."""
    yield at
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*at, key))


def replaced(data: Any, at: tuple, value: Any) -> Any:
    """The same JSON with another value at one place."""
    if not at:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[at[0]] = replaced(data[at[0]], at[1:], value)
    return copy


@pytest.mark.parametrize("checkpoint", [False, True])
def test_s33_whatever_stands_in_an_entry_is_data_or_refused(tmp_path, checkpoint, caplog):
    """Any value at any place, checksum and all: the table opens, or its error names the file. Nothing else."""
    caplog.set_level(logging.CRITICAL)
    log, base = create(tmp_path, interval=1)
    commit = base.next_commit(
        "MERGE",
        definition=base.definition,
        added=[batch("x", watermark_min=(1,), version=1)],
        transaction=("app", 1),
        horizon=(1,),
        purged=Purged("ab", ["cd"]),
        metrics={"rows": 1},
    )
    log.commit(commit, base)
    file = file_of(log, 1, checkpoint)
    good = unseal(file.read_bytes())[0]
    refusals = []
    for at, value in itertools.product(places(good), NONSENSE):
        changed = replaced(good, at, value)
        if isinstance(changed, dict):
            file.write_bytes(seal(changed)[0])
            refusals.append(refusal(log))
    assert all("0001" in text for text in refusals if text)
    assert checkpoint or sum(map(bool, refusals)) > 100


def refusal(log: CommitLog) -> str:
    """Why a log cannot be opened; an empty string if it can, and then what it gives is whole."""
    try:
        opened = log.newest()
    except (CorruptTableError, UnsupportedStorageError) as error:
        return str(error)
    opened.apply(opened.next_commit("NEXT", transaction=("app", 5)))
    assert len(opened.definition.schema.names) == len(opened.definition.fields)
    assert all(b.id == "x" for b in opened.batches)
    return ""


def test_json_that_only_looks_like_data_is_refused(tmp_path):
    log, base = create(tmp_path)
    commit = Commit(version=1, timestamp_ms=base.timestamp_ms + 1, operation="X", previous=base.checksum).to_json()
    for nonsense in (json.loads("[" * 900 + "]" * 900), float("nan"), "\ud800", "\0"):
        file_of(log, 1).write_bytes(seal({**commit, "version": nonsense})[0])
        assert "0001" in refusal(log)


def test_purging_hostile_tables_leaves_no_key_in_the_log(spark, tmp_path):
    table = fill(
        new_table(spark, tmp_path, "`k'` STRING, v STRING", primaryKey="k'"), spark, [("it's me", "a"), ("b", "b")]
    )
    table.purge(["it's me"])
    assert live_rows(table) == [("b", "b")]
    assert not any(b"it's me" in f.read_bytes() for f in (directory_of(table) / "_trinity_log").iterdir())
