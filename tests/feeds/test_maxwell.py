"""F1-F4: Maxwell's messages become the rows that the database has. The messages are written by hand and by an encoder."""

from __future__ import annotations

import collections
import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from feed_tables import rows_of, table_of

from trinitymerge import InvalidMergeError, RejectedRowsError
from trinitymerge.feeds.formats.maxwell import maxwell

COLUMNS = "id INT, title STRING, body STRING"
DOCUMENTED = [
    '{"database":"shop","table":"notes","type":"insert","ts":1699999999,"xid":23395,"commit":true,"position":"master.000006:800700",'
    '"data":{"id":5,"title":"a"}}',
    '{"database":"shop","table":"notes","type":"update","ts":1700000000,"xid":23396,"commit":true,"position":"master.000006:800911",'
    '"data":{"id":5,"title":"b"},"old":{"title":"a"}}',
    '{"database":"shop","table":"notes","type":"delete","ts":1700000001,"xid":23401,"position":"master.000006:801200",'
    '"data":{"id":5,"title":"b"}}',
]


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


def message(kind: str, data: Any = None, position: str | None = "bin.000001:9", **more: Any) -> str:
    said = {
        "database": "shop",
        "table": "notes",
        "type": kind,
        "ts": 1700000000,
        "position": position,
        "data": data,
        **more,
    }
    return json.dumps({name: value for name, value in said.items() if value is not None})


def apply(spark, into, *messages: str | None, **options: Any) -> Any:
    return into.applyChanges(maxwell(values(spark, *messages), **options)).execute()


def sequences(spark, *messages: str) -> list[str]:
    return [r["seq"] for r in maxwell(values(spark, *messages)).decoded().collect()]


# F1 -------------------------------------------------------------------------------------------------------------------


def test_F1_documented_messages_become_the_table(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    result = apply(spark, table, *reversed(DOCUMENTED[:2]), table="shop.notes")
    assert rows_of(table) == [(5, "b", None)]
    assert result.feed.newest == "2023-11-14 22:13:20"
    apply(spark, table, DOCUMENTED[2])
    assert rows_of(table) == []
    apply(spark, table, *DOCUMENTED)
    assert rows_of(table) == []


def test_F1_a_changed_key_moves_the_row_and_what_the_update_lacks_stays(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    apply(
        spark,
        table,
        message("insert", {"id": 1, "title": "a", "body": "long"}),
        message("update", {"id": 2, "title": "a"}, "bin.000001:20", old={"id": 1}),
    )
    assert rows_of(table) == [(2, "a", "long")]
    apply(spark, table, message("update", {"id": 2, "title": None}, "bin.000001:30", old={"title": "a"}))
    assert rows_of(table) == [(2, None, "long")]


def test_F1_rows_of_a_bootstrap_are_older_than_changes(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    rows = [message("bootstrap-insert", {"id": i, "title": "old", "body": "old"}, "bin.000009:99") for i in (1, 2, 3)]
    later = [message("update", {"id": 1, "title": "new", "body": "new"}), message("delete", {"id": 2})]
    apply(spark, table, *later)
    apply(spark, table, message("bootstrap-start"), *rows, message("bootstrap-complete"))
    assert rows_of(table) == [(1, "new", "new"), (3, "old", "old")]


def test_F1_names_of_the_key_are_read(spark):
    feed = maxwell(values(spark, message("insert", {"id": 1}, primary_key_columns=["id"])))
    assert [r["key_names"] for r in feed.decoded().collect()] == [["id"]]


# F2 -------------------------------------------------------------------------------------------------------------------


def test_F2_the_order_is_that_of_files_events_and_rows(spark):
    ordered = [
        message("insert", {"id": 1}, "mysql-bin.000009:900", xoffset=7),
        message("insert", {"id": 1}, "mysql-bin.000010:80", xoffset=0),
        message("insert", {"id": 1}, "mysql-bin.000010:80", xoffset=2),
        message("insert", {"id": 1}, "mysql-bin.000010:80", xoffset=10),
        message("insert", {"id": 1}, "mysql-bin.000010:80", commit=True),
        message("insert", {"id": 1}, "mysql-bin.000010:101", xoffset=0),
        message("insert", {"id": 1}, "mysql-bin.1000000:4", xoffset=0),
    ]
    found = sequences(spark, *ordered)
    assert found == sorted(set(found))
    assert found[1] == f"0001/{10:016x}/{80:016x}/{0:016x}"


def test_F2_the_last_row_of_an_event_wins_although_it_has_no_offset(spark, tmp_path):
    """One statement moves the rows on: `update notes set id = id + 1 order by id desc`."""
    table = table_of(spark, tmp_path, COLUMNS)
    apply(spark, table, *[message("insert", {"id": i, "title": f"{i}", "body": None}, xoffset=i) for i in (1, 2)])
    moves = [
        message("update", {"id": 3, "title": "2", "body": None}, "bin.000001:50", old={"id": 2}, xoffset=0),
        message("update", {"id": 2, "title": "1", "body": None}, "bin.000001:50", old={"id": 1}, commit=True),
    ]
    apply(spark, table, *reversed(moves))
    assert rows_of(table) == [(2, "1", None), (3, "2", None)]


# F3 -------------------------------------------------------------------------------------------------------------------


def test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    row = {"id": 1, "title": "a"}
    good = {
        message("insert", row): "upsert",
        message("delete", {"id": 2}): "delete",
        message("bootstrap-insert", {"id": 3}, None): "upsert",
        message("bootstrap-start"): "bootstrap",
        message("bootstrap-complete"): "bootstrap",
        message("table-create", sql="create table t (id int)"): "schema change",
        message("table-alter", old={"columns": [{"name": "id"}], "table": "t"}): "schema change",
        message("database-drop"): "schema change",
        None: "empty",
        "": "empty",
        "null": "empty",
    }
    bad = {
        message("insert", row)[:60]: "unparsable",
        "[1": "unparsable",
        "text": "unparsable",
        "{}": "no-op",
        json.dumps({"data": row}): "no-op",
        message("upsert", row): "unknown-op",
        message("table-rename"): "unknown-op",
        message("insert"): "no-row",
        message("update"): "no-row",
        message("bootstrap-insert"): "no-row",
        message("delete"): "no-key",
        message("insert", row, None): "no-position",
        message("insert", row, "bin.000001"): "no-position",
        message("insert", row, "bin:5"): "no-position",
        message("insert", row, "bin.000001:-5"): "no-position",
        message("insert", row, xoffset="x"): "no-position",
        message("insert", row, "bin.000001:99999999999999999999"): "no-position",
        message("insert", {"id": None}): "null-key",
        message("insert", {"title": "a"}): "null-key",
        message("delete", {"title": "a"}): "null-key",
        message("insert", {"id": "x"}): "type:id",
        message("insert", {"id": 1.5}): "type:id",
        message("insert", {"id": 2**31}): "type:id",
    }
    feed = maxwell(values(spark, *good, *bad))
    assert {r["raw"]: r["reason"] for r in feed.rejected(table).collect()} == bad
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    counts = apply(spark, table, *good).feed
    assert (counts.read, counts.upserts, counts.deletes) == (len(good), 2, 1)
    assert counts.skipped == {"bootstrap": 2, "schema change": 3, "empty": 3}


def test_F3_fields_of_other_types_are_never_an_event(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    whole = {"type": "insert", "position": "b.1:5", "data": {"id": 1}, "old": {"id": 2}}
    others: tuple[Any, ...] = (7, "x", [[1]], {"id": {"b": 1}})
    messages = [json.dumps({**whole, field: other}) for field in whole for other in others]
    found = maxwell(values(spark, *messages)).rejected(table).collect()
    counted = collections.Counter(r["reason"] for r in found)
    assert counted == {"unparsable": 6, "unknown-op": 4, "no-position": 4, "type:id": 1}
    # An insert has no old key: it is not looked at.
    assert {*messages} - {r["raw"] for r in found} == {json.dumps({**whole, "old": {"id": {"b": 1}}})}


EDGES = {
    "d DECIMAL(38, 3)": (
        "-99999999999999999999999999999999999.125",
        Decimal("-99999999999999999999999999999999999.125"),
    ),
    "d DECIMAL(20, 0)": ("18446744073709551615", Decimal(18446744073709551615)),
    "d DECIMAL(4, 2)": ("1.5e1", Decimal("15.00")),
    "d DOUBLE": ("4.2341", 4.2341),
    "d DATE": ('"9999-12-31"', date(9999, 12, 31)),
    "d TIMESTAMP_NTZ": ('"1969-12-31 23:59:59.999999"', datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "d BOOLEAN": ("1", True),
    "d BINARY": ('"AP8nIg=="', bytearray(b"\0\xff'\"")),
    "d STRING": (json.dumps("\0 a'b\"c\\ 1.50 {"), "\0 a'b\"c\\ 1.50 {"),
    "d ARRAY<STRING>": ('["a","b, c"]', ["a", "b, c"]),
    "d STRUCT<a: DECIMAL(3, 1), b: STRING>": ('{"a":1.5,"b":"x"}', (Decimal("1.5"), "x")),
}


def test_F3_values_at_their_edges_are_exact(spark, tmp_path):
    columns = [f"c{i}{column[1:]}" for i, column in enumerate(EDGES)]
    table = table_of(spark, tmp_path, f"id INT, {', '.join(columns)}")
    data = ", ".join(f'"c{i}": {text}' for i, (text, _) in enumerate(EDGES.values()))
    apply(spark, table, message("insert", "HERE").replace('"HERE"', f'{{"id": 1, {data}}}'))
    assert rows_of(table) == [(1, *(value for _, value in EDGES.values()))]


def test_F3_a_JSON_column_is_stored_as_it_is_written(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, doc STRING, price DECIMAL(30, 10)")
    doc = '{"a":1.5,"b":[2.25,"3.5"],"c":"{"}'
    raw = message("insert", {"id": 1, "doc": "DOC", "price": "PRICE"})
    apply(spark, table, raw.replace('"DOC"', doc).replace('"PRICE"', "12345678901234567890.0123456789"))
    assert rows_of(table) == [(1, doc, Decimal("12345678901234567890.0123456789"))]


def test_F3_an_empty_text_is_not_null(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    apply(spark, table, message("insert", {"id": 1, "title": "", "body": None}))
    assert rows_of(table) == [(1, "", None)]


def test_F3_values_that_a_column_would_round_are_rejected(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, d DECIMAL(4, 2), at TIMESTAMP_NTZ")
    bad = {
        message("insert", {"id": 1, "d": 1.005}): "type:d",
        message("insert", {"id": 1, "at": "0000-00-00 00:00:00"}): "type:at",
    }
    assert {r["raw"]: r["reason"] for r in maxwell(values(spark, *bad)).rejected(table).collect()} == bad


# Options --------------------------------------------------------------------------------------------------------------


def test_F1_without_nulls_in_messages_what_an_update_lacks_is_null(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    apply(spark, table, message("insert", {"id": 1, "title": "a", "body": "b"}), output_nulls=False)
    apply(
        spark, table, message("update", {"id": 1, "title": "c"}, "b.000001:20", old={"body": "b"}), output_nulls=False
    )
    assert rows_of(table) == [(1, "c", None)]


def test_F1_options_say_names_zone_unit_and_epoch(spark, tmp_path):
    table = table_of(spark, tmp_path, "key INT, at TIMESTAMP, n TIMESTAMP_NTZ", "key")
    row = {"id": 1, "at": "2024-05-01 10:00:00.5", "n": 1_000}
    options = {"rename": {"id": "key"}, "zone": "Asia/Tokyo", "timestamps": {"n": "ms"}}
    apply(spark, table, message("insert", row, "bin.000009:9"), **options)
    shown = table.toDF().selectExpr("key", "unix_micros(at) AS at", "n").collect()
    assert [tuple(r) for r in shown] == [(1, 1714525200500000, datetime(1970, 1, 1, 0, 0, 1))]
    apply(spark, table, message("delete", row), **options)
    assert len(rows_of(table)) == 1
    apply(spark, table, message("delete", row), epoch=2, **options)
    assert rows_of(table) == []


def test_F2_the_order_of_arrival_needs_no_position(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    messages = [(message("insert", {"id": 1, "title": t}, None), offset) for t, offset in (("b", 8), ("a", 7))]
    frame = spark.createDataFrame(messages, "value STRING, offset BIGINT")
    table.applyChanges(maxwell(frame, sequence="arrival")).execute()
    assert rows_of(table) == [(1, "b", None)]


def test_F1_options_are_checked(spark):
    frame = values(spark, None)
    for options, text in [
        ({"output_nulls": "no"}, "output_nulls takes True or False, got 'no'"),
        ({"sequence": "time"}, "sequence takes 'log' or 'arrival'"),
        ({"epoch": -1}, "epoch takes"),
        ({"timestamps": "s"}, "timestamps takes"),
    ]:
        with pytest.raises(InvalidMergeError, match=text):
            maxwell(frame, **options)


# Any order and batches ------------------------------------------------------------------------------------------------

Rows = dict[int, dict[str, Any]]


class Source:
    """Changes of a table, as Maxwell's messages, and the rows at their end."""

    def __init__(self, seed: int, is_minimal: bool) -> None:
        self.keys = range(10 * seed + 1, 10 * seed + 6)
        self.random = random.Random(seed)
        self.is_minimal = is_minimal
        self.rows: Rows = {}
        self.messages: list[str] = []
        file, offset = 9, 400
        while len(self.messages) < 30:
            if self.random.random() < 0.2:
                file, offset = file + 1, 4
            offset += self.random.randint(30, 2_000)
            rows = [self.change() for _ in range(self.random.randint(1, 4))]
            for i, row in enumerate(rows):
                # One event has all rows of a transaction here. Its last has no offset.
                place = {"commit": True} if i == len(rows) - 1 else {"xoffset": i}
                self.messages.append(message(position=f"mysql-bin.{file:06}:{offset}", **row, **place))

    def values(self) -> dict[str, Any]:
        return {
            "title": f"t{self.random.randint(0, 9**6)}",
            "body": self.random.choice([None, "", f"b{self.random.random()}"]),
        }

    def change(self) -> dict[str, Any]:
        rows, key = self.rows, self.random.choice(self.keys)
        if key not in rows:
            rows[key] = {"id": key, **self.values()}
            return {"kind": "insert", "data": dict(rows[key])}
        if self.random.random() < 0.25:
            return {"kind": "delete", "data": rows.pop(key)}
        was, now = rows.pop(key), self.random.choice([key, key, self.random.choice(self.keys)])
        now = key if now in rows else now
        rows[now] = {**was, "id": now, **dict(self.random.sample([*self.values().items()], self.random.randint(0, 2)))}
        old = {name: value for name, value in was.items() if rows[now][name] != value}
        data = (
            {name: v for name, v in rows[now].items() if name in old or name == "id"} if self.is_minimal else rows[now]
        )
        return {"kind": "update", "data": dict(data), "old": old or None}


@pytest.mark.parametrize("is_minimal", [False, True])
def test_F1_changes_in_any_order_and_batches_end_as_a_replay(spark, tmp_path, is_minimal):
    sources = [Source(seed, is_minimal) for seed in range(10)]
    # Without history, a key that comes back before its change arrives has lost its past (U7).
    table = table_of(spark, tmp_path, COLUMNS, history=is_minimal)
    messages = [m for source in sources for m in source.messages]
    shuffled = random.Random(is_minimal).sample(messages, len(messages))
    for batch in (shuffled[:100], shuffled[100:200], [*shuffled[200:], *shuffled[:30]]):
        apply(spark, table, *batch)
    assert rows_of(table) == sorted((r["id"], r["title"], r["body"]) for s in sources for r in s.rows.values())
