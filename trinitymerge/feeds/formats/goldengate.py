"""Oracle GoldenGate: JSON messages of the operation formatter of GoldenGate for Big Data."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.json_text import TEXTS, scalar
from trinitymerge.feeds.sequences import sequence_of
from trinitymerge.feeds.total_sql import map_with
from trinitymerge.feeds.wire import IS_EMPTY, FeedOptions, as_wire, event, kinds_of_change, reject, skip
from trinitymerge.feeds.wire_values import BINARIES
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_FIELDS = ("table", "op_type", "op_ts", "pos")
_MESSAGE = f"{', '.join(f'{n}: STRING' for n in _FIELDS)}, primary_keys: ARRAY<STRING>, before: {TEXTS}, after: {TEXTS}"

_MISSING = "_isMissing"
"""The end of the names of fields that say whether a column is missing, with ``includeIsMissingFields``."""


def goldengate(
    df: DataFrame,
    table: str | None = None,
    *,
    epoch: int = 1,
    sequence: str = "log",
    rename: Mapping[str, str] | None = None,
    binary: str = "base64",
    timestamps: str | Mapping[str, str] | None = None,
    zone: str = "UTC",
) -> Feed:
    r"""Return the change events of Oracle GoldenGate's JSON messages, with ``gg.handler.NAME.format=json``.

    Events are ordered by ``pos``, 20 digits: the trail file and the place in it. The messages of a table must come from one trail.
    Give the messages of an initial load a lower ``epoch`` than the changes.

    A column that an update lacks is unchanged, as in compressed updates. Its value is taken from ``before`` if that has it. A key
    has changed if ``before`` has another one. Built from the documentation of Oracle GoldenGate for Big Data 19.1; not tested with
    a real source.

    Args:
        df: one message per row: a column ``value``, and others as in Spark's Kafka source. Messages have ``table``, ``op_type``,
            ``op_ts`` and ``pos``, the default operation types, and null columns: without ``omitNullValues``. The formatter
            ``json_row`` is not read.
        table: the source's table, such as ``SHOP.NOTES``. None if the messages have only one.
        epoch: increase it when a new trail begins, or with a restored database.
        sequence: ``"log"``, or ``"arrival"`` for the offset of the message.
        rename: from the source's column names to the table's.
        binary: how binary values are written: ``"base64"``, ``"base64url"`` or ``"hex"``.
        timestamps: the unit of timestamps that are numbers: ``"ms"``, ``"us"`` or ``"ns"``, for all columns or by column.
        zone: the time zone of timestamps without a zone: of ``op_ts``, and for columns of type TIMESTAMP.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> value = '{"table":"SHOP.NOTES","op_type":"I","pos":"00000000180000071245","after":{"ID":5,"TITLE":"b"}}'
        >>> feed = feeds.goldengate(spark.createDataFrame([(value,)], "value STRING"))
        >>> [(row["source"], row["first"]) for row in feed.tables().collect()]
        [('SHOP.NOTES', '0001/00000000180000071245')]
    """
    own = {"binary": binary, "timestamps": timestamps, "zone": zone}
    return GOLDENGATE.feed(df, table, epoch=epoch, sequence=sequence, rename=rename, **own)


def _decoded(read: DataFrame, options: FeedOptions) -> DataFrame:
    images = {"was": _present(Sql("m.before")), "new": _present(Sql("m.after"))}
    rows = read.selectExpr(
        *("value", "position", "arrival", "is_corrupt", "m.primary_keys"),
        *[f"{scalar(Sql(f'm.{name}'))} AS {name}" for name in _FIELDS],
        *[f"{E.opaque(image)} AS {name}" for name, image in images.items()],
    )
    kinds = [
        (IS_EMPTY, skip("empty")),
        ("is_corrupt", reject("unparsable")),
        ("op_type IS NULL", reject("no-op")),
        *kinds_of_change("op_type IN ('I', 'U')", "new", "op_type = 'D'", "was"),
        ("op_type = 'T'", event("truncate")),
    ]
    is_update = Sql("op_type = 'U'")
    columns = {
        "source": Sql("table"),
        "seq": sequence_of(options.epoch, [Sql("CASE WHEN pos RLIKE '^[0-9]{20}$' THEN pos END")]),
        "at": _moment(options.forms.zone),
        "row": E.case([(is_update, map_with(Sql("new"), Sql("was")))], Sql("new")),
        "key": E.case([(Sql("op_type = 'D'"), Sql("was"))]),
        "old_key": E.case([(is_update, Sql("was"))]),
        "is_partial": is_update,
        "key_names": Sql("primary_keys"),
    }
    return as_wire(rows, kinds, columns)


def _present(image: Sql) -> Sql:
    """Return the columns of an image that are not missing. A field ``A_isMissing`` says it of the column ``A``."""
    end, column = E.text_literal(_MISSING), Sql(f"left(k, length(k) - {len(_MISSING)})")
    says = Sql(f"(endswith(k, {end}) AND array_contains(map_keys({image}), {column}))")
    is_missing = Sql(f"coalesce({scalar(Sql(f'{image}[concat(k, {end})]'))} = 'true', false)")
    kept = Sql(f"map_filter({image}, (k, v) -> NOT {says} AND NOT {is_missing})")
    is_said = Sql(f"exists(map_keys({image}), k -> endswith(k, {end}))")
    return E.case([(is_said, kept)], image)


def _moment(zone: str) -> Sql:
    local = Sql(f"to_utc_timestamp(try_cast(concat(op_ts, 'Z') AS TIMESTAMP_LTZ), {E.text_literal(zone)})")
    has_zone = Sql("op_ts RLIKE ':.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$'")
    return E.case([(has_zone, Sql("try_cast(op_ts AS TIMESTAMP_LTZ)"))], local)


GOLDENGATE = Format("goldengate", _decoded, _MESSAGE, allowed={"binary": BINARIES})
