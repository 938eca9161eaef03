"""The harness of the benchmarks: statistics, verdicts, turns and tables. No Spark, no peers."""

from __future__ import annotations

import itertools

import attrs
import pytest

from benchmarks import race, report, results
from benchmarks.race import AnswersDifferError, Race
from benchmarks.results import AtMost, Chart, Comparison, Faster, Result, Series
from benchmarks.steady import Steady


def result(**changes):
    p1 = Result(
        "P1",
        "changes by key",
        "full",
        series=[Series("ours", [0.2, 0.1, 0.3]), Series("Iceberg", [4.0, 5.0])],
        comparisons=[Comparison("CDC", "ours", "Iceberg", Faster(15))],
        notes=["Timed: the merge."],
        answers_compared=3,
        chart=Chart("time", "rows", "seconds", {"ours": [(1, 0.2, 0.1, 0.3)]}),
        context={"command": "python -m benchmarks --size full", "versions": {"PySpark": "3.5"}, "load average": "0.1"},
    )
    return attrs.evolve(p1, **changes)


@attrs.define(eq=False)
class Sleeper:
    """A contestant that writes down what it is told to do."""

    name: str
    log: list[str]
    found: object = None
    turns: int | None = None

    def prepare(self, repetition):
        self.log.append(f"{self.name} prepares {repetition}")

    def run(self, repetition):
        self.log.append(f"{self.name} runs {repetition}")

    def answer(self):
        return self.found


def quiet_race():
    return Race(settle=lambda: None, say=lambda text: None)


# Statistics -----------------------------------------------------------------------------------------------------------


def test_a_series_tells_its_median_and_spread():
    series = Series("ours", [0.5, 0.1, 0.2, 0.4])
    assert (series.median, series.low, series.high) == pytest.approx((0.3, 0.1, 0.5))


def test_a_series_without_a_repetition_is_refused():
    with pytest.raises(ValueError, match="'ours' has no repetition"):
        Series("ours", [])


@pytest.mark.parametrize(
    ("bar", "ours", "peer", "ratio", "holds"),
    [
        (Faster(15), 0.2, 3.0, 15, True),
        (Faster(15), 0.2, 2.9, 14.5, False),
        (AtMost(1.5), 0.3, 0.2, 1.5, True),
        (AtMost(1.5), 0.4, 0.2, 2, False),
    ],
)
def test_bars_hold_ratios_of_times(bar, ours, peer, ratio, holds):
    assert bar.ratio(ours, peer) == pytest.approx(ratio)
    assert bar.holds(round(bar.ratio(ours, peer), 9)) is holds


# Verdicts -------------------------------------------------------------------------------------------------------------


def test_a_verdict_compares_medians():
    (verdict,) = result().verdicts()
    assert verdict.ratio == pytest.approx(4.5 / 0.2)
    assert verdict.passed


def test_what_was_not_measured_has_failed():
    (verdict,) = result(series=[Series("ours", [0.1])]).verdicts()
    assert (verdict.ratio, verdict.passed) == (None, False)


def test_a_section_that_broke_off_has_failed():
    (verdict,) = result(error="AnswersDifferError: they differ").verdicts()
    assert not verdict.passed


def test_results_survive_their_files(tmp_path):
    results.save(result(section="P2"), tmp_path)
    results.save(result(), tmp_path)
    assert results.load(tmp_path) == [result(), result(section="P2")]


# Races ----------------------------------------------------------------------------------------------------------------


def test_contestants_take_turns_and_warm_ups_are_thrown_away():
    log = []
    series = quiet_race().run([Sleeper("a", log), Sleeper("b", log)], warm_ups=1, repetitions=2)
    assert [line for line in log if "runs" in line] == [
        *("a runs 0", "b runs 0"),
        *("b runs 1", "a runs 1"),
        *("a runs 2", "b runs 2"),
    ]
    assert [(s.name, len(s.seconds)) for s in series] == [("a", 2), ("b", 2)]


def test_each_run_is_prepared():
    log = []
    quiet_race().run([Sleeper("a", log)], warm_ups=0, repetitions=2)
    assert log == ["a prepares 0", "a runs 0", "a prepares 1", "a runs 1"]


def test_a_slow_contestant_takes_part_in_the_first_repetitions_only():
    series = quiet_race().run([Sleeper("a", []), Sleeper("slow", [], turns=2)], warm_ups=1, repetitions=3)
    assert [(s.name, len(s.seconds)) for s in series] == [("a", 3), ("slow", 1)]


def test_equal_answers_are_counted():
    contestants = [Sleeper("a", [], (5, 17)), Sleeper("b", [], (5, 17)), Sleeper("c", [])]
    measured = quiet_race()
    measured.run(contestants, warm_ups=1, repetitions=1)
    assert measured.answers_compared == 2


def test_different_answers_stop_the_race_and_are_named():
    contestants = [Sleeper("a", [], (5, 17)), Sleeper("b", [], (5, 18))]
    with pytest.raises(AnswersDifferError, match=r"a: \(5, 17\); b: \(5, 18\)"):
        quiet_race().run(contestants, warm_ups=0, repetitions=1)


def test_rotation_of_nobody_is_nobody():
    assert race.rotated([], 3) == []


# Steady work ----------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class SteadyTable:
    """Writes down what is done to it."""

    log: list[str]

    def reset(self):
        self.log.append("reset")

    def merge(self, changes):
        self.log.append(f"merge {changes}")

    def rows(self):
        self.log.append("read")


@pytest.fixture
def steady(monkeypatch):
    monkeypatch.setattr("benchmarks.data.full_read", lambda rows, columns: ("read",))
    table = SteadyTable([])
    stretches = [["a", "b"], ["c", "d"], ["e", "f"]]
    return Steady("steady", table, stretches, lambda: table.log.append("upkeep"), every=4)


def test_steady_work_goes_on_where_the_last_repetition_ended_after_a_warm_up_on_a_table_of_its_own(steady):
    quiet_race().run([steady], warm_ups=1, repetitions=3)
    assert steady.table.log == [
        *("reset", "merge a", "merge b", "read"),
        *("reset", "merge a", "merge b", "read"),
        *("merge c", "merge d", "upkeep", "read"),
        *("merge e", "merge f", "read"),
    ]


def test_the_parts_of_steady_work_are_timed_apart_and_the_warm_up_is_not(steady, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr("benchmarks.steady.time.perf_counter", lambda: next(clock))
    quiet_race().run([steady], warm_ups=1, repetitions=3)
    assert (steady.merges, steady.upkeeps, steady.reads) == ([1] * 6, [1], [1] * 3)
    assert steady.total == 10


def test_what_steady_work_reads_is_its_answer(steady):
    steady.prepare(0)
    steady.run(0)
    assert steady.answer() == ("read",)


# Tables ---------------------------------------------------------------------------------------------------------------


def test_tables_are_markdown():
    assert report.table(["a", "b"], [["x|y", "1"]], right=(1,)) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"


def test_times_have_the_digits_that_mean_something():
    assert [report.seconds(s) for s in (0.1234, 1.234, 12.34)] == ["0.123 s", "1.23 s", "12.3 s"]
    assert [report.times(r) for r in (1.234, 12.34)] == ["1.23\N{MULTIPLICATION SIGN}", "12.3\N{MULTIPLICATION SIGN}"]


def _numbered(first, last):
    return [f"P{i}" for i in range(first, last + 1)]


def test_the_report_shows_every_bar_also_those_not_measured():
    lines = report.render([result()]).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("| P")}
    assert list(rows) == [*_numbered(1, 5), "P5d", "P5h", "P6", "P6h", *_numbered(7, 12), "P14", "P15"]
    assert rows["P1"].endswith("| 0.200 s | Iceberg: 4.50 s | 22.5\N{MULTIPLICATION SIGN} | pass |")
    assert "not measured" in rows["P2"]
    assert rows["P2"].endswith("| **FAIL** |")


def test_the_report_says_when_figures_are_not_of_the_full_size():
    assert "Not the full size" in report.render([result(size="quick")])
    assert "Not the full size" not in report.render([result()])


def test_the_report_tells_why_a_section_broke_off():
    text = report.render([Result("P2", "the same into larger tables", "full", error="ValueError: no")])
    assert "| P2 | broke off, see below |" in text
    assert "**Broke off:** ValueError: no" in text


def test_sections_of_one_run_share_their_context():
    text = report.render([result(), result(section="P2"), result(section="P3", context={"command": "other"})])
    assert "Measured in one run: P1, P2" in text
    assert "Measured in one run: P3" in text
    assert "| load average as each section began | P1: 0.1, P2: 0.1 |" in text
