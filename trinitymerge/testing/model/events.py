"""Change events read from source rows (H9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs

from trinitymerge.errors import InvalidMergeError, NullKeyError, counted, did_you_mean
from trinitymerge.merge.model.clauses import All, Clause, Delete, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.expressions import Expr, Row
from trinitymerge.testing.model.validate import Names
from trinitymerge.testing.model.values import alive_value, is_tombstone, order_keys, store, zero

_IS_DELETE = "_tm_delete"


@attrs.frozen
class Event:
    """One thing that happened to a key.

    Attributes:
        row: every column of the table, key and watermark as they are stored.
        isDelete: only key and watermark count.
    """

    row: Row
    isDelete: bool = False

    clauses: ClassVar[tuple[Clause, ...]] = (
        WhenMatched(lambda _, s: s[_IS_DELETE], [Delete()]),
        WhenMatched(None, [Update(All())]),
        WhenNotMatched(lambda _, s: not s[_IS_DELETE], [Insert(All())]),
    )
    """The merge of events, of which :attr:`source` is the source."""

    @property
    def source(self) -> Row:
        """The event as a row of that merge's source."""
        return {**self.row, _IS_DELETE: self.isDelete}


@attrs.frozen
class Events:
    """The events of one batch.

    Attributes:
        ofKeys: upserts and deletes.
        truncates: their watermarks, as they are stored.
    """

    ofKeys: tuple[Event, ...]
    truncates: tuple[Row, ...]


@attrs.frozen
class Feed:
    """The arguments of ``applyChanges`` of these names (H9).

    An expression is an ``Expr`` over the source, a callable of one of its rows, or a literal.
    """

    sequenceBy: Any = None
    applyAsDeletes: Any = None
    applyAsTruncates: Any = None
    columns: tuple[str, ...] | None = None
    exceptColumns: tuple[str, ...] = ()
    ignoreNullUpdates: tuple[str, ...] = ()


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


# What can be refused before any row is looked at -------------------------------------------------------------


def check_feed(names: Names, feed: Feed) -> None:
    """Refuses what no data could make right.

    Raises:
        InvalidMergeError: naming the argument.
    """
    definition = names.definition
    if feed.columns is not None and feed.exceptColumns:
        raise InvalidMergeError("applyChanges takes either columns or exceptColumns, got both.")
    if feed.applyAsTruncates is not None and definition.history:
        raise InvalidMergeError(
            "applyAsTruncates: a table with history cannot be truncated. Delete its keys one by one."
        )
    if feed.sequenceBy is not None and len(_sequence(names, feed)) != len(definition.watermarkKey):
        raise InvalidMergeError(
            f"sequenceBy: {counted(len(_sequence(names, feed)), 'value')} for a watermark of "
            f"{counted(len(definition.watermarkKey), 'column')}."
        )
    if feed.sequenceBy is None:
        _require(names, definition.watermarkKey, "sequenceBy")
    for name in feed.columns or ():
        names.target_column(name, "columns")
    for name in feed.exceptColumns:
        if names.source_column(name) is None:
            names.target_column(name, "exceptColumns")
    for name in feed.ignoreNullUpdates:
        names.target_column(name, "ignoreNullUpdates")
    _check_columns(names, feed)


def _check_columns(names: Names, feed: Feed) -> None:
    """The columns that are taken are there, and those that are left out can be null."""
    definition = names.definition
    names.source_key()
    if any(name.lower() in _lower(feed.exceptColumns) for name in definition.primaryKey):
        raise InvalidMergeError("exceptColumns: a column of the primary key cannot be left out.")
    taken = taken_columns(definition, feed)
    optional = {definition.tombstoneKey, *lacking_columns(names, feed)}
    _require(names, [name for name in taken if name not in optional], "columns")
    decided = {*taken, *definition.watermarkKey, definition.tombstone_column}
    missing = [field.name for field in definition.fields if not field.nullable and field.name not in decided]
    if missing:
        raise InvalidMergeError(f"Column {missing[0]} is not nullable and cannot be left out.", columns=missing)


def _require(names: Names, wanted: Iterable[str], where: str) -> None:
    missing = [name for name in wanted if names.source_column(name) is None]
    if missing:
        raise InvalidMergeError(
            f"{where}: the source has no column {', '.join(missing)}." + did_you_mean(missing[0], names.source),
            columns=missing,
        )


def taken_columns(definition: TableDefinition, feed: Feed) -> tuple[str, ...]:
    """The columns of the table that come from the source's of the same name: the key always, watermarks never."""
    left_out = _lower(feed.exceptColumns)
    listed = _lower(definition.names if feed.columns is None else feed.columns)
    wanted = [n for n in definition.names if n.lower() in listed and n.lower() not in left_out]
    found = {*definition.primaryKey, *wanted} - {*definition.watermarkKey}
    return tuple(name for name in definition.names if name in found)


def lacking_columns(names: Names, feed: Feed) -> list[str]:
    """Of the columns that are taken those that the source lacks, and may (S22)."""
    taken = () if feed.columns is not None else taken_columns(names.definition, feed)
    fields = [names.definition.field(name) for name in taken if names.source_column(name) is None]
    return [f.name for f in fields if f.may_be_left_out and f.name != names.definition.tombstoneKey]


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


# Reading ----------------------------------------------------------------------------------------------------


def read_events(names: Names, source: Iterable[Row], feed: Feed) -> Events:
    """What each row of the source says.

    Raises:
        NullKeyError: an event is without a place in the sequence.
        SchemaMismatchError: a key or watermark does not fit its column.
    """
    of_keys, truncates = list[Event](), list[Row]()
    for row in source:
        watermark = _watermark(names, feed, row)
        if _holds(feed.applyAsTruncates, row):
            truncates.append(watermark)
        else:
            of_keys.append(_event(names, feed, row, watermark))
    return Events(tuple(of_keys), tuple(truncates))


def _event(names: Names, feed: Feed, row: Row, watermark: Row) -> Event:
    definition, taken = names.definition, taken_columns(names.definition, feed)
    columns = {name: names.source_column(name) for name in taken}
    values = {name: row[column] for name, column in columns.items() if column is not None}
    key = {name: _stored(definition, name, values[name]) for name in definition.primaryKey}
    event = {**dict.fromkeys(definition.names), **values, **key, **watermark}
    if definition.tombstoneKey and definition.tombstoneKey not in values:
        event[definition.tombstoneKey] = alive_value(definition)
    return Event(event, isDelete=_holds(feed.applyAsDeletes, row))


def _stored(definition: TableDefinition, name: str, value: Any) -> Any:
    """Nulls stay: whether they are refused is the merge's business (S34)."""
    field = definition.field(name)
    return None if value is None else store(field, value, isKey=name in definition.primaryKey)


def _watermark(names: Names, feed: Feed, row: Row) -> Row:
    values = [_value(names, expression, row) for expression in _sequence(names, feed)]
    if any(value is None for value in values):
        raise NullKeyError(f"An event has no place in the sequence: {row}. Give it one, or filter it out.")
    columns = names.definition.watermarkKey
    return {name: _stored(names.definition, name, value) for name, value in zip(columns, values, strict=True)}


def _sequence(names: Names, feed: Feed) -> tuple[Any, ...]:
    if feed.sequenceBy is None:
        return names.definition.watermarkKey
    return tuple(feed.sequenceBy) if isinstance(feed.sequenceBy, (list, tuple)) else (feed.sequenceBy,)


def _value(names: Names, expression: Any, row: Row) -> Any:
    """Of a part of the sequence; text names a column of the source."""
    if not isinstance(expression, str):
        return value_of(expression, row)
    _require(names, [expression], "sequenceBy")
    return row[names.source_column(expression) or expression]


def _holds(predicate: Any, row: Row) -> bool:
    return predicate is not None and value_of(predicate, row) is True


def value_of(expression: Any, row: Mapping[str, Any]) -> Any:
    """The value of an expression for a row of the source."""
    if isinstance(expression, Expr):
        return expression.call(None, row)
    if callable(expression):
        return expression(row)
    if isinstance(expression, str):
        raise InvalidMergeError(f"Only Spark can evaluate SQL text ({expression!r}); pass an Expr or a callable.")
    return expression


# Order, and what events mean to the table -------------------------------------------------------------------


def order_of(definition: TableDefinition, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The declared watermark as something that compares as S3 says."""
    return order_keys(row[name] for name in definition.watermarkKey)


def is_dead(definition: TableDefinition, event: Event) -> bool:
    """True for deletes, and for rows that are tombstones by themselves."""
    value = event.row.get(definition.tombstone_column)
    if event.isDelete or definition.tombstoneKey is None:
        return event.isDelete
    return is_tombstone(definition, _stored(definition, definition.tombstoneKey, value))


def delete_of(definition: TableDefinition, key: tuple[Any, ...], watermark: Row) -> Event:
    """A delete of a key at a watermark."""
    blank = {field.name: None if field.nullable else zero(field) for field in definition.fields}
    return Event({**blank, **dict(zip(definition.primaryKey, key, strict=True)), **watermark}, isDelete=True)
