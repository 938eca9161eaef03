"""The notebooks: the tutorials of docs/, cell by cell. `make notebooks` writes them, without outputs.

A tutorial is written once, as a page. Its blocks of Python become cells of code, and what they print is left out: running the
notebook prints it.
"""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import nbformat

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"
TUTORIALS = ("first-table", "change-feed", "dimension")

_PRINTED = re.compile(r"(```python\n.*?\n```\n)\n```text\n.*?\n```\n", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)")
_DIRECTORY = """\
```python
import os
import tempfile

os.chdir(tempfile.mkdtemp())  # to start over, run all cells again
```
"""


def notebook(name: str) -> nbformat.NotebookNode:
    """Return a tutorial as a notebook.

    Args:
        name: the page, without its ending.
    """
    page = (DOCS / f"{name}.md").read_text("utf-8")
    title, rest = page.split("\n", 1)
    cells = _LINK.sub("](../../docs/", _PRINTED.sub(r"\1", rest))
    book = jupytext.reads(f"{title}\n\n{_DIRECTORY}{cells}", "md")
    for number, cell in enumerate(book.cells):
        cell["id"] = f"{name}-{number}"
    book.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return book


def text_of(name: str) -> str:
    """Return the file of a notebook."""
    return nbformat.writes(notebook(name)) + "\n"


def main() -> None:
    """Write all notebooks."""
    for name in TUTORIALS:
        (FOLDER / f"{name}.ipynb").write_text(text_of(name), "utf-8")


if __name__ == "__main__":
    main()
