"""From the clauses of a chain to a plan: what they mean, which paths are sound, and which one is tried first (S30, S31).

Owns: the order of these steps. Nothing runs but Spark's analyzer.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame

from trinitymerge.merge.analysis.frames import Source, Target
from trinitymerge.merge.analysis.resolution import analyse
from trinitymerge.merge.clauses import Clause
from trinitymerge.merge.paths.choice import check_forced, judge
from trinitymerge.merge.run import attempt
from trinitymerge.merge.run.plan import Afterwards, MergePlan, Options
from trinitymerge.storage.backend import Backend, Batches


def plan_of(
    backend: Backend,
    alias: str,
    source: DataFrame | None,
    condition: str | Column | None,
    clauses: tuple[Clause, ...],
    texts: Iterable[str],
    options: Options,
    afterwards: Afterwards,
) -> MergePlan:
    """The plan of a merge.

    Args:
        backend: where the target is.
        alias: the target's.
        source: the user's DataFrame; None for merges without one.
        condition: of the merge; None for equality on the primary key, by name.
        clauses: in order.
        texts: of all expressions of the merge.
        options: its settings.
        afterwards: what is done once it has been committed.

    Raises:
        InvalidMergeError: unknown or ambiguous names, missing assignments, conditions that are not boolean.
        SchemaMismatchError: a value whose type cannot be stored in its column.
    """
    batches = Batches.of(backend.snapshot())
    definition = batches.definition
    target = Target(backend.spark, definition, alias)
    beside = None if source is None else Source.of(source, list(texts), backend.spark, definition.names)
    analysis = analyse(target, beside, condition, clauses)
    verdict = judge(analysis, _needs_counts(options, bool(definition.watermarkKey)))
    if options.path is not None:
        check_forced(options.path, verdict)
    # A plan runs itself, by what knows of plans: it is handed in.
    return MergePlan(backend, analysis, verdict, options, clauses, batches, attempt.execute, afterwards)


def _needs_counts(options: Options, has_watermark: bool) -> str | None:
    """Why the merge must know what its rows replace, or None."""
    if options.on_stale != "skip" and has_watermark:
        return f'onStale("{options.on_stale}") compares watermarks with the target\'s'
    if options.max_delete_fraction is not None:
        return "maxDeleteFraction counts the rows that are deleted"
    return None
