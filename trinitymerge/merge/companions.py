"""The shorthands of :class:`~trinitymerge.table.TrinityTable` as clauses: ``upsert``, ``deleteWhere`` and their like.

Owns: what each means as a merge. Their clauses know by which call they came, so that errors speak of that, and not of clauses
that nobody wrote.
"""

from __future__ import annotations

from typing import Any

import attrs
from pyspark.sql import Column

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.arguments import ExpressionMap, assignments_of
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.clauses import (
    All,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
    condition_text,
)


def upsert(merge: MergeBuilder, values: All, onlyIfChanged: bool) -> MergeBuilder:
    """Updates rows that exist and inserts the others."""
    matched = WhenMatched(None, [Update(values, bool(onlyIfChanged))])
    not_matched = WhenNotMatched(None, [Insert(attrs.evolve(values, ignoreNulls=False))])
    return _with(merge, f"upsert({values.shown})", matched, not_matched)


def update(merge: MergeBuilder, values: All, onlyIfChanged: bool) -> MergeBuilder:
    """Updates rows that exist."""
    return _with(merge, f"update({values.shown})", WhenMatched(None, [Update(values, bool(onlyIfChanged))]))


def delete(merge: MergeBuilder) -> MergeBuilder:
    """Deletes rows that exist."""
    return _with(merge, "delete()", WhenMatched(None, [Delete()]))


def insert(merge: MergeBuilder) -> MergeBuilder:
    """Inserts rows that are not matched."""
    return _with(merge, "insert()", WhenNotMatched(None, [Insert(All())]))


def update_where(merge: MergeBuilder, condition: Any, values: ExpressionMap) -> MergeBuilder:
    """Updates the live rows for which a condition is true, or all."""
    if condition is not None:
        _check("updateWhere", condition)
    call = f"updateWhere({'' if condition is None else condition_text(condition)})"
    return _with(merge, call, WhenOnlyOnTarget(condition, [Update(assignments_of("updateWhere", values))]))


def delete_where(merge: MergeBuilder, condition: Any) -> MergeBuilder:
    """Deletes the live rows for which a condition is true."""
    if condition is None:
        raise InvalidMergeError(
            'deleteWhere takes a condition, got None, which would delete every row. If that is meant, say deleteWhere("true").'
        )
    _check("deleteWhere", condition)
    return _with(merge, f"deleteWhere({condition_text(condition)})", WhenOnlyOnTarget(condition, [Delete()]))


def _check(call: str, condition: Any) -> None:
    if not isinstance(condition, (str, Column)):
        raise InvalidMergeError(
            f"{call} takes a condition as SQL text or a Column, got {type(condition).__name__} ({condition!r})."
        )


def _with(merge: MergeBuilder, call: str, *clauses: Clause) -> MergeBuilder:
    return attrs.evolve(merge, clauses=tuple(attrs.evolve(c, call=call) for c in clauses))
