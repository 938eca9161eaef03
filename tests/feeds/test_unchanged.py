"""U1-U6: columns that events leave unset, in any order and any batches."""

from __future__ import annotations

import random
from itertools import permutations, product

import pytest
from helpers import assertRows, quickly
from partial_events import (
    COLUMNS,
    SCHEMA,
    SIX,
    apply,
    batches,
    event,
    every_batching,
    feed,
    live,
    rows,
    stream,
    told,
    versions,
)
from pyspark.sql import functions as F
from tables import frame, new_table

from trinitymerge import ConstraintError, InvalidMergeError, SchemaMismatchError, TrinityTable
from trinitymerge.log.actions import REGISTERS
from trinitymerge.merge.execute import executor
from trinitymerge.schema.properties import MINOR_COMPACTION_AFTER_BATCHES, TOMBSTONE_RETENTION_HOURS
from trinitymerge.testing import ModelTable


@pytest.fixture
def table(spark, tmp_path):
    return new_table(spark, tmp_path, SCHEMA, watermarkKey="ts")


@pytest.fixture
def past(spark, tmp_path):
    return new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=True)


FULL, PARTIAL, LATE = event(1, 10, "a", "b", "c"), event(1, 30, "x", unset=["b", "c"]), event(1, 20, "y", "late", "z")


# Any order, any batches -----------------------------------------------------------------------------------------------

MOVED = [
    event(1, 10, "a1", "b1", "c1"),
    event(1, 20, "a2", "b2", unset=["c"]),
    event(2, 30, "a3", unset=["b", "c"], was=1),
    event(2, 40, c="c4", unset=["a", "b"]),
]
MOVED_TWICE = [*MOVED[:3], event(3, 40, "a4", unset=["b", "c"], was=2), event(3, 50, "a5", "b5", unset=["c"])]
MOVED_BACK = [*MOVED[:3], event(1, 40, c="c4", unset=["a", "b"], was=2), event(1, 50, unset=["a", "c"])]
WITHOUT_A_DELETE = [*SIX[1:3], *SIX[4:]]
IN_EVERY_ORDER = {
    "4": WITHOUT_A_DELETE,
    "5": SIX[:5],
    "6": SIX,
    "moved": MOVED,
    "moved twice": MOVED_TWICE,
    "moved back": MOVED_BACK,
    "moved back, 6": [*MOVED_BACK, event(2, 60, "a6", unset=["b"])],
}
IN_EVERY_RUN = [WITHOUT_A_DELETE, MOVED]


def between(table, step):
    """What may happen between batches."""
    if step == 1:
        table.compact(full=True)
    if step == 2:
        version = table.version
        table.deleteWhere("true").at(99).execute()
        table.restore(version)
        table.purge([-1])
    if step == 3:
        table.compact()


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
@pytest.mark.parametrize(
    "events", quickly([(e,) for e in IN_EVERY_ORDER.values()], IN_EVERY_RUN), ids=[*IN_EVERY_ORDER]
)
@pytest.mark.program
def test_U1_U7_every_order_and_every_batching_gives_the_same_rows(events, history, spark, tmp_path):
    """Each order and batching is under other keys of one table."""
    if events[-1]["id"] in {one["was"] for one in events} and not history:
        pytest.skip("U7: without history, a key that rows left has no earlier rows")
    lanes = [parts for order in permutations(events) for parts in every_batching(order)]
    properties = {MINOR_COMPACTION_AFTER_BATCHES: "3"}
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history, properties=properties)
    for step in range(len(events)):
        batch = [
            of_lane(one, lane, 10) for lane, parts in enumerate(lanes) for one in (parts[step : step + 1] or [[]])[0]
        ]
        apply(table, *batch, event(-1, 10 + step, unset=["a"]))
        between(table, step)
    table.purge([-1])
    wanted = [(row[0] + 10 * lane, *row[1:]) for lane in range(len(lanes)) for row in live(events)]
    assertRows(table.toDF().select("id", "ts", *COLUMNS), wanted)
    if history:
        wanted = [(row[0] + 10 * lane, *row[1:]) for lane in range(len(lanes)) for row in versions(events)]
        assertRows(table.versions().select("id", "validFrom", *COLUMNS, "validTo"), wanted)


def of_lane(one, lane, keys):
    """The event with keys that no other lane has."""
    return {**one, **{name: one[name] if one[name] is None else one[name] + keys * lane for name in ("id", "was")}}


def of_spark(seed, history, truncates=0):
    """A stream and its batches, by the parameters of Spark's own test of AUTO CDC."""
    rnd = random.Random(seed)
    shares = {"deletes": 0.2, "nulls": 0.25, "moves": seed % 2 * 0.1}
    events = stream(rnd, keys=10, each=rnd.randint(1, 40), truncates=truncates, returns=history, **shares)
    return events, batches(rnd, events, 8, repeated=0.15)


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
@pytest.mark.parametrize(
    "seeds", quickly([(range(10),), *((range(n, n + 200),) for n in range(0, 1000, 200))], [range(10)]), ids=str
)
def test_U1_U7_any_order_and_batching_is_one_pass_in_order(seeds, history, spark, tmp_path):
    """Each stream is under other keys of one table."""
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history)
    streams = {seed: of_spark(seed, history) for seed in seeds}
    for step in range(8):
        batch = [of_lane(one, seed, 1000) for seed, (_, parts) in streams.items() for one in parts[step]]
        apply(table, *batch, event(-1, step))
        between(table, step)
    table.purge([-1])
    found = [(seed, row) for seed, (events, _) in streams.items() for row in live(events)]
    assertRows(table.toDF().select("id", "ts", *COLUMNS), [(row[0] + 1000 * seed, *row[1:]) for seed, row in found])
    if history:
        found = [(seed, row) for seed, (events, _) in streams.items() for row in versions(events)]
        shown = table.versions().select("id", "validFrom", *COLUMNS, "validTo")
        assertRows(shown, [(row[0] + 1000 * seed, *row[1:]) for seed, row in found])


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
@pytest.mark.parametrize("seed", quickly([(n,) for n in range(50)], {1}))
def test_U1_T1_U7_truncates_in_any_order_and_batching(seed, history, spark, tmp_path):
    """A truncate deletes all keys, so there is one table for each stream."""
    events, parts = of_spark(seed, history, truncates=1 + seed % 2)
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history)
    for step, batch in enumerate(parts):
        if batch:
            apply(table, *batch, applyAsTruncates="op = 'T'" if any(one["op"] == "T" for one in batch) else None)
        if step == 3:
            table.compact()
    assert rows(table) == live(events)
    if history:
        assert told(table) == versions(events)


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
@pytest.mark.parametrize("seed", quickly([(n,) for n in range(20)], {0}))
def test_U1_S30a_S42_rows_counts_and_mended_rows_are_the_interpreters(seed, history, spark, tmp_path):
    rnd = random.Random(seed)
    events = stream(rnd, keys=3, each=5, deletes=0.2, moves=0.2, returns=history)
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history)
    model = ModelTable(table.definition)
    counts = ("rowsInserted", "rowsUpdated", "rowsDeleted", "rowsStale", "rowsMended", "rowsAppended", "rowsSource")
    for step, batch in enumerate(batches(rnd, events, 5, repeated=0.2)):
        if not batch:
            continue
        if step % 3 == 2:  # whole rows, by another call
            rows_of = [
                {n: one[n] for n in ("id", "ts", *COLUMNS)} for one in {one["id"]: one for one in batch}.values()
            ]
            result = table.upsert(frame(spark, SCHEMA, *[tuple(r.values()) for r in rows_of])).withCounts().execute()
            known = model.version
            model._upsert(rows_of)
            assert model.version == known + 1
        else:
            result = apply(table, *batch)
            wanted = model.applyChanges(
                batch,
                unchanged=lambda e: e["unset"],
                applyAsDeletes=lambda e: e["op"] == "D",
                exceptColumns=["op", "unset", "was"],
                movedFrom=lambda e: e["was"],
            )
            assert {n: getattr(result, n) for n in counts} == {n: getattr(wanted, n) for n in counts}, step
        assert rows(table) == [(r["id"], r["ts"], *(r[n] for n in COLUMNS)) for r in model.live()]


# One rule at a time ---------------------------------------------------------------------------------------------------


def test_U4_a_late_event_mends_what_the_row_leaves_unset(table):
    apply(table, FULL)
    assert apply(table, PARTIAL).rowsMended == 0
    assert rows(table) == [(1, 30, "x", "b", "c")]
    result = apply(table, LATE)
    assert (result.rowsMended, result.rowsStale, result.rowsUpdated, result.rowsAppended) == (1, 1, 1, 2)
    assert rows(table) == [(1, 30, "x", "late", "z")]
    assert "1 row mended by late rows" in str(result)
    assert table.history().first()["metrics"]["rowsMended"] == "1"


def test_U4_an_older_or_repeated_event_mends_nothing(table):
    apply(table, FULL)
    apply(table, PARTIAL)
    for late in (event(1, 5, "o", "o", "o"), FULL, event(1, 20, "y", unset=["b", "c"])):
        result = apply(table, late)
        assert (result.rowsMended, rows(table)) == (0, [(1, 30, "x", "b", "c")])


@pytest.mark.parametrize("history", [False, True])
def test_U4_keys_of_type_char(history, spark, tmp_path):
    """They are stored padded, and compared as they are written."""
    table = new_table(spark, tmp_path, "id CHAR(5), ts INT, b STRING", watermarkKey="ts", history=history)
    for ts, b, unset in [(30, None, ["b"]), (20, "late", None)]:
        row = frame(spark, "id STRING, ts INT, b STRING, unset ARRAY<STRING>", ("a", ts, b, unset))
        result = table.applyChanges(row, unchanged="unset", exceptColumns="unset").execute()
    assert result.rowsMended == 1
    assertRows(table.toDF(), [("a    ", 30, "late")])


def test_U1_a_null_that_an_event_sets_is_not_an_unset_column(table):
    apply(table, FULL)
    apply(table, event(1, 20, unset=["b"]))
    assert rows(table) == [(1, 20, None, "b", None)]


def test_U4_a_late_delete_sets_null(table):
    apply(table, FULL)
    apply(table, PARTIAL)
    result = apply(table, event(1, 20, op="D"))
    assert (result.rowsMended, rows(table)) == (1, [(1, 30, "x", None, None)])


def test_U4_a_late_truncate_sets_null(table):
    apply(table, FULL, event(2, 10, "k", "l", "m"))
    apply(table, PARTIAL)
    apply(table, event(None, 20, op="T"), applyAsTruncates="op = 'T'")
    assert rows(table) == [(1, 30, "x", None, None)]
    apply(table, event(1, 15, "o", "o", "o"))
    assert rows(table) == [(1, 30, "x", None, None)], "what is older than the truncate mends nothing"
    apply(table, event(1, 25, "o", "new", "o", unset=["c"]))
    assert rows(table) == [(1, 30, "x", "new", None)]


def test_U4_with_history_every_later_version_is_mended_until_one_sets_the_column(past):
    apply(past, FULL)
    apply(
        past,
        event(1, 30, "x", unset=["b", "c"]),
        event(1, 40, c="w", unset=["a", "b"]),
        event(1, 50, b="own", unset=["a", "c"]),
    )
    result = apply(past, event(1, 20, b="late", unset=["a", "c"]))
    assert result.rowsMended == 2
    assert told(past) == [
        (1, 10, "a", "b", "c", 20),
        (1, 20, "a", "late", "c", 30),
        (1, 30, "x", "late", "c", 40),
        (1, 40, "x", "late", "w", 50),
        (1, 50, "x", "own", "w", None),
    ]


@pytest.mark.parametrize("counts", [False, True])
def test_U3_U4_late_rows_of_other_merges_mend_too(counts, table, spark):
    apply(table, FULL)
    apply(table, PARTIAL)
    merge = table.upsert(frame(spark, SCHEMA, (1, 20, "y", "late", "z"), (2, 20, "k", "l", "m")))
    result = (merge.withCounts() if counts else merge).execute()
    assert (result.rowsMended, result.rowsAppended) == (1, 3)
    if counts:
        assert (result.rowsInserted, result.rowsUpdated, result.rowsStale, result.rowsSource) == (1, 1, 1, 2)
    assert rows(table) == [(1, 30, "x", "late", "z"), (2, 20, "k", "l", "m")]
    deleting = table.delete(spark.sql("SELECT 1 AS id, 25 AS ts")).execute()
    assert (deleting.rowsMended, rows(table)[0]) == (1, (1, 30, "x", None, None))


def test_U3_rows_that_cannot_be_late_are_not_looked_up(table, spark, monkeypatch):
    apply(table, FULL, event(50, 10, "k", "l", "m"))
    apply(table, PARTIAL)
    monkeypatch.setattr(executor.mend, "with_mended", lambda *_: pytest.fail("partial rows are looked up"))
    for row in ((1, 40, "p", "q", "r"), (77, 20, "p", "q", "r")):  # fresher; another key
        result = table.upsert(frame(spark, SCHEMA, row)).execute()
        assert (result.strategy, result.rowsMended) == ("blind append", 0)


def test_U2_only_columns_that_some_row_leaves_unset_have_registers(table):
    def named():
        return [b.unset for b in table._snapshot().batches]

    apply(table, FULL)
    apply(table, event(1, 30, "x", None, "c3", unset=["b"]))
    assert named() == [None, ("b",)]
    apply(table, event(1, 20, "y", "late", unset=["c"]))  # mends the row before, and leaves another column unset
    assert (rows(table), named()) == ([(1, 30, "x", "late", "c3")], [None, ("b",), ("b", "c")])
    table.compact(full=True)
    assert named() == [("b", "c")]
    assert apply(table, event(1, 25, "z", "later", "z")).rowsMended == 1
    assert (rows(table), named()) == ([(1, 30, "x", "later", "c3")], [("b", "c")] * 2)
    assert apply(table, event(1, 27, "z", "last", "z")).rowsMended == 1


def test_U4_rows_mended_by_a_merge_of_whole_rows_are_mended_again(table, spark):
    apply(table, event(1, 30, "x", None, "c", unset=["b"]))
    for ts, value in ((10, "late"), (20, "later")):
        assert table.upsert(frame(spark, SCHEMA, (1, ts, "y", value, "z"))).execute().rowsMended == 1
        table.compact(full=True)  # so that only the mended row says what it leaves unset
        assert rows(table) == [(1, 30, "x", value, "c")]


@pytest.mark.parametrize("late", [True, False])
def test_U3_S35_a_concurrent_partial_row_is_mended(late, table, spark, at_point):
    apply(table, FULL)
    at_point("commit.before", lambda: apply(table, PARTIAL))
    result = table.upsert(frame(spark, SCHEMA, (1, 20 if late else 40, "y", "late", "z"))).execute()
    assert result.rowsMended == int(late)
    assert rows(table) == [(1, 30, "x", "late", "z") if late else (1, 40, "y", "late", "z")]


def test_U3_S35_a_partial_row_that_a_restore_brings_back_is_mended(table, spark, at_point):
    apply(table, FULL)
    apply(table, PARTIAL)
    version = table.version
    table.upsert(frame(spark, SCHEMA, (1, 40, "x", "x", "x"))).execute()
    at_point("commit.before", lambda: table.restore(version))
    result = table.upsert(frame(spark, SCHEMA, (1, 20, "y", "late", "z"))).execute()
    assert (result.rowsMended, rows(table)) == (1, [(1, 30, "x", "late", "z")])


def test_U3_S35_events_are_filled_again_if_rows_landed(table, at_point):
    apply(table, FULL)
    at_point("commit.before", lambda: apply(table, event(1, 20, "a", "landed", "c")))
    apply(table, PARTIAL)
    assert rows(table) == [(1, 30, "x", "landed", "c")]


def test_U2_a_column_that_no_event_has_set_is_null_or_has_its_default(spark, tmp_path, caplog):
    table = new_table(spark, tmp_path, SCHEMA.replace("b STRING", "b STRING DEFAULT 'd'"), watermarkKey="ts")
    result = apply(table, PARTIAL)
    assert (result.columnsUnknown, rows(table)) == (2, [(1, 30, "x", "d", None)])
    assert "REPLICA IDENTITY FULL" in caplog.text
    assert "2 unchanged values that no row has set" in str(result)
    caplog.clear()
    assert apply(table, event(1, 40, unset=["a", "b", "c"]), event(2, 5, unset=["a"])).columnsUnknown == 3
    assert not caplog.text, "once per table"
    apply(table, event(1, 10, "a", None, "c"))
    assert rows(table)[0] == (1, 40, "x", None, "c")


def test_U2_after_a_delete_an_unset_column_is_known(table):
    apply(table, FULL)
    apply(table, event(1, 20, op="D"))
    assert apply(table, PARTIAL).columnsUnknown == 0
    assert rows(table) == [(1, 30, "x", None, None)]


def test_U2_a_column_that_is_not_nullable_must_have_been_set(spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA.replace("c STRING", "c STRING NOT NULL"), watermarkKey="ts")
    with pytest.raises(SchemaMismatchError, match="'c' must not be null"):
        apply(table, PARTIAL)
    apply(table, FULL)
    apply(table, PARTIAL)
    apply(table, event(1, 20, "late", unset=["b", "c"]))  # what held at 20 is not stored, and not validated
    assert rows(table) == [(1, 30, "x", "b", "c")]


def test_U4_S45_a_mended_row_is_validated(spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts")
    table.alter().addCheck("short", "length(b) < 6").execute()
    apply(table, PARTIAL)
    with pytest.raises(ConstraintError):
        apply(table, event(1, 20, b="too long", unset=["a", "c"]))
    assert rows(table) == [(1, 30, "x", None, None)]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unchanged": "array('nope', 'a', 'id')"}, r"unchanged names nope, id\. Name columns"),
        ({"columnsToUpdate": "array('ts')", "unchanged": None}, "columnsToUpdate names ts"),
        ({"unchanged": "'a'"}, r"takes an array of column names, got a value of type string"),
        ({"unchanged": 5}, "unchanged takes SQL text or a Column, got 5"),
        ({"ignoreNullUpdates": True}, "got unchanged and ignoreNullUpdates"),
        ({"columnsToUpdate": "array('a')"}, "got unchanged and columnsToUpdate"),
    ],
    ids=str,
)
def test_U2_U6_what_names_no_column_is_refused(options, match, table):
    with pytest.raises(InvalidMergeError, match=match):
        apply(table, FULL, **options)
    assert table.version == 0


def test_U2_names_are_compared_as_the_session_does(table, spark):
    apply(table, FULL)
    apply(table, event(1, 20, "x", unset=["B", None, "C"]))
    assert rows(table) == [(1, 20, "x", "b", "c")]


def test_U6_columns_to_update_is_the_complement(table):
    apply(table, FULL)
    apply(table, event(1, 20, "x", "not this", "nor this", unset=["a"]), unchanged=None, columnsToUpdate="unset")
    assert rows(table) == [(1, 20, "x", "b", "c")]
    apply(table, event(1, 30, "y", unset=None), unchanged=None, columnsToUpdate="unset")
    assert rows(table) == [(1, 30, "y", None, None)]


def test_U6_ignored_nulls_and_struct_fields_have_registers(spark, tmp_path):
    for number, order in enumerate(quickly_orders()):
        table = new_table(
            spark, tmp_path / str(number), "id INT, ts INT, s STRUCT<x: INT, `y.z`: INT>", watermarkKey="ts"
        )
        for ts, struct in order:
            value = f"CAST({struct} AS STRUCT<x: INT, `y.z`: INT>)"
            table.applyChanges(spark.sql(f"SELECT 1 AS id, {ts} AS ts, {value} AS s"), ignoreNullUpdates=True).execute()
        assertRows(table.toDF().select("ts", "s.x", "s.`y.z`"), [(4, 4, 2)])


def quickly_orders():
    said = [(1, "struct(1, 1)"), (2, "struct(NULL, 2)"), (3, "NULL"), (4, "struct(4, NULL)")]
    orders = list(permutations(said))
    return [orders[0], orders[-1], orders[13]]


def test_U6_ignored_nulls_need_registers_only_where_there_are_some(table):
    def registers(*events):
        merge = feed(table, *events, unchanged=None, ignoreNullUpdates=True)
        merge.execute()
        return merge.build().spec.feed.unset

    assert registers(FULL) == ()
    assert registers(event(1, 30, "x", "y", "z"), event(2, 30, op="D")) == (), "a delete leaves nothing unset"
    assert registers(event(1, 40, "q", None, "r")) == ("b",)
    assert rows(table) == [(1, 40, "q", "y", "r")]


@pytest.mark.filterwarnings("ignore:.*pandas:Warning")
@pytest.mark.parametrize("way", ["ignoreNullUpdates", "unchanged", "columnsToUpdate", "lacking", "quarantine", "none"])
def test_S32_events_are_evaluated_once_whatever_they_leave_unset(way, table, spark, tmp_path):
    evaluated = tmp_path / "evaluated"
    evaluated.touch()

    def count(number):
        with open(evaluated, "a") as file:  # Spark Connect has no accumulators
            file.write(".")
        return number

    apply(table, FULL)
    table.alter().addColumn("n", "INT").execute()
    counted = F.udf(count, "int")
    events = frame(
        spark, "id INT, ts INT, a STRING, b STRING, c STRING, n INT", (1, 30, "x", None, "z", 7), (2, 30, *[None] * 4)
    )
    events = events.withColumn("id", counted("id"))
    given = {
        "unchanged": {"unchanged": "array('b')"},
        "columnsToUpdate": {"columnsToUpdate": "array('a', 'c', 'n')"},
        "lacking": {},
        "none": {},
    }.get(way, {"ignoreNullUpdates": True})
    merge = table.applyChanges(events.drop("n") if way == "lacking" else events, **given)
    if way == "quarantine":
        merge = merge.quarantine(TrinityTable.createQuarantine(spark, f"{tmp_path}/rejected"))
    merge.execute()
    assert evaluated.stat().st_size == 2
    kept = None if way in ("lacking", "none") else "b"
    assertRows(table.toDF().where("id = 1").select("a", "b", "c"), [("x", kept, "z")])


@pytest.mark.parametrize("history", [False, True])
def test_U6_S22_columns_that_the_source_lacks_are_unset(history, spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, a STRING", watermarkKey="ts", history=history)
    table.alter().addColumn("n", "INT").execute()
    table.applyChanges(frame(spark, "id INT, ts INT, a STRING", (1, 30, "x"))).execute()
    table.applyChanges(frame(spark, "id INT, ts INT, a STRING, n INT", (1, 20, "late", 7))).execute()
    assertRows(table.toDF(), [(1, 30, "x", 7)])


# Sequences ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "moments"),
    [
        ("TIMESTAMP", ["2024-10-27 00:30:00", "2024-10-27 01:30:00.000001", "2024-10-27 01:30:00.000002"]),
        ("TIMESTAMP_NTZ", ["1600-01-01 00:00:00", "2024-03-31 02:30:00.000001", "2024-03-31 02:30:00.000002"]),
        ("DATE", ["0001-01-01", "2024-01-01", "9999-12-31"]),
        ("BINARY", ["A", "AB", "B"]),
        ("STRING", ["", "it's \\", "é"]),
        ("FLOAT", ["-1.1", "0.1", "Infinity"]),
        ("DOUBLE", ["-0.1", "1e300", "NaN"]),
        ("DECIMAL(38,10)", ["-0.0000000001", "0", "9999999999999999999999999999.9"]),
        ("BOOLEAN", ["false", "true", "true"]),
    ],
)
def test_U2_registers_compare_sequences_of_any_type(kind, moments, spark, tmp_path):
    early, late, last = moments
    if kind == "BOOLEAN":
        early, late = None, "false"
    table = new_table(spark, tmp_path, f"id INT, ts {kind}, a STRING, b STRING", watermarkKey="ts")

    def take(ts, a, b, unset):
        row = frame(spark, "id INT, ts STRING, a STRING, b STRING, unset ARRAY<STRING>", (1, ts, a, b, unset))
        return table.applyChanges(
            row.selectExpr("id", f"CAST(ts AS {kind}) AS ts", "a", "b", "unset"), unchanged="unset"
        )

    if early is None:
        rows = frame(spark, "id INT, a STRING, b STRING", (1, "a", "b"))
        table.upsert(rows.selectExpr("id", f"CAST(NULL AS {kind}) AS ts", "a", "b")).execute()
    else:
        take(early, "a", "b", None).execute()
    take(last, "x", None, ["b"]).execute()
    assertRows(table.toDF().select("a", "b"), [("x", "b")])
    assert take(late, "y", "late", None).execute().rowsMended == 1
    assertRows(table.toDF().select("a", "b"), [("x", "late")])
    assert take(late, "y", "late", None).execute().rowsMended == 0


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_U4_S29_a_mended_row_keeps_what_the_sources_types_cannot_hold(ansi, spark, tmp_path):
    columns = "id INT, ts INT, x DOUBLE, n BIGINT, a STRING"
    table = new_table(spark, tmp_path, columns, watermarkKey="ts", tombstoneKey=None)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        first = frame(spark, f"{columns}, unset ARRAY<STRING>", (1, 9, 1.5, 5_000_000_000, None, ["a"]))
        table.applyChanges(first, unchanged="unset").execute()
        late = frame(spark, "id INT, ts INT, x INT, n INT, a STRING, unset ARRAY<STRING>", (1, 7, 2, 3, "late", []))
        table.applyChanges(late, unchanged="unset").execute()
        assertRows(table.toDF(), [(1, 9, 1.5, 5_000_000_000, "late")])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_U2_registers_compare_a_sequence_of_several_columns(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, t INT, n STRING, a STRING, b STRING", watermarkKey=["t", "n"])
    schema = "id INT, t INT, n STRING, a STRING, b STRING, unset ARRAY<STRING>"
    late = [(1, 1, n, "y", b, None) for n, b in (("z", "old"), ("zz", "new"), ("b", "older"))]
    for row in [(1, 2, "a", "x", None, ["b"]), *late]:
        table.applyChanges(frame(spark, schema, row), unchanged="unset").execute()
    assertRows(table.toDF(), [(1, 2, "a", "x", "new")])


def test_U6_without_a_watermark_the_last_commit_fills(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, a STRING, b STRING")
    schema = "id INT, a STRING, b STRING, unset ARRAY<STRING>"
    for row in ((1, "a", "b", None), (1, "x", None, ["b"]), (1, None, "y", ["a"])):
        table.applyChanges(frame(spark, schema, row), unchanged="unset").execute()
    assertRows(table.toDF(), [(1, "x", "y")])
    assert not any(b.partial for b in table._snapshot().batches)


# What keeps registers -------------------------------------------------------------------------------------------------

KEEPING = {
    "compaction": lambda table, path: table.compact(full=True),
    "clone": lambda table, path: table.clone(path),
    "restore": lambda table, path: (table.deleteWhere("true").at(90).execute(), table.restore(2)),
    "purge": lambda table, path: table.purge([2]),
    "rename": lambda table, path: table.alter().renameColumn("b", "B 2.x").execute(),
    "another column": lambda table, path: table.alter().dropColumn("c").addColumn("c", "STRING").execute(),
    "history": lambda table, path: table.alter().setHistory().execute(),
}


@pytest.mark.parametrize(
    ("keeping", "history"),
    quickly(product(KEEPING, [False, True]), [*product(KEEPING, [False]), ("compaction", True), ("purge", True)]),
)
def test_U5_registers_are_kept(keeping, history, spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", history=history)
    apply(table, FULL, event(2, 10, "k", "l", "m"))
    apply(table, PARTIAL, event(2, 30, unset=["a"]))
    made = KEEPING[keeping](table, f"{tmp_path}/other")
    table = made if isinstance(made, TrinityTable) else TrinityTable.forPath(spark, table.path)
    names = [n for n in table.definition.names if n not in ("id", "ts")]
    late = frame(spark, "id INT, ts INT, a STRING, b STRING, c STRING", (1, 20, "y", "late", "z"))
    assert table.applyChanges(late.toDF("id", "ts", *names)).execute().rowsMended == 1
    third = None if keeping == "another column" else "z"
    assertRows(table.toDF().filter("id = 1").select("ts", *[f"`{n}`" for n in names]), [(30, "x", "late", third)])


def test_U5_registers_of_struct_fields_and_wider_columns_are_kept(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, s STRUCT<x: INT, y: INT>, n INT", watermarkKey="ts")
    first = "SELECT 1 AS id, 10 AS ts, struct(1 AS x, 1 AS y) AS s, 1 AS n"
    table.applyChanges(spark.sql(first)).execute()
    partial = "SELECT 1 AS id, 30 AS ts, CAST(struct(3 AS x, NULL AS y) AS STRUCT<x: INT, y: INT>) AS s, CAST(NULL AS INT) AS n"
    table.applyChanges(spark.sql(partial), ignoreNullUpdates=True).execute()
    wider = table.alter().widenColumn("s", "STRUCT<x: INT, y: BIGINT, z: INT>").widenColumn("n", "BIGINT")
    wider.widenColumn("ts", "BIGINT").execute()
    late = "SELECT 1 AS id, 20 AS ts, struct(2 AS x, 2L AS y, 2 AS z) AS s, 2L AS n"
    assert table.applyChanges(spark.sql(late)).execute().rowsMended == 1
    assertRows(table.toDF().select("ts", "s.x", "s.y", "n"), [(30, 3, 2, 2)])


def test_U5_a_compaction_makes_rows_whole_after_the_retention(spark, tmp_path):
    table = new_table(spark, tmp_path, SCHEMA, watermarkKey="ts", properties={TOMBSTONE_RETENTION_HOURS: "0"})
    apply(table, FULL)
    apply(table, PARTIAL)
    assert [b.partial for b in table._snapshot().batches] == [0, 1]
    table.compact(full=True)
    assert [b.partial for b in table._snapshot().batches] == [0]
    result = apply(table, LATE)
    assert (result.rowsMended, result.rowsBelowHorizon, rows(table)) == (0, 1, [(1, 30, "x", "b", "c")])


def test_U5_S40_past_versions_have_their_registers(table, spark):
    apply(table, FULL)
    apply(table, PARTIAL)
    apply(table, LATE)
    before = TrinityTable.forPath(spark, table.path, versionAsOf=2)
    assert rows(before) == [(1, 30, "x", "b", "c")]
    changed = table.changes(2).select("_change_type", "b", "_commit_version", "_watermark")
    assertRows(changed, [("update_preimage", "b", 3, 30), ("update_postimage", "late", 3, 30)])


def test_U5_S42_why_shows_the_registers(table):
    apply(table, PARTIAL)
    why = [row["_why"] for row in table.why(1).collect()]
    assert why == ["current: the only row; b: never set; c: never set"]
    apply(table, event(1, 20, b="late", unset=["a", "c"]))
    why = [row["_why"] for row in table.why(1).collect()]
    assert why[0] == "current: of equal watermarks the one committed last; b: as of 20; c: never set"


def test_U2_files_of_whole_rows_do_not_have_the_column_and_writers_must_know_it(table, spark):
    apply(table, FULL, unchanged=None)
    assert table._snapshot().requirements is None
    apply(table, PARTIAL)
    first, second = (table._store.batch_path(b.id) for b in table._snapshot().batches)
    assert "_tm_unset" not in spark.read.parquet(first).columns
    assert "_tm_unset" in spark.read.parquet(second).columns
    assert "_tm_unset" not in table.toDF().columns
    assert table._snapshot().requirements.writers == (REGISTERS,)
    apply(table, event(1, 40, unset=["a"]))
    assert table._snapshot().requirements.writers == (REGISTERS,)


def test_U5_exports_and_queries_have_the_values(table, spark, tmp_path):
    apply(table, FULL)
    apply(table, PARTIAL)
    apply(table, LATE)
    table.export(f"{tmp_path}/export")
    assertRows(spark.read.parquet(f"{tmp_path}/export"), [(1, 30, "x", "late", "z")])
    assertRows(spark.sql(table.sqlFor("spark")), [(1, 30, "x", "late", "z")])
