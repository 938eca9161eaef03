"""What a merge refuses (S12, S28, S34, S37, S45)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import (
    AmbiguousMergeError,
    ConstraintError,
    DuplicateKeyError,
    InvalidMergeError,
    NullKeyError,
    StaleRowsError,
    TooManyDeletesError,
    counted,
    did_you_mean,
)
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    TableAction,
    WhenNotMatched,
    WhenOnlyOnTarget,
    check_clauses,
    describe,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.expressions import Expr, Row
from trinitymerge.testing.model.outbox import check_history
from trinitymerge.testing.model.outcomes import Change, ClauseFiring, Key
from trinitymerge.testing.model.rows import RowRules


@attrs.frozen
class Names:
    """The columns of target and source, found without regard to case (S30).

    Attributes:
        definition: the target's definition.
        alias: the target's alias, which may qualify the keys of a map.
        source: the source's columns; empty for a merge without a source.
    """

    definition: TableDefinition
    alias: str
    source: tuple[str, ...]

    def target_column(self, name: Any, where: str) -> str:
        """The declared spelling of a target column that a map or ``exceptColumns`` names."""
        text = str(name)
        if text.lower().startswith(f"{self.alias.lower()}."):
            text = text[len(self.alias) + 1 :]
        found = _find(text, self.definition.names)
        if found is None:
            raise InvalidMergeError(
                f"{where}: '{name}' is not a column of the table." + did_you_mean(text, self.definition.names),
                column=text,
            )
        return found

    def source_column(self, name: str) -> str | None:
        """The source's column of the same name as the target's ``name``, if it has one."""
        return _find(name, self.source)

    def source_key(self) -> dict[str, str]:
        """The source's column for each column of the primary key."""
        found = {name: self.source_column(name) for name in self.definition.primaryKey}
        missing = [name for name, column in found.items() if column is None]
        if missing:
            raise InvalidMergeError(
                f"The source has no column {', '.join(missing)}, so the merge needs a condition."
                + did_you_mean(missing[0], self.source),
                columns=missing,
            )
        return {name: column for name, column in found.items() if column is not None}

    def excepted(self, values: All, where: str = "") -> frozenset[str]:
        """The columns that are not taken from the source, in their declared spelling."""
        excepted = frozenset(self.target_column(name, where) for name in values.exceptColumns)
        if values.columns is None:
            return excepted
        listed = {self.target_column(name, where) for name in values.columns} | {*self.definition.primaryKey}
        return excepted | {name for name in self.definition.names if name not in listed}


def _find(name: str, names: Iterable[str]) -> str | None:
    return next((n for n in names if n.lower() == name.lower()), None)


def check_merge(names: Names, clauses: tuple[Clause, ...]) -> None:
    """Refuses a merge that no data could make right.

    Raises:
        InvalidMergeError: naming the clause by position and text.
    """
    check_clauses(clauses)
    for position, clause in enumerate(clauses):
        _check_sight(clause, describe(clauses, position))
        for insert in clause.histories:
            check_history(insert, f"{describe(clauses, position)}, {insert.name}")
        for action in clause.changes:
            where = f"{describe(clauses, position)}, {action.name}"
            if isinstance(action, Delete):
                continue
            if isinstance(action.values, All) and isinstance(clause, WhenOnlyOnTarget):
                raise InvalidMergeError(f"{where}: there is no source row to take the columns from; use a map.")
            assigned = _assigned_columns(names, action, where)
            if isinstance(action, Insert):
                _check_required(names, clause, assigned, where)


def _check_sight(clause: Clause, where: str) -> None:
    """S30: a clause for rows of one side does not see the other, where there is no row."""
    maps = [a.values for a in clause.changes if not isinstance(a, Delete) and isinstance(a.values, Assignments)]
    maps += [insert.values for insert in clause.histories]
    given = [clause.condition, *(value for values in maps for _, value in values.items)]
    for expression in (e for e in given if isinstance(e, Expr)):
        for kind, reads, other in (
            (WhenNotMatched, expression.reads_target, "target"),
            (WhenOnlyOnTarget, expression.reads_source, "source"),
        ):
            if isinstance(clause, kind) and reads:
                raise InvalidMergeError(f"{where}: {expression} is about the {other}, which has no row there.")


def _assigned_columns(names: Names, action: TableAction, where: str) -> frozenset[str]:
    """The columns that the action's map, or its *all*, assigns (S22, S23)."""
    assert not isinstance(action, Delete)
    if isinstance(action.values, Assignments):
        return _explicit_columns(names, action.values, where)
    definition, excepted = names.definition, names.excepted(action.values, where)
    wanted = [name for name in definition.names if name not in excepted]
    missing = [name for name in wanted if names.source_column(name) is None]
    optional = {
        *definition.watermarkKey,
        definition.tombstoneKey,
        *(f.name for f in definition.fields if f.may_be_left_out),
    }
    refused = [name for name in missing if name not in optional]
    if refused:
        raise InvalidMergeError(
            f"{where}: the source has no column {', '.join(refused)}. "
            "Add it to the source, or list it in exceptColumns.",
            columns=refused,
        )
    is_alive = isinstance(action, Insert) and action.values.columns is not None
    more = {definition.tombstoneKey} if is_alive and definition.tombstoneKey is not None else set()
    return frozenset(n for n in wanted if n not in missing or n == definition.tombstoneKey) | more


def _explicit_columns(names: Names, values: Assignments, where: str) -> frozenset[str]:
    columns = [names.target_column(key, where) for key, _ in values.items]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidMergeError(f"{where}: {', '.join(twice)} is assigned twice; keep one.", columns=twice)
    for key, value in values.items:
        if isinstance(value, str):
            raise InvalidMergeError(f"{where}: the value of '{key}' is SQL text, for Spark only; use an Expr.")
    return frozenset(columns)


def _check_required(names: Names, clause: Clause, assigned: frozenset[str], where: str) -> None:
    """S23: an insert must mention every column that is not nullable, unless the source decides it (S10.2)."""
    definition = names.definition

    by_source: set[str] = set()
    if not isinstance(clause, WhenOnlyOnTarget):
        by_source = {name for name in definition.watermarkKey if names.source_column(name) is not None}
    required = [field.name for field in definition.fields if not field.nullable and field.default is None]
    missing = [name for name in required if name not in assigned and name not in by_source]
    if missing:
        raise InvalidMergeError(
            f"{where}: column {', '.join(missing)} is not nullable and must be assigned.", columns=missing
        )


def assigned_watermark(definition: TableDefinition, at: Any) -> dict[str, Any]:
    """The watermark columns that ``at`` assigns, by name (H2a); none if it is None.

    Raises:
        InvalidMergeError: the table declares another number of them.
    """
    values = () if at is None else at if isinstance(at, tuple) else (at,)
    if values and len(values) != len(definition.watermarkKey):
        raise InvalidMergeError(
            f"at: {counted(len(values), 'value')} for a watermark of {counted(len(definition.watermarkKey), 'column')}."
        )
    return dict(zip(definition.watermarkKey, values, strict=False))


def check_versions_are_kept(names: Names, clauses: tuple[Clause, ...], at: Mapping[str, Any]) -> None:
    """Refuses updates and deletes that would write over a version, because nobody assigns their watermark (H2a).

    Raises:
        InvalidMergeError: naming the clause and the column.
    """
    for position, clause in enumerate(clauses):
        has_source = not isinstance(clause, WhenOnlyOnTarget)
        by_source = {n for n in names.definition.watermarkKey if has_source and names.source_column(n) is not None}
        for action in clause.changes:
            if isinstance(action, Insert):
                continue
            where = f"{describe(clauses, position)}, {action.name}"
            assigned = {
                *at,
                *by_source,
                *(() if isinstance(action, Delete) else _assigned_columns(names, action, where)),
            }
            left = [name for name in names.definition.watermarkKey if name not in assigned]
            if left:
                raise InvalidMergeError(
                    f"{where}: nobody assigns the watermark {', '.join(left)}, so the row would replace a version instead of "
                    "following it. Assign it, add it to the source, give at=, or onStale='force' for a correction.",
                    columns=left,
                )


@attrs.frozen
class Refusals:
    """Refuses what the rows of one merge may not do.

    Attributes:
        rules: of the table's rows.
        clauses: of the merge.
    """

    rules: RowRules
    clauses: tuple[Clause, ...]

    def null_keys(self, firings: list[ClauseFiring]) -> None:
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

    def _clause_text(self, firing: ClauseFiring) -> str:
        return "an absent delete" if firing.clause is None else describe(self.clauses, firing.clause)
