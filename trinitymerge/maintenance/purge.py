"""Purge: erase keys from every file and version (S39a, S39b)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeVar

import attrs
from pyspark.sql import Column, DataFrame, functions as F

from trinitymerge import _format, reader
from trinitymerge.errors import (
    ConcurrentCommitError,
    CorruptTableError,
    FilesVacuumedError,
    InvalidMergeError,
    StorageError,
    counted,
)
from trinitymerge.fs import faults
from trinitymerge.history.versions import archive_fields
from trinitymerge.log import reporting
from trinitymerge.log.actions import Batch, PurgeKeys, SetPendingDeletes, add_all, remove_all
from trinitymerge.log.commit import CommitStateUnknown, NoConcurrentCommits, publish, retry
from trinitymerge.log.model import Snapshot, now_ms
from trinitymerge.maintenance.vacuum import announce_deletes
from trinitymerge.reader import keys_to_find
from trinitymerge.rows import authors, key_ranges, registers
from trinitymerge.rows.keys import keys_to_columns, require_non_null_keys, translate_cast_errors
from trinitymerge.rows.purged_keys import hash_of_key
from trinitymerge.rows.registers import UNSET_FIELD
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import disagree, for_reading, readings
from trinitymerge.schema.properties import max_commit_attempts
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.errors import analysis_errors, classify_failure, clean_message, is_spark_error, storage_failed
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.predicates import checked_condition
from trinitymerge.stores.base import OUTBOX_PREFIX, ManagedStore
from trinitymerge.stores.removed_files import Files, data_files, looked_into, naming_storage_errors
from trinitymerge.stores.staging import stage

FAULT_POINTS = ("purge.staged", "purge.committed", "purge.deleted", "purge.found")

MOST_KEYS = 100_000
"""Keys that one call may purge: their hashes become part of the log."""

_CALL = "purge"
_MS_PER_HOUR = 3_600_000


@attrs.frozen
class PurgeResult(_format.Result):
    """The result of a purge.

    Attributes:
        version: the table's version afterwards. Earlier versions that needed a removed file cannot be read any more.
        keys: distinct keys that were given.
        rowsRemoved: rows of the current version that are gone, tombstones and replaced versions included.
        filesRewritten: files of the current version that held a key and were replaced.
        filesDeleted: files that were deleted: the replaced ones, and those that only past versions or dead writers needed.
        unverifiedFiles: directories that another writer is filling just now and that could not be looked into: purge again
            when it has ended.
    """

    version: int
    keys: int
    rowsRemoved: int
    filesRewritten: int
    filesDeleted: int
    unverifiedFiles: tuple[str, ...] = ()
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        doubt = f"; not yet verified, for a writer is at work there: {', '.join(self.unverifiedFiles)}"
        return (
            f"version {self.version}: {counted(self.keys, 'key')} purged, {counted(self.rowsRemoved)} removed, "
            f"{counted(self.filesRewritten, 'file')} rewritten, {self.filesDeleted:,} deleted"
            f"{doubt if self.unverifiedFiles else ''}"
        )


@attrs.define(eq=False)
class _Purge:
    store: ManagedStore
    definition: TableDefinition
    keys: DataFrame
    examined: set[str] = attrs.field(factory=set)
    rewritten: dict[str, Batch | None] = attrs.field(factory=dict)
    """From a batch that holds a key to its replacement, or None if nothing is left of it."""
    elsewhere: set[str] = attrs.field(factory=set)
    """Directories with a key that the table does not need: of past versions, and of writers that are at work or dead."""

    def holding(self, ids: Sequence[str]) -> set[str]:
        """Return the batch directories that hold a key, of a row or as an earlier one (U7), by a scan of these columns."""
        own, had_partial = self.definition, self.store.snapshot().had_partial
        readable = schema_for_all_files(self.store, own)
        fields = [*(readable.field(k) for k in own.primaryKey), *([UNSET_FIELD] if had_partial else [])]
        rows = self.store.scan_directories(own, fields, list(ids))
        keys = rows.select(C.BATCH, *map(E.quote, own.primaryKey))
        if had_partial:
            earlier = rows.selectExpr(C.BATCH, f"explode(flatten({authors.key_changes(own)})) AS change")
            named = [f"change.k{i} AS {E.quote(k)}" for i, k in enumerate(own.primaryKey)]
            keys = keys.unionByName(earlier.selectExpr(C.BATCH, *named))
        found = reader.semi_join(keys, own, F.broadcast(self.keys)).select(C.BATCH).distinct()
        return {r[0] for r in found.collect()}

    def holding_of_others(self, ids: Iterable[str]) -> set[str]:
        """Return the same for directories that the table does not need: their files may be deleted during the scan."""
        wanted = list(ids)
        return looked_into(lambda: data_files(self.store, wanted), self.holding)

    def rewrite(self, snapshot: Snapshot) -> None:
        """Rewrite the batches of a snapshot that hold a key and have not been looked at before."""
        new = [b for b in snapshot.batches if b.id not in self.examined and b.rows]
        self.store.verify_files(new)  # a key in a file that is missing would come back with it
        hit = self.holding([b.id for b in new])
        for batch in new:
            if batch.id in hit:
                self.rewritten[batch.id] = self._without_keys(batch)
            self.examined.add(batch.id)

    def _without_keys(self, batch: Batch) -> Batch | None:
        metrics = {"n": "count(1)", "tombstones": f"count_if({E.is_tombstone(self.definition)})"}
        metrics |= key_ranges.metrics_of_rows(self.definition, E.TRUE)
        metrics |= key_ranges.metrics_of_first(self.definition, E.TRUE)
        metrics |= registers.metrics(self.definition, E.TRUE) if batch.partial else {}
        gathering = Metrics(metrics)
        extra = archive_fields(self.definition) if batch.archive else ()
        stored = self.store.read_whole(batch, self.definition, extra)
        rows = reader.anti_join(stored, self.definition, F.broadcast(self.keys))
        rows = self._without_earlier_keys(rows) if batch.moved else rows
        staged, counted = stage(self.store, gathering.observe(rows), self.definition, gathering, reads=[batch])
        if not counted["n"]:
            self.store.discard(staged)
            return None
        return attrs.evolve(
            batch,
            id=staged.id,
            rows=counted["n"],
            tombstones=counted["tombstones"],
            partial=counted.get("partial", 0),
            moved=counted.get("moved", 0),
            files=staged.files,
            bytes=staged.size_bytes,
            layout_version=self.definition.layout_version,
            cluster_by=self.definition.stored_cluster_by or batch.cluster_by,
            extra={},
        )

    def _without_earlier_keys(self, rows: DataFrame) -> DataFrame:
        own, columns = self.definition, rows.columns
        key = authors.key_as_texts([C.KEY_TO_FIND(i) for i in range(len(own.primaryKey))], own)
        purged = self.keys.selectExpr(f"collect_list({key}) AS {C.OLD_KEYS}")
        unset = authors.without_earlier_keys(C.OLD_KEYS, own)
        shown = [f"{unset} AS {C.UNSET}" if name == C.UNSET else E.quote(name) for name in columns]
        return rows.crossJoin(F.broadcast(purged)).selectExpr(*shown)

    def gone(self, snapshot: Snapshot) -> list[str]:
        """Return the batches to delete, which must not be committed again: replaced ones, and past ones that hold a key."""
        here = self.store.directories()
        known = snapshot.referenced_ids | {b.id for b in self.rewritten.values() if b is not None}
        self.elsewhere = self.holding_of_others(i for i in here if i not in known)
        return sorted({*self.elsewhere, *self.rewritten, *(i for i in snapshot.pending_deletes if i in here)})

    def discard_all(self) -> None:
        for batch in filter(None, self.rewritten.values()):
            self.store.remove(self.store.batch_path(batch.id))

    def keep_to(self, definition: TableDefinition) -> None:
        """Start again if the table has been altered: replacements without a new column's values would lose them."""
        if definition != self.definition:
            self.begin_anew()
            self.definition = definition

    def begin_anew(self) -> None:
        self.discard_all()
        self.examined, self.rewritten = set(), {}

    def counts(self, before: Snapshot) -> dict[str, int]:
        replaced = [(b, self.rewritten[b.id]) for b in before.batches if b.id in self.rewritten]
        return {
            "rowsRemoved": sum(b.rows - (0 if new is None else new.rows) for b, new in replaced),
            "filesRewritten": sum(b.files for b, _ in replaced),
        }

    def drop_replaced(self, snapshot: Snapshot) -> None:
        """Forget replacements of batches that other writers have removed from the table."""
        here = {b.id for b in snapshot.batches}
        for gone in [i for i in self.rewritten if i not in here]:
            batch = self.rewritten.pop(gone)
            if batch is not None:
                self.store.remove(self.store.batch_path(batch.id))


def schema_for_all_files(store: ManagedStore, definition: TableDefinition) -> TableDefinition:
    """Return a definition that reads the files of every version (S43); it reads the log only if columns were rearranged."""
    if not definition.is_rearranged:  # a restore keeps what it leaves behind among the retired names
        return definition
    return for_reading(definition, (c.definition for c in store.history() if c.definition is not None))


def by_form(
    store: ManagedStore, definition: TableDefinition, ids: Sequence[str]
) -> list[tuple[TableDefinition, list[str]]]:
    """Yield batches with a definition that reads each value in its stored type, or a wider one (S43).

    An uncommitted batch says by which definition it was written if it changes columns. One that reads all forms covers others.
    """
    wanted, written_by = set(ids), noted_by_others(store, ids)
    own: TableDefinition | None = None
    for commit in reversed(store.history()) if definition.is_rearranged else ():
        own = commit.definition or own
        written_by |= {b.id: own for b in commit.added if b.id in wanted - written_by.keys() and own is not None}
    found = readings(definition, dict(reversed(written_by.items())))
    return [*found, (schema_for_all_files(store, definition), [i for i in ids if i not in written_by])]


def noted_by_others(store: ManagedStore, ids: Iterable[str]) -> dict[str, TableDefinition]:
    needed = store.snapshot().referenced_ids
    found = {i: store.noted_definition(i) for i in ids if i not in needed}
    return {i: own for i, own in found.items() if own is not None}


@with_session_settings
def purge(
    store: ManagedStore, keys: DataFrame | Iterable[Any], finish: Callable[[], object] = lambda: None
) -> PurgeResult:
    """Remove every row of some keys for good. ``finish`` writes pending rows for other tables, which may be about them (S27)."""
    start = time.perf_counter()
    with reporting.working(store.path, "purge", "a purge looks for its keys in all files"):
        given = keys_to_columns(store.spark, store.snapshot().definition, keys, _CALL)
        with translate_cast_errors(_CALL):
            found = given.distinct().localCheckpoint()  # evaluated once
            require_non_null_keys(found, _CALL)
        count = found.count()
        if count > MOST_KEYS:
            raise ValueError(f"purge takes at most {MOST_KEYS:,} keys at a time, got {count:,}.")
        if count == 0:
            return PurgeResult(store.snapshot().version, 0, 0, 0, 0)
        return delete_keys(store, found, count, start, finish)


def delete_keys(
    store: ManagedStore, keys: DataFrame, count: int, start: float, finish: Callable[[], object]
) -> PurgeResult:
    """Remove keys as :func:`purge` does, evaluated as columns :data:`C.KEY_TO_FIND`: each key once, none with a null."""
    work = _Purge(store, store.snapshot().definition, keys)
    try:
        before, after = _commit(work, count, start, finish)
    except CommitStateUnknown:
        raise  # the replacements may be part of the table: they must stay
    except Exception:  # after Ctrl-C, which may come right after the commit, they stay for vacuum()
        work.discard_all()
        raise
    faults.fault("purge.committed")
    deleted = _delete_holding(work, after) + _verify(work)
    return PurgeResult(
        version=after.version,
        keys=count,
        **work.counts(before),
        filesDeleted=deleted,
        unverifiedFiles=unverifiedFiles(store),
        seconds=time.perf_counter() - start,
    )


def _commit(work: _Purge, count: int, start: float, finish: Callable[[], object]) -> tuple[Snapshot, Snapshot]:
    """Commit the replaced batches and the hashes of the keys; after a conflict, search only new batches."""

    def attempt(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
        if snapshot.outbox:
            finish()
            snapshot = work.store.snapshot()
        work.keep_to(snapshot.definition)
        work.drop_replaced(snapshot)
        try:
            with naming_storage_errors(work.store):
                work.rewrite(snapshot)
                faults.fault("purge.staged")
                actions = [
                    *remove_all(work.rewritten),
                    *add_all(b for b in work.rewritten.values() if b is not None),
                    _markers(work, snapshot),
                    SetPendingDeletes(work.gone(snapshot)),
                ]
                commit = snapshot.next_commit(
                    "PURGE", actions, start, parameters={"keys": count}, metrics=work.counts(snapshot)
                )
                return snapshot, publish(work.store, commit, snapshot, (NoConcurrentCommits(),))
        except FilesVacuumedError:
            work.begin_anew()
            raise

    return retry(work.store, attempt)


def _markers(work: _Purge, snapshot: Snapshot) -> PurgeKeys:
    salt = snapshot.purged.salt if snapshot.purged else secrets.token_hex(16)
    renamed = [f"{C.KEY_TO_FIND(i)} AS {E.quote(k)}" for i, k in enumerate(work.definition.primaryKey)]
    hashes = work.keys.selectExpr(*renamed).selectExpr(f"{hash_of_key(work.definition, salt)} AS h").collect()
    return PurgeKeys(salt, sorted(r["h"] for r in hashes))


def _delete_holding(work: _Purge, after: Snapshot) -> int:
    """Delete the files with keys that the table does not need: replaced, of past versions, and of dead writers."""
    store, needed = work.store, after.referenced_ids
    others = [i for i in store.directories() if i not in needed]
    known = [i for i in others if i in work.elsewhere or i in work.rewritten]
    hit = work.holding_of_others(i for i in others if i not in known)
    return sum(delete(store, i) for i in [*known, *hit, *_abandoned(store, others)])


def _abandoned(store: ManagedStore, ids: Iterable[str]) -> set[str]:
    """Announce the directories whose writers have died: from here on, none of them can be committed."""
    found = {i for i in ids if is_abandoned(store, i)}
    return announce_deletes(store, found, "PURGE") if found else found


def delete(store: ManagedStore, batch_id: str) -> int:
    """Delete a directory that no version needs, and return how many files of rows were in it."""
    files = store.all_files(batch_id)
    store.remove(store.batch_path(batch_id))
    faults.fault("purge.deleted")
    return sum(not f.name.startswith((".", "_")) for f in files)  # not what is about others, beside them


def is_abandoned(store: ManagedStore, batch_id: str) -> bool:
    """Return True if the writer of a directory has died: it has touched nothing for an hour."""
    files = store.unfinished_files(batch_id)
    return bool(files) and max(f.modified_ms for f in files) < now_ms() - _MS_PER_HOUR


def _verify(work: _Purge) -> int:
    """Scan every directory again, and delete batches staged by earlier writers, none of which can be committed."""
    store, deleted, seen, left = work.store, 0, set[str](), set[str]()
    here = list(store.directories())
    # A concurrent compaction may have moved rows into other directories.
    while new := [i for i in here if i not in seen]:
        hit, needed = work.holding_of_others(new), store.snapshot().referenced_ids
        deleted += sum(delete(store, i) for i in sorted(hit - needed))
        left |= hit & needed
        seen |= set(new)
        here = list(store.directories())
    if left:
        raise CorruptTableError(
            f"Purged keys are still in {', '.join(sorted(store.batch_path(i) for i in left))}. Another writer has just "
            "written there; call purge again.",
            path=store.path,
        )
    return deleted


def unverifiedFiles(store: ManagedStore) -> tuple[str, ...]:
    """Return the directories that could not be searched because a writer is at work there."""
    return tuple(store.batch_path(i) for i in store.directories() if store.unfinished_files(i))


_WHERE = "The condition of purgeWhere()"

_Found = TypeVar("_Found")


@with_session_settings
def purge_where(
    store: ManagedStore, condition: str | Column, alias: str, finish: Callable[[], object] = lambda: None
) -> PurgeResult:
    """Erase every key of which any stored row fulfils a condition. ``finish`` is as for :func:`purge` (S27)."""
    start = time.perf_counter()
    if not isinstance(condition, (str, Column)):
        raise InvalidMergeError(
            f"purgeWhere takes a condition as SQL text or a Column, got {type(condition).__name__} ({condition!r}). Nothing was "
            "erased."
        )
    with reporting.working(store.path, "purge", "a purge looks into all files for rows that fulfil its condition"):
        with analysis_errors(_WHERE):
            given = F.expr(condition) if isinstance(condition, str) else condition
        own = store.snapshot().definition
        nothing = E.with_metadata(E.empty_frame(store.spark, own.fields), own).alias(alias)
        search = _Search(store, checked_condition(nothing, given, _WHERE), alias)
        return _repeat_until_clean(store, search, start, finish)


def _repeat_until_clean(
    store: ManagedStore, search: _Search, start: float, finish: Callable[[], object]
) -> PurgeResult:
    """Search and erase, and repeat for batches written since, until nothing is found."""
    done, deleted = list[PurgeResult](), 0
    while True:
        deleted += search.delete_superseded()
        keys = search.keys()
        count = keys.count()
        faults.fault("purge.found")
        if not count:
            break
        if count > MOST_KEYS:
            so_far = f" {sum(r.keys for r in done):,} keys have been erased before." if done else " Nothing was erased."
            raise ValueError(f"purgeWhere takes at most {MOST_KEYS:,} keys at a time, and found {count:,}.{so_far}")
        if len(done) >= max_commit_attempts(store.snapshot().properties):
            raise ConcurrentCommitError(
                f"Rows that fulfil the condition of purgeWhere() are written to {store.path} faster than they are erased: "
                f"{sum(r.keys for r in done):,} keys have been so far. Stop their writers, and call it again.",
                path=store.path,
            )
        done.append(delete_keys(store, keys, count, start, finish))
    deleted += search.delete_without_keys()
    return PurgeResult(
        version=store.snapshot().version,
        keys=sum(r.keys for r in done),
        rowsRemoved=sum(r.rowsRemoved for r in done),
        filesRewritten=sum(r.filesRewritten for r in done),
        filesDeleted=sum(r.filesDeleted for r in done) + deleted,
        unverifiedFiles=unverifiedFiles(store),
        seconds=time.perf_counter() - start,
    )


@attrs.frozen(eq=False)
class _Search:
    """Looks for rows that fulfil a condition over the columns of a table, which it calls by an alias, in every file below it."""

    store: ManagedStore
    condition: Column
    alias: str

    def keys(self) -> DataFrame:
        """Return the distinct keys of these rows, evaluated, as columns :data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`."""
        own = self.store.snapshot().definition

        def found(rows: DataFrame) -> DataFrame:
            return rows.filter(f"NOT ({_has_null(own)})").drop(C.BATCH).distinct().localCheckpoint()

        return self._look(own, self._with_rows, found)

    def delete_superseded(self) -> int:
        """Delete batches staged with a replaced definition, which cannot be committed (S35)."""
        own = self.store.snapshot().definition
        noted = noted_by_others(self.store, self.store.directories())
        return sum(delete(self.store, i) for i, theirs in noted.items() if disagree(own, theirs))

    def delete_without_keys(self) -> int:
        """Delete unreadable leftovers of dead writers, and staged rows without a key, which cannot be committed."""
        snapshot = self.store.snapshot()
        own, vectors = snapshot.definition, snapshot.deletion_vectors
        needed = (
            {b.id for b in snapshot.batches} | {r.id for r in snapshot.outbox} | ({vectors.id} if vectors else set())
        )

        def found(rows: DataFrame) -> list[str]:
            return [r[0] for r in rows.filter(_has_null(own)).select(C.BATCH).distinct().collect()]

        without = self._look(
            own, lambda: {i: files for i, files in self._with_rows().items() if i not in needed}, found
        )
        dead = _abandoned(self.store, (i for i in self.store.directories() if i not in needed))
        return sum(delete(self.store, i) for i in dict.fromkeys([*without, *dead]))

    def _with_rows(self) -> Files:
        """Return the directories that hold rows: of this version, of past ones, and of writers at work or dead.

        Not rows for other tables (S27): they have none of the columns but keys, by which they go with what they were made of.
        """
        return data_files(self.store, [i for i in self.store.directories() if not i.startswith(OUTBOX_PREFIX)])

    def _fulfilling(self, readable: TableDefinition, ids: Sequence[str]) -> DataFrame:
        rows = E.with_metadata(self.store.scan_directories(readable, readable.fields, ids), readable).alias(self.alias)
        # Not the condition alone: it would reach the files, where -0.0 differs from 0.0, and ORC fails on IN (..., NULL).
        fulfilling = rows.filter(F.coalesce(self.condition, F.lit(False)))
        return fulfilling.selectExpr(C.BATCH, *keys_to_find(readable))

    def _look(self, own: TableDefinition, where: Callable[[], Files], found: Callable[[DataFrame], _Found]) -> _Found:
        """Search the rows of some directories, which a vacuum or compaction may delete during the search."""

        def fulfilling(ids: list[str]) -> _Found:
            some = [self._fulfilling(*part) for part in by_form(self.store, own, ids) if part[1] or not ids]
            return found(reduce(DataFrame.union, some))

        try:
            return looked_into(where, fulfilling)
        except Exception as error:
            if not is_spark_error(error):
                raise
            if storage_failed(error):
                raise StorageError(f"A file of {self.store.path} could not be read: {clean_message(error)}") from None
            failed = classify_failure(error) or InvalidMergeError
            raise failed(f"{_WHERE} could not be evaluated: {clean_message(error)}") from None


def _has_null(own: TableDefinition) -> str:
    return E.any_of(E.is_null(C.KEY_TO_FIND(i)) for i in range(len(own.primaryKey)))
