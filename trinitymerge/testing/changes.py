"""What a merge does row by row, and what comes of it: the data that its rules hand on to each other.

Owns: :class:`Firing`, :class:`Change` and :class:`Outcome`. Decides nothing.
"""

from __future__ import annotations

from typing import Any

import attrs

from trinitymerge.testing.expressions import Row

Key = tuple[Any, ...]


@attrs.frozen
class Firing:
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

    firing: Firing
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
