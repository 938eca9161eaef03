"""Conditions over the rows of one table, as users give them (S20).

Owns: what may be one: boolean, of one row, the same each time it is computed. Conditions of merges, over two sides, are
:mod:`trinitymerge.merge.analysis.inspection`'s.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BooleanType, NullType

from trinitymerge.columns import ASKED
from trinitymerge.errors import InvalidMergeError
from trinitymerge.spark_errors import analysis_errors, quiet


def check_condition(nothing: DataFrame, condition: Column, where: str) -> None:
    """Refuses a condition that is not boolean, or no filter takes, or that is another one each time it is computed.

    Args:
        nothing: has the table's columns, and no rows.
        condition: over them.
        where: how a message begins.

    Raises:
        InvalidMergeError: saying why.
    """
    with analysis_errors(where):
        kind = nothing.select(condition.alias("c")).schema.fields[0].dataType
        if not isinstance(kind, (BooleanType, NullType)):
            raise InvalidMergeError(
                f'{where} is {kind.simpleString()}, not boolean. Compare it with something, e.g. "... = 1".'
            )
        nothing.filter(condition).schema  # noqa: B018
    if not is_deterministic(nothing, condition):
        raise InvalidMergeError(f"{where} is not deterministic: it may be true of other rows each time it is computed.")


def is_deterministic(nothing: DataFrame, value: Column) -> bool:
    """True if a value is the same each time: the conditions of joins, unlike those of filters, must be, so the analyzer knows."""
    other = nothing.sparkSession.range(0).selectExpr(f"id AS {ASKED}")
    try:
        with quiet():
            nothing.join(other, value.isNull()).schema  # noqa: B018
    except AnalysisException as error:
        return "NON_DETERMINISTIC" not in str(error).upper()
    return True
