"""Log one line per commit and per slow call, and report the phases of calls to listeners."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import attrs

from trinitymerge.log.model import Commit

SLOW_SECONDS = 10.0
"""A call that runs for longer is reported."""

_logger = logging.getLogger(__name__)


def committed(path: str, commit: Commit) -> None:
    if not _logger.isEnabledFor(logging.INFO):
        return
    shown = commit.shown
    facts = {**commit.parameters, **commit.metrics}
    counts = [f"{n}={v:,}" for n, v in facts.items() if type(v) is int and n != "version"]
    of = f" of version {facts['version']}" if isinstance(facts.get("version"), int) else ""
    strategy = commit.metrics.get("strategy")
    way = f" by {strategy}" if strategy else ""
    seconds = [] if commit.duration_ms is None else [f"{commit.duration_ms / 1000:.1f} s"]
    words = ", ".join([f"{commit.operation}{of}{way}", *counts, *seconds])
    _logger.info("%s: version %d is committed: %s", path, shown.version, words)


def done(path: str, words: str | Callable[[], str]) -> None:
    """Log that work without a commit is done. A function is called only if its words are logged."""
    if _logger.isEnabledFor(logging.INFO):
        _logger.info("%s: %s", path, words if isinstance(words, str) else words())


@attrs.frozen
class Progress:
    """The start or the end of a phase of a call, as listeners get it.

    Attributes:
        table: the path of the table.
        phase: of a merge, a name of ``MergeResult.seconds``: ``source``, ``write``, ``validate``, ``history`` or ``commit``.
            Otherwise the work: ``compact``, ``minor compact``, ``vacuum``, ``purge``, ``clone``, ``convert`` or ``export``.
        isDone: the phase has ended, perhaps by an error.
        seconds: that it took; 0 at its start.
    """

    table: str
    phase: str
    isDone: bool
    seconds: float = 0.0


Listener: TypeAlias = Callable[[Progress], None]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(*listeners: Listener) -> Iterator[None]:
    """Report phases within the block, in this thread only. A listener that raises is logged once and not called again."""
    token = _listeners.set((*_listeners.get(), *map(_until_it_fails, listeners)))
    try:
        yield
    finally:
        _listeners.reset(token)


def _until_it_fails(listener: Listener) -> Listener:
    has_failed = threading.Event()

    def told(event: Progress) -> None:
        if has_failed.is_set():
            return
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - any error becomes a warning
            has_failed.set()
            _logger.warning("%s: a listener of progress failed and is not called again: %r", event.table, error)

    return told


@contextmanager
def phase(path: str, name: str) -> Iterator[None]:
    """Report to listeners that the block starts, and that it ends."""
    listeners = _listeners.get()
    if not listeners:
        yield
        return
    start = time.perf_counter()
    _tell(listeners, Progress(path, name, isDone=False))
    try:
        yield
    finally:
        _tell(listeners, Progress(path, name, isDone=True, seconds=time.perf_counter() - start))


def _tell(listeners: tuple[Listener, ...], event: Progress) -> None:
    for listener in listeners:
        listener(event)


@contextmanager
def working(path: str, name: str, doing: str) -> Iterator[None]:
    """Report a phase to listeners, and log what it does, in words, if it is slow."""
    with phase(path, name), if_slow(path, doing):
        yield


@contextmanager
def if_slow(path: str, doing: str | Callable[[], str]) -> Iterator[None]:
    """Log once what runs for longer than :data:`SLOW_SECONDS`. Another thread calls a function, which must read plain data only."""
    if not _logger.isEnabledFor(logging.INFO):
        yield
        return
    start = time.perf_counter()

    def say() -> None:
        words = doing if isinstance(doing, str) else doing()
        _logger.info("%s: %s; it has been running for %.0f s", path, words, time.perf_counter() - start)

    timer = threading.Timer(SLOW_SECONDS, say)
    timer.daemon = True  # the process can end before it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def best_effort(path: str, doing: str) -> Iterator[None]:
    """Log an error of the block as a warning instead of raising it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any error becomes a warning
        _logger.warning("%s: %s failed: %s", path, doing, error)
