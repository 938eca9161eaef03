"""Small domains of values per type, chosen at the edges of types so that keys collide."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_DAYS = (dt.date(2020, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(9999, 12, 31))
_TIMES = (
    dt.datetime(2020, 1, 1),
    dt.datetime(2020, 1, 1, 0, 0, 0, 1),
    dt.datetime(1969, 12, 31, 23, 59, 58, 999999),  # not a second later: ORC files cannot keep those
    dt.datetime(2021, 3, 28, 2, 30),
)

KEY_VALUES: Mapping[str, tuple[Any, ...]] = {
    "integer": (1, 2, 3, -4, 0),
    "string": ("a", "", "B", "a'b", "\u00e9\U0001f600"),
    "long": (1, -(2**63), 2**63 - 1, 0, 7),
    "short": (1, 2, -32768, 32767),
    "byte": (1, 2, -128, 127),
    "boolean": (False, True),
    "decimal(5,2)": (Decimal("1.50"), Decimal("-0.01"), Decimal("999.99"), Decimal("0.00")),
    "char(2)": ("ab", "cd", "e ", "zz"),
    "varchar(3)": ("a", "abc", "", "b"),
    "binary": (b"a", b"", b"\xff", b"\x00"),
    "date": _DAYS,
    "timestamp": _TIMES,
    "timestamp_ntz": _TIMES,
    "interval day to second": (dt.timedelta(1), dt.timedelta(0), dt.timedelta(-1, 1), dt.timedelta(2)),
}
"""Values by key type. The last ones of each are "fresh": rows that exist already do not use them."""

KEY_TYPES: tuple[str, ...] = tuple(KEY_VALUES)
"""The types generated keys have."""

VALUES: Mapping[str, tuple[Any, ...]] = {
    **KEY_VALUES,
    "integer": (1, 0, 2, 3, -1),
    "long": (1, 2, 3, 0),
    "double": (1.5, 0.0, -0.0, float("nan"), float("-inf")),
}
"""Values by column type, null apart."""

WATERMARK_TYPES: tuple[str, ...] = (
    "long",
    "timestamp",
    "integer",
    "date",
    "string",
    "double",
    "decimal(5,2)",
    "timestamp_ntz",
    "boolean",
    "binary",
)
"""The types generated watermarks have."""
