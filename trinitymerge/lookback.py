"""Reading and looking back: the calls that tell what a table holds and what happened to it, which a ``TrinityTable`` inherits.

Owns: the names of these calls. Holds no logic of its own: rows are resolved in :mod:`trinitymerge.reader`, and what happened to
them is told in :mod:`trinitymerge.history`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.elsewhere.asking import sql_for
from trinitymerge.elsewhere.exporting import ExportResult, export
from trinitymerge.errors import InvalidMergeError, kind_of
from trinitymerge.history.changes import changes
from trinitymerge.history.explanation import why
from trinitymerge.history.increments import Increment, increment
from trinitymerge.history.versions import Shown, as_of, versions
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.storage.backend import Batches
from trinitymerge.storage.entries import Snapshot
from trinitymerge.storage.past import require_files
from trinitymerge.storage.stores import maintained, time_travel
from trinitymerge.storage.vanished import naming_vacuums
from trinitymerge.upkeep import TableWithUpkeep


@attrs.frozen(eq=False, repr=False)
class TableWithAPast(TableWithUpkeep):
    """A stored table that can be read, and asked what happened to it."""

    def toDF(self) -> DataFrame:
        """The live rows, resolved lazily and pinned to the version the table has now (S13, S14).

        Returns:
            A DataFrame with the columns of the definition and their comments, one row per live key. Its schema says that every
            column may be null, as Spark says of whatever it reads from files; which may not stands in ``definition.schema``.

        Example:
            >>> orders.toDF().select("order_id", "amount").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00')), Row(order_id='2', amount=Decimal('9.50'))]
        """
        snapshot = self._readable()
        with held(self._backend.spark, LITERAL_NAMES), naming_vacuums(self._backend):
            return reader.with_comments(reader.live(self._backend, Batches.of(snapshot)), snapshot.definition)

    def changes(self, fromVersion: int, toVersion: int | None = None, net: bool = True) -> DataFrame:
        """What happened to the live rows after one version, up to another (S41).

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
        with naming_vacuums(self._backend):
            return changes(time_travel(self._backend, "changes()"), newest, fromVersion, toVersion, net)

    def changesSince(self, target: TableWithAPast, appId: str) -> Increment:
        """What has changed since another table was told: increments for merges into it, each exactly once (S36, S41).

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
        if not isinstance(target, TableWithUpkeep):
            raise InvalidMergeError(
                f"changesSince() takes the table that the changes are merged into, got {kind_of(target)}: it must remember how far "
                "it has come. Create one, or open it with TrinityTable.forPath."
            )
        with naming_vacuums(self._backend):
            return increment(
                time_travel(self._backend, "changesSince()"), self._readable().version, target._snapshot(), appId
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
        shown = Shown(tracked, _names(exceptColumns), validFrom, validTo, current, openEnd, emptyIntervals)
        with naming_vacuums(self._backend):
            return versions(time_travel(self._backend, "versions()"), self._readable(), keys, shown)

    def asOf(self, moment: Any) -> DataFrame:
        """The rows of a table with history that were valid at a moment of the data's time, as far as is known now (H5).

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
        with naming_vacuums(self._backend):
            return as_of(time_travel(self._backend, "asOf()"), self._readable(), moment)

    def _readable(self) -> Snapshot:
        """The version to read, whose files are there."""
        snapshot = self._snapshot()
        if self._pinned is not None:
            require_files(self._past(), snapshot)
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
        with naming_vacuums(self._backend):
            return why(maintained(self._backend, "why()"), self._readable(), key)

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
        return sql_for(maintained(self._backend, "sqlFor()"), self._readable(), dialect, files)

    def export(self, path: str) -> ExportResult:
        """Writes the live rows into a new directory, as plain Parquet files that anything reads (S13).

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
        with naming_vacuums(self._backend):
            return export(maintained(self._backend, "export()"), self._readable(), path)


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
