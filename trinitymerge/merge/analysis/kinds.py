"""The kinds of rows that a merge writes: a closed union (S9, S18, S21-S26).

Owns: what each kind is, and all that programs and steps ask it: whether it may arrive at a live key, whether it frees one,
what it means to readers, when it is left out after all, and what it is called in a preview. A new kind is a class here, an
entry in :data:`Kind`, and whoever makes it in ``resolution.py``, ``outcomes.py`` or ``program.py``.

The answers are SQL over the columns that :mod:`trinitymerge.merge.compile.settling` has found by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import attrs

from trinitymerge.columns import (
    ARRIVES,
    CHANGED,
    DIES,
    FREED_BY_DELETE,
    FREED_BY_MOVE,
    IS_REPEATED,
    IS_STALE,
    IS_TORN,
    IS_WITHHELD,
    TAKEN,
)
from trinitymerge.definition import TableDefinition
from trinitymerge.merge.analysis.effects import (
    DELETED,
    DUPLICATE,
    INSERTED,
    MOVED,
    MOVED_OVER_DELETED,
    NOTHING,
    STALE,
    STALE_MOVE,
    TORN,
    UPDATED,
    WITHHELD,
    Effect,
)
from trinitymerge.merge.analysis.values import Carried, Dead, Given, Null, Replaced, Value

_TAKEN_FROM_LIVE = f"{ARRIVES} AND NOT {FREED_BY_DELETE} AND NOT {FREED_BY_MOVE}"
_OVER_DELETED = f"{ARRIVES} AND {FREED_BY_DELETE} AND NOT {FREED_BY_MOVE}"


@attrs.frozen
class Case:
    """What a row means if a condition holds and none before it does.

    Attributes:
        condition: SQL.
        live: the effect of a row that is no tombstone.
        dead: that of a tombstone.
    """

    condition: str
    live: Effect
    dead: Effect

    @classmethod
    def same(cls, condition: str, effect: Effect) -> Case:
        """The same effect either way."""
        return cls(condition, effect, effect)


@attrs.frozen(eq=False)
class WrittenRow:
    """What all kinds have in common.

    Attributes:
        clause: position of the clause, from 0.
        values: for every stored column.
    """

    shown: ClassVar[str]
    """What a preview calls it."""

    changes_pre_image: ClassVar[bool] = False
    """It replaces or ends the target row that its source row was paired with, if not both."""

    goes_with_change: ClassVar[bool] = False
    """It is left out where the update or delete beside it, in the same clause, comes late (S21a)."""

    clause: int
    values: Mapping[str, Value]

    @property
    def reads_target(self) -> bool:
        """True if any value depends on the target row."""
        return any(v.reads_target for v in self.values.values())

    @classmethod
    def called(cls, knows_target: bool) -> str:
        """What a preview calls it, where the target is read or not."""
        return cls.shown

    def can_be_late(self, definition: TableDefinition) -> bool:
        """True for a change of a target row whose watermark somebody assigns (S10.3, S11, S21a)."""
        return self.changes_pre_image and any(not isinstance(self.values[w], Replaced) for w in definition.watermarkKey)

    def assigned_key(self, definition: TableDefinition) -> dict[str, Value]:
        """The parts of the primary key that the row sets itself: only they can differ from the pair's key."""
        return {}

    def may_arrive(self, keeps_key: bool, is_unpaired: bool) -> bool:
        """True if the row may come to a key that is live, other than by replacing its own pre-image (S24, S25).

        Args:
            keeps_key: its key is known to be the one its source row was paired by.
            is_unpaired: its source row has no pair.
        """
        return False

    def stands_beside(self, may_arrive: bool, is_told: bool) -> bool:
        """True if what its key holds is the target row that its source row stands beside; otherwise it must be looked up.

        Args:
            may_arrive: :meth:`may_arrive`.
            is_told: a source row without a pair stands beside what its key holds, and the row has that key.
        """
        return True

    def left_behind(self, definition: TableDefinition) -> tuple[Departure, ...]:
        """The rows it leaves under the key that it comes from; asked of rows that may arrive (S24)."""
        return ()

    def arrives(self) -> str:
        """The row comes to its key rather than being there, as SQL; asked of rows that may arrive."""
        return "false"

    def brings_tombstone(self, definition: TableDefinition) -> bool:
        """True if the data decide whether the row is a tombstone (S9)."""
        return isinstance(self.values[definition.tombstone_column], Given)

    def frees_by_delete(self, is_dead: str, may_die: bool) -> str:
        """The live row at the row's key is deleted by it, as SQL (S25).

        Args:
            is_dead: SQL: the row is a tombstone.
            may_die: :meth:`brings_tombstone`.
        """
        return "false"

    def frees_by_move(self) -> str:
        """The live row at the row's key has moved on, as SQL (S24)."""
        return "false"

    def effects(self) -> tuple[Case, ...]:
        """What the row means to readers; the first that holds (S30a)."""
        raise NotImplementedError

    def left_out(self, is_dead: str, may_die: bool, storable: str, on_stale: str) -> tuple[str, ...]:
        """When the row is not written after all, as SQL; any of them (S21a, S24, S25).

        Args:
            is_dead: SQL: the row is a tombstone.
            may_die: :meth:`brings_tombstone`.
            storable: SQL: nothing is null that may not be. A row that cannot be stored is kept, for the refusal to name it,
                where what leaves it out may be that very value.
            on_stale: the policy: under ``"error"`` stale rows are kept, for the refusal to name them.
        """
        return ()


@attrs.frozen(eq=False)
class Replace(WrittenRow):
    """The new version of a target row (S22).

    Attributes:
        moves: it assigns the primary key, and so may change it (S24).
    """

    shown: ClassVar[str] = "update"
    changes_pre_image: ClassVar[bool] = True
    moves: bool = False

    def assigned_key(self, definition: TableDefinition) -> dict[str, Value]:
        """In an update, a part of the key that is not assigned stays."""
        key = {k: self.values[k] for k in definition.primaryKey} if self.moves else {}
        return {k: v for k, v in key.items() if isinstance(v, Given)}

    def may_arrive(self, keeps_key: bool, is_unpaired: bool) -> bool:
        """True if it moves."""
        return not keeps_key

    def stands_beside(self, may_arrive: bool, is_told: bool) -> bool:
        """True unless it may move."""
        return not may_arrive

    def left_behind(self, definition: TableDefinition) -> tuple[Departure, ...]:
        """The tombstone of the key that it leaves."""
        return (Departure.from_key(self, definition),)

    def arrives(self) -> str:
        """It moves there; a stale move is not written, so it arrives nowhere."""
        return f"{CHANGED} AND NOT {IS_STALE}"

    def frees_by_delete(self, is_dead: str, may_die: bool) -> str:
        """By an update that writes a tombstone in place."""
        return f"NOT {CHANGED} AND {is_dead}" if may_die else "false"

    def effects(self) -> tuple[Case, ...]:
        """An update, a move, or a delete where it brings a tombstone."""
        moved = (
            Case.same(_TAKEN_FROM_LIVE, DUPLICATE),
            Case.same(IS_TORN, TORN),
            Case.same(f"{CHANGED} AND {IS_STALE}", STALE_MOVE),
            Case.same(IS_STALE, STALE),
            Case.same(IS_REPEATED, NOTHING),
            Case(f"{CHANGED} AND {_OVER_DELETED}", MOVED_OVER_DELETED, DELETED),
            Case(CHANGED, MOVED, NOTHING),
        )
        stays = (Case.same(IS_TORN, TORN), Case.same(IS_STALE, STALE))
        return (*(moved if self.moves else stays), Case("true", UPDATED, DELETED))

    def left_out(self, is_dead: str, may_die: bool, storable: str, on_stale: str) -> tuple[str, ...]:
        """A tombstone whose key another row takes; a stale move."""
        taken = (f"{TAKEN} AND NOT {CHANGED} AND {is_dead}",) if may_die else ()
        stale_move = (f"{CHANGED} AND {IS_STALE} AND {storable}",) if self.moves and on_stale != "error" else ()
        return (*taken, *stale_move)


@attrs.frozen(eq=False)
class Departure(WrittenRow):
    """The tombstone of the key that a moving row leaves (S24).

    Attributes:
        of: the row that moves.
    """

    shown: ClassVar[str] = "delete"
    of: Replace

    @classmethod
    def from_key(cls, row: Replace, definition: TableDefinition) -> Departure:
        """What a moving row leaves behind: the old key, and the watermark it has been given."""
        values: dict[str, Value] = dict.fromkeys(row.values, Null())
        values |= {n: Carried() for n in definition.primaryKey}
        values |= {n: row.values[n] for n in definition.watermarkKey}
        values[definition.tombstone_column] = Dead()
        return cls(row.clause, values, row)

    def frees_by_delete(self, is_dead: str, may_die: bool) -> str:
        """What moves as a tombstone is deleted: it lives nowhere any more."""
        return f"{CHANGED} AND {DIES}"

    def frees_by_move(self) -> str:
        """By the move that it is the trace of."""
        return f"{CHANGED} AND NOT {DIES}"

    def effects(self) -> tuple[Case, ...]:
        """Nothing: the row that moved counts, unless it is gone."""
        return (Case.same(DIES, DELETED), Case.same("true", NOTHING))

    def left_out(self, is_dead: str, may_die: bool, storable: str, on_stale: str) -> tuple[str, ...]:
        """Where the key stays the same after all, another row takes it, or the move is stale."""
        return (TAKEN, f"NOT {CHANGED}", f"{CHANGED} AND {IS_STALE} AND {storable}")


@attrs.frozen(eq=False)
class Tombstone(WrittenRow):
    """The delete of a target row (S9)."""

    shown: ClassVar[str] = "delete"
    changes_pre_image: ClassVar[bool] = True

    def frees_by_delete(self, is_dead: str, may_die: bool) -> str:
        """Always."""
        return "true"

    def effects(self) -> tuple[Case, ...]:
        """A delete."""
        return (Case.same(IS_TORN, TORN), Case.same(IS_STALE, STALE), Case.same("true", DELETED))

    def left_out(self, is_dead: str, may_die: bool, storable: str, on_stale: str) -> tuple[str, ...]:
        """Where another row takes the key."""
        return (TAKEN,)


@attrs.frozen(eq=False)
class RecordedDelete(WrittenRow):
    """The tombstone of a key that is not live, for rows of it that come later and are older (S18). Ends no row; never stale."""

    shown: ClassVar[str] = "delete"

    def effects(self) -> tuple[Case, ...]:
        """Nothing."""
        return (Case.same("true", NOTHING),)


@attrs.frozen(eq=False)
class New(WrittenRow):
    """An inserted row (S23)."""

    shown: ClassVar[str] = "insert"
    goes_with_change: ClassVar[bool] = True

    @classmethod
    def called(cls, knows_target: bool) -> str:
        """Without a look at the target it is not known whether the key is there."""
        return cls.shown if knows_target else "upsert"

    def assigned_key(self, definition: TableDefinition) -> dict[str, Value]:
        """The whole key."""
        return {k: self.values[k] for k in definition.primaryKey}

    def may_arrive(self, keeps_key: bool, is_unpaired: bool) -> bool:
        """True unless its key is known to be free: that of a source row without a pair."""
        return not (is_unpaired and keeps_key)

    def stands_beside(self, may_arrive: bool, is_told: bool) -> bool:
        """Only without a pair: beside one, its key may be any."""
        return is_told

    def arrives(self) -> str:
        """Always."""
        return "true"

    def effects(self) -> tuple[Case, ...]:
        """An insert; an update where it takes the key of a row that the merge deletes."""
        return (
            Case.same(IS_WITHHELD, WITHHELD),
            Case.same(_TAKEN_FROM_LIVE, DUPLICATE),
            Case.same(IS_STALE, STALE),
            Case(_OVER_DELETED, UPDATED, DELETED),
            Case("true", INSERTED, NOTHING),
        )

    def left_out(self, is_dead: str, may_die: bool, storable: str, on_stale: str) -> tuple[str, ...]:
        """Where the change beside it comes late (S21a)."""
        return (f"{IS_WITHHELD} AND {storable}",)


Kind: TypeAlias = Replace | Departure | Tombstone | RecordedDelete | New
