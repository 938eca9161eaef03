"""The site: it builds strictly, shows every public name, and its search finds what people look for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trinitymerge

pytest.importorskip("mkdocs", reason="the site needs the extra docs")
pytest.importorskip("mkdocstrings", reason="the site needs the extra docs")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
    return target


def test_every_public_name_has_a_place_in_the_reference(site):
    page = (site / "api" / "index.html").read_text("utf-8")
    names = [n for n in trinitymerge.__all__ if not n.startswith("__")]
    assert [n for n in names if f'id="trinitymerge.{n}"' not in page] == []
    assert 'id="trinitymerge.TrinityTable.applyChanges"' in page


def test_examples_of_docstrings_are_code(site):
    page = (site / "api" / "index.html").read_text("utf-8")
    assert "&gt;&gt;&gt;" not in page.replace('<span class="gp">&gt;&gt;&gt; </span>', "")


@pytest.mark.parametrize("word", ["late", "SCD", "Debezium"])
def test_search_finds(site, word):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    assert any(word.lower() in entry["text"].lower() for entry in index["docs"])


def test_every_page_of_the_docs_is_in_the_navigation(site):
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")}
    assert {p for p in pages if f'href="{p}/' not in (site / "index.html").read_text("utf-8")} == set()


def test_the_first_page_shows_links_by_titles_and_no_brackets(site):
    page = (site / "index.html").read_text("utf-8")
    assert '<a href="benchmarks/">All figures</a>' in page
    assert "[All" not in page
    assert '<a href="on-call/">On call</a>' in page


def test_pages_show_no_file_of_the_docs_as_a_link(site):
    pages = [site / p.stem / "index.html" for p in (ROOT / "docs").glob("*.md")]
    assert [p for p in pages if re.search(r">docs/[\w-]+\.md</a>", p.read_text("utf-8"))] == []
