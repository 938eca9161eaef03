"""The messages of change feeds: one shape that every format is decoded into (F1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame, types as T

from trinitymerge.errors import InvalidMergeError, missing
from trinitymerge.feeds.json_text import TEXTS
from trinitymerge.feeds.sequences import number_part, sequence_of
from trinitymerge.feeds.total_sql import within_years
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.session import select_exprs
from trinitymerge.spark.sql_text import Sql

WIRE = {
    **dict.fromkeys(("op", "skipped", "rejected", "source", "seq"), "STRING"),
    "at": "TIMESTAMP_LTZ",
    **dict.fromkeys(("row", "key", "old_key"), TEXTS),
    "unset": "ARRAY<STRING>",
    **dict.fromkeys(("is_partial", "creates", "is_image"), "BOOLEAN"),
    **dict.fromkeys(("meanings", "types"), TEXTS),
    "key_names": "ARRAY<STRING>",
}
"""The columns that a format makes of messages.

- ``op`` is ``upsert``, ``delete`` or ``truncate``. It is null if the message is ``skipped`` or ``rejected``, which say why.
- ``source`` names the table, as ``database.schema.table``.
- ``seq`` is the event's position in the source's log, ``at`` the time of its commit.
- ``row`` has the values as ``json_text.py`` writes them, ``key`` those of the key of a delete. ``old_key`` has those that the key's
  columns had before; what it lacks is as in ``row``.
- ``unset`` names the columns that the event leaves unchanged. If it ``is_partial``, so are the columns that its row lacks.
- ``creates`` says that an event may be the second half of a key change. A delete that ``is_image`` is the image of a row before its
  update. It is skipped if the commit has the row after it.
- ``meanings`` says how values are written, by column (``wire_values.py``), ``types`` as which SQL types they are best stored, and
  ``key_names`` what the primary key is; null where messages do not say it.
"""

MESSAGE = {
    **{"value": "STRING", "key": "STRING", "topic": "STRING", "partition": "INT", "offset": "BIGINT"},
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""The columns of a DataFrame of messages, as Spark's Kafka source names them. All but ``value`` may be missing."""

FILE = "file"
"""The column of the path of the file with the message, for messages that come from files."""


@attrs.frozen
class FeedOptions:
    """How a feed is read.

    Attributes:
        call: that made the feed, for errors.
        epoch: 0 to 9999, the first part of the sequence. All events of a higher epoch are newer: for a source that was restored,
            or has a new replication slot.
        own: the arguments that only this format takes, and ``table``.
    """

    call: str
    epoch: int
    sequence: str
    rename: Mapping[str, str]
    forms: WireForms
    own: Mapping[str, Any]


Decoder: TypeAlias = Callable[[DataFrame, FeedOptions], DataFrame]
"""From the user's DataFrame to :data:`WIRE`, with the messages' ``value`` and ``position``."""


def messages_of(frame: DataFrame, options: FeedOptions) -> DataFrame:
    """Return a DataFrame with the columns of :data:`MESSAGE`, ``position`` and ``arrival``; what it lacks is null."""
    if "value" not in frame.columns:
        raise InvalidMergeError(
            f"{options.call} needs a column 'value' with the messages. {missing(['value'], 'the DataFrame', frame.columns)} "
            "Rename it: df.withColumnRenamed('message', 'value')."
        )
    shown = [f"{_as_message(frame, column, Sql(kind))} AS {E.quote(column)}" for column, kind in MESSAGE.items()]
    beside = [f"{_position(frame)} AS position", f"{arrival(frame, options)} AS arrival"]
    return select_exprs(frame, [*shown, *beside])


PLACE = Sql(
    "CASE WHEN position IS NULL THEN sha2(coalesce(value, ''), 256) WHEN endswith(position, '#') "
    "THEN concat(position, left(sha2(value, 256), 16)) ELSE position END"
)
"""Where a message stands, in full. The digest is computed only for messages that are shown: it costs as much as a merge."""

_DIGEST = re.compile(r"(^|#)[0-9a-f]{16,64}$")
_SHOWN = 80


def place_in_words(place: str, value: str | None) -> str:
    """Return :data:`PLACE` of a message, for an error. Where that is a digest, how the message begins."""
    if value is None or not _DIGEST.search(place):
        return place
    file, _, _ = place.rpartition("#")
    return f"{file and f'{file}, '}{value[:_SHOWN]!r}{'...' if len(value) > _SHOWN else ''}"


def _position(frame: DataFrame) -> Sql:
    places = []
    if {"topic", "partition", "offset"} <= {*frame.columns}:
        places.append((Sql("offset IS NOT NULL"), Sql("concat_ws('/', topic, partition, offset)")))
    if FILE in frame.columns:
        places.append((Sql(f"{FILE} IS NOT NULL"), Sql(f"concat({FILE}, '#')")))
    return E.case(places, Sql("CAST(NULL AS STRING)"))


def arrival(frame: DataFrame, options: FeedOptions) -> Sql:
    if options.sequence != "arrival":
        return Sql("CAST(NULL AS STRING)")
    if "offset" not in frame.columns:
        raise InvalidMergeError(
            f"{options.call}: sequence=\"arrival\" needs a column 'offset', the number of each message in its partition. "
            f"{missing(['offset'], 'the DataFrame', frame.columns)}"
        )
    return sequence_of(options.epoch, [number_part(Sql("CAST(offset AS STRING)"))])


def _as_message(frame: DataFrame, column: str, kind: Sql) -> Sql:
    if column not in frame.columns:
        return Sql(f"CAST(NULL AS {kind})")
    found = frame.schema[column].dataType
    if column in ("value", "key") and isinstance(found, (T.StructType, T.MapType, T.ArrayType)):
        return Sql(f"to_json({E.quote(column)}, map('ignoreNullFields', 'false'))")
    return Sql(f"CAST({E.quote(column)} AS {kind})")


IS_EMPTY = "value IS NULL OR trim(value) IN ('', 'null')"


@attrs.frozen
class Kind:
    """The kind of a message: an event, or skipped or rejected with the reason."""

    column: str
    value: str

    @property
    def struct(self) -> Sql:
        said = {name: E.text_literal(self.value) if name == self.column else "CAST(NULL AS STRING)" for name in _KINDS}
        return Sql(f"named_struct({', '.join(f'{E.text_literal(name)}, {value}' for name, value in said.items())})")


_KINDS = ("op", "skipped", "rejected")
event, skip, reject = (partial(Kind, column) for column in _KINDS)


def kinds_of_change(is_upsert: str, row: str, is_delete: str, key: str) -> list[tuple[str, Kind]]:
    """Return the kinds of the messages that change rows. An upsert needs a row, and a delete a key."""
    kinds = [(f"{is_upsert} AND {row} IS NOT NULL", event("upsert")), (is_upsert, reject("no-row"))]
    return [*kinds, (f"{is_delete} AND {key} IS NOT NULL", event("delete")), (is_delete, reject("no-key"))]


def table_name(*names: str) -> Sql:
    """Return the name of a message's table behind those around it, which may be null; null if the table has no name."""
    return Sql(f"CASE WHEN {names[-1]} <> '' THEN concat_ws('.', {', '.join(names)}) END")


def as_wire(parsed: DataFrame, kinds: Iterable[tuple[str, Kind]], columns: Mapping[str, Sql]) -> DataFrame:
    """Return parsed messages as :data:`WIRE`, with ``value`` and ``position``.

    The first kind whose condition is true says what a message is. Others are of an unknown operation.
    """
    branches = [(Sql(c), kind.struct) for c, kind in kinds]
    kind_of_message = E.opaque(E.case(branches, reject("unknown-op").struct))
    moment = E.opaque(Sql(f"CAST({columns.get('at', E.NULL)} AS TIMESTAMP_LTZ)"))
    told = select_exprs(parsed, ["*", f"{kind_of_message} AS kind_of_message", f"{moment} AS moment"])
    said = {name: Sql(f"kind_of_message.{name}") for name in _KINDS}
    values = {**dict.fromkeys(WIRE, E.NULL), **said, **columns}
    values["seq"] = Sql(f"coalesce(arrival, {values['seq']})")
    values["at"] = within_years(Sql("moment"))
    shown = [f"{E.opaque(Sql(f'CAST({values[column]} AS {kind})'))} AS {column}" for column, kind in WIRE.items()]
    return select_exprs(told, [*shown, "value", "position"])
