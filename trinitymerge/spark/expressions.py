"""SQL expressions that reader, compiler and stores share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sized

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType, TimestampType

from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import CHAR_TYPE, Field
from trinitymerge.schema.nullability import with_never_null
from trinitymerge.spark.sql_text import Sql

MADE = {"trinitymerge.made": True}
"""The metadata of columns that the library adds to a user's source."""

AS_STORED = {"trinitymerge.asStored": True}
"""The metadata of a source's columns that the library has cast to the table's: a CHAR is padded, and compares as the stored one."""

TRUE, FALSE, NULL = Sql("true"), Sql("false"), Sql("NULL")

_FIXED_STRING = re.compile(r"^(?:char|varchar)\((\d+)\)\Z")
_PLAIN_TEXT = re.compile(r"^[\w .,:;/+-]*$", re.ASCII)


# Names and text -------------------------------------------------------------------------------------------------------


def quote(name: str) -> Sql:
    """Return a name as a quoted SQL identifier.

    Example:
        >>> quote("a`b.c")
        '`a``b.c`'
    """
    return Sql("`" + name.replace("`", "``") + "`")


def column(name: str) -> Column:
    """Return the column called exactly ``name``, which may contain dots and backticks."""
    return F.col(quote(name))


def text_literal(value: str) -> Sql:
    """Return a string as a SQL literal that is safe under all escaping rules of a session.

    Example:
        >>> text_literal("D"), text_literal("it's")
        ("'D'", "decode(X'69742773', 'UTF-8')")
    """
    return Sql(f"'{value}'" if _PLAIN_TEXT.match(value) else f"decode(X'{value.encode().hex()}', 'UTF-8')")


ZONED = text_literal("yyyy-MM-dd HH:mm:ss.SSSSSSXXX")
"""The format of timestamps as text that any session reads back exactly."""

_LOCAL = text_literal("yyyy-MM-dd HH:mm:ss.SSSSSS")
ALL_AS_JSON = Sql(f"map('ignoreNullFields', 'false', 'timestampFormat', {ZONED}, 'timestampNTZFormat', {_LOCAL})")
"""Options of ``to_json`` that keep nulls and microseconds. By default, JSON drops them."""


def number(value: int) -> Sql:
    return Sql(str(value))


def find_name(name: str, names: Iterable[str], case_sensitive: bool) -> str | None:
    """Return the first of ``names`` that matches ``name``, or None (S30)."""
    return next((n for n in names if n == name or (not case_sensitive and n.lower() == name.lower())), None)


def not_made(schema: StructType) -> list[str]:
    """Return the names of a source's columns, without those that the library added (:data:`MADE`)."""
    return [f.name for f in schema.fields if not MADE.keys() & f.metadata.keys()]


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return True if names are case-sensitive in the session (S30)."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


# Logic ----------------------------------------------------------------------------------------------------------------


def all_of(conditions: Iterable[Sql]) -> Sql:
    """Return the conjunction of conditions; true if there are none."""
    return Sql(" AND ".join(f"({c})" for c in conditions) or TRUE)


def any_of(conditions: Iterable[Sql]) -> Sql:
    """Return the disjunction of conditions; false if there are none."""
    return Sql(" OR ".join(f"({c})" for c in conditions) or FALSE)


def not_(condition: Sql) -> Sql:
    return Sql(f"NOT ({condition})")


def is_null(value: Sql) -> Sql:
    return Sql(f"{value} IS NULL")


def is_not_null(value: Sql) -> Sql:
    return Sql(f"{value} IS NOT NULL")


def equals(left: Sql, right: Sql) -> Sql:
    return Sql(f"{left} = {right}")


def same(left: Sql, right: Sql) -> Sql:
    """Return SQL: the values are equal or both null. Never null."""
    return Sql(f"{left} <=> {right}")


def or_else(value: Sql, otherwise: Sql) -> Sql:
    return Sql(f"coalesce({value}, {otherwise})")


def case(branches: Iterable[tuple[Sql, Sql]], otherwise: Sql | None = None) -> Sql:
    """Return SQL: the value of the first branch whose condition is true, else ``otherwise`` or null.

    Example:
        >>> case([(equals(quote("op"), text_literal("D")), TRUE)], FALSE)
        "CASE WHEN `op` = 'D' THEN true ELSE false END"
    """
    whens = "".join(f" WHEN {condition} THEN {value}" for condition, value in branches)
    if not whens:
        return NULL if otherwise is None else otherwise
    return Sql(f"CASE{whens} END" if otherwise is None else f"CASE{whens} ELSE {otherwise} END")


def decode(value: Sql, meanings: Mapping[int, Sql]) -> Sql:
    """Return SQL: the value that a number stands for; null for other numbers."""
    whens = "".join(f" WHEN {n} THEN {meaning}" for n, meaning in meanings.items())
    return Sql(f"CASE {value}{whens} END") if whens else Sql("CAST(NULL AS INT)")


def any_row(condition: Sql) -> Sql:
    """Return an aggregate: the condition is true in any row."""
    return Sql(f"max({condition})")


def over(aggregate: Sql, keys: Iterable[Sql], order: Iterable[Sql] = ()) -> Sql:
    """Return a window function over the rows with the same keys.

    Example:
        >>> over(Sql("max(x)"), [quote("id")]), over(Sql("row_number()"), [quote("id")], [quote("ts")])
        ('max(x) OVER (PARTITION BY `id`)', 'row_number() OVER (PARTITION BY `id` ORDER BY `ts`)')
    """
    items = ", ".join(order)
    return Sql(f"{aggregate} OVER (PARTITION BY {', '.join(keys)}{f' ORDER BY {items}' if items else ''})")


def opaque(value: Sql) -> Sql:
    """Return SQL: the value, in a form that the optimizer neither looks into nor repeats.

    From every projected column Spark infers constraints, in quadratic and at worst exponential time, and it repeats cheap
    expressions wherever a column is used. It does neither for nondeterministic values, and this one looks nondeterministic.
    """
    return Sql(f"CASE WHEN spark_partition_id() >= 0 THEN {value} END")


def count_where(condition: str) -> str:
    """Return an aggregate: the number of rows for which a condition is true.

    Not ``count_if``: Spark 4 adds a column below the aggregate for the condition of each.
    """
    return f"count(CASE WHEN {condition} THEN 1 END)"


def is_tombstone(definition: TableDefinition, value: Sql | None = None) -> Sql:
    """Return SQL: a row with this tombstone column value is a tombstone (S4); by default of the column. Never null."""
    value = quote(definition.tombstone_column) if value is None else value
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return or_else(value, FALSE)
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return or_else(equals(value, text_literal(tombstone_value(definition))), FALSE)
    return is_not_null(value)


# Types ----------------------------------------------------------------------------------------------------------------


def physical_type(field: Field) -> DataType:
    """Return the type of a column in files and DataFrames: a string for char and varchar, nullable everywhere."""
    kind = "string" if isinstance(field.type, str) and _FIXED_STRING.match(field.type) else field.type
    kind = with_never_null(kind, ())
    data = {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    return StructType.fromJson(data).fields[0].dataType


def physical_schema(fields: Iterable[Field]) -> StructType:
    return StructType([StructField(f.name, physical_type(f)) for f in fields])


def without_collations(kind: DataType) -> DataType:
    """Return a type with plain strings in place of the collated ones of Spark 4."""
    if isinstance(kind, ArrayType):
        return ArrayType(without_collations(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(without_collations(kind.keyType), without_collations(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        fields = [StructField(f.name, without_collations(f.dataType), f.nullable, f.metadata) for f in kind.fields]
        return StructType(fields)
    return StringType() if type(kind) is StringType else kind


def declared_length(field: Field) -> tuple[str, int] | None:
    """``("char", n)`` or ``("varchar", n)`` for such columns, else None."""
    match = _FIXED_STRING.match(field.type) if isinstance(field.type, str) else None
    return (field.type.split("(")[0], int(match.group(1))) if match else None


def sql_type(kind: DataType) -> Sql:
    """Return a type as SQL that does not depend on ``spark.sql.timestampType``."""
    if isinstance(kind, ArrayType):
        return Sql(f"ARRAY<{sql_type(kind.elementType)}>")
    if isinstance(kind, MapType):
        return Sql(f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>")
    if isinstance(kind, StructType):
        return Sql(f"STRUCT<{', '.join(f'{quote(f.name)}: {sql_type(f.dataType)}' for f in kind.fields)}>")
    return Sql("TIMESTAMP_LTZ" if isinstance(kind, TimestampType) else kind.simpleString())


def field_of(row: Sql, name: str) -> Sql:
    return Sql(f"{row}.{quote(name)}")


def struct(fields: Mapping[str, Sql]) -> Sql:
    """Return a struct of fields whose names SQL needs not quote.

    Example:
        >>> struct({"w0": quote("ts"), "live": TRUE})
        'struct(`ts` AS w0, true AS live)'
    """
    return Sql(f"struct({', '.join(f'{value} AS {name}' for name, value in fields.items())})")


def numbered(name: str, values: Iterable[Sql]) -> dict[str, Sql]:
    """Return values by a name and a number from 0: the fields of a key (``k0``) or a watermark (``w0``) in a struct."""
    return {f"{name}{i}": value for i, value in enumerate(values)}


def numbered_in(row: Sql, name: str, columns: Sized) -> list[Sql]:
    """Return the fields of a struct that :func:`numbered` has named, of some columns."""
    return [field_of(row, f"{name}{i}") for i in range(len(columns))]


def cast(value: Sql, kind: DataType) -> Sql:
    return Sql(f"CAST({value} AS {sql_type(kind)})")


def null_of(field: Field) -> Sql:
    return cast(NULL, physical_type(field))


def tombstone_value(definition: TableDefinition) -> str:
    """Return the value of a string tombstone column on deleted rows."""
    return pad_or_truncate(definition.tombstoneStringValue or "", definition.field(definition.tombstone_column))


def pad_or_truncate(value: str, field: Field) -> str:
    """Return text as a string column stores it: truncated, and padded if the column is char."""
    kind, length = declared_length(field) or ("", len(value))
    return value[:length].ljust(length) if kind == "char" else value[:length]


def empty_frame(spark: SparkSession, fields: Iterable[Field]) -> DataFrame:
    """Return a DataFrame without rows, without a job or a Python worker."""
    return spark.range(0).selectExpr(*[f"{null_of(f)} AS {quote(f.name)}" for f in fields])


def with_metadata(rows: DataFrame, definition: TableDefinition, has_comments: bool = True) -> DataFrame:
    """Return the rows as users see them: Spark knows which columns are ``CHAR(n)``, and pads what is compared with them (S29).

    An alias costs nothing, and filters go through it. Nullability stays as it is: in Spark, all
    columns of files are nullable, and an expression that is not would keep filters from the files.
    """
    told: dict[str, dict[str, str]] = {}
    for field in definition.fields:
        kind, length = declared_length(field) or ("", 0)
        told[field.name] = {"comment": field.comment} if has_comments and field.comment else {}
        told[field.name] |= {CHAR_TYPE: f"char({length})"} if kind == "char" else {}
    if not any(told.values()):
        return rows
    columns = {n: F.col(quote(n)) for n in rows.columns}
    return rows.select(*[c.alias(n, metadata=told[n]) if told.get(n) else c for n, c in columns.items()])
