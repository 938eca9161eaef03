"""Which file system a path is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinitymerge._plugins import registered
from trinitymerge.errors import MissingPackageError, UnsupportedStorageError
from trinitymerge.fs.base import FAULT_POINTS, TEMPORARY_SUFFIX, FileInfo, FileSystem, Infos, escape_glob, split_scheme
from trinitymerge.fs.hadoop import CREATORS, HadoopFileSystem, hadoop_class, unsupported_scheme
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.s3 import SCHEMES, S3FileSystem

__all__ = [
    "CREATORS",
    "FAULT_POINTS",
    "TEMPORARY_SUFFIX",
    "FileInfo",
    "FileSystem",
    "HadoopFileSystem",
    "Infos",
    "LocalFileSystem",
    "S3FileSystem",
    "escape_glob",
    "filesystem_for",
    "split_scheme",
]


def filesystem_for(spark: Any, path: str) -> FileSystem:
    """Return the file system of a path, as Spark would choose it.

    Args:
        spark: a session, classic or Connect; None for local paths without Spark.
        path: with or without a scheme.

    Raises:
        UnsupportedStorageError: the storage cannot create exclusively, or cannot be reached from a Connect
            session.
    """
    scheme = split_scheme(path)[0] or _default_scheme(spark, path)
    return registered("trinitymerge.filesystems", FILE_SYSTEMS, scheme, HadoopFileSystem)(spark, path)


def _default_scheme(spark: Any, path: str) -> str:
    """Return the scheme of paths without one, as the session is set."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        return str(hadoop_class(jvm, "FileSystem").getDefaultUri(conf).getScheme())
    default = "file" if spark is None else str(spark.conf.get("spark.hadoop.fs.defaultFS", None) or "file:///")
    scheme = split_scheme(default)[0]
    if scheme not in (None, "file"):
        raise UnsupportedStorageError(
            f"'{path}' is on '{default}' by the session's 'spark.hadoop.fs.defaultFS', which can only be reached through "
            "Spark's JVM, and a Spark Connect session has none. Use a classic session, or write 'file:' before a path that "
            "this machine and the server see under the same name.",
            path=path,
            scheme=scheme,
        )
    return "file"


def _local(spark: Any, path: str) -> FileSystem:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return LocalFileSystem()
    if not path.isascii() and not _has_unicode_paths(jvm):
        raise UnsupportedStorageError(
            f"'{path}' cannot be written by Spark's JVM, which was started in a locale without Unicode. Set "
            "LC_ALL=C.UTF-8 in the environment before Spark starts, or use a path of plain letters.",
            path=path,
        )
    local = hadoop_class(jvm, "FileSystem").getLocal(spark._jsparkSession.sessionState().newHadoopConf())
    return LocalFileSystem(split_scheme(str(local.getWorkingDirectory().toString()))[1])


def _has_unicode_paths(jvm: Any) -> bool:
    return "utf" in str(getattr(jvm, "java.lang.System").getProperty("sun.jnu.encoding")).lower()


def _on_s3(spark: Any, path: str) -> FileSystem:
    """Return Hadoop's conditional create where there is one, else S3's own API: both are the same condition to the store.

    Either way Spark writes the data, so Hadoop must know the scheme. Without boto3, a table can be read and is not written.
    """
    scheme = str(split_scheme(path)[0] or _default_scheme(spark, path))
    try:
        hadoop = HadoopFileSystem(spark, path, create="condition")
    except UnsupportedStorageError:
        if scheme == "s3a":
            raise
        raise unsupported_scheme(path, scheme) from None
    if scheme == "s3a" and hadoop.has_conditional_create(path):
        return hadoop
    try:
        return S3FileSystem(spark_side=hadoop)
    except MissingPackageError:
        if scheme == "s3a":
            return hadoop
        raise unsupported_scheme(path, scheme) from None


FILE_SYSTEMS: dict[str, Callable[[Any, str], FileSystem]] = {"file": _local, **dict.fromkeys(SCHEMES, _on_s3)}
"""File systems by scheme. Other packages add more (:mod:`trinitymerge._plugins`); Hadoop has the rest."""
