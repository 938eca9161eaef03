"""The rows of a merge beside the stored rows of their keys, filled and mended (U1, U4), also under earlier keys (U7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
from pyspark.sql import DataFrame

from trinitymerge.history.versions import Timeline
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.row_kinds import NO_EFFECT, UPDATED
from trinitymerge.merge.compile import earlier_keys
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.compile.key_timeline import STORED, TRUNCATE, WRITTEN, KeyTimeline, row_items, set_at
from trinitymerge.merge.compile.strategies import Compiled
from trinitymerge.reader import keys_to_find, latest_rows, prune_batches, semi_join
from trinitymerge.rows import registers as rows_registers
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.rows.registers import UNSET_FIELD, Part, Registers, as_map
from trinitymerge.rows.watermarks import Watermark, is_at_least, watermark_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore


@attrs.frozen(eq=False)
class Written:
    """The rows to write, before what they leave unset is filled.

    Attributes:
        rows: of any columns; they are part of the result as the struct :data:`C.ROW_TO_WRITE`.
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

    def key(self, own: TableDefinition) -> list[Sql]:
        return [self.values[k] for k in own.primaryKey]

    def watermark(self, own: TableDefinition) -> list[Sql]:
        return [self.values[w] for w in own.watermarkKey]


def timeline_of(
    registers: Registers,
    store: TableStore,
    snapshot: Snapshot,
    written: Written,
    truncates: Sequence[Watermark] = (),
    truncates_now: bool = False,
) -> KeyTimeline:
    """Return the rows to write and the stored rows of their keys, filled. Rows to write are evaluated if they have old keys.

    The ``truncates`` are those of the table and of the merge. If the merge ``truncates_now``, all keys are looked at.
    """
    own, everywhere = registers.definition, truncates_now and registers.has_partial  # a truncate sets null in all keys
    changes = None
    if written.old_key or snapshot.has_moved:
        registers = attrs.evolve(registers, moves=True)
        places = [*C.ROW_KEY.of(written.key(own)), *C.ROW_WATERMARK.of(written.watermark(own))]
        late = None if everywhere else written.rows.selectExpr(*places)
        found = earlier_keys.key_changes(store, snapshot, _moved(registers, written), late)
        changes = found if found.rows else None
    keys = written.rows.selectExpr(*C.KEY_TO_FIND.of(written.key(own)))
    if changes is not None:
        keys = keys.unionByName(earlier_keys.keys_in(changes.frame, own))
    if everywhere:
        partial = Batches(own, tuple(b for b in snapshot.batches if b.partial))
        unset = store.scan(partial, [UNSET_FIELD]).filter(E.is_not_null(C.UNSET))
        keys = keys.unionByName(unset.selectExpr(*keys_to_find(own)))
    stored = _stored(registers, store, snapshot, keys)
    rows = _written(registers, written).unionByName(stored, allowMissingColumns=True)
    if truncates:
        known = keys.selectExpr(*C.ROW_KEY.of(C.KEY_TO_FIND.all(own.primaryKey))).distinct()
        rows = rows.unionByName(_truncates(registers, known, truncates), allowMissingColumns=True)
    if changes is not None:
        rows = rows.unionByName(earlier_keys.brought(rows, changes, registers), allowMissingColumns=True)
    return KeyTimeline.of(registers, rows, has_old_keys=changes is not None)


def _moved(registers: Registers, written: Written) -> DataFrame | None:
    """Return the changes of keys among rows to write that leave something unset (:func:`earlier_keys.key_changes`)."""
    if not written.old_key:
        return None
    own = registers.definition
    is_moved = E.all_of([written.moves, E.any_of(map(written.unset, registers.parts))])
    by = registers.authors.of(written.watermark(own), written.old_key)
    return written.rows.filter(is_moved).selectExpr(*C.ROW_KEY.of(written.key(own)), f"{by} AS {C.CHAIN}")


def _written(registers: Registers, written: Written) -> DataFrame:
    own, authors, is_dead = registers.definition, registers.authors, written.is_dead
    key, watermark = written.key(own), written.watermark(own)
    at, old_key = set_at(authors.of(watermark), WRITTEN), written.old_key
    moved = [(written.moves, set_at(authors.of(watermark, old_key), WRITTEN))] if old_key else []
    values, since = [], []
    for part in registers.parts:
        unset, value = written.unset(part), part.value(written.values[part.path[0]])
        brings = [E.all_of([moves, unset]) for moves, _ in moved]
        values.append(E.opaque(E.case([(E.any_of([is_dead, *brings]), registers.default(part))], value)))
        sets = E.any_of([is_dead, E.not_(unset)])
        since.append(E.opaque(at if unset == E.FALSE else E.case([(sets, at), *moved])))
    mine = f"struct({', '.join(map(E.quote, written.rows.columns))}) AS {C.ROW_TO_WRITE}"
    return written.rows.selectExpr(*row_items(key, watermark, WRITTEN, is_dead, values, since), mine)


def _stored(registers: Registers, store: TableStore, snapshot: Snapshot, keys: DataFrame) -> DataFrame:
    """Return the stored rows of some keys: with history all row versions, otherwise the latest rows."""
    own, authors, extra = snapshot.definition, registers.authors, (UNSET_FIELD,) if registers.has_partial else ()
    if own.history and own.watermarkKey:
        timeline = Timeline(store, own, extra)
        rows = timeline.in_order(semi_join(timeline.scan(snapshot.batches), own, keys))
    else:
        rows = latest_rows(store, Batches.of(snapshot), keys, extra=extra)
    stored = rows.selectExpr(*(E.quote(f.name) for f in (*own.stored_fields, *extra)))
    is_dead, key, watermark = E.is_tombstone(own), [*map(E.quote, own.primaryKey)], [*map(E.quote, own.watermarkKey)]
    at, values, since = set_at(authors.of(watermark), STORED), [], []
    for part in registers.parts:
        value, set_here = E.case([(is_dead, registers.default(part))], part.value(E.quote(part.path[0]))), at
        if registers.has_partial:
            texts = rows_registers.since(part)
            register = (E.is_not_null(texts), set_at(authors.from_texts(texts), STORED))
            set_here = E.case([(E.not_(rows_registers.is_unset(part)), at), register])
        values.append(E.opaque(value))
        since.append(E.opaque(set_here))
    theirs = f"struct({', '.join(map(E.quote, stored.columns))}) AS {C.ROW_AS_STORED}"
    return stored.selectExpr(*row_items(key, watermark, STORED, is_dead, values, since), theirs)


def _truncates(registers: Registers, keys: DataFrame, truncates: Sequence[Watermark]) -> DataFrame:
    """Return a tombstone of each key for each truncate (T1)."""
    authors, names = registers.authors, keys.columns
    found = [watermark_sql(at, registers.definition) for at in truncates]
    structs = ", ".join(set_at(authors.of(at), TRUNCATE) for at in found if at is not None)
    exploded = keys.selectExpr(*names, f"explode(array({structs})) AS {C.TRUNCATED_AT}")
    watermark = authors.watermark(Sql(f"{C.TRUNCATED_AT}.author"))
    values, since = map(registers.default, registers.parts), [C.TRUNCATED_AT for _ in registers.parts]
    return exploded.selectExpr(*row_items(map(Sql, names), watermark, TRUNCATE, E.TRUE, values, since))


def may_mend(
    store: TableStore, definition: TableDefinition, batch: Batch, keys: KeyRange, others: Iterable[Batch]
) -> bool:
    """Return False if no row of a batch can be older than a stored row of its key that leaves something unset (U3)."""
    unset = [b for b in others if b.partial and not is_at_least(batch.watermark_min, b.watermark_max, definition)]
    return any(b.moved for b in unset) or bool(unset and prune_batches(store, definition, unset, [keys]))


def with_mended(compiled: Compiled, store: TableStore, snapshot: Snapshot, names_fillers: bool = False) -> Compiled:
    """Return the rows of a merge, which set all columns, and the stored rows that they mend (U4).

    The rows are evaluated, unless they have been. With ``names_fillers``, mended rows have :data:`C.FILLERS`.
    """
    own = snapshot.definition
    rows = compiled.rows if compiled.is_evaluated else materialize(compiled.rows).frame
    written = rows.filter(C.KEEP).selectExpr(*[E.quote(f.name) for f in own.stored_fields])
    values = {f.name: E.quote(f.name) for f in own.stored_fields}
    whole = Written(written, values, E.is_tombstone(own), lambda _: E.FALSE)
    found = timeline_of(Registers.of(snapshot), store, snapshot, whole)
    marks = C.ROW_WATERMARK.all(own.watermarkKey)
    is_latest = E.all_of(map(E.same, E.numbered_in(C.LATEST_STORED, "w", marks), marks))
    effect = E.case([(is_latest, E.text_literal(UPDATED.text))], E.text_literal(NO_EFFECT.text))
    told: dict[str, Sql] = {
        **{f.name: E.field_of(C.ROW_AS_STORED, f.name) for f in own.stored_fields},
        **{part.path[0]: found.value(part.path[0]) for part in found.registers.columns},
        C.KEEP: E.TRUE,
        C.ACTION: E.text_literal("mend"),
        C.UNSET: found.unset,
        C.MENDED: E.TRUE,
        C.UNKNOWN: E.number(0),
        **({C.EFFECT: effect} if compiled.knows_counts else {}),
        **dict.fromkeys((C.PURGED, C.TRUNCATED), E.FALSE),
        C.ENDING: E.number(0),
    }
    asked = rows.selectExpr("*", f"{as_map([])} AS {C.UNSET}", f"{E.FALSE} AS {C.MENDED}", f"0 AS {C.UNKNOWN}")
    shown = [f"{E.cast(told.get(f.name, E.NULL), f.dataType)} AS {E.quote(f.name)}" for f in asked.schema.fields]
    shown += [f"{found.fillers} AS {C.FILLERS}"] if names_fillers else []
    mended = found.rows.filter(found.is_mended).selectExpr(*shown)
    return attrs.evolve(compiled, rows=asked.unionByName(mended, allowMissingColumns=names_fillers))
