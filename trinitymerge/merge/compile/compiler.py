"""From an analysed merge to the rows it appends, as one DataFrame (S10-S12, S17-S26).

Owns: the sequence of steps below, each a function from DataFrame to DataFrame. Reads nothing itself: it is handed the
joined sides, and a function that looks up the latest rows of keys. Writes nothing, decides no path.

    joined sides          target and source columns side by side (:mod:`trinitymerge.merge.compile.sides`)
    -> fire               which clause applies to each row: the first whose condition is true
    -> evaluate           the clause's values that must be checked or used twice, evaluated once
    -> spread             one row per row to be written
    -> shape              the stored columns, and what is known of the row each one replaces
    -> probe              what the written keys hold, where the join does not tell
    -> settle             what each row will mean to readers (:mod:`trinitymerge.merge.compile.settling`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trinitymerge.columns import (
    ACTION,
    ANSWERED,
    CLAUSE,
    DIES,
    EFFECT,
    FIRED,
    FIRES,
    FIRING,
    FOUND_LIVE,
    FOUND_WATERMARK,
    HAS_KEY,
    IN_SOURCE,
    KEY_TO_FIND,
    LATE,
    LIVE,
    MATCHED,
    MISFIT,
    NEW_KEY,
    NOT_MATCHED,
    OLD_KEY,
    RAW,
    SLOT,
    STANDS_FOR,
)
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.expressions import all_of, is_older, is_tombstone, null_of, opaque, physical_type, quote, sql_type
from trinitymerge.merge.analysis.assignment import Storing, misfit, stored
from trinitymerge.merge.analysis.frames import as_column, as_sql, case, with_columns
from trinitymerge.merge.analysis.keymatch import KeyMatch
from trinitymerge.merge.analysis.kinds import Departure, New, WrittenRow
from trinitymerge.merge.analysis.outcomes import Outcomes, RecordedDeletes
from trinitymerge.merge.analysis.resolution import Analysis
from trinitymerge.merge.analysis.values import Alive, Carried, Dead, Given, Null, Replaced
from trinitymerge.merge.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.compile.program import (
    UNDECIDED,
    Program,
    before_watermarks,
    by_slot,
    in_slots,
    of_kinds,
)
from trinitymerge.tombstones import alive, bare, blank, dead, payload

Lookup = Callable[[DataFrame], DataFrame]
"""From keys (columns :func:`reader.key_to_find`) to the latest stored rows of those keys, tombstones included."""


# fire -----------------------------------------------------------------------------------------------------------------


def fire(
    joined: DataFrame, program: Program, match: KeyMatch | None, recorded: RecordedDeletes, matched: str | Column
) -> DataFrame:
    """Marks each joined row with the code of the first clause whose condition is true (S17-S20).

    Args:
        joined: the sides.
        program: codes to slots.
        match: of the merge condition.
        recorded: the deletes that are recorded for absent keys.
        matched: is the row a pair; never null.
    """
    analysis = program.analysis
    absent: str | Column = "0"
    if match is not None and recorded:
        has_key = _has_key([k.value for k in match.keys])
        cases = [(analysis.clauses[p].condition, program.code(p, True) if row else 0) for p, row in recorded]
        absent = case([(has_key, _first_true(cases, "0"))], "0")
    of_source = [
        (matched, _first_clause(program, WhenMatched, "0")),
        (f"{IN_SOURCE} IS NOT NULL", _first_clause(program, WhenNotMatched, absent)),
    ]
    code = case(of_source, _first_clause(program, WhenOnlyOnTarget, "0"))
    # Rows on which nothing fires are filtered out as early as Spark can; only what is left is out of its sight.
    fired = with_columns(joined, {FIRES: code}).filter(f"{FIRES} <> 0")
    return fired.selectExpr("*", f"{opaque(FIRES)} AS {FIRED}")


def fire_blind(source: DataFrame, program: Program, outcomes: Outcomes) -> DataFrame:
    """Marks each source row with the code of its outcome, 0 for nothing, or :data:`UNDECIDED`."""
    analysis = program.analysis
    same_row = [
        _in_class(name, [[_number(p) for p in clauses[side]] for clauses in outcomes.classes])
        for side, name in enumerate((MATCHED, NOT_MATCHED))
    ]
    tombstone = _decoded(MATCHED, {_number(m): program.code(m, True) for m, _ in outcomes.tombstones})
    insert = _decoded(NOT_MATCHED, {_number(n): program.code(n) for n, _ in outcomes.inserts})
    cases = [
        f"WHEN {MATCHED} = 0 AND {NOT_MATCHED} = 0 THEN 0",
        # A null key has no tombstone.
        f"WHEN {NOT_MATCHED} = 0 THEN CASE WHEN {tombstone} IS NULL OR {HAS_KEY} THEN {tombstone} ELSE 0 END",
        f"WHEN {same_row[0]} = {same_row[1]} THEN {insert}",
    ]
    found = f"coalesce(CASE {' '.join(cases)} END, {UNDECIDED})"
    keys = [v.value for _, t in outcomes.tombstones[:1] for v in _written_key(program, t)]
    tried: dict[str, str | Column] = {
        MATCHED: _opaque(_first_number(analysis, WhenMatched)),
        NOT_MATCHED: _opaque(_first_number(analysis, WhenNotMatched)),
        HAS_KEY: _has_key(keys),
    }
    return with_columns(source, tried).selectExpr("*", f"{opaque(found)} AS {FIRED}")


def _decoded(name: str, values: Mapping[int, int]) -> str:
    """What a column's number stands for, as SQL; null if nothing."""
    cases = " ".join(f"WHEN {number} THEN {value}" for number, value in values.items())
    return f"CASE {name} {cases} END" if cases else "CAST(NULL AS INT)"


def _in_class(name: str, classes: Sequence[Sequence[int]]) -> str:
    """The number of the class that a column's number is in, as SQL; null if it is in none."""
    return _decoded(name, {number: i for i, numbers in enumerate(classes) for number in numbers})


def _opaque(value: str | Column) -> str | Column:
    return opaque(value) if isinstance(value, str) else F.when(F.expr("spark_partition_id() >= 0"), value)


def split_undecided(fired: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The source rows whose outcome is known, and, as plain source rows again, those whose outcome is not."""
    decided = fired.filter(f"{FIRED} <> {UNDECIDED}")
    return decided, fired.filter(f"{FIRED} = {UNDECIDED}").drop(MATCHED, NOT_MATCHED, HAS_KEY, FIRED)


def _written_key(program: Program, row: WrittenRow) -> list[Given]:
    return [v for k in program.definition.primaryKey if isinstance(v := row.values[k], Given)]


def _has_key(keys: Sequence[str | Column]) -> str | Column:
    """Is no part of the key null."""
    if all(isinstance(key, str) for key in keys):
        return all_of(f"{as_sql(str(key))} IS NOT NULL" for key in keys)
    return reduce(lambda present, key: present & as_column(key).isNotNull(), keys, F.lit(True))


def _number(position: int) -> int:
    return position + 1


def _first_number(analysis: Analysis, kind: type) -> str | Column:
    return _first_true([(c.condition, _number(i)) for i, c in analysis.of_kind(kind)], "0")


def _first_clause(program: Program, kind: type, otherwise: str | Column) -> str | Column:
    clauses = program.analysis.of_kind(kind)
    return _first_true([(c.condition, program.code(i)) for i, c in clauses], otherwise)


def _first_true(cases: Sequence[tuple[str | Column | None, int]], otherwise: str | Column) -> str | Column:
    """The number of the first case whose condition is true; None is always true (S17, S20)."""
    return case([("true" if c is None else c, str(number)) for c, number in cases], otherwise)


# evaluate -------------------------------------------------------------------------------------------------------------


def evaluate(fired: DataFrame, program: Program) -> DataFrame:
    """Evaluates, once and only on rows of their clause, values that are Columns, checked or used twice (S29, S32)."""
    raws: dict[str, str | Column] = {}
    for code, firing in program.by_code.items():
        for number in firing.slots:
            for i, field in enumerate(program.definition.stored_fields):
                value = program.slots[number].row.values[field.name]
                if isinstance(value, Given) and _is_evaluated_first(program, value, field):
                    text = as_sql(value.value) if isinstance(value.value, str) else value.value
                    raws[RAW(number, i)] = case([(opaque(f"{FIRED} = {code}"), text)], "NULL")
    return with_columns(fired, raws) if raws else fired


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


# spread ---------------------------------------------------------------------------------------------------------------


def spread(evaluated: DataFrame, program: Program) -> DataFrame:
    """One row per row to be written, numbered by slot; a row without any keeps a null slot."""
    if program.beside_moves:
        evaluated = evaluated.selectExpr("*", f"monotonically_increasing_id() AS {FIRING}")
    if all(len(firing.slots) == 1 for firing in program.firings):
        cases = [f"WHEN {code} THEN {firing.slots[0]}" for code, firing in program.by_code.items()]
        if not program.knows_target:
            cases.append(f"WHEN {UNDECIDED} THEN {UNDECIDED}")
        slot = f"CASE {FIRED} {' '.join(cases)} END"
        return evaluated.selectExpr("*", f"{opaque(slot)} AS {SLOT}")
    arrays = [f"WHEN {code} THEN array({', '.join(map(str, f.slots))})" for code, f in program.by_code.items()]
    return evaluated.selectExpr("*", f"explode(CASE {FIRED} {' '.join(arrays)} END) AS {SLOT}")


# shape ----------------------------------------------------------------------------------------------------------------


def shape(spread_rows: DataFrame, program: Program) -> DataFrame:
    """The stored columns of each row, and what the join knows of the row it replaces.

    Returns:
        Stored columns, ``_tm_slot``, ``_tm_clause``, ``_tm_stands_for``, ``_tm_action``, ``_tm_misfit``;
        where the target is known also ``_tm_live`` and the
        watermarks of the latest target row the source row was paired by, for moves the old and the new key, and for
        inserts beside updates and deletes what tells whether these are stale.
    """
    definition = program.definition
    written = [
        f"CAST({opaque(by_slot({n: _stored_value(program, n, f) for n in range(len(program.slots))}))}"
        f" AS {sql_type(physical_type(f))}) AS {quote(f.name)}"
        for f in definition.stored_fields
    ]
    clause = by_slot({n: str(s.row.clause + 1) for n, s in enumerate(program.slots)})
    columns = [
        *written,
        SLOT,
        f"CAST({clause} AS INT) AS {CLAUSE}",
        f"CAST({_stands_for(program)} AS INT) AS {STANDS_FOR}",
    ]
    columns += [f"CAST({_action(program)} AS STRING) AS {ACTION}", f"{_misfits(program)} AS {MISFIT}"]
    if program.knows_target:
        columns += [LIVE, *before_watermarks(definition)]
    if program.moves:
        columns += _keys_of_moves(program)
    if program.beside_changes:
        columns.append(f"{_late(program)} AS {LATE}")
    if program.beside_moves:
        columns.append(FIRING)
    rows = spread_rows.selectExpr(*columns)
    return rows.selectExpr(*bare(definition, rows.columns)) if program.brings_tombstones else rows


def _stands_for(program: Program) -> str:
    """The clause whose firing is counted by the row; on rows of which nothing is known, whether they are undecided."""
    if not program.knows_target:
        return f"CASE WHEN {SLOT} = {UNDECIDED} THEN {UNDECIDED} END"
    return by_slot({f.slots[0]: str(f.clause + 1) for f in program.firings if not f.is_recorded_delete})


def _action(program: Program) -> str:
    """What each row does, in the user's words."""
    shown = {n: s.row.shown for n, s in enumerate(program.slots)}
    if not program.knows_target:
        shown |= dict.fromkeys(program.numbers(New), "upsert")
    return by_slot({n: f"'{word}'" for n, word in shown.items()})


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
    """Is the update or delete beside an insert stale, as far as the joined row tells (S11, S21a)."""
    names, before = program.definition.watermarkKey, before_watermarks(program.definition)
    late = {}
    for insert, change in program.beside_changes.items():
        if insert in program.beside_moves:
            continue
        values = program.slots[change].row.values
        written = [
            b if isinstance(values[w], Replaced) else _stored_value(program, change, program.definition.field(w))
            for w, b in zip(names, before, strict=True)
        ]
        late[insert] = is_older(written, before)
    return f"coalesce({by_slot(late)}, false)"


def _keys_of_moves(program: Program) -> list[str]:
    """Of each row of a moving update: the key it has left, the key it goes to, and whether it is a tombstone there."""
    columns = []
    for k, key in enumerate(program.definition.primaryKey):
        columns.append(f"{_moved_value(program, program.definition.field(key))} AS {NEW_KEY(k)}")
        columns.append(f"{program.analysis.target.column(key)} AS {OLD_KEY(k)}")
    tombstone = _moved_value(program, program.definition.field(program.definition.tombstone_column))
    columns.append(f"{is_tombstone(program.definition, tombstone)} AS {DIES}")
    return columns


def _moved_value(program: Program, field: Field) -> str:
    """What a moving update gives to a column; the tombstone left behind follows its update."""
    new = {n: _stored_value(program, n, field) for n in program.departures.values()}
    new |= {left: new[moved] for left, moved in program.departures.items()}
    return f"CAST({by_slot(new)} AS {sql_type(physical_type(field))})"


# probe ----------------------------------------------------------------------------------------------------------------


def probe(rows: DataFrame, program: Program, lookup: Lookup) -> DataFrame:
    """Adds what the written keys hold, live row or tombstone, where the join does not tell (S10.3, S25, S26).

    For a move that is the key it goes to, for its tombstone likewise: both must come to the same verdict.
    """
    definition, asked = program.definition, asked_keys(program)
    names = [KEY_TO_FIND(i) for i in range(len(asked))]
    asking = rows.selectExpr("*", *[f"{key} AS {name}" for key, name in zip(asked, names, strict=True)])
    found = lookup(asking.selectExpr(*names))
    answer = found.selectExpr(
        *[f"{quote(k)} AS {ANSWERED(i)}" for i, k in enumerate(definition.primaryKey)],
        f"NOT {is_tombstone(definition)} AS {FOUND_LIVE}",
        *[f"{quote(w)} AS {FOUND_WATERMARK(i)}" for i, w in enumerate(definition.watermarkKey)],
    )
    same_key = all_of(f"{n} = {ANSWERED(i)}" for i, n in enumerate(names))
    return asking.join(answer, F.expr(same_key), "left")


def asked_keys(program: Program) -> list[str]:
    """The keys to look up, as SQL over shaped rows; null where the join has told what there is to know."""
    leave, unknown = of_kinds(program, Departure), in_slots(program.unknown)
    keys = [
        f"CASE WHEN {leave} THEN {NEW_KEY(i)} ELSE {quote(k)} END" if program.moves else quote(k)
        for i, k in enumerate(program.definition.primaryKey)
    ]
    return [f"CASE WHEN {unknown} THEN {key} END" for key in keys]


def stored_columns(definition: TableDefinition) -> list[str]:
    """The columns of a staged batch, as SQL."""
    return [*(quote(f.name) for f in definition.stored_fields), CLAUSE, EFFECT]
