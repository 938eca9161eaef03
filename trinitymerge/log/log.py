"""The commit log: one JSON entry per version, created exclusively; checkpoints and a hint (S33, S40)."""

from __future__ import annotations

import bisect
import contextlib
import errno
import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone

import attrs

from trinitymerge._package import __version__
from trinitymerge.errors import TableNotFoundError
from trinitymerge.fs import faults
from trinitymerge.fs.base import FileSystem, read_many
from trinitymerge.fs.resolve import filesystem_for
from trinitymerge.log import files
from trinitymerge.log.actions import CreateTable, InapplicableCommit, InitialSnapshot
from trinitymerge.log.codec import NewerLibraryError
from trinitymerge.log.commit import CommitStateUnknown, VersionConflict
from trinitymerge.log.model import Commit, Replay, Snapshot
from trinitymerge.schema.properties import checkpoint_interval

FAULT_POINTS = ("commit.before", "commit.done", "checkpoint.before", "checkpoint.done", "hint.done")

_AHEAD = (1, 4, 16, 64)
"""The numbers of commits that are read ahead: many callers need only the first."""

_WRITER = f"trinitymerge {__version__}"
_logger = logging.getLogger(__name__)


class CommitLog:
    """The log of one table, for any number of instances and processes. Methods may also raise the storage's ``OSError``."""

    def __init__(self, fs: FileSystem, table_path: str) -> None:
        self.files = files.LogFiles(fs, table_path)

    @classmethod
    def open(cls, path: str) -> CommitLog:
        """Open the log of a table on a local disk or on S3, without Spark."""
        return cls(filesystem_for(None, path), path)

    # Reading ------------------------------------------------------------------------------------------------

    def newest(self, known: Snapshot | None = None) -> Snapshot:
        """Return the newest snapshot, by the entries after a known one, unless the table was dropped or replaced since."""
        self.files.require_own()
        if known is not None and self.files.is_current(known):
            return self._forward(known)
        hint = self.files.read_hint()
        snapshot = self._newest_by_hint(hint) or self._newest_by_listing()
        seen = known.version if known is not None and known.table_id == snapshot.table_id else 0
        if hint is not None and hint.proves(snapshot.table_id):
            seen = max(seen, hint.version)
        if snapshot.table_id and seen > snapshot.version:
            raise self.files.lost_entry(snapshot.version + 1)
        return snapshot

    def _newest_by_hint(self, hint: files.Hint | None) -> Snapshot | None:
        start = self._first_believable(hint.starts) if hint else None
        if hint and start:
            with contextlib.suppress(_TooFar):
                most = 3 * checkpoint_interval(start.properties)
                snapshot = self._forward(start, at_most=most, known_to=hint.version)
                if snapshot.version >= hint.version:
                    return snapshot
        return None

    def at(self, version: int) -> Snapshot:
        """Return the snapshot of a past version (S40)."""
        self.files.require_own()
        entries, checkpoints = self.files.list_versions()
        last = max(entries)
        if version == 0 or version not in entries:
            created = self.files.entry(0)
            first = created.commit.shown.version
            if version == 0 and first:
                others = [a for a in created.commit.actions if not isinstance(a, InitialSnapshot)]
                empty = Snapshot.created(attrs.evolve(created.commit, actions=others))
                return attrs.evolve(empty, checksum=created.checksum)
            if version not in range(first, max(first, last) + 1):
                raise self._no_version(version, first, max(first, last))
        snapshot = self._replay([c for c in checkpoints if c <= version], last, stop=version)
        if snapshot.version < version:
            raise self.files.missing_entry(snapshot.version + 1)
        return snapshot

    def _no_version(self, version: int, first: int, last: int) -> TableNotFoundError:
        why = f" The log of the copied table has the versions before {first}." if first else ""
        return TableNotFoundError(
            f"The table '{self.files.table_path}' has no version {version}; it has versions {first} to {last}.{why}",
            path=self.files.table_path,
            version=version,
        )

    def version_at(self, timestamp_ms: int) -> int:
        """Return the version that was current at a time (S40), in ms since the epoch. Timestamps grow with versions."""
        newest = self.newest()
        versions = range(newest.first_version, newest.version + 1)

        def committed(version: int) -> int:
            return self.files.entry(version if version > versions[0] else 0).commit.shown.timestamp_ms

        found = bisect.bisect_right(versions, timestamp_ms, key=committed)
        if found == 0:
            begun = f"its first version, {versions[0]}, is of" if versions[0] else "it was created at"
            raise TableNotFoundError(
                f"The table '{self.files.table_path}' did not exist at {_utc(timestamp_ms)}; "
                f"{begun} {_utc(committed(versions[0]))}.",
                path=self.files.table_path,
                timestamp_ms=timestamp_ms,
            )
        return versions[found - 1]

    def version_of(self, timestamp_ms: int) -> int | None:
        """Return the version that was committed at exactly this time, also before a copy was made; None if unknown."""
        begins = self.files.entry(0).commit.initial_snapshot
        if begins is None or timestamp_ms >= begins.timestamp_ms:
            return self.version_at(timestamp_ms)
        return next((v for v, at_ms in begins.commit_times.items() if at_ms == timestamp_ms), None)

    def committed_at(self, version: int) -> int:
        """Return when a version was committed, in milliseconds since the epoch, also for the versions of a copy's rows."""
        try:
            return self.files.read_entry(version).commit.timestamp_ms
        except FileNotFoundError:
            begins = self.files.entry(0).commit.initial_snapshot
        if begins is not None and version == begins.version:
            return begins.timestamp_ms
        if begins is None or version not in begins.commit_times:
            raise self.files.missing_entry(version)
        return begins.commit_times[version]

    def commits(self, first: int = 0, last: int | None = None, newest_first: bool = True) -> Iterator[Commit]:
        """Yield commits, by default all, and read one file for each. Those of a copy begin with the one that made it."""
        last = self.newest().version if last is None else last
        versions = self._entries(first, last)
        versions = versions[::-1] if newest_first else versions
        for entry in read_many(self.files.fs, self.files.entry, versions, ahead=_AHEAD):
            yield entry.commit.shown

    def _entries(self, first: int, last: int) -> Sequence[int]:
        """Return the numbers of the entries that describe some versions; entry 0 holds the initial contents."""
        if first > last or (first > 0 and self.files.fs.has_file(self.files.entry_path(first))):
            return range(first, last + 1)
        begins_at = self.files.entry(0).commit.shown.version
        initial = [0] if first <= begins_at <= last else []
        return [*initial, *range(max(first, begins_at + 1), last + 1)]

    # Writing ------------------------------------------------------------------------------------------------

    def create(self, commit: Commit) -> Snapshot:
        """Create a table by its first commit, which must be version 0 and carry the definition."""
        if not commit.last(CreateTable):
            commit = attrs.evolve(commit, actions=[CreateTable(uuid.uuid4().hex), *commit.actions])
        snapshot = Snapshot.created(commit)
        self.files.require_own()
        with contextlib.suppress(TableNotFoundError):
            self.files.list_versions()
        try:
            return self._write(commit, snapshot)
        except VersionConflict as taken:
            raise FileExistsError(errno.EEXIST, "There is a table already", self.files.table_path) from taken

    def commit(self, commit: Commit, before: Snapshot | None = None) -> Snapshot:
        """Make a commit visible atomically as ``commit.version`` (S33), on top of ``before``, by default the newest snapshot.

        The timestamp is moved forward if the clock has gone back. A checkpoint is written every
        ``trinitymerge.checkpointInterval`` versions. The commit succeeds even if checkpoint or hint cannot be written.
        """
        before = before or self.newest()
        files.require_writable(self.files.table_path, before)
        if 0 < commit.version <= before.version:
            raise VersionConflict(commit.version, self.files.entry(commit.version).commit)
        timestamp_ms = max(before.later_ms, commit.timestamp_ms)
        commit = attrs.evolve(commit, timestamp_ms=timestamp_ms, previous=before.checksum)
        after = before.apply(commit)
        if not self.files.is_current(before):
            raise TableNotFoundError(
                f"The table '{self.files.table_path}' was dropped or replaced since version {before.version} was "
                "read; open it again. Nothing was written.",
                path=self.files.table_path,
                version=before.version,
            )
        return self._write(commit, after)

    def _write(self, commit: Commit, after: Snapshot) -> Snapshot:
        content, checksum = files.encode_with_checksum(attrs.evolve(commit, writer=_WRITER).to_json())
        files.require_readable(self.files.table_path, commit, content)
        faults.fault("commit.before")
        try:
            self.files.fs.create_exclusive(self.files.entry_path(commit.version), content)
        except FileExistsError:
            self._require_own(commit)
        except OSError as error:
            self._resolve_doubt(commit, error)
        faults.fault("commit.done")
        after = attrs.evolve(after, checksum=checksum)
        self._write_helpers(after)
        return after

    def _require_own(self, commit: Commit) -> None:
        """Accept an entry of this writer: a storage may repeat a request whose answer got lost."""
        winner = self.files.entry(commit.version).commit
        if winner.id != commit.id:
            raise VersionConflict(commit.version, winner)

    def _resolve_doubt(self, commit: Commit, error: OSError) -> None:
        """Find out whether a failed create has created the entry."""
        try:
            self._require_own(commit)
        except OSError as second:
            path = self.files.entry_path(commit.version)
            is_certain = isinstance(error, (PermissionError, NotADirectoryError))
            if is_certain or (self.files.fs.is_local and not self.files.fs.has_file(path)):
                raise error from None
            raise CommitStateUnknown(
                f"{error}; whether '{path}' was created could not be found out ({second})"
            ) from error

    def _write_helpers(self, snapshot: Snapshot) -> None:
        try:
            if snapshot.version and snapshot.version % checkpoint_interval(snapshot.properties) == 0:
                self._write_checkpoint(snapshot)
            self._write_hint(snapshot)
            faults.fault("hint.done")
        except Exception as error:  # noqa: BLE001 - the commit stands even if this fails
            _logger.warning(
                "%s: no checkpoint or hint for version %d: %s", self.files.table_path, snapshot.version, error
            )

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        faults.fault("checkpoint.before")
        with contextlib.suppress(FileExistsError):
            self.files.fs.create_exclusive(
                self.files.checkpoint_path(snapshot.version), files.encode_with_checksum(snapshot.to_json())[0]
            )
        faults.fault("checkpoint.done")

    def _write_hint(self, snapshot: Snapshot) -> None:
        interval = checkpoint_interval(snapshot.properties)
        newest = snapshot.version - snapshot.version % interval
        starts = [*(v for v in (newest, newest - interval) if v > snapshot.first_version), 0][:2]
        hint = files.Hint(snapshot.version, tuple(starts))
        content = json.dumps(attrs.asdict(attrs.evolve(hint, seal=hint.sealed(snapshot.table_id)))).encode()
        self.files.fs.replace(f"{self.files.directory}/{files.HINT}", content)

    # Finding the end ----------------------------------------------------------------------------------------

    def _newest_by_listing(self) -> Snapshot:
        entries, checkpoints = self.files.list_versions()
        snapshot = self._replay(checkpoints, max(entries))
        # The listing is older than the replay, so the replay has seen each listed entry.
        if max((*entries, *checkpoints)) > snapshot.version:
            raise self.files.missing_entry(snapshot.version + 1)
        return snapshot

    def _replay(self, checkpoints: Iterable[int], known_to: int, stop: int | None = None) -> Snapshot:
        start = self._first_believable((*checkpoints, 0))
        if start is None:
            raise self.files.missing_entry(0)
        return self._forward(start, stop=stop, known_to=known_to if stop is None else min(known_to, stop))

    def _first_believable(self, versions: Iterable[int]) -> Snapshot | None:
        return next(filter(None, map(self._start_at, versions)), None)

    def _start_at(self, version: int) -> Snapshot | None:
        """Return the snapshot to start a replay from: the first entry, or a checkpoint that its entry confirms."""
        try:
            if version == 0:
                entry = self.files.read_entry(0)
                return attrs.evolve(Snapshot.created(entry.commit), checksum=entry.checksum)
            return self.files.read_checkpoint(version)
        except FileNotFoundError:
            return None
        except NewerLibraryError as error:
            raise files.newer_library(self.files.entry_path(0), str(error)) from error
        except InapplicableCommit as error:
            raise self.files.corrupt_file(self.files.entry_path(0), str(error)) from error

    def _forward(
        self, snapshot: Snapshot, stop: int | None = None, at_most: int | None = None, known_to: int = 0
    ) -> Snapshot:
        """Replay the entries after a snapshot, up to ``stop`` or the first that does not exist.

        Those up to ``known_to`` are said to exist, so that many can be read at once.
        """
        replay = Replay(snapshot)
        if at_most is not None and known_to - snapshot.version > at_most:
            raise _TooFar
        for entry in read_many(self.files.fs, self._entry_if_there, range(snapshot.version + 1, known_to + 1)):
            if entry is None:
                break
            self._follow(replay, entry)
        while stop is None or replay.version < stop:
            if at_most is not None and replay.version - snapshot.version > at_most:
                raise _TooFar
            try:
                entry = self.files.read_entry(replay.version + 1)
            except FileNotFoundError:
                if not self._has_grown(replay.version):
                    break
            else:
                self._follow(replay, entry)
        return replay.snapshot() if replay.version > snapshot.version else snapshot

    def _entry_if_there(self, version: int) -> files.Entry | None:
        with contextlib.suppress(FileNotFoundError):
            return self.files.read_entry(version)
        return None

    def _has_grown(self, version: int) -> bool:
        """Return True if the log has grown since the entry after a version was not found. Raise if it has a gap."""
        if not self.files.fs.has_file(self.files.entry_path(version + 2)):
            return False
        if not self.files.fs.has_file(self.files.entry_path(version + 1)):
            raise self.files.missing_entry(version + 1)
        return True  # two writers have committed since

    def _follow(self, replay: Replay, entry: files.Entry) -> None:
        path = self.files.entry_path(entry.commit.version)
        if entry.commit.previous != replay.checksum:
            raise self.files.corrupt_file(path, f"it does not follow the version {replay.version} that is here")
        try:
            if entry.commit.version and entry.commit.initial_snapshot is not None:
                raise InapplicableCommit(f"version {replay.version} exists already, and the log would begin once more")
            replay.apply(entry.commit, entry.checksum)
        except NewerLibraryError as error:
            raise files.newer_library(path, str(error)) from error
        except InapplicableCommit as error:
            raise self.files.corrupt_file(path, str(error)) from error


class _TooFar(Exception):  # noqa: N818 - a signal within this module
    """More entries than a good checkpoint would have left: look for a better start."""


def _utc(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):  # before the year 1
        return f"{timestamp_ms:,} ms of 1970"
