"""Which values inside of a type may be null (S45)."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path, parts, with_parts

_NULLABLE = {"element": "containsNull", "value": "valueContainsNull"}
"""By the path step: the name in Spark's JSON form. Keys of maps are never null, and have none."""


def values_inside(kind: Any, at: Path = ()) -> Iterator[tuple[Path, bool]]:
    """Return the path of each value inside of a type, and whether it may be null. Keys of maps are left out.

    Example:
        >>> list(values_inside({"type": "array", "elementType": "long", "containsNull": False}))
        [(('element',), False)]
    """
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        flags = {f["name"]: bool(f.get("nullable", True)) for f in kind["fields"]}
    else:
        flags = {step: bool(kind.get(name, True)) for step, name in _NULLABLE.items()}
    for step, part in parts(kind):
        if step in flags:
            yield (*at, step), flags[step]
        yield from values_inside(part, (*at, step))


def never_null(kind: Any) -> tuple[Path, ...]:
    return tuple(path for path, may_be_null in values_inside(kind) if not may_be_null)


def with_never_null(kind: Any, paths: Container[Path], at: Path = ()) -> Any:
    """Return a type in which exactly the values at some paths must not be null.

    Example:
        >>> with_never_null({"type": "array", "elementType": "long", "containsNull": False}, ())
        {'type': 'array', 'elementType': 'long', 'containsNull': True}
    """
    if isinstance(kind, str):
        return kind
    found = with_parts(kind, lambda step, part: with_never_null(part, paths, (*at, step)))
    if kind["type"] == "struct":
        found["fields"] = [{**f, "nullable": (*at, f["name"]) not in paths} for f in found["fields"]]
    else:
        found |= {_NULLABLE[step]: (*at, step) not in paths for step, _ in parts(kind) if step in _NULLABLE}
    return found


def dotted(field: Field, path: Path = ()) -> str:
    """Return the name of a column, or of a value inside of it: ``address.city``."""
    return ".".join((field.name, *path))
