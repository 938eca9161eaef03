"""Iceberg tables: batches on branches, commits by fast-forwarding the main branch (S16)."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from trinitymerge import errors
from trinitymerge.fs import faults
from trinitymerge.log import reporting
from trinitymerge.log.actions import Batch, CreateTable, SetDefinition
from trinitymerge.log.commit import CommitStateUnknown, VersionConflict
from trinitymerge.log.files import encode_with_checksum, require_readable, require_writable
from trinitymerge.log.model import Commit, Snapshot, now_ms
from trinitymerge.rows.watermarks import watermark_metrics, watermark_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.observe import Metrics
from trinitymerge.stores import iceberg_versions
from trinitymerge.stores.base import Staged
from trinitymerge.stores.catalog import REDACTED, CatalogTable, literal
from trinitymerge.stores.iceberg_client import MAIN, IcebergSnapshot

FAULT_POINTS = ("iceberg.staged", "iceberg.told", "iceberg.committed")

_ROLES = ("primaryKey", "watermarkKey", "tombstoneKey", "tombstoneStringValue")
_PREFIX = "trinitymerge."
_SHOWN = 5

BATCH_ID = "trinitymerge.batch"
"""In the summary of a snapshot: the batch whose rows it has appended."""


@attrs.frozen
class _Written:
    """A staged batch: the snapshot ``link`` on a branch that begins with ``since``. Its rows carry ``sequence`` as their commit."""

    branch: str
    since: int | None
    link: int
    sequence: int


class IcebergStore(iceberg_versions.IcebergVersions):
    """An Iceberg table, which is a :class:`~trinitymerge.stores.base.CatalogStore`."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        super().__init__(spark, name)
        self._written: dict[str, _Written] = {}

    # Creating -------------------------------------------------------------------------------------------------------

    def create(self, definition: TableDefinition, user: str | None) -> Snapshot:
        """Create the table in its catalog (S7)."""
        if definition.history:
            raise errors.UnsupportedStorageError(
                f"{self.path} cannot have history: an Iceberg table keeps its past in Iceberg snapshots. Create a managed "
                "table for that, or merge changes() of this one into one that has.",
                path=self.path,
            )
        _create(self.table, definition)
        return self.adopt(definition, user, "CREATE")

    def fields(self) -> tuple[Field, ...]:
        return iceberg_versions.fields_now((), self.table.schema())

    def keys_from_properties(self) -> dict[str, Any]:
        properties = self.table.properties()
        told = {role: properties.get(_PREFIX + role) for role in _ROLES}
        if told["primaryKey"] is None:
            return {}
        for role, value in told.items():
            if value == REDACTED:
                raise errors.InvalidDefinitionError(
                    f"Spark hides the property {_PREFIX}{role} of {self.path}: its value looks like a secret. Name the keys on the "
                    f"first call: TrinityTable.forName(spark, '{self.path}', primaryKey=..., watermarkKey=..., tombstoneKey=...)."
                )
        lists = {role: tuple(n.strip() for n in (told[role] or "").split(",") if n.strip()) for role in _ROLES[:2]}
        return {**told, **lists}

    def adopt(self, definition: TableDefinition, user: str | None, operation: str = "ADOPT") -> Snapshot:
        # `operation` is what the table's history shows: CREATE where create() has just made the Iceberg table.
        head = self.refreshed().get(MAIN)
        found = None if head is None else _profile_rows(self.table.read(head), self._only(head), definition)
        batch, version = found or (None, 0)
        self._add_columns(definition)
        self.table.with_retries(_set_keys_sql(self.table.name, definition))
        self.refreshed()
        definition = attrs.evolve(definition, fields=iceberg_versions.fields_now(definition.fields, self.columns))
        commit = Commit(
            version=version,
            timestamp_ms=now_ms(),
            operation=operation,
            actions=[CreateTable(uuid.uuid4().hex), SetDefinition(definition)],
            user=user,
        )
        created = Snapshot.created(attrs.evolve(commit, version=0))
        empty = attrs.evolve(created, version=version, first_version=version, definition_version=0)
        after = attrs.evolve(empty, batches=[] if batch is None else [batch])
        branch = self.stage_on_branch(head).branch
        if self._move_main(branch, commit, after, head, is_first=True) is None:
            self._drop(branch)
            raise errors.ConcurrentCommitError(
                f"Others have committed to {self.path} while it was made a table of trinitymerge's. Nothing was changed but its "
                "hidden columns; run it again.",
                path=self.path,
            )
        reporting.committed(self.path, commit)
        return self.snapshot()

    def _add_columns(self, definition: TableDefinition) -> None:
        try:
            missing = _add_columns_sql(self.table.name, definition, self.columns)
            if missing:
                self.table.with_retries(missing)
        except Exception:
            self.refreshed()  # another writer may have added them
            if _add_columns_sql(self.table.name, definition, self.columns):
                raise

    # Staging --------------------------------------------------------------------------------------------------------

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Append rows to a new branch: one Spark job, and a few that ask Iceberg for the result."""
        before = self._newest or self.snapshot()
        written = self.stage_on_branch(int(before.checksum), rows, before.version + 1)
        batch_id = written.branch.partition("_")[2]
        link = self._only(written.link)
        self._written[batch_id] = written
        faults.fault("iceberg.staged")
        files, size = link.count("added-data-files"), link.count("added-files-size")
        return Staged(batch_id, files, size, rows.schema, definition)

    def stage_on_branch(self, since: int | None, rows: DataFrame | None = None, sequence: int = 0) -> _Written:
        self.table.require_direct()
        batch_id = uuid.uuid4().hex
        branch, fields = f"tm_{batch_id}", [Field.from_json(f) for f in self.columns.jsonValue()["fields"]]
        try:
            self.table.branch(branch, since)
            if rows is not None:
                numbered = (
                    iceberg_versions.columns_of(rows, fields)
                    .drop(C.SEQUENCE)
                    .selectExpr("*", f"{sequence}L AS {C.SEQUENCE}")
                )
                self.table.append(branch, numbered, {BATCH_ID: batch_id})
            self.table.refresh()
            link = self.table.heads()[branch]
        except BaseException:
            with contextlib.suppress(Exception):
                self.table.drop(branch)
            raise
        return _Written(branch, since, link, sequence)

    def _only(self, id: int) -> IcebergSnapshot:
        (link,) = self.table.links(f"snapshot_id = {id}")
        return link

    def read_staged(self, staged: Staged) -> DataFrame:
        written = self._written.get(staged.id)
        if written is None:
            raise self._vacuumed(staged.id)
        return self._rows_of(written).selectExpr(*[E.quote(n) for n in staged.schema.names])

    def discard(self, staged: Staged) -> None:
        """Remove a staged batch. Its files are deleted when its unnamed snapshot expires."""
        written = self._written.pop(staged.id, None)
        if written is not None:
            self._drop(written.branch)

    def _vacuumed(self, batch_id: str) -> errors.FilesVacuumedError:
        return errors.FilesVacuumedError(
            f"The branch of {self.path} with the rows of batch {batch_id}, which were about to be committed, is gone: it has "
            "been dropped, or has expired. Nothing was committed; run it again.",
            path=self.path,
        )

    # Committing -----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit, before: Snapshot) -> Snapshot:
        require_writable(self.path, before)
        require_readable(self.path, commit, encode_with_checksum(commit.to_json())[0])
        heads = self.refreshed()
        self._require_newest(commit, before, heads.get(MAIN))
        after = before.apply(commit)
        branch = self._ready(commit, before, heads)
        head = self._move_main(branch, commit, after, int(before.checksum))
        if head is None:
            if not commit.added:  # else its rows are needed for the next attempt
                self._drop(branch)
            self._require_newest(commit, before, self.refreshed().get(MAIN))
            raise self.table.crowded()
        for batch in commit.added:
            self._written.pop(batch.id, None)
        self._newest = attrs.evolve(after, checksum=str(head))
        self._note(self._newest, is_newest=True)
        return self._newest

    def _require_newest(self, commit: Commit, before: Snapshot, head: int | None) -> None:
        if str(head) == before.checksum:
            return
        self.newest(head)
        versions = list(self.versions())
        if before.checksum not in {str(c.link.id) for c in versions}:
            raise errors.ConcurrentCommitError(
                f"{self.path} does not have version {before.version} any more: it has been rolled back, or its snapshots have been "
                "expired. Nothing was written; run it again.",
                path=self.path,
            )
        winner = next(c for c in versions if c.version <= commit.version)
        raise VersionConflict(commit.version, self.commit_of(winner))

    def _ready(self, commit: Commit, before: Snapshot, heads: Mapping[str, int]) -> str:
        """Return a branch with the rows of a commit on top of the snapshot before: the staged branch, or a new one."""
        since = int(before.checksum)
        if commit.added:
            (batch,) = commit.added  # no commit to such a table brings several
            branch = self._on_top_of(since, batch, commit.version, heads).branch
        else:
            branch = self.stage_on_branch(since).branch
        removed = [b for b in before.batches if b.id in commit.removed]
        if removed:
            try:
                self.table.delete(branch, iceberg_versions.rows_of(removed))
            except Exception:
                self._drop(branch)
                raise
        return branch

    def _on_top_of(self, since: int, batch: Batch, sequence: int, heads: Mapping[str, int]) -> _Written:
        """Write a staged batch on a new branch that begins with a snapshot."""
        written = self._written.get(batch.id)
        if written is None or written.branch not in heads:
            raise self._vacuumed(batch.id)
        if (written.since, written.sequence, written.link) != (since, sequence, heads[written.branch]):
            before, written = written, self.stage_on_branch(since, self._rows_of(written), sequence)
            self._written[batch.id] = written
            self._drop(before.branch)
        return written

    def _rows_of(self, written: _Written) -> DataFrame:
        return self.table.read(written.link).filter(f"{C.SEQUENCE} = {written.sequence}L")

    def _move_main(self, branch: str, *arguments: Any, **options: Any) -> int | None:
        """Publish a branch (:meth:`publish_branch`), and drop it on failure, unless the state of the commit is unknown."""
        try:
            return self.publish_branch(branch, *arguments, **options)
        except CommitStateUnknown:
            raise
        except Exception:
            self._drop(branch)
            raise

    def _drop(self, branch: str) -> None:
        with reporting.best_effort(self.path, "removing a branch"):
            self.table.drop(branch)

    def publish_branch(
        self, branch: str, commit: Commit, after: Snapshot, since: int | None, is_first: bool = False
    ) -> int | None:
        """Write the commit into the snapshot of its branch, and move ``main`` there from ``since``; None if others were faster."""
        told = {
            iceberg_versions.STATE: json.dumps(after.to_json()),
            iceberg_versions.COMMIT: json.dumps(commit.to_json()),
        }
        if since is not None and not is_first:
            told[iceberg_versions.ON_TOP_OF] = str(since)
        self.table.append(branch, self.spark.createDataFrame([], self.columns), told)
        faults.fault("iceberg.told")
        self.table.refresh()
        heads = self.table.heads()
        if heads.get(MAIN) != since:  # Iceberg would also move a table that was rolled back concurrently
            return None
        if branch not in heads:
            raise self._vacuumed(branch.partition("_")[2])
        try:
            landed = self.table.fast_forward(branch, since)
        except Exception as error:  # noqa: BLE001 - after any error, the commit may have landed
            landed = self._landed_after(commit, error)
        if not landed:
            return None
        faults.fault("iceberg.committed")
        with reporting.best_effort(self.path, f"tidying up after version {commit.version}"):
            self.table.tag(iceberg_versions.KEPT, heads[branch])
            self.table.drop(branch)
        return heads[branch]

    def _landed_after(self, commit: Commit, error: Exception) -> bool:
        """Find out whether a failed move of ``main`` took effect."""
        try:
            self.refreshed()
            found = any(c.link.summary.get(iceberg_versions.COMMIT, "").find(commit.id) >= 0 for c in self.versions())
        except Exception as second:  # noqa: BLE001 - then the state is unknown
            raise CommitStateUnknown(
                f"{error}; whether {self.path} was committed to could not be found out ({second})"
            ) from error
        if not found:
            raise CommitStateUnknown(f"{error}; {self.path} does not show the commit (yet)") from error
        return True


# Making a table one of ours --------------------------------------------------------------------------------------------


def _create_sql(name: str, definition: TableDefinition) -> str:
    columns = [_declared(f) for f in (*definition.fields, *iceberg_versions.hidden_fields(definition))]
    comment = f" COMMENT {literal(definition.comment)}" if definition.comment else ""
    own = {n: v for n, v in definition.properties.items() if not n.startswith(_PREFIX)}
    if definition.fileFormat != "parquet":
        own["write.format.default"] = definition.fileFormat
    properties = f" TBLPROPERTIES ({', '.join(map(_pair, own.items()))})" if own else ""
    return f"CREATE TABLE {name} ({', '.join(columns)}) USING iceberg{comment}{properties}"


def _create(table: CatalogTable, definition: TableDefinition) -> None:
    try:
        if not table.exists():
            table.sql(_create_sql(table.name, definition))
            return
    except Exception as error:
        if not is_spark_error(error):
            raise
        if "ALREADY_EXISTS" not in str(error):
            raise errors.InvalidDefinitionError(f"{table.shown} cannot be created: {clean_message(error)}") from None
    raise errors.TableExistsError(
        f"There is a table {table.shown} already. Open it with TrinityTable.forName, and name its keys if it is none of "
        "trinitymerge's yet.",
        path=table.shown,
    )


def _add_columns_sql(name: str, definition: TableDefinition, columns: StructType) -> str | None:
    """Return the statement that adds the library's columns to a table; None if it has them."""
    has = {n.lower() for n in columns.names}
    missing = [_declared(f) for f in iceberg_versions.hidden_fields(definition) if f.name not in has]
    return f"ALTER TABLE {name} ADD COLUMNS ({', '.join(missing)})" if missing else None


def _declared(field: Field) -> str:
    """Return a column as nullable for the catalog: merges refuse nulls and name the row, where the format would only fail."""
    comment = f" COMMENT {literal(field.comment)}" if field.comment else ""
    return f"{E.quote(field.name)} {E.sql_type(E.physical_type(field))}{comment}"


def _set_keys_sql(name: str, definition: TableDefinition) -> str:
    """Return the statement that keeps the keys in the table's properties, where people and catalogs see them."""
    told = {
        "primaryKey": ", ".join(definition.primaryKey),
        "watermarkKey": ", ".join(definition.watermarkKey),
        "tombstoneKey": definition.tombstoneKey,
        "tombstoneStringValue": definition.tombstoneStringValue,
    }
    pairs = [_pair((_PREFIX + key, value)) for key, value in told.items() if value]
    return f"ALTER TABLE {name} SET TBLPROPERTIES ({', '.join(pairs)})"


def _pair(pair: tuple[str, str]) -> str:
    return f"{literal(pair[0])} = {literal(pair[1])}"


def _profile_rows(rows: DataFrame, link: IcebergSnapshot, definition: TableDefinition) -> tuple[Batch | None, int]:
    """Return the existing rows of a table's newest snapshot as a batch, None if there are none, in two jobs.

    Also return the version that the table begins with: 0, or the next one if rows say that this library committed them before.
    """
    stored = iceberg_versions.columns_of(rows, [*definition.stored_fields, iceberg_versions.HIDDEN[0]])
    has_null = E.any_of(E.is_null(E.quote(k)) for k in definition.primaryKey)
    told = {
        "rows": "count(1)",
        "nulls": E.count_where(has_null),
        "tombstones": E.count_where(E.is_tombstone(definition)),
        "sequence": f"max({C.SEQUENCE})",
    }
    values = Metrics({**told, **watermark_metrics(definition, "true")}).compute(stored)
    if values["nulls"]:
        raise _nulls(stored.filter(has_null), values, definition)
    version = 0 if values["sequence"] is None else int(values["sequence"]) + 1
    if not values["rows"]:
        return None, version
    counts = stored.groupBy(*[F.expr(E.quote(k)) for k in definition.primaryKey]).agg(
        F.expr(f"count(1) > 1 AS {C.SEQUENCE}")
    )
    is_unique = counts.filter(C.SEQUENCE).isEmpty()
    return Batch(
        id=f"found-{link.id}",
        rows=values["rows"],
        tombstones=values["tombstones"],
        files=link.count("total-data-files"),
        bytes=link.count("total-files-size"),
        watermark_min=watermark_of(values, "min", definition),
        watermark_max=watermark_of(values, "max", definition),
        unique_keys=is_unique,
        base=is_unique,
        version=version,
        foreign=True,
    ), version


def _nulls(rows: DataFrame, values: Mapping[str, Any], definition: TableDefinition) -> errors.NullKeyError:
    shown = [tuple(r) for r in rows.select(*map(E.quote, definition.names)).limit(_SHOWN).collect()]
    return errors.NullKeyError(
        f"{errors.counted(values['nulls'])} of the table's {values['rows']:,} have a null in the primary key "
        f"({', '.join(definition.primaryKey)}), such as {'; '.join(map(str, shown))}. Nothing was changed. Delete them, or take "
        "another key.",
        rows=shown,
    )
