"""SQL functions that never fail: a message that they cannot read gives null, and is rejected (F3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

RAISING = (
    *("timestamp_millis", "timestamp_seconds", "timestamp_micros", "make_dt_interval", "date_add", "to_timestamp"),
    *("map_from_entries", "map_from_arrays", "map_concat", "transform_keys", "str_to_map", "decode", "raise_error"),
    *("parse_json", "variant_get", "element_at", "to_number", "to_date", "assert_true"),
)
"""Functions that fail on some values. Only this module calls them, behind a condition that those values do not pass."""

FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The microseconds and the days from 1970 to the beginning of the year 1, and to the end of the year 9999."""

_V = Sql("v")
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def let(value: Sql, of: Callable[[Sql], Sql], name: Sql = _V) -> Sql:
    """Return SQL that evaluates a value once and uses it under a name."""
    return Sql(f"transform(array({value}), {name} -> {of(name)})[0]")


def micros_of(number: Sql, unit: str) -> Sql:
    """Return a number of seconds (``s``), ``ms`` or ``us`` as microseconds; null if it is none, or not of the years 1 to 9999."""
    tried, factor = f"try_cast({number} AS BIGINT)", _MICROS[unit]
    is_within = Sql(f"{tried} BETWEEN {FIRST_MICROS // factor} AND {LAST_MICROS // factor}")
    return E.case([(is_within, Sql(f"{tried} * {factor}L"))])


def moment_of(number: Sql, unit: str) -> Sql:
    """Return the TIMESTAMP so many seconds (``s``), ``ms`` or ``us`` after 1970; null if it is not of the years 1 to 9999."""
    return moment_of_micros(micros_of(number, unit))


def moment_of_micros(micros: Sql) -> Sql:
    """Return the TIMESTAMP of microseconds that :func:`micros_of` has given."""
    return Sql(f"timestamp_micros({micros})")


def local_of_micros(micros: Sql) -> Sql:
    """Return the TIMESTAMP_NTZ of microseconds that :func:`micros_of` has given."""
    seconds = f"CAST(CAST({micros} AS DECIMAL(20, 0)) / 1000000 AS DECIMAL(18, 6))"
    return Sql(f"TIMESTAMP_NTZ'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds})")


def within_years(moment: Sql) -> Sql:
    """Return a TIMESTAMP, or null if it is not of the years 1 to 9999."""
    return E.case([(Sql(f"unix_micros({moment}) BETWEEN {FIRST_MICROS} AND {LAST_MICROS}"), moment)])


def date_of_days(days: Sql) -> Sql:
    """Return the DATE so many days after 1970; null if it is none, or not of the years 1 to 9999."""
    tried = Sql(f"try_cast({days} AS INT)")
    is_day = Sql(f"{tried} BETWEEN {FIRST_DAY} AND {LAST_DAY}")
    return E.case([(is_day, Sql(f"date_add(DATE'1970-01-01', {tried})"))])


def text_of_bytes(value: Sql) -> Sql:
    """Return the text of UTF-8 bytes; other bytes stay in it."""
    return Sql(f"CAST({value} AS STRING)")


def _are_distinct(names: Sql) -> Sql:
    """Return SQL that is true if no name is null or comes twice. Null for null."""
    return Sql(f"(NOT exists({names}, n -> n IS NULL) AND size(array_distinct({names})) = size({names}))")


def map_of(names: Sql, values: Sql) -> Sql:
    """Return a map of two arrays; null if they do not pair, or a name is null or comes twice."""
    is_map = E.all_of([Sql(f"size({names}) = size({values})"), _are_distinct(names)])
    return E.case([(is_map, Sql(f"map_from_arrays({names}, {values})"))])


def map_of_structs(structs: Sql, name: str, value: Sql) -> Sql:
    """Return a map of an array of structs ``f``, from a field to SQL over ``f``; null if a name is null or comes twice."""
    names = Sql(f"{structs}.{E.quote(name)}")
    return E.case([(_are_distinct(names), Sql(f"map_from_arrays({names}, transform({structs}, f -> {value}))"))])


def map_with(own: Sql, others: Sql) -> Sql:
    """Return a map with the entries of another one that it lacks; the map itself if there is no other."""
    lacking = f"map_filter({others}, (k, v) -> NOT array_contains(map_keys({own}), k))"
    distinct = [_are_distinct(Sql(f"map_keys({of})")) for of in (own, others)]
    both = E.all_of([E.is_not_null(others), *distinct])
    return E.case([(both, Sql(f"map_concat({own}, {lacking})"))], own)


def renamed(of: Sql, name: Sql) -> Sql:
    """Return a map with the name ``name``, SQL over ``k``, for each key; null if one is null or comes twice."""
    are_names = _are_distinct(Sql(f"transform(map_keys({of}), k -> {name})"))
    return E.case([(are_names, Sql(f"transform_keys({of}, (k, v) -> {name})"))])


def has_doubled_names(of: Sql, name: Sql = Sql("k")) -> Sql:  # noqa: B008 - a constant
    """Return SQL that is true if two keys of a map have one name, SQL over ``k``. False for null."""
    return Sql(f"coalesce(size(array_distinct(transform(map_keys({of}), k -> {name}))) < size({of}), false)")


def literal_map(pairs: Mapping[str, str]) -> Sql:
    return Sql(f"map({', '.join(E.text_literal(text) for pair in pairs.items() for text in pair)})")
