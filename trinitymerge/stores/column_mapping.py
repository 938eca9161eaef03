"""The columns that files have, and how they become those of the table (S43)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from trinitymerge.log.actions import Batch
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.session import select_exprs
from trinitymerge.spark.sql_text import Sql

_COMPARED_BATCHES = 48
"""Of up to so many batches, a row's is found by comparing it with one after another."""


def in_files(fields: Iterable[Field], oldest: int) -> StructType:
    """Return the columns to read from files, of which ``oldest`` is the smallest layout."""
    return E.physical_schema(form for field in fields for form in _forms(field, oldest))


def as_declared(rows: DataFrame, fields: Sequence[Field], oldest: int, *more: str) -> DataFrame:
    """Return rows, read with :func:`in_files`, with the columns of a table, and more columns as SQL over the rows."""
    columns = [_declared(field, oldest) for field in fields]
    is_same = not more and columns == [E.quote(f.name) for f in fields] == [E.quote(n) for n in rows.columns]
    return rows if is_same else select_exprs(rows, [*columns, *more])


def as_stored(rows: DataFrame, fields: Iterable[Field]) -> DataFrame:
    """Return rows of a table with the names that files have; columns that are not of the table stay as they are."""
    stored = {f.name: _stored(f) for f in fields}
    if all(value == E.quote(name) for name, value in stored.items()):
        return rows
    return select_exprs(rows, [stored.get(n, E.quote(n)) for n in rows.columns])


def found_in(schema: StructType, declared: Sequence[Field]) -> list[Field]:
    """Return the columns found in a file: those of the table by their stored names, and the library's."""
    known = {f.stored_as: f for f in declared}
    return [known.get(f.name, Field(f.name, f.dataType.jsonValue())) for f in schema.fields]


def version_of_batch(batches: Sequence[Batch]) -> Sql:
    """Return the commit version of a row's batch, as SQL.

    Of few batches, one is compared with after another, the one with most rows first: for every row that takes half as long as
    looking into a map, and of many far longer. A map compares key after key, too: so there are several, by how the id begins; not
    one of maps, for Spark never takes two of those to be equal and would not reuse a shuffle above them.
    """
    if len(batches) <= 1:
        return Sql(f"{batches[0].version if batches else 0}L")
    if len(batches) <= _COMPARED_BATCHES:
        ordered = sorted(batches, key=lambda b: -b.rows)
        return E.case((Sql(f"{C.BATCH} = {E.text_literal(b.id)}"), Sql(f"{b.version}L")) for b in ordered)
    by_start: dict[str, list[Batch]] = {}
    for batch in batches:
        by_start.setdefault(batch.id[0], []).append(batch)
    whens = (
        f"WHEN {E.text_literal(start)} THEN map({', '.join(f'{E.text_literal(b.id)}, {b.version}L' for b in some)})[{C.BATCH}]"
        for start, some in by_start.items()
    )
    return Sql(f"CASE substr({C.BATCH}, 1, 1) {' '.join(whens)} END")


def version_by_map(batches: Sequence[Batch]) -> Sql:
    """Return the same as :func:`version_of_batch`, for few rows: by a map, so that the code of Spark is that of any other batches.

    Spark compiles other code for each number of comparisons, and new code is slow during the first millions of rows.
    """
    pairs = ", ".join(f"{E.text_literal(b.id)}, {b.version}L" for b in batches)
    return Sql(f"map({pairs})[{C.BATCH}]" if batches else "0L")


def _forms(field: Field, oldest: int) -> list[Field]:
    """Return the stored forms of a column, the newest first."""
    forms = {field.stored_as: field.type}
    forms |= {e.name: e.type for e in reversed(field.previous) if e.until > oldest}
    return [Field(name, field.in_files(kind), metadata=field.metadata) for name, kind in forms.items()]


def _declared(field: Field, oldest: int) -> str:
    wider = E.physical_type(field)
    values = [
        E.quote(form.name) if form.type == field.type else E.cast(E.quote(form.name), wider)
        for form in _forms(field, oldest)
    ]
    if len(values) == 1:
        return _as(values[0], field.name)
    return f"coalesce({', '.join(values)}) AS {E.quote(field.name)}"


def _stored(field: Field) -> str:
    value = E.quote(field.name)
    if field.within:
        value = E.cast(value, E.physical_type(attrs.evolve(field, type=field.in_files(field.type))))
    return _as(value, field.stored_as)


def _as(value: str, name: str) -> str:
    return value if value == E.quote(name) else f"{value} AS {E.quote(name)}"
