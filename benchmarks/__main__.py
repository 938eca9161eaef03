"""The command line: `python -m benchmarks [--size full] [--only P1,P3]`.

Runs the sections, keeps each one's figures as `results/P….json`, and writes `RESULTS.md` and the charts from all
figures there are. Exits with 1 when a section broke off, as it does when answers differ; a missed bar is a result, not
an error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from pathlib import Path

import attrs

from benchmarks import session
from benchmarks.charts import draw
from benchmarks.report import render, table
from benchmarks.results import Result, load, save
from benchmarks.sections import SECTIONS
from benchmarks.sizes import SIZES
from benchmarks.workbench import Workbench

_HERE = Path(__file__).parent
_BUILD = _HERE.parent / "build" / "benchmarks"


def main(argv: list[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit code."""
    asked = _arguments(argv)
    out = asked.out or (_HERE if asked.size == "full" else _BUILD / asked.size)
    broken = [] if asked.render else _measure(asked, out)
    results = load(out / "results")
    (out / "RESULTS.md").write_text(render(results), "utf-8")
    draw(results, out)
    _tell(results, out)
    for section in broken:
        print(f"{section} broke off: see above and {out / 'RESULTS.md'}", file=sys.stderr)
    return 1 if broken else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--size", choices=sorted(SIZES), default="quick", help="how much of everything (default: quick)"
    )
    parser.add_argument("--only", type=_sections, default=list(SECTIONS), metavar="P1,P3", help="sections to run")
    parser.add_argument(
        "--render", action="store_true", help="run nothing, write the report from the figures there are"
    )
    parser.add_argument("--out", type=Path, help="where the report goes (default: here for full, build/ for quick)")
    parser.add_argument("--work", type=Path, default=_BUILD / "work", help="for the tables; some 20 GB at full size")
    parser.add_argument("--keep", action="store_true", help="leave the tables there")
    return parser.parse_args(argv)


def _sections(text: str) -> list[str]:
    known = {name.upper(): name for name in SECTIONS}
    names = [known.get(name.strip().upper(), name.strip()) for name in text.split(",")]
    unknown = sorted(set(names) - set(SECTIONS))
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return [name for name in SECTIONS if name in names]


def _measure(asked: argparse.Namespace, out: Path) -> list[str]:
    """Runs the sections, saves each as it ends; returns those that broke off."""
    size, work = SIZES[asked.size], asked.work.resolve() / asked.size
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spark = session.start(size, work)
    command = f"python -m benchmarks --size {size.name}"
    if asked.only != list(SECTIONS):
        command += f" --only {','.join(asked.only)}"
    try:
        bench = Workbench(spark, size, work, lambda text: print(text, flush=True))
        return [name for name in asked.only if _section(name, bench, command, out).error]
    finally:
        spark.stop()
        if not asked.keep:
            shutil.rmtree(work, ignore_errors=True)


def _section(name: str, bench: Workbench, command: str, out: Path) -> Result:
    """Runs one section and keeps its figures, also those of a section that broke off."""
    context = {**session.context(bench.spark, command), "load average": session.load_average()}
    run = SECTIONS[name]
    print(f"{name}: {run.__doc__}", flush=True)
    start = time.perf_counter()
    try:
        result = run(bench)
    except Exception as error:  # noqa: BLE001 - the other sections still have something to say
        traceback.print_exc()
        message = str(error).strip().split("\n", 1)[0]
        result = Result(name, run.__doc__.rstrip("."), bench.size.name, error=f"{type(error).__name__}: {message}")
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    result = attrs.evolve(result, context=context)
    save(result, out / "results")
    return result


def _tell(results: list[Result], out: Path) -> None:
    rows = []
    for result in results:
        for verdict in result.verdicts():
            ratio = "not measured" if verdict.ratio is None else f"{verdict.ratio:.2f}"
            passed = "pass" if verdict.passed else "FAIL"
            rows.append([result.section, verdict.comparison.work, str(verdict.comparison.bar), ratio, passed])
    print(table(["", "work", "bar", "ratio", ""], rows))
    print(f"The report: {out / 'RESULTS.md'}")


if __name__ == "__main__":
    sys.exit(main())
