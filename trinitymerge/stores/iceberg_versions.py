"""Which Iceberg snapshots are versions, and what snapshots of other programs mean (S16)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.errors import CorruptTableError, TableNotFoundError
from trinitymerge.log.actions import Batch, add_all, remove_all
from trinitymerge.log.batches import Batches
from trinitymerge.log.codec import NewerLibraryError
from trinitymerge.log.files import newer_library, of_known_format
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import HIDDEN_PREFIX, HIDDEN_TOMBSTONE, TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import never_null, with_never_null
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.iceberg_client import MAIN, IcebergSnapshot, IcebergTable

# Columns --------------------------------------------------------------------------------------------------------------

HIDDEN = (Field(C.SEQUENCE, "long"), Field(C.CLAUSE, "integer"), Field(C.EFFECT, "string"), Field(C.SINCE, "long"))
"""The columns of an Iceberg table beside the user's, and beside the hidden tombstone."""


def hidden_fields(definition: TableDefinition) -> list[Field]:
    return [*HIDDEN, *([] if definition.tombstoneKey else [Field(HIDDEN_TOMBSTONE, "boolean")])]


def columns_of(rows: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Return columns by their names; null where there is none of that name."""
    has = {n.lower() for n in rows.columns}
    shown = (E.quote(f.name) if f.name.lower() in has else f"{E.null_of(f)} AS {E.quote(f.name)}" for f in fields)
    return rows.selectExpr(*shown)


def fields_now(before: Sequence[Field], columns: StructType) -> tuple[Field, ...]:
    """Return the user's columns as a table has them; those that it had before keep their other attributes."""
    known = {f.name: f for f in before}
    found = (Field.from_json(f) for f in columns.jsonValue()["fields"])
    return tuple(_now(f, known.get(f.name)) for f in found if not f.name.lower().startswith(HIDDEN_PREFIX))


def with_columns_now(snapshot: Snapshot, columns: StructType) -> Snapshot:
    """Return the same with the columns that the table has now: other programs may have altered them without a commit."""
    before = snapshot.definition
    fields = fields_now(before.fields, columns)
    if fields == before.fields:
        return snapshot
    definition = TableDefinition.from_json({**before.to_json(), "fields": [f.to_json() for f in fields]})
    number = zlib.crc32(json.dumps([(f.name, f.type) for f in fields]).encode())
    return attrs.evolve(snapshot, definition=definition, definition_version=number)


def _now(field: Field, before: Field | None) -> Field:
    if before is None:
        return field
    kind = with_never_null(field.type, never_null(before.type))
    if before.type == kind:
        return before
    return attrs.evolve(field, type=kind, nullable=before.nullable, default=before.default)


# Snapshots of other programs ------------------------------------------------------------------------------------------

OPERATIONS = {"append": "APPEND", "replace": "REWRITE", "delete": "DELETE"}
"""Iceberg's names of operations, and their names in a table's history; others may mean anything."""


def commit_of_others(link: IcebergSnapshot, before: Snapshot) -> Commit:
    """Return a snapshot that another program has committed, as a commit of this library.

    Appended rows have no place in the commit order. They are a separate batch that counts as older than every merge. Where
    rows were deleted, each batch is another one from then on, of which all that was known still holds. Where rows may have been
    replaced, nothing is known any more: all rows are one batch.
    """
    added: list[Batch] = []
    removed: list[str] = []
    if link.operation == "append":
        rows = link.count("added-records", unknown=1)
        added = [_rows(link, rows, link.count("added-data-files"), link.count("added-files-size"), 0)] if rows else []
    elif link.operation == "delete":
        removed = [b.id for b in before.batches]
        added = [attrs.evolve(b, id=f"{b.id.partition('-since-')[0]}-since-{link.id}") for b in before.batches]
    elif link.operation != "replace":
        removed = [b.id for b in before.batches]
        rows = link.count("total-records", unknown=1)
        files, size = link.count("total-data-files"), link.count("total-files-size")
        added = [_rows(link, rows, files, size, before.version + 1)] if rows else []
    operation = OPERATIONS.get(link.operation, "OVERWRITE")
    commit = before.next_commit(
        operation, [*remove_all(removed), *add_all(added)], user=link.summary.get("engine-name")
    )
    return attrs.evolve(commit, timestamp_ms=max(before.timestamp_ms + 1, link.at_ms), id=str(link.id))


def _rows(link: IcebergSnapshot, rows: int, files: int, size: int, version: int) -> Batch:
    """Return rows of other programs: any may be a tombstone, and keys may repeat."""
    return Batch(
        id=f"others-{link.id}", rows=rows, tombstones=rows, files=files, bytes=size, version=version, foreign=True
    )


STATE, COMMIT, ON_TOP_OF = "trinitymerge.state", "trinitymerge.commit", "trinitymerge.since"
"""In the summary of a snapshot: the table, the commit, and the snapshot of ``main`` that it is on top of, if there is one."""

KEPT = "trinitymerge"
"""The tag that keeps the newest of our snapshots from ``expire_snapshots``, if others have appended after it."""


@attrs.frozen
class TableVersion:
    """A snapshot in the chain of ``main`` that is a version of the table."""

    version: int
    link: IcebergSnapshot


class IcebergVersions:
    """The readable part of an Iceberg table: its versions, and the rows of their batches."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.table = spark, IcebergTable(spark, name)
        self.path = self.table.shown
        self._newest: Snapshot | None = None
        self.columns = StructType()
        self._links: dict[int, IcebergSnapshot] = {}
        self._where: dict[str, int] = {}
        self._times: tuple[str, dict[int, int]] | None = None
        self._kept: int | None = None

    # Snapshots ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        try:
            self.snapshot()
        except TableNotFoundError:
            return False
        return True

    def snapshot(self) -> Snapshot:
        return self.newest(self.refreshed().get(MAIN))

    def refreshed(self) -> dict[str, int]:
        """Return the newest snapshots of all branches, also those of other programs."""
        if not self.table.exists():
            raise TableNotFoundError(
                f"There is no table {self.path}. Check the name, or create one with TrinityTable.create(..., using='iceberg').",
                path=self.path,
            )
        self.table.refresh()
        self.table.require_direct("spark.wap.branch")
        self.columns = self.table.schema()
        heads = self.table.heads()
        self._kept = heads.get(KEPT)
        return heads

    def newest(self, head: int | None) -> Snapshot:
        if self._newest is None or self._newest.checksum != str(head):
            self._newest = self._at(head)
            self._note(self._newest, is_newest=True)
        names = self.columns.names
        gone = [f.name for f in hidden_fields(self._newest.definition) if f.name not in names]
        if gone:
            raise self._without(gone, self._newest)
        self._newest = with_columns_now(self._newest, self.columns)
        return self._newest

    def _at(self, head: int | None) -> Snapshot:
        found = None if head is None else next(iter(self.table.links(f"snapshot_id = {head}")), None)
        others: list[IcebergSnapshot] = []
        while found is not None and STATE not in found.summary:
            others.append(found)
            found = self._link(found.parent)
            if found is not None and COMMIT in found.summary:
                found = next(iter(self.table.links(f"snapshot_id = {found.id}")), None)
        if found is None and others:
            found, others[-1] = self._across_a_gap(others[-1])
        if found is None:
            raise TableNotFoundError(
                f"{self.path} is an Iceberg table that is not registered yet. Name its keys once: "
                f"TrinityTable.forName(spark, '{self.path}', primaryKey=..., watermarkKey=..., tombstoneKey=...).",
                path=self.path,
                others=len(others),
            )
        snapshot = self._read(found)
        for link in reversed(others):
            snapshot = snapshot.apply(commit_of_others(link, snapshot))
        snapshot = attrs.evolve(snapshot, checksum=str(head))
        self._note(snapshot)
        return snapshot

    def _note(self, snapshot: Snapshot, is_newest: bool = False) -> None:
        """Record the snapshots to read batches from: the newest if possible, because others may expire.

        Rows of others do not say when they came, so they are read from a snapshot that has the last of them, and none after it.
        """
        newest = self._newest.checksum if self._newest else ""
        foreign = _last_of_others(snapshot.batches)
        for batch in (*(b for b in snapshot.batches if not b.foreign), *foreign):
            if is_newest or str(self._where.get(batch.id)) != newest:
                self._where[batch.id] = int(snapshot.checksum)

    def _across_a_gap(self, link: IcebergSnapshot) -> tuple[IcebergSnapshot | None, IcebergSnapshot]:
        """Return the newest of our snapshots before one of others, by the tag, if those in between have been expired.

        None if that is newer. Also return that of the others, as one that may have done anything, because the expired ones may
        have.
        """
        kept = next(iter(self.table.links(f"snapshot_id = {self._kept}")), None) if self._kept else None
        is_before = kept is not None and STATE in kept.summary and kept.at_ms <= link.at_ms
        return kept if is_before else None, attrs.evolve(link, operation="overwrite")

    def _read(self, link: IcebergSnapshot) -> Snapshot:
        try:
            snapshot = Snapshot.from_json(of_known_format(self.path, json.loads(link.summary[STATE])))
        except NewerLibraryError as error:
            raise newer_library(self.path, str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError(
                f"The summary of snapshot {link.id} of {self.path} does not hold what trinitymerge has written: {error}. Roll "
                f"the table back to one before it: CALL {self.table.parts[0]}.system.rollback_to_snapshot(...).",
                path=self.path,
            ) from error
        return snapshot

    def _link(self, id: int | None) -> IcebergSnapshot | None:
        """Return a snapshot by its number, without what it says of the whole table; None if it has been expired."""
        if id is not None and id not in self._links:
            self._links = {link.id: link for link in self.table.links(without=[STATE])}
        return None if id is None else self._links.get(id)

    def _without(self, gone: Sequence[str], snapshot: Snapshot) -> CorruptTableError:
        return CorruptTableError(
            f"{self.path} has no column {', '.join(gone)} any more, without which its rows cannot be resolved: it was "
            "dropped or renamed. Rename it back. If it was dropped, make a new table of what SELECT * FROM "
            f"{self.table.name} VERSION AS OF {snapshot.checksum} shows, where it is still there.",
            path=self.path,
        )

    # Versions -------------------------------------------------------------------------------------------------------

    def versions(self) -> Iterator[TableVersion]:
        """Return the versions that are still known, newest first.

        Commits of other programs are known as long as one of our snapshots before them is; up to the newest version, always.
        """
        now = self.snapshot()
        self._links = {}  # some may have been expired
        version, link = now.version, self._link(int(now.checksum))
        others: list[TableVersion] = []
        are_newest = True
        while link is not None:
            counted, told = TableVersion(version, link), link.parent
            others.append(counted)
            if COMMIT in link.summary:
                yield from others
                others, are_newest, since = [], False, link.summary.get(ON_TOP_OF)
                told = int(since) if since else None
            link, version = self._link(told), version - 1
        if are_newest:
            yield from others

    def commit_of(self, counted: TableVersion) -> Commit:
        told = counted.link.summary.get(COMMIT)
        if told is not None:
            return Commit.from_json(json.loads(told))
        before = self._link(counted.link.parent)
        if before is None:
            raise self._expired(counted.version - 1)
        return commit_of_others(counted.link, self._at(before.id))

    def _expired(self, version: int) -> TableNotFoundError:
        known = [c.version for c in self.versions()]
        return TableNotFoundError(
            f"{self.path} has no version {version}; it has versions {min(known)} to {max(known)}. Older ones have been expired "
            "by Iceberg's expire_snapshots.",
            path=self.path,
            version=version,
        )

    def snapshot_at(self, version: int) -> Snapshot:
        found = next((c for c in self.versions() if c.version == version), None)
        if found is None:
            raise self._expired(version)
        return with_columns_now(self._at(found.link.id), self.columns)

    def version_at(self, timestamp_ms: int) -> int:
        oldest = None
        for counted in self.versions():
            oldest = counted
            if self._time_of(counted.link) <= timestamp_ms:
                return counted.version
        raise TableNotFoundError(
            f"No version of {self.path} that is still known had been committed by then"
            f"{f'; the oldest is version {oldest.version}' if oldest else ''}.",
            path=self.path,
            timestamp_ms=timestamp_ms,
        )

    @staticmethod
    def _time_of(link: IcebergSnapshot) -> int:
        told = link.summary.get(COMMIT)
        return int(json.loads(told)["timestampMs"]) if told else link.at_ms

    def committed_at(self, version: int) -> int:
        """Return the commit time of a version, or of the oldest known version if Iceberg has expired it."""
        newest = self._newest.checksum if self._newest else ""
        if self._times is None or self._times[0] != newest:
            times = {c.version: self._time_of(c.link) for c in self.versions()}
            self._times = (self._newest.checksum if self._newest else "", times)
        known = self._times[1]
        return known.get(version, known[min(known)])

    def version_of(self, timestamp_ms: int) -> int | None:
        return next((c.version for c in self.versions() if self._time_of(c.link) == timestamp_ms), None)

    def missing(self, batches: Sequence[Batch]) -> list[Batch]:
        self.refreshed()
        known = {link.id for link in self.table.links(without=[STATE, COMMIT])}
        found = self._by_link([b for b in batches if b.rows])
        return [b for link, some in found.items() if link not in known for b in some]

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        asked = [c for c in self.versions() if first <= c.version <= last]
        if len(asked) < last - first + 1:
            raise self._expired(first)
        return map(self.commit_of, reversed(asked))

    def history(self) -> list[Commit]:
        versions = list(self.versions())
        if COMMIT not in versions[-1].link.summary:  # what was before it has been expired
            versions.pop()
        return list(map(self.commit_of, versions))

    # Reading --------------------------------------------------------------------------------------------------------

    def scan(self, batches: Batches, extra: Sequence[Field] = ()) -> DataFrame:
        rows, version = self.scan_and_version(batches, extra)
        shown = [E.quote(f.name) for f in (*batches.definition.stored_fields, *extra)]
        return rows.selectExpr(*shown, f"{version} AS {C.VERSION}")

    def scan_and_version(self, batches: Batches, extra: Sequence[Field] = ()) -> tuple[DataFrame, Sql]:
        fields = [*batches.definition.stored_fields, *extra, HIDDEN[0]]
        found: DataFrame | None = None
        for link, some in self._by_link([b for b in batches.batches if b.rows]).items():
            where = rows_of(some)
            if link is None:
                raise self._gone(some[0])
            rows = columns_of(self.table.read(link).filter(where), fields)
            found = rows if found is None else found.unionByName(rows)
        if found is None:
            found = E.empty_frame(self.spark, fields)
        if any(b.foreign for b in batches.batches):  # others may append rows without a key
            found = found.filter(E.all_of(E.is_not_null(E.quote(k)) for k in batches.definition.primaryKey))
        return found, E.or_else(C.SEQUENCE, Sql("0L"))

    def _by_link(self, batches: Sequence[Batch]) -> dict[int | None, list[Batch]]:
        """Return the batches by the snapshots that they are read from; None if that is not known."""
        found: dict[int | None, list[Batch]] = {}
        foreign = [b for b in batches if b.foreign]
        for batch in batches:
            if not batch.foreign:
                found.setdefault(self._where.get(batch.id), []).append(batch)
        if foreign:
            last = _last_of_others(foreign)[0].id
            found.setdefault(self._where.get(last, int(last.rpartition("-")[2])), []).extend(foreign)
        return found

    def _gone(self, batch: Batch) -> CorruptTableError:
        return CorruptTableError(
            f"The rows of batch {batch.id} of {self.path} are in no snapshot that is still known: expire_snapshots has "
            "removed it.",
            path=self.path,
        )

    def verify_files_after_read(self, batches: Sequence[Batch]) -> None:
        """Do nothing: a job that reads a snapshot has all of its files, or fails."""

    def note_range(self, batch_id: str, keys: KeyRange) -> None:
        """Do nothing: Iceberg keeps the range of each file itself."""

    def ranges_of(self, batches: Sequence[Batch]) -> list[KeyRange | None]:
        return [None] * len(batches)


def _last_of_others(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batch that another program wrote last, if there is one: an append, or else what its last overwrite has left."""
    foreign = [b for b in batches if b.foreign]
    return ([b for b in foreign if not b.version] or foreign)[-1:]


def rows_of(batches: Sequence[Batch]) -> Sql:
    """Return SQL that is true of the rows of batches in any snapshot; of a foreign batch, of all that others wrote until then."""
    own = [str(b.version) for b in batches if not b.foreign]
    foreign = [b.version or 0 for b in batches if b.foreign]
    conditions = [Sql(f"{C.SEQUENCE} IN ({', '.join(own)})")] if own else []
    if foreign:
        conditions += [E.is_null(C.SEQUENCE), Sql(f"{C.SEQUENCE} <= {max(foreign)}L")]
    return E.any_of(conditions)
