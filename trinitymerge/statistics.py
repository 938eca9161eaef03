"""Watermarks as batch statistics keep them: how they are gathered, and how they compare (S3, S6).

Owns: the JSON form of watermark values in the log, the aggregates that gather it, the order of such values in Python,
and comparing rows with one in SQL. Knows nothing of how rows come about.

Two forms do not say what was meant. What is not valid UTF-8 becomes U+FFFD on its way into JSON, so text that holds one may
be other text. A ``timestamp_ntz`` used to be a number that depended on the time zone of the session that wrote it; now it is
text with a number that does not. Nothing is concluded from a value of such a form: the rows are asked.
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
from trinitymerge.expressions import (
    any_of,
    count_where,
    is_null,
    is_older,
    physical_type,
    quote,
    sql_type,
    text_literal,
)
from trinitymerge.sqltext import Sql

_UNREADABLE = "\N{REPLACEMENT CHARACTER}"

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
        return f"CAST({_microseconds(text)} AS STRING)"
    if isinstance(kind, DecimalType):
        return f"CAST({text} AS STRING)"
    if isinstance(kind, BinaryType):
        return f"hex({text})"
    return text if isinstance(kind, StringType) else None


def _microseconds(text: str) -> str:
    """A ``timestamp_ntz`` as microseconds since 1970 by the wall clock, as SQL.

    Spark's functions for that cast it to a timestamp first, in the session's time zone: two times become one where clocks
    are put forward. The parts of a date and time do not. A decimal holds the ends of the type's range, too.
    """
    seconds = f"hour({text}) * 3600 + minute({text}) * 60 + extract(SECOND FROM {text})"
    day = f"CAST(unix_date(CAST({text} AS DATE)) AS DECIMAL(20, 0))"
    return f"CAST({day} * 86400000000L + CAST(({seconds}) * 1000000 AS BIGINT) AS DECIMAL(20, 0))"


def is_told(value: Any, kind: DataType) -> bool:
    """True if an encoded value says which value it was."""
    if isinstance(kind, StringType):
        return value is None or _UNREADABLE not in str(value)
    return value is None or not isinstance(kind, TimestampNTZType) or isinstance(value, str)


def decoded(value: Any, kind: DataType) -> str | None:
    """An encoded value as SQL of its own type, folded to a literal that files can be filtered by.

    None for null, for what the value does not tell, and for types that are not worth it.
    """
    if value is None or not is_told(value, kind):
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
    nulls = any_of(is_null(quote(n)) for n in names)
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


def in_order(watermark: Watermark, definition: TableDefinition) -> tuple[tuple[bool, Any], ...] | None:
    """A watermark as Python can compare it, in S3's order; None where it does not say which one it was."""
    kinds = _kinds(definition)
    if len(watermark) != len(kinds) or not all(map(is_told, watermark, kinds)):
        return None
    return tuple((value is not None, _in_order(value, kind)) for value, kind in zip(watermark, kinds, strict=True))


def _in_order(value: Any, kind: DataType) -> Any:
    """Null is smallest; decimals are numbers, and so are times without a zone."""
    if value is None:
        return 0
    return decimal.Decimal(value) if isinstance(kind, (DecimalType, TimestampNTZType)) else value


def is_at_least(left: Watermark | None, right: Watermark | None, definition: TableDefinition) -> bool:
    """True if a watermark is known not to be smaller than another one."""
    if left is None or right is None:
        return False
    mine, other = in_order(left, definition), in_order(right, definition)
    return mine is not None and other is not None and mine >= other


def is_below(definition: TableDefinition, bound: Watermark) -> str | None:
    """SQL that is true if a row's declared watermark is smaller than a recorded one; None when that cannot be told."""
    kinds = _kinds(definition)
    if in_order(bound, definition) is None:
        return None
    rows, bounds = [], []
    for name, kind, value in zip(definition.watermarkKey, kinds, bound, strict=True):
        row = _comparable(quote(name), kind)
        if row is None:
            return None
        rows.append(Sql(row))
        bounds.append(Sql(_literal(value, kind)))
    return is_older(rows, bounds)


def _comparable(name: str, kind: DataType) -> str | None:
    """A row's watermark column as SQL that compares with :func:`_literal`."""
    if isinstance(kind, DecimalType):
        return name
    return _microseconds(name) if isinstance(kind, TimestampNTZType) else encoded(name, kind)


def _literal(value: Any, kind: DataType) -> str:
    """An encoded value as SQL; nothing read from a log can be anything but a literal."""
    if isinstance(kind, (DecimalType, TimestampNTZType)):
        number = "DECIMAL(20, 0)" if isinstance(kind, TimestampNTZType) else sql_type(kind)
        return f"CAST({'NULL' if value is None else text_literal(str(value))} AS {number})"
    if isinstance(kind, (StringType, BinaryType)):
        return "CAST(NULL AS STRING)" if value is None else text_literal(str(value))
    return "CAST(NULL AS BIGINT)" if value is None else f"{int(value)}L"


def is_above(definition: TableDefinition, lowest: Watermark | None, horizon: Watermark) -> bool:
    """True if no row of a batch is older than a horizon, by the batch's statistics (S38).

    Args:
        definition: of the table.
        lowest: the batch's smallest watermark; None when unknown.
        horizon: the largest watermark of forgotten tombstones; empty when unknown.
    """
    return bool(horizon) and is_at_least(lowest, horizon, definition)
