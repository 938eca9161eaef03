"""Local disks: exclusive creation by hard links, and syncing to disk (S33)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.fs import faults
from trinitymerge.fs.base import (
    TEMPORARY_SUFFIX,
    FileInfo,
    FileSystem,
    Infos,
    NoRegularFileError,
    split_scheme,
    temporary_beside,
)

_READING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_NO_HARD_LINKS = {
    getattr(errno, name)
    for name in ("EPERM", "EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EMLINK", "EINVAL")
    if hasattr(errno, name)
}


@attrs.frozen
class LocalFileSystem(FileSystem):
    """Files of this machine, or of a POSIX mount. Relative paths are below Spark's working directory, or Python's without Spark."""

    working_directory: str = attrs.field(factory=os.getcwd)
    is_local = True
    reads_at_once = 1

    def qualify(self, path: str) -> str:
        return "file:" + self.os_path(path)

    def os_path(self, path: str) -> str:
        scheme, rest = split_scheme(path)
        if scheme not in (None, "file"):
            raise UnsupportedStorageError(f"'{path}' is not a local path.", path=path, scheme=scheme)
        if rest.startswith("//"):
            host, slash, tail = rest[2:].partition("/")
            if scheme and host:
                raise UnsupportedStorageError(
                    f"'{path}' names the host '{host}'; local paths have none. Did you mean 'file:///{rest[2:]}'?",
                    path=path,
                )
            rest = slash + tail if scheme else rest
        # Like Hadoop, normpath resolves "." and ".." by name and collapses slashes, except two at the start.
        return os.path.normpath("/" + os.path.join(self.working_directory, rest).lstrip("/"))

    def create_exclusive(self, path: str, data: bytes) -> None:
        # A synced temporary file, published by a hard link; then the directory is synced.
        target = self.os_path(path)
        if os.path.lexists(target):  # saves the write; the link below decides
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        _make_directories(os.path.dirname(target))
        temporary = temporary_beside(target)
        try:
            with _naming(target):
                _write_synced(temporary, data)
            faults.fault("create.written")
            # Another writer may not have synced its file yet: a power cut must not keep this file and lose that one.
            _sync_directory(os.path.dirname(target))
            try:
                _publish(temporary, target)
            except FileNotFoundError:  # a vacuum with a short retention has removed it
                _write_synced(temporary, data)
                _publish(temporary, target)
            faults.fault("create.published")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_directory(os.path.dirname(target))
        faults.fault("create.synced")

    def replace(self, path: str, data: bytes) -> None:
        target = self.os_path(path)
        _make_directories(os.path.dirname(target))
        temporary = temporary_beside(target)
        try:
            with _naming(target), open(temporary, "xb") as file:
                file.write(data)
            faults.fault("replace.written")
            os.replace(temporary, target)  # not synced: a hint may be lost
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def read(self, path: str) -> bytes:
        target = self.os_path(path)
        try:
            descriptor = os.open(target, os.O_RDONLY | _READING)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NoRegularFileError(error.errno, "It is a symbolic link", target) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NoRegularFileError(errno.EINVAL, "It is not a regular file", target)
        with open(descriptor, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        try:
            os.lstat(self.os_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> Infos:
        with os.scandir(self.os_path(path)) as entries:
            return sorted(filter(None, map(_local_info, entries)), key=lambda info: info.name)

    def delete(self, path: str) -> None:
        target = self.os_path(path)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(target).st_mode):
                _remove_tree(target)
            else:
                os.unlink(target)

    def move(self, path: str, target: str) -> None:
        os.rename(self.os_path(path), self.os_path(target))

    def copy(self, path: str, target: str) -> None:
        # Never a link: the other table may change or delete its file.
        with _naming(self.os_path(target)):
            shutil.copyfile(self.os_path(path), self.os_path(target))

    def remove_empty(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.os_path(path))

    def mkdirs(self, path: str) -> None:
        _make_directories(self.os_path(path))

    def sync_dir(self, path: str) -> None:
        root = self.os_path(path)
        for directory, _, names in os.walk(root, topdown=False, onerror=_raise):
            for name in names:
                _sync_file(os.path.join(directory, name))
            _sync_directory(directory)
        _sync_directory(os.path.dirname(root))

    def resolved(self, path: str) -> str:
        return "file:" + os.path.realpath(self.os_path(path))

    def link_below(self, root: str, path: str) -> str | None:
        found = self.os_path(root)
        for part in path.split("/"):
            found = os.path.join(found, part)
            if os.path.islink(found):
                return found
        return None


def _raise(error: OSError) -> None:
    raise error


def _local_info(entry: os.DirEntry[str]) -> FileInfo | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # removed since the directory was read
        return None
    is_dir = stat.S_ISDIR(status.st_mode)
    size_bytes = 0 if is_dir else status.st_size
    is_link = stat.S_ISLNK(status.st_mode)
    return FileInfo(entry.name, "file:" + entry.path, size_bytes, is_dir, status.st_mtime_ns // 1_000_000, is_link)


def _remove_tree(target: str) -> None:
    def ignore_gone(_function: object, _path: object, info: Any) -> None:
        error = info[1] if isinstance(info, tuple) else info
        if not isinstance(error, FileNotFoundError):  # another process removes it too
            raise error

    hook: dict[str, Any] = {"onexc" if sys.version_info >= (3, 12) else "onerror": ignore_gone}
    for tries_left in reversed(range(10)):
        try:
            shutil.rmtree(target, **hook)  # Python 3.12 deprecates the old name
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:  # a writer adds files concurrently
                raise


def _make_directories(path: str) -> None:
    """Like ``os.makedirs``, but syncs each new entry: a power cut could lose the files with it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory) from None
        _sync_directory(os.path.dirname(directory))


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in errors of a write: a full disk is reported without a path, or for the temporary file."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or TEMPORARY_SUFFIX)
        where = path if named.endswith(TEMPORARY_SUFFIX) else named
        raise type(error)(error.errno, error.strerror or str(error), where) from error


def _write_synced(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    if os.name == "nt":
        return  # Windows cannot open directories; NTFS journals their entries
    try:
        _sync_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some mounts cannot sync directories
            raise


def _publish(temporary: str, target: str) -> None:
    """Publish a written file under its name, atomically, unless the name exists."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        # NFS may retry a request whose reply was lost, and then report this writer's own link.
        if os.stat(temporary).st_nlink != 2 or not os.path.samefile(temporary, target):
            raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        rename_exclusive(temporary, target)


def rename_exclusive(temporary: str, target: str) -> None:
    """Rename without overwriting, on file systems without hard links (FAT, some network mounts)."""
    if os.name == "nt":
        os.rename(temporary, target)  # never overwrites on Windows
        return
    rename = _native_rename()
    code = ctypes.get_errno() if rename and rename(os.fsencode(temporary), os.fsencode(target)) else 0
    if code == errno.EEXIST:
        raise FileExistsError(code, os.strerror(code), target)
    if rename is None or code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        raise UnsupportedStorageError(
            f"The filesystem of '{target}' has neither hard links nor renames that never overwrite, so two "
            "writers could commit the same version. Put the table on another filesystem (ext4, XFS, APFS, NTFS, NFS, ...).",
            path=target,
        )
    if code:
        raise OSError(code, os.strerror(code), target)


def _native_rename() -> Callable[[bytes, bytes], int] | None:
    """Return the C library's ``rename`` that never overwrites; None if it has none."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return lambda old, new: int(library.renamex_np(old, new, 4))  # RENAME_EXCL
    if hasattr(library, "renameat2"):
        return lambda old, new: int(library.renameat2(-100, old, -100, new, 1))  # AT_FDCWD, RENAME_NOREPLACE
    return None
