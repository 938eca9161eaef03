"""As much of ``pathlib.Path`` as tests ask of a directory that is not on this machine's disk."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from trinitymerge.fs.base import FileSystem


class RemotePath:
    """A path of a file system; ``files`` returns that."""

    def __init__(self, url: str, files: Callable[[], FileSystem]) -> None:
        self._url, self._files = url, files

    def __str__(self) -> str:
        return self._url

    def __truediv__(self, name: str) -> RemotePath:
        return type(self)(f"{self._url}/{name}", self._files)

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        return type(self)(self._url.rpartition("/")[0], self._files)

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def exists(self) -> bool:
        return self._files().exists(self._url)

    def iterdir(self) -> Iterator[RemotePath]:
        with contextlib.suppress(FileNotFoundError):
            yield from (type(self)(info.path, self._files) for info in self._files().list(self._url))

    def is_dir(self) -> bool:
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            return bool(self._files().list(self._url))
        return False

    def is_file(self) -> bool:
        return self.exists() and not self.is_dir()

    def rglob(self, pattern: str) -> list[RemotePath]:
        found = (type(self)(info.path, self._files) for info in self._files().walk(self._url))
        return [each for each in found if fnmatch.fnmatch(each.name, pattern)]

    def glob(self, pattern: str) -> list[RemotePath]:
        return [each for each in self.iterdir() if fnmatch.fnmatch(each.name, pattern)]

    def read_bytes(self) -> bytes:
        return self._files().read(self._url)

    def write_bytes(self, data: bytes) -> None:
        self._files().replace(self._url, data)

    def touch(self) -> None:
        self.write_bytes(b"")

    def unlink(self) -> None:
        self._files().delete(self._url)

    def mkdir(self, parents: bool = False) -> None:
        self._files().mkdirs(self._url)

    def stat(self) -> NoReturn:
        pytest.skip("looks at a file of this machine")

    def __fspath__(self) -> NoReturn:
        pytest.skip("works on files of this machine")

    def copied_to(self, target: RemotePath) -> RemotePath:
        """Copy all files below it."""
        for info in self._files().walk(self._url):
            self._files().copy(info.path, f"{target}{info.path[len(self._url) :]}")
        return target
