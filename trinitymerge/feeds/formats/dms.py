"""AWS DMS: rows of its files, and JSON messages of Kafka and Kinesis."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, types as T

from trinitymerge.errors import InvalidMergeError, missing
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.json_text import TEXTS, parsed_json, scalar
from trinitymerge.feeds.sequences import sequence_of
from trinitymerge.feeds.total_sql import literal_map, renamed
from trinitymerge.feeds.typed_columns import texts_of, types_of
from trinitymerge.feeds.wire import (
    IS_EMPTY,
    FeedOptions,
    arrival,
    as_wire,
    event,
    kinds_of_change,
    messages_of,
    reject,
    skip,
    table_name,
)
from trinitymerge.feeds.wire_values import BINARIES, WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

CHANGE_SEQ = "AR_H_CHANGE_SEQ"

_METADATA = ("record-type", "operation", "schema-name", "table-name", "commit-timestamp")
_MESSAGE = (
    f"data: {TEXTS}, `before-image`: {TEXTS}, metadata: STRUCT<{', '.join(f'{E.quote(n)}: STRING' for n in _METADATA)}>"
)


def dms(
    df: DataFrame,
    table: str | None = None,
    *,
    load: bool = False,
    change_seq: str = CHANGE_SEQ,
    time: str | None = None,
    before_prefix: str | None = None,
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    binary: str = "hex",
    zone: str = "UTC",
) -> Feed:
    r"""Return the change events of AWS DMS: of its CSV and Parquet files, or of its JSON messages.

    Events are ordered by a column with the header ``AR_H_CHANGE_SEQ``, 35 digits. A transformation rule adds it:
    ``"rule-action": "add-column", "value": "AR_H_CHANGE_SEQ", "expression": "$AR_H_CHANGE_SEQ"``, of type string, length 35. The
    timestamps and ``stream-position`` of JSON messages are not used. Several changes may have the same time, and the form of
    ``stream-position`` depends on the source. Rows of a full load are older than all changes.

    A row has all columns of the source. JSON messages lack null columns, and lack empty texts too, unless the endpoint has
    ``IncludeNullAndEmpty``. LOBs beyond the task's limit are null or cut. Built from the documentation of AWS DMS (API version
    2016-01-01); not tested with a real source.

    Args:
        df: rows of files with the column ``Op``: I, U or D. Or JSON messages: a column ``value``, and ``offset`` and others as in
            Spark's Kafka source.
        table: the source's table, such as ``shop.notes``, if messages have several. For rows of files, a name for ``Feed.tables``.
        load: the rows are of the files of a full load: without ``Op``, or with I in all rows. JSON messages say it themselves.
        change_seq: the column with the header.
        time: the column of files with the time of the commit, the endpoint's ``TimestampColumnName``. It is not a column of the
            rows. JSON messages have it with ``IncludeTransactionDetails``.
        before_prefix: the prefix of columns with the values before an update, such as ``"BI_"``, in files and messages. They say
            that a key has changed. Messages may have them as ``before-image`` instead.
        epoch: increase it when a new task begins, or when the source's log starts over.
        sequence: ``"log"``, or ``"arrival"`` for a column ``offset`` with the order of messages or rows.
        rename: from the source's column names to the table's.
        binary: how binary values are written as text: ``"hex"``, with ``NoHexPrefix`` in the endpoint, ``"base64"`` or
            ``"base64url"``.
        zone: the time zone of timestamps without a zone.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> rows = spark.sql("SELECT 'U' AS Op, '20240501100000000000000000000000042' AS AR_H_CHANGE_SEQ, 5 AS id, 'b' AS title")
        >>> [row["first"] for row in feeds.dms(rows).tables().collect()]
        ['0001/20240501100000000000000000000000042']
    """
    is_rows = load or E.find_name("Op", df.columns, False) is not None
    has_bytes = is_rows and any(isinstance(f.dataType, T.BinaryType) for f in df.schema.fields)
    own = {"load": load, "change_seq": change_seq, "time": time, "before_prefix": before_prefix, "zone": zone}
    own["binary"] = "base64" if has_bytes and binary in BINARIES else binary
    return (ROWS if is_rows else MESSAGES).feed(df, table, epoch=epoch, sequence=sequence, rename=rename, **own)


def _position(digits: Sql, epoch: int) -> Sql:
    """Return the sequence of a change, by the 35 digits of its header; null if it has none."""
    padded = E.case([(Sql(f"{digits} RLIKE '^[0-9]{{1,35}}$'"), Sql(f"lpad({digits}, 35, '0')"))])
    return sequence_of(epoch, [padded])


def _zero(epoch: int) -> Sql:
    return sequence_of(epoch, [E.text_literal("0" * 35)])


def _of_rows(frame: DataFrame, options: FeedOptions) -> DataFrame:
    is_load, time = options.own["load"], options.own["time"]
    if time is not None and time not in frame.columns:
        raise InvalidMergeError(f"{options.call}: {missing([time], 'the DataFrame', frame.columns)}", columns=[time])
    op = E.find_name("Op", frame.columns, False)
    place = E.find_name(options.own["change_seq"], frame.columns, False)
    numbered = "offset" if options.sequence == "arrival" else None
    columns = [name for name in frame.columns if name not in (op, place, time, numbered)]
    before = _before(columns, options.own["before_prefix"])
    was = Sql(f"CAST(NULL AS {TEXTS})")
    if before:
        was = renamed(texts_of(frame, before), Sql(f"{literal_map(before)}[k]"))
    own = [name for name in columns if name not in before]
    said = {
        "value": Sql(f"to_json(struct(*), {E.ALL_AS_JSON})"),
        "position": E.cast(E.NULL if place is None else E.quote(place), T.StringType()),
        "arrival": arrival(frame, options),
        "op": E.cast(E.NULL if op is None else E.quote(op), T.StringType()),
        "texts": texts_of(frame, own),
        "was": was,
        "at": E.cast(E.NULL, T.TimestampType()) if time is None else Sql(f"try_cast({E.quote(time)} AS TIMESTAMP_LTZ)"),
    }
    rows = frame.selectExpr(*[f"{E.opaque(value)} AS {name}" for name, value in said.items()])
    is_upsert = Sql("op IS NULL OR op = 'I'") if is_load else Sql("op IN ('I', 'U')")
    kinds = [
        (is_upsert, event("upsert")),
        ("op IS NULL OR trim(op) = ''", reject("no-op")),
        *([] if is_load else [("op = 'D'", event("delete"))]),
    ]
    source = options.own["table"]
    values = {
        "source": E.NULL if source is None else E.text_literal(source),
        "seq": _zero(options.epoch) if is_load else _position(Sql("position"), options.epoch),
        "at": Sql("at"),
        "row": E.case([(is_upsert, Sql("texts"))]),
        "key": E.case([(Sql("op = 'D'"), Sql("texts"))]),
        "old_key": E.case([(Sql("op = 'U'"), _said(Sql("was")))]),
        "types": types_of(frame, own),
    }
    return as_wire(rows, kinds, values)


def _before(columns: list[str], prefix: str | None) -> dict[str, str]:
    """Return the columns with values before an update, and the names of the columns that they are of."""
    if prefix is None:
        return {}
    return {name: name[len(prefix) :] for name in columns if name.startswith(prefix) and name[len(prefix) :] in columns}


def _said(before: Sql) -> Sql:
    """Return the values before an update that a row has. No part of a key is null."""
    return Sql(f"map_filter({before}, (k, v) -> v IS NOT NULL)")


def _of_messages(frame: DataFrame, options: FeedOptions) -> DataFrame:
    if "value" not in frame.columns:
        raise InvalidMergeError(
            f"{options.call} needs a column 'Op' with I, U or D, or a column 'value' with messages. "
            f"{missing(['Op', 'value'], 'the DataFrame', frame.columns)} For a full load without 'Op', say load=True."
        )
    read = parsed_json(messages_of(frame, options), _MESSAGE)
    said = {name: scalar(Sql(f"m.metadata.{E.quote(name)}")) for name in _METADATA}
    rows = read.selectExpr(
        "*",
        f"{E.opaque(Sql('m.data'))} AS data",
        f"{said['operation']} AS op",
        f"{said['record-type']} AS record",
        f"{table_name(said['schema-name'], said['table-name'])} AS source",
        f"try_cast({said['commit-timestamp']} AS TIMESTAMP_LTZ) AS at",
    )
    header = E.text_literal(options.own["change_seq"].lower())
    digits = scalar(Sql(f"array_max(map_values(map_filter(data, (k, v) -> lower(k) = {header})))"))
    rows = rows.selectExpr("*", f"{E.opaque(digits)} AS digits")
    is_control, is_upsert = Sql("record = 'control'"), Sql("op IN ('load', 'insert', 'update')")
    kinds = [
        (IS_EMPTY, skip("empty")),
        ("is_corrupt", reject("unparsable")),
        ("op IS NULL", reject("no-op")),
        (f"{is_control} AND op = 'truncate-table'", event("truncate")),
        (is_control, skip("control")),
        *kinds_of_change(is_upsert, "data", "op = 'delete'", "data"),
    ]
    own, was = Sql(f"map_filter(data, (k, v) -> lower(k) <> {header})"), Sql("m.`before-image`")
    prefix = options.own["before_prefix"]
    if prefix is not None:
        name = Sql(f"substring(k, {len(prefix) + 1})")
        is_before = Sql(f"startswith(k, {E.text_literal(prefix)}) AND array_contains(map_keys(data), {name})")
        old = renamed(Sql(f"map_filter({own}, (k, v) -> {is_before})"), name)
        own = Sql(f"map_filter({own}, (k, v) -> NOT ({is_before}))")
        was = E.case([(Sql(f"{was} IS NULL"), old)], was)
    values = {
        "source": Sql("source"),
        "seq": E.case([(Sql("op = 'load'"), _zero(options.epoch))], _position(Sql("digits"), options.epoch)),
        "at": Sql("at"),
        "row": E.case([(is_upsert, own)]),
        "key": E.case([(Sql("op = 'delete'"), own)]),
        "old_key": E.case([(Sql("op = 'update'"), _said(was))]),
    }
    return as_wire(rows, kinds, values)


_ALLOWED = {"load": (True, False), "binary": BINARIES}
ROWS = Format("dms", _of_rows, forms=WireForms(are_marked=False), allowed=_ALLOWED)
MESSAGES = Format("dms", _of_messages, allowed=_ALLOWED)
