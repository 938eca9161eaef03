"""`sqlFor`: a query for another engine that reads the live rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from trinitymerge.errors import UnsupportedStorageError, did_you_mean
from trinitymerge.interop.dialects import ENGINES, NOTHING, Dialect, ScanGroup, Trino
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.rows.resolution import Order, rank
from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore

_FRACTIONS = ("float", "double")


@attrs.frozen
class BatchFiles:
    """A batch with rows, its directory and its data files, as Spark paths."""

    batch: Batch
    directory: str
    files: tuple[str, ...]


@attrs.frozen
class LiveRows:
    """The live rows that a query selects; if they ``are_resolved``, no two have the same key.

    ``tombstone_text`` is what a string tombstone column holds on deleted rows, as files have it.
    """

    definition: TableDefinition
    stored: tuple[BatchFiles, ...]
    are_resolved: bool
    tombstone_text: str

    def query(self, dialect: Dialect) -> Sql:
        shown = ", ".join(dialect.quoted(n) for n in self.definition.names)
        if not self.stored:
            nulls = (f"{dialect.cast(Sql('NULL'), f.type)} AS {dialect.quoted(f.name)}" for f in self.definition.fields)
            return Sql(f"SELECT {', '.join(nulls)} FROM {NOTHING} WHERE false")
        rows = Sql("\n  UNION ALL\n  ".join(self._parts(dialect)))
        conditions = [f"NOT {self._is_tombstone(dialect)}"] if any(s.batch.tombstones for s in self.stored) else []
        if not self.are_resolved:
            rows = Sql(f"SELECT *, {self._rank(dialect)} FROM (\n  {rows}\n  ) AS stored")
            conditions.insert(0, f"{dialect.quoted(C.RANK)} = 1")
        where = f"\nWHERE {' AND '.join(conditions)}" if conditions else ""
        return Sql(f"SELECT {shown} FROM (\n  {rows}\n) AS latest{where}")

    def _parts(self, dialect: Dialect) -> Iterator[Sql]:
        """Yield a query for each scan: the table's columns, and the version of the rows if keys repeat."""
        for some in self._together(dialect):
            batch = some[0].batch
            held = [ColumnForm.of(f, batch.layout_version) for f in self.definition.stored_fields]
            items = [h.declared(dialect) for h in held]
            items += [] if self.are_resolved else [Sql(f"{batch.version} AS {dialect.quoted(C.VERSION)}")]
            rows = ScanGroup(
                tuple(s.batch.id for s in some),
                tuple(s.directory for s in some),
                tuple(file for s in some for file in s.files),
                self.definition.fileFormat,
                tuple(h.name for h in held),
                {h.name: h.type for h in held if h.field.added},
            )
            yield dialect.select(Sql(", ".join(items)), rows)

    def _together(self, dialect: Dialect) -> list[list[BatchFiles]]:
        """Group the batches by scan: files of one layout, and of one version if keys repeat."""
        may_differ = any(f.added or f.added_fields for f in self.definition.fields)
        found: dict[Any, list[BatchFiles]] = {}
        for stored in self.stored:
            alike = (None if self.are_resolved else stored.batch.version, stored.batch.layout_version)
            is_alone = may_differ and not dialect.unites_files
            found.setdefault(stored.batch.id if is_alone else alike, []).append(stored)
        return list(found.values())

    def _rank(self, dialect: Dialect) -> Sql:
        """Return the rank of a row among those of its key, the freshest first (S3, S6)."""
        own = self.definition
        order = Order(tuple(self._watermark(dialect, w) for w in own.watermarkKey), (dialect.quoted(C.VERSION),))
        place = rank(map(dialect.quoted, own.primaryKey), order.freshest_first())
        return Sql(f"{place} AS {dialect.quoted(C.RANK)}")

    def _watermark(self, dialect: Dialect, name: str) -> Sql:
        """Return a watermark with one zero: some engines order ``-0.0`` before ``0.0``."""
        value = dialect.quoted(name)
        if self.definition.field(name).type not in _FRACTIONS:
            return value
        return Sql(f"CASE WHEN {value} = 0 THEN 0 ELSE {value} END")

    def _is_tombstone(self, dialect: Dialect) -> Sql:
        """Return a condition that is true for tombstones, and never null (S4)."""
        value, form = dialect.quoted(self.definition.tombstone_column), self.definition.tombstone_form
        if form is TombstoneForm.BOOLEAN:
            return Sql(f"coalesce({value}, false)")
        if form is TombstoneForm.STRING_VALUE:
            return Sql(f"coalesce({value} = {dialect.text(self.tombstone_text)}, false)")
        return Sql(f"({value} IS NOT NULL)")


@attrs.frozen
class ColumnForm:
    """The name and type of a column of the table in the files of one layout (S43)."""

    field: Field
    name: str
    type: Any

    @classmethod
    def of(cls, field: Field, layout: int) -> ColumnForm:
        earlier = next((e for e in field.previous if layout < e.until), None)
        return cls(field, field.stored_as, field.type) if earlier is None else cls(field, earlier.name, earlier.type)

    def declared(self, dialect: Dialect) -> Sql:
        """Return the column as the table defines it, even if files lack it or have an older type."""
        value, name = dialect.quoted(self.name), dialect.quoted(self.field.name)
        if self.type != self.field.type or self.field.added_fields or self.field.added:
            return Sql(f"{dialect.cast(value, self.field.type)} AS {name}")
        return value if self.name == self.field.name else Sql(f"{value} AS {name}")


def columns_of(definition: TableDefinition) -> Sequence[str]:
    return [name for f in definition.fields for name in (f.name, f.stored_as, *(e.name for e in f.previous))]


def sql_for(store: ManagedStore, snapshot: Snapshot, dialect: str, files: str | None) -> str:
    """Return the query for the live rows of a version; ``files`` is, for Trino, the name of the Hive table over the files."""
    engine = _engine(dialect, files)
    batches, definition = Batches.of(snapshot), snapshot.definition
    _check(engine, definition, store.path)
    stored = tuple(_stored(store, b) for b in batches.batches if b.rows)
    return str(LiveRows(definition, stored, batches.are_resolved, E.tombstone_value(definition)).query(engine))


def _engine(dialect: str, files: str | None) -> Dialect:
    kind = ENGINES.get(dialect) if isinstance(dialect, str) else None
    if kind is None:
        raise ValueError(f"sqlFor knows no dialect {dialect!r}.{did_you_mean(str(dialect), ENGINES)}")
    if kind is Trino:
        return Trino.over(files)
    if files is not None:
        raise ValueError(
            f"sqlFor takes files= for Trino only: the query for {kind.title} names the files. Remove the argument."
        )
    return kind()


def _stored(store: ManagedStore, batch: Batch) -> BatchFiles:
    files = store.data_files(batch.id)
    if len(files) != batch.files:
        store.verify_files([batch])
    return BatchFiles(batch, store.batch_path(batch.id), tuple(f.path for f in files))


def _check(engine: Dialect, definition: TableDefinition, path: str) -> None:
    """Refuse formats, columns and names that the engine cannot read correctly."""
    if definition.fileFormat not in engine.reads:
        raise UnsupportedStorageError(
            f"{path} consists of {definition.fileFormat.upper()} files, which {engine.title} does not read. Call export(), which "
            "writes Parquet, and read that.",
            path=path,
            dialect=engine.name,
        )
    for field in definition.fields:
        wrong = "" if engine.type_of(field.type) else f"({field.text}) does not come out right in {engine.title}"
        if field.added_fields and not engine.fills_fields:
            wrong = (
                f"({field.text}) has got fields that older files lack, which {engine.title} alone cannot read as null"
            )
        if field.within:
            wrong = f"({field.text}) has a field that was added again after a restore, and that files call otherwise"
        if wrong:
            raise _refused(engine, path, field.name, wrong)
    for name in columns_of(definition):
        if engine.refuse_name(name):
            raise _refused(engine, path, name, engine.refuse_name(name))


def _refused(engine: Dialect, path: str, column: str, why: str) -> UnsupportedStorageError:
    return UnsupportedStorageError(
        f"Column '{column}' of {path} {why}. Call export(), and read what it writes.",
        column=column,
        path=path,
        dialect=engine.name,
    )
