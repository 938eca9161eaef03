"""Arguments of the calls that create, open and show tables, checked."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import attrs
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.types import StructType

from trinitymerge.errors import (
    ConcurrentCommitError,
    InvalidMergeError,
    StorageError,
    TableExistsError,
    TrinityMergeError,
    how_to_convert,
    kind_of,
)
from trinitymerge.fs.base import escape_glob
from trinitymerge.log.model import Commit, Snapshot, current_user
from trinitymerge.maintenance.alter import default_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.nullability import dotted, never_null, values_inside, with_never_null
from trinitymerge.schema.properties import check_properties
from trinitymerge.schema.types import contains
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.ddl import fields_of
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.expressions import quote, text_literal
from trinitymerge.spark.session import can_join, is_connect, is_dataframe
from trinitymerge.stores.base import CatalogStore, TableStore, require_files
from trinitymerge.stores.file_format import reader_of

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

# Not as DDL: the session decides what TIMESTAMP means there, and whether "user" is a word of its own.
_HISTORY = (
    StructType()
    .add("version", types.LongType())
    .add("timestamp", types.LongType())
    .add("operation", types.StringType())
    .add("parameters", types.StringType())
    .add("metrics", types.MapType(types.StringType(), types.StringType()))
    .add("user", types.StringType())
    .add("durationMs", types.LongType())
    .add("batchesAdded", types.IntegerType())
    .add("batchesRemoved", types.IntegerType())
    .add("rowsAdded", types.LongType())
    .add("bytesAdded", types.LongType())
)


_DETAIL = (
    StructType()
    .add("format", types.StringType())
    .add("location", types.StringType())
    .add("description", types.StringType())
    .add("version", types.LongType())
    .add("lastModified", types.LongType())
    .add("primaryKey", types.ArrayType(types.StringType()))
    .add("watermarkKey", types.ArrayType(types.StringType()))
    .add("tombstoneKey", types.StringType())
    .add("history", types.BooleanType())
    .add("checks", types.MapType(types.StringType(), types.StringType()))
    .add("properties", types.MapType(types.StringType(), types.StringType()))
    .add("numBatches", types.LongType())
    .add("numFiles", types.LongType())
    .add("storedRows", types.LongType())
    .add("sizeInBytes", types.LongType())
)
_DESCRIBED = (
    StructType()
    .add("col_name", types.StringType())
    .add("data_type", types.StringType())
    .add("comment", types.StringType())
)


# Definitions ----------------------------------------------------------------------------------------------------------


def definition_of(spark: SparkSession, schema: str | StructType, *arguments: Any) -> TableDefinition:
    """The definition that the arguments of ``TrinityTable.create`` describe (S1-S7, S46).

    Raises:
        InvalidDefinitionError: keys, schema, defaults or properties cannot work together.
    """
    fields = fields_of(schema)
    if not isinstance(schema, str):  # of another table: there keys may have had one
        keys = {
            str(n).casefold() for names in arguments[:3] for n in ([names] if isinstance(names, str) else names or ())
        }
        fields = [attrs.evolve(f, default=None) if f.name.casefold() in keys else f for f in fields]
    definition = TableDefinition.of(fields, *arguments)
    check_properties(definition.properties)
    for field in definition.fields:
        if field.default is not None:
            default_of(spark, field, field.default)
    return definition


def declaring_nothing(schema: StructType) -> StructType:
    """The schema of rows with nulls allowed everywhere: where Spark finds that none can be, nobody has declared it (S45)."""
    return StructType.fromJson(with_never_null(schema.jsonValue(), ()))


@with_session_settings
def adopted(store: CatalogStore, *keys: str | Iterable[str] | None) -> None:
    """Makes a table of another format one of this library's, unless it is (S16).

    Args:
        store: of the table.
        *keys: primary key, watermark, tombstone and its value, as the user names them.

    Raises:
        TableNotFoundError: it is none, and neither the user nor the table's properties name keys.
        TableExistsError: it is one, with other keys.
        InvalidDefinitionError, NullKeyError, ConcurrentCommitError: it cannot become one.
    """
    if not store.exists():
        told = store.keys_from_properties()
        if keys[0] is None and not told:
            store.snapshot()
        given = keys if keys[0] is not None else tuple(told.values())
        definition = TableDefinition.of(store.fields(), *cast(Any, given))
        with contextlib.suppress(ConcurrentCommitError):  # another writer has registered the table
            store.adopt(definition, current_user())
            return
    found = store.snapshot().definition
    if any(key is not None for key in keys):
        other = difference(found, TableDefinition.of(found.fields, *cast(Any, (*keys, found.fileFormat))))
        if other:
            raise TableExistsError(
                f"{store.path} has other keys: {other}. Leave them out: the table knows its own.", path=store.path
            )


def difference(found: TableDefinition, wanted: TableDefinition) -> str:
    """In what a table is not the one that is wanted, in words; empty if it is, and may have more columns besides.

    Properties and the comment say how a table is looked after, not what it is; columns may have come since, or become wider.
    """
    for name in ("primaryKey", "watermarkKey", "tombstoneKey", "tombstoneStringValue", "fileFormat", "history"):
        if getattr(found, name) != getattr(wanted, name):
            return f"its {name} is {getattr(found, name)!r}, not {getattr(wanted, name)!r}"
    own = {f.name: f for f in found.fields}
    for field in wanted.fields:
        theirs = own.get(field.name)
        if theirs is None:
            return f"it lacks column '{field.name}'; it has {', '.join(map(repr, own))}"
        kinds = (theirs.type, *(e.type for e in theirs.previous))
        allowed = dict(values_inside(field.type))
        stricter = [dotted(field, p) for p in never_null(theirs.type) if allowed.get(p, False)]
        if stricter:
            return f"its column {stricter[0]} must not be null"
        if not any(contains(kind, field.type) for kind in kinds) or theirs.nullable < field.nullable:
            not_null = "" if theirs.nullable else " NOT NULL"
            return f"its column '{field.name}' is {theirs.text}{not_null}, not {field.text}"
    return ""


# Time -----------------------------------------------------------------------------------------------------------------


def milliseconds(spark: SparkSession, moment: str | datetime.date | datetime.datetime) -> int:
    """A point in time as the log counts it (S40): milliseconds since the epoch, rounded down.

    Spark itself reads what has no time zone of its own, so that the session's holds, as in ``history()`` and in
    ``TIMESTAMP`` literals. Local rows are computed while the query is planned: no job runs.

    Raises:
        ValueError: it is no point in time.
    """
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
    text = moment.isoformat() if isinstance(moment, datetime.date) else moment
    micros = None
    if isinstance(text, str):
        # VALUES spares a job. The subquery keeps Spark from taking words for moments, as it takes 'yesterday' in a literal.
        query = (
            f"SELECT unix_micros(try_cast(t AS TIMESTAMP_LTZ)) FROM (SELECT {text_literal(text)} AS t FROM VALUES (0))"
        )
        micros = spark.sql(query).collect()[0][0]
    if micros is None:
        with contextlib.suppress(ValueError, TypeError):  # ISO's shorter forms, such as 2024-05-01T13:30Z
            iso = datetime.datetime.fromisoformat(cast(str, moment))
            if iso.tzinfo is not None:
                return milliseconds(spark, iso)
        raise ValueError(
            f"timestampAsOf takes a datetime, or text that Spark reads as a timestamp, such as '2024-05-01', "
            f"'2024-05-01 13:30:00' or '2024-05-01T13:30:00+02:00', got {moment!r}."
        )
    return int(micros) // 1000


def pinned(
    store: TableStore,
    versionAsOf: int | None,
    timestampAsOf: str | datetime.date | datetime.datetime | None,
) -> int | None:
    """The past version that a table is opened at, which can be read; None for the newest (S40).

    Raises:
        ValueError: both are given, or ``timestampAsOf`` is no point in time.
        TableNotFoundError: there is no such version, or its files are gone.
    """
    if versionAsOf is not None and timestampAsOf is not None:
        raise ValueError("Give versionAsOf or timestampAsOf, not both.")
    if timestampAsOf is not None:
        moment = milliseconds(store.spark, timestampAsOf)
        versionAsOf = store.version_at(moment)
    if versionAsOf is not None:
        require_files(store, store.snapshot_at(versionAsOf))
    return versionAsOf


# History --------------------------------------------------------------------------------------------------------------


def history_frame(spark: SparkSession, commits: Iterable[Commit]) -> DataFrame:
    """One row per commit. Times travel as numbers: as naive datetimes they would be what this machine's zone makes of them."""
    return _with_time(spark.createDataFrame([_history_row(c) for c in commits], _HISTORY), "timestamp")


def _with_time(rows: DataFrame, name: str) -> DataFrame:
    """Rows in which a column with milliseconds since the epoch has become a timestamp."""
    return rows.selectExpr(
        *[f"timestamp_millis({quote(n)}) AS {quote(n)}" if n == name else quote(n) for n in rows.columns]
    )


def _history_row(commit: Commit) -> tuple[Any, ...]:
    return (
        commit.version,
        commit.timestamp_ms,
        commit.operation,
        json.dumps(dict(commit.parameters)),
        {k: str(v) for k, v in commit.metrics.items() if v is not None},
        commit.user,
        commit.duration_ms,
        len(commit.added),
        len(commit.removed),
        sum(b.rows for b in commit.added),
        sum(b.bytes for b in commit.added),
    )


# Describing -----------------------------------------------------------------------------------------------------------


def detail_frame(spark: SparkSession, path: str, snapshot: Snapshot) -> DataFrame:
    """One row: what a table is, and how large, from its log."""
    now, batches = snapshot.definition, snapshot.batches
    row = (
        now.fileFormat,
        path,
        now.comment,
        snapshot.version,
        snapshot.timestamp_ms,
        list(now.primaryKey),
        list(now.watermarkKey),
        now.tombstoneKey,
        now.history,
        {check.name: check.condition for check in now.checks},
        dict(now.properties),
        len(batches),
        *(sum(getattr(b, n) for b in batches) for n in ("files", "rows", "bytes")),
    )
    return _with_time(spark.createDataFrame([row], _DETAIL), "lastModified")


def described(spark: SparkSession, path: str, snapshot: Snapshot, extended: bool) -> DataFrame:
    """The columns, as ``DESCRIBE`` of Spark shows them; extended, also what else a table is."""
    now = snapshot.definition
    rows = [(f.name, f.text, f.comment) for f in now.fields]
    if extended:
        fields = [(f"{f.name}: default", f.default, "") for f in now.fields if f.default]
        required = ", ".join(f.name for f in now.fields if not f.nullable)
        facts = [("location", path), ("version", f"{snapshot.version}"), ("not null", required), *now.facts()]
        rows += [("", "", ""), ("# Detailed Table Information", "", ""), *((n, t, "") for n, t in facts), *fields]
    return spark.createDataFrame(rows, _DESCRIBED)


# Showing --------------------------------------------------------------------------------------------------------------


def shown(path: str, snapshot_of: Callable[[], Snapshot], is_past: bool) -> str:
    """A table in one line; a notebook that shows it must not fail because it is gone."""
    try:
        snapshot = snapshot_of()
    except (TrinityMergeError, OSError) as error:
        return f"TrinityTable({path}: {type(error).__name__})"
    version = f"version {snapshot.version}{', read only' if is_past else ''}"
    return f"TrinityTable({'; '.join([path, version, *keys_in_words(snapshot.definition)])})"


def keys_in_words(keys: TableDefinition) -> list[str]:
    """The columns that have a role, by role."""
    return [f"{role} {', '.join(names)}" for role, names in keys.roles.items()]


# Sources --------------------------------------------------------------------------------------------------------------


def parquet_files(spark: SparkSession, path: str) -> DataFrame:
    """The rows of a directory of Parquet files, by the columns of the files.

    Raises:
        StorageError: there are none, or they cannot be read.
    """
    try:
        rows = reader_of(spark, "parquet").load(escape_glob(path))
        rows.schema  # noqa: B018 - Spark Connect looks at the files now
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise StorageError(f"There are no Parquet files to read at {path}: {clean_message(error)}", path=path) from None
    return rows


def check_source(spark: SparkSession, source: Any, path: str) -> DataFrame:
    """The source of a merge, once it is known to be a DataFrame that this session can use.

    Raises:
        InvalidMergeError: naming what it is, and how to make a DataFrame of it.
    """
    if not is_dataframe(source):
        # One of the calls that take no tables: of events, or of an extract, the live rows need not be what is meant.
        hint = " Give its live rows: table.toDF()." if hasattr(type(source), "toDF") else how_to_convert(source)
        raise InvalidMergeError(
            f"The source of a merge must be a DataFrame or a TrinityTable, got {kind_of(source)}.{hint}"
        )
    theirs, ours = is_connect(source), is_connect(spark)
    if theirs != ours:
        kinds = ("a classic Spark session", "Spark Connect")
        raise InvalidMergeError(
            f"The source is a DataFrame of {kinds[theirs]} ({kind_of(source)}), and the table was opened in {kinds[ours]}. "
            "Make the source in the session the table was opened in, or open the table in the source's: "
            "TrinityTable.forPath(source.sparkSession, path)."
        )
    if not can_join(source.sparkSession, spark):
        raise InvalidMergeError(
            f"The source belongs to another Spark Connect session than the table ({path}), and a server keeps sessions "
            "apart. Open the table in the source's: TrinityTable.forPath(source.sparkSession, path)."
        )
    return source
