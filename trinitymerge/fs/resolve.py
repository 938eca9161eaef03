"""Choose the file system of a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinitymerge._package import registered
from trinitymerge.errors import MissingPackageError, UnsupportedStorageError
from trinitymerge.fs.base import FileSystem, split_scheme
from trinitymerge.fs.hadoop import HadoopFileSystem, hadoop_class, unsupported_scheme
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.fs.s3 import SCHEMES, S3FileSystem


def filesystem_for(spark: Any, path: str) -> FileSystem:
    """Return the file system of a path, as Spark chooses it; without a session, of local paths and S3."""
    scheme = split_scheme(path)[0] or _default_scheme(spark, path)
    otherwise = _needs_spark if spark is None else HadoopFileSystem
    return registered("trinitymerge.filesystems", FILE_SYSTEMS, scheme, otherwise)(spark, path)


def _needs_spark(spark: None, path: str) -> FileSystem:
    raise UnsupportedStorageError(
        f"'{path}' can only be reached through Spark. Without a session, local paths and S3 can be read. Open the table with "
        "TrinityTable.forPath(spark, path).",
        path=path,
    )


def _default_scheme(spark: Any, path: str) -> str:
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        return str(hadoop_class(jvm, "FileSystem").getDefaultUri(conf).getScheme())
    default = "file" if spark is None else str(spark.conf.get("spark.hadoop.fs.defaultFS", None) or "file:///")
    scheme = split_scheme(default)[0]
    if scheme not in (None, "file"):
        raise UnsupportedStorageError(
            f"'{path}' is on '{default}' by 'spark.hadoop.fs.defaultFS', which can only be reached through Spark's JVM, and a "
            "Spark Connect session has none. Use a classic session, or a 'file:' path that the server sees under the same name.",
            path=path,
            scheme=scheme,
        )
    return "file"


def _local(spark: Any, path: str) -> FileSystem:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return LocalFileSystem()
    encoding = "" if path.isascii() else str(getattr(jvm, "java.lang.System").getProperty("sun.jnu.encoding"))
    if not path.isascii() and "utf" not in encoding.lower():
        raise UnsupportedStorageError(
            f"'{path}' cannot be written by Spark's JVM, which runs in a locale without Unicode. Set LC_ALL=C.UTF-8 in the "
            "environment before Spark starts, or use an ASCII path.",
            path=path,
        )
    local = hadoop_class(jvm, "FileSystem").getLocal(spark._jsparkSession.sessionState().newHadoopConf())
    return LocalFileSystem(split_scheme(str(local.getWorkingDirectory().toString()))[1])


def _on_s3(spark: Any, path: str) -> FileSystem:
    """Return Hadoop's conditional create if it has one, else S3's own API, with the same condition.

    Spark always writes the data, so Hadoop must know the scheme. Without boto3, a table can only be read.
    """
    if spark is None:
        return S3FileSystem()
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
"""File systems by scheme. Other packages add more (:mod:`trinitymerge._package`); Hadoop has the rest."""
