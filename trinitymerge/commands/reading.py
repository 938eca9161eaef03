"""Commands that read rows with Spark and change nothing."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trinitymerge._format import Result
from trinitymerge.commands import output
from trinitymerge.commands.output import CHECK_FAILED, DONE, Column, Output
from trinitymerge.commands.rows import records
from trinitymerge.commands.session import Session, with_session
from trinitymerge.errors import counted, missing
from trinitymerge.schema.definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT = click.option("--at", metavar="VERSION|TIMESTAMP", help="A past version, by number or by time (ISO 8601, UTC).")
LIMIT = click.option(
    "-n", "limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show so many rows."
)
ALL = click.option("--all", "everything", is_flag=True, help="Show all rows.")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "jsonl"]),
    default="table",
    show_default=True,
    help="How to write rows. --json is jsonl.",
)


def key_of(text: str, definition: TableDefinition) -> dict[str, Any]:
    """Return a key that was given as ``5``, as ``id=5,lang=en``, or as a JSON object."""
    names = definition.primaryKey
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"the key {text} is not valid JSON: {error}.") from None
    elif "=" in text and all(part.partition("=")[0].strip() in names for part in text.split(",")):
        found = {a.strip(): b for a, _, b in (part.partition("=") for part in text.split(","))}
    elif len(names) == 1:
        found = {names[0]: text}
    else:
        found = {}
    if sorted(found) != sorted(names):
        example = ",".join(f"{name}=VALUE" for name in names)
        raise click.BadParameter(f"the primary key is ({', '.join(names)}). Write the key as {example}, or as JSON.")
    return {name: found[name] for name in names}


_ROUNDS = re.compile(r"(tinyint|smallint|int|bigint|decimal\(.*|date)\Z", re.IGNORECASE)
"""Types whose casts of text lose digits, or a time of day."""


def keys_of(session: Session, texts: Iterable[str], definition: TableDefinition) -> DataFrame:
    found = [key_of(text, definition) for text in texts]
    rows = [tuple(v if v is None or isinstance(v, str) else json.dumps(v) for v in key.values()) for key in found]
    texts_of = ", ".join(f"`{n}` STRING" for n in definition.primaryKey)
    return typed_keys(session.spark().createDataFrame(rows, texts_of), definition)


def typed_keys(given: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return keys that are texts in the key's types; refuse what these would round."""
    types = {f.name: f.text for f in definition.fields}
    for name in definition.primaryKey:
        key, wider = f"try_cast(`{name}` AS {types[name]})", ["TIMESTAMP_NTZ"]
        if types[name] != "date":
            wider = ["DECIMAL(38, 18)", "DECIMAL(38, 1)"]  # the second for greater numbers
        differ = [f"coalesce(try_cast({key} AS {wide}) <> try_cast(`{name}` AS {wide}), false)" for wide in wider]
        loses = " OR ".join(differ) if _ROUNDS.match(types[name]) else "false"
        bad = given.where(f"`{name}` IS NOT NULL AND ({key} IS NULL OR {loses})").first()
        if bad is not None:
            raise click.BadParameter(f"'{bad[name]}' is not a value of key column {name}, which is {types[name]}.")
    return given.selectExpr(*[f"CAST(`{n}` AS {types[n]}) AS `{n}`" for n in definition.primaryKey])


def write_rows(
    out: Output,
    rows: DataFrame,
    form: str,
    limit: int | None,
    shows: Mapping[str, Callable[[Any], str]] = MappingProxyType({}),
) -> int:
    """Write at most ``limit`` rows (None is all, of which csv and jsonl hold few in memory), and return their number.

    ``shows`` says for a table, by column, how a value is shown.
    """
    shown = rows if limit is None else rows.limit(limit)
    found = records(shown.toLocalIterator() if limit is None else shown.collect(), shown.schema)
    written = 0
    if form == "csv":
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(shown.columns)
        for record in found:
            lines.writerow(["" if v is None else output.plain(v) for v in record.values()])
            written += 1
    elif form == "jsonl" or out.as_json:
        for record in found:
            print(output.to_json(record))
            written += 1
    else:
        listed = list(found)
        out.records(listed, [Column(n, n, shows.get(n, _shown), _is_number(rows, n)) for n in rows.columns])
        written = len(listed)
    return written


def _shown(value: Any) -> str:
    return "NULL" if value is None else output.plain(value)


def _is_number(rows: DataFrame, name: str) -> bool:
    kind = rows.schema[name].dataType.typeName()
    return kind in ("byte", "short", "integer", "long", "float", "double") or kind.startswith("decimal")


@click.command()
@click.argument("table")
@click.option("--where", metavar="CONDITION", help="Show only rows for which this SQL is true.")
@click.option("--columns", metavar="A,B,...", help="Show only these columns.")
@LIMIT
@ALL
@AT
@click.option(
    "--as-of", metavar="MOMENT", help="Of a table with history: the rows that were valid at a moment of the data."
)
@FORMAT
@with_session
@click.pass_obj
def read(
    out: Output,
    table: str,
    where: str | None,
    columns: str | None,
    limit: int,
    everything: bool,
    at: str | None,
    as_of: str | None,
    form: str,
    session: Session,
) -> None:
    """Show the live rows of TABLE."""
    opened = session.table(table, at)
    rows = opened.toDF() if as_of is None else opened.asOf(_typed(as_of, opened.definition))
    rows = rows if where is None else rows.where(where)
    if columns is not None:
        names = [name.strip() for name in columns.split(",")]
        unknown = next((name for name in names if name not in rows.columns), None)
        if unknown is not None:
            raise click.BadParameter(missing([unknown], table, rows.columns))
        rows = rows.select(*[f"`{name}`" for name in names])
    write_rows(out, rows, form, None if everything else limit)


def _typed(text: str, definition: TableDefinition) -> Any:
    """Return a moment of the data: a whole number if the first watermark column is one."""
    kind = definition.field(definition.watermarkKey[0]).text if definition.watermarkKey else "timestamp"
    is_whole = kind.upper() in ("TINYINT", "SMALLINT", "INT", "BIGINT")
    return int(text) if is_whole and text.lstrip("-").isdecimal() else text


@click.command()
@click.argument("table")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@AT
@FORMAT
@with_session
@click.pass_obj
def why(out: Output, table: str, keys: tuple[str, ...], at: str | None, form: str, session: Session) -> None:
    """Show the stored rows of each KEY, with the reason why each is current or not.

    KEY is a value, or a=1,b=x, or a JSON object.
    """
    opened = session.table(table, at)
    for text in keys:
        (key,) = keys_of(session, [text], opened.definition).collect()
        if not write_rows(out, opened.why(key), form, None):
            out.note(f"The key {text} was never written, or is no longer stored.")


@click.command()
@click.argument("table")
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@click.option("--track", metavar="A,B,...", help="Show only changes of these columns; '*' is all.")
@click.option("--valid-from", default="validFrom", show_default=True, help="Name of the column with the start.")
@click.option("--valid-to", default="validTo", show_default=True, help="Name of the column with the end.")
@LIMIT
@ALL
@AT
@FORMAT
@with_session
@click.pass_obj
def versions(
    out: Output,
    table: str,
    keys: tuple[str, ...],
    track: str | None,
    valid_from: str,
    valid_to: str,
    limit: int,
    everything: bool,
    at: str | None,
    form: str,
    session: Session,
) -> None:
    """Show the row versions of a TABLE with history, of all keys or of each KEY."""
    opened = session.table(table, at)
    asked: dict[str, Any] = {"validFrom": valid_from, "validTo": valid_to}
    if track is not None:
        asked["track"] = "*" if track == "*" else [name.strip() for name in track.split(",")]
    if keys:
        asked["keys"] = keys_of(session, keys, opened.definition)
    rows = opened.versions(**asked).orderBy(*opened.definition.primaryKey, valid_from)
    write_rows(out, rows, form, None if everything else limit)


@click.command()
@click.argument("table")
@click.argument("from_version", metavar="FROM", type=click.IntRange(min=0))
@click.argument("to_version", metavar="[TO]", type=click.IntRange(min=0), required=False)
@click.option("--no-net", is_flag=True, help="Show each commit's changes, instead of the difference of two versions.")
@click.option("--count", is_flag=True, help="Show only how many rows changed in which way.")
@LIMIT
@ALL
@FORMAT
@with_session
@click.pass_obj
def changes(
    out: Output,
    table: str,
    from_version: int,
    to_version: int | None,
    no_net: bool,
    count: bool,
    limit: int,
    everything: bool,
    form: str,
    session: Session,
) -> None:
    """Show which rows of TABLE changed after version FROM, up to version TO or the newest."""
    rows = session.table(table).changes(from_version, to_version, net=not no_net)
    if count:
        rows = rows.groupBy("_change_type").count().orderBy("_change_type")
    write_rows(out, rows, form, None if everything or count else limit)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--on", metavar="A,B,...", help="The columns that identify a row. Default: the primary key of the table.")
@click.option("--quiet", is_flag=True, help="Write nothing; exit with 3 if there is a difference.")
@LIMIT
@ALL
@FORMAT
@with_session
@click.pass_obj
def diff(
    out: Output, a: str, b: str, on: str | None, quiet: bool, limit: int, everything: bool, form: str, session: Session
) -> int:
    """Show the rows that differ between A and B.

    Each is a table, a table at a version (lake/orders@12), a directory or file of Parquet, or a CSV file with a header.
    """
    (left, key), (right, other_key) = _side(session, a), _side(session, b)
    names = [name.strip() for name in on.split(",")] if on is not None else key or other_key
    if not names:
        raise click.UsageError("Neither side has a primary key. Name the columns that identify a row: --on id")
    found = import_module("trinitymerge.interop.diff").difference(left, right, names)
    counts = {row["difference"]: row["count"] for row in found.groupBy("difference").count().collect()}
    if quiet or not counts:
        if not quiet:
            out.note("No difference.")
        return CHECK_FAILED if counts else DONE
    write_rows(out, found.orderBy("difference", *names), form, None if everything else limit, {"cells": _cells})
    out.note(f"{counted(sum(counts.values()))}: " + ", ".join(f"{n:,} {text}" for text, n in sorted(counts.items())))
    return CHECK_FAILED


def _cells(cells: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{c['column']}: {_shown(c['a'])} → {_shown(c['b'])}" for c in cells)


def _side(session: Session, address: str) -> tuple[DataFrame, list[str]]:
    """Return the rows of one side of a comparison, and its primary key if it is a table."""
    if address.endswith((".csv", ".csv.gz")):
        return session.spark().read.option("header", True).option("inferSchema", True).csv(address), []
    path, _, version = address.rpartition("@")
    if path and version.isdecimal():
        table = session.table(path, version)
        return table.toDF(), list(table.definition.primaryKey)
    is_named = address.startswith(("iceberg:", "spark:"))
    local = Path(address)
    if not is_named and local.exists() and not (local / "_trinity_log").exists():
        return session.spark().read.parquet(address), []
    table = session.table(address)
    return table.toDF(), list(table.definition.primaryKey)


def _named(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    for text in given:
        if "=" not in text:
            raise click.BadParameter(f"expected NAME=PATH, got '{text}'.", ctx, parameter)
    return {name: path for name, _, path in (text.partition("=") for text in given)}


@click.command()
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.File(), help="Read the statement from a file; - is stdin.")
@click.option(
    "-t", "--table", "tables", multiple=True, metavar="NAME=PATH", callback=_named, help="Name a table. Repeatable."
)
@click.option("--dry-run", is_flag=True, help="Of a statement that changes rows: show its plan, and change nothing.")
@LIMIT
@ALL
@FORMAT
@with_session
@click.pass_obj
def sql(
    out: Output,
    text: str | None,
    file: Any,
    tables: Mapping[str, str],
    dry_run: bool,
    limit: int,
    everything: bool,
    form: str,
    session: Session,
) -> None:
    """Run one SQL statement on tables. Needs the extra 'sql'.

    A table is named with -t, or by its path: trinity.`lake/orders`
    """
    if (text is None) == (file is None):
        raise click.UsageError("Give a statement, or a file with -f.")
    statement = text if text is not None else file.read()
    statements = import_module("trinitymerge.statements.api")
    if dry_run:
        out.lines([statements.explain(session.spark(), statement, tables)])
        return
    found = statements.sql(session.spark(), statement, tables)
    if isinstance(found, Result):
        out.result(found)
    else:
        write_rows(out, found, form, None if everything else limit)


@click.command("query-for")
@click.argument("table")
@click.argument("dialect", type=click.Choice(["duckdb", "polars", "spark", "trino"]))
@click.option("--files", metavar="NAME", help="For Trino: a Hive connector table over the table's data directory.")
@AT
@with_session
def query_for(table: str, dialect: str, files: str | None, at: str | None, session: Session) -> None:
    """Write a query that reads TABLE in another engine."""
    print(session.table(table, at).sqlFor(dialect, files))


COMMANDS = (read, why, versions, changes, diff, sql, query_for)
