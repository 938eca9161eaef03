"""What the calls that create, open and show a table make of their arguments.

Owns: a definition from what users write, points in time from text and datetimes, the rows of ``history()``, and what can be
the source of a merge. No table is touched here.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.types import StructType

from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import InvalidDefinitionError, InvalidMergeError, TrinityMergeError, how_to_convert, kind_of
from trinitymerge.expressions import quote, text_literal
from trinitymerge.properties import check_properties
from trinitymerge.sessions import is_connect, is_dataframe, share_frames
from trinitymerge.spark_errors import is_sparks, spark_text
from trinitymerge.storage.entries import Commit, Snapshot

# PySpark 3.5 has the parser of DDL text under its private name only.
_parse_ddl = getattr(StructType, "fromDDL", None) or types._parse_datatype_string

_COLLATED_CHAR = re.compile(r"char\s*\(\s*\d+\s*\)\s+collate\s+(?!utf8_binary\b)\w+", re.IGNORECASE)
"""Spark's parser drops these collations without a word."""

_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)

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


# Definitions ----------------------------------------------------------------------------------------------------------


def definition_of(schema: str | StructType, *arguments: Any) -> TableDefinition:
    """The definition that the arguments of ``TrinityTable.create`` describe (S1-S7).

    Raises:
        InvalidDefinitionError: keys, schema or properties cannot work together.
    """
    if isinstance(schema, str):
        collated = _COLLATED_CHAR.search(_QUOTED.sub("", schema))
        if collated:
            raise InvalidDefinitionError(
                f"The schema declares a collated column ({collated.group()}), and a table compares text exactly. Leave the "
                "collation out, and compare lower(column), or column COLLATE ..., where you query it."
            )
        try:
            schema = cast(StructType, _parse_ddl(schema))
        except AssertionError:  # PySpark 3.5, when the JVM names a type it has no class for
            raise InvalidDefinitionError(
                "The schema cannot be parsed: it has a type that this PySpark does not know, such as a calendar INTERVAL. Use "
                "INTERVAL DAY TO SECOND or INTERVAL YEAR TO MONTH, or a string."
            ) from None
        except Exception as error:
            if not is_sparks(error):
                raise
            raise InvalidDefinitionError(f"The schema cannot be parsed: {spark_text(error)}") from None
    if not isinstance(schema, StructType):
        raise InvalidDefinitionError(f"schema takes DDL text or a StructType, got {type(schema).__name__}.")
    definition = TableDefinition.of([Field.from_json(f) for f in schema.jsonValue()["fields"]], *arguments)
    check_properties(definition.properties)
    return definition


def difference(found: TableDefinition, wanted: TableDefinition) -> str:
    """The first thing in which two definitions differ, in words."""
    for name in (
        "primaryKey",
        "watermarkKey",
        "tombstoneKey",
        "tombstoneStringValue",
        "fileFormat",
        "properties",
        "comment",
        "history",
    ):
        if getattr(found, name) != getattr(wanted, name):
            return f"its {name} is {getattr(found, name)!r}, not {getattr(wanted, name)!r}"
    ours, theirs = [f"{f.name} {f.text}" for f in found.fields], [f"{f.name} {f.text}" for f in wanted.fields]
    return f"its columns are {', '.join(ours)}, not {', '.join(theirs)}"


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


# History --------------------------------------------------------------------------------------------------------------


def history_frame(spark: SparkSession, commits: Iterable[Commit]) -> DataFrame:
    """One row per commit. Times travel as numbers: as naive datetimes they would be what this machine's zone makes of them."""
    rows = spark.createDataFrame([_history_row(c) for c in commits], _HISTORY)
    in_time = "timestamp_millis(`timestamp`) AS `timestamp`"
    return rows.selectExpr(*[in_time if n == "timestamp" else quote(n) for n in _HISTORY.names])


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


# Showing --------------------------------------------------------------------------------------------------------------


def shown(path: str, snapshot_of: Callable[[], Snapshot], is_past: bool) -> str:
    """A table in one line; a notebook that shows it must not fail because it is gone."""
    try:
        snapshot = snapshot_of()
    except (TrinityMergeError, OSError) as error:
        return f"TrinityTable({path}: {type(error).__name__})"
    keys = snapshot.definition
    roles = {"primary key": keys.primaryKey, "watermark": keys.watermarkKey, "tombstone": (keys.tombstoneKey or "",)}
    named = [f"{role} {', '.join(names)}" for role, names in roles.items() if any(names)]
    version = f"version {snapshot.version}{', read only' if is_past else ''}"
    return f"TrinityTable({'; '.join([path, version, *named])})"


# Sources --------------------------------------------------------------------------------------------------------------


def check_source(spark: SparkSession, source: Any, path: str) -> DataFrame:
    """The source of a merge, once it is known to be a DataFrame that this session can use.

    Raises:
        InvalidMergeError: naming what it is, and how to make a DataFrame of it.
    """
    if not is_dataframe(source):
        raise InvalidMergeError(
            f"The source of a merge must be a DataFrame or a TrinityTable, got {kind_of(source)}.{how_to_convert(source)}"
        )
    theirs, ours = is_connect(source), is_connect(spark)
    if theirs != ours:
        kinds = ("a classic Spark session", "Spark Connect")
        raise InvalidMergeError(
            f"The source is a DataFrame of {kinds[theirs]} ({kind_of(source)}), and the table was opened in {kinds[ours]}. "
            "Make the source in the session the table was opened in, or open the table in the source's: "
            "TrinityTable.forPath(source.sparkSession, path)."
        )
    if not share_frames(source.sparkSession, spark):
        raise InvalidMergeError(
            f"The source belongs to another Spark Connect session than the table ({path}), and a server keeps sessions "
            "apart. Open the table in the source's: TrinityTable.forPath(source.sparkSession, path)."
        )
    return source
