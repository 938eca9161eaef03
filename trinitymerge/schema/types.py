"""Types in Spark's JSON form, and which types are wider than others (S43, S44)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

INTEGRAL = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Decimal digits of the integral types."""

Path = tuple[str, ...]
"""To a value inside of a column: names of struct fields, and ``element``, ``key`` or ``value`` in arrays and maps."""

_WIDER = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float"), "timestamp_ntz": ("date",)}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)\Z")
_TEXT = re.compile(r"string\Z|(?:var)?char\(\d+\)\Z")
_VARCHAR = re.compile(r"varchar\((\d+)\)\Z")
_MAX_DECIMAL_DIGITS = 38
_STEPS = {"elementType": "element", "keyType": "key", "valueType": "value"}


# Atomic types ---------------------------------------------------------------------------------------------------------


def is_wider(kind: Any, than: Any) -> bool:
    """Return True if a cast from ``than`` to ``kind`` keeps every value, and keeps different values different.

    Example:
        >>> is_wider("long", "integer"), is_wider("integer", "long"), is_wider("decimal(12,2)", "decimal(10,2)")
        (True, False, True)
    """
    if kind == than or not isinstance(kind, str) or not isinstance(than, str):
        return False
    if kind in INTEGRAL:
        return INTEGRAL.get(than, 99) < INTEGRAL[kind]
    if _DECIMAL.match(kind):
        return all(wide >= narrow for wide, narrow in zip(_digits(kind), _digits(than), strict=True))
    return than in _WIDER.get(kind, ())


def is_longer(kind: Any, than: Any) -> bool:
    """Return True if ``kind`` is a string type that allows longer text than ``than``; files store both alike."""
    short, long = (_VARCHAR.match(k) if isinstance(k, str) else None for k in (than, kind))
    return short is not None and (kind == "string" or (long is not None and int(long[1]) > int(short[1])))


def _digits(kind: str) -> tuple[int, int]:
    """Return the digits before and after the decimal point."""
    decimal = _DECIMAL.match(kind)
    if decimal:
        return int(decimal[1]) - int(decimal[2]), int(decimal[2])
    return INTEGRAL.get(kind, _MAX_DECIMAL_DIGITS + 1), 0


# Nested types ---------------------------------------------------------------------------------------------------------


def parts(kind: Any) -> list[tuple[str, Any]]:
    """Return the types directly inside of a type, with the path step to each; none for an atomic type."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return [(f["name"], f["type"]) for f in kind["fields"]]
    return [(step, kind[part]) for part, step in _STEPS.items() if part in kind]


def with_parts(kind: Any, new: Callable[[str, Any], Any]) -> Any:
    """Return a type whose inner types are replaced; ``new`` takes the path step to one, and its type."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [{**f, "type": new(f["name"], f["type"])} for f in kind["fields"]]}
    return {**kind, **{part: new(step, kind[part]) for part, step in _STEPS.items() if part in kind}}


def leaves(kind: Any) -> Iterator[Any]:
    if isinstance(kind, str):
        yield kind
    for _, part in parts(kind):
        yield from leaves(part)


def contains(kind: Any, other: Any) -> bool:
    """Return True if a type equals another one, or has more struct fields."""
    if isinstance(kind, str) or isinstance(other, str) or kind["type"] != other["type"]:
        return bool(kind == other)
    own = dict(parts(kind))
    return all(step in own and contains(own[step], part) for step, part in parts(other))


def common(own: Any, other: Any) -> Any:
    """Return the type with the fields of ``own`` that holds the values of both; ``double`` where no exact number type does.

    Example:
        >>> common("integer", "long"), common("decimal(5,2)", "long"), common("long", "double")
        ('long', 'decimal(21,2)', 'double')
    """
    if not isinstance(own, str) and not isinstance(other, str):
        theirs = dict(parts(other))
        return with_parts(own, lambda step, part: common(part, theirs.get(step, part)))
    for wide, narrow in ((own, other), (other, own)):
        if wide == narrow or is_wider(wide, narrow) or is_longer(wide, narrow):
            return wide
    whole, scale = map(max, _digits(own), _digits(other))
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MAX_DECIMAL_DIGITS else "double"


def combined(own: Any, other: Any, at: Path = ()) -> tuple[Any, tuple[Path, ...]]:
    """Return the wider of two types, with the struct fields of both, and the paths of those that ``own`` does not have.

    The table's type, ``own``, is kept where neither type is wider.

    Example:
        >>> combined("integer", "long"), combined("long", "integer"), combined("string", "integer")
        (('long', ()), ('long', ()), ('string', ()))
    """
    if isinstance(own, str) or isinstance(other, str) or own["type"] != other["type"]:
        return (other if is_wider(other, own) else own), ()
    theirs, added = {step.lower(): part for step, part in parts(other)}, list[Path]()

    def new(step: str, part: Any) -> Any:
        if step == "key" and own["type"] == "map":
            return part
        kind, paths = combined(part, theirs.get(step.lower(), part), (*at, step))
        added.extend(paths)
        return kind

    found = with_parts(own, new)
    if own["type"] == "struct":
        known = {step.lower() for step, _ in parts(own)}
        new_fields = {f["name"].lower(): {**f, "nullable": True} for f in other["fields"]}
        more = [f for name, f in new_fields.items() if name not in known]
        found["fields"] += more
        added += [(*at, f["name"]) for f in more]
    return found, tuple(added)


def shaped(old: Any, new: Any) -> Any:
    """Return the fields of ``new``, each with its type in ``old`` if it has one there: the input type of the cast to ``new``."""
    if isinstance(old, str) or isinstance(new, str):
        return old
    known = dict(parts(old))
    return with_parts(new, lambda step, part: shaped(known.get(step, part), part))


def agree(kind: Any, other: Any) -> bool:
    """Return True if a file with values of one type can be read as the other: their shared parts are the same.

    Example:
        >>> agree("varchar(3)", "string"), agree("integer", "long")
        (True, False)
    """
    if isinstance(kind, str) or isinstance(other, str):
        return kind == other or all(isinstance(k, str) and _TEXT.match(k) is not None for k in (kind, other))
    theirs = dict(parts(other))
    shared = ((part, theirs[step]) for step, part in parts(kind) if step in theirs)
    return kind["type"] == other["type"] and all(agree(part, their) for part, their in shared)


def with_names(kind: Any, names: Mapping[Path, str], at: Path = ()) -> Any:
    found = with_parts(kind, lambda step, part: with_names(part, names, (*at, step)))
    if not isinstance(kind, str) and kind["type"] == "struct":
        found["fields"] = [{**f, "name": names.get((*at, f["name"]), f["name"])} for f in found["fields"]]
    return found


def with_names_of(kind: Any, other: Any) -> Any:
    """Return a type with the field names of another one that has as many fields."""
    others = iter(parts(other))
    found = with_parts(kind, lambda _, part: with_names_of(part, next(others)[1]))
    if not isinstance(kind, str) and kind["type"] == "struct":
        pairs = zip(found["fields"], other["fields"], strict=True)
        found["fields"] = [{**f, "name": o["name"]} for f, o in pairs]
    return found
