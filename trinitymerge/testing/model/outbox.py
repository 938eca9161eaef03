"""Rows for other tables (S27)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trinitymerge.errors import InvalidMergeError, did_you_mean
from trinitymerge.merge.model.clauses import All, Clause, Insert, InsertHistory, Update, WhenMatched, WhenNotMatched
from trinitymerge.testing.model.expressions import Row, evaluate
from trinitymerge.testing.model.outcomes import Change
from trinitymerge.testing.model.values import default_value

UPSERT = (WhenMatched(None, [Update(All())]), WhenNotMatched(None, [Insert(All())]))
"""What becomes of the rows in the other table."""


def check_history(insert: InsertHistory, where: str) -> None:
    """Refuses a map that names no column of the other table, or leaves out one that a row needs (S28).

    Raises:
        InvalidMergeError: naming the columns.
    """
    definition = insert.table.model.definition
    columns = [_column(insert, str(name)) for name, _ in insert.values.items]
    unknown = [str(n) for (n, _), found in zip(insert.values.items, columns, strict=True) if found is None]
    if unknown:
        raise InvalidMergeError(f"{where}: no column '{unknown[0]}'." + did_you_mean(unknown[0], definition.names))
    twice = sorted({str(name) for name in columns if columns.count(name) > 1})
    required = [
        f.name for f in definition.fields if not f.nullable and f.default is None and f.name != definition.tombstoneKey
    ]
    missing = [
        n for n in dict.fromkeys([*definition.primaryKey, *definition.watermarkKey, *required]) if n not in columns
    ]
    if twice or missing:
        problem = f"assigns {', '.join(twice)} twice" if twice else f"does not assign {', '.join(missing)}"
        raise InvalidMergeError(f"{where}: the map {problem}.", columns=twice or missing)


def _column(insert: InsertHistory, name: str) -> str | None:
    return next((n for n in insert.table.model.definition.names if n.lower() == name.lower()), None)


def owed_rows(changes: Iterable[Change], clauses: Sequence[Clause]) -> list[tuple[Any, list[Row]]]:
    """The rows for each other table.

    Args:
        changes: all that the merge would write, with what is stale among them.
        clauses: of the merge.
    """
    found: dict[int, tuple[Any, list[Row]]] = {}
    for change in changes:
        is_stale_or_same = change.stale or change.unchanged  # S11, S22b: these replace nothing
        if change.pre_image is None or is_stale_or_same or change.firing.clause is None:
            continue
        for insert in clauses[change.firing.clause].histories:
            model = insert.table.model
            row = {
                str(_column(insert, str(name))): evaluate(value, change.firing.target, change.firing.source)
                for name, value in insert.values.items
            }
            found.setdefault(id(model), (model, []))[1].append(row)
    return list(found.values())


def merge_owed(model: Any, rows: Sequence[Row]) -> None:
    """Merges rows into another table.

    Raises:
        TrinityMergeError: the error the rules call for; the table is unchanged then.
    """
    definition = model.definition
    assigned = {name for row in rows for name in row}
    columns = [n for n in definition.names if n in assigned or n != definition.tombstoneKey]
    unsaid = {field.name: default_value(field) for field in definition.fields}  # S46
    whole = [{name: row.get(name, unsaid[name]) for name in columns} for row in rows]
    model.merge(whole, UPSERT, sourceColumns=columns)
