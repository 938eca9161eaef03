"""Step: look up what the written keys hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, functions as F

from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.program import MergeProgram, in_slots
from trinitymerge.reader import keys_to_find
from trinitymerge.rows.watermarks import Watermark, raised_to, watermark_sql
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore

Lookup = Callable[[DataFrame], DataFrame]
"""From keys (:data:`C.KEY_TO_FIND`) to the latest stored rows of those keys, tombstones included."""


def probe(rows: DataFrame, program: MergeProgram, lookup: Lookup, batches: Batches) -> DataFrame:
    """Add what the written keys hold: KEY_TO_FIND, LOOKUP_KEY, FOUND_LIVE, FOUND_WATERMARK; from SLOT, NEW_KEY and the key.

    For a move and its tombstone, this is the key that the row moves to: both must come to the same choice.
    """
    definition, names = program.definition, [C.KEY_TO_FIND(i) for i in range(len(program.definition.primaryKey))]
    asking = rows.selectExpr("*", *_asking(program))
    found = lookup(asking.selectExpr(*names))
    answer = found.selectExpr(
        *[f"{E.quote(k)} AS {C.LOOKUP_KEY(i)}" for i, k in enumerate(definition.primaryKey)],
        f"NOT {E.is_tombstone(definition)} AS {C.FOUND_LIVE}",
        *[f"{E.quote(w)} AS {C.FOUND_WATERMARK(i)}" for i, w in enumerate(definition.watermarkKey)],
    )
    same_key = E.all_of(E.equals(n, C.LOOKUP_KEY(i)) for i, n in enumerate(names))
    return beside_truncate(asking.join(answer, F.expr(same_key), "left"), batches, C.FOUND_WATERMARK)


def beside_truncate(rows: DataFrame, batches: Batches, watermark: C.ColumnFamily) -> DataFrame:
    """Return rows in which the watermark of each key's latest row is at least that of the table's last truncate (T1)."""
    if batches.truncated_at is None:
        return rows
    found = [watermark(i) for i in range(len(batches.definition.watermarkKey))]
    raised = raised_to(found, batches.truncated_at, batches.definition)
    return rows.withColumns({n: F.expr(v) for n, v in zip(found, raised, strict=True)})


def nothing_found(rows: DataFrame, program: MergeProgram, batches: Batches) -> DataFrame:
    """Add the same where no batch holds any of these keys, as is known: nothing is read, and the rows need not be evaluated."""
    definition = program.definition
    answers = [(C.LOOKUP_KEY(i), E.null_of(definition.field(k))) for i, k in enumerate(definition.primaryKey)]
    answers += [(C.FOUND_WATERMARK(i), E.null_of(definition.field(w))) for i, w in enumerate(definition.watermarkKey)]
    nulls = [f"{null} AS {name}" for name, null in answers]
    asking = rows.selectExpr("*", *_asking(program), *nulls, f"CAST(NULL AS BOOLEAN) AS {C.FOUND_LIVE}")
    return beside_truncate(asking, batches, C.FOUND_WATERMARK)


def _asking(program: MergeProgram) -> list[str]:
    return [f"{key} AS {C.KEY_TO_FIND(i)}" for i, key in enumerate(asked_keys(program))]


def columns_of_probe(program: MergeProgram) -> tuple[str, ...]:
    keys, watermarks = range(len(program.definition.primaryKey)), range(len(program.definition.watermarkKey))
    found = [C.FOUND_WATERMARK(i) for i in watermarks]
    return (*[C.KEY_TO_FIND(i) for i in keys], *[C.LOOKUP_KEY(i) for i in keys], C.FOUND_LIVE, *found)


def asked_keys(program: MergeProgram) -> list[Sql]:
    """Return the keys to look up, as SQL over shaped rows; null where the join has told what there is to know."""
    leave, unknown = in_slots(program.departures), in_slots(program.unknown)
    keys = [E.quote(k) for k in program.definition.primaryKey]
    if program.moves:
        keys = [E.case([(leave, C.NEW_KEY(i))], key) for i, key in enumerate(keys)]
    return [E.case([(unknown, key)]) for key in keys]


def probe_text(source: str, program: MergeProgram) -> str:
    """Return the probe as SQL to be read. The rows before it are evaluated once: they are read twice."""
    same_key = E.all_of(E.equals(C.KEY_TO_FIND(i), C.LOOKUP_KEY(i)) for i in range(len(program.definition.primaryKey)))
    return (
        f"-- lookup: the rows that the written keys hold; the rows so far are evaluated once\nSELECT * FROM (\n"
        f"SELECT *, {', '.join(_asking(program))} FROM (\n{source}\n)\n)\nLEFT JOIN latest_rows_of_these_keys ON {same_key}"
    )


def rows_at_truncates(store: TableStore, snapshot: Snapshot, truncates: Sequence[Watermark]) -> DataFrame:
    """Return the keys (:data:`C.KEY_TO_FIND`) with a row version or tombstone at a truncate, and where: :data:`C.HELD` (T1)."""
    own = snapshot.definition
    columns = [E.quote(w) for w in own.watermarkKey]
    places = [at for at in (watermark_sql(truncate, own) for truncate in truncates) if at is not None]
    is_there = E.any_of(E.all_of(map(E.same, columns, at)) for at in places)
    rows = store.scan(Batches(own, snapshot.batches)).filter(is_there)
    keys = keys_to_find(own)
    found = rows.selectExpr(*keys, f"{as_struct(columns)} AS {C.HELD}")
    return found.groupBy(*found.columns[: len(keys)]).agg(F.collect_set(C.HELD).alias(C.HELD))


def as_struct(watermark: Sequence[Sql]) -> Sql:
    """Return a watermark as a struct, with the fields ``w0`` and so on."""
    return Sql(f"struct({', '.join(f'{value} AS w{i}' for i, value in enumerate(watermark))})")
