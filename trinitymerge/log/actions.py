"""The actions of a commit: what each changes in a table, as frozen data (S33; docs/format.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs

from trinitymerge.log import codec
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

# The contents of actions ---------------------------------------------------------------------------------------

UNRESOLVED, RESOLVED = "unresolved", "resolved"
"""The two kinds of archives, see :attr:`Batch.archive`."""


J = TypeVar("J", bound="_Json")


class _Json:
    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return codec.encode(self)

    @classmethod
    def from_json(cls: type[J], data: Any) -> J:
        return codec.decode(cls, data)


@attrs.frozen(kw_only=True)
class Batch(_Json):
    """One append batch, with what readers need to know without opening its files.

    Attributes:
        id: the name of its directory: unguessable, letters, digits, ``_`` and ``-``.
        rows: tombstones included.
        watermark_min, watermark_max: the smallest and the largest declared watermark, in a JSON form their writer chooses; None if
            unknown.
        unique_keys: no two rows have the same primary key.
        base: resolved and unique, with no older row of its keys in the table: the first load, or the result of a compaction or of a
            minor compaction of all batches.
        version: the commit version its rows count as (S6). None in a commit means that commit's own version. A compaction sets the
            version it has read, so that later commits win; a minor compaction that of the newest batch it replaces; a restore keeps
            the old one.
        merges: how many merges its rows come from, for the result of a minor compaction (S38a). The result of a compaction counts
            as one.
        segment_of: the name of the segmented base that it is a part of (S38b). It shares no key with another segment of that base,
            nor with a batch that is not newer.
        tombstones_since_ms: when its first tombstone was committed, or, of an archive, its first version ended; since the epoch.
        archive: the role of its rows in a table with history (H6): None, rows to resolve; ``"unresolved"``, versions that a newer
            row of a pending batch has replaced; ``"resolved"``, versions that end where they say. Live rows come from no archive.
        partial: number of partial rows (U2). If there are any, the files have the column ``_tm_unset``.
        moved: number of those that have values from an earlier key (U7).
        unset: what their rows may leave unset, by the names in that column, and nothing else; None if it is not known.
        layout_version: the table's when its files were written: which forms of columns they have (S43).
        cluster_by: columns by which its rows are sorted before the key (S7c), by their first names in files.
        foreign: another program wrote its rows into a table of another format: their commit order is unknown (S15).
        extra: fields of newer libraries: facts about its rows, which a copy keeps and a rewrite drops.
    """

    id: str = attrs.field(validator=codec.check_batch_id)
    rows: int = codec.count_field()
    tombstones: int = codec.count_field()
    files: int = codec.count_field()
    bytes: int = codec.count_field()
    watermark_min: tuple[Any, ...] | None = attrs.field(
        default=None, converter=codec.tuple_or_none, validator=codec.check_scalars
    )
    watermark_max: tuple[Any, ...] | None = attrs.field(
        default=None, converter=codec.tuple_or_none, validator=codec.check_scalars
    )
    unique_keys: bool = attrs.field(default=False, validator=codec.is_a(bool))
    base: bool = attrs.field(default=False, validator=codec.is_a(bool))
    version: int | None = attrs.field(default=None, validator=attrs.validators.optional(codec.check_count))
    merges: int = codec.count_field(default=1)
    segment_of: str | None = attrs.field(default=None, validator=attrs.validators.optional(codec.check_batch_id))
    tombstones_since_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(codec.check_count))
    archive: str | None = attrs.field(default=None, validator=codec.one_of(UNRESOLVED, RESOLVED))
    partial: int = codec.count_field(default=0)
    moved: int = codec.count_field(default=0)
    unset: tuple[str, ...] | None = attrs.field(
        default=None, converter=codec.tuple_or_none, validator=codec.check_scalars
    )
    layout_version: int = codec.count_field(default=0)
    cluster_by: tuple[str, ...] = attrs.field(default=(), converter=codec.as_tuple, validator=codec.each_a(str))
    foreign: bool = attrs.field(default=False, validator=codec.is_a(bool))
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)


MARKER_PREFIX = "trinity-outbox-"
"""Begins the names of applications that mark delivered outbox entries (S27)."""


@attrs.frozen(kw_only=True)
class OutboxEntry(_Json):
    """The rows that one merge has for one other table (S27), staged beside its own.

    Attributes:
        id: the name of their directory; the other table recognizes them by it.
        path: of the other table.
        primary_key, watermark_key: of the other table, when the rows were made.
        since_ms: when they were committed, ms since the epoch; 0 in a commit means that commit's time.
        is_quarantine: the other table is a quarantine (S47): delivery fills in the version and the time of the commit.
        version: the version that committed them, for a quarantine; 0 in a commit means that version.
        extra: fields of newer libraries, kept as they are.
    """

    id: str = attrs.field(validator=codec.check_batch_id)
    rows: int = codec.count_field()
    files: int = codec.count_field()
    bytes: int = codec.count_field()
    path: str = attrs.field(validator=codec.is_a(str))
    fields: tuple[Field, ...] = attrs.field(
        default=(), converter=codec.as_tuple, validator=codec.each_a(Field), metadata=codec.nested(Field)
    )
    primary_key: tuple[str, ...] = attrs.field(default=(), converter=codec.as_tuple, validator=codec.check_scalars)
    watermark_key: tuple[str, ...] = attrs.field(default=(), converter=codec.as_tuple, validator=codec.check_scalars)
    since_ms: int = codec.count_field(default=0)
    is_quarantine: bool = attrs.field(default=False, validator=codec.is_a(bool))
    version: int = codec.count_field(default=0)
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    def marker(self, table_id: str) -> str:
        """Return the application name by which the other table's log says that it has the rows of this table's merge (S36)."""
        return f"{marker_prefix(table_id)}{self.id}"


def marker_prefix(table_id: str) -> str:
    return f"{MARKER_PREFIX}{table_id}-"


@attrs.frozen
class Origin(_Json):
    """The table and the version that a table was copied from (S40a)."""

    table_id: str = attrs.field(validator=codec.is_a(str))
    version: int = codec.count_field()


# The actions -----------------------------------------------------------------------------------------------


class InapplicableCommit(ValueError):  # noqa: N818 - its writer may compute it again
    """A commit does not fit the snapshot it is applied to: it removes a batch that the snapshot lacks, for example."""


@attrs.define(kw_only=True)
class State:
    """The contents of a table while actions are applied. Attributes as of :class:`~trinitymerge.log.model.Snapshot`."""

    version: int
    timestamp_ms: int
    first_version: int = 0
    table_id: str = ""
    origins: tuple[Origin, ...] = ()
    requirements: SetRequirements | None = None
    definition: TableDefinition | None = None
    definition_version: int = 0
    batches: dict[str, Batch] = attrs.field(factory=dict)
    transactions: dict[str, int] = attrs.field(factory=dict)
    streams: dict[str, str] = attrs.field(factory=dict)
    horizon: tuple[Any, ...] | None = None
    truncate: TruncateTable | None = None
    salt: str | None = None
    purged: set[str] = attrs.field(factory=set)
    pending_deletes: tuple[str, ...] = ()
    deletion_vectors: SetDeletionVectors | None = None
    extracts: dict[tuple[Any, ...], None] = attrs.field(factory=dict)
    outbox: dict[str, OutboxEntry] = attrs.field(factory=dict)


class Action:
    """One change of a table, as a commit or a checkpoint holds it."""

    def apply(self, state: State) -> None:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"type": camel_type(type(self)), **codec.encode(self)}

    @staticmethod
    def from_json(data: Any) -> Action:
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            raise ValueError(f"expected an action with a type, found {data!r}")
        kind = ACTIONS.get(data["type"])
        if kind is not None:
            return codec.decode(kind, {name: value for name, value in data.items() if name != "type"})
        if data.get("ignorable") is not True:
            raise codec.NewerLibraryError(f"it holds the action '{data['type']}'")
        return Unknown(data)


@attrs.frozen
class CreateTable(Action):
    """Names the table: the first action of version 0. The id is unguessable; of the origins of a copy, the nearest is first."""

    table_id: str = attrs.field(validator=codec.is_a(str))
    origins: tuple[Origin, ...] = attrs.field(
        default=(), converter=codec.as_tuple, validator=codec.each_a(Origin), metadata=codec.nested(Origin)
    )

    def apply(self, state: State) -> None:
        if state.table_id not in ("", self.table_id):
            raise InapplicableCommit("names the table again")
        state.table_id, state.origins = self.table_id, self.origins


REGISTERS = "registers"
"""A capability of writers: late rows mend the rows of batches with :attr:`Batch.partial` rows (U4)."""

REQUIREMENTS: frozenset[str] = frozenset({REGISTERS})
"""The capabilities that this library has of those that :class:`SetRequirements` can ask for."""


@attrs.frozen
class SetRequirements(Action):
    """Says which capabilities readers and writers need from here on; writers need both. Replaces earlier requirements."""

    readers: tuple[str, ...] = attrs.field(default=(), converter=codec.as_tuple, validator=codec.each_a(str))
    writers: tuple[str, ...] = attrs.field(default=(), converter=codec.as_tuple, validator=codec.each_a(str))

    def apply(self, state: State) -> None:
        lacking = sorted({*self.readers} - REQUIREMENTS)
        if lacking:
            raise codec.NewerLibraryError(f"it requires '{lacking[0]}' of readers")
        state.requirements = self


MINOR, MAJOR = "minor", "major"
"""The two kinds of compactions (S38a, S38): a minor one keeps all tombstones, the other may forget some."""

_compaction = attrs.field(default=None, validator=codec.one_of(MINOR, MAJOR))


@attrs.frozen
class AddBatch(Action):
    """Adds a batch. ``compaction`` is the kind of the one that wrote it from rows of batches the same commit removes, if any."""

    batch: Batch = attrs.field(validator=codec.is_a(Batch), metadata=codec.nested(Batch))
    compaction: str | None = _compaction

    def apply(self, state: State) -> None:
        batch = self.batch
        if batch.id in state.batches:
            raise InapplicableCommit(f"adds batch '{batch.id}', which is part of the table already")
        if batch.version is None:
            batch = attrs.evolve(batch, version=state.version)
        elif batch.version > state.version:
            raise InapplicableCommit(f"batch '{batch.id}' is from version {batch.version}, after its commit")
        state.batches[batch.id] = batch


@attrs.frozen
class RemoveBatch(Action):
    """Takes a batch out of the table, whose rows a compaction, if any, has kept. Its files stay until vacuumed."""

    id: str = attrs.field(validator=codec.check_batch_id)
    compaction: str | None = _compaction

    def apply(self, state: State) -> None:
        if self.id not in state.batches:
            raise InapplicableCommit(f"removes batch '{self.id}', which version {state.version - 1} does not have")
        del state.batches[self.id]
        if state.deletion_vectors is not None:
            state.deletion_vectors = state.deletion_vectors.without(self.id, self.compaction)


@attrs.frozen
class SetDefinition(Action):
    """Sets the table's definition (S7). In a checkpoint it names the version that set it; None means the commit's own."""

    definition: TableDefinition = attrs.field(
        validator=codec.is_a(TableDefinition), metadata=codec.nested(TableDefinition)
    )
    version: int | None = attrs.field(default=None, validator=attrs.validators.optional(codec.check_count))

    def apply(self, state: State) -> None:
        keys = None if state.definition is None else (state.definition.primaryKey, state.definition.watermarkKey)
        if keys != (self.definition.primaryKey, self.definition.watermarkKey):
            state.deletion_vectors = None
        state.definition = self.definition
        state.definition_version = state.version if self.version is None else self.version


@attrs.frozen
class SetTransaction(Action):
    """Records a version of an application (S36), of which the largest counts, and the id of its streaming query if known (S36a)."""

    application: str = attrs.field(validator=codec.is_a(str))
    version: int = codec.count_field()
    stream: str | None = attrs.field(default=None, validator=codec.is_a_or_none(str))

    def apply(self, state: State) -> None:
        last = max(self.version, state.transactions.get(self.application, self.version))
        state.transactions[self.application] = last
        if self.stream is not None:
            state.streams[self.application] = self.stream


@attrs.frozen
class RemoveTransaction(Action):
    """Forgets an application, whose transactions can be committed again."""

    application: str = attrs.field(validator=codec.is_a(str))

    def apply(self, state: State) -> None:
        state.transactions.pop(self.application, None)
        state.streams.pop(self.application, None)


@attrs.frozen
class SetHorizon(Action):
    """Records the largest watermark of forgotten tombstones (S38), as :attr:`Batch.watermark_max`; empty if it has no such form."""

    watermark: tuple[Any, ...] = attrs.field(converter=codec.as_tuple, validator=codec.check_scalars)

    def apply(self, state: State) -> None:
        state.horizon = self.watermark


@attrs.frozen
class TruncateTable(Action):
    """Deletes all keys at a watermark, as a tombstone of each would (T1). Replaces an earlier truncate, which was not fresher.

    The batches that the commit removes have no fresher row. Rows of other batches that are not fresher have tombstones.

    Attributes:
        version: that committed it, in a checkpoint or a restore; None means the commit's own.
        earlier: the watermarks of all other truncates of a table with history, in their order: each ends row versions.
    """

    watermark: tuple[Any, ...] = attrs.field(converter=codec.as_tuple, validator=codec.check_scalars)
    version: int | None = attrs.field(default=None, validator=attrs.validators.optional(codec.check_count))
    earlier: tuple[tuple[Any, ...], ...] = attrs.field(
        default=(), converter=codec.tuples, validator=codec.check_scalars
    )

    def apply(self, state: State) -> None:
        state.truncate = self if self.version is not None else attrs.evolve(self, version=state.version)


@attrs.frozen
class RestoreVersion(Action):
    """Says that the table equals an earlier version again (S40), and has its horizon and its extracts.

    Other actions of the commit add and remove its batches, and set its truncate, if it had one.
    """

    version: int = codec.count_field()
    horizon: tuple[Any, ...] | None = attrs.field(
        default=None, converter=codec.tuple_or_none, validator=codec.check_scalars
    )
    extracts: tuple[tuple[Any, ...], ...] = attrs.field(
        default=(), converter=codec.tuples, validator=codec.check_scalars
    )

    def apply(self, state: State) -> None:
        state.horizon, state.extracts, state.truncate = self.horizon, dict.fromkeys(self.extracts), None
        state.deletion_vectors = None


@attrs.frozen
class PurgeKeys(Action):
    """Erases keys that must never come back (S39a), as hashes with the table's random salt. A snapshot holds all of them in one."""

    salt: str = attrs.field(validator=codec.check_hex)
    hashes: tuple[str, ...] = attrs.field(
        converter=codec.as_tuple, validator=attrs.validators.deep_iterable(codec.check_hex)
    )

    def apply(self, state: State) -> None:
        if state.salt not in (None, self.salt):  # the hashes of one of them would match no key
            raise InapplicableCommit("purges keys under another salt than the table's")
        state.salt = self.salt
        state.purged.update(self.hashes)


@attrs.frozen
class SetPendingDeletes(Action):
    """Announces the batches, earlier ones included, that will be deleted (S39). None of them can be committed from here on."""

    ids: tuple[str, ...] = attrs.field(converter=codec.as_tuple, validator=codec.check_ids)

    def apply(self, state: State) -> None:
        state.pending_deletes = self.ids


@attrs.frozen(kw_only=True)
class SetDeletionVectors(Action):
    """Says which rows of some batches are not the latest of their key, in a file (D1). Replaces earlier deletion vectors.

    They are derived from the rows: without them the same rows are read, but more slowly.

    Attributes:
        id: the name of the directory of the file.
        checksum: SHA-256 of the file.
        marked: the batches that were compared, from their ids to the numbers of marked rows. No two other rows have the same key.
    """

    id: str = attrs.field(validator=codec.check_batch_id)
    checksum: str = attrs.field(validator=codec.check_hex)
    bytes: int = codec.count_field()
    marked: Mapping[str, int] = attrs.field(eq=lambda m: tuple(sorted(m.items())))

    @marked.validator
    def _check_marked(self, field: Any, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"marked is {value!r}, which is not an object")
        for batch_id, rows in value.items():
            codec.check_batch_id(self, field, batch_id)
            codec.check_count(self, field, rows)

    def apply(self, state: State) -> None:
        lacking = sorted({*self.marked} - state.batches.keys())
        if lacking:
            raise InapplicableCommit(f"marks rows of batch '{lacking[0]}', which version {state.version} does not have")
        state.deletion_vectors = self

    def without(self, batch_id: str, compaction: str | None) -> SetDeletionVectors | None:
        """Return what is left without a batch (D3). Only a minor compaction keeps its latest rows, so that others stay replaced."""
        if batch_id not in self.marked:
            return self
        if compaction != MINOR:
            return None
        left = {i: rows for i, rows in self.marked.items() if i != batch_id}
        return attrs.evolve(self, marked=left) if left else None

    def to_json(self) -> dict[str, Any]:
        """A library that does not know the action reads the table without it."""
        return {**super().to_json(), "ignorable": True}


@attrs.frozen
class AddExtract(Action):
    """Records that a full extract of some moment was compared with the table (H11)."""

    moment: tuple[Any, ...] = attrs.field(converter=codec.as_tuple, validator=codec.check_scalars)

    def apply(self, state: State) -> None:
        state.extracts[self.moment] = None


@attrs.frozen
class AddOutboxEntry(Action):
    """Records rows that are to be delivered to another table (S27)."""

    entry: OutboxEntry = attrs.field(validator=codec.is_a(OutboxEntry), metadata=codec.nested(OutboxEntry))

    def apply(self, state: State) -> None:
        entry = self.entry if self.entry.since_ms else attrs.evolve(self.entry, since_ms=state.timestamp_ms)
        if entry.is_quarantine and not entry.version:
            entry = attrs.evolve(entry, version=state.version)
        state.outbox[entry.id] = entry


@attrs.frozen
class RemoveOutboxEntry(Action):
    """Records that rows were delivered to the other table, or discarded (S27). Several writers may say so of the same rows."""

    id: str = attrs.field(validator=codec.check_batch_id)

    def apply(self, state: State) -> None:
        state.outbox.pop(self.id, None)


def _by_number(times: Mapping[Any, int]) -> dict[int, int]:
    return {int(version): at for version, at in times.items()}


@attrs.frozen(kw_only=True)
class InitialSnapshot(Action):
    """The contents that a log begins with: of a clone (S40a), or of rows that existed before the table (S7b).

    Attributes:
        version: the first version that the log describes.
        timestamp_ms: when that version was committed, ms since the epoch.
        actions: that make this version of an empty table; each batch says its version.
        commit_times: when earlier versions were committed, ms since the epoch: those that its rows count as; with history all that
            are known.
    """

    version: int = codec.count_field()
    timestamp_ms: int = attrs.field(validator=codec.check_moment)
    actions: tuple[Action, ...] = attrs.field(
        default=(), converter=codec.as_tuple, validator=codec.each_a(Action), metadata=codec.nested(Action)
    )
    commit_times: Mapping[int, int] = attrs.field(factory=dict, converter=_by_number)

    def __attrs_post_init__(self) -> None:
        if any(b.version is None or b.version > self.version for b in self.batches):
            raise ValueError(f"a batch is from no version up to {self.version}, with which the log begins")
        if any(type(at) is not int or not 0 <= at <= codec.LAST_MS for at in self.commit_times.values()):
            raise ValueError("commitTimes do not map versions to milliseconds")

    @property
    def batches(self) -> tuple[Batch, ...]:
        return tuple(action.batch for action in self.actions if isinstance(action, AddBatch))

    def apply(self, state: State) -> None:
        state.version, state.timestamp_ms, state.first_version = self.version, self.timestamp_ms, self.version
        apply_all(self.actions, state)


def apply_all(actions: Iterable[Action], state: State) -> None:
    for action in actions:
        action.apply(state)


@attrs.frozen
class Unknown(Action):
    """An action of a newer library that says it may be ignored: what it brings is derived from the rest, and can be lost."""

    data: Mapping[str, Any] = attrs.field(eq=repr)

    def apply(self, state: State) -> None:
        """Change nothing."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.data)


def camel_type(kind: type) -> str:
    """Return the name of an action in JSON: ``AddBatch`` is ``addBatch``."""
    return kind.__name__[0].lower() + kind.__name__[1:]


ACTIONS: dict[str, type[Action]] = {
    camel_type(kind): kind
    for kind in (
        CreateTable,
        SetRequirements,
        AddBatch,
        RemoveBatch,
        SetDefinition,
        SetTransaction,
        RemoveTransaction,
        SetHorizon,
        TruncateTable,
        RestoreVersion,
        PurgeKeys,
        SetPendingDeletes,
        SetDeletionVectors,
        AddExtract,
        AddOutboxEntry,
        RemoveOutboxEntry,
        InitialSnapshot,
    )
}
"""The actions of format 1, by their type in JSON."""


def add_all(batches: Iterable[Batch], compaction: str | None = None) -> list[Action]:
    return [AddBatch(batch, compaction) for batch in batches]


def remove_all(batches: Iterable[Batch | str], compaction: str | None = None) -> list[Action]:
    return [RemoveBatch(b if isinstance(b, str) else b.id, compaction) for b in batches]
