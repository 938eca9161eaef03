"""What the processes of a simulation do, and what each commit of theirs means.

Owns: the merges, readers and maintenance that take part. A merge here is the library's, but for the evaluation of its clauses:
the snapshot it takes, the batch it stages, what it requires of others' commits, giving way and what is done after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from simulation.processes import Machine, Process
from simulation.table import Row, SimulatedTable, _observed, definition, marker, on
from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError
from trinitymerge.log.actions import AddBatch, SetTransaction
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import CommitStateUnknown, RetryPolicy, publish
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance import (
    alter as alter_module,
    auto,
    compaction,
    deletion_vectors,
    minor_compaction,
    purge,
    vacuum as vacuum_module,
)
from trinitymerge.merge.compile import mend
from trinitymerge.merge.compile.strategies import Reads
from trinitymerge.merge.execute.conflicts import ReadSet, requirements
from trinitymerge.merge.execute.executor import already_done
from trinitymerge.merge.execute.request import FeedContext, Transaction
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.rows.key_ranges import KeyRange

Rows = Mapping[int, Row]
"""By key, the freshest row of each, tombstones included."""


# Merges ---------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Upsert:
    """A blind append: rows that do not depend on the target. Late ones mend stored partial rows (U4)."""

    rows: tuple[Row, ...]
    reads: frozenset[int] = frozenset()
    reads_all: bool = False

    def over(self, target: Rows) -> tuple[Row, ...]:
        """The rows it appends."""
        return (*self.rows, *mended(target, self.rows))


def mended(target: Rows, rows: tuple[Row, ...]) -> list[Row]:
    """The partial rows whose value some rows set, which are older than they are."""
    found = []
    for row in sorted(rows, key=lambda r: r.at):
        stored = target.get(row.key)
        if stored is not None and stored.set_at is not None and stored.set_at < row.at < stored.at:
            found.append(attrs.evolve(stored, value=row.value, set_at=row.at, since=None))
    return found[-1:]


@attrs.frozen
class Patch:
    """A row that leaves its value unset: a merge that looks up its key (U1)."""

    reads: frozenset[int]
    at: int
    reads_all: bool = False

    def over(self, target: Rows) -> tuple[Row, ...]:
        """The rows it appends."""
        (key,) = self.reads
        stored = target.get(key, Row(key, 0))
        if stored.at > self.at:
            return ()
        return (Row(key, self.at, stored.value, set_at=stored.at if stored.set_at is None else stored.set_at),)


@attrs.frozen
class Add:
    """``value = A.value + 1`` under some keys: a merge that looks them up."""

    reads: frozenset[int]
    at: int
    reads_all: bool = False

    def over(self, target: Rows) -> tuple[Row, ...]:
        """The rows it appends."""
        found = [target[k] for k in sorted(self.reads) if k in target]
        return tuple(attrs.evolve(r, at=self.at, value=r.value + 1) for r in found if not r.is_dead and r.at <= self.at)


@attrs.frozen
class Replace:
    """One row whose value is the sum of all live ones, and every other one deleted: a merge that reads all there is."""

    key: int
    at: int
    reads: frozenset[int] = frozenset()
    reads_all: bool = True

    def over(self, target: Rows) -> tuple[Row, ...]:
        """The rows it appends."""
        live = [r for r in target.values() if not r.is_dead and r.at <= self.at]
        gone = [attrs.evolve(r, at=self.at, value=0, is_dead=True) for r in live if r.key != self.key]
        return (Row(self.key, self.at, sum(r.value for r in live)), *gone)


Merging = Upsert | Add | Replace | Patch


@attrs.frozen
class Merged:
    """What a merge has told its user.

    Attributes:
        version: of its commit; None if it cannot tell whether there is one.
        skipped: why there is none.
    """

    version: int | None
    skipped: str = ""


def _merge(table: SimulatedTable, merging: Merging, transaction: tuple[str, int] | None) -> Merged:
    """What ``merge/execute/executor.py`` does around the rows."""
    done_by, attempts = None if transaction is None else Transaction(*transaction), RetryPolicy()
    while True:
        snapshot = table.snapshot()
        done = already_done(done_by, snapshot, table.path)
        if done is not None:
            return Merged(done.version, "replayed")
        try:
            after = _attempt(table, merging, done_by, snapshot)
        except CommitStateUnknown:
            return Merged(None)
        except (ConcurrentCommitError, FilesVacuumedError) as error:
            attempts.backoff(error, snapshot)
            continue
        if after is None:
            return Merged(snapshot.version, "nothing to write")
        auto.run_auto_maintenance(table, MergeResult(version=after.version), after)
        return Merged(after.version)


def _marker(done_by: Transaction | None) -> list[SetTransaction]:
    return [] if done_by is None else [SetTransaction(done_by.application, done_by.number)]


def _attempt(
    table: SimulatedTable, merging: Merging, done_by: Transaction | None, snapshot: Snapshot, mends: bool = False
) -> Snapshot | None:
    reads_nothing = not merging.reads and not merging.reads_all and not mends
    target = {} if reads_nothing else _rows_of(table, snapshot)
    purged = snapshot.purged.hashes if snapshot.purged else ()
    rows = [r for r in merging.over(target) if marker(r.key) not in purged]
    if not rows:
        if done_by is None:
            return None
        commit = snapshot.next_commit("MERGE", _marker(done_by))
        return publish(
            table,
            commit,
            snapshot,
            requirements(done_by, FeedContext(), None if reads_nothing else _reading(table, merging)),
        )
    is_first, is_unique = not snapshot.batches, len({r.key for r in rows}) == len(rows)
    staged, batch = table.staged_batch(rows, snapshot.definition, unique_keys=is_unique, base=is_first)
    may_mend = partial(
        mend.may_mend, table, snapshot.definition, batch, KeyRange.of(_observed(rows), snapshot.definition)
    )
    if not mends and isinstance(merging, Upsert) and may_mend(snapshot.batches):
        table.discard(staged)
        return _attempt(table, merging, done_by, snapshot, mends=True)
    try:
        depends = ReadSet(table, _reads(merging), not merging.reads_all, batch, staged, may_mend)
        commit = snapshot.next_commit("MERGE", [AddBatch(batch), *_marker(done_by)])
        return publish(table, commit, snapshot, requirements(done_by, FeedContext(), depends))
    except CommitStateUnknown:
        raise
    except Exception:
        table.discard(staged)
        raise


def _reads(merging: Merging) -> Reads:
    keys: Any = merging.reads or None
    return Reads(keys=keys, everything=merging.reads_all)


def _reading(table: SimulatedTable, merging: Merging) -> ReadSet:
    nothing: Any = None
    return ReadSet(table, _reads(merging), not merging.reads_all, None, nothing)


def _rows_of(table: SimulatedTable, snapshot: Snapshot) -> dict[int, Row]:
    return table.read(snapshot)


def merge(name: str, merging: Merging, transaction: tuple[str, int] | None = None, times: int = 1) -> Acting:
    """A process that merges, once or several times in a row through one open table."""

    def code(machine: Machine) -> list[Merged]:
        with on(machine) as table:
            return [_merge(table, merging, transaction) for _ in range(times)]

    doing = {
        Upsert: "merges blindly",
        Add: "merges what it looks up",
        Replace: "merges what it reads as a whole",
        Patch: "merges what it leaves unset",
    }
    return Acting(Process(name, doing[type(merging)], code), merging=merging, times=times, transaction=transaction)


# Reading and maintenance ----------------------------------------------------------------------------------------------


@attrs.frozen
class Seen:
    """What a reader has seen.

    Attributes:
        version: of the table.
        rows: live ones.
    """

    version: int
    rows: tuple[Row, ...]


def live(rows: Mapping[int, Row]) -> tuple[Row, ...]:
    """The rows that a reader sees, in order."""
    return tuple(sorted(r for r in rows.values() if not r.is_dead))


def read(name: str, times: int = 2) -> Acting:
    """A process that reads, several times."""

    def code(machine: Machine) -> list[Seen]:
        found = []
        with on(machine) as table:
            for _ in range(times):
                snapshot = table.snapshot()
                found.append(Seen(snapshot.version, live(_rows_of(table, snapshot))))
        return found

    return Acting(Process(name, "reads", code))


def read_past(name: str, version: int) -> Acting:
    """A process that reads a past version."""

    def code(machine: Machine) -> list[Seen]:
        with on(machine) as table:
            snapshot = table.snapshot_at(version)
            return [Seen(version, live(_rows_of(table, snapshot)))]

    return Acting(Process(name, "reads", code))


def _maintenance(name: str, doing: str, work: Callable[[SimulatedTable], Any], **facts: Any) -> Acting:
    def code(machine: Machine) -> Any:
        with on(machine) as table:
            return work(table)

    return Acting(Process(name, doing, code), **facts)


def fold(name: str, base_too: bool = False) -> Acting:
    """A process that folds all that is pending, or all there is."""

    def work(table: SimulatedTable) -> Any:
        snapshot = table.snapshot()
        now = Batches.of(snapshot)
        batches = now.batches if base_too and len(now.base) <= 1 else now.pending
        return minor_compaction.minor_compact(table, snapshot, batches) if len(batches) > 1 else None

    return _maintenance(name, "folds", work)


def compare(name: str) -> Acting:
    """A process that makes deletion vectors."""

    def work(table: SimulatedTable) -> Any:
        snapshot = table.snapshot()
        return deletion_vectors.make_deletion_vectors(table, snapshot) if len(snapshot.batches) > 1 else None

    return _maintenance(name, "marks", work)


def compact(name: str, full: bool = False) -> Acting:
    """A process that compacts."""
    return _maintenance(name, "compacts", lambda table: compaction.compact_segments(table, full))


def vacuum(name: str, hours: float = 1.0) -> Acting:
    """A process that vacuums."""
    return _maintenance(name, "vacuums", lambda table: vacuum_module.vacuum(table, hours, dry_run=False), lists=True)


def restore(name: str, version: int) -> Acting:
    """A process that goes back to a version."""
    return _maintenance(name, f"restores version {version}", lambda table: vacuum_module.restore(table, version))


def erase(name: str, *keys: int) -> Acting:
    """A process that purges some keys."""
    sought: Any = frozenset(keys)
    return _maintenance(
        name,
        "purges",
        lambda table: purge.delete_keys(table, sought, len(keys), 0.0, lambda: None),
        purges=frozenset(keys),
        lists=True,
    )


def alter(name: str) -> Acting:
    """A process that alters the table."""
    return _maintenance(
        name, "alters", lambda table: alter_module.TableAlteration(table).setProperty("team", name).execute()
    )


def create(name: str, history: bool = False, **properties: Any) -> Acting:
    """A process that makes the table."""
    return _maintenance(name, "creates", lambda table: table.create(definition(history, **properties), None))


@attrs.frozen
class Acting:
    """A process that takes part in a simulation.

    Attributes:
        process: what it does.
        merging: what a commit of it means, if it merges.
        times: how often it merges.
        transaction: that its merge is; of all processes with the same one, one may commit it.
        purges: the keys it takes away.
        lists: it lists the directories of others, so when they write theirs makes a difference.
    """

    process: Process
    merging: Merging | None = None
    times: int = 1
    transaction: tuple[str, int] | None = None
    purges: frozenset[int] = frozenset()
    lists: bool = False
