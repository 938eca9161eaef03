"""One column of a table: its name, type, default, and the names and types that files hold it by (S7, S43)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.schema.types import Path, with_names

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
    """How files of earlier layouts hold a column.

    Attributes:
        name: of the column there.
        type: what it was, in Spark's JSON form.
        until: files of this layout and later ones do not have it.
    """

    name: str
    type: Any = attrs.field(eq=repr)
    until: int


def _stored(values: Iterable[FileColumn | Mapping[str, Any]]) -> tuple[FileColumn, ...]:
    return tuple(v if isinstance(v, FileColumn) else FileColumn(**v) for v in values)


def _paths(values: Iterable[Iterable[str]]) -> tuple[Path, ...]:
    return tuple(map(tuple, values))


def _named(values: Iterable[tuple[Iterable[str], str]]) -> tuple[tuple[Path, str], ...]:
    return tuple((tuple(path), name) for path, name in values)


@attrs.frozen
class Field:
    """One column of a table.

    Attributes:
        name: as declared; compared case-insensitively unless Spark is told otherwise.
        type: Spark's JSON form: ``"long"``, ``"decimal(10,2)"``, or a dict for nested types.
        nullable: whether the column may hold nulls.
        metadata: Spark's field metadata, kept as it is.
        physical_name: the column's name in files, where it is not ``name``.
        previous: how older files hold it, oldest first: where its type became wider.
        added: it came after the table was created: merges that were written before need not know it (S22).
        added_fields: the same of fields inside of it, by their paths.
        within: the names in files of fields inside of it, by their paths, where a field that is no more has their own.
        default: SQL for what inserts put there that do not say (S46); None for null.
    """

    name: str
    type: Any = attrs.field(eq=repr)
    nullable: bool = True
    metadata: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)
    physical_name: str | None = None
    previous: tuple[FileColumn, ...] = attrs.field(default=(), converter=_stored)
    added: bool = False
    added_fields: tuple[Path, ...] = attrs.field(default=(), converter=_paths)
    default: str | None = None
    within: tuple[tuple[Path, str], ...] = attrs.field(default=(), converter=_named)

    @property
    def stored_as(self) -> str:
        """The column's name in files that are written now."""
        return self.name if self.physical_name is None else self.physical_name

    @property
    def first_stored_as(self) -> str:
        """The column's name in the first files that had it: never another's, never a different one."""
        return self.previous[0].name if self.previous else self.stored_as

    def in_files(self, kind: Any) -> Any:
        """A type of the column, now or earlier, as files have it: with the names that fields inside of it have there."""
        return with_names(kind, dict(self.within)) if self.within else kind

    def path_in_files(self, path: Path) -> Path:
        """The names in files on the way to a field inside of the column."""
        names = dict(self.within)
        return tuple(names.get(path[: i + 1], step) for i, step in enumerate(path))

    @property
    def may_be_left_out(self) -> bool:
        """True if sources and maps of merges may lack it, whether or not nulls are allowed (S22, S46)."""
        return self.added or self.default is not None

    @property
    def comment(self) -> str | None:
        """What is said of the column, for people."""
        found = self.metadata.get("comment")
        return None if found is None else str(found)

    @property
    def is_atomic(self) -> bool:
        """True if the type is one value (not an array, map, struct or variant)."""
        return isinstance(self.type, str) and bool(_ATOMIC.match(self.type))

    @property
    def is_string(self) -> bool:
        """True if the type is string, char or varchar."""
        return isinstance(self.type, str) and bool(_STRING.match(self.type))

    @property
    def text(self) -> str:
        """The type as a user would write it."""
        return type_text(self.type)

    def to_spark(self) -> dict[str, Any]:
        """The field in the JSON form of Spark's ``StructField``."""
        return {"name": self.name, "type": self.type, "nullable": self.nullable, "metadata": dict(self.metadata)}

    def to_json(self) -> dict[str, Any]:
        """The field as a log keeps it: as :meth:`to_spark`, and what there is besides."""
        besides: dict[str, Any] = {
            "physical": self.physical_name,
            "earlier": [attrs.asdict(e) for e in self.previous],
            "added": self.added,
            "grown": [list(path) for path in self.added_fields],
            "default": self.default,
            "within": [[list(path), name] for path, name in self.within],
        }
        return {**self.to_spark(), **{name: value for name, value in besides.items() if value}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Field:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: something is not what a column has; a type, of whatever form, is none of Spark's own.
        """
        field = cls(
            data["name"],
            data["type"],
            bool(data.get("nullable", True)),
            dict(data.get("metadata") or {}),
            data.get("physical"),
            data.get("earlier", ()),
            bool(data.get("added", False)),
            data.get("grown", ()),
            data.get("default"),
            data.get("within", ()),
        )
        texts = [field.name, *(t for t in (field.physical_name, field.default) if t is not None)]
        texts += [*(form.name for form in field.previous), *(name for path in field.added_fields for name in path)]
        if not all(isinstance(text, str) for text in texts) or any(
            type(form.until) is not int for form in field.previous
        ):
            raise ValueError(f"{data!r} is no column")
        _check_described(data)
        forms: tuple[Field | FileColumn, ...] = (field, *field.previous)
        for form in forms:
            check_name(field.name, form.name)
            check_type(field.name, form.type)
        check_name(field.name, field.stored_as)
        return field


def type_text(kind: Any) -> str:
    """A type in Spark's JSON form, as a user would write it.

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
    """Refuses what Spark's parser would put something else in place of, quoted or not.

    Raises:
        InvalidDefinitionError: naming the column.
    """
    if _VARIABLE.search(name):
        raise InvalidDefinitionError(
            f"Column '{column}': the name '{name}' holds '${{...}}', which Spark would replace by a setting; rename it.",
            column=column,
        )


def _check_described(field: Mapping[str, Any]) -> None:
    """Refuses what Spark's own reader of fields cannot read; what a field's type is, is another question.

    Raises:
        ValueError: it is no field.
    """
    metadata = field.get("metadata") or {}
    texts = [field["name"], *(metadata.get("__COLLATIONS") or {}).values()]
    if not isinstance(metadata, Mapping) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{field!r} is no column or field of one")


def check_type(column: str, kind: Any) -> None:
    """Refuses what is no type of Spark's own: building a user-defined one would run the code that it names (S7).

    Raises:
        InvalidDefinitionError: naming the column.
    """
    parts = []
    if isinstance(kind, Mapping):
        if kind.get("type") == "struct":
            parts = [f["type"] for f in kind["fields"]]
            for f in kind["fields"]:
                _check_described(f)
                check_name(column, f["name"])
        elif kind.get("type") in ("array", "map"):
            parts = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
        if parts or kind == {"type": "struct", "fields": []}:
            for part in parts:
                check_type(column, part)
            return
    elif isinstance(kind, str) and (_ATOMIC.match(kind) or _NOT_ATOMIC.fullmatch(kind)):
        return
    raise InvalidDefinitionError(
        f"Column '{column}' ({type_text(kind)}) is of no type a table can store. Use Spark's own types.", column=column
    )
