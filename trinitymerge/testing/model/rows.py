"""Key, watermark and tombstone of a stored row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.values import is_tombstone, order_keys


@attrs.frozen
class RowRules:
    """What keys, watermarks and tombstones mean for the rows of one table."""

    definition: TableDefinition

    @property
    def of_tombstones(self) -> frozenset[str]:
        """The columns that a tombstone says something with (S9)."""
        own = self.definition
        return frozenset((*own.primaryKey, *own.watermarkKey, own.tombstone_column))

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """The primary key (S2)."""
        return tuple(row[name] for name in self.definition.primaryKey)

    def watermark(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The declared watermark columns (S3); empty where the table has none."""
        return {name: row[name] for name in self.definition.watermarkKey}

    def watermark_order(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """The declared watermark as something that compares as S3 says."""
        return order_keys(self.watermark(row).values())

    def older(self, row: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
        """True if the row's declared watermark is smaller than the other's (S11); no other row is no reason."""
        return other is not None and self.watermark_order(row) < self.watermark_order(other)

    def is_tombstone(self, row: Mapping[str, Any]) -> bool:
        """True if the row says "deleted" (S4)."""
        return is_tombstone(self.definition, row[self.definition.tombstone_column])

    def content(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Every user column, and whether the row is a tombstone: equal content is the same row (S12)."""
        return (*order_keys(row[name] for name in self.definition.names), self.is_tombstone(row))
