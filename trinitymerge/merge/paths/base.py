"""What a path is: one way of reading the target, from the verdict on a merge to the rows that it appends (S31).

Owns: the interface :class:`Path`, and what goes into one and comes out: :class:`Verdict`, :class:`Merge`, :class:`Compiled`.
Which path is taken is decided in ``choice.py``, when the merge is built; a blind append may turn out to need another one when it
runs. Outside of this package nobody names one. :meth:`Merge.part` runs the pipeline, and looks up what it asks for in its middle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from typing import Any, ClassVar

import attrs
from pyspark.sql import DataFrame

from trinitymerge import keyrange
from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import physical_type
from trinitymerge.merge.analysis.keymatch import Equalities, KeyMatch
from trinitymerge.merge.analysis.outcomes import Outcomes, RecordedDeletes
from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.compile import pipeline, sides
from trinitymerge.merge.compile.probing import asked_keys, nothing_found, probe
from trinitymerge.merge.compile.program import Program, paired_program
from trinitymerge.merge.compile.sides import Evaluated
from trinitymerge.storage.backend import Backend, Batches


@attrs.frozen(eq=False)
class Verdict:
    """What is known about a merge that decides which paths are sound.

    Attributes:
        equalities: on key columns, that the condition implies.
        key_match: None when the condition is not known to imply key equality.
        outcomes: what source rows lead to whatever the target holds.
        certain: no source row can have another outcome.
        recorded_deletes: per whenMatched clause that can be tried without the target.
        needs_counts: why the merge must know what its rows replace, or None.
        why_not: the one reason against each path that is not sound.
        in_vain: why a path that is sound is bound to be given up when the merge runs, as far as that can be foretold.
    """

    equalities: Equalities
    key_match: KeyMatch | None
    outcomes: Outcomes
    certain: bool
    recorded_deletes: RecordedDeletes
    needs_counts: str | None
    why_not: Mapping[Path, str] = attrs.field(factory=dict)
    in_vain: Mapping[Path, str] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Reads:
    """What of the target a merge has looked at (S35).

    Attributes:
        keys: those of the source, if they were looked up (:data:`trinitymerge.columns.KEY_TO_FIND`). A probe looks up keys of
            the batch besides, which are compared with what lands by the batch itself.
        everything: all live rows.
    """

    keys: DataFrame | None = None
    everything: bool = False

    @property
    def nothing(self) -> bool:
        """True if the merge is the same whatever the target holds."""
        return self.keys is None and not self.everything


@attrs.frozen(eq=False)
class Part:
    """Rows that one program has made.

    Attributes:
        program: which.
        rows: what :mod:`trinitymerge.merge.compile.pipeline` gives.
    """

    program: Program
    rows: DataFrame


@attrs.frozen(eq=False)
class Compiled:
    """The rows that a path appends.

    Attributes:
        parts: one, or several that are written together.
        rows: of all parts, without those of purged keys once :mod:`trinitymerge.merge.compile.purged` has seen them.
        reads: what of the target was looked at.
        knows_counts: each row says what it means to readers; otherwise some counts stay unknown.
        source_rows: rows of the source; None where the write job observes it, or there is no source.
        observes_source: the write job sees each row of the source once.
        may_be_undecided: the write job counts rows for which the target had to be read.
        all_have_keys: every row is to be written, or was looked up by its key; others have none.
        in_one_task: the rows are known to be few, and what of the target is read for them is read by stages before theirs.
    """

    parts: tuple[Part, ...]
    rows: DataFrame
    reads: Reads
    knows_counts: bool = True
    source_rows: int | None = None
    observes_source: bool = False
    may_be_undecided: bool = False
    all_have_keys: bool = True
    in_one_task: bool = False

    @classmethod
    def of(cls, *parts: Part, reads: Reads, **facts: Any) -> Compiled:
        """Parts written together; ``facts`` are the other attributes."""
        rows = reduce(DataFrame.unionByName, [part.rows for part in parts])
        return cls(parts, rows, reads, **facts)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Those of the parts."""
        return tuple(part.program for part in self.parts)

    @property
    def is_compared(self) -> bool:
        """True if updates are not written where nothing changes (S22b)."""
        return any(program.compared for program in self.programs)

    @property
    def is_checked(self) -> bool:
        """True if a value may turn out not to fit its column."""
        return any(program.is_checked for program in self.programs)


@attrs.frozen(eq=False)
class Merge:
    """A merge about to be compiled, and the steps that paths share.

    Attributes:
        analysis: of its clauses.
        verdict: on its paths.
        backend: where the target is.
        on_stale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        holds: the column of the source that tells what its rows replace; see :class:`~trinitymerge.merge.compile.program.Program`.
    """

    analysis: Analysis
    verdict: Verdict
    backend: Backend
    on_stale: str
    holds: str = ""

    @property
    def definition(self) -> TableDefinition:
        """The target's definition."""
        return self.analysis.definition

    def evaluated(self, program: Program | None = None) -> Evaluated:
        """The source, evaluated now and never again (S32), with what it tells of the keys that a program will ask for."""
        assert self.analysis.source is not None
        foretold = program.foretold if program is not None else ()
        return Evaluated.of(self.analysis.source, self.verdict.equalities, self.definition, foretold)

    def paired_program(self, by_key: bool, tombstones_possible: bool) -> Program:
        """For source rows that stand beside target rows: see :func:`trinitymerge.merge.compile.program.paired_program`."""
        verdict = self.verdict
        return paired_program(
            self.analysis, verdict.key_match, verdict.recorded_deletes, self.on_stale, by_key, tombstones_possible
        )

    def part(self, program: Program, fired: DataFrame, batches: Batches, evaluated: Evaluated | None = None) -> Part:
        """The rows of a program, from the rows on which its clauses fire.

        Args:
            program: what is to be done.
            fired: on which rows.
            batches: the target's.
            evaluated: the source, if it was evaluated for this program.
        """

        def ask(rows: DataFrame) -> DataFrame:
            if evaluated is not None and evaluated.are_free(len(program.foretold), self.backend, batches):
                return nothing_found(rows, program)
            # Used twice: for the keys to look up, and for what is found.
            asked = zip(asked_keys(program), self.definition.primaryKey, strict=True)
            types = {name: (key, physical_type(self.definition.field(name))) for key, name in asked}
            once = sides.materialise(rows, keyrange.metrics(self.definition, types))
            return probe(once.frame, program, lambda keys: sides.look_up(self.backend, batches, keys, once))

        return Part(program, pipeline.settled(fired, program, ask))


class Path(ABC):
    """One way of reading the target. Has no state: there is one object of each class."""

    name: ClassVar[str]
    reads_for_source: ClassVar[str] = ""
    """What is read where a source is computed from the table in this way, in words that follow "reads"."""
    is_choice: ClassVar[bool] = True
    """It may be chosen when a merge is built; otherwise another path may become it."""

    @abstractmethod
    def why_not(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """Why the path would not be sound, in words that follow "because"; None if it is.

        Args:
            analysis: of the merge.
            verdict: on it so far: the reasons against the paths tried before are known.
        """

    def why_in_vain(self, analysis: Analysis, verdict: Verdict) -> str | None:
        """Why the path, though sound, would be given up when the merge runs, in the same words; None if that is not known.

        Args:
            analysis: of the merge.
            verdict: on it so far.
        """
        return None

    @abstractmethod
    def programs(self, merge: Merge, tombstones_possible: bool) -> tuple[tuple[str, Program], ...]:
        """What is to be done, each program with the rows it begins with, in SQL's words.

        Args:
            merge: what to compile.
            tombstones_possible: the target may hold tombstones.
        """

    @abstractmethod
    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """The rows to append to a table of some batches. Evaluates the source at most once (S32)."""

    @abstractmethod
    def reads(self, merge: Merge, batches: Batches) -> str:
        """How a target of some batches is read, in words that follow "reads"."""

    def looks_up(self, merge: Merge) -> bool:
        """True if, until a probe asks for more, no row is read but those that equal the source in key columns."""
        return False

    def doubt(self, verdict: Verdict) -> str:
        """What only the run will tell, in words that follow the path's name; empty if nothing."""
        return ""

    def in_preview(self, verdict: Verdict) -> Path:
        """The path by which a preview shows what this one would write."""
        return self

    def if_undecided(self, verdict: Verdict) -> Path:
        """The path to take instead, where rows have turned out to depend on the target."""
        raise AssertionError(f"no row is undecided as {self.name}")
