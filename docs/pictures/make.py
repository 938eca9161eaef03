"""Draws the pictures of the documentation: `python docs/pictures/make.py`. A test compares them with the files beside it."""

from __future__ import annotations

import html
from pathlib import Path

HERE = Path(__file__).parent
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328; } .head { font-weight: 600; } .soft { fill: #59636e; }
.box { fill: #f6f8fa; stroke: #d1d9e0; } .win { fill: #0072b2; } .lose { fill: #59636e; text-decoration: line-through; }
.gone { fill: #b3261e; } .line { stroke: #59636e; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc; } .soft { fill: #9198a1; } .box { fill: #151b23; stroke: #3d444d; }
.win { fill: #56b4e9; } .lose { fill: #9198a1; } .gone { fill: #ff8a80; } .line { stroke: #9198a1; } }
"""

Row = tuple[str, str]
"""A line of a box: its text and its class."""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def box(x: float, title: str, note: str, rows: list[Row], width: float = 190) -> str:
    """Return a box of rows with a title above it and a note below it."""
    height = 26 * len(rows) + 14
    lines = [text(x + 14, 62 + 26 * i, words, kind) for i, (words, kind) in enumerate(rows)]
    frame = f'<rect class="box" x="{x}" y="38" width="{width}" height="{height}" rx="6"/>'
    return "\n".join([text(x, 26, title, "head"), frame, *lines, text(x, 38 + height + 22, note, "soft")])


def arrow(x: float, y: float, length: float) -> str:
    """Return an arrow to the right."""
    return f'<path class="line" d="M{x} {y}h{length}m-7 -5l7 5l-7 5"/>'


def picture(title: str, width: int, height: int, *parts: str) -> str:
    """Return an SVG with a title for readers who cannot see it."""
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-6 0 {width + 12} {height}" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n{inside}\n</svg>\n"
    )


def idea() -> str:
    """Return the picture of the idea: base, batch, and what a reader sees."""
    base = box(
        0,
        "base",
        "written once",
        [("o1  10.00  May 1", "lose"), ("o2  20.00  May 1", "lose"), ("o3  30.00  May 1", "win")],
    )
    batch = box(
        260,
        "batch of a merge",
        "appended: costs the change",
        [
            ("o1  12.50  May 2", "win"),
            ("o2  deleted  May 2", "gone"),
            ("o3  99.99  Apr 30", "lose"),
            ("o4  40.00  May 2", "win"),
        ],
    )
    seen = box(
        540,
        "what a reader sees",
        "the freshest row of each key",
        [("o1  12.50", ""), ("o3  30.00", ""), ("o4  40.00", "")],
        180,
    )
    plus = text(225, 92, "+", "head", "middle")
    return picture(
        "A merge appends a batch beside the base. A reader picks the freshest row of each key.",
        744,
        190,
        base,
        plus,
        batch,
        arrow(465, 88, 60),
        seen,
    )


PICTURES = {"idea.svg": idea}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), "utf-8")
