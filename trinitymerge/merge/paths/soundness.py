"""When a merge may leave its target unread, if only for some rows (S31)."""

from __future__ import annotations

from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.analysis.values import Replaced
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


def _why_no_outcome(analysis: Analysis) -> str:
    for position, plan in enumerate(analysis.clauses):
        for row in plan.rows:
            lacking = [n for n, v in row.values.items() if isinstance(v, Replaced)]
            if lacking:
                return f"clause {position + 1} takes the watermark '{lacking[0]}' over from the row it replaces"
            if not row.is_tombstone and row.reads_target:
                return f"clause {position + 1} writes values of the target row"
    return "what a source row means depends on whether its key exists"
