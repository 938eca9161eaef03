"""The parameters of a merge in the log, without values (S36b)."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import Column

from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.strategies import MergeStrategy
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.model.clauses import Clause

_TOKEN = re.compile(
    r"""(?P<name>`(?:[^`]|``)*`|[^\W\d]\w*)|(?P<comment>--[^\r\n]*|/\*.*\*/)|(?P<value>'[^']*'|"[^"]*"|\d[\w.]*)|.""",
    re.DOTALL,
)

_OPERATIONS = {
    "upsert": "UPSERT",
    "insert": "INSERT",
    "update": "UPDATE",
    "updateWhere": "UPDATE",
    "delete": "DELETE",
    "deleteWhere": "DELETE",
    "applyChanges": "APPLY CHANGES",
    "snapshot": "SNAPSHOT",
    "fromIntervals": "FROM INTERVALS",
    **{"UPDATE": "UPDATE", "DELETE FROM": "DELETE", "INSERT INTO": "INSERT"},
}
"""By the name of the call that a merge is: what ``history()`` calls it. All others are ``MERGE``."""


def operation_of(plan: MergePlan) -> str:
    """Return the operation in ``history()``: the call that made the clauses, or ``MERGE`` if the caller gave them."""
    return _OPERATIONS.get(_call_of(plan).partition("(")[0], "MERGE")


def _call_of(plan: MergePlan) -> str:
    """Return the call that made all clauses, without values; empty if there is none."""
    if plan.spec.feed.call:
        return plan.spec.feed.call
    calls = set(map(_call, plan.spec.clauses))
    call = calls.pop() if len(calls) == 1 else ""
    condition = plan.spec.clauses[0].condition
    return call if condition is None or not call else f"{call.partition('(')[0]}({redact_literals(condition)})"


def _call(clause: Clause) -> str:
    """Return the call that made a clause; empty for a clause of the user's, whose text in SQL may have values."""
    return "" if clause.call is None or clause.call.startswith("WHEN ") else clause.call


def operation_parameters(plan: MergePlan) -> dict[str, Any]:
    """Return the clauses or the call that made them, the condition if the caller gave one, and the source's columns."""
    comment, analysis, call = plan.spec.settings.comment, plan.analysis, _call_of(plan)
    asked: dict[str, Any] = {"call": call}
    if not call:
        heads = (f"{c.name}({'' if c.condition is None else redact_literals(c.condition)})" for c in plan.spec.clauses)
        asked = {"clauses": [f"clause {i}, {head}" for i, head in enumerate(heads, 1)]}
    if analysis.source is not None and not plan.spec.feed.call:
        is_own = not analysis.by_name and not any(map(_call, plan.spec.clauses))
        asked |= {"condition": redact_literals(analysis.condition)} if is_own else {}
        asked["sourceColumns"] = analysis.source.schema.names
    return {**asked, **({"comment": comment} if comment else {})}


_DOING = {
    "source": "evaluates its source",
    "write": "writes its batch",
    "validate": "checks its batch",
    "history": "writes rows for other tables",
    "commit": "commits",
}
"""The phases of an attempt, in words."""


def progress_text(plan: MergePlan, strategy: MergeStrategy, snapshot: Snapshot, phase: str) -> str:
    reads = plan.reads_on(strategy, Batches.of(snapshot))
    return f"a merge into version {snapshot.version} {_DOING[phase]} ({strategy.name}; it reads {reads})"


def redact_literals(condition: str | Column | None) -> str:
    r"""Return a condition with ``?`` for each literal, as messages quote it; comments are left out.

    A Column does not say which of its words are values, and is not shown. Nor is text with a backslash in it: what that makes of
    a quote is a setting of the session.

    Example:
        >>> print(redact_literals("A.id = B.id AND B.`key 1` <> 'Ann' AND A.x2 > 1.5e3 -- not Bob"))
        "A.id = B.id AND B.`key 1` <> ? AND A.x2 > ? "
        >>> print(redact_literals(r"name = 'O\'Neill'"))
        "?"
    """
    if not isinstance(condition, str):
        return "a Column"
    if "\\" in condition:
        return '"?"'
    tokens = _TOKEN.finditer(condition)
    shown = ({"comment": "", "value": "?"}.get(token.lastgroup or "", token.group()) for token in tokens)
    return f'"{"".join(shown)}"'
