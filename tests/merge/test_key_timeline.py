"""The rows of a key in order, as a maintainer reads them (U1, U4, U7)."""

from __future__ import annotations

import attrs
from partial_events import SCHEMA
from tables import frame, new_table

from trinitymerge.merge.compile.key_timeline import (
    OF_OLD_KEY,
    STORED,
    TRUNCATE,
    WRITTEN,
    KeyTimeline,
    row_items,
    set_at,
)
from trinitymerge.rows.registers import Registers
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

ROWS = [
    # id, ts, kind, is_dead, b, since: when b was set, was: the old key
    (1, 10, STORED, False, "b10", 10, None),
    (1, 20, WRITTEN, False, None, None, None),
    (1, 30, WRITTEN, False, "b30", 30, None),
    (2, 20, WRITTEN, False, "late", 20, None),
    (2, 30, STORED, False, "b10", 10, None),
    (3, 15, TRUNCATE, True, None, 15, None),
    (3, 20, WRITTEN, False, "stale", None, None),
    (4, 40, OF_OLD_KEY, False, "b5", 5, 1),
    (4, 40, WRITTEN, False, None, None, 1),
    (5, 50, WRITTEN, False, None, None, None),
]

READ = [
    # id, ts, kind, is_dead, own_value, set_at, set_by, filled_with, filled_by, value, next_row, is_mended
    (1, 10, "stored", False, "b10", "{10}", "{1, 10}", None, None, "b10", "{20, to write}", False),
    (1, 20, "to write", False, None, None, None, "b10", "{1, 10}", "b10", "{30, to write}", False),
    (1, 30, "to write", False, "b30", "{30}", "{1, 30}", None, None, "b30", None, False),
    (2, 20, "to write", False, "late", "{20}", "{2, 20}", None, None, "late", "{30, stored}", False),
    (2, 30, "stored", False, "b10", "{10}", "{2, 10}", "late", "{2, 20}", "late", None, True),
    (3, 15, "truncate", True, None, "{15}", "{3, 15}", None, None, None, "{20, to write}", False),
    (3, 20, "to write", False, "stale", None, None, None, "{3, 15}", None, None, False),
    (4, 40, "old key", False, "b5", "{40}", "{1, 5}", None, None, "b5", "{40, to write}", False),
    (4, 40, "to write", False, None, "{40}", "no row", "b5", "{1, 5}", "b5", None, False),
    (5, 50, "to write", False, None, None, None, None, None, None, None, False),
]


def test_U1_U4_U7_the_rows_of_a_key_say_who_has_set_and_filled_a_value(spark, tmp_path):
    snapshot = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts")._store.snapshot()
    registers = attrs.evolve(Registers.of(snapshot, ["b"]), has_partial=True, moves=True)
    kind, moved = Sql("kind"), registers.authors.of([Sql("ts")], [Sql("was")])
    itself = registers.authors.of([Sql("since")])
    author = Sql(
        f"CASE WHEN was IS NULL THEN {itself} WHEN since IS NULL THEN {moved} ELSE concat({moved}, {itself}) END"
    )
    since = E.case([(Sql("coalesce(since, was) IS NOT NULL"), set_at(author, kind))])
    rows = frame(spark, "id INT, ts INT, kind INT, is_dead BOOLEAN, b STRING, since INT, was INT", *ROWS)
    items = row_items([Sql("id")], [Sql("ts")], kind, Sql("is_dead"), [Sql("b")], [since])
    read = KeyTimeline.of(registers, rows.selectExpr(*items), has_old_keys=True).described("b")
    assert read.columns[2:] == [
        "kind",
        "is_dead",
        "own_value",
        "set_at",
        "set_by",
        "filled_with",
        "filled_by",
        "value",
        "next_row",
        "is_mended",
    ]
    assert [tuple(row) for row in read.collect()] == READ
