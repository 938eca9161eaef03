"""Full scan: every live target row beside the source rows it pairs with. Always sound."""

from __future__ import annotations

from typing import ClassVar

from trinitymerge.merge.analysis.resolution import Analysis
from trinitymerge.merge.compile import sides
from trinitymerge.merge.compile.program import looking
from trinitymerge.merge.paths.base import Compiled, Merge, Path, Reads, Verdict
from trinitymerge.storage.backend import Batches


class FullScan(Path):
    """Reads all of the target."""

    name: ClassVar[str] = "full scan"

    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """Nothing is against it but its cost."""
        return None

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Joins the live rows with the source by the merge condition."""
        source, once = merge.source_once()
        match, recorded = merge.verdict.key_match, merge.verdict.recorded_deletes
        tombstones = any(b.tombstones for b in batches.batches)
        program = looking(merge.analysis, match, recorded, by_key=False, tombstones_possible=tombstones)
        joined = sides.full(merge.analysis, bool(recorded), source, merge.backend, batches)
        part = merge.paired(program, joined, batches)
        return Compiled.of(part, reads=Reads(everything=True), source_rows=once.rows if once else None)


FULL = FullScan()
