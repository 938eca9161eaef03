"""A Hadoop in plain Python, as much of it as the library asks through the gateway: it loses races, fails and answers late.

:class:`Storage` is what the servers hold. What each call of a client does to it can be replaced, one call at a time
(:meth:`Storage.at`): it may fail before or after it was carried out, be carried out later, or find that somebody else was faster.
What connectors do on their own is modelled after theirs: HDFS decides a rename on its server; ABFS looks first, then sends a
rename that its server refuses without a word about why; GCS and S3A publish an object when its stream is closed, on a condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs

from trinitymerge.fs.hadoop import CONDITIONAL_CREATE, HadoopFileSystem

IO = "java.io.IOException"
_SUPERCLASSES = {
    "java.io.FileNotFoundException": IO,
    "org.apache.hadoop.fs.FileAlreadyExistsException": IO,
    "org.apache.hadoop.security.AccessControlException": IO,
    "org.apache.hadoop.fs.UnsupportedFileSystemException": IO,
    "org.apache.hadoop.fs.s3a.RemoteFileChangedException": IO,
    "com.google.api.client.googleapis.json.GoogleJsonResponseException": IO,
}


class JavaError(Exception):
    """As py4j raises it."""

    def __init__(self, name: str, text: str = "as asked for") -> None:
        super().__init__(text)
        self.java_exception = SimpleNamespace(
            toString=lambda: f"{name}: {text}\n\tat somewhere", getClass=lambda: _Class(name), getCause=lambda: None
        )


@attrs.frozen
class _Class:
    name: str

    def getName(self) -> str:
        return self.name

    def getSuperclass(self) -> _Class | None:
        return _Class(_SUPERCLASSES[self.name]) if self.name in _SUPERCLASSES else None


# What may become of a call ------------------------------------------------------------------------------------------

Call = Callable[[], Any]
Fate = Callable[["Storage", Call], Any]


def fails(_storage: Storage, _call: Call) -> Any:
    raise JavaError(IO, "connection reset")


def answer_lost(_storage: Storage, call: Call) -> Any:
    call()
    raise JavaError(IO, "timeout")


def comes_later(storage: Storage, call: Call) -> Any:
    storage.pending.append(call)
    raise JavaError(IO, "timeout")


def denied(_storage: Storage, _call: Call) -> Any:
    raise JavaError("org.apache.hadoop.security.AccessControlException", "token expired")


def after_other(path: str, data: bytes) -> Fate:
    """Somebody else is faster."""

    def fate(storage: Storage, call: Call) -> Any:
        storage.files[path] = data
        return call()

    return fate


class Storage:
    """What servers hold, and the Hadoop in front of them.

    Attributes:
        files: by path.
        pending: calls that the server has still to carry out.
        keeps_conditions: false if it does not know the header and overwrites.
        is_hierarchical: false for an Azure account without directories.
    """

    keeps_conditions = True
    is_hierarchical = True

    def __init__(self, kind: str, *, conditional: bool = False, known: bool = True) -> None:
        self.kind, self.conditional, self.known = kind, conditional, known
        self.files: dict[str, bytes] = {}
        self.pending: list[Call] = []
        self._fates: dict[str, list[Fate]] = defaultdict(list)

    def at(self, what: str, *fates: Fate) -> None:
        """What becomes of the next calls of a kind."""
        self._fates[what] += fates

    def do(self, what: str, call: Call) -> Any:
        if self._fates[what]:
            return self._fates[what].pop(0)(self, call)
        return call()

    def session(self) -> Any:
        """A Spark session, as far as filesystems look at it."""
        names = {
            "Path": lambda text: _Path(self, text),
            "FileContext": SimpleNamespace(getFileContext=lambda uri, conf: self),
            "Options": SimpleNamespace(Rename=SimpleNamespace(OVERWRITE="OVERWRITE")),
            "FileSystem": SimpleNamespace(getDefaultUri=lambda conf: SimpleNamespace(getScheme=lambda: "file")),
        }
        jvm = SimpleNamespace(**{f"org.apache.hadoop.fs.{name}": value for name, value in names.items()})
        gateway = SimpleNamespace(jvm=jvm, new_array=lambda kind, count: [None] * count)
        state = SimpleNamespace(newHadoopConf=lambda: None)
        return SimpleNamespace(
            _jvm=jvm,
            sparkContext=SimpleNamespace(_gateway=gateway),
            _jsparkSession=SimpleNamespace(sessionState=lambda: state),
        )

    def filesystem(self, root: str) -> HadoopFileSystem:
        return HadoopFileSystem(self.session(), root)

    # FileContext ------------------------------------------------------------------------------------------------

    def rename(self, source: _Path, target: _Path, options: list[str]) -> None:
        if self.kind == "abfs" and not options and self.do("look", lambda: target.text in self.files):
            raise JavaError("org.apache.hadoop.fs.FileAlreadyExistsException", target.text)
        self.do("rename", lambda: self._rename(source.text, target.text, bool(options)))

    def _rename(self, source: str, target: str, overwrites: bool) -> None:
        if source not in self.files:
            raise JavaError("java.io.FileNotFoundException", source)
        if target in self.files and not overwrites:
            if self.kind == "abfs":
                raise JavaError(IO, f"rename from {source} to {target} failed.")
            raise JavaError("org.apache.hadoop.fs.FileAlreadyExistsException", target)
        self.files[target] = self.files.pop(source)

    # FileSystem -------------------------------------------------------------------------------------------------

    def getUri(self) -> str:
        return self.kind

    def makeQualified(self, path: _Path) -> _Path:
        return path

    def hasPathCapability(self, _path: _Path, name: str) -> bool:
        if self.kind == "abfs" and name == "fs.capability.paths.acls":
            return self.is_hierarchical
        return self.conditional and name == CONDITIONAL_CREATE

    def exists(self, path: _Path) -> bool:
        return bool(self.do("exists", lambda: path.text in self.files))

    isFile = exists

    def listStatus(self, path: _Path) -> list[Any]:
        found = [name for name in self.files if name == path.text or name.startswith(f"{path.text}/")]
        if not found:
            raise JavaError("java.io.FileNotFoundException", path.text)
        return [_Status(self, name) for name in found]

    def open(self, path: _Path) -> Any:
        if path.text not in self.files:
            raise JavaError("java.io.FileNotFoundException", path.text)
        data = self.do("read", lambda: self.files[path.text])
        return SimpleNamespace(readAllBytes=lambda: data, close=lambda: None)

    def delete(self, path: _Path, _recursive: bool) -> bool:
        return bool(self.do("delete", lambda: self.files.pop(path.text, None) is not None))

    def create(self, path: _Path, overwrites: bool) -> _Stream:
        if not overwrites and path.text in self.files:
            raise JavaError("org.apache.hadoop.fs.FileAlreadyExistsException", path.text)
        if self.kind in ("hdfs", "abfs"):
            self.files[path.text] = b""  # seen from the beginning, and while it grows
        return _Stream(self, path.text, overwrites)

    def createFile(self, path: _Path) -> Any:
        builder = SimpleNamespace(overwrites=False, build=lambda: _Stream(self, path.text, builder.overwrites))
        builder.recursive = lambda: builder
        builder.must = builder.opt = lambda name, value: builder
        builder.overwrite = lambda overwrites: vars(builder).update(overwrites=overwrites) or builder
        return builder


@attrs.define
class _Stream:
    storage: Storage
    path: str
    overwrites: bool
    data: bytes = b""

    def hasCapability(self, _name: str) -> bool:
        return self.storage.kind == "hdfs"

    def write(self, data: bytes) -> None:
        half = data[: len(data) // 2]
        self._show(half)
        self.storage.do("write", lambda: None)
        self._show(data)

    def _show(self, data: bytes) -> None:
        self.data = data
        if self.storage.kind in ("hdfs", "abfs"):
            self.storage.files[self.path] = data

    def hsync(self) -> None:
        self.storage.do("sync", lambda: None)

    def close(self) -> None:
        self.storage.do("close", self._publish)

    def _publish(self) -> None:
        if self.storage.kind in ("gs", "s3a"):
            if self.path in self.storage.files and not self.overwrites and self.storage.keeps_conditions:
                raise JavaError(
                    "org.apache.hadoop.fs.s3a.RemoteFileChangedException"
                    if self.storage.kind == "s3a"
                    else "com.google.api.client.googleapis.json.GoogleJsonResponseException",
                    "412 Precondition Failed",
                )
            self.storage.files[self.path] = self.data


@attrs.frozen
class _Status:
    storage: Storage
    path: str

    def getPath(self) -> _Path:
        return _Path(self.storage, self.path)

    def isDirectory(self) -> bool:
        return False

    def getLen(self) -> int:
        return len(self.storage.files[self.path])

    def getModificationTime(self) -> int:
        return 0


@attrs.frozen
class _Path:
    storage: Storage
    text: str

    def toString(self) -> str:
        return self.text

    def getFileSystem(self, _conf: object) -> Storage:
        if not self.storage.known:
            raise JavaError("org.apache.hadoop.fs.UnsupportedFileSystemException", "No FileSystem for scheme")
        return self.storage
