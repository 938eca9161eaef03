"""How rows are paired where the user has not said how: equality on the primary key, by name (S30).

Owns: that condition as SQL. What a condition implies is judged in :mod:`trinitymerge.merge.analysis.keymatch`.
"""

from __future__ import annotations

from pyspark.sql.types import StringType

from trinitymerge.columns import SOURCE_COPY
from trinitymerge.definition import Field
from trinitymerge.errors import InvalidMergeError, missing
from trinitymerge.expressions import all_of, cast, declared_length, equals, not_made
from trinitymerge.merge.analysis.frames import Source, Target
from trinitymerge.sqltext import Sql


def primary_key_equality(target: Target, source: Source, call: str | None = None) -> Sql:
    """The condition of a merge that was given none (S30).

    Args:
        target: the target side.
        source: the source side.
        call: the shorthand that stands for the merge, if any.

    Raises:
        InvalidMergeError: the source lacks a primary-key column.
    """
    pairs = []
    for key in target.definition.primaryKey:
        i = source.index(key)
        if i is None:
            raise InvalidMergeError(
                f"{call or 'The merge has no condition, so it'} pairs rows by the primary key. "
                f"{missing([key], 'the source', not_made(source.schema))} Rename the source's column, or pass a "
                f"condition{' to merge()' if call else ''}."
            )
        pairs.append(equals(target.column(key), _as_char(SOURCE_COPY(i), target.definition.field(key))))
    return all_of(pairs)


def _as_char(value: Sql, field: Field) -> Sql:
    """A value as a char column would hold it, as SQL; text that is too long stays, and equals nothing."""
    kind, n = declared_length(field) or ("", 0)
    if kind != "char":
        return value
    text = cast(value, StringType())
    return Sql(f"CASE WHEN length(rtrim({text})) <= {n} THEN rpad(rtrim({text}), {n}, ' ') ELSE {text} END")
