"""Compaction: the resolved rows of all batches, as one base (S38).

Owns: when it pays, writing the base, forgetting old tombstones and the horizon that records it, and committing beside
other writers. It never changes what readers see.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trinitymerge import keyrange, reader
from trinitymerge.columns import FORGET, SINCE, VERSION
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import ConcurrentCommitError, counted
from trinitymerge.expressions import FALSE, TRUE, all_of, any_of, is_tombstone, not_, or_else, quote
from trinitymerge.keyrange import KeyRange
from trinitymerge.observation import Gathering
from trinitymerge.properties import tombstone_retention_hours
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.sqltext import Sql
from trinitymerge.statistics import Watermark, in_order, is_above, is_at_least, watermark_metrics, watermark_of
from trinitymerge.storage import faults
from trinitymerge.storage.backend import Batches, Maintained, Staged
from trinitymerge.storage.entries import Batch, Commit, Snapshot, current_user, now_ms
from trinitymerge.storage.publish import Holds, Landed, OnlyAppends, OutcomeUnknown, publish
from trinitymerge.tombstones import bare, holds_more

FAULT_POINTS = ("compact.staged", "compact.committed")
"""Where this module may be killed, see ``storage/faults.py``."""

TARGET_FILE_BYTES = 64 << 20
"""A base has about one file for so many bytes of the batches it replaces."""

PENDING_BATCHES = 50
"""With more batches than this beside the base, compaction pays."""

DELTA_SHARE = 0.5
"""With more rows beside the base than this share of the base's, compaction pays."""

_MS_PER_HOUR = 3_600_000


@attrs.frozen
class CompactionResult:
    """What a compaction did.

    Attributes:
        version: the table's version afterwards; the unchanged one if nothing was committed.
        batches: batches that were replaced.
        rows: rows of the new base, tombstones included.
        rowsRemoved: stored rows that are gone: replaced versions, and forgotten tombstones.
        tombstones: tombstones that were kept.
        tombstonesForgotten: tombstones older than the retention, which are gone.
        bytes: size of the new base.
        skipped: why nothing was committed, or an empty string.
        seconds: how long it took.
    """

    version: int
    batches: int = 0
    rows: int = 0
    rowsRemoved: int = 0
    tombstones: int = 0
    tombstonesForgotten: int = 0
    bytes: int = 0
    skipped: str = ""
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        if self.skipped:
            return f"version {self.version}: nothing compacted, {self.skipped}"
        return (
            f"version {self.version}: {counted(self.batches, 'batch', 'batches')} became one base of {counted(self.rows)}; "
            f"{counted(self.rowsRemoved)} removed, {self.tombstonesForgotten:,} of them tombstones ({self.seconds:.1f} s)"
        )


# When it pays ---------------------------------------------------------------------------------------------------------


def why_compact(batches: Batches) -> str:
    """Why compaction would pay, from the log's statistics alone; an empty string if it would not."""
    waiting = batches.pending
    if len(waiting) > PENDING_BATCHES:
        return f"{len(waiting):,} batches are pending"
    base_rows = batches.base.rows if batches.base else 0
    waiting_rows = sum(b.rows for b in waiting)
    if waiting and len(batches.batches) > 1 and waiting_rows > DELTA_SHARE * base_rows:
        return f"{waiting_rows:,} rows are pending beside a base of {base_rows:,}"
    return ""


def _why_not(backend: Maintained, snapshot: Snapshot, forget: _Forget) -> str:
    if not snapshot.batches:
        return "the table has no rows"
    if len(snapshot.batches) > 1 or not snapshot.batches[0].base:
        return ""
    base = snapshot.batches[0]
    if base.files > max(8, 4 * _wanted_files(snapshot.batches)):
        return ""
    if base.tombstones:
        rows = forget.dated(backend, snapshot).scan(Batches.of(snapshot))
        worth = any_of([forget.condition(snapshot.definition), holds_more(snapshot.definition)])
        if not rows.filter(worth).isEmpty():
            return ""
    return "there is one base and nothing else"


def _wanted_files(batches: Sequence[Batch]) -> int:
    return max(1, math.ceil(sum(b.bytes for b in batches) / TARGET_FILE_BYTES))


# Tombstones -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Forget:
    """Which tombstones a compaction forgets: those committed before a moment; all, or none."""

    before_ms: int | None
    everything: bool = False

    @classmethod
    def of(cls, definition: TableDefinition) -> _Forget:
        """As the table's retention says; without a declared watermark no row can come too late (S38)."""
        if not definition.watermarkKey:
            return cls(None, everything=True)
        hours = tombstone_retention_hours(definition.properties)
        return cls(None if hours is None else now_ms() - int(hours * _MS_PER_HOUR))

    @property
    def is_never(self) -> bool:
        """True if all tombstones are kept."""
        return self.before_ms is None and not self.everything

    def condition(self, definition: TableDefinition) -> Sql:
        """SQL that is true if a row of a dated scan is forgotten."""
        if self.is_never:
            return FALSE
        old = TRUE if self.everything else or_else(Sql(f"{SINCE} <= {self.before_ms}L"), FALSE)
        return all_of([is_tombstone(definition), old])

    def dated(self, backend: Maintained, snapshot: Snapshot) -> _Dated:
        """A scan that knows when tombstones were committed."""
        needed = {b.version for b in snapshot.batches if b.tombstones and b.version is not None}
        return _Dated(backend, {v: backend.committed_at(v) for v in sorted(needed)})


@attrs.frozen
class _Dated:
    """Scans batches with the commit time of each tombstone: a base remembers it, other batches are of one commit."""

    backend: Maintained
    commit_times_ms: Mapping[int, int]

    def scan(self, batches: Batches) -> DataFrame:
        """See :class:`~trinitymerge.storage.backend.Scanner`."""
        rows = self.backend.scan(batches, extra=[Field(SINCE, "long")])
        committed = "CAST(NULL AS BIGINT)"
        if self.commit_times_ms:
            pairs = ", ".join(f"{version}L, {at_ms}L" for version, at_ms in self.commit_times_ms.items())
            committed = f"try_element_at(map({pairs}), {VERSION})"
        since = f"CASE WHEN {is_tombstone(batches.definition)} THEN coalesce({SINCE}, {committed}) END AS {SINCE}"
        return rows.selectExpr(*[quote(n) for n in rows.columns if n != SINCE], since)


# Writing --------------------------------------------------------------------------------------------------------------


def compact(backend: Maintained) -> CompactionResult:
    """Rewrites the resolved rows of all batches into one base, sorted by primary key (S38).

    Raises:
        CorruptTableError: a file is missing.
        FilesVacuumedError: a vacuum with too short a retention has removed the new base; nothing was changed.
    """
    start = time.perf_counter()
    snapshot = backend.snapshot()
    for forget in (_Forget.of(snapshot.definition), _Forget(None)):
        try:
            with held(backend.spark, LITERAL_NAMES):
                return _compact(backend, snapshot, forget, start)
        except ConcurrentCommitError as conflict:
            snapshot, requirement = backend.snapshot(), conflict.facts["requirement"]
            if not isinstance(requirement, (Holds, OnlyAppends)):
                raise
            if isinstance(requirement, OnlyAppends):
                break  # else rows landed that a tombstone still hides which would be forgotten: forget none this time
    why = "another compaction, restore or purge was committed meanwhile"
    return CompactionResult(version=snapshot.version, skipped=why)


def _compact(backend: Maintained, snapshot: Snapshot, forget: _Forget, start: float) -> CompactionResult:
    why_not = _why_not(backend, snapshot, forget)
    if why_not:
        return CompactionResult(version=snapshot.version, skipped=why_not)
    staged, observed = _stage(backend, snapshot, forget)
    try:
        backend.require_still_whole(snapshot.batches)
        faults.fault("compact.staged")
        commit = _commit_of(snapshot, staged, observed, start)
        if not commit.added:
            backend.discard(staged)
        done = publish(backend, commit, snapshot, (OnlyAppends(), Holds(partial(_rows_below_horizon, commit))))
    except OutcomeUnknown:
        raise  # the base may be part of the table: it must stay
    except Exception:  # after Ctrl-C, which may come right after the commit, the base stays for vacuum()
        backend.discard(staged)
        raise
    faults.fault("compact.committed")
    return CompactionResult(
        version=done.version,
        batches=len(snapshot.batches),
        rows=observed["rows"],
        rowsRemoved=sum(b.rows for b in snapshot.batches) - observed["rows"],
        tombstones=observed["tombstones"],
        tombstonesForgotten=observed["forgotten"],
        bytes=sum(b.bytes for b in commit.added),
        seconds=time.perf_counter() - start,
    )


def _stage(backend: Maintained, snapshot: Snapshot, forget: _Forget) -> tuple[Staged, dict[str, Any]]:
    """Writes the base: each file holds a range of keys, sorted, so that filters on the key skip most of it."""
    definition = snapshot.definition
    keys = [F.expr(quote(k)) for k in definition.primaryKey]
    latest = reader.latest(forget.dated(backend, snapshot), Batches.of(snapshot))
    if any(b.tombstones for b in snapshot.batches):
        latest = latest.selectExpr(*bare(definition, latest.columns))  # older libraries wrote them in full (S9)
    marked = latest.selectExpr("*", f"{forget.condition(definition)} AS {FORGET}")
    ranges = marked.repartitionByRange(_wanted_files(snapshot.batches), *keys)
    metrics = {
        "rows": f"count_if(NOT {FORGET})",
        "tombstones": f"count_if(NOT {FORGET} AND {is_tombstone(definition)})",
        "forgotten": f"count_if({FORGET})",
        **watermark_metrics(definition, f"NOT {FORGET}"),
        **watermark_metrics(definition, FORGET, "horizon"),
        **keyrange.metrics_of_rows(definition, not_(FORGET)),
    }
    gathering = Gathering(metrics)
    rows = gathering.over(ranges).filter(f"NOT {FORGET}").drop(FORGET).sortWithinPartitions(*keys)
    staged = backend.stage(rows, definition)
    try:
        observed = gathering.result()
        backend.note_range(staged, KeyRange.of(observed, definition))
    except BaseException:
        backend.discard(staged)
        raise
    return staged, observed


def _commit_of(snapshot: Snapshot, staged: Staged, observed: Mapping[str, Any], start: float) -> Commit:
    definition = snapshot.definition
    base = Batch(
        id=staged.id,
        rows=observed["rows"],
        tombstones=observed["tombstones"],
        files=staged.files,
        bytes=staged.size_bytes,
        watermark_min=watermark_of(observed, "min", definition),
        watermark_max=watermark_of(observed, "max", definition),
        unique_keys=True,
        base=True,
        version=snapshot.version,
    )
    names = ("rows", "tombstones", "forgotten")
    return snapshot.next_commit(
        "COMPACT",
        added=[base] if base.rows else [],
        removed=[b.id for b in snapshot.batches],
        horizon=_horizon(snapshot, observed),
        metrics={n: observed[n] for n in names},
        user=current_user(),
        duration_ms=int((time.perf_counter() - start) * 1000),
    )


def _horizon(snapshot: Snapshot, observed: Mapping[str, Any]) -> Watermark | None:
    """The largest watermark forgotten so far, if this compaction forgets any; empty when that cannot be told."""
    definition = snapshot.definition
    if not observed["forgotten"] or not definition.watermarkKey:
        return None
    found, before = watermark_of(observed, "max", definition, "horizon"), snapshot.horizon
    if found is None or in_order(found, definition) is None or before == ():
        return ()
    if before is None or is_at_least(found, before, definition):
        return found
    return before if is_at_least(before, found, definition) else ()


# Committing -----------------------------------------------------------------------------------------------------------


def _rows_below_horizon(commit: Commit, landed: Landed) -> str | None:
    """Why batches that landed may hold rows which only the forgotten tombstones keep from view; None if they hold none."""
    definition = landed.now.definition
    if commit.horizon is None or all(is_above(definition, b.watermark_min, commit.horizon) for b in landed.appended):
        return None
    return "rows have landed that are older than tombstones which would be forgotten"
