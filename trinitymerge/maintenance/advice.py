"""The state of a table by its log, and the one thing to do next. Needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from trinitymerge import _format
from trinitymerge.errors import counted, sized
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot

PENDING_BATCHES = 50
"""With more batches than this beside the base, a compaction pays: each read opens their files."""

LEFT_ROWS = 100_000
FEW_BYTES = 32 << 20
"""Up to :data:`LEFT_ROWS` pending rows, in so many bytes, no compaction pays: a read resolves them in about 0.3 seconds."""

PENDING_SHARE = 0.2
"""With more pending rows than this share of the base's, a compaction takes as long as some seven reads gain by it."""

RECLAIMABLE_SHARE = 0.5
"""With more unneeded bytes than this share of the table's, a vacuum pays."""

BROADCAST_ROWS = 1_000_000
"""So many pending rows are broadcast with any memory; without a session, more are taken for too many."""


@attrs.frozen
class StoredKeys:
    """The keys of a table, by the number of rows that it stores of each.

    Attributes:
        liveRows: rows of the table.
        keys: from each number of stored rows, of which tombstones and archives are a part, to the number of such keys.
        examples: one such key for each number, as JSON.
    """

    liveRows: int
    keys: Mapping[int, int]
    examples: Mapping[int, str]


def compaction_hint(
    batches: Batches, fits_broadcast: Callable[[int], bool] = lambda rows: rows <= BROADCAST_ROWS
) -> str:
    """Return why a compaction pays, from the log's statistics, or an empty string.

    A compaction saves each read the work for pending rows: opening their files, broadcasting their keys, and reading the rows that
    they replace. ``docs/scale.md`` has the model, and the measurements behind its numbers.

    Args:
        batches: of the table.
        fits_broadcast: whether so many rows can be broadcast in the session that reads.
    """
    if batches.are_resolved:
        return ""
    deltas = batches.deltas
    rows, size = sum(b.rows for b in deltas), sum(b.bytes for b in deltas)
    if len(deltas) > PENDING_BATCHES:
        return f"{len(deltas):,} batches are pending"
    if rows <= LEFT_ROWS and size <= FEW_BYTES:
        return ""
    base_rows = sum(b.rows for b in batches.read_base)
    beside = f"{counted(rows)} ({sized(size)}) {'is' if rows == 1 else 'are'} pending beside a base of {base_rows:,}"
    if rows > PENDING_SHARE * base_rows:
        return beside
    return "" if fits_broadcast(rows) else f"{beside}, too many to be broadcast, so each read shuffles the table"


@attrs.frozen
class TableHealth(_format.Result):
    """The state of a table; made by ``TrinityTable.health()``.

    Attributes:
        version: of the table.
        liveRows: rows that readers see; None if only the log was read.
        storedRows: rows in the files that live rows are read from: replaced ones and tombstones included.
        archivedRows: rows in the archives of a table with history: versions that have ended, and tombstones between them.
        tombstones: tombstones among the stored rows.
        batches: batches of this version.
        segments: those that the base consists of (S38b); a compaction leaves alone those that hardly changed.
        pendingBatches: those beside the base, which every read resolves.
        pendingMerges: the merges in the pending batches: more than the batches after a minor compaction (S38a).
        pendingRows: rows in the pending batches. Each read compares their keys with those of the base; ``compact()`` saves it that.
        pendingBytes: size of the pending batches.
        readAmplification: stored rows per live row; 1.0 is a freshly compacted table. None if only the log was read.
        files: data files of this version.
        bytes: their size.
        reclaimableBytes: size of the files that this version does not need: past versions and leftovers. ``vacuum()`` frees them
            after its retention. None if the files were not listed.
        action: what to do next: ``"compact()"``, ``"vacuum()"``, ``"any write"`` (of rows that other tables are still to get, S27)
            or ``"nothing"``.
        reason: why.

    Example:
        >>> health = orders.health()
        >>> health.liveRows, health.pendingBatches, health.pendingMerges, health.action
        (2, 0, 0, 'nothing')
    """

    version: int
    liveRows: int | None
    storedRows: int
    archivedRows: int
    tombstones: int
    batches: int
    segments: int
    pendingBatches: int
    pendingMerges: int
    pendingRows: int
    pendingBytes: int
    readAmplification: float | None
    files: int
    bytes: int
    reclaimableBytes: int | None
    action: str
    reason: str

    def __str__(self) -> str:
        return "\n".join(f"{name:19} {text}" for name, text in self.facts())

    def facts(self) -> list[tuple[str, str]]:
        """Return the state in words: names and texts."""
        return [
            ("version", f"{self.version}"),
            *([] if self.liveRows is None else [("live rows", f"{self.liveRows:,}")]),
            ("stored rows", f"{self.storedRows:,} ({counted(self.tombstones, 'tombstone')})"),
            *([("archived rows", f"{self.archivedRows:,}")] if self.archivedRows else []),
            ("batches", f"{self.batches:,} ({self._kinds()})"),
            *([("compact() saves", self._saved())] if self.pendingBatches else []),
            *([] if self.readAmplification is None else [("read amplification", f"{self.readAmplification:.2f}")]),
            ("files", f"{self.files:,} ({sized(self.bytes)})"),
            *([] if self.reclaimableBytes is None else [("vacuum() frees", sized(self.reclaimableBytes))]),
            ("next", f"{self.action}: {self.reason}"),
        ]

    def _kinds(self) -> str:
        segments = f"{self.segments:,} segments, " if self.segments > 1 else ""
        of_merges = f", of {self.pendingMerges:,} merges" if self.pendingMerges != self.pendingBatches else ""
        return f"{segments}{self.pendingBatches:,} pending{of_merges}"

    def _saved(self) -> str:
        """Return the work that a compaction saves each read."""
        replaced = 0 if self.liveRows is None else self.storedRows - self.liveRows - self.tombstones
        gone = f", and reading {counted(replaced)} that newer ones replace" if replaced > 0 else ""
        return f"each read resolving {counted(self.pendingRows)} ({sized(self.pendingBytes)}){gone}"

    def _repr_html_(self) -> str:
        return _format.pairs(self.facts())


def health_of(
    snapshot: Snapshot,
    fits_broadcast: Callable[[int], bool] = lambda rows: rows <= BROADCAST_ROWS,
    live_rows: int | None = None,
    reclaimable_bytes: int | None = None,
) -> TableHealth:
    """Return the state of a table.

    Args:
        snapshot: the version to describe.
        fits_broadcast: see :func:`compaction_hint`.
        live_rows: as counted by a read; None if unknown.
        reclaimable_bytes: size of the files that the version does not need; None if unknown.
    """
    to_read, batches = Batches.of(snapshot), snapshot.batches
    stored, size = sum(b.rows for b in to_read.batches), sum(b.bytes for b in batches)
    action, reason = _next_step(snapshot, compaction_hint(to_read, fits_broadcast), size, reclaimable_bytes)
    return TableHealth(
        version=snapshot.version,
        liveRows=live_rows,
        storedRows=stored,
        archivedRows=sum(b.rows for b in batches) - stored,
        tombstones=sum(b.tombstones for b in to_read.batches),
        batches=len(batches),
        segments=len(to_read.base),
        pendingBatches=len(to_read.pending),
        pendingMerges=sum(b.merges for b in to_read.pending),
        pendingRows=sum(b.rows for b in to_read.pending),
        pendingBytes=sum(b.bytes for b in to_read.pending),
        readAmplification=None if live_rows is None else stored / live_rows if live_rows else float(stored or 1),
        files=sum(b.files for b in batches),
        bytes=size,
        reclaimableBytes=reclaimable_bytes,
        action=action,
        reason=reason,
    )


def _next_step(snapshot: Snapshot, reason_to_compact: str, size: int, reclaimable: int | None) -> tuple[str, str]:
    if snapshot.outbox:
        first, rows = snapshot.outbox[0], sum(entry.rows for entry in snapshot.outbox)
        return "any write", f"{counted(rows)} for {first.path} are still to be written there"
    if reason_to_compact:
        return "compact()", reason_to_compact
    if reclaimable is not None and reclaimable > RECLAIMABLE_SHARE * size:
        return "vacuum()", f"{sized(reclaimable)} are not needed by this version"
    return "nothing", "reads are cheap" if reclaimable is None else "reads are cheap and little space is wasted"
