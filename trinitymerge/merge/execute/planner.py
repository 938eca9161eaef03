"""From the clauses of a chain to a plan."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from trinitymerge.errors import Advice, InvalidMergeError, counted
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.analyze import analyze, texts_of
from trinitymerge.merge.analysis.outbox import OutboxPlan, plan_outbox
from trinitymerge.merge.analysis.relations import Source, Target
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.analysis.row_kinds import FromReplacedRow
from trinitymerge.merge.compile.strategies import check_forced, evaluate_strategies
from trinitymerge.merge.execute import executor, outbox, quarantine
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.execute.request import MergeSpec
from trinitymerge.merge.execute.schema_changes import evolve_schema
from trinitymerge.merge.execute.validate import merge_errors
from trinitymerge.merge.model.clauses import describe
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.predicates import require_harmless


def plan_of(asked: MergeSpec, snapshot: Snapshot) -> MergePlan:
    spec = asked
    if asked.derive is not None:
        with merge_errors(asked.store):
            spec = asked.derive(asked, snapshot)
    store, source, condition, clauses, settings = spec.store, spec.source, spec.condition, spec.clauses, spec.settings
    batches = Batches.of(snapshot)
    texts = texts_of(condition, clauses, settings.at)
    definition = spec.definition or batches.definition
    require_harmless(store.spark, definition)
    if settings.schema_evolution and spec.definition is None:
        definition = evolve_schema(definition, source, condition, clauses, settings.at)
    target = Target(store.spark, definition, spec.alias)
    is_kept = settings.quarantine is not None
    if settings.quarantine is not None:
        spec = spec.with_settings(quarantine=quarantine.opened(store, definition, settings.quarantine))
    source_side = None if source is None else Source.of(source, texts, store.spark, definition.names, is_kept)
    at = _checked(settings.at, definition)
    analysis = analyze(target, source_side, condition, clauses, at, settings.schema_evolution)
    with merge_errors(store):
        rest = quarantine.without_uncastable_keys(spec, analysis)
    if rest is not None and rest.source is not None:
        spec, source_side = rest, Source.of(rest.source, texts, store.spark, definition.names, is_kept)
        analysis = analyze(target, source_side, condition, clauses, at, settings.schema_evolution)
    outbox_plan = plan_outbox(target, source_side, analysis.joined, clauses, partial(outbox.opened, store, definition))
    analysis = attrs.evolve(analysis, ignored=(*analysis.ignored, *spec.feed.ignored), outbox_plan=outbox_plan)
    if spec.feed.call and settings.on_stale == "force":
        raise InvalidMergeError(
            f'{spec.feed.call} takes each row for what was true at its moment, and onStale("force") would move what comes late. '
            "Use a merge with clauses to correct rows."
        )
    if definition.history and settings.on_stale != "force":
        _require_watermarks(analysis)
    choice = evaluate_strategies(analysis, _needs_counts(spec, bool(definition.watermarkKey), outbox_plan))
    if settings.strategy is not None:
        check_forced(settings.strategy, choice)
    return MergePlan(spec, analysis, choice, batches, partial(plan_of, asked), executor.execute)


def _checked(at: tuple[Any, ...], definition: TableDefinition) -> tuple[Any, ...]:
    """Return the values of ``at()``, if the table has as many watermark columns."""
    names = definition.watermarkKey
    if at and len(at) != len(names):
        declared = f"the watermark is ({', '.join(names)})" if names else "the table declares no watermark"
        raise InvalidMergeError(f"at() was given {counted(len(at), 'value')}, and {declared}.")
    return at


def _require_watermarks(analysis: Analysis) -> None:
    """Raise if an update could have the watermark of the version that it ends (H2a)."""
    for position, plan in enumerate(analysis.clauses):
        for row in plan.rows:
            unassigned = [n for n in analysis.definition.watermarkKey if isinstance(row.values[n], FromReplacedRow)]
            if unassigned and row.changes_pre_image:
                clauses = tuple(c.clause for c in analysis.clauses)
                advice = Advice(
                    "Assign the watermark in the map, let the source have the column, or add .at(value). To correct a version on "
                    'purpose: .onStale("force").',
                    sql="Assign the watermark in the statement, or let the source have the column. at(value) and "
                    'onStale("force") are calls of the chain only: table.merge(...).',
                )
                raise InvalidMergeError(
                    f"{describe(clauses, position)}: the row changes without a watermark ({', '.join(unassigned)}). "
                    f"With the watermark of the version that it ends, it would replace that version in the history. {advice}",
                    clause=position + 1,
                    columns=unassigned,
                    advice=advice,
                )


def _needs_counts(spec: MergeSpec, has_watermark: bool, outbox_plan: OutboxPlan | None) -> str | None:
    """Return why the merge must read the replaced rows, or None."""
    settings = spec.settings
    if spec.feed.stored_column:
        return None
    if outbox_plan is not None:
        return "insertHistoryExpr writes what is replaced into another table"
    if settings.on_stale != "skip" and has_watermark:
        return f'onStale("{settings.on_stale}") compares watermarks with the target\'s'
    if settings.max_delete_fraction is not None:
        return "maxDeleteFraction counts the rows that are deleted"
    return "withCounts() asks for all counts" if settings.counts else None
