"""Source columns that a merge does not use (S22a)."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from trinitymerge.merge.model.clauses import Clause
from trinitymerge.merge.model.names import without_texts
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E

_STAR = re.compile(r"(?:^|[.(,])\s*\*|unresolvedstar|more fields", re.IGNORECASE)
"""All columns at once, or a Column whose text Spark has cut."""

_logger = logging.getLogger(__name__)
_warned: set[tuple[str, frozenset[str]]] = set()


def ignored_columns(
    names: Sequence[str],
    definition: TableDefinition,
    texts: Sequence[str],
    clauses: Sequence[Clause],
    case_sensitive: bool,
) -> tuple[str, ...]:
    """Return the source columns that ``updateAll`` or ``insertAll`` have no place for, and that nothing mentions.

    ``texts`` are those of every condition and value. A merge that takes no column by its name ignores none.
    """
    taken = [a.from_source for c in clauses for a in c.actions if a.from_source and a.from_source.columns is None]
    if not taken or any(_STAR.search(text) for text in texts):
        return ()
    excepted = {name.casefold() for values in taken for name in values.exceptColumns}
    return tuple(
        name
        for name in names
        if E.find_name(name, definition.names, case_sensitive) is None
        and name.casefold() not in excepted
        and not any(mentions(text, name) for text in texts)
    )


def mentions(text: str, name: str) -> bool:
    """Return True if a text contains a column's name as a word, which is not in quotes or the alias of a side."""
    quoted = re.escape(name.replace("`", "``"))
    alias = r"(?!`?\s*\.)" if name.lower() in ("source", "target") else ""
    return re.search(rf"(?<!\w){quoted}(?!\w){alias}", without_texts(text), re.IGNORECASE) is not None


def warn(path: str, columns: Sequence[str]) -> None:
    """Log a warning, once per process, table and set of columns."""
    seen = (path, frozenset(columns))
    if not columns or seen in _warned:
        return
    _warned.add(seen)
    _logger.warning(
        "%s: the merge leaves out source column%s %s: the table has no such column, and nothing in the merge mentions %s. "
        "To keep %s: withSchemaEvolution(), or alter().addColumn(). If this is meant: drop %s from the source, or list %s in "
        "exceptColumns.",
        path,
        "s" if len(columns) > 1 else "",
        ", ".join(columns),
        *(("them",) * 4 if len(columns) > 1 else ("it",) * 4),
    )
