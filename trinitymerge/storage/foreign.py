"""What other programs' commits to a table of Iceberg's mean to this library (S16).

Owns: which of them add rows, which may have changed rows that were there, and what is still known of a table's batches afterwards.
Plain data: snapshots in, commits out.
"""

from __future__ import annotations

import attrs

from trinitymerge.storage.entries import Batch, Commit, Snapshot
from trinitymerge.storage.icebergtable import Link

OPERATIONS = {"append": "APPEND", "replace": "REWRITE", "delete": "DELETE"}
"""What Iceberg calls an operation, and what a table's history does; all others may be anything."""


def commit_of_others(link: Link, before: Snapshot) -> Commit:
    """A snapshot that another program has committed, as a commit of this library.

    Appended rows have no place in the commit order, and are a batch of their own that counts as older than every merge. Where
    rows were deleted, each batch is another one from then on, of which all that was known still holds. Where rows may have been
    replaced, nothing is known any more: all rows are one batch.

    Args:
        link: what was committed.
        before: the table right before it.
    """
    added: list[Batch] = []
    removed: list[str] = []
    if link.operation == "append":
        rows = link.count("added-records", unknown=1)
        added = [_rows(link, rows, link.count("added-data-files"), link.count("added-files-size"), 0)] if rows else []
    elif link.operation == "delete":
        removed = [b.id for b in before.batches]
        added = [attrs.evolve(b, id=f"{b.id.partition('-since-')[0]}-since-{link.id}") for b in before.batches]
    elif link.operation != "replace":
        removed = [b.id for b in before.batches]
        rows = link.count("total-records", unknown=1)
        files, size = link.count("total-data-files"), link.count("total-files-size")
        added = [_rows(link, rows, files, size, before.version + 1)] if rows else []
    operation = OPERATIONS.get(link.operation, "OVERWRITE")
    commit = before.next_commit(operation, added=added, removed=removed, user=link.summary.get("engine-name"))
    return attrs.evolve(commit, timestamp_ms=max(before.timestamp_ms + 1, link.at_ms), id=str(link.id))


def _rows(link: Link, rows: int, files: int, size: int, version: int) -> Batch:
    """Rows of others: any of them may be a tombstone, and keys may occur more than once."""
    return Batch(
        id=f"others-{link.id}", rows=rows, tombstones=rows, files=files, bytes=size, version=version, foreign=True
    )
