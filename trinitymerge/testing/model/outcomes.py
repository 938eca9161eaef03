"""What a merge did to rows, and how it is counted (S30a)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.rows import RowRules


@attrs.frozen
class ModelResult:
    """What a merge did: the counts of ``MergeResult`` (S30a), and the rows.

    Attributes:
        version: the table's version afterwards.
        rowsInserted: keys that became live.
        rowsUpdated: live keys whose row was replaced; a moved row is one.
        rowsDeleted: keys that ceased to be live.
        rowsStale: rows older than what they would have replaced, and the inserts left out with them (S21a).
        rowsAppended: rows of the batch.
        rowsSource: rows of the source.
        rowsUnchanged: updates left out because they would have changed nothing (S22b).
        perClause: how often each clause fired, in the order of the chain.
        rowsHistory: rows for other tables (S27).
        skipped: why nothing was written (S36, S37), or an empty string.
        rows: the live rows afterwards, in key order.
        appended: the batch, hidden tombstone column included.
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
    skipped: str = ""
    rows: tuple[Row, ...] = attrs.field(default=(), repr=False)
    appended: tuple[Row, ...] = attrs.field(default=(), repr=False)


Key = tuple[Any, ...]


@attrs.frozen
class ClauseFiring:
    """A clause that applies to a pair, a source row or a target row; None is the absent delete of S18."""

    clause: int | None
    target: Row | None
    source: Row | None


@attrs.define(eq=False)
class Change:
    """One action on one firing, and what it writes.

    Attributes:
        firing: where it comes from.
        row: the row to write.
        pre_image: the live target row that is updated, moved or deleted; None for inserts and absent deletes.
        replaced: the latest target row, live or tombstone, at the key of ``row``.
        old_key_tombstone: what a move writes for the key it leaves (S24).
        is_insert: the action is an insert.
        stale: ``row`` has no effect on reads because what it replaces is fresher (S11).
        withheld: ``row`` is left out because the update or delete of its firing is stale (S21a).
        only_if_changed: the action asks for S22b.
        unchanged: ``row`` is left out because it would change nothing (S22b).
    """

    firing: ClauseFiring
    row: Row
    pre_image: Row | None = None
    replaced: Row | None = None
    old_key_tombstone: Row | None = None
    is_insert: bool = False
    stale: bool = False
    withheld: bool = False
    only_if_changed: bool = False
    unchanged: bool = False

    @property
    def is_move(self) -> bool:
        return self.old_key_tombstone is not None


@attrs.frozen
class Outcome:
    """What one merge would commit, and its counts (S30a); and the rows it has for other tables (S27)."""

    batch: tuple[Row, ...]
    inserted: int
    updated: int
    deleted: int
    stale: int
    per_clause: tuple[int, ...]
    unchanged: int = 0
    owed: tuple[tuple[Any, list[Row]], ...] = ()


@attrs.frozen
class Counting:
    """Counts a merge into one snapshot.

    Attributes:
        rules: of the table's rows.
        live: the live stored rows by key.
        latest: the latest stored row of a key, dead or alive, or None.
    """

    rules: RowRules
    live: Mapping[Key, Row]
    latest: Callable[[Key], Row | None]

    def outcome(self, firings: list[ClauseFiring], changes: list[Change], batch: list[Row], clauses: int) -> Outcome:
        """Follows every live row: it stayed, was replaced or moved (both updates), or is gone (a delete)."""
        winners = self.winners(batch)
        alive = {key: row for key, row in winners.items() if not self.rules.is_tombstone(row)}
        came_from = self.came_from(changes, alive)
        moved = set(came_from.values())
        left = self.left(changes, alive)
        replaced = {key for key in alive if key in self.live and key not in came_from and key not in left}
        touched = {key for key in winners if key in self.live}
        return Outcome(
            batch=tuple(batch),
            inserted=len(alive) - len(came_from) - len(replaced),
            updated=len(came_from) + len(replaced),
            deleted=len(touched - moved - replaced),
            stale=len(stale_changes(changes, batch)) + sum(change.withheld for change in changes),
            unchanged=sum(change.unchanged for change in changes),
            per_clause=tuple(sum(f.clause == n for f in firings) for n in range(clauses)),
        )

    def winners(self, batch: list[Row]) -> dict[Key, Row]:
        """The freshest row of the batch for each key, where it is not older than what the table has."""
        winners: dict[Key, Row] = {}
        for row in batch:
            key = self.rules.key(row)
            if not self.rules.older(row, self.latest(key)) and not self.rules.older(row, winners.get(key)):
                winners[key] = row
        return winners

    def came_from(self, changes: list[Change], alive: dict[Key, Row]) -> dict[Key, Key]:
        """For each key that a moved row now lives at, the key it came from; each row lives on once."""
        came_from: dict[Key, Key] = {}
        for key, old in self.moves(changes, alive):
            came_from.setdefault(key, old)
        return came_from

    def left(self, changes: list[Change], alive: dict[Key, Row]) -> set[Key]:
        """The keys whose rows have moved on, also those that have become one with another: what comes there is new."""
        return {old for _, old in self.moves(changes, alive)}

    def moves(self, changes: list[Change], alive: dict[Key, Row]) -> list[tuple[Key, Key]]:
        """The keys that rows live at now, and those that they came from."""
        found = []
        for change in changes:
            key = self.rules.key(change.row)
            if not change.is_move or change.stale or change.pre_image is None or key not in alive:
                continue
            if self.rules.content(alive[key]) == self.rules.content(change.row):
                found.append((key, self.rules.key(change.pre_image)))
        return found


def stale_changes(changes: list[Change], batch: list[Row]) -> list[Change]:
    """Stale rows of the batch, and stale moves, which are not in it."""
    written = {id(row) for row in batch}
    stale = [change for change in changes if change.stale and not change.withheld]
    return [change for change in stale if change.is_move or id(change.row) in written]
