"""Maintenance that runs after merges without being asked."""

from __future__ import annotations

import logging
import time

import attrs

from trinitymerge.errors import counted
from trinitymerge.log import reporting
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.compaction import compact, compaction_hint
from trinitymerge.maintenance.minor_compaction import batches_to_fold, minor_compact
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.properties import compact_after_batches
from trinitymerge.stores.base import Batches, ManagedStore, TableStore

_logger = logging.getLogger(__name__)
_advised: dict[str, tuple[str, ...]] = {}
"""By the path of a table the base that a compaction was advised for."""


def run_auto_maintenance(store: TableStore, result: MergeResult, after: Snapshot | None) -> MergeResult:
    """Looks after a table that has just been merged into. The merge stands, whatever becomes of that.

    Args:
        store: where the table is.
        result: of the merge.
        after: the table with its rows; None if it committed none.
    """
    if after is None:
        return result
    limit = compact_after_batches(after.properties)
    if limit is not None and sum(b.merges for b in Batches.of(after).pending) > limit:
        return _with_compaction(store, result, after)
    return _with_fold(store, result, after) if isinstance(store, ManagedStore) else _hinted(store, result, after)


def _hinted(store: TableStore, result: MergeResult, after: Snapshot, *done: str) -> MergeResult:
    """The result with what was done besides, and what would pay next."""
    hints = filter(None, (*done, _advice(store, Batches.of(after))))
    return attrs.evolve(result, hint="; ".join(hints), batches=len(after.batches))


def _advice(store: TableStore, batches: Batches) -> str:
    """That a compaction would pay, once in a process for a table and its base; the log of Python says so, too."""
    why = compaction_hint(store.spark, batches)
    base = tuple(b.id for b in batches.base)
    if not why or _advised.get(store.path) == base:
        return ""
    _advised[store.path] = base
    advice = f"compact() would pay: {why}"
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


def _with_fold(store: ManagedStore, result: MergeResult, after: Snapshot) -> MergeResult:
    start, small = time.perf_counter(), batches_to_fold(after)
    if not small:
        return _hinted(store, result, after)
    try:
        folded = minor_compact(store, after, small)
    except Exception as error:  # noqa: BLE001 - the merge has been committed
        _logger.warning("%s: folding batches after version %d failed: %s", store.path, result.version, error)
        return _hinted(store, result, after)
    result = attrs.evolve(result, seconds={**result.seconds, "fold": time.perf_counter() - start})
    if folded is None:
        return _hinted(store, result, after)
    return _hinted(
        store, result, folded, f"folded {counted(len(small), 'batch', 'batches')} into version {folded.version}"
    )
