"""Names, paths, values and log entries come from others: none may become code, and none may leave the table's directory."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import attrs
import hostile
import pytest
from helpers import assertRows, quickly
from hostile import VALUES, places, replaced, sealed, sealed_text
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType
from tables import batch_directories, directory_of, fill, frame, live_rows, merge_into, new_table
from test_log import batch, create, file_of

from trinitymerge import (
    CorruptTableError,
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    TableExistsError,
    TrinityTable,
    UnsupportedStorageError,
)
from trinitymerge._arguments import _history_row
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log.actions import AddBatch, PurgeKeys, RemoveBatch, SetDefinition, SetHorizon, SetTransaction
from trinitymerge.log.files import decode_with_checksum, encode_with_checksum
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.rows.watermarks import is_above, is_below
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import commit_backoff_seconds, tombstone_retention_hours
from trinitymerge.spark.expressions import physical_schema, quote
from trinitymerge.stores.column_mapping import in_files, version_of_batch

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
    assert table.upsert(first).execute().strategy == "blind append"
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
    assert keyed.execute().strategy == "keyed lookup"
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
    with pytest.raises(InvalidDefinitionError, match="which Spark would replace with a setting"):
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
    forge(table, {"actions": [{"type": "addBatch", "batch": {**batch("x").to_json(), "id": name, "rows": 1}}]})
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
    file_of(log, commit.version).write_bytes(encode_with_checksum({**commit.to_json(), **fields})[0])


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
    data = snapshot.next_commit("CHANGE", [SetDefinition(snapshot.definition)], previous=snapshot.checksum).to_json()
    data["actions"][0]["definition"]["fields"].append(Field("evil", kinds[place]).to_json())
    file_of(log, 1).write_bytes(encode_with_checksum(data)[0])
    with pytest.raises(CorruptTableError, match=r"0001\.json.*'evil'.*is of a type that a table cannot store"):
        log.newest()
    with pytest.raises(InvalidDefinitionError, match="a type that a table cannot store"):
        TableDefinition.of([Field("id", "long"), Field("evil", kinds[place])], "id")
    assert not (tmp_path / "ran").exists()
    assert "canary" not in sys.modules


@pytest.mark.parametrize("checkpoint", [False, True])
def test_s33_whatever_stands_in_an_entry_is_data_or_refused(tmp_path, checkpoint, caplog):
    """Any value at any place, checksum and all: the table opens, or its error names the file. Nothing else."""
    caplog.set_level(logging.CRITICAL)
    log, base = create(tmp_path, interval=1)
    commit = base.next_commit(
        "MERGE",
        [
            SetDefinition(base.definition),
            AddBatch(batch("x", watermark_min=(1,), version=1)),
            SetTransaction("app", 1),
            SetHorizon((1,)),
            PurgeKeys("ab", ["cd"]),
        ],
        metrics={"rows": 1},
    )
    log.commit(commit, base)
    file = file_of(log, 1, checkpoint)
    good = decode_with_checksum(file.read_bytes())[0]
    refusals = []
    for at, value in itertools.product(places(good), VALUES):
        changed = replaced(good, at, value)
        if isinstance(changed, dict):
            file.write_bytes(sealed(changed))
            refusals.append(refusal(log))
    assert all("0001" in text for text in refusals if text)
    assert checkpoint or sum(map(bool, refusals)) > 100


def refusal(log: CommitLog) -> str:
    """Why a log cannot be opened; an empty string if it can, and then what it gives is whole."""
    try:
        opened = log.newest()
    except (CorruptTableError, UnsupportedStorageError) as error:
        return str(error)
    opened.apply(opened.next_commit("NEXT", [SetTransaction("app", 5)]))
    assert len(opened.definition.schema.names) == len(opened.definition.fields)
    assert all(b.id.replace("_", "").isalnum() for b in opened.batches)
    return ""


def test_json_that_only_looks_like_data_is_refused(tmp_path):
    log, base = create(tmp_path)
    commit = Commit(version=1, timestamp_ms=base.timestamp_ms + 1, operation="X", previous=base.checksum).to_json()
    for nonsense in (json.loads("[" * 900 + "]" * 900), float("nan"), "\ud800", "\0"):
        for field in ("version", "operation", "parameters", "user"):
            file_of(log, 1).write_bytes(sealed({**commit, field: nonsense}))
            told = refusal(log)
            assert "0001" in told or nonsense == "\0" or (field, type(nonsense)) == ("parameters", list)
    for text in (
        b"[" * 10**5,
        b'{"version":' + b"[" * 10**5 + b"]" * 10**5 + b"}",
        b'{"version":1,"x":"\xff"}',
        b"{,}",
    ):
        file_of(log, 1).write_bytes(sealed_text(text))
        assert "0001" in refusal(log)


@pytest.mark.parametrize("seed", range(4))
def test_s33_random_changes_of_logs_are_data_or_refused(tmp_path, seed, caplog):
    """Of entries, checkpoints, both, what a log begins with, and hints: what opens can be used for all that needs no Spark."""
    caplog.set_level(logging.CRITICAL)
    log = CommitLog(LocalFileSystem(), str(tmp_path / "t"))
    begin = {"timestamp_ms": 1_700_000_000_000, "operation": "CREATE"}
    base = log.create(
        Commit(
            version=0, **begin, actions=[SetDefinition(hostile.definition(**{"trinitymerge.checkpointInterval": "1"}))]
        )
    )
    after = log.commit(hostile.commit_on(base, base.definition), base)
    directory, chance, opened = file_of(log, 1).parent, random.Random(seed), 0
    good = {path.name: path.read_bytes() for path in directory.iterdir()}
    entry, checkpoint = file_of(log, 1), file_of(log, 1, checkpoint=True)
    beginning = hostile.beginning_on(base, after).to_json()
    for _ in range(150):
        kind = chance.choice(["entry", "checkpoint", "both", "beginning", "hint"])
        for path in directory.iterdir():
            path.unlink()
        for name, content in good.items():
            (directory / name).write_bytes(content)
        if kind == "beginning":
            entry.unlink()
            file_of(log, 0).write_bytes(sealed(hostile.mutated(beginning, chance)))
        if kind in ("entry", "both"):
            entry.write_bytes(sealed(hostile.mutated(decode_with_checksum(good[entry.name])[0], chance)))
            checkpoint.unlink()
        if kind in ("checkpoint", "both"):
            agreeing = {**decode_with_checksum(good[checkpoint.name])[0], "entry": entry.read_bytes()[13:77].decode()}
            checkpoint.write_bytes(sealed(hostile.mutated(agreeing, chance)))
        if kind == "hint":
            content = json.dumps(hostile.mutated(json.loads(good["_last.json"]), chance))
            (directory / "_last.json").write_text(content)
        with contextlib.suppress(CorruptTableError, UnsupportedStorageError):
            use(log, log.newest())
            opened += 1
    assert 20 < opened < 130


def use(log: CommitLog, snapshot: Snapshot) -> None:
    """All that becomes of a snapshot without Spark: nothing may fail in it but with an error of the library's."""
    definition = snapshot.definition
    assert len(definition.schema.names) == len(str(definition).split("\n\n")[0].splitlines()) - 1
    in_files(definition.stored_fields, 0)
    version_of_batch(snapshot.batches)
    for entry in snapshot.outbox:
        physical_schema(entry.fields)
    for batch_of in snapshot.batches:
        for mark in (batch_of.watermark_min, batch_of.watermark_max, snapshot.horizon):
            if mark is not None:
                is_below(definition, mark)
                is_above(definition, mark, mark)
    encode_with_checksum(snapshot.to_json())
    following = snapshot.next_commit("X", [SetTransaction("app", 9)])
    snapshot.apply(following)
    encode_with_checksum(following.to_json())
    tombstone_retention_hours(snapshot.properties)
    commit_backoff_seconds(snapshot.properties)
    for row in (_history_row(commit) for commit in log.commits()):
        json.dumps(row, ensure_ascii=False).encode()
        assert all(number is None or 0 <= number < 2**63 for number in (*row[:2], *row[6:]))
    log.version_at(snapshot.timestamp_ms)


@pytest.mark.parametrize("place", ["an earlier form", "rows that are owed"])
def test_a_forged_type_runs_no_code_wherever_it_stands(tmp_path, monkeypatch, place):
    (tmp_path / "canary.py").write_text(CANARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    log, snapshot = create(tmp_path)
    data = hostile.commit_on(snapshot, previous=snapshot.checksum).to_json()
    if place == "an earlier form":
        data["actions"][0]["definition"]["fields"][2]["previous"][0]["type"] = hostile.UDT
    else:
        (added,) = (a for a in data["actions"] if a["type"] == "addOutboxEntry")
        added["entry"]["fields"][0]["type"] = hostile.UDT
    file_of(log, 1).write_bytes(sealed(data))
    with pytest.raises(CorruptTableError, match=r"0001\.json.*is of a type that a table cannot store"):
        use(log, log.newest())
    assert not (tmp_path / "ran").exists()


EVIL = ["reflect('java.lang.System', 'setProperty', 'canary', 'ran')", "`java_method`('java.lang.Math', 'abs', 1)"]
QUERIES = ["(SELECT max(secret) FROM others)", "(TABLE others)", "(MAP 1 USING 'touch ran' AS x FROM others)"]


@pytest.mark.parametrize("text", quickly([*EVIL, *QUERIES], [EVIL[0], QUERIES[2]]))
@pytest.mark.parametrize("role", ["check", "default"])
def test_S45_S46_rules_that_no_call_would_make_are_not_computed(spark, tmp_path, text, role):
    """A log that others prepared: its rules run where a victim merges, with the victim's rights."""
    spark.sql("SELECT 's' AS secret").createOrReplaceTempView("others")
    table = new_table(spark, tmp_path, "id INT, v STRING")
    definition = table.definition
    if role == "check":
        definition = attrs.evolve(definition, checks=[Check("evil", f"v <> {text}", ["v"])])
    else:
        definition = attrs.evolve(definition, fields=[definition.fields[0], Field("v", "string", default=text)])
    forge(table, {"actions": [SetDefinition(definition).to_json()]})
    calls = [
        lambda: merge_into(table, spark, [(1, "a")]),
        lambda: table.upsert(frame(spark, "id INT", (1,))).execute(),
        lambda: table.applyChanges(frame(spark, "id INT, v STRING", (1, None)), ignoreNullUpdates=True).execute(),
        lambda: table.updateWhere("id = 1", {"v": "'x'"}).execute(),
    ]
    for call in calls:
        with pytest.raises(
            InvalidDefinitionError, match=f"{'evil' if role == 'check' else 'v'}.*no call of this library"
        ):
            call()
    assert live_rows(table) == []
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["_trinity_log", "data"])
def test_s33_what_a_link_leads_to_is_no_part_of_a_table(spark, tmp_path, name):
    """A table whose directories are links to those of another one must not read, and a vacuum not delete, what is there."""
    victim = fill(new_table(spark, tmp_path, "id INT"), spark, [(1,)], [(2,)])
    before = contents(directory_of(victim))
    table = fill(TrinityTable.create(spark, str(tmp_path / "evil"), "id INT", primaryKey="id"), spark, [(1,)])
    shutil.rmtree(directory_of(table) / name)
    (directory_of(table) / name).symlink_to(directory_of(victim) / name)
    calls = [
        lambda: TrinityTable.forPath(spark, table.path).toDF().collect(),
        lambda: TrinityTable.forPath(spark, table.path, versionAsOf=1).toDF().collect(),
        lambda: table.vacuum(retentionHours=0),
        lambda: table.purge([1]),
        lambda: merge_into(table, spark, [(3,)]),
        lambda: table.clone(str(tmp_path / "copy")),
    ]
    for call in calls:
        with pytest.raises(CorruptTableError, match=f"{name}' is a symbolic link"):
            call()
    assert contents(directory_of(victim)) == before
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("what", ["the batch", "a file as batch", "its file", "a file beside", "a hidden file"])
def test_s33_a_batch_that_is_a_link_is_not_read_or_copied(spark, tmp_path, what):
    """The log can say whatever makes it fit: the size of a link, too."""
    secret = fill(new_table(spark, tmp_path, "id INT"), spark, [(7,)])
    (theirs,) = directory_of(secret).glob("data/*/*.parquet")
    table = fill(TrinityTable.create(spark, str(tmp_path / "evil"), "id INT", primaryKey="id"), spark, [(1,)])
    (file,) = directory_of(table).glob("data/*/*.parquet")
    if what in ("the batch", "a file as batch"):
        shutil.rmtree(file.parent)
        file.parent.symlink_to(theirs.parent if what == "the batch" else theirs)
    elif what == "its file":
        file.with_name(f".{file.name}.crc").unlink()
        file.unlink()
        file.symlink_to(theirs)
        (added,) = table._snapshot().batches
        size = file.lstat().st_size
        forge(
            table, {"actions": [RemoveBatch(added.id).to_json(), AddBatch(attrs.evolve(added, bytes=size)).to_json()]}
        )
    else:
        file.with_name("part-9.parquet" if what == "a file beside" else "_secret").symlink_to(theirs)
    before = contents(directory_of(secret))
    calls = [
        lambda: TrinityTable.forPath(spark, table.path).toDF().collect(),
        lambda: table.clone(str(tmp_path / "copy")),
        lambda: table.export(str(tmp_path / "export")),
        lambda: table.purge([5]),
        lambda: table.updateWhere("id > 0", {"id": "id + 1"}).execute(),
    ]
    for call in calls:
        with pytest.raises(CorruptTableError, match="symbolic link"):
            call()
    table.vacuum(retentionHours=0)
    assert contents(directory_of(secret)) == before
    assert not list(tmp_path.glob("copy")) + list(tmp_path.glob("export")) + list(tmp_path.glob(".export*"))


@pytest.mark.parametrize("kind", ["a pipe", "a link", "a directory"])
@pytest.mark.skipif(os.name == "nt", reason="has neither")
def test_s33_an_entry_that_is_no_file_is_named(tmp_path, kind):
    """A pipe that nobody writes to would be waited for for ever, and a device has no end."""
    log, _ = create(tmp_path)
    entry = file_of(log, 1)
    {"a pipe": os.mkfifo, "a link": lambda p: p.symlink_to("/dev/zero"), "a directory": Path.mkdir}[kind](entry)
    with pytest.raises(CorruptTableError, match=r"0001\.json"):
        log.newest()
    entry.rename(entry.with_name("_last.json")) if kind != "a directory" else entry.rmdir()
    assert log.newest().version == 0


def test_s33_only_plain_digits_name_an_entry(tmp_path):
    log, snapshot = create(tmp_path)
    for name in ("0000000000000000000\u0661.json", f"{5:020d}.json\n", f"{5:020d}.checkpoint.json\n"):
        file_of(log, 0).with_name(name).write_bytes(b"")
    assert log.newest() == log.at(0) == snapshot


@pytest.mark.parametrize("mark", [("x",), (True,), (2**70,), ("1L OR true",), (1, 2)])
def test_S3_a_forged_watermark_says_nothing(mark):
    definition = TableDefinition.of([Field("id", "long"), Field("w", "long")], "id", "w")
    assert (is_below(definition, mark), is_above(definition, mark, (5,))) == (None, False)


@pytest.mark.parametrize("name", ["trinitymerge.minorCompactionMaxBytes", "trinitymerge.commitBackoffSeconds"])
def test_S7_a_forged_setting_is_named(tmp_path, name):
    """Not first after a merge has been committed, or when others are faster."""
    log, snapshot = create(tmp_path)
    data = snapshot.next_commit("SET", [SetDefinition(snapshot.definition)], previous=snapshot.checksum).to_json()
    data["actions"][0]["definition"]["properties"][name] = "1e300"
    file_of(log, 1).write_bytes(sealed(data))
    with pytest.raises(CorruptTableError, match=rf"0001\.json.*'{name}' takes a number"):
        log.newest()


def test_purging_hostile_tables_leaves_no_key_in_the_log(spark, tmp_path):
    table = fill(
        new_table(spark, tmp_path, "`k'` STRING, v STRING", primaryKey="k'"), spark, [("it's me", "a"), ("b", "b")]
    )
    table.purge(["it's me"])
    assert live_rows(table) == [("b", "b")]
    assert not any(b"it's me" in f.read_bytes() for f in (directory_of(table) / "_trinity_log").iterdir())


# Within a table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["{t}", "{t}/data/_tm_batch=x", "{t}/sub/dir", "{link}/sub", "{inner}/x"])
def test_S7_nothing_is_made_within_a_table(spark, tmp_path, place):
    """A vacuum of the outer one would remove it, or what is made would be taken for files of the table."""
    table = fill(new_table(spark, tmp_path, "id INT, v INT"), spark, [(1, 1)])
    (tmp_path / "link").symlink_to(directory_of(table))
    (tmp_path / "inner").symlink_to(directory_of(table) / "data")
    places = {"t": directory_of(table), "link": tmp_path / "link", "inner": tmp_path / "inner"}
    path, before = place.format(**places), contents(directory_of(table))
    rows = frame(spark, "id INT, v INT", (1, 1))
    calls = [
        lambda: table.clone(path),
        lambda: table.export(path),
        lambda: TrinityTable.convert(spark, rows, path, "id"),
        lambda: TrinityTable.create(spark, path, "id INT", primaryKey="id"),
        lambda: TrinityTable.fromIntervals(spark, path, rows.selectExpr("id", "v", "v + 1 AS w"), "id", "v", "w"),
    ]
    for call in calls:
        with pytest.raises(TableExistsError, match="table"):
            call()
    path = str(tmp_path)  # above the table
    for call in calls:
        with pytest.raises(TableExistsError):
            call()
    assert contents(directory_of(table)) == before
    assert sorted(p.name for p in directory_of(table).iterdir()) == ["_trinity_log", "data"]
