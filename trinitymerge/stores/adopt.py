"""Create a catalog table, or register an existing one (S16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from trinitymerge.errors import InvalidDefinitionError, NullKeyError, TableExistsError, counted
from trinitymerge.log.model import Batch
from trinitymerge.rows.watermarks import watermark_metrics, watermark_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.expressions import any_of, count_where, is_null, is_tombstone, physical_type, quote, sql_type
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.system_columns import SEQUENCE
from trinitymerge.stores.catalog import HIDDEN, CatalogTable, columns_of, hidden_fields, literal
from trinitymerge.stores.iceberg_client import IcebergSnapshot

ROLES = ("primaryKey", "watermarkKey", "tombstoneKey", "tombstoneStringValue")
_PREFIX = "trinitymerge."
_SHOWN = 5


def create_sql(name: str, definition: TableDefinition, using: str = "iceberg", hidden: Sequence[Field] = HIDDEN) -> str:
    """The statement that creates a table."""
    columns = [_declared(f) for f in (*definition.fields, *hidden_fields(definition, hidden))]
    comment = f" COMMENT {literal(definition.comment)}" if definition.comment else ""
    own = {n: v for n, v in definition.properties.items() if not n.startswith(_PREFIX)}
    if using == "iceberg" and definition.fileFormat != "parquet":
        own["write.format.default"] = definition.fileFormat
    properties = f" TBLPROPERTIES ({', '.join(map(_pair, own.items()))})" if own else ""
    return f"CREATE TABLE {name} ({', '.join(columns)}) USING {using}{comment}{properties}"


def create(
    table: CatalogTable, definition: TableDefinition, using: str = "iceberg", hidden: Sequence[Field] = HIDDEN
) -> None:
    """Creates an empty table in its catalog.

    Raises:
        TableExistsError: the catalog has one of that name.
        InvalidDefinitionError: the format has no such type.
    """
    try:
        if not table.exists():
            table.sql(create_sql(table.name, definition, using, hidden))
            return
    except Exception as error:
        if not is_spark_error(error):
            raise
        if "ALREADY_EXISTS" not in str(error):
            raise InvalidDefinitionError(f"{table.shown} cannot be created: {clean_message(error)}") from None
    raise TableExistsError(
        f"There is a table {table.shown} already. Open it with TrinityTable.forName, and name its keys if it is none of "
        "trinitymerge's yet.",
        path=table.shown,
    )


def add_columns_sql(
    name: str, definition: TableDefinition, columns: StructType, hidden: Sequence[Field] = HIDDEN
) -> str | None:
    """The statement that adds the library's columns to a table; None if it has them."""
    has = {n.lower() for n in columns.names}
    missing = [_declared(f) for f in hidden_fields(definition, hidden) if f.name not in has]
    return f"ALTER TABLE {name} ADD COLUMNS ({', '.join(missing)})" if missing else None


def _declared(field: Field) -> str:
    """A column as the catalog has it; nulls are kept from it by merges, which name the row: the format would just fail."""
    comment = f" COMMENT {literal(field.comment)}" if field.comment else ""
    return f"{quote(field.name)} {sql_type(physical_type(field))}{comment}"


def set_keys_sql(name: str, definition: TableDefinition) -> str:
    """The statement that keeps the keys in the table's properties, where people and catalogs see them."""
    told = {
        "primaryKey": _listed(definition.primaryKey),
        "watermarkKey": _listed(definition.watermarkKey),
        "tombstoneKey": definition.tombstoneKey,
        "tombstoneStringValue": definition.tombstoneStringValue,
    }
    pairs = [_pair((_PREFIX + key, value)) for key, value in told.items() if value]
    return f"ALTER TABLE {name} SET TBLPROPERTIES ({', '.join(pairs)})"


def _pair(pair: tuple[str, str]) -> str:
    return f"{literal(pair[0])} = {literal(pair[1])}"


def keys_from_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """The keys that a table's properties tell; empty if they tell none."""
    told = {role: properties.get(_PREFIX + role) for role in ROLES}
    if told["primaryKey"] is None:
        return {}
    lists = {role: tuple(n.strip() for n in (told[role] or "").split(",") if n.strip()) for role in ROLES[:2]}
    return {**told, **lists}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def profile_rows(rows: DataFrame, link: IcebergSnapshot, definition: TableDefinition) -> tuple[Batch | None, int]:
    """What is to be known of the rows that a table has before it becomes one of ours, in two jobs.

    Args:
        rows: of the table's newest snapshot.
        link: that snapshot.
        definition: of the table.

    Returns:
        The rows as a batch, None if there are none; and the version that the table begins with: 0, or the next one if rows say that
        they were committed by this library before.

    Raises:
        NullKeyError: a key has a null; naming some.
    """
    stored = columns_of(rows, [*definition.stored_fields, HIDDEN[0]])
    told = {"tombstones": count_where(is_tombstone(definition)), "sequence": f"max({SEQUENCE})"}
    values = profile(stored, definition, {**told, **watermark_metrics(definition, "true")})
    version = 0 if values["sequence"] is None else int(values["sequence"]) + 1
    if not values["rows"]:
        return None, version
    counts = stored.groupBy(*[F.expr(quote(k)) for k in definition.primaryKey]).agg(
        F.expr(f"count(1) > 1 AS {SEQUENCE}")
    )
    is_unique = counts.filter(SEQUENCE).isEmpty()
    return Batch(
        id=f"found-{link.id}",
        rows=values["rows"],
        tombstones=values["tombstones"],
        files=link.count("total-data-files"),
        bytes=link.count("total-files-size"),
        watermark_min=watermark_of(values, "min", definition),
        watermark_max=watermark_of(values, "max", definition),
        unique_keys=is_unique,
        base=is_unique,
        version=version,
        foreign=True,
    ), version


def profile(rows: DataFrame, definition: TableDefinition, metrics: Mapping[str, str]) -> Mapping[str, Any]:
    """The number of ``rows``, and other metrics of them, in one job.

    Raises:
        NullKeyError: a key has a null; naming some.
    """
    has_null = any_of(is_null(quote(k)) for k in definition.primaryKey)
    values = Metrics({"rows": "count(1)", "nulls": count_where(has_null), **metrics}).compute(rows)
    if values["nulls"]:
        raise _nulls(rows.filter(has_null), values, definition)
    return values


def _nulls(rows: DataFrame, values: Mapping[str, Any], definition: TableDefinition) -> NullKeyError:
    shown = [tuple(r) for r in rows.select(*map(quote, definition.names)).limit(_SHOWN).collect()]
    return NullKeyError(
        f"{counted(values['nulls'])} of the table's {values['rows']:,} have a null in the primary key "
        f"({', '.join(definition.primaryKey)}), such as {'; '.join(map(str, shown))}. Nothing was changed. Delete them, or take "
        "another key.",
        rows=shown,
    )
