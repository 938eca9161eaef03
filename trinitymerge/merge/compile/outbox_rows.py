"""The rows for other tables, made of rows that replace others (S27)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame

from trinitymerge.merge.analysis.outbox import OutboxPlan, OutboxRow
from trinitymerge.merge.analysis.relations import choose
from trinitymerge.merge.analysis.row_kinds import EFFECTS, Expression, LiveMarker, Null
from trinitymerge.merge.compile.steps import Select
from trinitymerge.rows.tombstones import live_marker
from trinitymerge.schema.field import Field
from trinitymerge.spark.casts import cast_failure, cast_to_column
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
from trinitymerge.spark.system_columns import (
    CLAUSE,
    EFFECT,
    JOINED_ROWS,
    MISFIT,
    ORIGIN_KEY,
    OUTBOX_VALUE,
    RAW_OUTBOX_VALUE,
    WRITTEN,
)

ROW = Sql("row")


def with_outbox_columns(rows: DataFrame, outbox_plan: OutboxPlan) -> DataFrame:
    """Settled rows, and in :data:`OUTBOX_VALUE` what each of them has for other tables.

    Args:
        rows: what :func:`trinitymerge.merge.compile.pipeline.finish` gives.
        outbox_plan: what is asked for.
    """
    apart = rows.selectExpr(f"struct(*) AS {WRITTEN}", *outbox_plan.scope.over(JOINED_ROWS))
    valued = Select.adding(_raw_values(outbox_plan)).over(apart)
    made = {OUTBOX_VALUE(row.number): _outbox_row(row, outbox_plan) for row in outbox_plan.rows}
    items = [f"{value} AS {name}" for name, value in made.items()]
    return valued.selectExpr(f"{WRITTEN}.*", *items).drop(JOINED_ROWS)


def outbox_rows_of(rows: DataFrame, to_one: Iterable[OutboxRow]) -> DataFrame:
    """Return the rows for one other table, each with its clause, the key of the merged row, and the columns that do not fit.

    Args:
        rows: what :func:`with_outbox_columns` gives, evaluated.
        to_one: all that goes to that table.
    """
    columns = [OUTBOX_VALUE(row.number) for row in to_one]
    each = f"explode(filter(array({', '.join(columns)}), h -> h IS NOT NULL))"
    found = rows.selectExpr(CLAUSE, f"{each} AS {OUTBOX_VALUE}")
    beside = [f"{OUTBOX_VALUE}.{name} AS {name}" for name in (ORIGIN_KEY, MISFIT)]
    return found.selectExpr(f"{OUTBOX_VALUE}.{ROW}.*", CLAUSE, *beside)


def _raw_values(outbox_plan: OutboxPlan) -> dict[str, Sql | Column]:
    """Return the values of the maps, each evaluated once and only where the row is owed."""
    raws: dict[str, Sql | Column] = {}
    for row in outbox_plan.rows:
        for i, value in _given(row):
            given = as_sql(value.value) if isinstance(value.value, str) else value.value
            raws[RAW_OUTBOX_VALUE(row.number, i)] = choose([(opaque(_is_pending(row)), given)], NULL)
    return raws


def _given(row: OutboxRow) -> list[tuple[int, Expression]]:
    values = [(i, row.values[f.name]) for i, f in enumerate(row.destination.fields)]
    return [(i, value) for i, value in values if isinstance(value, Expression)]


def _is_pending(row: OutboxRow) -> Sql:
    effects = Sql(", ".join(text_literal(effect.text) for effect in EFFECTS if effect.replaces))
    return all_of(
        [
            is_not_null(Sql(f"{WRITTEN}.{JOINED_ROWS}")),
            equals(Sql(f"{WRITTEN}.{CLAUSE}"), number(row.clause + 1)),
            Sql(f"{WRITTEN}.{EFFECT} IN ({effects})"),
        ]
    )


def _outbox_row(row: OutboxRow, outbox_plan: OutboxPlan) -> Sql:
    values = ", ".join(
        f"{_stored(row, i, field)} AS {quote(field.name)}" for i, field in enumerate(row.destination.fields)
    )
    key = outbox_plan.scope.key(Sql(f"{WRITTEN}.{JOINED_ROWS}"))
    whole = Sql(f"struct(struct({values}) AS {ROW}, {key} AS {ORIGIN_KEY}, {_misfit(row)} AS {MISFIT})")
    return opaque(case([(_is_pending(row), whole)]))


def _stored(row: OutboxRow, i: int, field: Field) -> Sql:
    value = row.values[field.name]
    if isinstance(value, Expression):
        text = cast_to_column(RAW_OUTBOX_VALUE(row.number, i), value.way, field, field.name in row.destination.keys)
        return cast(text, physical_type(field))
    if isinstance(value, LiveMarker):
        return cast(live_marker(row.destination.definition), physical_type(field))
    assert isinstance(value, Null), f"{value!r} cannot be written into another table"
    return null_of(field)


def _misfit(row: OutboxRow) -> Sql:
    fields, keys = row.destination.fields, row.destination.keys
    found = [
        cast_failure(RAW_OUTBOX_VALUE(row.number, i), value.way, fields[i], fields[i].name in keys)
        for i, value in _given(row)
    ]
    texts = ", ".join(["CAST(NULL AS STRING)", *(text for text in found if text is not None)])
    return Sql(f"coalesce({texts})")
