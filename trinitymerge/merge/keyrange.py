"""The range that sought keys lie in, so that a lookup skips files and row groups that cannot hold them (S18, S31).

Owns: gathering the smallest and largest value of each key column while the keys are materialised anyway, and the filter
that follows. Batches are sorted by key within their files, so that growing keys (numbers, dates) make a lookup read the
end of the table only. A filter never decides anything: the rows it lets through are still compared key by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import DataType

from trinitymerge.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.expressions import declared_length, physical_type, quote
from trinitymerge.statistics import decoded, encoded


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
        if not isinstance(key, str) or kind != physical_type(field) or declared_length(field):
            continue
        for which in ("min", "max"):
            value = encoded(f"{which}({key}\n)", kind)
            if value is not None:
                found[_name(which, i)] = value
    return found


def within(definition: TableDefinition, observed: Mapping[str, Any]) -> str | None:
    """What is true of every stored row that has one of the keys, as SQL; None if nothing is known."""
    conditions = []
    for i, name in enumerate(definition.primaryKey):
        kind = physical_type(definition.field(name))
        bounds = [decoded(observed.get(_name(which, i)), kind) for which in ("min", "max")]
        conditions += [f"{quote(name)} {op} {b}" for op, b in zip((">=", "<="), bounds, strict=True) if b is not None]
    return " AND ".join(conditions) or None


def _name(which: str, i: int) -> str:
    return f"{HIDDEN_PREFIX}{which}{i}"
