"""The report of a table: from its log alone, one page, small, valid, and without values of rows unless asked for."""

from __future__ import annotations

import re
import time
from pathlib import Path

import html5lib
import pytest
from test_log import batch, create

from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log.actions import AddBatch, RemoveBatch, SetDefinition
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit
from trinitymerge.reporting.merge import MergeFacts, merge_report
from trinitymerge.reporting.table import report_of_commit, report_of_log, table_summary
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

ROOT = Path(__file__).parents[2]
TABLES = [ROOT / "tests" / "data" / "format-1" / name for name in ("orders", "customers", "copy")]


def checked(page: str) -> str:
    """The page, if it is valid HTML that loads nothing and runs nothing."""
    html5lib.HTMLParser(strict=True).parse(page)
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    return page


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_a_report_shows_what_the_log_knows(table):
    page = checked(report_of_log(CommitLog.open(str(table))))
    for heading in ("Work of a read", "History", "Duration", "Definition", "Streams and transactions"):
        assert f"<h2>{heading}</h2>" in page
    assert f"<h1>Table {table.name}</h1>" in page
    assert len(page) < 60_000


def test_watermarks_are_shown_only_if_asked_for():
    log = CommitLog.open(str(TABLES[0]))
    assert "2023-11-14 22:13:20" not in report_of_log(log)
    page = checked(report_of_log(log, keys=True))
    assert "<h2>Late rows</h2>" in page
    assert "2023-11-14 22:13:20" in page


def test_late_rows_of_text_watermarks_are_shown_by_their_order(tmp_path):
    def sequence(n: int) -> str:
        return f"0001/{0:016x}/{n:016x}"

    log = CommitLog(LocalFileSystem(), str(tmp_path / "table"))
    own = TableDefinition.of([Field("id", "long"), Field("_seq", "string")], "id", "_seq")
    commits = [Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(own)])]
    for version, (low, high) in enumerate([(1, 20), (10, 300), (301, 4000)], 1):
        added = batch(f"b{version}", watermark_min=(sequence(low),), watermark_max=(sequence(high),))
        metrics = {"rowsQuarantined": 7} if version == 2 else {}
        at = 1_790_000_000_000 + version
        commits.append(
            Commit(version=version, timestamp_ms=at, operation="M", actions=[AddBatch(added)], metrics=metrics)
        )
    for commit in commits:
        log.create(commit) if not commit.version else log.commit(commit)
    page = checked(report_of_log(log, keys=True))
    assert "Watermarks (_seq) of each batch" in page
    assert f"<td>{sequence(10)} to {sequence(300)}</td>" in page
    assert ">…001</text>" in page, "only the digits that differ"
    # the second begins below the end of the first, the third above that of the second
    lines = re.findall(r"to (?:\S+)</title><path d=\"M[\d.]+ ([\d.]+)V([\d.]+)\"", page)
    (_, first), (second, end), (third, _) = [(float(bottom), float(top)) for bottom, top in lines]
    assert second > first
    assert third < end
    assert "Rows rejected by each commit" in page
    assert "version 2, M: 7 rows rejected" in page
    assert "Rows rejected" not in report_of_log(log, version=1)
    assert "rejected: 7 rows" in report_of_commit(log, 2)


def test_texts_of_an_axis_are_not_cut(tmp_path):
    log = CommitLog(LocalFileSystem(), str(tmp_path / "table"))
    own = TableDefinition.of([Field("id", "long"), Field("at", "date")], "id", "at")
    log.create(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(own)]))
    added = batch("b", watermark_min=(20_000,), watermark_max=(20_100,))
    log.commit(Commit(version=1, timestamp_ms=2, operation="MERGE", actions=[AddBatch(added)]))
    page = report_of_log(log, keys=True)
    texts = re.findall(
        r'<text class="soft" x="(\d+)" y="[\d.]+" text-anchor="end">([^<]+)<', page.split("Late rows")[1]
    )
    assert max(len(text) for _, text in texts) == 10
    assert [text for x, text in texts if int(x) < 7 * len(text)] == []


def test_a_past_version_has_a_report(tmp_path):
    page = checked(report_of_log(CommitLog.open(str(TABLES[0])), version=2))
    assert "version 2 of" in page
    assert "3 commits since" in page


def test_an_empty_table_has_a_report(tmp_path):
    table, _ = create(tmp_path)
    assert "The table is empty." in checked(report_of_log(table))


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a & b", "\u202eabc", "x" * 300])
def test_names_are_text(tmp_path, name):
    table = CommitLog(LocalFileSystem(), str(tmp_path / "table"))
    own = TableDefinition.of([Field("id", "long"), Field(name, "string")], "id", (), comment=name)
    table.create(Commit(version=0, timestamp_ms=1, operation=name, actions=[SetDefinition(own)]))
    checked(report_of_log(table))


def test_a_notebook_shows_the_state_of_a_table():
    log = CommitLog.open(str(TABLES[0]))
    found = table_summary("orders", log.newest(), list(log.commits(newest_first=False)))
    assert "<td>430 stored, 17.8 KB</td>" in found
    assert "<td>nothing: reads are cheap</td>" in found
    assert "<polyline" in found
    assert "<td>cents</td><td>bigint</td>" in found


def test_10_000_commits_make_a_small_page_in_two_seconds(tmp_path, monkeypatch):
    """The log is not written: what is made of its commits is what counts, in time of the processor."""
    table, _ = create(tmp_path)
    commits = [Commit(version=0, timestamp_ms=1_700_000_000_000, operation="CREATE", actions=[])]
    for version in range(1, 10_001):
        actions = [AddBatch(batch(f"b{version}", watermark_min=(version, None), watermark_max=(version, "z")))]
        if version % 50 == 0:
            actions = [RemoveBatch(f"b{version - 1}"), *actions]
        operation = "COMPACT" if version % 50 == 0 else "MERGE"
        at = 1_700_000_000_000 + version * 60_000
        metrics = {"strategy": "blind append"}
        commits.append(
            Commit(
                version=version, timestamp_ms=at, operation=operation, actions=actions, duration_ms=900, metrics=metrics
            )
        )
    monkeypatch.setattr(CommitLog, "commits", lambda *_, **__: iter(commits))
    taken = []
    for _ in range(3):
        start = time.process_time()
        page = report_of_log(table, keys=True)
        taken.append(time.process_time() - start)
    assert min(taken) < 2, taken
    assert len(checked(page).encode()) < 300_000
    assert "9,800 MERGE" in page


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_every_version_has_a_report(table):
    log = CommitLog.open(str(table))
    for commit in log.commits():
        page = checked(report_of_commit(log, commit.version))
        assert f"<h1>{commit.operation}, version {commit.version} of {table.name}</h1>" in page


def test_a_merge_says_what_it_did_and_how_long_it_took():
    known = MergeFacts(
        title="Merge <into> orders",
        summary="version 3: 5 inserted",
        counts={
            "rowsSource": 9,
            "rowsAppended": 7,
            "rowsInserted": 5,
            "rowsUpdated": None,
            "rowsDeleted": 0,
            "rowsStale": 2,
        },
        clauses=[('clause 1, whenMatched("A.x < B.x")', 4), ("clause 2, whenNotMatched()", None)],
        seconds={"source": 0.25, "write": 1.5, "validate": 0.0},
        explanation="Strategy: keyed lookup",
        sql="SELECT '<b>'",
        notes=["compact() would pay"],
    )
    page = checked(merge_report(known))
    assert "<h1>Merge &lt;into&gt; orders</h1>" in page
    assert '<td>clause 1, whenMatched(&quot;A.x &lt; B.x&quot;)</td><td class="number">4</td>' in page
    assert '<td>clause 2, whenNotMatched()</td><td class="number">not counted</td>' in page
    assert "Not counted: updated." in page
    assert "stale: 2 rows" in page
    assert "1.75 s." in page
    assert "validate" not in page
    assert "SELECT &#x27;&lt;b&gt;&#x27;" in page
    assert "compact() would pay" in page


def test_a_merge_without_rows_has_a_report():
    assert "No row was written." in checked(merge_report(MergeFacts("t", "nothing committed", {"rowsSource": 0})))
