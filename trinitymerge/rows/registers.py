"""Partial rows: the columns they leave unset, and who has set their values (U1, U2, U7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
from pyspark.sql import types as T

from trinitymerge.log.actions import Batch
from trinitymerge.log.model import Snapshot
from trinitymerge.rows.authors import Authors, moves_in
from trinitymerge.rows.tombstones import non_key_fields
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql, as_sql

_TEXT = {"type": "array", "elementType": "string", "containsNull": True}

UNSET_FIELD = Field(str(C.UNSET), {"type": "map", "keyType": "string", "valueType": _TEXT, "valueContainsNull": True})
"""The column of files with rows that leave something unset. Files without such rows do not have it."""


def stored_in(batches: Iterable[Batch]) -> tuple[Field, ...]:
    return (UNSET_FIELD,) if any(b.partial for b in batches) else ()


def unset_in(batches: Iterable[Batch]) -> frozenset[str] | None:
    """Return the ids of parts that rows of some batches may leave unset; None if a batch does not say which."""
    named = [b.unset for b in batches if b.partial]
    return None if None in named else frozenset(id for ids in named if ids is not None for id in ids)


@attrs.frozen
class Part:
    """A column, or a struct field in one: an event sets it or leaves it unset, and it has a register (U1).

    Attributes:
        id: its name in :data:`C.UNSET`, which no rename changes.
        inside: the fields of a struct. The struct's own register is about whether it is there.
    """

    path: Path
    id: str
    type: T.DataType
    inside: tuple[Part, ...] = ()

    def all(self) -> Iterator[Part]:
        yield self
        for part in self.inside:
            yield from part.all()

    def value(self, column: Sql) -> Sql:
        """Return the value of its register, from that of the column; of a struct, true or null."""
        for name in self.path[1:]:
            column = Sql(f"{column}.{E.quote(name)}")
        return Sql(f"CASE WHEN {column} IS NOT NULL THEN true END") if self.inside else column


def parts_of(definition: TableDefinition) -> tuple[Part, ...]:
    """Return the columns that have registers: all but keys, watermarks and the tombstone column."""
    return tuple(_part(f, (), E.physical_type(f)) for f in non_key_fields(definition))


def _part(field: Field, path: Path, kind: T.DataType) -> Part:
    names = (field.first_stored_as, *field.path_in_files(path))
    id = ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in names)
    fields = kind.fields if isinstance(kind, T.StructType) else ()
    return Part((field.name, *path), id, kind, tuple(_part(field, (*path, f.name), f.dataType) for f in fields))


@attrs.frozen(eq=False)
class Registers:
    """The registers of some columns.

    Attributes:
        columns: those of which a row may leave something unset.
        has_partial: a stored row may leave something unset.
        moves: a row may have values from an earlier key.
    """

    definition: TableDefinition
    columns: tuple[Part, ...]
    has_partial: bool
    moves: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, columns: Iterable[str] = ()) -> Registers:
        """Return the registers that a merge into a snapshot needs. A row to write may leave something of ``columns`` unset."""
        known, stored, asked = parts_of(snapshot.definition), unset_in(snapshot.batches), {*columns}
        kept = [c for c in known if c.path[0] in asked or stored is None or any(part.id in stored for part in c.all())]
        return cls(snapshot.definition, tuple(kept), snapshot.has_partial)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The columns and the struct fields in them."""
        return tuple(part for column in self.columns for part in column.all())

    @property
    def authors(self) -> Authors:
        return Authors(self.definition, self.moves)

    def default(self, part: Part) -> Sql:
        """Return the value of a part that no row has set (S46)."""
        field = self.definition.field(part.path[0])
        kind = E.physical_type(field)
        return part.value(
            E.null_of(field) if field.default is None else Sql(f"({E.cast(as_sql(field.default), kind)})")
        )


NO_TEXTS = E.cast(E.NULL, T.ArrayType(T.StringType()))
"""The author of a part that no row has set."""


def metrics(definition: TableDefinition, where: Sql) -> dict[str, str]:
    """Return the aggregates for :attr:`Batch.partial` and :attr:`Batch.moved`, over the rows for which SQL is true."""
    moved = Sql(f"exists(map_values({C.UNSET}), x -> {moves_in(Sql('x'), definition)} > 0)")
    return {
        "partial": f"count_if({E.all_of([where, E.is_not_null(C.UNSET)])})",
        "moved": f"count_if({E.all_of([where, E.is_not_null(C.UNSET), moved])})",
    }


def since(part: Part, unset: Sql = C.UNSET) -> Sql:
    """Return the entry of a part in :data:`C.UNSET`; null if it has none, or if no row has set it."""
    return Sql(f"try_element_at({unset}, {E.text_literal(part.id)})")


def is_unset(part: Part, unset: Sql = C.UNSET) -> Sql:
    """Return SQL that is true if a stored row leaves a part unset, from its :data:`C.UNSET`. Never null."""
    return Sql(f"coalesce(map_contains_key({unset}, {E.text_literal(part.id)}), false)")


def as_map(entries: Iterable[tuple[Part, Sql, Sql]]) -> Sql:
    """Return :data:`C.UNSET` of parts, whether they have entries, and authors (texts or :data:`NO_TEXTS`); null without entries."""
    kept, conditions = [], []
    for part, has_entry, texts in entries:
        kept.append(f"CASE WHEN {has_entry} THEN struct({E.text_literal(part.id)} AS k, {texts} AS v) END")
        conditions.append(f"({has_entry})")
    if not kept:
        return E.cast(E.NULL, T.MapType(T.StringType(), T.ArrayType(T.StringType())))
    found = f"map_from_entries(filter(array({', '.join(kept)}), x -> x IS NOT NULL))"
    return Sql(f"CASE WHEN {' OR '.join(conditions)} THEN {found} END")
