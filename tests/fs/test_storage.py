"""S33 on a real server: writers that race, a server that dies and comes back, a captured stream, requests that are counted.

`make test-storage` runs this on each kind of server, and beside it a part of the suite (`storage.py`).
"""

from __future__ import annotations

import gzip
import random
import threading
import time
import uuid

import pytest
import storage
import tables
from feed_tables import TABLES, of_database
from helpers import assertRows
from processes import finish, kill, start
from tables import fill, frame, live_rows, new_table
from test_ingest import DATA, config, ingested, written

from trinitymerge import TrinityTable
from trinitymerge.errors import TrinityMergeError

pytestmark = [pytest.mark.storage, pytest.mark.classic("reaches storage through Hadoop, in Spark's JVM")]

ROWS = "id INT, ts INT, v STRING, deleted BOOLEAN"

WRITES = """
me, rounds = sys.argv[2], int(sys.argv[3])
for n in range(rounds):
    rows = [(1000 * int(me) + n, 10, me, False), (n, 100 * (int(me) + 1) + n, me, False)]
    table.upsert(spark.createDataFrame(rows, "id INT, ts INT, v STRING, deleted BOOLEAN")).execute()
    merge = table.merge(spark.createDataFrame([(1000 * int(me) + n, 20, me, False)], "id INT, ts INT, v STRING, deleted BOOLEAN"))
    merge.whenMatched("target.v = source.v").updateExpr({"v": "concat(target.v, '!')"}).execute()
print("done")
"""
"""New keys, keys that all writers write, and merges that look up own keys."""


def test_S33_S35_four_processes_write_one_table_and_lose_nothing(spark, tmp_path):
    table, rounds = new_table(spark, tmp_path, properties={"trinitymerge.checkpointInterval": "5"}), 3
    writers = [start(table.path, WRITES, None, me, rounds) for me in range(1, 5)]
    assert [finish(w).split()[-1] for w in writers] == ["done"] * 4
    own = [(1000 * me + n, f"{me}!") for me in range(1, 5) for n in range(rounds)]
    rows = [(n, "4") for n in range(rounds)] + own
    assert sorted((r[0], r[2]) for r in live_rows(table)) == sorted(rows)
    commits = TrinityTable.forPath(spark, table.path)._store.history()
    assert [c.version for c in commits] == list(range(len(commits) - 1, -1, -1))
    assert sum(c.operation in ("UPSERT", "MERGE") for c in commits) == 4 * 2 * rounds


def test_S33_a_driver_that_is_killed_with_its_jvm_leaves_the_table_whole(spark, tmp_path):
    table = new_table(spark, tmp_path)
    writer = start(table.path, WRITES, None, 1, 1000)
    end = time.monotonic() + 120
    while table.version < 3:
        assert time.monotonic() < end, "the writer writes nothing"
        time.sleep(0.1)
    kill(writer)
    opened = TrinityTable.forPath(spark, table.path)
    before = opened.version
    upserts = sum(c.operation == "UPSERT" for c in opened._store.history())
    own = {row[0] for row in live_rows(opened)}
    assert own == {*range(upserts), *range(1000, 1000 + upserts)}
    opened.upsert(frame(spark, ROWS, (-1, 1, "next", False))).execute()
    assert opened.version > before
    opened.vacuum(retentionHours=0)
    assert len(tables.batch_directories(opened)) == len(opened._snapshot().batches)
    assert {row[0] for row in live_rows(opened)} == {-1, *own}


def test_S33_S36_a_server_that_dies_and_comes_back_costs_no_merge_and_repeats_none(spark, tmp_path):
    if isinstance(storage.running, storage.Gcs):
        pytest.skip("this server keeps nothing")
    table = fill(new_table(spark, tmp_path), spark, [(i, 1, "a", False) for i in range(10)])
    server, is_over, failures = storage.running, threading.Event(), []

    def disturb() -> None:
        for _ in range(2):
            time.sleep(1.5)
            server.kill()
            time.sleep(1.0)
            server.start()
        is_over.set()

    thread = threading.Thread(target=disturb)
    thread.start()
    number = 0
    while not is_over.is_set() or number < 8:
        number += 1
        rows = frame(spark, ROWS, (100 + number, number, "b", False), (number % 10, number + 1, "b", False))
        for _ in range(60):
            try:
                table.upsert(rows).withTransaction("writer", number).execute()
                break
            except (TrinityMergeError, OSError, Exception) as error:  # noqa: BLE001 - Spark's errors are among them
                failures.append(error)
                time.sleep(0.5)
        else:
            raise failures[-1]
    thread.join()
    opened = TrinityTable.forPath(spark, table.path)
    added = [c for c in opened._store.history() if c.operation == "UPSERT" and c.version > 1]
    assert len(added) == number, failures
    assert {r[0] for r in live_rows(opened)} == {*range(10), *range(101, 101 + number)}
    opened.vacuum(retentionHours=0)
    assert len(tables.batch_directories(opened)) == len(opened._snapshot().batches)


def test_F1_S36_a_captured_stream_that_is_killed_in_between_ends_as_the_database(spark, tmp_path):
    names = ("notes", "basket")
    with gzip.open(DATA / "postgresql.jsonl.gz", "rt") as lines:
        messages = [line for line in lines if any(f'"shop.public.{n}"' in line for n in names)]
    random.Random(7).shuffle(messages)
    for number in range(2):
        written(tmp_path / "in", f"{number}.jsonl", [m.rstrip("\n") for m in messages[number::2]])
    root = f"{tables.ROOT}/{uuid.uuid4().hex}"
    rules = [{"source": f"public.{n}", "schema": TABLES[n][0], "keys": TABLES[n][1]} for n in names]
    found = config(tmp_path, *rules, feed={"timestamps": "ms"}, target={"root": root})
    with pytest.raises(RuntimeError, match="killed"):
        ingested(spark, found, die_after=0)
    ingested(spark, found)
    for name in names:
        table = TrinityTable.forPath(spark, f"{root}/public/{name}")
        assertRows(table.toDF().drop("_seq"), of_database(DATA / "final" / f"{name}.csv", table, {"price": "NaN"}))


def test_the_life_of_a_table_costs_so_many_requests(spark, tmp_path, record_property):
    """docs/scale.md has them: of merges those beyond Spark's own to write the same rows."""
    if not isinstance(storage.running, storage.Minio):
        pytest.skip("counts the requests of an object store")
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(i, "a") for i in range(100)])
    counted, requests = storage.running.proxy.counted, {}
    rows = spark.range(0, 10, 1, 1).selectExpr("CAST(id AS INT) AS id", "'b' AS v")
    with counted() as own:
        rows.write.parquet(f"{tables.ROOT}/{uuid.uuid4().hex}")
    table.upsert(rows).execute()
    with counted() as requests["blind merge"]:
        table.upsert(rows).execute()
    with counted() as requests["open"]:
        opened = TrinityTable.forPath(spark, table.path)
    with counted() as requests["read"]:
        opened.toDF().collect()
    with counted() as requests["history"]:
        opened.history().collect()
    for name, found in requests.items():
        record_property(name, dict(found))
    beyond = requests["blind merge"].total() - own.total()
    assert beyond <= 12, (requests, own)
    if storage.hadoop_version() >= "3.4":  # older ones ask more to open a file
        assert {name: n.total() for name, n in requests.items() if n.total() > MOST[name]} == {}, requests


MOST = {"blind merge": 75, "open": 12, "read": 30, "history": 16}
"""With three entries in the log, three batches of one file, and no checkpoint yet; half through Hadoop's own questions."""
