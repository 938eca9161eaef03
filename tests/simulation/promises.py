"""What must hold in every state of a simulation, as ``docs/reliability.md`` promises it.

Owns: :class:`Model`, a table as the rules say it is after each of its commits; and the checks of a disk, of what processes were
told, and of what comes after all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from simulation import programs
from simulation.disk import Call, Disk
from simulation.processes import Ended, Process, start
from simulation.programs import Acting, Merged, Seen, live
from simulation.table import Row, SimulatedTable, freshest, on
from trinitymerge.errors import (
    ConcurrentCommitError,
    CorruptTableError,
    FilesVacuumedError,
    TableExistsError,
    TableNotFoundError,
    TrinityMergeError,
)
from trinitymerge.log.actions import SetTransaction
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import CommitStateUnknown
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.reader import usable


class Broken(AssertionError):  # noqa: N818 - a finding
    """A promise that does not hold.

    Attributes:
        promise: which, in words that do not depend on the schedule.
    """

    def __init__(self, promise: str, facts: str = "") -> None:
        super().__init__(f"{promise}: {facts}" if facts else promise)
        self.promise = promise


def require(holds: bool, promise: str, facts: Any = "") -> None:
    """Raises :class:`Broken` unless something holds."""
    if not holds:
        raise Broken(promise, str(facts))


def at_once(disk: Disk, acting: Acting | Process, now_ms: int, **facts: bool) -> tuple[Ended, Disk]:
    """What becomes of a process that nobody interrupts, and the disk after it."""
    disks = [disk]

    def answer(call: Call) -> Any:
        if call.what == "now":
            return now_ms
        found, disks[0] = disks[0].answer(call, now_ms)
        return found

    process = acting.process if isinstance(acting, Acting) else acting
    moment = start(process, answer, is_local=facts.get("is_local", True), is_synced_later=False)
    assert moment.ended is not None
    return moment.ended, disks[0]


# The model ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Model:
    """A table after one of its commits, as the rules have it.

    Attributes:
        rows: by key the freshest row, tombstones included.
        purged: keys that must never come back.
        ever: every row that was ever committed, of tables with history.
        settled: the partial rows that a compaction has made whole, as they were. A merge that has begun before may still mend them.
    """

    rows: Mapping[int, Row] = attrs.field(factory=dict)
    purged: frozenset[int] = frozenset()
    ever: tuple[Row, ...] = ()
    settled: Mapping[int, Row] = attrs.field(factory=dict)

    def plus(self, rows: Sequence[Row]) -> Model:
        """With the rows of a merge."""
        known = dict(self.rows)
        written = [r for r in rows if r.key not in self.purged]
        for row in written:
            if row.key not in known or row.at >= known[row.key].at:
                known[row.key] = row
        return attrs.evolve(self, rows=known, ever=tuple(sorted((*self.ever, *written))))

    def without(self, keys: frozenset[int]) -> Model:
        """Without purged keys."""
        return Model(
            {k: r for k, r in self.rows.items() if k not in keys},
            self.purged | keys,
            tuple(r for r in self.ever if r.key not in keys),
        )


@attrs.frozen(eq=False)
class Promises:
    """The promises to those who take part in a simulation.

    Attributes:
        acting: who.
        models: what the table is after each commit that has been seen, by the checksum of its entry.
    """

    acting: Sequence[Acting]
    models: dict[str, Model] = attrs.field(factory=dict)
    _checked: dict[int, Model] = attrs.field(factory=dict)

    # The table ------------------------------------------------------------------------------------------------------

    def check_table(self, disk: Disk) -> None:
        """Everything that whoever opens the table now would find."""
        if disk.seen_key not in self._checked:
            ended, _ = at_once(disk, Process("zz", "looks", self._look), 0)
            if ended.error is not None:
                raise (
                    ended.error
                    if isinstance(ended.error, Broken)
                    else Broken("whoever opens the table can read it", repr(ended.error))
                )
            self._checked[disk.seen_key] = ended.result

    def model_of(self, disk: Disk) -> Model:
        """What the table is, on a disk that has been checked."""
        return self._checked[disk.seen_key]

    def _look(self, machine: Any) -> Model:
        with on(machine) as table:
            try:
                snapshot = table.snapshot()
            except TableNotFoundError:
                return Model()
            entries, _ = table.log.files.list_versions()
            require(snapshot.version == max(entries), "whoever opens the table finds all that is committed", snapshot)
            replayed = self._replayed(table, snapshot)
            self._check_rows(table, snapshot, replayed, table.read(snapshot))
            _check_batches(table, snapshot)
            _check_compared(table, snapshot)
            return self.models[snapshot.checksum]

    def _replayed(self, table: SimulatedTable, snapshot: Snapshot) -> Sequence[Commit]:
        """All commits, which must give the same snapshot as checkpoints and the hint have."""
        commits = [table.log.files.entry(v).commit for v in range(snapshot.version + 1)]
        again = Snapshot.created(commits[0])
        for commit in commits[1:]:
            again = again.apply(commit)
        same = attrs.evolve(again, checksum=snapshot.checksum)
        require(same == snapshot, "checkpoints and hints never change what is read", f"{snapshot} is not {same}")
        markers = Counter((a.application, a.version) for c in commits for a in c.all(SetTransaction))
        require(all(n == 1 for n in markers.values()), "a transaction is committed once", markers)
        merges = Counter(c.id[:2] for c in commits if c.operation == "MERGE" and c.added)
        for name, count in merges.items():
            who = self._who(name)
            same = [a.process.name for a in self.acting if a.transaction == who.transaction and a.transaction]
            require(count <= who.times, "a merge is committed once", merges)
            require(sum(merges[n] for n in same) <= 1, "a transaction is committed once", merges)
        return commits

    def _check_rows(
        self, table: SimulatedTable, snapshot: Snapshot, commits: Sequence[Commit], found: Mapping[int, Row]
    ) -> None:
        versions: list[Model] = []
        checksums = [table.log.files.entry(v).checksum for v in range(snapshot.version + 1)]
        for commit, checksum in zip(commits, checksums, strict=True):
            if checksum not in self.models:
                last = commit.version == snapshot.version
                self.models[checksum] = self._after(versions, commit, found if last else None)
            versions.append(self.models[checksum])
        model = versions[-1]
        promise = "the rows are those of the commits, in their order"
        if not commits[-1].changes_data:
            promise = "maintenance changes no row"
        require(live(found) == live(model.rows), promise, f"{live(found)} instead of {live(model.rows)}")
        require(dict(found) == dict(model.rows), "no tombstone is lost", f"{found} instead of {model.rows}")
        require(not model.purged & set(found), "purged keys never come back", found)
        if snapshot.definition.history:
            stored = [s.row for s in table.scan(Batches(snapshot.definition, snapshot.batches))]
            require(
                tuple(sorted(stored)) == model.ever,
                "no version is lost or doubled",
                f"{sorted(stored)} instead of {model.ever}",
            )

    def _after(self, before: Sequence[Model], commit: Commit, found: Mapping[int, Row] | None) -> Model:
        """The model after a commit; ``found`` are the rows there are."""
        if not before:
            return Model()
        model, who = before[-1], self._who(commit.id)
        if commit.operation == "MERGE":
            assert who.merging is not None
            if not commit.added:
                return model
            begun = model.plus(who.merging.over({**model.rows, **model.settled}))
            is_begun = found is not None and dict(found) == dict(begun.rows)
            return begun if is_begun else model.plus(who.merging.over(model.rows))
        if commit.operation == "PURGE":
            return model.without(who.purges)
        if commit.operation == "RESTORE":
            old = before[commit.parameters["version"]]
            return attrs.evolve(old.without(model.purged), purged=model.purged)
        if commit.operation == "COMPACT" and commit.metrics["forgotten"] and found is not None:
            kept = {k: r for k, r in model.rows.items() if not r.is_dead or k in found}
            return attrs.evolve(model, rows=kept)
        if commit.operation == "COMPACT" and found is not None:  # it makes old partial rows whole, and no other
            settled = {k: r for k, r in model.rows.items() if r.set_at is not None and found.get(k, r).set_at is None}
            whole = {k: attrs.evolve(r, set_at=None) for k, r in settled.items()}
            return attrs.evolve(model, rows={**model.rows, **whole}, settled=settled)
        return model

    def _who(self, commit_id: str) -> Acting:
        return next(a for a in self.acting if commit_id.startswith(a.process.name))

    # What processes were told ---------------------------------------------------------------------------------------

    def check_ended(self, disk: Disk, acting: Acting, ended: Ended, may: Callable[[str], bool]) -> None:
        """What a process was told must be so.

        Args:
            disk: on which it is looked up.
            acting: the process.
            ended: how it has ended.
            may: whether something has happened that excuses an error: ``cut``, ``fault``, ``tick`` or ``purge``.
        """
        if ended.error is not None:
            require(
                _is_excused(acting, ended.error, may),
                "whoever fails is told why in words of its own",
                repr(ended.error),
            )
            return
        told = ended.result if isinstance(ended.result, list) else [ended.result]
        seen = [t for t in told if isinstance(t, Seen)]
        require(
            [s.version for s in seen] == sorted(s.version for s in seen),
            "a reader never goes back",
            [s.version for s in seen],
        )
        entries = _entries(disk)
        for one in seen:
            require(one.version < len(entries), "what a reader has seen survives", one)
            expected = live(self.models[entries[one.version][1]].rows)
            require(one.rows == expected, "a reader sees the rows of its version", f"{one} instead of {expected}")
        for merged in told:
            if isinstance(merged, Merged) and merged.version is not None and not merged.skipped:
                known = merged.version < len(entries) and entries[merged.version][0]
                is_there = bool(known) and known.startswith(acting.process.name)
                require(is_there, "what was acknowledged survives", f"{merged} of {acting.process.name}, found {known}")

    # Afterwards -----------------------------------------------------------------------------------------------------

    def check_afterwards(self, disk: Disk, now_ms: int, is_local: bool) -> None:
        """Whoever comes next goes on without repair, and a vacuum leaves what is needed."""
        if not _entries(disk):  # whoever was making the table has died
            ended, disk = at_once(disk, _AGAIN, now_ms, is_local=is_local)
            require(ended.error is None, "the next one makes the table", repr(ended.error))
        self.check_table(disk)
        model, row = self.model_of(disk), Row(999, 9, 9)
        later = Promises([*self.acting, _NEXT, _VACUUM], self.models)
        ended, disk = at_once(disk, _NEXT, now_ms + 1_000, is_local=is_local)
        require(ended.error is None, "the next writer goes on", repr(ended.error))
        later.check_table(disk)
        require(later.model_of(disk).rows == model.plus([row]).rows, "the next writer goes on", "its row is not there")
        ended, disk = at_once(disk, _VACUUM, now_ms + 2_000, is_local=is_local)
        require(ended.error is None, "the next vacuum goes on", repr(ended.error))
        later.check_table(disk)
        ended, _ = at_once(disk, Process("zz", "looks", _left_over), now_ms + 2_000)
        require(ended.result == [], "a vacuum leaves nothing that is not needed", ended)


_NEXT = programs.merge("xx", programs.Upsert((Row(999, 9, 9),)))
_AGAIN = programs.create("ww")
_VACUUM = programs.vacuum("yy", 0.0)


def _left_over(machine: Any) -> list[str]:
    with on(machine) as table:
        needed = table.snapshot().referenced_ids
        return sorted({*table.directories()} - needed)


def _check_batches(table: SimulatedTable, snapshot: Snapshot) -> None:
    """What the log says of batches is true of their rows."""
    tiles: dict[int, str] = {}
    for batch in snapshot.batches:
        rows = table.rows_in(batch.id)
        keys = [r.key for r in rows]
        require(len(rows) == batch.rows, "the log knows how many rows there are", batch)
        require(not batch.unique_keys or len(set(keys)) == len(keys), "keys are unique where the log says so", batch)
        if batch.segment_of is not None:
            require(not tiles.keys() & set(keys), "segments share no key", f"{batch} and {tiles}")
            tiles |= dict.fromkeys(keys, batch.id)


def _check_compared(table: SimulatedTable, snapshot: Snapshot) -> None:
    """Deletion vectors leave one row of each key in the batches that they compare, and it is the latest."""
    batches = usable(table, Batches.of(snapshot))
    if not batches.compared:
        return
    left = table.scan(attrs.evolve(batches, batches=batches.compared))
    require(len({s.row.key for s in left}) == len(left), "deletion vectors leave one row of each key", left)
    whole = freshest(table.scan(batches.of_all_rows()))
    with_vectors = freshest(table.scan(batches))
    require(whole == with_vectors, "deletion vectors mark no row that is the latest", (whole, with_vectors))


def _entries(disk: Disk) -> list[tuple[str, str]]:
    """The ids and checksums of all commits."""

    def look(machine: Any) -> list[tuple[str, str]]:
        with on(machine) as table:
            try:
                last = table.snapshot().version
            except TableNotFoundError:
                return []
            found = [table.log.files.entry(v) for v in range(last + 1)]
            return [(e.commit.id, e.checksum) for e in found]

    if disk.seen_key not in _entries_known:
        ended, _ = at_once(disk, Process("zz", "looks", look), 0)
        _entries_known[disk.seen_key] = ended.result
    return _entries_known[disk.seen_key]


_entries_known: dict[int, list[tuple[str, str]]] = {}


def _is_excused(acting: Acting, error: Exception, may: Callable[[str], bool]) -> bool:
    """True if a process may fail so."""
    does = acting.process.doing
    if isinstance(error, ConcurrentCommitError):
        return does != "reads"
    if isinstance(error, TableExistsError):
        return does == "creates"
    if isinstance(error, (FilesVacuumedError, CorruptTableError, TableNotFoundError)):
        is_found = does != "reads" and not isinstance(error, CorruptTableError) and may("vacuum")
        return may("tick") or may("purge") or is_found
    if isinstance(error, (OSError, CommitStateUnknown)):
        return may("fault")
    return isinstance(error, TrinityMergeError) and may("fault")
