"""Rows of Spark as records: plain Python values whose times are in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import DataType, StructType


def records(rows: Iterable[Row], schema: StructType) -> Iterator[dict[str, Any]]:
    """Yield each row as a dict. Structs are dicts, maps are lists of pairs, timestamps have the time zone UTC."""
    for row in rows:
        yield {f.name: _plain(value, f.dataType) for f, value in zip(schema.fields, row, strict=True)}


def _plain(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    name = kind.typeName()
    if name == "timestamp" and isinstance(value, datetime):
        # Spark returns it in the zone of this process.
        return value.astimezone(timezone.utc)
    if name == "struct":
        fields = kind.fields  # type: ignore[attr-defined]
        return {f.name: _plain(v, f.dataType) for f, v in zip(fields, value, strict=True)}
    if name == "array":
        return [_plain(v, kind.elementType) for v in value]  # type: ignore[attr-defined]
    if name == "map":
        key, of = kind.keyType, kind.valueType  # type: ignore[attr-defined]
        return [{"key": _plain(k, key), "value": _plain(v, of)} for k, v in value.items()]
    return value
