"""Reading after merges: a few batches (P5), and many (P7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from benchmarks import data
from benchmarks.contestants import Reading, link_copy
from benchmarks.race import Contestant
from benchmarks.results import AtMost, Chart, Comparison, Result
from benchmarks.sections.chains import CDC_SQL, cdc
from benchmarks.sections.shared import ICEBERG, OURS, answer_of, measure, point
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable

_PENDING = 5


def p5(bench: Workbench) -> Result:
    """Reading a table with pending batches, and the same table compacted."""
    size, spark = bench.size, bench.spark
    batches = [bench.changes(size.rows, batch) for batch in range(_PENDING)]
    merged, compacted = bench.path("ours/merged"), bench.path("ours/compacted")
    table = merged(bench, size.rows, batches, merged)
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
    bench.race().compare({OURS: data.checksum(table.toDF(), data.EVENTS), ICEBERG: answer_of(iceberg.rows())})
    result = attrs.evolve(result, answers_compared=1)
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


def largest_batch(table: Path) -> Path:
    """The directory of a table's largest batch: its base."""
    return max((table / "data").iterdir(), key=lambda batch: sum(file.stat().st_size for file in batch.iterdir()))


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
    points = tuple(point(mark, s) for mark, s in zip(marks, series, strict=True))
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
