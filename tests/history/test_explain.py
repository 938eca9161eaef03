"""S42: why a key holds what it holds."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from lanes import Together, Verdicts, lanes_of, prepared, program, rows_of
from pyspark.sql import DataFrame, Row
from tables import EVENTS, directory_of, fill, frame, new_table

from trinitymerge import (
    CorruptTableError,
    InvalidDefinitionError,
    NullKeyError,
    SchemaMismatchError,
    TableNotFoundError,
    TrinityTable,
)
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import order_keys

LARGEST, TOMBSTONE = "current: the largest watermark", "deleted: a tombstone with the largest watermark"


def told(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of an explanation, in its order, and the sentence."""
    return [tuple(row) for row in rows.select(*columns, "_why").collect()]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_S42_every_stored_row_of_a_key_with_the_reason_it_won_or_lost(spark, tmp_path, form):
    table = fill(
        new_table(spark, tmp_path, fileFormat=form),
        spark,
        [(1, 5, "first", False), (2, 5, "other", False)],
        [(1, 3, "late", False)],
        [(1, 5, "corrected", False)],
        [(1, 9, None, True)],
        [(1, 7, "too late", False)],
    )
    assert told(table.why(1), "v", "_watermark", "_commit_version", "_tombstone") == [
        (None, 9, 4, True, TOMBSTONE),
        ("too late", 7, 5, False, "lost: watermark 7 is smaller than 9"),
        ("corrected", 5, 3, False, "lost: watermark 5 is smaller than 9"),
        ("first", 5, 1, False, "lost: watermark 5 is smaller than 9"),
        ("late", 3, 2, False, "lost: watermark 3 is smaller than 9"),
    ]
    assert told(table.why(2)) == [("current: the only row",)]
    past = TrinityTable.forPath(spark, table.path, versionAsOf=3)
    assert told(past.why(1), "v") == [
        ("corrected", "current: of equal watermarks the one committed last"),
        ("first", "lost: equal watermark, committed earlier (version 1 before 3)"),
        ("late", "lost: watermark 3 is smaller than 5"),
    ]
    batches = {b.id: b.version for b in table._snapshot().batches}
    times = {r["version"]: r["timestamp"] for r in table.history().collect()}
    for row in table.why(1).collect():
        assert batches[row["_batch"]] == row["_commit_version"]
        assert times[row["_commit_version"]] == row["_commit_timestamp"]


def test_S42_a_key_that_does_not_occur_has_no_rows_and_the_same_columns(spark, tmp_path):
    table = new_table(spark, tmp_path)
    assert told(table.why(1)) == []
    empty = table.why(1).schema
    fill(table, spark, [(1, 5, "a", False)])
    assert told(table.why(2)) == []
    assert [(f.name, f.dataType) for f in table.why(1).schema] == [(f.name, f.dataType) for f in empty]
    assert table.why(1).columns == [*table.toDF().columns, *ADDED]


ADDED = ["_batch", "_commit_version", "_commit_timestamp", "_watermark", "_tombstone", "_why"]


def test_S42_without_a_watermark_the_order_of_commits_is_the_reason(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a"), (2, "a")], [(1, "b")])
    assert told(table.why(1), "v", "_watermark") == [
        ("b", None, "current: committed last"),
        ("a", None, "lost: committed earlier (version 1 before 2)"),
    ]
    table.delete(frame(spark, "id INT", 1, 9)).execute()
    assert told(table.why(1), "_tombstone")[0] == (True, "deleted: a tombstone, committed last")
    assert told(table.why(9), "_tombstone") == [(True, "deleted: a tombstone, the only row")], "a recorded delete (S18)"


DAY = dt.datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        ("INT", (None, 3), "lost: watermark null is smaller than 3"),
        ("TIMESTAMP", (DAY, DAY.replace(day=2)), "watermark 2024-01-01 00:00:00 is smaller than 2024-01-02 00:00:00"),
        ("BINARY", (b"\x01", b"\xff"), "lost: watermark 0x01 is smaller than 0xFF"),
        ("STRING", ("it's", "x"), "lost: watermark it's is smaller than x"),
    ],
)
def test_S42_watermarks_of_any_type_can_be_read(spark, tmp_path, kind, values, sentence):
    table = new_table(spark, tmp_path, f"id INT, w {kind}", watermarkKey="w")
    for value in reversed(values):
        table.upsert(frame(spark, f"id INT, w {kind}", (1, value))).execute()
    current, lost = told(table.why(1), "_watermark")
    assert current[1] == LARGEST
    assert sentence in lost[1]


def test_S42_composite_keys_and_watermarks(spark, tmp_path):
    schema = "a INT, b STRING, w1 INT, w2 STRING, gone STRING"
    table = new_table(spark, tmp_path, schema, primaryKey=["a", "b"], watermarkKey=["w1", "w2"], tombstoneKey="gone")
    fill(
        table,
        spark,
        [(1, "x", 1, "p", None), (1, "y", 9, "q", None)],
        [(1, "x", 1, None, None)],
        [(1, "x", 1, "p", "yes")],
    )
    expected = [
        ("yes", Row(w1=1, w2="p"), True, "deleted: a tombstone, of equal watermarks the one committed last"),
        (None, Row(w1=1, w2="p"), False, "lost: equal watermark, committed earlier (version 1 before 3)"),
        (None, Row(w1=1, w2=None), False, "lost: watermark (1, null) is smaller than (1, p)"),
    ]
    for key in ((1, "x"), {"b": "x", "a": 1}, Row(b="x", a=1), [1, "x"]):
        assert told(table.why(key), "gone", "_watermark", "_tombstone") == expected


def test_S42_folded_and_compacted_rows_count_as_their_batch_and_what_they_dropped_is_gone(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, *[[(1, n, "v", False)] for n in (1, 2, 3, 4)])
    minor_compact(table._store, table._snapshot(), table._snapshot().batches[1:3])
    assert told(table.why(1), "ts", "_commit_version") == [
        (4, 4, LARGEST),
        (3, 3, "lost: watermark 3 is smaller than 4"),
        (1, 1, "lost: watermark 1 is smaller than 4"),
    ]
    table.compact()
    assert told(table.why(1), "ts", "_commit_version") == [(4, 5, "current: the only row")]


def test_S42_an_event_that_was_delivered_twice_in_one_batch_is_told_as_such(spark, tmp_path):
    table = new_table(spark, tmp_path)
    event = (1, 5, "a", False)
    table.upsert(frame(spark, EVENTS, event, event)).execute()
    assert told(table.why(1), "v") == [
        ("a", LARGEST),
        ("a", "lost: the same event once more, in the same batch"),
    ]


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        ("ann", SchemaMismatchError, "keys given to why are not of the key's type"),
        ((1, 2), SchemaMismatchError, r"given to why has 2 values; a key is \(id\)"),
        ({"name": 1}, SchemaMismatchError, "Column 'id' is missing in a key; it has 'name'"),
        (None, NullKeyError, "why was given 1 key with a null"),
    ],
)
def test_S42_what_is_no_key_is_refused(spark, tmp_path, key, error, match):
    with pytest.raises(error, match=match):
        fill(new_table(spark, tmp_path), spark, [(1, 5, "a", False)]).why(key)


def test_S42_what_cannot_be_shown_or_read_is_an_error(spark, tmp_path):
    with pytest.raises(InvalidDefinitionError, match="a column '_why', and why adds one"):
        new_table(spark, tmp_path, "id INT, _why STRING").why(1)
    table = fill(new_table(spark, tmp_path), spark, [(1, 5, "a", False)], [(1, 6, "b", False)])
    past = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    for file in (directory_of(table) / "data").glob("*/*.parquet"):
        file.unlink()
    with pytest.raises(CorruptTableError, match="has 0 of 1 files"):
        table.why(1)
    with pytest.raises(TableNotFoundError, match="Version 1 of"):
        past.why(1)


@pytest.mark.parametrize("number", [1, 6])
def test_S42_the_order_is_the_interpreters_and_the_first_row_is_what_the_table_holds(number, spark, tmp_path):
    cases = [case for case, _ in Verdicts.of(lanes_of(program(number), 6, number)).merged]
    _, table, _ = prepared(spark, tmp_path, Together(tuple(cases)))
    rules, names = RowRules(table.definition), table.definition.names
    live = {rules.key(row): row for row in rows_of(table.toDF())}
    rows = [(n, row) for n, batch in enumerate(Together(tuple(cases)).batches, 1) for row in batch]
    for key in sorted({rules.key(row) for _, row in rows}, key=order_keys)[:4]:
        mine = [(rules.watermark_order(r), n) for n, r in rows if rules.key(r) == key]
        found = rows_of(table.why(key))
        assert [(rules.watermark_order(r), r["_commit_version"]) for r in found] == sorted(mine, reverse=True)
        assert found[0]["_why"].startswith("current" if key in live else "deleted")
        assert all(row["_why"].startswith("lost: ") for row in found[1:])
        if key in live:
            assert rules.content(dict.fromkeys([table.definition.tombstone_column]) | live[key])[:-1] == tuple(
                order_keys(found[0][n] for n in names)
            )
