"""When something is done, and by whom, as the log notes it.

Owns: the wall clock in milliseconds, and the name of the user. Knows nothing of what is noted.
"""

from __future__ import annotations

import getpass
import time


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def current_user() -> str | None:
    """Who runs this process, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
