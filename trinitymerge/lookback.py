"""Reading and looking back: the calls that tell what a table holds and what happened to it, which a ``TrinityTable`` inherits.

Owns: the names of these calls. Holds no logic of its own: rows are resolved in :mod:`trinitymerge.reader`, and what happened to
them is told in :mod:`trinitymerge.history`.
"""

from __future__ import annotations

from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.history.changes import changes
from trinitymerge.history.explanation import why
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.storage.backend import Batches
from trinitymerge.storage.past import require_files
from trinitymerge.storage.stores import maintained, time_travel
from trinitymerge.upkeep import MaintainedTable


@attrs.frozen(eq=False, repr=False)
class TableWithAPast(MaintainedTable):
    """A stored table that can be read, and asked what happened to it."""

    def toDF(self) -> DataFrame:
        """The live rows, resolved lazily and pinned to the version the table has now (S13, S14).

        Returns:
            A DataFrame with the columns of the definition, one row per live key.

        Example:
            >>> orders.toDF().select("order_id", "amount").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00')), Row(order_id='2', amount=Decimal('9.50'))]
        """
        snapshot = self._snapshot()
        if self._pinned is not None:
            require_files(self._past(), snapshot)
        with held(self._backend.spark, LITERAL_NAMES):
            return reader.live(self._backend, Batches.of(snapshot))

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
        return changes(time_travel(self._backend, "changes()"), newest, fromVersion, toVersion, net)

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
              was folded or compacted, of the newest that went into it;
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
        snapshot = self._snapshot()
        if self._pinned is not None:
            require_files(self._past(), snapshot)
        return why(maintained(self._backend, "why()"), snapshot, key)
