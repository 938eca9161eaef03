"""F1-F4: Canal's messages become the rows that the database has. The messages are written by hand and by an encoder."""

from __future__ import annotations

import collections
import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from feed_tables import rows_of, table_of

from trinitymerge import AmbiguousMergeError, InvalidMergeError, RejectedRowsError
from trinitymerge.feeds.formats.canal import canal

COLUMNS = "id INT, title STRING, body STRING"
UPDATE = (
    '{"data":[{"id":"5","title":"b"}],"old":[{"title":"a"}],"database":"shop","table":"notes","es":1700000000000,"id":17,'
    '"isDdl":false,"pkNames":["id"],"mysqlType":{"id":"bigint","title":"varchar(60)"},"type":"UPDATE"}'
)
TRUNCATE = (
    '{"data":null,"database":"shop","table":"notes","es":1700000002000,"id":19,"isDdl":true,"sql":"TRUNCATE TABLE notes",'
    '"type":"TRUNCATE"}'
)


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


def message(kind: str, data: Any = None, old: Any = None, es: Any = 1_700_000_000_000, id: Any = 1, **more: Any) -> str:
    said = {
        "type": kind,
        "database": "shop",
        "table": "notes",
        "isDdl": False,
        "es": es,
        "id": id,
        "data": data,
        "old": old,
    }
    return json.dumps({**said, **more})


def apply(spark, into, *messages: str | None, **options: Any) -> Any:
    return into.applyChanges(canal(values(spark, *messages), **options)).execute()


# F1 -------------------------------------------------------------------------------------------------------------------


def test_F1_documented_messages_become_the_table(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    result = apply(spark, table, UPDATE, table="notes")
    assert rows_of(table) == [(5, "b", None)]
    assert result.feed.newest == "2023-11-14 22:13:20"
    counts = apply(spark, table, TRUNCATE, message("INSERT", [{"id": "6"}], es=1_700_000_002_000, id=20)).feed
    assert (counts.truncates, counts.upserts) == (1, 1)
    assert rows_of(table) == [(6, None, None)]
    apply(spark, table, message("DELETE", [{"id": "6"}], es=1_700_000_003_000))
    assert rows_of(table) == []
    apply(spark, table, UPDATE)
    assert rows_of(table) == []


def test_F1_each_element_is_a_row_and_changed_keys_move(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    rows = [{"id": f"{i}", "title": f"t{i}", "body": f"b{i}"} for i in range(1, 4)]
    apply(spark, table, message("INSERT", rows))
    # As one statement writes it that moves the rows on: 3 to 4, 2 to 3. What the update lacks stays.
    moved = message(
        "UPDATE", [{"id": "4", "title": "t3"}, {"id": "3", "title": "t2"}], [{"id": "3"}, {"id": "2"}], id=2
    )
    apply(spark, table, moved)
    assert rows_of(table) == [(1, "t1", "b1"), (3, "t2", "b2"), (4, "t3", "b3")]
    apply(spark, table, message("DELETE", [{"id": "1"}, {"id": "4"}], id=3))
    assert rows_of(table) == [(3, "t2", "b2")]


def test_F1_messages_say_types_and_the_key(spark):
    kinds = {
        **{"a": "bigint(20) unsigned", "b": "decimal(38,10)", "c": "decimal(10,2) unsigned", "d": "decimal(65,30)"},
        **{
            "e": "tinyint(1)",
            "f": "int(10) unsigned zerofill",
            "g": "datetime(6)",
            "h": "timestamp",
            "i": "varbinary(16)",
        },
        **{
            "j": "enum('a','b)')",
            "k": "json",
            "l": "date",
            "m": "DOUBLE",
            "n": "decimal(9)",
            "o": "time(3)",
            "p": "text",
        },
    }
    feed = canal(values(spark, message("INSERT", [{"a": "1"}], pkNames=["a", "e"], mysqlType=kinds)))
    found = feed.decoded().collect()[0]
    text = dict.fromkeys("djkop", "STRING")
    number = {
        "a": "DECIMAL(20,0)",
        "b": "DECIMAL(38,10)",
        "c": "DECIMAL(10,2)",
        "e": "TINYINT",
        "f": "BIGINT",
        "n": "DECIMAL(9,0)",
    }
    other = {"g": "TIMESTAMP_NTZ", "h": "TIMESTAMP_LTZ", "i": "BINARY", "l": "DATE", "m": "DOUBLE"}
    assert found["types"] == {**text, **number, **other}
    assert found["key_names"] == ["a", "e"]
    assert feed.schema().startswith("`a` DECIMAL(20,0), `b` DECIMAL(38,10), ")


def test_F1_a_message_of_many_rows_is_read(spark, tmp_path):
    """Copies of the whole message beside each row would fill the memory."""
    table = table_of(spark, tmp_path, COLUMNS)
    rows = [{"id": f"{i}", "title": "x" * 100} for i in range(20_000)]
    kinds = {"id": "int", "title": "varchar(100)"}
    result = apply(spark, table, message("INSERT", rows, mysqlType=kinds))
    assert (result.feed.upserts, table.toDF().count()) == (20_000, 20_000)


# F2 -------------------------------------------------------------------------------------------------------------------


def test_F2_the_order_is_time_batch_offset_and_place(spark):
    said = [(9, 10, 7), (10, 2, 9), (10, 10, 3), (10, 10, 20), (11, 1, 1), (100, 1, 1)]
    frame = spark.createDataFrame(
        [(message("INSERT", [{"id": "1"}, {"id": "2"}], es=es, id=id), offset) for es, id, offset in said],
        "value STRING, offset BIGINT",
    )
    found = [r["seq"] for r in canal(frame).decoded().collect()]
    assert found == sorted(set(found))
    assert found[3] == f"0001/{10:016x}/{2:016x}/{9:016x}/{1:016x}"
    arrived = [r["seq"] for r in canal(frame, sequence="arrival", epoch=3).decoded().collect()]
    assert arrived[:2] == [f"0003/{7:016x}/{0:016x}", f"0003/{7:016x}/{1:016x}"]


def test_F2_two_changes_in_one_batch_and_second_are_ordered_by_their_offset(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    pair = [(message("INSERT", [{"id": "1", "title": "a"}]), 5), (message("DELETE", [{"id": "1", "title": "a"}]), 6)]
    with pytest.raises(AmbiguousMergeError):
        apply(spark, table, *[m for m, _ in pair])
    table.applyChanges(canal(spark.createDataFrame(pair[::-1], "value STRING, offset BIGINT"))).execute()
    assert rows_of(table) == []


# F3 -------------------------------------------------------------------------------------------------------------------


def test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    row = [{"id": "1", "title": "a"}]
    good = {
        message("INSERT", row): "upsert",
        message("DELETE", [{"id": "2"}]): "delete",
        message("CREATE", isDdl=True, sql="create table t (id int)"): "schema change",
        message("QUERY", isDdl=True, table=""): "schema change",
        message("ALTER", isDdl=True): "schema change",
        None: "empty",
        "": "empty",
        "null": "empty",
    }
    without_rows = {
        message("INSERT", row)[:150]: "unparsable",
        "[1": "unparsable",
        "text": "unparsable",
        message("INSERT", {"id": "1"}): "unparsable",
        message("INSERT", "x"): "unparsable",
        message("INSERT", row, "x"): "unparsable",
        "{}": "no-op",
        message("QUERY", sql="update notes set title = 'a'"): "unknown-op",
        message("INSERT"): "no-row",
        message("UPDATE", []): "no-row",
        message("DELETE"): "no-key",
        message("TRUNCATE", isDdl=True, es=None): "no-position",
    }
    with_rows = {
        (json.dumps({"data": row}), None): "no-op",
        (message("UPSERT", row), "UPSERT"): "unknown-op",
        (message("INSERT", row, es=None), "INSERT"): "no-position",
        (message("INSERT", row, id=None), "INSERT"): "no-position",
        (message("INSERT", row, id="x"), "INSERT"): "no-position",
        (message("INSERT", row, es=-1), "INSERT"): "no-position",
        (message("INSERT", [{"id": None}]), "INSERT"): "null-key",
        (message("DELETE", [{"title": "a"}]), "DELETE"): "null-key",
        (message("INSERT", [{"id": "x"}]), "INSERT"): "type:id",
        (message("INSERT", [None]), "INSERT"): "no-row",
        (message("DELETE", [None]), "DELETE"): "no-key",
    }
    rejected = canal(values(spark, *without_rows)).rejected(table).collect()
    assert {r["raw"]: r["reason"] for r in rejected} == without_rows
    rejected = canal(values(spark, *[raw for raw, _ in with_rows])).rejected(table).collect()
    found = collections.Counter((json.loads(r["raw"])["type"], r["reason"]) for r in rejected)
    assert found == collections.Counter((kind, reason) for (_, kind), reason in with_rows.items())
    with pytest.raises(RejectedRowsError):
        apply(spark, table, *good, *without_rows)
    counts = apply(spark, table, *good).feed
    assert (counts.read, counts.upserts, counts.deletes) == (len(good), 1, 1)
    assert counts.skipped == {"schema change": 3, "empty": 3}


def test_F3_of_a_message_only_the_row_that_cannot_be_read_is_rejected(spark, tmp_path):
    table = table_of(spark, tmp_path, COLUMNS)
    feed = canal(values(spark, message("INSERT", [{"id": "1", "title": "a"}, {"id": "x", "title": None}])))
    (found,) = feed.rejected(table).collect()
    assert json.loads(found["raw"])["data"] == [{"id": "x", "title": None}]
    assert [r["id"] for r in feed.changes(table).collect()] == [1]


EDGES = {
    "decimal(38,3)": (
        "DECIMAL(38, 3)",
        "-99999999999999999999999999999999999.125",
        Decimal("-99999999999999999999999999999999999.125"),
    ),
    "bigint unsigned": ("DECIMAL(20, 0)", "18446744073709551615", Decimal(18446744073709551615)),
    "double": ("DOUBLE", "1.7976931348623157E308", 1.7976931348623157e308),
    "date": ("DATE", "9999-12-31", date(9999, 12, 31)),
    "datetime(6)": ("TIMESTAMP_NTZ", "1969-12-31 23:59:59.999999", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "bit(1)": ("BOOLEAN", "1", True),
    "blob": ("BINARY", bytes(range(256)).decode("latin-1"), bytearray(range(256))),
    "varbinary(8)": ("BINARY", "", bytearray()),
    "varchar(20)": ("STRING", "\0 a'b\"c\\ 1.50 {", "\0 a'b\"c\\ 1.50 {"),
    "text": ("STRING", "", ""),
    "longtext": ("STRING", None, None),
    "json": ("STRING", '{"a": 1.50}', '{"a": 1.50}'),
}


def test_F3_values_at_their_edges_are_exact(spark, tmp_path):
    columns = ", ".join(f"c{i} {column}" for i, (column, _, _) in enumerate(EDGES.values()))
    table = table_of(spark, tmp_path, f"id INT, {columns}")
    row = {f"c{i}": text for i, (_, text, _) in enumerate(EDGES.values())}
    kinds = {"id": "int", **{f"c{i}": kind for i, kind in enumerate(EDGES)}}
    apply(spark, table, message("INSERT", [{"id": "1", **row}], mysqlType=kinds))
    assert rows_of(table) == [(1, *(value for _, _, value in EDGES.values()))]


def test_F3_values_that_a_column_would_change_are_rejected(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, d DECIMAL(4, 2), b BINARY, at TIMESTAMP_NTZ")
    rows = [{"id": "1", "d": "1.005"}, {"id": "1", "b": "\u0100"}, {"id": "1", "at": "0000-00-00 00:00:00"}]
    found = canal(values(spark, message("INSERT", rows, mysqlType={"b": "blob"}))).rejected(table).collect()
    assert collections.Counter(r["reason"] for r in found) == {"type:d": 1, "type:b": 1, "type:at": 1}


# Options --------------------------------------------------------------------------------------------------------------


def test_F1_options_say_names_zone_and_epoch(spark, tmp_path):
    table = table_of(spark, tmp_path, "key INT, at TIMESTAMP", "key")
    row = {"id": "1", "at": "2024-05-01 10:00:00.5"}
    options = {"rename": {"id": "key"}, "zone": "Asia/Tokyo"}
    apply(spark, table, message("INSERT", [row], id=9), **options)
    assert [tuple(r) for r in table.toDF().selectExpr("key", "unix_micros(at)").collect()] == [(1, 1714525200500000)]
    apply(spark, table, message("DELETE", [row]), **options)
    assert len(rows_of(table)) == 1
    apply(spark, table, message("DELETE", [row]), epoch=2, **options)
    assert rows_of(table) == []


def test_F1_options_are_checked(spark):
    for options, text in [
        ({"sequence": "time"}, "sequence takes 'log' or 'arrival'"),
        ({"epoch": 10_000}, "epoch takes"),
    ]:
        with pytest.raises(InvalidMergeError, match=text):
            canal(values(spark, None), **options)
    with pytest.raises(InvalidMergeError, match="needs a column 'offset'"):
        canal(values(spark, None), sequence="arrival").decoded()


# Any order and batches ------------------------------------------------------------------------------------------------


class Source:
    """Changes of a table, as Canal's messages with their offsets, and the rows at their end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: dict[int, dict[str, str | None]] = {}
        self.messages: list[tuple[str, int]] = []
        es, batch = 1_700_000_000_000, 1
        while len(self.messages) < 27:
            es += self.random.choice([0, 0, 1000])
            batch += self.random.choice([0, 0, 1])
            self.messages.append((message(**self.change(), es=es, id=batch), len(self.messages)))

    def values(self) -> dict[str, str | None]:
        return {
            "title": f"t{self.random.randint(0, 9**6)}",
            "body": self.random.choice([None, "", f"b{self.random.random()}"]),
        }

    def change(self) -> dict[str, Any]:
        rows, keys = self.rows, self.random.sample(range(1, 6), self.random.randint(1, 3))
        what = self.random.random()
        if what < 0.07:
            rows.clear()
            return {"kind": "TRUNCATE", "isDdl": True}
        known = [k for k in keys if k in rows]
        if not known:
            for key in keys:
                rows[key] = {"id": f"{key}", **self.values()}
            return {"kind": "INSERT", "data": [dict(rows[k]) for k in keys]}
        if what < 0.3:
            return {"kind": "DELETE", "data": [rows.pop(k) for k in known]}
        changes = [self.update(key) for key in known]
        return {"kind": "UPDATE", "data": [d for d, _ in changes], "old": [o for _, o in changes]}

    def update(self, key: int) -> tuple[dict[str, Any], dict[str, Any]]:
        was, now = self.rows.pop(key), self.random.choice([key, key, *(k for k in range(1, 6) if k not in self.rows)])
        chosen = self.random.sample([*self.values().items()], self.random.randint(0, 2))
        row = self.rows[now] = {**was, "id": f"{now}", **dict(chosen)}
        old = {name: value for name, value in was.items() if row[name] != value}
        lacks = {name for name in row if name not in old and name != "id" and self.random.random() < 0.3}
        return {name: value for name, value in row.items() if name not in lacks}, old


@pytest.mark.parametrize("seed", range(3))
def test_F1_changes_in_any_order_and_batches_end_as_a_replay(spark, tmp_path, seed):
    source = Source(seed)
    # Without history, a key that comes back before its change arrives has lost its past (U7).
    table = table_of(spark, tmp_path, COLUMNS, history=True)
    shuffled = random.Random(seed).sample(source.messages, len(source.messages))
    for batch in (shuffled[:9], shuffled[9:18], [*shuffled[18:], *shuffled[:3]]):
        table.applyChanges(canal(spark.createDataFrame(batch, "value STRING, offset BIGINT"))).execute()
    assert rows_of(table) == sorted((int(r["id"] or ""), r["title"], r["body"]) for r in source.rows.values())
