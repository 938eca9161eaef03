"""Rows whose primary key changes: their old keys are deleted (U7)."""

from __future__ import annotations

import attrs

from trinitymerge.errors import NullKeyError, counted
from trinitymerge.feeds.casts import cast_to_stored
from trinitymerge.feeds.events import CALL, ChangeEvents, with_deletes
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.expressions import (
    all_of,
    any_of,
    case,
    find_name,
    is_case_sensitive,
    is_not_null,
    is_null,
    not_,
    quote,
    same,
)
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.sql_text import Sql


def with_deletes_of_old_keys(events: ChangeEvents, own: TableDefinition) -> tuple[ChangeEvents, int | None]:
    """Evaluate the events if they may have old keys, and add a delete of each old key at the place of its event.

    Args:
        events: of the table's columns, without truncates.
        own: the table.

    Returns:
        The events, with old keys only where the key changes and in the table's types, and how many there were; None if they were
        not evaluated.

    Raises:
        NullKeyError: an old key is null in part.
        SchemaMismatchError: the type of an old key does not fit that of the key.
    """
    if not events.old_key:
        return events, None
    rows = events.rows.localCheckpoint()
    exact = is_case_sensitive(rows.sparkSession)

    def in_table(column: str, key: str) -> Sql:
        return cast_to_stored(rows, column, own.field(key), CALL, is_key=True)

    before = [in_table(column, key) for column, key in zip(events.old_key, own.primaryKey, strict=True)]
    after = [in_table(find_name(key, rows.columns, exact) or key, key) for key in own.primaryKey]
    moves = all_of([is_not_null(before[0]), not_(all_of(map(same, before, after)))])
    incomplete = all_of([any_of(map(is_null, before)), any_of(map(is_not_null, before))])
    counts = {"n": "count(1)", "incomplete": f"count_if({incomplete})", "moves": f"count_if({moves})"}
    observed = Metrics(counts).compute(rows)
    if observed["incomplete"]:
        raise NullKeyError(
            f"{CALL}: {counted(observed['incomplete'], 'event')} of the source have an old key with a null in a part of it "
            f"({', '.join(own.primaryKey)}). Nothing was written. movedFrom is the whole key, or null in all parts.",
            columns=own.primaryKey,
            rows=observed["incomplete"],
        )
    if not observed["moves"]:
        return attrs.evolve(events, rows=rows.drop(*events.old_key), old_key=()), observed["n"]
    old = {name: case([(moves, value)]) for name, value in zip(events.old_key, before, strict=True)}
    rows = rows.selectExpr(*[f"{old.get(c, quote(c))} AS {quote(c)}" for c in rows.columns])
    gone = rows.filter(is_not_null(quote(events.old_key[0])))
    marks = [find_name(w, rows.columns, exact) or w for w in own.watermarkKey]
    keys = [f"{quote(name)} AS {quote(key)}" for name, key in zip(events.old_key, own.primaryKey, strict=True)]
    at = [f"{quote(name)} AS {quote(w)}" for name, w in zip(marks, own.watermarkKey, strict=True)]
    there = attrs.evolve(events, rows=rows)
    return with_deletes(there, own, [*map(quote, own.watermarkKey)], gone.selectExpr(*keys, *at)), observed["n"]
