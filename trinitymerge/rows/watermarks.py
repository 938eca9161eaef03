"""Watermarks as batch statistics keep and compare them (S3, S6, S13)."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
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

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.expressions import is_older, physical_type, quote, sql_type, text_literal
from trinitymerge.spark.sql_text import Sql

_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(E[+-]?[0-9]{1,2})?")
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"

Watermark = tuple[Any, ...]
"""One value per watermark column, in the form :func:`to_json_sql` gives."""


# Forms ----------------------------------------------------------------------------------------------------------------


def _microseconds(text: str) -> str:
    """A ``timestamp_ntz`` as microseconds since 1970 by the wall clock, as SQL.

    Spark's functions for that cast it to a timestamp first, in the session's time zone: two times become one where clocks
    are put forward. The parts of a date and time do not. A decimal holds the ends of the type's range, too.
    """
    seconds = f"hour({text}) * 3600 + minute({text}) * 60 + extract(SECOND FROM {text})"
    day = f"CAST(unix_date(CAST({text} AS DATE)) AS DECIMAL(20, 0))"
    return f"CAST({day} * 86400000000L + CAST(({seconds}) * 1000000 AS BIGINT) AS DECIMAL(20, 0))"


@attrs.frozen
class _Form:
    """How values of a type are kept, and how rows compare with what is kept.

    In the templates ``{0}`` stands for the value, as SQL, and ``{kind}`` for its type.

    Attributes:
        encoded: what JSON holds.
        compared_as: the type in which a row and a kept value compare: ``BIGINT``, ``STRING`` or a decimal.
        row: a row's value in that type; by default as JSON holds it.
        decoded: a kept value in its own type; empty for types that are not worth it.
        told: likewise, where it is worth it only if there is no other way.
        says_which: whether a kept value says which value it was.
    """

    encoded: str
    compared_as: str
    row: str = attrs.field(default=attrs.Factory(lambda form: form.encoded, takes_self=True))
    decoded: str = ""
    told: str = attrs.field(default=attrs.Factory(lambda form: form.decoded, takes_self=True))
    says_which: Callable[[Any], bool] = lambda _: True

    def is_told(self, value: Any) -> bool:
        """True if a kept value, which a log or a file brings, is of this form and says which value it was."""
        if self.compared_as == "BIGINT":
            return type(value) is int and -(2**63) <= value < 2**63
        return (
            isinstance(value, str)
            and (not self.is_decimal or bool(_NUMBER.fullmatch(value)))
            and self.says_which(value)
        )

    @property
    def is_decimal(self) -> bool:
        """True if kept values are text that stands for numbers."""
        return self.compared_as not in ("BIGINT", "STRING")

    def literal(self, value: Any) -> str:
        """A kept value as SQL; nothing read from a log can be anything but a literal."""
        return str(int(value)) if self.compared_as == "BIGINT" else text_literal(str(value))

    def bound(self, value: Any, kind: DataType) -> str:
        """A kept value, or null, in the type in which it compares."""
        compared_as = self.compared_as.format(kind=sql_type(kind))
        if value is None:
            return f"CAST(NULL AS {compared_as})"
        literal = self.literal(value)
        if self.is_decimal:
            return f"CAST({literal} AS {compared_as})"
        return f"{literal}L" if compared_as == "BIGINT" else literal


_FORMS: tuple[tuple[type[DataType], _Form], ...] = (
    (IntegralType, _Form("CAST({0} AS BIGINT)", "BIGINT", decoded="CAST({0}L AS {kind})")),
    (BooleanType, _Form("CAST({0} AS INT)", "BIGINT", told="CAST({0} AS BOOLEAN)")),
    (DateType, _Form("unix_date({0})", "BIGINT", decoded="date_from_unix_date({0})")),
    (TimestampType, _Form("unix_micros({0})", "BIGINT", decoded="timestamp_micros({0}L)")),
    (
        TimestampNTZType,
        _Form(
            f"CAST({_microseconds('{0}')} AS STRING)",
            "DECIMAL(20, 0)",
            row=_microseconds("{0}"),
            told="CAST('1970-01-01' AS TIMESTAMP_NTZ) + make_dt_interval(0, 0, 0, CAST({0} AS DECIMAL(20, 0)) / 1000000)",
        ),
    ),
    (DecimalType, _Form("CAST({0} AS STRING)", "{kind}", row="{0}", decoded="CAST({0} AS {kind})")),
    (BinaryType, _Form("hex({0})", "STRING", told="unhex({0})")),
    (StringType, _Form("{0}", "STRING", decoded="{0}", says_which=lambda value: _UNREADABLE not in str(value))),
)


def _form_of(kind: DataType) -> _Form | None:
    """The form of a type; None for types of which no statistics are kept."""
    return next((form for known, form in _FORMS if isinstance(kind, known)), None)


def to_json_sql(text: str, kind: DataType) -> str | None:
    """A watermark value as JSON can hold it and Python can order it as Spark does; None for types without such a form.

    Args:
        text: the value as SQL.
        kind: its type.
    """
    form = _form_of(kind)
    return None if form is None else form.encoded.format(text)


def from_json_sql(value: Any, kind: DataType) -> str | None:
    """An encoded value as SQL of its own type, folded to a literal that files can be filtered by.

    None for null, for what the value does not tell, and for types that are not worth it.
    """
    form = _form_of(kind)
    if value is None or form is None or not form.decoded or not form.is_told(value):
        return None
    return form.decoded.format(form.literal(value), kind=sql_type(kind))


def literal_sql(value: Any, kind: DataType) -> str | None:
    """An encoded value as SQL of its own type, of whatever type; None for null, and for what the value does not tell."""
    form = _form_of(kind)
    if value is None or form is None or not form.is_told(value):
        return None
    return form.told.format(form.literal(value), kind=sql_type(kind))


# Watermarks -----------------------------------------------------------------------------------------------------------


def _forms(definition: TableDefinition) -> list[tuple[DataType, _Form | None]]:
    kinds = [physical_type(definition.field(n)) for n in definition.watermarkKey]
    return [(kind, _form_of(kind)) for kind in kinds]


def watermark_metrics(definition: TableDefinition, where: str, prefix: str = "watermark") -> dict[str, str]:
    """Aggregates for the smallest and largest declared watermark of some rows.

    Args:
        definition: of the table.
        where: SQL that says which rows.
        prefix: begins the names of the metrics.
    """
    metrics: dict[str, str] = {}
    for i, (_, form) in enumerate(_forms(definition)):
        if form is not None:
            metrics |= {
                f"{prefix}_{which}_{i}": form.encoded.format(_extreme(definition, where, which, i))
                for which in ("min", "max")
            }
    return metrics


def _extreme(definition: TableDefinition, where: str, which: str, i: int) -> str:
    """One column of the smallest or largest watermark. Of a single column no struct is made for each row: that takes far longer."""
    names = [quote(n) for n in definition.watermarkKey]
    if len(names) > 1:
        parts = ", ".join(f"'w{place}', {name}" for place, name in enumerate(names))
        return f"{which}(CASE WHEN {where} THEN named_struct({parts}) END).w{i}"
    found = f"{which}(CASE WHEN {where} THEN {names[0]} END)"
    return found if which == "max" else f"CASE WHEN count_if(({where}) AND {names[0]} IS NULL) = 0 THEN {found} END"


def watermark_of(
    values: Mapping[str, Any], which: str, definition: TableDefinition, prefix: str = "watermark"
) -> Watermark | None:
    """The smallest (``min``) or largest (``max``) watermark among gathered metrics; None when unknown."""
    names = [f"{prefix}_{which}_{i}" for i in range(len(definition.watermarkKey))]
    return tuple(values[n] for n in names) if names and all(n in values for n in names) else None


def sort_key(watermark: Watermark, definition: TableDefinition) -> tuple[tuple[bool, Any], ...] | None:
    """A watermark as Python can compare it, in S3's order; None where it does not say which one it was."""
    forms = _forms(definition)
    if len(watermark) != len(forms):
        return None
    parts = [_in_order(value, form) for value, (_, form) in zip(watermark, forms, strict=True)]
    return None if None in parts else tuple(part for part in parts if part is not None)


def _in_order(value: Any, form: _Form | None) -> tuple[bool, Any] | None:
    """Null is smallest; decimals are numbers, and so are times without a zone."""
    if value is None:
        return (False, 0)
    if form is None or not form.is_told(value):
        return None
    return (True, decimal.Decimal(value) if form.is_decimal else value)


def ordered(value: Any, kind: DataType) -> Any:
    """An encoded value as Python can compare it; None for null, and where it does not say which one it was."""
    part = None if value is None else _in_order(value, _form_of(kind))
    return None if part is None else part[1]


def is_at_least(left: Watermark | None, right: Watermark | None, definition: TableDefinition) -> bool:
    """True if a watermark is known not to be smaller than another one."""
    if left is None or right is None:
        return False
    mine, other = sort_key(left, definition), sort_key(right, definition)
    return mine is not None and other is not None and mine >= other


def is_below(definition: TableDefinition, bound: Watermark) -> str | None:
    """SQL that is true if a row's declared watermark is smaller than a recorded one; None when that cannot be told."""
    if sort_key(bound, definition) is None:
        return None
    rows, bounds = [], []
    for name, (kind, form), value in zip(definition.watermarkKey, _forms(definition), bound, strict=True):
        if form is None:
            return None
        rows.append(Sql(form.row.format(quote(name))))
        bounds.append(Sql(form.bound(value, kind)))
    return is_older(rows, bounds)


def is_above(definition: TableDefinition, lowest: Watermark | None, horizon: Watermark) -> bool:
    """True if no row of a batch is older than a horizon, by the batch's statistics (S38).

    Args:
        definition: of the table.
        lowest: the batch's smallest watermark; None when unknown.
        horizon: the largest watermark of forgotten tombstones; empty when unknown.
    """
    return bool(horizon) and is_at_least(lowest, horizon, definition)
