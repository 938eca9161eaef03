"""Files that a vacuum or purge removes while a call uses them (S39)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias, TypeVar
from urllib.parse import unquote

from trinitymerge.errors import CorruptTableError, FilesVacuumedError, StorageError
from trinitymerge.spark.errors import clean_message, is_spark_error, storage_failed, unreadable_file
from trinitymerge.stores.base import ManagedStore, TableStore
from trinitymerge.stores.file_format import is_missing

_Found = TypeVar("_Found")

Files: TypeAlias = Mapping[str, frozenset[str]]
"""By batch directories, the paths of their data files."""


@contextmanager
def naming_vacuums(store: TableStore) -> Iterator[None]:
    """Turn errors about files that no version needs into :class:`FilesVacuumedError`."""
    try:
        yield
    except Exception as error:
        batch_id = _removed(store, error)
        if batch_id is None:
            raise
        assert isinstance(store, ManagedStore)
        raise FilesVacuumedError.of(store.path, store.batch_path(batch_id)) from None


def looked_into(where: Callable[[], Files], found: Callable[[list[str]], _Found]) -> _Found:
    """Search some directories, also unneeded ones, and search again if files were deleted during the search."""
    while True:
        files = where()
        try:
            return found(list(files))
        except Exception as error:
            if not (_is_lost(error) and where() != files):
                raise


def data_files(store: ManagedStore, ids: list[str]) -> Files:
    """Return the data files of some directories; without those that have none."""
    files = {i: frozenset(f.path for f in store.data_files(i)) for i in ids}
    return {i: some for i, some in files.items() if some}


@contextmanager
def naming_storage_errors(store: TableStore) -> Iterator[None]:
    try:
        with naming_vacuums(store):
            yield
    except Exception as error:
        if not is_spark_error(error) or not storage_failed(error):
            raise
        raise StorageError(
            f"A file of {store.path} could not be read or written: {clean_message(error)}{unreadable_file(error)} Nothing was "
            "written. Free disk space, grant the missing permission, or see health(), and run the call again.",
            path=store.path,
        ) from None


_GONE = re.compile(r"FileNotFound|NoSuchFile|No such file|does not exist|cannot access|FILE_NOT_EXIST|PATH_NOT_FOUND")


def _is_lost(error: Exception) -> bool:
    """Return True if a file was not found, as opposed to a full disk or a missing permission."""
    if isinstance(error, (PermissionError, NotADirectoryError)):
        return False
    is_ours = isinstance(error, (CorruptTableError, StorageError, FileNotFoundError))
    of_spark = is_spark_error(error) and (storage_failed(error) or is_missing(error))
    return is_ours or (of_spark and bool(_GONE.search(str(error))))


def _removed(store: TableStore, error: Exception) -> str | None:
    """Return the batch of the table that an error about files names, if the newest version does not need it."""
    if not isinstance(store, ManagedStore) or not _is_lost(error):
        return None
    place = re.escape(store.batch_path("").partition(":")[2].lstrip("/"))  # an error may have it as a URI
    named = {m[1] for text in (str(error), unquote(str(error))) for m in re.finditer(rf"{place}([\w-]+)", text)}
    return min(named - store.snapshot().referenced_ids, default=None) if named else None
