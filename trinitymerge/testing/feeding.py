"""The calls of ``ModelTable`` that are fed by events and by extracts (H9-H12).

Owns: :class:`Feeding`, which the table inherits. It turns what is fed into a merge of events; what each feed means stands in
``feeds.py``, ``snapshots.py`` and ``intervals.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import InvalidMergeError
from trinitymerge.testing.changes import Key
from trinitymerge.testing.checks import Names
from trinitymerge.testing.events import Event, Feed, check_feed, lacking_columns, names_of, read_events
from trinitymerge.testing.expressions import Row
from trinitymerge.testing.feeds import filled, truncated
from trinitymerge.testing.intervals import read_intervals
from trinitymerge.testing.lookback import LookingBack
from trinitymerge.testing.results import ModelResult
from trinitymerge.testing.rows import RowRules
from trinitymerge.testing.snapshots import Moment, check_snapshot, read_snapshot, snapshot_events
from trinitymerge.testing.values import order_key, store
from trinitymerge.testing.versions import rows_at

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
