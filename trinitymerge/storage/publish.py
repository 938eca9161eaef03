"""The one way to commit, for everything that changes a table (S33, S35).

Owns: :func:`publish`, and the requirements by which a commit says what must not have happened meanwhile. Imports no Spark:
what only rows can tell, such as whether two sets of keys overlap, is handed in as a function. So the protocol runs on plain
data too.

Three things can go wrong, and they are three errors. Another writer was faster: :class:`VersionTaken`, and
:class:`~trinitymerge.errors.ConcurrentCommitError` if the commit cannot go on top of what landed. A vacuum took the files:
:class:`~trinitymerge.errors.FilesVacuumedError`. The storage cannot say what has become of the commit:
:class:`OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import attrs

from trinitymerge.errors import ConcurrentCommitError
from trinitymerge.storage import telling
from trinitymerge.storage.entries import FOLD, Batch, Commit, Snapshot


class OutcomeUnknown(OSError):  # noqa: N818 - it may have worked
    """The storage failed during a commit that may or may not have taken place; its files must stay."""


class VersionTaken(Exception):  # noqa: N818 - an answer to a question, not a failure
    """Another writer has committed that version; nothing was changed.

    Attributes:
        version: the version that was wanted.
        winner: what stands there now.
    """

    def __init__(self, version: int, winner: Commit) -> None:
        super().__init__(f"version {version} exists already: {winner.operation} by {winner.user or 'unknown'}")
        self.version = version
        self.winner = winner


class Versioned(Protocol):
    """What committing takes: a sequence of versions to which one writer at a time can add the next."""

    @property
    def path(self) -> str:
        """Where the table is."""

    def snapshot(self) -> Snapshot:
        """The newest snapshot."""

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """The commits of versions ``first`` to ``last``, oldest first."""

    def commit(self, commit: Commit, before: Snapshot) -> Snapshot:
        """Makes a commit visible as ``commit.version``, on top of ``before``.

        Raises:
            VersionTaken: that version exists already; nothing was changed.
            FilesVacuumedError: a batch it adds has lost its files; nothing was changed.
            OutcomeUnknown: the storage cannot say whether the commit took place.
        """


@attrs.frozen
class Landed:
    """What others have committed since a snapshot.

    Attributes:
        since: the snapshot that the commit was made on.
        now: the newest one.
        commits: those in between, oldest first.
    """

    since: Snapshot
    now: Snapshot
    commits: tuple[Commit, ...]

    @classmethod
    def after(cls, store: Versioned, since: Snapshot) -> Landed:
        """What a table's history says."""
        now = store.snapshot()
        return cls(since, now, tuple(store.commits(since.version + 1, now.version)))

    def and_then(self, later: Landed) -> Landed:
        """This and what landed after it."""
        return Landed(self.since, later.now, (*self.commits, *later.commits))

    @property
    def appended(self) -> tuple[Batch, ...]:
        """The batches of commits that removed none, as the log's entries say them, whether or not they are live now."""
        return tuple(
            attrs.evolve(b, version=c.version) if b.version is None else b
            for c in self.commits
            if not c.removed
            for b in c.added
        )


class Requirement(Protocol):
    """What must hold of the commits that landed meanwhile for a commit to go on top of them."""

    def violation(self, landed: Landed) -> str | None:
        """Says why the commit may not go on top, in words that follow "because"; None if it may."""


@attrs.frozen
class SameDefinition:
    """The table's definition has not changed."""

    def violation(self, landed: Landed) -> str | None:
        """See :class:`Requirement`."""
        if landed.now.definition_version == landed.since.definition_version:
            return None
        return f"version {landed.now.definition_version} has changed the definition"


@attrs.frozen
class SamePurges:
    """No key has been purged: the rows to commit have been checked against the markers of before."""

    def violation(self, landed: Landed) -> str | None:
        """See :class:`Requirement`."""
        return None if landed.now.purged == landed.since.purged else "keys have been purged"


@attrs.frozen
class NotDelivered:
    """The transaction has not been committed by somebody else, nor any of another stream under its name (S36, S36a)."""

    application: str
    version: int
    stream: str | None = None

    def violation(self, landed: Landed) -> str | None:
        """See :class:`Requirement`."""
        last, writer = landed.now.transactions.get(self.application), landed.now.streams.get(self.application)
        if self.stream is not None and writer not in (None, self.stream):
            return f"another stream has written as '{self.application}'"
        if last is None or last < self.version:
            return None
        return f"transaction {last} of '{self.application}' has been committed"


@attrs.frozen
class OnlyAppends:
    """Nothing landed but new rows, and what leaves rows and definition as they are.

    Batches that a restore brings back count as older than what is committed on top, and so would lose to what that has
    resolved without them.

    Attributes:
        and_folds: and folds, which never change what readers see (S38a).
    """

    and_folds: bool = False

    def violation(self, landed: Landed) -> str | None:
        """See :class:`Requirement`."""
        for commit in landed.commits:
            if self.and_folds and commit.operation == FOLD:
                continue
            is_restore = (
                commit.horizon is not None or commit.resets_horizon or any(b.version is not None for b in commit.added)
            )
            if commit.definition:
                return f"version {commit.version} ({commit.operation}) has changed the definition"
            if commit.removed or is_restore:
                return f"version {commit.version} ({commit.operation}) has replaced what this commit would replace"
        return None


@attrs.frozen
class NothingLanded:
    """Nobody has committed anything: what is committed was computed from the table as a whole."""

    def violation(self, landed: Landed) -> str | None:
        """See :class:`Requirement`."""
        return f"{len(landed.commits)} commits have landed" if len(landed.commits) != 1 else "a commit has landed"


@attrs.frozen(eq=False)
class Holds:
    """Anything else, handed in by whoever knows it.

    Attributes:
        why_not: from what landed to the reason against the commit, or None.
    """

    why_not: Callable[[Landed], str | None]

    def violation(self, landed: Landed) -> str | None:
        """See :class:`Requirement`."""
        return self.why_not(landed)


def publish(
    store: Versioned,
    commit: Commit,
    before: Snapshot,
    requirements: Sequence[Requirement],
    remade: Callable[[Landed], Commit] | None = None,
) -> Snapshot:
    """Commits on top of a snapshot, or of what others have committed since, as long as every requirement holds (S35).

    Args:
        store: of the table.
        commit: made on ``before``.
        before: the snapshot it was computed from.
        requirements: asked, in order, each time somebody else was faster.
        remade: if they hold, what to commit on top of all that has landed since ``before``; if it is not given, the same.

    Returns:
        The snapshot after the commit.

    Raises:
        ConcurrentCommitError: a requirement does not hold; nothing was changed. Its ``requirement`` says which.
        FilesVacuumedError: a batch of the commit has lost its files; nothing was changed.
        OutcomeUnknown: the storage cannot say whether the commit took place: its files must stay.
    """
    everything = Landed(before, before, ())
    while True:
        try:
            after = store.commit(commit, before)
            telling.committed(store.path, commit)
            return after
        except VersionTaken as taken:
            landed = Landed.after(store, before)
            if landed.now.version < taken.version:
                raise _conflict(store, landed, taken, "its log does not show that version yet") from None
            for requirement in requirements:
                why = requirement.violation(landed)
                if why is not None:
                    raise _conflict(store, landed, taken, why, requirement) from None
            before, everything = landed.now, everything.and_then(landed)
            commit = before.rebase(commit) if remade is None else remade(everything)


def _conflict(
    store: Versioned, landed: Landed, taken: VersionTaken, why: str, requirement: Requirement | None = None
) -> ConcurrentCommitError:
    return ConcurrentCommitError(
        f"Another writer has committed to {store.path} meanwhile: expected version {landed.since.version}, found "
        f"{landed.now.version} ({taken.winner.operation}), and {why}. Nothing was written; run it again.",
        path=store.path,
        version=taken.version,
        requirement=requirement,
    )
