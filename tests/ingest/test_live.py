"""`trinitymerge ingest` follows a real PostgreSQL under load, by Debezium and by wal2json (F1, U1, T1, S36).

`make test-feeds-live` runs it, with Debezium's engine from PyPI. It is skipped where PostgreSQL is not installed.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from helpers import assertRows
from kafka_broker import ROOT, free_port
from test_kafka import Ingest

from trinitymerge import TrinityTable

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TRINITYMERGE_LIVE"), reason="make test-feeds-live runs it"),
    pytest.mark.classic("ingest runs on classic sessions"),
]

SECONDS = int(os.environ.get("TRINITYMERGE_LIVE_SECONDS", "60"))
BODY = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 100))"
SCHEMA = f"""
CREATE TABLE branches (bid INT PRIMARY KEY, bbalance BIGINT);
CREATE TABLE accounts (aid INT PRIMARY KEY, bid INT, abalance BIGINT, filler CHAR(40));
CREATE TABLE basket (bid INT, line INT, sku TEXT, PRIMARY KEY (bid, line));
CREATE TABLE notes (id INT PRIMARY KEY, title TEXT, body TEXT, price NUMERIC(12,4), seen TIMESTAMPTZ, at TIMESTAMP, day DATE,
    doc JSONB, tags TEXT[], raw BYTEA, flag BOOLEAN, ratio DOUBLE PRECISION);
ALTER TABLE notes ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO branches SELECT i, 0 FROM generate_series(1, 10) i;
INSERT INTO accounts SELECT i, i % 10 + 1, 0, 'f' || i FROM generate_series(1, 5000) i;
INSERT INTO notes (id, title, body) SELECT i, 'first', {BODY} FROM generate_series(1, 200) i;
"""
LOAD = f"""
\\set aid random(1, 5000)
\\set id random(1, 300)
\\set what random(1, 40)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE branches SET bbalance = bbalance + :delta WHERE bid = :aid % 10 + 1;
\\if :what = 1
DELETE FROM notes WHERE id = :id;
\\elif :what = 2
UPDATE notes SET body = NULL, tags = ARRAY['a', NULL, 'ü"x'], raw = decode(md5((:delta)::text), 'hex') WHERE id = :id;
\\elif :what = 3
UPDATE notes SET id = id + 1000 * :aid, body = {BODY} WHERE id = :id;
\\elif :what = 4
DELETE FROM accounts WHERE aid = :aid;
\\elif :what = 5
INSERT INTO accounts VALUES (:aid, 1, :delta, 'again') ON CONFLICT DO NOTHING;
\\elif :what < 15
INSERT INTO basket VALUES (:aid % 50, :what, 's' || :delta) ON CONFLICT (bid, line) DO UPDATE SET sku = excluded.sku;
\\elif :what = 15
TRUNCATE basket;
\\elif :what < 30
INSERT INTO notes (id, title, body, price, seen, at, day, doc, flag, ratio) VALUES (:id, 't' || :delta, {BODY}, :delta / 7.0,
    now(), now() AT TIME ZONE 'UTC', current_date + :aid, '{{"n": 1}}', :what > 20, :delta / 3.0)
    ON CONFLICT (id) DO UPDATE SET title = excluded.title, price = excluded.price, seen = excluded.seen, at = excluded.at,
        doc = excluded.doc, flag = excluded.flag, ratio = excluded.ratio;
\\endif
END;
"""
TABLES = {
    "branches": "bid::text, bbalance::text",
    "accounts": "aid::text, bid::text, abalance::text, filler",
    "basket": "bid::text, line::text, sku",
    "notes": "id::text, title, coalesce(length(body), -1)::text, md5(body), price::text, day::text, md5(raw), "
    "flag::text, array_to_string(tags, ',', 'NULL'), extract(epoch FROM seen)::numeric(20,6)::text, "
    "extract(epoch FROM at)::numeric(20,6)::text",
}
"""The columns of each table as text, in PostgreSQL."""
IN_SPARK = {
    **dict.fromkeys(("branches", "accounts", "basket"), "*"),
    "notes": "id, title, coalesce(length(body), -1), md5(body), price, day, md5(raw), flag, "
    "array_join(tags, ',', 'NULL'), CAST(unix_micros(seen) / 1000000BD AS DECIMAL(20,6)), "
    "CAST(unix_micros(CAST(at AS TIMESTAMP)) / 1000000BD AS DECIMAL(20,6))",
}


@attrs.frozen
class Database:
    """A PostgreSQL server."""

    binaries: Path
    port: int
    user: tuple[str, ...]

    def run(self, tool: str, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
        command = [*self.user, str(self.binaries / tool), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd="/tmp", **more)
        assert done.returncode == 0, (command, done.stderr[-2000:])
        return done

    def connected(self) -> list[object]:
        return ["-h", "127.0.0.1", "-p", self.port, "-U", "postgres"]

    def sql(self, text: str, database: str = "shop") -> str:
        return self.run("psql", *self.connected(), "-d", database, "-v", "ON_ERROR_STOP=1", "-qAt", input=text).stdout

    def rows(self, table: str) -> list[tuple[str | None, ...]]:
        text = self.sql(f"COPY (SELECT {TABLES[table]} FROM {table}) TO STDOUT (FORMAT csv, NULL '\\N')")
        return [tuple(None if v == "\\N" else v for v in row) for row in csv.reader(io.StringIO(text))]


@contextmanager
def postgres(directory: Path) -> Iterator[Database]:
    """A PostgreSQL server on this machine, with logical decoding."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path(shutil.which("initdb") or "/none").parent]
    if not (found[-1] / "initdb").exists():
        pytest.skip("PostgreSQL is not installed")
    user: tuple[str, ...] = ()
    if os.getuid() == 0:  # the server refuses root
        user = ("runuser", "-u", "postgres", "--")
        shutil.chown(directory, "postgres")
        for above in (directory, *directory.parents[:4]):
            above.chmod(above.stat().st_mode | 0o711)
    server = Database(found[-1], free_port(), user)
    data = directory / "data"
    server.run("initdb", "-D", data, "-U", "postgres", "-A", "trust")
    options = f"-p {server.port} -k {directory} -c wal_level=logical -c fsync=off -c timezone=UTC"
    control = [*user, str(server.binaries / "pg_ctl"), "-D", str(data)]
    started = [*control, "-o", options, "-l", str(directory / "log"), "-w", "start"]
    subprocess.run(started, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/tmp")
    try:
        server.sql("CREATE DATABASE shop", "postgres")
        yield server
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, stdout=subprocess.DEVNULL, cwd="/tmp")


def until(reached: Callable[[], bool], seconds: int = 120) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "not reached"
        time.sleep(0.5)


def assert_as_in(server: Database, spark, lake: Path) -> None:
    for name in TABLES:
        stored = TrinityTable.forPath(spark, f"{lake}/public/{name}").toDF().drop("_seq")
        stored.createOrReplaceTempView("stored")
        columns = spark.sql(f"SELECT {IN_SPARK[name]} FROM stored")
        columns = columns.toDF(*[f"c{i}" for i in range(len(columns.columns))])
        texts = columns.selectExpr(*[f"CAST(`{c}` AS STRING)" for c in columns.columns])
        assertRows(texts, server.rows(name))


def test_tables_follow_postgresql_under_load_though_both_processes_are_killed(spark, tmp_path):
    engine = ROOT / ".venv-live" / "bin" / "python"
    if not engine.exists():
        pytest.skip("make test-feeds-live installs Debezium's engine, and has not")
    landing, state, lake = (tmp_path / name for name in ("landing", "state", "lake"))
    for directory in (landing, state, tmp_path / "pg"):
        directory.mkdir()
    with postgres(tmp_path / "pg") as server, ExitStack() as stack:
        wal2json = WalFile(server, tmp_path / "wal.jsonl")
        stack.callback(wal2json.kill)
        server.sql(SCHEMA)
        capture = [str(engine), str(ROOT / "tests/data/feeds/capture.py"), str(server.port), str(landing), str(state)]
        log = stack.enter_context((tmp_path / "debezium.log").open("w"))

        def started(command: list[str]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=state)
            stack.callback(process.kill)
            return process

        debezium = started(capture)
        until(lambda: any(landing.iterdir()))

        def ingest(*arguments: Any) -> Ingest:
            process = Ingest(*arguments)
            stack.callback(process.process.kill)
            return process

        file = tmp_path / "shop.toml"
        file.write_text(
            f'[source]\nkind = "files"\npath = "{landing}"\nformat = "json"\n[target]\nroot = "{lake}"\nquarantine = "_rejected"\n'
            '[run]\ntrigger = "1s"\nmaxFiles = 200\n'
        )
        running = ingest(file)
        (tmp_path / "load.sql").write_text(LOAD)
        command = [str(server.binaries / "pgbench"), *map(str, server.connected()), "-n", "-c", "4", "-T", str(SECONDS)]
        command += ["-R", "100", "-f", str(tmp_path / "load.sql"), "shop"]
        load = started(command)
        processes = [running]
        time.sleep(SECONDS / 3)
        running.ended(signal.SIGKILL)
        debezium.kill()
        debezium.wait()
        running, debezium = ingest(file), started(capture)
        processes.append(running)
        assert load.wait(SECONDS * 3) == 0, (tmp_path / "debezium.log").read_text()[-2000:]
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
        wal2json.end()
        followed_by_wal2json(server, spark, tmp_path)


class WalFile:
    """What wal2json says of all transactions, in a file."""

    def __init__(self, server: Database, path: Path) -> None:
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


def followed_by_wal2json(server: Database, spark, directory: Path) -> None:
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
