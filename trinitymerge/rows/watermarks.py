"""Watermarks in batch statistics (S3, S6, S13)."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import types as T

from trinitymerge.rows.resolution import is_older
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(E[+-]?[0-9]{1,2})?")
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"

Watermark = tuple[Any, ...]
"""One JSON value per watermark column, as :func:`to_json_sql` encodes it."""


def _microseconds(text: str) -> str:
    """Return SQL: a ``timestamp_ntz`` as microseconds since 1970.

    Spark's functions cast it to a timestamp in the session's time zone first, where two times become one when clocks go forward.
    A decimal holds the whole range of the type.
    """
    seconds = f"hour({text}) * 3600 + minute({text}) * 60 + extract(SECOND FROM {text})"
    day = f"CAST(unix_date(CAST({text} AS DATE)) AS DECIMAL(20, 0))"
    return f"CAST({day} * 86400000000L + CAST(({seconds}) * 1000000 AS BIGINT) AS DECIMAL(20, 0))"


@attrs.frozen
class _Form:
    """The JSON form of the values of a type, and its comparison with rows.

    In the templates ``{0}`` is the value, as SQL, and ``{kind}`` its type.

    Attributes:
        compared_as: the type of the comparison: ``BIGINT``, ``STRING`` or a decimal.
        row: a row's value in that type; by default ``encoded``.
        decoded: the value as a literal that files can be filtered by; empty if filters do not pay.
        literal_of: the value as any literal; by default ``decoded``.
        is_lossless: whether a JSON value identifies the value.
    """

    encoded: str
    compared_as: str
    row: str = attrs.field(default=attrs.Factory(lambda form: form.encoded, takes_self=True))
    decoded: str = ""
    literal_of: str = attrs.field(default=attrs.Factory(lambda form: form.decoded, takes_self=True))
    is_lossless: Callable[[Any], bool] = lambda _: True

    def is_exact(self, value: Any) -> bool:
        """Return True if a value from a log or a file has this form and identifies a value."""
        if self.compared_as == "BIGINT":
            return type(value) is int and -(2**63) <= value < 2**63
        is_text = isinstance(value, str) and (not self.is_decimal or bool(_NUMBER.fullmatch(value)))
        return is_text and self.is_lossless(value)

    @property
    def is_decimal(self) -> bool:
        """True if JSON values are the text of numbers."""
        return self.compared_as not in ("BIGINT", "STRING")

    def literal(self, value: Any) -> str:
        """Return SQL: a JSON value as a literal, which log content cannot break out of."""
        return str(int(value)) if self.compared_as == "BIGINT" else E.text_literal(str(value))

    def bound(self, value: Any, kind: T.DataType) -> str:
        """Return SQL: a JSON value, or null, in the type of the comparison."""
        compared_as = self.compared_as.format(kind=E.sql_type(kind))
        if value is None:
            return f"CAST(NULL AS {compared_as})"
        literal = self.literal(value)
        if self.is_decimal:
            return f"CAST({literal} AS {compared_as})"
        return f"{literal}L" if compared_as == "BIGINT" else literal


_FORMS: tuple[tuple[type[T.DataType], _Form], ...] = (
    (T.IntegralType, _Form("CAST({0} AS BIGINT)", "BIGINT", decoded="CAST({0}L AS {kind})")),
    (T.BooleanType, _Form("CAST({0} AS INT)", "BIGINT", literal_of="CAST({0} AS BOOLEAN)")),
    (T.DateType, _Form("unix_date({0})", "BIGINT", decoded="date_from_unix_date({0})")),
    (T.TimestampType, _Form("unix_micros({0})", "BIGINT", decoded="timestamp_micros({0}L)")),
    (
        T.TimestampNTZType,
        _Form(
            f"CAST({_microseconds('{0}')} AS STRING)",
            "DECIMAL(20, 0)",
            row=_microseconds("{0}"),
            literal_of="CAST('1970-01-01' AS TIMESTAMP_NTZ) + make_dt_interval(0, 0, 0, CAST({0} AS DECIMAL(20, 0)) / 1000000)",
        ),
    ),
    (T.DecimalType, _Form("CAST({0} AS STRING)", "{kind}", row="{0}", decoded="CAST({0} AS {kind})")),
    (T.BinaryType, _Form("hex({0})", "STRING", literal_of="unhex({0})")),
    (T.StringType, _Form("{0}", "STRING", decoded="{0}", is_lossless=lambda value: _UNREADABLE not in str(value))),
)


def _form_of(kind: T.DataType) -> _Form | None:
    return next((form for known, form in _FORMS if isinstance(kind, known)), None)


def to_json_sql(text: str, kind: T.DataType) -> str | None:
    """Return SQL: a watermark value in a JSON form that Python orders as Spark does; None for types without one."""
    form = _form_of(kind)
    return None if form is None else form.encoded.format(text)


def from_json_sql(value: Any, kind: T.DataType) -> str | None:
    """Return SQL: a JSON value as a literal that files can be filtered by; None if null or not exact, or if filters do not pay."""
    form = _form_of(kind)
    return None if form is None or not form.decoded else literal_sql(value, kind)


def literal_sql(value: Any, kind: T.DataType) -> str | None:
    """Return SQL: a JSON value as a literal of its type; None if null or not exact."""
    form = _form_of(kind)
    if value is None or form is None or not form.is_exact(value):
        return None
    return form.literal_of.format(form.literal(value), kind=E.sql_type(kind))


def _forms(definition: TableDefinition) -> list[tuple[T.DataType, _Form | None]]:
    kinds = [E.physical_type(definition.field(n)) for n in definition.watermarkKey]
    return [(kind, _form_of(kind)) for kind in kinds]


def watermark_metrics(definition: TableDefinition, where: str, prefix: str = "watermark") -> dict[str, str]:
    """Return aggregates for the smallest and largest declared watermark of some rows."""
    return {
        f"{prefix}_{which}_{i}": form.encoded.format(_extreme(definition, where, which, i))
        for i, (_, form) in enumerate(_forms(definition))
        if form is not None
        for which in ("min", "max")
    }


def _extreme(definition: TableDefinition, where: str, which: str, i: int) -> str:
    """Return SQL: one column of the smallest or largest watermark; without a struct for single columns, which is much faster."""
    names = [E.quote(n) for n in definition.watermarkKey]
    if len(names) > 1:
        parts = ", ".join(f"'w{place}', {name}" for place, name in enumerate(names))
        return f"{which}(CASE WHEN {where} THEN named_struct({parts}) END).w{i}"
    found = f"{which}(CASE WHEN {where} THEN {names[0]} END)"
    return found if which == "max" else f"CASE WHEN count_if(({where}) AND {names[0]} IS NULL) = 0 THEN {found} END"


def watermark_of(
    values: Mapping[str, Any], which: str, definition: TableDefinition, prefix: str = "watermark"
) -> Watermark | None:
    """Return the smallest (``min``) or largest (``max``) watermark of collected metrics; None if unknown."""
    names = [f"{prefix}_{which}_{i}" for i in range(len(definition.watermarkKey))]
    return tuple(values[n] for n in names) if names and all(n in values for n in names) else None


def sort_key(watermark: Watermark, definition: TableDefinition) -> tuple[tuple[bool, Any], ...] | None:
    """Return a sort key in S3's order; None if the watermark is not exact."""
    forms = _forms(definition)
    if len(watermark) != len(forms):
        return None
    parts = [_in_order(value, form) for value, (_, form) in zip(watermark, forms, strict=True)]
    return None if None in parts else tuple(part for part in parts if part is not None)


def _in_order(value: Any, form: _Form | None) -> tuple[bool, Any] | None:
    """Null is smallest; decimals and times without a zone compare as numbers."""
    if value is None:
        return (False, 0)
    if form is None or not form.is_exact(value):
        return None
    return (True, decimal.Decimal(value) if form.is_decimal else value)


def ordered(value: Any, kind: T.DataType) -> Any:
    """Return a JSON value in a form that Python compares; None if null or not exact."""
    part = None if value is None else _in_order(value, _form_of(kind))
    return None if part is None else part[1]


def is_at_least(left: Watermark | None, right: Watermark | None, definition: TableDefinition) -> bool:
    """Return True if the left watermark is known not to be smaller than the right one."""
    if left is None or right is None:
        return False
    mine, other = sort_key(left, definition), sort_key(right, definition)
    return mine is not None and other is not None and mine >= other


def is_below(definition: TableDefinition, bound: Watermark) -> str | None:
    """Return SQL: a row's declared watermark is smaller than a recorded one; None if unknown."""
    if sort_key(bound, definition) is None:
        return None
    rows, bounds = [], []
    for name, (kind, form), value in zip(definition.watermarkKey, _forms(definition), bound, strict=True):
        if form is None:
            return None
        rows.append(Sql(form.row.format(E.quote(name))))
        bounds.append(Sql(form.bound(value, kind)))
    return is_older(rows, bounds)


def watermark_sql(watermark: Watermark, definition: TableDefinition) -> list[Sql] | None:
    """Return a recorded watermark as SQL, column by column; None if a type has no exact form."""
    kinds = [E.physical_type(definition.field(n)) for n in definition.watermarkKey]
    found = [literal_sql(value, kind) for value, kind in zip(watermark, kinds, strict=False)]
    exact = [Sql(value) for value in found if value is not None]
    return exact if len(exact) == len(kinds) else None


def raised_to(watermark: Sequence[Sql], truncated_at: Watermark | None, definition: TableDefinition) -> list[Sql]:
    """Return the watermark of a key's latest row, or of the table's last truncate, which is a tombstone of every key (T1)."""
    at = None if truncated_at is None else watermark_sql(truncated_at, definition)
    if at is None:
        return list(watermark)
    return [E.case([(is_older(watermark, at), limit)], mine) for mine, limit in zip(watermark, at, strict=True)]


def is_above(definition: TableDefinition, lowest: Watermark | None, horizon: Watermark) -> bool:
    """Return True if no row of a batch is older than the horizon, the largest watermark of removed tombstones (S38)."""
    return bool(horizon) and is_at_least(lowest, horizon, definition)
