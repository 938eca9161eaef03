"""The steps in order, and the rows left out after them: unchanged updates, purged keys (S22b, S39a)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from trinitymerge.log.actions import PurgeKeys
from trinitymerge.merge.analysis import row_kinds
from trinitymerge.merge.compile import steps
from trinitymerge.merge.compile.fire import FIRE
from trinitymerge.merge.compile.lookup import columns_of_probe, probe_text
from trinitymerge.merge.compile.program import MergeProgram, before_watermarks
from trinitymerge.merge.compile.resolve_effects import (
    ASSIGN_WATERMARKS,
    COMPUTE_EFFECTS,
    FIND_CONFLICTING_MOVES,
    FIND_KEY_COLLISIONS,
    RESOLVE_KEYS,
    SUPPRESS_INSERTS,
)
from trinitymerge.merge.compile.shape import EVALUATE, EXPLODE, PROJECT, STRIP_TOMBSTONES
from trinitymerge.merge.compile.steps import Step
from trinitymerge.rows.purged_keys import mark_purged
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.expressions import quote
from trinitymerge.spark.system_columns import EFFECT, IN_SOURCE, KEEP, KEY_CHANGES, LIVE, PURGED, SALT, UNCHANGED


def without_purged(rows: DataFrame, definition: TableDefinition, purged: PurgeKeys | None) -> DataFrame:
    """Leaves out rows of purged keys: a replayed event must not bring them back.

    Args:
        rows: what :func:`trinitymerge.merge.compile.pipeline.settled` gives.
        definition: of the table.
        purged: the table's markers; None if nothing was purged.

    Returns:
        The rows; where keys were purged, ``_tm_keep`` is false on theirs, and :data:`PURGED` says why.
    """
    if purged is None:
        return rows
    marked = mark_purged(rows, definition, purged, PURGED)
    others = [quote(n) for n in marked.columns if n not in (KEEP, PURGED)]
    return marked.selectExpr(*others, f"{KEEP} AND {PURGED} IS NULL AS {KEEP}", f"{KEEP} AND {PURGED} AS {PURGED}")


def without_unchanged(rows: DataFrame, definition: TableDefinition, all_have_keys: bool) -> DataFrame:
    """Leaves out updates that change nothing: not if another row of their key changes something, for they may be fresher than that.

    Args:
        rows: what :func:`trinitymerge.merge.compile.pipeline.settled` gives.
        definition: of the table.
        all_have_keys: no row that is not written is without a key.
    """
    keys = [quote(k) for k in definition.primaryKey]
    if not all_have_keys:
        rows, keys = rows.selectExpr("*", scattered()), [*keys, SALT]
    changes = f"max({KEEP} AND NOT {UNCHANGED}) OVER (PARTITION BY {', '.join(keys)}) AS {KEY_CHANGES}"
    is_left_out = f"{KEEP} AND {UNCHANGED} AND NOT {KEY_CHANGES}"
    others = [quote(n) for n in rows.columns if n not in (KEEP, EFFECT, UNCHANGED)]
    effect = f"CASE WHEN {is_left_out} THEN '{row_kinds.UNCHANGED}' ELSE {EFFECT} END AS {EFFECT}"
    return rows.selectExpr("*", changes).selectExpr(*others, effect, f"{KEEP} AND NOT ({is_left_out}) AS {KEEP}")


def scattered() -> str:
    """A number that is the same for all rows that are written, and spreads the others, as SQL with its name."""
    return f"CASE WHEN {KEEP} THEN 0 ELSE monotonically_increasing_id() % 1024 END AS {SALT}"


WRITING: tuple[Step, ...] = (EVALUATE, EXPLODE, PROJECT, STRIP_TOMBSTONES)
"""From fired clauses to rows with the stored columns."""

SETTLING: tuple[Step, ...] = (
    RESOLVE_KEYS,
    ASSIGN_WATERMARKS,
    SUPPRESS_INSERTS,
    FIND_CONFLICTING_MOVES,
    FIND_KEY_COLLISIONS,
    COMPUTE_EFFECTS,
)
"""From there, and from what the probe has found where a program has a use for one, to what each row means."""


def on_entry(program: MergeProgram) -> tuple[str, ...]:
    """The library's columns that the joined sides have."""
    return (IN_SOURCE, LIVE, *before_watermarks(program.definition)) if program.knows_target else (IN_SOURCE,)


def fire(rows: DataFrame, program: MergeProgram) -> DataFrame:
    """The rows on which clauses fire."""
    return steps.run((FIRE,), rows, program, on_entry(program))[0]


def settled(fired: DataFrame, program: MergeProgram, ask: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """The rows that a program writes.

    Args:
        fired: what :func:`fire` gives.
        program: the merge.
        ask: adds what the written keys hold; asked only where the join does not tell.
    """
    rows, present = steps.run(WRITING, fired, program, (*on_entry(program), *FIRE.adds(program)))
    if program.unknown:
        rows, present = ask(rows), (*present, *columns_of_probe(program))
    return steps.run(SETTLING, rows, program, present, fused=True)[0]


def as_text(source: str, program: MergeProgram) -> str:
    """The whole as SQL, to be read and not to be run elsewhere: see :meth:`trinitymerge.merge.execute.plan.MergePlan.sql`."""
    query, present = steps.text((FIRE, *WRITING), source, program, on_entry(program))
    if program.unknown:
        query, present = probe_text(query, program), (*present, *columns_of_probe(program))
    return steps.text(SETTLING, query, program, present)[0]
