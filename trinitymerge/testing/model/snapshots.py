"""Full extracts (H11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import AmbiguousMergeError, InvalidMergeError, NullKeyError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.events import Event, delete_of
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.outcomes import Key
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.validate import Names
from trinitymerge.testing.model.values import (
    alive_value,
    default_value,
    is_tombstone,
    order_key,
    order_keys,
    store,
    zero,
)


@attrs.frozen
class Moment:
    """A moment at which snapshots are taken, and what the table says of it.

    Attributes:
        at: the watermark.
        held: the stored rows that hold then, by key.
    """

    at: Any
    held: Mapping[Key, Row]


def check_snapshot(names: Names, at: Any, missing: str) -> None:
    """Refuses what no data could make right.

    Raises:
        InvalidMergeError: the table has no single watermark, the moment is null, or the source lacks a column.
    """
    definition = names.definition
    if len(definition.watermarkKey) != 1:
        raise InvalidMergeError("snapshot needs a table whose watermark is one column: at= is its value.")
    if at is None:
        raise InvalidMergeError("snapshot: at= is null. Give the moment at which the snapshot was taken.")
    if missing not in ("delete", "keep"):
        raise InvalidMergeError(f"snapshot: missing= is 'delete' or 'keep', got {missing!r}.")
    names.source_key()
    optional = (
        *definition.watermarkKey,
        definition.tombstoneKey,
        *(f.name for f in definition.fields if f.may_be_left_out),
    )
    lacking = [n for n in definition.names if n not in optional and names.source_column(n) is None]
    if lacking:
        raise InvalidMergeError(f"The source has no column {', '.join(lacking)}.", columns=lacking)


def read_snapshot(names: Names, source: Iterable[Row], at: Any) -> dict[Key, Row]:
    """The rows of a snapshot as they would be stored, by key, tombstones among them.

    Raises:
        NullKeyError: a key is null.
        AmbiguousMergeError: a key has several rows that are not the same.
        SchemaMismatchError: a value does not fit its column.
    """
    rules, found = RowRules(names.definition), dict[Key, Row]()
    for given in source:
        row = _stored_row(names, given, at)
        other = found.setdefault(rules.key(row), row)
        if rules.content(row) != rules.content(other) and not (rules.is_tombstone(row) and rules.is_tombstone(other)):
            raise AmbiguousMergeError(
                f"The snapshot has several rows for {', '.join(names.definition.primaryKey)} = {rules.key(row)}.",
                keys=[rules.key(row)],
            )
    return found


def _stored_row(names: Names, given: Row, at: Any) -> Row:
    definition = names.definition
    columns = {name: names.source_column(name) for name in definition.names if name not in definition.watermarkKey}
    row = {name: given[column] for name, column in columns.items() if column is not None}
    if any(row[name] is None for name in definition.primaryKey):
        raise NullKeyError(f"A row of the snapshot has a null in the primary key: {given}. Filter it out.")
    row = {definition.tombstone_column: alive_value(definition), **row, definition.watermarkKey[0]: at}
    told = {name: _store(definition, name, row[name]) for name in RowRules(definition).of_tombstones}
    if is_tombstone(definition, told[definition.tombstone_column]):  # S9: the rest is not judged
        blank = {field.name: None if field.nullable else zero(field) for field in definition.stored_fields}
        return {**blank, **told}
    return {f.name: _store(definition, f.name, row.get(f.name, default_value(f))) for f in definition.stored_fields}


def _store(definition: TableDefinition, name: str, value: Any) -> Any:
    return store(definition.field(name), value, isKey=name in definition.primaryKey)


def snapshot_events(
    names: Names,
    snapshot: Mapping[Key, Row],
    now: Moment,
    following: Moment | None,
    written: Mapping[Key, list[Any]],
    keep: bool,
) -> list[Event]:
    """What has to be written so that at its moment the snapshot holds, and at the next one what held there (H11).

    Args:
        names: of table and source.
        snapshot: by key.
        now: its moment.
        following: the next moment at which a snapshot was taken, if any.
        written: the watermarks of the stored rows of each key.
        keep: whether keys that the snapshot lacks stay.

    Returns:
        Rows and deletes at one of the two moments.
    """
    definition, rules = names.definition, RowRules(names.definition)
    compared = [n for n in definition.names if names.source_column(n) is not None and n not in definition.watermarkKey]
    lacking = [f for f in definition.fields if f.may_be_left_out and names.source_column(f.name) is None]
    events: dict[Key, Event] = {}
    for key, row in snapshot.items():
        held = now.held.get(key)
        if rules.is_tombstone(row):
            if held is not None:
                events[key] = delete_of(definition, key, {definition.watermarkKey[0]: now.at})
        elif held is None or _content(row, compared) != _content(held, compared):
            kept = {f.name: held[f.name] for f in lacking} if held is not None else {}  # S22
            events[key] = _upsert(definition, {**row, **kept}, now.at)
    for key in [] if keep else now.held:
        if key not in snapshot:
            events[key] = delete_of(definition, key, {definition.watermarkKey[0]: now.at})
    if following is None:
        return list(events.values())
    return [
        *events.values(),
        *(_as_it_was(definition, key, following) for key in events if not _told(key, now, following, written)),
    ]


def _content(row: Row, columns: list[str]) -> tuple[Any, ...]:
    return order_keys(row[name] for name in columns)


def _told(key: Key, now: Moment, following: Moment, written: Mapping[Key, list[Any]]) -> bool:
    """True if something is stored after this moment and up to the next: it says what holds there."""
    low, high = order_key(now.at), order_key(following.at)
    return any(low < order_key(watermark) <= high for watermark in written.get(key, []))


def _as_it_was(definition: TableDefinition, key: Key, moment: Moment) -> Event:
    held = moment.held.get(key)
    if held is None:
        return delete_of(definition, key, {definition.watermarkKey[0]: moment.at})
    return _upsert(definition, held, moment.at)


def _upsert(definition: TableDefinition, row: Row, at: Any) -> Event:
    return Event({**{name: row[name] for name in definition.names}, definition.watermarkKey[0]: at})
