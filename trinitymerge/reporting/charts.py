"""Charts as SVG: pure functions from numbers to a figure with its numbers in a table below."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import attrs

from trinitymerge.reporting.page import Html, folded, joined, table, tag
from trinitymerge.reporting.scales import MOST_TICKS, Axis, number_axis, time_axis, version_axis

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 30
_CHARACTER = 7.2
"""The width of a character, digits and capitals included."""

COLORS = ("blue", "orange", "green", "purple", "sky", "red", "gray")
"""Names of the style's colors, in the order in which charts use them: after Okabe and Ito, distinct for color-blind readers."""
_PLAIN = ("#0072b2", "#b85c00", "#00795a", "#a0457d", "#2a7fb8", "#b3261e", "#6b6b6b")
"""The same, where the style is not loaded."""


@attrs.frozen
class Point:
    """One mark of a chart, at milliseconds since the epoch; ``kind`` decides color and shape, and a pointer shows the ``note``."""

    x: float
    y: float
    kind: str
    note: str = ""


@attrs.frozen
class Bar:
    """A part of a bar: ``kind`` is its name in the legend, and a pointer shows the ``note``."""

    kind: str
    value: float
    note: str = ""


def timeline(title: str, points: Sequence[Point], show: str = "short") -> Html:
    """Return stems over time: a line from the axis to each point, with a shape by kind."""
    kinds, xs = list(dict.fromkeys(p.kind for p in points)), [int(p.x) for p in points]
    up = number_axis([p.y for p in points], HEIGHT - _BOTTOM, _TOP, show)
    across = time_axis(min(xs), max(xs), _left(up) + 8, WIDTH - _RIGHT - 8)
    marks = []
    for point in points:
        x, y, look = across.at(point.x), up.at(point.y), kinds.index(point.kind)
        stem = f'<path d="M{x:.1f} {up.start}V{y:.1f}" stroke="var(--{_color(look)})" stroke-width="1.5"/>'
        marks.append(Html(f"<g>{tag('title', point.note)}{stem if point.y else ''}{_shape(look, x, y)}</g>"))
    lines = [(p.note or f"{p.x:g}", p.kind, f"{p.y:,.6g}") for p in points]
    numbers = table(("what", "kind", "value"), lines, (2,))
    return _figure(title, _grid(across, up) + joined(marks), kinds, numbers)


def areas(title: str, versions: Sequence[int], series: Sequence[tuple[str, Sequence[float]]]) -> Html:
    """Return stacked areas over versions, as steps: each value holds until the next version. The first series is the lowest."""
    totals = [sum(values) for values in zip(*(values for _, values in series), strict=True)]
    up = number_axis(totals, HEIGHT - _BOTTOM, _TOP)
    across = version_axis(versions[0], versions[-1], _left(up), WIDTH - _RIGHT)
    below, shapes = [0.0] * len(versions), []
    for number, (_, values) in enumerate(series):
        above = [b + v for b, v in zip(below, values, strict=True)]
        shapes.append(Html(f'<path d="{_steps(across, up, versions, below, above)}" fill="var(--{_color(number)})"/>'))
        below = above
    rows = [(f"{v:,}", *(f"{s[i]:,.6g}" for _, s in series)) for i, v in enumerate(versions)]
    numbers = table(("version", *(name for name, _ in series)), rows, range(len(series) + 1))
    return _figure(title, _grid(across, up) + joined(shapes), [name for name, _ in series], numbers)


def bars(title: str, rows: Sequence[tuple[str, Sequence[Bar]]], show: str = "short") -> Html:
    """Return horizontal bars of several parts (from the left), one below the other."""
    kinds = list(dict.fromkeys(part.kind for _, parts in rows for part in parts))
    height, left = 34 * len(rows) + _TOP + _BOTTOM, 110
    axis = number_axis([sum(p.value for p in parts) for _, parts in rows], left, WIDTH - _RIGHT - 20, show)
    shapes = [_vertical_grid(axis, height - _BOTTOM)]
    for number, (name, parts) in enumerate(rows):
        y, begin = _TOP + 34 * number + 6, 0.0
        shapes.append(tag("text", name, x=left - 8, y=y + 15, text_anchor="end"))
        for part in parts:
            x, end = axis.at(begin), axis.at(begin + part.value)
            color = _color(kinds.index(part.kind))
            box = f'<rect x="{x:.1f}" y="{y}" width="{max(end - x, 0):.1f}" height="22" fill="var(--{color})"/>'
            shapes.append(Html(f"<g>{tag('title', part.note or part.kind)}{box}</g>"))
            begin += part.value
    lines = [(name, part.kind, f"{part.value:,.6g}") for name, parts in rows for part in parts]
    return _figure(title, joined(shapes), kinds, table(("bar", "part", "value"), lines, (2,)), height)


def ranges(title: str, spans: Sequence[tuple[int, float, float, str]], texts: Axis) -> Html:
    """Return a vertical line for each span (version, low, high, note), over versions: where lines overlap, rows came late."""
    across = version_axis(spans[0][0], spans[-1][0], _left(texts), WIDTH - _RIGHT)
    marks = []
    for version, low, high, note in spans:
        x, bottom, top = across.at(version), texts.at(low), texts.at(high)
        line = f'<path d="M{x:.1f} {bottom + 2:.1f}V{top - 2:.1f}" stroke="var(--blue)" stroke-width="4"/>'
        marks.append(Html(f"<g>{tag('title', note)}{line}</g>"))
    numbers = table(("version", "watermarks"), [(f"{version:,}", note) for version, _, _, note in spans], (0,))
    return _figure(title, _grid(across, texts) + joined(marks), [], numbers)


def sparkline(values: Sequence[float], title: str) -> Html:
    """Return a small line without axes, for a cell or a line of text."""
    width, height = 120, 24
    up = number_axis(values, height - 2, 2)
    step = (width - 4) / max(len(values) - 1, 1)
    points = " ".join(f"{2 + i * step:.1f},{up.at(v):.1f}" for i, v in enumerate(values))
    line = f'<polyline points="{points}" fill="none" stroke="{_PLAIN[0]}" stroke-width="1.5"/>'
    label = tag("title", title)
    return Html(
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}" style="min-width:0">{label}{line}</svg>'
    )


def strip(parts: Sequence[Bar]) -> Html:
    """Return a small bar of parts, without axes, for a notebook; a pointer shows the name and value of each."""
    width, begin, shapes = 360, 0.0, []
    unit = width / (sum(part.value for part in parts) or 1)
    for part, color in zip(parts, itertools.cycle(_PLAIN)):
        box = f'<rect x="{begin:.1f}" y="0" width="{part.value * unit:.1f}" height="14" fill="{color}"/>'
        shapes.append(Html(f"<g>{tag('title', part.note or part.kind)}{box}</g>"))
        begin += part.value * unit
    label = tag("title", ", ".join(part.note or part.kind for part in parts))
    return Html(f'<svg role="img" viewBox="0 0 {width} 14" width="{width}" height="14">{label}{joined(shapes)}</svg>')


def value_axis(values: Sequence[float], is_time: bool) -> Axis:
    """Return a vertical axis for :func:`ranges`: of numbers, or of milliseconds since the epoch."""
    bottom, top = HEIGHT - _BOTTOM, _TOP
    if is_time:
        axis = time_axis(int(min(values)), int(max(values)), bottom, top)
        return attrs.evolve(axis, start=bottom, end=top)
    low, high = min(values), max(values)
    flat = number_axis([high - low], bottom, top)
    ticks = tuple(low + t for t in flat.ticks)
    return Axis(ticks[0], ticks[-1], bottom, top, ticks, tuple(f"{t:,.6g}" for t in ticks))


def order_axis(texts: Sequence[str]) -> Axis:
    """Return a vertical axis for :func:`ranges` of sorted texts: each has its place among all, from 0."""
    last = max(len(texts) - 1, 1)
    ticks = sorted({round(i * (len(texts) - 1) / (MOST_TICKS - 3)) for i in range(MOST_TICKS - 2)})
    same = next((i for i, (a, b) in enumerate(zip(texts[0], texts[-1], strict=False)) if a != b), 0)
    shown = tuple(shortened(texts[t], same) for t in ticks)
    return Axis(0, last, HEIGHT - _BOTTOM, _TOP, tuple(ticks), shown)


_WIDEST_TEXT = 20


def shortened(text: str, same: int) -> str:
    """Return the part of a text in which it differs from others, and at most 20 characters.

    Example:
        >>> shortened("0001/00ff", 0), shortened("0001/0000000000000000/00000000000000ff", 33)
        ('0001/00ff', '…000ff')
    """
    if len(text) <= _WIDEST_TEXT:
        return text
    rest = text[same:]
    return f"…{rest}" if len(rest) < _WIDEST_TEXT else f"{'…' if same else ''}{rest[: _WIDEST_TEXT - 2]}…"


def _left(up: Axis) -> int:
    """Return where a chart begins, so that the texts of its vertical axis have room."""
    return max(_LEFT, 12 + math.ceil(_CHARACTER * max(map(len, up.texts))))


def _steps(across: Axis, up: Axis, versions: Sequence[int], below: Sequence[float], above: Sequence[float]) -> str:
    edges = [across.at(v - 0.5) for v in versions] + [across.at(versions[-1] + 0.5)]
    top = "".join(f"L{edges[i]:.1f} {up.at(y):.1f}H{edges[i + 1]:.1f}" for i, y in enumerate(above))
    bottom = "".join(f"L{edges[i + 1]:.1f} {up.at(y):.1f}H{edges[i]:.1f}" for i, y in reversed(list(enumerate(below))))
    return f"M{edges[0]:.1f} {up.at(above[0]):.1f}{top}{bottom}Z"


def _grid(across: Axis, up: Axis) -> Html:
    left = _left(up)
    lines = [
        Html(f'<path class="grid" d="M{left} {up.at(t):.1f}H{WIDTH - _RIGHT}"/>')
        + tag("text", text, class_="soft", x=left - 6, y=f"{up.at(t) + 4:.1f}", text_anchor="end")
        for t, text in zip(up.ticks, up.texts, strict=True)
    ]
    texts = [
        tag("text", text, class_="soft", x=f"{across.at(t):.1f}", y=HEIGHT - 10, text_anchor="middle")
        for t, text in zip(across.ticks, across.texts, strict=True)
    ]
    return joined(map(Html, [*lines, *texts]))


def _vertical_grid(axis: Axis, bottom: float) -> Html:
    return joined(
        Html(
            f'<path class="grid" d="M{axis.at(t):.1f} {_TOP}V{bottom}"/>'
            + tag("text", text, class_="soft", x=f"{axis.at(t):.1f}", y=bottom + 18, text_anchor="middle")
        )
        for t, text in zip(axis.ticks, axis.texts, strict=True)
    )


def _shape(look: int, x: float, y: float) -> Html:
    """Return a mark: circle, square, triangle or diamond, by its number."""
    fill = f'fill="var(--{_color(look)})"'
    if look % 4 == 0:
        return Html(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {fill}/>')
    path = {1: "m-4 -4h8v8h-8z", 2: "m0 -5l5 9h-10z", 3: "m0 -5l5 5l-5 5l-5 -5z"}[look % 4]
    return Html(f'<path d="M{x:.1f} {y:.1f}{path}" {fill}/>')


def _color(look: int) -> str:
    return COLORS[look % len(COLORS)]


def _legend(kinds: Sequence[str]) -> Html:
    if len(kinds) < 2:
        return Html("")
    look = {"class_": "key", "viewBox": "0 0 12 12", "aria_hidden": "true"}
    entries = (joined([tag("svg", _shape(i, 6, 6), **look), " ", kind]) for i, kind in enumerate(kinds))
    return tag("p", joined(tag("span", entry) for entry in entries), class_="soft legend")


def _figure(title: str, drawing: str, kinds: Sequence[str], numbers: Html, height: float = HEIGHT) -> Html:
    what = f"{title}." + (f" Kinds: {', '.join(kinds)}." if kinds else "")
    inside = joined([tag("title", title), tag("desc", f"{what} The numbers are in the table below."), Html(drawing)])
    svg = tag("svg", inside, role="img", viewBox=f"0 0 {WIDTH} {height:g}", xmlns="http://www.w3.org/2000/svg")
    scroll = tag("div", svg, class_="scroll", tabindex="0", role="group", aria_label=title)
    return tag("figure", joined([tag("figcaption", title), scroll, _legend(kinds), folded("Numbers", numbers)]))
