"""Spark Connect is as good as a classic session: nothing needs the JVM, and nothing trusts that frames are analyzed at once.

Tests with `spark` run on either kind; those of refusals use stand-ins, because this process has one kind only.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from connect import not_run
from helpers import assertRows
from pyspark import cloudpickle
from pyspark.sql import functions as F
from tables import EVENTS, batch_directories, directory_of, fill, frame, live_rows, new_table

from trinitymerge import TrinityTable
from trinitymerge.errors import InvalidMergeError, ReadOnlyTableError, SchemaMismatchError, UnsupportedStorageError
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.log.actions import SetTransaction
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP
from trinitymerge.spark import session as session_module
from trinitymerge.spark.conf import capture_observations, session_conf
from trinitymerge.spark.observe import Metrics
from trinitymerge.stores.file_format import spark_finds, write
from trinitymerge.stores.managed import DirectoryStore
from trinitymerge.testing.assertions import assertRows as assert_rows_of_pipeline

ROWS = [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)]


def remote_session(session_id: str = "", **settings: str) -> SimpleNamespace:
    """A stand-in for a session of Spark Connect: no JVM, only settings; of no class PySpark 3.5 would share."""
    conf = SimpleNamespace(get=lambda name, default=None: settings.get(name.replace(".", "_"), default))
    kind = type("SparkSession", (SimpleNamespace,), {"__module__": "pyspark.sql.connect.session"})
    return kind(conf=conf, session_id=session_id)


@pytest.fixture
def table(spark, tmp_path):
    return fill(new_table(spark, tmp_path), spark, ROWS)


# What was observed ----------------------------------------------------------------------------------------------------


def test_s32_a_source_is_evaluated_once_and_counted_wherever_the_metrics_come_from(spark, monkeypatch):
    """A checkpoint on Spark Connect brings no metrics along."""
    source = spark.range(1000).selectExpr("id", "rand() AS r")
    metrics = {"total": "sum(r)", "nothing": "max(CASE WHEN id < 0 THEN id END)"}
    at_once = materialize(source, metrics)
    monkeypatch.setattr(session_module, "observed", lambda observation, name: None)
    asked = materialize(source, metrics)
    for once in (at_once, asked):
        assert (once.rows, once.observed["nothing"]) == (1000, None)
        assert once.observed["total"] == pytest.approx(once.frame.agg(F.sum("r")).collect()[0][0])


def test_S34_what_is_observed_comes_although_the_schema_was_asked_for(spark, tmp_path):
    """A Connect server of Spark 4.0 runs the plan that it has kept, and says nothing of what it observes."""
    gathering = Metrics({"rows": "count(1)"})
    rows = gathering.observe(spark.range(3)).filter("id > 0")
    assert rows.columns == ["id"]
    with capture_observations(spark):
        write(rows, "parquet", str(tmp_path / "rows"))
    assert gathering.collect() == {"rows": 3}


def test_metrics_that_never_come_are_an_error(spark, monkeypatch):
    gathering = Metrics({"n": "count(1)"})
    gathering.observe(spark.range(3)).collect()
    monkeypatch.setattr(session_module, "observed", lambda observation, name: None)
    with pytest.raises(RuntimeError, match="without returning its observed metrics"):
        gathering.collect()


@pytest.mark.parametrize("path", [APPEND_ONLY, KEY_LOOKUP, FULL_SCAN])
@pytest.mark.parametrize("as_columns", [False, True])
def test_s31_every_path_runs_and_columns_are_understood(spark, table, path, as_columns):
    source = frame(
        spark, "id INT, ts INT, v STRING, op STRING", (1, 20, "x", "U"), (2, 20, None, "D"), (9, 20, "n", "I")
    )
    pair, gone, there = "A.id = B.id", "B.op = 'D'", "B.op <> 'D'"
    values = {"id": "B.id", "ts": "B.ts", "v": "B.v", "deleted": "false"}
    if as_columns:
        op = F.col("B.op")
        pair, gone, there = F.col("A.id") == F.col("B.id"), op == "D", op != "D"
        values = {name: F.col(text) if "." in text else F.lit(False) for name, text in values.items()}
    merge = (
        table.alias("A")
        .merge(source.alias("B"), pair)
        .whenMatched(gone)
        .delete()
        .whenMatched()
        .updateExpr({name: value for name, value in values.items() if name != "id"})
        .whenNotMatched(there)
        .insertExpr(values)
    )
    assert merge.build().chosen is APPEND_ONLY, "the condition is understood to be key equality"
    result = merge._with_strategy(path).execute()
    assert (result.strategy, result.rowsAppended, result.rowsSource) == (path.name, 3, 3)
    assert live_rows(table) == [(1, 20, "x", False), (3, 10, "c", False), (9, 20, "n", False)]


# Frames are analyzed late ---------------------------------------------------------------------------------------------


def test_s34_an_unknown_column_is_refused_when_the_merge_is_built(table, spark):
    source = frame(spark, EVENTS, *ROWS)
    with pytest.raises(InvalidMergeError, match="nowhere"):
        table.merge(source).whenMatched("source.nowhere > 1").delete().build()


def test_s33_a_file_that_is_lost_between_opening_and_reading_is_an_error_and_not_fewer_rows(spark, tmp_path):
    table = new_table(spark, tmp_path)
    fill(table, spark, ROWS[:1], ROWS[1:])
    opened = table.toDF()
    first = sorted(batch_directories(table))[0]
    for file in (directory_of(table) / "data" / first).glob("part-*"):
        file.unlink()
    with pytest.raises(Exception, match=r"(?i)not.?exist|FILE_NOT_EXIST|PATH_NOT_FOUND"):
        opened.collect()


# Whatever is asked answers --------------------------------------------------------------------------------------------


def test_a_column_is_no_source_of_a_merge(table):
    """A Column, and a Connect DataFrame, answers to every name with a column."""
    with pytest.raises(InvalidMergeError, match=r"must be a DataFrame or a TrinityTable, got pyspark\.Column"):
        table.merge(F.col("id"))
    with pytest.raises(SchemaMismatchError, match=r"takes a DataFrame or a list of keys, got pyspark\.Column"):
        table.purge(F.col("id"))


def test_a_merge_function_of_a_stream_that_returns_a_dataframe_is_refused(spark, table):
    run = table.foreachBatch(lambda table, batch: batch, appId="feed")
    with pytest.raises(InvalidMergeError, match="must return a merge builder"):
        run(frame(spark, EVENTS, *ROWS), 0)


def test_a_pipelines_rows_are_compared_whether_they_are_a_dataframe_or_a_table(spark, table):
    expected = [dict(zip(("id", "ts", "v", "deleted"), row, strict=True)) for row in ROWS]
    assert_rows_of_pipeline(table, expected)
    assert_rows_of_pipeline(table.toDF(), expected)
    with pytest.raises(AssertionError, match="1 of 3 rows differ"):
        assert_rows_of_pipeline(table.toDF().filter("id < 3"), expected, key="id")


def test_a_source_of_another_connect_session_is_refused_with_what_to_do(table):
    """A merge function that uses a table from outside instead of the one it is handed comes to this."""
    theirs = {"sameSemantics": None, "sparkSession": remote_session(session_id="theirs")}
    frame_of = type("DataFrame", (), {**theirs, "__module__": "pyspark.sql.connect.dataframe"})
    opened = TrinityTable.forPath(remote_session(session_id="ours"), table.path)
    with pytest.raises(
        InvalidMergeError, match=r"another Spark Connect session.*forPath\(source\.sparkSession, path\)"
    ):
        opened.merge(frame_of())


# Streams --------------------------------------------------------------------------------------------------------------


def test_s36_a_stream_merges_each_micro_batch_once(spark, tmp_path):
    """On Spark Connect the function is pickled and runs in another process, in another session."""
    feed, table = tmp_path / "feed", new_table(spark, tmp_path, "id INT, n INT")
    feed.mkdir()
    for i in range(3):
        (feed / f"{i}.json").write_text("\n".join(json.dumps({"id": key, "n": 10**i}) for key in (0, i)[: i + 1]))
    write = table.alias("T").foreachBatch(
        lambda table, batch: (
            table.merge(batch).whenMatched("T.n >= 0").updateExpr({"n": "T.n + source.n"}).whenNotMatched().insertAll()
        ),
        appId="feed",
    )
    for _ in range(2):
        rows = spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(str(feed))
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
    assertRows(table.toDF(), [(0, 111), (1, 10), (2, 100)])
    assert [a.version for c in table._store.history() for a in c.all(SetTransaction)] == [2, 1, 0]


def test_s36_the_function_of_a_stream_can_be_sent_to_another_process(spark, table):
    write = table.foreachBatch(lambda table, batch: table.upsert(batch), appId="feed")
    sent = pickle.loads(cloudpickle.dumps(write))
    sent(frame(spark, EVENTS, (4, 10, "d", False)), 0)
    assert len(live_rows(table)) == 4


# Where tables are -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["s3a://bucket/t", "hdfs://host/t", "abfss://a@b/t", "viewfs:///t"])
def test_storage_beyond_the_jvm_is_refused_with_what_to_do(path):
    with pytest.raises(UnsupportedStorageError, match=r"Spark Connect session has none\. Use a classic session"):
        filesystem_for(remote_session(), path)


def test_a_plain_path_is_not_taken_for_local_where_the_session_says_otherwise(tmp_path):
    session = remote_session(spark_hadoop_fs_defaultFS="hdfs://host:8020")
    with pytest.raises(UnsupportedStorageError, match="hdfs://host:8020' by 'spark"):
        filesystem_for(session, "/data/orders")
    assert isinstance(filesystem_for(session, f"file:{tmp_path}"), LocalFileSystem)


def test_s33_a_server_that_writes_elsewhere_is_noticed(table, monkeypatch):
    monkeypatch.setattr("trinitymerge.stores.managed.write", lambda rows, file_format, path: None)
    monkeypatch.setattr("trinitymerge.stores.managed.spark_finds", lambda session, path: True)
    store = DirectoryStore(remote_session(), table.path)
    with pytest.raises(UnsupportedStorageError, match="is not on this machine: the server is elsewhere"):
        store.stage(SimpleNamespace(schema=None), table.definition)


@pytest.mark.parametrize("ignored", ["false", "true"])
def test_s33_spark_is_asked_what_it_finds_whatever_the_session_ignores(spark, tmp_path, ignored):
    (tmp_path / "a[b]").mkdir()
    with session_conf(spark, {"spark.sql.files.ignoreMissingFiles": ignored}):
        assert spark_finds(spark, f"{tmp_path}/a[b]")
        assert not spark_finds(spark, f"{tmp_path}/ab")


def test_a_connect_session_of_pyspark_3_5_reads_only(table, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "3.5.0")
    opened = TrinityTable.forPath(remote_session(), table.path)
    assert opened.version == table.version
    with pytest.raises(ReadOnlyTableError, match=r"can only be read in this session.*PySpark 4\.0"):
        opened.compact()


# The suite on Spark Connect -------------------------------------------------------------------------------------------


def test_what_is_not_run_on_connect_stands_in_the_readme_with_its_reason():
    here, table = Path(__file__).parent, not_run()
    page = (here / "README.md").read_text("utf-8")
    assert f"<!-- not on connect: begin -->\n\n{table}\n\n<!-- not on connect: end -->" in page, table
    marks = sum(f.read_text("utf-8").count("\n@pytest.mark.classic(") for f in here.rglob("test_*.py"))
    assert table.count("::") == marks > 0, "a mark that is no decorator of a test is not in the table"
