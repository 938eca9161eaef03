"""One column of a table: its name, type and default, and its names and types in files (S7, S43)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import InvalidDefinitionError, invalid_column
from trinitymerge.schema.types import Path, parts, with_names

CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata by which Spark knows that a string column is ``CHAR(n)``. DataFrames have it; definitions have the type."""

_STRING = re.compile(r"^(string|char\(\d+\)|varchar\(\d+\))\Z")
_ATOMIC = re.compile(
    r"^(boolean|byte|short|integer|long|float|double|decimal\(\d+,-?\d+\)|string|char\(\d+\)|varchar\(\d+\)|binary"
    r"|date|timestamp|timestamp_ntz|time\(\d+\)|interval (?!.*calendar)[a-z ]+)\Z"
)
_NOT_ATOMIC = re.compile(
    r"variant|interval|interval calendar|void|string collate \w+|geo(metry|graphy)(\([\w ,:-]*\))?"
)
_VARIABLE = re.compile(r"\$\{\S+?\}")


@attrs.frozen
class FileColumn:
    """A column as files of earlier layouts store it, in Spark's JSON form; ``until`` is the first layout without it."""

    name: str
    type: Any = attrs.field(eq=repr)
    until: int


def _file_columns(values: Iterable[FileColumn | Mapping[str, Any]]) -> tuple[FileColumn, ...]:
    return tuple(v if isinstance(v, FileColumn) else FileColumn(v["name"], v["type"], v["until"]) for v in values)


def _paths(values: Iterable[Iterable[str]]) -> tuple[Path, ...]:
    return tuple(map(tuple, values))


def _names_by_path(values: Iterable[tuple[Iterable[str], str]]) -> tuple[tuple[Path, str], ...]:
    return tuple((tuple(path), name) for path, name in values)


@attrs.frozen
class Field:
    """One column of a table.

    Attributes:
        name: as declared; case-insensitive unless ``spark.sql.caseSensitive`` is set.
        type: Spark's JSON form: ``"long"``, ``"decimal(10,2)"``, or a dict for nested types.
        nullable: whether the column may hold nulls.
        metadata: Spark's field metadata.
        physical_name: the column's name in files, where it is not ``name``.
        previous: the column in files from before its type was widened, oldest first.
        added: the column was added after the table was created: existing merges may leave it out (S22).
        added_fields: the paths of the fields inside of the column that were added later.
        default: SQL for inserts that leave the column out (S46); None for null.
        within: the names in files of fields inside of the column, by path, where they differ.
    """

    name: str
    type: Any = attrs.field(eq=repr)
    nullable: bool = True
    metadata: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)
    physical_name: str | None = None
    previous: tuple[FileColumn, ...] = attrs.field(default=(), converter=_file_columns)
    added: bool = False
    added_fields: tuple[Path, ...] = attrs.field(default=(), converter=_paths)
    default: str | None = None
    within: tuple[tuple[Path, str], ...] = attrs.field(default=(), converter=_names_by_path)

    @property
    def stored_as(self) -> str:
        """The column's name in new files."""
        return self.name if self.physical_name is None else self.physical_name

    @property
    def first_stored_as(self) -> str:
        """The column's name in the first files that had it: unique, and it never changes."""
        return self.previous[0].name if self.previous else self.stored_as

    def in_files(self, kind: Any) -> Any:
        """Return a type of the column with its field names in files."""
        return with_names(kind, dict(self.within)) if self.within else kind

    def path_in_files(self, path: Path) -> Path:
        """Return the path in files of a field inside of the column."""
        names = dict(self.within)
        return tuple(names.get(path[: i + 1], step) for i, step in enumerate(path))

    @property
    def may_be_left_out(self) -> bool:
        """True if the source and the maps of a merge may leave the column out (S22, S46)."""
        return self.added or self.default is not None

    @property
    def comment(self) -> str | None:
        """The comment in Spark's metadata."""
        found = self.metadata.get("comment")
        return None if found is None else str(found)

    @property
    def is_atomic(self) -> bool:
        """True if the type is not an array, map, struct or variant."""
        return isinstance(self.type, str) and bool(_ATOMIC.match(self.type))

    @property
    def is_string(self) -> bool:
        """True if the type is string, char or varchar."""
        return isinstance(self.type, str) and bool(_STRING.match(self.type))

    @property
    def text(self) -> str:
        """The type as SQL writes it."""
        return type_text(self.type)

    def to_spark(self) -> dict[str, Any]:
        """Return the JSON form of Spark's ``StructField``."""
        return {"name": self.name, "type": self.type, "nullable": self.nullable, "metadata": dict(self.metadata)}

    def to_json(self) -> dict[str, Any]:
        """Return the field as the log stores it: :meth:`to_spark`, and the other attributes that are set."""
        more: dict[str, Any] = {
            "physicalName": self.physical_name,
            "previous": [attrs.asdict(e) for e in self.previous],
            "added": self.added,
            "addedFields": [list(path) for path in self.added_fields],
            "default": self.default,
            "nestedNames": [[list(path), name] for path, name in self.within],
        }
        return {**self.to_spark(), **{name: value for name, value in more.items() if value}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Field:
        """Read a field from the form of :meth:`to_json`.

        Raises:
            ValueError: the data is not a column, or has a type that is not one of Spark's.
        """
        field = cls(
            data["name"],
            data["type"],
            bool(data.get("nullable", True)),
            {name: value for name, value in (data.get("metadata") or {}).items() if name != CHAR_TYPE},
            data.get("physicalName"),
            data.get("previous", ()),
            bool(data.get("added", False)),
            data.get("addedFields", ()),
            data.get("default"),
            data.get("nestedNames", ()),
        )
        texts = [field.name, *(t for t in (field.physical_name, field.default) if t is not None)]
        texts += [*(form.name for form in field.previous), *(name for path in field.added_fields for name in path)]
        layouts = [form.until for form in field.previous]
        if not all(isinstance(t, str) for t in texts) or not all(type(n) is int for n in layouts):
            raise ValueError(f"{data!r} is not a column")
        _check_described(data)
        for name, kind in ((field.name, field.type), *((form.name, form.type) for form in field.previous)):
            check_name(field.name, name)
            check_type(field.name, kind)
        check_name(field.name, field.stored_as)
        return field


def type_text(kind: Any) -> str:
    """Return a type in Spark's JSON form as SQL writes it.

    Example:
        >>> type_text("long"), type_text({"type": "array", "elementType": "integer", "containsNull": True})
        ('bigint', 'array<int>')
    """
    if isinstance(kind, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind.get("type") == "array":
        return f"array<{type_text(kind['elementType'])}>"
    if kind.get("type") == "map":
        return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
    if kind.get("type") == "struct":
        fields = (f"{f['name']}:{type_text(f['type'])}" for f in kind["fields"])
        return f"struct<{','.join(fields)}>"
    return str(kind.get("type", kind))


def check_name(column: str, name: str) -> None:
    """Raise if Spark's parser would replace a part of a name, even of a quoted one."""
    if _VARIABLE.search(name):
        raise InvalidDefinitionError(
            f"Column '{column}': the name '{name}' holds '${{...}}', which Spark would replace with a setting; rename it.",
            column=column,
        )


def _check_described(field: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if Spark cannot read the name or the metadata of a field."""
    metadata = field.get("metadata") or {}
    texts = [field["name"], *(metadata.get("__COLLATIONS") or {}).values()]
    if not isinstance(metadata, Mapping) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{field!r} is not a column or struct field")


def check_type(column: str, kind: Any) -> None:
    """Raise if a type is not one of Spark's: creating a user-defined type would run the code that it names (S7)."""
    if isinstance(kind, Mapping) and kind.get("type") in ("struct", "array", "map"):
        if kind["type"] == "struct":
            for f in kind["fields"]:
                _check_described(f)
                check_name(column, f["name"])
        if parts(kind) or kind == {"type": "struct", "fields": []}:
            for _, part in parts(kind):
                check_type(column, part)
            return
    elif isinstance(kind, str) and (_ATOMIC.match(kind) or _NOT_ATOMIC.fullmatch(kind)):
        return
    raise invalid_column(column, f"({type_text(kind)}) is of a type that a table cannot store. Use Spark's own types.")
