"""Micro-batches of a change feed, beside the same rows already parsed (P15)."""

from __future__ import annotations

from pathlib import Path

import attrs
from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.contestants import MergeOf, OursMerging, PlainAppend
from benchmarks.results import AtMost, Comparison, Result
from benchmarks.sections.shared import measure
from benchmarks.workbench import Batches, Workbench
from trinitymerge import MergeBuilder, TrinityTable, feeds

_PARSED, _MESSAGES, _LEFT_OUT = "rows already parsed", "Debezium's messages", "the same, a fifth of the texts left out"


def p15(bench: Workbench) -> Result:
    """Debezium's messages, of which none or a fifth leave a text out, against the same rows already parsed."""
    size, spark = bench.size, bench.spark
    repetitions = size.warm_ups + size.cheap_repetitions
    pristine = bench.path("ours/feed")
    table = TrinityTable.create(spark, str(pristine), data.ddl(data.POSITIONED), primaryKey="id", watermarkKey="_seq")
    rows = data.read(spark, data.EVENTS, bench.events(size.feed_rows))
    table.upsert(rows.selectExpr("*", "'0000' AS _seq")).execute()

    def batches(kind: str) -> Batches:
        paths = [bench.path(f"data/feed-{kind}-{i}") for i in range(repetitions)]
        for i, path in enumerate(paths):
            data.write_messages(spark, size.feed_rows, size.feed_messages, i, path, kind)
        return lambda repetition: [paths[repetition]]

    def merging(name: str, merge: MergeOf, batches: Batches, columns: data.Columns) -> OursMerging:
        scratch: Path = bench.path("ours/feed-scratch")
        return OursMerging(name, spark, pristine, scratch, merge, batches, columns, data.EVENTS)

    def of_messages(table: TrinityTable, messages: DataFrame) -> MergeBuilder:
        return table.applyChanges(feeds.debezium(messages, decimals="string", timestamps={"ts": "us"}))

    parsed, messages, left_out = batches("parsed"), batches("messages"), batches("left_out")
    contestants = [
        merging(_PARSED, lambda table, rows: table.applyChanges(rows), parsed, data.POSITIONED),
        merging(_MESSAGES, of_messages, messages, data.MESSAGES),
        attrs.evolve(merging(_LEFT_OUT, of_messages, left_out, data.MESSAGES), compared=False),
        PlainAppend("Spark appends the rows", spark, pristine, bench.path("plain/feed"), parsed, data.POSITIONED),
    ]
    result = Result(
        "P15",
        f"{size.feed_messages:,} messages of Debezium into {size.feed_rows:,} rows",
        size.name,
        comparisons=[
            Comparison("messages, none of which leaves a text out", _MESSAGES, _PARSED, AtMost(2)),
            Comparison("messages, a fifth of which leave a text out", _LEFT_OUT, _PARSED, AtMost(3)),
        ],
        notes=["Timed: reading the file of messages or rows, the merge, and its commit. The table is open."],
    )
    return measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)
