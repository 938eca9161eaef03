"""Everything the documentation shows runs: Python blocks of the README and docs, and docstring examples.

The blocks of one file share a namespace that has `spark`, and a temporary working directory. A `text` block
right after a Python block is what the block must print. A block right after the comment `<!-- not run -->` is
left alone. Docstring examples (`>>>`) have `spark`, `tmp_path`, the same kind of working directory, and those that
mention it a table `orders` with two rows.
"""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from trinitymerge import TrinityTable

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\s*$")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block: its language, its first line's number, its text, and the line of prose above it."""

    language: str
    line: int
    text: str
    above: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown page; between two adjacent ones `above` is empty."""
    above, inside, language, start = "", None, "", 0
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside, language, start = [], fence[1], number + 1
        elif inside is not None and line.rstrip() == "```":
            yield Block(language, start, "\n".join(inside), above)
            inside, above = None, ""
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            above = line.strip()


def run_page(page: str, name: str, namespace: dict[str, object]) -> int:
    """Runs a page's blocks in order; returns how many ran."""
    ran, printed = 0, None
    for block in blocks(page):
        if block.language == "python" and block.above != "<!-- not run -->":
            code = compile("\n" * (block.line - 1) + block.text, name, "exec")
            with redirect_stdout(io.StringIO()) as output:
                exec(code, namespace)
            ran, printed = ran + 1, output.getvalue()
        elif block.language == "text" and not block.above and printed is not None:
            checker = doctest.OutputChecker()
            example = doctest.Example("", block.text + "\n")
            if not checker.check_output(example.want, printed, FLAGS):
                pytest.fail(f"{name}, line {block.line}: {checker.output_difference(example, printed, FLAGS)}")
            printed = None
        else:
            printed = None
    return ran


NEEDED = {"reading-from-elsewhere.md": ("duckdb", "polars")}
"""What pages need that cannot be installed under every Python: from version 2.0 on, which takes Python 3.11."""


def _marked(path: Path):
    return pytest.param(path, marks=[pytest.mark.iceberg] if path.stem == "iceberg" else [])


@pytest.mark.parametrize("path", [_marked(p) for p in PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path, spark, work_dir):
    for package in NEEDED.get(path.name, ()):
        pytest.importorskip(package, minversion="2.0")
    run_page(path.read_text("utf-8"), str(path), {"spark": spark, "__name__": path.stem})


def test_readme_has_a_quick_start():
    assert any(block.language == "python" for block in blocks(PAGES[0].read_text("utf-8")))


def test_testing_a_pipelines_clause_order_takes_less_than_30_lines():
    page = (ROOT / "docs" / "testing-your-pipeline.md").read_text("utf-8")
    shown = [block.text for block in blocks(page) if "def test_order_of_clauses" in block.text]
    assert [len(text.splitlines()) < 30 for text in shown] == [True]


PAGE = """
```python
x = 1
print("a", x)
```

```text
a 1
```

<!-- not run -->
```python
x = "not run"
```

Prose.
```python
assert x == 1
```
"""


def test_blocks_of_a_page_share_a_namespace_and_may_be_left_out():
    assert run_page(PAGE, "page", {}) == 2


def test_a_page_whose_output_is_wrong_fails():
    with pytest.raises(pytest.fail.Exception, match="page, line 8"):
        run_page(PAGE.replace("\na 1\n", "\na 2\n"), "page", {})


# Docstrings -------------------------------------------------------------------------------------------------


def modules() -> list[str]:
    """Every module of the package, and the tests' helpers."""
    package = importlib.import_module("trinitymerge")
    found = pkgutil.walk_packages(package.__path__, "trinitymerge.", onerror=lambda name: None)
    return ["trinitymerge", *(module.name for module in found), "helpers"]


def docstring_examples() -> list[doctest.DocTest]:
    """The examples of all modules that can be imported; that all of them can is a test of its own."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = []
    for name in modules():
        with suppress(Exception):
            found += finder.find(importlib.import_module(name), name)
    return sorted((test for test in found if test.examples), key=lambda test: test.name)


def test_modules_import_cleanly():
    for name in modules():
        importlib.import_module(name)


@pytest.fixture(scope="session")
def orders_template(spark, tmp_path_factory):
    """The table called ``orders`` in docstrings: two rows, one merge. Examples get a copy each."""
    path = tmp_path_factory.mktemp("docs") / "orders"
    schema = "order_id STRING, amount DECIMAL(10,2), ts TIMESTAMP"
    table = TrinityTable.create(spark, str(path), schema, primaryKey="order_id", watermarkKey="ts")
    rows = "VALUES ('1', 5.00, TIMESTAMP '2024-01-01'), ('2', 9.50, TIMESTAMP '2024-01-01') AS t(order_id, amount, ts)"
    table.upsert(spark.sql(f"SELECT * FROM {rows}")).execute()
    return path


@pytest.mark.parametrize("test", docstring_examples(), ids=lambda test: test.name)
def test_docstring_example_runs(test, spark, work_dir, request):
    test.globs.update(spark=spark, tmp_path=work_dir, TrinityTable=TrinityTable)
    if "orders" in test.docstring:
        path = shutil.copytree(request.getfixturevalue("orders_template"), work_dir / "orders")
        test.globs.update(orders_path=str(path), orders=TrinityTable.forPath(spark, str(path)))
    report = io.StringIO()
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write, clear_globs=True)
    assert result.failed == 0, report.getvalue()
