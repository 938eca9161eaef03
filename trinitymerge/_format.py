"""Results as HTML tables for notebooks, as dicts for programs, and as numbers for Prometheus."""

from __future__ import annotations

import html
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import attrs


class Result:
    """A result that programs read, as an attrs class."""

    __slots__ = ()

    def toDict(self) -> dict[str, Any]:
        """Return the attributes by name, in plain values that ``json`` can write; without the texts that only reports show.

        Example:
            >>> orders.compact().toDict()["batches"]
            0
        """
        return attrs.asdict(self, filter=lambda attribute, _: bool(attribute.repr))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return :meth:`toDict`, under its name in version 0.1.0."""
        warnings.warn("to_dict() is deprecated: it is called toDict().", DeprecationWarning, stacklevel=2)
        return self.toDict()


class Text(str):
    r"""Text of several lines that an interactive session prints.

    Example:
        >>> Text("reads\n  nothing")
        reads
          nothing
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus(name: str, kind: str, values: Iterable[tuple[Iterable[tuple[str, str]], float]]) -> list[str]:
    """Return the lines of a metric: its kind, and each value with its labels; nothing without values."""
    whole, shown = f"trinitymerge_{name}", list[str]()
    for labels, value in values:
        named = ",".join(f'{label}="{text.translate(_LABEL)}"' for label, text in labels)
        shown.append(f"{whole}{{{named}}} {value}")
    return [f"# TYPE {whole} {kind}", *shown] if shown else []


def pairs(facts: Iterable[tuple[str, object]]) -> str:
    """Return a table with a name and a value in each row; lists take several lines, and None is unknown.

    Example:
        >>> print(pairs([("rows", 3), ("why", ["a < b", "c"]), ("deleted", None)]).replace("<tr>", chr(10) + "<tr>"))
        <table>
        <tr><th style='text-align:left'>rows</th><td>3</td></tr>
        <tr><th style='text-align:left'>why</th><td>a &lt; b<br>c</td></tr>
        <tr><th style='text-align:left'>deleted</th><td>unknown</td></tr></table>
    """
    return _table(f"{_head(name)}{_cell(value)}" for name, value in facts)


def grid(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a header row.

    Example:
        >>> grid(["column"], [["<b>"]])
        "<table><tr><th style='text-align:left'>column</th></tr><tr><td>&lt;b&gt;</td></tr></table>"
    """
    return _table(["".join(map(_head, heads)), *("".join(map(_cell, row)) for row in rows)])


def _table(rows: Iterable[str]) -> str:
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _head(name: str) -> str:
    return f"<th style='text-align:left'>{html.escape(name)}</th>"


def _cell(value: object) -> str:
    lines = value if isinstance(value, (list, tuple)) else ["unknown" if value is None else value]
    return f"<td>{'<br>'.join(html.escape(str(line)) for line in lines)}</td>"
