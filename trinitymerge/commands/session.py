"""The Spark session of a command: started once, silent, and only by commands that read or write rows."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from rich.console import Console

from trinitymerge.errors import TrinityMergeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trinitymerge.table import TrinityTable

F = TypeVar("F", bound=Callable[..., Any])


class SessionError(TrinityMergeError, RuntimeError):
    """The command could not start Spark."""


@attrs.frozen
class Session:
    """How to start Spark: by ``remote``, the address of a Spark Connect server, or by ``master`` and ``memory`` of the driver."""

    master: str
    memory: str
    remote: str | None
    conf: tuple[tuple[str, str], ...]
    is_verbose: bool = False

    def spark(self) -> SparkSession:
        """Return the active session of the process, or a new one."""
        session_class = import_module("pyspark.sql").SparkSession
        if not self.is_verbose:
            _silence_errors()
        active: SparkSession | None = session_class.getActiveSession()
        if active is not None:
            return active
        if self.remote is None:
            _require_java()
        with _silence(self.is_verbose) as printed:
            try:
                started: SparkSession = self._builder(session_class.builder).getOrCreate()
                return started
            except Exception as error:
                first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                raise SessionError(f"Spark did not start: {first} {printed()}".rstrip()) from error

    def _builder(self, builder: Any) -> Any:
        if self.remote is not None:
            builder = builder.remote(self.remote)
        else:
            builder = builder.master(self.master).appName("trinitymerge")
            for name, value in {**_QUIET, "spark.driver.memory": self.memory}.items():
                builder = builder.config(name, value)
        for name, value in self.conf:
            builder = builder.config(name, value)
        return builder

    def table(self, address: str, at: str | None = None) -> TrinityTable:
        """Open a table by its path, or one of a catalog by ``iceberg:NAME`` or ``spark:NAME``.

        ``at`` is a version, or a time in ISO 8601; None is the newest version.
        """
        kind = import_module("trinitymerge.table").TrinityTable
        scheme, _, name = address.partition(":")
        opened = kind.forName if scheme in ("iceberg", "spark") else kind.forPath
        place = name if scheme in ("iceberg", "spark") else address
        asked: dict[str, Any] = {}
        if at is not None:
            asked = {"versionAsOf": int(at)} if at.isdecimal() else {"timestampAsOf": at}
        found: TrinityTable = opened(self.spark(), place, **asked)
        return found


_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.codegen.cache.maxEntries": "2000",
}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home:
        if not Path(home, "bin", "java").exists():
            raise SessionError(
                f"JAVA_HOME is '{home}', which has no bin/java. Set it to the directory of Java 17 or newer."
            )
    elif shutil.which("java") is None:
        raise SessionError(
            "This command runs Spark, which needs Java 17 or newer, and no 'java' was found. Install it, or set JAVA_HOME. "
            "history, show, batches, health and report need no Java."
        )


def _silence_errors() -> None:
    """Keep PySpark 4 from printing each error as JSON with its stack trace: the command says it in a line."""
    with suppress(ImportError):
        logger = import_module("pyspark.logger").PySparkLogger
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            logger.getLogger(name).disabled = True


@contextmanager
def _silence(is_verbose: bool) -> Iterator[Callable[[], str]]:
    """Keep what the JVM prints from the terminal, for as long as it lives; yield a function that returns its last error."""
    if is_verbose:
        yield lambda: ""
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile("w+", errors="replace") as printed, os.fdopen(terminal, "w") as own:

        def last_error() -> str:
            printed.seek(0)
            lines = [line.strip() for line in printed if "Exception" in line or "Error" in line]
            return lines[-1] if lines else ""

        os.dup2(printed.fileno(), 2)
        try:
            with Console(file=own, stderr=True).status("starting Spark") if own.isatty() else nullcontext():
                yield last_error
        finally:
            os.dup2(terminal, 2)


def _pair(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for text in given:
        if "=" not in text:
            raise click.BadParameter(f"expected NAME=VALUE, got '{text}'.", ctx, parameter)
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))


def with_session(command: F) -> F:
    """Add the options of a session to a command, as :func:`session_options`, and show its progress."""

    @wraps(command)
    def called(*args: Any, **kwargs: Any) -> Any:
        with import_module("trinitymerge").progress():
            return command(*args, **kwargs)

    return session_options(called)  # type: ignore[return-value]


def session_options(command: F) -> F:
    """Add the options of a session to a command, which gets a :class:`Session` as its argument ``session``."""

    @wraps(command)
    def called(*args: Any, master: str, memory: str, remote: str | None, conf: Any, **kwargs: Any) -> Any:
        output = click.get_current_context().obj
        return command(*args, session=Session(master, memory, remote, conf, output.is_verbose), **kwargs)

    for option in (
        click.option(
            "--conf", multiple=True, metavar="NAME=VALUE", callback=_pair, help="Configure Spark. Repeatable."
        ),
        click.option("--remote", metavar="URL", help="Use a Spark Connect server, such as sc://host:15002."),
        click.option("--memory", default="2g", show_default=True, help="Memory of the Spark driver."),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
    ):
        called = option(called)
    return called  # type: ignore[return-value]
