"""The harness of ``make mutants``: its texts and tests are still there, and its table is of these mutants."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
import selection
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


def test_make_test_runs_the_tests_of_every_mutant(request):
    """The named case, or any where none is named."""
    options = request.config.option
    is_part = options.lane == "check" or options.keyword or options.remote or options.iceberg or options.cluster
    if is_part or [Path(place).resolve() for place in request.config.args] != [ROOT / "tests"]:
        pytest.skip("needs the tests of all files")
    assert selection.lost(request.session.items) == []


def test_every_mutant_stands_in_the_table_and_is_killed():
    page = README.read_text("utf-8")
    assert all(f"| {name} |" in page for name in NAMES)
    assert "**nobody**" not in page
