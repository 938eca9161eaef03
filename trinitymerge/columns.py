"""Every column the library puts beside the user's: stored ones, and those that pass from step to step (S5).

Owns: their names, types and meanings, who adds each and who may read it. A test compares that with the code: no other module
makes up such a name, and none uses one that it is not entitled to here. Knows nothing of what the columns are for.
"""

from __future__ import annotations

from typing import TypeVar

from trinitymerge.definition import HIDDEN_PREFIX


class TechnicalColumn(str):
    """The name of a column, with what is declared about it.

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

    def __call__(self, *numbers: int) -> str:
        """The name of one member.

        Example:
            >>> FOUND_WATERMARK(0)
            '_tm_found0'
        """
        return f"{self}{'_'.join(map(str, numbers))}"


_C = TypeVar("_C", bound=TechnicalColumn)
DECLARED: list[TechnicalColumn] = []
"""All of them, in the order in which a row meets them."""


def _declare(kind: type[_C], name: str, type: str, meaning: str, added_by: str, read_by: str) -> _C:
    column = kind(HIDDEN_PREFIX + name)
    column.type, column.meaning, column.added_by, column.read_by = type, meaning, added_by, tuple(read_by.split())
    DECLARED.append(column)
    return column


def _column(name: str, type: str, meaning: str, added_by: str, read_by: str = "") -> TechnicalColumn:
    return _declare(TechnicalColumn, name, type, meaning, added_by, read_by)


def _family(name: str, type: str, meaning: str, added_by: str, read_by: str = "") -> ColumnFamily:
    return _declare(ColumnFamily, name, type, meaning, added_by, read_by)


# Stored in the files of a batch ---------------------------------------------------------------------------------------

# Beside these, tables that declare no tombstone key have a hidden one: HIDDEN_TOMBSTONE of definition.py.
CLAUSE = _column("clause", "INT", "the position, from 1, of the clause that wrote the row", "", "")
EFFECT = _column(
    "effect", "STRING", "what the row means to readers if it is its key's freshest; null if unknown", "", ""
)
SINCE = _column("since", "BIGINT", "in bases: when the tombstone was first committed, ms since the epoch", "", "")
BATCH = _column("batch", "STRING", "the id of the row's batch: the name of its directory", "", "")

# Reading --------------------------------------------------------------------------------------------------------------

VERSION = _column("version", "BIGINT", "the commit version the row counts as", "", "")
RANK = _column("rank", "INT", "the row's place among the rows of its key, freshest first", "", "")
ALL_COLUMNS = _column("all_columns", "INT", "never negative, and takes every column to compute", "", "")
KEY_TO_FIND = _family("find", "the key's", "a key column of what is looked up", "", "")
MARK_KEY = _family("mark_key", "the key's", "a key column of a delta row that replaces a base row", "", "")
MARK_WATERMARK = _family("mark_watermark", "the watermark's", "a watermark column of such a delta row", "", "")

# The sides of a merge -------------------------------------------------------------------------------------------------

ASKED = _column("nothing", "INT", "a column to ask the analyzer about expressions with", "", "")
IN_SOURCE = _column("source", "BOOLEAN", "true on rows of the source, null on rows of the target alone", "", "")
SOURCE_COPY = _family("s", "the source's", "a copy of a source column, whatever the source's alias", "", "")
LIVE = _column("live", "BOOLEAN", "is the joined target row live; false for a tombstone, null if there is none", "", "")
KEY_COPY = _family("key", "the key's", "a key column of the joined target row, of tombstones too", "", "")
BEFORE = _family("w", "the watermark's", "a watermark column of the row that this one replaces", "", "")
LEAST = _family("min", "encoded", "the smallest value of a sought key column", "", "")
MOST = _family("max", "encoded", "the largest value of a sought key column", "", "")

# Which clause applies, and what it writes -----------------------------------------------------------------------------

MATCHED = _column("matched", "INT", "the number of the first true whenMatched clause, 0 if none", "", "")
NOT_MATCHED = _column("not_matched", "INT", "the number of the first true whenNotMatched clause, 0 if none", "", "")
HAS_KEY = _column("has_key", "BOOLEAN", "is no part of the row's key null", "", "")
FIRES = _column("fires", "INT", "the code of what the row fires, 0 if nothing; what filters see", "", "")
FIRED = _column("fired", "INT", "the same, out of the optimizer's sight", "", "")
RAW = _family("v", "the value's", "a value that is checked or used twice, evaluated once", "", "")
FIRING = _column("firing", "BIGINT", "shared by the rows that one clause writes for one pair or target row", "", "")
SLOT = _column("slot", "INT", "which of the program's rows this is; null where nothing is written", "", "")
STANDS_FOR = _column("stands_for", "INT", "the clause that fired, from 1, on one row of each firing; else null", "", "")
ACTION = _column("action", "STRING", "what the row does, in the user's words", "", "")
MISFIT = _column("misfit", "STRING", "the column and text of a value that does not fit; null if all do", "", "")
LATE = _column("late", "BOOLEAN", "of an insert beside an update or delete that stays in place: that is stale", "", "")
NEW_KEY = _family("n", "the key's", "of a row of a moving update: a column of the key it goes to", "", "")
OLD_KEY = _family("o", "the key's", "of a row of a moving update: a column of the key it leaves", "", "")
DIES = _column("dies", "BOOLEAN", "of a row of a moving update: it is a tombstone where it goes", "", "")

# What the written keys hold, and what the rows mean -------------------------------------------------------------------

ANSWERED = _family("answered", "the key's", "a key column of what a probe has found", "", "")
FOUND_LIVE = _column("found_live", "BOOLEAN", "what a probe has found under the written key is a live row", "", "")
FOUND_WATERMARK = _family("found", "the watermark's", "a watermark column of what a probe has found", "", "")
PRE_IMAGE = _family("pre", "the watermark's", "a watermark column of the pre-image of a row that moves", "", "")
CHANGED = _column("changed", "BOOLEAN", "the row's key has changed: it moves", "", "")
IS_STALE = _column("is_stale", "BOOLEAN", "the row is older than what it would replace", "", "")
IS_WITHHELD = _column("is_withheld", "BOOLEAN", "the insert is left out with the late change beside it", "", "")
IS_TORN = _column("is_torn", "BOOLEAN", "the row moves and is changed otherwise, or moves to two places", "", "")
IS_REPEATED = _column("is_repeated", "BOOLEAN", "the row repeats a move that another row makes", "", "")
ARRIVES = _column("arrives", "BOOLEAN", "the row comes to a key that is live", "", "")
FREED_BY_DELETE = _column("freed_by_delete", "BOOLEAN", "the merge deletes the live row at this key", "", "")
FREED_BY_MOVE = _column("freed_by_move", "BOOLEAN", "the merge moves the live row at this key away", "", "")
TAKEN = _column("taken", "BOOLEAN", "another row of the merge arrives at this key", "", "")
KEEP = _column("keep", "BOOLEAN", "the row is written", "", "")
PURGED = _column("purged", "BOOLEAN", "the row would be written but for its purged key", "", "")

# Observing and checking -----------------------------------------------------------------------------------------------

KEY_ROWS = _column("n", "BIGINT", "how many rows of the batch have the row's key", "", "")
SCATTER = _column("scatter", "BIGINT", "spreads rows without a key over the tasks", "", "")
METRICS = _column("metrics", "STRING", "aggregates, as one JSON text", "", "")
DIFFERENT = _column("different", "BIGINT", "how many different rows a key and watermark have", "", "")
DEAD_ROWS = _column("dead", "BIGINT", "how many of these are tombstones", "", "")
THEIR_KEY = _family("k", "the key's", "a key column of the row that a stale one would replace", "", "")
THEIR_WATERMARK = _family("t", "the watermark's", "a watermark column of that row", "", "")
FORGET = _column("forget", "BOOLEAN", "the tombstone is not kept any longer", "", "")
