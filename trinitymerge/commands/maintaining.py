"""Commands that maintain or copy a table with Spark. Those that delete, or restore a version, ask first."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from trinitymerge.commands.output import Output
from trinitymerge.commands.reading import AT, keys_of, typed_keys
from trinitymerge.commands.session import Session, with_session
from trinitymerge.errors import counted

YES = click.option("--yes", is_flag=True, help="Do not ask.")


def _ask(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere require --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Confirm it with --yes. Nothing was changed.")
    click.confirm(question, abort=True, err=True)


@click.command()
@click.argument("table")
@click.option("--full", is_flag=True, help="Rewrite every segment, also where little has changed.")
@click.option("--dry-run", is_flag=True, help="Show what would be rewritten, and change nothing.")
@with_session
@click.pass_obj
def compact(out: Output, table: str, full: bool, dry_run: bool, session: Session) -> None:
    """Rewrite the pending batches of TABLE, so that reads have less to resolve."""
    out.result(session.table(table).compact(full, dryRun=dry_run))


@click.command()
@click.argument("table")
@click.option(
    "--retention",
    type=click.FloatRange(min=0),
    default=168,
    show_default=True,
    metavar="HOURS",
    help="Keep what the versions of so many hours need. Must exceed the longest merge or read.",
)
@click.option("--dry-run", is_flag=True, help="List the files, and delete nothing.")
@YES
@with_session
@click.pass_obj
def vacuum(out: Output, table: str, retention: float, dry_run: bool, yes: bool, session: Session) -> None:
    """Delete files of TABLE that no recent version needs. Past versions that need them become unreadable."""
    opened = session.table(table)
    if not dry_run:
        found = opened.vacuum(retention, dryRun=True)
        if found:
            _ask(f"Delete {counted(len(found), 'file or directory', 'files and directories')} of {table}?", yes)
    deleted = opened.vacuum(retention, dryRun=dry_run)
    if out.as_json:
        out.document({"dryRun": dry_run, "paths": deleted}, ())
        return
    out.lines(deleted)
    noun = counted(len(deleted), "file or directory", "files and directories")
    why = "" if deleted else import_module("trinitymerge.maintenance.vacuum").held_back(opened._store, retention)
    out.note(f"{noun} {'would be ' if dry_run else ''}deleted. {why}".strip())


@click.command()
@click.argument("table")
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@click.option("--where", metavar="CONDITION", help="Erase the keys of which a stored row fulfils this SQL.")
@click.option(
    "--from", "source", metavar="FILE.csv", help="Erase the keys in a CSV file whose header names the key columns."
)
@YES
@with_session
@click.pass_obj
def purge(
    out: Output, table: str, keys: tuple[str, ...], where: str | None, source: str | None, yes: bool, session: Session
) -> None:
    """Erase keys of TABLE from all its files, history included, and never take them again.

    Name the keys, or say which with --where or --from.
    """
    if sum(map(bool, (keys, where, source))) != 1:
        raise click.UsageError("Give keys, or --where, or --from.")
    opened = session.table(table)
    if where is not None:
        _ask(f"Erase all keys of {table} of which a stored row fulfils the condition? This cannot be undone.", yes)
        out.result(opened.purgeWhere(where))
        return
    if source is not None:
        read = session.spark().read.option("header", True).csv(source)
        found = typed_keys(read, opened.definition)
    else:
        found = keys_of(session, keys, opened.definition)
    _ask(f"Erase {counted(found.distinct().count(), 'key')} of {table}? This cannot be undone.", yes)
    out.result(opened.purge(found))


@click.command()
@click.argument("table")
@click.argument("version", type=click.IntRange(min=0))
@YES
@with_session
@click.pass_obj
def restore(out: Output, table: str, version: int, yes: bool, session: Session) -> None:
    """Make TABLE equal to a past VERSION, by a new version."""
    opened = session.table(table)
    _ask(f"Make {table}, now at version {opened.version}, equal to version {version}?", yes)
    out.result(opened.restore(version))


@click.command()
@click.argument("table")
@click.argument("to")
@AT
@with_session
@click.pass_obj
def clone(out: Output, table: str, to: str, at: str | None, session: Session) -> None:
    """Copy TABLE to another path, as an independent table."""
    made = session.table(table, at).clone(to)
    out.document({"path": to, "version": made.version}, [("", f"version {made.version} is at {to}")])


@click.command()
@click.argument("table")
@click.argument("to")
@AT
@with_session
@click.pass_obj
def export(out: Output, table: str, to: str, at: str | None, session: Session) -> None:
    """Write the live rows of TABLE to a new directory, as plain Parquet files."""
    out.result(session.table(table, at).export(to))


COMMANDS = (compact, vacuum, purge, restore, clone, export)
