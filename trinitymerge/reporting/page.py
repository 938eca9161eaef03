"""HTML pages without scripts: every text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is HTML already; everything else is escaped."""

    __slots__ = ()


STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1b1b; --soft: #595959; --line: #d0d0d0; --panel: #f6f6f6;
  --blue: #0072b2; --orange: #b85c00; --green: #00795a; --purple: #a0457d; --sky: #2a7fb8; --red: #b3261e; --gray: #6b6b6b; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #ececec; --soft: #b5b5b5; --line: #454a52; --panel: #1f2228;
  --blue: #56b4e9; --orange: #e69f00; --green: #2fc39a; --purple: #d98fbb; --sky: #8ecdf2; --red: #ff8a80; --gray: #a8a8a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p.soft, figcaption, .soft { color: var(--soft); }
.advice { border-left: .3rem solid var(--blue); background: var(--panel); padding: .6rem 1rem; }
.advice.due { border-color: var(--orange); }
figure { margin: 0 0 1rem; } .scroll { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 34rem; height: auto; font: 12px system-ui, sans-serif; fill: var(--text); }
svg.key { display: inline; width: .8rem; min-width: 0; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .soft { fill: var(--soft); }
table { border-collapse: collapse; font-size: .9rem; overflow-wrap: normal; }
.legend span { display: inline-block; margin-right: 1rem; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr + tr td { border-top: 1px solid var(--line); } details { margin: .3rem 0; } summary { cursor: pointer; color: var(--soft); }
pre { background: var(--panel); padding: .7rem; white-space: pre-wrap; font-size: .85rem; }
a { color: var(--blue); }
@media print { body { max-width: none; } details:not([open]) { display: none; } }
"""


def page(title: str, body: Iterable[Html]) -> Html:
    """Return a page that loads nothing: style and pictures are inside, and there is no script."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return Html(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>{tag('h1', title)}\n" + "\n".join(body) + "\n</main></body></html>\n"
    )


def tag(name: str, content: object, **attributes: object) -> Html:
    """Return an element. Text is escaped, :class:`Html` is not; ``class_`` stands for ``class``.

    Example:
        >>> tag("p", "a < b", class_="soft")
        '<p class="soft">a &lt; b</p>'
    """
    named = ((key.rstrip("_").replace("_", "-"), html.escape(str(value))) for key, value in attributes.items())
    shown = "".join(f' {key}="{value}"' for key, value in named)
    return Html(f"<{name}{shown}>{escaped(content)}</{name}>")


def escaped(content: object) -> Html:
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def joined(parts: Iterable[object]) -> Html:
    return Html("".join(map(escaped, parts)))


def section(title: str, *parts: Html) -> Html:
    return Html(f"<section>{tag('h2', title)}{joined(parts)}</section>")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> Html:
    """Return a table, in which None is an empty cell; columns at the positions of ``numbers`` are aligned to the right."""
    right = set(numbers)

    def cells(name: str, values: Sequence[object]) -> Html:
        return joined(
            tag(name, "" if v is None else v, **({"class_": "number"} if i in right else {}))
            for i, v in enumerate(values)
        )

    head = tag("thead", tag("tr", cells("th", heads)))
    body = tag("tbody", joined(tag("tr", cells("td", row)) for row in rows))
    return Html(f'<div class="scroll" tabindex="0">{tag("table", joined([head, body]))}</div>')


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    rows = (tag("tr", joined([tag("th", name, scope="row"), tag("td", value)])) for name, value in pairs)
    return Html(f'<div class="scroll" tabindex="0">{tag("table", tag("tbody", joined(rows)))}</div>')


def folded(summary: str, content: Html) -> Html:
    """Return content that a reader opens."""
    return tag("details", joined([tag("summary", summary), content]))
