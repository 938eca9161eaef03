"""Columns that a merge adds to the table, and plans made again after alterations (S35, S44)."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from trinitymerge.errors import ConcurrentCommitError, InvalidMergeError
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.analyze import texts_of
from trinitymerge.merge.analysis.ignored_columns import ignored_columns, mentions
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.model.clauses import Clause
from trinitymerge.merge.model.names import key_text, name_parts
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import changed_meaning, evolve_for_source
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E
from trinitymerge.stores.file_format import check_storable


def evolve_schema(
    own: TableDefinition, source: DataFrame | None, condition: Any, clauses: tuple[Clause, ...], at: tuple[Any, ...]
) -> TableDefinition:
    """Return the table's definition with the columns that the source adds (S44).

    Columns are new that ``updateAll`` and ``insertAll`` would leave out and nothing mentions (S22a), and those that a map assigns.
    """
    if source is None:
        raise InvalidMergeError(
            "A merge without a source cannot be given withSchemaEvolution(): add the columns with alter().addColumn(...) first."
        )
    case_sensitive, own_name = (
        E.is_case_sensitive(source.sparkSession),
        partial(E.find_name, names=own.names, case_sensitive=False),
    )
    plain = ({**f.jsonValue(), "type": E.without_collations(f.dataType).jsonValue()} for f in source.schema.fields)
    brought = [Field.from_json(field) for field in plain]
    new = ignored_columns(source.schema.names, own, texts_of(condition, clauses, at), clauses, case_sensitive)
    keys = [name_parts(key_text(key)) for c in clauses for a in c.changes for key, _ in a.assignments]
    # A key may begin with the target's alias.
    assigned = {(k[0] if len(k) == 1 or own_name(k[0]) else k[1]).casefold() for k in keys if k}
    listed = [a.from_source.columns for c in clauses for a in c.changes if a.from_source and a.from_source.columns]
    assigned |= {name.casefold() for names in listed for name in names}
    unknown = [f.name for f in brought if E.find_name(f.name, own.names, case_sensitive=False) is None]
    named = [name for name in unknown if name.casefold() in assigned]
    taken = brought if any(a.from_source is not None for c in clauses for a in c.changes) else []
    left = [{n.casefold() for n in a.from_source.exceptColumns} for c in clauses for a in c.changes if a.from_source]
    excepted = set[str]().union(*left[:1]).intersection(*left)  # what every clause leaves out
    wanted = [f for f in taken if f.name.casefold() not in excepted]
    wanted += [f for f in brought if f.name in named and f not in wanted]
    definition = evolve_for_source(own, wanted, {*new, *named})
    if definition == own:
        return own
    definition = TableDefinition.from_json(definition.to_json())
    check_storable(definition)
    return definition


def replan(plan: MergePlan, snapshot: Snapshot) -> MergePlan:
    """Return the plan for a table that was altered since, if the merge means the same there (S35)."""
    why = "; ".join(_why_not_the_same(plan, plan.batches.definition, snapshot.definition))
    if why:
        raise ConcurrentCommitError(
            f"{plan.spec.store.path} has been altered since the merge was built, and the merge does not mean the same any more: "
            f"{why}. Nothing was written; open the table again, and build the merge again.",
            path=plan.spec.store.path,
            version=snapshot.version,
        )
    return plan.again(snapshot)


def _why_not_the_same(plan: MergePlan, before: TableDefinition, after: TableDefinition) -> list[str]:
    changed = changed_meaning(before, after)
    if any(a.from_source is not None for c in plan.spec.clauses for a in c.changes):
        return list(changed.values())
    keys = {*before.primaryKey, *before.watermarkKey, before.tombstoneKey}
    texts = texts_of(plan.analysis.condition, plan.spec.clauses, plan.spec.settings.at)
    texts += [key_text(key) for c in plan.spec.clauses for a in c.changes for key, _ in a.assignments]
    return [why for name, why in changed.items() if name in keys or any(mentions(text, name) for text in texts)]
