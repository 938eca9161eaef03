"""Which tests a lane runs (`pytest --lane check`, `test` or `commit`; all without): each lane contains the one before it.

- `check` (`make check`): what needs no Spark, and the witnesses of the mutants in the folders that have changed.
- `test` (`make test`): what needs no Spark, the witnesses of all mutants (`mutants.py`), and a case of each `program`.
- `commit` (`.ci/run`): also the tests of changed folders and files, but no more than a sixteenth of all, and one in sixteen of the
  others. The commit chooses them, so that the next commit runs others. With `--remote` or `--iceberg`: one in three of those.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from mutants import MUTANTS

TESTS = Path(__file__).parent
LANES = ("check", "test", "commit")
COMMANDS = {"check": "make test", "test": "make test-all", "commit": "make test-all"}
"""The command that also runs what a lane leaves out."""

WITNESSES = frozenset(test for mutant in MUTANTS for test in mutant.tests)
"""The tests that mutants name: of some a case."""

ELSEWHERE = ("long", "cluster", "iceberg")
"""What no lane runs."""

ONE_IN = 16
"""Of the tests that a commit does not change, one in so many runs; of those that it changes, no more than this share of all."""

ONE_ELSEWHERE_IN = 3
"""Spark Connect and Iceberg: one test in so many runs, and each test in a file that has changed."""


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the lane."""
    lane = config.getoption("--lane")
    candidates = [item for item in items if not any(map(item.get_closest_marker, ELSEWHERE))]
    quick = [item for item in candidates if item.get_closest_marker("slow") is None]
    chosen = [item for item in quick if not _uses_spark(item)]
    chosen += _witnesses(quick, _witnesses_of_changes() if lane == "check" else WITNESSES)
    if lane != "check":
        chosen += _programs(quick, chosen)
    kept = set(chosen)
    if lane == "commit":
        kept.update(_of_commit([item for item in candidates if item not in kept]))
    _keep(kept, config, items)


def select_elsewhere(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share of the tests on Spark Connect or Iceberg that the commit chooses."""
    hash_of = _by(lambda item: f"{_commit()} {item.nodeid}")
    kept = {item for item in items if _relative(item.path) in _changed() or hash_of(item) % ONE_ELSEWHERE_IN == 0}
    _keep(kept, config, items)


def lost(items: Iterable[pytest.Item]) -> list[str]:
    """Return the tests that mutants name and that are missing or slow, given all tests or those of a lane."""
    cases = {case_of(item) for item in items if not any(map(item.get_closest_marker, (*ELSEWHERE, "slow")))}
    return sorted(WITNESSES - cases - {case.split("[")[0] for case in cases})


def _keep(kept: set[pytest.Item], config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def case_of(item: pytest.Item) -> str:
    """Return a case as mutants name it."""
    return f"{item.path.relative_to(TESTS).as_posix()}::{item.name}"


def _witnesses(items: Iterable[pytest.Item], named: frozenset[str]) -> list[pytest.Item]:
    """Return the named cases, and one case of a test that is named without its case."""
    several = {item for item in items if case_of(item).split("[")[0] in named}
    return [item for item in items if case_of(item) in named] + _one_of_each(several)


def _programs(items: Iterable[pytest.Item], chosen: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return a case of each program of which none is chosen yet."""
    known = set(map(_test_of, chosen))
    return _one_of_each(item for item in items if item.get_closest_marker("program") and _test_of(item) not in known)


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]


def _one_of_each(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return one case of each test, always the same: not the first, for it is often the plainest."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(_test_of(item), []).append(item)
    return [min(some, key=_by(lambda item: item.name)) for some in cases.values()]


def _of_commit(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of what has changed, but no more than a share of all tests, and a share of the others."""
    changed = _changed()
    touched = {item for item in items if _subjects(item) & changed}
    share = -(-len(touched) * ONE_IN // len(items)) if touched else 1
    hash_of = _by(lambda item: f"{_commit()} {item.nodeid}")
    return [item for item in items if hash_of(item) % (share if item in touched else ONE_IN) == 0]


def _by(text: Callable[[pytest.Item], str]) -> Callable[[pytest.Item], int]:
    return lambda item: crc32(text(item).encode())


def _subjects(item: pytest.Item) -> set[str]:
    """Return what a test is about: its file, and the folder or module of the package that its place names."""
    place = item.path.relative_to(TESTS)
    about = place.parts[0] if len(place.parts) > 1 else place.name.removeprefix("test_")
    page = getattr(item, "callspec", None) and item.callspec.params.get("path")
    return {
        f"tests/{place.as_posix()}",
        f"trinitymerge/{about}",
        *([_relative(page)] if isinstance(page, Path) else []),
    }


def _relative(page: Path) -> str:
    return page.relative_to(TESTS.parent).as_posix()


def _witnesses_of_changes() -> frozenset[str]:
    changed = _changed()
    return frozenset(t for m in MUTANTS if _folder(f"trinitymerge/{m.file}") in changed for t in m.tests)


@cache
def _changed() -> frozenset[str]:
    """Return what differs from the main branch, or else from the commit before: the package's folders, and other files."""
    for base in ("origin/main", "HEAD~1"):
        names = _git("diff", "--name-only", base).split()
        if names:
            return frozenset(map(_folder, names))
    return frozenset()


def _folder(name: str) -> str:
    """Return ``trinitymerge/merge`` for a module of it, and the name itself of any other file."""
    return "/".join(name.split("/")[:2]) if name.startswith("trinitymerge/") else name


@cache
def _commit() -> str:
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=TESTS.parent, capture_output=True, text=True, check=False).stdout


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_simulation.py"
