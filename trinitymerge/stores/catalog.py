"""Tables of the session's catalogs, by name."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.errors import TableNotFoundError
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import session_conf
from trinitymerge.spark.errors import suppress_error_logs

_BACKSLASHES = {"spark.sql.parser.escapedStringLiterals": "false"}
_SPARKS_OWN = "spark_catalog"
"""The name of Spark's own catalog."""

_PART = re.compile(r"`(?:[^`]|``)+`|[^.`\s]+")


def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of a table's name, without quotes.

    Example:
        >>> parts_of("lake.`my db`.orders")
        ('lake', 'my db', 'orders')
    """
    found = _PART.findall(name)
    if not found or ".".join(found) != name.strip():
        raise ValueError(
            f"{name!r} is not a table name. Write it as in SQL: catalog.database.table, and parts with other characters in "
            "backquotes."
        )
    return tuple(p[1:-1].replace("``", "`") if p.startswith("`") else p for p in found)


_NAME = re.compile(r"(?:`[^`/]+`|[^\W\d]\w*)(?:\.(?:`[^`/]+`|[^\W\d]\w*)){1,2}")
_EXTENSIONS = {"avro", "csv", "db", "delta", "iceberg", "json", "orc", "parquet", "table"}


def is_table_name(path: str) -> bool:
    """Return True if a path must be meant as a name: two or three identifiers with dots between them, and no extension.

    Example:
        >>> [is_table_name(path) for path in ("shop.customers", "lake.shop.`my orders`", "shop.db", "./shop.customers", "orders")]
        [True, True, False, False, False]
    """
    return bool(_NAME.fullmatch(path)) and path.rpartition(".")[2].lower() not in _EXTENSIONS


def literal(value: str) -> str:
    """Return text as a literal for statements without expressions, such as a comment or a property."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


REDACTED = "*********(redacted)"
"""Stands for the value of a property whose name or value may be a secret, such as ``url`` (``spark.redaction.regex``)."""


class CatalogTable:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.parts = spark, _whole(spark, parts_of(name))
        self.name = ".".join(E.quote(p) for p in self.parts)

    @property
    def shown(self) -> str:
        """The name, with backquotes where :func:`parts_of` needs them."""
        return ".".join(p if _PART.fullmatch(p) and "`" not in p else E.quote(p) for p in self.parts)

    def exists(self) -> bool:
        return bool(self.spark.catalog.tableExists(self.name))

    def sql(self, text: str) -> DataFrame:
        with suppress_error_logs(), session_conf(self.spark, _BACKSLASHES):  # see literal()
            return self.spark.sql(text)

    def format(self) -> str:
        """Return the format of an existing table (``USING``), in lower case; ``"view"`` for views."""
        rows = self.sql(f"DESCRIBE TABLE EXTENDED {self.name}").filter("col_name IN ('Provider', 'Type')").collect()
        told = {r["col_name"]: r["data_type"].lower() for r in rows}
        return "view" if told.get("Type") == "view" else told.get("Provider", "unknown")

    def properties(self) -> dict[str, str]:
        return {r["key"]: r["value"] for r in self.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def refresh(self) -> None:
        """Refresh the catalog's cache: other processes may have committed."""
        self.sql(f"REFRESH TABLE {self.name}")

    def schema(self) -> StructType:
        return self.spark.table(self.name).schema


def _whole(spark: SparkSession, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a name with its catalog and database, as the session completes it."""
    if len(parts) == 1:
        parts = (spark.catalog.currentDatabase(), *parts)
    is_catalog = spark.conf.get(f"spark.sql.catalog.{parts[0]}", None) is not None or parts[0] == _SPARKS_OWN
    if is_catalog and len(parts) > 2:
        return parts
    current = spark.catalog.currentCatalog()
    if current == _SPARKS_OWN and len(parts) > 2:
        raise TableNotFoundError(
            f"There is no table {'.'.join(parts)}: the session has no catalog '{parts[0]}', and its own knows databases without "
            f"further parts only. Start the session with spark.sql.catalog.{parts[0]}, as the catalog's documentation says.",
            path=".".join(parts),
        )
    return (current, *parts)
