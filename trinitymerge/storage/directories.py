"""The directories that hold the batches of a managed table, and the files in them (S33, S39).

Owns: how a batch's directory is called, which of its files are rows, copying one, and dividing the files of one. What is
committed, and what rows mean, is unknown here.
"""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trinitymerge.columns import BATCH
from trinitymerge.errors import TableExistsError, UnsupportedStorageError
from trinitymerge.storage import faults
from trinitymerge.storage.files import TEMPORARY_SUFFIX, FileInfo, FileSystem, require_no_link

FAULT_POINTS = ("split.moved",)
"""Where this module may be killed, see ``storage/faults.py``."""

_DIRECTORY = re.compile(rf"{BATCH}=([A-Za-z0-9][A-Za-z0-9_-]{{0,199}})")


class BatchDirectories:
    """What lies below ``data/`` of a table.

    Attributes:
        files: the storage.
        path: of the table.
    """

    files: FileSystem
    path: str

    def refuse_foreign_files(self) -> None:
        """Raises a TableExistsError if something else is at the path than what a table has there."""
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
        """The directory of a batch."""
        return f"{self.path}/data/{BATCH}={batch_id}"

    def require_own(self) -> None:
        """Raises a CorruptTableError if the batches are somewhere else: a link leads there."""
        require_no_link(self.files, self.path, "data")

    def link_in(self, batch_id: str) -> str | None:
        """A symbolic link that a batch's directory is or holds, by its name, which Spark would follow; None if there is none."""
        if self.files.link_below(self.path, f"data/{BATCH}={batch_id}"):
            return f"{BATCH}={batch_id}"
        return next((f.name for f in self.all_files(batch_id) if f.is_link), None)

    def data_files(self, batch_id: str) -> list[FileInfo]:
        """The data files of a batch; none if its directory is gone."""
        return [f for f in self.all_files(batch_id) if not is_hidden(f, self.batch_path(batch_id))]

    def all_files(self, batch_id: str) -> list[FileInfo]:
        """Everything in a batch's directory; nothing if it is gone."""
        try:
            return list(self.files.walk(self.batch_path(batch_id)))
        except FileNotFoundError:
            return []

    def unfinished_files(self, batch_id: str) -> list[FileInfo]:
        """What a batch's writer, at work or dead, has written and no reader can look into."""
        start = len(self.batch_path(batch_id))
        return [f for f in self.all_files(batch_id) if "/_temporary/" in f.path[start:]]

    def remove(self, path: str) -> None:
        """Removes a batch's directory or a helper file."""
        self.files.delete(path)

    def directories(self) -> dict[str, FileInfo]:
        """All batch directories on the storage, by batch id: committed, staged and left over."""
        try:
            found = self.files.list(f"{self.path}/data")
        except FileNotFoundError:
            return {}
        return {m[1]: info for info in found if info.is_dir and (m := _DIRECTORY.fullmatch(info.name))}

    def copied_from(self, other: object, batch_id: str) -> str:
        """Copies a batch of another table, with what is kept beside its rows, into a directory of its own here.

        Args:
            other: the store of that table.
            batch_id: of the batch, there.

        Returns:
            The id of the new batch, which nobody can see.

        Raises:
            FileNotFoundError: a file has been removed meanwhile; nothing is left of the new batch.
            UnsupportedStorageError: that store does not keep files as this one does.
        """
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
                raise FileNotFoundError(errno.ENOENT, "A symbolic link is no file of the table", old)
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

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        """While a table is made: if it fails, its directory goes again, unless it was there or something is in it."""
        was_there = self.files.exists(self.path)
        try:
            yield
        except BaseException:
            for path in (f"{self.path}/data", f"{self.path}/_trinity_log", *([] if was_there else [self.path])):
                self.files.remove_empty(path)
            raise

    def divided(self, batch_id: str, count: int) -> list[str]:
        """Moves the data files of a batch that nobody can see into new directories, those of some neighbouring tasks into each.

        Args:
            batch_id: of the batch.
            count: files of a new one; the last may have fewer.

        Returns:
            The ids of the new batches, in the order of the tasks that wrote the files. The old directory is still there.

        Raises:
            FileNotFoundError: a file has been removed meanwhile; nothing is left of the new batches.
        """
        ids: list[str] = []
        try:
            files = sorted(self.data_files(batch_id), key=_order)
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
            move_file(self.files, file.path, directory)
        self.files.sync_dir(directory)


def move_file(files: FileSystem, path: str, directory: str) -> None:
    """Moves a data file into another directory, and the checksum that Hadoop has put beside it on a local disk.

    Raises:
        FileNotFoundError: there is no such file.
    """
    parent, _, name = path.rpartition("/")
    files.move(path, f"{directory}/{name}")
    if files.is_local and files.exists(f"{parent}/.{name}.crc"):
        files.move(f"{parent}/.{name}.crc", f"{directory}/.{name}.crc")


def _order(file: FileInfo) -> tuple[list[int], str]:
    """By the numbers in a file's name, the task's first: ``part-100000`` comes after ``part-99999``."""
    return [int(digits) for digits in re.findall(r"\d+", file.name)[:1]], file.name


def is_hidden(file: FileInfo, directory: str) -> bool:
    """True if a file, or a directory it lies in, is one that Spark's readers pass over."""
    return any(part.startswith(("_", ".")) for part in file.path.removeprefix(directory).split("/"))
