"""The command ``ingest``: from files or Kafka into tables."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

import attrs
import click

from trinitymerge.commands.output import CHECK_FAILED, DONE, STOPPED, Column, Output
from trinitymerge.commands.session import Session, session_options
from trinitymerge.errors import counted
from trinitymerge.ingest import config as configs
from trinitymerge.ingest.report import BatchReport, TableReport, Totals, serve

if TYPE_CHECKING:
    from trinitymerge.ingest.micro_batch import Routed
    from trinitymerge.ingest.run import Planned

_ANY = "*"

_PLAN = (
    Column("source", "source"),
    Column("events", "events", str, True),
    Column("rejected", "rejected", str, True, rank=2),
    Column("path", "table"),
    Column("plan", "plan"),
    Column("keys", "primary key", rank=1),
    Column("columns", "columns", rank=3),
)


@click.command()
@click.argument("file", required=False, metavar="[FILE.toml]")
@click.option("--once", "mode", flag_value="once", help="Take what is there now, and end.")
@click.option("--continuous", "mode", flag_value="continuous", default=True, help="Go on until stopped (the default).")
@click.option("--dry-run", is_flag=True, help="Show which tables the messages go into. Write nothing.")
@click.option("--from", "source", metavar="SOURCE", help="files:PATH, or kafka:HOST:PORT/TOPIC,TOPIC.")
@click.option("--format", "format_", metavar="NAME", help="Of the messages: debezium, wal2json, maxwell, ...")
@click.option("--into", metavar="PATH", help="The one table that all events go into.")
@click.option("--keys", metavar="COLUMN,...", help="The primary key of that table, to create it.")
@click.option("--schema", metavar="DDL", help='The columns of that table, such as "id INT, v STRING", to create it.')
@click.option("--table", metavar="NAME", help="The source table; messages of others are skipped.")
@click.option("--root", metavar="PATH", help="The directory of the tables.")
@click.option("--quarantine", metavar="PATH", help="The table for messages that cannot be read.")
@click.option("--app", metavar="NAME", help="The stable name of the stream.")
@click.option("--checkpoint", metavar="PATH", help="The directory of the stream's checkpoint.")
@click.option("--trigger", metavar="TIME", help="Between micro-batches, such as 10s.")
@click.option("--max-records", type=int, metavar="N", help="From Kafka, in a micro-batch.")
@click.option("--max-files", type=int, metavar="N", help="In a micro-batch.")
@click.option("--metrics-port", type=int, metavar="PORT", help="Serve /metrics for Prometheus, and /health.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where to serve them.")
@session_options
@click.pass_obj
def ingest(
    out: Output,
    /,
    file: str | None,
    mode: str,
    dry_run: bool,
    metrics_port: int | None,
    metrics_host: str,
    session: Session,
    **flags: Any,
) -> int:
    """Merge the messages of a change feed into tables, each event exactly once.

    FILE.toml says where messages come from and which tables they go into. Options replace what it says. Without a file, --from and
    --into, or --root, suffice.

    SIGINT and SIGTERM let the micro-batch end that is being merged. Start the same command again to go on.

    Exit codes: 0 done; 2 the configuration is wrong; 3 too many messages, or all of them, cannot be read; 4 a table could not be
    merged.
    """
    config = _config(file, flags)
    runner, failures = map(import_module, ("trinitymerge.ingest.run", "trinitymerge.ingest.micro_batch"))
    stop, totals = threading.Event(), Totals(config.run.app)
    end = serve(totals, metrics_host, metrics_port) if metrics_port is not None and not dry_run else lambda: None

    def going_on(report: BatchReport | TableReport) -> None:
        if not out.as_json:
            out.lines([str(report) if isinstance(report, BatchReport) else f"  {report}"])

    def told(report: BatchReport) -> None:
        totals.add(report)
        if out.as_json:
            out.document(report.toDict(), ())
        else:
            out.lines([f"  done in {report.seconds:.1f} s"])
        if mode != "once" and totals.rejected:
            out.note(f"warning: {_nothing_applied(config, totals.rejected)}")

    try:
        spark = session.spark()
        if dry_run:
            return _show(out, *runner.planned(spark, config))
        with _stopping(stop, out):
            out.note(f"{config.run.app}: reading {config.source}. Each table is reported when it is merged.")
            runner.ingest(spark, config, mode == "once", told, stop, going_on)
        if totals.rejected:
            raise failures.IngestError(
                _nothing_applied(config, totals.rejected), is_rejected=True, reasons=totals.rejected
            )
    except configs.ConfigError as error:  # it does not fit the source
        raise click.UsageError(str(error)) from error
    except failures.IngestError as error:
        out.error(error, str(error))
        return CHECK_FAILED if error.is_rejected else STOPPED
    finally:
        end()
    return DONE


def _nothing_applied(config: configs.Config, reasons: Mapping[str, int]) -> str:
    why = ", ".join(f"{reason} ({n:,})" for reason, n in reasons.items())
    kept = f"They are in the quarantine {config.quarantine}. " if config.quarantine else ""
    return (
        f"All {counted(sum(reasons.values()), 'message')} of this run were rejected: {why}. {kept}Are they of the format "
        f"'{config.feed.format}'? To read them again with another one, give another [run] app."
    )


def _config(file: str | None, flags: Mapping[str, Any]) -> configs.Config:
    """Return what the file says, with what options replace."""
    if file is None and flags["source"] is None:
        raise click.UsageError("Give a FILE.toml, or --from files:PATH, or --from kafka:HOST:PORT/TOPIC.")
    try:
        said = configs.read_config(file) if file else {}
        return configs.config_of(_with_flags(said, flags), file or "")
    except configs.ConfigError as error:
        raise click.UsageError(str(error)) from error


def _with_flags(said: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: dict(v) if isinstance(v, Mapping) else v for name, v in said.items()}

    def put(section: str, key: str, value: Any) -> None:
        if value is not None:
            found.setdefault(section, {})[key] = value

    if flags["source"] is not None:
        found["source"] = {**(found.get("source") or {}), **_source(flags["source"])}
    put("feed", "format", flags["format_"])
    for section, key in (("target", "root"), ("target", "quarantine"), ("run", "app"), ("run", "checkpoint")):
        put(section, key, flags[key])
    if flags["into"] is not None and flags["app"] is None and "app" not in found.get("run", {}):
        put("run", "app", f"ingest {flags['into'].strip('/').replace('/', '-')}")
    put("run", "trigger", flags["trigger"])
    put("run", "maxRecords", flags["max_records"])
    put("run", "maxFiles", flags["max_files"])
    if flags["into"] is None:
        for name in ("keys", "schema", "table"):
            if flags[name] is not None:
                raise click.UsageError(f"--{name} needs --into: it is about one table.")
        return found
    rule = {"path": flags["into"], "keys": [k.strip() for k in (flags["keys"] or "").split(",") if k.strip()]}
    rule |= {key: flags[name] for name, key in (("schema", "schema"), ("table", "source")) if flags[name]}
    found["table"] = [rule, {"source": _ANY, "skip": True}] if flags["table"] else [rule]
    return found


def _source(text: str) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    if kind == "files" and rest:
        return {"kind": kind, "path": rest}
    servers, _, topics = rest.partition("/")
    if kind == "kafka" and servers and topics:
        return {"kind": kind, "servers": servers, "topics": topics.split(",")}
    raise click.UsageError(f"--from takes files:PATH or kafka:HOST:PORT/TOPIC,TOPIC, got '{text}'.")


@contextmanager
def _stopping(stop: threading.Event, out: Output) -> Iterator[None]:
    """Let SIGINT and SIGTERM set an event; the second one ends the process as usual."""

    def asked(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        stop.set()
        out.note("stopping after this micro-batch; once more stops at once")

    if threading.current_thread() is not threading.main_thread():  # of a test, or of a program that calls the command
        yield
        return
    before: dict[int, Callable[..., Any] | int | None] = {n: signal.signal(n, asked) for n in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _show(out: Output, plans: list[Planned], routed: Routed) -> int:
    out.records([{**attrs.asdict(plan), "keys": ",".join(plan.keys)} for plan in plans], _PLAN)
    for word, kinds in (("skipped", routed.skipped), ("rejected", routed.rejected)):
        if kinds:
            out.note(f"without a table, {word}: {', '.join(f'{n:,} {kind}' for kind, n in kinds.items())}")
    is_any = any(plan.events for plan in plans) or not (routed.rejected or any(plan.rejected for plan in plans))
    return DONE if is_any and all(plan.isPossible for plan in plans) else CHECK_FAILED


COMMANDS = (ingest,)
