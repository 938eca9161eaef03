"""SQL Server: the rows of change data capture (CDC), from its change tables or its functions."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, types as T

from trinitymerge.errors import InvalidMergeError, missing
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.sequences import ZERO, number_part, sequence_of
from trinitymerge.feeds.typed_columns import texts_of, types_of
from trinitymerge.feeds.wire import FeedOptions, as_wire, event, reject, skip
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_LSN, _SEQVAL, _OPERATION, _COMMAND = "__$start_lsn", "__$seqval", "__$operation", "__$command_id"


def sqlserver(
    df: DataFrame,
    table: str | None = None,
    *,
    load: bool = False,
    time: str | None = None,
    epoch: int = 1,
    rename: Mapping[str, str] | None = None,
    zone: str = "UTC",
) -> Feed:
    r"""Return the change events of SQL Server's change data capture (CDC).

    Events are ordered by ``__$start_lsn``, the position of the commit. Within a transaction, ``__$command_id`` orders them, and
    ``__$seqval`` if there is no such column. SQL Server's documentation advises against ``__$seqval``. Change tables have
    ``__$command_id`` since SQL Server 2016, and since updates of 2012 and 2014. Read all batches in one way: with it or without it.

    Rows with the values before an update (operation 3) are skipped. A change of a primary key is a delete and an insert.
    Truncates do not occur: SQL Server refuses to truncate a table with CDC. Built from the documentation of SQL Server 2019; not
    tested with a real source.

    Args:
        df: rows of a change table ``cdc.<capture_instance>_CT``, or of ``cdc.fn_cdc_get_all_changes_<capture_instance>``. Rows of
            ``fn_cdc_get_net_changes_<capture_instance>`` have neither ``__$seqval`` nor ``__$command_id``, and need neither.
            ``__$start_lsn`` and ``__$seqval`` are binary, or hexadecimal text.
        table: a name for the source's table, for ``Feed.tables``.
        load: the rows are a copy of the source's table, without CDC's columns. They are older than all changes.
        time: the column with the time of the commit, as ``sys.fn_cdc_map_lsn_to_time(__$start_lsn)`` returns it. It is not a column
            of the rows.
        epoch: increase it when the source's log starts over: with a restored database.
        rename: from the source's column names to the table's.
        zone: the time zone of timestamps without a zone.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> rows = spark.sql("SELECT X'0000002700000A000005' AS `__$start_lsn`, X'0000002700000A000003' AS `__$seqval`, "
        ...     "2 AS `__$operation`, 1 AS id, 'a' AS v")
        >>> [row["first"] for row in feeds.sqlserver(rows).tables().collect()]
        ['0001/0000002700000a000005/0000002700000a000003/2']
    """
    return SQLSERVER.feed(df, table, epoch=epoch, rename=rename, load=load, time=time, zone=zone)


def _decoded(frame: DataFrame, options: FeedOptions) -> DataFrame:
    is_load, time = options.own["load"], options.own["time"]
    needed = [*([] if is_load else [_LSN, _OPERATION]), *([] if time is None else [time])]
    lacking = [name for name in needed if E.find_name(name, frame.columns, True) is None]
    if lacking:
        hint = "" if is_load else " For a copy of the source's table, say load=True."
        raise InvalidMergeError(
            f"{options.call} needs the columns of CDC. {missing(lacking, 'the DataFrame', frame.columns)}{hint}",
            columns=lacking,
        )
    own = [name for name in frame.columns if not name.startswith("__$") and name != time]
    lsn = E.NULL if is_load else _hex(frame, _LSN)
    said = {
        "value": Sql(f"to_json(struct(*), {E.ALL_AS_JSON})"),
        "position": E.cast(lsn, T.StringType()),
        "arrival": E.cast(E.NULL, T.StringType()),
        "seq": sequence_of(options.epoch, [ZERO, ZERO]) if is_load else _sequence(frame, lsn, options.epoch),
        "operation": Sql("'2'") if is_load else Sql(f"CAST({E.quote(_OPERATION)} AS STRING)"),
        "texts": texts_of(frame, own),
        "at": E.cast(E.NULL, T.TimestampType()) if time is None else Sql(f"try_cast({E.quote(time)} AS TIMESTAMP_LTZ)"),
    }
    rows = frame.selectExpr(*[f"{E.opaque(value)} AS {name}" for name, value in said.items()])
    is_upsert = Sql("operation IN ('2', '4', '5')")
    told = [
        ("operation IS NULL", reject("no-op")),
        ("operation = '3'", skip("before update")),
        (is_upsert, event("upsert")),
        ("operation = '1'", event("delete")),
    ]
    source = options.own["table"]
    columns = {
        "source": E.NULL if source is None else E.text_literal(source),
        "seq": Sql("seq"),
        "at": Sql("at"),
        "row": E.case([(is_upsert, Sql("texts"))]),
        "key": E.case([(Sql("operation = '1'"), Sql("texts"))]),
        "types": types_of(frame, own),
    }
    return as_wire(rows, told, columns)


def _sequence(frame: DataFrame, lsn: Sql, epoch: int) -> Sql:
    """Return the position of a change.

    A command changes a row once, or deletes and inserts it: so the operation follows the command, and the delete comes first. Net
    changes have one row for each key.
    """
    operation = Sql(f"CAST({E.quote(_OPERATION)} AS STRING)")
    seqval = _hex(frame, _SEQVAL) if _SEQVAL in frame.columns else None
    by_seqval = sequence_of(epoch, [lsn, ZERO] if seqval is None else [lsn, seqval, operation])
    if _COMMAND not in frame.columns:
        return by_seqval
    command = Sql(f"CAST({E.quote(_COMMAND)} AS STRING)")
    by_command = sequence_of(epoch, [lsn, number_part(command), operation, ZERO if seqval is None else seqval])
    # Rows that were captured before SQL Server was updated have no command.
    return E.case([(Sql(f"{command} IS NOT NULL"), by_command)], by_seqval if seqval is not None else E.NULL)


def _hex(frame: DataFrame, column: str) -> Sql:
    """Return the 20 digits of a BINARY(10), which may be text; null if it is neither."""
    name = E.quote(column)
    is_binary = isinstance(frame.schema[column].dataType, T.BinaryType)
    digits = Sql(f"hex({name})" if is_binary else f"regexp_replace(CAST({name} AS STRING), '^0[xX]', '')")
    return E.case([(Sql(f"{digits} RLIKE '^[0-9A-Fa-f]{{20}}$'"), Sql(f"lower({digits})"))])


SQLSERVER = Format("sqlserver", _decoded, forms=WireForms(are_marked=False), allowed={"load": (True, False)})
