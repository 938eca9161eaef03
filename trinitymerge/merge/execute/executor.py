"""One attempt of a merge: stage, check, commit; repeated on conflicts (S32-S37)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import cache, partial
from itertools import count
from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError, TrinityMergeError, counted
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import (
    Action,
    AddExtract,
    AddOutboxEntry,
    Batch,
    RemoveTransaction,
    SetDefinition,
    SetTransaction,
    add_all,
    remove_all,
)
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import CommitStateUnknown, RetryPolicy, check_continues, publish
from trinitymerge.log.model import Snapshot, current_user
from trinitymerge.merge.analysis import ignored_columns, kept_watermarks
from trinitymerge.merge.analysis.row_kinds import HAS_STALE_EFFECT
from trinitymerge.merge.compile import mend
from trinitymerge.merge.compile.mend import may_mend
from trinitymerge.merge.compile.strategies import KEY_LOOKUP, Compiled, MergeStrategy, dearer
from trinitymerge.merge.execute import outbox, validate
from trinitymerge.merge.execute.commit_info import operation_of, operation_parameters, progress_text
from trinitymerge.merge.execute.conflicts import ReadSet, RowsUnchanged, require_unchanged, requirements
from trinitymerge.merge.execute.metrics import (
    KeyCounts,
    Observed,
    StagedRows,
    count_keys,
    observed_metrics,
    with_key_counts,
)
from trinitymerge.merge.execute.outbox import StagedOutbox
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.execute.quarantine import (
    Reevaluate,
    StagedQuarantine,
    read_several_times,
    stage_quarantine,
    without_refusing,
)
from trinitymerge.merge.execute.request import Transaction
from trinitymerge.merge.execute.schema_changes import replan
from trinitymerge.merge.execute.validate import merge_errors
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.rows import key_ranges
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.rows.registers import unset_in
from trinitymerge.rows.watermarks import Watermark, is_above, is_below
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.session import select_exprs
from trinitymerge.stores.base import Staged, TableStore
from trinitymerge.stores.removed_files import naming_vacuums
from trinitymerge.stores.staging import batch_of, stage

FAULT_POINTS = ("validate.before", "validate.done")
"""Where this module may be killed, see ``fs/faults.py``."""


class Needs(Enum):
    """The reason why an attempt has written nothing: the next one must read more."""

    DECISION = "some source rows mean different things depending on whether their key exists: blind append is not sound"
    MENDING = "a row may be older than a stored row that leaves something unset: that row must be looked up (U3)"
    ENDS = "a row version ends at a truncate, unless its key has a row there: that row must be looked for (T1)"


@with_session_settings
def execute(plan: MergePlan) -> MergeResult:
    """Run a plan on the newest version of its table."""
    ignored_columns.warn(plan.spec.store.path, plan.analysis.ignored)
    if plan.spec.settings.on_stale != "force":
        kept_watermarks.warn(plan.spec.store.path, kept_watermarks.kept_watermarks(plan.analysis))
    strategy, attempts, is_outdated, mends = plan.chosen, RetryPolicy(), False, False
    ends = plan.spec.feed.truncate is not None and plan.definition.history
    while True:
        store, feed = plan.spec.store, plan.spec.feed
        snapshot = plan.spec.pre_attempt_hook(store)
        if snapshot.definition != plan.batches.definition:
            plan, is_outdated = replan(plan, snapshot), False
            strategy = plan.chosen
            continue
        done = already_done(plan.spec.settings.transaction, snapshot, store.path)
        if done is not None:
            return attrs.evolve(done, columnsIgnored=plan.analysis.ignored, feed=feed.counts)
        try:
            if is_outdated:
                plan, is_outdated = plan.again(snapshot), False
                strategy = plan.chosen
            require_unchanged(store, plan.spec.feed)
            attempt = _Attempt(plan, strategy, snapshot, plan.seen(snapshot), mends, ends)
            with naming_vacuums(store):
                found = attempt.run()
            if isinstance(found, MergeResult):
                validate.warn_unknown(store.path, found.columnsUnknown)
                result = attrs.evolve(found, columnsIgnored=plan.analysis.ignored, feed=plan.spec.feed.counts)
                return plan.spec.post_commit_hook(result, attempt.after)
            strategy = strategy.if_undecided() if found is Needs.DECISION else strategy
            mends, ends = mends or found is Needs.MENDING, ends or found is Needs.ENDS
        except (ConcurrentCommitError, FilesVacuumedError) as error:
            attempts.backoff(error, snapshot)
            is_vacuumed = isinstance(error, FilesVacuumedError)
            is_changed = isinstance(error.facts.get("requirement"), RowsUnchanged)
            is_outdated = plan.spec.feed.stored is not None and (is_vacuumed or is_changed)


def already_done(transaction: Transaction | None, snapshot: Snapshot, table: str) -> MergeResult | None:
    """Return the result of a merge whose transaction is already committed (S36), or None."""
    if transaction is None:
        return None
    if transaction.stream is not None:
        check_continues(transaction.stream, snapshot, table)
    last = snapshot.transactions.get(transaction.application)
    if last is None or last < transaction.number:
        return None
    why = f"transaction {transaction.number} of '{transaction.application}' was committed before (last is {last})"
    return MergeResult(version=snapshot.version, skipped=why, batches=len(snapshot.batches), table=table)


@attrs.define(eq=False)
class _Attempt:
    """One evaluation of a merge against one snapshot.

    Attributes:
        snapshot: the newest, which is committed upon.
        seen: the same, with the columns that the merge adds, and with history its truncate.
        mends: the stored rows are looked up that leave something unset, and that rows of the merge may change (U4).
        ends: late rows get tombstones at truncates (T1).
        staged_outbox: the rows for other tables, the quarantine among them.
        committing: the commit may have taken place.
        after: the table with the merge's rows, once they are committed.
    """

    plan: MergePlan
    strategy: MergeStrategy
    snapshot: Snapshot
    seen: Snapshot
    mends: bool = False
    ends: bool = False
    seconds: dict[str, float] = attrs.field(factory=dict)
    staged_outbox: list[StagedOutbox] = attrs.field(factory=list)
    quarantined: StagedQuarantine | None = None
    phase: str = "source"
    committing: bool = False
    after: Snapshot | None = None

    @property
    def store(self) -> TableStore:
        return self.plan.spec.store

    def run(self) -> MergeResult | Needs:
        with reporting.if_slow(self.store.path, lambda: progress_text(self.plan, self.strategy, self.seen, self.phase)):
            return self._run()

    def _run(self) -> MergeResult | Needs:
        with self._timed("source"), merge_errors(self.store):
            again = partial(self.plan.rows_on, self.strategy, self.seen)
            compiled = read_several_times(self.plan, again(), again)
        if compiled.source_rows == 0:
            with self._discarding():
                self._stage_quarantine(compiled, 0)
                return self._nothing(self._if_empty, 0)
        with self._timed("write"), merge_errors(self.store, self.plan.definition.checks):
            compiled, written, staged, observed = self._staged(compiled, again)
        with self._discarding(staged):
            found = self._check_and_commit(written, staged, observed, compiled)
        if isinstance(found, Needs):
            self._discard(staged)
        return found

    def _staged(self, compiled: Compiled, again: Reevaluate) -> tuple[Compiled, Compiled, Staged, Observed]:
        """Stage the rows of a merge; with a quarantine, again without those that would refuse it.

        Return its rows, and what was written: these and the rows that follow from them.
        """
        rounds = count()
        while True:
            written = self._completed(compiled)
            staged, observed = self._stage(written)
            with self._discarding(staged):
                mended = partial(self._mended, compiled)
                rest = without_refusing(self.plan, compiled, observed, again, mended, rounds)
            if rest is None:
                return compiled, written, staged, observed
            self.store.discard(staged)
            compiled = rest

    def _completed(self, compiled: Compiled, names_fillers: bool = False) -> Compiled:
        """Return the rows of a merge and those that follow from them: where late rows end, and what they mend."""
        rows = self.plan.with_ends(compiled, self.seen) if self.ends else compiled
        return mend.with_mended(rows, self.store, self.seen, names_fillers) if self.mends else rows

    def _mended(self, compiled: Compiled) -> DataFrame:
        return self._completed(compiled, names_fillers=True).rows.where(C.MENDED)

    @contextmanager
    def _discarding(self, *staged: Staged) -> Iterator[None]:
        """Discard what is staged if the attempt fails before its commit."""
        try:
            yield
        except CommitStateUnknown:
            raise  # the batch may be part of the table: it must stay, and vacuum() removes it if it is not
        except BaseException as error:
            # Ctrl-C, or a timeout by a signal, may come right after the commit; errors of library and storage come before it.
            is_before = isinstance(error, (TrinityMergeError, OSError)) and not isinstance(error, TimeoutError)
            if self.after is None and (is_before or not self.committing):
                self._discard(*staged)
            raise

    def _discard(self, *staged: Staged) -> None:
        for one in (*staged, *(b.staged for b in self.staged_outbox)):
            self.store.discard(one)

    def _stage_quarantine(self, compiled: Compiled, source_rows: int | None) -> None:
        with self._timed("quarantine") if self.plan.spec.settings.quarantine else nullcontext():
            self.quarantined = stage_quarantine(self.plan, compiled, source_rows)
        if self.quarantined is not None:
            self.staged_outbox.append(self.quarantined)

    # Stage ----------------------------------------------------------------------------------------------------------

    def _stage(self, compiled: Compiled) -> tuple[Staged, Observed]:
        """Write the batch and gather its statistics in one job; files are sized by their bytes."""
        definition, clauses = self.plan.definition, len(self.plan.spec.clauses)
        assert C.UNSET in compiled.rows.columns or self.plan.spec.feed.unset is None, "registers are lost"
        metrics = observed_metrics(compiled, definition, clauses, self.plan.spec.feed.is_sequenced)
        ranges = key_ranges.metrics_of_rows(definition, C.KEEP)
        gathering = Metrics({**metrics, **self._metrics_of_maintenance(), **ranges})
        rows = compiled.rows
        if compiled.in_one_task:
            rows = rows.coalesce(1)  # then the keys need no shuffle to meet
        rows = with_key_counts(compiled, rows, definition)
        kept = gathering.observe(rows).filter(C.KEEP)
        unset = [C.UNSET] if C.UNSET in compiled.rows.columns and definition.watermarkKey else []
        stored = [*(E.quote(f.name) for f in definition.stored_fields), C.CLAUSE, C.EFFECT, *unset]
        staged, observed = stage(self.store, select_exprs(kept, stored), definition, gathering)
        return staged, Observed(observed)

    def _metrics_of_maintenance(self) -> dict[str, str]:
        """Return the metrics that earlier compactions and purges require."""
        metrics = {}
        if self.seen.purged is not None:
            metrics["purged"] = E.count_where(C.PURGED)
        own, truncate = self.plan.definition, self.seen.truncate
        if truncate is not None and not own.history:
            metrics["truncated"] = E.count_where(C.TRUNCATED)
        elif truncate is not None and not self.ends:
            metrics["late"] = self._live_below(truncate.watermark)
        if self.seen.horizon:
            metrics["below_horizon"] = self._live_below(self.seen.horizon)
        return {name: count for name, count in metrics.items() if count}

    def _live_below(self, watermark: Watermark) -> str:
        """Return the number of rows that are not tombstones and older than a watermark, as SQL; empty if it is not known."""
        below = is_below(self.plan.definition, watermark)
        is_live = f"NOT {E.is_tombstone(self.plan.definition)}"
        return E.count_where(f"{C.KEEP} AND {is_live} AND {below}") if below else ""

    # Validate -------------------------------------------------------------------------------------------------------

    def _check_and_commit(
        self, compiled: Compiled, staged: Staged, observed: Observed, own_rows: Compiled
    ) -> MergeResult | Needs:
        """Commit what is staged. ``own_rows`` are the merge's, without those that follow from them."""
        if not compiled.reads.nothing:
            self.store.verify_files_after_read(self.seen.batches if self.ends else self.seen.live_batches)
        source_rows = compiled.source_rows if compiled.program.knows_target else observed["source"]
        if observed["undecided"]:
            return Needs.DECISION
        if observed["late"]:
            return Needs.ENDS
        self._stage_quarantine(own_rows, source_rows)
        if source_rows == 0 and not observed["mended"]:
            self.store.discard(staged)
            return self._nothing(self._if_empty, 0)
        if observed["rows"] == 0 and not observed["misfits"]:  # what does not fit may be what left the rows out (S21a)
            self.store.discard(staged)
            dependence = self._dependence(compiled, staged, None)
            return self._nothing(_why_nothing(observed), source_rows, observed, dependence)
        faults.fault("validate.before")
        with self._timed("validate"):
            counts = self._validate(staged, observed)
        faults.fault("validate.done")
        if self.plan.analysis.outbox_plan is not None:
            with self._timed("history"), merge_errors(self.store):
                for one in outbox.stage_outbox(self.plan, own_rows):
                    self.staged_outbox.append(one)
        with self._timed("commit"):
            result = self._result(compiled, source_rows, observed, counts)
            batch = self._batch(staged, observed, counts)
            if not self._has_mended and may_mend(*self._mending(observed, batch), self.seen.batches):
                return Needs.MENDING
            dependence = self._dependence(compiled, staged, batch)
            may_be_mended = partial(may_mend, *self._mending(observed, batch))
            after = self._publish_commit((batch,), _metrics(result), attrs.evolve(dependence, may_mend=may_be_mended))
        self.after = after
        return attrs.evolve(
            result,
            version=after.version,
            rowsBelowHorizon=self._below_horizon(observed, batch, after),
            batches=len(after.batches),
            seconds=self.seconds,
            **self._described(),
        )

    def _described(self) -> dict[str, Any]:
        return {
            "table": self.store.path,
            "clauses": tuple(operation_parameters(self.plan).get("clauses", ())),
            "explanation": str(self.plan.explain()),
            "sql": str(self.plan.sql_on(self.seen)),
        }

    @property
    def _has_mended(self) -> bool:
        """True if the rows of the merge are beside those that they mend."""
        return self.mends or self.plan.spec.feed.unset is not None

    def _mending(self, observed: Observed, batch: Batch) -> tuple[TableStore, TableDefinition, Batch, KeyRange]:
        """Return what decides which batches may have rows to mend."""
        own = self.plan.definition
        return self.store, own, batch, KeyRange.of(observed.values, own)

    def _dependence(self, compiled: Compiled, staged: Staged, batch: Batch | None) -> ReadSet:
        """Return what this attempt has read, to find conflicts."""
        counts_rows = self.plan.spec.settings.max_delete_fraction is not None
        only_keys = not (compiled.reads.everything or compiled.program.moves or counts_rows)
        return ReadSet(self.store, compiled.reads, only_keys, batch, staged)

    def _below_horizon(self, observed: Observed, batch: Batch, after: Snapshot) -> int | None:
        """Count the rows below the horizon; None if it is not known, or a concurrent compaction has just raised it."""
        if after.horizon is None:
            return 0
        if after.horizon == self.seen.horizon:
            return observed["below_horizon"] if "below_horizon" in observed.values else None
        return 0 if is_above(self.plan.definition, batch.watermark_min, after.horizon) else None

    def _validate(self, staged: Staged, observed: Observed) -> KeyCounts:
        """Raise for what must not be committed: single rows (S34), live keys (S25), contradictions (S12), and the rest."""
        definition, clauses = self.plan.definition, self.plan.spec.clauses
        rows = cache(partial(self.store.read_staged, staged))
        validate.check_observed(definition, observed, rows, clauses)
        if observed["duplicates"]:
            validate.raise_duplicates(definition, rows(), clauses, observed["duplicates"])
        counts = count_keys(definition, rows, observed)
        if not counts.unique:
            validate.check_unambiguous(definition, rows(), clauses, self.plan.spec.feed.ambiguous)
        if observed["conflicting_move"]:
            validate.raise_conflicting_moves(definition, rows(), clauses)
        if observed["stale"] and self.plan.spec.settings.on_stale == "error":
            stale = rows().filter(HAS_STALE_EFFECT).selectExpr(*reader.keys_to_find(definition))
            latest = reader.latest_rows(self.store, Batches.of(self.seen), stale)
            validate.raise_stale(definition, rows(), latest, observed, Batches.of(self.seen).truncated_at)
        self._check_deletes(counts, rows)
        return counts

    def _check_deletes(self, counts: KeyCounts, rows: StagedRows) -> None:
        allowed, extract = self.plan.spec.settings.max_delete_fraction, self.plan.spec.feed.extract
        if allowed is None:
            if extract is not None and extract.held is None:
                validate.warn_of_deletes(self.store.path, counts.deleted, self.seen)
        elif extract is not None and extract.held is not None:
            validate.check_lacking(self.plan.definition, rows(), extract.moment, extract.held, allowed)
        elif counts.deleted:
            live = reader.live_rows(self.store, Batches.of(self.seen))
            validate.check_deleted(counts.deleted, live, allowed)

    # Commit ---------------------------------------------------------------------------------------------------------

    def _result(
        self, compiled: Compiled, source_rows: int | None, observed: Observed, counts: KeyCounts
    ) -> MergeResult:
        blind = not compiled.knows_counts
        return MergeResult(
            version=self.seen.version,
            rowsInserted=None if blind else counts.inserted,
            rowsUpdated=None if blind else counts.updated,
            rowsDeleted=None if blind else counts.deleted,
            rowsStale=None if blind and self.plan.definition.watermarkKey else self._stale(observed),
            rowsAppended=observed["rows"],
            rowsSource=self._rows_of_source(source_rows),
            perClause=self._per_clause(None if blind else observed),
            strategy=self._reading.name,
            rowsPurged=observed["purged"],
            rowsTruncated=observed["truncated"],
            rowsMended=observed["mended"],
            columnsUnknown=observed["unknown"],
            rowsUnchanged=observed["unchanged"],
            columnsAdded=self.plan.columnsAdded,
            rowsHistory=sum(b.entry.rows for b in self.staged_outbox if not b.entry.is_quarantine),
            **self._counted_quarantine,
        )

    @property
    def _counted_quarantine(self) -> dict[str, Any]:
        found = self.quarantined
        return {} if found is None else {"rowsQuarantined": found.entry.rows, "quarantined": found.reasons}

    @property
    def _reading(self) -> MergeStrategy:
        found = self.plan.dearest(self.strategy)
        return dearer(found, KEY_LOOKUP) if self.mends or self.ends else found

    def _stale(self, observed: Observed) -> int | None:
        """Count the stale rows; None if it is not known which of those before a truncate are stale."""
        if self.plan.spec.feed.truncate is not None and self.plan.definition.history:
            return None  # deletes of keys at earlier truncates are among them
        return None if observed["truncated"] and "stale" not in observed.values else observed.stale

    def _rows_of_source(self, rows: int | None) -> int | None:
        """Count the source rows; None for an extract, whose unchanged rows were dropped before."""
        feed = self.plan.spec.feed
        if feed.source_rows is not None:
            return feed.source_rows
        return rows if feed.extract is None else None

    def _per_clause(self, observed: Observed | None) -> tuple[int | None, ...]:
        """Count how often each of the user's clauses fired; None if unknown. A feed has no clauses."""
        clauses = 0 if self.plan.spec.feed.call else len(self.plan.spec.clauses)
        return (None,) * clauses if observed is None else observed.per_clause(clauses)

    def _batch(self, staged: Staged, observed: Observed, counts: KeyCounts) -> Batch:
        is_base, known = counts.unique and not self.seen.batches, self.plan.spec.feed.unset
        unset = known if known is not None else unset_in(self.seen.batches)
        own, is_unique = self.plan.definition, counts.unique
        return batch_of(staged, observed.values, own, unique_keys=is_unique, unset=unset, base=is_base)

    def _nothing(
        self, why: str, source_rows: int | None, observed: Observed | None = None, dependence: ReadSet | None = None
    ) -> MergeResult:
        """Return the result of a merge without rows. It still commits a transaction marker and the moment of an extract."""
        version, kept = self.seen, self._kept_without_rows()
        if kept:
            metrics = {"rowsSource": self._rows_of_source(source_rows), **self._counted_quarantine}
            metrics.pop("quarantined", None)
            version = self._publish_commit((), metrics, dependence)
            self.after = version
        truncate = self.plan.spec.feed.truncate
        return MergeResult(
            version=version.version,
            rowsDeleted=None if truncate is not None and truncate.removed else 0,
            rowsStale=self._stale(observed) if observed else 0,
            rowsSource=self._rows_of_source(source_rows),
            perClause=self._per_clause(observed or Observed({})),
            strategy=self._reading.name,
            skipped=_OTHERWISE if self.quarantined is not None else why,
            kept=kept,
            rowsPurged=observed["purged"] if observed else 0,
            rowsTruncated=observed["truncated"] if observed else 0,
            rowsUnchanged=observed["unchanged"] if observed else 0,
            seconds=self.seconds,
            batches=len(version.batches),
            **self._counted_quarantine,
            **self._described(),
        )

    def _kept_without_rows(self) -> str:
        """Return in words what the table keeps of a merge without rows (S36, H11); empty if nothing."""
        feed, transaction, kept = self.plan.spec.feed, self.plan.spec.settings.transaction, []
        if transaction is not None:
            kept.append(f"transaction {transaction.number} of '{transaction.application}'")
        if feed.extract is not None and feed.extract.moment not in self.seen.extracts:
            kept.append("the moment of the extract")
        if feed.truncate is not None:
            kept.append("the truncate")
        if self.quarantined is not None:
            kept.append(f"{counted(self.quarantined.entry.rows)} for the quarantine")
        return " and ".join(kept)

    def _publish_commit(
        self, batches: tuple[Batch, ...], metrics: Mapping[str, Any], dependence: ReadSet | None
    ) -> Snapshot:
        """Commit on top of concurrent commits, unless the merge depends on them (S35)."""
        settings, feed = self.plan.spec.settings, self.plan.spec.feed
        commit = self.snapshot.next_commit(
            operation_of(self.plan),
            self._actions(batches),
            parameters=operation_parameters(self.plan),
            metrics=metrics,
            user=current_user(),
            duration_ms=int(sum(self.seconds.values()) * 1000),
        )
        self.committing = True
        return publish(self.store, commit, self.snapshot, requirements(settings.transaction, feed, dependence))

    def _actions(self, batches: tuple[Batch, ...]) -> list[Action]:
        feed, settings, actions = self.plan.spec.feed, self.plan.spec.settings, list[Action]()
        if self.plan.columnsAdded and batches:
            actions.append(SetDefinition(self.plan.definition))
        if feed.truncate is not None:
            actions += [*remove_all(feed.truncate.removed), feed.truncate.action]
        actions += [*self.snapshot.needed_by(batches), *add_all(batches)]
        if (done := settings.transaction) is not None:
            actions.append(SetTransaction(done.application, done.number, done.counted_by))
        actions += map(RemoveTransaction, settings.expired_transactions)
        if feed.extract is not None:
            actions.append(AddExtract(feed.extract.moment))
        return [*actions, *(AddOutboxEntry(b.entry) for b in self.staged_outbox)]

    @property
    def _if_empty(self) -> str:
        return "the source is empty" if self.plan.spec.feed.extract is None else "nothing has changed"

    # Around ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start, self.phase = time.perf_counter(), phase
        try:
            with reporting.phase(self.store.path, phase):
                yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start


def _metrics(result: MergeResult) -> dict[str, Any]:
    names = ("rowsInserted", "rowsUpdated", "rowsDeleted", "rowsStale", "rowsAppended", "rowsSource", "strategy")
    rare = ("rowsQuarantined", "rowsHistory", "rowsUnchanged", "rowsPurged", "rowsTruncated", "rowsMended")
    others = [n for n in (*rare, "columnsUnknown") if getattr(result, n)]
    if any(n is not None for n in result.perClause):
        others.append("perClause")  # a blind append does not count its clauses
    return {n: getattr(result, n) for n in (*names, *others)}


_OTHERWISE = "rows went into the quarantine, and all others have no effect"


def _why_nothing(observed: Observed) -> str:
    if observed["truncated"]:
        return "every row to write is older than the table's last truncate"
    if observed["purged"]:
        return "every row to write has a purged key"
    if observed["unchanged"]:
        return "no row would change"
    return "every row to write is stale" if observed.stale else "no clause applied to any row"
