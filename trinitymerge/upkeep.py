"""Keeping a table small, fast and healthy: the calls for its upkeep, which a ``TrinityTable`` inherits.

Owns: the names of these calls. Holds no logic of its own: what they do stands in :mod:`trinitymerge.maintenance`, and whether the
table's store is made for it in :mod:`trinitymerge.storage.stores`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame

from trinitymerge import paying
from trinitymerge.maintenance import compacting, health, purge, purgewhere, retention
from trinitymerge.maintenance.altering import TableAlteration
from trinitymerge.maintenance.compaction import CompactionResult
from trinitymerge.maintenance.health import TableHealth
from trinitymerge.maintenance.purge import PurgeResult
from trinitymerge.maintenance.retention import RestoreResult
from trinitymerge.opened import OpenedTable
from trinitymerge.storage.stores import maintained, replacing
from trinitymerge.storage.vanished import naming_vacuums


@attrs.frozen(eq=False, repr=False)
class TableWithUpkeep(OpenedTable):
    """A stored table that can be looked after."""

    def compact(self, full: bool = False) -> CompactionResult:
        """Rewrites the live rows into one base, sorted by primary key, so that reads have little or nothing to resolve (S38).

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
        store = replacing(self._writable(), "compact()")
        paying.pay(store)
        return compacting.compact_as_allowed(store, full)

    def vacuum(self, retentionHours: float = 168, dryRun: bool = False) -> list[str]:
        """Removes files that no version of the last ``retentionHours`` needs, and what dead writers left behind (S39).

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
        return retention.vacuum(self._maintained("vacuum()"), retentionHours, dryRun)

    def restore(self, version: int) -> RestoreResult:
        """Commits a new version that equals an old one (S40). Later merges go on top; transaction markers stay.

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
        return retention.restore(self._finished("restore()"), version)

    def purge(self, keys: DataFrame | Iterable[Any]) -> PurgeResult:
        """Erases keys: every stored version of them, from all files, history included (a legal erasure).

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
        return purge.purge(self._maintained("purge()"), keys, lambda: self._finished("purge()", patience_ms=0))

    def purgeWhere(self, condition: str | Column) -> PurgeResult:
        """Erases every key of which *any* stored row fulfils a condition, as :meth:`purge` does: requests name people, not keys.

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
        finish = partial(self._finished, "purgeWhere()", patience_ms=0)
        return purgewhere.purge_where(self._maintained("purgeWhere()"), condition, self._alias, finish)

    def alter(self) -> TableAlteration:
        """Begins to change the table's definition: columns, constraints, properties, the comment, and whether versions are kept.

        Raises:
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.alter().setHistory().execute().changes
            ('versions are kept',)
            >>> orders.versions().select("order_id", "amount", "validTo").orderBy("order_id").collect()
            [Row(order_id='1', amount=Decimal('5.00'), validTo=None), Row(order_id='2', amount=Decimal('9.50'), validTo=None)]
        """
        return TableAlteration(self._finished("alter()"))

    def abandonRedo(self) -> tuple[dict[str, Any], ...]:
        """Gives up rows that cannot be written into the tables they are for (S27), so that this table can be written again.

        For a table that ``insertHistoryExpr`` has named and that is gone since, or has changed so that it cannot take them. What
        can be written is. The rows stay in their directories until ``vacuum()``.

        Returns:
            For each table: what it is called, how many rows it does not get, and their batch, by which their directory is found.

        Raises:
            ReadOnlyTableError: this is a past version.

        Example:
            >>> orders.abandonRedo()
            ()
        """
        return paying.abandon(self._writable())

    def health(self) -> TableHealth:
        """How the table is doing, and the one thing to do next; counts the live rows by reading the table.

        Example:
            >>> print(orders.health())
            version             1
            live rows           2
            ...
        """
        with naming_vacuums(self._backend):
            return health.health(maintained(self._backend, "health()"), self._snapshot())
