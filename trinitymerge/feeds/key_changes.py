"""Rows whose primary key changes: their old keys are deleted (U7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.errors import AmbiguousMergeError, NullKeyError, counted
from trinitymerge.feeds.casts import cast_to_stored
from trinitymerge.feeds.events import CALL, ChangeEvents, free_name, with_deletes
from trinitymerge.log.actions import PurgeKeys
from trinitymerge.merge.compile.join import materialize
from trinitymerge.rows.purged_keys import is_purged, purged_keys
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql


def with_deletes_of_old_keys(
    events: ChangeEvents, own: TableDefinition, purged: PurgeKeys | None
) -> tuple[ChangeEvents, int | None]:
    """Evaluate the events if they may have old keys, and add a delete of each old key at the place of its event.

    The result is the events, with old keys only where the key changes and in the table's types, and how many there were; None if
    they were not evaluated.
    """
    if not events.old_key:
        return events, None
    rows, count, moved = _with_moves(events, own)
    moves = free_name("moves", [*events.rows.columns, *own.names])
    if not moved:
        return attrs.evolve(events, rows=rows.drop(*events.old_key), old_key=()), count
    exact, old_key = E.is_case_sensitive(rows.sparkSession), [*map(E.quote, events.old_key)]
    rows = _without_purged(rows, own, events.old_key, purged) if purged is not None else rows
    names = {name: E.find_name(name, rows.columns, exact) or name for name in (*own.primaryKey, *own.watermarkKey)}
    _check_one_old_key(rows.filter(C.MOVES), own, names, events.old_key)
    gone = rows.filter(E.is_not_null(old_key[0]))
    size, at = len(own.primaryKey), [f"{E.quote(names[w])} AS {E.quote(w)}" for w in own.watermarkKey]
    also = (*events.carried, events.number) if events.number else ()
    shown = [f"{key} AS {E.quote(name)}" for key, name in zip(old_key, own.primaryKey, strict=True)]
    gone = gone.selectExpr(*shown, *at, *map(E.quote, also))
    told = rows.selectExpr(
        *[f"{_in_table(rows, names[k], k, own)} AS {C.KEY_TO_FIND(i)}" for i, k in enumerate(own.primaryKey)],
        *[f"{E.quote(names[w])} AS {C.KEY_TO_FIND(size + i)}" for i, w in enumerate(own.watermarkKey)],
    )
    same_place = [E.equals(E.quote(k), C.KEY_TO_FIND(i)) for i, k in enumerate(own.primaryKey)]
    same_place += [E.same(E.quote(w), C.KEY_TO_FIND(size + i)) for i, w in enumerate(own.watermarkKey)]
    # If the batch has an event of the old key at that place, that event says what the key is there.
    gone = gone.join(told, F.expr(E.all_of(same_place)), "left_anti")
    there = attrs.evolve(events, rows=rows.withColumnRenamed(C.MOVES, moves), moves=moves)
    return with_deletes(there, own, [*map(E.quote, own.watermarkKey)], gone, also), count


def _in_table(rows: DataFrame, column: str, key: str, own: TableDefinition) -> Sql:
    return cast_to_stored(rows, column, own.field(key), CALL, is_key=True)


def _with_moves(events: ChangeEvents, own: TableDefinition) -> tuple[DataFrame, int, int]:
    """Return the events, evaluated, how many there are, and how many change a key. If any does, the events have :data:`C.MOVES`."""
    rows = events.rows
    exact = E.is_case_sensitive(rows.sparkSession)
    before = [_in_table(rows, column, key, own) for column, key in zip(events.old_key, own.primaryKey, strict=True)]
    after = [_in_table(rows, E.find_name(key, rows.columns, exact) or key, key, own) for key in own.primaryKey]
    moves = E.all_of([E.is_not_null(before[0]), E.not_(E.all_of(map(E.same, before, after)))])
    incomplete = E.all_of([E.any_of(map(E.is_null, before)), E.any_of(map(E.is_not_null, before))])
    once = materialize(rows, {"incomplete": f"count_if({incomplete})", "moves": f"count_if({moves})"})
    rows, observed = once.frame, once.observed
    if observed["incomplete"]:
        raise NullKeyError(
            f"{CALL}: {counted(observed['incomplete'], 'event')} of the source have an old key with a null in a part of it "
            f"({', '.join(own.primaryKey)}). Nothing was written. movedFrom is the whole key, or null in all parts.",
            columns=own.primaryKey,
            rows=observed["incomplete"],
        )
    if not observed["moves"]:
        return rows, once.rows, 0
    old = {name: E.case([(moves, value)]) for name, value in zip(events.old_key, before, strict=True)}
    shown = [f"{old.get(c, E.quote(c))} AS {E.quote(c)}" for c in rows.columns]
    return rows.selectExpr(*shown, f"{moves} AS {C.MOVES}"), once.rows, observed["moves"]


def _without_purged(rows: DataFrame, own: TableDefinition, old_key: Sequence[str], purged: PurgeKeys) -> DataFrame:
    """Return the events without old keys that have been purged (S39a): no row may name them again."""
    on = E.all_of([C.MOVES, is_purged(own, purged, [*map(E.quote, old_key)])])
    joined = rows.join(F.broadcast(purged_keys(rows.sparkSession, purged)), F.expr(on), "left")
    left = {c: f"CASE WHEN {C.PURGED} IS NULL THEN {E.quote(c)} END AS {E.quote(c)}" for c in old_key}
    return joined.selectExpr(*[left.get(c, E.quote(c)) for c in rows.columns])


def _check_one_old_key(
    moved: DataFrame, own: TableDefinition, names: Mapping[str, str], old_key: Sequence[str]
) -> None:
    places = [E.quote(name) for name in names.values()]
    keys = f"count(DISTINCT struct({', '.join(map(E.quote, old_key))}))"
    found = moved.groupBy(*map(F.expr, places)).agg(F.expr(keys).alias("n")).filter("n > 1").limit(1).collect()
    if found:
        told = ", ".join(f"{name}={found[0][column]}" for name, column in names.items())
        raise AmbiguousMergeError(
            f"{CALL}: the keys of different rows are changed to the same key at the same place in the sequence ({told}). Nothing "
            "was written. A later event needs a greater sequence.",
            columns=own.primaryKey,
        )
