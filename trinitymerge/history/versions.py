"""Row versions of a history table, and where each ends (H2-H6)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType

from trinitymerge import reader
from trinitymerge.errors import InvalidDefinitionError, did_you_mean
from trinitymerge.history.changes import comparable, field_of, meaning, timestamp
from trinitymerge.log.actions import RESOLVED, UNRESOLVED, Batch
from trinitymerge.log.model import Snapshot
from trinitymerge.reader import fits_broadcast
from trinitymerge.rows import key_ranges
from trinitymerge.rows.keys import keys_to_columns, require_non_null_keys, translate_cast_errors
from trinitymerge.rows.watermarks import Watermark, is_above
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.expressions import (
    FALSE,
    all_of,
    any_of,
    case,
    equals,
    find_name,
    is_case_sensitive,
    is_not_null,
    is_null,
    is_older,
    is_tombstone,
    not_,
    or_else,
    over,
    physical_type,
    quote,
    same,
    sql_type,
    text_literal,
)
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import ENDED, GROUP, IS_ENDED, LAST_OF_RUN, NEXT, SINCE, UNTIL, VERSION
from trinitymerge.stores.base import Batches, TableStore


def require_history(definition: TableDefinition, call: str, path: str) -> None:
    """Checks that a table keeps its versions (H8).

    Raises:
        InvalidDefinitionError: it does not.
    """
    if not definition.history:
        raise InvalidDefinitionError(
            f"{call} needs a table that keeps its versions, and {path} keeps the latest rows only. Create one with "
            "TrinityTable.create(..., history=True), or switch it on for what comes: table.alter().setHistory().execute(). What "
            "changed between two versions of this one, changes() tells."
        )


# What stands beside the rows of an archive ----------------------------------------------------------------------------


def until_field(definition: TableDefinition) -> Field:
    """Where a version ends: the first watermark column of the next, or the time of its commit in milliseconds."""
    kind = definition.field(definition.watermarkKey[0]).type if definition.watermarkKey else "long"
    return Field(str(UNTIL), kind)


def archive_fields(definition: TableDefinition) -> tuple[Field, ...]:
    """What the files of archives hold beside the stored columns."""
    return Field(str(SINCE), "long"), until_field(definition), Field(str(ENDED), "long")


def valid_from(definition: TableDefinition) -> Sql:
    """Where a version begins: its first watermark column, or the time of its commit in milliseconds (H5)."""
    return quote(definition.watermarkKey[0]) if definition.watermarkKey else SINCE


def time_order(definition: TableDefinition) -> Sql:
    """The order of the rows of a key, the earliest first: by watermark, then by commit (S6).

    By the time of the commit, which each row keeps: archives hold rows of many versions.
    """
    return Sql(", ".join([*(f"{quote(w)} ASC NULLS FIRST" for w in definition.watermarkKey), f"{SINCE} ASC"]))


def is_in_order(
    definition: TableDefinition, pending: Sequence[Batch], base: Sequence[Batch], horizon: Watermark | None
) -> bool:
    """True if no pending row lies before a settled version begins or ends, by what the log knows of batches.

    Whatever has ended was ended by what is current now, or by a tombstone that has been forgotten.

    Args:
        definition: of the table.
        pending: batches of rows, and loose archives.
        base: the batches of what is current now.
        horizon: the largest watermark of forgotten tombstones; None if there are none.
    """
    if (
        not definition.watermarkKey
    ):  # the order is that of commits; a fold of all leaves replaced rows beside a newer base
        return all(b.archive is None for b in pending)
    ends = [b.watermark_max for b in base] + ([] if horizon is None else [horizon])
    lowest = [b.watermark_min for b in pending if b.rows]
    return bool(base) and all(end is not None and is_above(definition, low, end) for low in lowest for end in ends)


# Reading --------------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Timeline:
    """The rows of a table's batches with the times of their commits.

    Attributes:
        backend: where the batches are.
        definition: of the table.
    """

    backend: TableStore
    definition: TableDefinition

    def scan(self, batches: Sequence[Batch]) -> DataFrame:
        """The stored columns of batches, :data:`VERSION`, and what :func:`archive_fields` names.

        Where a row ends is null but in archives; in loose ones an older row may end it earlier.
        """
        rows = self.backend.scan(Batches(self.definition, tuple(batches)), extra=archive_fields(self.definition))
        since = self.since(batches)
        return rows.selectExpr(*[f"{since} AS {SINCE}" if n == SINCE else quote(n) for n in rows.columns])

    def since(self, batches: Sequence[Batch]) -> Sql:
        """When a row was committed: rewritten batches keep it, others are of one commit."""
        versions = sorted({b.version for b in batches if b.version is not None and b.archive is None})
        return or_else(SINCE, meaning({v: self.backend.committed_at(v) for v in versions}, VERSION))

    def with_next(self, rows: DataFrame) -> DataFrame:
        """Rows of whole keys, as :meth:`scan` gives them, and as :data:`NEXT` the watermark and commit of the next of the key."""
        own = self.definition
        following = over(Sql(f"lead(struct({', '.join(self._marks())}))"), map(quote, own.primaryKey), time_order(own))
        return rows.selectExpr("*", f"{following} AS {NEXT}")

    def _marks(self) -> list[str]:
        """What :data:`NEXT` tells of a row: its watermark, then its commit, so that of two the smaller one is the earlier (S6)."""
        return [*(f"{quote(w)} AS w{i}" for i, w in enumerate(self.definition.watermarkKey)), f"{SINCE} AS since"]

    def is_corrected(self) -> Sql:
        """True if the next row of the key stands for the same moment: it was committed later, and holds (H2)."""
        if not self.definition.watermarkKey:
            return or_else(equals(SINCE, field_of(NEXT, "since")), FALSE)
        pairs = enumerate(self.definition.watermarkKey)
        return all_of([is_not_null(NEXT), *(same(quote(w), field_of(NEXT, f"w{i}")) for i, w in pairs)])

    def ends_earlier(self) -> Sql:
        """True if the next row ends this one earlier than it says, or for the first time.

        What a settled archive says may know more: of a tombstone that has been forgotten since.
        """
        ends = is_older([field_of(NEXT, "w0" if self.definition.watermarkKey else "since")], [UNTIL])
        return all_of([is_not_null(NEXT), any_of([is_null(ENDED), ends])])

    def in_order(self, rows: DataFrame) -> DataFrame:
        """Rows of whole keys with their ends found anew; of several with equal watermarks the last committed (H2).

        Returns:
            The columns of :meth:`scan`, and :data:`IS_ENDED`: false on rows that nothing ends.
        """
        return self._ended(self.with_next(rows), self.is_corrected())

    def replaced(self, rows: DataFrame) -> DataFrame:
        """Return the columns of :meth:`in_order` for the rows of whole keys that are not the latest, corrected rows included.

        A correction does not restart the retention (H7): the corrected row keeps the time at which it ended a version that another
        batch has.
        """
        is_same = all_of([self.is_corrected(), not_(is_older([SINCE], [field_of(NEXT, "since")]))])
        return self._ended(self.with_next(rows), is_same).filter(IS_ENDED)

    def before(self, rows: DataFrame, later: DataFrame) -> DataFrame:
        """Rows that end where they say, unless the first of some later ones ends them earlier, or corrects them.

        Nothing is shuffled but the later rows. What comes first of them stands for the next row of every one of its key: to rows
        that another one has ended before, that makes no difference.

        Args:
            rows: of :meth:`scan`, settled.
            later: likewise, pending; of each key all, and none of them before one of ``rows``, see :func:`is_in_order`.

        Returns:
            As :meth:`in_order`, without the later ones.
        """
        own = self.definition
        keys = reader.keys_to_find(own)
        marked = later.selectExpr(*keys, f"struct({', '.join(self._marks())}) AS {NEXT}")
        first = marked.groupBy(*marked.columns[:-1]).agg(F.expr(f"min({NEXT}) AS {NEXT}"))
        return self._ended(reader.left_join_keys(rows, own, F.broadcast(first)), self.is_corrected())

    def _ended(self, rows: DataFrame, is_dropped: Sql) -> DataFrame:
        """Return rows with :data:`NEXT`, which ends them or does not, except those that are dropped."""
        anew, until = self.ends_earlier(), field_of(NEXT, "w0" if self.definition.watermarkKey else "since")
        found: dict[str, Sql] = {
            UNTIL: case([(anew, until)], UNTIL),
            ENDED: case([(anew, field_of(NEXT, "since"))], ENDED),
        }
        return rows.filter(not_(is_dropped)).selectExpr(
            *[f"{found[n]} AS {n}" if n in found else quote(n) for n in rows.columns if n != NEXT],
            f"{any_of([is_not_null(NEXT), is_not_null(ENDED)])} AS {IS_ENDED}",
        )

    def as_stored(self, rows: DataFrame) -> DataFrame:
        """Rows of :meth:`scan` that end where they say, if anywhere: those of a base and of settled archives."""
        return rows.selectExpr("*", f"{is_not_null(ENDED)} AS {IS_ENDED}")


_COMMIT_TIME = Field("commit time", "timestamp")


@attrs.frozen
class VersionsOptions:
    """What a user asks of ``versions()`` beside the keys; its arguments."""

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
    timeline = Timeline(store, own)
    rows = _with_ends(timeline, snapshot, keys, "versions").filter(not_(is_tombstone(own)))
    if not shown.emptyIntervals:
        rows = rows.filter(not_(_is_empty(own)))
    tracked = _tracked(store, own, shown)
    begins = valid_from(own)
    if tracked is not None:
        rows, begins = _joined(rows, own, tracked), Sql(GROUP)
    until = _shown_time(own, UNTIL)
    if shown.openEnd is not None:
        end = literal(store.spark, shown.openEnd, _time_field(own), "openEnd")
        until = case([(IS_ENDED, until)], end)
    return rows.selectExpr(
        *map(quote, beside),
        f"{_shown_time(own, begins)} AS {quote(shown.validFrom)}",
        f"{until} AS {quote(shown.validTo)}",
        f"{not_(IS_ENDED)} AS {quote(shown.current)}",
    )


@with_session_settings
def as_of(store: TableStore, snapshot: Snapshot, when: Any) -> DataFrame:
    """The rows that were valid at a moment of the data's time (H5).

    Raises:
        InvalidDefinitionError: the table keeps no versions.
        ValueError: this is no moment of that time.
    """
    own = snapshot.definition
    require_history(own, "asOf()", store.path)
    at = literal(store.spark, when, _time_field(own), "asOf")
    if not own.watermarkKey:
        at = Sql(f"unix_micros({at}) / 1000")  # of the log's clock, which counts milliseconds
    return valid_at(Timeline(store, own), snapshot, at).selectExpr(*map(quote, own.names))


def valid_at(timeline: Timeline, snapshot: Snapshot, at: Sql) -> DataFrame:
    """The stored rows that are valid at a moment: a value of the first watermark column, as SQL."""
    begins = valid_from(timeline.definition)
    holds = [any_of([is_null(begins), Sql(f"{begins} <= {at}")]), any_of([not_(IS_ENDED), Sql(f"{UNTIL} > {at}")])]
    rows = _with_ends(timeline, snapshot, None, "asOf")
    return rows.filter(all_of([not_(is_tombstone(timeline.definition)), *holds]))


def _beside(own: TableDefinition, shown: VersionsOptions) -> list[str]:
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
        sought = keys_to_columns(timeline.backend.spark, own, keys, call)
        with translate_cast_errors(call):
            require_non_null_keys(sought, call)
            within = key_ranges.one_of(own, sought)
        rows = timeline.scan(snapshot.batches)
        return timeline.in_order(reader.semi_join(rows if within is None else rows.filter(within), own, sought))
    base, archives = Batches.of(snapshot).base, snapshot.archives(RESOLVED)
    pending = (*Batches.of(snapshot).pending, *snapshot.archives(UNRESOLVED))
    if not pending:
        return timeline.as_stored(timeline.scan((*base, *archives)))
    few = fits_broadcast(timeline.backend.spark, sum(b.rows for b in pending))
    if not few or not (base or archives):
        return timeline.in_order(timeline.scan(snapshot.batches))
    settled, landed = timeline.scan((*base, *archives)), timeline.scan(pending)
    if is_in_order(own, pending, base, snapshot.horizon):
        return timeline.before(settled, landed).unionByName(timeline.in_order(landed))
    keys = F.broadcast(landed.selectExpr(*reader.keys_to_find(own)))
    anew = timeline.in_order(reader.semi_join(settled, own, keys).unionByName(landed))
    return timeline.as_stored(reader.anti_join(settled, own, keys)).unionByName(anew)


# Times ----------------------------------------------------------------------------------------------------------------


def _time_field(own: TableDefinition) -> Field:
    """What kind of value versions begin and end at."""
    return own.field(own.watermarkKey[0]) if own.watermarkKey else _COMMIT_TIME


def _shown_time(own: TableDefinition, value: Sql) -> Sql:
    return value if own.watermarkKey else timestamp(value)


def _is_empty(own: TableDefinition) -> Sql:
    """True if a version ends at the instant at which it begins."""
    return all_of([IS_ENDED, same(valid_from(own), UNTIL)])


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


def _tracked(store: TableStore, own: TableDefinition, shown: VersionsOptions) -> list[Field] | None:
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
    """Consecutive versions that agree in some columns as one: the last, and as :data:`GROUP` where the first begins.

    Never across a gap: a version belongs to the one before if it begins where that ends.
    """
    keys = [quote(k) for k in own.primaryKey]
    order = time_order(own)
    values = [comparable(quote(f.name), physical_type(f)) for f in tracked]
    compared = Sql(f"struct({', '.join([*(f'{v} AS c{i}' for i, v in enumerate(values)), '0 AS c'])})")

    def before(value: Sql) -> Sql:
        return over(Sql(f"lag({value})"), keys, order)

    continues = all_of([same(before(UNTIL), valid_from(own)), same(before(compared), compared)])
    numbered = rows.selectExpr("*", f"CASE WHEN {continues} THEN 0 ELSE 1 END AS {GROUP}")
    numbered = numbered.selectExpr(*map(quote, rows.columns), f"{over(Sql(f'sum({GROUP})'), keys, order)} AS {GROUP}")
    run = [*keys, GROUP]
    first = over(Sql(f"first_value({valid_from(own)})"), run, order)
    is_last = is_null(over(Sql("lead(1)"), run, order))
    marked = numbered.selectExpr(*map(quote, rows.columns), f"{first} AS {GROUP}", f"{is_last} AS {LAST_OF_RUN}")
    return marked.filter(LAST_OF_RUN).drop(LAST_OF_RUN)
