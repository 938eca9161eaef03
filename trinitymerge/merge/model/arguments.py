"""Arguments of the chain's calls, checked."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column

from trinitymerge.errors import InvalidMergeError, kind_of
from trinitymerge.merge.model.clauses import All, Assignments, OtherTable
from trinitymerge.merge.model.names import column_text, key_text
from trinitymerge.stores.registry import store_uri

_LITERALS = (type(None), bool, int, float, decimal.Decimal, datetime.date, datetime.datetime, datetime.timedelta, bytes)

ExpressionMap = Mapping[Any, Any] | Sequence[tuple[Any, Any]]
"""From column to value; as a list of pairs where a key is a Column, which no dict can hold."""


def condition_of(condition: Any) -> Any:
    if condition is None or isinstance(condition, (str, Column)):
        return condition
    raise InvalidMergeError(
        f"A clause condition must be SQL text or a Column, got {type(condition).__name__} ({condition!r}). "
        "Leave it out for 'always'."
    )


def assignments_of(method: str, values: Any) -> Assignments:
    pairs = _pairs(values)
    if not pairs:
        raise InvalidMergeError(
            f"{method} takes a map from column to expression with at least one entry, got {values!r}."
        )
    for key, value in pairs:
        if not isinstance(key, (str, Column)):
            raise InvalidMergeError(f"{method}: a map key must be a column name or a Column, got {key!r}.")
        if not isinstance(value, (str, Column, *_LITERALS)):
            raise InvalidMergeError(
                f"{method}, column '{key_text(key)}': a value must be SQL text, a Column or a plain Python literal, got "
                f"{type(value).__name__}. Use pyspark.sql.functions.lit for other literals."
            )
    return Assignments(pairs)


def _pairs(values: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the entries of a map, or of a list of pairs: Columns cannot be keys of a dict."""
    if isinstance(values, Mapping):
        return tuple(values.items())
    pairs = tuple(values) if isinstance(values, (list, tuple)) else ()
    return pairs if all(isinstance(p, tuple) and len(p) == 2 for p in pairs) else ()


def table_of(method: str, table: Any) -> OtherTable:
    if hasattr(type(table), "_require_writable"):  # of itself a Connect DataFrame has anything, as a column
        return OtherTable(path=store_uri(table._require_writable()))
    got = repr(table) if isinstance(table, str) else kind_of(table)
    raise InvalidMergeError(
        f"{method} inserts into a TrinityTable only, got {got}. Open one with TrinityTable.forPath; TrinityTable.convert makes "
        "one of a Spark table. Nothing was written."
    )


def all_of_source(method: str, exceptColumns: Any = (), columns: Any = None, ignoreNulls: Any = False) -> All:
    """Return which columns a call takes from the source by their names."""
    excepted = names_of(method, "exceptColumns", exceptColumns)
    only = None if columns is None else names_of(method, "columns", columns)
    if excepted and only is not None:
        raise InvalidMergeError(
            f"{method} takes columns or exceptColumns, not both: leave out of columns what you mean."
        )
    if only is not None and not only:
        raise InvalidMergeError(f"{method}: columns names none, so nothing could change.")
    nulls = ignoreNulls if isinstance(ignoreNulls, bool) else names_of(method, "ignoreNulls", ignoreNulls)
    return All(excepted, only, nulls)


def names_of(method: str, argument: str, names: Any) -> tuple[str, ...]:
    """Return the columns that an argument of a call names: a name or names."""
    if isinstance(names, str):
        return (names,)
    found = tuple(names) if isinstance(names, Iterable) else ()
    if not isinstance(names, Iterable) or not all(isinstance(n, str) for n in found):
        raise InvalidMergeError(f"{method}: {argument} takes column names, got {names!r}.")
    return found


def watermark_of(method: str, values: Any, call: str = "") -> tuple[Any, ...]:
    """Return the values of a watermark: one for each column, or a tuple or list of them. A feed's ``call`` takes none."""
    if call:
        raise InvalidMergeError(f"{call} sets the watermark itself: do not call {method}() as well.")
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    if not values or not all(isinstance(v, (str, Column, *_LITERALS)) for v in values):
        raise InvalidMergeError(
            f"{method}() takes a value for each watermark column, or a tuple of them: SQL text, Columns or plain Python literals, "
            f"got {values!r}."
        )
    return tuple(values)


def text_of(value: Any) -> str:
    return column_text(value) if isinstance(value, Column) else str(value)
