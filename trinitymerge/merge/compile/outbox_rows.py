"""The rows for other tables, made of rows that replace others (S27)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame

from trinitymerge.merge.analysis.outbox import OwedRow, Owing
from trinitymerge.merge.analysis.relations import choose
from trinitymerge.merge.analysis.row_kinds import EFFECTS, Alive, Given, Null
from trinitymerge.merge.compile.steps import Select
from trinitymerge.rows.tombstones import alive
from trinitymerge.schema.field import Field
from trinitymerge.spark.casts import misfit, stored
from trinitymerge.spark.expressions import (
    NULL,
    all_of,
    case,
    cast,
    equals,
    is_not_null,
    null_of,
    number,
    opaque,
    physical_type,
    quote,
    text_literal,
)
from trinitymerge.spark.sql_text import Sql, as_sql
from trinitymerge.spark.system_columns import ABOUT, CLAUSE, EFFECT, MISFIT, OWED_ROW, RAW_OWED, SIDES, WRITTEN

ROW = Sql("row")


def rows_with_owed(rows: DataFrame, owing: Owing) -> DataFrame:
    """Settled rows, and in :data:`OWED_ROW` what each of them has for other tables.

    Args:
        rows: what :func:`trinitymerge.merge.compile.pipeline.settled` gives.
        owing: what is asked for.
    """
    apart = rows.selectExpr(f"struct(*) AS {WRITTEN}", *owing.scope.over(SIDES))
    valued = Select.adding(_raw_values(owing)).over(apart)
    made = {OWED_ROW(row.number): _owed_row(row, owing) for row in owing.rows}
    items = [f"{value} AS {name}" for name, value in made.items()]
    return valued.selectExpr(f"{WRITTEN}.*", *items).drop(SIDES)


def owed_rows(rows: DataFrame, to_one: Iterable[OwedRow]) -> DataFrame:
    """The rows for one other table, each with the clause it comes from, the key of the row it is about, and what does not fit.

    Args:
        rows: what :func:`rows_with_owed` gives, evaluated.
        to_one: all that goes to that table.
    """
    columns = [OWED_ROW(row.number) for row in to_one]
    each = f"explode(filter(array({', '.join(columns)}), h -> h IS NOT NULL))"
    found = rows.selectExpr(CLAUSE, f"{each} AS {OWED_ROW}")
    beside = [f"{OWED_ROW}.{name} AS {name}" for name in (ABOUT, MISFIT)]
    return found.selectExpr(f"{OWED_ROW}.{ROW}.*", CLAUSE, *beside)


def _raw_values(owing: Owing) -> dict[str, Sql | Column]:
    """The values of the maps, each evaluated once and only where the row is owed."""
    raws: dict[str, Sql | Column] = {}
    for row in owing.rows:
        for i, value in _given(row):
            given = as_sql(value.value) if isinstance(value.value, str) else value.value
            raws[RAW_OWED(row.number, i)] = choose([(opaque(_is_owed(row)), given)], NULL)
    return raws


def _given(row: OwedRow) -> list[tuple[int, Given]]:
    values = [(i, row.values[f.name]) for i, f in enumerate(row.destination.fields)]
    return [(i, value) for i, value in values if isinstance(value, Given)]


def _is_owed(row: OwedRow) -> Sql:
    effects = Sql(", ".join(text_literal(effect.text) for effect in EFFECTS if effect.replaces))
    return all_of(
        [
            is_not_null(Sql(f"{WRITTEN}.{SIDES}")),
            equals(Sql(f"{WRITTEN}.{CLAUSE}"), number(row.clause + 1)),
            Sql(f"{WRITTEN}.{EFFECT} IN ({effects})"),
        ]
    )


def _owed_row(row: OwedRow, owing: Owing) -> Sql:
    values = ", ".join(
        f"{_stored(row, i, field)} AS {quote(field.name)}" for i, field in enumerate(row.destination.fields)
    )
    key = owing.scope.key(Sql(f"{WRITTEN}.{SIDES}"))
    whole = Sql(f"struct(struct({values}) AS {ROW}, {key} AS {ABOUT}, {_misfit(row)} AS {MISFIT})")
    return opaque(case([(_is_owed(row), whole)]))


def _stored(row: OwedRow, i: int, field: Field) -> Sql:
    value, definition = row.values[field.name], row.destination.definition
    if isinstance(value, Given):
        text = stored(RAW_OWED(row.number, i), value.way, field, field.name in row.destination.keys)
        return cast(text, physical_type(field))
    if isinstance(value, Alive) and definition is not None:
        return cast(alive(definition), physical_type(field))
    assert isinstance(value, Null), f"{value!r} cannot be written into another table"
    return null_of(field)


def _misfit(row: OwedRow) -> Sql:
    fields, keys = row.destination.fields, row.destination.keys
    found = [misfit(RAW_OWED(row.number, i), value.way, fields[i], fields[i].name in keys) for i, value in _given(row)]
    texts = ", ".join(["CAST(NULL AS STRING)", *(text for text in found if text is not None)])
    return Sql(f"coalesce({texts})")
