"""The source evaluated once, keys looked up, rows paired (S19, S32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import DataType

from trinitymerge import reader
from trinitymerge.errors import counted, sized
from trinitymerge.log.batches import Batches
from trinitymerge.merge.analysis.key_match import Equalities, KeyMatch
from trinitymerge.merge.analysis.relations import Source, as_column, with_columns
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.compile.probe import beside_truncate
from trinitymerge.merge.compile.program import unfit_row
from trinitymerge.merge.model.clauses import WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.rows import key_ranges
from trinitymerge.rows.key_ranges import KeyRange
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.session import estimate, select_exprs
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore

BROADCAST_ROWS = 500_000
"""Up to this many keys, or source rows, are sent to every task that scans the target; counted, not estimated."""

ONE_TASK_BYTES = 4 << 20
"""Up to this much a single task is no slower than several and their shuffle."""

FEW_KEYS, MANY_ROWS = 300, 1_000_000
"""For so few keys it pays to fetch them and to read only the pages of so large a table that may hold them."""


def fits_one_task(df: DataFrame) -> bool:
    """Return True if a DataFrame is known to be small, and to take no longer in one task than in several."""
    known = estimate(df)
    return known is not None and known.size_bytes <= ONE_TASK_BYTES and not known.runs_python


@attrs.frozen(eq=False)
class Materialized:
    """A DataFrame that has been evaluated and will not be again, the number of its rows, and what else was observed."""

    frame: DataFrame
    rows: int
    observed: Mapping[str, Any] = attrs.field(factory=dict)


def materialize(df: DataFrame, metrics: Mapping[str, str] | None = None) -> Materialized:
    """Evaluate a DataFrame once (S32), and observe ``metrics`` on the way: names and aggregates, as SQL.

    A local checkpoint, unlike a cache, is never recomputed: if an executor that holds part of it dies, the merge fails
    instead of contradicting itself.
    """
    gathering = Metrics({"rows": "count(1)", **(metrics or {})})
    frame = gathering.observe(df).localCheckpoint()
    observed = gathering.collect(frame)
    return Materialized(frame, int(observed.pop("rows")), observed)


Keys: TypeAlias = Mapping[str, tuple[Sql, DataType]]
"""A primary key by its columns: SQL over the source, and its type."""


@attrs.frozen(eq=False)
class MaterializedSource:
    """The source of a merge, evaluated once.

    Attributes:
        source: over the rows that are kept. They have :data:`C.SOURCE_ROW`, and :data:`C.KEY_TO_FIND` for the key columns that the
            condition implies equality on. Later lookups use these values, even if the expressions depend on the time.
        once: these rows, and what was observed of them.
    """

    source: Source
    once: Materialized

    @classmethod
    def of(
        cls, source: Source, equalities: Equalities, definition: TableDefinition, known_keys: Sequence[Keys] = ()
    ) -> MaterializedSource:
        """Evaluate a source now, with the ranges of keys that may be asked for later."""
        sought = _sought(equalities, definition)
        alone = {name: equalities.sought(k, definition)[0] for k, (name, _) in sought.items()}
        numbered = select_exprs(source.df, ["*", f"monotonically_increasing_id() AS {C.SOURCE_ROW}"])
        rows = with_columns(numbered, {name: value for name, value in alone.items() if value is not None})
        metrics = key_ranges.metrics(definition, sought)
        for n, keys in enumerate(known_keys):
            metrics |= {f"{_prefix(n)}{name}": text for name, text in key_ranges.metrics(definition, keys).items()}
        once = materialize(rows, metrics)
        return cls(source.over(once.frame), once)

    def are_free(self, count: int, store: TableStore, batches: Batches) -> bool:
        """Return True if no batch can hold any of the ``count`` known keys: those of a new day's versions, say."""
        own = batches.definition
        ranges = [KeyRange.of(self._range_of(n), own) for n in range(count)]
        return bool(ranges) and not reader.prune_batches(store, own, batches.batches, ranges)

    def _range_of(self, n: int) -> Mapping[str, Any]:
        prefix = _prefix(n)
        return {k.removeprefix(prefix): v for k, v in self.once.observed.items() if k.startswith(prefix)}

    @property
    def keys(self) -> DataFrame:
        return select_exprs(self.once.frame, [n for n in self.once.frame.columns if n.startswith(C.KEY_TO_FIND)])

    @property
    def fits_broadcast(self) -> bool:
        """True if all rows may be sent to every task that scans the target."""
        return self.once.rows <= BROADCAST_ROWS


def fit_one_task(evaluated: MaterializedSource, batches: Batches) -> bool:
    """Return True if the source rows, each with the latest row of its key, are known to be few, and probably small."""
    rows, size = sum(b.rows for b in batches.batches), sum(b.bytes for b in batches.batches)
    is_small = evaluated.once.rows * size <= ONE_TASK_BYTES * max(1, rows)
    return evaluated.fits_broadcast and is_small and fits_one_task(evaluated.once.frame)


def _prefix(n: int) -> str:
    return f"known_{n}_"


def _sought(equalities: Equalities, definition: TableDefinition) -> dict[str, tuple[Sql, DataType]]:
    """Return the source's side and its type, by key column with implied equality."""
    places = ((k, C.KEY_TO_FIND(i)) for i, k in enumerate(definition.primaryKey))
    return {k: (name, equalities.sought(k, definition)[1]) for k, name in places if k in equalities.keys}


def lookup(store: TableStore, batches: Batches, keys: DataFrame, once: Materialized) -> DataFrame:
    """Return the latest rows, tombstones included, of the given keys. In very rare cases there are others: keys are compared again.

    Batches that hold no sought key are left out, and so are files and pages of the others; no version of a sought key is ever
    missing, so that the latest that is found is the latest there is. How many keys there are, ``once``, decides between broadcast
    and shuffle, and their range (:mod:`trinitymerge.rows.key_ranges`) what is read at all.
    """
    sought = F.broadcast(keys) if once.rows <= BROADCAST_ROWS else keys
    found, near = _near(store, batches, once)
    rows = sum(b.rows for b in batches.batches)
    within = found.filter(batches.definition, rows)
    if within is None and once.rows <= FEW_KEYS and sum(b.rows for b in near.batches) >= MANY_ROWS:
        within = key_ranges.one_of(batches.definition, keys, near.is_clustered)
    return reader.latest_rows(store, near, sought, within)


def _near(store: TableStore, batches: Batches, once: Materialized) -> tuple[KeyRange, Batches]:
    """Return the range of the keys that are sought, and the batches that may hold one."""
    found = KeyRange.of(once.observed, batches.definition)
    close = reader.prune_batches(store, batches.definition, batches.batches, [found])
    return found, attrs.evolve(batches, batches=close)


def spared_by(store: TableStore, batches: Batches, once: Materialized) -> list[str]:
    """Return what a lookup of keys that have been evaluated is spared, in words."""
    _, near = _near(store, batches, once)
    here, skipped = {b.id for b in near.batches}, [b for b in batches.batches if b not in near.batches]
    segments = sum(b.segment_of is not None for b in skipped)
    of_which = f", {segments:,} of them segments" if segments else ""
    too_many = "too many to be sent to every task: the rows are shuffled"
    sent = "sent to every task" if once.rows <= BROADCAST_ROWS else too_many
    size, left_out = (sum(b.bytes for b in some) for some in (near.batches, skipped))
    parts = "" if near.is_clustered else ", and of these only files and pages that may"
    return [
        f"source: {counted(once.rows)}, evaluated for this; keys are {sent}",
        f"skips {counted(len(skipped), 'batch', 'batches')}{of_which}, {sized(left_out)}, which can hold none of them; reads "
        f"{counted(len(here), 'batch', 'batches')}, {sized(size)}{parts}",
    ]


def pruning_summary(equalities: Equalities, batches: Batches) -> str:
    """Return what a lookup by at least one key column is spared, in words, as far as that is known before its keys are."""
    definition = batches.definition
    sought = _sought(equalities, definition)
    if any(key_ranges.metrics(definition, {k: asked}) for k, asked in sought.items()):
        outside = "outside of the range of these keys are skipped"
        if len(batches.batches) <= reader.MAX_PRUNED_BATCHES:
            return f"batches and files {outside}"
        return f"files {outside}, no batch is: there are more than {reader.MAX_PRUNED_BATCHES}"
    for k, (_, theirs) in sought.items():
        mine = E.physical_type(definition.field(k))
        if theirs != mine:
            return f"no batch is skipped: {k} is {E.sql_type(theirs)} in the source and {E.sql_type(mine)} in the table"
    return "no batch is skipped: no range is kept of keys of these types"


def keyed(
    analysis: Analysis, match: KeyMatch, evaluated: MaterializedSource, store: TableStore, batches: Batches
) -> DataFrame:
    """Return each source row beside the latest row of its key, read from those keys alone.

    KEY_TO_FIND comes in. LIVE and KEY_COPY come out, null without a target row, and BEFORE, at least the last truncate's.
    """
    target = analysis.target
    names = [C.KEY_TO_FIND(i) for i in range(len(match.keys))]
    frame = evaluated.source.frame
    found = lookup(store, batches, evaluated.keys, evaluated.once)
    latest = target.frame(found, _is_live(batches))
    if evaluated.fits_broadcast:
        latest = F.broadcast(latest)  # at most as many rows as the source
    # The user's own key is null beside a tombstone, so the join goes by a copy of it.
    same_key = E.all_of(E.equals(C.KEY_COPY(i), n) for i, n in enumerate(names))
    return beside_truncate(frame.join(latest, F.expr(same_key), "left"), batches, C.BEFORE)


def _is_live(batches: Batches) -> Sql:
    """Return SQL that is true of the live ones among the latest rows of a table, and reads nothing where all are."""
    return E.not_(E.is_tombstone(batches.definition)) if any(b.tombstones for b in batches.batches) else E.TRUE


def all_rows(analysis: Analysis, store: TableStore, batches: Batches) -> DataFrame:
    return analysis.target.frame(reader.live_rows(store, batches, with_hidden=True), E.TRUE)


@attrs.frozen(eq=False)
class FullJoin:
    """The live rows of the target beside the source rows that the condition pairs them with (S17, S18).

    Few source rows are sent to where the target is read, so that it is read where it lies, with every condition. Spark
    cannot send the rows of that side which is to be shown whole: source rows without a pair are found by those with one.

    Attributes:
        equalities: what the condition implies of key columns: other rows are left out before the target is resolved (S14).
    """

    analysis: Analysis
    equalities: Equalities
    evaluated: MaterializedSource
    store: TableStore
    batches: Batches

    def rows(self, records: bool) -> DataFrame:
        """Return the pairs, and rows without one if a clause may fire on them; if it ``records`` deletes, the source rows count.

        Source rows have IN_SOURCE and SOURCE_ROW, target rows LIVE, BEFORE and KEY_COPY; each is null without its side.
        """
        kind = join_type(self.analysis, records)
        if not self.evaluated.fits_broadcast:
            return self._all().join(self._source, self._condition, kind)
        shown = {
            "inner": self._pairs,
            "left_outer": self._with_all_of_the_target,
            "right_outer": self._with_all_of_the_source,
            "full_outer": self._with_all_of_both,
        }
        return shown[kind]()

    @property
    def _source(self) -> DataFrame:
        return self.evaluated.source.frame

    @property
    def _condition(self) -> Column:
        condition = self.analysis.condition if self.equalities.over_keys is None else self.equalities.over_keys
        assert condition is not None
        return as_column(condition)

    def _all(self) -> DataFrame:
        return all_rows(self.analysis, self.store, self.batches)

    def _which_may_pair(self) -> DataFrame:
        """Return the live target rows without those that differ from every source row in a key column they must be equal in."""
        if not self.equalities.keys:
            return self._all()
        found = lookup(self.store, self.batches, self.evaluated.keys, self.evaluated.once)
        live = _is_live(self.batches)
        return self.analysis.target.frame(found if live == E.TRUE else found.filter(live), E.TRUE)

    def _pairs(self) -> DataFrame:
        return self._which_may_pair().join(F.broadcast(self._source), self._condition)

    def _with_all_of_the_target(self) -> DataFrame:
        return self._all().join(F.broadcast(self._source), self._condition, "left_outer")

    def _with_all_of_the_source(self) -> DataFrame:
        paired = self._pairs().selectExpr(*self.analysis.target.columns, f"{C.SOURCE_ROW} AS {C.PAIRED_ROW}")
        return self._source.join(paired, F.expr(E.equals(C.SOURCE_ROW, C.PAIRED_ROW)), "left")

    def _with_all_of_both(self) -> DataFrame:
        source, paired = self._source, self._pairs().selectExpr(f"{C.SOURCE_ROW} AS {C.PAIRED_ROW}")
        alone = source.join(paired, F.expr(E.equals(C.SOURCE_ROW, C.PAIRED_ROW)), "left_anti")
        beside_nothing = self.analysis.target.empty.join(alone, F.lit(False), "right_outer")
        return self._with_all_of_the_target().union(beside_nothing)


def join_type(analysis: Analysis, records: bool) -> str:
    """Return the narrowest join that still shows every row some clause may fire on."""
    from_target = bool(analysis.of_clause(WhenOnlyOnTarget))
    from_source = bool(analysis.of_clause(WhenNotMatched) or records or unfit_row(analysis))
    if from_target:
        return "full_outer" if from_source else "left_outer"
    return "right_outer" if from_source else "inner"
