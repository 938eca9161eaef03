"""The rows for other tables, made of rows that replace others (S27)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame

from trinitymerge.merge.analysis.outbox import OutboxPlan, OutboxRow
from trinitymerge.merge.analysis.relations import choose
from trinitymerge.merge.analysis.row_kinds import EFFECTS, Expression, LiveMarker, Null
from trinitymerge.merge.compile.steps import Select
from trinitymerge.rows.tombstones import live_marker
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import cast_failure, cast_to_column
from trinitymerge.spark.sql_text import Sql, as_sql

ROW = Sql("row")


def with_outbox_columns(rows: DataFrame, outbox_plan: OutboxPlan) -> DataFrame:
    """Replace JOINED_ROWS of settled rows by OUTBOX_VALUE: what each has for other tables, by its CLAUSE and EFFECT.

    Rows with a REASON have nothing for them.
    """
    apart = rows.selectExpr(f"struct(*) AS {C.WRITTEN}", *outbox_plan.scope.over(C.JOINED_ROWS))
    is_taken = E.is_null(Sql(f"{C.WRITTEN}.{C.REASON}")) if C.REASON in rows.columns else E.TRUE
    pending = {row.number: E.all_of([_is_pending(row), is_taken]) for row in outbox_plan.rows}
    valued = Select.adding(_raw_values(outbox_plan, pending)).over(apart)
    values = {row.number: _outbox_row(row, outbox_plan, pending[row.number]) for row in outbox_plan.rows}
    items = [f"{value} AS {C.OUTBOX_VALUE(number)}" for number, value in values.items()]
    return valued.selectExpr(f"{C.WRITTEN}.*", *items).drop(C.JOINED_ROWS)


def outbox_rows_of(rows: DataFrame, to_one: Iterable[OutboxRow]) -> DataFrame:
    """Return the rows for one other table, of OUTBOX_VALUE, each with CLAUSE, and ORIGIN_KEY and MISFIT from there."""
    columns = [C.OUTBOX_VALUE(row.number) for row in to_one]
    each = f"explode(filter(array({', '.join(columns)}), h -> h IS NOT NULL))"
    found = rows.selectExpr(C.CLAUSE, f"{each} AS {C.OUTBOX_VALUE}")
    beside = [f"{C.OUTBOX_VALUE}.{name} AS {name}" for name in (C.ORIGIN_KEY, C.MISFIT)]
    return found.selectExpr(f"{C.OUTBOX_VALUE}.{ROW}.*", C.CLAUSE, *beside)


def _raw_values(outbox_plan: OutboxPlan, pending: Mapping[int, Sql]) -> dict[str, Sql | Column]:
    """Return the values of the maps, each evaluated once and only where the row is owed."""
    raws: dict[str, Sql | Column] = {}
    for row in outbox_plan.rows:
        for i, value in _given(row):
            given = as_sql(value.value) if isinstance(value.value, str) else value.value
            raws[C.RAW_OUTBOX_VALUE(row.number, i)] = choose([(E.opaque(pending[row.number]), given)], E.NULL)
    return raws


def _given(row: OutboxRow) -> list[tuple[int, Expression]]:
    values = [(i, row.values[f.name]) for i, f in enumerate(row.destination.fields)]
    return [(i, value) for i, value in values if isinstance(value, Expression)]


def _is_pending(row: OutboxRow) -> Sql:
    effects = Sql(", ".join(E.text_literal(effect.text) for effect in EFFECTS if effect.replaces))
    return E.all_of(
        [
            E.is_not_null(Sql(f"{C.WRITTEN}.{C.JOINED_ROWS}")),
            E.equals(Sql(f"{C.WRITTEN}.{C.CLAUSE}"), E.number(row.clause + 1)),
            Sql(f"{C.WRITTEN}.{C.EFFECT} IN ({effects})"),
        ]
    )


def _outbox_row(row: OutboxRow, outbox_plan: OutboxPlan, is_pending: Sql) -> Sql:
    values = ", ".join(f"{_stored(row, i, f)} AS {E.quote(f.name)}" for i, f in enumerate(row.destination.fields))
    key = outbox_plan.scope.key(Sql(f"{C.WRITTEN}.{C.JOINED_ROWS}"))
    whole = Sql(f"struct(struct({values}) AS {ROW}, {key} AS {C.ORIGIN_KEY}, {_misfit(row)} AS {C.MISFIT})")
    return E.opaque(E.case([(is_pending, whole)]))


def _stored(row: OutboxRow, i: int, field: Field) -> Sql:
    value = row.values[field.name]
    if isinstance(value, Expression):
        text = cast_to_column(C.RAW_OUTBOX_VALUE(row.number, i), value.way, field, field.name in row.destination.keys)
        return E.cast(text, E.physical_type(field))
    if isinstance(value, LiveMarker):
        return E.cast(live_marker(row.destination.definition), E.physical_type(field))
    assert isinstance(value, Null), f"{value!r} cannot be written into another table"
    return E.null_of(field)


def _misfit(row: OutboxRow) -> Sql:
    fields, keys = row.destination.fields, row.destination.keys
    found = [
        cast_failure(C.RAW_OUTBOX_VALUE(row.number, i), value.way, fields[i], fields[i].name in keys)
        for i, value in _given(row)
    ]
    texts = ", ".join(["CAST(NULL AS STRING)", *(text for text in found if text is not None)])
    return Sql(f"coalesce({texts})")
