"""S33: executors and workers that die in the middle of a merge. It succeeds or is refused, and the table is whole."""

from __future__ import annotations

import contextlib
import threading
import time

import cluster
import pytest
from pyspark.sql import functions as F
from tables import batch_directories, directory_of, fill, new_table

from trinitymerge import TrinityMergeError, TrinityTable

pytestmark = pytest.mark.cluster

ROWS = 400


@pytest.fixture
def table(spark, tmp_path) -> TrinityTable:
    """Twice as many rows as are merged into it."""
    return fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(i, "a") for i in range(2 * ROWS)])


def slow(spark, millis: int):
    """Rows whose evaluation takes a while, in four tasks."""
    wait = F.expr(f"java_method('java.lang.Thread', 'sleep', {millis}L + 0 * id)")
    rows = spark.range(0, ROWS, 1, 4).select(F.expr("CAST(id AS INT) AS id"), wait.alias("slept"))
    return rows.selectExpr("id", "coalesce(slept, 'b') AS v").selectExpr(
        "id", "CASE WHEN v IS NOT NULL THEN 'b' END AS v"
    )


def losing(what: str, after: float) -> threading.Thread:
    """Kills an executor or a worker while something else goes on."""

    def kill() -> None:
        time.sleep(after)
        cluster.LOSSES[what]()

    cluster.require(what)
    wait_for_executors()
    thread = threading.Thread(target=kill)
    thread.start()
    return thread


MERGES = {
    "blind": lambda table, source: table.upsert(source),
    "keyed": lambda table, source: (
        table.merge(source, "target.id = source.id").whenMatched("target.v = 'a'").updateExpr({"v": "source.v"})
    ),
    "full": lambda table, source: (
        table.merge(source, "target.id + 0 = source.id").whenMatched().updateExpr({"v": "source.v"})
    ),
}


@pytest.mark.parametrize("lost", cluster.LOSSES)
@pytest.mark.parametrize("after", [0.5, 2.0])
@pytest.mark.parametrize("kind", MERGES)
def test_S33_a_merge_that_loses_a_machine_succeeds_or_is_refused_and_the_table_is_whole(
    spark, table, kind, after, lost
):
    thread, before = losing(lost, after), table.version
    try:
        MERGES[kind](table, slow(spark, 20)).execute()
        merged = True
    except TrinityMergeError:
        merged = False
    thread.join()
    opened = TrinityTable.forPath(spark, table.path)
    assert opened.version == before + merged
    changed = ROWS if merged else 0
    assert opened.toDF().groupBy("v").count().sort("v").collect() == [
        row for row in [("a", 2 * ROWS - changed), ("b", changed)] if row[1]
    ]
    for batch in opened._snapshot().batches:  # no file of a dead task is in a batch, and none is missing
        files = list((directory_of(opened) / "data" / f"_tm_batch={batch.id}").glob("*.parquet"))
        assert (len(files), spark.read.parquet(*map(str, files)).count()) == (batch.files, batch.rows)
    wait_for_executors()
    assert MERGES[kind](opened, slow(spark, 0)).execute().version == opened.version
    opened.vacuum(retentionHours=0)
    assert len(batch_directories(opened)) == len(opened._snapshot().batches)


@pytest.mark.parametrize("lost", cluster.LOSSES)
@pytest.mark.parametrize("what", ["compaction", "read"])
def test_S33_S38_a_compaction_or_a_read_that_loses_a_machine_changes_no_row(spark, table, what, lost):
    table.upsert(slow(spark, 0)).execute()
    thread, before = losing(lost, 0.3), table.version
    if what == "read":
        waits = F.expr("java_method('java.lang.Thread', 'sleep', 10L + 0 * id)")
        assert table.toDF().select("id", waits.alias("slept")).filter("slept IS NULL OR true").count() == 2 * ROWS
    else:
        with contextlib.suppress(TrinityMergeError):
            table.compact(full=True)
    thread.join()
    opened = TrinityTable.forPath(spark, table.path)
    assert opened.version - before in (0, 1)
    assert opened.toDF().groupBy("v").count().sort("v").collect() == [("a", ROWS), ("b", ROWS)]


def wait_for_executors() -> None:
    """The cluster starts another executor for one that died."""
    end = time.monotonic() + 60
    while len(cluster.executors()) < 2:
        assert time.monotonic() < end, "no executor has come back"
        time.sleep(0.2)
