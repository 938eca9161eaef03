"""Which columns a clause sees: the target's, the source's, or both (S30)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.analysis.relations import Source, Target, alias_of
from trinitymerge.merge.model.clauses import Clause, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.model.names import (
    column_sql,
    column_text,
    has_bare_star,
    has_star,
    name_parts,
    with_known_nulls,
    with_qualified_stars,
    with_stars,
)
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import suppress_error_logs
from trinitymerge.spark.sql_text import Sql

_EXCEPT = re.compile(r"\*\s*(?:EXCEPT|REPLACE)\b", re.IGNORECASE)


class Sees(Enum):
    BOTH = "both sides"
    SOURCE = "the source"
    TARGET = "the target"

    @classmethod
    def of(cls, clause: Clause) -> Sees:
        if isinstance(clause, WhenNotMatched):
            return cls.SOURCE
        return cls.TARGET if isinstance(clause, WhenOnlyOnTarget) else cls.BOTH


def frames_of(target: Target, source: Source | None) -> Mapping[Sees, DataFrame]:
    """Return the user's columns of each side, and of both, without rows of the target."""
    if source is None:
        return {Sees.BOTH: target.nothing, Sees.TARGET: target.nothing}
    joined = target.nothing.crossJoin(source.df)
    return {Sees.BOTH: joined, Sees.SOURCE: source.df, Sees.TARGET: target.nothing}


def with_absent_side(value: str | Column, sees: Sees, target: Target, source: Source | None) -> str | Column:
    """Return a condition over one side without the questions whether a column of the other side is null: it is (S30).

    A Column is replaced by SQL text if the analyzer reads both alike.
    """
    if sees is Sees.BOTH or source is None:
        return value
    text = value if isinstance(value, str) else column_sql(value)

    def is_absent(name: str) -> bool:
        parts = name_parts(name)
        if sees is Sees.SOURCE:
            alias, names, is_field = target.alias, [*target.definition.names], source.has_fields(target.alias)
        else:
            alias, names = alias_of(source.df) or "", source.schema.names
            is_field = target.has_fields(alias, source.case_sensitive)
        is_other = len(parts) > 1 and E.find_name(parts[0], [alias], source.case_sensitive) is not None and not is_field
        return is_other and E.find_name(parts[1], names, source.case_sensitive) is not None

    found = with_known_nulls(text, is_absent)
    if found == text:
        return value
    if isinstance(value, Column):
        with suppress(AnalysisException, ParseException), suppress_error_logs():
            both = frames_of(target, source)[Sees.BOTH]
            return found if both.filter(value).sameSemantics(both.filter(text)) else value
        return value
    return found


def with_columns_for_stars(
    value: str | Column, sees: Sees, target: Target, source: Source | None, where: str
) -> str | Column:
    """Return an expression that names the user's columns where it had a ``*``; without an alias, those that it sees (S30)."""
    text = column_text(value) if isinstance(value, Column) else value
    if not has_star(text):
        return value
    frame = frames_of(target, source)[sees]
    if not has_bare_star(text):
        return with_columns_for_qualified_stars(value, frame)
    sides = f"{target.alias}.*" if source is None or sees is Sees.TARGET else f"{target.alias}.* or the source's alias"
    if isinstance(value, Column):
        raise InvalidMergeError(
            f"{where}: a Column has a * without an alias, and columns of the merge itself would count. Name the side, as in "
            f"{sides}."
        )
    if sees is Sees.BOTH and source is not None and _EXCEPT.search(text):
        raise InvalidMergeError(f"{where}: a * with EXCEPT is of both sides. Name the side, as in {sides}.")
    shown = [] if sees is Sees.SOURCE else [Sql(f"{E.quote(target.alias)}.*")]
    if source is not None and sees is not Sees.TARGET:
        shown.append(source.star)
    return with_columns_for_qualified_stars(with_stars(text, ", ".join(shown)), frame)


def with_columns_for_qualified_stars(value: str | Column, frame: DataFrame) -> str | Column:
    """Return an expression that names the columns of each ``x.*``: Spark 3.5 refuses stars in filters. A Column stays."""

    def columns_of(qualifier: str) -> str | None:
        try:
            with suppress_error_logs():
                names = frame.selectExpr(f"{qualifier}*").columns
        except (AnalysisException, ParseException):
            return None  # the inspector asks again, and reports the error
        is_clear = names and len({n.lower() for n in names}) == len(names)
        return ", ".join(f"{qualifier}{E.quote(n)}" for n in names) if is_clear else None

    return with_qualified_stars(value, columns_of) if isinstance(value, str) else value
