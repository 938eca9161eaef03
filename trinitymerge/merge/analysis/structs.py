"""Structs with some of their fields replaced (S22).

Owns: the expressions. Which fields a merge changes, and whether the values fit, is judged in
:mod:`trinitymerge.merge.analysis.resolution`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from trinitymerge.expressions import find_name, quote, sql_type, text_literal


def with_field(struct: Column, kind: DataType, path: tuple[str, ...], value: Column, case_sensitive: bool) -> Column:
    """A struct with the field at a path replaced; structs on the way that are null become structs of nulls first."""
    assert isinstance(kind, StructType)
    name = find_name(path[0], kind.names, case_sensitive) or path[0]
    whole = F.coalesce(struct, F.expr(_null_struct(kind)))
    if len(path) > 1:
        value = with_field(whole.getField(name), kind[name].dataType, path[1:], value, case_sensitive)
    return whole.withField(quote(name), value)


def _null_struct(kind: StructType) -> str:
    fields = (f"{text_literal(f.name)}, CAST(NULL AS {sql_type(f.dataType)})" for f in kind.fields)
    return f"named_struct({', '.join(fields)})"
