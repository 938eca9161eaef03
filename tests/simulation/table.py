"""Tables without Spark: what Spark would do with rows, in plain Python, below the library's own store and maintenance.

Owns: :class:`Row`, :class:`SimulatedTable`, and :func:`without_spark`, which puts plain Python in the place of each function that
hands rows to Spark. All that decides what is committed, on top of what, and which files go, is the library's.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import attrs

from simulation.processes import Machine, machine_here, same_every_time
from trinitymerge.errors import CorruptTableError
from trinitymerge.log.actions import Batch, PurgeKeys, SetDeletionVectors
from trinitymerge.log.batches import Batches
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance import archives, compaction, deletion_vectors, minor_compaction, purge, segments
from trinitymerge.maintenance.archives import NOTHING, Archived
from trinitymerge.maintenance.rewrite import Rewritten, TombstoneRetention
from trinitymerge.merge.execute import conflicts
from trinitymerge.reader import usable
from trinitymerge.rows import key_ranges
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.expressions import TRUE
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores import managed
from trinitymerge.stores.base import Staged
from trinitymerge.stores.deletion_vectors import VectorFiles
from trinitymerge.stores.managed import DirectoryStore, KeyRangeFiles
from trinitymerge.stores.staging import batch_of

PATH = "sim:/table"
FIELDS = [Field("id", "long"), Field("ts", "long"), Field("v", "long")]


def definition(history: bool = False, **properties: Any) -> TableDefinition:
    """Of the tables that are simulated: a key, a watermark, a value."""
    named = {f"trinitymerge.{name}": str(value) for name, value in properties.items()}
    return TableDefinition.of(FIELDS, "id", "ts", properties=named, history=history)


@attrs.frozen(order=True)
class Row:
    """A stored row.

    Attributes:
        key: its primary key.
        at: its watermark.
        value: of its one other column.
        is_dead: it is a tombstone.
        set_at: of a partial row: the watermark of the row that has set its value; 0 if none has (U2). None for whole rows.
        since: when that was committed, if a fold or compaction has written it; of tombstones and partial rows.
    """

    key: int
    at: int
    value: int = 0
    is_dead: bool = False
    set_at: int | None = attrs.field(default=None, order=False)
    since: int | None = attrs.field(default=None, eq=False, order=False)


@attrs.frozen
class Stored:
    """A row as a scan finds it: with what it counts as, and where it is."""

    row: Row
    version: int
    batch: Batch
    place: tuple[str, str, int] = ("", "", 0)


def freshest(found: Iterable[Stored]) -> dict[int, Stored]:
    """Per key the row that counts (S6)."""
    best: dict[int, Stored] = {}
    for stored in found:
        other = best.get(stored.row.key)
        if other is None or (stored.row.at, stored.version) > (other.row.at, other.version):
            best[stored.row.key] = stored
    return best


@attrs.frozen(eq=False)
class Rows:
    """Rows to be staged, as Spark would be given them.

    Attributes:
        files: the rows of each file.
    """

    files: tuple[tuple[Row, ...], ...]
    schema: Any = None

    @classmethod
    def of(cls, rows: Iterable[Row], files: int = 1) -> Rows:
        """In files of about the same number of rows, by key."""
        ordered = sorted(rows)
        size = max(1, -(-len(ordered) // files))
        return cls(tuple(tuple(ordered[i : i + size]) for i in range(0, max(1, len(ordered)), size)))

    def __iter__(self) -> Iterator[Row]:
        return (row for file in self.files for row in file)


class SimulatedTable(DirectoryStore):
    """The library's own store, on a simulated disk; rows are lists of JSON."""

    def __init__(self, machine: Machine) -> None:
        self.spark = _NO_SPARK
        self.files = machine
        self.path = self._given = PATH
        self.log = CommitLog(machine, PATH)
        self._newest = None
        self._ranges = KeyRangeFiles(machine)
        self._whole = {}
        self._vectors = VectorFiles(self.spark, self)

    def scan(self, batches: Batches, extra: Sequence[Field] = ()) -> list[Stored]:  # type: ignore[override]
        """The rows of some batches. Their files are found first, and read then, as Spark does."""
        readable = [b for b in batches.batches if b.rows]
        paths = [(b, f.path) for b in readable for f in self.data_files(b.id)]
        self.verify_files(readable)
        vectors = batches.deletion_vectors
        marked = set() if vectors is None else {tuple(place) for place in self.deletion_vectors(vectors)}
        found = [
            Stored(row, b.version or 0, b, (b.id, path.rpartition("/")[2], n))
            for b, path in paths
            for n, row in enumerate(self._rows_of(path))
        ]
        return [stored for stored in found if stored.place not in marked]

    def read(self, snapshot: Snapshot) -> dict[int, Row]:
        """Per key the row that counts, as readers find it."""
        found = self.scan(usable(self, Batches.of(snapshot)))
        return {k: s.row for k, s in freshest(found).items()}

    def deletion_vectors(self, vectors: SetDeletionVectors) -> list[list[Any]]:  # type: ignore[override]
        """The places of marked rows: batch, file and number of each."""
        (file,) = self.data_files(vectors.id)
        return json.loads(self.files.read(file.path))

    def rows_in(self, batch_id: str) -> list[Row]:
        """The rows of a directory, committed or not."""
        return [row for f in self.data_files(batch_id) for row in self._rows_of(f.path)]

    def _rows_of(self, path: str) -> list[Row]:
        try:
            return [Row(*fields) for fields in json.loads(self.files.read(path))]
        except (FileNotFoundError, ValueError) as error:
            raise CorruptTableError(f"{path} is gone or torn: {error}", path=path) from None

    def read_staged(self, staged: Staged) -> list[Row]:  # type: ignore[override]
        try:
            return self.rows_in(staged.id)
        except CorruptTableError:
            raise self._vacuumed(staged.id) from None

    def staged_batch(self, rows: Sequence[Row], own: TableDefinition, **facts: Any) -> tuple[Staged, Batch]:
        """Stages rows, with all that is noted of them on the way."""
        staged, observed = _staged(self, rows, own, 1)
        return staged, batch_of(staged, observed, own, **facts)


_NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: "false", set=lambda *_: None))


def _staged(
    table: SimulatedTable, rows: Sequence[Row], own: TableDefinition, files: int
) -> tuple[Staged, Mapping[str, Any]]:
    """What ``staging.stage`` does: the same calls, in the same order."""
    staged = table.stage(Rows.of(rows, files), own)
    observed = _observed(rows)
    table.note_range(staged.id, KeyRange.of(observed, own))
    return staged, observed


def _observed(rows: Sequence[Row]) -> dict[str, Any]:
    at, dead = [r.at for r in rows], [r for r in rows if r.is_dead]
    return {
        "rows": len(rows),
        "tombstones": len(dead),
        "partial": sum(r.set_at is not None for r in rows),
        "since": min((r.since for r in dead if r.since is not None), default=None),
        "watermark_min_0": min(at, default=None),
        "watermark_max_0": max(at, default=None),
        key_ranges._name("min", 0): min((r.key for r in rows), default=None),
        key_ranges._name("max", 0): max((r.key for r in rows), default=None),
    }


# What Spark would do --------------------------------------------------------------------------------------------------


def _is_true(condition: Sql) -> Callable[[Row], bool]:
    """Conditions on keys, in SQL that SQLite understands, too."""
    if condition == TRUE:
        return lambda row: True
    database = sqlite3.connect(":memory:")
    text = re.sub(r"(?<=\d)L\b", "", condition)
    return lambda row: bool(database.execute(f"SELECT {text} FROM (SELECT {row.key} AS id)").fetchone()[0])


def _dated(table: SimulatedTable, batches: Sequence[Batch]) -> Callable[[Stored], Row]:
    """Gives tombstones and partial rows the time of their commit, as ``rewriting.Dated`` does."""
    needed = sorted({b.version for b in batches if (b.tombstones or b.partial) and b.version is not None})
    times = {version: table.committed_at(version) for version in needed}

    def dated(stored: Stored) -> Row:
        row = stored.row
        needs = row.is_dead or row.set_at is not None
        return attrs.evolve(row, since=row.since or times.get(stored.version)) if needs else row

    return dated


def _rewrite(
    table: SimulatedTable,
    own: TableDefinition,
    replaces: Sequence[Batch],
    forget: TombstoneRetention,
    within: Sql = TRUE,
    files: int | None = None,
) -> Rewritten:
    """What ``rewriting.rewrite`` does."""
    is_within, dated = _is_true(within), _dated(table, replaces)
    latest = freshest(table.scan(Batches(own, tuple(replaces))))
    rows = [dated(s) for s in latest.values() if s.batch.base or is_within(s.row)]

    def is_old(row: Row) -> bool:
        return not forget.is_never and (forget.before_ms is None or (row.since or 0) <= forget.before_ms)

    gone = [r for r in rows if r.is_dead and is_old(r)]
    settled = [r for r in rows if r.set_at is not None and is_old(r)]
    kept = [attrs.evolve(r, set_at=None, since=None) if r in settled else r for r in rows if r not in gone]
    staged, observed = _staged(table, kept, own, files or 1)
    horizon = {
        f"horizon_{which}_0": of((r.at for r in (*gone, *settled)), default=None)
        for which, of in (("min", min), ("max", max))
    }
    counts = {"forgotten": len(gone), "settled": len(settled)}
    return Rewritten(own, tuple(replaces), staged, {**observed, **horizon, **counts})


class _Metrics:
    """What ``Metrics`` finds in rows that are there."""

    def __init__(self, metrics: Mapping[str, str]) -> None:
        """Whatever is asked, all is found."""

    def compute(self, rows: Sequence[Row]) -> dict[str, Any]:
        return _observed(rows)


def _changed(table: SimulatedTable, batches: Batches, tiled: segments.SegmentLayout) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    firsts = [first[0] for first in tiled.firsts]
    for stored in table.scan(Batches(batches.definition, batches.pending)):
        place = max(0, sum(first <= stored.row.key for first in firsts) - 1)
        counts[place] = counts.get(place, 0) + 1
    return counts


def _why_not(table: SimulatedTable, snapshot: Snapshot, forget: TombstoneRetention) -> str:
    base = Batches.of(snapshot).base
    return (
        ""
        if len(base) < len(snapshot.live_batches) or any(b.tombstones for b in base)
        else "there is one base and nothing else"
    )


def _closed(table: SimulatedTable, own: TableDefinition, batches: Sequence[Batch]) -> list[Row]:
    """The rows of keys that a fresher one has replaced."""
    found = table.scan(Batches(own, tuple(batches)))
    latest = set(map(id, freshest(s for s in found if s.batch.archive is None).values()))
    return [s.row for s in found if id(s) not in latest]


def _archived(
    table: SimulatedTable, own: TableDefinition, rows: Sequence[Row], kind: str, version: int, staged: list[Staged]
) -> Archived:
    if not rows:
        return NOTHING
    written, batch = table.staged_batch(rows, own, version=version, merges=0, archive=kind, unique_keys=False)
    staged.append(written)
    return Archived((batch,))


def _archive_for_minor(
    table: SimulatedTable, snapshot: Snapshot, replaces: Sequence[Batch], rows: int, staged: list[Staged]
) -> Archived:
    """What ``archives.archive_for_minor`` does; all earlier unresolved archives are joined."""
    own = snapshot.definition
    if not own.history:
        return NOTHING
    earlier = snapshot.archives(archives.UNRESOLVED)
    if rows == sum(b.rows for b in replaces) and len(earlier) < 2:
        return NOTHING
    version = max(b.version for b in replaces if b.version is not None)
    closed = _closed(table, own, (*replaces, *earlier))
    return attrs.evolve(
        _archived(table, own, closed, archives.UNRESOLVED, version, staged), replaced=frozenset(b.id for b in earlier)
    )


def _archive_for_full(
    table: SimulatedTable, snapshot: Snapshot, work: segments.CompactionPlan, staged: list[Staged]
) -> Archived:
    """What ``archives.archive_for_full`` does if all is rewritten: every ended version is resolved."""
    own = snapshot.definition
    if not own.history:
        return NOTHING
    earlier = (*snapshot.archives(archives.UNRESOLVED), *snapshot.archives(archives.RESOLVED))
    closed = _closed(table, own, (*snapshot.live_batches, *earlier))
    archived = _archived(table, own, closed, archives.RESOLVED, snapshot.version, staged)
    return attrs.evolve(archived, replaced=frozenset(b.id for b in earlier))


def _meets(dependence: conflicts.ReadSet, landed: Batches) -> bool:
    table: Any = dependence.store
    mine = {r.key for r in table.read_staged(dependence.staged)} if dependence.batch is not None else set()
    mine |= set(dependence.reads.keys or ())
    return any(s.row.key in mine for s in table.scan(landed))


def _holding(work: Any, ids: Sequence[str]) -> set[str]:
    found = set()
    for i in ids:
        with contextlib.suppress(CorruptTableError):
            if any(r.key in work.keys for r in work.store.rows_in(i)):
                found.add(i)
    return found


def _without_keys(work: Any, batch: Batch) -> Batch | None:
    table = work.store
    left = [r for r in table.rows_in(batch.id) if r.key not in work.keys]
    staged, observed = _staged(table, left, work.definition, 1)
    if not left:
        table.discard(staged)
        return None
    counts = {"tombstones": observed["tombstones"], "partial": observed["partial"]}
    return attrs.evolve(batch, id=staged.id, rows=len(left), files=staged.files, bytes=staged.size_bytes, **counts)


def marker(key: int) -> str:
    """By what a purged key is known again."""
    return f"{key:04x}"


@attrs.frozen
class Places:
    """The places of marked rows, as the file of deletion vectors."""

    found: tuple[tuple[str, str, int], ...]
    schema: Any = None

    def coalesce(self, count: int) -> Places:
        return self


def _vectors(table: SimulatedTable, batches: Batches) -> Places:
    """What ``deletion_vectors._vectors`` does: all rows but the latest of their key."""
    found = table.scan(batches)
    latest = {s.place for s in freshest(found).values()}
    known = [] if batches.deletion_vectors is None else map(tuple, table.deletion_vectors(batches.deletion_vectors))
    here = {b.id for b in batches.batches}
    places = {place for place in known if place[0] in here} | {s.place for s in found if s.place not in latest}
    return Places(tuple(sorted(places)))


def _counted(table: SimulatedTable, made: SetDeletionVectors, bits: str) -> list[tuple[str, int]]:
    return list(Counter(batch for batch, _, _ in table.deletion_vectors(made)).items())


def _write(rows: Rows | Places, file_format: str, path: str) -> None:
    machine = machine_here()
    if isinstance(rows, Places):
        machine.write(f"{path}/part-00000", json.dumps(rows.found).encode())
        return
    for number, file in enumerate(rows.files):
        content = [[r.key, r.at, r.value, r.is_dead, r.set_at, r.since] for r in file]
        machine.write(f"{path}/part-{number:05d}", json.dumps(content).encode())


_PLAIN: tuple[tuple[Any, str, Any], ...] = (
    (managed, "as_stored", lambda rows, fields: rows),
    (managed, "write", _write),
    (minor_compaction, "rewrite", _rewrite),
    (minor_compaction, "archive_for_minor", _archive_for_minor),
    (compaction, "rewrite", _rewrite),
    (deletion_vectors, "_vectors", _vectors),
    (deletion_vectors, "_counted", _counted),
    (segments, "Metrics", _Metrics),
    (compaction, "archive_for_full", _archive_for_full),
    (compaction, "_why_not", _why_not),
    (segments, "_changed", _changed),
    (conflicts.ReadSet, "_meets", _meets),
    (purge._Purge, "holding", _holding),
    (purge._Purge, "_without_keys", _without_keys),
    (purge, "_markers", lambda work, snapshot: PurgeKeys("5a17", sorted(map(marker, work.keys)))),
)
"""Every function that hands rows to Spark, and what does the same in plain Python."""


@contextlib.contextmanager
def without_spark() -> Iterator[None]:
    """While this lasts, the library's maintenance works on :class:`SimulatedTable`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(same_every_time())
        for owner, name, plain in _PLAIN:
            stack.enter_context(mock.patch.object(owner, name, plain))
        yield


@contextlib.contextmanager
def on(machine: Machine) -> Iterator[SimulatedTable]:
    """The table, for the process whose machine it is."""
    yield SimulatedTable(machine)
