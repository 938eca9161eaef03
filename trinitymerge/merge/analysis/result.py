"""The result of the analysis, as data."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from pyspark.sql import Column, DataFrame

from trinitymerge.merge.analysis.outbox import OutboxPlan
from trinitymerge.merge.analysis.relations import Source, Target
from trinitymerge.merge.analysis.row_kinds import Expression, RowKind
from trinitymerge.merge.model.clauses import Clause
from trinitymerge.schema.definition import TableDefinition


@attrs.frozen(eq=False)
class ClausePlan:
    clause: Clause
    condition: str | Column | None
    reads_target: bool
    rows: tuple[RowKind, ...]


@attrs.frozen(eq=False)
class Analysis:
    """All that is known about a merge before anything runs.

    Attributes:
        target, source: the sides; no source for ``updateWhere`` and ``deleteWhere``.
        joined: the user's columns of both sides without the target's rows, for analysis.
        condition: of the merge; never None where there is a source.
        keys: of a condition by name, the source's value for each key column; empty if the user has given a condition.
        ignored: source columns that the merge has no use for (S22a).
        outbox_plan: what it writes into other tables, if anything (S27).
        one_by_one: some expression over one side means nothing, or something else, where the other side is there too (S30).
    """

    target: Target
    source: Source | None
    joined: DataFrame
    condition: str | Column | None
    keys: Mapping[str, Expression]
    clauses: tuple[ClausePlan, ...]
    ignored: tuple[str, ...] = ()
    outbox_plan: OutboxPlan | None = None
    one_by_one: bool = False

    @property
    def by_name(self) -> bool:
        return bool(self.keys)

    @property
    def definition(self) -> TableDefinition:
        return self.target.definition

    def of_clause(self, kind: type) -> list[tuple[int, ClausePlan]]:
        return [(i, c) for i, c in enumerate(self.clauses) if isinstance(c.clause, kind)]
