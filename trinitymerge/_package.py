"""The installed package: its version, what other packages add as entry points, and names that have changed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

__version__ = "0.1.0"

FORMER_FORMATS = {"deltaCdf": "delta_cdf", "icebergChanges": "iceberg_changes"}
"""The names that formats of change feeds had in version 0.1.0. They stay for one version."""

_T = TypeVar("_T")
_D = TypeVar("_D")


def registered(group: str, own: Mapping[str, _T], name: str, otherwise: _D) -> _T | _D:
    """Return what a name stands for: one of the library's own, or what another package has registered as an entry point."""
    if name in own:
        return own[name]
    found = _entry_point(group, name)
    if found is None:
        return otherwise
    loaded: _T = found.load()
    return loaded


def registered_names(group: str, own: Mapping[str, object]) -> list[str]:
    """Return all names that :func:`registered` knows, the library's first."""
    return list(dict.fromkeys([*own, *sorted(point.name for point in entry_points(group=group))]))


@cache
def _entry_point(group: str, name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=group, name=name)), None)


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, which warns of names that have changed."""

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is deprecated: it is called {names[name]}.", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return found
