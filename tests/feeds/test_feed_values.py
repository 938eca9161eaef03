"""F3: a value is stored as the message has it, or its message is rejected. No message fails a merge otherwise."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tables import new_table

from trinitymerge import TrinityTable, feeds
from trinitymerge.feeds.total_sql import RAISING

SOURCE = Path(__file__).parents[2] / "trinitymerge" / "feeds"
REJECTED = "rejected"

VALUES = [
    ("f FLOAT", "3.4028235e39", REJECTED),
    ("f FLOAT", 16777217, REJECTED),
    ("f FLOAT", 0.1, "0.1"),
    ("d DOUBLE", 9007199254740993, REJECTED),
    ("d DOUBLE", "1e-400", REJECTED),
    ("d DOUBLE", 9007199254740992, "9.007199254740992E15"),
    ("d DOUBLE", "NaN", "NaN"),
    ("t TIMESTAMP", "2024-01-01T00:00:00.1234567Z", REJECTED),
    ("t TIMESTAMP", "2024-01-01T00:00:00.1234560Z", "2024-01-01 00:00:00.123456"),
    ("t TIMESTAMP", "+294247-01-10T04:00:54.775Z", REJECTED),
    ("t TIMESTAMP", "9999-12-31 23:59:59-12", REJECTED),
    ("t TIMESTAMP", "0001-01-01 00:00:00+14", REJECTED),
    ("n TIMESTAMP_NTZ", 1700000000123456789, REJECTED),
    ("n TIMESTAMP_NTZ", 1700000000123456000, "2023-11-14 22:13:20.123456"),
    ("n TIMESTAMP_NTZ", "2024-03", REJECTED),
    ("a DATE", "2024-01-01 10:11:12", REJECTED),
    ("a DATE", "2024-01-01 00:00:00", "2024-01-01"),
    ("a DATE", "2024-01", REJECTED),
    ("a DATE", 9999999, REJECTED),
    ("m MAP<STRING, INT>", {"a": 1}, "{a -> 1}"),
    ("e DECIMAL(38,2)", "1.23456789012345678912345e20", REJECTED),
    ("e DECIMAL(38,2)", "1.25e1", "12.50"),
]
"""A column, a value of a message, and how Spark shows what is stored."""


def message(name: str, text: str, number: int) -> str:
    position = json.dumps({"sequence": f'[null,"{number + 10}"]', "table": "t"})
    return f'{{"op":"c","after":{{"id":{number},"{name}":{text}}},"source":{position}}}'


def test_F3_each_value_is_stored_exactly_or_rejected(spark, tmp_path):
    columns = dict.fromkeys(column for column, _, _ in VALUES)
    table = new_table(spark, tmp_path, f"id INT, {', '.join(columns)}, _seq STRING", watermarkKey="_seq")
    values = [(column.split()[0], json.dumps(value)) for column, value, _ in VALUES]
    # A map with a key twice, which Spark's functions refuse, a column twice, and things that are not one message.
    values += [
        ("m", '{"a":1,"a":2}'),
        ("f", '1,"f":1'),
        ("f", '1}} {"op":{"a":{"b":1'),
        ("f", "1}} x{{"),
        ("f", '"\\ufdd0"'),
        ("d", "NaN"),
        ("d", "-Infinity"),
    ]
    sent = [(message(name, text, i),) for i, (name, text) in enumerate(values)]
    feed = feeds.debezium(spark.createDataFrame(sent, "value STRING"), decimals="string", timestamps="ns")
    shown = [f"CAST({column.split()[0]} AS STRING) AS {column.split()[0]}" for column in columns]
    stored = {row["id"]: row for row in feed.changes(table).where("_op = 'upsert'").selectExpr("id", *shown).collect()}
    wanted = [*(want for _, _, want in VALUES), *[REJECTED] * 7]
    found = [stored[i][name] if i in stored else REJECTED for i, (name, _) in enumerate(values)]
    assert found == wanted


POISON = {
    "debezium": (
        '{"op":"c","after":{"id":1},"source":{"sequence":"[null,\\"10\\"]","table":"t","ts_ms":1000000000000000000}}',
        {"upsert": 1},
    ),
    "maxwell": (
        '{"database":"s","table":"t","type":"insert","ts":1000000000000000000,"position":"m.000006:8","data":{"id":1}}',
        {"upsert": 1},
    ),
    "canal": (
        '{"data":[{"id":"1"}],"database":"s","table":"t","es":1000000000000000000,"id":18,"type":"INSERT"}',
        {"upsert": 1},
    ),
    "wal2json": (
        '{"action":"U","xid":5,"lsn":"0/16B3760","schema":"p","table":"t","columns":[{"name":"id","value":2}],"identity":[{"a":1}]}',
        {"no-commit": 1},
    ),
}


@pytest.mark.parametrize("kind", POISON)
def test_F3_a_message_that_no_function_can_read_fails_no_merge(spark, kind):
    value, wanted = POISON[kind]
    decoded = getattr(feeds, kind)(spark.createDataFrame([(value,)], "value STRING")).decoded()
    found = decoded.selectExpr("coalesce(op, rejected) AS kind").groupBy("kind").count().collect()
    assert {row["kind"]: row["count"] for row in found} == wanted


def test_F3_functions_that_fail_are_called_in_one_module_only():
    calls = re.compile(rf"\b({'|'.join(RAISING)})\(")
    modules = [
        *SOURCE.glob("wire*.py"),
        *SOURCE.glob("formats/*.py"),
        SOURCE / "typed_columns.py",
        SOURCE / "sequences.py",
    ]
    found = [(module.name, name) for module in modules for name in calls.findall(module.read_text())]
    assert not found


def flattened(number: int, **more: object) -> str:
    said = {"__op": "c", "__table": "t", "__source_sequence": f'["9","{number + 10}"]', "__source_snapshot": "false"}
    return json.dumps({"id": number, **more, **said})


def test_F1_a_flattened_column_may_begin_with_underscores(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, `__v` INT, _seq STRING", watermarkKey="_seq")
    source = spark.createDataFrame([(flattened(1, __v=7),)], "value STRING")
    assert [row["__v"] for row in feeds.debezium(source, flattened=True).changes(table).collect()] == [7]


def test_F3_a_number_that_no_DECIMAL_holds_is_text_in_the_schema(spark):
    def decimal(name: str, scale: int, precision: int) -> dict[str, object]:
        parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        return {
            "type": "bytes",
            "field": name,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": parameters,
        }

    fields = [{"type": "int32", "field": "id"}, decimal("a", 2, 10), decimal("b", -2, 5), decimal("c", 2, 50)]
    payload = {"op": "c", "after": {"id": 1}, "source": {"sequence": '["9","10"]', "table": "t"}}
    value = json.dumps({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload})
    schema = feeds.debezium(spark.createDataFrame([(value,)], "value STRING")).schema()
    assert schema == "`id` INT, `a` DECIMAL(10, 2), `b` STRING, `c` STRING, `_seq` STRING"


def test_F3_the_reason_says_that_a_timestamp_has_no_unit(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, t TIMESTAMP, _seq STRING", watermarkKey="_seq")
    feed = feeds.debezium(spark.createDataFrame([(message("t", "1700000000000", 1),)], "value STRING"))
    assert [row["reason"] for row in feed.rejected(table).collect()] == ["unit:t"]


def test_F3_columns_of_one_type_keep_their_own_values_and_meanings(spark, tmp_path):
    kinds = {"s": "STRING", "i": "INT", "d": "DECIMAL(20,4)", "t": "TIMESTAMP", "l": "ARRAY<INT>"}
    columns = {f"{name}{n}": kind for n in range(4) for name, kind in kinds.items()}
    listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    table = new_table(spark, tmp_path, f"{listed}, id INT, _seq STRING", watermarkKey="_seq")
    decimal, times = "org.apache.kafka.connect.data.Decimal", ("", "Micro", "Nano")
    fields = [{"field": f"d{n}", "type": "bytes", "name": decimal, "parameters": {"scale": str(n)}} for n in range(4)]
    fields += [
        {"field": f"t{n}", "type": "int64", "name": f"io.debezium.time.{times[n % 3]}Timestamp"} for n in range(4)
    ]
    fields += [{"field": "s2", "type": "int32", "name": "io.debezium.time.Time"}]
    row = {"id": 1, **dict.fromkeys(columns)}
    for n in range(4):
        row |= {f"s{n}": 1000 + n if n == 2 else f"text {n}", f"i{n}": n, f"d{n}": "AfQ=", f"l{n}": [n, n + 1]}
        row |= {f"t{n}": (n + 1) * 1000 ** (n % 3 + 1)}
    row |= {"s1": "__debezium_unavailable_value", "i3": None}
    source = {"sequence": '[null,"9"]', "table": "t"}
    told = {
        "schema": {"fields": [{"field": "after", "fields": fields}]},
        "payload": {"op": "u", "after": row, "source": source},
    }
    sent = spark.createDataFrame([(json.dumps(told),)], "value STRING")
    result = table.applyChanges(feeds.debezium(sent), exceptColumns=["s3", "t1"]).execute()
    assert result.feed.rejected == {}
    (got,) = table.toDF().selectExpr(*[f"CAST({name} AS STRING) AS {name}" for name in columns]).collect()
    for n in range(4):
        assert got[f"s{n}"] == {2: "00:00:01.002000", 3: None, 1: None}.get(n, f"text {n}")
        assert got[f"i{n}"] == (None if n == 3 else str(n))
        assert got[f"d{n}"] == f"{Decimal(500).scaleb(-n):.4f}"
        assert got[f"t{n}"] == (None if n == 1 else f"1970-01-01 00:00:0{n + 1}")
        assert got[f"l{n}"] == f"[{n}, {n + 1}]"


def of_wal2json(version: int) -> list[dict[str, Any]]:
    """Three changes of one transaction: a row, its change to a value that does not fit, and another row."""
    if version == 1:
        names = {"columnnames": ["id", "v"], "columntypes": ["integer", "integer"]}
        change = {"kind": "insert", "schema": "s", "table": "t", **names}
        return [{"nextlsn": "0/5", "change": [{**change, "columnvalues": row} for row in ([1, 1], [1, "x"], [2, 2])]}]
    rows = [[{"name": "id", "value": id}, {"name": "v", "value": v}] for id, v in ((1, 1), (1, "x"), (2, 2))]
    change = {"action": "I", "xid": 1, "schema": "s", "table": "t"}
    changes = [{**change, "lsn": f"0/{n}", "columns": row} for n, row in enumerate(rows, 1)]
    return [{"action": "B", "xid": 1, "lsn": "0/9"}, *changes]


def of_maxwell() -> list[dict[str, Any]]:
    rows = [{"id": 1, "v": 1}, {"id": 1, "v": "x"}, {"id": 2, "v": 2}]
    said = {"database": "s", "table": "t", "type": "insert", "ts": 1}
    return [{**said, "position": f"b.000001:{n}", "commit": True, "data": row} for n, row in enumerate(rows, 5)]


REPLAYED: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "wal2json 1": (of_wal2json(1), {"version": 1}),
    "wal2json 2": (of_wal2json(2), {}),
    "canal": (
        [
            {
                **{"type": "INSERT", "database": "s", "table": "t", "es": 1700000000000, "id": 7, "isDdl": False},
                "data": [{"id": "1", "v": "1"}, {"id": "1", "v": "x"}, {"id": "2", "v": "2"}],
            }
        ],
        {},
    ),
    "maxwell": (of_maxwell(), {}),
}


@pytest.mark.parametrize("kind", REPLAYED)
def test_S47_F2_a_rejected_event_is_replayed_at_its_own_place(spark, tmp_path, kind):
    messages, options = REPLAYED[kind]
    decode = getattr(feeds, kind.split()[0])
    table = new_table(spark, tmp_path, "id INT, v INT, _seq STRING", watermarkKey="_seq")
    quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")
    sent = spark.createDataFrame([(json.dumps(m), n) for n, m in enumerate(messages)], "value STRING, offset BIGINT")
    assert table.applyChanges(decode(sent, **options)).quarantine(quarantine).execute().quarantined == {"type:v": 1}
    mended = quarantine.toDF().selectExpr("""replace(row, '"x"', '"7"') AS value""")
    assert table.applyChanges(decode(mended, **options)).execute().feed.upserts == 1
    assert sorted(tuple(row) for row in table.toDF().select("id", "v").collect()) == [(1, 7), (2, 2)]
    again = table.applyChanges(decode(mended, **options)).execute()
    assert again.feed.rejected == {}
