"""F3: a damaged message is rejected or read, and never fails a merge. Messages are damaged at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from helpers import quickly
from tables import new_table

from trinitymerge import feeds

ROW = {
    "id": 1,
    "d": "10.5",
    "f": 0.5,
    "t": "2024-01-01 00:00:00.5",
    "a": "2024-01-01",
    "b": "0102",
    "s": "x",
    "l": [1, 2],
    "m": {"k": "1"},
    "g": True,
}
COLUMNS = (
    "id INT, d DECIMAL(10,2), f DOUBLE, t TIMESTAMP, a DATE, b BINARY, s STRING, l ARRAY<INT>, m MAP<STRING, INT>, g BOOLEAN, "
    "_ts TIMESTAMP, _seq STRING"
)
FIELDS = [{"field": "id", "type": "int32"}, {"field": "t", "type": "int64", "name": "io.debezium.time.Timestamp"}]
PLAIN = {"decimals": "string", "binary": "hex"}
ENVELOPE = {
    "op": "u",
    "after": ROW,
    "source": {"sequence": '["9","10"]', "table": "t", "ts_ms": 1700000000000, "snapshot": False},
}
CHANGE = {"kind": "insert", "schema": "p", "table": "t", "columnnames": ["id", "s"], "columntypes": ["integer", "text"]}
V2 = {"action": "I", "xid": 7, "lsn": "0/16B3760", "schema": "p", "table": "t", "timestamp": "2024-01-01 00:00:00.5+00"}
TIME = {"$timestamp": {"t": 1700000000, "i": 1}}

MESSAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "debezium": (ENVELOPE, {"timestamps": "ms", **PLAIN}),
    "debezium with schema": (
        {"schema": {"fields": [{"field": "after", "fields": FIELDS}]}, "payload": ENVELOPE},
        PLAIN,
    ),
    "debezium flattened": (
        {
            **ROW,
            "__op": "u",
            "__deleted": "false",
            "__source_sequence": '["9","10"]',
            "__table": "t",
            "__source_ts_ms": 1700000000000,
        },
        {"flattened": True, "timestamps": "ms", **PLAIN},
    ),
    "maxwell": (
        {
            "database": "s",
            "table": "t",
            "type": "update",
            "ts": 1700000000,
            "position": "m.000006:8",
            "data": ROW,
            "old": {"id": 2},
        },
        {},
    ),
    "canal": (
        {
            "data": [{"id": "1", "d": "1.5", "b": "\u00ff"}],
            "old": [{"id": "2"}],
            "mysqlType": {"b": "blob"},
            "database": "s",
            "table": "t",
            "es": 1700000000000,
            "id": 18,
            "type": "UPDATE",
        },
        {},
    ),
    "wal2json 2": (
        {**V2, "columns": [{"name": k, "type": "text", "value": v} for k, v in {**ROW, "l": "{1,2}"}.items()]},
        {"commit": "lsn"},
    ),
    "wal2json 1": (
        {
            "xid": 7,
            "nextlsn": "0/16B3760",
            "timestamp": "2024-01-01 00:00:00.5+00",
            "change": [{**CHANGE, "columnvalues": [1, "x"]}],
        },
        {"version": 1},
    ),
    "dms": (
        {
            "data": {**ROW, "AR_H_CHANGE_SEQ": "20240501100000000000000000000000042"},
            "metadata": {"record-type": "data", "operation": "insert", "commit-timestamp": "2024-01-01T00:00:00Z"},
        },
        {},
    ),
    "goldengate": (
        {
            "table": "S.T",
            "op_type": "U",
            "op_ts": "2024-01-01 00:00:00.5",
            "pos": "00000000180000071245",
            "before": {"id": 2},
            "after": ROW,
        },
        {"timestamps": "ms"},
    ),
    "mongo": (
        {
            "operationType": "insert",
            "clusterTime": TIME,
            "ns": {"db": "s", "coll": "t"},
            "documentKey": {"_id": 1},
            "fullDocument": {**ROW, "_id": 1},
        },
        {"rename": {"_id": "id"}},
    ),
}
"""A message of each format, and how it is read."""

VALUES = [
    "1e400",
    "-1e-400",
    "9" * 40,
    "-9223372036854775808",
    "1.5",
    "null",
    "true",
    '"x"',
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    '[{"a":1,"a":1}]',
    '"\ufdd0"',
    '"99999-01-01"',
    '"1e9"',
    "NaN",
    "01",
    '"0/FFFFFFFFFFFFFFFFFF"',
    '""',
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, part in inner for p in places(part, (*path, key)))]


class Raw(str):
    """JSON text, which may be no JSON."""

    __slots__ = ()


def written(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return "{" + ",".join(f"{json.dumps(k)}:{written(v)}" for k, v in value) + "}"
    if isinstance(value, dict):
        return written(list(value.items())) if value else "{}"
    return "[" + ",".join(map(written, value)) + "]" if isinstance(value, list) else json.dumps(value)


def changed(value: Any, path: tuple[Any, ...], by: Callable[[list[tuple[Any, Any]], int], None]) -> Any:
    """A JSON value, of which the object or array that has a part is changed."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    at = next(i for i, (key, _) in enumerate(items) if key == path[0])
    if len(path) > 1:
        items[at] = (path[0], changed(items[at][1], path[1:], by))
    else:
        by(items, at)
    return items if isinstance(value, dict) else [v for _, v in items]


def damaged(message: Any, chance: random.Random) -> bytes:
    """A message with one or two things wrong."""
    path = chance.choice(places(message)[1:])
    new = Raw(chance.choice(VALUES))

    def replace(items: list[tuple[Any, Any]], at: int) -> None:
        items[at] = (items[at][0], new)

    def remove(items: list[tuple[Any, Any]], at: int) -> None:
        del items[at]

    def double(items: list[tuple[Any, Any]], at: int) -> None:
        items.append(chance.choice([items[at], (items[at][0], new)]))

    way = chance.randrange(8)
    if way < 5:
        text = written(changed(message, path, [replace, replace, replace, remove, double][way])).encode(
            "utf-8", "surrogatepass"
        )
    else:
        text = written(message).encode()
    if way == 5:
        return text[: chance.randrange(len(text))]
    if way == 6:
        return text + chance.choice([text, b" x", b"]}", b",{}", b"\x00"])
    if way == 7 or chance.random() < 0.2:
        at = chance.randrange(len(text))
        text = text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]
    return text


@pytest.mark.parametrize("number", [40, pytest.param(2_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", MESSAGES)
def test_F3_F4_a_damaged_message_is_read_skipped_or_rejected(spark, tmp_path, kind, number):
    message, options = MESSAGES[kind]
    chance = random.Random(f"{kind} {number}")
    table = new_table(spark, tmp_path, COLUMNS, watermarkKey=["_ts", "_seq"])
    sent = spark.createDataFrame([(bytearray(damaged(message, chance)),) for _ in range(number)], "value BINARY")
    feed = getattr(feeds, kind.split()[0])(sent, **options)
    skipped = feed.decoded().where("skipped IS NOT NULL").count()
    columns = [f"CAST({c} AS STRING)" for c in table.definition.names if c not in ("_ts", "_seq")]
    read = (
        feed.changes(table).selectExpr(*columns, "CAST(_ts AS STRING)", "_seq", "CAST(_unchanged AS STRING)").collect()
    )
    rejected = feed.rejected(table).collect()
    assert all(row["reason"] and row["position"] for row in rejected)
    total = skipped + len(read) + len(rejected)
    assert total == number or (kind in ("canal", "wal2json 1") and total >= number)
    assert number / 10 < len(rejected) < number
    feed.tables().collect()
    if "schema" in kind:
        feed.schema()


@pytest.mark.parametrize(
    "kind", quickly([kind for kind in MESSAGES if kind != "dms"], {"debezium", "maxwell", "mongo"})
)
def test_F3_a_feed_that_names_its_table_rejects_what_does_not_say_its_own(spark, tmp_path, kind):
    message, options = MESSAGES[kind]
    chance, decode = random.Random(f"{kind} of a table"), getattr(feeds, kind.split()[0])
    table = new_table(spark, tmp_path, COLUMNS, watermarkKey=["_ts", "_seq"])
    (name,) = decode(spark.createDataFrame([(written(message),)], "value STRING"), **options).tables().collect()
    cut = [written(message)[:-size].encode() for size in (1, 2, 9)]
    texts = [b"{}", b"\x00\x00\x00\x00\x01{", *cut, *(damaged(message, chance) for _ in range(20))]
    sent = spark.createDataFrame([(bytearray(text),) for text in texts], "value BINARY")
    of_all, of_one = (decode(sent, table, **options) for table in (None, name["source"]))
    others = of_all.decoded().where(f"source <> '{name['source']}'").count()
    found, named = (sorted(row["raw"] or "" for row in feed.rejected(table).collect()) for feed in (of_all, of_one))
    assert len(found) - others <= len(named)
    assert {text.decode("utf-8", "replace") for text in cut} <= {*named}
    assert [row["reason"] for row in of_one.rejected(table).where("raw = '{}'").collect()] != []


def test_F1_no_text_of_a_feed_is_long(spark, tmp_path, monkeypatch):
    """Spark takes a second to parse a text of 6,000 characters for the first time, and keeps in memory what it has learned."""
    table, longest = new_table(spark, tmp_path, COLUMNS, watermarkKey=["_ts", "_seq"]), {}
    select = type(table.toDF()).selectExpr
    for kind, (message, options) in MESSAGES.items():
        texts = []
        sent = spark.createDataFrame([(written(message),)], "value STRING")
        with monkeypatch.context() as patched:
            patched.setattr(type(sent), "selectExpr", lambda df, *of, texts=texts: texts.extend(of) or select(df, *of))
            getattr(feeds, kind.split()[0])(sent, **options).changes(table)
        longest[kind] = max(map(len, map(str, texts)))
    assert {kind: length for kind, length in longest.items() if length > 8_000} == {}


def test_F2_times_do_not_depend_on_what_a_session_takes_TIMESTAMP_for(spark):
    def times() -> dict[str, Any]:
        found = {}
        for kind, (message, options) in MESSAGES.items():
            feed = getattr(feeds, kind.split()[0])(
                spark.createDataFrame([(written(message),)], "value STRING"), **options
            )
            found[kind] = feed.decoded().selectExpr("unix_micros(at)").collect()[0][0]
        return found

    expected, pacific = times(), {"timestampType": "TIMESTAMP_NTZ", "session.timeZone": "America/Los_Angeles"}
    assert None not in expected.values()
    before = {f"spark.sql.{name}": spark.conf.get(f"spark.sql.{name}") for name in pacific}
    try:
        for name, value in pacific.items():
            spark.conf.set(f"spark.sql.{name}", value)
        assert times() == expected
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


DELETES = {
    "maxwell": {
        "database": "s",
        "table": "t",
        "type": "delete",
        "ts": 1700000000,
        "position": "m.000006:9",
        "data": {"id": 1, "a": "0000-00-00"},
    },
    "canal": {
        "data": [{"id": "1", "a": "0000-00-00"}],
        "database": "s",
        "table": "t",
        "es": 1700000000000,
        "id": 19,
        "type": "DELETE",
    },
    "debezium flattened": {
        "id": 1,
        "a": "0000-00-00",
        "__op": "d",
        "__deleted": "true",
        "__source_sequence": '["9","11"]',
        "__table": "t",
        "__source_ts_ms": 1700000000000,
    },
    "goldengate": {
        "table": "S.T",
        "op_type": "D",
        "op_ts": "2024-01-01 00:00:00.5",
        "pos": "00000000180000071246",
        "before": {"id": 1, "a": "0000-00-00"},
    },
}
"""Deletes of a row with a value that its column cannot hold."""


@pytest.mark.parametrize("kind", DELETES)
def test_F3_S9_a_delete_is_judged_by_its_key_alone(spark, tmp_path, kind):
    options = MESSAGES[kind][1]
    table = new_table(spark, tmp_path, COLUMNS, watermarkKey=["_ts", "_seq"])
    sent = spark.createDataFrame([(json.dumps(DELETES[kind]),)], "value STRING")
    result = table.applyChanges(getattr(feeds, kind.split()[0])(sent, **options)).execute()
    assert (result.feed.deletes, result.feed.rejected) == (1, {})
