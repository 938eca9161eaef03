"""Blind append: the target is not read at all.

Sound where the condition is equality on the whole primary key, nothing reads the target, and what each source row leads to is
the same whether its key exists or not. The last may be a matter of the data: then the write job counts the rows for which it
is not. If there are any, its batch is thrown away, and the merge begins again on another path: on that of ``mixed.py``, which looks
up these rows alone, or, where that is not sound, with a lookup of all keys.
"""

from __future__ import annotations

from typing import ClassVar

from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.compile import pipeline, sides
from trinitymerge.merge.compile.program import Program, blind
from trinitymerge.merge.paths.base import Compiled, Merge, Path, Reads, Verdict
from trinitymerge.merge.paths.keyed import KEYED
from trinitymerge.merge.paths.mixed import MIXED
from trinitymerge.merge.paths.soundness import why_not_unread, why_undecided
from trinitymerge.storage.backend import Batches


class BlindAppend(Path):
    """Reads nothing."""

    name: ClassVar[str] = "blind append"

    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """Something depends on what the target holds."""
        return why_not_unread(analysis, verdict)

    def why_in_vain(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """A clause is there for rows that depend on the target."""
        return why_undecided(analysis, verdict.outcomes)

    def programs(self, merge: Merge, tombstones_possible: bool) -> tuple[tuple[str, Program], ...]:
        """One, over the source alone."""
        return (("SELECT * FROM source", blind(merge.analysis, merge.verdict.outcomes, merge.on_stale, merge.holds)),)

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Makes the rows from the source alone; nothing runs."""
        source = merge.analysis.source
        assert source is not None
        ((_, program),) = self.programs(merge, True)
        part = merge.part(program, pipeline.fire(source.frame, program), batches)
        return Compiled.of(
            part,
            reads=Reads(),
            knows_counts=bool(merge.holds),
            observes_source=True,
            may_be_undecided=True,
            all_have_keys=merge.verdict.certain,
            in_one_task=sides.fits_one_task(source.df),
        )

    def reads(self, merge: Merge, batches: Batches) -> str:
        """Nothing, unless rows turn out to need it."""
        return (
            "nothing of the target"
            if merge.verdict.certain
            else "nothing of the target, or the keys of such rows alone"
        )

    def doubt(self, verdict: Verdict) -> str:
        """There may be rows that have to be looked up."""
        return "" if verdict.certain else " where no row depends on whether its key exists"

    def in_preview(self, verdict: Verdict) -> Path:
        """A preview does not wait to be told that the target must be read."""
        return self if verdict.certain else KEYED

    def if_undecided(self, verdict: Verdict) -> Path:
        """Looks up those rows alone, if that is sound."""
        return KEYED if MIXED in verdict.why_not else MIXED


BLIND = BlindAppend()
