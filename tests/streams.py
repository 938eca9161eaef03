"""Change events of many streams side by side in one table, delivered in any order, in any batches, more than once.

What they must come to is said without an interpreter: of each key the event with the largest watermark, unless it deletes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path as FilePath

from hypothesis import strategies as st
from lanes import LANE, beside, draw, led_by_lane
from pyspark.sql import DataFrame, SparkSession
from tables import frame, new_table

from trinitymerge import MergeBuilder, TrinityTable
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import order_key
from trinitymerge.testing.strategies import event_streams, stored_rows, table_definitions

_COLUMNS = (LANE, "key", "ts", "op", "value")

# Events ---------------------------------------------------------------------------------------------------------------


def events_of(count: int, number: int) -> list[Row]:
    """The events of many streams, each stream a lane."""
    return beside(draw(event_streams(), count, number))


def delivered(rows: Sequence[Row], batches: int, number: int, repeated: float = 0) -> list[list[Row]]:
    """Rows in another order, cut into batches, some of them in two batches."""
    chance = random.Random(number)
    cut: list[list[Row]] = [[] for _ in range(batches)]
    for row in chance.sample(rows, len(rows)):
        at = chance.randrange(batches)
        cut[at].append(row)
        if chance.random() < repeated:
            cut[chance.randrange(at, batches)].append(row)
    return cut


def survivors(events: Sequence[Row]) -> list[Row]:
    """The rows that are live once all events have come."""
    freshest = {(e[LANE], e["key"]): e for e in sorted(events, key=lambda e: order_key(e["ts"]))}
    return [{n: e[n] for n in (LANE, "key", "ts", "value")} for e in freshest.values() if e["op"] != "D"]


def event_table(spark: SparkSession, directory: FilePath) -> TrinityTable:
    schema = f"{LANE} INT, key INT, ts INT, value STRING"
    return new_table(spark, directory, schema, primaryKey=[LANE, "key"], watermarkKey="ts")


def event_frame(spark: SparkSession, events: Sequence[Row]) -> DataFrame:
    rows = [tuple(event[name] for name in _COLUMNS) for event in events]
    return frame(spark, f"{LANE} INT, key INT, ts INT, op STRING, value STRING", *rows)


def apply_events(table: TrinityTable, source: DataFrame) -> MergeBuilder:
    """What a pipeline does with change events."""
    return (
        table.merge(source)
        .whenMatched("op = 'D'")
        .delete()
        .whenMatched()
        .updateAll()
        .whenNotMatched("op <> 'D'")
        .insertAll()
    )


# Stored rows ----------------------------------------------------------------------------------------------------------


def watermarked_rows(count: int, number: int) -> tuple[TableDefinition, list[list[Row]]]:
    """A definition with a watermark, and for each lane rows of which no two agree in key and watermark."""
    (definition,) = draw(table_definitions().filter(lambda d: d.watermarkKey), 1, number)
    lanes = draw(st.lists(stored_rows(definition), min_size=1, max_size=8), count, number)
    return definition, [_told_apart(definition, rows) for rows in lanes]


def _told_apart(definition: TableDefinition, rows: Sequence[Row]) -> list[Row]:
    rules = RowRules(definition)
    return list({(rules.key(row), rules.watermark_order(row)): row for row in rows}.values())


def one_of_each_key_first(definition: TableDefinition, rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in two batches: one of each key, which can be a base, and the others, older or fresher."""
    rules, first, rest = RowRules(led_by_lane(definition)), dict[object, Row](), list[Row]()
    for row in rows:
        if rules.key(row) in first:
            rest.append(row)
        first.setdefault(rules.key(row), row)
    return [list(first.values()), rest]
