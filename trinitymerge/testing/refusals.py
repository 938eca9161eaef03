"""Why a merge is refused once its rows are known (S2, S11, S12, S24, S25, S34, S37).

Owns: :class:`Refusals`: one method for each reason, which raises or does nothing. What can be refused before any row is
looked at stands in ``checks.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import (
    AmbiguousMergeError,
    ConstraintError,
    DuplicateKeyError,
    NullKeyError,
    StaleRowsError,
    TooManyDeletesError,
    counted,
)
from trinitymerge.merge.clauses import Clause, describe
from trinitymerge.testing.changes import Change, Firing, Key
from trinitymerge.testing.expressions import Row
from trinitymerge.testing.rows import RowRules


@attrs.frozen
class Refusals:
    """Refuses what the rows of one merge may not do.

    Attributes:
        rules: of the table's rows.
        clauses: of the merge.
    """

    rules: RowRules
    clauses: tuple[Clause, ...]

    def null_keys(self, firings: list[Firing]) -> None:
        """S2, S34: no row is written with a null in its key."""
        if firings:
            raise NullKeyError(
                f"{counted(len(firings))} would be written with a null in the primary key "
                f"{self._key_names}, first by {self._clause_text(firings[0])}. "
                "Filter such source rows out, or give the key a value."
            )

    def broken(self, batch: list[Row], checks: Mapping[str, Callable[[Row], bool | None]]) -> None:
        """S45: no row that is written breaks a constraint, tombstones apart."""
        for name, holds in checks.items():
            rows = [row for row in batch if not self.rules.is_tombstone(row) and holds(row) is False]
            if rows:
                keys = [self.rules.key(row) for row in rows]
                raise ConstraintError(
                    f"Constraint '{name}' is broken by {counted(len(rows))}: {self._key_names} = {keys[:5]}.",
                    constraint=name,
                    keys=keys,
                )

    def taken_keys(self, taken: list[Change]) -> None:
        """S25: no row comes to a key that is live and stays so."""
        if taken:
            keys = [self.rules.key(change.row) for change in taken]
            raise DuplicateKeyError(
                f"{self._clause_text(taken[0].firing)} would write a row under a key that is live and that "
                f"this merge does not free: {self._key_names} = {keys[:5]}. Delete or move that row too.",
                keys=keys,
            )

    def ambiguity(self, changes: list[Change], batch: list[Row]) -> None:
        """S12, S24: one row for each key and watermark, and each row lives on once."""
        groups: dict[Any, list[Row]] = {}
        for row in batch:
            groups.setdefault((self.rules.key(row), self.rules.watermark_order(row)), []).append(row)
        keys = [key for (key, _), rows in groups.items() if not self._agree(rows)]
        keys += self._torn_rows(changes)
        if keys:
            raise AmbiguousMergeError(
                f"Several source rows write different rows for one key and watermark: "
                f"{self._key_names} = {keys[:5]}. Deduplicate it, or tell them apart by a watermark key.",
                keys=keys,
            )

    def _agree(self, rows: list[Row]) -> bool:
        """S12: all tombstones, or equal in every column, as they are stored."""
        return all(self.rules.is_tombstone(row) for row in rows) or len({self.rules.content(row) for row in rows}) == 1

    def _torn_rows(self, changes: list[Change]) -> list[Key]:
        """S24: live rows that the merge moves and also changes otherwise, or moves to two places."""
        by_target: dict[Key, list[Change]] = {}
        for change in changes:
            if change.pre_image is not None and not change.stale:
                by_target.setdefault(self.rules.key(change.pre_image), []).append(change)
        return [
            key
            for key, group in by_target.items()
            if any(c.is_move for c in group) and len({self.rules.content(c.row) for c in group}) > 1
        ]

    def stale(self, stale: list[Change]) -> None:
        """S11, under ``onStale("error")``."""
        if stale:
            keys = [self.rules.key(change.row) for change in stale]
            raise StaleRowsError(
                f"Older than what would be replaced: {counted(len(stale))}, {self._key_names} = {keys[:5]}.",
                keys=keys,
            )

    def too_many_deletes(self, deleted: int, live: int, fraction: float | None) -> None:
        """S37: no more than a fraction of the live rows."""
        if fraction is not None and deleted and deleted / live > fraction:
            raise TooManyDeletesError(
                f"The merge would delete {deleted} of {live} live rows, "
                f"more than maxDeleteFraction({fraction}) allows.",
                deleted=deleted,
                live=live,
            )

    @property
    def _key_names(self) -> str:
        return f"({', '.join(self.rules.definition.primaryKey)})"

    def _clause_text(self, firing: Firing) -> str:
        return "an absent delete" if firing.clause is None else describe(self.clauses, firing.clause)
