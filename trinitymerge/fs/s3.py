"""S3 through its API (boto3): conditional writes, retries and lost answers (S33)."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import attrs

from trinitymerge.errors import MissingPackageError, StorageError, UnsupportedStorageError
from trinitymerge.fs import faults
from trinitymerge.fs.base import FileInfo, FileSystem, Infos, split_scheme, temporary_beside
from trinitymerge.fs.local import LocalFileSystem

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
    """Python's exception for one of boto3, as the contract of :class:`~trinitymerge.fs.base.FileSystem` has it."""
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


LARGEST_COPY_BYTES = 5 * 1024**3
"""What S3 copies with one request; above, in parts."""

_WAITS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Between attempts to create where another request for the same object was being carried out (409)."""

_trusted: set[tuple[str, str]] = set()
"""Endpoints and buckets that were found to keep conditions."""


class S3FileSystem(FileSystem):
    """Objects behind S3's API.

    Args:
        spark_side: the same storage as Spark's Hadoop sees it, for what only that can say; without it, paths have a scheme.
        client: of boto3; by default, :func:`connect`.
    """

    def __init__(self, spark_side: FileSystem | None = None, client: Any = None) -> None:
        self._spark_side = spark_side
        self._client = client or connect()
        self._endpoint = str(self._client.meta.endpoint_url)
        exceptions: Any = import_module("botocore.exceptions")
        self._client_error: type[Exception] = exceptions.ClientError
        self._failures = (
            exceptions.ClientError,
            exceptions.BotoCoreError,
            import_module("boto3.exceptions").Boto3Error,
        )
        self._directories: set[tuple[str, str]] = set()

    def qualify(self, path: str) -> str:
        """See :class:`FileSystem`; the scheme stays as it was written."""
        return place_of(self._spark_side.qualify(path) if self._spark_side else path).path

    def create_exclusive(self, path: str, data: bytes) -> None:
        """See :class:`FileSystem`: a ``PUT`` on the condition that there is no such object."""
        place = place_of(path)
        self._require_directories(place)
        self._require_conditions(place)
        faults.fault("create.written")
        self._put_if_absent(place, data)
        faults.fault("create.published")
        faults.fault("create.synced")

    def replace(self, path: str, data: bytes) -> None:
        """See :class:`FileSystem`: a ``PUT``, which S3 carries out whole or not at all."""
        place = place_of(path)
        faults.fault("replace.written")
        with self._errors(place):
            self._client.put_object(Bucket=place.bucket, Key=place.key, Body=data)

    def read(self, path: str) -> bytes:
        """See :class:`FileSystem`."""
        place = place_of(path)
        with self._errors(place):
            return bytes(self._client.get_object(Bucket=place.bucket, Key=place.key)["Body"].read())

    def exists(self, path: str) -> bool:
        """See :class:`FileSystem`."""
        place = place_of(path)
        with self._errors(place):
            return self._is_file(place, place.key) or bool(self._first_below(place, 1)) or not place.key

    def list(self, path: str) -> Infos:
        """See :class:`FileSystem`: directories are the common prefixes of keys."""
        place, found, is_there = place_of(path), [], False
        start = len(place.prefix)
        with self._errors(place):
            for page in self._pages(place, Delimiter="/"):
                below = page.get("CommonPrefixes", ())
                is_there = is_there or bool(below or page.get("Contents"))
                names = (str(each["Prefix"])[start:-1] for each in below)
                found += [FileInfo(n, place.of(place.prefix + n), 0, True, 0) for n in names if can_be_named(n)]
                found += files_of(place, page)
            if not is_there and place.key:
                number = errno.ENOTDIR if self._is_file(place, place.key) else errno.ENOENT
                raise OSError(number, os.strerror(number), place.path)  # Python makes it the class for that number
        return sorted(found, key=lambda info: info.name)

    def walk(self, path: str) -> Iterator[FileInfo]:
        """See :class:`FileSystem`; a request for every thousand files, whatever the directories."""
        place, is_there = place_of(path), False
        with self._errors(place):
            for page in self._pages(place):
                is_there = is_there or bool(page.get("Contents"))
                yield from files_of(place, page)
        if not is_there:
            yield from self.list(path)  # there is none, or it is a file, or a bucket that holds nothing

    def delete(self, path: str) -> None:
        """See :class:`FileSystem`; the objects below go in batches, one after the other."""
        place = place_of(path)
        if not place.key:
            raise PermissionError(errno.EPERM, "A whole bucket is not deleted", place.path)
        with self._errors(place):
            for page in self._pages(place):
                self._remove(place, [str(each["Key"]) for each in page.get("Contents", ())])
            self._remove(place, [place.key, place.key + EMR_DIRECTORY])

    def move(self, path: str, target: str) -> None:
        """See :class:`FileSystem`: a copy, and the original goes."""
        self.copy(path, target)
        place = place_of(path)
        with self._errors(place):
            self._client.delete_object(Bucket=place.bucket, Key=place.key)

    def copy(self, path: str, target: str) -> None:
        """See :class:`FileSystem`: on S3's side, or by this process where one of the two is a local file."""
        schemes = [split_scheme(p)[0] for p in (path, target)]
        if all(scheme in SCHEMES for scheme in schemes):
            self._copy_object(place_of(path), place_of(target))
        elif schemes[0] in SCHEMES and schemes[1] in (None, "file"):
            place = place_of(path)
            with self._errors(place):
                self._client.download_file(place.bucket, place.key, LocalFileSystem().os_path(target))
        elif schemes[0] in (None, "file"):
            place = place_of(target)
            with open(LocalFileSystem().os_path(path), "rb") as file, self._errors(place):
                self._client.upload_fileobj(file, place.bucket, place.key)
        elif self._spark_side is not None:
            self._spark_side.copy(path, target)
        else:
            raise UnsupportedStorageError(
                f"'{path}' cannot be copied to '{target}' without Spark. Copy it to a local path first, and from there.",
                path=target,
            )

    def remove_empty(self, path: str) -> None:
        """See :class:`FileSystem`: what may be left of a directory that holds nothing is an object that ends in a slash."""
        place = place_of(path)
        with contextlib.suppress(OSError), self._errors(place):
            if place.key and self._first_below(place, 2) == [place.prefix]:
                self._client.delete_object(Bucket=place.bucket, Key=place.prefix)

    def mkdirs(self, path: str) -> None:
        """Looks that no file is in the way; S3 has no directories."""
        self._require_directories(place_of(f"{path}/file"))

    def sync_dir(self, path: str) -> None:
        """Does nothing: an object that S3 has acknowledged is there to stay."""

    # Creating exclusively -------------------------------------------------------------------------------------

    def _put_if_absent(self, place: Place, data: bytes) -> None:
        """Creates an object; what it raises is that of :meth:`create_exclusive`."""
        asked = {"Bucket": place.bucket, "Key": place.key, "Body": data, "IfNoneMatch": "*"}
        is_repeated = False
        for wait_seconds in (*_WAITS_SECONDS, None):
            try:
                self._client.put_object(**asked)
                return
            except self._failures as error:
                status, retries = status_of(error), metadata_of(error).get("RetryAttempts", 0)
                is_repeated = is_repeated or retries > 0
                if status == 412:
                    self._require_own(place, data, is_repeated)
                    return
                if status != 409 or wait_seconds is None:
                    raise self._create_error(error, place, is_repeated) from error
                is_repeated = True
                time.sleep(wait_seconds * random.uniform(0.5, 1.5))

    def _require_own(self, place: Place, data: bytes, is_repeated: bool) -> None:
        """Accepts an object that exists already only if an earlier attempt of ours may have made it, and it is what we wrote."""
        try:
            if is_repeated and self.read(place.path) == data:
                return
        except OSError as error:  # whatever it is: that of a refused read would say that nothing was created
            raise OSError(
                errno.EIO, f"It exists, and whether we have created it is unknown: {error}", place.path
            ) from error
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place.path)

    def _create_error(self, error: Exception, place: Place, is_repeated: bool) -> Exception:
        """Python's exception for a create that failed. A missing permission means that nothing was created, so it must be sure."""
        if status_of(error) == 501 or code_of(error) == "NotImplemented":
            return unconditional(place, f"says so ({text_of(error)})")
        meaning = meaning_of(error, place, self._endpoint)
        if isinstance(meaning, PermissionError) and (is_repeated or status_of(error) is None):
            return OSError(
                errno.EIO, f"S3: {text_of(error)}, after a request that may have been carried out", place.path
            )
        return meaning

    def _require_conditions(self, place: Place) -> None:
        """Tries, once for each bucket and endpoint, whether a second create of the same object is refused.

        And whether Spark sees what was created: boto3 and Hadoop have settings of their own, which may lead to different stores.

        Raises:
            UnsupportedStorageError: it is not, or Spark does not.
            OSError: it could not be found out.
        """
        known = (self._endpoint, place.bucket)
        if known in _trusted:
            return
        probe = place_of(temporary_beside(place.path))  # should this process die, a vacuum removes it
        try:
            self._require_condition(probe)
            if self._spark_side is not None and not self._spark_side.exists(probe.path):
                raise UnsupportedStorageError(
                    f"Spark does not see what boto3 writes to '{place.path}' at {self._endpoint}: they are set up for different "
                    "stores. Nothing was committed. Compare boto3's settings (AWS_ENDPOINT_URL, AWS_PROFILE, ...) with Hadoop's "
                    "(fs.s3a.endpoint, ...).",
                    path=place.path,
                )
        finally:
            with contextlib.suppress(OSError), self._errors(probe):
                self._client.delete_object(Bucket=probe.bucket, Key=probe.key)
        _trusted.add(known)

    def _require_condition(self, probe: Place) -> None:
        try:
            self._put_if_absent(probe, b"first")
        except FileExistsError:
            raise unconditional(probe, "says of a new object that it exists") from None
        try:
            self._put_if_absent(probe, b"second")
        except FileExistsError:
            if self.read(probe.path) == b"first":
                return
        raise unconditional(probe, "has overwritten an object that was to be created only if there is none")

    # Helpers ----------------------------------------------------------------------------------------------------

    def _require_directories(self, place: Place) -> None:
        """Looks, once for each directory, that no file is where it should be. What cannot be seen is in nobody's way."""
        parents = [place.key[:end] for end, character in enumerate(place.key) if character == "/"]
        for key in parents:
            if (place.bucket, key) in self._directories:
                continue
            with contextlib.suppress(PermissionError), self._errors(place):
                if self._is_file(place, key):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place.of(key))
            self._directories.add((place.bucket, key))

    def _is_file(self, place: Place, key: str) -> bool:
        if not key:
            return False
        try:
            self._client.head_object(Bucket=place.bucket, Key=key)
        except self._client_error as error:
            if status_of(error) != 404 or code_of(error) == "NoSuchBucket":
                raise
            return False
        return True

    def _first_below(self, place: Place, count: int) -> Sequence[str]:
        page = self._client.list_objects_v2(Bucket=place.bucket, Prefix=place.prefix, MaxKeys=count)
        return [str(each["Key"]) for each in page.get("Contents", ())]

    def _pages(self, place: Place, **more: str) -> Iterator[dict[str, Any]]:
        pages: Any = self._client.get_paginator("list_objects_v2")
        yield from pages.paginate(Bucket=place.bucket, Prefix=place.prefix, **more)

    def _remove(self, place: Place, keys: Sequence[str]) -> None:
        if not keys:
            return
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        for failed in self._client.delete_objects(Bucket=place.bucket, Delete=objects).get("Errors", ()):
            if failed["Code"] != "NoSuchKey":
                kind, number = (
                    (PermissionError, errno.EACCES) if failed["Code"] == "AccessDenied" else (OSError, errno.EIO)
                )
                raise kind(number, f"S3: {failed['Code']}: {failed.get('Message', '')}", place.of(failed["Key"]))

    def _copy_object(self, source: Place, target: Place) -> None:
        config = import_module("boto3.s3.transfer").TransferConfig(
            multipart_threshold=LARGEST_COPY_BYTES, multipart_chunksize=max(LARGEST_COPY_BYTES // 20, 5 * 1024**2)
        )
        with self._errors(source):
            whence = {"Bucket": source.bucket, "Key": source.key}
            self._client.copy(whence, target.bucket, target.key, Config=config)

    @contextlib.contextmanager
    def _errors(self, place: Place) -> Iterator[None]:
        """Turns boto3's exceptions into Python's."""
        try:
            yield
        except self._failures as error:
            raise meaning_of(error, place, self._endpoint) from error
