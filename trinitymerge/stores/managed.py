"""Managed tables: batches as directories of Parquet or ORC files beside the commit log (S8, S33)."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge import errors
from trinitymerge.fs import faults
from trinitymerge.fs.base import FileInfo, FileSystem, read_many
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.log import reporting
from trinitymerge.log.actions import AddOutboxEntry, Batch, OutboxEntry, SetDefinition, SetDeletionVectors
from trinitymerge.log.batches import Batches
from trinitymerge.log.files import UNREADABLE, decode_with_checksum, encode_with_checksum, require_outside
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit, Snapshot, now_ms
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import session_conf
from trinitymerge.spark.errors import is_spark_error, storage_failed
from trinitymerge.spark.session import count_input_files, force_analysis, is_connect, select_exprs
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import OUTBOX_PREFIX, Staged
from trinitymerge.stores.catalog import is_table_name
from trinitymerge.stores.column_mapping import (
    as_declared,
    as_stored,
    found_in,
    in_files,
    version_by_map,
    version_of_batch,
)
from trinitymerge.stores.deletion_vectors import POSITION, VECTORS_PREFIX, VectorFiles, without_marked
from trinitymerge.stores.directories import BatchDirectories
from trinitymerge.stores.file_format import check_storable, is_missing, read_files, spark_finds, write

FAULT_POINTS = ("stage.before", "stage.written", "stage.synced")

_FILE, _DEFINITION_FILE = "_key_range.json", "_definition.json"
"""Spark passes over files that begin so."""

_MOST_KNOWN = 100_000
"""The most batches whose ranges a ``KeyRangeFiles`` keeps, some 50 MB."""


@attrs.frozen(eq=False)
class KeyRangeFiles:
    """The ranges of the batches of a table, read once each."""

    files: FileSystem
    _known: dict[str, KeyRange | None] = attrs.field(factory=dict, init=False)

    def write(self, directory: str, keys: KeyRange) -> None:
        """Keep the range of the batch in a directory, if the storage lets it."""
        with contextlib.suppress(OSError):
            try:
                is_there = any(self.files.walk(directory))
            except FileNotFoundError:
                is_there = False
            if not is_there:  # a purge was faster; a new file would keep what it has taken
                return
            told = {"batch": _batch_in(directory), **keys.to_json()}
            self.files.replace(f"{directory}/{_FILE}", encode_with_checksum(told)[0])
        self._remember(directory, keys)

    def read(self, directories: Sequence[str]) -> list[KeyRange | None]:
        """Return the key ranges of the batches in directories; None if a file is missing, damaged, or names another batch."""
        known = {d: self._known[d] for d in directories if d in self._known}
        unread = [d for d in directories if d not in known]
        known.update(zip(unread, read_many(self.files, self._read, unread), strict=True))
        return [known[d] for d in directories]

    def _remember(self, directory: str, keys: KeyRange | None) -> KeyRange | None:
        if len(self._known) >= _MOST_KNOWN:  # a stream writes batches for ever
            self._known.clear()
        self._known[directory] = keys
        return keys

    def _read(self, directory: str) -> KeyRange | None:
        try:
            found, keys = decode_with_checksum(self.files.read(f"{directory}/{_FILE}"))[0], None
            batch_id = _batch_in(directory)
            if found.get("batch", batch_id) == batch_id:  # files of older versions do not name it
                keys = KeyRange.from_json(found)
            return self._remember(directory, keys)
        except (*UNREADABLE, FileNotFoundError):
            return self._remember(directory, None)
        except OSError:  # the storage may answer the next time
            return None


def _batch_in(directory: str) -> str:
    return directory.rpartition(f"{C.BATCH}=")[2]


_OLDEST = 0
"""The layout of files that were written before any column's type became wider."""

_SPARK_LISTS_ALONE = 32
_LISTS_ANY_NUMBER = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 30)}


class DirectoryStore(BatchDirectories):
    """A managed table at a path: directories of files and a log (a :class:`~trinitymerge.stores.base.ManagedStore`)."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self._given = spark, path
        self.files: FileSystem = filesystem_for(spark, path)
        self.path = self.files.qualify(path)
        self.log = CommitLog(self.files, self.path)
        self._newest: Snapshot | None = None
        self._ranges = KeyRangeFiles(self.files)
        self._vectors = VectorFiles(spark, self)
        self._whole: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}

    def exists(self) -> bool:
        return self.log.files.exists()

    def create(self, definition: TableDefinition, user: str | None) -> Snapshot:
        check_storable(definition)
        return self.begin(
            Commit(version=0, timestamp_ms=now_ms(), operation="CREATE", actions=[SetDefinition(definition)], user=user)
        )

    def require_free(self) -> None:
        if self.log.files.exists():
            raise errors.TableExistsError(
                f"There is a table at {self.path} already. Open it with TrinityTable.forPath, or use createIfNotExists.",
                path=self.path,
            )
        if is_table_name(self._given):
            raise errors.InvalidDefinitionError(
                f"'{self._given}' is written as the name of a table, and a managed table needs a path. For a directory of that "
                f"name write './{self._given}'. For a table in an Iceberg catalog give TrinityTable.create using='iceberg', or "
                "open it with TrinityTable.forName. Nothing was written.",
                path=self._given,
            )
        require_outside(self.files, self.path)
        self.refuse_foreign_files()

    def begin(self, commit: Commit) -> Snapshot:
        self.require_free()
        self.require_own()
        for batch in commit.added:
            if batch.rows and self._file_mismatch(batch):
                raise self._vacuumed(batch.id)
        try:
            self._newest = self.log.create(commit)
        except FileExistsError:
            raise errors.TableExistsError(
                f"Another writer has just created a table at {self.path}.", path=self.path
            ) from None
        except NotADirectoryError as error:
            raise errors.TableExistsError(
                f"'{error.filename}' is a file, and a table keeps a directory there. Remove the file, or choose another path. "
                "Nothing was written.",
                path=self.path,
            ) from error
        reporting.committed(self.path, commit)
        return self._newest

    def snapshot(self) -> Snapshot:
        self.require_own()
        try:
            self._newest = self.log.newest(self._newest)
        except errors.TableNotFoundError:
            raise errors.TableNotFoundError(
                f"There is no trinitymerge table at {self.path}. Check the path, or create one with TrinityTable.create."
                + (" A table of a catalog opens with TrinityTable.forName." if is_table_name(self._given) else ""),
                path=self.path,
            ) from None
        return self._newest

    def snapshot_at(self, version: int) -> Snapshot:
        self.require_own()
        return self.log.at(version)

    def version_at(self, timestamp_ms: int) -> int:
        return self.log.version_at(timestamp_ms)

    def committed_at(self, version: int) -> int:
        return self.log.committed_at(version)

    def version_of(self, timestamp_ms: int) -> int | None:
        return self.log.version_of(timestamp_ms)

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        return self.log.commits(first, last, newest_first=False)

    def history(self) -> list[Commit]:
        return list(self.log.commits(last=self.snapshot().version))

    def scan(self, batches: Batches, extra: Sequence[Field] = ()) -> DataFrame:
        """Return all batches as one relation, in one scan. A row's directory gives its batch, and the batch its version."""
        version = version_of_batch([b for b in batches.batches if b.rows])
        return self._scan(batches, extra, f"{version} AS {C.VERSION}")

    def scan_and_version(self, batches: Batches, extra: Sequence[Field] = ()) -> tuple[DataFrame, Sql]:
        return self._scan(batches, extra, C.BATCH), version_by_map([b for b in batches.batches if b.rows])

    def part_of(self, rows: DataFrame, batches: Batches) -> DataFrame | None:
        """Return the rows of some batches of a scan, whose files need not be listed again; None if a scan is better."""
        if batches.deletion_vectors is not None or is_connect(
            self.spark
        ):  # marked rows are looked up; files are always listed
            return None
        ids = ", ".join(E.text_literal(b.id) for b in batches.batches if b.rows)
        return rows.filter(f"{C.BATCH} IN ({ids})") if ids else None

    def scan_positions(self, batches: Batches) -> tuple[DataFrame, Sql]:
        return self._scan(batches, (), C.BATCH, *POSITION), version_by_map([b for b in batches.batches if b.rows])

    def _scan(self, batches: Batches, extra: Sequence[Field], *more: str) -> DataFrame:
        """Scan batches with rows, and add columns given as SQL over the batch's id and the position."""
        definition, readable = batches.definition, [b for b in batches.batches if b.rows]
        fields = [*definition.stored_fields, *extra]
        if not readable:
            position = [Field(C.FILE_OF_ROW, "string"), Field(C.SIZE_OF_FILE, "long"), Field(C.ROW_IN_FILE, "long")]
            nothing = E.empty_frame(self.spark, [*fields, Field(C.BATCH, "string"), *position])
            return nothing.selectExpr(*[E.quote(f.name) for f in fields], *more)
        oldest = min(b.layout_version for b in readable)
        rows = self._load(definition, fields, [b.id for b in readable], oldest, batches.is_clustered)
        if self.files.is_local:
            self.verify_files(readable)  # Spark has listed the files before
        elif count_input_files(rows) != sum(b.files for b in readable):
            self.verify_files(readable)
            raise self._gone("a batch", "changed while it was opened")
        vectors = batches.deletion_vectors
        if vectors is not None and not any(vectors.marked.get(b.id) for b in readable):
            vectors = None
        if vectors is not None or C.ROW_IN_FILE in more:
            rows = select_exprs(rows, ["*", *(f"{value} AS {name}" for name, value in POSITION.items())])
        if vectors is not None:
            rows = without_marked(rows, self.deletion_vectors(vectors))
        return as_declared(rows, fields, oldest, *more)

    def has_deletion_vectors(self, vectors: SetDeletionVectors) -> bool:
        return self._vectors.are_whole(vectors)

    def deletion_vectors(self, vectors: SetDeletionVectors) -> DataFrame:
        with self._naming_what_is_gone():
            return self._vectors.frame(vectors.id)

    def stage_deletion_vectors(self, vectors: DataFrame, definition: TableDefinition) -> tuple[Staged, str]:
        staged = self._stage(f"{VECTORS_PREFIX}{uuid.uuid4().hex}", vectors.coalesce(1), definition)
        return staged, self._vectors.checksum(staged.id)

    def scan_directories(self, definition: TableDefinition, fields: Sequence[Field], ids: Sequence[str]) -> DataFrame:
        if not ids:
            return E.empty_frame(self.spark, [*fields, Field(C.BATCH, "string")])
        for batch_id in ids:
            link = self.link_in(batch_id)
            if link is not None:
                raise self._gone(f"{C.BATCH}={batch_id}", f"holds the symbolic link '{link}'")
        with self._naming_what_is_gone():
            return force_analysis(as_declared(self._load(definition, fields, ids), fields, _OLDEST, C.BATCH))

    def _load(
        self,
        definition: TableDefinition,
        fields: Sequence[Field],
        ids: Sequence[str],
        oldest: int = _OLDEST,
        is_clustered: bool = False,
    ) -> DataFrame:
        """Return the columns as files hold them, and the id of the batch."""
        paths, schema = self._places(ids), in_files([*fields, Field(C.BATCH, "string")], oldest)
        # Many local directories are listed here instead of by a Spark job with a task each, as Spark does from 33 on.
        as_it_is = not self.files.is_local or len(paths) <= _SPARK_LISTS_ALONE or is_connect(self.spark)
        listing = nullcontext() if as_it_is else session_conf(self.spark, _LISTS_ANY_NUMBER)
        with self._naming_what_is_gone(), listing:
            return read_files(self.spark, definition.fileFormat, paths, schema, f"{self.path}/data", is_clustered)

    @contextmanager
    def _naming_what_is_gone(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_missing(error):
                raise
            missing = re.search(rf"{C.BATCH}=[\w-]+", str(error))
            if missing:
                self.files.exists(f"{self.path}/data/{missing.group(0)}")
            raise self._gone(missing.group(0) if missing else "a batch directory", "is gone") from None

    def _places(self, ids: Sequence[str]) -> list[str]:
        """Return the paths for Spark to read: the directories of batches, or their files where that makes a difference.

        Spark Connect lists a directory whenever a DataFrame is used, and would not miss a file that is gone by then. A
        file that is named must be there. More than Spark lists by itself would cost a job at every use.
        """
        directories = [self.batch_path(i) for i in ids]
        if is_connect(self.spark):
            files = [[f.path for f in self.data_files(i)] for i in ids]
            if all(files) and sum(map(len, files)) <= _SPARK_LISTS_ALONE:
                return [path for some in files for path in some]
        return directories

    def verify_files_after_read(self, batches: Sequence[Batch]) -> None:
        """Check batches again, where the job has listed their files: these never come back, so it has seen all of them."""
        if is_connect(self.spark):
            self.verify_files([b for b in batches if b.rows])

    def _vacuumed(self, batch_id: str) -> errors.FilesVacuumedError:
        return errors.FilesVacuumedError.of(self.path, self.batch_path(batch_id))

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        return self._stage(uuid.uuid4().hex, rows, definition)

    def stage_outbox(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        return self._stage(f"{OUTBOX_PREFIX}{uuid.uuid4().hex}", rows, definition)

    def _stage(self, batch_id: str, rows: DataFrame, definition: TableDefinition) -> Staged:
        rows = as_stored(rows, definition.fields)
        path, schema = self.batch_path(batch_id), rows.schema
        self.files.mkdirs(f"{self.path}/data")  # its entry is synced, or a power cut could take all batches with it
        faults.fault("stage.before")
        try:
            self._note_definition(path, definition)
            write(rows, definition.fileFormat, path)
            faults.fault("stage.written")
            with self._written_here(batch_id):
                self.files.sync_dir(path)
            staged = self._staged(batch_id, schema, definition)
        except BaseException as error:
            if is_spark_error(error) and storage_failed(error):
                self.files.mkdirs(path)  # raises where the directory cannot be made: Spark only misses its files
            with contextlib.suppress(OSError):  # the first error is the one to report; vacuum() deletes what is left
                self.files.delete(path)
            raise
        faults.fault("stage.synced")
        return staged

    def _note_definition(self, directory: str, definition: TableDefinition) -> None:
        """Keep the definition of a batch that changes columns (S44): if its writer dies, no log entry has it (S39b)."""
        if self._newest is not None and definition.fields != self._newest.definition.fields:
            self.files.mkdirs(directory)
            self.files.replace(f"{directory}/{_DEFINITION_FILE}", encode_with_checksum(definition.to_json())[0])

    def noted_definition(self, batch_id: str) -> TableDefinition | None:
        with contextlib.suppress(*UNREADABLE, OSError):
            path = f"{self.batch_path(batch_id)}/{_DEFINITION_FILE}"
            return TableDefinition.from_json(decode_with_checksum(self.files.read(path))[0])
        return None

    def _staged(self, batch_id: str, schema: StructType, definition: TableDefinition) -> Staged:
        files = self.data_files(batch_id)
        return Staged(batch_id, len(files), sum(f.size_bytes for f in files), schema, definition)

    def split(self, staged: Staged, count: int) -> list[Staged]:
        try:
            ids = self.split_files(staged.id, count)
        except FileNotFoundError:
            raise self._vacuumed(staged.id) from None
        self.discard(staged)
        parts = [self._staged(i, staged.schema, staged.definition) for i in ids]
        if [sum(p.files for p in parts), sum(p.size_bytes for p in parts)] != [staged.files, staged.size_bytes]:
            for part in parts:
                self.discard(part)
            raise self._vacuumed(staged.id)
        return parts

    @contextmanager
    def _written_here(self, batch_id: str) -> Iterator[None]:
        """Raise if the written files are gone: a purge has found its keys in them, or a Connect server writes elsewhere."""
        path = self.batch_path(batch_id)
        try:
            yield
        except FileNotFoundError:
            if not (is_connect(self.spark) and spark_finds(self.spark, path)):
                raise self._vacuumed(batch_id) from None
            raise errors.UnsupportedStorageError(
                f"Spark's server has written {path}, and it is not on this machine: the server is elsewhere, or writes "
                "other characters than these. Nothing was committed. Use a path that both see under the same name (a shared "
                "mount, plain letters), or a classic session.",
                path=path,
            ) from None

    def note_range(self, batch_id: str, keys: KeyRange) -> None:
        self._ranges.write(self.batch_path(batch_id), keys)

    def ranges_of(self, batches: Sequence[Batch]) -> list[KeyRange | None]:
        return self._ranges.read([self.batch_path(b.id) for b in batches])

    def read_staged(self, staged: Staged) -> DataFrame:
        try:
            files = self.batch_path(staged.id)
            rows = force_analysis(read_files(self.spark, staged.definition.fileFormat, [files], staged.schema))
            return as_declared(
                rows, found_in(staged.schema, staged.definition.stored_fields), staged.definition.layout_version
            )
        except Exception as error:
            if not is_missing(error):
                raise
            raise self._vacuumed(staged.id) from None

    def read_whole(self, batch: Batch, definition: TableDefinition, extra: Sequence[Field] = ()) -> DataFrame:
        read = partial(read_files, self.spark, definition.fileFormat, [self.batch_path(batch.id)])
        found, known = read().schema, [*definition.stored_fields, *extra]
        names = {f.name for f in known}
        others = [f for f in found.fields if f.name.startswith(HIDDEN_PREFIX) and f.name not in names]
        fields = [f for f in known if not f.name.startswith(HIDDEN_PREFIX) or f.name in found.names]
        fields += [Field.from_json(f.jsonValue()) for f in others]
        return as_declared(read(in_files(fields, batch.layout_version)), fields, batch.layout_version)

    def discard(self, staged: Staged) -> None:
        self.remove(self.batch_path(staged.id))

    def helper_files(self) -> list[tuple[int | None, FileInfo]]:
        return [*((None, f) for f in self.log.files.leftovers()), *self.log.files.checkpoints().items()]

    def missing(self, batches: Sequence[Batch]) -> list[Batch]:
        return [b for b in batches if b.rows and self._file_mismatch(b)]

    def commit(self, commit: Commit, before: Snapshot) -> Snapshot:
        """Publish a commit, unless another writer has taken its version (S33).

        A batch whose files are gone, or that is being removed, must not become part of the table: that of a write that was slower
        than the retention of a vacuum beside it, or one that a restore brings back.
        """
        # A commit may be tried again and again, with many batches. Batches that a vacuum announces may be gone at the next attempt.
        attempt = (commit.id, before.pending_deletes)
        looked_into = self._whole.get(attempt, frozenset())
        written: list[Batch | OutboxEntry] = [*commit.added, *(a.entry for a in commit.all(AddOutboxEntry))]
        for batch in written:
            is_whole = not batch.rows or batch.id in looked_into or not self._file_mismatch(batch)
            if batch.id in before.pending_deletes or not is_whole:
                raise self._vacuumed(batch.id)
        self._whole = {attempt: frozenset(b.id for b in commit.added)}
        self._newest = self.log.commit(commit, before)
        return self._newest
