"""Commit concurrently with other writers: publish(), requirements, retries and transactions (S33, S35, S36)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

import attrs

from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError, InvalidMergeError
from trinitymerge.log import reporting
from trinitymerge.log.actions import AddOutboxEntry, Batch, RestoreVersion, SetPendingDeletes
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.schema.properties import commit_backoff_seconds, max_commit_attempts

_LONGEST_PAUSE_SECONDS = 2.0

T = TypeVar("T")

RetryableError: TypeAlias = ConcurrentCommitError | FilesVacuumedError
"""An error of one attempt that the next attempt may not meet."""


@attrs.define
class RetryPolicy:
    """Count the failed attempts at one commit. A limit of None means the property ``trinitymerge.maxCommitAttempts``."""

    limit: int | None = None
    failures: int = 0

    def backoff(self, error: RetryableError, snapshot: Snapshot) -> None:
        """Sleep for a random time whose maximum doubles with each failure (S35), or raise the error of the last attempt."""
        self.failures += 1
        if self.failures >= (self.limit or max_commit_attempts(snapshot.properties)):
            raise error
        longest = commit_backoff_seconds(snapshot.properties) * 2 ** (self.failures - 1)
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, longest)))


def retry(
    store: Versioned,
    attempt: Callable[[Snapshot], T],
    errors: tuple[type[RetryableError], ...] = (ConcurrentCommitError, FilesVacuumedError),
    limit: int | None = None,
) -> T:
    """Call an attempt with the newest snapshot until it succeeds, with a pause after each failure by one of some errors (S35)."""
    policy = RetryPolicy(limit)
    while True:
        snapshot = store.snapshot()
        try:
            return attempt(snapshot)
        except errors as error:
            policy.backoff(error, snapshot)


@attrs.frozen
class MicroBatch:
    """One micro-batch of a stream, as numbered by a checkpoint directory with the id ``query_id``, if Spark reports that."""

    app_id: str
    number: int
    query_id: str | None = None


def check_continues(batch: MicroBatch, snapshot: Snapshot, table: str) -> None:
    """Refuse a micro-batch of a restarted stream, which would be skipped as a replay (S36a)."""
    last = snapshot.transactions.get(batch.app_id)
    writer = snapshot.streams.get(batch.app_id)
    if writer is not None and batch.query_id is not None and writer != batch.query_id:
        what = (
            f"Micro-batch {batch.number} of stream '{batch.app_id}' comes from another streaming query (id "
            f"{batch.query_id}) than those that {table} has committed under this appId so far (id {writer}, last number "
            f"{last})"
        )
    elif last is not None and batch.number < last:
        what = f"Micro-batch {batch.number} of stream '{batch.app_id}' came after {table} had committed number {last}"
    else:
        return
    raise InvalidMergeError(
        f"{what}: the stream has started over, for instance with a new checkpoint directory, and counts from 0 again, so its "
        "batches look like replays. Give the stream a new appId, or start it with its previous checkpoint directory. "
        "Nothing was written.",
        appId=batch.app_id,
        batchId=batch.number,
        last=last,
    )


class CommitStateUnknown(OSError):  # noqa: N818 - it may have worked
    """The storage failed during a commit that may or may not have taken place; its files must stay."""


class VersionConflict(Exception):  # noqa: N818 - an answer to a question, not a failure
    """Another writer has committed the version, with the commit ``winner``; nothing was changed."""

    def __init__(self, version: int, winner: Commit) -> None:
        super().__init__(f"version {version} exists already: {winner.operation} by {winner.user or 'unknown'}")
        self.version = version
        self.winner = winner


class Versioned(Protocol):
    """A sequence of versions to which one writer at a time can add the next."""

    @property
    def path(self) -> str:
        """The path of the table."""

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """Return the commits of versions ``first`` to ``last``, oldest first."""

    def commit(self, commit: Commit, before: Snapshot) -> Snapshot:
        """Make a commit visible as ``commit.version``, on top of ``before``."""


@attrs.frozen
class ConcurrentCommits:
    """The commits between the snapshot that a commit was made on and the newest one, oldest first."""

    since: Snapshot
    now: Snapshot
    commits: tuple[Commit, ...]

    @classmethod
    def after(cls, store: Versioned, since: Snapshot) -> ConcurrentCommits:
        now = store.snapshot()
        return cls(since, now, tuple(store.commits(since.version + 1, now.version)))

    def then(self, later: ConcurrentCommits) -> ConcurrentCommits:
        return ConcurrentCommits(self.since, later.now, (*self.commits, *later.commits))

    @property
    def appended_batches(self) -> tuple[Batch, ...]:
        """The batches of commits that removed none, as in the log's entries, even if removed since."""
        return tuple(
            attrs.evolve(b, version=c.version) if b.version is None else b
            for c in self.commits
            if not c.removed
            for b in c.added
        )


class Requirement(Protocol):
    """A condition on concurrent commits under which a commit may follow them."""

    def violation(self, landed: ConcurrentCommits) -> str | None:
        """Return why the commit may not follow them, in words that fit after "because"; None if it may."""


@attrs.frozen
class SameDefinition:
    def violation(self, landed: ConcurrentCommits) -> str | None:
        if landed.now.definition_version == landed.since.definition_version:
            return None
        return f"version {landed.now.definition_version} has changed the definition"


@attrs.frozen
class PurgeUnchanged:
    """No key has been purged: the rows to commit were checked against the earlier markers."""

    def violation(self, landed: ConcurrentCommits) -> str | None:
        return None if landed.now.purged == landed.since.purged else "keys have been purged"


@attrs.frozen
class TransactionNotCommitted:
    """No other writer has committed the transaction, and no other stream one of its name (S36, S36a)."""

    application: str
    version: int
    stream: str | None = None

    def violation(self, landed: ConcurrentCommits) -> str | None:
        last, writer = landed.now.transactions.get(self.application), landed.now.streams.get(self.application)
        if self.stream is not None and writer not in (None, self.stream):
            return f"another stream has written as '{self.application}'"
        if last is None or last < self.version:
            return None
        return f"transaction {last} of '{self.application}' has been committed"


@attrs.frozen
class AppendOnlySince:
    """No concurrent commit did more than add new rows, or compacted only minorly, if that is allowed (S38a): readers see the same.

    Batches of a restore are older than the commit on top, which has resolved rows without them.
    """

    or_minor_compactions: bool = False

    def violation(self, landed: ConcurrentCommits) -> str | None:
        for commit in landed.commits:
            if self.or_minor_compactions and commit.is_minor_compaction:
                continue
            is_restore = commit.last(RestoreVersion) or commit.horizon is not None
            if commit.definition:
                return f"version {commit.version} ({commit.operation}) has changed the definition"
            if commit.removed or is_restore or any(b.version is not None for b in commit.added):
                return f"version {commit.version} ({commit.operation}) has replaced what this commit would replace"
        return None


@attrs.frozen
class NoConcurrentCommits:
    """No other writer has committed: the commit was computed from the whole table."""

    def violation(self, landed: ConcurrentCommits) -> str | None:
        return f"{len(landed.commits)} commits have landed" if len(landed.commits) != 1 else "a commit has landed"


@attrs.frozen(eq=False)
class Predicate:
    """A condition given as a function, which returns the reason against the commit, or None."""

    why_not: Callable[[ConcurrentCommits], str | None]

    def violation(self, landed: ConcurrentCommits) -> str | None:
        return self.why_not(landed)


def publish(
    store: Versioned,
    commit: Commit,
    before: Snapshot,
    requirements: Sequence[Requirement],
    remade: Callable[[ConcurrentCommits], Commit] | None = None,
) -> Snapshot:
    """Commit on top of a snapshot, or of concurrent commits if every requirement allows them (S35).

    Requirements are checked, in order, each time another writer commits first. Then ``remade`` returns the commit to make on top of
    all commits since ``before``; None rebases ``commit``.
    """
    everything = ConcurrentCommits(before, before, ())
    while True:
        try:
            after = store.commit(commit, before)
            reporting.committed(store.path, commit)
            return after
        except VersionConflict as taken:
            landed = ConcurrentCommits.after(store, before)
            _require_files(store, commit, landed)
            if landed.now.version < taken.version:
                raise _conflict(store, landed, taken, "its log does not show that version yet") from None
            for requirement in requirements:
                why = requirement.violation(landed)
                if why is not None:
                    raise _conflict(store, landed, taken, why, requirement) from None
            before, everything = landed.now, everything.then(landed)
            commit = before.rebase(commit) if remade is None else remade(everything)


def _require_files(store: Versioned, commit: Commit, landed: ConcurrentCommits) -> None:
    """Raise if a vacuum has announced to delete files of a commit (S39).

    A later one may have forgotten it since: it found no directory, before a slow task wrote its file there.
    """
    written = {*commit.added_ids, *(a.entry.id for a in commit.all(AddOutboxEntry))}
    announced = {i for each in landed.commits for a in each.all(SetPendingDeletes) for i in a.ids}
    if not written.isdisjoint(announced):
        raise FilesVacuumedError.of(store.path, f"{store.path}/data/_tm_batch={min(written & announced)}")


def _conflict(
    store: Versioned,
    landed: ConcurrentCommits,
    taken: VersionConflict,
    why: str,
    requirement: Requirement | None = None,
) -> ConcurrentCommitError:
    return ConcurrentCommitError(
        f"Another writer has committed to {store.path}: expected version {landed.since.version}, found "
        f"{landed.now.version} ({taken.winner.operation}), and {why}. Run it again. Nothing was written.",
        path=store.path,
        version=taken.version,
        requirement=requirement,
    )
