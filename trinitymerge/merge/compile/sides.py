"""Source and target side by side, read as a path allows (S13, S17-S19, S32).

Owns: materialising the source so that it is evaluated once, the lookup of keys in the target, and the join that pairs
rows. Which clause applies to what comes out is the compiler's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trinitymerge import reader
from trinitymerge.columns import IN_SOURCE, KEY_COPY, KEY_TO_FIND
from trinitymerge.expressions import TRUE, all_of, equals, is_tombstone, not_
from trinitymerge.jvm import estimate
from trinitymerge.merge.analysis.frames import Source, as_column, with_columns
from trinitymerge.merge.analysis.keymatch import KeyMatch
from trinitymerge.merge.analysis.resolution import Analysis
from trinitymerge.merge.clauses import WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.compile import keyrange
from trinitymerge.observation import Gathering
from trinitymerge.storage.backend import Backend, Batches

BROADCAST_ROWS = 500_000
"""Up to this many keys are sent to every task that scans the target; counted, not estimated."""


ONE_TASK_BYTES = 4 << 20
"""Up to this much a single task is no slower than several and their shuffle."""


def fits_one_task(df: DataFrame) -> bool:
    """True if a DataFrame is known to be small, and to take no longer in one task than in several."""
    known = estimate(df)
    return known is not None and known.size_bytes <= ONE_TASK_BYTES and not known.runs_python


@attrs.frozen(eq=False)
class Materialised:
    """A DataFrame that has been evaluated and will not be again, the number of its rows, and what else was observed."""

    frame: DataFrame
    rows: int
    observed: Mapping[str, Any] = attrs.field(factory=dict)


def materialise(df: DataFrame, metrics: Mapping[str, str] | None = None) -> Materialised:
    """Evaluates a DataFrame once (S32).

    A local checkpoint, unlike a cache, is never recomputed: if an executor that holds part of it dies, the merge fails
    instead of contradicting itself.

    Args:
        df: what to evaluate.
        metrics: names and aggregates, as SQL, to observe on the way.
    """
    gathering = Gathering({"rows": "count(1)", **(metrics or {})})
    frame = gathering.over(df).localCheckpoint()
    observed = gathering.result(frame)
    return Materialised(frame, int(observed.pop("rows")), observed)


@attrs.frozen(eq=False)
class Sides:
    """The joined sides.

    Attributes:
        joined: target and source columns side by side.
        keys: the keys that were looked up in the target (:data:`trinitymerge.columns.KEY_TO_FIND`); None when all of it was read.
    """

    joined: DataFrame
    keys: DataFrame | None = None


def look_up(backend: Backend, batches: Batches, keys: DataFrame, once: Materialised) -> DataFrame:
    """The latest rows, tombstones included, of the given keys only.

    Args:
        backend: where the target is.
        batches: the target's.
        keys: columns :data:`trinitymerge.columns.KEY_TO_FIND`; read once.
        once: where they come from: how many there are decides between broadcast and shuffle, and their range
            (:mod:`trinitymerge.merge.compile.keyrange`) what is read at all.
    """
    sought = F.broadcast(keys) if once.rows <= BROADCAST_ROWS else keys
    return reader.latest(backend, batches, sought, keyrange.within(batches, once.observed))


def keyed(
    analysis: Analysis, match: KeyMatch, source: Source, once: Materialised, backend: Backend, batches: Batches
) -> Sides:
    """Each source row beside the latest row of its key, read from those keys alone."""
    target, definition = analysis.target, analysis.definition
    names = [KEY_TO_FIND(i) for i in range(len(match.keys))]
    frame = with_columns(source.frame, {n: k.value for n, k in zip(names, match.keys, strict=True)})
    sought = frame.selectExpr(*names)
    found = look_up(backend, batches, sought, once)
    latest = target.frame(found, not_(is_tombstone(definition)))
    if once.rows <= BROADCAST_ROWS:
        latest = F.broadcast(latest)  # at most as many rows as the source
    # The user's own key is null beside a tombstone, so the join goes by a copy of it.
    same_key = all_of(equals(KEY_COPY(i), n) for i, n in enumerate(names))
    joined = frame.join(latest, F.expr(same_key), "left")
    return Sides(joined, sought)


def full(analysis: Analysis, records: bool, source: Source | None, backend: Backend, batches: Batches) -> Sides:
    """Every live target row beside the source rows it pairs with.

    Args:
        analysis: the merge.
        records: deletes of absent keys are recorded, so that source rows without a pair count.
        source: None for merges without one.
        backend: where the target is.
        batches: the target's.
    """
    rows = reader.live(backend, batches, with_hidden=True)
    target = analysis.target.frame(rows, TRUE)
    if source is None:
        return Sides(target.selectExpr("*", f"CAST(NULL AS BOOLEAN) AS {IN_SOURCE}"))
    assert analysis.condition is not None
    joined = target.join(source.frame, as_column(analysis.condition), join_type(analysis, records))
    return Sides(joined)


def join_type(analysis: Analysis, records: bool) -> str:
    """The narrowest join that still shows every row some clause may fire on."""
    from_target = bool(analysis.of_kind(WhenOnlyOnTarget))
    from_source = bool(analysis.of_kind(WhenNotMatched) or records)
    return {(True, True): "full_outer", (True, False): "left_outer", (False, True): "right_outer"}.get(
        (from_target, from_source), "inner"
    )
