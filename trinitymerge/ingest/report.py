"""The report of a micro-batch, and the sums of all, for people, programs and Prometheus."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from trinitymerge._format import Result, prometheus
from trinitymerge.errors import counted


@attrs.frozen
class TableReport:
    """The report of a micro-batch about one table.

    Attributes:
        source: the source table; empty if all events go into one table.
        skipped: its messages that are not events.
        rejected: its messages and rows in the quarantine, by reason.
        lag: seconds between the commit of the newest event at the source and the end of the merge; None if messages have no time.
        repeated: the table had this micro-batch before; the counts are zero then.
    """

    source: str
    path: str
    read: int = 0
    upserts: int = 0
    deletes: int = 0
    truncates: int = 0
    skipped: int = 0
    rejected: Mapping[str, int] = attrs.field(factory=dict)
    appended: int = 0
    seconds: float = 0.0
    lag: float | None = None
    version: int | None = None
    repeated: bool = False
    error: str = ""

    def __str__(self) -> str:
        name = self.source or self.path
        if self.error:
            return f"{name}: {self.error}"
        if self.repeated:
            return f"{name}: had this micro-batch before"
        counts = [(self.upserts, "upserts"), (self.deletes, "deletes"), (self.truncates, "truncates")]
        counts.append((self.skipped, "skipped"))
        counts += [(n, f"rejected as {reason}") for reason, n in self.rejected.items()]
        told = ", ".join(f"{n:,} {word}" for n, word in counts if n) or "no events"
        late = "" if self.lag is None else f", {self.lag:,.1f} s behind"
        read, rows = counted(self.read, "message"), counted(self.appended)
        return f"{name}: {read} ({told}), {rows} in {self.seconds:.1f} s{late}"


@attrs.frozen
class BatchReport(Result):
    """The report of a micro-batch; as it begins, it has no seconds and no tables.

    Attributes:
        skipped: messages that are of no table and are not events, or are of tables to be skipped, by kind.
        rejected: messages that are of no table and cannot be read, by reason.
    """

    number: int
    read: int
    skipped: Mapping[str, int]
    rejected: Mapping[str, int]
    seconds: float = 0.0
    tables: tuple[TableReport, ...] = ()

    def __str__(self) -> str:
        head = f"micro-batch {self.number}: {counted(self.read, 'message')}"
        for word, kinds in (("skipped", self.skipped), ("rejected", self.rejected)):
            if kinds:
                head += f"; {word} without a table: {', '.join(f'{n:,} {kind}' for kind, n in kinds.items())}"
        return head


_SUMMED = ("read", "upserts", "deletes", "truncates", "skipped", "appended", "seconds")


class Totals:
    """The sums of all micro-batches, for Prometheus. Threads may read them while one adds."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._tables: dict[str, TableReport] = {}
        self._others: dict[tuple[str, str], int] = {}
        self._batches, self._last, self._has_repeated = 0, time.time(), False

    def add(self, batch: BatchReport) -> None:
        with self._lock:
            self._batches, self._last = self._batches + 1, time.time()
            for kind, found in (("skipped", batch.skipped), ("rejected", batch.rejected)):
                for reason, number in found.items():
                    self._others[kind, reason] = self._others.get((kind, reason), 0) + number
            for table in batch.tables:
                self._has_repeated |= table.repeated
                name = table.source or table.path
                before = self._tables.get(name, TableReport(table.source, table.path))
                sums: dict[str, Any] = {n: getattr(before, n) + getattr(table, n) for n in _SUMMED}
                rejected = Counter(before.rejected)
                rejected.update(table.rejected)
                self._tables[name] = attrs.evolve(table, rejected=dict(rejected), **sums)

    @property
    def rejected(self) -> dict[str, int]:
        """The rejected messages by reason, if messages were rejected and none was applied, now or before; else nothing."""
        with self._lock:
            tables = self._tables.values()
            if self._has_repeated or any(t.upserts or t.deletes or t.truncates for t in tables):
                return {}
            found = Counter({reason: n for (kind, reason), n in self._others.items() if kind == "rejected"})
            for table in tables:
                found.update(table.rejected)
            return dict(sorted(found.items()))

    def health(self) -> dict[str, Any]:
        with self._lock:
            return {
                "status": "ok",
                "app": self._app,
                "batches": self._batches,
                "secondsSinceLastBatch": round(time.time() - self._last, 1),
            }

    def metrics(self) -> str:
        with self._lock:
            tables, others = list(self._tables.values()), dict(self._others)
            batches, last = self._batches, self._last
        app = [("app", self._app)]
        named = [([*app, ("source", t.source), ("table", t.path)], t) for t in tables]
        lines = prometheus("ingest_batches_total", "counter", [(app, batches)])
        lines += prometheus("ingest_last_batch_timestamp_seconds", "gauge", [(app, round(last, 3))])
        messages = [
            ([*labels, ("kind", kind)], getattr(t, kind))
            for labels, t in named
            for kind in ("upserts", "deletes", "truncates", "skipped")
        ]
        messages += [
            ([*labels, ("kind", "rejected"), ("reason", reason)], n)
            for labels, t in named
            for reason, n in t.rejected.items()
        ]
        rest = [([*app, ("kind", kind), ("reason", reason)], n) for (kind, reason), n in others.items()]
        lines += prometheus("ingest_messages_total", "counter", messages)
        lines += prometheus("ingest_messages_without_table_total", "counter", rest)
        lines += prometheus("ingest_rows_appended_total", "counter", [(labels, t.appended) for labels, t in named])
        lines += prometheus(
            "ingest_merge_seconds_total", "counter", [(labels, round(t.seconds, 3)) for labels, t in named]
        )
        lags = [(labels, round(t.lag, 3)) for labels, t in named if t.lag is not None]
        lines += prometheus("ingest_lag_seconds", "gauge", lags)
        return "\n".join([*lines, ""])


def serve(totals: Totals, host: str, port: int) -> Callable[[], None]:
    """Serve ``/metrics`` and ``/health`` in the background. Return a function that ends it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages = {
                "/metrics": ("text/plain; version=0.0.4", totals.metrics),
                "/health": ("application/json", lambda: json.dumps(totals.health())),
            }
            found = pages.get(self.path.partition("?")[0])
            body = found[1]().encode() if found else b"see /metrics and /health\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", found[0] if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Be silent: stderr is for people."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end
