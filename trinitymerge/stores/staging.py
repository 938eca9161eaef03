"""Write a batch that no reader can see yet, and collect what the write observes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, functions as F

from trinitymerge.log.actions import Batch
from trinitymerge.log.commit import CommitStateUnknown
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.rows.watermarks import watermark_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import capture_observations
from trinitymerge.spark.observe import Metrics
from trinitymerge.stores.base import Staged, TableStore


def stage(
    store: TableStore, rows: DataFrame, definition: TableDefinition, gathering: Metrics, reads: Sequence[Batch] = ()
) -> tuple[Staged, Mapping[str, Any]]:
    """Write rows as a batch that no reader can see yet, in one Spark job. Return the batch, and what was observed.

    With a layout each file is sorted by it (S7c). Without ``metrics_of_rows`` no range of keys is known. Afterwards, the batches in
    ``reads`` are checked: they must still be whole.
    """
    if definition.clusterBy:
        rows = rows.sortWithinPartitions(*map(F.expr, map(E.quote, definition.sortedBy)))
    with capture_observations(store.spark):
        staged = store.stage(rows, definition)
    try:
        observed = gathering.collect()
        store.note_range(staged.id, KeyRange.of(observed, definition))
        store.verify_files_after_read(reads)
    except BaseException:
        store.discard(staged)
        raise
    return staged, observed


def batch_of(
    staged: Staged,
    observed: Mapping[str, Any],
    definition: TableDefinition,
    unique_keys: bool = True,
    unset: Iterable[str] | None = None,
    **facts: Any,
) -> Batch:
    """Return a staged batch as an entry of the log says it; ``unset`` is what partial rows may leave unset, None if not known."""
    partial = int(observed.get("partial") or 0)
    return Batch(
        id=staged.id,
        rows=int(observed["rows"] or 0),
        tombstones=int(observed["tombstones"] or 0),
        files=staged.files,
        bytes=staged.size_bytes,
        watermark_min=watermark_of(observed, "min", definition),
        watermark_max=watermark_of(observed, "max", definition),
        unique_keys=unique_keys,
        tombstones_since_ms=observed.get("since"),
        partial=partial,
        unset=tuple(sorted(unset)) if partial and unset is not None else None,
        moved=int(observed.get("moved") or 0),
        layout_version=definition.layout_version,
        cluster_by=definition.stored_cluster_by,
        **facts,
    )


@contextmanager
def discarded_on_failure(store: TableStore) -> Iterator[list[Staged]]:
    """Yield a list for staged batches, and discard the batches in it on failure.

    After a :class:`CommitStateUnknown` they may be part of the table, and stay. They also stay after Ctrl-C, which may come right
    after the commit; a vacuum removes them if they are not part of the table.
    """
    staged: list[Staged] = []
    try:
        yield staged
    except CommitStateUnknown:
        raise
    except Exception:
        for batch in staged:
            store.discard(batch)
        raise
