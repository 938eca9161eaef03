"""The configuration of an ingestion: where messages come from, how they are read, and which tables they go into."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import quote

import attrs

from trinitymerge._package import FORMER_FORMATS
from trinitymerge.errors import MissingPackageError, TrinityMergeError, closest

KINDS = ("files", "kafka")
FILE_FORMATS = ("text", "json", "parquet", "csv", "orc")
ON_NEW_COLUMN = ("ignore", "add")
ON_TABLE_ERROR = ("stop", "quarantine")

_logger = logging.getLogger(__name__)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_NAMES = ("database", "schema", "table")
_SECTIONS = ("source", "feed", "target", "run", "table")


class ConfigError(TrinityMergeError, ValueError):
    """The configuration of an ingestion is wrong; the message names the key and its line."""


@attrs.frozen
class Source:
    """Where messages come from: the section ``[source]``.

    Attributes:
        kind: ``files`` or ``kafka``.
        format: of the files: ``text`` has a message in each line, ``json`` has the columns of Kafka's messages in each line.
        schema: the columns of files of other formats, as DDL. By default, those of the files that are there.
        servers: of Kafka, as ``host:port,host:port``.
        pattern: of Kafka, a regular expression for topics.
        start: where a new stream begins in Kafka: ``earliest``, ``latest``, or JSON as of Spark.
    """

    kind: str = ""
    path: str = ""
    format: str = "text"
    schema: str = ""
    servers: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    start: str = "earliest"
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def __str__(self) -> str:
        return f"files in {self.path}" if self.kind == "files" else f"{self.pattern or ', '.join(self.topics)} of Kafka"


@attrs.frozen
class FeedFormat:
    """How messages are read: the section ``[feed]`` names a function of ``trinitymerge.feeds``, and its arguments."""

    format: str = "debezium"
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)


@attrs.frozen
class Target:
    """Where tables are: the section ``[target]``.

    Attributes:
        root: the directory that other paths begin in.
        path: of a table below it, with ``{table}``, ``{schema}`` and ``{database}`` of its source.
        onNewColumn: ``ignore`` or ``add`` columns that a table does not have.
        history: source tables, or patterns, whose tables are created with history.
        quarantine: the path of the quarantine table; empty for none.
    """

    root: str = "."
    path: str = "{schema}/{table}"
    create: bool = True
    onNewColumn: str = "ignore"
    history: tuple[str, ...] = ()
    quarantine: str = ""


@attrs.frozen
class Run:
    """How an ingestion runs: the section ``[run]``.

    Attributes:
        app: the stable name of the stream, by which tables know which micro-batches they have.
        checkpoint: the directory of Spark's checkpoint; by default below the root.
        trigger: the time between the beginnings of micro-batches.
        maxRecords: in a micro-batch from Kafka; 0 for any.
        maxFiles: in a micro-batch from files; 0 for any.
        threads: how many tables are merged at once.
        maxRejected: the share of a table's messages in a micro-batch that may go into the quarantine.
        onTableError: ``stop``, or ``quarantine`` the messages of a table whose merge fails.
        compactEvery: the time between compactions of each table; empty for none.
    """

    app: str = "ingest"
    checkpoint: str = ""
    trigger: str = "10s"
    maxRecords: int = 0
    maxFiles: int = 0
    threads: int = 4
    maxRejected: float = 1.0
    onTableError: str = "stop"
    compactEvery: str = ""


@attrs.frozen
class TableRule:
    """The rules for a table: a section ``[[table]]``. The first one that fits a source table holds.

    Attributes:
        source: the source table, such as ``public.notes``, or a pattern, such as ``public.audit_*``. Empty: all events are of one
            table.
        keys: its primary key; by default what messages say.
        schema: its columns as DDL, to create it; by default what messages say.
        clusterBy: columns by which its files are sorted, to create it (S7c).
        columns: the columns that are taken from messages; empty for all.
        rename: from the source's column names to the table's.
        partitions: the source tables that fit are partitions of one table, so their positions can be compared.
        skip: its messages are left out.
    """

    source: str = ""
    path: str = ""
    keys: tuple[str, ...] = ()
    schema: str = ""
    clusterBy: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    exceptColumns: tuple[str, ...] = ()
    rename: Mapping[str, str] = attrs.field(factory=dict)
    history: bool = False
    partitions: bool = False
    skip: bool = False

    def fits(self, source: str) -> bool:
        """Return True if the rule is about a source table, named as ``database.schema.table``."""
        return fits(self.source, source)


@attrs.frozen
class Config:
    source: Source
    feed: FeedFormat = attrs.field(factory=FeedFormat)
    target: Target = attrs.field(factory=Target)
    run: Run = attrs.field(factory=Run)
    tables: tuple[TableRule, ...] = ()

    @property
    def only_table(self) -> TableRule | None:
        """The rule for all events, if all go into one table."""
        return self.tables[0] if len(self.tables) == 1 and not self.tables[0].source else None

    @property
    def checkpoint(self) -> str:
        return self.below_root(self.run.checkpoint or f"_checkpoints/{quote(self.run.app, safe=' ')}")

    @property
    def quarantine(self) -> str:
        return self.below_root(self.target.quarantine) if self.target.quarantine else ""

    def below_root(self, path: str) -> str:
        """Return a path that may begin at the root."""
        if path.startswith("/") or re.match(r"[A-Za-z][\w+.-]*:", path):
            return path
        found = f"{self.target.root.rstrip('/')}/{path}"
        short = found.removeprefix("./")
        return short if "/" in short or "." not in short else found  # a.b alone is written as the name of a table

    def rule_of(self, source: str) -> TableRule:
        return next((rule for rule in self.tables if rule.fits(source)), TableRule(source=source))

    def path_of(self, source: str, rule: TableRule) -> str:
        template = rule.path or self.target.path
        *above, table = source.split(".")
        names = {"table": table, "schema": above[-1] if above else "", "database": above[0] if above else ""}
        told = {name: quote(value, safe=" $-~@+").replace(".", "%2E") for name, value in names.items() if value}
        try:
            return self.below_root(template.format(**told))
        except KeyError as error:
            raise ConfigError(
                f"The path '{template}' needs {{{error.args[0]}}}, and messages name the source table only as "
                f"'{source}'. Give a path in a [[table]] with source = \"{source}\"."
            ) from None

    def has_history(self, source: str, rule: TableRule) -> bool:
        return rule.history or any(fits(pattern, source) for pattern in self.target.history)


def fits(pattern: str, source: str) -> bool:
    """Return True if a pattern names a source table: in full, or without its database, or without database and schema."""
    return not pattern or fnmatchcase(source, pattern) or fnmatchcase(source, f"*.{pattern}")


def milliseconds(text: str) -> int | None:
    """Return a duration such as ``10s``, ``500ms``, ``5m`` or ``1h``; None if it is not one."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)\s*", text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


# From TOML ------------------------------------------------------------------------------------------------------------


def read_config(path: str) -> dict[str, Any]:
    """Return what a TOML file says, with ``${NAME}`` replaced by the environment."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    toml = _parser()
    try:
        found: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    _check_sections(found, _Where(path))
    return found


def _parser() -> Any:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            "Python 3.10 has no parser of TOML. Run: pip install 'trinitymerge[cli]'", package=name
        ) from error


def config_of(said: Mapping[str, Any], path: str = "") -> Config:
    """Return the configuration that a mapping says, as TOML has it; ``path`` of the file is for messages."""
    where = _Where(path)
    _check_sections(said, where)
    sections = {name: said.get(name, {}) for name in _SECTIONS[:-1]}
    found = Config(
        _read(Source, sections["source"], where.of("source")),
        _feed_of(sections["feed"], where.of("feed")),
        _read(Target, sections["target"], where.of("target")),
        _read(Run, sections["run"], where.of("run")),
        tuple(_read(TableRule, rule, where.of("table", number)) for number, rule in enumerate(said.get("table", []))),
    )
    _check(found, where)
    return found


def _check_sections(said: Mapping[str, Any], where: _Where) -> None:
    for name in said:
        if name not in _SECTIONS:
            raise where.error(name, "", f"is unknown.{closest(name, _SECTIONS)}")
    rules = said.get("table", [])
    if not isinstance(rules, list):
        raise where.error("table", "", "is a list: write [[table]].")
    for name, section in [*((name, said.get(name, {})) for name in _SECTIONS[:-1]), *(("table", r) for r in rules)]:
        if not isinstance(section, Mapping):
            raise where.error(name, "", "takes keys and values.")


@attrs.frozen
class _Where:
    """A place in a file, for messages."""

    path: str
    section: str = ""
    number: int = 0

    def of(self, section: str, number: int = 0) -> _Where:
        return attrs.evolve(self, section=section, number=number)

    def error(self, section: str, key: str, what: str) -> ConfigError:
        line = self._line(section, key)
        place = f"{self.path}{f', line {line}' if line else ''}: " if self.path else ""
        name = f"[{section}] {key}".rstrip() if section in _SECTIONS else f"[{section}]"
        return ConfigError(f"{place}{name} {what}", key=key, section=section, line=line)

    def wrong(self, key: str, what: str) -> ConfigError:
        return self.error(self.section, key, what)

    def _line(self, section: str, key: str) -> int | None:
        if not self.path:
            return None
        current, seen, head_at = "", -1, None
        for number, line in enumerate(Path(self.path).read_text("utf-8").splitlines(), 1):
            head = re.match(r"\s*\[\[?\s*([\w.\"-]+)", line)
            if head:
                current = head[1].split(".")[0]
                seen += current == "table" and line.lstrip().startswith("[[")
            is_here = current == section and (section != "table" or seen == self.number)
            head_at = head_at or (number if is_here else None)
            if is_here and (not key or re.match(rf"\s*\"?{re.escape(key)}\"?\s*[=.]", line)):
                return number
        return head_at


_T = TypeVar("_T")
_KINDS_OF_VALUES = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _read(section: type[_T], said: Mapping[str, Any], where: _Where) -> _T:
    types = get_type_hints(section)
    names = [field.name for field in attrs.fields(section)]  # type: ignore[arg-type]
    for key in said:
        if key not in names:
            raise where.wrong(key, f"is unknown.{closest(key, names)} Known are: {', '.join(names)}.")
    return section(**{key: _value(value, types[key], key, where) for key, value in said.items()})


def _value(value: Any, kind: Any, key: str, where: _Where) -> Any:
    if get_origin(kind) is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str) for v in value):
            raise where.wrong(key, f"takes a list of texts, got {value!r}.")
        return tuple(_expanded(v, key, where) for v in value)
    if kind not in _KINDS_OF_VALUES:
        if not isinstance(value, Mapping):
            raise where.wrong(key, "takes a table of keys and values.")
        texts = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in value.items()}
        return {name: _expanded(text, key, where) for name, text in texts.items()}
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_right = is_number if kind is float else isinstance(value, kind) and (is_number or kind is not int)
    if not is_right:
        raise where.wrong(key, f"takes {_KINDS_OF_VALUES[kind]}, got {value!r}.")
    return _expanded(value, key, where)


def _expanded(value: Any, key: str, where: _Where) -> Any:
    """Return a value with ``${NAME}`` replaced by the environment, so that no secret is in the file."""
    if isinstance(value, Mapping):
        return {name: _expanded(v, key, where) for name, v in value.items()}
    if isinstance(value, list):
        return [_expanded(v, key, where) for v in value]
    if not isinstance(value, str):
        return value

    def of_environment(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise where.wrong(key, f"names ${{{found[1]}}}, and the environment has no such variable.")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", of_environment, value)


def _feed_of(said: Mapping[str, Any], where: _Where) -> FeedFormat:
    options = {key: _expanded(value, key, where) for key, value in said.items() if key != "format"}
    name = said.get("format", "debezium")
    if not isinstance(name, str):
        raise where.wrong("format", f"takes text, got {name!r}.")
    if name in FORMER_FORMATS:
        _logger.warning("[feed] format = '%s' is deprecated: it is called '%s'.", name, FORMER_FORMATS[name])
    return FeedFormat(FORMER_FORMATS.get(name, name), options)


def _check(found: Config, where: _Where) -> None:
    source, run = found.source, found.run
    choices = [
        ("source", "kind", source.kind, KINDS),
        ("source", "format", source.format, FILE_FORMATS),
        ("target", "onNewColumn", found.target.onNewColumn, ON_NEW_COLUMN),
        ("run", "onTableError", run.onTableError, ON_TABLE_ERROR),
    ]
    for section, key, value, known in choices:
        if value not in known:
            raise where.error(section, key, f"takes {' or '.join(known)}, got {value!r}.")
    if source.kind == "files" and not source.path:
        raise where.error("source", "path", "is missing: the directory with the files.")
    if source.kind == "kafka" and not source.servers:
        raise where.error("source", "servers", 'is missing, such as "localhost:9092".')
    if source.kind == "kafka" and bool(source.topics) == bool(source.pattern):
        raise where.error("source", "topics", 'takes a list of topics. Or give pattern = "a regular expression".')
    paths = [(where, "target", found.target.path)]
    paths += [(where.of("table", number), "table", rule.path) for number, rule in enumerate(found.tables)]
    for place, section, path in paths:
        try:
            path.format(**dict.fromkeys(_NAMES, ""))
        except (KeyError, ValueError, IndexError, AttributeError):
            names = ", ".join(f"{{{name}}}" for name in _NAMES)
            raise place.error(section, "path", f"takes {names}, got {path!r}.") from None
    for key, text in (("trigger", run.trigger), ("compactEvery", run.compactEvery)):
        if (text or key == "trigger") and milliseconds(text) is None:
            raise where.error("run", key, f'takes a time such as "10s", "500ms", "5m" or "1h", got {text!r}.')
    if not run.app:
        raise where.error("run", "app", "takes a name.")
    if run.threads < 1 or run.maxRecords < 0 or run.maxFiles < 0:
        key = "threads" if run.threads < 1 else "maxRecords" if run.maxRecords < 0 else "maxFiles"
        raise where.error("run", key, f"takes a number from {int(key == 'threads')}, got {getattr(run, key)}.")
    if not 0 <= run.maxRejected <= 1:
        raise where.error("run", "maxRejected", f"takes a number from 0 to 1, got {run.maxRejected}.")
    if run.onTableError == "quarantine" and not found.target.quarantine:
        raise where.error("run", "onTableError", 'needs [target] quarantine = "a path".')
    for number, rule in enumerate(found.tables):
        if not rule.source and len(found.tables) > 1:
            raise where.of("table", number).error("table", "source", "is missing, and there are several [[table]].")
        if not rule.source and not rule.path:
            raise where.of("table", number).error("table", "path", "is missing.")
        if rule.partitions and not (rule.source and rule.path):
            raise where.of("table", number).error("table", "partitions", "needs source and path.")
        if rule.columns and rule.exceptColumns:
            raise where.of("table", number).error("table", "exceptColumns", "and columns exclude each other.")
