"""What must hold of a staged batch before it is committed, and the counts it gives (S12, S25, S30a, S34).

Owns: the metrics observed while the batch is written, the one pass over the staged keys, and the errors both can raise.
Messages name the rows; the extra look that finds them is taken only when something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from trinitymerge.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.errors import (
    AmbiguousMergeError,
    DuplicateKeyError,
    NullKeyError,
    SchemaMismatchError,
    StaleRowsError,
    counted,
)
from trinitymerge.expressions import all_of, any_of, count_where, is_tombstone, physical_type, quote
from trinitymerge.merge.clauses import Assignments, Clause, Update, describe_all
from trinitymerge.merge.names import key_text, name_parts
from trinitymerge.merge.paths import Path
from trinitymerge.merge.program import CLAUSE, EFFECT, KEEP, MISFIT, SLOT, UNDECIDED, Program
from trinitymerge.merge.settling import (
    DELETED,
    DUPLICATE,
    INSERTED,
    MOVED,
    MOVED_OVER_DELETED,
    MOVES,
    STALE,
    STALE_MOVE,
    TORN,
    UPDATED,
    WITHHELD,
)
from trinitymerge.reader import comparable
from trinitymerge.statistics import watermark_metrics, watermark_of

StagedRows: TypeAlias = Callable[[], DataFrame]
"""Opens the staged batch, for what must be looked up there; a clean merge never does."""

_SHOWN = 5
IS_STALE = f"{EFFECT} IN ('{STALE}', '{STALE_MOVE}')"
"""Is a settled or staged row older than what it would replace; null where that is not known."""

_N = HIDDEN_PREFIX + "n"
_SCATTER = HIDDEN_PREFIX + "scatter"
_EFFECT_WEIGHTS = {
    "inserted": {INSERTED: 1},
    "updated": {UPDATED: 1, MOVED: 1, MOVED_OVER_DELETED: 1},
    "deleted": {DELETED: 1, MOVED_OVER_DELETED: 1},
}

# Observed in the write job --------------------------------------------------------------------------------------------


def with_key_counts(rows: DataFrame, program: Program, all_written: bool) -> DataFrame:
    """Gathers the rows of each key in one place and counts them, so that the write job itself finds keys that are not unique.

    This is also what sizes the files: adaptive execution joins the shuffle's small partitions, so that a small batch is
    one file. Within a file the rows are sorted by key, which lets filters on the key skip parts of it.

    Args:
        rows: what :func:`trinitymerge.merge.settling.settle` gives.
        program: the merge.
        all_written: every row is to be written; others have no key yet, and must not all meet in one place.
    """
    keys = [quote(k) for k in program.definition.primaryKey]
    if not all_written:
        scattered = f"CASE WHEN {KEEP} THEN 0 ELSE monotonically_increasing_id() % 1024 END AS {_SCATTER}"
        rows, keys = rows.selectExpr("*", scattered), [*keys, _SCATTER]
    return rows.selectExpr("*", f"{count_where(KEEP)} OVER (PARTITION BY {', '.join(keys)}) AS {_N}")


def observed_metrics(program: Program) -> dict[str, str]:
    """The aggregates to observe above the last shuffle of the write job, where each row counts exactly once.

    Only those that the merge can need: each costs a little for every row.
    """
    definition = program.definition
    return {
        "source": "count(1)",
        "rows": count_where(KEEP),
        "contested": count_where(f"{KEEP} AND {_N} > 1"),
        "tombstones": count_where(f"{KEEP} AND {is_tombstone(definition)}"),
        **_fit_metrics(program),
        **watermark_metrics(definition, KEEP),
        **(_blind_metrics() if program.path is Path.BLIND else _effect_metrics(program)),
    }


def _fit_metrics(program: Program) -> dict[str, str]:
    """Nulls where none may be, and values that do not fit their column."""
    fields, keys = program.definition.fields, program.definition.primaryKey
    fits = f"{KEEP} AND {MISFIT} IS NULL" if program.is_checked else KEEP
    metrics = {"null_keys": count_where(f"{fits} AND {_any_null(keys)}")}
    for i, field in enumerate(fields):
        if not field.nullable and field.name not in keys:
            metrics[f"null_{i}"] = count_where(f"{fits} AND {quote(field.name)} IS NULL")
    if program.is_checked:
        metrics |= {"misfits": f"count({MISFIT})", "misfit_min": f"min({MISFIT})", "misfit_max": f"max({MISFIT})"}
    return metrics


def _blind_metrics() -> dict[str, str]:
    return {"undecided": count_where(f"{SLOT} = {UNDECIDED}")}


def _effect_metrics(program: Program) -> dict[str, str]:
    """How often each clause fired, and what the rows of keys that have just one mean to readers."""
    metrics = {
        "stale": count_where(IS_STALE),
        **({"withheld": count_where(f"{EFFECT} = '{WITHHELD}'")} if program.beside_changes else {}),
        "duplicates": count_where(f"{KEEP} AND {EFFECT} = '{DUPLICATE}'"),
    }
    if program.moves:
        metrics["torn"] = count_where(f"{EFFECT} = '{TORN}'")
    for position in range(len(program.analysis.clauses)):
        slot = program.first_slot(position)
        if slot is not None:
            metrics[f"clause_{position}"] = count_where(f"{SLOT} = {slot}")
    return metrics | {n: _weighted(w, f"{KEEP} AND {_N} = 1") for n, w in _EFFECT_WEIGHTS.items()}


def _any_null(names: Iterable[str]) -> str:
    return f"({any_of(f'{quote(n)} IS NULL' for n in names)})"


@attrs.frozen
class Observed:
    """The metrics of the write job."""

    values: Mapping[str, Any] = attrs.field(eq=False)

    def __getitem__(self, name: str) -> int:
        return int(self.values.get(name) or 0)

    @property
    def stale(self) -> int:
        """The rows without effect on readers because what they would replace is fresher, written or not (S11, S21a)."""
        return self["stale"] + self["withheld"]

    def watermark(self, which: str, definition: TableDefinition) -> tuple[Any, ...] | None:
        """The smallest or largest declared watermark as statistics keep it, None when unknown."""
        return watermark_of(self.values, which, definition)

    def per_clause(self, clauses: int) -> tuple[int, ...]:
        """How often each clause fired."""
        return tuple(self[f"clause_{i}"] for i in range(clauses))


def check_observed(program: Program, observed: Observed, staged: StagedRows, clauses: tuple[Clause, ...]) -> None:
    """Refuses null keys, values that do not fit, and nulls where none may be (S2, S29, S34).

    Raises:
        NullKeyError, SchemaMismatchError: naming column, clause and rows.
    """
    definition = program.definition
    if observed["null_keys"]:
        _raise_null_key(definition, observed["null_keys"], staged(), clauses)
    if observed["misfits"]:
        _raise_misfit(definition, observed)
    for i, field in enumerate(definition.fields):
        if observed[f"null_{i}"]:
            rows = staged().filter(f"{quote(field.name)} IS NULL")
            raise SchemaMismatchError(
                f"Column '{field.name}' must not be null, but is in {counted(observed[f'null_{i}'])} of the merge: "
                f"{_shown(rows, definition)}. Nothing was written. Give the column a value in {_clauses_of(rows, clauses)}.",
                column=field.name,
            )


def _raise_null_key(definition: TableDefinition, count: int, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    rows = staged.filter(_any_null(definition.primaryKey))
    nulls = [k for k in definition.primaryKey if rows.filter(f"{quote(k)} IS NULL").limit(1).collect()]
    raise NullKeyError(
        f"There is a null in primary-key column {_listed(nulls)} of {counted(count)} to be written, from "
        f"{_clauses_of(rows, clauses)}: {_shown(rows, definition)}. Nothing was written. Filter such rows out of "
        "the source, or add a clause condition that leaves them out.",
        columns=nulls,
        rows=count,
    )


def _raise_misfit(definition: TableDefinition, observed: Observed) -> None:
    examples = [observed.values["misfit_min"], observed.values["misfit_max"]]
    name = examples[0].split("\t", 1)[0]
    values = dict.fromkeys(e.split("\t", 1)[1] for e in examples if e.startswith(name + "\t"))
    field = definition.field(name)
    raise SchemaMismatchError(
        f"Column '{name}' is {field.text}, and values of {counted(observed['misfits'])} of the merge do not fit, e.g. "
        f"{', '.join(repr(v) for v in values)}. Nothing was written. Correct the values, cast them explicitly, or filter "
        "the rows out.",
        column=name,
        values=tuple(values),
    )


# Keys with several rows -----------------------------------------------------------------------------------------------


@attrs.frozen
class KeyCounts:
    """What the keys of a batch say.

    Attributes:
        unique: every key has one row.
        inserted, updated, deleted: S30a, by the freshest row of each key.
    """

    unique: bool
    inserted: int
    updated: int
    deleted: int


def count_keys(definition: TableDefinition, staged: StagedRows, observed: Observed) -> KeyCounts:
    """The counts the write job has observed and, only if some key has several rows, a look at those in the staged batch."""
    counts = KeyCounts(not observed["contested"], *(observed[n] for n in _EFFECT_WEIGHTS))
    return counts if counts.unique else _with_contested(definition, staged(), counts)


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(quote(n)) for n in names]


def _weighted(weights: Mapping[str, int], where: str = "true") -> str:
    """The sum of the weights of the effects of some rows, as SQL."""
    whens = " ".join(f"WHEN '{effect}' THEN {weight}" for effect, weight in weights.items())
    return f"sum(CASE WHEN {where} THEN CASE {EFFECT} {whens} ELSE 0 END ELSE 0 END)"


def _with_contested(definition: TableDefinition, staged: DataFrame, counts: KeyCounts) -> KeyCounts:
    """Adds the keys with several rows: the freshest row that is not stale says what readers see (S12, S30a)."""
    key = f"PARTITION BY {', '.join(quote(k) for k in definition.primaryKey)}"
    moves = ", ".join(f"'{effect}'" for effect in MOVES)
    freshest = [
        f"coalesce({EFFECT} = '{STALE}', false)",
        *(f"{quote(w)} DESC NULLS LAST" for w in definition.watermarkKey),
        f"coalesce({EFFECT} IN ({moves}), false) DESC",
    ]
    rank = HIDDEN_PREFIX + "rank"
    ranked = staged.selectExpr(
        EFFECT,
        f"count(1) OVER ({key}) AS {_N}",
        f"row_number() OVER ({key} ORDER BY {', '.join(freshest)}) AS {rank}",
    )
    weights = {name: _weighted(weight, f"{rank} = 1") for name, weight in _EFFECT_WEIGHTS.items()}
    weights["deleted"] += f" + count_if({rank} > 1 AND {EFFECT} IN ({moves}))"  # nowhere to be seen any more
    columns = [F.expr(f"{weight} AS {name}") for name, weight in weights.items()]
    more = ranked.filter(f"{_N} > 1").agg(*columns).collect()[0]
    return attrs.evolve(counts, **{n: getattr(counts, n) + int(more[n] or 0) for n in _EFFECT_WEIGHTS})


def check_unambiguous(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    """Refuses two different rows for one key with equal watermarks (S12). Only asked when some key has several rows.

    Raises:
        AmbiguousMergeError: naming up to five keys and the clauses the rows came from.
    """
    own = [*definition.primaryKey, *definition.watermarkKey]
    content = ", ".join(comparable(f.name, physical_type(f)) for f in definition.stored_fields)
    different, dead = HIDDEN_PREFIX + "different", HIDDEN_PREFIX + "dead"
    written = staged.filter(f"NOT coalesce({EFFECT} = '{STALE_MOVE}', false)")
    groups = written.groupBy(*_columns(own)).agg(
        F.expr(f"count(1) AS {_N}"),
        F.expr(f"count_if({is_tombstone(definition)}) AS {dead}"),
        F.expr(f"count(DISTINCT struct({content})) AS {different}"),
        F.expr(f"sort_array(collect_set({CLAUSE})) AS {CLAUSE}"),
    )
    bad = groups.filter(f"{_N} > {dead} AND {different} > 1")
    found = bad.orderBy(*_columns(definition.primaryKey)).limit(_SHOWN).collect()
    if not found:
        return
    keys = [tuple(r[k] for k in definition.primaryKey) for r in found]
    where = describe_all(clauses, sorted({p - 1 for r in found for p in r[CLAUSE]}))
    listed = "; ".join(f"{_key_text(definition, k)} ({counted(r[_N])})" for k, r in zip(keys, found, strict=True))
    same = f"equal {_listed(definition.watermarkKey)}" if definition.watermarkKey else "no watermark to tell them apart"
    raise AmbiguousMergeError(
        f"The merge has several different rows for the same primary key ({', '.join(definition.primaryKey)}) with {same}: "
        f"{listed}{', ...' if len(found) == _SHOWN else ''}, from {where}. Nothing was written. "
        f"{_history_advice(definition, clauses) or _ONE_ROW_EACH}",
        keys=keys,
        columns=definition.primaryKey,
    )


_UPDATE_INSTEAD = "Update such rows instead, or match on the whole primary key."
_ONE_ROW_EACH = "Keep one row per key in the source, or give the table a watermark key that tells which one is fresher."


def raise_torn(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    """Raises the error for rows that are moved and changed otherwise, or moved to two places (S24)."""
    rows = staged.filter(f"{EFFECT} = '{TORN}'")
    keys = _keys(rows, definition)
    raise AmbiguousMergeError(
        f"The merge moves rows to other primary keys ({', '.join(definition.primaryKey)}) and also changes them otherwise, or "
        f"moves them to several: written would be {'; '.join(_key_text(definition, k) for k in keys)}, from "
        f"{_clauses_of(rows, clauses)}. Nothing was written, for such a row would live on twice. Keep one source row for each "
        "row that moves.",
        keys=keys,
        columns=definition.primaryKey,
    )


def raise_duplicates(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...], count: int) -> None:
    """Raises the error for rows that come to a live key which the merge does not free (S25)."""
    rows = staged.filter(f"{EFFECT} = '{DUPLICATE}'")
    keys = _keys(rows, definition)
    raise DuplicateKeyError(
        f"{counted(count)} would be written under primary keys that are live in the table and that this merge neither deletes "
        f"nor moves away: {'; '.join(_key_text(definition, k) for k in keys)}, from {_clauses_of(rows, clauses)}. "
        f"Nothing was written. {_history_advice(definition, clauses) or _UPDATE_INSTEAD}",
        keys=keys,
    )


def raise_stale(definition: TableDefinition, staged: DataFrame, latest: DataFrame, observed: Observed) -> None:
    """Raises the error for stale rows under ``onStale("error")`` (S11), with both watermarks."""
    count, withheld = observed["stale"], observed["withheld"]
    beside = f" The inserts beside them ({counted(withheld)}) would not be written either." if withheld else ""
    names = definition.watermarkKey
    theirs = latest.selectExpr(
        *[f"{quote(k)} AS {HIDDEN_PREFIX}k{i}" for i, k in enumerate(definition.primaryKey)],
        *[f"{quote(w)} AS {HIDDEN_PREFIX}t{i}" for i, w in enumerate(names)],
    )
    same = all_of(f"{quote(k)} = {HIDDEN_PREFIX}k{i}" for i, k in enumerate(definition.primaryKey))
    stale = staged.filter(IS_STALE).join(theirs, F.expr(same), "left")
    found = stale.orderBy(*_columns(definition.primaryKey)).limit(_SHOWN).collect()
    listed = [
        f"{_key_text(definition, tuple(r[k] for k in definition.primaryKey))}: {_values(r, names)} is older than "
        f"{', '.join(str(r[f'{HIDDEN_PREFIX}t{i}']) for i in range(len(names)))}"
        for r in found
    ]
    raise StaleRowsError(
        f"The merge has {counted(count)} older than what they would replace ({', '.join(names)}): {'; '.join(listed)}.{beside} "
        'Nothing was written. Leave late rows out, or choose onStale("skip") to let them lose or onStale("force") to '
        "let them win.",
        keys=[tuple(r[k] for k in definition.primaryKey) for r in found],
        rows=count,
    )


# Words ----------------------------------------------------------------------------------------------------------------


def _keys(rows: DataFrame, definition: TableDefinition) -> list[tuple[Any, ...]]:
    names = _columns(definition.primaryKey)
    return [tuple(r) for r in rows.select(*names).distinct().orderBy(*names).limit(_SHOWN).collect()]


def _key_text(definition: TableDefinition, key: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{n}={v!r}" if isinstance(v, str) else f"{n}={v}" for n, v in zip(definition.primaryKey, key, strict=True)
    )


def _values(row: Row, names: tuple[str, ...]) -> str:
    return ", ".join(str(row[n]) for n in names)


def _shown(rows: DataFrame, definition: TableDefinition) -> str:
    names = definition.names[:6]
    found = rows.select(*_columns(names)).limit(3).collect()
    return "; ".join("(" + ", ".join(f"{n}={r[n]!r}" for n in names) + ")" for r in found)


def _clauses_of(rows: DataFrame, clauses: tuple[Clause, ...]) -> str:
    positions = sorted(r[0] for r in rows.select(CLAUSE).distinct().collect())
    return describe_all(clauses, (p - 1 for p in positions))


def _history_advice(definition: TableDefinition, clauses: tuple[Clause, ...]) -> str:
    """What to do if a merge closes rows by changing their key: the shape of a type 2 dimension with a flag in its key."""
    assigned = [
        (name_parts(key_text(key)) or ("",))[-1].lower()
        for clause in clauses
        for action in clause.actions
        if isinstance(action, Update) and isinstance(action.values, Assignments)
        for key, _ in action.values.items
    ]
    changed = [k for k in definition.primaryKey if k.lower() in assigned]
    return (
        f"The merge changes {_listed(changed)}, a part of the primary key, and two rows come to share one. In a table that keeps "
        "the history of its rows, a flag is no part of the key, for all closed rows of one thing have it in common: use what "
        "tells them apart, such as the date from which a row holds (valid_from)."
        if changed
        else ""
    )


def _listed(names: Any) -> str:
    return ", ".join(f"'{n}'" for n in names)
