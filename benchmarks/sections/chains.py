"""The merges that sections run, as chains of ours and as clauses of Iceberg's MERGE INTO."""

from __future__ import annotations

from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.contestants import MergeOf, SqlMerge
from trinitymerge import TrinityTable
from trinitymerge.merge.builder import MergeBuilder


def cdc(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
    """Upserts and deletes by key."""
    return (
        table.alias("A")
        .merge(changes.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched()
        .updateAll()
        .whenNotMatched("B.op <> 'D'")
        .insertAll()
    )


def accumulate(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
    """Adds amounts to those the table has: the merge must read it."""
    return (
        table.alias("A")
        .merge(changes.alias("B"), "A.id = B.id")
        .whenMatched()
        .updateExpr({"amount": "A.amount + B.amount", "ts": "B.ts"})
        .whenNotMatched()
        .insertAll()
    )


_INSERT = f"INSERT ({', '.join(data.EVENTS)}) VALUES ({', '.join(f'B.{name}' for name in data.EVENTS)})"

CDC_SQL = SqlMerge(
    "WHEN MATCHED AND B.op = 'D' THEN DELETE "
    f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = B.{name}' for name in data.EVENTS)} "
    f"WHEN NOT MATCHED AND B.op <> 'D' THEN {_INSERT}"
)

ACCUMULATE_SQL = SqlMerge(
    f"WHEN MATCHED THEN UPDATE SET amount = A.amount + B.amount, ts = B.ts WHEN NOT MATCHED THEN {_INSERT}"
)


def many_clauses(clauses: int) -> MergeOf:
    """The merge of P4, with its update split into many: which of them applies depends on the key."""

    def merge(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
        builder: MergeBuilder = table.alias("A").merge(changes.alias("B"), "A.id = B.id")
        for i in range(clauses - 1):
            amount = f"A.amount + B.amount + {i} - {i}"
            builder = builder.whenMatched(f"B.id % {clauses - 1} = {i}").updateExpr({"amount": amount, "ts": "B.ts"})
        return builder.whenNotMatched().insertAll()

    return merge
