"""What `fill` appends without merging is what merges append: to readers, to the log, and in the files."""

from __future__ import annotations

import filling
import pytest
from tables import EVENTS, copy_of, fill, live_rows, merge_into, new_table

BATCHES = {
    "events": (
        {"schema": EVENTS},
        [(2, 10, "a", False), (1, 11, "a", None), (4, 9, None, True)],
        [(1, 20, "gone", True), (-3, 5, None, False)],
        [(2, 9, "late", False)],
    ),
    "without watermark and tombstone": ({"schema": "id STRING, v BIGINT"}, [("b", 1), ("a", None)], [("a", 2)]),
    "two keys, in ORC": (
        {"schema": "k INT, id STRING, ts BIGINT", "primaryKey": ["id", "k"], "watermarkKey": "ts", "fileFormat": "orc"},
        [(9, "a", 1), (1, "b", 2)],
        [(9, "a", 3)],
    ),
}


def logged(table):
    """The log without what differs between any two tables that hold the same."""
    entries = [commit.to_json() for commit in table._store.history()]
    for entry in entries:
        for batch in (action["batch"] for action in entry["actions"] if action["type"] == "addBatch"):
            assert batch.pop("id")
            assert batch.pop("bytes")
        for name in ("timestampMs", "durationMs", "id", "previous"):
            entry.pop(name, None)
    return entries


def stored(table):
    """Of each batch the columns, the rows as they stand in its files, and the range of its keys."""
    store = table._store
    batches = store.snapshot().batches
    frames = [store.read_whole(batch, table.definition) for batch in batches]
    rows = [(frame.dtypes, sorted(map(repr, frame.collect()))) for frame in frames]
    return rows, [keys.to_json() for keys in store.ranges_of(batches)]


@pytest.mark.generated  # small batches are one file each
@pytest.mark.parametrize("name", BATCHES)
def test_filled_table_is_as_merges_leave_it(name, spark, tmp_path):
    options, *batches = BATCHES[name]
    empty = new_table(spark, tmp_path, **options)
    filled, merged = copy_of(empty, spark), copy_of(empty, spark)
    for rows in batches:
        assert filling.is_plain(filled, rows)
        merge_into(merged, spark, rows)
    fill(filled, spark, *batches)
    assert logged(filled) == logged(merged)
    assert stored(filled) == stored(merged)
    assert live_rows(filled) == live_rows(merged)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, [(1, 10, "a", False), (1, 20, "b", False)]),
        ({}, [(None, 10, "a", False)]),
        ({}, [(1, None, "a", False)]),
        ({"schema": "id STRING, v STRING"}, [("é", "a")]),
        ({"schema": "id INT, v STRING NOT NULL"}, [(1, "a")]),
        ({"schema": "id INT, v DATE"}, [(1, None)]),
        ({"schema": "id INT, v ARRAY<STRING>"}, [(1, None)]),
        ({"properties": {"trinitymerge.compactAfterBatches": "2"}}, [(1, 10, "a", False)]),
        ({}, []),
    ],
)
def test_what_takes_a_merge_is_merged(options, rows, spark, tmp_path):
    assert not filling.is_plain(new_table(spark, tmp_path, **options), rows)
