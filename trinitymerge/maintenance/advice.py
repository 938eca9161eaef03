"""The state of a table by its log, and the one thing to do next. Needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Protocol, TypeVar

import attrs

from trinitymerge import _format
from trinitymerge.errors import counted, sized
from trinitymerge.fs.base import FileInfo
from trinitymerge.log.batches import Batches, read_work
from trinitymerge.log.model import Commit, Snapshot, now_ms

PENDING_BATCHES = 50
"""With more batches than this beside the base, a compaction pays: each read opens their files."""

LEFT_ROWS = 100_000
FEW_BYTES = 32 << 20
"""Up to :data:`LEFT_ROWS` pending rows, in so many bytes, no compaction pays: a read resolves them in about 0.3 seconds."""

PENDING_SHARE = 0.2
"""With more pending rows than this share of the base's, a compaction takes as long as some seven reads gain by it."""

MARKED_SHARE = 0.5
"""With more marked rows than this share of all rows, a compaction takes as long as some twenty reads gain by it."""

RECLAIMABLE_SHARE = 0.5
"""With more unneeded bytes than this share of the table's, a vacuum pays."""

RETENTION_HOURS = 168
"""The retention of ``vacuum()`` by default."""

_MINUTE_MS = 60_000

_SECONDS, _SECONDS_PER_MILLION_COMPARED, _SECONDS_PER_MILLION_READ = 0.3, 1.15, 0.156
"""The time that comparing rows adds to a read, for each million of these rows, and for each million rows that it reads."""

_SECONDS_PER_MILLION_JOINED = 0.035
"""The time that deletion vectors add for each million stored rows, if any is marked: for the rows' positions, and a join."""

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


@attrs.frozen
class Unneeded:
    """The size of the files that a version does not need, of those that a vacuum frees now, and when it frees all; None if now."""

    bytes: int = 0
    freeBytes: int = 0
    freeFromMs: int | None = None

    @property
    def freeFrom(self) -> str | None:
        """The time from which all of them can be deleted, in UTC (ISO 8601)."""
        if self.freeFromMs is None:
            return None
        return f"{datetime.fromtimestamp(self.freeFromMs / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def shown(self) -> str:
        return _freed(self.bytes, self.freeBytes, self.freeFrom)


class Commits(Protocol):
    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Return those of some versions."""


def newest_first(table: Commits, snapshot: Snapshot) -> Iterator[Commit]:
    for version in range(snapshot.version, snapshot.first_version, -1):
        yield from table.commits(version, version)


class Directories(Protocol):
    def directories(self) -> Mapping[str, FileInfo]:
        """Return those that exist, by batch."""

    def all_files(self, batch_id: str) -> list[FileInfo]:
        """Return the files of a batch."""


R = TypeVar("R")


def at_once(store: Any, work: Callable[[str], R], items: Iterable[str]) -> Iterable[R]:
    """Call a function for each item, in parallel if the store can."""
    found: Iterable[R] = getattr(store, "at_once", map)(work, items)
    return found


def unneeded(
    directories: Directories,
    snapshot: Snapshot,
    newest_first: Iterable[Commit],
    retention_hours: float = RETENTION_HOURS,
) -> Unneeded:
    """Return the files that a version does not need, by one listing. As many commits up to the version are read as that takes.

    As for a vacuum, the retention of a batch begins with the commit that removed it, or with its last write.
    """
    now, needed = now_ms(), snapshot.referenced_ids
    retention = int(min(retention_hours, 1e9) * 3_600_000)
    found = {i: d for i, d in directories.directories().items() if i not in needed}
    files = dict(zip(found, at_once(directories, directories.all_files, found), strict=True))
    since = {i: max((f.modified_ms for f in files[i]), default=d.modified_ms) for i, d in found.items()}
    unknown = {*found}
    for commit in newest_first:
        if not unknown or commit.timestamp_ms <= max(now - retention, min(since[i] for i in unknown)):
            break
        removed = unknown.intersection(commit.removed)
        since |= {i: max(since[i], commit.timestamp_ms) for i in removed}
        unknown -= removed
    waiting = {i: moment + retention for i, moment in since.items() if moment + retention > now}
    sizes = {i: sum(f.size_bytes for f in files[i]) for i in found}
    free = sum(size for i, size in sizes.items() if i not in waiting)
    return Unneeded(
        sum(sizes.values()), free, None if not waiting else -(-max(waiting.values()) // _MINUTE_MS) * _MINUTE_MS
    )


def _freed(total: int, now: int, moment: str | None) -> str:
    if moment is None:
        return sized(total)
    before = f"{sized(now)} now, " if now else ""
    return f"{before}{sized(total)} from {moment[:16].replace('T', ' ')} UTC on"


def seconds_saved(batches: Batches) -> float:
    """Return how much longer a read takes than after a compaction, by the model of ``docs/scale.md``: two cores, local files."""
    compared, marked = batches.compared_rows, batches.marked_rows
    joined = sum(b.rows for b in batches.batches) if marked else 0
    more = _SECONDS + _SECONDS_PER_MILLION_COMPARED * compared / 1e6 if compared else 0.0
    return round(more + (_SECONDS_PER_MILLION_READ * marked + _SECONDS_PER_MILLION_JOINED * joined) / 1e6, 2)


def compaction_hint(
    batches: Batches, fits_broadcast: Callable[[int], bool] = lambda rows: rows <= BROADCAST_ROWS
) -> str:
    """Return why a compaction pays, from the log's statistics, or an empty string.

    A compaction saves each read the work for pending rows: opening their files, broadcasting their keys, and reading the rows that
    they replace. ``docs/scale.md`` has the model, and the measurements behind its numbers.
    """
    if batches.are_resolved:
        return ""
    deltas, pending = batches.deltas, batches.of_all_rows().deltas
    rows, size = sum(b.rows for b in deltas), sum(b.bytes for b in deltas)
    if len(pending) > PENDING_BATCHES:
        return f"{len(pending):,} batches are pending"
    marked, stored = batches.marked_rows, sum(b.rows for b in batches.batches)
    if marked > MARKED_SHARE * stored and marked > LEFT_ROWS:
        return f"newer rows replace {counted(marked)} of {stored:,}, and each read passes over them"
    if rows <= LEFT_ROWS and size <= FEW_BYTES:
        return ""
    base_rows = sum(b.rows for b in batches.read_base)
    beside = f"{counted(rows)} ({sized(size)}) {'is' if rows == 1 else 'are'} pending beside a base of {base_rows:,}"
    if rows > PENDING_SHARE * base_rows:
        return beside
    return "" if fits_broadcast(rows) else f"{beside}, too many to be broadcast, so each read shuffles the table"


def rows_to_sort(batches: Batches) -> int:
    """Count the rows in files that are not sorted as the definition says (S7c)."""
    own = batches.definition
    wanted = own.order_in_files(own.stored_cluster_by)
    return sum(b.rows for b in batches.batches if own.order_in_files(b.cluster_by) != wanted)


@attrs.frozen
class TableHealth(_format.Result):
    """The state of a table; made by ``TrinityTable.health()``.

    Attributes:
        liveRows: rows that readers see; None if only the log was read.
        storedRows: rows in the files that live rows are read from: replaced ones and tombstones included.
        archivedRows: rows in the archives of a table with history: versions that have ended, and tombstones between them.
        tombstones: tombstones among the stored rows.
        segments: those that the base consists of (S38b); a compaction leaves alone those that hardly changed.
        pendingBatches: those beside the base, which every read resolves.
        pendingMerges: the merges in the pending batches: more than the batches after a minor compaction (S38a).
        readFiles: data files that each read opens: those of archives are not among them.
        comparedRows: rows of pending batches without deletion vectors: each read compares their keys with all others.
        markedRows: stored rows that deletion vectors mark as replaced: each read passes over them.
        rowsToSort: stored rows in files that are sorted by other columns than the table's (S7c); ``compact(full=True)`` sorts them.
        secondsSaved: how much longer a read takes than after ``compact()``: an estimate for two cores and local files.
        readAmplification: stored rows per live row; 1.0 is a freshly compacted table. None if only the log was read.
        files: data files of this version; ``bytes`` is their size.
        reclaimableBytes: size of the files that this version does not need: past versions and leftovers. None if the files were not
            listed.
        reclaimableNowBytes: size of those that ``vacuum()`` frees now, after its default retention; None if the files were not
            listed.
        reclaimableFrom: when it may free all of them, in UTC (ISO 8601); None if now, or if the files were not listed.
        action: what to do next: ``"compact()"``, ``"vacuum()"``, ``"any write"`` (of rows that other tables are still to get, S27)
            or ``"nothing"``; ``reason`` says why.

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
    readFiles: int
    comparedRows: int
    markedRows: int
    rowsToSort: int
    secondsSaved: float
    readAmplification: float | None
    files: int
    bytes: int
    reclaimableBytes: int | None
    reclaimableNowBytes: int | None
    reclaimableFrom: str | None
    action: str
    reason: str

    def __str__(self) -> str:
        return "\n".join(f"{name:19} {text}" for name, text in self.facts())

    def facts(self) -> list[tuple[str, str]]:
        segments = f"{self.segments:,} segments, " if self.segments > 1 else ""
        of_merges = f", of {self.pendingMerges:,} merges" if self.pendingMerges != self.pendingBatches else ""
        read = read_work(self.readFiles, self.storedRows, self.markedRows, self.comparedRows)
        pays_not = "; it does not pay yet" if self.action in ("nothing", "vacuum()") else ""
        saved = f"each read about {self.secondsSaved:.1f} s on two cores{pays_not}"
        freed = _freed(self.reclaimableBytes or 0, self.reclaimableNowBytes or 0, self.reclaimableFrom)
        return [
            ("version", f"{self.version}"),
            *([] if self.liveRows is None else [("live rows", f"{self.liveRows:,}")]),
            ("stored rows", f"{self.storedRows:,} ({counted(self.tombstones, 'tombstone')})"),
            *([("archived rows", f"{self.archivedRows:,}")] if self.archivedRows else []),
            ("batches", f"{self.batches:,} ({segments}{self.pendingBatches:,} pending{of_merges})"),
            *([("a read", read), ("compact() saves", saved)] if self.pendingBatches else []),
            *([] if self.readAmplification is None else [("read amplification", f"{self.readAmplification:.2f}")]),
            *([("rows to sort", f"{self.rowsToSort:,}; compact(full=True) sorts them")] if self.rowsToSort else []),
            ("files", f"{self.files:,} ({sized(self.bytes)})"),
            *([] if self.reclaimableBytes is None else [("vacuum() frees", freed)]),
            ("next", f"{self.action}: {self.reason}"),
        ]

    def _repr_html_(self) -> str:
        return _format.pairs(self.facts())


def health_of(
    snapshot: Snapshot,
    fits_broadcast: Callable[[int], bool] = lambda rows: rows <= BROADCAST_ROWS,
    live_rows: int | None = None,
    unneeded: Unneeded | None = None,
) -> TableHealth:
    """Return the state of a table. Live rows, as counted by a read, and unneeded files are None if they are not known."""
    to_read, batches = Batches.of(snapshot), snapshot.batches
    stored, size = sum(b.rows for b in to_read.batches), sum(b.bytes for b in batches)
    action, reason = _next_step(snapshot, compaction_hint(to_read, fits_broadcast), size, unneeded)
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
        comparedRows=to_read.compared_rows,
        markedRows=to_read.marked_rows,
        rowsToSort=rows_to_sort(to_read),
        secondsSaved=seconds_saved(to_read),
        readFiles=sum(b.files for b in to_read.batches),
        readAmplification=None if live_rows is None else stored / live_rows if live_rows else float(stored or 1),
        files=sum(b.files for b in batches),
        bytes=size,
        reclaimableBytes=None if unneeded is None else unneeded.bytes,
        reclaimableNowBytes=None if unneeded is None else unneeded.freeBytes,
        reclaimableFrom=None if unneeded is None else unneeded.freeFrom,
        action=action,
        reason=reason,
    )


def _next_step(snapshot: Snapshot, reason_to_compact: str, size: int, found: Unneeded | None) -> tuple[str, str]:
    if snapshot.outbox:
        first, rows = snapshot.outbox[0], sum(entry.rows for entry in snapshot.outbox)
        return "any write", f"{counted(rows)} for {first.path} are still to be written there"
    if reason_to_compact:
        return "compact()", reason_to_compact
    if found is None:
        return "nothing", "reads are cheap"
    if found.freeBytes > RECLAIMABLE_SHARE * size:
        return "vacuum()", f"{sized(found.freeBytes)} are not needed by any version of the last {RETENTION_HOURS} hours"
    if found.bytes > RECLAIMABLE_SHARE * size:
        return "nothing", f"reads are cheap; vacuum() frees {found.shown}, after its retention"
    return "nothing", "reads are cheap and little space is wasted"
