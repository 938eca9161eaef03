"""`applyChanges`: change events as a merge, in any order and batching (H9, H10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StructType

from trinitymerge.errors import InvalidMergeError, NullKeyError, closest, counted, did_you_mean, missing
from trinitymerge.feeds.casts import cast_to_stored, lacking_fields
from trinitymerge.history.changes import field_of
from trinitymerge.history.versions import Timeline, valid_at
from trinitymerge.log.actions import TruncateTable
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.ignored_columns import mentions
from trinitymerge.merge.analysis.relations import as_column
from trinitymerge.merge.compile.strategies import KEY_LOOKUP
from trinitymerge.merge.execute.plan import MergeSpec, Options, Truncate
from trinitymerge.merge.execute.schema_changes import evolve_schema
from trinitymerge.merge.model.arguments import names_of, text_of
from trinitymerge.merge.model.clauses import (
    All,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.reader import live_or_dead, semi_join, with_comments
from trinitymerge.rows.watermarks import (
    Watermark,
    is_at_least,
    sort_key,
    watermark_metrics,
    watermark_of,
    watermark_sql,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.types import Path
from trinitymerge.spark.errors import analysis_errors
from trinitymerge.spark.expressions import (
    FALSE,
    MADE,
    NULL,
    TRUE,
    all_of,
    any_of,
    case,
    cast,
    find_name,
    is_case_sensitive,
    is_not_null,
    is_null,
    is_older,
    is_tombstone,
    not_,
    null_of,
    or_else,
    physical_type,
    quote,
    same,
)
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.predicates import boolean
from trinitymerge.spark.session import force_analysis
from trinitymerge.spark.sql_text import Sql, as_sql
from trinitymerge.spark.system_columns import KEY_TO_FIND
from trinitymerge.stores.base import TableStore, require_managed

CALL = "applyChanges()"

_IS_EVENT, _HOLDS, _BEGINS, _PLACE, _PART = "is_event", "holds", "begins", "place", "part"


@attrs.frozen(eq=False)
class ChangeFeed:
    """The arguments of ``applyChanges``.

    Attributes:
        lacking: optional columns of the table, and fields, that the source lacks (S22); not an argument of the call.
        follows: all columns but the key's are optional (S44); not an argument of the call.
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
        """True if nulls are filled from earlier values."""
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
    ) -> ChangeFeed:
        """Check and hold the arguments of ``applyChanges``.

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
class ChangeEvents:
    """Rows with the table's columns, and flags for deletes and truncates.

    Attributes:
        rows: the events.
        is_delete: the name of the boolean column that says which are deletes; never null.
        is_truncate: the same for truncates; equal to ``is_delete`` if the feed has no condition for truncates.
        mentioned: other columns that the table does not have, and that a condition or the sequence uses (S22a).
    """

    rows: DataFrame
    is_delete: str
    is_truncate: str
    mentioned: tuple[str, ...] = ()

    @property
    def of_keys(self) -> DataFrame:
        """The rows without the flag for truncates."""
        return self.rows if self.is_truncate == self.is_delete else self.rows.drop(self.is_truncate)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses that write each event as it is."""
        dies, columns = quote(self.is_delete), All(self.mentioned)
        return named(
            WhenMatched(dies, [Delete()]),
            WhenMatched(None, [Update(columns)]),
            WhenNotMatched(not_(dies), [Insert(columns)]),
        )


def named(*clauses: Clause, call: str = CALL) -> tuple[Clause, ...]:
    """Return the clauses, which errors name by the user's call."""
    return tuple(attrs.evolve(c, call=call) for c in clauses)


# From events to a merge -----------------------------------------------------------------------------------------------


def merge_of_events(source: DataFrame, feed: ChangeFeed, spec: MergeSpec, snapshot: Snapshot) -> MergeSpec:
    """Return the merge of the events: blind, unless it fills nulls or looks for truncates."""
    check(snapshot.definition, feed)
    asked = attrs.evolve(feed, follows=spec.options.schema_evolution)
    own, events, told = _fitted(source, snapshot.definition, asked, spec.options)
    truncated = Truncated(events)
    if feed.truncates is not None:
        require_managed(spec.store, f"{CALL} with applyAsTruncates")
        truncated = since_truncate(events, own)
    done, deleting, made = truncated.merged_with(spec, snapshot)
    if told.fills:
        seen = attrs.evolve(snapshot, definition=own)
        done, holds = filled(spec.store, seen, done, told, truncated.truncates)
        made |= {"based_on": snapshot, "computed_by": KEY_LOOKUP, "holds": "" if truncated.truncates else holds}
    clauses, rows = (*done.clauses, *deleting), with_comments(done.rows, own)
    return attrs.evolve(spec, source=rows, clauses=clauses, definition=own).with_options(**made)


def _fitted(
    source: DataFrame, own: TableDefinition, feed: ChangeFeed, options: Options
) -> tuple[TableDefinition, ChangeEvents, ChangeFeed]:
    """Return the definition with the columns that the events add (S44), the events, and the columns they lack (S22)."""
    events = events_of(source, own, feed)
    if options.schema_evolution:
        own = evolve_schema(own, events.of_keys, None, events.clauses, options)
    check_taken(own, feed)
    if own.history:
        source, told = _without_columns(source, own, feed)
        return own, events if told is feed else events_of(source, own, told), told
    return own, events, feed


def _without_columns(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> tuple[DataFrame, ChangeFeed]:
    """Return events that keep the earlier value of each optional column or field that they lack (S22, H10).

    Without an earlier value, it is the default (S46). Tables without history do not need this: an update keeps absent columns.
    """
    if feed.columns is not None:  # what is not among the columns is null
        return source, feed
    exact = is_case_sensitive(source.sparkSession)
    excepted = {name.casefold() for name in feed.except_columns}
    roles = {*own.primaryKey, *own.watermarkKey, own.tombstoneKey}
    asked = [f for f in own.fields if f.name.casefold() not in excepted and f.name not in roles]
    found = [(f, find_name(f.name, source.columns, exact)) for f in asked]
    absent = [f for f, name in found if name is None and (feed.follows or f.may_be_left_out)]
    fields = [
        (f.name, *path)
        for f, name in found
        if name is not None
        for path in lacking_fields(source.schema[name].dataType, f, feed.follows)
    ]
    if not absent and not fields:
        return source, feed
    beside = [f"{null_of(f)} AS {quote(f.name)}" for f in absent]
    told = attrs.evolve(feed, lacking=(*((f.name,) for f in absent), *fields))
    return source.selectExpr("*", *beside), told


# Arguments ------------------------------------------------------------------------------------------------------------


def check(own: TableDefinition, feed: ChangeFeed) -> None:
    """Raise if the table lacks what the feed's arguments need (H9).

    Raises:
        InvalidMergeError: with the remedy.
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


def check_taken(own: TableDefinition, feed: ChangeFeed) -> None:
    """Raise if ``columns`` names a column that the table does not have.

    Raises:
        InvalidMergeError: with the names and the remedy.
    """
    known = {name.casefold() for name in own.names}
    unknown = [name for name in feed.columns or () if name.casefold() not in known]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: columns names what the table does not have. {missing(unknown, 'the table', own.names)} To add it: "
            "withSchemaEvolution(), or alter().addColumn().",
            columns=unknown,
        )


def events_of(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> ChangeEvents:
    """Return the events with the table's columns, and flags for deletes and truncates.

    Raises:
        InvalidMergeError: the source lacks a column, or Spark cannot analyze an expression over it.
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
        _require_boolean(source, feed)
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
        return ChangeEvents(force_analysis(rows), flags[0], flags[-1], mentioned)


def _require_boolean(source: DataFrame, feed: ChangeFeed) -> None:
    """Raise if a condition is not boolean."""
    given = {"applyAsDeletes": feed.deletes, "applyAsTruncates": feed.truncates}
    asked = {name: condition for name, condition in given.items() if condition is not None}
    if asked:
        fields = source.select(*[as_column(condition).alias(name) for name, condition in asked.items()]).schema.fields
        for field in fields:
            boolean(asked[field.name], field.dataType, f"{CALL}: {field.name}")


@attrs.frozen
class _Columns:
    """The source columns to take, and the table columns that are null."""

    kept: list[str]
    null: list[str]

    @classmethod
    def of(cls, source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> _Columns:
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
    """Return the columns with these names.

    Raises:
        InvalidMergeError: a column does not exist.
    """
    found = [(name, find_name(name, among, exact)) for name in given]
    unknown = [name for name, column in found if column is None]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: {missing(unknown, 'the source', among)}{closest(unknown[0], among)}", columns=unknown
        )
    return [column for _, column in found if column is not None]


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that no column has."""
    lowered = {t.lower() for t in taken}
    while name in lowered:
        name += "_"
    return name


# Truncates ------------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Truncated:
    """Events without their truncates, and what these do to the table (T1).

    Attributes:
        events: evaluated, if there is a truncate. Without history only those that are fresher than the last one.
        truncates: the watermarks of the truncates, in the form of the log and in their order: without history the last one.
        source_rows: of the source, truncates and all; None if it was not evaluated.
    """

    events: ChangeEvents
    truncates: tuple[Watermark, ...] = ()
    source_rows: int | None = None

    def merged_with(
        self, spec: MergeSpec, snapshot: Snapshot
    ) -> tuple[ChangeEvents, tuple[Clause, ...], dict[str, Any]]:
        """Return the events, the clauses beside theirs, and the options of a merge that commits the truncates."""
        if not self.truncates:
            return self.events, (), {"source_rows": self.source_rows}
        if snapshot.definition.history:
            ended = _with_ended(spec.store, snapshot, self.events, self.truncates)
            truncate = Truncate(self._action(snapshot), removed=())
            return ended, (), {"truncate": truncate, "based_on": snapshot, "source_rows": self.source_rows}
        clauses, options = self._without_history(spec, snapshot)
        return self.events, clauses, {"source_rows": self.source_rows, **options}

    def _without_history(self, spec: MergeSpec, snapshot: Snapshot) -> tuple[tuple[Clause, ...], dict[str, Any]]:
        """Return the same without history.

        Batches without a fresher row cease to be part of the table, and nothing is read. Where that is not enough, or deletes are
        to be counted, live rows that are not fresher are deleted.
        """
        own, last, newest = snapshot.definition, snapshot.truncate, self.truncates[-1]
        if last is not None and last.watermark != newest and is_at_least(last.watermark, newest, own):
            return (), {}  # it has deleted everything that this one would
        gone = [b for b in snapshot.live_batches if is_at_least(newest, b.watermark_max, own)]
        others = [b for b in snapshot.live_batches if b not in gone]
        stay = all(is_at_least(b.watermark_min, newest, own) and b.watermark_min != newest for b in others)
        if stay and not spec.options.counts and spec.options.max_delete_fraction is None:
            removed = tuple(b.id for b in gone)
            return (), {"truncate": Truncate(TruncateTable(newest), removed), "based_on": snapshot}
        at = _sql_of(newest, own)
        target = [Sql(f"{quote(spec.alias)}.{quote(n)}") for n in own.watermarkKey]
        deleting = named(WhenOnlyOnTarget(not_(is_older(at, target)), [Delete()]))
        truncate = Truncate(TruncateTable(newest), removed=None)
        return deleting, {"truncate": truncate, "based_on": snapshot, "at": tuple(at)}

    def _action(self, snapshot: Snapshot) -> TruncateTable:
        """Return all truncates of a table with history: each ends row versions."""
        own, last = snapshot.definition, snapshot.truncate
        known = () if last is None else (*last.earlier, last.watermark)
        *earlier, newest = sorted({*known, *self.truncates}, key=lambda at: sort_key(at, own) or ())
        version = last.version if last is not None and newest not in self.truncates else None
        return TruncateTable(newest, version, earlier)


def since_truncate(events: ChangeEvents, own: TableDefinition) -> Truncated:
    """Evaluate the source, and drop the events that its truncates delete for good.

    Raises:
        NullKeyError: an event has no place in the sequence.
        InvalidMergeError: the sequence has a type that applyAsTruncates cannot compare.
    """
    where = quote(events.is_truncate)
    rows = events.rows.localCheckpoint()
    undated = any_of(is_null(quote(n)) for n in own.watermarkKey)
    counts = {"n": f"count_if({where})", "undated": f"count_if({undated})", "all": "count(1)"}
    observed = Metrics({**counts, **watermark_metrics(own, where)}).compute(rows)
    if observed["undated"]:
        raise NullKeyError(
            f"{CALL}: {counted(observed['undated'], 'event')} of the source have no place in the sequence "
            f"({', '.join(own.watermarkKey)}). Nothing was written. Filter them out, or give them one.",
            columns=own.watermarkKey,
            rows=observed["undated"],
        )
    of_keys = attrs.evolve(events, rows=rows.drop(events.is_truncate))
    if not observed["n"]:
        return Truncated(of_keys, (), observed["all"])
    exact, columns = is_case_sensitive(rows.sparkSession), rows.columns
    watermark = [quote(find_name(n, columns, exact) or n) for n in own.watermarkKey]
    if own.history:
        _sql_of(watermark_of(observed, "max", own) or (), own)
        grouped = rows.filter(where).groupBy(*watermark)
        values = [F.expr(sql).alias(n) for n, sql in watermark_metrics(own, TRUE).items()]
        found = [watermark_of(r.asDict(), "max", own) or () for r in grouped.agg(*values).collect()]
        truncates = sorted(found, key=lambda at: sort_key(at, own) or ())
        stays = all_of(not_(all_of(map(same, _sql_of(at, own), watermark))) for at in truncates)
    else:
        truncates = [watermark_of(observed, "max", own) or ()]
        stays = is_older(_sql_of(truncates[0], own), watermark)
    rows = rows.filter(all_of([not_(Sql(where)), stays])).drop(events.is_truncate)
    return Truncated(attrs.evolve(events, rows=rows), tuple(truncates), observed["all"])


def _with_ended(
    store: TableStore, snapshot: Snapshot, events: ChangeEvents, truncates: Sequence[Watermark]
) -> ChangeEvents:
    """Add a delete for each key that holds at a truncate, at its place."""
    own, rows = snapshot.definition, events.rows
    timeline, exact = Timeline(store, own), is_case_sensitive(rows.sparkSession)
    kinds = {f.name: f.dataType for f in rows.schema.fields}
    for at in truncates:
        moment = _sql_of(at, own)
        known: dict[str, Sql] = {k: quote(k) for k in own.primaryKey} | dict(zip(own.watermarkKey, moment, strict=True))
        values = {find_name(n, rows.columns, exact) or n: value for n, value in known.items()} | {
            events.is_delete: TRUE
        }
        ended = valid_at(timeline, snapshot, moment[0])
        shown = [f"{_as_event(values.get(n, NULL), kinds[n])} AS {quote(n)}" for n in events.rows.columns]
        rows = rows.unionByName(ended.selectExpr(*shown))
    return attrs.evolve(events, rows=rows)


def _as_event(value: Sql, kind: DataType) -> Sql:
    """Return a value in the type of the events' column; as it is if that has only nulls, and so no type."""
    return value if isinstance(kind, NullType) else cast(value, kind)


def _sql_of(watermark: Watermark, own: TableDefinition) -> list[Sql]:
    found = watermark_sql(watermark, own)
    if found is None:
        raise InvalidMergeError(
            f"{CALL}: a truncate has no sequence, or one of a type that applyAsTruncates cannot compare "
            f"({', '.join(own.field(n).text for n in own.watermarkKey)}). Nothing was written."
        )
    return found


# Nulls ----------------------------------------------------------------------------------------------------------------


def filled(
    store: TableStore, snapshot: Snapshot, events: ChangeEvents, feed: ChangeFeed, truncates: Sequence[Watermark]
) -> tuple[ChangeEvents, str]:
    """Return the events with their nulls filled, and the name of the column with the latest stored row of each key.

    Args:
        store: where the table is.
        snapshot: the version whose rows fill them.
        events: with the columns of the table.
        feed: says which columns.
        truncates: those of the events; nothing before one fills what is after it.

    Raises:
        InvalidMergeError: a column does not exist.
    """
    own, last = snapshot.definition, snapshot.truncate
    known = [] if last is None else [*last.earlier, last.watermark]
    ends = [_sql_of(at, own) for at in (*known, *truncates)]
    return _Filling(own, events, _columns(own, events.rows, feed), feed, ends).over(_stored(store, snapshot, events))


def _columns(own: TableDefinition, rows: DataFrame, feed: ChangeFeed) -> dict[str, str]:
    """Return the events' columns whose nulls mean "unchanged", or that are missing, by the table's column."""
    exact = is_case_sensitive(rows.sparkSession)
    fixed = {*own.primaryKey, *own.watermarkKey, own.tombstone_column}
    names = [n for n in own.names if n not in fixed]
    if not isinstance(feed.ignore_nulls, bool):
        for name in feed.ignore_nulls:
            if find_name(name, names, exact) is None:
                raise InvalidMergeError(
                    f"{CALL}: ignoreNullUpdates names '{name}', which is not a column that can be filled."
                    f"{did_you_mean(name, names)}",
                    column=name,
                )
    if feed.ignore_nulls is not True:
        some = (*(feed.ignore_nulls or ()), *(path[0] for path in feed.lacking))
        names = [n for n in names if find_name(n, some, exact) is not None]
    found = {n: find_name(n, rows.columns, exact) for n in names}
    return {n: column for n, column in found.items() if column is not None}


def _stored(store: TableStore, snapshot: Snapshot, events: ChangeEvents) -> DataFrame:
    """Return the stored rows of the events' keys, tombstones included: all versions, or the latest rows.

    Without history only the latest are known. Without a declared watermark all rows are older than the events.
    """
    own = snapshot.definition
    exact = is_case_sensitive(events.rows.sparkSession)
    columns = [find_name(k, events.rows.columns, exact) or k for k in own.primaryKey]
    keys = events.rows.selectExpr(
        *[
            f"{cast_to_stored(events.rows, c, own.field(k), CALL, is_key=True, fails=False)} AS {KEY_TO_FIND(i)}"
            for i, (k, c) in enumerate(zip(own.primaryKey, columns, strict=True))
        ]
    )
    if own.history and own.watermarkKey:
        timeline = Timeline(store, own)
        return timeline.in_order(semi_join(timeline.scan(snapshot.batches), own, keys))
    rows, _ = live_or_dead(store, Batches.of(snapshot))
    return semi_join(rows, own, keys)


@attrs.frozen(eq=False)
class _Filling:
    own: TableDefinition
    events: ChangeEvents
    columns: dict[str, str]
    feed: ChangeFeed
    truncates: Sequence[Sequence[Sql]]

    def over(self, stored: DataFrame) -> tuple[ChangeEvents, str]:
        """Return the events with nulls filled from earlier values, each beside the latest stored row of its key."""
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
        if self.truncates:
            theirs = theirs.unionByName(self._ends(events, keys, [kinds[n] for n in fields]), allowMissingColumns=True)
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

    def _ends(self, events: DataFrame, keys: int, kinds: Sequence[DataType]) -> DataFrame:
        """Return a row for each truncate and each key of the events, as of a stored tombstone (T1)."""
        structs = ", ".join(f"struct({', '.join(f'{v} AS w{i}' for i, v in enumerate(at))})" for at in self.truncates)
        marks = len(self.own.watermarkKey)
        mine = [f"c{i}" for i in range(keys)]
        nothing = [f"{cast(NULL, kinds[i])} AS c{i}" for i in range(keys + marks, len(kinds))]
        return events.selectExpr(*mine, f"explode(array({structs})) AS at").selectExpr(
            *mine,
            *(f"at.w{i} AS c{keys + i}" for i in range(marks)),
            *nothing,
            f"{FALSE} AS {_HOLDS}",
            f"{TRUE} AS {_BEGINS}",
            f"0 AS {_IS_EVENT}",
        )

    def _or_default(self, name: str, found: Sql, kind: DataType, over: Sql) -> Sql:
        """Return the earlier value of a column; the default if no event has the column and no row was there (S46)."""
        default = self.own.field(name).default
        if (name,) not in self.feed.lacking or default is None:
            return found
        return case([(Sql(f"max({_HOLDS}) {over}"), found)], cast(as_sql(default), kind))

    def _parts(self, name: str) -> frozenset[Path] | None:
        """Return the fields that the events lack of a column; None if all of its nulls mean "unchanged"."""
        ignored, exact = self.feed.ignore_nulls, is_case_sensitive(self.events.rows.sparkSession)
        if ignored is True or (ignored and find_name(name, ignored, exact) is not None):
            return None
        return frozenset(path for path in self.feed.lacking if path[0] == name)

    def _told(self, name: str, value: Sql, dies: Sql) -> Sql:
        """Return the value of a column in a row; null if the row deletes its key, apart from key and watermark."""
        return case([(not_(dies), value)]) if name in self.columns else value

    def _stored(self, name: str, column: str) -> Sql:
        """Return a column of the events in the table's type. The merge reports keys and watermarks that do not fit."""
        own, fails, follows = self.own, name in self.columns, self.feed.follows
        return cast_to_stored(self.events.rows, column, own.field(name), CALL, name in own.primaryKey, fails, follows)

    def _dies(self) -> Sql:
        """Return SQL that is true for deletes, and for events that set the tombstone key (S4)."""
        own, rows = self.own, self.events.rows
        said = quote(self.events.is_delete)
        name = own.tombstoneKey and find_name(own.tombstoneKey, rows.columns, is_case_sensitive(rows.sparkSession))
        if not name:
            return said
        return any_of([said, is_tombstone(own, self._stored(own.tombstone_column, name))])

    def _shown(self, column: str, place: int | None) -> Sql:
        """Return a column of an event, filled unless the event is a delete."""
        if place is None:
            return field_of(Sql("e"), column)
        return case([(not_(field_of(Sql("e"), self.events.is_delete)), Sql(f"v{place}"))])


def _filled(value: Sql, kind: DataType, before: Sql, parts: frozenset[Path] | None, at: Path) -> Sql:
    """Return a value, or the last earlier one that is not null; in structs, field by field.

    Args:
        value: as SQL.
        kind: its type.
        before: the window of what is before it.
        parts: only these fields, and what is in them, are filled; None if all are.
        at: the path of the value.
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
