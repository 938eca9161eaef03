"""The command `trinitymerge`: what each command writes, its exit codes, and that it needs no JVM for a log."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trinitymerge.commands.app import run
from trinitymerge.log.actions import AddOutboxEntry, OutboxEntry
from trinitymerge.log.files import decode_with_checksum, encode_with_checksum
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import now_ms
from trinitymerge.maintenance import advice

ROOT = Path(__file__).parents[2]
ORDERS, CUSTOMERS = (ROOT / "tests" / "data" / "format-1" / name for name in ("orders", "customers"))


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(a) for a in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def rows(text: str) -> list[dict[str, str]]:
    head, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def alone(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that has no Java."""
    environment = {**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent", "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-X", "importtime", "-m", "trinitymerge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


# Commands -------------------------------------------------------------------------------------------------------------


def test_history_shows_commits_newest_first(capsys):
    code, out, err = called(capsys, "history", ORDERS, "-n", 2)
    assert (code, [(r["version"], r["operation"]) for r in rows(out)]) == (
        0,
        [("19", "MINOR COMPACT"), ("18", "UPSERT")],
    )
    assert "20 versions, the newest is 19" in err
    assert len(rows(called(capsys, "history", ORDERS, "--all")[1])) == 20
    assert len(rows(called(capsys, "history", ORDERS, "--operation", "purge")[1])) == 1
    times = [r["timestamp"] for r in rows(out)]
    assert [r["version"] for r in rows(called(capsys, "history", ORDERS, "--since", times[1])[1])] == ["19", "18"]


def test_history_as_json_is_a_line_for_each_commit(capsys):
    code, out, err = called(capsys, "history", ORDERS, "-n", 2, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (code, err, [f["version"] for f in found]) == (
        0,
        "20 versions, the newest is 19.\n" if err else "",
        [19, 18],
    )
    assert set(found[0]) == {"version", "timestamp", "operation", "parameters", "metrics", "user", "durationMs"}
    assert found[1]["metrics"]["rowsSource"] == 3


def test_show_has_the_definition_and_the_size(capsys):
    code, out, _ = called(capsys, "show", ORDERS)
    assert code == 0
    for text in ("primary key", "check positive", "430 stored (3 tombstones)", "transaction daily", "purged keys"):
        assert text in out
    document = json.loads(called(capsys, "--json", "show", ORDERS)[1])
    assert (document["primaryKey"], document["version"], document["purgedKeys"]) == (["id"], 19, 1)
    assert [c["name"] for c in document["columns"]] == ["id", "ts", "status", "cents", "deleted"]
    assert [r["name"] for r in rows(called(capsys, "show", ORDERS, "--columns")[1])] == [
        "id",
        "ts",
        "status",
        "cents",
        "deleted",
    ]
    assert "trinitymerge.checkpointInterval" in called(capsys, "show", ORDERS, "--properties")[1]


def test_batches_say_what_they_are(capsys):
    found = rows(called(capsys, "batches", ORDERS)[1])
    assert [r["kind"] for r in found].count("segment") == 6
    assert found[0]["watermarkMin"].startswith('["2023-11-14T22:13:20')
    assert {r["kind"] for r in rows(called(capsys, "batches", CUSTOMERS)[1])} >= {"archive"}


@pytest.mark.parametrize("at", ["3", "2100-01-01"])
def test_a_past_version_is_asked_for_by_number_or_time(capsys, at):
    code, out, _ = called(capsys, "show", ORDERS, "--at", at, "--json")
    assert (code, json.loads(out)["version"]) == (0, 3 if at == "3" else 19)


def test_health_says_what_is_due_and_fails_if_asked(capsys, tmp_path, monkeypatch):
    code, out, _ = called(capsys, "health", ORDERS)
    assert (code, "next                nothing" in out or "nothing: reads are cheap" in out) == (0, True)
    assert called(capsys, "health", ORDERS, "--fail-on", "due")[0] == 0
    orders = copied(ORDERS, tmp_path)
    for file in orders.glob("data/*/*"):
        os.utime(file)
    code, out, _ = called(capsys, "health", orders, "--fail-on", "warn", "--json")
    found = json.loads(out)
    assert (code, found["action"], found["reclaimableNowBytes"]) == (0, "nothing", 0), (
        "a vacuum would keep them for a week"
    )
    assert found["reclaimableFrom"][:16].replace("T", " ") in found["reason"]
    monkeypatch.setattr(advice, "now_ms", lambda: now_ms() + 200 * 3_600_000)
    code, out, _ = called(capsys, "health", orders, "--fail-on", "warn", "--json")
    found = json.loads(out)
    assert (code, found["action"], found["reclaimableFrom"]) == (3, "vacuum()", None)
    assert found["reclaimableNowBytes"] == found["reclaimableBytes"] > 0
    shown = called(capsys, "health", orders, "--files", "--prometheus")[1]
    assert f'trinitymerge_reclaimable_now_bytes{{table="{orders}"}} {found["reclaimableBytes"]}' in shown
    log = CommitLog.open(str(orders))
    before = log.newest()
    entry = OutboxEntry(id="outbox-1", rows=2, files=1, bytes=9, path="/other", primary_key=("id",))
    log.commit(before.next_commit("MERGE", [AddOutboxEntry(entry)]), before)
    code, out, _ = called(capsys, "health", log.files.table_path, "--fail-on", "due")
    assert (code, "any write: 2 rows for /other" in out) == (3, True)


@pytest.mark.parametrize("harm", ["file", "batch", "cut"])
def test_health_with_files_notices_a_data_file_that_is_missing(capsys, tmp_path, harm):
    orders = copied(ORDERS, tmp_path)
    batch = CommitLog.open(str(orders)).newest().batches[-1]
    directory = orders / "data" / f"_tm_batch={batch.id}"
    file = next(f for f in directory.iterdir() if f.name[0] not in "._")
    if harm == "batch":
        shutil.rmtree(directory)
    elif harm == "file":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    assert called(capsys, "health", orders)[0] == 0, "only the log is read"
    code, out, err = called(capsys, "health", orders, "--files")
    assert (code, out) == (1, "")
    said = {"file": "has 0 of 1 files", "batch": "is gone", "cut": f"has {batch.bytes - 1:,} of {batch.bytes:,} bytes"}[
        harm
    ]
    assert f"{directory} {said}" in err
    assert "put the files back from a backup, or restore() a version that does not need them" in err


def copied(table: Path, directory: Path) -> Path:
    target = directory / table.name
    for file in table.rglob("*"):
        if file.is_file():
            place = target / file.relative_to(table)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    return target


def test_health_for_prometheus(capsys):
    out = called(capsys, "health", ORDERS, "--prometheus")[1]
    assert f'trinitymerge_stored_rows{{table="{ORDERS}"}} 430' in out
    assert all(line.startswith(("# TYPE ", "trinitymerge_")) for line in out.splitlines())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_writes_a_script(capsys, shell):
    code, out, _ = called(capsys, "completion", shell)
    assert (code, f"_TRINITYMERGE_COMPLETE={shell}_complete" in out) == (0, True)
    assert called(capsys, "completion", "tcsh")[0] == 2


def test_completion_completes(capsys, monkeypatch):
    monkeypatch.setenv("_TRINITYMERGE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "trinitymerge he")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert called(capsys)[:2] == (0, "plain,health\n")


def test_report_is_one_page(capsys, tmp_path):
    page = tmp_path / "r.html"
    code, out, _ = called(capsys, "report", ORDERS, "-o", page)
    assert (code, out.strip()) == (0, str(page))
    assert "<h1>Table orders</h1>" in page.read_text("utf-8")
    assert called(capsys, "report", ORDERS, "-o", tmp_path / "no" / "r.html")[0] == 1


def test_a_merge_has_a_report_too(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = called(capsys, "report", ORDERS, "--merge", 1)
    assert (code, out.strip()) == (0, "orders-1.html")
    assert "<h1>UPSERT, version 1 of orders</h1>" in Path("orders-1.html").read_text("utf-8")
    code, _, err = called(capsys, "report", ORDERS, "--merge", 99)
    assert (code, "has no version 99" in err) == (1, True)
    assert called(capsys, "report", ORDERS, "--merge", 1, "--keys")[0] == 2


# Errors ---------------------------------------------------------------------------------------------------------------


def broken(directory: Path) -> Path:
    table = copied(ORDERS, directory)
    newest = max((table / "_trinity_log").glob("*19.json"))
    newest.write_text(newest.read_text()[:-5])
    return table


def newer(directory: Path) -> Path:
    table = copied(ORDERS, directory)
    log = CommitLog.open(str(table))
    before = log.newest()
    path = Path(log.files.entry_path(20).removeprefix("file:"))
    log.commit(before.next_commit("X"), before)
    data, _ = decode_with_checksum(path.read_bytes())
    path.write_bytes(encode_with_checksum({**data, "format": 2})[0])
    return table


BAD = {
    "no table": (lambda d: ["history", d / "nothing"], 1, "no trinitymerge table at"),
    "no version": (lambda _: ["show", ORDERS, "--at", "99"], 1, "has no version 99"),
    "broken log": (lambda d: ["history", broken(d)], 1, "cannot be used"),
    "other storage": (lambda _: ["history", "hdfs://host/t"], 1, "Spark"),
    "no time": (lambda _: ["history", ORDERS, "--since", "soon"], 2, "expected a time such as"),
    "no command": (lambda _: ["histry", ORDERS], 2, "Did you mean 'history'?"),
    "no table given": (lambda _: ["history"], 2, "Missing argument 'TABLE'"),
    "no option": (lambda _: ["history", ORDERS, "--nope"], 2, "No such option"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_an_exit_code(name, capsys, tmp_path):
    make, code, text = BAD[name]
    found, out, err = called(capsys, *make(tmp_path))
    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert text in err
    assert "Traceback" not in err


def test_a_table_of_a_newer_library_is_refused(capsys, tmp_path):
    code, _, err = called(capsys, "show", newer(tmp_path))
    assert (code, "newer trinitymerge" in err) == (1, True)


def test_errors_as_json_have_a_type_and_facts(capsys, tmp_path):
    code, out, _ = called(capsys, "--json", "history", tmp_path / "nothing")
    found = json.loads(out)["error"]
    assert (code, found["type"], found["path"]) == (1, "TableNotFoundError", f"file:{tmp_path}/nothing")


def test_a_traceback_is_shown_if_asked_for(capsys, tmp_path):
    assert "Traceback" in called(capsys, "-v", "history", tmp_path / "nothing")[2]


def test_a_closed_pipe_is_silent():
    command = f"{sys.executable} -m trinitymerge history {ORDERS} --json | head -c 1; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=environment)
    assert found.stderr.replace("20 versions, the newest is 19.\n", "") == ""
    assert found.stdout.split("\n")[0].endswith(("0", "141"))


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')")
    found = alone("history", ORDERS, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert found.returncode == 2
    assert "error: the command needs the package 'click'. Run: pip install 'trinitymerge[cli]'" in found.stderr


# No Java --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["history"], ["show"], ["batches"], ["health", "--files"], ["report", "-o", "-"]]
)
def test_commands_that_read_the_log_need_no_java_and_no_pyspark(arguments):
    command, *more = arguments
    found = alone(command, ORDERS, *more)
    assert found.returncode == 0, found.stderr[-500:]
    assert "pyspark" not in found.stderr, "imported"


@pytest.mark.slow
def test_commands_start_fast():
    def seconds(*command: str) -> float:
        """Of the processor, so that a busy machine changes little."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    empty = min(seconds("-c", "pass") for _ in range(5))
    own = min(seconds("-m", "trinitymerge", "history", str(ORDERS)) for _ in range(5))
    assert own <= 3 * empty + 0.5
