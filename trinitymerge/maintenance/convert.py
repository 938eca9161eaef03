"""`convert`: create a table from existing rows (S7b)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.errors import DuplicateKeyError, InvalidMergeError, NullKeyError, counted
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import AddBatch, SetDefinition
from trinitymerge.log.model import Commit, Snapshot, current_user, elapsed_ms, now_ms
from trinitymerge.rows import key_ranges
from trinitymerge.rows.tombstones import tombstone_columns
from trinitymerge.rows.watermarks import watermark_metrics
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import CHAR_TYPE
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.errors import classify_failure, clean_message, is_spark_error
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.session import rows_to_show
from trinitymerge.stores.base import ManagedStore, Staged
from trinitymerge.stores.file_format import check_storable
from trinitymerge.stores.staging import batch_of, discarded_on_failure, stage

FAULT_POINTS = ("convert.staged",)

CONVERT = "CONVERT"

_SHOWN = 5


@with_session_settings
def convert(store: ManagedStore, source: DataFrame, definition: TableDefinition, origin: Mapping[str, Any]) -> Snapshot:
    """Create a table with the rows of a source, at version 1, or 0 without rows. The commit's parameters describe the source."""
    start = time.perf_counter()
    check_storable(definition)
    store.require_free()
    with store.cleanup_on_failure(), discarded_on_failure(store) as written:
        slow = reporting.working(store.path, "convert", "a conversion writes the rows of its source")
        with _naming_the_source(store.path), slow:
            staged, observed = _stage(store, source, definition)
        written.append(staged)
        _check(store, staged, observed, definition)
        faults.fault("convert.staged")
        commit = Commit(
            version=0,
            timestamp_ms=now_ms(),
            operation=CONVERT,
            parameters=dict(origin),
            actions=[SetDefinition(definition)],
            metrics={n: observed[n] for n in ("rows", "tombstones")},
            user=current_user(),
            duration_ms=elapsed_ms(start),
        )
        if not observed["rows"]:
            store.discard(staged)
            return store.begin(commit)
        empty = Snapshot.created(commit)
        batch = batch_of(staged, observed, definition, base=True)
        first = empty.apply(empty.next_commit(CONVERT, [AddBatch(batch)]))
        return store.begin(attrs.evolve(commit, actions=[*commit.actions, first.as_initial()]))


def _stage(store: ManagedStore, source: DataFrame, definition: TableDefinition) -> tuple[Staged, Mapping[str, Any]]:
    """Write the rows sorted by key, as merges do, and count them."""
    hidden = [f"{E.FALSE} AS {E.quote(f.name)}" for f in definition.stored_fields if f not in definition.fields]
    names = [f.name for f in definition.stored_fields]
    key = definition.tombstoneKey
    if key is not None and CHAR_TYPE in source.schema[key].metadata:
        # There 'D' equals the padded 'D  ', as it does for Spark.
        exact = E.case([(E.is_tombstone(definition), E.text_literal(E.tombstone_value(definition)))], E.quote(key))
        source = source.withColumn(key, F.expr(exact))
    rows = source.selectExpr(*map(E.quote, definition.names), *hidden).selectExpr(*tombstone_columns(definition, names))
    keys = ", ".join(map(E.quote, definition.primaryKey))
    together = rows.selectExpr("*", f"count(1) OVER (PARTITION BY {keys}) AS {C.KEY_ROWS}")
    gathering = Metrics(
        {
            "rows": "count(1)",
            "nulls": E.count_where(_has_null(definition)),
            "repeated": E.count_where(f"{C.KEY_ROWS} > 1"),
            "tombstones": E.count_where(E.is_tombstone(definition)),
            **watermark_metrics(definition, E.TRUE),
            **key_ranges.metrics_of_rows(definition, E.TRUE),
            **key_ranges.metrics_of_first(definition, E.TRUE),
        }
    )
    return stage(store, gathering.observe(together).selectExpr(*map(E.quote, names)), definition, gathering)


def _has_null(definition: TableDefinition) -> str:
    return E.any_of(E.is_null(E.quote(k)) for k in definition.primaryKey)


def _check(store: ManagedStore, staged: Staged, observed: Mapping[str, Any], definition: TableDefinition) -> None:
    """Raise for null and duplicate keys (S2). A job reads the staged rows only to name some."""
    keys, names = [E.quote(k) for k in definition.primaryKey], ", ".join(definition.primaryKey)
    if observed["nulls"]:
        rows = store.read_staged(staged).filter(_has_null(definition))
        shown = _shown(rows.selectExpr(*map(E.quote, definition.names)))
        raise NullKeyError(
            f"convert(): {counted(observed['nulls'])} of the source's {observed['rows']:,} have a null in the primary key "
            f"({names}), such as {'; '.join(map(str, shown))}. Remove them, or choose another key. Nothing was written.",
            rows=shown,
        )
    if observed["repeated"]:
        found = store.read_staged(staged).groupBy(*map(F.expr, keys)).agg(F.expr(f"count(1) AS {C.KEY_ROWS}"))
        shown = _shown(found.filter(f"{C.KEY_ROWS} > 1").orderBy(F.expr(C.KEY_ROWS).desc(), *map(F.expr, keys)))
        examples = "; ".join(f"{', '.join(map(repr, key))}: {counted(count)}" for *key, count in shown)
        raise DuplicateKeyError(
            f"convert(): {counted(observed['repeated'])} of the source's {observed['rows']:,} share their primary key "
            f"({names}) with others: {examples}. Keep one row of each key, or create() the table and merge the source, "
            "or choose another key. Nothing was written.",
            keys=[tuple(key) for *key, _ in shown],
        )


def _shown(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows_to_show(rows.limit(_SHOWN))]


@contextmanager
def _naming_the_source(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        failed = classify_failure(error) or InvalidMergeError
        what = "evaluated" if failed is InvalidMergeError else "read, or not written"
        raise failed(
            f"The source of convert() to {path} could not be {what}: {clean_message(error)} Nothing was written."
        ) from None
