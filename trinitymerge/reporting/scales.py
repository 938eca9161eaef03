"""Axes: from values to positions, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import attrs

MOST_TICKS = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_TIME_STEPS = (
    *(s * 1000 for s in (1, 2, 5, 10, 15, 30)),
    *(m * _MINUTE for m in (1, 2, 5, 10, 15, 30)),
    *(h * _HOUR for h in (1, 2, 3, 6, 12)),
    *(d * _DAY for d in (1, 2, 7, 14, 30, 60, 90, 180, 365)),
)


@attrs.frozen
class Axis:
    """A linear axis of ``low`` at ``start`` to ``high``, which is larger, at ``end``: positions in units of the drawing."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    texts: tuple[str, ...]

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def number_axis(values: Sequence[float], start: float, end: float, show: str = "short") -> Axis:
    """Return an axis from 0 (at ``start``) to at least the largest value; none may be negative.

    ``show`` is ``"short"`` for counts such as ``1.2 M``, ``"bytes"`` or ``"seconds"``.
    """
    highest = max(values, default=0) or 1
    step = _round_up(highest / (MOST_TICKS - 3))
    ticks = [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]
    shown = {"short": short, "bytes": short_bytes, "seconds": short_seconds}[show]
    return Axis(0, ticks[-1], start, end, tuple(ticks), tuple(map(shown, ticks)))


def readable_moment(timestamp_ms: int) -> str:
    """Return milliseconds since the epoch as a date and a time in UTC."""
    return f"{_EPOCH + timedelta(milliseconds=timestamp_ms):%Y-%m-%d %H:%M:%S}"


def time_axis(low_ms: int, high_ms: int, start: float, end: float) -> Axis:
    """Return an axis of times in UTC, in milliseconds since the epoch; ticks are at whole seconds, minutes, hours or days."""
    if high_ms <= low_ms:
        low_ms, high_ms = low_ms - 500, low_ms + 500
    span = high_ms - low_ms
    step = next((s for s in _TIME_STEPS if span / s <= MOST_TICKS - 2), 365 * _DAY * math.ceil(span / (6 * 365 * _DAY)))
    first = -(-low_ms // step) * step
    ticks = list(range(first, high_ms + 1, step))
    form = "%Y-%m-%d" if step >= _DAY else "%m-%d %H:%M" if span >= _DAY else "%H:%M" if step >= _MINUTE else "%H:%M:%S"
    texts = [(_EPOCH + timedelta(milliseconds=t)).strftime(form) for t in ticks]
    return Axis(low_ms, high_ms, start, end, tuple(ticks), tuple(texts))


def version_axis(first: int, last: int, start: float, end: float) -> Axis:
    """Return an axis of version numbers, with half a version of room at both ends."""
    step = max(1, int(_round_up((last - first) / (MOST_TICKS - 2)))) if last > first else 1
    ticks = [v for v in range(first - first % step, last + 1, step) if v >= first]
    return Axis(first - 0.5, last + 0.5, start, end, tuple(ticks), tuple(f"{t:,}" for t in ticks))


def short(value: float) -> str:
    """Return a number with at most three digits and a unit.

    Example:
        >>> short(0), short(950), short(1500), short(2_000_000)
        ('0', '950', '1.5 K', '2 M')
    """
    return _with_unit(value, ("", " K", " M", " G", " T"))


def short_bytes(value: float) -> str:
    """Return a size with at most three digits.

    Example:
        >>> short_bytes(0), short_bytes(1500), short_bytes(20_000_000)
        ('0 B', '1.5 KB', '20 MB')
    """
    return _with_unit(value, (" B", " KB", " MB", " GB", " TB"))


def short_seconds(value: float) -> str:
    return f"{value:.4g} s"


def _with_unit(value: float, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        if abs(value) < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:,.3g}{units[-1]}"


def _round_up(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … times a power of ten that is not smaller."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= value * (1 - 1e-9))
