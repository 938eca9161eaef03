"""Where the time of a call goes: `python -m benchmarks.profile --size full`.

For each call: the time of the whole, what of it Spark's jobs were running, and what was left to the driver (building the chain,
Spark's analysis and planning, the log); the jobs one by one, with the time their tasks took; and what the merge itself says of its
phases. The same work in plain Spark, without any semantics, stands beside a call where there is such a thing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession

from benchmarks import data, session
from benchmarks.contestants import MergeOf, PlainAppend, link_copy
from benchmarks.sections.chains import accumulate, cdc
from benchmarks.sections.history import close_and_insert
from benchmarks.sizes import SIZES
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable

_BUILD = Path(__file__).parent.parent / "build" / "benchmarks"


@attrs.frozen
class Job:
    """One Spark job.

    Attributes:
        start, end: seconds since the call began.
        tasks: how many.
        task_seconds: what all of them took.
    """

    start: float
    end: float
    tasks: int
    task_seconds: float


@attrs.frozen
class Profile:
    """One run of a call.

    Attributes:
        seconds: all of it.
        build: until the merge was built.
        phases: what the merge says of itself.
        jobs: in order.
    """

    seconds: float
    build: float
    phases: dict[str, float]
    jobs: list[Job]

    @property
    def busy(self) -> float:
        """Seconds in which some job was running."""
        covered, until = 0.0, 0.0
        for job in sorted(self.jobs, key=lambda j: j.start):
            covered += max(0.0, job.end - max(job.start, until))
            until = max(until, job.end)
        return covered

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases.items())
        lines = [
            f"{self.seconds:.2f} s: jobs {self.busy:.2f}, driver {self.seconds - self.busy:.2f} (of it {self.build:.2f} until "
            f"built){f'; {phases}' if phases else ''}"
        ]
        lines += [
            f"    {j.start:5.2f} to {j.end:5.2f}: {j.tasks:2} tasks of {j.task_seconds:.2f} s in all" for j in self.jobs
        ]
        return "\n".join(lines)


def _jobs(spark: SparkSession, began_ms: float) -> list[Job]:
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    jobs, found = store.jobsList(None), []
    for i in range(jobs.size()):
        job = jobs.apply(i)
        start, end = job.submissionTime().get().getTime(), job.completionTime()
        if start < began_ms - 1 or end.isEmpty():
            continue
        ids = job.stageIds()
        task_ms = sum(store.lastStageAttempt(ids.apply(n)).executorRunTime() for n in range(ids.size()))
        found.append(
            Job((start - began_ms) / 1000, (end.get().getTime() - began_ms) / 1000, job.numTasks(), task_ms / 1000)
        )
    return sorted(found, key=lambda j: j.start)


def _profiled(spark: SparkSession, run: Callable[[], tuple[float, dict[str, float]]]) -> Profile:
    began_ms, start = time.time() * 1000, time.perf_counter()
    build, phases = run()
    seconds = time.perf_counter() - start
    time.sleep(0.2)  # Spark tells of its jobs a little later
    return Profile(seconds, build, phases, _jobs(spark, began_ms))


def _fastest(spark: SparkSession, name: str, turns: int, prepare: Callable[[int], Callable[[], Any]]) -> None:
    """Prints the fastest run; the first ones only warm up."""
    profiles = []
    for turn in range(turns):
        run = prepare(turn)

        def timed(run: Callable[[], Any] = run) -> tuple[float, dict[str, float]]:
            found = run()
            return found if isinstance(found, tuple) else (0.0, {})

        profile = _profiled(spark, timed)
        if turn >= turns // 2:
            profiles.append(profile)
    print(f"{name}\n  {min(profiles, key=lambda p: p.seconds)}", flush=True)


def _merging(bench: Workbench, pristine: Path, merge: MergeOf, source: data.Columns, batch: Path) -> Callable[[], Any]:
    scratch = bench.path("profile/scratch")
    link_copy(pristine, scratch)
    table = TrinityTable.forPath(bench.spark, str(scratch))

    def run() -> tuple[float, dict[str, float]]:
        start = time.perf_counter()
        plan = merge(table, data.read(bench.spark, source, batch)).build()
        build = time.perf_counter() - start
        return build, dict(plan.execute().seconds)

    return run


def _floor(bench: Workbench, target: Path, batch: Path) -> Callable[[], Any]:
    """P4 in plain Spark: the rows of the changed keys are found and written, with the sum; no semantics."""
    spark, files = bench.spark, str(next((target / "data").iterdir()))

    def run() -> None:
        changes = data.read(spark, data.CHANGES, batch).localCheckpoint()
        rows: DataFrame = spark.read.parquet(files)
        joined = rows.join(changes.selectExpr("id", "amount AS plus").hint("broadcast"), "id")
        joined.selectExpr("*", "amount + plus AS total").repartition("id").write.mode("overwrite").parquet(
            str(bench.path("profile/floor"))
        )

    return run


def main(argv: list[str] | None = None) -> int:
    """Runs the calls that the bars P1, P3, P4, P6 and P9 are about."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="quick")
    parser.add_argument("--turns", type=int, default=14)
    asked = parser.parse_args(argv)
    size, work = SIZES[asked.size], (_BUILD / "profile").resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spark = session.start(size, work)
    bench = Workbench(spark, size, work, lambda text: print(text, file=sys.stderr))
    try:
        events, batches = bench.ours(size.rows), [bench.changes(size.rows, i) for i in range(asked.turns)]
        plain = PlainAppend(
            "plain", spark, bench.events(size.rows), bench.path("profile/plain"), lambda n: [batches[n]]
        )

        def append(turn: int) -> Callable[[], Any]:
            plain.prepare(turn)
            return lambda: plain.run(turn)

        _fastest(spark, "plain append of the changes (P3)", asked.turns, append)
        _fastest(
            spark,
            "blind merge of the changes (P1, P3)",
            asked.turns,
            lambda n: _merging(bench, events, cdc, data.CHANGES, batches[n]),
        )
        _fastest(
            spark,
            "merge that adds amounts up (P4)",
            asked.turns,
            lambda n: _merging(bench, events, accumulate, data.CHANGES, batches[n]),
        )
        _fastest(
            spark,
            "the same keys found and written by plain Spark",
            asked.turns,
            lambda n: _floor(bench, events, batches[n]),
        )
        orders = bench.path("profile/orders")
        table = TrinityTable.create(spark, str(orders), data.ddl(data.ORDERS), primaryKey=["order_id", "start_date"])
        table.upsert(data.read(spark, data.ORDERS, bench.orders())).execute()
        days = [bench.order_changes(day) for day in range(1, size.days + 1)]
        _fastest(
            spark,
            "one day of the guide's chain (P6)",
            max(6, asked.turns // 2),
            lambda n: _merging(bench, orders, close_and_insert, data.ORDER_CHANGES, days[0]),
        )
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
