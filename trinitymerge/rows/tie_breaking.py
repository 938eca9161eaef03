"""Rows of other writers: ties without a commit version, and null keys (S15)."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

# By default, JSON truncates times to milliseconds, and depends on the session's time zone.
_EXACTLY = (
    "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', "
    "'timeZone', 'UTC')"
)

SHAPES = ("geometry", "geography")
"""Types without an order or equality in Spark."""

_EQUAL_AND_DIFFERENT = re.compile(r"\b(float|double)\b|collate", re.IGNORECASE)
"""Types whose equal values may differ: -0.0 and 0.0, or text in upper and lower case."""


def weights(rows: DataFrame, definition: TableDefinition) -> list[Sql]:
    """Return SQL over a row that breaks ties: the largest value wins, and null is the smallest.

    Equal values of some types may differ. The text of such columns comes last, so that only equal rows tie.
    """
    found: list[Sql] = [E.is_tombstone(definition)] if definition.tombstone_column in rows.columns else []
    keys, fields = {*definition.primaryKey, *definition.watermarkKey}, rows.schema.fields
    found += [orderable(f.name, f.dataType) for f in fields if f.name not in keys]
    vague = [E.quote(f.name) for f in fields if _EQUAL_AND_DIFFERENT.search(f.dataType.simpleString())]
    return [*found, _text(*vague)] if vague else found


def with_keys(rows: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return the rows; Spark raises an error when it reads one with a null in its primary key (S2)."""
    nullable = [f.name for f in rows.schema.fields if f.name in definition.primaryKey and f.nullable]
    if not nullable:
        return rows
    cases = (f"WHEN {E.quote(n)} IS NULL THEN CAST(raise_error({_null_key_message(n)}) AS BOOLEAN)" for n in nullable)
    return rows.filter(f"CASE {' '.join(cases)} ELSE true END")


def _null_key_message(name: str) -> str:
    return E.text_literal(
        f"A row has a null in '{name}', which is part of the primary key (S2). Filter such rows from the source with "
        f'df.filter("{E.quote(name)} IS NOT NULL"), or use another key.'
    )


def orderable(name: str, kind: DataType) -> Sql:
    """Return SQL: a column in an orderable form; maps and variants, nested ones too, become JSON text (S15).

    Maps with the same entries in another order differ (S12), in contrast to :func:`~trinitymerge.rows.equality.comparable`.
    """
    if is_orderable(kind):
        return E.quote(name)
    if kind.typeName() in SHAPES:
        return Sql(f"st_asbinary({E.quote(name)})")
    return _text(f"{_with_text_keys(E.quote(name), kind)} AS {E.quote(name)}")


def _with_text_keys(value: str, kind: DataType, depth: int = 0) -> str:
    """Return a value whose binary map keys are text: JSON would have the identities of Java's arrays in their place."""
    if "map<binary," not in kind.simpleString():
        return value
    each = f"x{depth}"
    if isinstance(kind, ArrayType):
        return f"transform({value}, {each} -> {_with_text_keys(each, kind.elementType, depth + 1)})"
    if isinstance(kind, StructType):
        parts = (
            f"{_with_text_keys(f'{value}.{E.quote(f.name)}', f.dataType, depth)} AS {E.quote(f.name)}"
            for f in kind.fields
        )
        return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(parts)}) END"
    assert isinstance(kind, MapType)
    key = f"hex(k{depth})" if isinstance(kind.keyType, BinaryType) else f"k{depth}"
    inside = _with_text_keys(each, kind.valueType, depth + 1)
    return f"transform_values(transform_keys({value}, (k{depth}, {each}) -> {key}), (k{depth}, {each}) -> {inside})"


def _text(*columns: str) -> Sql:
    return Sql(f"to_json(struct({', '.join(columns)}), {_EXACTLY})")


def is_orderable(kind: DataType) -> bool:
    """Return True if Spark compares all values of a type."""
    if isinstance(kind, StructType):
        return all(is_orderable(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return is_orderable(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() not in ("variant", "interval", *SHAPES)
