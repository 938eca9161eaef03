"""Hypothesis strategies for tables, rows, clauses and merges, with few values each, so that keys and watermarks collide."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
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
from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field
from trinitymerge.testing.case import SOURCE, TARGET, MergeCase
from trinitymerge.testing.model.expressions import (
    Expr,
    KeyEquality,
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
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import Row, alive_value, store, tombstone_value

# Values at the edges of types -------------------------------------------------------------------------------

_DAYS = (dt.date(2020, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(9999, 12, 31))
_TIMES = (
    dt.datetime(2020, 1, 1),
    dt.datetime(2020, 1, 1, 0, 0, 0, 1),
    dt.datetime(1969, 12, 31, 23, 59, 58, 999999),  # ORC files do not keep a second later (S7a)
    dt.datetime(2021, 3, 28, 2, 30),
)

KEY_VALUES: Mapping[str, tuple[Any, ...]] = {
    "integer": (1, 2, 3, -4, 0),
    "string": ("a", "", "B", "a'b", "\u00e9\U0001f600"),
    "long": (1, -(2**63), 2**63 - 1, 0, 7),
    "short": (1, 2, -32768, 32767),
    "byte": (1, 2, -128, 127),
    "boolean": (False, True),
    "decimal(5,2)": (Decimal("1.50"), Decimal("-0.01"), Decimal("999.99"), Decimal("0.00")),
    "char(2)": ("ab", "cd", "e ", "zz"),
    "varchar(3)": ("a", "abc", "", "b"),
    "binary": (b"a", b"", b"\xff", b"\x00"),
    "date": _DAYS,
    "timestamp": _TIMES,
    "timestamp_ntz": _TIMES,
    "interval day to second": (dt.timedelta(1), dt.timedelta(0), dt.timedelta(-1, 1), dt.timedelta(2)),
}
"""Values by key type. Stored rows use the first three; inserts and moves use all."""

VALUES: Mapping[str, tuple[Any, ...]] = {
    **KEY_VALUES,
    "integer": (1, 0, 2, 3, -1),
    "long": (1, 2, 3, 0),
    "double": (1.5, 0.0, -0.0, float("nan"), float("-inf")),
}
"""Values by column type, without null."""

_WATERMARKS = [
    *("long", "timestamp", "integer", "date", "string"),
    *("double", "decimal(5,2)", "timestamp_ntz", "boolean", "binary"),
]
_NUMBERS = ("byte", "short", "integer", "long")


def _once_in(count: int) -> st.SearchStrategy[bool]:
    return st.integers(0, count - 1).map(lambda n: n == count - 1)


# Tables -----------------------------------------------------------------------------------------------------

_TOMBSTONES: st.SearchStrategy[tuple[Field | None, str | None]] = st.sampled_from(
    [
        (None, None),
        (Field("gone", "boolean"), None),
        (Field("gone", "boolean", nullable=False), None),
        (Field("gone", "string"), "D"),
        (Field("gone", "varchar(4)", nullable=False), "gone"),
        (Field("gone", "string"), None),
        (Field("gone", "long"), None),
        (Field("gone", "timestamp"), None),
    ]
)


@st.composite
def table_definitions(draw: st.DrawFn) -> TableDefinition:
    """Generate definitions with one or two keys of any type, up to two watermarks, and every form of tombstone.

    The columns are ``k1`` [``k2``] ``v`` ``w`` [``t1`` [``t2``]] [``gone``]; ``v`` is an integer. Some are clustered.
    """
    keys = draw(st.lists(st.sampled_from([*KEY_VALUES]), min_size=1, max_size=2))
    watermarks = draw(st.lists(st.sampled_from(_WATERMARKS), max_size=2))
    other = draw(st.sampled_from(["string", "decimal(5,2)", "date", "double", "varchar(3)", "byte"]))
    fields = [Field(f"k{n}", type) for n, type in enumerate(keys, 1)]
    fields += [Field("v", "integer"), Field("w", other, nullable=not draw(_once_in(10)))]
    fields += [Field(f"t{n}", type, nullable=not draw(_once_in(10))) for n, type in enumerate(watermarks, 1)]
    tombstone, string_value = draw(_TOMBSTONES)
    if tombstone is not None:
        fields.append(tombstone)
    return TableDefinition.of(
        fields,
        primaryKey=[f"k{n}" for n, _ in enumerate(keys, 1)],
        watermarkKey=[f"t{n}" for n, _ in enumerate(watermarks, 1)],
        tombstoneKey=tombstone.name if tombstone else None,
        tombstoneStringValue=string_value,
        clusterBy=((), ("w",), ("v", "k1"))[len(fields) % 3],
    )


def _values(field: Field, nulls: bool) -> st.SearchStrategy[object]:
    return st.sampled_from([*VALUES[str(field.type)], *([None] if nulls else [])])


def _stored_keys(field: Field) -> st.SearchStrategy[object]:
    return st.sampled_from(KEY_VALUES[str(field.type)][:3])


def _tombstone_values(definition: TableDefinition) -> st.SearchStrategy[object]:
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        dead: Any = True
    elif definition.tombstone_form is TombstoneForm.STRING_VALUE:
        dead = definition.tombstoneStringValue
    else:
        dead = VALUES[str(definition.field(definition.tombstone_column).type)][0]
    return st.sampled_from([alive_value(definition), dead])


@st.composite
def stored_rows(draw: st.DrawFn, definition: TableDefinition) -> Row:
    row: Row = {}
    for field in definition.stored_fields:
        if field.name in definition.primaryKey:
            row[field.name] = draw(_stored_keys(field))
        elif field.name == definition.tombstone_column:
            row[field.name] = draw(_tombstone_values(definition))
        else:
            row[field.name] = draw(_values(field, nulls=field.nullable))
    return {field.name: store(field, row[field.name]) for field in definition.stored_fields}


@st.composite
def table_batches(draw: st.DrawFn, definition: TableDefinition) -> tuple[tuple[Row, ...], ...]:
    """Generate up to four commits with deleted, revived and late keys; no batch contradicts itself (S12)."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=draw(st.sampled_from([1, 2, 3, 0])), max_size=4))
    batches = [[draw(stored_rows(definition)) for _ in range(size)] for size in sizes]
    return tuple(_consistent(RowRules(definition), batch) for batch in batches)


def _consistent(rules: RowRules, batch: list[Row]) -> tuple[Row, ...]:
    """Return the batch without rows that contradict an earlier one of equal key and watermark."""
    kept: list[Row] = []
    for row in batch:
        twins = [k for k in kept if rules.key(k) == rules.key(row)]
        twins = [k for k in twins if rules.watermark_order(k) == rules.watermark_order(row)]
        both_dead = all(rules.is_tombstone(k) and rules.is_tombstone(row) for k in twins)
        if both_dead or all(rules.content(k) == rules.content(row) for k in twins):
            kept.append(row)
    return tuple(kept)


# Sources ----------------------------------------------------------------------------------------------------


@st.composite
def source_schemas(draw: st.DrawFn, definition: TableDefinition) -> tuple[Field, ...]:
    """Generate the target's columns, some missing or of another type, and ``op`` (I, U, D) and ``n`` (an integer)."""
    fields = []
    has_watermark, has_tombstone = not draw(_once_in(4)), draw(_once_in(4))
    for field in definition.fields:
        present = field.name in definition.primaryKey or not draw(_once_in(10))
        if field.name in definition.watermarkKey:
            present = present and has_watermark
        elif field.name == definition.tombstoneKey:
            present = has_tombstone
        if present:
            other = draw(st.sampled_from(["integer"] * 3 + ["long", "byte", "string"]))
            type = other if field.name == "v" else field.type
            fields.append(attrs.evolve(field, type=type, nullable=True))
    return (*fields, Field("op", "string"), Field("n", "integer"))


@st.composite
def source_tables(draw: st.DrawFn, definition: TableDefinition, schema: tuple[Field, ...]) -> tuple[Row, ...]:
    """Generate up to seven rows: often one per key, sometimes several, some of them repeated."""
    size = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 0]))
    rows: list[Row] = [draw(source_rows(definition, schema)) for _ in range(size)]
    one_per_key, repeat = draw(st.booleans()), draw(_once_in(4))
    if one_per_key:
        by_key = {tuple(row[name] for name in definition.primaryKey): row for row in reversed(rows)}
        rows = list(by_key.values())[::-1]
    if rows and repeat:
        rows.append(rows[draw(st.integers(0, len(rows) - 1))])
    return tuple(rows)


@st.composite
def source_rows(draw: st.DrawFn, definition: TableDefinition, schema: tuple[Field, ...]) -> Row:
    """Generate rows of a source, with few null keys and values that do not fit the target."""
    row: Row = {}
    not_null = {field.name for field in definition.fields if not field.nullable}
    for field in schema:
        if field.name in definition.primaryKey:
            row[field.name] = None if draw(_once_in(40)) else draw(_stored_keys(field))
        elif field.name == "v":
            row[field.name] = draw(_source_numbers(field))
        elif field.name == definition.tombstoneKey:
            row[field.name] = draw(_tombstone_values(definition))
        elif field.name == "op":
            row[field.name] = draw(st.sampled_from(["U", "D", "I", None]))
        else:
            row[field.name] = draw(_values(field, nulls=field.name not in not_null or draw(_once_in(40))))
    return {field.name: store(field, row[field.name]) for field in schema}


@st.composite
def _source_numbers(draw: st.DrawFn, field: Field) -> int | str | None:
    """Return values for ``v``, nearly all of which an integer column can hold."""
    number: int | None = draw(st.sampled_from([*VALUES["integer"], None]))
    if field.type == "string" and number is not None:
        padded = f"0{number}" if number >= 0 else "-01"
        return draw(st.sampled_from([str(number)] * 6 + [f" {number} ", padded, "many"]))
    return 2**40 if field.type == "long" and draw(_once_in(10)) else number


# Conditions and values --------------------------------------------------------------------------------------


@attrs.frozen
class Columns:
    """The columns that expressions can read: of a target and a source, under the aliases A and B."""

    definition: TableDefinition
    schema: tuple[Field, ...]

    def of_source(self, name: str) -> Field | None:
        return next((field for field in self.schema if field.name == name), None)

    def on_both_sides(self) -> list[str]:
        """Return the columns that both sides have and that compare without a cast of text."""
        pairs = [(field, self.of_source(field.name)) for field in self.definition.fields]
        alike = [a for a, b in pairs if b is not None and (a.type == b.type or {a.type, b.type} <= {*_NUMBERS})]
        return [field.name for field in alike]


def conditions(columns: Columns, sides: str) -> st.SearchStrategy[Expr]:
    """Generate boolean expressions that may be true, false or null.

    ``sides`` are the rows that are there: ``"both"``, ``"source"`` or ``"target"``. If it is one side, some expressions name
    their columns without an alias (S30).
    """
    leaves = st.sampled_from(_leaves(columns, sides))
    pairs = st.tuples(leaves, leaves)
    both, either = pairs.map(lambda pair: all_of(*pair)), pairs.map(lambda pair: any_of(*pair))
    return st.one_of(leaves, leaves.map(negation), both, either)


def _leaves(columns: Columns, sides: str) -> list[Expr]:
    v, n, op, names = target("v"), source("n"), source("op"), columns.on_both_sides()
    of_source = [eq(op, literal("D")), ne(op, literal("D")), same(op, literal("U")), is_null(op)]
    of_source += [lt(n, literal(2)), eq(n, literal(1))]
    of_target = [lt(v, literal(2)), eq(v, literal(1)), is_null(v), same(v, literal(None))]
    null = Expr("CAST(NULL AS BOOLEAN)", lambda t, s: None, reads_target=False, reads_source=False)
    constants = [literal(True), literal(False), null, literal(None)]
    if sides == "both":
        of_both = [lt(v, n), ne(v, n), same(v, n)]
        of_both += [compare(target(name), source(name)) for name in names for compare in (ne, lt)]
        return [*of_source, *of_target, *of_both, *constants]
    of_side, column = (of_source, source) if sides == "source" else (of_target, target)
    of_common = [bare(negation(is_null(column(name)))) for name in names]
    return [*of_side, *map(bare, of_side), *constants, *of_common]


def _assigned(columns: Columns, name: str, sides: str) -> st.SearchStrategy[Any]:
    field = columns.definition.field(name)
    if name in columns.definition.primaryKey:
        return _assigned_keys(field, sides)
    if name == columns.definition.tombstoneKey:
        return _assigned_tombstones(columns, field, sides)
    choices = [_literals(field, VALUES)]
    same_name = columns.of_source(name)
    if same_name is not None and sides != "target":
        choices.insert(0, st.just(source(name)))
        if sides == "source":
            choices.append(st.just(bare(source(name))))
        if same_name.type == field.type and sides == "both":
            choices.append(st.just(coalesce(source(name), target(name))))
    if sides != "source":
        choices.append(st.just(target(name)))
    if sides == "target":
        choices.append(st.just(bare(target(name))))
    if field.type == "integer":
        n, next_v = source("n"), plus(target("v"), literal(1))
        numbers = {"both": [n, plus(target("v"), n), next_v], "source": [n, bare(n)], "target": [next_v, bare(next_v)]}
        choices.append(st.sampled_from(numbers[sides]))
    if field.nullable:
        choices.append(st.sampled_from([None, literal(None)]))
    return st.one_of(choices)


def _literals(field: Field, domain: Mapping[str, tuple[Any, ...]]) -> st.SearchStrategy[Any]:
    constants = st.sampled_from(domain[str(field.type)])
    as_sql = constants.map(lambda value: literal(value, str(field.type)))
    plain = constants.filter(lambda value: isinstance(value, (bool, int, Decimal, dt.date)))
    is_plain = isinstance(domain[str(field.type)][0], (bool, int, Decimal, dt.date))
    return st.one_of(as_sql, plain) if is_plain else as_sql


def _assigned_keys(field: Field, sides: str) -> st.SearchStrategy[Any]:
    """Return values for a key column: mostly the source's for a new row; mostly a fresh one for a second row."""
    fresh = {str(field.type): KEY_VALUES[str(field.type)][-2:]}
    choices = [_literals(field, fresh), _literals(field, KEY_VALUES)]
    if sides != "target":
        of_source = st.just(source(field.name))
        unqualified = st.just(bare(source(field.name)))
        choices = [of_source] * 3 + [unqualified, *choices] if sides == "source" else [*choices, of_source]
    return st.one_of(choices)


def _assigned_tombstones(columns: Columns, field: Field, sides: str) -> st.SearchStrategy[Any]:
    dead = tombstone_value(columns.definition, dt.datetime(2000, 1, 1))
    choices = [literal(value, str(field.type)) for value in (alive_value(columns.definition), dead)]
    if sides != "target" and columns.of_source(field.name) is not None:
        choices.append(source(field.name))
    return st.sampled_from(choices)


# Clauses ----------------------------------------------------------------------------------------------------


@st.composite
def _updates(draw: st.DrawFn, columns: Columns, sides: str) -> Update:
    """``updateAll`` or a map; now and then one that changes a key or the tombstone column."""
    definition, only_if_changed = columns.definition, draw(_once_in(6))
    if sides == "both" and draw(st.booleans()):
        values = draw(_all_columns(columns, required=frozenset()))
        return Update(attrs.evolve(values, ignoreNulls=draw(_once_in(6))), only_if_changed)
    plain = [n for n in definition.names if n not in definition.primaryKey and n != definition.tombstoneKey]
    names = draw(st.lists(st.sampled_from(plain), min_size=1, max_size=3, unique=True))
    if draw(_once_in(6)):
        names.append(draw(st.sampled_from(definition.primaryKey)))
    if definition.tombstoneKey is not None and draw(_once_in(6)):
        names.append(definition.tombstoneKey)
    return Update(Assignments([(name, draw(_assigned(columns, name, sides))) for name in names]), only_if_changed)


@st.composite
def _inserts(draw: st.DrawFn, columns: Columns, sides: str) -> Insert:
    """``insertAll`` or a map with at least every column that is not nullable."""
    definition = columns.definition
    required = frozenset(field.name for field in definition.fields if not field.nullable)
    missing = {name for name in required if columns.of_source(name) is None} - {definition.tombstoneKey}
    if sides == "source" and not missing and draw(st.booleans()):
        return Insert(draw(_all_columns(columns, required)))
    names = [name for name in definition.names if name in required or draw(st.booleans())]
    return Insert(Assignments([(name, draw(_assigned(columns, name, sides))) for name in names]))


@st.composite
def _all_columns(draw: st.DrawFn, columns: Columns, required: frozenset[str]) -> All:
    """Return all columns but those the source lacks, and sometimes one more."""
    definition = columns.definition
    optional = {*definition.watermarkKey, definition.tombstoneKey}
    missing = [n for n in definition.names if columns.of_source(n) is None and n not in optional]
    others = [n for n in definition.names if n not in required and n not in missing]
    rarely: bool = draw(_once_in(6))
    more: list[str] = draw(st.lists(st.sampled_from(others), max_size=1)) if others and rarely else []
    excepted = (*missing, *more)
    if draw(_once_in(6)):
        return All((), [n for n in definition.names if n not in excepted and columns.of_source(n) is not None])
    return All(excepted)


@st.composite
def _actions(draw: st.DrawFn, columns: Columns, sides: str) -> list[Action]:
    if sides == "source":
        return [draw(_inserts(columns, sides))]
    shapes = ["update"] * 4 + ["delete"] * 3 + ["update+", "update+", "update++", "delete+", "+", "++"]
    shape, actions = draw(st.sampled_from(shapes)), list[Action]()
    if shape.startswith("update"):
        actions.append(draw(_updates(columns, sides)))
    elif shape.startswith("delete"):
        actions.append(Delete())
    return actions + [draw(_inserts(columns, sides)) for _ in range(shape.count("+"))]


@st.composite
def clause_lists(draw: st.DrawFn, columns: Columns, max_size: int = 5) -> tuple[Clause, ...]:
    """Generate one to ``max_size`` clauses of all kinds; only the last of a kind may lack a condition."""
    kind, at_least = st.sampled_from(["both", "source", "both", "target"]), draw(st.sampled_from([1, 2, 3]))
    kinds = draw(st.lists(kind, min_size=min(at_least, max_size), max_size=max_size))
    classes: dict[str, type[Any]] = {"both": WhenMatched, "source": WhenNotMatched, "target": WhenOnlyOnTarget}
    clauses = []
    for position, sides in enumerate(kinds):
        is_last = sides not in kinds[position + 1 :]
        condition = None if is_last and draw(st.booleans()) else draw(conditions(columns, sides))
        clauses.append(classes[sides](condition, draw(_actions(columns, sides))))
    return tuple(clauses)


# Merges -----------------------------------------------------------------------------------------------------


def key_equality(definition: TableDefinition) -> Expr:
    """Return equality on the primary key, over the aliases A and B.

    It is a :class:`KeyEquality`, unless a key column is ``char(n)``: Spark does not pad the text of a DataFrame, so equality
    with padded text is not exactly key equality (S18).
    """
    on_key = KeyEquality.of(definition, TARGET, SOURCE)
    has_char = any(str(definition.field(name).type).startswith("char") for name in definition.primaryKey)
    return Expr(on_key.sql, on_key.call) if has_char else on_key


@st.composite
def merge_conditions(draw: st.DrawFn, definition: TableDefinition, schema: tuple[Field, ...]) -> Expr:
    """Generate mostly key equality; also key equality and more, part of the key, other columns, or false."""
    on_key = key_equality(definition)
    kind = draw(st.sampled_from(["key"] * 5 + ["more", "part", "off", "never"]))
    if kind == "more":
        return all_of(on_key, draw(conditions(Columns(definition, schema), "both")))
    if kind == "part" and len(definition.primaryKey) > 1:
        name = draw(st.sampled_from(definition.primaryKey))
        return eq(target(name), source(name))
    if kind == "off":
        return eq(target("v"), source("n"))
    return literal(False) if kind == "never" else on_key


@st.composite
def merge_cases(draw: st.DrawFn, definition: TableDefinition | None = None) -> MergeCase:
    """Generate whole merges: table, past, source, condition, clauses, policy; by default each with its own ``definition``.

    Example:
        >>> from hypothesis import given, settings
        >>> @settings(max_examples=5, database=None)
        ... @given(merge_cases())
        ... def test(case):
        ...     assert case.table().version == len(case.batches)
        >>> test()
    """
    definition = definition or draw(table_definitions())
    schema = draw(source_schemas(definition))
    clauses: tuple[Clause, ...] = draw(clause_lists(Columns(definition, schema)))
    return MergeCase(
        definition=definition,
        batches=draw(table_batches(definition)),
        source_schema=schema,
        source_rows=draw(source_tables(definition, schema)),
        condition=draw(merge_conditions(definition, schema)),
        clauses=clauses,
        on_stale=draw(st.sampled_from(["skip", "skip", "force", "error"])),
    )


@st.composite
def event_streams(draw: st.DrawFn, max_size: int = 12, min_size: int = 0) -> tuple[Row, ...]:
    """Generate change events ``{"key", "ts", "op", "value"}`` of keys 1 to 3 in any order, up to two delivered twice.

    At most 33 are different. Those of one key have different ``ts``, one of which may be null; ``op`` is I, U or D.
    """
    moments = st.tuples(st.integers(1, 3), st.one_of(st.integers(0, 9), st.none()))
    ids = draw(st.lists(moments, min_size=min_size, max_size=max_size, unique=True))
    events: list[Row] = []
    for key, ts in ids:
        op = draw(st.sampled_from(["I", "U", "D"]))
        events.append({"key": key, "ts": ts, "op": op, "value": draw(st.sampled_from(["a", "b", None]))})
    repeated = draw(st.lists(st.sampled_from(events), max_size=2)) if events else []
    return tuple(draw(st.permutations(events + repeated)))


@st.composite
def batchings(draw: st.DrawFn, events: tuple[Row, ...]) -> tuple[tuple[Row, ...], ...]:
    order = draw(st.permutations(events))
    cuts = sorted(draw(st.sets(st.integers(0, len(events)))))
    return tuple(tuple(order[start:end]) for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True))
