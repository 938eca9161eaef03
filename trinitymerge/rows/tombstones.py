"""The stored form of tombstones (S4, S9)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql


def non_key_fields(definition: TableDefinition) -> list[Field]:
    own = {*definition.primaryKey, *definition.watermarkKey, definition.tombstone_column}
    return [f for f in definition.stored_fields if f.name not in own]


def null_value(field: Field) -> Sql:
    """Return SQL: the value of a payload column on a tombstone: null, or zero where null is not allowed."""
    return E.null_of(field) if field.nullable else zero(field)


def tombstone_columns(definition: TableDefinition, names: Iterable[str]) -> list[str]:
    """Return SQL for columns of stored rows, at least all stored ones, without the payload of tombstones."""
    payload = masked(definition)
    return [f"{payload[n]} AS {E.quote(n)}" if n in payload else E.quote(n) for n in names]


def masked(definition: TableDefinition) -> dict[str, Sql]:
    """Return SQL for each payload column that is null, or zero, on tombstones."""
    is_dead = E.is_tombstone(definition)
    return {f.name: E.case([(is_dead, null_value(f))], E.quote(f.name)) for f in non_key_fields(definition)}


def has_payload(definition: TableDefinition) -> Sql:
    """Return SQL that is true for a tombstone with values outside its key, watermark and tombstone column. Never null.

    Merges write none (S9). Older versions of this library may have written some, and so may other programs in an Iceberg table.
    """
    filled = [
        E.is_not_null(E.quote(f.name))
        if f.nullable
        else Sql(f"coalesce(CAST({E.quote(f.name)} AS STRING) <> CAST({zero(f)} AS STRING), false)")
        for f in non_key_fields(definition)
    ]
    return E.all_of([E.is_tombstone(definition), E.any_of(filled)])


def zero(field: Field) -> Sql:
    """Return SQL: the zero value of a column's type, for tombstones where null is not allowed (S9)."""
    kind = E.physical_type(field)
    return E.cast(E.text_literal(E.pad_or_truncate("", field)) if field.is_string else _zero(kind), kind)


_ZEROS = {
    **{"string": "''", "binary": "X''", "boolean": "false", "variant": "parse_json('null')"},
    **{"date": "DATE '1970-01-01'", "time": "TIME '00:00:00'", "timestamp": "timestamp_micros(0)"},
    "timestamp_ntz": "TIMESTAMP_NTZ '1970-01-01 00:00:00'",
}


def _zero(kind: T.DataType) -> Sql:
    if isinstance(kind, T.StructType):
        return Sql(f"named_struct({', '.join(f'{E.text_literal(f.name)}, {_zero(f.dataType)}' for f in kind.fields)})")
    if isinstance(kind, T.ArrayType):
        return Sql("array()")
    if isinstance(kind, T.MapType):
        return Sql("map()")
    if isinstance(kind, T.YearMonthIntervalType):
        return Sql("make_ym_interval()")  # a literal may be a calendar interval
    if isinstance(kind, T.DayTimeIntervalType):
        return Sql("make_dt_interval()")
    return Sql(_ZEROS.get(kind.typeName(), "0" if isinstance(kind, T.NumericType) else E.NULL))


def live_marker(definition: TableDefinition) -> Sql:
    """Return SQL: the default value of the tombstone column on a live row: false or null (S4)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return E.FALSE
    field = definition.field(definition.tombstone_column)
    return E.null_of(field) if field.nullable else zero(field)


def tombstone_marker(definition: TableDefinition) -> Sql:
    """Return SQL: the value of the tombstone column on a deleted row (S9)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return E.TRUE
    field = definition.field(definition.tombstone_column)
    kind = E.physical_type(field)
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return E.text_literal(E.tombstone_value(definition))
    if kind.typeName() in ("date", "timestamp", "timestamp_ntz"):
        return E.cast(Sql("now()"), kind)  # current_timestamp may be a reserved word
    if field.is_string:
        return E.text_literal(E.pad_or_truncate("true", field))
    if isinstance(kind, T.NumericType):
        return E.cast(E.number(int(not isinstance(kind, T.DecimalType) or kind.precision > kind.scale)), kind)
    return zero(field)
