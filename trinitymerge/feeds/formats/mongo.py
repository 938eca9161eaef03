"""MongoDB: the events of change streams as extended JSON."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from trinitymerge.errors import InvalidMergeError
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.json_text import TEXTS, parsed_json, scalar
from trinitymerge.feeds.sequences import ZERO, number_part, sequence_of
from trinitymerge.feeds.total_sql import let, map_of, map_with, moment_of
from trinitymerge.feeds.wire import IS_EMPTY, FeedOptions, as_wire, event, messages_of, reject, skip, table_name
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_UPDATE = f"STRUCT<updatedFields: {TEXTS}, removedFields: ARRAY<STRING>, truncatedArrays: ARRAY<STRING>>"
_PLACE = "STRUCT<`$timestamp`: STRUCT<t: STRING, i: STRING>>"
_FIELDS = (
    "_id: STRUCT<`_data`: STRING, copyingData: STRING>, operationType: STRING, ns: STRUCT<db: STRING, coll: STRING>, "
    f"clusterTime: {_PLACE}, txnNumber: STRING, documentKey: {TEXTS}, updateDescription: {_UPDATE}"
)

_NUMBER = r'\{\s*"\$number(?:Int|Long|Double)"\s*:\s*"(-?[0-9][0-9.eE+-]*+)"\s*\}'
_WRAPPED = r'\{\s*"\$(?:oid|symbol|uuid|numberInt|numberLong|numberDouble|numberDecimal|date)"\s*:\s*("[^"\\]*+"|-?[0-9]++)\s*\}'
_BYTES = r'"[^"\\]*+"'
_BINARY = rf'\{{\s*"\$binary"\s*:\s*\{{\s*"base64"\s*:\s*({_BYTES})\s*,\s*"subType"\s*:\s*{_BYTES}\s*\}}\s*\}}'
_OLD_BINARY = rf'\{{\s*"\$binary"\s*:\s*({_BYTES})\s*,\s*"\$type"\s*:\s*{_BYTES}\s*\}}'
_EXTENDED = (_NUMBER, _WRAPPED, _BINARY, _OLD_BINARY)
"""Values of extended JSON, in order: a date may have a number within. A quote within a text has a backslash before it, so that
these patterns match only outside of texts."""

_OF_SCHEMA = (
    *("create", "createIndexes", "dropIndexes", "modify"),
    *("shardCollection", "reshardCollection", "refineCollectionShardKey"),
)
"""Events of ``showExpandedEvents``, which change no document."""


def mongo(
    df: DataFrame,
    table: str | None = None,
    *,
    document: str | None = None,
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    zone: str = "UTC",
) -> Feed:
    r"""Return the events of MongoDB's change streams, as JSON text.

    Events are ordered by ``clusterTime``, with its counter. Events of one transaction have the same: the resume token
    (``_id._data``) orders them, or else the column ``offset``. Documents that the Kafka connector copies at its start
    (``copyingData``) are older than all changes.

    An event with ``fullDocument`` has all fields. An update without it has those of ``updatedFields``. The ``removedFields`` become
    null, and all others are unchanged. If such an update changes a part of a field, it is rejected as ``nested-update``. Then
    the stream needs ``fullDocument``. The events ``drop``, ``dropDatabase``, ``rename`` and ``invalidate`` are rejected as
    ``unknown-op``.

    JSON may be canonical, relaxed, or of the Kafka connector's ``DefaultJson``. An ObjectId becomes its digits, and binary its
    base64. Built from the documentation of MongoDB 8.3; not tested with a real source.

    Args:
        df: one event per row: a column ``value``, and others as in Spark's Kafka source.
        table: the collection, such as ``shop.notes``. None if the events have only one.
        document: the column of the table that has the whole document. The table's key is ``_id``. None if each field has a column.
        epoch: increase it when the source's log starts over: with a restored cluster.
        sequence: ``"log"``, or ``"arrival"`` for the offset of the message.
        rename: from the names of fields to those of columns.
        zone: the time zone of times without a zone.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> value = '{"operationType":"delete","clusterTime":{"$timestamp":{"t":1700000001,"i":1}},' \
        ...     '"ns":{"db":"shop","coll":"notes"},"documentKey":{"_id":{"$oid":"65a1b2c3d4e5f60718293a4b"}}}'
        >>> feed = feeds.mongo(spark.createDataFrame([(value,)], "value STRING"))
        >>> [(row["source"], row["first"]) for row in feed.tables().collect()]
        [('shop.notes', '0001/000000006553f101/0000000000000001/0000000000000000')]
    """
    if document is not None and (not isinstance(document, str) or document in ("", "_id")):
        raise InvalidMergeError(
            f"feeds.mongo(): document takes the name of a column other than '_id', got {document!r}."
        )
    return MONGO.feed(df, table, epoch=epoch, sequence=sequence, rename=rename, document=document, zone=zone)


def _decoded(frame: DataFrame, options: FeedOptions) -> DataFrame:
    document = options.own["document"]
    messages = messages_of(frame, options)
    plain = messages.selectExpr("*", f"{E.opaque(without_types(Sql('value')))} AS plain")
    read = parsed_json(plain, f"{_FIELDS}, fullDocument: {TEXTS if document is None else 'STRING'}", Sql("plain"))
    parts = {"fullDocument": "full", "documentKey": "keys", "updateDescription": "change"}
    rows = read.selectExpr(
        "*",
        "m.operationType AS op",
        *[f"{E.opaque(Sql(f'm.{name}'))} AS {short}" for name, short in parts.items()],
        f"coalesce({scalar(Sql('m._id.copyingData'))} = 'true', false) AS is_copy",
    )
    is_set = Sql("full IS NOT NULL" if document is None else "startswith(ltrim(full), '{')")
    has_key, is_written = Sql("keys IS NOT NULL"), Sql("op IN ('insert', 'replace', 'update')")
    names = ("map_keys(change.updatedFields)", "change.removedFields")
    has_parts = [Sql(f"exists({of}, k -> contains(k, '.'))") for of in names]
    is_part = E.any_of([*has_parts, Sql("size(change.truncatedArrays) > 0")])
    changes_fields = "op = 'update' AND (change.updatedFields IS NOT NULL OR change.removedFields IS NOT NULL)"
    of_fields = [
        (f"{changes_fields} AND ({is_part})", reject("nested-update")),
        (f"{changes_fields} AND {has_key}", event("upsert")),
        (changes_fields, reject("no-key")),
    ]
    of_document = [(changes_fields, reject("nested-update"))]
    kinds = [
        (IS_EMPTY, skip("tombstone")),
        ("is_corrupt", reject("unparsable")),
        ("op IS NULL", reject("no-op")),
        (E.all_of([is_written, is_set]), event("upsert")),
        *(of_fields if document is None else of_document),
        (is_written, reject("no-row")),
        (f"op = 'delete' AND {has_key}", event("delete")),
        ("op = 'delete'", reject("no-key")),
        (f"op IN ({', '.join(map(E.text_literal, _OF_SCHEMA))})", skip("schema change")),
    ]
    columns = {
        "source": table_name("m.ns.db", "m.ns.coll"),
        "seq": _sequence(options.epoch),
        "at": moment_of(_of_time("t"), "s"),
        "row": E.case([(is_written, _fields() if document is None else _document(E.text_literal(document)))]),
        "key": Sql("keys"),
        "is_partial": Sql("op = 'update' AND full IS NULL"),
        "key_names": Sql("map_keys(keys)"),
    }
    return as_wire(rows, kinds, columns)


def without_types(text: Sql) -> Sql:
    """Return extended JSON as plain JSON: each value without its type."""
    plain = text
    for pattern in _EXTENDED:
        plain = Sql(f"regexp_replace({plain}, {E.text_literal(pattern)}, '$1')")
    # To search the text takes less time than to replace nothing in it.
    return E.case([(Sql(f"contains({text}, '\"$')"), plain)], text)


def _fields() -> Sql:
    """Return the fields of the document, or those that an update has, with the document's key."""
    set_ = E.or_else(Sql("change.updatedFields"), Sql("CAST(map() AS MAP<STRING, STRING>)"))
    names = "array_distinct(coalesce(change.removedFields, CAST(array() AS ARRAY<STRING>)))"

    def with_removed(own: Sql) -> Sql:
        gone = Sql(f"filter(array_except({names}, map_keys({own})), k -> k IS NOT NULL)")
        nulls = let(gone, lambda of: map_of(of, Sql(f"transform({of}, k -> CAST(NULL AS STRING))")), Sql("gone"))
        return let(nulls, lambda removed: map_with(own, removed), Sql("removed"))

    # Each is named where it is used several times: the text of all of them in each other takes Spark seconds to parse.
    changed = let(set_, with_removed, Sql("own"))
    known = let(changed, lambda of: map_with(of, Sql("keys")), Sql("known"))
    return E.case([(Sql("full IS NOT NULL"), Sql("full"))], known)


def _document(column: Sql) -> Sql:
    key = Sql("coalesce(keys['_id'], get_json_object(full, '$._id'))")
    return Sql(f"map('_id', {key}, {column}, full)")


def _sequence(epoch: int) -> Sql:
    """Return the position of an event, or null. Only a transaction changes a document more than once at a time of the cluster."""
    time, count = number_part(_of_time("t")), number_part(_of_time("i"))
    token = E.case([(Sql("m._id._data RLIKE '^[0-9A-Fa-f]+$'"), Sql("upper(m._id._data)"))])
    in_transaction = E.or_else(token, number_part(Sql("CAST(offset AS STRING)")))
    order = E.case([(Sql("m.txnNumber IS NULL"), ZERO)], in_transaction)
    return E.case([(Sql("is_copy"), sequence_of(epoch, [ZERO, ZERO, ZERO]))], sequence_of(epoch, [time, count, order]))


def _of_time(field: str) -> Sql:
    """Return the seconds ``t`` or the counter ``i`` of an event, each of 32 bits; null if it has none."""
    value = scalar(Sql(f"m.clusterTime.`$timestamp`.{E.quote(field)}"))
    return E.case([(Sql(f"{value} RLIKE '^[0-9]{{1,10}}$'"), value)])


MONGO = Format("mongo", _decoded, forms=WireForms(timestamps="ms"))
