"""Draws the pictures of the documentation: `python docs/pictures/make.py`. A test compares them with the files beside it."""

from __future__ import annotations

import html
from pathlib import Path

HERE = Path(__file__).parent
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328; } .head { font-weight: 600; } .soft { fill: #59636e; }
.box { fill: #f6f8fa; stroke: #d1d9e0; } .win { fill: #0072b2; } .lose { fill: #59636e; text-decoration: line-through; }
.gone { fill: #b3261e; } .new { stroke: #0072b2; stroke-width: 2; } .line { stroke: #59636e; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc; } .soft { fill: #9198a1; } .box { fill: #151b23; stroke: #3d444d; }
.win { fill: #56b4e9; } .lose { fill: #9198a1; } .gone { fill: #ff8a80; } .new { stroke: #56b4e9; } .line { stroke: #9198a1; } }
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
    """Return an arrow to the right, or to the left if its length is negative."""
    tip = 7 if length > 0 else -7
    return f'<path class="line" d="M{x} {y}h{length}m{-tip} -5l{tip} 5l{-tip} 5"/>'


def down(y: float, *parts: str) -> str:
    """Return parts moved down."""
    return f'<g transform="translate(0 {y})">' + "\n".join(parts) + "</g>"


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


def late() -> str:
    """Return the picture of order: two batches in either order give the same rows."""
    first, second = [("o1  deleted  10:05", "gone")], [("o1  12.50  10:00", "lose")]

    def line(y: int, name: str, rows: list[list[Row]]) -> str:
        parts = [text(0, 52, name, "head"), box(150, "first batch", "", rows[0]), box(370, "second batch", "", rows[1])]
        return down(y, *parts, arrow(575, 58, 50), box(640, "readers see", "", [("o1 is deleted", "gone")], 150))

    return picture(
        "The same events in another order: a change that arrives after a later delete does not bring the row back.",
        800,
        200,
        line(0, "in order", [second, first]),
        line(92, "late", [first, second]),
        text(
            0,
            192,
            "The watermark decides, not the order of arrival. The tombstone stays until no older row can come.",
            "soft",
        ),
    )


def interval() -> str:
    """Return the picture of a late row in a table with history: it splits an interval."""
    days = [("May 6", 150), ("May 10", 330), ("May 20", 600)]

    def bar(x: float, end: float, y: float, words: str) -> str:
        return f'<rect class="box" x="{x}" y="{y}" width="{end - x - 4}" height="30" rx="4"/>' + text(
            x + 12, y + 20, words
        )

    ticks = [
        text(x, 20, day, "soft") + f'<path class="line" d="M{x} 28v125" stroke-dasharray="2 4"/>' for day, x in days
    ]
    return picture(
        "A version ends where the next begins. A late row of May 10 splits the version of May 6.",
        800,
        196,
        *ticks,
        text(0, 64, "before", "head"),
        bar(150, 600, 44, "Rome"),
        bar(600, 790, 44, "Bonn"),
        text(0, 126, "after the late row", "head"),
        bar(150, 330, 106, "Rome"),
        bar(330, 600, 106, "Nice (late)"),
        bar(600, 790, 106, "Bonn"),
        text(
            0,
            184,
            "No end date is stored, so nothing has to be corrected: the late row is one more row of its key.",
            "soft",
        ),
    )


def compaction() -> str:
    """Return the picture of maintenance: merges append, minor compactions join, compactions rewrite segments."""

    def cells(x: float, y: float, names: list[str], width: float, kinds: str) -> str:
        return "".join(
            f'<rect class="box {kind}" x="{x + i * (width + 6)}" y="{y}" width="{width}" height="30" rx="4"/>'
            + text(x + i * (width + 6) + width / 2, y + 20, name, "", "middle")
            for i, (name, kind) in enumerate(zip(names, kinds.split(","), strict=True))
        )

    return picture(
        "Merges append batches, a minor compaction makes one of many small ones, a compaction rewrites the segments that changed.",
        800,
        250,
        text(0, 20, "segments of the base, by key", "head"),
        text(430, 20, "pending batches, by time", "head"),
        text(0, 55, "merges", "soft"),
        cells(150, 36, ["a-f", "g-m", "n-z"], 74, ",,"),
        cells(430, 36, ["1", "2", "3", "4", "5", "6", "7"], 40, ",,,,,,new"),
        text(0, 125, "minor compaction", "soft"),
        cells(150, 106, ["a-f", "g-m", "n-z"], 74, ",,"),
        cells(430, 106, ["1 to 7"], 316, "new"),
        text(0, 195, "compaction", "soft"),
        cells(150, 176, ["a-f", "g-m", "n-z"], 74, ",new,"),
        text(430, 196, "none: the changed keys were all in g-m", "soft"),
        text(
            0,
            240,
            "New files are framed. A read resolves the pending batches with the base.",
            "soft",
        ),
    )


def race() -> str:
    """Return the picture of two writers that commit at the same time."""
    first = [("writes its batch", ""), ("creates version 8", "win")]
    second = [("writes its batch", ""), ("version 8 exists", "gone"), ("creates version 9", "win")]
    return picture(
        "Two writers create the same version file: one succeeds, the other goes on top of it or is evaluated again.",
        800,
        214,
        box(0, "writer A", "", first, 200),
        box(300, "the log", "", [("version 7", ""), ("version 8, by A", ""), ("version 9, by B", "")], 200),
        box(600, "writer B", "", second, 200),
        arrow(205, 83, 88),
        arrow(595, 109, -88),
        text(0, 170, "A version file is created exclusively, so each version has one writer.", "soft"),
        text(0, 190, "A merge that has not read the table goes on top of the others.", "soft"),
        text(0, 210, "One that has read it is evaluated again, if another merge touched a key it depends on.", "soft"),
    )


def strategy() -> str:
    """Return the picture of the choice between a blind append and a lookup."""
    return picture(
        "A merge reads the target only if its clauses need the rows there.",
        800,
        190,
        box(
            0,
            "do the rows to write depend on the target?",
            "",
            [
                ("upsert, change events, deletes by key", ""),
                ("A.total + B.amount, A.x > 3", ""),
                ("rows that the source does not have", ""),
            ],
            300,
        ),
        arrow(310, 62, 60),
        arrow(310, 88, 60),
        arrow(310, 114, 60),
        box(385, "strategy", "", [("blind append", "win"), ("keyed lookup", "win"), ("full scan", "win")], 130),
        box(
            540,
            "what it reads",
            "",
            [("the source", ""), ("rows under the source's keys", ""), ("every live row", "")],
            240,
        ),
        text(0, 170, "explain() names the strategy of a merge, and why no cheaper one is possible.", "soft"),
    )


PICTURES = {
    "idea.svg": idea,
    "late.svg": late,
    "interval.svg": interval,
    "compaction.svg": compaction,
    "race.svg": race,
    "strategy.svg": strategy,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), "utf-8")
