"""`TrinityTable`: create, open, merge into, read and maintain a table."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge import _arguments, reader
from trinitymerge.errors import (
    InvalidMergeError,
    ReadOnlyTableError,
    TableExistsError,
    UnsupportedStorageError,
    kind_of,
)
from trinitymerge.external import ExternalTable
from trinitymerge.feeds import streaming
from trinitymerge.feeds.change_events import CALL, ChangeFeed, merge_of_events
from trinitymerge.feeds.deduplicate import deduplicated
from trinitymerge.feeds.intervals import Intervals
from trinitymerge.feeds.snapshots import SnapshotFeed
from trinitymerge.history.changes import changes
from trinitymerge.history.explain import why
from trinitymerge.history.incremental import Increment, increment
from trinitymerge.history.versions import VersionsOptions, as_of, versions
from trinitymerge.interop.export import ExportResult, export
from trinitymerge.interop.query import sql_for
from trinitymerge.log.model import Snapshot, current_user
from trinitymerge.maintenance import clone, compaction, convert, deliver_outbox, health, purge, vacuum
from trinitymerge.maintenance.alter import TableAlteration
from trinitymerge.maintenance.compaction import CompactionResult
from trinitymerge.maintenance.health import TableHealth
from trinitymerge.maintenance.purge import PurgeResult, purge_where
from trinitymerge.maintenance.vacuum import RestoreResult
from trinitymerge.merge import builder
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.execute.plan import MergeSpec, Options
from trinitymerge.merge.model.arguments import ExpressionMap, all_of_source
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.conf import EXACT_IDENTIFIERS, session_conf, with_session_settings
from trinitymerge.spark.expressions import quote
from trinitymerge.spark.session import supports_writes
from trinitymerge.stores.base import Batches, ManagedStore, TableStore, require_files, require_managed
from trinitymerge.stores.registry import open_catalog_store, open_store, store_uri
from trinitymerge.stores.removed_files import naming_storage_errors

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_ALIAS = "target"


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _files(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of Parquet files that are no table of this library.

    Raises:
        InvalidMergeError: they are.
    """
    with contextlib.suppress(UnsupportedStorageError):  # it can be read all the same
        if open_store(spark, path).exists():
            raise InvalidMergeError(
                f"{path} is a table of this library: its files hold rows that were replaced or deleted, too. Copy it with "
                "TrinityTable.forPath(spark, source).clone(path)."
            )
    return _arguments.parquet_files(spark, path)


@attrs.frozen(eq=False, repr=False)
class TrinityTable:
    """A table that is kept up to date by merges and read by resolving its batches (S1-S16).

    Made by :meth:`create`, :meth:`createIfNotExists` and :meth:`forPath`; the table object follows its table: after a
    merge, by whomever, :meth:`toDF` gives the new rows. One opened with ``versionAsOf`` stays where it is and is read
    only.

    Example:
        >>> t = TrinityTable.create(spark, f"{tmp_path}/t", "id INT, v STRING", primaryKey="id")
        >>> t.upsert(spark.sql("SELECT 1 AS id, 'a' AS v")).execute().version
        1
        >>> t.toDF().collect()
        [Row(id=1, v='a')]
    """

    _backend: TableStore
    _pinned: int | None = None
    _alias: str = DEFAULT_ALIAS

    # Opening --------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str,
        schema: str | StructType,
        primaryKey: str | Iterable[str],
        watermarkKey: str | Iterable[str] | None = None,
        tombstoneKey: str | None = None,
        tombstoneStringValue: str | None = None,
        fileFormat: str = "parquet",
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        history: bool = False,
        using: str | None = None,
    ) -> TrinityTable:
        """Create an empty table: a managed one at a path, or one of another format in a catalog (S1-S7, S16).

        Args:
            spark: the session.
            path: a path that does not exist or is an empty directory, on any filesystem Spark reaches; with ``using`` the name
                of the table, such as ``lake.db.orders``.
            schema: the columns, as DDL text or a ``StructType``; char and varchar are allowed.
            primaryKey: a column name or names: atomic, orderable, never null.
            watermarkKey: none, one or several columns that say how fresh a row is, most significant first. Without
                any, the later commit is the fresher.
            tombstoneKey: the column that says a row is deleted; without one a hidden column does.
            tombstoneStringValue: what a string tombstone column holds on deleted rows.
            fileFormat: ``"parquet"`` or ``"orc"``.
            properties: settings as text. Those of the library start with ``trinitymerge.``:
                ``tombstoneRetentionHours`` (168; ``none`` for ever), ``compactAfterBatches`` (``none``),
                ``historyRetentionHours`` (``none`` for ever), ``minorCompactionAfterBatches`` (16; ``none`` for never),
                ``minorCompactionMaxBytes`` (32 MB), ``targetSegmentBytes`` (16 MB, more in large tables),
                ``maxCommitAttempts`` (20), ``commitBackoffSeconds`` (0.05) and ``checkpointInterval`` (50).
            comment: for people.
            history: rows that are replaced or deleted remain, as versions (H1): see :meth:`versions`.
            using: ``"iceberg"`` for an Iceberg table in an Iceberg catalog: see :meth:`forName`. Properties that do not start with
                ``trinitymerge.`` become the table's own.

        Returns:
            The table, at version 0.

        Raises:
            InvalidDefinitionError: keys, schema or format cannot work together.
            TableExistsError: the path holds a table or something else.
            UnsupportedStorageError: the storage cannot promise atomic commits (S33), or there is no store for the format.

        Example:
            >>> t = TrinityTable.create(spark, f"{tmp_path}/orders2", primaryKey="order_id", watermarkKey="ts",
            ...     schema="order_id STRING, amount DECIMAL(10,2), ts TIMESTAMP, deleted BOOLEAN", tombstoneKey="deleted")
            >>> t.version
            0
        """
        definition = _arguments.definition_of(
            spark,
            schema,
            primaryKey,
            watermarkKey,
            tombstoneKey,
            tombstoneStringValue,
            fileFormat,
            properties,
            comment,
            history,
        )
        store = open_store(spark, path, using)
        store.create(definition, current_user())
        return cls(store)

    @classmethod
    def createIfNotExists(
        cls,
        spark: SparkSession,
        path: str,
        schema: str | StructType,
        primaryKey: str | Iterable[str],
        watermarkKey: str | Iterable[str] | None = None,
        tombstoneKey: str | None = None,
        tombstoneStringValue: str | None = None,
        fileFormat: str = "parquet",
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        history: bool = False,
        using: str | None = None,
    ) -> TrinityTable:
        """Open the table at the path, or creates it; the arguments are those of :meth:`create`.

        A table that is there must have these keys, this format and these columns, and may have more: columns that were added since,
        and types that became wider. Its properties and comment stay as they are.

        Raises:
            TableExistsError: a table with a different definition is there, or something else.

        Example:
            >>> a = TrinityTable.createIfNotExists(spark, f"{tmp_path}/t3", "id INT", primaryKey="id")
            >>> TrinityTable.createIfNotExists(spark, f"{tmp_path}/t3", "id INT", primaryKey="id").version
            0
        """
        definition = _arguments.definition_of(
            spark,
            schema,
            primaryKey,
            watermarkKey,
            tombstoneKey,
            tombstoneStringValue,
            fileFormat,
            properties,
            comment,
            history,
        )
        store = open_store(spark, path, using)
        if not store.exists():
            try:
                store.create(definition, current_user())
            except TableExistsError:
                if not store.exists():  # something else is there; a table would be another writer's, just made
                    raise
        other = _arguments.difference(store.snapshot().definition, definition)
        if other:
            raise TableExistsError(
                f"The table at {store.path} has another definition: {other}. Open it with TrinityTable.forPath, or choose "
                "another path.",
                path=store.path,
            )
        return cls(store)

    @classmethod
    def forPath(
        cls,
        spark: SparkSession,
        path: str,
        versionAsOf: int | None = None,
        timestampAsOf: str | datetime.date | datetime.datetime | None = None,
    ) -> TrinityTable:
        """Open a table; nothing but its path is needed (S7, S40).

        Args:
            spark: the session.
            path: as given to :meth:`create`.
            versionAsOf: open that version, read only.
            timestampAsOf: open the newest version committed at or before that time, read only; a datetime, or text as
                Spark reads timestamps. Without a time zone of its own it is in the session's
                (``spark.sql.session.timeZone``), as ``history().show()`` prints times. What ``collect()`` gives is in the
                Python process's zone: if that is another, open by ``versionAsOf``.

        Raises:
            TableNotFoundError: no table at the path, or no such version, or its files have been vacuumed.
            ValueError: ``timestampAsOf`` is no point in time, or is given beside ``versionAsOf``.
            CorruptTableError: a file of its log is cut short, foreign or missing.

        Example:
            >>> TrinityTable.forPath(spark, orders_path).definition.primaryKey
            ('order_id',)
        """
        store = open_store(spark, path)
        store.snapshot()
        return cls(store, pinned=_arguments.pinned(store, versionAsOf, timestampAsOf))

    @classmethod
    def forName(
        cls,
        spark: SparkSession,
        name: str,
        primaryKey: str | Iterable[str] | None = None,
        watermarkKey: str | Iterable[str] | None = None,
        tombstoneKey: str | None = None,
        tombstoneStringValue: str | None = None,
        versionAsOf: int | None = None,
        timestampAsOf: str | datetime.date | datetime.datetime | None = None,
    ) -> TrinityTable:
        """Open an Iceberg table by its name in the catalog (S16).

        The first call needs the keys. It adds four hidden columns to the table, or five without a tombstone key, and leaves the
        rows as they are. Later calls read the keys from the table. Each merge is an Iceberg snapshot and a version, and so is each
        commit of another program. See ``docs/iceberg.md`` for what such a table can do.

        Tables of other formats are refused: :meth:`convert` makes a managed table of one, and :meth:`external` reads it.

        Args:
            spark: the session, with the catalog.
            name: such as ``lake.db.orders``.
            primaryKey: the first time; as for :meth:`create`. Later it may be left out, or must be the same.
            watermarkKey: likewise.
            tombstoneKey: likewise.
            tombstoneStringValue: likewise.
            versionAsOf: as for :meth:`forPath`.
            timestampAsOf: likewise.

        Raises:
            TableNotFoundError: the catalog has no such table; it is none of trinitymerge's yet, and no keys are given; or there is
                no such version.
            TableExistsError: it has other keys.
            NullKeyError: a row has a null in its key.
            InvalidDefinitionError: the keys cannot work with its columns.
            UnsupportedStorageError: the table is not an Iceberg table.
            ConcurrentCommitError: others have committed while it got its keys.
            ValueError: ``name`` is no name of a table.
        """
        store = open_catalog_store(spark, name)
        keys = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        _arguments.adopted(store, *keys)
        return cls(store, pinned=_arguments.pinned(store, versionAsOf, timestampAsOf))

    @staticmethod
    def isTrinityTable(spark: SparkSession, path: str) -> bool:
        """Return True if there is a managed table at the path.

        Example:
            >>> TrinityTable.isTrinityTable(spark, f"{tmp_path}/nothing-here")
            False
        """
        return open_store(spark, path).exists()

    # What it is ----------------------------------------------------------------------------------------------------

    @property
    def definition(self) -> TableDefinition:
        """Keys, schema and properties (S7)."""
        return self._snapshot().definition

    @property
    def version(self) -> int:
        """The table's current version, or the one it was opened at."""
        return self._snapshot().version

    def history(self) -> DataFrame:
        """One row per commit, newest first.

        Returns:
            Columns ``version``, ``timestamp``, ``operation``, ``parameters`` (JSON), ``metrics``, ``user``,
            ``durationMs``, ``batchesAdded``, ``batchesRemoved``, ``rowsAdded``, ``bytesAdded``.

            ``operation`` of a merge is its call: ``UPSERT``, ``INSERT``, ``UPDATE``, ``DELETE``, ``APPLY CHANGES``, ``SNAPSHOT``;
            ``MERGE`` where the user has given clauses. ``parameters.call`` is the call with its arguments (S36b).

        Example:
            >>> [r["operation"] for r in orders.history().collect()]
            ['UPSERT', 'CREATE']
            >>> orders.deleteWhere("amount < 6").execute().version
            2
            >>> deletes = orders.history().filter("operation = 'DELETE'")
            >>> deletes.selectExpr("version", "get_json_object(parameters, '$.call') AS call", "metrics.rowsDeleted").collect()
            [Row(version=2, call='deleteWhere("amount < ?")', rowsDeleted='1')]
        """
        commits = (c for c in self._backend.history() if self._pinned is None or c.version <= self._pinned)
        return _arguments.history_frame(self._backend.spark, commits)

    def detail(self) -> DataFrame:
        """Return what the table is and how large, as one row, from its log.

        Returns:
            Columns ``format`` (of its files), ``location``, ``description``, ``version``, ``lastModified``, ``primaryKey``,
            ``watermarkKey``, ``tombstoneKey``, ``history``, ``checks``, ``properties``, ``numBatches``, ``numFiles``,
            ``storedRows`` (replaced rows and tombstones included) and ``sizeInBytes``.

        Example:
            >>> orders.detail().select("format", "version", "primaryKey", "storedRows").collect()
            [Row(format='parquet', version=1, primaryKey=['order_id'], storedRows=2)]
        """
        return _arguments.detail_frame(self._backend.spark, self.path, self._snapshot())

    # Streaming ------------------------------------------------------------------------------------------------------

    def foreachBatch(
        self,
        mergeFunction: Callable[[TrinityTable, DataFrame], MergeBuilder],
        appId: str,
        onResult: Callable[[MergeResult], object] | None = None,
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``DataStreamWriter.foreachBatch`` that merges each micro-batch exactly once (S36, S36a).

        A micro-batch that Spark runs again after a crash does nothing if it was committed: its number equals the last.
        A smaller number, or another streaming query under the same name, means that the stream has started over; that is
        an ``InvalidMergeError`` in the stream, for as replays its rows would be lost.

        Columns that the stream brings and the table does not have are left out, with a warning. ``withSchemaEvolution()`` on the
        merge adds them, in the commit of the micro-batch (S44).

        On Spark Connect, Spark pickles the function and runs it in a process beside the server: this package must be
        installed there, and ``mergeFunction`` should use the table and the micro-batch it is given, no others.

        Args:
            mergeFunction: from this table and a micro-batch to a merge that has not been executed.
            appId: the stream's stable name: one for each checkpoint directory.
            onResult: called with each merge's result, that of a replay included (its ``skipped`` says so). What it raises
                fails the micro-batch, but not the merge, which is committed by then.

        Example:
            >>> results = []
            >>> write = orders.foreachBatch(lambda table, batch: table.upsert(batch), "orders-feed", results.append)
            >>> write(orders.toDF(), 0)
            >>> write(orders.toDF(), 0)
            >>> [(result.version, result.skipped) for result in results]
            [(2, ''), (2, "transaction 0 of 'orders-feed' was committed before (last is 0)")]
            >>> follow = orders.foreachBatch(lambda table, batch: table.applyChanges(batch).withSchemaEvolution(), "changes",
            ...     onResult=lambda result: print(result.columnsAdded))
            >>> follow(spark.sql("SELECT '3' AS order_id, 1.0 AS amount, timestamp'2024-05-01' AS ts, 'web' AS channel"), 0)
            ('column channel string is added',)
        """
        self._require_writable()
        return streaming.batch_function(
            partial(_opened, store_uri(self._backend), self._alias), mergeFunction, appId, onResult
        )

    # Showing --------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """One line: path, version and keys."""
        return _arguments.shown(self.path, self._snapshot, is_past=self._pinned is not None)

    def alias(self, name: str) -> Self:
        """Return the same table under an alias, for merge expressions (default: ``target``).

        Example:
            >>> orders.alias("A").merge(orders.toDF().alias("B")).whenMatched("A.amount > B.amount").delete().execute().rowsDeleted
            0
        """
        if not isinstance(name, str) or not name:
            raise InvalidMergeError(f"An alias must be a name, got {name!r}.")
        return attrs.evolve(self, alias=name)

    def merge(
        self, source: DataFrame | TrinityTable | ExternalTable, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Begin a merge of a source into this table (S17-S37); see :class:`MergeBuilder`.

        Args:
            source: a DataFrame, under an alias or not (default alias: ``source``), or another table, external ones included.
            condition: boolean SQL text or Column that pairs rows; None pairs by the primary key, by name.

        Raises:
            ReadOnlyTableError: this is a past version, or the session is Spark Connect's of PySpark 3.5.
            InvalidMergeError: the arguments are of the wrong kind.
        """
        if isinstance(source, (TrinityTable, ExternalTable)):
            source = source._as_source()
        source = _arguments.check_source(self._backend.spark, source, self.path)
        if condition is not None and not isinstance(condition, (str, Column)):
            raise InvalidMergeError(
                f"The merge condition must be SQL text or a Column, got {type(condition).__name__} ({condition!r})."
            )
        return self._builder(source, condition)

    def _as_source(self) -> DataFrame:
        return self.toDF() if self._alias == DEFAULT_ALIAS else self.toDF().alias(self._alias)

    def _builder(
        self, source: DataFrame | None, condition: Any = None, derive: Any = None, **options: Any
    ) -> MergeBuilder:
        store = self._require_writable()
        hook = partial(deliver_outbox.post_commit_hook, store)
        set_options = Options(pre_attempt_hook=deliver_outbox.pre_attempt_hook, **options)
        return MergeBuilder(
            MergeSpec(store, self._alias, source, condition, options=set_options, post_commit_hook=hook, derive=derive)
        )

    def upsert(
        self,
        source: DataFrame | TrinityTable | ExternalTable,
        columns: Iterable[str] | None = None,
        exceptColumns: Iterable[str] = (),
        ignoreNulls: bool | Iterable[str] = False,
        onlyIfChanged: bool = False,
    ) -> MergeBuilder:
        """Update rows whose primary key exists and inserts the others, by default all columns (TrinityLake, upsert).

        With any of the last four arguments the rows under the source's keys are read.

        Args:
            source: the rows.
            columns: take only these, besides the primary key; the others keep their value, and in new rows have their
                default, or are null.
            exceptColumns: or all but these.
            ignoreNulls: true, or columns: where the source has null, the stored value stays.
            onlyIfChanged: leave out rows that would change nothing, the watermark apart; they count as ``rowsUnchanged`` (S22b).

        Example:
            >>> orders.upsert(orders.toDF()).execute().rowsAppended
            2
            >>> orders.upsert(orders.toDF(), columns=["amount"], onlyIfChanged=True).execute().rowsUnchanged
            2
        """
        values = all_of_source("upsert", exceptColumns, columns, ignoreNulls)
        return builder.upsert(self.merge(source), values, onlyIfChanged)

    def update(
        self,
        source: DataFrame | TrinityTable | ExternalTable,
        columns: Iterable[str] | None = None,
        exceptColumns: Iterable[str] = (),
        ignoreNulls: bool | Iterable[str] = False,
        onlyIfChanged: bool = False,
    ) -> MergeBuilder:
        """Update rows whose primary key exists, by default all columns; other source rows are left out.

        Args:
            source: the rows.
            columns: take only these, besides the primary key; the others keep their value.
            exceptColumns: or all but these.
            ignoreNulls: true, or columns: where the source has null, the stored value stays.
            onlyIfChanged: leave out rows that would change nothing, the watermark apart; they count as ``rowsUnchanged`` (S22b).

        Example:
            >>> orders.update(orders.toDF().filter("order_id = '1'")).execute().rowsUpdated
            1
        """
        values = all_of_source("update", exceptColumns, columns, ignoreNulls)
        return builder.update(self.merge(source), values, onlyIfChanged)

    def delete(self, source: DataFrame | TrinityTable | ExternalTable) -> MergeBuilder:
        """Delete the rows whose primary key occurs in the source, which needs only those columns (and a watermark).

        Example:
            >>> orders.delete(spark.sql("SELECT '1' AS order_id, timestamp'2030-01-01' AS ts")).execute().rowsAppended
            1
        """
        return builder.delete(self.merge(source))

    def insert(
        self,
        source: DataFrame | TrinityTable | ExternalTable,
        deduplicate: bool = False,
        orderBy: str | Column | Sequence[str | Column] | None = None,
    ) -> MergeBuilder:
        """Insert rows.

        Args:
            source: rows with all columns.
            deduplicate: leave out rows whose primary key is live already, instead of refusing them (S25).
            orderBy: with ``deduplicate``: of source rows with equal key and watermark take the first, by a column or several, as
                ``DataFrame.orderBy`` takes them (S12a). Columns that only order are left out. ``rowsSource`` counts what is
                taken. Costs one more shuffle of the source, and no job.

        Raises:
            InvalidMergeError: ``orderBy`` without ``deduplicate``, or it is no column.

        Example:
            >>> orders.insert(orders.toDF(), deduplicate=True).execute().rowsInserted
            0
            >>> from pyspark.sql import functions as F
            >>> loaded = spark.sql("SELECT * FROM VALUES ('7', 1.0, timestamp'2024-01-01', 1), "
            ...                    "('7', 2.0, timestamp'2024-01-01', 2) AS t(order_id, amount, ts, seq)")
            >>> orders.insert(loaded, deduplicate=True, orderBy=F.desc("seq")).execute().rowsInserted
            1
            >>> orders.toDF().filter("order_id = '7'").select("amount").collect()
            [Row(amount=Decimal('2.00'))]
        """
        if orderBy is not None and not deduplicate:
            raise InvalidMergeError(
                "insert(): orderBy says which row deduplicate=True takes; without it, no row is left out."
            )
        if not deduplicate:
            return builder.insert(self.merge(source, "1 = 0"))
        return builder.insert(deduplicated(self.merge(source), self._snapshot().definition, orderBy))

    def updateWhere(self, condition: str | Column | None, map: ExpressionMap) -> MergeBuilder:
        """Update the live rows for which a condition is true; all of them if it is None (S22).

        Example:
            >>> orders.updateWhere("amount > 9", {"amount": "amount * 2"}).execute().rowsUpdated
            1
        """
        return builder.update_where(self._builder(None), condition, map)

    def deleteWhere(self, condition: str | Column) -> MergeBuilder:
        """Delete the live rows for which a condition is true (S9); ``deleteWhere("true")`` deletes them all.

        Raises:
            InvalidMergeError: there is no condition: a filter that happened to be None would empty the table.

        Example:
            >>> orders.deleteWhere("amount < 6").execute().rowsDeleted
            1
        """
        return builder.delete_where(self._builder(None), condition)

    # Feeds ----------------------------------------------------------------------------------------------------------

    def applyChanges(
        self,
        source: DataFrame,
        sequenceBy: str | Column | Sequence[str | Column] | None = None,
        applyAsDeletes: str | Column | None = None,
        applyAsTruncates: str | Column | None = None,
        columns: Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        ignoreNullUpdates: bool | Iterable[str] = False,
    ) -> MergeBuilder:
        """Apply change events, one row each, in any order (H9): type 1 on an ordinary table, type 2 on one with history.

        An event replaces the whole row of its key. Its place is its sequence, the table's watermark: what comes late or twice
        does no harm, and of a delete a tombstone is left that keeps earlier events from bringing the row back. Two different
        events of one key with an equal sequence are refused (S12).

        Appends without reading the table, but for ``ignoreNullUpdates``, which looks up the keys of the events, and a batch with a
        truncate in it, which reads the table and evaluates the source when the merge is built.

        Args:
            source: the events, with the columns of the table; others are left out, and said to be, or added by
                ``withSchemaEvolution()``.
            sequenceBy: what orders the events: SQL text or a Column over the source, or one for each watermark column. By default
                the source's columns that are called like the watermark's. No event may have a null there.
            applyAsDeletes: boolean SQL text or Column over the source: true on events that delete their key. Such an event needs
                nothing but key and sequence.
            applyAsTruncates: likewise for events that delete whatever is not fresher, in the table and in the batch. Not
                remembered: an earlier event that comes later is not kept away. Not for tables with history.
            columns: the source columns to take; the table's others are null. Keys and sequence always are among them.
            exceptColumns: source columns to leave out.
            ignoreNullUpdates: true, or columns: a null there means that nothing has changed, in fields of structs too. It is filled
                when it is written, with the value before it in the data's time (without history: in the current row), never
                across a delete (H10). So events that come late do not change what has been filled.

        Returns:
            A merge to be executed; it may be given ``withTransaction``, ``withSchemaEvolution``, ``onStale`` and
            ``maxDeleteFraction``.

        Raises:
            InvalidMergeError: an argument is of the wrong kind. When the merge is built: the table declares no watermark, or keeps
                history and is to be truncated, or the source lacks a column.

        Example:
            >>> events = spark.sql("SELECT * FROM VALUES ('1', 8.0, timestamp'2024-02-01', 'U'), "
            ...                    "('2', null, timestamp'2024-02-02', 'D') AS t(order_id, amount, ts, op)")
            >>> orders.applyChanges(events, applyAsDeletes="op = 'D'").execute().rowsAppended
            2
            >>> orders.toDF().select("order_id", "amount").collect()
            [Row(order_id='1', amount=Decimal('8.00'))]
        """
        source = _arguments.check_source(self._backend.spark, source, self.path)
        feed = ChangeFeed.of(sequenceBy, applyAsDeletes, applyAsTruncates, columns, exceptColumns, ignoreNullUpdates)
        return self._builder(None, derive=partial(merge_of_events, source, feed), call=CALL, is_sequenced=True)

    def snapshot(self, source: DataFrame, at: Any, missing: str = "delete") -> MergeBuilder:
        """Take a full extract of the data as of a moment (H11): what differs from it is written, and what it lacks is deleted.

        Rows that are equal (null-safely, nested values included) are not written, and an extract that changes nothing appends
        nothing. In a table with history extracts may come in any order: one that comes late is compared with what held at its
        moment, and what held at the next moment that was taken remains. An empty extract does nothing (S37).

        Reads the table, as a whole, and the source, which is evaluated twice: is it empty, and what has changed. Counts what it
        inserts, updates and deletes; an extract that comes late does so ``withCounts()`` only.

        Args:
            source: all rows, with the columns of the table but the watermark; each key once. What was added to the table after
                it was created may be missing: it is not compared, and keeps its value.
            at: the moment: a value of the watermark column, of which there must be one. Text is read as that type.
            missing: ``"delete"``, or ``"keep"`` for keys that the extract lacks.

        Returns:
            A merge to be executed; it may be given ``withTransaction``, ``withSchemaEvolution`` and ``maxDeleteFraction``. The
            ``rowsSource`` of its result is None: to count the extract would take another job.

        Raises:
            InvalidMergeError: the table declares no watermark, or several columns. When the merge is built: the table keeps no
                history and a later moment has been taken; the extract lacks a column.
            ValueError: ``at`` or ``missing`` is none of these.

        Example:
            >>> cities = TrinityTable.create(spark, f"{tmp_path}/cities3", "name STRING, city STRING, day INT",
            ...     primaryKey="name", watermarkKey="day", history=True)
            >>> monday = spark.sql("SELECT * FROM VALUES ('ann', 'Rome'), ('bob', 'Oslo') AS t(name, city)")
            >>> tuesday = spark.sql("SELECT * FROM VALUES ('ann', 'Bonn') AS t(name, city)")
            >>> cities.snapshot(monday, at=1).execute().rowsInserted
            2
            >>> result = cities.snapshot(tuesday, at=2).execute()
            >>> result.rowsInserted, result.rowsUpdated, result.rowsDeleted
            (0, 1, 1)
            >>> cities.versions().select("name", "city", "validFrom", "validTo").orderBy("name", "validFrom").show()
            +----+----+---------+-------+
            |name|city|validFrom|validTo|
            +----+----+---------+-------+
            | ann|Rome|        1|      2|
            | ann|Bonn|        2|   NULL|
            | bob|Oslo|        1|      2|
            +----+----+---------+-------+
            <BLANKLINE>
        """
        source = _arguments.check_source(self._backend.spark, source, self.path)
        own = self._snapshot().definition
        if missing not in ("delete", "keep"):
            raise ValueError(f"missing takes 'delete' or 'keep', got {missing!r}.")
        extract = SnapshotFeed.of(self._backend.spark, source, own, at, missing == "delete")
        return self._builder(None, derive=extract.merge, call=f"snapshot(at={at})")

    @with_session_settings
    def toDF(self) -> DataFrame:
        """Return the live rows, resolved lazily and pinned to the version the table has now (S13, S14).

        Returns:
            A DataFrame with the columns of the definition and their comments, one row per live key. Its schema says that every
            column may be null, as Spark says of whatever it reads from files; which may not stands in ``definition.schema``.

        Example:
            >>> orders.toDF().select("order_id", "amount").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00')), Row(order_id='2', amount=Decimal('9.50'))]
        """
        snapshot = self._readable_snapshot()
        with naming_storage_errors(self._backend):
            return reader.with_comments(reader.live_rows(self._backend, Batches.of(snapshot)), snapshot.definition)

    def changes(self, fromVersion: int, toVersion: int | None = None, net: bool = True) -> DataFrame:
        """Return what happened to the live rows after one version, up to another (S41).

        Compactions and folds change nothing, and rows that did not change are left out: the same in every column, nulls and
        nested values included. A restore shows what it changed, a purge the rows it took, while the files of the version before
        it are there.

        It is lazy, and scans each batch of both versions once, then shuffles by key. Only keys of batches that were appended
        between (or that only one of the versions has, if these are fewer, or after a restore or purge) can have changed: up to
        500,000 rows of them are sent to where the others are scanned, and nothing but these keys is shuffled; batches that cannot
        hold such a key are not opened. With more, both versions are compared as a whole.

        Args:
            fromVersion: exclusive: what this version holds is where it starts. 0 is the empty table.
            toVersion: inclusive; by default the table's version.
            net: compare the two states: at most one change per key. Otherwise each version that changed rows with the one
                before, one after the other; that takes the files of all of them, and at most 100 versions at a time.

        Returns:
            The columns of the definition, as ``toVersion`` has it, and

            - ``_change_type``: ``insert``, ``delete`` (with the row as it was), or ``update_preimage`` and ``update_postimage``,
              which are two rows;
            - ``_commit_version``: of the commit that wrote what now holds, be it a row or a tombstone; always after
              ``fromVersion``. As far as known: rows of a fold or compaction count as the newest that went into it, what a
              restore brought back counts as the restore's (the last one's), and null is a delete whose tombstone is gone. Where
              only one commit can have made the changes, and so always with ``net=False``, it is that one's;
            - ``_commit_timestamp``: of that commit;
            - ``_watermark``: the declared watermark of what now holds, the tombstone's on deletes: the column, or a struct of
              several; null where the tombstone is gone, and a null ``BIGINT`` in tables that declare none.

        Raises:
            TableNotFoundError: there is no such version; or a vacuum or purge has removed files it needs.
            ValueError: a version is no whole number from 0 up, or ``fromVersion`` comes after ``toVersion``; or with ``net=False``
                more than 100 versions changed rows.
            InvalidDefinitionError: the table has a column that is called like one of these four.

        Example:
            >>> orders.updateWhere("order_id = '1'", {"amount": "7"}).execute().version
            2
            >>> orders.changes(1).select("order_id", "amount", "_change_type", "_commit_version").orderBy("amount").show()
            +--------+------+----------------+---------------+
            |order_id|amount|    _change_type|_commit_version|
            +--------+------+----------------+---------------+
            |       1|  5.00| update_preimage|              2|
            |       1|  7.00|update_postimage|              2|
            +--------+------+----------------+---------------+
            <BLANKLINE>
        """
        newest = self._snapshot().version
        with naming_storage_errors(self._backend):
            return changes(self._backend, newest, fromVersion, toVersion, net)

    def changesSince(self, target: TrinityTable, appId: str) -> Increment:
        """Return what has changed since another table was told: increments for merges into it, each exactly once (S36, S41).

        The position is a transaction marker of the other table, which the merge of the increment moves in its own commit. So a
        job that dies and runs again neither loses a change nor repeats one.

        Args:
            target: the table that the changes are merged into.
            appId: the name of this feed among that table's markers.

        Returns:
            The changes, and the transaction to merge them with. The first time they lead there from the empty table.

        Raises:
            InvalidMergeError: since then the table was restored or purged, or it is another one, and how to start over; or the
                target is no table of this library.
            TableNotFoundError: a vacuum has removed files of the version that the other table knows.

        Example:
            >>> copy = TrinityTable.create(spark, f"{tmp_path}/copy", orders.definition.schema, "order_id", "ts")
            >>> def bring_up_to_date():
            ...     increment = orders.changesSince(copy, "orders")
            ...     rows = increment.rows.filter("_change_type <> 'update_preimage'")
            ...     merge = copy.applyChanges(rows, sequenceBy="_watermark", applyAsDeletes="_change_type = 'delete'",
            ...         columns=copy.definition.names)
            ...     return merge.withTransaction(*increment.transaction).execute().rowsAppended
            >>> bring_up_to_date(), orders.deleteWhere("order_id = '2'").execute().rowsDeleted
            (2, 1)
            >>> bring_up_to_date(), bring_up_to_date()
            (1, 0)
            >>> copy.toDF().select("order_id").collect()
            [Row(order_id='1')]
        """
        if not isinstance(appId, str) or not appId:
            raise ValueError(f"changesSince takes the name of the feed, got {appId!r}.")
        if not isinstance(target, TrinityTable):
            raise InvalidMergeError(
                f"changesSince() takes the table that the changes are merged into, got {kind_of(target)}: it must remember how far "
                "it has come. Create one, or open it with TrinityTable.forPath."
            )
        with naming_storage_errors(self._backend):
            return increment(
                self._backend,
                self._readable_snapshot().version,
                target._snapshot(),
                appId,
            )

    def versions(
        self,
        keys: DataFrame | Iterable[Any] | None = None,
        track: str | Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        validFrom: str = "validFrom",
        validTo: str = "validTo",
        current: str = "isCurrent",
        openEnd: Any = None,
        emptyIntervals: bool = False,
    ) -> DataFrame:
        """Every version of the rows of a table with history, with the time in which it was valid (H2-H5): a type 2 dimension.

        A version holds from its watermark (of several columns, the first; without a declared watermark, the time of its commit)
        until the next row of its key, or the tombstone. A row that came late lies where it belongs and ends the one before. Rows
        with the watermark of another replace it: they are corrections. What is current is what :meth:`toDF` shows.

        Lazy. A compacted table is scanned once, without a shuffle. The rows of batches that are pending (as many as can be sent to
        every task) are shuffled; where one of them may be late, so are all other rows of their keys. ``track`` takes a shuffle of
        all.

        Args:
            keys: only versions of these: a DataFrame with the columns of the primary key, or a list of values.
            track: consecutive versions that agree in these columns are one: it begins with the first and shows the other columns
                as the last has them. ``"*"`` is all columns but the watermark. Versions are never joined across a gap. By default
                each is shown.
            exceptColumns: instead: all columns are tracked but these. Watermark columns never are.
            validFrom: what to call the column that says from when a version holds; null is from the beginning. The name of the
                first watermark column will do: it is shown once, then.
            validTo: likewise until when, that instant not included; null is until now.
            current: likewise whether nothing has ended it.
            openEnd: what ``validTo`` holds instead of null in current versions, such as ``"9999-12-31"``.
            emptyIntervals: show versions too that begin and end at the same instant: of a composite watermark whose first column
                is the same.

        Returns:
            The columns of the definition and these three.

        Raises:
            InvalidDefinitionError: the table keeps no history, or has a column of one of these names.
            SchemaMismatchError, NullKeyError: ``keys`` are no keys of the table.
            ValueError: ``openEnd`` is of another type, or what is tracked is no column, or a watermark.

        Example:
            >>> cities = TrinityTable.create(spark, f"{tmp_path}/cities", "name STRING, city STRING, day INT",
            ...     primaryKey="name", watermarkKey="day", history=True)
            >>> for city, day in [("Rome", 1), ("Oslo", 9), ("Bonn", 5)]:  # the last one comes late
            ...     _ = cities.upsert(spark.sql(f"SELECT 'ann' AS name, '{city}' AS city, {day} AS day")).execute()
            >>> cities.versions().orderBy("validFrom").show()
            +----+----+---+---------+-------+---------+
            |name|city|day|validFrom|validTo|isCurrent|
            +----+----+---+---------+-------+---------+
            | ann|Rome|  1|        1|      5|    false|
            | ann|Bonn|  5|        5|      9|    false|
            | ann|Oslo|  9|        9|   NULL|     true|
            +----+----+---+---------+-------+---------+
            <BLANKLINE>
        """
        tracked = None if track is None else _names(track)
        shown = VersionsOptions(tracked, _names(exceptColumns), validFrom, validTo, current, openEnd, emptyIntervals)
        with naming_storage_errors(self._backend):
            return versions(self._backend, self._readable_snapshot(), keys, shown)

    def asOf(self, moment: Any) -> DataFrame:
        """Return the rows of a table with history that were valid at a moment of the data's time, as far as is known now (H5).

        What was *known* at some time is another question: open the table as of then. Both together,
        ``TrinityTable.forPath(spark, path, timestampAsOf=known).asOf(valid)``, is a bitemporal read.

        Args:
            moment: a value of the first watermark column; without a declared watermark a time. Text without a time zone of its
                own is in the session's.

        Returns:
            The columns of the definition, one row per key that was live then; no rows before the first version.

        Raises:
            InvalidDefinitionError: the table keeps no history.
            ValueError: ``moment`` is of another type.

        Example:
            >>> cities = TrinityTable.create(spark, f"{tmp_path}/cities2", "name STRING, city STRING, day INT",
            ...     primaryKey="name", watermarkKey="day", history=True)
            >>> for city, day in [("Rome", 1), ("Oslo", 9)]:
            ...     _ = cities.upsert(spark.sql(f"SELECT 'ann' AS name, '{city}' AS city, {day} AS day")).execute()
            >>> cities.asOf(5).collect()
            [Row(name='ann', city='Rome', day=1)]
        """
        with naming_storage_errors(self._backend):
            return as_of(self._backend, self._readable_snapshot(), moment)

    def _readable_snapshot(self) -> Snapshot:
        """Return the version to read, whose files are there."""
        snapshot = self._snapshot()
        if self._pinned is not None:
            require_files(self._backend, snapshot)
        return snapshot

    def why(self, key: Any) -> DataFrame:
        """Every stored row of one key, the one that holds first, with a sentence each on why it won or lost (S42).

        Of the version the table is at, or was opened at. Rows that a fold or compaction has dropped are not stored any more: an
        earlier version (``forPath(versionAsOf=...)``) may still have them. Reads what each batch has of the key.

        Args:
            key: a value, or a tuple, dict or Row where the primary key has several columns.

        Returns:
            The columns of the definition, and

            - ``_batch``: the id of the batch, which is part of the name of its directory;
            - ``_commit_version``, ``_commit_timestamp``: the version the row counts as: that of its commit, or, in a batch that
              was folded or compacted, of the newest that went into it (in a table with history that of its own commit);
            - ``_watermark``: as :meth:`changes` shows it;
            - ``_tombstone``: true if the row says that the key is deleted;
            - ``_why``: such as ``current: the largest watermark``, ``deleted: a tombstone with the largest watermark``,
              ``lost: watermark 3 is smaller than 5``, or ``lost: equal watermark, committed earlier (version 4 before 7)``.

            No rows if the key was never written, or is stored no longer.

        Raises:
            SchemaMismatchError, NullKeyError: this is no key of the table.
            TableNotFoundError: the files of the version the table was opened at are gone.
            InvalidDefinitionError: the table has a column that is called like one of these six.

        Example:
            >>> late = spark.sql("SELECT '1' AS order_id, 9.99 AS amount, timestamp'2023-01-01' AS ts")
            >>> orders.upsert(late).execute().rowsAppended
            1
            >>> orders.why("1").select("amount", "_commit_version", "_why").show(truncate=False)
            +------+---------------+-----------------------------------------------------------------------+
            |amount|_commit_version|_why                                                                   |
            +------+---------------+-----------------------------------------------------------------------+
            |5.00  |1              |current: the largest watermark                                         |
            |9.99  |2              |lost: watermark 2023-01-01 00:00:00 is smaller than 2024-01-01 00:00:00|
            +------+---------------+-----------------------------------------------------------------------+
            <BLANKLINE>
        """
        with naming_storage_errors(self._backend):
            return why(require_managed(self._backend, "why()"), self._readable_snapshot(), key)

    # Without this library ----------------------------------------------------------------------------------------------

    def sqlFor(self, dialect: str, files: str | None = None) -> str:
        """One query that gives the live rows in another engine, from the table's own files: those of :meth:`toDF` (S13).

        Of the version the table is at now, or was opened at: what is committed later is not in it, and once ``vacuum()`` or
        ``purge()`` has taken its files, running it is an error. So make it anew when you need it. Files are listed for that; no
        Spark job runs.

        Args:
            dialect: ``"duckdb"``, ``"polars"``, ``"spark"`` (without this library) or ``"trino"``.
            files: for Trino, the name there of a table of the Hive connector over the table's ``data`` directory, partitioned by
                ``_tm_batch``: ``docs/reading-from-elsewhere.md`` shows how it is declared.

        Returns:
            The query, as text, with the columns of the definition.

        Raises:
            ValueError: there is no such dialect, or ``files`` is missing, out of place or no name of a table.
            UnsupportedStorageError: the engine would not read the format, a path or a column right; it names that. Use
                :meth:`export`.
            TableNotFoundError: the files of the version the table was opened at are gone.
            CorruptTableError: a file of the table is gone.

        Example:
            >>> import duckdb
            >>> duckdb.sql(orders.sqlFor("duckdb")).project("order_id, amount").order("order_id").fetchall()
            [('1', Decimal('5.00')), ('2', Decimal('9.50'))]
        """
        return sql_for(require_managed(self._backend, "sqlFor()"), self._readable_snapshot(), dialect, files)

    def export(self, path: str) -> ExportResult:
        """Write the live rows into a new directory, as plain Parquet files that anything reads (S13).

        The directory has its name once all is in it, by a rename; but on object stores, where files are moved one by one: there
        wait for the call to return. There is nothing but data files in it. What only Spark knows becomes something else: intervals
        whole numbers, of microseconds or months, and variants JSON text.

        Args:
            path: a directory that does not exist.

        Returns:
            What has been written.

        Raises:
            TableExistsError: there is something at the path.
            TableNotFoundError: the files of the version the table was opened at are gone.
            StorageError: the rows could not be read or written; nothing is left at the path.

        Example:
            >>> result = orders.export(f"{tmp_path}/plain")
            >>> result.version, result.rows
            (1, 2)
            >>> spark.read.parquet(result.path).columns
            ['order_id', 'amount', 'ts']
        """
        with naming_storage_errors(self._backend):
            return export(require_managed(self._backend, "export()"), self._readable_snapshot(), path)

    def compact(self, full: bool = False) -> CompactionResult:
        """Rewrite the live rows into one base, sorted by primary key, so that reads have little or nothing to resolve (S38).

        The base of a large table consists of segments of neighbouring keys. One in which hardly anything has changed stays as
        it is (S38b): what has becomes one small batch, which reads lay over the base. So compaction costs what has changed.

        Never changes what readers see. An ordinary commit: merges that land meanwhile survive, and it gives way to
        another compaction, a restore, a purge or an alteration. Tombstones of a table with a declared watermark stay for the
        table's ``trinitymerge.tombstoneRetentionHours`` after their commit; without a watermark they are dropped. Old files stay
        until ``vacuum()``.

        A table of Iceberg's becomes one base as a whole, and gives way to whatever lands meanwhile: it is computed again, three
        times at most (S16).

        Args:
            full: every segment is written anew.

        Returns:
            What it did, or why it was not worth it.

        Raises:
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.delete(spark.sql("SELECT '1' AS order_id")).execute().batches
            2
            >>> result = orders.compact()
            >>> result.batches, result.rows, result.rowsRemoved
            (2, 2, 1)
        """
        store = self._require_writable()
        deliver_outbox.deliver_pending(store)
        return compaction.compact(store, full)

    def vacuum(self, retentionHours: float = 168, dryRun: bool = False) -> list[str]:
        """Remove files that no version of the last ``retentionHours`` needs, and what dead writers left behind (S39).

        Versions older than that can no longer be read afterwards. Log entries stay.

        Args:
            retentionHours: must be longer than the longest merge, compaction or read may take: a write in progress is
                only safe because its files are younger.
            dryRun: remove nothing.

        Returns:
            The paths that were removed, or that would be.

        Raises:
            ReadOnlyTableError: this is a past version.
            ValueError: ``retentionHours`` is no number from 0 up.

        Example:
            >>> orders.vacuum(dryRun=True)
            []
        """
        return vacuum.vacuum(self._require_managed("vacuum()"), retentionHours, dryRun)

    def restore(self, version: int) -> RestoreResult:
        """Commit a new version that equals an old one (S40). Later merges go on top; transaction markers stay.

        Args:
            version: one whose files have not been vacuumed.

        Returns:
            What it did.

        Raises:
            TableNotFoundError: there is no such version, or its files are gone; nothing was changed.
            ConcurrentCommitError: other writers were faster each time; nothing was changed.
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.deleteWhere("true").execute().rowsDeleted
            2
            >>> orders.restore(1).version, orders.toDF().count()
            (3, 2)
        """
        return vacuum.restore(self._after_outbox("restore()"), version)

    def purge(self, keys: DataFrame | Iterable[Any]) -> PurgeResult:
        """Erase keys: every stored version of them, from all files, history included (a legal erasure).

        Files that hold a key are rewritten without it and deleted at once. **Past versions that needed a deleted file
        cannot be read any more.** The log keeps a salted hash of each key, by which later merges leave out rows of purged
        keys (``rowsPurged`` in their results): a replayed event cannot bring a key back. Log entries stay: they hold no
        rows, and conditions of merges without the values in them (S36b).

        No call lets a purged key in again. To do so, make a new table of the live rows: ``TrinityTable.convert(spark,
        table.toDF(), path, primaryKey=...)``.

        Args:
            keys: a DataFrame with the columns of the primary key, or a list of values (tuples or dicts where the key has
                several columns). At most 100,000.

        Returns:
            What was rewritten, deleted and removed, verified by scanning all files once more.

        Raises:
            SchemaMismatchError, NullKeyError: the keys are not keys of this table; nothing was changed.
            CorruptTableError: a file is missing; or the scan still found a key, which another writer has just written: call
                it again.
            ReadOnlyTableError: this is a past version.

        Example:
            >>> result = orders.purge(["1"])
            >>> result.rowsRemoved, orders.toDF().count()
            (1, 1)
            >>> orders.upsert(spark.sql("SELECT '1' AS order_id, 1 AS amount, current_timestamp() AS ts")).execute().rowsPurged
            1
        """
        return purge.purge(self._require_managed("purge()"), keys, lambda: self._after_outbox("purge()"))

    def purgeWhere(self, condition: str | Column) -> PurgeResult:
        """Erase every key of which *any* stored row fulfils a condition, as :meth:`purge` does: requests name people, not keys.

        All files below the table are looked into: those of past versions and of writers that died too, tombstones and archives. So
        a key goes whose current row does not fulfil the condition, if an earlier one does that is still stored. It is evaluated
        again until nothing is found: on what lands meanwhile, too.

        A row counts as it is stored. A tombstone holds its key, its watermark and nothing else; what a compaction has dropped and
        a vacuum removed cannot be found, and need not be. The condition does not get into the log.

        Args:
            condition: boolean SQL text or Column over the table's columns; null is not true. At most 100,000 keys may be found.

        Returns:
            What was rewritten, deleted and removed, and how many keys were found. If none was, nothing is committed.

        Raises:
            InvalidMergeError: the condition is None, or not boolean, or not deterministic, or cannot be evaluated.
            ValueError: it is true of too many keys.
            ConcurrentCommitError: rows that fulfil it are written faster than they can be erased.
            CorruptTableError: as :meth:`purge`.
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.updateWhere("order_id = '1'", {"amount": "6"}).execute().rowsUpdated
            1
            >>> result = orders.purgeWhere("amount = 5")  # what the row was before
            >>> result.keys, [row["order_id"] for row in orders.toDF().collect()]
            (1, ['2'])
        """
        finish = partial(self._after_outbox, "purgeWhere()")
        return purge_where(self._require_managed("purgeWhere()"), condition, self._alias, finish)

    def alter(self) -> TableAlteration:
        """Begin to change the table's definition: columns, constraints, properties, the comment, and whether versions are kept.

        Raises:
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.alter().setHistory().execute().changes
            ('versions are kept',)
            >>> orders.versions().select("order_id", "amount", "validTo").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00'), validTo=None), Row(order_id='2', amount=Decimal('9.50'), validTo=None)]
        """
        return TableAlteration(self._after_outbox("alter()"))

    def discardPendingHistoryInserts(self) -> tuple[dict[str, Any], ...]:
        """Give up rows that cannot be written into the tables they are for (S27), so that this table can be written again.

        For a table that ``insertHistoryExpr`` has named and that is gone since, or has changed so that it cannot take them. What
        can be written is. The rows stay in their directories until ``vacuum()``.

        Returns:
            For each table: what it is called, how many rows it does not get, and their batch, by which their directory is found.

        Raises:
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.discardPendingHistoryInserts()
            ()
        """
        return deliver_outbox.discard_pending(self._require_writable())

    def health(self) -> TableHealth:
        """Return how the table is doing, and the one thing to do next; counts the live rows by reading the table.

        Example:
            >>> print(orders.health())
            version             1
            live rows           2
            ...
        """
        with naming_storage_errors(self._backend):
            return health.health(require_managed(self._backend, "health()"), self._snapshot())

    def clone(self, path: str) -> Self:
        """Copy the table, as it is at its version, to a path of its own (S40a).

        Unlike a copy of :meth:`toDF`, which would bring deleted keys back with the next late row, this is the whole of it: the
        definition, all batches with their tombstones and archives, so that versions and what comes late mean what they mean here;
        the keys that were purged, the markers of transactions and streams, the extracts, and what compactions have forgotten. Its
        versions begin with the number of the original's. Past versions, and the log of before, are not copied.

        Files are copied and never shared: nothing that happens to one of the two tables concerns the other. Dies the process in
        the middle, there is no table at the path, and the call can be repeated.

        Of a table that was opened at a past version, that version is copied. Keys purged since stay purged in the copy.

        Args:
            path: one that does not exist, or an empty directory, on any filesystem Spark reaches.

        Returns:
            The copy, which can be written to.

        Raises:
            TableExistsError: the path holds a table or something else.
            TableNotFoundError: files of the past version are gone.
            CorruptTableError: a file is missing.
            ConcurrentCommitError: a compaction and a vacuum, or a purge, were faster each time; nothing is left of the copy.

        Example:
            >>> copy = orders.clone(f"{tmp_path}/orders-copy")
            >>> copy.version, copy.deleteWhere("true").execute().rowsDeleted, orders.toDF().count()
            (1, 2, 2)
        """
        source = require_managed(self._backend, "clone()")
        target = require_managed(open_store(source.spark, path), "clone()")
        clone.clone(source, self._pinned, target)
        return type(self)(target)

    @classmethod
    def convert(
        cls,
        spark: SparkSession,
        source: DataFrame | str | ExternalTable,
        path: str,
        primaryKey: str | Iterable[str] = (),
        watermarkKey: str | Iterable[str] | None = None,
        tombstoneKey: str | None = None,
        tombstoneStringValue: str | None = None,
        fileFormat: str = "parquet",
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        history: bool = False,
    ) -> Self:
        """Make a table of rows that exist (S7b): all of them become one base batch, written in one job.

        The columns are the source's. Each key must occur once, and rows that are tombstones may be among them: they stay, and
        keep older rows from coming back. Rows of several versions of a key are no base: create the table and merge them, or take
        an external table over them, of which the freshest row of each key is taken, be it a tombstone.

        Args:
            spark: the session.
            source: a DataFrame, the path of a directory of Parquet files, or an external table; it stays as it is.
            path: of the new table, as for ``create``.
            primaryKey: as for ``create``; so are all that follow. An external table brings its own keys.
            watermarkKey: likewise.
            tombstoneKey: likewise.
            tombstoneStringValue: likewise.
            fileFormat: of the table, whatever the source's is.
            properties: likewise.
            comment: likewise.
            history: likewise; each row is the first version of its key.

        Returns:
            The table, at version 1; at version 0 if the source has no rows.

        Raises:
            NullKeyError: rows have a null in the key; nothing is left at the path.
            DuplicateKeyError: several rows have one key; likewise.
            InvalidDefinitionError: keys, columns or format cannot work together; or keys are given beside an external table.
            InvalidMergeError: the source is none of these, or cannot be evaluated, or is external with a null in a key.
            StorageError: there are no Parquet files at the source's path, or they cannot be read.
            TableExistsError: the path holds a table or something else.

        Example:
            >>> spark.sql("SELECT * FROM VALUES (1, 'Rome'), (2, 'Oslo') AS t(id, city)").write.parquet(f"{tmp_path}/cities-files")
            >>> t = TrinityTable.convert(spark, f"{tmp_path}/cities-files", f"{tmp_path}/converted", primaryKey="id")
            >>> t.version, t.upsert(spark.sql("SELECT 2 AS id, 'Bonn' AS city")).execute().version, t.toDF().count()
            (1, 2, 2)
        """
        origin = {"source": source} if isinstance(source, str) else {}
        keys: tuple[Any, ...] = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        if isinstance(source, ExternalTable):
            keys, rows = source._converted(*keys), source._latest()
        else:
            rows = _files(spark, source) if isinstance(source, str) else source
        rows = _arguments.check_source(spark, rows, path)
        definition = _arguments.definition_of(
            spark,
            _arguments.declaring_nothing(rows.schema),
            *keys,
            fileFormat,
            properties,
            comment,
            history,
        )
        table = cls(open_store(spark, path))
        convert.convert(
            table._require_managed("convert()"), rows, definition, {**origin, "sourceColumns": rows.columns}
        )
        return table

    @classmethod
    def fromIntervals(
        cls,
        spark: SparkSession,
        path: str,
        source: DataFrame,
        primaryKey: str | Iterable[str],
        validFrom: str,
        validTo: str,
        openEnd: Any = None,
        endInclusive: bool = False,
        fileFormat: str = "parquet",
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> Self:
        """Make a table with history of an existing dimension of type 2 (H12): each row becomes a version.

        The table has the columns of the source but for ``validTo``, which follows from the rows; its watermark is ``validFrom``.
        Leave out columns that say whether a row is current. ``versions(validFrom=..., validTo=..., openEnd=...)`` of the table,
        with the same names, is the source again. Intervals that end where they begin are left out, and a warning says how many.

        Args:
            spark: the session.
            path: of the new table, as for ``create``.
            source: the dimension; evaluated once.
            primaryKey: what the rows are versions of, without the interval.
            validFrom: the column that says from when a row holds; null is from the beginning.
            validTo: likewise until when; null is until now.
            openEnd: another value of ``validTo`` that means the same, such as ``"9999-12-31"``.
            endInclusive: ``validTo`` is the last moment that belongs to the interval: the next whole number, last decimal place,
                day or microsecond ends it.
            fileFormat: as for ``create``.
            properties: likewise.
            comment: likewise.

        Raises:
            InvalidMergeError: the source lacks a column; an interval ends before it begins; or ends are inclusive, and of a
                type that has no next value.
            NullKeyError: a key has a null.
            DuplicateKeyError: intervals of a key overlap.
            TableExistsError: the path holds a table or something else.

        Example:
            >>> old = spark.sql("SELECT * FROM VALUES (7, 'Rome', 10, 20), (7, 'Oslo', 20, 9999) AS t(id, city, since, until)")
            >>> t = TrinityTable.fromIntervals(spark, f"{tmp_path}/dimension", old, "id", "since", "until", openEnd=9999)
            >>> t.versions(validFrom="since", validTo="until").orderBy("since").show()
            +---+----+-----+-----+---------+
            | id|city|since|until|isCurrent|
            +---+----+-----+-----+---------+
            |  7|Rome|   10|   20|    false|
            |  7|Oslo|   20| NULL|     true|
            +---+----+-----+-----+---------+
            <BLANKLINE>
        """
        keys = (primaryKey,) if isinstance(primaryKey, str) else tuple(primaryKey)
        source = _arguments.check_source(spark, source, path)
        with session_conf(spark, EXACT_IDENTIFIERS):
            found = Intervals.of(source, keys, validFrom, validTo, openEnd, endInclusive)
            events, flag = found.events()
        definition = _arguments.definition_of(
            spark,
            _arguments.declaring_nothing(found.schema),
            found.key,
            found.begin,
            None,
            None,
            fileFormat,
            properties,
            comment,
            True,
        )
        table = cls(open_store(spark, path))
        table._backend.create(definition, current_user())
        merge = table.applyChanges(events, applyAsDeletes=quote(flag))
        merge._with(call="fromIntervals()", is_sequenced=False).execute()  # a null is from the beginning
        return table

    @staticmethod
    def external(
        source: DataFrame | str,
        primaryKey: str | Iterable[str],
        watermarkKey: str | Iterable[str] | None = None,
        tombstoneKey: str | None = None,
        tombstoneStringValue: str | None = None,
        spark: SparkSession | None = None,
    ) -> ExternalTable:
        """Return a read-only table over rows that this library did not write (S15, S16): row versions, in any order.

        It can be read, be the source of merges and of SQL statements, and become a managed table with :meth:`convert`. Nothing
        is copied, and nothing is written.

        Args:
            source: a DataFrame of row versions; or the name of a table or view in the session's catalog, which is looked up at
                each call, so that rows are seen that have come since.
            primaryKey: as for ``create``; so are the three that follow. Without a watermark key the rows of a key all tie, and
                what they hold decides.
            watermarkKey: likewise.
            tombstoneKey: likewise; without one no row says that its key is deleted.
            tombstoneStringValue: likewise.
            spark: the session whose catalog knows the name; by default the active one. A DataFrame is read in its own.

        Raises:
            TableNotFoundError: the catalog does not know the name.
            InvalidDefinitionError: keys and columns cannot work together, names of columns clash or begin with ``_tm_``, or the
                rows are a stream.

        Example:
            >>> spark.sql("SELECT * FROM VALUES (1, 1, 'I', 5), (1, 2, 'U', 7), (2, 3, 'I', 9), (2, 4, 'D', null) "
            ...           "AS t(id, seq, op, amount)").createOrReplaceTempView("outbox")
            >>> events = TrinityTable.external("outbox", "id", "seq", tombstoneKey="op", tombstoneStringValue="D")
            >>> events
            ExternalTable(outbox; primary key id; watermark seq; tombstone op)
            >>> events.toDF().collect()
            [Row(id=1, seq=2, op='U', amount=7)]
            >>> TrinityTable.convert(spark, events, f"{tmp_path}/managed").toDF().select("id", "amount").collect()
            [Row(id=1, amount=7)]
        """
        keys = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        return ExternalTable.of(source, keys, spark)

    @property
    def path(self) -> str:
        """Where the table is, with scheme."""
        return self._backend.path

    def _snapshot(self) -> Snapshot:
        return self._backend.snapshot() if self._pinned is None else self._backend.snapshot_at(self._pinned)

    def _require_managed(self, call: str) -> ManagedStore:
        return require_managed(self._require_writable(), call)

    def _require_writable(self) -> TableStore:
        if self._pinned is not None:
            raise ReadOnlyTableError(
                f"{self.path} was opened at version {self._pinned}, and past versions are read only. Open it without "
                "versionAsOf or timestampAsOf to write.",
                path=self.path,
            )
        if not supports_writes(self._backend.spark):
            raise ReadOnlyTableError(
                f"{self.path} can only be read in this session: Spark Connect of PySpark 3.5 cannot evaluate a source once "
                "and hand over what a write observes. Use PySpark 4.0 or newer, or a classic session, to write.",
                path=self.path,
            )
        return self._backend

    def _after_outbox(self, call: str) -> ManagedStore:
        """Return the store, once what merges have left to be done is done (S27)."""
        store = self._require_managed(call)
        deliver_outbox.deliver_pending(store)
        return store


def _opened(address: str, alias: str, spark: SparkSession) -> TrinityTable:
    """Return a table in another session: by its address, which can be sent to another process where a session cannot."""
    return TrinityTable(open_store(spark, address), alias=alias)
