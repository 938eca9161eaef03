"""The versions of a table's rows, each with the interval in which it held (H2-H5).

Owns: which rows are resolved anew and which say themselves where they end, what is shown, and versions that are one because what
is tracked does not differ. Everything is lazy.

A compacted table is one scan without a shuffle: its base holds what is current, its archives what was, with its end. Of a table
with rows that are pending, only these are put in order where they are later than all that is settled, and otherwise all rows of
their keys.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType

from trinitymerge import keyrange, reader, soughtkeys
from trinitymerge.columns import CLOSED, LAST_OF_RUN, RUN, UNTIL
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import InvalidDefinitionError, did_you_mean
from trinitymerge.expressions import (
    all_of,
    any_of,
    case,
    find_name,
    is_case_sensitive,
    is_null,
    is_tombstone,
    not_,
    over,
    physical_type,
    quote,
    same,
    sql_type,
    text_literal,
)
from trinitymerge.history.timeline import Timeline, begin, come_after, require_history, time_order
from trinitymerge.history.values import equatable, moment
from trinitymerge.sending import may_be_sent
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.sqltext import Sql
from trinitymerge.storage.backend import Batches, TimeTravel
from trinitymerge.storage.entries import LOOSE, SETTLED, Snapshot

_COMMIT_TIME = Field("commit time", "timestamp")


@attrs.frozen
class Shown:
    """What a user asks of ``versions()`` beside the keys; its arguments."""

    track: tuple[str, ...] | None
    exceptColumns: tuple[str, ...]
    validFrom: str
    validTo: str
    current: str
    openEnd: Any
    emptyIntervals: bool


def versions(store: TimeTravel, snapshot: Snapshot, keys: DataFrame | Iterable[Any] | None, shown: Shown) -> DataFrame:
    """One row per version, with its interval (H2-H5).

    Raises:
        InvalidDefinitionError: the table keeps no versions, or has a column that is called like one that is added, or not the
            one that is to be tracked.
        SchemaMismatchError, NullKeyError: these are no keys of the table.
        ValueError: the value for open ends is of another type.
    """
    own = snapshot.definition
    require_history(own, "versions()", store.path)
    beside = _beside(own, shown)
    with held(store.spark, LITERAL_NAMES):
        timeline = Timeline(store, own)
        rows = _with_ends(timeline, snapshot, keys, "versions").filter(not_(is_tombstone(own)))
        if not shown.emptyIntervals:
            rows = rows.filter(not_(_is_empty(own)))
        tracked = _tracked(store, own, shown)
        begins = begin(own)
        if tracked is not None:
            rows, begins = _joined(rows, own, tracked), Sql(RUN)
        until = _shown_time(own, UNTIL)
        if shown.openEnd is not None:
            end = literal(store.spark, shown.openEnd, _time_field(own), "openEnd")
            until = case([(CLOSED, until)], end)
        return rows.selectExpr(
            *map(quote, beside),
            f"{_shown_time(own, begins)} AS {quote(shown.validFrom)}",
            f"{until} AS {quote(shown.validTo)}",
            f"{not_(CLOSED)} AS {quote(shown.current)}",
        )


def as_of(store: TimeTravel, snapshot: Snapshot, when: Any) -> DataFrame:
    """The rows that were valid at a moment of the data's time (H5).

    Raises:
        InvalidDefinitionError: the table keeps no versions.
        ValueError: this is no moment of that time.
    """
    own = snapshot.definition
    require_history(own, "asOf()", store.path)
    with held(store.spark, LITERAL_NAMES):
        at = literal(store.spark, when, _time_field(own), "asOf")
        if not own.watermarkKey:
            at = Sql(f"unix_micros({at}) / 1000")  # of the log's clock, which counts milliseconds
        return valid_at(Timeline(store, own), snapshot, at).selectExpr(*map(quote, own.names))


def valid_at(timeline: Timeline, snapshot: Snapshot, at: Sql) -> DataFrame:
    """The stored rows that are valid at a moment: a value of the first watermark column, as SQL."""
    begins = begin(timeline.definition)
    holds = [any_of([is_null(begins), Sql(f"{begins} <= {at}")]), any_of([not_(CLOSED), Sql(f"{UNTIL} > {at}")])]
    rows = _with_ends(timeline, snapshot, None, "asOf")
    return rows.filter(all_of([not_(is_tombstone(timeline.definition)), *holds]))


def _beside(own: TableDefinition, shown: Shown) -> list[str]:
    """The user's columns that are shown; the first watermark column is not where ``validFrom`` has its name: it is the same.

    Raises:
        InvalidDefinitionError: a column that is added is called like another one.
    """
    first = [n for n in own.watermarkKey[:1] if n.lower() == shown.validFrom.lower()]
    beside = [n for n in own.names if n not in first]
    taken = [n.lower() for n in beside]
    for name in (shown.validFrom, shown.validTo, shown.current):
        if name.lower() in taken:
            raise InvalidDefinitionError(
                f"versions() would show two columns '{name}': give it another name by validFrom=, validTo= or current=.",
                column=name,
            )
        taken.append(name.lower())
    return beside


# Which rows -----------------------------------------------------------------------------------------------------------


def _with_ends(timeline: Timeline, snapshot: Snapshot, keys: DataFrame | Iterable[Any] | None, call: str) -> DataFrame:
    """All versions of all keys, or of some, tombstones included, with their ends."""
    own = timeline.definition
    if keys is not None:
        sought = soughtkeys.as_columns(timeline.backend.spark, own, keys, call)
        with soughtkeys.naming_misfits(call):
            soughtkeys.require_no_null(sought, call)
            within = keyrange.one_of(own, sought)
        rows = timeline.scan(snapshot.batches)
        return timeline.in_order(reader.only_keys(rows if within is None else rows.filter(within), own, sought))
    base, archives = Batches.of(snapshot).base, snapshot.archives(SETTLED)
    pending = (*Batches.of(snapshot).pending, *snapshot.archives(LOOSE))
    if not pending:
        return timeline.as_stored(timeline.scan((*base, *archives)))
    few = may_be_sent(timeline.backend.spark, sum(b.rows for b in pending))
    if not few or not (base or archives):
        return timeline.in_order(timeline.scan(snapshot.batches))
    settled, landed = timeline.scan((*base, *archives)), timeline.scan(pending)
    if come_after(own, pending, base, snapshot.horizon):
        return timeline.before(settled, landed).unionByName(timeline.in_order(landed))
    keys = F.broadcast(landed.selectExpr(*reader.keys_to_find(own)))
    anew = timeline.in_order(reader.only_keys(settled, own, keys).unionByName(landed))
    return timeline.as_stored(reader.without_keys(settled, own, keys)).unionByName(anew)


# Times ----------------------------------------------------------------------------------------------------------------


def _time_field(own: TableDefinition) -> Field:
    """What kind of value versions begin and end at."""
    return own.field(own.watermarkKey[0]) if own.watermarkKey else _COMMIT_TIME


def _shown_time(own: TableDefinition, value: Sql) -> Sql:
    return value if own.watermarkKey else moment(value)


def _is_empty(own: TableDefinition) -> Sql:
    """True if a version ends at the instant at which it begins."""
    return all_of([CLOSED, same(begin(own), UNTIL)])


def literal(spark: SparkSession, value: Any, field: Field, name: str) -> Sql:
    """A user's value as one of a column's type, as SQL.

    Text without a time zone of its own is in the session's, as literals are.

    Raises:
        ValueError: it is none.
    """
    return literal_of(spark, value, physical_type(field), field.name, name)


def literal_of(spark: SparkSession, value: Any, kind: DataType, column: str, name: str) -> Sql:
    """The same for a type, and a column of it."""
    if isinstance(value, (bytes, bytearray)) and isinstance(kind, BinaryType):
        return Sql(f"X'{value.hex()}'")
    is_other = isinstance(value, (bytes, bytearray)) or (isinstance(value, bool) and not isinstance(kind, BooleanType))
    text = value.isoformat() if isinstance(value, (datetime.date, datetime.datetime)) else str(value)
    given = Sql(f"try_cast({text_literal(text)} AS {sql_type(kind)})")
    # The subquery keeps Spark from taking words for moments, as it takes 'yesterday' in a literal. No job runs.
    asked = f"SELECT try_cast(t AS {sql_type(kind)}) IS NULL FROM (SELECT {text_literal(text)} AS t FROM VALUES (0))"
    is_other = is_other or isinstance(value, Column)
    if value is None or is_other or spark.sql(asked).collect()[0][0]:
        raise ValueError(
            f"{name} takes a plain value of the type of '{column}', which is {kind.simpleString()}, got {value!r}."
        )
    return given


# Versions that are one ------------------------------------------------------------------------------------------------


def _tracked(store: TimeTravel, own: TableDefinition, shown: Shown) -> list[Field] | None:
    """The columns in which consecutive versions must differ, or they are one; None if each is shown.

    Raises:
        ValueError: there is no such column, a watermark column is to be tracked, or both ways are taken.
    """
    if shown.track is None and not shown.exceptColumns:
        return None
    if shown.track is not None and shown.exceptColumns:
        raise ValueError("versions() takes either track or exceptColumns, got both.")
    if shown.track == ("*",):
        return [f for f in own.fields if f.name not in own.watermarkKey]
    argument = "exceptColumns" if shown.track is None else "track"
    exact, found = is_case_sensitive(store.spark), set[str]()
    for name in shown.exceptColumns if shown.track is None else shown.track:
        column = find_name(name, own.names, exact)
        if column is None:
            raise ValueError(f"{argument}: '{name}' is not a column of the table.{did_you_mean(name, own.names)}")
        found.add(column)
    moving = [n for n in own.watermarkKey if shown.track is not None and n in found]
    if moving:
        raise ValueError(f"'{moving[0]}' is a watermark column, which differs in every version: leave it out of track.")
    wanted = {*own.names} - found if shown.track is None else found
    return [f for f in own.fields if f.name in wanted and f.name not in own.watermarkKey]


def _joined(rows: DataFrame, own: TableDefinition, tracked: Sequence[Field]) -> DataFrame:
    """Consecutive versions that agree in some columns as one: the last, and as :data:`RUN` where the first begins.

    Never across a gap: a version belongs to the one before if it begins where that ends.
    """
    keys = [quote(k) for k in own.primaryKey]
    order = time_order(own)
    values = [equatable(quote(f.name), physical_type(f)) for f in tracked]
    compared = Sql(f"struct({', '.join([*(f'{v} AS c{i}' for i, v in enumerate(values)), '0 AS c'])})")

    def before(value: Sql) -> Sql:
        return over(Sql(f"lag({value})"), keys, order)

    continues = all_of([same(before(UNTIL), begin(own)), same(before(compared), compared)])
    numbered = rows.selectExpr("*", f"CASE WHEN {continues} THEN 0 ELSE 1 END AS {RUN}")
    numbered = numbered.selectExpr(*map(quote, rows.columns), f"{over(Sql(f'sum({RUN})'), keys, order)} AS {RUN}")
    run = [*keys, RUN]
    first = over(Sql(f"first_value({begin(own)})"), run, order)
    is_last = is_null(over(Sql("lead(1)"), run, order))
    marked = numbered.selectExpr(*map(quote, rows.columns), f"{first} AS {RUN}", f"{is_last} AS {LAST_OF_RUN}")
    return marked.filter(LAST_OF_RUN).drop(LAST_OF_RUN)
