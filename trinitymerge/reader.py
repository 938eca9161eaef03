"""Merge-on-read: from row versions to live rows (S13-S15).

Owns: :func:`resolve` for any DataFrame, and the plans that resolve the batches of a table. Knows of a table only its
definition and its batches' statistics; how batches are stored is the backend's business. Everything here is lazy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from trinitymerge.definition import HIDDEN_PREFIX, Field, TableDefinition
from trinitymerge.expressions import all_of, column, is_tombstone
from trinitymerge.storage.backend import VERSION, Backend, Batches

_RANK = HIDDEN_PREFIX + "rank"


def resolve(
    df: DataFrame,
    primaryKey: str | Iterable[str],
    watermarkKey: str | Iterable[str] | None = (),
    tombstoneKey: str | None = None,
    tombstoneStringValue: str | None = None,
) -> DataFrame:
    """The live rows of any DataFrame of row versions (S13, S15; TrinityLake, reader requirement).

    Per primary key the row with the largest watermark is kept, unless it is a tombstone. Rows that tie in every
    watermark column are decided so that the answer never depends on their order: a tombstone beats a row, then the row
    whose remaining columns compare larger, in schema order.

    Args:
        df: row versions, in any order.
        primaryKey: a column name or names.
        watermarkKey: none, one or several column names, most significant first.
        tombstoneKey: the column that says "deleted", or None.
        tombstoneStringValue: what a string tombstone column holds on deleted rows.

    Returns:
        A lazy DataFrame with the columns of ``df``, one row per live key. Costs one shuffle by primary key.

    Raises:
        InvalidDefinitionError: a key names no column, or one whose type cannot be a key.

    Example:
        >>> rows = spark.sql("SELECT * FROM VALUES (1, 100, false), (1, 200, false), (2, 100, false), (2, 200, true) "
        ...                  "AS orders(order_id, ts, deleted)")
        >>> resolve(rows, "order_id", "ts", "deleted").collect()
        [Row(order_id=1, ts=200, deleted=False)]
    """
    fields = [Field.from_json(f) for f in df.schema.jsonValue()["fields"]]
    definition = TableDefinition.of(fields, primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
    order = [column(w).desc_nulls_last() for w in definition.watermarkKey]
    if definition.tombstoneKey is not None:
        order.append(is_tombstone(definition).desc())
    keys = {*definition.primaryKey, *definition.watermarkKey}
    order += [comparable(f.name, f.dataType).desc_nulls_last() for f in df.schema.fields if f.name not in keys]
    latest = _first_per_key(df, definition.primaryKey, order)
    return latest if definition.tombstoneKey is None else latest.filter(~is_tombstone(definition))


def live(backend: Backend, batches: Batches, with_hidden: bool = False) -> DataFrame:
    """The live rows of a table's batches (S13).

    A single batch with unique keys needs no resolution: it is scanned, and its tombstones are filtered out.

    Args:
        backend: where the batches are.
        batches: what to read.
        with_hidden: all stored columns instead of the user's only.
    """
    definition = batches.definition
    rows = latest(backend, batches)
    if any(b.tombstones for b in batches.batches):
        rows = rows.filter(~is_tombstone(definition))
    shown = definition.stored_fields if with_hidden else definition.fields
    return rows.select(*[column(f.name) for f in shown])


def latest(backend: Backend, batches: Batches, keys: DataFrame | None = None) -> DataFrame:
    """The latest row of every key, tombstones included, with the stored columns (S13).

    Args:
        backend: where the batches are.
        batches: what to read.
        keys: when given, only rows whose primary key occurs there are read; its columns are the key columns' values
            in the order of the primary key, null or repeated values are harmless.
    """
    definition = batches.definition
    rows = backend.scan(batches)
    if keys is not None:
        rows = rows.join(keys, all_of(column(k) == keys[i] for i, k in enumerate(definition.primaryKey)), "left_semi")
    if len(batches.batches) <= 1 and all(b.unique_keys for b in batches.batches):
        return rows.drop(VERSION)
    order = [column(w).desc_nulls_last() for w in definition.watermarkKey] + [column(VERSION).desc()]
    return _first_per_key(rows, definition.primaryKey, order).drop(VERSION)


def _first_per_key(df: DataFrame, key: Sequence[str], order: Sequence[Column]) -> DataFrame:
    window = Window.partitionBy(*[column(k) for k in key]).orderBy(*(order or [F.lit(0)]))
    return df.withColumn(_RANK, F.row_number().over(window)).filter(column(_RANK) == 1).drop(_RANK)


def comparable(name: str, kind: DataType) -> Column:
    """A column as something Spark can order: maps, variants and what holds them by their JSON text (S15)."""
    return column(name) if _is_orderable(kind) else F.to_json(F.struct(column(name)))


def _is_orderable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_orderable(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_orderable(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() not in ("variant", "interval")
