"""What S3's API says, in Python's words: connecting to it, paths, listings and errors (S33).

Owns: :func:`connect`, :class:`Place`, and what answers of boto3 mean. What is asked of S3 stands in ``storage/s3.py``. Needs boto3,
which is imported when the first table on S3 is opened; credentials, endpoint, retries and all other settings are those that boto3
finds.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from importlib import import_module
from typing import Any

import attrs

from trinitymerge.errors import MissingPackageError, StorageError, UnsupportedStorageError
from trinitymerge.storage.files import FileInfo, Infos, split_scheme

SCHEMES = ("s3", "s3a")
"""Of paths that are taken; ``s3`` is how EMR calls it."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_connecting = threading.Lock()

EMR_DIRECTORY = "_$folder$"
"""Ends the names of the empty objects by which EMR's filesystem remembers directories."""


def connect() -> Any:
    """boto3's client for S3, of its default session.

    Raises:
        MissingPackageError: boto3 is not installed, or does not know conditional writes yet.
        StorageError: boto3's settings cannot be read.
    """
    try:
        boto3, exceptions = import_module("boto3"), import_module("botocore.exceptions")
    except ImportError:
        raise MissingPackageError(
            "The log of a table on S3 goes through boto3, which is not installed: pip install 'trinitymerge[s3]'."
        ) from None
    try:
        with _connecting:  # sessions are not made for several threads, clients are
            client = boto3.client("s3")
    except (exceptions.BotoCoreError, ValueError) as error:
        raise StorageError(f"boto3 cannot connect to S3: {error}. Check AWS_PROFILE and the other settings.") from error
    if "IfNoneMatch" not in client.meta.service_model.operation_model("PutObject").input_shape.members:
        raise MissingPackageError(
            f"boto3 {boto3.__version__} cannot create objects exclusively: pip install 'trinitymerge[s3]' brings a newer one."
        )
    return client


@attrs.frozen
class Place:
    """An object, or what lies below a prefix; keys are taken literally, as Hadoop takes paths."""

    scheme: str
    bucket: str
    key: str

    @property
    def path(self) -> str:
        return self.of(self.key)

    @property
    def prefix(self) -> str:
        """With which all keys below begin."""
        return f"{self.key}/" if self.key else ""

    def of(self, key: str) -> str:
        """The path of another key of this bucket."""
        return f"{self.scheme}://{self.bucket}/{key}".rstrip("/")


def place_of(path: str) -> Place:
    scheme, rest = split_scheme(path)
    bucket, _, key = rest.removeprefix("//").partition("/")
    if "@" in bucket:
        raise UnsupportedStorageError(
            f"A path on S3 holds credentials or a user ('{scheme}://...@{bucket.rpartition('@')[2]}'), which would end up in logs. "
            "Leave them out; boto3 and Spark have settings for them.",
            scheme=scheme,
        )
    if scheme not in SCHEMES or not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        raise UnsupportedStorageError(
            f"'{path}' names no place on S3. Write 's3a://bucket/path', or on EMR 's3://bucket/path'.",
            path=path,
            scheme=scheme,
        )
    parts: list[str] = []
    for part in key.split("/"):  # by name, as Hadoop does
        if part == ".." and not parts:
            raise UnsupportedStorageError(f"'{path}' leads out of its bucket. Write it without '..'.", path=path)
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return Place(scheme, bucket, "/".join(parts))


# Listings -----------------------------------------------------------------------------------------------------------


def files_of(place: Place, page: dict[str, Any]) -> Infos:
    """The files of a page of a listing, without what stands for directories, and what no path can name."""
    found = []
    for each in page.get("Contents", ()):
        key, size_bytes = str(each["Key"]), int(each["Size"])
        is_marker = key.endswith("/") or (key.endswith(EMR_DIRECTORY) and not size_bytes)
        if not is_marker and all(map(can_be_named, key[len(place.prefix) :].split("/"))):
            modified_ms = int(1000 * each["LastModified"].timestamp())
            found.append(FileInfo(key.rpartition("/")[2], place.of(key), size_bytes, False, modified_ms))
    return found


def can_be_named(part: str) -> bool:
    return part not in ("", ".", "..")


# Answers ------------------------------------------------------------------------------------------------------------


_WITHOUT_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}


def meaning_of(error: Exception, place: Place, endpoint: str) -> Exception:
    """Python's exception for one of boto3, as the contract of :class:`~trinitymerge.storage.files.FileSystem` has it."""
    status, path = status_of(error), place.path
    if code_of(error) == "NoSuchBucket":
        return StorageError(
            f"'{path}': there is no bucket '{place.bucket}' at {endpoint}. Create it, or check its name and boto3's endpoint "
            "(AWS_ENDPOINT_URL).",
            path=path,
            bucket=place.bucket,
        )
    if status == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if status in (401, 403):
        hint = "S3 also says so of what does not exist, unless s3:ListBucket is granted"
        return PermissionError(errno.EACCES, f"S3: {text_of(error)} ({hint})", path)
    if {kind.__name__ for kind in type(error).__mro__} & _WITHOUT_CREDENTIALS:
        hint = "Set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"
        return PermissionError(errno.EACCES, f"boto3 has no credentials for S3: {error}. {hint}", path)
    return OSError(errno.EIO, f"S3: {text_of(error)}", path)


def _response(error: Exception) -> dict[str, Any]:
    return getattr(error, "response", None) or {}


def metadata_of(error: Exception) -> dict[str, Any]:
    """What boto3 says of the exchange: the answer's status, and how often it has asked again."""
    return dict(_response(error).get("ResponseMetadata", {}))


def status_of(error: Exception) -> int | None:
    """S3's answer; None if there was none."""
    status = metadata_of(error).get("HTTPStatusCode")
    return None if status is None else int(status)


def code_of(error: Exception) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def text_of(error: Exception) -> str:
    said = _response(error).get("Error", {})
    return f"{said.get('Code')}: {said.get('Message')}" if said else str(error)


def unconditional(place: Place, what: str) -> UnsupportedStorageError:
    return UnsupportedStorageError(
        f"'{place.path}' cannot be created exclusively: the store {what}, so two writers could commit the same version. Nothing "
        "was committed. Use a store that keeps 'If-None-Match: *' for PUT, as S3 does.",
        path=place.path,
        bucket=place.bucket,
    )
