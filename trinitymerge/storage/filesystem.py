"""Which filesystem a path is on; and those that are reached through Hadoop (S33).

Owns: :func:`filesystem_for`, and :class:`HadoopFileSystem`, the one place in the library that uses Spark's
JVM gateway. The contract is in ``files.py``, local files in ``local.py``. Knows nothing of tables or logs:
it moves bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.storage import faults
from trinitymerge.storage.files import (
    FAULT_POINTS,
    TEMPORARY_SUFFIX,
    FileInfo,
    FileSystem,
    Infos,
    escape_glob,
    split_scheme,
    temporary_beside,
)
from trinitymerge.storage.local import LocalFileSystem

__all__ = [
    "CREATORS",
    "FAULT_POINTS",
    "TEMPORARY_SUFFIX",
    "FileInfo",
    "FileSystem",
    "HadoopFileSystem",
    "LocalFileSystem",
    "escape_glob",
    "filesystem_for",
    "split_scheme",
]

CONDITIONAL_CREATE = "fs.option.create.conditional.overwrite"
"""Hadoop's name, since 3.4.2, for creating an object when it is closed, and only if there is none."""

_REMEDIES = {
    "s3": "Use 's3a://' with Hadoop 3.4.2 or newer.",
    "s3n": "Use 's3a://' with Hadoop 3.4.2 or newer.",
    "wasb": "Use 'abfss://' on an account with a hierarchical namespace.",
    "wasbs": "Use 'abfss://' on an account with a hierarchical namespace.",
}

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

    How a file is created exclusively depends on what the storage promises:

    * ``hdfs``, ``webhdfs``, ``swebhdfs`` (and ``viewfs`` over them), ``abfs``, ``abfss``: a temporary file,
    then
      ``FileContext.rename`` without overwriting, which their servers decide. ``abfs`` needs a hierarchical
      namespace.
    * ``s3a``: Hadoop's conditional create, where the running Hadoop and its settings have it.
    * ``gs``: ``create`` without overwriting, which the connector sends with a precondition on the object's
    generation.

    Args:
        spark: a classic session.
        path: any path of the filesystem.
        create: one of :data:`CREATORS`; by default what the scheme says.

    Raises:
        UnsupportedStorageError: a scheme that is unknown, or cannot create exclusively; the message names a
            remedy.
    """

    def __init__(self, spark: Any, path: str, create: str | None = None) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._path_class: Any = _hadoop(self._gateway.jvm, "Path")
        self._context_class: Any = _hadoop(self._gateway.jvm, "FileContext")
        self._rename_options: Any = _hadoop(self._gateway.jvm, "Options").Rename
        default: Any = _hadoop(self._gateway.jvm, "FileSystem").getDefaultUri
        scheme = split_scheme(path)[0] or str(default(self._conf).getScheme())
        if create is None and scheme not in (*_BY_SCHEME, "viewfs"):
            raise _unsupported_scheme(path, scheme)
        with self._errors(path):
            self._fs: Any = self._path(path).getFileSystem(self._conf)
            if scheme == "viewfs":
                scheme = str(self._fs.resolvePath(self._existing(path)).toUri().getScheme())
        if create is None and scheme not in _BY_SCHEME:
            raise _unsupported_scheme(path, scheme)
        self._create = CREATORS[create or _BY_SCHEME[scheme]]

    def qualify(self, path: str) -> str:
        """See :class:`FileSystem`."""
        with self._errors(path):
            return str(self._fs.makeQualified(self._path(path)).toString())

    def create_exclusive(self, path: str, data: bytes) -> None:
        """See :class:`FileSystem`; how, depends on the scheme."""
        try:
            with self._errors(path):
                self._create(self, path, data)
        except FileExistsError:
            if self.exists(path):
                raise
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        faults.fault("create.synced")

    def replace(self, path: str, data: bytes) -> None:
        """See :class:`FileSystem`: by rename, or where objects appear when they are closed, by ``create``."""
        with self._errors(path):
            if self._create is not CREATORS["rename"]:
                self._write(self._fs.create(self._path(path), True), data)
                return
            temporary = temporary_beside(path)
            self._write(self._fs.create(self._path(temporary), False), data)
            faults.fault("replace.written")
            self._rename(temporary, path, [self._rename_options.OVERWRITE])

    def read(self, path: str) -> bytes:
        """See :class:`FileSystem`."""
        with self._errors(path):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def exists(self, path: str) -> bool:
        """See :class:`FileSystem`."""
        with self._errors(path):
            return bool(self._fs.exists(self._path(path)))

    def list(self, path: str) -> Infos:
        """See :class:`FileSystem`."""
        with self._errors(path):
            if not self._fs.getFileStatus(self._path(path)).isDirectory():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            return sorted(map(_hadoop_info, self._fs.listStatus(self._path(path))), key=lambda info: info.name)

    def delete(self, path: str) -> None:
        """See :class:`FileSystem`."""
        with self._errors(path):
            self._fs.delete(self._path(path), True)

    def move(self, path: str, target: str) -> None:
        """See :class:`FileSystem`."""
        with self._errors(path):
            if not self._fs.rename(self._path(path), self._path(target)):
                missing = not self._fs.exists(self._path(path))
                number = errno.ENOENT if missing else errno.EIO
                raise OSError(number, os.strerror(number), path)  # Python makes it a FileNotFoundError, or leaves it

    def copy(self, path: str, target: str) -> None:
        """See :class:`FileSystem`: through the JVM, whatever filesystems the two are on."""
        with self._errors(path):
            source, copied = self._path(path), self._path(target)
            util = _hadoop(self._gateway.jvm, "FileUtil")
            systems = source.getFileSystem(self._conf), copied.getFileSystem(self._conf)
            if not util.copy(systems[0], source, systems[1], copied, False, True, self._conf):
                raise OSError(errno.EIO, os.strerror(errno.EIO), target)

    def remove_empty(self, path: str) -> None:
        """See :class:`FileSystem`."""
        with contextlib.suppress(OSError), self._errors(path):
            self._fs.delete(self._path(path), False)

    def mkdirs(self, path: str) -> None:
        """See :class:`FileSystem`."""
        try:
            with self._errors(path):
                self._fs.mkdirs(self._path(path))
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None

    def sync_dir(self, path: str) -> None:
        """Does nothing: these storages keep a file once it is closed, as far as they are set up to."""

    # How files come to be -----------------------------------------------------------------------------------

    def _create_by_rename(self, path: str, data: bytes) -> None:
        temporary = temporary_beside(path)
        try:
            self._write(self._fs.create(self._path(temporary), False), data)
            faults.fault("create.written")
            with self._settling(path, data, temporary):
                self._rename(temporary, path, [])
            faults.fault("create.published")
        finally:
            self._fs.delete(self._path(temporary), False)

    def _create_by_condition(self, path: str, data: bytes) -> None:
        if not self._fs.hasPathCapability(self._path(path), CONDITIONAL_CREATE):
            raise UnsupportedStorageError(
                f"'{path}' cannot be created exclusively: the running Hadoop has no conditional create for "
                "it. Use hadoop-aws 3.4.2 or newer (Spark 4.1 or newer brings a Hadoop that fits), leave "
                "'fs.s3a.create.conditional.enabled' on, and use a store that knows 'If-None-Match'.",
                path=path,
            )
        with self._settling(path, data):
            builder = self._fs.createFile(self._path(path)).must(CONDITIONAL_CREATE, "true")
            self._write(builder.recursive().build(), data)
        faults.fault("create.published")

    def _create_by_precondition(self, path: str, data: bytes) -> None:
        with self._settling(path, data):
            self._write(self._fs.create(self._path(path), False), data)
        faults.fault("create.published")

    @contextlib.contextmanager
    def _settling(self, path: str, data: bytes, temporary: str | None = None) -> Iterator[None]:
        """Finds out who won when the storage only says that something went wrong.

        Connectors report a lost race in their own ways, and repeat requests whose answers got lost, so that a
        writer can be told that the file it has just created exists already.
        """
        try:
            yield
        except Exception as error:
            if _java_exception(error) is None or not self._fs.exists(self._path(path)):
                raise
            waiting = temporary is not None and self._fs.exists(self._path(temporary))
            if waiting or self.read(path) != data:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None

    def _write(self, stream: Any, data: bytes) -> None:
        stream.write(data)  # a stream that failed is not closed: closing could publish half of it
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
        """The path, or the nearest directory above it that exists."""
        java_path = self._path(path)
        while java_path.getParent() is not None and not self._fs.exists(java_path):
            java_path = java_path.getParent()
        return java_path

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Turns Java's exceptions into Python's."""
        try:
            yield
        except Exception as error:
            java = _java_exception(error)
            if java is None:
                raise
            raise _as_python(java, path) from None  # the JVM's stack trace tells a user nothing


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


def _unsupported_scheme(path: str, scheme: str) -> UnsupportedStorageError:
    known = ", ".join(sorted(("file", "viewfs", *_BY_SCHEME)))
    return UnsupportedStorageError(
        f"'{path}': nothing is known of storage '{scheme}' that would let only one of two writers commit a "
        "version. " + _REMEDIES.get(scheme, f"Use one of: {known}."),
        path=path,
        scheme=scheme,
    )


def _java_exception(error: Exception) -> Any:
    """The Java exception behind an error of py4j, or of PySpark; None behind any other."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _as_python(java: Any, path: str) -> Exception:
    """Python's exception for a Java one, its superclasses and its causes tried in turn."""
    text = f"{path}: {str(java.toString()).splitlines()[0]}"
    cause = java
    while cause is not None:
        kind = cause.getClass()
        while kind is not None:
            meaning = _MEANINGS.get(str(kind.getName()))
            if meaning is UnsupportedStorageError:
                remedy = "Add the storage's Hadoop connector to the session (for example 'spark.jars.packages')."
                return UnsupportedStorageError(f"{text}. {remedy}", path=path)
            if meaning is not None:
                return meaning(text)
            kind = kind.getSuperclass()
        cause = cause.getCause()
    return OSError(text)


def _require_local_default(spark: Any, path: str) -> None:
    """Without a JVM to ask, a plain path is taken for a local one, unless the session says where such paths lead."""
    default = str(spark.conf.get("spark.hadoop.fs.defaultFS", None) or "file:///")
    if split_scheme(default)[0] != "file":
        raise UnsupportedStorageError(
            f"'{path}' is on '{default}' by the session's 'spark.hadoop.fs.defaultFS', which can only be reached through "
            "Spark's JVM, and a Spark Connect session has none. Use a classic session, or write 'file:' before a path that "
            "this machine and the server see under the same name.",
            path=path,
            scheme=split_scheme(default)[0],
        )


def _hadoop(jvm: Any, name: str) -> Any:
    """A class by its full name: py4j asks the JVM for every part of one with dots, and packages are looked for in every jar."""
    return getattr(jvm, f"org.apache.hadoop.fs.{name}")


def _has_unicode_paths(jvm: Any) -> bool:
    return "utf" in str(getattr(jvm, "java.lang.System").getProperty("sun.jnu.encoding")).lower()


def filesystem_for(spark: Any, path: str) -> FileSystem:
    """The filesystem of a path, as Spark would choose it.

    Args:
        spark: a session, classic or Connect; None for local paths without Spark.
        path: with or without a scheme.

    Raises:
        UnsupportedStorageError: the storage cannot create exclusively, or cannot be reached from a Connect
            session.
    """
    scheme, _ = split_scheme(path)
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        if scheme not in (None, "file"):
            raise UnsupportedStorageError(
                f"'{path}' can only be reached through Spark's JVM, which a Spark Connect session does not "
                "have. Use a classic session, or a local path that the server sees under the same name.",
                path=path,
                scheme=scheme,
            )
        if scheme is None and spark is not None:
            _require_local_default(spark, path)
        return LocalFileSystem()
    hadoop = _hadoop(jvm, "FileSystem")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    if (scheme or str(hadoop.getDefaultUri(conf).getScheme())) != "file":
        return HadoopFileSystem(spark, path)
    if not path.isascii() and not _has_unicode_paths(jvm):
        raise UnsupportedStorageError(
            f"'{path}' cannot be written by Spark's JVM, which was started in a locale without Unicode. Set "
            "LC_ALL=C.UTF-8 in the environment before Spark starts, or use a path of plain letters.",
            path=path,
        )
    return LocalFileSystem(split_scheme(str(hadoop.getLocal(conf).getWorkingDirectory().toString()))[1])
