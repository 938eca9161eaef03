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


def test_pytest_finds_the_tests_of_every_mutant():
    """And `make test` runs one of those that notice it: the named case, or any where none is named."""
    tests = dict.fromkeys(f"tests/{test}" for mutant in MUTANTS for test in mutant.tests)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider"]
    found = subprocess.run([*command, *tests], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    quick = subprocess.run([*command, "--quick"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    lines = {*quick.splitlines(), *(line.split("[")[0] for line in quick.splitlines())}
    assert [m.name for m in MUTANTS if not any(f"tests/{test}" in lines for test in m.tests)] == []


def test_every_mutant_stands_in_the_table_and_is_killed():
    page = README.read_text("utf-8")
    assert all(f"| {name} |" in page for name in NAMES)
    assert "**nobody**" not in page
