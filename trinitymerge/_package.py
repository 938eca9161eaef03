"""The installed package: its version, and the stores and file systems that other packages add as entry points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

__version__ = "0.1.0"

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
