"""The layout of a table: what a filter by its columns gains, and what lookups by key pay (P14)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from benchmarks import data
from benchmarks.contestants import Reading, compact_all
from benchmarks.results import AtMost, Comparison, Faster, Result
from benchmarks.sections.chains import accumulate
from benchmarks.sections.shared import OURS, TIMED, measure
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable
from trinitymerge.merge.builder import MergeBuilder

_PART = "ts >= TIMESTAMP'2024-01-01 12:00:00' AND ts < TIMESTAMP'2024-01-01 12:14:24'"
"""A hundredth of a day, of which rows have every second."""


def p14(bench: Workbench) -> Result:
    """Filters by a column that keys say nothing about, with a layout and without."""
    size, rows = bench.size, bench.size.flat[-1]
    plain, clustered = f"{OURS}, sorted by key", f"{OURS}, clustered by time"
    few = f"a merge of {size.few_changes:,} scattered keys"
    paths = {plain: _loaded(bench, rows, "by-key"), clustered: _loaded(bench, rows, "by-time", "ts")}
    tables = {name: TrinityTable.forPath(bench.spark, str(path)) for name, path in paths.items()}
    result = Result(
        "P14",
        f"{rows:,} rows whose times do not follow their keys",
        size.name,
        comparisons=[
            Comparison("a filter that keeps a hundredth", f"{clustered}: a part", f"{plain}: a part", Faster(5)),
            Comparison("a full read", f"{clustered}: all", f"{plain}: all", AtMost(1.1)),
            Comparison(few, f"{clustered}: {few}", f"{plain}: {few}", AtMost(1.5)),
        ],
        notes=["Both tables are compacted. Keys are random, and so each segment has rows of the whole day.", TIMED],
    )
    parts = [Reading(f"{name}: a part", lambda t=table: t.toDF().filter(_PART)) for name, table in tables.items()]
    full = [Reading(f"{name}: all", table.toDF) for name, table in tables.items()]
    batches = bench.a_few_changes(rows, size.warm_ups + size.cheap_repetitions)
    merges = [bench.merging_into(path, f"{name}: {few}", _accumulate, batches) for name, path in paths.items()]
    for merge in merges:
        merge.compared = False  # all rows are compared once, at the end
    for pair in (parts, full, merges):
        result = measure(bench, result, pair, size.warm_ups, size.cheap_repetitions)
    bench.race().compare({m.name: data.checksum(m.rows(), data.EVENTS) for m in merges})
    return result


def _random_keys(rows: DataFrame) -> DataFrame:
    return rows.withColumn("id", F.xxhash64("id"))


def _accumulate(table: TrinityTable, changes: DataFrame) -> MergeBuilder:
    return accumulate(table, _random_keys(changes))


def _loaded(bench: Workbench, rows: int, name: str, *columns: str) -> Path:
    events, path = data.read(bench.spark, data.EVENTS, bench.events(rows)), bench.path(f"ours/{name}")
    bench.say(f"    loading {rows:,} rows, {name}")
    keys = {"primaryKey": "id", "watermarkKey": "ts"}
    table = TrinityTable.create(bench.spark, str(path), data.ddl(data.EVENTS), **keys, clusterBy=columns)
    table.upsert(_random_keys(events)).execute()
    compact_all(table)
    return path
