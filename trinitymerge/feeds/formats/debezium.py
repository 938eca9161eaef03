"""Debezium: messages in JSON, with and without schema, and in Avro; flattened ones too (ExtractNewRecordState)."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping

from pyspark.sql import DataFrame

from trinitymerge.feeds.avro import NOT_AVRO, UNKNOWN_SCHEMA, json_of_avro
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.formats.mongo import without_types
from trinitymerge.feeds.json_text import TEXTS, entries_of, scalar, text_of
from trinitymerge.feeds.sequences import number_or_zero, number_part, sequence_of
from trinitymerge.feeds.total_sql import let, map_of_structs, moment_of, text_of_bytes
from trinitymerge.feeds.wire import IS_EMPTY, FeedOptions, as_wire, event, kinds_of_change, reject, skip, table_name
from trinitymerge.spark import expressions as E
from trinitymerge.spark.session import select_exprs
from trinitymerge.spark.sql_text import Sql

PLACEHOLDER = "__debezium_unavailable_value"

_SOURCE = (
    *("db", "schema", "table", "collection", "snapshot", "ts_ms", "ts_us", "sequence", "file", "pos", "row"),
    *("commit_lsn", "change_lsn", "event_serial_no", "commit_scn", "scn", "ssn", "ord"),
)

_PAYLOAD = {
    **{"op": "STRING", "after": TEXTS, "source": f"STRUCT<{', '.join(f'{name}: STRING' for name in _SOURCE)}>"},
    **dict.fromkeys(("ts_ms", "status", "ddl", "tableChanges", "document"), "STRING"),
}
_FIELDS = ", ".join(f"{name}: {kind}" for name, kind in _PAYLOAD.items())
_KIND = "type: STRING, name: STRING, parameters: MAP<STRING, STRING>"
_FIELD = f"STRUCT<field: STRING, {_KIND}, items: STRUCT<{_KIND}>>"
_SCHEMA = f"STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: ARRAY<{_FIELD}>>>>"
_MESSAGE = f"{_FIELDS}, schema: {_SCHEMA}, payload: STRUCT<{_FIELDS}>"
"""The JSON of a message. With a schema, all is within ``payload``."""

_BEFORE = f"STRUCT<before: {TEXTS}, payload: STRUCT<before: {TEXTS}>>"
"""The row before a change. Its key is read if a message has none."""

_METADATA = (
    *("op", "deleted", "ts_ms", "ts_us", "ts_ns", "transaction", "lsn", "txId", "xmin", "version", "connector", "name"),
    *("server_id", "gtid", "thread", "query", "event_serial_no", "user_name", "rs_id", "redo_thread"),
)
"""The fields that ExtractNewRecordState adds to a row, behind two underscores, beside those of the source."""

_FLAT = f"schema: STRUCT<fields: ARRAY<{_FIELD}>>, payload: {TEXTS}"

_MEANINGS = {
    "org.apache.kafka.connect.data.Decimal": "concat('decimal:', coalesce(f.k.parameters['scale'], '0'))",
    **dict.fromkeys(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"), "'days'"),
    **dict.fromkeys(("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"), "'ms'"),
    **{"io.debezium.time.MicroTimestamp": "'us'", "io.debezium.time.NanoTimestamp": "'ns'"},
    **dict.fromkeys(("io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), "'time_ms'"),
    **{"io.debezium.time.MicroTime": "'time_us'", "io.debezium.time.NanoTime": "'time_ns'"},
}
"""The form of a value, by the names of Debezium's and Kafka Connect's types, as SQL over a field ``f`` of a type ``k``."""

_DECIMALS = {"precise": "base64", "string": "text", "double": "text"}
_BINARIES = {"base64": "base64", "base64-url-safe": "base64url", "hex": "hex"}


def debezium(
    df: DataFrame,
    table: str | None = None,
    *,
    flattened: bool = False,
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    decimals: str = "precise",
    binary: str = "base64",
    timestamps: str | Mapping[str, str] | None = None,
    zone: str = "UTC",
    placeholder: str = PLACEHOLDER,
    tombstones: str = "delete",
    registry: str | Mapping[int, str] | None = None,
) -> Feed:
    r"""Return the change events of Debezium's messages in JSON or Avro.

    Events are ordered by their position in the source's log, never by a timestamp. Rows of the initial snapshot are older than all
    changes. Messages without a value (Kafka's tombstones), heartbeats, and messages of transactions and schema changes are skipped
    and counted. Truncates need ``skipped.operations=none`` in the connector.

    Args:
        df: one message per row: a column ``value``, and others as in Spark's Kafka source. The header ``__debezium.oldkey`` is the
            key that a row had before. Without headers, put the delete and the insert of a changed key into one batch if an update
            leaves columns unchanged.
        table: the source's table, such as ``public.notes``. None if the messages have only one.
        flattened: the messages went through ExtractNewRecordState, which drops truncates. They need
            ``add.fields=op,table,source.sequence,source.snapshot`` and ``delete.tombstone.handling.mode=rewrite``, or
            ``sequence="arrival"``.
        epoch: increase it when the source's log starts over: after a failover, with a new slot, or with a restored database.
        sequence: ``"log"``, or ``"arrival"`` for the offset of the message.
        rename: from the source's column names to the table's.
        decimals: the connector's ``decimal.handling.mode``: ``"precise"``, ``"string"`` or ``"double"``. The scale of precise
            decimals is that of the column, unless messages have schemas.
        binary: its ``binary.handling.mode``: ``"base64"``, ``"base64-url-safe"`` or ``"hex"``.
        timestamps: the unit of timestamps without a zone: ``"ms"``, ``"us"`` or ``"ns"``, for all columns or by column. Messages
            with schemas say it themselves.
        zone: the time zone of these timestamps.
        placeholder: the connector's ``unavailable.value.placeholder``, for a value that an update leaves unchanged.
        tombstones: what a key without a value is, of flattened messages: ``"delete"``, or ``"skip"`` if each delete is also a
            message with ``__deleted``. It has no position in the log, so a delete needs ``sequence="arrival"``, and is rejected
            as ``tombstone`` otherwise. The topic says of which table it is.
        registry: the messages are Avro: the address of their schema registry, or schemas as JSON text by their id. It needs the
            extra ``avro``, also on executors.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> value = '{"op":"u","after":{"id":1},"source":{"sequence":"[\\"20\\",\\"21\\"]","table":"notes"}}'
        >>> feed = feeds.debezium(spark.createDataFrame([(value,)], "value STRING"))
        >>> [(row["source"], row["events"]) for row in feed.tables().collect()]
        [('notes', 1)]
    """
    own = {"decimals": decimals, "binary": binary, "timestamps": timestamps, "zone": zone}
    own |= {"placeholder": placeholder, "tombstones": tombstones}
    messages = df if registry is None else json_of_avro(df, registry, "feeds.debezium()")
    wire = FLATTENED if flattened else ENVELOPES
    return wire.feed(messages, table, epoch=epoch, sequence=sequence, rename=rename, **own)


def _of_envelopes(read: DataFrame, options: FeedOptions) -> DataFrame:
    fields = {name: E.or_else(Sql(f"m.payload.{name}"), Sql(f"m.{name}")) for name in _PAYLOAD}
    header = text_of_bytes(Sql("get(filter(headers, h -> h.key = '__debezium.oldkey'), 0).value"))
    keys = {"message_key": _key_of(Sql("key")), "old_key": _key_of(header)}
    of_before = Sql(f"from_json(json, '{_BEFORE}')")
    is_document = Sql("source.collection IS NOT NULL")
    key = E.case([(is_document, _key_of_document(Sql("message_key")))], Sql("message_key"))
    of_delete = E.or_else(key, let(of_before, lambda b: E.or_else(Sql(f"{b}.payload.before"), Sql(f"{b}.before"))))
    row = E.case([(Sql("document IS NOT NULL"), entries_of(without_types(Sql("document"))))], Sql("after"))
    told = _kinds_of(Sql("get(filter(m.schema.fields, s -> s.field IN ('after', 'before')), 0).fields"))
    rows = _with_steps(
        read,
        {**fields, **keys, "kinds": told, "may_be_unset": _may_be_unset(options)},
        {"keys": E.case([(Sql("op = 'd'"), of_delete)]), "new": row, **_of_source(Sql("source"))},
        {**_LSNS, "left_out": _left_out(options), "known": _KNOWN},
    )
    kinds = [
        (IS_EMPTY, skip("tombstone")),
        (UNKNOWN_SCHEMA, reject("schema-id")),
        (E.any_of([Sql("is_corrupt"), NOT_AVRO]), reject("unparsable")),
        *kinds_of_change("op IN ('c', 'r', 'u')", "new", "op = 'd'", "keys"),
        ("op = 't'", event("truncate")),
        ("op = 'm'", skip("message")),
        ("op IS NOT NULL", reject("unknown-op")),
        ("status IS NOT NULL", skip("transaction")),
        ("ddl IS NOT NULL OR tableChanges IS NOT NULL", skip("schema change")),
        ("ts_ms IS NOT NULL AND after IS NULL AND source IS NULL", skip("heartbeat")),
        ("true", reject("no-op")),
    ]
    columns = {
        "source": table_name("source.db", "source.schema", "coalesce(source.table, source.collection)"),
        "seq": _sequence(Sql("source"), options.epoch),
        "at": E.or_else(moment_of(scalar(Sql("source.ts_us")), "us"), moment_of(scalar(Sql("source.ts_ms")), "ms")),
        "row": _IS_SET,
        "key": Sql("keys"),
        "old_key": Sql("old_key"),
        "unset": Sql("left_out"),
        "is_partial": Sql("op IN ('u', 'r') AND document IS NULL"),
        "creates": Sql("op = 'c'"),
        "key_names": E.case([(is_document, Sql("array('_id')"))], Sql("map_keys(message_key)")),
        **_of_schema(),
    }
    return as_wire(rows, kinds, columns)


def _of_flattened(read: DataFrame, options: FeedOptions) -> DataFrame:
    plain = Sql(f"from_json(json, '{TEXTS}')")
    row = E.case([(Sql("m.schema IS NOT NULL AND m.payload IS NOT NULL"), Sql("m.payload"))], plain)
    own = Sql(f"map_filter(row, (k, v) -> NOT {_is_metadata(Sql('k'))})")
    told = _kinds_of(Sql(f"filter(m.schema.fields, f -> NOT {_is_metadata(Sql('f.field'))})"))
    is_deleted = Sql(f"coalesce({_said('deleted')}, 'false') = 'true'")
    rows = _with_steps(
        read,
        {"row": row, "keys": _key_of(Sql("key")), "kinds": told, "may_be_unset": _may_be_unset(options)},
        {"op": _said("op"), "is_deleted": is_deleted, "new": own, "said": _source_of_flattened(), "known": _KNOWN},
        {**_of_source(Sql("said")), "left_out": _left_out(options)},
        _LSNS,
    )
    is_tombstone, table = Sql(f"({IS_EMPTY}) AND keys IS NOT NULL"), options.own["table"]
    is_placed = options.sequence == "arrival"
    of_tombstones = event("delete") if is_placed else reject("tombstone")
    kinds = [
        *([(is_tombstone, of_tombstones)] if options.own["tombstones"] == "delete" else []),
        (IS_EMPTY, skip("tombstone")),
        (UNKNOWN_SCHEMA, reject("schema-id")),
        (E.any_of([Sql("is_corrupt"), NOT_AVRO, Sql("row IS NULL")]), reject("unparsable")),
        ("is_deleted OR op = 'd'", event("delete")),
        ("op = 't'", event("truncate")),
        ("op IN ('c', 'r', 'u') OR (op IS NULL AND row['__deleted'] IS NOT NULL)", event("upsert")),
        ("op IS NULL", reject("no-op")),
    ]
    named = table_name(_said("db"), _said("schema"), _said("table"))
    columns = {
        "source": E.case([(is_tombstone, _of_topic(table))], named),
        "seq": _sequence(Sql("said"), options.epoch),
        "at": moment_of(E.or_else(_said("source_ts_ms"), _said("ts_ms")), "ms"),
        "row": _IS_SET,
        "key": Sql("coalesce(keys, row)"),
        "unset": Sql("left_out"),
        "is_partial": Sql("op IN ('u', 'r')"),
        "creates": Sql("op = 'c'"),
        "key_names": Sql("map_keys(keys)"),
        **_of_schema(),
    }
    return as_wire(rows, kinds, columns)


def _of_topic(table: str | None) -> Sql:
    """Return the table of a message that does not name it: the feed's, unless its topic is that of another."""
    if table is None:
        return E.NULL
    name = E.text_literal(table)
    is_other = f"topic IS NOT NULL AND topic <> {name} AND NOT endswith(topic, concat('.', {name}))"
    return E.case([(Sql(is_other), Sql("topic"))], name)


def _is_metadata(name: Sql) -> Sql:
    """Return SQL that is true for a field that ExtractNewRecordState has added. Columns may begin with underscores, too."""
    known = ", ".join(E.text_literal(f"__{name}") for name in dict.fromkeys((*_METADATA, *_SOURCE)))
    return Sql(f"(startswith({name}, '__source_') OR startswith({name}, '__transaction_') OR {name} IN ({known}))")


def _said(name: str) -> Sql:
    """Return the text of a field that ExtractNewRecordState has added."""
    return scalar(Sql(f"row[{E.text_literal('__' + name)}]"))


def _source_of_flattened() -> Sql:
    said = {name: E.or_else(Sql(f"row['__source_{name}']"), Sql(f"row['__{name}']")) for name in _SOURCE}
    said["snapshot"] = Sql(f"coalesce({said['snapshot']}, if(row['__op'] = 'r', 'true', 'false'))")
    return Sql(f"named_struct({', '.join(f'{E.text_literal(name)}, {value}' for name, value in said.items())})")


def _with_steps(rows: DataFrame, *steps: Mapping[str, Sql]) -> DataFrame:
    for step in steps:
        rows = select_exprs(rows, ["*", *[f"{E.opaque(value)} AS {name}" for name, value in step.items()]])
    return rows


def _key_of(text: Sql) -> Sql:
    """Return the columns of a message's key, which may have a schema."""
    return let(entries_of(text), lambda v: E.or_else(Sql(f"from_json({v}['payload'], '{TEXTS}')"), v))


def _key_of_document(key: Sql) -> Sql:
    """Return the key of a document of MongoDB: the field ``id`` has the JSON of its ``_id``."""
    whole = Sql(f"concat('{{\"_id\":', {scalar(Sql(f'({key})[{chr(39)}id{chr(39)}]'))}, '}}')")
    return entries_of(without_types(whole))


def _may_be_unset(options: FeedOptions) -> Sql:
    # To search the text takes less time than to go through a map.
    texts, nested = _placeholders(options)
    begins = [nested[0].split(",")[0] + ",", json.loads(nested[1])[0]]
    return E.any_of(Sql(f"contains(value, {form})") for form in [*texts, *map(E.text_literal, begins)])


def _left_out(options: FeedOptions) -> Sql:
    """Return the names of the columns of ``new`` that a message leaves unchanged; null if it cannot leave any."""
    texts, nested = _placeholders(options)
    is_nested = f"left(v, 1) IN ('[', '{{') AND {text_of(Sql('v'))} IN ({', '.join(map(E.text_literal, nested))})"
    is_placeholder = f"coalesce(v IN ({', '.join(texts)}) OR ({is_nested}), false)"
    return E.case([(Sql("may_be_unset"), Sql(f"map_keys(map_filter(new, (k, v) -> {is_placeholder}))"))])


_OF_SET = Sql("map_filter(new, (k, v) -> NOT array_contains(left_out, k))")
_IS_SET = E.case([(E.is_null(Sql("left_out")), Sql("new"))], _OF_SET)


def _placeholders(options: FeedOptions) -> tuple[list[Sql], list[str]]:
    """Return what the connector writes for a value that is unchanged: as a text, and as JSON of nested types.

    It writes the placeholder as text or bytes, of an array as the numbers of its bytes, or as its only element, which may be a
    UUID, and of an hstore as its only entry.
    """
    word = options.own["placeholder"]
    p, raw = E.text_literal(word), word.encode()
    in_bytes = [f"lower(hex({p}))", f"hex({p})"] if options.forms.binary == "hex" else [f"base64(CAST({p} AS BINARY))"]
    numbers = ",".join(str(byte if byte < 128 else byte - 256) for byte in raw)
    name = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
    quoted = json.dumps(word, ensure_ascii=False)
    nested = [f"[{numbers}]", f"[{json.dumps(name)}]", f"[{quoted}]", f"{{{quoted}:{quoted}}}"]
    return [p, *map(Sql, in_bytes)], nested


def _of_source(source: Sql) -> dict[str, Sql]:
    brackets = E.text_literal('[]" ')
    is_first = Sql(f"coalesce({scalar(Sql(f'{source}.`snapshot`'))}, 'false') NOT IN ('false', 'incremental')")
    return {"lsns": Sql(f"translate({source}.sequence, {brackets}, '')"), "is_first": is_first}


_LSNS = {
    "commit": Sql("CASE WHEN startswith(lsns, 'null') THEN '0' ELSE substring_index(lsns, ',', 1) END"),
    "lsn": Sql("substring_index(lsns, ',', -1)"),
}


def _sequence(source: Sql, epoch: int) -> Sql:
    """Return the position in the log, by what a message says of its source; null if it says none.

    Rows of the initial snapshot come first. An open transaction may have changed one of them before it, and commit after it.
    """

    def of(name: str) -> Sql:
        return scalar(Sql(f"{source}.{E.quote(name)}"))

    first = [E.text_literal("/".join([f"{epoch:04}", *["0" * 16] * count])) for count in range(4)]
    file = number_part(Sql(f"regexp_extract({of('file')}, '([0-9]+)$', 1)"))
    scn = number_part(Sql(f"array_max(transform(split({of('commit_scn')}, ','), x -> try_cast(x AS BIGINT)))"))
    server = [of("commit_lsn"), E.or_else(of("change_lsn"), E.text_literal("")), number_or_zero(of("event_serial_no"))]
    is_first = Sql("is_first")
    ways = [
        ("file", first[3], [file, number_part(of("pos")), number_or_zero(of("row"))]),
        ("sequence", first[2], [number_part(Sql("commit")), number_part(Sql("lsn"))]),
        ("commit_lsn", first[1], server),
        ("scn", first[1], [scn, number_part(of("scn")), number_or_zero(of("ssn"))]),
        ("ord", first[1], [number_part(of("ts_ms")), number_part(of("ord"))]),
    ]
    said = [(n, E.case([(is_first, zero)], sequence_of(epoch, parts))) for n, zero, parts in ways]
    return E.case([*((E.is_not_null(Sql(f"{source}.{E.quote(n)}")), place) for n, place in said), (is_first, first[1])])


def _kinds_of(fields: Sql) -> Sql:
    """Return the fields of a message's schema with their kinds; of an array it is that of its elements."""
    own = "named_struct('type', f.type, 'name', f.name, 'parameters', f.parameters)"
    kind = f"if({_IS_ARRAY}, f.items, {own})"
    return Sql(f"transform({fields}, f -> named_struct('field', f.field, 'type', f.type, 'k', {kind}))")


def _of_schema() -> dict[str, Sql]:
    """Return how a message's schema says that values, or elements of arrays, are written, and of which types they are."""
    whens = " ".join(f"WHEN {E.text_literal(name)} THEN {meaning}" for name, meaning in _MEANINGS.items())
    kind = _sql_type_of(Sql("f.k"))
    kind = E.case([(_IS_ARRAY, Sql(f"concat('ARRAY<', {kind}, '>')"))], kind)
    meanings = map_of_structs(Sql("known"), "field", Sql(f"CASE f.k.name {whens} END"))
    return {"meanings": meanings, "types": map_of_structs(Sql("kinds"), "field", kind)}


def _sql_type_of(kind: Sql) -> Sql:
    """Return the SQL type of a type in a message's schema. A number that no DECIMAL of Spark holds is text."""
    defaults = (("connect.decimal.precision", "38"), ("scale", "0"))
    precision, scale = (f"try_cast(coalesce({kind}.parameters['{n}'], '{d}') AS INT)" for n, d in defaults)
    is_decimal = Sql(f"{kind}.name = 'org.apache.kafka.connect.data.Decimal'")
    fits = Sql(f"{precision} BETWEEN 1 AND 38 AND {scale} BETWEEN 0 AND {precision}")
    decimal = E.case([(fits, Sql(f"concat('DECIMAL(', {precision}, ', ', {scale}, ')')"))], E.text_literal("STRING"))
    lists = {sql: ", ".join(map(E.text_literal, names)) for sql, names in _NAMED.items()}
    named = [(Sql(f"{kind}.name IN ({names})"), E.text_literal(sql)) for sql, names in lists.items()]
    known = " ".join(f"WHEN {E.text_literal(wire)} THEN '{sql}'" for wire, sql in _PLAIN.items())
    return E.case([(is_decimal, decimal), *named], Sql(f"CASE {kind}.type {known} ELSE 'STRING' END"))


_IS_ARRAY = Sql("f.type = 'array'")
_KNOWN = Sql(f"filter(kinds, f -> f.k.name IN ({', '.join(map(E.text_literal, _MEANINGS))}))")
"""Columns whose values are written in a way that the schema says."""

_PLAIN = {
    **{"int8": "SMALLINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "boolean": "BOOLEAN"},
    **{"float": "FLOAT", "float32": "FLOAT", "double": "DOUBLE", "float64": "DOUBLE", "bytes": "BINARY"},
}
"""SQL types of Kafka Connect's; others are text."""

_NAMED = {
    "DATE": ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"),
    "TIMESTAMP_NTZ": (
        *("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"),
        *("io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp"),
    ),
    "TIMESTAMP_LTZ": ("io.debezium.time.ZonedTimestamp",),
    "STRING": (
        *("io.debezium.time.Time", "org.apache.kafka.connect.data.Time", "io.debezium.time.MicroTime"),
        *("io.debezium.time.NanoTime", "io.debezium.data.VariableScaleDecimal"),
    ),
}


def _text() -> Sql:
    """Return the JSON of a message. The connector for MongoDB has a text as the row, and others may have columns of these names."""
    renamed = Sql('regexp_replace(value, \'"after" *: *"\', \'"document":"\')')
    is_document = """value RLIKE '"connector" *: *"mongodb"' AND NOT value RLIKE '"after" *: *[{]'"""
    return E.case([(Sql(f"contains(value, '\"mongodb\"') AND {is_document}"), renamed)], Sql("value"))


_ALLOWED = {"decimals": _DECIMALS, "binary": _BINARIES, "tombstones": ("delete", "skip")}
ENVELOPES = Format("debezium", _of_envelopes, _MESSAGE, _text(), allowed=_ALLOWED)
FLATTENED = Format("debezium", _of_flattened, _FLAT, allowed=_ALLOWED)
