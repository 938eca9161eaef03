"""What Python's logging reports: one line per commit, and progress of slow calls."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trinitymerge.log.model import Commit

SLOW_SECONDS = 10.0
"""What runs for longer says what it does."""

_logger = logging.getLogger(__name__)


def committed(path: str, commit: Commit) -> None:
    """Says that a commit has become a version of a table."""
    if not _logger.isEnabledFor(logging.INFO):
        return
    shown = commit.shown
    told = {**commit.parameters, **commit.metrics}
    counts = [
        f"{n}={v:,}" for n, v in told.items() if isinstance(v, int) and n != "version" and not isinstance(v, bool)
    ]
    of = f" of version {told['version']}" if isinstance(told.get("version"), int) else ""
    strategy = commit.metrics.get("strategy")
    way = f" by {strategy}" if strategy else ""
    seconds = [] if commit.duration_ms is None else [f"{commit.duration_ms / 1000:.1f} s"]
    words = ", ".join([f"{commit.operation}{of}{way}", *counts, *seconds])
    _logger.info("%s: version %d is committed: %s", path, shown.version, words)


def done(path: str, words: str) -> None:
    """Says that something is done that is no commit."""
    _logger.info("%s: %s", path, words)


@contextmanager
def if_slow(path: str, doing: str | Callable[[], str]) -> Iterator[None]:
    """Says, once, what goes on, if what is inside takes long.

    Args:
        path: of the table.
        doing: in words; asked by another thread if it is a function, so it must look only at plain data.
    """
    if not _logger.isEnabledFor(logging.INFO):
        yield
        return
    start = time.perf_counter()

    def say() -> None:
        words = doing if isinstance(doing, str) else doing()
        _logger.info("%s: %s; it has been running for %.0f s", path, words, time.perf_counter() - start)

    timer = threading.Timer(SLOW_SECONDS, say)
    timer.daemon = True  # it keeps no process from ending
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def best_effort(path: str, doing: str) -> Iterator[None]:
    """Lets what is inside fail with a warning: nothing depends on it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is
        _logger.warning("%s: %s failed: %s", path, doing, error)
