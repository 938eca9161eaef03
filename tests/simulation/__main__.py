"""Goes on exploring for as long as it is told: ``make simulate`` (``ARGS="--seconds 3600"``).

Scenarios are explored whole first, with one more thing that may go wrong than ``make test-all`` lets; then at random, larger ones,
until the time is up. Prints what it has seen. A schedule that breaks a promise is printed, with the seed that leads to it again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

import attrs

from simulation.bugs import BUGS, Bug
from simulation.explorer import Explorer
from simulation.scenarios import LARGE, SMALL
from simulation.states import Failed, Found, Scenario
from simulation.table import without_spark

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- protocol bugs: begin -->", "<!-- protocol bugs: end -->"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on")
    parser.add_argument("--only", default="", help="words of the names of scenarios")
    parser.add_argument(
        "--seed", type=int, default=None, help="one random walk again, of the scenarios that --only names"
    )
    parser.add_argument("--bugs", action="store_true", help="look for the bugs of bugs.py, and write their table")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    end = time.perf_counter() + options.seconds
    with without_spark():
        if options.bugs:
            return _write(list(map(_hunted, BUGS)))
        try:
            if options.seed is None:
                _whole([s for s in SMALL if options.only in s.name], end)
            _random([s for s in LARGE if options.only in s.name], end, options.seed)
        except Failed as failed:
            print(failed)
            return 1
    return 0


def _hunted(bug: Bug) -> tuple[str, str, str, str]:
    """A bug's line of the table."""
    start = time.perf_counter()
    try:
        with bug.present():
            Explorer(bug.found_in()).explore()
    except Failed as failed:
        wrong = f"{len(failed.actions)} steps, {time.perf_counter() - start:.1f} s"
        line = (bug.name, bug.found_in().name, failed.promise, wrong)
    else:
        line = (bug.name, bug.found_in().name, "**nothing**", "")
    print(" | ".join(line), flush=True)
    return line


def _write(lines: list[tuple[str, str, str, str]]) -> int:
    """Writes the table of bugs into ``tests/README.md``."""
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    before, rest = README.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    head = "| the bug | found among | the promise it breaks | shortest schedule found, and after |\n|---|---|---|---|"
    README.write_text(f"{before}{BEGIN}\n\n{head}\n{rows}\n\n{END}{after}", "utf-8")
    return int(any("**nothing**" in line for line in lines))


def _whole(scenarios: list[Scenario], end: float) -> None:
    """Each with its bounds, and then with one more kill, in shares of the time that is left."""
    wider = [attrs.evolve(s, name=f"{s.name}, one more dies", kills=s.kills + 1) for s in scenarios]
    todo = [*scenarios, *wider]
    for n, scenario in enumerate(todo):
        share = max(1.0, (end - time.perf_counter()) / 2 / (len(todo) - n))
        print(told(scenario, Explorer(scenario).explore(most_states=3_000_000, seconds=share)), flush=True)


def _random(scenarios: list[Scenario], end: float, seed: int | None) -> None:
    walks = steps = 0
    start = seed if seed is not None else time.time_ns() % 1_000_000_000
    while scenarios and (seed is None or not walks) and time.perf_counter() < end:
        for scenario in scenarios:
            try:
                steps += Explorer(scenario).walk(start + walks)
            except Failed as failed:
                raise Failed(failed.promise, failed.actions, f"seed {start + walks}: {failed}") from None
        walks += 1
    print(f"{walks * len(scenarios):,} random schedules of {steps:,} steps, from seed {start}")


def told(scenario: Scenario, found: Found) -> str:
    """One line about what was explored."""
    how = "whole" if found.is_complete else "as far as there was time"
    return (
        f"{scenario.name}: {found.states:,} states, {found.steps:,} steps, {found.schedules:.3g} schedules, {how}, "
        f"{found.seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
