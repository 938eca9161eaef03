"""Erasing keys by what their rows say: requests for erasure name people, not keys (S39b).

Owns: the check of the condition, the search for keys in every file below a table, and searching until nothing is found. How keys
are erased stands in ``purge.py``. The condition is written nowhere: it says whom to forget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeVar

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trinitymerge.columns import BATCH, KEY_TO_FIND
from trinitymerge.conditions import checked_condition
from trinitymerge.definition import TableDefinition
from trinitymerge.errors import ConcurrentCommitError, InvalidMergeError, StorageError
from trinitymerge.expressions import any_of, empty_frame, is_null
from trinitymerge.maintenance.purge import MOST_KEYS, PurgeResult, by_form, delete, erase, is_dead, unverified
from trinitymerge.properties import max_commit_attempts
from trinitymerge.reader import keys_to_find
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.spark_errors import analysis_errors, failure_of, is_sparks, spark_text, storage_failed
from trinitymerge.storage import faults, telling
from trinitymerge.storage.backend import OWED_PREFIX, Maintained
from trinitymerge.storage.vanished import Files, data_files, looked_into

FAULT_POINTS = ("purge.found",)
"""Where this module may be killed, see ``storage/faults.py``."""

_WHERE = "The condition of purgeWhere()"

_Found = TypeVar("_Found")


def purge_where(
    backend: Maintained, condition: str | Column, alias: str, finish: Callable[[], object] = lambda: None
) -> PurgeResult:
    """Erases every key of which any stored row fulfils a condition.

    Args:
        backend: where the table is.
        condition: over the table's columns.
        alias: of the table in it.
        finish: writes what merges still owe to other tables (S27).

    Raises:
        InvalidMergeError: the condition is none, or cannot be evaluated.
        ValueError: it is true of too many keys.
        ConcurrentCommitError: others write such rows faster than they are erased, or replace batches faster.
        CorruptTableError, FilesVacuumedError: as :func:`trinitymerge.maintenance.purge.purge`.
    """
    start = time.perf_counter()
    if not isinstance(condition, (str, Column)):
        raise InvalidMergeError(
            f"purgeWhere takes a condition as SQL text or a Column, got {type(condition).__name__} ({condition!r}). Nothing was "
            "erased."
        )
    doing = "a purge looks into all files for rows that fulfil its condition"
    with held(backend.spark, LITERAL_NAMES), telling.if_slow(backend.path, doing):
        with analysis_errors(_WHERE):
            given = F.expr(condition) if isinstance(condition, str) else condition
        nothing = empty_frame(backend.spark, backend.snapshot().definition.fields).alias(alias)
        search = _Search(backend, checked_condition(nothing, given, _WHERE), alias)
        return _until_nothing_is_found(backend, search, start, finish)


def _until_nothing_is_found(
    backend: Maintained, search: _Search, start: float, finish: Callable[[], object]
) -> PurgeResult:
    """Searches and erases; then what has landed since the search, or was staged by then, is searched, and so on."""
    done: list[PurgeResult] = []
    while True:
        keys = search.keys()
        count = keys.count()
        faults.fault("purge.found")
        if not count:
            break
        if count > MOST_KEYS:
            so_far = f" {sum(r.keys for r in done):,} keys have been erased before." if done else " Nothing was erased."
            raise ValueError(f"purgeWhere takes at most {MOST_KEYS:,} keys at a time, and found {count:,}.{so_far}")
        if len(done) >= max_commit_attempts(backend.snapshot().properties):
            raise ConcurrentCommitError(
                f"Rows that fulfil the condition of purgeWhere() are written to {backend.path} faster than they are erased: "
                f"{sum(r.keys for r in done):,} keys have been so far. Stop their writers, and call it again.",
                path=backend.path,
            )
        done.append(erase(backend, keys, count, start, finish))
    deleted = search.delete_without_keys()
    return PurgeResult(
        version=backend.snapshot().version,
        keys=sum(r.keys for r in done),
        rowsRemoved=sum(r.rowsRemoved for r in done),
        filesRewritten=sum(r.filesRewritten for r in done),
        filesDeleted=sum(r.filesDeleted for r in done) + deleted,
        unverified=unverified(backend),
        seconds=time.perf_counter() - start,
    )


@attrs.frozen(eq=False)
class _Search:
    """Looks for rows that fulfil a condition, in every file below a table.

    Attributes:
        backend: where the table is.
        condition: over its columns.
        alias: of the table in it.
    """

    backend: Maintained
    condition: Column
    alias: str

    # The rows -------------------------------------------------------------------------------------------------------

    def keys(self) -> DataFrame:
        """The distinct keys of these rows, evaluated, as columns :data:`~trinitymerge.columns.KEY_TO_FIND`."""
        own = self.backend.snapshot().definition

        def found(rows: DataFrame) -> DataFrame:
            return rows.filter(f"NOT ({_has_null(own)})").drop(BATCH).distinct().localCheckpoint()

        return self._look(own, self._with_rows, found)

    def delete_without_keys(self) -> int:
        """Deletes what dead writers have left that cannot be looked into, and such rows without a key, which nobody commits.

        Returns:
            How many files of rows.
        """
        snapshot = self.backend.snapshot()
        own, needed = snapshot.definition, {b.id for b in snapshot.batches} | {r.id for r in snapshot.redo}

        def found(rows: DataFrame) -> list[str]:
            return [r[0] for r in rows.filter(_has_null(own)).select(BATCH).distinct().collect()]

        without = self._look(
            own, lambda: {i: files for i, files in self._with_rows().items() if i not in needed}, found
        )
        dead = [i for i in self.backend.directories() if i not in needed and is_dead(self.backend, i)]
        return sum(delete(self.backend, i) for i in dict.fromkeys([*without, *dead]))

    def _with_rows(self) -> Files:
        """The directories that hold rows: of this version, of past ones, and of writers at work or dead.

        Not rows for other tables (S27): they have none of the columns but keys, by which they go with what they were made of.
        """
        return data_files(self.backend, [i for i in self.backend.directories() if not i.startswith(OWED_PREFIX)])

    def _fulfilling(self, readable: TableDefinition, ids: Sequence[str]) -> DataFrame:
        """The keys of rows that fulfil the condition, with their directory."""
        rows = self.backend.scan_directories(readable, readable.fields, ids).alias(self.alias)
        # Not the condition alone: it would reach the files, which tell -0.0 from 0.0, and ORC fails on IN (..., NULL).
        fulfilling = rows.filter(F.coalesce(self.condition, F.lit(False)))
        return fulfilling.selectExpr(BATCH, *keys_to_find(readable))

    def _look(self, own: TableDefinition, where: Callable[[], Files], found: Callable[[DataFrame], _Found]) -> _Found:
        """What is found in the rows of some directories, some of which a vacuum or compaction may remove meanwhile.

        Raises:
            InvalidMergeError: the condition cannot be evaluated for a row.
            CorruptTableError, StorageError: a file is missing, or cannot be read.
        """

        def fulfilling(ids: list[str]) -> _Found:
            some = [self._fulfilling(*part) for part in by_form(self.backend, own, ids) if part[1] or not ids]
            return found(reduce(DataFrame.union, some))

        try:
            return looked_into(where, fulfilling)
        except Exception as error:
            if not is_sparks(error):
                raise
            if storage_failed(error):
                raise StorageError(f"A file of {self.backend.path} could not be read: {spark_text(error)}") from None
            failed = failure_of(error) or InvalidMergeError
            raise failed(f"{_WHERE} could not be evaluated: {spark_text(error)}") from None


def _has_null(own: TableDefinition) -> str:
    return any_of(is_null(KEY_TO_FIND(i)) for i in range(len(own.primaryKey)))
