"""What a merge does to readers, rule by rule (S9-S12, S17-S26, S30, S30a), on every path that is sound.

Rules that one merge shows at once share it: a module fixture runs it, and each test looks at its own keys.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from helpers import assertRows
from pyspark.sql import functions as F
from tables import EVENTS, copy_of, fill, frame, live_rows, new_table, on_every_path, sound_paths

from trinitymerge import (
    AmbiguousMergeError,
    DuplicateKeyError,
    NullKeyError,
    SchemaMismatchError,
    StaleRowsError,
    TooManyDeletesError,
)
from trinitymerge.log.batches import Batches
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP

EVENT_COLUMNS = ["id", "ts", "v", "deleted"]
CHANGES = "id INT, ts INT, v STRING, op STRING, flag BOOLEAN"


@pytest.fixture(scope="module")
def events(spark, tmp_path_factory):
    """Keys 1 to 5 live, 8 and 9 deleted; every row at watermark 10."""
    table = new_table(spark, tmp_path_factory.mktemp("events"))
    rows = [(k, 10, v, False) for k, v in enumerate("abcde", 1)]
    return fill(table, spark, [*rows, (8, 10, "h", True), (9, 10, "i", True)])


# One chain, many rules ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain(spark, events):
    """A chain over source rows of every kind, as keyed lookup and as full scan."""
    source = frame(
        spark,
        CHANGES,
        (1, 20, "both", "D", False),  # the first two clauses are true
        (2, 20, "second", "U", True),
        (3, 20, "none", "N", None),  # the clause's condition is null
        (4, 5, "late", "U", True),
        (5, 5, "late", "D", True),
        (6, 20, "new", "I", True),
        (7, 20, "unwanted", "X", False),
        (8, 20, "revived", "I", True),
        (9, 5, "too late", "I", True),
        (10, 20, "absent", "D", True),
        (None, 20, "null key", "X", True),
        (None, 20, "null key", "D", True),
    )

    def merge(table):
        return (
            table.alias("A")
            .merge(source.alias("B"), "A.id = B.id")
            .whenMatched("B.op = 'D'")
            .delete()
            .whenMatched("B.op = 'U' OR B.op = 'D'")
            .updateExpr({"v": "concat(A.v, '-', B.v)"})
            .whenMatched("B.flag")
            .delete()
            .whenNotMatched("B.op = 'I'")
            .insertExpr({"id": "B.id", "v": "B.v"})
            .whenNotMatched("B.op = 'I' OR B.flag IS NULL")
            .insertExpr({"id": "B.id + 100", "v": "'second'"})
        )

    runs = on_every_path(events, merge, spark)
    assert [run.path for run in runs] == [KEY_LOOKUP, FULL_SCAN]
    return runs


def test_S17_first_true_clause_applies_and_no_other(chain):
    assert all(run.row(1) is None for run in chain)


def test_S17_second_clause_applies_where_the_first_is_not_true(chain):
    assert all(run.row(2) == (2, 20, "b-second", False) for run in chain)


def test_S17_S20_row_stays_where_no_condition_is_true_and_null_is_not(chain):
    assert all(run.row(3) == (3, 10, "c", False) for run in chain)


def test_S18_first_true_clause_inserts(chain):
    assert all(run.row(6) == (6, 20, "new", None) and run.row(106) is None for run in chain)


def test_S18_source_row_is_left_out_where_no_condition_is_true(chain):
    assert all(run.row(7) is None for run in chain)


def test_S20_C11_null_key_matches_nothing_and_may_be_left_out(chain):
    assert all(run.row(None) is None for run in chain)


def test_S22_unmentioned_columns_keep_the_targets_values(chain):
    assert all(run.row(2)[3] is False for run in chain)


def test_S23_unmentioned_columns_of_an_insert_are_null(chain):
    assert all(run.row(6)[3] is None for run in chain)


def test_S26_insert_revives_a_deleted_key(chain):
    assert all(run.row(8) == (8, 20, "revived", None) for run in chain)


def test_S26_insert_older_than_the_tombstone_is_stale(chain):
    assert all(run.row(9) is None for run in chain)


def test_S11_older_update_and_delete_lose(chain):
    assert all(run.row(4) == (4, 10, "d", False) and run.row(5) == (5, 10, "e", False) for run in chain)


def test_S10_2_watermark_of_an_unassigned_column_is_the_sources(chain):
    assert all(run.row(2)[1] == 20 and run.row(6)[1] == 20 for run in chain)


def test_S30a_counts_say_what_readers_see(chain):
    for run in chain:
        result = run.result
        assert (result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale) == (2, 1, 1, 3)
        assert result.rowsSource == 12


def test_S30a_perClause_counts_rows_on_which_each_clause_fired(chain):
    assert all(run.result.perClause == (2, 2, 0, 3, 0) for run in chain)


def test_C1_delete_of_an_absent_key_writes_a_tombstone_that_counts_as_appended_only(spark, chain):
    for run in chain:
        assert run.result.rowsAppended == 8
        late = frame(spark, "id INT, ts INT, v STRING", (10, 15, "late"))
        run.table.upsert(late).execute()
        assert 10 not in {row[0] for row in live_rows(run.table)}


# Only on target -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_target(spark, events):
    """Target-only clauses beside the others: 1 and 2 are in the source, 3, 4 and 5 are not."""
    source = frame(spark, "id INT, ts INT, v STRING", (1, 20, "x"), (2, 20, "y"))
    return on_every_path(
        events,
        lambda table: (
            table.alias("A")
            .merge(source.alias("B"), "A.id = B.id")
            .whenMatched("B.v = 'x'")
            .updateExpr({"v": "B.v"})
            .whenNotMatchedAndExistsOnlyOnTarget("A.v = 'c'")
            .delete()
            .whenNotMatchedBySource("A.v <> 'e'")
            .updateExpr({"v": "'alone'"})
            .insertExpr({"id": "A.id + 100", "v": "A.v"})
        ),
        spark,
    )


def test_S19_target_only_clauses_apply_to_live_rows_without_a_pair(on_target):
    (run,) = on_target
    assert run.rows == [
        (1, 20, "x", False),
        (104, None, "d", None),
        (2, 10, "b", False),
        (4, 10, "alone", False),
        (5, 10, "e", False),
    ]
    assert run.result.perClause == (1, 1, 1)


def test_S19_target_only_clauses_take_the_full_scan(on_target):
    assert [run.path for run in on_target] == [FULL_SCAN]


def test_S10_3_target_only_clauses_keep_the_rows_watermark(on_target):
    assert on_target[0].row(4)[1] == 10


def test_S10_4_new_key_without_a_watermark_gets_null(on_target):
    assert on_target[0].row(104)[1] is None


def test_S19_tombstoned_keys_are_not_on_the_target(spark, events):
    table = copy_of(events, spark)
    source = frame(spark, "id INT", 1)
    result = table.merge(source).whenNotMatchedBySource().updateExpr({"v": "'seen'"}).execute()
    assert result.rowsUpdated == 4
    assert {row[0] for row in live_rows(table)} == {1, 2, 3, 4, 5}


# Tombstones -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "alive"),
    [
        ("BOOLEAN", None, False),
        ("STRING", "gone", "here"),
        ("CHAR(6)", "gone", "here"),
        ("VARCHAR(6)", None, None),
        ("INT", None, None),
        ("TIMESTAMP", None, None),
    ],
)
def test_S9_delete_writes_a_tombstone_of_each_form(spark, tmp_path, kind, value, alive):
    table = new_table(spark, tmp_path, f"id INT, dead {kind}", tombstoneKey="dead", tombstoneStringValue=value)
    fill(table, spark, [(1, alive), (2, alive)])
    table.delete(frame(spark, "id INT", 1, 3)).execute()
    assert [row.id for row in table.toDF().collect()] == [2]
    assert table.toDF().count() == 1


def test_S9_tombstone_values_by_type(spark, tmp_path):
    written = {"INT": 1, "DOUBLE": 1.0, "STRING": "true", "BOOLEAN": True, "DECIMAL(5,2)": Decimal(1)}
    for kind, value in written.items():
        table = new_table(spark, tmp_path, f"id INT, dead {kind}", tombstoneKey="dead")
        assert table.delete(frame(spark, "id INT", 1)).build().preview().first().dead == value


def test_S9_date_and_time_tombstones_are_the_commit_time(spark, tmp_path):
    for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        table = new_table(spark, tmp_path, f"id INT, dead {kind}", tombstoneKey="dead")
        value = table.delete(frame(spark, "id INT", 1)).build().preview().first().dead
        assert str(value)[:10] == dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d")


def test_S9_a_tombstone_holds_key_watermark_and_tombstone_only_on_every_path(spark, events):
    source = frame(spark, EVENTS, (1, 20, "address", True), (7, 20, "address", True))
    deleted = events.delete(source)
    upserted = events.upsert(source)
    updated = events.merge(source).whenMatched().updateExpr({"v": "source.v", "deleted": "source.deleted"})
    inserted = updated.whenNotMatched().insertExpr({"id": "source.id", "v": "source.v", "deleted": "source.deleted"})
    for merge in (deleted, upserted, inserted):
        for path in sound_paths(merge, uncertain=True):
            rows = merge._with_strategy(path).build().preview()
            assertRows(rows.select(*EVENT_COLUMNS), [(1, 20, None, True), (7, 20, None, True)])


@pytest.mark.parametrize(
    ("kind", "value", "dead", "alive"),
    [("STRING", "D", "D", "U"), ("CHAR(3)", "D", "D  ", "U"), ("TIMESTAMP", None, dt.datetime(2024, 1, 1), None)],
)
def test_S9_S34_values_that_a_tombstone_does_not_hold_are_not_judged(spark, tmp_path, kind, value, dead, alive):
    schema = f"id INT, a TINYINT NOT NULL, s STRUCT<x: INT> NOT NULL, c CHAR(2) NOT NULL, w VARCHAR(2), op {kind}"
    table = new_table(spark, tmp_path, schema, tombstoneKey="op", tombstoneStringValue=value)
    fill(table, spark, [(1, 1, (1,), "c", "w", alive), (2, 1, (1,), "c", "w", alive)])
    source = "id INT, a INT, s STRUCT<x: INT>, c STRING, w STRING, op " + kind.replace("CHAR(3)", "STRING")
    events = frame(spark, source, (1, None, None, None, None, dead), (2, 1000, (2,), "too long", "too long", dead))
    for path in sound_paths(table.upsert(events)):
        copy = copy_of(table, spark)
        copy.upsert(events)._with_strategy(path).execute()
        assert copy.toDF().count() == 0
        stored = copy._store.scan(Batches.of(copy._snapshot()).of_all_rows()).filter("_tm_version = 2")
        assertRows(stored.drop("_tm_version"), [(n, 0, (0,), "  ", None, dead) for n in (1, 2)])
        wrongs = ((1, 1000, (1,), "c", "w", alive), (1, 1, None, "c", "w", alive), (1, 1, (1,), "ccc", "w", alive))
        for wrong in wrongs if kind == "STRING" else wrongs[:1]:
            with pytest.raises(SchemaMismatchError):
                table.upsert(frame(spark, source, wrong))._with_strategy(path).execute()
        with pytest.raises(NullKeyError):
            table.upsert(frame(spark, source, (None, 1, (1,), "c", "w", dead)))._with_strategy(path).execute()


def test_S18_recorded_deletes_have_the_zero_watermark_where_it_cannot_be_null_and_nobody_assigns_it(spark, tmp_path):
    schema = "id INT, ts INT NOT NULL, at TIMESTAMP"
    table = fill(new_table(spark, tmp_path, schema, watermarkKey=["ts", "at"]), spark, [(1, 10, None)])
    for run in on_every_path(table, lambda table: table.delete(frame(spark, "id INT", 1, 7)), spark):
        assert run.rows == []
        stored = run.table._store.scan(Batches.of(run.table._snapshot()).of_all_rows()).filter("_tm_version = 2")
        assertRows(stored.select("id", "ts", "at", "_tm_deleted"), [(1, 10, None, True), (7, 0, None, True)])


def test_S9_S12_tombstones_of_one_key_never_disagree_whatever_they_bring(spark, events):
    source = frame(spark, EVENTS, (1, 20, "a", True), (1, 20, "b", True))
    for run in on_every_path(events, lambda table: table.upsert(source), spark):
        assert run.row(1) is None
        assert run.result.rowsAppended == 2


def test_S9_C17_columns_that_cannot_be_null_get_zero_values_in_tombstones_of_unknown_rows(spark, tmp_path):
    zeros = {
        "b BOOLEAN": False,
        "i BIGINT": 0,
        "d DECIMAL(9,2)": Decimal(0),
        "f DOUBLE": 0.0,
        "s STRING": "",
        "y BINARY": bytearray(),
        "day DATE": dt.date(1970, 1, 1),
        "at TIMESTAMP": dt.datetime(1970, 1, 1),
        "local TIMESTAMP_NTZ": dt.datetime(1970, 1, 1),
        "e INTERVAL DAY TO SECOND": dt.timedelta(0),
        "a ARRAY<INT>": [],
        "m MAP<STRING, INT>": {},
        "r STRUCT<x: INT, y: STRING>": (0, ""),
    }
    schema = ", ".join(["id INT", *[f"{column} NOT NULL" for column in zeros], "n INT"])
    table = new_table(spark, tmp_path, schema)
    table.delete(frame(spark, "id INT", 7)).execute()
    stored = spark.read.parquet(f"{table.path}/data").drop("_tm_deleted", "_tm_batch", "_tm_clause", "_tm_effect")
    assertRows(stored, [(7, *zeros.values(), None)])


# Watermarks -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def composite(spark, tmp_path_factory):
    """Composite watermark (w1, w2): 1 and 2 live, 3 deleted."""
    table = new_table(
        spark, tmp_path_factory.mktemp("composite"), "id INT, w1 INT, w2 STRING, v INT", watermarkKey=["w1", "w2"]
    )
    fill(table, spark, [(1, 1, "m", 0), (2, 1, None, 0), (3, 1, "m", 0)])
    table.delete(frame(spark, "id INT", 3)).execute()
    return table


def test_S10_each_watermark_column_for_itself(spark, composite):
    source = frame(spark, "id INT, w2 STRING, n INT", (1, "z", 7), (4, "z", 7))
    for run in on_every_path(
        composite,
        lambda table: (
            table.merge(source).whenMatched().updateExpr({"v": "n"}).whenNotMatched().insertExpr({"id": "source.id"})
        ),
        spark,
    ):
        assert run.row(1) == (1, 1, "z", 7)  # w1 of the row it replaces, w2 of the source
        assert run.row(4) == (4, None, "z", None)  # a new key: nobody knows w1


def test_S10_1_the_map_comes_before_the_source(spark, composite):
    source = frame(spark, "id INT, w1 INT, w2 STRING, n INT", (1, 99, "z", 7), (4, 99, "z", 7))
    for run in on_every_path(
        composite,
        lambda table: (
            table.merge(source)
            .whenMatched()
            .updateExpr({"v": "n", "w1": "source.w1 - 90", "w2": None})
            .whenNotMatched()
            .insertExpr({"id": "source.id", "w1": 5})
        ),
        spark,
    ):
        assert run.row(1) == (1, 9, None, 7)
        assert run.row(4) == (4, 5, "z", None)


def test_S10_3_insert_over_a_tombstone_takes_its_watermark_and_wins(spark, composite):
    source = frame(spark, "id INT, v INT", (3, 8))
    for run in on_every_path(composite, lambda table: table.upsert(source), spark):
        assert run.row(3) == (3, 1, "m", 8)


def test_S3_composite_watermarks_compare_column_by_column_with_null_smallest(spark, composite):
    source = frame(
        spark,
        "id INT, w1 INT, w2 STRING, v INT",
        (1, 1, "n", 1),  # fresher in the second column
        (2, 1, "", 1),  # fresher than null
        (3, 1, "l", 1),  # older than the tombstone
    )
    for run in on_every_path(composite, lambda table: table.upsert(source), spark):
        assert [row[0] for row in run.rows if row[3] == 1] == [1, 2]
        assert run.result.rowsStale in (None, 1)


def test_S6_equal_watermarks_are_decided_by_the_later_commit(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (1, 10, "later"), (8, 10, "revived"))
    for run in on_every_path(events, lambda table: table.upsert(source), spark):
        assert run.row(1) == (1, 10, "later", False)
        assert run.row(8) == (8, 10, "revived", False)


def test_S11_error_refuses_stale_rows_with_keys_and_both_watermarks(spark, events):
    table = copy_of(events, spark)
    source = frame(spark, "id INT, ts INT, v STRING", (1, 9, "late"), (2, 10, "equal"), (8, 3, "late"), (7, 1, "new"))
    with pytest.raises(StaleRowsError, match=r"2 rows .* id=1: 9 is older than 10; id=8: 3 is older than 10") as error:
        table.upsert(source).onStale("error").execute()
    assert error.value.keys == [(1,), (8,)]
    assert table.version == events.version


def test_S11_force_writes_the_replaced_rows_watermark_and_wins(spark, events):
    source = frame(spark, CHANGES, (1, 3, "by hand", "U", None), (2, 3, "", "D", None), (8, 3, "back", "U", None))
    for run in on_every_path(
        events,
        lambda table: (
            table.merge(source)
            .whenMatched("op = 'D'")
            .delete()
            .whenMatched()
            .updateExpr({"v": "source.v"})
            .whenNotMatched()
            .insertExpr({"id": "source.id", "v": "source.v", "deleted": False})
            .onStale("force")
        ),
        spark,
    ):
        assert run.row(1) == (1, 10, "by hand", False)
        assert run.row(2) is None
        assert run.row(8) == (8, 10, "back", False)
        assert run.result.rowsStale == 0
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (1, 1, 1)


def test_C14_without_a_watermark_no_row_is_stale_and_the_latest_commit_wins(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a"), (2, "b"), (3, "c")])
    source = frame(spark, CHANGES, (1, 1, "x", "U", None), (2, 1, "", "D", None), (4, 1, "new", "U", None))
    for run in on_every_path(
        table,
        lambda table: (
            table.merge(source)
            .whenMatched("op = 'D'")
            .delete()
            .whenMatched()
            .updateAll()
            .whenNotMatched("op <> 'D'")
            .insertAll()
        ),
        spark,
    ):
        assert run.rows == [(1, "x"), (3, "c"), (4, "new")]
        assert run.result.rowsStale == 0


# One batch, one freshest row per key ----------------------------------------------------------------------------------


def test_S12_rows_with_different_watermarks_freshest_wins(spark, events):
    source = frame(
        spark,
        CHANGES,
        *[(1, 21, "early", "U", None), (1, 23, "freshest", "U", None), (1, 22, "", "D", None)],
        *[(2, 21, "early", "U", None), (2, 22, "", "D", None)],
        *[(6, 21, "new", "U", None), (6, None, "older", "U", None)],
        *[(3, 5, "stale", "U", None), (3, 11, "fresh", "U", None)],
    )
    for run in on_every_path(
        events,
        lambda table: (
            table.merge(source)
            .whenMatched("op = 'D'")
            .delete()
            .whenMatched()
            .updateAll()
            .whenNotMatched("op <> 'D'")
            .insertAll()
        ),
        spark,
        uncertain=True,
    ):
        assert run.row(1) == (1, 23, "freshest", False)
        assert run.row(2) is None
        assert run.row(6) == (6, 21, "new", False)
        assert run.row(3) == (3, 11, "fresh", False)
        if run.path is not APPEND_ONLY:
            result = run.result
            counts = (result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale)
            assert counts == (1, 2, 1, 1)


def test_S12_equal_rows_and_tombstones_are_not_ambiguous(spark, events):
    source = frame(
        spark,
        CHANGES,
        *[(1, 20, "twice", "U", None)] * 2,
        *[(2, 20, "one", "D", None), (2, 20, "other", "D", None)],
        *[(6, None, "twice", "U", None)] * 2,
    )
    for run in on_every_path(
        events,
        lambda table: (
            table.merge(source)
            .whenMatched("op = 'D'")
            .delete()
            .whenMatched()
            .updateAll()
            .whenNotMatched("op <> 'D'")
            .insertAll()
        ),
        spark,
        uncertain=True,
    ):
        assert run.row(1) == (1, 20, "twice", False)
        assert run.row(2) is None
        assert run.row(6) == (6, None, "twice", False)


def test_S12_different_rows_with_equal_watermarks_are_refused_on_every_path(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", *[(k, 20, v) for k in range(1, 8) for v in "xyz"], (9, 20, "x"))
    for path in (APPEND_ONLY, KEY_LOOKUP, FULL_SCAN):
        table = copy_of(events, spark)
        with pytest.raises(AmbiguousMergeError) as error:
            table.upsert(source)._with_strategy(path).execute()
        assert error.value.keys == [(1,), (2,), (3,), (4,), (5,)]
        for words in ("primary key (id)", "equal 'ts'", "id=1 (3 rows)", "..."):
            assert words in str(error.value)
        assert table.version == events.version


def test_S12_a_tombstone_and_a_row_with_equal_watermarks_are_ambiguous(spark, events):
    source = frame(spark, CHANGES, (1, 20, "x", "U", None), (1, 20, "x", "D", None))
    merge = events.merge(source).whenMatched("op = 'D'").delete().whenMatched().updateExpr({"v": "source.v"})
    with pytest.raises(
        AmbiguousMergeError, match=r"""clause 1, whenMatched\("op = 'D'"\) and clause 2, whenMatched\(\)"""
    ):
        merge.execute()


def test_S12_C8_null_watermarks_are_equal(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (6, None, "x"), (6, None, "y"))
    with pytest.raises(AmbiguousMergeError, match="id=6"):
        events.upsert(source).execute()


def test_S12_without_a_watermark_two_source_rows_for_one_target_row_are_refused(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a")])
    source = frame(spark, "id INT, v STRING", (1, "x"), (1, "y"))
    with pytest.raises(AmbiguousMergeError, match=r"and no watermark: id=1 \(2 rows\)"):
        table.update(source).execute()


# What a column holds, another value that is equal for S12, and one that is not.
CONTENT = [
    ("DOUBLE", "double('NaN')", "double('NaN')", "double('Infinity')"),
    ("DOUBLE", "0.0D", "-0.0D", "NULL"),
    ("FLOAT", "float('0')", "float('-0')", "float('NaN')"),
    ("STRUCT<a: DOUBLE, b: INT>", "named_struct('a', 0.0D, 'b', NULL)", "named_struct('a', -0.0D, 'b', NULL)", "NULL"),
    ("STRUCT<a: INT>", "named_struct('a', NULL)", "named_struct('a', NULL)", "NULL"),
    ("ARRAY<DOUBLE>", "array(0.0D, double('NaN'), NULL)", "array(-0.0D, double('NaN'), NULL)", "array(0.0D)"),
    ("ARRAY<INT>", "array()", "array()", "NULL"),
    ("MAP<STRING, INT>", "map('a', 1, 'b', NULL)", "map('a', 1, 'b', NULL)", "map('b', NULL, 'a', 1)"),
    ("MAP<STRING, DOUBLE>", "map('a', double('NaN'))", "map('a', double('NaN'))", "map()"),
    ("MAP<STRING, DOUBLE>", "map('a', 0.0D)", "map('a', 0.0D)", "map('a', -0.0D)"),
    ("BINARY", "X'00'", "X'00'", "X'0000'"),
    ("STRING", "'a'", "'a'", "'A'"),
    ("VARCHAR(3)", "'a '", "'a '", "'a'"),
    ("DECIMAL(5, 2)", "1.10BD", "1.1BD", "1.11BD"),
    ("INTERVAL DAY TO SECOND", "INTERVAL '1' DAY", "INTERVAL '24' HOUR", "NULL"),
    ("BOOLEAN", "NULL", "NULL", "false"),
]


@pytest.mark.managed("Iceberg has no intervals")
def test_S12_rows_differ_by_their_content(spark, tmp_path):
    """One batch for each value: two rows that are equal are written, and two that are not are refused."""
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(CONTENT))
    table = new_table(spark, tmp_path, f"id INT, ts INT, {columns}", watermarkKey="ts")

    def rows(others):
        """A key for each column: a row of first values beside a row that has another value in that column."""
        values = [
            ", ".join(f"CAST({row[k] if i == key else row[1]} AS {row[0]})" for i, row in enumerate(CONTENT))
            for key in others
            for k in (1, others[key])
        ]
        keys = [key for key in others for _ in range(2)]
        return "SELECT * FROM VALUES " + ", ".join(f"({k}, 1, {v})" for k, v in zip(keys, values, strict=True))

    def merge(others):
        return table.upsert(spark.sql(rows(others)).toDF(*table.definition.names)).execute()

    assert merge(dict.fromkeys(range(len(CONTENT)), 2)).rowsAppended == 2 * len(CONTENT)
    different = dict.fromkeys(range(len(CONTENT)), 3)
    found = []
    for start in range(0, len(CONTENT), 4):  # the message names five keys
        with pytest.raises(AmbiguousMergeError, match="several different rows") as caught:
            merge(dict.fromkeys(list(different)[start : start + 4], 3))
        found += [key for (key,) in caught.value.keys]
    assert found == list(different)


def test_S12_maps_are_compared_too(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, m MAP<STRING, INT>")
    equal = frame(spark, "id INT, m MAP<STRING, INT>", (1, {"a": 1}), (1, {"a": 1}))
    table.upsert(equal).execute()
    different = frame(spark, "id INT, m MAP<STRING, INT>", (1, {"a": 1}), (1, {"a": 2}))
    with pytest.raises(AmbiguousMergeError):
        table.upsert(different).execute()


# Actions --------------------------------------------------------------------------------------------------------------


def test_S21_update_and_insert_in_one_clause_keep_history(spark, tmp_path):
    """CarbonData's slowly changing dimension: the old row is closed, the new one opened, in one clause."""
    table = new_table(spark, tmp_path, "id INT, since INT, v STRING, until INT", primaryKey=["id", "since"])
    fill(table, spark, [(1, 1, "a", None), (2, 1, "b", None), (2, 0, "old", 1)])
    source = frame(spark, "id INT, v STRING", (1, "A"), (2, "b"), (3, "c"))
    for run in on_every_path(
        table,
        lambda table: (
            table.alias("A")
            .merge(source.alias("B"), "A.id = B.id AND A.until IS NULL")
            .whenMatched("A.v <> B.v")
            .updateExpr({"until": 5})
            .insertExpr({"id": "B.id", "since": 5, "v": "B.v"})
            .whenNotMatched()
            .insertExpr({"id": "B.id", "since": 5, "v": "B.v"})
        ),
        spark,
    ):
        assert run.rows == [(1, 1, "a", 5), (1, 5, "A", None), (2, 0, "old", 1), (2, 1, "b", None), (3, 5, "c", None)]
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (2, 1, 0)
        assert run.result.perClause == (1, 1)


@pytest.mark.slow
def test_S21_delete_with_several_inserts(spark, events):
    source = frame(spark, "id INT, ts INT", (1, 20))
    for run in on_every_path(
        events,
        lambda table: (
            table.alias("A")
            .merge(source.alias("B"), "A.id = B.id")
            .whenMatched()
            .delete()
            .insertExpr({"id": "A.id + 20", "v": "A.v"})
            .insertExpr({"id": "A.id + 30", "v": "upper(A.v)"})
        ),
        spark,
    ):
        assert run.row(1) is None
        assert run.row(21) == (21, 20, "a", None)
        assert run.row(31) == (31, 20, "A", None)
        assert (run.result.rowsInserted, run.result.rowsDeleted) == (2, 1)


def test_S21_inserts_alone_leave_the_matched_row(spark, events):
    table = copy_of(events, spark)
    source = frame(spark, "id INT, ts INT", (1, 20))
    table.merge(source).whenMatched().insertExpr({"id": "source.id + 20"}).execute()
    assert {1, 21} <= {row[0] for row in live_rows(table)}


def test_S22_map_keys_are_names_qualified_names_columns_and_struct_fields(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, a INT, b INT, s STRUCT<x: INT, y: STRUCT<z: STRING, w: INT>>")
    fill(table, spark, [(1, 0, 0, (1, ("old", 1))), (2, 0, 0, None)])
    source = frame(spark, "id INT, n INT", (1, 7), (2, 8))
    for run in on_every_path(
        table,
        lambda table: (
            table.alias("A")
            .merge(source.alias("B"), "A.id = B.id")
            .whenMatched()
            .updateExpr([("A.a", "B.n"), (F.col("A.b"), F.col("B.n") + 1), ("s.y.z", "'new'"), ("A.s.x", F.col("B.n"))])
        ),
        spark,
    ):
        assert run.row(1) == (1, 7, 8, (7, ("new", 1)))
        assert run.row(2) == (2, 8, 9, (8, ("new", None)))


def test_S22_updateAll_takes_source_columns_by_name_and_alive_where_the_tombstone_is_missing(spark, events):
    source = frame(spark, "V STRING, extra INT, ID INT", ("x", 1, 1))
    for run in on_every_path(events, lambda table: table.update(source), spark):
        assert run.row(1) == (1, 10, "x", False)


def test_S22_C7_exceptColumns_keeps_the_targets_values_but_not_its_watermark(spark, events):
    source = frame(spark, "id INT, ts INT", (1, 20), (6, 20))
    for run in on_every_path(
        events,
        lambda table: (
            table.merge(source)
            .whenMatched()
            .updateAll(exceptColumns=["v", "ts"])
            .whenNotMatched()
            .insertAll(exceptColumns="V")
        ),
        spark,
    ):
        assert run.row(1) == (1, 20, "a", False)
        assert run.row(6) == (6, 20, None, False)


@pytest.mark.parametrize(
    ("kind", "value", "alive"), [("STRING", "gone", None), ("INT", None, None), ("BOOLEAN", None, False)]
)
def test_C6_upsert_from_a_source_without_the_tombstone_column_makes_rows_alive(spark, tmp_path, kind, value, alive):
    table = new_table(spark, tmp_path, f"id INT, dead {kind}", tombstoneKey="dead", tombstoneStringValue=value)
    table.upsert(frame(spark, "id INT", 1)).execute()
    assertRows(table.toDF(), [(1, alive)])


def test_S22_an_update_that_writes_a_tombstone_deletes(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (1, 20, "x", True), (6, 20, "y", True))
    for run in on_every_path(events, lambda table: table.upsert(source), spark):
        assert run.row(1) is None
        assert run.row(6) is None
        assert run.result.rowsDeleted in (None, 1)
        assert run.result.rowsUpdated in (None, 0)
        assert run.result.rowsInserted in (None, 0)


def test_S22_updating_the_tombstone_column_by_hand_deletes(spark, events):
    table = copy_of(events, spark)
    result = table.updateWhere("v = 'a'", {"deleted": True}).execute()
    assert (result.rowsUpdated, result.rowsDeleted) == (0, 1)
    assert 1 not in {row[0] for row in live_rows(table)}


# Moving and colliding keys --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moves(spark, events):
    """1 and 2 swap, 3 moves to a new key, 4 to a deleted one's, 5 onto a key that does not change."""
    source = frame(spark, "id INT, ts INT, to INT", (1, 20, 2), (2, 20, 1), (3, 20, 33), (4, 20, 8), (5, 20, 5))
    return on_every_path(
        events,
        lambda table: table.merge(source).whenMatched().updateExpr({"id": "to", "v": "concat(v, '!')"}),
        spark,
    )


def test_S24_swapped_keys_get_only_the_arriving_rows(moves):
    assert all(run.row(1) == (1, 20, "b!", False) and run.row(2) == (2, 20, "a!", False) for run in moves)


def test_S24_moved_row_leaves_its_old_key(moves):
    assert all(run.row(3) is None and run.row(33) == (33, 20, "c!", False) for run in moves)


def test_S24_row_may_move_onto_a_deleted_key(moves):
    assert all(run.row(4) is None and run.row(8) == (8, 20, "d!", False) for run in moves)


def test_C3_key_that_is_assigned_but_does_not_change_is_an_ordinary_update(moves):
    assert all(run.row(5) == (5, 20, "e!", False) for run in moves)


def test_S30a_a_moved_key_is_one_update(moves):
    for run in moves:
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (0, 5, 0)
        assert run.result.rowsAppended == 7  # and the tombstones of 3 and 4


@pytest.mark.slow
def test_S24_key_moved_onto_a_row_deleted_by_the_same_merge(spark, events):
    source = frame(spark, CHANGES, (1, 20, "", "D", None), (2, 20, "", "M", None))
    for run in on_every_path(
        events,
        lambda table: (
            table.merge(source).whenMatched("op = 'D'").delete().whenMatched().updateExpr({"id": "source.id - 1"})
        ),
        spark,
        uncertain=True,
    ):
        assert run.row(1) == (1, 20, "b", False)
        assert run.row(2) is None
        assert (run.result.rowsUpdated, run.result.rowsDeleted, run.result.rowsAppended) == (1, 1, 2)


def test_C3_stale_move_writes_nothing_at_all(spark, events):
    source = frame(spark, "id INT, ts INT, to INT", (1, 5, 21), (2, 7, 8))
    for run in on_every_path(events, lambda table: table.merge(source).whenMatched().updateExpr({"id": "to"}), spark):
        assert run.rows == live_rows(events)
        assert run.result.rowsStale == 2
        assert run.result.rowsAppended == 0


def test_C3_forced_move_takes_the_larger_watermark_of_what_it_leaves_and_meets(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "b", False), (8, 30, "h", True)])
    source = frame(spark, "id INT, ts INT, to INT", (1, 5, 21), (2, 20, 8))
    for run in on_every_path(
        table, lambda table: table.merge(source).whenMatched().updateExpr({"id": "to"}).onStale("force"), spark
    ):
        assert run.rows == [(21, 10, "a", False), (8, 30, "b", False)]


def test_S25_insert_at_a_live_key_is_refused(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (1, 20, "x"), (2, 5, "old"), (7, 20, "free"))
    with pytest.raises(DuplicateKeyError, match=r"2 rows .* id=1; id=2, from insert\(\)") as error:
        events.insert(source).execute()
    assert error.value.keys == [(1,), (2,)]


def test_S25_move_onto_a_live_key_is_refused_on_every_path(spark, events):
    source = frame(spark, "id INT, ts INT", (1, 20))
    for path in (KEY_LOOKUP, FULL_SCAN):
        with pytest.raises(DuplicateKeyError, match="id=2"):
            events.merge(source).whenMatched().updateExpr({"id": "target.id + 1"})._with_strategy(path).execute()


@pytest.mark.slow
def test_S25_key_that_the_same_merge_frees_may_be_taken_by_an_insert(spark, events):
    source = frame(spark, CHANGES, (1, 20, "", "D", None), (2, 20, "", "M", None), (50, 20, "x", "I", None))

    def merge(table):
        return (
            table.merge(source, "target.id = source.id")
            .whenMatched("op = 'D'")
            .delete()
            .whenMatched("op = 'M'")
            .updateExpr({"id": 22})
            .whenNotMatched()
            .insertExpr({"id": "source.id - 49", "v": "'at 1'"})
        )

    for run in on_every_path(events, merge, spark, uncertain=True):
        assert run.row(1) == (1, 20, "at 1", None)
        assert run.row(2) is None
        assert run.row(22) == (22, 20, "b", False)
        # the row at 1 was replaced, the one at 2 moved
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (0, 2, 0)


def test_S30a_row_that_moves_as_a_tombstone_frees_its_key_as_a_delete_does(spark, events):
    source = frame(spark, CHANGES, (2, 20, "", "M", None), (50, 20, "x", "I", None))

    def merge(table):
        return (
            table.merge(source, "target.id = source.id")
            .whenMatched("op = 'M'")
            .updateExpr({"id": 22, "deleted": True})
            .whenNotMatched()
            .insertExpr({"id": "source.id - 48", "v": "'at 2'"})
        )

    for run in on_every_path(events, merge, spark, uncertain=True):
        assert run.row(2) == (2, 20, "at 2", None)
        assert run.row(22) is None
        # one live row was replaced; none came and none went
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (0, 1, 0)


def test_S24_two_rows_moved_to_one_key_are_ambiguous(spark, events):
    source = frame(spark, "id INT, ts INT", (1, 20), (2, 20))
    with pytest.raises(AmbiguousMergeError, match=r"id=77 \(2 rows\)"):
        events.merge(source).whenMatched().updateExpr({"id": 77}).execute()


def test_S24_a_row_moved_to_two_places_is_ambiguous(spark, events):
    source = frame(spark, "id INT, ts INT, to INT", (1, 20, 21), (1, 30, 22))
    with pytest.raises(AmbiguousMergeError, match=r"moves them to several: .*id=21; id=22"):
        events.merge(source).whenMatched().updateExpr({"id": "to"}).execute()


def test_S24_a_row_that_moves_is_changed_by_nothing_else(spark, events):
    source = frame(spark, CHANGES, (1, 20, "", "M", None), (1, 30, "x", "U", None))
    merge = events.merge(source).whenMatched("op = 'M'").updateExpr({"id": 21}).whenMatched().updateExpr({"v": "'x'"})
    with pytest.raises(AmbiguousMergeError, match="also changes them otherwise"):
        merge.execute()


@pytest.mark.slow
def test_S24_the_same_move_may_be_delivered_twice(spark, events):
    source = frame(spark, "id INT, ts INT", (1, 20), (1, 20))
    for run in on_every_path(events, lambda table: table.merge(source).whenMatched().updateExpr({"id": 21}), spark):
        assert run.row(1) is None
        assert run.row(21) == (21, 20, "a", False)
        assert (run.result.rowsUpdated, run.result.rowsDeleted) == (1, 0)


def test_S9_the_tombstone_that_a_move_leaves_is_bare(spark, events):
    source = frame(spark, "id INT, ts INT", (1, 20))
    merge = events.merge(source).whenMatched().updateExpr({"id": 21, "v": "'moved'"})
    for path in (KEY_LOOKUP, FULL_SCAN):
        rows = merge._with_strategy(path).preview().select("id", "ts", "v", "deleted", "_tm_action")
        assertRows(rows, [(21, 20, "moved", False, "update"), (1, 20, None, True, "delete")])


@pytest.mark.slow
def test_S25_an_update_that_writes_a_tombstone_frees_its_key_for_an_insert(spark, events):
    source = frame(spark, CHANGES, (1, 20, "", "D", None), (50, 20, "new", "I", None))

    def merge(table):
        return (
            table.merge(source)
            .whenMatched()
            .updateExpr({"deleted": True})
            .whenNotMatched()
            .insertExpr({"id": "source.id - 49", "v": "source.v"})
        )

    for run in on_every_path(events, merge, spark, uncertain=True):
        assert run.row(1) == (1, 20, "new", None)
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (0, 1, 0)
        assert run.result.rowsAppended == 1


def test_S30a_rows_that_move_and_become_one_are_an_update_and_a_delete(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "same"), (2, "same"), (3, "other")])
    source = frame(spark, "id INT", 1, 2)
    for run in on_every_path(table, lambda table: table.merge(source).whenMatched().updateExpr({"id": 7}), spark):
        assert run.rows == [(3, "other"), (7, "same")]
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (0, 1, 1)


def test_S34_null_key_is_refused_with_its_clause_or_call(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (None, 20, "x"), (7, 20, "y"))
    for path in (APPEND_ONLY, KEY_LOOKUP, FULL_SCAN):
        with pytest.raises(NullKeyError, match=r"'id' of 1 row .* from upsert\(\): \(id=None, ts=20"):
            events.upsert(source)._with_strategy(path).execute()


# Names ----------------------------------------------------------------------------------------------------------------


def test_S30_names_ignore_case_and_unqualified_names_mean_the_side_that_has_them(spark, events):
    source = frame(spark, "ID INT, Ts INT, V STRING, N INT", (1, 20, "x", 3))
    for run in on_every_path(
        events,
        lambda table: (
            table.alias("A")
            .merge(source.alias("B"), "a.ID = b.iD")
            .whenMatched("n = 3")
            .updateExpr({"V": "upper(B.v)"})
        ),
        spark,
    ):
        assert run.row(1) == (1, 20, "X", False)


def test_S30_default_aliases_are_target_and_source(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (1, 20, "x"))
    for run in on_every_path(
        events,
        lambda table: (
            table.merge(source, "target.id = source.id")
            .whenMatched("target.v <> source.v")
            .updateExpr({"v": "source.v"})
        ),
        spark,
    ):
        assert run.row(1)[2] == "x"


def test_S30_conditions_and_values_may_be_Columns_text_and_literals_mixed(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (1, 20, "x"), (2, 20, "y"))
    for run in on_every_path(
        events,
        lambda table: (
            table.alias("A")
            .merge(source.alias("B"), F.col("A.id") == F.col("B.id"))
            .whenMatched(F.col("B.v") == "x")
            .updateExpr({"v": F.concat("A.v", F.lit("-"), "B.v"), "deleted": None})
            .whenMatched("B.v = 'y'")
            .updateExpr({"v": "'text'", "ts": 99})
        ),
        spark,
    ):
        assert run.row(1) == (1, 20, "a-x", None)
        assert run.row(2) == (2, 99, "text", False)


def test_S30_case_sensitive_sessions_tell_names_apart(spark, events):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        table = copy_of(events, spark)
        source = frame(spark, "id INT, ts INT, V STRING, v STRING", (1, 20, "upper", "lower"))
        table.update(source).execute()
        assertRows(table.toDF().filter("id = 1"), [(1, 20, "lower", False)])
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_S29_fields_that_differ_by_case_alone_are_not_guessed(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, s STRUCT<a: INT>")
    table.alter().addColumn("s.b", "INT").execute()
    source = frame(spark, "id INT, s STRUCT<a: INT, A: INT>", (1, (1, 2)))
    with pytest.raises(SchemaMismatchError, match="column 's' is struct"):
        table.upsert(source).execute()
    assert table.toDF().isEmpty()


# Guards ---------------------------------------------------------------------------------------------------------------


def test_S37_C12_empty_source_commits_nothing_whatever_the_clauses(spark, events):
    table = copy_of(events, spark)
    empty = frame(spark, "id INT, ts INT, v STRING", (1, 1, "x")).filter("id > 1")
    for builder in (table.upsert(empty), table.merge(empty).whenNotMatchedBySource().delete()):
        result = builder.execute()
        assert result.version == events.version
        assert "source is empty" in result.skipped
        assert (result.rowsDeleted, result.rowsAppended, result.rowsSource) == (0, 0, 0)
    assert table.version == events.version


def test_C12_merge_in_which_no_clause_fires_commits_nothing(spark, events):
    table = copy_of(events, spark)
    source = frame(spark, "id INT, ts INT", (1, 20))
    result = table.merge(source).whenMatched("target.v = 'nobody'").delete().execute()
    assert (result.version, result.rowsAppended, result.rowsSource) == (events.version, 0, 1)
    assert "no clause applied" in result.skipped
    assert table.version == events.version


def test_S37_maxDeleteFraction_allows_exactly_its_share(spark, tmp_path):
    """As floats, 0.29 * 100 is less than 29; 29 / 100 is 0.29."""
    table = fill(new_table(spark, tmp_path, "id INT"), spark, [(i,) for i in range(100)])
    with pytest.raises(TooManyDeletesError):
        table.deleteWhere("id < 30").maxDeleteFraction(0.29).execute()
    assert table.deleteWhere("id < 29").maxDeleteFraction(0.29).execute().rowsDeleted == 29


def test_S37_maxDeleteFraction_refuses_with_both_counts(spark, events):
    table = copy_of(events, spark)
    source = frame(spark, "id INT, ts INT", (1, 20), (2, 20), (8, 20), (70, 20))
    with pytest.raises(
        TooManyDeletesError, match=r"delete 2 of 5 live rows, more than the allowed share of 0\.3"
    ) as error:
        table.delete(source).maxDeleteFraction(0.3).execute()
    assert (error.value.deletes, error.value.live) == (2, 5)
    assert table.version == events.version
    assert table.delete(source).maxDeleteFraction(0.4).execute().rowsDeleted == 2


def test_S12_S15_maps_with_binary_keys_are_compared_by_their_bytes(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, m MAP<BINARY, INT>", watermarkKey="ts", tombstoneKey=None)
    event = "SELECT 1 AS id, 1 AS ts, map(X'01', 1) AS m"
    table.upsert(spark.sql(f"{event} UNION ALL {event}")).execute()
    assert table.toDF().count() == 1
