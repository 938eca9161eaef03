"""The range that sought keys lie in, so that a lookup skips files and row groups that cannot hold them (S18, S31).

Owns: gathering the smallest and largest value of each key column while the keys are materialised anyway, and the filter
that follows. Batches are sorted by key within their files, so that growing keys (numbers, dates) make a lookup read the
end of the table only. A filter never decides anything: the rows it lets through are still compared key by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql.types import DataType, DateType, DecimalType, IntegralType, StringType, TimestampType

from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import declared_length, physical_type, quote
from trinitymerge.statistics import decoded, encoded
from trinitymerge.storage.backend import Batches

_RANGED = (IntegralType, DateType, TimestampType, DecimalType, StringType)
_NARROW = 2
"""Ranges of less than the table's rows by this are worth a filter."""


def metrics(definition: TableDefinition, keys: Sequence[tuple[object, DataType]]) -> dict[str, str]:
    """Aggregates over sought keys.

    Args:
        definition: of the table.
        keys: for each primary-key column, an expression over the rows observed, and its type. Columns, and what is not of
            the key's own type, are left out: no comparison may cast.
    """
    found: dict[str, str] = {}
    for i, (name, (key, kind)) in enumerate(zip(definition.primaryKey, keys, strict=True)):
        field = definition.field(name)
        if (
            not isinstance(key, str)
            or not isinstance(kind, _RANGED)
            or kind != physical_type(field)
            or declared_length(field)
        ):
            continue
        for which in ("min", "max"):
            value = encoded(f"{which}({key}\n)", kind)
            if value is not None:
                found[_name(which, i)] = value
    return found


def within(batches: Batches, observed: Mapping[str, Any]) -> str | None:
    """What is true of every stored row that has one of the keys, as SQL; None if nothing useful is known."""
    definition, conditions = batches.definition, []
    rows = sum(b.rows for b in batches.batches)
    for i, name in enumerate(definition.primaryKey):
        kind = physical_type(definition.field(name))
        low, high = (observed.get(_name(which, i)) for which in ("min", "max"))
        if low is None or high is None or not _is_narrow(low, high, kind, rows):
            break  # files are sorted by the leading columns first: what comes after a wide one is spread over all of them
        for op, value in ((">=", low), ("<=", high)):
            bound = decoded(value, kind)
            conditions += [] if bound is None else [f"{quote(name)} {op} {bound}"]
    return " AND ".join(conditions) or None


def _is_narrow(low: Any, high: Any, kind: DataType, rows: int) -> bool:
    """True if a range may leave out much of a table of so many rows. Where it does not, filtering files costs something in vain.

    As if keys were numbers counted up, or a second or a day apart; text only where it is one and the same.
    """
    if low == high:
        return True
    if isinstance(kind, StringType):
        return False
    unit = 1_000_000 if isinstance(kind, TimestampType) else 1
    return (Decimal(high) - Decimal(low)) / unit < rows / Decimal(_NARROW)


def _name(which: str, i: int) -> str:
    return f"{which}_of_key_{i}"
