"""Micro-batches of a stream, beside Spark's own sink of files (P12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from benchmarks import data
from benchmarks.results import AtMost, Comparison, Result, Series
from benchmarks.sections.shared import OURS
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable

_KEPT = "spark.sql.streaming.numRecentProgressUpdates"


def p12(bench: Workbench) -> Result:
    """Many small micro-batches of a stream."""
    size, spark = bench.size, bench.spark
    source = bench.path("data/micro-batches")
    spark.range(0, size.micro_batches * size.micro_batch_rows, 1, size.micro_batches).selectExpr(
        "id", "id % 7 AS customer", "1.0BD AS amount", "'open' AS status", "'' AS note", "timestamp_seconds(id) AS ts"
    ).selectExpr(*[f"CAST({n} AS {kind}) AS {n}" for n, kind in data.EVENTS.items()]).write.parquet(str(source))
    table = TrinityTable.create(
        spark, str(bench.path("ours/stream")), data.ddl(data.EVENTS), primaryKey="id", watermarkKey="ts"
    )
    merges = table.foreachBatch(lambda t, batch: t.applyChanges(batch), appId="p12")
    ways: dict[str, Callable[[DataStreamWriter], DataStreamWriter]] = {
        OURS: lambda stream: stream.foreachBatch(merges),
        "Spark appends each micro-batch": lambda stream: stream.format("parquet").option(
            "path", str(bench.path("appended"))
        ),
    }
    before = spark.conf.get(_KEPT)
    spark.conf.set(_KEPT, str(size.micro_batches + 10))
    try:
        series = [Series(name, _seconds(bench, source, name, way)) for name, way in ways.items()]
    finally:
        spark.conf.set(_KEPT, before)
    late = [Series(f"{s.name}, the slowest of a hundred", (_percentile(s.seconds, 0.99),)) for s in series]
    (ours, peer), (our_late, their_late) = series, late
    return Result(
        "P12",
        f"{size.micro_batches:,} micro-batches of {size.micro_batch_rows} rows",
        size.name,
        series=[*series, *late],
        comparisons=[
            Comparison("a micro-batch, median", ours.name, peer.name, AtMost(1.5)),
            Comparison("a micro-batch, 99 of 100 are faster", our_late.name, their_late.name, AtMost(1.5)),
        ],
        notes=[
            "Timed: each trigger as Spark reports it, with the source's and the checkpoint's part; a file is a micro-batch.",
            "Ours merges by `foreachBatch`, exactly once, and does its maintenance meanwhile.",
        ],
    )


def _seconds(
    bench: Workbench, source: Path, name: str, way: Callable[[DataStreamWriter], DataStreamWriter]
) -> list[float]:
    """The seconds of each micro-batch, without the first ones."""
    bench.say(f"    {name}: {bench.size.micro_batches} micro-batches")
    stream = bench.spark.readStream.schema(data.ddl(data.EVENTS)).option("maxFilesPerTrigger", 1).parquet(str(source))
    checkpoint = str(bench.path(f"checkpoints/{len(name)}"))
    query: StreamingQuery = (
        way(stream.writeStream).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    took = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    return took[len(took) // 10 :]


def _percentile(seconds: tuple[float, ...], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
