"""Clauses and actions as frozen data, and their order (S21, S28)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from trinitymerge.errors import InvalidMergeError

Expression: TypeAlias = Any
"""SQL text (``str``), a ``pyspark.sql.Column``, or a plain Python literal."""


def comparable(value: Any) -> Any:
    """Return an equality key that never calls a Column's ``==``, which would build an expression."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return (type(value), value)
    return (type(value), repr(value))


def _comparable_items(items: tuple[tuple[Any, Any], ...]) -> Any:
    return tuple((comparable(k), comparable(v)) for k, v in items)


def _items(assignments: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(assignments.items()) if isinstance(assignments, Mapping) else tuple(assignments)


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Assignments:
    """Explicit assignments: ``((column, expression), ...)`` in the order given."""

    suffix: ClassVar[str] = "Expr"
    items: tuple[tuple[Any, Expression], ...] = attrs.field(converter=_items, eq=_comparable_items)

    @property
    def shown(self) -> str:
        """The columns, as the user's call named them."""
        return ", ".join(str(column) for column, _ in self.items)

    @property
    def explained(self) -> str:
        """Return the written values in words."""
        return self.shown


def _strings_or_none(values: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _flag_or_strings(values: bool | Iterable[str]) -> bool | tuple[str, ...]:
    return values if isinstance(values, bool) else tuple(values)


@attrs.frozen
class All:
    """Every target column from the source column of the same name.

    Attributes:
        exceptColumns: but for these.
        columns: only these, and the primary key; None for all.
        ignoreNulls: of all columns, or of some: where the source has null, an update keeps what is stored.
    """

    suffix: ClassVar[str] = "All"
    exceptColumns: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    columns: tuple[str, ...] | None = attrs.field(default=None, converter=_strings_or_none)
    ignoreNulls: bool | tuple[str, ...] = attrs.field(default=False, converter=_flag_or_strings)

    @property
    def shown(self) -> str:
        """Return the arguments that differ from the defaults, as the call has them."""
        nulls = self.ignoreNulls
        parts = [
            f"columns: {', '.join(self.columns)}" if self.columns is not None else "",
            f"exceptColumns: {', '.join(self.exceptColumns)}" if self.exceptColumns else "",
            f"ignoreNulls{'' if isinstance(nulls, bool) else ': ' + ', '.join(nulls)}" if nulls else "",
        ]
        return "; ".join(part for part in parts if part)

    @property
    def explained(self) -> str:
        which = "all columns" if self.columns is None else ", ".join(self.columns)
        but = f" but {', '.join(self.exceptColumns)}" if self.exceptColumns else ""
        nulls = " that are not null there" if self.ignoreNulls else ""
        return f"{which}{but} from the source{nulls}"


def is_default(value: object) -> bool:
    """Return whether a value in a map is the word ``DEFAULT``, the default of the column (S46)."""
    return isinstance(value, str) and value.strip().upper() == "DEFAULT"


@attrs.frozen
class _ActionBase:
    name: ClassVar[str]
    replaces_target: ClassVar[bool] = False
    """It writes a row in place of the target row, of which a clause can do only one."""

    @property
    def method(self) -> str:
        return self.name

    @property
    def outline(self) -> str:
        """Return the call of the action without its values.

        Example:
            >>> print(Update(Assignments({"amount": "B.amount"})).outline, Insert(All(["note"])).outline)
            updateExpr(amount) insertAll(exceptColumns: note)
        """
        return f"{self.method}()"

    @property
    def explained(self) -> str:
        """Return the effect of the action in words."""
        raise NotImplementedError

    @property
    def assignments(self) -> tuple[tuple[Any, Expression], ...]:
        """The columns and expressions that the user gave."""
        return ()

    @property
    def from_source(self) -> All | None:
        """Which columns it takes from the source by their names; None if that is not what it does."""
        return None


@attrs.frozen
class _Writes(_ActionBase):
    keeps_the_rest: ClassVar[bool]
    """Whether unassigned columns keep the value of the target row; otherwise they have their default, or are null."""

    values: Assignments | All

    @property
    def method(self) -> str:
        return f"{self.name}{self.values.suffix}"

    @property
    def outline(self) -> str:
        return f"{self.method}({self.values.shown})"

    @property
    def explained(self) -> str:
        return f"{self.name} {self.values.explained}"

    @property
    def assignments(self) -> tuple[tuple[Any, Expression], ...]:
        return self.values.items if isinstance(self.values, Assignments) else ()

    @property
    def from_source(self) -> All | None:
        return self.values if isinstance(self.values, All) else None


@attrs.frozen
class Update(_Writes):
    """Replace the target row (S22).

    Attributes:
        onlyIfChanged: not where the row would be the same (S22b).
    """

    name: ClassVar[str] = "update"
    replaces_target: ClassVar[bool] = True
    keeps_the_rest: ClassVar[bool] = True
    onlyIfChanged: bool = False

    @property
    def explained(self) -> str:
        return f"{self.name} {self.values.explained}{', where that changes the row' if self.onlyIfChanged else ''}"


@attrs.frozen
class Delete(_ActionBase):
    """Write a tombstone for the target row (S9)."""

    name: ClassVar[str] = "delete"
    replaces_target: ClassVar[bool] = True

    @property
    def explained(self) -> str:
        return "delete the target row"


@attrs.frozen
class Insert(_Writes):
    """Write a new row (S23)."""

    name: ClassVar[str] = "insert"
    keeps_the_rest: ClassVar[bool] = False


@attrs.frozen
class OtherTable:
    """Where the rows of a history insert go.

    Attributes:
        path: of the table, as :func:`trinitymerge.stores.registry.store_uri` gives it.
        model: in the reference interpreter, the table itself.
    """

    path: str = ""
    model: Any = attrs.field(default=None, eq=comparable)

    def __str__(self) -> str:
        return self.path or "a table"


@attrs.frozen
class InsertHistory(_Writes):
    """Insert a row into another table for each target row that the clause's update or delete replaces (S27).

    Attributes:
        values: from columns of the other table to expressions; names without an alias are the row's before it is replaced.
    """

    name: ClassVar[str] = "insertHistory"
    keeps_the_rest: ClassVar[bool] = False
    values: Assignments
    table: OtherTable

    @property
    def outline(self) -> str:
        return f"{self.method}({self.values.shown}; {self.table})"

    @property
    def explained(self) -> str:
        return f"insert {self.values.explained} of the row before into {self.table}"


TableAction: TypeAlias = Update | Delete | Insert
"""An action that writes rows of the table."""

Action: TypeAlias = TableAction | InsertHistory


def _actions(values: Iterable[Action]) -> tuple[Action, ...]:
    return tuple(values)


@attrs.frozen
class _ClauseBase:
    condition: Expression | None = attrs.field(default=None, eq=comparable)
    actions: tuple[Action, ...] = attrs.field(default=(), converter=_actions)
    call: str | None = attrs.field(default=None, eq=False)
    """The shorthand that stands for this clause, if that is what the user wrote."""

    @property
    def changes(self) -> tuple[TableAction, ...]:
        return tuple(a for a in self.actions if not isinstance(a, InsertHistory))

    @property
    def histories(self) -> tuple[InsertHistory, ...]:
        """Return the history inserts: the actions that insert into other tables (S27)."""
        return tuple(a for a in self.actions if isinstance(a, InsertHistory))


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
    """Return a clause as errors name it: position, kind and condition text.

    Example:
        >>> print(describe((WhenMatched("B.op = 'D'", [Delete()]),), 0))
        clause 1, whenMatched("B.op = 'D'")
        >>> print(describe((WhenOnlyOnTarget("amount < 0", [Delete()], call='deleteWhere("amount < 0")'),), 0))
        deleteWhere("amount < 0")
    """
    clause = clauses[position]
    return clause.call or f"clause {position + 1}, {heading(clause)}"


def heading(clause: Clause) -> str:
    """Return a clause's kind and condition.

    Example:
        >>> print(heading(WhenMatched("B.op = 'D'", [Delete()])))
        whenMatched("B.op = 'D'")
    """
    return f"{clause.name}({'' if clause.condition is None else condition_text(clause.condition)})"


def describe_all(clauses: tuple[Clause, ...], positions: Iterable[int]) -> str:
    """Several clauses as errors name them; a shorthand that stands for several only once."""
    return " and ".join(dict.fromkeys(describe(clauses, p) for p in positions))


def condition_text(condition: Expression) -> str:
    return f'"{condition}"' if isinstance(condition, str) else str(condition)


def check_clauses(clauses: tuple[Clause, ...]) -> None:
    """Raise for clause lists that no table accepts (S21, S28)."""
    if not clauses:
        raise InvalidMergeError(
            "The merge has no clause, so it could not do anything. Add whenMatched(...), whenNotMatched(...) or "
            "whenNotMatchedAndExistsOnlyOnTarget(...) with an action."
        )
    for position in range(len(clauses)):
        check_actions(clauses, position)
        check_reachable(clauses, position)


def check_actions(clauses: tuple[Clause, ...], position: int) -> None:
    """Raise for a clause whose actions its kind does not allow (S21)."""
    clause, where = clauses[position], describe(clauses, position)
    if not clause.actions:
        raise InvalidMergeError(f"{where}, has no action. Add {allowed_actions(clause)} after it.", clause=position + 1)
    replacing = [a for a in clause.actions if a.replaces_target]
    if isinstance(clause, WhenNotMatched):
        if replacing or len(clause.actions) > 1 or not clause.changes:
            raise InvalidMergeError(
                f"{where}, must have exactly one insert: there is no target row to update or delete.",
                clause=position + 1,
            )
    elif len(replacing) > 1:
        raise InvalidMergeError(
            f"{where}, has {' and '.join(a.name for a in replacing)}; a clause may have at most one update or delete. "
            "Put the second one into a separate clause with another condition.",
            clause=position + 1,
        )
    elif not replacing and clause.histories:
        raise InvalidMergeError(
            f"{where}, inserts into another table what an update or delete replaces, and has neither before it. Put "
            "insertHistoryExpr after updateExpr({...}), updateAll() or delete().",
            clause=position + 1,
        )
    if isinstance(clause, WhenOnlyOnTarget) and any(a.from_source is not None for a in clause.actions):
        raise InvalidMergeError(
            f"{where}, takes all columns from the source, but its rows have no source row. Give {allowed_actions(clause)}.",
            clause=position + 1,
        )


def check_reachable(clauses: tuple[Clause, ...], position: int) -> None:
    """Raise for a clause after an unconditional one of the same kind (S28)."""
    clause = clauses[position]
    for earlier in range(position):
        if type(clauses[earlier]) is type(clause) and clauses[earlier].condition is None:
            raise InvalidMergeError(
                f"{describe(clauses, position)}, can never run: {describe(clauses, earlier)}, has no condition and takes "
                "every row before it. Give the earlier clause a condition, or put it last.",
                clause=position + 1,
            )


def allowed_actions(clause: Clause) -> str:
    if isinstance(clause, WhenNotMatched):
        return "insertExpr({...}) or insertAll()"
    if isinstance(clause, WhenOnlyOnTarget):
        return "updateExpr({...}), delete() or insertExpr({...})"
    return "updateExpr({...}), updateAll(), delete() or insertExpr({...})"
