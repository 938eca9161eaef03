"""The files of a commit log: their names, and reading each as checked data (S33, S40)."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import attrs

from trinitymerge import errors
from trinitymerge.fs.base import TEMPORARY_SUFFIX, FileInfo, FileSystem, NoRegularFileError, require_no_link
from trinitymerge.log.actions import REQUIREMENTS
from trinitymerge.log.codec import NewerLibraryError
from trinitymerge.log.model import FORMAT, Commit, Snapshot

_ENVELOPE = re.compile(rb'^\{"checksum":"([0-9a-f]{64})",')
_ENVELOPE_SIZE = len('{"checksum":"') + 64 + len('",')


def encode_with_checksum(data: Mapping[str, Any]) -> tuple[bytes, str]:
    body = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()[1:]
    checksum = hashlib.sha256(body).hexdigest()
    return b'{"checksum":"' + checksum.encode() + b'",' + body, checksum


def decode_with_checksum(content: bytes) -> tuple[dict[str, Any], str]:
    checksum = checksum_of(content)
    data = json.loads(b"{" + content[_ENVELOPE_SIZE:], parse_constant=_refuse_constant)
    if b"\\u" in content:  # half a character, which neither Spark nor a file accepts
        json.dumps(data, ensure_ascii=False).encode()
    return data, checksum


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def checksum_of(content: bytes) -> str:
    """Return the checksum of an envelope after checking its content."""
    match = _ENVELOPE.match(content)
    if not match:
        raise ValueError("it is empty" if not content else "it does not begin as the files of this library do")
    checksum = match[1].decode()
    if hashlib.sha256(content[_ENVELOPE_SIZE:]).hexdigest() != checksum:
        raise ValueError("its checksum does not match its content")
    return checksum


LOG_DIRECTORY = "_trinity_log"
HINT = "_last.json"
_NAME = re.compile(r"([0-9]{20})(\.checkpoint)?\.json")

_logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError, NoRegularFileError)
"""Exceptions that reading and parsing foreign content raises."""


@attrs.frozen
class Entry:
    commit: Commit
    checksum: str


@attrs.frozen
class Hint:
    """A recent end of the log, and checkpoints to replay from, best first. The seal proves that the entry has existed."""

    version: int
    starts: tuple[int, ...]
    seal: str = ""

    def sealed(self, table_id: str) -> str:
        return hashlib.sha256(f"{table_id} {self.version}".encode()).hexdigest()

    def proves(self, table_id: str) -> bool:
        """Return True if the table has had an entry of this version."""
        return bool(table_id) and self.seal == self.sealed(table_id)


class LogFiles:
    """The files of one log. Every method may also raise the storage's ``OSError``."""

    def __init__(self, fs: FileSystem, table_path: str) -> None:
        self.fs = fs
        self.table_path = fs.qualify(table_path)
        self.directory = f"{self.table_path}/{LOG_DIRECTORY}"

    def entry_path(self, version: int) -> str:
        return f"{self.directory}/{version:020d}.json"

    def checkpoint_path(self, version: int) -> str:
        return f"{self.directory}/{version:020d}.checkpoint.json"

    def require_own(self) -> None:
        """Raise a CorruptTableError if the log directory is a link."""
        require_no_link(self.fs, self.table_path, LOG_DIRECTORY)

    def exists(self) -> bool:
        path = self.entry_path(0)
        return self.fs.has_file(path) or self.fs.exists(path)  # which names a missing bucket

    def read_hint(self) -> Hint | None:
        try:
            data = json.loads(self.fs.read(f"{self.directory}/{HINT}"))
            hint = Hint(data["version"], tuple(data["starts"]), data.get("seal", ""))
            believable = all(type(v) is int and 0 <= v < 10**20 for v in (hint.version, *hint.starts))
        except (OSError, *UNREADABLE):
            return None  # lost, cut short or foreign: it was only a hint
        return hint if believable else None

    def list_versions(self) -> tuple[list[int], list[int]]:
        """Return the versions that have entries, and those that have checkpoints, newest first."""
        try:
            matches = [_NAME.fullmatch(info.name) for info in self.fs.list(self.directory)]
        except (FileNotFoundError, NotADirectoryError):
            matches = []
        found = [(int(m[1]), bool(m[2])) for m in matches if m]
        if not found:
            raise errors.TableNotFoundError(
                f"There is no trinitymerge table at '{self.table_path}': it has no {LOG_DIRECTORY}. "
                "Check the path, or create the table first.",
                path=self.table_path,
            )
        if (0, False) not in found and not self.exists():
            raise self.missing_entry(0)
        checkpoints = sorted((v for v, is_checkpoint in found if is_checkpoint), reverse=True)
        return [v for v, is_checkpoint in found if not is_checkpoint] or [0], checkpoints

    def is_current(self, snapshot: Snapshot) -> bool:
        """Return True if the last entry of a snapshot still exists; False if the table was dropped or replaced since."""
        path = self.entry_path(0 if snapshot.version <= snapshot.first_version else snapshot.version)
        try:
            return checksum_of(self.fs.read(path)) == snapshot.checksum
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (ValueError, NoRegularFileError) as error:
            raise self.corrupt_file(path, str(error)) from error

    def checkpoints(self) -> dict[int, FileInfo]:
        found = ((_NAME.fullmatch(info.name), info) for info in self.fs.list(self.directory))
        return {int(match[1]): info for match, info in found if match and match[2]}

    def leftovers(self) -> list[FileInfo]:
        """Return the temporary files of writers that died, or that are at work."""
        files = (info for info in self.fs.list(self.directory) if not info.is_dir)
        return [info for info in files if info.name.startswith(".") and info.name.endswith(TEMPORARY_SUFFIX)]

    def entry(self, version: int) -> Entry:
        """Return an entry that must exist."""
        try:
            return self.read_entry(version)
        except FileNotFoundError:
            raise self.missing_entry(version) from None

    def read_entry(self, version: int) -> Entry:
        path = self.entry_path(version)
        try:
            data, checksum = decode_with_checksum(self.fs.read(path))
            commit = Commit.from_json(of_known_format(path, data))
        except NewerLibraryError as error:
            raise newer_library(path, str(error)) from error
        except UNREADABLE as error:
            raise self.corrupt_file(path, str(error)) from error
        if commit.version != version:
            raise self.corrupt_file(path, f"it says that it is version {commit.version}")
        return Entry(commit, checksum)

    def read_checkpoint(self, version: int) -> Snapshot | None:
        """Return a checkpoint, if its content and the entry of its version confirm it; doubts are logged."""
        path = self.checkpoint_path(version)
        try:
            data, _ = decode_with_checksum(self.fs.read(path))
            snapshot = Snapshot.from_json(of_known_format(path, data))
            if snapshot.version != version:
                raise ValueError(f"it says that it is version {snapshot.version}")
            if not self.is_current(snapshot):
                raise ValueError(f"it disagrees with '{self.entry_path(version)}'")
        except (
            errors.UnsupportedStorageError,
            *UNREADABLE,
        ) as error:  # the entries before it say what this library can read
            _logger.warning("Ignoring the checkpoint '%s': %s", path, error)
            return None
        return snapshot

    def missing_entry(self, version: int) -> errors.CorruptTableError:
        return self.corrupt_file(self.entry_path(version), "it is missing, but later ones exist")

    def lost_entry(self, version: int) -> errors.CorruptTableError:
        return errors.CorruptTableError(
            f"The log entry '{self.entry_path(version)}' is lost: it is missing, and has been there before. Nothing was changed. "
            f"Restore this file from a backup. If the table as a whole has been restored from an older backup, delete "
            f"'{self.directory}/{HINT}' and open the table again.",
            path=self.entry_path(version),
        )

    def corrupt_file(self, path: str, why: str) -> errors.CorruptTableError:
        return errors.CorruptTableError(
            f"The log entry '{path}' cannot be used: {why}. Nothing was changed. Restore this file from a backup.",
            path=path,
        )


def require_readable(path: str, commit: Commit, content: bytes) -> None:
    """Raise for an encoded commit that :meth:`LogFiles.read_entry` would refuse, such as one with half a character in a comment."""
    try:
        Commit.from_json(decode_with_checksum(content)[0])
    except UNREADABLE as error:
        why = "a text has half a character in it, a lone surrogate" if isinstance(error, UnicodeError) else error
        raise (errors.InvalidMergeError if commit.definition is None else errors.InvalidDefinitionError)(
            f"The log of {path} cannot keep a value of this {commit.operation}: {why}. Nothing was written. Correct the comment, "
            "property or name."
        ) from error


def require_outside(fs: FileSystem, path: str) -> None:
    """Refuse a path within a table's directory, whose files the table's calls may delete or read."""
    above = fs.resolved(path).rpartition("/")[0]
    while "/" in above.partition("://")[2] or above.startswith("file:/"):
        if LogFiles(fs, above).exists():
            raise errors.TableExistsError(
                f"'{path}' lies within the table at '{above}', whose directory is for its own files. Choose a path outside of it.",
                path=path,
            )
        above = above.rpartition("/")[0]


def of_known_format(path: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get("format")
    if type(found) is not int or found < 1:
        raise ValueError(f"expected a format, found {found!r}")
    if found > FORMAT:
        raise newer_library(path, f"it has format {found}, and this version of trinitymerge knows {FORMAT}")
    return data


def newer_library(path: str, why: str) -> errors.UnsupportedStorageError:
    return errors.UnsupportedStorageError(
        f"'{path}' was written by a newer trinitymerge: {why}. Upgrade trinitymerge. Nothing was written.", path=path
    )


def require_writable(path: str, snapshot: Snapshot) -> None:
    needed = snapshot.requirements.writers if snapshot.requirements else ()
    lacking = sorted({*needed} - REQUIREMENTS)
    if lacking:
        raise newer_library(path, f"it requires '{lacking[0]}' of writers, which this version can only read")
