"""`--json` writes what docs/command-json.md promises."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from trinitymerge import TrinityTable
from trinitymerge.commands.app import run

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "tests" / "data" / "format-1" / "orders"
KINDS = {"integer": int, "text": str, "number": (int, float), "boolean": bool, "list": list, "object": dict}


def promised() -> dict[str, dict[str, str]]:
    _, *sections = (ROOT / "docs" / "command-json.md").read_text("utf-8").split("\n## ")
    return {s.splitlines()[0]: dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", s, re.MULTILINE)) for s in sections}


PROMISED = promised()


def check(name, capsys, *arguments, more=()):
    code = run([*map(str, arguments), "--json"])
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert documents, f"exit code {code}"
    for document in documents:
        assert set(document) - set(more) == set(PROMISED[name])
        for key, text in PROMISED[name].items():
            kind, null, _ = text.partition(" or null")
            value = document[key]
            is_right = isinstance(value, KINDS[kind]) and isinstance(value, bool) == (kind == "boolean")
            assert is_right or (null and value is None), (key, value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("history", ["history", ORDERS, "--all"]),
        ("show", ["show", ORDERS]),
        ("show --columns", ["show", ORDERS, "--columns"]),
        ("batches", ["batches", ORDERS]),
        ("health", ["health", ORDERS]),
        ("health", ["health", ORDERS, "--files"]),
    ],
)
def test_documents_of_a_log(capsys, name, arguments):
    check(name, capsys, *arguments)


def test_documents_of_commands_that_run_spark(spark, capsys, tmp_path):
    table = TrinityTable.create(spark, f"{tmp_path}/t", "id INT, v STRING", primaryKey="id")
    for value in "ab":
        table.upsert(spark.sql(f"SELECT 1 AS id, '{value}' AS v")).execute()
    path = table.path
    check("report", capsys, "report", path, "-o", tmp_path / "r.html")
    check("diff", capsys, "diff", f"{path}@1", path, more=["id"])
    check("compact", capsys, "compact", path, "--dry-run")
    check("compact", capsys, "compact", path)
    check("vacuum", capsys, "vacuum", path, "--dry-run")
    check("restore", capsys, "restore", path, 1, "--yes")
    check("clone", capsys, "clone", path, f"{tmp_path}/c")
    check("export", capsys, "export", path, f"{tmp_path}/e")
    check("sql", capsys, "sql", "-t", f"t={path}", "DELETE FROM t WHERE id = 5")
    check("purge", capsys, "purge", path, "1", "--yes")


@pytest.mark.classic("ingest runs on classic sessions")
def test_documents_of_ingest(spark, capsys, tmp_path):
    (tmp_path / "in").mkdir()
    value = '{"op":"c","after":{"id":1},"source":{"sequence":"[null,\\"1\\"]","ts_ms":1}}'
    (tmp_path / "in" / "0.txt").write_text(value)
    given = ["ingest", "--from", f"files:{tmp_path}/in", "--into", tmp_path / "t", "--keys", "id", "--schema", "id INT"]
    given += ["--checkpoint", tmp_path / "c"]
    check("ingest --dry-run", capsys, *given, "--dry-run")
    check("ingest", capsys, *given, "--once")
