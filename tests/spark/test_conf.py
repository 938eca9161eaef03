"""The session's settings decide neither which rows a table holds nor what is stored (S7, S8, S13, S31).

A differential: the same life of a small table under each of many settings, against the defaults. Values are chosen so that
whatever rounds, shifts, rebases, pads or re-encodes shows. `make test-all` runs settings together that have nothing to do with each
other; `make test-long` runs each one alone, too.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from decimal import Decimal

import pytest
from conftest import GENERATED, INTERPRETED
from helpers import assertRows, quickly
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType
from tables import frame, new_table

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.reader import resolve
from trinitymerge.spark.conf import EXACT_IDENTIFIERS, session_conf
from trinitymerge.spark.expressions import column
from trinitymerge.spark.session import is_connect


@contextmanager
def session(spark, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets what this Spark knows, and puts it back."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


# The differential -----------------------------------------------------------------------------------------------------

COLUMNS = (
    "`k.1` STRING, t TIMESTAMP_LTZ, `w.n` TIMESTAMP_NTZ, `order` DECIMAL(20,9), `v.` STRING, va INT, d DATE, b BINARY, "
    "c CHAR(4), gone BOOLEAN"
)
KEYS = {"primaryKey": ["k.1", "t"], "watermarkKey": "w.n", "tombstoneKey": "gone"}
T = dt.datetime(2024, 11, 3, 9, 30, 0, 123456)  # 01:30 in Los Angeles, for the second time
MICRO = dt.timedelta(microseconds=1)
AFTER_GAP, IN_GAP = dt.datetime(2024, 3, 10, 3, 15), dt.datetime(2024, 3, 10, 2, 30)


def row(key, t=T, w=AFTER_GAP, va=0, gone=False):
    """A row whose other values say whether they have been tampered with."""
    ancient, text = dt.date(1500, 3, 1), key + b" \xff.\t\\"
    return (
        bytearray(key),
        t,
        w,
        Decimal("0.000000012"),
        bytearray(text),
        va,
        ancient,
        bytearray(b"\xff\x00A"),
        "c ",
        gone,
    )


def rows_of(spark, *rows):
    """A source; text is given as bytes, for it need not be valid UTF-8."""
    binary = "k BINARY, t TIMESTAMP_LTZ, w TIMESTAMP_NTZ, o DECIMAL(20,9), v BINARY, va INT, d DATE, b BINARY, c STRING, g BOOLEAN"
    names = ["k.1", "t", "w.n", "order", "v.", "va", "d", "b", "c", "gone"]
    made = spark.createDataFrame(list(rows), binary)
    text = {"k", "v"}
    return made.select(
        *[
            (F.col(n).cast("string") if n in text else F.col(n)).alias(name)
            for n, name in zip(made.columns, names, strict=True)
        ]
    )


def shown(rows):
    """Live rows with text as hex: what is not valid UTF-8 does not get to Python."""
    exact = [F.hex(column(n)).alias(n) if k in ("string", "binary") else column(n) for n, k in rows.dtypes]
    return sorted(tuple(map(str, r)) for r in rows.select(*exact).collect())


def life(spark, directory, file_format):
    """What readers see at every stage of a table's life."""
    table = new_table(spark, directory, COLUMNS, fileFormat=file_format, **KEYS).alias("A")
    seen = {"types": [table.toDF().dtypes, table.history().dtypes]}
    odd, fe, ff = b"it's \\n \xc3\xbc ${x}", b"\xfe", b"\xff"
    load = rows_of(spark, row(odd), row(odd, T + MICRO), row(ff, va=1), row(fe, va=2), row(b"a"), row(b"z", va=200))
    assert table.upsert(load).execute().strategy == "blind append"
    same_key = "A.`k.1` = B.`k.1` AND A.t = B.t"
    late = {"w": IN_GAP, "va": 7}
    changes = rows_of(
        spark,
        row(ff, w=T, va=10),
        row(fe, w=T, gone=True),
        row(b"a", **late),
        row(b"new", w=T),
        row(odd, gone=True, w=T),
    ).alias("B")
    merge = (
        table.merge(changes, same_key)
        .whenMatched("B.gone AND A.va < 100")
        .delete()
        .whenMatched()
        .updateExpr({"`v.`": "concat(A.`v.`, B.`v.`)", "va": "A.va + B.va"})
        .whenNotMatched("NOT B.gone")
        .insertAll()
    )
    seen["preview"] = [merge.preview().dtypes]
    result = merge.execute()
    assert result.strategy == "keyed lookup"
    seen["counts"] = [(result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale)]
    moves = rows_of(spark, row(b"a", va=3), row(b"new", w=T, va=4)).alias("B")
    (
        table.merge(moves, same_key)
        .whenMatched("B.va = 3")
        .updateExpr({"t": "timestamp_micros(unix_micros(A.t) + 1)"})
        .whenMatched()
        .updateExpr({"va": "4", "c": "'é'"})
        .whenNotMatchedAndExistsOnlyOnTarget("A.va > 100")
        .delete()
        .execute()
    )
    seen["full"] = shown(table.toDF())
    seen["changes"] = shown(table.changes(1).drop("_commit_timestamp"))
    moved = table.toDF().filter(column("k.1") == "a").select(column("k.1"), column("t")).first()
    seen["why"] = shown(table.why(moved).drop("_batch", "_commit_timestamp"))
    seen["filtered"] = shown(table.toDF().filter((F.unix_micros("t") % 1000 == 457) & column("v.").isNotNull()))
    table.compact()
    seen["compacted"] = shown(table.toDF())
    table.upsert(rows_of(spark, row(ff, **late), row(fe, **late))).execute()  # older than what compaction has kept
    seen["late"] = shown(table.toDF())
    table.restore(1)
    assert table.purge(load.filter(column("va") == 1).select(column("k.1"), column("t"))).rowsRemoved == 1
    assert table.upsert(rows_of(spark, row(ff, w=T), row(b"last", w=T))).execute().rowsPurged == 1
    seen["purged"] = shown(table.toDF())
    seen["history"] = [tuple(r) for r in table.history().select("version", "operation", "rowsAdded").collect()]
    return seen


PARQUET, LEGACY = "spark.sql.parquet.", "spark.sql.legacy."
TOGETHER = {
    "values in Parquet": {
        PARQUET + "outputTimestampType": "TIMESTAMP_MILLIS",
        PARQUET + "datetimeRebaseModeInWrite": "LEGACY",
        PARQUET + "datetimeRebaseModeInRead": "LEGACY",
        PARQUET + "int96RebaseModeInWrite": "EXCEPTION",
        PARQUET + "int96RebaseModeInRead": "LEGACY",
        PARQUET + "int96AsTimestamp": "false",
        PARQUET + "int96TimestampConversion": "true",
        PARQUET + "inferTimestampNTZ.enabled": "false",
        PARQUET + "binaryAsString": "true",
        PARQUET + "writeLegacyFormat": "true",
        PARQUET + "fieldId.read.enabled": "true",
        PARQUET + "mergeSchema": "true",
        PARQUET + "filterPushdown": "false",
    },
    "times and zones": {
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        PARQUET + "datetimeRebaseModeInWrite": "EXCEPTION",
        PARQUET + "outputTimestampType": "INT96",
        PARQUET + "recordLevelFilter.enabled": "true",
        PARQUET + "enableVectorizedReader": "false",
        "spark.sql.datetime.java8API.enabled": "true",
        LEGACY + "timeParserPolicy": "LEGACY",
    },
    "words, without ANSI": {
        "spark.sql.parser.quotedRegexColumnNames": "true",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.storeAssignmentPolicy": "LEGACY",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.groupByOrdinal": "false",
        "spark.sql.orderByOrdinal": "false",
        "spark.sql.sources.default": "json",
        "spark.sql.sources.useV1SourceList": "",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.orc.impl": "hive",
        LEGACY + "interval.enabled": "true",
        LEGACY + "charVarcharAsString": "true",
    },
    "words, with ANSI": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.enforceReservedKeywords": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.storeAssignmentPolicy": "STRICT",
        "spark.sql.readSideCharPadding": "false",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        LEGACY + "literal.pickMinimumPrecision": "false",
        "spark.sql.jsonGenerator.ignoreNullFields": "false",
        "spark.sql.defaultColumn.enabled": "false",
        **GENERATED,
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
    },
    "plans": {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        **INTERPRETED,
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownPredicates,"
        "org.apache.spark.sql.catalyst.optimizer.ColumnPruning,org.apache.spark.sql.catalyst.optimizer.CollapseProject",
        "spark.sql.optimizer.collapseProjectAlwaysInline": "true",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "0",
        "spark.sql.join.preferSortMergeJoin": "false",
        "spark.sql.files.maxRecordsPerFile": "1",
        "spark.sql.exchange.reuse": "false",
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        PARQUET + "compression.codec": "gzip",
        "spark.sql.crossJoin.enabled": "false",
    },
}
"""Settings that have nothing to do with each other, so that one run tells of all of them."""

FOR_ORC = {**TOGETHER["words, without ANSI"], **TOGETHER["times and zones"]}
"""What could reach ORC files, too."""

ALONE = {name: value for settings in TOGETHER.values() for name, value in settings.items()}
ALONE |= {"spark.sql.orc.filterPushdown": "false", "spark.sql.orc.enableVectorizedReader": "false"}


@pytest.fixture(scope="module")
def usual(spark, tmp_path_factory):
    """What readers see under the defaults, by file format; found out once."""
    directory, found = tmp_path_factory.mktemp("usual"), {}

    def of(file_format):
        if file_format not in found:
            found[file_format] = life(spark, directory, file_format)
        return found[file_format]

    return of


def assert_as_usual(spark, tmp_path, usual, settings, file_format):
    expected = usual(file_format)
    if is_connect(spark):  # there what is read is analysed when it is used: see test_S30_names_are_no_patterns
        settings = {**settings, **EXACT_IDENTIFIERS}
    with session(spark, settings):
        if file_format == "orc" and "spark.sql.timestampType" in settings and spark.version < "4":
            with pytest.raises(UnsupportedStorageError, match=r"cannot read .* under spark\.sql\.timestampType"):
                life(spark, tmp_path, file_format)
            return
        found = life(spark, tmp_path, file_format)
    assert set(found) == set(expected)
    for stage, rows in expected.items():
        missing, surplus = [r for r in rows if r not in found[stage]], [r for r in found[stage] if r not in rows]
        assert (missing, surplus) == ([], []), f"{stage}: expected and actual rows differ"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file_format"),
    quickly(
        [*((name, "parquet") for name in TOGETHER), ("in ORC", "orc")],
        {"times and zones", "words, with ANSI", "in ORC"},
    ),
)
def test_S7_settings_of_the_session_change_no_row(spark, tmp_path, usual, name, file_format):
    assert_as_usual(spark, tmp_path, usual, TOGETHER.get(name, FOR_ORC), file_format)


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("setting", ALONE)
def test_S7_each_setting_alone_changes_no_row(spark, tmp_path, usual, setting, file_format):
    needs = {"spark.sql.ansi.enabled": "true"} if ".ansi." in setting else {}
    assert_as_usual(spark, tmp_path, usual, {**needs, setting: ALONE[setting]}, file_format)


# One by one -----------------------------------------------------------------------------------------------------------


def test_S8_timestamps_keep_their_digits_whatever_the_session_writes(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, t TIMESTAMP_LTZ", primaryKey="t", watermarkKey="k")
    rows = [(1, T), (2, T + MICRO), (3, dt.datetime(1500, 1, 1))]
    with session(spark, {PARQUET + "outputTimestampType": "TIMESTAMP_MILLIS"}):
        table.upsert(frame(spark, "k INT, t TIMESTAMP_LTZ", *rows)).execute()
        assert spark.conf.get(PARQUET + "outputTimestampType") == "TIMESTAMP_MILLIS"
    assertRows(table.toDF(), rows)


def test_S8_dates_that_another_calendar_lacks_are_kept(spark, tmp_path):
    for mode in ("LEGACY", "EXCEPTION"):
        table = new_table(spark, tmp_path, "d DATE, n INT", primaryKey="d")
        rows = [(dt.date(1582, 10, 10), 1), (dt.date(1582, 10, 15), 2), (dt.date(1, 1, 1), 3)]
        with session(spark, {PARQUET + "datetimeRebaseModeInWrite": mode}):
            table.upsert(frame(spark, "d DATE, n INT", *rows)).execute()
        assertRows(table.toDF(), rows)


def test_S13_batches_with_timestamps_of_both_forms_are_one_table(spark, tmp_path, monkeypatch):
    def as_before(rows, file_format, path):
        with session(spark, {PARQUET + "outputTimestampType": "INT96"}):
            rows.write.format(file_format).save(path)

    schema = "k INT, t TIMESTAMP_LTZ, n INT"
    table = new_table(spark, tmp_path, schema, primaryKey=["t", "k"], watermarkKey="n")
    with monkeypatch.context() as older:
        older.setattr("trinitymerge.stores.managed.write", as_before)
        table.upsert(frame(spark, schema, *[(k, T + k * MICRO, 0) for k in range(6)])).execute()
    table.upsert(frame(spark, schema, (1, T + MICRO, 1))).execute()
    merge = table.merge(frame(spark, "k INT, t TIMESTAMP_LTZ", (1, T + MICRO), (2, T + 2 * MICRO)))
    assert merge.whenMatched().updateExpr({"n": "target.n + 1"}).execute().rowsUpdated == 2
    expected = [(k, T + k * MICRO, {1: 2, 2: 1}.get(k, 0)) for k in range(6)]
    assertRows(table.toDF(), expected)
    assertRows(table.toDF().filter(column("t") == T + MICRO), expected[1:2])
    table.compact()
    assertRows(table.toDF(), expected)


def test_S7_the_session_decides_what_TIMESTAMP_means_when_a_table_is_created_and_never_again(spark, tmp_path):
    pacific = {"spark.sql.session.timeZone": "America/Los_Angeles"}
    ntz = {**pacific, "spark.sql.timestampType": "TIMESTAMP_NTZ"}
    with session(spark, ntz):
        without = new_table(spark, tmp_path, "k INT, t TIMESTAMP", primaryKey="k")
        zoned = new_table(spark, tmp_path, "k INT, t TIMESTAMP_LTZ, s STRUCT<a: ARRAY<TIMESTAMP_LTZ>>", primaryKey="k")
        source = frame(spark, "k INT, t TIMESTAMP_LTZ, s STRUCT<a: ARRAY<TIMESTAMP_LTZ>>", (1, T, ([T],)))
        assert zoned.upsert(source).build().preview().schema["t"].dataType == TimestampType()
        zoned.upsert(source).execute()
        zoned.merge(frame(spark, "k INT", 2)).whenNotMatched().insertExpr({"k": "source.k"}).execute()
        assert zoned.history().schema["timestamp"].dataType == TimestampType()
        assertRows(zoned.toDF(), [(1, T, ([T],)), (2, None, None)])
    assert [without.toDF().schema["t"].dataType, zoned.toDF().schema["t"].dataType] == [
        TimestampNTZType(),
        TimestampType(),
    ]
    assertRows(zoned.toDF(), [(1, T, ([T],)), (2, None, None)])


def test_S30_names_are_no_patterns(spark, tmp_path):
    with session(spark, {"spark.sql.parser.quotedRegexColumnNames": "true"}):
        rows = frame(spark, "k INT, `v.` STRING, va STRING", (1, "a", "b"))
        table = new_table(spark, tmp_path, rows.schema, primaryKey="k").alias("A")
        table.upsert(rows).execute()
        merge = table.merge(rows.alias("B"), "A.k = B.k AND A.`v.` = 'a'").whenMatched("B.`v.` = 'a'")
        assert merge.updateExpr({"`v.`": "concat(A.`v.`, B.va)"}).execute().rowsUpdated == 1
        after = (
            nullcontext() if not is_connect(spark) else session(spark, EXACT_IDENTIFIERS)
        )  # frames are analysed when used
        with after:
            assert table.toDF().columns == ["k", "v.", "va"]
            assertRows(table.toDF(), [(1, "ab", "b")])
            assertRows(resolve(rows, "k", "v."), [(1, "a", "b")])
            images = [("a", "update_preimage"), ("ab", "update_postimage")]
            assertRows(table.changes(1).select("`v.`", "_change_type"), images)
            assertRows(table.why(1).select("`v.`", "_tombstone"), [("ab", False), ("a", False)])
        assert (table.health().liveRows, table.purge([1]).rowsRemoved) == (1, 2)
        assert spark.conf.get("spark.sql.parser.quotedRegexColumnNames") == "true"


def test_S7_reserved_words_get_in_nobodys_way(spark, tmp_path):
    with session(spark, {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.enforceReservedKeywords": "true"}):
        schema = "`order` INT, `user` STRING, `end` TIMESTAMP"
        table = new_table(spark, tmp_path, schema, primaryKey="order", tombstoneKey="end")
        table.insert(spark.sql("SELECT id AS `order`, 'a' AS `user` FROM range(2)")).execute()
        table.delete(spark.sql("SELECT 1 AS `order`")).execute()
        assertRows(table.toDF(), [(0, "a", None)])
        assert [r.operation for r in table.history().collect()] == ["DELETE", "INSERT", "CREATE"]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_S36_purged_decimal_stays_away_whatever_text_the_session_makes_of_it(spark, tmp_path, ansi):
    keys = [Decimal(n) for n in ("0.000000001", "-0.000000012", "0.000000000", "-12.500000000", "1.000000000")]
    schema = "k DECIMAL(20,9), n INT"
    rows = frame(spark, schema, *[(k, 1) for k in keys])
    table = new_table(spark, tmp_path, schema, primaryKey="k")
    table.upsert(rows).execute()
    with session(spark, {"spark.sql.ansi.enabled": ansi}):
        assert table.purge(keys[:4]).rowsRemoved == 4
    with session(spark, {"spark.sql.ansi.enabled": "false" if ansi == "true" else "true"}):
        assert table.upsert(rows).execute().rowsPurged == 4
    assertRows(table.toDF(), [(keys[4], 1)])


NAME = "spark.sql.shuffle.partitions"


def test_held_settings_come_back_when_the_last_holder_leaves(spark):
    before, inside, leave = spark.conf.get(NAME), threading.Event(), threading.Event()

    def other():
        with session_conf(spark, {NAME: "7"}):
            inside.set()
            leave.wait(10)

    with session_conf(spark, {NAME: "7", "spark.sql.no.such.setting": "1"}):
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
    assert spark.conf.get(NAME) == "7"  # the other one still needs it
    leave.set()
    thread.join()
    assert spark.conf.get(NAME) == before


def test_held_settings_that_were_not_set_are_not_set_afterwards(spark):
    name = PARQUET + "writeLegacyFormat"
    assert spark.conf.get(name, None) is None
    with session_conf(spark, {name: "true"}):
        assert spark.conf.get(name) == "true"
    assert spark.conf.get(name, None) is None


def test_what_the_user_sets_meanwhile_stays(spark):
    before = spark.conf.get(NAME)
    try:
        with session_conf(spark, {NAME: "7"}):
            spark.conf.set(NAME, "5")
        assert spark.conf.get(NAME) == "5"
    finally:
        spark.conf.set(NAME, before)
