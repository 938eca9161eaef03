"""Rows of other writers: ties that no commit version decides, and null keys (S15)."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.expressions import is_tombstone, quote, text_literal

# Otherwise JSON cuts times to milliseconds, and which text is the larger would depend on the session's zone.
_EXACTLY = (
    "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', "
    "'timeZone', 'UTC')"
)

_EQUAL_AND_DIFFERENT = re.compile(r"\b(float|double)\b|collate", re.IGNORECASE)
"""In the name of a type: values that compare as equal may differ: -0.0 and 0.0, or text in upper and lower case."""


def ties(rows: DataFrame, definition: TableDefinition) -> list[str]:
    """What decides between rows of a key with equal watermarks (S15), as items of an ``ORDER BY``: the first row is taken."""
    return [f"{weight} DESC NULLS LAST" for weight in weights(rows, definition)]


def weights(rows: DataFrame, definition: TableDefinition) -> list[str]:
    """The same, as SQL over a row: the largest is taken, where null is the smallest.

    Values may compare as equal and differ all the same. The text of such columns comes last, so that nothing is left to the
    order of the rows; where that is equal, too, the rows are.
    """
    found: list[str] = [is_tombstone(definition)] if definition.tombstone_column in rows.columns else []
    keys, fields = {*definition.primaryKey, *definition.watermarkKey}, rows.schema.fields
    found += [comparable(f.name, f.dataType) for f in fields if f.name not in keys]
    vague = [quote(f.name) for f in fields if _EQUAL_AND_DIFFERENT.search(f.dataType.simpleString())]
    return [*found, _text(*vague)] if vague else found


def with_keys(rows: DataFrame, definition: TableDefinition) -> DataFrame:
    """The same rows; to read one with a null in its primary key is an error (S2), for it could be anything's version."""
    nullable = [f.name for f in rows.schema.fields if f.name in definition.primaryKey and f.nullable]
    if not nullable:
        return rows
    cases = (f"WHEN {quote(name)} IS NULL THEN CAST(raise_error({_refusal(name)}) AS BOOLEAN)" for name in nullable)
    return rows.filter(f"CASE {' '.join(cases)} ELSE true END")


def _refusal(name: str) -> str:
    said = (
        f"A row has a null in '{name}', which is part of the primary key: nobody can say what it is a version of (S2). Leave such "
        f'rows out of the source, df.filter("{quote(name)} IS NOT NULL"), or take another key.'
    )
    return text_literal(said)


def comparable(name: str, kind: DataType) -> str:
    """A column as something Spark can order: maps, variants and what holds them by their JSON text (S15)."""
    return quote(name) if _is_orderable(kind) else _text(quote(name))


def _text(*columns: str) -> str:
    return f"to_json(struct({', '.join(columns)}), {_EXACTLY})"


def _is_orderable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_orderable(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_orderable(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() not in ("variant", "interval")
