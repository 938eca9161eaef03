"""Primary keys in calls, and joins by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql.types import DataType, DateType, DecimalType, IntegralType

from trinitymerge.errors import (
    NullKeyError,
    SchemaMismatchError,
    counted,
    how_to_convert,
    is_foreign_frame,
    kind_of,
    missing,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import CastPolicy, cast_to_column, key_policy
from trinitymerge.spark.session import is_dataframe
from trinitymerge.spark.sql_text import Sql


def same_key(keys: Sequence[Sql], others: Sequence[Sql], kinds: Sequence[DataType]) -> Sql:
    """Return SQL: two keys are equal; their columns are in the same order and of the same types."""
    if not _by_hash(kinds):
        return E.all_of(map(E.equals, keys, others))
    # An equality would add another column to the join key.
    exact = (Sql(f"{k} >= {o} AND {k} <= {o}") for k, o in zip(keys, others, strict=True))
    return E.all_of([may_be_same_key(keys, others, kinds), *exact])


def may_be_same_key(keys: Sequence[Sql], others: Sequence[Sql], kinds: Sequence[DataType]) -> Sql:
    """Return SQL: two keys are equal, with rare false positives. The caller compares the keys again; see :func:`same_key`."""
    if not _by_hash(kinds):
        return E.all_of(map(E.equals, keys, others))
    return Sql(f"xxhash64({', '.join(keys)}) = xxhash64({', '.join(others)})")


def _by_hash(kinds: Sequence[DataType]) -> bool:
    return len(kinds) > 1 or not isinstance(kinds[0], IntegralType)


def keys_to_columns(
    spark: SparkSession, definition: TableDefinition, keys: DataFrame | Iterable[Any], call: str
) -> DataFrame:
    """Return keys, a DataFrame or values (tuples, dicts or Rows of several), as columns :data:`C.KEY_TO_FIND`, lazily."""
    given = keys if is_dataframe(keys) else _frame_of(spark, definition, cast("Iterable[Any]", keys), call)
    names = enumerate(definition.primaryKey)
    return given.selectExpr(*[f"{_as_stored(definition, k, given, call)} AS {C.KEY_TO_FIND(i)}" for i, k in names])


@contextmanager
def translate_cast_errors(call: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise _misfit(call, error) from None


def require_non_null_keys(found: DataFrame, call: str) -> None:
    """Raise if a key has a null; one Spark job."""
    nulls = found.filter(" OR ".join(f"{n} IS NULL" for n in found.columns)).count()
    if nulls:
        raise NullKeyError(
            f"{call} was given {counted(nulls, 'key')} with a null or a value that is not of the key's type."
        )


def _misfit(call: str, error: BaseException) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"The keys given to {call} are not of the key's type: {str(error).strip().splitlines()[0]}"
    )


def _column_of(given: DataFrame, key: str, call: str) -> str:
    name = E.find_name(key, given.columns, E.is_case_sensitive(given.sparkSession))
    if name is None:
        raise SchemaMismatchError(f"{call}: {missing([key], 'the DataFrame of keys', given.columns)}", column=key)
    return name


def _as_stored(definition: TableDefinition, key: str, given: DataFrame, call: str) -> Sql:
    """Return a key as the table stores it, as SQL; null if a cast would lose something (S17a): it is not a key of the table."""
    column, field = _column_of(given, key, call), definition.field(key)
    kind = given.schema[column].dataType
    way = key_policy(kind, field)
    if way is CastPolicy.REFUSED:
        raise SchemaMismatchError(
            f"The keys given to {call} are not of the key's type: {column} is {kind.simpleString()}, not {field.text}.",
            column=key,
        )
    stored = cast_to_column(E.quote(column), way, field, True, kind)
    length = E.declared_length(field)
    if length and length[0] == "char":
        stored = Sql(f"rpad({stored}, greatest({length[1]}, length({stored})), ' ')")
    return stored


def _frame_of(spark: SparkSession, definition: TableDefinition, keys: Iterable[Any], call: str) -> DataFrame:
    unusable = isinstance(keys, (str, bytes, Mapping, Column)) or not isinstance(keys, Iterable)
    if unusable or is_foreign_frame(keys):
        remedy = how_to_convert(keys) if is_foreign_frame(keys) else ""
        raise SchemaMismatchError(f"{call} takes a DataFrame or a list of keys, got {kind_of(keys)}.{remedy}")
    names = definition.primaryKey
    rows = [_row_of(key, names, call) for key in keys]
    fields = [definition.field(n) for n in names]
    for row in rows:
        for value, field in zip(row, fields, strict=True):
            if _is_rounded(value, E.physical_type(field)):
                raise SchemaMismatchError(
                    f"The keys given to {call} are not of the key's type: {value!r} is not a {field.text}."
                )
    try:
        return spark.createDataFrame(rows, E.physical_schema(fields))
    except (PySparkException, TypeError, ValueError) as error:
        raise _misfit(call, error) from None


def _is_rounded(value: Any, kind: DataType) -> bool:
    """Return True if PySpark would store a Python value as another one."""
    if isinstance(kind, DecimalType) and isinstance(value, Decimal) and value.is_finite():
        return value != round(value, kind.scale)
    return isinstance(kind, DateType) and isinstance(value, datetime)


def _row_of(key: Any, names: Sequence[str], call: str) -> tuple[Any, ...]:
    if isinstance(key, Row):
        key = key.asDict()
    if isinstance(key, Mapping):
        lacking = [n for n in names if n not in key]
        if lacking:
            raise SchemaMismatchError(f"{call}: {missing(lacking, 'a key', key)}")
        return tuple(key[n] for n in names)
    values = tuple(key) if isinstance(key, (tuple, list)) else (key,)
    if len(values) != len(names):
        raise SchemaMismatchError(f"A key given to {call} has {len(values)} values; a key is ({', '.join(names)}).")
    return values
