"""Registers: the value of each column of a key, and since when it is set (U1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import Row, default_value, order_key

UNSET = "_tm_unset"
"""The entry of a partial row with the columns and struct fields that it leaves unset; whole rows have none."""

Instant = tuple[Any, ...]


@attrs.frozen
class Stored:
    """A stored row, live or a tombstone.

    Attributes:
        row: its columns, and :data:`UNSET`; of a resolved row, the columns as they are filled.
        version: the table version that committed it, or a later one that committed a value in it.
        committed: the table version that committed it.
        since: of a resolved row: for each column and struct field, when it was set; absent if it never was.
    """

    row: Row
    version: int
    committed: int
    since: Mapping[Path, Instant] = attrs.field(factory=dict)


def register_columns(definition: TableDefinition) -> list[Field]:
    """Return the columns that have registers: all but keys, watermarks and the tombstone column."""
    roles = {*definition.primaryKey, *definition.watermarkKey, definition.tombstone_column}
    return [field for field in definition.fields if field.name not in roles]


def parts_of(field: Field) -> dict[Path, bool]:
    """Return the parts of a column that have registers: the column and the struct fields in it, and which are structs.

    Their paths begin with the name of the column's first files, which no rename changes.
    """

    def parts(kind: Any, path: Path) -> dict[Path, bool]:
        if not isinstance(kind, Mapping) or kind["type"] != "struct":
            return {path: False}
        inside = [parts(f["type"], (*path, f["name"])) for f in kind["fields"]]
        return {path: True} | {part: is_struct for of_field in inside for part, is_struct in of_field.items()}

    return parts(field.type, (field.first_stored_as,))


def null_parts(field: Field, value: Any) -> frozenset[Path]:
    """Return the parts of a column's value that are null: where nulls are ignored, they are unset (U6)."""
    return frozenset(path for path, is_struct in parts_of(field).items() if _inside(value, path, is_struct) is None)


def _inside(value: Any, path: Path, is_struct: bool) -> Any:
    """Return a part of a column's value; of a struct, whether it is there: true or None."""
    for name in path[1:]:
        value = None if value is None else value[name]
    return (None if value is None else True) if is_struct else value


def resolved(definition: TableDefinition, statements: Iterable[tuple[Instant, Stored]]) -> list[tuple[Instant, Stored]]:
    """Return the rows of one key with the values that they leave unset (U1).

    Args:
        definition: of the rows.
        statements: the moments and rows of the key, in the order of moments and versions.
    """
    rules, known = RowRules(definition), dict[Path, tuple[Instant, int, Any]]()
    columns, found = register_columns(definition), list[tuple[Instant, Stored]]()
    for moment, stored in statements:
        row, unset = stored.row, stored.row.get(UNSET, frozenset())
        is_dead = rules.is_tombstone(row)
        for field in columns:
            value = default_value(field) if is_dead else row[field.name]
            for path, is_struct in parts_of(field).items():
                if is_dead or path not in unset:
                    value_here, before = _inside(value, path, is_struct), known.get(path)
                    is_again = before and before[0] == moment and order_key(before[2]) == order_key(value_here)
                    known[path] = before if before and is_again else (moment, stored.version, value_here)
        values = {name: value for name, value in row.items() if name != UNSET}
        if not is_dead:
            values |= {field.name: _filled(field, known) for field in columns}
        version = max([stored.version, *(version for _, version, _ in known.values() if unset and not is_dead)])
        since = {path: at for path, (at, _, _) in known.items()}
        found.append((moment, Stored(values, version, stored.version, since)))
    return found


def _filled(field: Field, known: Mapping[Path, tuple[Instant, int, Any]]) -> Any:
    """Return the value of a column by its registers; its default if no row has set it (S46)."""
    default = default_value(field)

    def value(kind: Any, path: Path) -> Any:
        is_struct = isinstance(kind, Mapping) and kind["type"] == "struct"
        found = known[path][2] if path in known else _inside(default, path, is_struct)
        if not is_struct or found is None:
            return found
        return {f["name"]: value(f["type"], (*path, f["name"])) for f in kind["fields"]}

    return value(field.type, (field.first_stored_as,))


def mended(
    before: Mapping[Any, Sequence[Stored]], after: Mapping[Any, Sequence[Stored]], rules: RowRules
) -> dict[Any, list[Row]]:
    """Return, by key, the rows of ``before`` in which a commit has changed what they leave unset (U4).

    Args:
        before: the resolved rows of each key, the latest one last.
        after: the same with the commit.
        rules: of the table; without history, only the latest row of a key can change.
    """
    found: dict[Any, list[Row]] = {}
    is_all = rules.definition.history
    for key, rows in before.items():
        now = {rules.watermark_order(s.row): s for s in (after[key] if is_all else after[key][-1:])}
        for stored in rows if is_all else rows[-1:]:
            later = now.get(rules.watermark_order(stored.row))
            is_it = later is not None and later.committed == stored.committed and not rules.is_tombstone(stored.row)
            if later and is_it and (later.since, order_key(later.row)) != (stored.since, order_key(stored.row)):
                found.setdefault(key, []).append(later.row)
    return found
