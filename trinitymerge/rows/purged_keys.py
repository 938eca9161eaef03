"""The salted hashes that identify purged keys (S39a)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, DataType, DecimalType, TimestampType

from trinitymerge.log.actions import PurgeKeys
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql


def hash_of_key(definition: TableDefinition, salt: str, key: Sequence[Sql] = ()) -> Sql:
    """Return SQL: the hash of a row's primary key, or of another key, independent of Spark's version and settings."""
    values = zip(definition.primaryKey, key or [*map(E.quote, definition.primaryKey)], strict=True)
    parts = ", ".join(f"hex({_text_of(value, E.physical_type(definition.field(name)))})" for name, value in values)
    return Sql(f"sha2(concat_ws('/', {E.text_literal(salt)}, {parts}), 256)")


def _text_of(key: Sql, kind: DataType) -> str:
    if isinstance(kind, BinaryType):
        return key
    value = f"unix_micros({key})" if isinstance(kind, TimestampType) else key
    text = f"CAST({value} AS STRING)"
    return _plain(value, text, kind.scale) if isinstance(kind, DecimalType) else text


def _plain(value: str, text: str, scale: int) -> str:
    """Return SQL: the text of a decimal without exponent; without ANSI mode Spark writes small ones as ``1E-9``."""
    digits = f"lpad(translate(substring_index({text}, 'E', 1), '-.', ''), {scale}, '0')"
    return f"CASE WHEN {text} LIKE '%E%' THEN concat(CASE WHEN {value} < 0 THEN '-0.' ELSE '0.' END, {digits}) ELSE {text} END"


def purged_keys(spark: SparkSession, purged: PurgeKeys) -> DataFrame:
    """Return a table's purged keys: a row with :data:`C.PURGED_HASH`, and a true :data:`C.PURGED`, for each."""
    hashes = ",".join(purged.hashes)
    return spark.range(1).selectExpr(f"explode(split('{hashes}', ',')) AS {C.PURGED_HASH}", f"true AS {C.PURGED}")


def is_purged(definition: TableDefinition, purged: PurgeKeys, key: Sequence[Sql] = ()) -> Sql:
    """Return SQL that is true if the key of a row, or another key, is that of a row of :func:`purged_keys`."""
    return E.equals(hash_of_key(definition, purged.salt, key), C.PURGED_HASH)
