"""The key range of a batch, and the batches that a lookup can skip (S18, S31)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DateType, DecimalType, IntegralType, NullType, StringType, TimestampType

from trinitymerge.rows.watermarks import from_json_sql, ordered, to_json_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql

_RANGED = (IntegralType, DateType, TimestampType, DecimalType, StringType)
_NARROW = 2
"""Ranges of fewer keys than the table's rows divided by this are worth a filter."""
_LISTED = 10
"""Spark's default of ``spark.sql.parquet.pushdown.inFilterThreshold``."""
_EXACT_CHARACTERS = 100
_CHARACTERS = 32
"""Longer bounds are truncated, the upper one rounded up."""


@attrs.frozen
class KeyRange:
    """The smallest and largest value of each primary key column.

    Attributes:
        low, high: in the JSON form of :mod:`trinitymerge.rows.watermarks`, by ``Field.first_stored_as``, without unknown bounds.
        first: the exact smallest key, in the same form; None if unknown or too long.
    """

    low: Mapping[str, Any]
    high: Mapping[str, Any]
    is_empty: bool = False
    first: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, observed: Mapping[str, Any], definition: TableDefinition) -> KeyRange:
        known: dict[str, tuple[Any, Any]] = {}
        for i, name in enumerate(definition.primaryKey):
            if _name("min", i) not in observed:
                continue
            least, most = (observed[_name(which, i)] for which in ("min", "max"))
            field = definition.field(name)
            kind = E.physical_type(field)
            if least is None:  # a key with a null matches none
                return cls({}, {}, is_empty=True)
            ends = (least[:_CHARACTERS], _rounded_up(most)) if isinstance(kind, StringType) else (least, most)
            if all(ordered(end, kind) is not None for end in (least, most, *ends)):
                known[field.first_stored_as] = ends
        low, high = ({k: ends[i] for k, ends in known.items()} for i in (0, 1))
        return cls(low, high, first=_first_of(observed, definition))

    def to_json(self) -> dict[str, Any]:
        return {"low": dict(self.low), "high": dict(self.high), "first": self.first}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KeyRange:
        """Read the form of :meth:`to_json`; a range without keys becomes unknown."""
        low, high = data.get("low"), data.get("high")
        if not isinstance(low, dict) or not isinstance(high, dict) or set(low) != set(high):
            raise ValueError("not a key range")
        first = data.get("first")
        return cls(low, high, first=tuple(first) if isinstance(first, (list, tuple)) else None)

    def ends(self, kinds: Mapping[str, DataType]) -> dict[str, tuple[Any, Any]]:
        """Return the smallest and largest value of each column with known ones, comparable in Python."""
        found = {
            n: (ordered(self.low[n], kind), ordered(self.high[n], kind)) for n, kind in kinds.items() if n in self.low
        }
        return {name: ends for name, ends in found.items() if None not in ends}

    def filter(self, definition: TableDefinition, rows: int) -> str | None:
        """Return SQL: true of every stored row with a key in the range; None if the filter would not pay in so many rows."""
        conditions = []
        for name in definition.primaryKey:
            kind, known_as = E.physical_type(definition.field(name)), definition.field(name).first_stored_as
            ends = self.low.get(known_as), self.high.get(known_as)
            if known_as not in self.low or not _is_narrow(*ends, kind, rows):
                break  # files are sorted by the leading columns: after a wide range, no filter skips files
            for op, value in zip((">=", "<="), ends, strict=True):
                bound = f"{int(str(value))}L" if isinstance(kind, IntegralType) else from_json_sql(value, kind)
                conditions += [] if bound is None else [f"{E.quote(name)} {op} {bound}"]
        return " AND ".join(conditions) or None


def metrics(definition: TableDefinition, keys: Mapping[str, tuple[Sql, DataType]]) -> dict[str, str]:
    """Return aggregates for :meth:`KeyRange.of`, over keys: by primary key column, SQL over the observed rows, and its type.

    Types other than the column's are skipped, because comparisons must not cast; integral types compare without a cast.
    """
    found: dict[str, str] = {}
    for i, name in enumerate(definition.primaryKey):
        key, kind = keys.get(name, (E.NULL, NullType()))
        field = definition.field(name)
        if not isinstance(kind, _RANGED) or not _compares(kind, E.physical_type(field)) or E.declared_length(field):
            continue
        for which in ("min", "max"):
            value = to_json_sql(f"{which}({key})", kind)
            if value is not None:
                found[_name(which, i)] = value
    return found


def metrics_of_rows(definition: TableDefinition, where: Sql) -> dict[str, str]:
    keys = {k: Sql(f"CASE WHEN {where} THEN {E.quote(k)} END") for k in definition.primaryKey}
    return metrics(definition, {k: (key, E.physical_type(definition.field(k))) for k, key in keys.items()})


def metrics_of_first(definition: TableDefinition, where: Sql) -> dict[str, str]:
    """Return aggregates for the smallest key of several columns."""
    if len(definition.primaryKey) == 1 or not has_order(definition):
        return {}
    parts = ", ".join(f"'k{i}', {E.quote(k)}" for i, k in enumerate(definition.primaryKey))
    least = f"min(CASE WHEN {where} THEN named_struct({parts}) END)"
    kinds = (E.physical_type(definition.field(k)) for k in definition.primaryKey)
    found = {_name("first", i): to_json_sql(f"{least}.k{i}", kind) for i, kind in enumerate(kinds)}
    return {name: value for name, value in found.items() if value is not None}


def meeting(
    definition: TableDefinition, ranges: Iterable[KeyRange | None], others: Iterable[KeyRange | None]
) -> list[bool]:
    """Return for each range whether it may have a key of one of the others: unless they are apart in some column, or unknown.

    Example:
        >>> from trinitymerge import Field, TableDefinition
        >>> orders = TableDefinition.of([Field("id", "integer")], "id")
        >>> one, two, three = (KeyRange({"id": n}, {"id": n + 5}) for n in (1, 3, 8))
        >>> meeting(orders, [one, two, three, None], [one])
        [True, True, False, True]
    """
    fields = [definition.field(k) for k in definition.primaryKey]
    kinds = {f.first_stored_as: E.physical_type(f) for f in fields}
    sought = [None if r is None else r.ends(kinds) for r in others if r is None or not r.is_empty]

    def meets(keys: KeyRange | None) -> bool:
        if keys is None or None in sought:
            return bool(sought)
        own = keys.ends(kinds)
        return not keys.is_empty and any(other is None or not _are_apart(own, other) for other in sought)

    return [meets(keys) for keys in ranges]


def _are_apart(one: Mapping[str, tuple[Any, Any]], other: Mapping[str, tuple[Any, Any]]) -> bool:
    shared = ((one[name], other[name]) for name in one if name in other)
    return any(mine[1] < its[0] or its[1] < mine[0] for mine, its in shared)


def has_order(definition: TableDefinition) -> bool:
    """Return True if Python and SQL can order keys by their JSON form, as Spark does."""
    fields = [definition.field(k) for k in definition.primaryKey]
    return all(isinstance(E.physical_type(f), _RANGED) and not E.declared_length(f) for f in fields)


def _compares(kind: DataType, other: DataType) -> bool:
    return kind == other or (isinstance(kind, IntegralType) and isinstance(other, IntegralType))


def _first_of(observed: Mapping[str, Any], definition: TableDefinition) -> tuple[Any, ...] | None:
    kinds = [E.physical_type(definition.field(k)) for k in definition.primaryKey]
    of = "min" if len(kinds) == 1 else "first"
    values = tuple(observed.get(_name(of, i)) for i in range(len(kinds)))
    if not has_order(definition) or any(from_json_sql(v, kind) is None for v, kind in zip(values, kinds, strict=True)):
        return None
    return values if all(len(str(v)) <= _EXACT_CHARACTERS for v in values) else None


def ends_of_leading(observed: Mapping[str, Any], definition: TableDefinition) -> tuple[Any, Any]:
    """Return the exact smallest and largest value of the first key column, comparable in Python; None if unknown."""
    kind = E.physical_type(definition.field(definition.primaryKey[0]))
    return ordered(observed.get(_name("min", 0)), kind), ordered(observed.get(_name("max", 0)), kind)


def are_disjoint(ends: Iterable[tuple[Any, Any]]) -> bool:
    """Return True unless ranges of one column are known to overlap in more than one shared value."""
    known = sorted(both for both in ends if None not in both)
    return all(one[1] <= other[0] for one, other in pairwise(known))


def one_of(definition: TableDefinition, keys: DataFrame, is_clustered: bool = False) -> Sql | None:
    """Return SQL: true of every stored row with one of a few keys; None if no filter would pay. One small Spark job.

    The keys, columns :data:`C.KEY_TO_FIND`, may lie far apart, so ranges do not help. Spark pushes only short lists of values down
    to Parquet.
    """
    asked: dict[str, tuple[str, DataType]] = {}
    for i, name in enumerate(definition.primaryKey):
        kind, field = E.physical_type(definition.field(name)), definition.field(name)
        if C.KEY_TO_FIND(i) not in keys.columns or not isinstance(kind, _RANGED) or E.declared_length(field):
            continue
        theirs = keys.schema[C.KEY_TO_FIND(i)].dataType
        if _compares(theirs, kind):
            value = to_json_sql(f"try_cast({C.KEY_TO_FIND(i)} AS {E.sql_type(kind)})", kind)
            asked |= {} if value is None else {name: (f"{value} AS {C.KEY_TO_FIND(i)}", kind)}
    if not asked:
        return None
    found = keys.selectExpr(*[text for text, _ in asked.values()]).distinct().collect()
    if is_clustered and len(found) > _LISTED:
        return None  # they are anywhere in each file, and every row would be compared with all of them
    columns = zip(asked.items(), zip(*found, strict=True), strict=True) if found else ()
    conditions = [_one_of(E.quote(name), set(values), kind) for (name, (_, kind)), values in columns]
    return E.all_of(c for c in conditions if c is not None) if any(conditions) else None


def _one_of(name: Sql, values: set[Any], kind: DataType) -> Sql | None:
    literals = [from_json_sql(value, kind) for value in sorted(values - {None})]
    if None in literals:
        return None
    lists = [literals[i : i + _LISTED] for i in range(0, len(literals), _LISTED)]
    return _any_of([Sql(f"{name} IN ({', '.join(map(str, some))})") for some in lists])


def _any_of(conditions: list[Sql]) -> Sql:
    """Return the disjunction as a balanced tree: a long chain would nest too deep."""
    if len(conditions) <= 2:
        return E.any_of(conditions)
    half = len(conditions) // 2
    return E.any_of([_any_of(conditions[:half]), _any_of(conditions[half:])])


def _rounded_up(text: str) -> str | None:
    """Return a bounded text that is not smaller; None if none exists."""
    if len(text) <= _CHARACTERS:
        return text
    kept = text[:_CHARACTERS].rstrip(chr(0x10FFFF))
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= after <= 0xDFFF else after)


def _is_narrow(low: Any, high: Any, kind: DataType, rows: int) -> bool:
    """Return True if a filter by the range may skip much of a table, of consecutive numbers, days or seconds, or of one text."""
    if low == high:
        return True
    if isinstance(kind, StringType):
        return False
    unit = 1_000_000 if isinstance(kind, TimestampType) else 1
    return (Decimal(high) - Decimal(low)) / unit < rows / Decimal(_NARROW)


def _name(which: str, i: int) -> str:
    return f"{which}_of_key_{i}"
