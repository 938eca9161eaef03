"""What a section measured, as plain data that survives a trip through JSON.

Owns: series of seconds, the comparisons a section is judged by, and their files. Knows no Spark and no peers.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

TIMES = "\N{MULTIPLICATION SIGN}"


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Series:
    """Repetitions of one piece of work, in the order they ran, warm-ups left out.

    Example:
        >>> Series("ours", [0.3, 0.1, 0.2]).median
        0.2
    """

    name: str
    seconds: tuple[float, ...] = attrs.field(converter=tuple)

    @seconds.validator
    def _not_empty(self, _: Any, value: tuple[float, ...]) -> None:
        if not value:
            raise ValueError(f"The series {self.name!r} has no repetition.")

    @property
    def median(self) -> float:
        """The middle repetition, in seconds."""
        return statistics.median(self.seconds)

    @property
    def low(self) -> float:
        """The fastest repetition, in seconds."""
        return min(self.seconds)

    @property
    def high(self) -> float:
        """The slowest repetition, in seconds."""
        return max(self.seconds)


@attrs.frozen
class Faster:
    """Ours must be at least `bound` times as fast as the peer: the ratio is the peer's time over ours."""

    bound: float

    def ratio(self, ours: float, peer: float) -> float:
        """How many times faster ours is."""
        return peer / ours

    def holds(self, ratio: float) -> bool:
        """Is the bar met."""
        return ratio >= self.bound

    def __str__(self) -> str:
        return f"≥ {self.bound:g}{TIMES} faster"


@attrs.frozen
class AtMost:
    """Ours may take at most `bound` times what the peer takes: the ratio is our time over the peer's."""

    bound: float

    def ratio(self, ours: float, peer: float) -> float:
        """How many times longer ours takes."""
        return ours / peer

    def holds(self, ratio: float) -> bool:
        """Is the bar met."""
        return ratio <= self.bound

    def __str__(self) -> str:
        return f"≤ {self.bound:g}{TIMES}"


Bar = Faster | AtMost

_BARS = {"faster": Faster, "at most": AtMost}


@attrs.frozen
class Comparison:
    """Two series of a section and the bar between them.

    Attributes:
        work: what is compared, in words.
        ours: name of our series.
        peer: name of the series it is held against; may be ours as well, at another size.
        bar: what must hold between their medians.
    """

    work: str
    ours: str
    peer: str
    bar: Bar


@attrs.frozen
class Verdict:
    """A comparison with its numbers.

    Attributes:
        ratio: of the medians, or None where a series is missing.
        passed: False also where a series is missing: what was not measured has not met its bar.
    """

    comparison: Comparison
    ours: Series | None
    peer: Series | None
    ratio: float | None
    passed: bool


Point = tuple[float, float, float, float]
"""Of a chart: x, median, low, high."""

Points = tuple[Point, ...]


@attrs.frozen
class Chart:
    """Lines over a number, for a chart: `lines` maps a name to its points."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Points] = attrs.field(
        converter=lambda lines: {name: tuple(tuple(p) for p in points) for name, points in lines.items()}
    )


@attrs.frozen
class Result:
    """One section's outcome.

    Attributes:
        section: `P1` to `P11`.
        title: the work, in one line.
        size: `quick` or `full`.
        series: what was measured.
        comparisons: what is judged.
        notes: how it was measured; what a reader must know to trust or doubt it.
        answers_compared: how many times the rows of two contestants were compared, and were equal.
        chart: lines over table size or batches, where the section has them.
        error: why the section broke off, or an empty string.
        context: machine, versions and command of the run.
    """

    section: str
    title: str
    size: str
    series: tuple[Series, ...] = attrs.field(default=(), converter=tuple)
    comparisons: tuple[Comparison, ...] = attrs.field(default=(), converter=tuple)
    notes: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    answers_compared: int = 0
    chart: Chart | None = None
    error: str = ""
    context: Mapping[str, Any] = attrs.field(factory=dict)

    def verdicts(self) -> list[Verdict]:
        """Every comparison, judged."""
        named = {s.name: s for s in self.series}
        found = []
        for comparison in self.comparisons:
            ours, peer = named.get(comparison.ours), named.get(comparison.peer)
            ratio = None if ours is None or peer is None else comparison.bar.ratio(ours.median, peer.median)
            passed = ratio is not None and comparison.bar.holds(ratio) and not self.error
            found.append(Verdict(comparison, ours, peer, ratio, passed))
        return found

    def to_json(self) -> str:
        """The text of the section's file."""
        shown = attrs.asdict(self)
        for comparison, bar in zip(shown["comparisons"], (c.bar for c in self.comparisons), strict=True):
            comparison["bar"] = [next(n for n, kind in _BARS.items() if isinstance(bar, kind)), bar.bound]
        return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """What :meth:`to_json` wrote."""
        stored = json.loads(text)
        stored["series"] = [Series(**s) for s in stored["series"]]
        for comparison in stored["comparisons"]:
            kind, bound = comparison["bar"]
            comparison["bar"] = _BARS[kind](bound)
        stored["comparisons"] = [Comparison(**c) for c in stored["comparisons"]]
        stored["chart"] = stored["chart"] and Chart(**stored["chart"])
        return cls(**stored)


def save(result: Result, directory: Path) -> Path:
    """Writes a section's file, in place of that of an earlier run."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.section}.json"
    path.write_text(result.to_json(), "utf-8")
    return path


def load(directory: Path) -> list[Result]:
    """The sections measured so far, in order."""
    return [
        Result.from_json(path.read_text("utf-8"))
        for path in sorted(directory.glob("P*.json"), key=lambda p: (int(re.sub("[^0-9]", "", p.stem)), p.stem))
    ]
