"""Change feeds, extracts and streams: how a table follows a source.

The functions return the messages of a format as a :class:`Feed`, for ``TrinityTable.applyChanges``.
"""

from typing import TYPE_CHECKING

from trinitymerge._package import FORMER_FORMATS, former_names
from trinitymerge.feeds.feed import Feed
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
    "canal",
    "changes",
    "debezium",
    "delta_cdf",
    "dms",
    "goldengate",
    "iceberg_changes",
    "maxwell",
    "mongo",
    "sqlserver",
    "wal2json",
]

if not TYPE_CHECKING:  # to a type checker every name would exist
    __getattr__ = former_names(__name__, FORMER_FORMATS)
