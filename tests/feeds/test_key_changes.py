"""U7: rows whose key changes keep what their old key has set, in any order; see also the orders in ``test_unchanged.py``."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from helpers import assertRows, quickly
from partial_events import SCHEMA, apply, event, live, rows, told
from tables import frame, new_table

from trinitymerge import AmbiguousMergeError, InvalidMergeError, NullKeyError, SchemaMismatchError
from trinitymerge.log.actions import REGISTERS
from trinitymerge.merge.compile import earlier_keys
from trinitymerge.merge.execute import executor
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES, TOMBSTONE_RETENTION_HOURS


@pytest.fixture
def table(spark, tmp_path):
    return new_table(spark, tmp_path, SCHEMA, watermarkKey="ts")


@pytest.fixture
def past(spark, tmp_path):
    return new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=True)


FULL, MOVED = event(1, 10, "a", "b", "c"), event(2, 30, "x", unset=["b", "c"], was=1)
LATE = event(1, 20, "y", "late", "z")


def test_U7_a_row_keeps_what_its_old_key_has_set_and_the_old_key_is_deleted(table):
    apply(table, FULL)
    result = apply(table, MOVED)
    assert (result.rowsSource, result.rowsInserted, result.rowsDeleted, result.columnsUnknown) == (1, 1, 1, 0)
    assert rows(table) == [(2, 30, "x", "b", "c")]
    batch = table._store.snapshot().batches[-1]
    assert (batch.partial, batch.moved) == (1, 1)
    assert REGISTERS in table._store.snapshot().requirements.writers


def test_U7_with_history_a_version_ends_and_another_begins(past):
    apply(past, MOVED)
    apply(past, FULL)
    assert told(past) == [(1, 10, "a", "b", "c", 30), (2, 30, "x", "b", "c", None)]


def test_U7_a_late_event_of_the_old_key_mends_the_row(table):
    apply(table, FULL)
    apply(table, MOVED)
    assert apply(table, LATE).rowsMended == 1
    assert rows(table) == [(2, 30, "x", "late", "z")]
    assert apply(table, event(1, 15, "o", "o", "o")).rowsMended == 0
    assert apply(table, event(1, 40, "n", "n", "n")).rowsMended == 0
    assert rows(table) == [(1, 40, "n", "n", "n"), (2, 30, "x", "late", "z")]


def test_U7_rows_of_other_merges_mend_too(table, spark):
    apply(table, FULL)
    apply(table, MOVED)
    result = table.upsert(frame(spark, SCHEMA, (1, 20, "y", "late", "z"))).execute()
    assert (result.rowsMended, rows(table)) == (1, [(2, 30, "x", "late", "z")])


def test_U7_rows_of_other_merges_mend_in_files_that_do_not_have_their_key(spark, tmp_path):
    properties = {TARGET_SEGMENT_BYTES: "2000"}
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", properties=properties)
    table.upsert(frame(spark, SCHEMA, *[(i, 10, "a", f"b{i * i}", "c") for i in range(400)])).execute()
    apply(table, event(900, 30, "x", unset=["b", "c"], was=1))
    table.compact(full=True)
    (holding,) = [b for b in table._snapshot().batches if b.moved]
    assert holding.rows < 400
    result = table.upsert(frame(spark, SCHEMA, (1, 20, "y", "late", "z"))).execute()
    assert (result.rowsMended, rows(table)[-1]) == (1, (900, 30, "x", "late", "z"))


def test_U7_S35_a_concurrent_change_of_the_key_is_seen(table, spark, at_point):
    apply(table, FULL)
    at_point("commit.before", lambda: apply(table, MOVED))
    result = table.upsert(frame(spark, SCHEMA, (1, 20, "y", "late", "z"))).execute()
    assert (result.rowsMended, rows(table)) == (1, [(2, 30, "x", "late", "z")])


def test_U7_a_row_takes_nothing_that_its_new_key_was_before(table):
    apply(table, FULL, event(2, 5, "k", "l", "m"))
    apply(table, MOVED)
    assert apply(table, event(2, 25, "o", "o", "o")).rowsMended == 0
    assert rows(table) == [(2, 30, "x", "b", "c")]


@pytest.mark.parametrize("history", [False, True])
def test_U7_a_late_change_of_the_key_brings_no_placeholder(history, spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history)
    apply(table, event(2, 40, b="own", unset=["a", "c"]))
    apply(table, event(2, 30, "x", "not this", "nor this", unset=["b", "c"], was=1))
    assert rows(table) == [(2, 40, "x", "own", None)]


def test_U7_later_events_keep_it_and_what_they_set_is_theirs(table):
    apply(table, FULL)
    apply(table, MOVED)
    apply(table, event(2, 50, b="own", unset=["a", "c"]))
    assert apply(table, LATE).rowsMended == 1
    assert rows(table) == [(2, 50, "x", "own", "z")]
    assert apply(table, event(2, 40, "o", "o", "o")).rowsMended == 1
    assert rows(table) == [(2, 50, "o", "own", "o")]


def test_U7_a_row_whose_key_changes_twice_in_a_batch(table):
    events = [FULL, MOVED, event(3, 40, unset=["a", "b"], was=2), event(4, 50, b="4", unset=["a", "c"], was=3)]
    apply(table, *events)
    assert rows(table) == [(4, 50, "x", "4", None)]
    apply(table, event(2, 35, "q", "r", "s"))
    assert rows(table) == [(4, 50, "q", "4", None)]


def test_U7_T1_a_truncate_before_the_change_of_the_key_sets_null(table):
    apply(table, FULL)
    apply(table, MOVED)
    apply(table, event(None, 20, op="T"), applyAsTruncates="op = 'T'")
    assert rows(table) == [(2, 30, "x", None, None)]
    apply(table, event(1, 15, "o", "o", "o"))
    assert rows(table) == [(2, 30, "x", None, None)]


def test_U7_what_the_old_key_never_set_is_unknown_until_an_event_sets_it(table, caplog):
    apply(table, event(2, 5, "k", "l", "m"))
    assert apply(table, MOVED).columnsUnknown == 2
    assert rows(table) == [(2, 30, "x", None, None)]
    assert "unchanged values that no event has set" in str(caplog.text) or "values unchanged" in caplog.text
    assert "b: never set" in why(table, 2)
    assert apply(table, FULL).rowsMended == 1
    assert rows(table) == [(2, 30, "x", "b", "c")]
    assert "b: as of 10 under key 1; c: as of 10 under key 1" in why(table, 2)


def why(table, key):
    return " ".join(row["_why"] for row in table.why(key).collect())


def test_U7_without_history_a_key_with_a_fresher_row_has_nothing_from_before(table, past):
    """What the old key was is gone: it counts as unknown. With history it is there."""
    for one in (table, past):
        apply(one, FULL)
        apply(one, event(1, 40, "n", "n", "n"))
    assert apply(table, MOVED).columnsUnknown == 2
    assert apply(past, MOVED).columnsUnknown == 0
    assert rows(table) == [(1, 40, "n", "n", "n"), (2, 30, "x", None, None)]
    assert rows(past) == [(1, 40, "n", "n", "n"), (2, 30, "x", "b", "c")]


def test_U7_the_same_event_again_changes_nothing(table):
    apply(table, FULL)
    apply(table, MOVED, MOVED)
    for again in (MOVED, event(1, 30, op="D")):
        result = apply(table, again)
        assert (result.rowsMended, result.columnsUnknown, rows(table)) == (0, 0, [(2, 30, "x", "b", "c")])


def test_U7_whole_rows_are_appended_blindly(table):
    apply(table, FULL)
    result = apply(table, event(2, 30, "p", "q", "r", was=1), event(3, 5, "k", "l", "m", was=3), unchanged=None)
    assert (result.strategy, result.rowsSource, result.rowsAppended) == ("blind append", 2, 3)
    assert rows(table) == [(2, 30, "p", "q", "r"), (3, 5, "k", "l", "m")]
    assert not table._store.snapshot().has_partial


def test_U7_ignored_nulls_are_taken_from_the_old_key(table):
    apply(table, FULL, unchanged=None, ignoreNullUpdates=True)
    apply(table, event(2, 30, "x", was=1), unchanged=None, ignoreNullUpdates=True)
    assert rows(table) == [(2, 30, "x", "b", "c")]


def test_U7_a_delete_with_an_old_key_deletes_both(table):
    apply(table, FULL, event(2, 5, "k", "l", "m"))
    apply(table, event(2, 30, op="D", was=1))
    assert rows(table) == []


def test_U7_S12_two_rows_cannot_take_one_key_at_one_place(table):
    apply(table, event(1, 10, "a", "b", "c"), event(5, 10, "k", "l", "m"))
    one, other = (event(2, 30, "x", unset=["b", "c"], was=was) for was in (1, 5))
    with pytest.raises(AmbiguousMergeError, match=r"changed to the same key .* \(id=2, ts=30\)"):
        apply(table, one, other)
    assert len(rows(table)) == 2
    apply(table, other)
    apply(table, one)
    assert rows(table) == [(2, 30, "x", "l", "m")], "in any order, that of the greater old key"


def test_U7_two_rows_may_swap_their_keys_at_one_place(table):
    apply(table, event(1, 10, "a", "b", "c"), event(2, 10, "k", "l", "m"))
    apply(table, event(2, 30, "x", unset=["b", "c"], was=1), event(1, 30, "y", unset=["b", "c"], was=2))
    assert rows(table) == [(1, 30, "y", "l", "m"), (2, 30, "x", "b", "c")]


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("STRING", "it's \\ ü", ""),
        ("BINARY", "A", "AB"),
        ("TIMESTAMP", "2024-10-27 01:30:00.000001", "2024-10-27 02:30:00"),
        ("DATE", "0001-01-01", "9999-12-31"),
        ("DECIMAL(38,10)", "-0.0000000001", "9999999999999999999999999999.9"),
        ("BOOLEAN", "false", "true"),
        ("CHAR(5)", "a", "ab"),
    ],
)
def test_U7_old_keys_of_any_type(kind, old, new, spark, tmp_path):
    table = new_table(
        spark, tmp_path, f"id {kind}, no INT, ts INT, b STRING", primaryKey=["id", "no"], watermarkKey="ts"
    )

    def take(id, ts, b, unset=None, was=None):
        row = frame(
            spark, "id STRING, no INT, ts INT, b STRING, unset ARRAY<STRING>, was STRING", (id, 1, ts, b, unset, was)
        )
        row = row.selectExpr(f"CAST(id AS {kind}) AS id", "no", "ts", "b", "unset", f"CAST(was AS {kind}) AS was")
        old_key = ["was", "IF(was IS NULL, NULL, no)"]
        return table.applyChanges(row, unchanged="unset", movedFrom=old_key, exceptColumns=["unset", "was"]).execute()

    take(old, 10, "b")
    take(new, 30, None, ["b"], was=old)
    assertRows(table.toDF().select("ts", "b"), [(30, "b")])
    assert take(old, 20, "late").rowsMended == 1
    assertRows(table.toDF().select("ts", "b"), [(30, "late")])


def test_U7_H9_bad_old_keys_are_refused(table, spark, tmp_path):
    pairs = new_table(spark, tmp_path / "pairs", "id INT, no INT, ts INT", primaryKey=["id", "no"], watermarkKey="ts")
    one = frame(spark, "id INT, no INT, ts INT", (1, 1, 1))
    cases = [
        (pairs, one, {"movedFrom": "id"}, InvalidMergeError, "a value for each key column .id, no., got 1"),
        (
            pairs,
            one,
            {"movedFrom": ["7", "CAST(NULL AS INT)"]},
            NullKeyError,
            "1 event .* old key with a null in a part",
        ),
        (pairs, one, {"movedFrom": ["'x'", "1"]}, SchemaMismatchError, "column 'id' .int.: x"),
        (pairs, one, {"movedFrom": ["nope", "1"]}, InvalidMergeError, "nope"),
        (pairs, one, {"movedFrom": 5}, InvalidMergeError, "movedFrom takes SQL text or a Column, got 5"),
    ]
    for into, source, options, error, match in cases:
        with pytest.raises(error, match=match):
            into.applyChanges(source, **options).execute()
    unordered = new_table(spark, tmp_path / "unordered", "id INT, a STRING")
    with pytest.raises(InvalidMergeError, match="movedFrom needs to know which events are earlier"):
        unordered.applyChanges(frame(spark, "id INT, a STRING", (1, "a")), movedFrom="id").execute()
    assert (pairs.version, unordered.version) == (0, 0)


# What carries rows ----------------------------------------------------------------------------------------------------


WAYS = ("compact", "full", "clone", "restore", "rename", "widen", "purge others")


@pytest.mark.parametrize(
    ("way", "history"),
    quickly(product(WAYS, [False, True]), [*product(WAYS, [False]), ("compact", True), ("widen", True)]),
)
def test_U5_U7_earlier_keys_are_carried(way, history, spark, tmp_path):
    table = new_table(spark, tmp_path / "t", SCHEMA, watermarkKey="ts", history=history)
    apply(table, FULL, event(9, 1, "k"))
    apply(table, MOVED)
    if way in ("compact", "full"):
        table.compact(full=way == "full")
    elif way == "clone":
        table = table.clone(str(tmp_path / "clone"))
    elif way == "restore":
        version = table.version
        table.deleteWhere("true").at(99).execute()
        table.restore(version)
    elif way == "rename":
        table.alter().renameColumn("b", "d").renameColumn("d", "b").renameColumn("id", "key").execute()
        table.alter().renameColumn("key", "id").execute()
    elif way == "widen":
        table.alter().widenColumn("id", "BIGINT").execute()
    else:
        table.purge([9])
    assert apply(table, LATE).rowsMended == 1
    assert (2, 30, "x", "late", "z") in rows(table)


def test_U5_U7_a_compaction_forgets_them_after_the_tombstone_retention(spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", properties={TOMBSTONE_RETENTION_HOURS: "0"})
    apply(table, FULL)
    apply(table, MOVED)
    table.compact()
    assert not table._store.snapshot().has_moved
    result = apply(table, LATE)
    assert (result.rowsMended, result.rowsBelowHorizon, rows(table)) == (
        0,
        1,
        [(1, 20, "y", "late", "z"), (2, 30, "x", "b", "c")],
    )


@pytest.mark.parametrize("history", [False, True])
def test_U5_U7_a_purge_of_an_old_key_removes_it_from_the_rows_that_came_from_it(history, spark, tmp_path):
    table = new_table(spark, tmp_path, "id STRING, ts INT, a STRING, b STRING", watermarkKey="ts", history=history)

    def take(*events):
        source = frame(spark, "id STRING, ts INT, a STRING, b STRING, unset ARRAY<STRING>, was STRING", *events)
        options = {"unchanged": "unset", "movedFrom": "was", "exceptColumns": ["unset", "was"]}
        return table.applyChanges(source, **options).execute()

    take(("secret", 10, "a", "b", None, None), ("other", 10, "a", "b", None, None))
    take(
        ("new", 30, "x", None, ["b"], "secret"),
        ("newer", 40, None, None, ["a", "b"], "new"),
        ("k", 30, "x", None, ["b"], "other"),
    )
    assert any(b"secret" in file.read_bytes() for file in Path(tmp_path).rglob("*.parquet"))
    table.purge(["secret"])
    assert not any(b"secret" in file.read_bytes() for file in Path(tmp_path).rglob("*.parquet"))
    assertRows(table.toDF(), [("newer", 40, "x", "b"), ("k", 30, "x", "b")])
    assert take(("secret", 20, "o", "o", None, None)).rowsMended == 0
    assert take(("new", 35, "late", "late", None, None), ("other", 20, "late", "late", None, None)).rowsMended == 2
    assertRows(table.toDF(), [("newer", 40, "late", "late"), ("k", 30, "x", "late")])


@pytest.mark.parametrize("concurrent", [False, True])
def test_S39a_U7_a_purged_key_does_not_come_back_as_an_old_key(concurrent, spark, tmp_path, at_point):
    columns = "id STRING, ts INT, a STRING, purged STRING"
    table = new_table(spark, tmp_path, columns, watermarkKey="ts")

    def take(*events):
        source = frame(spark, f"{columns}, unset ARRAY<STRING>, was STRING", *events)
        options = {"unchanged": "unset", "movedFrom": "was", "exceptColumns": ["unset", "was"]}
        return table.applyChanges(source, **options).execute()

    take(
        ("secret", 10, "a", "b", None, None),
        ("new", 5, "k", "l", None, None),
        ("k", 30, "x", None, ["purged"], "secret"),
    )
    if concurrent:
        at_point("commit.before", lambda: table.purge(["secret"]))
    else:
        table.purge(["secret"])
    take(("new", 40, "x", None, ["purged"], "secret"))
    assert not any(b"secret" in file.read_bytes() for file in Path(tmp_path).rglob("*.parquet"))
    assert take(("secret", 35, "back", "back", None, None)).rowsPurged == 1
    assertRows(table.toDF(), [("k", 30, "x", "b"), ("new", 40, "x", None)])


def test_U7_rows_that_cannot_be_late_are_not_looked_up(table, spark, monkeypatch):
    apply(table, FULL)
    apply(table, MOVED)
    monkeypatch.setattr(executor.mend, "with_mended", lambda *_: pytest.fail("partial rows are looked up"))
    result = table.upsert(frame(spark, SCHEMA, (1, 40, "p", "q", "r"))).execute()
    assert (result.strategy, result.rowsMended) == ("blind append", 0)


@pytest.mark.parametrize("history", [False, True])
def test_U7_rows_that_change_their_keys_often_are_followed_by_few_jobs(history, spark, tmp_path, monkeypatch):
    """Each job has a row for each change of a key, and a row that has changed its key n times takes log2(n) of them."""
    found = []
    evaluate = earlier_keys.materialize
    monkeypatch.setattr(earlier_keys, "materialize", lambda *a: found.append(evaluate(*a)) or found[-1])
    keys = {row: row for row in range(4)}
    events = [event(key, 1 + key, "a", "b", "c") for key in keys]
    for n in range(120):
        row, key = n % 4, 4 + n if not history else (7 * n + 3) % 11
        if key not in keys.values():
            events.append(event(key, 10 + n, f"a{n}", unset=["b", "c"], was=keys[row]))
            keys[row] = key
    moves = len(events) - 4
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history)
    apply(table, *events)
    assert (rows(table), moves > 60) == (live(events), True)
    assert [once.rows for once in found] == [moves] * len(found)
    assert len(found) <= 2 + 6
    apply(table, event(1, 3, "late", "late", "late"))
    assert "late" in {row[3] for row in rows(table)}


def test_U7_a_tombstone_column_may_have_any_name(spark, tmp_path):
    table = new_table(
        spark, tmp_path, "id INT, ts INT, v STRING, w STRING, moves BOOLEAN", watermarkKey="ts", tombstoneKey="moves"
    )
    table.upsert(spark.sql("SELECT 1 AS id, 1 AS ts, 'a' AS v, 'b' AS w, false AS moves")).execute()
    event = spark.sql("SELECT 2 AS id, 2 AS ts, 'A' AS v, CAST(NULL AS STRING) AS w, 1 AS was, array('w') AS unset")
    table.applyChanges(event, unchanged="unset", movedFrom="was", exceptColumns=["unset", "was"]).execute()
    assertRows(table.toDF().select("id", "v", "w"), [(2, "A", "b")])
