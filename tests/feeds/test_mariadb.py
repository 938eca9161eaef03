"""F1-F4: the messages of Debezium's connector for MySQL become the rows that a MariaDB has.

`tests/data/feeds/debezium/mariadb.jsonl.gz` was captured under the load of `live_databases`.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from feed_tables import table_of
from helpers import assertRows
from live_databases import MARIADB_IN_SPARK, texts_of

from trinitymerge import feeds
from trinitymerge.feeds.wire_values import WireForms, value_in_column
from trinitymerge.schema.field import Field
from trinitymerge.spark.sql_text import Sql

DATA = Path(__file__).parent.parent / "data" / "feeds" / "debezium"
TABLES = {
    "branches": ("bid INT, bbalance BIGINT", ["bid"]),
    "accounts": ("aid INT, bid INT, abalance BIGINT, filler STRING, note STRING", ["aid"]),
    "basket": ("bid INT, line INT, sku STRING", ["bid", "line"]),
    "notes": (
        "id BIGINT, title STRING, body STRING, price DECIMAL(12,4), seen TIMESTAMP, at TIMESTAMP_NTZ, day DATE, took STRING, "
        "kind STRING, tags STRING, raw BINARY, flag SMALLINT, bits BINARY, ratio DOUBLE, made INT, big DECIMAL(38,0)",
        ["id"],
    ),
}

Message = tuple[str | None, str | None]
"""A key and a value."""


def captured() -> list[Message]:
    with gzip.open(DATA / "mariadb.jsonl.gz", "rt") as lines:
        messages = [json.loads(line) for line in lines]
    return [
        (json.dumps(m["key"]) if m["key"] else None, json.dumps(m["value"]) if m["value"] else None) for m in messages
    ]


def assert_ends_as_the_database(spark, directory: Path, name: str, batches: Iterable[list[Message]]) -> None:
    columns, key = TABLES[name]
    table = table_of(spark, directory, columns, key)
    for batch in batches:
        frame = spark.createDataFrame(batch, "key STRING, value STRING")
        counts = table.applyChanges(feeds.debezium(frame, table=f"shop.{name}")).execute().feed
        assert (
            counts.read
            == len(batch)
            == counts.upserts + counts.deletes + counts.truncates + sum(counts.skipped.values())
        )
    rows = json.loads((DATA / "final" / "mariadb.json").read_text())[name]
    assertRows(texts_of(table.toDF().drop("_seq", "note"), MARIADB_IN_SPARK[name]), [tuple(row) for row in rows])
    if name == "accounts":  # the column came during the stream
        noted = table.toDF().where("note = 'new'").selectExpr("CAST(aid AS STRING)")
        assertRows(noted, [(row[0],) for row in rows if int(row[0]) < 10])


@pytest.mark.parametrize("name", TABLES)
def test_F1_a_captured_stream_of_a_mariadb_ends_as_the_database(spark, tmp_path, name):
    assert_ends_as_the_database(spark, tmp_path, name, [captured()])


@pytest.mark.parametrize("name", TABLES)
def test_F2_the_binlogs_position_orders_the_events_of_a_mariadb(spark, tmp_path, name):
    """Each message arrives in any of three batches."""
    messages = captured()
    random.Random(name).shuffle(messages)
    third = len(messages) // 3
    assert_ends_as_the_database(
        spark, tmp_path, name, [messages[:third], messages[third : 2 * third], messages[2 * third :]]
    )


@pytest.mark.parametrize(
    ("meaning", "sent", "stored"),
    [
        ("time_us", "90001500000", "25:00:01.500000"),
        ("time_ms", "-1", "-00:00:00.001000"),
        ("time_us", "-3020399000000", "-838:59:59.000000"),
        ("time_ns", "86399999999999", "23:59:59.999999999"),
        ("time_us", "0", "00:00:00.000000"),
        ("time_us", "9223372036854775807", None),
        ("time_us", "10:11:12", "10:11:12"),
    ],
)
def test_F3_a_time_of_mysql_is_a_duration(spark, meaning, sent, stored):
    """What is no time does not fit, and is rejected."""
    value = value_in_column(Sql("text"), Sql("meaning"), Field("took", "string"), WireForms())
    frame = spark.createDataFrame([(sent, meaning)], "text STRING, meaning STRING")
    assertRows(frame.selectExpr(f"{value} AS took"), [(stored,)])
