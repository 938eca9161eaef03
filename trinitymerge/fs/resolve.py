"""Which file system a path is on."""

from __future__ import annotations

from typing import Any

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
    hadoop = hadoop_class(jvm, "FileSystem")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    scheme = scheme or str(hadoop.getDefaultUri(conf).getScheme())
    if scheme in SCHEMES:
        return _on_s3(spark, path, scheme)
    if scheme != "file":
        return HadoopFileSystem(spark, path)
    if not path.isascii() and not _has_unicode_paths(jvm):
        raise UnsupportedStorageError(
            f"'{path}' cannot be written by Spark's JVM, which was started in a locale without Unicode. Set "
            "LC_ALL=C.UTF-8 in the environment before Spark starts, or use a path of plain letters.",
            path=path,
        )
    return LocalFileSystem(split_scheme(str(hadoop.getLocal(conf).getWorkingDirectory().toString()))[1])


def _on_s3(spark: Any, path: str, scheme: str) -> FileSystem:
    """Hadoop's conditional create where there is one, else S3's own API: both are the same condition to the store.

    Either way Spark writes the data, so Hadoop must know the scheme. Without boto3, a table can be read and is not written.
    """
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
