"""Where inside of a type null is allowed (S45)."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path


def values_inside(kind: Any, at: Path = ()) -> Iterator[tuple[Path, bool]]:
    """The path of each value inside of a type, and whether it may be null. Keys of maps never are, in Spark.

    Example:
        >>> list(values_inside({"type": "array", "elementType": "long", "containsNull": False}))
        [(('element',), False)]
    """
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            here = (*at, field["name"])
            yield here, bool(field.get("nullable", True))
            yield from values_inside(field["type"], here)
    for part, name, allows in _PARTS:
        if part in kind:
            here = (*at, name)
            if allows:
                yield here, bool(kind.get(allows, True))
            yield from values_inside(kind[part], here)


_PARTS = (
    ("elementType", "element", "containsNull"),
    ("keyType", "key", None),
    ("valueType", "value", "valueContainsNull"),
)


def never_null(kind: Any) -> tuple[Path, ...]:
    """The paths of the values inside of a type that must not be null."""
    return tuple(path for path, may_be_null in values_inside(kind) if not may_be_null)


def with_never_null(kind: Any, paths: Container[Path], at: Path = ()) -> Any:
    """A type in which just the values at some paths must not be null.

    Example:
        >>> with_never_null({"type": "array", "elementType": "long", "containsNull": False}, ())
        {'type': 'array', 'elementType': 'long', 'containsNull': True}
    """
    if isinstance(kind, str):
        return kind
    found = dict(kind)
    if kind["type"] == "struct":
        found["fields"] = [
            {**f, "type": with_never_null(f["type"], paths, here), "nullable": here not in paths}
            for f in kind["fields"]
            for here in [(*at, f["name"])]
        ]
    for part, name, allows in _PARTS:
        if part in kind:
            found[part] = with_never_null(kind[part], paths, (*at, name))
            if allows:
                found[allows] = (*at, name) not in paths
    return found


def dotted(field: Field, path: Path = ()) -> str:
    """A column, or a value inside of it, as users name it."""
    return ".".join((field.name, *path))
