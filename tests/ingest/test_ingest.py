"""`trinitymerge ingest`: streams of files become right tables, also with damage and kills (F1-F4, S36, S47)."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from feed_tables import TABLES, of_database
from helpers import assertRows
from processes import small_sessions
from test_costs import jobs_of

from trinitymerge import ConcurrentCommitError, TrinityTable
from trinitymerge.commands.app import run
from trinitymerge.ingest.config import Config, ConfigError, config_of
from trinitymerge.ingest.micro_batch import IngestError, Merger
from trinitymerge.ingest.report import BatchReport, Totals, serve
from trinitymerge.ingest.run import _has_ended, _started, ingest, planned
from trinitymerge.ingest.sources import messages_now

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "feeds" / "debezium"
ALL_OTHERS = {"source": "*", "skip": True}


pytestmark = pytest.mark.classic("ingest runs on classic sessions")

# Messages -------------------------------------------------------------------------------------------------------------


def message(table: str, op: str, row: Mapping[str, Any] | None, lsn: int, **more: Any) -> dict[str, Any]:
    """A message of Debezium's, with its key, as a line of a file."""
    source = {"db": "shop", "schema": "public", "table": table, "sequence": f'["{lsn}","{lsn}"]', "snapshot": "false"}
    value = {"op": op, "before" if op == "d" else "after": row, "source": {**source, "ts_ms": lsn}, **more}
    return {"topic": f"shop.public.{table}", "key": None if row is None else {"id": row.get("id")}, "value": value}


def written(directory: Path, name: str, lines: Iterable[Any]) -> None:
    directory.mkdir(exist_ok=True)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (directory / f".{name}").write_text(text)
    (directory / f".{name}").rename(directory / name)


def config(tmp_path: Path, *rules: Mapping[str, Any], **more: Mapping[str, Any]) -> Config:
    said = {
        "source": {"kind": "files", "path": str(tmp_path / "in"), "format": "json"},
        "target": {"root": str(tmp_path / "lake"), "quarantine": "_rejected"},
        "run": {"maxFiles": 1},
        "table": list(rules),
    }
    return config_of(
        {name: {**said[name], **more.get(name, {})} if name != "table" else said[name] for name in said}
        | {"feed": dict(more.get("feed", {}))}
    )


def ingested(spark, found: Config, die_after: int | None = None) -> list[BatchReport]:
    """Take what is there. Die after some micro-batches, before Spark has noted the last one."""
    reports: list[BatchReport] = []

    def told(report: BatchReport) -> None:
        reports.append(report)
        if die_after is not None and len(reports) > die_after:
            raise RuntimeError("killed")

    ingest(spark, found, True, told, threading.Event())
    return reports


def rows(spark, path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in TrinityTable.forPath(spark, str(path)).toDF().select(*columns).collect())


# The captured stream --------------------------------------------------------------------------------------------------


def test_F1_S36_a_captured_stream_shuffled_and_killed_in_between_ends_as_the_database(spark, tmp_path):
    names = ("notes", "basket", "tellers")
    with gzip.open(DATA / "postgresql.jsonl.gz", "rt") as lines:
        messages = [line for line in lines if any(f'"shop.public.{n}"' in line for n in names)]
    random.Random(36).shuffle(messages)
    for number in range(3):
        written(tmp_path / "in", f"{number}.jsonl", [m.rstrip("\n") for m in messages[number::3]])
    rules = [{"source": f"public.{n}", "schema": TABLES[n][0], "keys": TABLES[n][1]} for n in names]
    rules[0]["clusterBy"] = ["_seq"]
    found = config(tmp_path, *rules, feed={"timestamps": "ms"}, run={"maxFiles": 1, "threads": 2})
    with pytest.raises(RuntimeError, match="killed"):
        ingested(spark, found, die_after=1)
    reports = ingested(spark, found)
    assert [t.repeated for r in reports for t in r.tables] == [r is reports[0] for r in reports for _ in r.tables]
    assert ingested(spark, found) == [], "nothing is left"
    for name in names:
        table = TrinityTable.forPath(spark, str(tmp_path / "lake" / "public" / name))
        assertRows(table.toDF().drop("_seq"), of_database(DATA / "final" / f"{name}.csv", table, {"price": "NaN"}))
        assert table.definition.clusterBy == (("_seq",) if name == names[0] else ())


def test_S36_a_micro_batch_that_comes_again_is_not_merged_again(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": 1}, 1)])
    written(tmp_path / "in", "1.jsonl", [message("a", "u", {"id": 1, "v": 2}, 2)])
    found = config(tmp_path, {"source": "public.a", "schema": "id INT, v INT", "keys": ["id"]}, run={"maxFiles": 1})
    with pytest.raises(RuntimeError, match="killed"):
        ingested(spark, found, die_after=0)
    assert [t.repeated for r in ingested(spark, found) for t in r.tables] == [True, False]
    assert TrinityTable.forPath(spark, str(tmp_path / "lake/public/a")).version == 2


def test_the_names_of_keys_are_read_once_for_all_new_tables(spark, tmp_path):
    def jobs(tables: int, keys: list[str]) -> int:
        place = tmp_path / f"{tables} {len(keys)}"
        place.mkdir()
        written(place / "in", "a.jsonl", [message(f"t{n}", "c", {"id": n}, n + 1) for n in range(tables)])
        rules = [{"source": f"public.t{n}", "schema": "id INT", "keys": keys} for n in range(tables)]
        with jobs_of(spark) as found:
            ingested(spark, config(place, *rules))
        for n in range(tables):
            table = TrinityTable.forPath(spark, str(place / "lake" / "public" / f"t{n}"))
            assert (table.definition.primaryKey, rows(spark, Path(table.path), "id")) == (("id",), [(n,)])
        return found.count

    one, three = (jobs(n, []) - jobs(n, ["id"]) for n in (1, 3))
    assert one == three > 0


# Damage ---------------------------------------------------------------------------------------------------------------

KINDS = {
    "cut": lambda n: '{"topic":"t","value":"{\\"op\\":\\"c\\",\\"aft"}',
    "unknown op": lambda n: message("a", "x", {"id": 1, "v": 1}, n),
    "no row": lambda n: message("a", "c", None, n),
    "no key": lambda n: {**message("a", "d", None, n), "key": None},
    "wrong type": lambda n: message("a", "c", {"id": 1, "v": "one"}, n),
    "null key": lambda n: message("a", "u", {"id": None, "v": 1}, n),
    "no position": lambda n: {
        "value": {
            "op": "c",
            "after": {"id": 1, "v": 1},
            "source": {"table": "a", "schema": "public", "db": "shop", "n": n},
        }
    },
    "no table": lambda n: {"value": {"op": "c", "after": {"id": n}, "source": {"sequence": f'["{n}","{n}"]'}}},
    "new column": lambda n: message("b", "c", {"id": n % 5, "v": n, "w": "new"}, n),
    "heartbeat": lambda n: {"value": {"ts_ms": n}},
    "transaction": lambda n: {"value": {"status": "END", "id": str(n)}},
    "ddl": lambda n: {"value": {"ddl": f"ALTER TABLE a -- {n}", "source": {"table": "a"}}},
    "tombstone": lambda n: {"key": {"id": n}, "value": None},
    "other table": lambda n: message("unwanted", "c", {"id": n}, n),
    "truncate": lambda n: message("b", "t", None, n),
}
"""Each kind of damage, and messages that are not events, by a number."""


def test_F4_S47_whatever_is_damaged_each_message_is_applied_superseded_skipped_or_rejected(spark, tmp_path):
    chance = random.Random(47)
    lines: list[Any] = []
    for number in range(1, 400):
        kind = chance.choice(["good"] * 20 + list(KINDS))
        table, key = chance.choice("ab"), chance.randrange(8)
        if kind == "good":
            op = chance.choice("cuud")
            lines.append(message(table, op, {"id": key, "v": number} if op != "d" else {"id": key}, number))
        else:
            lines.append(KINDS[kind](number))
    sent = list(lines)
    chance.shuffle(lines)
    for number in range(3):
        written(tmp_path / "in", f"{number}.jsonl", lines[number::3])
    rules = [{"source": n, "schema": "id INT, v INT", "keys": ["id"]} for n in ("public.a", "public.b")]
    reports = ingested(
        spark, config(tmp_path, *rules, {"source": "unwanted", "skip": True}, target={"onNewColumn": "add"})
    )
    # the numbers add up to what was read
    assert sum(r.read for r in reports) == len(sent)
    read, applied, skipped, rejected = 0, 0, 0, 0
    for report in reports:
        skipped += sum(report.skipped.values())
        rejected += sum(report.rejected.values())
        for table in report.tables:
            assert table.read == table.upserts + table.deletes + table.truncates + table.skipped + sum(
                table.rejected.values()
            )
            read += table.read
            applied += table.upserts + table.deletes + table.truncates
            skipped += table.skipped
            rejected += sum(table.rejected.values())
    assert applied + skipped + rejected == len(sent)
    assert rejected == TrinityTable.forPath(spark, str(tmp_path / "lake/_rejected")).toDF().count()
    reasons = {r["reason"] for r in TrinityTable.forPath(spark, str(tmp_path / "lake/_rejected")).toDF().collect()}
    assert reasons == {"unparsable", "unknown-op", "no-row", "no-key", "type:v", "null-key", "no-position", "no-table"}
    # what was applied is in the tables, or superseded by a later event
    for name in "ab":
        live: dict[int, tuple[int, str | None]] = {}
        for value in (m["value"] for m in sent if not isinstance(m, str)):
            source = (value or {}).get("source", {})
            if source.get("table") != name or "sequence" not in source:
                continue
            row = value.get("after") or value.get("before") or {}
            if value["op"] == "t":
                live.clear()
            elif value["op"] == "d" and row.get("id") is not None:
                live.pop(row["id"], None)
            elif value["op"] in "cu" and row.get("id") is not None and isinstance(row["v"], int):
                before = live.get(row["id"], (0, None))[1] if value["op"] == "u" else None
                live[row["id"]] = (row["v"], row.get("w", before))
        columns = ("id", "v", "w") if name == "b" else ("id", "v")
        expected = sorted((key, *value[: len(columns) - 1]) for key, value in live.items())
        assertRows(TrinityTable.forPath(spark, str(tmp_path / f"lake/public/{name}")).toDF().select(*columns), expected)


def test_S47_without_a_quarantine_a_message_that_cannot_be_read_stops_the_stream(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": 1}, 1), KINDS["cut"](2)])
    found = config(tmp_path, {"source": "a", "schema": "id INT, v INT"}, target={"quarantine": ""})
    for _ in range(2):
        with pytest.raises(
            IngestError, match=r"1 message cannot be read, and there is no quarantine: unparsable \(1\)"
        ) as error:
            ingested(spark, found)
        assert error.value.is_rejected
        assert re.search(r"""The first: \S*/in/0\.jsonl, '\{"op":"c","aft': unparsable""", str(error.value)), (
            error.value
        )
        assert rows(spark, tmp_path / "lake/public/a", "id") == [(1,)], "other messages are merged"
    (report,) = ingested(spark, config(tmp_path, {"source": "a"}))
    assert (report.rejected, [t.repeated for t in report.tables]) == ({"unparsable": 1}, [True])


def test_S47_too_many_rejected_messages_stop_the_stream(spark, tmp_path):
    written(
        tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": v}, v) for v in (1, 2)] + [KINDS["wrong type"](3)]
    )
    found = config(tmp_path, {"source": "a", "schema": "id INT, v INT"}, run={"maxRejected": 0.3})
    with pytest.raises(IngestError, match=r"33\.33% *|more than the 30\.00%") as error:
        ingested(spark, found)
    assert error.value.is_rejected


# Tables ---------------------------------------------------------------------------------------------------------------


def test_tables_are_created_as_messages_say(spark, tmp_path):
    with (DATA / "with-schema.jsonl.gz").open("rb") as raw, gzip.open(raw, "rt") as lines:
        written(tmp_path / "in", "0.jsonl", [line.rstrip("\n") for line in lines])
    found = config(tmp_path, ALL_OTHERS | {"source": "*_full"}, target={"history": ["notes"]})
    plans, routed = planned(spark, found)
    assert [(p.source, p.plan, p.keys) for p in plans] == [("shop.public.notes", "create with history", ("id", "lang"))]
    assert (routed.rejected, (tmp_path / "lake").exists()) == ({}, False)
    (report,) = ingested(spark, found)
    table = TrinityTable.forPath(spark, str(tmp_path / "lake/public/notes"))
    assert (table.definition.primaryKey, table.definition.watermarkKey) == (("id", "lang"), ("_ts", "_seq"))
    assert table.versions().count() == report.tables[0].upserts
    assert dict(table.toDF().dtypes)["price"] == "decimal(12,4)"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_table_that_cannot_be_created_stops_the_stream_once_the_others_are_done(spark, tmp_path, threads):
    lines = [message("a", "c", {"id": 1, "v": 1}, 1), message("b", "c", {"id": 1, "v": 1}, 1)]
    written(tmp_path / "in", "0.jsonl", lines)
    with pytest.raises(IngestError) as error:
        ingested(spark, config(tmp_path, {"source": "b", "schema": "id INT, v INT"}, run={"threads": threads}))
    assert "The types of shop.public.a are not known" in str(error.value)
    assert 'Give schema = "id ..., v ..." in a [[table]] with source = "shop.public.a"' in str(error.value)
    assert not error.value.is_rejected
    assert rows(spark, tmp_path / "lake/public/b", "id") == [(1,)]
    (report,) = ingested(spark, config(tmp_path, {"source": "?", "schema": "id INT, v INT"}))
    assert [(t.source, t.repeated) for t in report.tables] == [("shop.public.a", False), ("shop.public.b", True)]


def test_messages_of_a_table_that_fails_go_into_the_quarantine_if_asked_for(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message(t, "c", {"id": 1, "v": 1}, 1) for t in "ab"])
    written(tmp_path / "in", "1.jsonl", [message(t, "c", {"id": 2, "v": 1}, 2) for t in "ab"])
    found = config(tmp_path, {"source": "a", "schema": "id INT, v INT"}, run={"onTableError": "quarantine"})
    reports = ingested(spark, found)
    assert [len(r.tables) for r in reports] == [2, 2]
    assert "The types of shop.public.b are not known" in str(reports[0].tables[1])
    assert rows(spark, tmp_path / "lake/public/a", "id") == [(1,), (2,)]
    kept = TrinityTable.forPath(spark, str(tmp_path / "lake/_rejected")).toDF()
    assert [(r["reason"], json.loads(r["row"])["op"]) for r in kept.collect()] == [("table:IngestError", "c")] * 2
    assert [r.tables[1].rejected for r in reports] == [{"table:IngestError": 1}] * 2


def test_each_table_is_reported_when_it_is_merged(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message(t, "c", {"id": 1, "v": 1}, 1) for t in "ab"] + [KINDS["heartbeat"](2)])
    told: list[Any] = []
    found = config(tmp_path, {"source": "?", "schema": "id INT, v INT"}, run={"threads": 1})
    ingest(spark, found, True, told.append, threading.Event(), told.append)
    assert [str(part).split(" in ")[0] for part in told] == [
        "micro-batch 0: 3 messages; skipped without a table: 1 heartbeat",
        "shop.public.a: 1 message (1 upserts), 1 row",
        "shop.public.b: 1 message (1 upserts), 1 row",
        "micro-batch 0: 3 messages; skipped without a table: 1 heartbeat",
    ]
    assert [part.tables for part in told if isinstance(part, BatchReport)] == [(), tuple(told[1:3])]


def test_F1_files_have_headers_as_kafka_has(spark, tmp_path):
    values = ['{"id":1}', "eyJpZCI6MX0=", {"id": 1}]  # a text, base64 as Spark writes it, an object
    line = message("a", "c", {"id": 2, "v": "long"}, 1)
    headers = [{"key": "other", "value": "x"}, *({"key": "__debezium.oldkey", "value": value} for value in values)]
    written(tmp_path / "in", "0.jsonl", [{**line, "headers": headers}])
    (read,) = messages_now(spark, config(tmp_path)).collect()
    assert [(h.key, bytes(h.value)) for h in read.headers] == [
        ("other", b"x"),
        *[("__debezium.oldkey", b'{"id":1}')] * 3,
    ]
    assert json.loads(read.value) == line["value"]


def test_a_table_that_cannot_be_compacted_does_not_stop_the_others(spark, tmp_path, monkeypatch):
    compacted = []

    def compact(table: TrinityTable) -> None:
        compacted.append(Path(table.path).name)
        if compacted == ["a"]:
            raise OSError("no room")

    monkeypatch.setattr(TrinityTable, "compact", compact)
    for n in range(2):
        written(tmp_path / "in", f"{n}.jsonl", [message(t, "c", {"id": n, "v": 1}, n) for t in "ab"])
    found = config(tmp_path, {"source": "?", "schema": "id INT, v INT"}, run={"compactEvery": "1ms"})
    with pytest.raises(IngestError, match="no room"):
        ingested(spark, found)
    assert compacted == ["a", "b"]
    assert rows(spark, tmp_path / "lake/public/b", "id") == [(0,), (1,)]


def test_two_source_tables_do_not_share_a_table(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message(t, "c", {"id": 1, "v": 1}, 1) for t in "ab"])
    with pytest.raises(IngestError, match=r"shop\.public\.a and shop\.public\.b would go into one table"):
        ingested(spark, config(tmp_path, {"source": "a", "schema": "id INT, v INT"}, target={"path": "{schema}"}))
    assert rows(spark, tmp_path / "lake/public", "id") == [(1,)]


def test_partitions_of_a_source_table_go_into_one(spark, tmp_path):
    moved = [message("a_1", "d", {"id": 1}, 3), message("a_2", "c", {"id": 1, "v": 4}, 4)]
    lines = [message("a_1", "c", {"id": 1, "v": 1}, 1), message("a_2", "c", {"id": 2, "v": 2}, 2), *moved]
    written(tmp_path / "in", "0.jsonl", [*lines, message("a_3", "c", {"id": 3, "v": 5}, 5), KINDS["cut"](6)])
    rule = {"source": "public.a_*", "path": "whole", "schema": "id INT, v INT", "keys": ["id"], "partitions": True}
    (report,) = ingested(spark, config(tmp_path, {"source": "a_3", "skip": True}, rule))
    assert [(t.source, t.upserts, t.deletes) for t in report.tables] == [("public.a_*", 3, 1)]
    assert rows(spark, tmp_path / "lake/whole", "id", "v") == [(1, 4), (2, 2)]


def test_two_source_tables_do_not_share_a_table_in_other_micro_batches_either(spark, tmp_path):
    rule = {"source": "*", "path": "one", "schema": "id INT, v INT"}
    written(tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": 1}, 1)])
    ingested(spark, config(tmp_path, rule))
    written(tmp_path / "in", "1.jsonl", [message("b", "c", {"id": 1, "v": 2}, 2)])
    with pytest.raises(
        IngestError, match=r"has the events of shop\.public\.a from this stream, so it does not get those of shop"
    ):
        ingested(spark, config(tmp_path, rule))
    assert rows(spark, tmp_path / "lake/one", "id", "v") == [(1, 1)]


def test_S47_a_micro_batch_that_comes_again_keeps_what_it_did_not_keep_before(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message("b", "c", {"id": 1, "v": 1}, 1), KINDS["cut"](2)])
    with pytest.raises(IngestError):
        ingested(spark, config(tmp_path))
    ingested(spark, config(tmp_path, run={"onTableError": "quarantine"}))
    kept = TrinityTable.forPath(spark, str(tmp_path / "lake/_rejected")).toDF()
    assert sorted(row["reason"] for row in kept.collect()) == ["table:IngestError", "unparsable"]


def test_S47_messages_that_name_no_table_are_kept(spark, tmp_path):
    lines = [message("a", "c", {"id": 1, "v": 1}, 1), KINDS["no table"](2), KINDS["cut"](3)]
    written(tmp_path / "in", "0.jsonl", lines)
    rule = {"source": "public.a", "schema": "id INT, v INT", "keys": ["id"]}
    ingested(spark, config(tmp_path, rule, run={"maxRejected": 1.0}))
    kept = TrinityTable.forPath(spark, str(tmp_path / "lake/_rejected")).toDF()
    assert sorted(row["reason"] for row in kept.collect()) == ["no-table", "unparsable"]


def test_lines_that_are_no_objects_with_a_value_are_messages(spark, tmp_path):
    lines = [
        message("a", "c", {"id": 1, "v": 1}, 1),
        message("a", "c", {"id": 2, "v": 1}, 2)["value"],
        "{cut",
        "[1]",
        '"text"',
    ]
    written(tmp_path / "in", "0.jsonl", [*lines, {"key": {"id": 3}, "value": None}])
    (report,) = ingested(spark, config(tmp_path, {"source": "a", "schema": "id INT, v INT", "keys": ["id"]}))
    assert rows(spark, tmp_path / "lake/public/a", "id") == [(1,), (2,)]
    assert (sum(report.rejected.values()), report.skipped) == (3, {"tombstone": 1}), report


def test_all_events_go_into_one_table(spark, tmp_path):
    lines = [
        message("a", "c", {"id": 1, "v": 1, "n": None}, 1),
        message("a", "c", {"id": 2, "v": 1, "n": 1}, 2),
        '{"value":"{"}',
    ]
    written(tmp_path / "in", "0.jsonl", lines)
    rule = {"path": "one", "schema": "number INT, w INT", "rename": {"v": "w"}, "exceptColumns": ["n"]}
    (report,) = ingested(spark, config(tmp_path, rule, feed={"rename": {"id": "number"}}))  # the messages name the key
    assert (report.tables[0].upserts, report.tables[0].rejected) == (2, {"unparsable": 1})
    assert rows(spark, tmp_path / "lake/one", "number", "w") == [(1, 1), (2, 1)]


def test_S36a_a_checkpoint_that_was_deleted_is_refused(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": 1}, 1)])
    rule = {"source": "a", "schema": "id INT, v INT"}
    ingested(spark, config(tmp_path, rule))
    again = config(tmp_path, rule, run={"checkpoint": "_other"})
    with pytest.raises(IngestError, match=r"comes from another streaming query"):
        ingested(spark, again)
    (report,) = ingested(spark, config(tmp_path, rule, run={"app": "again"}))
    assert report.tables[0].appended <= 1
    assert rows(spark, tmp_path / "lake/public/a", "id", "v") == [(1, 1)]


def test_tables_are_compacted_from_time_to_time(spark, tmp_path):
    for n in range(2):
        written(tmp_path / "in", f"{n}.jsonl", [message("a", "c", {"id": n, "v": 1}, n)])
    ingested(spark, config(tmp_path, {"source": "a", "schema": "id INT, v INT"}, run={"compactEvery": "1ms"}))
    table = TrinityTable.forPath(spark, str(tmp_path / "lake/public/a"))
    assert "COMPACT" in [row["operation"] for row in table.history().collect()]


def test_a_definition_that_is_not_possible_is_reported_before_and_names_its_table(spark, tmp_path):
    written(tmp_path / "in", "0.jsonl", [message(t, "c", {"id": 1, "v": 1}, 1) for t in "ab"])
    rules = [{"source": "a", "schema": "id INTT, v INT"}, {"source": "b", "schema": "id DOUBLE, v INT"}]
    plans, _ = planned(spark, config(tmp_path, *rules))
    assert [plan.isPossible for plan in plans] == [False, False]
    assert 'Unsupported data type "INTT"' in plans[0].plan
    assert "cannot be part of the primary key" in plans[1].plan
    with pytest.raises(IngestError, match=r"shop\.public\.a: The schema .* shop\.public\.b: Column 'id' \(double\)"):
        ingested(spark, config(tmp_path, *rules))


# Sources --------------------------------------------------------------------------------------------------------------


def test_kafka_needs_a_package_that_the_message_names(spark, tmp_path):
    source = {"kind": "kafka", "servers": "localhost:1", "topics": ["t"], "path": "", "format": "text"}
    with pytest.raises(ConfigError, match=r"spark\.jars\.packages=org\.apache\.spark:spark-sql-kafka-0-10_2\.1\d:\d"):
        ingested(spark, config(tmp_path, source=source))


def test_typed_files_have_the_columns_of_those_that_are_there(spark, tmp_path):
    source = {"kind": "files", "path": str(tmp_path / "in"), "format": "parquet"}
    feed = {"format": "changes"}
    found = config(tmp_path, {"path": "copy", "keys": ["id"], "schema": "id INT, v STRING"}, source=source, feed=feed)
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigError, match="Give them as schema"):
        ingested(spark, found)
    changes = spark.sql("SELECT 1 AS id, 'a' AS v, 'insert' AS _change_type, 1L AS _commit_version")
    changes.write.mode("append").parquet(str(tmp_path / "in"))
    ingested(spark, found)
    assert rows(spark, tmp_path / "lake/copy", "id", "v") == [(1, "a")]


def test_files_that_changed_after_they_were_read_are_named(spark, tmp_path, caplog):
    found = config(tmp_path, {"source": "a", "schema": "id INT, v INT"})
    for name in ("0.jsonl", "1 %20.jsonl"):
        written(tmp_path / "in", name, [message("a", "c", {"id": 1, "v": 1}, 1)])
        os.utime(tmp_path / "in" / name, (time.time() - 10,) * 2)
    ingested(spark, found)
    assert "have changed" not in caplog.text
    written(tmp_path / "in", "1 %20.jsonl", [message("a", "c", {"id": 2, "v": 2}, 2)])
    written(tmp_path / "in", "2.jsonl", [message("a", "c", {"id": 3, "v": 3}, 3)])
    ingested(spark, found)
    assert re.findall(r"ingest: files have changed .* again: (\S+)\. Write", caplog.text) == [
        f"file:{tmp_path}/in/1%20%2520.jsonl"
    ]
    assert rows(spark, tmp_path / "lake/public/a", "id") == [(1,), (3,)]


def test_a_checkpoint_that_cannot_be_written_is_named(spark, tmp_path, capsys):
    written(tmp_path / "in", "0.txt", ["{}"])
    (tmp_path / "file").write_text("")
    given = ["--from", f"files:{tmp_path}/in", "--into", tmp_path / "t", "--checkpoint", tmp_path / "file" / "c"]
    code, _, err = called(capsys, *given, "--once")
    assert (code, f"error: The stream cannot start with the checkpoint {tmp_path}/file/c: " in err) == (1, True), err


def test_S36_of_two_processes_with_one_checkpoint_one_says_that_there_is_another(tmp_path):
    class Query:
        def awaitTermination(self, _: float) -> bool:
            raise RuntimeError("[STREAM_FAILED] Concurrent update to the log. Multiple streaming jobs detected for 0.")

    with pytest.raises(ConcurrentCommitError, match="Another process ingests with the checkpoint /c, so this one has"):
        _has_ended(Query(), Merger(config(tmp_path), print), "/c")


def test_S36_a_process_that_starts_beside_another_one_with_its_checkpoint_says_so(spark, tmp_path):
    class Writer:
        def start(self) -> None:  # Spark's words, when both write the first file of a checkpoint
            spark.sql("SELECT raise_error('Rename destination file:/c/metadata already exists.')").collect()

    with pytest.raises(ConcurrentCommitError, match=r"Another process ingests with the checkpoint .*_checkpoints"):
        _started(Writer(), config(tmp_path))


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        ({"format": "debezum"}, "got 'debezum'. Did you mean 'debezium'?"),
        ({"format": "debezium", "epcoh": 1}, "[feed] epcoh is unknown for debezium. Did you mean"),
        ({"format": "debezium", "epoch": "x"}, "epoch takes a number"),
    ],
)
def test_formats_and_their_options_are_checked_before_the_stream_starts(spark, tmp_path, feed, told):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        ingested(spark, config(tmp_path, feed=feed))
    assert told in str(error.value)
    assert not (tmp_path / "lake").exists()


# The command ----------------------------------------------------------------------------------------------------------


def called(capsys, *arguments):
    code = run(["ingest", *map(str, arguments)])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_the_command_works_without_a_file(spark, tmp_path, capsys):
    written(tmp_path / "in", "0.txt", [json.dumps(message("a", "c", {"id": 1, "v": 1}, 1)["value"])])
    given = ["--from", f"files:{tmp_path}/in", "--into", tmp_path / "t", "--keys", "id", "--schema", "id INT, v INT"]
    checkpoint = ["--checkpoint", tmp_path / "c"]
    code, out, _ = called(capsys, *given, "--dry-run")
    assert (code, "create" in out, (tmp_path / "t").exists()) == (0, True, False)
    code, out, _ = called(capsys, *given, *checkpoint, "--once")
    assert (code, "1 message (1 upserts), 1 row in" in out) == (0, True), out
    assert (out.splitlines()[0], out.splitlines()[-1][:9]) == ("micro-batch 0: 1 message", "  done in")
    lines = [json.dumps(message(t, "c", {"id": 2, "v": 1}, 1)["value"]) for t in "ab"]
    written(tmp_path / "in", "1.txt", lines)
    code, out, err = called(capsys, *given, *checkpoint, "--once", "--json")
    assert (code, "applies the events of one table, and the feed has 2" in err) == (4, True), err


def test_exit_codes(spark, tmp_path, capsys):
    assert called(capsys)[0] == 2
    assert called(capsys, tmp_path / "none.toml")[0] == 2
    code, _, err = called(
        capsys, "--from", f"files:{tmp_path}", "--format", "debezum", "--root", tmp_path / "lake", "--once"
    )
    assert (code, "Did you mean 'debezium'?" in err) == (2, True), err
    for flags in (["--from", "ftp:x"], ["--from", "files:x", "--keys", "id"], ["--from", "kafka:localhost:9092"]):
        assert called(capsys, *flags)[0] == 2
    written(tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": 1}, 1), KINDS["cut"](2)])
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[source]\nkind = "files"\npath = "{tmp_path}/in"\nformat = "json"\n[target]\nroot = "{tmp_path}/lake"\n'
    )
    code, out, err = called(capsys, file, "--once", "--json")
    assert (code, "types of shop.public.a are not known" in err) == (4, True), err
    assert json.loads(out.splitlines()[-1])["error"]["type"] == "IngestError"
    assert called(capsys, file, "--dry-run")[0] == 3
    with file.open("a") as more:
        more.write('[[table]]\nsource = "a"\nschema = "id INT, v INT"\n')
    code, _, err = called(capsys, file, "--once")
    assert (code, "1 message cannot be read" in err) == (3, True), err
    code, out, _ = called(capsys, file, "--once", "--quarantine", "_rejected", "--json")
    report = json.loads(out.splitlines()[0])
    assert (code, report["rejected"], report["tables"][0]["repeated"]) == (0, {"unparsable": 1}, True)


def test_a_run_that_applies_no_message_and_rejects_some_says_so(spark, tmp_path, capsys):
    written(tmp_path / "in", "0.txt", [json.dumps(message("a", "c", {"id": 1}, n)["value"]) for n in (1, 2)])
    given = ["--from", f"files:{tmp_path}/in", "--root", tmp_path / "lake", "--quarantine", "_rejected"]
    code, _, err = called(capsys, *given, "--format", "maxwell", "--dry-run")
    assert (code, "rejected: 2 " in err) == (3, True), err
    code, out, err = called(capsys, *given, "--format", "maxwell", "--once")
    assert (code, "micro-batch 0: 2 messages; rejected without" in out) == (3, True), out
    assert "ingest: reading files in" in err
    assert "error: All 2 messages of this run were rejected: " in err
    assert f"They are in the quarantine {tmp_path}/lake/_rejected. Are they of the format 'maxwell'?" in err
    assert called(capsys, *given, "--format", "maxwell", "--once")[0] == 0, "nothing was rejected in this run"


def test_a_process_that_is_killed_or_asked_to_stop_goes_on_where_it_was(spark, tmp_path):
    messages = [message("a", "u", {"id": n % 10, "v": n}, n) for n in range(1, 61)]
    for n in range(6):
        written(tmp_path / "in", f"{n}.jsonl", messages[n * 10 : n * 10 + 10])
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[source]\nkind = "files"\npath = "{tmp_path}/in"\nformat = "json"\n[target]\nroot = "{tmp_path}/lake"\n'
        '[run]\nmaxFiles = 1\ntrigger = "100ms"\n[[table]]\nsource = "a"\nschema = "id INT, v INT"\n'
    )
    command = [sys.executable, "-m", "trinitymerge", "ingest", str(file), "--json", "--master", "local[1]"]
    counts = Counter[int]()
    for how, after in ((signal.SIGKILL, 2), (signal.SIGTERM, 1)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=small_sessions()) as process:
            assert process.stdout is not None
            for _ in range(after):
                counts[json.loads(process.stdout.readline())["number"]] += 1
            process.send_signal(how)
            told = process.stdout.read().splitlines()
            code = process.wait(60)
        assert code == (-signal.SIGKILL if how == signal.SIGKILL else 0)
        counts.update(json.loads(line)["number"] for line in told if line.endswith("}"))
    found = config_of(
        {
            "source": {"kind": "files", "path": str(tmp_path / "in"), "format": "json"},
            "target": {"root": str(tmp_path / "lake")},
            "run": {"maxFiles": 1},
        }
    )
    counts.update(report.number for report in ingested(spark, found))
    table = TrinityTable.forPath(spark, str(tmp_path / "lake/public/a"))
    assertRows(table.toDF().select("id", "v"), [(n % 10, n) for n in range(51, 61)])
    assert table.version == len(counts), "each micro-batch is one commit"
    assert ingested(spark, found) == []


def test_metrics_and_health_are_served(spark, tmp_path):
    written(
        tmp_path / "in", "0.jsonl", [message("a", "c", {"id": 1, "v": 1}, 1), KINDS["wrong type"](2), KINDS["cut"](3)]
    )
    totals = Totals('s"hop')
    for report in ingested(spark, config(tmp_path, {"source": "a", "schema": "id INT, v INT"})):
        totals.add(report)
        totals.add(report)
    with socket_of(totals) as address:
        text = urllib.request.urlopen(f"{address}/metrics").read().decode()
        health = json.loads(urllib.request.urlopen(f"{address}/health").read())
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/other")
    assert (health["status"], health["batches"]) == ("ok", 2)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    of = f'app="s\\"hop",source="shop.public.a",table="{tmp_path}/lake/public/a"'
    assert values[f'trinitymerge_ingest_messages_total{{{of},kind="upserts"}}'] == "2"
    assert values[f'trinitymerge_ingest_messages_total{{{of},kind="rejected",reason="type:v"}}'] == "2"
    rest = 'app="s\\"hop",kind="rejected",reason="unparsable"'
    assert values[f"trinitymerge_ingest_messages_without_table_total{{{rest}}}"] == "2"
    assert float(values[f"trinitymerge_ingest_lag_seconds{{{of}}}"]) > 1e9


def socket_of(totals: Totals) -> Any:
    from contextlib import contextmanager
    from socket import socket

    @contextmanager
    def served():
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        end = serve(totals, "127.0.0.1", port)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            end()

    return served()
