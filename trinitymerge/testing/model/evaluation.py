"""A merge, row by row (S17-S26)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.merge.model.clauses import (
    All,
    Clause,
    Delete,
    Insert,
    TableAction,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import HIDDEN_TOMBSTONE
from trinitymerge.testing.model.expressions import KeyEquality, Row, evaluate, reads_target
from trinitymerge.testing.model.outbox import owed_rows
from trinitymerge.testing.model.outcomes import Change, ClauseFiring, Counting, Key, Outcome, stale_changes
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.validate import Names, Refusals
from trinitymerge.testing.model.values import alive_value, default_value, is_tombstone, store, tombstone_value, zero


@attrs.define
class Evaluation:
    """A merge of ``source`` into the live rows of one snapshot.

    Attributes:
        names: columns of both sides.
        live: the live stored rows by key (S13).
        latest: the latest stored row of a key, dead or alive, or None.
        source: the source's rows.
        clauses: checked already.
        condition: the merge condition.
        on_stale: ``"skip"``, ``"error"`` or ``"force"``.
        commit_time: for tombstones of date and timestamp type.
        at: watermark columns that neither clause nor source decides (H2a).
    """

    names: Names
    live: Mapping[Key, Row]
    latest: Callable[[Key], Row | None]
    source: list[Row]
    clauses: tuple[Clause, ...]
    condition: Any
    on_stale: str
    commit_time: dt.datetime
    at: Mapping[str, Any]
    checks: Mapping[str, Callable[[Row], bool | None]]
    rules: RowRules = attrs.field(init=False)
    refusals: Refusals = attrs.field(init=False)
    counting: Counting = attrs.field(init=False)
    null_keys: list[ClauseFiring] = attrs.field(init=False, factory=list)
    misfits: list[SchemaMismatchError] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.rules = RowRules(self.names.definition)
        self.refusals = Refusals(self.rules, self.clauses)
        self.counting = Counting(self.rules, self.live, self.latest)

    def run(self, max_delete_fraction: float | None) -> Outcome:
        """The whole merge: who fires, what is written, what is refused (in this order), what is counted."""
        firings = self.fire()
        assigned = [(f, action, self.assign(f, action)) for f in firings for action in self.actions(f)]
        self.refusals.null_keys(self.null_keys)
        self.refuse_misfits()
        changes = [self.write(firing, action, values) for firing, action, values in assigned]
        self.decide_stale(changes)
        self.withhold_inserts(changes)
        self.leave_out_unchanged(changes)
        batch = self.batch(changes)
        self.refusals.broken(batch, self.checks)
        self.refusals.taken_keys(self.taken_keys(changes))
        self.refusals.ambiguity(changes, batch)
        if self.on_stale == "error":
            self.refusals.stale(stale_changes(changes, batch))
        outcome = self.counting.outcome(firings, changes, batch, len(self.clauses))
        self.refusals.too_many_deletes(outcome.deleted, len(self.live), max_delete_fraction)
        return attrs.evolve(outcome, owed=tuple(owed_rows(changes, self.clauses)))

    # Who fires (S17-S20) ------------------------------------------------------------------------------------

    def fire(self) -> list[ClauseFiring]:
        targets = list(self.live.values())
        both = [(t, s) for s in self.source for t in targets]
        pairs = [(t, s) for t, s in both if evaluate(self.condition, t, s) is True]  # S20
        paired_targets, paired_sources = {id(t) for t, _ in pairs}, {id(s) for _, s in pairs}
        firings = [self.first_true(WhenMatched, t, s) for t, s in pairs]  # S17
        for s in self.source:
            if id(s) not in paired_sources:  # S18
                firings.append(self.first_true(WhenNotMatched, None, s) or self.absent_delete(s))
        for t in targets:
            if id(t) not in paired_targets:  # S19
                firings.append(self.first_true(WhenOnlyOnTarget, t, None))
        return [firing for firing in firings if firing is not None]

    def first_true(self, kind: type[Any], target: Row | None, source: Row | None) -> ClauseFiring | None:
        """The first clause of a kind whose condition is true; null is not (S17-S20)."""
        for position, clause in enumerate(self.clauses):
            if isinstance(clause, kind) and self.holds(clause, target, source):
                return ClauseFiring(position, target, source)
        return None

    def holds(self, clause: Clause, target: Row | None, source: Row | None) -> bool:
        return clause.condition is None or evaluate(clause.condition, target, source) is True

    def absent_delete(self, source: Row) -> ClauseFiring | None:
        """S18: under exact key equality, a delete is recorded even if its key is not there (yet)."""
        if not isinstance(self.condition, KeyEquality) or None in self.source_key(source):
            return None
        for clause in self.clauses:
            if isinstance(clause, WhenMatched):
                if clause.condition is not None and reads_target(clause.condition):
                    return None
                if self.holds(clause, None, source):
                    return ClauseFiring(None, None, source) if clause.changes == (Delete(),) else None
        return None

    def source_key(self, source: Row) -> Key:
        assert isinstance(self.condition, KeyEquality)
        by_column = dict(self.condition.columns)
        columns = [by_column[name] for name in self.rules.definition.primaryKey]
        return tuple(source[self.names.source_column(column) or column] for column in columns)

    def actions(self, firing: ClauseFiring) -> tuple[TableAction, ...]:
        return (Delete(),) if firing.clause is None else self.clauses[firing.clause].changes

    # What is assigned (S10, S22, S23, S29) ------------------------------------------------------------------

    def assign(self, firing: ClauseFiring, action: TableAction) -> Row:
        """The stored values of the columns that the action or the source decides; misfits are collected."""
        definition, values = self.rules.definition, self.assigned_by(firing, action)
        for name in definition.watermarkKey:  # S10.1 before S10.2
            column_of_source = self.names.source_column(name)
            if name not in values and firing.source is not None and column_of_source is not None:
                values[name] = firing.source[column_of_source]
        values = {**self.at, **values}  # H2a: between S10.2 and S10.3
        if any(name in values and values[name] is None for name in definition.primaryKey):
            self.null_keys.append(firing)
        if isinstance(action, Insert):  # S23, S46: what is not mentioned is the default, or null
            unmentioned = [field for field in definition.fields if field.name not in values]
            values.update({f.name: default_value(f) for f in unmentioned if f.name not in definition.watermarkKey})
        return self.stored_values(values)

    def stored_values(self, values: Row) -> Row:
        """Each value as its column holds it (S29); what a tombstone does not hold is not judged (S9)."""
        definition = self.rules.definition
        stored = {name: self.store(name, values[name]) for name in self.rules.of_tombstones if name in values}
        if is_tombstone(definition, stored.get(definition.tombstone_column, alive_value(definition))):
            return stored
        return {name: stored[name] if name in stored else self.store(name, value) for name, value in values.items()}

    def assigned_by(self, firing: ClauseFiring, action: TableAction) -> Row:
        """What the action itself assigns (S22, S23); for an absent delete, the key."""
        if isinstance(action, Delete):
            key = self.source_key(firing.source) if firing.clause is None and firing.source else ()
            return dict(zip(self.rules.definition.primaryKey, key, strict=False))
        if isinstance(action.values, All):
            return self.assign_all(firing, action, action.values)
        assignments = [(self.names.target_column(name, ""), value) for name, value in action.values.items]
        return {name: evaluate(value, firing.target, firing.source) for name, value in assignments}

    def assign_all(self, firing: ClauseFiring, action: Update | Insert, all_columns: All) -> Row:
        """S22: every column from the source's of the same name; alive if that has no tombstone column."""
        definition, excepted = self.rules.definition, self.names.excepted(all_columns)
        values: Row = {}
        assert firing.source is not None
        for name in definition.names:
            column = self.names.source_column(name)
            is_alive = name not in excepted or (all_columns.columns is not None and isinstance(action, Insert))
            if name not in excepted and column is not None:
                values[name] = firing.source[column]
                if values[name] is None and isinstance(action, Update) and self.ignores_null(name, all_columns):
                    assert firing.target is not None
                    values[name] = firing.target[name]
            elif is_alive and name == definition.tombstoneKey:
                values[name] = alive_value(definition)
        return values

    def ignores_null(self, name: str, values: All) -> bool:
        """S22b: a null of the source leaves the column as it is; keys apart."""
        own, nulls = self.rules.definition, values.ignoreNulls
        if isinstance(nulls, bool):
            return nulls and name not in (*own.primaryKey, *own.watermarkKey, own.tombstoneKey)
        return name in {self.names.target_column(n, "") for n in nulls}

    def store(self, name: str, value: Any) -> Any:
        try:
            return store(self.rules.definition.field(name), value, isKey=name in self.rules.definition.primaryKey)
        except SchemaMismatchError as error:
            self.misfits.append(error)
            return None

    def refuse_misfits(self) -> None:
        """S29, S34."""
        if self.misfits:
            raise self.misfits[0]

    # What is written (S9, S10, S22-S26) ---------------------------------------------------------------------

    def write(self, firing: ClauseFiring, action: TableAction, values: Row) -> Change:
        """The change as it would be stored: every tombstone is a bare one (S9)."""
        change = self.change(firing, action, values)
        change.only_if_changed = isinstance(action, Update) and action.onlyIfChanged
        change.row = self.as_stored(change.row)
        if change.old_key_tombstone is not None:
            change.old_key_tombstone = self.as_stored(change.old_key_tombstone)
        return change

    def as_stored(self, row: Row) -> Row:
        """S9: a tombstone holds key, watermark and tombstone; the rest is null, or zero where null is not allowed."""
        if not self.rules.is_tombstone(row):
            return row
        blank = {f.name: None if f.nullable else zero(f) for f in self.rules.definition.stored_fields}
        return {name: row[name] if name in self.rules.of_tombstones else blank[name] for name in row}

    def change(self, firing: ClauseFiring, action: TableAction, values: Row) -> Change:
        if isinstance(action, Insert):
            return self.write_insert(firing, values)
        if firing.target is None:
            return self.write_absent_delete(firing, values)
        row = {**firing.target, **values}  # S22; the watermark of the row it replaces: S10.3
        if isinstance(action, Update) and self.rules.key(row) != self.rules.key(firing.target):
            return self.write_move(firing, values)
        if isinstance(action, Delete):  # S9
            row |= self.tombstone_mark()
        return Change(firing, row, pre_image=firing.target, replaced=firing.target)

    def write_insert(self, firing: ClauseFiring, values: Row) -> Change:
        """S23, S26: a new row; what nobody assigns of its watermark comes from the row at its key, if any."""
        replaced = self.latest(self.rules.key(values))
        inherited = self.rules.watermark(replaced) if replaced else {}  # S10.3, otherwise null: S10.4
        row = self.stored_row({**inherited, **values})
        return Change(firing, row, replaced=replaced, is_insert=True)

    def write_absent_delete(self, firing: ClauseFiring, values: Row) -> Change:
        """S18: with the watermark of the source, else of what hides the key, else null or zero."""
        hidden_by, definition = self.latest(self.rules.key(values)), self.rules.definition
        undecided = {n: None if (f := definition.field(n)).nullable else zero(f) for n in definition.watermarkKey}
        inherited = self.rules.watermark(hidden_by) if hidden_by else {}
        row = self.stored_row({**undecided, **inherited, **values, **self.tombstone_mark()})
        return Change(firing, row)  # replaces nothing, hence never stale

    def write_move(self, firing: ClauseFiring, values: Row) -> Change:
        """S24: a row under the new key, a tombstone under the old one."""
        assert firing.target is not None
        old, replaced = firing.target, self.latest(self.rules.key({**firing.target, **values}))
        row = {**old, **self.rules.watermark(self.fresher(old, replaced)), **values}
        assigned = {name: values[name] for name in self.rules.definition.watermarkKey if name in values}
        tombstone = {**old, **assigned, **self.tombstone_mark()}
        return Change(firing, row, pre_image=old, replaced=replaced, old_key_tombstone=tombstone)

    def fresher(self, row: Row, other: Row | None) -> Row:
        return other if other is not None and self.rules.older(row, other) else row

    def tombstone_mark(self) -> Row:
        definition = self.rules.definition
        return {definition.tombstone_column: tombstone_value(definition, self.commit_time)}

    def stored_row(self, values: Row) -> Row:
        """All stored columns in order; the hidden tombstone says "alive" unless told otherwise (S5)."""
        names = (field.name for field in self.rules.definition.stored_fields)
        return {name: values.get(name, False if name == HIDDEN_TOMBSTONE else None) for name in names}

    # Stale rows (S11) ---------------------------------------------------------------------------------------

    def decide_stale(self, changes: list[Change]) -> None:
        for change in changes:
            change.stale = self.is_stale(change)
            if change.stale and self.on_stale == "force":
                self.force(change)
                change.stale = False

    def withhold_inserts(self, changes: list[Change]) -> None:
        """S21a: beside a stale update or delete, on the same pair or row, the inserts of the clause are not written."""
        late = {id(change.firing) for change in changes if change.stale and not change.is_insert}
        for change in changes:
            change.withheld = change.is_insert and id(change.firing) in late

    def is_stale(self, change: Change) -> bool:
        if self.rules.older(change.row, change.replaced):
            return True
        old, tombstone = change.pre_image, change.old_key_tombstone
        if tombstone is None:
            return False
        return self.rules.older(change.row, old) or self.rules.older(tombstone, old)  # S24: all or nothing

    def force(self, change: Change) -> None:
        """Gives the row the watermark of what it replaces, so that it wins by committing later (S6)."""
        if change.pre_image is None or not change.is_move:
            assert change.replaced is not None
            change.row |= self.rules.watermark(change.replaced)
            return
        assert change.old_key_tombstone is not None
        larger = self.rules.watermark(self.fresher(change.pre_image, change.replaced))
        change.row |= larger
        if self.rules.older(change.old_key_tombstone, change.pre_image):
            change.old_key_tombstone |= larger

    # Updates that change nothing (S22b) ----------------------------------------------------------------------

    def leave_out_unchanged(self, changes: list[Change]) -> None:
        """Not where another row of the key is written that changes something: this one may be fresher."""
        changed = {self.rules.key(c.row) for c in changes if not self.changes_nothing(c) and self.is_written(c)}
        for change in changes:
            change.unchanged = self.changes_nothing(change) and self.rules.key(change.row) not in changed

    def is_written(self, change: Change) -> bool:
        return not change.withheld and not (change.is_move and change.stale)

    def changes_nothing(self, change: Change) -> bool:
        if not change.only_if_changed or change.stale or change.is_move or change.pre_image is None:
            return False
        row = {**change.row, **self.rules.watermark(change.pre_image)}
        return self.rules.content(row) == self.rules.content(change.pre_image)

    # Keys that are taken (S25) ------------------------------------------------------------------------------

    def is_arrival(self, change: Change) -> bool:
        """True if it is a row that comes to a key that is live in the target; a stale move stays where it is."""
        comes = (change.is_insert and not change.withheld) or (change.is_move and not change.stale)
        return comes and self.rules.key(change.row) in self.live

    def frees(self, change: Change) -> Key | None:
        """The live key that the change empties: by a delete, an update to a tombstone, or a move away."""
        if change.stale or change.pre_image is None:
            return None
        if change.is_move or self.rules.is_tombstone(change.row):
            return self.rules.key(change.pre_image)
        return None

    def taken_keys(self, changes: list[Change]) -> list[Change]:
        """The arrivals at keys that the merge does not free."""
        freed = {self.frees(change) for change in changes}
        return [c for c in changes if self.is_arrival(c) and self.rules.key(c.row) not in freed]

    # The batch (S8, S12) ------------------------------------------------------------------------------------

    def batch(self, changes: list[Change]) -> list[Row]:
        """Every row to append. A key that another row arrives at gets that row alone, no tombstone (S24)."""
        arrived = {self.rules.key(c.row) for c in changes if self.is_arrival(c) and not c.stale}
        rows: list[Row] = []
        for change in changes:
            if change.unchanged or not self.is_written(change):  # S22b; S21a; S24: all or nothing
                continue
            deletes_in_place = change.pre_image is not None and not change.is_move
            tombstones = [change.old_key_tombstone] if change.old_key_tombstone is not None else []
            if deletes_in_place and self.rules.is_tombstone(change.row):
                tombstones.append(change.row)
            else:
                rows.append(change.row)
            rows += [row for row in tombstones if self.rules.key(row) not in arrived]
        return rows
