"""The definition of a table: keys, columns, properties and constraints (S1-S5, S7)."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from trinitymerge import _format
from trinitymerge.errors import InvalidDefinitionError, closest, in_columns, invalid_column, missing
from trinitymerge.schema.constraints import Check, checks_of
from trinitymerge.schema.field import Field as Field, check_name, check_type
from trinitymerge.schema.properties import check_values

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


HIDDEN_PREFIX = "_tm_"
"""Begins the names of system columns (S5)."""

HIDDEN_TOMBSTONE = "_tm_deleted"
"""The boolean tombstone column of tables that declare none (S5)."""

_HEADS = ("column", "type", "nullable", "key", "default", "comment")


class TombstoneForm(enum.Enum):
    """The three forms of a tombstone column (S4)."""

    BOOLEAN = "boolean"
    STRING_VALUE = "string value"
    NOT_NULL = "not null"


def _names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


@attrs.frozen
class TableDefinition:
    """The frozen definition of a table (S1-S7), built and validated by :meth:`of`.

    Attributes:
        fields: the user's columns, in order.
        primaryKey: one or more column names, spelled as in ``fields``.
        watermarkKey: zero or more column names, most significant first.
        tombstoneKey: a column name, or None for the hidden column.
        tombstoneStringValue: the value of a string tombstone key on deleted rows.
        fileFormat: ``"parquet"`` or ``"orc"``.
        properties: names and values; the library's names start with ``trinitymerge.``.
        comment: of the table.
        history: keep replaced rows, as row versions (H1).
        layout_version: the number of type widenings so far; it identifies the columns of a file (S43).
        retired_names: names in files of dropped columns; no other column is stored under them.
        checks: conditions that every live row fulfils (S45).
        clusterBy: columns by which rows are sorted within files, most significant first (S7c); layout only.

    Example:
        >>> d = TableDefinition.of([Field("id", "long"), Field("v", "string")], primaryKey="ID")
        >>> d.primaryKey, d.watermarkKey, d.tombstone_column
        (('id',), (), '_tm_deleted')
        >>> print(d)
          column  type    nullable  key          default  comment
          id      bigint  no        primary key
          v       string  yes
        <BLANKLINE>
        primary key: id
        files: parquet
    """

    fields: tuple[Field, ...]
    primaryKey: tuple[str, ...]
    watermarkKey: tuple[str, ...] = ()
    tombstoneKey: str | None = None
    tombstoneStringValue: str | None = None
    fileFormat: str = "parquet"
    properties: Mapping[str, str] = attrs.field(factory=dict, eq=lambda p: tuple(sorted(p.items())))
    comment: str | None = None
    history: bool = False
    layout_version: int = 0
    retired_names: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    clusterBy: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        fields: Iterable[Field],
        primaryKey: str | Iterable[str],
        watermarkKey: str | Iterable[str] | None = None,
        tombstoneKey: str | None = None,
        tombstoneStringValue: str | None = None,
        fileFormat: str = "parquet",
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        history: bool = False,
        layoutVersion: int = 0,
        retiredNames: Iterable[str] = (),
        checks: Iterable[Check | Mapping[str, Any]] = (),
        clusterBy: str | Iterable[str] | None = None,
    ) -> TableDefinition:
        """Validate a definition and return it, with key names spelled as the columns are (S1-S5).

        The arguments are the attributes of :class:`TableDefinition`; names of columns ignore case, ``layoutVersion`` is
        ``layout_version``, and ``retiredNames`` is ``retired_names``.

        Raises:
            InvalidDefinitionError: names the column and the rule that it breaks.
        """
        fields = tuple(fields)
        _check_columns(fields)
        known = {f.name.lower(): f.name for f in fields}

        def find(role: str, name: str) -> str:
            if str(name).lower() in known:
                return known[str(name).lower()]
            lacking = missing([str(name)], "the schema", known.values()) + closest(str(name), known.values())
            raise InvalidDefinitionError(f"{role}: {lacking}", column=name)

        primary = tuple(find("primaryKey", n) for n in _names(primaryKey))
        watermark = tuple(find("watermarkKey", n) for n in _names(watermarkKey))
        tombstone = find("tombstoneKey", tombstoneKey) if tombstoneKey is not None else None
        definition = cls(
            fields=tuple(attrs.evolve(f, nullable=False) if f.name in primary else f for f in fields),
            primaryKey=primary,
            watermarkKey=watermark,
            tombstoneKey=tombstone,
            tombstoneStringValue=tombstoneStringValue,
            fileFormat=str(fileFormat).lower(),
            properties={str(k): str(v) for k, v in (properties or {}).items()},
            comment=comment,
            history=bool(history),
            layout_version=int(layoutVersion),
            retired_names=tuple(retiredNames),
            checks=checks_of(checks),
            clusterBy=tuple(find("clusterBy", n) for n in _names(clusterBy)),
        )
        definition._check_keys()
        definition._check_clustering()
        definition._check_texts()
        return definition

    def _check_texts(self) -> None:
        texts = [self.comment, self.tombstoneStringValue, *self.retired_names]
        texts += [text for c in self.checks for text in (c.name, c.condition, *c.columns)]
        for text in texts:
            if text is not None and not isinstance(text, str):
                raise InvalidDefinitionError(f"The definition of a table takes a string here, got {text!r}.")
        try:
            json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError) as error:
            raise InvalidDefinitionError(
                f"The log cannot store the definition of the table: {error}. Change its names, comments, metadata and properties."
            ) from None

    def _check_keys(self) -> None:
        if not self.primaryKey:
            raise InvalidDefinitionError("A table needs a primary key: pass primaryKey= with at least one column.")
        for role, names in {"primaryKey": self.primaryKey, "watermarkKey": self.watermarkKey}.items():
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise InvalidDefinitionError(f"{role} names {', '.join(twice)} twice; name each column once.")
        for name in self.primaryKey:
            field = self.field(name)
            if not field.is_atomic or field.type in ("float", "double") or "__COLLATIONS" in field.metadata:
                raise invalid_column(
                    name,
                    f"({field.text}) cannot be part of the primary key: key columns must be atomic and "
                    "compare exactly, unlike float, double, map, array, struct, variant and collated strings. "
                    "Use a decimal, integer, string, binary, date or timestamp column.",
                )
        for name in self.watermarkKey:
            if not self.field(name).is_atomic:
                raise invalid_column(
                    name,
                    f"({self.field(name).text}) cannot be a watermark: it has no order. "
                    "Use an atomic column such as a timestamp or a sequence number.",
                )
        every = [*self.primaryKey, *self.watermarkKey, *_names(self.tombstoneKey)]
        clash = [n for n in every if every.count(n) > 1]
        if clash:
            raise InvalidDefinitionError(
                f"Column '{clash[0]}' has two roles; primary key, watermark key and tombstone key must be different columns.",
                column=clash[0],
            )
        self._check_tombstone()
        with_default = next((f for f in self.fields if f.default is not None and self.role_of(f.name)), None)
        if with_default is not None:
            raise invalid_column(
                with_default.name,
                f"is {self.role_of(with_default.name)}, and cannot have a default: each row "
                "states its keys. Leave DEFAULT out, and add the value to the source of the merge.",
            )
        if self.fileFormat not in ("parquet", "orc"):
            raise InvalidDefinitionError(f"fileFormat '{self.fileFormat}' is not supported; use 'parquet' or 'orc'.")

    def _check_clustering(self) -> None:
        for name in self.clusterBy:
            if not self.field(name).is_atomic:
                raise invalid_column(
                    name,
                    f"({self.field(name).text}) cannot be a column of clusterBy: files keep no smallest and largest value of it. "
                    "Use an atomic column, such as a date.",
                )
            if self.clusterBy.count(name) > 1:
                raise InvalidDefinitionError(f"clusterBy names {name} twice; name each column once.", column=name)

    def _check_tombstone(self) -> None:
        if self.tombstoneKey is None:
            if self.tombstoneStringValue is not None:
                raise InvalidDefinitionError("tombstoneStringValue needs a tombstoneKey: name the column too.")
            return
        field = self.field(self.tombstoneKey)
        if not field.is_atomic:
            raise invalid_column(field.name, f"({field.text}) cannot be the tombstone key: its type must be atomic.")
        if self.tombstoneStringValue is not None and not field.is_string:
            raise InvalidDefinitionError(
                f"tombstoneStringValue is only for string tombstone keys, and '{field.name}' is {field.text}. "
                "Leave it out, or use a string column.",
                column=field.name,
            )
        length = re.search(r"\d+", str(field.type)) if field.is_string else None
        if self.tombstoneStringValue is not None and length and len(self.tombstoneStringValue) > int(length[0]):
            raise InvalidDefinitionError(
                f"tombstoneStringValue {self.tombstoneStringValue!r} does not fit into column '{field.name}', which is "
                f"{field.text}. Use a shorter value or a longer column.",
                column=field.name,
            )
        if not field.nullable and self.tombstone_form is TombstoneForm.NOT_NULL:
            raise InvalidDefinitionError(
                f"Tombstone column '{field.name}' ({field.text}) means 'deleted' whenever it is not null, so it must be "
                "nullable: otherwise every row would be deleted.",
                column=field.name,
            )

    @property
    def schema(self) -> StructType:
        """The user's columns as a Spark ``StructType``, char and varchar included."""
        from pyspark.sql.types import StructType

        return StructType.fromJson({"type": "struct", "fields": [f.to_spark() for f in self.fields]})

    @property
    def names(self) -> tuple[str, ...]:
        """The user's column names, in order."""
        return tuple(f.name for f in self.fields)

    @property
    def tombstone_column(self) -> str:
        """The declared tombstone column, or the hidden one (S5)."""
        return self.tombstoneKey or HIDDEN_TOMBSTONE

    @property
    def tombstone_form(self) -> TombstoneForm:
        """How the tombstone column says "deleted" (S4)."""
        if self.tombstoneKey is None or self.field(self.tombstoneKey).type == "boolean":
            return TombstoneForm.BOOLEAN
        if self.tombstoneStringValue is not None:
            return TombstoneForm.STRING_VALUE
        return TombstoneForm.NOT_NULL

    @property
    def hides_metadata(self) -> bool:
        """True if a column has, or had in some files, the name by which Spark shows the positions of rows in files."""
        names = (n for f in self.fields for n in (f.name, f.stored_as, *(e.name for e in f.previous)))
        return any(n.lower() == "_metadata" for n in names)

    @property
    def stored_fields(self) -> tuple[Field, ...]:
        """The user's columns and, in tables without a tombstone key, the hidden one."""
        hidden = () if self.tombstoneKey else (Field(HIDDEN_TOMBSTONE, "boolean"),)
        return (*self.fields, *hidden)

    def role_of(self, name: str) -> str:
        """Return the role of a column, in words; empty if it has none."""
        if name in self.primaryKey:
            return "part of the primary key"
        if name in self.watermarkKey:
            return "part of the watermark"
        return "the tombstone key" if name == self.tombstoneKey else ""

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """The key columns by role, without empty roles."""
        keys = {"primary key": self.primaryKey, "watermark": self.watermarkKey, "tombstone": _names(self.tombstoneKey)}
        return {role: names for role, names in keys.items() if names}

    @property
    def sortedBy(self) -> tuple[str, ...]:
        """The columns by which rows are sorted within files: those of the layout (S7c), then the key."""
        return tuple(dict.fromkeys((*self.clusterBy, *self.primaryKey)))

    def order_in_files(self, clusterBy: Iterable[str]) -> tuple[str, ...]:
        """Return the order of the rows in files with a layout, by the first names of columns in files."""
        return tuple(dict.fromkeys((*clusterBy, *(self.field(n).first_stored_as for n in self.primaryKey))))

    @property
    def stored_cluster_by(self) -> tuple[str, ...]:
        """The columns of the layout by their first names in files, which stay."""
        return tuple(self.field(name).first_stored_as for name in self.clusterBy)

    @property
    def is_rearranged(self) -> bool:
        """True if files store a column under another name or type than its own; readers must support that (S43)."""
        return bool(self.retired_names) or any(f.physical_name is not None or f.previous for f in self.fields)

    def field(self, name: str) -> Field:
        """Return the stored field called ``name``, spelled as in the definition."""
        return next(f for f in self.stored_fields if f.name == name)

    def __str__(self) -> str:
        """Return the columns, one on each line, and the facts below."""
        facts = "\n".join(f"{name}: {text}" for name, text in self.facts())
        return f"{in_columns(_HEADS, self._columns())}\n\n{facts}"

    def _repr_html_(self) -> str:
        return _format.grid(_HEADS, self._columns()) + _format.pairs(self.facts())

    def _columns(self) -> list[tuple[str, ...]]:
        key_of = {name: role for role, names in self.roles.items() for name in names}
        rows = list[tuple[str, ...]]()
        for f in self.fields:
            nullable, comment = "yes" if f.nullable else "no", " ".join((f.comment or "").split())
            rows.append((f.name, f.text, nullable, key_of.get(f.name, ""), f.default or "", comment))
        return rows

    def facts(self) -> list[tuple[str, str]]:
        """Return everything but the columns, as name and text."""
        deleted = self.tombstoneStringValue
        return [
            *((role, ", ".join(names)) for role, names in self.roles.items()),
            *([("comment", self.comment)] if self.comment else []),
            *([("tombstone value", deleted)] if deleted is not None else []),
            *([("history", "every version of a row is kept")] if self.history else []),
            *((f"check {check.name}", check.condition) for check in self.checks),
            *([("clustered by", ", ".join(self.clusterBy))] if self.clusterBy else []),
            ("files", self.fileFormat),
            *sorted(self.properties.items()),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the definition as the log stores it (S7)."""
        return {
            "fields": [f.to_json() for f in self.fields],
            "primaryKey": list(self.primaryKey),
            "watermarkKey": list(self.watermarkKey),
            "tombstoneKey": self.tombstoneKey,
            "tombstoneStringValue": self.tombstoneStringValue,
            "fileFormat": self.fileFormat,
            "properties": dict(self.properties),
            "comment": self.comment,
            **({"history": True} if self.history else {}),
            **({"layoutVersion": self.layout_version} if self.layout_version else {}),
            **({"retiredNames": list(self.retired_names)} if self.retired_names else {}),
            **({"checks": [check.to_json() for check in self.checks]} if self.checks else {}),
            **({"clusterBy": list(self.clusterBy)} if self.clusterBy else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableDefinition:
        """Read and validate a definition from the form of :meth:`to_json` (S7). Fields of newer libraries are ignored."""
        known = {name: data[name] for name in _STORED if name in data}
        definition = cls.of(**{**known, "fields": [Field.from_json(f) for f in data["fields"]]})
        check_values(definition.properties)
        return definition


_STORED = (
    *("primaryKey", "watermarkKey", "tombstoneKey", "tombstoneStringValue", "fileFormat", "properties", "comment"),
    *("history", "layoutVersion", "retiredNames", "checks", "clusterBy"),
)
"""The fields of a definition in the log, beside its columns."""


def _check_columns(fields: tuple[Field, ...]) -> None:
    if not fields:
        raise InvalidDefinitionError("A table needs columns: the schema is empty.")
    seen: set[str] = set()
    for field in fields:
        if field.name.lower().startswith(HIDDEN_PREFIX):
            raise invalid_column(
                field.name, f"starts with '{HIDDEN_PREFIX}', which is reserved for system columns; rename it."
            )
        if field.name.lower() in seen:
            raise invalid_column(field.name, "occurs twice (names are compared without case); rename one of them.")
        check_name(field.name, field.name)
        check_type(field.name, field.type)
        seen.add(field.name.lower())
