"""wal2json: change messages of PostgreSQL's logical decoding, in the format versions 1 and 2."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.json_text import text_of
from trinitymerge.feeds.sequences import SEQUENCE, lsn_part, number_part, sequence_of, stated_sequence
from trinitymerge.feeds.total_sql import map_of, map_of_structs, map_with
from trinitymerge.feeds.wire import FeedOptions, as_wire, event, kinds_of_change, reject, skip, table_name
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_COLUMNS = "ARRAY<STRUCT<name: STRING, type: STRING, value: STRING>>"
_V2 = (
    "action: STRING, xid: STRING, lsn: STRING, timestamp: STRING, schema: STRING, table: STRING, "
    f"columns: {_COLUMNS}, identity: {_COLUMNS}, pk: {_COLUMNS}, {SEQUENCE}: STRING"
)
_CHANGE = (
    "kind: STRING, schema: STRING, table: STRING, columnnames: ARRAY<STRING>, columntypes: ARRAY<STRING>, "
    "columnvalues: ARRAY<STRING>, oldkeys: STRUCT<keynames: ARRAY<STRING>, keyvalues: ARRAY<STRING>>, "
    "pk: STRUCT<pknames: ARRAY<STRING>>"
)
_V1 = f"xid: STRING, nextlsn: STRING, timestamp: STRING, change: ARRAY<STRUCT<{_CHANGE}>>, {SEQUENCE}: STRING"

_TYPES = {
    **{"smallint": "SMALLINT", "integer": "INT", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE"},
    **{"boolean": "BOOLEAN", "date": "DATE", "timestamp with time zone": "TIMESTAMP_LTZ"},
    **{"timestamp without time zone": "TIMESTAMP_NTZ", "bytea": "BINARY"},
    **{"text[]": "ARRAY<STRING>", "integer[]": "ARRAY<INT>", "bigint[]": "ARRAY<BIGINT>"},
}
"""SQL types of PostgreSQL's; others are text."""

_WHOLE = map_with(Sql("new"), Sql("was"))
"""The new row, with what it lacks from the identity: all columns with REPLICA IDENTITY FULL."""


def wal2json(
    df: DataFrame,
    table: str | None = None,
    *,
    version: int = 2,
    commit: str = "transaction",
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    zone: str = "UTC",
) -> Feed:
    r"""Return the change events of wal2json's messages.

    A column that an update lacks is unchanged (TOAST). With REPLICA IDENTITY FULL, its value is in the message. A NaN is null.
    Version 1 has no truncates. Version 2 needs wal2json's options ``include-xids`` and ``include-lsn``, version 1
    ``include-lsn``. Both take the time of the commit from ``include-timestamp``. Tested with wal2json 2.5 and PostgreSQL 15.

    Args:
        df: one message per row: a column ``value``, and others as in Spark's Kafka source. A message is one change in version 2,
            and one transaction in version 1.
        table: the source's table, such as ``public.notes``. None if the messages have only one.
        version: wal2json's ``format-version``: 1 or 2.
        commit: ``"transaction"`` orders by the position of the commit, which version 2 has in the message ``B`` that begins a
            transaction. So each DataFrame needs whole transactions. ``"lsn"`` orders by the position of the change alone, which is
            wrong where transactions overlap.
        epoch: increase it when the source's log starts over: after a failover, with a new slot, or with a restored database.
        sequence: ``"log"``, or ``"arrival"`` for the offset of the message, with version 2.
        rename: from the source's column names to the table's.
        zone: the time zone of timestamps without a zone.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> lines = [
        ...     '{"action":"B","xid":7,"lsn":"0/20"}',
        ...     '{"action":"I","xid":7,"lsn":"0/10","schema":"public","table":"t","columns":[{"name":"id","value":1}]}',
        ... ]
        >>> feed = feeds.wal2json(spark.createDataFrame([(line,) for line in lines], "value STRING"))
        >>> [(row["source"], row["first"]) for row in feed.tables().collect()]
        [('public.t', '0001/0000000000000020/0000000000000010')]
    """
    wire, own = VERSION_1 if version == 1 else VERSION_2, {"version": version, "commit": commit, "zone": zone}
    return wire.feed(df, table, epoch=epoch, sequence=sequence, rename=rename, **own)


def _of_changes(read: DataFrame, options: FeedOptions) -> DataFrame:
    """Return the rows of messages that are one change each."""
    read = read.selectExpr("*", "m.*").drop("m")
    new, was = (map_of_structs(Sql(of), "name", Sql("f.value")) for of in ("columns", "identity"))
    maps = [f"{E.opaque(new)} AS new", f"{E.opaque(was)} AS was", f"{E.opaque(lsn_part(Sql('lsn')))} AS place"]
    rows = read.selectExpr("*", *maps, f"{stated_sequence(Sql(SEQUENCE))} AS stated")
    is_change = Sql("action IN ('I', 'U', 'D', 'T')")
    if options.own["commit"] == "transaction" and options.sequence == "log":
        rows = _with_commits(rows)
        lacks = [(f"{is_change} AND place IS NOT NULL AND committed IS NULL AND stated IS NULL", reject("no-commit"))]
    else:
        rows, lacks = rows.selectExpr("*", "place AS committed"), []
    computed = sequence_of(options.epoch, [Sql("committed"), Sql("place")])
    rows = rows.selectExpr("*", f"coalesce(arrival, stated, {computed}) AS sequence")
    # A quarantine keeps the sequence with the message, because it does not keep the message of the commit.
    says = f"concat('{{\"{SEQUENCE}\":\"', sequence, '\",', substr(value, instr(value, '{{') + 1))"
    value = f"CASE WHEN {is_change} AND stated IS NULL AND sequence IS NOT NULL THEN {says} ELSE value END"
    rows = rows.selectExpr(*[f"{value} AS value" if c == "value" else E.quote(c) for c in rows.columns])
    kinds = [
        ("value IS NULL OR trim(value) = ''", skip("empty")),
        ("is_corrupt", reject("unparsable")),
        ("action IN ('B', 'C')", skip("transaction")),
        ("action = 'M'", skip("message")),
        ("action IS NULL", reject("no-op")),
        *lacks,
        ("identity IS NOT NULL AND was IS NULL", reject("no-key")),
        *kinds_of_change("action IN ('I', 'U')", "new", "action = 'D'", "was"),
        ("action = 'T'", event("truncate")),
    ]
    columns = {
        "source": table_name("schema", "table"),
        "seq": Sql("sequence"),
        "at": Sql("try_cast(timestamp AS TIMESTAMP_LTZ)"),
        "row": _WHOLE,
        "key": E.case([(Sql("action = 'D'"), Sql("was"))]),
        "old_key": E.case([(Sql("action = 'U'"), Sql("was"))]),
        "is_partial": Sql("action = 'U'"),
        "types": map_of_structs(Sql("columns"), "name", _sql_type(Sql("f.type"))),
        "key_names": Sql("transform(pk, c -> c.name)"),
    }
    return as_wire(rows, kinds, columns)


def _with_commits(rows: DataFrame) -> DataFrame:
    """Return the changes with the position of their commit, which the message that begins their transaction has.

    A transaction's number may come again after a long time: the commit is the first after the change. A change without a number
    has no commit.
    """
    begun = "collect_list(CASE WHEN action = 'B' AND xid IS NOT NULL THEN place END) OVER (PARTITION BY xid)"
    first = "array_min(filter(begun, b -> b >= place)) AS committed"
    return rows.selectExpr("*", f"{begun} AS begun").selectExpr("*", first)


def _of_transactions(read: DataFrame, options: FeedOptions) -> DataFrame:
    """Return the rows of messages that are one transaction each: one row for each change."""
    # Spark keeps all rows of one message at once: each has its change, and not the whole message.
    of_all = "CASE WHEN is_corrupt OR m.change IS NULL THEN value END AS whole"
    shown = ["position", "arrival", "is_corrupt", "m.nextlsn", "m.timestamp", f"m.{SEQUENCE}", of_all]
    each = read.selectExpr(*shown, "posexplode_outer(m.change) AS (number, c)")
    computed = sequence_of(options.epoch, [lsn_part(Sql("nextlsn")), number_part(Sql("CAST(number AS STRING)"))])
    each = each.selectExpr("*", f"coalesce({stated_sequence(Sql(SEQUENCE))}, {computed}) AS sequence")
    # A quarantine keeps the sequence with the change, because its place in the transaction is part of it.
    alone = Sql(f"to_json(struct(sequence AS {SEQUENCE}, nextlsn, timestamp, array(c) AS change))")
    each = each.selectExpr("*", "c.*", f"coalesce(whole, {text_of(alone)}) AS value").drop("c", "whole")
    rows = each.selectExpr(
        "*",
        f"{E.opaque(map_of(Sql('columnnames'), Sql('columnvalues')))} AS new",
        f"{E.opaque(map_of(Sql('oldkeys.keynames'), Sql('oldkeys.keyvalues')))} AS was",
    )
    kinds = [
        ("number IS NULL AND (value IS NULL OR trim(value) = '')", skip("empty")),
        ("is_corrupt", reject("unparsable")),
        ("nextlsn IS NULL AND number IS NULL", reject("no-op")),
        ("number IS NULL", skip("transaction")),
        ("kind = 'message'", skip("message")),
        ("oldkeys IS NOT NULL AND was IS NULL", reject("no-key")),
        *kinds_of_change("kind IN ('insert', 'update')", "new", "kind = 'delete'", "was"),
        ("kind = 'truncate'", event("truncate")),
    ]
    columns = {
        "source": table_name("schema", "table"),
        "seq": Sql("sequence"),
        "at": Sql("try_cast(timestamp AS TIMESTAMP_LTZ)"),
        "row": _WHOLE,
        "key": E.case([(Sql("kind = 'delete'"), Sql("was"))]),
        "old_key": E.case([(Sql("kind = 'update'"), Sql("was"))]),
        "is_partial": Sql("kind = 'update'"),
        "types": map_of(Sql("columnnames"), Sql(f"transform(columntypes, t -> {_sql_type(Sql('t'))})")),
        "key_names": Sql("pk.pknames"),
    }
    return as_wire(rows, kinds, columns)


def _sql_type(name: Sql) -> Sql:
    """Return the SQL type of a column, by the name of PostgreSQL's type. A number that no DECIMAL of Spark holds is text."""
    base = Sql(f"trim(regexp_replace({name}, '[(][0-9]+[)]', ''))")
    known = " ".join(f"WHEN {E.text_literal(theirs)} THEN {E.text_literal(ours)}" for theirs, ours in _TYPES.items())
    numeric = Sql(f"regexp_replace({name}, '^numeric', 'DECIMAL')")
    precision, scale = (f"CAST(regexp_extract({name}, '{at}([0-9]{{1,4}})', 1) AS INT)" for at in ("[(]", ","))
    fits = f"{precision} <= 38 AND {scale} <= {precision}"
    is_numeric = Sql(f"CASE WHEN {name} RLIKE '^numeric[(][0-9]{{1,4}},[0-9]{{1,4}}[)]$' THEN {fits} END")
    return E.case([(is_numeric, numeric)], Sql(f"CASE {base} {known} ELSE 'STRING' END"))


_FORMS = WireForms(binary="hex", arrays="postgres")
_ALLOWED = {"version": (1, 2), "commit": ("transaction", "lsn")}
VERSION_1 = Format("wal2json", _of_transactions, _V1, forms=_FORMS, allowed={**_ALLOWED, "sequence": ("log",)})
VERSION_2 = Format("wal2json", _of_changes, _V2, forms=_FORMS, allowed=_ALLOWED)
