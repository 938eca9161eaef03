"""Frozen classes to JSON and back, and the validators of their attributes (S33)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs

T = TypeVar("T")

LAST_MS = 253_402_300_799_999
"""The last moment of the year 9999, the largest that a timestamp can hold, in milliseconds since the epoch."""

_BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_HEX = re.compile(r"[0-9a-f]+")
_LARGEST = 2**63 - 1
_KIND = "kind"
_EXTRA = "extra"


def as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(value)


def tuple_or_none(value: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)


def tuples(value: Iterable[Iterable[Any]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, value))


def check_batch_id(_instance: object, _field: object, value: Any) -> None:
    """Require the name of a batch directory, which cannot lead out of the table's directory."""
    if not isinstance(value, str) or not _BATCH_ID.fullmatch(value):
        raise ValueError(f"batch id {value!r} is not made of letters, digits, '_' and '-' only")


def check_ids(_instance: object, field: Any, value: Iterable[Any]) -> None:
    for one in value:
        check_batch_id(_instance, field, one)


def check_count(_instance: object, field: Any, value: Any) -> None:
    """Require a whole number from 0 up that fits a BIGINT."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{field.name} is {value!r}, which is not a whole number from 0 up")


def check_moment(_instance: object, field: Any, value: Any) -> None:
    check_count(_instance, field, value)
    if value > LAST_MS:
        raise ValueError(f"{field.name} is {value!r}, which is after the year 9999")


def check_scalars(_instance: object, field: Any, value: Any) -> None:
    """Require text, whole numbers and nulls, in a tuple, in tuples of a tuple, or None."""
    for one in value or ():
        if isinstance(one, tuple):
            check_scalars(_instance, field, one)
        elif one is not None and type(one) not in (str, int):
            raise ValueError(f"{field.name} holds {one!r}, which is neither text nor a whole number")


def check_hex(_instance: object, field: Any, value: Any) -> None:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{field.name} holds {value!r}, which is not made of hexadecimal digits")


class NewerLibraryError(ValueError):
    """The log holds something that this library does not know and must not ignore."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}, which this version of trinitymerge does not know")


def one_of(*known: str) -> Any:
    """Return a validator that requires one of these texts, or None. Another text is one of a newer library."""

    def check(_instance: object, field: Any, value: Any) -> None:
        if value is not None and type(value) is not str:
            raise ValueError(f"{field.name} is {value!r}, which is not text")
        if value is not None and value not in known:
            raise NewerLibraryError(f"{field.name} is '{value}'")

    return check


def is_a(kind: type) -> Any:
    return attrs.validators.instance_of(kind)


def is_a_or_none(kind: type) -> Any:
    return attrs.validators.optional(attrs.validators.instance_of(kind))


def count_field(**options: Any) -> Any:
    return attrs.field(validator=check_count, **options)


def nested(kind: type) -> dict[str, type]:
    """Return the metadata of an attribute whose value, or each of whose values, has ``to_json``, with the class to read it by."""
    return {_KIND: kind}


def each_a(kind: type) -> Any:
    return attrs.validators.deep_iterable(is_a(kind))


def camel(name: str) -> str:
    """Return the JSON name of an attribute: ``rows_read`` is ``rowsRead``."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def encode(instance: Any) -> dict[str, Any]:
    """Return the attributes in camel case, without defaults, beside those in ``extra``, which newer libraries have written."""
    data = dict(getattr(instance, _EXTRA, {}))
    for field in attrs.fields(type(instance)):
        value = getattr(instance, field.name)
        if field.name != _EXTRA and (field.default is attrs.NOTHING or value != _default(field)):
            data[camel(field.name)] = _encoded(value, _KIND in field.metadata)
    return data


def _encoded(value: Any, is_nested: bool) -> Any:
    if isinstance(value, tuple):
        return [_encoded(one, is_nested) for one in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_json() if is_nested and value is not None else value


def _default(field: Any) -> Any:
    return field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]


def decode(kind: type[T], data: Any) -> T:
    """Return the inverse of :func:`encode`. Unknown fields go to ``extra``, or are dropped if the class has none."""
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, found {type(data).__name__}")
    fields = {camel(f.name): f for f in attrs.fields(kind) if f.name != _EXTRA}  # type: ignore[arg-type]
    values: dict[str, Any] = {f.name: _decoded(data[n], f.metadata.get(_KIND)) for n, f in fields.items() if n in data}
    missing = [n for n, f in fields.items() if f.default is attrs.NOTHING and f.name not in values]
    if missing:
        raise ValueError(f"'{missing[0]}' is missing")
    if hasattr(attrs.fields(kind), _EXTRA):  # type: ignore[arg-type]
        values[_EXTRA] = {n: value for n, value in data.items() if n not in fields}
    return kind(**values)


def _decoded(value: Any, kind: Any) -> Any:
    if kind is None or value is None:
        return value
    return tuple(map(kind.from_json, value)) if isinstance(value, list) else kind.from_json(value)
