"""From an analysed merge to the rows it appends, as one DataFrame (S10-S12, S17-S26).

Owns: the sequence of steps below, each a function from DataFrame to DataFrame. Reads nothing itself: it is handed the
joined sides, and a function that looks up the latest rows of keys. Writes nothing, decides no path.

    joined sides          target and source columns side by side (:mod:`trinitymerge.merge.sides`)
    -> fire               which clause applies to each row: the first whose condition is true
    -> evaluate           the clause's values that must be checked or used twice, evaluated once
    -> spread             one row per row to be written
    -> shape              the stored columns, and what is known of the row each one replaces
    -> probe              what the written keys hold, where the join does not tell
    -> settle             watermarks, stale rows, moved and freed keys, and what each row will mean to readers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trinitymerge import reader
from trinitymerge.definition import HIDDEN_PREFIX, Field, TableDefinition
from trinitymerge.expressions import all_of, column, is_older, is_tombstone, null_of, physical_type, quote, sql_type
from trinitymerge.merge.analysis import (
    Alive,
    Analysis,
    Carried,
    Dead,
    Given,
    Null,
    Replaced,
    Template,
    Value,
    alive,
    dead,
)
from trinitymerge.merge.assignment import Storing, misfit, stored, zero
from trinitymerge.merge.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.frames import IN_SOURCE, LIVE, as_column, as_sql, before_watermark
from trinitymerge.merge.paths import Outcome, Path, Paths, keeps_key, may_arrive

CLAUSE = HIDDEN_PREFIX + "clause"
"""Stored with every row: the position of the clause that wrote it, from 1."""

EFFECT = HIDDEN_PREFIX + "effect"
"""Stored with every row: what it means for its key's readers if it is the batch's freshest (S30a); null if unknown."""

ACTION = HIDDEN_PREFIX + "action"
SLOT = HIDDEN_PREFIX + "slot"
KEEP = HIDDEN_PREFIX + "keep"
MISFIT = HIDDEN_PREFIX + "misfit"
_FIRED = HIDDEN_PREFIX + "fired"
_MATCHED = HIDDEN_PREFIX + "matched"
_NOT_MATCHED = HIDDEN_PREFIX + "not_matched"
_HAS_KEY = HIDDEN_PREFIX + "has_key"
_STALE = HIDDEN_PREFIX + "is_stale"
_CHANGED = HIDDEN_PREFIX + "changed"
_DIES = HIDDEN_PREFIX + "dies"
_ARRIVES = HIDDEN_PREFIX + "arrives"
_BY_DELETE = HIDDEN_PREFIX + "freed_by_delete"
_BY_MOVE = HIDDEN_PREFIX + "freed_by_move"
_TAKEN = HIDDEN_PREFIX + "taken"
_FOUND_LIVE = HIDDEN_PREFIX + "found_live"
_TORN = HIDDEN_PREFIX + "is_torn"
_REPEATED = HIDDEN_PREFIX + "is_repeated"

UNDECIDED = -1
"""Slot of a source row whose outcome depends on whether its key exists, on the blind path."""

DUPLICATE, STALE, STALE_MOVE, TORN = "duplicate", "stale", "stale move", "torn"
INSERTED, UPDATED, DELETED, NOTHING = "insert", "update", "delete", "none"
MOVED, MOVED_OVER_DELETED = "move", "move+delete"
MOVES = (MOVED, MOVED_OVER_DELETED)
"""The effects of moved rows; under a key where another row is fresher, such a row is deleted (S30a)."""

Lookup = Callable[[DataFrame], DataFrame]
"""From keys (columns :func:`reader.key_to_find`) to the latest stored rows of those keys, tombstones included."""


@attrs.frozen(eq=False)
class Slot:
    """One kind of row to write, by number.

    Attributes:
        template: where its values come from.
        action: ``"update"``, ``"delete"``, ``"insert"``, ``"leave"`` (the tombstone a move leaves behind) or
            ``"absent delete"`` (the tombstone of a key that is not live).
        known: the joined row tells what the written key holds; otherwise it must be probed.
        may_arrive: the row may come to a key that is live (S24, S25).
    """

    template: Template
    action: str
    known: bool
    may_arrive: bool = False


@attrs.frozen(eq=False, slots=False)
class Program:
    """A merge compiled for one path: its slots, and which of them each fired clause fills.

    Attributes:
        analysis: the merge.
        path: the path.
        slots: by number.
        by_fired: fired code -> slot numbers. Codes are clause positions from 1; absent deletes are their negatives.
    """

    analysis: Analysis
    path: Path
    slots: tuple[Slot, ...]
    by_fired: dict[int, tuple[int, ...]]

    @property
    def definition(self) -> TableDefinition:
        """The target's definition."""
        return self.analysis.definition

    def numbers(self, *actions: str) -> list[int]:
        """The slots of some actions."""
        return [n for n, s in enumerate(self.slots) if s.action in actions]

    @cached_property
    def moving_updates(self) -> tuple[int, ...]:
        """The slots of updates that may change the primary key (S24); each is followed by the tombstone it leaves."""
        return tuple(n - 1 for n in self.numbers("leave"))

    @property
    def moves(self) -> bool:
        """Can the merge change primary keys (S24)."""
        return bool(self.moving_updates)

    @cached_property
    def unknown(self) -> tuple[int, ...]:
        """The slots whose rows must be told what their key holds."""
        return tuple(n for n, s in enumerate(self.slots) if not s.known)

    @cached_property
    def is_checked(self) -> bool:
        """May a value of the merge turn out not to fit its column when it runs (S29)."""
        slots = (s.template for s in self.slots)
        clauses = (t for c in self.analysis.clauses for t in c.templates)
        values = (v for t in (*slots, *clauses) for v in t.values.values())
        return any(isinstance(v, Given) and v.way is Storing.CHECKED for v in values)

    def first_slot(self, position: int) -> int | None:
        """The slot that is filled once whenever the clause at a position fires."""
        return next(iter(self.by_fired.get(position + 1, ())), None)


def program(analysis: Analysis, paths: Paths, path: Path, tombstones_possible: bool) -> Program:
    """Numbers the rows a merge can write on a path.

    Args:
        analysis: the merge.
        paths: the verdict; ``path`` must be sound.
        path: the path to compile for.
        tombstones_possible: may the target hold tombstones.
    """
    if path is Path.BLIND:
        return _blind_program(analysis, paths.outcomes)
    slots: list[Slot] = []
    by_fired: dict[int, tuple[int, ...]] = {}
    for position, plan in enumerate(analysis.clauses):
        first = len(slots)
        for template in plan.templates:
            slots += _slots_of(analysis, paths, path, template, tombstones_possible)
        by_fired[position + 1] = tuple(range(first, len(slots)))
    for position, absent in paths.absent_deletes:
        if absent is not None:
            by_fired[-(position + 1)] = (len(slots),)
            slots.append(Slot(absent, "absent delete", known=True))
    return Program(analysis, path, tuple(slots), by_fired)


def _blind_program(analysis: Analysis, outcomes: Sequence[Outcome]) -> Program:
    written = [o for o in outcomes if o.template]
    slots = tuple(Slot(o.template, "absent delete" if o.not_matched is None else "insert", True) for o in written)  # type: ignore[arg-type]
    return Program(analysis, Path.BLIND, slots, {n + 1: (n,) for n in range(len(slots))})


def _slots_of(
    analysis: Analysis, paths: Paths, path: Path, template: Template, tombstones_possible: bool
) -> list[Slot]:
    if template.action == "delete":
        return [Slot(template, "delete", known=True)]
    if template.action == "update":
        if not may_arrive(analysis, paths.key_match, template):
            return [Slot(template, "update", known=True)]
        return [
            Slot(template, "update", known=False, may_arrive=True),
            Slot(_leave(analysis, template), "leave", known=False),
        ]
    exact = paths.key_match is not None and paths.key_match.exact
    not_matched = isinstance(analysis.clauses[template.clause].clause, WhenNotMatched)
    own_key = not_matched and keeps_key(analysis, paths.key_match, template)
    hidden_shown = path is Path.KEYED or not tombstones_possible or not analysis.definition.watermarkKey
    known = own_key and hidden_shown and (exact or path is Path.KEYED)
    return [Slot(template, "insert", known, may_arrive(analysis, paths.key_match, template))]


def _leave(analysis: Analysis, update: Template) -> Template:
    """The tombstone of the key that a move leaves (S24), with the pre-image's columns (S9)."""
    own = analysis.definition.watermarkKey
    values: dict[str, Value] = {n: update.values[n] if n in own else Carried() for n in update.values}
    values[analysis.definition.tombstone_column] = Dead()
    return Template(update.clause, "leave", values)


# fire -----------------------------------------------------------------------------------------------------------------


def fire(joined: DataFrame, program: Program, paths: Paths, matched: Column) -> DataFrame:
    """Marks each joined row with the code of the first clause whose condition is true (S17-S20).

    Args:
        joined: the sides.
        program: codes to slots.
        paths: for the absent deletes.
        matched: is the row a pair; never null.
    """
    analysis = program.analysis
    absent = F.lit(0)
    if paths.key_match is not None and paths.absent_deletes:
        has_key = _has_key([k.value for k in paths.key_match.keys])
        cases = [(analysis.clauses[p].condition, -(p + 1) if t is not None else 0) for p, t in paths.absent_deletes]
        absent = F.when(has_key, _first_true(cases, absent)).otherwise(absent)
    code = (
        F.when(matched, _first_clause(analysis, WhenMatched, F.lit(0)))
        .when(column(IN_SOURCE).isNotNull(), _first_clause(analysis, WhenNotMatched, absent))
        .otherwise(_first_clause(analysis, WhenOnlyOnTarget, F.lit(0)))
    )
    return joined.withColumn(_FIRED, code).filter(f"{_FIRED} <> 0")


def fire_blind(source: DataFrame, program: Program, outcomes: Sequence[Outcome]) -> DataFrame:
    """Marks each source row with the code of its outcome, 0 for nothing, or :data:`UNDECIDED`."""
    analysis = program.analysis
    matched = _first_clause(analysis, WhenMatched, F.lit(0)).alias(_MATCHED)
    not_matched = _first_clause(analysis, WhenNotMatched, F.lit(0)).alias(_NOT_MATCHED)
    code, cases = 0, []
    for outcome in outcomes:
        here = f"WHEN {_MATCHED} = {_code(outcome.matched)} AND {_NOT_MATCHED} = {_code(outcome.not_matched)} THEN"
        if outcome.template is None:
            cases.append(f"{here} 0")
            continue
        code += 1
        is_tombstone_row = outcome.not_matched is None  # a null key has no tombstone
        cases.append(f"{here} CASE WHEN {_HAS_KEY} THEN {code} ELSE 0 END" if is_tombstone_row else f"{here} {code}")
    tombstones = [o.template for o in outcomes if o.template and o.not_matched is None]
    keys = [v.value for t in tombstones[:1] for v in _written_key(program, t)]
    tried = source.select("*", matched, not_matched, _has_key(keys).alias(_HAS_KEY))
    return tried.selectExpr("*", f"CASE {' '.join(cases)} ELSE {UNDECIDED} END AS {_FIRED}")


def split_undecided(fired: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The source rows whose outcome is known, and, as plain source rows again, those whose outcome is not."""
    decided = fired.filter(f"{_FIRED} <> {UNDECIDED}")
    return decided, fired.filter(f"{_FIRED} = {UNDECIDED}").drop(_MATCHED, _NOT_MATCHED, _HAS_KEY, _FIRED)


def _written_key(program: Program, template: Template) -> list[Given]:
    return [v for k in program.definition.primaryKey if isinstance(v := template.values[k], Given)]


def _has_key(keys: Iterable[str | Column]) -> Column:
    """Is no part of the key null."""
    return reduce(lambda present, key: present & as_column(key).isNotNull(), keys, F.lit(True))


def _code(position: int | None) -> int:
    return 0 if position is None else position + 1


def _first_clause(analysis: Analysis, kind: type, otherwise: Column) -> Column:
    return _first_true([(c.condition, i + 1) for i, c in analysis.of_kind(kind)], otherwise)


def _first_true(cases: Sequence[tuple[str | Column | None, int]], otherwise: Column) -> Column:
    """The value of the first case whose condition is true; null is not true, later ones are not evaluated (S17, S20)."""
    if cases and all(c is None or isinstance(c, str) for c, _ in cases):
        return _first_true_text(cases, otherwise)
    for condition, value in reversed(cases):
        here = F.lit(value)
        otherwise = here if condition is None else F.when(as_column(condition), here).otherwise(otherwise)
    return otherwise


def _first_true_text(cases: Sequence[tuple[str | Column | None, int]], otherwise: Column) -> Column:
    whens = " ".join(f"WHEN {'true' if c is None else as_sql(str(c))} THEN {value}" for c, value in cases)
    return F.coalesce(F.expr(f"CASE {whens} END"), otherwise)


# evaluate -------------------------------------------------------------------------------------------------------------


def _raw(slot: int, i: int) -> str:
    return f"{HIDDEN_PREFIX}v{slot}_{i}"


def _new_key(i: int) -> str:
    return f"{HIDDEN_PREFIX}n{i}"


def _old_key(i: int) -> str:
    return f"{HIDDEN_PREFIX}o{i}"


def evaluate(fired: DataFrame, program: Program) -> DataFrame:
    """Evaluates, once and only on rows of their clause, values that are Columns, checked or used twice (S29, S32)."""
    raws = []
    for code, numbers in program.by_fired.items():
        for number in numbers:
            for i, field in enumerate(program.definition.stored_fields):
                value = program.slots[number].template.values[field.name]
                if isinstance(value, Given) and _is_evaluated_first(program, value, field):
                    here = column(_FIRED) == code
                    raws.append(F.when(here, as_column(value.value)).alias(_raw(number, i)))
    return fired.select("*", *raws) if raws else fired


def _is_evaluated_first(program: Program, value: Given, field: Field) -> bool:
    # A move's new key and tombstone are asked for by the row and by the tombstone it leaves behind.
    twice = program.moves and field.name in (*program.definition.primaryKey, program.definition.tombstone_column)
    return value.way is Storing.CHECKED or twice or not isinstance(value.value, str)


def _stored_value(program: Program, number: int, field: Field) -> str:
    """The value a slot gives to a column, as SQL over the joined sides."""
    value = program.slots[number].template.values[field.name]
    if isinstance(value, Given):
        if _is_evaluated_first(program, value, field):
            i = program.definition.stored_fields.index(field)
            return stored(_raw(number, i), value.way, field)
        return stored(as_sql(str(value.value)), value.way, field)
    if isinstance(value, Carried):
        return program.analysis.target.column(field.name)
    if isinstance(value, Dead):
        return dead(program.definition)
    if isinstance(value, Alive):
        return alive(program.definition)
    if isinstance(value, Null) and program.slots[number].action == "absent delete" and not field.nullable:
        return zero(field)
    if isinstance(value, (Null, Replaced)):
        return null_of(field)
    raise AssertionError(f"unknown value {value!r}")


# spread ---------------------------------------------------------------------------------------------------------------


def spread(evaluated: DataFrame, program: Program) -> DataFrame:
    """One row per row to be written, numbered by slot; a row without any keeps a null slot."""
    if all(len(n) <= 1 for n in program.by_fired.values()):
        cases = [f"WHEN {code} THEN {numbers[0]}" for code, numbers in program.by_fired.items() if numbers]
        if program.path is Path.BLIND:
            cases.append(f"WHEN {UNDECIDED} THEN {UNDECIDED}")
        return evaluated.selectExpr("*", f"CASE {_FIRED} {' '.join(cases)} END AS {SLOT}")
    arrays = [f"WHEN {code} THEN array({', '.join(map(str, numbers))})" for code, numbers in program.by_fired.items()]
    return evaluated.selectExpr("*", f"explode(CASE {_FIRED} {' '.join(arrays)} END) AS {SLOT}")


# shape ----------------------------------------------------------------------------------------------------------------


def shape(spread_rows: DataFrame, program: Program) -> DataFrame:
    """The stored columns of each row, and what the join knows of the row it replaces.

    Returns:
        Stored columns, ``_tm_slot``, ``_tm_clause``, ``_tm_misfit``; off the blind path also ``_tm_live`` and the
        watermarks of the latest target row the source row was paired by, and for moves the old and the new key.
    """
    definition = program.definition
    written = [
        f"CAST({_by_slot({n: _stored_value(program, n, f) for n in range(len(program.slots))})}"
        f" AS {sql_type(physical_type(f))}) AS {quote(f.name)}"
        for f in definition.stored_fields
    ]
    clause = _by_slot({n: str(s.template.clause + 1) for n, s in enumerate(program.slots)})
    columns = [*written, SLOT, f"CAST({clause} AS INT) AS {CLAUSE}", f"{_misfits(program)} AS {MISFIT}"]
    if program.path is not Path.BLIND:
        columns += [LIVE, *_before(definition)]
    if program.moves:
        columns += _keys_of_moves(program)
    return spread_rows.selectExpr(*columns)


def _by_slot(values: dict[int, str]) -> str:
    """The value for a row's slot; slots that share a value share a branch."""
    slots_of: dict[str, list[str]] = {}
    for number, value in values.items():
        slots_of.setdefault(value, []).append(str(number))
    whens = [f"WHEN {SLOT} IN ({', '.join(numbers)}) THEN {value}" for value, numbers in slots_of.items()]
    return f"CASE {' '.join(whens)} END" if whens else "NULL"


def _before(definition: TableDefinition) -> list[str]:
    return [before_watermark(i) for i in range(len(definition.watermarkKey))]


def _misfits(program: Program) -> str:
    found = []
    for number, slot in enumerate(program.slots):
        for i, field in enumerate(program.definition.stored_fields):
            value = slot.template.values[field.name]
            if isinstance(value, Given):
                found.append(misfit(_raw(number, i), value.way, field))
    return f"coalesce({', '.join(['CAST(NULL AS STRING)', *(f for f in found if f is not None)])})"


def _keys_of_moves(program: Program) -> list[str]:
    """Of each row of a moving update: the key it has left, the key it goes to, and whether it is a tombstone there."""
    columns = []
    for k, key in enumerate(program.definition.primaryKey):
        columns.append(f"{_moved_value(program, program.definition.field(key))} AS {_new_key(k)}")
        columns.append(f"{program.analysis.target.column(key)} AS {_old_key(k)}")
    tombstone = _moved_value(program, program.definition.field(program.definition.tombstone_column))
    columns.append(f"{is_tombstone(program.definition, tombstone)} AS {_DIES}")
    return columns


def _moved_value(program: Program, field: Field) -> str:
    """What a moving update gives to a column; the tombstone left behind follows its update."""
    new = {n: _stored_value(program, n, field) for n in program.moving_updates}
    new |= {n + 1: value for n, value in new.items()}
    return f"CAST({_by_slot(new)} AS {sql_type(physical_type(field))})"


# probe ----------------------------------------------------------------------------------------------------------------


def probe(rows: DataFrame, program: Program, lookup: Lookup) -> DataFrame:
    """Adds what the written keys hold, live row or tombstone, where the join does not tell (S10.3, S25, S26).

    For a move that is the key it goes to, for its tombstone likewise: both must come to the same verdict.
    """
    definition = program.definition
    leave, unknown = _is(program, "leave"), _in_slots(program.unknown)
    keys = [
        f"CASE WHEN {leave} THEN {_new_key(i)} ELSE {quote(k)} END" if program.moves else quote(k)
        for i, k in enumerate(definition.primaryKey)
    ]
    asked = [f"CASE WHEN {unknown} THEN {key} END AS {reader.key_to_find(i)}" for i, key in enumerate(keys)]
    asking = rows.selectExpr("*", *asked)
    names = [reader.key_to_find(i) for i in range(len(keys))]
    found = lookup(asking.selectExpr(*names))
    answer = found.selectExpr(
        *[f"{quote(k)} AS {_answered(i)}" for i, k in enumerate(definition.primaryKey)],
        f"NOT {is_tombstone(definition)} AS {_FOUND_LIVE}",
        *[f"{quote(w)} AS {_found_watermark(i)}" for i, w in enumerate(definition.watermarkKey)],
    )
    same_key = all_of(f"{n} = {_answered(i)}" for i, n in enumerate(names))
    return asking.join(answer, F.expr(same_key), "left")


def _answered(i: int) -> str:
    return f"{HIDDEN_PREFIX}answered{i}"


def _found_watermark(i: int) -> str:
    return f"{HIDDEN_PREFIX}found{i}"


def _pre_image(i: int) -> str:
    return f"{HIDDEN_PREFIX}pre{i}"


# settle ---------------------------------------------------------------------------------------------------------------


def settle(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Decides watermarks, stale rows, moves and arrivals, and says what each row means to readers (S10-S12, S24-S26).

    Returns:
        Stored columns, ``_tm_slot``, ``_tm_clause``, ``_tm_misfit``, ``_tm_effect`` and ``_tm_keep``.
    """
    if program.path is Path.BLIND:
        return rows.selectExpr("*", f"CAST(NULL AS STRING) AS {EFFECT}", f"{SLOT} >= 0 AS {KEEP}")
    rows = _know_before(rows, program)
    rows = _fill_watermarks(rows, program, on_stale)
    rows = _find_torn_rows(rows, program)
    rows = _find_arrivals(rows, program)
    return _say_effects(rows, program, on_stale)


def without_effect(rows: DataFrame) -> DataFrame:
    """Settled rows that join others whose effect is not known."""
    return _with(rows, {EFFECT: "CAST(NULL AS STRING)"})


def _in_slots(numbers: Iterable[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"{SLOT} IN ({listed})" if listed else "false"


def _is(program: Program, *actions: str) -> str:
    return _in_slots(program.numbers(*actions))


def _with(rows: DataFrame, values: dict[str, str]) -> DataFrame:
    """Sets columns, all at once: each new value is computed from the old ones."""
    kept = [quote(n) for n in rows.columns if n not in values]
    return rows.selectExpr(*kept, *[f"{value} AS {quote(name)}" for name, value in values.items()])


def _know_before(rows: DataFrame, program: Program) -> DataFrame:
    """``_tm_live`` and the before-watermarks become those of the written key; ``_tm_changed`` says a key moves."""
    keys, before = range(len(program.definition.primaryKey)), _before(program.definition)
    moving = _in_slots([m for n in program.moving_updates for m in (n, n + 1)])
    same = all_of(f"{_new_key(i)} <=> {_old_key(i)}" for i in keys)
    changed = f"({moving}) AND NOT ({same})" if program.moves else "false"
    if not program.unknown:
        return _with(rows, {_CHANGED: changed, LIVE: f"coalesce({LIVE}, false)"})
    unknown = _in_slots(program.unknown)
    values = {_CHANGED: changed, LIVE: f"coalesce(CASE WHEN {unknown} THEN {_FOUND_LIVE} ELSE {LIVE} END, false)"}
    found = [_found_watermark(i) for i in range(len(before))]
    for i, mine in enumerate(before):
        values[_pre_image(i)] = mine
        # What a move replaces is both the row it leaves and what its new key holds: the fresher of the two.
        taken = f"CASE WHEN {moving} AND NOT {is_older(before, found)} THEN {mine} ELSE {found[i]} END"
        values[mine] = f"CASE WHEN {unknown} THEN {taken} ELSE {mine} END"
    return _with(rows, values)


def _fill_watermarks(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Fills watermarks nobody assigned from the replaced row, and finds stale rows (S10, S11)."""
    keys, before = program.definition.watermarkKey, _before(program.definition)
    unassigned = [[n for n, s in enumerate(program.slots) if isinstance(s.template.values[k], Replaced)] for k in keys]
    row_watermark = [
        f"CASE WHEN {_in_slots(slots)} THEN {b} ELSE {quote(k)} END" if slots else quote(k)
        for k, b, slots in zip(keys, before, unassigned, strict=True)
    ]
    stale = f"{is_older(row_watermark, before)} AND NOT {_is(program, 'absent delete')}"
    forced = dict(zip(keys, before, strict=True)) if on_stale == "force" else {}
    final = {
        k: f"CASE WHEN {stale} THEN {forced[k]} ELSE {w} END" if forced else w
        for k, w in zip(keys, row_watermark, strict=True)
    }
    if program.moves:  # the tombstone left behind replaces the pre-image alone; row and tombstone are stale together
        pre = [_pre_image(i) for i in range(len(keys))]
        left_watermark = [
            f"CASE WHEN {_in_slots(slots)} THEN {p} ELSE {quote(k)} END" if slots else quote(k)
            for k, p, slots in zip(keys, pre, unassigned, strict=True)
        ]
        left_stale = f"{_CHANGED} AND {is_older(left_watermark, pre)}"
        stale = f"({stale}) OR ({left_stale})"
        for k, mine, left in zip(keys, row_watermark, left_watermark, strict=True):
            if forced:
                mine = f"CASE WHEN {stale} THEN {forced[k]} ELSE {mine} END"
                left = f"CASE WHEN {left_stale} THEN {forced[k]} ELSE {left} END"
            final[k] = f"CASE WHEN {_is(program, 'leave')} THEN {left} ELSE {mine} END"
    return _with(rows, {**final, _STALE: "false" if forced else stale})


def _find_torn_rows(rows: DataFrame, program: Program) -> DataFrame:
    """Finds live rows that the merge moves and also changes otherwise, or moves to two places: they would live on twice (S24).

    The same move may occur again; it counts once.
    """
    if not program.moves:
        return _with(rows, {_TORN: "false", _REPEATED: "false"})
    changes = f"({_is(program, 'update', 'delete')} AND NOT {_STALE})"
    stored = program.definition.stored_fields
    content = (
        f"CASE WHEN {changes} THEN struct({', '.join(reader.comparable(f.name, physical_type(f)) for f in stored)}) END"
    )
    # Rows that change nothing have no part in this; their own keys spread them out.
    keys = [
        f"CASE WHEN {changes} THEN {_old_key(i)} ELSE {quote(k)} END"
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
    comes = f"{_in_slots(may_arrive)} AND (NOT {_is(program, 'update')} OR ({_CHANGED} AND NOT {_STALE})) AND {LIVE}"
    over_key = f"OVER (PARTITION BY {', '.join(quote(k) for k in program.definition.primaryKey)})"
    left = f"{_is(program, 'leave')} AND {_CHANGED}"
    frees = {_BY_DELETE: _deletes(program), _BY_MOVE: "false"}
    if program.moves:  # what moves as a tombstone is deleted: it lives nowhere any more
        frees = {_BY_DELETE: f"({frees[_BY_DELETE]}) OR ({left} AND {_DIES})", _BY_MOVE: f"{left} AND NOT {_DIES}"}
    found = _with(rows, {_ARRIVES: comes})
    values = {name: f"max(({what}) AND NOT {_STALE}) {over_key}" for name, what in frees.items()}
    return _with(found, values | {_TAKEN: f"max({_ARRIVES} AND NOT {_STALE}) {over_key}"})


def _deletes(program: Program) -> str:
    """Is the row the tombstone of a live row that stays where it is: by a delete, or by an update that writes one (S25)."""
    may_die = [n for n in program.numbers("update") if isinstance(_tombstone(program, n), Given)]
    updated = f"{_in_slots(may_die)} AND NOT {_CHANGED} AND {is_tombstone(program.definition)}"
    return f"({_is(program, 'delete')} OR ({updated}))" if may_die else _is(program, "delete")


def _tombstone(program: Program, number: int) -> Value:
    return program.slots[number].template.values[program.definition.tombstone_column]


def _say_effects(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """The effect of each row, and whether it is written (S30a)."""
    is_dead, update = is_tombstone(program.definition), _is(program, "update")
    freed_by_delete = f"{_ARRIVES} AND {_BY_DELETE} AND NOT {_BY_MOVE}"
    cases = [
        (_is(program, "absent delete"), NOTHING, NOTHING),
        (f"{_ARRIVES} AND NOT {_BY_DELETE} AND NOT {_BY_MOVE}", DUPLICATE, DUPLICATE),
        (_TORN, TORN, TORN),
        *([(f"{_is(program, 'leave')} AND {_DIES}", DELETED, DELETED)] if program.moves else []),
        (_is(program, "leave"), NOTHING, NOTHING),
        (f"{_CHANGED} AND {_STALE}", STALE_MOVE, STALE_MOVE),
        (_STALE, STALE, STALE),
        (_is(program, "delete"), DELETED, DELETED),
        (_REPEATED, NOTHING, NOTHING),
        (f"{update} AND {_CHANGED} AND {freed_by_delete}", MOVED_OVER_DELETED, DELETED),
        (f"{update} AND {_CHANGED}", MOVED, NOTHING),
        (f"{update} OR ({freed_by_delete})", UPDATED, DELETED),
        ("true", INSERTED, NOTHING),
    ]
    whens = [
        f"WHEN {here} THEN CASE WHEN {is_dead} THEN '{dead_row}' ELSE '{live}' END" for here, live, dead_row in cases
    ]
    dropped = [f"{_TAKEN} AND ({_deletes(program)} OR {_is(program, 'leave')})"]
    if program.moves:
        dropped.append(f"{_is(program, 'leave')} AND NOT {_CHANGED}")
        moved = _is(program, "leave") if on_stale == "error" else "true"  # there the error names the rows
        dropped.append(f"{_CHANGED} AND {_STALE} AND {moved}")
    return rows.selectExpr(
        *[quote(f.name) for f in program.definition.stored_fields],
        *(SLOT, CLAUSE, MISFIT),
        f"CASE {' '.join(whens)} END AS {EFFECT}",
        f"NOT ({' OR '.join(f'({d})' for d in dropped)}) AS {KEEP}",
    )


def action_of(program: Program) -> str:
    """The action column of a preview, as SQL: what each row does, in the user's words."""
    shown = {"leave": "delete", "absent delete": "delete"}
    if program.path is Path.BLIND:
        shown["insert"] = "upsert"
    return _by_slot({n: f"'{shown.get(s.action, s.action)}'" for n, s in enumerate(program.slots)}) + f" AS {ACTION}"


def stored_columns(definition: TableDefinition) -> list[str]:
    """The columns of a staged batch, as SQL."""
    return [*(quote(f.name) for f in definition.stored_fields), CLAUSE, EFFECT]
