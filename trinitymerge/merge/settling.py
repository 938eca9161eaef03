"""What the rows of a merge mean to readers, once it is known what their keys hold (S10-S12, S24-S26, S30a).

Owns: the last step of compiling: watermarks that nobody assigned, stale rows, rows that move, keys that are freed and taken,
and the effect that each row is counted by.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.definition import HIDDEN_PREFIX
from trinitymerge.expressions import all_of, is_older, is_tombstone, physical_type, quote
from trinitymerge.merge.analysis import Given, Replaced, Value
from trinitymerge.merge.frames import LIVE
from trinitymerge.merge.paths import Path
from trinitymerge.merge.program import (
    CLAUSE,
    DIES,
    EFFECT,
    FIRING,
    FOUND_LIVE,
    KEEP,
    LATE,
    MISFIT,
    SLOT,
    Program,
    before_watermarks,
    found_watermark,
    in_slots,
    new_key,
    of_actions,
    old_key,
)
from trinitymerge.tombstones import zero

_STALE = HIDDEN_PREFIX + "is_stale"
_WITHHELD = HIDDEN_PREFIX + "is_withheld"
_CHANGED = HIDDEN_PREFIX + "changed"
_ARRIVES = HIDDEN_PREFIX + "arrives"
_BY_DELETE = HIDDEN_PREFIX + "freed_by_delete"
_BY_MOVE = HIDDEN_PREFIX + "freed_by_move"
_TAKEN = HIDDEN_PREFIX + "taken"
_TORN = HIDDEN_PREFIX + "is_torn"
_REPEATED = HIDDEN_PREFIX + "is_repeated"

DUPLICATE, STALE, STALE_MOVE, TORN = "duplicate", "stale", "stale move", "torn"
WITHHELD = "withheld"
"""The effect of an insert that is not written, because the update or delete beside it is stale (S21a)."""

INSERTED, UPDATED, DELETED, NOTHING = "insert", "update", "delete", "none"
MOVED, MOVED_OVER_DELETED = "move", "move+delete"
MOVES = (MOVED, MOVED_OVER_DELETED)
"""The effects of moved rows; under a key where another row is fresher, such a row is deleted (S30a)."""


def settle(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Decides watermarks, stale rows, moves and arrivals, and says what each row means to readers (S10-S12, S24-S26).

    Returns:
        Stored columns, ``_tm_slot``, ``_tm_clause``, ``_tm_misfit``, ``_tm_effect`` and ``_tm_keep``.
    """
    if program.path is Path.BLIND:
        return rows.selectExpr("*", f"CAST(NULL AS STRING) AS {EFFECT}", f"{SLOT} >= 0 AS {KEEP}")
    rows = _know_before(rows, program)
    rows = _fill_watermarks(rows, program, on_stale)
    rows = _withhold(rows, program, on_stale)
    rows = _find_torn_rows(rows, program)
    rows = _find_arrivals(rows, program)
    return _say_effects(rows, program, on_stale)


def without_effect(rows: DataFrame) -> DataFrame:
    """Settled rows that join others whose effect is not known."""
    return _with(rows, {EFFECT: "CAST(NULL AS STRING)"})


def _with(rows: DataFrame, values: dict[str, str]) -> DataFrame:
    """Sets columns, all at once: each new value is computed from the old ones."""
    kept = [quote(n) for n in rows.columns if n not in values]
    return rows.selectExpr(*kept, *[f"{value} AS {quote(name)}" for name, value in values.items()])


def _know_before(rows: DataFrame, program: Program) -> DataFrame:
    """``_tm_live`` and the before-watermarks become those of the written key; ``_tm_changed`` says a key moves."""
    keys, before = range(len(program.definition.primaryKey)), before_watermarks(program.definition)
    moving = in_slots([m for n in program.moving_updates for m in (n, n + 1)])
    same = all_of(f"{new_key(i)} <=> {old_key(i)}" for i in keys)
    changed = f"({moving}) AND NOT ({same})" if program.moves else "false"
    if not program.unknown:
        return _with(rows, {_CHANGED: changed, LIVE: f"coalesce({LIVE}, false)"})
    unknown = in_slots(program.unknown)
    values = {_CHANGED: changed, LIVE: f"coalesce(CASE WHEN {unknown} THEN {FOUND_LIVE} ELSE {LIVE} END, false)"}
    found = [found_watermark(i) for i in range(len(before))]
    for i, mine in enumerate(before):
        values[_pre_image(i)] = mine
        # What a move replaces is both the row it leaves and what its new key holds: the fresher of the two.
        taken = f"CASE WHEN {moving} AND NOT {is_older(before, found)} THEN {mine} ELSE {found[i]} END"
        values[mine] = f"CASE WHEN {unknown} THEN {taken} ELSE {mine} END"
    return _with(rows, values)


def _fill_watermarks(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Fills watermarks nobody assigned from the replaced row, and finds stale rows (S10, S11)."""
    keys, before = program.definition.watermarkKey, before_watermarks(program.definition)
    unassigned = [[n for n, s in enumerate(program.slots) if isinstance(s.template.values[k], Replaced)] for k in keys]
    row_watermark = [
        f"CASE WHEN {in_slots(slots)} THEN {_or_zero(program, k, b)} ELSE {quote(k)} END" if slots else quote(k)
        for k, b, slots in zip(keys, before, unassigned, strict=True)
    ]
    stale = f"{is_older(row_watermark, before)} AND NOT {of_actions(program, 'absent delete')}"
    forced = dict(zip(keys, before, strict=True)) if on_stale == "force" else {}
    final = {
        k: f"CASE WHEN {stale} THEN {forced[k]} ELSE {w} END" if forced else w
        for k, w in zip(keys, row_watermark, strict=True)
    }
    if program.moves:  # the tombstone left behind replaces the pre-image alone; row and tombstone are stale together
        pre = [_pre_image(i) for i in range(len(keys))]
        left_watermark = [
            f"CASE WHEN {in_slots(slots)} THEN {p} ELSE {quote(k)} END" if slots else quote(k)
            for k, p, slots in zip(keys, pre, unassigned, strict=True)
        ]
        left_stale = f"{_CHANGED} AND {is_older(left_watermark, pre)}"
        stale = f"({stale}) OR ({left_stale})"
        for k, mine, left in zip(keys, row_watermark, left_watermark, strict=True):
            if forced:
                mine = f"CASE WHEN {stale} THEN {forced[k]} ELSE {mine} END"
                left = f"CASE WHEN {left_stale} THEN {forced[k]} ELSE {left} END"
            final[k] = f"CASE WHEN {of_actions(program, 'leave')} THEN {left} ELSE {mine} END"
    return _with(rows, {**final, _STALE: "false" if forced else stale})


def _or_zero(program: Program, name: str, before: str) -> str:
    """The watermark of what a row replaces; the delete of a key that was never written has zero if not null (S18)."""
    field = program.definition.field(name)
    if field.nullable or not program.numbers("absent delete"):
        return before
    return f"CASE WHEN {of_actions(program, 'absent delete')} THEN coalesce({before}, {zero(field)}) ELSE {before} END"


def _withhold(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Finds inserts beside a stale update or delete: they are not written either (S21a)."""
    if not program.beside_changes or on_stale == "force":
        return _with(rows, {_WITHHELD: "false"})
    withheld = f"coalesce({LATE}, false)"
    if program.beside_moves:
        stale_move = f"max({of_actions(program, 'update')} AND {_STALE}) OVER (PARTITION BY {FIRING})"
        withheld = f"({withheld}) OR ({in_slots(program.beside_moves)} AND {stale_move})"
    return _with(rows, {_WITHHELD: withheld})


def _find_torn_rows(rows: DataFrame, program: Program) -> DataFrame:
    """Finds live rows that the merge moves and also changes otherwise, or moves to two places: they would live on twice (S24).

    The same move may occur again; it counts once.
    """
    if not program.moves:
        return _with(rows, {_TORN: "false", _REPEATED: "false"})
    changes = f"({of_actions(program, 'update', 'delete')} AND NOT {_STALE})"
    stored = program.definition.stored_fields
    content = (
        f"CASE WHEN {changes} THEN struct({', '.join(reader.comparable(f.name, physical_type(f)) for f in stored)}) END"
    )
    # Rows that change nothing have no part in this; their own keys spread them out.
    keys = [
        f"CASE WHEN {changes} THEN {old_key(i)} ELSE {quote(k)} END"
        for i, k in enumerate(program.definition.primaryKey)
    ]
    over_row = f"OVER (PARTITION BY {changes}, {', '.join(keys)})"
    differ = f"NOT (min({content}) {over_row} <=> max({content}) {over_row})"
    torn = f"{changes} AND max({changes} AND {_CHANGED}) {over_row} AND {differ}"
    again = f"row_number() OVER (PARTITION BY {changes}, {', '.join(keys)} ORDER BY {SLOT}) > 1"
    return _with(rows, {_TORN: torn, _REPEATED: f"{changes} AND {_CHANGED} AND {again}"})


def _find_arrivals(rows: DataFrame, program: Program) -> DataFrame:
    """Finds rows that come to a live key, and whether the merge frees it (S24, S25)."""
    may_arrive = [n for n, s in enumerate(program.slots) if s.may_arrive]
    if not may_arrive:
        return _with(rows, dict.fromkeys((_ARRIVES, _BY_DELETE, _BY_MOVE, _TAKEN), "false"))
    comes = (
        f"{in_slots(may_arrive)} AND (NOT {of_actions(program, 'update')} OR ({_CHANGED} AND NOT {_STALE})) AND {LIVE}"
        f" AND NOT {_WITHHELD}"
    )
    over_key = f"OVER (PARTITION BY {', '.join(quote(k) for k in program.definition.primaryKey)})"
    left = f"{of_actions(program, 'leave')} AND {_CHANGED}"
    frees = {_BY_DELETE: _deletes(program), _BY_MOVE: "false"}
    if program.moves:  # what moves as a tombstone is deleted: it lives nowhere any more
        frees = {_BY_DELETE: f"({frees[_BY_DELETE]}) OR ({left} AND {DIES})", _BY_MOVE: f"{left} AND NOT {DIES}"}
    found = _with(rows, {_ARRIVES: comes})
    values = {name: f"max(({what}) AND NOT {_STALE}) {over_key}" for name, what in frees.items()}
    return _with(found, values | {_TAKEN: f"max({_ARRIVES} AND NOT {_STALE}) {over_key}"})


def _deletes(program: Program) -> str:
    """Is the row the tombstone of a live row that stays where it is: by a delete, or by an update that writes one (S25)."""
    may_die = [n for n in program.numbers("update") if isinstance(_tombstone(program, n), Given)]
    updated = f"{in_slots(may_die)} AND NOT {_CHANGED} AND {is_tombstone(program.definition)}"
    return f"({of_actions(program, 'delete')} OR ({updated}))" if may_die else of_actions(program, "delete")


def _tombstone(program: Program, number: int) -> Value:
    return program.slots[number].template.values[program.definition.tombstone_column]


def _say_effects(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """The effect of each row, and whether it is written (S30a)."""
    is_dead, update = is_tombstone(program.definition), of_actions(program, "update")
    freed_by_delete = f"{_ARRIVES} AND {_BY_DELETE} AND NOT {_BY_MOVE}"
    cases = [
        (_WITHHELD, WITHHELD, WITHHELD),
        (of_actions(program, "absent delete"), NOTHING, NOTHING),
        (f"{_ARRIVES} AND NOT {_BY_DELETE} AND NOT {_BY_MOVE}", DUPLICATE, DUPLICATE),
        (_TORN, TORN, TORN),
        *([(f"{of_actions(program, 'leave')} AND {DIES}", DELETED, DELETED)] if program.moves else []),
        (of_actions(program, "leave"), NOTHING, NOTHING),
        (f"{_CHANGED} AND {_STALE}", STALE_MOVE, STALE_MOVE),
        (_STALE, STALE, STALE),
        (of_actions(program, "delete"), DELETED, DELETED),
        (_REPEATED, NOTHING, NOTHING),
        (f"{update} AND {_CHANGED} AND {freed_by_delete}", MOVED_OVER_DELETED, DELETED),
        (f"{update} AND {_CHANGED}", MOVED, NOTHING),
        (f"{update} OR ({freed_by_delete})", UPDATED, DELETED),
        ("true", INSERTED, NOTHING),
    ]
    whens = [
        f"WHEN {here} THEN CASE WHEN {is_dead} THEN '{dead_row}' ELSE '{live}' END" for here, live, dead_row in cases
    ]
    dropped = [f"{_TAKEN} AND ({_deletes(program)} OR {of_actions(program, 'leave')})"]
    # Nobody can tell whether a row that cannot be stored is rightly left out: it is kept, for the refusal to name it.
    storable = all_of(f"{quote(n)} IS NOT NULL" for n in _never_null(program))
    if program.beside_changes:
        dropped.append(f"{_WITHHELD} AND {storable}")
    if program.moves:
        dropped.append(f"{of_actions(program, 'leave')} AND NOT {_CHANGED}")
        moved = of_actions(program, "leave") if on_stale == "error" else "true"  # there the error names the rows
        dropped.append(f"{_CHANGED} AND {_STALE} AND {storable} AND {moved}")
    return rows.selectExpr(
        *[quote(f.name) for f in program.definition.stored_fields],
        *(SLOT, CLAUSE, MISFIT),
        f"CASE {' '.join(whens)} END AS {EFFECT}",
        f"NOT ({' OR '.join(f'({d})' for d in dropped)}) AS {KEEP}",
    )


def _never_null(program: Program) -> list[str]:
    definition = program.definition
    return [f.name for f in definition.fields if not f.nullable or f.name in definition.primaryKey]


def _pre_image(i: int) -> str:
    return f"{HIDDEN_PREFIX}pre{i}"
