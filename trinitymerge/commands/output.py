"""Write results to stdout: as tables for people, as tab-separated text for pipes, as JSON for programs."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from trinitymerge._format import Result
from trinitymerge.errors import TrinityMergeError, counted

DONE, FAILED, WRONG_USAGE, CHECK_FAILED, STOPPED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 130, 141
"""The exit codes. ``FAILED`` is an error of the table, its storage or Spark; ``CHECK_FAILED`` a check that answers no."""

_GAP, _NARROWEST = 3, 8
"""Characters between columns of a table, and those that a cut column keeps at least."""

UNKNOWN = "?"
"""The text for a count that was not taken."""


@attrs.frozen
class Column:
    """One column of a table of results.

    Attributes:
        show: turns a value into text for people; the text of pipes is plain.
        rank: on a narrow terminal, columns with the largest ranks are left out first; those of rank 0 only if even
            cut columns have no room, from the right.
    """

    key: str
    head: str
    show: Callable[[Any], str] = str
    is_number: bool = False
    rank: int = 0


@attrs.frozen
class Output:
    """Where and how a command writes: ``with_color`` if stdout is a terminal, and with tracebacks if ``is_verbose``."""

    as_json: bool = False
    with_color: bool = True
    is_verbose: bool = False

    def records(self, records: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> bool:
        """Write records: one JSON line each, or a table. A pipe gets all digits and no padding.

        Return whether a count is shown as :data:`UNKNOWN`.
        """
        if self.as_json:
            for record in records:
                print(to_json(record))
        elif sys.stdout.isatty():
            console = Console(no_color=not self.with_color, highlight=False)
            table, left_out = _table(list(records), columns, console.width)
            console.print(table)
            if left_out:
                self.note(f"{counted(left_out, 'more column')} had no room; a pipe and --json have all of them.")
            return any(str(cell) == UNKNOWN for column in table.columns for cell in column.cells)
        else:
            print("\t".join(visible(c.key) for c in columns))
            for record in records:
                print("\t".join(plain(record.get(c.key)) for c in columns))
        return False

    def result(self, result: Result) -> None:
        print(to_json(result.toDict()) if self.as_json else visible(str(result)))

    def document(self, document: Mapping[str, Any], facts: Iterable[tuple[str, str]]) -> None:
        """Write one result: a JSON document, or names and values in lines."""
        if self.as_json:
            print(to_json(document), flush=True)
            return
        lines = list(facts)
        width = max(len(name) for name, _ in lines)
        for name, text in lines:
            print(visible(f"{name:{width}}  {text}" if width else text))

    def lines(self, lines: Iterable[str]) -> None:
        """Write lines that appear at once, also in a pipe."""
        for line in lines:
            print(visible(line), flush=True)

    def note(self, text: str) -> None:
        """Write a hint for people to stderr."""
        if not self.as_json:
            print(visible(text), file=sys.stderr)

    def error(self, error: BaseException, text: str) -> None:
        """Write an error: a line on stderr, and with JSON a document on stdout."""
        if self.as_json:
            facts = error.facts if isinstance(error, TrinityMergeError) else {}
            print(to_json({"error": {"type": type(error).__name__, "message": text, **facts}}))
        print(f"error: {visible(text)}", file=sys.stderr)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, or turn the direction of writing: all but tabs and line breaks."""


def visible(text: str) -> str:
    r"""Return a text that a terminal shows as it is: control characters become escapes, as in Python.

    Comments, names and values of a table are of other people. They could set the title of a terminal, or hide what follows.

    Example:
        >>> print(visible(chr(27) + "[31mred"))
        \x1b[31mred
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def to_json(value: Any) -> str:
    """Return a value as one line of JSON, without control characters.

    Timestamps are ISO 8601 in UTC, decimals are text, bytes are base64.

    Example:
        >>> from decimal import Decimal
        >>> to_json({"at": datetime(2026, 1, 2, tzinfo=timezone.utc), "amount": Decimal("1.50"), "raw": b"a"})
        '{"at": "2026-01-02T00:00:00Z", "amount": "1.50", "raw": "YQ=="}'
    """
    text = json.dumps(value, default=_json_value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def utc(timestamp_ms: int) -> datetime:
    """Return a log's timestamp, milliseconds since the epoch, as a time in UTC."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)


def seconds(duration_ms: int | None) -> str:
    """Return a duration for people; nothing for None."""
    return "" if duration_ms is None else f"{duration_ms / 1000:,.1f} s"


def count(value: int | str | None) -> str:
    """Return a count for people; ``?`` if it was not taken. A value that is not a count stays as it is."""
    return UNKNOWN if value is None else f"{value:,}" if isinstance(value, int) else value


def moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}"


def text(value: str | None) -> str:
    return value or ""


def values(found: Sequence[object] | None) -> str:
    return ", ".join(moment(v) if isinstance(v, datetime) else str(v) for v in found or ())


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)  # dates and decimals, too


def plain(value: Any) -> str:
    """Return a value as text without line breaks, tabs and other control characters; structures are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return visible(value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n"))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    text = to_json(value)
    return text[1:-1] if text.startswith('"') else text


def _table(records: Sequence[Mapping[str, Any]], columns: Sequence[Column], width: int) -> tuple[Table, int]:
    """Return a table that fits a terminal, and how many columns of rank 0 had no room."""
    texts = {c.key: [_cell(c.head), *(_cell(c.show(record.get(c.key))) for record in records)] for c in columns}
    needed = {key: max(map(cell_len, cells)) for key, cells in texts.items()}
    shown = _fitting(columns, needed, width)
    widest = _widest([needed[c.key] for c in shown], width - _GAP * (len(shown) - 1))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in shown:
        justify: JustifyMethod = "right" if column.is_number else "left"
        cells = min(needed[column.key], widest)
        table.add_column(Text(texts[column.key][0]), justify=justify, overflow="ellipsis", no_wrap=True, width=cells)
    for row in range(1, len(records) + 1):
        table.add_row(*[Text(texts[column.key][row]) for column in shown])
    return table, sum(not c.rank for c in columns) - sum(not c.rank for c in shown)


def _cell(text: str) -> str:
    """Return a text for a cell: a line break or a tab in it would break the table."""
    return visible(text.replace("\n", "\\n").replace("\t", "\\t"))


def _fitting(columns: Sequence[Column], needed: Mapping[str, int], width: int) -> list[Column]:
    """Return the columns that have room side by side: without those of large ranks, then without the last ones."""
    shown = list(columns)
    while sum(needed[c.key] + _GAP for c in shown) - _GAP > width and any(c.rank for c in shown):
        shown.remove(max(shown, key=lambda c: c.rank))
    while len(shown) > 1 and sum(min(needed[c.key], _NARROWEST) + _GAP for c in shown) - _GAP > width:
        shown.pop()
    return shown


def _widest(needed: Sequence[int], width: int) -> int:
    """Return the width at which wide columns are cut, so that all fit and narrow ones stay whole."""
    left, share = width, width
    for number, wanted in enumerate(sorted(needed)):
        share = left // (len(needed) - number)
        if wanted > share:
            return max(share, 1)
        left -= wanted
    return max(needed, default=share)
