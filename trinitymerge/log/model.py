"""Commits, batches and snapshots: frozen data that checks itself, and its JSON (S7, S33)."""

from __future__ import annotations

import getpass
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import CorruptTableError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def current_user() -> str | None:
    """Who runs this process, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


PROTOCOL = 6
"""The newest reader and writer protocol this library understands."""

FIRST = 1
"""What tables need that use nothing newer."""


def protocol_of(definition: TableDefinition) -> int:
    """What a reader must understand.

    Since protocol 2, statistics of ``timestamp_ntz`` watermarks are text: a reader of protocol 1 would compare that letter by
    letter, and take an older row for the fresher one. Since protocol 3 there are archives: an older reader would take a row that
    was replaced for one that holds. Since protocol 4 files may hold a column under another name or type than it has (S43): an older
    reader would find nulls, or the values of another column. Since protocol 5 there are checks and defaults (S45, S46): an older
    writer would write rows that are refused, or nulls. Since protocol 6 files may hold a field of a struct under another name.
    """
    if any(f.within for f in definition.fields):
        return 6
    if definition.has_rules:
        return 5
    if definition.is_rearranged:
        return 4
    if definition.history:
        return 3
    return 2 if any(definition.field(n).type == "timestamp_ntz" for n in definition.watermarkKey) else FIRST


_BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_HEX = re.compile(r"[0-9a-f]+")
_LARGEST = 2**63 - 1
LAST_MS = 253_402_300_799_999
"""The last moment that a commit can be of: the end of the year 9999."""

# Values -----------------------------------------------------------------------------------------------------


def as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """A converter: a tuple of what is iterable."""
    return tuple(value)


def tuple_or_none(value: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """A converter: the same, and None stays."""
    return None if value is None else tuple(value)


def tuples(value: Iterable[Iterable[Any]]) -> tuple[tuple[Any, ...], ...]:
    """A converter: a tuple of tuples."""
    return tuple(map(tuple, value))


def tuples_or_none(value: Iterable[Iterable[Any]] | None) -> tuple[tuple[Any, ...], ...] | None:
    """A converter: the same, and None stays."""
    return None if value is None else tuples(value)


def check_batch_id(_batch: object, _field: object, value: Any) -> None:
    """A validator: the name of a batch's directory, which cannot lead out of the table's."""
    if not isinstance(value, str) or not _BATCH_ID.fullmatch(value):
        raise ValueError(f"batch id {value!r} is not made of letters, digits, '_' and '-' only")


def check_count(_instance: object, field: Any, value: Any) -> None:
    """A validator: a whole number from 0 up that Spark's BIGINT can hold."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{field.name} is {value!r}, which is not a whole number from 0 up")


def check_moment(_instance: object, field: Any, value: Any) -> None:
    """A validator: milliseconds since the epoch that a timestamp can say."""
    check_count(_instance, field, value)
    if value > LAST_MS:
        raise ValueError(f"{field.name} is {value!r}, which is after the year 9999")


def check_transaction(_commit: object, _field: object, value: tuple[Any, ...] | None) -> None:
    """A validator: the name of an application and a version, or None."""
    if value is not None and [type(part) for part in value] != [str, int]:
        raise ValueError(f"transaction is {value!r}, which is not the name of an application and a version")


def check_resets_horizon(commit: Any, _field: object, value: Any) -> None:
    """A validator: true or false, and not true where a horizon is set."""
    if not isinstance(value, bool):
        raise ValueError(f"resetsHorizon is {value!r}, which is neither true nor false")
    if value and commit.horizon is not None:
        raise ValueError(f"the horizon is both reset and set to {list(commit.horizon)}")


def check_stream(commit: Any, _field: object, value: Any) -> None:
    """A validator: the id of a streaming query, beside a transaction, or None."""
    if value is not None and (not isinstance(value, str) or commit.transaction is None):
        raise ValueError(f"stream is {value!r}, which is not the id of a streaming query beside a transaction")


def check_scalars(_instance: object, field: Any, value: Any) -> None:
    """A validator: kept values, each text, a whole number or null; or several rows of them; or None."""
    for one in value or ():
        if isinstance(one, tuple):
            check_scalars(_instance, field, one)
        elif one is not None and type(one) not in (str, int):
            raise ValueError(f"{field.name} holds {one!r}, which is neither text nor a whole number")


def is_a(kind: type) -> Any:
    """A validator: an instance of a class."""
    return attrs.validators.instance_of(kind)


def is_a_or_none(kind: type) -> Any:
    """A validator: the same, or None."""
    return attrs.validators.optional(attrs.validators.instance_of(kind))


def count_field() -> Any:
    """A field that holds a whole number from 0 up."""
    return attrs.field(validator=check_count)


def check_ids(_commit: object, field: Any, value: Any) -> None:
    """A validator: ids of batches, or None."""
    for one in value or ():
        check_batch_id(_commit, field, one)


def check_hex(_purged: object, field: Any, value: Any) -> None:
    """A validator: hexadecimal digits."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{field.name} holds {value!r}, which is not made of hexadecimal digits")


# JSON -------------------------------------------------------------------------------------------------------


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def json_names(cls: type, **renamed: str) -> dict[str, str]:
    """What the attributes of a class are called in JSON: in camel case, but for those renamed. ``extra`` has no name."""
    names = [a.name for a in attrs.fields(cls) if a.name != "extra"]
    return {name: renamed.get(name, _camel(name)) for name in names}


def to_json_object(instance: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """An instance's attributes under their names in JSON, beside the fields of newer libraries."""
    values = {key: getattr(instance, name) for name, key in names.items()}
    return {**getattr(instance, "extra", {}), **values}


def from_json_object(data: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The attributes that an object of JSON holds; fields that have no name here go to ``extra``.

    Raises:
        ValueError: it is no object.
    """
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, found {type(data).__name__}")
    values = {name: data[key] for name, key in names.items() if key in data}
    known = set(names.values())
    return {**values, "extra": {key: value for key, value in data.items() if key not in known}}


UNRESOLVED, RESOLVED = "loose", "settled"
"""The two kinds of archives, see :attr:`Batch.archive`."""


@attrs.frozen(kw_only=True)
class Batch:
    """One append batch, with what readers need to know without opening it.

    Attributes:
        id: the name of its directory: unguessable, letters, digits, ``_`` and ``-``.
        rows: rows it holds, tombstones included.
        tombstones: how many of them are tombstones.
        files: data files.
        bytes: their size.
        watermark_min: the smallest declared watermark, in a JSON form its writer chooses; None when unknown.
        watermark_max: likewise the largest.
        unique_keys: no two rows have the same primary key.
        base: resolved and unique, and nothing older of its keys is left beside it: the first load, or the result of a compaction or
            of a fold of all.
        version: the commit version its rows count as (S6). None in a commit means: that commit's own version.
            A compaction sets the version it has read, so that later commits win; a fold that of the newest batch it
            replaces; a restore keeps the old one.
        merges: how many merges its rows come from, for a batch that others were folded into (S38a). What a compaction leaves
            counts as one.
        tiling: the name of the base that it is a segment of (S38b). It has no key of another one, nor of any batch not newer.
        tombstones_since: when its first tombstone was committed, ms since the epoch; of an archive, its first version ended.
        archive: what its rows are to a table with history (H6): None, rows to resolve; ``"loose"``, versions that a newer row of a
            pending batch has replaced; ``"settled"``, versions that end where they say. No archive is read for live rows.
        layout_version: of the table when its files were written: which forms of columns they have (S43).
        foreign: others wrote its rows, into a table of another format: nothing says in which order (S15).
        extra: fields of newer libraries, kept as they are.
    """

    id: str = attrs.field(validator=check_batch_id)
    rows: int = count_field()
    tombstones: int = count_field()
    files: int = count_field()
    bytes: int = count_field()
    watermark_min: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    watermark_max: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    unique_keys: bool = attrs.field(default=False, validator=is_a(bool))
    base: bool = attrs.field(default=False, validator=is_a(bool))
    version: int | None = attrs.field(default=None, validator=attrs.validators.optional(check_count))
    merges: int = attrs.field(default=1, validator=check_count)
    tiling: str | None = attrs.field(default=None, validator=attrs.validators.optional(check_batch_id))
    tombstones_since: int | None = attrs.field(default=None, validator=attrs.validators.optional(check_count))
    archive: str | None = attrs.field(default=None, validator=attrs.validators.in_((None, UNRESOLVED, RESOLVED)))
    layout_version: int = attrs.field(default=0, validator=check_count)
    foreign: bool = attrs.field(default=False, validator=is_a(bool))
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The batch as an entry holds it."""
        return to_json_object(self, _BATCH_FIELDS)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Batch:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        return cls(**from_json_object(data, _BATCH_FIELDS))


_BATCH_FIELDS = json_names(Batch, layout_version="layout")


REDO, ABANDON = "REDO", "ABANDON"
"""The operations that end what is owed: the rows are in the other table, or were given up."""

_MARKER = "trinity-redo-"
_MARKERS_KEPT = 1000

PROTOCOL_OF_REDO = 4
"""What a writer must understand to go on after a merge that owes rows."""


@attrs.frozen(kw_only=True)
class OutboxEntry:
    """The rows that one merge has for one other table, staged beside its own.

    Attributes:
        id: the name of their directory, and by which the other table knows them again.
        rows: how many there are.
        files: data files.
        bytes: their size.
        path: of the other table.
        fields: the columns of the rows.
        keys: its primary key when they were made.
        watermarks: likewise its watermark key.
        since_ms: when they were committed, ms since the epoch; set where the commit is applied.
        extra: fields of newer libraries, kept as they are.
    """

    id: str = attrs.field(validator=check_batch_id)
    rows: int = count_field()
    files: int = count_field()
    bytes: int = count_field()
    path: str = attrs.field(validator=is_a(str))
    fields: tuple[Field, ...] = attrs.field(default=(), converter=as_tuple)
    keys: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_scalars)
    watermarks: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_scalars)
    since_ms: int = attrs.field(default=0, validator=check_count)
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    @property
    def marker(self) -> str:
        """By what the other table says, in its own log, that it has the rows (S36)."""
        return f"{_MARKER}{self.id}"

    def to_json(self) -> dict[str, Any]:
        """As entries and checkpoints hold it."""
        return {**to_json_object(self, _FIELDS), "fields": [f.to_json() for f in self.fields]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OutboxEntry:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        values = from_json_object(data, _FIELDS)
        values["fields"] = tuple(Field.from_json(f) for f in values.get("fields") or ())
        return cls(**values)


_FIELDS = json_names(OutboxEntry)


def parse_outbox(data: Mapping[str, Any]) -> tuple[OutboxEntry, ...]:
    """What an entry or checkpoint says is owed."""
    return tuple(OutboxEntry.from_json(r) for r in data.get("redo") or ())


def pending_after(
    owed: Iterable[OutboxEntry], more: Iterable[OutboxEntry], redone: Iterable[str], timestamp_ms: int
) -> tuple[OutboxEntry, ...]:
    """What is owed after a commit, in the order of commits.

    Args:
        owed: before it.
        more: what it owes.
        redone: ids of what is not owed any more; several writers may say so of the same.
        timestamp_ms: of the commit.
    """
    done = set(redone)
    kept = [r for r in owed if r.id not in done]
    return (*kept, *(attrs.evolve(r, since_ms=timestamp_ms) for r in more))


def without_old_markers(transactions: Mapping[str, int]) -> Mapping[str, int]:
    """The markers of transactions without those of rows that came long ago, by when they were first owed.

    Each merge leaves one, and they would fill the log. Nobody asks for one again but who has died between the other table's commit
    and its own; whoever writes to that table first asks then. Should it be after a thousand others have written to this one, the
    same rows are merged once more, which changes none of them.
    """
    markers = sorted((since, name) for name, since in transactions.items() if name.startswith(_MARKER))
    old = {name for _, name in markers[:-_MARKERS_KEPT]}
    return {name: version for name, version in transactions.items() if name not in old} if old else transactions


@attrs.frozen
class PurgedKeys:
    """Which primary keys must never come back: their salted hashes, not the keys themselves.

    Attributes:
        salt: the table's own, random.
        hashes: one per key, as :func:`trinitymerge.rows.purged_keys.hash_of_key` makes them.
    """

    salt: str = attrs.field(validator=check_hex)
    hashes: tuple[str, ...] = attrs.field(converter=as_tuple, validator=attrs.validators.deep_iterable(check_hex))

    def to_json(self) -> dict[str, Any]:
        """As entries and checkpoints hold it."""
        return {"salt": self.salt, "hashes": list(self.hashes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> PurgedKeys | None:
        """The inverse of :meth:`to_json`; None for None.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        return cls(data["salt"], data["hashes"]) if data else None

    def plus(self, other: PurgedKeys | None) -> PurgedKeys:
        """These and others of the same table."""
        return self if other is None else PurgedKeys(self.salt, sorted({*self.hashes, *other.hashes}))


_BEGINS = 4
"""The protocol since which a log may begin with rows: an older reader would find none, and no later entry."""

COMPACT, FOLD = "COMPACT", "FOLD"
DATA_PRESERVING_OPERATIONS = (COMPACT, FOLD)
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
        pending_deletes: ids of batches that a vacuum or purge is about to remove, and of those of earlier ones that still exist.
            None of them can be committed or restored from here on (S39). None leaves the earlier ids as they are.
        extract, extracts: the moment of the full extract that was compared (H11); set by a restore, all those of its version.
        redo, delivered: rows owed to other tables from now on (S27); ids of those that are not owed any more.
        metrics: counts, for people.
        user: who did it, as far as known.
        duration_ms: how long the operation took, until the commit.
        reader_protocol: what a reader must understand.
        writer_protocol: what a writer must understand.
        initial_snapshot: with the commit of version 0, what the log begins with if that is not an empty table (S7b, S40a).
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
    purged: PurgedKeys | None = None
    pending_deletes: tuple[str, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_ids)
    extract: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    extracts: tuple[tuple[Any, ...], ...] | None = attrs.field(
        default=None, converter=tuples_or_none, validator=check_scalars
    )
    redo: tuple[OutboxEntry, ...] = attrs.field(default=(), converter=as_tuple)
    delivered: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_scalars)
    metrics: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, validator=is_a(Mapping))
    user: str | None = attrs.field(default=None, validator=is_a_or_none(str))
    duration_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(check_count))
    reader_protocol: int = attrs.field(default=FIRST, validator=check_count)
    writer_protocol: int = attrs.field(default=FIRST, validator=check_count)
    initial_snapshot: InitialSnapshot | None = None
    id: str = attrs.field(factory=lambda: uuid.uuid4().hex, validator=is_a(str))
    previous: str | None = attrs.field(default=None, validator=is_a_or_none(str))
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    @property
    def shown(self) -> Commit:
        """The commit as a part of the history: the first one of a log that begins with rows is that which brought them."""
        if self.initial_snapshot is None:
            return self
        first = self.initial_snapshot.first
        return attrs.evolve(self, version=first.version, timestamp_ms=first.timestamp_ms, added=first.batches)

    def to_json(self) -> dict[str, Any]:
        """The commit as its entry holds it, without the envelope."""
        data = to_json_object(self, _COMMIT_FIELDS)
        data["added"] = [b.to_json() for b in self.added]
        data["definition"] = self.definition.to_json() if self.definition else None
        data["purged"] = self.purged.to_json() if self.purged else None
        data["redo"] = [r.to_json() for r in self.redo]
        data["begins"] = self.initial_snapshot.to_json() if self.initial_snapshot else None
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
        values["purged"] = PurgedKeys.from_json(values.get("purged"))
        values["redo"] = parse_outbox(values)
        values["initial_snapshot"] = InitialSnapshot.from_json(b) if (b := values.get("initial_snapshot")) else None
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
        pending_deletes: batches that are being removed, see :class:`Commit`.
        extracts: the moments of all full extracts that were taken (H11).
        redo: rows that merges up to here owe to other tables (S27).
        writer_protocol: what a writer of this table must understand.
        first_version: the first version that the log tells of. What it holds stands in the entry of version 0, where the table is
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
    purged: PurgedKeys | None = None
    pending_deletes: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_ids)
    extracts: tuple[tuple[Any, ...], ...] = attrs.field(default=(), converter=tuples, validator=check_scalars)
    redo: tuple[OutboxEntry, ...] = attrs.field(default=(), converter=as_tuple)
    reader_protocol: int = FIRST
    writer_protocol: int = FIRST
    first_version: int = 0
    checksum: str = attrs.field(default="", repr=False)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.definition.properties

    @property
    def live_batches(self) -> tuple[Batch, ...]:
        """The batches that live rows are read from: all but archives."""
        return tuple(b for b in self.batches if b.archive is None)

    @property
    def referenced_ids(self) -> set[str]:
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
        if commit.initial_snapshot is not None:
            return commit.initial_snapshot.on(self)
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
            pending_deletes=self.pending_deletes if commit.pending_deletes is None else commit.pending_deletes,
            extracts=self._extracts_after(commit),
            redo=pending_after(self.redo, commit.redo, commit.delivered, commit.timestamp_ms),
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
        values["purged"] = PurgedKeys.from_json(values.get("purged"))
        values["redo"] = parse_outbox(values)
        return cls(**values)


@attrs.frozen(kw_only=True)
class InitialSnapshot:
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
        return attrs.evolve(self.snapshot, first_version=self.snapshot.version, reader_protocol=protocol, checksum="")

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
    def from_json(cls, data: Mapping[str, Any]) -> InitialSnapshot:
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

_COMMIT_FIELDS = json_names(
    Commit,
    timestamp_ms="timestamp",
    duration_ms="durationMs",
    id="commitId",
    delivered="redone",
    initial_snapshot="begins",
    pending_deletes="gone",
)
_SNAPSHOT_FIELDS = json_names(
    Snapshot, timestamp_ms="timestamp", checksum="entry", first_version="beginsAt", pending_deletes="gone"
)


class InapplicableCommit(ValueError):  # noqa: N818 - its writer may compute it again
    """A commit that does not fit the snapshot it is applied to: it removes a batch that is gone, say."""


def check_applies(commit: Any, snapshot: Any) -> None:
    """Refuses a commit that cannot come right after a snapshot; both as ``log/model.py`` has them.

    Raises:
        InapplicableCommit: saying what was expected and what was found.
    """
    if commit.version != snapshot.version + 1:
        raise InapplicableCommit(f"expected version {snapshot.version + 1}, found {commit.version}")
    if commit.timestamp_ms <= snapshot.timestamp_ms:
        raise InapplicableCommit(
            f"expected a timestamp after {snapshot.timestamp_ms}, found {commit.timestamp_ms} (milliseconds)"
        )
    here = {b.id for b in snapshot.batches}
    gone = [i for i in commit.removed if i not in here]
    if gone:
        raise InapplicableCommit(f"removes batch '{gone[0]}', which version {snapshot.version} does not have")
    added = [b.id for b in commit.added]
    twice = (here - set(commit.removed)).intersection(added) or {i for i in added if added.count(i) > 1}
    if twice:
        raise InapplicableCommit(f"adds batch '{min(twice)}', which is part of the table already")
    future = [b for b in commit.added if b.version is not None and b.version > commit.version]
    if future:
        raise InapplicableCommit(f"batch '{future[0].id}' is from version {future[0].version}, after its commit")
