"""After the steps of a merge: updates that would change nothing are left out (S22b).

Owns: that, and how rows without a key are spread where rows are brought together by their keys. Whether a row changes something is
found in ``shaping.py``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from trinitymerge.columns import EFFECT, KEEP, KEY_CHANGES, SCATTER, UNCHANGED
from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import quote
from trinitymerge.merge.analysis import effects


def without_unchanged(rows: DataFrame, definition: TableDefinition, all_have_keys: bool) -> DataFrame:
    """Leaves out updates that change nothing: not if another row of their key changes something, for they may be fresher than that.

    Args:
        rows: what :func:`trinitymerge.merge.compile.pipeline.settled` gives.
        definition: of the table.
        all_have_keys: no row that is not written is without a key.
    """
    keys = [quote(k) for k in definition.primaryKey]
    if not all_have_keys:
        rows, keys = rows.selectExpr("*", scattered()), [*keys, SCATTER]
    changes = f"max({KEEP} AND NOT {UNCHANGED}) OVER (PARTITION BY {', '.join(keys)}) AS {KEY_CHANGES}"
    is_left_out = f"{KEEP} AND {UNCHANGED} AND NOT {KEY_CHANGES}"
    others = [quote(n) for n in rows.columns if n not in (KEEP, EFFECT, UNCHANGED)]
    effect = f"CASE WHEN {is_left_out} THEN '{effects.UNCHANGED}' ELSE {EFFECT} END AS {EFFECT}"
    return rows.selectExpr("*", changes).selectExpr(*others, effect, f"{KEEP} AND NOT ({is_left_out}) AS {KEEP}")


def scattered() -> str:
    """A number that is the same for all rows that are written, and spreads the others, as SQL with its name."""
    return f"CASE WHEN {KEEP} THEN 0 ELSE monotonically_increasing_id() % 1024 END AS {SCATTER}"
