"""Validation of the arguments of public calls, and the DataFrames of history() and detail()."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import attrs
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.types import StructType

from trinitymerge import errors
from trinitymerge.log.model import Commit, Snapshot, current_user
from trinitymerge.maintenance.alter import default_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import dotted, never_null, values_inside, with_never_null
from trinitymerge.schema.properties import check_properties
from trinitymerge.schema.types import contains
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.ddl import fields_of
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.session import can_join, is_connect, is_dataframe
from trinitymerge.stores.base import CatalogStore, TableStore, require_files
from trinitymerge.stores.file_format import read_files

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


_INT, _LONG, _STRING, _BOOLEAN = types.IntegerType(), types.LongType(), types.StringType(), types.BooleanType()
_STRINGS, _MAP = types.ArrayType(_STRING), types.MapType(_STRING, _STRING)
_HISTORY: dict[str, tuple[types.DataType, Callable[[Commit], Any]]] = {
    "version": (_LONG, lambda c: c.version),
    "timestamp": (_LONG, lambda c: c.timestamp_ms),
    "operation": (_STRING, lambda c: c.operation),
    "parameters": (_STRING, lambda c: json.dumps(dict(c.parameters))),
    "metrics": (_MAP, lambda c: {k: str(v) for k, v in c.metrics.items() if v is not None}),
    "user": (_STRING, lambda c: c.user),
    "durationMs": (_LONG, lambda c: c.duration_ms),
    "batchesAdded": (_INT, lambda c: len(c.added)),
    "batchesRemoved": (_INT, lambda c: len(c.removed)),
    "rowsAdded": (_LONG, lambda c: sum(b.rows for b in c.added)),
    "bytesAdded": (_LONG, lambda c: sum(b.bytes for b in c.added)),
}


# Definitions ----------------------------------------------------------------------------------------------------------


def definition_of(
    spark: SparkSession, schema: str | StructType, *arguments: Any, **layout: str | Iterable[str] | None
) -> TableDefinition:
    """Return the definition for the arguments of ``TrinityTable.create`` (S1-S7, S46)."""
    fields = fields_of(schema)
    if not isinstance(schema, str):  # of another table, whose key columns may have defaults
        names = [n for given in arguments[:3] for n in ([given] if isinstance(given, str) else given or ())]
        keys = {str(n).casefold() for n in names}
        fields = [attrs.evolve(f, default=None) if f.name.casefold() in keys else f for f in fields]
    definition = TableDefinition.of(fields, *arguments, **cast(Any, layout))
    check_properties(definition.properties)
    for field in definition.fields:
        if field.default is not None:
            default_of(spark, field, field.default)
    return definition


def declaring_nothing(schema: StructType) -> StructType:
    """Return a nullable schema: Spark infers NOT NULL where no user has declared it (S45)."""
    return StructType.fromJson(with_never_null(schema.jsonValue(), ()))


@with_session_settings
def adopted(store: CatalogStore, *keys: str | Iterable[str] | None) -> None:
    """Register an existing catalog table, unless it is registered (S16), by the keys of the user, or of its properties."""
    if not store.exists():
        properties = store.keys_from_properties() if keys[0] is None else {}
        if keys[0] is None and not properties:
            store.snapshot()
        given = keys if keys[0] is not None else tuple(properties.values())
        definition = TableDefinition.of(store.fields(), *cast(Any, given))
        try:
            store.adopt(definition, current_user())
        except errors.ConcurrentCommitError:
            if not store.exists():  # another writer has changed the table, and not registered it
                raise
        else:
            return
    found = store.snapshot().definition
    if any(key is not None for key in keys):
        other = difference(found, TableDefinition.of(found.fields, *cast(Any, (*keys, found.fileFormat))))
        if other:
            raise errors.TableExistsError(f"{store.path} has other keys: {other}. Leave the keys out.", path=store.path)


def difference(found: TableDefinition, wanted: TableDefinition) -> str:
    """Describe the first difference between a table and a wanted definition; empty if there is none.

    Properties, the layout, the comment, added columns and wider types make no difference.
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
        is_wider = any(contains(kind, field.type) for kind in kinds) or _is_longer(theirs, field)
        if not is_wider or theirs.nullable < field.nullable:
            not_null = "" if theirs.nullable else " NOT NULL"
            return f"its column '{field.name}' is {theirs.text}{not_null}, not {field.text}"
    return ""


def _is_longer(found: Field, wanted: Field) -> bool:
    """Return True if a text column has been widened: of that, no trace is left."""
    own, asked = E.declared_length(found), E.declared_length(wanted)
    if asked is None or asked[0] != "varchar":
        return False
    return found.type == "string" if own is None else own[0] == "varchar" and own[1] >= asked[1]


def milliseconds(spark: SparkSession, moment: str | datetime.date | datetime.datetime) -> int:
    """Return a point in time in milliseconds since the epoch, rounded down (S40).

    Spark parses times without a time zone in the session's, like ``TIMESTAMP`` literals, and without a job.
    """
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
    text = moment.isoformat() if isinstance(moment, datetime.date) else moment
    micros = None
    if isinstance(text, str):
        # VALUES needs no job. Without the subquery, Spark would accept words such as 'yesterday'.
        query = f"SELECT unix_micros(try_cast(t AS TIMESTAMP_LTZ)) FROM (SELECT {E.text_literal(text)} AS t FROM VALUES (0))"
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
    store: TableStore, versionAsOf: int | None, timestampAsOf: str | datetime.date | datetime.datetime | None
) -> int | None:
    """Return the readable past version to open; None for the newest (S40)."""
    if versionAsOf is not None and timestampAsOf is not None:
        raise ValueError("Give versionAsOf or timestampAsOf, not both.")
    if timestampAsOf is not None:
        versionAsOf = store.version_at(milliseconds(store.spark, timestampAsOf))
    if versionAsOf is not None:
        require_files(store, store.snapshot_at(versionAsOf))
    return versionAsOf


def history_frame(spark: SparkSession, commits: Iterable[Commit]) -> DataFrame:
    return _frame(spark, {n: kind for n, (kind, _) in _HISTORY.items()}, map(_history_row, commits), "timestamp")


def _history_row(commit: Commit) -> tuple[Any, ...]:
    return tuple(value(commit) for _, value in _HISTORY.values())


def detail_frame(spark: SparkSession, path: str, snapshot: Snapshot) -> DataFrame:
    now, batches = snapshot.definition, snapshot.batches
    found: dict[str, tuple[types.DataType, Any]] = {
        "format": (_STRING, now.fileFormat),
        "location": (_STRING, path),
        "description": (_STRING, now.comment),
        "version": (_LONG, snapshot.version),
        "lastModified": (_LONG, snapshot.timestamp_ms),
        "primaryKey": (_STRINGS, list(now.primaryKey)),
        "watermarkKey": (_STRINGS, list(now.watermarkKey)),
        "tombstoneKey": (_STRING, now.tombstoneKey),
        "clusterBy": (_STRINGS, list(now.clusterBy)),
        "history": (_BOOLEAN, now.history),
        "checks": (_MAP, {check.name: check.condition for check in now.checks}),
        "properties": (_MAP, dict(now.properties)),
        "numBatches": (_LONG, len(batches)),
        "numFiles": (_LONG, sum(b.files for b in batches)),
        "storedRows": (_LONG, sum(b.rows for b in batches)),
        "sizeInBytes": (_LONG, sum(b.bytes for b in batches)),
    }
    row = tuple(value for _, value in found.values())
    return _frame(spark, {n: kind for n, (kind, _) in found.items()}, [row], "lastModified")


def _frame(
    spark: SparkSession, columns: Mapping[str, types.DataType], rows: Iterable[tuple[Any, ...]], time: str
) -> DataFrame:
    """Return rows whose time is a number at first, because naive datetimes depend on this machine's time zone."""
    schema = StructType([types.StructField(n, kind) for n, kind in columns.items()])  # DDL text depends on the session
    shown = {time: f"timestamp_millis({E.quote(time)}) AS {E.quote(time)}"}
    return spark.createDataFrame(list(rows), schema).selectExpr(*[shown.get(n, E.quote(n)) for n in columns])


def shown(path: str, snapshot_of: Callable[[], Snapshot], is_past: bool) -> str:
    """Return a table in one line; never fails, so that a notebook can show a missing table."""
    try:
        snapshot = snapshot_of()
    except (errors.TrinityMergeError, OSError) as error:
        return f"TrinityTable({path}: {type(error).__name__})"
    version = f"version {snapshot.version}{', read only' if is_past else ''}"
    return f"TrinityTable({'; '.join([path, version, *keys_in_words(snapshot.definition)])})"


def keys_in_words(keys: TableDefinition) -> list[str]:
    return [f"{role} {', '.join(names)}" for role, names in keys.roles.items()]


# Sources --------------------------------------------------------------------------------------------------------------


def parquet_files(spark: SparkSession, path: str) -> DataFrame:
    try:
        rows = read_files(spark, "parquet", [path])
        rows.schema  # noqa: B018 - Spark Connect reads the schema now
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise errors.StorageError(f"No readable Parquet files at {path}: {clean_message(error)}", path=path) from None
    return rows


def check_source(spark: SparkSession, source: Any, path: str) -> DataFrame:
    """Return the source of a merge if it is a DataFrame that the session can use."""
    if not is_dataframe(source):
        # A call for events or extracts, where the live rows may not be the intended source.
        hint = " Give its live rows: table.toDF()." if hasattr(type(source), "toDF") else errors.how_to_convert(source)
        raise errors.InvalidMergeError(
            f"The source of a merge must be a DataFrame or a TrinityTable, got {errors.kind_of(source)}.{hint}"
        )
    theirs, ours = is_connect(source), is_connect(spark)
    if theirs != ours:
        kinds = ("a classic Spark session", "Spark Connect")
        raise errors.InvalidMergeError(
            f"The source is a DataFrame of {kinds[theirs]} ({errors.kind_of(source)}), and the table was opened in {kinds[ours]}. "
            "Open the table in the session of the source: TrinityTable.forPath(source.sparkSession, path)."
        )
    if not can_join(source.sparkSession, spark):
        raise errors.InvalidMergeError(
            f"The source belongs to another Spark Connect session than the table ({path}), and a server isolates its sessions. "
            "Open the table in the session of the source: TrinityTable.forPath(source.sparkSession, path)."
        )
    return source


def check_feed(arguments: Iterable[Any]) -> None:
    if any(given is not None and given is not False for given in arguments):
        raise errors.InvalidMergeError(
            "applyChanges() of a feed takes columns and exceptColumns only: the feed knows sequence, deletes, truncates, unchanged "
            "columns and old keys. To change them, take feed.changes(table), which is a DataFrame."
        )
