"""Which clause applies to each row: the first of its kind whose condition is true (S17-S20).

Owns: the step ``fire``, in two forms: beside target rows, and of source rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trinitymerge.columns import FIRED, FIRES, HAS_KEY, IN_SOURCE, LIVE, MATCHED, NOT_MATCHED
from trinitymerge.expressions import all_of, opaque
from trinitymerge.merge.analysis.frames import as_column, as_sql, case
from trinitymerge.merge.analysis.kinds import WrittenRow
from trinitymerge.merge.analysis.resolution import Analysis
from trinitymerge.merge.analysis.values import Given
from trinitymerge.merge.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.compile.program import UNDECIDED, Program
from trinitymerge.merge.compile.steps import Select, Step


def _fire(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    return _fire_beside(program) if program.knows_target else _fire_alone(program)


def _fire_beside(program: Program) -> tuple[Select, ...]:
    """Marks each joined row with the code of what it sets off."""
    analysis, match = program.analysis, program.match
    absent: str | Column = "0"
    if match is not None and program.recorded:
        has_key = _has_key([k.value for k in match.keys])
        cases = [(analysis.clauses[p].condition, program.code(p, True) if row else 0) for p, row in program.recorded]
        absent = case([(has_key, _first_true(cases, "0"))], "0")
    of_source = [
        (program.is_pair, _first_clause(program, WhenMatched, "0")),
        (f"{IN_SOURCE} IS NOT NULL", _first_clause(program, WhenNotMatched, absent)),
    ]
    code = case(of_source, _first_clause(program, WhenOnlyOnTarget, "0"))
    # Rows on which nothing fires are filtered out as early as Spark can; only what is left is out of its sight.
    return Select.adding({FIRES: code}, where=f"{FIRES} <> 0"), Select.adding({FIRED: opaque(FIRES)})


def _fire_alone(program: Program) -> tuple[Select, ...]:
    """Marks each source row with the code of its outcome, 0 for nothing, or :data:`UNDECIDED`."""
    analysis, outcomes = program.analysis, program.outcomes
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
    return Select.adding(tried), Select.adding({FIRED: opaque(found)})


def split_undecided(fired: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The source rows whose outcome is known, and, as plain source rows again, those whose outcome is not."""
    decided = fired.filter(f"{FIRED} <> {UNDECIDED}")
    return decided, fired.filter(f"{FIRED} = {UNDECIDED}").drop(MATCHED, NOT_MATCHED, HAS_KEY, FIRED)


def _needs(program: Program) -> Iterable[str]:
    if not program.knows_target:
        return ()
    return (IN_SOURCE, LIVE) if program.analysis.source is not None else (IN_SOURCE,)


def _adds(program: Program) -> Iterable[str]:
    return (FIRES, FIRED) if program.knows_target else (MATCHED, NOT_MATCHED, HAS_KEY, FIRED)


def _decoded(name: str, values: Mapping[int, int]) -> str:
    """What a column's number stands for, as SQL; null if nothing."""
    cases = " ".join(f"WHEN {number} THEN {value}" for number, value in values.items())
    return f"CASE {name} {cases} END" if cases else "CAST(NULL AS INT)"


def _in_class(name: str, classes: Sequence[Sequence[int]]) -> str:
    """The number of the class that a column's number is in, as SQL; null if it is in none."""
    return _decoded(name, {number: i for i, numbers in enumerate(classes) for number in numbers})


def _opaque(value: str | Column) -> str | Column:
    return opaque(value) if isinstance(value, str) else F.when(F.expr("spark_partition_id() >= 0"), value)


def _written_key(program: Program, row: WrittenRow) -> list[Given]:
    return [v for k in program.definition.primaryKey if isinstance(v := row.values[k], Given)]


def _has_key(keys: Sequence[str | Column]) -> str | Column:
    """Whether no part of the key is null, as SQL or a Column."""
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


FIRE = Step("fire", "which clause applies to each row: the first whose condition is true", _needs, _adds, _fire)
