"""What is declared about a column that the library puts beside the user's.

Owns: the two kinds of such columns, the list of all, and finding them in our SQL. Which there are stands in
:mod:`trinitymerge.columns`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar

from trinitymerge.definition import HIDDEN_PREFIX
from trinitymerge.sqltext import Sql


class TechnicalColumn(Sql):
    """The name of a column, with what is declared about it. As SQL it needs no quotes.

    Attributes:
        type: as SQL, or in words where it is that of another column.
        meaning: of its value in a row.
    """

    type: str
    meaning: str


class ColumnFamily(TechnicalColumn):
    """Columns of which there is one per key, watermark or source column."""

    def __call__(self, *numbers: int) -> Sql:
        """The name of one member.

        Example:
            >>> from trinitymerge.columns import FOUND_WATERMARK
            >>> FOUND_WATERMARK(0)
            '_tm_found0'
        """
        return Sql(f"{self}{'_'.join(map(str, numbers))}")


_C = TypeVar("_C", bound=TechnicalColumn)
DECLARED: list[TechnicalColumn] = []
"""All of them, in the order in which a row meets them."""


def _declare(kind: type[_C], name: str, type: str, meaning: str) -> _C:
    column = kind(HIDDEN_PREFIX + name)
    column.type, column.meaning = type, meaning
    DECLARED.append(column)
    return column


def column(name: str, type: str, meaning: str) -> TechnicalColumn:
    """Declare a column; see :class:`TechnicalColumn`."""
    return _declare(TechnicalColumn, name, type, meaning)


def family(name: str, type: str, meaning: str) -> ColumnFamily:
    """Declare a family of columns; see :class:`ColumnFamily`."""
    return _declare(ColumnFamily, name, type, meaning)


# Names in SQL ---------------------------------------------------------------------------------------------------------


@cache
def _named(columns: int) -> re.Pattern[str]:
    """The names of so many columns: all that have been declared by then."""
    names = (f"{c}[0-9_]+" if isinstance(c, ColumnFamily) else c for c in DECLARED[:columns])
    return re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)", re.ASCII)


def mentioned(*texts: str) -> tuple[str, ...]:
    """The library's columns that SQL of ours names, each once.

    Example:
        >>> from trinitymerge import columns
        >>> mentioned("_tm_changed AND NOT _tm_is_stale", "_tm_changed AND `_tm_deleted`")
        ('_tm_changed', '_tm_is_stale')
    """
    names = _named(len(DECLARED))
    return tuple(dict.fromkeys(name for text in texts for name in names.findall(text)))
