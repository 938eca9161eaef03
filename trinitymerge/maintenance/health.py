"""`health`: what a table needs, and why."""

from __future__ import annotations

import attrs

from trinitymerge import _format, reader
from trinitymerge.errors import counted, sized
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.compaction import compaction_hint
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.stores.base import Batches, ManagedStore

_RECLAIMABLE_SHARE = 0.5


@attrs.frozen
class TableHealth:
    """The state of a table; made by ``TrinityTable.health()``.

    Attributes:
        version: of the table.
        liveRows: rows that readers see.
        storedRows: rows in the files that live rows are read from: replaced ones and tombstones included.
        archivedRows: rows in the archives of a table with history: versions that have ended, and tombstones between them.
        tombstones: tombstones among the stored rows.
        batches: batches of this version.
        segments: those that the base consists of (S38b); a compaction leaves alone those that hardly changed.
        pendingBatches: those beside the base, which every read resolves.
        pendingMerges: the merges in the pending batches: more than the batches after a minor compaction (S38a).
        pendingRows: rows in the pending batches. Each read compares their keys with those of the base; ``compact()`` saves it that.
        pendingBytes: size of the pending batches.
        readAmplification: stored rows per live row; 1.0 is a freshly compacted table.
        files: data files of this version.
        bytes: their size.
        reclaimableBytes: size of the files that this version does not need: past versions and leftovers.
            ``vacuum()`` frees them after its retention.
        action: what to do next: ``"compact()"``, ``"vacuum()"``, ``"any write"`` (of rows that other tables are still to get, S27)
            or ``"nothing"``.
        reason: why.

    Example:
        >>> health = orders.health()
        >>> health.liveRows, health.pendingBatches, health.pendingMerges, health.action
        (2, 0, 0, 'nothing')
    """

    version: int
    liveRows: int
    storedRows: int
    archivedRows: int
    tombstones: int
    batches: int
    segments: int
    pendingBatches: int
    pendingMerges: int
    pendingRows: int
    pendingBytes: int
    readAmplification: float
    files: int
    bytes: int
    reclaimableBytes: int
    action: str
    reason: str

    def __str__(self) -> str:
        return "\n".join(f"{name:19} {text}" for name, text in self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("version", f"{self.version}"),
            ("live rows", f"{self.liveRows:,}"),
            ("stored rows", f"{self.storedRows:,} ({counted(self.tombstones, 'tombstone')})"),
            *([("archived rows", f"{self.archivedRows:,}")] if self.archivedRows else []),
            ("batches", f"{self.batches:,} ({self._kinds()})"),
            *([("compact() saves", self._saved())] if self.pendingBatches else []),
            ("read amplification", f"{self.readAmplification:.2f}"),
            ("files", f"{self.files:,} ({sized(self.bytes)})"),
            ("vacuum() frees", sized(self.reclaimableBytes)),
            ("next", f"{self.action}: {self.reason}"),
        ]

    def _kinds(self) -> str:
        segments = f"{self.segments:,} segments, " if self.segments > 1 else ""
        folded = f", of {self.pendingMerges:,} merges" if self.pendingMerges != self.pendingBatches else ""
        return f"{segments}{self.pendingBatches:,} pending{folded}"

    def _saved(self) -> str:
        """Return the work that a compaction saves each read."""
        replaced = self.storedRows - self.liveRows - self.tombstones
        gone = f", and reading {counted(replaced)} that newer ones replace" if replaced > 0 else ""
        return f"each read resolving {counted(self.pendingRows)} ({sized(self.pendingBytes)}){gone}"

    def _repr_html_(self) -> str:
        return _format.pairs(self._lines())


@with_session_settings
def health(backend: ManagedStore, snapshot: Snapshot) -> TableHealth:
    """Return the health of a table: one read counts the live rows, and one listing finds reclaimable files."""
    to_read, batches = Batches.of(snapshot), snapshot.batches
    live = reader.live_rows(backend, to_read).count()
    stored = sum(b.rows for b in to_read.batches)
    size = sum(b.bytes for b in batches)
    reclaimable = _reclaimable(backend, snapshot)
    amplification = stored / live if live else float(stored or 1)
    action, reason = _debts(snapshot) or _advice(backend, to_read, size, reclaimable)
    return TableHealth(
        version=snapshot.version,
        liveRows=live,
        storedRows=stored,
        archivedRows=sum(b.rows for b in batches) - stored,
        tombstones=sum(b.tombstones for b in to_read.batches),
        batches=len(batches),
        segments=len(to_read.base),
        pendingBatches=len(to_read.pending),
        pendingMerges=sum(b.merges for b in to_read.pending),
        pendingRows=sum(b.rows for b in to_read.pending),
        pendingBytes=sum(b.bytes for b in to_read.pending),
        readAmplification=amplification,
        files=sum(b.files for b in batches),
        bytes=size,
        reclaimableBytes=reclaimable,
        action=action,
        reason=reason,
    )


def _reclaimable(backend: ManagedStore, snapshot: Snapshot) -> int:
    needed = snapshot.referenced_ids
    unused = [i for i in backend.directories() if i not in needed]
    return sum(f.size_bytes for i in unused for f in backend.all_files(i))


def _debts(snapshot: Snapshot) -> tuple[str, str] | None:
    """Return what earlier merges left to do, which the next writer does."""
    if not snapshot.outbox:
        return None
    first, rows = snapshot.outbox[0], sum(r.rows for r in snapshot.outbox)
    return "any write", f"{counted(rows)} for {first.path} are still to be written there"


def _advice(backend: ManagedStore, batches: Batches, size: int, reclaimable: int) -> tuple[str, str]:
    why = compaction_hint(backend.spark, batches)
    if why:
        return "compact()", why
    if reclaimable > _RECLAIMABLE_SHARE * size:
        return "vacuum()", f"{sized(reclaimable)} are not needed by this version"
    return "nothing", "reads are cheap and little space is wasted"
