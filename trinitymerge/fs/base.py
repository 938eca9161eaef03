"""The interface of a file system, its errors, and paths (S33)."""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, repeat
from typing import Any, TypeVar

import attrs

from trinitymerge.errors import CorruptTableError, StorageError, UnsupportedStorageError

TEMPORARY_SUFFIX = ".tmp"
"""Ends the names of files that a dead writer may leave; a dot begins them, so that Spark ignores them."""

FAULT_POINTS = ("create.written", "create.published", "create.synced", "replace.written")
"""The fault points of file systems; see ``fs/faults.py``."""

AT_ONCE = 16
"""The number of files that one call reads in parallel from an object store or HDFS."""

_MOST_AHEAD = 64
"""The number of items that are read before the first one is used."""

T = TypeVar("T")
R = TypeVar("R")

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
_GLOB = re.compile(r"([\\{}\[\]*?])")


@attrs.frozen
class FileInfo:
    """A file or directory as a listing shows it.

    Attributes:
        path: qualified, for Spark.
        size_bytes: 0 for directories.
        is_dir: a directory; a symbolic link to one is a file.
        modified_ms: the last modification, in milliseconds since the epoch.
    """

    name: str
    path: str
    size_bytes: int
    is_dir: bool
    modified_ms: int
    is_link: bool = False


class NoRegularFileError(OSError):
    """A path to be read is not a regular file."""


class NoPermissionError(StorageError, PermissionError):
    """This process may not read, write or delete a path."""


class FileInTheWayError(StorageError, NotADirectoryError):
    """A path, or a directory above it, is a file."""


_VERBS = {
    "read": ("exists", "has_file", "list", "list_below", "read"),
    "written": ("create_exclusive", "replace", "move", "mkdirs", "sync_dir"),
    "copied": ("copy",),
    "deleted": ("delete",),
}
"""The methods that report an error of permissions or of a wrong directory, by what they do."""


_TRANSLATED = (PermissionError, NotADirectoryError)
_FULL = (
    "Free disk space, and run the call again. A vacuum needs some kB, too: it records what it deletes before it does."
)
_REMEDIES = {
    errno.ENAMETOOLONG: "Choose a shorter name: most file systems allow 255 bytes.",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "The file system can only be read: write elsewhere, or mount it for writing, and run the call again.",
}
"""The remedies of errors for which Python has no class."""


def _reporting(call: Callable[..., Any], verb: str) -> Callable[..., Any]:
    """Return a method of a file system that raises a :class:`StorageError` where Python raises its own error."""
    state = "Files that the call had to delete may be left." if verb == "deleted" else "Nothing was written."

    @functools.wraps(call)
    def reporting(self: FileSystem, path: str, *more: Any) -> Any:
        try:
            return call(self, path, *more)
        except OSError as error:
            known = _REMEDIES.get(error.errno or 0)
            if isinstance(error, StorageError) or not (isinstance(error, _TRANSLATED) or known):
                raise
            named = str(error.filename or "")
            where = named if "/" in named else path
            reason = error.strerror or str(error)
            if isinstance(error, PermissionError):
                kind: type[StorageError] = NoPermissionError
                remedy = "Grant this process the permission, and run the call again."
            elif known:
                kind, remedy = StorageError, known
            else:
                kind = FileInTheWayError
                remedy = "The path, or a directory above it, is a file: move it away, or choose another path."
            found = kind(f"{reason}: '{where}' cannot be {verb}. {remedy} {state}", path=where)
            found.errno, found.strerror, found.filename = error.errno, reason, where
            raise found from error

    return reporting


Infos = list[FileInfo]
"""``list`` is a method of the classes below."""


class FileSystem(ABC):
    """A file system. Paths are absolute or qualified; parents of new files are created.

    Every method may also raise :class:`NoPermissionError`, and another ``OSError`` that names the path for errors of the storage
    (disk full, connection lost). Subclasses raise Python's ``PermissionError`` and ``NotADirectoryError``, which become errors of
    the library here.
    """

    is_local: bool = False
    """True if the files are on this machine, and Python can open them."""

    reads_at_once: int = AT_ONCE
    """The number of files to read in parallel; 1 if the client is not thread-safe."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for verb, names in _VERBS.items():
            for name in names:
                if name in cls.__dict__:
                    setattr(cls, name, _reporting(cls.__dict__[name], verb))

    @abstractmethod
    def qualify(self, path: str) -> str:
        """Return the absolute path with its scheme: the same directory for Spark."""

    @abstractmethod
    def create_exclusive(self, path: str, data: bytes) -> None:
        """Create a file atomically, if it does not exist: exactly one of all writers succeeds.

        Afterwards the file survives a power cut, as far as the storage guarantees this. At any time, a power cut that keeps the
        file also keeps the files that were visible in its directory before.

        Raises:
            FileExistsError: the file exists; nothing was changed.
            FileInTheWayError: a file has the path of its directory, and the storage has directories.
            UnsupportedStorageError: the storage cannot create exclusively; the message names a remedy.
            OSError: the outcome may be unknown (a lost reply): read the file to find out.
        """

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Write or overwrite a file; the last writer wins. For hints only.

        Raises:
            OSError: the file is old, new, or (on storage without atomic replace) missing.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: the file does not exist.
            NoRegularFileError: the path is a directory, a symbolic link, a pipe or a device.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return True if a file or directory exists."""

    def has_file(self, path: str) -> bool:
        """Return True if a file exists, by one request. A directory may count as one; on S3 a missing bucket has no files."""
        return self.exists(path)

    @abstractmethod
    def list(self, path: str) -> Infos:
        """Return the entries of a directory, sorted by name, with hidden files.

        Raises:
            FileNotFoundError: the directory does not exist.
            FileInTheWayError: the path is a file.
        """

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yield all files below a directory; symbolic links are listed, not followed.

        Raises:
            FileNotFoundError: the directory does not exist.
        """
        for info in self.list(path):
            if info.is_dir:
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    yield from self.walk(info.path)
            else:
                yield info

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, or a directory recursively, if it exists."""

    @abstractmethod
    def move(self, path: str, target: str) -> None:
        """Move a file into an existing directory; object stores copy it. Durable after a sync.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    @abstractmethod
    def copy(self, path: str, target: str) -> None:
        """Copy a file into an existing directory. Durable after a sync.

        Source or target is on this file system. The other one may be on another, unless this one is local.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    @abstractmethod
    def remove_empty(self, path: str) -> None:
        """Delete a directory if it exists and is empty."""

    @abstractmethod
    def mkdirs(self, path: str) -> None:
        """Create a directory and its parents, if they do not exist.

        Raises:
            FileInTheWayError: one of the paths is a file.
        """

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make a directory and all files in it durable, if the storage has a sync.

        Raises:
            FileNotFoundError: the directory does not exist.
        """

    def resolved(self, path: str) -> str:
        """Return a qualified path with symbolic links resolved."""
        return path

    def link_below(self, root: str, path: str) -> str | None:
        """Return the first symbolic link between a directory, which may be a link, and a relative path below it; None if none."""
        return None


def read_many(
    files: FileSystem, read: Callable[[T], R], items: Iterable[T], ahead: Sequence[int] = (_MOST_AHEAD,)
) -> Iterator[R]:
    """Read items in parallel, as many at once as the storage allows, and yield the results in order.

    Items are read in groups, whose sizes are ``ahead``; the last size repeats. Callers that may stop early start with small groups.
    """
    rest = iter(items)
    if files.reads_at_once < 2:
        yield from map(read, rest)
        return
    with ThreadPoolExecutor(files.reads_at_once) as pool:
        for count in chain(ahead, repeat(ahead[-1])):
            some = list(islice(rest, count))
            if len(some) < 2:
                yield from map(read, some)
            else:
                yield from _at_once(pool, read, some)
            if len(some) < count:
                return


def _at_once(pool: ThreadPoolExecutor, read: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    try:
        return pool.map(read, items)
    except RuntimeError:  # Python is shutting down, and this thread goes on
        return map(read, items)


def require_no_link(files: FileSystem, root: str, path: str) -> None:
    """Raise if a symbolic link is between a table's directory and its files: calls would read and delete outside of the table."""
    link = files.link_below(root, path)
    if link is not None:
        raise CorruptTableError(
            f"'{link}' is a symbolic link, and a table keeps its files in its own directory. Replace the link with its target, "
            "or link to the whole table. Nothing was changed.",
            path=link,
        )


def split_scheme(path: str) -> tuple[str | None, str]:
    """Split the scheme from a path, as Hadoop's ``Path`` does: nothing is percent-decoded.

    Example:
        >>> split_scheme("s3a://bucket/a%20b"), split_scheme("/data/12:30")
        (('s3a', '//bucket/a%20b'), (None, '/data/12:30'))
    """
    match = _SCHEME.match(path)
    return (match[1].lower(), path[match.end() :]) if match else (None, path)


def escape_glob(path: str) -> str:
    r"""Escape a path for Spark's *readers*, which expand ``[``, ``{``, ``*`` and ``?``.

    Example:
        >>> escape_glob("file:/data/sales[2024]")
        'file:/data/sales\\[2024\\]'
    """
    return _GLOB.sub(r"\\\1", path)


def temporary_beside(path: str) -> str:
    """Return an unguessable name in the directory of ``path``, hidden from Spark."""
    parent, slash, name = path.rpartition("/")
    return f"{parent}{slash}.{name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"


def require_exclusive_creates(
    path: str,
    create: Callable[[str, bytes], None],
    files: FileSystem,
    check: Callable[[str], None] = lambda probe: None,
) -> None:
    """Create a probe twice, and raise unless the storage refuses the second time: some stores ignore the condition.

    The probe is beside ``path``, a file that is about to be created; ``check`` is another check of it. An OSError means that the
    outcome is unknown.
    """
    probe = temporary_beside(path)  # vacuum() removes it if this process dies
    try:
        try:
            create(probe, b"first")
        except FileExistsError:
            raise no_exclusive_create(path, "reports that a new object exists") from None
        with contextlib.suppress(FileExistsError):
            create(probe, b"second")
            raise no_exclusive_create(path, "has overwritten an object in spite of the condition")
        if files.read(probe) != b"first":
            raise no_exclusive_create(path, "has overwritten an object and reported that it exists")
        check(probe)
    finally:
        with contextlib.suppress(OSError):
            files.delete(probe)


def no_exclusive_create(path: str, why: str) -> UnsupportedStorageError:
    return UnsupportedStorageError(
        f"'{path}' cannot be created exclusively: the store {why}, so two writers could commit the same version. Use a store that "
        "supports 'If-None-Match: *' for PUT, as S3 does. Nothing was committed.",
        path=path,
    )
