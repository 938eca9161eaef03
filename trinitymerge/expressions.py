"""Small Spark expressions shared by the reader and the merge compiler.

Owns: quoting of names, the tombstone test (S4), watermark structs and their order (S3), and Spark-version neutral types.
Only public PySpark DataFrame API; knows nothing of merges or of storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from trinitymerge.definition import Field, TableDefinition, TombstoneForm

_FIXED_STRING = re.compile(r"^(?:char|varchar)\((\d+)\)$")


def quote(name: str) -> str:
    """A name as Spark SQL reads it literally, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """The column called exactly ``name``: dots and backticks in it are part of the name."""
    return F.col(quote(name))


def text_literal(value: str) -> str:
    """A string as a SQL literal that no value can break out of."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def physical_type(field: Field) -> DataType:
    """The type a column has in files and DataFrames: char and varchar are strings there."""
    kind = "string" if isinstance(field.type, str) and _FIXED_STRING.match(field.type) else field.type
    data = {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    return StructType.fromJson(data).fields[0].dataType


def physical_schema(fields: Iterable[Field]) -> StructType:
    """The schema of stored fields as Spark reads and writes it: everything nullable, no char or varchar."""
    schema = StructType()
    for field in fields:
        schema = schema.add(field.name, physical_type(field), True)
    return schema


def declared_length(field: Field) -> tuple[str, int] | None:
    """``("char", n)`` or ``("varchar", n)`` for such columns, else None."""
    match = _FIXED_STRING.match(field.type) if isinstance(field.type, str) else None
    return (field.type.split("(")[0], int(match.group(1))) if match else None


def is_case_sensitive(spark: SparkSession) -> bool:
    """Does the session tell names apart by case (S30)."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def find_name(name: str, names: Iterable[str], case_sensitive: bool) -> str | None:
    """The one of ``names`` that ``name`` means, or None (S30)."""
    if case_sensitive:
        return next((n for n in names if n == name), None)
    return next((n for n in names if n.lower() == name.lower()), None)


def tombstone_value(definition: TableDefinition) -> Any:
    """What a string tombstone column holds on deleted rows, padded as char columns are."""
    field = definition.field(definition.tombstone_column)
    length = declared_length(field)
    value = definition.tombstoneStringValue or ""
    return value.ljust(length[1]) if length and length[0] == "char" else value


def is_tombstone(definition: TableDefinition, value: Column | None = None) -> Column:
    """Is a row with this tombstone column value a tombstone (S4). Never null.

    Args:
        definition: says which of the three forms applies.
        value: the tombstone column; by default the column of that name.
    """
    value = column(definition.tombstone_column) if value is None else value
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return F.coalesce(value, F.lit(False))
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return F.coalesce(value == F.lit(tombstone_value(definition)), F.lit(False))
    return value.isNotNull()


def watermark_struct(values: Sequence[Column]) -> Column | None:
    """The declared watermark as one comparable value, or None in tables that declare none.

    Spark orders structs field by field with null smallest, which is S3's order.
    """
    return F.struct(*[v.alias(f"w{i}") for i, v in enumerate(values)]) if values else None


def is_older(left: Sequence[Column], right: Sequence[Column]) -> Column:
    """Is the watermark ``left`` smaller than ``right`` in S3's order. Never null; false when there are no columns."""
    older, equal_so_far = F.lit(False), F.lit(True)
    for a, b in zip(left, right, strict=True):
        smaller = F.coalesce(a < b, a.isNull() & b.isNotNull())
        older = older | (equal_so_far & smaller)
        equal_so_far = equal_so_far & a.eqNullSafe(b)
    return older


def all_of(conditions: Iterable[Column]) -> Column:
    """The conjunction of conditions; true when there are none."""
    return reduce(lambda a, b: a & b, conditions, F.lit(True))


def any_of(conditions: Iterable[Column]) -> Column:
    """The disjunction of conditions; false when there are none."""
    return reduce(lambda a, b: a | b, conditions, F.lit(False))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows, made without a job or a Python worker."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields]
    return spark.range(0).select(*columns)
