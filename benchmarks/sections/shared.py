"""What sections have in common: names of contestants, notes, and how a race becomes part of a result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.contestants import MergeOf, link_copy
from benchmarks.race import Answer, Contestant
from benchmarks.results import Point, Result, Series
from benchmarks.sections.chains import cdc
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable

OURS = "trinitymerge"

TIMED = (
    "Timed: reading the file of changes, the merge, and its commit; tables are open before the clock starts. Every "
    "repetition merges another file into an equal table."
)


def measure(bench: Workbench, result: Result, contestants: Sequence[Contestant], warm_ups: int, turns: int) -> Result:
    """The result with the contestants' times, and how often their answers were compared."""
    race = bench.race()
    series = race.run(contestants, warm_ups, turns)
    compared = result.answers_compared + race.answers_compared
    return attrs.evolve(result, series=(*result.series, *series), answers_compared=compared)


def point(x: int, series: Series) -> Point:
    """A chart's point: the median, and the spread around it."""
    return x, series.median, series.low, series.high


def answer_of(rows: DataFrame) -> Answer:
    """What is compared of a table of events."""
    return data.checksum(rows, data.EVENTS)


def with_batches(
    bench: Workbench, pristine: Path, batches: Sequence[Path], to: Path, merge: MergeOf = cdc
) -> TrinityTable:
    """A copy of a table, with batches of changes merged into it one by one."""
    link_copy(pristine, to)
    table = TrinityTable.forPath(bench.spark, str(to))
    for batch in batches:
        merge(table, data.read(bench.spark, data.CHANGES, batch)).execute()
    return table
