"""F3: what Debezium's messages become, by the type in the source, the connector's mode, and the column. A page shows this table."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from tables import new_table

from trinitymerge import feeds

PAGE = Path(__file__).parents[2] / "docs" / "feeds.md"
REJECTED = "rejected"


def digits(unscaled: int) -> str:
    """The bytes of a number, as Kafka Connect writes them."""
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def decimal(scale: int, precision: int) -> dict[str, Any]:
    said = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": said}


def named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name}


def array(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


VARIABLE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
DATE, MICROS = named("int32", "io.debezium.time.Date"), named("int64", "io.debezium.time.MicroTimestamp")


@attrs.frozen
class Cell:
    """A value of a message in a column.

    Attributes:
        source: the type in the database.
        mode: of the connector.
        value: in the message.
        column: its type.
        stored: as Spark shows it, or "rejected".
        schema: what a message with schemas says of the column; None for a message without.
        text: the value as JSON, if Python writes it in another way.
    """

    source: str
    mode: str
    value: Any
    column: str
    stored: str
    schema: dict[str, Any] | None = None
    text: str | None = None

    @property
    def json(self) -> str:
        return json.dumps(self.value) if self.text is None else self.text

    @property
    def line(self) -> str:
        has = "with" if self.schema else "without"
        return f"| `{self.source}` | {self.mode} | {has} | `{self.column}` | `{self.json}` | {self.stored} |"


PRECISE, STRING, DOUBLE, OTHER = "`precise`", "`string`", "`double`", "any"
CELLS = [
    Cell("numeric(10,2)", PRECISE, digits(1250), "DECIMAL(10,2)", "12.50", decimal(2, 10)),
    Cell("numeric(10,2)", PRECISE, digits(1250), "DECIMAL(12,4)", "12.5000", decimal(2, 10)),
    Cell("numeric(10,2)", PRECISE, digits(1255), "DECIMAL(10,1)", REJECTED, decimal(2, 10)),
    Cell("numeric(10,2)", PRECISE, digits(1250), "STRING", "12.50", decimal(2, 10)),
    Cell("numeric(10,2)", PRECISE, digits(1250), "DECIMAL(10,2)", "12.50"),
    Cell("numeric(10,2)", PRECISE, 1234, "DECIMAL(10,2)", "1234.00"),
    Cell("numeric(10,2)", PRECISE, True, "DECIMAL(10,2)", REJECTED),
    Cell("numeric(50,2)", PRECISE, digits(1250), "STRING", "12.50", decimal(2, 50)),
    Cell("numeric(5,-2)", PRECISE, digits(123), "STRING", "12300", decimal(-2, 5)),
    Cell("numeric", PRECISE, {"scale": 2, "value": digits(-1999)}, "STRING", "-19.99", VARIABLE),
    Cell("numeric", PRECISE, {"scale": 2, "value": digits(-1999)}, "STRING", "-19.99"),
    Cell("numeric", PRECISE, {"scale": 2, "value": digits(-1999)}, "DECIMAL(38,10)", "-19.9900000000", VARIABLE),
    Cell("numeric", PRECISE, {"scale": 2, "value": digits(-1999)}, "DECIMAL(10,1)", REJECTED),
    Cell(
        "numeric(10,2)[]",
        PRECISE,
        [digits(1250), None],
        "ARRAY<DECIMAL(12,4)>",
        "[12.5000, null]",
        array(decimal(2, 10)),
    ),
    Cell("numeric(10,2)", STRING, "12.50", "DECIMAL(10,2)", "12.50"),
    Cell("numeric(10,2)", STRING, "12.50", "STRING", "12.50"),
    Cell("numeric(38,18)", DOUBLE, 0, "DECIMAL(38,18)", "0.123456789012345678", text="0.123456789012345678"),
    Cell("numeric(10,2)", DOUBLE, 0, "DECIMAL(10,2)", "10000000.00", text="1.0E7"),
    Cell("numeric(10,2)", DOUBLE, 12.505, "DECIMAL(10,2)", REJECTED),
    Cell("integer", OTHER, 5, "INT", "5"),
    Cell("integer", OTHER, 5, "BIGINT", "5"),
    Cell("integer", OTHER, 70000, "SMALLINT", REJECTED),
    Cell("integer", OTHER, 5, "STRING", "5"),
    Cell("integer", OTHER, 16777217, "FLOAT", REJECTED),
    Cell("double precision", OTHER, 0.1, "DOUBLE", "0.1"),
    Cell("double precision", OTHER, 0.1, "FLOAT", "0.1"),
    Cell("double precision", OTHER, 0, "DOUBLE", REJECTED, text="1e400"),
    Cell("double precision", OTHER, 0, "STRING", "12.50", text="12.50"),
    Cell("double precision", OTHER, 2.0, "INT", "2"),
    Cell("double precision", OTHER, 2.5, "INT", REJECTED),
    Cell("boolean", OTHER, True, "BOOLEAN", "true"),
    Cell("boolean", OTHER, True, "STRING", "true"),
    Cell("boolean", OTHER, True, "INT", REJECTED),
    Cell("date", OTHER, 19675, "DATE", "2023-11-14", DATE),
    Cell("date", OTHER, 19675, "DATE", "2023-11-14"),
    Cell("timestamp", OTHER, 1700000000123456, "TIMESTAMP_NTZ", "2023-11-14 22:13:20.123456", MICROS),
    Cell("timestamp", OTHER, 1700000000123456, "TIMESTAMP_NTZ", REJECTED),
    Cell(
        "timestamp",
        OTHER,
        1700000000123456789,
        "TIMESTAMP_NTZ",
        REJECTED,
        named("int64", "io.debezium.time.NanoTimestamp"),
    ),
    Cell(
        "timestamp[]", OTHER, [1700000000123456], "ARRAY<TIMESTAMP_NTZ>", "[2023-11-14 22:13:20.123456]", array(MICROS)
    ),
    Cell("timestamptz", OTHER, "2024-01-01T10:00:00.5Z", "TIMESTAMP", "2024-01-01 10:00:00.5"),
    Cell("timestamptz", OTHER, "2024-01-01T10:00:00.1234567Z", "TIMESTAMP", REJECTED),
    Cell("time", OTHER, 3723000001, "STRING", "01:02:03.000001", named("int64", "io.debezium.time.MicroTime")),
    Cell("time", OTHER, 3723000000001, "STRING", "01:02:03.000000001", named("int64", "io.debezium.time.NanoTime")),
    Cell("bytea", OTHER, "AQI=", "BINARY", "[01 02]"),
    Cell("bytea", OTHER, 1234, "BINARY", REJECTED),
    Cell("text, uuid, enum", OTHER, "a", "STRING", "a"),
    Cell("text", OTHER, "a\ud800", "STRING", REJECTED),
    Cell("json", OTHER, '{"a": 1.50}', "STRING", '{"a": 1.50}'),
    Cell("json", OTHER, '{"a": 1}', "STRUCT<a: INT>", "{1}"),
    Cell("json", OTHER, '{"a": 1, "A": 2}', "STRUCT<a: INT>", REJECTED),
    Cell("text[]", OTHER, ["a", None], "ARRAY<STRING>", "[a, null]"),
    Cell("integer[]", OTHER, [1, 2], "ARRAY<INT>", "[1, 2]"),
    Cell("double precision[]", OTHER, [1.5], "ARRAY<INT>", REJECTED),
    Cell("hstore", OTHER, {"a": "1"}, "MAP<STRING,STRING>", "{a -> 1}"),
]


def message(cell: Cell, number: int) -> str:
    after = f'{{"id":{number},"c{number}":{cell.json}}}'
    payload = f'{{"op":"c","after":{after},"source":{{"sequence":"[null,\\"{number + 10}\\"]","table":"t"}}}}'
    if cell.schema is None:
        return payload
    fields = [{"field": "id", "type": "int32"}, {"field": f"c{number}", **cell.schema}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'


@pytest.mark.parametrize("mode", ["precise", "string", "double"])
def test_F3_a_value_is_stored_widened_or_rejected_by_the_type_of_its_column(spark, tmp_path, mode):
    cells = [c for c in CELLS if c.mode == f"`{mode}`" or (c.mode == OTHER and mode == "precise")]
    columns = ", ".join(f"c{n} {cell.column}" for n, cell in enumerate(cells))
    table = new_table(spark, tmp_path, f"id INT, {columns}, _seq STRING", watermarkKey="_seq")
    sent = spark.createDataFrame([(message(cell, n),) for n, cell in enumerate(cells)], "value STRING")
    shown = [
        f"CAST(c{n} AS STRING)"
        if c.column != "BINARY"
        else f"'[' || regexp_replace(hex(c{n}), '(..)(?=.)', '$1 ') || ']'"
        for n, c in enumerate(cells)
    ]
    events = feeds.debezium(sent, decimals=mode).changes(table).where("_op = 'upsert'")
    stored = {
        row["id"]: row for row in events.selectExpr("id", *[f"{s} AS c{n}" for n, s in enumerate(shown)]).collect()
    }
    found = [(c.line, stored[n][f"c{n}"] if n in stored else REJECTED) for n, c in enumerate(cells)]
    assert found == [(c.line, c.stored) for c in cells]


def test_F3_the_page_shows_the_table():
    assert "\n".join(c.line for c in CELLS) in PAGE.read_text()
