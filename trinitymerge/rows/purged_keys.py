"""The salted hashes that identify purged keys (S39a)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType, TimestampType

from trinitymerge.log.actions import PurgeKeys
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.expressions import physical_type, quote


def hash_of_key(definition: TableDefinition, salt: str) -> str:
    """SQL: the hash of a row's primary key, independent of Spark's version and settings."""
    parts = ", ".join(f"hex({_text_of(definition, k)})" for k in definition.primaryKey)
    return f"sha2(concat_ws('/', '{salt}', {parts}), 256)"


def _text_of(definition: TableDefinition, key: str) -> str:
    kind = physical_type(definition.field(key))
    if isinstance(kind, BinaryType):
        return quote(key)
    value = f"unix_micros({quote(key)})" if isinstance(kind, TimestampType) else quote(key)
    text = f"CAST({value} AS STRING)"
    return _plain(value, text, kind.scale) if isinstance(kind, DecimalType) else text


def _plain(value: str, text: str, scale: int) -> str:
    """SQL: the text of a decimal without exponent; without ANSI mode Spark writes small ones as ``1E-9``."""
    digits = f"lpad(translate(substring_index({text}, 'E', 1), '-.', ''), {scale}, '0')"
    return f"CASE WHEN {text} LIKE '%E%' THEN concat(CASE WHEN {value} < 0 THEN '-0.' ELSE '0.' END, {digits}) ELSE {text} END"


def mark_purged(rows: DataFrame, definition: TableDefinition, purged: PurgeKeys, marker: str) -> DataFrame:
    """Add a column that is true on rows with a purged key, and null on others.

    Args:
        rows: stored columns, and any others.
        definition: of the table.
        purged: the hashes of the table's purged keys.
        marker: the name of the column.
    """
    listed = rows.sparkSession.range(1).selectExpr(
        f"explode(split('{','.join(purged.hashes)}', ',')) AS {marker}_hash", f"true AS {marker}"
    )
    same = f"{hash_of_key(definition, purged.salt)} = {marker}_hash"
    return rows.join(F.broadcast(listed), F.expr(same), "left").drop(f"{marker}_hash")
