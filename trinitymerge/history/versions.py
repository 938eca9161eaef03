"""Row versions of a history table, and where each ends (H2-H6)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType

from trinitymerge import reader
from trinitymerge.errors import InvalidDefinitionError, did_you_mean
from trinitymerge.history.changes import meaning, timestamp
from trinitymerge.log.actions import RESOLVED, UNRESOLVED, Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.reader import fits_broadcast
from trinitymerge.rows import key_ranges
from trinitymerge.rows.equality import comparable
from trinitymerge.rows.keys import keys_to_columns, require_non_null_keys, translate_cast_errors
from trinitymerge.rows.resolution import Order, is_older, oldest
from trinitymerge.rows.watermarks import Watermark, is_above
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore


def require_history(definition: TableDefinition, call: str, path: str) -> None:
    """Check that a table keeps row versions (H8)."""
    if not definition.history:
        raise InvalidDefinitionError(
            f"{call} needs a table that keeps its versions, and {path} keeps the latest rows only. Create one with "
            "TrinityTable.create(..., history=True), or enable history from now on: table.alter().setHistory().execute(). "
            "changes() returns the changes between two versions of this table."
        )


# Columns of archives --------------------------------------------------------------------------------------------------


def until_field(definition: TableDefinition) -> Field:
    """Return the end of a row version: the first watermark column of the next, or its commit time in milliseconds."""
    kind = definition.field(definition.watermarkKey[0]).type if definition.watermarkKey else "long"
    return Field(str(C.UNTIL), kind)


def archive_fields(definition: TableDefinition) -> tuple[Field, ...]:
    return Field(str(C.SINCE), "long"), until_field(definition), Field(str(C.ENDED), "long")


def valid_from(definition: TableDefinition) -> Sql:
    """Return the start of a row version: its first watermark column, or its commit time in milliseconds (H5)."""
    return E.quote(definition.watermarkKey[0]) if definition.watermarkKey else C.SINCE


def time_order(definition: TableDefinition) -> Order:
    """Return the order of the rows of a key in time: rewritten rows keep the commit time, not the version (S6)."""
    return Order.of(definition, [C.SINCE])


def is_in_order(
    definition: TableDefinition, pending: Sequence[Batch], base: Sequence[Batch], horizon: Watermark | None
) -> bool:
    """Return True if every pending row is later than all resolved row versions, by the log's statistics.

    A current row, or a tombstone dropped up to the horizon, has ended each past row version. Unresolved archives are pending.
    """
    if not definition.watermarkKey:
        # Ordered by commit; a minor compaction of all batches leaves replaced rows beside a newer base.
        return all(b.archive is None for b in pending)
    ends = [b.watermark_max for b in base] + ([] if horizon is None else [horizon])
    lowest = [b.watermark_min for b in pending if b.rows]
    return bool(base) and all(end is not None and is_above(definition, low, end) for low in lowest for end in ends)


# Reading --------------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Timeline:
    """The rows of a table's batches with their commit times, and more columns, null in files that do not have them."""

    store: TableStore
    definition: TableDefinition
    extra: tuple[Field, ...] = ()

    def scan(self, batches: Sequence[Batch]) -> DataFrame:
        """Return stored columns, version and :func:`archive_fields`. Only archives have ends, unresolved ones perhaps too late."""
        rows = self.store.scan(
            Batches(self.definition, tuple(batches)), extra=(*archive_fields(self.definition), *self.extra)
        )
        since = self.since(batches)
        return rows.selectExpr(*[f"{since} AS {C.SINCE}" if n == C.SINCE else E.quote(n) for n in rows.columns])

    def since(self, batches: Sequence[Batch]) -> Sql:
        """Return the commit time of a row: rewritten batches store it, other batches have one commit."""
        versions = sorted({b.version for b in batches if b.version is not None and b.archive is None})
        return E.or_else(C.SINCE, meaning({v: self.store.committed_at(v) for v in versions}, C.VERSION))

    def with_next(self, rows: DataFrame) -> DataFrame:
        """Add :data:`C.NEXT` to all rows of keys: the watermark and commit time of the next row of the key."""
        keys, order = map(E.quote, self.definition.primaryKey), time_order(self.definition).oldest_first()
        following = E.over(Sql(f"lead({self._mark()})"), keys, order)
        return rows.selectExpr("*", f"{following} AS {C.NEXT}")

    def _mark(self) -> Sql:
        """Return :data:`C.NEXT` for the row before."""
        own = self.definition
        return time_order(own).packed([*(f"w{i}" for i in range(len(own.watermarkKey))), "since"])

    def is_corrected(self) -> Sql:
        """Return a condition: the next row of the key has the same watermark and replaces this one (H2)."""
        if not self.definition.watermarkKey:
            return E.or_else(E.equals(C.SINCE, E.field_of(C.NEXT, "since")), E.FALSE)
        pairs = enumerate(self.definition.watermarkKey)
        return E.all_of([E.is_not_null(C.NEXT), *(E.same(E.quote(w), E.field_of(C.NEXT, f"w{i}")) for i, w in pairs)])

    def ends_earlier(self) -> Sql:
        """Return a condition: the next row ends this one, and no stored end is earlier. A dropped tombstone may have stored one."""
        ends = is_older([E.field_of(C.NEXT, "w0" if self.definition.watermarkKey else "since")], [C.UNTIL])
        return E.all_of([E.is_not_null(C.NEXT), E.any_of([E.is_null(C.ENDED), ends])])

    def in_order(self, rows: DataFrame) -> DataFrame:
        """Compute the ends of keys again, with :data:`C.IS_ENDED`; of rows with equal watermarks, keep the last committed (H2)."""
        return self._ended(self.with_next(rows), self.is_corrected())

    def replaced(self, rows: DataFrame) -> DataFrame:
        """Return the columns of :meth:`in_order` for all but the latest row of each key, including corrected rows.

        ``rows`` must hold every row of its keys. A correction does not restart the retention (H7): the corrected row keeps the time
        at which it ended a version that another batch has.
        """
        is_same = E.all_of([self.is_corrected(), E.not_(is_older([C.SINCE], [E.field_of(C.NEXT, "since")]))])
        return self._ended(self.with_next(rows), is_same).filter(C.IS_ENDED)

    def before(self, rows: DataFrame, later: DataFrame) -> DataFrame:
        """Return resolved rows with their stored ends, unless the first later row of the key ends or corrects them.

        Only the later rows are shuffled: all pending rows of each key, none before one of ``rows``, see :func:`is_in_order`. The
        first later row of a key serves as the next row of all rows of the key. Rows with an earlier end do not change.
        """
        own = self.definition
        keys = reader.keys_to_find(own)
        marked = later.selectExpr(*keys, f"{self._mark()} AS {C.NEXT}")
        first = marked.groupBy(*marked.columns[:-1]).agg(F.expr(f"{oldest(C.NEXT)} AS {C.NEXT}"))
        return self._ended(reader.left_join_keys(rows, own, F.broadcast(first)), self.is_corrected())

    def _ended(self, rows: DataFrame, is_dropped: Sql) -> DataFrame:
        """Return rows with :data:`C.NEXT`, which ends them or does not, except those that are dropped."""
        is_ended_now, until = self.ends_earlier(), E.field_of(C.NEXT, "w0" if self.definition.watermarkKey else "since")
        found: dict[str, Sql] = {
            C.UNTIL: E.case([(is_ended_now, until)], C.UNTIL),
            C.ENDED: E.case([(is_ended_now, E.field_of(C.NEXT, "since"))], C.ENDED),
        }
        return rows.filter(E.not_(is_dropped)).selectExpr(
            *[f"{found[n]} AS {n}" if n in found else E.quote(n) for n in rows.columns if n != C.NEXT],
            f"{E.any_of([E.is_not_null(C.NEXT), E.is_not_null(C.ENDED)])} AS {C.IS_ENDED}",
        )

    def as_stored(self, rows: DataFrame) -> DataFrame:
        """Return rows of :meth:`scan` with their stored ends: rows of a base and of resolved archives."""
        return rows.selectExpr("*", f"{E.is_not_null(C.ENDED)} AS {C.IS_ENDED}")


_COMMIT_TIME = Field("commit time", "timestamp")


@attrs.frozen
class VersionsOptions:
    track: tuple[str, ...] | None
    exceptColumns: tuple[str, ...]
    validFrom: str
    validTo: str
    current: str
    openEnd: Any
    emptyIntervals: bool


@with_session_settings
def versions(
    store: TableStore, snapshot: Snapshot, keys: DataFrame | Iterable[Any] | None, shown: VersionsOptions
) -> DataFrame:
    """Return one row per row version, with its interval (H2-H5)."""
    own = snapshot.definition
    require_history(own, "versions()", store.path)
    beside = _beside(own, shown)
    rows = _with_ends(Timeline(store, own), snapshot, keys, "versions").filter(E.not_(E.is_tombstone(own)))
    if not shown.emptyIntervals:
        rows = rows.filter(E.not_(E.all_of([C.IS_ENDED, E.same(valid_from(own), C.UNTIL)])))
    tracked = _tracked(store, own, shown)
    begins = valid_from(own)
    if tracked is not None:
        rows, begins = _joined(rows, own, tracked), Sql(C.GROUP)
    until = _shown_time(own, C.UNTIL)
    if shown.openEnd is not None:
        end = literal(store.spark, shown.openEnd, _time_field(own), "openEnd")
        until = E.case([(C.IS_ENDED, until)], end)
    return rows.selectExpr(
        *map(E.quote, beside),
        f"{_shown_time(own, begins)} AS {E.quote(shown.validFrom)}",
        f"{until} AS {E.quote(shown.validTo)}",
        f"{E.not_(C.IS_ENDED)} AS {E.quote(shown.current)}",
    )


@with_session_settings
def as_of(store: TableStore, snapshot: Snapshot, when: Any) -> DataFrame:
    """Return the rows that were valid at a moment of the data's time (H5)."""
    own = snapshot.definition
    require_history(own, "asOf()", store.path)
    at = literal(store.spark, when, _time_field(own), "asOf")
    if not own.watermarkKey:
        at = Sql(f"unix_micros({at}) / 1000")  # of the log's clock, which counts milliseconds
    return valid_at(Timeline(store, own), snapshot, at).selectExpr(*map(E.quote, own.names))


def valid_at(timeline: Timeline, snapshot: Snapshot, at: Sql) -> DataFrame:
    """Return the stored rows that are valid at a moment: a value of the first watermark column, as SQL."""
    begins = valid_from(timeline.definition)
    holds = [
        E.any_of([E.is_null(begins), Sql(f"{begins} <= {at}")]),
        E.any_of([E.not_(C.IS_ENDED), Sql(f"{C.UNTIL} > {at}")]),
    ]
    rows = _with_ends(timeline, snapshot, None, "asOf")
    return rows.filter(E.all_of([E.not_(E.is_tombstone(timeline.definition)), *holds]))


def _beside(own: TableDefinition, shown: VersionsOptions) -> list[str]:
    """Return the user's columns to show, without the first watermark column if ``validFrom`` has its name."""
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
    """Return all row versions with their ends, tombstones included, of all keys or of some."""
    own = timeline.definition
    if keys is not None:
        sought = keys_to_columns(timeline.store.spark, own, keys, call)
        with translate_cast_errors(call):
            require_non_null_keys(sought, call)
            within = key_ranges.one_of(own, sought, Batches(own, snapshot.batches).is_clustered)
        rows = timeline.scan(snapshot.batches)
        return timeline.in_order(reader.semi_join(rows if within is None else rows.filter(within), own, sought))
    base, archives = Batches.of(snapshot).base, snapshot.archives(RESOLVED)
    pending = (*Batches.of(snapshot).pending, *snapshot.archives(UNRESOLVED))
    if not pending:
        return timeline.as_stored(timeline.scan((*base, *archives)))
    few = fits_broadcast(timeline.store.spark, sum(b.rows for b in pending))
    if not few or not (base or archives):
        return timeline.in_order(timeline.scan(snapshot.batches))
    resolved, landed = timeline.scan((*base, *archives)), timeline.scan(pending)
    if is_in_order(own, pending, base, snapshot.horizon):
        return timeline.before(resolved, landed).unionByName(timeline.in_order(landed))
    keys = F.broadcast(landed.selectExpr(*reader.keys_to_find(own)))
    found = timeline.in_order(reader.semi_join(resolved, own, keys).unionByName(landed))
    return timeline.as_stored(reader.anti_join(resolved, own, keys)).unionByName(found)


# Times ----------------------------------------------------------------------------------------------------------------


def _time_field(own: TableDefinition) -> Field:
    return own.field(own.watermarkKey[0]) if own.watermarkKey else _COMMIT_TIME


def _shown_time(own: TableDefinition, value: Sql) -> Sql:
    return value if own.watermarkKey else timestamp(value)


def literal(spark: SparkSession, value: Any, field: Field, name: str) -> Sql:
    """Return a user's value as SQL of a column's type. Text without a time zone is in the session's time zone, like literals."""
    given, length = literal_of(spark, value, E.physical_type(field), field.name, name), E.declared_length(field)
    return Sql(f"rpad({given}, {length[1]}, ' ')") if length and length[0] == "char" else given


def literal_of(spark: SparkSession, value: Any, kind: DataType, column: str, name: str) -> Sql:
    if isinstance(value, (bytes, bytearray)) and isinstance(kind, BinaryType):
        return Sql(f"X'{value.hex()}'")
    is_other = isinstance(value, (bytes, bytearray)) or (isinstance(value, bool) and not isinstance(kind, BooleanType))
    text = value.isoformat() if isinstance(value, (datetime.date, datetime.datetime)) else str(value)
    given = Sql(f"try_cast({E.text_literal(text)} AS {E.sql_type(kind)})")
    # The subquery keeps Spark from taking words for moments, as it takes 'yesterday' in a literal. No job runs.
    asked = (
        f"SELECT try_cast(t AS {E.sql_type(kind)}) IS NULL FROM (SELECT {E.text_literal(text)} AS t FROM VALUES (0))"
    )
    is_other = is_other or isinstance(value, Column)
    if value is None or is_other or spark.sql(asked).collect()[0][0]:
        raise ValueError(
            f"{name} takes a plain value of the type of '{column}', which is {kind.simpleString()}, got {value!r}."
        )
    return given


# Versions that are one ------------------------------------------------------------------------------------------------


def _tracked(store: TableStore, own: TableDefinition, shown: VersionsOptions) -> list[Field] | None:
    """Return the columns whose change begins a new version; None if every stored version is shown."""
    if shown.track is None and not shown.exceptColumns:
        return None
    if shown.track is not None and shown.exceptColumns:
        raise ValueError("versions() takes either track or exceptColumns, got both.")
    if shown.track == ("*",):
        return [f for f in own.fields if f.name not in own.watermarkKey]
    argument = "exceptColumns" if shown.track is None else "track"
    exact, found = E.is_case_sensitive(store.spark), set[str]()
    for name in shown.exceptColumns if shown.track is None else shown.track:
        column = E.find_name(name, own.names, exact)
        if column is None:
            raise ValueError(f"{argument}: '{name}' is not a column of the table.{did_you_mean(name, own.names)}")
        found.add(column)
    moving = [n for n in own.watermarkKey if shown.track is not None and n in found]
    if moving:
        raise ValueError(f"'{moving[0]}' is a watermark column, which differs in every version: leave it out of track.")
    wanted = {*own.names} - found if shown.track is None else found
    return [f for f in own.fields if f.name in wanted and f.name not in own.watermarkKey]


def _joined(rows: DataFrame, own: TableDefinition, tracked: Sequence[Field]) -> DataFrame:
    """Consecutive versions that agree in some columns as one: the last, and as :data:`C.GROUP` where the first begins.

    Never across a gap: a version belongs to the one before if it begins where that ends.
    """
    keys = [E.quote(k) for k in own.primaryKey]
    order = time_order(own).oldest_first()
    values = [comparable(E.quote(f.name), E.physical_type(f)) for f in tracked]
    compared = Sql(f"struct({', '.join([*(f'{v} AS c{i}' for i, v in enumerate(values)), '0 AS c'])})")

    def before(value: Sql) -> Sql:
        return E.over(Sql(f"lag({value})"), keys, order)

    continues = E.all_of([E.same(before(C.UNTIL), valid_from(own)), E.same(before(compared), compared)])
    numbered = rows.selectExpr("*", f"CASE WHEN {continues} THEN 0 ELSE 1 END AS {C.GROUP}")
    numbered = numbered.selectExpr(
        *map(E.quote, rows.columns), f"{E.over(Sql(f'sum({C.GROUP})'), keys, order)} AS {C.GROUP}"
    )
    run = [*keys, C.GROUP]
    first = E.over(Sql(f"first_value({valid_from(own)})"), run, order)
    is_last = E.is_null(E.over(Sql("lead(1)"), run, order))
    marked = numbered.selectExpr(*map(E.quote, rows.columns), f"{first} AS {C.GROUP}", f"{is_last} AS {C.LAST_OF_RUN}")
    return marked.filter(C.LAST_OF_RUN).drop(C.LAST_OF_RUN)
