"""The watermarks of a log as Python values (docs/format.md, "Values in JSON")."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

from trinitymerge.schema.definition import TableDefinition

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def readable_watermark(stored: Sequence[Any] | None, definition: TableDefinition) -> tuple[Any, ...] | None:
    """Return a stored watermark as Python values: times as datetimes in UTC, dates as dates.

    Example:
        >>> from trinitymerge import Field, TableDefinition
        >>> own = TableDefinition.of([Field("id", "long"), Field("day", "date"), Field("n", "long")], "id", ["day", "n"])
        >>> readable_watermark([19723, 7], own)
        (datetime.date(2024, 1, 1), 7)
    """
    if stored is None:
        return None
    kinds = (definition.field(name).type for name in definition.watermarkKey)
    return tuple(_value(value, kind) for value, kind in zip(stored, kinds, strict=False))


def _value(stored: Any, kind: object) -> Any:
    if stored is None:
        return None
    try:
        if kind == "date":
            return date(1970, 1, 1) + timedelta(days=stored)
        if kind == "timestamp":
            return _EPOCH + timedelta(microseconds=stored)
        if kind == "timestamp_ntz":
            return (_EPOCH + timedelta(microseconds=int(stored))).replace(tzinfo=None)
    except (OverflowError, ValueError, TypeError):
        return stored  # a time that Python cannot hold
    return bool(stored) if kind == "boolean" else stored
