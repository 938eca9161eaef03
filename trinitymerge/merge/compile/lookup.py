"""Step: look up what the written keys hold."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trinitymerge.log.batches import Batches
from trinitymerge.merge.compile.program import MergeProgram, in_slots
from trinitymerge.rows.watermarks import raised_to
from trinitymerge.spark.expressions import all_of, case, equals, is_tombstone, null_of, quote
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import (
    FOUND_LIVE,
    FOUND_WATERMARK,
    KEY_TO_FIND,
    LOOKUP_KEY,
    NEW_KEY,
    ColumnFamily,
)

Lookup = Callable[[DataFrame], DataFrame]
"""From keys (:data:`KEY_TO_FIND`) to the latest stored rows of those keys, tombstones included."""


def probe(rows: DataFrame, program: MergeProgram, lookup: Lookup, batches: Batches) -> DataFrame:
    """Add what the written keys hold.

    For a move and its tombstone, this is the key that the row moves to: both must come to the same choice.
    """
    definition, names = program.definition, [KEY_TO_FIND(i) for i in range(len(program.definition.primaryKey))]
    asking = rows.selectExpr("*", *_asking(program))
    found = lookup(asking.selectExpr(*names))
    answer = found.selectExpr(
        *[f"{quote(k)} AS {LOOKUP_KEY(i)}" for i, k in enumerate(definition.primaryKey)],
        f"NOT {is_tombstone(definition)} AS {FOUND_LIVE}",
        *[f"{quote(w)} AS {FOUND_WATERMARK(i)}" for i, w in enumerate(definition.watermarkKey)],
    )
    same_key = all_of(equals(n, LOOKUP_KEY(i)) for i, n in enumerate(names))
    return beside_truncate(asking.join(answer, F.expr(same_key), "left"), batches, FOUND_WATERMARK)


def beside_truncate(rows: DataFrame, batches: Batches, watermark: ColumnFamily) -> DataFrame:
    """Return rows in which the watermark of each key's latest row is at least that of the table's last truncate (T1)."""
    if batches.truncated_at is None:
        return rows
    found = [watermark(i) for i in range(len(batches.definition.watermarkKey))]
    raised = raised_to(found, batches.truncated_at, batches.definition)
    return rows.withColumns({n: F.expr(v) for n, v in zip(found, raised, strict=True)})


def nothing_found(rows: DataFrame, program: MergeProgram, batches: Batches) -> DataFrame:
    """Add the same where no batch holds any of these keys, as is known: nothing is read, and the rows need not be evaluated."""
    definition = program.definition
    answers = [(LOOKUP_KEY(i), null_of(definition.field(k))) for i, k in enumerate(definition.primaryKey)]
    answers += [(FOUND_WATERMARK(i), null_of(definition.field(w))) for i, w in enumerate(definition.watermarkKey)]
    nulls = [f"{null} AS {name}" for name, null in answers]
    asking = rows.selectExpr("*", *_asking(program), *nulls, f"CAST(NULL AS BOOLEAN) AS {FOUND_LIVE}")
    return beside_truncate(asking, batches, FOUND_WATERMARK)


def _asking(program: MergeProgram) -> list[str]:
    """Return the keys to look up, as columns."""
    return [f"{key} AS {KEY_TO_FIND(i)}" for i, key in enumerate(asked_keys(program))]


def columns_of_probe(program: MergeProgram) -> tuple[str, ...]:
    """Return the columns that the probe adds."""
    keys, watermarks = range(len(program.definition.primaryKey)), range(len(program.definition.watermarkKey))
    found = [FOUND_WATERMARK(i) for i in watermarks]
    return (*[KEY_TO_FIND(i) for i in keys], *[LOOKUP_KEY(i) for i in keys], FOUND_LIVE, *found)


def asked_keys(program: MergeProgram) -> list[Sql]:
    """Return the keys to look up, as SQL over shaped rows; null where the join has told what there is to know."""
    leave, unknown = in_slots(program.departures), in_slots(program.unknown)
    keys = [
        case([(leave, NEW_KEY(i))], quote(k)) if program.moves else quote(k)
        for i, k in enumerate(program.definition.primaryKey)
    ]
    return [case([(unknown, key)]) for key in keys]


def probe_text(source: str, program: MergeProgram) -> str:
    """Return the probe as SQL to be read. The rows before it are evaluated once: they are read twice."""
    asked = ", ".join(f"{key} AS {KEY_TO_FIND(i)}" for i, key in enumerate(asked_keys(program)))
    same_key = all_of(equals(KEY_TO_FIND(i), LOOKUP_KEY(i)) for i in range(len(program.definition.primaryKey)))
    return (
        f"-- lookup: the rows that the written keys hold; the rows so far are evaluated once\nSELECT * FROM (\n"
        f"SELECT *, {asked} FROM (\n{source}\n)\n)\nLEFT JOIN latest_rows_of_these_keys ON {same_key}"
    )
