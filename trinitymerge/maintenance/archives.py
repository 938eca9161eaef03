"""Archives: the past row versions that compactions keep of a history table (H6, H7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge import reader
from trinitymerge.history.versions import Timeline, is_in_order
from trinitymerge.log.actions import RESOLVED, UNRESOLVED, Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.rewrite import TombstoneRetention, wanted_files
from trinitymerge.maintenance.segments import CompactionPlan
from trinitymerge.reader import fits_broadcast
from trinitymerge.rows import key_ranges, registers
from trinitymerge.rows.registers import stored_in
from trinitymerge.rows.watermarks import watermark_metrics
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore, Staged
from trinitymerge.stores.staging import batch_of, stage

GROWTH = 2
"""An archive is rewritten together with its additions if it has at most so many times their bytes."""


@attrs.frozen
class Archived:
    """The archives that a commit adds, and the ids of those that it removes because they are part of them now."""

    added: tuple[Batch, ...] = ()
    replaced: frozenset[str] = frozenset()


NOTHING = Archived()


def archive_for_minor(
    store: ManagedStore, snapshot: Snapshot, replaces: Sequence[Batch], rows: int, staged: list[Staged]
) -> Archived:
    """Return the rows that a minor compaction replaces, with earlier archives unless much larger. It leaves ``rows``."""
    if not snapshot.definition.history:
        return NOTHING
    limit = GROWTH * sum(b.bytes for b in replaces)
    earlier = tuple(b for b in snapshot.archives(UNRESOLVED) if b.bytes <= limit)
    if rows == sum(b.rows for b in replaces) and len(earlier) < 2:
        return NOTHING
    timeline = Timeline(store, snapshot.definition, stored_in(snapshot.batches))
    closed = timeline.replaced(timeline.scan((*replaces, *earlier)))
    version = max(b.version for b in replaces if b.version is not None)
    added = _staged(timeline, closed, (*replaces, *earlier), UNRESOLVED, version, staged)
    return Archived(added, frozenset(b.id for b in earlier))


def archive_expired(snapshot: Snapshot) -> bool:
    """Return True if archives hold versions that have expired (H7)."""
    forget = TombstoneRetention.ended(snapshot.definition)
    return any(forget.pays(b, 1) for b in snapshot.archives(RESOLVED))


def archive_for_full(store: ManagedStore, snapshot: Snapshot, work: CompactionPlan, staged: list[Staged]) -> Archived:
    """Return the resolved archive of ended versions, and the unresolved archive of keys that stay pending."""
    if not snapshot.definition.history:
        return NOTHING
    resolving = _Resolving.of(store, snapshot, work)
    # The keys of unresolved archives are pending, or in a base without segments: so every rewrite has them.
    kept = resolving.unresolved(staged)
    resolved = resolving.resolved(staged)
    return Archived((*resolved.added, *kept), resolved.replaced | {b.id for b in snapshot.archives(UNRESOLVED)})


@attrs.frozen(eq=False)
class _Resolving:
    """Settles versions of pending keys: those ``within`` rewritten segments, and those that a compaction ``leaves`` pending."""

    timeline: Timeline
    snapshot: Snapshot
    rewritten: tuple[Batch, ...]
    within: Sql
    leaves: Sql
    forget: TombstoneRetention

    @classmethod
    def of(cls, store: ManagedStore, snapshot: Snapshot, work: CompactionPlan) -> _Resolving:
        pieces = [p for p in work.pieces if p.is_base]
        base = {b.id: b for b in Batches.of(snapshot).base}
        rewritten = {b.id: b for p in pieces for b in p.batches if b.id in base}
        return cls(
            Timeline(store, snapshot.definition, stored_in(snapshot.batches)),
            snapshot,
            tuple(rewritten.values()),
            E.any_of(p.within for p in pieces),
            E.any_of(p.within for p in work.pieces if not p.is_base),
            TombstoneRetention.ended(snapshot.definition),
        )

    @property
    def _unresolved(self) -> tuple[Batch, ...]:
        base = {b.id for b in Batches.of(self.snapshot).base}
        return (*(b for b in self.snapshot.live_batches if b.id not in base), *self.snapshot.archives(UNRESOLVED))

    def unresolved(self, staged: list[Staged]) -> tuple[Batch, ...]:
        if self.leaves == E.FALSE:
            return ()
        timeline, version = self.timeline, max((b.version or 0 for b in self._unresolved), default=0)
        closed = timeline.replaced(timeline.scan(self._unresolved).filter(self.leaves))
        return _staged(timeline, closed, self._unresolved, UNRESOLVED, version, staged)

    def resolved(self, staged: list[Staged]) -> Archived:
        pending = self._unresolved
        timeline, archives = self.timeline, self.snapshot.archives(RESOLVED)
        due = {b.version for b in archives if self.forget.pays(b, 1)}
        if not pending or self.within == E.FALSE:
            return self._shortened([b for b in archives if b.version in due], staged)
        few = fits_broadcast(timeline.store.spark, sum(b.rows for b in pending))
        changed = {b.version for b in archives} if not few else self._changed(archives) | due
        size = sum(b.bytes for b in (*pending, *(b for b in archives if b.version in changed)))
        replaced = tuple(b for b in archives if b.version in changed or b.bytes <= GROWTH * size)
        versions = ", ".join(f"{b.version}L" for b in replaced)
        is_written = E.any_of(
            [E.is_null(C.SOURCE_ARCHIVE), *([Sql(f"{C.SOURCE_ARCHIVE} IN ({versions})")] if versions else [])]
        )
        about = self._about_pending if few else None
        rows = (
            timeline.in_order(self._rows(archives, about))
            .filter(E.all_of([Sql(C.IS_ENDED), is_written]))
            .drop(C.SOURCE_ARCHIVE)
        )
        if replaced and few:
            others = reader.anti_join(timeline.scan(replaced), timeline.definition, self._keys())
            rows = rows.unionByName(timeline.as_stored(others))
        parts = (*pending, *self.rewritten, *replaced)
        added = _staged(timeline, rows.filter(self._is_kept), parts, RESOLVED, self.snapshot.version, staged)
        return Archived(added, frozenset(b.id for b in replaced))

    def _shortened(self, due: Sequence[Batch], staged: list[Staged]) -> Archived:
        """Return the archives without expired versions."""
        if not due:
            return NOTHING
        rows = self.timeline.as_stored(self.timeline.scan(due)).filter(self._is_kept)
        added = _staged(self.timeline, rows, due, RESOLVED, self.snapshot.version, staged)
        return Archived(added, frozenset(b.id for b in due))

    @property
    def _is_kept(self) -> Sql:
        """True of a version that did not end too long ago (H7)."""
        return E.TRUE if self.forget.before_ms is None else Sql(f"{C.ENDED} > {self.forget.before_ms}L")

    def _keys(self) -> DataFrame:
        """Return the pending keys to resolve, with repetitions."""
        names = reader.keys_to_find(self.timeline.definition)
        return F.broadcast(self.timeline.scan(self._unresolved).filter(self.within).selectExpr(*names))

    def _about_pending(self, rows: DataFrame) -> DataFrame:
        return reader.semi_join(rows, self.timeline.definition, self._keys())

    def _rows(self, archives: Sequence[Batch], about: Any) -> DataFrame:
        """Return all rows of these keys; :data:`C.SOURCE_ARCHIVE` names the resolved archive of a row."""
        scan, own = self.timeline.scan, f"CAST(NULL AS BIGINT) AS {C.SOURCE_ARCHIVE}"
        rows = scan(self._unresolved).filter(self.within).selectExpr("*", own)
        for batches, origin in ((self.rewritten, own), (archives, f"{C.VERSION} AS {C.SOURCE_ARCHIVE}")):
            if batches:
                more = scan(batches).selectExpr("*", origin)
                rows = rows.unionByName(more if about is None else about(more))
        return rows

    def _changed(self, archives: Sequence[Batch]) -> set[int | None]:
        """Return the resolved archives with a version that a pending row replaces or ends earlier."""
        if not archives or is_in_order(
            self.timeline.definition, self._unresolved, self.rewritten, self.snapshot.horizon
        ):
            return set()
        timeline = self.timeline
        affected = E.any_of([timeline.is_corrected(), timeline.ends_earlier()])
        rows = timeline.with_next(self._rows(archives, self._about_pending))
        found = (
            rows.filter(E.all_of([E.is_not_null(C.SOURCE_ARCHIVE), affected]))
            .select(C.SOURCE_ARCHIVE)
            .distinct()
            .collect()
        )
        return {r[0] for r in found}


def _staged(
    timeline: Timeline, rows: DataFrame, parts: Sequence[Batch], kind: str, version: int, staged: list[Staged]
) -> tuple[Batch, ...]:
    """Stage some rows as an archive, unless there are none."""
    own, files = timeline.definition, wanted_files(parts)
    keys = [F.expr(E.quote(k)) for k in own.primaryKey]
    metrics = {
        "rows": "count(1)",
        "tombstones": f"count_if({E.is_tombstone(own)})",
        "since": f"min({C.ENDED})",
        **(registers.metrics(own, E.TRUE) if timeline.extra else {}),
        **watermark_metrics(own, E.TRUE),
        **key_ranges.metrics_of_rows(own, E.TRUE),
    }
    gathering = Metrics(metrics)
    arranged = rows.drop(C.VERSION, C.IS_ENDED)
    arranged = arranged.coalesce(1) if files == 1 else arranged.repartitionByRange(files, *keys)
    written, observed = stage(
        timeline.store, gathering.observe(arranged).sortWithinPartitions(*keys), own, gathering, parts
    )
    if not observed["rows"]:
        timeline.store.discard(written)
        return ()
    staged.append(written)
    facts = {"version": version, "merges": 0, "archive": kind}
    return (batch_of(written, observed, own, unique_keys=False, unset=registers.unset_in(parts), **facts),)
