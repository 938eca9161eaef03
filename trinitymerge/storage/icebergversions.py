"""Reading tables of Iceberg's: which of its snapshots are versions of the table, and the rows of batches (S16, S40).

Owns: what stands in the summaries of snapshots, the columns that the library has in such a table, and the chain of versions: ours,
each with the table after it in its summary, and those of other programs in between. How they are made stands in ``iceberg.py``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.columns import CLAUSE, EFFECT, SEQUENCE, SINCE, VERSION
from trinitymerge.definition import HIDDEN_PREFIX, Field, TableDefinition
from trinitymerge.errors import CorruptTableError, TableNotFoundError
from trinitymerge.expressions import (
    all_of,
    any_of,
    cast,
    empty_frame,
    is_not_null,
    is_null,
    or_else,
    physical_type,
    quote,
)
from trinitymerge.keyrange import KeyRange
from trinitymerge.sqltext import Sql
from trinitymerge.storage.backend import Batches, Staged
from trinitymerge.storage.entries import Batch, Commit, Snapshot
from trinitymerge.storage.foreign import commit_of_others
from trinitymerge.storage.icebergtable import MAIN, IcebergTable, Link
from trinitymerge.storage.logfiles import too_new
from trinitymerge.storage.protocol import PROTOCOL

STATE, COMMIT, ON_TOP_OF = "trinitymerge.state", "trinitymerge.commit", "trinitymerge.since"
"""In the summary of a snapshot: the table, the commit, and the snapshot of ``main`` that it is on top of, if there is one."""

HIDDEN = (Field(SEQUENCE, "long"), Field(CLAUSE, "integer"), Field(EFFECT, "string"), Field(SINCE, "long"))
"""What the table has beside the user's columns, and beside the tombstone of tables that declare none."""


@attrs.frozen
class Counted:
    """A snapshot in the chain of ``main`` that is a version of the table."""

    version: int
    link: Link


class IcebergVersions:
    """What can be read of a table of Iceberg's: its versions, and the rows of their batches."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.table = spark, IcebergTable(spark, name)
        self.path = ".".join(self.table.parts)
        self._latest: Snapshot | None = None
        self.columns = StructType()
        self._links: dict[int, Link] = {}
        self._where: dict[str, int] = {}

    # Snapshots ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """True if there is a table of that name, and it is one of ours."""
        try:
            self.snapshot()
        except TableNotFoundError:
            return False
        return True

    def snapshot(self) -> Snapshot:
        """The newest snapshot, what other programs have committed included."""
        return self.newest(self.refreshed().get(MAIN))

    def refreshed(self) -> dict[str, int]:
        """The newest snapshots of all branches, whoever has committed them.

        Raises:
            TableNotFoundError: the catalog has no such table.
        """
        if not self.table.exists():
            raise self._absent()
        self.table.refresh()
        self.columns = self.table.schema()
        return self.table.heads()

    def require_table(self) -> None:
        """Checks that the catalog has the table, and that it is one of Iceberg's.

        Raises:
            TableNotFoundError: it has none of that name.
            UnsupportedStorageError: it is of another format.
        """
        if not self.table.exists():
            raise self._absent()
        self.table.require_iceberg()

    def _absent(self) -> TableNotFoundError:
        return TableNotFoundError(
            f"There is no table {self.path}. Check the name, or create one with TrinityTable.create(..., using='iceberg').",
            path=self.path,
        )

    def newest(self, head: int | None) -> Snapshot:
        if self._latest is None or self._latest.checksum != str(head):
            self._latest = self._at(head)
        self._latest = with_columns_now(self._latest, self.columns)
        return self._latest

    def _at(self, head: int | None) -> Snapshot:
        """The table at a snapshot of Iceberg's."""
        found = None if head is None else next(iter(self.table.links(f"snapshot_id = {head}")), None)
        others: list[Link] = []
        while found is not None and STATE not in found.summary:
            others.append(found)
            found = self._link(found.parent)
            if found is not None and COMMIT in found.summary:
                found = next(iter(self.table.links(f"snapshot_id = {found.id}")), None)
        if found is None:
            raise TableNotFoundError(
                f"{self.path} is a table of Iceberg's, and none of trinitymerge's yet. Name its keys once: "
                f"TrinityTable.forName(spark, '{self.path}', primaryKey=..., watermarkKey=..., tombstoneKey=...).",
                path=self.path,
                others=len(others),
            )
        snapshot = self._read(found)
        for link in reversed(others):
            snapshot = snapshot.apply(commit_of_others(link, snapshot))
        self._where.update({b.id: head for b in snapshot.batches if head is not None})
        return attrs.evolve(snapshot, checksum=str(head))

    def _read(self, link: Link) -> Snapshot:
        try:
            snapshot = Snapshot.from_json(json.loads(link.summary[STATE]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError(
                f"The summary of snapshot {link.id} of {self.path} does not hold what trinitymerge has written: {error}. Roll "
                f"the table back to one before it: CALL {self.table.parts[0]}.system.rollback_to_snapshot(...).",
                path=self.path,
            ) from error
        if snapshot.reader_protocol > PROTOCOL:
            raise too_new(self.path, "reader", snapshot.reader_protocol)
        return snapshot

    def _link(self, id: int | None) -> Link | None:
        """A snapshot by its number, without what it says of the whole table; None if it has been expired."""
        if id is not None and id not in self._links:
            self._links = {link.id: link for link in self.table.links(without=[STATE])}
        return None if id is None else self._links.get(id)

    # Versions -------------------------------------------------------------------------------------------------------

    def versions(self) -> Iterator[Counted]:
        """The versions that are still known, newest first."""
        now = self.snapshot()
        self._links = {}  # some may have been expired
        version, link = now.version, self._link(int(now.checksum))
        while link is not None:
            yield Counted(version, link)
            told = link.summary.get(ON_TOP_OF) if COMMIT in link.summary else link.parent
            link, version = self._link(int(told) if told else None), version - 1

    def commit_of(self, counted: Counted) -> Commit:
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
        """The snapshot of a version."""
        found = next((c for c in self.versions() if c.version == version), None)
        if found is None:
            raise self._expired(version)
        return with_columns_now(self._at(found.link.id), self.columns)

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version committed at or before a time."""
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
    def _time_of(link: Link) -> int:
        told = link.summary.get(COMMIT)
        return int(json.loads(told)["timestamp"]) if told else link.at_ms

    def committed_at(self, version: int) -> int:
        """When a version was committed; of one that has been expired, when the oldest that is known was: it was not later."""
        at_ms = 0
        for counted in self.versions():
            at_ms = self._time_of(counted.link)
            if counted.version <= version:
                break
        return at_ms

    def version_of(self, timestamp_ms: int) -> int | None:
        """The version that was committed at exactly that time."""
        return next((c.version for c in self.versions() if self._time_of(c.link) == timestamp_ms), None)

    def missing(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches that are in no snapshot that is still known."""
        self.refreshed()
        known = {link.id for link in self.table.links(without=[STATE, COMMIT])}
        return [b for b in batches if b.rows and self._where.get(b.id) not in known]

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """The commits of versions ``first`` to ``last``, oldest first."""
        asked = [c for c in self.versions() if first <= c.version <= last]
        if len(asked) < last - first + 1:
            raise self._expired(first)
        return map(self.commit_of, reversed(asked))

    def history(self) -> list[Commit]:
        """All commits that are still known, newest first."""
        return list(map(self.commit_of, self.versions()))

    # Reading --------------------------------------------------------------------------------------------------------

    def scan(self, batches: Batches, extra: Sequence[Field] = ()) -> DataFrame:
        """See :class:`~trinitymerge.storage.backend.Scanner`; one scan, of one snapshot, where all batches are in one."""
        rows, version = self._scanned(batches, [*batches.definition.stored_fields, *extra])
        shown = [quote(f.name) for f in (*batches.definition.stored_fields, *extra)]
        return rows.selectExpr(*shown, f"{version} AS {VERSION}")

    def scan_undated(self, batches: Batches) -> tuple[DataFrame, Sql]:
        """See :class:`~trinitymerge.storage.backend.Backend`."""
        return self._scanned(batches, batches.definition.stored_fields)

    def _scanned(self, batches: Batches, fields: Sequence[Field]) -> tuple[DataFrame, Sql]:
        found: DataFrame | None = None
        for link, some in self._by_link([b for b in batches.batches if b.rows]).items():
            where = rows_of(some)
            rows = columns_of(self.table.read(link).filter(where), [*fields, HIDDEN[0]])
            found = rows if found is None else found.unionByName(rows)
        if found is None:
            found = empty_frame(self.spark, [*fields, HIDDEN[0]])
        if any(b.foreign for b in batches.batches):  # others may append rows without a key
            found = found.filter(all_of(is_not_null(quote(k)) for k in batches.definition.primaryKey))
        return found, or_else(SEQUENCE, Sql("0L"))

    def _by_link(self, batches: Sequence[Batch]) -> dict[int, list[Batch]]:
        """The batches by the snapshots that they are read from."""
        found: dict[int, list[Batch]] = {}
        for batch in batches:
            if batch.id not in self._where:
                raise self._gone(batch)
            found.setdefault(self._where[batch.id], []).append(batch)
        return found

    def _gone(self, batch: Batch) -> CorruptTableError:
        return CorruptTableError(
            f"The rows of batch {batch.id} of {self.path} are in no snapshot that is still known: expire_snapshots has "
            "removed it.",
            path=self.path,
        )

    def require_still_whole(self, batches: Sequence[Batch]) -> None:
        """See :class:`~trinitymerge.storage.backend.Backend`: a job that reads a snapshot has all of its files, or fails."""

    def note_range(self, staged: Staged, keys: KeyRange) -> None:
        """See :class:`~trinitymerge.storage.backend.Backend`: Iceberg keeps the range of each file itself."""

    def range_of(self, batch: Batch) -> KeyRange | None:
        """See :class:`~trinitymerge.storage.backend.Backend`."""
        return None


def columns_of(rows: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Columns by their names; null where there is none of that name."""
    has = {n.lower() for n in rows.columns}
    return rows.selectExpr(*[quote(f.name) if f.name.lower() in has else _null(f) for f in fields])


def _null(field: Field) -> str:
    return f"{cast(Sql('NULL'), physical_type(field))} AS {quote(field.name)}"


def rows_of(batches: Sequence[Batch]) -> Sql:
    """SQL that is true of the rows of some batches, in any snapshot that they are part of.

    Of a batch that others wrote it is true of all that others wrote until then.
    """
    own = [str(b.version) for b in batches if not b.foreign]
    foreign = [b.version or 0 for b in batches if b.foreign]
    conditions = [Sql(f"{SEQUENCE} IN ({', '.join(own)})")] if own else []
    if foreign:
        conditions += [is_null(SEQUENCE), Sql(f"{SEQUENCE} <= {max(foreign)}L")]
    return any_of(conditions)


def fields_now(before: Sequence[Field], columns: StructType) -> tuple[Field, ...]:
    """The user's columns as a table has them; those that it had before keep what is known of them besides."""
    known = {f.name: f for f in before}
    return tuple(_now(f, known.get(f.name)) for f in user_fields(columns))


def with_columns_now(snapshot: Snapshot, columns: StructType) -> Snapshot:
    """The same with the columns that the table has now: others may have altered them, and that is no commit."""
    before = snapshot.definition
    fields = fields_now(before.fields, columns)
    if fields == before.fields:
        return snapshot
    definition = TableDefinition.from_json({**before.to_json(), "fields": [f.to_json() for f in fields]})
    number = zlib.crc32(json.dumps([(f.name, f.type) for f in fields]).encode())
    return attrs.evolve(snapshot, definition=definition, definition_version=number)


def _now(field: Field, before: Field | None) -> Field:
    if before is None or before.type == field.type:
        return before or field
    return attrs.evolve(field, nullable=before.nullable, default=before.default)


def user_fields(columns: StructType) -> list[Field]:
    """The columns that are not the library's."""
    found = (Field.from_json(f) for f in columns.jsonValue()["fields"])
    return [f for f in found if not f.name.lower().startswith(HIDDEN_PREFIX)]
