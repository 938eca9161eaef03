"""The metrics of a merge's write job, and the counts computed from them (S30a)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.merge.analysis import row_kinds
from trinitymerge.merge.compile.pipeline import SALTED
from trinitymerge.merge.compile.program import NEEDS_TARGET, MergeProgram
from trinitymerge.merge.compile.strategies import Compiled
from trinitymerge.rows import registers
from trinitymerge.rows.resolution import Order, rank
from trinitymerge.rows.watermarks import watermark_metrics
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.predicates import holds_null, violation
from trinitymerge.spark.session import select_exprs
from trinitymerge.spark.sql_text import Sql

StagedRows: TypeAlias = Callable[[], DataFrame]
"""Opens the staged batch, for what must be looked up there; a clean merge never does."""


def with_key_counts(compiled: Compiled, rows: DataFrame, definition: TableDefinition) -> DataFrame:
    """Bring the rows of each key together and count them, so that the write job finds duplicate keys.

    This is also what sizes the files: adaptive execution joins the shuffle's small partitions, so that a small batch is
    one file. Within a file the rows are sorted by key, which lets filters on the key skip parts of it; a layout sorts them again
    (S7c). Rows without a key that are not written must not all meet in one place.
    """
    keys = [E.quote(k) for k in definition.primaryKey]
    if not compiled.all_have_keys:
        keys = [*keys, SALTED]
    return select_exprs(rows, ["*", f"{E.count_where(C.KEEP)} OVER (PARTITION BY {', '.join(keys)}) AS {C.KEY_ROWS}"])


def observed_metrics(
    compiled: Compiled, definition: TableDefinition, clauses: int, is_sequenced: bool = False
) -> dict[str, str]:
    """Return the aggregates to observe above the last shuffle of the write job, where each row counts exactly once.

    Only those that the merge can need: each costs a little for every row. If it ``is_sequenced``, no watermark may be null.
    """
    required = definition.watermarkKey if is_sequenced else ()
    undecided = E.count_where(f"{C.COUNTS_FOR_CLAUSE} = {NEEDS_TARGET}")
    return {
        "source": _of_source(compiled.rows.columns),
        "rows": E.count_where(C.KEEP),
        "contested": E.count_where(f"{C.KEEP} AND {C.KEY_ROWS} > 1"),
        "tombstones": E.count_where(f"{C.KEEP} AND {E.is_tombstone(definition)}"),
        **_fit_metrics(compiled, definition, required),
        **watermark_metrics(definition, C.KEEP),
        **(_register_metrics(compiled, definition) if C.UNSET in compiled.rows.columns else {}),
        **({"unchanged": E.count_where(f"{C.EFFECT} = '{row_kinds.UNCHANGED}'")} if compiled.is_compared else {}),
        **({"undecided": undecided} if not compiled.program.knows_target else {}),
        **(_effect_metrics(compiled.program, clauses) if compiled.knows_counts else {}),
    }


def _of_source(columns: Sequence[str]) -> str:
    """Count the rows that come from the source, and not from other rows."""
    others = [f"{C.ENDING} = 0"] if C.ENDING in columns else []
    others += [f"NOT {C.MENDED}"] if C.MENDED in columns else []
    return E.count_where(" AND ".join(others)) if others else "count(1)"


def _register_metrics(compiled: Compiled, definition: TableDefinition) -> dict[str, str]:
    """Count partial rows, mended rows, and unchanged values that no row has set (U2, U4)."""
    metrics = {
        **registers.metrics(definition, C.KEEP),
        "mended": E.count_where(f"{C.KEEP} AND {C.MENDED}"),
        "unknown": f"sum(CASE WHEN {C.KEEP} THEN {C.UNKNOWN} ELSE 0 END)",
    }
    if C.REASON in compiled.rows.columns:
        is_broken = E.any_of(rule.is_broken for rule in broken_rules(definition, ()))
        metrics["broken_mended"] = E.count_where(E.all_of([C.KEEP, C.MENDED, is_broken]))
    return metrics


def _fit_metrics(compiled: Compiled, definition: TableDefinition, required: Sequence[str]) -> dict[str, str]:
    """Count nulls in NOT NULL columns, values that do not fit, and rows that break a constraint."""
    judged = is_judged(compiled, definition)
    rules = broken_rules(definition, required)
    metrics = {rule.name: E.count_where(f"{judged} AND {rule.is_broken}") for rule in rules}
    if compiled.is_checked:
        metrics |= {"misfits": f"count({C.MISFIT})", "misfit_min": f"min({C.MISFIT})", "misfit_max": f"max({C.MISFIT})"}
    return metrics


def is_judged(compiled: Compiled, definition: TableDefinition, kept: Sql = C.KEEP) -> Sql:
    """Return SQL that is true for rows, of those that are ``kept``, which the rules of the table apply to."""
    if C.UNSET in compiled.rows.columns and not definition.history:
        # A late row cannot be filled: only the latest row of its key is stored.
        kept = Sql(f"{kept} AND NOT ({C.UNSET} IS NOT NULL AND coalesce({row_kinds.HAS_STALE_EFFECT}, false))")
    return Sql(f"{kept} AND {C.MISFIT} IS NULL") if compiled.is_checked else kept


@attrs.frozen
class Rule:
    """A rule of a table that a row may break: the metric that counts such rows, the reason for a quarantine, and SQL for them."""

    name: str
    reason: str
    is_broken: Sql
    columns: tuple[str, ...]


def broken_rules(definition: TableDefinition, required: Sequence[str]) -> list[Rule]:
    """Return what rows are judged by: null keys, nulls in NOT NULL and other required columns, constraints (S2, S45)."""
    keys = definition.primaryKey
    rules = [Rule("null_keys", "null-key", Sql(any_null(keys)), keys)]
    for i, field in enumerate(definition.fields):
        wrong = holds_null(attrs.evolve(field, nullable=field.nullable and field.name not in required))
        if wrong != E.FALSE and field.name not in keys:
            rules.append(Rule(f"null_{i}", f"null:{field.name}", Sql(f"({wrong})"), (field.name,)))
    for i, check in enumerate(definition.checks):
        rules.append(Rule(f"check_{i}", f"check:{check.name}", Sql(violation(definition, check)), check.columns))
    return rules


def _effect_metrics(program: MergeProgram, clauses: int) -> dict[str, str]:
    """Count how often each clause fired, and the effects of rows whose key has one row."""
    metrics = {"stale": E.count_where(row_kinds.HAS_STALE_EFFECT)}
    metrics["duplicates"] = E.count_where(f"{C.KEEP} AND {C.EFFECT} = '{row_kinds.DUPLICATE}'")
    if program.beside_changes:
        metrics["suppressed"] = E.count_where(f"{C.EFFECT} = '{row_kinds.SUPPRESSED}'")
    if program.moves:
        metrics["conflicting_move"] = E.count_where(f"{C.EFFECT} = '{row_kinds.CONFLICTING_MOVE}'")
    for position in range(clauses):
        metrics[f"clause_{position}"] = E.count_where(f"{C.COUNTS_FOR_CLAUSE} = {position + 1}")
    return metrics | {name: _sum_of(name, f"{C.KEEP} AND {C.KEY_ROWS} = 1") for name in row_kinds.COUNTS}


def any_null(names: Iterable[str]) -> str:
    return f"({E.any_of(E.is_null(E.quote(n)) for n in names)})"


@attrs.frozen
class Observed:
    values: Mapping[str, Any] = attrs.field(eq=False)

    def __getitem__(self, name: str) -> int:
        return int(self.values.get(name) or 0)

    @property
    def stale(self) -> int:
        """The rows without effect on readers because what they would replace is fresher, written or not (S11, S21a)."""
        return self["stale"] + self["suppressed"]

    def per_clause(self, clauses: int) -> tuple[int, ...]:
        return tuple(self[f"clause_{i}"] for i in range(clauses))


@attrs.frozen
class KeyCounts:
    """The counts by key of a batch.

    Attributes:
        unique: every key has one row.
        inserted, updated, deleted: S30a, by the freshest row of each key.
    """

    unique: bool
    inserted: int
    updated: int
    deleted: int


def count_keys(definition: TableDefinition, staged: StagedRows, observed: Observed) -> KeyCounts:
    """Return the observed counts; if a key has several rows, correct them by a look at the staged batch."""
    counts = KeyCounts(not observed["contested"], *(observed[n] for n in row_kinds.COUNTS))
    return counts if counts.unique else _with_contested(definition, staged(), counts)


def _sum_of(count: str, where: str) -> str:
    """Return the sum of the effects of some rows, as SQL; ``count`` is one of :data:`row_kinds.COUNTS`."""
    whens = " ".join(f"WHEN '{effect}' THEN {n}" for effect in row_kinds.EFFECTS if (n := getattr(effect, count)))
    return f"sum(CASE WHEN {where} THEN CASE {C.EFFECT} {whens} ELSE 0 END ELSE 0 END)"


def _with_contested(definition: TableDefinition, staged: DataFrame, counts: KeyCounts) -> KeyCounts:
    """Add the effects of keys with several rows: that of the freshest row that is not stale (S12, S30a)."""
    keys = [E.quote(k) for k in definition.primaryKey]
    moves = ", ".join(f"'{effect}'" for effect in row_kinds.EFFECTS if effect.is_move)
    freshest = [
        Sql(f"coalesce({row_kinds.HAS_STALE_EFFECT}, false)"),
        *Order.of(definition).freshest_first(),
        Sql(f"coalesce({C.EFFECT} IN ({moves}), false) DESC"),
        # A tombstone at a truncate, beside that of a key which was live, comes last.
        Sql(f"coalesce({C.EFFECT} = '{row_kinds.NO_EFFECT.text}', false)"),
    ]
    ranked = staged.selectExpr(
        C.EFFECT,
        f"{E.over(Sql('count(1)'), keys)} AS {C.KEY_ROWS}",
        f"{rank(keys, freshest)} AS {C.RANK}",
    )
    sums = {name: _sum_of(name, f"{C.RANK} = 1") for name in row_kinds.COUNTS}
    sums["deleted"] += f" + count_if({C.RANK} > 1 AND {C.EFFECT} IN ({moves}))"  # nowhere to be seen any more
    columns = [F.expr(f"{total} AS {name}") for name, total in sums.items()]
    more = ranked.filter(f"{C.KEY_ROWS} > 1").agg(*columns).collect()[0]
    return attrs.evolve(counts, **{n: getattr(counts, n) + int(more[n] or 0) for n in row_kinds.COUNTS})
