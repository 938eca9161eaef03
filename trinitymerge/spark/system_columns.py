"""The system columns: name, type and meaning of each (S5)."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import TypeVar

from trinitymerge.schema.definition import HIDDEN_PREFIX
from trinitymerge.spark.sql_text import Sql


class SystemColumn(Sql):
    """The name of a system column, which SQL needs not quote; its ``type`` is SQL, or words where another column determines it."""

    type: str
    meaning: str


class ColumnFamily(SystemColumn):
    """System columns of which there is one for each key, watermark or source column."""

    def __call__(self, *numbers: int) -> Sql:
        """Return the name of one member.

        Example:
            >>> from trinitymerge.spark.system_columns import FOUND_WATERMARK
            >>> FOUND_WATERMARK(0)
            '_tm_found0'
        """
        return Sql(f"{self}{'_'.join(map(str, numbers))}")

    def all(self, named: Sized) -> list[Sql]:
        """Return the names of as many members as there are ``named`` columns."""
        return [self(i) for i in range(len(named))]

    def of(self, values: Iterable[Sql]) -> list[str]:
        """Return the select items that give the first members some values."""
        return [f"{value} AS {self(i)}" for i, value in enumerate(values)]


_C = TypeVar("_C", bound=SystemColumn)
DECLARED: list[SystemColumn] = []


def _declare(kind: type[_C], name: str, type: str, meaning: str) -> _C:
    column = kind(HIDDEN_PREFIX + name)
    column.type, column.meaning = type, meaning
    DECLARED.append(column)
    return column


def column(name: str, type: str, meaning: str) -> SystemColumn:
    return _declare(SystemColumn, name, type, meaning)


def family(name: str, type: str, meaning: str) -> ColumnFamily:
    return _declare(ColumnFamily, name, type, meaning)


# Stored in the files of a batch. Tables without a tombstone key also have HIDDEN_TOMBSTONE of schema/definition.py.

CLAUSE = column("clause", "INT", "the position, from 1, of the clause that wrote the row")
EFFECT = column("effect", "STRING", "the effect of the row if it is the latest of its key; null if unknown")
SINCE = column("since", "BIGINT", "in rewritten batches: the commit time in ms of tombstones; with history of all rows")
UNTIL = column("until", "the first watermark's, or BIGINT", "in resolved archives: the end of the row version, else ms")
ENDED = column("ended", "BIGINT", "in resolved archives: the commit time in ms of the row that ends the row version")
UNSET = column(
    "unset", "MAP<STRING, ARRAY<STRING>>", "columns that the row leaves unset, each with the watermark of its value"
)
BATCH = column("batch", "STRING", "the id of the row's batch: the name of its directory")
SEQUENCE = column("sequence", "BIGINT", "in Iceberg tables: the version that committed the row")
MARKED_IN = column("marked_in", "STRING", "in files of deletion vectors: the batch of the marked rows")
MARKED_FILE = column("marked_file", "STRING", "in files of deletion vectors: the name of the file of the marked rows")
MARKED_SIZE = column("marked_size", "BIGINT", "in files of deletion vectors: its size")
WORDS = column("words", "ARRAY<BIGINT>", "in files of deletion vectors: a bit for each row of the file")
NO_COLUMN = column("none", "INT", "not a column of any table, where SQL needs one")

# Reading

VERSION = column("version", "BIGINT", "the commit version of the row")
RANK = column("rank", "INT", "the rank of the row within its key, the latest first")
KEY_TO_FIND = family("find", "the key's", "a key column of a lookup")
RANK_IN_SOURCE = column("rank_in_source", "INT", "the rank within the key and watermark, in the user's order")
DELTA_KEY = family("delta_key", "the key's", "a key column of a delta row")
DELTA_WATERMARK = family("delta_watermark", "the watermark's", "a watermark column of a delta row")
ROW_IN_FILE = column("row_in_file", "BIGINT", "the number of the row in its file, from 0")
FILE_OF_ROW = column("file_of_row", "STRING", "the name of the row's file")
SIZE_OF_FILE = column("size_of_file", "BIGINT", "its size in bytes")
FILE_HASH = column("file_hash", "BIGINT", "a hash of the name of a file and of its batch")
WORD_IN_FILE = column("word_in_file", "INT", "the number of a word of a deletion vector, from 0")
WORD = column("word", "BIGINT", "a bit for each of 64 rows of a file")
DELTA_PLACE = family(
    "delta_place", "BIGINT", "of a delta row: the commit version; then its file and its number in the file"
)

# Comparing two versions

KEY_TO_COMPARE = family("compared", "the key's", "a key column of a row of either version")
STORED_ROW = column("stored", "STRUCT", "the stored columns and the commit version")
PRECEDENCE = column("precedence", "STRUCT", "the effective watermark; the largest is the latest row")
IN_BEFORE = column("in_before", "BOOLEAN", "the earlier version stores the row")
IN_AFTER = column("in_after", "BOOLEAN", "the later version stores the row")
LATEST_BEFORE = column("before", "STRUCT", "the latest row of the key in the earlier version; null if none")
LATEST_AFTER = column("after", "STRUCT", "the latest row of the key in the later version; null if none")
CHANGE = column("change", "STRUCT", "a row of a change, and the type of the change")
CHANGED_IN = column("changed_in", "BIGINT", "the version of the commit that made the change; null if unknown")

# Explaining the latest row of a key

WINNER = column("winner", "STRUCT", "watermark and version of the key's latest row")
RUNNER_UP = column("runner_up", "STRUCT", "watermark and version of the next row; null on the last")

# Row versions of a key

NEXT = column("next", "STRUCT", "watermark and commit of the key's next row; null on the last")
IS_ENDED = column("is_ended", "BOOLEAN", "the row version has an end")
GROUP = column("group", "BIGINT, then the first watermark's", "the same for equal tracked values; then its start")
LAST_OF_RUN = column("last_of_run", "BOOLEAN", "the next row version of the key has other tracked values")
SOURCE_ARCHIVE = column("source_archive", "BIGINT", "the version of the row's resolved archive; null elsewhere")

# Source and target of a merge

DUMMY = column("dummy", "INT", "a column of a relation that the analyzer needs")
ASKED_FOR = family("e", "the expression's", "an expression to analyze")
IN_SOURCE = column("source", "BOOLEAN", "true on source rows, null on rows of the target alone")
SOURCE_COPY = family("s", "the source's", "a copy of a source column")
SOURCE_ROW = column("row", "BIGINT", "the number of the source row")
SOURCE_COLUMNS = column("source_columns", "STRUCT", "the columns of the source row; only with a quarantine")
PAIRED_ROW = column("paired", "BIGINT", "the number of the source row that a target row matches")
LIVE = column("live", "BOOLEAN", "the joined target row is live, null if none")
KEY_COPY = family("key", "the key's", "a key column of the joined target row, tombstones included")
BEFORE = family("w", "the watermark's", "a watermark column of the joined target row")

# Which clause matches, and its rows

MATCHED = column("matched", "INT", "the number of the first true whenMatched clause, 0 if none")
NOT_MATCHED = column("not_matched", "INT", "the number of the first true whenNotMatched clause, 0 if none")
HAS_KEY = column("has_key", "BOOLEAN", "no key column of the row is null")
FIRED_BY = family("by", "INT", "the code of the firing of one kind of clause; null on other rows")
TARGET_ROW = column("target", "STRUCT", "the target row, hidden from clauses that do not see it")
FIRES = column("fires", "INT", "the code of the row's firing, 0 if none; visible to filters")
FIRED = column("fired", "INT", "that code, opaque to the optimizer; -1 if it depends on an unread target")
RAW = family("v", "the value's", "a value that is used twice, evaluated once")
FIRING = column("firing", "BIGINT", "a number that the rows share which a clause writes for a pair or target row")
SLOT = column("slot", "INT", "the number of the output row; -1 if it depends on an unread target, null if none")
COUNTS_FOR_CLAUSE = column("counts_for_clause", "INT", "the clause, from 1, on one row of each firing; -1 if undecided")
ACTION = column("action", "STRING", "the effect of the row, in the user's words")
MISFIT = column("misfit", "STRING", "the column and text of a value that does not fit; null if all do")
IS_STALE_CHANGE = column("is_stale_change", "BOOLEAN", "on an insert: the update or delete of its pair is stale")
NEW_KEY = family("n", "the key's", "a column of the key to which an update moves the row")
OLD_KEY = family("o", "the key's", "a column of the key from which an update moves the row")
BECOMES_TOMBSTONE = column("becomes_tombstone", "BOOLEAN", "a moved row is a tombstone under its new key")

# The rows under the written keys, and the effects

LOOKUP_KEY = family("lookup_key", "the key's", "a key column of a row that a lookup found")
FOUND_LIVE = column("found_live", "BOOLEAN", "the row that a lookup found under the written key is live")
FOUND_WATERMARK = family("found", "the watermark's", "a watermark column of a row that a lookup found")
KEY_LIVE = column("key_live", "BOOLEAN", "the row stored under the written key is live, as the lookup found it")
KEY_WATERMARK = family("kw", "the watermark's", "a watermark column of that row; of a move: of the fresher of its two")
CHANGED = column("changed", "BOOLEAN", "the row's key has changed: it moves")
IS_STALE = column("is_stale", "BOOLEAN", "the row is older than the row that it would replace")
IS_SUPPRESSED = column("suppressed", "BOOLEAN", "the insert is skipped with the late change of its pair")
IS_CONFLICTING_MOVE = column(
    "conflicting_move", "BOOLEAN", "the row moves and also changes otherwise, or moves to two keys"
)
IS_REPEATED = column("is_repeated", "BOOLEAN", "another row makes the same move")
ARRIVES = column("arrives", "BOOLEAN", "the row's new key is live")
FREED_BY_DELETE = column("freed_by_delete", "BOOLEAN", "a change that is not stale deletes the live row of this key")
FREED_BY_MOVE = column("freed_by_move", "BOOLEAN", "a change that is not stale moves the live row of this key away")
KEY_TAKEN = column("key_taken", "BOOLEAN", "a row that is not stale, this one or another, arrives at this key")
KEEP = column("keep", "BOOLEAN", "the row is written")
MOVES = column("moves", "BOOLEAN", "the event says that the key of its row has changed")
DELETED_HERE = column(
    "deleted_here", "STRUCT", "of the deletes at one place of a feed: the place, a key, whether all have it"
)
OLD_KEYS = column("old_keys", "ARRAY<ARRAY<STRING>>", "the purged keys, beside each row")
PURGED = column("purged", "BOOLEAN", "the row is skipped because its key was purged")
NEXT_TRUNCATE = column("next_truncate", "STRUCT", "the watermark of the truncate that ends a late row, null on others")
HELD_HERE = column("held_here", "ARRAY<STRUCT>", "the watermarks of the rows of the key that the merge writes")
HELD = column("held", "ARRAY<STRUCT>", "the watermarks of the stored rows of the key that are at a truncate")
ENDING = column("ending", "INT", "1 on the tombstone that ends a late row at a truncate, 0 on other rows")
TRUNCATED = column("truncated", "BOOLEAN", "the row is skipped because it is older than the last truncate")
PURGED_HASH = column("purged_hash", "STRING", "the hash of a purged key")

MENDED = column("mended", "BOOLEAN", "a stored row, written again because a late row sets what it leaves unset")
FILLERS = column(
    "fillers", "ARRAY", "the places of the rows that a mended row takes values from; only with a quarantine"
)
FILLER = column("filler", "STRUCT", "one of these places")
UNKNOWN = column("unknown", "INT", "how many columns the row leaves unchanged that no row has set")

# The rows of a key in order: merge/compile/key_timeline.py has a table of them

ROW_KEY = family("row_key", "the key's", "a key column of a row")
ROW_WATERMARK = family("row_watermark", "the watermark's", "a watermark column of it")
KIND = column("kind", "INT", "what the row is: of an old key, a truncate, stored, or to write")
IS_DEAD = column("is_dead", "BOOLEAN", "the row deletes its key")
VALUE = family("value", "the part's", "the value of a part in the row itself")
SET_AT = family(
    "set_at", "STRUCT", "the author of that value, and the kind of the row; of an unset part its register, or null"
)
ROW_TO_WRITE = column("row_to_write", "STRUCT", "the columns of a row to write; null on other rows")
ROW_AS_STORED = column("row_as_stored", "STRUCT", "the columns of a stored row; null on other rows")
TRUNCATED_AT = column("truncated_at", "STRUCT", "of a truncate: when it sets all parts, as SET_AT")
PLACE = column("place", "INT", "the place of the row in its key, from 1; equal for equal watermarks and kinds")
NEXT_ROW = column("next_row", "STRUCT", "watermark and kind of the key's next row; null on the last")
LATEST_STORED = column(
    "latest_stored", "STRUCT", "the watermark of the key's latest stored row, and whether it is live"
)
SET_BEFORE = family(
    "set_before", "STRUCT", "the latest that rows at earlier places set: SET_AT and VALUE; null if none"
)
IS_SET_HERE = family("is_set_here", "BOOLEAN", "a row at the same place sets the part itself")
IS_FILLED = family("is_filled", "BOOLEAN", "the row takes the value of SET_BEFORE")
AUTHOR = family("author", "STRUCT or ARRAY<STRUCT>", "who has set the value that the row has then; null if no row has")

# Changes of keys, and what each asks of its old key (merge/compile/earlier_keys.py)

CHAIN = column("chain", "ARRAY<STRUCT>", "changes of keys, as elements of an author: that to the row's key first")
CHAIN_HEAD = column("chain_head", "STRUCT", "the first element of a chain")
CHAIN_PLACE = column("chain_place", "INT", "the number of an element in its chain, from 0")
ELEMENT = column("element", "STRUCT", "an element of a chain: a change of a key, and its old key")
ELEMENT_BEFORE = column("element_before", "STRUCT", "the next element of the chain: the change to the old key")
ARRIVAL = column("arrival", "STRUCT", "the last change to a key, as the first element of its chain")
MOMENT = column("moment", "STRUCT", "a watermark")
LATE_KEY = family("late_key", "the key's", "a key column of rows to write that may be late")
QUESTION = column("question", "STRUCT", "asks what the old key of a change had set: the row's key, chain and element")
EARLIER_QUESTION = column("earlier_question", "STRUCT", "the question of the change to the old key; null if answered")
REACHED_BY = column("reached_by", "ARRAY<STRUCT>", "how authors from the change to the old key begin; empty if none")

# Judging the events of a feed

JUDGED_KEY = family("judged_key", "the key's", "a key column of an event or a mended row")
JUDGED_WATERMARK = family("judged_watermark", "the watermark's", "a watermark column of it")
JUDGED_OLD_KEY = family("judged_old_key", "the key's", "a key column of the row that an event moves")
JUDGED_MISFIT = family("judged_misfit", "BOOLEAN", "the event has a value that does not fit a column")
JUDGED_UNSET = family("judged_unset", "BOOLEAN", "the event leaves some of a column unset")
JUDGED_LEFT = family("judged_left", "BOOLEAN", "the event leaves all of a column unset")
JUDGED_DIES = column("judged_dies", "BOOLEAN", "the event deletes a row")
JUDGED_TRUNCATE = column("judged_truncate", "BOOLEAN", "the event is a truncate")
JUDGED_MENDED = column("judged_mended", "BOOLEAN", "a mended row, not an event")
JUDGED_AMBIGUOUS = column("judged_ambiguous", "BOOLEAN", "another event of the same place differs")
JUDGED_FILLERS = column("judged_fillers", "ARRAY", "the places of the events that fill it")

# Observing and checking

UNCHANGED = column("unchanged", "BOOLEAN", "an update that is not stale changes nothing; only if the merge skips these")
KEY_CHANGES = column("key_changes", "BOOLEAN", "a written row of the key changes something")
REASON = column("reason", "STRING", "why the row goes into the quarantine; null on others")
REJECTED_ROW = column("rejected_row", "BIGINT", "the number of a source row that has a reason")
REJECTED_FOR = column("rejected_for", "STRING", "its reason")
CONTESTED = family("contested", "the column's", "a key or watermark column of rows that contradict each other")
KEY_ROWS = column("key_rows", "BIGINT", "the number of rows of the key in the batch")
METRICS = column("metrics", "STRING", "aggregates, as one JSON text")
DIFFERENT = column("different", "BOOLEAN", "the rows of a key and watermark differ")
DEAD_ROWS = column("dead", "BIGINT", "the number of tombstones among them")
REPLACED_KEY = family("k", "the key's", "a key column of the row that a stale row would replace")
REPLACED_WATERMARK = family("t", "the watermark's", "a watermark column of that row")
IS_SETTLED = column("is_settled", "BOOLEAN", "the retention of what the row leaves unset has passed")
IS_EXPIRED = column("is_expired", "BOOLEAN", "the retention of the tombstone has passed")

# Rows for other tables

JOINED_ROWS = column("joined_rows", "STRUCT", "in clauses with history inserts: the replaced row and the source row")
WRITTEN = column("written", "STRUCT", "all other columns, hidden from the maps")
RAW_OUTBOX_VALUE = family("hv", "the value's", "a value of a row for another table")
OUTBOX_VALUE = family("history", "STRUCT", "a row for another table, its origin key and its misfit; null if none")
ORIGIN_KEY = column("origin_key", "STRUCT", "the key of the row from which a row for another table was made")
OUTBOX_ROW = column("outbox_row", "STRUCT", "a row for another table, stored with its origin key")
