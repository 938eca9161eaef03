"""Partial rows: the columns they leave unset, and who has set their values (U1, U2, U7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
from pyspark.sql import types as T

from trinitymerge.log.actions import Batch
from trinitymerge.rows.tombstones import non_key_fields
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path
from trinitymerge.spark.expressions import (
    FALSE,
    NULL,
    TRUE,
    all_of,
    cast,
    is_not_null,
    null_of,
    physical_type,
    quote,
    text_literal,
)
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import UNSET

_TEXT = {"type": "array", "elementType": "string", "containsNull": True}

UNSET_FIELD = Field(str(UNSET), {"type": "map", "keyType": "string", "valueType": _TEXT, "valueContainsNull": True})
"""The column of files with rows that leave something unset. Files without such rows do not have it."""


def stored_in(batches: Iterable[Batch]) -> tuple[Field, ...]:
    """Return :data:`UNSET_FIELD` if a row of some batches leaves something unset."""
    return (UNSET_FIELD,) if any(b.partial for b in batches) else ()


# Parts of rows --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Part:
    """A column, or a struct field in one: an event sets it or leaves it unset, and it has a register (U1).

    Attributes:
        path: the names from the column on.
        id: its name in :data:`UNSET`, which no rename changes.
        type: Spark's.
        inside: the fields of a struct. The struct's own register is about whether it is there.
    """

    path: Path
    id: str
    type: T.DataType
    inside: tuple[Part, ...] = ()

    def all(self) -> Iterator[Part]:
        """Return the part and those in it."""
        yield self
        for part in self.inside:
            yield from part.all()

    def value(self, column: Sql) -> Sql:
        """Return the value of its register, from that of the column; of a struct, true or null."""
        for name in self.path[1:]:
            column = Sql(f"{column}.{quote(name)}")
        return Sql(f"CASE WHEN {column} IS NOT NULL THEN true END") if self.inside else column


def parts_of(definition: TableDefinition) -> tuple[Part, ...]:
    """Return the columns that have registers: all but keys, watermarks and the tombstone column."""
    return tuple(_part(f, (), physical_type(f)) for f in non_key_fields(definition))


def _part(field: Field, path: Path, kind: T.DataType) -> Part:
    names = (field.first_stored_as, *field.path_in_files(path))
    id = ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in names)
    fields = kind.fields if isinstance(kind, T.StructType) else ()
    return Part((field.name, *path), id, kind, tuple(_part(field, (*path, f.name), f.dataType) for f in fields))


# Authors --------------------------------------------------------------------------------------------------------------


def author(definition: TableDefinition, watermark: Sequence[Sql], old_key: Sequence[Sql] = ()) -> Sql:
    """Return who sets a part, as an array of structs in the order of authors, later ones greater.

    It has one element: the watermark of a row. In a row whose key has changed, a part that it leaves unset has two or more: the
    watermark of the change and the old key, then the author of the part there; none follows if no row had set it there (U7).

    Args:
        definition: of the table.
        watermark: of the row, column by column.
        old_key: of a row whose key has changed; the author under that key is to be appended.
    """
    keys = old_key or [null_of(definition.field(k)) for k in definition.primaryKey]
    values = {f"w{i}": value for i, value in enumerate(watermark)}
    values |= {"sets": FALSE if old_key else TRUE, **{f"k{i}": key for i, key in enumerate(keys)}}
    return Sql(f"array(struct({', '.join(f'{value} AS {name}' for name, value in values.items())}))")


def as_texts(author: Sql, definition: TableDefinition, moves: bool) -> Sql:
    """Return an author as an array of text that no session setting changes, as :data:`UNSET` holds it.

    Args:
        author: see :func:`author`.
        definition: of the table.
        moves: it may have several elements.
    """
    marks, keys = _kinds(definition, definition.watermarkKey), _kinds(definition, definition.primaryKey)

    def texts(row: Sql, with_key: bool) -> Sql:
        names = [(f"w{i}", kind) for i, kind in enumerate(marks)]
        names += [(f"k{i}", kind) for i, kind in enumerate(keys)] if with_key else []
        return Sql(f"array({', '.join(_as_text(Sql(f'{row}.{name}'), kind) for name, kind in names)})")

    if not moves:
        return texts(Sql(f"{author}[0]"), with_key=False)
    each = f"CASE WHEN x.sets THEN {texts(Sql('x'), with_key=False)} ELSE {texts(Sql('x'), with_key=True)} END"
    return Sql(f"flatten(transform({author}, x -> {each}))")


def from_texts(texts: Sql, definition: TableDefinition, moves: bool) -> Sql:
    """Return the author that :func:`as_texts` has made text of; its arguments, too."""
    marks, keys = _kinds(definition, definition.watermarkKey), _kinds(definition, definition.primaryKey)
    if not moves:
        return author(definition, [_from_text(Sql(f"get({texts}, {i})"), kind) for i, kind in enumerate(marks)])
    size = len(marks) + len(keys)
    values = {f"w{i}": _from_text(Sql(f"get({texts}, i * {size} + {i})"), kind) for i, kind in enumerate(marks)}
    values["sets"] = Sql(f"size({texts}) <= i * {size} + {len(marks)}")
    for i, kind in enumerate(keys):
        values[f"k{i}"] = _from_text(Sql(f"get({texts}, i * {size} + {len(marks) + i})"), kind)
    step = f"struct({', '.join(f'{value} AS {name}' for name, value in values.items())})"
    return Sql(f"transform(sequence(0, int(ceil(size({texts}) / {size})) - 1), i -> {step})")


def moves_in(texts: Sql, definition: TableDefinition) -> Sql:
    """Return how many changes of the key an author has, from its texts (:func:`as_texts`)."""
    return Sql(f"int(floor(size({texts}) / {len(definition.watermarkKey) + len(definition.primaryKey)}))")


def key_changes(definition: TableDefinition) -> Sql:
    """Return SQL over :data:`UNSET`: for each change of the key in its authors, the elements of the author that lead to it."""
    each = from_texts(Sql("t"), definition, moves=True)
    leading = f"transform(sequence(1, {moves_in(Sql('t'), definition)}), n -> slice({each}, 1, n))"
    moved = f"filter(map_values({UNSET}), t -> {moves_in(Sql('t'), definition)} > 0)"
    return Sql(f"flatten(transform({moved}, t -> {leading}))")


def key_as_texts(key: Sequence[Sql], definition: TableDefinition) -> Sql:
    """Return a key as :data:`UNSET` holds it in authors."""
    kinds = _kinds(definition, definition.primaryKey)
    return Sql(f"array({', '.join(map(_as_text, key, kinds))})")


def without_earlier_keys(keys: Sql, definition: TableDefinition) -> Sql:
    """Return :data:`UNSET` without some keys: what a row has from such a key counts as set when the key was changed.

    Args:
        keys: an array of :func:`key_as_texts`.
        definition: of the table.
    """
    marks, size = len(definition.watermarkKey), len(definition.primaryKey)
    here = f"slice(t, n * {marks + size} + {marks + 1}, {size})"
    changes = f"sequence(0, {moves_in(Sql('t'), definition)} - 1)"
    first = f"try_element_at(filter({changes}, n -> array_contains({keys}, {here})), 1)"
    kept = f"coalesce(slice(t, 1, {first} * {marks + size} + {marks}), t)"
    moved = f"{moves_in(Sql('t'), definition)} > 0"
    return Sql(f"transform_values({UNSET}, (k, t) -> CASE WHEN {moved} THEN {kept} ELSE t END)")


def metrics(definition: TableDefinition, where: Sql) -> dict[str, str]:
    """Return the aggregates for :attr:`Batch.partial` and :attr:`Batch.moved`, over the rows for which SQL is true."""
    moved = Sql(f"exists(map_values({UNSET}), x -> {moves_in(Sql('x'), definition)} > 0)")
    return {
        "partial": f"count_if({all_of([where, is_not_null(UNSET)])})",
        "moved": f"count_if({all_of([where, is_not_null(UNSET), moved])})",
    }


def _kinds(definition: TableDefinition, names: Sequence[str]) -> list[T.DataType]:
    return [physical_type(definition.field(n)) for n in names]


def _as_text(value: Sql, kind: T.DataType) -> Sql:
    if isinstance(kind, T.TimestampType):
        value = Sql(f"unix_micros({value})")  # text of it depends on the session's time zone
    if isinstance(kind, T.FloatType):
        value = cast(value, T.DoubleType())  # also exact if the column is widened
    return Sql(f"hex({value})") if isinstance(kind, T.BinaryType) else cast(value, T.StringType())


def _from_text(text: Sql, kind: T.DataType) -> Sql:
    if isinstance(kind, T.TimestampType):
        return Sql(f"timestamp_micros({cast(text, T.LongType())})")
    return Sql(f"unhex({text})") if isinstance(kind, T.BinaryType) else cast(text, kind)


NO_TEXTS = cast(NULL, T.ArrayType(T.StringType()))
"""The author of a part that no row has set."""


def since(part: Part, row: Sql | None = None) -> Sql:
    """Return the entry of a part in :data:`UNSET`, of a row or a struct; null if it has none, or if no row has set it."""
    return Sql(f"try_element_at({_of(row)}, {text_literal(part.id)})")


def is_unset(part: Part, row: Sql | None = None) -> Sql:
    """Return SQL that is true if a stored row, or a struct of it, leaves a part unset. Never null."""
    return Sql(f"coalesce(map_contains_key({_of(row)}, {text_literal(part.id)}), false)")


def _of(row: Sql | None) -> Sql:
    return UNSET if row is None else Sql(f"{row}.{UNSET}")


def as_map(entries: Iterable[tuple[Part, Sql, Sql]]) -> Sql:
    """Return :data:`UNSET`; null without entries.

    Args:
        entries: part, whether it has an entry, and its author as texts or :data:`NO_TEXTS`.
    """
    kept, conditions = [], []
    for part, has_entry, texts in entries:
        kept.append(f"CASE WHEN {has_entry} THEN struct({text_literal(part.id)} AS k, {texts} AS v) END")
        conditions.append(f"({has_entry})")
    if not kept:
        return cast(NULL, T.MapType(T.StringType(), T.ArrayType(T.StringType())))
    found = f"map_from_entries(filter(array({', '.join(kept)}), x -> x IS NOT NULL))"
    return Sql(f"CASE WHEN {' OR '.join(conditions)} THEN {found} END")
