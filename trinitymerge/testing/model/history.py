"""Changes between two states of a table (S41)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.outcomes import Key
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import order_keys


@attrs.frozen
class Latest:
    """The latest row of a key, live or a tombstone, and the version that wrote it."""

    row: Row
    version: int


def latest_rows(
    definition: TableDefinition, batches: Iterable[tuple[Row, ...]], of: Key | None = None
) -> dict[Key, Latest]:
    """The latest row of every key, live or a tombstone (S6, S13, S15); or of one key."""
    rules, found = RowRules(definition), dict[Key, tuple[Any, ...]]()
    for version, batch in enumerate(batches, start=1):
        for row in batch:
            key = rules.key(row)
            if of is None or key == of:
                rank = rules.watermark_order(row), version, rules.is_tombstone(row), order_keys(row.values())
                found[key] = max(found.get(key, (rank, row)), (rank, row), key=lambda f: f[0])
    return {key: Latest(row, rank[1]) for key, (rank, row) in found.items()}


def net_changes(definition: TableDefinition, before: Mapping[Key, Latest], after: Mapping[Key, Latest]) -> list[Row]:
    """The changes from one state to another: per key at most one, which is two rows if it is an update.

    Args:
        definition: of both.
        before: the latest row of each key.
        after: likewise.

    Returns:
        The user's columns, ``_change_type``, ``_commit_version`` and ``_watermark``, in key order.
    """
    keys = sorted({*before, *after}, key=order_keys)
    return [row for key in keys for row in _change(definition, before.get(key), after.get(key))]


def _change(definition: TableDefinition, before: Latest | None, after: Latest | None) -> list[Row]:
    rules = RowRules(definition)
    was, now = (x.row if x and not rules.is_tombstone(x.row) else None for x in (before, after))
    if was is None and now is None:
        return []
    if now is None:
        assert was is not None
        return [_shown(definition, was, "delete", after)]
    if was is None:
        return [_shown(definition, now, "insert", after)]
    if rules.content(was) == rules.content(now):
        return []
    return [_shown(definition, was, "update_preimage", after), _shown(definition, now, "update_postimage", after)]


def _shown(definition: TableDefinition, row: Row, kind: str, after: Latest | None) -> Row:
    return {
        **{name: row[name] for name in definition.names},
        "_change_type": kind,
        "_commit_version": after.version if after else None,
        "_watermark": watermark_of(definition, after.row) if after else None,
    }


def watermark_of(definition: TableDefinition, row: Row) -> Any:
    """The declared watermark of a row as ``_watermark`` shows it: one value, several by name, or None if none is declared."""
    declared = RowRules(definition).watermark(row)
    return declared if len(declared) > 1 else next(iter(declared.values()), None)
