"""When a merge may leave its target unread, if only for some rows (S31)."""

from __future__ import annotations

from trinitymerge.merge.analysis.outcomes import Outcomes
from trinitymerge.merge.analysis.understood import Analysis, ClausePlan
from trinitymerge.merge.analysis.values import Replaced
from trinitymerge.merge.clauses import WhenMatched, WhenNotMatched
from trinitymerge.merge.paths.base import Verdict
from trinitymerge.merge.paths.keyed import KEYED


def why_not_unread(analysis: Analysis, verdict: Verdict) -> str | None:
    """The one reason why every row depends on what the target holds; None if some do not."""
    if KEYED in verdict.why_not:
        return verdict.why_not[KEYED]
    if verdict.key_match is None or not verdict.key_match.exact:
        return "the merge condition is more than equality on the primary key"
    if verdict.needs_counts:
        return verdict.needs_counts
    for position, plan in enumerate(analysis.clauses):
        if any(row.is_compared for row in plan.rows):
            return f"clause {position + 1} compares its row with the target's (onlyIfChanged)"
    for position, plan in enumerate(analysis.clauses):
        if plan.reads_target:
            return f"the condition of clause {position + 1} reads the target"
    if not verdict.outcomes.tombstones and not verdict.outcomes.inserts:
        return _why_no_outcome(analysis)
    return None


def why_undecided(analysis: Analysis, outcomes: Outcomes) -> str | None:
    """Why every row that one clause fires on depends on the target; None if there is no such clause.

    An append without a look at the target would be thrown away as soon as the clause fires, which is what it is there for.
    """
    alike = {position for positions in outcomes.classes for side in positions for position in side}
    deletes = {m for m, _ in outcomes.tombstones}
    always = next((n + 1 for n, plan in analysis.of_clause(WhenNotMatched) if plan.condition is None), None)
    for position, plan in analysis.of_clause(WhenMatched):
        if position in alike or (position in deletes and always is None):
            continue
        if position in deletes:
            return f"clause {position + 1} deletes keys that exist, and clause {always} inserts the others"
        return _why_no_outcome_of(position, plan) or f"clause {position + 1} changes only keys that exist"
    inserts = (n for n, _ in analysis.of_clause(WhenNotMatched) if n not in alike)
    return next((f"clause {n + 1} inserts only keys that do not exist" for n in inserts), None)


def _why_no_outcome(analysis: Analysis) -> str:
    reasons = (_why_no_outcome_of(position, plan) for position, plan in enumerate(analysis.clauses))
    return next(filter(None, reasons), "what a source row means depends on whether its key exists")


def _why_no_outcome_of(position: int, plan: ClausePlan) -> str:
    for row in plan.rows:
        lacking = [n for n, v in row.values.items() if isinstance(v, Replaced)]
        if lacking:
            return f"clause {position + 1} takes the watermark '{lacking[0]}' over from the row it replaces"
        if not row.is_tombstone and row.reads_target:
            return f"clause {position + 1} writes values of the target row"
    return ""
