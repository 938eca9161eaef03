"""`insert(deduplicate=True)`: the first row of each key in a given order (S12a)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window, functions as F

from trinitymerge.errors import InvalidMergeError, SchemaMismatchError
from trinitymerge.feeds.casts import cast_to_stored
from trinitymerge.merge.analysis.ignored_columns import mentions
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.model.arguments import text_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.errors import analysis_errors
from trinitymerge.spark.predicates import is_deterministic
from trinitymerge.spark.session import force_analysis
from trinitymerge.spark.sql_text import Sql

CALL = "insert()"
_ONE_PLACE = "orderBy ranks these rows equally: add a column in which they differ."
_NAMES = " A text is the name of a column here, as in DataFrame.orderBy; F.desc(name) is the other way round."
_SAY_WHICH = (
    "Say which of them to insert: insert(source, deduplicate=True, orderBy=...) takes the first, for instance by "
    'orderBy=F.desc("loaded_at").'
)


def deduplicated(merge: MergeBuilder, own: TableDefinition, order: Any) -> MergeBuilder:
    """Keep the first source row of each key and watermark; without an order, keep all rows."""
    source = merge._spec.source
    by = order_of(order)
    if source is None or not by:
        return merge._of_call(ambiguous=_SAY_WHICH)
    _require_deterministic(source, by)
    columns = _columns(source, own)
    same = _told_apart_by(source, own, columns)
    if not same:
        return merge  # what is wrong is said when the merge is built
    # Rows without a key or place of the table are not duplicates: they are refused, or go into the quarantine.
    wrong = [E.all_of([E.is_not_null(E.quote(columns[n])), E.is_null(value)]) for n, value in same.items()]
    wrong += [E.is_null(E.quote(columns[k])) for k in own.primaryKey]
    with analysis_errors(f"{CALL}, orderBy", lambda error: _NAMES if any(isinstance(b, str) for b in by) else ""):
        place = F.rank().over(Window.partitionBy(*map(F.expr, same.values())).orderBy(*by))
        ranked = source.select("*", place.alias(C.RANK_IN_SOURCE))
        kept = E.any_of([E.equals(C.RANK_IN_SOURCE, Sql("1")), *wrong])
        found = force_analysis(ranked.filter(kept).drop(C.RANK_IN_SOURCE))
    texts, exact = [text_of(b) for b in by], E.is_case_sensitive(source.sparkSession)
    beside = [n for n in source.columns if E.find_name(n, own.names, exact) is None]
    only_ordering = [n for n in beside if any(mentions(t, n) for t in texts)]
    shown = f"of those with equal {', '.join(same)} all but the first by {', '.join(texts)}"
    chosen = merge._evolve(source=found.drop(*only_ordering))
    return chosen._of_call(ambiguous=_ONE_PLACE, rows_left_out=shown)


def _require_deterministic(source: DataFrame, by: Iterable[str | Column]) -> None:
    """Raise if an order is not deterministic (S32). Expressions that Spark accepts only in an order are not checked."""
    for column in by:
        if isinstance(column, Column) and not is_deterministic(source.limit(0), column):
            raise InvalidMergeError(
                f"{CALL}: orderBy is not deterministic, so that a row would be taken at random. Order by a column in which the "
                "rows differ."
            )


def order_of(given: Any) -> tuple[str | Column, ...]:
    if given is None:
        return ()
    found = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not found or not all(isinstance(f, (str, Column)) for f in found):
        raise InvalidMergeError(f"{CALL}: orderBy takes a column name, a Column, or a list of these, got {given!r}.")
    return found


def _columns(source: DataFrame, own: TableDefinition) -> dict[str, str]:
    """Return the columns with key and watermark, by the table's names. One that lacks is the same in all (S10)."""
    exact = E.is_case_sensitive(source.sparkSession)
    found = {n: E.find_name(n, source.columns, exact) for n in (*own.primaryKey, *own.watermarkKey)}
    return {n: column for n, column in found.items() if column is not None}


def _told_apart_by(source: DataFrame, own: TableDefinition, columns: Mapping[str, str]) -> dict[str, Sql]:
    """Return key and watermark of the source's rows as they are stored, by name; empty if the source lacks a key column."""
    if any(k not in columns for k in own.primaryKey):
        return {}
    known = columns.items()
    try:
        return {n: cast_to_stored(source, c, own.field(n), CALL, n in own.primaryKey, fails=False) for n, c in known}
    except SchemaMismatchError:
        return {}
