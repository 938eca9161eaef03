"""May a merge still be committed as it is, after others were faster (S35).

Owns: what of the target a merge depended on, and whether the commits in between have touched that. Knows neither how the
batch came about nor how it is committed.
"""

from __future__ import annotations

import attrs
from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import quote
from trinitymerge.maintenance.compaction import is_above
from trinitymerge.merge.paths import Path
from trinitymerge.storage.backend import Backend, Batches, Staged
from trinitymerge.storage.log import Batch, Commit, Snapshot


@attrs.frozen(eq=False)
class Dependence:
    """What a merge's batch was computed from.

    Attributes:
        backend: where the target is.
        path: how much of the target was read.
        certain: the keys below are all that was looked at: no key moves, nothing depends on the number of rows.
        batch: what is to be committed, if anything.
        staged: its rows.
        read: the keys that were looked up (:func:`trinitymerge.reader.key_to_find`).
    """

    backend: Backend
    path: Path
    certain: bool
    batch: Batch | None
    staged: Staged
    read: DataFrame | None

    def holds(self, since: Snapshot, now: Snapshot) -> bool:
        """Would the merge have come out the same against the newer snapshot: then it may be committed on top of it."""
        if now.definition_version != since.definition_version or now.purged != since.purged:
            return False
        if self.path is Path.BLIND:
            return True
        landed = list(self.backend.commits(since.version + 1, now.version))
        if not all(self._is_harmless_removal(now.definition, c) for c in landed if c.removed):
            return False
        ids = {b.id for c in landed if not c.removed for b in c.added}
        added = tuple(b for b in now.batches if b.id in ids)
        if not ids:
            return True
        return self.certain and len(added) == len(ids) and not self._meets(Batches(now.definition, added))

    def _is_harmless_removal(self, definition: TableDefinition, commit: Commit) -> bool:
        """Is it a compaction that has forgotten no tombstone which hides a row of this merge."""
        if commit.operation != "COMPACT":
            return False
        return commit.horizon is None or self.batch is None or is_above(definition, self.batch, commit.horizon)

    def _meets(self, landed: Batches) -> bool:
        """Have the batches that landed any key that this merge has read or written."""
        definition = landed.definition
        names = [f"{quote(k)} AS {reader.key_to_find(i)}" for i, k in enumerate(definition.primaryKey)]
        mine = [self.backend.read_staged(self.staged).selectExpr(*names)] if self.batch is not None else []
        mine += [self.read] if self.read is not None else []
        theirs = self.backend.scan(landed)
        return any(not reader.only_keys(theirs, definition, keys).isEmpty() for keys in mine)
