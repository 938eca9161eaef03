"""Parquet and ORC tables of Spark's catalog: a commit log below them, and a batch column (S16)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.errors import (
    ConcurrentCommitError,
    CorruptTableError,
    FilesVacuumedError,
    TableNotFoundError,
    UnsupportedStorageError,
    counted,
)
from trinitymerge.fs import faults
from trinitymerge.fs.base import FileInfo, FileSystem, escape_glob, require_no_link
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.log import reporting
from trinitymerge.log.commit import VersionConflict
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Batch, Commit, Snapshot, now_ms
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.expressions import (
    all_of,
    any_of,
    empty_frame,
    is_not_null,
    is_null,
    physical_schema,
    quote,
    text_literal,
)
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import BATCH, VERSION
from trinitymerge.stores import adopt
from trinitymerge.stores.base import Batches, Staged
from trinitymerge.stores.catalog import OF_PLAIN_TABLES as HIDDEN
from trinitymerge.stores.catalog import SPARKS_OWN, CatalogTable, columns_of, fields_now, literal, with_columns_now
from trinitymerge.stores.column_mapping import version_of_batch
from trinitymerge.stores.file_format import check_storable, reader_of, table_of, write
from trinitymerge.stores.managed import is_hidden, move_file

DIRECTORY = "_trinity_staged"
KEPT_MS = 7 * 24 * 3600 * 1000
"""What has been staged for longer belongs to a writer that is dead."""

_NOTE = "_moved.json"


@attrs.frozen
class StagedFiles:
    """What is staged for one table.

    Attributes:
        files: the storage.
        path: the table's directory.
    """

    files: FileSystem
    path: str

    def directory(self, batch_id: str) -> str:
        """Where a batch's files are until they are moved."""
        return f"{self.path}/{DIRECTORY}/{batch_id}"

    def waiting(self, batch_id: str) -> dict[str, FileInfo]:
        """The data files that are still there, by their paths relative to the directory."""
        root = self.directory(batch_id)
        try:
            found = [f for f in self.files.walk(root) if not is_hidden(f, root)]
        except FileNotFoundError:
            return {}
        return {f.path.removeprefix(f"{root}/"): f for f in found}

    def moved(self, batch_id: str) -> list[str]:
        """The data files that are among the table's, or were about to be, by the same paths."""
        try:
            names = json.loads(self.files.read(f"{self.directory(batch_id)}/{_NOTE}"))
        except (OSError, ValueError, RecursionError):
            return []
        return [name for name in names if self._is_below(name)] if isinstance(names, list) else []

    def _is_below(self, name: Any) -> bool:
        """True if a name that was noted is one of a file that Spark reads as the table's, and no link leads from there."""
        if not isinstance(name, str) or any(part[:1] in ("", ".", "_") for part in name.split("/")):
            return False
        return self.files.link_below(self.path, name) is None

    def count(self, batch_id: str) -> int:
        """How many data files of a batch there are, wherever."""
        waiting = self.waiting(batch_id)
        gone = (name for name in self.moved(batch_id) if name not in waiting)
        return len(waiting) + sum(self.files.exists(f"{self.path}/{name}") for name in gone)

    def move(self, batch_id: str) -> None:
        """Moves what is still there to where the table's files are; that is noted before.

        Raises:
            FileNotFoundError: a file has been removed meanwhile.
        """
        names = sorted(self.waiting(batch_id))
        if not names:
            return
        note = json.dumps(sorted({*self.moved(batch_id), *names})).encode()
        self.files.replace(f"{self.directory(batch_id)}/{_NOTE}", note)
        for name in names:
            self.files.mkdirs(self._home(name))
            move_file(self.files, f"{self.directory(batch_id)}/{name}", self._home(name))
        for home in sorted(self._homes(names), reverse=True):  # the entry of a new partition is in the directory above
            self.files.sync_entries(home)

    def _homes(self, names: Iterable[str]) -> set[str]:
        """The directories that files are moved to, and those above them down from the table's."""
        homes = {self.path}
        for name in names:
            parts = name.split("/")[:-1]
            homes |= {"/".join([self.path, *parts[: depth + 1]]) for depth in range(len(parts))}
        return homes

    def _home(self, name: str) -> str:
        return f"{self.path}/{name}".rpartition("/")[0]

    def remove(self, batch_id: str) -> None:
        """Removes the files of a batch, wherever they are."""
        for name in self.moved(batch_id):
            file = f"{self.path}/{name}"
            self.files.delete(file)
            if self.files.is_local:
                self.files.delete(f"{self._home(name)}/.{name.rpartition('/')[2]}.crc")
        self.forget(batch_id)

    def forget(self, batch_id: str) -> None:
        """Removes what was kept of a batch here; files that have been moved are the table's."""
        self.files.delete(self.directory(batch_id))

    def tidy(self, committed: Callable[[], Container[str]]) -> list[str]:
        """Removes what dead writers have left.

        Args:
            committed: tells the ids of all batches of the table; asked only if something is left.

        Returns:
            The ids of the batches that are gone.
        """
        dead = [i.name for i in self._all() if i.is_dir and i.modified_ms < now_ms() - KEPT_MS]
        known = committed() if dead else ()
        for batch_id in dead:
            (self.forget if batch_id in known else self.remove)(batch_id)
        return dead

    def _all(self) -> Iterable[FileInfo]:
        try:
            return self.files.list(f"{self.path}/{DIRECTORY}")
        except FileNotFoundError:
            return []


FORMATS = ("parquet", "orc")

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Spark calls the directory of rows with a null in the partition's column."""

_AT_ONCE = 100
"""Partitions that one statement adds."""


@attrs.frozen
class CatalogTableInfo:
    """What the catalog says of a table.

    Attributes:
        file_format: of its files.
        files: the storage they are on.
        path: their directory.
        partitions: the columns that it is partitioned by.
        lists_partitions: the catalog knows the partitions; of other tables Spark finds them by their directories.
    """

    file_format: str
    files: FileSystem
    path: str
    partitions: tuple[str, ...]
    lists_partitions: bool


class PlainTable(CatalogTable):
    """A table of Spark's own catalog."""

    def facts(self) -> CatalogTableInfo:
        """What the catalog says of a table that there is.

        Raises:
            UnsupportedStorageError: merges into such a table are not possible.
        """
        told = self.described()
        why = unsupported_reason(self.parts, told)
        if why:
            path = ".".join(self.parts)
            raise UnsupportedStorageError(
                f"{path} cannot be merged into: {why}", path=path, format=told.get("Provider")
            )
        columns = [r["col_name"] for r in self.sql(f"DESCRIBE TABLE {self.name}").collect()]
        start = columns.index("# col_name") + 1 if "# col_name" in columns else len(columns)
        files = filesystem_for(self.spark, told["Location"])
        places = [files.qualify(p) for p in _places(told["Location"])]
        path = next(filter(files.exists, places), places[0])
        partitions, lists = tuple(n for n in columns[start:] if n), told.get("Partition Provider") == "Catalog"
        return CatalogTableInfo(told["Provider"].lower(), files, path, partitions, lists)

    def rows(self) -> DataFrame:
        """All rows, whoever has written them; what others have put there until now included."""
        self.refresh()
        return table_of(self.spark, self.name)

    def add_partitions(self, facts: CatalogTableInfo, directories: Iterable[str]) -> None:
        """Makes partitions known to the catalog; those it knows already are no error.

        Args:
            facts: of the table.
            directories: of the partitions, such as ``day=2024-01-01/shop=a%2Fb``.

        Raises:
            UnsupportedStorageError: the rows of a partition are elsewhere than in its directory.
        """
        found = {d: _spec(_values(d)) for d in directories}
        if not facts.lists_partitions or not found:
            return
        listed = self.sql(f"SHOW PARTITIONS {self.name}")
        wanted = ", ".join(map(text_literal, found))
        known = {r[0] for r in listed.filter(f"{quote(listed.columns[0])} IN ({wanted})").collect()}
        for directory in known:
            self._require_at_home(facts, directory, found[directory])
        new = [spec for directory, spec in found.items() if directory not in known]
        for start in range(0, len(new), _AT_ONCE):  # a catalog in memory would forget where one is that it has already
            self.sql(f"ALTER TABLE {self.name} ADD IF NOT EXISTS {' '.join(new[start : start + _AT_ONCE])}")

    def _require_at_home(self, facts: CatalogTableInfo, directory: str, spec: str) -> None:
        rows = self.sql(f"DESCRIBE TABLE EXTENDED {self.name} {spec}").collect()
        told = next(r["data_type"] for r in rows if r["col_name"] == "Location")
        if f"{facts.path}/{directory}" not in map(facts.files.qualify, _places(told)):
            raise UnsupportedStorageError(
                f"The partition {directory} of {'.'.join(self.parts)} is kept at {told}, not in the table's own directory, "
                "which is where merges write. Nothing was committed. Move it there with ALTER TABLE ... SET LOCATION.",
                path=told,
            )


def unsupported_reason(parts: Sequence[str], told: dict[str, str]) -> str:
    """Why a table cannot be merged into, and what to do; an empty string if it can."""
    kind, provider = told.get("Type", ""), told.get("Provider", "unknown").lower()
    if kind == "VIEW" or "View Text" in told:
        return "it is a view. Name the table that it reads."
    if provider == "hive":
        return (
            "it is a table of Hive's serde, whose files Spark treats otherwise. Make one with USING parquet or USING orc of it, or "
            "a managed table with TrinityTable.convert."
        )
    if parts[0] != SPARKS_OWN or provider not in FORMATS:
        return (
            f"it is a table of the format '{provider}' in the catalog {parts[0]}. Of tables in catalogs, those of Iceberg can be, "
            f"and those of Parquet and ORC files in {SPARKS_OWN}. Read this one with TrinityTable.external, or make a managed "
            "table of it with TrinityTable.convert."
        )
    if told.get("Num Buckets", "0") not in ("0", "-1"):
        return (
            f"it is bucketed by {told.get('Bucket Columns', 'some columns')}, and what merges write is not. Copy it to a table "
            "without CLUSTERED BY."
        )
    return ""


def _places(told: str) -> list[str]:
    """A location as it is told, and as it may be meant: Spark 3.5 tells it encoded."""
    return [told, unquote(told)]


def _values(directory: str) -> dict[str, str]:
    """The values of a partition by the name of its directory, where Spark has escaped special characters."""
    pairs = (part.partition("=") for part in directory.split("/"))
    return {unquote(name): value if value == _NULL else unquote(value) for name, _, value in pairs}


def _spec(values: dict[str, str]) -> str:
    told = (f"{quote(name)} = {'null' if value == _NULL else literal(value)}" for name, value in values.items())
    return f"PARTITION ({', '.join(told)})"


FAULT_POINTS = ("catalog.staged", "catalog.moved", "catalog.committed")
"""Where this module may be killed, see ``fs/faults.py``."""

FOREIGN_BATCH = "others"
"""The id of the batch that stands for all rows of other programs, those to come included."""


class PlainBackend:
    """A table of Spark's own catalog, which is a :class:`~trinitymerge.stores.base.VersionedStore`."""

    def __init__(self, spark: SparkSession, name: str, file_format: str = "parquet") -> None:
        self.spark, self.table, self._format = spark, PlainTable(spark, name), file_format
        self.path = ".".join(self.table.parts)
        self.columns = StructType()
        self._known: CatalogTableInfo | None = None
        self._newest: Snapshot | None = None

    # The table ------------------------------------------------------------------------------------------------------

    def require_table(self) -> None:
        """Checks that the catalog has the table, and that merges into it are possible."""
        self._refreshed()

    def _refreshed(self) -> CatalogTableInfo:
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
    def _facts(self) -> CatalogTableInfo:
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
        adopt.create(self.table, definition, self._format, HIDDEN)
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

    def keys_from_properties(self) -> dict[str, Any]:
        """The keys that the table's properties tell, by role, in the order of ``create``; empty if they tell none."""
        return adopt.keys_from_properties(self.table.properties())

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
        found = adopt.profile(stored, definition, {"merged": f"count({BATCH})"})
        if found["merged"]:
            raise self._forgotten(found["merged"])
        self._add_columns(definition)
        self.table.sql(adopt.set_keys_sql(self.table.name, definition))
        self._refreshed()
        fields = fields_now(definition.fields, self.columns)
        definition = attrs.evolve(definition, fields=fields, fileFormat=facts.file_format)
        rows = int(found["rows"])
        others = Batch(id=FOREIGN_BATCH, rows=rows, tombstones=rows, files=0, bytes=0, version=0, foreign=True)
        commit = Commit(
            version=0, timestamp_ms=now_ms(), operation=operation, definition=definition, added=[others], user=user
        )
        try:
            self._newest = self._as_now(self.log.create(commit))
        except FileExistsError:
            raise ConcurrentCommitError(
                f"Another writer has just made {self.path} a table of trinitymerge's. Open it again.", path=self.path
            ) from None
        reporting.committed(self.path, commit)
        return self._newest

    def _add_columns(self, definition: TableDefinition) -> None:
        try:
            missing = adopt.add_columns_sql(self.table.name, definition, self.columns, HIDDEN)
            if missing:
                self.table.sql(missing)
        except Exception:
            self._refreshed()  # another writer may have added them
            if adopt.add_columns_sql(self.table.name, definition, self.columns, HIDDEN):
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
        """See :class:`~trinitymerge.stores.base.TableStore`: one scan of the table as it is now, of the batches' rows alone."""
        fields = [*batches.definition.stored_fields, *extra]
        rows, version = self._scanned(batches, fields)
        return rows.selectExpr(*[quote(f.name) for f in fields], f"{version} AS {VERSION}")

    def scan_and_version(self, batches: Batches) -> tuple[DataFrame, Sql]:
        """See :class:`~trinitymerge.stores.base.TableStore`."""
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

    def verify_files_after_read(self, batches: Sequence[Batch]) -> None:
        """See :class:`~trinitymerge.stores.base.TableStore`: what others take away meanwhile is not noticed here."""

    def note_range(self, staged: Staged, keys: KeyRange) -> None:
        """See :class:`~trinitymerge.stores.base.TableStore`: the files keep their own."""

    def range_of(self, batch: Batch) -> KeyRange | None:
        """See :class:`~trinitymerge.stores.base.TableStore`."""
        return None

    # Staging --------------------------------------------------------------------------------------------------------

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Writes rows to a directory that Spark passes over when it reads the table. One Spark job."""
        facts, files, batch_id = self._refreshed(), self._files, uuid.uuid4().hex
        with reporting.best_effort(self.path, "removing what writers that died have left"):
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
            raise VersionConflict(commit.version, self.log.files.entry(commit.version).commit)
        for batch in commit.added:
            if files.count(batch.id) < batch.files:
                raise self._vacuumed(batch.id)
            self.table.add_partitions(facts, {n.rpartition("/")[0] for n in files.waiting(batch.id)} - {""})
            files.move(batch.id)
        faults.fault("catalog.moved")
        after = self.log.commit(commit, before)
        faults.fault("catalog.committed")
        self._newest = self._as_now(after)
        with reporting.best_effort(self.path, f"tidying up after version {commit.version}"):
            for batch in commit.added:
                files.forget(batch.id)
            self.table.refresh()  # for those who name it in this session
        return self._newest
