"""What docstrings, comments and pages refer to is there: modules, classes, functions and files, by the names they have now.

A name in ``:func:`...``` and its like is looked for where a reader would: in the class around it, then in the module, or
from the top if it begins with the package. A file may be named by the end of its path.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "trinitymerge"
SOURCES = sorted((ROOT / PACKAGE).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = {
    f"/{path.relative_to(ROOT)}"
    for folder in (PACKAGE, "tests", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
}

ROLE = re.compile(r":(\w+):`~?([^`]+)`")
FILE = re.compile(r"(?<![\w/.-])[\w/]+\.py\b")
IS_A = {
    "mod": lambda found: isinstance(found, ModuleType),
    "class": lambda found: isinstance(found, type),
    "func": lambda found: callable(found) and not isinstance(found, type),
    "meth": callable,
    "data": lambda found: not isinstance(found, (type, ModuleType)),
    "attr": lambda found: not isinstance(found, (type, ModuleType)),
}
"""What a role says of the thing it names."""


class Reference(NamedTuple):
    """A role and its target, and the class it stands in, if any."""

    line: int
    role: str
    target: str
    inside: str


def references(text: str) -> Iterator[Reference]:
    """What a source file refers to."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    for match in ROLE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        inside = next((c.name for c in classes if c.lineno <= line <= (c.end_lineno or 0)), "")
        yield Reference(line, match[1], " ".join(match[2].split()), inside)


def dangling(text: str, module: str) -> list[str]:
    """The references of a source file that lead nowhere, or to something of another kind."""
    here = importlib.import_module(module)
    return [
        f"line {r.line}: :{r.role}:`{r.target}`"
        for r in references(text)
        if not any(IS_A[r.role](found) for found in meant(r, here))
    ]


def meant(reference: Reference, here: ModuleType) -> list[object]:
    """What a reference may mean."""
    parts = reference.target.split(".")
    if parts[0] == PACKAGE:
        return followed(importlib.import_module(PACKAGE), parts[1:])
    scopes = [getattr(here, reference.inside), here] if reference.inside else [here]
    return [found for scope in scopes for found in followed(scope, parts)]


NOTHING = object()


def followed(found: object, parts: list[str]) -> list[object]:
    """What names lead to, one after the other; nothing if one is not there."""
    for part in parts:
        if isinstance(found, ModuleType) and f"/{found.__name__.replace('.', '/')}/{part}" in PATHS:
            found = importlib.import_module(f"{found.__name__}.{part}")
        elif hasattr(found, part):
            found = getattr(found, part)
        elif part in getattr(found, "__annotations__", {}):
            found = NOTHING  # an attribute that only instances have
        else:
            return []
    return [found]


PATHS = {path.removesuffix(".py").removesuffix("/__init__") for path in FILES}


def lost_files(text: str) -> list[str]:
    """The Python files that a text mentions and that no path in the repository ends with."""
    return [name for name in FILE.findall(text) if not any(path.endswith(f"/{name}") for path in FILES)]


def lost(path: Path) -> list[str]:
    """What a module refers to and is not there."""
    text, parts = path.read_text("utf-8"), path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return dangling(text, module) + lost_files(text)


def test_what_modules_refer_to_is_there():
    assert {str(path): found for path in SOURCES if (found := lost(path))} == {}


def test_files_that_pages_mention_are_there():
    assert {str(page): found for page in PAGES if (found := lost_files(page.read_text("utf-8")))} == {}


LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def lost_links(text: str, page: Path) -> list[str]:
    """The links of a page whose file or heading does not exist."""
    found = [((page.parent / m[1]).resolve() if m[1] else page, m[2], m[0]) for m in LINK.finditer(text)]
    lost = [link for path, _, link in found if not path.exists()]
    texts = [
        (path.read_text("utf-8") if path != page else text, a, link) for path, a, link in found if a and path.exists()
    ]
    return lost + [link for target, anchor, link in texts if anchor not in anchors(target)]


def test_links_of_pages_lead_to_files_and_headings():
    assert {str(page): found for page in PAGES if (found := lost_links(page.read_text("utf-8"), page))} == {}


def test_links_that_lead_nowhere_are_found():
    text = "# A `b`, c\n[a](#a-b-c) [b](#b) [c](docs/sql.md#names) [d](docs/sql.md#no) [e](no.md) [f](https://x.org/#y)"
    assert lost_links(text, ROOT / "README.md") == ["](no.md)", "](#b)", "](docs/sql.md#no)"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (":class:`Commit`, :mod:`trinitymerge.log.log`, :func:`now_ms` and :data:`FORMAT`", 0),
        ("class Batch:\n    ':meth:`to_json`, :attr:`Batch.rows` and :attr:`rows`'", 0),
        ("':meth:`to_json`'", 1),
        ("':class:`Bunch`, :class:`now_ms`, :mod:`trinitymerge.storage.lock`, :data:`Batch`'", 4),
        ("':meth:`trinitymerge.log.log.CommitLog.newest`, :meth:`trinitymerge.log.log.CommitLog.last`'", 1),
    ],
)
def test_references_that_lead_nowhere_are_found(text, wrong):
    text = text if text.startswith(("class", "'")) else repr(text)
    assert len(dangling(text, "trinitymerge.log.model")) == wrong


def test_files_that_are_not_there_are_found():
    assert lost_files("log/log.py, log/log.py, tests/log/test_log.py and `trinitymerge/log/log.py`") == []
    assert lost_files("og.py, storage/lock.py, merge/log.py") == ["og.py", "storage/lock.py", "merge/log.py"]


# Names that tests patch -----------------------------------------------------------------------------------------------


def patched_names(source: str) -> Iterator[tuple[str, str]]:
    """The modules or classes of the package that some code patches, and the names of what it replaces there."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGE)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            owner, name = node.args[0], node.args[1]
            if isinstance(owner, ast.Name) and owner.id in imported and isinstance(name, ast.Constant):
                yield imported[owner.id], name.value


def test_what_tests_patch_exists():
    paths = sorted((ROOT / "tests").rglob("*.py"))
    patched = [(path.name, *names) for path in paths for names in patched_names(path.read_text("utf-8"))]
    assert [p for p in patched if not hasattr(pkgutil.resolve_name(p[1]), p[2])] == []
