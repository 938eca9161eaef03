"""The notebooks are the tutorials of docs/, and run: each in a kernel, whose Spark session is the notebook's."""

from __future__ import annotations

import doctest
from pathlib import Path

import processes
import pytest
from helpers import script
from test_docs import FLAGS, blocks

nbclient = pytest.importorskip("nbclient", reason="the extra notebooks is not installed")
pytest.importorskip("jupytext", reason="the extra notebooks is not installed")

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
make = script(FOLDER / "make.py")


@pytest.mark.parametrize("name", make.TUTORIALS)
def test_a_notebook_is_its_page(name):
    assert (FOLDER / f"{name}.ipynb").read_text("utf-8") == make.text_of(name), "run make notebooks"


def test_every_notebook_has_a_page():
    assert {p.stem for p in FOLDER.glob("*.ipynb")} == set(make.TUTORIALS)


@pytest.mark.long  # each starts another Spark session, and `test_docs.py` runs the same blocks
@pytest.mark.parametrize("name", make.TUTORIALS)
def test_a_notebook_prints_what_its_page_shows(name):
    book = make.notebook(name)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute(env=processes.small_sessions())
    code = [cell for cell in book.cells if cell.cell_type == "code"][1:]  # the first makes the directory
    shown = list(_shown(make.DOCS / f"{name}.md"))
    assert [cell.source for cell in code] == [source for source, _ in shown]
    checker = doctest.OutputChecker()
    for cell, (source, expected) in zip(code, shown, strict=True):
        printed = "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")
        if expected is not None:
            difference = checker.output_difference(doctest.Example(source, expected), printed, FLAGS)
            assert checker.check_output(expected, printed, FLAGS), difference


def _shown(page: Path):
    """Each block of Python, and what the page shows as its output; None if nothing."""
    source = None
    for block in blocks(page.read_text("utf-8")):
        if source is not None:
            yield source, block.text + "\n" if block.language == "text" and not block.above else None
        source = block.text if block.language == "python" else None
    if source is not None:
        yield source, None
