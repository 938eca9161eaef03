"""`fromIntervals`: an SCD type 2 table with closed intervals as a history table (H12)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame, types as T

from trinitymerge.errors import (
    DuplicateKeyError,
    InvalidMergeError,
    NullKeyError,
    TrinityMergeError,
    closest,
    counted,
    missing,
)
from trinitymerge.feeds.events import free_name
from trinitymerge.history.versions import literal_of
from trinitymerge.rows.resolution import Order, is_older
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

CALL = "fromIntervals()"

_SHOWN = 5
_WIDEST, _SCALE_THAT_STAYS = 38, 6  # Spark rounds sums that need more digits, but not to a smaller scale than this
_KEY, _ROW, _BEGINS, _ENDS, _IS_OPEN = Sql("k"), Sql("r"), Sql("begins"), Sql("ends"), Sql("is_open")
_IS_CUT, _NEXT, _IS_FOLLOWED = Sql("is_cut"), Sql("following"), Sql("is_followed")

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Intervals:
    """The intervals of a dimension that are not empty, free of contradictions, each with where the next of its key begins."""

    schema: T.StructType
    key: tuple[str, ...]
    begin: str
    rows: DataFrame

    @classmethod
    def of(
        cls, source: DataFrame, key: Sequence[str], validFrom: str, validTo: str, open_end: Any, is_inclusive: bool
    ) -> Intervals:
        begin, end, *keys = (_column(source, name) for name in (validFrom, validTo, *key))
        own = source.drop(end)
        parts = ", ".join(f"'k{i}', {E.quote(k)}" for i, k in enumerate(keys))
        row = f"named_struct({', '.join(f'{E.text_literal(n)}, {E.quote(n)}' for n in own.columns)}) AS {_ROW}"
        begins = f"{E.quote(begin)} AS {_BEGINS}"
        ends = _ends(source, begin, end, open_end, is_inclusive)
        rows = source.selectExpr(f"named_struct({parts}) AS {_KEY}", row, begins, *ends).localCheckpoint()
        return cls(own.schema, tuple(keys), begin, _checked(rows, keys, begin, end))

    def events(self) -> tuple[DataFrame, str]:
        """Return the events with the table's columns and a column that marks deletes, and the name of that column."""
        flag = free_name("is_delete", self.schema.names)
        ends_alone = E.any_of([E.is_null(_IS_FOLLOWED), E.not_(E.same(_ENDS, _NEXT))])
        gaps = self.rows.filter(E.all_of([E.not_(_IS_OPEN), ends_alone]))
        told = {self.begin: _ENDS, **{k: Sql(f"{_KEY}.k{i}") for i, k in enumerate(self.key)}}
        deletes = [f"{told.get(f.name, E.cast(E.NULL, f.dataType))} AS {E.quote(f.name)}" for f in self.schema.fields]
        rows = [f"{E.field_of(_ROW, n)} AS {E.quote(n)}" for n in self.schema.names]
        begun = self.rows.selectExpr(*rows, f"{E.FALSE} AS {E.quote(flag)}")
        return begun.unionByName(gaps.selectExpr(*deletes, f"{E.TRUE} AS {E.quote(flag)}")), flag


def _column(source: DataFrame, name: str) -> str:
    found = E.find_name(name, source.columns, E.is_case_sensitive(source.sparkSession))
    if found is None:
        raise InvalidMergeError(
            f"{CALL}: {missing([name], 'the source', source.columns)}{closest(name, source.columns)}", column=name
        )
    return found


def _ends(source: DataFrame, begin: str, end: str, open_end: Any, is_inclusive: bool) -> list[str]:
    """Return the exclusive end of each interval, whether it is open, and whether the cast to the begin's type changes it."""
    kind = source.schema[begin].dataType
    given, is_open = Sql(f"try_cast({E.quote(end)} AS {E.sql_type(kind)})"), E.is_null(E.quote(end))
    if open_end is not None:
        is_open = E.any_of([is_open, E.same(given, literal_of(source.sparkSession, open_end, kind, end, "openEnd"))])
    ends = E.case([(E.not_(is_open), _next(given, kind) if is_inclusive else given)], E.cast(E.NULL, kind))
    is_cut = E.all_of([E.not_(is_open), _loses(source, end, given, kind)])
    return [f"{ends} AS {_ENDS}", f"{is_open} AS {_IS_OPEN}", f"{is_cut} AS {_IS_CUT}"]


def _loses(source: DataFrame, end: str, given: Sql, kind: T.DataType) -> Sql:
    """Return True if the cast of an end to the begin's type loses a time of day or a fraction."""
    if isinstance(kind, T.DateType):
        exact, stored = (Sql(f"try_cast({value} AS TIMESTAMP_NTZ)") for value in (E.quote(end), given))
    elif isinstance(kind, T.NumericType) and isinstance(source.schema[end].dataType, T.NumericType):
        exact, stored = E.quote(end), given
    else:
        return E.FALSE
    return E.or_else(E.not_(E.equals(exact, stored)), E.FALSE)


def _next(value: Sql, kind: T.DataType) -> Sql:
    """Return the next value of a type; null after the last one."""
    if isinstance(kind, T.IntegralType):
        return Sql(f"try_cast(try_add(CAST({value} AS BIGINT), 1L) AS {E.sql_type(kind)})")
    if isinstance(kind, T.DateType):
        return Sql(f"date_add({value}, 1)")
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        return Sql(f"try_add({value}, INTERVAL '0.000001' SECOND)")
    if isinstance(kind, T.DecimalType) and (kind.precision < _WIDEST or kind.scale <= _SCALE_THAT_STAYS):
        unit = f"CAST('1e-{kind.scale}' AS DECIMAL({max(kind.scale, 1)}, {kind.scale}))"
        return Sql(f"try_cast(try_add({value}, {unit}) AS {E.sql_type(kind)})")
    raise InvalidMergeError(
        f"{CALL}: endInclusive needs ends that have a next value: whole numbers, decimals, dates or timestamps, not "
        f"{kind.simpleString()}. Compute exclusive ends before."
    )


def _checked(rows: DataFrame, key: Sequence[str], begin: str, end: str) -> DataFrame:
    """Return the intervals that are not empty, each beside the begin of the next of its key."""
    nulls = E.any_of(E.is_null(Sql(f"{_KEY}.k{i}")) for i in range(len(key)))
    unknown = E.all_of([E.not_(_IS_OPEN), E.is_null(_ENDS)])
    backwards = E.all_of([E.not_(_IS_OPEN), is_older([_ENDS], [_BEGINS])])
    is_empty = E.all_of([E.not_(_IS_OPEN), E.same(_ENDS, _BEGINS)])
    _refuse(rows.filter(nulls), key, NullKeyError, "with a null in the key")
    cut = f"whose '{end}' does not fit the type of '{begin}' without a loss, such as that of its time of day,"
    _refuse(rows.filter(_IS_CUT), key, InvalidMergeError, cut, f"Cast '{begin}' or '{end}' to the type of the other.")
    endless = f"whose end is not a value of the type of '{begin}', or has no next value,"
    _refuse(rows.filter(unknown), key, InvalidMergeError, endless)
    _refuse(rows.filter(backwards), key, InvalidMergeError, "that would end before it begins")
    order = Order((_BEGINS,)).oldest_first()
    following, is_followed = (E.over(Sql(f"lead({v})"), [_KEY], order) for v in (_BEGINS, E.TRUE))
    beside = [f"{following} AS {_NEXT}", f"{is_followed} AS {_IS_FOLLOWED}"]
    filled = rows.filter(E.not_(is_empty)).selectExpr("*", *beside)
    overlap = E.all_of([_IS_FOLLOWED, E.any_of([_IS_OPEN, is_older([_NEXT], [_ENDS])])])
    _refuse(filled.filter(overlap), key, DuplicateKeyError, "that would overlap the next of its key")
    empty = rows.filter(is_empty).count()
    if empty:
        _logger.warning("%s: left out %s that would end where it begins", CALL, counted(empty, "interval"))
    return filled


def _refuse(
    rows: DataFrame, key: Sequence[str], error: type[TrinityMergeError], what: str, remedy: str = "Mend them first."
) -> None:
    found = rows.select(f"{_KEY}.*").limit(_SHOWN).collect()
    if found:
        keys = [tuple(row) for row in found]
        raise error(
            f"{CALL}: the source has {counted(rows.count(), 'interval')} {what}: {', '.join(key)} = "
            f"{'; '.join(', '.join(map(repr, k)) for k in keys)}. Nothing was written. {remedy}",
            keys=keys,
        )
