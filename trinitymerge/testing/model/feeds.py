"""Feeds as merges: change events (H9, U1-U6), extracts (H11), and the first rows of a load (S12a)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from trinitymerge.errors import AmbiguousMergeError, NullKeyError, SchemaMismatchError
from trinitymerge.merge.model.clauses import All, Clause, Delete, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.types import Path
from trinitymerge.testing.model.expressions import Expr, evaluate
from trinitymerge.testing.model.registers import (
    MOVED_FROM,
    UNSET,
    Instant,
    Registers,
    Statements,
    Stored,
    null_parts,
    parts_of,
    register_columns,
)
from trinitymerge.testing.model.rows import Names, RowRules, require
from trinitymerge.testing.model.values import (
    Key,
    Row,
    alive_value,
    default_value,
    is_tombstone,
    key_value,
    order_key,
    order_keys,
    tombstone_value,
)

DELETE = "_tm_delete"
"""The column of an event that is true for deletes. All other columns are the table's."""

SOURCE = "_tm_source"
"""The entry of an event with the number of its source row."""

EVENT_CLAUSES: tuple[Clause, ...] = (
    WhenMatched(lambda _, event: event[DELETE], [Delete()]),
    WhenMatched(None, [Update(All())]),
    WhenNotMatched(lambda _, event: not event[DELETE], [Insert(All())]),
)


def firsts(names: Names, rows: Sequence[Mapping[str, Any]], order: Callable[[Any], Any]) -> Sequence[Mapping[str, Any]]:
    """Return the rows that are first in an order among those of equal key and watermark (S12a)."""
    rules, own = RowRules(names.definition), names.definition
    columns = {n: c for n in (*own.primaryKey, *own.watermarkKey) if (c := names.source_column(n)) is not None}

    def group_of(row: Mapping[str, Any]) -> Any:
        """Return None for a row without a key or place of the table: it is refused, or goes into the quarantine."""
        try:
            stored = {n: rules.store(n, row[column]) for n, column in columns.items()}
        except SchemaMismatchError:
            return None
        return None if any(stored.get(k) is None for k in own.primaryKey) else order_keys(stored.values())

    groups = list(map(group_of, rows))
    least: dict[Any, Any] = {}
    for group, row in zip(groups, rows, strict=True):
        least[group] = min(least.get(group, order(row)), order(row))
    return [row for group, row in zip(groups, rows, strict=True) if group is None or order(row) == least[group]]


# Change events (H9, U1-U6) ------------------------------------------------------------------------------------


@attrs.frozen
class Feed:
    """A call of ``applyChanges``: its arguments of these names, and the columns of both sides (H9).

    An expression is an ``Expr`` over the source, a callable of one of its rows, or a literal.
    """

    names: Names
    sequenceBy: tuple[Any, ...]
    applyAsDeletes: Any
    applyAsTruncates: Any
    columns: tuple[str, ...] | None
    exceptColumns: tuple[str, ...]
    unchanged: Any = None
    columnsToUpdate: Any = None
    ignoreNullUpdates: tuple[str, ...] = ()
    movedFrom: tuple[Any, ...] = ()

    @property
    def taken(self) -> list[str]:
        """The columns taken from the source's of the same name: the key always, watermarks never."""
        own, excepted = self.names.definition, {name.lower() for name in self.exceptColumns}
        listed = own.names if self.columns is None else map(self.names.target_column, self.columns)
        wanted = {*own.primaryKey, *(name for name in listed if name.lower() not in excepted)} - {*own.watermarkKey}
        return [name for name in own.names if name in wanted]

    @property
    def lacking(self) -> list[str]:
        """The taken columns that the source lacks, and may lack (S22)."""
        own = self.names.definition
        absent = [own.field(name) for name in self.taken if self.names.source_column(name) is None]
        may_lack = self.columns is None
        return [f.name for f in absent if may_lack and f.may_be_left_out and f.name != own.tombstoneKey]

    def check(self) -> None:
        """Raise InvalidMergeError for events that the table cannot take, with any data."""
        own, taken = self.names.definition, self.taken
        require(len(self.sequenceBy) == len(own.watermarkKey), "A sequence has a value for each watermark column (H9).")
        optional = {own.tombstoneKey, *self.lacking}
        for name in (*self.sequenceBy, *taken):
            if isinstance(name, str) and name not in optional:
                self.names.required(name)
        decided = {*taken, *own.watermarkKey, own.tombstone_column}
        left = [field.name for field in own.fields if not field.nullable and field.name not in decided]
        require(not left, f"Columns {left} are not nullable, and no event has a value for them (H9).")
        ways = [self.unchanged is not None, self.columnsToUpdate is not None, bool(self.ignoreNullUpdates)]
        require(sum(ways) <= 1, "Events name in one way what they leave unset (U6).")
        if self.movedFrom:
            require(bool(own.watermarkKey), "A change of the key has a place in a sequence (U7).")
            require(len(self.movedFrom) == len(own.primaryKey), "An old key has a value for each key column (U7).")

    def read(self, source: Iterable[Row]) -> tuple[list[Row], list[Row]]:
        """Return the events of keys, deletes of old keys among them, and the watermarks of truncates."""
        events, truncates, deletes, olds = list[Row](), list[Row](), list[Row](), dict[Any, Key]()
        rules = RowRules(self.names.definition)

        def place(event: Row) -> Any:
            return order_keys(rules.key(event)), rules.watermark_order(event)

        for number, row in enumerate(source):
            watermark = self._watermark(row)
            if is_true(self.applyAsTruncates, row):
                truncates.append(watermark)
            else:
                event = self._event(row) | watermark | {SOURCE: number}
                old = self._old_key(row, event)
                left = {} if old is None else {MOVED_FROM: old}
                events.append(event | (left if event[UNSET] else {}))
                own = self.names.definition
                deletes.extend(_delete_of(own, key, watermark) | {SOURCE: number} for key in left.values())
                if old is not None and olds.setdefault(place(event), old) != old:
                    raise AmbiguousMergeError(f"U7: rows of {old} and another key become {event}.", keys=[old])
        told = {place(event) for event in events}
        return [*events, *(delete for delete in deletes if place(delete) not in told)], truncates

    def _old_key(self, row: Row, event: Row) -> Key | None:
        """Return the key that an event's row had before, if it is another one (U7)."""
        own, rules = self.names.definition, RowRules(self.names.definition)
        values = self.old_values(row)
        if all(value is None for value in values):
            return None
        if None in values:
            raise NullKeyError(f"U7: event {row} has a null in a part of its old key.")
        old = tuple(rules.store(n, value) for n, value in zip(own.primaryKey, values, strict=True))
        return None if order_keys(old) == order_keys(rules.key(event)) else old

    def old_values(self, row: Row) -> list[Any]:
        """Return the old key that an event names, as it is in the source (U7)."""
        return [row[self.names.required(e)] if isinstance(e, str) else _value(e, row) for e in self.movedFrom]

    def arrival(self, row: Row) -> tuple[Any, Key | None]:
        """Return the place of an event, and the key that its row had before, or None."""
        rules, event = RowRules(self.names.definition), self._event(row) | self._watermark(row)
        return (order_keys(rules.key(event)), rules.watermark_order(event)), self._old_key(row, event)

    def sequence(self, row: Row) -> list[Any]:
        """Return the sequence of an event, as it is in the source."""
        return [row[self.names.required(e)] if isinstance(e, str) else _value(e, row) for e in self.sequenceBy]

    def _watermark(self, row: Row) -> Row:
        rules = RowRules(self.names.definition)
        values = self.sequence(row)
        if None in values:
            raise NullKeyError(f"H9: event {row} has a null in its sequence.")
        return {n: rules.store(n, value) for n, value in zip(self.names.definition.watermarkKey, values, strict=True)}

    def _event(self, row: Row) -> Row:
        own, rules = self.names.definition, RowRules(self.names.definition)
        values = {name: row[column] for name in self.taken if (column := self.names.source_column(name)) is not None}
        key = {n: rules.store(n, values[n]) for n in own.primaryKey if values[n] is not None}  # null keys: S34
        alive = {own.tombstoneKey: alive_value(own)} if own.tombstoneKey else {}
        is_delete = is_true(self.applyAsDeletes, row)
        event = {**dict.fromkeys(own.names), **alive, **values, **key, DELETE: is_delete}
        return event | {UNSET: frozenset() if is_delete else self.unset(row, event)}

    def unset(self, row: Row, event: Row) -> frozenset[Path]:
        """Return the parts of columns that an event leaves as they are (U2, U6)."""
        fields = {field.name: field for field in register_columns(self.names.definition)}
        unchanged, updated = _value(self.unchanged, row), _value(self.columnsToUpdate, row)
        named = [self.names.target_column(name) for name in (*(unchanged or ()), *(updated or ()))]
        require({*named} <= {*fields}, f"{named} are not all columns that an event may leave unchanged (U2).")
        left = {*self.lacking}
        left |= {*fields} - {*named} if updated is not None else {*named}
        nulls = [path for name in self.ignoreNullUpdates for path in null_parts(fields[name], event[name])]
        return frozenset((*nulls, *(path for name in left if name in fields for path in parts_of(fields[name]))))


def _value(expression: Any, row: Row) -> Any:
    is_call = callable(expression) and not isinstance(expression, Expr)
    return expression(row) if is_call else evaluate(expression, None, row)


def is_true(condition: Any, row: Row) -> bool:
    return _value(condition, row) is True


def is_dead(rules: RowRules, event: Row) -> bool:
    """Return whether it is a delete, or a row that is a tombstone by itself."""
    column, own = rules.definition.tombstone_column, rules.definition
    value = event.get(column)
    return bool(event.get(DELETE)) or (value is not None and is_tombstone(own, rules.store(column, value)))


def _delete_of(definition: TableDefinition, key: Key, watermark: Row) -> Row:
    of_key = dict(zip(definition.primaryKey, key, strict=True))
    return {**dict.fromkeys(definition.names), **of_key, **watermark, DELETE: True, UNSET: frozenset()}


def since_truncate(
    definition: TableDefinition, events: list[Row], truncates: list[Row]
) -> tuple[list[Row], tuple[Row, ...]]:
    """Return the events that truncates of their batch leave, and the truncates: without history the freshest one (H9, T1)."""
    if not truncates:
        return events, ()
    order = RowRules(definition).watermark_order
    if definition.history:
        places = {order(truncate) for truncate in truncates}
        return [event for event in events if order(event) not in places], tuple(truncates)
    last = max(truncates, key=order)
    return [event for event in events if order(event) > order(last)], (last,)


def beside_truncates(definition: TableDefinition, events: list[Row], truncates: Iterable[Row]) -> list[Row]:
    """Return the events, and the deletes that truncates are of their keys."""
    keys = {RowRules(definition).key(event) for event in events}
    return [*events, *(_delete_of(definition, key, truncate) for key in keys for truncate in truncates)]


def filled(definition: TableDefinition, events: Iterable[Row], stored: Statements, version: int) -> list[Row]:
    """Return the events of one batch with the values that they leave unset (U1); ``version`` is the one that it will have.

    Each takes them from the rows and events of its key that are older, or, in the table, as old. Of several events of one
    moment, each says what one of them says.
    """
    rules, of_keys = RowRules(definition), dict[Key, list[tuple[Instant, Row]]]()
    found: list[Row] = []
    for event in events:
        moment = rules.watermark_order(event) if definition.watermarkKey else (version,)
        if None in rules.key(event):
            found.append(event)  # refused by the merge (S34)
        else:
            of_keys.setdefault(rules.key(event), []).append((moment, event))
    statements = {
        key: [*stored.get(key, ()), *((at, _as_stored(rules, event, version)) for at, event in of_keys.get(key, ()))]
        for key in {*stored, *of_keys}
    }
    registers = Registers(definition, {key: sorted(of_key, key=_place) for key, of_key in statements.items()})
    for key, own in of_keys.items():
        for moment, event in own:
            together = [event[UNSET] for at, event in own if at == moment]
            known = [s for s in registers.statements[key] if _place(s) < (moment, version)]
            *_, (_, row) = registers.resolved([*known, (moment, _as_stored(rules, event, version))])
            filled = event if is_dead(rules, event) else {**event, **row.row}
            found.append(filled | {UNSET: frozenset.intersection(*together)})
    return found


def _place(statement: tuple[Instant, Stored]) -> tuple[Instant, int]:
    return statement[0], statement[1].version


def _as_stored(rules: RowRules, event: Row, version: int) -> Stored:
    own = rules.definition
    if is_dead(rules, event):
        return Stored(rules.bare(event | {own.tombstone_column: tombstone_value(own, _ANY_TIME)}), version, version)
    row = {own.tombstone_column: False, **event}
    values = {field.name: rules.store(field.name, row[field.name]) for field in own.stored_fields}
    hidden = {name: event[name] for name in (UNSET, MOVED_FROM) if name in event}
    return Stored(values | hidden, version, version)


_ANY_TIME = dt.datetime(2000, 1, 1)


# Extracts (H11) ---------------------------------------------------------------------------------------------


def check_snapshot(names: Names, at: Any) -> None:
    """Raise InvalidMergeError for an extract that the table cannot take, with any data."""
    own = names.definition
    require(len(own.watermarkKey) == 1 and at is not None, "An extract has one moment, the table's watermark (H11).")
    for field in own.fields:
        if field.name not in (*own.watermarkKey, own.tombstoneKey) and not field.may_be_left_out:
            names.required(field.name)


@attrs.frozen
class Extract:
    """A full extract (H11).

    Attributes:
        rows: as they would be stored, by key, tombstones among them.
        rejected: the source rows that go into the quarantine, each with its reason (S47).
        untouched: the keys of those of them that have one: they are not missing.
        written: keys whose row is written though it may be equal: another row of the key, which is rejected, differs.
        keyless: a rejected row has no key: no key counts as missing.
    """

    rows: Mapping[Key, Row]
    rejected: tuple[tuple[Row, str], ...] = ()
    untouched: frozenset[Key] = frozenset()
    written: frozenset[Key] = frozenset()
    keyless: bool = False


def read_snapshot(names: Names, source: Iterable[Row], at: Any) -> Extract:
    own, rules, found = names.definition, RowRules(names.definition), dict[Key, Row]()
    for given in source:
        row = _extract_row(names, given, at)
        if None in rules.key(row):
            raise NullKeyError(f"H11: row {given} has a null in its primary key.")
        row = _stored_of_extract(rules, row)
        key, other = rules.key(row), found.setdefault(rules.key(row), row)
        if not _are_equal(rules, row, other):
            raise AmbiguousMergeError(f"H11: the extract has different rows of {own.primaryKey} = {key}.", keys=[key])
    return Extract(found)


def judged_snapshot(
    names: Names,
    source: Iterable[Row],
    at: Any,
    held: Mapping[Key, Row],
    checks: Mapping[str, Callable[[Row], bool | None]],
) -> Extract:
    """Return the extract without the rows that would refuse its merge (S47): each has a reason."""
    rules, groups = RowRules(names.definition), dict[Key, list[_Given]]()
    rejected, rows, untouched, kept, keyless = list[tuple[Row, str]](), dict[Key, Row](), set[Key](), set[Key](), 0
    for given in source:
        row = _extract_row(names, given, at)
        found = _Given.of(rules, row, given)
        keyless += found.key is None
        if found.misfit or found.key is None:
            rejected.append((given, found.misfit or "null-key"))
            untouched |= set() if found.key is None else {found.key}
        else:
            groups.setdefault(found.key, []).append(found)
    for key, group in groups.items():
        contradict = any(not group[0].equals(other, rules) for other in group)
        left = list[_Given]()
        for one in group:
            reason = one.null
            if one.stored is not None:
                dies = rules.is_tombstone(one.stored)
                is_written = not dies and (contradict or _differs(names, one.stored, held.get(key)))
                whole = one.stored | _lacking(names, held.get(key))
                broken = (f"check:{n}" for n, holds in checks.items() if is_written and holds(whole) is False)
                reason = next(broken, "")
            if reason:
                rejected.append((one.given, reason))
            else:
                left.append(one)
        if any(not left[0].equals(other, rules) for other in left):
            rejected += [(one.given, "ambiguous") for one in left]
            left = []
        if left and left[0].stored is not None:
            rows[key] = left[0].stored
            kept |= {key} if contradict else set()
        untouched |= set() if left else {key}
    return Extract(rows, tuple(rejected), frozenset(untouched), frozenset(kept), bool(keyless))


@attrs.frozen
class _Given:
    """A row of an extract that is judged.

    Attributes:
        key: None if a part of it is null, or is not a value of its column.
        stored: as it would be stored; None if it has a null where it must not.
        misfit, null: why it is rejected; or empty.
    """

    given: Row
    key: Key | None
    stored: Row | None
    misfit: str = ""
    null: str = ""

    @classmethod
    def of(cls, rules: RowRules, row: Row, given: Row) -> _Given:
        own, key, misfits, nulls = rules.definition, list[Any](), list[str](), list[str]()
        dead = row[own.tombstone_column]
        dies = dead is not None and _fits(rules, own.tombstone_column, dead) and rules.is_tombstone(
            {own.tombstone_column: rules.store(own.tombstone_column, dead)}
        )  # fmt: skip
        for field in own.fields:
            name, value = field.name, row[field.name]
            is_fit = value is None or _fits(rules, name, value)
            if name in own.primaryKey:
                key.append(key_value(field, value) if is_fit and value is not None else None)
            if dies and name not in rules.of_tombstones:
                continue
            misfits += [] if is_fit else [f"type:{name}"]
            nulls += [f"null:{name}"] if value is None and not field.nullable and name not in own.primaryKey else []
        misfit, null = next(iter(misfits), ""), next(iter(nulls), "")
        is_whole = None not in key and not misfit and not null
        return cls(
            given,
            None if None in key else tuple(key),
            _stored_of_extract(rules, row) if is_whole else None,
            misfit,
            null,
        )

    def equals(self, other: _Given, rules: RowRules) -> bool:
        if self.stored is None or other.stored is None:
            return self.given == other.given
        return _are_equal(rules, self.stored, other.stored)


def _extract_row(names: Names, given: Row, at: Any) -> Row:
    own = names.definition
    columns = {n: c for n in own.names if n not in own.watermarkKey and (c := names.source_column(n)) is not None}
    unset = {f.name: default_value(f) for f in own.fields} | {own.tombstone_column: alive_value(own)}
    return {**unset, **{name: given[column] for name, column in columns.items()}, own.watermarkKey[0]: at}


def _fits(rules: RowRules, name: str, value: Any) -> bool:
    try:
        if name in rules.definition.primaryKey:
            key_value(rules.definition.field(name), value)  # S17a
        rules.store(name, value)
    except SchemaMismatchError:
        return False
    return True


def _stored_of_extract(rules: RowRules, row: Row) -> Row:
    keys = {n: key_value(rules.definition.field(n), row[n]) for n in rules.definition.primaryKey}  # S17a
    stored = rules.stored({**row, **keys})
    return rules.bare(stored) if rules.is_tombstone(stored) else stored


def _are_equal(rules: RowRules, row: Row, other: Row) -> bool:
    are_tombstones = rules.is_tombstone(row) and rules.is_tombstone(other)
    return are_tombstones or rules.content(row) == rules.content(other)


def _lacking(names: Names, held: Row | None) -> Row:
    """Return what an extract lacks, as it is held (S22)."""
    lacking = [f.name for f in names.definition.fields if f.may_be_left_out and names.source_column(f.name) is None]
    return {} if held is None else {name: held[name] for name in lacking}


def _differs(names: Names, row: Row, held: Row | None) -> bool:
    own = names.definition
    compared = [name for name in own.names if names.source_column(name) is not None and name not in own.watermarkKey]
    return held is None or any(order_key(row[n]) != order_key(held[n]) for n in compared)


@attrs.frozen
class Moment:
    """A moment of an extract, and the stored rows that the table holds then, by key."""

    at: Any
    held: Mapping[Key, Row]


def snapshot_events(
    names: Names,
    extract: Extract,
    now: Moment,
    following: Moment | None,
    stored: Mapping[Key, list[Stored]],
    keep: bool,
) -> list[Row]:
    """Return the events after which the extract holds at its moment, and at the next one what held there (H11).

    ``following`` is the next moment of an extract, if there is one; ``keep`` leaves keys that the extract lacks.
    """
    own, rules = names.definition, RowRules(names.definition)
    (watermark,) = own.watermarkKey

    def event(key: Key, row: Row | None, at: Any) -> Row:
        if row is None:
            return _delete_of(own, key, {watermark: at})
        return {name: row[name] for name in own.names} | {watermark: at, DELETE: False}

    written: dict[Key, Row | None] = {}
    for key, row in extract.rows.items():
        held = now.held.get(key)
        if rules.is_tombstone(row):
            if held is not None:
                written[key] = None
        elif key in extract.written or _differs(names, row, held):
            written[key] = row | _lacking(names, held)
    known = extract.rows.keys() | extract.untouched
    written |= {key: None for key in ([] if keep or extract.keyless else now.held) if key not in known}
    events = [event(key, row, now.at) for key, row in written.items()]
    if following is not None:
        low, high = order_key(now.at), order_key(following.at)
        for key in written:
            moments = (order_key(s.row[watermark]) for s in stored.get(key, []))
            if not any(low < moment <= high for moment in moments):
                events.append(event(key, following.held.get(key), following.at))
    return events
