"""Store assignment: which values a column can store, and how they are cast (S29)."""

from __future__ import annotations

import enum

from pyspark.sql import types as T

from trinitymerge.schema.field import Field
from trinitymerge.schema.types import is_wider
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_CHECKED_WITHIN = (T.NumericType, T.DayTimeIntervalType, (T.DateType, T.TimestampType, T.TimestampNTZType))


class CastPolicy(enum.Enum):
    AS_IS = "as it is"
    WIDENED = "widened"
    CHECKED = "checked when the merge runs"
    EXACT = "checked when the merge runs, and must cast back to the same value"
    REFUSED = "refused"

    @property
    def may_fail(self) -> bool:
        return self in (CastPolicy.CHECKED, CastPolicy.EXACT)


def cast_policy(value: T.DataType, field: Field) -> CastPolicy:
    """Return how a column stores values of a type (S29); char and varchar columns always check the length."""
    target = E.physical_type(field)
    if isinstance(value, T.NullType) or widens(value, target):
        if E.declared_length(field) and not isinstance(value, T.NullType):
            return CastPolicy.CHECKED
        return CastPolicy.AS_IS if _same(value, target) else CastPolicy.WIDENED
    is_checked = any(isinstance(value, kinds) and isinstance(target, kinds) for kinds in _CHECKED_WITHIN)
    is_parsed = isinstance(value, T.StringType) and _is_atomic(target)
    return CastPolicy.CHECKED if is_checked or is_parsed else CastPolicy.REFUSED


def key_policy(value: T.DataType, field: Field) -> CastPolicy:
    """Return how a key column takes values that it is compared with: a cast to its type loses nothing (S17a)."""
    way = cast_policy(value, field)
    is_local = isinstance(value, T.TimestampType) and way is CastPolicy.WIDENED  # two instants can have one local time
    differs = way is CastPolicy.CHECKED and not _same(value, E.physical_type(field))
    return CastPolicy.EXACT if is_local or differs else way


def widens(value: T.DataType, target: T.DataType) -> bool:
    """Return True if a plain cast never fails and keeps different values different; except for null, and casts to text."""
    if isinstance(value, T.NullType) or widens_exactly(value, target):
        return True
    if isinstance(target, T.StringType):
        return _is_atomic(value)
    if isinstance(value, T.ArrayType) and isinstance(target, T.ArrayType):
        return widens(value.elementType, target.elementType)
    if isinstance(value, T.MapType) and isinstance(target, T.MapType):
        is_empty = isinstance(value.keyType, T.NullType)  # the type of map(): no key is null
        return (is_empty or widens_exactly(value.keyType, target.keyType)) and widens(value.valueType, target.valueType)
    if isinstance(value, T.StructType) and isinstance(target, T.StructType):
        return len(value.fields) == len(target.fields) and all(
            v.name.lower() == t.name.lower() and widens(v.dataType, t.dataType)
            for v, t in zip(value.fields, target.fields, strict=True)
        )
    return False


def widens_exactly(value: T.DataType, target: T.DataType) -> bool:
    """Return True if a cast is injective: it keeps different values different."""
    if isinstance(value, T.DateType) and isinstance(target, T.TimestampType):
        return True
    return _same(value, target) or is_wider(target.jsonValue(), value.jsonValue())


def rounds(value: T.DataType, target: T.DataType) -> bool:
    """Return True if a cast that succeeds may round or truncate."""
    if isinstance(target, T.DateType):
        return isinstance(value, (T.TimestampType, T.TimestampNTZType))
    if isinstance(value, T.DayTimeIntervalType) and isinstance(target, T.DayTimeIntervalType):
        return value.endField > target.endField
    if not isinstance(value, T.NumericType) or not isinstance(target, T.NumericType):
        return False
    if isinstance(target, (T.DecimalType, T.IntegralType)):
        digits = target.scale if isinstance(target, T.DecimalType) else 0
        return value.scale > digits if isinstance(value, T.DecimalType) else not isinstance(value, T.IntegralType)
    return not widens_exactly(value, target)


def _is_atomic(kind: T.DataType) -> bool:
    is_nested = isinstance(kind, (T.ArrayType, T.MapType, T.StructType))
    return not is_nested and kind.typeName() not in ("variant", "interval")


def _same(a: T.DataType, b: T.DataType) -> bool:
    """Return True if types are equal except for nullability and metadata, which files do not keep."""
    return E.sql_type(a) == E.sql_type(b)


def cast_to_column(
    value: Sql, way: CastPolicy, field: Field, is_key: bool = False, kind: T.DataType | None = None
) -> Sql:
    """Return a value as a column stores it, as SQL; null where a checked value does not fit.

    ``value`` is cheap to repeat; its ``kind`` is needed if it must cast back (:attr:`CastPolicy.EXACT`). Trailing blanks beyond
    the length of a varchar are not cut off in a key: the keys were compared with them.
    """
    if way is CastPolicy.EXACT:
        assert kind is not None
        stored = cast_to_column(value, CastPolicy.CHECKED, field, is_key)
        return E.case([(E.same(Sql(f"try_cast({stored} AS {E.sql_type(kind)})"), value), stored)])
    if way is CastPolicy.AS_IS:
        return value
    if way is CastPolicy.WIDENED:
        return E.cast(value, E.physical_type(field))
    tried = Sql(f"try_cast({value} AS {E.sql_type(E.physical_type(field))})")
    length = E.declared_length(field)
    if length is None:
        return tried
    fixed, n = length
    fits = (Sql(f"length({tried}) <= {n}"), tried)
    if is_key and fixed == "varchar":
        return E.case([fits])
    fitting = E.case([fits, (Sql(f"length(rtrim({tried})) <= {n}"), Sql(f"substring({tried}, 1, {n})"))])
    return Sql(f"rpad({fitting}, {n}, ' ')") if fixed == "char" else fitting


def cast_failure(
    value: Sql, way: CastPolicy, field: Field, is_key: bool = False, kind: T.DataType | None = None
) -> Sql | None:
    """Return SQL that is ``column<TAB>value`` for a value that does not fit, else null; None if every value fits by type.

    If the value must cast back (:attr:`CastPolicy.EXACT`), ``<NUL>type`` follows.
    The staged batch stores it, so that bad values raise one error with examples instead of failing a Spark task.
    """
    if not way.may_fail:
        return None
    parts = [E.text_literal(field.name), "decode(X'09', 'UTF-8')", f"substring(CAST({value} AS STRING), 1, 200)"]
    if way is CastPolicy.EXACT and kind is not None:
        parts += ["decode(X'00', 'UTF-8')", E.text_literal(kind.simpleString())]
    is_misfit = E.all_of([E.is_not_null(value), E.is_null(cast_to_column(value, way, field, is_key, kind))])
    return E.case([(is_misfit, Sql(f"concat({', '.join(parts)})"))])
