"""The kinds of rows a merge writes, where their values come from, and what they mean to readers (S9-S11, S21-S26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import attrs
from pyspark.sql import Column
from pyspark.sql.types import DataType

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import CastPolicy
from trinitymerge.spark.sql_text import Sql


@attrs.frozen
class Effect:
    """One effect.

    Attributes:
        inserted, updated, deleted: what a key counts for whose freshest row has it.
        is_move: the row has come from another key; where another row is fresher, it is deleted.
        replaces: a row that has a pre-image takes its place, and history inserts are made of that (S27).
        is_stale: the row is older than what it would replace (S11).
    """

    text: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    is_move: bool = False
    replaces: bool = False
    is_stale: bool = False

    def __str__(self) -> str:
        return self.text


INSERTED = Effect("insert", inserted=1)
UPDATED = Effect("update", updated=1, replaces=True)
DELETED = Effect("delete", deleted=1, replaces=True)
MOVED = Effect("move", updated=1, is_move=True, replaces=True)
MOVED_OVER_DELETED = Effect("move+delete", updated=1, deleted=1, is_move=True, replaces=True)
NO_EFFECT = Effect("none", replaces=True)
"""Of a row that shows readers nothing else than before: a recorded delete, a tombstone over nothing; and a move that comes once
more, or as a tombstone, which replaces its pre-image all the same."""

LATE = Effect("stale", is_stale=True)
STALE_MOVE = Effect("stale move", is_stale=True)
SUPPRESSED = Effect("suppressed")
"""Of an insert that is not written, because the update or delete beside it is stale (S21a)."""

UNCHANGED = Effect("unchanged")
"""Of an update that is not written, because it would change nothing (S22b)."""

DUPLICATE = Effect("duplicate")
"""Of a row that arrives at a live key which the merge does not free: the merge is refused (S25)."""

CONFLICTING_MOVE = Effect("conflicting_move")
"""Of a row that moves and is changed otherwise, or moves to two places: the merge is refused (S24)."""

EFFECTS = (INSERTED, UPDATED, DELETED, MOVED, MOVED_OVER_DELETED, NO_EFFECT,
           LATE, STALE_MOVE, SUPPRESSED, UNCHANGED, DUPLICATE, CONFLICTING_MOVE)  # fmt: skip

_STALE = ", ".join(E.text_literal(effect.text) for effect in EFFECTS if effect.is_stale)
HAS_STALE_EFFECT = Sql(f"{C.EFFECT} IN ({_STALE})")
"""SQL that is true if a compiled or staged row is older than what it would replace; null where that is not known."""

COUNTS = ("inserted", "updated", "deleted")
"""The attributes of :class:`Effect` that are counted."""


@attrs.frozen(eq=False)
class Expression:
    """An expression over the joined sides, with its type and how it is stored (S29).

    Attributes:
        value: over the joined sides, text as the user wrote it (to be guarded by ``as_sql``) or a Column.
        alone: the same over the source alone; None if it reads the target.
        or_kept: where it is null, the target row's own value is kept; such a value is not told from the source alone.
    """

    value: str | Column
    alone: str | Column | None
    type: DataType
    way: CastPolicy
    or_kept: bool = False

    @property
    def reads_target(self) -> bool:
        return self.alone is None


@attrs.frozen
class FromTarget:
    """The target row's own value (S22)."""

    reads_target = True


@attrs.frozen
class FromReplacedRow:
    """The watermark of what the row replaces (S10.3)."""

    reads_target = True


@attrs.frozen
class Null:
    """Null; in a tombstone, the zero value of a column that cannot be null (S9)."""

    reads_target = False


@attrs.frozen
class LiveMarker:
    """The tombstone column's value on a row that is not deleted."""

    reads_target = False


@attrs.frozen
class TombstoneMarker:
    """The tombstone column's value on a deleted row (S9)."""

    reads_target = False


Value: TypeAlias = Expression | FromTarget | FromReplacedRow | Null | LiveMarker | TombstoneMarker

_TAKEN_FROM_LIVE = E.all_of([C.ARRIVES, E.not_(C.FREED_BY_DELETE), E.not_(C.FREED_BY_MOVE)])
_OVER_DELETED = E.all_of([C.ARRIVES, C.FREED_BY_DELETE, E.not_(C.FREED_BY_MOVE)])


@attrs.frozen
class Case:
    """The effect of a row that is live, or is a tombstone, if a condition holds and none before it does."""

    condition: Sql
    live: Effect
    dead: Effect

    @classmethod
    def same(cls, condition: Sql, effect: Effect) -> Case:
        return cls(condition, effect, effect)


@attrs.frozen(eq=False)
class WrittenRow:
    """The common part of all kinds: the position of the clause, from 0, and a value for every stored column."""

    shown: ClassVar[str]
    """Its name in a preview."""
    changes_pre_image: ClassVar[bool] = False
    """It replaces or ends the target row that its source row was paired with, if not both."""
    goes_with_change: ClassVar[bool] = False
    """It is left out where the update or delete beside it, in the same clause, comes late (S21a)."""
    is_tombstone: ClassVar[bool] = False
    """It is always one, with its key and its watermark (S9)."""
    is_recorded: ClassVar[bool] = False
    """It is of a key that is not live, and ends no row: so it is never stale, and what it replaces may have no watermark (S18)."""

    clause: int
    values: Mapping[str, Value]

    @property
    def reads_target(self) -> bool:
        return any(v.reads_target for v in self.values.values())

    @property
    def is_compared(self) -> bool:
        """True if it is not written where nothing of the target row changes (S22b)."""
        return False

    @property
    def moved_by(self) -> UpdatedRow | None:
        """The moving row that leaves it at the key it comes from (S24), if one does."""
        return None

    @classmethod
    def called(cls, knows_target: bool) -> str:
        """Return what a preview calls it, where the target is read or not."""
        return cls.shown

    def can_be_late(self, definition: TableDefinition) -> bool:
        """Return True for a change of a target row whose watermark the clause assigns (S10.3, S11, S21a)."""
        assigned = [w for w in definition.watermarkKey if not isinstance(self.values[w], FromReplacedRow)]
        return self.changes_pre_image and bool(assigned)

    def assigned_key(self, definition: TableDefinition) -> dict[str, Value]:
        """Return the parts of the primary key that the row sets itself: only they can differ from the pair's key."""
        return {}

    def may_hit_live_key(self, keeps_key: bool, is_unpaired: bool) -> bool:
        """Return True if the row may come to a key that is live, other than by replacing its own pre-image (S24, S25).

        It ``keeps_key`` if this is known to be the one its source row was paired by.
        """
        return False

    def is_joined_row(self, may_hit: bool, is_found: bool) -> bool:
        """Return True if what its key holds is the target row that its source row stands beside; otherwise it must be looked up.

        It ``is_found`` if a source row without a pair stands beside what its key holds, and the row has that key.
        """
        return True

    def old_key_rows(self, definition: TableDefinition) -> tuple[OldKeyTombstone, ...]:
        """Return the rows it leaves under the key that it comes from; for rows that may hit a live key (S24)."""
        return ()

    def targets_live_key(self) -> Sql:
        """Return SQL that is true if the row moves to its key or is inserted there; for rows that may hit a live key."""
        return E.FALSE

    def brings_tombstone(self, definition: TableDefinition) -> bool:
        """Return True if the data decide whether the row is a tombstone (S9)."""
        return isinstance(self.values[definition.tombstone_column], Expression)

    def vacates_by_delete(self, is_dead: Sql, may_die: bool) -> Sql:
        """Return SQL that is true if the row deletes the live row at its key (S25). ``may_die``: :meth:`brings_tombstone`."""
        return E.FALSE

    def vacates_by_move(self) -> Sql:
        """Return SQL that is true if the live row at the row's key has moved away (S24)."""
        return E.FALSE

    def effects(self) -> tuple[Case, ...]:
        """Return the cases of the row's effect; the first that holds applies (S30a)."""
        raise NotImplementedError

    def skip_conditions(self, is_dead: Sql, may_die: bool, storable: Sql, on_stale: str) -> tuple[Sql, ...]:
        """Return SQL conditions under which the row is not written (S21a, S24, S25).

        Rows that are not ``storable``, for a null, are kept, for the refusal to name them, where what leaves them out may be that
        very value. So are stale rows if ``on_stale`` is ``"error"``.
        """
        return ()


@attrs.frozen(eq=False)
class UpdatedRow(WrittenRow):
    """The new version of a target row (S22).

    Attributes:
        moves: it assigns the primary key, and so may change it (S24).
        only_if_changed: it is not written where nothing of the target row changes (S22b).
    """

    shown: ClassVar[str] = "update"
    changes_pre_image: ClassVar[bool] = True
    moves: bool = False
    only_if_changed: bool = False

    @property
    def is_compared(self) -> bool:
        return self.only_if_changed

    @property
    def reads_target(self) -> bool:
        return self.only_if_changed or any(v.reads_target for v in self.values.values())

    def assigned_key(self, definition: TableDefinition) -> dict[str, Value]:
        key = {k: self.values[k] for k in definition.primaryKey} if self.moves else {}
        return {k: v for k, v in key.items() if isinstance(v, Expression)}

    def may_hit_live_key(self, keeps_key: bool, is_unpaired: bool) -> bool:
        return not keeps_key

    def is_joined_row(self, may_hit: bool, is_found: bool) -> bool:
        return not may_hit

    def old_key_rows(self, definition: TableDefinition) -> tuple[OldKeyTombstone, ...]:
        return (OldKeyTombstone.from_key(self, definition),)

    def targets_live_key(self) -> Sql:
        return E.all_of([C.CHANGED, E.not_(C.IS_STALE)])

    def vacates_by_delete(self, is_dead: Sql, may_die: bool) -> Sql:
        return E.all_of([E.not_(C.CHANGED), is_dead]) if may_die else E.FALSE

    def effects(self) -> tuple[Case, ...]:
        moved = (
            Case.same(_TAKEN_FROM_LIVE, DUPLICATE),
            Case.same(C.IS_CONFLICTING_MOVE, CONFLICTING_MOVE),
            Case.same(E.all_of([C.CHANGED, C.IS_STALE]), STALE_MOVE),
            Case.same(C.IS_STALE, LATE),
            Case.same(C.IS_REPEATED, NO_EFFECT),
            Case(E.all_of([C.CHANGED, _OVER_DELETED]), MOVED_OVER_DELETED, DELETED),
            Case(C.CHANGED, MOVED, NO_EFFECT),
        )
        stays = (Case.same(C.IS_CONFLICTING_MOVE, CONFLICTING_MOVE), Case.same(C.IS_STALE, LATE))
        return (*(moved if self.moves else stays), Case(E.TRUE, UPDATED, DELETED))

    def skip_conditions(self, is_dead: Sql, may_die: bool, storable: Sql, on_stale: str) -> tuple[Sql, ...]:
        taken = (E.all_of([C.KEY_TAKEN, E.not_(C.CHANGED), is_dead]),) if may_die else ()
        stale_move = (E.all_of([C.CHANGED, C.IS_STALE, storable]),) if self.moves and on_stale != "error" else ()
        return (*taken, *stale_move)


@attrs.frozen(eq=False)
class OldKeyTombstone(WrittenRow):
    """The tombstone of the key that a moving row leaves (S24)."""

    shown: ClassVar[str] = "delete"
    is_tombstone: ClassVar[bool] = True
    of: UpdatedRow

    @property
    def moved_by(self) -> UpdatedRow | None:
        return self.of

    @classmethod
    def from_key(cls, row: UpdatedRow, definition: TableDefinition) -> OldKeyTombstone:
        values: dict[str, Value] = dict.fromkeys(row.values, Null())
        values |= {n: FromTarget() for n in definition.primaryKey}
        values |= {n: row.values[n] for n in definition.watermarkKey}
        values[definition.tombstone_column] = TombstoneMarker()
        return cls(row.clause, values, row)

    def vacates_by_delete(self, is_dead: Sql, may_die: bool) -> Sql:
        return E.all_of([C.CHANGED, C.BECOMES_TOMBSTONE])

    def vacates_by_move(self) -> Sql:
        return E.all_of([C.CHANGED, E.not_(C.BECOMES_TOMBSTONE)])

    def effects(self) -> tuple[Case, ...]:
        """Return no effect, because the moved row counts; a delete if it is gone."""
        return (Case.same(C.BECOMES_TOMBSTONE, DELETED), Case.same(E.TRUE, NO_EFFECT))

    def skip_conditions(self, is_dead: Sql, may_die: bool, storable: Sql, on_stale: str) -> tuple[Sql, ...]:
        return (C.KEY_TAKEN, E.not_(C.CHANGED), E.all_of([C.CHANGED, C.IS_STALE, storable]))


@attrs.frozen(eq=False)
class Tombstone(WrittenRow):
    """The delete of a target row (S9)."""

    shown: ClassVar[str] = "delete"
    changes_pre_image: ClassVar[bool] = True
    is_tombstone: ClassVar[bool] = True

    def vacates_by_delete(self, is_dead: Sql, may_die: bool) -> Sql:
        return E.TRUE

    def effects(self) -> tuple[Case, ...]:
        conflicting = Case.same(C.IS_CONFLICTING_MOVE, CONFLICTING_MOVE)
        return (conflicting, Case.same(C.IS_STALE, LATE), Case.same(E.TRUE, DELETED))

    def skip_conditions(self, is_dead: Sql, may_die: bool, storable: Sql, on_stale: str) -> tuple[Sql, ...]:
        return (C.KEY_TAKEN,)


@attrs.frozen(eq=False)
class BlindDelete(WrittenRow):
    """The tombstone of a key that is not live, for rows of it that come later and are older (S18)."""

    shown: ClassVar[str] = "delete"
    is_tombstone: ClassVar[bool] = True
    is_recorded: ClassVar[bool] = True

    def effects(self) -> tuple[Case, ...]:
        return (Case.same(E.TRUE, NO_EFFECT),)


@attrs.frozen(eq=False)
class InsertedRow(WrittenRow):
    """An inserted row (S23)."""

    shown: ClassVar[str] = "insert"
    goes_with_change: ClassVar[bool] = True

    @classmethod
    def called(cls, knows_target: bool) -> str:
        """Return the name in a preview; without the target, it is unknown whether the key exists."""
        return cls.shown if knows_target else "upsert"

    def assigned_key(self, definition: TableDefinition) -> dict[str, Value]:
        return {k: self.values[k] for k in definition.primaryKey}

    def may_hit_live_key(self, keeps_key: bool, is_unpaired: bool) -> bool:
        """Return True unless its key is known to be free: that of a source row without a pair."""
        return not (is_unpaired and keeps_key)

    def is_joined_row(self, may_hit: bool, is_found: bool) -> bool:
        """Return True only without a pair: with one, its key may be any."""
        return is_found

    def targets_live_key(self) -> Sql:
        return E.TRUE

    def effects(self) -> tuple[Case, ...]:
        """Return an insert; an update where it takes the key of a row that the merge deletes."""
        return (
            Case.same(C.IS_SUPPRESSED, SUPPRESSED),
            Case.same(_TAKEN_FROM_LIVE, DUPLICATE),
            Case.same(C.IS_STALE, LATE),
            Case(_OVER_DELETED, UPDATED, DELETED),
            Case(E.TRUE, INSERTED, NO_EFFECT),
        )

    def skip_conditions(self, is_dead: Sql, may_die: bool, storable: Sql, on_stale: str) -> tuple[Sql, ...]:
        return (E.all_of([C.IS_SUPPRESSED, storable]),)


RowKind: TypeAlias = UpdatedRow | OldKeyTombstone | Tombstone | BlindDelete | InsertedRow
