"""`trinitymerge ingest` from a real Kafka broker: millions of messages, a killed process, new partitions (F1, S36, S47).

`make test-kafka` runs it. It is skipped where Maven cannot fetch the broker.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import assertRows
from kafka_broker import ROOT, Broker, broker, spark_jars
from pyspark.sql import functions as F

from trinitymerge import TrinityTable

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TRINITYMERGE_KAFKA"), reason="make test-kafka runs it"),
    pytest.mark.classic("ingest runs on classic sessions"),
]

MESSAGES = int(os.environ.get("TRINITYMERGE_KAFKA_MESSAGES", "2000000"))
KEYS = 100_000
POISON = 100_000
"""Each message whose number is a multiple is cut."""
TOPIC = "shop.public.accounts"
COLUMNS = "aid INT, bid INT, abalance BIGINT, filler STRING"

PRODUCE = """
import sys
from pyspark.sql import SparkSession

servers, jars, table, keys, poison, what, *more = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
if what == "rate":
    rows = spark.readStream.format("rate").option("rowsPerSecond", more[0]).load().selectExpr("value + 1 AS i")
else:
    rows = spark.range(int(more[0]), int(more[1]), numPartitions=4).selectExpr("id AS i")
source = (
    "named_struct('db', 'shop', 'schema', 'public', 'table', '" + table + "', 'snapshot', 'false', "
    "'ts_ms', unix_millis(now()), 'sequence', concat('[\\"', i, '\\",\\"', i, '\\"]'))"
)
row = "named_struct('aid', aid, 'bid', aid % 10, 'abalance', i, 'filler', repeat('x', 60))"
value = (
    "CASE WHEN i % " + poison + " = 0 THEN concat('{', i) WHEN i % 17 = 0 "
    "THEN to_json(named_struct('op', 'd', 'before', struct(aid), 'source', " + source + ")) "
    "ELSE to_json(named_struct('op', 'u', 'after', " + row + ", 'source', " + source + ")) END AS value"
)
messages = rows.selectExpr("i", "pmod(hash(i), " + keys + ") AS aid").selectExpr("to_json(struct(aid)) AS key", value)
to = {"kafka.bootstrap.servers": servers, "topic": "shop.public." + table}
if what == "rate":
    stream = messages.writeStream.format("kafka").options(**to, checkpointLocation=more[1])
    query = stream.trigger(processingTime="500 milliseconds").start()
    query.awaitTermination(int(more[2]))
    query.stop()
else:
    messages.write.format("kafka").options(**to).save()
"""
"""Writes messages of numbers: a range of them, or at a rate for some seconds. Numbers are their order."""


def produced(found: Broker, table: str, *arguments: object) -> None:
    command = [sys.executable, "-c", PRODUCE, found.address, spark_jars(), table, KEYS, POISON, *arguments]
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def kafka_source() -> list[str]:
    return ["--conf", f"spark.jars={spark_jars()}"]


class Ingest:
    """The command in a process, with what it has reported."""

    def __init__(self, file: Path, *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "trinitymerge",
            "ingest",
            str(file),
            "--json",
            "--conf",
            f"spark.jars={spark_jars()}",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True, env=environment)
        self.reports: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.append(json.loads(line))

    def until(self, reached: Any, seconds: int = 300) -> None:
        end = time.monotonic() + seconds
        while not reached(self.reports):
            assert self.process.poll() is None, f"exit code {self.process.returncode}"
            assert time.monotonic() < end, f"not reached: {self.reports[-1:]}"
            time.sleep(0.1)

    def ended(self, how: signal.Signals | None = None) -> int:
        if how is not None:
            self.process.send_signal(how)
        code = self.process.wait(300)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def test_millions_of_messages_become_the_right_table(spark, tmp_path):
    half = MESSAGES // 2
    reports: dict[int, dict[str, Any]] = {}
    (tmp_path / "kafka").mkdir()
    with broker(tmp_path / "kafka") as found:
        assert found.topics("--create", "--topic", TOPIC, "--partitions", 3).returncode == 0
        file = tmp_path / "shop.toml"
        file.write_text(
            f'[source]\nkind = "kafka"\nservers = "{found.address}"\npattern = "shop[.]public[.].*"\n'
            f'[target]\nroot = "{tmp_path}/lake"\nquarantine = "_rejected"\n[run]\nmaxRecords = {MESSAGES // 8}\ntrigger = "1s"\n'
            f'[[table]]\nsource = "public.*"\nkeys = ["aid"]\nschema = "{COLUMNS}"\n'
        )
        produced(found, "accounts", "range", half // 2, half)  # the later half comes first
        produced(found, "accounts", "range", 1, half // 2)
        killed = Ingest(file, *kafka_source())
        killed.until(lambda r: len(r) >= 2)
        assert killed.ended(signal.SIGKILL) == -signal.SIGKILL
        running = Ingest(file, *kafka_source())
        running.until(lambda r: len(r) >= 1)
        assert found.topics("--alter", "--topic", TOPIC, "--partitions", 5).returncode == 0
        produced(found, "accounts", "range", half, MESSAGES)  # keys are in other partitions from here on
        began = time.monotonic()
        running.until(lambda r: sum(x["read"] for x in r) >= MESSAGES // 2)
        assert running.ended(signal.SIGTERM) == 0
        rest = Ingest(file, "--once", *kafka_source())
        assert rest.ended() == 0
        for process in (killed, running, rest):
            reports |= {report["number"]: report for report in process.reports}
        assert sum(r["read"] for r in reports.values()) == MESSAGES - 1
        speed = [r["read"] / r["seconds"] for r in running.reports + rest.reports if r["read"] >= MESSAGES // 10][1:]
        print(
            f"\n{MESSAGES:,} messages: {statistics.median(speed):,.0f} a second (median), {max(speed):,.0f} (fastest)"
        )
        print(f"drained in {time.monotonic() - began:.0f} s; micro-batches {len(reports)}")
        lags = lag_of(found, file, tmp_path)
        print(f"lag at 2,000 messages a second: median {statistics.median(lags):.1f} s, largest {max(lags):.1f} s")
    events = spark.range(1, MESSAGES).selectExpr("id AS i", f"pmod(hash(id), {KEYS}) AS aid").where(f"i % {POISON} > 0")
    last = events.groupBy("aid").agg(F.max("i").alias("i")).where("i % 17 > 0")
    rows = TrinityTable.forPath(spark, f"{tmp_path}/lake/public/accounts").toDF().selectExpr("abalance AS i", "aid")
    last = last.select("i", "aid")
    assertRows(rows.exceptAll(last).union(last.exceptAll(rows)), [])
    assert rows.count() > KEYS * 0.9
    kept = TrinityTable.forPath(spark, f"{tmp_path}/lake/_rejected").toDF()
    assert kept.where("row LIKE '%00000'").count() >= (MESSAGES - 1) // POISON


def lag_of(found: Broker, file: Path, directory: Path) -> list[float]:
    """The lags of micro-batches while messages come at a rate, of another table."""
    running = Ingest(file, *kafka_source())
    produced(found, "pulse", "rate", 2000, directory / "rate", 30)
    time.sleep(10)
    assert running.ended(signal.SIGTERM) == 0
    return [t["lag"] for r in running.reports for t in r["tables"] if t["lag"] is not None][2:]
