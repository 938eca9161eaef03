"""Maxwell: JSON messages of Maxwell's Daemon, from the binlog of MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.json_text import TEXTS, scalar
from trinitymerge.feeds.sequences import ZERO, number_part, sequence_of
from trinitymerge.feeds.total_sql import moment_of
from trinitymerge.feeds.wire import IS_EMPTY, FeedOptions, as_wire, kinds_of_change, reject, skip, table_name
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_FIELDS = ("type", "database", "table", "ts", "position", "xoffset", "commit")
_MESSAGE = (
    f"{', '.join(f'{n}: STRING' for n in _FIELDS)}, data: {TEXTS}, old: {TEXTS}, primary_key_columns: ARRAY<STRING>"
)

_LAST = E.text_literal("f" * 16)
"""The place of a transaction's last row, which has ``commit`` and no ``xoffset``."""


def maxwell(
    df: DataFrame,
    table: str | None = None,
    *,
    output_nulls: bool = True,
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    timestamps: str | Mapping[str, str] | None = None,
    zone: str = "UTC",
) -> Feed:
    r"""Return the change events of Maxwell's JSON messages.

    Events are ordered by their position in the binlog, and in an event by the offset of the row. Maxwell needs
    ``output_binlog_position=true`` and ``output_xoffset=true``. Without the first, messages are rejected. Without the second, two
    changes of one key by one statement can have equal positions.

    Rows of a bootstrap are older than all changes. Messages about the bootstrap and about schema changes are skipped and counted.
    Maxwell has no messages for TRUNCATE TABLE. Columns that an update lacks are unchanged (``binlog_row_image=MINIMAL``, or
    ``exclude_columns``). Built from the documentation and the source of Maxwell 1.45; not tested with a real source.

    Args:
        df: one message per row: a column ``value``, and others as in Spark's Kafka source.
        table: the source's table, such as ``shop.notes``. None if the messages have only one.
        output_nulls: Maxwell's ``output_nulls``. If it is false, messages lack the columns that are null. Then the binlog needs
            whole rows: ``binlog_row_image=FULL``, and no ``exclude_columns``.
        epoch: increase it when the binlog starts over: after a failover to another server, or with a restored database.
        sequence: ``"log"``, or ``"arrival"`` for the offset of the message.
        rename: from the source's column names to the table's.
        timestamps: the unit of timestamps that are numbers: ``"ms"``, ``"us"`` or ``"ns"``, for all columns or by column.
        zone: the time zone of timestamps without a zone.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> value = '{"database":"shop","table":"notes","type":"insert","position":"master.000006:800911","data":{"id":5}}'
        >>> feed = feeds.maxwell(spark.createDataFrame([(value,)], "value STRING"))
        >>> [(row["source"], row["first"]) for row in feed.tables().collect()]
        [('shop.notes', '0001/0000000000000006/00000000000c388f/0000000000000000')]
    """
    own = {"output_nulls": output_nulls, "timestamps": timestamps, "zone": zone}
    return MAXWELL.feed(df, table, epoch=epoch, sequence=sequence, rename=rename, **own)


def _decoded(read: DataFrame, options: FeedOptions) -> DataFrame:
    said = [f"{scalar(Sql(f'm.{name}'))} AS {'place' if name == 'position' else name}" for name in _FIELDS]
    rows = read.selectExpr("*", *said, "m.data", "m.old", "m.primary_key_columns").drop("m")
    kinds = [
        (IS_EMPTY, skip("empty")),
        ("is_corrupt", reject("unparsable")),
        ("type IS NULL", reject("no-op")),
        *kinds_of_change("type IN ('insert', 'update', 'bootstrap-insert')", "data", "type = 'delete'", "data"),
        ("type IN ('bootstrap-start', 'bootstrap-complete')", skip("bootstrap")),
        ("type RLIKE '^(table|database)-(create|alter|drop)$'", skip("schema change")),
    ]
    columns = {
        "source": table_name("database", "table"),
        "seq": _sequence(options.epoch),
        "at": moment_of(Sql("ts"), "s"),
        "row": Sql("data"),
        "key": E.case([(Sql("type = 'delete'"), Sql("data"))]),
        "old_key": E.case([(Sql("type = 'update'"), Sql("old"))]),
        "is_partial": Sql("type = 'update'" if options.own["output_nulls"] else "false"),
        "key_names": Sql("primary_key_columns"),
    }
    return as_wire(rows, kinds, columns)


def _sequence(epoch: int) -> Sql:
    """Return the number of the binlog's file, the offset of the event, and that of the row in the transaction.

    All rows of one event have the same position. The last row of a transaction has no offset.
    """
    file = number_part(Sql("regexp_extract(place, '([0-9]+):[0-9]+$', 1)"))
    offset = number_part(Sql("regexp_extract(place, ':([0-9]+)$', 1)"))
    last = (Sql("xoffset IS NULL"), E.case([(Sql("commit = 'true'"), _LAST)], ZERO))
    position = sequence_of(epoch, [file, offset, E.case([last], number_part(Sql("xoffset")))])
    return E.case([(Sql("type = 'bootstrap-insert'"), sequence_of(epoch, [ZERO, ZERO, ZERO]))], position)


MAXWELL = Format("maxwell", _decoded, _MESSAGE, allowed={"output_nulls": (True, False)})
