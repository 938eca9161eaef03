"""Step: which clause applies to each row (S17, S18)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import attrs
from pyspark.sql import Column, functions as F

from trinitymerge.merge.analysis.relations import as_column, choose
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.analysis.row_kinds import Expression
from trinitymerge.merge.compile.program import NEEDS_TARGET, MergeProgram, is_unfit
from trinitymerge.merge.compile.shape import raw_values
from trinitymerge.merge.compile.steps import Select, Step
from trinitymerge.merge.model.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.schema.definition import HIDDEN_PREFIX
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql, as_sql

_NOTHING = E.number(0)
"""The code of firing nothing, and the number of no clause."""


def _fire(program: MergeProgram, present: Sequence[str]) -> tuple[Select, ...]:
    """Add FIRES and FIRED, from IN_SOURCE, LIVE and both sides; from the source alone, MATCHED, NOT_MATCHED, HAS_KEY, FIRED."""
    if program.is_one_by_one:
        return _fire_one_by_one(program)
    return _fire_beside(program) if program.knows_target else _fire_alone(program)


def _fire_beside(program: MergeProgram) -> tuple[Select, ...]:
    """Mark each joined row with the code of what it sets off."""
    pairs = (program.is_pair, _first_clause(program, WhenMatched, _NOTHING))
    of_source = [pairs, (E.is_not_null(C.IN_SOURCE), _unpaired(program))]
    code = choose(of_source, _first_clause(program, WhenOnlyOnTarget, _NOTHING))
    # Rows on which nothing fires are filtered out as early as Spark can; only what is left is out of its sight.
    firing = Select.adding({C.FIRES: code}, where=E.not_(E.equals(C.FIRES, _NOTHING)))
    return firing, Select.adding({C.FIRED: E.opaque(C.FIRES)})


def _unpaired(program: MergeProgram) -> Sql | Column:
    return choose(_unfit(program), _first_clause(program, WhenNotMatched, _absent(program)))


def _unfit(program: MergeProgram) -> list[tuple[Sql, Sql]]:
    """Return the case of source rows whose key cannot be one of the table, if there may be any (S17a)."""
    code = program.unfit_code
    return [] if code is None else [(is_unfit(program.analysis), E.number(code))]


def _absent(program: MergeProgram) -> Sql | Column:
    """Return the code for a source row to which no not-matched clause applies (S18)."""
    analysis, match = program.analysis, program.match
    if match is None or not program.recorded:
        return _NOTHING
    has_key = _has_key([k.value for k in match.keys])
    cases = [(analysis.clauses[p].condition, program.code(p, True) if row else 0) for p, row in program.recorded]
    return choose([(has_key, _first_true(cases, _NOTHING))], _NOTHING)


def _fire_one_by_one(program: MergeProgram) -> tuple[Select, ...]:
    """Mark each joined row as :func:`_fire_beside` does, and compute the clauses' values.

    Clauses over both sides come first. Then the target's columns are put away, and after the clauses over the source its columns
    are left out, and the target's are back.
    """
    target, source, outbox_plan = program.analysis.target, program.analysis.source, program.analysis.outbox_plan
    assert source is not None
    pairs, of_source, of_target = C.FIRED_BY(0), C.FIRED_BY(1), C.FIRED_BY(2)
    names = [f.name for f in program.definition.fields]
    row = Sql(f"struct({', '.join(f'{target.column(n)} AS {E.quote(n)}' for n in names)})")
    sides = dict[str, Sql | Column]()
    if outbox_plan is not None:
        sides[C.JOINED_ROWS] = E.opaque(outbox_plan.scope.sides)
    without_pair = E.all_of([E.is_null(pairs), E.is_not_null(C.IN_SOURCE)])
    selects = [
        _firing(pairs, program.is_pair, _first_clause(program, WhenMatched, _NOTHING)),
        Select.adding({**raw_values(program, _codes(program, WhenMatched), pairs), **sides}),
        attrs.evolve(Select.adding({C.TARGET_ROW: row}), without=tuple(target.column(n) for n in names)),
        _firing(of_source, without_pair, _unpaired(program)),
        Select.adding(raw_values(program, _codes(program, WhenNotMatched), of_source)),
        attrs.evolve(Select.adding({}), without=tuple(source.schema.names)),
        attrs.evolve(Select.adding({n: Sql(f"{C.TARGET_ROW}.{E.quote(n)}") for n in names}), alias=target.alias),
        _firing(of_target, E.is_null(C.IN_SOURCE), _first_clause(program, WhenOnlyOnTarget, _NOTHING)),
        Select.adding(raw_values(program, _codes(program, WhenOnlyOnTarget), of_target)),
        Select.adding(
            {C.FIRES: E.or_else(pairs, E.or_else(of_source, of_target))}, where=E.not_(E.equals(C.FIRES, _NOTHING))
        ),
        Select.adding({C.FIRED: E.opaque(C.FIRES)}),
    ]
    return tuple(s for s in selects if s.items or s.without)


def _firing(name: Sql, condition: Sql | Column, code: Sql | Column) -> Select:
    return Select.adding({name: _opaque(choose([(condition, code)], E.NULL))})


def _codes(program: MergeProgram, kind: type) -> list[int]:
    """Return the codes of clauses of a kind. Deletes of absent keys belong to the not-matched clauses (S18)."""
    clauses = {i for i, _ in program.analysis.of_clause(kind)}
    codes, is_of_source = program.by_code.items(), kind is WhenNotMatched
    return [code for code, f in codes if (is_of_source if f.is_recorded_delete else f.clause in clauses)]


def _fire_alone(program: MergeProgram) -> tuple[Select, ...]:
    """Mark each source row with the code of its outcome, 0 for nothing, or :data:`NEEDS_TARGET`."""
    analysis, outcomes = program.analysis, program.outcomes
    same_row = [
        E.decode(name, {_number(p): E.number(i) for i, alike in enumerate(outcomes.classes) for p in alike[side]})
        for side, name in enumerate((C.MATCHED, C.NOT_MATCHED))
    ]
    tombstone = E.decode(C.MATCHED, {_number(m): E.number(program.code(m, True)) for m, _ in outcomes.tombstones})
    insert = E.decode(C.NOT_MATCHED, {_number(n): E.number(program.code(n)) for n, _ in outcomes.inserts})
    no_match, no_insert = E.equals(C.MATCHED, _NOTHING), E.equals(C.NOT_MATCHED, _NOTHING)
    cases = [
        *_unfit(program),
        (E.all_of([no_match, no_insert]), _NOTHING),
        # A null key has no tombstone.
        (no_insert, E.case([(E.any_of([E.is_null(tombstone), C.HAS_KEY]), tombstone)], _NOTHING)),
        (E.equals(*same_row), insert),
    ]
    found = E.or_else(E.case(cases), E.number(NEEDS_TARGET))
    keys = [t.values[k] for _, t in outcomes.tombstones[:1] for k in program.definition.primaryKey]
    tried: dict[str, Sql | Column] = {
        C.MATCHED: _opaque(_first_number(analysis, WhenMatched)),
        C.NOT_MATCHED: _opaque(_first_number(analysis, WhenNotMatched)),
        C.HAS_KEY: _has_key([v.value for v in keys if isinstance(v, Expression)]),
    }
    return Select.adding(tried), Select.adding({C.FIRED: E.opaque(found)})


def added_columns(program: MergeProgram) -> Iterable[str]:
    """Return the library's columns that :data:`FIRE` adds."""
    if program.is_one_by_one:
        return [n for select in _fire_one_by_one(program) for n in select.names if n.startswith(HIDDEN_PREFIX)]
    return (C.FIRES, C.FIRED) if program.knows_target else (C.MATCHED, C.NOT_MATCHED, C.HAS_KEY, C.FIRED)


def _opaque(value: Sql | Column) -> Sql | Column:
    return E.opaque(value) if isinstance(value, str) else F.when(F.expr("spark_partition_id() >= 0"), value)


def _has_key(keys: Sequence[str | Column]) -> Sql | Column:
    """Return True if no part of the key is null, as SQL or a Column."""
    texts = [as_sql(key) for key in keys if isinstance(key, str)]
    if len(texts) == len(keys):
        return E.all_of(map(E.is_not_null, texts))
    return reduce(lambda present, key: present & as_column(key).isNotNull(), keys, F.lit(True))


def _number(position: int) -> int:
    return position + 1


def _first_number(analysis: Analysis, kind: type) -> Sql | Column:
    return _first_true([(c.condition, _number(i)) for i, c in analysis.of_clause(kind)], _NOTHING)


def _first_clause(program: MergeProgram, kind: type, otherwise: Sql | Column) -> Sql | Column:
    return _first_true([(c.condition, program.code(i)) for i, c in program.analysis.of_clause(kind)], otherwise)


def _first_true(cases: Sequence[tuple[str | Column | None, int]], otherwise: Sql | Column) -> Sql | Column:
    """Return the number of the first case whose condition is true; None is always true (S17, S20)."""
    return choose([(E.TRUE if c is None else c, E.number(n)) for c, n in cases], otherwise)


FIRE = Step("fire", "which clause applies to each row: the first whose condition is true", _fire)
