"""Change events as merges: what ``applyChanges`` means (H9, H10).

Owns: from a source of events and what is said about it to clauses, and to the rows they are about. Each event becomes a row at its
place in the sequence, whatever the table holds: a delete becomes a tombstone. So any order and batching of the same events gives
the same table, but for what nulls are filled with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trinitymerge.definition import TableDefinition
from trinitymerge.errors import InvalidMergeError, NullKeyError, closest, counted, missing
from trinitymerge.expressions import (
    MADE,
    any_of,
    find_name,
    is_case_sensitive,
    is_null,
    is_older,
    not_,
    null_of,
    physical_type,
    quote,
)
from trinitymerge.merge.analysis.frames import as_column
from trinitymerge.merge.analysis.ignored import mentions
from trinitymerge.merge.arguments import names_of, text_of
from trinitymerge.merge.clauses import (
    All,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.observation import Gathering
from trinitymerge.sessions import analysed
from trinitymerge.spark_errors import analysis_errors
from trinitymerge.sqltext import Sql
from trinitymerge.statistics import Watermark, told, watermark_metrics, watermark_of
from trinitymerge.widening import Path

CALL = "applyChanges()"


@attrs.frozen(eq=False)
class Feed:
    """What is said about a source of events; the arguments of ``applyChanges``.

    Attributes:
        lacking: columns of the table, and fields of them, that the source knows nothing of, where it need not (S22).
        follows: it need not know of any (S44). These two are no arguments of the call.
    """

    sequence_by: tuple[Any, ...] | None = None
    deletes: str | Column | None = None
    truncates: str | Column | None = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] = ()
    ignore_nulls: bool | tuple[str, ...] = False
    lacking: tuple[Path, ...] = ()
    follows: bool = False

    @property
    def fills(self) -> bool:
        """Something is to be taken from what was before an event."""
        return bool(self.ignore_nulls or self.lacking)

    @classmethod
    def of(
        cls,
        sequence_by: Any,
        deletes: Any,
        truncates: Any,
        columns: str | Iterable[str] | None,
        except_columns: str | Iterable[str],
        ignore_nulls: bool | str | Iterable[str],
    ) -> Feed:
        """As ``applyChanges`` is called.

        Raises:
            InvalidMergeError: an argument is of the wrong kind.
        """
        sequence = (sequence_by,) if isinstance(sequence_by, (str, Column)) else sequence_by
        given = [
            ("applyAsDeletes", deletes),
            ("applyAsTruncates", truncates),
            *(("sequenceBy", s) for s in sequence or ()),
        ]
        for name, value in given:
            if value is not None and not isinstance(value, (str, Column)):
                raise InvalidMergeError(f"{CALL}: {name} takes SQL text or a Column, got {value!r}.")
        return cls(
            None if sequence is None else tuple(sequence),
            deletes,
            truncates,
            None if columns is None else names_of(CALL, "columns", columns),
            names_of(CALL, "exceptColumns", except_columns),
            ignore_nulls if isinstance(ignore_nulls, bool) else names_of(CALL, "ignoreNullUpdates", ignore_nulls),
        )


@attrs.frozen(eq=False)
class Events:
    """Rows with the table's columns, and what each is.

    Attributes:
        rows: the events.
        is_delete: the name of the boolean column that says which are deletes; never null.
        is_truncate: likewise of truncates, where they are looked for; else the same.
        mentioned: other columns that the table does not have, and that were of use (S22a).
    """

    rows: DataFrame
    is_delete: str
    is_truncate: str
    mentioned: tuple[str, ...] = ()

    @property
    def of_keys(self) -> DataFrame:
        """The rows without what says which are truncates."""
        return self.rows if self.is_truncate == self.is_delete else self.rows.drop(self.is_truncate)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """Each event is written as it is."""
        dies, columns = quote(self.is_delete), All(self.mentioned)
        return named(
            WhenMatched(dies, [Delete()]),
            WhenMatched(None, [Update(columns)]),
            WhenNotMatched(not_(dies), [Insert(columns)]),
        )


def named(*clauses: Clause, call: str = CALL) -> tuple[Clause, ...]:
    """Clauses that errors call as the user did."""
    return tuple(attrs.evolve(c, call=call) for c in clauses)


# What was asked -------------------------------------------------------------------------------------------------------


def check(own: TableDefinition, feed: Feed) -> None:
    """Refuses what a table has no means for (H9).

    Raises:
        InvalidMergeError: saying what, and the remedy.
    """
    if not own.watermarkKey and (feed.sequence_by is not None or feed.truncates is not None):
        raise InvalidMergeError(
            f"{CALL}: {'applyAsTruncates' if feed.sequence_by is None else 'sequenceBy'} says which events are earlier, and the "
            "table declares no watermark: its rows are in the order of their commits. Create it with watermarkKey=, the column or "
            "columns that hold the sequence."
        )
    if feed.columns is not None and feed.except_columns:
        raise InvalidMergeError(f"{CALL} takes columns or exceptColumns, got both.")
    if feed.sequence_by is not None and len(feed.sequence_by) != len(own.watermarkKey):
        raise InvalidMergeError(
            f"{CALL}: sequenceBy must have a value for each watermark column ({', '.join(own.watermarkKey)}), got "
            f"{len(feed.sequence_by)}."
        )
    if own.history and feed.truncates is not None:
        raise InvalidMergeError(
            f"{CALL}: applyAsTruncates would end all versions at once, and is for tables without history. Deletes are recorded "
            'key by key: with snapshot(), or deleteWhere("true").at(...).'
        )


def check_taken(own: TableDefinition, feed: Feed) -> None:
    """Refuses columns that are to be taken, and that the table does not have.

    Raises:
        InvalidMergeError: naming one, and the remedy.
    """
    known = {name.casefold() for name in own.names}
    unknown = [name for name in feed.columns or () if name.casefold() not in known]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: columns names what the table does not have. {missing(unknown, 'the table', own.names)} To add it: "
            "withSchemaEvolution(), or alter().addColumn().",
            columns=unknown,
        )


def events_of(source: DataFrame, own: TableDefinition, feed: Feed) -> Events:
    """The events with the columns of the table, and two that say what they are.

    Raises:
        InvalidMergeError: the source has no such column, or an expression means nothing over it.
    """
    taken = _Columns.of(source, own, feed)
    sequence = zip(own.watermarkKey, feed.sequence_by or (), strict=False)
    asked = {"is_delete": feed.deletes, **({} if feed.truncates is None else {"is_truncate": feed.truncates})}
    flags = [free_name(name, [*source.columns, *own.names]) for name in asked]
    said = [
        F.lit(False) if condition is None else F.coalesce(as_column(condition), F.lit(False))
        for condition in asked.values()
    ]
    with analysis_errors(CALL):
        rows = source.select(
            *[F.col(quote(name)) for name in taken.kept],
            *[F.expr(f"{null_of(own.field(name))} AS {quote(name)}") for name in taken.null],
            *[as_column(value).alias(name) for name, value in sequence],
            *[value.alias(flag, metadata=MADE) for value, flag in zip(said, flags, strict=True)],
        )
        texts = [text_of(e) for e in (feed.deletes, feed.truncates, *(feed.sequence_by or ())) if e is not None]
        exact = is_case_sensitive(source.sparkSession)
        beside = [n for n in taken.kept if find_name(n, own.names, exact) is None]
        named = {name.casefold() for name in feed.columns or ()}
        mentioned = tuple(n for n in beside if n.casefold() not in named and any(mentions(t, n) for t in texts))
        return Events(analysed(rows), flags[0], flags[-1], mentioned)


@attrs.frozen
class _Columns:
    """Which columns of a source are taken as they are, and which of the table's are null."""

    kept: list[str]
    null: list[str]

    @classmethod
    def of(cls, source: DataFrame, own: TableDefinition, feed: Feed) -> _Columns:
        exact, names = is_case_sensitive(source.sparkSession), source.columns
        found = {name: find_name(name, own.names, exact) for name in names}
        wanted = names if feed.columns is None else _known(feed.columns, names, exact)
        left_out = {
            *_known(feed.except_columns, [*names, *(n for n in own.names if n not in found.values())], exact),
            *(n for n in names if n not in wanted),
        }
        always = {*own.primaryKey, *own.watermarkKey}
        replaced = own.watermarkKey if feed.sequence_by is not None else ()
        needed = (*own.primaryKey, *(own.watermarkKey if feed.sequence_by is None else ()))
        lacking = [n for n in needed if n not in found.values()]
        if lacking:
            remedy = " Add it, or name another by sequenceBy=." if set(lacking) <= set(own.watermarkKey) else ""
            raise InvalidMergeError(
                f"{CALL}: {missing(lacking, 'the source', names)}{remedy}",
                columns=lacking,
            )
        kept = [n for n, field in found.items() if field not in replaced and (field in always or n not in left_out)]
        here = {found[n] for n in kept}
        absent = [n for n in own.names if n not in here and n not in always and n != own.tombstoneKey]
        is_chosen = feed.columns is not None
        return cls(kept, [n for n in absent if is_chosen or n in left_out or n in found.values()])


def _known(given: Iterable[str], among: Sequence[str], exact: bool) -> list[str]:
    """The columns that some names mean.

    Raises:
        InvalidMergeError: there is no such column.
    """
    found = [(name, find_name(name, among, exact)) for name in given]
    unknown = [name for name, column in found if column is None]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: {missing(unknown, 'the source', among)}{closest(unknown[0], among)}", columns=unknown
        )
    return [column for _, column in found if column is not None]


def free_name(name: str, taken: Iterable[str]) -> str:
    """A name that no column has."""
    lowered = {t.lower() for t in taken}
    while name in lowered:
        name += "_"
    return name


# Truncates ------------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class SinceTruncate:
    """What is left after the last truncate of some events.

    Attributes:
        events: evaluated; those that are not fresher are deletes.
        clauses: beside theirs the one that deletes what is not fresher; none if there is no truncate.
        at: the sequence of the truncate, as SQL, column by column; empty if there is none.
    """

    events: Events
    clauses: tuple[Clause, ...] = ()
    at: tuple[Sql, ...] = ()


def since_truncate(events: Events, own: TableDefinition, alias: str) -> SinceTruncate:
    """Looks for truncates among events: evaluates the source, and reads the target as a whole only if there is one.

    Events that are not fresher than the last truncate become deletes of their keys at its place.

    Raises:
        InvalidMergeError: the sequence is of a type that no condition can tell.
    """
    where, dies = quote(events.is_truncate), quote(events.is_delete)
    rows = events.rows.localCheckpoint()
    undated = any_of(is_null(quote(n)) for n in own.watermarkKey)
    counts = {"n": f"count_if({where})", "undated": f"count_if({undated})"}
    observed = Gathering({**counts, **watermark_metrics(own, where)}).of(rows)
    if observed["undated"]:
        raise NullKeyError(
            f"{CALL}: {counted(observed['undated'], 'event')} of the source have no place in the sequence "
            f"({', '.join(own.watermarkKey)}). Nothing was written. Filter them out, or give them one.",
            columns=own.watermarkKey,
            rows=observed["undated"],
        )
    if not observed["n"]:
        return SinceTruncate(attrs.evolve(events, rows=rows.drop(events.is_truncate)))
    at = _sequence_of(watermark_of(observed, "max", own), own)
    exact, columns = is_case_sensitive(rows.sparkSession), rows.columns
    named_as = {n: find_name(n, columns, exact) or n for n in (*own.primaryKey, *own.watermarkKey)}
    gone = not_(is_older(at, [quote(named_as[n]) for n in own.watermarkKey]))
    # A truncate stays, without a key: a source without rows would be one that says nothing (S37).
    changed = {named_as[k]: f"CASE WHEN NOT {where} THEN {quote(named_as[k])} END" for k in own.primaryKey}
    for name, moment in zip(own.watermarkKey, at, strict=True):
        changed[named_as[name]] = f"CASE WHEN {gone} THEN {moment} ELSE {quote(named_as[name])} END"
    changed[events.is_delete] = any_of([dies, where, gone])
    rows = rows.selectExpr(*[f"{changed[n]} AS {quote(n)}" if n in changed else quote(n) for n in columns])
    rows = rows.drop(events.is_truncate)
    target = [Sql(f"{quote(alias)}.{quote(n)}") for n in own.watermarkKey]
    truncated = named(WhenOnlyOnTarget(not_(is_older(at, target)), [Delete()]))
    return SinceTruncate(attrs.evolve(events, rows=rows), truncated, tuple(at))


def _sequence_of(latest: Watermark | None, own: TableDefinition) -> list[Sql]:
    kinds = [physical_type(own.field(n)) for n in own.watermarkKey]
    found = [told(value, kind) for value, kind in zip(latest or (), kinds, strict=False)]
    at = [Sql(value) for value in found if value is not None]
    if len(at) != len(kinds):
        raise InvalidMergeError(
            f"{CALL}: a truncate has no sequence, or one of a type that applyAsTruncates cannot compare "
            f"({', '.join(own.field(n).text for n in own.watermarkKey)}). Nothing was written."
        )
    return at
