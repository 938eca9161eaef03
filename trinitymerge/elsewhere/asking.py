"""From a table to the query that another engine reads it by.

Owns: which files that is about, and what is refused because the engine would not read it right. The text itself is made in
:mod:`trinitymerge.elsewhere.query`. Files are listed; no Spark job runs.
"""

from __future__ import annotations

from trinitymerge.definition import TableDefinition
from trinitymerge.elsewhere.dialects import ENGINES, Dialect, Trino
from trinitymerge.elsewhere.query import LiveRows, Stored, columns_of
from trinitymerge.errors import UnsupportedStorageError, did_you_mean
from trinitymerge.expressions import tombstone_value
from trinitymerge.storage.backend import Batches, Maintained
from trinitymerge.storage.entries import Batch, Snapshot


def sql_for(store: Maintained, snapshot: Snapshot, dialect: str, files: str | None) -> str:
    """The query for the live rows of a version.

    Args:
        store: of the table.
        snapshot: the version.
        dialect: the engine.
        files: for Trino, the table its files are known by there.

    Raises:
        ValueError: there is no such dialect; or ``files`` is missing, out of place, or no name of a table.
        UnsupportedStorageError: the engine would not read a column, a path or the format right.
        CorruptTableError: a file of the version is gone.
    """
    engine = _engine(dialect, files)
    batches, definition = Batches.of(snapshot), snapshot.definition
    _check(engine, definition, store.path)
    stored = tuple(_stored(store, b) for b in batches.batches if b.rows)
    return str(LiveRows(definition, stored, batches.are_resolved, tombstone_value(definition)).query(engine))


def _engine(dialect: str, files: str | None) -> Dialect:
    kind = ENGINES.get(dialect) if isinstance(dialect, str) else None
    if kind is None:
        raise ValueError(f"sqlFor knows no dialect {dialect!r}.{did_you_mean(str(dialect), ENGINES)}")
    if kind is Trino:
        return Trino.over(files)
    if files is not None:
        raise ValueError(
            f"sqlFor takes files= for Trino only: {kind.title} is told the files themselves. Leave it out."
        )
    return kind()


def _stored(store: Maintained, batch: Batch) -> Stored:
    files = store.data_files(batch.id)
    if len(files) != batch.files:
        store.require_whole([batch])
    return Stored(batch, store.batch_path(batch.id), tuple(f.path for f in files))


def _check(engine: Dialect, definition: TableDefinition, path: str) -> None:
    """Refuses what the engine would not read, or not as it is."""
    if definition.fileFormat not in engine.reads:
        raise UnsupportedStorageError(
            f"{path} consists of {definition.fileFormat.upper()} files, which {engine.title} does not read. Call export(), which "
            "writes Parquet, and read that.",
            path=path,
            dialect=engine.name,
        )
    for field in definition.fields:
        wrong = "" if engine.type_of(field.type) else f"({field.text}) does not come out right in {engine.title}"
        if field.grown and not engine.fills_fields:
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
