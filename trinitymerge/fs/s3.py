"""S3 through boto3: conditional writes, retries and lost replies (S33)."""

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
from trinitymerge.fs.base import (
    AT_ONCE,
    FileInfo,
    FileSystem,
    Infos,
    no_exclusive_create,
    require_exclusive_creates,
    split_scheme,
)
from trinitymerge.fs.local import LocalFileSystem

SCHEMES = ("s3", "s3a")
"""``s3`` is the scheme of EMR."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_connecting = threading.Lock()

EMR_DIRECTORY = "_$folder$"
"""Ends the names of EMR's empty directory objects."""


def connect() -> Any:
    try:
        boto3, exceptions = import_module("boto3"), import_module("botocore.exceptions")
    except ImportError:
        raise MissingPackageError(
            "The log of a table on S3 needs boto3, which is not installed: pip install 'trinitymerge[s3]'."
        ) from None
    try:
        with _connecting:  # clients are thread-safe, sessions are not
            config = import_module("botocore.config").Config(max_pool_connections=AT_ONCE)
            client = boto3.client("s3", config=config)
    except (exceptions.BotoCoreError, ValueError) as error:
        raise StorageError(f"boto3 cannot connect to S3: {error}. Check AWS_PROFILE and the other settings.") from error
    if "IfNoneMatch" not in client.meta.service_model.operation_model("PutObject").input_shape.members:
        raise MissingPackageError(
            f"boto3 {boto3.__version__} cannot create objects exclusively. Install a newer one: pip install 'trinitymerge[s3]'."
        )
    return client


@attrs.frozen
class Place:
    """An object, or the objects below a prefix; keys are literal, as Hadoop's paths are."""

    scheme: str
    bucket: str
    key: str

    @property
    def path(self) -> str:
        return self.of(self.key)

    @property
    def prefix(self) -> str:
        return f"{self.key}/" if self.key else ""

    def of(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{key}".rstrip("/")


def place_of(path: str) -> Place:
    scheme, rest = split_scheme(path)
    bucket, _, key = rest.removeprefix("//").partition("/")
    if "@" in bucket:
        raise UnsupportedStorageError(
            f"A path on S3 holds credentials or a user ('{scheme}://...@{bucket.rpartition('@')[2]}'), which logs would show. "
            "Configure them in boto3 and Spark instead.",
            scheme=scheme,
        )
    if scheme not in SCHEMES or not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        raise UnsupportedStorageError(
            f"'{path}' is not a path on S3. Write 's3a://bucket/path', or on EMR 's3://bucket/path'.",
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


def files_of(place: Place, page: dict[str, Any]) -> Infos:
    """Return the files of a page of a listing, without directory objects and keys that no path can name."""
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


_WITHOUT_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}


def meaning_of(error: Exception, place: Place, endpoint: str) -> Exception:
    """Return Python's exception for one of boto3, by the contract of :class:`~trinitymerge.fs.base.FileSystem`."""
    status, path = status_of(error), place.path
    if code_of(error) == "NoSuchBucket":
        return StorageError(
            f"'{path}': there is no bucket '{place.bucket}' at {endpoint}. Create it, or check the name and AWS_ENDPOINT_URL.",
            path=path,
            bucket=place.bucket,
        )
    if status == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if status in (401, 403):
        hint = "without s3:ListBucket, S3 reports the same for missing objects"
        return PermissionError(errno.EACCES, f"S3: {text_of(error)} ({hint})", path)
    if {kind.__name__ for kind in type(error).__mro__} & _WITHOUT_CREDENTIALS:
        hint = "Set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"
        return PermissionError(errno.EACCES, f"boto3 has no credentials for S3: {error}. {hint}", path)
    return OSError(errno.EIO, f"S3: {text_of(error)}", path)


def _response(error: Exception) -> dict[str, Any]:
    return getattr(error, "response", None) or {}


def metadata_of(error: Exception) -> dict[str, Any]:
    return dict(_response(error).get("ResponseMetadata", {}))


def status_of(error: Exception) -> int | None:
    status = metadata_of(error).get("HTTPStatusCode")
    return None if status is None else int(status)


def code_of(error: Exception) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def text_of(error: Exception) -> str:
    said = _response(error).get("Error", {})
    return f"{said.get('Code')}: {said.get('Message')}" if said else str(error)


LARGEST_COPY_BYTES = 5 * 1024**3
"""The limit of S3 for one copy request; larger objects are copied in parts."""

_WAITS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Between attempts to create an object while another request for it is running (409)."""

_trusted: set[tuple[str, str]] = set()
"""Endpoints and buckets that passed :func:`require_exclusive_creates`."""


class S3FileSystem(FileSystem):
    """Objects behind S3's API. ``spark_side`` is the same storage through Spark's Hadoop; without it, paths need a scheme."""

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
        return place_of(self._spark_side.qualify(path) if self._spark_side else path).path

    def create_exclusive(self, path: str, data: bytes) -> None:
        place = place_of(path)
        self._require_directories(place)
        known = (self._endpoint, place.bucket)
        if known not in _trusted:
            require_exclusive_creates(
                place.path,
                lambda probe, first: self._put_if_absent(place_of(probe), first),
                self,
                self._require_spark_sees,
            )
            _trusted.add(known)
        faults.fault("create.written")
        self._put_if_absent(place, data)
        faults.fault("create.published")
        faults.fault("create.synced")

    def replace(self, path: str, data: bytes) -> None:
        place = place_of(path)
        faults.fault("replace.written")
        with self._errors(place):
            self._client.put_object(Bucket=place.bucket, Key=place.key, Body=data)

    def read(self, path: str) -> bytes:
        place = place_of(path)
        with self._errors(place):
            return bytes(self._client.get_object(Bucket=place.bucket, Key=place.key)["Body"].read())

    def exists(self, path: str) -> bool:
        place = place_of(path)
        with self._errors(place):
            return self._is_file(place, place.key) or bool(self._first_below(place, 1)) or not place.key

    def has_file(self, path: str) -> bool:
        place = place_of(path)
        with self._errors(place):
            return self._is_file(place, place.key)

    def list(self, path: str) -> Infos:
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
                raise OSError(number, os.strerror(number), place.path)  # Python raises the subclass of the number
        return sorted(found, key=lambda info: info.name)

    def walk(self, path: str) -> Iterator[FileInfo]:
        place, is_there = place_of(path), False
        with self._errors(place):
            for page in self._pages(place):
                is_there = is_there or bool(page.get("Contents"))
                yield from files_of(place, page)
        if not is_there:
            yield from self.list(path)  # a missing path, a file, or an empty bucket

    def delete(self, path: str) -> None:
        place = place_of(path)
        if not place.key:
            raise PermissionError(errno.EPERM, "Refusing to delete a whole bucket", place.path)
        with self._errors(place):
            for page in self._pages(place):
                self._remove(place, [str(each["Key"]) for each in page.get("Contents", ())])
            self._remove(place, [place.key, place.key + EMR_DIRECTORY])

    def move(self, path: str, target: str) -> None:
        self.copy(path, target)
        place = place_of(path)
        with self._errors(place):
            self._client.delete_object(Bucket=place.bucket, Key=place.key)

    def copy(self, path: str, target: str) -> None:
        # On the server, or by this process if one of the two is a local file.
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
                f"'{path}' cannot be copied to '{target}' without Spark. Copy it to a local path first, then to S3.",
                path=target,
            )

    def remove_empty(self, path: str) -> None:
        # An empty directory may have an object that ends in a slash.
        place = place_of(path)
        with contextlib.suppress(OSError), self._errors(place):
            if place.key and self._first_below(place, 2) == [place.prefix]:
                self._client.delete_object(Bucket=place.bucket, Key=place.prefix)

    def mkdirs(self, path: str) -> None:
        """Check that no parent is a file; S3 has no directories."""
        self._require_directories(place_of(f"{path}/file"))

    def sync_dir(self, path: str) -> None:
        """Do nothing: S3 keeps every object that it has acknowledged."""

    # Creating exclusively -------------------------------------------------------------------------------------

    def _put_if_absent(self, place: Place, data: bytes) -> None:
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
        """Accept an existing object if an earlier attempt may have created it, and its content is the same."""
        try:
            if is_repeated and self.read(place.path) == data:
                return
        except OSError as error:  # a PermissionError would mean that nothing was created
            raise OSError(
                errno.EIO, f"It exists, and whether this writer created it is unknown: {error}", place.path
            ) from error
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place.path)

    def _create_error(self, error: Exception, place: Place, is_repeated: bool) -> Exception:
        """Return Python's exception for a failed create; a PermissionError means that certainly nothing was created."""
        if status_of(error) == 501 or code_of(error) == "NotImplemented":
            return no_exclusive_create(place.path, f"does not support it ({text_of(error)})")
        meaning = meaning_of(error, place, self._endpoint)
        if isinstance(meaning, PermissionError) and (is_repeated or status_of(error) is None):
            return OSError(errno.EIO, f"S3: {text_of(error)}, after a request that may have succeeded", place.path)
        return meaning

    def _require_spark_sees(self, probe: str) -> None:
        """Raise if Spark does not see an object: boto3 and Hadoop have separate settings."""
        if self._spark_side is not None and not self._spark_side.exists(probe):
            raise UnsupportedStorageError(
                f"Spark does not see the object that boto3 wrote to '{probe}' at {self._endpoint}: their settings name different "
                "stores. Compare boto3's (AWS_ENDPOINT_URL, AWS_PROFILE, ...) with Hadoop's (fs.s3a.endpoint, ...). Nothing was "
                "committed.",
                path=probe,
            )

    def _require_directories(self, place: Place) -> None:
        """Check once for each parent that it is not a file; parents without permission pass."""
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
                is_denied = failed["Code"] == "AccessDenied"
                kind, number = (PermissionError, errno.EACCES) if is_denied else (OSError, errno.EIO)
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
        try:
            yield
        except self._failures as error:
            raise meaning_of(error, place, self._endpoint) from error
