"""What a table's history is made of: batches, commits and snapshots (S7, S33).

Owns: :class:`Commit`, :class:`Snapshot` and :class:`Beginning`, frozen data that checks itself, and their JSON; how, stands in
``fields.py``, what a batch is in ``batch.py``. Knows nothing of files, of Spark, or of who writes when. Content is parsed as
data only; the names in it are checked, so that none can leave the table's directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import attrs

from trinitymerge.definition import TableDefinition
from trinitymerge.errors import CorruptTableError
from trinitymerge.storage.applying import InapplicableCommit, check_applies
from trinitymerge.storage.batch import LOOSE as LOOSE
from trinitymerge.storage.batch import SETTLED as SETTLED
from trinitymerge.storage.batch import Batch as Batch
from trinitymerge.storage.clock import current_user as current_user
from trinitymerge.storage.clock import now_ms as now_ms
from trinitymerge.storage.fields import (
    LAST_MS,
    as_tuple,
    check_count,
    check_ids,
    check_moment,
    check_resets_horizon,
    check_scalars,
    check_stream,
    check_transaction,
    count_field,
    from_json_object,
    is_a,
    is_a_or_none,
    json_names,
    to_json_object,
    tuple_or_none,
    tuples,
    tuples_or_none,
)
from trinitymerge.storage.forgotten import Purged
from trinitymerge.storage.protocol import FIRST, protocol_of
from trinitymerge.storage.redo import PROTOCOL_OF_REDO, Redo, owed_after, redo_of, without_old_markers

_BEGINS = 4
"""The protocol since which a log may begin with rows: an older reader would find none, and no later entry."""

COMPACT, FOLD = "COMPACT", "FOLD"
REWRITES = (COMPACT, FOLD)
"""The operations that replace batches and never change what readers see (S38, S38a)."""

RESTORE = "RESTORE"
"""The operation that brings batches back (S40)."""

PURGE = "PURGE"
"""The operation that erases keys (S39a)."""

VACUUM = "VACUUM"
"""The operation that says which batches are about to be removed (S39)."""


# Data -------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Commit:
    """One version of a table, as its log entry says it.

    Attributes:
        version: 0 for the creation, then one more each time.
        timestamp_ms: when it was committed, milliseconds since the epoch; grows with every version.
        operation, parameters: ``"CREATE"``, ``"MERGE"``, ``"UPSERT"``, ``"COMPACT"``, ``"FOLD"``, ...; and of what, for people.
        definition: the table's definition, if this commit changes it.
        added: batches that become part of the table.
        removed: ids of batches that cease to be.
        transaction: ``(appId, version)`` of ``MergeBuilder.withTransaction`` (S36).
        stream: the id of the streaming query whose micro-batch the transaction is, where Spark tells it (S36a).
        horizon: the largest watermark the table has forgotten so far, in the form of :attr:`Batch.watermark_max`; empty
            where the watermark's type has no such form. Set by a compaction that forgets tombstones, and by a restore to
            a version that had forgotten some. None leaves the table's horizon as it is.
        resets_horizon: set by a restore to a version that had forgotten nothing: the table has no horizon any more.
            Libraries that do not know this field keep the horizon they have. They then count rows below it that are
            not (``rowsBelowHorizon``), and read and write the same rows.
        purged: keys that must never come back, if this commit purges some.
        gone: ids of batches that a vacuum or purge is about to remove, and of those of earlier ones that are still there: none of
            them can be committed or brought back from here on (S39). None leaves what was said before as it is.
        extract, extracts: the moment of the full extract that was compared (H11); set by a restore, all those of its version.
        redo, redone: rows owed to other tables from now on (S27); ids of those that are not owed any more.
        metrics: counts, for people.
        user: who did it, as far as known.
        duration_ms: how long the operation took, until the commit.
        reader_protocol: what a reader must understand.
        writer_protocol: what a writer must understand.
        begins: with the commit of version 0, what the log begins with if that is not an empty table (S7b, S40a).
        id: unguessable; by it a writer recognises its own entry when a storage's answer got lost.
        previous: checksum of the entry before; the log sets it.
        extra: fields of newer libraries, kept as they are.
    """

    version: int = count_field()
    timestamp_ms: int = attrs.field(validator=check_moment)
    operation: str = attrs.field(validator=is_a(str))
    parameters: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, validator=is_a(Mapping))
    definition: TableDefinition | None = None
    added: tuple[Batch, ...] = attrs.field(default=(), converter=as_tuple)
    removed: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_ids)
    transaction: tuple[str, int] | None = attrs.field(
        default=None, converter=tuple_or_none, validator=check_transaction
    )
    stream: str | None = attrs.field(default=None, validator=check_stream)
    horizon: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    resets_horizon: bool = attrs.field(default=False, validator=check_resets_horizon)
    purged: Purged | None = None
    gone: tuple[str, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_ids)
    extract: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    extracts: tuple[tuple[Any, ...], ...] | None = attrs.field(
        default=None, converter=tuples_or_none, validator=check_scalars
    )
    redo: tuple[Redo, ...] = attrs.field(default=(), converter=as_tuple)
    redone: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_scalars)
    metrics: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, validator=is_a(Mapping))
    user: str | None = attrs.field(default=None, validator=is_a_or_none(str))
    duration_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(check_count))
    reader_protocol: int = attrs.field(default=FIRST, validator=check_count)
    writer_protocol: int = attrs.field(default=FIRST, validator=check_count)
    begins: Beginning | None = None
    id: str = attrs.field(factory=lambda: uuid.uuid4().hex, validator=is_a(str))
    previous: str | None = attrs.field(default=None, validator=is_a_or_none(str))
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    @property
    def shown(self) -> Commit:
        """The commit as a part of the history: the first one of a log that begins with rows is that which brought them."""
        if self.begins is None:
            return self
        first = self.begins.first
        return attrs.evolve(self, version=first.version, timestamp_ms=first.timestamp_ms, added=first.batches)

    def to_json(self) -> dict[str, Any]:
        """The commit as its entry holds it, without the envelope."""
        data = to_json_object(self, _COMMIT_FIELDS)
        data["added"] = [b.to_json() for b in self.added]
        data["definition"] = self.definition.to_json() if self.definition else None
        data["purged"] = self.purged.to_json() if self.purged else None
        data["redo"] = [r.to_json() for r in self.redo]
        data["begins"] = self.begins.to_json() if self.begins else None
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Commit:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        values = from_json_object(data, _COMMIT_FIELDS)
        values["added"] = tuple(Batch.from_json(b) for b in values.get("added") or ())
        values["definition"] = TableDefinition.from_json(d) if (d := values.get("definition")) else None
        values["purged"] = Purged.from_json(values.get("purged"))
        values["redo"] = redo_of(values)
        values["begins"] = Beginning.from_json(b) if (b := values.get("begins")) else None
        return cls(**values)


@attrs.frozen(kw_only=True)
class Snapshot:
    """A table at one version: what replaying its log up to there gives.

    Attributes:
        version: of the table.
        timestamp_ms: of the commit that made it.
        definition: in force at that version.
        definition_version: the version that last changed it.
        batches: what to read, in commit order; the ``version`` of each is set.
        transactions: the latest version per ``appId`` (S36).
        streams: the id of the streaming query per ``appId``, as far as known (S36a).
        horizon: the largest watermark of tombstones that compactions have forgotten (S38), see :class:`Commit`; None if
            none were. A checkpoint holds it as it is.
        purged: keys that must never come back; None if none were purged.
        gone: batches that are being removed, see :class:`Commit`.
        extracts: the moments of all full extracts that were taken (H11).
        redo: rows that merges up to here owe to other tables (S27).
        writer_protocol: what a writer of this table must understand.
        begins_at: the first version that the log tells of. What it holds stands in the entry of version 0, where the table is
            empty; there is nothing between.
        checksum: of the entry of this version; empty on a snapshot that no log has seen.
    """

    version: int
    timestamp_ms: int
    definition: TableDefinition
    definition_version: int = 0
    batches: tuple[Batch, ...] = attrs.field(default=(), converter=as_tuple)
    transactions: Mapping[str, int] = attrs.field(factory=dict, eq=lambda t: tuple(sorted(t.items())))
    streams: Mapping[str, str] = attrs.field(factory=dict, eq=lambda s: tuple(sorted(s.items())))
    horizon: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    purged: Purged | None = None
    gone: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_ids)
    extracts: tuple[tuple[Any, ...], ...] = attrs.field(default=(), converter=tuples, validator=check_scalars)
    redo: tuple[Redo, ...] = attrs.field(default=(), converter=as_tuple)
    reader_protocol: int = FIRST
    writer_protocol: int = FIRST
    begins_at: int = 0
    checksum: str = attrs.field(default="", repr=False)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.definition.properties

    @property
    def current(self) -> tuple[Batch, ...]:
        """The batches that live rows are read from: all but archives."""
        return tuple(b for b in self.batches if b.archive is None)

    @property
    def in_use(self) -> set[str]:
        """The ids of all batches whose files this version needs: its own, and those with rows owed to other tables."""
        return {b.id for b in self.batches} | {r.id for r in self.redo}

    def archives(self, kind: str) -> tuple[Batch, ...]:
        """The archives of one kind (H6)."""
        return tuple(b for b in self.batches if b.archive == kind)

    @property
    def later_ms(self) -> int:
        """The first moment at which the next version can be committed.

        Raises:
            CorruptTableError: there is none: the last one is of the end of time.
        """
        if self.timestamp_ms >= LAST_MS:
            raise CorruptTableError(
                f"Version {self.version} of the table says that it was committed at the end of the year 9999, and none can follow. "
                "Nothing was written. Restore the log from a backup."
            )
        return self.timestamp_ms + 1

    def next_commit(self, operation: str, **fields: Any) -> Commit:
        """A commit on top of this snapshot: the next version, a later timestamp than any before.

        Args:
            operation: its name.
            **fields: the other attributes of :class:`Commit`.
        """
        now = max(self.later_ms, now_ms())
        needed = {"reader_protocol": protocol_of(fields.get("definition") or self.definition), **fields}
        if fields.get("redo"):
            needed["writer_protocol"] = max(PROTOCOL_OF_REDO, needed.get("writer_protocol", FIRST))
        return Commit(version=self.version + 1, timestamp_ms=now, operation=operation, **needed)

    def rebase(self, commit: Commit) -> Commit:
        """The same commit on top of this snapshot instead (S35); the caller knows whether that is sound."""
        later = max(self.later_ms, commit.timestamp_ms)
        return attrs.evolve(commit, version=self.version + 1, timestamp_ms=later)

    @classmethod
    def created(cls, commit: Commit) -> Snapshot:
        """The snapshot that the first commit makes.

        Raises:
            InapplicableCommit: not version 0, or without a definition.
        """
        if commit.version != 0:
            raise InapplicableCommit(f"expected version 0, found {commit.version}")
        if commit.definition is None:
            raise InapplicableCommit("the first commit of a table must carry its definition")
        empty = cls(version=-1, timestamp_ms=-1, definition=commit.definition)
        return empty.apply(commit)

    def apply(self, commit: Commit) -> Snapshot:
        """The snapshot after a commit; this one stays as it is.

        Raises:
            InapplicableCommit: saying what was expected and what was found.
        """
        if commit.begins is not None:
            return commit.begins.on(self)
        check_applies(commit, self)
        removed = set(commit.removed)
        added = [attrs.evolve(b, version=commit.version) if b.version is None else b for b in commit.added]
        batches = sorted((*(b for b in self.batches if b.id not in removed), *added), key=_commit_order)
        return attrs.evolve(
            self,
            version=commit.version,
            timestamp_ms=commit.timestamp_ms,
            definition=commit.definition or self.definition,
            definition_version=commit.version if commit.definition else self.definition_version,
            batches=batches,
            transactions=self._with_transaction(commit.transaction),
            streams=self._with_stream(commit),
            horizon=self._horizon_after(commit),
            purged=commit.purged.plus(self.purged) if commit.purged else self.purged,
            gone=self.gone if commit.gone is None else commit.gone,
            extracts=self._extracts_after(commit),
            redo=owed_after(self.redo, commit.redo, commit.redone, commit.timestamp_ms),
            reader_protocol=max(self.reader_protocol, commit.reader_protocol),
            writer_protocol=max(self.writer_protocol, commit.writer_protocol),
            checksum="",
        )

    def _horizon_after(self, commit: Commit) -> tuple[Any, ...] | None:
        if commit.resets_horizon:
            return None
        return self.horizon if commit.horizon is None else commit.horizon

    def _extracts_after(self, commit: Commit) -> tuple[tuple[Any, ...], ...]:
        taken = self.extracts if commit.extracts is None else commit.extracts
        return taken if commit.extract is None or commit.extract in taken else (*taken, commit.extract)

    def _with_transaction(self, transaction: tuple[str, int] | None) -> Mapping[str, int]:
        if transaction is None:
            return self.transactions
        application, version = transaction
        last = max(version, self.transactions.get(application, version))
        return without_old_markers({**self.transactions, application: last})

    def _with_stream(self, commit: Commit) -> Mapping[str, str]:
        if commit.stream is None or commit.transaction is None:
            return self.streams
        return {**self.streams, commit.transaction[0]: commit.stream}

    def to_json(self) -> dict[str, Any]:
        """The snapshot as a checkpoint holds it, without the envelope."""
        data = to_json_object(self, _SNAPSHOT_FIELDS)
        return {
            **data,
            "definition": self.definition.to_json(),
            "batches": [b.to_json() for b in self.batches],
            "purged": self.purged.to_json() if self.purged else None,
            "redo": [r.to_json() for r in self.redo],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        values = from_json_object(data, _SNAPSHOT_FIELDS)
        values.pop("extra", None)
        for field in attrs.fields(cls):
            if field.type == "int":
                (check_moment if field.name == "timestamp_ms" else check_count)(None, field, values.get(field.name, 0))
        is_a(str)(None, attrs.fields(cls).checksum, values.get("checksum", ""))
        for transaction in values.get("transactions", {}).items():
            check_transaction(None, None, transaction)
        if not all(isinstance(stream, str) for stream in values.get("streams", {}).values()):
            raise ValueError("streams do not map names of applications to ids of streaming queries")
        values["definition"] = TableDefinition.from_json(values["definition"])
        values["batches"] = tuple(Batch.from_json(b) for b in values["batches"])
        values["purged"] = Purged.from_json(values.get("purged"))
        values["redo"] = redo_of(values)
        return cls(**values)


@attrs.frozen(kw_only=True)
class Beginning:
    """What the log of a table begins with that has not been empty: a copy (S40a), or one made of rows that exist (S7b).

    Attributes:
        snapshot: the table at the first version that the log tells of.
        commit_times: when versions before that were committed, as far as anybody may ask: those that its rows count as, ms since
            the epoch; in a table with history all that are known.
    """

    snapshot: Snapshot = attrs.field()
    commit_times: Mapping[int, int] = attrs.field(factory=dict, eq=lambda t: tuple(sorted(t.items())))

    @snapshot.validator
    def _check_versions(self, _field: object, snapshot: Snapshot) -> None:
        if any(b.version is None or b.version > snapshot.version for b in snapshot.batches):
            raise ValueError(f"a batch is from no version up to {snapshot.version}, with which the log begins")

    @property
    def first(self) -> Snapshot:
        """The snapshot, as the one that this log begins with."""
        protocol = max(self.snapshot.reader_protocol, _BEGINS)
        return attrs.evolve(self.snapshot, begins_at=self.snapshot.version, reader_protocol=protocol, checksum="")

    def on(self, snapshot: Snapshot) -> Snapshot:
        """What a log begins with, on top of nothing.

        Raises:
            InapplicableCommit: there is something already.
        """
        if snapshot.version > 0 or snapshot.batches:
            raise InapplicableCommit(f"version {snapshot.version} exists already, and the log would begin once more")
        return self.first

    def to_json(self) -> dict[str, Any]:
        """As the entry of version 0 holds it."""
        return {"snapshot": self.first.to_json(), "commitTimes": {str(v): at for v, at in self.commit_times.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Beginning:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        times = {int(version): at for version, at in data.get("commitTimes", {}).items()}
        if any(type(at) is not int or not 0 <= at <= LAST_MS for at in times.values()):
            raise ValueError("commitTimes do not map versions to milliseconds")
        return cls(snapshot=Snapshot.from_json(data["snapshot"]), commit_times=times)


def _commit_order(batch: Batch) -> int:
    return -1 if batch.version is None else batch.version


# Names in JSON ----------------------------------------------------------------------------------------------

_COMMIT_FIELDS = json_names(Commit, timestamp_ms="timestamp", duration_ms="durationMs", id="commitId")
_SNAPSHOT_FIELDS = json_names(Snapshot, timestamp_ms="timestamp", checksum="entry")
