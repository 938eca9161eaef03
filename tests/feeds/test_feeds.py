"""What feeds refuse, tell and cost beside the versions they make (H8-H12): `test_versions.py` has those."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from helpers import assertRows, quickly
from pyspark.sql import functions as F
from tables import directory_of, fill, frame, new_table

from trinitymerge import (
    AmbiguousMergeError,
    DuplicateKeyError,
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    RejectedRowsError,
    TableNotFoundError,
    TooManyDeletesError,
    TrinityTable,
)
from trinitymerge.errors import SchemaMismatchError
from trinitymerge.log.actions import RESOLVED, UNRESOLVED
from trinitymerge.maintenance import rewrite
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.testing import ModelTable

PEOPLE = "id INT, ts INT, v STRING"
EVENTS = "id INT, ts INT, v STRING, op STRING"


@pytest.fixture
def people(spark, tmp_path) -> TrinityTable:
    return new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=True)


# Telling --------------------------------------------------------------------------------------------------------------


def test_H8_tables_without_history_say_how_to_get_one(spark, tmp_path):
    table = new_table(spark, tmp_path)
    for call in (table.versions, lambda: table.asOf(1)):
        with pytest.raises(InvalidDefinitionError, match=r"history=True.*setHistory"):
            call()


def test_H9_a_feed_stands_in_the_history_and_says_which_columns_it_leaves_out(spark, people):
    events = frame(spark, "id INT, ts INT, v STRING, op STRING, more INT", (1, 10, "a", "I", 7))
    result = people.applyChanges(events, applyAsDeletes="op = 'D'").execute()
    assert result.columnsIgnored == ("more",), "op was of use"
    extract = people.snapshot(frame(spark, "id INT, v STRING, more INT", (1, "b", 7)), at=20)
    assert "computed from the table" in extract.explain()
    assert extract.execute().columnsIgnored == ("more",)
    calls = [json.loads(row["parameters"]).get("call") for row in people.history().orderBy("version").collect()]
    assert calls == [None, "applyChanges()", "snapshot(at=20)"]


def test_H9_applyChanges_reads_nothing_of_the_table(spark, people):
    events = frame(spark, EVENTS, (1, 10, "a", "I"), (2, 10, None, "D"))
    assert people.applyChanges(events, applyAsDeletes="op = 'D'").build().strategy == "blind append"


def test_H9_events_of_a_stream_are_delivered_once(spark, people):
    events = frame(spark, PEOPLE, (1, 10, "a"))
    for skipped in (False, True):
        result = people.applyChanges(events, ignoreNullUpdates=True).withTransaction("feed", 7).execute()
        assert bool(result.skipped) == skipped


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sequenceBy": ["ts", "ts"]}, "a value for each watermark column"),
        ({"applyAsDeletes": 1}, "SQL text or a Column"),
        ({"applyAsDeletes": "nope = 1"}, "nope"),
        ({"columns": ["id"], "exceptColumns": ["v"]}, "got both"),
        ({"columns": ["w"]}, "Column 'w' is missing"),
        ({"ignoreNullUpdates": ["ts"]}, "can be filled"),
    ],
)
def test_H9_what_contradicts_the_table_is_refused(spark, people, arguments, match):
    with pytest.raises(InvalidMergeError, match=match):
        people.applyChanges(frame(spark, PEOPLE, (1, 10, "a")), **arguments).build()


def test_H9_feeds_take_no_clauses_and_force_nothing(spark, people):
    extract = people.snapshot(frame(spark, "id INT, v STRING", (1, "a")), at=1)
    with pytest.raises(InvalidMergeError, match=r"snapshot\(at=1\) defines its clauses and takes no others"):
        extract.whenMatched()
    assert repr(extract).startswith("snapshot(at=1) on ")
    for feed in (extract, people.applyChanges(frame(spark, PEOPLE, (1, 10, "a")))):
        with pytest.raises(InvalidMergeError, match="would move what comes late"):
            feed.onStale("force").build()


@pytest.mark.parametrize("at", ["x", None, [1]])
def test_H11_what_is_no_moment_is_refused(spark, people, at):
    with pytest.raises(ValueError, match="'ts', which is int"):
        people.snapshot(frame(spark, "id INT, v STRING", (1, "a")), at=at)


def test_H11_a_value_that_does_not_fit_is_no_null(spark, people):
    with pytest.raises(SchemaMismatchError, match=r"does not fit into column 'id' \(int\)"):
        people.snapshot(frame(spark, "id STRING, v STRING", ("x", "a")), at=1).execute()
    with pytest.raises(SchemaMismatchError, match="cannot be stored"):
        people.snapshot(frame(spark, "id INT, v ARRAY<INT>", (1, [1])), at=1).execute()
    assert people.version == 0


def test_U1_fields_of_structs_are_filled_one_by_one(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, s STRUCT<a: INT, b: INT>", watermarkKey="ts", history=True)
    told = [(1, 10, "named_struct('a', 1, 'b', 2)"), (1, 20, "named_struct('a', NULL, 'b', 5)"), (1, 30, "NULL")]
    for id, ts, struct in told:
        event = spark.sql(f"SELECT {id} AS id, {ts} AS ts, CAST({struct} AS STRUCT<a: INT, b: INT>) AS s")
        table.applyChanges(event, ignoreNullUpdates=True).execute()
    assertRows(table.versions().select("ts", "s.a", "s.b"), [(10, 1, 2), (20, 1, 5), (30, 1, 5)])


def test_H11_structs_and_maps_are_compared_by_what_they_hold(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, s STRUCT<a: INT>, m MAP<STRING, INT>", watermarkKey="ts")
    rows = "SELECT 1 AS id, named_struct('a', CAST(NULL AS INT)) AS s, map('x', 1, 'y', 2) AS m"
    assert table.snapshot(spark.sql(rows), at=1).execute().rowsAppended == 1
    assert table.snapshot(spark.sql(rows.replace("'x', 1, 'y', 2", "'y', 2, 'x', 1")), at=2).execute().skipped
    assert table.snapshot(spark.sql(rows.replace("'y', 2", "'y', 3")), at=3).execute().rowsAppended == 1


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True])
def test_H11_S22_an_extract_may_lack_a_column_that_came_later(spark, tmp_path, history):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=history)
    model = ModelTable(table.definition)

    def take(at, *rows):
        told = model.snapshot([{"id": id, "v": v} for id, v in rows], at)
        result = table.snapshot(frame(spark, "id INT, v STRING", *rows), at=at).execute()
        assert (result.rowsAppended, result.rowsSource) == (told.rowsAppended, None)
        assertRows(table.toDF(), [tuple(row.values()) for row in model.live()])
        return result.rowsAppended

    take(10, (1, "a"), (2, "b"), (3, "c"))
    table.alter().addColumn("n", "INT").execute()
    model.alter(table.definition)
    more = {"id": 1, "ts": 20, "v": "a", "n": 7}, {"id": 2, "ts": 20, "v": "b", "n": 8}
    table.applyChanges(
        spark.createDataFrame([tuple(m.values()) for m in more], "id INT, ts INT, v STRING, n INT")
    ).execute()
    model.applyChanges(more)
    assert take(30, (1, "a"), (2, "b"), (3, "c")) == 0, "it is not compared"
    assert take(40, (1, "new"), (2, "b"), (4, "d")) == 3
    assertRows(table.toDF(), [(1, 40, "new", 7), (2, 20, "b", 8), (4, 40, "d", None)])
    if history:
        take(
            35, (1, "late"), (2, "b"), (3, "x")
        )  # late: it keeps what held at its moment, and leaves the next one as it was
        take(15, (1, "a"), (2, "b"), (3, "early"))  # when nobody had said n
        shown = table.versions(track=["v", "n"]).select("id", "v", "n", "validFrom", "validTo")
        assertRows(shown, [tuple(row[n] for n in shown.columns) for row in model.versions(track=["v", "n"])])
        assertRows(shown.filter("id = 1 AND v = 'late'").select("n", "validFrom", "validTo"), [(7, 35, 40)])
    with pytest.raises(InvalidMergeError, match="Column 'v' is missing in the source; it has 'id'"):
        table.snapshot(frame(spark, "id INT, n INT", (1, 1)), at=50).build()


@pytest.mark.parametrize("history", [False, True])
def test_H11_S22_an_extract_may_lack_a_field_that_came_later(spark, tmp_path, history):
    schema = "id INT, ts INT, s STRUCT<a: INT, b: STRUCT<c: INT>>"
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", history=history)
    old = "SELECT {} AS id, named_struct('A', {}, 'b', named_struct('c', 1)) AS s"
    table.snapshot(spark.sql(old.format(1, 1)).union(spark.sql(old.format(2, 1))), at=1).execute()
    table.alter().widenColumn("s", "STRUCT<a: INT, b: STRUCT<c: INT, d: INT>, e: INT>").execute()
    whole = "SELECT 1 AS id, 2 AS ts, named_struct('a', 1, 'b', named_struct('c', 1, 'd', 5), 'e', 6) AS s"
    table.applyChanges(spark.sql(whole)).execute()
    extract = spark.sql(old.format(1, 1)).union(spark.sql(old.format(2, 1)))
    assert table.snapshot(extract, at=3).execute().skipped, "they are not compared"
    table.snapshot(spark.sql(old.format(1, 9)).union(spark.sql(old.format(3, 9))), at=4).execute()
    shown = table.toDF().select("id", "s.a", "s.b.c", "s.b.d", "s.e")
    assertRows(shown, [(1, 9, 1, 5, 6), (3, 9, 1, None, None)])
    with pytest.raises(SchemaMismatchError, match="cannot be stored"):
        table.snapshot(spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s"), at=5).execute()


def test_H11_S37_what_is_said_of_an_extract_that_writes_nothing_is_true(spark, people):
    """It makes a version that keeps its moment; once that is kept there is nothing to commit."""
    extract = frame(spark, "id INT, v STRING", (1, "a"))
    people.snapshot(extract, at=1).execute()
    kept = people.snapshot(extract, at=2).execute()
    assert (kept.version, kept.skipped, kept.kept) == (2, "nothing has changed", "the moment of the extract")
    assert (
        str(kept) == "version 2: no row was written, nothing has changed; the version keeps the moment of the extract"
    )
    for at in (1, 2):
        again = people.snapshot(extract, at=at).execute()
        assert str(again) == "version 2: nothing committed, nothing has changed"
    assert people.version == 2
    more = people.snapshot(frame(spark, "id INT, v STRING", (1, "a"), (9, "z")), at=3)
    more.execute()
    people.purge([9])
    purged = people.snapshot(frame(spark, "id INT, v STRING", (1, "a"), (9, "z")), at=4).execute()
    assert (purged.version, purged.skipped) == (people.version, "every row to write has a purged key")
    assert "the version keeps the moment of the extract" in str(purged)
    assert purged.rowsSource is None, "row 1 is unchanged, and not counted (S30a)"
    marked = people.snapshot(extract, at=4).withTransaction("job", 1).execute()
    assert (marked.version, marked.kept) == (people.version, "transaction 1 of 'job'")
    assert "keeps transaction 1 of 'job'" in str(marked)
    assert str(people.upsert(people.toDF().filter("id = 77")).execute()).endswith(
        "nothing committed, the source is empty"
    )


def test_H11_maxDeleteFraction_guards_a_broken_extract(spark, people):
    people.snapshot(frame(spark, "id INT, v STRING", *[(i, "a") for i in range(10)]), at=1).execute()
    with pytest.raises(Exception, match="more than the allowed share"):
        people.snapshot(frame(spark, "id INT, v STRING", (1, "a")), at=2).maxDeleteFraction(0.5).execute()


@pytest.mark.parametrize("at", [20, 30, 5])
def test_S37_H11_maxDeleteFraction_measures_a_late_extract_at_its_moment(spark, people, at):
    """The rows of today do not change by it, or differ in number: a late extract that is cut short is refused all the same."""
    model = ModelTable(people.definition)
    for moment, keys in ((2, range(4)), (10, range(10)), (30, range(10)), (40, range(2))):
        people.snapshot(frame(spark, "id INT, v STRING", *[(i, "a") for i in keys]), at=moment).execute()
        model.snapshot([{"id": i, "v": "a"} for i in keys], moment)
    held = 4 if at == 5 else 10
    short = people.snapshot(frame(spark, "id INT, v STRING", (1, "a"), (77, "z")), at=at)
    refused = model.copy()
    with pytest.raises(TooManyDeletesError):
        refused.snapshot([{"id": 1, "v": "a"}, {"id": 77, "v": "z"}], at, maxDeleteFraction=0.7)
    with pytest.raises(TooManyDeletesError, match=f"lacks {held - 1} of the {held} rows that hold at its moment") as e:
        short.maxDeleteFraction(0.7).execute()
    assert (e.value.facts["deletes"], e.value.facts["live"]) == (held - 1, held)
    assert people.version == model.version == refused.version == 4
    assert short.maxDeleteFraction((held - 1) / held).execute().rowsAppended
    model.snapshot([{"id": 1, "v": "a"}, {"id": 77, "v": "z"}], at, maxDeleteFraction=(held - 1) / held)
    assertRows(people.asOf(at), [tuple(row.values()) for row in model.asOf(at)])


# Extracts and a quarantine --------------------------------------------------------------------------------------------

NUMBERS, TEXTS = "id INT, ts INT, n INT", "id STRING, n STRING"


@pytest.fixture
def quarantine(spark, tmp_path) -> TrinityTable:
    return TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")


def numbers(spark, tmp_path, history) -> TrinityTable:
    table = new_table(spark, tmp_path, NUMBERS, watermarkKey="ts", history=history)
    table.alter().addCheck("positive", "n > 0").execute()
    return table


@pytest.mark.parametrize("history", [False, True])
def test_H11_S47_S17a_rows_of_an_extract_that_would_refuse_it_go_into_the_quarantine(
    spark, tmp_path, history, quarantine, caplog
):
    """Their keys are not missing, and the others are compared as ever."""
    table = numbers(spark, tmp_path, history)
    table.snapshot(frame(spark, "id INT, n INT", *[(i, i) for i in range(1, 7)]), at=10).execute()
    rejected = [("1", "x"), ("2", "-2"), ("y", "4"), (None, "4"), ("5", "50"), ("5", "51")]
    extract = frame(spark, TEXTS, *rejected, ("6", "66"), ("7", "7"), ("4", "4")).selectExpr("1 AS holds", "*")
    extract = extract.selectExpr("*", "2 AS twice", "3 AS twice")
    with pytest.raises(RejectedRowsError, match="6 rows of 9 would go"):
        table.snapshot(extract, at=20).quarantine(quarantine, maxFraction=0.6).execute()
    result = table.snapshot(extract, at=20).quarantine(quarantine, maxFraction=0.7).execute()
    assert result.quarantined == {"ambiguous": 2, "check:positive": 1, "null-key": 1, "type:id": 1, "type:n": 1}
    kept = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 66), (7, 7)]
    assertRows(table.toDF().select("id", "n"), kept)
    assert "2 rows of the extract have no key of the table" in caplog.text, "one may be 3, which is not deleted"
    told = [json.loads(row["row"]) for row in quarantine.toDF().collect()]
    assert sorted(map(str, told)) == sorted(str({"holds": 1, "id": id, "n": n}) for id, n in rejected)
    table.snapshot(frame(spark, TEXTS, ("1", "x"), ("2", "2")), at=30).quarantine(quarantine).execute()
    assertRows(table.toDF().select("id", "n"), [(1, 1), (2, 2)])


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("seed", quickly([(s,) for s in range(20)], {0}))
@pytest.mark.program
def test_H11_S47_extracts_with_a_quarantine_are_merged_as_the_interpreter_does(
    spark, tmp_path, seed, history, quarantine
):
    chance, table = random.Random(seed), numbers(spark, tmp_path, history)
    model = ModelTable(table.definition, checks={"positive": lambda row: None if row["n"] is None else row["n"] > 0})
    moments = chance.sample(range(1, 100), 6)
    for at in moments if history else sorted(moments):
        keys = ["1", "2", "3", "4", *(["01", "y", None] if chance.random() < 0.3 else [])]
        values = ["1", "2", "-1", "x", None]
        rows = [(chance.choice(keys), chance.choice(values)) for _ in range(chance.randint(1, 6))]
        missing = chance.choice(["delete", "delete", "keep"])
        result = table.snapshot(frame(spark, TEXTS, *rows), at=at, missing=missing).quarantine(quarantine).execute()
        told = model.snapshot([{"id": id, "n": n} for id, n in rows], at, missing, quarantine=True)
        reasons = [reason for _, reason in told.quarantined]
        assert result.quarantined == {reason: reasons.count(reason) for reason in {*reasons}}, rows
        assertRows(table.toDF(), [tuple(row[n] for n in ("id", "ts", "n")) for row in model.live()])
        if history:
            assertRows(
                table.versions().select("id", "n", "validFrom", "validTo"),
                [(r["id"], r["n"], r["validFrom"], r["validTo"]) for r in model.versions()],
            )


# Counts ---------------------------------------------------------------------------------------------------------------


def counts(result) -> tuple:
    return (result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale)


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("seed", quickly([(s,) for s in range(10)], {0}))
def test_S30a_S30b_feeds_that_read_the_table_count_as_the_interpreter_does(spark, tmp_path, seed, history):
    """Stale rows, keys with several events, tombstones and late extracts included."""
    chance = random.Random(seed)
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=history)
    model, at = ModelTable(table.definition), 10
    for step in range(8):
        asked = chance.random() < 0.3
        if step % 2 == 0:
            at = chance.choice([at + 10, at - 5]) if history and step else at + 5
            rows = [{"id": k, "v": chance.choice(["a", "b"])} for k in chance.sample(range(5), chance.randint(1, 4))]
            is_late = any(b.watermark_max > (at,) for b in table._snapshot().batches if b.rows) and history
            merge = table.snapshot(frame(spark, "id INT, v STRING", *[tuple(r.values()) for r in rows]), at=at)
            told, is_known = model.snapshot(rows, at), not is_late
        else:
            events = [
                {
                    "id": k,
                    "ts": at + chance.randint(-8, 8) + 20 * n,
                    "v": chance.choice(["a", None]),
                    "op": chance.choice("UUD"),
                }
                for n, k in enumerate(chance.choices(range(5), k=3))
            ]
            nulls = chance.random() < 0.7
            source = frame(spark, EVENTS, *[tuple(e.values()) for e in events])
            merge = table.applyChanges(source, applyAsDeletes="op = 'D'", ignoreNullUpdates=nulls)
            told = model.applyChanges(events, applyAsDeletes=lambda row: row["op"] == "D", ignoreNullUpdates=nulls)
            is_known = nulls
        result = (merge.withCounts() if asked else merge).execute()
        expected = counts(told) if is_known or asked or result.skipped else (None,) * 4
        assert (step, counts(result), result.rowsAppended) == (step, expected, told.rowsAppended)
        assertRows(table.toDF(), [tuple(row.values()) for row in model.live()])


def test_S31_a_feed_names_the_strategy_that_was_used(spark, people):
    rows = frame(spark, "id INT, v STRING", (1, "a"), (2, "b"))
    extract = people.snapshot(rows, at=10)
    assert [line.strip() for line in extract.explain().splitlines() if "Strategy" in line or "reads" in line] == [
        "Strategy: full scan",
        "reads every live row, for the source",
    ]
    result = extract.execute()
    assert (result.strategy, counts(result), result.perClause) == ("full scan", (2, 0, 0, 0), ())
    assert str(result).startswith("version 1: 2 inserted, 0 updated, 0 deleted, 0 stale (2 rows appended")
    assert people.history().first()["metrics"]["rowsInserted"] == "2"
    events = frame(spark, EVENTS, (1, 20, None, "U"), (2, 20, None, "D"), (3, 20, "c", "U"), (1, 5, None, "U"))
    feed = people.applyChanges(events, applyAsDeletes="op = 'D'", ignoreNullUpdates=True)
    assert "Strategy: keyed lookup" in feed.explain()
    result = feed.execute()
    assert (result.strategy, counts(result)) == ("keyed lookup", (1, 1, 1, 1))
    blind = people.applyChanges(frame(spark, PEOPLE, (7, 5, "x")))
    assert (blind.build().strategy, blind.execute().rowsInserted) == ("blind append", None)
    late = people.snapshot(frame(spark, "id INT, v STRING", (1, "z")), at=15)
    assert counts(late.execute()) == (None,) * 4
    counted = people.snapshot(frame(spark, "id INT, v STRING", (1, "y")), at=16).withCounts().execute()
    assert (counted.strategy, counts(counted)) == ("full scan", (0, 1, 0, 1)), "and mends the row that ignores its null"


def test_U1_without_history_a_tombstone_is_between_events_too(spark, tmp_path):
    """Nothing of an event before a tombstone that is stored fills one after it."""
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    table.applyChanges(frame(spark, EVENTS, (1, 10, None, "D")), applyAsDeletes="op = 'D'").execute()
    events = [{"id": 1, "ts": 5, "v": "Rome"}, {"id": 1, "ts": 15, "v": None}]
    model = ModelTable(table.definition)
    model.applyChanges([{"id": 1, "ts": 10, "v": None}], applyAsDeletes=True)
    model.applyChanges(events, ignoreNullUpdates=True)
    assert [row["v"] for row in model.live()] == [None]
    table.applyChanges(frame(spark, PEOPLE, *[tuple(e.values()) for e in events]), ignoreNullUpdates=True).execute()
    assertRows(table.toDF(), [(1, 15, None)])


def test_U1_without_a_watermark_the_last_commit_fills(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING, w STRING", history=True)
    for row in [(1, "a", "x"), (1, "b", "x"), (1, "c", "x"), (1, None, "y")]:
        table.applyChanges(frame(spark, "id INT, v STRING, w STRING", row), ignoreNullUpdates=True).execute()
    assertRows(table.toDF(), [(1, "c", "y")])


# Dimensions with intervals --------------------------------------------------------------------------------------------

INTERVALS = "id INT, city STRING, since DATE, until DATE"


def dimension(spark, tmp_path, *rows, **options) -> TrinityTable:
    source = spark.createDataFrame(list(rows), "id INT, city STRING, since STRING, until STRING")
    source = source.selectExpr("id", "city", "CAST(since AS DATE) AS since", "CAST(until AS DATE) AS until")
    return TrinityTable.fromIntervals(spark, str(tmp_path / "dimension"), source, "id", "since", "until", **options)


def test_H12_versions_are_the_original(spark, tmp_path):
    rows = [
        (1, "Rome", "2024-01-01", "2024-02-01"),
        (1, "Oslo", "2024-02-01", "2024-03-01"),
        (1, "Bonn", "2024-04-01", "9999-12-31"),
        (2, "Nice", None, "2024-01-05"),
    ]
    table = dimension(spark, tmp_path, *rows, openEnd="9999-12-31")
    for _ in range(2):
        found = table.versions(validFrom="since", validTo="until", openEnd="9999-12-31")
        shown = found.selectExpr("id", "city", "CAST(since AS STRING)", "CAST(until AS STRING)")
        assertRows(shown, rows)
        table.compact()
    assertRows(table.toDF().select("id", "city"), [(1, "Bonn")])


def test_H12_inclusive_ends(spark, tmp_path):
    rows = [(1, "Rome", "2024-01-01", "2024-01-31"), (1, "Oslo", "2024-02-01", None)]
    table = dimension(spark, tmp_path, *rows, endInclusive=True)
    assertRows(table.versions().selectExpr("city", "string(validTo)"), [("Rome", "2024-02-01"), ("Oslo", None)])


def test_H12_empty_intervals_are_left_out_and_counted(spark, tmp_path, caplog):
    rows = [(1, "Rome", "2024-01-01", "2024-01-01"), (1, "Oslo", "2024-01-01", None)]
    assertRows(dimension(spark, tmp_path, *rows).versions().select("city"), ["Oslo"])
    assert "left out 1 interval" in caplog.text


@pytest.mark.parametrize(
    ("rows", "error", "match"),
    [
        ([(1, "a", "2024-01-01", "2024-03-01"), (1, "b", "2024-02-01", None)], DuplicateKeyError, "overlap the next"),
        ([(1, "a", "2024-01-01", None), (1, "b", "2024-02-01", None)], DuplicateKeyError, "id = 1"),
        ([(1, "a", "2024-02-01", "2024-01-01")], InvalidMergeError, "end before it begins"),
        ([(None, "a", "2024-02-01", None)], NullKeyError, "null in the key"),
    ],
)
def test_H12_contradictions_are_refused_and_leave_nothing(spark, tmp_path, rows, error, match):
    with pytest.raises(error, match=match):
        dimension(spark, tmp_path, *rows)
    assert not (tmp_path / "dimension").exists()


def test_H12_inclusive_ends_need_a_next_value(spark, tmp_path):
    source = frame(spark, "id INT, since STRING, until STRING", (1, "a", "b"))
    with pytest.raises(InvalidMergeError, match="next value"):
        TrinityTable.fromIntervals(spark, str(tmp_path / "d"), source, "id", "since", "until", endInclusive=True)


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("kind", ["TINYINT", "BIGINT", "DECIMAL(5,2)", "DECIMAL(20,10)", "DECIMAL(38,6)"])
def test_H12_an_inclusive_end_without_a_next_value_is_refused(spark, tmp_path, kind, ansi):
    last = {"TINYINT": "127", "BIGINT": str(2**63 - 1), "DECIMAL(5,2)": "999.99"}
    last |= {"DECIMAL(20,10)": "9" * 10 + "." + "9" * 10, "DECIMAL(38,6)": "9" * 32 + "." + "9" * 6}
    rows = frame(spark, "id INT, since STRING, until STRING", (1, None, last[kind]))
    source = rows.selectExpr("id", f"CAST(since AS {kind}) AS since", f"CAST(until AS {kind}) AS until")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(InvalidMergeError, match=r"1 interval whose end .*id = 1.*Nothing was written"):
            TrinityTable.fromIntervals(spark, str(tmp_path / "d"), source, "id", "since", "until", endInclusive=True)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert not (tmp_path / "d").exists()


def test_H12_the_last_moment_has_no_next(spark, tmp_path):
    source = spark.sql("SELECT 1 AS id, timestamp_micros(0) AS since, timestamp_micros(9223372036854775807) AS until")
    with pytest.raises(InvalidMergeError, match="1 interval whose end"):
        TrinityTable.fromIntervals(spark, str(tmp_path / "d"), source, "id", "since", "until", endInclusive=True)


def test_H12_the_next_decimal_keeps_every_place(spark, tmp_path):
    source = spark.sql(
        "SELECT 1 AS id, CAST(0 AS DECIMAL(20,10)) AS since, CAST('1.0000000001' AS DECIMAL(20,10)) AS until"
    )
    table = TrinityTable.fromIntervals(spark, str(tmp_path / "d"), source, "id", "since", "until", endInclusive=True)
    assertRows(table.versions().selectExpr("string(validTo)"), [("1.0000000002",)])
    widest = source.selectExpr("id", "CAST(since AS DECIMAL(38,10)) AS since", "CAST(until AS DECIMAL(38,10)) AS until")
    with pytest.raises(InvalidMergeError, match="next value"):
        TrinityTable.fromIntervals(spark, str(tmp_path / "e"), widest, "id", "since", "until", endInclusive=True)


@pytest.mark.parametrize("inclusive", [False, True])
def test_H12_an_end_that_the_type_of_the_begin_would_cut_is_refused(spark, tmp_path, inclusive):
    """A DATE cuts off the time of day, whole numbers the fraction; what loses nothing is cast."""
    text = "SELECT 1 AS id, {0} AS since, {1} AS until UNION ALL SELECT 2, {0}, {2}"
    day, exact = "DATE'2020-01-01'", "TIMESTAMP_NTZ'2020-02-01 00:00'"
    cases = [
        (day, exact, "TIMESTAMP_NTZ'2020-02-01 10:30'"),
        (day, "TIMESTAMP_LTZ'2020-02-01 00:00'", "TIMESTAMP_LTZ'2020-02-01 00:00:00.000001'"),
        (day, "'2020-02-01'", "'2020-02-01 10:30:00'"),
        ("1", "2.0BD", "2.5BD"),
        ("1.0BD", "2.00BD", "2.55BD"),
        ("1L", "2D", "2.5D"),
    ]
    for i, (begin, fits, cut) in enumerate(cases):
        source = spark.sql(text.format(begin, fits, cut))
        options = {"endInclusive": inclusive and i < 5}
        with pytest.raises(InvalidMergeError, match=r"1 interval whose 'until' .*: id = 2\. .* Cast 'since' or"):
            TrinityTable.fromIntervals(spark, str(tmp_path / "cut"), source, "id", "since", "until", **options)
        kept = TrinityTable.fromIntervals(
            spark, str(tmp_path / f"{i}"), source.filter("id = 1"), "id", "since", "until"
        )
        assert kept.versions().count() == 1
    never = spark.sql(text.format(day, exact, "TIMESTAMP_NTZ'9999-12-31 23:59:59'"))
    opened = TrinityTable.fromIntervals(
        spark, str(tmp_path / "open"), never, "id", "since", "until", openEnd="9999-12-31"
    )
    assertRows(opened.versions().select("id", "isCurrent"), [(1, False), (2, True)])


def test_H12_an_end_that_is_no_value_of_the_begin_is_refused(spark, tmp_path):
    source = spark.sql("SELECT 1 AS id, CAST(null AS DATE) AS since, 'soon' AS until")
    with pytest.raises(InvalidMergeError, match="1 interval whose end is not a value of the type of 'since'"):
        TrinityTable.fromIntervals(spark, str(tmp_path / "d"), source, "id", "since", "until")


# Increments -----------------------------------------------------------------------------------------------------------


def bring_up_to_date(table: TrinityTable, copy: TrinityTable) -> int:
    increment = table.changesSince(copy, "feed")
    rows = increment.rows.filter("_change_type <> 'update_preimage'")
    merge = copy.applyChanges(
        rows, sequenceBy="_watermark", applyAsDeletes="_change_type = 'delete'", columns=["id", "ts", "v"]
    )
    return merge.withTransaction(*increment.transaction).execute().rowsAppended


def test_S36_increments_arrive_once_each(spark, tmp_path):
    table, copy = (new_table(spark, tmp_path, PEOPLE, watermarkKey="ts") for _ in range(2))
    fill(table, spark, [(1, 10, "a"), (2, 10, "b")])
    assert bring_up_to_date(table, copy) == 2
    fill(table, spark, [(1, 20, "c")])
    table.deleteWhere("id = 2").execute()
    table.compact()
    assert bring_up_to_date(table, copy) == 2
    assertRows(copy.toDF(), table.toDF())
    assert bring_up_to_date(table, copy) == 0
    assert table.changesSince(copy, "feed").fromVersion == table.version


@pytest.mark.parametrize("operation", ["restore", "purge"])
def test_S36_no_increment_goes_across_a_restore_or_purge(spark, tmp_path, operation):
    table, copy = (new_table(spark, tmp_path, PEOPLE, watermarkKey="ts") for _ in range(2))
    fill(table, spark, [(1, 10, "a")])
    bring_up_to_date(table, copy)
    fill(table, spark, [(1, 20, "c")])
    table.restore(1) if operation == "restore" else table.purge([1])
    with pytest.raises(InvalidMergeError, match=rf"is a {operation}.*withTransaction\(\"feed\", {table.version}, \""):
        table.changesSince(copy, "feed")
    new = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    bring_up_to_date(table, new)
    assertRows(new.toDF(), table.toDF())


def test_S36_no_increment_comes_from_a_table_that_took_the_place_of_another(spark, tmp_path):
    table, copy = (new_table(spark, tmp_path, PEOPLE, watermarkKey="ts") for _ in range(2))
    fill(table, spark, [(1, 10, "a")])
    bring_up_to_date(table, copy)
    shutil.rmtree(directory_of(table))
    again = TrinityTable.create(spark, table.path, PEOPLE, primaryKey="id", watermarkKey="ts")
    fill(again, spark, [(2, 10, "b")], [(3, 10, "c")])
    with pytest.raises(
        InvalidMergeError, match=r"got version 1 from another table \(id \w+\) than the one.*withTransaction"
    ) as failed:
        again.changesSince(copy, "feed")
    copy.merge(
        again.toDF()
    ).whenNotMatched().insertAll().whenNotMatchedAndExistsOnlyOnTarget().delete().withTransaction(
        "feed", again.version, again._snapshot().table_id
    ).execute()
    assert again._snapshot().table_id in str(failed.value), "the remedy names it"
    fill(again, spark, [(4, 10, "d")])
    assert bring_up_to_date(again, copy) == 1
    assertRows(copy.toDF(), again.toDF())


def test_S36_an_increment_of_a_vacuumed_version_says_so(spark, tmp_path):
    table, copy = (new_table(spark, tmp_path, PEOPLE, watermarkKey="ts") for _ in range(2))
    fill(table, spark, [(1, 10, "a")])
    bring_up_to_date(table, copy)
    fill(table, spark, [(1, 20, "c")], [(1, 30, "d")])
    table.compact()
    table.vacuum(retentionHours=0)
    with pytest.raises(TableNotFoundError, match="can no longer be read"):
        table.changesSince(copy, "feed")


# Maintenance ----------------------------------------------------------------------------------------------------------


def archives(table: TrinityTable) -> list[tuple[str, int]]:
    return [(b.archive, b.rows) for b in table._snapshot().batches if b.archive]


def test_H6_folds_and_compactions_archive_what_they_replace(spark, tmp_path):
    table = new_table(
        spark,
        tmp_path,
        PEOPLE,
        watermarkKey="ts",
        history=True,
        properties={"trinitymerge.minorCompactionAfterBatches": "2"},
    )
    fill(table, spark, [(i, 1, "a") for i in range(50)])
    table.compact()
    for ts in range(2, 5):
        table.upsert(frame(spark, PEOPLE, (1, ts, "b"), (2, ts, "b"))).execute()
    assert archives(table) == [(UNRESOLVED, 6)], "the base, small as it is, was folded too"
    result = table.compact()
    assert (result.rows, result.rowsArchived, result.rowsRemoved) == (50, 6, 0)
    assert archives(table) == [(RESOLVED, 6)]
    assert table.health().archivedRows == 6
    table.upsert(frame(spark, PEOPLE, (1, 9, "c"))).execute()
    table.compact()
    assert sum(rows for _, rows in archives(table)) == 7


def test_H7_versions_last_as_long_as_their_retention(spark, tmp_path):
    keep = {"trinitymerge.historyRetentionHours": "0", "trinitymerge.tombstoneRetentionHours": "0"}
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=True, properties=keep)
    fill(table, spark, [(1, 1, "a"), (2, 1, "a")], [(1, 2, "b")])
    table.deleteWhere("id = 2").at(5).execute()
    assert table.versions().count() == 3
    table.compact()
    assertRows(table.versions().select("id", "v"), [(1, "b")])
    assert archives(table) == []
    table.alter().unsetProperty("trinitymerge.historyRetentionHours").execute()
    table.upsert(frame(spark, PEOPLE, (1, 3, "c"))).execute()
    table.compact()
    assert table.compact().skipped
    table.alter().setProperty("trinitymerge.historyRetentionHours", "0").execute()
    table.compact()
    assertRows(table.versions().select("id", "v"), [(1, "c")])


HOUR = 3_600_000


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize(
    ("late", "kept"),
    [
        ((1, 20, "corrected", False), []),
        ((1, 10, "corrected", False), []),
        ((1, 20, None, True), []),
        ((1, 15, "splits", False), [(1, 10)]),
    ],
    ids=["the row that ends it", "the version itself", "by a tombstone", "a late row ends it earlier"],
)
def test_H7_a_correction_does_not_renew_the_clock_of_what_has_ended(
    spark, tmp_path, monkeypatch, is_settled, late, kept
):
    """A version of 10 ends at 20, by a row of hour 1. What comes in hour 9 leaves it due in hour 12, after 10 hours."""

    def at(hour):
        for module in ("log.model", "stores.managed", "maintenance.rewrite"):
            monkeypatch.setattr(f"trinitymerge.{module}.now_ms", lambda: int(hour * HOUR))

    hours = {"trinitymerge.historyRetentionHours": "10", "trinitymerge.tombstoneRetentionHours": "10"}
    at(0)
    schema, keys = f"{PEOPLE}, deleted BOOLEAN", {"watermarkKey": "ts", "tombstoneKey": "deleted"}
    table = new_table(spark, tmp_path, schema, **keys, history=True, properties=hours)
    for hour, row in ((0, (1, 10, "a", False)), (1, (1, 20, "b", False)), (2, (1, 30, "c", False))):
        at(hour)
        table.upsert(frame(spark, schema, row)).execute()
    if is_settled:
        table.compact()
    at(9)
    table.upsert(frame(spark, schema, late)).execute()
    at(11.5)
    table.compact(full=True)
    found = [(r["id"], r["validFrom"]) for r in table.versions().collect() if r["validFrom"] < 15]
    assert found == kept, table.versions().collect()


def test_H7_versions_expire_also_when_nothing_else_is_left(spark, tmp_path, monkeypatch):
    hours = {"trinitymerge.historyRetentionHours": "1", "trinitymerge.tombstoneRetentionHours": "1"}
    table = fill(
        new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=True, properties=hours),
        spark,
        [(1, 10, "secret")],
    )
    table.deleteWhere("id = 1").at(20).execute()
    table.compact()  # the version goes to an archive, the tombstone is the base
    real = rewrite.now_ms()
    for hour in (1.5, 3):
        monkeypatch.setattr(rewrite, "now_ms", lambda hour=hour: real + int(hour * HOUR))
        table.compact()
    assert table.versions().count() == 0


@pytest.mark.parametrize("is_partial", [False, True], ids=["minor compaction", "partial compaction"])
def test_H7_a_minor_compaction_keeps_the_clock_of_what_a_correction_ends(spark, tmp_path, monkeypatch, is_partial):
    """The version of 10 is in the base. Hour 1 ends it; the row of hour 1 and its correction of hour 9 become one batch."""

    def at(hour):
        for module in ("log.model", "stores.managed", "maintenance.rewrite"):
            monkeypatch.setattr(f"trinitymerge.{module}.now_ms", lambda: int(hour * HOUR))

    hours = {"trinitymerge.historyRetentionHours": "10", "trinitymerge.minorCompactionAfterBatches": "1"}
    at(0)
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=True, properties=hours)
    table.upsert(spark.range(3000).selectExpr("CAST(id AS INT) AS id", "10 AS ts", "uuid() AS v")).execute()
    table.compact()
    for hour, row in ((1, (1, 20, "b")), (9, (1, 20, "corrected")), (9, (2, 20, "c")), (9, (3, 20, "d"))):
        at(hour)
        table.upsert(frame(spark, PEOPLE, row)).execute()
    assert "MINOR COMPACT" in [row["operation"] for row in table.history().collect()]
    expected = [(1, "corrected", 20), (2, "c", 20), (3, "d", 20)]
    found = table.versions().filter("id IN (1, 2, 3) AND validFrom > 10").select("id", "v", "ts").collect()
    assert sorted(map(tuple, found)) == expected
    at(11.5)
    if is_partial:
        table.compact()
    table.compact(full=True)
    found = table.versions().filter("id IN (1, 2, 3)").select("id", "v", "ts").collect()
    assert sorted((r["id"], r["ts"]) for r in found) == [(1, 20), (2, 10), (2, 20), (3, 10), (3, 20)]
    assert (1, "corrected", 20) in map(tuple, found)


@pytest.mark.parametrize("watermark", ["ts", None])
def test_H1_history_switched_on_later_begins_with_the_latest_rows(spark, tmp_path, watermark):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey=watermark)
    fill(table, spark, [(1, 1, "a"), (2, 1, "a")], [(1, 2, "b")])
    assert table.alter().setHistory().execute().changes == ("versions are kept",)
    table.upsert(frame(spark, PEOPLE, (2, 3, "c"))).execute()
    found = table.versions().select("id", "v", "isCurrent")
    assertRows(found, [(1, "b", True), (2, "a", False), (2, "c", True)])
    if watermark is None:
        switched = table.history().filter("operation = 'ALTER'").collect()[0]["timestamp"]
        assert min(row["validFrom"] for row in table.versions().collect()) == switched
    with pytest.raises(InvalidDefinitionError, match="keeps the latest rows only"):
        TrinityTable.forPath(spark, table.path, versionAsOf=1).versions()
    assert not table.alter().setHistory().execute().changes
    table.restore(1)
    assert not table.definition.history


def test_H1_an_alteration_that_means_nothing_is_refused(spark, people):
    for name, value in (("trinitymerge.foldAfterBatch", "3"), ("trinitymerge.minorCompactionAfterBatches", "many")):
        with pytest.raises(InvalidDefinitionError):
            people.alter().setProperty(name, value)
    result = people.alter().setComment("all").setProperty("owner", "me").execute()
    assert (people.definition.comment, people.definition.properties["owner"]) == ("all", "me")
    assert str(result) == "version 1: owner is me; the comment is 'all'"
    assert people.alter().unsetProperty("owner").setComment(None).execute().version == 2


def test_S40_a_bitemporal_read(spark, people):
    fill(people, spark, [(1, 10, "a")], [(1, 30, "c")], [(1, 20, "b")])
    before = TrinityTable.forPath(spark, people.path, versionAsOf=2)
    assertRows(before.asOf(25).select("v"), ["a"])
    assertRows(people.asOf(25).select("v"), ["b"])


# What fills a null ----------------------------------------------------------------------------------------------------


def versions_after(table: TrinityTable, spark, *batches) -> list[tuple]:
    for rows in batches:
        table.applyChanges(frame(spark, EVENTS, *rows), applyAsDeletes="op = 'D'", ignoreNullUpdates=True).execute()
    return sorted((r["id"], r["validFrom"], r["v"]) for r in table.versions().collect())


def test_U1_what_a_delete_brings_fills_nothing(spark, people):
    """Change feeds send the row as it was along with its delete."""
    found = versions_after(people, spark, [(1, 7, "Rome", "D"), (1, 9, None, "U")])
    assert found == [(1, 9, None)]


def test_U1_the_freshest_row_fills_whatever_it_holds(spark, people):
    people.upsert(frame(spark, PEOPLE, (1, 20, None))).execute()
    found = versions_after(people, spark, [(1, 10, "Rome", "U")], [(1, 30, None, "U")])
    assert found == [(1, 10, "Rome"), (1, 20, None), (1, 30, None)]


def test_U1_zeros_of_tombstones_fill_nothing(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING NOT NULL", watermarkKey="ts", history=True)
    table.applyChanges(frame(spark, EVENTS, (1, 7, None, "D")), applyAsDeletes="op = 'D'").execute()
    with pytest.raises(SchemaMismatchError, match="'v' must not be null"):
        table.applyChanges(frame(spark, PEOPLE, (1, 9, None)), ignoreNullUpdates=True).execute()


@pytest.mark.parametrize("values", [("a", None), (None, "a")])
def test_U1_S12_events_of_one_moment_do_not_fill_each_other(spark, people, values):
    with pytest.raises(AmbiguousMergeError):
        people.applyChanges(frame(spark, PEOPLE, *[(1, 5, v) for v in values]), ignoreNullUpdates=True).execute()


# Delivered twice, and not at all --------------------------------------------------------------------------------------


def test_S36_an_extract_that_is_delivered_again_does_nothing(spark, tmp_path):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    for at, skipped in ((1, False), (2, False), (1, True)):
        extract = table.snapshot(frame(spark, "id INT, v STRING", (1, f"v{at}")), at=at)
        assert bool(extract.withTransaction("job", at).execute().skipped) == skipped


def test_H9_a_null_sequence_beside_a_truncate_is_refused(spark, tmp_path):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    for events in ([(None, 5, "T"), (1, None, "a")], [(None, 5, "T"), (None, None, "T")]):
        with pytest.raises(NullKeyError, match="no place in the sequence"):
            table.applyChanges(frame(spark, PEOPLE, *events), applyAsTruncates="v = 'T'").execute()


@pytest.mark.parametrize("options", [{}, {"ignoreNullUpdates": True}, {"applyAsTruncates": "v = 'T'"}])
def test_H9_a_source_without_its_sequence_or_key_is_refused(spark, tmp_path, options):
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts")
    for schema, row in (("id INT, v STRING", (1, "a")), ("ts INT, v STRING", (1, "a"))):
        with pytest.raises(InvalidMergeError, match="is missing in the source"):
            table.applyChanges(frame(spark, schema, row), **options).build()


def test_H9_feeds_say_themselves_when(spark, people):
    with pytest.raises(InvalidMergeError, match=r"do not call at\(\)"):
        people.applyChanges(frame(spark, PEOPLE, (1, 5, "a"))).at(7)


def test_H1_S40_a_restore_brings_back_when_versions_began(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING", history=False)
    fill(table, spark, [(1, "a")])
    table.alter().setHistory().execute()
    began = table.versions().collect()[0]["validFrom"]
    table.upsert(frame(spark, "id INT, v STRING", (2, "b"))).execute()
    table.restore(1)
    table.restore(3)
    assert [r["validFrom"] for r in table.versions(keys=[1]).collect()] == [began]


def test_H6_a_fold_beside_a_settled_archive_is_no_base(spark, tmp_path):
    """A late row ends a version whose tombstone has been forgotten; nothing but the window tells."""
    keep = {"trinitymerge.minorCompactionAfterBatches": "none"}
    table = new_table(spark, tmp_path, PEOPLE, watermarkKey="ts", history=True, properties=keep)
    fill(table, spark, [(1, 100, "r"), (2, 1, "x")])
    table.deleteWhere("id = 1").at(300).execute()
    table.compact()
    fill(table, spark, [(1, 200, "q")])
    before = sorted(map(tuple, table.versions().collect()), key=repr)
    snapshot = table._store.snapshot()
    minor_compact(table._store, snapshot, snapshot.live_batches)
    assert sorted(map(tuple, table.versions().collect()), key=repr) == before


# What Spark's analyzer refuses ----------------------------------------------------------------------------------------


def test_S30_a_column_that_is_not_found_is_said_in_our_words(spark, people):
    events = frame(spark, EVENTS, (1, 1, "a", "I"))
    unknown = "Column 'opp' not found. Did you mean 'op'?"
    for call, message in [
        (lambda: people.insert(events, deduplicate=True, orderBy=F.desc("opp")), f"insert(), orderBy: {unknown}"),
        (lambda: people.insert(events, deduplicate=True, orderBy="opp"), f"insert(), orderBy: {unknown} A text is"),
        (lambda: people.applyChanges(events, sequenceBy="opp").build(), f"applyChanges(): {unknown}"),
        (lambda: people.applyChanges(events, applyAsDeletes="opp = 'D'").build(), f"applyChanges(): {unknown}"),
        (lambda: people.purgeWhere("op = 'D'"), "purgeWhere(): Column 'op' not found. There is 'v', 'id', 'ts'."),
        (lambda: people.purgeWhere("a.b.v = 'D'"), "Column 'a.b.v' not found. There is 'target.v', "),
    ]:
        with pytest.raises(InvalidMergeError) as refused:
            call()
        assert message in str(refused.value)


@pytest.mark.parametrize("condition", ["op", "ts"])
def test_H9_a_condition_that_is_not_boolean_is_refused(spark, people, condition):
    with pytest.raises(InvalidMergeError, match=r"applyChanges\(\): applyAsDeletes is (string|int), not boolean"):
        people.applyChanges(frame(spark, EVENTS, (1, 1, "a", "I")), applyAsDeletes=F.col(condition)).build()
    people.applyChanges(frame(spark, EVENTS, (1, 1, "a", "I")), applyAsDeletes="NULL").execute()
    assert people.toDF().count() == 1
