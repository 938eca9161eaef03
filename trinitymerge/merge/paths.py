"""Which path a merge may take, and why not a cheaper one (S31).

Owns: recognising primary-key equality in a merge condition, and the soundness of the paths: *blind append* (the
target is not read), *keyed lookup* (only keys that occur in the source are read) and *full scan*. A blind merge may turn
out to hold rows whose meaning depends on whether their key exists: those alone are then looked up (*mixed*). Guesses are made from
text and verified by Spark's analyzer; what cannot be verified takes the safer path.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import attrs
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql.types import LongType

from trinitymerge.errors import InvalidMergeError
from trinitymerge.expressions import declared_length, physical_type, sql_type
from trinitymerge.merge.analysis import Analysis, ClausePlan, Given, Replaced, Template, Value
from trinitymerge.merge.assignment import Storing, rounds, storing, widens_exactly
from trinitymerge.merge.clauses import Delete, Update, WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.frames import Source, Target, as_column, as_sql, quiet, selected, source_copy
from trinitymerge.merge.names import conjuncts, in_parentheses, is_plain_equality, name_parts, sides


class Path(enum.Enum):
    """How a merge reads its target, cheapest first."""

    BLIND = "blind append"
    MIXED = "blind append with keyed lookup"
    KEYED = "keyed lookup"
    FULL = "full scan"


@attrs.frozen(eq=False)
class KeyMatch:
    """The merge condition implies equality on the whole primary key.

    Attributes:
        keys: for each primary-key column, the source's side as it is stored in it.
        exact: the condition is that equality and nothing more.
    """

    keys: tuple[Given, ...]
    exact: bool


@attrs.frozen(eq=False)
class Outcomes:
    """What source rows lead to, whatever the target holds.

    It depends on the first whenMatched and the first whenNotMatched clause whose condition is true: nothing where there is
    neither, else one of these.

    Attributes:
        tombstones: whenMatched clauses that delete, and the tombstone they write where no whenNotMatched clause applies.
        inserts: whenNotMatched clauses, and the row they write where a whenMatched clause of their class applies.
        classes: whenMatched and whenNotMatched clauses that write the same row. One entry for each different row, not for
            each pair of clauses: there may be many.
    """

    tombstones: tuple[tuple[int, Template], ...] = ()
    inserts: tuple[tuple[int, Template], ...] = ()
    classes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def allow(self, matched: Sequence[int | None], not_matched: Sequence[int | None]) -> bool:
        """Has every pair of clauses that can both be the first true ones such an outcome. None stands for no clause."""
        deletes = {m for m, _ in self.tombstones}
        class_of = {m: i for i, (ms, _) in enumerate(self.classes) for m in ms}
        class_of_insert = {n: i for i, (_, ns) in enumerate(self.classes) for n in ns}
        if None in not_matched and any(m is not None and m not in deletes for m in matched):
            return False
        inserts = {class_of_insert.get(n) for n in not_matched if n is not None}
        updates = {class_of.get(m) if m is not None else None for m in matched}
        return not inserts or (len(inserts | updates) == 1 and None not in inserts)


@attrs.frozen(eq=False)
class Paths:
    """The verdict on a merge.

    Attributes:
        key_match: None when the condition is not known to imply key equality.
        why_not: the one reason against each path that is not sound.
        outcomes: for the blind path, the outcomes that do not depend on the target.
        certain: no source row can have another outcome.
        absent_deletes: per whenMatched clause that can be decided without the target, in order: the row written for a
            source row it would delete and whose key is not live, or None where nothing is.
    """

    key_match: KeyMatch | None
    why_not: dict[Path, str]
    outcomes: Outcomes
    certain: bool
    absent_deletes: tuple[tuple[int, Template | None], ...]

    @property
    def cheapest(self) -> Path:
        """The cheapest sound path."""
        return next(p for p in Path if p not in self.why_not)


def judge(analysis: Analysis, needs_counts: str | None) -> Paths:
    """Decides which paths are sound.

    Args:
        analysis: the merge.
        needs_counts: why the merge must know what its rows replace, or None.
    """
    match = key_match(analysis)
    why_not: dict[Path, str] = {}
    keyed = _why_not_keyed(analysis, match)
    if keyed:
        why_not[Path.KEYED] = keyed
    absent = _absent_deletes(analysis, match)
    outcomes = _outcomes(analysis, match) if match and match.exact else Outcomes()
    blind = keyed or _why_not_blind(analysis, match, outcomes, needs_counts)
    if blind:
        why_not[Path.BLIND] = why_not[Path.MIXED] = blind
    elif any(may_arrive(analysis, match, t) for plan in analysis.clauses for t in plan.templates):
        why_not[Path.MIXED] = "a row may come to a key that another row frees"
    return Paths(match, why_not, outcomes, _is_certain(analysis, outcomes), absent)


# Key equality ---------------------------------------------------------------------------------------------------------


def key_match(analysis: Analysis) -> KeyMatch | None:
    """Recognises equality on the whole primary key in the merge condition."""
    source, target = analysis.source, analysis.target
    if source is None:
        return None
    rest: list[str] = []
    if analysis.by_name:
        indexes = [source.index(k) or 0 for k in target.definition.primaryKey]
        sides_by_key = [(source_copy(i), source.plain(i)) for i in indexes]
    else:
        guess = _guess(analysis, source)
        if guess is None:
            return None
        sides_by_key, rest = [(text, text) for text in guess[0]], guess[1]
    keys = [
        _given_key(analysis, source, k, side, alone)
        for k, (side, alone) in zip(target.definition.primaryKey, sides_by_key, strict=True)
    ]
    found = [k for k in keys if k is not None]
    return KeyMatch(tuple(found), exact=not rest) if len(found) == len(keys) else None


def _guess(analysis: Analysis, source: Source) -> tuple[list[str], list[str]] | None:
    """The source's side of each primary-key column and what else the condition says, read from text and verified."""
    condition = analysis.condition
    assert condition is not None
    parts = conjuncts(condition)
    sides_by_key: dict[str, str] = {}
    rest, read = [], []
    for part in parts:
        pair = _key_pair(analysis.target, source, part)
        if pair is not None and pair[0] not in sides_by_key:
            sides_by_key[pair[0]] = pair[1]
            read.append(in_parentheses(part))
        else:
            rest.append(part)
            read.append(part)
    if set(sides_by_key) != set(analysis.definition.primaryKey):
        return None
    if not is_plain_equality(condition) and not _reads_as(analysis, condition, read):
        return None
    return [sides_by_key[k] for k in analysis.definition.primaryKey], rest


def _reads_as(analysis: Analysis, condition: str | Column, parts: list[str]) -> bool:
    """Is a condition the conjunction of these texts.

    They may bind otherwise, or be a Column's, which does not tell ``F.lit("B.id")`` from a name.
    """
    with suppress(AnalysisException, ParseException), quiet():
        read = analysis.joined.filter(" AND ".join(as_sql(p) for p in parts))
        return bool(analysis.joined.filter(as_column(condition)).sameSemantics(read))
    return False


def _key_pair(target: Target, source: Source, part: str) -> tuple[str, str] | None:
    """``(key column, source side)`` when a conjunct equates a primary-key column with something of the source alone."""
    pair = sides(part)
    if pair is None:
        return None
    for mine, theirs in (pair, pair[::-1]):
        key = _key_column(target, mine)
        if key is not None and source.index(target.alias) is None and source.resolves(theirs):
            return key, theirs
    return None


def _key_column(target: Target, text: str) -> str | None:
    """The primary-key column a text names through the target's alias or, if only the target has it, without."""
    parts = name_parts(text)
    name = (
        parts[-1]
        if parts and (len(parts) == 1 or (len(parts) == 2 and parts[0].lower() == target.alias.lower()))
        else ""
    )
    for key in target.definition.primaryKey:
        if text.strip() == f"{target.alias}.{key}" and text.replace(".", "").strip().isidentifier():
            return key  # nothing else can be called so: the condition as a whole has been analysed
        if key.lower() == name.lower():
            with suppress(AnalysisException, ParseException), quiet():
                if target.empty.select(as_column(text)).sameSemantics(target.empty.selectExpr(target.column(key))):
                    return key
    return None


def _given_key(analysis: Analysis, source: Source, key: str, side: str, alone: str) -> Given | None:
    """The source's side as a key value, or None where equality on it is not equality on the key.

    Spark compares two types in a common one. That is equality on the key only if the cast of the *target's* column is
    one to one; the cast of the source's side does not matter.
    """
    field = analysis.definition.field(key)
    length = declared_length(field)
    if length and length[0] == "char":
        return None  # stored padded, compared as it is written
    mine, theirs = physical_type(field), selected(source.df, [alone]).schema.fields[0].dataType
    if not (widens_exactly(mine, theirs) or widens_exactly(theirs, mine) or _casts_source(analysis, key, side)):
        return None
    way = storing(theirs, field)
    if way is Storing.REFUSED or rounds(theirs, mine):
        return None  # 1.5 equals no integer, but would be stored as one
    return Given(side, alone, theirs, way)


def _casts_source(analysis: Analysis, key: str, side: str) -> bool:
    """Does Spark, to compare them, cast the source's side to the key's type, or both to a wider one."""
    mine, own = analysis.target.column(key), physical_type(analysis.definition.field(key))
    compared = analysis.joined.filter(f"{mine} = {as_sql(side)}")
    return any(
        compared.sameSemantics(analysis.joined.filter(f"{mine} = CAST({as_sql(side)} AS {sql_type(kind)})"))
        for kind in (own, LongType())
        if widens_exactly(own, kind)
    )


# Soundness ------------------------------------------------------------------------------------------------------------


def _why_not_keyed(analysis: Analysis, match: KeyMatch | None) -> str | None:
    if analysis.source is None:
        return "without a source every live row of the target is looked at"
    target_only = analysis.of_kind(WhenOnlyOnTarget)
    if target_only:
        return f"clause {target_only[0][0] + 1} looks for rows that exist only on the target"
    if match is None:
        return "the merge condition is not known to imply equality on the whole primary key"
    if match.exact:
        return None
    for position, plan in analysis.of_kind(WhenNotMatched):
        if plan.reads_target or any(_reads_target_values(t) for t in plan.templates):
            return f"clause {position + 1} mentions the target where a row is not matched by more than its key"
    return None


def _reads_target_values(template: Template) -> bool:
    return any(isinstance(v, Given) and v.reads_target for v in template.values.values())


def _why_not_blind(
    analysis: Analysis, match: KeyMatch | None, outcomes: Outcomes, needs_counts: str | None
) -> str | None:
    if match is None or not match.exact:
        return "the merge condition is more than equality on the primary key"
    if needs_counts:
        return needs_counts
    for position, plan in enumerate(analysis.clauses):
        if plan.reads_target:
            return f"the condition of clause {position + 1} reads the target"
    if not outcomes.tombstones and not outcomes.inserts:
        return _why_no_outcome(analysis)
    return None


def _why_no_outcome(analysis: Analysis) -> str:
    for position, plan in enumerate(analysis.clauses):
        for template in plan.templates:
            lacking = [n for n, v in template.values.items() if isinstance(v, Replaced)]
            if lacking:
                return f"clause {position + 1} takes the watermark '{lacking[0]}' over from the row it replaces"
            if plan.clause.actions[0] != Delete() and template.reads_target:
                return f"clause {position + 1} writes values of the target row"
    return "what a source row means depends on whether its key exists"


def _outcomes(analysis: Analysis, match: KeyMatch) -> Outcomes:
    """The clauses that write the same whichever of their kinds applies (or nothing)."""
    tombstones = [(m, _blind_delete(analysis, match, plan)) for m, plan in analysis.of_kind(WhenMatched)]
    updates = _rows_of_source(analysis, match, [(m, p) for m, p in analysis.of_kind(WhenMatched) if _only_updates(p)])
    inserts = _rows_of_source(analysis, match, analysis.of_kind(WhenNotMatched))
    updates, inserts = _identified(analysis, updates, inserts)
    classes = tuple((updates[row], inserts[row]) for row in updates if row in inserts)
    both = {n for _, ns in classes for n in ns}
    return Outcomes(
        tuple((m, t) for m, t in tombstones if t is not None),
        tuple((n, plan.templates[0]) for n, plan in analysis.of_kind(WhenNotMatched) if n in both),
        classes,
    )


def _only_updates(plan: ClausePlan) -> bool:
    return len(plan.clause.actions) == 1 and isinstance(plan.clause.actions[0], Update)


def _blind_delete(analysis: Analysis, match: KeyMatch, plan: ClausePlan) -> Template | None:
    row = _absent_delete(analysis, match, plan)
    return None if row is None or row.reads_target else row


def _absent_delete(analysis: Analysis, match: KeyMatch, plan: ClausePlan) -> Template | None:
    """The tombstone of a delete whose key may not exist: nothing is known of its row but what the source says."""
    if plan.clause.actions != (Delete(),):
        return None
    (delete,) = plan.templates
    keys = dict(zip(analysis.definition.primaryKey, match.keys, strict=True))
    return Template(delete.clause, "delete", {**delete.values, **keys})


def _absent_deletes(analysis: Analysis, match: KeyMatch | None) -> tuple[tuple[int, Template | None], ...]:
    """The leading whenMatched clauses that can be tried without a target row, and the tombstones they then write."""
    found: list[tuple[int, Template | None]] = []
    if match is None or not match.exact:
        return ()
    for position, plan in analysis.of_kind(WhenMatched):
        if plan.reads_target:
            break
        found.append((position, _absent_delete(analysis, match, plan)))
    return tuple(found) if any(t for _, t in found) else ()


@attrs.frozen(eq=False)
class _Columns:
    """Values that cannot be compared without asking, for some are Columns."""

    expressions: tuple[str | Column, ...]


_Row: TypeAlias = tuple[tuple[str, ...], Any]
"""What a clause writes for a source row: for each column how it comes by its value, and the values given."""

_ByRow: TypeAlias = dict[_Row, tuple[int, ...]]


def _identified(analysis: Analysis, updates: _ByRow, inserts: _ByRow) -> tuple[_ByRow, _ByRow]:
    """Rows that mean the same made equal.

    Each is asked about once, so that many clauses need not be compared pair by pair; none is where texts tell already.
    """
    source = analysis.source
    if source is None or not updates or not inserts or set(updates) == set(inserts):
        return updates, inserts
    found: list[_ByRow] = [{}, {}]
    for rows, same in zip((updates, inserts), found, strict=True):
        for (kinds, values), positions in rows.items():
            expressions = values.expressions if isinstance(values, _Columns) else values
            row = (kinds, source.identity(expressions) if expressions else None)
            same[row] = (*same.get(row, ()), *positions)
    return found[0], found[1]


def _rows_of_source(analysis: Analysis, match: KeyMatch, clauses: Sequence[tuple[int, ClausePlan]]) -> _ByRow:
    """The clauses that write a row for a source row without looking at the target, by what they write."""
    found: _ByRow = {}
    for position, plan in clauses:
        row = _row_of_source(analysis, match, plan.templates[0])
        if row is not None:
            found[row] = (*found.get(row, ()), position)
    return found


def _row_of_source(analysis: Analysis, match: KeyMatch, template: Template) -> _Row | None:
    others = [v for n, v in template.values.items() if n not in analysis.definition.primaryKey]
    given = [v for v in others if isinstance(v, Given)]
    values = tuple(v.alone for v in given if v.alone is not None)
    are_text = all(isinstance(v, str) for v in values)
    if len(values) < len(given) or not keeps_key(analysis, match, template):
        return None
    if any(not isinstance(v, Given) and Template(0, "update", {"v": v}).reads_target for v in others):
        return None
    return tuple(type(v).__name__ for v in others), values if are_text else _Columns(values)


def keeps_key(analysis: Analysis, match: KeyMatch | None, template: Template) -> bool:
    """Is the written row's key known to be the key its source row was paired by (S25)."""
    written = [template.values[k] for k in analysis.definition.primaryKey]
    if template.action == "delete" or (template.action == "update" and not template.moves):
        return True
    if match is None:
        return False
    # In an update, a part of the key that is not assigned stays.
    pairs = [
        (mine, given)
        for mine, given in zip(written, match.keys, strict=True)
        if isinstance(mine, Given) or template.action != "update"
    ]
    return _same_values(analysis, pairs)


def may_arrive(analysis: Analysis, match: KeyMatch | None, template: Template) -> bool:
    """May a row come to a key that is live, other than by replacing its own pre-image (S24, S25)."""
    if template.action == "insert":
        not_matched = isinstance(analysis.clauses[template.clause].clause, WhenNotMatched)
        return not (not_matched and match is not None and match.exact and keeps_key(analysis, match, template))
    return not keeps_key(analysis, match, template)


def _same_values(analysis: Analysis, pairs: Sequence[tuple[Value, Value]]) -> bool:
    """Are values the same, pair by pair, without looking at the target."""
    left, right = [], []
    for a, b in pairs:
        if isinstance(a, Given) and isinstance(b, Given):
            if a.alone is None or b.alone is None:
                return False
            left.append(a.alone)
            right.append(b.alone)
        elif type(a) is not type(b) or Template(0, "update", {"v": a}).reads_target:
            return False
    return not left or (analysis.source is not None and analysis.source.same(left, right))


def _is_certain(analysis: Analysis, outcomes: Outcomes) -> bool:
    """Can every source row only have one of the outcomes, by the shape of the clause lists alone."""
    matched, not_matched = analysis.of_kind(WhenMatched), analysis.of_kind(WhenNotMatched)
    return outcomes.allow(
        _possible([p for p, _ in matched], matched), _possible([p for p, _ in not_matched], not_matched)
    )


def _possible(positions: list[int], clauses: list[tuple[int, ClausePlan]]) -> list[int | None]:
    unconditional = any(plan.condition is None for _, plan in clauses)
    return [*positions] if unconditional else [*positions, None]


def check_forced(path: Path, paths: Paths) -> None:
    """Refuses to take a path that is not sound.

    Raises:
        InvalidMergeError: with the reason.
    """
    if path in paths.why_not:
        raise InvalidMergeError(f"This merge cannot run as {path.value}: {paths.why_not[path]}.")
