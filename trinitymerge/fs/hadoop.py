"""File systems behind Hadoop: HDFS, ABFS, GCS and S3A, and how each creates exclusively (S33)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.fs import faults
from trinitymerge.fs.base import (
    FileInfo,
    FileSystem,
    Infos,
    require_exclusive_creates,
    split_scheme,
    temporary_beside,
)

CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
"""Hadoop's capability, since 3.4.2, to create an object on close, only if it does not exist."""

_WITHOUT_CHECKS = "fs.s3a.create.performance"
"""An option of S3A, since Hadoop 3.3.5, to write a file without a look for a directory of its name."""

_ACLS = "fs.capability.paths.acls"
"""ABFS has this capability only on accounts with a hierarchical namespace."""

_BOTO3 = "boto3 (pip install 'trinitymerge[s3]'), with which the log uses S3's own API"

_REMEDIES = {
    **dict.fromkeys(("s3", "s3n"), f"Use 's3a://' with Hadoop 3.4.2 or newer, or {_BOTO3}."),
    **dict.fromkeys(("wasb", "wasbs"), "Use 'abfss://' on an account with a hierarchical namespace."),
}

_trusted: set[str] = set()
"""Buckets whose store passed :func:`require_exclusive_creates`."""

_MEANINGS: dict[str, type[Exception]] = {
    "java.io.FileNotFoundException": FileNotFoundError,
    "java.nio.file.NoSuchFileException": FileNotFoundError,
    "org.apache.hadoop.fs.FileAlreadyExistsException": FileExistsError,
    "java.nio.file.FileAlreadyExistsException": FileExistsError,
    "org.apache.hadoop.fs.ParentNotDirectoryException": NotADirectoryError,
    "org.apache.hadoop.security.AccessControlException": PermissionError,
    "java.nio.file.AccessDeniedException": PermissionError,
    "org.apache.hadoop.fs.UnsupportedFileSystemException": UnsupportedStorageError,
    "java.lang.UnsupportedOperationException": UnsupportedStorageError,
    "java.lang.ClassNotFoundException": UnsupportedStorageError,
}


class HadoopFileSystem(FileSystem):
    """Files behind Hadoop's ``FileSystem``, through the JVM gateway of a classic Spark session.

    Exclusive creation depends on the guarantees of the storage:

    * ``hdfs``, ``webhdfs``, ``swebhdfs`` (and ``viewfs`` over them), ``abfs``, ``abfss``: a temporary file, then
      ``FileContext.rename`` without overwriting. ``abfs`` needs a hierarchical namespace.
    * ``s3a``: Hadoop's conditional create, if the running Hadoop and its settings support it.
    * ``gs``: ``create`` without overwriting, for which the connector sends a precondition.
    """

    def __init__(self, spark: Any, path: str, create: str | None = None) -> None:
        if getattr(spark, "_jvm", None) is None:
            raise UnsupportedStorageError(
                f"'{path}' can only be reached through Spark's JVM, and a Spark Connect session has none. Use a classic session, "
                "or a local path that the server sees under the same name.",
                path=path,
                scheme=split_scheme(path)[0],
            )
        self._gateway: Any = spark.sparkContext._gateway
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._path_class: Any = hadoop_class(self._gateway.jvm, "Path")
        self._context_class: Any = hadoop_class(self._gateway.jvm, "FileContext")
        self._rename_options: Any = hadoop_class(self._gateway.jvm, "Options").Rename
        default: Any = hadoop_class(self._gateway.jvm, "FileSystem").getDefaultUri
        scheme = split_scheme(path)[0] or str(default(self._conf).getScheme())
        if create is None and scheme not in (*_BY_SCHEME, "viewfs"):
            raise unsupported_scheme(path, scheme)
        with self._errors(path):
            self._fs: Any = self._path(path).getFileSystem(self._conf)
            if scheme == "viewfs":
                scheme = str(self._fs.resolvePath(self._existing(path)).toUri().getScheme())
        if create is None and scheme not in _BY_SCHEME:
            raise unsupported_scheme(path, scheme)
        self._scheme = scheme
        self._create = CREATORS[create or _BY_SCHEME[scheme]]
        self._is_object_store = self._create is not CREATORS["rename"]
        self._directories: set[str] = set()

    def qualify(self, path: str) -> str:
        with self._errors(path):
            return str(self._fs.makeQualified(self._path(path)).toString())

    def create_exclusive(self, path: str, data: bytes) -> None:
        try:
            with self._errors(path):
                self._create(self, path, data)
        except FileExistsError:
            if self.exists(path):
                raise
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        faults.fault("create.synced")

    def has_conditional_create(self, path: str) -> bool:
        with self._errors(path):
            return bool(self._fs.hasPathCapability(self._path(path), CONDITIONAL_CREATE))

    def replace(self, path: str, data: bytes) -> None:
        # Object stores publish a file on close, and need no rename. S3A need not look for a directory first.
        with self._errors(path):
            if self._is_object_store:
                builder = self._fs.createFile(self._path(path)).opt(_WITHOUT_CHECKS, "true")
                self._write(builder.recursive().overwrite(True).build(), data)
                return
            temporary = temporary_beside(path)
            self._write(self._fs.create(self._path(temporary), False), data)
            faults.fault("replace.written")
            self._rename(temporary, path, [self._rename_options.OVERWRITE])

    def read(self, path: str) -> bytes:
        with self._errors(path):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def exists(self, path: str) -> bool:
        with self._errors(path):
            return bool(self._fs.exists(self._path(path)))

    def has_file(self, path: str) -> bool:
        with self._errors(path):
            return bool(self._fs.isFile(self._path(path)))

    def list(self, path: str) -> Infos:
        with self._errors(path):
            found = sorted(map(_hadoop_info, self._fs.listStatus(self._path(path))), key=lambda info: info.name)
            self._require_directory(path, found)
            return found

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yield all files below a directory; of S3, by one listing without directories."""
        if self._create is CREATORS["condition"]:
            return iter(self.list_below(path))
        # Hadoop's listing of others goes from directory to directory, and fails if one is removed on the way.
        return super().walk(path)

    def list_below(self, path: str) -> Infos:
        """Return all files below a directory of S3."""
        with self._errors(path):
            listed, found = self._fs.listFiles(self._path(path), True), []
            while listed.hasNext():
                found.append(_hadoop_info(listed.next()))
            self._require_directory(path, found)
        return sorted(found, key=lambda info: info.path.split("/"))

    def _require_directory(self, path: str, found: Sequence[FileInfo]) -> None:
        """Raise if a listing is that of a file: Hadoop lists it as its only entry."""
        if len(found) == 1 and not found[0].is_dir and found[0].path == self.qualify(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def delete(self, path: str) -> None:
        with self._errors(path):
            self._fs.delete(self._path(path), True)

    def move(self, path: str, target: str) -> None:
        with self._errors(path):
            if not self._fs.rename(self._path(path), self._path(target)):
                missing = not self._fs.exists(self._path(path))
                number = errno.ENOENT if missing else errno.EIO
                raise OSError(number, os.strerror(number), path)  # Python raises the subclass of the number

    def copy(self, path: str, target: str) -> None:
        with self._errors(path):
            source, copied = self._path(path), self._path(target)
            util = hadoop_class(self._gateway.jvm, "FileUtil")
            systems = source.getFileSystem(self._conf), copied.getFileSystem(self._conf)
            if not util.copy(systems[0], source, systems[1], copied, False, True, self._conf):
                raise OSError(errno.EIO, os.strerror(errno.EIO), target)

    def remove_empty(self, path: str) -> None:
        with contextlib.suppress(OSError), self._errors(path):
            self._fs.delete(self._path(path), False)

    def mkdirs(self, path: str) -> None:
        if self._is_object_store and path in self._directories:  # there, files need no directory
            return
        try:
            with self._errors(path):
                self._fs.mkdirs(self._path(path))
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        if self._is_object_store:
            self._directories.add(path)

    def sync_dir(self, path: str) -> None:
        """Do nothing: these storages keep closed files."""

    # Creating exclusively ---------------------------------------------------------------------------------------

    def _create_by_rename(self, path: str, data: bytes) -> None:
        if self._scheme in ("abfs", "abfss") and not self._fs.hasPathCapability(self._path(path), _ACLS):
            raise UnsupportedStorageError(
                f"'{path}' cannot be created exclusively: its storage account has no hierarchical namespace, so a rename may "
                "overwrite. Use an account with a hierarchical namespace (Azure can upgrade an account).",
                path=path,
            )
        temporary = temporary_beside(path)
        try:
            self._write(self._fs.create(self._path(temporary), False), data)
            faults.fault("create.written")
            with self._resolving_doubt(path, data, temporary):
                self._rename(temporary, path, [])
            faults.fault("create.published")
        finally:
            with contextlib.suppress(OSError), self._errors(path):  # the outcome for the file does not depend on it
                self._fs.delete(self._path(temporary), False)

    def _create_by_condition(self, path: str, data: bytes) -> None:
        if not self.has_conditional_create(path):
            raise UnsupportedStorageError(
                f"'{path}' cannot be created exclusively: the running Hadoop has no conditional create for it. Use hadoop-aws "
                "3.4.2 or newer (Spark 4.1 or newer has it) with 'fs.s3a.create.conditional.enabled' and a store that supports "
                f"'If-None-Match', or install {_BOTO3}.",
                path=path,
            )
        bucket = path.rpartition("://")[2].partition("/")[0]
        if bucket not in _trusted:  # the capability is only that Hadoop sends the condition
            require_exclusive_creates(path, self._create_if_absent, self)
            _trusted.add(bucket)
        self._create_if_absent(path, data)
        faults.fault("create.published")

    def _create_if_absent(self, path: str, data: bytes) -> None:
        with self._resolving_doubt(path, data):
            builder = self._fs.createFile(self._path(path)).must(CONDITIONAL_CREATE, "true")
            self._write(builder.recursive().build(), data)

    def _create_by_precondition(self, path: str, data: bytes) -> None:
        with self._resolving_doubt(path, data):
            self._write(self._fs.create(self._path(path), False), data)
        faults.fault("create.published")

    @contextlib.contextmanager
    def _resolving_doubt(self, path: str, data: bytes, temporary: str | None = None) -> Iterator[None]:
        """Find out who succeeded after an error: connectors name lost races variously, and retry requests whose reply was lost."""
        try:
            yield
        except Exception as error:
            java = _java_exception(error)
            if java is None:
                raise
            try:
                is_there = self.exists(path)  # while the temporary file is there, too, another writer has created it
                is_own = is_there and not (temporary and self.exists(temporary)) and self.read(path) == data
            except OSError as second:  # not a subclass that would mean that nothing was created
                said = str(java.toString()).splitlines()[0]
                why = f"{said}; whether it was created could not be found out ({second})"
                raise OSError(errno.EIO, why, path) from None
            if not is_there:
                raise
            if not is_own:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None

    def _write(self, stream: Any, data: bytes) -> None:
        stream.write(data)  # a failed stream is not closed: closing could publish a part of the file
        if stream.hasCapability("hsync"):
            stream.hsync()
        stream.close()

    def _rename(self, source: str, target: str, options: Sequence[Any]) -> None:
        java_options = self._gateway.new_array(self._rename_options, len(options))
        for position, option in enumerate(options):
            java_options[position] = option
        context = self._context_class.getFileContext(self._fs.getUri(), self._conf)
        context.rename(self._path(source), self._path(target), java_options)

    def _path(self, path: str) -> Any:
        return self._path_class(path)

    def _existing(self, path: str) -> Any:
        """Return the path, or its nearest parent that exists."""
        java_path = self._path(path)
        while java_path.getParent() is not None and not self._fs.exists(java_path):
            java_path = java_path.getParent()
        return java_path

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            java = _java_exception(error)
            if java is None:
                raise
            raise _as_python(java, path) from None  # without the JVM's stack trace


CREATORS: dict[str, Callable[[HadoopFileSystem, str, bytes], None]] = {
    "rename": HadoopFileSystem._create_by_rename,
    "condition": HadoopFileSystem._create_by_condition,
    "precondition": HadoopFileSystem._create_by_precondition,
}
"""The ways to create a file exclusively through Hadoop."""

_BY_SCHEME = {
    **dict.fromkeys(("hdfs", "webhdfs", "swebhdfs", "abfs", "abfss"), "rename"),
    "s3a": "condition",
    "gs": "precondition",
}


def _hadoop_info(status: Any) -> FileInfo:
    path = str(status.getPath().toString())
    is_dir = bool(status.isDirectory())
    size_bytes = 0 if is_dir else int(status.getLen())
    return FileInfo(path.rpartition("/")[2], path, size_bytes, is_dir, int(status.getModificationTime()))


def unsupported_scheme(path: str, scheme: str) -> UnsupportedStorageError:
    known = ", ".join(sorted(("file", "viewfs", *_BY_SCHEME)))
    return UnsupportedStorageError(
        f"'{path}': storage '{scheme}' is not known to let only one of two writers commit a version. "
        + _REMEDIES.get(scheme, f"Use one of: {known}."),
        path=path,
        scheme=scheme,
    )


def _java_exception(error: Exception) -> Any:
    """Return the Java exception behind an error of py4j or PySpark; None for other errors."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _as_python(java: Any, path: str) -> Exception:
    """Return Python's exception for a Java one, by its class, superclasses and causes."""
    text = f"{path}: {str(java.toString()).splitlines()[0]}"
    cause = java
    while cause is not None:
        kind = cause.getClass()
        while kind is not None:
            meaning = _MEANINGS.get(str(kind.getName()))
            if meaning is UnsupportedStorageError:
                remedy = "Add the storage's Hadoop connector to the session, for example with 'spark.jars.packages'."
                return UnsupportedStorageError(f"{text}. {remedy}", path=path)
            if meaning is not None:
                return meaning(text)
            kind = kind.getSuperclass()
        cause = cause.getCause()
    return OSError(text)


def hadoop_class(jvm: Any, name: str) -> Any:
    """Return a class by its full name; py4j would look up every part of a dotted name in every jar."""
    return getattr(jvm, f"org.apache.hadoop.fs.{name}")
