"""T1-T3: truncates are remembered: late events from before them bring no row back, in any order and any batches."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from helpers import assertRows, quickly
from tables import frame, new_table

from trinitymerge import InvalidMergeError, StaleRowsError, TooManyDeletesError, TrinityTable
from trinitymerge.log.actions import RemoveBatch, TruncateTable
from trinitymerge.schema.properties import MINOR_COMPACTION_AFTER_BATCHES
from trinitymerge.spark.conf import session_conf
from trinitymerge.testing import ModelTable

SCHEMA = "id INT, ts INT, v STRING"
EVENTS = f"{SCHEMA}, op STRING"


@pytest.fixture
def table(spark, tmp_path):
    return new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", tombstoneKey=None)


def feed(table, *events, **options):
    """The merge of events (id, ts, v, op): not run yet."""
    rows = frame(table._store.spark, EVENTS, *events)
    deletes, truncates = {"applyAsDeletes": "op = 'D'"}, {"applyAsTruncates": "op = 'T'"}
    return table.applyChanges(rows, **deletes, **truncates, exceptColumns=["op"], **options)


def modelled(model, *events, **options):
    rows = [dict(zip(("id", "ts", "v", "op"), event, strict=True)) for event in events]
    return model.applyChanges(
        rows,
        applyAsDeletes=lambda event: event["op"] == "D",
        applyAsTruncates=lambda event: event["op"] == "T",
        exceptColumns=["op"],
        **options,
    )


def rows(table):
    return sorted(tuple(row) for row in table.toDF().select("id", "ts", "v").collect())


def truncate(ts):
    return (None, ts, None, "T")


STREAM = [(1, 1, "a", "I"), (2, 2, "b", "I"), truncate(3), (1, 4, "c", "I"), (2, 2, "b", "U"), (3, 1, "late", "I")]
ORDERS = list(permutations(range(len(STREAM))))


@pytest.mark.parametrize("order", quickly([(ORDERS[n],) for n in range(0, 720, 90)], [(ORDERS[-1],)]), ids=str)
def test_T1_the_order_of_events_and_truncates_changes_nothing(order, table):
    for number in order:
        feed(table, STREAM[number]).execute()
    assert rows(table) == [(1, 4, "c")]


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
def test_T1_any_order_and_batching_is_one_pass_in_order_with_compactions_and_restores(history, spark, tmp_path):
    for seed in range(6):
        rnd = random.Random(seed)
        properties = {MINOR_COMPACTION_AFTER_BATCHES: "3"} if seed % 2 else {}
        keys = {"primaryKey": "id", "watermarkKey": "ts", "history": history, "properties": properties}
        table = TrinityTable.create(spark, f"{tmp_path}/{seed}", SCHEMA, **keys)
        events = [
            truncate(ts) if rnd.random() < 0.2 else (rnd.randint(1, 4), ts, rnd.choice("abc"), rnd.choice("IIUD"))
            for ts in rnd.sample(range(100), 14)
        ]
        in_order = ModelTable(table.definition)
        for event in sorted(events, key=lambda e: e[1]):
            modelled(in_order, event)
        while events:
            some, events = events[: (n := rnd.randint(1, 5))], events[n:]
            feed(table, *some).execute()
            if rnd.random() < 0.3:
                table.compact(full=rnd.random() < 0.5)
            if rnd.random() < 0.2:
                version = table.version
                table.deleteWhere("true").at(500).execute()
                table.restore(version)
        assert rows(table) == sorted((r["id"], r["ts"], r["v"]) for r in in_order.live()), seed
        if history:
            told = [(r["id"], r["v"], r["validFrom"], r["validTo"]) for r in in_order.versions()]
            assert versions(table) == sorted(told, key=lambda r: r[::2]), seed


def test_T2_a_truncate_is_an_entry_of_the_log_and_reads_nothing(table):
    feed(table, (1, 1, "a", "I"), (2, 2, "b", "I")).execute()
    result = feed(table, truncate(3), (3, 4, "c", "I")).execute()
    assert (result.strategy, result.rowsAppended, result.rowsDeleted, result.rowsSource) == ("blind append", 1, None, 2)
    commit = table._store.history()[0]
    assert [type(a) for a in commit.actions if isinstance(a, (RemoveBatch, TruncateTable))] == [
        RemoveBatch,
        TruncateTable,
    ]
    alone = feed(table, truncate(9)).execute()
    assert (alone.version, alone.rowsAppended, alone.kept) == (3, 0, "the truncate")
    assert rows(table) == []


def test_T2_a_truncate_deletes_the_rows_of_batches_that_have_fresher_ones_too(table):
    feed(table, (1, 1, "a", "I"), (2, 5, "b", "I")).execute()
    result = feed(table, truncate(3)).execute()
    assert (result.rowsDeleted, rows(table)) == (1, [(2, 5, "b")])


@pytest.mark.parametrize("asked", [lambda merge: merge.withCounts(), lambda merge: merge.maxDeleteFraction(1.0)])
def test_T2_deletes_are_counted_if_asked(asked, table):
    feed(table, (1, 1, "a", "I"), (2, 2, "b", "I")).execute()
    assert asked(feed(table, truncate(3), (2, 4, "c", "I"))).execute().rowsDeleted == 1
    assert rows(table) == [(2, 4, "c")]


def test_T2_too_many_deletes_are_refused(table):
    feed(table, (1, 1, "a", "I"), (2, 2, "b", "I")).execute()
    with pytest.raises(TooManyDeletesError, match="delete 2 of 2 live rows"):
        feed(table, truncate(3)).maxDeleteFraction(0.5).execute()
    assert len(rows(table)) == 2


def test_T1_every_merge_heeds_a_truncate(spark, table):
    feed(table, (1, 1, "a", "I"), truncate(10)).execute()
    late = frame(spark, SCHEMA, (1, 9, "late"), (2, 11, "new"))
    assert (table.upsert(late).execute().rowsTruncated, rows(table)) == (1, [(2, 11, "new")])
    keyed = table.upsert(frame(spark, SCHEMA, (3, 9, "late"))).withCounts().execute()
    assert (keyed.rowsStale, keyed.rowsTruncated, keyed.skipped) == (
        1,
        1,
        "every row to write is older than the table's last truncate",
    )
    with pytest.raises(StaleRowsError, match="id=3: 9 is older than 10"):
        table.upsert(frame(spark, SCHEMA, (3, 9, "late"))).onStale("error").execute()
    table.upsert(frame(spark, SCHEMA, (3, 9, "forced"))).onStale("force").execute()
    assert rows(table) == [(2, 11, "new"), (3, 10, "forced")]
    table.upsert(frame(spark, "id INT, v STRING", (4, "undated"))).execute()  # takes the truncate's (S10.3)
    assert rows(table)[-1] == (4, 10, "undated")


def test_T1_a_delete_from_before_a_truncate_is_not_stored(table):
    feed(table, truncate(10)).execute()
    assert feed(table, (1, 5, None, "D")).execute().rowsAppended == 0


def test_T1_an_older_truncate_after_a_fresher_one_changes_nothing(table):
    feed(table, truncate(10), (1, 11, "a", "I")).execute()
    feed(table, truncate(5), (2, 7, "late", "I")).execute()
    assert rows(table) == [(1, 11, "a")]
    assert table._snapshot().truncate.watermark == (10,)


def test_T1_filled_nulls_do_not_reach_over_a_truncate(table):
    feed(table, (1, 1, "a", "I")).execute()
    feed(table, truncate(3), (1, 4, None, "U"), ignoreNullUpdates=True).execute()
    feed(table, (1, 6, None, "U"), ignoreNullUpdates=True).execute()
    assert rows(table) == [(1, 6, None)]


def test_T3_restore_and_time_travel_know_their_truncate(spark, table):
    feed(table, (1, 1, "a", "I")).execute()
    feed(table, truncate(3)).execute()
    assert rows(TrinityTable.forPath(spark, table.path, versionAsOf=1)) == [(1, 1, "a")]
    table.restore(1)
    assert (table._snapshot().truncate, rows(table)) == (None, [(1, 1, "a")])
    feed(table, (2, 2, "b", "I")).execute()
    assert rows(table) == [(1, 1, "a"), (2, 2, "b")]
    table.restore(2)
    feed(table, (2, 2, "b", "I")).execute()
    assert (rows(table), table._snapshot().truncate.version) == ([], 2)


def test_T3_a_clone_remembers_the_truncate(spark, table, tmp_path):
    feed(table, (1, 1, "a", "I"), truncate(3), (2, 4, "b", "I")).execute()
    clone = table.clone(f"{tmp_path}/clone")
    feed(clone, (1, 2, "late", "I")).execute()
    assert rows(clone) == [(2, 4, "b")]


def test_T3_a_truncate_that_leaves_nothing_is_explained_also_in_a_clone_and_after_a_restore(spark, table, tmp_path):
    feed(table, (1, 1, "a", "I")).execute()
    feed(table, truncate(3)).execute()
    told = [("deleted: the table was truncated", 2, True)]

    def why(of):
        return [(r["_why"], r["_commit_version"], r["_commit_timestamp"] is not None) for r in of.why(1).collect()]

    assert why(table) == told
    feed(table, (2, 4, "b", "I")).execute()
    assert why(table.clone(f"{tmp_path}/clone")) == told
    table.restore(1)
    table.restore(2)
    feed(table, (3, 5, "c", "I")).execute()
    rows = table.changes(4).select("id", "_change_type", "_commit_version", "_commit_timestamp").collect()
    assert sorted((r[0], r[1], r[2], r[3] is not None) for r in rows) == [
        (1, "delete", 5, True),
        (3, "insert", 6, True),
    ]


def test_T3_changes_and_why_say_what_a_truncate_deleted(spark, table):
    feed(table, (1, 1, "a", "I"), (2, 2, "b", "I")).execute()
    feed(table, truncate(3), (2, 4, "c", "I")).execute()
    feed(table, (3, 5, "d", "I")).execute()
    told = table.changes(1).select("id", "v", "_change_type", "_commit_version", "_watermark")
    assertRows(
        told,
        [
            (1, "a", "delete", 2, 3),
            (2, "b", "update_preimage", 2, 4),
            (2, "c", "update_postimage", 2, 4),
            (3, "d", "insert", 3, 5),
        ],
    )
    (gone,) = table.why(1).collect()
    assert (gone["_why"], gone["_watermark"], gone["_commit_version"]) == ("deleted: the table was truncated", 3, 2)
    assert [r["_why"] for r in table.why(2).collect()] == ["current: the largest watermark"]


def test_T1_a_merge_beside_a_truncate_is_evaluated_again(spark, table, at_point):
    feed(table, (1, 1, "a", "I")).execute()
    late = table.upsert(frame(spark, SCHEMA, (2, 2, "late"), (3, 9, "new")))
    at_point("validate.done", lambda: feed(table, truncate(5)).execute())
    result = late.execute()
    assert (rows(table), result.rowsTruncated) == ([(3, 9, "new")], 1)


def test_T1_a_truncate_beside_a_merge_and_a_compaction_is_evaluated_again(spark, table, at_point):
    feed(table, (1, 1, "a", "I")).execute()
    feed(table, (2, 2, "b", "I")).execute()
    at_point("validate.done", lambda: table.upsert(frame(spark, SCHEMA, (3, 3, "c"))).execute())
    feed(table, truncate(5), (4, 6, "d", "I")).execute()
    assert rows(table) == [(4, 6, "d")]
    feed(table, (5, 8, "e", "I")).execute()
    at_point("validate.done", lambda: table.compact(full=True))
    feed(table, truncate(7), (6, 9, "f", "I")).execute()
    assert rows(table) == [(5, 8, "e"), (6, 9, "f")]


@pytest.mark.parametrize(
    ("kind", "moments"),
    [
        ("TIMESTAMP", ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000001", "2024-01-02 00:00:00"]),
        ("DATE", ["2024-01-01", "2024-01-02", "2024-01-03"]),
        ("STRING", ["0001/a", "0001/b", "0002/a"]),
        ("DECIMAL(38,2)", ["-1.01", "0.00", "7.50"]),
    ],
)
def test_T1_sequences_of_any_type_are_compared(kind, moments, spark, tmp_path):
    table = new_table(spark, tmp_path, f"id INT, at {kind}, v STRING", watermarkKey="at", tombstoneKey=None)

    def apply(*events):
        source = frame(spark, "id INT, at STRING, v STRING, op STRING", *events)
        source = source.selectExpr("id", f"CAST(at AS {kind}) AS at", "v", "op")
        table.applyChanges(source, applyAsTruncates="op = 'T'", exceptColumns=["op"]).execute()

    apply((None, moments[1], None, "T"))
    apply((1, moments[0], "late", "I"), (2, moments[2], "new", "I"))
    assert [r["v"] for r in table.toDF().collect()] == ["new"]


@pytest.mark.parametrize("history", [False, True])
def test_T1_S29_sequences_are_compared_as_the_table_stores_them(history, spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts BIGINT, v STRING", watermarkKey="ts", history=history)
    source = frame(spark, "id INT, ts STRING, v STRING, op STRING", (None, "9", None, "T"), (1, "50", "x", "I"))
    source = source.union(frame(spark, "id INT, ts STRING, v STRING, op STRING", (None, "100", None, "T")))
    table.applyChanges(source, applyAsTruncates="op = 'T'", exceptColumns=["op"]).execute()
    table.upsert(frame(spark, "id INT, ts BIGINT, v STRING", (2, 60, "late"))).execute()
    assert (table.toDF().count(), table._snapshot().truncate.watermark) == (0, (100,))


def test_T1_a_truncate_in_the_hour_that_clocks_repeat_deletes_what_is_older(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts TIMESTAMP, v STRING", watermarkKey="ts", tombstoneKey=None)
    rows = "(1, timestamp'2024-10-27T01:00:00Z', 'old'), (2, timestamp'2024-10-27T05:00:00Z', 'new')"
    source = frame(spark, "id INT, ts STRING, v STRING, op STRING", (None, "2024-10-27T01:30:00Z", None, "T"))
    with session_conf(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        table.upsert(spark.sql(f"SELECT * FROM VALUES {rows} AS s(id, ts, v)")).execute()
        table.applyChanges(source, applyAsTruncates="op = 'T'", exceptColumns=["op"]).execute()
    assert [row["v"] for row in table.toDF().collect()] == ["new"]


def test_T1_a_sequence_of_several_columns_is_compared_as_a_whole(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, a INT, b INT, v STRING", watermarkKey=["a", "b"], tombstoneKey=None)

    def apply(*events):
        source = frame(spark, "id INT, a INT, b INT, v STRING, op STRING", *events)
        table.applyChanges(source, applyAsTruncates="op = 'T'", exceptColumns=["op"]).execute()

    apply((None, 1, 9, None, "T"), (1, 1, 10, "kept", "I"))
    apply((2, 1, 8, "late", "I"), (3, 0, 99, "late", "I"), (4, 2, 0, "new", "I"))
    assert sorted(r["v"] for r in table.toDF().collect()) == ["kept", "new"]


# With history ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def past(spark, tmp_path):
    return new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", tombstoneKey=None, history=True)


def versions(table):
    """All versions: id, v, from, to."""
    found = table.versions().select("id", "v", "validFrom", "validTo").collect()
    return sorted((tuple(row) for row in found), key=lambda row: row[::2])


@pytest.mark.parametrize("order", quickly([(ORDERS[n],) for n in range(0, 720, 90)], [(ORDERS[-1],)]), ids=str)
def test_T1_versions_do_not_depend_on_the_order_of_truncates(order, past):
    for number in order:
        feed(past, STREAM[number]).execute()
    assert versions(past) == [(1, "a", 1, 3), (1, "c", 4, None), (2, "b", 2, 3), (3, "late", 1, 3)]
    assert rows(past) == [(1, 4, "c")]


def test_T1_with_history_a_truncate_ends_what_holds_at_its_place(past):
    feed(past, (1, 10, "a", "I"), (1, 30, "c", "U"), (2, 15, "b", "I"), (3, 5, "d", "I"), (3, 10, None, "D")).execute()
    result = feed(past, truncate(20)).execute()
    assert (result.rowsSource, result.rowsAppended, result.rowsStale) == (1, 2, None)
    assert versions(past) == [(1, "a", 10, 20), (1, "c", 30, None), (2, "b", 15, 20), (3, "d", 5, 10)]


def test_T1_with_history_every_merge_ends_its_late_rows_at_the_next_truncate(spark, past):
    feed(past, truncate(10), truncate(20)).execute()
    result = past.upsert(frame(spark, SCHEMA, (1, 5, "a"), (2, 15, "b"), (3, 25, "c"))).execute()
    assert (result.rowsSource, result.rowsAppended) == (3, 5)
    keyed = past.upsert(frame(spark, SCHEMA, (4, 5, "d"), (3, 30, "e"))).withCounts().execute()
    assert (keyed.rowsInserted, keyed.rowsUpdated, keyed.rowsDeleted, keyed.rowsStale) == (0, 1, 0, 1)
    assert versions(past) == [
        (1, "a", 5, 10),
        (2, "b", 15, 20),
        (3, "c", 25, 30),
        (3, "e", 30, None),
        (4, "d", 5, 10),
    ]


@pytest.mark.parametrize("compact", [None, False, True], ids=["pending", "minor compaction", "compaction"])
def test_T1_S6_with_history_a_late_row_leaves_the_row_at_the_truncate(compact, past):
    feed(past, truncate(10), truncate(20)).execute()
    feed(past, (1, 10, "reloaded", "I"), (1, 30, "new", "I"), (2, 10, None, "D"), (3, 20, "reloaded", "I")).execute()
    if compact is not None:
        past.compact(full=compact)
    result = feed(past, (1, 5, "late", "I"), (2, 6, "late", "I"), (3, 7, "late", "I"), (4, 20, "d", "I")).execute()
    assert (result.rowsAppended, result.strategy) == (5, "keyed lookup"), (
        "one of them ends at a truncate: that of key 3"
    )
    again = feed(past, (4, 15, "late", "I"), (5, 20, "e", "I"), (5, 15, "late", "I")).execute()
    assert (again.rowsAppended, again.rowsSource) == (3, 3)
    told = [(1, "late", 5, 10), (1, "reloaded", 10, 20), (1, "new", 30, None), (2, "late", 6, 10), (3, "late", 7, 10)]
    told += [
        (3, "reloaded", 20, None),
        (4, "late", 15, 20),
        (4, "d", 20, None),
        (5, "late", 15, 20),
        (5, "e", 20, None),
    ]
    assert versions(past) == sorted(told, key=lambda row: row[::2])
    assert rows(past) == [(1, 30, "new"), (3, 20, "reloaded"), (4, 20, "d"), (5, 20, "e")]


def test_T1_S35_a_row_that_lands_at_the_truncate_beside_a_late_row_stays(spark, past, at_point):
    feed(past, truncate(10)).execute()
    late = past.upsert(frame(spark, SCHEMA, (1, 5, "late"), (2, 5, "late")))
    at_point("validate.done", lambda: past.upsert(frame(spark, SCHEMA, (1, 10, "reloaded"))).execute())
    assert late.execute().rowsAppended == 3
    assert versions(past) == [(1, "late", 5, 10), (1, "reloaded", 10, None), (2, "late", 5, 10)]


def test_T1_S47_a_rejected_row_at_the_truncate_ends_no_late_row(spark, past, tmp_path):
    quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")
    past.alter().addCheck("short", "length(v) < 6").execute()
    feed(past, truncate(10)).execute()
    source = frame(
        spark, SCHEMA, (1, 5, "late"), (1, 10, "rejected"), (2, 5, "rejected"), (3, 10, "kept"), (3, 9, "late")
    )
    result = past.upsert(source).quarantine(quarantine).execute()
    assert (result.rowsQuarantined, result.rowsAppended) == (2, 4)
    assert versions(past) == [(1, "late", 5, 10), (3, "late", 9, 10), (3, "kept", 10, None)]


@pytest.mark.parametrize("seed", quickly([(n,) for n in range(30)], {0, 1}))
@pytest.mark.program
def test_T1_S6_with_history_events_at_the_sequence_of_truncates_are_merged_as_the_interpreter_does(seed, past):
    """The order of batches decides between equal sequences."""
    rnd, model = random.Random(seed), ModelTable(past.definition)
    for step in range(8):
        truncates = [truncate(ts) for ts in rnd.sample(range(1, 7), rnd.choice([0, 0, 1, 2]))]
        places = rnd.sample([(key, ts) for key in range(1, 4) for ts in range(1, 7)], rnd.randint(1, 4))
        batch = [*truncates, *((key, ts, f"{step}", rnd.choice("IIID")) for key, ts in places)]
        feed(past, *batch).execute()
        modelled(model, *batch)
        if rnd.random() < 0.3:
            past.compact(full=rnd.random() < 0.5)
        assert rows(past) == sorted((r["id"], r["ts"], r["v"]) for r in model.live()), step
        told = [(r["id"], r["v"], r["validFrom"], r["validTo"]) for r in model.versions()]
        assert versions(past) == sorted(told, key=lambda r: r[::2]), step


def test_T1_U1_nulls_are_not_filled_across_truncates(past):
    feed(past, (1, 1, "a", "I"), truncate(3), (1, 4, None, "U"), ignoreNullUpdates=True).execute()
    feed(past, (1, 2, None, "U"), (1, 6, None, "U"), ignoreNullUpdates=True).execute()
    assert versions(past) == [(1, "a", 1, 2), (1, "a", 2, 3), (1, None, 4, 6), (1, None, 6, None)]


def test_T3_history_has_the_truncates_of_its_version(spark, past, tmp_path):
    feed(past, (1, 1, "a", "I"), truncate(5), truncate(3)).execute()
    clone = past.clone(f"{tmp_path}/clone")
    past.restore(0)
    feed(past, (2, 4, "b", "I")).execute()
    assert versions(past) == [(2, "b", 4, None)]
    feed(clone, (2, 4, "b", "I"), (2, 2, "c", "I")).execute()
    assert versions(clone) == [(1, "a", 1, 3), (2, "c", 2, 3), (2, "b", 4, 5)]
    assert [r["_why"].split(":")[0] for r in clone.why(2).collect()] == ["deleted", "lost", "lost", "lost"]


def test_T1_with_history_a_truncate_may_have_a_key_without_a_type(spark, past):
    feed(past, (1, 1, "a", "I")).execute()
    alone = spark.sql("SELECT NULL AS id, 5 AS ts, NULL AS v")
    past.applyChanges(alone, applyAsTruncates="id IS NULL").execute()
    assert versions(past) == [(1, "a", 1, 5)]


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
def test_T1_a_sequence_that_the_log_cannot_keep_is_refused(history, spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, at DOUBLE", watermarkKey="at", tombstoneKey=None, history=history)
    with pytest.raises(InvalidMergeError, match=r"cannot compare \(double\)"):
        table.applyChanges(spark.sql("SELECT 1 AS id, 5D AS at"), applyAsTruncates="true").execute()


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(("kind", "keys"), [("BIGINT", "5000000000"), ("STRING", "abc"), ("DECIMAL(10,2)", "1.50")])
def test_T1_S17a_a_truncate_deletes_keys_that_the_sources_type_cannot_hold(kind, keys, ansi, spark, tmp_path):
    table = new_table(spark, tmp_path, f"id {kind}, ts INT, v STRING", watermarkKey="ts", tombstoneKey=None)
    rows = frame(spark, "id STRING, ts INT, v STRING", (keys, 5, "old"), ("1", 9, "new"))
    table.upsert(rows.selectExpr(f"CAST(id AS {kind}) AS id", "ts", "v")).execute()
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        source = frame(spark, "id INT, ts INT, v STRING, op STRING", (None, 7, None, "T"))
        table.applyChanges(source, applyAsTruncates="op = 'T'", exceptColumns=["op"]).execute()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [row["v"] for row in table.toDF().collect()] == ["new"]
