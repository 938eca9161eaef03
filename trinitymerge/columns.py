"""Every column the library puts beside the user's: stored ones, and those that pass from step to step (S5).

Owns: their names, types and meanings, who adds each and who may read it. A test compares that with the code: no other module
makes up such a name, and none uses one that it is not entitled to here. Knows nothing of what the columns are for.
"""

from __future__ import annotations

from trinitymerge.technical import column, family

# Stored in the files of a batch ---------------------------------------------------------------------------------------

# Beside these, tables that declare no tombstone key have a hidden one: HIDDEN_TOMBSTONE of definition.py.
CLAUSE = column(
    "clause",
    "INT",
    "the position, from 1, of the clause that wrote the row",
    "merge.compile.shaping",
    "merge.compile.owedrows merge.compile.settling merge.run.attempt merge.run.owed merge.run.plan merge.run.refusals "
    "storage.catalogcolumns",
)
EFFECT = column(
    "effect",
    "STRING",
    "what the row means to readers if it is its key's freshest; null if unknown",
    "merge.compile.settling",
    "merge.compile.owedrows merge.compile.unchanged merge.run.attempt merge.run.owed merge.run.observed merge.run.refusals "
    "storage.catalogcolumns",
)
SINCE = column(
    "since",
    "BIGINT",
    "in rewritten batches: when the tombstone was first committed, ms since the epoch; in tables with history, of every row",
    "maintenance.rewriting",
    "history.explanation history.timeline storage.catalogcolumns",
)
UNTIL = column(
    "until",
    "the first watermark's, or BIGINT",
    "in settled archives: where the version ends; without a declared watermark ms since the epoch",
    "history.timeline",
    "history.versions",
)
ENDED = column(
    "ended",
    "BIGINT",
    "in settled archives: when the row that ends the version was committed, ms since the epoch",
    "history.timeline",
    "maintenance.archiving",
)
BATCH = column(
    "batch",
    "STRING",
    "the id of the row's batch: the name of its directory; in plain tables a column",
    "storage.managed storage.plain",
    "elsewhere.dialects history.explanation storage.catalogcolumns storage.directories "
    "storage.filecolumns maintenance.purge maintenance.purgewhere",
)

SEQUENCE = column(
    "sequence",
    "BIGINT",
    "in tables of Iceberg's: the version that committed the row",
    "storage.catalogcolumns",
    "storage.adopting storage.iceberg storage.icebergversions",
)

NOTHING = column(
    "none", "INT", "no column of any table, where SQL must have one", "maintenance.constraining merge.analysis.hints"
)

# Reading --------------------------------------------------------------------------------------------------------------

VERSION = column(
    "version",
    "BIGINT",
    "the commit version the row counts as",
    "storage.managed storage.plain storage.icebergversions",
    "elsewhere.query history.changes history.explanation history.timeline maintenance.archiving maintenance.rewriting reader",
)
RANK = column(
    "rank",
    "INT",
    "the row's place among the rows of its key, freshest first",
    "reader",
    "elsewhere.query history.explanation merge.run.observed",
)
ALL_COLUMNS = column("all_columns", "INT", "never negative, and takes every column to compute", "reader")
KEY_TO_FIND = family(
    "find",
    "the key's",
    "a key column of what is looked up",
    "merge.compile.sides",
    "history.changes keyrange maintenance.purge merge.analysis.keymatch merge.compile.probing "
    "merge.feeds.extracts merge.feeds.nullfill reader soughtkeys",
)
PLACE = column(
    "place", "INT", "the row's place, in the user's order, among those of its key and watermark", "merge.feeds.firsts"
)
MARK_KEY = family("mark_key", "the key's", "a key column of a row that replaces others", "reader")
MARK_WATERMARK = family("mark_watermark", "the watermark's", "a watermark column of such a row", "reader")
MARK_VERSION = column("mark_version", "BIGINT", "the commit version of such a row", "reader")

# Comparing two versions -----------------------------------------------------------------------------------------------

KEY_TO_COMPARE = family("compared", "the key's", "a key column of a row of either version", "history.changes")
STORED_ROW = column("stored", "STRUCT", "the stored columns, and the version the row counts as", "history.changes")
PRECEDENCE = column(
    "precedence", "STRUCT", "the effective watermark; the largest one's row is the latest", "history.changes"
)
IN_BEFORE = column("in_before", "BOOLEAN", "the row is stored in the earlier version", "history.changes")
IN_AFTER = column("in_after", "BOOLEAN", "the row is stored in the later version", "history.changes")
LATEST_BEFORE = column(
    "before", "STRUCT", "the latest row of the key in the earlier version; null if none", "history.changes"
)
LATEST_AFTER = column(
    "after", "STRUCT", "the latest row of the key in the later version; null if none", "history.changes"
)
CHANGE = column("change", "STRUCT", "one row of a change and the change's type", "history.changes")
MADE_BY = column(
    "made_by", "BIGINT", "the version of the commit that made the change; null if unknown", "history.changes"
)

# Explaining which row of a key holds ----------------------------------------------------------------------------------

WINNER = column("winner", "STRUCT", "watermark and version of the key's latest row", "history.explanation")
RUNNER_UP = column("runner_up", "STRUCT", "those of the next row, null on the last", "history.explanation")
# Versions of a key in the order of their time ---------------------------------------------------------------------------

NEXT = column("next", "STRUCT", "watermark and commit of the key's next row, null on the last", "history.timeline")
CLOSED = column(
    "closed", "BOOLEAN", "something ends the version", "history.timeline", "history.versions maintenance.archiving"
)
RUN = column(
    "run",
    "BIGINT, then the first watermark's",
    "shared by versions that do not differ in what is tracked; then where the first of them begins",
    "history.versions",
)
LAST_OF_RUN = column(
    "last_of_run", "BOOLEAN", "the next version of the key differs in what is tracked", "history.versions"
)
ORIGIN = column(
    "origin", "BIGINT", "the version of the settled archive the row is from, null elsewhere", "maintenance.archiving"
)

# The sides of a merge -------------------------------------------------------------------------------------------------

ASKED = column(
    "nothing", "INT", "a column to ask the analyzer about expressions with", "merge.analysis.inspection", "conditions"
)
IN_SOURCE = column(
    "source",
    "BOOLEAN",
    "true on rows of the source, null on rows of the target alone",
    "merge.analysis.frames",
    "merge.compile.firing merge.compile.pipeline merge.compile.program merge.paths.full",
)
SOURCE_COPY = family(
    "s",
    "the source's",
    "a copy of a source column, whatever the source's alias",
    "merge.analysis.frames",
    "merge.analysis.byname merge.analysis.keymatch merge.analysis.pairing",
)
SOURCE_ROW = column("row", "BIGINT", "the number of the source row", "merge.compile.sides")
PAIRED_ROW = column(
    "paired", "BIGINT", "the number of the source row that a target row pairs with", "merge.compile.sides"
)
LIVE = column(
    "live",
    "BOOLEAN",
    "true if the joined target row is live, false if it is a tombstone, null if there is none; after the step ``meet``, the "
    "same of what the written key holds, never null",
    "merge.analysis.frames",
    "merge.compile.firing merge.compile.pipeline merge.compile.program merge.compile.settling merge.compile.shaping",
)
KEY_COPY = family(
    "key",
    "the key's",
    "a key column of the joined target row, of tombstones too",
    "merge.analysis.frames",
    "merge.compile.sides",
)
BEFORE = family(
    "w",
    "the watermark's",
    "a watermark column of the joined target row; after the step ``meet``, of the row that this one replaces",
    "merge.analysis.frames",
    "merge.compile.program",
)

# Which clause applies, and what it writes -----------------------------------------------------------------------------

MATCHED = column("matched", "INT", "the number of the first true whenMatched clause, 0 if none", "merge.compile.firing")
NOT_MATCHED = column(
    "not_matched", "INT", "the number of the first true whenNotMatched clause, 0 if none", "merge.compile.firing"
)
HAS_KEY = column("has_key", "BOOLEAN", "no part of the row's key is null", "merge.compile.firing")
FIRES = column("fires", "INT", "the code of what the row fires, 0 if nothing; what filters see", "merge.compile.firing")
FIRED = column(
    "fired",
    "INT",
    "the code of what the row fires, out of the optimizer's sight; 0 if nothing, -1 where that depends on an unread target",
    "merge.compile.firing",
    "merge.compile.shaping",
)
RAW = family("v", "the value's", "a value that is checked or used twice, evaluated once", "merge.compile.shaping")
FIRING = column(
    "firing",
    "BIGINT",
    "shared by the rows that one clause writes for one pair or target row",
    "merge.compile.shaping",
    "merge.compile.settling",
)
SLOT = column(
    "slot",
    "INT",
    "which of the program's rows this is; where the target is unread also -1 if that depends on it, and null if none",
    "merge.compile.shaping",
    "merge.compile.program merge.compile.settling",
)
STANDS_FOR = column(
    "stands_for",
    "INT",
    "the clause that fired, from 1, on one row of each firing; where the target is unread -1 if undecided; else null",
    "merge.compile.shaping",
    "merge.compile.settling merge.run.observed",
)
ACTION = column(
    "action",
    "STRING",
    "what the row does, in the user's words",
    "merge.compile.shaping",
    "merge.compile.settling merge.run.plan",
)
MISFIT = column(
    "misfit",
    "STRING",
    "the column and text of a value that does not fit; null if all do",
    "merge.compile.shaping",
    "merge.compile.owedrows merge.compile.settling merge.run.owed merge.run.observed",
)
LATE = column(
    "late",
    "BOOLEAN",
    "of an insert beside an update or delete that stays in place: that is stale",
    "merge.compile.shaping",
    "merge.compile.settling",
)
NEW_KEY = family(
    "n",
    "the key's",
    "of a row of a moving update: a column of the key it goes to",
    "merge.compile.shaping",
    "merge.compile.probing merge.compile.settling",
)
OLD_KEY = family(
    "o",
    "the key's",
    "of a row of a moving update: a column of the key it leaves",
    "merge.compile.shaping",
    "merge.compile.settling",
)
DIES = column(
    "dies",
    "BOOLEAN",
    "of a row of a moving update: it is a tombstone where it goes",
    "merge.compile.shaping",
    "merge.analysis.kinds",
)

# What the written keys hold, and what the rows mean -------------------------------------------------------------------

ANSWERED = family("answered", "the key's", "a key column of what a probe has found", "merge.compile.probing")
FOUND_LIVE = column(
    "found_live",
    "BOOLEAN",
    "what a probe has found under the written key is a live row",
    "merge.compile.probing",
    "merge.compile.settling",
)
FOUND_WATERMARK = family(
    "found",
    "the watermark's",
    "a watermark column of what a probe has found",
    "merge.compile.probing",
    "merge.compile.settling",
)
PRE_IMAGE = family(
    "pre",
    "the watermark's",
    "where rows may move: a watermark column of the joined target row, whatever the written key holds",
    "merge.compile.settling",
)
CHANGED = column(
    "changed", "BOOLEAN", "the row's key has changed: it moves", "merge.compile.settling", "merge.analysis.kinds"
)
IS_STALE = column(
    "is_stale", "BOOLEAN", "it is older than what it would replace", "merge.compile.settling", "merge.analysis.kinds"
)
IS_WITHHELD = column(
    "is_withheld",
    "BOOLEAN",
    "the insert is left out with the late change beside it",
    "merge.compile.settling",
    "merge.analysis.kinds",
)
IS_TORN = column(
    "is_torn",
    "BOOLEAN",
    "the row moves and is changed otherwise, or moves to two places",
    "merge.compile.settling",
    "merge.analysis.kinds",
)
IS_REPEATED = column(
    "is_repeated",
    "BOOLEAN",
    "the row repeats a move that another row makes",
    "merge.compile.settling",
    "merge.analysis.kinds",
)
ARRIVES = column(
    "arrives", "BOOLEAN", "the row comes to a key that is live", "merge.compile.settling", "merge.analysis.kinds"
)
FREED_BY_DELETE = column(
    "freed_by_delete",
    "BOOLEAN",
    "the merge deletes the live row at this key",
    "merge.compile.settling",
    "merge.analysis.kinds",
)
FREED_BY_MOVE = column(
    "freed_by_move",
    "BOOLEAN",
    "the merge moves the live row at this key away",
    "merge.compile.settling",
    "merge.analysis.kinds",
)
TAKEN = column(
    "taken", "BOOLEAN", "another row of the merge arrives at this key", "merge.compile.settling", "merge.analysis.kinds"
)
KEEP = column(
    "keep",
    "BOOLEAN",
    "the row is written",
    "merge.compile.settling",
    "merge.compile.purged merge.compile.unchanged merge.run.attempt merge.run.observed merge.run.plan",
)
PURGED = column(
    "purged", "BOOLEAN", "the row would be written but for its purged key", "merge.compile.purged", "merge.run.attempt"
)

# Observing and checking -----------------------------------------------------------------------------------------------

UNCHANGED = column(
    "unchanged",
    "BOOLEAN",
    "of an update that asks for it: it is not stale, and nothing of the target row would change",
    "merge.compile.shaping",
    "merge.compile.settling merge.compile.unchanged",
)
KEY_CHANGES = column(
    "key_changes", "BOOLEAN", "some row of the key is written that changes something", "merge.compile.unchanged"
)
KEY_ROWS = column(
    "key_rows",
    "BIGINT",
    "how many rows of the batch have the row's key",
    "merge.run.observed",
    "maintenance.converting merge.run.refusals",
)
SCATTER = column("scatter", "BIGINT", "spreads rows without a key", "merge.compile.unchanged", "merge.run.observed")
METRICS = column("metrics", "STRING", "aggregates, as one JSON text", "observation")
DIFFERENT = column("different", "BIGINT", "how many different rows a key and watermark have", "merge.run.refusals")
DEAD_ROWS = column("dead", "BIGINT", "how many of these are tombstones", "merge.run.refusals")
THEIR_KEY = family("k", "the key's", "a key column of the row that a stale one would replace", "merge.run.refusals")
THEIR_WATERMARK = family("t", "the watermark's", "a watermark column of that row", "merge.run.refusals")
FORGET = column("forget", "BOOLEAN", "the tombstone is not kept any longer", "maintenance.rewriting")

# Rows for other tables -------------------------------------------------------------------------------------------------

SIDES = column(
    "sides",
    "STRUCT",
    "of a row that replaces another one, in a clause with history inserts: that row, and the source row beside it",
    "merge.compile.shaping",
    "merge.analysis.owed merge.compile.owedrows merge.compile.settling",
)
WRITTEN = column("written", "STRUCT", "all other columns, out of the way of the maps", "merge.compile.owedrows")
RAW_OWED = family("hv", "the value's", "a value of a row for another table", "merge.compile.owedrows")
OWED_ROW = family(
    "history",
    "STRUCT",
    "a row for another table, with the key of the row it is about and what does not fit; null if there is none",
    "merge.compile.owedrows",
)
ABOUT = column("about", "STRUCT", "the key of that row", "merge.compile.owedrows", "merge.run.owed")
OWED = column("owed", "STRUCT", "a row for another table; stored beside that key", "merge.run.owed", "paying")
