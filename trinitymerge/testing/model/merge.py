"""A merge, row by row: which clauses fire, and what is written, refused and counted (S8-S37)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from trinitymerge import errors
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
    check_clauses,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.expressions import Expr, KeyEquality, evaluate, reads_target
from trinitymerge.testing.model.rows import Names, RowRules, require
from trinitymerge.testing.model.values import Key, Row, alive_value, default_value, key_value, tombstone_value, zero


@attrs.frozen
class ModelResult:
    """The counts of a merge, with the names and the meaning of those in ``MergeResult`` (S30a), and its rows.

    Attributes:
        rows: the live rows afterwards, in key order.
        appended: the batch, hidden tombstone column included.
        quarantined: the source rows that went into the quarantine, each with its reason (S47).
    """

    version: int
    rowsInserted: int = 0
    rowsUpdated: int = 0
    rowsDeleted: int = 0
    rowsStale: int = 0
    rowsAppended: int = 0
    rowsSource: int = 0
    rowsUnchanged: int = 0
    perClause: tuple[int, ...] = ()
    rowsHistory: int = 0
    rowsMended: int = 0
    skipped: str = ""
    rows: tuple[Row, ...] = attrs.field(default=(), repr=False)
    appended: tuple[Row, ...] = attrs.field(default=(), repr=False)
    quarantined: tuple[tuple[Row, str], ...] = attrs.field(default=(), repr=False)


# Refusals with any data ------------------------------------------------------------------------------------


def check_merge(names: Names, clauses: tuple[Clause, ...], dated: Iterable[str] | None) -> None:
    """Raise InvalidMergeError for a merge that is refused with any data (S21-S23, S28, S30, H2a).

    ``dated`` are the watermark columns that ``at`` assigns, if updates and deletes must not write over a version (H2a); None
    if they may.
    """
    check_clauses(clauses)
    own = names.definition
    required = {f.name for f in own.fields if not f.nullable and f.default is None}
    for clause in clauses:
        sees_target, sees_source = not isinstance(clause, WhenNotMatched), not isinstance(clause, WhenOnlyOnTarget)
        is_seen = not isinstance(clause.condition, Expr) or clause.condition.in_sight(sees_target, sees_source)
        require(is_seen, f"{clause.condition} reads the other side, where no row is (S30).")
        for expression in (value for a in clause.actions for _, value in a.assignments):
            if isinstance(expression, Expr):
                in_sight = (sees_target or not expression.reads_target) and (sees_source or not expression.reads_source)
                require(in_sight, f"{expression} reads the other side, where no row is (S30).")
        by_source = {n for n in own.watermarkKey if sees_source and names.source_column(n) is not None}
        for action in clause.changes:
            assigned = by_source | assigned_columns(names, action)
            if isinstance(action, Insert):
                require(required <= assigned, f"{action.outline} leaves out {required - assigned} (S23).")
            elif dated is not None:
                left = {*own.watermarkKey} - assigned - {*dated}
                require(not left, f"{action.outline} assigns no {left}, and would write over a version (H2a).")


def assigned_columns(names: Names, action: TableAction) -> set[str]:
    """Return the columns that the action assigns (S22, S23)."""
    if isinstance(action, Delete):
        return set()
    if isinstance(action.values, All):
        return {*columns_of_all(names, action.values, isinstance(action, Insert))}
    return {names.target_column(name) for name, _ in action.values.items}


def columns_of_all(names: Names, values: All, is_insert: bool) -> dict[str, str | None]:
    """Return the source's column for each column that ``updateAll`` or ``insertAll`` assigns (S22).

    The tombstone column has None if the source lacks it, which makes a live row.
    """
    own, found = names.definition, dict[str, str | None]()
    excepted = {name.lower() for name in values.exceptColumns}
    listed = own.names if values.columns is None else {*own.primaryKey, *map(names.target_column, values.columns)}
    for field in own.fields:
        is_wanted, column = field.name in listed and field.name.lower() not in excepted, names.source_column(field.name)
        if is_wanted and column is not None:
            found[field.name] = column
        elif field.name == own.tombstoneKey:
            if is_wanted or (is_insert and values.columns is not None):
                found[field.name] = None
        elif is_wanted:
            is_optional = field.may_be_left_out or field.name in own.watermarkKey
            require(is_optional, f"Column '{field.name}' not found in the source (S22).")
    return found


# The merge --------------------------------------------------------------------------------------------------


@attrs.frozen
class ClauseFiring:
    """A clause, by position, and the rows that it applies to; None is the delete of an absent key (S18)."""

    clause: int | None
    target: Row | None
    source: Row | None


@attrs.define(eq=False)
class Change:
    """One action on one firing, and what it writes.

    Attributes:
        pre_image: the live target row that is updated, moved or deleted; None for inserts and absent deletes.
        replaced: the latest target row, live or tombstone, at the key of ``row``.
        old_key_tombstone: what a move writes for the key it leaves (S24).
        only_if_changed: the action asks for S22b.
        stale: ``row`` has no effect on reads because what it replaces is fresher (S11).
        suppressed: ``row`` is left out because the update or delete of its firing is stale (S21a).
        unchanged: ``row`` is left out because it would change nothing (S22b).
    """

    firing: ClauseFiring
    row: Row
    pre_image: Row | None = None
    replaced: Row | None = None
    old_key_tombstone: Row | None = None
    is_insert: bool = False
    only_if_changed: bool = False
    stale: bool = False
    suppressed: bool = False
    unchanged: bool = False

    @property
    def is_move(self) -> bool:
        return self.old_key_tombstone is not None

    @property
    def is_written(self) -> bool:
        """Whether the batch has it: S21a, S22b and S24 (all or nothing) leave changes out."""
        return not (self.suppressed or self.unchanged or (self.is_move and self.stale))


@attrs.define
class Evaluation:
    """A merge of ``source`` into the live rows of one snapshot, with the arguments of ``ModelTable.merge``.

    Attributes:
        latest: the latest stored row of each key, live or a tombstone, in key order (S13).
        clauses: checked already.
        at: watermark columns that neither clause nor source decides (H2a).
        commit_time: for tombstones of date and timestamp type.
        truncated_at: the watermark of the table's last truncate, of which each key has a tombstone (T1); None without one.
        by_name: the condition is equality on the primary key by name: keys are compared as the table stores them (S17a).
        unfit: why source rows have no key of the table, by their identity (S17a).
    """

    names: Names
    latest: Mapping[Key, Row]
    source: list[Row]
    clauses: tuple[Clause, ...]
    condition: Any
    on_stale: str
    max_delete_fraction: float | None
    at: Mapping[str, Any]
    commit_time: dt.datetime
    checks: Mapping[str, Callable[[Row], bool | None]]
    truncated_at: Row | None = None
    quarantines: bool = False
    by_name: bool = False
    unfit: dict[int, str] = attrs.field(factory=dict, init=False)
    rules: RowRules = attrs.field(init=False)
    live: dict[Key, Row] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rules = RowRules(self.names.definition)
        self.live = {key: row for key, row in self.latest.items() if not self.rules.is_tombstone(row)}
        for row in self.source if self.by_name else ():
            for name in self.definition.primaryKey:
                column = self.names.required(name)
                try:
                    row[column] = None if row[column] is None else key_value(self.definition.field(name), row[column])
                except errors.SchemaMismatchError:
                    self.unfit.setdefault(id(row), f"type:{name}")

    def run(self) -> tuple[ModelResult, list[tuple[Any, list[Row]]]]:
        """Return the result, whose version and rows are to be filled in, and the rows for each other table (S27)."""
        firings = self.fire()
        assigned = [(f, action, self.assign(f, action)) for f in firings for action in self.actions(f)]
        rejected = self.rejected(assigned) if self.quarantines else {}
        assigned = [each for each in assigned if id(each[0].source) not in rejected]
        key_values = (values.get(name, "") for *_, values in assigned for name in self.definition.primaryKey)
        if None in key_values:
            raise errors.NullKeyError("S2: a row would be written with a null in its primary key.")
        if self.unfit and not self.quarantines:
            raise errors.SchemaMismatchError("S17a: a source row has a key that cannot be one of the table.")
        changes, batch = self.kept(assigned, rejected)
        self.check_batch(changes, batch)
        result = self.count(firings, changes, batch)
        live, fraction = len(self.live), self.max_delete_fraction
        if fraction is not None and result.rowsDeleted and result.rowsDeleted / live > fraction:
            problem = f"S37: {result.rowsDeleted} of {live} live rows would be deleted, more than {fraction} of them."
            raise errors.TooManyDeletesError(problem, deleted=result.rowsDeleted, live=live)
        quarantined = tuple((row, rejected[id(row)]) for row in self.source if id(row) in rejected)
        return attrs.evolve(result, quarantined=quarantined), self.rows_for_other_tables(changes)

    def rejected(self, assigned: list[tuple[ClauseFiring, TableAction, Row]]) -> dict[int, str]:
        """Return why source rows go into the quarantine, by their identity (S47)."""
        keys, found = self.definition.primaryKey, dict(self.unfit)

        def note(change: Change, reason: str) -> None:
            if change.firing.source is not None:
                found.setdefault(id(change.firing.source), reason)

        for firing, _, values in assigned:
            if firing.source is not None and None in [values.get(key, "") for key in keys]:
                found[id(firing.source)] = "null-key"
        changes, batch = self.kept(assigned, found)
        written = {id(row) for row in batch}
        for change in changes:
            for name, holds in self.checks.items():
                is_judged = id(change.row) in written and not self.rules.is_tombstone(change.row)
                if is_judged and holds(change.row) is False:
                    note(change, f"check:{name}")
        if self.on_stale == "error":
            freed = {self.frees(change) for change in changes}
            for change in self.stale_changes(changes, batch):
                if not self.is_arrival(change) or self.rules.key(change.row) in freed:  # otherwise S25 refuses it
                    note(change, "stale")
        changes, batch = self.kept(assigned, found)
        ambiguous = {id(row) for rows in self.contradictions(batch) for row in rows}
        for change in changes:
            if id(change.row) in ambiguous:
                note(change, "ambiguous")
        return found

    def kept(
        self, assigned: list[tuple[ClauseFiring, TableAction, Row]], rejected: Mapping[int, str]
    ) -> tuple[list[Change], list[Row]]:
        some = [each for each in assigned if id(each[0].source) not in rejected]
        changes = [self.write(firing, action, self.rules.stored(values)) for firing, action, values in some]
        self.decide_stale(changes)
        self.decide_unchanged(changes)
        return changes, self.batch(changes)

    @property
    def definition(self) -> TableDefinition:
        return self.names.definition

    def latest_of(self, key: Key) -> Row | None:
        """Return the latest row of a key, or the tombstone that a truncate is of every key (T1)."""
        found = self.latest.get(key)
        if self.truncated_at is None or (found is not None and not self.rules.older(found, self.truncated_at)):
            return found
        return self.tombstone({**dict(zip(self.definition.primaryKey, key, strict=True)), **self.truncated_at})

    def is_truncated(self, row: Row) -> bool:
        """Return whether a row is older than the last truncate: it is not written, unless it is a row version (T1)."""
        return not self.definition.history and self.rules.older(row, self.truncated_at)

    # Which clauses fire (S17-S20)

    def fire(self) -> list[ClauseFiring]:
        targets, source = list(self.live.values()), [s for s in self.source if id(s) not in self.unfit]
        pairs = [(t, s) for s in source for t in targets if evaluate(self.condition, t, s) is True]  # S20
        paired = {id(row) for pair in pairs for row in pair}
        found = [self.first_true(WhenMatched, t, s) for t, s in pairs]  # S17
        alone = [s for s in source if id(s) not in paired]
        found += [self.first_true(WhenNotMatched, None, s) or self.absent_delete(s) for s in alone]  # S18
        found += [self.first_true(WhenOnlyOnTarget, t, None) for t in targets if id(t) not in paired]  # S19
        return [firing for firing in found if firing is not None]

    def first_true(self, kind: type[Any], target: Row | None, source: Row | None) -> ClauseFiring | None:
        for position, clause in enumerate(self.clauses):
            if isinstance(clause, kind) and self.holds(clause, target, source):
                return ClauseFiring(position, target, source)
        return None

    def holds(self, clause: Clause, target: Row | None, source: Row | None) -> bool:
        return clause.condition is None or evaluate(clause.condition, target, source) is True  # null is not true (S20)

    def absent_delete(self, source: Row) -> ClauseFiring | None:
        """S18: under exact key equality, a delete of an absent key is recorded."""
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
        by_column = dict(self.condition.columns)
        columns = [by_column[name] for name in self.definition.primaryKey]
        return tuple(source[self.names.source_column(column) or column] for column in columns)

    def actions(self, firing: ClauseFiring) -> tuple[TableAction, ...]:
        return (Delete(),) if firing.clause is None else self.clauses[firing.clause].changes

    # Assigned values (S10, S22, S23)

    def assign(self, firing: ClauseFiring, action: TableAction) -> Row:
        """Return the columns that the action, the source or ``at`` decides."""
        own, values = self.definition, self.assigned_by(firing, action)
        by_source: Row = {}
        for name in own.watermarkKey:
            column = self.names.source_column(name)
            if firing.source is not None and column is not None:
                by_source[name] = firing.source[column]
        values = {**self.at, **by_source, **values}  # H2a, S10.2, S10.1
        if isinstance(action, Insert):  # S23, S46
            values |= {f.name: default_value(f) for f in own.fields if f.name not in (*values, *own.watermarkKey)}
        return values

    def assigned_by(self, firing: ClauseFiring, action: TableAction) -> Row:
        """Return the values that the action itself assigns (S22, S23); the key for an absent delete."""
        if isinstance(action, Delete):
            if firing.clause is not None or firing.source is None:
                return {}
            return dict(zip(self.definition.primaryKey, self.source_key(firing.source), strict=True))
        if not isinstance(action.values, All):
            items = [(self.names.target_column(name), value) for name, value in action.values.items]
            return {name: evaluate(value, firing.target, firing.source) for name, value in items}
        values: Row = {}
        for name, column in columns_of_all(self.names, action.values, isinstance(action, Insert)).items():
            values[name] = alive_value(self.definition) if column is None else (firing.source or {})[column]
            is_kept = column is not None and values[name] is None and self.ignores_nulls(name, action.values)
            if is_kept and isinstance(action, Update) and firing.target is not None:  # S22
                values[name] = firing.target[name]
        return values

    def ignores_nulls(self, name: str, values: All) -> bool:
        if isinstance(values.ignoreNulls, bool):
            return values.ignoreNulls and name not in self.rules.of_tombstones
        return name in map(self.names.target_column, values.ignoreNulls)

    # Written rows (S9, S10, S22-S26)

    def write(self, firing: ClauseFiring, action: TableAction, values: Row) -> Change:
        """Return the change as it is stored: every tombstone is a bare one (S9)."""
        change = self.change(firing, action, values)
        change.only_if_changed = isinstance(action, Update) and action.onlyIfChanged
        if self.rules.is_tombstone(change.row):
            change.row = self.rules.bare(change.row)
        return change

    def change(self, firing: ClauseFiring, action: TableAction, values: Row) -> Change:
        own, target = self.definition, firing.target
        if isinstance(action, Insert) or target is None:
            replaced = self.latest_of(self.rules.key(values))
            inherited = self.rules.watermark(replaced) if replaced else {}  # S10.3
            if isinstance(action, Insert):  # S23, S26
                hidden = {} if own.tombstoneKey else {own.tombstone_column: False}
                blank = dict.fromkeys(own.names) | hidden  # S5, S10.4
                return Change(firing, {**blank, **inherited, **values}, replaced=replaced, is_insert=True)
            undecided = {n: None if own.field(n).nullable else zero(own.field(n)) for n in own.watermarkKey}
            return Change(firing, self.tombstone({**undecided, **inherited, **values}))  # S18: it replaces nothing
        row = {**target, **values}  # S22; the watermark of the row it replaces: S10.3
        if isinstance(action, Delete):
            return Change(firing, self.tombstone(row), pre_image=target, replaced=target)
        if self.rules.key(row) == self.rules.key(target):
            return Change(firing, row, pre_image=target, replaced=target)
        replaced = self.latest_of(self.rules.key(row))  # S24: a row under the new key, a tombstone under the old one
        row = {**target, **self.rules.watermark(self.fresher(target, replaced)), **values}
        assigned = {name: values[name] for name in own.watermarkKey if name in values}
        return Change(firing, row, target, replaced, self.tombstone({**target, **assigned}))

    def tombstone(self, row: Row) -> Row:
        dead = {self.definition.tombstone_column: tombstone_value(self.definition, self.commit_time)}
        return self.rules.bare(row | dead)

    def fresher(self, row: Row, other: Row | None) -> Row:
        return other if other is not None and self.rules.older(row, other) else row

    # Stale and unchanged rows (S11, S21a, S22b)

    def decide_stale(self, changes: list[Change]) -> None:
        for change in changes:
            change.stale = self.is_stale(change)
            if change.stale and self.on_stale == "force":
                self.force(change)
                change.stale = False
        late = {id(change.firing) for change in changes if change.stale and not change.is_insert}
        for change in changes:
            change.suppressed = change.is_insert and id(change.firing) in late  # S21a

    def is_stale(self, change: Change) -> bool:
        stale, old = self.rules.older(change.row, change.replaced), change.pre_image
        if change.old_key_tombstone is not None:  # S24: all or nothing
            stale = stale or self.rules.older(change.row, old) or self.rules.older(change.old_key_tombstone, old)
        return stale

    def force(self, change: Change) -> None:
        """Give the row the watermark of the row it replaces, so that it wins by committing later (S6)."""
        old, tombstone = change.pre_image, change.old_key_tombstone
        winner = change.replaced if old is None or tombstone is None else self.fresher(old, change.replaced)
        assert winner is not None
        change.row |= self.rules.watermark(winner)
        if tombstone is not None and self.rules.older(tombstone, old):
            tombstone |= self.rules.watermark(winner)

    def decide_unchanged(self, changes: list[Change]) -> None:
        """S22b: an update that changes nothing is left out, unless another row of its key changes something."""
        idle = {id(change) for change in changes if self.changes_nothing(change)}
        changed = {self.rules.key(c.row) for c in changes if id(c) not in idle and c.is_written}
        for change in changes:
            change.unchanged = id(change) in idle and self.rules.key(change.row) not in changed

    def changes_nothing(self, change: Change) -> bool:
        if not change.only_if_changed or change.stale or change.is_move or change.pre_image is None:
            return False
        row = {**change.row, **self.rules.watermark(change.pre_image)}
        return self.rules.content(row) == self.rules.content(change.pre_image)

    # The batch (S8, S24, S25)

    def is_arrival(self, change: Change) -> bool:
        """Return whether the row arrives at a key that is live in the target (S25)."""
        return (change.is_insert or change.is_move) and change.is_written and self.rules.key(change.row) in self.live

    def batch(self, changes: list[Change]) -> list[Row]:
        """Every row to append. A key that another row arrives at gets no tombstone (S24)."""
        arrived = {self.rules.key(c.row) for c in changes if self.is_arrival(c) and not c.stale}
        rows: list[Row] = []
        for change in changes:
            if change.is_written:
                is_in_place = change.pre_image is not None and not change.is_move
                deletes_in_place = is_in_place and self.rules.is_tombstone(change.row)
                if not deletes_in_place:
                    rows.append(change.row)
                tombstone = change.row if deletes_in_place else change.old_key_tombstone
                if tombstone is not None and self.rules.key(tombstone) not in arrived:
                    rows.append(tombstone)
        return [row for row in rows if not self.is_truncated(row)]

    # Refusals (S34)

    def refuse(self, error: type[errors.TrinityMergeError], rule: str, rows: Iterable[Mapping[str, Any]]) -> None:
        keys = [self.rules.key(row) for row in rows]
        if keys:
            raise error(f"{rule}: {self.definition.primaryKey} = {keys[:5]}.", keys=keys)

    def check_batch(self, changes: list[Change], batch: list[Row]) -> None:
        for name, holds in self.checks.items():
            broken = [row for row in batch if not self.rules.is_tombstone(row) and holds(row) is False]
            self.refuse(errors.ConstraintError, f"S45: rows break constraint '{name}'", broken)
        freed = {self.frees(change) for change in changes}
        taken = [c.row for c in changes if self.is_arrival(c) and self.rules.key(c.row) not in freed]
        self.refuse(errors.DuplicateKeyError, "S25: a row arrives at a key that is live and not freed", taken)
        ambiguous = [rows[0] for rows in self.contradictions(batch)] + self.conflicting_moves(changes)
        self.refuse(errors.AmbiguousMergeError, "S12: different rows of one key and watermark", ambiguous)
        if self.on_stale == "error":
            stale = [change.row for change in self.stale_changes(changes, batch)]
            self.refuse(errors.StaleRowsError, "S11: rows are older than those they would replace", stale)

    def frees(self, change: Change) -> Key | None:
        """Return the live key that the change empties: by a delete, an update to a tombstone, or a move away (S25)."""
        if change.pre_image is None or change.stale or not (change.is_move or self.rules.is_tombstone(change.row)):
            return None
        return self.rules.key(change.pre_image)

    def contradictions(self, batch: list[Row]) -> Iterator[list[Row]]:
        """Yield the rows of each key and watermark that are neither all tombstones nor equal in every column (S12)."""
        groups: dict[Any, list[Row]] = {}
        for row in batch:
            groups.setdefault((self.rules.key(row), self.rules.watermark_order(row)), []).append(row)
        for rows in groups.values():
            if not all(map(self.rules.is_tombstone, rows)) and len(set(map(self.rules.content, rows))) > 1:
                yield rows

    def conflicting_moves(self, changes: list[Change]) -> list[Row]:
        """S24: live rows that the merge moves and also changes otherwise, or moves to two places."""
        by_target: dict[Key, list[Change]] = {}
        for change in changes:
            if change.pre_image is not None and not change.stale:
                by_target.setdefault(self.rules.key(change.pre_image), []).append(change)
        return [
            self.live[key]
            for key, group in by_target.items()
            if any(c.is_move for c in group) and len({self.rules.content(c.row) for c in group}) > 1
        ]

    def stale_changes(self, changes: list[Change], batch: list[Row]) -> list[Change]:
        """Stale rows of the batch, and stale moves, which are not in it."""
        written, stale = {id(row) for row in batch}, [c for c in changes if c.stale and not c.suppressed]
        return [c for c in stale if c.is_move or id(c.row) in written or self.is_truncated(c.row)]

    # Counts (S30a)

    def count(self, firings: list[ClauseFiring], changes: list[Change], batch: list[Row]) -> ModelResult:
        """Count what became of each live row: it stayed, was replaced or moved (an update), or was deleted."""
        winners: dict[Key, Row] = {}
        for row in batch:
            key = self.rules.key(row)
            if not self.rules.older(row, self.latest_of(key)) and not self.rules.older(row, winners.get(key)):
                winners[key] = row
        alive = {key: row for key, row in winners.items() if not self.rules.is_tombstone(row)}
        came_from: dict[Key, Key] = {}  # for each key that a moved row now lives at, the key it came from
        left: set[Key] = set()  # the keys of moved rows, including those that have become one with another
        for change in changes:
            key = self.rules.key(change.row)
            lives_on = key in alive and self.rules.content(alive[key]) == self.rules.content(change.row)
            if change.is_move and not change.stale and change.pre_image is not None and lives_on:
                left.add(self.rules.key(change.pre_image))
                came_from.setdefault(key, self.rules.key(change.pre_image))
        replaced = {key for key in alive if key in self.live and key not in came_from and key not in left}
        gone = {key for key in winners if key in self.live} - {*came_from.values()} - replaced
        return ModelResult(
            version=0,
            rowsInserted=len(alive) - len(came_from) - len(replaced),
            rowsUpdated=len(came_from) + len(replaced),
            rowsDeleted=len(gone),
            rowsStale=len(self.stale_changes(changes, batch)) + sum(change.suppressed for change in changes),
            rowsAppended=len(batch),
            rowsSource=len(self.source),
            rowsUnchanged=sum(change.unchanged for change in changes),
            perClause=tuple(sum(f.clause == n for f in firings) for n in range(len(self.clauses))),
            skipped="" if batch else "no clause applied to any row",
            appended=tuple(batch),
        )

    # Rows for other tables (S27)

    def rows_for_other_tables(self, changes: list[Change]) -> list[tuple[Any, list[Row]]]:
        """Return a row for each history insert of a firing that replaces its target row."""
        found: dict[int, tuple[Any, list[Row]]] = {}
        for change in changes:
            firing = change.firing
            replaces = change.pre_image is not None and not change.stale and not change.unchanged
            if firing.clause is not None and replaces:
                for insert in self.clauses[firing.clause].histories:
                    other = insert.table.model
                    names = Names(other.definition, ())
                    values = [(names.target_column(name), value) for name, value in insert.values.items]
                    row = {name: evaluate(value, firing.target, firing.source) for name, value in values}
                    found.setdefault(id(other), (other, []))[1].append(row)
        return list(found.values())
