"""`trinitymerge ingest` follows a real PostgreSQL and a real MariaDB under load, by Debezium and wal2json (F1, U1, T1, S36).

`make test-feeds-live` runs it, with Debezium's engine from PyPI. A database that is not installed is skipped.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers import assertRows
from kafka_broker import ROOT
from live_databases import Database, PostgreSql, mariadb, postgres, texts_of
from test_kafka import Ingest

from trinitymerge import TrinityTable

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TRINITYMERGE_LIVE"), reason="make test-feeds-live runs it"),
    pytest.mark.classic("ingest runs on classic sessions"),
]

SECONDS = int(os.environ.get("TRINITYMERGE_LIVE_SECONDS", "60"))


def until(reached: Callable[[], bool], seconds: int = 120) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "not reached"
        time.sleep(0.5)


def assert_as_in(server: Database, spark, lake: Path) -> None:
    for name, columns in server.in_spark.items():
        stored = TrinityTable.forPath(spark, f"{lake}/{server.database}/{name}").toDF().drop("_seq")
        assertRows(texts_of(stored, columns), server.rows(name))


def test_tables_follow_postgresql_under_load_though_both_processes_are_killed(spark, tmp_path):
    (tmp_path / "server").mkdir()
    with postgres(tmp_path / "server") as server, ExitStack() as stack:
        wal2json = WalFile(server, tmp_path / "wal.jsonl")
        stack.callback(wal2json.kill)
        followed_by_debezium(server, spark, tmp_path)
        wal2json.end()
        followed_by_wal2json(server, spark, tmp_path)


def test_tables_follow_mariadb_under_load_though_both_processes_are_killed(spark, tmp_path):
    (tmp_path / "server").mkdir()
    with mariadb(tmp_path / "server") as server:
        followed_by_debezium(server, spark, tmp_path)


def followed_by_debezium(server: Database, spark, directory: Path) -> None:
    """A load runs, `ingest` and Debezium are killed and started again, and the tables end as the database's."""
    engine = ROOT / ".venv-live" / "bin" / "python"
    if not engine.exists():
        pytest.skip("make test-feeds-live installs Debezium's engine, and has not")
    landing, state, lake = (directory / name for name in ("landing", "state", "lake"))
    for made in (landing, state):
        made.mkdir()
    server.sql(server.schema)
    capture = [str(engine), str(ROOT / "tests/data/feeds/capture.py"), server.connector, str(server.port)]
    with ExitStack() as stack:
        log = stack.enter_context((directory / "debezium.log").open("w"))

        def started(command: list[str]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=state)
            stack.callback(process.kill)
            return process

        debezium = started([*capture, str(landing), str(state)])
        until(lambda: any(landing.iterdir()))

        def ingest(*arguments: Any) -> Ingest:
            process = Ingest(*arguments)
            stack.callback(process.process.kill)
            return process

        file = directory / "shop.toml"
        file.write_text(
            f'[source]\nkind = "files"\npath = "{landing}"\nformat = "json"\n[target]\nroot = "{lake}"\nquarantine = "_rejected"\n'
            '[run]\ntrigger = "1s"\nmaxFiles = 200\n'
        )
        running = ingest(file)
        load = started(server.load(directory, SECONDS))
        processes = [running]
        time.sleep(SECONDS / 3)
        running.ended(signal.SIGKILL)
        debezium.kill()
        debezium.wait()
        running, debezium = ingest(file), started([*capture, str(landing), str(state)])
        processes.append(running)
        assert load.wait(SECONDS * 3) == 0, (directory / "debezium.log").read_text()[-2000:]
        server.sql("UPDATE branches SET bbalance = 424242 WHERE bid = 10")
        until(lambda: any("424242" in f.read_text() for f in sorted(landing.iterdir())[-20:]))
        files = len(list(landing.iterdir()))
        debezium.kill()
        running.until(lambda reports: bool(reports))
        assert running.ended(signal.SIGTERM) == 0
        rest = ingest(file, "--once")
        assert rest.ended() == 0
        assert_as_in(server, spark, lake)
        assert not (lake / "_rejected").exists() or TrinityTable.forPath(spark, f"{lake}/_rejected").toDF().count() == 0
        reports = [report for process in [*processes, rest] for report in process.reports]
        lags = [t["lag"] for r in running.reports for t in r["tables"] if t["lag"] is not None and not t["repeated"]]
        read = sum({r["number"]: r["read"] for r in reports}.values())
        batches = [f"{r['read']:,} in {r['seconds']:.0f} s" for r in running.reports]
        print(f"\nmicro-batches since the restart: {', '.join(batches)}")
        print(
            f"\n{read:,} messages of Debezium in {files} files; lag median {statistics.median(lags):.1f} s, last {lags[-1]:.1f} s"
        )


class WalFile:
    """What wal2json says of all transactions, in a file."""

    def __init__(self, server: PostgreSql, path: Path) -> None:
        self.path, self._server = path, server
        command = [
            str(server.binaries / "pg_recvlogical"),
            *map(str, server.connected()),
            "-d",
            "shop",
            "--slot",
            "wal",
        ]
        made = subprocess.run(
            [*command, "--create-slot", "-P", "wal2json"], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
        options = [
            "-o",
            "format-version=2",
            "-o",
            "include-lsn=true",
            "-o",
            "include-xids=true",
            "-o",
            "include-pk=true",
        ]
        options += ["-o", "include-timestamp=true"]
        self._process = subprocess.Popen([*command, "--start", "-f", str(path), "-F", "1", *options])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        until(lambda: "424242" in self.path.read_text())
        time.sleep(2)
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)


def followed_by_wal2json(server: PostgreSql, spark, directory: Path) -> None:
    """The same tables from wal2json's messages, in one file. It began before there was a table, so it has all rows."""
    (directory / "wal").mkdir()
    (directory / "wal.jsonl").rename(directory / "wal" / "0.txt")
    file = directory / "wal.toml"
    file.write_text(
        f'[source]\nkind = "files"\npath = "{directory}/wal"\n[feed]\nformat = "wal2json"\n[target]\nroot = "{directory}/lake2"\n'
        'quarantine = "_rejected"\n'
    )
    once = Ingest(file, "--once")
    assert once.ended() == 0
    (report,) = once.reports
    print(f"{report['read']:,} messages of wal2json in {report['seconds']:.1f} s")
    assert report["rejected"] == {}
    assert_as_in(server, spark, directory / "lake2")
