"""How long it takes to open a table with a long history: `python tests/opening.py` prints the figures of docs/reliability.md.

The log is made up, without Spark and without data files: each commit adds a batch, and every 50th replaces all batches by
one base, as compaction does. What is measured is what every read and every merge begins with.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log.actions import MAJOR, AddBatch, Batch, SetDefinition, remove_all
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

COMPACTED_EVERY = 50


class Opening(NamedTuple):
    """What opening costs after so many commits."""

    commits: int
    compacted: bool
    first_ms: float
    again_ms: float
    files: int


def measure(sizes: Iterable[int], directory: Path, compacted: bool = True) -> list[Opening]:
    """Grows one log and opens it at each size: as a new process does, and as one does that has read it before."""
    fs = LocalFileSystem()
    log = CommitLog(fs, str(directory / f"table-{compacted}"))
    definition = TableDefinition.of([Field("id", "long"), Field("ts", "long")], "id", "ts")
    snapshot = log.create(Commit(version=0, timestamp_ms=1, operation="CREATE", actions=[SetDefinition(definition)]))
    found = []
    for size in sizes:
        while snapshot.version < size:
            snapshot = log.commit(_next(snapshot, compacted), snapshot)
        first = _median_ms(lambda: CommitLog(fs, log.files.table_path).newest())
        again = _median_ms(lambda snapshot=snapshot: log.newest(snapshot))
        found.append(Opening(size, compacted, first, again, len(list(fs.list(log.files.directory)))))
    return found


def _next(snapshot: Snapshot, compacted: bool) -> Commit:
    version = snapshot.version + 1
    batch = Batch(
        id=f"{version:032x}",
        rows=1000,
        tombstones=3,
        files=1,
        bytes=50_000,
        watermark_min=(1,),
        watermark_max=(version,),
    )
    if compacted and version % COMPACTED_EVERY == 0:
        return snapshot.next_commit("COMPACT", [*remove_all(snapshot.batches, MAJOR), AddBatch(batch, MAJOR)])
    return snapshot.next_commit("MERGE", [AddBatch(batch)])


def _median_ms(action: object, times: int = 15) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()  # type: ignore[operator]
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


if __name__ == "__main__":
    print("commits  compacted   first open   open again   files in the log")
    with tempfile.TemporaryDirectory() as root:
        for compacted in (True, False):
            for o in measure((10, 1_000, 10_000), Path(root), compacted):
                print(f"{o.commits:7,}  {o.compacted!s:9} {o.first_ms:8.1f} ms {o.again_ms:9.2f} ms {o.files:12,}")
