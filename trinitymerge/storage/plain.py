"""Plain tables: those of Spark's own catalog, of Parquet or ORC files, as a store with weaker guarantees (S16).

Owns: what is kept where. The log is that of a managed table, in the table's directory, where Spark passes over it. So commits are
as atomic as there. Rows have the id of their batch in a hidden column, and are real only if the log has that batch. A batch is
written where Spark passes over it too, and its files are moved to the table's right before the log is told.

Rows of other programs have no batch. They count as older than every merge, and that is all that is known of them: nothing says
when somebody appends, overwrites or deletes. What such a table is asked for stands in ``plaintable.py``, the files of batches that
are not committed yet in ``stagedfiles.py``, and what is found out about a table that exists in ``adopting.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.columns import BATCH, VERSION
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import (
    ConcurrentCommitError,
    CorruptTableError,
    FilesVacuumedError,
    TableNotFoundError,
    UnsupportedStorageError,
    counted,
)
from trinitymerge.expressions import (
    all_of,
    any_of,
    empty_frame,
    is_not_null,
    is_null,
    physical_schema,
    quote,
    text_literal,
)
from trinitymerge.keyrange import KeyRange
from trinitymerge.sqltext import Sql
from trinitymerge.storage import adopting, faults, telling
from trinitymerge.storage.backend import Batches, Staged
from trinitymerge.storage.catalogcolumns import OF_PLAIN_TABLES as HIDDEN
from trinitymerge.storage.catalogcolumns import columns_of, fields_now, with_columns_now
from trinitymerge.storage.entries import Batch, Commit, Snapshot, now_ms
from trinitymerge.storage.filecolumns import version_of_batch
from trinitymerge.storage.files import escape_glob, require_no_link
from trinitymerge.storage.formats import reader_of, write
from trinitymerge.storage.log import CommitLog
from trinitymerge.storage.plaintable import Facts, PlainTable
from trinitymerge.storage.publish import VersionTaken
from trinitymerge.storage.stagedfiles import DIRECTORY, StagedFiles
from trinitymerge.storage.storable import check_storable

FAULT_POINTS = ("catalog.staged", "catalog.moved", "catalog.committed")
"""Where this module may be killed, see ``storage/faults.py``."""

OTHERS = "others"
"""The id of the batch that stands for all rows of other programs, those to come included."""


class PlainBackend:
    """A table of Spark's own catalog, which is a :class:`~trinitymerge.storage.backend.TimeTravel`."""

    def __init__(self, spark: SparkSession, name: str, file_format: str = "parquet") -> None:
        self.spark, self.table, self._format = spark, PlainTable(spark, name), file_format
        self.path = ".".join(self.table.parts)
        self.columns = StructType()
        self._known: Facts | None = None
        self._newest: Snapshot | None = None

    # The table ------------------------------------------------------------------------------------------------------

    def require_table(self) -> None:
        """Checks that the catalog has the table, and that merges into it are possible."""
        self._refreshed()

    def _refreshed(self) -> Facts:
        """What the catalog says of the table now.

        Raises:
            TableNotFoundError: it has none of that name.
            UnsupportedStorageError: merges into such a table are not possible.
        """
        if not self.table.exists():
            raise TableNotFoundError(
                f"There is no table {self.path}. Check the name, or create one with TrinityTable.create(..., "
                f"using='{self._format}').",
                path=self.path,
            )
        self.table.refresh()
        self._known, self.columns = self.table.facts(), self.table.schema()
        return self._known

    @property
    def _facts(self) -> Facts:
        return self._known or self._refreshed()

    @property
    def log(self) -> CommitLog:
        return CommitLog(self._facts.files, self._facts.path)

    @property
    def _files(self) -> StagedFiles:
        require_no_link(self._facts.files, self._facts.path, DIRECTORY)
        return StagedFiles(self._facts.files, self._facts.path)

    def exists(self) -> bool:
        """True if there is a table of that name, and it is one of ours."""
        if not self.table.exists():
            return False
        self._refreshed()
        return self.log.files.exists()

    # Creating -------------------------------------------------------------------------------------------------------

    def create(self, definition: TableDefinition, user: str | None) -> Snapshot:
        """Creates the table in the catalog (S7).

        Raises:
            TableExistsError: the catalog has a table of that name.
            InvalidDefinitionError: the files cannot keep a column.
            UnsupportedStorageError: the table shall have history, or merges into such a table are not possible.
        """
        definition = attrs.evolve(definition, fileFormat=self._format)
        self._require_possible(definition)
        check_storable(definition)
        adopting.create(self.table, definition, self._format, HIDDEN)
        return self.adopt(definition, user, "CREATE")

    def _require_possible(self, definition: TableDefinition) -> None:
        if definition.history:
            raise UnsupportedStorageError(
                f"{self.path} cannot have history: others can overwrite a plain table's past. Create a managed table for that.",
                path=self.path,
            )

    def fields(self) -> tuple[Field, ...]:
        """The user's columns, as the table has them."""
        self._refreshed()
        return fields_now((), self.columns)

    def told_keys(self) -> dict[str, Any]:
        """The keys that the table's properties tell, by role, in the order of ``create``; empty if they tell none."""
        return adopting.told_keys(self.table.properties())

    def adopt(self, definition: TableDefinition, user: str | None, operation: str = "ADOPT") -> Snapshot:
        """Makes a table that there is one of ours: adds the hidden columns, and begins its log. Its rows stay as they are.

        Raises:
            NullKeyError: a row has a null in its key; nothing was changed.
            CorruptTableError: rows say that they are of merges which no log knows; nothing was changed.
            ConcurrentCommitError: somebody else has just done it.
        """
        self._require_possible(definition)
        facts = self._refreshed()
        stored = columns_of(self.table.rows(), [*definition.stored_fields, HIDDEN[0]])
        found = adopting.looked_through(stored, definition, {"merged": f"count({BATCH})"})
        if found["merged"]:
            raise self._forgotten(found["merged"])
        self._add_columns(definition)
        self.table.sql(adopting.telling(self.table.name, definition))
        self._refreshed()
        fields = fields_now(definition.fields, self.columns)
        definition = attrs.evolve(definition, fields=fields, fileFormat=facts.file_format)
        rows = int(found["rows"])
        others = Batch(id=OTHERS, rows=rows, tombstones=rows, files=0, bytes=0, version=0, foreign=True)
        commit = Commit(
            version=0, timestamp_ms=now_ms(), operation=operation, definition=definition, added=[others], user=user
        )
        try:
            self._newest = self._as_now(self.log.create(commit))
        except FileExistsError:
            raise ConcurrentCommitError(
                f"Another writer has just made {self.path} a table of trinitymerge's. Open it again.", path=self.path
            ) from None
        telling.committed(self.path, commit)
        return self._newest

    def _add_columns(self, definition: TableDefinition) -> None:
        try:
            missing = adopting.adding(self.table.name, definition, self.columns, HIDDEN)
            if missing:
                self.table.sql(missing)
        except Exception:
            self._refreshed()  # another writer may have added them
            if adopting.adding(self.table.name, definition, self.columns, HIDDEN):
                raise

    def _forgotten(self, rows: int) -> CorruptTableError:
        return CorruptTableError(
            f"The table {self.path} has {counted(rows)} that merges have written, as {BATCH} says, and the log of these is "
            f"gone: somebody has overwritten the whole table, and {self.log.files.directory} with it. Put that directory back "
            f"from a backup, or write the rows that shall live once more, with null in {BATCH}. Nothing was changed.",
            path=self.path,
        )

    # Snapshots ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The newest snapshot; what others append is in all of them."""
        self._refreshed()
        try:
            self._newest = self._as_now(self.log.newest(self._newest))
        except TableNotFoundError:
            raise TableNotFoundError(
                f"{self.path} is a plain table, and none of trinitymerge's: it never was, or somebody has overwritten the whole "
                "table, and its log with it. Open it with TrinityTable.forName; the first time, name its keys: primaryKey=..., "
                "watermarkKey=..., tombstoneKey=....",
                path=self.path,
            ) from None
        return self._newest

    def _as_now(self, snapshot: Snapshot) -> Snapshot:
        """The same with the columns that the table has now, and with rows of others, of which there may be some at any time."""
        snapshot = with_columns_now(snapshot, self.columns)
        batches = [
            attrs.evolve(b, rows=b.rows or 1, tombstones=b.rows or 1) if b.foreign else b for b in snapshot.batches
        ]
        return attrs.evolve(snapshot, batches=batches)

    def snapshot_at(self, version: int) -> Snapshot:
        """The snapshot of a version."""
        self._refreshed()
        return self._as_now(self.log.at(version))

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version committed at or before a time."""
        return self.log.version_at(timestamp_ms)

    def committed_at(self, version: int) -> int:
        """When a version was committed."""
        return self.log.committed_at(version)

    def version_of(self, timestamp_ms: int) -> int | None:
        """The version that was committed at exactly that time."""
        return self.log.version_of(timestamp_ms)

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """The commits of versions ``first`` to ``last``, oldest first."""
        return self.log.commits(first, last, newest_first=False)

    def history(self) -> list[Commit]:
        """All commits, newest first."""
        return list(self.log.commits())

    def missing(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches that have lost rows since they were committed. One small job."""
        own = [b for b in batches if b.rows and not b.foreign]
        counts = self.table.rows().filter(self._rows_of(own)).groupBy(BATCH).count().collect() if own else []
        left = {r[0]: r[1] for r in counts}
        return [b for b in own if left.get(b.id, 0) < b.rows]

    # Reading --------------------------------------------------------------------------------------------------------

    def scan(self, batches: Batches, extra: Sequence[Field] = ()) -> DataFrame:
        """See :class:`~trinitymerge.storage.backend.Backend`: one scan of the table as it is now, of the batches' rows alone."""
        fields = [*batches.definition.stored_fields, *extra]
        rows, version = self._scanned(batches, fields)
        return rows.selectExpr(*[quote(f.name) for f in fields], f"{version} AS {VERSION}")

    def scan_and_version(self, batches: Batches) -> tuple[DataFrame, Sql]:
        """See :class:`~trinitymerge.storage.backend.Backend`."""
        return self._scanned(batches, batches.definition.stored_fields)

    def _scanned(self, batches: Batches, fields: Sequence[Field]) -> tuple[DataFrame, Sql]:
        readable, wanted = [b for b in batches.batches if b.rows], [*fields, HIDDEN[0]]
        if not readable:
            return empty_frame(self.spark, wanted), Sql("0L")
        rows = columns_of(self.table.rows().filter(self._rows_of(readable)), wanted)
        own = [b for b in readable if not b.foreign]
        if len(own) == len(readable):
            return rows, version_of_batch(own)
        rows = rows.filter(all_of(is_not_null(quote(k)) for k in batches.definition.primaryKey))
        return rows, Sql(f"CASE WHEN {is_null(BATCH)} THEN 0L ELSE {version_of_batch(own)} END")

    @staticmethod
    def _rows_of(batches: Sequence[Batch]) -> Sql:
        """SQL that is true of the rows of some batches."""
        own = ", ".join(text_literal(b.id) for b in batches if not b.foreign)
        conditions = [Sql(f"{BATCH} IN ({own})")] if own else []
        return any_of([*conditions, *([is_null(BATCH)] if any(b.foreign for b in batches) else [])])

    def require_still_whole(self, batches: Sequence[Batch]) -> None:
        """See :class:`~trinitymerge.storage.backend.Backend`: what others take away meanwhile is not noticed here."""

    def note_range(self, staged: Staged, keys: KeyRange) -> None:
        """See :class:`~trinitymerge.storage.backend.Backend`: the files keep their own."""

    def range_of(self, batch: Batch) -> KeyRange | None:
        """See :class:`~trinitymerge.storage.backend.Backend`."""
        return None

    # Staging --------------------------------------------------------------------------------------------------------

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Writes rows to a directory that Spark passes over when it reads the table. One Spark job."""
        facts, files, batch_id = self._refreshed(), self._files, uuid.uuid4().hex
        with telling.best_effort(self.path, "removing what writers that died have left"):
            files.tidy(lambda: {b.id for b in self.snapshot().batches})
        of_others = [f for f in self._stored() if f.name != BATCH]
        stored = columns_of(rows, of_others).selectExpr("*", f"{text_literal(batch_id)} AS {BATCH}")
        try:
            write(stored, facts.file_format, files.directory(batch_id), facts.partitions)
            facts.files.sync_dir(files.directory(batch_id))
            found = files.waiting(batch_id)
        except BaseException:
            files.remove(batch_id)
            raise
        faults.fault("catalog.staged")
        return Staged(batch_id, len(found), sum(f.size_bytes for f in found.values()), rows.schema, definition)

    def _stored(self) -> list[Field]:
        """All columns of the table."""
        return [Field.from_json(f) for f in self.columns.jsonValue()["fields"]]

    def read_staged(self, staged: Staged) -> DataFrame:
        """A staged batch with all the columns it was written with, wherever its files are."""
        files = self._files
        if files.count(staged.id) < staged.files:
            raise self._vacuumed(staged.id)
        if files.waiting(staged.id):
            reader = reader_of(self.spark, self._facts.file_format, physical_schema(self._stored()))
            rows = reader.load(escape_glob(files.directory(staged.id)))
        else:
            rows = self.table.rows().filter(f"{BATCH} = {text_literal(staged.id)}")
        return rows.selectExpr(*[quote(n) for n in staged.schema.names])

    def discard(self, staged: Staged) -> None:
        """Removes a staged batch, and its files from the table's if they are there."""
        self._files.remove(staged.id)

    def _vacuumed(self, batch_id: str) -> FilesVacuumedError:
        directory = self._files.directory(batch_id)
        return FilesVacuumedError(
            f"Files of {self.path} that were about to be committed are gone ({directory}): somebody has overwritten the table, or "
            "the write took more than seven days. Nothing was committed; run it again.",
            path=directory,
        )

    # Committing -----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit, before: Snapshot) -> Snapshot:
        """Publishes a commit, or learns that its version is taken (S33)."""
        facts, files = self._refreshed(), self._files
        if commit.version <= before.version or self.log.files.fs.exists(self.log.files.entry_path(commit.version)):
            raise VersionTaken(commit.version, self.log.files.entry(commit.version).commit)
        for batch in commit.added:
            if files.count(batch.id) < batch.files:
                raise self._vacuumed(batch.id)
            self.table.add_partitions(facts, {n.rpartition("/")[0] for n in files.waiting(batch.id)} - {""})
            files.move(batch.id)
        faults.fault("catalog.moved")
        after = self.log.commit(commit, before)
        faults.fault("catalog.committed")
        self._newest = self._as_now(after)
        with telling.best_effort(self.path, f"tidying up after version {commit.version}"):
            for batch in commit.added:
                files.forget(batch.id)
            self.table.refresh()  # for those who name it in this session
        return self._newest
