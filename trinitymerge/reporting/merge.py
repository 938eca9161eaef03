"""The report of a merge: what it did to how many rows, why it read what it read, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trinitymerge.errors import counted, sized
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.reporting import charts
from trinitymerge.reporting.charts import Bar
from trinitymerge.reporting.page import Html, folded, page, section, table, tag
from trinitymerge.reporting.scales import readable_moment

_SOURCE = (("rowsSource", "read from the source"),)
_WRITTEN = (("rowsAppended", "appended"), ("rowsHistory", "for other tables"))
_SEEN = (("rowsInserted", "inserted"), ("rowsUpdated", "updated"), ("rowsDeleted", "deleted"))
_LEFT_OUT = (
    ("rowsStale", "stale"),
    ("rowsUnchanged", "unchanged"),
    ("rowsPurged", "of purged keys"),
    ("rowsTruncated", "before a truncate"),
    ("rowsQuarantined", "rejected"),
)
_ROWS = (("source", _SOURCE), ("written", _WRITTEN), ("readers see", _SEEN), ("left out", _LEFT_OUT))
_COUNTS = [name for _, parts in _ROWS for name, _ in parts]


@attrs.frozen
class MergeFacts:
    """The facts about a merge, from its result or from the log.

    Attributes:
        counts: rows by the names of ``MergeResult``; None or missing if they were not counted.
        clauses: each clause, and the number of rows to which it applied, if known.
        seconds: by phase.
        notes: maintenance that was done or is due, and rows or columns left out.
        sizes: facts of the table before and after it: a name and two values.
    """

    title: str
    summary: str
    counts: Mapping[str, int | None]
    clauses: Sequence[tuple[str, int | None]] = ()
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    explanation: str = ""
    sql: str = ""
    notes: Sequence[str] = ()
    sizes: Sequence[tuple[str, str, str]] = ()


def facts_of_commit(path: str, commit: Commit, before: Snapshot | None, after: Snapshot) -> MergeFacts:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    counts = {n: _as_count(commit.metrics.get(n)) for n in _COUNTS}
    applied = commit.metrics.get("perClause") or ()
    clauses = [str(text) for text in commit.parameters.get("clauses") or ()]
    known = list(applied) if len(applied) == len(clauses) else [None] * len(clauses)
    took = {} if commit.duration_ms is None else {"all": commit.duration_ms / 1000}
    told = {k: v for k, v in commit.parameters.items() if k != "clauses"}
    strategy = commit.metrics.get("strategy")
    lines = [f"{k}: {v}" for k, v in told.items()] + ([f"strategy: {strategy}"] if strategy else [])
    return MergeFacts(
        title=f"{commit.operation}, version {commit.version} of {name}",
        summary=f"{path}, {readable_moment(commit.timestamp_ms)} UTC{f', by {commit.user}' if commit.user else ''}.",
        counts=counts,
        clauses=[(text, _as_count(n)) for text, n in zip(clauses, known, strict=True)],
        seconds=took,
        explanation="\n".join(lines),
        sizes=_sizes(before, after),
    )


def merge_report(known: MergeFacts) -> Html:
    body = [
        tag("p", known.summary, class_="soft"),
        *(tag("p", note, class_="advice") for note in known.notes),
        section("Rows", *_rows(known.counts)),
    ]
    if known.clauses:
        lines = [(text, "not counted" if rows is None else f"{rows:,}") for text, rows in known.clauses]
        body.append(section("Clauses", table(("clause", "rows it applied to"), lines, (1,))))
    if known.seconds:
        body.append(section("Duration", *_duration(known.seconds)))
    if known.explanation:
        body.append(section("Strategy", tag("pre", known.explanation)))
    if known.sizes:
        body.append(section("The table before and after", table(("what", "before", "after"), known.sizes, (1, 2))))
    if known.sql:
        body.append(section("As SQL", folded("The merge as one query", tag("pre", known.sql))))
    return page(known.title, body)


def _rows(counts: Mapping[str, int | None]) -> list[Html]:
    bars = []
    for name, parts in _ROWS:
        found = [(text, n) for key, text in parts if (n := counts.get(key))]
        if found:
            bars.append((name, [Bar(text, n, f"{text}: {counted(n)}") for text, n in found]))
    unknown = [text for key, text in (*_SOURCE, *_SEEN) if counts.get(key) is None]
    notes = [tag("p", f"Not counted: {', '.join(unknown)}. withCounts() counts.", class_="soft")] if unknown else []
    return [charts.bars("Rows of this merge", bars) if bars else tag("p", "No row was written."), *notes]


def _duration(seconds: Mapping[str, float]) -> list[Html]:
    total = sum(seconds.values())
    parts = [Bar(phase, s, f"{phase}: {s:.2f} s") for phase, s in seconds.items() if s]
    text = tag("p", f"{total:,.2f} s.")
    return [text, charts.bars("Seconds by phase", [("seconds", parts)], "seconds")] if len(parts) > 1 else [text]


def _sizes(before: Snapshot | None, after: Snapshot) -> list[tuple[str, str, str]]:
    def told(snapshot: Snapshot | None) -> Iterable[str]:
        batches = () if snapshot is None else snapshot.batches
        yield f"{len(batches):,}"
        yield f"{sum(b.rows for b in batches):,}"
        yield f"{sum(b.tombstones for b in batches):,}"
        yield sized(sum(b.bytes for b in batches))

    names = ("batches that a read resolves", "stored rows", "tombstones", "size")
    return list(zip(names, told(before), told(after), strict=True))


def _as_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
