"""The fields of what a log holds: how each is converted, checked, and called in JSON.

Owns: converters and validators for the frozen data of ``entries.py``, and the way between attributes and JSON. Fields that
are not known here, those of newer libraries, are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

_BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_HEX = re.compile(r"[0-9a-f]+")
_LARGEST = 2**63 - 1
LAST_MS = 253_402_300_799_999
"""The last moment that a commit can be of: the end of the year 9999."""

# Values -----------------------------------------------------------------------------------------------------


def as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """A converter: a tuple of what is iterable."""
    return tuple(value)


def tuple_or_none(value: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """A converter: the same, and None stays."""
    return None if value is None else tuple(value)


def tuples(value: Iterable[Iterable[Any]]) -> tuple[tuple[Any, ...], ...]:
    """A converter: a tuple of tuples."""
    return tuple(map(tuple, value))


def tuples_or_none(value: Iterable[Iterable[Any]] | None) -> tuple[tuple[Any, ...], ...] | None:
    """A converter: the same, and None stays."""
    return None if value is None else tuples(value)


def check_batch_id(_batch: object, _field: object, value: Any) -> None:
    """A validator: the name of a batch's directory, which cannot lead out of the table's."""
    if not isinstance(value, str) or not _BATCH_ID.fullmatch(value):
        raise ValueError(f"batch id {value!r} is not made of letters, digits, '_' and '-' only")


def check_count(_instance: object, field: Any, value: Any) -> None:
    """A validator: a whole number from 0 up that Spark's BIGINT can hold."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{field.name} is {value!r}, which is not a whole number from 0 up")


def check_moment(_instance: object, field: Any, value: Any) -> None:
    """A validator: milliseconds since the epoch that a timestamp can say."""
    check_count(_instance, field, value)
    if value > LAST_MS:
        raise ValueError(f"{field.name} is {value!r}, which is after the year 9999")


def check_transaction(_commit: object, _field: object, value: tuple[Any, ...] | None) -> None:
    """A validator: the name of an application and a version, or None."""
    if value is not None and [type(part) for part in value] != [str, int]:
        raise ValueError(f"transaction is {value!r}, which is not the name of an application and a version")


def check_resets_horizon(commit: Any, _field: object, value: Any) -> None:
    """A validator: true or false, and not true where a horizon is set."""
    if not isinstance(value, bool):
        raise ValueError(f"resetsHorizon is {value!r}, which is neither true nor false")
    if value and commit.horizon is not None:
        raise ValueError(f"the horizon is both reset and set to {list(commit.horizon)}")


def check_stream(commit: Any, _field: object, value: Any) -> None:
    """A validator: the id of a streaming query, beside a transaction, or None."""
    if value is not None and (not isinstance(value, str) or commit.transaction is None):
        raise ValueError(f"stream is {value!r}, which is not the id of a streaming query beside a transaction")


def check_scalars(_instance: object, field: Any, value: Any) -> None:
    """A validator: kept values, each text, a whole number or null; or several rows of them; or None."""
    for one in value or ():
        if isinstance(one, tuple):
            check_scalars(_instance, field, one)
        elif one is not None and type(one) not in (str, int):
            raise ValueError(f"{field.name} holds {one!r}, which is neither text nor a whole number")


def is_a(kind: type) -> Any:
    """A validator: an instance of a class."""
    return attrs.validators.instance_of(kind)


def is_a_or_none(kind: type) -> Any:
    """A validator: the same, or None."""
    return attrs.validators.optional(attrs.validators.instance_of(kind))


def count_field() -> Any:
    """A field that holds a whole number from 0 up."""
    return attrs.field(validator=check_count)


def check_ids(_commit: object, field: Any, value: Any) -> None:
    """A validator: ids of batches, or None."""
    for one in value or ():
        check_batch_id(_commit, field, one)


def check_hex(_purged: object, field: Any, value: Any) -> None:
    """A validator: hexadecimal digits."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{field.name} holds {value!r}, which is not made of hexadecimal digits")


# JSON -------------------------------------------------------------------------------------------------------


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def json_names(cls: type, **renamed: str) -> dict[str, str]:
    """What the attributes of a class are called in JSON: in camel case, but for those renamed. ``extra`` has no name."""
    names = [a.name for a in attrs.fields(cls) if a.name != "extra"]
    return {name: renamed.get(name, _camel(name)) for name in names}


def to_json_object(instance: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """An instance's attributes under their names in JSON, beside the fields of newer libraries."""
    values = {key: getattr(instance, name) for name, key in names.items()}
    return {**getattr(instance, "extra", {}), **values}


def from_json_object(data: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The attributes that an object of JSON holds; fields that have no name here go to ``extra``.

    Raises:
        ValueError: it is no object.
    """
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, found {type(data).__name__}")
    values = {name: data[key] for name, key in names.items() if key in data}
    known = set(names.values())
    return {**values, "extra": {key: value for key, value in data.items() if key not in known}}
