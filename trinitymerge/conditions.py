"""Conditions over the rows of one table, as users give them (S20).

Owns: what may be one: boolean, of one row, the same each time it is computed. Conditions of merges, over two sides, are
:mod:`trinitymerge.merge.analysis.inspection`'s.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NullType

from trinitymerge.columns import ASKED
from trinitymerge.errors import InvalidMergeError
from trinitymerge.jvm import has_subquery
from trinitymerge.spark_errors import analysis_errors, quiet
from trinitymerge.sqltext import Sql, as_sql


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
    other = nothing.sparkSession.range(0).selectExpr(f"id AS {ASKED}")
    try:
        with quiet():
            nothing.join(other, value.isNull()).schema  # noqa: B018
    except AnalysisException as error:
        return "NON_DETERMINISTIC" not in str(error).upper()
    return True


def holds_query(nothing: DataFrame, value: Column) -> bool:
    """True if a value depends on other rows than its own. Without a JVM the analyzer tells: no lambda function may hold a query."""
    try:
        with quiet():
            found = has_subquery(nothing.select(value.alias("c")))
            if found is None:
                nothing.select(F.transform(F.array(F.lit(0)), lambda _: value).alias("c")).schema  # noqa: B018
    except AnalysisException as error:
        return "SUBQUERY_EXPRESSION_CATEGORY" in str(error)
    return bool(found)
