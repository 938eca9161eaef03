"""Statements as frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from trinitymerge.errors import SqlError
from trinitymerge.merge.model.clauses import Assignments, Clause


def place(text: str, offset: int) -> tuple[int, int]:
    r"""The line and the column of an offset, both counted from 1.

    Example:
        >>> place("MERGE INTO t\nUSING s", 13)
        (2, 1)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def sql_error(text: str, offset: int, message: str, near: str = "") -> SqlError:
    """An error about a place in a statement.

    Args:
        text: the statement.
        offset: of what is wrong.
        message: what is wrong with it, and what to do.
        near: what stands there, if that helps.

    Example:
        >>> print(sql_error("DELETE orders", 7, "FROM is missing.", "orders"))
        Line 1, column 8, at 'orders': FROM is missing.
    """
    line, column = place(text, offset)
    shown = near if len(near) <= 40 else f"{near[:37]}..."
    at = f", at '{shown}'" if shown else ", at the end" if not text[offset:].strip() else ""
    return SqlError(f"Line {line}, column {column}{at}: {message}", line=line, column=column, near=near)


PATHS = "trinity"
"""The word before a path in backticks."""


@attrs.frozen
class Reference:
    """A table by its name, as a statement has it.

    Attributes:
        parts: of the name, without backticks.
        start: offset of the name.
        end: offset behind it, and behind the version that is asked for.
        version: ``VERSION AS OF``.
        timestamp: ``TIMESTAMP AS OF``.
        alias_at: where an alias must be added to a query if something else takes the place of the name; None if it has one.
    """

    parts: tuple[str, ...]
    start: int = attrs.field(default=0, eq=False)
    end: int = attrs.field(default=0, eq=False)
    version: int | None = None
    timestamp: str | None = None
    alias_at: int | None = attrs.field(default=None, eq=False)

    @property
    def name(self) -> str:
        """All parts.

        Example:
            >>> Reference(("shop", "orders")).name
            'shop.orders'
        """
        return ".".join(self.parts)

    @property
    def is_past(self) -> bool:
        """True if a version is asked for."""
        return self.version is not None or self.timestamp is not None

    @property
    def path(self) -> str | None:
        """The path that it may be, as in ``trinity.`/tables/orders` ``."""
        return self.parts[1] if len(self.parts) == 2 and self.parts[0].lower() == PATHS else None


@attrs.frozen
class Ctes:
    """The common table expressions before a statement: where they are, and their names."""

    start: int = 0
    end: int = 0
    names: tuple[str, ...] = ()


@attrs.frozen
class Query:
    """A query in a statement.

    Attributes:
        text: as long as the statement: all that is no part of the query is blank, so that places are the statement's.
        references: the tables it names.
        alias: of its rows as the source of a merge; None if they have none.
    """

    text: str
    references: tuple[Reference, ...] = ()
    alias: str | None = None


@attrs.frozen
class Column:
    """A column by its name, without backticks, and where it stands."""

    name: str
    at: int = attrs.field(default=0, eq=False)


def _columns(values: Iterable[Column] | None) -> tuple[Column, ...] | None:
    return None if values is None else tuple(values)


@attrs.frozen
class MergeInto:
    """``MERGE INTO``.

    Attributes:
        target: the table.
        alias: its alias.
        source: the query that gives the source.
        condition: as it is written.
        clauses: in their order.
        evolves: ``WITH SCHEMA EVOLUTION``.
        inner: tables that queries in conditions and values name.
        places: where each clause begins.
    """

    target: Reference
    alias: str | None
    source: Query
    condition: str
    clauses: tuple[Clause, ...]
    evolves: bool = False
    inner: tuple[Reference, ...] = ()
    places: tuple[int, ...] = attrs.field(default=(), eq=False)


@attrs.frozen
class UpdateTable:
    """``UPDATE``."""

    target: Reference
    alias: str | None
    values: Assignments
    condition: str | None = None
    inner: tuple[Reference, ...] = ()


@attrs.frozen
class DeleteFrom:
    """``DELETE FROM``."""

    target: Reference
    alias: str | None
    condition: str | None = None
    inner: tuple[Reference, ...] = ()


@attrs.frozen
class InsertInto:
    """``INSERT INTO``.

    Attributes:
        columns: what the query's columns are, in this order; None for those of the table.
        by_name: the query's columns go by their names.
    """

    target: Reference
    source: Query
    columns: tuple[Column, ...] | None = attrs.field(default=None, converter=_columns)
    by_name: bool = False


@attrs.frozen
class AlterCall:
    """A call of an alteration: its name, what it is given, and where the statement says so."""

    call: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = attrs.field(factory=dict)
    at: int = attrs.field(default=0, eq=False)


@attrs.frozen
class AlterTable:
    """``ALTER TABLE`` and ``COMMENT ON TABLE``."""

    target: Reference
    calls: tuple[AlterCall, ...]


@attrs.frozen
class Describe:
    """``DESCRIBE``.

    Attributes:
        target: the table.
        what: ``"HISTORY"``, ``"DETAIL"``, ``"EXTENDED"``, or empty for the columns alone.
    """

    target: Reference
    what: str = ""


@attrs.frozen
class Select:
    """A query."""

    query: Query


Statement: TypeAlias = MergeInto | UpdateTable | DeleteFrom | InsertInto | AlterTable | Describe | Select
