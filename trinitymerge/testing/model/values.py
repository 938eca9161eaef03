"""Values as Spark stores and compares them, in plain Python (S3, S4, S9, S15, S29)."""

from __future__ import annotations

import ast
import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, TypeAlias

import attrs

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[Any, ...]

_INTEGERS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?")
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?")


def order_key(value: Any) -> tuple[Any, ...]:
    """Return a key that sorts as Spark does (S3): null first, NaN last, ``-0.0`` as ``0.0``, strings by code point.

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
    return tuple(map(order_key, values))


# Store assignment (S29) -------------------------------------------------------------------------------------


def store(field: Field, value: Any, isKey: bool = False) -> Any:
    """Return the value as column ``field`` holds it, by Spark's ANSI store assignment (S29).

    Structs and maps are mappings, arrays are lists. A varchar keeps its trailing blanks in a key.

    Example:
        >>> store(Field("n", "byte"), "12"), store(Field("d", "decimal(4,1)"), Decimal("1.25"))
        (12, Decimal('1.3'))
    """
    if value is None and field.nullable:
        return None
    try:
        if value is None:
            raise ValueError
        stored = _converter(field)(field, value)
        if isKey and str(field.type).startswith("varchar") and len(stored) < len(_text(value)):
            raise ValueError
        return stored
    except SchemaMismatchError:
        raise  # of a value inside of the column
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        problem = f"Column '{field.name}' ({field.text}) cannot hold {value!r} (S29)."
        raise SchemaMismatchError(problem, column=field.name, value=value) from error


def key_value(field: Field, value: Any) -> Any:
    """Return a source's value as a key column holds it, if a cast back gives the same value (S17a).

    Example:
        >>> key_value(Field("k", "string"), 1), key_value(Field("k", "integer"), "1")
        ('1', 1)
        >>> key_value(Field("k", "integer"), "01")
        Traceback (most recent call last):
        trinitymerge.errors.SchemaMismatchError: Column 'k' (int) cannot hold '01' as a key (S17a).
    """
    stored = back = store(field, value, isKey=True)
    if isinstance(value, str):
        back = value if field.is_string else _text(stored)
    elif field.is_string:
        back = value
    elif isinstance(value, float):
        back = float(stored)
    elif isinstance(value, dt.date) and isinstance(stored, dt.date):
        back = stored.date() if isinstance(stored, dt.datetime) and not isinstance(value, dt.datetime) else stored
        is_day = isinstance(value, dt.datetime) and not isinstance(stored, dt.datetime)
        back = dt.datetime.combine(back, dt.time()) if is_day else back
    if back != value:
        problem = f"Column '{field.name}' ({field.text}) cannot hold {value!r} as a key (S17a)."
        raise SchemaMismatchError(problem, column=field.name, value=value)
    return stored


def _converter(field: Field) -> Callable[[Field, Any], Any]:
    base = field.type.partition("(")[0] if isinstance(field.type, str) else field.type["type"]
    return (lambda _, value: value) if base.startswith("interval") or base == "time" else _CONVERTERS[base]


def _to_integer(field: Field, value: Any) -> int:
    is_text = isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value)
    if not is_text and (isinstance(value, bool) or not isinstance(value, (int, float, Decimal))):
        raise ValueError
    number, limit = int(value), 2 ** _INTEGERS[str(field.type)]  # int() cuts fractional digits, as Spark does
    if not -limit <= number < limit:
        raise OverflowError
    return number


def _to_float(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError
    number = float(value)
    return number if field.type == "double" else float(struct.unpack("f", struct.pack("f", number))[0])


def _to_decimal(field: Field, value: Any) -> Decimal:
    match = _DECIMAL.fullmatch(str(field.type))
    if match is None or isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError
    precision, scale = int(match[1]), int(match[2])
    with localcontext() as context:
        context.prec = 100
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        number = exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
        if not number.is_finite() or abs(number) >= Decimal(10) ** (precision - scale):
            raise OverflowError
        return number


def _to_string(field: Field, value: Any) -> str:
    text, match = _text(value), _LENGTH.fullmatch(str(field.type))
    if match is None:
        return text
    length = int(match[2])
    if text[length:].strip(" "):
        raise ValueError
    return text[:length].ljust(length) if match[1] == "char" else text[:length]


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
    text = _text(value).strip().lower() if isinstance(value, (bool, str)) else None
    if text not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[text]


def _to_binary(field: Field, value: Any) -> bytes:
    if not isinstance(value, (str, bytes, bytearray)):
        raise ValueError
    return value.encode() if isinstance(value, str) else bytes(value)


def _to_date(field: Field, value: Any) -> dt.date:
    if isinstance(value, dt.date):
        return value.date() if isinstance(value, dt.datetime) else value
    match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def _to_timestamp(field: Field, value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    match = _TIMESTAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return dt.datetime.combine(_to_date(field, value), dt.time())
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    return dt.datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")))


def _to_struct(field: Field, value: Mapping[str, Any]) -> dict[str, Any]:
    parts = (Field(f["name"], f["type"], f.get("nullable", True)) for f in field.type["fields"])
    return {part.name: _store_inside(field, part, dict(value).get(part.name)) for part in parts}


def _to_array(field: Field, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    part = Field("element", field.type["elementType"], field.type.get("containsNull", True))
    return [_store_inside(field, part, item) for item in value]


def _to_map(field: Field, value: Mapping[Any, Any]) -> dict[Any, Any]:
    key = Field("key", field.type["keyType"], nullable=False)
    part = Field("value", field.type["valueType"], field.type.get("valueContainsNull", True))
    return {_store_inside(field, key, k): _store_inside(field, part, v) for k, v in dict(value).items()}


def _store_inside(field: Field, part: Field, value: Any) -> Any:
    return store(attrs.evolve(part, name=f"{field.name}.{part.name}"), value)


_CONVERTERS: dict[str, Callable[[Field, Any], Any]] = {
    **dict.fromkeys(_INTEGERS, _to_integer),
    **dict.fromkeys(("float", "double"), _to_float),
    **dict.fromkeys(("string", "char", "varchar"), _to_string),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), _to_timestamp),
    "decimal": _to_decimal,
    "boolean": _to_boolean,
    "binary": _to_binary,
    "date": _to_date,
    "struct": _to_struct,
    "array": _to_array,
    "map": _to_map,
}

# Values that the library writes -----------------------------------------------------------------------------


def zero(field: Field) -> Any:
    """Return the value of a column that is not nullable in a tombstone that does not hold it (S9)."""
    if not isinstance(field.type, str):
        fields = field.type.get("fields", ())
        return [] if field.type["type"] == "array" else {f["name"]: zero(Field(f["name"], f["type"])) for f in fields}
    base = field.type.partition("(")[0]
    if base.startswith("interval"):
        return dt.timedelta()
    if base == "time":
        return dt.time()
    return store(field, "" if field.is_string or base == "binary" else _ZEROS.get(base, 0))


_ZEROS = {"boolean": False, **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), dt.date(1970, 1, 1))}


def is_tombstone(definition: TableDefinition, value: Any) -> bool:
    """Return whether this value of the tombstone column marks a tombstone (S4)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return value is True
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        field = definition.field(definition.tombstone_column)
        return value is not None and bool(value == store(field, definition.tombstoneStringValue))
    return value is not None


def tombstone_value(definition: TableDefinition, commit_time: dt.datetime) -> Any:
    """Return what the library writes into the tombstone column of a deleted row (S9)."""
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


def alive_value(definition: TableDefinition) -> Any:
    """Return the tombstone column's value in a live row whose source has no such column (S22)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return False
    field = definition.field(definition.tombstone_column)
    return None if field.nullable else store(field, "")


def default_value(field: Field) -> Any:
    """Return the column's default (S46). Of SQL, only literals of numbers, text, booleans and null are read.

    Example:
        >>> default_value(Field("a", "long", default="-5")), default_value(Field("b", "string", default="'x'"))
        (-5, 'x')
    """
    words = {"TRUE": True, "FALSE": False, "NULL": None}
    text = "NULL" if field.default is None else field.default
    return words[text.upper()] if text.upper() in words else ast.literal_eval(text)
