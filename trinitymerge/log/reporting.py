"""Log one line per commit, and the progress of slow calls."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trinitymerge.log.model import Commit

SLOW_SECONDS = 10.0
"""A call that runs for longer is reported."""

_logger = logging.getLogger(__name__)


def committed(path: str, commit: Commit) -> None:
    """Log a commit of a table."""
    if not _logger.isEnabledFor(logging.INFO):
        return
    shown = commit.shown
    facts = {**commit.parameters, **commit.metrics}
    counts = [
        f"{n}={v:,}" for n, v in facts.items() if isinstance(v, int) and n != "version" and not isinstance(v, bool)
    ]
    of = f" of version {facts['version']}" if isinstance(facts.get("version"), int) else ""
    strategy = commit.metrics.get("strategy")
    way = f" by {strategy}" if strategy else ""
    seconds = [] if commit.duration_ms is None else [f"{commit.duration_ms / 1000:.1f} s"]
    words = ", ".join([f"{commit.operation}{of}{way}", *counts, *seconds])
    _logger.info("%s: version %d is committed: %s", path, shown.version, words)


def done(path: str, words: str) -> None:
    """Log that work without a commit is done."""
    _logger.info("%s: %s", path, words)


@contextmanager
def if_slow(path: str, doing: str | Callable[[], str]) -> Iterator[None]:
    """Log once what runs, if the block takes longer than :data:`SLOW_SECONDS`.

    Args:
        path: of the table.
        doing: the work in words, or a function that another thread calls and that reads plain data only.
    """
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
