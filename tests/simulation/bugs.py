"""Bugs that commit protocols have had, put into this one: would the simulation notice?

Owns: :data:`BUGS`. Each replaces a function of the library for as long as a scenario is explored, which must then break a promise.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import attrs

from simulation import programs
from simulation.disk import Call, parent
from simulation.processes import Machine
from simulation.scenarios import SMALL
from simulation.states import Scenario
from simulation.table import Places, SimulatedTable, _vectors
from trinitymerge.log import commit as commit_module
from trinitymerge.log.actions import MAJOR, RemoveBatch, RestoreVersion, SetTransaction, remove_all
from trinitymerge.log.commit import (
    AppendOnlySince,
    NoConcurrentCommits,
    Predicate,
    PurgeUnchanged,
    TransactionNotCommitted,
    VersionConflict,
)
from trinitymerge.log.log import CommitLog
from trinitymerge.maintenance import compaction, deletion_vectors, purge, vacuum
from trinitymerge.merge.execute import conflicts
from trinitymerge.stores.managed import DirectoryStore


@attrs.frozen(eq=False)
class Bug:
    """One bug.

    Attributes:
        name: what is wrong.
        scenario: a word of the name of the scenario that must notice.
        patches: what is replaced by what.
    """

    name: str
    scenario: str
    patches: tuple[tuple[Any, str, Any], ...]

    def found_in(self) -> Scenario:
        """The scenario that must notice."""
        return next(s for s in SMALL if self.scenario in s.name)

    @contextlib.contextmanager
    def present(self) -> Iterator[None]:
        """While this lasts, the bug is there."""
        with contextlib.ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.enter_context(mock.patch.object(owner, name, value))
            yield


def _never(requirement: type) -> tuple[Any, str, Any]:
    return requirement, "violation", lambda self, landed: None


def _check_then_write(self: Machine, path: str, data: bytes) -> None:
    if self.exists(path):
        raise FileExistsError(errno.EEXIST, "exists", path)
    self.replace(path, data)


def _not_synced_before(self: Machine, path: str, data: bytes) -> None:
    self.ask(Call("create", path, data))
    if self.is_synced_later:
        self.ask(Call("sync_entries", parent(path)))


def _not_synced(self: Machine, path: str) -> None:
    """Leaves it to the system when files are written."""


def _synced_after(self: SimulatedTable, commit: Any, base: Any) -> Any:
    after = DirectoryStore.commit(self, commit, base)
    for batch in commit.added:
        Machine.sync_dir.__wrapped__(self.files, self.batch_path(batch.id))  # type: ignore[attr-defined]
    return after


def _late_sync(function: Callable[..., Any]) -> Any:
    def nothing(self: Machine, path: str) -> None:
        """Not yet."""

    nothing.__wrapped__ = function  # type: ignore[attr-defined]
    return nothing


def _failed_for_sure(self: CommitLog, commit: Any, error: OSError) -> None:
    raise error


def _tried_again(self: CommitLog, commit: Any, error: OSError) -> None:
    raise VersionConflict(commit.version, commit)


def _hint_is_the_end(self: CommitLog, known: Any = None) -> Any:
    hint = self.files.read_hint()
    return self.at(hint.version) if hint else self._newest_by_listing()


def _removing(commit: Any, ids: Any) -> Any:
    others = [a for a in commit.actions if not isinstance(a, RemoveBatch)]
    return attrs.evolve(commit, actions=[*remove_all(ids, MAJOR), *others])


def _drops_what_landed(commit: Any, landed: Any) -> Any:
    now = landed.now
    return _removing(now.rebase(commit), [b.id for b in now.batches])


def _keeps_what_it_has_read(commit: Any, landed: Any) -> Any:
    here = {b.id for b in landed.now.batches}
    return _removing(landed.now.rebase(commit), [i for i in commit.removed if i in here])


_attempt = programs._attempt


def _marked_afterwards(table: Any, merging: Any, done_by: Any, snapshot: Any) -> Any:
    after = _attempt(table, merging, None, snapshot)
    if done_by is None:
        return after
    mark = table.snapshot().next_commit("MARK", [SetTransaction(done_by.application, done_by.number)])
    return commit_module.publish(table, mark, table.snapshot(), ())


def _asks_once(history: Any, commit: Any, base: Any, requirements: Any, remade: Any = None) -> Any:
    try:
        return history.commit(commit, base)
    except VersionConflict:
        landed = commit_module.ConcurrentCommits.after(history, base)
        for requirement in requirements:
            why = requirement.violation(landed)
            if why is not None:
                raise commit_module.ConcurrentCommitError(why, requirement=requirement) from None
    base = landed.now
    while True:
        try:
            return history.commit(base.rebase(commit), base)
        except VersionConflict:
            base = history.snapshot()


def _latest_without_replay(self: CommitLog, snapshot: Any, stop: Any = None, **more: Any) -> Any:
    return snapshot if stop is None and snapshot.version else _forward(self, snapshot, stop, **more)


_forward = CommitLog._forward


def _anybodys(self: CommitLog, commit: Any) -> None:
    """Takes whatever stands there for its own."""
    self.files.entry(commit.version)


def _sees_only_what_is_added(read_set: conflicts.ReadSet, landed: Any) -> str | None:
    added = [b for commit in landed.commits if commit.changes_data for b in commit.added]
    return "partial rows have landed" if read_set.may_mend(added) else None


_restore = RestoreVersion.apply


def _keeps_vectors(self: RestoreVersion, state: Any) -> None:
    vectors = state.deletion_vectors
    _restore(self, state)
    state.deletion_vectors = vectors


def _forgets_new_batches(table: Any, batches: Any) -> Places:
    older = attrs.evolve(batches, batches=batches.batches[:-1])
    return _vectors(table, older)


BUGS = (
    Bug("check, then write", "same key", ((Machine, "create_exclusive", _check_then_write),)),
    Bug(
        "an entry is published before the one that it follows is synced",
        "power cut",
        ((Machine, "create_exclusive", _not_synced_before),),
    ),
    Bug("batches are not synced before they are published", "power cut", ((Machine, "sync_dir", _not_synced),)),
    Bug(
        "batches are synced after they are published",
        "power cut",
        (
            (Machine, "sync_dir", _late_sync(Machine.sync_dir)),
            (SimulatedTable, "commit", _synced_after),
        ),
    ),
    Bug(
        "an error is taken for a commit that has not taken place",
        "object store",
        ((CommitLog, "_resolve_doubt", _failed_for_sure),),
    ),
    Bug(
        "after a lost answer the commit is made again, without looking",
        "object store",
        ((CommitLog, "_resolve_doubt", _tried_again),),
    ),
    Bug(
        "whoever comes second believes that the entry is its own", "same key", ((CommitLog, "_require_own", _anybodys),)
    ),
    Bug("the hint is taken for the end of the log", "reader", ((CommitLog, "newest", _hint_is_the_end),)),
    Bug("a checkpoint is taken for the end of the log", "network", ((CommitLog, "_forward", _latest_without_replay),)),
    Bug(
        "a vacuum takes what an older version within its retention needs",
        "past version",
        ((vacuum, "_needed", lambda store, first, latest: {b.id for b in latest.batches}),),
    ),
    Bug(
        "a vacuum removes without having said what",
        "a restore beside a vacuum",
        ((vacuum, "announce_deletes", lambda store, ids, _: ids - store.snapshot().referenced_ids),),
    ),
    Bug(
        "a purge removes without having said what",
        "a purge beside a restore",
        ((purge._Purge, "gone", lambda work, snapshot: None),),
    ),
    Bug("a compaction drops what landed meanwhile", "late row", ((compaction, "rebased", _drops_what_landed),)),
    Bug(
        "a compaction forgets that its batches were folded meanwhile",
        "history",
        ((compaction, "rebased", _keeps_what_it_has_read),),
    ),
    Bug("a fold goes on top of a compaction of its batches", "late row", (_never(AppendOnlySince),)),
    Bug("a tombstone is forgotten though older rows have landed", "forgets", (_never(Predicate),)),
    Bug(
        "a late row does not look for partial rows that landed", "beside a late one that sets it", (_never(Predicate),)
    ),
    Bug(
        "late rows mend nothing",
        "two late rows that set the same value",
        ((programs.mend, "may_mend", lambda *_: False),),
    ),
    Bug(
        "a late row does not look at partial rows that a restore brings back",
        "a restore beside a late row",
        ((conflicts.ReadSet, "mends", _sees_only_what_is_added),),
    ),
    Bug("a merge does not look at what landed under its keys", "same key", (_never(Predicate),)),
    Bug(
        "the marker of a transaction is committed after its rows",
        "transaction",
        ((programs, "_attempt", _marked_afterwards),),
    ),
    Bug("a replay does not look for its marker among what landed", "transaction", (_never(TransactionNotCommitted),)),
    Bug("rows of purged keys are committed after the purge", "purge", (_never(PurgeUnchanged),)),
    Bug("a purge does not look at what landed", "purge", (_never(NoConcurrentCommits),)),
    Bug("a restore does not undo what landed", "restore", (_never(NoConcurrentCommits),)),
    Bug("requirements are asked of the first collision alone", "overtake", ((programs, "publish", _asks_once),)),
    Bug(
        "deletion vectors stay in a restore",
        "deletion vectors beside a restore",
        ((RestoreVersion, "apply", _keeps_vectors),),
    ),
    Bug(
        "a minor compaction leaves its rows among those that were compared",
        "deletion vectors beside a fold",
        ((deletion_vectors, "_vectors", _forgets_new_batches),),
    ),
    Bug(
        "a merge that read everything asks for its keys alone",
        "everything",
        ((conflicts.ReadSet, "conflict", lambda self, landed: None),),
    ),
)
