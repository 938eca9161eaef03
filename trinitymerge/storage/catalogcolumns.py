"""The columns of tables in catalogs: the user's, as they are now, and those that the library has beside them (S16).

Owns: which columns are whose, and what becomes of a definition when others alter the table, which is no commit.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from trinitymerge.columns import BATCH, CLAUSE, EFFECT, SEQUENCE, SINCE
from trinitymerge.definition import HIDDEN_PREFIX, HIDDEN_TOMBSTONE, Field, TableDefinition
from trinitymerge.expressions import cast, physical_type, quote
from trinitymerge.nullability import never_null, with_never_null
from trinitymerge.sqltext import Sql
from trinitymerge.storage.entries import Snapshot

_WITH_ALL = (Field(CLAUSE, "integer"), Field(EFFECT, "string"), Field(SINCE, "long"))

HIDDEN = (Field(SEQUENCE, "long"), *_WITH_ALL)
"""What a table of Iceberg's has beside the user's columns, and beside the tombstone of tables that declare none."""

OF_PLAIN_TABLES = (Field(BATCH, "string"), *_WITH_ALL)
"""The same of a plain table."""


def hidden_fields(definition: TableDefinition, hidden: Sequence[Field] = HIDDEN) -> list[Field]:
    """The library's columns in a table."""
    return [*hidden, *([] if definition.tombstoneKey else [Field(HIDDEN_TOMBSTONE, "boolean")])]


def columns_of(rows: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Columns by their names; null where there is none of that name."""
    has = {n.lower() for n in rows.columns}
    return rows.selectExpr(*[quote(f.name) if f.name.lower() in has else _null(f) for f in fields])


def _null(field: Field) -> str:
    return f"{cast(Sql('NULL'), physical_type(field))} AS {quote(field.name)}"


def fields_now(before: Sequence[Field], columns: StructType) -> tuple[Field, ...]:
    """The user's columns as a table has them; those that it had before keep what is known of them besides."""
    known = {f.name: f for f in before}
    return tuple(_now(f, known.get(f.name)) for f in user_fields(columns))


def with_columns_now(snapshot: Snapshot, columns: StructType) -> Snapshot:
    """The same with the columns that the table has now: others may have altered them, and that is no commit."""
    before = snapshot.definition
    fields = fields_now(before.fields, columns)
    if fields == before.fields:
        return snapshot
    definition = TableDefinition.from_json({**before.to_json(), "fields": [f.to_json() for f in fields]})
    number = zlib.crc32(json.dumps([(f.name, f.type) for f in fields]).encode())
    return attrs.evolve(snapshot, definition=definition, definition_version=number)


def _now(field: Field, before: Field | None) -> Field:
    if before is None:
        return field
    kind = with_never_null(field.type, never_null(before.type))
    return (
        before
        if before.type == kind
        else attrs.evolve(field, type=kind, nullable=before.nullable, default=before.default)
    )


def user_fields(columns: StructType) -> list[Field]:
    """The columns that are not the library's."""
    found = (Field.from_json(f) for f in columns.jsonValue()["fields"])
    return [f for f in found if not f.name.lower().startswith(HIDDEN_PREFIX)]
