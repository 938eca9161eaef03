"""What `make test` runs: of every test that uses Spark one case, and none that takes seconds (`pytest --quick`).

And every case by which a mutant is noticed (`mutants.py`), so that all of them are: `python tests/mutants.py --quick`.

Continuous integration runs this first, and then as much of the rest as its time allows (`pytest --rest --seconds 1800`). With a
limit, the files take turns, by commit: a slow machine leaves out others for the next commit, and a fast one runs all for each.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from mutants import MUTANTS

TESTS = Path(__file__).parent

NOTICE = frozenset(test for mutant in MUTANTS for test in mutant.tests)
"""The tests that mutants name: of some a case."""

ELSEWHERE = ("slow", "long", "cluster", "iceberg")
"""What is run by other targets, each case by itself."""


_STARTED = time.monotonic()


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests, or the others."""
    chosen = _chosen(items)
    if config.getoption("--check"):
        chosen = {item for item in chosen if not _costs(item) or _case(item) in _witnesses()}
    if config.getoption("--rest"):
        chosen = set(items) - chosen
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


@cache
def _witnesses() -> frozenset[str]:
    """Return the tests that notice the mutants in what has changed."""
    changed = _changed()
    return frozenset(t for m in MUTANTS if _folder(f"trinitymerge/{m.file}") in changed for t in m.tests)


def _changed() -> set[str]:
    """Return the folders, and the modules beside them, that differ from the main branch, or else from the commit before."""
    for base in ("origin/main", "HEAD~1"):
        asked = ["git", "diff", "--name-only", base, "--", "trinitymerge"]
        found = subprocess.run(asked, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
        if found.stdout:
            return {_folder(name) for name in found.stdout.split()}
    return set()


def _folder(name: str) -> str:
    """Return ``trinitymerge/merge`` for a module of it, and the name of a module beside the folders."""
    parts = name.split("/")
    return "/".join(parts[:2])


def _case(item: pytest.Item) -> str:
    """Return a case as mutants name it."""
    return f"{item.path.relative_to(TESTS).as_posix()}::{item.name}"


def take_turns(items: list[pytest.Item]) -> None:
    """Order the files for a run that may be cut short: those without Spark, which are quick, and then the others by commit."""
    slow = {item.path for item in items if _costs(item)}
    items.sort(key=lambda item: (item.path in slow, crc32(f"{_commit()} {item.path.name}".encode())))


@cache
def _commit() -> str:
    asked = ["git", "rev-parse", "HEAD"]
    return subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout


def skip_if_late(config: pytest.Config) -> None:
    """Skip a test that would start after the time limit."""
    seconds = config.getoption("--seconds")
    if seconds is not None and time.monotonic() - _STARTED > seconds:
        pytest.skip("no time is left")


def _chosen(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(map(item.get_closest_marker, ELSEWHERE)):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    return {item for some in cases.values() for item in (_one_of(some) if _costs(some[0]) else some)}


def _one_of(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Those that a mutant names, or any one, but always the same: not the first, for it is often the plainest."""
    named = [case for case in cases if _case(case) in NOTICE]
    return named or [min(cases, key=lambda case: crc32(case.name.encode()))]


def _costs(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_simulation.py"
