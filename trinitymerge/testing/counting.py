"""What a merge is counted as (S30a): what became of every live row, which rows are stale, how often each clause fired.

Owns: :class:`Counting` and :func:`stale_changes`. Decides nothing about what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from trinitymerge.testing.changes import Change, Firing, Key, Outcome
from trinitymerge.testing.expressions import Row
from trinitymerge.testing.rows import RowRules


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

    def outcome(self, firings: list[Firing], changes: list[Change], batch: list[Row], clauses: int) -> Outcome:
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
