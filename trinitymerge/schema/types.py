"""Types in Spark's JSON form, and which types are wider than others (S43, S44)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

INTEGRAL = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Digits of whole numbers."""
_WIDER = {
    ("float", "double"),
    ("byte", "float"),
    ("short", "float"),
    ("byte", "double"),
    ("short", "double"),
    ("integer", "double"),
    ("date", "timestamp_ntz"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)\Z")
_TEXT = re.compile(r"string\Z|(?:var)?char\(\d+\)\Z")
_VARCHAR = re.compile(r"varchar\((\d+)\)\Z")

_MOST_DIGITS = 38
"""Of decimals."""

Path = tuple[str, ...]
"""To a field inside of a column: names of struct fields, and ``element``, ``key`` or ``value`` in arrays and maps."""

_STEPS = {"elementType": "element", "keyType": "key", "valueType": "value"}


# Types ----------------------------------------------------------------------------------------------------------------


def is_wider(kind: Any, than: Any) -> bool:
    """True if every value of a type is one of another, and stays apart from all others there. Types are in Spark's JSON form.

    Example:
        >>> is_wider("long", "integer"), is_wider("integer", "long"), is_wider("decimal(12,2)", "decimal(10,2)")
        (True, False, True)
    """
    if kind == than or not isinstance(kind, str) or not isinstance(than, str):
        return False
    if kind in INTEGRAL and than in INTEGRAL:
        return INTEGRAL[kind] > INTEGRAL[than]
    wide, narrow = _DECIMAL.match(kind), _DECIMAL.match(than)
    if wide:
        whole = int(wide[1]) - int(wide[2])
        if narrow:
            return int(wide[2]) >= int(narrow[2]) and whole >= int(narrow[1]) - int(narrow[2])
        return whole >= INTEGRAL.get(than, 99)
    return (than, kind) in _WIDER


def is_longer(kind: Any, than: Any) -> bool:
    """True for text that may be longer: files hold both alike."""
    short, long = (_VARCHAR.match(k) if isinstance(k, str) else None for k in (than, kind))
    return bool(short) and (kind == "string" or (bool(long) and int(long[1]) > int(short[1])))  # type: ignore[index]


def common(own: Any, other: Any) -> Any:
    """A type with the fields of one, and parts that hold the values of both: ``DOUBLE`` for numbers where none holds all of them.

    Example:
        >>> common("integer", "long"), common("decimal(5,2)", "long"), common("long", "double")
        ('long', 'decimal(21,2)', 'double')
    """
    if isinstance(own, str) or isinstance(other, str):
        return _common_value(own, other)
    if own["type"] == "struct":
        theirs = {f["name"]: f["type"] for f in other["fields"]}
        fields = [{**f, "type": common(f["type"], theirs.get(f["name"], f["type"]))} for f in own["fields"]]
        return {**own, "fields": fields}
    return {**own, **{p: common(own[p], other[p]) for p in _STEPS if p in own}}


def _common_value(own: Any, other: Any) -> Any:
    if own == other or is_wider(own, other) or is_longer(own, other):
        return own
    if is_wider(other, own) or is_longer(other, own):
        return other
    digits = [_digits(k) for k in (own, other)]
    whole, scale = (max(d[i] for d in digits) for i in (0, 1))
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else "double"


def _digits(kind: str) -> tuple[int, int]:
    """How many digits a number has before and after the point."""
    decimal = _DECIMAL.match(kind)
    if decimal:
        return int(decimal[1]) - int(decimal[2]), int(decimal[2])
    return INTEGRAL.get(kind, _MOST_DIGITS + 1), 0


def combined(own: Any, other: Any, at: Path = ()) -> tuple[Any, tuple[Path, ...]]:
    """The type that holds the values of two where the one is wider, with the fields of structs of both.

    Args:
        own: the table's, which stays where neither is wider.
        other: the source's.
        at: where that is.

    Returns:
        The type, and the paths of the fields that it has and ``own`` has not.

    Example:
        >>> combined("integer", "long"), combined("long", "integer"), combined("string", "integer")
        (('long', ()), ('long', ()), ('string', ()))
    """
    if isinstance(own, str) or isinstance(other, str) or own["type"] != other["type"]:
        return (other if is_wider(other, own) else own), ()
    if own["type"] == "struct":
        return _combined_structs(own, other, at)
    found, more = dict(own), list[Path]()
    for part, name in (("elementType", "element"), ("valueType", "value")):
        if part in own:
            found[part], paths = combined(own[part], other[part], (*at, name))
            more += paths
    return found, tuple(more)


def _combined_structs(own: Any, other: Any, at: Path) -> tuple[Any, tuple[Path, ...]]:
    theirs = {f["name"].casefold(): f for f in other["fields"]}
    fields, more = [], list[Path]()
    for field in own["fields"]:
        match = theirs.pop(field["name"].casefold(), None)
        if match is not None:
            kind, paths = combined(field["type"], match["type"], (*at, field["name"]))
            field, more = {**field, "type": kind}, [*more, *paths]
        fields.append(field)
    fields += [{**f, "nullable": True} for f in theirs.values()]
    return {**own, "fields": fields}, (*more, *((*at, f["name"]) for f in theirs.values()))


def contains(kind: Any, other: Any) -> bool:
    """True if a type is another one, or that with more fields in its structs."""
    if isinstance(kind, str) or isinstance(other, str) or kind["type"] != other["type"]:
        return bool(kind == other)
    if kind["type"] == "struct":
        own = {f["name"]: f["type"] for f in kind["fields"]}
        return all(f["name"] in own and contains(own[f["name"]], f["type"]) for f in other["fields"])
    return all(contains(kind[p], other[p]) for p in _STEPS if p in kind)


def shaped(old: Any, new: Any) -> Any:
    """The fields of a new type, each with the type it has in an old one, if that has it: what a cast takes to the new one."""
    if isinstance(old, str) or isinstance(new, str):
        return old
    if new["type"] == "struct":
        known = {f["name"]: f["type"] for f in old["fields"]}
        fields = [{**f, "type": shaped(known.get(f["name"], f["type"]), f["type"])} for f in new["fields"]]
        return {**old, "fields": fields}
    return {**old, **{p: shaped(old[p], new[p]) for p in _STEPS if p in new}}


def agree(kind: Any, other: Any) -> bool:
    """True if a file with values of one type can be read as the other: what both have of it is the same.

    Example:
        >>> agree("varchar(3)", "string"), agree("integer", "long")
        (True, False)
    """
    if isinstance(kind, str) or isinstance(other, str):
        return kind == other or all(isinstance(k, str) and _TEXT.match(k) is not None for k in (kind, other))
    if kind["type"] != other["type"]:
        return False
    if kind["type"] == "struct":
        theirs = {f["name"]: f["type"] for f in other["fields"]}
        return all(agree(f["type"], theirs[f["name"]]) for f in kind["fields"] if f["name"] in theirs)
    return all(agree(kind[p], other[p]) for p in _STEPS if p in kind)


def with_names(kind: Any, names: Mapping[Path, str], at: Path = ()) -> Any:
    """A type whose fields have other names, by their paths."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        paths = [(*at, f["name"]) for f in kind["fields"]]
        fields = [
            {**f, "name": names.get(p, f["name"]), "type": with_names(f["type"], names, p)}
            for f, p in zip(kind["fields"], paths, strict=True)
        ]
        return {**kind, "fields": fields}
    return {**kind, **{p: with_names(kind[p], names, (*at, step)) for p, step in _STEPS.items() if p in kind}}


def with_names_of(kind: Any, other: Any) -> Any:
    """A type whose fields are called as those of another one, which has as many."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [
            {**f, "name": o["name"], "type": with_names_of(f["type"], o["type"])}
            for f, o in zip(kind["fields"], other["fields"], strict=True)
        ]
        return {**kind, "fields": fields}
    return {**kind, **{p: with_names_of(kind[p], other[p]) for p in _STEPS if p in kind}}


def leaves(kind: Any) -> Iterator[Any]:
    """The types that values of a type are made of, in order."""
    if isinstance(kind, str):
        yield kind
    else:
        for part in _STEPS:
            yield from leaves(kind[part]) if part in kind else ()
        for field in kind.get("fields", ()):
            yield from leaves(field["type"])
