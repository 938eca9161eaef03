"""Values as Spark can compare them (S12, S41)."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from trinitymerge.rows.tie_breaking import SHAPES, is_orderable
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql


def comparable(value: Sql, kind: DataType, depth: int = 0) -> Sql:
    """Return a value that Spark can compare: maps by their entries, variants and calendar intervals by their text."""
    if is_orderable(kind):
        return value
    each = Sql(f"x{depth}")
    if isinstance(kind, StructType):
        fields = (
            f"{comparable(E.field_of(value, f.name), f.dataType, depth)} AS {E.quote(f.name)}" for f in kind.fields
        )
        return E.case([(E.is_not_null(value), Sql(f"struct({', '.join(fields)})"))])
    if isinstance(kind, ArrayType):
        return Sql(f"transform({value}, {each} -> {comparable(each, kind.elementType, depth + 1)})")
    if isinstance(kind, MapType):
        value_of = comparable(E.field_of(each, "value"), kind.valueType, depth + 1)
        entry = f"named_struct('k', {E.field_of(each, 'key')}, 'v', {value_of})"
        return Sql(f"array_sort(transform(map_entries({value}), {each} -> {entry}))")
    return Sql(f"st_asbinary({value})" if kind.typeName() in SHAPES else f"to_json(named_struct('v', {value}))")
