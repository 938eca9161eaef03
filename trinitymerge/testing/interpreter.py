"""The semantics of trinitymerge as a program: slow, obvious, and without Spark.

Owns: :class:`ModelTable`, a table as a log of batches of plain ``dict`` rows, read by resolution (S13) and
changed by the same frozen clauses that the merge builder makes. It says what a merge means, not how to do it
fast. Numbers such as S13 are the rules of the semantics page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs

from trinitymerge.definition import TableDefinition
from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    TableAction,
    Update,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.testing.changes import Key, Outcome
from trinitymerge.testing.checks import Names, assigned_watermark, check_merge, check_versions_are_kept
from trinitymerge.testing.evaluation import Evaluation
from trinitymerge.testing.events import Event
from trinitymerge.testing.expressions import KeyEquality, Row
from trinitymerge.testing.feeding import Feeding
from trinitymerge.testing.firsts import firsts
from trinitymerge.testing.netchanges import Latest
from trinitymerge.testing.owed import merge_owed
from trinitymerge.testing.results import ModelResult
from trinitymerge.testing.rows import RowRules
from trinitymerge.testing.values import alive_value, order_keys, store


@attrs.define
class ModelTable(Feeding):
    """A table in memory that obeys the semantics to the letter.

    Attributes:
        definition: columns and keys.
        batches: one tuple of stored rows per version, oldest first; version 0 is the empty table. A stored
            row has every column of ``definition.stored_fields``.
        transactions: the latest committed version per application (S36).
        commitTime: what tombstones of date and timestamp type hold (S9).
        times: when each version was committed; a second after the one before, from ``commitTime`` on, where it is
            left out. It is the time of versions in a table that declares no watermark (H2).
        snapshots: the moment of the snapshot that a version took (H11).
        checks: by their names, the constraints (S45) as functions of a row: true, false, or None for null. Those of the
            definition are SQL, for Spark only.

    Example:
        >>> from trinitymerge.definition import Field, TableDefinition
        >>> columns = [Field("id", "long"), Field("ts", "long")]
        >>> table = ModelTable(TableDefinition.of(columns, primaryKey="id", watermarkKey="ts"))
        >>> table.commit([{"id": 1, "ts": 100}, {"id": 1, "ts": 200}])
        1
        >>> table.live()
        [{'id': 1, 'ts': 200}]
    """

    definition: TableDefinition
    batches: list[tuple[Row, ...]] = attrs.field(factory=list)
    transactions: dict[str, int] = attrs.field(factory=dict)
    commitTime: dt.datetime = dt.datetime(2000, 1, 1)
    times: dict[int, dt.datetime] = attrs.field(factory=dict)
    snapshots: dict[int, Any] = attrs.field(factory=dict)
    checks: dict[str, Callable[[Row], bool | None]] = attrs.field(factory=dict)

    def copy(self) -> ModelTable:
        """An independent table with the same history."""
        return self.at(self.version)

    @classmethod
    def _with_rows(cls, definition: TableDefinition, rows: tuple[Row, ...]) -> ModelTable:
        return cls(definition, [rows] if rows else [])

    # Writing and reading ------------------------------------------------------------------------------------

    def commit(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Appends one batch as it is, as any writer of the format could (S8).

        Args:
            rows: columns left out are null; a tombstone column left out says "alive". The hidden tombstone
                column is called ``_tm_deleted``.

        Returns:
            The batch's version (S6).

        Raises:
            SchemaMismatchError: a value does not fit its column (S29), or a key is null.
        """
        tombstone = self.definition.tombstone_column
        filled = [{tombstone: alive_value(self.definition), **row} for row in rows]
        fields = self.definition.stored_fields
        self.batches.append(tuple({f.name: store(f, row.get(f.name)) for f in fields} for row in filled))
        return self.version

    def latest(self, key: Any) -> Row | None:
        """The row with the largest effective watermark for a key, dead or alive (S6, S13, S15).

        Args:
            key: the key's value, or a tuple of values for a composite key.

        Returns:
            The stored row, or None if the key has never been written.
        """
        found = self._latest(key if isinstance(key, tuple) else (key,))
        return found.row if found else None

    def _latest(self, key: Key) -> Latest | None:
        return self.state(of=key).get(key)

    def live(self) -> list[Row]:
        """The rows a reader sees, in key order, without the hidden column (S13)."""
        return [{name: row[name] for name in self.definition.names} for row in self._live_stored().values()]

    def _live_stored(self) -> dict[tuple[Any, ...], Row]:
        rules = RowRules(self.definition)
        keys = {rules.key(row) for batch in self.batches for row in batch}
        latest = {key: self.latest(key) for key in sorted(keys, key=order_keys)}
        return {key: row for key, row in latest.items() if row is not None and not rules.is_tombstone(row)}

    def at(self, version: int) -> ModelTable:
        """The table as it was at a version (S40)."""
        taken = {number: at for number, at in self.snapshots.items() if number <= version}
        return attrs.evolve(
            self,
            batches=self.batches[:version],
            transactions=dict(self.transactions),
            times=dict(self.times),
            snapshots=taken,
        )

    def time(self, version: int) -> dt.datetime:
        """When a version was committed."""
        return self.times.get(version, self.commitTime + dt.timedelta(seconds=version))

    def alter(self, definition: TableDefinition) -> int:
        """Changes the columns (S43): every row is as if it had been written with the new ones.

        Args:
            definition: the new one; columns are the same if they were stored under the same name first.

        Returns:
            The version that does so.
        """
        changed = self._with_definition(definition)
        self.batches, self.definition = [*changed.batches, ()], definition
        return self.version

    def _with_definition(self, definition: TableDefinition) -> ModelTable:
        was = {field.first_stored_as: field.name for field in self.definition.stored_fields}

        def changed(row: Row) -> Row:
            same = {f: was.get(f.first_stored_as) for f in definition.stored_fields}
            return {f.name: None if old is None else store(f, row[old]) for f, old in same.items()}

        return attrs.evolve(
            self.copy(), definition=definition, batches=[tuple(map(changed, batch)) for batch in self.batches]
        )

    # Merging ------------------------------------------------------------------------------------------------

    def merge(
        self,
        source: Sequence[Mapping[str, Any]],
        clauses: Iterable[Clause],
        condition: Any = None,
        *,
        sourceColumns: Iterable[str] | None = None,
        onStale: str = "skip",
        maxDeleteFraction: float | None = None,
        transaction: tuple[str, int] | None = None,
        targetAlias: str = "target",
        at: Any = None,
    ) -> ModelResult:
        """Merges plain rows into the table; see the semantics page, sections 4 and 5.

        Args:
            source: rows with the same columns each.
            clauses: in the order of the chain; their expressions are ``Expr``, callables
                ``f(target_row, source_row)`` (an absent side is None), or literals.
            condition: which pairs match; None is equality on the primary key by name, and a
                :class:`KeyEquality` is known to be exactly key equality.
            sourceColumns: the source's columns, where they cannot be taken from its first row.
            onStale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
            maxDeleteFraction: share of the live rows that may be deleted (S37).
            transaction: application and version, for exactly-once (S36).
            targetAlias: may qualify the keys of maps.
            at: the watermark of written rows where neither clause nor source decides (H2a); a tuple, if it is composite.

        Returns:
            What happened.

        Raises:
            TrinityMergeError: the error the rules call for; the table is unchanged then (S34).
        """
        columns = tuple(sourceColumns or (source[0] if source else self.definition.names))
        names = Names(self.definition, targetAlias, columns)
        if condition is None:
            condition = KeyEquality.of(self.definition, columns=names.source_key())
        rows = [dict(row) for row in source]
        return self._run(names, rows, tuple(clauses), condition, onStale, maxDeleteFraction, transaction, at)

    def _merge_events(self, events: list[Event], columns: Iterable[str] | None = None, **options: Any) -> ModelResult:
        known = [*Event({}).source, *(self.definition.names if columns is None else columns)]
        rows = [{n: event.source[n] for n in known} for event in events]
        return self.merge(rows, Event.clauses, sourceColumns=known, **options)

    def insert(
        self,
        source: Sequence[Mapping[str, Any]],
        deduplicate: bool = False,
        orderBy: Callable[[Mapping[str, Any]], Any] | None = None,
        **options: Any,
    ) -> ModelResult:
        """Inserts rows (S25); ``options`` as in :meth:`merge`.

        Args:
            source: the rows.
            deduplicate: leave out rows whose key is live.
            orderBy: and of those with equal key and watermark all but the first, by what this makes of a row (S12a).
            **options: of :meth:`merge`.
        """
        if orderBy is not None and not deduplicate:
            raise InvalidMergeError("insert: orderBy says which row deduplicate=True takes.")
        rows = source if orderBy is None else firsts(self._names(source, None), source, orderBy)
        return self.merge(rows, [WhenNotMatched(None, [Insert(All())])], None if deduplicate else False, **options)

    def updateWhere(self, condition: Any, values: Mapping[str, Any], **options: Any) -> ModelResult:
        """Updates live rows without a source; ``options`` as in :meth:`merge`."""
        return self._without_source(condition, Update(Assignments(values)), **options)

    def deleteWhere(self, condition: Any, **options: Any) -> ModelResult:
        """Deletes live rows without a source; ``options`` as in :meth:`merge`."""
        return self._without_source(condition, Delete(), **options)

    def _without_source(
        self,
        condition: Any,
        action: TableAction,
        onStale: str = "skip",
        maxDeleteFraction: float | None = None,
        transaction: tuple[str, int] | None = None,
        targetAlias: str = "target",
        at: Any = None,
    ) -> ModelResult:
        names, actions = Names(self.definition, targetAlias, ()), cast(Any, (action,))
        clause = WhenOnlyOnTarget(condition, actions)
        return self._run(names, None, (clause,), False, onStale, maxDeleteFraction, transaction, at)

    def _run(
        self,
        names: Names,
        source: list[Row] | None,
        clauses: tuple[Clause, ...],
        condition: Any,
        on_stale: str,
        max_delete_fraction: float | None,
        transaction: tuple[str, int] | None,
        at: Any,
    ) -> ModelResult:
        check_merge(names, clauses)  # S28
        assigned = assigned_watermark(self.definition, at)
        if self.definition.history and on_stale != "force":
            check_versions_are_kept(names, clauses, assigned)  # H2a
        nothing = ModelResult(self.version, perClause=(0,) * len(clauses), rows=tuple(self.live()))
        if transaction and self.transactions.get(transaction[0], transaction[1] - 1) >= transaction[1]:  # S36
            return attrs.evolve(nothing, skipped="the transaction is committed already")
        if source is not None and not source:  # S37
            return attrs.evolve(nothing, version=self._record((), transaction), skipped="the source is empty")
        evaluation = Evaluation(
            names=names,
            live=self._live_stored(),
            latest=self.latest,
            source=source or [],
            clauses=clauses,
            condition=condition,
            on_stale=on_stale,
            commit_time=self.commitTime,
            at=assigned,
            checks=self.checks,
        )
        outcome = evaluation.run(max_delete_fraction)
        for other, owed in outcome.owed:  # S27: all or nothing
            merge_owed(other.copy(), owed)
        version = self._record(outcome.batch, transaction)
        for other, owed in outcome.owed:
            merge_owed(other, owed)
        return self._result(version, outcome, len(source or ()))

    def _result(self, version: int, outcome: Outcome, source_rows: int) -> ModelResult:
        return ModelResult(
            version=version,
            rowsInserted=outcome.inserted,
            rowsUpdated=outcome.updated,
            rowsDeleted=outcome.deleted,
            rowsStale=outcome.stale,
            rowsAppended=len(outcome.batch),
            rowsSource=source_rows,
            rowsUnchanged=outcome.unchanged,
            perClause=outcome.per_clause,
            rowsHistory=sum(len(owed) for _, owed in outcome.owed),
            rows=tuple(self.live()),
            skipped="" if outcome.batch else "no clause applied to any row",
            appended=outcome.batch,
        )

    def _record(self, batch: tuple[Row, ...], transaction: tuple[str, int] | None) -> int:
        """Commits batch and transaction marker together (S36); an empty batch alone is no commit (S37)."""
        if transaction:
            self.transactions[transaction[0]] = transaction[1]
        if batch or transaction:
            self.batches.append(batch)
        return self.version
