"""The interface of a file system, its errors, and paths: create exclusively, replace, list, delete (S33)."""

from __future__ import annotations

import contextlib
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator

import attrs

from trinitymerge.errors import CorruptTableError

TEMPORARY_SUFFIX = ".tmp"
"""Ends the names of what a dead writer may leave behind; a dot begins them, so that Spark ignores them."""

FAULT_POINTS = ("create.written", "create.published", "create.synced", "replace.written")
"""Where filesystems may be killed, see ``fs/faults.py``."""

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
_GLOB = re.compile(r"([\\{}\[\]*?])")


@attrs.frozen
class FileInfo:
    """A file or directory as a listing shows it.

    Attributes:
        name: the last part of the path.
        path: qualified, as Spark takes it.
        size_bytes: 0 for directories.
        is_dir: a directory (a symbolic link to one counts as a file).
        modified_ms: last modification, milliseconds since the epoch.
        is_link: a symbolic link.
    """

    name: str
    path: str
    size_bytes: int
    is_dir: bool
    modified_ms: int
    is_link: bool = False


class NoRegularFileError(OSError):
    """A path that was to be read names something else than a file."""


Infos = list[FileInfo]
"""Has a name because inside the classes below ``list`` is a method."""


class FileSystem(ABC):
    """What storage must be able to do. Paths are absolute or qualified; parents of new files are created.

    Every method may also raise ``PermissionError`` and, for what the storage itself reports (disk full,
    connection lost), another ``OSError`` that names the path.
    """

    is_local: bool = False
    """True if these are files of this machine, reachable without Spark."""

    @abstractmethod
    def qualify(self, path: str) -> str:
        """The absolute path with its scheme: the same directory to Spark and to this class."""

    @abstractmethod
    def create_exclusive(self, path: str, data: bytes) -> None:
        """Creates a file that did not exist: its whole content or nothing, with one winner among all writers.

        When it returns, the file survives a power cut as far as the storage promises that. Whenever the power goes, it is never
        there without the files that were seen in its directory before it was created.

        Raises:
            FileExistsError: somebody else has created it, now or long ago; nothing was changed.
            NotADirectoryError: a file is where its directory should be.
            UnsupportedStorageError: the storage cannot promise exclusiveness; the message names a remedy.
            OSError: the outcome may be unknown (a reply that got lost): read the file to find out.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Writes a file, over an existing one if there is one. Best effort: for hints only, last writer wins.

        Raises:
            OSError: the file is the old one, the new one, or (on storage without atomic replace) gone.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole content of a file.

        Raises:
            FileNotFoundError: there is no such file.
            NoRegularFileError: the path names a directory, a symbolic link, a pipe or a device.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """True if there is a file or directory."""

    @abstractmethod
    def list(self, path: str) -> Infos:
        """What a directory holds, by name; hidden files included.

        Raises:
            FileNotFoundError: there is no such directory.
            NotADirectoryError: it is a file.
        """

    def walk(self, path: str) -> Iterator[FileInfo]:
        """All files below a directory; symbolic links are named, not followed.

        Raises:
            FileNotFoundError: there is no such directory.
        """
        for info in self.list(path):
            if info.is_dir:
                with contextlib.suppress(FileNotFoundError):  # removed by somebody else meanwhile
                    yield from self.walk(info.path)
            else:
                yield info

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes a file, or a directory with all it holds; one that is gone already is no error."""

    @abstractmethod
    def move(self, path: str, target: str) -> None:
        """Gives a file another path, in a directory that exists. Object stores copy it. Not durable before it is synced.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def copy(self, path: str, target: str) -> None:
        """Copies a file, into a directory that exists. Not durable before it is synced.

        One of the two is on this filesystem. The other may be elsewhere, unless both sides are local ones.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def remove_empty(self, path: str) -> None:
        """Removes a directory that holds nothing; any other stays, and one that is gone already is no error."""

    @abstractmethod
    def mkdirs(self, path: str) -> None:
        """Makes a directory and its parents; one that exists is no error.

        Raises:
            NotADirectoryError: a file is in the way.
        """

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Makes a directory that was just written survive a power cut, where the storage has that notion.

        Raises:
            FileNotFoundError: there is no such directory.
        """

    def resolved(self, path: str) -> str:
        """A qualified path without symbolic links on its way."""
        return path

    def link_below(self, root: str, path: str) -> str | None:
        """The first symbolic link on the way from a directory to a path below it; None if there is none.

        Args:
            root: the directory, which may itself be a link.
            path: relative to it.
        """
        return None


def require_no_link(files: FileSystem, root: str, path: str) -> None:
    """Refuses a symbolic link between a table's directory and what the library keeps there: calls would read and delete beyond it.

    Raises:
        CorruptTableError: naming the link.
    """
    link = files.link_below(root, path)
    if link is not None:
        raise CorruptTableError(
            f"'{link}' is a symbolic link, and a table keeps its files in its own directory. Nothing was changed. Move what the "
            "link points to here, or link to the table's directory as a whole.",
            path=link,
        )


def split_scheme(path: str) -> tuple[str | None, str]:
    """The scheme of a path and the rest, the way Hadoop's ``Path`` reads text: nothing is percent-decoded.

    Example:
        >>> split_scheme("s3a://bucket/a%20b"), split_scheme("/data/12:30")
        (('s3a', '//bucket/a%20b'), (None, '/data/12:30'))
    """
    match = _SCHEME.match(path)
    return (match[1].lower(), path[match.end() :]) if match else (None, path)


def escape_glob(path: str) -> str:
    r"""A path for Spark's *readers*, which would take ``[``, ``{``, ``*`` or ``?`` in it for a pattern.

    Example:
        >>> escape_glob("file:/data/sales[2024]")
        'file:/data/sales\\[2024\\]'
    """
    return _GLOB.sub(r"\\\1", path)


def temporary_beside(path: str) -> str:
    """An unguessable name beside ``path``, hidden from Spark."""
    parent, slash, name = path.rpartition("/")
    return f"{parent}{slash}.{name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
