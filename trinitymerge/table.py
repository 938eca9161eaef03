"""The front door: :class:`TrinityTable`.

Owns: opening and creating tables, and the names users call. It holds no logic of its own: definitions are validated in
:mod:`trinitymerge.definition`, rows are resolved in :mod:`trinitymerge.reader`, merges are built in
:mod:`trinitymerge.merge`; the calls that make one of what exists are inherited from :mod:`trinitymerge.copying`, those that feed
a table from :mod:`trinitymerge.feeding`, those that look back from :mod:`trinitymerge.lookback`, those for maintenance from
:mod:`trinitymerge.upkeep`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge import opening
from trinitymerge.copying import CopiedTable
from trinitymerge.definition import TableDefinition
from trinitymerge.errors import TableExistsError
from trinitymerge.maintenance import streaming
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.result import MergeResult
from trinitymerge.storage.entries import current_user
from trinitymerge.storage.stores import address_of, store_of, store_of_name


@attrs.frozen(eq=False, repr=False)
class TrinityTable(CopiedTable):
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
        """Creates an empty table: a managed one at a path, or one of another format in a catalog (S1-S7, S16).

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
                ``historyRetentionHours`` (``none`` for ever), ``foldAfterBatches`` (16; ``none`` for never), ``foldBytes``
                (32 MB), ``segmentBytes`` (16 MB, more in large tables), ``maxCommitAttempts`` (20),
                ``commitBackoffSeconds`` (0.05) and ``checkpointInterval`` (50).
            comment: for people.
            history: rows that are replaced or deleted remain, as versions (H1): see :meth:`versions`.
            using: ``"iceberg"`` for a table of that format, in a catalog of Iceberg's; ``"parquet"`` or ``"orc"`` for a plain table
                in Spark's own, which promises less: see :meth:`forName`. Properties that do not start with ``trinitymerge.``
                become the table's own.

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
        definition = opening.definition_of(
            spark,
            schema,
            primaryKey,
            watermarkKey,
            tombstoneKey,
            tombstoneStringValue,
            opening.format_of(fileFormat, using),
            properties,
            comment,
            history,
        )
        store = store_of(spark, path, using)
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
        """Opens the table at the path, or creates it; the arguments are those of :meth:`create`.

        A table that is there must have these keys, this format and these columns, and may have more: columns that were added since,
        and types that became wider. Its properties and comment stay as they are.

        Raises:
            TableExistsError: a table with a different definition is there, or something else.

        Example:
            >>> a = TrinityTable.createIfNotExists(spark, f"{tmp_path}/t3", "id INT", primaryKey="id")
            >>> TrinityTable.createIfNotExists(spark, f"{tmp_path}/t3", "id INT", primaryKey="id").version
            0
        """
        definition = opening.definition_of(
            spark,
            schema,
            primaryKey,
            watermarkKey,
            tombstoneKey,
            tombstoneStringValue,
            opening.format_of(fileFormat, using),
            properties,
            comment,
            history,
        )
        store = store_of(spark, path, using)
        if not store.exists():
            try:
                store.create(definition, current_user())
            except TableExistsError:
                if not store.exists():  # something else is there; a table would be another writer's, just made
                    raise
        other = opening.difference(store.snapshot().definition, definition)
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
        """Opens a table; nothing but its path is needed (S7, S40).

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
            UnsupportedStorageError: its store keeps no past versions, and one was asked for.

        Example:
            >>> TrinityTable.forPath(spark, orders_path).definition.primaryKey
            ('order_id',)
        """
        store = store_of(spark, path)
        store.snapshot()
        return cls(store, pinned=opening.pinned(store, "forPath", versionAsOf, timestampAsOf))

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
        """Opens a table by the name its catalog has for it: one of Iceberg's, or a plain one of Parquet or ORC files (S16).

        The first time it needs the keys: the table gets four hidden columns, or five without a tombstone key, and its rows stay as
        they are. From then on the table itself says what its keys are. Each merge is a version, all or nothing.

        In a table of Iceberg's, a merge is a snapshot, and what other programs commit is a version too. A plain table (``USING
        parquet`` or ``orc`` in Spark's own catalog) promises less: nothing says when others write to it. Reads show what
        they append, overwrite or delete at once, in all versions; a merge does not notice what they do while it runs; and if they
        overwrite the whole table, the history of its merges is gone with its rows. See ``docs/plain-tables.md``, and
        ``docs/iceberg.md`` for what either kind of table can do, and what not.

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
            UnsupportedStorageError: merges into such a table are not possible.
            CorruptTableError: of a plain table: it has rows of merges, and their log is gone.
            ConcurrentCommitError: others have committed while it got its keys.
            ValueError: ``name`` is no name of a table.
        """
        store = store_of_name(spark, name)
        keys = (primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
        opening.adopted(store, *keys)
        return cls(store, pinned=opening.pinned(store, "forName", versionAsOf, timestampAsOf))

    @staticmethod
    def isTrinityTable(spark: SparkSession, path: str) -> bool:
        """True if there is a managed table at the path.

        Example:
            >>> TrinityTable.isTrinityTable(spark, f"{tmp_path}/nothing-here")
            False
        """
        return store_of(spark, path).exists()

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
        return opening.history_frame(self._backend.spark, commits)

    def detail(self) -> DataFrame:
        """What the table is and how large, as one row, from its log.

        Returns:
            Columns ``format`` (of its files), ``location``, ``description``, ``version``, ``lastModified``, ``primaryKey``,
            ``watermarkKey``, ``tombstoneKey``, ``history``, ``checks``, ``properties``, ``numBatches``, ``numFiles``,
            ``storedRows`` (replaced rows and tombstones included) and ``sizeInBytes``.

        Example:
            >>> orders.detail().select("format", "version", "primaryKey", "storedRows").collect()
            [Row(format='parquet', version=1, primaryKey=['order_id'], storedRows=2)]
        """
        return opening.detail_frame(self._backend.spark, self.path, self._snapshot())

    # Streaming ------------------------------------------------------------------------------------------------------

    def foreachBatch(
        self,
        mergeFunction: Callable[[TrinityTable, DataFrame], MergeBuilder],
        appId: str,
        onResult: Callable[[MergeResult], object] | None = None,
    ) -> Callable[[DataFrame, int], None]:
        """A function for ``DataStreamWriter.foreachBatch`` that merges each micro-batch exactly once (S36, S36a).

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
        self._writable()
        return streaming.batch_function(
            partial(_opened, address_of(self._backend), self._alias), mergeFunction, appId, onResult
        )

    # Showing --------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """One line: path, version and keys."""
        return opening.shown(self.path, self._snapshot, is_past=self._pinned is not None)


def _opened(address: str, alias: str, spark: SparkSession) -> TrinityTable:
    """A table in another session: by its address, which can be sent to another process where a session cannot."""
    return TrinityTable(store_of(spark, address), alias=alias)
