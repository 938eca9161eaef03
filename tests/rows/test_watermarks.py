"""Watermarks as batch statistics keep them: exact, and silent where they are not (S3, S6, S13)."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from helpers import assertRows
from tables import directory_of, frame, new_table

from trinitymerge import TrinityTable
from trinitymerge.log.files import decode_with_checksum, encode_with_checksum
from trinitymerge.rows.watermarks import is_at_least, is_below, sort_key, to_json_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

BASE, LATE = dt.datetime(2024, 3, 10, 3, 15), dt.datetime(2024, 3, 10, 2, 30)
"""In Los Angeles there was no 02:30 that day: as moments the two are in the wrong order."""

EPOCH = dt.datetime(1970, 1, 1)
ENDS = [-(2**63), 2**63 - 1]


@pytest.fixture
def in_zone(spark):
    """Changes the session's time zone, and puts it back."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


def micros(moment):
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def keyed_by(kind):
    return TableDefinition.of([Field("k", "long"), Field("w", kind)], "k", "w")


def some_microseconds():
    generator = random.Random(1)
    years = [micros(dt.datetime(year, 1, 1)) for year in (1, 1500, 1582, 1900, 1969, 2024, 9999)]
    near = [y + n for y in (0, *years, micros(BASE), micros(LATE)) for n in (-1, 0, 1, 999_999)]
    anywhere = [generator.randint(*ENDS) for _ in range(200)]
    return sorted({*near, *anywhere, *ENDS, *(generator.randint(min(years), max(years)) for _ in range(300))})


@pytest.mark.parametrize(
    "zone", ["UTC", "America/Los_Angeles", "Pacific/Apia", "Asia/Kathmandu", "Africa/Monrovia", "Australia/Lord_Howe"]
)
def test_S3_times_without_zone_are_kept_to_the_microsecond_in_every_session(spark, in_zone, zone):
    in_zone("UTC")
    values = some_microseconds()
    rows = spark.createDataFrame([(v,) for v in values], "k LONG")
    rows = rows.selectExpr("k", "CAST(timestamp_micros(k) AS TIMESTAMP_NTZ) AS w").localCheckpoint()
    kind, definition = rows.schema["w"].dataType, keyed_by("timestamp_ntz")
    in_zone(zone)
    bounds = [values[0], micros(LATE), micros(BASE), 0, values[-1]]
    below = [f"{is_below(definition, (str(b),))} AS b{i}" for i, b in enumerate(bounds)]
    found = rows.selectExpr("k", f"{to_json_sql('w', kind)} AS w", *below).collect()
    assertRows(_Rows(found), [(v, str(v), *(v < b for b in bounds)) for v in values])
    order = [sort_key((r.w,), definition) for r in sorted(found, key=lambda r: r.k)]
    assert order == sorted(order)


class _Rows:
    def __init__(self, rows):
        self.rows, self.columns = rows, list(rows[0].asDict())

    def collect(self):
        return self.rows


def test_S3_what_a_statistic_does_not_tell_is_not_guessed():
    times, text = keyed_by("timestamp_ntz"), keyed_by("string")
    assert is_at_least(("5",), ("5",), times)
    assert is_at_least(("10",), ("9",), times)  # numbers, not text
    assert not is_at_least(("10",), (9,), times)  # the number depends on the zone of whoever wrote it
    assert not is_at_least((10,), (9,), times)
    assert is_below(times, (9,)) is None
    assert is_at_least(("b",), ("a",), text)
    assert is_at_least(("a",), (None,), text)
    assert not is_at_least(("\ufffd",), ("a",), text)  # may stand for other bytes
    assert not is_at_least(("b",), ("a\ufffd",), text)
    assert is_below(text, ("a\ufffd",)) is None
    assert not is_at_least(("b",), None, text)


def gap_table(spark, tmp_path):
    """A base of some rows, so large that what comes after it is laid over it."""
    table = new_table(spark, tmp_path, "k INT, w TIMESTAMP_NTZ, v STRING", primaryKey="k", watermarkKey="w")
    table.upsert(frame(spark, "k INT, w TIMESTAMP_NTZ, v STRING", *[(k, BASE, "fresh") for k in range(4)])).execute()
    return table


def test_S13_older_row_in_a_gap_of_the_sessions_zone_loses(spark, tmp_path, in_zone):
    in_zone("America/Los_Angeles")
    table = gap_table(spark, tmp_path)
    table.upsert(frame(spark, "k INT, w TIMESTAMP_NTZ, v STRING", (1, LATE, "late"))).execute()
    assertRows(table.toDF().select("k", "v"), [(k, "fresh") for k in range(4)])
    table.compact()
    assertRows(table.toDF().select("k", "v"), [(k, "fresh") for k in range(4)])


def test_S13_statistics_in_another_form_mislead_no_merge(spark, tmp_path, in_zone):
    in_zone("America/Los_Angeles")
    table = gap_table(spark, tmp_path)
    (path,) = (directory_of(table) / "_trinity_log").glob("*1.json")
    entry, _ = decode_with_checksum(path.read_bytes())
    (action,) = entry["actions"]
    batch = action["batch"]
    assert batch["watermarkMax"] == [str(micros(BASE))]
    hour = 3_600_000_000  # what the clocks were put forward by is missing
    batch["watermarkMin"] = batch["watermarkMax"] = [micros(BASE) - hour]
    path.write_bytes(encode_with_checksum(entry)[0])
    for checksum in path.parent.glob(f".{path.name}.crc"):
        checksum.unlink()
    table = TrinityTable.forPath(spark, table.path)
    table.upsert(frame(spark, "k INT, w TIMESTAMP_NTZ, v STRING", (1, LATE, "late"))).execute()
    assertRows(table.toDF().select("k", "v"), [(k, "fresh") for k in range(4)])


def odd_text(spark, *rows):
    """Rows of a number, and text given as bytes."""
    made = frame(spark, "k INT, w BINARY", *[(k, bytearray(w)) for k, w in rows])
    return made.selectExpr("k", "CAST(w AS STRING) AS w")


def test_S3_text_that_is_not_valid_compares_by_its_bytes(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, w STRING", primaryKey="k", watermarkKey="w")
    table.upsert(odd_text(spark, *[(k, b"\xff") for k in range(4)])).execute()
    table.upsert(odd_text(spark, (1, b"\xfe"), (2, b"\xff\x01"))).execute()
    expected = [(0, "FF"), (1, "FF"), (2, "FF01"), (3, "FF")]
    assertRows(table.toDF().selectExpr("k", "hex(w)"), expected)
    table.compact()
    assertRows(table.toDF().selectExpr("k", "hex(w)"), expected)


@pytest.mark.parametrize(
    "keys", [(b"\xff",), (b"\xfe", b"\xff"), (b"\xef\xbf\xbd",)], ids=["one", "two", "replacement"]
)
def test_S31_key_that_is_not_valid_text_is_found(spark, tmp_path, keys):
    table = new_table(spark, tmp_path, "k INT, w STRING", primaryKey="w")
    table.upsert(odd_text(spark, *[(1, key) for key in (b"\xfe", b"\xff", b"\xef\xbf\xbd", b"a")])).execute()
    merge = table.merge(odd_text(spark, *[(1, key) for key in keys])).whenMatched().updateExpr({"k": "target.k + 1"})
    assert merge.execute().rowsUpdated == len(keys)


def test_S38_horizon_of_times_in_a_gap_counts_what_is_older(spark, tmp_path, in_zone):
    in_zone("America/Los_Angeles")
    schema, properties = "k INT, w TIMESTAMP_NTZ, gone BOOLEAN", {"trinitymerge.tombstoneRetentionHours": "0"}
    table = new_table(
        spark, tmp_path, schema, primaryKey="k", watermarkKey="w", tombstoneKey="gone", properties=properties
    )
    table.upsert(frame(spark, schema, (1, BASE, True), (2, BASE, False))).execute()
    assert table.compact().tombstonesForgotten == 1
    late = frame(spark, schema, (3, LATE, False), (4, BASE, False))
    assert table.upsert(late).execute().rowsBelowHorizon == 1
