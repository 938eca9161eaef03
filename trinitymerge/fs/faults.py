"""Named points at which tests may kill the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "TRINITYMERGE_FAULT"
"""The environment variable, read once, when this module is imported."""


def _nothing(name: str) -> None:
    """A fault point in production."""


def killer(wish: str) -> Callable[[str], None]:
    """A hook that kills this process at the point ``name``, or on its n-th visit for ``name:n``."""
    point, _, visit = wish.partition(":")
    left = int(visit or 1)

    def kill_at(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    return kill_at


_wish = os.environ.get(VARIABLE)
fault: Callable[[str], None] = killer(_wish) if _wish else _nothing
