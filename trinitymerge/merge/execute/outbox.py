"""Stage and check the rows of a merge for other tables (S27)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import InvalidDefinitionError, InvalidMergeError, TrinityMergeError
from trinitymerge.fs import faults
from trinitymerge.log.actions import OutboxEntry
from trinitymerge.merge.analysis.outbox import OutboxRow, OutboxTarget
from trinitymerge.merge.compile.outbox_rows import outbox_rows_of
from trinitymerge.merge.compile.strategies import Compiled
from trinitymerge.merge.execute import validate
from trinitymerge.merge.execute.metrics import Observed, any_null
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.model.clauses import Clause, OtherTable
from trinitymerge.rows.tombstones import live_marker
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import capture_observations
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.predicates import holds_null, require_harmless, violation
from trinitymerge.stores.base import Staged, TableStore, require_managed
from trinitymerge.stores.file_format import check_storable
from trinitymerge.stores.registry import open_store

FAULT_POINTS = ("outbox.staged",)
"""Where this module may be killed, see ``fs/faults.py``."""


def opened(store: TableStore, definition: TableDefinition, table: OtherTable, where: str) -> OutboxTarget:
    """Return another table as it is when a merge is built. Files of the merging table keep the rows until they are delivered."""
    require_managed(store, where)
    other = open_store(store.spark, table.path)
    if other.path == store.path:
        raise InvalidMergeError(f"{where}: that is the table merged into. Use insertExpr for rows of this table.")
    found = OutboxTarget(table, other.snapshot().definition)
    require_harmless(store.spark, found.definition)
    try:
        check_storable(attrs.evolve(definition, fields=found.fields))
    except InvalidDefinitionError as error:
        raise InvalidMergeError(
            f"{where}: the rows lie in files of {store.path} until they are there, which cannot keep them. {error}"
        ) from None
    return found


@attrs.frozen
class StagedOutbox:
    """Rows for another table: staged, and as the merge's commit will say them."""

    staged: Staged
    entry: OutboxEntry


def stage_outbox(plan: MergePlan, compiled: Compiled) -> Iterator[StagedOutbox]:
    """Stage and check the rows for each other table that has any."""
    outbox_plan = plan.analysis.outbox_plan
    for destination, to_one in outbox_plan.by_destination if outbox_plan is not None else ():
        _check_unchanged(plan.spec.store, destination)
        found = _staged(plan, compiled, destination, to_one)
        faults.fault("outbox.staged")
        if found is not None:
            yield found


def _check_unchanged(store: TableStore, destination: OutboxTarget) -> None:
    now = open_store(store.spark, destination.table.path).snapshot().definition
    if now != destination.definition:
        raise InvalidMergeError(
            f"The definition of {destination.table} has changed since the merge into {store.path} was built. Nothing was "
            "written; build it again."
        )


def _staged(
    plan: MergePlan, compiled: Compiled, destination: OutboxTarget, to_one: Iterable[OutboxRow]
) -> StagedOutbox | None:
    """Return the rows for one table; None if there are none."""
    gathering = Metrics(_metrics(destination))
    rows = compiled.rows.coalesce(1) if compiled.in_one_task else compiled.rows
    values = ", ".join(E.quote(f.name) for f in destination.fields)
    keys = [f"{C.ORIGIN_KEY}.{E.quote(k)} AS {E.quote(k)}" for k in plan.definition.primaryKey]
    observed_rows = gathering.observe(outbox_rows_of(rows, to_one))
    found = observed_rows.selectExpr(*keys, f"struct({values}) AS {C.OUTBOX_ROW}", C.CLAUSE)
    store = require_managed(plan.spec.store, f"A merge with rows for {destination.table}")
    with capture_observations(store.spark):
        staged = store.stage_outbox(found, plan.definition)
    try:
        observed = Observed(gathering.collect())
        if observed["rows"]:
            _check(destination, plan.spec.store.read_staged(staged), observed, plan.spec.clauses)
            return StagedOutbox(staged, entry_of(staged, observed["rows"], destination))
    except BaseException:
        plan.spec.store.discard(staged)
        raise
    plan.spec.store.discard(staged)
    return None


def entry_of(staged: Staged, rows: int, destination: OutboxTarget) -> OutboxEntry:
    return OutboxEntry(
        id=staged.id,
        rows=rows,
        files=staged.files,
        bytes=staged.size_bytes,
        path=destination.table.path,
        fields=destination.fields,
        primary_key=destination.keys,
        watermark_key=destination.definition.watermarkKey,
    )


def _metrics(destination: OutboxTarget) -> dict[str, str]:
    fits = f"{C.MISFIT} IS NULL"
    metrics = {"rows": "count(1)", "misfits": f"count({C.MISFIT})"}
    metrics |= {"misfit_min": f"min({C.MISFIT})", "misfit_max": f"max({C.MISFIT})"}
    metrics["null_keys"] = E.count_where(f"{fits} AND {any_null(destination.keys)}")
    for i, field in enumerate(destination.fields):
        wrong = holds_null(field)
        if wrong != E.FALSE and field.name not in destination.keys:
            metrics[f"null_{i}"] = E.count_where(f"{fits} AND ({wrong})")
    own = destination.definition
    for i, check in enumerate(own.checks):
        broken = violation(own, check, is_never_dead=own.tombstoneKey is None)
        metrics[f"check_{i}"] = E.count_where(f"{fits} AND {broken}")
    return metrics


def _check(destination: OutboxTarget, staged: DataFrame, observed: Observed, clauses: tuple[Clause, ...]) -> None:
    """Raise for rows that the other table could not take (S2, S12, S29)."""
    own = destination.definition
    rows = staged.selectExpr(f"{C.OUTBOX_ROW}.*", C.CLAUSE, f"CAST(NULL AS STRING) AS {C.EFFECT}")
    if own.tombstoneKey is None:
        rows = rows.selectExpr("*", f"{live_marker(own)} AS {E.quote(own.tombstone_column)}")
    where = tuple(attrs.evolve(clause, actions=()) for clause in clauses)
    try:
        validate.check_observed(own, observed, lambda: rows, where)
        validate.check_unambiguous(own, rows, where)
    except TrinityMergeError as error:
        raise type(error)(f"insertHistoryExpr into {destination.table}: {error}", **error.facts) from None
