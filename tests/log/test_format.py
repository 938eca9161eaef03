"""S33: tables that the first library with a format has written open and work as they are, for ever; see `format_1.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from format_1 import NOTES, notes_events, rows_of, versions_of
from tables import directory_of

from trinitymerge import ConstraintError, TrinityTable
from trinitymerge.log.batches import Batches
from trinitymerge.maintenance import deletion_vectors

WRITTEN = Path(__file__).parents[1] / "data" / "format-1"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())
ROW = "id INT, ts TIMESTAMP, status STRING, cents BIGINT, deleted BOOLEAN"


@pytest.fixture
def opened(spark, tmp_path):
    """Opens a copy of one of the tables."""

    def opening(name: str) -> TrinityTable:
        shutil.copytree(WRITTEN / name, tmp_path / name)
        return TrinityTable.forPath(spark, str(tmp_path / name))

    return opening


def changes(spark, *rows):
    frame = spark.createDataFrame(list(rows), "id INT, day INT, status STRING, cents BIGINT, deleted BOOLEAN")
    return frame.selectExpr("id", "timestamp_seconds(1700000000 + 86400 * day) AS ts", "status", "cents", "deleted")


@pytest.mark.parametrize("name", ["orders", "customers", "notes", "copy"])
def test_S33_every_version_reads_as_it_did(spark, opened, name):
    table = opened(name)
    assert len(EXPECTED[name]) > {"copy": 0, "notes": 3}.get(name, 5)
    assert table.version == max(map(int, EXPECTED[name]))
    for version, rows in EXPECTED[name].items():
        assert rows_of(TrinityTable.forPath(spark, table.path, versionAsOf=int(version))) == rows, version


def test_S40a_a_copy_knows_where_it_comes_from(opened):
    original, copy = opened("orders")._snapshot(), opened("copy")._snapshot()
    assert [(o.table_id, o.version) for o in copy.origins] == [(original.table_id, copy.first_version)]
    assert "" not in (original.table_id, copy.table_id)


def test_H5_versions_read_as_they_did(opened):
    assert versions_of(opened("customers")) == EXPECTED["versions"]


def test_U4_U7_late_events_mend_what_was_stored_unset(opened):
    table = opened("notes")
    snapshot = table._snapshot()
    assert (snapshot.has_partial, snapshot.has_moved, snapshot.had_partial) == (True, True, True)
    assert notes_events(table, NOTES[-1]).execute().rowsMended == 2
    rows = {row.id: (row.title, row.body) for row in table.toDF().collect()}
    assert rows == {1: ("one, again", ("late", 7)), 4: ("four", ("y", 9)), 5: ("five", None)}


OPENING = """
import sys
from trinitymerge.log.log import CommitLog
log = CommitLog.open(sys.argv[1])
snapshot = log.newest()
print(snapshot.version, sum(b.rows for b in snapshot.batches), *snapshot.definition.names, len(list(log.commits())))
"""


def test_S33_a_log_opens_without_Java():
    environment = {"PATH": "", "JAVA_HOME": "/nowhere", "PYTHONPATH": str(WRITTEN.parents[2])}
    command = [sys.executable, "-c", OPENING, str(WRITTEN / "orders")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["19", "430", "id", "ts", "status", "cents", "deleted", "20"], done.stderr


@pytest.mark.parametrize("name", ["orders", "copy"])
def test_S33_what_the_log_remembers_still_counts(spark, opened, name):
    """Purged keys, transaction markers, tombstones, constraints."""
    table = opened(name)
    columns = ["*"] if name == "orders" else ["*", "'n' AS note"]
    before = rows_of(table)
    assert (
        table.upsert(changes(spark, (9, 99, "again", 1, False)).selectExpr(*columns))
        .withTransaction("daily", 3)
        .execute()
        .skipped
    )
    assert table.upsert(changes(spark, (7, 99, "back", 1, False)).selectExpr(*columns)).execute().rowsPurged == 1
    table.upsert(changes(spark, (104, 3, "older than its tombstone", 1, False)).selectExpr(*columns)).execute()
    assert rows_of(table) == before
    with pytest.raises(ConstraintError, match="positive"):
        table.upsert(changes(spark, (9, 99, "negative", -1, False)).selectExpr(*columns)).execute()


def test_S33_an_old_table_is_merged_into_and_maintained(spark, opened):
    table = opened("orders")
    source = changes(spark, (1, 50, "changed", 5, False), (600, 50, "inserted", 6, False))
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id")
    merge.whenMatched().updateExpr(
        {"status": "concat(A.status, ' ', B.status)", "ts": "B.ts"}
    ).whenNotMatched().insertAll().execute()
    after = rows_of(table)
    assert len(after) == len(EXPECTED["orders"][max(EXPECTED["orders"], key=int)]) + 1
    assert any('"status":"day 1 changed"' in row for row in after)
    table.compact(full=True)
    table.vacuum(retentionHours=0)
    assert rows_of(TrinityTable.forPath(spark, table.path)) == after
    table.purge([9])
    remaining = [row for row in after if json.loads(row)["id"] != 9]
    assert rows_of(table) == remaining
    assert b"late" not in b"".join(f.read_bytes() for f in directory_of(table).rglob("*.parquet"))


@pytest.mark.parametrize("name", ["orders", "copy"])
def test_S33_D4_an_old_table_is_read_without_comparisons_after_its_next_minor_compaction(
    spark, opened, monkeypatch, name
):
    monkeypatch.setattr(deletion_vectors, "LEAST_ROWS", 1)
    table = opened(name)
    assert table._snapshot().deletion_vectors is None
    more = [] if name == "orders" else ["'n' AS note"]
    expected = {json.loads(row)["id"]: row for row in rows_of(table)}
    for day in range(90, 94):
        compacted = table._snapshot().version
        source = changes(spark, (3, day, f"day {day}", day, False), (5, day, None, None, True))
        table.upsert(source.selectExpr("*", *more)).execute()
        if any(c.operation == "MINOR COMPACT" and c.version > compacted for c in table._store.history()):
            break
    batches = Batches.of(table._snapshot())
    assert (batches.compared_rows, batches.marked_rows > 0) == (0, True)
    found = {json.loads(row)["id"]: row for row in rows_of(table)}
    assert f'"status":"day {day}"' in found.pop(3)
    assert found == {i: row for i, row in expected.items() if i not in (3, 5)}


def test_H1_an_old_table_with_history_goes_on(spark, opened):
    table = opened("customers")
    late = spark.createDataFrame(
        [(1, 2, "Kyoto", False), (2, 9, "Brno", False)], "id INT, ts INT, city STRING, deleted BOOLEAN"
    )
    table.upsert(late).execute()
    before = versions_of(table)
    table.compact(full=True)
    assert versions_of(table) == before
    assert [json.loads(v)["city"] for v in before if json.loads(v)["id"] == 2] == ["Bern", "Brno"]
