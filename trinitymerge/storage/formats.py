"""How batches are written to and read from files, whatever the user's session is set to (S8).

Owns: which of Spark's sources handles a file format, and every option that decides what a value becomes in a file or which
rows a file gives back. Knows nothing of tables.

Settings that change neither are the user's: compression, sizes of files, which filters reach them. Calendars need no option to
read: a file says which one it was written in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.sessions import analysed, version_of
from trinitymerge.settings import held
from trinitymerge.storage import misread
from trinitymerge.storage.files import escape_glob

_SOURCES = {
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
}
"""By class: which one a short name means, and by which of its interfaces Spark reads it, are settings."""

_READING = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "orc.force.positional.evolution": "false",
}
"""A table must not lose rows or mistake columns silently."""

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_MICROS = {_TIMESTAMPS: "TIMESTAMP_MICROS"}
"""Spark's other types cut off digits, or cannot be filtered by."""

_ROWS_OF_A_PAGE = {"parquet.page.row.count.limit": "5000"}
"""A quarter of what Parquet takes by itself: who looks up a few keys far apart reads and decodes whole pages. Measured on 20
million rows, a merge of a hundred keys took half the time, and a full read the same; with 2,000 rows, reads were slower."""

_WRITING = {
    **_MICROS,
    **_ROWS_OF_A_PAGE,
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "maxRecordsPerFile": "0",
}

_WRITING_HELD = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""What no option can say. Other calendars have no 10 October 1582: it would become the 15th, or an error."""

_TIMESTAMPS_ARE_AN_OPTION = (4, 3)


_UNREADABLE = (
    ("orc", '"timestamp"', {"spark.sql.timestampType": "TIMESTAMP_NTZ"}),
    (
        "parquet",
        '"timestamp_ntz"',
        {"spark.sql.parquet.inferTimestampNTZ.enabled": "false", "spark.sql.parquet.enableVectorizedReader": "false"},
    ),
)
"""Format, type and settings under which Spark 3.5 fails to read what it has written."""


def reader_of(spark: SparkSession, file_format: str, schema: StructType | None = None) -> DataFrameReader:
    """A reader of files of a table's format.

    Args:
        spark: the session.
        file_format: ``"parquet"`` or ``"orc"``.
        schema: what to read; without it the columns of the files.

    Raises:
        UnsupportedStorageError: the session is set so that this Spark would fail on a column, and no option helps.
    """
    reader = spark.read.format(_SOURCES[file_format]).options(**_READING)
    if schema is None:
        return reader
    text = schema.json()
    for unreadable, kind, settings in _UNREADABLE:
        if file_format == unreadable and kind in text:
            _refuse_to_fail(spark, kind, settings)
    return reader.schema(schema)


def is_missing(error: Exception) -> bool:
    """True if Spark says by this error that a path it was told to read is not there."""
    return "PATH_NOT_FOUND" in str(error)


def spark_finds(spark: SparkSession, path: str) -> bool:
    """True if a path is there for Spark, which may run elsewhere than this process. Nothing is read."""
    try:
        analysed(spark.read.format("binaryFile").options(**_READING).load(escape_glob(path)))
    except Exception as error:
        if not is_missing(error):
            raise
        return False
    return True


def _refuse_to_fail(spark: SparkSession, kind: str, settings: Mapping[str, str]) -> None:
    if any(str(spark.conf.get(name)).lower() != value.lower() for name, value in settings.items()):
        return
    if version_of(spark) < (4, 0):
        listed = " and ".join(f"{name} = {value}" for name, value in settings.items())
        raise UnsupportedStorageError(
            f"Spark {spark.version} cannot read columns of type {kind} from this table's files under {listed}. "
            "Set that differently, or use Spark 4."
        )


def table_of(spark: SparkSession, name: str) -> DataFrame:
    """The rows of a table in Spark's own catalog, whose files are of one of these formats."""
    return spark.read.options(**_READING).table(name)


def write(rows: DataFrame, file_format: str, path: str, partitions: Sequence[str] = ()) -> None:
    """Writes rows into a directory; one Spark job.

    Args:
        rows: what to write.
        file_format: ``"parquet"`` or ``"orc"``.
        path: of the directory.
        partitions: columns whose values become the names of directories in it.

    A value that the files would give back as another one fails the job: see :mod:`trinitymerge.storage.misread`.
    """
    with _held_for(rows.sparkSession, file_format):
        writer = (
            misread.refused(rows, file_format).write.format(_SOURCES[file_format]).options(**_WRITING).mode("append")
        )
        (writer.partitionBy(*partitions) if partitions else writer).save(path)


@contextmanager
def _held_for(spark: SparkSession, file_format: str) -> Iterator[None]:
    if file_format != "parquet":
        yield
        return
    more = {} if version_of(spark) >= _TIMESTAMPS_ARE_AN_OPTION else _MICROS
    with held(spark, {**_WRITING_HELD, **more}):
        yield
