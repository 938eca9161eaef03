"""Names of tables in catalogs, and the columns that catalog tables have beside the user's."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.errors import TableNotFoundError
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.definition import HIDDEN_PREFIX, HIDDEN_TOMBSTONE, TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import never_null, with_never_null
from trinitymerge.spark.conf import session_conf
from trinitymerge.spark.errors import suppress_error_logs
from trinitymerge.spark.expressions import cast, physical_type, quote
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import BATCH, CLAUSE, EFFECT, SEQUENCE, SINCE

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


_BACKSLASHES = {"spark.sql.parser.escapedStringLiterals": "false"}
SPARKS_OWN = "spark_catalog"
"""The name of Spark's own catalog."""

_PART = re.compile(r"`(?:[^`]|``)+`|[^.`\s]+")


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a table's name, without quotes.

    Raises:
        ValueError: it is no name.

    Example:
        >>> parts_of("lake.`my db`.orders")
        ('lake', 'my db', 'orders')
    """
    found = _PART.findall(name)
    if not found or ".".join(found) != name.strip():
        raise ValueError(
            f"{name!r} is no name of a table. Write it as in SQL: catalog.database.table, and parts with other characters in "
            "backquotes."
        )
    return tuple(p[1:-1].replace("``", "`") if p.startswith("`") else p for p in found)


def literal(value: str) -> str:
    """Text in a statement that takes no expression there, such as a comment or a property."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class CatalogTable:
    """A table in one of the session's catalogs."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.parts = spark, _whole(spark, parts_of(name))
        self.name = ".".join(quote(p) for p in self.parts)

    @property
    def shown(self) -> str:
        """Its name for people, without quotes."""
        return ".".join(self.parts)

    def exists(self) -> bool:
        """True if the catalog has a table of that name."""
        return bool(self.spark.catalog.tableExists(self.name))

    def sql(self, text: str) -> DataFrame:
        """Runs a statement."""
        with suppress_error_logs(), session_conf(self.spark, _BACKSLASHES):  # see literal()
            return self.spark.sql(text)

    def described(self) -> dict[str, str]:
        """What ``DESCRIBE TABLE EXTENDED`` says besides the columns, by its names for it."""
        rows = [tuple(r) for r in self.sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect()]
        names = [r[0] for r in rows]
        start = names.index("# Detailed Table Information") if "# Detailed Table Information" in names else len(rows)
        return {r[0]: r[1] for r in rows[start + 1 :]}

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return {r["key"]: r["value"] for r in self.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def refresh(self) -> None:
        """Forgets what the catalog has in memory: other processes may have committed."""
        self.sql(f"REFRESH TABLE {self.name}")

    def schema(self) -> StructType:
        """Its columns, as they are now."""
        return self.spark.table(self.name).schema


def _whole(spark: SparkSession, parts: tuple[str, ...]) -> tuple[str, ...]:
    """A name with its catalog and database, as the session completes it.

    Raises:
        TableNotFoundError: the session has no such catalog.
    """
    if len(parts) == 1:
        parts = (spark.catalog.currentDatabase(), *parts)
    is_catalog = spark.conf.get(f"spark.sql.catalog.{parts[0]}", None) is not None or parts[0] == SPARKS_OWN
    if is_catalog and len(parts) > 2:
        return parts
    current = spark.catalog.currentCatalog()
    if current == SPARKS_OWN and len(parts) > 2:
        raise TableNotFoundError(
            f"There is no table {'.'.join(parts)}: the session has no catalog '{parts[0]}', and its own knows databases without "
            f"further parts only. Start the session with spark.sql.catalog.{parts[0]}, as the catalog's documentation says.",
            path=".".join(parts),
        )
    return (current, *parts)
