"""Hypothesis strategies for clauses."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import attrs
from hypothesis import strategies as st

from trinitymerge.merge.model.clauses import (
    Action,
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing.domains import KEY_VALUES, VALUES
from trinitymerge.testing.model.expressions import (
    Expr,
    all_of,
    any_of,
    bare,
    coalesce,
    eq,
    is_null,
    literal,
    lt,
    ne,
    negation,
    plus,
    same,
    source,
    target,
)
from trinitymerge.testing.model.values import alive_value, tombstone_value

_NUMBERS = ("byte", "short", "integer", "long")
_KINDS: dict[str, type[Any]] = {"both": WhenMatched, "source": WhenNotMatched, "target": WhenOnlyOnTarget}
_NULL = Expr("CAST(NULL AS BOOLEAN)", lambda t, s: None, reads_target=False, reads_source=False)


@attrs.frozen
class Columns:
    """What expressions can be about: a target and a source, under the aliases A and B."""

    definition: TableDefinition
    schema: tuple[Field, ...]

    def of_source(self, name: str) -> Field | None:
        """The source's column of that name."""
        return next((field for field in self.schema if field.name == name), None)

    def of_target_and_source(self) -> list[tuple[Field, Field]]:
        """The columns that both sides have and that compare without a cast of text."""
        pairs = [(field, self.of_source(field.name)) for field in self.definition.fields]
        return [(a, b) for a, b in pairs if b is not None and _comparable(a, b)]


def _comparable(a: Field, b: Field) -> bool:
    return a.type == b.type or (a.type in _NUMBERS and b.type in _NUMBERS)


# Conditions -------------------------------------------------------------------------------------------------


def conditions(columns: Columns, sides: str) -> st.SearchStrategy[Expr]:
    """Boolean expressions that may be true, false or null.

    Args:
        columns: what they are about.
        sides: ``"both"``, ``"source"`` or ``"target"``: the rows that are there. Where it is one side, every other
            expression names its columns without an alias (S30).
    """
    leaves = st.sampled_from(_leaves(columns, sides))
    pairs = st.tuples(leaves, leaves)
    return st.one_of(
        leaves,
        leaves.map(negation),
        pairs.map(lambda pair: all_of(*pair)),
        pairs.map(lambda pair: any_of(*pair)),
    )


def _leaves(columns: Columns, sides: str) -> list[Expr]:
    v, n, op = target("v"), source("n"), source("op")
    of_source = [
        eq(op, literal("D")),
        ne(op, literal("D")),
        same(op, literal("U")),
        is_null(op),
        lt(n, literal(2)),
        eq(n, literal(1)),
    ]
    of_target = [lt(v, literal(2)), eq(v, literal(1)), is_null(v), same(v, literal(None))]
    of_both = [lt(v, n), ne(v, n), same(v, n)]
    for a, _ in columns.of_target_and_source():
        of_both += [ne(target(a.name), source(a.name)), lt(target(a.name), source(a.name))]
    constants = [literal(True), literal(False), _NULL, literal(None)]
    of_side = source if sides == "source" else target
    of_common = [bare(negation(is_null(of_side(a.name)))) for a, _ in columns.of_target_and_source()]
    if sides == "source":
        return [*of_source, *map(bare, of_source), *constants, *of_common]
    if sides == "target":
        return [*of_target, *map(bare, of_target), *constants, *of_common]
    return [*of_source, *of_target, *of_both, *constants]


# Values -----------------------------------------------------------------------------------------------------


def values(columns: Columns, field: Field, sides: str) -> st.SearchStrategy[Any]:
    """Expressions and plain literals that can be stored in a column."""
    choices = [_literals(field, VALUES)]
    same_name = columns.of_source(field.name)
    if same_name is not None and sides != "target":
        choices.insert(0, st.just(source(field.name)))
        if sides == "source":
            choices.append(st.just(bare(source(field.name))))
        if same_name.type == field.type and sides == "both":
            choices.append(st.just(coalesce(source(field.name), target(field.name))))
    if sides != "source":
        choices.append(st.just(target(field.name)))
    if sides == "target":
        choices.append(st.just(bare(target(field.name))))
    if field.type == "integer":
        numbers = {"both": [source("n"), plus(target("v"), source("n"))], "source": [source("n")]}
        of_target = [] if sides == "source" else [plus(target("v"), literal(1))]
        of_side = {"source": [bare(source("n"))], "target": [bare(plus(target("v"), literal(1)))]}
        choices.append(st.sampled_from([*numbers.get(sides, []), *of_target, *of_side.get(sides, [])]))
    if field.nullable:
        choices.append(st.sampled_from([None, literal(None)]))
    return st.one_of(choices)


def _literals(field: Field, domain: Any) -> st.SearchStrategy[Any]:
    """Constants, as SQL text or as plain Python values where those exist."""
    constants = st.sampled_from(domain[str(field.type)])
    as_sql = constants.map(lambda value: literal(value, str(field.type)))
    plain = constants.filter(lambda value: isinstance(value, (bool, int, Decimal, dt.date)))
    is_plain = isinstance(domain[str(field.type)][0], (bool, int, Decimal, dt.date))
    return st.one_of(as_sql, plain) if is_plain else as_sql


def _key_values(columns: Columns, field: Field, sides: str) -> st.SearchStrategy[Any]:
    """Values for a key column: mostly the source's for a new row; mostly a fresh one for a second row."""
    fresh = {str(field.type): KEY_VALUES[str(field.type)][-2:]}
    choices = [_literals(field, fresh), _literals(field, KEY_VALUES)]
    if sides != "target":
        of_source = st.just(source(field.name))
        unqualified = st.just(bare(source(field.name)))
        choices = [of_source] * 3 + [unqualified, *choices] if sides == "source" else [*choices, of_source]
    return st.one_of(choices)


def _tombstones(columns: Columns, field: Field, sides: str) -> st.SearchStrategy[Any]:
    alive = alive_value(columns.definition)
    dead = tombstone_value(columns.definition, dt.datetime(2000, 1, 1))
    choices = [literal(alive, str(field.type)), literal(dead, str(field.type))]
    if sides != "target" and columns.of_source(field.name) is not None:
        choices.append(source(field.name))
    return st.sampled_from(choices)


# Actions ----------------------------------------------------------------------------------------------------


@st.composite
def updates(draw: st.DrawFn, columns: Columns, sides: str) -> Update:
    """``updateAll`` or a map; now and then one that changes a key or the tombstone column."""
    definition, only_if_changed = columns.definition, draw(_rarely)
    if sides == "both" and draw(st.booleans()):
        values = draw(_all_columns(columns, required=frozenset()))
        return Update(attrs.evolve(values, ignoreNulls=draw(_rarely)), only_if_changed)
    plain = [n for n in definition.names if n not in definition.primaryKey and n != definition.tombstoneKey]
    names = draw(st.lists(st.sampled_from(plain), min_size=1, max_size=3, unique=True))
    if draw(_rarely):
        names.append(draw(st.sampled_from(definition.primaryKey)))
    if definition.tombstoneKey is not None and draw(_rarely):
        names.append(definition.tombstoneKey)
    return Update(Assignments([(name, draw(_value(columns, name, sides))) for name in names]), only_if_changed)


@st.composite
def inserts(draw: st.DrawFn, columns: Columns, sides: str) -> Insert:
    """``insertAll`` or a map with at least every column that is not nullable."""
    definition = columns.definition
    required = frozenset(field.name for field in definition.fields if not field.nullable)
    missing = {name for name in required if columns.of_source(name) is None} - {definition.tombstoneKey}
    if sides == "source" and not missing and draw(st.booleans()):
        return Insert(draw(_all_columns(columns, required)))
    names = [name for name in definition.names if name in required or draw(st.booleans())]
    return Insert(Assignments([(name, draw(_value(columns, name, sides))) for name in names]))


_rarely = st.integers(0, 5).map(lambda n: n == 5)


def _value(columns: Columns, name: str, sides: str) -> st.SearchStrategy[Any]:
    field = columns.definition.field(name)
    if name in columns.definition.primaryKey:
        return _key_values(columns, field, sides)
    if name == columns.definition.tombstoneKey:
        return _tombstones(columns, field, sides)
    return values(columns, field, sides)


@st.composite
def _all_columns(draw: st.DrawFn, columns: Columns, required: frozenset[str]) -> All:
    """All columns but those the source lacks, and sometimes one more."""
    definition = columns.definition
    optional = {*definition.watermarkKey, definition.tombstoneKey}
    missing = [n for n in definition.names if columns.of_source(n) is None and n not in optional]
    others = [n for n in definition.names if n not in required and n not in missing]
    rarely: bool = draw(_rarely)
    more: list[str] = draw(st.lists(st.sampled_from(others), max_size=1)) if others and rarely else []
    excepted: Any = (*missing, *more)
    if draw(_rarely):
        return All((), [n for n in definition.names if n not in excepted and columns.of_source(n) is not None])
    return All(excepted)


# Clauses ----------------------------------------------------------------------------------------------------


@st.composite
def clause_lists(draw: st.DrawFn, columns: Columns, max_size: int = 5) -> tuple[Clause, ...]:
    """One to ``max_size`` clauses of all kinds in any order; only the last of a kind may lack a condition."""
    kind, at_least = st.sampled_from(["both", "source", "both", "target"]), draw(st.sampled_from([1, 2, 3]))
    kinds = draw(st.lists(kind, min_size=min(at_least, max_size), max_size=max_size))
    clauses = []
    for position, sides in enumerate(kinds):
        is_last = sides not in kinds[position + 1 :]
        condition = None if is_last and draw(st.booleans()) else draw(conditions(columns, sides))
        clauses.append(_KINDS[sides](condition, draw(_actions(columns, sides))))
    return tuple(clauses)


@st.composite
def _actions(draw: st.DrawFn, columns: Columns, sides: str) -> list[Action]:
    if sides == "source":
        return [draw(inserts(columns, sides))]
    shape = draw(
        st.sampled_from(["update"] * 4 + ["delete"] * 3 + ["update+", "update+", "update++", "delete+", "+", "++"])
    )
    actions: list[Action] = []
    if shape.startswith("update"):
        actions.append(draw(updates(columns, sides)))
    elif shape.startswith("delete"):
        actions.append(Delete())
    return actions + [draw(inserts(columns, sides)) for _ in range(shape.count("+"))]
