"""What came of a merge in the interpreter.

Owns: :class:`ModelResult`. Decides nothing.
"""

from __future__ import annotations

import attrs

from trinitymerge.testing.expressions import Row


@attrs.frozen
class ModelResult:
    """What a merge did: the counts of ``MergeResult`` (S30a), and the rows.

    Attributes:
        version: the table's version afterwards.
        rowsInserted: keys that became live.
        rowsUpdated: live keys whose row was replaced; a moved row is one.
        rowsDeleted: keys that ceased to be live.
        rowsStale: rows older than what they would have replaced, and the inserts left out with them (S21a).
        rowsAppended: rows of the batch.
        rowsSource: rows of the source.
        rowsUnchanged: updates left out because they would have changed nothing (S22b).
        perClause: how often each clause fired, in the order of the chain.
        rowsHistory: rows for other tables (S27).
        skipped: why nothing was written (S36, S37), or an empty string.
        rows: the live rows afterwards, in key order.
        appended: the batch, hidden tombstone column included.
    """

    version: int
    rowsInserted: int = 0
    rowsUpdated: int = 0
    rowsDeleted: int = 0
    rowsStale: int = 0
    rowsAppended: int = 0
    rowsSource: int = 0
    rowsUnchanged: int = 0
    perClause: tuple[int, ...] = ()
    rowsHistory: int = 0
    skipped: str = ""
    rows: tuple[Row, ...] = attrs.field(default=(), repr=False)
    appended: tuple[Row, ...] = attrs.field(default=(), repr=False)
