"""The steps of a merge, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
from pyspark.sql import Column, DataFrame

from trinitymerge.log.actions import PurgeKeys
from trinitymerge.merge.analysis import row_kinds
from trinitymerge.merge.compile import steps
from trinitymerge.merge.compile.fire import FIRE, added_columns
from trinitymerge.merge.compile.probe import as_struct, columns_of_probe, probe_text
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
from trinitymerge.merge.compile.steps import LeftJoin, Select, Step
from trinitymerge.rows.purged_keys import is_purged, purged_keys
from trinitymerge.rows.registers import as_map
from trinitymerge.rows.tombstones import null_value, tombstone_marker
from trinitymerge.rows.watermarks import Watermark, is_below, watermark_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql

SALTED = E.case([(C.KEEP, Sql("0"))], Sql("monotonically_increasing_id() % 1024"))
"""The same for all rows that are written; it spreads the others, which may have no key."""


@attrs.frozen(eq=False)
class LeftOut:
    """The rows to leave out of those of a program.

    Attributes:
        truncated_at: the watermark of its last truncate, or None.
        refuses_stale: stale rows are written, for the merge to be refused (S11).
        unchanged: updates that change nothing are left out (S22b).
    """

    definition: TableDefinition
    purged: PurgeKeys | None
    truncated_at: Watermark | None = None
    refuses_stale: bool = False
    unchanged: bool = False


@attrs.frozen(eq=False)
class Truncates:
    """The truncates of a table with history (T1).

    Attributes:
        truncates: their watermarks, in their order.
        held: the keys, :data:`C.KEY_TO_FIND`, that have rows at truncates, and the watermarks of these rows, :data:`C.HELD`.
    """

    definition: TableDefinition
    truncates: tuple[Watermark, ...]
    held: Callable[[], DataFrame]


def _skip_unchanged(left_out: LeftOut, present: Sequence[str]) -> tuple[Select, ...]:
    """Set KEEP and EFFECT, from these, UNCHANGED and the key, and drop UNCHANGED."""
    if not left_out.unchanged:
        return ()
    keys = ", ".join(map(E.quote, left_out.definition.primaryKey))
    changes = Sql(f"max({C.KEEP} AND NOT {C.UNCHANGED}) OVER (PARTITION BY {keys})")
    is_left_out = f"{C.KEEP} AND {C.UNCHANGED} AND NOT {C.KEY_CHANGES}"
    effect = Sql(f"CASE WHEN {is_left_out} THEN '{row_kinds.UNCHANGED}' ELSE {C.EFFECT} END")
    others = [n for n in present if n != C.UNCHANGED]
    return (
        Select.adding({C.KEY_CHANGES: changes}),
        Select.setting(others, {C.EFFECT: effect, C.KEEP: Sql(f"{C.KEEP} AND NOT ({is_left_out})")}),
    )


def _skip_purged(left_out: LeftOut, present: Sequence[str]) -> tuple[Select, ...]:
    """Set KEEP and add PURGED, from KEEP and the key."""
    purged = left_out.purged
    if purged is None:
        return ()
    on = is_purged(left_out.definition, purged)
    join = LeftJoin("purged_keys", partial(purged_keys, purged=purged), on)
    keep, purged_rows = Sql(f"{C.KEEP} AND {C.PURGED} IS NULL"), Sql(f"{C.KEEP} AND {C.PURGED}")
    return (attrs.evolve(Select.setting(present, {C.KEEP: keep, C.PURGED: purged_rows}), join=join),)


def _skip_truncated(left_out: LeftOut, present: Sequence[str]) -> tuple[Select, ...]:
    """Set KEEP and add TRUNCATED, from KEEP, EFFECT and the watermark."""
    below = None if left_out.truncated_at is None else is_below(left_out.definition, left_out.truncated_at)
    if below is None or left_out.definition.history:
        return ()
    older = Sql(below)
    if left_out.refuses_stale:
        older = E.all_of([older, E.not_(E.or_else(row_kinds.HAS_STALE_EFFECT, E.FALSE))])
    values: dict[str, Sql | Column] = {
        C.KEEP: E.all_of([C.KEEP, E.not_(older)]),
        C.TRUNCATED: E.all_of([C.KEEP, older]),
    }
    return (Select.setting(present, values),)


def _end_at_truncates(ends: Truncates, present: Sequence[str]) -> tuple[Select, ...]:
    """Add ENDING, and rows where it is 1, from KEEP, EFFECT and the stored columns; HELD comes from ``ends``."""
    own, names = ends.definition, [f.name for f in ends.definition.stored_fields]
    truncates = [(is_below(own, at), watermark_sql(at, own)) for at in ends.truncates]
    branches = [(Sql(below), as_struct(literals)) for below, literals in truncates if below and literals]
    if not branches:
        return ()
    is_late = E.all_of([C.KEEP, E.not_(E.is_tombstone(own)), Sql(is_below(own, ends.truncates[-1]) or E.FALSE)])
    here = as_struct([E.quote(w) for w in own.watermarkKey])
    held = E.over(Sql(f"collect_set(CASE WHEN {C.KEEP} THEN {here} END)"), [*map(E.quote, own.primaryKey), SALTED])
    on = E.all_of(E.equals(E.quote(k), C.KEY_TO_FIND(i)) for i, k in enumerate(own.primaryKey))
    join = LeftJoin("rows_at_truncates", lambda _: ends.held(), on, is_small=False)
    places: dict[str, Sql | Column] = {C.NEXT_TRUNCATE: E.case([(is_late, E.case(branches))]), C.HELD_HERE: held}
    is_free = (
        E.not_(E.or_else(Sql(f"array_contains({c}, {C.NEXT_TRUNCATE})"), E.FALSE)) for c in (C.HELD_HERE, C.HELD)
    )
    ended = E.all_of([E.is_not_null(C.NEXT_TRUNCATE), *is_free])
    copies = Select.adding({C.ENDING: Sql(f"explode(CASE WHEN {ended} THEN array(0, 1) ELSE array(0) END)")})
    known: dict[str, Sql] = {f.name: null_value(f) for f in own.stored_fields if f.name not in own.primaryKey}
    known |= {w: E.field_of(C.NEXT_TRUNCATE, f"w{i}") for i, w in enumerate(own.watermarkKey)}
    known[own.tombstone_column] = tombstone_marker(own)
    nothing = E.case([(E.is_not_null(C.EFFECT), E.text_literal(row_kinds.NO_EFFECT.text))])
    known |= {C.EFFECT: nothing, C.ACTION: E.text_literal("end at a truncate"), C.CLAUSE: Sql("CAST(NULL AS INT)")}
    known |= {C.COUNTS_FOR_CLAUSE: Sql("CAST(NULL AS INT)"), C.MISFIT: Sql("CAST(NULL AS STRING)")}
    known |= {C.UNSET: as_map([]), C.MENDED: E.FALSE, C.UNKNOWN: Sql("0")}
    is_copy = Sql(f"{C.ENDING} = 1")
    kept = {n: E.case([(is_copy, v)], E.quote(n) if n in names else Sql(n)) for n, v in known.items() if n in present}
    joined = attrs.evolve(Select.adding(places), join=join)
    return (joined, copies, Select.setting((*present, C.ENDING), kept))


SKIP_UNCHANGED = Step[LeftOut](
    "skip_unchanged",
    "updates that change nothing are not written, unless another row of their key changes something",
    _skip_unchanged,
)

SKIP_PURGED = Step[LeftOut](
    "skip_purged", "rows of purged keys are not written: a replayed event must not bring them back", _skip_purged
)


SKIP_TRUNCATED = Step[LeftOut](
    "skip_truncated", "rows older than the last truncate are not written: it deleted what they say", _skip_truncated
)

END_AT_TRUNCATES = Step[Truncates](
    "end_at_truncates",
    "with history, rows older than a truncate are row versions that end there, or where their key has a row",
    _end_at_truncates,
)

FILTERING: tuple[Step[LeftOut], ...] = (SKIP_TRUNCATED, SKIP_UNCHANGED, SKIP_PURGED)
"""Marks the rows that are not written (T1, S22b, S39a)."""


SHAPING: tuple[Step[MergeProgram], ...] = (EVALUATE, EXPLODE, PROJECT, STRIP_TOMBSTONES)
"""From fired clauses to rows with the stored columns."""

SETTLING: tuple[Step[MergeProgram], ...] = (
    RESOLVE_KEYS,
    ASSIGN_WATERMARKS,
    SUPPRESS_INSERTS,
    FIND_CONFLICTING_MOVES,
    FIND_KEY_COLLISIONS,
    COMPUTE_EFFECTS,
)
"""From there, and from what the probe has found where a program has a use for one, to what each row means."""


def on_entry(program: MergeProgram) -> tuple[str, ...]:
    """Return the library's columns that the joined sides have."""
    joined = (C.LIVE, *before_watermarks(program.definition)) if program.knows_target else ()
    return (C.IN_SOURCE, *joined, *program.kept_source)


def fire(rows: DataFrame, program: MergeProgram) -> DataFrame:
    """Return the rows on which clauses fire."""
    return steps.run((FIRE,), rows, program, on_entry(program))[0]


def finish(fired: DataFrame, program: MergeProgram, ask: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return the rows that a program writes. ``ask`` adds what the written keys hold; called only if the join does not show it."""
    present = (*on_entry(program), *added_columns(program))
    if not program.unknown and not program.multiplies:
        return steps.run((*SHAPING, *SETTLING), fired, program, present, fused=True)[0]
    rows, present = steps.run(SHAPING, fired, program, present)
    if program.unknown:
        rows, present = ask(rows), (*present, *columns_of_probe(program))
    return steps.run(SETTLING, rows, program, present, fused=True)[0]


def mark_left_out(rows: DataFrame, left_out: LeftOut) -> DataFrame:
    """Return the rows of a program; ``_tm_keep`` is false on those that are not written (T1, S22b, S39a)."""
    return steps.run(FILTERING, rows, left_out, rows.columns)[0]


def ended_at_truncates(rows: DataFrame, ends: Truncates) -> DataFrame:
    """Return the rows, with :data:`C.ENDING`, and the tombstones where those end that are older than a truncate (T1)."""
    return steps.run((END_AT_TRUNCATES,), rows, ends, rows.columns)[0]


def as_text(source: str, program: MergeProgram, left_out: LeftOut, ends: Truncates | None) -> str:
    """Return all steps as SQL, to be read and not to be run elsewhere. The first rows are named in SQL's words."""
    query, present = steps.text((FIRE, *SHAPING), source, program, on_entry(program))
    if program.unknown:
        query, present = probe_text(query, program), (*present, *columns_of_probe(program))
    query, present = steps.text(SETTLING, query, program, present)
    query, present = steps.text(FILTERING, query, left_out, present)
    return query if ends is None else steps.text((END_AT_TRUNCATES,), query, ends, present)[0]
