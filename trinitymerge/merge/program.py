"""A merge compiled for one path, as plain data: which rows it can write, by number, and the columns that carry what is known.

Owns: :class:`Program` and :class:`Slot`, and the names of the technical columns that pass from step to step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import attrs

from trinitymerge.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.merge.analysis import Analysis, Carried, Dead, Given, Null, Replaced, Template, Value
from trinitymerge.merge.assignment import Storing
from trinitymerge.merge.clauses import WhenNotMatched
from trinitymerge.merge.frames import before_watermark
from trinitymerge.merge.paths import Outcomes, Path, Paths, keeps_key, may_arrive

CLAUSE = HIDDEN_PREFIX + "clause"
"""Stored with every row: the position of the clause that wrote it, from 1."""

EFFECT = HIDDEN_PREFIX + "effect"
"""Stored with every row: what it means for its key's readers if it is the batch's freshest (S30a); null if unknown."""

ACTION = HIDDEN_PREFIX + "action"
SLOT = HIDDEN_PREFIX + "slot"
KEEP = HIDDEN_PREFIX + "keep"
MISFIT = HIDDEN_PREFIX + "misfit"
FOUND_LIVE = HIDDEN_PREFIX + "found_live"
"""What a probe has found under a written key is a live row."""

FIRING = HIDDEN_PREFIX + "firing"
"""Of rows that one clause writes for one pair or target row: a number they share (S21a)."""

LATE = HIDDEN_PREFIX + "late"
"""Of an insert beside an update or delete that stays in place: that is stale (S21a)."""

DIES = HIDDEN_PREFIX + "dies"
"""Of a row of a moving update: it is a tombstone where it goes."""

UNDECIDED = -1
"""Slot of a source row whose outcome depends on whether its key exists, on the blind path."""


@attrs.frozen(eq=False)
class Slot:
    """One kind of row to write, by number.

    Attributes:
        template: where its values come from.
        action: ``"update"``, ``"delete"``, ``"insert"``, ``"leave"`` (the tombstone a move leaves behind) or
            ``"absent delete"`` (the tombstone of a key that is not live).
        known: the joined row tells what the written key holds; otherwise it must be probed.
        may_arrive: the row may come to a key that is live (S24, S25).
        beside: of an insert: the slot of its clause's update or delete, if that may be stale (S21a).
    """

    template: Template
    action: str
    known: bool
    may_arrive: bool = False
    beside: int | None = None


@attrs.frozen(eq=False, slots=False)
class Program:
    """A merge compiled for one path: its slots, and which of them each fired clause fills.

    Attributes:
        analysis: the merge.
        path: the path.
        slots: by number.
        by_fired: fired code -> slot numbers. Codes are clause positions from 1; absent deletes are their negatives.
    """

    analysis: Analysis
    path: Path
    slots: tuple[Slot, ...]
    by_fired: dict[int, tuple[int, ...]]

    @property
    def definition(self) -> TableDefinition:
        """The target's definition."""
        return self.analysis.definition

    def numbers(self, *actions: str) -> list[int]:
        """The slots of some actions."""
        return [n for n, s in enumerate(self.slots) if s.action in actions]

    @cached_property
    def moving_updates(self) -> tuple[int, ...]:
        """The slots of updates that may change the primary key (S24); each is followed by the tombstone it leaves."""
        return tuple(n - 1 for n in self.numbers("leave"))

    @property
    def moves(self) -> bool:
        """Can the merge change primary keys (S24)."""
        return bool(self.moving_updates)

    @cached_property
    def beside_changes(self) -> dict[int, int]:
        """The inserts that are not written if a change in their clause is stale, and the slots of these changes (S21a)."""
        return {n: s.beside for n, s in enumerate(self.slots) if s.beside is not None}

    @cached_property
    def beside_moves(self) -> tuple[int, ...]:
        """Those beside an update that may move: whether it is stale is only known when its new key has been looked up."""
        return tuple(n for n, change in self.beside_changes.items() if change in self.moving_updates)

    @cached_property
    def brings_tombstones(self) -> bool:
        """May a row turn out to be a tombstone by what the data say, and not by what wrote it (S9)."""
        return any(isinstance(s.template.values[self.definition.tombstone_column], Given) for s in self.slots)

    @cached_property
    def unknown(self) -> tuple[int, ...]:
        """The slots whose rows must be told what their key holds."""
        return tuple(n for n, s in enumerate(self.slots) if not s.known)

    @cached_property
    def is_checked(self) -> bool:
        """May a value of the merge turn out not to fit its column when it runs (S29)."""
        slots = (s.template for s in self.slots)
        clauses = (t for c in self.analysis.clauses for t in c.templates)
        values = (v for t in (*slots, *clauses) for v in t.values.values())
        return any(isinstance(v, Given) and v.way is Storing.CHECKED for v in values)

    @cached_property
    def used_twice(self) -> frozenset[str]:
        """The columns whose values decide something besides being stored."""
        own, twice = self.definition, set[str]()
        if self.moves:  # the new key and tombstone are asked for by the row and by the tombstone it leaves behind
            twice |= {*own.primaryKey, own.tombstone_column}
        if self.is_checked:  # the tombstone also says whether the other values are judged (S9)
            twice.add(own.tombstone_column)
        if self.beside_changes:  # the watermark also says whether the inserts beside are written (S21a)
            twice.update(own.watermarkKey)
        return frozenset(twice)

    def first_slot(self, position: int) -> int | None:
        """The slot that is filled once whenever the clause at a position fires."""
        return next(iter(self.by_fired.get(position + 1, ())), None)


def program_for(analysis: Analysis, paths: Paths, path: Path, tombstones_possible: bool) -> Program:
    """Numbers the rows a merge can write on a path.

    Args:
        analysis: the merge.
        paths: the verdict; ``path`` must be sound.
        path: the path to compile for.
        tombstones_possible: may the target hold tombstones.
    """
    if path is Path.BLIND:
        return _blind_program(analysis, paths.outcomes)
    slots: list[Slot] = []
    by_fired: dict[int, tuple[int, ...]] = {}
    for position, plan in enumerate(analysis.clauses):
        first = len(slots)
        for template in plan.templates:
            slots += _slots_of(analysis, paths, path, template, tombstones_possible)
        slots[first:] = _beside_change(analysis.definition, slots[first:], first)
        by_fired[position + 1] = tuple(range(first, len(slots)))
    for position, absent in paths.absent_deletes:
        if absent is not None:
            by_fired[-(position + 1)] = (len(slots),)
            slots.append(Slot(absent, "absent delete", known=True))
    return Program(analysis, path, tuple(slots), by_fired)


def _blind_program(analysis: Analysis, outcomes: Outcomes) -> Program:
    slots = (
        *(Slot(template, "absent delete", known=True) for _, template in outcomes.tombstones),
        *(Slot(template, "insert", known=True) for _, template in outcomes.inserts),
    )
    return Program(analysis, Path.BLIND, slots, {n + 1: (n,) for n in range(len(slots))})


def _slots_of(
    analysis: Analysis, paths: Paths, path: Path, template: Template, tombstones_possible: bool
) -> list[Slot]:
    if template.action == "delete":
        return [Slot(template, "delete", known=True)]
    if template.action == "update":
        if not may_arrive(analysis, paths.key_match, template):
            return [Slot(template, "update", known=True)]
        return [
            Slot(template, "update", known=False, may_arrive=True),
            Slot(_leave(analysis, template), "leave", known=False),
        ]
    exact = paths.key_match is not None and paths.key_match.exact
    not_matched = isinstance(analysis.clauses[template.clause].clause, WhenNotMatched)
    own_key = not_matched and keeps_key(analysis, paths.key_match, template)
    hidden_shown = path is Path.KEYED or not tombstones_possible or not analysis.definition.watermarkKey
    known = own_key and hidden_shown and (exact or path is Path.KEYED)
    return [Slot(template, "insert", known, may_arrive(analysis, paths.key_match, template))]


def _beside_change(definition: TableDefinition, slots: Sequence[Slot], first: int) -> list[Slot]:
    """The slots of one clause; its inserts know the update or delete beside them, if that can be stale (S21a)."""
    assigned = [
        first + i
        for i, s in enumerate(slots)
        if s.action in ("update", "delete")
        and any(not isinstance(s.template.values[w], Replaced) for w in definition.watermarkKey)
    ]
    change = assigned[0] if assigned else None
    return [attrs.evolve(s, beside=change) if s.action == "insert" else s for s in slots]


def _leave(analysis: Analysis, update: Template) -> Template:
    """The tombstone of the key that a move leaves (S24)."""
    own = analysis.definition
    values: dict[str, Value] = dict.fromkeys(update.values, Null())
    values |= {n: Carried() for n in own.primaryKey} | {n: update.values[n] for n in own.watermarkKey}
    values[own.tombstone_column] = Dead()
    return Template(update.clause, "leave", values)


# SQL over slots -------------------------------------------------------------------------------------------------------


def in_slots(numbers: Iterable[int]) -> str:
    """Is a row of one of these slots."""
    listed = ", ".join(map(str, numbers))
    return f"{SLOT} IN ({listed})" if listed else "false"


def of_actions(program: Program, *actions: str) -> str:
    """Is a row of one of these actions, see :class:`Slot`."""
    return in_slots(program.numbers(*actions))


def by_slot(values: dict[int, str]) -> str:
    """The value for a row's slot; slots that share a value share a branch."""
    slots_of: dict[str, list[str]] = {}
    for number, value in values.items():
        slots_of.setdefault(value, []).append(str(number))
    whens = [f"WHEN {SLOT} IN ({', '.join(numbers)}) THEN {value}" for value, numbers in slots_of.items()]
    return f"CASE {' '.join(whens)} END" if whens else "NULL"


def before_watermarks(definition: TableDefinition) -> list[str]:
    """The columns with the watermark of the target row a source row was paired by."""
    return [before_watermark(i) for i in range(len(definition.watermarkKey))]


# Names ----------------------------------------------------------------------------------------------------------------


def new_key(i: int) -> str:
    """Of a row of a moving update: the i-th column of the key it goes to."""
    return f"{HIDDEN_PREFIX}n{i}"


def old_key(i: int) -> str:
    """Of a row of a moving update: the i-th column of the key it leaves."""
    return f"{HIDDEN_PREFIX}o{i}"


def found_watermark(i: int) -> str:
    """The i-th watermark column of what a probe has found under a written key."""
    return f"{HIDDEN_PREFIX}found{i}"
