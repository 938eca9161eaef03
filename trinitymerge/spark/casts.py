"""Store assignment: whether a value may be stored in a column, and how it is cast (S29)."""

from __future__ import annotations

import enum

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from trinitymerge.schema.field import Field
from trinitymerge.spark.expressions import (
    all_of,
    case,
    cast,
    declared_length,
    is_not_null,
    is_null,
    physical_type,
    sql_type,
    text_literal,
)
from trinitymerge.spark.sql_text import Sql

_INTEGRAL_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_INTEGRAL_ORDER: list[type[DataType]] = [ByteType, ShortType, IntegerType, LongType]
_DATETIME = (DateType, TimestampType, TimestampNTZType)


class CastPolicy(enum.Enum):
    """How a value gets into a column."""

    AS_IS = "as it is"
    WIDENED = "widened"
    CHECKED = "checked when the merge runs"
    REFUSED = "refused"


def cast_policy(value: DataType, field: Field) -> CastPolicy:
    """How a value of a type is stored in a column (S29).

    Args:
        value: the type of the expression.
        field: the column.

    Returns:
        The way; char and varchar columns always check the length of text.
    """
    target = physical_type(field)
    way = _storing(value, target)
    if declared_length(field) and way in (CastPolicy.AS_IS, CastPolicy.WIDENED) and not isinstance(value, NullType):
        return CastPolicy.CHECKED
    return way


def _storing(value: DataType, target: DataType) -> CastPolicy:
    if _same(value, target):
        return CastPolicy.AS_IS
    if widens(value, target):
        return CastPolicy.WIDENED
    return CastPolicy.CHECKED if _checkable(value, target) else CastPolicy.REFUSED


def widens(value: DataType, target: DataType) -> bool:
    """True if every value of a type fits another, so that a plain cast neither fails nor merges two values.

    Exceptions to the second half are text (any atomic value can be written as text) and null.
    """
    if isinstance(value, NullType) or _same(value, target):
        return True
    if isinstance(target, StringType):
        return _is_atomic(value)
    return widens_exactly(value, target) or _widens_nested(value, target)


def widens_exactly(value: DataType, target: DataType) -> bool:
    """True if a cast is injective: it keeps every value of an atomic type apart from every other one."""
    if _same(value, target):
        return True
    if type(value) in _INTEGRAL_ORDER and type(target) in _INTEGRAL_ORDER:
        return _INTEGRAL_ORDER.index(type(value)) <= _INTEGRAL_ORDER.index(type(target))
    if isinstance(target, DecimalType):
        if isinstance(value, DecimalType):
            return target.scale >= value.scale and target.precision - target.scale >= value.precision - value.scale
        return target.precision - target.scale >= _INTEGRAL_DIGITS.get(type(value), 99)
    if isinstance(target, DoubleType):
        return isinstance(value, (FloatType, ByteType, ShortType, IntegerType))
    if isinstance(target, FloatType):
        return isinstance(value, (ByteType, ShortType))
    return isinstance(value, DateType) and isinstance(target, (TimestampType, TimestampNTZType))


def _widens_nested(value: DataType, target: DataType) -> bool:
    if isinstance(value, ArrayType) and isinstance(target, ArrayType):
        return widens(value.elementType, target.elementType)
    if isinstance(value, MapType) and isinstance(target, MapType):
        return widens_exactly(value.keyType, target.keyType) and widens(value.valueType, target.valueType)
    if isinstance(value, StructType) and isinstance(target, StructType):
        return len(value.fields) == len(target.fields) and all(
            v.name.lower() == t.name.lower() and widens(v.dataType, t.dataType)
            for v, t in zip(value.fields, target.fields, strict=True)
        )
    return False


def _checkable(value: DataType, target: DataType) -> bool:
    if isinstance(value, NumericType) and isinstance(target, NumericType):
        return True
    if isinstance(value, _DATETIME) and isinstance(target, _DATETIME):
        return True
    if isinstance(value, DayTimeIntervalType) and isinstance(target, DayTimeIntervalType):
        return True
    return isinstance(value, StringType) and _is_atomic(target)


def rounds(value: DataType, target: DataType) -> bool:
    """True if storing a value that fits cuts off or rounds parts of it, so that it may become another one."""
    if isinstance(target, DateType):
        return isinstance(value, (TimestampType, TimestampNTZType))
    if isinstance(value, DayTimeIntervalType) and isinstance(target, DayTimeIntervalType):
        return value.endField > target.endField
    if not isinstance(value, NumericType) or not isinstance(target, NumericType):
        return False
    if isinstance(target, DecimalType) or type(target) in _INTEGRAL_ORDER:
        digits = target.scale if isinstance(target, DecimalType) else 0
        kept = value.scale <= digits if isinstance(value, DecimalType) else type(value) in _INTEGRAL_ORDER
        return not kept
    return not widens_exactly(value, target)


def _is_atomic(kind: DataType) -> bool:
    return not isinstance(kind, (ArrayType, MapType, StructType)) and kind.typeName() not in ("variant", "interval")


def _same(a: DataType, b: DataType) -> bool:
    """Equal but for nullability and metadata, which files do not keep."""
    if isinstance(a, ArrayType) and isinstance(b, ArrayType):
        return _same(a.elementType, b.elementType)
    if isinstance(a, MapType) and isinstance(b, MapType):
        return _same(a.keyType, b.keyType) and _same(a.valueType, b.valueType)
    if isinstance(a, StructType) and isinstance(b, StructType):
        return [f.name for f in a.fields] == [f.name for f in b.fields] and all(
            _same(x.dataType, y.dataType) for x, y in zip(a.fields, b.fields, strict=True)
        )
    return a == b


def cast_to_column(value: Sql, way: CastPolicy, field: Field, is_key: bool = False) -> Sql:
    """A value as it goes into a column, as SQL; null where a checked value does not fit.

    Args:
        value: SQL that names a column, or any other expression that is cheap to repeat.
        way: what :func:`cast_policy` said.
        field: the column it goes into.
        is_key: it is part of the primary key: blanks beyond the length of a varchar are not cut off, for the text was
            compared with them and would become another key.
    """
    if way is CastPolicy.AS_IS:
        return value
    if way is CastPolicy.WIDENED:
        return cast(value, physical_type(field))
    tried = Sql(f"try_cast({value} AS {sql_type(physical_type(field))})")
    length = declared_length(field)
    if length is None:
        return tried
    fixed, n = length
    fits = (Sql(f"length({tried}) <= {n}"), tried)
    if is_key and fixed == "varchar":
        return case([fits])
    fitting = case([fits, (Sql(f"length(rtrim({tried})) <= {n}"), Sql(f"substring({tried}, 1, {n})"))])
    return Sql(f"rpad({fitting}, {n}, ' ')") if fixed == "char" else fitting


def cast_failure(value: Sql, way: CastPolicy, field: Field, is_key: bool = False) -> Sql | None:
    """SQL that is null for a value that fits, else ``column<TAB>value``; None when every value fits by type.

    Rows are judged after the merge has written its staged batch, so that one bad value gives one clear error, with
    examples, instead of a failed Spark task.
    """
    if way is not CastPolicy.CHECKED:
        return None
    shown = Sql(
        f"concat({text_literal(field.name)}, decode(X'09', 'UTF-8'), substring(CAST({value} AS STRING), 1, 200))"
    )
    return case([(all_of([is_not_null(value), is_null(cast_to_column(value, way, field, is_key))]), shown)])
