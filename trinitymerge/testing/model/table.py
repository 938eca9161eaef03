"""`ModelTable`: the interpreter's table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import attrs

from trinitymerge.errors import InvalidMergeError, TooManyDeletesError
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model import feeds
from trinitymerge.testing.model.expressions import KeyEquality
from trinitymerge.testing.model.history import (
    check_history,
    latest_rows,
    merged,
    net_changes,
    read_intervals,
    row_versions,
    rows_by_key,
    statements_by_key,
)
from trinitymerge.testing.model.judging import Judge
from trinitymerge.testing.model.merge import Evaluation, ModelResult, check_merge
from trinitymerge.testing.model.registers import MOVED_FROM, UNSET, Statements, Stored, mended, register_columns
from trinitymerge.testing.model.rows import Names, RowRules
from trinitymerge.testing.model.values import Key, Row, alive_value, default_value, order_key, store, tombstone_value

_IS_COMMITTED, _IS_EMPTY = "the transaction is committed already", "the source is empty"


@attrs.define
class ModelTable:
    """A table in memory that follows the semantics.

    It refuses the merges that the engine refuses, with the same class of error. It does not check arguments as the engine
    does, and its messages are shorter.

    Attributes:
        definition: columns and keys.
        batches: one tuple of stored rows per version, oldest first; version 0 is the empty table. A stored row has every
            column of ``definition.stored_fields``.
        transactions: the latest committed version per application (S36).
        commitTime: the value of tombstones of date and timestamp type (S9).
        times: when each version was committed; by default a second after the one before, from ``commitTime`` on. Without a
            declared watermark, versions begin at these times (H2).
        snapshots: from a version to the moment of its extract (H11).
        truncates: from a version to the watermarks of its truncates (T1).
        checks: constraints by name (S45), as functions of a row that return true, false, or None for null. The model does
            not read those of the definition, which are SQL.
        checkColumns: the columns that a constraint uses; by default all (S47).

    Example:
        >>> from trinitymerge.schema.definition import Field, TableDefinition
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
    truncates: dict[int, tuple[Row, ...]] = attrs.field(factory=dict)
    checks: dict[str, Callable[[Row], bool | None]] = attrs.field(factory=dict)
    checkColumns: dict[str, tuple[str, ...]] = attrs.field(factory=dict)

    # Reading ------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of commits."""
        return len(self.batches)

    def time(self, version: int) -> dt.datetime:
        """Return when a version was committed."""
        return self.times.get(version, self.commitTime + dt.timedelta(seconds=version))

    def live(self) -> list[Row]:
        """Return the rows a reader sees, in key order, without the hidden column (S13)."""
        return [{name: row[name] for name in self.definition.names} for row in self._live().values()]

    def latest(self, key: Any) -> Row | None:
        """Return the row with the largest effective watermark for a key, live or a tombstone (S6, S13, S15).

        Args:
            key: the key's value, or a tuple of values for a composite key.

        Returns:
            The stored row, or None if the key has never been written.
        """
        found = self.state().get(key if isinstance(key, tuple) else (key,))
        return found.row if found else None

    def state(self) -> dict[Key, Stored]:
        """Return the latest row of every key, live or a tombstone, with its version."""
        return self._state_at(self.version)

    def _state_at(self, version: int) -> dict[Key, Stored]:
        return latest_rows(self.definition, self.batches[:version], self._truncates_at(version))

    def _truncates_at(self, version: int) -> dict[int, list[Row]]:
        """Return the truncates of a version by the versions that committed them, as tombstones without a key (T1)."""
        dead = {self.definition.tombstone_column: tombstone_value(self.definition, self.commitTime)}
        return {n: [row | dead for row in rows] for n, rows in self.truncates.items() if n <= version}

    def _live(self) -> dict[Key, Row]:
        rules = RowRules(self.definition)
        return {key: stored.row for key, stored in self.state().items() if not rules.is_tombstone(stored.row)}

    def copy(self) -> ModelTable:
        """Return an independent table with the same history."""
        return self.at(self.version)

    def at(self, version: int) -> ModelTable:
        """Return the table as it was at a version (S40)."""
        return attrs.evolve(
            self,
            batches=self.batches[:version],
            transactions=dict(self.transactions),
            times=dict(self.times),
            snapshots={number: at for number, at in self.snapshots.items() if number <= version},
            truncates={number: at for number, at in self.truncates.items() if number <= version},
        )

    def changes(self, fromVersion: int, toVersion: int | None = None, net: bool = True) -> list[Row]:
        """Return the changes of the live rows after one version, up to another (S41), as ``TrinityTable.changes`` does.

        Returns:
            The user's columns, ``_change_type``, ``_commit_version`` and ``_watermark``, in key order.

        Example:
            >>> from trinitymerge.schema.definition import Field, TableDefinition
            >>> from trinitymerge.testing import ModelTable
            >>> table = ModelTable(TableDefinition.of([Field("id", "long"), Field("v", "string")], primaryKey="id"))
            >>> table.commit([{"id": 1, "v": "a"}]), table.commit([{"id": 1, "v": "b"}])
            (1, 2)
            >>> [(row["v"], row["_change_type"]) for row in table.changes(1)]
            [('a', 'update_preimage'), ('b', 'update_postimage')]
        """
        last = self.version if toVersion is None else toVersion
        ends = [fromVersion, last] if net else range(fromVersion, last + 1)
        states = [self._state_at(version) for version in ends]
        return [row for before, after in pairwise(states) for row in net_changes(self.definition, before, after)]

    def versions(
        self,
        track: str | Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        validFrom: str = "validFrom",
        validTo: str = "validTo",
        current: str = "isCurrent",
        openEnd: Any = None,
        emptyIntervals: bool = False,
    ) -> list[Row]:
        """Return every version of every key, with the time in which it holds (H2-H5), as ``TrinityTable.versions`` does.

        Returns:
            The user's columns and the interval, ordered by key and time.

        Raises:
            InvalidDefinitionError: The table has no history (H8).

        Example:
            >>> from trinitymerge.schema.definition import Field, TableDefinition
            >>> from trinitymerge.testing import ModelTable
            >>> columns = [Field("id", "long"), Field("ts", "long")]
            >>> table = ModelTable(TableDefinition.of(columns, primaryKey="id", watermarkKey="ts", history=True))
            >>> table.commit([{"id": 1, "ts": 100}, {"id": 1, "ts": 200}])
            1
            >>> [(row["validFrom"], row["validTo"], row["isCurrent"]) for row in table.versions()]
            [(100, 200, False), (200, None, True)]
        """
        check_history(self.definition)
        names, watermarks = Names(self.definition, ()), self.definition.watermarkKey
        excepted, tracked = {*map(names.target_column, _strings(exceptColumns))}, None
        if excepted or track in ("*", ["*"], ("*",)):
            tracked = [name for name in self.definition.names if name not in (*excepted, *watermarks)]
        elif track is not None:
            tracked = [*map(names.target_column, _strings(track))]
        hidden = [name for name in watermarks[:1] if name.lower() == validFrom.lower()]
        found: list[Row] = []
        for rows in self._rows_by_key().values():
            own = [v for v in row_versions(self.definition, rows, self.time) if emptyIntervals or not v.isEmpty]
            for v in own if tracked is None else merged(own, tracked):
                shown = {name: v.row[name] for name in self.definition.names if name not in hidden}
                end = openEnd if v.isOpen else v.ends
                found.append({**shown, validFrom: v.begins, validTo: end, current: v.isOpen})
        return found

    def asOf(self, moment: Any) -> list[Row]:
        """Return the rows that hold at a moment of the data's time, in key order (H5).

        Args:
            moment: a value of the first watermark column; the time of a commit, if the table declares no watermark.

        Raises:
            InvalidDefinitionError: The table has no history (H8).
        """
        check_history(self.definition)
        return [{name: row[name] for name in self.definition.names} for row in self._rows_at(moment).values()]

    def _rows_at(self, moment: Any) -> dict[Key, Row]:
        if self.definition.watermarkKey:
            moment = store(self.definition.field(self.definition.watermarkKey[0]), moment)
        versions = {k: row_versions(self.definition, rows, self.time) for k, rows in self._rows_by_key().items()}
        return {key: v.row for key, own in versions.items() for v in own if v.holds(moment)}

    def last_truncate(self) -> list[Row]:
        """Return the watermark of the freshest truncate, or nothing."""
        found = [row for rows in self._truncates_at(self.version).values() for row in rows]
        return [max(found, key=RowRules(self.definition).watermark_order)] if found else []

    def _statements_by_key(self) -> Statements:
        return statements_by_key(self.definition, self.batches, self._truncates_at(self.version))

    def _rows_by_key(self) -> dict[Key, list[Stored]]:
        return rows_by_key(self.definition, self.batches, self._truncates_at(self.version))

    # Writing ------------------------------------------------------------------------------------------------

    def commit(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Append one batch without a merge, as another writer could (S8).

        Args:
            rows: absent columns are null; without a tombstone column the row is alive. The hidden tombstone column is
                called ``_tm_deleted``.

        Returns:
            The batch's version (S6).

        Raises:
            SchemaMismatchError: A value does not fit its column (S29), or a key is null.
        """
        fields, alive = self.definition.stored_fields, {self.definition.tombstone_column: alive_value(self.definition)}
        self.batches.append(tuple({f.name: store(f, (alive | {**row}).get(f.name)) for f in fields} for row in rows))
        return self.version

    def alter(self, definition: TableDefinition) -> int:
        """Change the columns (S43): every row is as if it had been written with the new ones.

        Args:
            definition: the new one; columns are the same if they were first stored under the same name.

        Returns:
            The version that does so.
        """
        self.batches, self.definition = [*self._with_definition(definition).batches, ()], definition
        return self.version

    def _with_definition(self, definition: TableDefinition) -> ModelTable:
        """Return a copy whose rows are as if they had been written with other columns (S43)."""
        was = {field.first_stored_as: field.name for field in self.definition.stored_fields}

        def changed(row: Row) -> Row:
            same = {f: was.get(f.first_stored_as) for f in definition.stored_fields}
            values = {f.name: None if old is None else store(f, row[old]) for f, old in same.items()}
            return values | {name: row[name] for name in (UNSET, MOVED_FROM) if name in row}

        batches = [tuple(map(changed, batch)) for batch in self.batches]
        return attrs.evolve(self.copy(), definition=definition, batches=batches)

    # Merging ------------------------------------------------------------------------------------------------

    def merge(
        self,
        source: Sequence[Mapping[str, Any]] | None,
        clauses: Iterable[Clause],
        condition: Any = None,
        *,
        sourceColumns: Iterable[str] | None = None,
        onStale: str = "skip",
        maxDeleteFraction: float | None = None,
        transaction: tuple[str, int] | None = None,
        targetAlias: str = "target",
        at: Any = None,
        quarantine: bool = False,
        hidden: Mapping[Any, Row] = MappingProxyType({}),
        before: ModelTable | None = None,
    ) -> ModelResult:
        """Merge plain rows into the table, by sections 4 and 5 of the semantics.

        Args:
            source: rows with the same columns each; None for a merge that has no source, as :meth:`deleteWhere`.
            clauses: in the order of the chain. Their expressions are ``Expr``, callables ``f(target_row, source_row)`` (an
                absent side is None), or literals.
            condition: which pairs match. None is equality on the primary key by name; a :class:`KeyEquality` is exactly key
                equality (S18).
            sourceColumns: the source's columns; by default those of its first row.
            onStale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
            maxDeleteFraction: the share of the live rows that may be deleted (S37).
            transaction: application and version, for exactly-once (S36).
            targetAlias: may qualify the keys of maps.
            at: the watermark of written rows where neither clause nor source decides (H2a); a tuple if it is composite.
            quarantine: source rows that would refuse the merge are left out, and part of the result (S47).
            hidden: given by a feed: by key and watermark, what its rows leave as it is (U2), and their old keys (U7).
            before: given by a feed: the table without the truncates of its events.

        Returns:
            The counts and rows of the merge.

        Raises:
            TrinityMergeError: The merge is refused (S28, S34). The table is unchanged then.
        """
        names, clauses = self._names(source, sourceColumns, targetAlias), tuple(clauses)
        by_name = condition is None
        if by_name:
            keys = {name: names.required(name) for name in self.definition.primaryKey}
            condition = KeyEquality.of(self.definition, columns=keys)
        moments = () if at is None else at if isinstance(at, tuple) else (at,)
        dates = dict(zip(self.definition.watermarkKey, moments, strict=bool(moments)))  # H2a
        check_merge(names, clauses, dates if self.definition.history and onStale != "force" else None)
        nothing = ModelResult(self.version, perClause=(0,) * len(clauses), rows=tuple(self.live()))
        if transaction and self.transactions.get(transaction[0], transaction[1] - 1) >= transaction[1]:  # S36
            return attrs.evolve(nothing, skipped=_IS_COMMITTED)
        if source is not None and not source:  # S37
            return attrs.evolve(nothing, version=self._record((), transaction), skipped=_IS_EMPTY)
        truncates = [row for rows in self._truncates_at(self.version + 1).values() for row in rows]
        result, others = Evaluation(
            names=names,
            latest={key: stored.row for key, stored in self.state().items()},
            source=[dict(row) for row in source or ()],
            clauses=clauses,
            condition=condition,
            on_stale=onStale,
            max_delete_fraction=maxDeleteFraction,
            at=dates,
            commit_time=self.commitTime,
            checks=self.checks,
            quarantines=quarantine,
            by_name=by_name,
            truncated_at=max(truncates, key=RowRules(self.definition).watermark_order, default=None),
        ).run()
        for other, rows in others:  # S27: all or nothing
            other.copy()._upsert(rows)
        rules, may_mend = RowRules(self.definition), any(UNSET in row for batch in self.batches for row in batch)
        was = (before or self)._rows_by_key() if may_mend else {}
        version = self._record(tuple(_with_hidden(rules, row, hidden) for row in result.appended), transaction)
        for other, rows in others:
            other._upsert(rows)
        history = sum(len(rows) for _, rows in others)
        if may_mend:
            result = self._with_mended(result, mended(was, self._rows_by_key(), rules))
        return attrs.evolve(result, version=version, rows=tuple(self.live()), rowsHistory=history)

    def _with_mended(self, result: ModelResult, rows: Mapping[Key, Sequence[Row]]) -> ModelResult:
        """Return the result with the counts of the rows that late rows have mended: an update of the latest row (U4)."""
        now = self._rows_by_key()
        latest = sum(of_key[-1] == now[key][-1].row for key, of_key in rows.items())
        count = sum(map(len, rows.values()))
        appended, updated = result.rowsAppended + count, result.rowsUpdated + latest
        return attrs.evolve(result, rowsMended=count, rowsAppended=appended, rowsUpdated=updated)

    def insert(
        self,
        source: Sequence[Mapping[str, Any]],
        deduplicate: bool = False,
        orderBy: Callable[[Mapping[str, Any]], Any] | None = None,
        **options: Any,
    ) -> ModelResult:
        """Insert rows (S25).

        Args:
            source: rows with the same columns each.
            deduplicate: leave out rows whose key is live.
            orderBy: also leave out all but the first of the rows with equal key and watermark, in the order of this
                function's values (S12a).
            **options: of :meth:`merge`.
        """
        rows = source if orderBy is None else feeds.firsts(self._names(source), source, orderBy)
        return self.merge(rows, [WhenNotMatched(None, [Insert(All())])], None if deduplicate else False, **options)

    def updateWhere(self, condition: Any, values: Mapping[str, Any], **options: Any) -> ModelResult:
        """Update live rows without a source; ``options`` as in :meth:`merge`."""
        return self.merge(None, [WhenOnlyOnTarget(condition, [Update(Assignments(values))])], False, **options)

    def deleteWhere(self, condition: Any, **options: Any) -> ModelResult:
        """Delete live rows without a source; ``options`` as in :meth:`merge`."""
        return self.merge(None, [WhenOnlyOnTarget(condition, [Delete()])], False, **options)

    def _names(
        self, source: Sequence[Mapping[str, Any]] | None, columns: Iterable[str] | None = None, alias: str = "target"
    ) -> Names:
        rows = () if source is None else columns or (source[0] if source else self.definition.names)
        return Names(self.definition, tuple(rows), alias)

    def _upsert(self, rows: Sequence[Row]) -> None:
        """Merge the rows of history inserts (S27)."""
        assigned = {name for row in rows for name in row}
        columns = [n for n in self.definition.names if n in assigned or n != self.definition.tombstoneKey]
        unset = {field.name: default_value(field) for field in self.definition.fields}  # S46
        whole = [{name: row.get(name, unset[name]) for name in columns} for row in rows]
        self.merge(whole, (WhenMatched(None, [Update(All())]), WhenNotMatched(None, [Insert(All())])))

    def _record(self, batch: tuple[Row, ...], transaction: tuple[str, int] | None) -> int:
        """Commit batch and transaction marker together (S36); an empty batch alone is not a commit (S37)."""
        if transaction:
            self.transactions[transaction[0]] = transaction[1]
        if batch or transaction:
            self.batches.append(batch)
        return self.version

    # Feeds (H9-H12) -----------------------------------------------------------------------------------------

    def applyChanges(
        self,
        source: Sequence[Mapping[str, Any]],
        sequenceBy: Any = None,
        applyAsDeletes: Any = None,
        applyAsTruncates: Any = None,
        columns: str | Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        ignoreNullUpdates: bool | str | Iterable[str] = False,
        unchanged: Any = None,
        columnsToUpdate: Any = None,
        movedFrom: Any = None,
        *,
        sourceColumns: Iterable[str] | None = None,
        follows: TableDefinition | None = None,
        **options: Any,
    ) -> ModelResult:
        """Write change events in any order: type 1 on an ordinary table, type 2 on one with history (H9).

        Args:
            source: rows with the same columns each.
            sequenceBy: the watermark of an event: the name of a source column, an ``Expr``, a callable of the row, or a list
                of these; by default the source's columns of the watermark's names.
            applyAsDeletes: which events are deletes: an ``Expr``, a callable of the row, or a literal.
            applyAsTruncates: which events delete all keys; not on tables with history.
            columns: the table's columns to take from the source; all other columns are null.
            exceptColumns: or the columns not to take.
            ignoreNullUpdates: a null leaves its column or struct field unset (U6), in all columns or in these.
            unchanged: a callable of the row that returns the columns that an event leaves as they are (U2), or a literal.
            columnsToUpdate: or the columns that it does not leave so; None for all.
            movedFrom: the key that an event's row had before, as in ``sequenceBy``; None if it is the same (U7).
            sourceColumns: the source's columns; by default those of its first row.
            follows: the definition with new columns of the source (S44), which the table takes if a row is written.
            **options: of :meth:`merge`.

        Raises:
            NullKeyError: A null in the sequence, or in the key of a row.
            AmbiguousMergeError: Different events of one key with equal sequence (S12).
            InvalidMergeError: The table cannot take such events.
        """
        given: tuple[Any, ...] = (sequenceBy, applyAsDeletes, applyAsTruncates, columns, exceptColumns)
        given = (*given, ignoreNullUpdates, unchanged, columnsToUpdate, movedFrom)
        if follows is not None:
            more = {"sourceColumns": sourceColumns, **options}
            return self._follow(follows, lambda t: t.applyChanges(source, *given, **more))
        own, names = self.definition, self._names(source, sourceColumns)
        sequence, moved = ((v if isinstance(v, (list, tuple)) else (v,)) for v in (sequenceBy, movedFrom))
        if isinstance(ignoreNullUpdates, bool):
            nulls = tuple(field.name for field in register_columns(own)) if ignoreNullUpdates else ()
        else:
            nulls = tuple(map(names.target_column, _strings(ignoreNullUpdates)))
        feed = feeds.Feed(
            names=names,
            sequenceBy=own.watermarkKey if sequenceBy is None else tuple(sequence),
            applyAsDeletes=applyAsDeletes,
            applyAsTruncates=applyAsTruncates,
            columns=None if columns is None else _strings(columns),
            exceptColumns=_strings(exceptColumns),
            unchanged=unchanged,
            columnsToUpdate=columnsToUpdate,
            ignoreNullUpdates=nulls,
            movedFrom=() if movedFrom is None else tuple(moved),
        )
        feed.check()
        if options.get("quarantine"):
            asked = {name: value for name, value in options.items() if name != "quarantine"}

            def apply(table: ModelTable, rows: Sequence[Row], **asked: Any) -> ModelResult:
                return table.applyChanges(rows, *given, sourceColumns=names.source, **asked)

            judge = Judge(self, feed, apply, options.get("onStale") == "error")
            taken, rejected = judge.judge([dict(row) for row in source])
            return attrs.evolve(apply(self, taken, **asked), rowsSource=len(source), quarantined=tuple(rejected))
        events, truncates = feed.read(map(dict, source))
        events, ended_at = feeds.since_truncate(own, events, truncates)
        if any(event[UNSET] for event in events):
            beside = feeds.beside_truncates(own, events, ended_at)
            done = feeds.filled(own, beside, self._statements_by_key(), self.version + 1)
            order = RowRules(own).watermark_order
            ends = set(map(order, ended_at))
            events = [event for event in done if order(event) not in ends]
        if not ended_at:
            return self._write(events, len(source), own.names, options)
        ended = attrs.evolve(self.copy(), truncates={**self.truncates, self.version + 1: ended_at})
        result = ended._write(events, len(source), own.names, options, before=self)
        if result.skipped == _IS_COMMITTED:
            return result
        if ended.version == self.version:
            ended.batches.append(())
            late = mended(self._rows_by_key(), ended._rows_by_key(), RowRules(own))
            result = ended._with_mended(result, late)
        deleted = len(self._live().keys() - ended._live().keys())
        self.batches, self.transactions, self.truncates = ended.batches, ended.transactions, ended.truncates
        return attrs.evolve(result, version=self.version, rowsDeleted=deleted, skipped="", rows=tuple(self.live()))

    def _write(
        self,
        events: list[Row],
        count: int,
        columns: Sequence[str],
        options: Mapping[str, Any],
        before: ModelTable | None = None,
    ) -> ModelResult:
        names = (*columns, feeds.DELETE)
        rows = [{name: event[name] for name in names} for event in events]
        rules, own = RowRules(self.definition), self.definition
        partial = [event for event in events if event.get(UNSET) and None not in rules.key(event)]
        places = [rules.stored({n: event[n] for n in (*own.primaryKey, *own.watermarkKey)}) for event in partial]
        hidden = {_place(rules, place): event for place, event in zip(places, partial, strict=True)}
        result = self.merge(rows, feeds.EVENT_CLAUSES, sourceColumns=names, hidden=hidden, before=before, **options)
        without_effect = count and result.skipped == _IS_EMPTY
        skipped = "no event changes anything" if without_effect else result.skipped
        return attrs.evolve(result, rowsSource=count, perClause=(), skipped=skipped)

    def _follow(self, wide: TableDefinition, feed: Callable[[ModelTable], ModelResult]) -> ModelResult:
        """Add the source's columns and run a feed, in one commit. If no row is written, no column is added (S44)."""
        roles = {*wide.primaryKey, *wide.watermarkKey, wide.tombstoneKey}
        lenient = tuple(f if f.name in roles else attrs.evolve(f, added=True) for f in wide.fields)
        table = self._with_definition(attrs.evolve(wide, fields=lenient))
        result = feed(table)
        self.transactions, self.snapshots = table.transactions, table.snapshots
        if result.rowsAppended:
            self.definition, self.batches = wide, table.batches
        elif table.version > self.version:
            self.batches.append(())
        return result

    def snapshot(
        self,
        source: Sequence[Mapping[str, Any]],
        at: Any,
        missing: str = "delete",
        *,
        sourceColumns: Iterable[str] | None = None,
        follows: TableDefinition | None = None,
        **options: Any,
    ) -> ModelResult:
        """Write a full extract that was taken at a moment (H11).

        Args:
            source: rows with the same columns each.
            at: the watermark of all of it.
            missing: ``"delete"`` deletes keys that the source lacks; ``"keep"`` leaves them as they are.
            sourceColumns: the source's columns; by default those of its first row.
            follows: the definition with new columns of the source (S44), which the table takes if a row is written.
            **options: of :meth:`merge`. With ``quarantine``, rows that would refuse it are left out, and part of the result (S47).

        Raises:
            NullKeyError: A null in the key of a row.
            AmbiguousMergeError: Different rows of one key.
            InvalidMergeError: The table cannot take the extract, or it comes late in a table without history.
        """
        if follows is not None:
            given = {"sourceColumns": sourceColumns, **options}
            return self._follow(follows, lambda t: t.snapshot(source, at, missing, **given))
        own, names = self.definition, self._names(source, sourceColumns)
        feeds.check_snapshot(names, at)
        moment = store(own.field(own.watermarkKey[0]), at)
        later = [other for other in self.snapshots.values() if order_key(other) > order_key(moment)]
        if later and not own.history:
            raise InvalidMergeError(f"H11: an extract later than {at!r} is stored, and the table has no history.")
        if not source:  # S37
            return self._write([], 0, own.names, options)
        now = feeds.Moment(moment, self._rows_at(moment) if own.history else self._live())
        if options.pop("quarantine", False):
            extract = feeds.judged_snapshot(names, map(dict, source), moment, now.held, self.checks)
        else:
            extract = feeds.read_snapshot(names, map(dict, source), moment)
        then = min(later, key=order_key) if later else None
        following = None if then is None else feeds.Moment(then, self._rows_at(then))
        events = feeds.snapshot_events(names, extract, now, following, self._rows_by_key(), keep=missing == "keep")
        fraction = options.pop("maxDeleteFraction", None) if own.history else None
        ended = sum(event[feeds.DELETE] and event[own.watermarkKey[0]] == moment for event in events)
        too_many = fraction is not None and ended and ended / len(now.held) > fraction  # S37
        if too_many and self.copy()._write(events, len(source), own.names, options).skipped != _IS_COMMITTED:
            problem = f"S37: {ended} of {len(now.held)} rows at {at!r} would end, more than {fraction} of them."
            raise TooManyDeletesError(problem, deleted=ended, live=len(now.held))
        before, result = self.version, self._write(events, len(source), own.names, options)
        if result.skipped == _IS_COMMITTED:
            return result
        if self.version == before:  # the moment is kept by a commit without rows
            if order_key(moment) in map(order_key, self.snapshots.values()):
                return attrs.evolve(result, quarantined=extract.rejected)
            self.batches.append(())
        self.snapshots[self.version] = moment
        return attrs.evolve(result, version=self.version, quarantined=extract.rejected)

    @classmethod
    def fromIntervals(
        cls,
        fields: Iterable[Field],
        source: Iterable[Mapping[str, Any]],
        primaryKey: str | Iterable[str],
        validFrom: str,
        validTo: str,
        openEnd: Any = None,
        endInclusive: bool = False,
    ) -> ModelTable:
        """Return a table with history of an existing dimension (H12), as ``TrinityTable.fromIntervals`` does.

        ``fields`` are the source's columns, of which that of the end is not one of the table's.

        Raises:
            DuplicateKeyError: Intervals of one key overlap.
            NullKeyError: A key is null.
            InvalidMergeError: An interval ends before it begins, or an inclusive end has no next value.

        Example:
            >>> from trinitymerge.testing import ModelTable
            >>> columns = [Field(name, "integer") for name in ("id", "since", "until")]
            >>> row = {"id": 1, "since": 10, "until": 20}
            >>> table = ModelTable.fromIntervals(columns, [row], "id", "since", "until")
            >>> table.versions(validFrom="since", validTo="until")
            [{'id': 1, 'since': 10, 'until': 20, 'isCurrent': False}]
        """
        definition, rows, _ = read_intervals(fields, source, primaryKey, validFrom, validTo, openEnd, endInclusive)
        return cls(definition, [tuple(rows)] if rows else [])


def _place(rules: RowRules, row: Row) -> Any:
    return order_key(list(rules.key(row))), rules.watermark_order(row)


def _with_hidden(rules: RowRules, row: Row, hidden: Mapping[Any, Row]) -> Row:
    event = {} if rules.is_tombstone(row) else hidden.get(_place(rules, row), {})
    return row | {name: event[name] for name in (UNSET, MOVED_FROM) if name in event}


def _strings(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
