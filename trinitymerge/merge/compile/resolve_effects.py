"""Steps: what each written row means once its key's latest row is known (S11, S21a, S24-S26)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StringType

from trinitymerge.merge.analysis.row_kinds import DELETED, INSERTED, LATE, NO_EFFECT, UPDATED, Case, FromReplacedRow
from trinitymerge.merge.compile.program import MergeProgram, before_watermarks, by_slot, in_slots, where_slots
from trinitymerge.merge.compile.steps import Select, Selects, Step
from trinitymerge.rows import tie_breaking
from trinitymerge.rows.resolution import is_older
from trinitymerge.rows.tombstones import zero
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.predicates import holds_null
from trinitymerge.spark.sql_text import Sql


def _resolve_keys(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add CHANGED, KEY_LIVE and KEY_WATERMARK, from SLOT, OLD_KEY, NEW_KEY, LIVE, BEFORE, FOUND_LIVE, FOUND_WATERMARK."""
    keys, before = range(len(program.definition.primaryKey)), before_watermarks(program.definition)
    moving = in_slots(sorted({*program.departures, *program.departures.values()}))
    stays = E.all_of(E.same(C.NEW_KEY(i), C.OLD_KEY(i)) for i in keys)
    changed = E.all_of([moving, E.not_(stays)]) if program.moves else E.FALSE
    if not program.unknown:
        return (Select.adding({C.CHANGED: changed}),)
    unknown = in_slots(program.unknown)
    key_live = E.or_else(E.case([(unknown, C.FOUND_LIVE)], C.LIVE), E.FALSE)
    values: dict[str, Sql] = {C.CHANGED: changed, C.KEY_LIVE: key_live}
    found = [C.FOUND_WATERMARK(i) for i in range(len(before))]
    for i, mine in enumerate(before):
        # A move replaces the row it leaves and the row at its new key: the fresher of the two.
        fresher = E.case([(E.all_of([moving, E.not_(is_older(before, found))]), mine)], found[i])
        values[C.KEY_WATERMARK(i)] = E.case([(unknown, fresher if program.moves else found[i])], mine)
    return (Select.adding(values),)


def _key_watermarks(program: MergeProgram) -> list[Sql]:
    """Return the watermark of the row stored under the written key: as looked up, or as joined."""
    joined = before_watermarks(program.definition)
    return [C.KEY_WATERMARK(i) for i in range(len(joined))] if program.unknown else joined


def _assign_watermarks(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Set the watermark and add IS_STALE, from SLOT, CHANGED, BEFORE and KEY_WATERMARK; without a lookup, from SLOT and BEFORE."""
    if not program.definition.watermarkKey:
        return (Select.setting(present, {C.IS_STALE: E.FALSE}),)
    names, before = program.definition.watermarkKey, _key_watermarks(program)
    mine = _filled(program, [_or_zero(program, *pair) for pair in zip(names, before, strict=True)])
    stale = E.all_of([is_older(mine, before), E.not_(in_slots(program.recording))])
    if program.moves:
        return (Select.setting(present, _date_moves(program, mine, stale)),)
    if program.on_stale == "force":
        mine = [E.case([(stale, b)], m) for m, b in zip(mine, before, strict=True)]
        stale = E.FALSE
    return (Select.setting(present, {**dict(zip(names, mine, strict=True)), C.IS_STALE: stale}),)


def _date_moves(program: MergeProgram, mine: list[Sql], stale: Sql) -> dict[str, Sql]:
    """Return the same where rows may move: the tombstone left behind replaces the pre-image alone, and both are stale together."""
    keys = program.definition.watermarkKey
    pre = before_watermarks(program.definition)
    left = _filled(program, pre)
    left_stale = E.all_of([C.CHANGED, is_older(left, pre)])
    stale = E.any_of([stale, left_stale])
    leaves = in_slots(program.departures)
    if program.on_stale == "force":
        before = _key_watermarks(program)
        mine = [E.case([(stale, b)], m) for m, b in zip(mine, before, strict=True)]
        left = [E.case([(left_stale, b)], w) for w, b in zip(left, before, strict=True)]
        stale = E.FALSE
    both = zip(keys, mine, left, strict=True)
    return {**{k: E.case([(leaves, w)], m) for k, m, w in both}, C.IS_STALE: stale}


def _filled(program: MergeProgram, replaced: list[Sql]) -> list[Sql]:
    """Return the watermark of each row; columns that no clause assigns come from the replaced row (S10.3)."""
    filled = []
    for name, theirs in zip(program.definition.watermarkKey, replaced, strict=True):
        slots = [n for n, s in enumerate(program.slots) if isinstance(s.row.values[name], FromReplacedRow)]
        filled.append(E.case([(in_slots(slots), theirs)], E.quote(name)) if slots else E.quote(name))
    return filled


def _or_zero(program: MergeProgram, name: str, before: Sql) -> Sql:
    """Return the watermark of what a row replaces; the delete of a key that was never written has zero if not null (S18)."""
    field, recorded = program.definition.field(name), in_slots(program.recording)
    if field.nullable or recorded == E.FALSE:
        return before
    return E.case([(recorded, E.or_else(before, zero(field)))], before)


def _suppress_inserts(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add IS_SUPPRESSED, from SLOT, FIRING, IS_STALE and IS_STALE_CHANGE."""
    if not program.beside_changes or program.on_stale == "force":
        return (Select.setting(present, {C.IS_SUPPRESSED: E.FALSE}),)
    suppressed = E.or_else(C.IS_STALE_CHANGE, E.FALSE)
    if program.beside_moves:
        stale_move = E.over(E.any_row(E.all_of([in_slots(program.changing), C.IS_STALE])), [C.FIRING])
        suppressed = E.any_of([suppressed, E.all_of([in_slots(program.beside_moves), stale_move])])
    return (Select.setting(present, {C.IS_SUPPRESSED: suppressed}),)


def _find_conflicting_moves(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add IS_CONFLICTING_MOVE and IS_REPEATED, from SLOT, OLD_KEY, CHANGED, IS_STALE and the stored columns."""
    if not program.moves:
        return (Select.setting(present, {C.IS_CONFLICTING_MOVE: E.FALSE, C.IS_REPEATED: E.FALSE}),)
    changes = E.all_of([in_slots(program.changing), E.not_(C.IS_STALE)])
    stored = program.definition.stored_fields
    row = Sql(f"struct({', '.join(tie_breaking.orderable(f.name, E.physical_type(f)) for f in stored)})")
    content = E.case([(changes, row)])
    # Rows that change nothing have no part in this; their own keys spread them out.
    keys = [E.case([(changes, C.OLD_KEY(i))], E.quote(k)) for i, k in enumerate(program.definition.primaryKey)]
    row_changed = [changes, *keys]
    least, most = (E.over(Sql(f"{which}({content})"), row_changed) for which in ("min", "max"))
    moves = E.over(E.any_row(E.all_of([changes, C.CHANGED])), row_changed)
    conflicting = E.all_of([changes, moves, E.not_(E.same(least, most))])
    # The same move may occur again; it counts once.
    again = Sql(f"{E.over(Sql('row_number()'), row_changed, [C.SLOT])} > 1")
    repeated = E.all_of([changes, C.CHANGED, again])
    return (Select.setting(present, {C.IS_CONFLICTING_MOVE: conflicting, C.IS_REPEATED: repeated}),)


def _find_key_collisions(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add ARRIVES, FREED_BY_DELETE, FREED_BY_MOVE and KEY_TAKEN, from the key and the tombstone column.

    Also reads SLOT, CHANGED, KEY_LIVE (without a lookup LIVE), BECOMES_TOMBSTONE, IS_STALE and IS_SUPPRESSED.
    """
    slots = list(enumerate(program.slots))
    coming = where_slots({n: s.row.targets_live_key() for n, s in slots if s.may_hit_live_key})
    if coming == E.FALSE:
        none: dict[str, Sql] = dict.fromkeys((C.ARRIVES, C.FREED_BY_DELETE, C.FREED_BY_MOVE, C.KEY_TAKEN), E.FALSE)
        return (Select.setting(present, none),)
    is_live = C.KEY_LIVE if program.unknown else E.or_else(C.LIVE, E.FALSE)  # as looked up, or as joined
    arriving = Select.setting(present, {C.ARRIVES: E.all_of([coming, is_live, E.not_(C.IS_SUPPRESSED)])})
    own, is_dead = program.definition, E.is_tombstone(program.definition)
    deletes = where_slots({n: s.row.vacates_by_delete(is_dead, s.row.brings_tombstone(own)) for n, s in slots})
    moves = where_slots({n: s.row.vacates_by_move() for n, s in slots})
    asked: dict[str, Sql] = {C.FREED_BY_DELETE: deletes, C.FREED_BY_MOVE: moves, C.KEY_TAKEN: C.ARRIVES}
    key = [E.quote(k) for k in own.primaryKey]
    values = {name: E.over(E.any_row(E.all_of([does, E.not_(C.IS_STALE)])), key) for name, does in asked.items()}
    return arriving, Select.setting((*present, C.ARRIVES), values)


def _told_effect(program: MergeProgram) -> Sql:
    """Return the effect of each row of a program that does not read its target, if the source shows what its key holds."""
    is_dead, is_live = E.is_tombstone(program.definition), E.or_else(C.LIVE, E.FALSE)
    mine = [E.quote(w) for w in program.definition.watermarkKey]
    is_recorded = E.all_of([in_slots(program.recording), E.not_(is_live)])
    is_late = E.all_of([is_older(mine, before_watermarks(program.definition)), E.not_(is_recorded)])
    cases = [
        *([(E.all_of([is_late, C.MENDED]), NO_EFFECT)] if program.has_registers else []),
        (is_late, LATE),
        (E.all_of([is_dead, is_live]), DELETED),
        (is_dead, NO_EFFECT),
        (is_live, UPDATED),
    ]
    texts = [(condition, E.text_literal(effect.text)) for condition, effect in cases]
    return E.case(texts, E.text_literal(INSERTED.text))


def _first_of(cases: tuple[Case, ...], is_dead: Sql) -> Sql:
    def effect(of: Case) -> Sql:
        live, dead = E.text_literal(of.live.text), E.text_literal(of.dead.text)
        return live if live == dead else E.case([(is_dead, dead)], live)

    *some, last = cases
    return E.case([(one.condition, effect(one)) for one in some], effect(last))


def _left_out(program: MergeProgram) -> Sql:
    """Return SQL that is true if a row is not written after all."""
    definition = program.definition
    keys = definition.primaryKey
    nulls = (E.is_null(E.quote(f.name)) if f.name in keys else holds_null(f) for f in definition.fields)
    storable, is_dead = E.all_of(E.not_(n) for n in nulls if n != E.FALSE), E.is_tombstone(definition)
    skipped = {}
    for n, row in enumerate(s.row for s in program.slots):
        may_die = row.brings_tombstone(definition)
        skipped[n] = E.any_of(row.skip_conditions(is_dead, may_die, storable, program.on_stale))
    return where_slots(skipped)


def _compute_effects(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add EFFECT and KEEP, from the stored columns, SLOT and what the steps before have added.

    Beside a target, only these, the stored columns, CLAUSE, COUNTS_FOR_CLAUSE, ACTION, MISFIT, UNCHANGED and JOINED_ROWS go out.
    """
    if not program.knows_target:
        effect = _told_effect(program) if program.stored_column else E.cast(E.NULL, StringType())
        return (Select.adding({C.EFFECT: effect, C.KEEP: Sql(f"{C.SLOT} >= 0")}),)
    passed_on = (*_PASSED_ON, *program.kept_source, *((C.JOINED_ROWS,) if program.superseding else ()))
    known = {n: E.quote(n) for n in (*(f.name for f in program.definition.stored_fields), *passed_on)}
    if program.compared:
        known[C.UNCHANGED] = E.all_of([C.UNCHANGED, E.not_(C.IS_STALE)])
    is_dead = E.is_tombstone(program.definition)
    effect = by_slot({n: _first_of(s.row.effects(), is_dead) for n, s in enumerate(program.slots)})  # S30a
    return (Select.only({**known, C.EFFECT: effect, C.KEEP: E.not_(_left_out(program))}),)


# The steps ------------------------------------------------------------------------------------------------------------

_PASSED_ON = (C.CLAUSE, C.COUNTS_FOR_CLAUSE, C.ACTION, C.MISFIT)


def _only_beside_target(select: Selects[MergeProgram]) -> Selects[MergeProgram]:
    return lambda program, present: select(program, present) if program.knows_target else ()


RESOLVE_KEYS = Step(
    "resolve_keys",
    "whether each row moves, and what its written key holds, from the join or from the lookup",
    _only_beside_target(_resolve_keys),
)
ASSIGN_WATERMARKS = Step(
    "assign_watermarks",
    "watermarks that no clause assigns come from the replaced row; which rows are stale (S10, S11)",
    _only_beside_target(_assign_watermarks),
)
SUPPRESS_INSERTS = Step(
    "suppress_inserts",
    "inserts beside a stale update or delete are not written either (S21a)",
    _only_beside_target(_suppress_inserts),
)
FIND_CONFLICTING_MOVES = Step(
    "find_conflicting_moves",
    "rows that would live on in two places, or move twice to the same (S24)",
    _only_beside_target(_find_conflicting_moves),
)
FIND_KEY_COLLISIONS = Step(
    "find_key_collisions",
    "rows that come to a live key, and whether the merge frees it (S24, S25)",
    _only_beside_target(_find_key_collisions),
)
COMPUTE_EFFECTS = Step(
    "compute_effects", "what each row means to readers, and whether it is written (S30a)", _compute_effects
)
