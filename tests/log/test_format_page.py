"""S33: docs/format.md is enough to read a table. These lines follow it with DuckDB, and without the library."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

duckdb = pytest.importorskip("duckdb")
WRITTEN = Path(__file__).parents[1] / "data" / "format-1"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())
TYPES = {"integer": "INT", "long": "BIGINT", "string": "VARCHAR", "boolean": "BOOLEAN", "timestamp": "TIMESTAMPTZ"}


def read_envelope(file: Path) -> dict:
    content = file.read_bytes()
    data = json.loads(content)
    assert hashlib.sha256(content[len('{"checksum":"') + 64 + len('",') :]).hexdigest() == data["checksum"]
    assert data["format"] == 1
    return data


def apply(state: dict, actions: list, version: int) -> None:
    for action in actions:
        kind = action["type"]
        if kind == "addBatch":
            state["batches"][action["batch"]["id"]] = {"version": version, **action["batch"]}
        elif kind == "removeBatch":
            del state["batches"][action["id"]]
        elif kind == "setDefinition":
            state["definition"] = action["definition"]
        elif kind == "initialSnapshot":
            apply(state, action["actions"], action["version"])


def state_at(table: Path, version: int, from_checkpoint: bool = False) -> dict:
    state, log = {"batches": {}}, table / "_trinity_log"
    start = max((int(f.name[:20]) for f in log.glob("*.checkpoint.json") if int(f.name[:20]) <= version), default=None)
    if from_checkpoint and start is not None:
        checkpoint = read_envelope(log / f"{start:020d}.checkpoint.json")
        own = 0 if start == checkpoint.get("firstVersion", 0) else start
        assert checkpoint["entry"] == read_envelope(log / f"{own:020d}.json")["checksum"]
        apply(state, checkpoint["actions"], start)
        start += 1
    first = read_envelope(log / f"{0:020d}.json")
    if start is None or not from_checkpoint:
        apply(state, first["actions"], 0)
        begins = [a["version"] for a in first["actions"] if a["type"] == "initialSnapshot"]
        start = begins[0] + 1 if begins else 1
    for n in range(start, version + 1):
        apply(state, read_envelope(log / f"{n:020d}.json")["actions"], n)
    return state


def column(field: dict, layout: int, present: set) -> str:
    older = [p["name"] for p in field.get("previous", ()) if p["until"] > layout]
    name = older[0] if older else field.get("physicalName", field["name"])
    value = f'"{name}"' if name in present else "NULL"
    return f'CAST({value} AS {TYPES[field["type"]]}) AS "{field["name"]}"'


def live_rows(table: Path, state: dict) -> list:
    definition, parts = state["definition"], []
    for batch in state["batches"].values():
        if "archive" in batch or not batch["rows"]:
            continue
        files = f"read_parquet('{table}/data/_tm_batch={batch['id']}/*.parquet', hive_partitioning=false)"
        present = set(duckdb.sql(f"SELECT * FROM {files} LIMIT 0").columns)
        columns = [column(f, batch.get("layoutVersion", 0), present) for f in definition["fields"]]
        parts.append(f"SELECT {', '.join(columns)}, {batch['version']} AS _version FROM {files}")
    if not parts:
        return []
    keys = ", ".join(definition["primaryKey"])
    order = ", ".join([f"{w} DESC NULLS LAST" for w in definition["watermarkKey"]] + ["_version DESC"])
    ranked = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS _rank FROM ({' UNION ALL '.join(parts)})"
    names = [f["name"] for f in definition["fields"]]
    found = duckdb.sql(
        f"SELECT {', '.join(names)} FROM ({ranked}) WHERE _rank = 1 AND {definition['tombstoneKey']} IS NOT TRUE"
    )
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize("from_checkpoint", [False, True])
@pytest.mark.parametrize("name", ["orders", "customers", "copy"])
def test_S33_the_page_is_enough_to_read_every_version(name, from_checkpoint):
    duckdb.sql("SET TimeZone = 'UTC'")
    for version, expected in EXPECTED[name].items():
        rows = live_rows(WRITTEN / name, state_at(WRITTEN / name, int(version), from_checkpoint))
        for row in rows:
            if name != "customers":
                row["ts"] = row["ts"].strftime("%Y-%m-%dT%H:%M:%S.000Z")
        found = [{k: v for k, v in row.items() if v is not None} for row in rows]
        key = lambda row: row["id"]  # noqa: E731
        assert sorted(found, key=key) == sorted(map(json.loads, expected), key=key), version
