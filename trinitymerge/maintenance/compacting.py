"""Which of two ways a table is compacted (S38): by :func:`~trinitymerge.maintenance.compaction.compact`, or all as one batch.

Owns: that choice, which the store decides.
"""

from __future__ import annotations

from trinitymerge.maintenance.asone import compact_as_one
from trinitymerge.maintenance.compaction import CompactionResult, compact
from trinitymerge.storage.backend import Replacing
from trinitymerge.storage.stores import maintained


def compact_as_allowed(store: Replacing, full: bool = False) -> CompactionResult:
    """Compacts a table in the way that its store allows.

    Args:
        store: where the table is.
        full: even what would not pay.
    """
    if store.replaces_alone:
        return compact_as_one(store, full)
    return compact(maintained(store, "compact()"), full)
