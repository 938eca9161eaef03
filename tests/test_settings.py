"""The session's settings decide neither which rows a table holds nor what is stored (S7, S8, S13, S31).

A differential: the same life of a small table under each of many settings, against the defaults. Values are chosen so that
whatever rounds, shifts, rebases, pads or re-encodes shows. `make test` runs settings together that have nothing to do with each
other; `make test-long` runs each one alone, too.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal

import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType
from tables import directory_of, frame, live_rows, new_table

from trinitymerge import TrinityTable
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.expressions import column
from trinitymerge.reader import resolve
from trinitymerge.settings import held
from trinitymerge.statistics import encoded, in_order, is_at_least, is_below
from trinitymerge.storage.entries import Batch, seal, unseal
from trinitymerge.storage.log import LOG_DIRECTORY


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
    return (bytearray(key), t, w, Decimal("0.000000012"), bytearray(text), va, ancient, bytearray(b"\xff\x00A"), "c ", gone)


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
    assert table.upsert(load).execute().path == "blind append"
    same_key = "A.`k.1` = B.`k.1` AND A.t = B.t"
    late = {"w": IN_GAP, "va": 7}
    changes = rows_of(
        spark, row(ff, w=T, va=10), row(fe, w=T, gone=True), row(b"a", **late), row(b"new", w=T), row(odd, gone=True, w=T)
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
    assert result.path == "keyed lookup"
    seen["counts"] = [(result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale)]
    seen["keyed"] = shown(table.toDF())
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
    seen["filtered"] = shown(table.toDF().filter((column("t") == T + MICRO) & column("v.").isNotNull()))
    table.compact()
    seen["compacted"] = shown(table.toDF())
    table.upsert(rows_of(spark, row(ff, **late), row(fe, **late))).execute()  # older than what compaction has kept
    seen["late"] = shown(table.toDF())
    table.restore(1)
    seen["restored"] = shown(table.toDF())
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
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
    },
    "plans": {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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

FOR_ORC = ("words, without ANSI", "times and zones")
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
    with session(spark, settings):
        found = life(spark, tmp_path, file_format)
    for stage, rows in expected.items():
        assertRows(_Collected(found[stage]), rows) if isinstance(rows[0], tuple) else None
        assert found[stage] == rows, stage


class _Collected:
    """Rows that have been collected, for `assertRows`."""

    def __init__(self, rows):
        self.rows = rows
        self.columns = [f"_{i}" for i in range(len(rows[0]) if rows else 0)]

    def collect(self):
        return self.rows


@pytest.mark.parametrize(
    ("settings", "file_format"),
    [(name, "parquet") for name in TOGETHER] + [(name, "orc") for name in FOR_ORC],
)
def test_S7_settings_of_the_session_change_no_row(spark, tmp_path, usual, settings, file_format):
    assert_as_usual(spark, tmp_path, usual, TOGETHER[settings], file_format)


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("setting", ALONE)
def test_S7_each_setting_alone_changes_no_row(spark, tmp_path, usual, setting, file_format):
    needs = {"spark.sql.ansi.enabled": "true"} if ".ansi." in setting else {}
    assert_as_usual(spark, tmp_path, usual, {**needs, setting: ALONE[setting]}, file_format)
