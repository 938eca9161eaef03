"""`TrinityTable`: create, open, merge into, read and maintain a table."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge import _arguments, errors, reader
from trinitymerge.errors import kind_of
from trinitymerge.external import ExternalTable
from trinitymerge.feeds import streaming
from trinitymerge.feeds.change_events import merge_of_events
from trinitymerge.feeds.deduplicate import deduplicated
from trinitymerge.feeds.events import CALL, ChangeFeed
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.feed_merge import merge_of_feed
from trinitymerge.feeds.intervals import Intervals
from trinitymerge.feeds.snapshots import SnapshotFeed
from trinitymerge.history.changes import changes
from trinitymerge.history.explain import why
from trinitymerge.history.incremental import Increment, increment
from trinitymerge.history.versions import VersionsOptions, as_of, versions
from trinitymerge.interop.export import ExportResult, export
from trinitymerge.interop.query import sql_for
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot, current_user
from trinitymerge.maintenance import clone, compaction, convert, deliver_outbox, health, purge, vacuum
from trinitymerge.maintenance.advice import TableHealth
from trinitymerge.maintenance.alter import TableAlteration
from trinitymerge.maintenance.compaction import CompactionResult
from trinitymerge.maintenance.purge import PurgeResult, purge_where
from trinitymerge.maintenance.vacuum import RestoreResult
from trinitymerge.merge import builder
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.execute.quarantine import COLUMNS, PRIMARY_KEY, WATERMARK
from trinitymerge.merge.execute.request import FeedContext, MergeSpec, Settings
from trinitymerge.merge.model.arguments import ExpressionMap, all_of_source
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.reporting.table import table_report, table_summary
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import EXACT_IDENTIFIERS, session_conf, with_session_settings
from trinitymerge.spark.session import supports_writes
from trinitymerge.stores.base import ManagedStore, TableStore, require_files, require_managed
from trinitymerge.stores.registry import open_catalog_store, open_store, store_uri
from trinitymerge.stores.removed_files import naming_storage_errors

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_ALIAS = "target"


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _opened_for(spark: SparkSession, path: str, using: str | None, definition: TableDefinition) -> TableStore:
    """Return the store of a table to create, which can have such a definition."""
    store = open_store(spark, path, using)
    if definition.clusterBy and not isinstance(store, ManagedStore):
        columns = ", ".join(map(E.quote, definition.clusterBy))
        raise errors.UnsupportedStorageError(
            f"{store.path} cannot be clustered here: its format sorts it. Leave clusterBy out, and run, "
            f"for Iceberg, ALTER TABLE {store.path} WRITE ORDERED BY {columns}.",
            path=store.path,
        )
    return store


def _files(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of Parquet files that do not belong to a table of this library."""
    with contextlib.suppress(errors.UnsupportedStorageError):  # it can be read all the same
        if open_store(spark, path).exists():
            raise errors.InvalidMergeError(
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

    _store: TableStore
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
        clusterBy: str | Iterable[str] | None = None,
    ) -> TrinityTable:
        """Create an empty table: a managed one at a path, or one of another format in a catalog (S1-S7, S16).

        Args:
            spark: the session.
            path: a path that does not exist or is an empty directory, on any filesystem Spark reaches. With ``using``, the name
                of the table, such as ``lake.db.orders``. A path such as ``shop.orders``, two or three identifiers with dots between
                them and no extension such as ``.parquet``, is refused: write ``./shop.orders``. It is the same for the path of
                :meth:`clone`, :meth:`convert` and other calls that create a table. An existing table opens by any path.
            schema: the columns, as DDL text or a ``StructType``; char and varchar are allowed.
            primaryKey: a column name or names: atomic, orderable, never null.
            watermarkKey: the columns that order the versions of a row, most significant first. Default: the order of commits.
            tombstoneKey: the column that marks deleted rows. Default: a hidden boolean column.
            tombstoneStringValue: the value of a string tombstone key on deleted rows.
            fileFormat: ``"parquet"`` or ``"orc"``.
            properties: settings as text. Those of the library start with ``trinitymerge.``:
                ``tombstoneRetentionHours`` (168; ``none`` for ever), ``compactAfterBatches`` (``none``),
                ``historyRetentionHours`` (``none`` for ever), ``minorCompactionAfterBatches`` (16; ``none`` for never),
                ``minorCompactionMaxBytes`` (32 MB), ``targetSegmentBytes`` (16 MB, more in large tables),
                ``maxCommitAttempts`` (20), ``commitBackoffSeconds`` (0.05) and ``checkpointInterval`` (50).
            comment: for people.
            history: keep replaced and deleted rows as versions (H1): see :meth:`versions`.
            using: ``"iceberg"`` for an Iceberg table in an Iceberg catalog: see :meth:`forName`. Properties that do not start with
                ``trinitymerge.`` become properties of the Iceberg table.
            clusterBy: columns that queries filter by, most significant first, such as ``"day"`` (S7c). Files are sorted by them, so
                that a filter reads a part of each. Lookups of scattered keys read more.

        Returns:
            The table, at version 0.

        Raises:
            InvalidDefinitionError: keys, schema or format cannot work together, or the path is written as the name of a table.
            TableExistsError: the path holds a table or something else.
            UnsupportedStorageError: the storage has no atomic commits (S33), or no store exists for the format.

        Example:
            >>> t = TrinityTable.create(spark, f"{tmp_path}/orders2", primaryKey="order_id", watermarkKey="ts",
            ...     schema="order_id STRING, amount DECIMAL(10,2), ts TIMESTAMP, deleted BOOLEAN", tombstoneKey="deleted")
            >>> t.version
            0
        """
        keys = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        definition = _arguments.definition_of(
            spark, schema, *keys, fileFormat, properties, comment, history, clusterBy=clusterBy
        )
        store = _opened_for(spark, path, using, definition)
        store.create(definition, current_user())
        return cls(store)

    @classmethod
    def createQuarantine(cls, spark: SparkSession, path: str) -> TrinityTable:
        """Create a table for the rows that merges with ``quarantine(table)`` cannot write (S47), or open it.

        Its columns are:

        - ``target`` and ``id``, the primary key: the path of the merging table, and the position of a message or a hash of the row;
        - ``reason``: ``type:<column>``, ``null:<column>``, ``null-key``, ``check:<name>``, ``stale``, ``ambiguous``, or why a feed
          rejects the message (F3);
        - ``clause``: the number of the clause from 1, null for messages;
        - ``row``: the source row as JSON, or the message;
        - ``version`` and ``at``: of the merge's commit.

        Args:
            spark: the session.
            path: of the table.

        Raises:
            TableExistsError: the path holds another table, or something else.

        Example:
            >>> TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine").toDF().columns
            ['target', 'id', 'reason', 'clause', 'row', 'version', 'at']
        """
        return cls.createIfNotExists(spark, path, COLUMNS, primaryKey=PRIMARY_KEY, watermarkKey=WATERMARK)

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
        clusterBy: str | Iterable[str] | None = None,
    ) -> TrinityTable:
        """Open the table at the path, or create it; the arguments are those of :meth:`create`.

        An existing table must have these keys, this format and these columns. It may have more columns, and wider types. Its
        properties, layout and comment stay as they are.

        Raises:
            TableExistsError: the path holds a table with another definition, or something else.

        Example:
            >>> a = TrinityTable.createIfNotExists(spark, f"{tmp_path}/t3", "id INT", primaryKey="id")
            >>> TrinityTable.createIfNotExists(spark, f"{tmp_path}/t3", "id INT", primaryKey="id").version
            0
        """
        keys = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        definition = _arguments.definition_of(
            spark, schema, *keys, fileFormat, properties, comment, history, clusterBy=clusterBy
        )
        store = _opened_for(spark, path, using, definition)
        if not store.exists():
            try:
                store.create(definition, current_user())
            except errors.TableExistsError:
                if not store.exists():  # something else is there; a table would be another writer's, just made
                    raise
        other = _arguments.difference(store.snapshot().definition, definition)
        if other:
            raise errors.TableExistsError(
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
        """Open a table by its path (S7, S40).

        Args:
            spark: the session.
            path: as given to :meth:`create`.
            versionAsOf: open this version, read only.
            timestampAsOf: open the newest version committed at or before this time, read only. A datetime, or text as Spark
                reads timestamps. Without an offset, it is in the session's time zone (``spark.sql.session.timeZone``), as
                ``history().show()`` prints times. ``collect()`` returns times in the zone of the Python process; if that
                differs, use ``versionAsOf``.

        Raises:
            TableNotFoundError: the table or version does not exist, or its files were vacuumed.
            ValueError: ``timestampAsOf`` is not a point in time, or both arguments are given.
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
            primaryKey: in the first call, as for :meth:`create`. In later calls omit it, or pass the same.
            watermarkKey: see ``primaryKey``.
            tombstoneKey: see ``primaryKey``.
            tombstoneStringValue: see ``primaryKey``.
            versionAsOf: as for :meth:`forPath`.
            timestampAsOf: as for :meth:`forPath`.

        Raises:
            TableNotFoundError: the table or version does not exist, or the table has no keys yet and none are given.
            TableExistsError: the table has other keys.
            NullKeyError: a row has a null in its key.
            InvalidDefinitionError: the keys do not fit the columns.
            UnsupportedStorageError: the table is not an Iceberg table.
            ConcurrentCommitError: another writer committed while the keys were stored.
            ValueError: ``name`` is not a table name.
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

    # Describing -----------------------------------------------------------------------------------------------------

    @property
    def definition(self) -> TableDefinition:
        """The keys, columns and properties (S7)."""
        return self._snapshot().definition

    @property
    def version(self) -> int:
        """The newest version, or the version that the table was opened at."""
        return self._snapshot().version

    def history(self) -> DataFrame:
        """Return the commits, newest first, one row each.

        Returns:
            Columns ``version``, ``timestamp``, ``operation``, ``parameters`` (JSON), ``metrics``, ``user``,
            ``durationMs``, ``batchesAdded``, ``batchesRemoved``, ``rowsAdded``, ``bytesAdded``.

            ``operation`` names the call of a merge: ``UPSERT``, ``INSERT``, ``UPDATE``, ``DELETE``, ``APPLY CHANGES`` or
            ``SNAPSHOT``; ``MERGE`` for a chain of clauses. ``parameters.call`` is the call with its arguments (S36b).

        Example:
            >>> [r["operation"] for r in orders.history().collect()]
            ['UPSERT', 'CREATE']
            >>> orders.deleteWhere("amount < 6").execute().version
            2
            >>> deletes = orders.history().filter("operation = 'DELETE'")
            >>> deletes.selectExpr("version", "get_json_object(parameters, '$.call') AS call", "metrics.rowsDeleted").collect()
            [Row(version=2, call='deleteWhere("amount < ?")', rowsDeleted='1')]
        """
        commits = (c for c in self._store.history() if self._pinned is None or c.version <= self._pinned)
        return _arguments.history_frame(self._store.spark, commits)

    def detail(self) -> DataFrame:
        """Return the table's format, keys and size as one row, from its log.

        Returns:
            Columns ``format`` (of its files), ``location``, ``description``, ``version``, ``lastModified``, ``primaryKey``,
            ``watermarkKey``, ``tombstoneKey``, ``clusterBy``, ``history``, ``checks``, ``properties``, ``numBatches``,
            ``numFiles``, ``storedRows`` (replaced rows and tombstones included) and ``sizeInBytes``.

        Example:
            >>> orders.detail().select("format", "version", "primaryKey", "storedRows").collect()
            [Row(format='parquet', version=1, primaryKey=['order_id'], storedRows=2)]
        """
        return _arguments.detail_frame(self._store.spark, self.path, self._snapshot())

    # Streaming ------------------------------------------------------------------------------------------------------

    def foreachBatch(
        self,
        mergeFunction: Callable[[TrinityTable, DataFrame], MergeBuilder],
        appId: str,
        onResult: Callable[[MergeResult], object] | None = None,
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``DataStreamWriter.foreachBatch`` that merges each micro-batch exactly once (S36, S36a).

        A micro-batch that Spark repeats after a crash is skipped if it was committed: its number equals the last one. A smaller
        number, or another streaming query under the same name, means that the stream has started over. Its rows would be lost as
        replays, so the stream fails with an ``InvalidMergeError``.

        Columns that the table does not have are left out, with a warning. ``withSchemaEvolution()`` on the merge adds them in
        the commit of the micro-batch (S44).

        On Spark Connect, Spark pickles the function and runs it in a process beside the server. This package must be installed
        there, and ``mergeFunction`` should use only its two arguments.

        Args:
            mergeFunction: returns a merge, not yet executed, from this table and a micro-batch.
            appId: the stable name of the stream, one for each checkpoint directory.
            onResult: called with the result of each merge, also of a skipped replay (``result.skipped``). An exception in it
                fails the micro-batch; the merge is already committed.

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
            streaming.TableOpener(partial(_opened, store_uri(self._store), self._alias)), mergeFunction, appId, onResult
        )

    # Showing --------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """One line: path, version and keys."""
        return _arguments.shown(self.path, self._snapshot, is_past=self._pinned is not None)

    def _repr_html_(self) -> str | None:
        try:
            snapshot = self._snapshot()
            first = max(snapshot.first_version, snapshot.version - 29)
            return table_summary(self.path, snapshot, list(self._store.commits(first, snapshot.version)))
        except (errors.TrinityMergeError, OSError):  # a notebook then shows the line of __repr__
            return None

    def alias(self, name: str) -> Self:
        """Return the table under an alias, for merge expressions (default: ``target``).

        Example:
            >>> orders.alias("A").merge(orders.toDF().alias("B")).whenMatched("A.amount > B.amount").delete().execute().rowsDeleted
            0
        """
        if not isinstance(name, str) or not name:
            raise errors.InvalidMergeError(f"An alias must be a name, got {name!r}.")
        return attrs.evolve(self, alias=name)

    def merge(
        self, source: DataFrame | TrinityTable | ExternalTable, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Begin a merge of a source into this table (S17-S37); see :class:`MergeBuilder`.

        Args:
            source: a DataFrame, with or without an alias (default: ``source``), or another table, also an external one.
            condition: boolean SQL text or Column that pairs rows. None pairs rows with equal primary keys, by column name.

        Raises:
            ReadOnlyTableError: the table was opened at a past version, or the session is Spark Connect on PySpark 3.5.
            InvalidMergeError: an argument has the wrong type.
        """
        if isinstance(source, (TrinityTable, ExternalTable)):
            source = source._as_source()
        source = _arguments.check_source(self._store.spark, source, self.path)
        if condition is not None and not isinstance(condition, (str, Column)):
            raise errors.InvalidMergeError(
                f"The merge condition must be SQL text or a Column, got {type(condition).__name__} ({condition!r})."
            )
        return self._builder(source, condition)

    def _as_source(self) -> DataFrame:
        return self.toDF() if self._alias == DEFAULT_ALIAS else self.toDF().alias(self._alias)

    def _builder(
        self, source: DataFrame | None, condition: Any = None, derive: Any = None, **of_call: Any
    ) -> MergeBuilder:
        store = self._require_writable()
        before, after = deliver_outbox.pre_attempt_hook, partial(deliver_outbox.post_commit_hook, store)
        feed = FeedContext(**of_call)
        spec = MergeSpec(store, self._alias, source, condition, (), Settings(), feed, before, after, derive)
        return MergeBuilder(spec)

    def upsert(
        self,
        source: DataFrame | TrinityTable | ExternalTable,
        columns: Iterable[str] | None = None,
        exceptColumns: Iterable[str] = (),
        ignoreNulls: bool | Iterable[str] = False,
        onlyIfChanged: bool = False,
    ) -> MergeBuilder:
        """Update rows whose primary key exists, and insert the others (TrinityLake, upsert).

        With any of the last four arguments, the merge reads the rows of the source's keys.

        Args:
            source: the rows.
            columns: take only these columns and the primary key. Default: all. Other columns keep their value; in new rows they
                get their default, or null.
            exceptColumns: take all columns but these.
            ignoreNulls: true, or columns: a null in the source keeps the stored value.
            onlyIfChanged: skip rows that change nothing but the watermark; they count as ``rowsUnchanged`` (S22b).

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
        """Update rows whose primary key exists, and skip the other source rows.

        Args:
            source: the rows.
            columns: take only these columns and the primary key. Default: all. Other columns keep their value.
            exceptColumns: take all columns but these.
            ignoreNulls: true, or columns: a null in the source keeps the stored value.
            onlyIfChanged: skip rows that change nothing but the watermark; they count as ``rowsUnchanged`` (S22b).

        Example:
            >>> orders.update(orders.toDF().filter("order_id = '1'")).execute().rowsUpdated
            1
        """
        values = all_of_source("update", exceptColumns, columns, ignoreNulls)
        return builder.update(self.merge(source), values, onlyIfChanged)

    def delete(self, source: DataFrame | TrinityTable | ExternalTable) -> MergeBuilder:
        """Delete the rows whose primary key is in the source, which needs only the key columns and the watermark.

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
            deduplicate: skip rows whose primary key is live. Default: refuse the insert (S25).
            orderBy: with ``deduplicate``: take the first of the source rows with equal key and watermark, in this order, given
                as for ``DataFrame.orderBy`` (S12a). Columns that only order are not inserted. ``rowsSource`` counts the taken
                rows. It costs one shuffle of the source and no job.

        Raises:
            InvalidMergeError: ``orderBy`` without ``deduplicate``, or ``orderBy`` does not name columns.

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
            raise errors.InvalidMergeError(
                "insert(): orderBy says which row deduplicate=True takes; without it, no row is left out."
            )
        if not deduplicate:
            return builder.insert(self.merge(source, "1 = 0"))
        return builder.insert(deduplicated(self.merge(source), self._snapshot().definition, orderBy))

    def updateWhere(self, condition: str | Column | None, map: ExpressionMap) -> MergeBuilder:
        """Update the live rows for which a condition is true; all live rows if it is None (S22).

        Example:
            >>> orders.updateWhere("amount > 9", {"amount": "amount * 2"}).execute().rowsUpdated
            1
        """
        return builder.update_where(self._builder(None), condition, map)

    def deleteWhere(self, condition: str | Column) -> MergeBuilder:
        """Delete the live rows for which a condition is true (S9); ``deleteWhere("true")`` deletes all.

        Raises:
            InvalidMergeError: the condition is None: a filter that is None by accident would empty the table.

        Example:
            >>> orders.deleteWhere("amount < 6").execute().rowsDeleted
            1
        """
        return builder.delete_where(self._builder(None), condition)

    # Feeds ----------------------------------------------------------------------------------------------------------

    def applyChanges(
        self,
        source: DataFrame | Feed,
        sequenceBy: str | Column | Sequence[str | Column] | None = None,
        applyAsDeletes: str | Column | None = None,
        applyAsTruncates: str | Column | None = None,
        columns: Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        ignoreNullUpdates: bool | Iterable[str] = False,
        unchanged: str | Column | None = None,
        columnsToUpdate: str | Column | None = None,
        movedFrom: str | Column | Sequence[str | Column] | None = None,
    ) -> MergeBuilder:
        """Apply change events in any order (H9): as SCD type 1, or as type 2 on a table with history.

        Events are ordered by ``sequenceBy``. Late and duplicate events are ignored, and deletes leave a tombstone so that earlier
        events cannot restore the row. Two different events of one key with an equal sequence are refused (S12).

        An event replaces the whole row of its key, unless it leaves columns unchanged: ``unchanged``, ``columnsToUpdate`` or
        ``ignoreNullUpdates``. Then each column has the value of the last event that sets it, by sequence, even if that event
        arrives late (U1). A delete sets all columns to null.

        The merge appends without reading the table, with these exceptions. It looks up the keys of events that leave columns
        unchanged, and of events that may be older than stored rows which do (U3). With ``applyAsTruncates`` or ``movedFrom``, the
        source is evaluated when the merge is built. A truncate is an entry of the log: the table is read only if a batch has
        older and fresher rows, or with history (T2).

        Args:
            source: one event per row, with the columns of the table. Other columns are left out, with a warning, or added by
                ``withSchemaEvolution()``. Or a :class:`~trinitymerge.feeds.Feed`, which gives all other arguments but
                ``columns`` and ``exceptColumns``.
            sequenceBy: the order of events: SQL text or a Column over the source, or one for each watermark column. Default: the
                source columns with the names of the watermark columns. It must not be null.
            applyAsDeletes: boolean SQL text or Column over the source: true for events that delete their key. Such an event needs
                only key and sequence.
            applyAsTruncates: boolean SQL text or Column over the source: true for events that delete all keys at their place in
                the sequence. The table remembers truncates, so an earlier event that arrives later brings no row back (T1). With
                history, it is a version that ends at the truncate. The watermark cannot be of type ``FLOAT`` or ``DOUBLE`` then.
            columns: the source columns to take; other columns of the table are null. Keys and sequence are always taken.
            exceptColumns: source columns to leave out.
            ignoreNullUpdates: true, or columns: a null leaves its column unchanged, and a null in a struct its field (U6). So no
                event can set these to null, except a delete.
            unchanged: SQL text or Column over the source, an array of names: the columns that the event leaves unchanged, such as
                those with Debezium's ``__debezium_unavailable_value``. Null or an empty array: none. Other columns are set, also
                to null. Only one of this, ``columnsToUpdate`` and ``ignoreNullUpdates`` can be given.
            columnsToUpdate: the same for the columns that the event sets; null: all. Keys and the sequence are always set.
            movedFrom: SQL text or Column over the source, one for each key column: the key that the event's row had before, if it
                has changed. Null: it has not. The old key is deleted at the event's place in the sequence, and columns that the
                event leaves unchanged keep the values that they had under it (U7).

        Returns:
            A merge to be executed. It takes ``withTransaction``, ``withSchemaEvolution``, ``onStale`` and ``maxDeleteFraction``.

        Raises:
            InvalidMergeError: an argument has the wrong type. When the merge is built: the table has no watermark, or the
                source lacks a column. When it runs: an event leaves a column unchanged that does not exist, or is a key.
            UnsupportedStorageError: an Iceberg table is to be truncated, or events leave columns of one unchanged.

        Example:
            >>> events = spark.sql("SELECT * FROM VALUES ('1', 8.0, timestamp'2024-02-01', 'U'), "
            ...                    "('2', null, timestamp'2024-02-02', 'D') AS t(order_id, amount, ts, op)")
            >>> orders.applyChanges(events, applyAsDeletes="op = 'D'").execute().rowsAppended
            2
            >>> orders.toDF().select("order_id", "amount").collect()
            [Row(order_id='1', amount=Decimal('8.00'))]
            >>> event = spark.sql("SELECT '1' AS order_id, 9.0 AS amount, timestamp'2024-01-15' AS ts, array('amount') AS toast")
            >>> orders.applyChanges(event, unchanged="toast").execute().rowsStale
            1
        """
        if isinstance(source, Feed):
            _arguments.check_source(self._store.spark, source.frame, self.path)
            given = (
                sequenceBy,
                applyAsDeletes,
                applyAsTruncates,
                ignoreNullUpdates,
                unchanged,
                columnsToUpdate,
                movedFrom,
            )
            _arguments.check_feed(given)
            return self._builder(
                None, derive=partial(merge_of_feed, source, columns, exceptColumns), call=CALL, is_sequenced=True
            )
        source = _arguments.check_source(self._store.spark, source, self.path)
        unset = (ignoreNullUpdates, unchanged, columnsToUpdate, movedFrom)
        feed = ChangeFeed.of(sequenceBy, applyAsDeletes, applyAsTruncates, columns, exceptColumns, *unset)
        return self._builder(None, derive=partial(merge_of_events, source, feed), call=CALL, is_sequenced=True)

    def snapshot(self, source: DataFrame, at: Any, missing: str = "delete") -> MergeBuilder:
        """Make the table equal to a full extract of the data as of a moment (H11).

        New and changed rows are written, and rows that the extract lacks are deleted. Equal rows are not written: nulls and
        nested values are compared too. An extract without changes appends no rows. On a table with history, extracts may come in
        any order. A late one is compared with the rows at its moment, and the rows at the next extract stay as they were. An
        empty extract changes nothing (S37). One that is known to lack more than half of the live rows is logged as a warning;
        ``maxDeleteFraction`` refuses it.

        The merge reads the whole table and evaluates the source twice, with a quarantine once. Its result counts inserted,
        updated and deleted rows. If a table with history has rows of a later moment, it does so only with ``withCounts()`` or
        ``maxDeleteFraction``.

        Args:
            source: all rows, each key once, with the columns of the table except the watermark. Columns added to the table after
                its creation may be missing: they are not compared and keep their values.
            at: the moment, a value of the watermark column; the table must have exactly one. Text is cast to its type.
            missing: ``"delete"`` or ``"keep"`` rows that the extract lacks.

        Returns:
            A merge to be executed. It takes ``withTransaction``, ``withSchemaEvolution``, ``quarantine`` and
            ``maxDeleteFraction``. The ``rowsSource`` of its result is None without a quarantine: counting would take a job.

        Raises:
            InvalidMergeError: the table has no watermark, or several watermark columns. When the merge is built: the extract
                lacks a column, or a table without history has a later extract.
            ValueError: ``at`` or ``missing`` has another value.

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
        source = _arguments.check_source(self._store.spark, source, self.path)
        own = self._snapshot().definition
        if missing not in ("delete", "keep"):
            raise ValueError(f"missing takes 'delete' or 'keep', got {missing!r}.")
        extract = SnapshotFeed.of(self._store.spark, source, own, at, missing == "delete")
        return self._builder(None, derive=extract.merge, call=f"snapshot(at={at})")

    @with_session_settings
    def toDF(self) -> DataFrame:
        """Return the live rows, lazily, of the newest version or the version that the table was opened at (S13, S14).

        Returns:
            A DataFrame with the columns of the definition and their comments, one row per live key. All columns are nullable in
            its schema, as in every schema that Spark reads from files; ``definition.schema`` has the real nullability.

        Example:
            >>> orders.toDF().select("order_id", "amount").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00')), Row(order_id='2', amount=Decimal('9.50'))]
        """
        snapshot = self._readable_snapshot()
        with naming_storage_errors(self._store):
            return E.with_metadata(reader.live_rows(self._store, Batches.of(snapshot)), snapshot.definition)

    def changes(self, fromVersion: int, toVersion: int | None = None, net: bool = True) -> DataFrame:
        """Return the changes of the live rows between two versions (S41).

        Compactions change nothing. Rows that are equal in every column are left out. A restore shows the rows that it changed,
        and a purge the rows that it erased, as long as the files of the version before it exist.

        The result is lazy. It scans each batch of both versions once and shuffles by key. Only keys in batches that were appended
        between the versions can have changed. Up to 500,000 of their rows are broadcast to the scans, so that only rows of these
        keys are shuffled, and batches without such keys are not opened. With more rows, both versions are compared as a whole.

        Args:
            fromVersion: the version to start from, exclusive; 0 is the empty table.
            toVersion: the last version, inclusive. Default: the table's version.
            net: compare the two states, so that a key has at most one change. False compares each version that changed rows with
                the one before; it needs the files of all of them, and at most 100 versions.

        Returns:
            The columns of the definition of ``toVersion``, and

            - ``_change_type``: ``insert``, ``delete`` (with the deleted row), or ``update_preimage`` and ``update_postimage``,
              which are two rows;
            - ``_commit_version``: the commit that wrote the current row or tombstone, always after ``fromVersion``. Rows of a
              minor compaction or compaction count as the newest of its batches, and restored rows as the last restore. It is
              null for a delete without a tombstone. If only one commit can have made the changes, it is that commit;
            - ``_commit_timestamp``: of that commit;
            - ``_watermark``: the watermark of the current row or tombstone: the column, or a struct of several columns. It is
              null without a tombstone, and a null ``BIGINT`` in tables without a watermark.

        Raises:
            TableNotFoundError: the version does not exist, or a vacuum or purge has removed files that it needs.
            ValueError: a version is not a whole number from 0 up; ``fromVersion`` is after ``toVersion``; or with ``net=False``,
                more than 100 versions changed rows.
            InvalidDefinitionError: the table has a column with one of these four names.

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
        with naming_storage_errors(self._store):
            return changes(self._store, newest, fromVersion, toVersion, net)

    def changesSince(self, target: TrinityTable, appId: str) -> Increment:
        """Return the changes since the last delivery to another table, to be merged into it exactly once (S36, S41).

        The position is a transaction marker of the other table. The merge of the changes moves it in the same commit. So a job
        that fails and runs again neither loses nor repeats a change.

        Args:
            target: the table that the changes are merged into.
            appId: the name of this feed among the target's markers.

        Returns:
            The changes, and the transaction to merge them with. The first time, they start from the empty table.

        Raises:
            InvalidMergeError: the table was restored or purged since the last delivery, or another table has taken its place. The
                message says how to start over. Or the target is not a table of this library.
            TableNotFoundError: a vacuum has removed files of the last delivered version.

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
            raise errors.InvalidMergeError(
                f"changesSince() takes the table that the changes are merged into, got {kind_of(target)}: it must remember how far "
                "it has come. Create one, or open it with TrinityTable.forPath."
            )
        with naming_storage_errors(self._store):
            return increment(
                self._store,
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
        """Return all versions of the rows of a table with history, with their validity (H2-H5): an SCD type 2 dimension.

        A version is valid from its watermark (of several columns, the first; without a watermark, the commit time) until the next
        row of its key, or the tombstone. A late row takes its place between the others and ends the one before. A row with an
        equal watermark is a correction and replaces the other. The current versions are the rows of :meth:`toDF`.

        The result is lazy. A compacted table is scanned once, without a shuffle. Rows of pending batches are shuffled; if one of
        them may be late, so are the other rows of their keys. ``track`` shuffles all rows.

        Args:
            keys: return only versions of these keys: a DataFrame with the columns of the primary key, or a list of values.
            track: merge consecutive versions that are equal in these columns. The merged version begins with the first one and
                has the other columns of the last one. ``"*"`` means all columns but the watermark. Versions are not merged across
                a gap. Default: every stored version.
            exceptColumns: track all columns but these. Watermark columns are never tracked.
            validFrom: the name of the column with the begin of a version; null means the beginning of time. It may be the name of
                the first watermark column, which is then returned once.
            validTo: the name of the column with the exclusive end; null means "until now".
            current: the name of the boolean column that is true for current versions.
            openEnd: the value of ``validTo`` in current versions, instead of null; for example ``"9999-12-31"``.
            emptyIntervals: also return versions that begin and end at the same instant, because only later columns of their
                watermarks differ.

        Returns:
            The columns of the definition and these three.

        Raises:
            InvalidDefinitionError: the table has no history, or has a column with one of these names.
            SchemaMismatchError, NullKeyError: ``keys`` are not keys of the table.
            ValueError: ``openEnd`` has another type, or a tracked column does not exist or is a watermark.

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
        with naming_storage_errors(self._store):
            snapshot = self._readable_snapshot()
            return E.with_metadata(versions(self._store, snapshot, keys, shown), snapshot.definition)

    def asOf(self, moment: Any) -> DataFrame:
        """Return the rows of a table with history that were valid at a moment of the data's time, as known now (H5).

        For the rows that were *known* at some time, open the table as of that time. Both together,
        ``TrinityTable.forPath(spark, path, timestampAsOf=known).asOf(valid)``, is a bitemporal read.

        Args:
            moment: a value of the first watermark column; without a watermark, a time. Text without an offset is in the session's
                time zone.

        Returns:
            The columns of the definition, one row per key that was live then.

        Raises:
            InvalidDefinitionError: the table has no history.
            ValueError: ``moment`` has another type.

        Example:
            >>> cities = TrinityTable.create(spark, f"{tmp_path}/cities2", "name STRING, city STRING, day INT",
            ...     primaryKey="name", watermarkKey="day", history=True)
            >>> for city, day in [("Rome", 1), ("Oslo", 9)]:
            ...     _ = cities.upsert(spark.sql(f"SELECT 'ann' AS name, '{city}' AS city, {day} AS day")).execute()
            >>> cities.asOf(5).collect()
            [Row(name='ann', city='Rome', day=1)]
        """
        with naming_storage_errors(self._store):
            snapshot = self._readable_snapshot()
            return E.with_metadata(as_of(self._store, snapshot, moment), snapshot.definition)

    def _readable_snapshot(self) -> Snapshot:
        """Return the version to read, whose files are there."""
        snapshot = self._snapshot()
        if self._pinned is not None:
            require_files(self._store, snapshot)
        return snapshot

    def why(self, key: Any) -> DataFrame:
        """Return every stored row of one key, the current one first, each with the reason why it won or lost (S42).

        Rows that a compaction has dropped are no longer stored; an earlier version (``forPath(versionAsOf=...)``) may still have
        them. Only the rows of the key are read from each batch.

        Args:
            key: a value; a tuple, dict or Row if the primary key has several columns.

        Returns:
            The columns of the definition, and

            - ``_batch``: the id of the batch, which is part of the name of its directory;
            - ``_commit_version``, ``_commit_timestamp``: the commit that the row counts as: its own, or in a compacted batch the
              newest of the batches that were compacted (in a table with history, its own);
            - ``_watermark``: as in :meth:`changes`;
            - ``_tombstone``: true if the row deletes the key;
            - ``_why``: such as ``current: the largest watermark``, ``deleted: a tombstone with the largest watermark``,
              ``lost: watermark 3 is smaller than 5``, or ``lost: equal watermark, committed earlier (version 4 before 7)``.

            No rows if the key was never written, or is no longer stored.

        Raises:
            SchemaMismatchError, NullKeyError: the value is not a key of the table.
            TableNotFoundError: the files of the version that the table was opened at are gone.
            InvalidDefinitionError: the table has a column with one of these six names.

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
        with naming_storage_errors(self._store):
            snapshot = self._readable_snapshot()
            return E.with_metadata(why(require_managed(self._store, "why()"), snapshot, key), snapshot.definition)

    # Without this library ----------------------------------------------------------------------------------------------

    def sqlFor(self, dialect: str, files: str | None = None) -> str:
        """Return a query that reads the live rows in another engine, from the table's files (S13).

        The query reads the newest version, or the version that the table was opened at. It does not see later commits, and fails
        after ``vacuum()`` or ``purge()`` has deleted its files. So make a new query for each use. The call lists files and runs
        no Spark job.

        Args:
            dialect: ``"duckdb"``, ``"polars"``, ``"spark"`` (without this library) or ``"trino"``.
            files: for Trino, the name of a Hive connector table over the table's ``data`` directory, partitioned by
                ``_tm_batch``; see ``docs/reading-from-elsewhere.md``.

        Returns:
            The query as text, with the columns of the definition.

        Raises:
            ValueError: the dialect is unknown, or ``files`` is missing, superfluous or not a table name.
            UnsupportedStorageError: the engine cannot read the format, a path or a column correctly. Use :meth:`export`.
            TableNotFoundError: the files of the version that the table was opened at are gone.
            CorruptTableError: a file of the table is missing.

        Example:
            >>> import duckdb
            >>> duckdb.sql(orders.sqlFor("duckdb")).project("order_id, amount").order("order_id").fetchall()
            [('1', Decimal('5.00')), ('2', Decimal('9.50'))]
        """
        return sql_for(require_managed(self._store, "sqlFor()"), self._readable_snapshot(), dialect, files)

    def export(self, path: str) -> ExportResult:
        """Write the live rows into a new directory, as plain Parquet files (S13).

        The complete directory gets its name by a rename. Object stores move files one by one: there, wait for the call to return.
        The directory holds only data files. Intervals become whole numbers of microseconds or months, and variants become JSON
        text, because other engines cannot read them.

        Args:
            path: a directory that does not exist.

        Returns:
            The path, version, rows and size.

        Raises:
            TableExistsError: the path exists.
            TableNotFoundError: the files of the version that the table was opened at are gone.
            StorageError: the rows could not be read or written; nothing is left at the path.

        Example:
            >>> result = orders.export(f"{tmp_path}/plain")
            >>> result.version, result.rows
            (1, 2)
            >>> spark.read.parquet(result.path).columns
            ['order_id', 'amount', 'ts']
        """
        with naming_storage_errors(self._store):
            return export(require_managed(self._store, "export()"), self._readable_snapshot(), path)

    def compact(self, full: bool = False, dryRun: bool = False) -> CompactionResult:
        """Rewrite pending batches and the changed part of the base, so that reads resolve little or nothing (S38).

        The base of a large table consists of segments of neighbouring keys. Segments with few changes stay as they are, and their
        changes become one small batch beside them (S38b). So a compaction costs what has changed.

        A compaction never changes the rows that readers see. Concurrent merges keep their rows. The compaction gives way to a
        concurrent compaction, restore, purge or alteration. Tombstones of a table with a watermark are kept for
        ``trinitymerge.tombstoneRetentionHours`` after their commit; without a watermark they are dropped. Old files stay until
        ``vacuum()``.

        An Iceberg table becomes one base as a whole. There, any concurrent commit makes the compaction start again, three times
        at most (S16).

        Args:
            full: rewrite every segment.
            dryRun: only return what would be rewritten.

        Returns:
            The result, or why a compaction was not worth it.

        Raises:
            ReadOnlyTableError: the table was opened at a past version.

        Example:
            >>> orders.delete(spark.sql("SELECT '1' AS order_id")).execute().batches
            2
            >>> result = orders.compact()
            >>> result.batches, result.rows, result.rowsRemoved
            (2, 2, 1)
            >>> print(orders.compact(dryRun=True))
            version 3: nothing compacted, there is one base and nothing else
        """
        store = self._require_writable()
        if dryRun:
            return compaction.preview(store, full)
        deliver_outbox.deliver_pending(store)
        return compaction.compact(store, full)

    def vacuum(self, retentionHours: float = 168, dryRun: bool = False) -> list[str]:
        """Delete files that no version of the last ``retentionHours`` needs, and leftovers of failed writers (S39).

        Older versions can then no longer be read. Log entries stay.

        Args:
            retentionHours: must exceed the duration of the longest merge, compaction or read: a write in progress is safe only
                because its files are younger.
            dryRun: delete nothing.

        Returns:
            The paths that were deleted, or would be.

        Raises:
            ReadOnlyTableError: the table was opened at a past version.
            ValueError: ``retentionHours`` is not a number from 0 up.

        Example:
            >>> orders.vacuum(dryRun=True)
            []
        """
        return vacuum.vacuum(self._require_managed("vacuum()"), retentionHours, dryRun)

    def restore(self, version: int) -> RestoreResult:
        """Commit a new version that equals an old one (S40). Transaction markers stay.

        Args:
            version: whose files have not been vacuumed.

        Returns:
            The new version, and the batches added and removed.

        Raises:
            TableNotFoundError: the version does not exist, or its files are gone; nothing was changed.
            ConcurrentCommitError: other writers committed first in each attempt; nothing was changed.
            ReadOnlyTableError: the table was opened at a past version.

        Example:
            >>> orders.deleteWhere("true").execute().rowsDeleted
            2
            >>> orders.restore(1).version, orders.toDF().count()
            (3, 2)
        """
        return vacuum.restore(self._after_outbox("restore()"), version)

    def purge(self, keys: DataFrame | Iterable[Any]) -> PurgeResult:
        """Erase keys: every stored row of them, from all files, including history (for a legal erasure).

        Files with one of the keys are rewritten without it and deleted at once. **Past versions that need a deleted file can no
        longer be read.** The log keeps a salted hash of each key. Later merges skip rows of purged keys and count them as
        ``rowsPurged``, so a replayed event cannot restore a key. Log entries stay: they hold no rows, and merge conditions
        without their values (S36b).

        A purged key cannot come back into this table. To allow it again, create a new table from the live rows:
        ``TrinityTable.convert(spark, table.toDF(), path, primaryKey=...)``.

        Args:
            keys: a DataFrame with the columns of the primary key, or a list of values (tuples or dicts for a key of several
                columns); at most 100,000.

        Returns:
            The numbers of rows and files removed, verified by a second scan of all files.

        Raises:
            SchemaMismatchError, NullKeyError: the keys are not keys of this table; nothing was changed.
            CorruptTableError: a file is missing; or the second scan found a key that another writer has just written. Call it
                again.
            ReadOnlyTableError: the table was opened at a past version.

        Example:
            >>> result = orders.purge(["1"])
            >>> result.rowsRemoved, orders.toDF().count()
            (1, 1)
            >>> orders.upsert(spark.sql("SELECT '1' AS order_id, 1 AS amount, current_timestamp() AS ts")).execute().rowsPurged
            1
        """
        return purge.purge(self._require_managed("purge()"), keys, lambda: self._after_outbox("purge()"))

    def purgeWhere(self, condition: str | Column) -> PurgeResult:
        """Erase every key with *any* stored row that matches a condition, as :meth:`purge` does.

        The search covers all files of the table: past versions, archives, tombstones and leftovers of failed writers. So a key is
        erased even if only an earlier row of it matches. The search is repeated until it finds nothing, so it covers concurrent
        writes too.

        Rows are matched as they are stored. A tombstone has only its key and watermark. Rows that a compaction has dropped and a
        vacuum has deleted no longer exist. The condition is not written to the log.

        Args:
            condition: boolean SQL text or Column over the table's columns; null is not true. It may match at most 100,000 keys.

        Returns:
            The numbers of keys found, and of rows and files removed. Without a match, nothing is committed.

        Raises:
            InvalidMergeError: the condition is None, not boolean, not deterministic, or cannot be evaluated.
            ValueError: the condition matches too many keys.
            ConcurrentCommitError: matching rows are written faster than they can be erased.
            CorruptTableError: as for :meth:`purge`.
            ReadOnlyTableError: the table was opened at a past version.

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
        """Begin an alteration: of columns, constraints, properties, the comment, or history.

        Raises:
            ReadOnlyTableError: the table was opened at a past version.

        Example:
            >>> orders.alter().setHistory().execute().changes
            ('versions are kept',)
            >>> orders.versions().select("order_id", "amount", "validTo").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00'), validTo=None), Row(order_id='2', amount=Decimal('9.50'), validTo=None)]
        """
        return TableAlteration(self._after_outbox("alter()"))

    def discardPendingHistoryInserts(self) -> tuple[dict[str, Any], ...]:
        """Discard history inserts that cannot be delivered (S27), so that this table can be written again.

        Use it if a table named by ``insertHistoryExpr`` was dropped, or can no longer take the rows. Rows that can be delivered
        are delivered first. The discarded rows stay in their directories until ``vacuum()``.

        Returns:
            For each discarded batch: the other table, the number of rows, and the id of the batch, which names its directory.

        Raises:
            ReadOnlyTableError: the table was opened at a past version.

        Example:
            >>> orders.discardPendingHistoryInserts()
            ()
        """
        return deliver_outbox.discard_pending(self._require_writable())

    def health(self) -> TableHealth:
        """Return the state of the table and the one thing to do next; reads the table to count its live rows.

        Example:
            >>> print(orders.health())
            version             1
            live rows           2
            ...
        """
        with naming_storage_errors(self._store):
            return health.health(require_managed(self._store, "health()"), self._snapshot())

    def report(self, path: str, keys: bool = False, scan: bool = False) -> str:
        """Write a report of the table as one HTML page, from its log; no job runs unless ``scan`` asks for it.

        The page shows the work of a read, the history of the table, durations and the definition. It loads no other file.

        Args:
            path: of the page, on this machine; an existing file is replaced.
            keys: also show the watermarks of batches, which are values of rows, and with ``scan`` keys of which many rows are
                stored. Default: no values of rows are shown.
            scan: also count the live rows and the rows that are stored of each key: one read, and a scan of all keys.

        Returns:
            The path.

        Raises:
            UnsupportedStorageError: ``scan`` needs a table that this library manages.
            OSError: the file cannot be written.

        Example:
            >>> from pathlib import Path
            >>> page = orders.report(f"{tmp_path}/orders.html")
            >>> "<h1>Table orders</h1>" in Path(page).read_text()
            True
        """
        snapshot = self._snapshot()
        commits = [c for c in reversed(self._store.history()) if c.version <= snapshot.version]
        stored = health.stored_keys(require_managed(self._store, "report(scan=True)"), snapshot) if scan else None
        Path(path).write_text(table_report(self.path, snapshot, commits, keys, stored), "utf-8")
        return path

    def clone(self, path: str) -> Self:
        """Copy the table to another path (S40a).

        The clone has the definition, all batches with their tombstones and archives, purged keys, the markers of transactions and
        streams, and the extracts. So late rows, row versions and feeds behave as in the original. A copy of :meth:`toDF` would
        restore deleted keys with the next late row. The clone begins at the version of the original; past versions and commits
        are not copied.

        Files are copied, never shared, so the two tables are independent. If the process dies during the copy, no table is
        created and the call can be retried. If the table was opened at a past version, that version is copied. Keys purged since
        then stay purged.

        Args:
            path: a path that does not exist or is an empty directory, on any filesystem Spark reaches.

        Returns:
            The clone, which can be written to.

        Raises:
            TableExistsError: the path holds a table or something else.
            TableNotFoundError: files of the past version are gone.
            CorruptTableError: a file is missing.
            ConcurrentCommitError: compactions with vacuums, or purges, interrupted each attempt; nothing is left of the clone.

        Example:
            >>> copy = orders.clone(f"{tmp_path}/orders-copy")
            >>> copy.version, copy.deleteWhere("true").execute().rowsDeleted, orders.toDF().count()
            (1, 2, 2)
        """
        source = require_managed(self._store, "clone()")
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
        clusterBy: str | Iterable[str] | None = None,
    ) -> Self:
        """Create a table from existing rows, written as one base batch in one job (S7b).

        The table has the columns of the source. Each key must be unique. Rows may be tombstones, which keep older rows from
        coming back. For rows with several versions per key, create the table and merge them, or convert an external table over
        them, which takes the freshest row of each key.

        Args:
            spark: the session.
            source: a DataFrame, the path of a directory of Parquet files, or an external table; it is not changed.
            path: of the new table, as for :meth:`create`.
            primaryKey: as for :meth:`create`. An external table has its keys already.
            watermarkKey: as for :meth:`create`.
            tombstoneKey: as for :meth:`create`.
            tombstoneStringValue: as for :meth:`create`.
            fileFormat: of the new table, independent of the source.
            properties: as for :meth:`create`.
            comment: as for :meth:`create`.
            history: as for :meth:`create`; each row is the first version of its key.
            clusterBy: as for :meth:`create`.

        Returns:
            The table, at version 1; at version 0 if the source has no rows.

        Raises:
            NullKeyError: rows have a null in the key; nothing is left at the path.
            DuplicateKeyError: rows have equal keys; nothing is left at the path.
            InvalidDefinitionError: keys, columns and format do not fit together; or keys are given for an external table.
            InvalidMergeError: the source has another type, cannot be evaluated, or is external with a null in a key.
            StorageError: the source's path has no Parquet files, or they cannot be read.
            TableExistsError: the path holds a table or something else.

        Example:
            >>> spark.sql("SELECT * FROM VALUES (1, 'Rome'), (2, 'Oslo') AS t(id, city)").write.parquet(f"{tmp_path}/cities-files")
            >>> t = TrinityTable.convert(spark, f"{tmp_path}/cities-files", f"{tmp_path}/converted", primaryKey="id")
            >>> t.version, t.upsert(spark.sql("SELECT 2 AS id, 'Bonn' AS city")).execute().version, t.toDF().count()
            (1, 2, 2)
        """
        origin: dict[str, Any] = {"source": source} if isinstance(source, str) else {}
        keys: tuple[Any, ...] = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        if isinstance(source, ExternalTable):
            keys, rows = source._converted(*keys)
        else:
            rows = _files(spark, source) if isinstance(source, str) else source
        rows = _arguments.check_source(spark, rows, path)
        schema, table = _arguments.declaring_nothing(rows.schema), cls(open_store(spark, path))
        definition = _arguments.definition_of(
            spark, schema, *keys, fileFormat, properties, comment, history, clusterBy=clusterBy
        )
        origin["sourceColumns"] = rows.columns
        convert.convert(table._require_managed("convert()"), rows, definition, origin)
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
        """Create a table with history from an existing SCD type 2 dimension (H12): each row becomes a version.

        The table has the columns of the source without ``validTo``, which follows from the rows. Its watermark is ``validFrom``.
        Leave out columns that mark current rows. ``versions(validFrom=..., validTo=..., openEnd=...)`` of the table, with the
        same names, returns the source. Empty intervals are left out, with a warning.

        Args:
            spark: the session.
            path: of the new table, as for :meth:`create`.
            source: the dimension; evaluated once.
            primaryKey: the key of the versioned rows, without the interval.
            validFrom: the column with the begin of each interval; null means the beginning of time.
            validTo: the column with the exclusive end; null means "until now".
            openEnd: another value of ``validTo`` that means "until now", such as ``"9999-12-31"``.
            endInclusive: ``validTo`` is the last moment of the interval; it ends at the next whole number, last decimal place,
                day or microsecond.
            fileFormat: as for :meth:`create`.
            properties: as for :meth:`create`.
            comment: as for :meth:`create`.

        Raises:
            InvalidMergeError: the source lacks a column, an interval ends before it begins, or an inclusive end has a type without
                a next value.
            NullKeyError: a key has a null.
            DuplicateKeyError: intervals of a key overlap.
            TableExistsError: the path holds a table or something else.
            StorageError: the rows cannot be written. The table is left without rows: delete its directory before the next call.

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
        schema, of_rows = _arguments.declaring_nothing(found.schema), (found.key, found.begin, None, None)
        definition = _arguments.definition_of(spark, schema, *of_rows, fileFormat, properties, comment, True)
        table = cls(open_store(spark, path))
        table._store.create(definition, current_user())
        merge = table.applyChanges(events, applyAsDeletes=E.quote(flag))
        merge._of_call(call="fromIntervals()", is_sequenced=False).execute()  # a null is from the beginning
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
        """Return a read-only table over row versions that another program wrote, in any order (S15, S16).

        It can be read, be the source of merges and SQL statements, and become a managed table with :meth:`convert`. Nothing is
        copied or written.

        Args:
            source: a DataFrame of row versions; or the name of a table or view in the session's catalog. A name is looked up in
                each call, so that new rows are seen.
            primaryKey: as for :meth:`create`.
            watermarkKey: as for :meth:`create`. Without it, the rows of a key are equally fresh, and their contents decide.
            tombstoneKey: as for :meth:`create`. Without it, no row is a tombstone.
            tombstoneStringValue: as for :meth:`create`.
            spark: the session whose catalog has the name. Default: the active session. A DataFrame is read in its own session.

        Raises:
            TableNotFoundError: the catalog does not have the name.
            InvalidDefinitionError: keys and columns do not fit together, column names clash or begin with ``_tm_``, or the rows
                are a stream.

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
        """The location of the table, with its scheme."""
        return self._store.path

    def _snapshot(self) -> Snapshot:
        return self._store.snapshot() if self._pinned is None else self._store.snapshot_at(self._pinned)

    def _require_managed(self, call: str) -> ManagedStore:
        return require_managed(self._require_writable(), call)

    def _require_writable(self) -> TableStore:
        if self._pinned is not None:
            raise errors.ReadOnlyTableError(
                f"{self.path} was opened at version {self._pinned}, and past versions are read only. Open it without "
                "versionAsOf or timestampAsOf to write.",
                path=self.path,
            )
        if not supports_writes(self._store.spark):
            raise errors.ReadOnlyTableError(
                f"{self.path} can only be read in this session: Spark Connect of PySpark 3.5 cannot evaluate a source once "
                "and hand over what a write observes. Use PySpark 4.0 or newer, or a classic session, to write.",
                path=self.path,
            )
        return self._store

    def _after_outbox(self, call: str) -> ManagedStore:
        """Deliver outbox rows (S27), and return the store."""
        store = self._require_managed(call)
        deliver_outbox.deliver_pending(store)
        return store


def _opened(address: str, alias: str, spark: SparkSession) -> TrinityTable:
    """Open a table in another session, by its address: unlike a session, text can be sent to another process."""
    return TrinityTable(open_store(spark, address), alias=alias)
