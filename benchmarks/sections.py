"""The sections P1-P7 and P11: which work is done, by whom, and what is held against what.

Each section is a function from a :class:`Workbench` to a :class:`Result`; `SECTIONS` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.contestants import InsertOverwrite, MergeOf, OursMerging, PlainAppend, Reading, link_copy
from benchmarks.race import Contestant
from benchmarks.results import TIMES, AtMost, Chart, Comparison, Faster, Result, Series
from benchmarks.single_machine import DeltaRsMerging, DuckDBMerging
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable
from trinitymerge.merge.builder import MergeBuilder

OURS = "trinitymerge"
ICEBERG = "Iceberg MERGE INTO, merge on read"

_TIMED = (
    "Timed: reading the file of changes, the merge, and its commit; tables are open before the clock starts. Every "
    "repetition merges another file into an equal table."
)


def measure(bench: Workbench, result: Result, contestants: Sequence[Contestant], warm_ups: int, turns: int) -> Result:
    """The result with the contestants' times, and how often their answers were compared."""
    race = bench.race()
    series = race.run(contestants, warm_ups, turns)
    compared = result.answers_compared + race.answers_compared
    return attrs.evolve(result, series=(*result.series, *series), answers_compared=compared)


# P1-P4: merges --------------------------------------------------------------------------------------------------------


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

CDC_SQL = (
    "WHEN MATCHED AND B.op = 'D' THEN DELETE "
    f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{name} = B.{name}' for name in data.EVENTS)} "
    f"WHEN NOT MATCHED AND B.op <> 'D' THEN {_INSERT}"
)

ACCUMULATE_SQL = f"WHEN MATCHED THEN UPDATE SET amount = A.amount + B.amount, ts = B.ts WHEN NOT MATCHED THEN {_INSERT}"


def p1(bench: Workbench) -> Result:
    """CDC by key against Iceberg, and against two engines outside of Spark."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.repetitions)
    few = size.warm_ups + size.slow_repetitions + 1
    duck = DuckDBMerging(
        "DuckDB MERGE INTO",
        bench.spark,
        bench.path("duckdb/pristine.db"),
        bench.path("duckdb/scratch.db"),
        batches,
        few,
    )
    delta = DeltaRsMerging(
        "delta-rs merge", bench.spark, bench.path("delta/pristine"), bench.path("delta/scratch"), batches, few
    )
    for peer in (duck, delta):
        peer.load(bench.events(size.rows))
    contestants = [
        bench.ours_merging(OURS, size.rows, cdc, batches),
        bench.iceberg_merging(ICEBERG, size.rows, CDC_SQL, batches),
        duck,
        delta,
    ]
    result = Result(
        "P1",
        f"CDC upsert and delete by key, {size.changes:,} changes into {size.rows:,} rows",
        size.name,
        comparisons=[
            Comparison(f"CDC, {size.changes:,} changes into {size.rows:,} rows", OURS, ICEBERG, Faster(10)),
        ],
        notes=[
            _TIMED,
            "Of 100 changes 79 update, 10 insert, 10 delete, and 1 deletes what does not exist; their keys are spread over "
            "the whole table.",
            "DuckDB and delta-rs run in this process, outside of Spark, and have no bar: DuckDB changes its file in place, "
            "delta-rs rewrites files.",
        ],
    )
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


def p2(bench: Workbench) -> Result:
    """The same batch into small and large tables."""
    size = bench.size
    ours = [f"{OURS}, {rows:,} rows" for rows in size.flat]
    peers = [f"{ICEBERG}, {rows:,} rows" for rows in size.flat]
    contestants = [
        bench.ours_merging(name, rows, cdc, bench.one_batch(rows, size.warm_ups + size.cheap_repetitions))
        for name, rows in zip(ours, size.flat, strict=True)
    ]
    result = Result(
        "P2",
        f"{size.changes:,} changes into tables of {', '.join(f'{rows:,}' for rows in size.flat)} rows",
        size.name,
        comparisons=[Comparison("time flat from the smallest table to the largest", ours[-1], ours[0], AtMost(1.1))],
        notes=[
            _TIMED,
            "Iceberg is measured afterwards, with fewer repetitions, for the chart; it has no bar here.",
            "Ours and Iceberg's rows are compared at every size, after the last batch that both have merged.",
        ],
    )
    for contestant in contestants:
        contestant.compared = False  # tables of different sizes have different rows
    result = measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)
    result = _p2_iceberg(bench, result, peers)
    named = {s.name: s for s in result.series}
    lines = {
        line: tuple(_point(rows, named[name]) for rows, name in zip(size.flat, names, strict=True))
        for line, names in ((OURS, ours), (ICEBERG, peers))
    }
    chart = Chart(f"Merging {size.changes:,} changes", "rows in the table", "seconds", lines)
    return attrs.evolve(result, chart=chart)


def _p2_iceberg(bench: Workbench, result: Result, names: Sequence[str]) -> Result:
    """Adds Iceberg's times, and compares its rows with ours."""
    size = bench.size
    for name, rows in zip(names, size.flat, strict=True):
        batches = bench.one_batch(rows, 1 + size.slow_repetitions)
        peer = bench.iceberg_merging(name, rows, CDC_SQL, batches)
        peer.compared = False
        result = measure(bench, result, [peer], 1, size.slow_repetitions)
        ours = bench.ours_merging(OURS, rows, cdc, batches)
        ours.prepare(size.slow_repetitions)
        ours.run(size.slow_repetitions)
        race = bench.race()
        race.compare({OURS: ours.answer(), name: _rows(peer.table.rows())})
        result = attrs.evolve(result, answers_compared=result.answers_compared + race.answers_compared)
    return result


def _point(x: int, series: Series) -> tuple[float, float, float, float]:
    return x, series.median, series.low, series.high


def p3(bench: Workbench) -> Result:
    """What the semantics of P1 cost on top of appending."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.cheap_repetitions)
    plain = "Spark appends the same file"
    ours = bench.ours_merging(OURS, size.rows, cdc, batches)
    ours.compared = False
    scratch = bench.path("plain/scratch")
    contestants = [ours, PlainAppend(plain, bench.spark, bench.events(size.rows), scratch, batches)]
    result = Result(
        "P3",
        "the merge of P1 against appending its source as plain Parquet, without any semantics",
        size.name,
        comparisons=[
            Comparison("the merge of P1 against a plain append", OURS, plain, AtMost(1.6)),
        ],
        notes=[
            _TIMED,
            "There is no answer to compare: what was appended is not merged. P1 compares that of the merge.",
        ],
    )
    return measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)


def p4(bench: Workbench) -> Result:
    """A merge that must read the target."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.repetitions)
    contestants = [
        bench.ours_merging(OURS, size.rows, accumulate, batches),
        bench.iceberg_merging(ICEBERG, size.rows, ACCUMULATE_SQL, batches),
    ]
    result = Result(
        "P4",
        "a merge whose clause reads the target: amounts are added to those the table has",
        size.name,
        comparisons=[
            Comparison(f"amounts added up, {size.changes:,} changes into {size.rows:,} rows", OURS, ICEBERG, Faster(3)),
        ],
        notes=[_TIMED],
    )
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


# P5: reading after merges ---------------------------------------------------------------------------------------------

_PENDING = 5


def p5(bench: Workbench) -> Result:
    """Reading a table with pending batches, and the same table compacted."""
    size, spark = bench.size, bench.spark
    batches = [bench.changes(size.rows, batch) for batch in range(_PENDING)]
    merged, compacted = bench.path("ours/merged"), bench.path("ours/compacted")
    table = _merged(bench, size.rows, batches, merged)
    iceberg = bench.iceberg(size.rows)
    iceberg.reset()
    for batch in batches:
        iceberg.merge(batch, CDC_SQL)
    base = largest_batch(bench.ours(size.rows))
    alone, pending, after = "Spark scans the base alone", f"{OURS}, {_PENDING} pending batches", f"{OURS}, compacted"
    contestants = [
        Reading(alone, lambda: data.read(spark, data.EVENTS, base), compared=False),
        Reading(pending, table.toDF),
        Reading(f"Iceberg, after {_PENDING} merges", iceberg.rows),
    ]
    note = "compact() is not available yet: what it would do was not measured."
    if hasattr(TrinityTable, "compact"):
        link_copy(merged, compacted)
        compact = TrinityTable.forPath(spark, str(compacted))
        compact.compact()
        contestants.append(Reading(after, compact.toDF))
        note = "Compaction itself is not timed."
    result = Result(
        "P5",
        f"a full aggregate over all columns of {size.rows:,} rows, after {_PENDING} batches of {size.changes:,} changes",
        size.name,
        comparisons=[
            Comparison(f"read after {_PENDING} batches", pending, alone, AtMost(1.5)),
            Comparison("read after compact()", after, alone, AtMost(1.05)),
        ],
        notes=["The base alone is the Parquet files of our table's first batch, without what was merged since.", note],
    )
    bench.race().compare({OURS: data.checksum(table.toDF(), data.EVENTS), ICEBERG: _rows(iceberg.rows())})
    result = attrs.evolve(result, answers_compared=1)
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


def _rows(rows: DataFrame) -> tuple[object, ...]:
    return data.checksum(rows, data.EVENTS)


def _merged(bench: Workbench, rows: int, batches: Sequence[Path], to: Path) -> TrinityTable:
    """A copy of the loaded table, with batches of changes merged into it one by one."""
    link_copy(bench.ours(rows), to)
    table = TrinityTable.forPath(bench.spark, str(to))
    for batch in batches:
        cdc(table, data.read(bench.spark, data.CHANGES, batch)).execute()
    return table


def largest_batch(table: Path) -> Path:
    """The directory of a table's largest batch: its base."""
    return max((table / "data").iterdir(), key=lambda batch: sum(file.stat().st_size for file in batch.iterdir()))


# P6: slowly changing dimensions ---------------------------------------------------------------------------------------

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
            "Without a bar: the table keyed by (order_id, end_date). The open version ends in 9999-01-01, so that a day's "
            "changes carry its key as they are; the merge updates it to the new version and inserts the closed one. All end "
            "with the same rows.",
        ],
    )
    return measure(bench, result, contestants, 1, size.slow_repetitions)


def _history(bench: Workbench, name: str, key: str, merge: object, days: Sequence[Path]) -> OursMerging:
    """Ours, on the history table keyed by the order and one of its dates."""
    spark, path = bench.spark, bench.path(f"ours/orders-{key}")
    base = bench.orders()
    bench.say(f"    loading {bench.size.orders:,} orders into trinitymerge, keyed by (order_id, {key})")
    table = TrinityTable.create(spark, str(path), data.ddl(data.ORDERS), primaryKey=["order_id", key])
    table.upsert(data.read(spark, data.ORDERS, base)).execute()
    scratch = bench.path(f"ours/scratch-orders-{key}")
    return OursMerging(name, spark, path, scratch, merge, lambda _: days, data.ORDER_CHANGES, data.ORDERS)


# P7: many pending batches ---------------------------------------------------------------------------------------------


def p7(bench: Workbench) -> Result:
    """Opening and reading a table with many small pending batches."""
    size = bench.size
    marks = sorted({0, 1, 5, *(size.pending * quarter // 4 for quarter in (1, 2, 3, 4))})
    tables = _pending_tables(bench, marks)
    one = bench.path("ours/one-batch")
    one_batch = _one_large_batch(bench, one)
    many, single = f"{OURS}, {size.pending} pending batches", f"{OURS}, one pending batch of the same rows"
    contestants: list[Contestant] = [_opening(bench, many, tables[size.pending]), _opening(bench, single, one_batch)]
    result = Result(
        "P7",
        f"open and read {size.pending_base:,} rows with {size.pending} pending batches of {size.pending_rows:,} changes",
        size.name,
        comparisons=[
            Comparison(f"open and read, {size.pending} pending batches", many, single, AtMost(1.3)),
        ],
        notes=["Timed: opening the table by its path, and a full aggregate over all columns."],
    )
    result = measure(bench, result, contestants, size.warm_ups, size.repetitions)
    steps = [_opening(bench, f"{OURS}, {mark} pending", tables[mark], compared=False) for mark in marks]
    series = bench.race().run(steps, 1, size.repetitions)
    points = tuple(_point(mark, s) for mark, s in zip(marks, series, strict=True))
    chart = Chart(f"Opening and reading {size.pending_base:,} rows", "pending batches", "seconds", {OURS: points})
    return attrs.evolve(result, chart=chart)


def _opening(bench: Workbench, name: str, path: Path, compared: bool = True) -> Reading:
    return Reading(name, lambda: TrinityTable.forPath(bench.spark, str(path)).toDF(), compared=compared)


def _pending_tables(bench: Workbench, marks: Sequence[int]) -> dict[int, Path]:
    """Tables with as many pending batches as the marks say, from one table that grows."""
    size = bench.size
    growing = bench.path("ours/pending")
    link_copy(bench.ours(size.pending_base), growing)
    table = TrinityTable.forPath(bench.spark, str(growing))
    stride = size.pending_base // (size.pending * size.pending_rows)
    bench.say(f"    merging {size.pending} batches")
    tables = {}
    for batch in range(size.pending + 1):
        if batch in marks:
            tables[batch] = bench.path(f"ours/pending-{batch}")
            link_copy(growing, tables[batch])
        if batch < size.pending:
            file = bench.path(f"data/pending-{batch}")
            data.write_updates(bench.spark, size.pending_rows, stride, batch, file)
            cdc(table, data.read(bench.spark, data.CHANGES, file)).execute()
    return tables


def _one_large_batch(bench: Workbench, to: Path) -> Path:
    """The same table with the same changes in one batch."""
    files = [bench.path(f"data/pending-{batch}") for batch in range(bench.size.pending)]
    link_copy(bench.ours(bench.size.pending_base), to)
    table = TrinityTable.forPath(bench.spark, str(to))
    cdc(table, data.read(bench.spark, data.CHANGES, *files)).execute()
    return to


# P11: many clauses and columns ----------------------------------------------------------------------------------------

_FEW, _MANY = 3, 60


def many_clauses(clauses: int) -> MergeOf:
    """The merge of P4, with its update split into many: which of them applies depends on the key."""

    def merge(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
        builder: MergeBuilder = table.alias("A").merge(changes.alias("B"), "A.id = B.id")
        for i in range(clauses - 1):
            amount = f"A.amount + B.amount + {i} - {i}"
            builder = builder.whenMatched(f"B.id % {clauses - 1} = {i}").updateExpr({"amount": amount, "ts": "B.ts"})
        return builder.whenNotMatched().insertAll()

    return merge


def p11(bench: Workbench) -> Result:
    """A merge with many clauses."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.repetitions)
    few, many = (f"{OURS}, {clauses} clauses" for clauses in (_FEW, _MANY))
    contestants = [
        bench.ours_merging(few, size.rows, many_clauses(_FEW), batches),
        bench.ours_merging(many, size.rows, many_clauses(_MANY), batches),
    ]
    result = Result(
        "P11",
        f"a merge that reads the target, with {_MANY} clauses instead of {_FEW}, {size.changes:,} changes into "
        f"{size.rows:,} rows",
        size.name,
        comparisons=[Comparison(f"{_MANY} clauses against {_FEW}", many, few, AtMost(12))],
        notes=[_TIMED, "Timed too: building the merge from its clauses. Both come to the same rows."],
    )
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


SECTIONS: dict[str, Callable[[Workbench], Result]] = {
    "P1": p1,
    "P2": p2,
    "P3": p3,
    "P4": p4,
    "P5": p5,
    "P6": p6,
    "P7": p7,
    "P11": p11,
}
