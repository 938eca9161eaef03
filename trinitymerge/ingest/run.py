"""Run an ingestion: start its stream, wait for it, and stop it between two micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from trinitymerge import _arguments
from trinitymerge.errors import ConcurrentCommitError, StorageError, TrinityMergeError
from trinitymerge.ingest.config import Config, ConfigError, milliseconds
from trinitymerge.ingest.micro_batch import Merger, Part, Routed, decoded_once, definition_of, found_in, routed_by
from trinitymerge.ingest.report import BatchReport, TableReport
from trinitymerge.ingest.sources import feed_of, messages_now, stream_of, warn_of_rewritten_files
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.session import is_connect
from trinitymerge.table import TrinityTable

_LOOK_EVERY_SECONDS = 1


def ingest(
    spark: SparkSession,
    config: Config,
    once: bool,
    on_report: Callable[[BatchReport], object],
    stop: threading.Event,
    on_progress: Callable[[BatchReport | TableReport], object] = lambda _: None,
) -> None:
    """Merge the messages of a source into tables until an event is set, or those that are there now if ``once``.

    When ``stop`` is set, the micro-batch that is being merged is the last one. ``on_progress`` is called as a micro-batch begins,
    and with the report of each table.
    """
    if is_connect(spark):
        raise ConfigError("trinitymerge ingest needs a session in this process, not Spark Connect. Leave out --remote.")
    merger = Merger(config, on_report, on_progress)
    messages = stream_of(spark, config)
    feed_of(config, messages)
    writer = messages.writeStream.foreachBatch(merger).queryName(f"trinitymerge ingest {config.run.app}")
    writer = writer.option("checkpointLocation", config.checkpoint)
    every = f"{milliseconds(config.run.trigger)} milliseconds"
    warn_of_rewritten_files(spark, config)
    query = _started(writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every), config)
    with _ended(query):
        while not _has_ended(query, merger, config.checkpoint):
            if stop.is_set():
                merger.end()
                if merger.error is not None:
                    raise merger.error
                return


def _started(writer: DataStreamWriter, config: Config) -> StreamingQuery:
    try:
        return writer.start()
    except Exception as error:
        if not is_spark_error(error):
            raise
        if "/metadata already exists" in str(error):
            raise _another(config.checkpoint) from error
        raise StorageError(
            f"The stream cannot start with the checkpoint {config.checkpoint}: {clean_message(error)}",
            path=config.checkpoint,
        ) from error


def _has_ended(query: StreamingQuery, merger: Merger, checkpoint: str) -> bool:
    try:
        return bool(query.awaitTermination(_LOOK_EVERY_SECONDS))
    except Exception as error:
        if merger.error is not None:
            raise merger.error from error
        if "Multiple streaming jobs detected" in str(error):
            raise _another(checkpoint) from error
        raise


def _another(checkpoint: str) -> ConcurrentCommitError:
    return ConcurrentCommitError(
        f"Another process ingests with the checkpoint {checkpoint}, so this one has stopped. Each message is merged once. "
        "Run one process for each [run] app.",
        path=checkpoint,
    )


@contextmanager
def _ended(query: StreamingQuery) -> Iterator[None]:
    try:
        yield
    finally:
        if query.isActive:
            query.stop()


@attrs.frozen
class Planned:
    """The plan of an ingestion for the messages of a source table, or of all (an empty ``source``), that are there now.

    ``plan`` is ``merge`` or ``create``, or why neither is possible; ``columns`` and ``keys`` are of a table to be created.
    """

    source: str
    events: int
    skipped: int
    rejected: int
    path: str
    plan: str = "merge"
    columns: str = ""
    keys: tuple[str, ...] = ()
    isPossible: bool = True


def planned(spark: SparkSession, config: Config) -> tuple[list[Planned], Routed]:
    """Return what an ingestion would do with the messages that are there now, by source table and table. It writes nothing."""
    feed = feed_of(config, messages_now(spark, config))
    decoded = decoded_once(feed)
    try:
        routed = routed_by(config, feed, decoded, found_in(decoded))
        return [_planned(spark, config, part) for part in routed.parts], routed
    finally:
        decoded.unpersist()


def _planned(spark: SparkSession, config: Config, part: Part) -> Planned:
    found = part.found
    skipped, rejected = sum(found.skipped.values()), sum(found.rejected.values())
    told = Planned(found.source or "", found.events, skipped, rejected, part.path)
    if part.error is not None:
        return attrs.evolve(told, plan=str(part.error), isPossible=False)
    if TrinityTable.isTrinityTable(spark, part.path):
        return told
    if not config.target.create:
        return attrs.evolve(told, plan="There is no table, and [target] create is false.", isPossible=False)
    try:
        columns, keys, watermark, history = definition_of(config, part)
        _arguments.definition_of(spark, columns, keys, watermark)
    except TrinityMergeError as error:
        return attrs.evolve(told, plan=str(error), keys=error.facts.get("keys", ()), isPossible=False)
    plan = "create with history" if history else "create"
    return attrs.evolve(told, plan=plan, columns=columns, keys=tuple(keys))
