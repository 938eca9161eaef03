"""Blind append with keyed lookup: only the keys of source rows whose outcome depends on the target are read.

What blind append becomes if there turn out to be such rows; never a choice of its own. Two parts, each with a program of its
own, written together.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from trinitymerge.merge.analysis.keymatch import keeps_key
from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.clauses import WhenNotMatched
from trinitymerge.merge.compile import pipeline, sides
from trinitymerge.merge.compile.firing import split_undecided
from trinitymerge.merge.compile.program import Program, blind
from trinitymerge.merge.compile.settling import without_effect
from trinitymerge.merge.paths.base import Compiled, Merge, Path, Reads, Verdict
from trinitymerge.merge.paths.keyed import rows_by_key
from trinitymerge.merge.paths.soundness import why_not_unread
from trinitymerge.storage.backend import Batches


class Mixed(Path):
    """Reads the keys of some rows of the source."""

    name: ClassVar[str] = "blind append with keyed lookup"
    is_choice: ClassVar[bool] = False

    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """The rows that are looked up, and those that are not, may have to do with each other."""
        why = why_not_unread(analysis, verdict)
        if why is not None:
            return why
        if any(_may_arrive(analysis, verdict, position) for position in range(len(analysis.clauses))):
            return "a row may come to a key that another row frees"
        return None

    def programs(self, merge: Merge, tombstones_possible: bool) -> tuple[tuple[str, Program], ...]:
        """Two: one over the source rows whose outcome is known, one over the others beside the latest rows of their keys."""
        paired = merge.paired_program(by_key=True, tombstones_possible=True)
        found = "SELECT * FROM undecided_source_rows LEFT JOIN latest_target_rows_of_these_keys ON the_primary_key"
        return (
            ("SELECT * FROM source", blind(merge.analysis, merge.verdict.outcomes, merge.on_stale)),
            (found, paired),
        )

    def reads(self, merge: Merge, batches: Batches) -> str:
        """By key, as many rows as need it."""
        passed_over = sides.spared(merge.verdict.equalities, batches)
        return f"the rows under the keys of undecided source rows, in one scan; {passed_over}"

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Appends blindly what can be, and looks up the keys of the other source rows."""
        evaluated = merge.evaluated()
        source = evaluated.source
        (_, alone), (_, beside) = self.programs(merge, True)
        decided, undecided = split_undecided(pipeline.fire(source.frame, alone))
        found, joined = rows_by_key(
            merge, beside, attrs.evolve(evaluated, source=attrs.evolve(source, frame=undecided)), batches
        )
        return Compiled.of(
            *(
                attrs.evolve(p, rows=without_effect(p.rows, p.program))
                for p in (merge.part(alone, decided, batches), found)
            ),
            reads=Reads(joined.keys),
            knows_counts=False,
            source_rows=evaluated.once.rows,
            all_have_keys=merge.verdict.certain,
            in_one_task=sides.fit_one_task(evaluated, batches),
        )


def _may_arrive(analysis: Analysis, verdict: Verdict, position: int) -> bool:
    plan, match = analysis.clauses[position], verdict.key_match
    is_unpaired = isinstance(plan.clause, WhenNotMatched) and match is not None and match.exact
    return any(row.may_arrive(keeps_key(analysis, match, row), is_unpaired) for row in plan.rows)


MIXED = Mixed()
