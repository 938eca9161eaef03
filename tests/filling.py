"""Batches of plain rows, appended as a blind upsert would append them, but without what it takes to find that out.

What stands in the files and in the log is the same (`test_tables.py`). A test that is about merges of such rows merges them.

Many tests begin with the same rows. Spark writes each batch once; its files are kept, and copied for the next table that begins so.
"""

from __future__ import annotations

import atexit
import re
import shutil
import uuid
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import SparkSession

from trinitymerge import TrinityTable
from trinitymerge.log.actions import AddBatch, Batch
from trinitymerge.log.commit import publish
from trinitymerge.log.model import Snapshot, current_user
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import compact_after_batches
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.spark.session import is_connect
from trinitymerge.spark.system_columns import CLAUSE, EFFECT
from trinitymerge.stores.base import Staged
from trinitymerge.stores.managed import DirectoryStore
from trinitymerge.testing.model.rows import RowRules

Row = Mapping[str, Any]

_PLAIN = {"integer": int, "long": int, "string": str, "boolean": bool}
"""The types whose values stand in statistics and ranges as they are."""
_LONG = 32
"""Ranges cut text that is longer."""
_TECHNICAL = (Field(CLAUSE, "integer"), Field(EFFECT, "string"))
_CLAUSES = ["clause 1, whenMatched()", "clause 2, whenNotMatched()"]


def is_plain(table: TrinityTable, rows: Sequence[tuple[Any, ...]]) -> bool:
    """True if these can be appended here: no null where none may be, one row per key, nothing that a merge would do besides."""
    store, own = table._store, table.definition
    snapshot = store.snapshot()
    if not isinstance(store, DirectoryStore) or snapshot.purged or compact_after_batches(snapshot.properties):
        return False
    told = {*own.primaryKey, *own.watermarkKey}
    keys = {RowRules(own).key(row) for row in _named(own, rows)}
    return (
        bool(rows)
        and not own.is_rearranged
        and len(keys) == len(rows)
        and all(len(row) == len(own.fields) for row in rows)
        and all(str(f.type) in _PLAIN and (f.nullable or f.name in told) for f in own.fields)
        and own.field(own.tombstone_column).type == "boolean"
        and all(_fits(own, name, value) for row in _named(own, rows) for name, value in row.items() if name in told)
    )


def _fits(own: TableDefinition, name: str, value: Any) -> bool:
    is_short = not isinstance(value, str) or (value.isascii() and len(value) <= _LONG)
    return type(value) is _PLAIN[str(own.field(name).type)] and is_short


def append(table: TrinityTable, spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> None:
    """Writes plain rows as one batch and commits it."""
    store, own, rules = table._store, table.definition, RowRules(table.definition)
    assert isinstance(store, DirectoryStore)
    before = store.snapshot()
    found = sorted((_stored(own, row) for row in _named(own, rows)), key=rules.key)
    fields = [*own.stored_fields, *_TECHNICAL]
    values = [tuple(row[field.name] for field in fields) for row in found]
    staged = _staged(store, spark, own, fields, values)
    keys = list(zip(*(rules.key(row) for row in found), strict=True))
    low, high = ({k: end(v) for k, v in zip(own.primaryKey, keys, strict=True)} for end in (min, max))
    store.note_range(staged.id, KeyRange(low, high, first=tuple(low.values()) if len(low) == 1 else None))
    batch = _batch(own, found, before, id=staged.id, files=staged.files, bytes=staged.size_bytes)
    how = {
        "parameters": {"call": "upsert()", "sourceColumns": own.names},
        "metrics": _metrics(own, rows),
        "user": current_user(),
    }
    commit = before.next_commit("UPSERT", [AddBatch(batch)], **how)
    publish(store, commit, before, ())


# Files that are kept ---------------------------------------------------------------------------------------------------

_kept: dict[Hashable, Path] = {}


def _staged(
    store: DirectoryStore, spark: SparkSession, own: TableDefinition, fields: Sequence[Field], values: Sequence[Any]
) -> Staged:
    schema = physical_schema(fields)
    what = (own.fileFormat, schema.json(), repr(values), _settings(spark))
    if not store.files.is_local:
        return store.stage(spark.createDataFrame(values, schema).coalesce(1), own)
    if what in _kept:
        id = uuid.uuid4().hex
        store.files.mkdirs(f"{store.path}/data")
        _copied(_kept[what], _directory(store, id))
        return store._staged(id, schema, own)
    staged = store.stage(spark.createDataFrame(values, schema).coalesce(1), own)
    if what[-1] is not None:
        _kept[what] = _copied(_directory(store, staged.id), Path(_home()) / staged.id)
    return staged


@cache
def _home() -> str:
    """A directory of this process, whoever forgets this module meanwhile."""
    home = mkdtemp(prefix="filling-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home


def _settings(spark: SparkSession) -> int | None:
    """What tells how the session is set, by which a file may be written otherwise; None where that is not told."""
    return None if is_connect(spark) else int(spark._jsparkSession.sessionState().conf().settings().hashCode())


def _directory(store: DirectoryStore, id: str) -> Path:
    return Path(store.batch_path(id).removeprefix("file:"))


def _copied(source: Path, target: Path) -> Path:
    """A copy of a batch's files: new ones, each under a name that no other batch has."""
    own = uuid.uuid4()
    target.mkdir()
    for file in source.iterdir():
        shutil.copyfile(file, target / re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(own), file.name))
    return target


# Rows ------------------------------------------------------------------------------------------------------------------


def _named(own: TableDefinition, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(own.names, row, strict=False)) for row in rows]


def _stored(own: TableDefinition, row: Row) -> Row:
    """The row with the library's columns; a tombstone holds nothing else than tombstones do (S9)."""
    rules, row = RowRules(own), {own.tombstone_column: False, **row}
    held = rules.of_tombstones if rules.is_tombstone(row) else row
    return {**{name: value if name in held else None for name, value in row.items()}, CLAUSE: 2, EFFECT: None}


def _batch(own: TableDefinition, rows: Sequence[Row], before: Snapshot, **fields: Any) -> Batch:
    kept = [[row[name] for name in own.watermarkKey] for row in rows]
    watermarks = [tuple(int(v) if isinstance(v, bool) else v for v in values) for values in kept]
    return Batch(
        rows=len(rows),
        tombstones=sum(map(RowRules(own).is_tombstone, rows)),
        watermark_min=min(watermarks) if own.watermarkKey else None,
        watermark_max=max(watermarks) if own.watermarkKey else None,
        unique_keys=True,
        base=not before.batches,
        **fields,
    )


def _metrics(own: TableDefinition, rows: Sequence[Any]) -> dict[str, Any]:
    unknown = dict.fromkeys(("rowsInserted", "rowsUpdated", "rowsDeleted"))
    stale = None if own.watermarkKey else 0
    counts = {"rowsStale": stale, "rowsAppended": len(rows), "rowsSource": len(rows)}
    return {**unknown, **counts, "strategy": "blind append"}
