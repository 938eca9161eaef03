"""The columns of a table and its source, and the meaning of stored rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import InvalidMergeError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.values import Key, Row, alive_value, is_tombstone, order_keys, store, zero


def require(holds: bool, rule: str) -> None:
    """Raise InvalidMergeError unless a rule holds that depends on no data (S28)."""
    if not holds:
        raise InvalidMergeError(rule)


@attrs.frozen
class RowRules:
    definition: TableDefinition

    @property
    def of_tombstones(self) -> tuple[str, ...]:
        """The columns that a tombstone holds (S9)."""
        own = self.definition
        return (*own.primaryKey, *own.watermarkKey, own.tombstone_column)

    def key(self, row: Mapping[str, Any]) -> Key:
        """Return the primary key (S2)."""
        return tuple(row[name] for name in self.definition.primaryKey)

    def watermark(self, row: Mapping[str, Any]) -> Row:
        """Return the declared watermark columns (S3); none if the table declares none."""
        return {name: row[name] for name in self.definition.watermarkKey}

    def watermark_order(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the declared watermark in a form that Python compares in the order of S3."""
        return order_keys(self.watermark(row).values())

    def older(self, row: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
        """Return whether the row's declared watermark is smaller than the other row's, if there is one (S11)."""
        return other is not None and self.watermark_order(row) < self.watermark_order(other)

    def is_tombstone(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row is a tombstone (S4)."""
        return is_tombstone(self.definition, row[self.definition.tombstone_column])

    def content(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return every user column, and whether the row is a tombstone. Rows of equal content are equal (S12)."""
        return (*order_keys(row[name] for name in self.definition.names), self.is_tombstone(row))

    def store(self, name: str, value: Any) -> Any:
        """Return the value as a column holds it (S29)."""
        return store(self.definition.field(name), value, isKey=name in self.definition.primaryKey)

    def stored(self, values: Row) -> Row:
        """Return each value as its column holds it; of a tombstone, only the columns that a tombstone holds (S9, S29)."""
        held = {name: self.store(name, values[name]) for name in self.of_tombstones if name in values}
        if is_tombstone(self.definition, held.get(self.definition.tombstone_column, alive_value(self.definition))):
            return held
        return {name: held[name] if name in held else self.store(name, value) for name, value in values.items()}

    def bare(self, tombstone: Row) -> Row:
        """Return a whole row in which columns that a tombstone does not hold are null or zero (S9)."""
        blank = {f.name: None if f.nullable else zero(f) for f in self.definition.stored_fields}
        return {name: tombstone[name] if name in self.of_tombstones else value for name, value in blank.items()}


@attrs.frozen
class Names:
    """The columns of target and source, found without regard to case (S30).

    ``source`` is empty for a merge without a source; ``alias`` of the target may qualify the keys of a map.
    """

    definition: TableDefinition
    source: tuple[str, ...]
    alias: str = "target"

    def target_column(self, name: Any) -> str:
        text = str(name)
        qualifier = f"{self.alias}.".lower()
        found = _find(text[len(qualifier) :] if text.lower().startswith(qualifier) else text, self.definition.names)
        require(found is not None, f"Column '{name}' not found in the table (S28).")
        return str(found)

    def source_column(self, name: str) -> str | None:
        return _find(name, self.source)

    def required(self, name: str) -> str:
        found = self.source_column(name)
        require(found is not None, f"Column '{name}' not found in the source (S28).")
        return str(found)


def _find(name: str, names: Iterable[str]) -> str | None:
    return next((n for n in names if n.lower() == name.lower()), None)
