"""Tables with history where something is unusual: names, types, settings of the session, what contradicts itself (H5, H9-H12)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from helpers import quickly
from pyspark.sql import DataFrame, SparkSession
from tables import EVENTS, frame, live_rows, new_table

from trinitymerge import TrinityTable, errors

UTC = dt.timezone.utc


@contextmanager
def session_with(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings of the session, for a while; `__` stands for a dot."""
    named = {f"spark.sql.{name.replace('__', '.')}": value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in named}
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def told(table: TrinityTable, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the versions."""
    rows = table.versions().select(*columns).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def extract(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return frame(spark, "id INT, v STRING", *rows)


# Extracts that contradict themselves ----------------------------------------------------------------------------------

_TIMES = [dt.datetime(2020, 1, 1, 0, 0, 0, micro) for micro in (1, 2)]


@pytest.mark.parametrize(
    ("schema", "rows"),
    {
        "a row and a tombstone": ("id INT, v STRING, deleted BOOLEAN", [(1, "a", False), (1, "a", True)]),
        "microseconds": ("id INT, t TIMESTAMP", [(1, _TIMES[0]), (1, _TIMES[1])]),
    }.values(),
    ids=["a row and a tombstone", "microseconds"],
)
def test_H11_S12_different_rows_of_a_key_are_refused_written_or_not(spark, tmp_path, schema, rows):
    tombstone = "deleted" if "deleted" in schema else None
    table = new_table(spark, tmp_path, f"{schema}, ts INT", watermarkKey="ts", tombstoneKey=tombstone, history=True)
    if tombstone is None:
        table.snapshot(frame(spark, schema, rows[0]), at=1).execute()
    before = table.version
    with pytest.raises(errors.AmbiguousMergeError):
        table.snapshot(frame(spark, schema, *rows), at=2).execute()
    assert table.version == before


def test_H11_tombstones_of_a_key_are_one_whatever_they_hold_and_null_keys_are_refused(spark, tmp_path):
    table = new_table(spark, tmp_path, history=True)
    schema = "id INT, v STRING, deleted BOOLEAN"
    table.snapshot(frame(spark, schema, (1, "a", True), (1, "b", True), (2, "x", False)), at=1).execute()
    assert [b.rows for b in table._snapshot().batches] == [1]
    table.snapshot(frame(spark, schema, (2, "a", True), (2, "b", True), (3, "x", False)), at=2).execute()
    assert told(table, "id", "validFrom", "validTo") == [(2, 1, 2), (3, 2, None)]
    with pytest.raises(errors.NullKeyError):
        table.snapshot(frame(spark, schema, (None, "a", True), (3, "x", False)), at=3).execute()


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_S29_what_does_not_fit_is_refused_by_every_feed_and_fills_nothing(spark, tmp_path, ansi):
    with session_with(spark, ansi__enabled=ansi):
        table = new_table(spark, tmp_path, "id INT, ts INT, n INT", watermarkKey="ts", history=True)
        table.applyChanges(frame(spark, "id INT, ts INT, n STRING", (1, 1, "5")), ignoreNullUpdates=True).execute()
        source = frame(spark, "id INT, ts INT, n STRING", (1, 2, "many"))
        with pytest.raises(errors.SchemaMismatchError, match=r"column 'n' \(int\).*: many"):
            table.applyChanges(source, ignoreNullUpdates=True).execute()
        with pytest.raises(errors.SchemaMismatchError, match=r"column 'n' \(int\).*: many"):
            table.snapshot(frame(spark, "id INT, n STRING", (1, "many")), at=3).execute()
        assert told(table, "id", "n") == [(1, 5)]


def test_H11_S29_blanks_that_are_not_stored_are_no_difference(spark, tmp_path):
    columns = "id CHAR(3), a VARCHAR(3), b CHAR(3)"
    table = new_table(spark, tmp_path, f"{columns}, ts INT", watermarkKey="ts", history=True)
    source = frame(spark, "id STRING, a STRING, b STRING", ("k", "ab   ", "x    "))
    table.snapshot(source, at=1).execute()
    assert table.snapshot(source, at=2).execute().skipped
    table.applyChanges(source.selectExpr("id", "NULL AS a", "'y' AS b", "3 AS ts"), ignoreNullUpdates=True).execute()
    assert told(table, "id", "a", "b", "validFrom") == [("k  ", "ab ", "x  ", 1), ("k  ", "ab ", "y  ", 3)]
    assert table.versions(keys=["k"]).count() == 2


@pytest.mark.slow
def test_H11_nested_values_are_equal_where_they_are(spark, tmp_path):
    has_variant = spark.version >= "4"
    columns = "s STRUCT<a: INT, b: ARRAY<STRING>>, m MAP<STRING, STRUCT<x: DOUBLE>>, l ARRAY<MAP<STRING, INT>>"
    columns += ", j VARIANT" if has_variant else ""
    table = new_table(spark, tmp_path, f"id INT, ts INT, {columns}", watermarkKey="ts", history=True)

    def rows(entries: str, json: str) -> DataFrame:
        fixed = "1 AS id, named_struct('a', null, 'b', array('x', null)) AS s, array(map('k', 1)) AS l"
        variant = f", parse_json('{json}') AS j" if has_variant else ""
        return spark.sql(f"SELECT {fixed}, map({entries}) AS m{variant}")

    nan, zero = "'a', named_struct('x', double('nan'))", "'b', named_struct('x', {}0.0D)"
    one = rows(f"{nan}, {zero.format('-')}", '{"p": 1, "q": null}')
    same = rows(f"{zero.format('')}, {nan}", '{"q":null,"p":1}')
    table.snapshot(one, at=1).execute()
    assert table.snapshot(same, at=2).execute().skipped
    assert table.snapshot(one.unionByName(same), at=3).execute().skipped, "twice the same row"
    table.snapshot(rows(nan, "[]"), at=4).execute()
    assert table.versions(track=["m"]).count() == 2
    assert table.versions(track=["s", "l"]).count() == 1


# Moments --------------------------------------------------------------------------------------------------------------

MOMENTS = {
    "INT": (-1, 0, 7),
    "DATE": ("1969-12-31", "2024-02-29", "9999-12-31"),
    "TIMESTAMP": ("1969-12-31 23:59:59.999999", "2024-03-10 02:30:00", "2024-03-10 02:30:00.000001"),
    "TIMESTAMP_NTZ": ("1969-12-31 23:59:59.999999", "2024-03-10 02:30:00", "2024-03-10 02:30:00.000001"),
    "DECIMAL(5,2)": (Decimal("-0.01"), Decimal("0"), Decimal("999.99")),
    "STRING": ("", "a'b", "é"),
    "BINARY": (b"", b"\x00", b"\xff"),
}


@pytest.mark.parametrize("kind", quickly(MOMENTS, {"TIMESTAMP_NTZ", "BINARY"}))
def test_H11_late_extracts_split_intervals_by_moments_of_every_type(spark, tmp_path, kind):
    table = new_table(spark, tmp_path, f"id INT, ts {kind}, v STRING", watermarkKey="ts", history=True)
    first, second, third = MOMENTS[kind]
    with session_with(spark, session__timeZone="America/Los_Angeles"):
        table.snapshot(extract(spark, (1, "a"), (2, "x")), at=first).execute()
        table.snapshot(extract(spark, (1, "a")), at=third).execute()
        table.snapshot(extract(spark, (1, "b"), (2, "x")), at=second).execute()
        held = [sorted(tuple(r) for r in table.asOf(m).select("id", "v").collect()) for m in MOMENTS[kind]]
    assert held == [[(1, "a"), (2, "x")], [(1, "b"), (2, "x")], [(1, "a")]]


OF_WATERMARKS = {
    "BOOLEAN": (False, True),
    "DOUBLE": (-0.0, float("nan")),
    "BINARY": (b"\x01", b"\xff"),
    "STRING": ("a", "é'"),
    "DECIMAL(5,2)": (Decimal("1.50"), Decimal("2.00")),
    "DATE": (dt.date(2020, 1, 1), dt.date(2021, 1, 1)),
}


@pytest.mark.parametrize("kind", quickly(OF_WATERMARKS, {"BOOLEAN", "DOUBLE", "BINARY"}))
def test_H5_asOf_takes_moments_of_every_type(spark, tmp_path, kind):
    schema = f"id INT, ts {kind}, v STRING"
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", history=True)
    first, second = OF_WATERMARKS[kind]
    table.upsert(frame(spark, schema, (1, first, "a"), (1, second, "b"), (2, None, "n"))).execute()
    table.compact()
    table.upsert(frame(spark, schema, (2, second, "m"))).execute()
    held = [sorted(r["v"] for r in table.asOf(moment).collect()) for moment in (first, second)]
    assert held == [["a", "n"], ["b", "m"]]
    assert sorted(r["v"] for r in table.versions(openEnd=second).collect()) == ["a", "b", "m", "n"]
    with pytest.raises(ValueError, match="type of 'ts'"):
        table.asOf(b"?" if kind != "BINARY" else None)


@pytest.mark.slow
def test_H5_moments_around_a_change_of_clocks_whatever_the_time_zone(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts TIMESTAMP, v STRING", watermarkKey="ts", history=True)
    with session_with(spark, session__timeZone="America/Los_Angeles"):  # clocks go back from 2:00 to 1:00
        table.snapshot(extract(spark, (1, "a"), (2, "x")), at="2024-11-03 01:30:00-07:00").execute()
        table.snapshot(extract(spark, (1, "c")), at="2024-11-03 02:30:00").execute()
    table.snapshot(extract(spark, (1, "b"), (2, "x")), at="2024-11-03 09:30:00").execute()
    half_past = [dt.datetime(2024, 11, 3, hour, 30) for hour in (8, 9, 10)]
    assert told(table, "v", "validFrom", "validTo") == [
        ("a", half_past[0], half_past[1]),
        ("b", half_past[1], half_past[2]),
        ("c", half_past[2], None),
        ("x", half_past[0], half_past[2]),
    ]
    moments = {
        "2024-11-03T08:30:00Z": ["a", "x"],
        "2024-11-03 01:30:00-08:00": ["b", "x"],
        dt.datetime(2024, 11, 3, 9, 30, tzinfo=UTC): ["b", "x"],
        "2024-11-03 02:29:59.999999": ["b", "x"],
        "2024-11-03 02:30:00": ["c"],
        "2024-11-03 11:30:00+01:00": ["c"],
    }
    with session_with(spark, session__timeZone="America/Los_Angeles"):
        held = {m: sorted(r["v"] for r in table.asOf(m).collect()) for m in moments}
    assert held == moments


# Names ----------------------------------------------------------------------------------------------------------------

INNER = [
    *(
        "given",
        "held",
        "row",
        "event",
        "at",
        "is_delete",
        "is_truncate",
        "dies",
        "is_event",
        "contradicts",
        "is_written",
    ),
    *("e", "c0", "v0", "w0", "k", "r", "part", "since", "begins", "ends", "following", "is_followed", "is_open"),
]


@pytest.mark.slow
def test_H9_H12_columns_may_be_called_as_the_engine_calls_its_own(spark, tmp_path):
    columns = ", ".join(f"{name} STRING" for name in INNER)
    table = new_table(spark, tmp_path, f"k0 INT, t INT, {columns}", primaryKey="k0", watermarkKey="t", history=True)

    def rows(*keys: tuple[int, str | None], at: str = "") -> DataFrame:
        source = frame(spark, f"k0 INT, {columns}", *[(key, *[value] * len(INNER)) for key, value in keys])
        return source.selectExpr("*", f"{at} AS t") if at else source

    table.snapshot(rows((1, "a"), (2, "x")), at=10).execute()
    table.snapshot(rows((1, "a")), at=30).execute()
    table.snapshot(rows((1, "b"), (2, "x")), at=20).execute()
    table.applyChanges(rows((3, "q"), at="5"), ignoreNullUpdates=True, applyAsDeletes="is_delete = 'Z'").execute()
    result = table.applyChanges(rows((3, None), at="6"), ignoreNullUpdates=["given", "e"]).execute()
    assert result.columnsIgnored == ()
    table.applyChanges(rows((3, "z"), at="7"), columns=["given"], applyAsDeletes="is_delete = 'z'").execute()
    assert told(table, "k0", "given", "e", "is_delete", "validFrom", "validTo") == [
        (1, "a", "a", "a", 10, 20),
        (1, "a", "a", "a", 30, None),
        (1, "b", "b", "b", 20, 30),
        (2, "x", "x", "x", 10, 30),
        (3, "q", "q", "q", 5, 6),
        (3, "q", "q", None, 6, 7),
    ]
    assert table.versions(track=INNER).count() == 6
    dimension = table.versions(validFrom="begins_", validTo="ends_").drop("isCurrent", "t")
    copied = TrinityTable.fromIntervals(spark, str(tmp_path / "copied"), dimension, "k0", "begins_", "ends_")
    assert copied.versions().count() == 6


ODD = ["a.b", "c`d", "e'f\"g", "zé ü"]


@pytest.mark.slow
def test_H5_H11_names_with_dots_quotes_and_backticks(spark, tmp_path):
    columns = "`a.b` STRING, `c``d` STRING, `e'f\"g` STRING, `zé ü` STRING"
    schema = f"`i.d` INT, `t``s` INT, {columns}, `del.x` BOOLEAN"
    keys = {"primaryKey": "i.d", "watermarkKey": "t`s", "tombstoneKey": "del.x"}
    table = new_table(
        spark, tmp_path, schema, **keys, history=True, properties={"trinitymerge.minorCompactionAfterBatches": "1"}
    )

    def rows(*values: tuple[Any, ...]) -> DataFrame:
        return frame(spark, f"`I.D` INT, {columns}", *values)

    table.snapshot(rows((1, *"abcd"), (2, *"xxxx")), at=10).execute()
    table.snapshot(rows((1, *"abcd")), at=30).execute()
    table.snapshot(rows((1, *"Bbcd"), (2, *"xxxx")), at=20).execute()
    event = frame(spark, schema, (2, 40, None, None, "R", None, False))
    table.applyChanges(event, ignoreNullUpdates=["A.B", "zé ü"]).execute()
    table.compact()
    found = [(r["i.d"], *(r[n] for n in ODD), r["validFrom"], r["validTo"]) for r in table.versions().collect()]
    assert sorted(found, key=repr) == [
        (1, *"Bbcd", 20, 30),
        (1, *"abcd", 10, 20),
        (1, *"abcd", 30, None),
        (2, *"xxxx", 10, 30),
        (2, None, None, "R", None, 40, None),
    ]
    assert table.versions(track=["A.B", "zé ü"]).count() == 5
    assert table.versions(keys=frame(spark, "`I.d` INT", 2)).count() == 2
    shown = table.versions(validFrom="t`s", validTo="b.is")
    assert shown.columns == ["i.d", *ODD, "del.x", "t`s", "b.is", "isCurrent"]


def test_S30_names_are_told_apart_by_case_where_the_session_does(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, n INT, ts INT, v STRING", watermarkKey="ts", history=True)
    with session_with(spark, caseSensitive="true"):
        source = frame(spark, "id INT, ID INT, n INT, N INT, ts INT, v STRING", (1, 7, 2, 8, 1, "a"))
        table.applyChanges(source).execute()
        later = source.selectExpr("id", "ID", "n", "N", "2 AS ts", "CAST(NULL AS STRING) AS v")
        table.applyChanges(later, ignoreNullUpdates=True).execute()
        table.snapshot(source.selectExpr("id", "ID", "3 AS n", "v"), at=9).execute()
        assert told(table, "id", "n", "v", "validFrom") == [(1, 2, "a", 1), (1, 2, "a", 2), (1, 3, "a", 9)]
        with pytest.raises(ValueError, match="'N' is not a column"):
            table.versions(track=["N"])


def test_H9_H11_a_source_with_two_columns_of_a_name_is_refused(spark, tmp_path):
    table = new_table(spark, tmp_path, history=True)
    source = frame(spark, f"{EVENTS}, w STRING", (1, 1, "a", False, "b")).toDF("id", "ts", "v", "deleted", "v")
    for merge in (table.applyChanges, lambda s: table.applyChanges(s, ignoreNullUpdates=True)):
        with pytest.raises(errors.InvalidMergeError, match="ambiguous"):
            merge(source).execute()
    with pytest.raises(errors.InvalidMergeError, match=r"snapshot\(\): .*ambiguous"):
        table.snapshot(source, at=1).execute()


# Tombstones, nothing, settings ----------------------------------------------------------------------------------------


def test_U1_nothing_is_filled_across_an_event_that_is_a_tombstone_by_itself(spark, tmp_path):
    table = new_table(spark, tmp_path, history=True)
    events = frame(spark, EVENTS, (1, 1, "a", False), (1, 2, None, True), (1, 3, None, False))
    result = table.applyChanges(events, ignoreNullUpdates=True).execute()
    assert told(table, "v", "validFrom", "validTo") == [("a", 1, 2), (None, 3, None)]
    assert result.columnsIgnored == ()


def test_H9_S22a_a_truncate_leaves_no_column_of_ours_behind(spark, tmp_path):
    table = new_table(spark, tmp_path)
    for events, left in (([(1, 2, "a", False)], [(1, 2, "a", False)]), ([(1, 3, "T", False), (2, 9, "b", False)], [])):
        result = table.applyChanges(frame(spark, EVENTS, *events), applyAsTruncates="v = 'T'").execute()
        assert result.columnsIgnored == ()
        assert live_rows(table) == (left or [(2, 9, "b", False)])


def test_H5_S37_tables_without_rows_tell_nothing(spark, tmp_path):
    for watermark, moment in (("ts", 1), (None, "2020-01-01")):
        table = new_table(spark, tmp_path, history=True, watermarkKey=watermark)
        assert told(table, "id") == table.asOf(moment).collect() == []
        assert table.versions(keys=[1], track=["v"]).collect() == []
        table.applyChanges(frame(spark, EVENTS), ignoreNullUpdates=True).execute()
        assert table.compact().skipped
        assert table.version == 0


@pytest.mark.slow
def test_H6_H11_whatever_the_session_is_set_to(spark, tmp_path):
    unusual = {
        "ansi__enabled": "false",
        "autoBroadcastJoinThreshold": "-1",
        "adaptive__enabled": "false",
        "shuffle__partitions": "1",
        "session__timeZone": "Asia/Kolkata",
        "timestampType": "TIMESTAMP_NTZ",
        "storeAssignmentPolicy": "LEGACY",
        "parser__escapedStringLiterals": "true",
        "crossJoin__enabled": "false",
    }
    own = {"trinitymerge.minorCompactionAfterBatches": "1"}
    with session_with(spark, **unusual):
        table = new_table(
            spark, tmp_path, "id INT, v STRING, ts TIMESTAMP", watermarkKey="ts", history=True, properties=own
        )
        assert table.definition.field("ts").type == "timestamp_ntz"
        for day, rows in ((1, [(1, "a"), (2, "x\\'")]), (5, [(1, "a")]), (3, [(1, "b"), (2, "x\\'")])):
            table.snapshot(extract(spark, *rows), at=f"2024-01-0{day}").execute()
        late = spark.sql("SELECT 2 AS id, CAST(NULL AS STRING) AS v, TIMESTAMP '2024-01-02' AS ts")
        table.applyChanges(late, ignoreNullUpdates=True).execute()
        table.compact()
    day = {n: dt.datetime(2024, 1, n) for n in (1, 2, 3, 5)}
    assert told(table, "id", "v", "validFrom", "validTo") == [
        (1, "a", day[1], day[3]),
        (1, "a", day[5], None),
        (1, "b", day[3], day[5]),
        (2, "x\\'", day[1], day[2]),
        (2, "x\\'", day[2], day[5]),
    ]
