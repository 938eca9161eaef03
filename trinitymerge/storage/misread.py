"""Values that files of a format give back as others: refused while they are written (S7a).

Owns: which those are. Spark's ORC files hold a timestamp as seconds and the rest of one; of the last second before 1970 the sign
is lost, and 1969-12-31 23:59:59.999 UTC would be read as 1970-01-01 00:00:00.999.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from trinitymerge.expressions import FALSE, any_of, quote, text_literal
from trinitymerge.sqltext import Sql

_MISREAD_MICROS = (-999_000, -1)
"""Microseconds since 1970 that come back as a second later, the first and the last of them."""


def refused(rows: DataFrame, file_format: str) -> DataFrame:
    """The same rows, whose evaluation fails at a value that files of this format would give back as another."""
    if file_format != "orc":
        return rows
    items = [(field.name, _is_misread(Sql(quote(field.name)), field.dataType, 0)) for field in rows.schema.fields]
    if all(found == FALSE for _, found in items):
        return rows
    return rows.selectExpr(*[_checked(name, found) for name, found in items])


def _checked(name: str, is_misread: Sql) -> str:
    if is_misread == FALSE:
        return quote(name)
    why = (
        f"Column '{name}' holds a timestamp in the last second before 1970 (1969-12-31 23:59:59.001 to 23:59:59.999999 UTC), which "
        "Spark would read from ORC files as one second later. Change the value, or use a table of Parquet "
        "files, or a column of TIMESTAMP_NTZ."
    )
    return f"IF({is_misread}, raise_error({text_literal(why)}), {quote(name)}) AS {quote(name)}"


def _is_misread(value: Sql, kind: DataType, depth: int) -> Sql:
    """True if a value is or holds such a timestamp, as SQL that is never null."""
    if isinstance(kind, TimestampType):
        first, last = _MISREAD_MICROS
        return Sql(f"coalesce(unix_micros({value}) BETWEEN {first} AND {last}, false)")
    if isinstance(kind, StructType):
        return _some(_is_misread(Sql(f"{value}.{quote(f.name)}"), f.dataType, depth) for f in kind.fields)
    if isinstance(kind, ArrayType):
        item = Sql(f"item{depth}")
        found = _is_misread(item, kind.elementType, depth + 1)
        return FALSE if found == FALSE else Sql(f"coalesce(exists({value}, {item} -> {found}), false)")
    if isinstance(kind, MapType):
        keys, values = ArrayType(kind.keyType), ArrayType(kind.valueType)
        parts = {"map_keys": keys, "map_values": values}
        return _some(_is_misread(Sql(f"{of}({value})"), part, depth) for of, part in parts.items())
    return FALSE


def _some(conditions: Iterable[Sql]) -> Sql:
    return any_of(c for c in conditions if c != FALSE)
