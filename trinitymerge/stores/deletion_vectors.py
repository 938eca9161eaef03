"""The files of deletion vectors: which stored rows a scan of several batches leaves out (D1, D2; docs/format.md)."""

from __future__ import annotations

import hashlib
import logging

import attrs
from pyspark.sql import DataFrame, SparkSession, types as T

from trinitymerge.fs.base import FileInfo
from trinitymerge.log.actions import SetDeletionVectors
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.session import join
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.directories import BatchDirectories
from trinitymerge.stores.file_format import read_files

_logger = logging.getLogger(__name__)

VECTORS_PREFIX = "vectors-"
"""What the names of the directories of deletion vectors begin with."""

SCHEMA = T.StructType(
    [
        T.StructField(C.MARKED_IN, T.StringType()),
        T.StructField(C.MARKED_FILE, T.StringType()),
        T.StructField(C.MARKED_SIZE, T.LongType()),
        T.StructField(C.WORDS, T.ArrayType(T.LongType())),
    ]
)
"""One row for each data file with a marked row: its batch, name and size, and a bit for each of its rows, 64 in a word."""

POSITION = {
    C.FILE_OF_ROW: Sql("_metadata.file_name"),
    C.SIZE_OF_FILE: Sql("_metadata.file_size"),
    C.ROW_IN_FILE: Sql("_metadata.row_index"),
}
"""The position of a row that is read from a Parquet file."""


def without_marked(rows: DataFrame, vectors: DataFrame) -> DataFrame:
    """Return the rows that no deletion vector marks, lazily, by their positions; nothing is shuffled.

    They are joined by the size of the file, as numbers are compared faster than names. Names are compared for marked rows only.
    """
    word = f"coalesce(get({C.WORDS}, CAST(shiftright({C.ROW_IN_FILE}, 6) AS INT)), 0L)"
    is_marked = Sql(f"(shiftright({word}, CAST({C.ROW_IN_FILE} & 63 AS INT)) & 1L) = 1L")
    is_of_file = [is_marked, Sql(f"{C.BATCH} = {C.MARKED_IN}"), Sql(f"{C.FILE_OF_ROW} = {C.MARKED_FILE}")]
    condition = f"{C.SIZE_OF_FILE} = {C.MARKED_SIZE} AND {E.or_else(E.all_of(is_of_file), E.FALSE)}"
    return join(rows, vectors, condition, "left_anti", is_small=True)


@attrs.frozen(eq=False)
class VectorFiles:
    """The deletion vectors of a table. Others may vacuum a file: each read lists it, and checks it again if it has changed."""

    spark: SparkSession
    directories: BatchDirectories
    _whole: dict[str, FileInfo] = attrs.field(factory=dict, init=False)
    _warned: set[str] = attrs.field(factory=set, init=False)

    def are_whole(self, vectors: SetDeletionVectors) -> bool:
        """Return True if the file is there, and is the one that the log says. If not, reads are only slower: one warning."""
        try:
            file = self._file(vectors.id)
            if self._whole.get(vectors.id) == file:
                return True
            problem = "" if self._checksum(file) == vectors.checksum else "it is not the file that the log says"
        except OSError as error:
            problem = str(error)
        if not problem:
            self._whole[vectors.id] = file
            return True
        if vectors.id not in self._warned:
            self._warned.add(vectors.id)
            _logger.warning(
                "%s: the deletion vectors in %s cannot be used, and reads are slower until new ones are made: %s",
                self.directories.path,
                self.directories.batch_path(vectors.id),
                problem,
            )
        return False

    def _file(self, vectors_id: str) -> FileInfo:
        files = self.directories.data_files(vectors_id)
        if len(files) != 1:
            raise FileNotFoundError(f"{len(files)} files where one is expected")
        return files[0]

    def _checksum(self, file: FileInfo) -> str:
        return hashlib.sha256(self.directories.files.read(file.path)).hexdigest()

    def checksum(self, vectors_id: str) -> str:
        return self._checksum(self._file(vectors_id))

    def frame(self, vectors_id: str) -> DataFrame:
        """Return deletion vectors as :data:`SCHEMA`, lazily."""
        file = self._whole.get(vectors_id) or self._file(vectors_id)
        return read_files(self.spark, "parquet", [file.path], SCHEMA)
