"""Steps: compute values, one row per row to write, the stored columns (S9, S10, S22, S23)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column
from pyspark.sql.types import IntegerType, LongType, StringType

from trinitymerge.merge.analysis import row_kinds
from trinitymerge.merge.analysis.relations import choose
from trinitymerge.merge.compile.program import NEEDS_TARGET, MergeProgram, before_watermarks, by_slot
from trinitymerge.merge.compile.steps import Select, Step
from trinitymerge.rows.equality import comparable
from trinitymerge.rows.resolution import is_older
from trinitymerge.rows.tombstones import live_marker, masked, non_key_fields, null_value, tombstone_marker
from trinitymerge.rows.watermarks import raised_to
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import cast_failure, cast_to_column
from trinitymerge.spark.sql_text import Sql, as_sql


def raw_values(
    program: MergeProgram, codes: Iterable[int] | None = None, fired: Sql = C.FIRED
) -> dict[str, Sql | Column]:
    """Return values that are Columns, checked or used twice, each only on rows of its clause. ``codes`` None: of all firings."""
    raws: dict[str, Sql | Column] = {}
    for code in program.by_code if codes is None else codes:
        firing = program.by_code[code]
        for slot in firing.slots:
            for i, field in enumerate(program.definition.stored_fields):
                value = program.slots[slot].row.values[field.name]
                if isinstance(value, row_kinds.Expression) and _is_evaluated_first(program, value, field):
                    given = as_sql(value.value) if isinstance(value.value, str) else value.value
                    raws[C.RAW(slot, i)] = choose([(E.opaque(E.equals(fired, E.number(code))), given)], E.NULL)
    return raws


def _evaluate(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add RAW, from FIRED and the columns of both sides; it is null on rows of other clauses."""
    raws = {} if program.is_one_by_one else raw_values(program)
    return (Select.adding(raws),) if raws else ()


def _is_evaluated_first(program: MergeProgram, value: row_kinds.Expression, field: Field) -> bool:
    is_twice = field.name in program.used_twice or value.or_kept or bool(program.compared)
    return value.way.may_fail or is_twice or program.is_one_by_one or not isinstance(value.value, str)


def _stored_value(program: MergeProgram, slot: int, field: Field) -> Sql:
    """Return the value a slot gives to a column, as SQL over the joined sides."""
    value = program.slots[slot].row.values[field.name]
    if isinstance(value, row_kinds.Expression):
        if _is_evaluated_first(program, value, field):
            text = C.RAW(slot, program.definition.stored_fields.index(field))
        else:
            text = as_sql(str(value.value))
        new = cast_to_column(text, value.way, field, field.name in program.definition.primaryKey, value.type)
        kept = program.analysis.target.column(field.name)
        return E.case([(E.is_null(text), kept)], new) if value.or_kept else new
    if isinstance(value, row_kinds.FromTarget):
        return program.analysis.target.column(field.name)
    if isinstance(value, row_kinds.TombstoneMarker):
        return tombstone_marker(program.definition)
    if isinstance(value, row_kinds.LiveMarker):
        return live_marker(program.definition)
    if isinstance(value, row_kinds.Null):
        return null_value(field)
    if isinstance(value, row_kinds.FromReplacedRow):
        return E.null_of(field)
    raise AssertionError(f"unknown value {value!r}")


EVALUATE = Step(
    "evaluate",
    "values that are checked, used twice or given as Columns are evaluated once, and only on rows of their clause",
    _evaluate,
)


def _explode(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add SLOT, from FIRED: one row per row to be written; a row without any keeps a null slot.

    FIRING is added if inserts stand beside moves.
    """
    # These numbers may come out otherwise if a task is repeated; the probe, which such programs always have, evaluates once.
    numbered = (Select.adding({C.FIRING: Sql("monotonically_increasing_id()")}),) if program.beside_moves else ()
    if not program.multiplies:
        slots = {code: E.number(firing.slots[0]) for code, firing in program.by_code.items()}
        if not program.knows_target:
            slots[NEEDS_TARGET] = E.number(NEEDS_TARGET)
        return (*numbered, Select.adding({C.SLOT: E.opaque(E.decode(C.FIRED, slots))}))
    arrays = {code: Sql(f"array({', '.join(map(str, f.slots))})") for code, f in program.by_code.items()}
    return (*numbered, Select.adding({C.SLOT: Sql(f"explode({E.decode(C.FIRED, arrays)})")}))


EXPLODE = Step("explode", "one row for each row to be written", _explode)


def _project(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Return the stored columns, CLAUSE, COUNTS_FOR_CLAUSE, ACTION and MISFIT, with SLOT, LIVE, BEFORE and FIRING as before.

    RAW and both sides come in. Some programs add NEW_KEY, OLD_KEY, BECOMES_TOMBSTONE, IS_STALE_CHANGE, UNCHANGED or JOINED_ROWS.
    """
    written = {
        f.name: E.cast(
            E.opaque(by_slot({n: _stored_value(program, n, f) for n in range(len(program.slots))})), E.physical_type(f)
        )
        for f in program.definition.stored_fields
    }
    before = (C.LIVE, *before_watermarks(program.definition)) if program.knows_target else ()
    firing = (C.FIRING,) if program.beside_moves else ()
    passed_on: dict[str, Sql] = {name: name for name in (C.SLOT, *before, *firing)}
    return (Select.only({**written, **passed_on, **_known_of(program)}),)


def _known_of(program: MergeProgram) -> dict[str, Sql]:
    """Return what is known of each row beside what it stores, and has not been known before."""
    action = {n: E.text_literal(s.row.called(program.knows_target)) for n, s in enumerate(program.slots)}
    clause = by_slot({n: E.number(s.row.clause + 1) for n, s in enumerate(program.slots) if s.row.clause >= 0})
    known: dict[str, Sql] = {
        C.CLAUSE: E.cast(clause, IntegerType()),
        C.COUNTS_FOR_CLAUSE: E.cast(_stands_for(program), IntegerType()),
        C.ACTION: E.cast(by_slot(action), StringType()),
        C.MISFIT: _misfits(program),
    }
    if program.moves:
        known |= _keys_of_moves(program)
    if program.beside_changes:
        known[C.IS_STALE_CHANGE] = _late(program)
    if program.compared:
        known[C.UNCHANGED] = _unchanged(program)
    if program.superseding:
        known[C.JOINED_ROWS] = _sides(program)
    if program.stored_column:
        told = Sql(E.quote(program.stored_column))
        known[C.LIVE] = E.field_of(told, "live")
        before = before_watermarks(program.definition)
        found = [E.field_of(told, f"w{i}") for i in range(len(before))]
        known |= dict(zip(before, raised_to(found, program.truncated_at, program.definition), strict=True))
    if program.has_registers:
        known |= {name: E.field_of(E.quote(program.stored_column), name) for name in (C.UNSET, C.MENDED, C.UNKNOWN)}
    if program.kept_source:
        # Where the target is not read, a source row writes one row, and has no number.
        number = C.SOURCE_ROW if program.knows_target else E.cast(E.NULL, LongType())
        known |= {C.SOURCE_COLUMNS: C.SOURCE_COLUMNS, C.SOURCE_ROW: number}
    return known


def _sides(program: MergeProgram) -> Sql:
    """Of a row that replaces another one in a clause with history inserts: both rows that it comes from (S27)."""
    outbox_plan = program.analysis.outbox_plan
    assert outbox_plan is not None
    sides = C.JOINED_ROWS if program.is_one_by_one else outbox_plan.scope.sides
    return E.opaque(by_slot(dict.fromkeys(program.superseding, sides)))


def _stands_for(program: MergeProgram) -> Sql:
    """Return the clause whose firing is counted by the row; on rows of which nothing is known, whether they are undecided."""
    if not program.knows_target:
        return E.case([(E.equals(C.SLOT, E.number(NEEDS_TARGET)), E.number(NEEDS_TARGET))])
    return by_slot({f.slots[0]: E.number(f.clause + 1) for f in program.firings if not f.is_recorded_delete})


def _misfits(program: MergeProgram) -> Sql:
    """Return a row's first value that does not fit; what a tombstone does not hold need not (S9)."""
    found = {n: _misfits_of(program, n) for n in range(len(program.slots))}
    return E.cast(E.opaque(by_slot({n: _first_of(texts) for n, texts in found.items() if texts})), StringType())


def _first_of(texts: Sequence[Sql]) -> Sql:
    return Sql(f"coalesce({', '.join([E.cast(E.NULL, StringType()), *texts])})")


def _misfits_of(program: MergeProgram, slot: int) -> list[Sql]:
    definition, values = program.definition, program.slots[slot].row.values
    unheld = {f.name for f in non_key_fields(definition)}
    always: list[Sql] = []
    if_alive: list[Sql] = []
    for i, field in enumerate(definition.stored_fields):
        value = values[field.name]
        if isinstance(value, row_kinds.Expression):
            text = cast_failure(C.RAW(slot, i), value.way, field, field.name in definition.primaryKey, value.type)
            if text is not None:
                (if_alive if field.name in unheld else always).append(text)
    if if_alive and isinstance(values[definition.tombstone_column], row_kinds.Expression):
        tombstone = _stored_value(program, slot, definition.field(definition.tombstone_column))
        if_alive = [E.case([(E.not_(E.is_tombstone(definition, tombstone)), _first_of(if_alive))])]
    return [*always, *if_alive]


def _late(program: MergeProgram) -> Sql:
    """Return SQL that is true if the update or delete beside an insert is stale, as far as the joined row shows (S11, S21a)."""
    names, before = program.definition.watermarkKey, before_watermarks(program.definition)
    late = {}
    in_place = {n: change for n, change in program.beside_changes.items() if n not in program.beside_moves}
    for insert, change in in_place.items():
        values = program.slots[change].row.values
        written = [
            b
            if isinstance(values[w], row_kinds.FromReplacedRow)
            else _stored_value(program, change, program.definition.field(w))
            for w, b in zip(names, before, strict=True)
        ]
        late[insert] = is_older(written, before)
    return E.or_else(by_slot(late), E.FALSE)


def _unchanged(program: MergeProgram) -> Sql:
    """Return SQL that is true if an update would write what is there, its watermark apart (S22b)."""
    own = program.definition
    fields = [f for f in own.stored_fields if f.name not in own.watermarkKey]

    def is_same(slot: int, field: Field) -> Sql:
        kind = E.physical_type(field)
        written = E.cast(_stored_value(program, slot, field), kind)
        return E.same(comparable(written, kind), comparable(program.analysis.target.column(field.name), kind))

    differing = {
        n: [f for f in fields if not isinstance(program.slots[n].row.values[f.name], row_kinds.FromTarget)]
        for n in program.compared
    }
    equal = {n: E.all_of([_fits(program, n), *(is_same(n, f) for f in some)]) for n, some in differing.items()}
    return E.or_else(by_slot(equal), E.FALSE)


def _fits(program: MergeProgram, slot: int) -> Sql:
    """Return SQL that is true if all values fit their columns; others are null there and cannot be compared."""
    misfits = _misfits_of(program, slot)
    return E.is_null(_first_of(misfits)) if misfits else E.TRUE


def _keys_of_moves(program: MergeProgram) -> dict[str, Sql]:
    """Return, for each row of a moving update, its old key, its new key, and whether it is a tombstone."""
    keys: dict[str, Sql] = {}
    for k, key in enumerate(program.definition.primaryKey):
        keys[C.NEW_KEY(k)] = _moved_value(program, program.definition.field(key))
        keys[C.OLD_KEY(k)] = program.analysis.target.column(key)
    tombstone = _moved_value(program, program.definition.field(program.definition.tombstone_column))
    return {**keys, C.BECOMES_TOMBSTONE: E.is_tombstone(program.definition, tombstone)}


def _moved_value(program: MergeProgram, field: Field) -> Sql:
    """Return what a moving update gives to a column; the tombstone left behind follows its update."""
    new = {n: _stored_value(program, n, field) for n in program.departures.values()}
    new |= {left: new[moved] for left, moved in program.departures.items()}
    return E.cast(by_slot(new), E.physical_type(field))


PROJECT = Step("project", "the stored columns of each row, and what is known of the row it replaces", _project)


def _strip_tombstones(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Set the columns outside key, watermark and tombstone, from the tombstone column."""
    blanks = masked(program.definition) if program.brings_tombstones else {}
    return (Select.setting(present, blanks),) if blanks else ()


STRIP_TOMBSTONES = Step(
    "strip_tombstones",
    "rows that have turned out to be tombstones hold key, watermark and tombstone only (S9)",
    _strip_tombstones,
)
