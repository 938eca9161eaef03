"""What must hold of a staged batch before it is committed, and the counts it gives (S12, S25, S30a, S34).

Owns: the metrics observed while the batch is written, the one pass over the staged keys, and the errors both can raise.
Messages name the rows; the extra look that finds them is taken only when something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from trinitymerge.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.errors import (
    AmbiguousMergeError,
    DuplicateKeyError,
    NullKeyError,
    SchemaMismatchError,
    StaleRowsError,
)
from trinitymerge.expressions import all_of, any_of, is_tombstone, physical_type, quote
from trinitymerge.merge.clauses import Clause, describe
from trinitymerge.merge.compiler import (
    CLAUSE,
    DELETED,
    DELETED_TWICE,
    DUPLICATE,
    EFFECT,
    INSERTED,
    KEEP,
    MISFIT,
    SLOT,
    STALE,
    UNDECIDED,
    UPDATED,
    UPDATED_OVER_DELETED,
    Program,
)
from trinitymerge.reader import comparable

SMALL_BATCH_ROWS = 200_000
"""Up to this many staged rows are checked by one task, without a shuffle."""

_SHOWN = 5

# Observed in the write job --------------------------------------------------------------------------------------------


def observed_columns(program: Program) -> list[Column]:
    """The aggregates to observe above the last shuffle of the write job, where each row counts exactly once."""
    definition = program.definition
    fits = f"{KEEP} AND {MISFIT} IS NULL"
    metrics = {
        "source": "count(1)",
        "undecided": f"count_if({SLOT} = {UNDECIDED})",
        "rows": f"count_if({KEEP})",
        "tombstones": f"count_if({KEEP} AND {is_tombstone(definition)})",
        "stale": f"count_if({EFFECT} = '{STALE}')",
        "duplicates": f"count_if({KEEP} AND {EFFECT} = '{DUPLICATE}')",
        "misfits": f"count({MISFIT})",
        "misfit_min": f"min({MISFIT})",
        "misfit_max": f"max({MISFIT})",
        "null_keys": f"count_if({fits} AND {_any_null(definition.primaryKey)})",
    }
    for i, field in enumerate(definition.fields):
        if not field.nullable and field.name not in definition.primaryKey:
            metrics[f"null_{i}"] = f"count_if({fits} AND {quote(field.name)} IS NULL)"
    for position in range(len(program.analysis.clauses)):
        slot = program.first_slot(position)
        if slot is not None:
            metrics[f"clause_{position}"] = f"count_if({SLOT} = {slot})"
    metrics |= _watermark_metrics(definition)
    return [F.expr(f"{value} AS {name}") for name, value in metrics.items()]


def _any_null(names: Iterable[str]) -> str:
    return f"({any_of(f'{quote(n)} IS NULL' for n in names)})"


def _watermark_metrics(definition: TableDefinition) -> dict[str, str]:
    names = definition.watermarkKey
    if not names:
        return {}
    parts = ", ".join(f"'w{i}', {quote(n)}" for i, n in enumerate(names))
    row = f"CASE WHEN {KEEP} THEN named_struct({parts}) END"
    metrics = {"watermark_null": f"count_if({KEEP} AND {_any_null(names)})"}
    for i, name in enumerate(names):
        kind = physical_type(definition.field(name))
        for which in ("min", "max"):
            encoded = _encoded(f"{which}({row}).w{i}", kind)
            if encoded is not None:
                metrics[f"watermark_{which}_{i}"] = encoded
    return metrics


def _encoded(text: str, kind: DataType) -> str | None:
    """A watermark value in the JSON form of batch statistics: comparable in Python as it is in Spark, or None."""
    if isinstance(kind, IntegralType):
        return f"CAST({text} AS BIGINT)"
    if isinstance(kind, BooleanType):
        return f"CAST({text} AS INT)"
    if isinstance(kind, DateType):
        return f"unix_date({text})"
    if isinstance(kind, TimestampType):
        return f"unix_micros({text})"
    if isinstance(kind, TimestampNTZType):
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {text})"
    if isinstance(kind, DecimalType):
        return f"CAST({text} AS STRING)"
    if isinstance(kind, BinaryType):
        return f"hex({text})"
    return text if isinstance(kind, StringType) else None


@attrs.frozen
class Observed:
    """The metrics of the write job."""

    values: Mapping[str, Any] = attrs.field(eq=False)

    def __getitem__(self, name: str) -> int:
        return int(self.values.get(name) or 0)

    def watermark(self, which: str, definition: TableDefinition) -> tuple[Any, ...] | None:
        """The smallest or largest declared watermark as statistics keep it, None when unknown."""
        names = [f"watermark_{which}_{i}" for i in range(len(definition.watermarkKey))]
        if not names or any(n not in self.values for n in names):
            return None
        return tuple(self.values[n] for n in names)

    def per_clause(self, clauses: int) -> tuple[int, ...]:
        """How often each clause fired."""
        return tuple(self[f"clause_{i}"] for i in range(clauses))


def check_observed(program: Program, observed: Observed, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    """Refuses null keys, values that do not fit, and nulls where none may be (S2, S29, S34).

    Raises:
        NullKeyError, SchemaMismatchError: naming column, clause and rows.
    """
    definition = program.definition
    if observed["null_keys"]:
        _raise_null_key(definition, observed["null_keys"], staged, clauses)
    if observed["misfits"]:
        _raise_misfit(definition, observed)
    for i, field in enumerate(definition.fields):
        if observed[f"null_{i}"]:
            rows = staged.filter(f"{quote(field.name)} IS NULL")
            raise SchemaMismatchError(
                f"Column '{field.name}' must not be null, and {observed[f'null_{i}']:,} rows of the merge have a null there: "
                f"{_shown(rows, definition)}. Give the column a value in {_clauses_of(rows, clauses)}.",
                column=field.name,
            )


def _raise_null_key(definition: TableDefinition, count: int, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    rows = staged.filter(_any_null(definition.primaryKey))
    nulls = [k for k in definition.primaryKey if rows.filter(f"{quote(k)} IS NULL").limit(1).collect()]
    raise NullKeyError(
        f"{count:,} rows to be written have a null in primary-key column {_listed(nulls)}, from "
        f"{_clauses_of(rows, clauses)}: {_shown(rows, definition)}. Filter such rows out of the source, or add a clause "
        "condition that leaves them out.",
        columns=nulls,
        rows=count,
    )


def _raise_misfit(definition: TableDefinition, observed: Observed) -> None:
    examples = [observed.values["misfit_min"], observed.values["misfit_max"]]
    name = examples[0].split("\t", 1)[0]
    values = dict.fromkeys(e.split("\t", 1)[1] for e in examples if e.startswith(name + "\t"))
    field = definition.field(name)
    raise SchemaMismatchError(
        f"Column '{name}' is {field.text}, and {observed['misfits']:,} rows of the merge hold values that do not fit, e.g. "
        f"{', '.join(repr(v) for v in values)}. Nothing was written. Correct the values, cast them explicitly, or filter "
        "the rows out.",
        column=name,
        values=tuple(values),
    )


# The pass over the staged keys ----------------------------------------------------------------------------------------


@attrs.frozen
class KeyCounts:
    """What the keys of a batch say.

    Attributes:
        rows: in the batch.
        keys: distinct primary keys.
        inserted, updated, deleted: S30a, by the freshest row of each key.
    """

    rows: int
    keys: int
    inserted: int
    updated: int
    deleted: int

    @property
    def unique(self) -> bool:
        """Has every key one row."""
        return self.rows == self.keys


_N = HIDDEN_PREFIX + "n"
_EFFECT_WEIGHTS = {
    "inserted": {INSERTED: 1},
    "updated": {UPDATED: 1, UPDATED_OVER_DELETED: 1},
    "deleted": {DELETED: 1, UPDATED_OVER_DELETED: 1, DELETED_TWICE: 2},
}


def count_keys(definition: TableDefinition, staged: DataFrame, rows: int) -> KeyCounts:
    """One pass over the keys of a staged batch; a second one only if some key has several rows.

    Args:
        definition: the table's.
        staged: the batch.
        rows: how many rows the write job has observed.
    """
    if rows <= SMALL_BATCH_ROWS:
        staged = staged.coalesce(1)
    effect = F.expr(f"max({EFFECT}) AS {EFFECT}")
    per_key = staged.groupBy(*_columns(definition.primaryKey)).agg(F.expr(f"count(1) AS {_N}"), effect)
    weights = [F.expr(f"{_weighted(w, f'{_N} = 1')} AS {n}") for n, w in _EFFECT_WEIGHTS.items()]
    totals = per_key.agg(F.expr(f"sum({_N}) AS rows"), F.expr("count(1) AS keys"), *weights).collect()[0]
    counts = KeyCounts(*[int(totals[n] or 0) for n in ("rows", "keys", "inserted", "updated", "deleted")])
    return counts if counts.unique else _with_contested(definition, staged, counts)


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(quote(n)) for n in names]


def _weighted(weights: Mapping[str, int], where: str = "true") -> str:
    """The sum of the weights of the effects of some rows, as SQL."""
    whens = " ".join(f"WHEN '{effect}' THEN {weight}" for effect, weight in weights.items())
    return f"sum(CASE WHEN {where} THEN CASE {EFFECT} {whens} ELSE 0 END ELSE 0 END)"


def _with_contested(definition: TableDefinition, staged: DataFrame, counts: KeyCounts) -> KeyCounts:
    """Adds the keys with several rows: the freshest row that is not stale says what readers see (S12, S30a)."""
    key = f"PARTITION BY {', '.join(quote(k) for k in definition.primaryKey)}"
    freshest = [
        f"coalesce({EFFECT} = '{STALE}', false)",
        *(f"{quote(w)} DESC NULLS LAST" for w in definition.watermarkKey),
    ]
    rank = HIDDEN_PREFIX + "rank"
    ranked = staged.selectExpr(
        EFFECT,
        f"count(1) OVER ({key}) AS {_N}",
        f"row_number() OVER ({key} ORDER BY {', '.join(freshest)}) AS {rank}",
    )
    weights = [F.expr(f"{_weighted(w)} AS {n}") for n, w in _EFFECT_WEIGHTS.items()]
    more = ranked.filter(f"{_N} > 1 AND {rank} = 1").agg(*weights).collect()[0]
    return attrs.evolve(counts, **{n: getattr(counts, n) + int(more[n] or 0) for n in _EFFECT_WEIGHTS})


def check_unambiguous(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    """Refuses two different rows for one key with equal watermarks (S12). Only asked when some key has several rows.

    Raises:
        AmbiguousMergeError: naming up to five keys and the clauses the rows came from.
    """
    own = [*definition.primaryKey, *definition.watermarkKey]
    content = ", ".join(comparable(f.name, physical_type(f)) for f in definition.stored_fields)
    different, dead = HIDDEN_PREFIX + "different", HIDDEN_PREFIX + "dead"
    groups = staged.groupBy(*_columns(own)).agg(
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
    where = " and ".join(describe(clauses, p - 1) for p in sorted({p for r in found for p in r[CLAUSE]}))
    listed = "; ".join(f"{_key_text(definition, k)} ({r[_N]} rows)" for k, r in zip(keys, found, strict=True))
    same = f"equal {_listed(definition.watermarkKey)}" if definition.watermarkKey else "no watermark to tell them apart"
    raise AmbiguousMergeError(
        f"The merge has several different rows for the same primary key ({', '.join(definition.primaryKey)}) with {same}: "
        f"{listed}{', ...' if len(found) == _SHOWN else ''}, from {where}. Nothing was written. Keep one row per key in the "
        "source, or give the table a watermark key that tells which one is fresher.",
        keys=keys,
        columns=definition.primaryKey,
    )


def raise_duplicates(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...], count: int) -> None:
    """Raises the error for rows that come to a live key which the merge does not free (S25)."""
    rows = staged.filter(f"{EFFECT} = '{DUPLICATE}'")
    keys = _keys(rows, definition)
    raise DuplicateKeyError(
        f"{count:,} rows would be written under primary keys that are live in the table and that this merge neither deletes "
        f"nor moves away: {'; '.join(_key_text(definition, k) for k in keys)}, from {_clauses_of(rows, clauses)}. "
        "Nothing was written. Update such rows instead, or match on the whole primary key.",
        keys=keys,
    )


def raise_stale(definition: TableDefinition, staged: DataFrame, latest: DataFrame, count: int) -> None:
    """Raises the error for stale rows under ``onStale("error")`` (S11), with both watermarks."""
    names = definition.watermarkKey
    theirs = latest.selectExpr(
        *[f"{quote(k)} AS {HIDDEN_PREFIX}k{i}" for i, k in enumerate(definition.primaryKey)],
        *[f"{quote(w)} AS {HIDDEN_PREFIX}t{i}" for i, w in enumerate(names)],
    )
    same = all_of(f"{quote(k)} = {HIDDEN_PREFIX}k{i}" for i, k in enumerate(definition.primaryKey))
    stale = staged.filter(f"{EFFECT} = '{STALE}'").join(theirs, F.expr(same), "left")
    found = stale.orderBy(*_columns(definition.primaryKey)).limit(_SHOWN).collect()
    listed = [
        f"{_key_text(definition, tuple(r[k] for k in definition.primaryKey))}: {_values(r, names)} is older than "
        f"{', '.join(str(r[f'{HIDDEN_PREFIX}t{i}']) for i in range(len(names)))}"
        for r in found
    ]
    raise StaleRowsError(
        f"{count:,} rows of the merge are older than what they would replace ({', '.join(names)}): {'; '.join(listed)}. "
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
    return " and ".join(describe(clauses, p - 1) for p in positions)


def _listed(names: Any) -> str:
    return ", ".join(f"'{n}'" for n in names)
