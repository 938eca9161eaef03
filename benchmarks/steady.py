"""A table that is merged into again and again, read now and then, and looked after (P9).

Owns: the order of that work, and the time of each part. Knows no table format. A repetition of the race is one stretch of
that work: some merges, whatever maintenance is due, and a full read. So contestants take turns all along, and what the
machine does meanwhile meets them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import attrs
from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.race import Answer


class SteadyTable(Protocol):
    """What is merged into."""

    def reset(self) -> None:
        """Back to the rows as loaded."""

    def merge(self, changes: Path) -> None:
        """Merges a file of changes."""

    def rows(self) -> DataFrame:
        """The live rows."""


@attrs.define(eq=False)
class Steady:
    """One table's share of the work; repetition 0 warms up, with the first files, on a table that is then reset.

    Attributes:
        table: that is merged into.
        stretches: the files of each repetition after the warm-up.
        upkeep: what is called when it is due.
        every: merges after which it is; None for never.
        merges, upkeeps, reads: seconds of each, warm-up left out.
    """

    name: str
    table: SteadyTable
    stretches: Sequence[Sequence[Path]]
    upkeep: Callable[[], None] = attrs.field(default=lambda: None)
    every: int | None = None
    turns: int | None = None
    merges: list[float] = attrs.field(factory=list)
    upkeeps: list[float] = attrs.field(factory=list)
    reads: list[float] = attrs.field(factory=list)
    _found: Answer | None = None

    @property
    def total(self) -> float:
        """Seconds of all the work."""
        return sum([*self.merges, *self.upkeeps, *self.reads])

    def prepare(self, repetition: int) -> None:
        """Begins anew before the warm-up and after it; every other stretch goes on where the last one ended."""
        if repetition <= 1:
            self.table.reset()
            for seconds in (self.merges, self.upkeeps, self.reads):
                seconds.clear()

    def run(self, repetition: int) -> None:
        """One stretch. Upkeep comes before the read, which gains from it."""
        for file in self.stretches[max(0, repetition - 1)]:
            with _timed(self.merges):
                self.table.merge(file)
        if self.every is not None and len(self.merges) % self.every == 0:
            with _timed(self.upkeeps):
                self.upkeep()
        with _timed(self.reads):
            self._found = data.full_read(self.table.rows(), data.EVENTS)

    def answer(self) -> Answer | None:
        """What was read."""
        return self._found


@contextmanager
def _timed(seconds: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - start)
