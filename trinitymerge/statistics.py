"""Watermarks as batch statistics keep them: how they are gathered, and how they compare (S3, S6).

Owns: the JSON form of watermark values in the log, the aggregates that gather it, the order of such values in Python,
and comparing rows with one in SQL. Knows nothing of how rows come about.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import any_of, count_where, is_older, physical_type, quote, sql_type, text_literal

Watermark = tuple[Any, ...]
"""One value per watermark column, in the form :func:`encoded` gives."""


def encoded(text: str, kind: DataType) -> str | None:
    """A watermark value as JSON can hold it and Python can order it as Spark does; None for types without such a form.

    Args:
        text: the value as SQL.
        kind: its type.
    """
    if isinstance(kind, IntegralType):
        return f"CAST({text} AS BIGINT)"
    if isinstance(kind, BooleanType):
        return f"CAST({text} AS INT)"
    if isinstance(kind, DateType):
        return f"unix_date({text})"
    if isinstance(kind, TimestampType):
        return f"unix_micros({text})"
    if isinstance(kind, TimestampNTZType):
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {text})"
    if isinstance(kind, DecimalType):
        return f"CAST({text} AS STRING)"
    if isinstance(kind, BinaryType):
        return f"hex({text})"
    return text if isinstance(kind, StringType) else None


def decoded(value: Any, kind: DataType) -> str | None:
    """An encoded value as SQL of its own type, folded to a literal that files can be filtered by.

    None for null, and for types that are not worth it.
    """
    if value is None:
        return None
    if isinstance(kind, IntegralType):
        return f"CAST({int(value)}L AS {sql_type(kind)})"
    if isinstance(kind, DateType):
        return f"date_from_unix_date({int(value)})"
    if isinstance(kind, TimestampType):
        return f"timestamp_micros({int(value)}L)"
    if isinstance(kind, DecimalType):
        return f"CAST({text_literal(str(value))} AS {sql_type(kind)})"
    return text_literal(value) if isinstance(kind, StringType) else None


def _kinds(definition: TableDefinition) -> list[DataType]:
    return [physical_type(definition.field(n)) for n in definition.watermarkKey]


def watermark_metrics(definition: TableDefinition, where: str, prefix: str = "watermark") -> dict[str, str]:
    """Aggregates for the smallest and largest declared watermark of some rows, and for nulls among them.

    Args:
        definition: of the table.
        where: SQL that says which rows.
        prefix: begins the names of the metrics.
    """
    names = definition.watermarkKey
    if not names:
        return {}
    parts = ", ".join(f"'w{i}', {quote(n)}" for i, n in enumerate(names))
    row = f"CASE WHEN {where} THEN named_struct({parts}) END"
    nulls = any_of(f"{quote(n)} IS NULL" for n in names)
    metrics = {f"{prefix}_null": count_where(f"{where} AND ({nulls})")}
    for i, kind in enumerate(_kinds(definition)):
        for which in ("min", "max"):
            value = encoded(f"{which}({row}).w{i}", kind)
            if value is not None:
                metrics[f"{prefix}_{which}_{i}"] = value
    return metrics


def watermark_of(
    values: Mapping[str, Any], which: str, definition: TableDefinition, prefix: str = "watermark"
) -> Watermark | None:
    """The smallest (``min``) or largest (``max``) watermark among gathered metrics; None when unknown."""
    names = [f"{prefix}_{which}_{i}" for i in range(len(definition.watermarkKey))]
    return tuple(values[n] for n in names) if names and all(n in values for n in names) else None


def in_order(watermark: Watermark, definition: TableDefinition) -> tuple[tuple[bool, Any], ...]:
    """A watermark as Python can compare it, in S3's order: null is smallest, decimals are numbers."""
    return tuple(
        (value is not None, 0 if value is None else decimal.Decimal(value) if isinstance(kind, DecimalType) else value)
        for value, kind in zip(watermark, _kinds(definition), strict=True)
    )


def is_below(definition: TableDefinition, bound: Watermark) -> str | None:
    """Is a row's declared watermark smaller than a recorded one, as SQL; None when that cannot be told."""
    kinds = _kinds(definition)
    if len(bound) != len(kinds):
        return None
    rows, bounds = [], []
    for name, kind, value in zip(definition.watermarkKey, kinds, bound, strict=True):
        row = quote(name) if isinstance(kind, DecimalType) else encoded(quote(name), kind)
        if row is None:
            return None
        rows.append(row)
        bounds.append(_literal(value, kind))
    return is_older(rows, bounds)


def _literal(value: Any, kind: DataType) -> str:
    """An encoded value as SQL; nothing read from a log can be anything but a literal."""
    if isinstance(kind, DecimalType):
        return f"CAST({'NULL' if value is None else text_literal(str(value))} AS {sql_type(kind)})"
    if isinstance(kind, (StringType, BinaryType)):
        return "CAST(NULL AS STRING)" if value is None else text_literal(str(value))
    return "CAST(NULL AS BIGINT)" if value is None else f"{int(value)}L"
