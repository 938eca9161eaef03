"""The documentation's first screen: a short README, and pictures that are what their code draws."""

from __future__ import annotations

from pathlib import Path

from helpers import script

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
make = script(FOLDER / "make.py")


def test_pictures_are_what_their_code_draws():
    different = [name for name, draw in make.PICTURES.items() if (FOLDER / name).read_text("utf-8") != draw()]
    assert different == [], "run docs/pictures/make.py"


def test_every_picture_is_drawn_by_code_and_shown():
    assert {p.name for p in FOLDER.glob("*.svg")} == set(make.PICTURES)
    pages = "".join(p.read_text("utf-8") for p in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert [n for n in make.PICTURES if n not in pages] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
