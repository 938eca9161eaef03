"""PostgreSQL and MariaDB on this machine, with tables, a load of changes, and what they hold as text."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs
import pytest
from processes import free_port
from pyspark.sql import DataFrame

Rows = list[tuple[str | None, ...]]


class Database(Protocol):
    """A database server with four tables under load."""

    connector: str
    """The name of Debezium's connector."""
    database: str
    """What its tables are in, for `ingest`."""
    port: int
    in_spark: Mapping[str, str]
    """The columns of each table in Spark, so that their text is that of the database."""

    schema: str
    """Statements that make the tables."""

    def sql(self, text: str) -> str: ...

    def rows(self, table: str) -> Rows: ...

    def load(self, directory: Path, seconds: int) -> list[str]:
        """Return a command that changes the tables for so long."""


def texts_of(rows: DataFrame, columns: str) -> DataFrame:
    """Columns of `in_spark`, as text."""
    selected = rows.selectExpr(*_columns(columns))
    selected = selected.toDF(*[f"c{i}" for i in range(len(selected.columns))])
    return selected.selectExpr(*[f"CAST({c} AS STRING)" for c in selected.columns])


def _columns(text: str) -> list[str]:
    """The columns of a SELECT, which may have commas within brackets."""
    columns, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            columns.append("")
        else:
            columns[-1] += c
    return [column.strip() for column in columns]


# PostgreSQL -----------------------------------------------------------------------------------------------------------

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
class PostgreSql:
    """A PostgreSQL server."""

    connector, database, schema, in_spark = "postgresql", "public", SCHEMA, IN_SPARK

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

    def load(self, directory: Path, seconds: int) -> list[str]:
        (directory / "load.sql").write_text(LOAD)
        command = [str(self.binaries / "pgbench"), *map(str, self.connected()), "-n", "-c", "4", "-T", str(seconds)]
        return [*command, "-R", "100", "-f", str(directory / "load.sql"), "shop"]


@contextmanager
def postgres(directory: Path) -> Iterator[PostgreSql]:
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
    server = PostgreSql(found[-1], free_port(), user)
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


# MariaDB --------------------------------------------------------------------------------------------------------------

OF_MARIADB = """
CREATE TABLE branches (bid INT PRIMARY KEY, bbalance BIGINT);
CREATE TABLE accounts (aid INT PRIMARY KEY, bid INT, abalance BIGINT, filler CHAR(40));
CREATE TABLE basket (bid INT, line INT, sku TEXT, PRIMARY KEY (bid, line));
CREATE TABLE notes (id INT UNSIGNED PRIMARY KEY, title VARCHAR(50), body TEXT, price DECIMAL(12,4), seen TIMESTAMP(6) NULL,
    at DATETIME(6), day DATE, took TIME(3), kind ENUM('a', 'b'), tags SET('x', 'y'), raw BLOB, flag TINYINT(1), bits BIT(10),
    ratio DOUBLE, made YEAR, big BIGINT UNSIGNED);
INSERT INTO branches SELECT seq, 0 FROM seq_1_to_10;
INSERT INTO accounts SELECT seq, seq % 10 + 1, 0, concat('f', seq) FROM seq_1_to_5000;
INSERT INTO notes (id, title, body) SELECT seq, 'first', repeat('é', seq) FROM seq_1_to_200;
"""
_BITS = "lpad(hex(bits), 4, '0')"
OF_MARIADB_AS_TEXT = {
    "branches": "bid, bbalance",
    "accounts": "aid, bid, abalance, filler",
    "basket": "bid, line, sku",
    "notes": f"id, title, md5(body), price, unix_timestamp(seen), date_format(at, '%Y-%m-%d %H:%i:%s.%f'), day, "
    f"cast(took AS TIME(6)), kind, tags, md5(raw), flag, {_BITS}, cast(ratio AS DECIMAL(20, 6)), made, big",
}
MARIADB_IN_SPARK = {
    **dict.fromkeys(("branches", "accounts", "basket"), "*"),
    "notes": "id, title, md5(body), price, CAST(unix_micros(seen) / 1000000BD AS DECIMAL(20, 6)), "
    "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), day, took, kind, tags, md5(raw), flag, "
    "hex(concat(substring(bits, 2, 1), substring(bits, 1, 1))), CAST(ratio AS DECIMAL(20, 6)), made, big",
}


@attrs.frozen
class MariaDb:
    """A MariaDB server. It says that it is MySQL 5.7: Debezium's connector for MySQL asks a newer one in words it does not know."""

    socket: Path
    port: int

    connector, database, schema, in_spark = "mysql", "shop", OF_MARIADB, MARIADB_IN_SPARK

    def client(self) -> list[str]:
        return [
            "mariadb",
            f"--socket={self.socket}",
            "-uroot",
            "-N",
            "--batch",
            "--raw",
            "--default-character-set=utf8mb4",
        ]

    def sql(self, text: str) -> str:
        done = subprocess.run([*self.client(), "-Dshop"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def rows(self, table: str) -> Rows:
        texts = (f"CAST({column} AS CHAR)" for column in _columns(OF_MARIADB_AS_TEXT[table]))
        lines = self.sql(f"SELECT json_array({', '.join(texts)}) FROM {table}").splitlines()
        return [tuple(json.loads(line)) for line in lines]

    def load(self, directory: Path, seconds: int) -> list[str]:
        """Four clients at once. One that is refused for a deadlock goes on with its next statement."""
        clients = []
        for i in range(4):
            file = directory / f"load-{i}.sql"
            file.write_text("".join(_transactions(random.Random(i), seconds * 25)))
            clients.append(f"{' '.join(self.client())} --force -Dshop < {file} & ")
        return ["bash", "-c", "".join(clients) + "wait"]


def _transactions(rnd: random.Random, count: int) -> Iterator[str]:
    """Random transactions, some rolled back, with a pause after each."""
    for _ in range(count):
        aid, note, delta, what = rnd.randint(1, 5000), rnd.randint(1, 300), rnd.randint(-5000, 5000), rnd.randint(1, 40)
        tags = ("x", "y", "x,y", "")[aid % 4]
        values = (
            f"'t{delta}', repeat('ü', {abs(delta)} % 90), {delta} / 7, now(6), now(6) - INTERVAL {aid} DAY, "
            f"curdate() + INTERVAL {delta} DAY, sec_to_time({delta} * 500.125), '{'ab'[aid % 2]}', '{tags}', "
            f"unhex(md5({delta})), {what} % 2, {aid} % 1024, {delta} / 4, 2000 + {what}, 18446744073709551615 - {aid}"
        )
        names = "title, body, price, seen, at, day, took, kind, tags, raw, flag, bits, ratio, made, big"
        extra = {
            1: f"DELETE FROM notes WHERE id = {note}",
            2: f"UPDATE notes SET body = NULL, tags = NULL, took = NULL, big = NULL WHERE id = {note}",
            3: f"UPDATE notes SET id = id + 1000 * {aid}, title = 'moved' WHERE id = {note}",
            4: f"DELETE FROM accounts WHERE aid = {aid}",
            5: f"INSERT IGNORE INTO accounts VALUES ({aid}, 1, {delta}, 'back')",
            6: f"UPDATE accounts SET filler = 'many' WHERE aid BETWEEN {aid} AND {aid + 20}",
            7: f"UPDATE notes SET id = id + 1 WHERE id BETWEEN {note} AND {note + 5} ORDER BY id DESC",
            8: "TRUNCATE basket" if rnd.random() < 0.3 else "FLUSH BINARY LOGS",
        }
        if 8 < what < 20:
            extra[what] = f"REPLACE INTO basket VALUES ({aid % 50}, {what}, 's{delta}')"
        elif what >= 20:
            extra[what] = f"REPLACE INTO notes (id, {names}) VALUES ({note}, {values})"
        yield (
            f"BEGIN;\nUPDATE accounts SET abalance = abalance + {delta} WHERE aid = {aid};\n"
            f"UPDATE branches SET bbalance = bbalance + {delta} WHERE bid = {aid % 10 + 1};\n{extra[what]};\n"
            f"{'ROLLBACK' if rnd.random() < 0.1 else 'COMMIT'};\nDO sleep({rnd.random() * 0.06:.3f});\n"
        )


@contextmanager
def mariadb(directory: Path) -> Iterator[MariaDb]:
    """A MariaDB server on this machine, with a binary log of rows."""
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed")
    user: list[str] = []
    if os.getuid() == 0:  # the server refuses root
        user = ["--user=mysql"]
        shutil.chown(directory, "mysql")
        for above in (directory, *directory.parents[:4]):
            above.chmod(above.stat().st_mode | 0o711)
    data, server = directory / "data", MariaDb(directory / "s", free_port())
    made = [
        "mariadb-install-db",
        "--no-defaults",
        *user,
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
    ]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    command = [
        "mariadbd",
        "--no-defaults",
        *user,
        f"--datadir={data}",
        f"--socket={server.socket}",
        f"--port={server.port}",
    ]
    command += [
        "--bind-address=127.0.0.1",
        f"--pid-file={directory / 'pid'}",
        "--default-time-zone=+00:00",
        "--server-id=7",
    ]
    command += ["--log-bin=log", "--binlog-format=ROW", "--binlog-row-image=FULL", "--version=5.7.10-MariaDB-log"]
    command += ["--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4"]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            started = [*server.client(), "-e", "CREATE DATABASE shop CHARACTER SET utf8mb4"]
            for _ in range(100):
                if subprocess.run(started, check=False, capture_output=True).returncode == 0:
                    break
                assert process.poll() is None, (directory / "log").read_text()[-2000:]
                time.sleep(0.2)
            yield server
        finally:
            process.kill()
            process.wait()
