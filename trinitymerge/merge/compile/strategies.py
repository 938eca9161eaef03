"""The strategies to read the target: when each is sound, what it reads, what it costs (S31)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.errors import InvalidMergeError
from trinitymerge.log.batches import Batches
from trinitymerge.merge.analysis.key_match import Equalities, KeyMatch, key_equalities
from trinitymerge.merge.analysis.outcomes import Outcomes, RecordedDeletes, is_certain, outcomes_of, recorded_deletes
from trinitymerge.merge.analysis.result import Analysis, ClausePlan
from trinitymerge.merge.analysis.row_kinds import FromReplacedRow
from trinitymerge.merge.compile import join, pipeline
from trinitymerge.merge.compile.join import MaterializedSource
from trinitymerge.merge.compile.probe import asked_keys, beside_truncate, nothing_found, probe
from trinitymerge.merge.compile.program import MergeProgram, blind, paired_program
from trinitymerge.merge.model.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.rows import key_ranges
from trinitymerge.rows.watermarks import Watermark
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import as_sql
from trinitymerge.stores.base import TableStore


def why_not_unread(analysis: Analysis, choice: StrategyChoice) -> str | None:
    """Return the one reason why every row depends on what the target holds; None if some do not."""
    if KEY_LOOKUP in choice.unsound:
        return choice.unsound[KEY_LOOKUP]
    if choice.key_match is None or not choice.key_match.exact:
        return "the merge condition is more than equality on the primary key"
    if choice.needs_counts:
        return choice.needs_counts
    for position, plan in enumerate(analysis.clauses):
        if any(row.is_compared for row in plan.rows):
            return f"clause {position + 1} compares its row with the target's (onlyIfChanged)"
    for position, plan in enumerate(analysis.clauses):
        if plan.reads_target:
            return f"the condition of clause {position + 1} reads the target"
    if not choice.outcomes.tombstones and not choice.outcomes.inserts:
        reasons = (_why_no_outcome_of(position, plan) for position, plan in enumerate(analysis.clauses))
        return next(filter(None, reasons), "what a source row means depends on whether its key exists")
    return None


def why_undecided(analysis: Analysis, outcomes: Outcomes) -> str | None:
    """Return why every row of some clause depends on the target; None if there is no such clause.

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


def _why_no_outcome_of(position: int, plan: ClausePlan) -> str:
    for row in plan.rows:
        lacking = [n for n, v in row.values.items() if isinstance(v, FromReplacedRow)]
        if lacking:
            return f"clause {position + 1} takes the watermark '{lacking[0]}' over from the row it replaces"
        if not row.is_tombstone and row.reads_target:
            return f"clause {position + 1} writes values of the target row"
    return ""


@attrs.frozen(eq=False)
class StrategyChoice:
    """The facts that decide which strategies are sound for a merge.

    Attributes:
        key_match: None when the condition is not known to imply key equality.
        certain: no source row can have another outcome.
        recorded_deletes: per whenMatched clause that can be tried without the target.
        needs_counts: why the merge must know what its rows replace, or None.
        unsound: the one reason against each strategy that is not sound.
        futile: why a strategy that is sound is bound to be given up when the merge runs, as far as that is known.
    """

    equalities: Equalities
    key_match: KeyMatch | None
    outcomes: Outcomes
    certain: bool
    recorded_deletes: RecordedDeletes
    needs_counts: str | None
    unsound: Mapping[MergeStrategy, str] = attrs.field(factory=dict)
    futile: Mapping[MergeStrategy, str] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class Reads:
    """The part of the target that a merge has read (S35).

    Attributes:
        keys: those of the source, if they were looked up (:data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`). Keys that a
            probe looks up are in the batch, which is compared with concurrent commits itself.
        everything: all live rows.
        written_keys: rows at truncates, of the keys that the merge writes (T1).
    """

    keys: DataFrame | None = None
    everything: bool = False
    written_keys: bool = False

    @property
    def nothing(self) -> bool:
        """True if the merge does not depend on the target's rows."""
        return self.keys is None and not self.everything and not self.written_keys


@attrs.frozen(eq=False)
class Compiled:
    """The rows that a strategy makes.

    Attributes:
        rows: those with a false ``_tm_keep`` are not written; of unchanged rows and of purged keys,
            :func:`trinitymerge.merge.compile.pipeline.mark_left_out` sets it.
        reads: what of the target was looked at.
        knows_counts: each row says what it means to readers; otherwise some counts stay unknown.
        source_rows: rows of the source; None where the write job observes it, or there is no source.
        all_have_keys: every row is to be written, or was looked up by its key; others have none.
        in_one_task: the rows are known to be few, and what of the target is read for them is read by stages before theirs.
        evaluated: the source, if it was evaluated once for all rows.
        is_evaluated: the rows were evaluated, and may be read several times (S32).
    """

    program: MergeProgram
    rows: DataFrame
    reads: Reads
    knows_counts: bool = True
    source_rows: int | None = None
    all_have_keys: bool = True
    in_one_task: bool = False
    evaluated: MaterializedSource | None = None
    is_evaluated: bool = False

    @property
    def is_compared(self) -> bool:
        """True if updates are not written where nothing changes (S22b)."""
        return bool(self.program.compared)

    @property
    def is_checked(self) -> bool:
        """True if a value may turn out not to fit its column."""
        return self.program.is_checked


@attrs.frozen(eq=False)
class Merge:
    """A merge to compile, with the steps that strategies share.

    Attributes:
        on_stale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        stored_column, has_registers: see :class:`~trinitymerge.merge.compile.program.MergeProgram`.
        stored_are_all: that column shows all rows that the merge replaces or deletes.
        truncated_at: the watermark of the table's last truncate (T1), or None.
        known_source: the source, if it has been evaluated before.
        rejected_rows: the numbers of source rows, :data:`C.REJECTED_ROW`, on which no clause is to fire, although they have
            their pairs (S47); or None.
    """

    analysis: Analysis
    choice: StrategyChoice
    store: TableStore
    on_stale: str
    stored_column: str = ""
    has_registers: bool = False
    stored_are_all: bool = True
    truncated_at: Watermark | None = None
    known_source: MaterializedSource | None = None
    rejected_rows: DataFrame | None = None

    @property
    def definition(self) -> TableDefinition:
        return self.analysis.definition

    def evaluated(self, program: MergeProgram | None = None) -> MaterializedSource:
        """Return the source, evaluated now and never again (S32), with the ranges of the keys that a program will look up."""
        if self.known_source is not None:
            return self.known_source
        assert self.analysis.source is not None
        known_keys = program.known_keys if program is not None else ()
        return MaterializedSource.of(self.analysis.source, self.choice.equalities, self.definition, known_keys)

    def paired_program(self, by_key: bool, tombstones_possible: bool) -> MergeProgram:
        choice = self.choice
        facts = (choice.key_match, choice.recorded_deletes, self.on_stale, by_key, tombstones_possible)
        return paired_program(self.analysis, *facts)

    def rows(
        self, program: MergeProgram, fired: DataFrame, batches: Batches, evaluated: MaterializedSource | None = None
    ) -> DataFrame:
        """Return the rows of a program, from the rows on which its clauses fire. The source may have been evaluated for it."""

        def ask(rows: DataFrame) -> DataFrame:
            if evaluated is not None and evaluated.are_free(len(program.known_keys), self.store, batches):
                return nothing_found(rows, program, batches)
            # Used twice: for the keys to look up, and for what is found.
            asked = zip(asked_keys(program), self.definition.primaryKey, strict=True)
            types = {name: (key, E.physical_type(self.definition.field(name))) for key, name in asked}
            once = join.materialize(rows, key_ranges.metrics(self.definition, types))
            return probe(once.frame, program, lambda keys: join.lookup(self.store, batches, keys, once), batches)

        if self.rejected_rows is not None:
            is_rejected = F.expr(E.equals(C.SOURCE_ROW, C.REJECTED_ROW))
            fired = fired.join(F.broadcast(self.rejected_rows), is_rejected, "left_anti")
        return pipeline.finish(fired, program, ask)


class MergeStrategy(ABC):
    """One way of reading the target. Has no state: there is one object of each class."""

    name: ClassVar[str]
    reads_for_source: ClassVar[str] = ""
    """The words after "reads" if a source is computed from the table in this way."""

    @abstractmethod
    def why_unsound(self, analysis: Analysis, choice: StrategyChoice) -> str | None:
        """Return why the strategy is not sound, in words that follow "because"; None if it is.

        The choice has the reasons against the strategies that were tried before.
        """

    def why_in_vain(self, analysis: Analysis, choice: StrategyChoice) -> str | None:
        """Return why the sound strategy would be given up when the merge runs; None if unknown."""
        return None

    @abstractmethod
    def program(self, merge: Merge, tombstones_possible: bool) -> tuple[str, MergeProgram]:
        """Return the rows that the program begins with, in SQL's words, and the program."""

    @abstractmethod
    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Return the rows to append to a table of some batches. Evaluates the source at most once (S32)."""

    @abstractmethod
    def reads(self, merge: Merge, batches: Batches) -> str:
        """Return how a target of some batches is read, in words that follow "reads"."""

    def looks_up(self, merge: Merge) -> bool:
        """Return True if only target rows are read that equal the source in key columns."""
        return False

    def uncertainty(self, choice: StrategyChoice) -> str:
        """Return the doubt that only the run resolves, in words that follow the strategy's name; or an empty string."""
        return ""

    def preview_strategy(self, choice: StrategyChoice) -> MergeStrategy:
        """Return the strategy by which a preview shows what this one would write."""
        return self

    def if_undecided(self) -> MergeStrategy:
        """Return the strategy to take instead, where rows have turned out to depend on the target."""
        raise AssertionError(f"no row is undecided as {self.name}")


class AppendOnly(MergeStrategy):
    """Reads nothing."""

    name: ClassVar[str] = "blind append"

    def why_unsound(self, analysis: Analysis, choice: StrategyChoice) -> str | None:
        return why_not_unread(analysis, choice)

    def why_in_vain(self, analysis: Analysis, choice: StrategyChoice) -> str | None:
        return why_undecided(analysis, choice.outcomes)

    def program(self, merge: Merge, tombstones_possible: bool) -> tuple[str, MergeProgram]:
        facts = {
            "stored_column": merge.stored_column,
            "has_registers": merge.has_registers,
            "truncated_at": merge.truncated_at,
        }
        return "SELECT * FROM source", blind(merge.analysis, merge.choice.outcomes, merge.on_stale, **facts)

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        """Make the rows from the source alone; nothing runs."""
        source = merge.analysis.source
        assert source is not None
        _, program = self.program(merge, True)
        return Compiled(
            program,
            merge.rows(program, pipeline.fire(source.frame, program), batches),
            Reads(),
            knows_counts=bool(merge.stored_column) and merge.stored_are_all,
            all_have_keys=merge.choice.certain,
            in_one_task=join.fits_one_task(source.df),
        )

    def reads(self, merge: Merge, batches: Batches) -> str:
        return "nothing of the target" + ("" if merge.choice.certain else ", or the rows under the source's keys")

    def uncertainty(self, choice: StrategyChoice) -> str:
        return "" if choice.certain else " where no row depends on whether its key exists"

    def preview_strategy(self, choice: StrategyChoice) -> MergeStrategy:
        return self if choice.certain else KEY_LOOKUP

    def if_undecided(self) -> MergeStrategy:
        return KEY_LOOKUP


APPEND_ONLY = AppendOnly()


class KeyLookup(MergeStrategy):
    """Reads the keys of the source."""

    name: ClassVar[str] = "keyed lookup"
    reads_for_source: ClassVar[str] = "what is stored under the source's keys"

    def why_unsound(self, analysis: Analysis, choice: StrategyChoice) -> str | None:
        match = choice.key_match
        if analysis.source is None:
            return "without a source every live row of the target is looked at"
        target_only = analysis.of_clause(WhenOnlyOnTarget)
        if target_only:
            return f"clause {target_only[0][0] + 1} looks for rows that exist only on the target"
        if match is None:
            return "the merge condition is not known to imply equality on the whole primary key"
        return None

    def program(self, merge: Merge, tombstones_possible: bool) -> tuple[str, MergeProgram]:
        text = "SELECT * FROM source LEFT JOIN latest_target_rows_of_these_keys ON the_primary_key"
        return text, merge.paired_program(by_key=True, tombstones_possible=True)

    def reads(self, merge: Merge, batches: Batches) -> str:
        passed_over = join.pruning_summary(merge.choice.equalities, batches)
        return f"the rows under the source's keys, in one scan; {passed_over}"

    def looks_up(self, merge: Merge) -> bool:
        return True

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        _, program = self.program(merge, True)
        evaluated = merge.evaluated(program)
        assert program.match is not None
        joined = join.keyed(merge.analysis, program.match, evaluated, merge.store, batches)
        return Compiled(
            program,
            merge.rows(program, pipeline.fire(joined, program), batches, evaluated),
            Reads(evaluated.keys),
            source_rows=evaluated.once.rows,
            in_one_task=join.fit_one_task(evaluated, batches),
            evaluated=evaluated,
        )


KEY_LOOKUP = KeyLookup()


class FullScan(MergeStrategy):
    """Reads all of the target, or what can have a pair."""

    name: ClassVar[str] = "full scan"
    reads_for_source: ClassVar[str] = "every live row"

    def why_unsound(self, analysis: Analysis, choice: StrategyChoice) -> str | None:
        return None

    def program(self, merge: Merge, tombstones_possible: bool) -> tuple[str, MergeProgram]:
        kind = _join_of(merge).replace("_", " ").upper()
        condition = merge.analysis.condition
        on = as_sql(condition) if isinstance(condition, str) else "the_merge_condition"
        text = f"SELECT * FROM live_target {kind} JOIN source ON {on}"
        text = text if merge.analysis.source is not None else "SELECT * FROM live_target"
        return text, merge.paired_program(by_key=False, tombstones_possible=tombstones_possible)

    def reads(self, merge: Merge, batches: Batches) -> str:
        if merge.analysis.source is None:
            return "every live row, in one scan"
        equalities = merge.choice.equalities
        if _join_of(merge) == "full_outer":
            rows = "every live row, in two scans, the second for source rows without a pair"
        elif not self.looks_up(merge):
            rows = "every live row, in one scan"
        else:
            columns = " and ".join(equalities.keys)
            rows = f"the rows that equal a source row in {columns}, in one scan; {join.pruning_summary(equalities, batches)}"
        return f"{rows}; a source of more than {join.BROADCAST_ROWS:,} rows is sorted together with every live row"

    def looks_up(self, merge: Merge) -> bool:
        """Return True if unpaired target rows do not count, and pairs are equal in a key column."""
        is_paired = merge.analysis.source is not None and _join_of(merge) in ("inner", "right_outer")
        return is_paired and bool(merge.choice.equalities.keys)

    def compile(self, merge: Merge, batches: Batches) -> Compiled:
        _, program = self.program(merge, any(b.tombstones for b in batches.batches))
        if merge.analysis.source is None:
            target = join.all_rows(merge.analysis, merge.store, batches)
            joined, source_rows = target.selectExpr("*", f"CAST(NULL AS BOOLEAN) AS {C.IN_SOURCE}"), None
            evaluated = None
        else:
            evaluated = merge.evaluated(program)
            pairing = join.FullJoin(merge.analysis, merge.choice.equalities, evaluated, merge.store, batches)
            joined = beside_truncate(pairing.rows(bool(program.recorded)), batches, C.BEFORE)
            source_rows = evaluated.once.rows
        rows = merge.rows(program, pipeline.fire(joined, program), batches, evaluated)
        return Compiled(program, rows, Reads(everything=True), source_rows=source_rows, evaluated=evaluated)


def _join_of(merge: Merge) -> str:
    return join.join_type(merge.analysis, bool(merge.choice.recorded_deletes))


FULL_SCAN = FullScan()


STRATEGIES: tuple[MergeStrategy, ...] = (APPEND_ONLY, KEY_LOOKUP, FULL_SCAN)
"""All there are, cheapest first."""


def evaluate_strategies(analysis: Analysis, needs_counts: str | None) -> StrategyChoice:
    """Decide which strategies are sound, and which of these would certainly be given up."""
    equalities = key_equalities(analysis)
    match = equalities.match(analysis.definition)
    outcomes = outcomes_of(analysis, match) if match and match.exact else Outcomes()
    certain = is_certain(analysis, outcomes)
    choice = StrategyChoice(equalities, match, outcomes, certain, recorded_deletes(analysis, match), needs_counts)
    for strategy in STRATEGIES[::-1]:  # each may build on what was found before it
        why = strategy.why_unsound(analysis, choice)
        if why is not None:
            choice = attrs.evolve(choice, unsound={**choice.unsound, strategy: why})
        elif (vain := strategy.why_in_vain(analysis, choice)) is not None:
            choice = attrs.evolve(choice, futile={**choice.futile, strategy: vain})
    return choice


def cheapest(choice: StrategyChoice) -> MergeStrategy:
    """Return the cheapest sound strategy that will not certainly be given up."""
    return next(p for p in STRATEGIES if p not in choice.unsound and p not in choice.futile)


def cheaper(strategy: MergeStrategy) -> tuple[MergeStrategy, ...]:
    return STRATEGIES[: STRATEGIES.index(strategy)]


def dearer(strategy: MergeStrategy, other: MergeStrategy | None) -> MergeStrategy:
    """Return the strategy that reads more."""
    return strategy if other is None else max(strategy, other, key=STRATEGIES.index)


def check_forced(strategy: MergeStrategy, choice: StrategyChoice) -> None:
    if strategy in choice.unsound:
        raise InvalidMergeError(f"This merge cannot run as {strategy.name}: {choice.unsound[strategy]}.")
