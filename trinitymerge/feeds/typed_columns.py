"""Feeds whose rows have typed columns: each value as a text that a column of its type reads back exactly."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, types as T

from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql


def texts_of(frame: DataFrame, columns: Iterable[str]) -> Sql:
    """Return the texts of columns as a MAP<STRING, STRING> by name, for ``wire.WIRE``. Nested values are JSON."""
    kinds = {f.name: f.dataType for f in frame.schema.fields}
    items = [f"{E.text_literal(name)}, {_text(E.quote(name), kinds[name])}" for name in columns]
    return Sql(f"map({', '.join(items)})")


def types_of(frame: DataFrame, columns: Iterable[str]) -> Sql:
    """Return the SQL types of columns as a MAP<STRING, STRING> by name, for ``wire.WIRE``."""
    kinds = {f.name: E.sql_type(f.dataType) for f in frame.schema.fields}
    items = [f"{E.text_literal(name)}, {E.text_literal(kinds[name])}" for name in columns]
    return Sql(f"map({', '.join(items)})")


def _text(value: Sql, kind: T.DataType) -> Sql:
    if isinstance(kind, T.BinaryType):
        return Sql(f"translate(base64({value}), '\r\n', '')")  # Spark 4 breaks it into lines
    if isinstance(kind, T.TimestampType):
        return Sql(f"date_format({value}, {E.ZONED})")
    if isinstance(kind, (T.ArrayType, T.MapType, T.StructType)):
        return Sql(f"to_json({value}, {E.ALL_AS_JSON})")
    if kind.typeName() == "variant":
        return Sql(f"to_json({value})")
    return Sql(f"CAST({value} AS STRING)")
