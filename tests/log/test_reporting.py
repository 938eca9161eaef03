"""What Python's log is told: one line per commit and per maintenance step, and what is slow; never a value of a row."""

from __future__ import annotations

import logging
import re
import threading

import pytest
from tables import frame, merge_into, new_table

from trinitymerge import TrinityTable
from trinitymerge.log import reporting


@pytest.fixture
def lines(caplog):
    """The lines that were logged since the last call."""
    caplog.set_level(logging.INFO, logger="trinitymerge")

    def since():
        found = [
            r.getMessage() for r in caplog.records if r.name.startswith("trinitymerge") and r.levelno == logging.INFO
        ]
        caplog.clear()
        return found

    return since


def test_each_commit_is_one_line(spark, tmp_path, lines):
    table = new_table(spark, tmp_path)
    (created,) = lines()
    assert created == f"{table.path}: version 0 is committed: CREATE"
    merge_into(table, spark, [(1, 10, "secret-1", False), (2, 10, "secret-2", False)])
    (merged,) = lines()
    assert re.fullmatch(
        r".*: version 1 is committed: UPSERT by blind append, rowsAppended=2, rowsSource=2, [\d.]+ s", merged
    )
    table.deleteWhere("v = 'secret-2'").execute()
    (deleted,) = lines()
    assert "version 2 is committed: DELETE by full scan, rowsInserted=0, rowsUpdated=0, rowsDeleted=1" in deleted
    assert "secret" not in created + merged + deleted


def test_each_maintenance_step_is_one_line(spark, tmp_path, lines):
    table = new_table(spark, tmp_path)
    merge_into(table, spark, [(1, 10, "secret", False)])
    merge_into(table, spark, [(1, 11, "secret", False), (2, 11, "b", False)])
    lines()
    steps = {
        "COMPACT": table.compact,
        "RESTORE of version 1": lambda: table.restore(1),
        "ALTER": lambda: table.alter().setComment("secret").execute(),
        "PURGE, keys=1": lambda: table.purgeWhere("v = 'secret'"),
        "vacuum deleted": lambda: table.vacuum(retentionHours=0),
        "CLONE": lambda: table.clone(str(tmp_path / "clone")),
        "CONVERT": lambda: TrinityTable.convert(spark, table.toDF(), str(tmp_path / "made"), primaryKey="id"),
    }
    for word, step in steps.items():
        step()
        (line,) = lines()
        assert word in line
        assert "secret" not in line


def test_a_fold_is_a_line_beside_its_merge(spark, tmp_path, lines):
    table = new_table(spark, tmp_path, properties={"trinitymerge.minorCompactionAfterBatches": "1"})
    for i in range(2):
        merge_into(table, spark, [(i, 10, "a", False)])
    lines()
    merge_into(table, spark, [(2, 10, "a", False)])
    assert [re.search(r"UPSERT|MINOR COMPACT", line)[0] for line in lines()] == ["UPSERT", "MINOR COMPACT"]


def test_what_is_slow_says_what_it_does(spark, tmp_path, lines, monkeypatch):
    table = new_table(spark, tmp_path)
    merge_into(table, spark, [(1, 10, "secret", False)])
    monkeypatch.setattr(reporting, "SLOW_SECONDS", 0.0)
    lines()
    source = frame(spark, "id INT, ts INT, v STRING", (1, 11, "secret"))
    table.update(source).execute()
    said = [line for line in lines() if "has been running" in line]
    assert len(said) == 1
    assert re.search(
        r"a merge into version 1 evaluates its source \(.*; it reads .*\); it has been running for \d+ s", said[0]
    )
    table.compact()
    assert any("a compaction rewrites batches; it has been running" in line for line in lines())


def test_what_is_fast_or_not_asked_for_leaves_nothing_behind(spark, tmp_path, lines, caplog):
    table = new_table(spark, tmp_path)
    merge_into(table, spark, [(1, 10, "a", False)])
    for timer in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
        timer.join(5)  # it has been cancelled
        assert not timer.is_alive()
    assert not any("has been running" in line for line in lines())
    caplog.set_level(logging.WARNING, logger="trinitymerge")
    merge_into(table, spark, [(1, 11, "a", False)])
    assert lines() == []
