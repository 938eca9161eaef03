"""Of source rows with equal key and watermark the first in an order that the user gives (S12a).

Owns: :func:`firsts`. Rows that come first together all stay: whether they contradict each other is S12's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.testing.checks import Names
from trinitymerge.testing.values import order_keys, store


def firsts(
    names: Names, rows: Iterable[Mapping[str, Any]], order: Callable[[Mapping[str, Any]], Any]
) -> list[Mapping[str, Any]]:
    """The rows that come first among those with their key and watermark, as they would be stored.

    Args:
        names: of table and source.
        rows: of the source.
        order: from a row to what sorts it.
    """
    definition, given = names.definition, list(rows)
    keys = (*definition.primaryKey, *definition.watermarkKey)
    columns = {n: column for n in keys if (column := names.source_column(n)) is not None}

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return order_keys(
            store(definition.field(n), row[column], isKey=n in definition.primaryKey) for n, column in columns.items()
        )

    try:
        places = [place(row) for row in given]
    except SchemaMismatchError:
        return given  # the merge refuses it
    least: dict[tuple[Any, ...], Any] = {}
    for at, row in zip(places, given, strict=True):
        least[at] = min(least.get(at, order(row)), order(row))
    return [row for at, row in zip(places, given, strict=True) if order(row) == least[at]]
