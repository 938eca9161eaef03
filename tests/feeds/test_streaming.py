"""S36: a file stream, killed with its JVM and started again from its checkpoint, merges every micro-batch exactly once.

Each row adds to a counter, so a micro-batch that is merged twice, or not at all, shows; also where its merge has folded it
together with others (S38a). S36a: one that starts over with a
new checkpoint directory is refused, instead of losing its rows as replays.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import time
from collections import Counter

import pytest
from helpers import quickly
from processes import kill, start, was_killed
from pyspark.errors import StreamingQueryException
from tables import fill, frame, live_rows, new_table

from trinitymerge import InvalidMergeError, TrinityTable
from trinitymerge.feeds.streaming import TableOpener
from trinitymerge.log.actions import Action, SetTransaction
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.properties import MINOR_COMPACTION_AFTER_BATCHES, TARGET_SEGMENT_BYTES
from trinitymerge.spark.session import is_connect

FILES = 6

STREAM = """
rows = spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(directory + "/feed")
merge = table.foreachBatch(
    lambda table, batch: table.merge(batch)
    .whenMatched("target.n >= 0").updateExpr({"n": "target.n + source.n"})
    .whenNotMatched().insertAll(),
    appId="feed",
)
query = rows.writeStream.foreachBatch(merge).option("checkpointLocation", directory + "/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""
ELSEWHERE = "directory = sys.argv[2]" + STREAM


@pytest.fixture
def feed(tmp_path) -> Counter:
    """Files of the stream, oldest first, and what they add up to."""
    directory, total = tmp_path / "feed", Counter()
    directory.mkdir()
    for i in range(FILES):
        rows = [{"id": key, "n": 10**i} for key in (0, i % 3, 100 + i)]
        rows = list({row["id"]: row for row in rows}.values())
        total.update({row["id"]: row["n"] for row in rows})
        file = directory / f"{i}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        at = time.time() - 1000 + i
        os.utime(file, (at, at))
    return total


def check_exactly_once(spark, table: TrinityTable, feed: Counter) -> None:
    assert dict(live_rows(table)) == dict(feed)
    markers = [(a.application, a.version) for c in table._store.history() for a in c.all(SetTransaction)]
    assert sorted(markers) == [("feed", i) for i in range(FILES)]
    table.vacuum(retentionHours=0)
    assert dict(live_rows(TrinityTable.forPath(spark, table.path))) == dict(feed)


@pytest.mark.slow
def test_s36_a_stream_killed_before_and_after_its_commit_counts_each_batch_once(spark, tmp_path, feed):
    """Killed after the commit, Spark does not know that the batch is done and repeats it; killed before, it must."""
    table = new_table(spark, tmp_path, "id INT, n INT")
    for fault, version in (("commit.done:2", 2), ("stage.written:2", 3)):
        process = start(table.path, ELSEWHERE, None, tmp_path, fault=fault)
        assert was_killed(process)
        assert table.version == version
    exec(STREAM, {"spark": spark, "table": table, "directory": str(tmp_path)})
    check_exactly_once(spark, table, feed)


@pytest.mark.slow
def test_s36_S38a_a_stream_whose_batches_are_folded_counts_each_once(spark, tmp_path, feed):
    """Killed before its fold is committed and after it: the replay finds its marker, though its own batch is gone."""
    table = new_table(spark, tmp_path, "id INT, n INT", properties={MINOR_COMPACTION_AFTER_BATCHES: "2"})
    for fault, version in (("minor_compaction.staged", 4), ("minor_compaction.committed", 6)):
        assert was_killed(start(table.path, ELSEWHERE, None, tmp_path, fault=fault))
        assert table.version == version
    exec(STREAM, {"spark": spark, "table": table, "directory": str(tmp_path)})
    operations = [c.operation for c in reversed(table._store.history())]
    assert operations == ["CREATE", *["MERGE"] * 5, "MINOR COMPACT", "MERGE"], "no replay committed anything"
    assert table._store.snapshot().transactions == {"feed": FILES - 1}
    check_exactly_once(spark, table, feed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", quickly(["split.moved", "compact.staged", "stage.synced"], ["compact.staged", "stage.synced"])
)
def test_s36_S38b_a_stream_beside_a_compaction_of_a_part_counts_each_batch_once(spark, tmp_path, feed, at_point, point):
    """All micro-batches land while segments are written anew; or these are in the middle of a micro-batch."""
    properties = {TARGET_SEGMENT_BYTES: "1000", MINOR_COMPACTION_AFTER_BATCHES: "none"}
    if point == "stage.synced" and is_connect(spark):
        pytest.skip("there another process reaches this point")
    table = new_table(spark, tmp_path, "id INT, n INT", properties=properties)
    others = [(id, 1) for id in range(1000, 1600)]
    fill(table, spark, others, [(1000, 1)])
    table.compact()
    segments = len(Batches.of(table._snapshot()).base)
    assert segments > 2
    fill(table, spark, [(id, 1) for id in range(1000, 1100)])

    def stream() -> None:
        exec(STREAM, {"spark": spark, "table": table, "directory": str(tmp_path)})

    kept = []
    if point == "stage.synced":
        at_point(point, lambda: kept.append(table.compact().segmentsKept))
        stream()
    else:
        at_point(point, stream)
        kept.append(table.compact().segmentsKept)
    assert 0 < kept[0] < segments
    feed.update(dict(others))
    check_exactly_once(spark, table, feed)


@pytest.mark.long
def test_s36_a_stream_killed_at_random_moments_counts_each_batch_once(spark, tmp_path, feed):
    table = new_table(spark, tmp_path, "id INT, n INT")
    while (before := table.version) < FILES:
        process = start(table.path, ELSEWHERE, None, tmp_path)
        while table.version == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(random.uniform(0, 0.6))
        kill(process)
    assert not was_killed(start(table.path, ELSEWHERE, None, tmp_path))
    check_exactly_once(spark, table, feed)


# Streams that start over (S36a) ---------------------------------------------------------------------------------------


def run_stream(spark, table, directory, checkpoint, on_result=None, app_id="feed"):
    """A file stream in this session, from its checkpoint until all files there are have been merged."""
    rows = spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(str(directory / "feed"))
    write = table.foreachBatch(lambda table, batch: table.upsert(batch), app_id, onResult=on_result)
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / checkpoint))
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    return str(query.id)


@pytest.mark.slow
def test_S36a_a_stream_with_a_new_checkpoint_directory_is_refused_and_loses_nothing_silently(spark, tmp_path):
    table, results = new_table(spark, tmp_path, "id INT, n INT"), tmp_path / "results"
    (tmp_path / "feed").mkdir()
    for i in range(2):
        (tmp_path / "feed" / f"{i}.json").write_text(f'{{"id": {i}, "n": 1}}')

    def note(result):
        with open(results, "a") as file:  # on Spark Connect another process calls this
            file.write(f"{result.version}: '{result.skipped}'\n")

    first = run_stream(spark, table, tmp_path, "checkpoint", note)
    assert results.read_text() == "1: ''\n2: ''\n"
    known = not is_connect(
        spark
    )  # there Spark tells nobody which query a micro-batch is of, and the number alone decides
    assert table._store.snapshot().streams == ({"feed": first} if known else {})
    assert table._store.history()[0].last(SetTransaction).stream == (first if known else None)
    rows = live_rows(table)
    with pytest.raises(StreamingQueryException, match="Give the stream a new appId") as refused:
        run_stream(spark, table, tmp_path, "checkpoint-2")
    assert "another streaming query" in str(refused.value) or not known
    assert (f"id {first}, last number 1" if known else "had committed number 1") in str(refused.value)
    assert (table.version, live_rows(table)) == (2, rows)
    (tmp_path / "feed" / "new.json").write_text('{"id": 7, "n": 7}')
    assert run_stream(spark, table, tmp_path, "checkpoint") == first  # the old one goes on where it was
    assert table.version == 3
    run_stream(spark, table, tmp_path, "checkpoint-2", app_id="feed-2")
    assert table._store.snapshot().transactions == {"feed": 2, "feed-2": 2}


def test_S36a_a_micro_batch_with_a_smaller_number_is_refused_and_an_equal_one_is_a_replay(spark, tmp_path):
    table, results = new_table(spark, tmp_path, "id INT, n INT"), []
    write = table.foreachBatch(lambda table, batch: table.upsert(batch), "feed", onResult=results.append)
    write(frame(spark, "id INT, n INT", (1, 1)), 5)
    write(frame(spark, "id INT, n INT", (2, 2)), 5)
    assert [r.skipped for r in results] == ["", "transaction 5 of 'feed' was committed before (last is 5)"]
    lost = frame(spark, "id INT, n INT", *[(i, i) for i in range(30)])
    with pytest.raises(InvalidMergeError, match=r"Micro-batch 0 of stream 'feed' .* had committed number 5") as refused:
        write(lost, 0)
    assert (refused.value.appId, refused.value.batchId, refused.value.last) == ("feed", 0, 5)
    assert (table.version, live_rows(table), len(results)) == (1, [(1, 1)], 2)
    assert table.upsert(lost).withTransaction("feed", 0).execute().skipped  # S36 knows no streams
    table.upsert(lost).withTransaction("feed", 6).execute()
    with pytest.raises(InvalidMergeError, match="had committed number 6"):
        write(lost, 5)


def test_S36a_another_query_under_the_same_name_is_refused_at_any_number(spark, tmp_path, monkeypatch):
    table, ids = new_table(spark, tmp_path, "id INT, n INT"), iter(["one", None, "one", "two", "two", "two"])
    monkeypatch.setattr("trinitymerge.feeds.streaming.streaming_query_id", lambda spark: next(ids))
    write = table.foreachBatch(lambda table, batch: table.upsert(batch), "feed")
    row = frame(spark, "id INT, n INT", (1, 1))
    for earlier in (2, 3, 4):  # where Spark does not tell, the number alone decides, and the id stays known
        write(row, earlier)
    for number in (3, 4, 5):
        with pytest.raises(InvalidMergeError, match=r"\(id two\) than those that .* \(id one, last number 4\)"):
            write(row, number)
    assert table.version == 3


def test_S36a_the_query_that_was_faster_is_seen_by_the_one_that_was_slower(spark, tmp_path, at_point):
    table = new_table(spark, tmp_path, "id INT, n INT")
    write = table.foreachBatch(lambda table, batch: table.upsert(batch), "feed")
    row = frame(spark, "id INT, n INT", (1, 1))
    at_point("validate.done", lambda: write(row, 3))
    with pytest.raises(InvalidMergeError, match="Micro-batch 2 of stream 'feed'"):
        write(row, 2)
    assert table.version == 1


def test_S36a_logs_without_ids_of_queries_are_read_and_foreign_ids_refused(spark, tmp_path):
    snapshot = new_table(spark, tmp_path, "id INT, n INT")._store.snapshot()
    one = snapshot.apply(snapshot.next_commit("MERGE", [SetTransaction("a", 1)]))
    assert (one.transactions, one.streams) == ({"a": 1}, {})
    assert Snapshot.from_json(one.to_json()) == one
    with pytest.raises(TypeError, match="stream"):
        Action.from_json({"type": "setTransaction", "application": "a", "version": 1, "stream": 1})


def test_S36_a_micro_batch_reads_what_the_log_has_got_since_the_last_one(spark, tmp_path, monkeypatch):
    """The thousandth micro-batch costs what the second does, and reads another writer's commit."""
    table, read = new_table(spark, tmp_path, "id INT, n INT"), list[str]()
    write = table.foreachBatch(lambda into, batch: into.upsert(batch), "feed")
    as_it_was = table._store.files.__class__.read

    def noted(files, path):
        read.append(path)
        return as_it_was(files, path)

    monkeypatch.setattr(type(table._store.files), "read", noted)
    counts = []
    for i in range(5):
        if i == 3:
            fill(table, spark, [(100, 1)])
            read.clear()
        write(frame(spark, "id INT, n INT", (i, i)), i)
        counts.append(len(read))
        read.clear()
    assert counts[1] == counts[2] == counts[4] == counts[3] - 1 < counts[0], counts
    assert dict(live_rows(table)) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 100: 1}
    copy = pickle.loads(pickle.dumps(TableOpener(_open_nothing)))
    assert (copy.open, copy._opened) == (_open_nothing, None)


def _open_nothing(spark):
    """A function that can be pickled."""


def test_each_micro_batch_is_a_line_of_the_log(spark, tmp_path, caplog):
    table = new_table(spark, tmp_path, "id INT, n INT", watermarkKey=None, tombstoneKey=None)
    follow = table.foreachBatch(lambda into, batch: into.upsert(batch), "feed")
    with caplog.at_level("INFO", logger="trinitymerge"):
        follow(frame(spark, "id INT, n INT", (1, 1)), 0)
        follow(frame(spark, "id INT, n INT", (1, 1)), 0)
    found = [m.split(": ", 1)[1] for m in caplog.messages if "micro-batch" in m]
    first, replay = (m.removeprefix("micro-batch 0 of stream 'feed': version 1: ") for m in found)
    assert first.startswith("0 stale (1 row appended from 1 source row; blind append; ")
    assert replay == "nothing committed, transaction 0 of 'feed' was committed before (last is 0)"


def test_foreachBatch_refuses_arguments_of_another_kind(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, n INT")
    with pytest.raises(InvalidMergeError, match="onResult takes a function of one MergeResult, got str"):
        table.foreachBatch(len, "feed", "print")
    with pytest.raises(InvalidMergeError, match="has not been executed, got MergeResult"):
        table.foreachBatch(lambda table, batch: table.upsert(batch).execute(), "feed")(table.toDF(), 0)
