"""Fill what change events leave unset, and mend stored partial rows (U1, U4, U6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import NullType

from trinitymerge.errors import InvalidMergeError, did_you_mean
from trinitymerge.feeds.casts import cast_to_stored
from trinitymerge.feeds.events import (
    CALL,
    ChangeEvents,
    ChangeFeed,
    columns_unset,
    fillable_names,
    free_name,
    unset_metrics,
)
from trinitymerge.feeds.truncates import sql_of
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.compile.key_timeline import IS_WRITTEN, KeyTimeline
from trinitymerge.merge.compile.mend import Written, timeline_of
from trinitymerge.rows.registers import Part, Registers, parts_of
from trinitymerge.rows.tombstones import non_key_fields
from trinitymerge.rows.watermarks import Watermark
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore


def filled(
    store: TableStore, snapshot: Snapshot, events: ChangeEvents, feed: ChangeFeed, truncates: Sequence[Watermark]
) -> tuple[ChangeEvents, str, tuple[str, ...]]:
    """Return the events with what they leave unset, and the stored rows that they mend (U1, U4).

    The result is these rows, the name of the column with the latest stored row of each key, and what they may leave unset, as
    ``Batch.unset`` names it.
    """
    last = snapshot.truncate
    known = [] if last is None else [*last.earlier, last.watermark]
    for at in truncates:
        sql_of(at, snapshot.definition)
    return Filling.of(snapshot, events, feed).over(store, snapshot, truncates, [*known, *truncates])


def evaluated(snapshot: Snapshot, events: ChangeEvents, feed: ChangeFeed) -> tuple[ChangeEvents, ChangeFeed]:
    """Return events, evaluated once (S32), and the feed with what they leave unset; as they are if that is known."""
    if feed.unset_columns is not None:
        return events, feed
    filling = attrs.evolve(Filling.of(snapshot, events, feed), fails=False)
    once = materialize(events.rows, filling.unset_metrics)
    return attrs.evolve(events, rows=once.frame), filling.with_unset_columns(once.observed)


def _ignored_columns(own: TableDefinition, rows: DataFrame, feed: ChangeFeed) -> list[str]:
    exact = E.is_case_sensitive(rows.sparkSession)
    names = [f.name for f in non_key_fields(own)]
    if isinstance(feed.ignore_nulls, bool):
        return names if feed.ignore_nulls else []
    for name in feed.ignore_nulls:
        if E.find_name(name, names, exact) is None:
            raise InvalidMergeError(
                f"{CALL}: ignoreNullUpdates names '{name}', which is not a column that can be filled."
                f"{did_you_mean(name, names)}",
                column=name,
            )
    return [n for n in names if E.find_name(n, feed.ignore_nulls, exact) is not None]


@attrs.frozen(eq=False)
class Filling:
    """The events of a feed, beside the registers of their keys.

    Attributes:
        registers: of all columns that an event or a stored row may leave unset.
        ignored: the columns whose nulls mean "unchanged".
        fails: a value that does not fit its column is an error; otherwise it is null.
    """

    events: ChangeEvents
    feed: ChangeFeed
    registers: Registers
    ignored: frozenset[str]
    fails: bool = True

    @classmethod
    def of(cls, snapshot: Snapshot, events: ChangeEvents, feed: ChangeFeed) -> Filling:
        own, exact = snapshot.definition, E.is_case_sensitive(events.rows.sparkSession)
        known = zip(fillable_names(own, exact), non_key_fields(own), strict=True)
        asked = [field.name for name, field in known if feed.unset_columns is None or name in feed.unset_columns]
        asked += [path[0] for path in feed.lacking]
        return cls(events, feed, Registers.of(snapshot, asked), frozenset(_ignored_columns(own, events.rows, feed)))

    @property
    def unset_metrics(self) -> dict[str, str]:
        lives, columns = E.not_(self.dies), parts_of(self._own)
        return unset_metrics(E.all_of([lives, E.any_of(map(self.unset, column.all()))]) for column in columns)

    def with_unset_columns(self, observed: Mapping[str, Any]) -> ChangeFeed:
        return attrs.evolve(self.feed, unset_columns=columns_unset(fillable_names(self._own, self._exact), observed))

    def over(
        self, store: TableStore, snapshot: Snapshot, new: Sequence[Watermark], truncates: Sequence[Watermark]
    ) -> tuple[ChangeEvents, str, tuple[str, ...]]:
        """Return the events, filled, and the stored rows that they mend, each beside the latest stored row of its key."""
        found = timeline_of(self.registers, store, snapshot, self._written, truncates, bool(new))
        return (*self._beside(found), tuple(part.id for part in self.registers.parts))

    @property
    def _written(self) -> Written:
        own = self._own
        names = [*own.primaryKey, *own.watermarkKey, *(part.path[0] for part in self.registers.columns)]
        values, old_key = {n: self.value(n) for n in names}, tuple(map(E.quote, self.events.old_key))
        moves = E.quote(self.events.moves) if self.events.moves else E.FALSE
        return Written(self.events.rows, values, self.dies, self.unset, moves, old_key)

    def _beside(self, found: KeyTimeline) -> tuple[ChangeEvents, str]:
        own, rows = self._own, self.events.rows
        is_kept = E.any_of([IS_WRITTEN, found.is_mended]) if self.registers.has_partial else IS_WRITTEN
        holds = free_name("holds", [*rows.columns, *own.names])
        shown = [f"{self._shown(c, found)} AS {E.quote(c)}" for c in rows.columns if c not in self.events.hidden]
        told = {
            **{f"w{i}": E.field_of(C.LATEST_STORED, f"w{i}") for i in range(len(own.watermarkKey))},
            "live": E.field_of(C.LATEST_STORED, "live"),
            C.UNSET: found.unset,
            C.MENDED: E.not_(IS_WRITTEN),
            C.UNKNOWN: found.unknown(lambda part: self._is_named(part, E.field_of(C.ROW_TO_WRITE, self.events.unset))),
            **({"fillers": found.fillers} if self.events.number else {}),
        }
        beside = found.rows.filter(is_kept).selectExpr(*shown, f"{E.struct(told)} AS {E.quote(holds)}")
        mentioned = (*self.events.mentioned, holds)
        return attrs.evolve(self.events, rows=beside, unset="", old_key=(), moves="", mentioned=mentioned), holds

    @property
    def _own(self) -> TableDefinition:
        return self.registers.definition

    @property
    def _exact(self) -> bool:
        return E.is_case_sensitive(self.events.rows.sparkSession)

    def column(self, name: str) -> str | None:
        return E.find_name(name, self.events.rows.columns, self._exact)

    def value(self, name: str) -> Sql:
        own, column = self._own, self.column(name)
        if column is None:
            return E.null_of(own.field(name))
        is_key = name in own.primaryKey
        return cast_to_stored(self.events.rows, column, own.field(name), CALL, is_key, self.fails, self.feed.follows)

    def unset(self, part: Part) -> Sql:
        """Return SQL that is true if an event leaves a part of a column unset. Never null."""
        name = part.path[0]
        is_null_in = [E.is_null(part.value(self.value(name)))] if name in self.ignored else []
        return E.any_of([self.leaves(part), *is_null_in])

    def leaves(self, part: Part) -> Sql:
        """Return SQL that is true if an event leaves a part unset with any value: the part is lacking or named. Never null."""
        if any(part.path[: len(path)] == path for path in self.feed.lacking):
            return E.TRUE
        return self._is_named(part, E.quote(self.events.unset))

    def _is_named(self, part: Part, names: Sql) -> Sql:
        """Return SQL that is true if the column of a part is among the names of unchanged columns. Never null."""
        if not self.events.unset:
            return E.FALSE
        name = part.path[0] if self._exact else part.path[0].lower()
        return E.or_else(Sql(f"array_contains({names}, {E.text_literal(name)})"), E.FALSE)

    @property
    def dies(self) -> Sql:
        """Return SQL that is true for deletes, and for events that set the tombstone key (S4)."""
        said, name = E.quote(self.events.is_delete), self._own.tombstoneKey
        if not name or self.column(name) is None:
            return said
        return E.any_of([said, E.is_tombstone(self._own, self.value(name))])

    def _shown(self, column: str, found: KeyTimeline) -> Sql:
        own, registers = self._own, self.registers
        mine, name = E.field_of(C.ROW_TO_WRITE, column), E.find_name(column, own.names, self._exact)
        is_delete = E.or_else(E.field_of(C.ROW_TO_WRITE, self.events.is_delete), E.FALSE)
        if column == self.events.is_delete:
            return is_delete
        if name is None:
            return mine
        for family, names in ((C.ROW_KEY, own.primaryKey), (C.ROW_WATERMARK, own.watermarkKey)):
            if name in names:
                return family(names.index(name))
        if any(part.path[0] == name for part in registers.columns):
            return E.case([(E.not_(is_delete), found.value(name))])
        if not registers.has_partial:
            return mine
        theirs, field = E.field_of(C.ROW_AS_STORED, name), own.field(name)
        given = self.events.rows.schema[column].dataType
        if not isinstance(given, NullType) and given != E.physical_type(field):  # the stored value must stay as it is
            fit = cast_to_stored(self.events.rows, column, field, CALL, False, self.fails, self.feed.follows, mine)
            mine = E.case([(E.not_(is_delete), fit)])
        return E.case([(IS_WRITTEN, mine)], theirs)
