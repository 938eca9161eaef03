"""The commit log: one JSON entry per version, created exclusively; checkpoints and a hint beside (S33, S40).

Owns: :class:`CommitLog`, which keeps the entries of ``storage/entries.py`` in ``_trinity_log``. Knows
nothing of Spark, of merges, or of what a batch's files look like.

Every entry carries the checksum of the one before, so that an entry from elsewhere, or a log that lost one,
is noticed. A checkpoint is a whole snapshot; it is believed only if the entry of its version is the one it
was made from. The hint says where to start looking, nothing else: it may be stale, garbled or lost, and it
is never taken for the end.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone

import attrs

from trinitymerge.errors import CorruptTableError, TableNotFoundError, UnsupportedStorageError
from trinitymerge.storage import faults
from trinitymerge.storage.entries import (
    PROTOCOL,
    Commit,
    InapplicableCommit,
    Snapshot,
    checksum_of,
    seal,
    unseal,
)
from trinitymerge.storage.filesystem import TEMPORARY_SUFFIX, FileInfo, FileSystem
from trinitymerge.storage.publish import OutcomeUnknown, VersionTaken

LOG_DIRECTORY = "_trinity_log"
CHECKPOINT_INTERVAL = "trinitymerge.checkpointInterval"
DEFAULT_CHECKPOINT_INTERVAL = 50

FAULT_POINTS = ("commit.before", "commit.done", "checkpoint.before", "checkpoint.done", "hint.done")
"""Where this module may be killed, see ``storage/faults.py``."""

_HINT = "_last.json"
_NAME = re.compile(r"^(\d{20})(\.checkpoint)?\.json$")

_logger = logging.getLogger(__name__)


@attrs.frozen
class _Entry:
    commit: Commit
    checksum: str


@attrs.frozen
class _Hint:
    """Where the end of the log was when somebody looked, and from where it may be replayed, best first."""

    version: int
    starts: tuple[int, ...]


class CommitLog:
    """The log of one table. Holds no state: any number of them, in any process, may work on one table.

    Every method may raise the storage's ``OSError`` besides what it names.

    Args:
        fs: where the table is.
        table_path: its directory.
    """

    def __init__(self, fs: FileSystem, table_path: str) -> None:
        self.fs = fs
        self.table_path = fs.qualify(table_path)
        self.directory = f"{self.table_path}/{LOG_DIRECTORY}"

    def entry_path(self, version: int) -> str:
        """The file of a version's entry."""
        return f"{self.directory}/{version:020d}.json"

    def checkpoint_path(self, version: int) -> str:
        """The file of a version's checkpoint, which may or may not exist."""
        return f"{self.directory}/{version:020d}.checkpoint.json"

    # Reading ------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Is there a table: does its first entry exist."""
        return self.fs.exists(self.entry_path(0))

    def latest(self, known: Snapshot | None = None) -> Snapshot:
        """The newest snapshot.

        Args:
            known: a snapshot read before; then only the entries after it are read. Should the table have been
                dropped or replaced since, it is of no use and ignored.

        Returns:
            The snapshot of the last version whose entry exists.

        Raises:
            TableNotFoundError: no table here.
            CorruptTableError: naming the file that is torn, garbled, foreign or missing.
            UnsupportedStorageError: written by a newer library.
        """
        if known is not None and self.is_current(known):
            return self._forward(known)
        hint = self._read_hint()
        start = self._first_believable(hint.starts) if hint else None
        if hint and start:
            with contextlib.suppress(_TooFar):
                snapshot = self._forward(start, at_most=3 * _interval(start))
                if snapshot.version >= hint.version:
                    return snapshot
        return self._latest_by_listing()

    def at(self, version: int) -> Snapshot:
        """The snapshot of a past version (S40).

        Raises:
            TableNotFoundError: no table here, or no such version; the message says which exist.
            CorruptTableError: as :meth:`latest`.
            UnsupportedStorageError: as :meth:`latest`.
        """
        entries, checkpoints = self._list()
        last = max(entries)
        if version not in range(last + 1):
            raise TableNotFoundError(
                f"The table '{self.table_path}' has no version {version}; it has versions 0 to {last}.",
                path=self.table_path,
                version=version,
            )
        snapshot = self._replay([c for c in checkpoints if c <= version], stop=version)
        if snapshot.version < version:
            raise self._missing(snapshot.version + 1)
        return snapshot

    def version_at(self, timestamp_ms: int) -> int:
        """The version that was current at a time (S40), found by bisection: timestamps grow with versions.

        Args:
            timestamp_ms: milliseconds since the epoch.

        Raises:
            TableNotFoundError: no table here, or not yet at that time.
            CorruptTableError: as :meth:`latest`.
        """
        last = self.latest().version
        found = bisect.bisect_right(range(last + 1), timestamp_ms, key=lambda v: self._entry(v).commit.timestamp_ms)
        if found == 0:
            first = self._entry(0).commit.timestamp_ms
            raise TableNotFoundError(
                f"The table '{self.table_path}' did not exist at {_utc(timestamp_ms)}; "
                f"it was created at {_utc(first)}.",
                path=self.table_path,
                timestamp_ms=timestamp_ms,
            )
        return found - 1

    def commits(self, first: int = 0, last: int | None = None, newest_first: bool = True) -> Iterator[Commit]:
        """The commits from version ``first`` to ``last`` (by default the latest), one file read each, lazily.

        Raises:
            TableNotFoundError: no table here.
            CorruptTableError: naming the entry that is torn, garbled, foreign or missing.
        """
        last = self.latest().version if last is None else last
        versions = range(first, last + 1)
        for version in reversed(versions) if newest_first else versions:
            yield self._entry(version).commit

    def is_current(self, snapshot: Snapshot) -> bool:
        """Is the entry a snapshot ends with still there: not so if the table was dropped or replaced since.

        Raises:
            CorruptTableError: the entry is torn or garbled.
        """
        try:
            content = self.fs.read(self.entry_path(snapshot.version))
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            return checksum_of(content) == snapshot.checksum
        except ValueError as error:
            raise self._corrupt(self.entry_path(snapshot.version), str(error)) from error

    def checkpoints(self) -> dict[int, FileInfo]:
        """The files of checkpoints, by version, oldest first."""
        found = ((_NAME.match(info.name), info) for info in self.fs.list(self.directory))
        return {int(match[1]): info for match, info in found if match and match[2]}

    def leftovers(self) -> list[FileInfo]:
        """The temporary files of writers that died, or that are at work."""
        files = (info for info in self.fs.list(self.directory) if not info.is_dir)
        return [info for info in files if info.name.startswith(".") and info.name.endswith(TEMPORARY_SUFFIX)]

    # Writing ------------------------------------------------------------------------------------------------

    def create(self, commit: Commit) -> Snapshot:
        """Makes a table by its first commit, which must be version 0 and carry the definition.

        Raises:
            FileExistsError: there is a table, or a file, already; nothing was changed.
            InapplicableCommit: the commit is no first commit.
            CorruptTableError: there is a log without its first entry; nothing was changed.
            UnsupportedStorageError: the storage cannot create exclusively; nothing was changed.
            OutcomeUnknown: as :meth:`commit`.
        """
        snapshot = Snapshot.created(commit)
        with contextlib.suppress(TableNotFoundError):
            self._list()
        try:
            return self._write(commit, snapshot)
        except VersionTaken as taken:
            raise FileExistsError(errno.EEXIST, "There is a table already", self.table_path) from taken
        except NotADirectoryError as error:
            raise FileExistsError(errno.EEXIST, "There is a file already", error.filename) from error

    def commit(self, commit: Commit, base: Snapshot | None = None) -> Snapshot:
        """Makes a commit visible, all at once, as ``commit.version`` (S33).

        The timestamp is moved forward if the clock has gone back. A checkpoint is written every
        ``trinitymerge.checkpointInterval`` versions; that it, or the hint, cannot be written never fails the
        commit.

        Args:
            commit: see :meth:`Snapshot.next_commit` and :meth:`Snapshot.rebase`.
            base: the snapshot it was made on, of version ``commit.version - 1``; read if not given.

        Returns:
            The snapshot after the commit.

        Raises:
            VersionTaken: another writer was faster; nothing was changed.
            InapplicableCommit: it does not fit its base: ``expected version 5, found 7``; nothing was
                changed.
            TableNotFoundError: the table was dropped, or replaced by another one, since ``base`` was read.
            UnsupportedStorageError: a newer library must write this table, or the storage cannot create
                exclusively.
            OutcomeUnknown: the storage failed and cannot say whether the commit took place: leave its files
                alone.
            OSError: the storage failed, and the commit has not taken place.
        """
        base = base or self.latest()
        if base.writer_protocol > PROTOCOL:
            raise _too_new(self.table_path, "writer", base.writer_protocol)
        if 0 < commit.version <= base.version:
            raise VersionTaken(commit.version, self._entry(commit.version).commit)
        timestamp_ms = max(base.timestamp_ms + 1, commit.timestamp_ms)
        commit = attrs.evolve(commit, timestamp_ms=timestamp_ms, previous=base.checksum)
        after = base.apply(commit)
        if not self.is_current(base):
            raise TableNotFoundError(
                f"The table '{self.table_path}' was dropped or replaced since version {base.version} was "
                "read; open it again. Nothing was written.",
                path=self.table_path,
                version=base.version,
            )
        return self._write(commit, after)

    def _write(self, commit: Commit, after: Snapshot) -> Snapshot:
        content, checksum = seal(commit.to_json())
        faults.fault("commit.before")
        try:
            self.fs.create_exclusive(self.entry_path(commit.version), content)
        except FileExistsError:
            self._require_own(commit)
        except OSError as error:
            self._settle(commit, error)
        faults.fault("commit.done")
        after = attrs.evolve(after, checksum=checksum)
        self._write_helpers(after)
        return after

    def _require_own(self, commit: Commit) -> None:
        """Accepts an entry that is ours after all: a storage may repeat a request whose answer got lost."""
        winner = self._entry(commit.version).commit
        if winner.id != commit.id:
            raise VersionTaken(commit.version, winner)

    def _settle(self, commit: Commit, error: OSError) -> None:
        """Finds out what a failed create has done."""
        try:
            self._require_own(commit)
        except OSError as second:
            path = self.entry_path(commit.version)
            if isinstance(error, PermissionError) or (self.fs.is_local and not self.fs.exists(path)):
                raise error from None
            raise OutcomeUnknown(f"{error}; whether '{path}' was created could not be found out ({second})") from error

    def _write_helpers(self, snapshot: Snapshot) -> None:
        try:
            if snapshot.version and snapshot.version % _interval(snapshot) == 0:
                self._write_checkpoint(snapshot)
            self._write_hint(snapshot)
            faults.fault("hint.done")
        except Exception as error:  # noqa: BLE001 - the commit stands, whatever happens here
            _logger.warning("%s: no checkpoint or hint for version %d: %s", self.table_path, snapshot.version, error)

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        faults.fault("checkpoint.before")
        with contextlib.suppress(FileExistsError):
            self.fs.create_exclusive(self.checkpoint_path(snapshot.version), seal(snapshot.to_json())[0])
        faults.fault("checkpoint.done")

    def _write_hint(self, snapshot: Snapshot) -> None:
        interval = _interval(snapshot)
        newest = snapshot.version - snapshot.version % interval
        starts = [newest, newest - interval] if newest else [0]
        content = json.dumps({"version": snapshot.version, "starts": starts}).encode()
        self.fs.replace(f"{self.directory}/{_HINT}", content)

    # Finding the end ----------------------------------------------------------------------------------------

    def _read_hint(self) -> _Hint | None:
        try:
            data = json.loads(self.fs.read(f"{self.directory}/{_HINT}"))
            hint = _Hint(data["version"], tuple(data["starts"]))
            believable = all(type(v) is int and 0 <= v < 10**20 for v in (hint.version, *hint.starts))
        except (OSError, *_UNREADABLE):
            return None  # lost, torn or foreign: it was only a hint
        return hint if believable else None

    def _latest_by_listing(self) -> Snapshot:
        entries, checkpoints = self._list()
        snapshot = self._replay(checkpoints)
        # The listing is older than the replay, so whatever it shows was there to be replayed.
        if max((*entries, *checkpoints)) > snapshot.version:
            raise self._missing(snapshot.version + 1)
        return snapshot

    def _list(self) -> tuple[list[int], list[int]]:
        """The versions that have entries, and those that have checkpoints, newest first."""
        try:
            matches = [_NAME.match(info.name) for info in self.fs.list(self.directory)]
        except (FileNotFoundError, NotADirectoryError):
            matches = []
        found = [(int(m[1]), bool(m[2])) for m in matches if m]
        if not found:
            raise TableNotFoundError(
                f"There is no trinitymerge table at '{self.table_path}': it has no {LOG_DIRECTORY}. "
                "Check the path, or create the table first.",
                path=self.table_path,
            )
        if (0, False) not in found and not self.exists():
            raise self._missing(0)
        return [v for v, is_checkpoint in found if not is_checkpoint] or [0], sorted(
            (v for v, is_checkpoint in found if is_checkpoint), reverse=True
        )

    def _replay(self, checkpoints: Iterable[int], stop: int | None = None) -> Snapshot:
        start = self._first_believable((*checkpoints, 0))
        if start is None:
            raise self._missing(0)
        return self._forward(start, stop=stop)

    def _first_believable(self, versions: Iterable[int]) -> Snapshot | None:
        return next(filter(None, map(self._start_at, versions)), None)

    def _start_at(self, version: int) -> Snapshot | None:
        """The snapshot to start a replay from: the first entry, or a checkpoint that its entry confirms."""
        try:
            if version == 0:
                entry = self._read_entry(0)
                return attrs.evolve(Snapshot.created(entry.commit), checksum=entry.checksum)
            return self._read_checkpoint(version)
        except FileNotFoundError:
            return None
        except InapplicableCommit as error:
            raise self._corrupt(self.entry_path(0), str(error)) from error

    def _forward(self, snapshot: Snapshot, stop: int | None = None, at_most: int | None = None) -> Snapshot:
        """Replays the entries after a snapshot, up to ``stop`` or the first that does not exist."""
        start = snapshot.version
        while stop is None or snapshot.version < stop:
            if at_most is not None and snapshot.version - start > at_most:
                raise _TooFar
            try:
                snapshot = self._follow(snapshot, self._read_entry(snapshot.version + 1))
            except FileNotFoundError:
                if not self._has_grown(snapshot.version):
                    break
        return snapshot

    def _has_grown(self, version: int) -> bool:
        """Has the log grown since the entry after a version was not found? Raises if it has a gap there."""
        if not self.fs.exists(self.entry_path(version + 2)):
            return False
        if not self.fs.exists(self.entry_path(version + 1)):
            raise self._missing(version + 1)
        return True  # two writers came in between

    def _follow(self, snapshot: Snapshot, entry: _Entry) -> Snapshot:
        path = self.entry_path(entry.commit.version)
        if entry.commit.previous != snapshot.checksum:
            raise self._corrupt(path, f"it does not follow the version {snapshot.version} that is here")
        try:
            return attrs.evolve(snapshot.apply(entry.commit), checksum=entry.checksum)
        except InapplicableCommit as error:
            raise self._corrupt(path, str(error)) from error

    # Files --------------------------------------------------------------------------------------------------

    def _entry(self, version: int) -> _Entry:
        """An entry that must exist."""
        try:
            return self._read_entry(version)
        except FileNotFoundError:
            raise self._missing(version) from None

    def _read_entry(self, version: int) -> _Entry:
        path = self.entry_path(version)
        content = self.fs.read(path)
        try:
            data, checksum = unseal(content)
            self._check_protocol(path, data)
            commit = Commit.from_json(data)
        except _UNREADABLE as error:
            raise self._corrupt(path, str(error)) from error
        if commit.version != version:
            raise self._corrupt(path, f"it says that it is version {commit.version}")
        return _Entry(commit, checksum)

    def _read_checkpoint(self, version: int) -> Snapshot | None:
        """A checkpoint, if its content and the entry of its version confirm it; doubts are logged."""
        path = self.checkpoint_path(version)
        try:
            data, _ = unseal(self.fs.read(path))
            self._check_protocol(path, data)
            snapshot = Snapshot.from_json(data)
            if snapshot.version != version:
                raise ValueError(f"it says that it is version {snapshot.version}")
            if not self.is_current(snapshot):
                raise ValueError(f"it disagrees with '{self.entry_path(version)}'")
        except _UNREADABLE as error:
            _logger.warning("Ignoring the checkpoint '%s': %s", path, error)
            return None
        return snapshot

    def _check_protocol(self, path: str, data: Mapping[str, object]) -> None:
        needed = data.get("readerProtocol")
        if isinstance(needed, int) and needed > PROTOCOL:
            raise _too_new(path, "reader", needed)

    def _missing(self, version: int) -> CorruptTableError:
        return self._corrupt(self.entry_path(version), "it is missing, but later ones exist")

    def _corrupt(self, path: str, why: str) -> CorruptTableError:
        return CorruptTableError(
            f"The log entry '{path}' cannot be used: {why}. Nothing was changed. Restore this file from a backup.",
            path=path,
        )


class _TooFar(Exception):  # noqa: N818 - a signal within this module
    """More entries than a good checkpoint would have left: look for a better start."""


_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What parsing foreign content raises."""


def _too_new(path: str, role: str, needed: int) -> UnsupportedStorageError:
    return UnsupportedStorageError(
        f"'{path}' needs {role} protocol {needed}; this version of trinitymerge knows {PROTOCOL}. "
        "Upgrade trinitymerge.",
        path=path,
        protocol=needed,
    )


def _interval(snapshot: Snapshot) -> int:
    text = snapshot.properties.get(CHECKPOINT_INTERVAL, "")
    return int(text) if text.isdecimal() and int(text) else DEFAULT_CHECKPOINT_INTERVAL


def _utc(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
