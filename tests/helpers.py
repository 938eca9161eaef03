"""What tests compare with: rows as multisets, with only the differing rows in the message."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame

from trinitymerge.spark.session import is_connect


def quickly(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Cases of a test that all take the same way: these every time, the others with the long tests."""
    several = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*c, marks=[] if c in quick or c[0] in quick else [pytest.mark.long]) for c in several]


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: one test for all values of an argument, of which each takes milliseconds; a failure names the value."""
    values = list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for value in values:
                try:
                    test(**fixtures, **{name: value})
                except Exception as error:
                    raise AssertionError(f"{name}={value!r}: {error}") from error

        others = [p for p in signature.parameters.values() if p.name != name]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def executed_plan(df: DataFrame) -> str:
    """How Spark would run it, as text."""
    if is_connect(df):
        return df._explain_string(mode="simple")
    return df._jdf.queryExecution().executedPlan().toString()


def assertRows(df: DataFrame, expected: DataFrame | Iterable[Any]) -> None:
    """Checks that a DataFrame holds exactly these rows, in any order.

    Args:
        df: what to check; small enough to be collected.
        expected: a DataFrame with the same columns, or rows: tuples in the order of the columns, `Row`s, or
            dicts by column name. For a single column the bare values will do.

    Raises:
        AssertionError: listing the differing rows side by side, paired by their first column, and no others.

    Example:
        >>> assertRows(spark.sql("SELECT 1 AS id, 'a' AS v"), [(1, "b")])
        Traceback (most recent call last):
        AssertionError: rows differ in (id, v); 1 expected, 1 found; those that differ:
          expected  actual
          (1, 'b')  (1, 'a')
    """
    columns = df.columns
    if isinstance(expected, DataFrame):
        assert expected.columns == columns, f"columns differ: expected {expected.columns}, actual {columns}"
        expected = expected.collect()
    wanted = _bag(_as_tuple(row, columns) for row in expected)
    found = _bag(tuple(row) for row in df.collect())
    missing, surplus = wanted - found, found - wanted
    if missing or surplus:
        counts = f"{sum(wanted.values())} expected, {sum(found.values())} found"
        headline = f"rows differ in ({', '.join(columns)}); {counts}; those that differ:"
        raise AssertionError("\n".join([headline, *_side_by_side(missing.elements(), surplus.elements())]))


class _Row:
    """A row that compares and hashes by canonical values and prints as it is."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.canonical = _canonical(values)
        self.key = repr(values[0]) if len(values) > 1 else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Row) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __str__(self) -> str:
        return f"({', '.join(map(repr, self.values))})"


def _bag(rows: Iterable[tuple[Any, ...]]) -> Counter[_Row]:
    return Counter(_Row(row) for row in rows)


def _as_tuple(row: Any, columns: list[str]) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        assert set(row) == set(columns), f"expected row {row} does not have exactly the columns {columns}"
        return tuple(row[name] for name in columns)
    values = tuple(row) if isinstance(row, (tuple, list)) else (row,)
    assert len(values) == len(columns), f"expected row {row} does not have the {len(columns)} columns {columns}"
    return values


def _canonical(value: Any) -> Any:
    """Equal exactly when Spark would store the same: 1 is not True, 1.0 not 1, NaN is NaN, 1.50 is 1.5."""
    if isinstance(value, Mapping):
        return ("map", frozenset((_canonical(k), _canonical(v)) for k, v in value.items()))
    if isinstance(value, (tuple, list)):
        return ("rows", *map(_canonical, value))
    if isinstance(value, (bytes, bytearray)):
        return ("bytes", bytes(value))
    if isinstance(value, Decimal):
        return ("decimal", value.normalize())
    if isinstance(value, float):
        return ("float", repr(value))
    return (type(value).__name__, value)


def _side_by_side(missing: Iterable[_Row], surplus: Iterable[_Row]) -> list[str]:
    sides = [sorted(missing, key=str), sorted(surplus, key=str)]
    pairs = [("expected", "actual")]
    for key in sorted({row.key for side in sides for row in side}):
        texts = ([str(row) for row in side if row.key == key] for side in sides)
        pairs += zip_longest(*texts, fillvalue="-")
    width = max(len(left) for left, _ in pairs)
    return [f"  {left:{width}}  {right}" for left, right in pairs]


def script(path: Path) -> ModuleType:
    """The module of a file that is in no package."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
