"""F1-F4: GoldenGate's messages become the rows that the database has. The messages are written by hand and by an encoder."""

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
from trinitymerge.feeds.formats.goldengate import goldengate

COLUMNS = "id INT, title STRING, body STRING"
DOCUMENTED = [
    '{"table":"SHOP.NOTES","op_type":"U","op_ts":"2024-05-01 10:00:00.000123","pos":"00000000180000071245",'
    '"before":{"ID":5},"after":{"ID":5,"TITLE":"b"}}',
    '{"table":"SHOP.NOTES","op_type":"D","pos":"00000000180000071301","before":{"ID":5,"TITLE":"b"}}',
]


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


def message(op: str, before: Any = None, after: Any = None, pos: Any = 1, **more: Any) -> str:
    place = f"{pos:020}" if isinstance(pos, int) else pos
    return json.dumps({"table": "SHOP.NOTES", "op_type": op, "pos": place, "before": before, "after": after, **more})


def insert(pos: Any = 1, **row: Any) -> str:
    return message("I", None, row, pos)


def apply(spark, into, *messages: str | None, **options: Any) -> Any:
    return into.applyChanges(goldengate(values(spark, *messages), **options)).execute()


# F1 -------------------------------------------------------------------------------------------------------------------


def test_F1_documented_messages_become_the_table(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    old = insert(180000071000, ID=5, TITLE="a", BODY="long")
    result = apply(spark, table, DOCUMENTED[0], old, table="SHOP.NOTES")
    assert rows_of(table) == [(5, "b", "long")]
    assert result.feed.newest == "2024-05-01 10:00:00.000123"
    apply(spark, table, DOCUMENTED[1])
    assert rows_of(table) == []
    apply(spark, table, old, DOCUMENTED[0])
    assert rows_of(table) == []


def test_F1_a_changed_key_moves_the_row_and_what_the_update_lacks_stays(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    move = message("U", {"ID": 1, "TITLE": "a"}, {"ID": 2}, 2)
    apply(spark, table, insert(ID=1, TITLE="a", BODY="long"), move)
    assert rows_of(table) == [(2, "a", "long")]
    apply(spark, table, message("U", {"ID": 2}, {"ID": 2, "BODY": None}, 3))
    assert rows_of(table) == [(2, "a", None)]


def test_F1_what_an_update_lacks_is_taken_from_the_row_before(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    apply(spark, table, message("U", {"ID": 1, "TITLE": "a", "BODY": "b"}, {"ID": 1, "TITLE": None}, 2))
    assert rows_of(table) == [(1, None, "b")]


def test_F1_a_truncate_removes_older_rows(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    counts = apply(spark, table, insert(3, ID=2), message("T", pos=2), insert(1, ID=1)).feed
    assert (counts.truncates, counts.upserts) == (1, 2)
    assert rows_of(table) == [(2, None, None)]


def test_F1_fields_say_which_columns_are_missing(spark, tmp_path):
    """As in the documentation's messages with `includeIsMissingFields`."""
    table = table_of(spark, tmp_path, COLUMNS)
    apply(
        spark, table, insert(ID=1, ID_isMissing=False, TITLE="a", TITLE_isMissing=False, BODY="b", BODY_isMissing=False)
    )
    before = {
        "ID": 1,
        "ID_isMissing": False,
        "TITLE": None,
        "TITLE_isMissing": True,
        "BODY": None,
        "BODY_isMissing": True,
    }
    after = {
        "ID": 1,
        "ID_isMissing": False,
        "TITLE": None,
        "TITLE_isMissing": True,
        "BODY": None,
        "BODY_isMissing": False,
    }
    result = apply(spark, table, message("U", before, after, 2))
    assert rows_of(table) == [(1, "a", None)]
    assert not result.columnsIgnored
    apply(spark, table, message("D", before, None, 3))
    assert rows_of(table) == []


def test_F1_names_of_the_key_are_read(spark):
    (found,) = (
        goldengate(values(spark, message("T", primary_keys=["ID", "LANG"], tokens={"R": "AAD"}))).decoded().collect()
    )
    assert (found["key_names"], found["source"], found["op"]) == (["ID", "LANG"], "SHOP.NOTES", "truncate")


# F2 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_F2_the_time_of_an_operation_is_a_moment(spark, zone):
    texts = [
        "2024-05-01 10:00:00.000123",
        "2024-05-01T10:00:00.000123",
        "2024-05-01T10:00:00.000123Z",
        "2024-05-01 10:00:00+02:00",
        "x",
    ]
    frame = values(spark, *[message("T", pos=i, op_ts=text) for i, text in enumerate(texts)])
    found = [r[0] for r in goldengate(frame, zone=zone).decoded().selectExpr("unix_micros(at)").collect()]
    utc = 1714557600_000123
    local = utc - (9 * 3600 * 10**6 if zone == "Asia/Tokyo" else 0)
    assert found == [local, local, utc, 1714550400_000000, None]


# F3 -------------------------------------------------------------------------------------------------------------------


def test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    row = {"ID": 1, "TITLE": "a"}
    good = {
        message("I", None, row): "upsert",
        message("D", {"ID": 2}): "delete",
        message("U", None, {"ID": 3}, 2): "upsert",
        None: "empty",
        "": "empty",
        "null": "empty",
    }
    bad = {
        message("I", None, row)[:80]: "unparsable",
        "[1": "unparsable",
        "text": "unparsable",
        message("I", None, 7): "unparsable",
        message("I", None, "x"): "unparsable",
        message("I", None, [row]): "unparsable",
        message("D", "x"): "unparsable",
        "{}": "no-op",
        json.dumps({"after": row}): "no-op",
        message("X", None, row): "unknown-op",
        message("i", None, row): "unknown-op",
        message("I"): "no-row",
        message("I", row): "no-row",
        message("U", row): "no-row",
        message("D"): "no-key",
        message("D", None, row): "no-key",
        message("T", pos=None): "no-position",
        message("I", None, row, None): "no-position",
        message("I", None, row, "180000071245"): "no-position",
        message("I", None, row, "0000000000000000000x"): "no-position",
        message("I", None, row, "-0000000000000000001"): "no-position",
        message("I", None, row, "000000000000000000001"): "no-position",
        message("I", None, {"ID": None}): "null-key",
        message("U", {"TITLE": "a"}, {"TITLE": "b"}): "null-key",
        message("D", {"TITLE": "a"}): "null-key",
        message("I", None, {"ID": "x"}): "type:id",
        message("I", None, {"ID": 1.5}): "type:id",
        message("I", None, {"ID": {"a": 1}}): "type:id",
    }
    feed = goldengate(values(spark, *good, *bad))
    assert {r["raw"]: r["reason"] for r in feed.rejected(table).collect()} == bad
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    counts = apply(spark, table, *good).feed
    assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (len(good), 2, 1, {"empty": 3})


EDGES = {
    "DECIMAL(38, 3)": ("-99999999999999999999999999999999999.125", Decimal("-99999999999999999999999999999999999.125")),
    "DECIMAL(38, 0)": ("-99999999999999999999999999999999999999", Decimal("-99999999999999999999999999999999999999")),
    "DECIMAL(10, 2)": ('"1234.50"', Decimal("1234.50")),
    "DOUBLE": ("4.2341", 4.2341),
    "DATE": ('"9999-12-31"', date(9999, 12, 31)),
    "TIMESTAMP_NTZ": ('"1969-12-31 23:59:59.999999"', datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "BINARY": ('"AP8nIg=="', bytearray(b"\0\xff'\"")),
    "STRING": (json.dumps("\0 a'b\"c\\ 1.50 {"), "\0 a'b\"c\\ 1.50 {"),
    "VARCHAR(3)": ('""', ""),
    "BOOLEAN": ("null", None),
}


def test_F3_values_at_their_edges_are_exact(spark, tmp_path):
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(EDGES))
    table = table_of(spark, tmp_path, f"id INT, {columns}")
    data = ", ".join(f'"C{i}": {text}' for i, (text, _) in enumerate(EDGES.values()))
    apply(spark, table, message("I", None, "HERE").replace('"HERE"', f'{{"ID": 1, {data}}}'))
    assert rows_of(table) == [(1, *(value for _, value in EDGES.values()))]


def test_F3_values_that_a_column_would_change_are_rejected(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, d DECIMAL(4, 2), b BINARY, at TIMESTAMP_NTZ")
    rows = [{"ID": 1, "D": 1.005}, {"ID": 1, "B": "%"}, {"ID": 1, "AT": "1993-11-03:07:51:35"}]
    found = goldengate(values(spark, *[insert(**row) for row in rows])).rejected(table).collect()
    assert collections.Counter(r["reason"] for r in found) == {"type:d": 1, "type:b": 1, "type:at": 1}


# Options --------------------------------------------------------------------------------------------------------------


def test_F1_options_say_names_zone_unit_binary_and_epoch(spark, tmp_path):
    table = table_of(spark, tmp_path, "key INT, at TIMESTAMP, n TIMESTAMP_NTZ, b BINARY", "key")
    row = {"ID": 1, "AT": "2024-05-01 10:00:00.5", "N": 1_000, "B": "00ff"}
    options = {"rename": {"ID": "key"}, "zone": "Asia/Tokyo", "timestamps": "ms", "binary": "hex"}
    apply(spark, table, insert(9, **row), **options)
    shown = table.toDF().selectExpr("key", "unix_micros(at)", "n", "b").collect()
    assert [tuple(r) for r in shown] == [(1, 1714525200500000, datetime(1970, 1, 1, 0, 0, 1), bytearray(b"\0\xff"))]
    apply(spark, table, message("D", row), **options)
    assert len(rows_of(table)) == 1
    apply(spark, table, message("D", row), epoch=2, **options)
    assert rows_of(table) == []


def test_F2_the_order_of_arrival_needs_no_position(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    messages = [(insert(None, ID=1, TITLE=t), offset) for t, offset in (("b", 8), ("a", 7))]
    frame = spark.createDataFrame(messages, "value STRING, offset BIGINT")
    table.applyChanges(goldengate(frame, sequence="arrival")).execute()
    assert rows_of(table) == [(1, "b", None)]


def test_F1_options_are_checked(spark):
    for options, text in [
        ({"sequence": "time"}, "sequence takes 'log' or 'arrival'"),
        ({"epoch": True}, "epoch takes"),
        ({"binary": "text"}, "binary takes"),
        ({"timestamps": "s"}, "timestamps takes"),
    ]:
        with pytest.raises(InvalidMergeError, match=text):
            goldengate(values(spark, None), **options)


# Any order and batches ------------------------------------------------------------------------------------------------


class Source:
    """Changes of a table, as GoldenGate's messages, and the rows at their end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.messages: list[str] = []
        pos = 10**10 * self.random.randint(0, 20)
        for _ in range(30):
            pos += self.random.choice([97, 1_003, 10**10])
            self.messages.append(message(pos=pos, **self.change()))

    def values(self) -> dict[str, Any]:
        return {
            "TITLE": f"t{self.random.randint(0, 9**6)}",
            "BODY": self.random.choice([None, "", f"b{self.random.random()}"]),
        }

    def change(self) -> dict[str, Any]:
        rows, key = self.rows, self.random.randint(1, 5)
        what = self.random.random()
        if what < 0.05:
            rows.clear()
            return {"op": "T"}
        if key not in rows:
            rows[key] = {"ID": key, **self.values()}
            return {"op": "I", "after": dict(rows[key])}
        was = rows.pop(key)
        if what < 0.25:
            return {"op": "D", "before": self.random.choice([was, {"ID": key}])}
        now = self.random.choice([key, key, *(k for k in range(1, 6) if k not in rows)])
        chosen = self.random.sample([*self.values().items()], self.random.randint(0, 2))
        rows[now] = {**was, "ID": now, **dict(chosen)}
        changed = {"ID", *(name for name, _ in chosen)}
        kept = changed if self.random.random() < 0.7 else {*was}
        before = {name: value for name, value in was.items() if name == "ID" or self.random.random() < 0.3}
        return {"op": "U", "before": before, "after": {n: v for n, v in rows[now].items() if n in kept}}


@pytest.mark.parametrize("seed", range(3))
def test_F1_changes_in_any_order_and_batches_end_as_a_replay(spark, tmp_path, seed):
    source = Source(seed)
    # Without history, a key that comes back before its change arrives has lost its past (U7).
    table = table_of(spark, tmp_path, COLUMNS, history=True)
    shuffled = random.Random(seed).sample(source.messages, len(source.messages))
    for batch in (shuffled[:10], shuffled[10:20], [*shuffled[20:], *shuffled[:3]]):
        apply(spark, table, *batch)
    assert rows_of(table) == sorted((r["ID"], r["TITLE"], r["BODY"]) for r in source.rows.values())
