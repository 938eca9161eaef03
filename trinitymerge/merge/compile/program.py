"""The rows a merge can write on one strategy, by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
from pyspark.sql import Column
from pyspark.sql.types import DataType

from trinitymerge.merge.analysis import row_kinds
from trinitymerge.merge.analysis.key_match import KeyMatch, keeps_key
from trinitymerge.merge.analysis.outcomes import Outcomes, RecordedDeletes
from trinitymerge.merge.analysis.relations import choose
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.model.clauses import WhenNotMatched
from trinitymerge.rows.watermarks import Watermark
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import cast_to_column
from trinitymerge.spark.sql_text import Sql, as_sql

NEEDS_TARGET = -1
"""Instead of a firing's code and a slot's number: a source row whose outcome depends on whether its key exists."""


@attrs.frozen(eq=False)
class OutputRow:
    """One row to write, by number.

    Attributes:
        known: the joined row shows what the written key holds; otherwise it must be looked up.
        may_hit_live_key: the row may come to a key that is live (S24, S25).
        beside: of an insert: the slot of its clause's update or delete, if that may be stale (S21a).
    """

    row: row_kinds.RowKind
    known: bool = True
    may_hit_live_key: bool = False
    beside: int | None = None


@attrs.frozen
class ClauseFiring:
    """The rows that one clause writes for a row of the joined sides.

    Attributes:
        clause: position of the clause, from 0.
        is_recorded_delete: the clause's delete is recorded for a key that is not live (S18); the clause does not count as
            applied.
    """

    clause: int
    slots: tuple[int, ...]
    is_recorded_delete: bool = False


@attrs.frozen(eq=False, slots=False)
class MergeProgram:
    """A merge compiled for one way of reading its target.

    Attributes:
        firings: what a row may set off; the code of each is its position, from 1.
        on_stale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        is_pair: the row of the joined sides is a pair, as SQL or a Column; never null.
        recorded: the deletes that are recorded for absent keys.
        knows_target: each row stands beside what it replaces. Otherwise nothing is known of that, some source rows may be
            :data:`NEEDS_TARGET`, and no row has a known effect, unless there is a ``stored_column``.
        stored_column: the column of the source that shows what is stored under each key: a struct of ``live`` (see
            :data:`~trinitymerge.spark.system_columns.LIVE`) and of the watermark, ``w0`` and so on. Empty if it has none.
        has_registers: the struct also has ``unset``, ``mended`` and ``unknown``, see
            :class:`~trinitymerge.merge.compile.key_timeline.KeyTimeline`.
        truncated_at: the watermark of the table's last truncate (T1), or None.
    """

    analysis: Analysis
    slots: tuple[OutputRow, ...]
    firings: tuple[ClauseFiring, ...]
    on_stale: str
    match: KeyMatch | None = None
    is_pair: Sql | Column = E.FALSE
    recorded: RecordedDeletes = ()
    outcomes: Outcomes = attrs.field(factory=Outcomes)
    knows_target: bool = True
    stored_column: str = ""
    has_registers: bool = False
    truncated_at: Watermark | None = None

    @property
    def definition(self) -> TableDefinition:
        return self.analysis.definition

    @cached_property
    def _codes(self) -> Mapping[tuple[int, bool], int]:
        return {(f.clause, f.is_recorded_delete): code for code, f in self.by_code.items()}

    @cached_property
    def by_code(self) -> Mapping[int, ClauseFiring]:
        return dict(enumerate(self.firings, start=1))

    def code(self, clause: int, is_recorded_delete: bool = False) -> int:
        return self._codes[clause, is_recorded_delete]

    @property
    def unfit_code(self) -> int | None:
        """The code of a source row whose key cannot be one of the table (S17a); None if every key fits by its type."""
        return self._codes.get((UNFIT, True))

    @property
    def is_one_by_one(self) -> bool:
        """True if kinds of clauses are tried one after the other, each where only what it sees is there (S30)."""
        return self.analysis.one_by_one and self.knows_target

    @cached_property
    def recording(self) -> tuple[int, ...]:
        """The slots of tombstones for keys that are not live (S18)."""
        return tuple(n for n, s in enumerate(self.slots) if s.row.is_recorded)

    @cached_property
    def changing(self) -> tuple[int, ...]:
        """The slots of rows that replace or end the row that their source row was paired with."""
        return tuple(n for n, s in enumerate(self.slots) if s.row.changes_pre_image)

    @cached_property
    def departures(self) -> Mapping[int, int]:
        """The slots of tombstones that moves leave behind, and the slots of the rows that move (S24)."""
        moving = {id(s.row): n for n, s in enumerate(self.slots)}
        return {n: moving[id(s.row.moved_by)] for n, s in enumerate(self.slots) if s.row.moved_by is not None}

    @cached_property
    def compared(self) -> tuple[int, ...]:
        """The slots of updates that are not written where nothing changes (S22b)."""
        return tuple(n for n, s in enumerate(self.slots) if s.row.is_compared)

    @property
    def kept_source(self) -> tuple[Sql, ...]:
        """The columns that lead from a row to its source row; none without a quarantine."""
        source = self.analysis.source
        return (C.SOURCE_COLUMNS, C.SOURCE_ROW) if source is not None and source.is_kept else ()

    @property
    def moves(self) -> bool:
        """True if the merge can change primary keys (S24)."""
        return bool(self.departures)

    @cached_property
    def beside_changes(self) -> Mapping[int, int]:
        """The inserts that are not written if a change in their clause is stale, and the slots of these changes (S21a)."""
        return {n: s.beside for n, s in enumerate(self.slots) if s.beside is not None}

    @cached_property
    def beside_moves(self) -> tuple[int, ...]:
        """Those beside an update that may move: whether it is stale is only known when its new key has been looked up."""
        moving = set(self.departures.values())
        return tuple(n for n, change in self.beside_changes.items() if change in moving)

    @cached_property
    def brings_tombstones(self) -> bool:
        """True if a row may turn out to be a tombstone by what the data say, and not by what wrote it (S9)."""
        return any(s.row.brings_tombstone(self.definition) for s in self.slots)

    @cached_property
    def superseding(self) -> tuple[int, ...]:
        """The slots of rows that replace one, of which something is written into another table (S27)."""
        outbox_plan = self.analysis.outbox_plan
        if outbox_plan is None or not self.knows_target:
            return ()
        return tuple(n for n in self.changing if self.slots[n].row.clause in outbox_plan.clauses)

    @property
    def multiplies(self) -> bool:
        """True if several rows may come of one."""
        return any(len(firing.slots) != 1 for firing in self.firings)

    @cached_property
    def unknown(self) -> tuple[int, ...]:
        """The slots of rows whose key must be looked up."""
        return tuple(n for n, s in enumerate(self.slots) if not s.known)

    @property
    def depends_on_others(self) -> bool:
        """True if rows of other source rows decide whether a row is written (S22b, S25)."""
        return self.knows_target and (bool(self.compared) or any(s.may_hit_live_key for s in self.slots))

    @cached_property
    def known_keys(self) -> tuple[Mapping[str, tuple[Sql, DataType]], ...]:
        """The keys to look up, if all are columns of the source: by column, SQL over it and its type.

        Empty if one is not, or if keys move: then the rows must be known before their keys can be looked up.
        """
        source, own = self.analysis.source, self.definition.primaryKey
        if source is None or self.moves:
            return ()
        found = []
        for row in (self.slots[n].row for n in self.unknown):
            key = {k: v for k in own if isinstance(v := row.values[k], row_kinds.Expression) and not v.or_kept}
            if len(key) < len(own) or not all(v.alone is not None and source.is_column(v.alone) for v in key.values()):
                return ()
            found.append({k: (as_sql(str(v.alone)), v.type) for k, v in key.items()})
        return tuple(found)

    @cached_property
    def is_checked(self) -> bool:
        """True if a value of the merge may turn out not to fit its column when it runs (S29)."""
        rows = [*(s.row for s in self.slots), *(r for c in self.analysis.clauses for r in c.rows)]
        return any(isinstance(v, row_kinds.Expression) and v.way.may_fail for r in rows for v in r.values.values())

    @cached_property
    def used_twice(self) -> frozenset[str]:
        """The columns whose values are stored and also decide something."""
        own, twice = self.definition, set[str]()
        if self.moves:  # the new key and tombstone are asked for by the row and by the tombstone it leaves behind
            twice |= {*own.primaryKey, own.tombstone_column}
        if self.is_checked:  # the tombstone also says whether the other values are judged (S9)
            twice.add(own.tombstone_column)
        if self.beside_changes:  # the watermark also says whether the inserts beside are written (S21a)
            twice.update(own.watermarkKey)
        return frozenset(twice)


def paired_program(
    analysis: Analysis,
    match: KeyMatch | None,
    recorded: RecordedDeletes,
    on_stale: str,
    by_key: bool,
    tombstones_possible: bool,
) -> MergeProgram:
    """Return the program of a merge whose source rows stand beside the target rows they are paired with.

    Where they are paired ``by_key``, the primary key, the joined row shows tombstones too.
    """
    slots: list[OutputRow] = []
    firings: list[ClauseFiring] = []
    shows_all = by_key or not tombstones_possible or not analysis.definition.watermarkKey
    for position, plan in enumerate(analysis.clauses):
        first = len(slots)
        for row in plan.rows:
            slots += _slots_of(analysis, match, row, by_key, shows_all)
        slots[first:] = _beside_change(analysis.definition, slots[first:], first)
        firings.append(ClauseFiring(position, tuple(range(first, len(slots)))))
    for position, delete in recorded:
        if delete is not None:
            firings.append(ClauseFiring(position, (len(slots),), is_recorded_delete=True))
            slots.append(OutputRow(delete))
    if (unfit := unfit_row(analysis)) is not None:
        firings.append(ClauseFiring(unfit.clause, (len(slots),), is_recorded_delete=True))
        slots.append(OutputRow(unfit))
    is_pair = _is_pair(analysis, match if by_key else None)
    return MergeProgram(analysis, tuple(slots), tuple(firings), on_stale, match, is_pair, recorded)


UNFIT = -1
"""Instead of the position of a clause: a source row whose key cannot be one of the table (S17a)."""


def unfit_row(analysis: Analysis) -> row_kinds.BlindDelete | None:
    """Return the row that carries the key of such a source row, to be refused or rejected; None if every key fits by its type."""
    if not any(key.way.may_fail for key in analysis.keys.values()):
        return None
    values: dict[str, row_kinds.Value] = dict.fromkeys(
        (f.name for f in analysis.definition.stored_fields), row_kinds.Null()
    )
    values[analysis.definition.tombstone_column] = row_kinds.TombstoneMarker()
    return row_kinds.BlindDelete(UNFIT, {**values, **analysis.keys})


def is_unfit(analysis: Analysis) -> Sql:
    """Return SQL over the source that is true for such rows; never null."""
    own, found = analysis.definition, []
    for name, key in analysis.keys.items():
        if key.way.may_fail:
            value = as_sql(str(key.value))
            stored = cast_to_column(value, key.way, own.field(name), is_key=True, kind=key.type)
            found.append(E.all_of([E.is_not_null(value), E.is_null(Sql(f"({stored})"))]))
    return E.any_of(found)


def _is_pair(analysis: Analysis, match: KeyMatch | None) -> Sql | Column:
    """Return True if a row of the joined sides is a pair: by its key, and what else the condition asks; or by the join itself."""
    if analysis.source is None:
        return E.FALSE
    if match is None:
        return E.all_of([E.is_not_null(C.LIVE), E.is_not_null(C.IN_SOURCE)])
    is_live = E.or_else(C.LIVE, E.FALSE)
    if match.exact or analysis.condition is None:
        return is_live
    return choose([(is_live, choose([(analysis.condition, E.TRUE)], E.FALSE))], E.FALSE)


def blind(analysis: Analysis, outcomes: Outcomes, on_stale: str, **facts: Any) -> MergeProgram:
    """Return the program of a merge that does not look at its target; arguments as of :class:`MergeProgram`, all by name."""
    written: list[tuple[int, row_kinds.BlindDelete | row_kinds.InsertedRow]] = [*outcomes.tombstones, *outcomes.inserts]
    if (unfit := unfit_row(analysis)) is not None:
        written.append((unfit.clause, unfit))
    firings = (ClauseFiring(c, (n,), row.is_recorded) for n, (c, row) in enumerate(written))
    slots = tuple(OutputRow(row) for _, row in written)
    return MergeProgram(analysis, slots, tuple(firings), on_stale, outcomes=outcomes, knows_target=False, **facts)


def _slots_of(
    analysis: Analysis, match: KeyMatch | None, row: row_kinds.RowKind, by_key: bool, shows_all: bool
) -> list[OutputRow]:
    keeps = keeps_key(analysis, match, row)
    is_exact = match is not None and match.exact
    is_unpaired = isinstance(analysis.clauses[row.clause].clause, WhenNotMatched)
    may_hit = row.may_hit_live_key(keeps, is_unpaired and is_exact)
    known = row.is_joined_row(may_hit, is_unpaired and keeps and shows_all and (is_exact or by_key))
    left = row.old_key_rows(analysis.definition) if may_hit else ()
    return [OutputRow(row, known, may_hit), *(OutputRow(departure, False) for departure in left)]


def _beside_change(definition: TableDefinition, slots: Sequence[OutputRow], first: int) -> list[OutputRow]:
    """Return the slots of one clause; its inserts know the update or delete beside them, if that can be stale (S21a)."""
    change = next((first + i for i, s in enumerate(slots) if s.row.can_be_late(definition)), None)
    return [attrs.evolve(s, beside=change) if s.row.goes_with_change else s for s in slots]


def in_slots(numbers: Iterable[int]) -> Sql:
    """Return True if a row is of one of these slots, as SQL."""
    listed = ", ".join(map(str, numbers))
    return Sql(f"{C.SLOT} IN ({listed})") if listed else E.FALSE


def where_slots(conditions: Mapping[int, Sql]) -> Sql:
    """Return True if the condition of a row's slot is, as SQL; slots that share one share a branch."""
    shared = {condition: numbers for condition, numbers in _shared(conditions).items() if condition != E.FALSE}
    return E.any_of(in_slots(ns) if c == E.TRUE else E.all_of([in_slots(ns), c]) for c, ns in shared.items())


def by_slot(values: Mapping[int, Sql]) -> Sql:
    """Return the value for a row's slot; slots that share a value share a branch."""
    return E.case((in_slots(numbers), value) for value, numbers in _shared(values).items())


def _shared(values: Mapping[int, Sql]) -> dict[Sql, list[int]]:
    numbers_of: dict[Sql, list[int]] = {}
    for number, value in values.items():
        numbers_of.setdefault(value, []).append(number)
    return numbers_of


def before_watermarks(definition: TableDefinition) -> list[Sql]:
    """Return the columns with the watermark of the target row a source row was paired by."""
    return [C.BEFORE(i) for i in range(len(definition.watermarkKey))]
