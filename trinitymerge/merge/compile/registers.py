"""Fill what partial rows leave unset, and mend stored partial rows (U1, U4), also under earlier keys (U7)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
from pyspark.sql import DataFrame

from trinitymerge.history.versions import Timeline
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.row_kinds import NO_EFFECT, UPDATED
from trinitymerge.merge.compile import earlier_keys
from trinitymerge.merge.compile.join import Materialized, materialize
from trinitymerge.merge.compile.strategies import Compiled
from trinitymerge.reader import keys_to_find, latest_rows, prune_batches, semi_join
from trinitymerge.rows import registers
from trinitymerge.rows.authors import Authors
from trinitymerge.rows.equality import comparable
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.rows.registers import NO_TEXTS, UNSET_FIELD, Part, as_map
from trinitymerge.rows.resolution import Order
from trinitymerge.rows.watermarks import Watermark, is_at_least, watermark_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql, as_sql
from trinitymerge.stores.base import TableStore

_logger = logging.getLogger(__name__)
_warned: set[str] = set()

OF_OLD_KEY, TRUNCATE, STORED, WRITTEN = -2, -1, 0, 1
"""Where a row comes from. Of rows with an equal watermark, the later kind corrects the earlier one (H2)."""

_RANK, _PLACE, _NEXT, _IS_DEAD, _LATEST = "rank", "place", "next", "is_dead", "latest"
MINE, THEIRS = Sql("mine"), Sql("theirs")


@attrs.frozen(eq=False)
class Written:
    """The rows to write, before what they leave unset is filled.

    Attributes:
        rows: of any columns; they are part of the result as the struct :data:`MINE`.
        values: SQL over them, for the key columns, the watermark columns and the columns with registers.
        is_dead: SQL that is true for deletes; never null.
        unset: SQL that is true if a row leaves a part unset; never null.
        moves: SQL that is true for rows whose key has changed; never null.
        old_key: SQL for the key columns that such a row had before; null if that key has been purged. Empty if there is none.
    """

    rows: DataFrame
    values: Mapping[str, Sql]
    is_dead: Sql
    unset: Callable[[Part], Sql]
    moves: Sql = E.FALSE
    old_key: tuple[Sql, ...] = ()


@attrs.frozen(eq=False)
class Registers:
    """The registers of some columns.

    Attributes:
        columns: those of which a row may leave something unset.
        mends: a stored row may leave something unset.
        moves: a row may have values from an earlier key.
        changes: the changes of keys that lead to them (:func:`earlier_keys.key_changes`); None if none matters.
        parts: the columns and the struct fields in them.
    """

    definition: TableDefinition
    columns: tuple[Part, ...]
    mends: bool
    moves: bool = False
    changes: Materialized | None = None
    parts: tuple[Part, ...] = attrs.field(init=False)
    _index: Mapping[str, int] = attrs.field(init=False)

    @parts.default
    def _parts_of_columns(self) -> tuple[Part, ...]:
        return tuple(part for column in self.columns for part in column.all())

    @_index.default
    def _index_of_parts(self) -> dict[str, int]:
        return {part.id: i for i, part in enumerate(self.parts)}

    @classmethod
    def of(cls, snapshot: Snapshot, columns: Iterable[str] = ()) -> Registers:
        """Return the registers that a merge into a snapshot needs. A row to write may leave something of ``columns`` unset."""
        known, stored = registers.parts_of(snapshot.definition), registers.unset_in(snapshot.batches)
        asked = {*columns}
        kept = [c for c in known if c.path[0] in asked or stored is None or any(part.id in stored for part in c.all())]
        return cls(snapshot.definition, tuple(kept), snapshot.has_partial)

    def with_key_changes(
        self, store: TableStore, snapshot: Snapshot, written: Written, new: Sequence[Watermark] = ()
    ) -> Registers:
        """Return the same, with the changes of keys that matter to rows to write; these come with ``new`` truncates."""
        if not (written.old_key or snapshot.has_moved):
            return self
        places = None if new and self.mends else self._places(written)
        found = earlier_keys.key_changes(store, snapshot, self._moved(written), places)
        return attrs.evolve(self, moves=True, changes=found if found.rows else None)

    @property
    def authors(self) -> Authors:
        return Authors(self.definition, self.moves)

    # The rows of each key -------------------------------------------------------------------------------------------

    def resolved(
        self,
        store: TableStore,
        snapshot: Snapshot,
        written: Written,
        new: Sequence[Watermark] = (),
        truncates: Sequence[Watermark] = (),
    ) -> DataFrame:
        """Return the rows to write and the stored rows of their keys, filled. Rows to write are evaluated if they have old keys.

        They come with ``new`` truncates, and ``truncates`` are those of the table and the new ones. The result has :data:`MINE`
        for rows to write, or :data:`THEIRS` for stored ones, a struct of their columns; and the columns of this class.
        """
        own, everywhere = self.definition, bool(new) and self.mends  # a truncate sets null in all keys
        sought = [f"{written.values[k]} AS {C.KEY_TO_FIND(i)}" for i, k in enumerate(own.primaryKey)]
        keys = written.rows.selectExpr(*sought)
        if self.changes is not None:
            keys = keys.unionByName(earlier_keys.keys_of(self.changes.frame, own))
        if everywhere:
            keys = keys.unionByName(unset_keys(store, snapshot))
        rows = self._written(written)
        rows = rows.unionByName(self._stored(self._stored_rows(store, snapshot, keys)), allowMissingColumns=True)
        if truncates:
            known = keys.selectExpr(*[f"{C.KEY_TO_FIND(i)} AS k{i}" for i in range(len(own.primaryKey))]).distinct()
            rows = rows.unionByName(self._truncates(known, truncates), allowMissingColumns=True)
        if self.changes is not None:
            defaults = [part.value(self._default(part.path[0])) for part in self.parts]
            brought = earlier_keys.brought(rows, self.changes, own, defaults)
            brought = brought.selectExpr("*", f"{OF_OLD_KEY} AS {_RANK}", f"{E.FALSE} AS {_IS_DEAD}")
            rows = rows.unionByName(brought, allowMissingColumns=True)
        return self._filled(rows)

    def _places(self, written: Written) -> DataFrame:
        """Return keys and watermarks of rows to write, ``k0`` and ``w0`` and so on."""
        named = {"k": self.definition.primaryKey, "w": self.definition.watermarkKey}
        places = ((name, f"{kind}{i}") for kind, names in named.items() for i, name in enumerate(names))
        return written.rows.selectExpr(*[f"{written.values[name]} AS {place}" for name, place in places])

    def _stored_rows(self, store: TableStore, snapshot: Snapshot, keys: DataFrame) -> DataFrame:
        """Return the stored rows of some keys with :data:`C.UNSET`: with history all row versions, otherwise the latest rows."""
        own, extra = snapshot.definition, (UNSET_FIELD,) if self.mends else ()
        if own.history and own.watermarkKey:
            timeline = Timeline(store, own, extra)
            rows = timeline.in_order(semi_join(timeline.scan(snapshot.batches), own, keys))
        else:
            rows = latest_rows(store, Batches.of(snapshot), keys, extra=extra)
        return rows.selectExpr(*(E.quote(f.name) for f in (*own.stored_fields, *extra)))

    def _statement(
        self,
        rank: int,
        values: Callable[[str], Sql],
        is_dead: Sql,
        since: Callable[[Part], Sql],
        brings: Callable[[Part], Sql] = lambda _: E.FALSE,
    ) -> list[str]:
        """Return select items: key, watermark, and for each part its value and since when it is set (null: it is not).

        The ``rank`` says where the rows come from. A part is set ``since`` an author and a rank, or ``brings`` its value from an
        earlier key.
        """
        own = self.definition
        shown = [f"{values(k)} AS k{i}" for i, k in enumerate(own.primaryKey)]
        shown += [f"{values(w)} AS w{i}" for i, w in enumerate(own.watermarkKey)]
        shown += [f"{rank} AS {_RANK}", f"{is_dead} AS {_IS_DEAD}"]
        for i, part in enumerate(self.parts):
            name = part.path[0]
            default = part.value(self._default(name))
            value = E.case([(E.any_of([is_dead, brings(part)]), default)], part.value(values(name)))
            shown += [f"{E.opaque(value)} AS v{i}", f"{E.opaque(since(part))} AS s{i}"]
        return shown

    def _at(self, author: Sql, rank: int | str) -> Sql:
        """Return when a part is set: by whom, then the kind of the row."""
        return Sql(f"struct({author} AS a, {rank} AS r)")

    def _default(self, name: str) -> Sql:
        field = self.definition.field(name)
        if field.default is None:
            return E.null_of(field)
        return Sql(f"({E.cast(as_sql(field.default), E.physical_type(field))})")

    def _moved(self, written: Written) -> DataFrame | None:
        """Return the changes of keys among rows to write that leave something unset (:func:`earlier_keys.key_changes`)."""
        if not written.old_key:
            return None
        own, values = self.definition, written.values
        is_moved = E.all_of([written.moves, E.any_of(map(written.unset, self.parts))])
        keys = [f"{values[k]} AS k{i}" for i, k in enumerate(own.primaryKey)]
        by = Authors(own, moves=True).of([values[w] for w in own.watermarkKey], written.old_key)
        return written.rows.filter(is_moved).selectExpr(*keys, f"{by} AS {earlier_keys.CHAIN}")

    def _written(self, written: Written) -> DataFrame:
        values = written.values
        watermark = [values[w] for w in self.definition.watermarkKey]
        old_key = written.old_key if self.moves else ()
        at = self._at(self.authors.of(watermark), WRITTEN)
        moves = written.moves if old_key else E.FALSE
        brought = self._at(self.authors.of(watermark, old_key), WRITTEN) if old_key else E.NULL

        def brings(part: Part) -> Sql:
            return E.all_of([moves, written.unset(part)])

        def since(part: Part) -> Sql:
            unset = written.unset(part)
            if unset == E.FALSE:
                return at
            return E.case([(E.any_of([written.is_dead, E.not_(unset)]), at), *([(moves, brought)] if old_key else [])])

        mine = f"struct({', '.join(map(E.quote, written.rows.columns))}) AS {MINE}"
        shown = self._statement(WRITTEN, values.__getitem__, written.is_dead, since, brings)
        return written.rows.selectExpr(*shown, mine)

    def _stored(self, stored: DataFrame) -> DataFrame:
        own, is_dead = self.definition, E.is_tombstone(self.definition)
        at = self._at(self.authors.of([E.quote(w) for w in own.watermarkKey]), STORED)

        def since(part: Part) -> Sql:
            if not self.mends:
                return at
            at_register = self._at(self.authors.from_texts(registers.since(part)), STORED)
            return E.case([(E.not_(registers.is_unset(part)), at), (E.is_not_null(registers.since(part)), at_register)])

        theirs = f"struct({', '.join(map(E.quote, stored.columns))}) AS {THEIRS}"
        return stored.selectExpr(*self._statement(STORED, E.quote, is_dead, since), theirs)

    def _truncates(self, keys_of_rows: DataFrame, truncates: Sequence[Watermark]) -> DataFrame:
        """Return a tombstone of each key for each truncate (T1)."""
        own, found = self.definition, [watermark_sql(at, self.definition) for at in truncates]
        structs = [self._at(self.authors.of(at), TRUNCATE) for at in found if at is not None]
        keys = [f"k{i}" for i in range(len(own.primaryKey))]
        marks = [f"{value} AS w{i}" for i, value in enumerate(self.authors.watermark(Sql("at.a")))]
        defaults = [part.value(self._default(part.path[0])) for part in self.parts]
        parts = [item for i, value in enumerate(defaults) for item in (f"{value} AS v{i}", f"at AS s{i}")]
        exploded = keys_of_rows.selectExpr(*keys, f"explode(array({', '.join(structs)})) AS at")
        return exploded.selectExpr(*keys, *marks, f"{TRUNCATE} AS {_RANK}", f"{E.TRUE} AS {_IS_DEAD}", *parts)

    def _filled(self, rows: DataFrame) -> DataFrame:
        own = self.definition
        key = ", ".join(f"k{i}" for i in range(len(own.primaryKey)))
        marks = [f"w{i}" for i in range(len(own.watermarkKey))]
        order = ", ".join(Order(tuple(map(Sql, marks)), (Sql(_RANK),)).oldest_first())
        here = f"struct({', '.join([*(f'{w} AS {w}' for w in marks), f'{_RANK} AS r'])})"
        follows = f"lead({here})"
        if self.changes is not None:
            follows = f"lead(CASE WHEN {_RANK} <> {OF_OLD_KEY} THEN {here} END) IGNORE NULLS"
        placed = rows.selectExpr(
            "*",
            f"dense_rank() OVER (PARTITION BY {key} ORDER BY {order}) AS {_PLACE}",
            f"{follows} OVER (PARTITION BY {key} ORDER BY {order}) AS {_NEXT}",
        )
        before = f"(PARTITION BY {key} ORDER BY {_PLACE} RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        beside = f"(PARTITION BY {key} ORDER BY {_PLACE} RANGE BETWEEN CURRENT ROW AND CURRENT ROW)"
        found = [item for i in range(len(self.parts)) for item in (
            f"max_by(struct(s{i} AS s, v{i} AS v), s{i}) OVER {before} AS b{i}",
            f"max({self._sets(i)}) OVER {beside} AS p{i}",
        )]  # fmt: skip
        marked = ", ".join([*(f"{w} AS {w}" for w in marks), f"NOT {_IS_DEAD} AS live"])
        latest = f"max(CASE WHEN {_RANK} = {STORED} THEN struct({marked}) END) OVER (PARTITION BY {key}) AS {_LATEST}"
        changes = [f"{E.opaque(self._changes(i, part))} AS m{i}" for i, part in enumerate(self.parts)]
        by = [f"CASE WHEN m{i} THEN b{i}.s.a ELSE s{i}.a END" for i in range(len(self.parts))]
        by = [f"{E.opaque(Sql(author))} AS a{i}" for i, author in enumerate(by)]
        return placed.selectExpr("*", latest, *found).selectExpr("*", *changes).selectExpr("*", *by)

    def _changes(self, i: int, part: Part) -> Sql:
        """Return SQL that is true if a part of a row is set by an earlier row, later than its own register is. Never null."""
        fills = E.all_of([E.is_not_null(Sql(f"b{i}")), E.or_else(Sql(f"b{i}.s > s{i}"), E.TRUE)])
        if not self.mends:
            return E.all_of([self.is_written, fills])
        theirs, mine, values = Sql(f"b{i}.s.a"), Sql(f"s{i}.a"), [Sql(f"b{i}.v"), Sql(f"v{i}")]
        is_equal = E.same(*(values if part.inside else [comparable(value, part.type) for value in values]))
        corrected = E.all_of([E.equals(theirs, mine), Sql(f"b{i}.s.r > s{i}.r"), E.not_(is_equal)])
        is_later = E.any_of([E.is_null(Sql(f"s{i}")), Sql(f"{theirs} > {mine}"), corrected])
        mends = E.all_of([E.is_not_null(Sql(f"b{i}")), E.or_else(is_later, E.FALSE)])
        return E.case([(self.is_written, fills), (E.equals(Sql(_RANK), E.number(STORED)), mends)], E.FALSE)

    # Results ----------------------------------------------------------------------------------------------------------

    @property
    def is_written(self) -> Sql:
        return E.equals(Sql(_RANK), E.number(WRITTEN))

    @property
    def latest(self) -> Sql:
        """The watermark of the latest stored row of the key, ``w0`` and so on, and whether it is ``live``; null without one."""
        return Sql(_LATEST)

    def value(self, name: str) -> Sql:
        return self._value(next(part for part in self.columns if part.path[0] == name))

    def _value(self, part: Part) -> Sql:
        value = self._register(part)
        if not part.inside:
            return value
        fields = (f"{self._value(inside)} AS {E.quote(inside.path[-1])}" for inside in part.inside)
        return E.case([(E.is_not_null(value), Sql(f"struct({', '.join(fields)})"))])

    def _register(self, part: Part) -> Sql:
        """Return the value of a part: the row's own, or that of the last row before it that sets the part."""
        i = self._index[part.id]
        is_unset = E.all_of([self.is_written, E.not_(self._sets(i))])
        default = part.value(self._default(part.path[0]))
        return E.case([(Sql(f"m{i}"), Sql(f"b{i}.v")), (is_unset, default)], Sql(f"v{i}"))

    def _sets(self, i: int) -> Sql:
        """Return SQL that is true if a row to write sets a part itself. Never null."""
        return self.authors.is_row(Sql(f"s{i}.a"))

    @property
    def is_mended(self) -> Sql:
        """True for stored rows that change, and that no row to write replaces: without history, only the latest can (U4)."""
        marks = range(len(self.definition.watermarkKey))
        if self.definition.history:
            same = [E.same(Sql(f"{_NEXT}.w{n}"), Sql(f"w{n}")) for n in marks]
            is_same = E.all_of([Sql(f"{_NEXT}.r = {WRITTEN}"), *same])
            replaced = Sql(f"coalesce({is_same}, false)")
        else:
            replaced = E.is_not_null(Sql(_NEXT))
        changes = E.any_of(Sql(f"m{i}") for i in range(len(self.parts)))
        return E.all_of([E.equals(Sql(_RANK), E.number(STORED)), E.not_(Sql(_IS_DEAD)), E.not_(replaced), changes])

    @property
    def unset(self) -> Sql:
        """The parts that a row leaves unset, as :data:`C.UNSET` holds them."""
        marks = range(len(self.definition.watermarkKey))
        if not marks:
            return as_map([])
        mine: list[tuple[Part, Sql, Sql]] = []
        theirs: list[tuple[Part, Sql, Sql]] = []
        for i, part in enumerate(self.parts):
            by, authors = Sql(f"a{i}"), self.authors
            known = E.case([(E.is_not_null(by), authors.as_texts(by))], NO_TEXTS)
            same = [E.same(at, Sql(f"w{n}")) for n, at in enumerate(authors.watermark(by))]
            is_now = E.all_of([authors.is_row(by), *same])
            mine.append((part, E.all_of([E.not_(is_now), E.not_(Sql(f"p{i}"))]), known))
            if self.mends:
                kept = registers.since(part, THEIRS)
                theirs.append((part, registers.is_unset(part, THEIRS), E.case([(Sql(f"m{i}"), known)], kept)))
        return E.case([(self.is_written, E.case([(E.not_(Sql(_IS_DEAD)), as_map(mine))]))], as_map(theirs))

    @property
    def fillers(self) -> Sql:
        """The places of rows that a row takes values from, each a struct of its key ``k0`` and watermark ``w0`` and so on."""
        keys = [Sql(f"k{i}") for i in range(len(self.definition.primaryKey))]
        places = (self.authors.place(Sql(f"b{i}.s.a"), keys) for i in range(len(self.parts)))
        found = [f"CASE WHEN m{i} THEN {place} END" for i, place in enumerate(places)]
        return Sql(f"array_distinct(filter(array({', '.join(found)}), x -> x IS NOT NULL))")

    def unknown(self, named: Callable[[Part], Sql]) -> Sql:
        """Return the number of columns that a row to write leaves unset, of some, and that no row has set.

        SQL over :data:`MINE`, never null, says which columns are ``named`` and count.
        """
        counts = []
        for column in self.columns:
            i = self._index[column.id]
            is_unknown = E.not_(self.authors.is_known(Sql(f"a{i}")))
            counts.append(E.all_of([is_unknown, E.not_(Sql(f"p{i}")), named(column)]))
        count = Sql(f"size(filter(array({', '.join(counts)}), x -> x))") if counts else E.number(0)
        return E.case([(E.all_of([self.is_written, E.not_(Sql(_IS_DEAD))]), count)], E.number(0))


def warn_unknown(path: str, count: int) -> None:
    """Log a warning, once per process and table, if rows leave columns unchanged that no row has set."""
    if not count or path in _warned:
        return
    _warned.add(path)
    _logger.warning(
        "%s: events leave %d values unchanged that no event has set: they are null, or have their default, until an event arrives "
        "that sets them. If none will (a feed that began in the middle, or a row whose key was changed), send the whole rows: an "
        "incremental snapshot, or REPLICA IDENTITY FULL in PostgreSQL.",
        path,
        count,
    )


def may_mend(
    store: TableStore, definition: TableDefinition, batch: Batch, keys: KeyRange, others: Iterable[Batch]
) -> bool:
    """Return False if no row of a batch can be older than a stored row of its key that leaves something unset (U3)."""
    unset = [b for b in others if b.partial and not is_at_least(batch.watermark_min, b.watermark_max, definition)]
    return any(b.moved for b in unset) or bool(unset and prune_batches(store, definition, unset, [keys]))


def with_mended(compiled: Compiled, store: TableStore, snapshot: Snapshot, names_fillers: bool = False) -> Compiled:
    """Return the rows of a merge, which set all columns, evaluated once, and the stored rows that they mend (U4).

    With ``names_fillers``, mended rows have :data:`C.FILLERS`.
    """
    own, registers = snapshot.definition, Registers.of(snapshot)
    rows = materialize(compiled.rows).frame
    written = rows.filter(C.KEEP).selectExpr(*[E.quote(f.name) for f in own.stored_fields])
    values = {f.name: E.quote(f.name) for f in own.stored_fields}
    whole = Written(written, values, E.is_tombstone(own), lambda _: E.FALSE)
    registers = registers.with_key_changes(store, snapshot, whole)
    found = registers.resolved(store, snapshot, whole)
    marks = [f"w{i}" for i in range(len(own.watermarkKey))]
    is_latest = E.all_of(E.same(E.field_of(registers.latest, w), Sql(w)) for w in marks)
    effect = E.case([(is_latest, E.text_literal(UPDATED.text))], E.text_literal(NO_EFFECT.text))
    told: dict[str, Sql] = {
        **{f.name: E.field_of(Sql(THEIRS), f.name) for f in own.stored_fields},
        **{part.path[0]: registers.value(part.path[0]) for part in registers.columns},
        C.KEEP: E.TRUE,
        C.ACTION: E.text_literal("mend"),
        C.UNSET: registers.unset,
        C.MENDED: E.TRUE,
        C.UNKNOWN: E.number(0),
        **({C.EFFECT: effect} if compiled.knows_counts else {}),
        **dict.fromkeys((C.PURGED, C.TRUNCATED), E.FALSE),
        C.ENDING: E.number(0),
    }
    asked = rows.selectExpr("*", f"{as_map([])} AS {C.UNSET}", f"{E.FALSE} AS {C.MENDED}", f"0 AS {C.UNKNOWN}")
    shown = [f"{E.cast(told.get(f.name, E.NULL), f.dataType)} AS {E.quote(f.name)}" for f in asked.schema.fields]
    shown += [f"{registers.fillers} AS {C.FILLERS}"] if names_fillers else []
    mended = found.filter(registers.is_mended).selectExpr(*shown)
    return attrs.evolve(compiled, rows=asked.unionByName(mended, allowMissingColumns=names_fillers))


def unset_keys(store: TableStore, snapshot: Snapshot) -> DataFrame:
    """Return the keys of all stored rows that leave something unset."""
    batches = Batches(snapshot.definition, tuple(b for b in snapshot.batches if b.partial))
    rows = store.scan(batches, [UNSET_FIELD]).filter(E.is_not_null(C.UNSET))
    return rows.selectExpr(*keys_to_find(snapshot.definition))
