"""What a call costs, in Spark jobs: a merge that need not read the table is one job, opening a table is none."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyspark import SparkContext
from tables import copy_of, fill, frame, new_table
from test_segments import base_of, row, segmented

from trinitymerge import TrinityTable, feeds
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.spark.session import is_connect

pytestmark = pytest.mark.generated


class Jobs:
    """How many jobs were submitted."""

    count = 0


@contextmanager
def jobs_of(spark):
    # On Spark Connect the server is in this process's JVM.
    scheduler = SparkContext.getOrCreate()._jsc.sc().dagScheduler()
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
    assert (result.strategy, result.rowsAppended) == ("blind append", 3)
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
    assert (result.strategy, result.rowsAppended) == ("keyed lookup", 3)
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


# Reading all of the target, and maintenance -----------------------------------------------------------------------------


def test_full_scan_evaluates_the_source_and_reads_the_target_once(spark, table, changes):
    merge = (
        copy_of(table, spark)
        .alias("A")
        .merge(changes().alias("B"), "A.v = B.v")
        .whenMatched()
        .updateExpr({"v": "concat(A.v, B.op)"})
    )
    with jobs_of(spark) as jobs:
        result = merge.execute()
    assert result.strategy == "full scan"
    # the source; its rows, and the keys of the newer batch, sent to every task; the shuffle of what is written; the write
    assert jobs.count == 5 + 2 * is_connect(spark)  # there its rows are counted by a job, and that takes a shuffle


def test_S38a_a_fold_is_one_job(spark, table):
    folded = fill(copy_of(table, spark), spark, *[[(i, 30, "c", False)] for i in range(5)])
    snapshot = folded._snapshot()
    with jobs_of(spark) as jobs:
        assert minor_compact(folded._store, snapshot, snapshot.batches[-3:]) is not None
    assert jobs.count == 1


def test_S38_a_compaction_of_a_small_table_is_one_job_and_another_is_none(spark, table):
    compacted = copy_of(table, spark)
    with jobs_of(spark) as jobs:
        assert compacted.compact().batches == 2
    assert jobs.count == 1
    with jobs_of(spark) as jobs:
        assert compacted.compact().skipped
    assert jobs.count == 0


@pytest.mark.slow
def test_S38b_a_compaction_samples_keys_writes_segments_and_looks_through_each(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(id, 3) for id in range(590, 620)])
    with jobs_of(spark) as jobs:
        table.compact(full=True)
    # the sample of keys; the shuffle; the write; of each segment what its tasks have found, and that together
    assert jobs.count == 3 + 2 * len(base_of(table))
    before = base_of(table)
    fill(table, spark, [row(id, 3) for id in range(610, 615)])
    with jobs_of(spark) as jobs:
        result = table.compact()
    assert 0 < result.segmentsKept < len(before)
    written = (
        len(base_of(table)) - result.segmentsKept
    )  # what is pending lies in one segment, as is known without a count
    assert jobs.count == (3 + 2 * written if written > 1 else 1)


# Jobs as the page counts them -----------------------------------------------------------------------------------------


def actions(spark):
    """The numbers of Spark's SQL executions that have run a job, but for those that others have begun."""
    SparkContext.getOrCreate()._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    some = (found.apply(i) for i in range(found.size()))
    return {e.executionId() for e in some if e.jobs().size() and e.rootExecutionId() == e.executionId()}


def source_of(changes):
    return changes().selectExpr("id", "ts", "v", "op = 'D' AS deleted")


def with_history_insert(table, changes):
    past = TrinityTable.create(
        changes().sparkSession, f"{table.path}-past", "id INT, v STRING, ts INT", "id", watermarkKey="ts"
    )
    merge = table.alias("A").merge(changes().alias("B"), "A.id = B.id").whenMatched()
    updated = merge.updateExpr({"v": "B.v", "ts": "B.ts"})
    return updated.insertHistoryExpr({"id": "A.id", "v": "A.v", "ts": "A.ts"}, past).execute()


CALLS = {
    "changes": (0, lambda t, c: t.changes(0)),
    "changesSince": (0, lambda t, c: t.changesSince(t, "feed")),
    "versions": (0, lambda t, c: t.versions()),
    "versions of keys": (2, lambda t, c: t.versions(keys=[1])),
    "asOf": (0, lambda t, c: t.asOf(15)),
    "why": (2, lambda t, c: t.why(1)),
    "sqlFor": (0, lambda t, c: t.sqlFor("duckdb")),
    "export": (1, lambda t, c: t.export(f"{t.path}-exported")),
    "clone": (0, lambda t, c: t.clone(f"{t.path}-clone")),
    "history": (0, lambda t, c: t.history()),
    "detail": (0, lambda t, c: t.detail()),
    "health": (1, lambda t, c: t.health()),
    "alter": (0, lambda t, c: t.alter().addColumn("n", "INT").execute()),
    "alter with a constraint": (1, lambda t, c: t.alter().addCheck("positive", "id >= 0").execute()),
    "restore": (0, lambda t, c: t.restore(1)),
    "vacuum": (0, lambda t, c: t.vacuum()),
    "purge of a key in one batch": (7, lambda t, c: t.purge([3])),
    "purge of a key in two batches": (8, lambda t, c: t.purge([1])),
    "purge of a key in none": (6, lambda t, c: t.purge([1000])),
    "purgeWhere without a row": (2, lambda t, c: t.purgeWhere("v = 'nowhere'")),
    "purgeWhere": (1 + 7, lambda t, c: t.purgeWhere("id = 3")),
    "upsert": (1, lambda t, c: t.upsert(source_of(c)).execute()),
    "insert, the first of several": (
        2,
        lambda t, c: t.insert(source_of(c), deduplicate=True, orderBy="v").execute(),
    ),
    "deleteWhere": (1, lambda t, c: t.deleteWhere("id < 5").execute()),
    "history inserts": (2 + 4, with_history_insert),
    "applyChanges": (1, lambda t, c: t.applyChanges(source_of(c)).execute()),
    "applyChanges that leaves nulls": (
        2,
        lambda t, c: t.applyChanges(source_of(c), ignoreNullUpdates=True).execute(),
    ),
    "applyChanges that names columns": (
        2,
        lambda t, c: t.applyChanges(source_of(c).selectExpr("*", "array('v') AS u"), unchanged="u").execute(),
    ),
    "snapshot": (3, lambda t, c: t.snapshot(c().select("id", "v"), at=40).execute()),
    "compact": (1, lambda t, c: t.compact()),
    "compact with history": (2, lambda t, c: t.compact()),
}
OF_HISTORY = ("versions", "versions of keys", "asOf", "compact with history", "applyChanges that leaves nulls")


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
@pytest.mark.parametrize("call", CALLS)
def test_calls_submit_as_many_jobs_as_the_page_says(spark, table, changes, tmp_path, call):
    history = {"history": True} if call in OF_HISTORY else {}
    own = new_table(spark, tmp_path, **history)
    fill(own, spark, [(i, 10, "a", False) for i in range(50)], [(1, 20, "b", False), (2, 20, None, True)])
    expected, make = CALLS[call]
    before = actions(spark)
    make(own, changes)
    assert len(actions(spark) - before) == expected


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
def test_applyChanges_of_a_feed_evaluates_and_counts_its_messages_in_one_job(spark, tmp_path):
    own = new_table(spark, tmp_path, "id INT, v STRING, _seq STRING", watermarkKey="_seq")
    event = '{"op":"u","after":{"id":%d,"v":"a"},"source":{"sequence":"[null,\\"%d\\"]","snapshot":"false"}}'
    for more, jobs in (((), 2), (('{"status":"END","id":"5:20","event_count":1}',), 3)):
        messages = frame(spark, "value STRING", *[(event % (i, i),) for i in range(1, 4)], *[(m,) for m in more])
        before = actions(spark)
        assert own.applyChanges(feeds.debezium(messages)).execute().feed.upserts == 3
        assert len(actions(spark) - before) == jobs
