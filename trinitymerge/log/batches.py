"""The batches of a snapshot as readers see them: a base, and what is pending beside it (S13)."""

from __future__ import annotations

from typing import Any

import attrs

from trinitymerge.errors import counted
from trinitymerge.log.actions import Batch, SetDeletionVectors
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.definition import TableDefinition


@attrs.frozen
class Batches:
    """Batches to read, with the definition to read them by.

    Attributes:
        batches: in commit order.
        truncated_at: the watermark of the table's last truncate, in the form of the log; None without one. No live row is older.
        deletion_vectors: the rows that scans leave out; None for all rows.
    """

    definition: TableDefinition
    batches: tuple[Batch, ...]
    truncated_at: tuple[Any, ...] | None = None
    deletion_vectors: SetDeletionVectors | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> Batches:
        """Return what live rows of a snapshot are read from."""
        truncate, vectors = snapshot.truncate, snapshot.deletion_vectors
        if truncate is None:
            return cls(snapshot.definition, snapshot.live_batches, deletion_vectors=vectors)
        return cls(snapshot.definition, snapshot.live_batches, truncate.watermark, vectors)

    def of_all_rows(self) -> Batches:
        """Return the same batches without deletion vectors: a scan returns all rows."""
        return self if self.deletion_vectors is None else attrs.evolve(self, deletion_vectors=None)

    @property
    def base(self) -> tuple[Batch, ...]:
        """The newest batch that is resolved and unique by key, or all segments of that base; none if there is none."""
        newest = next((b for b in reversed(self.batches) if b.base and b.unique_keys), None)
        if newest is None or newest.segment_of is None:
            return () if newest is None else (newest,)
        return tuple(b for b in self.batches if b.segment_of == newest.segment_of)

    @property
    def pending(self) -> tuple[Batch, ...]:
        """The batches beside the base, which every read resolves: all of them without a base."""
        base = {b.id for b in self.base}
        return tuple(b for b in self.batches if b.id not in base)

    @property
    def compared(self) -> tuple[Batch, ...]:
        """The batches whose replaced rows are marked by deletion vectors, if the whole base is among them (D2)."""
        vectors = self.deletion_vectors
        if vectors is None or not all(b.id in vectors.marked for b in self.base):
            return ()
        return tuple(b for b in self.batches if b.id in vectors.marked)

    @property
    def read_base(self) -> tuple[Batch, ...]:
        """Batches with one row per key: those with deletion vectors, else the base, else the oldest if its keys are unique."""
        return self.compared or self.base or tuple(b for b in self.batches[:1] if b.unique_keys)

    @property
    def deltas(self) -> tuple[Batch, ...]:
        base = {b.id for b in self.read_base}
        return tuple(b for b in self.batches if b.id not in base)

    @property
    def marked_rows(self) -> int:
        """The stored rows that deletion vectors mark as replaced (D1)."""
        vectors = self.deletion_vectors
        return 0 if vectors is None else sum(vectors.marked.get(b.id, 0) for b in self.batches)

    def unmarked_bytes(self, batch: Batch) -> int:
        vectors = self.deletion_vectors
        marked = 0 if vectors is None else vectors.marked.get(batch.id, 0)
        return batch.bytes * (batch.rows - marked) // batch.rows if marked else batch.bytes

    @property
    def compared_rows(self) -> int:
        """The rows whose keys a read compares with all others."""
        return sum(b.rows for b in self.deltas)

    @property
    def is_clustered(self) -> bool:
        """True if some files are not sorted by the leading column of the key (S7c): their pages cannot be skipped by key."""
        first = self.definition.field(self.definition.primaryKey[0]).first_stored_as
        return any(b.cluster_by[:1] not in ((), (first,)) for b in self.batches)

    @property
    def are_resolved(self) -> bool:
        """True if no two stored rows have the same key."""
        if len(self.batches) <= 1:
            return all(b.unique_keys for b in self.batches)
        return not self.pending


def read_work(files: int, rows: int, marked: int, compared: int) -> str:
    """Return what a read does, in words that follow "a read" or "a scan"."""
    passed = f", passes over {marked:,} that deletion vectors mark" if marked else ""
    keys = f", compares the keys of {compared:,}" if compared else ""
    return f"opens {counted(files, 'file')} of {counted(rows)}{passed}{keys}"
