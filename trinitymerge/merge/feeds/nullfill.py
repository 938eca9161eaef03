"""Updates that leave out what they do not change: nulls of events are filled when they are written (H10).

Owns: the windows in which stored rows and events stand in the order of their time. What fills a null is the freshest stored row
that is not fresher than the event, whatever it holds, and the events between; never anything across a delete.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from trinitymerge.columns import KEY_TO_FIND
from trinitymerge.definition import TableDefinition
from trinitymerge.errors import InvalidMergeError, did_you_mean
from trinitymerge.expressions import (
    FALSE,
    TRUE,
    any_of,
    case,
    cast,
    find_name,
    is_case_sensitive,
    is_not_null,
    is_older,
    is_tombstone,
    not_,
    or_else,
    physical_type,
    quote,
)
from trinitymerge.history.timeline import Timeline
from trinitymerge.history.values import field_of
from trinitymerge.merge.feeds.events import CALL, Events, Feed, free_name
from trinitymerge.merge.feeds.fitting import fitting
from trinitymerge.reader import live_or_dead, only_keys
from trinitymerge.sqltext import Sql, as_sql
from trinitymerge.storage.backend import Batches, TimeTravel
from trinitymerge.storage.entries import Snapshot
from trinitymerge.widening import Path

_IS_EVENT, _HOLDS, _BEGINS, _PLACE, _PART = "is_event", "holds", "begins", "place", "part"


def filled(
    store: TimeTravel, snapshot: Snapshot, events: Events, feed: Feed, after: Sequence[Sql]
) -> tuple[Events, str]:
    """The events with their nulls filled, and the name of the column that tells what the key of each holds.

    Args:
        store: where the table is.
        snapshot: the version whose rows fill them.
        events: with the columns of the table.
        feed: says which columns.
        after: the sequence of a truncate, before which nothing fills; empty if there is none.

    Raises:
        InvalidMergeError: there is no such column.
    """
    own = snapshot.definition
    return _Filling(own, events, _columns(own, events.rows, feed), feed).over(_stored(store, snapshot, events, after))


def _columns(own: TableDefinition, rows: DataFrame, feed: Feed) -> dict[str, str]:
    """By the table's column, the events' column of that name: those whose nulls mean that nothing changed, and lacking ones."""
    exact = is_case_sensitive(rows.sparkSession)
    fixed = {*own.primaryKey, *own.watermarkKey, own.tombstone_column}
    names = [n for n in own.names if n not in fixed]
    if not isinstance(feed.ignore_nulls, bool):
        for name in feed.ignore_nulls:
            if find_name(name, names, exact) is None:
                raise InvalidMergeError(
                    f"{CALL}: ignoreNullUpdates names '{name}', which is no column that could be filled."
                    f"{did_you_mean(name, names)}",
                    column=name,
                )
    if feed.ignore_nulls is not True:
        some = (*(feed.ignore_nulls or ()), *(path[0] for path in feed.lacking))
        names = [n for n in names if find_name(n, some, exact) is not None]
    found = {n: find_name(n, rows.columns, exact) for n in names}
    return {n: column for n, column in found.items() if column is not None}


def _stored(store: TimeTravel, snapshot: Snapshot, events: Events, after: Sequence[Sql]) -> DataFrame:
    """What the table holds of the events' keys, tombstones included: all versions, or the latest rows.

    Without history no others are known, and without a declared watermark all rows are older than the events.
    """
    own = snapshot.definition
    exact = is_case_sensitive(events.rows.sparkSession)
    columns = [find_name(k, events.rows.columns, exact) or k for k in own.primaryKey]
    keys = events.rows.selectExpr(
        *[
            f"{fitting(events.rows, c, own.field(k), CALL, is_key=True, fails=False)} AS {KEY_TO_FIND(i)}"
            for i, (k, c) in enumerate(zip(own.primaryKey, columns, strict=True))
        ]
    )
    if own.history and own.watermarkKey:
        timeline = Timeline(store, own)
        return timeline.in_order(only_keys(timeline.scan(snapshot.batches), own, keys))
    rows, _ = live_or_dead(store, Batches.of(snapshot))
    if after:
        rows = rows.filter(is_older(after, [quote(w) for w in own.watermarkKey]))
    return only_keys(rows, own, keys)


@attrs.frozen(eq=False)
class _Filling:
    own: TableDefinition
    events: Events
    columns: dict[str, str]
    feed: Feed

    def over(self, stored: DataFrame) -> tuple[Events, str]:
        """The events, with what stands before each filled in, and beside each the latest stored row of its key."""
        own, rows = self.own, self.events.rows
        exact = is_case_sensitive(rows.sparkSession)
        fields = [*own.primaryKey, *own.watermarkKey, *self.columns]
        mine = {n: find_name(n, rows.columns, exact) or n for n in fields}
        kinds = {n: physical_type(own.field(n)) for n in fields}
        theirs = stored.selectExpr(
            *[f"{self._told(n, quote(n), is_tombstone(own))} AS c{i}" for i, n in enumerate(fields)],
            f"{not_(is_tombstone(own))} AS {_HOLDS}",
            f"{TRUE} AS {_BEGINS}",
            f"0 AS {_IS_EVENT}",
            "NULL AS e",
        )
        events = rows.selectExpr(
            *[f"{self._told(n, self._stored(n, mine[n]), self._dies())} AS c{i}" for i, n in enumerate(fields)],
            f"{FALSE} AS {_HOLDS}",
            f"{self._dies()} AS {_BEGINS}",
            f"1 AS {_IS_EVENT}",
            f"struct({', '.join(map(quote, rows.columns))}) AS e",
        )
        keys, marks = len(own.primaryKey), len(own.watermarkKey)
        key = ", ".join(f"c{i}" for i in range(keys))
        time = [f"c{i} ASC NULLS FIRST" for i in range(keys, keys + marks)]
        order = ", ".join([*time, f"{_IS_EVENT} ASC"])  # a stored row of the same moment is what the event corrects
        # Events of one moment fill nothing in each other: they have the same place.
        placed = events.unionByName(theirs, allowMissingColumns=True).selectExpr(
            "*", f"dense_rank() OVER (PARTITION BY {key} ORDER BY {order}) AS {_PLACE}"
        )
        parted = placed.selectExpr("*", f"sum(int({_BEGINS})) OVER (PARTITION BY {key} ORDER BY {_PLACE}) AS {_PART}")
        before = f"PARTITION BY {key}, {_PART} ORDER BY {_PLACE} RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        over = Sql(f"OVER ({before})")
        found = {n: _filled(Sql(f"c{fields.index(n)}"), kinds[n], over, self._parts(n), (n,)) for n in self.columns}
        values = [self._or_default(n, value, kinds[n], over) for n, value in found.items()]
        marked = [
            *(f"c{keys + i} AS w{i}" for i in range(marks)),
            f"{_HOLDS} AS live",
        ]  # so that the latest is the largest
        latest = f"max(CASE WHEN {_IS_EVENT} = 0 THEN struct({', '.join(marked)}) END) OVER (PARTITION BY {key})"
        done = parted.selectExpr(_IS_EVENT, "e", f"{latest} AS latest", *[f"{v} AS v{i}" for i, v in enumerate(values)])
        done = done.filter(f"{_IS_EVENT} = 1")
        places = {column: i for i, column in enumerate(self.columns.values())}
        holds = free_name("holds", [*rows.columns, *own.names])
        shown = [f"{self._shown(c, places.get(c))} AS {quote(c)}" for c in rows.columns]
        beside = done.selectExpr(*shown, f"latest AS {quote(holds)}")
        return attrs.evolve(self.events, rows=beside, mentioned=(*self.events.mentioned, holds)), holds

    def _or_default(self, name: str, found: Sql, kind: DataType, over: Sql) -> Sql:
        """What a column was before; of one that no event knows, the default where there was no row (S46)."""
        default = self.own.field(name).default
        if (name,) not in self.feed.lacking or default is None:
            return found
        return case([(Sql(f"max({_HOLDS}) {over}"), found)], cast(as_sql(default), kind))

    def _parts(self, name: str) -> frozenset[Path] | None:
        """Of a column whose nulls mean something, what the events lack of it; None if its nulls mean that nothing changed."""
        ignored, exact = self.feed.ignore_nulls, is_case_sensitive(self.events.rows.sparkSession)
        if ignored is True or (ignored and find_name(name, ignored, exact) is not None):
            return None
        return frozenset(path for path in self.feed.lacking if path[0] == name)

    def _told(self, name: str, value: Sql, dies: Sql) -> Sql:
        """What a row says of a column: of one that says that the key is gone, nothing but key and time."""
        return case([(not_(dies), value)]) if name in self.columns else value

    def _stored(self, name: str, column: str) -> Sql:
        """A column of the events in the table's type. Of keys and watermarks that do not fit the merge says so."""
        own, fails, follows = self.own, name in self.columns, self.feed.follows
        return fitting(self.events.rows, column, own.field(name), CALL, name in own.primaryKey, fails, follows)

    def _dies(self) -> Sql:
        """True of deletes, and of events that are tombstones by themselves (S4)."""
        own, rows = self.own, self.events.rows
        said = quote(self.events.is_delete)
        name = own.tombstoneKey and find_name(own.tombstoneKey, rows.columns, is_case_sensitive(rows.sparkSession))
        if not name:
            return said
        return any_of([said, is_tombstone(own, self._stored(own.tombstone_column, name))])

    def _shown(self, column: str, place: int | None) -> Sql:
        """A column of an event; filled, unless it is a delete, which says nothing of it."""
        if place is None:
            return field_of(Sql("e"), column)
        return case([(not_(field_of(Sql("e"), self.events.is_delete)), Sql(f"v{place}"))])


def _filled(value: Sql, kind: DataType, before: Sql, parts: frozenset[Path] | None, at: Path) -> Sql:
    """A value, or the last one before it that is not null; of structs, field by field.

    Args:
        value: as SQL.
        kind: its type.
        before: the window of what is before it.
        parts: only these fields, and what is in them, are filled; None if all are.
        at: which one the value is.
    """
    parts = None if parts is None or at in parts else frozenset(p for p in parts if p[: len(at)] == at)
    if parts is not None and not parts:
        return value
    if not isinstance(kind, StructType):
        return or_else(value, Sql(f"last_value({value}, true) {before}"))
    fields = ", ".join(
        f"{_filled(field_of(value, f.name), f.dataType, before, parts, (*at, f.name))} AS {quote(f.name)}"
        for f in kind.fields
    )
    was_there = [] if parts is not None else [Sql(f"max({is_not_null(value)}) {before}")]
    is_there = any_of([is_not_null(value), *was_there])
    return case([(is_there, Sql(f"struct({fields})"))])
