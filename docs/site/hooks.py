"""What the site has beyond the pages of docs/: the README as its first page, the API reference, and links that stay inside."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!README\.md)[^)]*\)")
_OUTSIDE_OF_DOCS = re.compile(r"\[([^\]]+)\]\((?!docs/|https?:|#)[^)]*\)")
_FILE_AS_TEXT = re.compile(r"\[docs/([\w-]+)\.md\]\(")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from other files."""
    readme = (ROOT / "README.md").read_text("utf-8")
    pages = {
        "index.md": _OUTSIDE_OF_DOCS.sub(
            r"\1", readme.replace("](benchmarks/RESULTS.md", "](docs/benchmarks.md")
        ).replace("](docs/", "]("),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text("utf-8"),
        "benchmarks.md": (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8"),
        "api.md": _api(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for picture in sorted((ROOT / "benchmarks").glob("*.svg")):
        files.append(File.generated(config, picture.name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the README lead to the first page, show links out of docs/ as text, and pages by their titles."""
    inside = markdown.replace("](../benchmarks/RESULTS.md", "](benchmarks.md").replace(
        "](../CHANGELOG.md", "](changelog.md"
    )
    inside = _FILE_AS_TEXT.sub(lambda m: f"[{_title(m[1])}](", inside)
    return _OUTSIDE.sub(r"\1", inside).replace("](../README.md", "](index.md")


def _title(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text("utf-8").partition("\n")[0].lstrip("# ")


def _api() -> str:
    tree = ast.parse((ROOT / "trinitymerge" / "__init__.py").read_text("utf-8"))
    (names,) = (
        n.value for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__"
    )
    public = [n for n in ast.literal_eval(names) if not n.startswith("__")]
    first = ["TrinityTable", "sql", "MergeBuilder", "MergePlan", "MergeResult"]
    ordered = [*(n for n in first if n in public), *sorted(n for n in public if n not in first)]
    listed = [f"trinitymerge.{name}" for name in ordered] + ["trinitymerge.feeds"]
    return "# API reference\n\n" + "\n".join(f"::: {name}\n" for name in listed)
