"""Commits and snapshots: frozen data that checks itself, and its JSON (S7, S33; docs/format.md)."""

from __future__ import annotations

import getpass
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs

from trinitymerge.errors import CorruptTableError
from trinitymerge.log import codec
from trinitymerge.log.actions import (
    MINOR,
    REGISTERS,
    Action,
    AddBatch,
    AddExtract,
    AddOutboxEntry,
    Batch,
    CreateTable,
    InapplicableCommit,
    InitialSnapshot,
    Origin,
    OutboxEntry,
    PurgeKeys,
    RemoveBatch,
    SetDefinition,
    SetDeletionVectors,
    SetHorizon,
    SetPendingDeletes,
    SetRequirements,
    SetTransaction,
    State,
    TruncateTable,
    apply_all,
)
from trinitymerge.schema.definition import TableDefinition

A = TypeVar("A", bound=Action)

FORMAT = 1
"""The newest format of logs that this library reads and writes. Every entry and checkpoint says its own."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def elapsed_ms(start: float) -> int:
    """Return the milliseconds since a moment of :func:`time.perf_counter`."""
    return int((time.perf_counter() - start) * 1000)


def current_user() -> str | None:
    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (KeyError, OSError):
        return None


@attrs.frozen(kw_only=True)
class Commit:
    """One version of a table, as its log entry holds it.

    Attributes:
        version: 0 for the creation, then one more each time.
        timestamp_ms: when it was committed, milliseconds since the epoch; grows with every version.
        operation: for people, as ``parameters`` and ``metrics`` are: ``"CREATE"``, ``"MERGE"``, ``"COMPACT"``, …
        actions: what it changes, in the order in which they apply: batches are removed before others are added.
        duration_ms: how long the operation took, until the commit.
        id: unguessable; a writer recognizes its own entry by it when a storage's answer got lost.
        previous: checksum of the entry before; the log sets it.
        writer: the library that wrote the entry, and its version; the log sets it.
    """

    version: int = codec.count_field()
    timestamp_ms: int = attrs.field(validator=codec.check_moment)
    operation: str = attrs.field(validator=codec.is_a(str))
    actions: tuple[Action, ...] = attrs.field(
        default=(), converter=codec.as_tuple, validator=codec.each_a(Action), metadata=codec.nested(Action)
    )
    parameters: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, validator=codec.is_a(Mapping))
    metrics: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, validator=codec.is_a(Mapping))
    user: str | None = attrs.field(default=None, validator=codec.is_a_or_none(str))
    duration_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(codec.check_count))
    id: str = attrs.field(factory=lambda: uuid.uuid4().hex, validator=codec.is_a(str))
    previous: str | None = attrs.field(default=None, validator=codec.is_a_or_none(str))
    writer: str | None = attrs.field(default=None, validator=codec.is_a_or_none(str))

    def all(self, kind: type[A]) -> tuple[A, ...]:
        return tuple(action for action in self.actions if isinstance(action, kind))

    def last(self, kind: type[A]) -> A | None:
        return next((action for action in reversed(self.actions) if isinstance(action, kind)), None)

    @property
    def added(self) -> tuple[Batch, ...]:
        begins = self.initial_snapshot
        return (() if begins is None else begins.batches) + tuple(a.batch for a in self.all(AddBatch))

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(action.id for action in self.all(RemoveBatch))

    @property
    def added_ids(self) -> set[str]:
        """The ids of the directories that become part of the table: batches and deletion vectors."""
        return {b.id for b in self.added} | {a.id for a in self.all(SetDeletionVectors)}

    @property
    def definition(self) -> TableDefinition | None:
        found = self.last(SetDefinition)
        return None if found is None else found.definition

    @property
    def initial_snapshot(self) -> InitialSnapshot | None:
        """The contents that the log begins with; None for an empty table."""
        return self.last(InitialSnapshot)

    @property
    def horizon(self) -> tuple[Any, ...] | None:
        """The largest watermark of forgotten tombstones, if the commit forgets some."""
        found = self.last(SetHorizon)
        return None if found is None else found.watermark

    @property
    def changes_data(self) -> bool:
        """True if the commit adds or removes batches, and not only as a compaction, which never changes what readers see."""
        return self.initial_snapshot is not None or any(
            isinstance(a, AddBatch | RemoveBatch) and a.compaction is None for a in self.actions
        )

    @property
    def is_minor_compaction(self) -> bool:
        """True if all batches that the commit adds or removes are those of a minor compaction (S38a)."""
        moved = [a.compaction for a in self.actions if isinstance(a, AddBatch | RemoveBatch)]
        return bool(moved) and all(compaction == MINOR for compaction in moved)

    @property
    def shown(self) -> Commit:
        """The commit as a part of the history: the first one of a log that begins with rows has the version that brought them."""
        first = self.initial_snapshot
        return self if first is None else attrs.evolve(self, version=first.version, timestamp_ms=first.timestamp_ms)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **codec.encode(self)}

    @classmethod
    def from_json(cls, data: Any) -> Commit:
        return codec.decode(cls, data)


@attrs.frozen(kw_only=True)
class Snapshot:
    """A table at one version: the result of applying all commits up to it.

    Attributes:
        timestamp_ms: of the commit that made it.
        definition_version: the version that last set the definition.
        batches: to read, in commit order; the ``version`` of each is set.
        transactions: the latest version of each application (S36).
        streams: the id of the streaming query of each application, as far as known (S36a).
        horizon: the largest watermark of tombstones that compactions have forgotten (S38), see
            :class:`~trinitymerge.log.actions.SetHorizon`; None if they have forgotten none.
        truncate: the freshest truncate of the whole table (T1); None if there was none.
        purged: keys that must never come back; None if none were purged.
        pending_deletes: ids of batches that are being deleted, see :class:`~trinitymerge.log.actions.SetPendingDeletes`.
        deletion_vectors: which rows reads leave out (D1); None without any.
        extracts: the moments of all full extracts (H11).
        outbox: rows to be delivered to other tables (S27).
        first_version: the first version that the log describes. The entry of version 0 holds its contents.
        table_id, origins: see :class:`~trinitymerge.log.actions.CreateTable`.
        checksum: of the entry of this version; empty on a snapshot that was never committed.
    """

    version: int
    timestamp_ms: int
    definition: TableDefinition
    definition_version: int = 0
    batches: tuple[Batch, ...] = attrs.field(default=(), converter=codec.as_tuple)
    transactions: Mapping[str, int] = attrs.field(factory=dict, eq=lambda t: tuple(sorted(t.items())))
    streams: Mapping[str, str] = attrs.field(factory=dict, eq=lambda s: tuple(sorted(s.items())))
    horizon: tuple[Any, ...] | None = attrs.field(
        default=None, converter=codec.tuple_or_none, validator=codec.check_scalars
    )
    truncate: TruncateTable | None = None
    purged: PurgeKeys | None = None
    pending_deletes: tuple[str, ...] = attrs.field(default=(), converter=codec.as_tuple, validator=codec.check_ids)
    deletion_vectors: SetDeletionVectors | None = None
    extracts: tuple[tuple[Any, ...], ...] = attrs.field(
        default=(), converter=codec.tuples, validator=codec.check_scalars
    )
    outbox: tuple[OutboxEntry, ...] = attrs.field(default=(), converter=codec.as_tuple)
    first_version: int = 0
    table_id: str = ""
    origins: tuple[Origin, ...] = attrs.field(default=(), converter=codec.as_tuple)
    requirements: SetRequirements | None = None
    checksum: str = attrs.field(default="", repr=False)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.definition.properties

    @property
    def live_batches(self) -> tuple[Batch, ...]:
        """The batches that live rows are read from: all but archives."""
        return tuple(b for b in self.batches if b.archive is None)

    @property
    def has_partial(self) -> bool:
        """True if a stored row is partial (U2)."""
        return any(b.partial for b in self.batches)

    @property
    def had_partial(self) -> bool:
        """True if a row of this version or an earlier one may be partial (U2)."""
        return self.requirements is not None and REGISTERS in self.requirements.writers

    @property
    def has_moved(self) -> bool:
        """True if a stored row has values from an earlier key (U7)."""
        return any(b.moved for b in self.batches)

    def needed_by(self, batches: Iterable[Batch]) -> list[Action]:
        """Return the action that asks writers for what batches to add need of them; none if the table asks for it already."""
        if self.had_partial or not any(b.partial for b in batches):
            return []
        asked = self.requirements or SetRequirements()
        return [attrs.evolve(asked, writers=(*asked.writers, REGISTERS))]

    @property
    def referenced_ids(self) -> set[str]:
        """The ids of all directories that this version needs: batches, rows for other tables, and deletion vectors."""
        vectors = set() if self.deletion_vectors is None else {self.deletion_vectors.id}
        return {b.id for b in self.batches} | {entry.id for entry in self.outbox} | vectors

    def archives(self, kind: str) -> tuple[Batch, ...]:
        """Return the archives of one kind (H6)."""
        return tuple(b for b in self.batches if b.archive == kind)

    @property
    def later_ms(self) -> int:
        """The first moment at which the next version can be committed."""
        if self.timestamp_ms >= codec.LAST_MS:
            raise CorruptTableError(
                f"Version {self.version} of the table says that it was committed at the end of the year 9999, and none can follow. "
                "Nothing was written. Restore the log from a backup."
            )
        return self.timestamp_ms + 1

    def next_commit(
        self, operation: str, actions: Iterable[Action] = (), start: float | None = None, **fields: Any
    ) -> Commit:
        """Return a commit of the current user on top of this snapshot. It began at ``start``, by :func:`time.perf_counter`."""
        fields = {"user": current_user(), "duration_ms": None if start is None else elapsed_ms(start)} | fields
        now = max(self.later_ms, now_ms())
        return Commit(version=self.version + 1, timestamp_ms=now, operation=operation, actions=actions, **fields)

    def rebase(self, commit: Commit) -> Commit:
        """Return the commit on top of this snapshot, if that is sound (S35). Its new rows are not a base beside other batches."""
        later = max(self.later_ms, commit.timestamp_ms)
        actions = [_no_base(a) for a in commit.actions] if self.live_batches else commit.actions
        return attrs.evolve(commit, version=self.version + 1, timestamp_ms=later, actions=actions)

    @classmethod
    def created(cls, commit: Commit) -> Snapshot:
        if commit.version != 0:
            raise InapplicableCommit(f"expected version 0, found {commit.version}")
        if commit.definition is None:
            raise InapplicableCommit("the first commit of a table must carry its definition")
        return cls(version=-1, timestamp_ms=-1, definition=commit.definition).apply(commit)

    def apply(self, commit: Commit) -> Snapshot:
        """Return the snapshot after a commit; this one stays as it is."""
        replay = Replay(self)
        replay.apply(commit)
        return replay.snapshot()

    def as_actions(self) -> tuple[Action, ...]:
        """Return the actions that make this snapshot of an empty table."""
        found: list[Action] = [CreateTable(self.table_id, self.origins)] if self.table_id else []
        found += [self.requirements] if self.requirements else []
        found += [SetDefinition(self.definition, self.definition_version), *map(AddBatch, self.batches)]
        found += [SetTransaction(name, n, self.streams.get(name)) for name, n in self.transactions.items()]
        found += [SetHorizon(self.horizon)] if self.horizon is not None else []
        found += [self.truncate] if self.truncate else []
        found += [self.purged] if self.purged else []
        found += [SetPendingDeletes(self.pending_deletes)] if self.pending_deletes else []
        found += [self.deletion_vectors] if self.deletion_vectors else []
        found += [*map(AddExtract, self.extracts), *map(AddOutboxEntry, self.outbox)]
        return tuple(found)

    def as_initial(self, commit_times: Mapping[int, int] | None = None) -> InitialSnapshot:
        return InitialSnapshot(
            version=self.version,
            timestamp_ms=self.timestamp_ms,
            actions=[a for a in self.as_actions() if not isinstance(a, CreateTable | SetDeletionVectors)],
            commit_times=commit_times or {},
        )

    def to_json(self) -> dict[str, Any]:
        checkpoint = Checkpoint(
            version=self.version,
            timestamp_ms=self.timestamp_ms,
            first_version=self.first_version,
            entry=self.checksum,
            actions=self.as_actions(),
        )
        return {"format": FORMAT, **codec.encode(checkpoint)}

    @classmethod
    def from_json(cls, data: Any) -> Snapshot:
        found = codec.decode(Checkpoint, data)
        state = State(version=found.version, timestamp_ms=found.timestamp_ms, first_version=found.first_version)
        apply_all(found.actions, state)
        return _snapshot(state, found.entry)


def _no_base(action: Action) -> Action:
    if isinstance(action, AddBatch) and action.batch.base and action.compaction is None:
        return AddBatch(attrs.evolve(action.batch, base=False))
    return action


class Replay:
    """A snapshot to which commits are applied one after the other, each at the cost of its actions."""

    def __init__(self, start: Snapshot) -> None:
        same = {f.name: getattr(start, f.name) for f in attrs.fields(State) if f.name != "salt"}
        changed = {
            "batches": {b.id: b for b in start.batches},
            "transactions": dict(start.transactions),
            "streams": dict(start.streams),
            "salt": start.purged.salt if start.purged else None,
            "purged": set(start.purged.hashes) if start.purged else set(),
            "extracts": dict.fromkeys(start.extracts),
            "outbox": {entry.id: entry for entry in start.outbox},
        }
        self._state = State(**{**same, **changed})
        self.checksum = start.checksum

    @property
    def version(self) -> int:
        return self._state.version

    def apply(self, commit: Commit, checksum: str = "") -> None:
        state = self._state
        if commit.initial_snapshot is not None:
            if state.version > 0 or state.batches:
                raise InapplicableCommit(f"version {state.version} exists already, and the log would begin once more")
        elif commit.version != state.version + 1:
            raise InapplicableCommit(f"expected version {state.version + 1}, found {commit.version}")
        elif commit.timestamp_ms <= state.timestamp_ms:
            raise InapplicableCommit(
                f"expected a timestamp after {state.timestamp_ms}, found {commit.timestamp_ms} (milliseconds)"
            )
        state.version, state.timestamp_ms, self.checksum = commit.version, commit.timestamp_ms, checksum
        apply_all(commit.actions, state)

    def snapshot(self) -> Snapshot:
        return _snapshot(self._state, self.checksum)


def _snapshot(state: State, checksum: str) -> Snapshot:
    if state.definition is None:
        raise InapplicableCommit(f"version {state.version} has no definition")
    same = {f.name: getattr(state, f.name) for f in attrs.fields(State) if f.name != "salt"}
    changed = {
        "batches": sorted(state.batches.values(), key=lambda b: -1 if b.version is None else b.version),
        "transactions": dict(state.transactions),
        "streams": dict(state.streams),
        "purged": None if state.salt is None else PurgeKeys(state.salt, sorted(state.purged)),
        "outbox": state.outbox.values(),
    }
    return Snapshot(**{**same, **changed}, checksum=checksum)


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A snapshot as the actions that make it of an empty table. ``entry`` is the checksum of the entry of its version."""

    version: int = codec.count_field()
    timestamp_ms: int = attrs.field(validator=codec.check_moment)
    first_version: int = codec.count_field(default=0)
    entry: str = attrs.field(default="", validator=codec.is_a(str))
    actions: tuple[Action, ...] = attrs.field(
        default=(), converter=codec.as_tuple, validator=codec.each_a(Action), metadata=codec.nested(Action)
    )
