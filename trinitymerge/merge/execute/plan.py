"""A merge that is ready to run: explain(), preview(), sql(), execute()."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge import _format
from trinitymerge.errors import counted, sized
from trinitymerge.log.batches import Batches, read_work
from trinitymerge.log.model import Snapshot
from trinitymerge.log.reporting import listening
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.compile import join, pipeline, strategies
from trinitymerge.merge.compile.pipeline import LeftOut, Truncates
from trinitymerge.merge.compile.probe import rows_at_truncates
from trinitymerge.merge.execute.request import MergeSpec
from trinitymerge.merge.model.clauses import Clause, WhenMatched, WhenNotMatched, heading
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import differences_of_columns
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings


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
    choice: strategies.StrategyChoice
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
    def columnsAdded(self) -> tuple[str, ...]:
        """Return the columns that the merge adds to the table, in words (S44)."""
        return tuple(differences_of_columns(self.batches.definition, self.definition))

    @property
    def chosen(self) -> strategies.MergeStrategy:
        """The strategy that is tried first."""
        return self.spec.settings.strategy or strategies.cheapest(self.choice)

    @property
    def strategy(self) -> str:
        """The name of the strategy that is tried first."""
        return self.dearest(self.chosen).name

    def dearest(self, strategy: strategies.MergeStrategy) -> strategies.MergeStrategy:
        """Return the strategy that reads more: this one, or the one that computed the source."""
        return strategies.dearer(strategy, self.spec.feed.read_by)

    def execute(self) -> MergeResult:
        """Run the merge by ``executor.execute``. ``MergeBuilder.execute`` calls this; its results and errors are the same."""
        with listening(*self.spec.settings.listeners):
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
        truncate = self.spec.feed.truncate
        is_ended = truncate is not None and self.definition.history
        last = truncate.action if truncate is not None and is_ended else snapshot.truncate
        return attrs.evolve(snapshot, definition=self.definition, truncate=last)

    def rows_on(self, strategy: strategies.MergeStrategy, snapshot: Snapshot, **known: Any) -> strategies.Compiled:
        """Return the rows that a strategy makes for a snapshot; those with a true ``_tm_keep`` are appended.

        Where the target is read, the source is evaluated here, once (S32); otherwise nothing runs. ``known`` are
        ``known_source`` and ``rejected_rows`` of :class:`~trinitymerge.merge.compile.strategies.Merge`.
        """
        batches = Batches.of(snapshot)
        compiled = strategy.compile(attrs.evolve(self._merge, truncated_at=batches.truncated_at, **known), batches)
        left_out = self._what_to_leave_out(snapshot, compiled.is_compared)
        return attrs.evolve(compiled, rows=pipeline.mark_left_out(compiled.rows, left_out))

    def with_ends(self, compiled: strategies.Compiled, snapshot: Snapshot) -> strategies.Compiled:
        """Return the rows with the tombstones that end late rows at truncates of a table with history (T1)."""
        truncates = self._truncates(snapshot)
        if truncates is None:
            return compiled
        reads = attrs.evolve(compiled.reads, written_keys=True)
        rows = pipeline.ended_at_truncates(compiled.rows, truncates)
        return attrs.evolve(compiled, rows=rows, reads=reads, is_evaluated=False)

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
        return self.sql_on(self.seen(self.spec.store.snapshot()))

    def sql_on(self, snapshot: Snapshot) -> _format.Text:
        """Return :meth:`sql` of the merge on a version of the table (:meth:`seen`)."""
        merge = attrs.evolve(self._merge, truncated_at=Batches.of(snapshot).truncated_at)
        source, program = self.chosen.program(merge, any(b.tombstones for b in snapshot.live_batches))
        left_out = self._what_to_leave_out(snapshot, bool(program.compared))
        return _format.Text(pipeline.as_text(source, program, left_out, self._truncates(snapshot)))

    def _what_to_leave_out(self, snapshot: Snapshot, unchanged: bool) -> LeftOut:
        last, refuses_stale = Batches.of(snapshot).truncated_at, self.spec.settings.on_stale == "error"
        return LeftOut(self.definition, snapshot.purged, last, refuses_stale, unchanged)

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
        feed, columns = self.spec.feed, ", ".join(self.analysis.ignored)
        computed = "Source: computed from the table, which is read for it" if feed.read_by is not None else ""
        why = "(not in the table, and nothing mentions them)"
        left_out = f"Source columns left out: {columns} {why}" if columns else ""
        rows = feed.rows_left_out
        firsts = f"Source rows left out: {rows} (one more shuffle of the source)" if rows else ""
        altered = f"The table first: {'; '.join(self.columnsAdded)}" if self.columnsAdded else ""
        compared = "Keys" if self.analysis.by_name else "Condition"
        mixed = [f"{compared}: {told}" for told in self.choice.equalities.mixed(self.definition)]
        return [line for line in (altered, computed, firsts, left_out, *mixed) if line]

    def reads_on(self, strategy: strategies.MergeStrategy, batches: Batches) -> str:
        """Return how a strategy reads some batches, in words that follow "reads"."""
        return strategy.reads(self._merge, batches)

    @property
    def _merge(self) -> strategies.Merge:
        feed = self.spec.feed
        are_all = feed.stored is None or feed.stored.are_all
        facts = (self.spec.settings.on_stale, feed.stored_column, feed.unset is not None, are_all)
        return strategies.Merge(self.analysis, self.choice, self.spec.store, *facts)

    @with_session_settings
    def _evaluated_lines(self) -> list[str]:
        """Return the batches that need not be read, by the evaluated keys of the source."""
        if not self.chosen.looks_up(self._merge):
            return []
        once = self._merge.evaluated().once
        return [f"  {line}" for line in join.spared_by(self.spec.store, self.batches, once)]

    def _work_lines(self, way: strategies.MergeStrategy) -> list[str]:
        """Return what a read of all live rows does, if the merge has one and there is more to it than a scan."""
        batches = self.batches
        if way is not strategies.FULL_SCAN or batches.are_resolved:
            return []
        files, rows = sum(b.files for b in batches.batches), sum(b.rows for b in batches.batches)
        return [f"  a scan {read_work(files, rows, batches.marked_rows, batches.compared_rows)}"]

    def _strategy_lines(self) -> list[str]:
        chosen, batches = self.chosen, self.batches.batches
        against = {**self.choice.futile, **self.choice.unsound}
        way, computed = self.dearest(chosen), self.spec.feed.read_by
        why = "another strategy was asked for" if computed is None else "the source is computed from the table"
        reasons = [(strategy, against.get(strategy, why)) for strategy in strategies.cheaper(way)]
        reads = self.reads_on(chosen, self.batches) if way is chosen else f"{way.reads_for_source}, for the source"
        merge = self._merge
        probes = chosen.program(merge, tombstones_possible=True)[1].unknown
        again = "; then what is under the keys that rows come to, where a batch may hold them" if probes else ""
        return [
            f"Strategy: {way.name}{chosen.uncertainty(self.choice) if way is chosen else ''}",
            f"  target: {counted(len(batches), 'batch', 'batches')}, {sized(sum(b.bytes for b in batches))}",
            f"  reads {reads}{again}",
            *self._work_lines(way),
            *(f"  not {strategy.name}: {reason}" for strategy, reason in reasons),
        ]
