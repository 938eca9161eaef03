"""F1, F3: Debezium's messages in Avro, as Confluent's converter writes them, become the rows that the same in JSON become."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import threading
from datetime import date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from feed_tables import rows_of, table_of

from trinitymerge import InvalidMergeError, TrinityTable, feeds

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.classic("Python workers of a Connect server need the packages there"),
    pytest.mark.filterwarnings("ignore:distutils Version classes"),  # of PySpark 3.5's mapInArrow
]


def nullable(told):
    return ["null", told]


def column(name, told):
    return {"name": name, "type": nullable(told), "default": None}


DECIMAL = {
    "type": "bytes",
    "scale": 4,
    "precision": 12,
    "connect.version": 1,
    "connect.parameters": {"scale": "4", "connect.decimal.precision": "12"},
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "logicalType": "decimal",
}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        column("small", {"type": "int", "connect.type": "int16"}),
        column("title", "string"),
        column("price", DECIMAL),
        column("day", {"type": "int", "connect.name": "io.debezium.time.Date", "logicalType": "date"}),
        column("at", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}),
        column("raw", "bytes"),
        column("ratio", "double"),
        column("tags", {"type": "array", "items": nullable("string")}),
        column("flag", "boolean"),
        column("big", "long"),
    ],
    "connect.name": "shop.public.t.Value",
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {
            "name": n,
            "type": "string" if n in ("schema", "table") else nullable("string"),
            **({} if n in ("schema", "table") else {"default": None}),
        }
        for n in ("schema", "table", "sequence", "snapshot")
    ]
    + [{"name": "ts_ms", "type": "long"}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.t",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
    "connect.name": "shop.public.t.Envelope",
}
KEY = {"type": "record", "name": "Key", "namespace": "shop.public.t", "fields": [{"name": "id", "type": "int"}]}
SCHEMAS = {7: json.dumps(ENVELOPE), 8: json.dumps(KEY)}
COLUMNS = (
    "id INT, small SMALLINT, title STRING, price DECIMAL(12,4), day DATE, at TIMESTAMP_NTZ, raw BINARY, ratio DOUBLE, "
    "tags ARRAY<STRING>, flag BOOLEAN, big BIGINT"
)


def avro(schema, value, number):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def plain(schema):
    """The schema without logical types: the values of messages are then written as they are."""
    text = json.dumps(schema)
    return json.loads(text.replace(', "logicalType": "decimal"', "").replace(', "logicalType": "date"', ""))


def message(op, row, lsn):
    empty = dict.fromkeys((f["name"] for f in ROW["fields"]), None)
    source = {"schema": "public", "table": "t", "sequence": f'["{lsn}","{lsn}"]', "snapshot": "false", "ts_ms": lsn}
    rows = {"before": {**empty, **row} if op == "d" else None, "after": None if op == "d" else {**empty, **row}}
    return avro(plain(ENVELOPE), {**rows, "source": source, "op": op}, 7), avro(KEY, {"id": row["id"]}, 8)


def messages(spark, *rows):
    return spark.createDataFrame([tuple(map(bytearray, row)) for row in rows], "value BINARY, key BINARY")


FULL = {
    "id": 1,
    "small": -3,
    "title": 'ü"x',
    "price": (-123456).to_bytes(3, "big", signed=True),
    "day": -1,
    "at": 1_700_000_000_123_456,
    "raw": b"\x00\xff",
    "ratio": math.nan,
    "tags": ["a", None],
    "flag": True,
    "big": 2**62,
}


def test_F1_values_of_all_kinds_and_the_columns_of_a_table(spark, tmp_path):
    feed = feeds.debezium(messages(spark, message("c", FULL, 1)), registry=SCHEMAS)
    told = feed.schema()
    assert told.replace(", 4", ",4") == ", ".join(
        f"`{c.split(' ')[0]}` {c.split(' ', 1)[1]}" for c in [*COLUMNS.split(", "), "_seq STRING"]
    )
    table = table_of(spark, tmp_path, COLUMNS)
    table.applyChanges(feed).execute()
    ((*found, ratio),) = [(*row[:7], *row[8:], row[7]) for row in rows_of(table)]
    assert math.isnan(ratio)
    assert found == [
        1, -3, 'ü"x', Decimal("-12.3456"), date(1969, 12, 31), datetime(2023, 11, 14, 22, 13, 20, 123456),
        bytearray(b"\x00\xff"), ["a", None], True, 2**62,
    ]  # fmt: skip


def test_F1_F3_deletes_and_messages_that_cannot_be_read(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, title STRING")
    (good, key), (gone, _) = message("c", {"id": 1, "title": "a"}, 1), message("d", {"id": 2}, 3)
    broken = [good[:20], b"{}", b"", struct.pack(">bI", 0, 9) + b"x"]
    frame = messages(
        spark,
        (good, key),
        message("c", {"id": 2, "title": "b"}, 2),
        (gone, b"\0\0\0\0\x08\x04"),
        *((b, key) for b in broken),
    )
    rejected = TrinityTable.createQuarantine(spark, f"{tmp_path}/rejected")
    result = table.applyChanges(feeds.debezium(frame, registry=SCHEMAS)).quarantine(rejected).execute()
    assert rows_of(table) == [(1, "a")]
    assert (result.feed.read, result.quarantined) == (7, {"schema-id": 1, "unparsable": 3})
    kept = {row["row"] for row in rejected.toDF().collect()}
    assert base64.b64encode(good[:20]).decode() in " ".join(kept)


def test_F1_a_registry_is_asked_for_each_schema(spark, tmp_path):
    class Registry(BaseHTTPRequestHandler):
        def do_GET(self):
            number = int(self.path.rsplit("/", 1)[1])
            is_known = number in SCHEMAS and self.headers["Authorization"] == "Basic dTpw"
            body = json.dumps({"schema": SCHEMAS[number]} if is_known else {"error_code": 40403}).encode()
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://u:p@127.0.0.1:{server.server_port}/"
        feed = feeds.debezium(messages(spark, message("c", {"id": 1, "title": "a"}, 1)), registry=address)
        assert "u:p" not in repr(feed)
        table = table_of(spark, tmp_path, "id INT, title STRING")
        table.applyChanges(feed).execute()
        assert rows_of(table) == [(1, "a")]
    finally:
        server.shutdown()
        server.server_close()


def test_F1_what_avro_is_given_is_checked(spark):
    text = spark.createDataFrame([("{}",)], "value STRING")
    with pytest.raises(InvalidMergeError, match="Avro messages are binary, and the column 'value' is string"):
        feeds.debezium(text, registry=SCHEMAS)
    with pytest.raises(InvalidMergeError, match="registry takes an address or a mapping"):
        feeds.debezium(text, registry=7)
    with pytest.raises(InvalidMergeError, match="needs a column 'value'"):
        feeds.debezium(text.withColumnRenamed("value", "v"), registry=SCHEMAS)
