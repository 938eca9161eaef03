"""Truncates, ignored nulls and deduplication (H9, H10, S12a)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.events import Event, Events, delete_of, is_dead, order_of
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.outcomes import Key
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.validate import Names
from trinitymerge.testing.model.values import default_value, order_keys, store


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


RowBefore: TypeAlias = Callable[[Key, Row], Row | None]
"""Of a key and a watermark: the freshest stored row, dead or alive, that is not fresher."""


def truncated(definition: TableDefinition, events: Events, live: Mapping[Key, Row]) -> list[Event]:
    """The events of keys once truncates have had their effect (H9).

    The freshest truncate counts. Events that are not fresher give way to a delete of their key at its watermark, and so does
    each live row that is not fresher.
    """
    if not events.truncates:
        return list(events.ofKeys)
    last = max(events.truncates, key=lambda watermark: order_of(definition, watermark))
    rules, limit = RowRules(definition), order_of(definition, last)
    gone = [event for event in events.ofKeys if order_of(definition, event.row) <= limit and _has_key(rules, event)]
    keys = {rules.key(event.row) for event in gone}
    keys |= {key for key, row in live.items() if rules.watermark_order(row) <= limit}
    staying = [event for event in events.ofKeys if not any(event is other for other in gone)]
    return [*staying, *(delete_of(definition, key, last) for key in keys)]


def _has_key(rules: RowRules, event: Event) -> bool:
    return None not in rules.key(event.row)


def filled(
    definition: TableDefinition,
    events: Iterable[Event],
    columns: Iterable[str],
    before: RowBefore,
    lacking: Iterable[str] = (),
) -> list[Event]:
    """The events with values in place of nulls, from what comes before each (H10).

    Args:
        definition: of the table.
        events: of one batch.
        columns: that may be filled.
        before: of the table.
        lacking: columns that the events know nothing of: where nothing was before, they have their default (S46).

    Returns:
        The events. Each takes values from the freshest row or event of its key that is older, or, in the table, as old; from
        nothing if that is a tombstone.
    """
    rules, of_keys = RowRules(definition), dict[Key, list[Event]]()
    for event in events:
        of_keys.setdefault(rules.key(event.row), []).append(event)
    fillable = [name for name in columns if name not in (*definition.primaryKey, *definition.watermarkKey)]
    nothing = {name: default_value(definition.field(name)) for name in lacking}
    found = (_filled_key(definition, own, fillable, key, before, nothing) for key, own in of_keys.items())
    return [event for of_key in found for event in of_key]


def _filled_key(
    definition: TableDefinition, events: list[Event], columns: list[str], key: Key, before: RowBefore, nothing: Row
) -> list[Event]:
    rules, done = RowRules(definition), list[Event]()
    for event in sorted(events, key=lambda e: order_of(definition, e.row)):
        stored = before(key, rules.watermark(event.row))
        earlier = [e for e in done if rules.older(e.row, event.row)]
        if is_dead(definition, event):
            done.append(event)
        elif earlier and (stored is None or not rules.older(earlier[-1].row, stored)):
            done.append(_fill(event, columns, nothing if is_dead(definition, earlier[-1]) else earlier[-1].row))
        else:
            done.append(_fill(event, columns, nothing if stored is None or rules.is_tombstone(stored) else stored))
    return done


def _fill(event: Event, columns: list[str], values: Mapping[str, Any]) -> Event:
    found = {name: values.get(name) for name in columns if event.row[name] is None}
    return attrs.evolve(event, row={**event.row, **found})
