"""Tables made of what exists already: the calls ``clone``, ``convert``, ``fromIntervals`` and ``external``, which a table inherits.

Owns: the names of these calls, and where the rows of a source come from. How a table is copied stands in
:mod:`trinitymerge.maintenance.cloning`, how rows become one in :mod:`trinitymerge.maintenance.converting`, and how they are read
where they are in :mod:`trinitymerge.external`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs
from pyspark.sql import DataFrame, SparkSession

from trinitymerge import opening
from trinitymerge.errors import InvalidMergeError, UnsupportedStorageError
from trinitymerge.expressions import quote
from trinitymerge.external import ExternalTable
from trinitymerge.feeding import FedTable
from trinitymerge.maintenance import cloning, converting
from trinitymerge.merge.feeds.intervals import Intervals
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.storage.entries import current_user
from trinitymerge.storage.stores import maintained, store_of

_Table = TypeVar("_Table", bound="CopiedTable")


@attrs.frozen(eq=False, repr=False)
class CopiedTable(FedTable):
    """A stored table that can be copied, or be made of rows that exist."""

    def clone(self: _Table, path: str) -> _Table:
        """Copies the table, as it is at its version, to a path of its own (S40a).

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
        target = maintained(store_of(self._backend.spark, path), "clone()")
        cloning.clone(maintained(self._backend, "clone()"), self._pinned, target)
        return type(self)(target)

    @classmethod
    def convert(
        cls: type[_Table],
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
    ) -> _Table:
        """Makes a table of rows that exist (S7b): all of them become one base batch, written in one job.

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
        rows = opening.check_source(spark, rows, path)
        definition = opening.definition_of(
            spark,
            opening.declaring_nothing(rows.schema),
            *keys,
            fileFormat,
            properties,
            comment,
            history,
        )
        table = cls(store_of(spark, path))
        converting.convert(table._maintained("convert()"), rows, definition, {**origin, "sourceColumns": rows.columns})
        return table

    @classmethod
    def fromIntervals(
        cls: type[_Table],
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
    ) -> _Table:
        """Makes a table with history of an existing dimension of type 2 (H12): each row becomes a version.

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
        source = opening.check_source(spark, source, path)
        with held(spark, LITERAL_NAMES):
            found = Intervals.of(source, keys, validFrom, validTo, openEnd, endInclusive)
            events, flag = found.events()
        definition = opening.definition_of(
            spark,
            opening.declaring_nothing(found.schema),
            found.key,
            found.begin,
            None,
            None,
            fileFormat,
            properties,
            comment,
            True,
        )
        table = cls(store_of(spark, path))
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
        """A read-only table over rows that this library did not write (S15, S16): row versions, in any order.

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


def _files(spark: SparkSession, path: str) -> DataFrame:
    """The rows of Parquet files that are no table of this library.

    Raises:
        InvalidMergeError: they are.
    """
    with contextlib.suppress(UnsupportedStorageError):  # it can be read all the same
        if store_of(spark, path).exists():
            raise InvalidMergeError(
                f"{path} is a table of this library: its files hold rows that were replaced or deleted, too. Copy it with "
                "TrinityTable.forPath(spark, source).clone(path)."
            )
    return opening.parquet_files(spark, path)
