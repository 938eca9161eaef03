"""`applyChanges`: change events as a merge, in any order and batching (H9, U1-U6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, NullType, StringType

from trinitymerge.errors import InvalidMergeError, NullKeyError, closest, counted, did_you_mean, missing
from trinitymerge.feeds.casts import cast_to_stored, lacking_fields
from trinitymerge.history.changes import field_of
from trinitymerge.history.versions import Timeline, valid_at
from trinitymerge.log.actions import TruncateTable
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.ignored_columns import mentions
from trinitymerge.merge.analysis.relations import as_column
from trinitymerge.merge.compile.registers import MINE, THEIRS, Registers, Written, stored_rows
from trinitymerge.merge.compile.strategies import KEY_LOOKUP
from trinitymerge.merge.execute.plan import MergeSpec, Options, Truncate
from trinitymerge.merge.execute.schema_changes import evolve_schema
from trinitymerge.merge.execute.validate import UNKNOWN_COLUMNS
from trinitymerge.merge.model.arguments import names_of, text_of
from trinitymerge.merge.model.clauses import (
    All,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
)
from trinitymerge.reader import keys_to_find, live_rows, with_comments
from trinitymerge.rows.registers import UNSET_FIELD, Part
from trinitymerge.rows.tombstones import non_key_fields
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
    quote,
    same,
    text_literal,
)
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.predicates import boolean
from trinitymerge.spark.session import force_analysis
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import KEY_TO_FIND, MENDED, UNKNOWN, UNSET
from trinitymerge.stores.base import TableStore, require_managed

CALL = "applyChanges()"


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
    unchanged: str | Column | None = None
    columns_to_update: str | Column | None = None
    lacking: tuple[Path, ...] = ()
    follows: bool = False

    @property
    def is_partial(self) -> bool:
        """True if events may leave something unset."""
        named = self.unchanged is not None or self.columns_to_update is not None
        return bool(named or self.ignore_nulls or self.lacking)

    @classmethod
    def of(
        cls,
        sequence_by: Any,
        deletes: Any,
        truncates: Any,
        columns: str | Iterable[str] | None,
        except_columns: str | Iterable[str],
        ignore_nulls: bool | str | Iterable[str],
        unchanged: Any = None,
        columns_to_update: Any = None,
    ) -> ChangeFeed:
        """Check and hold the arguments of ``applyChanges``.

        Raises:
            InvalidMergeError: an argument is of the wrong kind.
        """
        sequence = (sequence_by,) if isinstance(sequence_by, (str, Column)) else sequence_by
        given = [
            ("applyAsDeletes", deletes),
            ("applyAsTruncates", truncates),
            ("unchanged", unchanged),
            ("columnsToUpdate", columns_to_update),
            *(("sequenceBy", s) for s in sequence or ()),
        ]
        for name, value in given:
            if value is not None and not isinstance(value, (str, Column)):
                raise InvalidMergeError(f"{CALL}: {name} takes SQL text or a Column, got {value!r}.")
        ways = {
            "unchanged": unchanged is not None,
            "columnsToUpdate": columns_to_update is not None,
            "ignoreNullUpdates": bool(ignore_nulls),
        }
        if sum(ways.values()) > 1:
            got = " and ".join(name for name, is_given in ways.items() if is_given)
            raise InvalidMergeError(
                f"{CALL} takes unchanged, columnsToUpdate or ignoreNullUpdates, got {got}. Name the columns that an event leaves "
                "unchanged in one way."
            )
        return cls(
            None if sequence is None else tuple(sequence),
            deletes,
            truncates,
            None if columns is None else names_of(CALL, "columns", columns),
            names_of(CALL, "exceptColumns", except_columns),
            ignore_nulls if isinstance(ignore_nulls, bool) else names_of(CALL, "ignoreNullUpdates", ignore_nulls),
            unchanged,
            columns_to_update,
        )


@attrs.frozen(eq=False)
class ChangeEvents:
    """Rows with the table's columns, and flags for deletes and truncates.

    Attributes:
        rows: the events.
        is_delete: the name of the boolean column that says which are deletes; never null.
        is_truncate: the same for truncates; equal to ``is_delete`` if the feed has no condition for truncates.
        unset: the name of the column with the names of the columns that an event leaves unchanged; empty if none is asked for.
        mentioned: other columns that the table does not have, and that a condition or the sequence uses (S22a).
    """

    rows: DataFrame
    is_delete: str
    is_truncate: str
    unset: str = ""
    mentioned: tuple[str, ...] = ()

    @property
    def of_keys(self) -> DataFrame:
        """The rows without the flag for truncates."""
        return self.rows if self.is_truncate == self.is_delete else self.rows.drop(self.is_truncate)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses that write each event as it is."""
        beside = (self.unset,) if self.unset else ()
        dies, columns = quote(self.is_delete), All((*self.mentioned, *beside))
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
    """Return the merge of the events: blind, unless they leave something unset, or are to be searched for truncates."""
    check(snapshot.definition, feed)
    asked = attrs.evolve(feed, follows=spec.options.schema_evolution)
    own, events, told = _fitted(source, snapshot.definition, asked, spec.options)
    truncated = Truncated(events)
    if feed.truncates is not None:
        require_managed(spec.store, f"{CALL} with applyAsTruncates")
        truncated = since_truncate(events, own)
    done, made = truncated.merged_with(spec, snapshot)
    if told.is_partial:
        require_managed(spec.store, f"{CALL} with events that leave columns unchanged")
    deletes = "truncate" in made and not own.history and not made["truncate"].removed
    if told.is_partial or deletes or (truncated.truncates and snapshot.has_partial):
        seen = attrs.evolve(snapshot, definition=own)
        done, holds = filled(spec.store, seen, done, told, truncated.truncates)
        made |= {"based_on": snapshot, "computed_by": KEY_LOOKUP, "holds": holds, "has_registers": True}
    rows = with_comments(done.rows, own)
    return attrs.evolve(spec, source=rows, clauses=done.clauses, definition=own).with_options(**made)


def _fitted(
    source: DataFrame, own: TableDefinition, feed: ChangeFeed, options: Options
) -> tuple[TableDefinition, ChangeEvents, ChangeFeed]:
    """Return the definition with the columns that the events add (S44), the events, and the columns they lack (S22)."""
    events = events_of(source, own, feed)
    if options.schema_evolution:
        own = evolve_schema(own, events.of_keys, None, events.clauses, options)
    check_taken(own, feed)
    source, told = _without_columns(source, own, feed)
    return own, events if told is feed else events_of(source, own, told), told


def _without_columns(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> tuple[DataFrame, ChangeFeed]:
    """Return events that leave the optional columns and fields unset that they lack (S22, U6)."""
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
        unset = _unset_columns(source, own, feed)
        rows = source.select(
            *[F.col(quote(name)) for name in taken.kept],
            *[F.expr(f"{null_of(own.field(name))} AS {quote(name)}") for name in taken.null],
            *[as_column(value).alias(name) for name, value in sequence],
            *[value.alias(flag, metadata=MADE) for value, flag in zip(said, flags, strict=True)],
            *[value.alias(name, metadata=MADE) for name, value in unset.items()],
        )
        told = (feed.deletes, feed.truncates, feed.unchanged, feed.columns_to_update, *(feed.sequence_by or ()))
        texts = [text_of(e) for e in told if e is not None]
        exact = is_case_sensitive(source.sparkSession)
        beside = [n for n in taken.kept if find_name(n, own.names, exact) is None]
        named = {name.casefold() for name in feed.columns or ()}
        mentioned = tuple(n for n in beside if n.casefold() not in named and any(mentions(t, n) for t in texts))
        return ChangeEvents(force_analysis(rows), flags[0], flags[-1], next(iter(unset), ""), mentioned)


def _require_boolean(source: DataFrame, feed: ChangeFeed) -> None:
    """Raise if a condition is not boolean."""
    given = {"applyAsDeletes": feed.deletes, "applyAsTruncates": feed.truncates}
    asked = {name: condition for name, condition in given.items() if condition is not None}
    if asked:
        fields = source.select(*[as_column(condition).alias(name) for name, condition in asked.items()]).schema.fields
        for field in fields:
            boolean(asked[field.name], field.dataType, f"{CALL}: {field.name}")


def _unset_columns(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> dict[str, Column]:
    """Return the column with the names of the columns that an event leaves unchanged, under a free name (U2).

    Names are in lower case unless the session is case-sensitive. Evaluating it fails if a name is not that of such a column.

    Raises:
        InvalidMergeError: the argument is not an array of text.
    """
    argument = "unchanged" if feed.unchanged is not None else "columnsToUpdate"
    given = feed.unchanged if feed.unchanged is not None else feed.columns_to_update
    if given is None:
        return {}
    kind = source.select(as_column(given).alias("c")).schema[0].dataType
    is_text = isinstance(kind, ArrayType) and isinstance(kind.elementType, (StringType, NullType))
    if not is_text and not isinstance(kind, NullType):
        raise InvalidMergeError(
            f"{CALL}: {argument} takes an array of column names, got a value of type {kind.simpleString()}. Use array('a', 'b')."
        )
    exact = is_case_sensitive(source.sparkSession)
    known = [f.name if exact else f.name.lower() for f in non_key_fields(own)]
    names = F.transform(as_column(given).cast("array<string>"), lambda n: n if exact else F.lower(n))
    every = F.array(*[F.lit(n) for n in known]).cast("array<string>")
    unknown = F.filter(F.array_except(names, every), lambda n: n.isNotNull())
    listed = F.concat(F.lit(f"{UNKNOWN_COLUMNS}: {argument} names "), F.array_join(F.slice(unknown, 1, 5), ", "))
    said = names if feed.unchanged is not None else F.array_except(every, names)
    checked = F.when(F.size(unknown) > 0, F.raise_error(listed).cast("array<string>")).otherwise(said)
    return {free_name("unset", [*source.columns, *own.names]): checked}


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

    def merged_with(self, spec: MergeSpec, snapshot: Snapshot) -> tuple[ChangeEvents, dict[str, Any]]:
        """Return the events, deletes at truncates included, and the options of a merge that commits the truncates."""
        made: dict[str, Any] = {"source_rows": self.source_rows}
        if not self.truncates:
            return self.events, made
        if snapshot.definition.history:
            ended = _with_ended(spec.store, snapshot, self.events, self.truncates)
            return ended, made | {"truncate": Truncate(self._action(snapshot)), "based_on": snapshot}
        return self._without_history(spec, snapshot, made)

    def _without_history(
        self, spec: MergeSpec, snapshot: Snapshot, made: dict[str, Any]
    ) -> tuple[ChangeEvents, dict[str, Any]]:
        """Return the same without history.

        Batches without a fresher row cease to be part of the table, and nothing is read. Where that is not enough, or deletes are
        to be counted, live rows that are not fresher are deleted.
        """
        own, last, newest = snapshot.definition, snapshot.truncate, self.truncates[-1]
        if last is not None and last.watermark != newest and is_at_least(last.watermark, newest, own):
            return self.events, made  # it has deleted everything that this one would
        made |= {"based_on": snapshot}
        gone = [b for b in snapshot.live_batches if is_at_least(newest, b.watermark_max, own)]
        others = [b for b in snapshot.live_batches if b not in gone]
        stay = all(is_at_least(b.watermark_min, newest, own) and b.watermark_min != newest for b in others)
        if stay and not spec.options.counts and spec.options.max_delete_fraction is None:
            removed = tuple(b.id for b in gone)
            return self.events, made | {"truncate": Truncate(TruncateTable(newest), removed), "has_counts": False}
        deleted = _with_deleted(spec.store, snapshot, self.events, newest)
        return deleted, made | {"truncate": Truncate(TruncateTable(newest))}

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
    """Add a delete for each key that holds at a truncate of a table with history, at its place."""
    timeline = Timeline(store, snapshot.definition)
    for at in truncates:
        moment = _sql_of(at, snapshot.definition)
        events = _with_deletes(events, snapshot.definition, moment, valid_at(timeline, snapshot, moment[0]))
    return events


def _with_deleted(store: TableStore, snapshot: Snapshot, events: ChangeEvents, at: Watermark) -> ChangeEvents:
    """Add a delete for each live row that is not fresher than a truncate, at its place."""
    own, moment = snapshot.definition, _sql_of(at, snapshot.definition)
    rows = live_rows(store, Batches.of(snapshot), with_hidden=True)
    return _with_deletes(events, own, moment, rows.filter(not_(is_older(moment, [*map(quote, own.watermarkKey)]))))


def _with_deletes(events: ChangeEvents, own: TableDefinition, at: Sequence[Sql], rows: DataFrame) -> ChangeEvents:
    """Add a delete for the key of each row, at a watermark."""
    exact, kinds = is_case_sensitive(rows.sparkSession), {f.name: f.dataType for f in events.rows.schema.fields}
    known: dict[str, Sql] = {k: quote(k) for k in own.primaryKey} | dict(zip(own.watermarkKey, at, strict=True))
    values = {find_name(n, events.rows.columns, exact) or n: value for n, value in known.items()}
    values[events.is_delete] = TRUE
    shown = [f"{_as_event(values.get(n, NULL), kinds[n])} AS {quote(n)}" for n in events.rows.columns]
    return attrs.evolve(events, rows=events.rows.unionByName(rows.selectExpr(*shown)))


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


# Unset columns ------------------------------------------------------------------------------------------------------


def filled(
    store: TableStore, snapshot: Snapshot, events: ChangeEvents, feed: ChangeFeed, truncates: Sequence[Watermark]
) -> tuple[ChangeEvents, str]:
    """Return the events with what they leave unset, and the stored rows that they mend (U1, U4).

    Args:
        store: where the table is.
        snapshot: the version whose rows fill them.
        events: with the columns of the table.
        feed: says which columns.
        truncates: those of the events.

    Returns:
        The rows, and the name of the column with the latest stored row of each key.

    Raises:
        InvalidMergeError: a column does not exist.
    """
    last = snapshot.truncate
    known = [] if last is None else [*last.earlier, last.watermark]
    for at in truncates:
        _sql_of(at, snapshot.definition)
    return _Filling.of(snapshot, events, feed).over(store, snapshot, truncates, [*known, *truncates])


def _ignored_columns(own: TableDefinition, rows: DataFrame, feed: ChangeFeed) -> list[str]:
    """Return the table's columns whose nulls mean "unchanged"."""
    exact = is_case_sensitive(rows.sparkSession)
    names = [f.name for f in non_key_fields(own)]
    if isinstance(feed.ignore_nulls, bool):
        return names if feed.ignore_nulls else []
    for name in feed.ignore_nulls:
        if find_name(name, names, exact) is None:
            raise InvalidMergeError(
                f"{CALL}: ignoreNullUpdates names '{name}', which is not a column that can be filled."
                f"{did_you_mean(name, names)}",
                column=name,
            )
    return [n for n in names if find_name(n, feed.ignore_nulls, exact) is not None]


@attrs.frozen(eq=False)
class _Filling:
    """The events of a feed, beside the registers of their keys.

    Attributes:
        events: what is filled.
        feed: says what each event leaves unset.
        registers: of all columns that an event or a stored row may leave unset.
        ignored: the columns whose nulls mean "unchanged".
    """

    events: ChangeEvents
    feed: ChangeFeed
    registers: Registers
    ignored: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot, events: ChangeEvents, feed: ChangeFeed) -> _Filling:
        own = snapshot.definition
        ignored = _ignored_columns(own, events.rows, feed)
        named = [f.name for f in non_key_fields(own)] if events.unset else []
        asked = [*ignored, *named, *(path[0] for path in feed.lacking)]
        return cls(events, feed, Registers.of(snapshot, asked), frozenset(ignored))

    def over(
        self, store: TableStore, snapshot: Snapshot, new: Sequence[Watermark], truncates: Sequence[Watermark]
    ) -> tuple[ChangeEvents, str]:
        """Return the events, filled, and the stored rows that they mend, each beside the latest stored row of its key."""
        own, registers, rows = snapshot.definition, self.registers, self.events.rows
        keys = rows.selectExpr(*[f"{self._value(k)} AS {KEY_TO_FIND(i)}" for i, k in enumerate(own.primaryKey)])
        if new and registers.mends:  # a truncate sets null in all keys
            keys = keys.unionByName(_unset_keys(store, snapshot))
        stored = stored_rows(store, snapshot, keys, registers.mends)
        names = [*own.primaryKey, *own.watermarkKey, *(part.path[0] for part in registers.columns)]
        written = Written(rows, {n: self._value(n) for n in names}, self._dies(), self._unset)
        found = registers.resolved(written, stored, truncates)
        if registers.mends:
            found = found.filter(any_of([registers.is_written, registers.is_mended]))
        else:
            found = found.filter(registers.is_written)
        holds = free_name("holds", [*rows.columns, *own.names])
        shown = [f"{self._shown(c)} AS {quote(c)}" for c in rows.columns if c != self.events.unset]
        told = {
            **{f"w{i}": field_of(registers.latest, f"w{i}") for i in range(len(own.watermarkKey))},
            "live": field_of(registers.latest, "live"),
            UNSET: registers.unset,
            MENDED: not_(registers.is_written),
            UNKNOWN: registers.unknown(lambda part: self._is_named(part, field_of(Sql(MINE), self.events.unset))),
        }
        beside = found.selectExpr(
            *shown, f"struct({', '.join(f'{value} AS {name}' for name, value in told.items())}) AS {quote(holds)}"
        )
        return attrs.evolve(self.events, rows=beside, unset="", mentioned=(*self.events.mentioned, holds)), holds

    @property
    def _own(self) -> TableDefinition:
        return self.registers.definition

    @property
    def _exact(self) -> bool:
        return is_case_sensitive(self.events.rows.sparkSession)

    def _column(self, name: str) -> str | None:
        """Return the events' column for one of the table's."""
        return find_name(name, self.events.rows.columns, self._exact)

    def _value(self, name: str) -> Sql:
        """Return a column of the events in the table's type; as null if the events do not have it."""
        own, column = self._own, self._column(name)
        if column is None:
            return null_of(own.field(name))
        is_key = name in own.primaryKey
        return cast_to_stored(self.events.rows, column, own.field(name), CALL, is_key, follows=self.feed.follows)

    def _unset(self, part: Part) -> Sql:
        """Return SQL that is true if an event leaves a part of a column unset. Never null."""
        name = part.path[0]
        lacks = any(part.path[: len(path)] == path for path in self.feed.lacking)
        if lacks:
            return TRUE
        is_null_in = [is_null(part.value(self._value(name)))] if name in self.ignored else []
        return any_of([*is_null_in, self._is_named(part, quote(self.events.unset))])

    def _is_named(self, part: Part, names: Sql) -> Sql:
        """Return SQL that is true if an event names the column of a part as unchanged. Never null.

        Args:
            part: in the column.
            names: those that the event names, as SQL.
        """
        if not self.events.unset:
            return FALSE
        name = part.path[0] if self._exact else part.path[0].lower()
        return or_else(Sql(f"array_contains({names}, {text_literal(name)})"), FALSE)

    def _dies(self) -> Sql:
        """Return SQL that is true for deletes, and for events that set the tombstone key (S4)."""
        said, name = quote(self.events.is_delete), self._own.tombstoneKey
        if not name or self._column(name) is None:
            return said
        return any_of([said, is_tombstone(self._own, self._value(name))])

    def _shown(self, column: str) -> Sql:
        """Return a column of an event, filled, or of a mended row."""
        own, registers, is_event = self._own, self.registers, self.registers.is_written
        mine, name = field_of(Sql(MINE), column), find_name(column, own.names, self._exact)
        if column == self.events.is_delete:
            return or_else(mine, FALSE)
        if name is None:
            return mine
        if name in (*own.primaryKey, *own.watermarkKey):
            kind = "k" if name in own.primaryKey else "w"
            return Sql(f"{kind}{(own.primaryKey if kind == 'k' else own.watermarkKey).index(name)}")
        if any(part.path[0] == name for part in registers.columns):
            is_delete = or_else(field_of(Sql(MINE), self.events.is_delete), FALSE)
            return case([(not_(is_delete), registers.value(name))])
        if not registers.mends:
            return mine
        theirs = cast(field_of(Sql(THEIRS), name), self.events.rows.schema[column].dataType)
        return case([(is_event, mine)], theirs)


def _unset_keys(store: TableStore, snapshot: Snapshot) -> DataFrame:
    """Return the keys of all stored rows that leave something unset."""
    own = snapshot.definition
    batches = Batches(own, tuple(b for b in snapshot.batches if b.partial))
    rows = store.scan(batches, [UNSET_FIELD]).filter(is_not_null(UNSET))
    return rows.selectExpr(*keys_to_find(own))
