"""The action that writes what is replaced into another table: a step of the chain (S27).

Owns: ``insertHistoryExpr`` and its other name. A chain whose last clause may take it inherits from here.
"""

from __future__ import annotations

from typing import Any, TypeVar

from trinitymerge.merge.arguments import ExpressionMap, assignments_of, table_of
from trinitymerge.merge.clauses import Action, InsertHistory

_CALL = "insertHistoryExpr"
HISTORY_CALLS = (_CALL, "insertHistoryTableExpr")
"""Both names of the action."""

_Chain = TypeVar("_Chain", bound="HistoryInserts")


class HistoryInserts:
    """A chain whose last clause updates or deletes rows."""

    __slots__ = ()

    def _and(self, action: Action) -> Any:
        """The chain with one more action in its last clause."""
        raise NotImplementedError

    def insertHistoryExpr(self: _Chain, values: ExpressionMap, table: Any) -> _Chain:
        """Inserts a row into another table for each target row that the clause's update or delete replaces (S27; CarbonData).

        In the map a name without an alias is the target row's *before* it is replaced; under the target's alias it is the
        same, under the source's the source row's. A change that comes too late (S11) replaces nothing, and writes no such row.

        Into a ``TrinityTable``, both happen or neither: the rows are kept beside the merge's until they are in the other table,
        which is right after the commit. If the process dies between, whoever writes to this table next writes them, and never
        twice. The row with the largest watermark holds, as ever: a key of its own for each row (such as the key and the
        watermark of the row before) keeps them all. Into a Spark table, rows may come twice after a crash.

        Args:
            values: a map, or a list of pairs, from column of the other table to expression. It must assign the other table's
                primary key, its watermark, and what cannot be null there; other columns have their default, or are null.
            table: a ``TrinityTable``, or the name of a Spark table.

        Raises:
            InvalidMergeError: the clause has no update or delete before it; or the table is none.

        Example:
            >>> past = TrinityTable.create(spark, f"{tmp_path}/past", "order_id STRING, amount DECIMAL(10,2), until TIMESTAMP",
            ...     primaryKey=["order_id", "until"])
            >>> late = spark.sql("SELECT '1' AS order_id, 7.5 AS amount, timestamp'2024-02-01' AS ts")
            >>> result = (orders.merge(late.alias("B"), "target.order_id = B.order_id")
            ...     .whenMatched("target.amount <> B.amount").updateExpr({"amount": "B.amount", "ts": "B.ts"})
            ...     .insertHistoryExpr({"order_id": "order_id", "amount": "amount", "until": "B.ts"}, past)
            ...     .execute())
            >>> result.rowsUpdated, result.rowsHistory, past.toDF().select("order_id", "amount").collect()
            (1, 1, [Row(order_id='1', amount=Decimal('5.00'))])
        """
        chain: _Chain = self._and(InsertHistory(assignments_of(_CALL, values), table_of(_CALL, table)))
        return chain

    insertHistoryTableExpr = insertHistoryExpr
