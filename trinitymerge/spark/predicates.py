"""Conditions over the rows of one table: checked before use, and constraints as SQL (S45)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NullType

from trinitymerge.errors import InvalidDefinitionError, InvalidMergeError
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import never_null, with_never_null
from trinitymerge.schema.types import Path
from trinitymerge.spark.errors import analysis_errors, suppress_error_logs
from trinitymerge.spark.expressions import (
    FALSE,
    all_of,
    any_of,
    case,
    empty_frame,
    is_not_null,
    is_null,
    is_tombstone,
    not_,
    or_else,
    quote,
)
from trinitymerge.spark.session import has_subquery
from trinitymerge.spark.sql_text import Sql, as_sql
from trinitymerge.spark.system_columns import DUMMY


def boolean(condition: str | Column, kind: DataType, where: str) -> str | Column:
    """A condition as filters take it: Spark's analyzer refuses the null that has no type (S20).

    Args:
        condition: SQL text or a Column.
        kind: its type.
        where: how a message begins.

    Raises:
        InvalidMergeError: the condition is neither boolean nor null.
    """
    if isinstance(kind, BooleanType):
        return condition
    if isinstance(kind, NullType):
        if isinstance(condition, str):
            return Sql(f"CAST({as_sql(condition)} AS BOOLEAN)")
        return condition.cast(BooleanType())
    raise InvalidMergeError(
        f'{where} is {kind.simpleString()}, not boolean. Compare it with something, e.g. "... = 1".'
    )


def checked_condition(nothing: DataFrame, condition: Column, where: str) -> Column:
    """A condition as filters take it.

    Args:
        nothing: has the table's columns, and no rows.
        condition: over them.
        where: how a message begins.

    Raises:
        InvalidMergeError: it is not boolean, or no filter takes it, or it is another one each time it is computed.
    """
    with analysis_errors(where):
        kind = nothing.select(condition.alias("c")).schema.fields[0].dataType
        found = boolean(condition, kind, where)
        checked = F.expr(found) if isinstance(found, str) else found
        nothing.filter(checked).schema  # noqa: B018
    if not is_deterministic(nothing, condition):
        raise InvalidMergeError(f"{where} is not deterministic: it may be true of other rows each time it is computed.")
    return checked


def is_deterministic(nothing: DataFrame, value: Column) -> bool:
    """True if a value is the same each time: the conditions of joins, unlike those of filters, must be, so the analyzer knows."""
    other = nothing.sparkSession.range(0).selectExpr(f"id AS {DUMMY}")
    try:
        with suppress_error_logs():
            nothing.join(other, value.isNull()).schema  # noqa: B018
    except AnalysisException as error:
        return "NON_DETERMINISTIC" not in str(error).upper()
    return True


def holds_query(nothing: DataFrame, value: Column) -> bool:
    """True if a value depends on other rows than its own. Without a JVM the analyzer tells: no lambda function may hold a query."""
    try:
        with suppress_error_logs():
            found = has_subquery(nothing.select(value.alias("c")))
            if found is None:
                nothing.select(F.transform(F.array(F.lit(0)), lambda _: value).alias("c")).schema  # noqa: B018
    except AnalysisException as error:
        return "SUBQUERY_EXPRESSION_CATEGORY" in str(error)
    return bool(found)


def violation(definition: TableDefinition, check: Check, is_never_dead: bool = False) -> Sql:
    """SQL that is true of a row that breaks a check; tombstones break none.

    Args:
        definition: of the table.
        check: one of its checks.
        is_never_dead: the rows have no tombstone column, and are none.

    Example:
        >>> from trinitymerge.schema.definition import Field
        >>> definition = TableDefinition.of([Field("id", "long")], primaryKey="id")
        >>> violation(definition, Check("small", "id < 9", ["id"]))
        'CASE WHEN NOT (coalesce(`_tm_deleted`, false)) THEN NOT ((id < 9)) END'
    """
    dead = FALSE if is_never_dead else is_tombstone(definition)
    return case([(not_(dead), not_(as_sql(check.condition)))])


# Nulls ----------------------------------------------------------------------------------------------------------------


def holds_null(field: Field, value: Sql | None = None) -> Sql:
    """SQL that is true if a column holds a null where none is allowed, at any depth. Never null; ``false`` if all are.

    A null struct, array or map holds nothing: what is inside of it is not judged.

    Args:
        field: the column.
        value: its value; by default the column of that name.

    Example:
        >>> holds_null(Field("n", "long")), holds_null(Field("n", "long", nullable=False))
        ('false', '`n` IS NULL')
    """
    return _wrong(quote(field.name) if value is None else value, field.type, field.nullable, 0)


def forbidden_nulls(field: Field) -> dict[Path, Sql]:
    """As :func:`holds_null`, for each place on its own: the column itself is the empty path."""
    kinds = {path: (with_never_null(field.type, [path]), True) for path in never_null(field.type)}
    if not field.nullable:
        kinds = {(): (with_never_null(field.type, ()), False), **kinds}
    return {
        path: holds_null(attrs.evolve(field, type=kind, nullable=nullable)) for path, (kind, nullable) in kinds.items()
    }


def _wrong(value: Sql, kind: Any, nullable: bool, depth: int) -> Sql:
    return _some([FALSE if nullable else is_null(value), _wrong_inside(value, kind, depth)])


def _wrong_inside(value: Sql, kind: Any, depth: int) -> Sql:
    if isinstance(kind, str):
        return FALSE
    if kind["type"] == "struct":
        fields = ((Sql(f"{value}.{quote(f['name'])}"), f["type"], f.get("nullable", True)) for f in kind["fields"])
        found = _some(_wrong(*field, depth) for field in fields)
        return found if found == FALSE else all_of([is_not_null(value), found])
    if kind["type"] == "array":
        return _wrong_items(value, kind["elementType"], kind.get("containsNull", True), depth)
    if kind["type"] == "map":
        keys, values = Sql(f"map_keys({value})"), Sql(f"map_values({value})")
        allowed = kind.get("valueContainsNull", True)
        return _some(
            [_wrong_items(keys, kind["keyType"], True, depth), _wrong_items(values, kind["valueType"], allowed, depth)]
        )
    return FALSE


def _wrong_items(values: Sql, kind: Any, nullable: bool, depth: int) -> Sql:
    item = Sql(f"item{depth}")
    found = _wrong(item, kind, nullable, depth + 1)
    return found if found == FALSE else or_else(Sql(f"exists({values}, {item} -> {found})"), FALSE)


def _some(conditions: Iterable[Sql]) -> Sql:
    """The disjunction of conditions; a single one as it is."""
    found = [c for c in conditions if c != FALSE]
    return found[0] if len(found) == 1 else any_of(found)


# Rules that others have written ---------------------------------------------------------------------------------------


def require_harmless(spark: SparkSession, definition: TableDefinition) -> None:
    """Refuses rules that no call accepts, before a merge computes them: a log that others prepared may hold any SQL.

    A query would read other tables, and what is not deterministic may call any method of Java's.

    Raises:
        InvalidDefinitionError: naming the rule.
    """
    rules = dict(_rules(definition))
    if not rules:
        return
    nothing = empty_frame(spark, definition.fields)
    for where, text in rules.items():
        with analysis_errors(where):
            value = F.expr(text)
        if holds_query(nothing, value) or not is_deterministic(nothing, value):
            raise InvalidDefinitionError(
                f"{where} ({text}) holds a query, or is not deterministic, and no call of this library makes such a rule. Nothing "
                "was computed or written. Drop the rule with dropCheck() or dropDefault(), and find out who wrote the table's log."
            )


def _rules(definition: TableDefinition) -> Iterator[tuple[str, str]]:
    """The SQL that comes with a table, by what it is."""
    yield from ((f"The condition of constraint '{c.name}'", c.condition) for c in definition.checks)
    yield from ((f"The default of column '{f.name}'", f.default) for f in definition.fields if f.default is not None)
