"""The directories of batches below a table's ``data/``, and their files. Needs no Spark."""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from trinitymerge.errors import CorruptTableError, TableExistsError, UnsupportedStorageError
from trinitymerge.fs import faults
from trinitymerge.fs.base import TEMPORARY_SUFFIX, FileInfo, FileSystem, R, T, read_many, require_no_link
from trinitymerge.log.actions import Batch, OutboxEntry
from trinitymerge.spark import system_columns as C

FAULT_POINTS = ("split.moved",)

_DIRECTORY = re.compile(rf"{C.BATCH}=([A-Za-z0-9][A-Za-z0-9_-]{{0,199}})")


class BatchDirectories:
    files: FileSystem
    path: str

    @classmethod
    def at(cls, files: FileSystem, path: str) -> BatchDirectories:
        """Return the directories of the table at a path, without Spark."""
        found = cls()
        found.files, found.path = files, path
        return found

    def refuse_foreign_files(self) -> None:
        """Raise a TableExistsError if the path holds anything but files of a table."""
        try:
            found = [f.name for f in self.files.list(self.path) if not f.name.startswith(".")]
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise TableExistsError(
                f"{self.path} is a file or lies below one. Choose a path that does not exist or an empty directory.",
                path=self.path,
            ) from None
        foreign = [n for n in found if n not in ("_trinity_log", "data")]
        if foreign:
            raise TableExistsError(
                f"{self.path} is not empty and not a trinitymerge table (it holds {', '.join(sorted(foreign)[:5])}). "
                "Choose a path that does not exist or an empty directory.",
                path=self.path,
            )

    def batch_path(self, batch_id: str) -> str:
        return f"{self.path}/data/{C.BATCH}={batch_id}"

    def require_own(self) -> None:
        """Raise a CorruptTableError if the batches are somewhere else: a link leads there."""
        require_no_link(self.files, self.path, "data")

    def link_in(self, batch_id: str) -> str | None:
        """Return the name of a symbolic link in, or in place of, a batch's directory, which Spark would follow; or None."""
        return self._link_to(batch_id) or _link_among(self.all_files(batch_id))

    def _link_to(self, batch_id: str) -> str | None:
        directory = f"{C.BATCH}={batch_id}"
        return directory if self.files.link_below(self.path, f"data/{directory}") else None

    def data_files(self, batch_id: str) -> list[FileInfo]:
        return self._data_among(batch_id, self.all_files(batch_id))

    def _data_among(self, batch_id: str, found: Sequence[FileInfo]) -> list[FileInfo]:
        # Spark's readers pass over files, and files in directories, whose names begin so.
        parts = [(f, f.path.removeprefix(self.batch_path(batch_id)).split("/")) for f in found]
        return [f for f, names in parts if not any(name.startswith(("_", ".")) for name in names)]

    def all_files(self, batch_id: str) -> list[FileInfo]:
        try:
            return list(self.files.walk(self.batch_path(batch_id)))
        except FileNotFoundError:
            return []

    def unfinished_files(self, batch_id: str) -> list[FileInfo]:
        start = len(self.batch_path(batch_id))
        return [f for f in self.all_files(batch_id) if "/_temporary/" in f.path[start:]]

    def remove(self, path: str) -> None:
        self.files.delete(path)

    def at_once(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Call a function for each item, in parallel on object stores and HDFS; yield the results in order."""
        return read_many(self.files, work, items)

    def directories(self) -> dict[str, FileInfo]:
        try:
            found = self.files.list(f"{self.path}/data")
        except FileNotFoundError:
            return {}
        return {m[1]: info for info in found if info.is_dir and (m := _DIRECTORY.fullmatch(info.name))}

    def copy_batch_from(self, other: object, batch_id: str) -> str:
        if not isinstance(other, BatchDirectories):
            kind = type(other).__name__
            raise UnsupportedStorageError(
                f"The files of a table in a {kind} cannot be copied to {self.path}.", store=kind
            )
        old, new = other.batch_path(batch_id), uuid.uuid4().hex
        both_local = self.files.is_local and other.files.is_local
        through = other.files if self.files.is_local else self.files
        try:
            self.files.mkdirs(self.batch_path(new))
            if other.link_in(batch_id) is not None:
                raise FileNotFoundError(errno.ENOENT, "A symbolic link is not a file of the table", old)
            for file in other.all_files(batch_id):
                name = file.path.removeprefix(f"{old}/")
                is_passing = name.startswith("_temporary/") or name.endswith(TEMPORARY_SUFFIX)
                if is_passing or (
                    name.startswith(".") and not both_local
                ):  # a checksum, of which other storages have their own
                    continue
                through.copy(file.path, f"{self.batch_path(new)}/{name}")
            self.files.sync_dir(self.batch_path(new))
        except BaseException:
            self.remove(self.batch_path(new))
            raise
        return new

    def _file_mismatch(self, batch: Batch | OutboxEntry) -> str:
        """Return how the files of a batch differ from what the log says; an empty string if they do not.

        Sizes are compared on local disks only, where asking is cheap and a crash may cut a file; object stores have it whole
        or not at all. Spark takes an empty ORC file for one without rows.
        """
        link = self._link_to(batch.id)  # first, for a link may lead to any number of files
        found = [] if link else self.all_files(batch.id)
        link = link or _link_among(found)
        if link is not None:
            return f"holds the symbolic link '{link}', and the rows behind it are not the table's"
        files = self._data_among(batch.id, found)
        size = sum(f.size_bytes for f in files)
        if not files and not self.files.exists(self.batch_path(batch.id)):
            return "is gone"
        if len(files) != batch.files:
            return f"has {len(files)} of {batch.files} files"
        return f"has {size:,} of {batch.bytes:,} bytes" if self.files.is_local and size != batch.bytes else ""

    def verify_files(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            wrong = self._file_mismatch(batch)
            if wrong:
                raise self._gone(f"{C.BATCH}={batch.id}", wrong)

    def _gone(self, directory: str, what: str) -> CorruptTableError:
        return CorruptTableError(
            f"The files of {self.path} are not what its log says: {self.path}/data/{directory} {what}. If this is a past "
            "version, vacuum() or purge() has removed it. Otherwise something else has: put the files back from a backup, or "
            "restore() a version that does not need them.",
            path=f"{self.path}/data/{directory}",
        )

    @contextmanager
    def cleanup_on_failure(self) -> Iterator[None]:
        was_there = self.files.exists(self.path)
        try:
            yield
        except BaseException:
            for path in (f"{self.path}/data", f"{self.path}/_trinity_log", *([] if was_there else [self.path])):
                self.files.remove_empty(path)
            raise

    def split_files(self, batch_id: str, count: int) -> list[str]:
        """Move the files of a staged batch to new ones, ``count`` neighbours to each; return their ids. The old directory stays."""
        ids: list[str] = []
        try:
            # The task's number decides, so that part-100000 comes after part-99999.
            files = sorted(
                self.data_files(batch_id), key=lambda f: ([*map(int, re.findall(r"\d+", f.name)[:1])], f.name)
            )
            for start in range(0, len(files), count):
                ids.append(uuid.uuid4().hex)
                self._move_into(files[start : start + count], self.batch_path(ids[-1]))
                faults.fault("split.moved")
        except BaseException:
            for new in ids:
                self.remove(self.batch_path(new))
            raise
        return ids

    def _move_into(self, files: Sequence[FileInfo], directory: str) -> None:
        self.files.mkdirs(directory)
        for file in files:
            parent, _, name = file.path.rpartition("/")
            self.files.move(file.path, f"{directory}/{name}")
            checksum = f".{name}.crc"  # which Hadoop has put beside it on a local disk
            if self.files.is_local and self.files.exists(f"{parent}/{checksum}"):
                self.files.move(f"{parent}/{checksum}", f"{directory}/{checksum}")
        self.files.sync_dir(directory)


def _link_among(found: Sequence[FileInfo]) -> str | None:
    return next((f.name for f in found if f.is_link), None)
