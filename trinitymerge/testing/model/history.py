"""The past of a table: stored rows by key, changes between versions (S41), row versions (H2-H5), intervals (H12)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise, zip_longest
from types import MappingProxyType
from typing import Any

import attrs

from trinitymerge import errors
from trinitymerge.schema.definition import HIDDEN_TOMBSTONE, TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model.registers import MOVED_FROM, UNSET, Instant, Registers, Statements, Stored
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import Key, Row, order_key, order_keys, store


def rows_by_key(
    definition: TableDefinition,
    batches: Iterable[Sequence[Row]],
    truncates: Mapping[int, Sequence[Row]] = MappingProxyType({}),
) -> dict[Key, list[Stored]]:
    """Return the rows of each key, in key order, the latest one last (S6, S13, S15, H2, U1).

    Of rows with equal declared watermarks only the last committed is returned. Without a declared watermark, one row of
    each commit is returned. ``batches`` has one for each version, oldest first; ``truncates`` has, by version, tombstones
    without a key, each of which is one of every key (T1).
    """
    registers = Registers(definition, statements_by_key(definition, batches, truncates))
    return {key: [*dict(registers.resolved(rows)).values()] for key, rows in registers.statements.items()}


def statements_by_key(
    definition: TableDefinition,
    batches: Iterable[Sequence[Row]],
    truncates: Mapping[int, Sequence[Row]] = MappingProxyType({}),
) -> Statements:
    """Return all stored rows of each key with their moments, as they were written; arguments as of :func:`rows_by_key`.

    They are in the order of their watermarks, and of equal ones in that of their commits (S6, S15).
    """
    rules = RowRules(definition)
    found: dict[Key, list[tuple[Any, tuple[Instant, Stored]]]] = {}

    def add(row: Row, version: int) -> None:
        moment = rules.watermark_order(row) if definition.watermarkKey else (version,)
        contents = order_keys(value for name, value in row.items() if name not in (UNSET, MOVED_FROM))
        rank = moment, version, rules.is_tombstone(row), contents  # S6, S15
        found.setdefault(rules.key(row), []).append((rank, (moment, Stored(row, version, version))))

    for version, batch in enumerate(batches, start=1):
        for row in batch:
            add(row, version)
    for key in list(found):
        for version, of_version in truncates.items():
            for truncate in of_version:
                add(rules.bare({**dict(zip(definition.primaryKey, key, strict=True)), **truncate}), version)
    return {
        key: [entry for _, entry in sorted(found[key], key=lambda ranked: ranked[0])]
        for key in sorted(found, key=order_keys)
    }


def latest_rows(
    definition: TableDefinition,
    batches: Iterable[Sequence[Row]],
    truncates: Mapping[int, Sequence[Row]] = MappingProxyType({}),
) -> dict[Key, Stored]:
    """Return the latest row of each key, live or a tombstone, in key order (S13)."""
    return {key: rows[-1] for key, rows in rows_by_key(definition, batches, truncates).items()}


# Changes (S41) ----------------------------------------------------------------------------------------------


def net_changes(definition: TableDefinition, before: Mapping[Key, Stored], after: Mapping[Key, Stored]) -> list[Row]:
    """Return the changes from the latest rows of one state to those of another: one row per insert or delete, two per update.

    In key order, with the user's columns, ``_change_type``, ``_commit_version`` and ``_watermark``.
    """
    rules, found = RowRules(definition), list[Row]()

    def live(stored: Stored | None) -> Row | None:
        return None if stored is None or rules.is_tombstone(stored.row) else stored.row

    for key in sorted({*before, *after}, key=order_keys):
        was, now, last = live(before.get(key)), live(after.get(key)), after.get(key)
        is_update = was is not None and now is not None
        if was is not None and now is not None and rules.content(was) == rules.content(now):
            continue
        version, watermark = (last.version, _watermark(rules, last.row)) if last else (None, None)
        kinds = ("update_preimage", "update_postimage") if is_update else ("delete", "insert")
        for row, kind in zip((was, now), kinds, strict=True):
            if row is not None:
                shown = {name: row[name] for name in definition.names}
                found.append(shown | {"_change_type": kind, "_commit_version": version, "_watermark": watermark})
    return found


def _watermark(rules: RowRules, row: Row) -> Any:
    """One value, several by name, or None if the table declares no watermark."""
    declared = rules.watermark(row)
    return declared if len(declared) > 1 else next(iter(declared.values()), None)


# Row versions (H2-H5) ---------------------------------------------------------------------------------------


@attrs.frozen
class Version:
    """A row and the time in which it holds (H5).

    Attributes:
        row: as it is stored; never a tombstone.
        begins: inclusive; None is from the beginning.
        ends: exclusive; None while it is open, or if the next version begins with None, too.
        isOpen: no row follows it.
    """

    row: Row
    begins: Any
    ends: Any
    isOpen: bool

    @property
    def isEmpty(self) -> bool:
        return not self.isOpen and order_key(self.begins) == order_key(self.ends)

    def holds(self, moment: Any) -> bool:
        begun = order_key(self.begins) <= order_key(moment)
        return begun and (self.isOpen or order_key(moment) < order_key(self.ends))


def check_history(definition: TableDefinition) -> None:
    """Raise InvalidDefinitionError for a table without history (H8)."""
    if not definition.history:
        raise errors.InvalidDefinitionError("The table keeps current rows only. Create it with history=True (H8).")


def row_versions(definition: TableDefinition, rows: Sequence[Stored], time: Callable[[int], Any]) -> list[Version]:
    """Return the versions of one key: each ends where the next version or tombstone begins (H3-H5).

    ``time`` is from a table version to its commit time, which is the begin of rows without a watermark.
    """
    rules, first = RowRules(definition), definition.watermarkKey[:1]
    begins = [stored.row[first[0]] if first else time(stored.version) for stored in rows]
    return [
        Version(stored.row, begun, ended, isOpen=stored is rows[-1])
        for stored, begun, ended in zip_longest(rows, begins, begins[1:])
        if not rules.is_tombstone(stored.row)
    ]


def merged(versions: Iterable[Version], tracked: Sequence[str]) -> list[Version]:
    """Return consecutive versions of one key that agree in the tracked columns as one (H5).

    It begins with the first and has the other columns of the last. Versions are consecutive where one ends as the other
    begins, so never across a gap.
    """
    found: list[Version] = []
    for version in versions:
        last = found[-1] if found else None
        is_adjacent = last is not None and not last.isOpen and order_key(last.ends) == order_key(version.begins)
        if last and is_adjacent and all(order_key(last.row[n]) == order_key(version.row[n]) for n in tracked):
            found[-1] = attrs.evolve(version, begins=last.begins)
        else:
            found.append(version)
    return found


# Dimensions with intervals (H12) ----------------------------------------------------------------------------

_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), 1),
    "date": dt.timedelta(days=1),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), dt.timedelta(microseconds=1)),
}


def read_intervals(
    fields: Iterable[Field],
    source: Iterable[Mapping[str, Any]],
    primaryKey: str | Iterable[str],
    validFrom: str,
    validTo: str,
    openEnd: Any = None,
    endInclusive: bool = False,
) -> tuple[TableDefinition, list[Row], int]:
    """Return the definition and the rows of a dimension, and the number of empty intervals that are left out.

    Each row is a version. A tombstone follows where an interval ends and no other begins. The arguments are those of
    ``ModelTable.fromIntervals``.
    """
    by_name = {field.name.lower(): field for field in fields}
    begin, end = by_name[validFrom.lower()], by_name[validTo.lower()]
    definition = TableDefinition.of([f for f in by_name.values() if f != end], primaryKey, begin.name, history=True)
    rules, bound = RowRules(definition), Field(end.name, begin.type)
    found: list[Version] = []
    for given in source:
        if None in rules.key(given):
            raise errors.NullKeyError(f"Row {dict(given)} has a null in its primary key (H12).")
        row = {name: rules.store(name, given[name]) for name in definition.names} | {HIDDEN_TOMBSTONE: False}
        ended = store(bound, given[end.name])
        is_open = order_key(ended) in (order_key(None), order_key(store(bound, openEnd)))
        if not is_open and _loses(given[end.name], ended):
            raise errors.InvalidMergeError(f"The end {given[end.name]!r} does not fit type {bound.text} (H12).")
        ended = None if is_open else _next(bound, ended) if endInclusive else ended
        found.append(Version(row, row[begin.name], ended, is_open))
    backwards = [rules.key(v.row) for v in found if not v.isOpen and order_key(v.ends) < order_key(v.begins)]
    if backwards:
        raise errors.InvalidMergeError(f"Intervals of {backwards[:5]} end before they begin (H12).", keys=backwards)
    of_keys: dict[Key, list[Version]] = {}
    filled = [version for version in found if not version.isEmpty]
    for version in sorted(filled, key=lambda v: (order_keys(rules.key(v.row)), order_key(v.begins))):
        of_keys.setdefault(rules.key(version.row), []).append(version)
    overlapping = [key for key, own in of_keys.items() for a, b in pairwise(own) if a.holds(b.begins)]
    if overlapping:
        raise errors.DuplicateKeyError(f"Intervals of {overlapping[:5]} overlap (H12).", keys=overlapping)
    rows: list[Row] = []
    for own in of_keys.values():
        for version, following in zip_longest(own, own[1:]):
            rows.append(version.row)
            if not version.isOpen and (following is None or order_key(version.ends) < order_key(following.begins)):
                rows.append(rules.bare({**version.row, begin.name: version.ends, HIDDEN_TOMBSTONE: True}))
    return definition, rows, len(found) - len(filled)


def _loses(given: Any, stored: Any) -> bool:
    """Return whether storing changes the value: a date has no time of day, an integer no fraction."""
    if isinstance(given, dt.datetime) and not isinstance(stored, dt.datetime):
        return given.time() != dt.time()
    return isinstance(given, (int, float, Decimal)) and isinstance(stored, (int, float, Decimal)) and given != stored


def _next(field: Field, value: Any) -> Any:
    """Return the smallest value after this one: the exclusive end of an interval that includes it."""
    decimal = re.fullmatch(r"decimal\((\d+),(-?\d+)\)", str(field.type))
    is_exact = decimal is not None and (int(decimal[1]) < 38 or int(decimal[2]) <= 6)
    step = Decimal(1).scaleb(-int(decimal[2])) if decimal and is_exact else _STEPS.get(str(field.type))
    try:
        if step is not None:
            return store(field, value + step)
    except (OverflowError, errors.SchemaMismatchError):
        pass
    raise errors.InvalidMergeError(f"The inclusive end {value!r} has no next value of type {field.text} (H12).")
