"""Charts are pure functions of numbers: drawn to scale, each with its numbers in a table, nothing unescaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from trinitymerge.reporting import charts
from trinitymerge.reporting.charts import Bar, Point
from trinitymerge.reporting.page import Html, facts, table, tag
from trinitymerge.reporting.scales import MOST_TICKS, number_axis, time_axis, version_axis

DAY = 86_400_000


@pytest.mark.parametrize("highest", [0, 1, 3, 9.5, 10, 11, 999, 12_345, 7_000_000, 0.03])
def test_axes_have_few_round_ticks_that_cover_the_values(highest):
    axis = number_axis([highest], 0, 100)
    assert 2 <= len(axis.ticks) <= MOST_TICKS
    assert axis.ticks[0] == 0
    assert axis.ticks[-1] >= highest
    assert all(re.match(r"^[125]?0*\.?0*[125]?", f"{axis.ticks[1]:f}") for _ in axis.ticks)
    assert (axis.at(0), axis.at(axis.high)) == (0, 100)


@pytest.mark.parametrize("span", [0, 900, 90_000, 3_600_000, DAY, 40 * DAY, 4000 * DAY])
def test_time_axes_have_few_ticks_within_their_span(span):
    start = 1_700_000_000_123
    axis = time_axis(start, start + span, 0, 100)
    assert 1 <= len(axis.ticks) <= MOST_TICKS
    assert len(set(axis.texts)) == len(axis.texts)
    assert all(axis.low <= t <= axis.high for t in axis.ticks)


def test_version_axes_have_whole_numbers():
    assert version_axis(3, 3, 0, 1).ticks == (3,)
    assert version_axis(0, 10_000, 0, 1).ticks == (0, 2000, 4000, 6000, 8000, 10_000)


def test_a_timeline_is_drawn_to_scale_with_a_shape_for_each_kind():
    found = charts.timeline(
        "Rows", [Point(0, 10, "MERGE", "a"), Point(DAY, 5, "COMPACT", "b"), Point(DAY, 0, "ALTER", "c")]
    )
    tall, short = (float(re.search(rf"<title>{n}</title><path d=\"M[\d.]+ [\d.]+V([\d.]+)", found)[1]) for n in "ab")
    ground = charts.HEIGHT - 30
    assert ground - tall == pytest.approx(2 * (ground - short), abs=0.2)
    assert found.count("<circle") == 2, "in the chart and in the legend"
    assert "<td>c</td><td>ALTER</td>" in found


def test_bars_are_as_long_as_their_values():
    found = charts.bars("Rows", [("all", [Bar("base", 30), Bar("pending", 10)])])
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', found)]
    assert widths[0] == pytest.approx(3 * widths[1], abs=0.2)


def test_areas_stack():
    found = charts.areas("Rows", [0, 1, 2], [("base", [0, 10, 10]), ("pending", [0, 0, 5])])
    assert found.count('<path d="M') >= 2
    assert '<td class="number">15' not in found
    assert '<td class="number">10</td><td class="number">5</td>' in found


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "a & b", 'say "x"', "\u202e right to left", "x" * 300])
def test_texts_are_escaped(text):
    for found in (
        charts.timeline(text, [Point(0, 1, text, text)]),
        charts.bars(text, [(text, [Bar(text, 1, text)])]),
        table([text], [[text]]),
        facts([(text, text)]),
        tag("p", text, title=text),
    ):
        assert "<script" not in found
        assert not re.search(r"&(?!\w+;|#\w+;)", found)


def test_charts_say_what_they_show_to_those_who_cannot_see_them():
    found = charts.bars("Rows of this version", [("all", [Bar("base", 30)])])
    assert 'role="img"' in found
    assert "<title>Rows of this version</title><desc>" in found
    assert "<details><summary>Numbers</summary>" in found


def test_html_is_not_escaped_twice():
    assert tag("p", tag("b", "a < b")) == "<p><b>a &lt; b</b></p>"
    assert isinstance(tag("p", "x"), Html)


def test_a_strip_has_a_part_for_each_phase_and_escapes_names():
    svg = charts.strip([Bar("read", 1.0, "read 1.00 s"), Bar("<b>", 3.0)])
    assert [e.get("width") for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("rect")] == ["90.0", "270.0"]
    assert "<title>read 1.00 s, &lt;b&gt;</title>" in svg
    assert "rect" not in charts.strip([])
