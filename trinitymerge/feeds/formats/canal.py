"""Canal: JSON messages (FlatMessage) of Alibaba's Canal, from the binlog of MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.json_text import TEXTS, scalar, text_of
from trinitymerge.feeds.sequences import SEQUENCE, number_or_zero, number_part, sequence_of, stated_sequence
from trinitymerge.feeds.total_sql import moment_of
from trinitymerge.feeds.wire import FeedOptions, as_wire, event, kinds_of_change, reject, skip, table_name
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_FIELDS = ("type", "database", "table", "es", "id", "isDdl")
_ROWS = f"ARRAY<{TEXTS}>"
_TEXTS = ", ".join(f"{n}: STRING" for n in (*_FIELDS, SEQUENCE))
_MESSAGE = f"{_TEXTS}, pkNames: ARRAY<STRING>, mysqlType: {TEXTS}, data: {_ROWS}, old: {_ROWS}"

_TYPES = {
    **{"tinyint": "TINYINT", "tinyint unsigned": "SMALLINT", "smallint": "SMALLINT", "smallint unsigned": "INT"},
    **{"mediumint": "INT", "mediumint unsigned": "INT", "int": "INT", "int unsigned": "BIGINT"},
    **{"integer": "INT", "integer unsigned": "BIGINT", "bigint": "BIGINT", "bigint unsigned": "DECIMAL(20,0)"},
    **{"year": "INT", "float": "FLOAT", "float unsigned": "FLOAT", "double": "DOUBLE", "double unsigned": "DOUBLE"},
    **{"date": "DATE", "datetime": "TIMESTAMP_NTZ", "timestamp": "TIMESTAMP_LTZ"},
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "BINARY"),
}
"""SQL types of MySQL's; others are text."""

_LATIN = r"^[\x00-\xFF]*$"


def canal(
    df: DataFrame,
    table: str | None = None,
    *,
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    zone: str = "UTC",
) -> Feed:
    r"""Return the change events of Canal's JSON messages, with ``canal.mq.flatMessage = true``.

    A message has the rows of one event of the binlog, and no position in it. So ``sequence="log"`` orders by the time of the event
    (``es``) and the number of Canal's batch (``id``). Equal ones are ordered by the offset of the message, then by the place of the
    row in it. Without a column ``offset``, two changes in one second and one batch can have equal positions.

    The time is that of the statement's start, in seconds. A statement that waits for a lock can be older by this order than the
    change before it. Then the older value stays.

    ``sequence="arrival"`` orders by the offset alone. It is right if all messages of a table are in one partition. It is also
    right with ``canal.mq.partitionHash`` by the key, if keys do not change.

    TRUNCATE is applied. Other schema changes are skipped and counted. Columns that an update lacks are unchanged. Binary columns
    need ``mysqlType`` in the messages. The binlog needs ``binlog_format=ROW``. Built from the source of Canal 1.1.9-SNAPSHOT; not
    tested with a real source.

    Args:
        df: one message per row: a column ``value``, and others as in Spark's Kafka source.
        table: the source's table, such as ``shop.notes``. None if the messages have only one.
        epoch: increase it when times can go back: after a failover to another server, or with a restored database. With
            ``sequence="arrival"``, increase it when the topic starts over.
        sequence: ``"log"``, or ``"arrival"`` for the offset of the message.
        rename: from the source's column names to the table's.
        zone: the time zone of timestamps without a zone: that of the Canal server.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> value = '{"database":"shop","table":"notes","type":"INSERT","es":1700000000000,"id":17,"data":[{"id":"5"},{"id":"6"}]}'
        >>> feed = feeds.canal(spark.createDataFrame([(value,)], "value STRING"))
        >>> [(row["source"], row["events"]) for row in feed.tables().collect()]
        [('shop.notes', 2)]
    """
    return CANAL.feed(df, table, epoch=epoch, sequence=sequence, rename=rename, zone=zone)


def _decoded(read: DataFrame, options: FeedOptions) -> DataFrame:
    """Return one row for each row of a message, and one for a message without rows."""
    offset = number_or_zero(Sql("CAST(offset AS STRING)"))
    each_row = "transform(m.data, (d, i) -> struct(d AS data, get(m.old, i) AS old))"
    # Spark keeps all rows of one message at once: each has its row, and not the whole message.
    shown = {
        "whole": Sql("CASE WHEN is_corrupt OR m.data IS NULL OR size(m.data) = 0 THEN value END"),
        "kinds": Sql(f"transform_values(m.mysqlType, (k, v) -> {_sql_type(Sql('v'))})"),
        "places": sequence_of(options.epoch, [*(number_part(scalar(Sql(f"m.{n}"))) for n in ("es", "id")), offset]),
        "rows": Sql(f"CASE WHEN NOT is_corrupt THEN {each_row} END"),
    }
    read = read.selectExpr(
        *("position", "arrival", "is_corrupt", "m.pkNames", "m.mysqlType", f"m.{SEQUENCE}"),
        *[f"{scalar(Sql(f'm.{name}'))} AS {name}" for name in _FIELDS],
        *[f"{E.opaque(value)} AS {name}" for name, value in shown.items()],
    )
    kept = [c for c in read.columns if c != "rows"]
    each = read.selectExpr(*kept, "posexplode_outer(rows) AS (number, c)")
    place = number_or_zero(Sql("CAST(number AS STRING)"))
    values = {"value": _value(), "new": _with_hex(Sql("c.data")), "was": _with_hex(Sql("c.old")), "place": place}
    sequence = f"coalesce({stated_sequence(Sql(SEQUENCE))}, concat(places, '/', {place})) AS sequence"
    each = each.selectExpr("*", sequence)
    rows = each.selectExpr("*", *[f"{E.opaque(value)} AS {name}" for name, value in values.items()])
    rows = rows.withColumnRenamed("arrival", "message").selectExpr("*", "concat(message, '/', place) AS arrival")
    kinds = [
        ("number IS NULL AND (value IS NULL OR trim(value) IN ('', 'null'))", skip("empty")),
        ("is_corrupt", reject("unparsable")),
        ("type IS NULL", reject("no-op")),
        ("type = 'TRUNCATE'", event("truncate")),
        ("isDdl = 'true'", skip("schema change")),
        *kinds_of_change("type IN ('INSERT', 'UPDATE')", "new", "type = 'DELETE'", "new"),
    ]
    columns = {
        "source": table_name("database", "table"),
        "seq": Sql("sequence"),
        "at": moment_of(Sql("es"), "ms"),
        "row": Sql("new"),
        "key": E.case([(Sql("type = 'DELETE'"), Sql("new"))]),
        "old_key": E.case([(Sql("type = 'UPDATE'"), Sql("was"))]),
        "is_partial": Sql("type = 'UPDATE'"),
        "types": Sql("kinds"),
        "key_names": Sql("pkNames"),
    }
    return as_wire(rows, kinds, columns)


def _value() -> Sql:
    """Return the text of a rejected event: a message of this row alone with its sequence, or a message without rows."""
    said = f"sequence AS {SEQUENCE}, type, database, table, es, id, isDdl, pkNames, mysqlType, array(c.data) AS data"
    old = "CASE WHEN c.old IS NOT NULL THEN array(c.old) END AS old"
    row = Sql(f"to_json(struct({said}, {old}), map('ignoreNullFields', 'false'))")
    return E.case([(Sql("number IS NULL"), Sql("whole"))], text_of(row))


def _with_hex(row: Sql) -> Sql:
    """Return a row whose binary columns are hexadecimal. Canal writes each byte as the character of ISO-8859-1 that it is."""
    is_bytes = Sql(f"kinds[k] = 'BINARY' AND v RLIKE {E.text_literal(_LATIN)}")
    encoded = E.case([(is_bytes, Sql("hex(encode(v, 'ISO-8859-1'))"))], Sql("v"))
    has_binary = Sql("array_contains(map_values(kinds), 'BINARY')")
    return E.case([(has_binary, Sql(f"transform_values({row}, (k, v) -> {encoded})"))], row)


def _sql_type(name: Sql) -> Sql:
    """Return the SQL type of a column, by the name of MySQL's type. A number that no DECIMAL of Spark holds is text."""
    base = Sql(f"regexp_replace(lower(trim({name})), '[(][^)]*[)]| zerofill', '')")
    known = " ".join(f"WHEN {E.text_literal(theirs)} THEN {E.text_literal(ours)}" for theirs, ours in _TYPES.items())
    digits, scale = (Sql(f"regexp_extract(lower({name}), '^decimal[(]([0-9]+)(?:,([0-9]+))?[)]', {n})") for n in (1, 2))
    scale = Sql(f"coalesce(nullif({scale}, ''), '0')")
    fits = f"try_cast({digits} AS INT) BETWEEN 1 AND 38 AND try_cast({scale} AS INT) <= try_cast({digits} AS INT)"
    decimal = E.case([(Sql(fits), Sql(f"concat('DECIMAL(', {digits}, ',', {scale}, ')')"))])
    decimal = E.or_else(decimal, E.text_literal("STRING"))
    return E.case([(Sql(f"startswith({base}, 'decimal')"), decimal)], Sql(f"CASE {base} {known} ELSE 'STRING' END"))


CANAL = Format("canal", _decoded, _MESSAGE, forms=WireForms(binary="hex"))
