"""The outcomes of source rows that are known before the target is read (S31)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
from pyspark.sql import Column

from trinitymerge.merge.analysis.key_match import KeyMatch, keeps_key
from trinitymerge.merge.analysis.result import Analysis, ClausePlan
from trinitymerge.merge.analysis.row_kinds import BlindDelete, Expression, InsertedRow, WrittenRow
from trinitymerge.merge.model.clauses import Delete, Update, WhenMatched, WhenNotMatched

RecordedDeletes: TypeAlias = tuple[tuple[int, BlindDelete | None], ...]
"""Per whenMatched clause that can be tried without the target, in order: the row written for a source row that it would delete
and whose key is not live, or None where nothing is."""


@attrs.frozen(eq=False)
class Outcomes:
    """The outcomes of source rows that do not depend on the target.

    It depends on the first whenMatched and the first whenNotMatched clause whose condition is true: nothing where there is
    neither, else one of these.

    Attributes:
        tombstones: whenMatched clauses that delete, and the tombstone they write where no whenNotMatched clause applies.
        inserts: whenNotMatched clauses, and the row they write where a whenMatched clause of their class applies.
        classes: whenMatched and whenNotMatched clauses that write the same row. One entry for each different row, not for
            each pair of clauses: there may be many.

    Example:
        Of ``whenMatched("B.op = 'D'").delete().whenMatched().updateAll().whenNotMatched().insertAll()``, by the clauses' places:
        ``tombstones`` has 0, ``inserts`` has 2, and ``classes`` is ``(((1,), (2,)),)``, for 1 and 2 write the source's row.
    """

    tombstones: tuple[tuple[int, BlindDelete], ...] = ()
    inserts: tuple[tuple[int, InsertedRow], ...] = ()
    classes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def allow(self, matched: Sequence[int | None], not_matched: Sequence[int | None]) -> bool:
        """Return True if every pair of clauses that can apply together has such an outcome. None means no clause."""
        deletes = {m for m, _ in self.tombstones}
        class_of = {m: i for i, (ms, _) in enumerate(self.classes) for m in ms}
        class_of_insert = {n: i for i, (_, ns) in enumerate(self.classes) for n in ns}
        if None in not_matched and any(m is not None and m not in deletes for m in matched):
            return False
        inserts = {class_of_insert.get(n) for n in not_matched if n is not None}
        updates = {class_of.get(m) if m is not None else None for m in matched}
        return not inserts or (len(inserts | updates) == 1 and None not in inserts)


def outcomes_of(analysis: Analysis, match: KeyMatch) -> Outcomes:
    """Return the outcomes of clauses that write the same row, or none, for each kind."""
    matched = analysis.of_clause(WhenMatched)
    deletes = [(m, _recorded_delete(analysis, match, plan)) for m, plan in matched]
    only_updates = [(m, p) for m, p in matched if len(p.rows) == 1 and isinstance(p.clause.changes[0], Update)]
    updates = _rows_of_source(analysis, match, only_updates)
    not_matched = [(n, p) for n, p in analysis.of_clause(WhenNotMatched) if isinstance(p.rows[0], InsertedRow)]
    inserts = _rows_of_source(analysis, match, not_matched)
    updates, inserts = _identified(analysis, updates, inserts)
    classes = tuple((updates[row], inserts[row]) for row in updates if row in inserts)
    both = {n for _, ns in classes for n in ns}
    return Outcomes(
        tuple((m, t) for m, t in deletes if t is not None and not t.reads_target),
        tuple((n, row) for n, plan in not_matched if n in both and isinstance(row := plan.rows[0], InsertedRow)),
        classes,
    )


def _recorded_delete(analysis: Analysis, match: KeyMatch, plan: ClausePlan) -> BlindDelete | None:
    """Return the tombstone of a delete whose key may not exist: nothing is known of its row but what the source says."""
    if plan.clause.changes != (Delete(),):
        return None
    (delete,) = plan.rows
    keys = dict(zip(analysis.definition.primaryKey, match.keys, strict=True))
    return BlindDelete(delete.clause, {**delete.values, **keys})


def recorded_deletes(analysis: Analysis, match: KeyMatch | None) -> RecordedDeletes:
    """Return the leading whenMatched clauses that can be tried without a target row, and the tombstones they then write."""
    found: list[tuple[int, BlindDelete | None]] = []
    if match is None or not match.exact:
        return ()
    for position, plan in analysis.of_clause(WhenMatched):
        if plan.reads_target:
            break
        found.append((position, _recorded_delete(analysis, match, plan)))
    return tuple(found) if any(t for _, t in found) else ()


@attrs.frozen(eq=False)
class _Columns:
    """Values that cannot be compared without asking, for some are Columns."""

    expressions: tuple[str | Column, ...]


_Row: TypeAlias = tuple[tuple[Any, ...], Any]
"""The row that a clause writes: for each column the source of its value, and the given values."""

_ByRow: TypeAlias = dict[_Row, tuple[int, ...]]


def _identified(analysis: Analysis, updates: _ByRow, inserts: _ByRow) -> tuple[_ByRow, _ByRow]:
    """Return the rows with equal objects for those with equal meaning.

    Each is asked about once, so that many clauses need not be compared pair by pair; none is where texts decide already.
    """
    source = analysis.source
    if source is None or not updates or not inserts or set(updates) == set(inserts):
        return updates, inserts
    found: list[_ByRow] = [{}, {}]
    for rows, same in zip((updates, inserts), found, strict=True):
        for (kinds, values), positions in rows.items():
            expressions = values.expressions if isinstance(values, _Columns) else values
            row = (kinds, source.identity(expressions) if expressions else None)
            same[row] = (*same.get(row, ()), *positions)
    return found[0], found[1]


def _rows_of_source(analysis: Analysis, match: KeyMatch, clauses: Sequence[tuple[int, ClausePlan]]) -> _ByRow:
    """Return the clauses that write a row for a source row without looking at the target, by what they write."""
    found: _ByRow = {}
    for position, plan in clauses:
        row = _row_of_source(analysis, match, plan.rows[0])
        if row is not None:
            found[row] = (*found.get(row, ()), position)
    return found


def _row_of_source(analysis: Analysis, match: KeyMatch, written: WrittenRow) -> _Row | None:
    others = [v for n, v in written.values.items() if n not in analysis.definition.primaryKey]
    given = [v for v in others if isinstance(v, Expression)]
    if written.is_compared:
        return None
    values = tuple(v.alone for v in given if v.alone is not None)
    are_text = all(isinstance(v, str) for v in values)
    if len(values) < len(given) or not keeps_key(analysis, match, written):
        return None
    if any(not isinstance(v, Expression) and v.reads_target for v in others):
        return None
    kinds = tuple(Expression if isinstance(v, Expression) else v for v in others)
    return kinds, values if are_text else _Columns(values)


def is_certain(analysis: Analysis, outcomes: Outcomes) -> bool:
    """Return True if every source row can only have one of the outcomes, by the shape of the clause lists alone."""
    return outcomes.allow(*(_possible(analysis.of_clause(kind)) for kind in (WhenMatched, WhenNotMatched)))


def _possible(clauses: list[tuple[int, ClausePlan]]) -> list[int | None]:
    is_certain = any(plan.condition is None for _, plan in clauses)
    return [*(position for position, _ in clauses), *([] if is_certain else [None])]
