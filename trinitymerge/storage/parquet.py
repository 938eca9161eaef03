"""Managed tables: append batches as directories of Parquet or ORC files, and the commit log beside them (S16, S33).

Owns: the layout below a table's path, staging a batch, and reading many batches as one relation. Knows nothing of keys:
what the rows mean is the reader's business.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from trinitymerge.definition import HIDDEN_PREFIX, Field, TableDefinition
from trinitymerge.errors import (
    ConcurrentCommitError,
    CorruptTableError,
    InvalidDefinitionError,
    TableExistsError,
    TableNotFoundError,
)
from trinitymerge.expressions import empty_frame, physical_schema, quote, text_literal
from trinitymerge.storage.backend import VERSION, Batches, Staged
from trinitymerge.storage.filesystem import FileSystem, escape_glob, filesystem_for
from trinitymerge.storage.log import Commit, CommitLog, Snapshot, VersionTaken, now_ms

BATCH = HIDDEN_PREFIX + "batch"
"""The partition column: the directory name of a batch carries its id."""

_READ_OPTIONS = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "mergeSchema": "false"}
"""A table must not lose rows silently, whatever the session is set to."""

_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


_SPARK_LISTS_ALONE = 32


class ManagedBackend:
    """A managed table at a path (a :class:`~trinitymerge.storage.backend.Backend`)."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.files: FileSystem = filesystem_for(spark, path)
        self.path = self.files.qualify(path)
        self._log = CommitLog(self.files, self.path)
        self._latest: Snapshot | None = None

    # Snapshots ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Is there a table at the path."""
        return self._log.exists()

    def create(self, definition: TableDefinition, user: str | None) -> Snapshot:
        """Creates the table (S7).

        Raises:
            TableExistsError: there is a table, or something else, at the path.
            InvalidDefinitionError: the file format cannot store a column.
        """
        _check_format(definition)
        if self._log.exists():
            raise TableExistsError(
                f"There is a table at {self.path} already. Open it with TrinityTable.forPath, or use createIfNotExists.",
                path=self.path,
            )
        self._refuse_foreign_files()
        commit = Commit(version=0, timestamp_ms=now_ms(), operation="CREATE", definition=definition, user=user)
        try:
            self._latest = self._log.create(commit)
        except FileExistsError:
            raise TableExistsError(f"Another writer has just created a table at {self.path}.", path=self.path) from None
        return self._latest

    def _refuse_foreign_files(self) -> None:
        try:
            found = [f.name for f in self.files.list(self.path) if not f.name.startswith(".")]
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise TableExistsError(
                f"{self.path} is a file or lies below one. Choose a path that does not exist or an empty directory.", path=self.path
            ) from None
        foreign = [n for n in found if n not in ("_trinity_log", "data")]
        if foreign:
            raise TableExistsError(
                f"{self.path} is not empty and not a trinitymerge table (it holds {', '.join(sorted(foreign)[:5])}). "
                "Choose a path that does not exist or an empty directory.",
                path=self.path,
            )

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The newest snapshot, read incrementally, or that of a version."""
        if version is not None:
            return self._log.at(version)
        try:
            self._latest = self._log.latest(self._latest)
        except TableNotFoundError:
            raise TableNotFoundError(
                f"There is no trinitymerge table at {self.path}. Check the path, or create one with TrinityTable.create.",
                path=self.path,
            ) from None
        return self._latest

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version committed at or before a time."""
        return self._log.version_at(timestamp_ms)

    def history(self) -> list[Commit]:
        """All commits, newest first."""
        return list(self._log.commits())

    # Batches --------------------------------------------------------------------------------------------------------

    def _batch_path(self, batch_id: str) -> str:
        return f"{self.path}/data/{BATCH}={batch_id}"

    def scan(self, batches: Batches) -> DataFrame:
        """All batches as one relation: one scan however many there are; the version comes from the directory."""
        definition = batches.definition
        fields = [*definition.stored_fields, Field(BATCH, "string")]
        stored = [quote(f.name) for f in definition.stored_fields]
        readable = [b for b in batches.batches if b.rows]
        if not readable:
            return empty_frame(self.spark, fields).selectExpr(*stored, f"0L AS {VERSION}")
        paths = [escape_glob(self._batch_path(b.id)) for b in readable]
        version = f"{readable[0].version}L"
        if len(readable) > 1:
            version = f"map({', '.join(f'{text_literal(b.id)}, {b.version}L' for b in readable)})[{BATCH}]"
        return self._load(definition, physical_schema(fields), paths).selectExpr(*stored, f"{version} AS {VERSION}")

    def _load(self, definition: TableDefinition, schema: object, paths: list[str]) -> DataFrame:
        reader = self.spark.read.format(definition.fileFormat).schema(schema)  # type: ignore[arg-type]
        for name, value in _READ_OPTIONS.items():
            reader = reader.option(name, value)
        try:
            with self._listing_on_driver(len(paths)):
                return reader.option("basePath", f"{self.path}/data").load(paths)
        except Exception as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            missing = re.search(r"_tm_batch=\w+", str(error))
            raise CorruptTableError(
                f"Batch directory {missing.group(0) if missing else ''} of {self.path} is gone, though the log refers to "
                "it. It was removed by something other than vacuum(); restore the directory, or restore an older version.",
                path=self.path,
            ) from None

    @contextmanager
    def _listing_on_driver(self, directories: int) -> Iterator[None]:
        """Lists local directories here instead of by a Spark job with a task each, as Spark does from 33 on."""
        if not self.files.is_local or directories <= _SPARK_LISTS_ALONE:
            yield
            return
        conf, name = self.spark.conf, "spark.sql.sources.parallelPartitionDiscovery.threshold"
        before = conf.get(name, str(_SPARK_LISTS_ALONE))
        conf.set(name, str(max(directories, int(before or 0))))
        try:
            yield
        finally:
            conf.set(name, str(before))

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Writes rows to a directory of its own, under a name nobody knows yet. One Spark job."""
        batch_id = uuid.uuid4().hex
        path = self._batch_path(batch_id)
        try:
            rows.write.format(definition.fileFormat).options(**_NO_SUCCESS_FILE).mode("append").save(path)
            self.files.sync_dir(path)
            files = [f for f in self.files.walk(path) if not f.name.startswith(("_", "."))]
        except BaseException:
            self.files.delete(path)
            raise
        size_bytes = sum(f.size_bytes for f in files)
        return Staged(batch_id, len(files), size_bytes, rows.schema, definition.fileFormat)

    def read_staged(self, staged: Staged) -> DataFrame:
        """The staged rows, as they were written."""
        reader = self.spark.read.format(staged.file_format).schema(staged.schema).options(**_READ_OPTIONS)
        return reader.load(escape_glob(self._batch_path(staged.id)))

    def discard(self, staged: Staged) -> None:
        """Removes a staged batch."""
        self.files.delete(self._batch_path(staged.id))

    def commit(self, commit: Commit, base: Snapshot) -> Snapshot:
        """Publishes a commit, or learns that its version is taken (S33)."""
        try:
            self._latest = self._log.commit(commit, base)
        except VersionTaken as taken:
            raise ConcurrentCommitError(
                f"Version {taken.version} of {self.path} was committed by another writer while this one worked "
                f"({taken.winner.operation}). Nothing of this merge was written; run it again.",
                path=self.path,
                version=taken.version,
            ) from None
        return self._latest


def _check_format(definition: TableDefinition) -> None:
    if definition.fileFormat != "orc":
        return
    for field in definition.fields:
        if "`" in field.name:
            raise InvalidDefinitionError(
                f"Column '{field.name}' holds a backtick, which Spark's ORC files lose. Rename it or use parquet.",
                column=field.name,
            )
