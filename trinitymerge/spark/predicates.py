"""Conditions over the rows of one table: validation, and constraints as SQL (S45)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import BooleanType, DataType, NullType

from trinitymerge.errors import InvalidDefinitionError, InvalidMergeError
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import never_null, with_never_null
from trinitymerge.schema.types import Path
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.errors import analysis_errors, suppress_error_logs
from trinitymerge.spark.session import has_subquery
from trinitymerge.spark.sql_text import Sql, as_sql


def boolean(condition: str | Column, kind: DataType, where: str) -> str | Column:
    """Return a condition of a type that filters accept: they refuse an untyped null (S20)."""
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
    """Return a condition that filters accept; ``nothing`` is an empty DataFrame with the table's columns."""
    with analysis_errors(where):
        kind = nothing.select(condition.alias("c")).schema.fields[0].dataType
        found = boolean(condition, kind, where)
        checked = F.expr(found) if isinstance(found, str) else found
        nothing.filter(checked).schema  # noqa: B018
    if not is_deterministic(nothing, condition):
        raise InvalidMergeError(f"{where} is not deterministic: it may match other rows each time Spark evaluates it.")
    return checked


def is_deterministic(nothing: DataFrame, value: Column) -> bool:
    """Return True if an expression is deterministic: the analyzer refuses others as join conditions."""
    other = nothing.sparkSession.range(0).selectExpr(f"id AS {C.DUMMY}")
    try:
        with suppress_error_logs():
            nothing.join(other, value.isNull()).schema  # noqa: B018
    except AnalysisException as error:
        return "NON_DETERMINISTIC" not in str(error).upper()
    return True


def holds_query(nothing: DataFrame, value: Column) -> bool:
    """Return True if an expression has a subquery. On Spark Connect, the analyzer refuses it in a lambda function."""
    try:
        with suppress_error_logs():
            found = has_subquery(nothing.select(value.alias("c")))
            if found is None:
                nothing.select(F.transform(F.array(F.lit(0)), lambda _: value).alias("c")).schema  # noqa: B018
    except AnalysisException as error:
        return "SUBQUERY_EXPRESSION_CATEGORY" in str(error)
    return bool(found)


def violation(definition: TableDefinition, check: Check, is_never_dead: bool = False) -> Sql:
    """Return SQL: a row violates a check. Tombstones violate none; if rows are never dead, the tombstone column may be missing.

    Example:
        >>> from trinitymerge.schema.definition import Field
        >>> definition = TableDefinition.of([Field("id", "long")], primaryKey="id")
        >>> violation(definition, Check("small", "id < 9", ["id"]))
        'CASE WHEN NOT (coalesce(`_tm_deleted`, false)) THEN NOT ((id < 9)) END'
    """
    dead = E.FALSE if is_never_dead else E.is_tombstone(definition)
    return E.case([(E.not_(dead), E.not_(as_sql(check.condition)))])


# Nulls ----------------------------------------------------------------------------------------------------------------


def holds_null(field: Field, value: Sql | None = None) -> Sql:
    """Return SQL: a column has a null where none is allowed, at any depth. Never null; ``false`` if nulls are allowed everywhere.

    Nothing inside of a null struct, array or map counts.

    Example:
        >>> holds_null(Field("n", "long")), holds_null(Field("n", "long", nullable=False))
        ('false', '`n` IS NULL')
    """
    return _wrong(E.quote(field.name) if value is None else value, field.type, field.nullable, 0)


def forbidden_nulls(field: Field) -> dict[Path, Sql]:
    """Like :func:`holds_null`, separately for each path; the column itself has the empty path."""
    paths = [*([] if field.nullable else [()]), *never_null(field.type)]
    return {p: holds_null(attrs.evolve(field, type=with_never_null(field.type, [p]), nullable=p != ())) for p in paths}


def _wrong(value: Sql, kind: Any, nullable: bool, depth: int) -> Sql:
    return _some([E.FALSE if nullable else E.is_null(value), _wrong_inside(value, kind, depth)])


def _wrong_inside(value: Sql, kind: Any, depth: int) -> Sql:
    if isinstance(kind, str):
        return E.FALSE
    if kind["type"] == "struct":
        fields = ((Sql(f"{value}.{E.quote(f['name'])}"), f["type"], f.get("nullable", True)) for f in kind["fields"])
        found = _some(_wrong(*field, depth) for field in fields)
        return found if found == E.FALSE else E.all_of([E.is_not_null(value), found])
    if kind["type"] == "array":
        return _wrong_items(value, kind["elementType"], kind.get("containsNull", True), depth)
    keys = _wrong_items(Sql(f"map_keys({value})"), kind["keyType"], True, depth)
    values = Sql(f"map_values({value})")
    return _some([keys, _wrong_items(values, kind["valueType"], kind.get("valueContainsNull", True), depth)])


def _wrong_items(values: Sql, kind: Any, nullable: bool, depth: int) -> Sql:
    item = Sql(f"item{depth}")
    found = _wrong(item, kind, nullable, depth + 1)
    return found if found == E.FALSE else E.or_else(Sql(f"exists({values}, {item} -> {found})"), E.FALSE)


def _some(conditions: Iterable[Sql]) -> Sql:
    """Return the disjunction of conditions that are not ``false``."""
    found = [c for c in conditions if c != E.FALSE]
    return found[0] if len(found) == 1 else E.any_of(found)


def require_harmless(spark: SparkSession, definition: TableDefinition) -> None:
    """Raise if a log holds SQL that no call accepts, before a merge evaluates it: anyone may have written the log.

    A subquery would read other tables, and nondeterministic SQL may call any Java method.
    """
    rules = {f"The condition of constraint '{c.name}'": c.condition for c in definition.checks}
    defaults = ((f.name, f.default) for f in definition.fields)
    rules |= {f"The default of column '{name}'": default for name, default in defaults if default is not None}
    if not rules:
        return
    nothing = E.empty_frame(spark, definition.fields)
    for where, text in rules.items():
        with analysis_errors(where):
            value = F.expr(text)
        if holds_query(nothing, value) or not is_deterministic(nothing, value):
            raise InvalidDefinitionError(
                f"{where} ({text}) has a subquery or is not deterministic, and no call of this library creates it. Find out who "
                "wrote the table's log, and drop it with dropCheck() or dropDefault(). Nothing was computed or written."
            )
