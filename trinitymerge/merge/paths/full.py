"""Full scan: every live target row beside the source rows it pairs with. Always sound."""

from __future__ import annotations

from typing import ClassVar

from trinitymerge.merge.analysis.resolution import Analysis
from trinitymerge.merge.compile import pipeline, sides
from trinitymerge.merge.compile.program import Program
from trinitymerge.merge.paths.base import Compiled, Merge, Path, Reads, Verdict
from trinitymerge.storage.backend import Batches


class FullScan(Path):
    """Reads all of the target."""

    name: ClassVar[str] = "full scan"

    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """Nothing is against it but its cost."""
        return None

    def programs(self, merge: Merge, tombstones_possible: bool) -> tuple[tuple[str, Program], ...]:
        """One, over all pairs, and the rows without one that a clause may fire on."""
        kind = sides.join_type(merge.analysis, bool(merge.verdict.recorded_deletes)).replace("_", " ").upper()
        text = f"SELECT * FROM live_target {kind} JOIN source ON the_merge_condition"
        text = text if merge.analysis.source is not None else "SELECT * FROM live_target"
        return ((text, merge.looking(by_key=False, tombstones_possible=tombstones_possible)),)

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Joins the live rows with the source by the merge condition."""
        source, once = merge.source_once()
        ((_, program),) = self.programs(merge, any(b.tombstones for b in batches.batches))
        joined = sides.full(merge.analysis, bool(program.recorded), source, merge.backend, batches)
        part = merge.part(program, pipeline.fire(joined.joined, program), batches)
        return Compiled.of(part, reads=Reads(everything=True), source_rows=once.rows if once else None)


FULL = FullScan()
