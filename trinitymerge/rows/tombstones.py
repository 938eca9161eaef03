"""What a tombstone is stored as (S4, S9)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    NumericType,
    StructType,
    YearMonthIntervalType,
)

from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field
from trinitymerge.spark.expressions import (
    FALSE,
    NULL,
    TRUE,
    all_of,
    any_of,
    case,
    cast,
    cast_or_fail,
    is_not_null,
    is_tombstone,
    null_of,
    number,
    physical_type,
    quote,
    text_literal,
    tombstone_value,
)
from trinitymerge.spark.sql_text import Sql


def non_key_fields(definition: TableDefinition) -> list[Field]:
    """The stored columns that a tombstone says nothing with."""
    own = {*definition.primaryKey, *definition.watermarkKey, definition.tombstone_column}
    return [f for f in definition.stored_fields if f.name not in own]


def null_value(field: Field) -> Sql:
    """What a tombstone holds in a column of the payload, as SQL: null, or the zero value where null is not allowed."""
    return null_of(field) if field.nullable else zero(field)


def tombstone_columns(definition: TableDefinition, names: Iterable[str]) -> list[str]:
    """Columns of stored rows, as SQL, with the payload of tombstones blanked.

    Args:
        definition: of the table.
        names: the columns to select, all stored ones among them; others are passed on.
    """
    blanks = masked(definition)
    return [f"{blanks[n]} AS {quote(n)}" if n in blanks else quote(n) for n in names]


def masked(definition: TableDefinition) -> dict[str, Sql]:
    """The columns of the payload, as SQL that is blank on tombstones."""
    is_dead = is_tombstone(definition)
    return {f.name: case([(is_dead, null_value(f))], quote(f.name)) for f in non_key_fields(definition)}


def has_payload(definition: TableDefinition) -> Sql:
    """SQL that is true if a stored row is a tombstone with a payload, as those of older versions may be. Never null."""
    filled = [
        is_not_null(quote(f.name))
        if f.nullable
        else Sql(f"coalesce(CAST({quote(f.name)} AS STRING) <> CAST({zero(f)} AS STRING), false)")
        for f in non_key_fields(definition)
    ]
    return all_of([is_tombstone(definition), any_of(filled)])


def zero(field: Field) -> Sql:
    """The zero value of a column's type as SQL, for columns of tombstones that cannot be null (S9)."""
    kind = physical_type(field)
    return cast(text_literal(cast_or_fail("", field)) if field.is_string else _zero(kind), kind)


_ZEROS = {
    "string": "''",
    "binary": "X''",
    "boolean": "false",
    "date": "DATE '1970-01-01'",
    "timestamp": "timestamp_micros(0)",
    "timestamp_ntz": "TIMESTAMP_NTZ '1970-01-01 00:00:00'",
    "time": "TIME '00:00:00'",
    "variant": "parse_json('null')",
}


def _zero(kind: DataType) -> Sql:
    if isinstance(kind, StructType):
        return Sql(f"named_struct({', '.join(f'{text_literal(f.name)}, {_zero(f.dataType)}' for f in kind.fields)})")
    if isinstance(kind, ArrayType):
        return Sql("array()")
    if isinstance(kind, MapType):
        return Sql("map()")
    if isinstance(kind, YearMonthIntervalType):
        return Sql("make_ym_interval()")  # a literal could mean a calendar interval
    if isinstance(kind, DayTimeIntervalType):
        return Sql("make_dt_interval()")
    return Sql(_ZEROS.get(kind.typeName(), "0" if isinstance(kind, NumericType) else NULL))


def live_marker(definition: TableDefinition) -> Sql:
    """The tombstone column's value on a live row that nobody assigns, as SQL: false, else null (S4)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return FALSE
    field = definition.field(definition.tombstone_column)
    return null_of(field) if field.nullable else zero(field)


def tombstone_marker(definition: TableDefinition) -> Sql:
    """The tombstone column's value on a deleted row, as SQL (S9)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return TRUE
    field = definition.field(definition.tombstone_column)
    kind = physical_type(field)
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return text_literal(tombstone_value(definition))
    if kind.typeName() in ("date", "timestamp", "timestamp_ntz"):
        return cast(Sql("now()"), kind)  # current_timestamp may be a reserved word
    if field.is_string:
        return text_literal(cast_or_fail("true", field))
    if isinstance(kind, NumericType):
        return cast(number(int(not isinstance(kind, DecimalType) or kind.precision > kind.scale)), kind)
    return zero(field)
