"""Slowly changing dimensions: every version of a row is kept, by rows that are closed (P6) or by the table itself (P6h)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.contestants import InsertOverwrite, OursMerging, Reading, SqlMerge, SqlMerging, link_copy
from benchmarks.results import TIMES, AtMost, Comparison, Faster, Result
from benchmarks.sections.shared import OURS, measure
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable
from trinitymerge.merge.builder import MergeBuilder

_OPEN = "DATE'9999-01-01'"


def move_and_close(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
    """One day of history in a table keyed by (order_id, end_date).

    The open version of an order is found by key, because its end is known: the merge moves it on to the new version and
    inserts the closed one beside it.
    """
    closed = {"order_id": "A.order_id", "customer_id": "A.customer_id", "start_date": "A.start_date"}
    return (
        table.alias("A")
        .merge(
            changes.selectExpr("*", f"{_OPEN} AS open").alias("B"), "A.order_id = B.order_id AND A.end_date = B.open"
        )
        .whenMatched()
        .updateExpr({"customer_id": "B.customer_id", "start_date": "B.update_date", "state": "B.state"})
        .insertExpr({**closed, "end_date": "B.update_date", "state": "A.state"})
        .whenNotMatched()
        .insertExpr(_NEW_VERSION)
    )


def close_and_insert(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
    """One day of history in a table keyed by (order_id, start_date), as CarbonData's guide writes it.

    The start of the open version is not known to the changes, so that the condition is not the key's.
    """
    return (
        table.alias("A")
        .merge(changes.alias("B"), f"A.order_id = B.order_id AND A.end_date = {_OPEN}")
        .whenMatched()
        .updateExpr({"end_date": "B.update_date"})
        .insertExpr(_NEW_VERSION)
        .whenNotMatched()
        .insertExpr(_NEW_VERSION)
    )


_NEW_VERSION = {
    "order_id": "B.order_id",
    "customer_id": "B.customer_id",
    "start_date": "B.update_date",
    "end_date": _OPEN,
    "state": "B.state",
}

CLOSE_SQL = SqlMerge(
    "WHEN MATCHED THEN UPDATE SET end_date = B.update_date "
    f"WHEN NOT MATCHED THEN INSERT ({', '.join(_NEW_VERSION)}) VALUES ({', '.join(_NEW_VERSION.values())})",
    f"A.order_id = B.matched AND A.end_date = {_OPEN}",
    "(SELECT order_id AS matched, * FROM changes UNION ALL SELECT NULL, C.* FROM changes C "
    f"JOIN {{table}} T ON T.order_id = C.order_id AND T.end_date = {_OPEN})",
    data.ORDER_CHANGES,
)
"""The same as :func:`close_and_insert`: a changed order comes twice, the second time without a key."""


def p6(bench: Workbench) -> Result:
    """CarbonData's SCDType2Benchmark."""
    size = bench.size
    days = [bench.order_changes(day) for day in range(1, size.days + 1)]
    by_end = f"{OURS}, keyed by (order_id, end_date)"
    overwrite = "insert overwrite: join, close, rewrite as Parquet"
    contestants = [
        _history(bench, OURS, "start_date", close_and_insert, days),
        InsertOverwrite(overwrite, bench.spark, bench.orders(), bench.path("overwrite"), lambda _: days),
        _history(bench, by_end, "end_date", move_and_close, days),
        *(SqlMerging(name, table, CLOSE_SQL, lambda _: days) for name, table in bench.peers_of_orders().items()),
    ]
    result = Result(
        "P6",
        f"CarbonData's SCD type 2 benchmark: {size.orders:,} orders, {size.days} days of {size.orders_a_day:,} updates and "
        f"{size.orders_a_day:,} inserts",
        size.name,
        comparisons=[
            Comparison(f"SCD type 2, {size.days} days into {size.orders:,} orders", OURS, overwrite, Faster(2.5)),
        ],
        notes=[
            f"Timed: all {size.days} days. Every repetition starts from the first day's table. CarbonData reports 115 s "
            f"against 15 s, 7.7{TIMES}, on 8 cores.",
            "Rows, updates and the overwriting query are those of CarbonData's SCDType2Benchmark; new orders have distinct "
            "numbers here.",
            "Ours is the chain of CarbonData's guide on a table keyed by (order_id, start_date): the open version is found by "
            "`A.order_id = B.order_id AND A.end_date = DATE'9999-01-01'`, closed, and the new one inserted. That condition "
            "is not the key's, so all of the target is read.",
            "Without a bar: the peers, whose source has each updated order twice, once without a key, so that MERGE INTO closes "
            "one version and inserts the other.",
            "Without a bar: the table keyed by (order_id, end_date). The open version ends in 9999-01-01, so that a day's "
            "changes carry its key as they are; the merge updates it to the new version and inserts the closed one. All end "
            "with the same rows.",
        ],
    )
    return measure(bench, result, contestants, 1, size.slow_repetitions)


def remember(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
    """One day of history in a table that remembers: nothing is closed."""
    return table.upsert(changes.selectExpr("order_id", "customer_id", "update_date AS start_date", "state"))


def remembered(table: TrinityTable) -> DataFrame:
    """The versions of a table that remembers, as the overwritten table has them."""
    rows = table.versions(validFrom="start_date", validTo="end_date", openEnd="9999-01-01")
    return rows.select(*data.ORDERS)


def p6h(bench: Workbench) -> Result:
    """The same days in a table with history."""
    size, spark = bench.size, bench.spark
    days = [bench.order_changes(day) for day in range(1, size.days + 1)]
    pristine, ours = bench.path("ours/orders-remembered"), f"{OURS}, a table with history"
    bench.say(f"    loading {size.orders:,} orders into a table with history")
    columns = {name: kind for name, kind in data.ORDERS.items() if name != "end_date"}
    table = TrinityTable.create(spark, str(pristine), data.ddl(columns), "order_id", "start_date", history=True)
    table.upsert(data.read(spark, data.ORDERS, bench.orders()).select(*columns)).execute()
    merged, compacted = bench.path("ours/remembered-days"), bench.path("ours/remembered-compacted")
    overwritten = bench.path("overwritten-days")
    overwriting = InsertOverwrite("overwriting", spark, bench.orders(), overwritten, lambda _: days)
    overwriting.prepare(0)
    overwriting.run(0)
    link_copy(pristine, merged)
    for day in days:
        remember(TrinityTable.forPath(spark, str(merged)), data.read(spark, data.ORDER_CHANGES, day)).execute()
    link_copy(merged, compacted)
    TrinityTable.forPath(spark, str(compacted)).compact()
    overwrite, scan = "insert overwrite: join, close, rewrite as Parquet", "Spark scans the overwritten table"
    pending, after = f"all versions, {size.days} batches pending", "all versions, compacted"
    last = max(overwritten.iterdir())
    scratch = bench.path("ours/scratch-remembered")
    merging = OursMerging(
        ours, spark, pristine, scratch, remember, lambda _: days, data.ORDER_CHANGES, data.ORDERS, shown=remembered
    )
    reading = [
        Reading(scan, lambda: data.read(spark, data.ORDERS, last), data.ORDERS),
        Reading(pending, lambda: remembered(TrinityTable.forPath(spark, str(merged))), data.ORDERS),
        Reading(after, lambda: remembered(TrinityTable.forPath(spark, str(compacted))), data.ORDERS),
    ]
    result = Result(
        "P6h",
        f"the data of P6 in a table with history: {size.orders:,} orders, {size.days} days",
        size.name,
        comparisons=[
            Comparison(f"{size.days} days into {size.orders:,} orders", ours, overwrite, Faster(12)),
            Comparison("reading all versions", pending, scan, AtMost(2.5)),
            Comparison("reading all versions after compact()", after, scan, AtMost(2.5)),
        ],
        notes=[
            f"Timed: all {size.days} days, and a full aggregate over all columns of all versions.",
            "Ours merges the changes by key, and closes nothing; versions() gives the same rows as the overwritten table.",
        ],
    )
    writing = [merging, InsertOverwrite(overwrite, spark, bench.orders(), bench.path("overwrite-h"), lambda _: days)]
    result = measure(bench, result, writing, 1, size.slow_repetitions)
    return measure(bench, result, reading, size.warm_ups, size.cheap_repetitions)


def _history(bench: Workbench, name: str, key: str, merge: object, days: Sequence[Path]) -> OursMerging:
    """Ours, on the history table keyed by the order and one of its dates."""
    spark, path = bench.spark, bench.path(f"ours/orders-{key}")
    base = bench.orders()
    bench.say(f"    loading {bench.size.orders:,} orders into trinitymerge, keyed by (order_id, {key})")
    table = TrinityTable.create(spark, str(path), data.ddl(data.ORDERS), primaryKey=["order_id", key])
    table.upsert(data.read(spark, data.ORDERS, base)).execute()
    scratch = bench.path(f"ours/scratch-orders-{key}")
    return OursMerging(name, spark, path, scratch, merge, lambda _: days, data.ORDER_CHANGES, data.ORDERS)
