"""The resolved rows of several batches, written as one (S38)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge import reader
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import now_ms
from trinitymerge.rows import key_ranges, registers
from trinitymerge.rows.registers import stored_in
from trinitymerge.rows.tombstones import tombstone_columns
from trinitymerge.rows.watermarks import watermark_metrics
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import history_retention_hours, tombstone_retention_hours
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import Staged, TableStore
from trinitymerge.stores.staging import batch_of, stage

TARGET_FILE_BYTES = 64 << 20
"""A new batch that is not split into segments has about one file for so many bytes of those it replaces."""

UNSHUFFLED_BYTES, UNSHUFFLED_BATCHES = 16 << 20, 64
"""Up to this size one task reads, resolves and writes all of it, and nothing is shuffled: that needs no second stage."""

_MS_PER_HOUR = 3_600_000


def wanted_files(batches: Sequence[Batch]) -> int:
    return max(1, math.ceil(sum(b.bytes for b in batches) / TARGET_FILE_BYTES))


@attrs.frozen
class TombstoneRetention:
    """Which tombstones are forgotten: those committed before a moment; all, or none."""

    before_ms: int | None
    everything: bool = False
    retention_ms: int = 0

    @classmethod
    def of(cls, definition: TableDefinition) -> TombstoneRetention:
        """Return the table's retention, and with history that of versions, too (H7). Without a watermark none is needed (S38)."""
        if not definition.watermarkKey and not definition.history:
            return cls(None, everything=True)
        late = tombstone_retention_hours(definition.properties) if definition.watermarkKey else 0.0
        ended = history_retention_hours(definition.properties) if definition.history else 0.0
        return cls(None) if late is None or ended is None else cls.after(max(late, ended))

    @classmethod
    def ended(cls, definition: TableDefinition) -> TombstoneRetention:
        """Return the retention of ended versions (H7)."""
        hours = history_retention_hours(definition.properties)
        return cls(None) if hours is None else cls.after(hours)

    @classmethod
    def after(cls, hours: float) -> TombstoneRetention:
        retention_ms = int(hours * _MS_PER_HOUR)
        return cls(now_ms() - retention_ms, retention_ms=retention_ms)

    @property
    def is_never(self) -> bool:
        return self.before_ms is None and not self.everything

    def pays(self, batch: Batch, overdue: int) -> bool:
        """Return True if a segment should be rewritten for its tombstones.

        The oldest must have been due for ``overdue`` times the retention: a segment that was written for each tombstone that falls
        due would be written again and again.
        """
        is_touched = batch.tombstones or batch.archive is not None
        if not is_touched or self.is_never:
            return False
        since = batch.tombstones_since_ms
        return self.before_ms is None or since is None or since <= self.before_ms - overdue * self.retention_ms

    def condition(self, definition: TableDefinition) -> Sql:
        return E.FALSE if self.is_never else E.all_of([E.is_tombstone(definition), self.is_old])

    @property
    def is_old(self) -> Sql:
        """SQL that is true if the retention of a row of a dated scan has passed. Never null."""
        if self.is_never:
            return E.FALSE
        return E.TRUE if self.everything else E.or_else(Sql(f"{C.SINCE} <= {self.before_ms}L"), E.FALSE)


KEEP_ALL = TombstoneRetention(None)


def dated(store: TableStore, batches: Batches, within: Sql = E.TRUE) -> DataFrame:
    """Scan batches, with the commit time of each tombstone (with history: each row, H6) as :data:`C.SINCE`.

    Rows that leave something unset have it too (U5), with what that is. Rewritten batches remember it, others are of one commit.
    SQL over keys must be true of the rows to read, of batches other than the base.
    """
    definition, base, others = batches.definition, batches.base, batches.pending
    unset = stored_in(batches.batches)
    extra = [Field(C.SINCE, "long"), *unset]
    if within == E.TRUE or not others:
        rows = store.scan(batches, extra)
    else:
        rows = store.scan(attrs.evolve(batches, batches=others), extra).filter(within)
        rows = store.scan(attrs.evolve(batches, batches=base), extra).unionByName(rows) if base else rows
    has_time = [E.is_tombstone(definition), *([E.is_not_null(C.UNSET)] if unset else [])]
    whose = E.TRUE if definition.history else E.any_of(has_time)
    since = f"CASE WHEN {whose} THEN coalesce({C.SINCE}, {_committed(store, batches)}) END AS {C.SINCE}"
    return rows.selectExpr(*[E.quote(n) for n in rows.columns if n != C.SINCE], since)


def _committed(store: TableStore, batches: Batches) -> str:
    """Return SQL: the commit time of a row's version, in milliseconds since the epoch; null for versions that do not need it."""
    needs = [b for b in batches.batches if b.tombstones or b.partial or batches.definition.history]
    versions = sorted({b.version for b in needs if b.version is not None})
    if not versions:
        return "CAST(NULL AS BIGINT)"
    times = {version: store.committed_at(version) for version in versions}
    foreign = [times[b.version] for b in needs if b.foreign and b.version is not None]
    times |= {0: max(foreign)} if foreign else {}  # which commit of another program a row is of is not known
    pairs = ", ".join(f"{version}L, {at}L" for version, at in times.items())
    return f"try_element_at(map({pairs}), {C.VERSION})"


@attrs.frozen(eq=False)
class Rewritten:
    """A staged batch with the resolved rows of the batches that it replaces, which are in commit order."""

    definition: TableDefinition
    replaces: tuple[Batch, ...]
    staged: Staged
    observed: Mapping[str, Any]

    def batch(self, version: int, base: bool) -> Batch:
        """Return the batch for the log; it must have rows. With ``base`` nothing is older."""
        merges = 1 if base else sum(b.merges for b in self.replaces)
        unset = registers.unset_in(self.replaces)
        return batch_of(
            self.staged, self.observed, self.definition, unset=unset, base=base, version=version, merges=merges
        )


def metrics(definition: TableDefinition, where: Sql, unset: bool) -> dict[str, str]:
    """Return the aggregates for a batch's statistics and key range, over the rows for which SQL is true."""
    return {
        **(registers.metrics(definition, where) if unset else {}),
        "rows": f"count_if({where})",
        "tombstones": f"count_if({E.all_of([where, E.is_tombstone(definition)])})",
        "since": f"min(CASE WHEN {E.all_of([where, E.is_tombstone(definition)])} THEN {C.SINCE} END)",
        **watermark_metrics(definition, where),
        **key_ranges.metrics_of_rows(definition, where),
        **key_ranges.metrics_of_first(definition, where),
    }


def rewrite(
    store: TableStore,
    definition: TableDefinition,
    replaces: Sequence[Batch],
    forget: TombstoneRetention,
    within: Sql = E.TRUE,
    files: int | None = None,
) -> Rewritten:
    """Stage the resolved rows of some batches: each file holds a range of keys, sorted, so that filters skip most of it.

    The batches are of one snapshot, in commit order; batches between them have none of their keys. ``within`` is true of the rows
    to be written; all rows of a base among the batches are. ``files`` of None, for a result of one batch, means
    :func:`wanted_files`.
    """
    batches, files = tuple(replaces), files or wanted_files(replaces)
    keys = [F.expr(E.quote(k)) for k in definition.primaryKey]
    rows = dated(store, Batches(definition, batches), within)
    # The rows of each key meet where they are arranged, and are resolved there: nothing is shuffled for that.
    is_small = len(batches) <= UNSHUFFLED_BATCHES and sum(b.bytes for b in batches) <= UNSHUFFLED_BYTES
    arranged = rows.coalesce(1) if files == 1 and is_small else rows.repartitionByRange(files, *keys)
    latest = reader.resolve_by_window(arranged, Batches(definition, batches))
    if any(b.tombstones for b in batches):
        # Some tombstones were written in full (S9).
        latest = latest.selectExpr(*tombstone_columns(definition, latest.columns))
    marked = latest.selectExpr("*", f"{forget.condition(definition)} AS {C.IS_EXPIRED}")
    has_partial = bool(stored_in(batches))
    if has_partial:
        settled = E.all_of([E.is_not_null(C.UNSET), forget.is_old])
        unset = E.case([(E.not_(C.IS_SETTLED), C.UNSET)])
        marked = marked.selectExpr("*", f"{settled} AS {C.IS_SETTLED}")
        marked = marked.selectExpr(*(f"{unset} AS {n}" if n == C.UNSET else E.quote(n) for n in marked.columns))
    gathering = Metrics(metrics(definition, E.not_(C.IS_EXPIRED), has_partial) | _forgotten(definition, has_partial))
    rows = (
        gathering.observe(marked)
        .filter(f"NOT {C.IS_EXPIRED}")
        .drop(C.IS_EXPIRED, C.IS_SETTLED)
        .sortWithinPartitions(*keys)
    )
    return Rewritten(definition, batches, *stage(store, rows, definition, gathering, reads=batches))


def _forgotten(definition: TableDefinition, has_partial: bool) -> dict[str, str]:
    """Count the tombstones that are forgotten, and the rows of which no column is unset any more (U5); the largest watermark."""
    settled = C.IS_SETTLED if has_partial else E.FALSE
    return {
        "forgotten": f"count_if({C.IS_EXPIRED})",
        "settled": f"count_if({settled})",
        **watermark_metrics(definition, E.any_of([C.IS_EXPIRED, settled]), "horizon"),
    }
