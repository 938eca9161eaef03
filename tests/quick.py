"""What `make test` runs: of every test that uses Spark one case, and none that takes seconds (`pytest --quick`).

And every case by which a mutant is noticed (`mutants.py`), so that all of them are: `python tests/mutants.py --quick`. Continuous
integration runs all tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import pytest
from mutants import MUTANTS

NOTICE = frozenset(test for mutant in MUTANTS for test in mutant.tests)
"""The tests that mutants name: of some a case."""

ELSEWHERE = ("slow", "long", "cluster", "iceberg")
"""What is run by other targets, each case by itself."""


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests."""
    chosen = _chosen(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _chosen(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(map(item.get_closest_marker, ELSEWHERE)):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    return {item for some in cases.values() for item in (_one_of(some) if _costs(some[0]) else some)}


def _one_of(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Those that a mutant names, or any one, but always the same: not the first, for it is often the plainest."""
    named = [case for case in cases if f"{case.path.name}::{case.name}" in NOTICE]
    return named or [min(cases, key=lambda case: crc32(case.name.encode()))]


def _costs(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_simulation.py"
