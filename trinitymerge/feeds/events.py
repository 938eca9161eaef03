"""The arguments of `applyChanges`, and change events as rows with the columns of the table (H9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import ArrayType, NullType, StringType

from trinitymerge.errors import InvalidMergeError, closest, missing
from trinitymerge.feeds.casts import cast_to_stored
from trinitymerge.merge.analysis.ignored_columns import mentions
from trinitymerge.merge.analysis.relations import as_column
from trinitymerge.merge.execute.validate import UNKNOWN_COLUMNS
from trinitymerge.merge.model.arguments import names_of, text_of
from trinitymerge.merge.model.clauses import All, Clause, Delete, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.rows.tombstones import non_key_fields
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.types import Path
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import analysis_errors
from trinitymerge.spark.predicates import boolean
from trinitymerge.spark.session import force_analysis
from trinitymerge.spark.sql_text import Sql

CALL = "applyChanges()"


@attrs.frozen(eq=False)
class ChangeFeed:
    """The arguments of ``applyChanges``, and what is not an argument of the call.

    Attributes:
        unset_columns: the columns that some event leaves unset, as :func:`fillable_names` names them; None if it is not known.
        lacking: optional columns of the table, and fields, that the source lacks (S22).
        follows: all columns but the key's are optional (S44).
        carried: a column that the events keep and do not write, for a quarantine; empty if there is none.
    """

    sequence_by: tuple[Any, ...] | None = None
    deletes: str | Column | None = None
    truncates: str | Column | None = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] = ()
    ignore_nulls: bool | tuple[str, ...] = False
    unchanged: str | Column | None = None
    columns_to_update: str | Column | None = None
    moved_from: tuple[Any, ...] | None = None
    unset_columns: frozenset[str] | None = None
    lacking: tuple[Path, ...] = ()
    follows: bool = False
    carried: str = ""

    @property
    def may_leave_unset(self) -> bool:
        """True if an argument was given by which events may leave columns unset, whether or not one does."""
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
        moved_from: Any = None,
    ) -> ChangeFeed:
        sequence, old_key = (
            None if given is None else tuple(given) if isinstance(given, (list, tuple)) else (given,)
            for given in (sequence_by, moved_from)
        )
        given = [
            *(("applyAsDeletes", deletes), ("applyAsTruncates", truncates)),
            *(("unchanged", unchanged), ("columnsToUpdate", columns_to_update)),
            *(("sequenceBy", s) for s in sequence or ()),
            *(("movedFrom", s) for s in old_key or ()),
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
        taken = None if columns is None else names_of(CALL, "columns", columns)
        left = names_of(CALL, "exceptColumns", except_columns)
        nulls = ignore_nulls if isinstance(ignore_nulls, bool) else names_of(CALL, "ignoreNullUpdates", ignore_nulls)
        return cls(sequence, deletes, truncates, taken, left, nulls, unchanged, columns_to_update, old_key)


@attrs.frozen(eq=False)
class ChangeEvents:
    """Rows with the table's columns, and the names of other columns; empty if the rows do not have them.

    Attributes:
        is_delete, is_truncate: flags that are never null; the same column if the feed has no condition for truncates.
        unset: the names of the columns that an event leaves unchanged.
        old_key: the key that an event's row had before; null if it had the same, or if that key has been purged.
        moves: whether the key has changed; empty also if that is not known yet, or none has.
        mentioned: columns that the table does not have, and that a condition or the sequence uses (S22a).
        carried: what is kept for a quarantine.
        number: the number of the event, also of a delete that it makes.
    """

    rows: DataFrame
    is_delete: str
    is_truncate: str
    unset: str = ""
    old_key: tuple[str, ...] = ()
    moves: str = ""
    mentioned: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    number: str = ""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns that say what an event leaves unset, and its old key."""
        return tuple(name for name in (self.unset, self.moves, *self.old_key) if name)

    @property
    def without_hidden(self) -> ChangeEvents:
        if not self.hidden:
            return self
        return attrs.evolve(self, rows=self.rows.drop(*self.hidden), unset="", old_key=(), moves="")

    @property
    def of_keys(self) -> DataFrame:
        return self.rows if self.is_truncate == self.is_delete else self.rows.drop(self.is_truncate)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        dies, columns = E.quote(self.is_delete), All((*self.mentioned, *self.hidden))
        return named(
            WhenMatched(dies, [Delete()]),
            WhenMatched(None, [Update(columns)]),
            WhenNotMatched(E.not_(dies), [Insert(columns)]),
        )


def named(*clauses: Clause, call: str = CALL) -> tuple[Clause, ...]:
    return tuple(attrs.evolve(c, call=call) for c in clauses)


def check(own: TableDefinition, feed: ChangeFeed) -> None:
    """Raise if the table lacks what the feed's arguments need (H9)."""
    given = {"sequenceBy": feed.sequence_by, "applyAsTruncates": feed.truncates, "movedFrom": feed.moved_from}
    ordered = [name for name, value in given.items() if value is not None]
    if not own.watermarkKey and ordered:
        raise InvalidMergeError(
            f"{CALL}: {ordered[0]} needs to know which events are earlier, and the table declares no watermark: its rows are in "
            "the order of their commits. Create it with watermarkKey=, the column or columns that hold the sequence."
        )
    if feed.moved_from is not None and len(feed.moved_from) != len(own.primaryKey):
        raise InvalidMergeError(
            f"{CALL}: movedFrom must have a value for each key column ({', '.join(own.primaryKey)}), got {len(feed.moved_from)}."
        )
    if feed.columns is not None and feed.except_columns:
        raise InvalidMergeError(f"{CALL} takes columns or exceptColumns, got both.")
    if feed.sequence_by is not None and len(feed.sequence_by) != len(own.watermarkKey):
        raise InvalidMergeError(
            f"{CALL}: sequenceBy must have a value for each watermark column ({', '.join(own.watermarkKey)}), got "
            f"{len(feed.sequence_by)}."
        )


def check_taken(own: TableDefinition, feed: ChangeFeed) -> None:
    known = {name.casefold() for name in own.names}
    unknown = [name for name in feed.columns or () if name.casefold() not in known]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: columns names what the table does not have. {missing(unknown, 'the table', own.names)} To add it: "
            "withSchemaEvolution(), or alter().addColumn().",
            columns=unknown,
        )


def events_of(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> ChangeEvents:
    taken = _Columns.of(source, own, feed)
    sequence = zip(own.watermarkKey, feed.sequence_by or (), strict=False)
    asked = {"is_delete": feed.deletes, **({} if feed.truncates is None else {"is_truncate": feed.truncates})}
    names = [*source.columns, *own.names]
    flags = [free_name(name, names) for name in asked]
    no = F.lit(False)
    said = [no if condition is None else F.coalesce(as_column(condition), no) for condition in asked.values()]
    with analysis_errors(CALL):
        _require_boolean(source, feed)
        unset = _unset_columns(source, own, feed)
        old_key = {free_name(f"old_key_{i}", names): e for i, e in enumerate(feed.moved_from or ())}
        carried = [feed.carried] if feed.carried else []
        rows = source.select(
            *(["*"] if taken.kept == source.columns else [F.col(E.quote(name)) for name in taken.kept]),
            *[F.expr(f"{E.null_of(own.field(name))} AS {E.quote(name)}") for name in taken.null],
            *[as_column(value).alias(name) for name, value in sequence],
            *[value.alias(flag, metadata=E.MADE) for value, flag in zip(said, flags, strict=True)],
            *[value.alias(name, metadata=E.MADE) for name, value in unset.items()],
            *[as_column(value).alias(name, metadata=E.MADE) for name, value in old_key.items()],
            *[F.col(E.quote(name)).alias(name, metadata=E.MADE) for name in carried],
        )
        conditions = (feed.deletes, feed.truncates, feed.unchanged, feed.columns_to_update)
        told = (*conditions, *(feed.sequence_by or ()), *(feed.moved_from or ()))
        texts = [text_of(e) for e in told if e is not None]
        exact = E.is_case_sensitive(source.sparkSession)
        beside = [n for n in taken.kept if E.find_name(n, own.names, exact) is None]
        named = {name.casefold() for name in feed.columns or ()}
        mentioned = [n for n in beside if n.casefold() not in named and any(mentions(t, n) for t in texts)]
        mentioned, unset_name = [*mentioned, *carried], next(iter(unset), "")
        rows = force_analysis(rows)
        return ChangeEvents(rows, flags[0], flags[-1], unset_name, (*old_key,), "", (*mentioned,), (*carried,))


def _require_boolean(source: DataFrame, feed: ChangeFeed) -> None:
    given = {"applyAsDeletes": feed.deletes, "applyAsTruncates": feed.truncates}
    asked = {name: condition for name, condition in given.items() if condition is not None}
    if asked:
        for field in source.select(*[as_column(given).alias(name) for name, given in asked.items()]).schema.fields:
            boolean(asked[field.name], field.dataType, f"{CALL}: {field.name}")


def fillable_names(own: TableDefinition, exact: bool) -> list[str]:
    """Return the columns that an event may leave unset: in lower case unless names are exact, as events name them."""
    return [f.name if exact else f.name.lower() for f in non_key_fields(own)]


def unset_metrics(unset: Iterable[Sql]) -> dict[str, str]:
    """Return the aggregates for :func:`columns_unset`, over SQL that is true if an event leaves a fillable column unset."""
    return {f"unset_{i}": f"max({is_unset})" for i, is_unset in enumerate(unset)}


def columns_unset(names: Sequence[str], observed: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for i, name in enumerate(names) if observed[f"unset_{i}"])


def _unset_columns(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> dict[str, Column]:
    """Return the column with the names of the columns that an event leaves unchanged, under a free name (U2).

    Names are in lower case unless the session is case-sensitive. Evaluating it fails if a name is not that of such a column.
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
    exact = E.is_case_sensitive(source.sparkSession)
    known = fillable_names(own, exact)
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
        exact, names = E.is_case_sensitive(source.sparkSession), source.columns
        found = {name: E.find_name(name, own.names, exact) for name in names}
        wanted = names if feed.columns is None else _known(feed.columns, names, exact)
        others = [n for n in own.names if n not in found.values()]
        left_out = {*_known(feed.except_columns, [*names, *others], exact), *(n for n in names if n not in wanted)}
        always = {*own.primaryKey, *own.watermarkKey}
        replaced = own.watermarkKey if feed.sequence_by is not None else ()
        needed = (*own.primaryKey, *(own.watermarkKey if feed.sequence_by is None else ()))
        lacking = [n for n in needed if n not in found.values()]
        if lacking:
            remedy = " Add it, or name another by sequenceBy=." if set(lacking) <= set(own.watermarkKey) else ""
            raise InvalidMergeError(f"{CALL}: {missing(lacking, 'the source', names)}{remedy}", columns=lacking)
        kept = [n for n, field in found.items() if field not in replaced and (field in always or n not in left_out)]
        here = {found[n] for n in kept}
        absent = [n for n in own.names if n not in here and n not in always and n != own.tombstoneKey]
        is_chosen = feed.columns is not None
        return cls(kept, [n for n in absent if is_chosen or n in left_out or n in found.values()])


def _known(given: Iterable[str], among: Sequence[str], exact: bool) -> list[str]:
    found = [(name, E.find_name(name, among, exact)) for name in given]
    unknown = [name for name, column in found if column is None]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: {missing(unknown, 'the source', among)}{closest(unknown[0], among)}", columns=unknown
        )
    return [column for _, column in found if column is not None]


def free_name(name: str, taken: Iterable[str]) -> str:
    lowered = {t.lower() for t in taken}
    while name in lowered:
        name += "_"
    return name


def as_stored(events: ChangeEvents, own: TableDefinition, names: Iterable[str]) -> ChangeEvents:
    """Return events with some columns in the table's types; a value that does not fit is an error."""
    rows, exact = events.rows, E.is_case_sensitive(events.rows.sparkSession)
    cast, kinds = dict[str, str](), {f.name: f.dataType for f in rows.schema.fields}
    for name in names:
        column, field = E.find_name(name, rows.columns, exact) or name, own.field(name)
        if kinds[column] != E.physical_type(field) and not isinstance(kinds[column], NullType):
            is_key = name in own.primaryKey
            cast[column] = f"{cast_to_stored(rows, column, field, CALL, is_key)} AS {E.quote(column)}"
    if not cast:
        return events
    return attrs.evolve(events, rows=rows.selectExpr(*[cast.get(n, E.quote(n)) for n in rows.columns]))


def with_deletes(
    events: ChangeEvents, own: TableDefinition, at: Sequence[Sql], rows: DataFrame, also: Iterable[str] = ()
) -> ChangeEvents:
    """Add a delete for the key of each row, at a watermark; it has other columns of the row, too.

    The rows have keys of the table's types, which the source's may not hold: events get the table's.
    """
    events = as_stored(events, own, own.primaryKey)
    exact, kinds = E.is_case_sensitive(rows.sparkSession), {f.name: f.dataType for f in events.rows.schema.fields}
    known: dict[str, Sql] = {k: E.quote(k) for k in own.primaryKey} | dict(zip(own.watermarkKey, at, strict=True))
    values = {E.find_name(n, events.rows.columns, exact) or n: value for n, value in known.items()}
    values |= {events.is_delete: E.TRUE, **{name: E.quote(name) for name in also}}
    told = [(n, kinds[n], values.get(n, E.NULL)) for n in events.rows.columns]
    # A column of the events that has only nulls has no type.
    shown = [f"{v if isinstance(kind, NullType) else E.cast(v, kind)} AS {E.quote(n)}" for n, kind, v in told]
    return attrs.evolve(events, rows=events.rows.unionByName(rows.selectExpr(*shown)))
