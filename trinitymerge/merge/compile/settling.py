"""What the rows of a merge mean to readers, once it is known what their keys hold (S10-S12, S21a, S24-S26, S30a).

Owns: the last steps of a merge: watermarks that nobody assigned, stale rows, rows that move, keys that are freed and taken,
and the effect that each row is counted by. What differs from one kind of row to another it asks
:mod:`trinitymerge.merge.analysis.kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.columns import (
    ACTION,
    ARRIVES,
    CHANGED,
    CLAUSE,
    EFFECT,
    FIRING,
    FOUND_LIVE,
    FOUND_WATERMARK,
    FREED_BY_DELETE,
    FREED_BY_MOVE,
    IS_REPEATED,
    IS_STALE,
    IS_TORN,
    IS_WITHHELD,
    KEEP,
    LATE,
    LIVE,
    MISFIT,
    NEW_KEY,
    OLD_KEY,
    PRE_IMAGE,
    SLOT,
    STANDS_FOR,
    TAKEN,
    mentioned,
)
from trinitymerge.expressions import all_of, any_of, is_older, is_tombstone, physical_type, quote
from trinitymerge.merge.analysis.kinds import Case, Departure, Kind, RecordedDelete, Replace
from trinitymerge.merge.analysis.values import Replaced
from trinitymerge.merge.compile.program import (
    Program,
    Slot,
    before_watermarks,
    by_slot,
    in_slots,
    of_kinds,
    where_slots,
)
from trinitymerge.merge.compile.steps import Columns, Select, Selects, Step
from trinitymerge.tombstones import zero


def _know_before(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """``_tm_live`` and the before-watermarks become those of the written key; ``_tm_changed`` says a key moves."""
    keys, before = range(len(program.definition.primaryKey)), before_watermarks(program.definition)
    moving = in_slots(sorted({*program.departures, *program.departures.values()}))
    same = all_of(f"{NEW_KEY(i)} <=> {OLD_KEY(i)}" for i in keys)
    changed = f"({moving}) AND NOT ({same})" if program.moves else "false"
    if not program.unknown:
        return (Select.setting(present, {CHANGED: changed, LIVE: f"coalesce({LIVE}, false)"}),)
    unknown = in_slots(program.unknown)
    values: dict[str, str] = {
        CHANGED: changed,
        LIVE: f"coalesce(CASE WHEN {unknown} THEN {FOUND_LIVE} ELSE {LIVE} END, false)",
    }
    found = [FOUND_WATERMARK(i) for i in range(len(before))]
    if program.moves:
        values |= {PRE_IMAGE(i): mine for i, mine in enumerate(before)}
    for i, mine in enumerate(before):
        # What a move replaces is both the row it leaves and what its new key holds: the fresher of the two.
        fresher = f"CASE WHEN {moving} AND NOT {is_older(before, found)} THEN {mine} ELSE {found[i]} END"
        taken = fresher if program.moves else found[i]
        values[mine] = f"CASE WHEN {unknown} THEN {taken} ELSE {mine} END"
    return (Select.setting(present, values),)


# Watermarks -----------------------------------------------------------------------------------------------------------


def _fill_watermarks(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """Fills watermarks nobody assigned from the replaced row, and finds stale rows (S10, S11)."""
    if not program.definition.watermarkKey:
        return (Select.setting(present, {IS_STALE: "false"}),)
    before = before_watermarks(program.definition)
    mine = _filled(
        program, [_or_zero(program, *pair) for pair in zip(program.definition.watermarkKey, before, strict=True)]
    )
    stale = f"{is_older(mine, before)} AND NOT {of_kinds(program, RecordedDelete)}"
    if program.moves:
        return (Select.setting(present, _fill_moves(program, mine, stale)),)
    if program.on_stale == "force":
        mine = [f"CASE WHEN {stale} THEN {b} ELSE {m} END" for m, b in zip(mine, before, strict=True)]
        stale = "false"
    return (
        Select.setting(present, {**dict(zip(program.definition.watermarkKey, mine, strict=True)), IS_STALE: stale}),
    )


def _fill_moves(program: Program, mine: list[str], stale: str) -> dict[str, str]:
    """The same where rows may move: the tombstone left behind replaces the pre-image alone, and both are stale together."""
    keys = program.definition.watermarkKey
    pre = [PRE_IMAGE(i) for i in range(len(keys))]
    left = _filled(program, pre)
    left_stale = f"{CHANGED} AND {is_older(left, pre)}"
    stale = f"({stale}) OR ({left_stale})"
    leaves = of_kinds(program, Departure)
    if program.on_stale == "force":
        before = before_watermarks(program.definition)
        mine = [f"CASE WHEN {stale} THEN {b} ELSE {m} END" for m, b in zip(mine, before, strict=True)]
        left = [f"CASE WHEN {left_stale} THEN {b} ELSE {w} END" for w, b in zip(left, before, strict=True)]
        stale = "false"
    both = zip(keys, mine, left, strict=True)
    return {**{k: f"CASE WHEN {leaves} THEN {w} ELSE {m} END" for k, m, w in both}, IS_STALE: stale}


def _filled(program: Program, replaced: list[str]) -> list[str]:
    """The watermark of each row, with what nobody assigned taken from the row it replaces (S10.3)."""
    filled = []
    for name, theirs in zip(program.definition.watermarkKey, replaced, strict=True):
        slots = _unassigned(program, name)
        filled.append(f"CASE WHEN {in_slots(slots)} THEN {theirs} ELSE {quote(name)} END" if slots else quote(name))
    return filled


def _unassigned(program: Program, name: str) -> list[int]:
    return [n for n, s in enumerate(program.slots) if isinstance(s.row.values[name], Replaced)]


def _or_zero(program: Program, name: str, before: str) -> str:
    """The watermark of what a row replaces; the delete of a key that was never written has zero if not null (S18)."""
    field, recorded = program.definition.field(name), of_kinds(program, RecordedDelete)
    if field.nullable or recorded == "false":
        return before
    return f"CASE WHEN {recorded} THEN coalesce({before}, {zero(field)}) ELSE {before} END"


def _withhold(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """Finds inserts beside a stale update or delete: they are not written either (S21a)."""
    if not program.beside_changes or program.on_stale == "force":
        return (Select.setting(present, {IS_WITHHELD: "false"}),)
    withheld = f"coalesce({LATE}, false)"
    if program.beside_moves:
        stale_move = f"max({of_kinds(program, Replace)} AND {IS_STALE}) OVER (PARTITION BY {FIRING})"
        withheld = f"({withheld}) OR ({in_slots(program.beside_moves)} AND {stale_move})"
    return (Select.setting(present, {IS_WITHHELD: withheld}),)


# Moves and arrivals ---------------------------------------------------------------------------------------------------


def _find_torn_rows(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """Finds live rows that the merge moves and also changes otherwise, or moves to two places: they would live on twice (S24).

    The same move may occur again; it counts once.
    """
    if not program.moves:
        return (Select.setting(present, {IS_TORN: "false", IS_REPEATED: "false"}),)
    changing = in_slots(n for n, s in enumerate(program.slots) if s.row.changes_pre_image)
    changes = f"({changing} AND NOT {IS_STALE})"
    stored = program.definition.stored_fields
    content = (
        f"CASE WHEN {changes} THEN struct({', '.join(reader.comparable(f.name, physical_type(f)) for f in stored)}) END"
    )
    # Rows that change nothing have no part in this; their own keys spread them out.
    keys = [
        f"CASE WHEN {changes} THEN {OLD_KEY(i)} ELSE {quote(k)} END"
        for i, k in enumerate(program.definition.primaryKey)
    ]
    over_row = f"OVER (PARTITION BY {changes}, {', '.join(keys)})"
    differ = f"NOT (min({content}) {over_row} <=> max({content}) {over_row})"
    torn = f"{changes} AND max({changes} AND {CHANGED}) {over_row} AND {differ}"
    again = f"row_number() OVER (PARTITION BY {changes}, {', '.join(keys)} ORDER BY {SLOT}) > 1"
    return (Select.setting(present, {IS_TORN: torn, IS_REPEATED: f"{changes} AND {CHANGED} AND {again}"}),)


def _find_arrivals(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """Finds rows that come to a live key, and whether the merge frees it (S24, S25)."""
    coming, over_key = _coming(program), _over_key(program)
    if coming == "false":
        return (Select.setting(present, dict.fromkeys((ARRIVES, FREED_BY_DELETE, FREED_BY_MOVE, TAKEN), "false")),)
    arriving = Select.setting(present, {ARRIVES: f"{coming} AND {LIVE} AND NOT {IS_WITHHELD}"})
    values = {name: f"max({frees} AND NOT {IS_STALE}) {over_key}" for name, frees in _freed_by(program).items()}
    values[TAKEN] = f"max({ARRIVES} AND NOT {IS_STALE}) {over_key}"
    return arriving, Select.setting((*present, ARRIVES), values)


def _coming(program: Program) -> str:
    return where_slots({n: s.row.arrives() for n, s in _numbered(program) if s.may_arrive})


def _freed_by(program: Program) -> dict[str, str]:
    is_dead = is_tombstone(program.definition)
    by_delete = {n: s.row.frees_by_delete(is_dead, _may_die(program, s.row)) for n, s in _numbered(program)}
    by_move = {n: s.row.frees_by_move() for n, s in _numbered(program)}
    return {FREED_BY_DELETE: where_slots(by_delete), FREED_BY_MOVE: where_slots(by_move)}


def _over_key(program: Program) -> str:
    return f"OVER (PARTITION BY {', '.join(quote(k) for k in program.definition.primaryKey)})"


def _may_die(program: Program, row: Kind) -> bool:
    return row.brings_tombstone(program.definition)


# Effects --------------------------------------------------------------------------------------------------------------


def _numbered(program: Program) -> list[tuple[int, Slot]]:
    return list(enumerate(program.slots))


def _effects(program: Program) -> str:
    """The effect of each row (S30a)."""
    is_dead = is_tombstone(program.definition)
    return by_slot({n: _first_of(s.row.effects(), is_dead) for n, s in _numbered(program)})


def _first_of(cases: tuple[Case, ...], is_dead: str) -> str:
    def effect(case: Case) -> str:
        same = case.live == case.dead
        return f"'{case.live}'" if same else f"CASE WHEN {is_dead} THEN '{case.dead}' ELSE '{case.live}' END"

    *some, last = cases
    whens = " ".join(f"WHEN {case.condition} THEN {effect(case)}" for case in some)
    return f"CASE {whens} ELSE {effect(last)} END" if some else effect(last)


def _left_out(program: Program) -> str:
    """SQL that is true if a row is not written after all."""
    definition = program.definition
    never_null = (f.name for f in definition.fields if not f.nullable or f.name in definition.primaryKey)
    storable, is_dead = all_of(f"{quote(n)} IS NOT NULL" for n in never_null), is_tombstone(definition)
    return where_slots(
        {
            n: any_of(s.row.left_out(is_dead, _may_die(program, s.row), f"({storable})", program.on_stale))
            for n, s in _numbered(program)
        }
    )


def _conclude(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """What goes out: whether each row is written, and what it means."""
    if not program.knows_target:
        return (Select.adding({EFFECT: "CAST(NULL AS STRING)", KEEP: f"{SLOT} >= 0"}),)
    known = {n: quote(n) for n in (*(f.name for f in program.definition.stored_fields), *_PASSED_ON)}
    return (Select.only({**known, EFFECT: _effects(program), KEEP: f"NOT ({_left_out(program)})"}),)


def without_effect(rows: DataFrame, program: Program) -> DataFrame:
    """Settled rows as they join others whose effect is not known."""
    names = [quote(n) for n in (*(f.name for f in program.definition.stored_fields), *_PASSED_ON, KEEP)]
    return rows.selectExpr(*names, f"CAST(NULL AS STRING) AS {EFFECT}")


# The steps ------------------------------------------------------------------------------------------------------------

_PASSED_ON = (CLAUSE, STANDS_FOR, ACTION, MISFIT)


def _where_known(select: Selects) -> Selects:
    """A step that only rows beside their targets take."""
    return lambda program, present: select(program, present) if program.knows_target else ()


def _known(*names: str) -> Columns:
    return lambda program: names if program.knows_target else ()


def _pre_images(program: Program) -> Iterable[str]:
    return [PRE_IMAGE(i) for i in range(len(program.definition.watermarkKey))] if program.moves else ()


def _compared(program: Program) -> Iterable[str]:
    if not program.unknown:
        return (LIVE,) if program.knows_target else ()
    keys, before = range(len(program.definition.primaryKey)), before_watermarks(program.definition)
    moved = [name for k in keys for name in (NEW_KEY(k), OLD_KEY(k))] if program.moves else ()
    return (SLOT, LIVE, FOUND_LIVE, *before, *(FOUND_WATERMARK(i) for i in range(len(before))), *moved)


def _filled_from(program: Program) -> Iterable[str]:
    names = program.definition.watermarkKey
    if not names or not program.knows_target:
        return ()
    differ = program.moves or program.numbers(RecordedDelete) or any(_unassigned(program, n) for n in names)
    moves = (CHANGED, *_pre_images(program)) if program.moves else ()
    return (*before_watermarks(program.definition), *((SLOT,) if differ else ()), *moves)


def _withheld_by(program: Program) -> Iterable[str]:
    if not program.beside_changes or program.on_stale == "force":
        return ()
    return (LATE, SLOT, IS_STALE, FIRING) if program.beside_moves else (LATE,)


def _torn_by(program: Program) -> Iterable[str]:
    left = (OLD_KEY(i) for i in range(len(program.definition.primaryKey)))
    return (SLOT, CHANGED, IS_STALE, *left) if program.moves else ()


def _arriving_by(program: Program) -> Iterable[str]:
    coming = _coming(program)
    if coming == "false":
        return ()
    return (LIVE, IS_STALE, IS_WITHHELD, *mentioned(coming, *_freed_by(program).values()))


def _concluded_from(program: Program) -> Iterable[str]:
    return mentioned(_effects(program), _left_out(program)) if program.knows_target else (SLOT,)


COMPARE = Step(
    "compare",
    "whether each row moves, and what its written key holds, be it from the join or from the probe",
    _compared,
    lambda program: (CHANGED, *_pre_images(program)) if program.knows_target else (),
    _where_known(_know_before),
)
FILL = Step(
    "fill",
    "watermarks nobody assigned come from the replaced row; which rows are stale (S10, S11)",
    _filled_from,
    _known(IS_STALE),
    _where_known(_fill_watermarks),
)
WITHHOLD = Step(
    "withhold",
    "inserts beside a stale update or delete are not written either (S21a)",
    _withheld_by,
    _known(IS_WITHHELD),
    _where_known(_withhold),
)
TEAR = Step(
    "tear",
    "rows that would live on in two places, or move twice to the same (S24)",
    _torn_by,
    _known(IS_TORN, IS_REPEATED),
    _where_known(_find_torn_rows),
)
ARRIVE = Step(
    "arrive",
    "rows that come to a live key, and whether the merge frees it (S24, S25)",
    _arriving_by,
    _known(ARRIVES, FREED_BY_DELETE, FREED_BY_MOVE, TAKEN),
    _where_known(_find_arrivals),
)
CONCLUDE = Step(
    "conclude",
    "what each row means to readers, and whether it is written (S30a)",
    _concluded_from,
    lambda program: (EFFECT, KEEP),
    _conclude,
)
