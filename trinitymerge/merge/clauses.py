"""Clauses and actions of a merge as frozen data.

Owns: the closed unions :data:`Action` and :data:`Clause`, and the rules a clause list must obey whatever table it is
for (S21, S28). Knows nothing of Spark: expressions are opaque (SQL text, a Spark ``Column``, a Python literal, or, in the
reference interpreter, a callable) and are never compared with ``==`` when they are not text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from trinitymerge.errors import InvalidMergeError

Expression: TypeAlias = Any
"""SQL text (``str``), a ``pyspark.sql.Column``, or a plain Python literal."""


def _comparable(value: Any) -> Any:
    """An equality key that never calls a Column's ``==``, which would build an expression instead of deciding."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return (type(value), value)
    return (type(value), repr(value))


def _comparable_items(items: tuple[tuple[Any, Any], ...]) -> Any:
    return tuple((_comparable(k), _comparable(v)) for k, v in items)


def _items(assignments: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(assignments.items()) if isinstance(assignments, Mapping) else tuple(assignments)


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Assignments:
    """Explicit assignments: ``((column, expression), ...)`` in the order given."""

    items: tuple[tuple[Any, Expression], ...] = attrs.field(converter=_items, eq=_comparable_items)


@attrs.frozen
class All:
    """Every target column from the source column of the same name, but for ``exceptColumns``."""

    exceptColumns: tuple[str, ...] = attrs.field(default=(), converter=_strings)


@attrs.frozen
class Update:
    """Replace the target row (S22)."""

    name: ClassVar[str] = "update"
    values: Assignments | All


@attrs.frozen
class Delete:
    """Write a tombstone for the target row (S9)."""

    name: ClassVar[str] = "delete"


@attrs.frozen
class Insert:
    """Write a new row (S23)."""

    name: ClassVar[str] = "insert"
    values: Assignments | All


Action: TypeAlias = Update | Delete | Insert


def _actions(values: Iterable[Action]) -> tuple[Action, ...]:
    return tuple(values)


@attrs.frozen
class _ClauseBase:
    condition: Expression | None = attrs.field(default=None, eq=_comparable)
    actions: tuple[Action, ...] = attrs.field(default=(), converter=_actions)
    call: str | None = attrs.field(default=None, eq=False)
    """The shorthand that stands for this clause, if that is what the user wrote."""


@attrs.frozen
class WhenMatched(_ClauseBase):
    """Tried for each pair of a source row and a live target row (S17)."""

    name: ClassVar[str] = "whenMatched"


@attrs.frozen
class WhenNotMatched(_ClauseBase):
    """Tried for each source row without a pair (S18)."""

    name: ClassVar[str] = "whenNotMatched"


@attrs.frozen
class WhenOnlyOnTarget(_ClauseBase):
    """Tried for each live target row without a pair (S19)."""

    name: ClassVar[str] = "whenNotMatchedAndExistsOnlyOnTarget"


Clause: TypeAlias = WhenMatched | WhenNotMatched | WhenOnlyOnTarget


def describe(clauses: tuple[Clause, ...], position: int) -> str:
    """A clause as errors name it: position, kind and condition text.

    Example:
        >>> print(describe((WhenMatched("B.op = 'D'", [Delete()]),), 0))
        clause 1, whenMatched("B.op = 'D'")
        >>> print(describe((WhenOnlyOnTarget("amount < 0", [Delete()], call='deleteWhere("amount < 0")'),), 0))
        deleteWhere("amount < 0")
    """
    clause = clauses[position]
    return clause.call or f"clause {position + 1}, {heading(clause)}"


def heading(clause: Clause) -> str:
    """A clause's kind and condition.

    Example:
        >>> print(heading(WhenMatched("B.op = 'D'", [Delete()])))
        whenMatched("B.op = 'D'")
    """
    return f"{clause.name}({'' if clause.condition is None else condition_text(clause.condition)})"


def describe_all(clauses: tuple[Clause, ...], positions: Iterable[int]) -> str:
    """Several clauses as errors name them; a shorthand that stands for several only once."""
    return " and ".join(dict.fromkeys(describe(clauses, p) for p in positions))


def outline(action: Action) -> str:
    """The call that adds an action, without its values.

    Example:
        >>> print(outline(Update(Assignments({"amount": "B.amount"}))), outline(Insert(All(["note"]))))
        updateExpr(amount) insertAll(exceptColumns: note)
    """
    if isinstance(action, Delete):
        return "delete()"
    if isinstance(action.values, All):
        excepted = ", ".join(action.values.exceptColumns)
        return f"{action.name}All({f'exceptColumns: {excepted}' if excepted else ''})"
    return f"{action.name}Expr({', '.join(str(k) for k, _ in action.values.items)})"


def condition_text(condition: Expression) -> str:
    """A condition as messages show it."""
    return f'"{condition}"' if isinstance(condition, str) else str(condition)


def check_clauses(clauses: tuple[Clause, ...]) -> None:
    """Refuses clause lists that no table could accept (S21, S28).

    Raises:
        InvalidMergeError: naming the clause by position and text.
    """
    if not clauses:
        raise InvalidMergeError(
            "The merge has no clause, so it could not do anything. Add whenMatched(...), whenNotMatched(...) or "
            "whenNotMatchedAndExistsOnlyOnTarget(...) with an action."
        )
    for position in range(len(clauses)):
        check_actions(clauses, position)
        check_reachable(clauses, position)


def check_actions(clauses: tuple[Clause, ...], position: int) -> None:
    """Refuses a clause whose actions its kind does not allow (S21)."""
    clause, where = clauses[position], describe(clauses, position)
    if not clause.actions:
        raise InvalidMergeError(f"{where}, has no action. Add {allowed_actions(clause)} after it.", clause=position + 1)
    replacing = [a for a in clause.actions if isinstance(a, (Update, Delete))]
    if isinstance(clause, WhenNotMatched):
        if replacing or len(clause.actions) > 1:
            raise InvalidMergeError(
                f"{where}, must have exactly one insert: there is no target row to update or delete.",
                clause=position + 1,
            )
    elif len(replacing) > 1:
        raise InvalidMergeError(
            f"{where}, has {' and '.join(a.name for a in replacing)}; a clause may have at most one update or delete. "
            "Put the second one into a clause of its own, with a condition that tells them apart.",
            clause=position + 1,
        )
    if isinstance(clause, WhenOnlyOnTarget) and any(
        isinstance(getattr(a, "values", None), All) for a in clause.actions
    ):
        raise InvalidMergeError(
            f"{where}, takes all columns from the source, but its rows have no source row. Give {allowed_actions(clause)}.",
            clause=position + 1,
        )


def check_reachable(clauses: tuple[Clause, ...], position: int) -> None:
    """Refuses a clause behind an unconditional one of the same kind (S28)."""
    clause = clauses[position]
    for earlier in range(position):
        if type(clauses[earlier]) is type(clause) and clauses[earlier].condition is None:
            raise InvalidMergeError(
                f"{describe(clauses, position)}, can never run: {describe(clauses, earlier)}, has no condition and takes "
                "every row before it. Give the earlier clause a condition, or put it last.",
                clause=position + 1,
            )


def allowed_actions(clause: Clause) -> str:
    """The actions a kind of clause takes, as a message lists them."""
    if isinstance(clause, WhenNotMatched):
        return "insertExpr({...}) or insertAll()"
    if isinstance(clause, WhenOnlyOnTarget):
        return "updateExpr({...}), delete() or insertExpr({...})"
    return "updateExpr({...}), updateAll(), delete() or insertExpr({...})"
