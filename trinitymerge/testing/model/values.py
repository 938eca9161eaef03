"""Values as Spark stores and compares them, in plain Python (S3, S9, S15, S29)."""

from __future__ import annotations

import ast
import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import attrs

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field

_INTEGERS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?")
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?")


# The order of values ----------------------------------------------------------------------------------------


def order_key(value: Any) -> tuple[Any, ...]:
    """A key that sorts as Spark does (S3): null first, NaN last, ``-0.0`` as ``0.0``, strings by code point.

    Example:
        >>> sorted([2.0, None, float("nan"), 1.0], key=order_key)
        [None, 1.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, Mapping):
        return (1, *((order_key(key), order_key(held)) for key, held in value.items()))
    return (1, *map(order_key, value)) if isinstance(value, list) else (1, value)


def order_keys(values: Iterable[Any]) -> tuple[Any, ...]:
    """:func:`order_key` column by column, for composite keys and whole rows."""
    return tuple(order_key(value) for value in values)


# Store assignment (S29) -------------------------------------------------------------------------------------


def store(field: Field, value: Any, isKey: bool = False) -> Any:
    """The value as column ``field`` holds it, by Spark's ANSI store assignment (S29).

    Args:
        field: the column, or a value inside of one, such as ``address.city`` or ``tags.element``. Structs and maps are
            mappings, arrays lists.
        value: what an expression gave, or None.
        isKey: the column is part of the primary key: blanks beyond the length of a varchar are not cut off.

    Returns:
        The value in the column's Python type.

    Raises:
        SchemaMismatchError: null in a column that is not nullable, an overflow, text that does not parse, a
            type that cannot be stored in the column.

    Example:
        >>> store(Field("n", "byte"), "12"), store(Field("d", "decimal(4,1)"), Decimal("1.25"))
        (12, Decimal('1.3'))
    """
    if value is None:
        if field.nullable:
            return None
        raise SchemaMismatchError(
            f"Column '{field.name}' ({field.text}) is not nullable and would be null. Assign it a value.",
            column=field.name,
        )
    try:
        converted = _converter(field)(field, value)
        if isKey and str(field.type).startswith("varchar") and len(converted) < len(_text(value)):
            raise ValueError("a key keeps its trailing blanks, and they do not fit")
        return converted
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        raise SchemaMismatchError(
            f"Column '{field.name}' ({field.text}) cannot hold {value!r}: {error}. "
            "Cast it in the clause, or widen the column.",
            column=field.name,
            value=value,
        ) from error


def _converter(field: Field) -> Callable[[Field, Any], Any]:
    if not isinstance(field.type, str):
        return _CONVERTERS[field.type["type"]]
    base = field.type.partition("(")[0]
    if base in _INTEGERS:
        return _to_integer
    if base.startswith("interval") or base == "time":
        return _unchanged
    return _CONVERTERS[base]


def _to_integer(field: Field, value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?\d+", value.strip()):
            raise ValueError("the text is not a whole number")
        number = int(value)
    elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        number = int(value)  # cuts fractional digits, as Spark does
    else:
        raise TypeError(f"{type(value).__name__} is not a number")
    limit = 2 ** _INTEGERS[str(field.type)]
    if not -limit <= number < limit:
        raise OverflowError("the number is out of range")
    return number


def _to_float(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise TypeError(f"{type(value).__name__} is not a number")
    number = float(value)
    return number if field.type == "double" else float(struct.unpack("f", struct.pack("f", number))[0])


def _to_decimal(field: Field, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise TypeError(f"{type(value).__name__} is not a number")
    match = _DECIMAL.fullmatch(str(field.type))
    assert match is not None
    precision, scale = int(match[1]), int(match[2])
    with localcontext() as context:
        context.prec = 100
        try:
            exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            number = exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
        except InvalidOperation:
            raise ValueError("it is not a decimal number") from None
        if not number.is_finite() or abs(number) >= Decimal(10) ** (precision - scale):
            raise OverflowError("the number is out of range")
        return number


def _to_string(field: Field, value: Any) -> str:
    text = _text(value)
    match = _LENGTH.fullmatch(str(field.type))
    if match is None:
        return text
    length = int(match[2])
    if len(text) > length:
        if text[length:].strip(" "):
            raise ValueError(f"the text is longer than {length}")
        text = text[:length]
    return text.ljust(length) if match[1] == "char" else text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dt.datetime):
        whole = value.strftime("%Y-%m-%d %H:%M:%S")
        return whole + (f".{value.microsecond:06d}".rstrip("0") if value.microsecond else "")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _to_boolean(field: Field, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError("it is not a boolean")


def _to_binary(field: Field, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is not binary")


def _to_date(field: Field, value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    if isinstance(value, str):
        match = _DATE.fullmatch(value.strip())
        if match:
            return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
        raise ValueError("the text is not a date")
    raise TypeError(f"{type(value).__name__} is not a date")


def _to_timestamp(field: Field, value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, str):
        match = _TIMESTAMP.fullmatch(value.strip())
        if match:
            year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
            return dt.datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")))
    return dt.datetime.combine(_to_date(field, value), dt.time())


def _to_struct(field: Field, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is not a mapping of fields")
    parts = (Field(f["name"], f["type"], f.get("nullable", True)) for f in field.type["fields"])
    return {part.name: _store_inside(field, part, value.get(part.name)) for part in parts}


def _to_array(field: Field, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{type(value).__name__} is not a list")
    part = Field("element", field.type["elementType"], field.type.get("containsNull", True))
    return [_store_inside(field, part, item) for item in value]


def _to_map(field: Field, value: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is not a mapping")
    key = Field("key", field.type["keyType"], nullable=False)
    part = Field("value", field.type["valueType"], field.type.get("valueContainsNull", True))
    return {_store_inside(field, key, k): _store_inside(field, part, v) for k, v in value.items()}


def _store_inside(field: Field, part: Field, value: Any) -> Any:
    return store(attrs.evolve(part, name=f"{field.name}.{part.name}"), value)


def _unchanged(field: Field, value: Any) -> Any:
    return value


_CONVERTERS: dict[str, Callable[[Field, Any], Any]] = {
    "float": _to_float,
    "double": _to_float,
    "decimal": _to_decimal,
    "string": _to_string,
    "char": _to_string,
    "varchar": _to_string,
    "boolean": _to_boolean,
    "binary": _to_binary,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp,
    "struct": _to_struct,
    "array": _to_array,
    "map": _to_map,
}


# Fill-in values ---------------------------------------------------------------------------------------------


def zero(field: Field) -> Any:
    """The zero value of a column that a tombstone row must fill and knows nothing about (S9)."""
    if not isinstance(field.type, str):
        fields = field.type.get("fields", ())
        return [] if field.type["type"] == "array" else {f["name"]: zero(Field(f["name"], f["type"])) for f in fields}
    base = field.type.partition("(")[0]
    if base.startswith("interval"):
        return dt.timedelta()
    filled = {"boolean": False, "date": dt.date(1970, 1, 1), "binary": b"", "time": dt.time()}
    if base in ("timestamp", "timestamp_ntz"):
        return dt.datetime(1970, 1, 1)
    return filled[base] if base in filled else store(field, "" if field.is_string else 0)


def is_tombstone(definition: TableDefinition, value: Any) -> bool:
    """True if this value of the tombstone column says "deleted" (S4)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return value is True
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        field = definition.field(definition.tombstone_column)
        return value is not None and bool(value == store(field, definition.tombstoneStringValue))
    return value is not None


def tombstone_value(definition: TableDefinition, commit_time: dt.datetime) -> Any:
    """What the library writes into the tombstone column of a deleted row (S9)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return True
    field = definition.field(definition.tombstone_column)
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return store(field, definition.tombstoneStringValue)
    base = str(field.type).partition("(")[0]
    if field.is_string:
        length = _LENGTH.fullmatch(str(field.type))
        return store(field, "true"[: int(length[2])] if length else "true")
    if base in ("date", "timestamp", "timestamp_ntz"):
        return store(field, commit_time)
    if base in (*_INTEGERS, "float", "double", "decimal"):
        fits_one = not (match := _DECIMAL.fullmatch(str(field.type))) or int(match[1]) > int(match[2])
        return store(field, 1 if fits_one else 0)
    return zero(field)


def default_value(field: Field) -> Any:
    """What an insert puts into a column that it says nothing of (S46): of SQL this knows numbers, text and the like, no calls.

    Example:
        >>> default_value(Field("a", "long", default="-5")), default_value(Field("b", "string", default="'x'"))
        (-5, 'x')
    """
    words = {"TRUE": True, "FALSE": False, "NULL": None}
    text = "NULL" if field.default is None else field.default
    return words[text.upper()] if text.upper() in words else ast.literal_eval(text)


def alive_value(definition: TableDefinition) -> Any:
    """What ``updateAll`` and ``insertAll`` write when the source has no tombstone column (S22)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return False
    field = definition.field(definition.tombstone_column)
    return None if field.nullable else store(field, "")
