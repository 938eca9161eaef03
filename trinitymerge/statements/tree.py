"""Statements as frozen data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs

from trinitymerge.errors import SqlError
from trinitymerge.merge.model.clauses import Assignments, Clause


def place(text: str, offset: int) -> tuple[int, int]:
    r"""Return the line and the column of an offset, both from 1.

    Example:
        >>> place("MERGE INTO t\nUSING s", 13)
        (2, 1)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def sql_error(text: str, offset: int, message: str, near: str = "") -> SqlError:
    """Return an error at an offset of a statement, with its remedy; ``near`` is the text there, to show it.

    Example:
        >>> print(sql_error("DELETE orders", 7, "FROM is missing.", "orders"))
        Line 1, column 8, at 'orders': FROM is missing.
    """
    line, column = place(text, offset)
    shown = near if len(near) <= 40 else f"{near[:37]}..."
    at = f", at '{shown}'" if shown else ", at the end" if not text[offset:].strip() else ""
    return SqlError(f"Line {line}, column {column}{at}: {message}", line=line, column=column, near=near)


PATHS = "trinity"
"""The qualifier of a path in backticks."""


@attrs.frozen
class Reference:
    """A name of a table in a statement, without backticks.

    Attributes:
        end: offset after the name and its version clause.
        alias_at: offset for an alias if the name is replaced; None if it has an alias.
    """

    parts: tuple[str, ...]
    start: int = attrs.field(default=0, eq=False)
    end: int = attrs.field(default=0, eq=False)
    version: int | None = None
    timestamp: str | None = None
    alias_at: int | None = attrs.field(default=None, eq=False)

    @property
    def name(self) -> str:
        """All parts, with dots.

        Example:
            >>> Reference(("shop", "orders")).name
            'shop.orders'
        """
        return ".".join(self.parts)

    @property
    def is_past(self) -> bool:
        return self.version is not None or self.timestamp is not None

    @property
    def path(self) -> str | None:
        """The path of ``trinity.`/tables/orders` ``; None for other names."""
        return self.parts[1] if len(self.parts) == 2 and self.parts[0].lower() == PATHS else None


@attrs.frozen
class Ctes:
    """The common table expressions before a statement: their offsets and names."""

    start: int = 0
    end: int = 0
    names: tuple[str, ...] = ()


@attrs.frozen
class Query:
    """A query in a statement, whose text has blanks outside of the query, so that offsets are those of the statement."""

    text: str
    references: tuple[Reference, ...] = ()
    alias: str | None = None


@attrs.frozen
class Column:
    """The name of a column without backticks, and its offset."""

    name: str
    at: int = attrs.field(default=0, eq=False)


def _columns(values: Iterable[Column] | None) -> tuple[Column, ...] | None:
    return None if values is None else tuple(values)


@attrs.frozen
class MergeInto:
    """``MERGE INTO``; ``inner`` are the tables of subqueries in conditions and values, ``places`` the offsets of the clauses."""

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
    target: Reference
    alias: str | None
    values: Assignments
    condition: str | None = None
    inner: tuple[Reference, ...] = ()


@attrs.frozen
class DeleteFrom:
    target: Reference
    alias: str | None
    condition: str | None = None
    inner: tuple[Reference, ...] = ()


@attrs.frozen
class InsertInto:
    """``INSERT INTO`` some columns in order; None is all."""

    target: Reference
    source: Query
    columns: tuple[Column, ...] | None = attrs.field(default=None, converter=_columns)
    by_name: bool = False


@attrs.frozen
class Select:
    query: Query


Statement: TypeAlias = MergeInto | UpdateTable | DeleteFrom | InsertInto | Select
