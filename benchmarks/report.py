"""`RESULTS.md`: the tables and words around what was measured.

Owns: the rendering of results to Markdown. Pure functions from data to text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.results import TIMES, Comparison, Result, Series, Verdict

CHART_FILES = {"P2": "merge-time.svg", "P7": "read-time.svg"}
"""Which sections have a chart, and the file beside the report."""

_SECTIONS = (
    "P1",
    "P2",
    "P3",
    "P4",
    "P5",
    "P5d",
    "P5h",
    "P6",
    "P6h",
    "P7",
    "P8",
    "P9",
    "P10",
    "P11",
    "P12",
    "P14",
    "P15",
)


def render(results: Sequence[Result]) -> str:
    """The whole report."""
    blocks = ["# Benchmark results", *_warnings(results), _headline(results), _runs(results)]
    blocks += [_section(result) for result in results]
    return "\n\n".join(block for block in blocks if block) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table.

    Args:
        header: the names of the columns.
        rows: their texts; a `|` inside is escaped.
        right: positions of the columns that are set flush right.
    """
    ruler = ["---:" if i in right else "---" for i in range(len(header))]
    lines = [header, ruler, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def seconds(value: float) -> str:
    """A time with as many digits as mean something."""
    return f"{value:.3f} s" if value < 1 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def times(ratio: float) -> str:
    """A ratio with as many digits as mean something."""
    return f"{ratio:.1f}{TIMES}" if ratio >= 10 else f"{ratio:.2f}{TIMES}"


# The table of bars ----------------------------------------------------------------------------------------------------


def _warnings(results: Sequence[Result]) -> list[str]:
    if results and all(r.size == "full" for r in results):
        return []
    return [
        "**Not the full size.** These figures show that the harness works; the bars are about the full size "
        "(`make bench SIZE=full`)."
    ]


def _headline(results: Sequence[Result]) -> str:
    rows = [_bar_row(result, verdict) for result in results for verdict in result.verdicts()]
    told = {row[0] for row in rows}
    broken = {r.section for r in results if r.error}
    for section in _SECTIONS:
        if section not in told:
            why = "broke off, see below" if section in broken else "not measured"
            rows.append([section, why, "", "", "", "", "**FAIL**"])
    header = ["", "work", "bar", "ours", "held against", "ratio", ""]
    return table(header, sorted(rows, key=lambda r: _SECTIONS.index(r[0])), right=(3, 5))


def _bar_row(result: Result, verdict: Verdict) -> list[str]:
    comparison = verdict.comparison
    return [
        result.section,
        comparison.work,
        str(comparison.bar),
        _told(verdict.ours, comparison.ours, comparison),
        _told(verdict.peer, comparison.peer, comparison),
        "" if verdict.ratio is None else times(verdict.ratio),
        "pass" if verdict.passed else "**FAIL**",
    ]


def _told(series: Series | None, name: str, comparison: Comparison) -> str:
    told = "not measured" if series is None else seconds(series.median)
    return told if name == comparison.ours else f"{name}: {told}"


# One section ----------------------------------------------------------------------------------------------------------


def _section(result: Result) -> str:
    blocks = [f"## {result.section}: {result.title}"]
    if result.error:
        blocks.append(f"**Broke off:** {result.error}")
    if result.series:
        header = ["", "median", "fastest", "slowest", "repetitions"]
        blocks.append(table(header, [_series_row(s) for s in result.series], right=(1, 2, 3, 4)))
    if result.chart is not None and result.section in CHART_FILES:
        blocks.append(f"![{result.chart.title}]({CHART_FILES[result.section]})")
    compared = f"Answers compared, and equal: {result.answers_compared}."
    blocks.append("\n".join(f"- {note}" for note in [*result.notes, compared]))
    return "\n\n".join(blocks)


def _series_row(series: Series) -> list[str]:
    spread = [seconds(value) for value in (series.median, series.low, series.high)]
    return [series.name, *spread, str(len(series.seconds))]


# The runs -------------------------------------------------------------------------------------------------------------


def _runs(results: Sequence[Result]) -> str:
    """Where the figures come from: sections measured together share a paragraph."""
    runs: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for result in results:
        context = {name: _text(value) for name, value in result.context.items() if name != "load average"}
        runs.setdefault(tuple(context.items()), []).append(result.section)
    loads = {r.section: r.context.get("load average") for r in results}
    blocks = []
    for context_items, sections in runs.items():
        rows = [[name, value] for name, value in context_items]
        known = [f"{s}: {loads[s]}" for s in sections if loads[s] is not None]
        if known:
            rows.append(["load average as each section began", ", ".join(known)])
        blocks.append(f"Measured in one run: {', '.join(sections)}\n\n{table(['', ''], rows)}")
    return "\n\n".join(blocks)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return f"`{value}`" if str(value).startswith("python -m") else str(value)
