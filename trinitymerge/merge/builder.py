"""The chain of calls that describes a merge, and its shorthands (S17-S28)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
from pyspark.sql import Column, DataFrame

from trinitymerge import _format
from trinitymerge.errors import InvalidMergeError
from trinitymerge.log.commit import MicroBatch
from trinitymerge.log.reporting import Listener
from trinitymerge.merge.compile.strategies import MergeStrategy
from trinitymerge.merge.execute.executor import already_done
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.execute.planner import plan_of
from trinitymerge.merge.execute.request import MergeSpec, Quarantine, Transaction
from trinitymerge.merge.model.arguments import (
    ExpressionMap,
    all_of_source,
    assignments_of,
    condition_of,
    table_of,
    watermark_of,
)
from trinitymerge.merge.model.clauses import (
    Action,
    All,
    Clause,
    Delete,
    Insert,
    InsertHistory,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
    allowed_actions,
    check_actions,
    check_clauses,
    check_reachable,
    condition_text,
    describe,
    heading,
)
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.spark.conf import with_session_settings

HISTORY_CALLS = ("insertHistoryExpr", "insertHistoryTableExpr")
"""Both names of the action."""

_Next = TypeVar("_Next", bound="MergeBuilder")

_ACTIONS = ("updateExpr", "updateAll", "delete", "insertExpr", "insertAll", *HISTORY_CALLS)

_DELTA_CALLS = {
    "whenMatchedUpdate": "whenMatched(condition).updateExpr(map)",
    "whenMatchedUpdateAll": "whenMatched(condition).updateAll()",
    "whenMatchedDelete": "whenMatched(condition).delete()",
    "whenNotMatchedInsert": "whenNotMatched(condition).insertExpr(map)",
    "whenNotMatchedInsertAll": "whenNotMatched(condition).insertAll()",
    "whenNotMatchedBySourceUpdate": "whenNotMatchedBySource(condition).updateExpr(map)",
    "whenNotMatchedBySourceDelete": "whenNotMatchedBySource(condition).delete()",
}
"""The calls that Delta Lake has for the same clauses."""


@attrs.frozen(eq=False, repr=False)
class MergeBuilder:
    """A merge of a source into a table, clause by clause (CarbonData, merge guide; S17-S37).

    Source rows are paired with *live* target rows by the merge condition. Then

    - for each pair, the ``whenMatched`` clauses are tried in the order given, and the first whose condition is true
      applies; if none is, the target row stays as it is (S17);
    - for each source row without a pair, the ``whenNotMatched`` clauses in the same way (S18);
    - for each live target row without a pair, the ``whenNotMatchedAndExistsOnlyOnTarget`` clauses in the same way (S19).

    A null condition is not true (S20): ``A.x <> B.x`` misses changes from and to null, ``NOT (A.x <=> B.x)`` does not.
    Conditions and values are SQL text or Columns over the target's and the source's
    alias (by default ``target`` and ``source``); a plain Python None, bool, number, date, datetime or Decimal is a
    literal as a value, a ``str`` is always SQL.

    The clauses write one append batch: new rows and tombstones, each with a watermark. A written row's
    watermark comes from the clause's map, the source column of the same name, ``at()``, or the row it replaces (S10). Rows
    older than what they would replace have no effect on readers (S11), and an update or delete that comes too late takes the
    inserts of its clause with it (S21a). Two different rows for one key with equal watermarks are refused (S12). Nothing is
    written before ``execute()``.

    Steps return new builders; a builder can be shared and extended in several ways.

    Example:
        >>> source = spark.sql("SELECT * FROM VALUES ('1', 7.5, timestamp'2024-01-02', 'U'), "
        ...                    "('9', 1.0, timestamp'2024-01-02', 'I') AS t(order_id, amount, ts, op)")
        >>> result = (orders.alias("A").merge(source.alias("B"), "A.order_id = B.order_id")
        ...     .whenMatched("B.op = 'D'").delete()
        ...     .whenMatched("NOT (A.amount <=> B.amount)").updateExpr({"amount": "B.amount", "ts": "B.ts"})
        ...     .whenNotMatched("B.op <> 'D'").insertExpr({"order_id": "B.order_id", "amount": "B.amount", "ts": "B.ts"})
        ...     .execute())
        >>> result.rowsUpdated, result.rowsInserted, result.rowsDeleted
        (1, 1, 0)
    """

    _spec: MergeSpec

    # Clauses --------------------------------------------------------------------------------------------------------

    def whenMatched(self, condition: str | Column | None = None) -> MatchedClause:
        """Begin a clause for pairs of a source row and a live target row (S17).

        Args:
            condition: boolean SQL text or Column over both sides; None means always.

        Returns:
            The clause, to be given ``updateExpr``, ``updateAll``, ``delete`` or ``insertExpr``.

        Raises:
            InvalidMergeError: an earlier clause of this kind has no condition, so this one could never run (S28).
        """
        return MatchedClause(self, WhenMatched(condition_of(condition)))

    def whenNotMatched(self, condition: str | Column | None = None) -> NotMatchedClause:
        """Begin a clause for source rows without a pair (S18). It sees the source alone (S30).

        Args:
            condition: boolean SQL text or Column; None means always.

        Returns:
            The clause, to be given ``insertExpr`` or ``insertAll``.

        Raises:
            InvalidMergeError: an earlier clause of this kind has no condition (S28).
        """
        return NotMatchedClause(self, WhenNotMatched(condition_of(condition)))

    def whenNotMatchedAndExistsOnlyOnTarget(self, condition: str | Column | None = None) -> TargetOnlyClause:
        """Begin a clause for live target rows without a pair (S19). It sees the target alone (S30).

        Args:
            condition: boolean SQL text or Column; None means always.

        Returns:
            The clause, to be given ``delete``, ``updateExpr`` or ``insertExpr``.

        Raises:
            InvalidMergeError: an earlier clause of this kind has no condition (S28).
        """
        return TargetOnlyClause(self, WhenOnlyOnTarget(condition_of(condition)))

    whenNotMatchedBySource = whenNotMatchedAndExistsOnlyOnTarget

    # Settings -------------------------------------------------------------------------------------------------------

    def withTransaction(self, appId: str, version: int, source: str | None = None) -> MergeBuilder:
        """Make the merge happen once: it does nothing if the table has committed this version for ``appId`` (S36).

        Args:
            appId: the writer's stable name.
            version: grows with every merge of that writer, for instance the micro-batch id.
            source: the id of the table whose versions these are, from ``changesSince()``; recorded, so that a
                table that took its place is noticed (S41).
        """
        if isinstance(version, bool) or not isinstance(version, int) or not isinstance(appId, str) or not appId:
            raise InvalidMergeError(f"withTransaction takes a name and a whole number, got {appId!r} and {version!r}.")
        return self._with(transaction=Transaction(appId, version, source))

    def onStale(self, policy: str) -> MergeBuilder:
        """Set how the merge treats rows older than the rows they would replace (S11).

        Args:
            policy: ``"skip"`` (the default) lets them lose, ``"error"`` refuses the merge, ``"force"`` lets them win.
        """
        if policy not in ("skip", "error", "force"):
            raise InvalidMergeError(f"onStale takes 'skip', 'error' or 'force', got {policy!r}.")
        return self._with(on_stale=policy)

    def at(self, *watermark: Any) -> MergeBuilder:
        """Set the watermark of rows that get none from a map or the source: the time of the change (S10, H2a).

        Args:
            watermark: a value for each watermark column (SQL text, a Column, or a plain Python literal), or a tuple of them.

        Example:
            >>> orders.deleteWhere("amount > 9").at("timestamp'2024-05-01'").execute().rowsDeleted
            1
        """
        return self._with(at=watermark_of("at", watermark, self._spec.feed.call))

    def withSchemaEvolution(self) -> MergeBuilder:
        """Add the source's new columns to the table in the merge's commit (S44).

        Columns that ``updateAll`` and ``insertAll`` would leave out (S22a), and source columns that a map assigns, are added at the
        end, and fields at the end of structs. Types become wider where no value changes, except those of keys. Nothing is
        narrowed, renamed or dropped. A column that the source lacks keeps its value on update, and is null on insert. A merge that
        appends nothing alters nothing.

        Feeds follow their source, too: ``applyChanges`` adds what it would leave out with a warning, so nothing that
        ``exceptColumns`` names or a condition mentions, and what ``columns`` names; ``snapshot`` adds every column of the extract.

        Example:
            >>> source = spark.sql("SELECT '3' AS order_id, 1.0 AS amount, timestamp'2024-01-02' AS ts, 'web' AS channel")
            >>> result = (orders.merge(source).whenMatched().updateAll().whenNotMatched().insertAll()
            ...     .withSchemaEvolution().execute())
            >>> result.columnsAdded
            ('column channel string is added',)
            >>> orders.toDF().filter("order_id = '3'").select("amount", "channel").collect()
            [Row(amount=Decimal('1.00'), channel='web')]
        """
        return self._with(schema_evolution=True)

    def maxDeleteFraction(self, fraction: float) -> MergeBuilder:
        """Refuse the merge if it would delete more than a share of the live rows (S37).

        A late extract (``snapshot`` of a table with history) is measured by the rows that hold at its moment.

        Args:
            fraction: from 0 to 1.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise InvalidMergeError(f"maxDeleteFraction takes a number from 0 to 1, got {fraction!r}.")
        return self._with(max_delete_fraction=float(fraction))

    def quarantine(self, table: Any, maxFraction: float | None = None) -> MergeBuilder:
        """Put source rows into a quarantine table that would otherwise refuse the merge (S47).

        These are rows with a null key, a null in a NOT NULL column, a value that does not fit, or a broken constraint; stale rows
        under ``onStale("error")``; different rows of one key with equal watermarks; and messages that a feed rejects. All other
        rows are merged. The same commit records both, so no row is lost or delivered twice.

        The merge evaluates its rows once more than without a quarantine. A merge that changes primary keys still refuses rows that
        break a rule.

        Args:
            table: made by ``TrinityTable.createQuarantine``. Several tables can share one.
            maxFraction: from 0 to 1, the share of the source's rows that may go there. Default: any.

        Raises:
            InvalidMergeError: the table is not a quarantine table, or the fraction is not a number from 0 to 1.

        Example:
            >>> rejected = TrinityTable.createQuarantine(spark, f"{tmp_path}/rejected")
            >>> source = spark.sql("SELECT * FROM VALUES ('3', '7.5'), ('4', 'x') AS t(order_id, amount)")
            >>> source = source.selectExpr("*", "timestamp'2024-01-02' AS ts")
            >>> result = orders.merge(source).whenNotMatched().insertAll().quarantine(rejected).execute()
            >>> result.rowsInserted, result.quarantined
            (1, {'type:amount': 1})
            >>> rejected.toDF().select("reason", "clause").collect()
            [Row(reason='type:amount', clause=1)]
        """
        if maxFraction is not None and (
            isinstance(maxFraction, bool) or not isinstance(maxFraction, (int, float)) or not 0 <= maxFraction <= 1
        ):
            raise InvalidMergeError(f"quarantine: maxFraction takes a number from 0 to 1, got {maxFraction!r}.")
        return self._with(quarantine=Quarantine(table_of("quarantine", table), maxFraction))

    def withCounts(self) -> MergeBuilder:
        """Count everything in the result (S30b): a merge that could append blindly then looks up the keys it writes.

        Feeds that read what their keys hold count without it: ``snapshot``, unless a table with history has rows of a later moment,
        and ``applyChanges`` with ``ignoreNullUpdates``.

        Example:
            >>> orders.upsert(orders.toDF()).execute().rowsUpdated is None
            True
            >>> orders.upsert(orders.toDF()).withCounts().execute().rowsUpdated
            2
        """
        return self._with(counts=True)

    def onProgress(self, listener: Listener) -> MergeBuilder:
        """Call a function at the start and the end of each phase of the merge, in the thread that runs it.

        An error of the function is logged once and does not affect the merge. ``trinitymerge.progress()`` shows a bar instead.

        Args:
            listener: takes a :class:`~trinitymerge.Progress`.

        Example:
            >>> merge = orders.upsert(orders.toDF()).onProgress(lambda p: print(p.phase, "done" if p.isDone else "..."))
            >>> _ = merge.execute()
            source ...
            source done
            write ...
            write done
            validate ...
            validate done
            commit ...
            commit done
        """
        return self._with(listeners=(*self._spec.settings.listeners, listener))

    def withComment(self, text: str) -> MergeBuilder:
        """Add a comment to the parameters of the merge in ``history()`` (S36b).

        The log keeps it forever, also after a purge: do not name people in it.

        Args:
            text: why the merge is made, or by which run of which job.

        Example:
            >>> _ = orders.deleteWhere("amount < 6").withComment("ticket 17").execute()
            >>> orders.history().selectExpr("get_json_object(parameters, '$.comment') AS comment").first()
            Row(comment='ticket 17')
        """
        if not isinstance(text, str) or not text:
            raise InvalidMergeError(f"withComment takes text, got {text!r}.")
        return self._with(comment=text)

    def _of_stream(self, batch: MicroBatch) -> MergeBuilder:
        """Return the merge of a micro-batch: a transaction that is refused if its stream starts over (S36a)."""
        return self._with(transaction=Transaction(batch.app_id, batch.number, stream=batch))

    def _with_strategy(self, strategy: MergeStrategy) -> MergeBuilder:
        """Return the merge with a sound strategy instead of the cheapest: for tests of S31."""
        return self._with(strategy=strategy)

    def _evolve(self, **changed: Any) -> MergeBuilder:
        return MergeBuilder(attrs.evolve(self._spec, **changed))

    def _with(self, **settings: Any) -> MergeBuilder:
        return MergeBuilder(self._spec.with_settings(**settings))

    def _of_call(self, **facts: Any) -> MergeBuilder:
        """Return the merge with facts of the call that made it."""
        return MergeBuilder(self._spec.with_feed(**facts))

    def __repr__(self) -> str:
        """Return the clauses, or the feed's call, and that nothing has been executed."""
        spec, note = self._spec, "that has not been executed: call execute(), or build() to look closer"
        if spec.derive is not None:
            return f"{spec.feed.call} on {spec.store.path} {note}"
        lines = [f"Merge{'' if spec.source is None else ' of a source'} into {spec.store.path} {note}"]
        for position, clause in enumerate(spec.clauses):
            if clause.call and position and clause.call == spec.clauses[position - 1].call:
                continue  # one call of two clauses
            actions = "".join(f".{action.outline}" for action in clause.actions)
            lines.append(f"  {position + 1}. {clause.call or heading(clause) + actions}")
        return "\n".join(lines if spec.clauses else [*lines, "  no clause yet"])

    # Running --------------------------------------------------------------------------------------------------------

    @with_session_settings
    def build(self) -> MergePlan:
        """Analyze the merge and plan how it reads its target (S28-S30).

        No job runs, except for feeds whose rows decide which clauses the merge has: ``applyChanges`` of messages, or with
        ``applyAsTruncates`` or ``movedFrom``, and ``snapshot``. A quarantine runs one if text is compared with a key of another
        type.

        Returns:
            The plan, with ``explain()``, ``preview()`` and ``execute()``.

        Raises:
            InvalidMergeError: unknown or ambiguous names, missing assignments, conditions that are not boolean.
            SchemaMismatchError: a value whose type cannot be stored in its column.
        """
        if self._spec.derive is None:
            check_clauses(self._spec.clauses)
        return plan_of(self._spec, self._spec.store.snapshot())

    if not TYPE_CHECKING:  # to a type checker every name would exist

        def __getattr__(self, name: str) -> NoReturn:
            if name not in _ACTIONS:
                known = f": a clause is {_DELTA_CALLS[name]}" if name in _DELTA_CALLS else ""
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{known}")
            clauses = self._spec.clauses
            before = f"{describe(clauses, len(clauses) - 1)}, is complete" if clauses else "there is no clause yet"
            raise MisplacedCallError(
                f"{name}() is an action of a clause, and {before}: begin one with whenMatched(...), whenNotMatched(...) or "
                "whenNotMatchedAndExistsOnlyOnTarget(...) first."
            )

    def preview(self) -> DataFrame:
        """Return the rows the merge would append; writes nothing. See ``MergePlan.preview``."""
        return self.build().preview()

    def explain(self, evaluate: bool = False) -> _format.Text:
        """Return what the merge will do, with which strategy and why, as text. See ``MergePlan.explain``."""
        return self.build().explain(evaluate)

    def execute(self) -> MergeResult:
        """Run the merge as one atomic append (S33-S37).

        Returns:
            The counts, version and strategy of the merge.

        Raises:
            InvalidMergeError, SchemaMismatchError: as ``build``, or a value that does not fit when the merge runs.
            NullKeyError, DuplicateKeyError, AmbiguousMergeError, StaleRowsError, TooManyDeletesError: the batch was
                refused; nothing was written.
            ConstraintError: rows break a rule of the table's (S45); nothing was written.
            ConcurrentCommitError, FilesVacuumedError: other writers committed first, or took files, each time.
            PendingHistoryInsertsError: what earlier merges owe to other tables cannot be written (S27).
            StorageError: a file cannot be read or written.
            OSError: the storage has failed during the commit and cannot say whether it took place (:meth:`withTransaction` makes
                it safe to merge again).
        """
        spec = self._spec
        if spec.derive is not None:  # a replay does not evaluate the source
            done = already_done(spec.settings.transaction, spec.store.snapshot(), spec.store.path)
            if done is not None:
                spec.pre_attempt_hook(spec.store)
                return done
        return self.build().execute()


class MisplacedCallError(InvalidMergeError, AttributeError):
    """A method that exists, but not here; an AttributeError, so that ``hasattr`` and notebooks can probe a chain."""


@attrs.frozen(eq=False, repr=False)
class _ClauseStart:
    """A clause that has no action yet."""

    _builder: MergeBuilder
    _clause: Clause

    def __attrs_post_init__(self) -> None:
        spec = self._builder._spec
        if spec.derive is not None:
            raise InvalidMergeError(f"{spec.feed.call} defines its clauses and takes no others.")
        clauses = (*spec.clauses, self._clause)
        check_reachable(clauses, len(clauses) - 1)

    def __repr__(self) -> str:
        """Return the clause, what it lacks, and the merge it belongs to."""
        position = len(self._builder._spec.clauses) + 1
        return f"{self._builder!r}\n  {position}. {heading(self._clause)} has no action: add {allowed_actions(self._clause)}"

    def _then(self, action: Action, kind: Callable[..., _Next]) -> _Next:
        clauses = (*self._builder._spec.clauses, attrs.evolve(self._clause, actions=(action,)))
        check_actions(clauses, len(clauses) - 1)
        return kind(attrs.evolve(self._builder._spec, clauses=clauses))

    if not TYPE_CHECKING:  # to a type checker every name would exist

        def __getattr__(self, name: str) -> NoReturn:
            clauses = (*self._builder._spec.clauses, self._clause)
            where = describe(clauses, len(clauses) - 1)
            if hasattr(MergeBuilder, name) and not name.startswith("_"):
                raise MisplacedCallError(
                    f"{where}, has no action: give it one before {name}(), e.g. {allowed_actions(self._clause)}."
                )
            if name in _ACTIONS:
                raise MisplacedCallError(f"{where}, cannot have {name}(); it takes {allowed_actions(self._clause)}.")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class NotMatchedClause(_ClauseStart):
    """The clause of ``whenNotMatched()``, which takes exactly one insert (S21)."""

    def insertExpr(self, values: ExpressionMap) -> MergeBuilder:
        """Insert a row made from the map; columns not mentioned have their default, or are null (S23).

        Args:
            values: a map, or a list of pairs, from column name or Column to expression.
        """
        return self._then(Insert(assignments_of("insertExpr", values)), MergeBuilder)

    def insertAll(self, exceptColumns: Iterable[str] = (), columns: Iterable[str] | None = None) -> MergeBuilder:
        """Insert every target column from the source column of the same name (S23).

        Args:
            exceptColumns: target columns to leave out: they have their default, or are null.
            columns: take only these, and the primary key.
        """
        return self._then(Insert(all_of_source("insertAll", exceptColumns, columns)), MergeBuilder)


class TargetOnlyClause(_ClauseStart):
    """The clause of ``whenNotMatchedAndExistsOnlyOnTarget()``."""

    def updateExpr(self, values: ExpressionMap, onlyIfChanged: bool = False) -> TargetActions:
        """Change only the columns in the map (S22).

        Args:
            values: a map, or a list of pairs, from column name, dotted struct path or Column to expression.
            onlyIfChanged: leave out updates that would change nothing, the watermark apart (S22b).
        """
        return self._then(Update(assignments_of("updateExpr", values), bool(onlyIfChanged)), TargetActions)

    def delete(self) -> TargetActions:
        """Delete the target row, by a tombstone (S9)."""
        return self._then(Delete(), TargetActions)

    def insertExpr(self, values: ExpressionMap) -> TargetActions:
        """Insert a row made from the map; columns not mentioned have their default, or are null (S23).

        Args:
            values: a map, or a list of pairs, from column name or Column to expression.
        """
        return self._then(Insert(assignments_of("insertExpr", values)), TargetActions)


class MatchedClause(TargetOnlyClause):
    """The clause of ``whenMatched()``."""

    def updateAll(
        self,
        exceptColumns: Iterable[str] = (),
        columns: Iterable[str] | None = None,
        onlyIfChanged: bool = False,
        ignoreNulls: bool | Iterable[str] = False,
    ) -> TargetActions:
        """Take every target column from the source column of the same name (S22).

        Args:
            exceptColumns: target columns that keep their value.
            columns: take only these; the others keep their value.
            onlyIfChanged: leave out updates that would change nothing, the watermark apart (S22b).
            ignoreNulls: true, or columns: where the source has null, the stored value stays.
        """
        values = all_of_source("updateAll", exceptColumns, columns, ignoreNulls)
        return self._then(Update(values, bool(onlyIfChanged)), TargetActions)


class TargetActions(MergeBuilder):
    """A builder whose last clause may be given more inserts: the slowly-changing-dimension shape (S21), and S27's."""

    def insertExpr(self, values: ExpressionMap) -> TargetActions:
        """Insert a row in addition to the clause's other actions (S21, S23; CarbonData, ``updateExpr(u).insertExpr(i)``).

        Args:
            values: a map, or a list of pairs, from column name or Column to expression.
        """
        return self._and(Insert(assignments_of("insertExpr", values)))

    def updateExpr(self, values: ExpressionMap, onlyIfChanged: bool = False) -> TargetActions:
        """Change the target row in addition to the clause's inserts (S22).

        Args:
            values: a map, or a list of pairs, from column name, dotted struct path or Column to expression.
            onlyIfChanged: leave out updates that would change nothing, the watermark apart (S22b).
        """
        return self._and(Update(assignments_of("updateExpr", values), bool(onlyIfChanged)))

    def delete(self) -> TargetActions:
        """Delete the target row in addition to the clause's inserts (S9)."""
        return self._and(Delete())

    def insertHistoryExpr(self, values: ExpressionMap, table: Any) -> TargetActions:
        """Insert a row into another table for each target row that the clause's update or delete replaces (S27; CarbonData).

        In the map a name without an alias is the target row's *before* it is replaced; under the target's alias it is the
        same, under the source's the source row's. A change that comes too late (S11) replaces nothing, and writes no such row.

        The merge and its history inserts are committed exactly once, or neither is. This table stores the rows until they are in
        the other table, right after the commit. If the process dies between, the next writer of this table writes them.
        The other table keeps the row with the largest watermark of each key. To keep every row, give it a primary key that
        differs for each row, such as the key and the watermark of the row before.

        Args:
            values: a map, or a list of pairs, from column of the other table to expression. It must assign the other table's
                primary key, its watermark, and what cannot be null there; other columns have their default, or are null.
            table: a ``TrinityTable``; a plain Spark table becomes one by ``TrinityTable.convert``.

        Example:
            >>> past = TrinityTable.create(spark, f"{tmp_path}/past", "order_id STRING, amount DECIMAL(10,2), until TIMESTAMP",
            ...     primaryKey=["order_id", "until"])
            >>> late = spark.sql("SELECT '1' AS order_id, 7.5 AS amount, timestamp'2024-02-01' AS ts")
            >>> result = (orders.merge(late.alias("B"), "target.order_id = B.order_id")
            ...     .whenMatched("target.amount <> B.amount").updateExpr({"amount": "B.amount", "ts": "B.ts"})
            ...     .insertHistoryExpr({"order_id": "order_id", "amount": "amount", "until": "B.ts"}, past)
            ...     .execute())
            >>> result.rowsUpdated, result.rowsHistory, past.toDF().select("order_id", "amount").collect()
            (1, 1, [Row(order_id='1', amount=Decimal('5.00'))])
        """
        call = HISTORY_CALLS[0]
        return self._and(InsertHistory(assignments_of(call, values), table_of(call, table)))

    insertHistoryTableExpr = insertHistoryExpr

    def _and(self, action: Action) -> TargetActions:
        *before, last = self._spec.clauses
        clauses = (*before, attrs.evolve(last, actions=(*last.actions, action)))
        check_actions(clauses, len(clauses) - 1)
        return TargetActions(attrs.evolve(self._spec, clauses=clauses))


def upsert(merge: MergeBuilder, values: All, onlyIfChanged: bool) -> MergeBuilder:
    matched = WhenMatched(None, [Update(values, bool(onlyIfChanged))])
    not_matched = WhenNotMatched(None, [Insert(attrs.evolve(values, ignoreNulls=False))])
    return _with(merge, f"upsert({values.shown})", matched, not_matched)


def update(merge: MergeBuilder, values: All, onlyIfChanged: bool) -> MergeBuilder:
    return _with(merge, f"update({values.shown})", WhenMatched(None, [Update(values, bool(onlyIfChanged))]))


def delete(merge: MergeBuilder) -> MergeBuilder:
    return _with(merge, "delete()", WhenMatched(None, [Delete()]))


def insert(merge: MergeBuilder) -> MergeBuilder:
    return _with(merge, "insert()", WhenNotMatched(None, [Insert(All())]))


def update_where(merge: MergeBuilder, condition: Any, values: ExpressionMap) -> MergeBuilder:
    if condition is not None:
        _check("updateWhere", condition)
    call = f"updateWhere({'' if condition is None else condition_text(condition)})"
    return _with(merge, call, WhenOnlyOnTarget(condition, [Update(assignments_of("updateWhere", values))]))


def delete_where(merge: MergeBuilder, condition: Any) -> MergeBuilder:
    if condition is None:
        raise InvalidMergeError(
            'deleteWhere takes a condition, got None, which would delete every row. If that is meant, say deleteWhere("true").'
        )
    _check("deleteWhere", condition)
    return _with(merge, f"deleteWhere({condition_text(condition)})", WhenOnlyOnTarget(condition, [Delete()]))


def _check(call: str, condition: Any) -> None:
    if not isinstance(condition, (str, Column)):
        raise InvalidMergeError(
            f"{call} takes a condition as SQL text or a Column, got {type(condition).__name__} ({condition!r})."
        )


def _with(merge: MergeBuilder, call: str, *clauses: Clause) -> MergeBuilder:
    return merge._evolve(clauses=tuple(attrs.evolve(c, call=call) for c in clauses))
