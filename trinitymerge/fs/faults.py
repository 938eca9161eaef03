"""Named points at which tests may kill the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "TRINITYMERGE_FAULT"
"""The environment variable, read once at import."""


def killer(wish: str) -> Callable[[str], None]:
    """Return a hook that kills this process at the point ``name``, or on its n-th visit for ``name:n``."""
    point, _, visit = wish.partition(":")
    left = int(visit or 1)

    def kill_at(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    return kill_at


fault: Callable[[str], None] = killer(os.environ.get(VARIABLE, ""))
