"""From fired clauses to the rows they write: evaluated, one row each, with the stored columns (S9, S10, S21a, S24, S29).

Owns: the steps ``evaluate``, ``spread``, ``shape`` and ``bare``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column

from trinitymerge.columns import (
    ACTION,
    CLAUSE,
    DIES,
    FIRED,
    FIRING,
    LATE,
    LIVE,
    MISFIT,
    NEW_KEY,
    OLD_KEY,
    RAW,
    SLOT,
    STANDS_FOR,
)
from trinitymerge.definition import Field
from trinitymerge.expressions import is_older, is_tombstone, null_of, opaque, physical_type, sql_type
from trinitymerge.merge.analysis.assignment import Storing, misfit, stored
from trinitymerge.merge.analysis.frames import as_sql, case
from trinitymerge.merge.analysis.values import Alive, Carried, Dead, Given, Null, Replaced
from trinitymerge.merge.compile.program import UNDECIDED, Program, before_watermarks, by_slot
from trinitymerge.merge.compile.steps import Select, Step
from trinitymerge.tombstones import alive, blank, blanked, dead, payload

# evaluate -------------------------------------------------------------------------------------------------------------


def _raw_values(program: Program) -> dict[str, str | Column]:
    """Values that are Columns, checked or used twice, each only on rows of its clause."""
    raws: dict[str, str | Column] = {}
    for code, firing in program.by_code.items():
        for number in firing.slots:
            for i, field in enumerate(program.definition.stored_fields):
                value = program.slots[number].row.values[field.name]
                if isinstance(value, Given) and _is_evaluated_first(program, value, field):
                    text = as_sql(value.value) if isinstance(value.value, str) else value.value
                    raws[RAW(number, i)] = case([(opaque(f"{FIRED} = {code}"), text)], "NULL")
    return raws


def _evaluate(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    raws = _raw_values(program)
    return (Select.adding(raws),) if raws else ()


def _is_evaluated_first(program: Program, value: Given, field: Field) -> bool:
    return value.way is Storing.CHECKED or field.name in program.used_twice or not isinstance(value.value, str)


def _stored_value(program: Program, number: int, field: Field) -> str:
    """The value a slot gives to a column, as SQL over the joined sides."""
    value = program.slots[number].row.values[field.name]
    if isinstance(value, Given):
        if _is_evaluated_first(program, value, field):
            text = RAW(number, program.definition.stored_fields.index(field))
        else:
            text = as_sql(str(value.value))
        return stored(text, value.way, field, field.name in program.definition.primaryKey)
    if isinstance(value, Carried):
        return program.analysis.target.column(field.name)
    if isinstance(value, Dead):
        return dead(program.definition)
    if isinstance(value, Alive):
        return alive(program.definition)
    if isinstance(value, Null):
        return blank(field)
    if isinstance(value, Replaced):
        return null_of(field)
    raise AssertionError(f"unknown value {value!r}")


EVALUATE = Step(
    "evaluate",
    "values that are checked, used twice or given as Columns are evaluated once, and only on rows of their clause",
    lambda program: (FIRED,) if _raw_values(program) else (),
    _raw_values,
    _evaluate,
)

# spread ---------------------------------------------------------------------------------------------------------------


def _spread(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    """One row per row to be written, numbered by slot; a row without any keeps a null slot."""
    # These numbers may come out otherwise if a task is repeated; the probe, which such programs always have, evaluates once.
    numbered = (Select.adding({FIRING: "monotonically_increasing_id()"}),) if program.beside_moves else ()
    if all(len(firing.slots) == 1 for firing in program.firings):
        cases = [f"WHEN {code} THEN {firing.slots[0]}" for code, firing in program.by_code.items()]
        if not program.knows_target:
            cases.append(f"WHEN {UNDECIDED} THEN {UNDECIDED}")
        return (*numbered, Select.adding({SLOT: opaque(f"CASE {FIRED} {' '.join(cases)} END")}))
    arrays = [f"WHEN {code} THEN array({', '.join(map(str, f.slots))})" for code, f in program.by_code.items()]
    return (*numbered, Select.adding({SLOT: f"explode(CASE {FIRED} {' '.join(arrays)} END)"}))


SPREAD = Step(
    "spread",
    "one row for each row to be written",
    lambda program: (FIRED,),
    lambda program: (SLOT, FIRING) if program.beside_moves else (SLOT,),
    _spread,
)

# shape ----------------------------------------------------------------------------------------------------------------


def _shape(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    written = {
        f.name: f"CAST({opaque(by_slot({n: _stored_value(program, n, f) for n in range(len(program.slots))}))}"
        f" AS {sql_type(physical_type(f))})"
        for f in program.definition.stored_fields
    }
    passed_on = {name: name for name in _passed_on(program)}
    return (Select.only({**written, **passed_on, **_known_of(program)}),)


def _passed_on(program: Program) -> Iterable[str]:
    """What has been known of each row before it was shaped."""
    before = (LIVE, *before_watermarks(program.definition)) if program.knows_target else ()
    return (SLOT, *before, FIRING) if program.beside_moves else (SLOT, *before)


def _known_of(program: Program) -> dict[str, str]:
    """What is known of each row beside what it stores, and has not been known before."""
    clause = by_slot({n: str(s.row.clause + 1) for n, s in enumerate(program.slots)})
    known: dict[str, str] = {
        CLAUSE: f"CAST({clause} AS INT)",
        STANDS_FOR: f"CAST({_stands_for(program)} AS INT)",
        ACTION: f"CAST({_action(program)} AS STRING)",
        MISFIT: _misfits(program),
    }
    if program.moves:
        known |= _keys_of_moves(program)
    if program.beside_changes:
        known[LATE] = _late(program)
    return known


def _stands_for(program: Program) -> str:
    """The clause whose firing is counted by the row; on rows of which nothing is known, whether they are undecided."""
    if not program.knows_target:
        return f"CASE WHEN {SLOT} = {UNDECIDED} THEN {UNDECIDED} END"
    return by_slot({f.slots[0]: str(f.clause + 1) for f in program.firings if not f.is_recorded_delete})


def _action(program: Program) -> str:
    """What each row does, in the user's words."""
    return by_slot({n: f"'{s.row.called(program.knows_target)}'" for n, s in enumerate(program.slots)})


def _misfits(program: Program) -> str:
    """A row's first value that does not fit; what a tombstone does not hold need not (S9)."""
    found = {n: _misfits_of(program, n) for n in range(len(program.slots))}
    return f"CAST({opaque(by_slot({n: _first_of(texts) for n, texts in found.items() if texts}))} AS STRING)"


def _first_of(texts: Sequence[str]) -> str:
    return f"coalesce({', '.join(['CAST(NULL AS STRING)', *texts])})"


def _misfits_of(program: Program, number: int) -> list[str]:
    definition, values = program.definition, program.slots[number].row.values
    unheld = {f.name for f in payload(definition)}
    always: list[str] = []
    if_alive: list[str] = []
    for i, field in enumerate(definition.stored_fields):
        value = values[field.name]
        if isinstance(value, Given):
            text = misfit(RAW(number, i), value.way, field, field.name in definition.primaryKey)
            if text is not None:
                (if_alive if field.name in unheld else always).append(text)
    if if_alive and isinstance(values[definition.tombstone_column], Given):
        tombstone = _stored_value(program, number, definition.field(definition.tombstone_column))
        if_alive = [f"CASE WHEN NOT ({is_tombstone(definition, tombstone)}) THEN {_first_of(if_alive)} END"]
    return [*always, *if_alive]


def _late(program: Program) -> str:
    """SQL that is true if the update or delete beside an insert is stale, as far as the joined row tells (S11, S21a)."""
    names, before = program.definition.watermarkKey, before_watermarks(program.definition)
    late = {}
    for insert, change in _beside_changes_in_place(program).items():
        values = program.slots[change].row.values
        written = [
            b if isinstance(values[w], Replaced) else _stored_value(program, change, program.definition.field(w))
            for w, b in zip(names, before, strict=True)
        ]
        late[insert] = is_older(written, before)
    return f"coalesce({by_slot(late)}, false)"


def _beside_changes_in_place(program: Program) -> dict[int, int]:
    return {n: change for n, change in program.beside_changes.items() if n not in program.beside_moves}


def _keys_of_moves(program: Program) -> dict[str, str]:
    """Of each row of a moving update: the key it has left, the key it goes to, and whether it is a tombstone there."""
    keys = {}
    for k, key in enumerate(program.definition.primaryKey):
        keys[NEW_KEY(k)] = _moved_value(program, program.definition.field(key))
        keys[OLD_KEY(k)] = program.analysis.target.column(key)
    tombstone = _moved_value(program, program.definition.field(program.definition.tombstone_column))
    return {**keys, DIES: is_tombstone(program.definition, tombstone)}


def _moved_value(program: Program, field: Field) -> str:
    """What a moving update gives to a column; the tombstone left behind follows its update."""
    new = {n: _stored_value(program, n, field) for n in program.departures.values()}
    new |= {left: new[moved] for left, moved in program.departures.items()}
    return f"CAST({by_slot(new)} AS {sql_type(physical_type(field))})"


def _read(program: Program) -> Iterable[str]:
    before = before_watermarks(program.definition) if _beside_changes_in_place(program) else ()
    return (SLOT, *_raw_values(program), *before)


SHAPE = Step(
    "shape", "the stored columns of each row, and what is known of the row it replaces", _read, _known_of, _shape
)

# bare -----------------------------------------------------------------------------------------------------------------


def _bare(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    blanks = blanked(program.definition) if program.brings_tombstones else {}
    return (Select.setting(present, blanks),) if blanks else ()


BARE = Step(
    "bare",
    "rows that have turned out to be tombstones hold key, watermark and tombstone only (S9)",
    lambda program: (),
    lambda program: (),
    _bare,
)
