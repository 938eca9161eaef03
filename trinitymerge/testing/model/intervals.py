"""SCD type 2 rows with intervals (H12)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import pairwise, zip_longest
from typing import Any

import attrs

from trinitymerge.errors import (
    DuplicateKeyError,
    InvalidMergeError,
    NullKeyError,
    SchemaMismatchError,
    TrinityMergeError,
    counted,
    did_you_mean,
)
from trinitymerge.schema.definition import HIDDEN_TOMBSTONE, TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.outcomes import Key
from trinitymerge.testing.model.values import order_key, order_keys, store, zero

_DAY, _MICROSECOND = dt.timedelta(days=1), dt.timedelta(microseconds=1)
_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), 1),
    "date": _DAY,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), _MICROSECOND),
}


@attrs.frozen
class Intervals:
    """A dimension as versions and tombstones.

    Attributes:
        definition: its columns but for the end; the begin is the watermark.
        rows: what is to be committed.
        empty: how many intervals were left out because they are empty.
    """

    definition: TableDefinition
    rows: tuple[Row, ...]
    empty: int


@attrs.frozen
class _Interval:
    """One row; an open one has no end."""

    key: Key
    row: Row
    begins: Any
    ends: Any
    isOpen: bool

    @property
    def backwards(self) -> bool:
        return not self.isOpen and order_key(self.ends) < order_key(self.begins)

    @property
    def isEmpty(self) -> bool:
        return not self.isOpen and order_key(self.ends) == order_key(self.begins)

    def reaches_into(self, following: _Interval) -> bool:
        return self.isOpen or order_key(following.begins) < order_key(self.ends)


@attrs.frozen
class _Ends:
    """How the ends of intervals are written."""

    field: Field
    openEnd: Any
    inclusive: bool

    def of(self, row: Mapping[str, Any]) -> tuple[Any, bool]:
        """The end, exclusive, and whether the interval is open."""
        given = row[self.field.name]
        written, limit = store(self.field, given), store(self.field, self.openEnd)
        if written is None or (limit is not None and order_key(written) == order_key(limit)):
            return None, True
        if _loses(given, written):
            raise InvalidMergeError(f"The end {given!r} loses something as {self.field.text}. Cast it first.")
        return (_next(self.field, written) if self.inclusive else written), False


def read_intervals(
    fields: Iterable[Field],
    source: Iterable[Mapping[str, Any]],
    primaryKey: str | Iterable[str],
    validFrom: str,
    validTo: str,
    openEnd: Any = None,
    endInclusive: bool = False,
) -> Intervals:
    """Each row a version, and a tombstone where an interval ends and no next one begins.

    Args:
        fields: the source's columns, the interval's among them.
        source: rows.
        primaryKey: what the versions are versions of.
        validFrom: the column with the begin, null meaning from the beginning.
        validTo: the column with the end, null meaning open.
        openEnd: another value that means open.
        endInclusive: the end is the last moment that belongs to the interval.

    Raises:
        InvalidMergeError: a column is missing, an interval ends before it begins, or an inclusive end has no next value.
        NullKeyError: a key is null.
        DuplicateKeyError: intervals of one key overlap.
        SchemaMismatchError: a value does not fit its column.
    """
    fields = tuple(fields)
    begin, end = _find(fields, validFrom, "validFrom"), _find(fields, validTo, "validTo")
    definition = TableDefinition.of([f for f in fields if f != end], primaryKey, begin.name, history=True)
    ends = _Ends(Field(end.name, begin.type), openEnd, endInclusive)
    found = [_interval(definition, ends, row) for row in source]
    _refuse([i for i in found if i.backwards], InvalidMergeError, "end before they begin")
    filled = [interval for interval in found if not interval.isEmpty]
    of_keys: dict[Key, list[_Interval]] = {}
    for interval in sorted(filled, key=lambda i: (order_keys(i.key), order_key(i.begins))):
        of_keys.setdefault(interval.key, []).append(interval)
    overlapping = [a for own in of_keys.values() for a, b in pairwise(own) if a.reaches_into(b)]
    _refuse(overlapping, DuplicateKeyError, "overlap the next of their key")
    rows = [row for own in of_keys.values() for row in _stored_rows(definition, own)]
    return Intervals(definition, tuple(rows), len(found) - len(filled))


def _find(fields: Iterable[Field], name: str, where: str) -> Field:
    found = {field.name.lower(): field for field in fields}
    if name.lower() not in found:
        raise InvalidMergeError(f"{where}: the source has no column '{name}'." + did_you_mean(name, found))
    return found[name.lower()]


def _refuse(intervals: list[_Interval], error: type[TrinityMergeError], what: str) -> None:
    if intervals:
        keys = [interval.key for interval in intervals]
        raise error(f"{counted(len(keys), 'interval')} {what}: {keys[:5]}. Mend them first.", keys=keys)


def _interval(definition: TableDefinition, ends: _Ends, given: Mapping[str, Any]) -> _Interval:
    if any(given[name] is None for name in definition.primaryKey):
        raise NullKeyError(f"A row has a null in the primary key: {dict(given)}. Filter it out.")
    own = {f.name: store(f, given[f.name], f.name in definition.primaryKey) for f in definition.fields}
    row, key = {**own, HIDDEN_TOMBSTONE: False}, tuple(own[name] for name in definition.primaryKey)
    return _Interval(key, row, own[definition.watermarkKey[0]], *ends.of(given))


def _stored_rows(definition: TableDefinition, intervals: list[_Interval]) -> list[Row]:
    """The versions of one key, and the tombstones of its gaps and of its end."""
    rows: list[Row] = []
    for interval, following in zip_longest(intervals, intervals[1:]):
        rows.append(interval.row)
        if not interval.isOpen and (following is None or order_key(interval.ends) < order_key(following.begins)):
            blank = {field.name: None if field.nullable else zero(field) for field in definition.fields}
            key = dict(zip(definition.primaryKey, interval.key, strict=True))
            rows.append({**blank, **key, definition.watermarkKey[0]: interval.ends, HIDDEN_TOMBSTONE: True})
    return rows


def _loses(given: Any, written: Any) -> bool:
    """True if an end is another value as it is stored: a date without the time of day, a number without its fraction."""
    if isinstance(given, dt.datetime) and not isinstance(written, dt.datetime):
        return given.time() != dt.time()
    return isinstance(given, (int, float, Decimal)) and isinstance(written, (int, float, Decimal)) and given != written


def _next(field: Field, value: Any) -> Any:
    """The smallest value after this one; the end of an interval that includes it."""
    kind = str(field.type)
    decimal = re.fullmatch(r"decimal\((\d+),(-?\d+)\)", kind)
    is_exact = decimal is not None and (int(decimal[1]) < 38 or int(decimal[2]) <= 6)
    step = Decimal(1).scaleb(-int(decimal[2])) if decimal and is_exact else _STEPS.get(kind)
    if step is not None:
        try:
            return store(field, value + step)
        except (OverflowError, SchemaMismatchError):
            raise InvalidMergeError(
                f"endInclusive: the end {value} has none after it. Give ends that are exclusive."
            ) from None
    raise InvalidMergeError(
        f"endInclusive: what comes next after a {field.text} is unknown. Give ends that are exclusive."
    )
