"""After the steps of a merge, and after what ``unchanged.py`` leaves out: rows of purged keys are left out (S39a).

Owns: that, and the column it says so by. How keys are known again stands in ``markers.py``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from trinitymerge.columns import KEEP, PURGED
from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import quote
from trinitymerge.markers import mark_purged
from trinitymerge.storage.forgotten import Purged


def without_purged(rows: DataFrame, definition: TableDefinition, purged: Purged | None) -> DataFrame:
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
