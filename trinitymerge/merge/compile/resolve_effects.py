"""Steps: what each written row means once its key's latest row is known (S11, S21a, S24-S26)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType

from trinitymerge.merge.analysis.row_kinds import (
    DELETED,
    INSERTED,
    LATE,
    NO_EFFECT,
    UPDATED,
    Case,
    FromReplacedRow,
    RowKind,
)
from trinitymerge.merge.compile.program import (
    MergeProgram,
    OutputRow,
    before_watermarks,
    by_slot,
    in_slots,
    where_slots,
)
from trinitymerge.merge.compile.steps import Select, Selects, Step
from trinitymerge.rows import tie_breaking
from trinitymerge.rows.tombstones import zero
from trinitymerge.spark.expressions import (
    FALSE,
    NULL,
    all_of,
    any_of,
    any_row,
    case,
    cast,
    is_null,
    is_older,
    is_tombstone,
    not_,
    or_else,
    over,
    physical_type,
    quote,
    same,
    text_literal,
)
from trinitymerge.spark.predicates import holds_null
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import (
    ACTION,
    ARRIVES,
    CHANGED,
    CLAUSE,
    COUNTS_FOR_CLAUSE,
    EFFECT,
    FIRING,
    FOUND_LIVE,
    FOUND_WATERMARK,
    FREED_BY_DELETE,
    FREED_BY_MOVE,
    IS_CONFLICTING_MOVE,
    IS_REPEATED,
    IS_STALE,
    IS_STALE_CHANGE,
    IS_SUPPRESSED,
    JOINED_ROWS,
    KEEP,
    KEY_LIVE,
    KEY_TAKEN,
    KEY_WATERMARK,
    LIVE,
    MENDED,
    MISFIT,
    NEW_KEY,
    OLD_KEY,
    SLOT,
    UNCHANGED,
)


def _resolve_keys(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Return whether each row moves and, where its written key was looked up, what is stored under that key."""
    keys, before = range(len(program.definition.primaryKey)), before_watermarks(program.definition)
    moving = in_slots(sorted({*program.departures, *program.departures.values()}))
    stays = all_of(same(NEW_KEY(i), OLD_KEY(i)) for i in keys)
    changed = all_of([moving, not_(stays)]) if program.moves else FALSE
    if not program.unknown:
        return (Select.adding({CHANGED: changed}),)
    unknown = in_slots(program.unknown)
    values: dict[str, Sql] = {CHANGED: changed, KEY_LIVE: or_else(case([(unknown, FOUND_LIVE)], LIVE), FALSE)}
    found = [FOUND_WATERMARK(i) for i in range(len(before))]
    for i, mine in enumerate(before):
        # A move replaces the row it leaves and the row at its new key: the fresher of the two.
        fresher = case([(all_of([moving, not_(is_older(before, found))]), mine)], found[i])
        values[KEY_WATERMARK(i)] = case([(unknown, fresher if program.moves else found[i])], mine)
    return (Select.adding(values),)


def _key_live(program: MergeProgram) -> Sql:
    """Return True if the row stored under the written key is live: as looked up, or as joined."""
    return KEY_LIVE if program.unknown else or_else(LIVE, FALSE)


def _key_watermarks(program: MergeProgram) -> list[Sql]:
    """Return the watermark of the row stored under the written key: as looked up, or as joined."""
    joined = before_watermarks(program.definition)
    return [KEY_WATERMARK(i) for i in range(len(joined))] if program.unknown else joined


# Watermarks -----------------------------------------------------------------------------------------------------------


def _assign_watermarks(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Take watermarks that no clause assigns from the replaced row, and find stale rows (S10, S11)."""
    if not program.definition.watermarkKey:
        return (Select.setting(present, {IS_STALE: FALSE}),)
    before = _key_watermarks(program)
    mine = _filled(
        program, [_or_zero(program, *pair) for pair in zip(program.definition.watermarkKey, before, strict=True)]
    )
    stale = all_of([is_older(mine, before), not_(in_slots(program.recording))])
    if program.moves:
        return (Select.setting(present, _date_moves(program, mine, stale)),)
    if program.on_stale == "force":
        mine = [case([(stale, b)], m) for m, b in zip(mine, before, strict=True)]
        stale = FALSE
    return (
        Select.setting(present, {**dict(zip(program.definition.watermarkKey, mine, strict=True)), IS_STALE: stale}),
    )


def _date_moves(program: MergeProgram, mine: list[Sql], stale: Sql) -> dict[str, Sql]:
    """Return the same where rows may move: the tombstone left behind replaces the pre-image alone, and both are stale together."""
    keys = program.definition.watermarkKey
    pre = before_watermarks(program.definition)
    left = _filled(program, pre)
    left_stale = all_of([CHANGED, is_older(left, pre)])
    stale = any_of([stale, left_stale])
    leaves = in_slots(program.departures)
    if program.on_stale == "force":
        before = _key_watermarks(program)
        mine = [case([(stale, b)], m) for m, b in zip(mine, before, strict=True)]
        left = [case([(left_stale, b)], w) for w, b in zip(left, before, strict=True)]
        stale = FALSE
    both = zip(keys, mine, left, strict=True)
    return {**{k: case([(leaves, w)], m) for k, m, w in both}, IS_STALE: stale}


def _filled(program: MergeProgram, replaced: list[Sql]) -> list[Sql]:
    """Return the watermark of each row; columns that no clause assigns come from the replaced row (S10.3)."""
    filled = []
    for name, theirs in zip(program.definition.watermarkKey, replaced, strict=True):
        slots = _unassigned(program, name)
        filled.append(case([(in_slots(slots), theirs)], quote(name)) if slots else quote(name))
    return filled


def _unassigned(program: MergeProgram, name: str) -> list[int]:
    return [n for n, s in enumerate(program.slots) if isinstance(s.row.values[name], FromReplacedRow)]


def _or_zero(program: MergeProgram, name: str, before: Sql) -> Sql:
    """Return the watermark of what a row replaces; the delete of a key that was never written has zero if not null (S18)."""
    field, recorded = program.definition.field(name), in_slots(program.recording)
    if field.nullable or recorded == FALSE:
        return before
    return case([(recorded, or_else(before, zero(field)))], before)


def _suppress_inserts(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Find inserts beside a stale update or delete: they are not written either (S21a)."""
    if not program.beside_changes or program.on_stale == "force":
        return (Select.setting(present, {IS_SUPPRESSED: FALSE}),)
    suppressed = or_else(IS_STALE_CHANGE, FALSE)
    if program.beside_moves:
        stale_move = over(any_row(all_of([in_slots(program.changing), IS_STALE])), [FIRING])
        suppressed = any_of([suppressed, all_of([in_slots(program.beside_moves), stale_move])])
    return (Select.setting(present, {IS_SUPPRESSED: suppressed}),)


# Moves and arrivals ---------------------------------------------------------------------------------------------------


def _find_conflicting_moves(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Find live rows that the merge moves and also changes otherwise, or moves to two places: they would live on twice (S24).

    The same move may occur again; it counts once.
    """
    if not program.moves:
        return (Select.setting(present, {IS_CONFLICTING_MOVE: FALSE, IS_REPEATED: FALSE}),)
    changes = all_of([in_slots(program.changing), not_(IS_STALE)])
    stored = program.definition.stored_fields
    row = Sql(f"struct({', '.join(tie_breaking.comparable(f.name, physical_type(f)) for f in stored)})")
    content = case([(changes, row)])
    # Rows that change nothing have no part in this; their own keys spread them out.
    keys = [case([(changes, OLD_KEY(i))], quote(k)) for i, k in enumerate(program.definition.primaryKey)]
    row_changed = [changes, *keys]
    least, most = (over(Sql(f"{which}({content})"), row_changed) for which in ("min", "max"))
    moves = over(any_row(all_of([changes, CHANGED])), row_changed)
    conflicting = all_of([changes, moves, not_(same(least, most))])
    again = Sql(f"{over(Sql('row_number()'), row_changed, SLOT)} > 1")
    return (
        Select.setting(present, {IS_CONFLICTING_MOVE: conflicting, IS_REPEATED: all_of([changes, CHANGED, again])}),
    )


def _find_key_collisions(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Find rows that come to a live key, and whether the merge frees it (S24, S25)."""
    coming, key = _coming(program), [quote(k) for k in program.definition.primaryKey]
    if coming == FALSE:
        return (Select.setting(present, dict.fromkeys((ARRIVES, FREED_BY_DELETE, FREED_BY_MOVE, KEY_TAKEN), FALSE)),)
    arriving = Select.setting(present, {ARRIVES: all_of([coming, _key_live(program), not_(IS_SUPPRESSED)])})
    asked = {**_freed_by(program), KEY_TAKEN: ARRIVES}
    values = {name: over(any_row(all_of([does, not_(IS_STALE)])), key) for name, does in asked.items()}
    return arriving, Select.setting((*present, ARRIVES), values)


def _coming(program: MergeProgram) -> Sql:
    return where_slots({n: s.row.targets_live_key() for n, s in _numbered(program) if s.may_hit_live_key})


def _freed_by(program: MergeProgram) -> dict[str, Sql]:
    is_dead = is_tombstone(program.definition)
    by_delete = {n: s.row.vacates_by_delete(is_dead, _may_die(program, s.row)) for n, s in _numbered(program)}
    by_move = {n: s.row.vacates_by_move() for n, s in _numbered(program)}
    return {FREED_BY_DELETE: where_slots(by_delete), FREED_BY_MOVE: where_slots(by_move)}


def _may_die(program: MergeProgram, row: RowKind) -> bool:
    return row.brings_tombstone(program.definition)


# Effects --------------------------------------------------------------------------------------------------------------


def _numbered(program: MergeProgram) -> list[tuple[int, OutputRow]]:
    return list(enumerate(program.slots))


def _effects(program: MergeProgram) -> Sql:
    """Return the effect of each row (S30a)."""
    is_dead = is_tombstone(program.definition)
    return by_slot({n: _first_of(s.row.effects(), is_dead) for n, s in _numbered(program)})


def _told_effect(program: MergeProgram) -> Sql:
    """Return the effect of each row of a program that does not read its target, if the source shows what its key holds."""
    is_dead, is_live = is_tombstone(program.definition), or_else(LIVE, FALSE)
    mine = [quote(w) for w in program.definition.watermarkKey]
    is_recorded = all_of([in_slots(program.recording), not_(is_live)])
    is_late = all_of([is_older(mine, before_watermarks(program.definition)), not_(is_recorded)])
    mended = [(all_of([is_late, MENDED]), NO_EFFECT)] if program.has_registers else []
    cases = [
        *mended,
        (is_late, LATE),
        (all_of([is_dead, is_live]), DELETED),
        (is_dead, NO_EFFECT),
        (is_live, UPDATED),
    ]
    return case([(condition, text_literal(effect.text)) for condition, effect in cases], text_literal(INSERTED.text))


def _first_of(cases: tuple[Case, ...], is_dead: Sql) -> Sql:
    def effect(of: Case) -> Sql:
        live, dead = text_literal(of.live.text), text_literal(of.dead.text)
        return live if live == dead else case([(is_dead, dead)], live)

    *some, last = cases
    return case([(one.condition, effect(one)) for one in some], effect(last))


def _left_out(program: MergeProgram) -> Sql:
    """Return SQL that is true if a row is not written after all."""
    definition = program.definition
    nulls = (
        holds_null(f) if f.name not in definition.primaryKey else is_null(quote(f.name)) for f in definition.fields
    )
    storable, is_dead = all_of(not_(n) for n in nulls if n != FALSE), is_tombstone(definition)
    return where_slots(
        {
            n: any_of(s.row.skip_conditions(is_dead, _may_die(program, s.row), storable, program.on_stale))
            for n, s in _numbered(program)
        }
    )


def _conclude(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Return what goes out: whether each row is written, and what it means."""
    if not program.knows_target:
        effect = _told_effect(program) if program.holds else cast(NULL, StringType())
        return (Select.adding({EFFECT: effect, KEEP: Sql(f"{SLOT} >= 0")}),)
    passed_on = (*_PASSED_ON, *program.kept_source, *((JOINED_ROWS,) if program.superseding else ()))
    known = {n: quote(n) for n in (*(f.name for f in program.definition.stored_fields), *passed_on)}
    if program.compared:
        known[UNCHANGED] = all_of([UNCHANGED, not_(IS_STALE)])
    return (Select.only({**known, EFFECT: _effects(program), KEEP: not_(_left_out(program))}),)


def without_effect(rows: DataFrame, program: MergeProgram) -> DataFrame:
    """Settled rows as they join others whose effect is not known."""
    names = [
        quote(n) for n in (*(f.name for f in program.definition.stored_fields), *_PASSED_ON, *program.kept_source, KEEP)
    ]
    return rows.selectExpr(*names, f"CAST(NULL AS STRING) AS {EFFECT}")


# The steps ------------------------------------------------------------------------------------------------------------

_PASSED_ON = (CLAUSE, COUNTS_FOR_CLAUSE, ACTION, MISFIT)


def _only_beside_target(select: Selects[MergeProgram]) -> Selects[MergeProgram]:
    """Return a step that only rows beside their targets take."""
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
    "compute_effects",
    "what each row means to readers, and whether it is written (S30a)",
    _conclude,
)
