"""Fault points: named places where a test may kill the process.

Owns: :func:`fault`. Knows nothing of what happens around a point. In production the function does nothing.
With ``TRINITYMERGE_FAULT=name`` (or ``name:3`` for the third visit) in the environment when Python starts,
the process kills itself with SIGKILL at that point, so that no ``finally`` and no buffer survives: a power
cut, as near as a test gets. Callers write ``faults.fault("name")``, through the module, so that a test may
replace it.
"""

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
