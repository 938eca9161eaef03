"""F1-F4: the files and messages of AWS DMS become the rows that the source has."""

from __future__ import annotations

import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from feed_tables import rows_of, table_of
from helpers import quickly

from trinitymerge import InvalidMergeError, RejectedRowsError
from trinitymerge.feeds.formats.dms import dms

HEADER = "AR_H_CHANGE_SEQ"


def seq(number: int) -> str:
    return f"2024050110000000{number:019}"


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


def message(operation: str, data: Any, number: int | None = None, record: str = "data", **more: Any) -> str:
    metadata = {
        "timestamp": "2024-05-01T10:00:00.000123Z",
        "record-type": record,
        "operation": operation,
        "partition-key-type": "schema-table",
        "schema-name": "shop",
        "table-name": "notes",
        "transaction-id": 901,
    }
    header = {} if number is None else {HEADER: seq(number)}
    return json.dumps({"data": {**data, **header} if isinstance(data, dict) else data, "metadata": metadata, **more})


def apply(table, frame, /, **options: Any):
    return table.applyChanges(dms(frame, **options)).execute()


# Files ----------------------------------------------------------------------------------------------------------------


def test_F1_rows_of_files_become_the_sources_rows(spark, tmp_path):
    """Rows of CSV files are text. The time of the commit is the endpoint's TimestampColumnName."""
    file = tmp_path / "20240501-100000000.csv"
    lines = [
        f"I,5,a,2024-05-01 10:00:00.000100,{seq(1)}",
        f"I,6,x,2024-05-01 10:00:00.000110,{seq(2)}",
        f"U,5,b,2024-05-01 10:00:00.000123,{seq(3)}",
        f"D,6,x,2024-05-01 10:00:00.000130,{seq(4)}",
    ]
    file.write_text("\n".join(lines))
    frame = spark.read.csv(str(file), f"Op STRING, id STRING, title STRING, at STRING, {HEADER} STRING")
    table = table_of(spark, tmp_path, "id INT, title STRING")
    counts = apply(table, frame, table="shop.notes", time="at").feed
    assert rows_of(table) == [(5, "b")]
    assert (counts.read, counts.upserts, counts.deletes) == (4, 3, 1)
    assert str(counts.newest) == "2024-05-01 10:00:00.00013"
    (found,) = dms(frame, table="shop.notes").tables().collect()
    assert tuple(found) == ("shop.notes", 4, f"0001/{seq(1)}", f"0001/{seq(4)}")
    assert len(seq(1)) == 35


@pytest.mark.parametrize("columns", ["id INT, v STRING", "Op STRING, id INT, v STRING"])
def test_F2_a_full_load_is_older_than_all_changes(spark, tmp_path, columns):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    changes = [("U", seq(1), 1, "b"), ("D", seq(2), 3, "x")]
    apply(table, spark.createDataFrame(changes, f"Op STRING, {HEADER} STRING, id INT, v STRING"))
    op = ["I"] if columns.startswith("Op") else []
    rows = [(*op, 1, "a"), (*op, 2, "c"), (*op, 3, "x")]
    apply(table, spark.createDataFrame(rows, columns), load=True)
    assert rows_of(table) == [(1, "b"), (2, "c")]


def test_F1_a_full_load_may_have_a_column_value(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, value STRING")
    apply(table, spark.createDataFrame([(1, "{")], "id INT, value STRING"), load=True)
    changes = spark.createDataFrame([("I", seq(1), 2, "")], f"Op STRING, {HEADER} STRING, id INT, value STRING")
    apply(table, changes)
    assert rows_of(table) == [(1, "{"), (2, "")]


def test_F3_each_row_is_an_event_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    rows = [
        (("I", seq(1), "1", "insert"), None),
        (("U", seq(2), "1", "update"), None),
        (("D", seq(3), "2", "delete"), None),
        ((None, seq(4), "1", "no Op"), "no-op"),
        (("", seq(4), "1", "empty Op"), "no-op"),
        (("X", seq(5), "1", "unknown"), "unknown-op"),
        (("u", seq(5), "1", "small"), "unknown-op"),
        (("I", None, "1", "no header"), "no-position"),
        (("I", "", "1", "empty header"), "no-position"),
        (("I", "2024-05-01 10:00:00", "1", "a time"), "no-position"),
        (("I", "1" * 36, "1", "long header"), "no-position"),
        (("U", seq(6), None, "no key"), "null-key"),
        (("D", seq(6), None, "no key to delete"), "null-key"),
        (("I", seq(7), "x", "a text"), "type:id"),
    ]
    columns = f"Op STRING, {HEADER} STRING, id STRING, v STRING"
    feed = dms(spark.createDataFrame([row for row, _ in rows], columns))
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    found = feed.rejected(table).selectExpr("get_json_object(raw, '$.v') AS v", "reason").collect()
    assert dict(map(tuple, found)) == {row[-1]: reason for row, reason in rows if reason}
    counts = apply(table, spark.createDataFrame([row for row, reason in rows if not reason], columns)).feed
    assert (counts.read, counts.upserts, counts.deletes) == (3, 2, 1)
    of_load = dms(spark.createDataFrame([("U", 1), ("I", 1), (None, 1)], "Op STRING, id INT"), load=True)
    assert [r["reason"] for r in of_load.rejected(table).collect()] == ["unknown-op"]


def test_F2_without_the_header_rows_are_rejected_or_ordered_by_arrival(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    frame = spark.createDataFrame([("U", 11, 1, "b"), ("I", 10, 1, "a")], "Op STRING, offset INT, id INT, v STRING")
    assert {r["reason"] for r in dms(frame).rejected(table).collect()} == {"no-position"}
    apply(table, frame, sequence="arrival")
    assert rows_of(table) == [(1, "b")]
    with pytest.raises(InvalidMergeError, match="needs a column 'offset'"):
        dms(frame.drop("offset"), sequence="arrival").tables()


def test_F1_a_changed_key_is_in_the_columns_of_before(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING, BI_other STRING")
    columns = f"Op STRING, {HEADER} STRING, id INT, v STRING, BI_other STRING, BI_id INT"
    rows = [("I", seq(1), 1, "a", "x", None), ("U", seq(2), 2, "a", "y", 1), ("U", seq(3), 2, "b", "z", 2)]
    apply(table, spark.createDataFrame(rows, columns), before_prefix="BI_")
    assert rows_of(table) == [(2, "b", "z")]


EDGES = {
    "DECIMAL(38,10)": [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0E-10")],
    "DATE": [date(1969, 12, 31), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "STRING": ["", 'it\'s "quoted" \\ \x00 \n ü'],
    "BINARY": [bytearray(), bytearray(b"\x00\xff")],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DOUBLE": [-1.7976931348623157e308, 0.1],
}


def test_F3_values_of_parquet_files_are_exact(spark, tmp_path):
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(EDGES))
    rows = [(n, *(v[n] if n < len(v) else None for v in EDGES.values())) for n in range(3)]
    frame = spark.createDataFrame(
        [("I", seq(n), *row) for n, row in enumerate(rows)], f"Op STRING, {HEADER} STRING, id INT, {columns}"
    )
    frame.write.parquet(f"{tmp_path}/files")
    files = spark.read.parquet(f"{tmp_path}/files")
    table = table_of(spark, tmp_path, dms(files).schema().replace(", `_seq` STRING", ""))
    apply(table, files)
    assert rows_of(table) == rows


# Messages -------------------------------------------------------------------------------------------------------------


def test_F1_messages_become_the_sources_rows(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, title STRING")
    messages = [
        message("load", {"id": 5, "title": "a"}),
        message("load", {"id": 6, "title": "x"}),
        message("insert", {"id": 7, "title": "y"}, 1),
        message("update", {"id": 5, "title": "b"}, 2),
        message("delete", {"id": 6}, 3),
        message("update", {"id": 7}, 4),
        json.dumps({"metadata": {"record-type": "control", "operation": "create-table", "table-name": "notes"}}),
    ]
    counts = apply(table, values(spark, *reversed(messages)), table="shop.notes").feed
    assert rows_of(table) == [(5, "b"), (7, None)]
    assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (7, 5, 1, {"control": 1})
    again = dms(values(spark, *messages)).tables().collect()
    assert [tuple(r) for r in again] == [("shop.notes", 6, f"0001/{'0' * 35}", f"0001/{seq(4)}")]


def test_F1_a_truncate_has_only_the_order_of_its_arrival(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    truncate = message("truncate-table", None, record="control")
    rows = [(message("insert", {"id": 1}), 1), (truncate, 2), (message("insert", {"id": 2, "v": "a"}), 3)]
    frame = spark.createDataFrame(rows[::-1], "value STRING, offset BIGINT")
    assert {r["reason"] for r in dms(frame).rejected(table).collect()} == {"no-position"}
    counts = apply(table, frame, sequence="arrival").feed
    assert (counts.upserts, counts.truncates) == (2, 1)
    assert rows_of(table) == [(2, "a")]


def test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    positions = {"transaction-id": 1, "transaction-record-id": 1, "stream-position": "0/1.1.0/1"}
    timed = json.loads(message("insert", {"id": 1}))
    timed["metadata"] |= positions | {"commit-timestamp": "2024-05-01T10:00:00Z"}
    messages = {
        message("insert", {"id": 1, "v": "a"}, 1): "upsert",
        message("load", {"id": 1, "v": "a"}): "upsert",
        message("delete", {"id": 2}, 2): "delete",
        message("create-table", None, record="control"): "control",
        message("drop-table", {}, record="control"): "control",
        None: "empty",
        "null": "empty",
        message("insert", {"id": 1}, 1)[:50]: "unparsable",
        "[]": "unparsable",
        "5": "unparsable",
        message("insert", [1], 1): "unparsable",
        "{}": "no-op",
        json.dumps({"data": {"id": 1}}): "no-op",
        message("merge", {"id": 1}, 1): "unknown-op",
        message("delete", None): "no-key",
        message("update", None): "no-row",
        json.dumps(timed): "no-position",
        message("insert", {"id": 1, HEADER: "soon"}): "no-position",
        message("insert", {"id": None}, 3): "null-key",
        message("delete", {"v": "a"}, 3): "null-key",
        message("insert", {"id": [1]}, 3): "type:id",
    }
    good = {"upsert", "delete", "control", "empty"}
    feed = dms(values(spark, *messages))
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    rejected = {r["raw"]: r["reason"] for r in feed.rejected(table).collect()}
    assert rejected == {m: kind for m, kind in messages.items() if kind not in good}
    counts = apply(table, values(spark, *[m for m, kind in messages.items() if kind in good])).feed
    assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (7, 2, 1, {"control": 2, "empty": 2})


BIG = "-99999999999999999999999999999999999.125"


def test_F3_values_of_messages_are_exact(spark, tmp_path):
    columns = "id INT, d DECIMAL(38,3), s STRING, e STRING, t TIMESTAMP, day DATE, raw BINARY, far TIMESTAMP_NTZ"
    text = 'it\'s "quoted" \\ \x00 1.50 \n ü'
    data = {
        "id": 1,
        "d": "number",
        "s": text,
        "e": "",
        "t": "1969-12-31T23:59:59.999999Z",
        "day": "9999-12-31",
        "raw": "00ff",
        "far": "9999-12-31T23:59:59.999999",
    }
    sent = message("insert", data, 1).replace('"number"', BIG)
    lacking = message("insert", {"id": 2, "s": None}, 2)
    table = table_of(spark, tmp_path, columns)
    apply(table, values(spark, sent, lacking))
    times = (datetime(1969, 12, 31, 23, 59, 59, 999999), date(9999, 12, 31))
    far = datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert rows_of(table) == [
        (1, Decimal(BIG), text, "", *times, bytearray(b"\x00\xff"), far),
        (2, *[None] * 7),
    ]


def test_F1_a_changed_key_is_in_the_image_before(spark, tmp_path):
    messages = [
        message("insert", {"id": 1, "v": "a"}, 1),
        message("update", {"id": 2, "v": "a"}, 2, **{"before-image": {"id": 1}}),
        message("update", {"id": 2, "v": "b"}, 3, **{"before-image": {}}),
        message("insert", {"id": 8, "v": "a", "BI_x": "b"}, 4),
        message("update", {"id": 9, "v": "a", "BI_id": 8, "BI_x": "c"}, 5),
    ]
    table = table_of(spark, tmp_path, "id INT, v STRING, BI_x STRING")
    apply(table, values(spark, *messages), before_prefix="BI_")
    assert rows_of(table) == [(2, "b", None), (9, "a", "c")]


# Generated changes ----------------------------------------------------------------------------------------------------


def generated(seed: int) -> tuple[list[tuple[str, int, int, str | None, int | None]], dict[int, str | None]]:
    """Changes as (operation, number, key, value, old key), and the source's rows after them."""
    r, found, changes = random.Random(seed), dict[int, str | None](), list[Any]()
    for n in range(30):
        key, other, value, what = r.randint(1, 5), r.randint(1, 5), r.choice([None, "", f"v{n}"]), r.random()
        if key not in found:
            changes.append(("insert", n, key, value, None))
        elif what < 0.3:
            changes.append(("delete", n, key, found.pop(key), None))
            continue
        elif what < 0.6 and other not in found:
            found.pop(key)
            changes.append(("update", n, other, value, key))
            key = other
        else:
            changes.append(("update", n, key, value, key))
        found[key] = value
    return changes, found


def as_message(operation: str, number: int, key: int, value: str | None, old: int | None) -> str:
    data = {"id": key} if value is None or operation == "delete" else {"id": key, "v": value}
    return message(operation, data, number, **({} if old is None else {"before-image": {"id": old}}))


@pytest.mark.parametrize("seed", quickly(range(8), {0, 5}))
def test_F1_changes_in_any_order_and_batches_end_as_the_source(spark, tmp_path, seed):
    changes, found = generated(seed)
    random.Random(seed).shuffle(changes)
    table = table_of(spark, tmp_path, "id INT, v STRING")
    for i in range(3):
        some = changes[i::3]
        if seed % 2:
            frame = values(spark, *[as_message(*c) for c in some])
        else:
            rows = [(op[0].upper(), seq(n), key, v, old) for op, n, key, v, old in some]
            frame = spark.createDataFrame(rows, f"Op STRING, {HEADER} STRING, id INT, v STRING, BI_id INT")
        apply(table, frame, before_prefix="BI_")
    assert rows_of(table) == sorted(found.items())


def test_F1_options_are_applied(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v BINARY")
    columns = "Op STRING, Place DECIMAL(35, 0), Nr INT, V STRING"
    new = spark.createDataFrame([("I", Decimal(1), 1, "AP8=")], columns)
    apply(table, new, epoch=2, change_seq="place", rename={"nr": "id"}, binary="base64")
    apply(table, values(spark, message("insert", {"id": 1, "v": "00"}, 9)))
    assert rows_of(table) == [(1, bytearray(b"\x00\xff"))]


def test_F1_options_and_columns_are_checked(spark):
    frame = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(InvalidMergeError, match=r"needs a column 'Op' .* say load=True"):
        dms(frame).tables()
    with pytest.raises(InvalidMergeError, match="Column 'at' is missing"):
        dms(frame, load=True, time="at").tables()
    for option in ({"load": 1.5}, {"binary": "octal"}, {"sequence": "time"}, {"epoch": "1"}):
        with pytest.raises(InvalidMergeError, match=f"{next(iter(option))} takes"):
            dms(frame, **option)
