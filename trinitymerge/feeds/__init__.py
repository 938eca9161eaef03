"""Change feeds, extracts and streams: how a table follows a source.

The functions return the messages of a format as a :class:`Feed`, for ``TrinityTable.applyChanges``. They share arguments:

- ``df``: one message per row. The column ``value`` has it, as text, bytes or struct. The columns ``key``, ``topic``, ``partition``,
  ``offset`` and ``headers`` of Spark's Kafka source are used if they are there.
- ``table``: the source's table, as ``table``, ``schema.table`` or ``database.schema.table``.
- ``epoch``: 0 to 9999. All events of a higher epoch are newer.
- ``sequence``: ``"log"`` orders events by their position in the source's log, and ``"arrival"`` by the offset of the message. Then,
  messages of one key must be in one partition.
- ``timestamps``: the unit of timestamps that are numbers: ``"ms"``, ``"us"`` or ``"ns"``, for all columns or by column.
- ``zone``: the time zone of timestamps without a zone, for columns of type TIMESTAMP.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from trinitymerge._package import FORMER_FORMATS, former_names, registered, registered_names
from trinitymerge.errors import InvalidMergeError, did_you_mean
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.format import Format
from trinitymerge.feeds.formats.canal import canal
from trinitymerge.feeds.formats.debezium import debezium
from trinitymerge.feeds.formats.dms import dms
from trinitymerge.feeds.formats.goldengate import goldengate
from trinitymerge.feeds.formats.maxwell import maxwell
from trinitymerge.feeds.formats.mongo import mongo
from trinitymerge.feeds.formats.sqlserver import sqlserver
from trinitymerge.feeds.formats.table_changes import changes, delta_cdf, iceberg_changes
from trinitymerge.feeds.formats.wal2json import wal2json

__all__ = [
    "Feed",
    "Format",
    "canal",
    "changes",
    "debezium",
    "delta_cdf",
    "dms",
    "goldengate",
    "iceberg_changes",
    "maxwell",
    "mongo",
    "of",
    "sqlserver",
    "wal2json",
]

_GROUP = "trinitymerge.formats"
_OWN = (canal, changes, debezium, delta_cdf, dms, goldengate, iceberg_changes, maxwell, mongo, sqlserver, wal2json)
FORMATS: dict[str, Callable[..., Feed]] = {function.__name__: function for function in _OWN}
"""The functions of formats by name. Other packages add more as entry points (:mod:`trinitymerge._package`)."""


def of(name: str, df: DataFrame, **arguments: Any) -> Feed:
    """Return the feed of messages in a format by its name: one of this module, or of another package.

    Args:
        name: of the format. Another package registers its function as an entry point of the group ``trinitymerge.formats``.
        df: the messages.
        **arguments: those of the format's function, such as ``table``.

    Raises:
        InvalidMergeError: there is no such format.

    Example:
        >>> from trinitymerge import feeds
        >>> rows = spark.sql("SELECT 1 AS id, 'insert' AS _change_type, 5L AS _commit_version")
        >>> feeds.of("delta_cdf", rows, epoch=2).tables().select("events", "first").collect()
        [Row(events=1, first='0002/0000000000000005/0000000000000001')]
    """
    found = format_of(name)
    if found is None:
        raise InvalidMergeError(f"feeds.of(): there is no format '{name}'.{did_you_mean(name, format_names())}")
    return found(df, **arguments)


def format_of(name: str) -> Callable[..., Feed] | None:
    return registered(_GROUP, FORMATS, name, None)


def format_names() -> list[str]:
    return registered_names(_GROUP, FORMATS)


if not TYPE_CHECKING:  # to a type checker every name would exist
    __getattr__ = former_names(__name__, FORMER_FORMATS)
