"""Which clause applies to each row: the first of its kind whose condition is true (S17-S20).

Owns: the step ``fire``, in two forms: beside target rows, and of source rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trinitymerge.columns import FIRED, FIRES, HAS_KEY, IN_SOURCE, LIVE, MATCHED, NOT_MATCHED
from trinitymerge.expressions import (
    TRUE,
    all_of,
    any_of,
    case,
    decode,
    equals,
    is_not_null,
    is_null,
    not_,
    number,
    opaque,
    or_else,
)
from trinitymerge.merge.analysis.frames import as_column, choose
from trinitymerge.merge.analysis.kinds import WrittenRow
from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.analysis.values import Given
from trinitymerge.merge.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.compile.program import UNDECIDED, Program
from trinitymerge.merge.compile.steps import Select, Step
from trinitymerge.sqltext import Sql, as_sql

_NOTHING = number(0)
"""The code of firing nothing, and the number of no clause."""


def _fire(program: Program, present: Sequence[str]) -> tuple[Select, ...]:
    return _fire_beside(program) if program.knows_target else _fire_alone(program)


def _fire_beside(program: Program) -> tuple[Select, ...]:
    """Marks each joined row with the code of what it sets off."""
    analysis, match = program.analysis, program.match
    absent: Sql | Column = _NOTHING
    if match is not None and program.recorded:
        has_key = _has_key([k.value for k in match.keys])
        cases = [(analysis.clauses[p].condition, program.code(p, True) if row else 0) for p, row in program.recorded]
        absent = choose([(has_key, _first_true(cases, _NOTHING))], _NOTHING)
    of_source = [
        (program.is_pair, _first_clause(program, WhenMatched, _NOTHING)),
        (is_not_null(IN_SOURCE), _first_clause(program, WhenNotMatched, absent)),
    ]
    code = choose(of_source, _first_clause(program, WhenOnlyOnTarget, _NOTHING))
    # Rows on which nothing fires are filtered out as early as Spark can; only what is left is out of its sight.
    return Select.adding({FIRES: code}, where=not_(equals(FIRES, _NOTHING))), Select.adding({FIRED: opaque(FIRES)})


def _fire_alone(program: Program) -> tuple[Select, ...]:
    """Marks each source row with the code of its outcome, 0 for nothing, or :data:`UNDECIDED`."""
    analysis, outcomes = program.analysis, program.outcomes
    same_row = [
        _in_class(name, [[_number(p) for p in clauses[side]] for clauses in outcomes.classes])
        for side, name in enumerate((MATCHED, NOT_MATCHED))
    ]
    tombstone = decode(MATCHED, {_number(m): number(program.code(m, True)) for m, _ in outcomes.tombstones})
    insert = decode(NOT_MATCHED, {_number(n): number(program.code(n)) for n, _ in outcomes.inserts})
    no_match, no_insert = equals(MATCHED, _NOTHING), equals(NOT_MATCHED, _NOTHING)
    cases = [
        (all_of([no_match, no_insert]), _NOTHING),
        # A null key has no tombstone.
        (no_insert, case([(any_of([is_null(tombstone), HAS_KEY]), tombstone)], _NOTHING)),
        (equals(*same_row), insert),
    ]
    found = or_else(case(cases), number(UNDECIDED))
    keys = [v.value for _, t in outcomes.tombstones[:1] for v in _written_key(program, t)]
    tried: dict[str, Sql | Column] = {
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


def _in_class(name: Sql, classes: Sequence[Sequence[int]]) -> Sql:
    """The number of the class that a column's number is in, as SQL; null if it is in none."""
    return decode(name, {n: number(i) for i, numbers in enumerate(classes) for n in numbers})


def _opaque(value: Sql | Column) -> Sql | Column:
    return opaque(value) if isinstance(value, str) else F.when(F.expr("spark_partition_id() >= 0"), value)


def _written_key(program: Program, row: WrittenRow) -> list[Given]:
    return [v for k in program.definition.primaryKey if isinstance(v := row.values[k], Given)]


def _has_key(keys: Sequence[str | Column]) -> Sql | Column:
    """True if no part of the key is null, as SQL or a Column."""
    texts = [as_sql(key) for key in keys if isinstance(key, str)]
    if len(texts) == len(keys):
        return all_of(map(is_not_null, texts))
    return reduce(lambda present, key: present & as_column(key).isNotNull(), keys, F.lit(True))


def _number(position: int) -> int:
    return position + 1


def _first_number(analysis: Analysis, kind: type) -> Sql | Column:
    return _first_true([(c.condition, _number(i)) for i, c in analysis.of_clause(kind)], _NOTHING)


def _first_clause(program: Program, kind: type, otherwise: Sql | Column) -> Sql | Column:
    clauses = program.analysis.of_clause(kind)
    return _first_true([(c.condition, program.code(i)) for i, c in clauses], otherwise)


def _first_true(cases: Sequence[tuple[str | Column | None, int]], otherwise: Sql | Column) -> Sql | Column:
    """The number of the first case whose condition is true; None is always true (S17, S20)."""
    return choose([(TRUE if c is None else c, number(n)) for c, n in cases], otherwise)


FIRE = Step("fire", "which clause applies to each row: the first whose condition is true", _needs, _adds, _fire)
