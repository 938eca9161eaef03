"""The range of a batch's keys, and which batches a lookup can skip (S18, S31)."""

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
from trinitymerge.spark.expressions import NULL, all_of, any_of, declared_length, physical_type, quote, sql_type
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import KEY_TO_FIND

_RANGED = (IntegralType, DateType, TimestampType, DecimalType, StringType)
_NARROW = 2
"""Ranges of less than the table's rows by this are worth a filter."""
_LISTED = 10
"""Spark's ``spark.sql.parquet.pushdown.inFilterThreshold``, unless it is set otherwise."""
_EXACT_CHARACTERS = 100
_CHARACTERS = 32
"""Longer bounds are cut, the upper one rounded up: keys may be long, and what comes after says little."""


@attrs.frozen
class KeyRange:
    """The smallest and largest value of each primary-key column, each column by itself.

    Attributes:
        low: by the column's first name in files, which no other column ever has (S43), in the form of
            :mod:`trinitymerge.rows.watermarks`; nothing where unknown.
        high: likewise.
        is_empty: there is no key.
        first: the smallest key as a whole, exact, in the same form; None where unknown, or too long to be kept.
    """

    low: Mapping[str, Any]
    high: Mapping[str, Any]
    is_empty: bool = False
    first: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, observed: Mapping[str, Any], definition: TableDefinition) -> KeyRange:
        """What :func:`metrics` have found."""
        known: dict[str, tuple[Any, Any]] = {}
        for i, name in enumerate(definition.primaryKey):
            if _name("min", i) not in observed:
                continue
            least, most = (observed[_name(which, i)] for which in ("min", "max"))
            field = definition.field(name)
            kind = physical_type(field)
            if least is None:  # a key with a null in it equals none
                return cls({}, {}, is_empty=True)
            ends = (least[:_CHARACTERS], _rounded_up(most)) if isinstance(kind, StringType) else (least, most)
            if all(end is not None and ordered(end, kind) is not None for end in (least, most, *ends)):
                known[field.first_stored_as] = ends
        low, high = ({k: ends[i] for k, ends in known.items()} for i in (0, 1))
        return cls(low, high, first=_first_of(observed, definition))

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"low": dict(self.low), "high": dict(self.high), "first": self.first}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KeyRange:
        """The range that :meth:`to_json` has given; one without keys is as good as unknown.

        Raises:
            ValueError: this is something else.
        """
        low, high = data.get("low"), data.get("high")
        if not isinstance(low, dict) or not isinstance(high, dict) or set(low) != set(high):
            raise ValueError("no range of keys")
        first = data.get("first")
        return cls(low, high, first=tuple(first) if isinstance(first, (list, tuple)) else None)

    def is_apart_from(self, other: KeyRange, definition: TableDefinition) -> bool:
        """True if no key is in both: some column of one ends before that of the other begins."""
        fields = (definition.field(k) for k in definition.primaryKey)
        known = ((f.first_stored_as, physical_type(f)) for f in fields)
        differs = (self._differs(other, name, kind) for name, kind in known if name in self.low and name in other.low)
        return self.is_empty or other.is_empty or any(differs)

    def _differs(self, other: KeyRange, name: str, kind: DataType) -> bool:
        return self._ends_before(other, name, kind) or other._ends_before(self, name, kind)

    def _ends_before(self, other: KeyRange, name: str, kind: DataType) -> bool:
        end, start = ordered(self.high[name], kind), ordered(other.low[name], kind)
        return end is not None and start is not None and bool(end < start)

    def filter(self, definition: TableDefinition, rows: int) -> str | None:
        """What is true of every stored row that has one of the keys, as SQL; None if nothing useful is known.

        Args:
            definition: of the table.
            rows: of the table. A range that is wide beside that is no use.
        """
        conditions = []
        for name in definition.primaryKey:
            kind, known_as = physical_type(definition.field(name)), definition.field(name).first_stored_as
            ends = self.low.get(known_as), self.high.get(known_as)
            if known_as not in self.low or not _is_narrow(*ends, kind, rows):
                break  # files are sorted by the leading columns first: what comes after a wide one is spread over all of them
            for op, value in zip((">=", "<="), ends, strict=True):
                bound = (
                    f"{int(str(value))}L" if isinstance(kind, IntegralType) else from_json_sql(value, kind)
                )  # of any width
                conditions += [] if bound is None else [f"{quote(name)} {op} {bound}"]
        return " AND ".join(conditions) or None


def metrics(definition: TableDefinition, keys: Mapping[str, tuple[Sql, DataType]]) -> dict[str, str]:
    """Aggregates over keys, for :meth:`KeyRange.of`.

    Args:
        definition: of the table.
        keys: by primary-key column, what is sought, as SQL over the rows observed, and its type. What is not of the key's own
            type is left out, for no comparison may cast; integers compare as they are, whatever their width.
    """
    found: dict[str, str] = {}
    for i, name in enumerate(definition.primaryKey):
        key, kind = keys.get(name, (NULL, NullType()))
        field = definition.field(name)
        if not isinstance(kind, _RANGED) or not _compares(kind, physical_type(field)) or declared_length(field):
            continue
        for which in ("min", "max"):
            value = to_json_sql(f"{which}({key})", kind)
            if value is not None:
                found[_name(which, i)] = value
    return found


def metrics_of_rows(definition: TableDefinition, where: Sql) -> dict[str, str]:
    """The same over stored rows, of those for which some SQL is true."""
    kinds = {k: physical_type(definition.field(k)) for k in definition.primaryKey}
    return metrics(definition, {k: (Sql(f"CASE WHEN {where} THEN {quote(k)} END"), kind) for k, kind in kinds.items()})


def metrics_of_first(definition: TableDefinition, where: Sql) -> dict[str, str]:
    """Besides, the smallest key as a whole, for keys of several columns."""
    if len(definition.primaryKey) == 1 or not has_order(definition):
        return {}
    parts = ", ".join(f"'k{i}', {quote(k)}" for i, k in enumerate(definition.primaryKey))
    least = f"min(CASE WHEN {where} THEN named_struct({parts}) END)"
    kinds = (physical_type(definition.field(k)) for k in definition.primaryKey)
    found = {_name("first", i): to_json_sql(f"{least}.k{i}", kind) for i, kind in enumerate(kinds)}
    return {name: value for name, value in found.items() if value is not None}


def has_order(definition: TableDefinition) -> bool:
    """True if the order of whole keys can be told from kept values: here as in Spark, and as SQL."""
    fields = [definition.field(k) for k in definition.primaryKey]
    return all(isinstance(physical_type(f), _RANGED) and not declared_length(f) for f in fields)


def _compares(kind: DataType, other: DataType) -> bool:
    return kind == other or (isinstance(kind, IntegralType) and isinstance(other, IntegralType))


def _first_of(observed: Mapping[str, Any], definition: TableDefinition) -> tuple[Any, ...] | None:
    kinds = [physical_type(definition.field(k)) for k in definition.primaryKey]
    of = "min" if len(kinds) == 1 else "first"
    values = tuple(observed.get(_name(of, i)) for i in range(len(kinds)))
    if not has_order(definition) or any(from_json_sql(v, kind) is None for v, kind in zip(values, kinds, strict=True)):
        return None
    return values if all(len(str(v)) <= _EXACT_CHARACTERS for v in values) else None


def ends_of_leading(observed: Mapping[str, Any], definition: TableDefinition) -> tuple[Any, Any]:
    """The smallest and largest value of the leading key column, exact, as Python can compare them; None where unknown."""
    kind = physical_type(definition.field(definition.primaryKey[0]))
    return ordered(observed.get(_name("min", 0)), kind), ordered(observed.get(_name("max", 0)), kind)


def are_disjoint(ends: Iterable[tuple[Any, Any]]) -> bool:
    """True unless some of these ranges of one column are known to overlap by more than a value that both have."""
    known = sorted(both for both in ends if None not in both)
    return all(one[1] <= other[0] for one, other in pairwise(known))


def one_of(definition: TableDefinition, keys: DataFrame) -> Sql | None:
    """What is true of every stored row that has one of a few keys, as SQL; None if no column can be filtered by.

    A range says little of keys that lie far apart. Parquet skips pages by equality: Spark hands it short lists of values as
    such, of a longer one only the ends.

    Args:
        definition: of the table.
        keys: columns :data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`. They are evaluated, in one small job.
    """
    asked: dict[str, tuple[str, DataType]] = {}
    for i, name in enumerate(definition.primaryKey):
        kind, field = physical_type(definition.field(name)), definition.field(name)
        if KEY_TO_FIND(i) not in keys.columns or not isinstance(kind, _RANGED) or declared_length(field):
            continue
        theirs = keys.schema[KEY_TO_FIND(i)].dataType
        if _compares(theirs, kind):
            value = to_json_sql(f"try_cast({KEY_TO_FIND(i)} AS {sql_type(kind)})", kind)
            asked |= {} if value is None else {name: (f"{value} AS {KEY_TO_FIND(i)}", kind)}
    if not asked:
        return None
    found = keys.selectExpr(*[text for text, _ in asked.values()]).distinct().collect()
    columns = zip(asked.items(), zip(*found, strict=True), strict=True) if found else ()
    conditions = [_one_of(quote(name), set(values), kind) for (name, (_, kind)), values in columns]
    return all_of(c for c in conditions if c is not None) if any(conditions) else None


def _one_of(name: Sql, values: set[Any], kind: DataType) -> Sql | None:
    told = [from_json_sql(value, kind) for value in sorted(values - {None})]
    if None in told:
        return None
    lists = [told[i : i + _LISTED] for i in range(0, len(told), _LISTED)]
    return _either([Sql(f"{name} IN ({', '.join(map(str, some))})") for some in lists])


def _either(conditions: list[Sql]) -> Sql:
    """Any of the conditions, halved again and again: a long chain of them would nest as deep as it is long."""
    if len(conditions) <= 2:
        return any_of(conditions)
    half = len(conditions) // 2
    return any_of([_either(conditions[:half]), _either(conditions[half:])])


def _rounded_up(text: str) -> str | None:
    """Text that is not smaller, and not much longer than a bound may be; None if there is none."""
    if len(text) <= _CHARACTERS:
        return text
    kept = text[:_CHARACTERS].rstrip(chr(0x10FFFF))
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= after <= 0xDFFF else after)


def _is_narrow(low: Any, high: Any, kind: DataType, rows: int) -> bool:
    """True if a range may leave out much of a table of so many rows. Where it does not, filtering files costs something in vain.

    As if keys were numbers counted up, or a second or a day apart; text only where it is one and the same.
    """
    if low == high:
        return True
    if isinstance(kind, StringType):
        return False
    unit = 1_000_000 if isinstance(kind, TimestampType) else 1
    return (Decimal(high) - Decimal(low)) / unit < rows / Decimal(_NARROW)


def _name(which: str, i: int) -> str:
    return f"{which}_of_key_{i}"
