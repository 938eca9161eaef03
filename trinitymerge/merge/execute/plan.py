"""A merge that is ready to run: explain(), preview(), sql(), execute()."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame

from trinitymerge import _format
from trinitymerge.errors import counted, sized
from trinitymerge.log.actions import TruncateTable
from trinitymerge.log.batches import Batches, read_work
from trinitymerge.log.commit import MicroBatch
from trinitymerge.log.model import Snapshot
from trinitymerge.log.reporting import Listener, listening
from trinitymerge.merge.analysis.outbox import OutboxTarget
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.compile import join, pipeline
from trinitymerge.merge.compile.lookup import rows_at_truncates
from trinitymerge.merge.compile.pipeline import LeftOut, Truncates
from trinitymerge.merge.compile.strategies import (
    FULL_SCAN,
    Compiled,
    Merge,
    MergeStrategy,
    StrategyChoice,
    cheaper,
    choose,
    dearer,
)
from trinitymerge.merge.model.clauses import Clause, OtherTable, WhenMatched, WhenNotMatched, heading
from trinitymerge.merge.model.feed_counts import FeedCounts
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import differences_of_columns
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.stores.base import TableStore

PostCommitHook: TypeAlias = Callable[[MergeResult, "Snapshot | None"], MergeResult]
"""From the result of a merge, and the table with its rows (None if it wrote none), to the result that users get."""


@attrs.frozen
class Truncate:
    """A truncate of the whole table.

    Attributes:
        action: for the log.
        removed: the ids of batches that have no fresher row, and cease to be part of the table. The merge deletes other rows that
            are not fresher.
    """

    action: TruncateTable
    removed: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Quarantine:
    """Where a merge puts the rows that it cannot write.

    Attributes:
        max_fraction: the share of the source's rows that may go there, or None for any.
        messages: said by a feed: messages that it rejects, with ``id``, ``reason`` and ``row``; or None.
        carried: said by a feed: the column of its source with the user's row, or with ``position`` and ``raw`` of the message; or
            empty.
        target: the table as it was when the merge was planned.
        events: said by a feed: events that it rejects, with ``reason``, ``source`` (as ``carried``) and the key; or None.
        number: said by a feed: the column of its source with the number of the event that a row comes from; or empty.
        is_judged: said by a feed: every event that would refuse the merge is among these.
    """

    table: OtherTable
    max_fraction: float | None = None
    messages: DataFrame | None = None
    carried: str = ""
    target: OutboxTarget | None = None
    events: DataFrame | None = None
    number: str = ""
    is_judged: bool = False


@attrs.frozen
class Options:
    """The settings of a merge: of the caller, of a feed, and of the call that began it.

    Attributes:
        on_stale: set by the user: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        transaction: ``(appId, version)`` or None (S36).
        transaction_source: the id of the table whose versions ``transaction`` counts, or None (S41).
        expired_transactions: applications to forget in the same commit.
        max_delete_fraction: share of live rows, or None (S37).
        at: the watermark of rows without another one, column by column (H2a); empty if the replaced row decides.
        schema_evolution: the table gets what columns the source has and it has not (S44).
        counts: every count of the result is to be known (S30b).
        comment: for ``history()`` (S36b).
        strategy: a sound strategy to take instead of the cheapest, or None.
        stream: said by a feed: the micro-batch that the transaction is, or None (S36a).
        based_on: the version that the source was computed from, where that is the table itself; else None.
        extract: the moment of the full extract that the merge compares the table with (H11), in the form of the log; or None.
        held: the rows that hold at the moment of a late extract, which ``max_delete_fraction`` counts (S37); else None.
        source_rows: said by a feed: the rows of the user's source, where the merge's has others; else None.
        truncate: said by a feed: the truncate that the merge commits (T1), or None.
        feed: the messages of a feed, counted (F4), or None.
        quarantine: where rows go that would refuse the merge (S47), or None.
        ignored: columns that a source had that this one was computed from, and that the table does not have (S22a).
        computed_by: how the table was read for the source, as a strategy would; None if it was not.
        holds: the source column with the stored row that each row replaces; empty if there is none.
        registers: what a row may leave unset (U2), as ``Batch.unset`` names it; None if the column ``holds`` says nothing of it.
        has_counts: this column shows all rows that the merge replaces or deletes.
        call: that stands for the clauses in ``history()``; empty where they stand for themselves.
        if_empty: what to say if the source has no rows.
        is_sequenced: each written row must have a watermark.
        ambiguous: what to do about rows that contradict each other (S12), if the call knows better than the merge.
        rows_left_out: which rows of the source have been, in words; empty if none (S12a).
        pre_attempt_hook: given by the call that begins the chain (``table.py``): does what earlier merges have left to be done
            (S27), and gives the version that an attempt is made on.
    """

    on_stale: str = "skip"
    transaction: tuple[str, int] | None = None
    transaction_source: str | None = None
    expired_transactions: tuple[str, ...] = ()
    stream: MicroBatch | None = None
    max_delete_fraction: float | None = None
    strategy: MergeStrategy | None = None
    based_on: Snapshot | None = None
    extract: tuple[Any, ...] | None = None
    held: DataFrame | None = None
    source_rows: int | None = None
    truncate: Truncate | None = None
    feed: FeedCounts | None = None
    quarantine: Quarantine | None = None
    ignored: tuple[str, ...] = ()
    computed_by: MergeStrategy | None = None
    holds: str = ""
    registers: tuple[str, ...] | None = None
    has_counts: bool = True
    call: str = ""
    if_empty: str = "the source is empty"
    is_sequenced: bool = False
    at: tuple[Any, ...] = ()
    schema_evolution: bool = False
    pre_attempt_hook: Callable[[TableStore], Snapshot] = lambda store: store.snapshot()
    counts: bool = False
    comment: str = ""
    listeners: tuple[Listener, ...] = ()
    ambiguous: str = ""
    rows_left_out: str = ""


@attrs.frozen(eq=False)
class MergeSpec:
    """A merge as the caller asks for it, before it is planned on a version of the table.

    Attributes:
        source: the caller's DataFrame; None for merges without one, and until ``derive`` makes it.
        condition: the merge condition; None for equality on the primary key, by name.
        post_commit_hook: given by the same call as ``Options.pre_attempt_hook``: runs once, after the attempt that succeeds.
        derive: for a feed: from the spec and a version of the table to the spec with its source, clauses and options.
        definition: the table's, with the columns that the merge adds (S44), if the source was made for it.
    """

    store: TableStore
    alias: str
    source: DataFrame | None
    condition: Any = None
    clauses: tuple[Clause, ...] = ()
    options: Options = attrs.field(factory=Options)
    post_commit_hook: PostCommitHook = lambda result, _: result
    derive: Callable[[MergeSpec, Snapshot], MergeSpec] | None = None
    definition: TableDefinition | None = None

    def with_options(self, **changed: Any) -> MergeSpec:
        return attrs.evolve(self, options=attrs.evolve(self.options, **changed))


@attrs.frozen(eq=False)
class MergePlan:
    """A merge, validated and ready to run; made by ``MergeBuilder.build()``.

    Attributes:
        spec: the merge that was planned, with its source.
        batches: the target's batches when the plan was made, for :meth:`explain`. Execution reads the newest version.
        again: plans the merge on another version of the table; a feed also makes its source again.
        _execute: ``executor.execute``, which imports this module.

    Example:
        >>> plan = orders.merge(orders.toDF()).whenMatched().updateAll().whenNotMatched().insertAll().build()
        >>> plan.strategy
        'blind append'
    """

    spec: MergeSpec
    analysis: Analysis
    choice: StrategyChoice
    batches: Batches
    again: Callable[[Snapshot], MergePlan]
    _execute: Callable[[MergePlan], MergeResult]

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses, in the order in which they are tried."""
        return self.spec.clauses

    @property
    def definition(self) -> TableDefinition:
        """The target's definition, with what the merge adds to it (S44)."""
        return self.analysis.definition

    @property
    def columns_added(self) -> tuple[str, ...]:
        """Return the columns that the merge adds to the table, in words (S44)."""
        return tuple(differences_of_columns(self.batches.definition, self.definition))

    @property
    def chosen(self) -> MergeStrategy:
        """The strategy that is tried first."""
        return self.spec.options.strategy or choose(self.choice)

    @property
    def strategy(self) -> str:
        """The name of the strategy that is tried first."""
        return self.dearest(self.chosen).name

    def dearest(self, strategy: MergeStrategy) -> MergeStrategy:
        """Return the strategy that reads more: this one, or the one that computed the source."""
        return dearer(strategy, self.spec.options.computed_by)

    def execute(self) -> MergeResult:
        """Run the merge by ``executor.execute``. ``MergeBuilder.execute`` calls this; its results and errors are the same."""
        with listening(*self.spec.options.listeners):
            return self._execute(self)

    @with_session_settings
    def preview(self) -> DataFrame:
        """Return the rows that the merge would append, without rows of purged keys; nothing is written (S31).

        Returns:
            The stored columns, ``_tm_action`` (``insert``, ``update``, ``delete``, or ``upsert`` where the
            target is not read) and ``_tm_clause`` (from 1). Where the target must be read, the source is evaluated now, once;
            the target is read when the rows are used, but for merges that look up where their rows come to, which read it now.
            If only execution can decide whether the target must be read, the preview reads it.

        Example:
            >>> plan = orders.delete(spark.sql("SELECT '1' AS order_id")).build()
            >>> [(r["order_id"], r["_tm_action"], r["_tm_clause"]) for r in plan.preview().collect()]
            [('1', 'delete', 1)]
        """
        strategy = self.chosen.preview_strategy(self.choice)
        seen = self.seen(self.spec.store.snapshot())
        compiled = self.with_ends(self.rows_on(strategy, seen), seen)
        stored = [E.quote(f.name) for f in self.definition.stored_fields]
        rows = compiled.rows.filter(C.KEEP)
        return rows.selectExpr(*stored, C.ACTION, C.CLAUSE)

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the columns that the merge adds, null in all rows, and with history also its truncate."""
        truncate = self.spec.options.truncate
        is_ended = truncate is not None and self.definition.history
        last = truncate.action if truncate is not None and is_ended else snapshot.truncate
        return attrs.evolve(snapshot, definition=self.definition, truncate=last)

    def rows_on(self, strategy: MergeStrategy, snapshot: Snapshot, **known: Any) -> Compiled:
        """Return the rows that a strategy makes for a snapshot; those with a true ``_tm_keep`` are appended.

        Where the target is read, the source is evaluated here, once (S32); otherwise nothing runs. ``known`` are
        ``known_source`` and ``rejected`` of :class:`~trinitymerge.merge.compile.strategies.Merge`.
        """
        batches = Batches.of(snapshot)
        compiled = strategy.compile(attrs.evolve(self._merge, truncated_at=batches.truncated_at, **known), batches)
        left_out = self._left_out(snapshot, compiled.is_compared, compiled.all_have_keys)
        return attrs.evolve(compiled, rows=pipeline.mark_left_out(compiled.rows, left_out))

    def with_ends(self, compiled: Compiled, snapshot: Snapshot) -> Compiled:
        """Return the rows with the tombstones that end late rows at truncates of a table with history (T1)."""
        truncates = self._truncates(snapshot)
        if truncates is None:
            return compiled
        reads = attrs.evolve(compiled.reads, written_keys=True)
        return attrs.evolve(compiled, rows=pipeline.ended_at_truncates(compiled.rows, truncates), reads=reads)

    def _truncates(self, snapshot: Snapshot) -> Truncates | None:
        last = snapshot.truncate
        if last is None or not self.definition.history:
            return None
        truncates = (*last.earlier, last.watermark)
        return Truncates(self.definition, truncates, partial(rows_at_truncates, self.spec.store, snapshot, truncates))

    def sql(self) -> _format.Text:
        """Return the merge as SQL, step by step: for reading, not for running elsewhere.

        Each step is a SELECT over the one before it; what every step is for stands above it. The rows it begins with are named
        in words, and so are conditions and values given as Columns. ``purged_keys`` stands for the hashes of purged keys.

        Example:
            >>> plan = orders.delete(spark.sql("SELECT '1' AS order_id")).build()
            >>> [line.strip() for line in plan.sql().splitlines() if "-- fire" in line]
            ['-- fire: which clause applies to each row: the first whose condition is true']
        """
        return self.sql_on(self.spec.store.snapshot())

    def sql_on(self, snapshot: Snapshot) -> _format.Text:
        """Return :meth:`sql` of the merge on a version of the table."""
        parts = self.chosen.programs(self._merge, any(b.tombstones for b in snapshot.live_batches))
        unchanged, certain = any(program.compared for _, program in parts), self.choice.certain
        left_out = self._left_out(snapshot, unchanged, len(parts) == 1 or certain)
        return _format.Text(pipeline.as_text(parts, left_out, self._truncates(snapshot)))

    def _left_out(self, snapshot: Snapshot, unchanged: bool, all_have_keys: bool) -> LeftOut:
        last, refuses_stale = Batches.of(snapshot).truncated_at, self.spec.options.on_stale == "error"
        return LeftOut(self.definition, snapshot.purged, last, refuses_stale, unchanged, all_have_keys)

    def explain(self, evaluate: bool = False) -> _format.Text:
        """Return which rows the merge changes and how, in order, and the chosen strategy and why.

        Args:
            evaluate: also evaluates the source, once, and says which batches and how many bytes hold none of its keys and so
                will not be read. Nothing runs otherwise.

        Returns:
            The text. It prints nothing; a notebook or an interactive session shows the value of its last line.

        Example:
            >>> orders.delete(spark.sql("SELECT '1' AS order_id")).build().explain()
            Merge into 'target' (orders), one append batch
              1. whenMatched(): delete the target row
            Strategy: keyed lookup
              target: 1 batch, ... KB
              reads the rows under the source's keys, in one scan; batches and files outside of the range of these keys are skipped
              not blind append: clause 1 takes the watermark 'ts' over from the row it replaces
        """
        looked_into = self._evaluated_lines() if evaluate else []
        lines = [self._headline(), *self._clause_lines(), *self._source_lines(), *self._strategy_lines(), *looked_into]
        return _format.Text("\n".join(lines))

    def _repr_html_(self) -> str:
        lines = [
            ("merge", self._headline()),
            ("clauses", self._clause_lines()),
            ("source", self._source_lines()),
            ("strategy", self._strategy_lines()),
        ]
        return _format.pairs((name, told) for name, told in lines if told)

    def _headline(self) -> str:
        name = self.spec.store.path.rstrip("/").rsplit("/", 1)[-1]
        return f"Merge into '{self.analysis.target.alias}' ({name}), one append batch"

    def _clause_lines(self) -> list[str]:
        lines = []
        for position, plan in enumerate(self.analysis.clauses):
            head = heading(self.spec.clauses[position])
            does = "; ".join(action.explained for action in plan.clause.actions)
            lines.append(f"  {position + 1}. {head}: {does}")
        for kind, words in {WhenMatched: "pairs", WhenNotMatched: "source rows without a pair"}.items():
            clauses = [p for _, p in self.analysis.of_clause(kind)]
            if clauses and all(p.condition is not None for p in clauses):
                lines.append(f"     {words} for which no condition is true: nothing")
        return lines

    def _source_lines(self) -> list[str]:
        options, columns = self.spec.options, ", ".join(self.analysis.ignored)
        computed = "Source: computed from the table, which is read for it" if options.computed_by is not None else ""
        why = "(not in the table, and nothing mentions them)"
        left_out = f"Source columns left out: {columns} {why}" if columns else ""
        rows = options.rows_left_out
        firsts = f"Source rows left out: {rows} (one more shuffle of the source)" if rows else ""
        altered = f"The table first: {'; '.join(self.columns_added)}" if self.columns_added else ""
        compared = "Keys" if self.analysis.by_name else "Condition"
        mixed = [f"{compared}: {told}" for told in self.choice.equalities.mixed(self.definition)]
        return [line for line in (altered, computed, firsts, left_out, *mixed) if line]

    def reads_on(self, strategy: MergeStrategy, batches: Batches) -> str:
        """Return how a strategy reads some batches, in words that follow "reads"."""
        return strategy.reads(self._merge, batches)

    @property
    def _merge(self) -> Merge:
        options, has_registers = self.spec.options, self.spec.options.registers is not None
        facts = (options.on_stale, options.holds, has_registers, options.has_counts)
        return Merge(self.analysis, self.choice, self.spec.store, *facts)

    @with_session_settings
    def _evaluated_lines(self) -> list[str]:
        """Return the batches that need not be read, by the evaluated keys of the source."""
        if not self.chosen.looks_up(self._merge):
            return []
        once = self._merge.evaluated().once
        return [f"  {line}" for line in join.spared_by(self.spec.store, self.batches, once)]

    def _work_lines(self, way: MergeStrategy) -> list[str]:
        """Return what a read of all live rows does, if the merge has one and there is more to it than a scan."""
        batches = self.batches
        if way is not FULL_SCAN or batches.are_resolved:
            return []
        files, rows = sum(b.files for b in batches.batches), sum(b.rows for b in batches.batches)
        return [f"  a scan {read_work(files, rows, batches.marked_rows, batches.compared_rows)}"]

    def _strategy_lines(self) -> list[str]:
        chosen, batches = self.chosen, self.batches.batches
        against = {**self.choice.futile, **self.choice.rejected}
        way, computed = self.dearest(chosen), self.spec.options.computed_by
        why = "another strategy was asked for" if computed is None else "the source is computed from the table"
        reasons = [(strategy, against.get(strategy, why)) for strategy in cheaper(way)]
        reads = self.reads_on(chosen, self.batches) if way is chosen else f"{way.reads_for_source}, for the source"
        merge = self._merge
        probes = any(program.unknown for _, program in chosen.programs(merge, tombstones_possible=True))
        again = "; then what is under the keys that rows come to, where a batch may hold them" if probes else ""
        return [
            f"Strategy: {way.name}{chosen.uncertainty(self.choice) if way is chosen else ''}",
            f"  target: {counted(len(batches), 'batch', 'batches')}, {sized(sum(b.bytes for b in batches))}",
            f"  reads {reads}{again}",
            *self._work_lines(way),
            *(f"  not {strategy.name}: {reason}" for strategy, reason in reasons),
        ]
