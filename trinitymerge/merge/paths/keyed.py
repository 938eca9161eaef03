"""Keyed lookup: of the target only keys that occur in the source are read, and those that rows come to otherwise (the probe).

Sound where the merge condition implies equality on the whole primary key, and no clause looks for rows that exist only on the
target.
"""

from __future__ import annotations

from typing import ClassVar

from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.clauses import WhenOnlyOnTarget
from trinitymerge.merge.compile import pipeline, sides
from trinitymerge.merge.compile.program import Program
from trinitymerge.merge.compile.sides import Evaluated, Keyed
from trinitymerge.merge.paths.base import Compiled, Merge, Part, Path, Reads, Verdict
from trinitymerge.storage.backend import Batches


class KeyedLookup(Path):
    """Reads the keys of the source."""

    name: ClassVar[str] = "keyed lookup"
    reads_for_source: ClassVar[str] = "what is stored under the source's keys"

    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """The clauses or the condition need more of the target than the source's keys."""
        match = verdict.key_match
        if analysis.source is None:
            return "without a source every live row of the target is looked at"
        target_only = analysis.of_clause(WhenOnlyOnTarget)
        if target_only:
            return f"clause {target_only[0][0] + 1} looks for rows that exist only on the target"
        if match is None:
            return "the merge condition is not known to imply equality on the whole primary key"
        return None

    def programs(self, merge: Merge, tombstones_possible: bool) -> tuple[tuple[str, Program], ...]:
        """One, over the source's rows beside the latest rows of their keys."""
        text = "SELECT * FROM source LEFT JOIN latest_target_rows_of_these_keys ON the_primary_key"
        return ((text, merge.paired_program(by_key=True, tombstones_possible=True)),)

    def reads(self, merge: Merge, batches: Batches) -> str:
        """By key."""
        return f"the rows under the source's keys, in one scan; {sides.spared(merge.verdict.equalities, batches)}"

    def looks_up(self, merge: Merge) -> bool:
        """Always."""
        return True

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Joins each source row with the latest row of its key."""
        ((_, program),) = self.programs(merge, True)
        evaluated = merge.evaluated(program)
        part, joined = rows_by_key(merge, program, evaluated, batches)
        return Compiled.of(
            part,
            reads=Reads(joined.keys),
            source_rows=evaluated.once.rows,
            in_one_task=sides.fit_one_task(evaluated, batches),
        )


def rows_by_key(merge: Merge, program: Program, evaluated: Evaluated, batches: Batches) -> tuple[Part, Keyed]:
    """The rows that come of source rows beside the latest rows of their keys."""
    assert program.match is not None
    joined = sides.keyed(merge.analysis, program.match, evaluated, merge.backend, batches)
    return merge.part(program, pipeline.fire(joined.joined, program), batches, evaluated), joined


KEYED = KeyedLookup()
