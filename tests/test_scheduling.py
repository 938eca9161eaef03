"""The schedulers' code of docs/scheduling.md, run by the schedulers where they are installed: they do not fit beside the tests'.

The functions that they call run with the other pages, in `test_docs.py`.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "scheduling.md").read_text("utf-8")


def block(heading: str) -> str:
    """The Python block below a heading of the page."""
    return PAGE.split(f"\n## {heading}\n")[1].split("```python\n")[1].split("```")[0]


@pytest.fixture
def called(monkeypatch) -> list[str]:
    """The calls of the functions that the page defines; here they only note the call."""
    calls: list[str] = []

    def merge_day(day: str) -> dict[str, object]:
        calls.append(day)
        return {"version": 1, "rowsAppended": 2, "strategy": "blind append", "skipped": "", "perClause": (1, 2)}

    def compact_if_due() -> str:
        calls.append("compact")
        return "not due"

    module = types.SimpleNamespace(merge_day=merge_day, compact_if_due=compact_if_due)
    monkeypatch.setitem(sys.modules, "orders_merge", module)
    return calls


@pytest.mark.parametrize("heading", ["Airflow", "Dagster"])
def test_the_code_is_python(heading):
    assert "merge_day" in compile(block(heading), heading, "exec", dont_inherit=True).co_names


def test_dagster_runs_it(called):
    dagster = pytest.importorskip("dagster", reason="Dagster is not installed")
    space: dict[str, object] = {"__name__": "orders_job"}
    exec(compile(block("Dagster"), "Dagster", "exec", dont_inherit=True), space)
    result = dagster.materialize([space["orders"], space["reads_are_cheap"]], partition_key="2026-11-24")
    assert result.success
    assert called == ["2026-11-24", "compact"]


def test_airflow_runs_it(called, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    sdk = pytest.importorskip("airflow.sdk", reason="Airflow 3 is not installed")
    (tmp_path / "orders_dag.py").write_text(
        block("Airflow").replace("\n\norders()\n", "\n\nfound = orders()\n"), "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = importlib.import_module("orders_dag").found
    assert isinstance(found, sdk.DAG)
    assert [t.task_id for t in found.topological_sort()] == ["merge", "compact"]
    assert found.get_task("merge").python_callable("2026-11-24")["version"] == 1
    assert found.get_task("compact").python_callable() == "not due"
    assert called == ["2026-11-24", "compact"]
