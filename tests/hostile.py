"""Logs that another party has prepared: valid JSON of every field there is, changed at random places, checksums and all."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

from trinitymerge.log.actions import (
    MAJOR,
    MINOR,
    RESOLVED,
    UNRESOLVED,
    AddBatch,
    AddExtract,
    AddOutboxEntry,
    Batch,
    OutboxEntry,
    PurgeKeys,
    RemoveOutboxEntry,
    RestoreVersion,
    SetDefinition,
    SetDeletionVectors,
    SetHorizon,
    SetPendingDeletes,
    SetTransaction,
)
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

UDT = {"type": "udt", "class": None, "pyClass": "canary.X", "serializedClass": "gASVCgAAAAA=", "sqlType": "string"}
"""A type by which Spark's own reader of types would run code."""

NESTED = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]}

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e400,
    float("nan"),
    2**31,
    2**63,
    10**30,
    10**400,
    "",
    "x",
    "../../x",
    "/etc/passwd",
    "https://example.com/x",
    "..%2f..%2fx",
    "a\nb",
    "\0",
    "\ud800",
    "\ufeff",
    "${env:HOME}",
    "*",
    "[a]{b,c}",
    "`",
    "'",
    "1L OR true",
    "__import__('os')",
    "void",
    "timestamp_ntz",
    "decimal(99,99)",
    [],
    [[]],
    ["x", 1, 2],
    {},
    {"a": 1},
    UDT,
    NESTED,
    {"type": "array", "elementType": UDT, "containsNull": True},
]
"""What takes the place of a value."""


def definition(**properties: str) -> TableDefinition:
    """A definition that uses everything a definition can hold."""
    earlier = [{"name": "_tm_v0", "type": "integer", "until": 1}]
    fields = [
        Field("id", "long"),
        Field("ts", "timestamp"),
        Field("v", "long", metadata={"comment": "c"}, physical_name="p", previous=earlier, added=True),
        Field("s", NESTED, added_fields=[["s", "x"]]),
        Field("d", "string", default="'x'"),
        Field("gone", "string"),
    ]
    checks = [{"name": "c", "condition": "v > 0", "columns": ["v"]}]
    return TableDefinition.of(
        fields, "id", "ts", "gone", "D", "orc", {"owner": "me", **properties}, "c", True, 2, ["old"], checks
    )


def batch(name: str, **fields: Any) -> Batch:
    known = {"rows": 3, "tombstones": 1, "files": 1, "bytes": 100, "watermark_min": [1], "watermark_max": [2]}
    return Batch(**{"id": name, **known, **fields})


def outbox_entry(name: str = "owed") -> OutboxEntry:
    counts = {"rows": 1, "files": 1, "bytes": 1}
    return OutboxEntry(
        id=name, **counts, path="/x", fields=definition().fields, primary_key=["id"], watermark_key=["ts"], since_ms=1
    )


def commit_on(base: Snapshot, own: TableDefinition | None = None, **fields: Any) -> Commit:
    """A commit that uses everything a commit can hold."""
    return base.next_commit(
        "MERGE",
        **{
            "parameters": {"a": [1]},
            "actions": [
                SetDefinition(own or definition()),
                AddBatch(
                    batch(
                        "x",
                        version=0,
                        segment_of="t",
                        tombstones_since_ms=5,
                        layout_version=1,
                        merges=2,
                        unique_keys=True,
                    )
                ),
                AddBatch(batch("y", archive=RESOLVED), MAJOR),
                AddBatch(batch("z", archive=UNRESOLVED, base=True), MINOR),
                SetTransaction("app", 1, "s"),
                RestoreVersion(0, None, [(1,), (None, "a")]),
                SetHorizon((1, "a")),
                PurgeKeys("ab", ["cd"]),
                SetPendingDeletes(["g"]),
                SetDeletionVectors(id="vectors-1", checksum="ab", bytes=5, marked={"x": 1, "y": 0}),
                AddExtract((2,)),
                AddOutboxEntry(outbox_entry()),
                RemoveOutboxEntry("other"),
            ],
            "metrics": {"rows": 1},
            "user": "me",
            "duration_ms": 5,
            **fields,
        },
    )


def beginning_on(base: Snapshot, after: Snapshot) -> Commit:
    """A first commit that brings rows, as a clone's does."""
    return Commit(
        version=0,
        timestamp_ms=base.timestamp_ms,
        operation="CLONE",
        actions=[SetDefinition(base.definition), after.as_initial({1: 5})],
    )


def sealed(data: Any) -> bytes:
    """Some JSON in the envelope of a log's files, whether or not the library would write it."""
    return sealed_text(json.dumps(data, separators=(",", ":")).encode())


def sealed_text(text: bytes) -> bytes:
    """The same of what only looks like JSON."""
    body = text[1:]
    return b'{"checksum":"' + hashlib.sha256(body).hexdigest().encode() + b'",' + body


def places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values within some JSON."""
    yield at
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*at, key))


def replaced(data: Any, at: tuple[Any, ...], value: Any) -> Any:
    """The same JSON with another value at one place."""
    if not at:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[at[0]] = replaced(data[at[0]], at[1:], value)
    return copy


def value_at(data: Any, at: tuple[Any, ...]) -> Any:
    """What stands at a place."""
    for key in at:
        data = data[key]
    return data


def mutated(data: Any, chance: random.Random) -> Any:
    """Some JSON with a few changes: values replaced, exchanged, repeated, left out, or nested."""
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        known = [at for at in places(data) if at]
        if not known:
            return data
        at, other = chance.choice(known), chance.choice(known)
        kind = chance.randrange(6)
        parent = value_at(data, at[:-1])
        if kind == 0 and isinstance(parent, dict):
            data = replaced(data, at[:-1], {k: v for k, v in parent.items() if k != at[-1]})
        elif kind == 1:
            data = replaced(data, at, value_at(data, other))
        elif kind == 2 and isinstance(parent, list):
            data = replaced(data, at[:-1], [*parent, value_at(data, at)])
        elif kind == 3 and isinstance(parent, dict):
            data = replaced(
                data, at[:-1], {**parent, chance.choice(["x", "id", "type", "extra", "\0"]): value_at(data, other)}
            )
        else:
            data = replaced(data, at, chance.choice(VALUES))
    return data
