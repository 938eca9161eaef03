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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession, functions as F

from benchmarks import data, session
from benchmarks.contestants import MergeOf, PlainAppend, link_copy
from benchmarks.sections.chains import accumulate, cdc
from benchmarks.sections.history import close_and_insert
from benchmarks.sections.reads import largest_batch
from benchmarks.sections.shared import with_batches
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
        task_ms = sum(_run_time_ms(store, stage) for stage in _each(job.stageIds()))
        found.append(
            Job((start - began_ms) / 1000, (end.get().getTime() - began_ms) / 1000, job.numTasks(), task_ms / 1000)
        )
    return sorted(found, key=lambda j: j.start)


def _each(found: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (found.apply(n) for n in range(found.size()))


def _run_time_ms(store: Any, stage: int) -> int:
    """What the tasks of a stage took. Spark soon forgets stages that it has skipped, whose rows were there already."""
    try:
        return int(store.lastStageAttempt(stage).executorRunTime())
    except Py4JJavaError as error:
        if "NoSuchElementException" in str(error.java_exception):
            return 0
        raise


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


def _added_up_plainly(bench: Workbench, target: Path, batch: Path) -> Callable[[], Any]:
    """P4 in plain Spark: the rows of the changed keys are found and written, with the sum; no semantics."""
    spark, files = bench.spark, str(largest_batch(target))

    def run() -> None:
        changes = data.read(spark, data.CHANGES, batch).localCheckpoint()
        rows: DataFrame = spark.read.parquet(files)
        joined = rows.join(F.broadcast(changes.selectExpr("id", "amount AS plus")), "id")
        _written(bench, joined.selectExpr("*", "amount + plus AS total").repartition("id"))

    return run


def _closed_plainly(bench: Workbench, target: Path, batch: Path) -> Callable[[], Any]:
    """P6 in plain Spark: the open versions of the changed orders are found, closed, and written with the new ones; no semantics."""
    spark, files = bench.spark, str(largest_batch(target))

    def run() -> None:
        changes = data.read(spark, data.ORDER_CHANGES, batch).localCheckpoint()
        rows: DataFrame = spark.read.parquet(files).filter("end_date = DATE'9999-01-01'")
        closed = rows.join(F.broadcast(changes.selectExpr("order_id", "update_date")), "order_id")
        old = closed.selectExpr("order_id", "customer_id", "start_date", "update_date AS end_date", "state")
        new = changes.selectExpr("order_id", "customer_id", "update_date", "DATE'9999-01-01'", "state")
        _written(bench, old.union(new).repartition("order_id", "start_date"))

    return run


def _written(bench: Workbench, rows: DataFrame) -> None:
    rows.write.mode("overwrite").parquet(str(bench.path("profile/plain-result")))


def _merges(bench: Workbench, turns: int) -> None:
    """P1, P3 and P4: small merges, with and without a look at the target."""
    rows, spark = bench.size.rows, bench.spark
    events, batches = bench.ours(rows), [bench.changes(rows, i) for i in range(turns)]
    plain = PlainAppend("plain", spark, bench.events(rows), bench.path("profile/plain"), lambda n: [batches[n]])

    def append(turn: int) -> Callable[[], Any]:
        plain.prepare(turn)
        return lambda: plain.run(turn)

    def merging(merge: MergeOf) -> Callable[[int], Callable[[], Any]]:
        return lambda n: _merging(bench, events, merge, data.CHANGES, batches[n])

    _fastest(spark, "plain append of the changes (P3)", turns, append)
    _fastest(spark, "blind merge of the changes (P1, P3)", turns, merging(cdc))
    _fastest(spark, "merge that adds amounts up (P4)", turns, merging(accumulate))
    _fastest(
        spark,
        "the same keys found and written by plain Spark",
        turns,
        lambda n: _added_up_plainly(bench, events, batches[n]),
    )


def _reads(bench: Workbench, turns: int) -> None:
    """P5 and P9: reading with few batches pending, with many rows pending, and with none."""
    rows, spark = bench.size.rows, bench.spark
    pristine, many = bench.ours(rows), bench.path("profile/many")
    merged, compacted = bench.path("profile/merged"), bench.path("profile/compacted")
    few = with_batches(bench, pristine, [bench.changes(rows, i) for i in range(_PENDING)], merged)
    link_copy(merged, compacted)
    TrinityTable.forPath(spark, str(compacted)).compact()
    steady = with_batches(bench, pristine, [bench.changes(rows, i) for i in range(bench.size.steady)], many)
    base, none = largest_batch(pristine), TrinityTable.forPath(spark, str(compacted))
    deltas = [str(batch) for batch in (merged / "data").iterdir() if batch.name != base.name]

    def left_out_plainly() -> DataFrame:
        changed: DataFrame = spark.read.parquet(*deltas).selectExpr("id AS changed")
        return data.read(spark, data.EVENTS, base).join(F.broadcast(changed), F.expr("id = changed"), "left_anti")

    reads: dict[str, Callable[[], DataFrame]] = {
        "Spark scans the base alone (P5)": lambda: data.read(spark, data.EVENTS, base),
        "Spark scans the base without the changed keys (P5)": left_out_plainly,
        f"read after {_PENDING} merges (P5)": few.toDF,
        "read after compact() (P5)": none.toDF,
        f"read after {bench.size.steady} merges (P9)": steady.toDF,
    }
    for name, read in reads.items():
        _fastest(spark, name, turns, lambda n, read=read: lambda: _reading(read))


def _reading(read: Callable[[], DataFrame]) -> tuple[float, dict[str, float]]:
    """A full read, and the time until there is something to read."""
    start = time.perf_counter()
    rows = read()
    planned = time.perf_counter() - start
    data.full_read(rows, data.EVENTS)
    return planned, {}


def _few_keys(bench: Workbench, turns: int) -> None:
    """P8: a hundred keys of a small and of a large table."""
    for rows in (bench.size.flat[0], bench.size.flat[-1]):
        table, batches = bench.compacted(rows), bench.a_few_changes(rows, turns)
        name = f"{bench.size.few_changes} amounts added up in {rows:,} rows (P8)"
        _fastest(
            bench.spark,
            name,
            turns,
            lambda n, table=table, batches=batches: _merging(bench, table, accumulate, data.CHANGES, batches(n)[0]),
        )


def _days(bench: Workbench, turns: int) -> None:
    """P6: a day of the guide's chain."""
    orders = bench.path("profile/orders")
    keys = ["order_id", "start_date"]
    table = TrinityTable.create(bench.spark, str(orders), data.ddl(data.ORDERS), primaryKey=keys)
    table.upsert(data.read(bench.spark, data.ORDERS, bench.orders())).execute()
    day = bench.order_changes(1)
    _fastest(
        bench.spark,
        "one day of the guide's chain (P6)",
        max(6, turns // 2),
        lambda n: _merging(bench, orders, close_and_insert, data.ORDER_CHANGES, day),
    )
    name = "the same versions found, closed and written by plain Spark"
    _fastest(bench.spark, name, max(6, turns // 2), lambda n: _closed_plainly(bench, orders, day))


def _compactions(bench: Workbench, turns: int) -> None:
    """P10: a compaction after changes to the newest rows, and one of all."""
    rows, newest, scratch = bench.size.flat[-1], bench.path("profile/newest"), bench.path("profile/scratch-newest")
    with_batches(bench, bench.compacted(rows), [bench.newest_changes(rows, i) for i in range(_PENDING)], newest)

    def compacting(**how: bool) -> Callable[[], Any]:
        link_copy(newest, scratch)
        table = TrinityTable.forPath(bench.spark, str(scratch))
        return lambda: (table.compact(**how), None)[1]

    _fastest(bench.spark, f"compact() of the newest of {rows:,} rows (P10)", 4, lambda n: compacting())
    _fastest(bench.spark, f"compact(full=True) of {rows:,} rows (P10)", 2, lambda n: compacting(full=True))


_PENDING = 5

_PROFILES: dict[str, Callable[[Workbench, int], None]] = {
    "merges": _merges,
    "reads": _reads,
    "few": _few_keys,
    "days": _days,
    "compactions": _compactions,
}


def main(argv: list[str] | None = None) -> int:
    """Runs the calls that the bars P1, P3, P4, P5, P6, P8, P9 and P10 are about."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="quick")
    parser.add_argument("--turns", type=int, default=14)
    parser.add_argument("--only", default=",".join(_PROFILES), help="some of: %(default)s")
    asked = parser.parse_args(argv)
    size, work = SIZES[asked.size], (_BUILD / "profile").resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spark = session.start(size, work)
    bench = Workbench(spark, size, work, lambda text: print(text, file=sys.stderr))
    try:
        for name in asked.only.split(","):
            _PROFILES[name](bench, asked.turns)
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
