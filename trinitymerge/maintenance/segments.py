"""A base as segments of neighbouring keys, and which of them a compaction rewrites (S38b)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import ceil
from typing import Any

import attrs

from trinitymerge.errors import FilesVacuumedError, TrinityMergeError
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.advice import LEFT_ROWS
from trinitymerge.maintenance.rewrite import Rewritten, TombstoneRetention, metrics, wanted_files
from trinitymerge.rows.key_ranges import KeyRange, are_disjoint, ends_of_leading, has_order
from trinitymerge.rows.registers import stored_in, unset_in
from trinitymerge.rows.watermarks import from_json_sql, ordered
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES, target_segment_bytes
from trinitymerge.spark import expressions as E
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore, Staged
from trinitymerge.stores.staging import batch_of

_PAYS = 0.01
"""A segment is rewritten for at least so many changed rows per row."""

_MOST_LEFT_ROWS = 500_000
"""In a large table, up to so many changed rows stay in a separate batch: readers merge them with the base cheaply."""

_NEARLY_ALL = 0.75
"""Of the segments: if more are to be rewritten, all are, in one job."""

_MANY_EACH = 8
"""With so many segments for each core it does not matter whether all cores have as many."""

_MOST_SEGMENTS = 384
"""With more of them, small neighbours are joined though nothing in them has changed."""

_FILE_BYTES = 128 << 20
"""Segments of large tables consist of several files, each of which one task writes."""

_SMALL = 4
"""A segment of less than the wanted size by this is rewritten along with one beside it."""


@attrs.frozen
class RewriteTask:
    """The rewrite of some rows: as one batch, or as segments by their size.

    Attributes:
        within: SQL over keys that is true of these rows.
        files: about how many are written: what is left is one.
        together: how many of them make a segment.
        is_base: nothing older than these rows is left of their keys.
    """

    batches: tuple[Batch, ...]
    within: Sql = E.TRUE
    files: int = 1
    together: int = 1
    is_base: bool = True

    @classmethod
    def of_base(
        cls, batches: Sequence[Batch], within: Sql, size_bytes: int, wanted_bytes: int, cores: int = 1
    ) -> RewriteTask:
        """Return a task that makes segments of about the wanted size, with files that suit one task.

        Cores share them evenly when all are read: of a few segments more than cores, the last would wait for the others.
        """
        together, segments = max(1, round(wanted_bytes / _FILE_BYTES)), max(1, round(size_bytes / wanted_bytes))
        if cores < segments < _MANY_EACH * cores:
            segments = cores * ceil(segments / cores)
        return cls(tuple(batches), within, segments * together, together)


@attrs.frozen
class CompactionPlan:
    """The tasks of a compaction, the segments that stay as they are, and the name of the new base, if it is segmented."""

    pieces: tuple[RewriteTask, ...]
    kept: tuple[Batch, ...] = ()
    segment_of: str | None = None


def everything(snapshot: Snapshot, name: str, cores: int) -> CompactionPlan:
    """Return the plan that rewrites everything as a new base, for so many cores."""
    batches, definition = snapshot.live_batches, snapshot.definition
    if not has_order(definition):
        return CompactionPlan((RewriteTask(batches, files=wanted_files(batches)),))
    size = sum(b.bytes for b in batches)
    return CompactionPlan(
        (RewriteTask.of_base(batches, E.TRUE, size, target_segment_bytes(snapshot.properties, size), cores),),
        segment_of=name,
    )


@attrs.frozen
class SegmentLayout:
    """The segments of a base, at least one, in the order of their first keys, as :mod:`trinitymerge.rows.watermarks` has them."""

    definition: TableDefinition
    segments: tuple[Batch, ...]
    firsts: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, store: ManagedStore, batches: Batches) -> SegmentLayout | None:
        """Return the segments of a table's base; None if it has none, or the first key of one is lost."""
        base, definition = batches.base, batches.definition
        if not base or base[0].segment_of is None or not has_order(definition):
            return None
        kinds = [E.physical_type(definition.field(k)) for k in definition.primaryKey]
        found: list[tuple[tuple[Any, ...], tuple[Any, ...], Batch]] = []
        for batch, keys in zip(base, store.ranges_of(base), strict=True):
            if keys is None or keys.first is None or len(keys.first) != len(kinds):
                return None
            found.append((tuple(map(ordered, keys.first, kinds)), keys.first, batch))
        found.sort(key=lambda segment: segment[0])
        if any(one[0] == other[0] for one, other in pairwise(found)):
            return None
        return cls(definition, tuple(f[2] for f in found), tuple(f[1] for f in found))

    def place_of(self, keys: KeyRange | None) -> int | None:
        """Return the place of the one segment that all keys of a range belong to; None if they may belong to several."""
        fields = [self.definition.field(k) for k in self.definition.primaryKey]
        names = [f.first_stored_as for f in fields]
        if keys is None or not all(name in keys.low for name in names):
            return None
        low, high = (self._place([bound[name] for name in names]) for bound in (keys.low, keys.high))
        return low if low == high else None

    def _place(self, key: Sequence[Any]) -> int:
        kinds = [E.physical_type(self.definition.field(k)) for k in self.definition.primaryKey]
        wanted, *firsts = (tuple(map(ordered, one, kinds)) for one in (key, *self.firsts))
        return max(0, bisect_right(firsts, wanted) - 1)

    def number_of_row(self) -> Sql:
        """Return the place of the segment that a row's key belongs to, as SQL; found by bisection."""
        return self._number(0, len(self.segments) - 1)

    def _number(self, low: int, high: int) -> Sql:
        if low == high:
            return E.number(low)
        middle = (low + high + 1) // 2
        begins = self._is_from(self.firsts[middle])
        return E.case([(begins, self._number(middle, high))], self._number(low, middle - 1))

    def _is_from(self, first: Sequence[Any]) -> Sql:
        """Return True if a row's key is not smaller than another one, the leading columns first."""
        (name, literal), *rest = self._literals(first)[::-1]
        condition = Sql(f"{name} >= {literal}")
        for name, literal in rest:
            condition = E.any_of([Sql(f"{name} > {literal}"), E.all_of([E.equals(name, literal), condition])])
        return condition

    def _literals(self, key: Sequence[Any]) -> list[tuple[Sql, Sql]]:
        columns = [(E.quote(k), E.physical_type(self.definition.field(k))) for k in self.definition.primaryKey]
        return [(name, Sql(from_json_sql(value, kind))) for (name, kind), value in zip(columns, key, strict=True)]

    def within(self, low: int, high: int) -> Sql:
        """Return SQL that is true for keys of some neighbouring segments; its filter on the leading column reaches the files."""
        conditions = []
        for place, from_there in ((low, True), (high + 1, False)):
            if 0 < place < len(self.segments):
                begins = E.or_else(self._is_from(self.firsts[place]), E.FALSE)
                name, literal = self._literals(self.firsts[place])[0]
                bound = f"{name} >= {literal}" if from_there else f"{name} <= {literal} OR {name} IS NULL"
                conditions += [Sql(bound), begins if from_there else E.not_(begins)]
        return E.all_of(conditions)


def plan_partial_compaction(
    store: ManagedStore, snapshot: Snapshot, layout: SegmentLayout, forget: TombstoneRetention
) -> CompactionPlan:
    """Return the plan that rewrites some segments with their changes; the other changes become one batch.

    A table whose base is one segment is rewritten for any change. Otherwise a segment with few changes stays as it is, unless too
    much would be left in all, tombstones are overdue, it is small beside one that is written or lies between two, or nearly all
    are written.
    """
    batches = Batches.of(snapshot)
    deltas, table_bytes = batches.pending, sum(b.bytes for b in snapshot.live_batches)
    changed, wanted = _changed(store, batches, layout), target_segment_bytes(snapshot.properties, table_bytes)
    dirty, delta_rows = _worth(layout, changed, forget), sum(changed.values())
    pieces, rewritten = [], set[int]()
    for run in _runs(layout, dirty, wanted):
        segments = tuple(layout.segments[i] for i in run)
        share = sum(changed.get(i, 0) for i in run) / max(1, delta_rows)
        size = sum(b.bytes for b in segments) + int(share * sum(b.bytes for b in deltas))
        pieces.append(RewriteTask.of_base((*segments, *deltas), layout.within(run[0], run[-1]), size, wanted))
        rewritten |= set(run)
    kept = [i for i in range(len(layout.segments)) if i not in rewritten]
    if any(changed.get(i) for i in kept) and (pieces or len(deltas) > 1):
        within = E.any_of(layout.within(run[0], run[-1]) for run in _neighbours(kept))
        pieces.append(RewriteTask(deltas, within, is_base=False))
    return CompactionPlan(tuple(pieces), tuple(layout.segments[i] for i in kept), layout.segments[0].segment_of)


def _changed(store: ManagedStore, batches: Batches, layout: SegmentLayout) -> Mapping[int, int]:
    """Count how many rows were committed since, by the place of the segment that they belong to."""
    if len(layout.segments) == 1:
        return {0: sum(b.rows for b in batches.pending)}
    changed, untold = Counter[int](), list[Batch]()
    for batch, keys in zip(batches.pending, store.ranges_of(batches.pending), strict=True):
        place = layout.place_of(keys)
        if place is None:
            untold.append(batch)
        else:
            changed[place] += batch.rows
    if untold:
        rows = store.scan(Batches(batches.definition, tuple(untold))).selectExpr(f"{layout.number_of_row()} AS n")
        changed.update({r[0]: r[1] for r in rows.groupBy("n").count().collect()})
    return changed


def _worth(layout: SegmentLayout, changed: Mapping[int, int], forget: TombstoneRetention) -> set[int]:
    alone = len(layout.segments) == 1
    dirty = {i for i, n in changed.items() if n and (alone or n >= _PAYS * layout.segments[i].rows)}
    left = sum(n for i, n in changed.items() if i not in dirty)
    if left > max(LEFT_ROWS, min(_MOST_LEFT_ROWS, _PAYS * sum(b.rows for b in layout.segments))):
        dirty = {i for i, n in changed.items() if n}
    return dirty | {i for i, b in enumerate(layout.segments) if forget.pays(b, 0 if alone else 1)}


def _runs(layout: SegmentLayout, dirty: set[int], wanted_bytes: int) -> list[list[int]]:
    """Return runs of segments to rewrite by one job each, with small ones beside them and single ones between them."""
    count = len(layout.segments)
    small = [i for i, b in enumerate(layout.segments) if b.bytes * _SMALL < wanted_bytes]
    places = set(dirty)
    if count > _MOST_SEGMENTS:  # of a table that has grown: small ones that do not change any more
        places |= {i for i in small if {i - 1, i + 1} & set(small)}
    for order, before in ((small, -1), (small[::-1], 1)):
        for i in order:
            places |= {i} if i + before in places else set()
    places |= {i for i in range(count) if {i - 1, i + 1} <= places}
    return list(_neighbours(range(count) if len(places) > _NEARLY_ALL * count else sorted(places)))


def _neighbours(places: Iterable[int]) -> Iterator[list[int]]:
    for _, run in groupby(enumerate(places), lambda place: place[1] - place[0]):
        yield [i for _, i in run]


def as_segments(
    store: ManagedStore, rewritten: Rewritten, version: int, segment_of: str | None, together: int, staged: list[Staged]
) -> list[Batch]:
    """Return the written files as the batches of a base: as its segments, of so many files each, if the base has a name.

    Of the batches to discard on failure, those that come into being are added, and the one that ceases to be is taken out.
    """
    if segment_of is None or rewritten.staged.files <= together:
        return [attrs.evolve(rewritten.batch(version, base=True), segment_of=segment_of)]
    definition = rewritten.definition
    parts = store.split(rewritten.staged, together)
    staged.remove(rewritten.staged)
    staged += parts
    gathering = Metrics(metrics(definition, E.TRUE, bool(stored_in(rewritten.replaces))))
    unset = unset_in(rewritten.replaces)
    found, ends = list[Batch](), list[tuple[Any, Any]]()
    for part in parts:
        observed = gathering.compute(store.read_staged(part))
        if not observed["rows"]:  # a task that had nothing to write, or only tombstones that are forgotten
            store.discard(part)
            continue
        ends.append(ends_of_leading(observed, definition))
        store.note_range(part.id, KeyRange.of(observed, definition))
        found.append(
            batch_of(part, observed, definition, unset=unset, base=True, version=version, segment_of=segment_of)
        )
    if sum(b.rows for b in found) != rewritten.observed["rows"]:
        raise FilesVacuumedError.of(store.path, store.batch_path(rewritten.staged.id))
    if not are_disjoint(ends):
        raise TrinityMergeError(
            f"Spark {store.spark.version} has written segments of {store.path} whose keys overlap, though it was asked for "
            "ranges of keys. The written files were discarded, and nothing has changed. Turn off the extension or plug-in that "
            f"arranges rows otherwise; or do without segments: set {TARGET_SEGMENT_BYTES} to more bytes than the table has, "
            "and run compact(full=True).",
            path=store.path,
        )
    return found
