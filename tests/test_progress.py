"""The phases that listeners of calls are told, and what terminals, notebooks and logs show of them."""

from __future__ import annotations

import io
import logging
import sys
import time
import types

import pytest
from tables import EVENTS, fill, frame, new_table

import trinitymerge
from trinitymerge import Progress, _progress
from trinitymerge.log.reporting import listening, phase

MERGE = ["source", "write", "validate", "commit"]


@pytest.fixture
def table(spark, tmp_path):
    return fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "b", False)])


def phases(told: list[Progress]) -> list[str]:
    """The phases in order; each must end before the next begins."""
    assert [p.isDone for p in told] == [False, True] * (len(told) // 2)
    assert [p.phase for p in told[::2]] == [p.phase for p in told[1::2]]
    assert all(p.seconds > 0 for p in told[1::2])
    return [p.phase for p in told[::2]]


def test_each_strategy_has_the_same_phases(table, spark):
    source = frame(spark, EVENTS, (2, 20, "c", False), (3, 20, "d", False))
    for merge in (
        table.upsert(source),
        table.upsert(source).withCounts(),
        table.alias("A").updateWhere("A.v = 'a'", {"v": "'z'"}),
    ):
        told: list[Progress] = []
        result = merge.onProgress(told.append).execute()
        assert phases(told) == MERGE
        assert {p.table for p in told} == {table.path}
        assert list(result.seconds) == MERGE


def test_a_merge_that_fails_ends_its_phase(table, spark):
    told: list[Progress] = []
    with pytest.raises(trinitymerge.NullKeyError):
        table.upsert(frame(spark, EVENTS, (None, 20, "c", False))).onProgress(told.append).execute()
    assert phases(told) == MERGE[:3]


def test_maintenance_has_phases(table, tmp_path):
    told: list[Progress] = []
    with listening(told.append):
        table.compact(full=True)
        table.vacuum(retentionHours=0)
        table.purge([2])
        table.clone(f"{tmp_path}/clone")
        table.export(f"{tmp_path}/export")
    assert phases(told) == ["compact", "vacuum", "purge", "clone", "export"]


def test_the_minor_compaction_after_a_merge_is_told(spark, tmp_path):
    table = new_table(spark, tmp_path, properties={"trinitymerge.minorCompactionAfterBatches": "2"})
    told: list[Progress] = []
    with listening(told.append):
        for ts in range(4):
            table.upsert(frame(spark, EVENTS, (1, ts, "a", False))).execute()
    assert "minor compact" in phases(told)


def test_a_listener_that_fails_is_logged_once_and_harms_nothing(table, spark, caplog):
    def fail(_):
        raise ValueError("my mistake")

    told: list[Progress] = []
    result = table.upsert(frame(spark, EVENTS, (3, 20, "c", False))).onProgress(fail).onProgress(told.append).execute()
    assert result.rowsAppended == 1
    assert phases(told) == MERGE
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "listener" in r.getMessage()]
    assert "my mistake" in line


def test_no_one_is_told_outside_of_the_block(table, spark):
    told: list[Progress] = []
    with listening(told.append):
        pass
    table.upsert(frame(spark, EVENTS, (3, 20, "c", False))).execute()
    assert told == []


# Displays -------------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(_progress, "_SHOWN_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(_progress, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(_progress, "running_tasks", lambda: (14, 20))


def test_a_terminal_shows_a_bar_and_nothing_remains(fast, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "30")
    with trinitymerge.progress(), phase("file:/lake/orders", "write"):
        time.sleep(0.2)
    lines = terminal.getvalue().split("\r\x1b[2K")
    assert "orders  write  ███████░░░ 14/" in lines  # cut to the width of the terminal
    assert lines[-1] == ""


def test_the_innermost_phase_is_shown():
    running = _progress._Running()
    for name, done in [("purge", False), ("compact", False), ("compact", True)]:
        running.listen(Progress("lake/orders", name, done))
    assert running.line().startswith("orders  purge")
    running.listen(Progress("lake/orders", "purge", isDone=True))
    assert running.line() == ""


def test_a_pipe_shows_nothing(fast, monkeypatch):
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    with trinitymerge.progress(), phase("orders", "write"):
        time.sleep(0.1)
    assert pipe.getvalue() == ""


def test_a_quick_call_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with trinitymerge.progress(), phase("orders", "write"):
        pass
    assert terminal.getvalue() == ""


def test_a_notebook_updates_one_output(fast, monkeypatch):
    shown = []

    class Handle:
        def update(self, content):
            shown.append(content)

    display = types.SimpleNamespace(HTML=str, display=lambda content, display_id: Handle())
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with trinitymerge.progress(), phase("a<b", "write"):
        time.sleep(0.1)
    assert shown[0].startswith("<code>a&lt;b  write  ███████░░░ 14/20 tasks")
    assert shown[-1] == ""


def test_the_log_has_a_line_for_each_phase(caplog):
    with caplog.at_level(logging.INFO, "trinitymerge"), trinitymerge.progress("log"), phase("lake/orders", "write"):
        pass
    assert [r.getMessage() for r in caplog.records] == ["lake/orders: write took 0.0 s"]


def test_wrong_ways_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="got 'bra'"), trinitymerge.progress("bra"):
        pass
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(trinitymerge.MissingPackageError, match="IPython"), trinitymerge.progress("html"):
        pass


def test_tasks_of_running_jobs_are_counted(spark):
    from trinitymerge.spark.session import is_connect, running_tasks

    if is_connect(spark):
        pytest.skip("Spark Connect does not report tasks")
    assert running_tasks() == (0, 0)
