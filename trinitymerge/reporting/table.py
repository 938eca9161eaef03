"""The report of a table: what happened to it, and what a read of it has to do. Reads the log, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta, timezone
from itertools import groupby
from typing import Any

import attrs

from trinitymerge.errors import counted, sized
from trinitymerge.log.actions import Batch
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.log.watermarks import readable_watermark
from trinitymerge.maintenance.advice import StoredKeys, TableHealth, health_of
from trinitymerge.reporting import charts
from trinitymerge.reporting.charts import Bar, Point
from trinitymerge.reporting.merge import facts_of_commit, merge_report
from trinitymerge.reporting.page import Html, facts, folded, joined, page, section, table, tag
from trinitymerge.reporting.scales import readable_moment

MOST_POINTS = 250
"""A chart of more commits shows one point for a span of time, so that a page stays small."""

_SLOWEST = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@attrs.frozen
class _Size:
    """The rows that a version stores, by what they are to a reader."""

    version: int
    base: int
    pending: int
    archived: int


def report_of_log(log: CommitLog, version: int | None = None, keys: bool = False) -> Html:
    """Return the report of a table by its log, at a past version or the newest; ``keys`` as of :func:`table_report`."""
    snapshot = log.newest() if version is None else log.at(version)
    commits = log.commits(last=snapshot.version, newest_first=False)
    return table_report(log.files.table_path, snapshot, list(commits), keys)


def report_of_commit(log: CommitLog, version: int) -> Html:
    """Return the report of the merge, or another operation, that made a version, by what the log knows of it."""
    after = log.at(version)
    commit = next(iter(log.commits(last=version)))
    before = None if commit.initial_snapshot or not version else log.at(version - 1)
    return merge_report(facts_of_commit(log.files.table_path, commit, before, after))


def table_report(
    path: str, snapshot: Snapshot, commits: Sequence[Commit], keys: bool = False, stored: StoredKeys | None = None
) -> Html:
    """Return a page about a table at a version, after some commits, oldest first. It needs no other file.

    With ``keys`` it shows values of rows: the smallest and largest watermark of each batch, and keys of which many rows are stored.
    """
    name = path.rstrip("/").rsplit("/", 1)[-1]
    when = readable_moment(snapshot.timestamp_ms)
    body = [
        tag("p", f"{path}, version {snapshot.version} of {when} UTC", class_="soft"),
        _advice(health_of(snapshot)),
        section("Work of a read", *_reads(snapshot)),
        *([section("Stored rows of each key", *_keys(stored, keys))] if stored is not None else []),
        section("History", *_happened(commits)),
        section("Duration", *_time(commits)),
        *([section("Late rows", *late)] if keys and (late := _late(commits, snapshot)) else []),
        section("Definition", _definition(snapshot)),
        section("Streams and transactions", _applications(snapshot)),
    ]
    return page(f"Table {name}", body)


def table_summary(path: str, snapshot: Snapshot, commits: Sequence[Commit]) -> Html:
    """Return what a notebook shows of a table, without a job: its state, next step and columns, and rows of the last commits."""
    health = health_of(snapshot)
    added = [sum(b.rows for b in c.added) for c in commits]
    line = charts.sparkline(added, "rows added by the last commits") if len(added) > 1 else Html("")
    shown: list[tuple[str, object]] = [
        ("table", path),
        ("version", f"{snapshot.version}, of {readable_moment(snapshot.timestamp_ms)} UTC"),
        ("rows", f"{health.storedRows:,} stored, {sized(health.bytes)}"),
        ("next", f"{health.action}: {health.reason}"),
        ("rows added", line),
    ]
    return joined([facts(shown), _definition(snapshot)])


def _advice(found: TableHealth) -> Html:
    due = found.action != "nothing"
    text = f"Next: {found.action}: {found.reason}." if due else f"Nothing is due: {found.reason}."
    return tag("p", text, class_="advice due" if due else "advice")


def _reads(snapshot: Snapshot) -> list[Html]:
    parts = _parts(snapshot)
    rows = {kind: sum(b.rows for b in found) for kind, found in parts.items()}
    sizes = {kind: sum(b.bytes for b in found) for kind, found in parts.items()}
    lines = [
        (kind, f"{len(found):,}", f"{rows[kind]:,}", f"{sum(b.tombstones for b in found):,}", sized(sizes[kind]))
        for kind, found in parts.items()
    ]
    if not parts:
        return [tag("p", "The table is empty.")]
    bars = [("rows", [Bar(kind, n, f"{kind}: {counted(n)}") for kind, n in rows.items()])]
    size_bars = [("bytes", [Bar(kind, n, f"{kind}: {sized(n)}") for kind, n in sizes.items()])]
    return [
        charts.bars("Stored rows of this version", bars),
        charts.bars("Stored bytes of this version", size_bars, "bytes"),
        table(("part", "batches", "rows", "tombstones", "size"), lines, range(1, 5)),
    ]


def _parts(snapshot: Snapshot) -> dict[str, list[Batch]]:
    """Return the batches of a version by what they are to a reader, without empty parts."""
    found: dict[str, list[Batch]] = {"base": [], "minor compactions": [], "pending batches": [], "archives": []}
    for batch in snapshot.batches:
        found[_part(batch)].append(batch)
    return {kind: batches for kind, batches in found.items() if batches}


def _part(batch: Batch) -> str:
    if batch.archive:
        return "archives"
    if batch.base:
        return "base"
    return "minor compactions" if batch.merges > 1 else "pending batches"


def _keys(stored: StoredKeys, with_examples: bool) -> list[Html]:
    rows, keys = sum(n * of for n, of in stored.keys.items()), sum(stored.keys.values())
    if not keys:
        return [tag("p", "No row is stored.")]
    text = f"{counted(rows)} of {counted(keys, 'key')} stored, {counted(stored.liveRows)} live."
    spans = Counter[int]()
    for n, of in stored.keys.items():
        spans[(n - 1).bit_length()] += of
    counts = [(_span(s), of) for s, of in sorted(spans.items())]
    bars = [(span, [Bar("keys", of, f"{span} stored: {counted(of, 'key')}")]) for span, of in counts]
    most = [(f"{n:,}", f"{stored.keys[n]:,}", stored.examples[n]) for n in sorted(stored.keys, reverse=True)[:_SLOWEST]]
    examples = [table(("stored rows", "keys", "one of them"), most, (0, 1))] if with_examples else []
    return [tag("p", text), charts.bars("Keys by their stored rows", bars), *examples]


def _span(bits: int) -> str:
    """Return in words the counts that need so many bits, less one: 1, 2, 3 to 4, 5 to 8 rows."""
    low, high = (1 << bits >> 1) + 1, 1 << bits
    return counted(high) if bits < 2 else f"{low:,} to {high:,}"


def _happened(commits: Sequence[Commit]) -> list[Html]:
    points = [
        Point(
            c.timestamp_ms,
            sum(b.rows for b in c.added),
            c.operation,
            f"version {c.version}, {c.operation}, {readable_moment(c.timestamp_ms)}: {counted(sum(b.rows for b in c.added))} added",
        )
        for c in commits
    ]
    sizes = _sizes(commits)
    step = -(-len(sizes) // MOST_POINTS)
    sizes = [*sizes[:-1:step], sizes[-1]] if step > 1 else sizes
    stored = charts.areas(
        "Rows stored by version",
        [s.version for s in sizes],
        [
            ("base", [s.base for s in sizes]),
            ("pending", [s.pending for s in sizes]),
            *([("archived", [s.archived for s in sizes])] if any(s.archived for s in sizes) else []),
        ],
    )
    counts = Counter(c.operation for c in commits)
    done = ", ".join(f"{counted(n, operation, operation)}" for operation, n in counts.most_common())
    return [
        tag("p", f"{counted(len(commits), 'commit')} since {readable_moment(commits[0].timestamp_ms)} UTC: {done}."),
        charts.timeline("Rows added by each commit", _binned(points)),
        *_rejected(commits),
        stored,
    ]


def _rejected(commits: Sequence[Commit]) -> list[Html]:
    """Return the rows that each commit has put into a quarantine (S47), if any has."""
    points = [
        Point(c.timestamp_ms, n, c.operation, f"version {c.version}, {c.operation}: {counted(n)} rejected")
        for c in commits
        if isinstance(n := c.metrics.get("rowsQuarantined"), int) and n
    ]
    title = "Rows rejected by each commit: they are in a quarantine"
    return [charts.timeline(title, _binned(points))] if points else []


def _sizes(commits: Iterable[Commit]) -> list[_Size]:
    present: dict[str, Batch] = {}
    totals: Counter[str] = Counter()
    found = []
    for commit in commits:
        for gone in commit.removed:
            batch = present.pop(gone, None)
            if batch is not None:
                totals[_part(batch)] -= batch.rows
        for batch in commit.added:
            present[batch.id] = batch
            totals[_part(batch)] += batch.rows
        pending = totals["minor compactions"] + totals["pending batches"]
        found.append(_Size(commit.version, totals["base"], pending, totals["archives"]))
    return found


def _time(commits: Sequence[Commit]) -> list[Html]:
    timed = [c for c in commits if c.duration_ms is not None]
    if not timed:
        return [tag("p", "No commit says how long it took.")]
    points = [
        Point(c.timestamp_ms, (c.duration_ms or 0) / 1000, _way(c), f"version {c.version}, {_way(c)}: {_seconds(c)}")
        for c in timed
    ]
    slowest = sorted(timed, key=lambda c: c.duration_ms or 0, reverse=True)[:_SLOWEST]
    rows = [(f"{c.version:,}", c.operation, _way(c), _seconds(c), _condition(c)) for c in slowest]
    lines = table(("version", "operation", "strategy", "took", "condition"), rows, (0, 3))
    return [
        charts.timeline("Seconds of each commit", _binned(points, by_sum=False), "seconds"),
        folded(f"The {len(slowest)} slowest commits", lines),
    ]


def _late(commits: Sequence[Commit], snapshot: Snapshot) -> list[Html]:
    """Return the watermark range of each appended batch, by the first watermark column."""
    spans: list[tuple[int, Any, Any]] = [
        (c.version, low[0], high[0])
        for c in commits
        if not c.removed
        for b in c.added
        if (low := readable_watermark(b.watermark_min, snapshot.definition))
        and (high := readable_watermark(b.watermark_max, snapshot.definition))
        and None not in (low[0], high[0])
    ][-MOST_POINTS:]
    if not spans:
        return []
    values = [value for _, low, high in spans for value in (low, high)]
    numbers = {value: number for value in values if (number := _as_number(value)) is not None}
    if len(numbers) == len({*values}):
        axis = charts.value_axis(list(numbers.values()), isinstance(values[0], date))
    elif all(isinstance(value, str) for value in values):
        texts = sorted({*values}, key=str.encode)  # the order of Spark
        numbers, axis = {text: float(place) for place, text in enumerate(texts)}, charts.order_axis(texts)
    else:
        return []
    known = [(version, numbers[low], numbers[high], f"{low} to {high}") for version, low, high in spans]
    column = snapshot.definition.watermarkKey[0]
    return [charts.ranges(f"Watermarks ({column}) of each batch: an overlap is rows that came late", known, axis)]


def _as_number(value: object) -> float | None:
    """Return a number as it is, and a date or time as milliseconds since the epoch; None for other values."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or timezone.utc) - _EPOCH) / timedelta(milliseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()) / timedelta(milliseconds=1)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _definition(snapshot: Snapshot) -> Html:
    definition = snapshot.definition
    key_of = {name: role for role, names in definition.roles.items() for name in names}
    rows = [
        (f.name, f.text, "yes" if f.nullable else "no", key_of.get(f.name), f.default, f.comment)
        for f in definition.fields
    ]
    columns = table(("column", "type", "nullable", "role", "default", "comment"), rows)
    return joined([columns, facts(fact for fact in definition.facts() if fact[0] not in definition.roles)])


def _applications(snapshot: Snapshot) -> Html:
    if not snapshot.transactions:
        return tag("p", "None.")
    rows = [(name, f"{n:,}", snapshot.streams.get(name)) for name, n in sorted(snapshot.transactions.items())]
    return table(("application", "last number", "streaming query"), rows[-MOST_POINTS:], (1,))


def _binned(points: Sequence[Point], by_sum: bool = True) -> list[Point]:
    """Return points, or one for each kind and span of time if there are too many: their sum, or the largest."""
    if len(points) <= MOST_POINTS:
        return list(points)
    first, last = points[0].x, points[-1].x
    span = max(1.0, (last - first) / (MOST_POINTS / 3))
    order = sorted(points, key=lambda p: (int((p.x - first) // span), p.kind))
    found = []
    for (number, kind), group in groupby(order, key=lambda p: (int((p.x - first) // span), p.kind)):
        members = list(group)
        value = sum(p.y for p in members) if by_sum else max(p.y for p in members)
        begin = readable_moment(int(first + number * span))
        what = "together" if by_sum else "the slowest"
        note = f"{counted(len(members), kind, kind)} from {begin}: {what} {value:,.6g}"
        found.append(Point(first + (number + 0.5) * span, value, kind, note))
    return found


def _way(commit: Commit) -> str:
    """Return how a merge read its target; of other commits the operation."""
    return str(commit.metrics.get("strategy") or commit.operation.lower())


def _condition(commit: Commit) -> str:
    return str(commit.parameters.get("condition") or commit.parameters.get("call") or "")


def _seconds(commit: Commit) -> str:
    return f"{(commit.duration_ms or 0) / 1000:,.1f} s"
