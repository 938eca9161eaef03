"""The harness of ``make mutants``: its texts and tests are still there, and its table is of these mutants."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache

from mutants import MUTANTS, README, ROOT

NAMES = [mutant.name for mutant in MUTANTS]


@cache
def functions_of(file):
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_mutants_can_be_made_and_their_tests_exist():
    for mutant in MUTANTS:
        compile(mutant.mutated(), mutant.file, "exec")
    named = {tuple(test.split("[")[0].split("::")) for mutant in MUTANTS for test in mutant.tests}
    assert [(file, name) for file, name in sorted(named) if name not in functions_of(file)] == []


def test_make_test_runs_the_tests_of_every_mutant():
    """The named case, or any where none is named."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--lane",
        "test",
    ]
    lane = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert lane.returncode == 0, lane.stdout[-2000:] + lane.stderr[-2000:]
    found = lane.stdout.splitlines()
    lines = {*found, *(line.split("[")[0] for line in found)}
    assert [m.name for m in MUTANTS if not all(f"tests/{test}" in lines for test in m.tests)] == []


def test_every_mutant_stands_in_the_table_and_is_killed():
    page = README.read_text("utf-8")
    assert all(f"| {name} |" in page for name in NAMES)
    assert "**nobody**" not in page
