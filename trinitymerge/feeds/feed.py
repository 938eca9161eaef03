"""A feed: the messages of a source, for ``TrinityTable.applyChanges``."""

from __future__ import annotations

from typing import Protocol

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.errors import InvalidMergeError
from trinitymerge.feeds.wire import Decoder, FeedOptions
from trinitymerge.feeds.wire_rows import is_of, rows_of
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import analysis_errors


class HasDefinition(Protocol):
    @property
    def definition(self) -> TableDefinition: ...


class HasChanges(HasDefinition, Protocol):
    def applyChanges(self, source: DataFrame, *, applyAsTruncates: str) -> MergeBuilder: ...


@attrs.frozen(eq=False)
class Feed:
    r"""The messages of a change feed, for ``TrinityTable.applyChanges``. The functions of ``trinitymerge.feeds`` make it.

    It holds no table, and making it runs no job.

    Attributes:
        frame: the messages.
        format: its name.
        source: the source's table, as ``table``, ``schema.table`` or ``database.schema.table``; None if the feed has only one.
        options: how it is read.

    Example:
        >>> from trinitymerge import feeds
        >>> value = '{"op":"c","after":{"id":1,"v":"a"},"source":{"sequence":"[null,\\"10\\"]","snapshot":"false"}}'
        >>> feed = feeds.debezium(spark.createDataFrame([(value,)], "value STRING"))
        >>> notes = TrinityTable.create(spark, f"{tmp_path}/notes_feed", "id INT, v STRING, _seq STRING", primaryKey="id",
        ...     watermarkKey="_seq")
        >>> notes.applyChanges(feed).execute().rowsAppended
        1
        >>> notes.toDF().select("id", "v").collect()
        [Row(id=1, v='a')]
    """

    frame: DataFrame
    format: str
    source: str | None
    options: FeedOptions
    _decode: Decoder = attrs.field(repr=False)

    def changes(self, table: HasDefinition) -> DataFrame:
        r"""Return the events that a merge into a table would apply, lazily.

        Args:
            table: a ``TrinityTable``.

        Returns:
            The table's columns, and

            - ``_op``: ``upsert``, ``delete`` or ``truncate``;
            - ``_seq``: the position in the source's log;
            - ``_ts``: the time of the commit at the source, null if the message does not have it;
            - ``_unchanged``: the columns that the event leaves unchanged, or null;
            - ``_position``: of the message.

        Raises:
            InvalidMergeError: the table's watermark does not fit the feed.

        Example:
            >>> from trinitymerge import feeds
            >>> value = '{"op":"d","before":{"id":1},"source":{"sequence":"[null,\\"11\\"]","snapshot":"false"}}'
            >>> feed = feeds.debezium(spark.createDataFrame([(value,)], "value STRING"))
            >>> notes = TrinityTable.create(spark, f"{tmp_path}/notes_changes", "id INT, v STRING, _seq STRING",
            ...     primaryKey="id", watermarkKey="_seq")
            >>> feed.changes(notes).select("_op", "id", "v").collect()
            [Row(_op='delete', id=1, v=None)]
        """
        rows = rows_of(self.decoded(), self.source, self.options, table.definition, keeps_all=True)
        meta = E.quote(rows.meta)
        own = [E.quote(name) for name in table.definition.names if name not in ("_seq", "_ts")]
        shown = {"_op": "op", "_seq": "seq", "_ts": "at", "_unchanged": "unchanged", "_position": "position"}
        events = rows.frame.where(f"{meta}.op IS NOT NULL")
        return events.selectExpr(*own, *[f"{meta}.{field} AS {name}" for name, field in shown.items()])

    def rejected(self, table: HasDefinition) -> DataFrame:
        """Return the messages that a merge into a table would reject, lazily.

        Args:
            table: a ``TrinityTable``.

        Returns:
            ``reason``, ``position`` and ``raw`` (the message) of each.

        Example:
            >>> from trinitymerge import feeds
            >>> feed = feeds.debezium(spark.createDataFrame([("{cut",)], "value STRING"))
            >>> notes = TrinityTable.create(spark, f"{tmp_path}/notes_rejected", "id INT, v STRING, _seq STRING",
            ...     primaryKey="id", watermarkKey="_seq")
            >>> feed.rejected(notes).select("reason", "raw").collect()
            [Row(reason='unparsable', raw='{cut')]
        """
        rows = rows_of(self.decoded(), self.source, self.options, table.definition)
        meta = E.quote(rows.meta)
        return rows.frame.where(f"{meta}.rejected IS NOT NULL").selectExpr(
            f"{meta}.rejected AS reason", f"{meta}.position AS position", f"{meta}.raw AS raw"
        )

    def tables(self) -> DataFrame:
        """Return the source's tables in the feed, lazily.

        Returns:
            ``source``, ``events`` (their number), and ``first`` and ``last``, the sequences of the first and the last event.
        """
        found = self.decoded().where("op IS NOT NULL").groupBy("source")
        return found.agg(*map(F.expr, ("count(1) AS events", "min(seq) AS first", "max(seq) AS last")))

    def schema(self) -> str:
        """Return columns for a table of the feed, each with the type that the newest message says. It runs a job.

        Returns:
            The columns as DDL, and ``_seq STRING`` for the position in the source's log.

        Raises:
            InvalidMergeError: no message says types.

        Example:
            >>> from trinitymerge import feeds
            >>> fields = '{"field":"after","fields":[{"field":"id","type":"int64"},{"field":"v","type":"string"}]}'
            >>> payload = '{"op":"c","after":{"id":1,"v":"a"},"source":{"file":"binlog.01","pos":4}}'
            >>> value = '{"schema":{"fields":[%s]},"payload":%s}' % (fields, payload)
            >>> feeds.debezium(spark.createDataFrame([(value,)], "value STRING")).schema()
            '`id` BIGINT, `v` STRING, `_seq` STRING'
        """
        typed = self.decoded().where("op IS NOT NULL AND types IS NOT NULL")
        if self.source is not None:
            typed = typed.where(is_of(self.source))
        columns = typed.selectExpr("seq", "posexplode(map_entries(types)) AS (place, c)")
        newest = map(F.expr, ("max_by(c.value, seq) AS type", "max(place) AS place"))
        found = columns.groupBy(F.expr("c.key AS name")).agg(*newest).orderBy("place", "name").collect()
        if not found:
            raise InvalidMergeError(
                f"feeds.{self.format}(): no message says the types of its columns. Name the columns when you create the table, and "
                "_seq STRING as the watermark."
            )
        names = {source.casefold(): name for source, name in self.options.rename.items()}
        kinds = {names.get(row["name"].casefold(), row["name"]): row["type"] for row in found}
        return ", ".join(f"{E.quote(name)} {kind}" for name, kind in {**kinds, "_seq": "STRING"}.items())

    def restart(self, table: HasChanges) -> MergeBuilder:
        """Return a merge that empties a table of all rows from earlier epochs.

        Use it after the source's log has started over and was read from a new snapshot. A snapshot has no deletes, so rows that
        were deleted in between would stay. Increase ``epoch`` first. Before or after the new messages makes no difference.

        Args:
            table: a ``TrinityTable`` whose watermark is the sequence alone.

        Returns:
            The merge, a truncate at the beginning of the feed's epoch. Call ``execute()``.

        Raises:
            InvalidMergeError: the table's watermark begins with the time of the commit, so a new epoch is not newer.

        Example:
            >>> from trinitymerge import feeds
            >>> notes = TrinityTable.create(spark, f"{tmp_path}/notes_restart", "id INT, _seq STRING", primaryKey="id",
            ...     watermarkKey="_seq")
            >>> notes.upsert(spark.sql("SELECT id, concat('0001/', id) AS _seq FROM range(3)")).execute().rowsAppended
            3
            >>> feed = feeds.debezium(spark.createDataFrame([], "value STRING"), epoch=2)
            >>> _ = feed.restart(notes).execute()
            >>> notes.toDF().count()
            0
        """
        own = table.definition
        if len(own.watermarkKey) != 1:
            raise InvalidMergeError(
                f"feed.restart() needs a table whose watermark is the sequence alone; this one has {', '.join(own.watermarkKey)}. "
                "There, rows of a new epoch are not newer. Load the new snapshot with table.snapshot()."
            )
        values = [f"{E.null_of(own.field(n))} AS {E.quote(n)}" for n in own.names if n not in own.watermarkKey]
        start = f"{E.text_literal(f'{self.options.epoch:04}')} AS {E.quote(own.watermarkKey[0])}"
        truncate = self.frame.sparkSession.range(1).selectExpr(*values, start)
        return table.applyChanges(truncate, applyAsTruncates="true")

    def decoded(self) -> DataFrame:
        """Return the messages as ``wire.WIRE``, with ``value`` and ``position``."""
        with analysis_errors(f"feeds.{self.format}()"):
            return self._decode(self.frame, self.options)
