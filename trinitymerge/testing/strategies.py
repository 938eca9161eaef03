"""Hypothesis strategies for definitions, rows and merges."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st

from trinitymerge.merge.model.clauses import Clause
from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field
from trinitymerge.testing.case import SOURCE, TARGET, MergeCase
from trinitymerge.testing.clause_strategies import Columns, clause_lists, conditions
from trinitymerge.testing.domains import KEY_TYPES, KEY_VALUES, VALUES, WATERMARK_TYPES
from trinitymerge.testing.model.expressions import Expr, KeyEquality, Row, all_of, column, eq, literal
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import alive_value, store

ROWS_OF_A_KEY = 3
"""Existing rows use this many values of a key column; inserts and moves may use the others too."""


# Tables -----------------------------------------------------------------------------------------------------


@st.composite
def table_definitions(draw: st.DrawFn) -> TableDefinition:
    """Keys of every type, one or two; no, one or two watermarks; every form of tombstone.

    The columns are ``k1`` [``k2``] ``v`` ``w`` [``t1`` [``t2``]] [``gone``]; ``v`` is an integer.
    """
    keys = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=2))
    watermarks = draw(st.lists(st.sampled_from(WATERMARK_TYPES), max_size=2))
    other = draw(st.sampled_from(["string", "decimal(5,2)", "date", "double", "varchar(3)", "byte"]))
    fields = [Field(f"k{n}", type) for n, type in enumerate(keys, 1)]
    fields += [Field("v", "integer"), Field("w", other, nullable=not draw(_rarely))]
    fields += [Field(f"t{n}", type, nullable=not draw(_rarely)) for n, type in enumerate(watermarks, 1)]
    tombstone, string_value = draw(_tombstones)
    if tombstone is not None:
        fields.append(tombstone)
    return TableDefinition.of(
        fields,
        primaryKey=[f"k{n}" for n, _ in enumerate(keys, 1)],
        watermarkKey=[f"t{n}" for n, _ in enumerate(watermarks, 1)],
        tombstoneKey=tombstone.name if tombstone else None,
        tombstoneStringValue=string_value,
    )


_rarely = st.integers(0, 9).map(lambda n: n == 9)
_tombstones: st.SearchStrategy[tuple[Field | None, str | None]] = st.sampled_from(
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


def _values(field: Field, nulls: bool) -> st.SearchStrategy[object]:
    return st.sampled_from([*VALUES[str(field.type)], *([None] if nulls else [])])


def _key_values(field: Field) -> st.SearchStrategy[object]:
    return st.sampled_from(KEY_VALUES[str(field.type)][:ROWS_OF_A_KEY])


@st.composite
def stored_rows(draw: st.DrawFn, definition: TableDefinition) -> Row:
    """One row as it stands in a batch, alive or a tombstone."""
    row: Row = {}
    for field in definition.stored_fields:
        if field.name in definition.primaryKey:
            row[field.name] = draw(_key_values(field))
        elif field.name == definition.tombstone_column:
            row[field.name] = draw(st.sampled_from([alive_value(definition), *_dead_values(definition)]))
        else:
            row[field.name] = draw(_values(field, nulls=field.nullable))
    return {field.name: store(field, row[field.name]) for field in definition.stored_fields}


def _dead_values(definition: TableDefinition) -> list[object]:
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return [True]
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return [definition.tombstoneStringValue]
    return list(VALUES[str(definition.field(definition.tombstone_column).type)][:1])


@st.composite
def table_batches(draw: st.DrawFn, definition: TableDefinition) -> tuple[tuple[Row, ...], ...]:
    """Up to four commits, with keys deleted, revived, and written late; no batch contradicts itself (S12)."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=draw(st.sampled_from([1, 2, 3, 0])), max_size=4))
    batches = [[draw(stored_rows(definition)) for _ in range(size)] for size in sizes]
    return tuple(_consistent(definition, batch) for batch in batches)


def _consistent(definition: TableDefinition, batch: list[Row]) -> tuple[Row, ...]:
    """The batch without rows that contradict an earlier one of equal key and watermark."""
    rules, kept = RowRules(definition), list[Row]()
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
    """The target's columns, some missing or of another type; and ``op`` (I, U, D) and ``n`` (an integer)."""
    fields = []
    has_watermark, has_tombstone = not draw(_sometimes), draw(_sometimes)
    for field in definition.fields:
        is_key = field.name in definition.primaryKey
        present = is_key or not draw(_rarely)
        if field.name in definition.watermarkKey:
            present = present and has_watermark
        elif field.name == definition.tombstoneKey:
            present = has_tombstone
        if present:
            other = draw(st.sampled_from(["integer"] * 3 + ["long", "byte", "string"]))
            type = other if field.name == "v" else field.type
            fields.append(attrs.evolve(field, type=type, nullable=True))
    return (*fields, Field("op", "string"), Field("n", "integer"))


_sometimes = st.integers(0, 3).map(lambda n: n == 3)


@st.composite
def source_tables(draw: st.DrawFn, definition: TableDefinition, schema: tuple[Field, ...]) -> tuple[Row, ...]:
    """Up to seven rows; often one per key, sometimes several, some of them repeated."""
    size = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 0]))
    rows: list[Row] = [draw(source_rows(definition, schema)) for _ in range(size)]
    one_per_key, repeat = draw(st.booleans()), draw(_sometimes)
    if one_per_key:
        by_key = {tuple(row[name] for name in definition.primaryKey): row for row in reversed(rows)}
        rows = list(by_key.values())[::-1]
    if rows and repeat:
        rows.append(rows[draw(st.integers(0, len(rows) - 1))])
    return tuple(rows)


@st.composite
def source_rows(draw: st.DrawFn, definition: TableDefinition, schema: tuple[Field, ...]) -> Row:
    """One row of a source; null keys and values that do not fit the target are rare."""
    row: Row = {}
    not_null = {field.name for field in definition.fields if not field.nullable}
    for field in schema:
        if field.name in definition.primaryKey:
            row[field.name] = None if draw(_very_rarely) else draw(_key_values(field))
        elif field.name == "v":
            row[field.name] = draw(_source_numbers(field))
        elif field.name == definition.tombstoneKey:
            row[field.name] = draw(st.sampled_from([alive_value(definition), *_dead_values(definition)]))
        elif field.name == "op":
            row[field.name] = draw(st.sampled_from(["U", "D", "I", None]))
        else:
            row[field.name] = draw(_values(field, nulls=field.name not in not_null or draw(_very_rarely)))
    return {field.name: store(field, row[field.name]) for field in schema}


_very_rarely = st.integers(0, 39).map(lambda n: n == 39)


@st.composite
def _source_numbers(draw: st.DrawFn, field: Field) -> int | str | None:
    """A value for ``v``: nearly always one that an integer column can hold."""
    number: int | None = draw(st.sampled_from([*VALUES["integer"], None]))
    if field.type == "string" and number is not None:
        padded = f"0{number}" if number >= 0 else "-01"
        return draw(st.sampled_from([str(number)] * 6 + [f" {number} ", padded, "many"]))
    return 2**40 if field.type == "long" and draw(_rarely) else number


# Merges -----------------------------------------------------------------------------------------------------


def key_equality(definition: TableDefinition) -> Expr:
    """Equality on the primary key, over the aliases A and B.

    A :class:`KeyEquality`, unless a key column is ``char(n)``: a DataFrame's text is not padded, so that its equality
    with padded text says less than equality of keys (S18).
    """
    on_key = KeyEquality.of(definition, TARGET, SOURCE)
    has_char = any(str(definition.field(name).type).startswith("char") for name in definition.primaryKey)
    return Expr(on_key.sql, on_key.call) if has_char else on_key


@st.composite
def merge_conditions(draw: st.DrawFn, definition: TableDefinition, schema: tuple[Field, ...]) -> Expr:
    """Mostly key equality; else key equality and more, a part of the key, off the key, or never."""
    on_key, columns = key_equality(definition), Columns(definition, schema)
    kind = draw(st.sampled_from(["key"] * 5 + ["more", "part", "off", "never"]))
    if kind == "more":
        return all_of(on_key, draw(conditions(columns, "both")))
    if kind == "part" and len(definition.primaryKey) > 1:
        name = draw(st.sampled_from(definition.primaryKey))
        return eq(column(TARGET, name), column(SOURCE, name, of_target=False))
    if kind == "off":
        return eq(column(TARGET, "v"), column(SOURCE, "n", of_target=False))
    return literal(False) if kind == "never" else on_key


@st.composite
def merge_cases(draw: st.DrawFn, definition: TableDefinition | None = None) -> MergeCase:
    """A whole merge: table, past, source, condition, clauses, policy.

    Args:
        draw: given by Hypothesis.
        definition: fix it to run many cases against tables of one shape; otherwise it is generated.

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


# Events -----------------------------------------------------------------------------------------------------


@st.composite
def event_streams(draw: st.DrawFn, max_size: int = 12, min_size: int = 0) -> tuple[Row, ...]:
    """Change events ``{"key", "ts", "op", "value"}`` of keys 1 to 3 in some order; one may be delivered twice.

    Different events of one key have different ``ts``, one of which may be null; ``op`` is I, U or D.

    Args:
        draw: given by Hypothesis.
        max_size: of different events; up to 33.
        min_size: likewise.
    """
    moments = st.tuples(st.integers(1, 3), st.one_of(st.integers(0, 9), st.none()))
    ids = draw(st.lists(moments, min_size=min_size, max_size=max_size, unique=True))
    events = [_event(draw, key, ts) for key, ts in ids]
    repeated = draw(st.lists(st.sampled_from(events), max_size=2)) if events else []
    return tuple(draw(st.permutations(events + repeated)))


def _event(draw: st.DrawFn, key: int, ts: int | None) -> Row:
    op = draw(st.sampled_from(["I", "U", "D"]))
    return {"key": key, "ts": ts, "op": op, "value": draw(st.sampled_from(["a", "b", None]))}


@st.composite
def batchings(draw: st.DrawFn, events: tuple[Row, ...]) -> tuple[tuple[Row, ...], ...]:
    """The same events in any order, cut into batches anywhere."""
    order = draw(st.permutations(events))
    cuts = sorted(draw(st.sets(st.integers(0, len(events)))))
    return tuple(tuple(order[start:end]) for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True))


__all__ = [
    "batchings",
    "event_streams",
    "key_equality",
    "merge_cases",
    "merge_conditions",
    "source_rows",
    "source_schemas",
    "source_tables",
    "stored_rows",
    "table_batches",
    "table_definitions",
]
