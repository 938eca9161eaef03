"""What must hold of a staged batch before it is committed, and the counts it gives (S12, S25, S30a, S34).

Owns: the metrics observed while the batch is written, the one pass over the staged keys, and the errors both can raise.
Messages name the rows; the extra look that finds them is taken only when something is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, Row, Window
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
from trinitymerge.expressions import all_of, any_of, column, is_tombstone, physical_type, quote
from trinitymerge.merge.clauses import Clause, describe
from trinitymerge.merge.compiler import (
    CLAUSE,
    DELETED,
    DUPLICATE,
    EFFECT,
    INSERTED,
    KEEP,
    MISFIT,
    MOVED_AWAY,
    MOVED_OVER,
    SLOT,
    STALE,
    UNDECIDED,
    UPDATED,
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
    kept, fits = column(KEEP), column(MISFIT).isNull()
    metrics = {
        "source": F.count(F.lit(1)),
        "undecided": _count(column(SLOT) == UNDECIDED),
        "rows": _count(kept),
        "tombstones": _count(kept & is_tombstone(definition)),
        "stale": _count(column(EFFECT) == STALE),
        "duplicates": _count(kept & (column(EFFECT) == DUPLICATE)),
        "misfits": _count(~fits),
        "misfit_min": F.min(MISFIT),
        "misfit_max": F.max(MISFIT),
        "null_keys": _count(kept & fits & any_of(column(k).isNull() for k in definition.primaryKey)),
    }
    for i, field in enumerate(definition.fields):
        if not field.nullable and field.name not in definition.primaryKey:
            metrics[f"null_{i}"] = _count(kept & fits & column(field.name).isNull())
    for position in range(len(program.analysis.clauses)):
        slot = program.first_slot(position)
        if slot is not None:
            metrics[f"clause_{position}"] = _count(column(SLOT) == slot)
    metrics |= _watermark_metrics(definition)
    return [value.alias(name) for name, value in metrics.items()]


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, F.lit(1)))


def _watermark_metrics(definition: TableDefinition) -> dict[str, Column]:
    names = definition.watermarkKey
    if not names:
        return {}
    parts = ", ".join(f"'w{i}', {quote(n)}" for i, n in enumerate(names))
    row = f"CASE WHEN {quote(KEEP)} THEN named_struct({parts}) END"
    metrics = {"watermark_null": _count(column(KEEP) & any_of(column(n).isNull() for n in names))}
    for i, name in enumerate(names):
        kind = physical_type(definition.field(name))
        for which in ("min", "max"):
            encoded = _encoded(f"{which}({row}).w{i}", kind)
            if encoded is not None:
                metrics[f"watermark_{which}_{i}"] = F.expr(encoded)
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
            rows = staged.filter(column(field.name).isNull())
            raise SchemaMismatchError(
                f"Column '{field.name}' must not be null, and {observed[f'null_{i}']:,} rows of the merge have a null there: "
                f"{_shown(rows, definition)}. Give the column a value in {_clauses_of(rows, clauses)}.",
                column=field.name,
            )


def _raise_null_key(definition: TableDefinition, count: int, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    rows = staged.filter(any_of(column(k).isNull() for k in definition.primaryKey))
    nulls = [k for k in definition.primaryKey if rows.filter(column(k).isNull()).limit(1).collect()]
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
    "updated": {UPDATED: 1, MOVED_OVER: 1},
    "deleted": {DELETED: 1, MOVED_OVER: 1, MOVED_AWAY: 2},
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
    keys = [column(k) for k in definition.primaryKey]
    per_key = staged.groupBy(*keys).agg(F.count(F.lit(1)).alias(_N), F.max(EFFECT).alias(EFFECT))
    alone = column(_N) == 1
    totals = per_key.agg(
        F.sum(_N).alias("rows"),
        F.count(F.lit(1)).alias("keys"),
        *[_weighted(alone, w).alias(n) for n, w in _EFFECT_WEIGHTS.items()],
    ).collect()[0]
    counts = KeyCounts(*[int(totals[n] or 0) for n in ("rows", "keys", "inserted", "updated", "deleted")])
    return counts if counts.unique else _with_contested(definition, staged, counts)


def _weighted(where: Column, weights: Mapping[str, int]) -> Column:
    weight = F.lit(0)
    for effect, value in weights.items():
        weight = F.when(where & (column(EFFECT) == effect), F.lit(value)).otherwise(weight)
    return F.sum(weight)


def _with_contested(definition: TableDefinition, staged: DataFrame, counts: KeyCounts) -> KeyCounts:
    """Adds the keys with several rows: the freshest row that is not stale says what readers see (S12, S30a)."""
    key = Window.partitionBy(*[column(k) for k in definition.primaryKey])
    order = [
        F.coalesce(column(EFFECT) == STALE, F.lit(False)),
        *[column(w).desc_nulls_last() for w in definition.watermarkKey],
    ]
    rank = HIDDEN_PREFIX + "rank"
    winners = (
        staged.withColumn(_N, F.count(F.lit(1)).over(key))
        .withColumn(rank, F.row_number().over(key.orderBy(*order)))
        .filter((column(_N) > 1) & (column(rank) == 1))
    )
    more = winners.agg(*[_weighted(F.lit(True), w).alias(n) for n, w in _EFFECT_WEIGHTS.items()]).collect()[0]
    return attrs.evolve(counts, **{n: getattr(counts, n) + int(more[n] or 0) for n in _EFFECT_WEIGHTS})


def check_unambiguous(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    """Refuses two different rows for one key with equal watermarks (S12). Only asked when some key has several rows.

    Raises:
        AmbiguousMergeError: naming up to five keys and the clauses the rows came from.
    """
    own = [*definition.primaryKey, *definition.watermarkKey]
    content = F.struct(
        *[comparable(f.name, physical_type(f)).alias(f"c{i}") for i, f in enumerate(definition.stored_fields)]
    )
    groups = staged.groupBy(*[column(c) for c in own]).agg(
        F.count(F.lit(1)).alias(_N),
        F.count(F.when(is_tombstone(definition), F.lit(1))).alias("_tm_dead"),
        F.count_distinct(content).alias("_tm_different"),
        F.sort_array(F.collect_set(column(CLAUSE))).alias(CLAUSE),
    )
    bad = groups.filter((column(_N) > column("_tm_dead")) & (column("_tm_different") > 1))
    found = bad.orderBy(*[column(k) for k in definition.primaryKey]).limit(_SHOWN).collect()
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
    rows = staged.filter(column(EFFECT) == DUPLICATE)
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
    theirs = latest.select(
        *[column(k).alias(f"{HIDDEN_PREFIX}k{i}") for i, k in enumerate(definition.primaryKey)],
        *[column(w).alias(f"{HIDDEN_PREFIX}t{i}") for i, w in enumerate(names)],
    )
    same = all_of(column(k) == column(f"{HIDDEN_PREFIX}k{i}") for i, k in enumerate(definition.primaryKey))
    stale = staged.filter(column(EFFECT) == STALE)
    found = (
        stale.join(theirs, same, "left").orderBy(*[column(k) for k in definition.primaryKey]).limit(_SHOWN).collect()
    )
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
    names = [column(k) for k in definition.primaryKey]
    return [tuple(r) for r in rows.select(*names).distinct().orderBy(*names).limit(_SHOWN).collect()]


def _key_text(definition: TableDefinition, key: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{n}={v!r}" if isinstance(v, str) else f"{n}={v}" for n, v in zip(definition.primaryKey, key, strict=True)
    )


def _values(row: Row, names: tuple[str, ...]) -> str:
    return ", ".join(str(row[n]) for n in names)


def _shown(rows: DataFrame, definition: TableDefinition) -> str:
    names = definition.names[:6]
    found = rows.select(*[column(n) for n in names]).limit(3).collect()
    return "; ".join("(" + ", ".join(f"{n}={r[n]!r}" for n in names) + ")" for r in found)


def _clauses_of(rows: DataFrame, clauses: tuple[Clause, ...]) -> str:
    positions = sorted(r[0] for r in rows.select(column(CLAUSE)).distinct().collect())
    return " and ".join(describe(clauses, p - 1) for p in positions)


def _listed(names: Any) -> str:
    return ", ".join(f"'{n}'" for n in names)
