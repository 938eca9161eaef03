"""`export`: write the live rows as plain files."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge import _format, reader
from trinitymerge.errors import StorageError, TableExistsError, UnsupportedStorageError, counted, sized
from trinitymerge.fs.base import FileSystem, split_scheme, temporary_beside
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.log import reporting
from trinitymerge.log.batches import Batches
from trinitymerge.log.files import require_outside
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.conf import capture_observations, with_session_settings
from trinitymerge.spark.errors import classify_failure, clean_message, is_spark_error
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore
from trinitymerge.stores.file_format import write

_RENAMING = (None, "file", "hdfs", "webhdfs", "swebhdfs", "viewfs", "abfs", "abfss")
"""Schemes of storages that rename a directory as a whole."""

_DAY_TIME = "CAST({} AS INTERVAL DAY TO SECOND)"
_YEAR_MONTH = "CAST({} AS INTERVAL YEAR TO MONTH)"
_MICROSECONDS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}


@attrs.frozen
class ExportResult(_format.Result):
    """The result of an export of the live rows of a version."""

    path: str
    version: int
    rows: int
    files: int
    bytes: int
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        files = f"{counted(self.files, 'file')} of Parquet ({sized(self.bytes)})"
        return f"version {self.version}: {counted(self.rows)} in {files} at {self.path}"


@with_session_settings
def export(store: ManagedStore, snapshot: Snapshot, path: str) -> ExportResult:
    """Write the live rows of a version into a directory that does not exist."""
    start, batches = time.perf_counter(), Batches.of(snapshot)
    files = filesystem_for(store.spark, path)
    target = files.qualify(path)
    _require_free(files, target)
    gathering, temporary = Metrics({"rows": "count(1)"}), temporary_beside(target)
    slow = reporting.working(store.path, "export", f"an export writes the live rows to {target}")
    with _nothing_left(files, temporary), slow:
        with _naming_the_table(store.path, target):
            rows = gathering.observe(reader.live_rows(store, batches))
            with capture_observations(store.spark):
                write(_plain(rows, snapshot.definition), "parquet", temporary)
        observed = gathering.collect()
        store.verify_files_after_read(batches.batches)
        found = _cleared(files, temporary)
        _require_free(files, target)
        _publish(files, temporary, target)
    seconds = time.perf_counter() - start
    return ExportResult(target, snapshot.version, int(observed["rows"]), len(found), sum(found), seconds)


def _require_free(files: FileSystem, target: str) -> None:
    if files.exists(target):
        raise _taken(target)
    require_outside(files, target)


def _taken(target: str) -> TableExistsError:
    return TableExistsError(
        f"export() writes into a new directory, and {target} exists. Choose another path, or delete it. Nothing was "
        "written.",
        path=target,
    )


def _publish(files: FileSystem, temporary: str, target: str) -> None:
    """Rename the directory, unless another process has created the target: Hadoop would move it inside.

    Object stores cannot rename directories, so each file is moved.
    """
    try:
        if split_scheme(target)[0] in _RENAMING:
            files.move(temporary, target)
        else:
            _move_files(files, temporary, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise _taken(target) from None
        raise StorageError(
            f"The exported files could not be moved to {target}: {error}. Run it again. Nothing was written.",
            path=target,
        ) from error
    stray = f"{target}/{temporary.rpartition('/')[2]}"
    if files.exists(stray):
        files.delete(stray)
        raise _taken(target)


def _move_files(files: FileSystem, temporary: str, target: str) -> None:
    """Move all files, or none."""
    found = [(f.path, f"{target}/{f.name}") for f in files.list(temporary)]
    try:
        files.mkdirs(target)
        for path, moved in found:
            files.move(path, moved)
    except BaseException:
        for _, moved in found:
            files.delete(moved)
        files.remove_empty(target)
        raise
    files.delete(temporary)


@contextmanager
def _nothing_left(files: FileSystem, temporary: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        files.delete(temporary)
        raise


@contextmanager
def _naming_the_table(path: str, target: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise (classify_failure(error) or StorageError)(
            f"The live rows of {path} could not be written to {target}: {clean_message(error)} If a vacuum or purge has "
            "deleted files concurrently, open the table again and repeat the call. Nothing was written.",
            path=target,
        ) from None


def _cleared(files: FileSystem, directory: str) -> list[int]:
    """Return the sizes of the data files, and delete Spark's other files, which some engines would read."""
    try:
        found = list(files.walk(directory))
    except FileNotFoundError:
        raise UnsupportedStorageError(
            f"Spark's server has written {directory}, and it is not on this machine. Nothing was exported. Use a path that both "
            "see under the same name (a shared mount, plain letters), or a classic session.",
            path=directory,
        ) from None
    for file in found:
        if file.name.startswith((".", "_")):
            files.delete(file.path)
    files.sync_dir(directory)
    return [f.size_bytes for f in found if not f.name.startswith((".", "_"))]


# Types ----------------------------------------------------------------------------------------------------------------


def _plain(rows: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return the rows with portable types: an interval as microseconds or months, a variant as JSON text."""
    known = [(_known(E.quote(f.name), f.type), E.quote(f.name)) for f in definition.fields]
    columns = [name if value == name else f"{value} AS {name}" for value, name in known]
    return rows if columns == [name for _, name in known] else rows.selectExpr(*columns)


def _known(value: Sql, kind: Any, depth: int = 0) -> Sql:
    """Return a value with a portable type; the same text if its type is portable."""
    if isinstance(kind, str):
        return _known_value(value, kind)
    if kind["type"] == "struct":
        fields = [(f["name"], Sql(f"{value}.{E.quote(f['name'])}"), f["type"]) for f in kind["fields"]]
        known = [(name, inner, _known(inner, of, depth)) for name, inner, of in fields]
        if all(inner == new for _, inner, new in known):
            return value
        parts = ", ".join(f"{new} AS {E.quote(name)}" for name, _, new in known)
        return E.case([(E.is_not_null(value), Sql(f"struct({parts})"))])
    item = Sql(f"item{depth}")
    for part, call in (
        ("elementType", "transform({}, {} -> {})"),
        ("keyType", "transform_keys({}, ({}, other) -> {})"),
        ("valueType", "transform_values({}, (other, {}) -> {})"),
    ):
        new = _known(item, kind[part], depth + 1) if part in kind else item
        value = value if new == item else Sql(call.format(value, item, new))
    return value


def _known_value(value: Sql, kind: str) -> Sql:
    if kind == "variant":
        return Sql(f"to_json({value})")
    if not kind.startswith("interval "):
        return value
    if "year" in kind or "month" in kind:
        months = _YEAR_MONTH.format(value)
        return Sql(f"(extract(YEAR FROM {months}) * 12 + extract(MONTH FROM {months}))")
    span = _DAY_TIME.format(value)
    parts = " + ".join(f"CAST(extract({unit} FROM {span}) * {each}L AS BIGINT)" for unit, each in _MICROSECONDS.items())
    return Sql(f"({parts})")
