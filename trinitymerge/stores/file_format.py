"""Values in Parquet and ORC files: read and write options, and values that files would change (S7a)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructField, StructType, TimestampType

from trinitymerge.errors import InvalidDefinitionError, UnsupportedStorageError
from trinitymerge.fs.base import escape_glob
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import session_conf
from trinitymerge.spark.session import force_analysis, load, version_of
from trinitymerge.spark.sql_text import Sql

_MICROS_PER_DAY = 86_400_000_000


@attrs.frozen
class _Misread:
    """Values that Spark reads back from ORC files as another value.

    Attributes:
        number: the SQL function that numbers the values of the type.
        first, last: the smallest and the largest of these numbers.
        what: the values and what becomes of them, in words.
    """

    kind: type[DataType]
    number: str
    first: int
    last: int
    what: str

    def is_one(self, value: Sql) -> Sql:
        return Sql(f"coalesce({self.number}({value}) BETWEEN {self.first} AND {self.last}, false)")


_MISREAD = (
    _Misread(
        TimestampType,
        "unix_micros",
        -999_000,
        -1,
        "a timestamp in the last second before 1970 (1969-12-31 23:59:59.001 to 23:59:59.999999 UTC), which Spark would "
        "read from ORC files as one second later",
    ),
    _Misread(
        DateType,
        "unix_date",
        -141_437,
        -141_428,
        "a date from 5 to 14 October 1582, which Spark would read from ORC files as 15 October",
    ),
    _Misread(  # which hours depends on the time zone of the JVM that writes
        TimestampType,
        "unix_micros",
        -141_438 * _MICROS_PER_DAY,
        -141_426 * _MICROS_PER_DAY - 1,
        "a timestamp from 4 to 15 October 1582 (UTC), which Spark may read from ORC files as another one",
    ),
)


def refused(rows: DataFrame, file_format: str) -> DataFrame:
    """Return the rows with checks that fail for values that this file format would change."""
    if file_format != "orc":
        return rows
    columns = [_checked(field) for field in rows.schema.fields]
    return rows if columns == [E.quote(n) for n in rows.columns] else rows.selectExpr(*columns)


def _checked(field: StructField) -> str:
    name = value = E.quote(field.name)
    for misread in _MISREAD:
        found = _holds(misread, name, field.dataType, 0)
        if found != E.FALSE:
            remedy = "Change the value, or use a table of Parquet files, or a column of TIMESTAMP_NTZ."
            why = f"Column '{field.name}' holds {misread.what}. {remedy}"
            value = Sql(f"IF({found}, raise_error({E.text_literal(why)}), {value})")
    return name if value == name else f"{value} AS {name}"


def _holds(misread: _Misread, value: Sql, kind: DataType, depth: int) -> Sql:
    """Return SQL that is true if a value is or contains one that would be misread; never null."""
    if isinstance(kind, misread.kind):
        return misread.is_one(value)
    if isinstance(kind, StructType):
        return _some(_holds(misread, Sql(f"{value}.{E.quote(f.name)}"), f.dataType, depth) for f in kind.fields)
    if isinstance(kind, ArrayType):
        item = Sql(f"item{depth}")
        found = _holds(misread, item, kind.elementType, depth + 1)
        return E.FALSE if found == E.FALSE else Sql(f"coalesce(exists({value}, {item} -> {found}), false)")
    if isinstance(kind, MapType):
        keys, values = ArrayType(kind.keyType), ArrayType(kind.valueType)
        parts = {"map_keys": keys, "map_values": values}
        return _some(_holds(misread, Sql(f"{of}({value})"), part, depth) for of, part in parts.items())
    return E.FALSE


def _some(conditions: Iterable[Sql]) -> Sql:
    return E.any_of(c for c in conditions if c != E.FALSE)


_COLLATED = re.compile(r"string collate (?!UTF8_BINARY\Z)")
_FIXED_STRING = re.compile(r"(var)?char\(")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)\Z")
_ONLY_PARQUET = ("variant", "geometry", "geography")
_LARGEST_PRECISION = 38


def check_storable(definition: TableDefinition) -> None:
    for field in definition.fields:
        for why in _problems(field, definition.fileFormat):
            raise InvalidDefinitionError(f"Column '{field.name}' ({field.text}) {why}", column=field.name)


def _problems(field: Field, file_format: str) -> Iterator[str]:
    """Yield why a column cannot be stored, as the rest of a sentence, with the remedy."""
    if file_format == "orc" and "`" in field.name:
        yield "holds a backtick in its name, which Spark's ORC files lose. Rename it or use parquet."
    if field.metadata.get("__COLLATIONS"):
        yield _collated(", ".join(sorted({str(c) for c in field.metadata["__COLLATIONS"].values()})))
    yield from _problems_of_type(field.type, file_format)
    if isinstance(field.type, Mapping):
        for part, role in _parts(field.type):
            yield from _problems_inside(part, role, file_format)


def _problems_inside(kind: Any, role: str, file_format: str) -> Iterator[str]:
    yield from _problems_of_type(kind, file_format)
    if isinstance(kind, str) and _FIXED_STRING.match(kind):
        yield f"holds {kind} in {role}: Spark has no such values inside of others. Use string there."
    if role == "a map's key" and (kind == "variant" or (isinstance(kind, Mapping) and kind.get("type") == "map")):
        yield "has a map whose key is a map or variant, which Spark cannot compare. Use an atomic key."
    if isinstance(kind, Mapping):
        for part, below in _parts(kind):
            # A part of a key is compared as the key is.
            yield from _problems_inside(part, role if role == "a map's key" else below, file_format)


def _problems_of_type(kind: Any, file_format: str) -> Iterator[str]:
    if isinstance(kind, Mapping):
        fields = kind.get("fields", ()) if kind.get("type") == "struct" else None
        names = [str(f["name"]).casefold() for f in fields or ()]
        if fields is not None and not names:
            yield "is or holds a struct without fields, which no file can keep. Give it a field or leave it out."
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            yield f"has a struct with the field '{twice[0]}' twice (names are compared without case). Rename one of them."
        for f in fields or ():
            if (f.get("metadata") or {}).get("__COLLATIONS"):
                yield _collated(", ".join(sorted({str(c) for c in f["metadata"]["__COLLATIONS"].values()})))
        return
    name = str(kind)
    decimal = _DECIMAL.match(name)
    if name == "void":
        yield "can hold nothing but nulls. Give it the type its values will have."
    elif name in ("interval", "interval calendar"):
        yield (
            "is a calendar interval, which no file can keep. Use INTERVAL DAY TO SECOND or INTERVAL YEAR TO MONTH, or a "
            "string."
        )
    elif name.startswith("time("):
        yield "is a time of day, which Spark does not store by default. Use TIMESTAMP_NTZ, a string, or seconds in an INT."
    elif _COLLATED.match(name):
        yield _collated(name.removeprefix("string collate "))
    elif name.startswith(_ONLY_PARQUET) and file_format == "orc":
        yield f"holds {name.split('(')[0]}, which ORC files cannot keep. Use parquet, or store it as a string or binary."
    elif name.startswith(("geometry", "geography")) and "ANY" in name:
        yield "may hold shapes of any spatial reference system, which no file can keep. Declare one, as in GEOMETRY(4326)."
    elif decimal and not 0 <= int(decimal[2]) <= int(decimal[1]) <= _LARGEST_PRECISION:
        yield f"is a decimal that no file can keep. Use at most {_LARGEST_PRECISION} digits, from 0 to all of them decimals."


def _collated(collation: str) -> str:
    return (
        f"is collated ({collation}), and a table compares text exactly: its order of watermarks and its filters would not be "
        "those of the collation. Declare it STRING, and compare lower(column), or column COLLATE ..., where you query it."
    )


def _parts(kind: Mapping[str, Any]) -> list[tuple[Any, str]]:
    if kind.get("type") == "struct":
        return [(f["type"], "a struct") for f in kind["fields"]]
    parts = (("elementType", "an array"), ("keyType", "a map's key"), ("valueType", "a map"))
    return [(kind[name], role) for name, role in parts if name in kind]


_SOURCES = {
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
}
"""By class: which one a short name means, and by which of its interfaces Spark reads it, are settings."""

_READING = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "orc.force.positional.evolution": "false",
}
"""A table must not lose rows or mistake columns silently."""

_READING_CLUSTERED = {"parquet.filter.dictionary.enabled": "false"}
"""Pages are skipped by their smallest and largest values. To search the dictionary before that takes longer than the rest: 0.43 of
0.67 s, for times of day in 20 million rows."""

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_MICROS = {_TIMESTAMPS: "TIMESTAMP_MICROS"}
"""Spark's other types cut off digits, or cannot be filtered by."""

_ROWS_OF_A_PAGE = {"parquet.page.row.count.limit": "5000"}
"""A quarter of what Parquet takes by itself: who looks up a few keys far apart reads and decodes whole pages. Measured on 20
million rows, a merge of a hundred keys took half the time, and a full read the same; with 2,000 rows, reads were slower."""

_WRITING = {
    **_MICROS,
    **_ROWS_OF_A_PAGE,
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "maxRecordsPerFile": "0",
}

_WRITING_HELD = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""Settings without an option. Other calendars have no 10 October 1582: it would become the 15th, or an error."""

_TIMESTAMPS_ARE_AN_OPTION = (4, 3)


_UNREADABLE = (
    ("orc", '"timestamp"', {"spark.sql.timestampType": "TIMESTAMP_NTZ"}),
    (
        "parquet",
        '"timestamp_ntz"',
        {"spark.sql.parquet.inferTimestampNTZ.enabled": "false", "spark.sql.parquet.enableVectorizedReader": "false"},
    ),
)
"""Format, type and settings under which Spark 3.5 fails to read what it has written."""


def read_files(
    spark: SparkSession,
    file_format: str,
    paths: Sequence[str],
    schema: StructType | None = None,
    base_path: str | None = None,
    is_clustered: bool = False,
) -> DataFrame:
    """Return the rows of files and directories, lazily, by default all columns; ``base_path`` makes columns of directory names."""
    options = _READING | (_READING_CLUSTERED if is_clustered else {})
    options |= {} if base_path is None else {"basePath": base_path}
    text = "" if schema is None else schema.json()
    for unreadable, kind, settings in _UNREADABLE:
        if file_format == unreadable and kind in text:
            _refuse_to_fail(spark, kind, settings)
    reader = spark.read.format(_SOURCES[file_format]).options(**options)
    return load(spark, reader, schema, [escape_glob(p) for p in paths])


def is_missing(error: Exception) -> bool:
    """Return True if Spark reports by this error that a path to read does not exist."""
    return "PATH_NOT_FOUND" in str(error)


def spark_finds(spark: SparkSession, path: str) -> bool:
    """Return True if Spark finds a path; Spark may run on another machine. Nothing is read."""
    try:
        force_analysis(spark.read.format("binaryFile").options(**_READING).load(escape_glob(path)))
    except Exception as error:
        if not is_missing(error):
            raise
        return False
    return True


def _refuse_to_fail(spark: SparkSession, kind: str, settings: Mapping[str, str]) -> None:
    if any(str(spark.conf.get(name)).lower() != value.lower() for name, value in settings.items()):
        return
    if version_of(spark) < (4, 0):
        listed = " and ".join(f"{name} = {value}" for name, value in settings.items())
        raise UnsupportedStorageError(
            f"Spark {spark.version} cannot read columns of type {kind} from this table's files under {listed}. "
            "Set that differently, or use Spark 4."
        )


def write(rows: DataFrame, file_format: str, path: str) -> None:
    """Write rows into a directory; one Spark job. A value that the files would give back as another one fails the job (S7a)."""
    with _held_for(rows.sparkSession, file_format):
        refused(rows, file_format).write.format(_SOURCES[file_format]).options(**_WRITING).mode("append").save(path)


@contextmanager
def _held_for(spark: SparkSession, file_format: str) -> Iterator[None]:
    if file_format != "parquet":
        yield
        return
    more = {} if version_of(spark) >= _TIMESTAMPS_ARE_AN_OPTION else _MICROS
    with session_conf(spark, {**_WRITING_HELD, **more}):
        yield
