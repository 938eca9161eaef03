"""A merge as data, which the interpreter and the engine both run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.merge.model.clauses import Action, Assignments, Clause, Delete
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model.expressions import Expr
from trinitymerge.testing.model.merge import ModelResult
from trinitymerge.testing.model.table import ModelTable
from trinitymerge.testing.model.values import Row

TARGET, SOURCE = "A", "B"
"""The aliases that generated expressions use."""


@attrs.frozen
class MergeCase:
    """A table with a past, a source, and a merge.

    Attributes:
        definition: of the table.
        batches: the commits before the merge, oldest first; rows have the stored columns.
        source_schema: the source's columns.
        source_rows: rows with these columns each.
        condition: over the aliases A (target) and B (source); a ``KeyEquality`` is exactly key equality (S18).
        clauses: with ``Expr`` or literals as expressions.
        on_stale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        checks: the constraints of the definition by name, as functions of a row (S45).
    """

    definition: TableDefinition
    batches: tuple[tuple[Row, ...], ...]
    source_schema: tuple[Field, ...]
    source_rows: tuple[Row, ...]
    condition: Expr
    clauses: tuple[Clause, ...]
    on_stale: str = "skip"
    checks: Mapping[str, Callable[[Row], bool | None]] = attrs.field(factory=dict, eq=False, repr=False)

    def table(self) -> ModelTable:
        """Return the table before the merge, in the interpreter."""
        model = ModelTable(self.definition, checks=dict(self.checks))
        for batch in self.batches:
            model.commit(batch)
        return model

    def run(self, table: ModelTable | None = None, **options: Any) -> ModelResult:
        """Merge in the interpreter, into ``table`` or into a new one.

        Raises:
            TrinityMergeError: The merge is refused.
        """
        columns = [field.name for field in self.source_schema]
        given = {"sourceColumns": columns, "targetAlias": TARGET, "onStale": self.on_stale, **options}
        return (table or self.table()).merge(self.source_rows, self.clauses, self.condition, **given)

    @property
    def engine_clauses(self) -> tuple[Clause, ...]:
        """The clauses with SQL text in place of every ``Expr``."""
        return to_engine(self.clauses)


def to_engine(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """Return the same clauses for Spark: every ``Expr`` becomes its SQL text, literals stay.

    Args:
        clauses: of the interpreter.

    Raises:
        TypeError: An expression is a plain callable, which has no text.

    Example:
        >>> from trinitymerge.merge.model.clauses import WhenMatched
        >>> from trinitymerge.testing.model.expressions import eq, literal, source
        >>> to_engine([WhenMatched(eq(source("op"), literal("D")), [Delete()])])[0].condition
        "B.op = 'D'"
    """

    def action(given: Action) -> Action:
        if isinstance(given, Delete) or not isinstance(given.values, Assignments):
            return given
        return attrs.evolve(given, values=Assignments([(_text(k), _text(v)) for k, v in given.values.items]))

    return tuple(
        attrs.evolve(clause, condition=_text(clause.condition), actions=[action(a) for a in clause.actions])
        for clause in clauses
    )


def _text(expression: Any) -> Any:
    if isinstance(expression, Expr):
        return expression.sql
    if callable(expression):
        raise TypeError(f"{expression!r} has no SQL text. Write it as Expr(sql, callable).")
    return expression
