"""What is declared about a column that the library puts beside the user's.

Owns: the two kinds of such columns. Which there are stands in :mod:`trinitymerge.columns`.
"""

from __future__ import annotations

from trinitymerge.sqltext import Sql


class TechnicalColumn(Sql):
    """The name of a column, with what is declared about it. As SQL it needs no quotes.

    Attributes:
        type: as SQL, or in words where it is that of another column.
        meaning: of its value in a row.
        added_by: the module that adds it.
        read_by: the other modules that may use it.
    """

    type: str
    meaning: str
    added_by: str
    read_by: tuple[str, ...]


class ColumnFamily(TechnicalColumn):
    """Columns of which there is one per key, watermark or source column."""

    def __call__(self, *numbers: int) -> Sql:
        """The name of one member.

        Example:
            >>> FOUND_WATERMARK(0)
            '_tm_found0'
        """
        return Sql(f"{self}{'_'.join(map(str, numbers))}")
