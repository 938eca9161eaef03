"""Which values an action of a merge gives to which columns: from a map, or by their names, as frozen data.

Owns: :class:`Assignments` and :class:`All`, and how they are shown. Knows nothing of Spark: expressions are opaque (SQL text, a
Spark ``Column``, a Python literal, or, in the reference interpreter, a callable) and are never compared with ``==`` when they are
not text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

Expression: TypeAlias = Any
"""SQL text (``str``), a ``pyspark.sql.Column``, or a plain Python literal."""


def comparable(value: Any) -> Any:
    """An equality key that never calls a Column's ``==``, which would build an expression instead of deciding."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return (type(value), value)
    return (type(value), repr(value))


def _comparable_items(items: tuple[tuple[Any, Any], ...]) -> Any:
    return tuple((comparable(k), comparable(v)) for k, v in items)


def _items(assignments: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(assignments.items()) if isinstance(assignments, Mapping) else tuple(assignments)


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Assignments:
    """Explicit assignments: ``((column, expression), ...)`` in the order given."""

    suffix: ClassVar[str] = "Expr"
    items: tuple[tuple[Any, Expression], ...] = attrs.field(converter=_items, eq=_comparable_items)

    @property
    def shown(self) -> str:
        """The columns, as the call names them."""
        return ", ".join(str(column) for column, _ in self.items)

    @property
    def explained(self) -> str:
        """What is written, in words."""
        return self.shown


def _strings_or_none(values: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _flag_or_strings(values: bool | Iterable[str]) -> bool | tuple[str, ...]:
    return values if isinstance(values, bool) else tuple(values)


@attrs.frozen
class All:
    """Every target column from the source column of the same name.

    Attributes:
        exceptColumns: but for these.
        columns: only these, and the primary key; None for all.
        ignoreNulls: of all columns, or of some: where the source has null, an update keeps what is stored.
    """

    suffix: ClassVar[str] = "All"
    exceptColumns: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    columns: tuple[str, ...] | None = attrs.field(default=None, converter=_strings_or_none)
    ignoreNulls: bool | tuple[str, ...] = attrs.field(default=False, converter=_flag_or_strings)

    @property
    def shown(self) -> str:
        """What is not as usual, as the call says it."""
        nulls = self.ignoreNulls
        parts = [
            f"columns: {', '.join(self.columns)}" if self.columns is not None else "",
            f"exceptColumns: {', '.join(self.exceptColumns)}" if self.exceptColumns else "",
            f"ignoreNulls{'' if isinstance(nulls, bool) else ': ' + ', '.join(nulls)}" if nulls else "",
        ]
        return "; ".join(part for part in parts if part)

    @property
    def explained(self) -> str:
        """What is written, in words."""
        which = "all columns" if self.columns is None else ", ".join(self.columns)
        but = f" but {', '.join(self.exceptColumns)}" if self.exceptColumns else ""
        nulls = " that are not null there" if self.ignoreNulls else ""
        return f"{which}{but} from the source{nulls}"


def is_default(value: object) -> bool:
    """True if a value in a map is the word ``DEFAULT``: whatever the column has by default (S46)."""
    return isinstance(value, str) and value.strip().upper() == "DEFAULT"
