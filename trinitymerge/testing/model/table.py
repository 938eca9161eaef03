"""`ModelTable`: the interpreter's table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, cast

import attrs

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.model.clauses import (
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
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.model.evaluation import Evaluation
from trinitymerge.testing.model.events import Event, Feed, check_feed, lacking_columns, names_of, read_events
from trinitymerge.testing.model.expressions import KeyEquality, Row
from trinitymerge.testing.model.feeds import filled, firsts, truncated
from trinitymerge.testing.model.history import Latest, latest_rows, net_changes
from trinitymerge.testing.model.intervals import read_intervals
from trinitymerge.testing.model.outbox import merge_owed
from trinitymerge.testing.model.outcomes import Key, ModelResult, Outcome
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.snapshots import Moment, check_snapshot, read_snapshot, snapshot_events
from trinitymerge.testing.model.validate import Names, assigned_watermark, check_merge, check_versions_are_kept
from trinitymerge.testing.model.values import alive_value, order_key, order_keys, store
from trinitymerge.testing.model.versions import (
    Shown,
    Stored,
    Version,
    chains,
    check_history,
    intervals,
    merged,
    rows_at,
    rows_shown,
    tracked_columns,
)


class LookingBack:
    """What was, as far as the stored rows tell."""

    __slots__ = ()

    definition: TableDefinition
    batches: list[tuple[Row, ...]]

    @property
    def version(self) -> int:
        """The number of commits."""
        return len(self.batches)

    def time(self, version: int) -> dt.datetime:
        """When a version was committed."""
        raise NotImplementedError

    def state(self, of: Key | None = None) -> dict[Key, Latest]:
        """The latest row of every key, live or a tombstone, with its version; or of one key."""
        return latest_rows(self.definition, self.batches, of)

    def changes(self, fromVersion: int, toVersion: int | None = None, net: bool = True) -> list[Row]:
        """What happened to the live rows after one version, up to another (S41).

        Args:
            fromVersion: exclusive.
            toVersion: by default the table's.
            net: compare the two states; otherwise each version with the one before.

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
        ends = [fromVersion, last] if net else list(range(fromVersion, last + 1))
        states = [latest_rows(self.definition, self.batches[:version]) for version in ends]
        steps = pairwise(states)
        return [row for before, after in steps for row in net_changes(self.definition, before, after)]

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
        """Every version of every key, with the time in which it holds (H2-H5).

        Args:
            track: consecutive versions that agree in these columns are one.
            exceptColumns: or in all but these and the watermark.
            validFrom: the name of the column that says when a version begins.
            validTo: of the one that says when it ends.
            current: of the one that says whether it is open.
            openEnd: what ``validTo`` is in open versions.
            emptyIntervals: show versions that end where they begin, too.

        Returns:
            The user's columns and the interval, ordered by key and time.

        Raises:
            InvalidDefinitionError: the table keeps no history (H8), or has a column of one of these names.
            ValueError: a column cannot be tracked.

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
        check_history(self.definition, "versions()")
        tracked, shown = (
            tracked_columns(self.definition, track, exceptColumns),
            Shown(validFrom, validTo, current, openEnd),
        )
        found: list[Version] = []
        for chain in self.chains().values():
            seen = [v for v in intervals(self.definition, chain) if emptyIntervals or not v.isEmpty]
            found += seen if tracked is None else merged(seen, tracked)
        return rows_shown(self.definition, found, shown)

    def asOf(self, moment: Any) -> list[Row]:
        """The rows that hold at a moment of the data's time, in key order (H5).

        Args:
            moment: a value of the first watermark column; a time of commit, if the table declares no watermark.

        Raises:
            InvalidDefinitionError: the table keeps no history (H8).
            ValueError: the moment is null.
        """
        check_history(self.definition, "asOf()")
        rows = rows_at(self.definition, self.chains(), moment).values()
        return [{name: row[name] for name in self.definition.names} for row in rows]

    def chains(self) -> dict[Key, list[Stored]]:
        """For each key what holds one after the other, rows and tombstones (H2)."""
        return chains(self.definition, self.batches, self.time)


Table = TypeVar("Table", bound="Feeding")


class Feeding(LookingBack):
    """Merges whose clauses follow from the table's definition."""

    __slots__ = ()

    snapshots: dict[int, Any]
    transactions: dict[str, int]

    def _merge_events(self, events: list[Event], columns: Iterable[str] | None = None, **options: Any) -> ModelResult:
        """Merges by key equality; of events that know only some of the table's columns, with these. ``options`` as in merges."""
        raise NotImplementedError

    # Events (H9, H10) ---------------------------------------------------------------------------------------

    def applyChanges(
        self,
        source: Sequence[Mapping[str, Any]],
        sequenceBy: Any = None,
        applyAsDeletes: Any = None,
        applyAsTruncates: Any = None,
        columns: str | Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        ignoreNullUpdates: bool | str | Iterable[str] = False,
        *,
        sourceColumns: Iterable[str] | None = None,
        follows: TableDefinition | None = None,
        **options: Any,
    ) -> ModelResult:
        """Writes events in whatever order they come: type 1 on an ordinary table, type 2 on one with history (H9).

        Args:
            source: rows with the same columns each.
            sequenceBy: the watermark of an event: the name of a source column, an ``Expr``, a callable of the row, or several
                of these; by default the source's columns of the watermark's names.
            applyAsDeletes: which events are deletes: an ``Expr``, a callable of the row, or a literal.
            applyAsTruncates: which say that all keys are gone; not on tables with history.
            columns: the table's columns to take from the source; the others are null.
            exceptColumns: or those not to take.
            ignoreNullUpdates: nulls are filled from what comes before (H10): in all columns, or in these.
            sourceColumns: the source's columns, where they cannot be taken from its first row.
            follows: the definition with room for what the source brings: the table's, if a row is written (S44).
            **options: of the table's merge.

        Raises:
            NullKeyError: a null in the sequence, or in the key of a row.
            AmbiguousMergeError: different events of one key with equal sequence (S12).
            InvalidMergeError: the arguments do not go with the table.
        """
        told = (source, sequenceBy, applyAsDeletes, applyAsTruncates, columns, exceptColumns, ignoreNullUpdates)
        if follows is not None:
            return self._follow(follows, lambda t: t.applyChanges(*told, sourceColumns=sourceColumns, **options))
        names = self._names(source, sourceColumns)
        taken = None if columns is None else names_of(columns)
        every = self.definition.names if ignoreNullUpdates else ()
        nulls = every if isinstance(ignoreNullUpdates, bool) else names_of(ignoreNullUpdates)
        feed = Feed(sequenceBy, applyAsDeletes, applyAsTruncates, taken, names_of(exceptColumns), nulls)
        check_feed(names, feed)
        events = truncated(self.definition, read_events(names, map(dict, source), feed), self._live())
        filling, lacking = [names.target_column(name, "") for name in nulls], lacking_columns(names, feed)
        if self.definition.history:
            filling += lacking
        if filling:
            events = filled(self.definition, events, filling, self._row_before, lacking)
        known = [n for n in self.definition.names if self.definition.history or n not in lacking]
        return self._write(events, len(source), options | {"columns": known})

    def _follow(self: Table, wide: TableDefinition, feed: Callable[[Table], ModelResult]) -> ModelResult:
        """Makes room for what a source brings, and is fed, in one commit. If no row is written nothing is altered (S44)."""
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

    def _with_definition(self: Table, definition: TableDefinition) -> Table:
        """A copy whose rows are as if they had been written with other columns (S43)."""
        raise NotImplementedError

    def _names(self, source: Sequence[Mapping[str, Any]], columns: Iterable[str] | None) -> Names:
        return Names(self.definition, "target", tuple(columns or (source[0] if source else self.definition.names)))

    def _live(self) -> dict[Key, Row]:
        rules = RowRules(self.definition)
        return {key: latest.row for key, latest in self.state().items() if not rules.is_tombstone(latest.row)}

    def _row_before(self, key: Key, watermark: Row) -> Row | None:
        """The freshest row of a key that is not fresher, dead or alive; without history only the latest one is known."""
        rules = RowRules(self.definition)
        known = [stored.row for stored in self.chains().get(key, [])]
        known = known if self.definition.history else known[-1:]
        return next((row for row in reversed(known) if not rules.older(watermark, row)), None)

    def _write(self, events: list[Event], rows: int, options: Mapping[str, Any]) -> ModelResult:
        result = self._merge_events(events, **options)
        without_effect = rows and not events and result.skipped == "the source is empty"
        skipped = "no event changes anything" if without_effect else result.skipped
        return attrs.evolve(result, rowsSource=rows, perClause=(), skipped=skipped)

    # Extracts (H11) -----------------------------------------------------------------------------------------

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
        """Writes what a full extract, taken at a moment, says about the table (H11).

        Args:
            source: rows with the same columns each.
            at: the watermark of all of it.
            missing: ``"delete"``: keys that the source lacks are gone; ``"keep"``: nothing is known about them.
            sourceColumns: the source's columns, where they cannot be taken from its first row.
            follows: the definition with room for what the source brings: the table's, if a row is written (S44).
            **options: of the table's merge.

        Raises:
            NullKeyError: a null in the key of a row.
            AmbiguousMergeError: different rows of one key.
            InvalidMergeError: the arguments do not go with the table, or a snapshot comes late without history.
        """
        if follows is not None:
            return self._follow(
                follows, lambda t: t.snapshot(source, at, missing, sourceColumns=sourceColumns, **options)
            )
        names = self._names(source, sourceColumns)
        check_snapshot(names, at, missing)
        moment = store(self.definition.field(self.definition.watermarkKey[0]), at)
        following = self._next_snapshot(moment)
        rows = read_snapshot(names, map(dict, source), moment)
        if not rows:  # S37
            return self._write([], 0, options)
        now, then = self._moment(moment), None if following is None else self._moment(following)
        written = {key: [s.begins for s in chain] for key, chain in self.chains().items()}
        events = snapshot_events(names, rows, now, then, written, keep=missing == "keep")
        before, result = self.version, self._write(events, len(source), options)
        replayed = result.skipped == "the transaction is committed already"
        return result if replayed else self._note(moment, result, self.version == before)

    def _next_snapshot(self, at: Any) -> Any:
        later = [moment for moment in self.snapshots.values() if order_key(moment) > order_key(at)]
        if later and not self.definition.history:
            raise InvalidMergeError(
                f"snapshot: one at {max(later, key=order_key)!r} has been taken, and without history nobody knows what to "
                f"compare with at {at!r}. Use a table with history=True."
            )
        return min(later, key=order_key) if later else None

    def _moment(self, at: Any) -> Moment:
        """What holds at a moment; without history what holds now."""
        return Moment(at, rows_at(self.definition, self.chains(), at) if self.definition.history else self._live())

    def _note(self, at: Any, result: ModelResult, nothing_written: bool) -> ModelResult:
        """Keeps the moment, in a commit without rows if nothing was written."""
        if nothing_written:
            if order_key(at) in map(order_key, self.snapshots.values()):
                return result
            self.batches.append(())
        self.snapshots[self.version] = at
        return attrs.evolve(result, version=self.version)

    # Dimensions (H12) ---------------------------------------------------------------------------------------

    @classmethod
    def fromIntervals(
        cls: type[Table],
        fields: Iterable[Field],
        source: Iterable[Mapping[str, Any]],
        primaryKey: str | Iterable[str],
        validFrom: str,
        validTo: str,
        openEnd: Any = None,
        endInclusive: bool = False,
    ) -> Table:
        """A table with history of an existing dimension (H12).

        Args:
            fields: the source's columns; that of the end is not one of the table's.
            source: rows, each a version.
            primaryKey: what they are versions of.
            validFrom: the column with the begin, which is the table's watermark.
            validTo: the column with the end; null is open.
            openEnd: another value that means open.
            endInclusive: ends are the last moment of their interval.

        Raises:
            DuplicateKeyError: intervals of one key overlap.
            NullKeyError: a key is null.
            InvalidMergeError: an interval ends before it begins, or the arguments do not go with the source.

        Example:
            >>> from trinitymerge.testing import ModelTable
            >>> columns = [Field(name, "integer") for name in ("id", "since", "until")]
            >>> row = {"id": 1, "since": 10, "until": 20}
            >>> table = ModelTable.fromIntervals(columns, [row], "id", "since", "until")
            >>> table.versions(validFrom="since", validTo="until")
            [{'id': 1, 'since': 10, 'until': 20, 'isCurrent': False}]
        """
        found = read_intervals(fields, source, primaryKey, validFrom, validTo, openEnd, endInclusive)
        return cls._with_rows(found.definition, found.rows)

    @classmethod
    def _with_rows(cls: type[Table], definition: TableDefinition, rows: tuple[Row, ...]) -> Table:
        """A table of one commit, or of none if there are no rows."""
        raise NotImplementedError


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
