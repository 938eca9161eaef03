"""What scenarios of tables with history are made of: tables, steps, and what must come of them. See ``histories.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from trinitymerge.merge.model.clauses import Clause
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model.expressions import Expr

Values: TypeAlias = tuple[Any, ...]

DEAD = True
"""In the tombstone column."""

PAST, NOW = False, True
"""In the column that says whether a version is current."""


@attrs.frozen
class Committed:
    """In place of a time: when this version of the table was committed."""

    version: int


# Tables ---------------------------------------------------------------------------------------------------------------


def _table(columns: str, watermarkKey: tuple[str, ...] | str | None) -> TableDefinition:
    return TableDefinition.of(_fields(columns), "id", watermarkKey, "deleted", history=True)


def _fields(columns: str) -> tuple[Field, ...]:
    return tuple(Field(*column.split(":")) for column in columns.split())


ONE = _table("id:integer ts:integer v:string deleted:boolean", "ts")
NO_WATERMARK = _table("id:integer v:string deleted:boolean", None)
TWO = _table("id:integer day:integer seq:integer v:string deleted:boolean", ("day", "seq"))
PEOPLE = _table("id:integer ts:integer city:string phone:string deleted:boolean", "ts")


ORDINARY = attrs.evolve(ONE, history=False)


# Steps ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Commit:
    """Rows of the table's columns, appended as they are."""

    rows: tuple[Values, ...]

    @classmethod
    def of(cls, *rows: Values) -> Commit:
        return cls(rows)


@attrs.frozen
class Source:
    """Rows that are fed: ``columns`` as in ``"id:integer op:string"``, and tuples of their values."""

    columns: str
    rows: tuple[Values, ...]

    @classmethod
    def of(cls, columns: str, *rows: Values) -> Source:
        return cls(columns, rows)

    @property
    def fields(self) -> tuple[Field, ...]:
        return _fields(self.columns)

    @property
    def mappings(self) -> list[dict[str, Any]]:
        names = [field.name for field in self.fields]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@attrs.frozen
class Merge:
    """A merge by key equality; its expressions are ``Expr`` over A, the table, and B, the source.

    Attributes:
        options: ``at`` and ``onStale``.
    """

    source: Source
    clauses: tuple[Clause, ...]
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class UpdateWhere:
    """``updateWhere``; options as for merges."""

    condition: Expr
    values: Mapping[str, Expr]
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class DeleteWhere:
    """``deleteWhere``; options as for merges."""

    condition: Expr
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Changes:
    """``applyChanges``; its expressions are ``Expr`` over the source's columns, without an alias."""

    source: Source
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Snapshot:
    """``snapshot``."""

    source: Source
    at: Any
    missing: str = "delete"


@attrs.frozen
class Refused:
    """A step that is refused and changes nothing."""

    step: Merge | UpdateWhere | DeleteWhere | Changes | Snapshot
    error: type[Exception]


Step: TypeAlias = Commit | Merge | UpdateWhere | DeleteWhere | Changes | Snapshot | Refused


# Scenarios ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Scenario:
    """Steps on an empty table and what is there after them.

    Attributes:
        name: says what it is about.
        definition: of the table.
        steps: in order.
        versions: in order, each with the values of ``columns``, ``validFrom``, ``validTo`` and ``isCurrent``; where the table
            keeps no history, the live rows, with the values of ``columns``.
        columns: which of the user's columns they show.
        options: of ``versions()``.
        asOf: moments, and the values of ``columns`` in the rows that hold then.
    """

    name: str
    definition: TableDefinition
    steps: tuple[Step, ...] = attrs.field(converter=tuple)
    versions: tuple[Values, ...] = attrs.field(converter=tuple)
    columns: tuple[str, ...] = ("id", "v")
    options: Mapping[str, Any] = attrs.field(factory=dict)
    asOf: tuple[tuple[Any, tuple[Values, ...]], ...] = ()

    def rows_of(self, step: Commit) -> list[dict[str, Any]]:
        """The rows of a commit as mappings."""
        alive = dict.fromkeys(self.definition.names) | {"deleted": False}
        return [alive | dict(zip(self.definition.names, row, strict=False)) for row in step.rows]

    def expected(self, time: Callable[[int], Any]) -> list[Values]:
        """``versions`` with the times of commits in place of :class:`Committed`.

        Args:
            time: of a version of the table.
        """
        return [tuple(time(x.version) if isinstance(x, Committed) else x for x in row) for row in self.versions]
