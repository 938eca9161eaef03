"""The progress of calls, shown as a bar in a terminal, as a line in a notebook, or in the log."""

from __future__ import annotations

import html
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, TypeAlias

import attrs

from trinitymerge.errors import MissingPackageError
from trinitymerge.log.reporting import Listener, Progress, listening
from trinitymerge.spark.session import running_tasks

Show: TypeAlias = Literal["auto", "bar", "html", "log"] | None

_SHOWN_AFTER_SECONDS = 1.0
_POLL_SECONDS = 0.5
_WIDTH = 10

_logger = logging.getLogger(__name__)


@contextmanager
def progress(show: Show = "auto") -> Iterator[None]:
    """Show the progress of all calls within the block: table, phase, tasks and seconds.

    A merge or a compaction has phases (:class:`~trinitymerge.Progress`). The tasks are those of all jobs that the Spark application
    runs at the moment; Spark Connect does not report them. Nothing is shown in the first second, and nothing is left at the end.

    Args:
        show: how.
            ``"bar"``: a line on stderr, for terminals.
            ``"html"``: a line in a notebook.
            ``"log"``: a line of Python's log for each phase, at level INFO.
            ``"auto"``: ``"html"`` in a notebook, ``"bar"`` in a terminal, elsewhere nothing.
            None: nothing.

    Raises:
        MissingPackageError: ``"html"`` needs IPython.
        ValueError: ``show`` is something else.

    Example:
        >>> with progress("log"):
        ...     print(orders.compact(full=True).version)
        2
    """
    display = _display_of(show)
    if display is None:
        yield
        return
    with display as listener, listening(listener):
        yield


def _display_of(show: Show) -> Any:
    """Return a context manager that yields a listener, or None."""
    if show not in ("auto", "bar", "html", "log", None):
        raise ValueError(f"show must be 'auto', 'bar', 'html', 'log' or None, got {show!r}.")
    if show == "auto":
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        is_notebook = type(shell).__name__ == "ZMQInteractiveShell"
        show = "html" if is_notebook else "bar" if sys.stderr.isatty() else None
    if show is None:
        return None
    if show == "log":
        return _logging()
    return _shown(_bar() if show == "bar" else _notebook())


@attrs.define
class _Running:
    """The phases that run, the innermost last, each with the moment it started."""

    phases: list[tuple[Progress, float]] = attrs.field(factory=list)

    def listen(self, event: Progress) -> None:
        if event.isDone:
            self.phases.pop()
        else:
            self.phases.append((event, time.perf_counter()))

    def line(self) -> str:
        """Return the line to show, or an empty string between two phases."""
        for event, since in self.phases[-1:]:
            table = event.table.rstrip("/").rsplit("/", 1)[-1]
            return _line(table, event.phase, running_tasks(), time.perf_counter() - since)
        return ""


def _line(table: str, phase: str, tasks: tuple[int, int] | None, seconds: float) -> str:
    """Return a line of text.

    Example:
        >>> _line("orders", "write", (14, 20), 3.21)
        'orders  write  ███████░░░ 14/20 tasks  3.2 s'
    """
    done, total = tasks or (0, 0)
    bar = "█" * (_WIDTH * done // total) + "░" * (_WIDTH - _WIDTH * done // total) if total else ""
    return "  ".join(filter(None, (table, phase, f"{bar} {done}/{total} tasks" if total else "", f"{seconds:.1f} s")))


@contextmanager
def _shown(update: Callable[[str], None]) -> Iterator[Listener]:
    """Call a function with the line to show, from another thread that ends with the block; at the end with an empty line."""
    running, ended = _Running(), threading.Event()

    def watch() -> None:
        wait, was_shown = _SHOWN_AFTER_SECONDS, False
        while not ended.wait(wait):
            wait, line = _POLL_SECONDS, running.line()
            if line or was_shown:
                update(line)
                was_shown = bool(line)
        if was_shown:
            update("")

    thread = threading.Thread(target=watch, name="trinitymerge-progress", daemon=True)
    thread.start()
    try:
        yield running.listen
    finally:
        ended.set()
        thread.join()


def _bar() -> Callable[[str], None]:
    def update(line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{line[:width]}")
        sys.stderr.flush()

    return update


def _notebook() -> Callable[[str], None]:
    try:
        show = import_module("IPython.display")
    except ImportError:
        raise MissingPackageError("progress('html') needs IPython, which every notebook has.") from None
    handle = show.display(show.HTML(""), display_id=True)
    return lambda line: handle.update(show.HTML(f"<code>{html.escape(line)}</code>" if line else ""))


@contextmanager
def _logging() -> Iterator[Listener]:
    def log(event: Progress) -> None:
        if event.isDone:
            _logger.info("%s: %s took %.1f s", event.table, event.phase, event.seconds)

    yield log
