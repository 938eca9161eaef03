"""Deletion vectors: which stored rows are replaced, found once for all reads (D1-D4)."""

from __future__ import annotations

import re
import time
from functools import partial

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge import reader
from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import Batch, SetDeletionVectors
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import ConcurrentCommits, Predicate, publish
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.properties import minor_compaction_after_batches
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore, Staged
from trinitymerge.stores.removed_files import naming_vacuums
from trinitymerge.stores.staging import discarded_on_failure

FAULT_POINTS = ("deletion_vectors.staged", "deletion_vectors.committed")

LEAST_ROWS = 200_000
"""The keys of fewer rows are compared as fast as their bits, at any size of the table."""

ROWS_LOOKED_AT = 32
"""After a minor compaction, so many stored rows are looked at for each row that has not been compared. The look takes about a
fifth of the time of merging that row."""

ROWS_LOOKED_AT_BETWEEN = 8
"""After other merges."""

_MOST_COMPARED = 1_000_000
"""More rows are compared at any cost: soon they are too many to be broadcast by reads, which then shuffle the table."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


def are_due(store: ManagedStore, snapshot: Snapshot, has_compacted: bool) -> bool:
    """Return True if the time to make deletion vectors is small beside that of the merges since the last ones (D4)."""
    definition, batches = snapshot.definition, Batches.of(snapshot)
    is_off = minor_compaction_after_batches(snapshot.properties) is None
    if definition.fileFormat != "parquet" or definition.hides_metadata or is_off:
        return False
    new = [b for b in batches.deltas if b.rows]
    rows = sum(b.rows for b in new)
    if rows < LEAST_ROWS or any(b.foreign for b in batches.batches):
        return False
    worth = rows * (ROWS_LOOKED_AT if has_compacted else ROWS_LOOKED_AT_BETWEEN)
    looked_at = sum(b.rows for b in reader.near_batches(store, definition, batches.read_base, new))
    is_cheap = looked_at <= worth or rows > _MOST_COMPARED
    return is_cheap and reader.fits_vectors(store.spark, sum(b.rows for b in batches.batches))


@with_session_settings
def make_deletion_vectors(store: ManagedStore, snapshot: Snapshot) -> Snapshot | None:
    """Commit deletion vectors of all live batches. None, without any change, if one is gone or names of files are not plain."""
    start, batches = time.perf_counter(), reader.usable(store, Batches.of(snapshot))
    if snapshot.definition.hides_metadata or not all(_has_plain_names(store, b) for b in batches.batches if b.rows):
        return None
    try:
        with naming_vacuums(store), discarded_on_failure(store) as staged:
            with reporting.working(store.path, "deletion vectors", "replaced rows are marked in deletion vectors"):
                made = _made(store, batches, staged)
            faults.fault("deletion_vectors.staged")
            commit = snapshot.next_commit(
                "DELETION VECTORS", [made], start, metrics={"marked": sum(made.marked.values()), "bytes": made.bytes}
            )
            done = publish(store, commit, snapshot, (Predicate(partial(_lacks_batch, made)),))
    except (ConcurrentCommitError, FilesVacuumedError):
        return None
    faults.fault("deletion_vectors.committed")
    return done


def _has_plain_names(store: ManagedStore, batch: Batch) -> bool:
    """Return True if a batch's files have different names, which all versions of Spark report in the same way."""
    names = [f.name for f in store.data_files(batch.id)]
    return len({*names}) == len(names) and all(map(_PLAIN_NAME.fullmatch, names))


def _lacks_batch(made: SetDeletionVectors, landed: ConcurrentCommits) -> str | None:
    here = {b.id for b in landed.now.batches}
    same = (landed.now.definition.primaryKey, landed.now.definition.watermarkKey) == (
        landed.since.definition.primaryKey,
        landed.since.definition.watermarkKey,
    )
    return None if same and here.issuperset(made.marked) else "a batch has been replaced whose rows are marked"


def _made(store: ManagedStore, batches: Batches, staged: list[Staged]) -> SetDeletionVectors:
    written, checksum = store.stage_deletion_vectors(_vectors(store, batches), batches.definition)
    staged.append(written)
    made = SetDeletionVectors(id=written.id, checksum=checksum, bytes=written.size_bytes, marked={})
    bits = f"sum(aggregate({C.WORDS}, 0L, (n, word) -> n + bit_count(word)))"
    found = {r[0]: int(r[1]) for r in _counted(store, made, bits)}
    return attrs.evolve(made, marked={b.id: found.get(b.id, 0) for b in batches.batches})


def _counted(store: ManagedStore, made: SetDeletionVectors, bits: str) -> list[tuple[str, int]]:
    return [tuple(r) for r in store.deletion_vectors(made).groupBy(C.MARKED_IN).agg(F.expr(bits)).collect()]


def _vectors(store: ManagedStore, batches: Batches) -> DataFrame:
    """Return the deletion vectors of batches: those that they have, and the rows that batches since then replace."""
    marked = _words_of_replaced(store, batches)
    if batches.deletion_vectors is not None:
        known = store.deletion_vectors(batches.deletion_vectors)
        hashed = known.selectExpr(
            f"{_HASH_OF_MARKED} AS {C.FILE_HASH}", f"posexplode({C.WORDS}) AS ({C.WORD_IN_FILE}, {C.WORD})"
        )
        marked = marked.unionByName(hashed.filter(f"{C.WORD} <> 0"))
    one_each = marked.groupBy(C.FILE_HASH, C.WORD_IN_FILE).agg(F.expr(f"bit_or({C.WORD}) AS {C.WORD}"))
    listed = f"array_sort(collect_list(struct({C.WORD_IN_FILE} AS n, {C.WORD} AS word)))"
    by_file = one_each.groupBy(C.FILE_HASH).agg(F.expr(f"{listed} AS words"))
    gap = "CAST(one.n - coalesce(get(words, i - 1).n, -1) - 1 AS INT)"
    dense = f"flatten(transform(words, (one, i) -> concat(array_repeat(0L, {gap}), array(one.word))))"
    named = by_file.join(F.broadcast(_files(store, batches)), F.expr(f"{C.FILE_HASH} = {_HASH_OF_MARKED}"), "inner")
    return named.selectExpr(C.MARKED_IN, C.MARKED_FILE, C.MARKED_SIZE, f"{dense} AS {C.WORDS}")


_HASH_OF_MARKED = Sql(f"xxhash64({C.MARKED_IN}, {C.MARKED_FILE})")
"""Rows are grouped by numbers, which is faster than by names."""


def _files(store: ManagedStore, batches: Batches) -> DataFrame:
    files = [(b.id, f) for b in batches.batches if b.rows for f in store.data_files(b.id)]
    listed = (f"struct({E.text_literal(i)}, {E.text_literal(f.name)}, {f.size_bytes}L)" for i, f in files)
    columns = f"{C.MARKED_IN}, {C.MARKED_FILE}, {C.MARKED_SIZE}"
    return store.spark.range(1).selectExpr(f"inline(array({', '.join(listed)})) AS ({columns})")


def _words_of_replaced(store: ManagedStore, batches: Batches) -> DataFrame:
    """Return the rows that are not the latest of a key of a batch that has not been compared, as bits of words."""
    rows, new = batches.of_all_rows(), batches.deltas
    found = reader.ReadPlan.between(rows, reader.near_batches(store, batches.definition, batches.read_base, new), new)
    is_small = reader.fits_broadcast(store.spark, sum(b.rows for b in new), 1 if found.deltas_are_newer else 2)
    file = Sql(f"xxhash64({C.BATCH}, {C.FILE_OF_ROW})")
    place = () if all(b.unique_keys for b in batches.batches) else (file, C.ROW_IN_FILE)
    return reader.compare(store.scan_positions, found, "left_semi", place, is_small).selectExpr(
        f"{file} AS {C.FILE_HASH}",
        f"CAST(shiftright({C.ROW_IN_FILE}, 6) AS INT) AS {C.WORD_IN_FILE}",
        f"shiftleft(1L, CAST({C.ROW_IN_FILE} & 63 AS INT)) AS {C.WORD}",
    )
