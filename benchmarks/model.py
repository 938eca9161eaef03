"""The cost model of `docs/scale.md`, measured: what calls take at 1, 5 and 20 million rows, and what the model says of the last.

Usage: python -m benchmarks.model (some ten minutes, 6 GB of disk; alone on the machine). Needs PySpark only. Each cost is a line
through the figures at the two smaller sizes; the page has what it says of the largest beside what that took.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession

from benchmarks import data
from benchmarks.results import TIMES
from trinitymerge import TrinityTable
from trinitymerge.maintenance.minor_compaction import minor_compact

SIZES = (1_000_000, 5_000_000, 20_000_000)
CHANGES = 20_000
TURNS = 3

MERGE, READS = "merge that appends blindly", "merge that reads the target"
SCAN, PENDING = "full read of a base", "full read of a base and five batches"
FOLDED, COMPACTED = "fold of five batches", "compaction"


@attrs.frozen
class Line:
    """Seconds as a line in the number of rows, through two measured points."""

    fixed: float
    per_million: float

    @classmethod
    def through(cls, seconds: Mapping[int, float]) -> Line:
        """Through the smallest two sizes."""
        (few, at_few), (more, at_more) = sorted(seconds.items())[:2]
        slope = max(0.0, (at_more - at_few) / (more - few) * 1e6)
        return cls(at_few - slope * few / 1e6, slope)

    def at(self, rows: int) -> float:
        """What it says of a size."""
        return self.fixed + self.per_million * rows / 1e6


def upsert(table: TrinityTable, changes: DataFrame) -> None:
    """Reads nothing of the target."""
    table.upsert(changes.drop("op")).execute()


def accumulate(table: TrinityTable, changes: DataFrame) -> None:
    """Reads the target's rows under the source's keys."""
    merge = table.alias("A").merge(changes.alias("B"), "A.id = B.id")
    merge.whenMatched().updateExpr({"amount": "A.amount + B.amount", "ts": "B.ts"}).execute()


def measured(spark: SparkSession, rows: int, work: Path) -> dict[str, float]:
    """The median seconds of each call on a table of so many rows; the first turn is thrown away."""
    events = data.write_events(spark, rows, work / "events")
    files = [data.write_changes(spark, rows, CHANGES, n, work / f"changes-{n}") for n in range(5)]
    found: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        call()
        found.setdefault(name, []).append(time.perf_counter() - start)

    path = work / "table"
    table = TrinityTable.create(spark, str(path), data.ddl(data.EVENTS), primaryKey="id", watermarkKey="ts")
    table.upsert(data.read(spark, data.EVENTS, events)).execute()
    for _ in range(TURNS):
        copy = work / "copy"
        shutil.copytree(path, copy, copy_function=_link)
        table = TrinityTable.forPath(spark, str(copy))
        timed(SCAN, lambda: data.full_read(table.toDF(), data.EVENTS))  # noqa: B023 - called at once
        for merge, name in ((upsert, MERGE), (accumulate, READS)):
            changes = data.read(spark, data.CHANGES, files[0 if merge is upsert else 1])
            timed(name, lambda: merge(table, changes))  # noqa: B023
        for file in files[2:]:
            upsert(table, data.read(spark, data.CHANGES, file))
        timed(PENDING, lambda: data.full_read(table.toDF(), data.EVENTS))  # noqa: B023
        snapshot = table._store.snapshot()
        timed(FOLDED, lambda: minor_compact(table._store, snapshot, snapshot.batches[1:]))  # noqa: B023
        timed(COMPACTED, table.compact)
        shutil.rmtree(copy)
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def main() -> None:
    """Prints the table of the page."""
    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", "6g")
    for name, value in (("ui.enabled", "false"), ("ui.showConsoleProgress", "false"), ("sql.shuffle.partitions", "4")):
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[str, dict[int, float]] = {}
    for turn, rows in enumerate((SIZES[0], SIZES[0], *SIZES)):
        with tempfile.TemporaryDirectory() as work:
            for name, seconds in measured(spark, rows, Path(work)).items():
                if turn > 1:  # before, the JVM was warming up
                    found.setdefault(name, {})[rows] = seconds
    few, more, most = SIZES
    print(f"PySpark {spark.version}; {CHANGES:,} changes a merge; seconds, medians of {TURNS - 1}\n")
    print(f"| call | fixed | per million rows | {few:,} | {more:,} | {most:,} | the model says |")
    print("|---|---|---|---|---|---|---|")
    for name, seconds in found.items():
        line = Line.through(seconds)
        took = " | ".join(f"{seconds[rows]:.2f}" for rows in SIZES)
        factor = line.at(most) / seconds[most]
        print(
            f"| {name} | {line.fixed:.2f} | {line.per_million:.3f} | {took} | {line.at(most):.2f} ({factor:.2f}{TIMES}) |"
        )
    spark.stop()


if __name__ == "__main__":
    main()
