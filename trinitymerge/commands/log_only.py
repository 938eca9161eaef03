"""Commands that read the log of a table and nothing else: they start no JVM."""

from __future__ import annotations

import re
import webbrowser
from datetime import datetime, timezone
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import click

from trinitymerge._format import prometheus
from trinitymerge.commands import output
from trinitymerge.commands.output import CHECK_FAILED, DONE, Column, Output
from trinitymerge.commands.session import Session, session_options
from trinitymerge.errors import counted, sized
from trinitymerge.log.actions import Batch
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.log.watermarks import readable_watermark
from trinitymerge.maintenance.advice import TableHealth, health_of, unneeded
from trinitymerge.reporting.table import report_of_commit, report_of_log
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.stores.directories import BatchDirectories

_AT = click.option("--at", metavar="VERSION|TIMESTAMP", help="A past version, by number or by time (ISO 8601, UTC).")

_HISTORY = (
    Column("version", "version", str, True),
    Column("timestamp", "when (UTC)", output.moment),
    Column("operation", "operation"),
    Column("rowsSource", "rows in", output.count, True, 4),
    Column("rowsAppended", "appended", output.count, True),
    Column("rowsInserted", "inserted", output.count, True, 3),
    Column("rowsUpdated", "updated", output.count, True, 3),
    Column("rowsDeleted", "deleted", output.count, True, 3),
    Column("strategy", "strategy", output.text, rank=2),
    Column("durationMs", "took", output.seconds, True, 1),
)
_COUNTS = ("rowsSource", "rowsAppended", "rowsInserted", "rowsUpdated", "rowsDeleted")


@click.command()
@click.argument("table")
@click.option("-n", "limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show so many commits.")
@click.option("--all", "everything", is_flag=True, help="Show all commits.")
@click.option("--operation", metavar="NAME", help="Show only commits of one operation, such as MERGE.")
@click.option("--since", metavar="TIMESTAMP", help="Show only commits at or after a time (ISO 8601, UTC).")
@click.pass_obj
def history(out: Output, table: str, limit: int, everything: bool, operation: str | None, since: str | None) -> None:
    """Show the commits of TABLE, newest first."""
    log = CommitLog.open(table)
    newest = log.newest()
    found = log.commits(last=newest.version)
    start = None if since is None else _timestamp(since)
    recent = takewhile(lambda c: start is None or c.timestamp_ms >= start, found)
    chosen = (c for c in recent if operation is None or c.operation.upper() == operation.upper())
    commits = list(chosen if everything else islice(chosen, limit))
    if out.as_json:
        out.records(map(_commit_document, commits), ())
        return
    records = [{**_commit_document(c), **{n: c.metrics.get(n, "") for n in (*_COUNTS, "strategy")}} for c in commits]
    shows_unknown = out.records(records, _HISTORY)
    versions = counted(newest.version - newest.first_version + 1, "version")
    hint = f" {output.UNKNOWN}: not counted; withCounts() counts." if shows_unknown else ""
    out.note(f"{versions}, the newest is {newest.version}.{hint}")


def _commit_document(commit: Commit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "timestamp": output.utc(commit.timestamp_ms),
        "operation": commit.operation,
        "parameters": dict(commit.parameters),
        "metrics": dict(commit.metrics),
        "user": commit.user,
        "durationMs": commit.duration_ms,
    }


def _timestamp(text: str) -> int:
    """Return an ISO 8601 time in milliseconds since the epoch; without an offset it is UTC."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise click.BadParameter(f"expected a time such as 2026-11-24 or 2026-11-24T20:25:57, got '{text}'.") from None
    found = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
    return int(found.timestamp() * 1000)


def _snapshot(table: str, at: str | None) -> Snapshot:
    log = CommitLog.open(table)
    if at is None:
        return log.newest()
    return log.at(int(at) if at.isdecimal() else log.version_at(_timestamp(at)))


@click.command()
@click.argument("table")
@_AT
@click.option("--columns", "only_columns", is_flag=True, help="Show only the columns.")
@click.option("--properties", "only_properties", is_flag=True, help="Show only the properties that are set.")
@click.pass_obj
def show(out: Output, table: str, at: str | None, only_columns: bool, only_properties: bool) -> None:
    """Show what TABLE is: its columns, keys, size, streams and properties."""
    snapshot = _snapshot(table, at)
    definition = snapshot.definition
    columns = list(map(partial(_column_document, definition), definition.fields))
    if only_columns:
        out.records(columns, _COLUMNS)
    elif only_properties:
        out.records([{"name": n, "value": v} for n, v in sorted(definition.properties.items())], _PROPERTIES)
    else:
        document = {"path": table, **_definition_document(definition), "columns": columns, **_size_document(snapshot)}
        out.document(document, _facts(table, snapshot))
        if not out.as_json:
            print()
            out.records(columns, _COLUMNS)


_COLUMNS = (
    Column("name", "column"),
    Column("type", "type"),
    Column("nullable", "nullable", lambda nullable: "yes" if nullable else "no"),
    Column("role", "role"),
    Column("default", "default", output.text, rank=1),
    Column("comment", "comment", output.text, rank=2),
)
_PROPERTIES = (Column("name", "property"), Column("value", "value"))


def _column_document(definition: TableDefinition, field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.text,
        "nullable": field.nullable,
        "role": next((role for role, names in definition.roles.items() if field.name in names), ""),
        "default": field.default,
        "comment": field.comment,
    }


def _definition_document(definition: TableDefinition) -> dict[str, Any]:
    return {
        "primaryKey": definition.primaryKey,
        "watermarkKey": definition.watermarkKey,
        "tombstoneKey": definition.tombstoneKey,
        "tombstoneStringValue": definition.tombstoneStringValue,
        "history": definition.history,
        "clusterBy": definition.clusterBy,
        "fileFormat": definition.fileFormat,
        "comment": definition.comment,
        "checks": [{"name": c.name, "condition": c.condition} for c in definition.checks],
        "properties": dict(sorted(definition.properties.items())),
    }


def _size_document(snapshot: Snapshot) -> dict[str, Any]:
    live, all_batches = snapshot.live_batches, snapshot.batches
    return {
        "version": snapshot.version,
        "timestamp": output.utc(snapshot.timestamp_ms),
        "firstVersion": snapshot.first_version,
        "storedRows": sum(b.rows for b in live),
        "tombstones": sum(b.tombstones for b in live),
        "archivedRows": sum(b.rows for b in all_batches if b.archive),
        "batches": len(all_batches),
        "files": sum(b.files for b in all_batches),
        "bytes": sum(b.bytes for b in all_batches),
        "transactions": dict(sorted(snapshot.transactions.items())),
        "streams": dict(sorted(snapshot.streams.items())),
        "extracts": len(snapshot.extracts),
        "purgedKeys": len(snapshot.purged.hashes) if snapshot.purged else 0,
        "pendingHistoryInserts": [{"path": entry.path, "rows": entry.rows} for entry in snapshot.outbox],
    }


def _facts(table: str, snapshot: Snapshot) -> list[tuple[str, str]]:
    found = _size_document(snapshot)
    archived = f", and {found['archivedRows']:,} in archives" if found["archivedRows"] else ""
    return [
        ("table", table),
        ("version", f"{snapshot.version}, of {output.moment(found['timestamp'])} UTC"),
        *snapshot.definition.facts(),
        ("rows", f"{found['storedRows']:,} stored ({counted(found['tombstones'], 'tombstone')}){archived}"),
        (
            "size",
            f"{sized(found['bytes'])} in {counted(found['files'], 'file')} of {counted(found['batches'], 'batch', 'batches')}",
        ),
        *((f"transaction {name}", f"{number}") for name, number in found["transactions"].items()),
        *((f"stream {name}", query) for name, query in found["streams"].items()),
        *([("extracts", f"{found['extracts']:,}")] if found["extracts"] else []),
        *([("purged keys", f"{found['purgedKeys']:,}")] if found["purgedKeys"] else []),
        *(("pending", f"{counted(entry['rows'])} for {entry['path']}") for entry in found["pendingHistoryInserts"]),
    ]


@click.command()
@click.argument("table")
@_AT
@click.pass_obj
def batches(out: Output, table: str, at: str | None) -> None:
    """Show the batches that TABLE consists of, oldest first."""
    snapshot = _snapshot(table, at)
    out.records([_batch_document(b, snapshot.definition) for b in snapshot.batches], _BATCHES)


_BATCHES = (
    Column("version", "version", output.count, True),
    Column("kind", "kind"),
    Column("rows", "rows", output.count, True),
    Column("tombstones", "tombstones", output.count, True, 2),
    Column("files", "files", output.count, True, 3),
    Column("bytes", "size", sized, True),
    Column("merges", "merges", output.count, True, 4),
    Column("watermarkMin", "watermark from", output.values, rank=1),
    Column("watermarkMax", "to", output.values, rank=1),
    Column("id", "id", rank=5),
)


def _batch_document(batch: Batch, definition: TableDefinition) -> dict[str, Any]:
    return {
        "version": batch.version,
        "kind": _kind(batch),
        "rows": batch.rows,
        "tombstones": batch.tombstones,
        "files": batch.files,
        "bytes": batch.bytes,
        "merges": batch.merges,
        "watermarkMin": readable_watermark(batch.watermark_min, definition),
        "watermarkMax": readable_watermark(batch.watermark_max, definition),
        "id": batch.id,
    }


def _kind(batch: Batch) -> str:
    if batch.archive:
        return "archive"
    if batch.segment_of:
        return "segment"
    if batch.base:
        return "base"
    return "minor compaction" if batch.merges > 1 else "batch"


@click.command()
@click.argument("table")
@click.option(
    "--fail-on",
    type=click.Choice(["due", "warn"]),
    help="Exit with 3 if a compaction or delivery is due; with warn, also if a vacuum frees much space now.",
)
@click.option(
    "--files",
    is_flag=True,
    help="List the files of the table: compare them with the log, and count the bytes that vacuum frees.",
)
@click.option("--prometheus", is_flag=True, help="Write the numbers as Prometheus text.")
@click.pass_obj
def health(out: Output, table: str, fail_on: str | None, files: bool, prometheus: bool) -> int:
    """Show what TABLE needs next, by its log.

    Live rows are not counted, because that takes a read: TrinityTable.health() counts them.
    """
    log = CommitLog.open(table)
    snapshot = log.newest()
    directories = BatchDirectories.at(log.files.fs, log.files.table_path)
    if files:
        directories.verify_files(snapshot.batches)
    lists = files or fail_on == "warn"
    found = health_of(snapshot, unneeded=unneeded(directories, snapshot, log.commits()) if lists else None)
    if prometheus:
        print(prometheus_text(table, found, snapshot), end="")
    else:
        out.document(found.toDict(), found.facts())
    is_due = found.action in _DUE or (fail_on == "warn" and found.action != "nothing")
    return CHECK_FAILED if fail_on and is_due else DONE


_DUE = ("compact()", "any write")


def prometheus_text(table: str, found: TableHealth, snapshot: Snapshot) -> str:
    numbers = {name: value for name, value in found.toDict().items() if isinstance(value, (int, float))}
    numbers["lastCommitTimestampSeconds"] = snapshot.timestamp_ms / 1000
    numbers["compactionDue"] = int(found.action == "compact()")
    lines = list[str]()
    for name, value in numbers.items():
        lines += prometheus(re.sub("([A-Z])", r"_\1", name).lower(), "gauge", [([("table", table)], value)])
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("table")
@click.option(
    "-o", "--output", "target", metavar="FILE", help="Where to write the page; - is stdout. Default: TABLE's name.html."
)
@click.option("--at", type=click.IntRange(min=0), metavar="VERSION", help="Report a past version.")
@click.option("--merge", type=click.IntRange(min=0), metavar="VERSION", help="Report the merge that made a version.")
@click.option("--keys", is_flag=True, help="Also show the watermarks of batches, which are values of rows.")
@click.option("--scan", is_flag=True, help="Also count the live rows and the stored rows of each key, with Spark.")
@click.option("--open", "show_it", is_flag=True, help="Open the page in a browser.")
@session_options
@click.pass_obj
def report(
    out: Output,
    table: str,
    target: str | None,
    at: int | None,
    merge: int | None,
    keys: bool,
    scan: bool,
    show_it: bool,
    session: Session,
) -> None:
    """Write a report of TABLE, or of one merge into it, as one HTML page, from its log."""
    if merge is not None and (keys or scan or at is not None):
        raise click.UsageError("--merge reports one version. It is not used with --at, --keys or --scan.")
    if scan and target == "-":
        raise click.UsageError("--scan writes a file. It is not used with -o -.")
    name = table.rstrip("/").rsplit("/", 1)[-1]
    path = Path(target or f"{name}{'' if merge is None else f'-{merge}'}.html")
    if scan:
        session.table(table, None if at is None else str(at)).report(str(path), keys, scan=True)
    else:
        log = CommitLog.open(table)
        page = report_of_log(log, at, keys) if merge is None else report_of_commit(log, merge)
        if target == "-":
            print(page, end="")
            return
        path.write_text(page, "utf-8")
    out.document({"path": str(path)}, [("", str(path))])
    if show_it:
        webbrowser.open(path.resolve().as_uri())


COMMANDS = (history, show, batches, health, report)
