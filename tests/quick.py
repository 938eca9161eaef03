"""What `make test` runs: of every test that uses Spark one case, and none that takes seconds (`pytest --quick`).

Continuous integration runs all. That little is missed shows in the mutants: each is noticed by what is left of the tests that it
names (`python tests/mutants.py --quick`).
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import pytest


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests."""
    chosen = _chosen(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _chosen(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    return {item for some in cases.values() for item in (_one_of(some) if _costs(some[0]) else some)}


def _one_of(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Any one, but always the same: not the first, for it is often the plainest."""
    return [min(cases, key=lambda case: crc32(case.name.encode()))]


def _costs(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_simulation.py"
