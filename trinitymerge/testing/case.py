"""A merge as data that the interpreter and the engine both run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.merge.model.clauses import Action, Assignments, Clause, Delete
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model.expressions import Expr, Row
from trinitymerge.testing.model.outcomes import ModelResult
from trinitymerge.testing.model.table import ModelTable

TARGET, SOURCE = "A", "B"
"""The aliases that generated expressions use."""


@attrs.frozen
class MergeCase:
    """A table with a past, a source, and a merge.

    Attributes:
        definition: the table's.
        batches: the commits before the merge, oldest first; rows have the stored columns.
        source_schema: the source's columns.
        source_rows: with these columns each.
        condition: over the aliases A (target) and B (source); a ``KeyEquality`` is exactly key equality.
        clauses: their expressions are ``Expr`` or literals.
        on_stale: ``"skip"``, ``"error"`` or ``"force"``.
        checks: the checks of the definition as functions of a row, by their names (S45).
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
        """The table before the merge, in the model."""
        model = ModelTable(self.definition, checks=dict(self.checks))
        for batch in self.batches:
            model.commit(batch)
        return model

    def run(self, table: ModelTable | None = None, **options: Any) -> ModelResult:
        """Merges in the model: into ``table``, or into a new one.

        Raises:
            TrinityMergeError: the error the rules call for.
        """
        model = self.table() if table is None else table
        return model.merge(
            self.source_rows,
            self.clauses,
            self.condition,
            sourceColumns=[field.name for field in self.source_schema],
            targetAlias=TARGET,
            **{"onStale": self.on_stale, **options},
        )

    @property
    def engine_clauses(self) -> tuple[Clause, ...]:
        """The clauses with SQL text in place of every ``Expr``."""
        return to_engine(self.clauses)

    @property
    def source_json(self) -> dict[str, Any]:
        """The source's schema as ``pyspark.sql.types.StructType.fromJson`` takes it."""
        return {"type": "struct", "fields": [field.to_json() for field in self.source_schema]}


def to_engine(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """The same clauses for Spark: every ``Expr`` becomes its SQL text, literals stay.

    Raises:
        TypeError: for a plain callable, which has no text.

    Example:
        >>> from trinitymerge.merge.model.clauses import WhenMatched
        >>> from trinitymerge.testing.model.expressions import eq, literal, source
        >>> to_engine([WhenMatched(eq(source("op"), literal("D")), [Delete()])])[0].condition
        "B.op = 'D'"
    """
    return tuple(_engine_clause(clause) for clause in clauses)


def _engine_clause(clause: Clause) -> Clause:
    actions: Any = [_engine_action(action) for action in clause.actions]
    return attrs.evolve(clause, condition=_text(clause.condition), actions=actions)


def _engine_action(action: Action) -> Action:
    if isinstance(action, Delete) or not isinstance(action.values, Assignments):
        return action
    return attrs.evolve(action, values=Assignments([(_text(k), _text(v)) for k, v in action.values.items]))


def _text(expression: Any) -> Any:
    if isinstance(expression, Expr):
        return expression.sql
    if callable(expression):
        raise TypeError(f"{expression!r} has no SQL text; write it as Expr(sql, callable).")
    return expression
