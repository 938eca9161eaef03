"""Authors: who has set the value of a register, and when (U1, U7)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import types as T

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql


@attrs.frozen
class Authors:
    """The form of authors in a merge: SQL that orders them, a later one greater.

    If no key has changed, an author is the watermark of a row, a struct. Otherwise it is an array of structs. A row that sets a
    value itself is an author of one element. In a row whose key has changed, the author of a part that it leaves unset has
    several: the watermark of the change and the old key, then the author of the part there. None follows if no row had set it
    there (U7).

    Attributes:
        moves: a row may have values from an earlier key.
    """

    definition: TableDefinition
    moves: bool

    def of(self, watermark: Sequence[Sql], old_key: Sequence[Sql] = ()) -> Sql:
        """Return a row as an author. If its key has changed from ``old_key``, the author under that key is to be appended."""
        values = E.numbered("w", watermark)
        if not self.moves:
            return E.struct(values or {"none": E.TRUE})
        keys = old_key or [E.null_of(self.definition.field(k)) for k in self.definition.primaryKey]
        values |= {"sets": E.FALSE if old_key else E.TRUE, **E.numbered("k", keys)}
        return Sql(f"array({E.struct(values)})")

    def watermark(self, author: Sql) -> list[Sql]:
        """Return the watermark of the row that has the value, or has changed its key before it had."""
        first = Sql(f"{author}[0]") if self.moves else author
        return E.numbered_in(first, "w", self.definition.watermarkKey)

    def place(self, author: Sql, key: Sequence[Sql]) -> Sql:
        """Return key and watermark of the row that has set the value, as a struct; ``key`` is that of the row that has it."""
        last = author
        if self.moves:
            last, old = Sql(f"element_at({author}, -1)"), E.numbered_in(Sql(f"element_at({author}, -2)"), "k", key)
            key = [E.case([(Sql(f"size({author}) > 1"), under)], here) for under, here in zip(old, key, strict=True)]
        watermark = E.numbered_in(last, "w", self.definition.watermarkKey)
        return E.struct(E.numbered("k", key) | E.numbered("w", watermark))

    def is_row(self, author: Sql) -> Sql:
        """Return SQL that is true if the author is a row of the key that has the value. Never null."""
        return E.or_else(Sql(f"{author}[0].sets"), E.FALSE) if self.moves else E.is_not_null(author)

    def is_known(self, author: Sql) -> Sql:
        """Return SQL that is true if a row has set the value, under any key. Never null."""
        return E.or_else(Sql(f"element_at({author}, -1).sets"), E.FALSE) if self.moves else E.is_not_null(author)

    def as_texts(self, author: Sql) -> Sql:
        """Return an author as an array of text that no session setting changes, as :data:`C.UNSET` holds it."""
        own, row = self.definition, Sql("x") if self.moves else author
        watermark = _as_texts(E.numbered_in(row, "w", own.watermarkKey), own, own.watermarkKey)
        if not self.moves:
            return watermark
        key = key_as_texts(E.numbered_in(row, "k", own.primaryKey), own)
        each = f"CASE WHEN x.sets THEN {watermark} ELSE concat({watermark}, {key}) END"
        return Sql(f"flatten(transform({author}, x -> {each}))")

    def from_texts(self, texts: Sql) -> Sql:
        """Return the author that :meth:`as_texts` has made text of. It must not be null."""
        own, marks = self.definition, len(self.definition.watermarkKey)
        kinds = _kinds(own, (*own.watermarkKey, *own.primaryKey)) if self.moves else _kinds(own, own.watermarkKey)
        first = f"i * {len(kinds)} + " if self.moves else ""
        values = [_from_text(Sql(f"get({texts}, {first}{n})"), kind) for n, kind in enumerate(kinds)]
        if not self.moves:
            return self.of(values)
        sets = {"sets": Sql(f"size({texts}) <= {first}{marks}")}
        element = E.struct(E.numbered("w", values[:marks]) | sets | E.numbered("k", values[marks:]))
        return Sql(f"transform(sequence(0, int(ceil(size({texts}) / {len(kinds)})) - 1), i -> {element})")


def moves_in(texts: Sql, definition: TableDefinition) -> Sql:
    """Return how many changes of the key an author has, from its texts (:meth:`Authors.as_texts`)."""
    return Sql(f"int(floor(size({texts}) / {len(definition.watermarkKey) + len(definition.primaryKey)}))")


def key_changes(definition: TableDefinition) -> Sql:
    """Return SQL over :data:`C.UNSET`: the changes of the key in its authors, of each author an array of its elements."""
    each = Authors(definition, moves=True).from_texts(Sql("t"))
    moved = f"filter(map_values({C.UNSET}), t -> {moves_in(Sql('t'), definition)} > 0)"
    return Sql(f"array_distinct(transform({moved}, t -> slice({each}, 1, {moves_in(Sql('t'), definition)})))")


def key_as_texts(key: Sequence[Sql], definition: TableDefinition) -> Sql:
    """Return a key as :data:`C.UNSET` holds it in authors."""
    return _as_texts(key, definition, definition.primaryKey)


def without_earlier_keys(keys: Sql, definition: TableDefinition) -> Sql:
    """Return :data:`C.UNSET` without some keys (:func:`key_as_texts`): values from them count as set when the key was changed."""
    marks, size = len(definition.watermarkKey), len(definition.primaryKey)
    here = f"slice(t, n * {marks + size} + {marks + 1}, {size})"
    changes = f"sequence(0, {moves_in(Sql('t'), definition)} - 1)"
    first = f"try_element_at(filter({changes}, n -> array_contains({keys}, {here})), 1)"
    kept = f"coalesce(slice(t, 1, {first} * {marks + size} + {marks}), t)"
    moved = f"{moves_in(Sql('t'), definition)} > 0"
    return Sql(f"transform_values({C.UNSET}, (k, t) -> CASE WHEN {moved} THEN {kept} ELSE t END)")


def _kinds(definition: TableDefinition, names: Sequence[str]) -> list[T.DataType]:
    return [E.physical_type(definition.field(n)) for n in names]


def _as_texts(values: Sequence[Sql], definition: TableDefinition, names: Sequence[str]) -> Sql:
    return Sql(f"array({', '.join(map(_as_text, values, _kinds(definition, names)))})")


def _as_text(value: Sql, kind: T.DataType) -> Sql:
    if isinstance(kind, T.TimestampType):
        value = Sql(f"unix_micros({value})")  # text of it depends on the session's time zone
    if isinstance(kind, T.FloatType):
        value = E.cast(value, T.DoubleType())  # also exact if the column is widened
    return Sql(f"hex({value})") if isinstance(kind, T.BinaryType) else E.cast(value, T.StringType())


def _from_text(text: Sql, kind: T.DataType) -> Sql:
    if isinstance(kind, T.TimestampType):
        return Sql(f"timestamp_micros({E.cast(text, T.LongType())})")
    # A value from before a restore may be too large for the type that the column has now.
    return Sql(f"unhex({text})") if isinstance(kind, T.BinaryType) else Sql(f"try_cast({text} AS {E.sql_type(kind)})")
