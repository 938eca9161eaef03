"""Full scan: live target rows beside the source rows they pair with. Always sound.

Every live row is read, unless target rows without a pair do not count, the condition implies that pairs are equal in a key
column, and the source is small: then only rows that equal some row of the source there.
"""

from __future__ import annotations

from typing import ClassVar

from trinitymerge.columns import IN_SOURCE
from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.compile import pipeline, sides
from trinitymerge.merge.compile.program import Program
from trinitymerge.merge.paths.base import Compiled, Merge, Path, Reads, Verdict
from trinitymerge.sqltext import as_sql
from trinitymerge.storage.backend import Batches


class FullScan(Path):
    """Reads all of the target, or what can have a pair."""

    name: ClassVar[str] = "full scan"
    reads_for_source: ClassVar[str] = "every live row"

    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """Nothing is against it but its cost."""
        return None

    def programs(self, merge: Merge, tombstones_possible: bool) -> tuple[tuple[str, Program], ...]:
        """One, over all pairs, and the rows without one that a clause may fire on."""
        kind = _join_of(merge).replace("_", " ").upper()
        condition = merge.analysis.condition
        on = as_sql(condition) if isinstance(condition, str) else "the_merge_condition"
        text = f"SELECT * FROM live_target {kind} JOIN source ON {on}"
        text = text if merge.analysis.source is not None else "SELECT * FROM live_target"
        return ((text, merge.paired_program(by_key=False, tombstones_possible=tombstones_possible)),)

    def reads(self, merge: Merge, batches: Batches) -> str:
        """Once; twice where all rows of both sides count."""
        if merge.analysis.source is None:
            return "every live row, in one scan"
        equalities = merge.verdict.equalities
        if _join_of(merge) == "full_outer":
            rows = "every live row, in two scans, the second for source rows without a pair"
        elif not self.looks_up(merge):
            rows = "every live row, in one scan"
        else:
            columns = " and ".join(equalities.keys)
            rows = f"the rows that equal a source row in {columns}, in one scan; {sides.spared(equalities, batches)}"
        return f"{rows}; a source of more than {sides.BROADCAST_ROWS:,} rows is sorted together with every live row"

    def looks_up(self, merge: Merge) -> bool:
        """Where target rows without a pair do not count, and pairs are equal in a key column."""
        is_paired = merge.analysis.source is not None and _join_of(merge) in ("inner", "right_outer")
        return is_paired and bool(merge.verdict.equalities.keys)

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Joins the live rows with the source by the merge condition."""
        ((_, program),) = self.programs(merge, any(b.tombstones for b in batches.batches))
        if merge.analysis.source is None:
            target = sides.all_rows(merge.analysis, merge.backend, batches)
            joined, source_rows = target.selectExpr("*", f"CAST(NULL AS BOOLEAN) AS {IN_SOURCE}"), None
            evaluated = None
        else:
            evaluated = merge.evaluated(program)
            pairing = sides.Pairing(merge.analysis, merge.verdict.equalities, evaluated, merge.backend, batches)
            joined = pairing.rows(bool(program.recorded))
            source_rows = evaluated.once.rows
        part = merge.part(program, pipeline.fire(joined, program), batches, evaluated)
        return Compiled.of(part, reads=Reads(everything=True), source_rows=source_rows)


def _join_of(merge: Merge) -> str:
    return sides.join_type(merge.analysis, bool(merge.verdict.recorded_deletes))


FULL = FullScan()
