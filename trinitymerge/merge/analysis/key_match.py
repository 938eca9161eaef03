"""Whether a condition is equality on the primary key (S18, S31)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FractionalType,
    IntegralType,
    LongType,
    NullType,
    StringType,
    StructField,
)

from trinitymerge.merge.analysis.relations import Source, Target, as_column
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.analysis.row_kinds import Expression, Value, WrittenRow
from trinitymerge.merge.model.names import conjuncts, in_parentheses, is_plain_equality, name_parts, sides
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import CastPolicy, cast_policy, cast_to_column, rounds, widens_exactly
from trinitymerge.spark.errors import suppress_error_logs
from trinitymerge.spark.sql_text import Sql, as_sql


@attrs.frozen(eq=False)
class KeyMatch:
    """The merge condition implies equality on the whole primary key, with the source's ``keys`` as stored; ``exact``: no more."""

    keys: tuple[Expression, ...]
    exact: bool


@attrs.frozen(eq=False)
class Equalities:
    """The primary-key columns that the merge condition implies equality on.

    Attributes:
        keys: by the column, the source's side as it is stored in it.
        are_all: the condition is these equalities and nothing more.
        over_keys: the condition with the source's sides as they were evaluated with the source
            (:data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`), so that the lookup seeks the values that are compared;
            None where the condition itself can be used.
        by_name: the keys are compared as the table stores them (S17a).
        types: the types of what the condition compares with key columns, by column.
    """

    keys: Mapping[str, Expression] = attrs.field(factory=dict)
    are_all: bool = False
    over_keys: Sql | None = None
    by_name: bool = False
    types: Mapping[str, DataType] = attrs.field(factory=dict)

    def match(self, definition: TableDefinition) -> KeyMatch | None:
        if set(self.keys) != set(definition.primaryKey):
            return None
        return KeyMatch(tuple(self.keys[k] for k in definition.primaryKey), self.are_all)

    def mixed(self, definition: TableDefinition) -> list[str]:
        """Return where a key is compared with a value of another type, in words (S17a)."""
        found = []
        for key, theirs in self.types.items():
            field = definition.field(key)
            mine = E.physical_type(field)
            if isinstance(theirs, NullType) or widens_exactly(theirs, mine) or widens_exactly(mine, theirs):
                continue
            meaning = "Spark compares them in a common type, in which different keys can be equal. Cast one of them"
            meaning = f"compared as {field.text}" if self.by_name else meaning
            found.append(f"'{key}' is {field.text} in the table and {theirs.simpleString()} in the source: {meaning}")
        return found

    def sought(self, key: str, definition: TableDefinition) -> tuple[str | Column | None, DataType]:
        """Return the value that is looked up for a key column, over the source alone, and its type."""
        given = self.keys[key]
        if not self.by_name:
            return given.alone, given.type
        field = definition.field(key)
        return cast_to_column(as_sql(str(given.alone)), given.way, field, True, given.type), E.physical_type(field)


def key_equalities(analysis: Analysis) -> Equalities:
    source, target = analysis.source, analysis.target
    if source is None:
        return Equalities()
    if analysis.by_name:
        types = {name: key.type for name, key in analysis.keys.items()}
        return Equalities(analysis.keys, are_all=True, by_name=True, types=types)
    read = _guess(analysis, source)
    found, types = dict[str, Expression](), {}
    for part in read:
        if part.key:
            theirs = source.selected([part.alone]).schema.fields[0]
            types[part.key] = theirs.dataType
            given = _given_key(analysis, part.key, part.side, part.alone, theirs)
            if given:
                found[part.key] = given
    places = {k: i for i, k in enumerate(target.definition.primaryKey)}
    compared = [
        E.equals(target.column(part.key), C.KEY_TO_FIND(places[part.key])) if part.key in found else as_sql(part.text)
        for part in read
    ]
    over_keys = E.all_of(compared) if found else None
    return Equalities(found, are_all=len(found) == len(read), over_keys=over_keys, types=types)


def uncastable_keys(analysis: Analysis) -> dict[str, Sql]:
    """Return where the user's condition equates a key of another type with text, which Spark casts (S17a).

    By the column of the key, it is SQL over the source that is true if the cast would fail; never null.
    """
    source, definition, found = analysis.source, analysis.definition, dict[str, Sql]()
    if source is None or analysis.by_name:
        return found
    for part in _guess(analysis, source):
        if part.key and isinstance(source.selected([part.alone]).schema.fields[0].dataType, StringType):
            mine, value = E.physical_type(definition.field(part.key)), as_sql(part.alone)
            if not isinstance(mine, StringType):
                kind = LongType() if isinstance(mine, IntegralType) else mine
                kind = DoubleType() if isinstance(mine, FractionalType) else kind
                fails = Sql(f"try_cast({value} AS {E.sql_type(kind)}) IS NULL")
                found[part.key] = E.all_of([E.is_not_null(value), fails])
    return found


@attrs.frozen
class _Conjunct:
    """One part of a condition: its text and, where it equates a primary-key column with something of the source, both."""

    text: str
    key: str | None = None
    side: str = ""
    alone: str = ""


def _guess(analysis: Analysis, source: Source) -> list[_Conjunct]:
    """Return the AND parts of the condition, verified by the analyzer; the whole as one part if that fails."""
    condition = analysis.condition
    assert condition is not None
    found: list[_Conjunct] = []
    for part in conjuncts(condition):
        pair = _key_pair(analysis.target, source, part)
        if pair is not None and all(pair[0] != other.key for other in found):
            found.append(_Conjunct(in_parentheses(part), *pair, pair[1]))
        else:
            found.append(_Conjunct(part))
    is_known = is_plain_equality(condition) or all(part.key is None for part in found)
    return found if is_known or _reads_as(analysis, condition, [part.text for part in found]) else [_Conjunct("")]


def _reads_as(analysis: Analysis, condition: str | Column, parts: list[str]) -> bool:
    """Return True if a condition is the conjunction of these texts.

    They may bind otherwise, or be a Column's, whose text is the same for ``F.lit("B.id")`` and a name.
    """
    with suppress(AnalysisException, ParseException), suppress_error_logs():
        read = analysis.joined.filter(" AND ".join(as_sql(p) for p in parts))
        return bool(analysis.joined.filter(as_column(condition)).sameSemantics(read))
    return False


def _key_pair(target: Target, source: Source, part: str) -> tuple[str, str] | None:
    """Return ``(key column, source side)`` if a conjunct equates a primary-key column with the source alone."""
    pair = sides(part)
    if pair is None:
        return None
    for mine, theirs in (pair, pair[::-1]):
        key = _key_column(target, mine)
        if key is not None and not source.has_fields(target.alias) and source.resolves(theirs):
            return key, theirs
    return None


def _key_column(target: Target, text: str) -> str | None:
    """Return the primary-key column a text names through the target's alias or, if only the target has it, without."""
    parts = name_parts(text)
    is_named = len(parts) == 1 or (len(parts) == 2 and parts[0].lower() == target.alias.lower())
    name = parts[-1] if is_named else ""
    for key in target.definition.primaryKey:
        if text.strip() == f"{target.alias}.{key}" and text.replace(".", "").strip().isidentifier():
            return key  # nothing else can be called so: the condition as a whole has been analysed
        if key.lower() == name.lower():
            with suppress(AnalysisException, ParseException), suppress_error_logs():
                if target.empty.select(as_column(text)).sameSemantics(target.empty.selectExpr(target.column(key))):
                    return key
    return None


def _given_key(analysis: Analysis, key: str, side: str, alone: str, given: StructField) -> Expression | None:
    """Return the source's side as a key value, or None where equality on it is not equality on the key.

    Spark compares two types in a common one. This is equality on the key only if the cast of the *target's* column is
    one to one; the cast of the source's side does not matter.
    """
    field = analysis.definition.field(key)
    length = E.declared_length(field)
    if length and length[0] == "char" and not E.AS_STORED.keys() & given.metadata.keys():
        return None  # stored padded, compared as it is written
    mine, theirs = E.physical_type(field), given.dataType
    if not (widens_exactly(mine, theirs) or widens_exactly(theirs, mine) or _casts_source(analysis, key, side)):
        return None
    way = cast_policy(theirs, field)
    if way is CastPolicy.REFUSED or rounds(theirs, mine):
        return None  # 1.5 equals no integer, but would be stored as one
    return Expression(side, alone, theirs, way)


def _casts_source(analysis: Analysis, key: str, side: str) -> bool:
    """Return True if Spark, to compare them, casts the source's side to the key's type, or both to a wider one."""
    mine, own = analysis.target.column(key), E.physical_type(analysis.definition.field(key))
    assert analysis.source is not None
    joined = analysis.target.empty.crossJoin(analysis.source.frame)  # the side may be a copy
    compared = joined.filter(f"{mine} = {as_sql(side)}")
    wider = (kind for kind in (own, LongType()) if widens_exactly(own, kind))
    cast = (joined.filter(f"{mine} = CAST({as_sql(side)} AS {E.sql_type(kind)})") for kind in wider)
    return any(compared.sameSemantics(other) for other in cast)


def keeps_key(analysis: Analysis, match: KeyMatch | None, row: WrittenRow) -> bool:
    """Return True if the written row's key is known to be the key its source row was paired by (S25)."""
    assigned = row.assigned_key(analysis.definition)
    if not assigned:
        return True
    if match is None:
        return False
    keys = dict(zip(analysis.definition.primaryKey, match.keys, strict=True))
    return _same_values(analysis, [(value, keys[name]) for name, value in assigned.items()])


def _same_values(analysis: Analysis, pairs: Sequence[tuple[Value, Value]]) -> bool:
    """Return True if values are the same, pair by pair, without looking at the target."""
    left, right = [], []
    for a, b in pairs:
        if isinstance(a, Expression) and isinstance(b, Expression):
            if a.alone is None or b.alone is None:
                return False
            left.append(a.alone)
            right.append(b.alone)
        elif type(a) is not type(b) or a.reads_target:
            return False
    return not left or (analysis.source is not None and analysis.source.same(left, right))
