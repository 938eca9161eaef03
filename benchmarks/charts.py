"""The charts beside the report, as SVG."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot

from benchmarks.report import CHART_FILES
from benchmarks.results import Chart, Result

_COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#6d597a")


def draw(results: list[Result], directory: Path) -> list[Path]:
    """Draws the chart of every section that has one."""
    drawn = []
    for result in results:
        if result.chart is not None and result.section in CHART_FILES:
            path = directory / CHART_FILES[result.section]
            _draw(result.chart, path)
            drawn.append(path)
    return drawn


def _draw(chart: Chart, path: Path) -> None:
    """One line with its spread per contestant; equal data gives an equal file."""
    with pyplot.rc_context({"svg.hashsalt": chart.title, "font.size": 10, "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(7, 4))
        for (name, points), colour in zip(chart.lines.items(), _COLOURS, strict=False):
            x, median, low, high = zip(*sorted(points), strict=True)
            axes.plot(x, median, marker="o", color=colour, label=name)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if len(chart.lines) > 1:
            axes.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
