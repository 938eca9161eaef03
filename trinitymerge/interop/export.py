"""`export`: the live rows as plain files."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge import reader
from trinitymerge.errors import StorageError, TableExistsError, UnsupportedStorageError, counted, sized
from trinitymerge.fs.base import FileSystem, split_scheme, temporary_beside
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.log import reporting
from trinitymerge.log.files import require_outside
from trinitymerge.log.model import Snapshot
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.conf import capture_observations, with_session_settings
from trinitymerge.spark.errors import classify_failure, clean_message, is_spark_error
from trinitymerge.spark.expressions import case, is_not_null, quote
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import Batches, ManagedStore
from trinitymerge.stores.file_format import write

_RENAMING = (None, "file", "hdfs", "webhdfs", "swebhdfs", "viewfs", "abfs", "abfss")
"""Schemes of storages that rename a directory as a whole."""

_DAY_TIME = "CAST({} AS INTERVAL DAY TO SECOND)"
_YEAR_MONTH = "CAST({} AS INTERVAL YEAR TO MONTH)"
_MICROSECONDS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}


@attrs.frozen
class ExportResult:
    """What an export has written.

    Attributes:
        path: where the files are.
        version: of the table, whose live rows they hold.
        rows: how many these are.
        files: how many files hold them.
        bytes: the size of the files.
        seconds: how long it took.
    """

    path: str
    version: int
    rows: int
    files: int
    bytes: int
    seconds: float = attrs.field(default=0.0, eq=False)

    def __str__(self) -> str:
        files = counted(self.files, "file")
        return (
            f"version {self.version}: {counted(self.rows)} in {files} of Parquet ({sized(self.bytes)}) at {self.path}"
        )


@with_session_settings
def export(store: ManagedStore, snapshot: Snapshot, path: str) -> ExportResult:
    """Writes the live rows of a version.

    Args:
        store: of the table.
        snapshot: the version.
        path: a directory that does not exist.

    Returns:
        What has been written.

    Raises:
        TableExistsError: there is something at the path.
        StorageError: the rows cannot be read or written; nothing is left at the path or beside it.
        UnsupportedStorageError: the files are written where this process does not see them.
    """
    start, batches = time.perf_counter(), Batches.of(snapshot)
    files = filesystem_for(store.spark, path)
    target = files.qualify(path)
    _require_free(files, target)
    gathering, temporary = Metrics({"rows": "count(1)"}), temporary_beside(target)
    doing = f"an export writes the live rows to {target}"
    with (
        _nothing_left(files, temporary),
        reporting.if_slow(store.path, doing),
    ):
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
        f"export() writes into a directory of its own, and there is something at {target} already. Choose a path that does "
        "not exist, or remove what is there.",
        path=target,
    )


def _publish(files: FileSystem, temporary: str, target: str) -> None:
    """Gives the directory its name, unless something has come there meanwhile: into which Hadoop would move it.

    Object stores have no directories to rename: there each file is moved.
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
            f"What was exported could not be moved to {target}: {error}. Nothing is left there. Repeat the call.",
            path=target,
        ) from error
    stray = f"{target}/{temporary.rpartition('/')[2]}"
    if files.exists(stray):
        files.delete(stray)
        raise _taken(target)


def _move_files(files: FileSystem, temporary: str, target: str) -> None:
    """Moves all files, or none."""
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
    """Whatever fails, what has been written beside the path goes."""
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
            f"The live rows of {path} could not be written to {target}: {clean_message(error)} Nothing is left there. If a "
            "vacuum or purge has removed files meanwhile, open the table again and repeat the call.",
            path=target,
        ) from None


def _cleared(files: FileSystem, directory: str) -> list[int]:
    """The sizes of the files with rows; what else Spark leaves there goes, for not every engine passes it over."""
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
    """The rows with types that others know: of an interval its microseconds or months, of a variant its JSON text."""
    columns = [_column(f) for f in definition.fields]
    return rows.selectExpr(*columns) if columns != [quote(f.name) for f in definition.fields] else rows


def _column(field: Field) -> Sql:
    name = quote(field.name)
    known = _known(name, field.type)
    return name if known == name else Sql(f"{known} AS {name}")


def _known(value: Sql, kind: Any, depth: int = 0) -> Sql:
    """A value as one that others know; the same text where it is one."""
    if isinstance(kind, str):
        return _known_value(value, kind)
    if kind["type"] == "struct":
        fields = [(f["name"], Sql(f"{value}.{quote(f['name'])}"), f["type"]) for f in kind["fields"]]
        known = [(name, inner, _known(inner, of, depth)) for name, inner, of in fields]
        if all(inner == new for _, inner, new in known):
            return value
        parts = ", ".join(f"{new} AS {quote(name)}" for name, _, new in known)
        return case([(is_not_null(value), Sql(f"struct({parts})"))])
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
