"""The messages of an ingestion as a DataFrame: of a stream, or of what is there now."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession, functions as F

from trinitymerge import feeds
from trinitymerge.errors import closest
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.wire import FILE, MESSAGE
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.ingest.config import Config, ConfigError
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import is_spark_error
from trinitymerge.spark.sql_text import Sql

_LINES = ("text", "json")
"""The formats of files with a message in each line."""

LOOKED_AT = 100_000
"""Messages that are read to see what an ingestion would do."""

_SHOWN = 5
_logger = logging.getLogger(__name__)

_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.{scala}:{version}"


def stream_of(spark: SparkSession, config: Config) -> DataFrame:
    options = dict(config.source.options)
    if config.source.kind == "kafka":
        limit = {"maxOffsetsPerTrigger": str(config.run.maxRecords)} if config.run.maxRecords else {}
        return _loaded(spark.readStream, config, {**_kafka(config), **limit, **options}, None)
    limit = {"maxFilesPerTrigger": str(config.run.maxFiles)} if config.run.maxFiles else {}
    return _loaded(spark.readStream, config, {**limit, **options}, _columns(spark, config))


def messages_now(spark: SparkSession, config: Config) -> DataFrame:
    """Return the messages that are there now, :data:`LOOKED_AT` at most."""
    options = dict(config.source.options)
    if config.source.kind == "kafka":
        earliest = {} if config.source.start != "latest" else {"startingOffsets": "earliest"}
        found = _loaded(spark.read, config, {**_kafka(config), **options, **earliest}, None)
    else:
        found = _loaded(spark.read, config, options, _columns(spark, config))
    return found.limit(LOOKED_AT)


_PLAIN = "regexp_replace(path, '^([^:/]+):///', '$1:/')"
"""A path as Spark's readers write it: the log of a stream has ``file:///``, and they have ``file:/``."""


def warn_of_rewritten_files(spark: SparkSession, config: Config) -> None:
    """Log a warning if files have changed since the stream read them: Spark does not read them again. It runs a job.

    The checkpoint has the modification time of each file.
    """
    log = f"{config.checkpoint}/sources/0"
    if config.source.kind != "files" or not filesystem_for(spark, log).exists(log):
        return
    entry = "from_json(value, 'path STRING, timestamp BIGINT')"
    read = spark.read.text(log).selectExpr(f"inline(array({entry}))").groupBy(F.expr(f"{_PLAIN} AS path"))
    there = spark.read.format("binaryFile").options(**config.source.options).load(config.source.path)
    names = there.selectExpr("_metadata.file_path AS path", "unix_millis(_metadata.file_modification_time) AS modified")
    names = names.selectExpr(f"{_PLAIN} AS path", "modified")
    found = names.join(read.agg(F.expr("max(timestamp) AS timestamp")), "path").where("modified > timestamp")
    some = [row["path"] for row in found.select("path").orderBy("path").limit(_SHOWN + 1).collect()]
    if some:
        _logger.warning(
            "%s: files have changed since they were read, and are not read again: %s. Write messages into new files, and move a "
            "file into the directory when it is complete.",
            config.run.app,
            ", ".join(some[:_SHOWN]) + (", ..." if len(some) > _SHOWN else ""),
        )


def _kafka(config: Config) -> dict[str, str]:
    source = config.source
    topics = {"subscribe": ",".join(source.topics)} if source.topics else {"subscribePattern": source.pattern}
    known = {"kafka.bootstrap.servers": source.servers, "startingOffsets": source.start, "includeHeaders": "true"}
    return known | topics


def _columns(spark: SparkSession, config: Config) -> str | None:
    """Return the columns of files as DDL; None if Spark knows them by the format."""
    source = config.source
    if source.schema or source.format in _LINES:
        return source.schema or None
    try:
        found = spark.read.format(source.format).options(**source.options).load(source.path)
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise ConfigError(
            f'[source] The columns of the files in {source.path} cannot be read. Give them as schema = "id INT, ...", or begin '
            "when there is a file.",
            key="schema",
        ) from error
    return ", ".join(f"{E.quote(f.name)} {E.sql_type(f.dataType)}" for f in found.schema.fields)


def _loaded(reader: Any, config: Config, options: dict[str, str], columns: str | None) -> DataFrame:
    source = config.source
    kind = source.kind if source.kind == "kafka" else "text" if source.format in _LINES else source.format
    reader = reader.format(kind).options(**options)
    reader = reader.schema(columns) if columns else reader
    try:
        found: DataFrame = reader.load() if kind == "kafka" else reader.load(source.path)
    except Exception as error:
        if not is_spark_error(error):
            raise
        if kind == "kafka" and "kafka" in str(error) and "find" in str(error):
            scala = 13 if int(pyspark.__version__.split(".")[0]) >= 4 else 12
            package = _KAFKA.format(scala=scala, version=pyspark.__version__)
            raise ConfigError(
                f"[source] Spark's Kafka source is not installed. Add --conf spark.jars.packages={package}", key="kind"
            ) from error
        raise ConfigError(f"[source] cannot be read: {str(error).splitlines()[0]}", key="path") from error
    if kind != "text":
        return found
    lines = found.selectExpr("value", f"_metadata.file_path AS {FILE}")
    return lines if source.format == "text" else _of_objects(lines)


_HEADERS = "ARRAY<STRUCT<key: STRING, value: STRING>>"
_BYTES = "coalesce(try_to_binary(h.value, 'base64'), encode(h.value, 'UTF-8'))"
"""The value of a header in JSON: base64, as Spark writes binary values, or a text. A JSON object is never base64."""


def _of_objects(lines: DataFrame) -> DataFrame:
    """Return the messages of lines that have the columns of Kafka's as JSON. A line that is none of these is the message itself."""
    shape = {**MESSAGE, "headers": _HEADERS}
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in shape.items())
    read = f"from_json(value, 'STRUCT<{fields}, _corrupt: STRING>', map('columnNameOfCorruptRecord', '_corrupt'))"
    parsed = lines.selectExpr("value AS line", FILE, f"{E.opaque(Sql(read))} AS m")
    is_object = "m._corrupt IS NULL AND array_contains(json_object_keys(line), 'value')"
    values = f"CASE WHEN {is_object} THEN m.value ELSE line END AS value"
    others = [f"m.`{name}`" for name in MESSAGE if name not in ("value", "headers")]
    headers = f"transform(m.headers, h -> named_struct('key', h.key, 'value', {_BYTES})) AS headers"
    return parsed.selectExpr(values, *others, headers, FILE)


def feed_of(config: Config, messages: DataFrame) -> Feed:
    name, options = config.feed.format, config.feed.options
    function, names = feeds.format_of(name), feeds.format_names()
    if function is None:
        raise ConfigError(f"[feed] format takes {', '.join(names)}, got '{name}'.{closest(name, names)}", key="format")
    known = [p.name for p in inspect.signature(function).parameters.values() if p.name not in ("df", "table")]
    for option in options:
        if option not in known:
            raise ConfigError(
                f"[feed] {option} is unknown for {name}.{closest(option, known)} Known are: {', '.join(known)}.",
                key=option,
            )
    return function(messages, **options)
