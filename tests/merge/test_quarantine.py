"""S47: source rows that would refuse a merge go into a quarantine, with the merge or not at all."""

from __future__ import annotations

import json

import attrs
import pytest
from helpers import assertRows, quickly
from lanes import Together, beside, lanes_of, prepared, program, rows_of, traces_of
from tables import copy_of, frame, live_rows, new_table

from trinitymerge import (
    AmbiguousMergeError,
    ConstraintError,
    DuplicateKeyError,
    InvalidMergeError,
    NullKeyError,
    RejectedRowsError,
    SchemaMismatchError,
    StaleRowsError,
    TrinityTable,
    feeds,
)
from trinitymerge.errors import TrinityMergeError
from trinitymerge.maintenance import deliver_outbox
from trinitymerge.merge.compile.strategies import FULL_SCAN, KEY_LOOKUP, STRATEGIES
from trinitymerge.merge.execute.quarantine import PRECISE_ROUNDS, causes_of
from trinitymerge.schema.constraints import Check
from trinitymerge.testing import renderDifference

SCHEMA = "id INT, ts INT, amount DECIMAL(5, 2) NOT NULL, v STRING"
SOURCE = "id INT, ts INT, amount STRING, v STRING"
ROWS = {
    (1, 20, "7.5", "good"): None,
    (2, 20, "x", "text"): "type:amount",
    (None, 20, "1", "no key"): "null-key",
    (4, 20, None, "null"): "null:amount",
    (5, 20, "-1", "negative"): "check:positive",
    (6, 20, "1", "one"): "ambiguous",
    (6, 20, "2", "two"): "ambiguous",
    (7, 20, "3", "twice"): None,
    (8, 5, "3", "late"): "stale",
    (9, 20, "1000", "too large"): "type:amount",
}


@pytest.fixture
def table(spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts")
    table.alter().addCheck("positive", "amount > 0").execute()
    rows = [(i, 10, 1, "old") for i in (1, 2, 8)]
    table.upsert(frame(spark, "id INT, ts INT, amount INT, v STRING", *rows)).execute()
    return table


@pytest.fixture
def quarantine(spark, tmp_path):
    return TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")


def upsert(table, source, quarantine=None, **options):
    merge = table.merge(source).whenMatched().updateAll().whenNotMatched().insertAll()
    return merge if quarantine is None else merge.quarantine(quarantine, **options)


def found_in(quarantine):
    rows = quarantine.toDF().selectExpr("row", "reason", "clause").collect()
    return sorted((json.loads(r["row"])["v"], r["reason"]) for r in rows)


def told(rows):
    return sorted((row[3], reason) for row, reason in rows.items() if reason)


@pytest.mark.parametrize("strategy", [KEY_LOOKUP, FULL_SCAN], ids=lambda s: s.name)
def test_S47_each_row_that_would_refuse_the_merge_has_a_reason_and_all_others_are_merged(
    spark, table, quarantine, strategy
):
    source = frame(spark, SOURCE, *ROWS, (7, 20, "3", "twice"))
    merge = upsert(table, source, quarantine).onStale("error")._with_strategy(strategy)
    result = merge.execute()
    assert found_in(quarantine) == told(ROWS)
    assert (result.rowsQuarantined, result.rowsInserted, result.rowsUpdated, result.rowsSource) == (8, 1, 1, 11)
    assert result.quarantined == {
        **{"ambiguous": 2, "check:positive": 1, "null-key": 1, "null:amount": 1},
        **{"stale": 1, "type:amount": 2},
    }
    assertRows(table.toDF().select("id", "v"), [(1, "good"), (2, "old"), (7, "twice"), (8, "old")])
    row = quarantine.toDF().where("reason = 'null-key'").collect()[0]
    assert (row["target"], row["clause"], row["version"]) == (table.path, 2, result.version)
    assert row["at"] is not None


def test_S47_a_blind_append_lets_late_rows_lose_as_ever(spark, table, quarantine):
    result = upsert(table, frame(spark, SOURCE, *ROWS), quarantine).execute()
    assert result.strategy == "blind append"
    assert found_in(quarantine) == told({row: why for row, why in ROWS.items() if why != "stale"})
    assertRows(table.toDF().select("id", "v"), [(1, "good"), (2, "old"), (7, "twice"), (8, "old")])


def test_S47_a_merge_without_such_rows_writes_nothing_elsewhere(spark, table, quarantine):
    result = upsert(table, frame(spark, SOURCE, (1, 20, "7.5", "good")), quarantine).execute()
    assert (result.rowsQuarantined, result.quarantined, result.version) == (0, {}, table.version)
    assert (quarantine.version, quarantine.toDF().count()) == (0, 0)


def test_S47_a_merge_of_such_rows_alone_commits_them(spark, table, quarantine):
    result = upsert(table, frame(spark, SOURCE, (5, 20, "-1", "bad")), quarantine).execute()
    assert (result.rowsAppended, result.rowsQuarantined) == (0, 1)
    assert "keeps 1 row for the quarantine" in str(result)
    assert found_in(quarantine) == [("bad", "check:positive")]


def test_S47_all_rows_of_a_source_row_go_together(spark, tmp_path, table, quarantine):
    """Of a clause that deletes one row and inserts another, the delete is not done alone."""
    source = frame(spark, SOURCE, (1, 20, "-1", "bad"), (2, 20, "5", "good"))
    merge = table.merge(source).whenMatched().delete()
    merge.insertExpr(
        {"id": "source.id + 100", "ts": "source.ts", "amount": "source.amount", "v": "source.v"}
    ).quarantine(quarantine).execute()
    assertRows(table.toDF().select("id", "v"), [(1, "old"), (8, "old"), (102, "good")])
    assert found_in(quarantine) == [("bad", "check:positive")]


def test_S47_rows_of_the_target_alone_are_refused_as_ever(spark, table, quarantine):
    source = frame(spark, SOURCE, (1, 20, "5", "good"))
    merge = table.merge(source).whenMatched().updateAll().whenNotMatchedAndExistsOnlyOnTarget()
    with pytest.raises(ConstraintError):
        merge.updateExpr({"amount": "-1"}).quarantine(quarantine).execute()
    assert live_rows(quarantine) == []


def test_S47_a_rejected_row_still_has_its_pair(spark, table, quarantine):
    """Its target row does not exist only on the target."""
    source = frame(spark, SOURCE, (1, 20, "-1", "bad"), (2, 20, "5", "good"))
    merge = table.merge(source).whenMatched().updateAll().whenNotMatchedAndExistsOnlyOnTarget().delete()
    merge.quarantine(quarantine).execute()
    assertRows(table.toDF().select("id", "v"), [(1, "old"), (2, "good")])


def test_S47_a_merge_that_moves_rows_is_refused_as_a_whole(spark, table, quarantine):
    source = frame(spark, SOURCE, (1, 20, "-1", "bad"), (2, 20, "5", "good"))
    merge = (
        table.merge(source)
        .whenMatched()
        .updateExpr({"id": "source.id + 10", "ts": "source.ts", "amount": "source.amount"})
    )
    with pytest.raises(ConstraintError):
        merge.quarantine(quarantine).execute()
    assert live_rows(quarantine) == []


MOVED = "old INT, new INT, amount INT, v STRING"


@pytest.mark.parametrize(
    ("kind", "condition"), [(KEY_LOOKUP, "A.id = B.old"), (FULL_SCAN, "A.id <= B.old AND A.id >= B.old")]
)
def test_S47_S25_a_rejected_row_frees_and_takes_no_key(spark, table, quarantine, kind, condition):
    def moved(*rows):
        merge = table.alias("A").merge(frame(spark, MOVED, *rows).alias("B"), condition)
        again = {"id": "B.new", "ts": "20", "amount": "B.amount", "v": "B.v"}
        return merge.whenMatched().delete().insertExpr(again).quarantine(quarantine)._with_strategy(kind)

    with pytest.raises(DuplicateKeyError, match="id=1"):
        moved((1, 5, -1, "bad"), (2, 1, 7, "good")).execute()
    result = moved((1, 2, -1, "bad"), (2, 3, 5, "good")).execute()
    assert [(row[0], row[3]) for row in live_rows(table)] == [(1, "old"), (3, "good"), (8, "old")]
    assert (result.rowsQuarantined, result.rowsDeleted, result.rowsInserted, result.perClause) == (1, 1, 1, (2,))
    moved((1, 8, 5, "one"), (1, 8, 5, "two"), (8, 9, 5, "good")).execute()  # the first two are ambiguous
    assert [(row[0], row[3]) for row in live_rows(table)] == [(1, "old"), (3, "good"), (9, "good")]
    assert found_in(quarantine) == [("bad", "check:positive"), ("one", "ambiguous"), ("two", "ambiguous")]


@pytest.mark.parametrize("call", ["upsert", "applyChanges"])
def test_S47_S36_a_replay_delivers_what_a_killed_process_has_left(spark, table, quarantine, monkeypatch, call):
    def write():
        merge = table.foreachBatch(lambda t, batch: getattr(t, call)(batch).quarantine(quarantine), "stream")
        merge(frame(spark, "id INT, ts INT, amount INT, v STRING", (1, 20, 1, "a"), (2, 20, -1, "bad")), 0)

    with monkeypatch.context() as killed:
        killed.setattr(deliver_outbox, "deliver", lambda *_: 1 / 0)
        write()
    assert quarantine.toDF().count() == 0
    write()  # Spark repeats the micro-batch
    assert found_in(quarantine) == [("bad", "check:positive")]


@pytest.mark.parametrize("counted", [False, True])
def test_S47_T1_a_rejected_late_row_leaves_no_tombstone_at_the_truncate(spark, tmp_path, quarantine, counted):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", watermarkKey="ts", history=True)
    table.alter().addCheck("good", "v <> 'bad'").execute()
    columns = "id INT, ts INT, v STRING"
    table.applyChanges(frame(spark, columns, (None, 10, None)), applyAsTruncates="true").execute()
    table.upsert(frame(spark, columns, (1, 10, "kept"))).execute()
    merge = table.upsert(frame(spark, columns, (1, 5, "bad"), (2, 5, "bad"))).quarantine(quarantine)
    result = (merge.withCounts() if counted else merge).execute()
    assert (dict(result.quarantined), result.rowsAppended) == ({"check:good": 2}, 0)
    assert [row[:3] for row in live_rows(table)] == [(1, 10, "kept")]


def test_S47_S22b_a_rejected_row_changes_nothing(spark, table, quarantine):
    source = frame(spark, SOURCE, (1, 20, "1", "old"), (1, 30, "-1", "bad"), (2, 20, "1", "new"))
    merge = table.merge(source).whenMatched().updateAll(onlyIfChanged=True).quarantine(quarantine)
    result = merge.execute()
    assert (result.rowsUnchanged, result.rowsUpdated, result.rowsAppended, result.rowsQuarantined) == (1, 1, 1, 1)


def test_S47_S27_a_rejected_row_inserts_no_history(spark, tmp_path, table, quarantine):
    past = new_table(spark, tmp_path, "id INT, v STRING")
    source = frame(spark, SOURCE, (1, 20, "-1", "bad"), (2, 20, "5", "good"))
    merge = table.merge(source).whenMatched().updateAll().insertHistoryExpr({"id": "id", "v": "v"}, past)
    result = merge.quarantine(quarantine).execute()
    assert (result.rowsHistory, result.rowsQuarantined) == (1, 1)
    assert live_rows(past) == [(2, "old")]


def test_S47_S27_what_a_rejected_row_would_insert_is_not_computed(spark, tmp_path, table, quarantine):
    past = new_table(spark, tmp_path, "id INT, n INT")
    source = frame(spark, SOURCE, (1, 20, "x", "bad"), (2, 20, "5", "good"))
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id").whenMatched().updateAll()
    merge = merge.insertHistoryExpr({"id": "A.id", "n": "CAST(B.amount AS INT)"}, past)  # fails for 'x'
    result = merge.quarantine(quarantine).execute()
    assert (result.rowsHistory, result.quarantined, live_rows(past)) == (1, {"type:amount": 1}, [(2, 5)])


def test_S47_S27_what_rows_beside_a_rejected_one_would_insert_is_not_computed(spark, tmp_path, quarantine):
    """The history of a row fails whose source row is rejected for another row."""
    table = new_table(spark, tmp_path, "id INT, g INT, n INT", watermarkKey=[], tombstoneKey=None)
    table.alter().addCheck("small", "n < 100").execute()
    table.upsert(frame(spark, "id INT, g INT, n INT", (1, 1, 0), (2, 1, 99), (3, 2, 4))).execute()
    past = new_table(spark, tmp_path, "id INT, x INT", tombstoneKey=None)
    source = frame(spark, "g INT, d INT", (1, 5), (2, 5))
    merge = table.alias("A").merge(source.alias("B"), "A.g = B.g").whenMatched().updateExpr({"n": "A.n + B.d"})
    merge = merge.insertHistoryExpr({"id": "A.id", "x": "CAST(100 div A.n AS INT)"}, past)
    result = merge.quarantine(quarantine).execute()
    assert (result.quarantined, live_rows(past)) == ({"check:small": 1}, [(3, 25)])
    assert live_rows(table) == [(1, 1, 0), (2, 1, 99), (3, 2, 9)]


def test_S47_F4_each_event_of_a_message_is_kept(spark, tmp_path, quarantine):
    """A message of Canal has several rows: some cannot be read, some break a rule, and all have one place in Kafka."""
    table = new_table(spark, tmp_path, "id INT, n INT, _seq STRING", watermarkKey="_seq", tombstoneKey=None)
    table.alter().addCheck("positive", "n > 0").execute()

    def apply(offset, *rows):
        data = [dict(zip(("id", "n"), row, strict=True)) for row in rows]
        event = {"database": "s", "table": "t", "type": "INSERT", "es": 1700000000000 + offset, "id": 1, "data": data}
        columns = "value STRING, topic STRING, partition INT, offset BIGINT"
        sent = spark.createDataFrame([(json.dumps({**event, "pkNames": ["id"]}), "t", 0, offset)], columns)
        return table.applyChanges(feeds.canal(sent)).quarantine(quarantine).execute()

    apply(0, ("1", "-1"), ("2", "-2"), ("3", "3"), ("x", "4"))
    apply(1, ("9", "9"))  # what the quarantine cannot take would be in the way
    kept = quarantine.toDF().selectExpr("reason", "get_json_object(row, '$.data[0].id')").collect()
    assert sorted(map(tuple, kept)) == [("check:positive", "1"), ("check:positive", "2"), ("type:id", "x")]
    assert sorted(row[:2] for row in live_rows(table)) == [(3, 3), (9, 9)]


def test_S47_S27_U4_ambiguous_rows_insert_no_history_and_mend_nothing(spark, tmp_path, quarantine):
    schema, past = "id INT, ts INT, a INT, b INT", new_table(spark, tmp_path, "id INT, a INT", tombstoneKey=None)
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", tombstoneKey=None)
    partial = frame(spark, schema, (1, 9, None, 5), (2, 1, 0, 0), (3, 1, 0, 0))
    table.applyChanges(partial, ignoreNullUpdates=True).execute()
    late = [(1, 5, 1, 1), (1, 5, 2, 1), (1, 4, 3, 1)]  # of the first two neither counts
    assert table.upsert(frame(spark, schema, *late)).quarantine(quarantine).execute().quarantined == {"ambiguous": 2}
    assert live_rows(table)[0] == (1, 9, 3, 5)
    source = frame(spark, schema, (2, 20, 7, 7), (2, 20, 8, 8), (3, 20, 9, 9))
    merge = table.merge(source).whenMatched().updateAll().insertHistoryExpr({"id": "id", "a": "a"}, past)
    result = merge.quarantine(quarantine).execute()
    assert (result.rowsHistory, result.quarantined, live_rows(past)) == (1, {"ambiguous": 2}, [(3, 0)])


@pytest.fixture
def partial(spark, tmp_path):
    """Key 1 has a row at 9 that leaves ``a`` unset, and each row a smaller ``a`` than ``b``."""
    schema = "id INT, ts INT, a INT, b INT"
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", tombstoneKey=None)
    table.alter().addCheck("c", "a < b").execute()
    rows = frame(spark, schema, (1, 9, None, 5), (3, 1, 0, 1))
    table.applyChanges(rows, ignoreNullUpdates=True).execute()
    return table


def test_S47_S12_S27_U4_a_late_row_is_rejected_for_what_it_mends_unless_it_is_ambiguous(
    spark, tmp_path, partial, quarantine
):
    past = new_table(spark, tmp_path, "id INT, a INT", tombstoneKey=None)
    late = [(1, 6, 1, 2), (1, 6, 7, 8), (1, 5, 7, 9), (1, 4, 3, 9), (3, 20, 2, 3)]
    merge = partial.merge(frame(spark, "id INT, ts INT, a INT, b INT", *late)).whenMatched().updateAll()
    merge = merge.insertHistoryExpr({"id": "id", "a": "a"}, past).whenNotMatched().insertAll()
    result = merge.quarantine(quarantine).onStale("skip").execute()
    assert result.quarantined == {"ambiguous": 2, "mended:check:c": 1}
    assert (live_rows(partial), live_rows(past)) == ([(1, 9, 3, 5), (3, 20, 2, 3)], [(3, 0)])


@pytest.mark.parametrize("call", ["upsert", "merge"])
def test_S45_U4_a_late_row_is_refused_for_what_it_mends(spark, partial, call):
    late = frame(spark, "id INT, ts INT, a INT, b INT", (1, 5, 7, 9))
    merge = partial.upsert(late) if call == "upsert" else upsert(partial, late)
    with pytest.raises(
        ConstraintError, match=r"'c' \(a < b\): \(id=1, a=7, b=5\), from stored rows that take values from late"
    ):
        merge.execute()
    assert live_rows(partial)[0] == (1, 9, None, 5)


def test_S2_U4_a_late_delete_is_refused_for_the_null_that_it_brings(spark, tmp_path):
    schema = "id INT, ts INT, a INT NOT NULL, b INT, gone BOOLEAN"
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", tombstoneKey="gone")
    table.upsert(frame(spark, schema.replace(" NOT NULL", ""), (1, 1, 7, 5, False))).execute()
    partial = frame(spark, "id INT, ts INT, a INT, b INT", (1, 9, None, 6))
    table.applyChanges(partial, ignoreNullUpdates=True).execute()
    late = frame(spark, "id INT, ts INT", (1, 5))
    with pytest.raises(
        SchemaMismatchError, match=r"'a' must not be null.*A stored row would take the null from a late one"
    ):
        table.delete(late).execute()
    assert live_rows(table)[0][:4] == (1, 9, 7, 6)


def test_S32_the_rows_of_a_merge_are_evaluated_once_for_all_that_read_them(
    spark, tmp_path, partial, quarantine, monkeypatch
):
    """Reasons, rows for other tables, and mended rows: twice, since the second attempt knows that there is a row to mend."""
    past, frames = new_table(spark, tmp_path, "id INT, a INT", tombstoneKey=None), type(spark.range(1))
    rows = frame(spark, "id INT, ts INT, a INT, b INT", (1, 5, 3, 9), (3, 20, 2, 3))
    merge = partial.merge(rows).whenMatched().updateAll().insertHistoryExpr({"id": "id", "a": "a"}, past)
    evaluate, evaluated = frames.localCheckpoint, list[object]()
    monkeypatch.setattr(
        frames, "localCheckpoint", lambda self, *args: (evaluated.append(self), evaluate(self, *args))[1]
    )
    result = merge.quarantine(quarantine).execute()
    assert (result.rowsMended, result.rowsHistory, live_rows(partial)[0]) == (1, 1, (1, 9, 3, 5))
    assert len(evaluated) == 2 * len(["the source", "its rows"])


@pytest.mark.parametrize(
    ("round", "expected"),
    [(0, [((1, 3), "a"), ((1, 5), "b"), ((2, 3), "c")]), (PRECISE_ROUNDS, [((1, 5), "a"), ((2, 3), "c")])],
)
def test_S47_U4_in_the_last_rounds_each_key_has_one_cause(spark, partial, round, expected):
    rows = [([(1, 3), (1, 5)], "b"), ([(1, 3)], "a"), ([(2, 3)], "c")]
    broken = frame(spark, "fillers ARRAY<STRUCT<k0: INT, w0: INT>>, why STRING", *rows)
    found = causes_of(broken, "fillers", "why", partial._store.snapshot().definition, round).collect()
    assert sorted((tuple(place), why) for place, why in found) == expected


def test_S47_S12_ambiguous_rows_of_the_target_alone_are_refused_as_ever(spark, tmp_path, quarantine):
    schema = "id INT, n INT, v STRING"
    table = new_table(spark, tmp_path, schema, tombstoneKey=None)
    table.upsert(frame(spark, schema, (1, 0, "m"), (2, 100, "a"), (3, 100, "b"))).execute()
    merge = (
        table.alias("A").merge(frame(spark, schema, (1, 0, "x")).alias("B"), "A.id = B.id").whenMatched().updateAll()
    )
    merge = merge.whenNotMatchedBySource().insertExpr({"id": "A.n", "n": "A.n", "v": "A.v"})
    with pytest.raises(AmbiguousMergeError):
        merge.quarantine(quarantine).execute()


def test_S47_more_than_maxFraction_refuse_the_merge_and_leave_no_trace(spark, table, quarantine):
    before = traces_of(table), traces_of(quarantine)
    source = frame(spark, SOURCE, (1, 20, "-1", "bad"), (2, 20, "5", "good"), (3, 20, "5", "good"))
    with pytest.raises(RejectedRowsError, match=r"1 row of 3 .* more than the 33.00% .*check:positive \(1\)") as raised:
        upsert(table, source, quarantine, maxFraction=0.33).execute()
    assert raised.value.facts["reasons"] == {"check:positive": 1}
    assert (traces_of(table), traces_of(quarantine)) == before
    assert upsert(table, source, quarantine, maxFraction=0.34).execute().rowsQuarantined == 1


def test_S47_equal_rows_are_counted_each(spark, table, quarantine):
    row = (5, 20, "-1", "bad")
    result = upsert(table, frame(spark, SOURCE, row, row, row), quarantine).execute()
    assert (result.rowsQuarantined, quarantine.toDF().count()) == (3, 3)
    upsert(table, frame(spark, SOURCE, row), quarantine).execute()
    assert quarantine.toDF().count() == 3, "the same row again is the same row"


def test_S47_S36_a_replayed_transaction_adds_nothing(spark, table, quarantine):
    source = frame(spark, SOURCE, (5, 20, "-1", "bad"), (2, 20, "5", "good"))
    for _ in range(2):
        upsert(table, source, quarantine).withTransaction("app", 1).execute()
    assert (quarantine.version, quarantine.toDF().count()) == (1, 1)


def test_S47_values_of_all_types_come_back_from_the_json(spark, tmp_path, quarantine):
    text = (
        "SELECT 1 AS id, -1 AS n, CAST('-12345678901234567890.123456789' AS DECIMAL(38, 9)) AS d, "
        "timestamp'1969-12-31 23:59:59.999999' AS t, timestamp_ntz'9999-12-31 00:00:00.000001' AS l, X'00FF' AS b, "
        "array(named_struct('x', date'1582-10-04')) AS a, CAST(NULL AS STRING) AS e, CAST('NaN' AS DOUBLE) AS f"
    )
    source = spark.sql(text)
    table = new_table(spark, tmp_path, "id INT, n INT")
    table.alter().addCheck("positive", "n > 0").execute()
    table.upsert(source.select("id", "n", "d", "t", "l", "b", "a", "e", "f"), columns=["id", "n"]).quarantine(
        quarantine
    ).execute()
    schema = source.schema
    back = quarantine.toDF().selectExpr(f"from_json(row, '{_ddl(schema)}') AS r").select("r.*")
    assertRows(back.drop("f"), [tuple(source.drop("f").collect()[0])])
    assert back.where("isnan(f)").count() == 1


def _ddl(schema):
    return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema)


def test_S47_rows_are_replayed_once_they_are_mended(spark, table, quarantine):
    upsert(table, frame(spark, SOURCE, (5, 20, "-1", "bad"), (2, 20, "x", "text")), quarantine).execute()
    bad = quarantine.toDF().where("reason = 'check:positive'")
    mended = bad.selectExpr(f"from_json(row, '{SOURCE}') AS r").selectExpr("r.id", "r.ts", "'1' AS amount", "r.v")
    assert upsert(table, mended, quarantine).execute().rowsQuarantined == 0
    quarantine.delete(bad.select("target", "id")).execute()
    assert found_in(quarantine) == [("text", "type:amount")]
    assertRows(table.toDF().where("id = 5").select("v", "amount").selectExpr("v", "CAST(amount AS INT)"), [("bad", 1)])


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
def test_S47_change_events_too(spark, tmp_path, quarantine, history):
    table = new_table(spark, tmp_path, "id INT, ts INT, n INT", watermarkKey="ts", history=history)
    table.alter().addCheck("positive", "n > 0").execute()
    events = frame(
        spark, "id INT, ts INT, n STRING", (1, 1, "1"), (2, 1, "x"), (3, 1, "-1"), (None, 1, "1"), (4, None, "1")
    )
    result = table.applyChanges(events).quarantine(quarantine).execute()
    assert result.quarantined == {"check:positive": 1, "null-key": 1, "null:ts": 1, "type:n": 1}
    assertRows(table.toDF().select("id", "n"), [(1, 1)])


def test_S47_partial_events_too(spark, tmp_path, quarantine):
    table = new_table(spark, tmp_path, "id INT, ts INT, n INT, v STRING", watermarkKey="ts")
    table.alter().addCheck("positive", "n > 0").execute()
    schema = "id INT, ts INT, n INT, v STRING"
    table.applyChanges(frame(spark, schema, (1, 1, 1, "a"), (2, 1, 1, "a"))).execute()
    events = frame(spark, schema, (1, 2, None, "b"), (2, 2, -1, None))
    result = table.applyChanges(events, ignoreNullUpdates=True).quarantine(quarantine).execute()
    assert result.quarantined == {"check:positive": 1}
    assertRows(table.toDF(), [(1, 2, 1, "b"), (2, 1, 1, "a")])


def message(id, n, place):
    return json.dumps({"op": "c", "after": {"id": id, "n": n}, "source": {"sequence": f'[null,"{place}"]'}})


@pytest.mark.parametrize("with_offsets", [False, True])
def test_S47_F3_messages_of_a_feed_that_cannot_be_read_or_break_a_rule(spark, tmp_path, quarantine, with_offsets):
    table = new_table(spark, tmp_path, "id INT, n INT, _seq STRING", watermarkKey="_seq")
    table.alter().addCheck("positive", "n > 0").execute()
    values = [message(1, 1, 10), message("x", 1, 11), message(3, -1, 12), "{cut", "{cut", message(None, 1, 13), None]
    rows = [(value, "t", 0, n) for n, value in enumerate(values)]
    messages = frame(spark, "value STRING, topic STRING, partition INT, offset BIGINT", *rows)
    messages = messages if with_offsets else messages.select("value")
    result = table.applyChanges(feeds.debezium(messages)).quarantine(quarantine).execute()
    assert result.quarantined == {"check:positive": 1, "null-key": 1, "type:id": 1, "unparsable": 2}
    counts = result.feed
    assert counts.read == 7 == result.rowsAppended + sum(counts.skipped.values()) + result.rowsQuarantined
    rows = {(r["row"], r["reason"]) for r in quarantine.toDF().collect()}
    assert rows == {
        (values[1], "type:id"),
        (values[2], "check:positive"),
        ("{cut", "unparsable"),
        (values[5], "null-key"),
    }
    if with_offsets:
        assert {r["id"] for r in quarantine.toDF().collect()} == {f"t/0/{n}" for n in (1, 2, 3, 4, 5)}
    again = quarantine.toDF().where("reason = 'check:positive'").selectExpr("replace(row, '-1', '1') AS value")
    table.applyChanges(feeds.debezium(again)).quarantine(quarantine).execute()
    assertRows(table.toDF().select("id", "n"), [(1, 1), (3, 1)])


def test_S47_a_feed_of_unreadable_messages_alone_commits_them(spark, tmp_path, quarantine):
    table = new_table(spark, tmp_path, "id INT, n INT, _seq STRING", watermarkKey="_seq")
    result = table.applyChanges(feeds.debezium(frame(spark, "value STRING", "{cut"))).quarantine(quarantine).execute()
    assert (result.rowsQuarantined, result.feed.rejected) == (1, {"unparsable": 1})
    assert quarantine.toDF().count() == 1


def test_S47_a_table_of_another_kind_is_refused(spark, table, tmp_path):
    source = frame(spark, SOURCE, (1, 20, "1", "a"))
    with pytest.raises(InvalidMergeError, match=r"takes a quarantine table.*createQuarantine"):
        upsert(table, source, new_table(spark, tmp_path, "id INT, v STRING")).execute()
    with pytest.raises(InvalidMergeError, match="the table merged into"):
        upsert(table, source, table).execute()
    with pytest.raises(InvalidMergeError, match="maxFraction takes a number from 0 to 1, got 2"):
        upsert(table, source, table, maxFraction=2)


def test_S47_without_a_quarantine_each_such_row_refuses_the_merge(spark, table):
    for row, error in (
        ((None, 20, "1", "v"), NullKeyError),
        ((5, 20, "-1", "v"), ConstraintError),
        ((8, 5, "3", "late"), StaleRowsError),
    ):
        with pytest.raises(error):
            upsert(table, frame(spark, SOURCE, row)).onStale("error").execute()


def checked(whole):
    """The program with a constraint that some rows break, on the two last of its columns."""
    own = whole.definition
    first, last = next(f.name for f in own.fields if f.name not in own.primaryKey), own.names[-1]
    rule = Check("told", f"`{first}` IS NULL OR `{last}` IS NOT NULL", [first, last])
    return attrs.evolve(
        whole,
        definition=attrs.evolve(own, checks=(rule,)),
        checks={"told": lambda row: row[first] is None or row[last] is not None},
    )


def moves(merge):
    """A clause may change primary keys: such a merge is refused as a whole."""
    plan = merge._with(strategy=FULL_SCAN).build()
    return FULL_SCAN.program(plan._merge, True)[1].moves


def modelled(cases):
    for case in cases:
        try:
            if case.source_rows:
                yield case, case.run(quarantine=True)
        except TrinityMergeError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly(range(40), {3, 6, 18}))
def test_S47_S31_the_engine_agrees_with_the_interpreter_on_every_sound_path(number, spark, tmp_path):
    lanes = list(modelled(lanes_of(checked(program(number)), 30, number)))
    together = Together(tuple(case for case, _ in lanes))
    _, table, rows = prepared(spark, tmp_path, together)
    if moves(together.builder(table, rows)):
        pytest.skip("the merge may change primary keys")
    ran = 0
    for path in STRATEGIES:
        copy = copy_of(table, spark)
        quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/{path.name}")
        merge = together.builder(copy, rows).quarantine(quarantine)._with_strategy(path)
        if path in merge._with(strategy=FULL_SCAN).build().choice.unsound:
            continue
        ran += 1
        result = merge.execute()
        expected = beside(r.rows for _, r in lanes)
        text = renderDifference(expected, rows_of(copy.toDF()), together.definition.primaryKey)
        assert not text, f"program {number}, as {path.name} ('expected' is the interpreter): {text}"
        wanted = sum(len(r.quarantined) for _, r in lanes)
        assert (result.rowsQuarantined, quarantine.toDF().count()) == (wanted, wanted), path.name
    assert ran
