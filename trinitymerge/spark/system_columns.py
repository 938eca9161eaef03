"""Every column the library adds beside the user's: name, type and meaning (S5)."""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar

from trinitymerge.schema.definition import HIDDEN_PREFIX
from trinitymerge.spark.sql_text import Sql


class SystemColumn(Sql):
    """The name of a column, with what is declared about it. As SQL it needs no quotes.

    Attributes:
        type: as SQL, or in words where it is that of another column.
        meaning: of its value in a row.
    """

    type: str
    meaning: str


class ColumnFamily(SystemColumn):
    """Columns of which there is one per key, watermark or source column."""

    def __call__(self, *numbers: int) -> Sql:
        """The name of one member.

        Example:
            >>> from trinitymerge.spark.system_columns import FOUND_WATERMARK
            >>> FOUND_WATERMARK(0)
            '_tm_found0'
        """
        return Sql(f"{self}{'_'.join(map(str, numbers))}")


_C = TypeVar("_C", bound=SystemColumn)
DECLARED: list[SystemColumn] = []
"""All of them, in the order in which a row meets them."""


def _declare(kind: type[_C], name: str, type: str, meaning: str) -> _C:
    column = kind(HIDDEN_PREFIX + name)
    column.type, column.meaning = type, meaning
    DECLARED.append(column)
    return column


def column(name: str, type: str, meaning: str) -> SystemColumn:
    """Declare a column; see :class:`SystemColumn`."""
    return _declare(SystemColumn, name, type, meaning)


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
        >>> from trinitymerge.spark import system_columns
        >>> mentioned("_tm_changed AND NOT _tm_is_stale", "_tm_changed AND `_tm_deleted`")
        ('_tm_changed', '_tm_is_stale')
    """
    names = _named(len(DECLARED))
    return tuple(dict.fromkeys(name for text in texts for name in names.findall(text)))


# Stored in the files of a batch ---------------------------------------------------------------------------------------

# Beside these, tables that declare no tombstone key have a hidden one: HIDDEN_TOMBSTONE of schema/definition.py.
CLAUSE = column("clause", "INT", "the position, from 1, of the clause that wrote the row")
EFFECT = column("effect", "STRING", "what the row means to readers if it is its key's freshest; null if unknown")
SINCE = column(
    "since",
    "BIGINT",
    "in rewritten batches: when the tombstone was first committed, ms since the epoch; in tables with history, of every row",
)
UNTIL = column(
    "until",
    "the first watermark's, or BIGINT",
    "in settled archives: where the version ends; without a declared watermark ms since the epoch",
)
ENDED = column(
    "ended", "BIGINT", "in settled archives: when the row that ends the version was committed, ms since the epoch"
)
BATCH = column("batch", "STRING", "the id of the row's batch: the name of its directory")

SEQUENCE = column("sequence", "BIGINT", "in tables of Iceberg's: the version that committed the row")

NO_COLUMN = column("none", "INT", "no column of any table, where SQL must have one")

# Reading --------------------------------------------------------------------------------------------------------------

VERSION = column("version", "BIGINT", "the commit version the row counts as")
RANK = column("rank", "INT", "the row's place among the rows of its key, freshest first")
TOUCH_ALL = column("touch_all", "INT", "never negative, and takes every column to compute")
KEY_TO_FIND = family("find", "the key's", "a key column of what is looked up")
RANK_IN_SOURCE = column(
    "rank_in_source", "INT", "the row's place, in the user's order, among those of its key and watermark"
)
DELTA_KEY = family("delta_key", "the key's", "a key column of a row that replaces others")
DELTA_WATERMARK = family("delta_watermark", "the watermark's", "a watermark column of such a row")
DELTA_VERSION = column("delta_version", "BIGINT", "the commit version of such a row")

# Comparing two versions -----------------------------------------------------------------------------------------------

KEY_TO_COMPARE = family("compared", "the key's", "a key column of a row of either version")
STORED_ROW = column("stored", "STRUCT", "the stored columns, and the version the row counts as")
PRECEDENCE = column("precedence", "STRUCT", "the effective watermark; the largest one's row is the latest")
IN_BEFORE = column("in_before", "BOOLEAN", "the row is stored in the earlier version")
IN_AFTER = column("in_after", "BOOLEAN", "the row is stored in the later version")
LATEST_BEFORE = column("before", "STRUCT", "the latest row of the key in the earlier version; null if none")
LATEST_AFTER = column("after", "STRUCT", "the latest row of the key in the later version; null if none")
CHANGE = column("change", "STRUCT", "one row of a change and the change's type")
CHANGED_IN = column("changed_in", "BIGINT", "the version of the commit that made the change; null if unknown")

# Explaining which row of a key holds ----------------------------------------------------------------------------------

WINNER = column("winner", "STRUCT", "watermark and version of the key's latest row")
RUNNER_UP = column("runner_up", "STRUCT", "those of the next row, null on the last")
# Versions of a key in the order of their time ---------------------------------------------------------------------------

NEXT = column("next", "STRUCT", "watermark and commit of the key's next row, null on the last")
IS_ENDED = column("is_ended", "BOOLEAN", "something ends the version")
GROUP = column(
    "group",
    "BIGINT, then the first watermark's",
    "shared by versions that do not differ in what is tracked; then where the first of them begins",
)
LAST_OF_RUN = column("last_of_run", "BOOLEAN", "the next version of the key differs in what is tracked")
SOURCE_ARCHIVE = column(
    "source_archive", "BIGINT", "the version of the settled archive the row is from, null elsewhere"
)

# The sides of a merge -------------------------------------------------------------------------------------------------

DUMMY = column("dummy", "INT", "a column to ask the analyzer about expressions with")
ASKED_FOR = family("e", "the expression's", "an expression that the analyzer is asked about")
IN_SOURCE = column("source", "BOOLEAN", "true on rows of the source, null on rows of the target alone")
SOURCE_COPY = family("s", "the source's", "a copy of a source column, whatever the source's alias")
SOURCE_ROW = column("row", "BIGINT", "the number of the source row")
PAIRED_ROW = column("paired", "BIGINT", "the number of the source row that a target row pairs with")
LIVE = column(
    "live",
    "BOOLEAN",
    "true if the joined target row is live, false if it is a tombstone, null if there is none; after the step ``meet``, the "
    "same of what the written key holds, never null; where the target is not looked at, as the source tells it",
)
KEY_COPY = family("key", "the key's", "a key column of the joined target row, of tombstones too")
BEFORE = family(
    "w",
    "the watermark's",
    "a watermark column of the joined target row; after the step ``meet``, of the row that this one replaces; where the target "
    "is not looked at, as the source tells it",
)

# Which clause applies, and what it writes -----------------------------------------------------------------------------

MATCHED = column("matched", "INT", "the number of the first true whenMatched clause, 0 if none")
NOT_MATCHED = column("not_matched", "INT", "the number of the first true whenNotMatched clause, 0 if none")
HAS_KEY = column("has_key", "BOOLEAN", "no part of the row's key is null")
FIRED_BY = family(
    "by", "INT", "where clauses are tried one kind after the other: the code of what one kind fires, null on other rows"
)
TARGET_ROW = column("target", "STRUCT", "the target row, out of the way of clauses that do not see it")
FIRES = column("fires", "INT", "the code of what the row fires, 0 if nothing; what filters see")
FIRED = column(
    "fired",
    "INT",
    "the code of what the row fires, out of the optimizer's sight; 0 if nothing, -1 where that depends on an unread target",
)
RAW = family("v", "the value's", "a value that is checked or used twice, evaluated once")
FIRING = column("firing", "BIGINT", "shared by the rows that one clause writes for one pair or target row")
SLOT = column(
    "slot",
    "INT",
    "which of the program's rows this is; where the target is unread also -1 if that depends on it, and null if none",
)
COUNTS_FOR_CLAUSE = column(
    "counts_for_clause",
    "INT",
    "the clause that fired, from 1, on one row of each firing; where the target is unread -1 if undecided; else null",
)
ACTION = column("action", "STRING", "what the row does, in the user's words")
MISFIT = column("misfit", "STRING", "the column and text of a value that does not fit; null if all do")
IS_STALE_CHANGE = column(
    "is_stale_change", "BOOLEAN", "of an insert beside an update or delete that stays in place: that is stale"
)
NEW_KEY = family("n", "the key's", "of a row of a moving update: a column of the key it goes to")
OLD_KEY = family("o", "the key's", "of a row of a moving update: a column of the key it leaves")
BECOMES_TOMBSTONE = column(
    "becomes_tombstone", "BOOLEAN", "of a row of a moving update: it is a tombstone where it goes"
)

# What the written keys hold, and what the rows mean -------------------------------------------------------------------

LOOKUP_KEY = family("lookup_key", "the key's", "a key column of what a probe has found")
FOUND_LIVE = column("found_live", "BOOLEAN", "what a probe has found under the written key is a live row")
FOUND_WATERMARK = family("found", "the watermark's", "a watermark column of what a probe has found")
PRE_IMAGE = family(
    "pre",
    "the watermark's",
    "where rows may move: a watermark column of the joined target row, whatever the written key holds",
)
CHANGED = column("changed", "BOOLEAN", "the row's key has changed: it moves")
IS_STALE = column("is_stale", "BOOLEAN", "it is older than what it would replace")
IS_WITHHELD = column("is_withheld", "BOOLEAN", "the insert is left out with the late change beside it")
IS_TORN = column("is_torn", "BOOLEAN", "the row moves and is changed otherwise, or moves to two places")
IS_REPEATED = column("is_repeated", "BOOLEAN", "the row repeats a move that another row makes")
ARRIVES = column("arrives", "BOOLEAN", "the row comes to a key that is live")
FREED_BY_DELETE = column("freed_by_delete", "BOOLEAN", "the merge deletes the live row at this key")
FREED_BY_MOVE = column("freed_by_move", "BOOLEAN", "the merge moves the live row at this key away")
KEY_TAKEN = column("key_taken", "BOOLEAN", "another row of the merge arrives at this key")
KEEP = column("keep", "BOOLEAN", "the row is written")
PURGED = column("purged", "BOOLEAN", "the row would be written but for its purged key")

# Observing and checking -----------------------------------------------------------------------------------------------

UNCHANGED = column(
    "unchanged", "BOOLEAN", "of an update that asks for it: it is not stale, and nothing of the target row would change"
)
KEY_CHANGES = column("key_changes", "BOOLEAN", "some row of the key is written that changes something")
KEY_ROWS = column("key_rows", "BIGINT", "how many rows of the batch have the row's key")
SALT = column("salt", "BIGINT", "spreads rows without a key")
METRICS = column("metrics", "STRING", "aggregates, as one JSON text")
DIFFERENT = column("different", "BIGINT", "how many different rows a key and watermark have")
DEAD_ROWS = column("dead", "BIGINT", "how many of these are tombstones")
REPLACED_KEY = family("k", "the key's", "a key column of the row that a stale one would replace")
REPLACED_WATERMARK = family("t", "the watermark's", "a watermark column of that row")
IS_EXPIRED = column("is_expired", "BOOLEAN", "the tombstone is not kept any longer")

# Rows for other tables -------------------------------------------------------------------------------------------------

JOINED_ROWS = column(
    "joined_rows",
    "STRUCT",
    "of a row that replaces another one, in a clause with history inserts: that row, and the source row beside it",
)
WRITTEN = column("written", "STRUCT", "all other columns, out of the way of the maps")
RAW_OUTBOX_VALUE = family("hv", "the value's", "a value of a row for another table")
OUTBOX_VALUE = family(
    "history",
    "STRUCT",
    "a row for another table, with the key of the row it is about and what does not fit; null if there is none",
)
ORIGIN_KEY = column("origin_key", "STRUCT", "the key of that row")
OUTBOX_ROW = column("outbox_row", "STRUCT", "a row for another table; stored beside that key")
