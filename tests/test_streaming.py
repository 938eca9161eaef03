"""S36: a file stream, killed with its JVM and started again from its checkpoint, merges every micro-batch exactly once.

Each row adds to a counter, so a micro-batch that is merged twice, or not at all, shows.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter

import pytest
from processes import kill, start, was_killed
from tables import live_rows, new_table

from trinitymerge import TrinityTable

FILES = 6

STREAM = """
directory = sys.argv[2]
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
    markers = [c.transaction for c in table._backend.history() if c.transaction]
    assert sorted(markers) == [("feed", i) for i in range(FILES)]
    table.vacuum(retentionHours=0)
    assert dict(live_rows(TrinityTable.forPath(spark, table.path))) == dict(feed)


def test_s36_a_stream_killed_before_and_after_its_commit_counts_each_batch_once(spark, tmp_path, feed):
    """Killed after the commit, Spark does not know that the batch is done and repeats it; killed before, it must."""
    table = new_table(spark, tmp_path, "id INT, n INT")
    for fault, version in (("commit.done:2", 2), ("stage.written:2", 3)):
        process = start(table.path, STREAM, None, tmp_path, fault=fault)
        assert was_killed(process)
        assert table.version == version
    process = start(table.path, STREAM, None, tmp_path)
    assert not was_killed(process)
    check_exactly_once(spark, table, feed)


@pytest.mark.long
def test_s36_a_stream_killed_at_random_moments_counts_each_batch_once(spark, tmp_path, feed):
    table = new_table(spark, tmp_path, "id INT, n INT")
    while (before := table.version) < FILES:
        process = start(table.path, STREAM, None, tmp_path)
        while table.version == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(random.uniform(0, 0.6))
        kill(process)
    assert not was_killed(start(table.path, STREAM, None, tmp_path))
    check_exactly_once(spark, table, feed)
