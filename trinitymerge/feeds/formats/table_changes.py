"""Changes of other tables: those of this library, Delta Lake's change data feed, Iceberg's changelog."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame

from trinitymerge.errors import InvalidMergeError, missing
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.sequences import number_part, sequence_of
from trinitymerge.feeds.typed_columns import texts_of, types_of
from trinitymerge.feeds.wire import FeedOptions, as_wire, event, reject
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_ORDINAL, _SNAPSHOT = "_change_ordinal", "_commit_snapshot_id"


def changes(df: DataFrame, *, epoch: int = 1, rename: Mapping[str, str] | None = None) -> Feed:
    """Return the changes that ``TrinityTable.changes`` has found in a table, for another table.

    An event's place in the sequence is the version of its commit.

    Args:
        df: the table's columns, ``_change_type`` and ``_commit_version``.
        epoch: increase it when the source table was created again.
        rename: from the source's column names to the table's.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> copy = TrinityTable.create(spark, f"{tmp_path}/copy", "order_id STRING, amount DECIMAL(10,2), _seq STRING",
        ...     primaryKey="order_id", watermarkKey="_seq")
        >>> copy.applyChanges(feeds.changes(orders.changes(0))).execute().feed.upserts
        2
    """
    return _feed(CHANGES, df, [_TYPE, _VERSION], epoch, rename)


def delta_cdf(df: DataFrame, *, epoch: int = 1, rename: Mapping[str, str] | None = None) -> Feed:
    """Return the changes of a Delta table: its change data feed.

    An event's place in the sequence is the version of its commit. Built from the documentation of Delta Lake 4.0.

    Args:
        df: what Delta reads with ``readChangeFeed``: the table's columns, ``_change_type``, ``_commit_version`` and
            ``_commit_timestamp``.
        epoch: increase it when the source table was created again.
        rename: from the source's column names to the table's.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> rows = "VALUES (1, 'a', 'insert', 5L, timestamp'2024-05-01 10:00:00')"
        >>> cdf = spark.sql(f"SELECT * FROM {rows} AS t(id, v, _change_type, _commit_version, _commit_timestamp)")
        >>> feeds.delta_cdf(cdf).tables().select("events", "first").collect()
        [Row(events=1, first='0001/0000000000000005/0000000000000001')]
    """
    return _feed(DELTA_CDF, df, [_TYPE, _VERSION], epoch, rename)


def iceberg_changes(df: DataFrame, *, epoch: int = 1, rename: Mapping[str, str] | None = None) -> Feed:
    """Return the changes of an Iceberg table: the view of ``create_changelog_view``.

    An event's place in the sequence is the ordinal of its snapshot, which Iceberg counts from 0 in each view. Built from the
    documentation of Iceberg 1.10.

    Args:
        df: the table's columns, ``_change_type``, ``_change_ordinal`` and ``_commit_snapshot_id``.
        epoch: increase it with each view: its ordinals begin at 0.
        rename: from the source's column names to the table's.

    Returns:
        The feed, for ``TrinityTable.applyChanges``.

    Raises:
        InvalidMergeError: an argument has another value, or a column is missing; some are found when the feed is read.

    Example:
        >>> from trinitymerge import feeds
        >>> rows = "VALUES (1, 'a', 'INSERT', 0, 77L), (2, 'b', 'UPDATE_BEFORE', 1, 78L)"
        >>> view = spark.sql(f"SELECT * FROM {rows} AS t(id, v, _change_type, _change_ordinal, _commit_snapshot_id)")
        >>> feeds.iceberg_changes(view).tables().select("events", "last").collect()
        [Row(events=2, last='0001/0000000000000001/0000000000000000')]
    """
    return _feed(ICEBERG_CHANGES, df, [_TYPE, _ORDINAL, _SNAPSHOT], epoch, rename)


def _feed(wire: Format, df: DataFrame, needed: list[str], epoch: int, rename: Mapping[str, str] | None) -> Feed:
    lacking = [column for column in needed if column not in df.columns]
    if lacking:
        raise InvalidMergeError(
            f"feeds.{wire.name}() needs the columns of a change feed. {missing(lacking, 'the DataFrame', df.columns)}"
        )
    return wire.feed(df, epoch=epoch, rename=rename, has_images=True)


def _decoded(order: str, hidden: str, frame: DataFrame, options: FeedOptions) -> DataFrame:
    """Return the rows of changes. Of a delete and an insert of one key in one commit, the insert is later.

    The image of a row before an update is a delete, unless its commit has the row after the update. A filter may have dropped that
    row, or the update has changed the key.
    """
    told = {_TYPE, _VERSION, _TIME, _ORDINAL, _SNAPSHOT, hidden}
    columns = [n for n in frame.columns if n not in told]
    texts, types = texts_of(frame, columns), types_of(frame, columns)
    shown = frame.selectExpr(
        *[f"lower({E.quote(_TYPE)}) AS kind_of_change", f"CAST({E.quote(order)} AS STRING) AS place"],
        *[f"{texts} AS texts", f"{types} AS told"],
        f"{E.quote(_TIME) if _TIME in frame.columns else E.NULL} AS committed",
        f"to_json(struct(*), {E.ALL_AS_JSON}) AS value",
        *["CAST(NULL AS STRING) AS position", "CAST(NULL AS STRING) AS arrival"],
    )
    is_delete = Sql("kind_of_change = 'delete'")
    is_image = Sql("kind_of_change IN ('update_preimage', 'update_before')")
    kinds = [
        (is_image, event("delete")),
        ("kind_of_change IN ('insert', 'update_postimage', 'update_after')", event("upsert")),
        (is_delete, event("delete")),
        ("kind_of_change IS NULL", reject("no-op")),
    ]
    is_gone = E.any_of([is_delete, is_image])
    rank = number_part(E.case([(is_gone, Sql("'0'"))], Sql("'1'")))
    values = {
        "seq": sequence_of(options.epoch, [number_part(Sql("place")), rank]),
        "at": Sql("CAST(committed AS TIMESTAMP_LTZ)"),
        "row": E.case([(E.not_(is_image), Sql("texts"))]),
        "key": E.case([(is_gone, Sql("texts"))]),
        "is_image": is_image,
        "types": Sql("told"),
    }
    return as_wire(shown, kinds, values)


_FORMS = WireForms(are_marked=False)
CHANGES = Format("changes", partial(_decoded, _VERSION, "_watermark"), forms=_FORMS)
DELTA_CDF = Format("delta_cdf", partial(_decoded, _VERSION, ""), forms=_FORMS)
ICEBERG_CHANGES = Format("iceberg_changes", partial(_decoded, _ORDINAL, ""), forms=_FORMS)
