"""What a call costs, in Spark jobs: a merge that need not read the table is one job, opening a table is none."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyspark import SparkContext
from tables import copy_of, fill, frame, new_table

from trinitymerge import TrinityTable
from trinitymerge.sessions import is_connect

pytestmark = pytest.mark.generated


class Jobs:
    """How many jobs were submitted."""

    count = 0


@contextmanager
def jobs_of(spark):
    scheduler = (
        SparkContext.getOrCreate()._jsc.sc().dagScheduler()
    )  # on Spark Connect the server is in this process's JVM
    jobs, before = Jobs(), scheduler.numTotalJobs()
    yield jobs
    jobs.count = scheduler.numTotalJobs() - before


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    made = new_table(spark, tmp_path_factory.mktemp("costs"))
    return fill(made, spark, [(i, 10, "a", False) for i in range(50)], [(1, 20, "b", False), (2, 20, None, True)])


@pytest.fixture(scope="module")
def changes(spark, tmp_path_factory):
    """A file of changes, as a batch job reads it."""
    path = str(tmp_path_factory.mktemp("costs") / "changes")
    frame(
        spark, "id INT, ts INT, v STRING, op STRING", (1, 30, "c", "U"), (3, 30, None, "D"), (99, 30, "d", "I")
    ).write.parquet(path)
    return lambda: spark.read.schema("id INT, ts INT, v STRING, op STRING").parquet(path)


def cdc(table, changes):
    return (
        table.alias("A")
        .merge(changes.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched()
        .updateExpr({"v": "B.v", "ts": "B.ts", "deleted": "false"})
        .whenNotMatched("B.op <> 'D'")
        .insertExpr({"id": "B.id", "v": "B.v", "ts": "B.ts", "deleted": "false"})
    )


def test_opening_and_describing_a_table_runs_no_job(spark, table):
    with jobs_of(spark) as jobs:
        opened = TrinityTable.forPath(spark, table.path)
        assert opened.definition.primaryKey == ("id",)
        assert opened.version == table.version
        opened.toDF().schema  # noqa: B018
    assert jobs.count == 0


def test_building_and_explaining_a_merge_runs_no_job(spark, table, changes):
    with jobs_of(spark) as jobs:
        cdc(table, changes()).explain()
    assert jobs.count == 0


def test_blind_append_is_one_job(spark, table, changes):
    merge = cdc(copy_of(table, spark), changes())
    with jobs_of(spark) as jobs:
        result = merge.execute()
    assert (result.path, result.rowsAppended) == ("blind append", 3)
    assert jobs.count == 1 + is_connect(spark)  # there always the shuffle, too: nobody tells that the source is small


def test_keyed_lookup_evaluates_the_source_finds_the_keys_and_writes(spark, table, changes):
    merge = (
        copy_of(table, spark)
        .alias("A")
        .merge(changes().alias("B"), "A.id = B.id")
        .whenMatched()
        .updateExpr({"v": "concat(A.v, B.v)"})
        .whenNotMatched()
        .insertExpr({"id": "B.id", "ts": "B.ts", "v": "B.v"})
    )
    with jobs_of(spark) as jobs:
        result = merge.execute()
    assert (result.path, result.rowsAppended) == ("keyed lookup", 3)
    # the source; its keys, sent to every task; their rows, resolved, and sent to every task; the write
    assert jobs.count == 5 + 3 * is_connect(spark)  # there its rows are counted by a job, and two more shuffles


def test_S7b_converting_evaluates_the_source_once_and_writes(spark, table, changes, tmp_path):
    rows = changes().drop("op")
    with jobs_of(spark) as jobs:
        made = TrinityTable.convert(spark, rows, str(tmp_path / "converted"), "id", "ts")
    assert made.version == 1
    assert jobs.count == 2  # the shuffle; the write


def test_S40a_cloning_runs_no_job(spark, table, tmp_path):
    with jobs_of(spark) as jobs:
        assert table.clone(str(tmp_path / "clone")).version == table.version
    assert jobs.count == 0


def test_merge_that_was_committed_before_runs_no_job(spark, table, changes):
    target = copy_of(table, spark)
    cdc(target, changes()).withTransaction("daily", 1).execute()
    again = cdc(target, changes()).withTransaction("daily", 1)
    with jobs_of(spark) as jobs:
        assert again.execute().skipped
    assert jobs.count == 0
