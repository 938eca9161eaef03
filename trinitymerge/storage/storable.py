"""What a table's files can keep: which columns are refused when a table is created (S7a).

Owns: the list. It holds when a table is created, not when one is opened: a table that an earlier version of the library let
through still opens. Where Spark's own answer differs between versions or file formats, the strictest holds that every
writer and reader of the table will share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import InvalidDefinitionError

_COLLATED = re.compile(r"string collate (?!UTF8_BINARY\Z)")
_FIXED_STRING = re.compile(r"(var)?char\(")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)\Z")
_ONLY_PARQUET = ("variant", "geometry", "geography")
_LARGEST_PRECISION = 38


def check_storable(definition: TableDefinition) -> None:
    """Refuses columns that could be declared, but not be written and read back as they were.

    Raises:
        InvalidDefinitionError: naming the column, its type and what to use instead.
    """
    for field in definition.fields:
        for why in _problems(field, definition.fileFormat):
            raise InvalidDefinitionError(f"Column '{field.name}' ({field.text}) {why}", column=field.name)


def _problems(field: Field, file_format: str) -> Iterator[str]:
    """Reasons why a column cannot be stored, as the rest of a sentence, with the remedy."""
    if file_format == "orc" and "`" in field.name:
        yield "holds a backtick in its name, which Spark's ORC files lose. Rename it or use parquet."
    if field.metadata.get("__COLLATIONS"):
        yield _collated(", ".join(sorted({str(c) for c in field.metadata["__COLLATIONS"].values()})))
    yield from _problems_of_type(field.type, file_format)
    if isinstance(field.type, Mapping):
        for part, role in _parts(field.type):
            yield from _problems_inside(part, role, file_format)


def _problems_inside(kind: Any, role: str, file_format: str) -> Iterator[str]:
    yield from _problems_of_type(kind, file_format)
    if isinstance(kind, str) and _FIXED_STRING.match(kind):
        yield f"holds {kind} in {role}: Spark has no such values inside of others. Use string there."
    if role == "a map's key" and (kind == "variant" or (isinstance(kind, Mapping) and kind.get("type") == "map")):
        yield "has a map whose key is a map or variant, which Spark cannot compare. Use an atomic key."
    if isinstance(kind, Mapping):
        for part, below in _parts(kind):
            # What is a part of a key is compared as the key is.
            yield from _problems_inside(part, role if role == "a map's key" else below, file_format)


def _problems_of_type(kind: Any, file_format: str) -> Iterator[str]:
    if isinstance(kind, Mapping):
        fields = kind.get("fields", ()) if kind.get("type") == "struct" else None
        names = [str(f["name"]).casefold() for f in fields or ()]
        if fields is not None and not names:
            yield "is or holds a struct without fields, which no file can keep. Give it a field or leave it out."
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            yield f"has a struct with the field '{twice[0]}' twice (names are compared without case). Rename one of them."
        for f in fields or ():
            if (f.get("metadata") or {}).get("__COLLATIONS"):
                yield _collated(", ".join(sorted({str(c) for c in f["metadata"]["__COLLATIONS"].values()})))
        return
    name = str(kind)
    decimal = _DECIMAL.match(name)
    if name == "void":
        yield "can hold nothing but nulls. Give it the type its values will have."
    elif name in ("interval", "interval calendar"):
        yield (
            "is a calendar interval, which no file can keep. Use INTERVAL DAY TO SECOND or INTERVAL YEAR TO MONTH, or a "
            "string."
        )
    elif name.startswith("time("):
        yield "is a time of day, which Spark does not store by default. Use TIMESTAMP_NTZ, a string, or seconds in an INT."
    elif _COLLATED.match(name):
        yield _collated(name.removeprefix("string collate "))
    elif name.startswith(_ONLY_PARQUET) and file_format == "orc":
        yield f"holds {name.split('(')[0]}, which ORC files cannot keep. Use parquet, or store it as a string or binary."
    elif name.startswith(("geometry", "geography")) and "ANY" in name:
        yield "may hold shapes of any spatial reference system, which no file can keep. Declare one, as in GEOMETRY(4326)."
    elif decimal and not 0 <= int(decimal[2]) <= int(decimal[1]) <= _LARGEST_PRECISION:
        yield f"is a decimal that no file can keep. Use at most {_LARGEST_PRECISION} digits, from 0 to all of them decimals."


def _collated(collation: str) -> str:
    return (
        f"is collated ({collation}), and a table compares text exactly: its order of watermarks and its filters would not be "
        "those of the collation. Declare it STRING, and compare lower(column), or column COLLATE ..., where you query it."
    )


def _parts(kind: Mapping[str, Any]) -> list[tuple[Any, str]]:
    if kind.get("type") == "struct":
        return [(f["type"], "a struct") for f in kind["fields"]]
    parts = (("elementType", "an array"), ("keyType", "a map's key"), ("valueType", "a map"))
    return [(kind[name], role) for name, role in parts if name in kind]
