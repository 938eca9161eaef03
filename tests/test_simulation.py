"""S7, S33, S35, S36, S38-S40: the commit protocol in every order of its steps, on a simulated disk; no Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from helpers import quickly
from simulation.__main__ import BEGIN, END, README
from simulation.bugs import BUGS, Bug
from simulation.explorer import Explorer
from simulation.scenarios import LARGE, SMALL
from simulation.states import Failed, Scenario
from simulation.table import without_spark


@pytest.fixture(autouse=True)
def _no_spark() -> Iterator[None]:
    logging.disable(logging.WARNING)  # a checkpoint that cannot be written is one line for each of many thousand states
    with without_spark():
        yield
    logging.disable(logging.NOTSET)


QUICK = [
    s
    for s in SMALL
    if s.name not in ("a vacuum while an hour passes", "deletion vectors beside a vacuum of earlier ones")
]
"""Those left out have the most states: `make test-long` and `make simulate` explore them."""


@pytest.mark.parametrize("scenario", quickly(SMALL, QUICK), ids=[s.name for s in SMALL])
def test_S33_S35_every_schedule_keeps_what_is_promised(
    scenario: Scenario, record_property: Callable[..., None]
) -> None:
    found = Explorer(scenario).explore()
    assert found.is_complete
    record_property("explored", [found.states, found.schedules])


@pytest.mark.parametrize("scenario", LARGE, ids=lambda s: s.name)
def test_S33_S35_random_schedules_of_many_keep_what_is_promised(
    scenario: Scenario, record_property: Callable[..., None]
) -> None:
    explorer = Explorer(scenario)
    record_property("walked", [sum(explorer.walk(seed) for seed in range(10)), 10])


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name)
def test_a_protocol_with_a_bug_breaks_a_promise(bug: Bug) -> None:
    explorer = Explorer(bug.found_in())
    with bug.present(), pytest.raises(Failed) as failed:
        explorer.explore()
    with bug.present():  # its schedule leads there again
        broken, _ = explorer.replay(failed.value.actions)
    assert broken is not None
    assert broken.promise == failed.value.promise


def test_every_protocol_bug_stands_in_the_table_and_is_found() -> None:
    page = README.read_text("utf-8").split(BEGIN)[1].split(END)[0]
    assert all(f"| {bug.name} |" in page for bug in BUGS)
    assert "**nothing**" not in page
