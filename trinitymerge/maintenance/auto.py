"""Automatic maintenance after merges."""

from __future__ import annotations

import logging
import time
from functools import partial

import attrs

from trinitymerge import reader
from trinitymerge.errors import counted
from trinitymerge.log import reporting
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.advice import compaction_hint
from trinitymerge.maintenance.compaction import compact
from trinitymerge.maintenance.deletion_vectors import are_due, make_deletion_vectors
from trinitymerge.maintenance.minor_compaction import mergeable_batches, minor_compact
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.properties import compact_after_batches
from trinitymerge.stores.base import ManagedStore, TableStore

_logger = logging.getLogger(__name__)
_advised: dict[str, tuple[str, ...]] = {}
"""The base for which a compaction was advised, by table path."""


def run_auto_maintenance(store: TableStore, result: MergeResult, after: Snapshot | None) -> MergeResult:
    """Compact a table after a merge if its properties ask for it. A failure is logged; the merge stays committed."""
    if after is None:
        return result
    limit = compact_after_batches(after.properties)
    if limit is not None and sum(b.merges for b in Batches.of(after).pending) > limit:
        return _with_compaction(store, result, after)
    if isinstance(store, ManagedStore):
        return _with_minor_compaction(store, result, after)
    return _hinted(store, result, after)


def _hinted(store: TableStore, result: MergeResult, after: Snapshot, *done: str) -> MergeResult:
    hints = filter(None, (*done, _advice(store, Batches.of(after))))
    return attrs.evolve(result, hint="; ".join(hints), batches=len(after.batches))


def _advice(store: TableStore, batches: Batches) -> str:
    """Return and log the advice to compact, once per process and base of a table."""
    why = compaction_hint(batches, partial(reader.fits_broadcast, store.spark))
    base = tuple(b.id for b in batches.base)
    if not why or _advised.get(store.path) == base:
        return ""
    _advised[store.path] = base
    advice = f"run compact(): {why}"
    reporting.done(store.path, advice)
    return advice


def _with_compaction(store: TableStore, result: MergeResult, after: Snapshot) -> MergeResult:
    try:
        done = compact(store)
    except Exception as error:  # noqa: BLE001 - the merge has been committed
        _logger.warning("%s: the compaction after version %d failed: %s", store.path, result.version, error)
        return _hinted(store, result, after)
    if done.skipped:
        return _hinted(store, result, after)
    batches = len(store.snapshot().batches)
    return attrs.evolve(result, hint=f"compacted into version {done.version}", batches=batches)


def _with_minor_compaction(store: ManagedStore, result: MergeResult, after: Snapshot) -> MergeResult:
    start, small = time.perf_counter(), mergeable_batches(after)
    if not small:
        return _with_deletion_vectors(store, result, after, has_compacted=False)
    try:
        compacted = minor_compact(store, after, small)
    except Exception as error:  # noqa: BLE001 - the merge has been committed
        _logger.warning("%s: the minor compaction after version %d failed: %s", store.path, result.version, error)
        return _hinted(store, result, after)
    result = attrs.evolve(result, seconds={**result.seconds, "minorCompaction": time.perf_counter() - start})
    if compacted is None:
        return _hinted(store, result, after)
    done = f"compacted {counted(len(small), 'batch', 'batches')} into one in version {compacted.version}"
    return _with_deletion_vectors(store, result, compacted, True, done)


def _with_deletion_vectors(
    store: ManagedStore, result: MergeResult, after: Snapshot, has_compacted: bool, *done: str
) -> MergeResult:
    start = time.perf_counter()
    try:
        if not are_due(store, after, has_compacted):
            return _hinted(store, result, after, *done)
        made = make_deletion_vectors(store, after)
    except Exception as error:  # noqa: BLE001 - the merge has been committed
        _logger.warning("%s: no deletion vectors were made after version %d: %s", store.path, result.version, error)
        return _hinted(store, result, after, *done)
    result = attrs.evolve(result, seconds={**result.seconds, "deletionVectors": time.perf_counter() - start})
    return _hinted(store, result, made or after, *done)
