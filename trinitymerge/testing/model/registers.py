"""Registers: the value of each column of a key, and since when it is set (U1), also under an earlier key (U7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import Key, Row, default_value, order_key

UNSET = "_tm_unset"
"""The entry of a partial row with the columns and struct fields that it leaves unset; whole rows have none."""

MOVED_FROM = "_tm_moved_from"
"""The entry of a partial row with its old key, if its event says that the key has changed (U7)."""

Instant = tuple[Any, ...]

Author = tuple[Any, ...]
"""Who has set a register: the moment; or the moment of a move, the old key, and the author there, none if none has (U7)."""

_Known = dict[Path, tuple[Author, int, Any]]
"""Registers: author, table version and value."""


@attrs.frozen
class Stored:
    """A stored row, live or a tombstone.

    Attributes:
        row: its columns, :data:`UNSET` and :data:`MOVED_FROM`; of a resolved row, the columns as they are filled.
        version: the table version that committed it, or a later one that committed a value in it.
        committed: the table version that committed it.
        since: of a resolved row: for each column and struct field, who has set it; absent if none has.
    """

    row: Row
    version: int
    committed: int
    since: Mapping[Path, Author] = attrs.field(factory=dict)


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


Statements = Mapping[Key, Sequence[tuple[Instant, Stored]]]
"""The rows of each key and their moments, in the order of moments and versions."""


@attrs.frozen
class Registers:
    """The registers of a table's keys; ``statements`` are all its rows as they were written."""

    definition: TableDefinition
    statements: Statements

    def resolved(self, statements: Iterable[tuple[Instant, Stored]]) -> list[tuple[Instant, Stored]]:
        """Return some rows of one key with the values that they leave unset (U1)."""
        known, found = _Known(), list[tuple[Instant, Stored]]()
        for moment, stored in statements:
            known = self._after(known, moment, stored)
            is_dead, is_partial = RowRules(self.definition).is_tombstone(stored.row), bool(stored.row.get(UNSET))
            values = {name: value for name, value in stored.row.items() if name not in (UNSET, MOVED_FROM)}
            if not is_dead:
                values |= {field.name: _filled(field, known) for field in register_columns(self.definition)}
            taken = [version for _, version, _ in known.values() if is_partial and not is_dead]
            since = {path: author for path, (author, _, _) in known.items()}
            found.append((moment, Stored(values, max([stored.version, *taken]), stored.committed, since)))
        return found

    def _after(self, before: _Known, moment: Instant, stored: Stored) -> _Known:
        row, unset, author = stored.row, stored.row.get(UNSET, frozenset()), (moment,)
        known = {**before}
        if MOVED_FROM in row:  # except what a row of the key sets at the same moment
            brought = self._moved(moment, stored).items()
            known |= {p: of for p, of in brought if p not in before or _is_earlier(before[p][0], of[0])}
        is_dead = RowRules(self.definition).is_tombstone(row)
        for field in register_columns(self.definition):
            value = default_value(field) if is_dead else row[field.name]
            for path, is_struct in parts_of(field).items():
                if is_dead or path not in unset:
                    value_here, was = _inside(value, path, is_struct), before.get(path)
                    is_again = was and was[0] == author and order_key(was[2]) == order_key(value_here)
                    known[path] = was if was and is_again else (author, stored.version, value_here)
        return known

    def _moved(self, moment: Instant, stored: Stored) -> _Known:
        """Return the registers that a row brings from its old key: those of the moment before (U7)."""
        old, known = stored.row[MOVED_FROM], _Known()
        for at, earlier in self.statements.get(old, ()):
            known = self._after(known, at, earlier) if at < moment else known
        found = _Known()
        for field in register_columns(self.definition):
            for path, is_struct in parts_of(field).items():
                nothing = ((), stored.version, _inside(default_value(field), path, is_struct))
                author, version, value = known.get(path, nothing)
                found[path] = ((moment, old, *author), version, value)
        return found


def _is_earlier(author: Author, brought: Author) -> bool:
    """Return whether a change of the key is later than an author: of two at one moment, that of the greater old key is."""
    if author[0] != brought[0]:
        return True
    return len(author) > 1 and order_key(list(author[1])) <= order_key(list(brought[1]))


def _filled(field: Field, known: _Known) -> Any:
    """Return the value of a column by its registers; its default if no row has set it (S46)."""
    default = default_value(field)

    def value(kind: Any, path: Path) -> Any:
        is_struct = isinstance(kind, Mapping) and kind["type"] == "struct"
        found = known[path][2] if path in known else _inside(default, path, is_struct)
        if not is_struct or found is None:
            return found
        return {f["name"]: value(f["type"], (*path, f["name"])) for f in kind["fields"]}

    return value(field.type, (field.first_stored_as,))


def mended_rows(
    before: Mapping[Any, Sequence[Stored]], after: Mapping[Any, Sequence[Stored]], rules: RowRules
) -> Iterator[tuple[Any, Stored, Stored]]:
    """Return the rows of ``before`` in which a commit has changed what they leave unset (U4): key, before and after it.

    Both have the resolved rows of each key, the latest one last. Without history, only that one can change.
    """
    is_all = rules.definition.history
    for key, rows in before.items():
        now = {rules.watermark_order(s.row): s for s in (after[key] if is_all else after[key][-1:])}
        for stored in rows if is_all else rows[-1:]:
            later = now.get(rules.watermark_order(stored.row))
            is_it = later is not None and later.committed == stored.committed and not rules.is_tombstone(stored.row)
            if later and is_it and (later.since, order_key(later.row)) != (stored.since, order_key(stored.row)):
                yield key, stored, later


def mended(
    before: Mapping[Any, Sequence[Stored]], after: Mapping[Any, Sequence[Stored]], rules: RowRules
) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for key, _, now in mended_rows(before, after, rules):
        found.setdefault(key, []).append(now.row)
    return found


def place_of(author: Author, key: Key) -> tuple[Key, Instant]:
    """Return key and moment of the row that has set a register of a key, or of the move after which none has."""
    moments, old_keys = author[0::2], author[1::2]
    return (old_keys[len(moments) - 2] if len(moments) > 1 else key), moments[-1]
