"""F1-F4: Debezium's messages become the rows that the database has.

`tests/data/feeds/debezium` has a captured stream with the database's rows at its end, and single messages in other forms.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from feed_tables import NOTES, TABLES, of_database, rows_of, table_of
from helpers import assertRows
from tables import new_table

from trinitymerge import InvalidMergeError, RejectedRowsError, TrinityTable, feeds

DATA = Path(__file__).parent.parent / "data" / "feeds" / "debezium"
MESSAGES = "key STRING, value STRING, topic STRING, partition INT, offset BIGINT"

# Messages -------------------------------------------------------------------------------------------------------------


def text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def captured() -> list[tuple[Any, ...]]:
    """The messages of the captured stream, as Kafka would have them."""
    with gzip.open(DATA / "postgresql.jsonl.gz", "rt") as lines:
        return [
            (text(m["key"]), text(m["value"]), m["topic"], 0, i)
            for i, m in enumerate(json.loads(line) for line in lines)
        ]


def envelope(op: str, row_: Mapping[str, Any] | None, lsn_: int, /, **source: Any) -> str:
    """A message of the table `public.t`."""
    position = {
        "sequence": f'["{lsn_}","{lsn_}"]',
        "schema": "public",
        "table": "t",
        "snapshot": "false",
        "ts_ms": lsn_,
    }
    row_of = {"before": row_} if op == "d" else {"after": row_}
    return json.dumps({"before": None, "after": None, **row_of, "source": {**position, **source}, "op": op})


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


# The captured stream --------------------------------------------------------------------------------------------------


def assert_is_the_databases(name: str, table: TrinityTable) -> None:
    assertRows(table.toDF().drop("_seq"), of_database(DATA / "final" / f"{name}.csv", table, {"price": "NaN"}))


def applied(spark, directory: Path, name: str, batches: Iterable[list[tuple[Any, ...]]], **more: Any) -> list[Any]:
    columns, key = TABLES[name]
    table = table_of(spark, directory, columns, key, **more)
    results = []
    for batch in batches:
        feed = feeds.debezium(spark.createDataFrame(batch, MESSAGES), table=f"public.{name}", timestamps="ms")
        results.append(table.applyChanges(feed).execute())
    assert_is_the_databases(name, table)
    return results


@pytest.mark.parametrize("name", TABLES)
def test_F1_a_captured_stream_in_one_batch_ends_as_the_database(spark, tmp_path, name):
    (result,) = applied(spark, tmp_path, name, [captured()])
    counts = result.feed
    assert counts.read == 1172 == result.rowsSource
    assert counts.read == counts.upserts + counts.deletes + counts.truncates + sum(counts.skipped.values())
    assert {k: n for k, n in counts.skipped.items() if k != "other table"} == {
        "heartbeat": 16,
        "tombstone": 25,
        "transaction": 238,
    }
    assert result.strategy == ("keyed lookup" if name in ("notes", "basket") else "blind append")


def shuffled(name: str, seed: int, most: int) -> list[list[tuple[Any, ...]]]:
    """The messages of a table in any order, in several batches. Both halves of a changed key stay together."""
    rnd, together = random.Random(f"{name} {seed}"), dict[str, list[tuple[Any, ...]]]()
    for i, message in enumerate(captured()):
        source = json.loads(message[1] or "{}").get("source", {})
        if source.get("table") == name:
            together.setdefault(source["sequence"] if source["snapshot"] == "false" else str(i), []).append(message)
    groups = rnd.sample([*together.values()], len(together))
    cuts = sorted(rnd.sample(range(1, len(groups)), most - 1))
    return [[m for group in groups[a:b] for m in group] for a, b in zip([0, *cuts], [*cuts, len(groups)], strict=True)]


@pytest.mark.parametrize(("name", "seed", "history"), [("notes", 0, True), ("basket", 1, False), ("accounts", 2, True)])
def test_F1_a_captured_stream_in_any_order_and_batches_ends_as_the_database(spark, tmp_path, name, seed, history):
    batches = shuffled(name, seed, 3)
    results = applied(spark, tmp_path, name, batches, history=history)
    assert [r.feed.read for r in results] == [*map(len, batches)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", [name for name in TABLES if name != "tellers"])
def test_F1_twenty_shuffles_of_a_captured_stream_end_as_the_database(spark, tmp_path, name, seed):
    applied(spark, tmp_path, name, shuffled(name, seed, 2 + seed % 4), history=seed % 2 == 0)


def test_F2_a_change_that_commits_after_the_snapshot_wins_over_it(spark, tmp_path):
    """Its LSN is smaller than the snapshot's. An order by LSN would lose it."""
    lines = [json.loads(line) for line in (DATA / "open-across-snapshot.jsonl").read_text().splitlines()]
    for line in lines:
        if line["value"]["op"] == "u":
            line["value"]["after"]["abalance"] = 7
    table = table_of(spark, tmp_path, TABLES["accounts"][0], "aid")
    table.applyChanges(
        feeds.debezium(values(spark, *[json.dumps(line["value"]) for line in reversed(lines)]))
    ).execute()
    assert [(row[0], row[2]) for row in rows_of(table)] == [(397, 7), (399, 7)]


# Forms of messages ----------------------------------------------------------------------------------------------------


def test_F1_a_message_with_its_schema_needs_no_options(spark, tmp_path):
    with gzip.open(DATA / "with-schema.jsonl.gz", "rt") as lines:
        message = json.loads(next(lines))
    message["value"]["payload"]["after"]["price"] = "/A=="
    columns = NOTES.replace("at_time BIGINT", "at_time STRING")
    table = table_of(spark, tmp_path, columns, ["id", "lang"])
    frame = spark.createDataFrame([(text(message["key"]), text(message["value"]))], "key STRING, value STRING")
    table.applyChanges(feeds.debezium(frame)).execute()
    row = table.toDF().collect()[0].asDict()
    changed = datetime(2026, 11, 24, 20, 16, 23, 355000)
    assert (row["day"], row["at_time"], row["changed"]) == (date(2024, 2, 29), "13:37:00.500000", changed)
    assert row["price"] == Decimal("-0.0004")
    assert (row["raw"], row["tags"], row["flag"]) == (base64.b64decode("XoUfNsCGuN2EFgty42pqkw=="), [], True)


def test_S44_a_new_column_gets_the_type_of_the_messages_schema(spark, tmp_path):
    with gzip.open(DATA / "with-schema.jsonl.gz", "rt") as lines:
        message = json.loads(next(lines))
    frame = spark.createDataFrame([(text(message["key"]), text(message["value"]))], "key STRING, value STRING")
    narrow = table_of(spark, tmp_path, "id BIGINT, lang STRING", ["id", "lang"])
    ignored = narrow.applyChanges(feeds.debezium(frame)).execute().columnsIgnored
    assert {*ignored} == {n.split()[0] for n in NOTES.split(", ")} - {"id", "lang"}
    narrow.applyChanges(feeds.debezium(frame), exceptColumns=["doc"]).withSchemaEvolution().execute()
    kinds = {f.name: f.dataType.simpleString() for f in narrow.toDF().schema.fields}
    wanted = {"price": "decimal(12,4)", "day": "date", "seen": "timestamp", "changed": "timestamp_ntz", "raw": "binary"}
    wanted |= {"tags": "array<string>", "ratio": "double", "flag": "boolean", "at_time": "string", "uid": "string"}
    assert {n: k for n, k in kinds.items() if n in wanted} == wanted
    assert "doc" not in kinds


def test_F1_a_message_with_its_schema_has_the_columns_of_a_table(spark, tmp_path):
    with gzip.open(DATA / "with-schema.jsonl.gz", "rt") as lines:
        message = json.loads(next(lines))
    frame = spark.createDataFrame([(text(message["key"]), text(message["value"]))], "key STRING, value STRING")
    feed = feeds.debezium(frame, table="public.notes", rename={"UID": "uuid"})
    table = TrinityTable.create(
        spark, str(tmp_path / "made"), feed.schema(), primaryKey=["id", "lang"], watermarkKey="_seq"
    )
    table.applyChanges(feed).execute()
    row = table.toDF().collect()[0]
    assert (row["uuid"], row["day"], row["tags"]) == ("5e851f36-c086-b8dd-8416-0b72e36a6a93", date(2024, 2, 29), [])
    with pytest.raises(InvalidMergeError, match="no message says the types"):
        feeds.debezium(values(spark, envelope("c", {"id": 1}, 1))).schema()


def test_F1_flattened_messages(spark, tmp_path):
    lines = [json.loads(line) for line in (DATA / "flattened.jsonl").read_text().splitlines()]
    table = table_of(spark, tmp_path, TABLES["tellers"][0], "tid")
    batches = [lines[i : i + 2] for i in range(0, len(lines), 2)]
    results = []
    for batch in reversed(batches):
        frame = spark.createDataFrame([(text(m["key"]), text(m["value"])) for m in batch], "key STRING, value STRING")
        results.append(
            table.applyChanges(feeds.debezium(frame, table="tellers", flattened=True, tombstones="skip")).execute().feed
        )
    state = dict[int, Any]()
    for line in lines:
        if line["value"] is not None:
            state[line["key"]["tid"]] = line["value"]
    alive = [v for v in state.values() if v["__deleted"] == "false"]
    assert rows_of(table) == sorted((v["tid"], v["bid"], v["tbalance"]) for v in alive)
    assert sum(r.read for r in results) == len(lines)


def test_F1_documents_of_the_connector_for_MongoDB_are_rows(spark, tmp_path):
    def change(op: str, id: Any, after: dict[str, Any] | None, order: int) -> tuple[str, str]:
        said = {"connector": "mongodb", "ts_ms": 1700000000000, "ord": order, "db": "d", "collection": "t"}
        document = None if after is None else json.dumps({"_id": id, **after})
        return json.dumps({"id": json.dumps(id)}), json.dumps({"op": op, "after": document, "source": said})

    one, two = ({"$oid": "5f2b" + "0" * 19 + digit} for digit in "12")
    sent = [
        change("c", one, {"n": {"$numberLong": "5"}, "s": 'a "after": "b"'}, 1),
        change("c", two, {"n": 6}, 2),
        change("u", one, {"n": 7}, 3),
        change("d", two, None, 4),
    ]
    table = new_table(
        spark, tmp_path, "_id STRING, n INT, s STRING, _seq STRING", primaryKey="_id", watermarkKey="_seq"
    )
    for message in reversed(sent):
        frame = spark.createDataFrame([message], "key STRING, value STRING")
        table.applyChanges(feeds.debezium(frame, table="d.t")).execute()
    assert [tuple(row)[:3] for row in table.toDF().collect()] == [(one["$oid"], 7, None)]


def test_F1_a_row_may_have_columns_as_messages_of_MongoDB_have(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, after STRING, connector STRING, _seq STRING", watermarkKey="_seq")
    feed = feeds.debezium(values(spark, envelope("c", {"id": 1, "after": "x", "connector": "mongodb"}, 1)))
    assert [tuple(row)[:3] for row in feed.changes(table).collect()] == [(1, "x", "mongodb")]


def test_U1_placeholders_of_every_type_leave_a_column_unchanged(spark, tmp_path):
    word = "__debezium_unavailable_value"
    numbers = list(word.encode())
    name = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
    placeholders = {
        "s": word,
        "b": base64.b64encode(word.encode()).decode(),
        "t": [word],
        "i": numbers,
        "u": [name],
        "h": {word: word},
    }
    columns = "s STRING, b BINARY, t ARRAY<STRING>, i ARRAY<INT>, u ARRAY<STRING>, h MAP<STRING, STRING>"
    table = new_table(spark, tmp_path, f"id INT, {columns}, _seq STRING", watermarkKey="_seq")
    feed = feeds.debezium(values(spark, envelope("u", {"id": 1, **placeholders}, 1)))
    assert [sorted(row["_unchanged"]) for row in feed.changes(table).collect()] == [sorted(placeholders)]


def test_U7_columns_of_any_name_keep_their_values_when_the_key_changes(spark, tmp_path):
    names = ("gone", "place", "is_one", "old_key")
    columns = ", ".join(f"{name} STRING" for name in (*names, "body"))
    table = new_table(spark, tmp_path, f"id INT, {columns}, _seq STRING", watermarkKey="_seq")
    row = {**dict.fromkeys(names, "x"), "body": "long"}
    moved = {"id": 2, **row, "body": "__debezium_unavailable_value"}
    sent = [envelope("c", {"id": 1, **row}, 1), envelope("d", {"id": 1}, 5), envelope("c", moved, 5)]
    table.applyChanges(feeds.debezium(values(spark, *sent))).execute()
    assertRows(table.toDF().drop("_seq"), [(2, *row.values())])


def test_S44_U1_a_new_column_that_a_message_of_the_batch_leaves_out_keeps_its_value(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, a STRING, _seq STRING", watermarkKey="_seq")
    inserted = envelope("c", {"id": 1, "a": "p", "x": "long"}, 1)
    updated = envelope("u", {"id": 1, "a": "q", "x": "__debezium_unavailable_value"}, 2)
    table.applyChanges(feeds.debezium(values(spark, inserted, updated))).withSchemaEvolution().execute()
    assertRows(table.toDF().select("id", "a", "x"), [(1, "q", "long")])


def test_S44_a_new_column_has_the_newest_type_that_a_message_says(spark, tmp_path):
    def sent(number: int, column: str, kind: str, value: int) -> str:
        fields = [{"field": "id", "type": "int64"}, {"field": column, "type": kind}]
        message = json.loads(envelope("c", {"id": number, column: value}, number))
        return json.dumps({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": message})

    columns = [f"c{i}" for i in range(5)]
    messages = [sent(1 + i, c, "int32", 1) for i, c in enumerate(columns)]
    messages += [sent(11 + i, c, "int64", 5_000_000_000) for i, c in enumerate(columns)]
    table = new_table(spark, tmp_path, "id BIGINT, _seq STRING", watermarkKey="_seq")
    table.applyChanges(feeds.debezium(values(spark, *messages))).withSchemaEvolution().execute()
    assert {table.definition.field(c).type for c in columns} == {"long"}


def test_F1_a_key_without_a_value_is_a_delete_of_flattened_messages(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING, _seq STRING", watermarkKey="_seq")
    row = {"v": "a", "__op": "c", "__table": "t", "__source_sequence": '["9","10"]'}
    sent = [
        ('{"id":1}', json.dumps({"id": 1, **row}), "s.t", 0),
        ('{"id":2}', json.dumps({"id": 2, **row}), "s.t", 1),
        ('{"id":1}', None, "s.t", 2),
        ('{"id":2}', None, "s.other", 3),
        (None, None, "s.t", 4),
    ]
    frame = spark.createDataFrame(sent, "key STRING, value STRING, topic STRING, offset LONG")
    with pytest.raises(RejectedRowsError, match="tombstones=") as error:
        table.applyChanges(feeds.debezium(frame, table="t", flattened=True)).execute()
    assert error.value.facts["reasons"] == {"tombstone": 1}
    result = table.applyChanges(feeds.debezium(frame, table="t", flattened=True, sequence="arrival")).execute()
    assert str(result.feed) == "5 messages: 2 upserts, 1 deletes, 2 skipped (1 other table, 1 tombstone)"
    assert [row["id"] for row in table.toDF().collect()] == [2]


@pytest.mark.parametrize(
    ("source", "sequence"),
    [
        ({"sequence": '[null,"255"]'}, "0001/0000000000000000/00000000000000ff"),
        ({"sequence": '["16","32"]'}, "0001/0000000000000010/0000000000000020"),
        ({"sequence": '["16","32"]', "snapshot": "true"}, "0001/0000000000000000/0000000000000000"),
        ({"sequence": '["16","32"]', "snapshot": "incremental", "lsn": None}, "0001/0000000000000010/0000000000000020"),
        ({"sequence": None, "file": "mysql-bin.000012", "pos": 154, "row": 1}, f"0001/{12:016x}/{154:016x}/{1:016x}"),
        (
            {"sequence": None, "file": "b.000012", "pos": 4, "row": 0, "snapshot": "last"},
            "/".join(["0001", *["0" * 16] * 3]),
        ),
        (
            {
                "sequence": None,
                "commit_lsn": "00000027:00000758:0005",
                "change_lsn": "00000027:00000758:0003",
                "event_serial_no": 2,
            },
            f"0001/00000027:00000758:0005/00000027:00000758:0003/{2:016x}",
        ),
        ({"sequence": None, "commit_scn": "12,19", "scn": "7", "ssn": 3}, f"0001/{19:016x}/{7:016x}/{3:016x}"),
        ({"sequence": None, "ts_ms": 5000, "ord": 2}, f"0001/{5000:016x}/{2:016x}"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_F2_the_sequence_is_the_position_in_the_log(spark, source, sequence):
    feed = feeds.debezium(values(spark, envelope("u", {"id": 1}, 1, **source)))
    assert feed.decoded().select("seq").collect()[0][0] == sequence


def test_F2_a_higher_epoch_is_newer(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    for epoch, v, lsn in ((2, "restored", 1), (1, "before", 99)):
        table.applyChanges(feeds.debezium(values(spark, envelope("c", {"id": 1, "v": v}, lsn)), epoch=epoch)).execute()
    assert rows_of(table) == [(1, "restored")]


def test_F2_arrival_orders_by_the_offset(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    rows = [(envelope("u", {"id": 1, "v": v}, 5, sequence=None), i) for i, v in enumerate("abc")]
    frame = spark.createDataFrame(rows, "value STRING, offset BIGINT")
    table.applyChanges(feeds.debezium(frame, sequence="arrival")).execute()
    assert rows_of(table) == [(1, "c")]
    with pytest.raises(InvalidMergeError, match="needs a column 'offset'"):
        table.applyChanges(feeds.debezium(frame.drop("offset"), sequence="arrival")).execute()


def test_U7_the_header_names_the_old_key(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING, body STRING")
    placeholder = "__debezium_unavailable_value"
    first = values(spark, envelope("c", {"id": 1, "v": "a", "body": "long"}, 1))
    table.applyChanges(feeds.debezium(first)).execute()
    moved = envelope("c", {"id": 2, "v": "b", "body": placeholder}, 5)
    row = [(moved, [("__debezium.oldkey", bytearray(b'{"id":1}'))])]
    frame = spark.createDataFrame(row, "value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>")
    table.applyChanges(feeds.debezium(frame)).execute()
    assert rows_of(table) == [(2, "b", "long")]


def test_U6_columns_that_an_update_lacks_are_unchanged_and_those_that_an_insert_lacks_are_null(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING, w STRING")
    messages = [envelope("c", {"id": 1, "v": "a", "w": "b"}, 1), envelope("u", {"id": 1, "v": "c"}, 2)]
    messages += [envelope("c", {"id": 2, "v": "x"}, 3)]
    table.applyChanges(feeds.debezium(values(spark, *messages))).execute()
    assert rows_of(table) == [(1, "c", "b"), (2, "x", None)]


def test_S1_names_are_compared_without_case_and_can_be_renamed(spark, tmp_path):
    table = table_of(spark, tmp_path, "Id INT, Total INT", "Id")
    messages = values(spark, envelope("c", {"ID": 1, "amount": 5}, 1), envelope("d", {"ID": 9}, 2))
    table.applyChanges(feeds.debezium(messages, rename={"AMOUNT": "total"})).execute()
    assert rows_of(table) == [(1, 5)]


# Values ---------------------------------------------------------------------------------------------------------------

NTZ = datetime(1969, 12, 31, 23, 59, 59, 999999)
BIG = "-99999999999999999999999999999999999.999"


def unscaled(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


EDGES = [
    ("DECIMAL(38, 3)", unscaled(int(BIG.replace(".", "")), 16), {}, Decimal(BIG)),
    ("DECIMAL(5, 2)", unscaled(-1, 1), {}, Decimal("-0.01")),
    ("DECIMAL(5, 2)", unscaled(0, 1), {}, Decimal("0.00")),
    ("DECIMAL(5, 2)", {"scale": 1, "value": unscaled(-125, 1)}, {}, Decimal("-12.50")),
    ("DECIMAL(38, 3)", BIG, {"decimals": "string"}, Decimal(BIG)),
    ("DATE", -1, {}, date(1969, 12, 31)),
    ("DATE", 2932896, {}, date(9999, 12, 31)),
    ("TIMESTAMP_NTZ", -1, {"timestamps": {"v": "us"}}, NTZ),
    ("TIMESTAMP_NTZ", -1000, {"timestamps": {"v": "ns"}}, NTZ),
    ("TIMESTAMP_NTZ", 253402300799999, {"timestamps": {"v": "ms"}}, datetime(9999, 12, 31, 23, 59, 59, 999000)),
    ("TIMESTAMP", 0, {"timestamps": {"v": "ms"}, "zone": "Asia/Tokyo"}, datetime(1969, 12, 31, 15)),
    ("TIMESTAMP", "2024-03-18T16:05:38.123456Z", {}, datetime(2024, 3, 18, 16, 5, 38, 123456)),
    ("BIGINT", -(2**63), {}, -(2**63)),
    ("BIGINT", 1e16, {}, 10**16),
    ("DOUBLE", "NaN", {}, "nan"),
    ("DOUBLE", "-Infinity", {}, float("-inf")),
    ("DOUBLE", 1e300, {}, 1e300),
    ("BOOLEAN", False, {}, False),
    ("STRING", "a\u0000b\"\\é", {}, "a\u0000b\"\\é"),
    ("STRING", "", {}, ""),
    ("BINARY", "", {}, bytearray()),
    ("BINARY", "AP8=", {}, bytearray(b"\x00\xff")),
    ("BINARY", "-_8", {"binary": "base64-url-safe"}, bytearray(b"\xfb\xff")),
    ("BINARY", "00ff", {"binary": "hex"}, bytearray(b"\x00\xff")),
    ("ARRAY<STRING>", [], {}, []),
    ("ARRAY<INT>", [1, None], {}, [1, None]),
    ("STRUCT<x: DOUBLE, y: DOUBLE>", {"x": 1.5, "y": None}, {}, (1.5, None)),
    ("MAP<STRING, STRING>", {"k": None}, {}, {"k": None}),
]  # fmt: skip


def test_F3_values_at_their_edges(spark, tmp_path):
    """Values that are read by the same options are columns of one table."""
    by_options = {}
    for kind, wire, options, value in EDGES:
        unit = options.get("timestamps", {}).get("v")
        of_all = {name: of for name, of in options.items() if name != "timestamps"}
        by_options.setdefault(repr(of_all), (of_all, []))[1].append((kind, wire, unit, value))
    wrong = []
    for options, cases in by_options.values():
        table = table_of(spark, tmp_path, ", ".join(["id INT", *(f"v{i} {c[0]}" for i, c in enumerate(cases))]))
        row = {"id": 1, **{f"v{i}": wire for i, (_, wire, _, _) in enumerate(cases)}}
        units = {f"v{i}": unit for i, (_, _, unit, _) in enumerate(cases) if unit}
        table.applyChanges(feeds.debezium(values(spark, envelope("c", row, 1)), timestamps=units, **options)).execute()
        (found,) = table.toDF().collect()
        got = [str(found[f"v{i}"]) if value == "nan" else found[f"v{i}"] for i, (*_, value) in enumerate(cases)]
        wrong += [(*case, value) for case, value in zip(cases, got, strict=True) if value != case[-1]]
    assert wrong == []


MISFITS = [
    ("INT", 2**31),
    ("INT", "12x"),
    ("INT", 1.5),
    ("DECIMAL(5, 2)", unscaled(100000, 3)),
    ("DECIMAL(5, 2)", "not base64"),
    ("DATE", "soon"),
    ("TIMESTAMP_NTZ", 5),
    ("TIMESTAMP_NTZ", "12:00"),
    ("BOOLEAN", "perhaps"),
    ("BINARY", "%"),
    ("ARRAY<INT>", ["x"]),
]


def test_F3_what_does_not_fit_is_rejected_and_nothing_is_written(spark, tmp_path):
    """Each message has one value that does not fit, in a column for it."""
    table = table_of(spark, tmp_path, ", ".join(["id INT", *(f"v{i} {kind}" for i, (kind, _) in enumerate(MISFITS))]))
    reasons = {f"{'unit' if wire == 5 else 'type'}:v{i}": 1 for i, (_, wire) in enumerate(MISFITS)}
    messages = [envelope("c", {"id": i, f"v{i}": wire}, i + 1) for i, (_, wire) in enumerate(MISFITS)]
    feed = feeds.debezium(values(spark, *messages, envelope("c", {"id": 99}, 99)))
    with pytest.raises(RejectedRowsError, match=r"11 messages of 12 cannot be applied: ") as error:
        table.applyChanges(feed).execute()
    assert error.value.facts["reasons"] == reasons
    assert """The first: '{"before": null, "after": {"id": """ in str(error.value)
    assert table.version == 0
    assert {row["raw"]: row["reason"] for row in feed.rejected(table).collect()} == dict(
        zip(messages, reasons, strict=True)
    )


# Kinds ----------------------------------------------------------------------------------------------------------------


def test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    whole = envelope("c", {"id": 1, "v": "a"}, 1)
    messages = {
        whole: "upsert",
        envelope("r", {"id": 2}, 1, snapshot="true"): "upsert",
        envelope("d", {"id": 3}, 1): "delete",
        envelope("m", None, 1): "message",
        None: "tombstone",
        '{"ts_ms":5}': "heartbeat",
        '{"status":"BEGIN","id":"5:1","event_count":null,"ts_ms":7}': "transaction",
        '{"source":{"db":"x"},"ts_ms":1,"databaseName":"x","ddl":"CREATE TABLE t","tableChanges":[]}': "schema change",
        whole[:40]: "unparsable",
        "[1]": "unparsable",
        envelope("x", {"id": 4}, 1): "unknown-op",
        envelope("c", None, 1): "no-row",
        envelope("d", None, 1): "no-key",
        envelope("c", {"id": None}, 1): "null-key",
        envelope("c", {"id": 5}, 1, sequence=None): "no-position",
        '{"a":1}': "no-op",
    }
    feed = feeds.debezium(values(spark, *messages))
    with pytest.raises(RejectedRowsError) as error:
        table.applyChanges(feed).execute()
    rejected = {r["raw"]: r["reason"] for r in feed.rejected(table).collect()}
    events = {"upsert", "delete", "message", "tombstone", "heartbeat", "transaction", "schema change"}
    assert rejected == {m: kind for m, kind in messages.items() if kind not in events}
    assert error.value.facts["rows"] == len(rejected)
    good = feeds.debezium(values(spark, *[m for m, kind in messages.items() if kind in events]))
    counts = table.applyChanges(good).execute().feed
    assert (counts.read, counts.upserts, counts.deletes) == (8, 2, 1)
    assert counts.skipped == {"heartbeat": 1, "message": 1, "schema change": 1, "tombstone": 1, "transaction": 1}
    assert str(counts) == (
        "8 messages: 2 upserts, 1 deletes, 5 skipped (1 heartbeat, 1 message, 1 schema change, 1 tombstone, 1 transaction)"
    )


def test_F4_a_feed_of_several_tables_names_them(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    feed = feeds.debezium(values(spark, envelope("c", {"id": 1}, 1), envelope("c", {"id": 1}, 2, table="u")))
    with pytest.raises(
        InvalidMergeError, match=r"the feed has 2: public.t, public.u. Nothing was written. Name one: feeds.debezium"
    ):
        table.applyChanges(feed).execute()
    assert {(r["source"], r["events"]) for r in feed.tables().collect()} == {("public.t", 1), ("public.u", 1)}


def test_F4_a_table_that_no_event_is_of_is_reported_with_those_that_have_some(spark, tmp_path, caplog):
    messages = values(spark, envelope("c", {"id": 1}, 1), envelope("c", {"id": 1}, 2, table="u", db="d"))
    table = table_of(spark, tmp_path, "id INT, v STRING")
    write = table.foreachBatch(lambda t, batch: t.applyChanges(feeds.debezium(batch, table="public.tt")), "app")
    write(messages, 0)
    warning = "an event of the table 'public.tt'. There are events of d.public.u, public.t. Did you mean 'public.t'?"
    assert caplog.text.count(warning) == 1
    table.applyChanges(feeds.debezium(messages, table="public.t")).execute()
    write(messages, 1)
    assert caplog.text.count(warning) == 1, "a micro-batch of a stream may have none"
    table.applyChanges(feeds.debezium(messages, table="public.tt")).execute()
    assert caplog.text.count(warning) == 2
    assert table.toDF().count() == 1


def test_F1_what_a_feed_is_given_is_checked(spark, tmp_path):
    frame = values(spark, envelope("c", {"id": 1}, 1))
    table = table_of(spark, tmp_path, "id INT, v STRING")
    with pytest.raises(InvalidMergeError, match="takes columns and exceptColumns only"):
        table.applyChanges(feeds.debezium(frame), sequenceBy="_seq")
    with pytest.raises(InvalidMergeError, match="epoch takes a number from 0 to 9999, got 10000"):
        feeds.debezium(frame, epoch=10000)
    with pytest.raises(InvalidMergeError, match="decimals takes 'precise' or 'string' or 'double', got 'exact'"):
        feeds.debezium(frame, decimals="exact")
    with pytest.raises(InvalidMergeError, match="needs a column 'value'"):
        table.applyChanges(feeds.debezium(frame.withColumnRenamed("value", "message"))).execute()
    with pytest.raises(InvalidMergeError, match="columns takes columns of the table"):
        table.applyChanges(feeds.debezium(frame), columns=["x"]).execute()
    other = new_table(spark, tmp_path, "id INT, at DATE", primaryKey="id", watermarkKey="at", tombstoneKey=None)
    with pytest.raises(InvalidMergeError, match="needs a table whose watermark is one column of type STRING"):
        other.applyChanges(feeds.debezium(frame)).execute()


def test_H1_the_time_of_the_commit_is_the_start_of_a_version(spark, tmp_path):
    table = new_table(
        spark, tmp_path, "id INT, v STRING, _ts TIMESTAMP, _seq STRING", primaryKey="id", watermarkKey=["_ts", "_seq"],
        tombstoneKey=None, history=True,
    )  # fmt: skip
    messages = values(spark, envelope("u", {"id": 1, "v": "b"}, 2000), envelope("c", {"id": 1, "v": "a"}, 1000))
    table.applyChanges(feeds.debezium(messages)).execute()
    found = table.versions().select("v", "validFrom", "validTo").orderBy("validFrom").collect()
    assert [(r[0], r[1].second, r[2] and r[2].second) for r in found] == [("a", 1, 2), ("b", 2, None)]


def test_F1_messages_with_other_headers_are_read(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    text = '{"op":"c","after":{"id":1,"v":"a"},"source":{"sequence":"[null,\\"5\\"]","snapshot":"false"}}'
    schema = "value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    for headers in ([], [("trace", b"x")], None):
        table.applyChanges(feeds.debezium(spark.createDataFrame([(text, headers)], schema))).execute()
    assert rows_of(table) == [(1, "a")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_F2_a_new_epoch_restarts_without_the_rows_that_its_snapshot_does_not_have(spark, tmp_path, when):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    old = [envelope("c", {"id": i, "v": "old"}, 100 + i) for i in range(3)]
    table.applyChanges(feeds.debezium(values(spark, *old))).execute()
    new = [envelope("r", {"id": i, "v": "new"}, 5, snapshot="true") for i in (1, 7)]
    feed = feeds.debezium(values(spark, *new), epoch=2)
    if when == "before":
        feed.restart(table).execute()
    table.applyChanges(feed).execute()
    if when == "after":
        feed.restart(table).execute()
    assert rows_of(table) == [(1, "new"), (7, "new")]
    late = feeds.debezium(values(spark, envelope("u", {"id": 2, "v": "late"}, 999)))
    table.applyChanges(late).execute()
    assert rows_of(table) == [(1, "new"), (7, "new")]


def test_F2_a_table_ordered_by_time_does_not_restart(spark, tmp_path):
    table = new_table(
        spark,
        tmp_path,
        "id INT, _ts TIMESTAMP, _seq STRING",
        primaryKey="id",
        watermarkKey=["_ts", "_seq"],
        tombstoneKey=None,
    )
    with pytest.raises(InvalidMergeError, match="rows of a new epoch are not newer"):
        feeds.debezium(values(spark), epoch=2).restart(table)


def test_F3_names_that_differ_only_by_case_reject_their_message_alone(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    good = envelope("c", {"ID": 1, "V": "a"}, 1)
    feed = feeds.debezium(values(spark, good, envelope("c", {"id": 2, "v": "a", "V": "b"}, 2)))
    assert [row["reason"] for row in feed.rejected(table).collect()] == ["doubled-name"]
    with pytest.raises(RejectedRowsError, match=r"doubled-name \(1\)"):
        table.applyChanges(feed).execute()
    rejected = TrinityTable.createQuarantine(spark, f"{tmp_path}/rejected")
    result = table.applyChanges(feed).quarantine(rejected).execute()
    assert (result.quarantined, rows_of(table)) == ({"doubled-name": 1}, [(1, "a")])


@pytest.mark.parametrize(
    ("other", "rename"), [({"name": "b", "title": "Dr"}, {"name": "title"}), ({"Label": "x", "label": "y"}, {})]
)
def test_F3_F4_names_that_come_twice_in_another_table_are_skipped_with_it(spark, tmp_path, other, rename):
    table = table_of(spark, tmp_path, "id INT, title STRING")
    messages = (
        envelope("c", {"id": 1, "name" if rename else "title": "a"}, 1),
        envelope("c", {"id": 1, **other}, 2, table="u"),
    )
    result = table.applyChanges(feeds.debezium(values(spark, *messages), table="public.t", rename=rename)).execute()
    assert (result.feed.skipped, result.feed.rejected) == ({"other table": 1}, {})
    assert rows_of(table) == [(1, "a")]


@pytest.mark.parametrize("kind", ["BOOLEAN", "BOOLEAN NOT NULL"])
def test_H9_the_tombstone_column_marks_rows_of_a_feed_as_live(spark, tmp_path, kind):
    keys = {"watermarkKey": "_seq", "tombstoneKey": "gone"}
    table = new_table(spark, tmp_path, f"id INT, v STRING, gone {kind}, _seq STRING", **keys)
    table.applyChanges(feeds.debezium(values(spark, envelope("c", {"id": 1, "v": "a"}, 1)))).execute()
    assertRows(table.toDF().drop("_seq"), [(1, "a", False)])
