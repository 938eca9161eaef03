"""The interfaces of stores, and the batches of a snapshot as readers get them (S16, S33)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.errors import TableNotFoundError, UnsupportedStorageError
from trinitymerge.fs.base import FileInfo
from trinitymerge.log.actions import Batch, SetDeletionVectors
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.sql_text import Sql


def require_files(store: TableStore, snapshot: Snapshot) -> None:
    """Raise a TableNotFoundError, with the versions that are left, if the files of a past version are gone (S40)."""
    missing = store.missing(snapshot.batches)
    if not missing:
        return
    first = _first_readable(store, snapshot, {b.id for b in missing})
    left = f"the versions from {first} on can" if first is not None else "no later version can either"
    raise TableNotFoundError(
        f"Version {snapshot.version} of {store.path} can no longer be read: vacuum() or purge() has removed files it needs "
        f"(batch {missing[0].id}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}); {left}. To keep past versions "
        "longer, give vacuum() a longer retentionHours.",
        path=store.path,
        version=snapshot.version,
    )


def _first_readable(store: TableStore, snapshot: Snapshot, gone: set[str]) -> int | None:
    """Return the first version after an unreadable one whose batches are all there; None if there is none.

    A version that still has one of the batches known to be ``gone`` needs no look at the storage.
    """
    for commit in store.commits(snapshot.version + 1, store.snapshot().version):
        snapshot = snapshot.apply(commit)
        if gone.isdisjoint(b.id for b in snapshot.batches):
            missing = store.missing(snapshot.batches)
            if not missing:
                return snapshot.version
            gone = gone | {b.id for b in missing}
    return None


OUTBOX_PREFIX = "outbox-"
"""What the ids of batches begin with that hold rows for other tables: they lack the table's columns, but for its keys."""


@attrs.frozen
class Staged:
    """A batch that has been written and that no reader can see, with the schema of its rows and the table they are for."""

    id: str
    files: int
    size_bytes: int
    schema: StructType
    definition: TableDefinition


class TableStore(Protocol):
    """The methods of every store. Each may also raise the storage's ``OSError``."""

    spark: SparkSession
    path: str

    def exists(self) -> bool:
        """Return True if there is a table."""

    def create(self, definition: TableDefinition, user: str | None) -> Snapshot:
        """Create an empty table, at version 0 (S7).

        Raises:
            TableExistsError: there is a table already, or something else in its place.
            InvalidDefinitionError: the store cannot keep a column.
        """

    def scan(self, batches: Batches, extra: Sequence[Field] = ()) -> DataFrame:
        """Return the stored columns of the batches as one lazy relation, with the commit version.

        It is the column :data:`~trinitymerge.spark.system_columns.VERSION`. Rows that their deletion vectors mark are left out,
        which :meth:`ManagedStore.has_deletion_vectors` must have found whole. Columns in ``extra`` are null where they lack them.

        Raises:
            CorruptTableError: a file of a batch is gone.
        """

    def scan_and_version(self, batches: Batches, extra: Sequence[Field] = ()) -> tuple[DataFrame, Sql]:
        """Scan batches, and return the commit version as SQL over the rows, for callers that need it for few rows.

        Raises:
            CorruptTableError: a file of a batch is gone.
        """

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot.

        Raises:
            TableNotFoundError: no table here.
            CorruptTableError: naming the file that is cut short, foreign or missing.
        """

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Write rows with the table's columns as a batch that no reader can see yet, in one Spark job."""

    def verify_files_after_read(self, batches: Sequence[Batch]) -> None:
        """Check, after a job has read batches, that all their files were there during the job.

        Raises:
            CorruptTableError: naming the first batch that has lost some.
        """

    def read_staged(self, staged: Staged) -> DataFrame:
        """Return a staged batch with all the columns it was written with.

        Raises:
            FilesVacuumedError: it is gone.
        """

    def note_range(self, batch_id: str, keys: KeyRange) -> None:
        """Keep the range of a batch's keys beside its rows, to be forgotten with them. Best effort."""

    def ranges_of(self, batches: Sequence[Batch]) -> list[KeyRange | None]:
        """Return for each batch a range that contains its keys; None if unknown."""

    def discard(self, staged: Staged) -> None:
        """Remove a staged batch; a batch that was removed before is ignored."""

    def commit(self, commit: Commit, before: Snapshot) -> Snapshot:
        """Publish a commit on top of ``before``, atomically, as ``commit.version`` (S33).

        Raises:
            VersionConflict: that version exists already; nothing was changed.
            FilesVacuumedError: a batch it adds has lost its files; nothing was changed.
            CommitStateUnknown: the storage cannot say whether the commit took place; its batches must stay.
        """

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Return the commits of versions ``first`` to ``last``, oldest first.

        Raises:
            CorruptTableError: naming the entry that is cut short, foreign or missing.
        """

    def history(self) -> list[Commit]:
        """Return all commits that are still known, newest first."""

    # Past versions (S40) --------------------------------------------------------------------------------------------

    def snapshot_at(self, version: int) -> Snapshot:
        """Return the snapshot of a version; its files may be gone.

        Raises:
            TableNotFoundError: no table here, or no such version.
        """

    def version_at(self, timestamp_ms: int) -> int:
        """Return the newest version committed at or before a time, in milliseconds since the epoch.

        Raises:
            TableNotFoundError: no table here, or not yet at that time.
        """

    def committed_at(self, version: int) -> int:
        """Return when a version was committed, milliseconds since the epoch: of the table, or one that a row counts as."""

    def version_of(self, timestamp_ms: int) -> int | None:
        """Return the version that was committed at exactly that time, which may be one of the table that this is a copy of.

        Returns:
            The version; None if that is not known.
        """

    def missing(self, batches: Sequence[Batch]) -> list[Batch]:
        """Return the batches whose files are not all there."""


@runtime_checkable
class CatalogStore(TableStore, Protocol):
    """A store of tables that a catalog names, which may exist before this library knows them (S16)."""

    def fields(self) -> tuple[Field, ...]:
        """Return the user's columns, as the table has them."""

    def keys_from_properties(self) -> dict[str, Any]:
        """Return the keys in the table's properties, by role, in the order of ``create``; empty without keys."""

    def adopt(self, definition: TableDefinition, user: str | None) -> Snapshot:
        """Register an existing table. Its rows stay as they are.

        Raises:
            NullKeyError: a row has a null in its key; nothing was changed.
            ConcurrentCommitError: another writer committed concurrently.
        """


@runtime_checkable
class ManagedStore(TableStore, Protocol):
    """A store whose files this library manages: segments, vacuum, restore, purge, copies (S38-S40a), and the outbox (S27)."""

    def require_free(self) -> None:
        """Check that a table can be created here.

        Raises:
            TableExistsError: there is a table already, or something else in its place.
        """

    def begin(self, commit: Commit) -> Snapshot:
        """Create a table by its first commit, atomically, with batches that no reader could see before.

        Its :attr:`~trinitymerge.log.model.Commit.initial_snapshot` holds what the table begins with.

        Raises:
            TableExistsError: there is a table already, or something else in its place; nothing was changed.
            FilesVacuumedError: a batch has lost its files; nothing was changed.
            CommitStateUnknown: the storage cannot say whether the commit took place; its batches must stay.
        """

    def cleanup_on_failure(self) -> AbstractContextManager[None]:
        """Remove the files of a new table if its creation fails; its batches are removed before."""

    def copy_batch_from(self, other: object, batch_id: str) -> str:
        """Copy the files of a batch of another store, as a batch that no reader can see yet, and return its id.

        Raises:
            FileNotFoundError: a file was removed during the copy; nothing is left of it.
            UnsupportedStorageError: the other store keeps its rows in another way.
        """

    def split(self, staged: Staged, count: int) -> list[Staged]:
        """Split a staged batch into staged batches of ``count`` files each, in the order they were written.

        The original batch no longer exists.

        Raises:
            FilesVacuumedError: it is gone.
        """

    def batch_path(self, batch_id: str) -> str:
        """Return the directory of a batch."""

    def directories(self) -> Mapping[str, FileInfo]:
        """Return all batches on the storage by id: committed, staged and left over."""

    def noted_definition(self, batch_id: str) -> TableDefinition | None:
        """Return the definition of a batch that changes columns; None for other batches."""

    def data_files(self, batch_id: str) -> list[FileInfo]:
        """Return the data files of a batch; none if it is gone."""

    def all_files(self, batch_id: str) -> list[FileInfo]:
        """Return all files in a batch's directory, also those of unfinished tasks; empty if it is gone."""

    def unfinished_files(self, batch_id: str) -> list[FileInfo]:
        """Return the files of a batch that cannot be read, because its writer is at work or has died."""

    def helper_files(self) -> Iterable[tuple[int | None, FileInfo]]:
        """Yield the dispensable files of the log: checkpoints with their version, temporary files with None."""

    def remove(self, path: str) -> None:
        """Remove a batch or a helper file; one that is already gone is ignored."""

    def verify_files(self, batches: Sequence[Batch]) -> None:
        """Check that all files of some batches are there.

        Raises:
            CorruptTableError: naming the first batch that has lost some.
        """

    def scan_directories(self, definition: TableDefinition, fields: Sequence[Field], ids: Sequence[str]) -> DataFrame:
        """Scan columns of batches, committed or not, with the batch's id as :data:`~trinitymerge.spark.system_columns.BATCH`."""

    def read_whole(self, batch: Batch, definition: TableDefinition, extra: Sequence[Field] = ()) -> DataFrame:
        """Return a committed batch with the columns of the table, those in ``extra``, and the system columns in its files."""

    def has_deletion_vectors(self, vectors: SetDeletionVectors) -> bool:
        """Return True if scans can leave out the rows that deletion vectors mark: their file is there, and whole (D2)."""

    def scan_positions(self, batches: Batches) -> tuple[DataFrame, Sql]:
        """Scan batches as :meth:`TableStore.scan_and_version` does, with the batch and the position of each row in its file.

        They are :data:`~trinitymerge.spark.system_columns.BATCH`, ``FILE_OF_ROW`` and ``ROW_IN_FILE``.
        """

    def deletion_vectors(self, vectors: SetDeletionVectors) -> DataFrame:
        """Return deletion vectors as rows, see :data:`~trinitymerge.stores.deletion_vectors.SCHEMA`."""

    def stage_deletion_vectors(self, vectors: DataFrame, definition: TableDefinition) -> tuple[Staged, str]:
        """Write deletion vectors that no reader can see yet, in one Spark job, and return the checksum of the file, too.

        They are rows of :data:`~trinitymerge.stores.deletion_vectors.SCHEMA`.
        """

    def stage_outbox(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Stage rows for another table, each beside its key in this one, as a batch whose id begins with :data:`OUTBOX_PREFIX`."""


def require_managed(store: TableStore, call: str) -> ManagedStore:
    """Return the store, or raise an UnsupportedStorageError: only managed tables have the call."""
    if isinstance(store, ManagedStore):
        return store
    kind = type(store).__name__
    raise UnsupportedStorageError(
        f"{call} is not possible for '{store.path}': {kind} does not manage the table's files. Use the tools of the table's "
        "format, or make a managed table of it with TrinityTable.convert.",
        call=call,
        store=kind,
        path=store.path,
    )
