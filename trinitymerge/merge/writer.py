"""Executing a merge: stage, validate, commit, retry (S32-S37).

Owns: the order of these steps and what happens between them. A batch is real only by its log entry; whatever goes wrong
before that leaves the table as it was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from pyspark.errors import PythonException
from pyspark.sql import Observation

from trinitymerge import reader
from trinitymerge.errors import ConcurrentCommitError, InvalidMergeError, TooManyDeletesError
from trinitymerge.expressions import quote
from trinitymerge.merge import validation
from trinitymerge.merge.clauses import describe
from trinitymerge.merge.compiler import KEEP, stored_columns
from trinitymerge.merge.frames import is_sparks, spark_text
from trinitymerge.merge.paths import Path
from trinitymerge.merge.plan import Compiled, MergePlan
from trinitymerge.merge.result import MergeResult
from trinitymerge.merge.validation import KeyCounts, Observed
from trinitymerge.storage.backend import Batches, Staged
from trinitymerge.storage.log import Batch, OutcomeUnknown, Snapshot, current_user

MAX_ATTEMPTS = 10
"""How often a merge that read the target is evaluated again after other writers' commits (S35)."""

_BACKOFF_SECONDS = 0.05


class _Undecided(Exception):  # noqa: N818 - an answer, not an error
    """Some source rows mean different things depending on whether their key exists: blind append is not sound."""


def execute(plan: MergePlan) -> MergeResult:
    """Runs a plan against the newest version of its table.

    Raises:
        ConcurrentCommitError: other writers committed first, each time, or changed the definition.
        TrinityMergeError: the batch was refused; nothing was written.
    """
    path = plan.chosen
    for attempt in range(MAX_ATTEMPTS):
        snapshot = plan.backend.snapshot()
        if snapshot.definition != plan.definition:
            raise ConcurrentCommitError(
                f"The definition of {plan.backend.path} has changed since the merge was built. Open the table again."
            )
        done = _already_done(plan, snapshot)
        if done is not None:
            return done
        try:
            return _Attempt(plan, path, snapshot).run()
        except _Undecided:
            path = Path.KEYED if Path.MIXED in plan.paths.why_not else Path.MIXED
        except ConcurrentCommitError:
            if attempt == MAX_ATTEMPTS - 1:
                raise
            time.sleep(random.uniform(0, _BACKOFF_SECONDS * 2**attempt))
    raise AssertionError("unreachable")


def _already_done(plan: MergePlan, snapshot: Snapshot) -> MergeResult | None:
    if plan.options.transaction is None:
        return None
    application, version = plan.options.transaction
    last = snapshot.transactions.get(application)
    if last is None or last < version:
        return None
    why = f"transaction {version} of '{application}' was committed before (last is {last})"
    return MergeResult(version=snapshot.version, skipped=why, batches=len(snapshot.batches))


@attrs.define(eq=False)
class _Attempt:
    """One evaluation of a merge against one snapshot."""

    plan: MergePlan
    path: Path
    snapshot: Snapshot
    seconds: dict[str, float] = attrs.field(factory=dict)
    committing: bool = False

    def run(self) -> MergeResult:
        batches = Batches.of(self.snapshot)
        with self._timed("source"), self._merge_errors():
            compiled = self.plan.compile(self.path, batches)
        if compiled.source_rows == 0:
            return self._nothing("the source is empty", compiled.source_rows)
        with self._timed("write"), self._merge_errors():
            staged, observed = self._stage(compiled)
        try:
            return self._publish(compiled, staged, observed)
        except OutcomeUnknown:
            raise  # the batch may be part of the table: it must stay, and vacuum() removes it if it is not
        except Exception:
            self.plan.backend.discard(staged)
            raise
        except BaseException:  # Ctrl-C, which may come right after the batch became part of the table
            if not self.committing:
                self.plan.backend.discard(staged)
            raise

    @property
    def _counts_unknown(self) -> bool:
        """Does the path append rows without knowing what they replace (S31)."""
        return self.path in (Path.BLIND, Path.MIXED)

    # Stage ----------------------------------------------------------------------------------------------------------

    def _stage(self, compiled: Compiled) -> tuple[Staged, Observed]:
        """Writes the batch and gathers its statistics in one job; files are sized by their bytes."""
        observation = Observation()
        metrics = validation.observed_columns(compiled.program)
        all_written = not self._counts_unknown or self.plan.paths.certain
        rows = validation.with_key_counts(compiled.rows, compiled.program, all_written).observe(observation, *metrics)
        rows = rows.filter(KEEP).selectExpr(*stored_columns(self.plan.definition))
        staged = self.plan.backend.stage(rows, self.plan.definition)
        return staged, Observed(dict(observation.get))

    # Validate -------------------------------------------------------------------------------------------------------

    def _publish(self, compiled: Compiled, staged: Staged, observed: Observed) -> MergeResult:
        source_rows = observed["source"] if self.path is Path.BLIND else compiled.source_rows
        if self.path is Path.BLIND and observed["undecided"]:
            raise _Undecided
        if source_rows == 0:
            self.plan.backend.discard(staged)
            return self._nothing("the source is empty", 0)
        if observed["rows"] == 0:
            self.plan.backend.discard(staged)
            why = "every row was stale" if observed["stale"] else "no clause applied to any row"
            return self._nothing(why, source_rows, observed)
        with self._timed("validate"):
            counts = self._validate(compiled, staged, observed)
        with self._timed("commit"):
            result = self._result(source_rows, observed, counts)
            version = self._commit(staged, observed, counts, result)
        return attrs.evolve(result, version=version.version, batches=len(version.batches), seconds=self.seconds)

    def _validate(self, compiled: Compiled, staged: Staged, observed: Observed) -> KeyCounts:
        """Refuses what must not be committed, in the order of the rules (S12, S25, S34)."""
        definition, clauses = self.plan.definition, self.plan.clauses
        rows = self.plan.backend.read_staged(staged)
        validation.check_observed(compiled.program, observed, rows, clauses)
        if observed["duplicates"]:
            validation.raise_duplicates(definition, rows, clauses, observed["duplicates"])
        counts = validation.count_keys(definition, rows, observed)
        if not counts.unique:
            validation.check_unambiguous(definition, rows, clauses)
        if observed["torn"]:
            validation.raise_torn(definition, rows, clauses)
        if observed["stale"] and self.plan.options.on_stale == "error":
            find = [f"{quote(k)} AS {reader.key_to_find(i)}" for i, k in enumerate(definition.primaryKey)]
            stale = rows.filter(validation.IS_STALE).selectExpr(*find)
            latest = reader.latest(self.plan.backend, Batches.of(self.snapshot), stale)
            validation.raise_stale(definition, rows, latest, observed["stale"])
        self._check_deletes(counts)
        return counts

    def _check_deletes(self, counts: KeyCounts) -> None:
        allowed = self.plan.options.max_delete_fraction
        if allowed is None or not counts.deleted:
            return
        live = reader.live(self.plan.backend, Batches.of(self.snapshot)).count()
        if counts.deleted > allowed * live:
            raise TooManyDeletesError(
                f"The merge would delete {counts.deleted:,} of {live:,} live rows, more than the allowed share of {allowed}. "
                "Nothing was written. Check the source, or raise maxDeleteFraction.",
                deletes=counts.deleted,
                live=live,
            )

    # Commit ---------------------------------------------------------------------------------------------------------

    def _result(self, source_rows: int | None, observed: Observed, counts: KeyCounts) -> MergeResult:
        blind, clauses = self._counts_unknown, len(self.plan.clauses)
        return MergeResult(
            version=self.snapshot.version,
            rowsInserted=None if blind else counts.inserted,
            rowsUpdated=None if blind else counts.updated,
            rowsDeleted=None if blind else counts.deleted,
            rowsStale=None if blind and self.plan.definition.watermarkKey else observed["stale"],
            rowsAppended=observed["rows"],
            rowsSource=source_rows,
            perClause=(None,) * clauses if blind else observed.per_clause(clauses),
            path=self.path.value,
        )

    def _commit(self, staged: Staged, observed: Observed, counts: KeyCounts, result: MergeResult) -> Snapshot:
        definition = self.plan.definition
        batch = Batch(
            id=staged.id,
            rows=observed["rows"],
            tombstones=observed["tombstones"],
            files=staged.files,
            bytes=staged.size_bytes,
            watermark_min=observed.watermark("min", definition),
            watermark_max=observed.watermark("max", definition),
            watermark_has_null=bool(observed["watermark_null"]),
            unique_keys=counts.unique,
            base=counts.unique and not self.snapshot.batches,
        )
        return self._publish_commit((batch,), _metrics(result))

    def _nothing(self, why: str, source_rows: int | None, observed: Observed | None = None) -> MergeResult:
        """The result of a merge without a batch; a transaction marker is recorded all the same (S37)."""
        version = self.snapshot
        if self.plan.options.transaction is not None:
            version = self._publish_commit((), {"rowsSource": source_rows})
        clauses = len(self.plan.clauses)
        per_clause = observed.per_clause(clauses) if observed and not self._counts_unknown else (0,) * clauses
        return MergeResult(
            version=version.version,
            rowsStale=observed["stale"] if observed else 0,
            rowsSource=source_rows,
            perClause=per_clause,
            path=self.path.value,
            skipped=why,
            seconds=self.seconds,
            batches=len(version.batches),
        )

    def _publish_commit(self, batches: tuple[Batch, ...], metrics: Mapping[str, Any]) -> Snapshot:
        """Commits; a batch that never read the target goes on top of whatever landed meanwhile (S35)."""
        base = self.snapshot
        commit = base.next_commit(
            "MERGE",
            parameters={"clauses": [describe(self.plan.clauses, i) for i in range(len(self.plan.clauses))]},
            added=batches,
            transaction=self.plan.options.transaction,
            metrics=metrics,
            user=current_user(),
            duration_ms=int(sum(self.seconds.values()) * 1000),
        )
        while True:
            try:
                self.committing = True
                return self.plan.backend.commit(commit, base)
            except ConcurrentCommitError:
                base = self.plan.backend.snapshot()
                if self.path is not Path.BLIND or base.definition_version != self.snapshot.definition_version:
                    raise
                if _already_done(self.plan, base) is not None:
                    raise
                commit = base.rebase(commit)

    # Around ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start

    @contextmanager
    def _merge_errors(self) -> Iterator[None]:
        """Spark's errors about a user's expression become errors of the merge, with Spark's text."""
        try:
            yield
        except Exception as error:
            if not is_sparks(error):
                raise
            # Where a Python function failed, its traceback is the news; all others are the JVM's.
            cause = error if isinstance(error, PythonException) else None
            raise InvalidMergeError(
                f"The merge could not be evaluated: {spark_text(error)} Nothing was written."
            ) from cause


def _metrics(result: MergeResult) -> dict[str, Any]:
    names = ("rowsInserted", "rowsUpdated", "rowsDeleted", "rowsStale", "rowsAppended", "rowsSource", "path")
    return {n: getattr(result, n) for n in names}
