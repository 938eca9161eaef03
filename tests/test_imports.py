"""What importing the package imports besides: Spark and Hypothesis only where they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trinitymerge

ROOT = Path(__file__).parent.parent

INTERPRETER = """
from trinitymerge.testing import ModelMerge, ModelTable, assertClauseOrderIrrelevant, assertMerge
from trinitymerge import Field, TableDefinition
from trinitymerge.merge.model.clauses import All, Insert, WhenNotMatched

table = ModelTable(TableDefinition.of([Field("id", "long")], primaryKey="id"))
insert = (WhenNotMatched(None, [Insert(All())]),)
assertClauseOrderIrrelevant(ModelMerge(table, [{"id": 1}], insert))
assertMerge(table, lambda t: t.merge([{"id": 1}], insert), [{"id": 1}])
"""

STRATEGIES = """
import trinitymerge.testing.strategies
"""


def imported_by(code: str) -> set[str]:
    """The top-level packages that a fresh Python has loaded after running some code."""
    shown = code + "\nimport sys; print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", shown]
    return set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("code", ["import trinitymerge", INTERPRETER])
def test_package_and_interpreter_need_neither_Spark_nor_Hypothesis(code):
    assert not imported_by(code) & {"pyspark", "py4j", "hypothesis"}


def test_strategies_need_Hypothesis_and_no_Spark():
    assert imported_by(STRATEGIES) & {"pyspark", "py4j", "hypothesis"} == {"hypothesis"}


def test_names_that_need_Spark_are_there_when_asked_for():
    assert set(trinitymerge.__all__) <= set(dir(trinitymerge))
    assert all(getattr(trinitymerge, name).__name__ == name for name in trinitymerge.__all__)


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="module 'trinitymerge' has no attribute 'TrinityTabel'"):
        _ = trinitymerge.TrinityTabel
