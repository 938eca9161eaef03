"""Contestants that do the same work in turns, against a clock, and must come to the same answer.

Owns: the order of runs, warm-ups, timing, and the comparison of answers. Knows no table format.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from benchmarks.results import Series

Answer = tuple[Any, ...]
"""What the work left behind, or read: rows and an order-independent checksum, or the values of an aggregate."""


class AnswersDifferError(AssertionError):
    """Two contestants did not come to the same answer: their times cannot be compared."""


class Contestant(Protocol):
    """One way of doing the work.

    Attributes:
        name: of its series.
        turns: how many repetitions it takes part in, warm-ups included; None for all.
    """

    name: str
    turns: int | None

    def prepare(self, repetition: int) -> None:
        """Puts its table back to where every repetition starts; not timed."""

    def run(self, repetition: int) -> None:
        """Does the work; timed."""

    def answer(self) -> Answer | None:
        """What the last run left behind or read, or None where there is nothing to compare; not timed."""


class Race:
    """Runs contestants in turns and collects what the clock said.

    Attributes:
        answers_compared: how many pairs of answers were compared, and were equal.
    """

    def __init__(self, settle: Callable[[], None], say: Callable[[str], None] = print) -> None:
        """With how to bring machine and JVM to rest before a run, and where to tell what happens."""
        self.answers_compared = 0
        self._settle = settle
        self._say = say

    def run(self, contestants: Sequence[Contestant], warm_ups: int, repetitions: int) -> list[Series]:
        """Times every contestant in every repetition, each repetition starting with another one.

        Raises:
            AnswersDifferError: two contestants disagree.
        """
        seconds: dict[str, list[float]] = {c.name: [] for c in contestants}
        for repetition in range(warm_ups + repetitions):
            taking_part = [c for c in contestants if c.turns is None or repetition < c.turns]
            answers: dict[str, Answer] = {}
            for contestant in rotated(taking_part, repetition):
                took, answer = self._turn(contestant, repetition)
                if repetition >= warm_ups:
                    seconds[contestant.name].append(took)
                if answer is not None:
                    answers[contestant.name] = answer
            self.compare(answers)
            self._say(progress(repetition - warm_ups, seconds, taking_part))
        return [Series(name, times) for name, times in seconds.items() if times]

    def _turn(self, contestant: Contestant, repetition: int) -> tuple[float, Answer | None]:
        contestant.prepare(repetition)
        self._settle()
        start = time.perf_counter()
        contestant.run(repetition)
        return time.perf_counter() - start, contestant.answer()

    def compare(self, answers: Mapping[str, Answer]) -> None:
        """Refuses answers that are not all equal.

        Raises:
            AnswersDifferError: with the answers, by contestant.
        """
        if len(set(answers.values())) > 1:
            told = "; ".join(f"{name}: {answer}" for name, answer in answers.items())
            raise AnswersDifferError(f"The contestants do not agree. {told}")
        self.answers_compared += max(0, len(answers) - 1)


def rotated(contestants: Sequence[Contestant], by: int) -> list[Contestant]:
    """The same contestants, starting with another one: nobody always runs in another's wake."""
    by = by % len(contestants) if contestants else 0
    return [*contestants[by:], *contestants[:by]]


def progress(repetition: int, seconds: Mapping[str, Sequence[float]], contestants: Sequence[Contestant]) -> str:
    """One line about a repetition that has just ended."""
    if repetition < 0:
        return "    warm-up"
    times = ", ".join(f"{c.name} {seconds[c.name][-1]:.2f} s" for c in contestants if seconds[c.name])
    return f"    {repetition + 1}: {times}"


def settle_disk() -> None:
    """Lets what others have written reach the disk, so that no run waits for another's pages."""
    os.sync()
