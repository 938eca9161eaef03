"""S47: events of a merge with a quarantine are judged before they fill, mend or move anything (U1, U4, U7, T1)."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from helpers import assertRows, quickly
from partial_events import batches, stream
from pyspark.sql import functions as F
from tables import frame, new_table

from trinitymerge import TrinityTable, feeds
from trinitymerge.errors import TrinityMergeError
from trinitymerge.testing import ModelTable, renderDifference

SCHEMA = "id INT, ts INT, a INT, b INT"
EVENTS = "id INT, ts INT, a STRING, b INT, unset ARRAY<STRING>, was INT, dead BOOLEAN"


@pytest.fixture
def quarantine(spark, tmp_path):
    return TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")


def table_of(spark, tmp_path, check=None, schema=SCHEMA, **options):
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", **options)
    if check:
        table.alter().addCheck("c", check).execute()
    return table


def event(id, ts, a=None, b=None, unset=None, was=None, dead=False):
    return (id, ts, None if a is None else str(a), b, unset, was, dead)


def apply(table, quarantine, *events, **options):
    options = {"unchanged": "unset", "movedFrom": "was", "applyAsDeletes": "dead", **options}
    source = frame(table._store.spark, EVENTS, *events)
    merge = table.applyChanges(source, **options, exceptColumns=["unset", "was", "dead"])
    return merge.quarantine(quarantine).execute()


def live(table):
    return sorted(tuple(row) for row in table.toDF().collect())


def test_S47_a_value_that_does_not_fit_rejects_its_event_however_events_leave_columns_unset(spark, tmp_path):
    ways = {
        "plain": {"unchanged": None, "movedFrom": None},
        "unchanged": {"movedFrom": None},
        "columnsToUpdate": {"unchanged": None, "columnsToUpdate": "unset", "movedFrom": None},
        "ignoreNullUpdates": {"unchanged": None, "ignoreNullUpdates": True, "movedFrom": None},
        "movedFrom": {"unchanged": None},
        "applyAsTruncates": {"unchanged": None, "movedFrom": None, "applyAsTruncates": "false"},
    }
    for name, options in ways.items():
        table = table_of(spark, tmp_path / name)
        quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/{name}/quarantine")
        got = apply(
            table, quarantine, event(1, 5, "x", 2), event(2, 5, 7, 2), event(3, 5, "y", 2, dead=True), **options
        )
        assert (got.quarantined, got.rowsSource) == ({"type:a": 1}, 3), name
        assert live(table) == [(2, 5, 7, 2)], name


def test_S47_U6_a_value_that_is_left_unset_is_not_judged(spark, tmp_path, quarantine):
    table = table_of(spark, tmp_path)
    apply(table, quarantine, event(1, 1, 3, 4))
    assert apply(table, quarantine, event(1, 5, "toast", 5, unset=["a"])).rowsQuarantined == 0
    assert live(table) == [(1, 5, 3, 5)]


@pytest.mark.parametrize("history", [False, True])
def test_S47_U1_a_rejected_event_fills_nothing_in_any_order_and_batches(history, spark, tmp_path):
    first, bad, last = event(1, 1, 3, 1), event(1, 5, 77, 500), event(1, 9, b=5, unset=["a"])
    for number, parts in enumerate(
        ([[first], [bad], [last]], [[first], [last], [bad]], [[last], [first, bad]], [[bad, last, first]])
    ):
        table = table_of(spark, tmp_path / str(number), "b < 100", history=history)
        quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/{number}/quarantine")
        for part in parts:
            apply(table, quarantine, *part)
        reasons = [row.reason for row in quarantine.toDF().collect()]
        assert (live(table), reasons) == ([(1, 9, 3, 5)], ["check:c"]), parts


@pytest.mark.parametrize("history", [False, True])
def test_S47_U7_a_rejected_change_of_the_key_leaves_the_old_row(history, spark, tmp_path, quarantine):
    table = table_of(spark, tmp_path, "a > 0", history=history)
    apply(table, quarantine, *[event(i, 1, 3, 1) for i in (1, 2, 3, 4, 5)])
    moves = [
        event(11, 5, -1, 7, was=1),
        event(12, 5, -1, unset=["b"], was=2),
        event(None, 5, 1, 7, was=3),
        event(14, 5, 1, 7, was=4),
        event(14, 5, 1, 8, was=5),
    ]
    got = apply(table, quarantine, *moves)
    assert got.quarantined == {"ambiguous": 2, "check:c": 2, "null-key": 1}
    assert live(table) == [(i, 1, 3, 1) for i in (1, 2, 3, 4, 5)]
    kept = [json.loads(row.row) for row in quarantine.toDF().where("reason = 'check:c'").collect()]
    assert sorted(row["id"] for row in kept) == [11, 12]


def test_S47_U7_a_late_change_of_the_key_under_onStale_error_is_rejected_as_a_whole(spark, tmp_path, quarantine):
    table = table_of(spark, tmp_path)
    apply(table, quarantine, event(1, 9, 3, 1), event(2, 1, 4, 1))
    source = frame(spark, EVENTS, event(2, 5, 8, 8, was=1), event(3, 5, 1, 1))
    merge = table.applyChanges(source, movedFrom="was", exceptColumns=["unset", "was", "dead"]).onStale("error")
    assert merge.quarantine(quarantine).execute().quarantined == {"stale": 1}
    assert live(table) == [(1, 9, 3, 1), (2, 1, 4, 1), (3, 5, 1, 1)]


def test_S47_F1_a_rejected_message_that_changes_a_key_leaves_the_old_row(spark, tmp_path, quarantine):
    table = new_table(spark, tmp_path, "id INT, a INT, _seq STRING", watermarkKey="_seq")
    table.alter().addCheck("c", "a > 0").execute()
    head = '{"database":"shop","table":"t","type":"%s","ts":1700000000,"xid":%d,"commit":true,"position":"m.000006:%d","data":%s%s}'
    messages = (
        head % ("insert", 1, 800, '{"id":1,"a":3}', ""),
        head % ("update", 2, 900, '{"id":2,"a":-1}', ',"old":{"id":1,"a":3}'),
    )
    for n, message in enumerate(messages):
        source = frame(spark, "value STRING, topic STRING, partition INT, offset BIGINT", (message, "t", 0, n))
        got = table.applyChanges(feeds.maxwell(source)).quarantine(quarantine).execute()
    assert got.quarantined == {"check:c": 1}
    assert [(row.id, row.a) for row in table.toDF().collect()] == [(1, 3)]
    (kept,) = quarantine.toDF().collect()
    assert kept.row == messages[1]


@pytest.mark.parametrize(
    ("columns", "check", "late", "reason"),
    [
        ("a INT, b INT", "a < b", event(1, 5, 50, 500), "mended:check:c"),
        ("a INT NOT NULL, b INT", "b > 0", event(1, 5, dead=True), "mended:null:a"),
    ],
    ids=["constraint", "not null"],
)
def test_S47_U4_an_event_that_would_mend_a_row_so_that_it_breaks_a_rule_can_be_replayed(
    columns, check, late, reason, spark, tmp_path, quarantine, caplog
):
    table = table_of(spark, tmp_path, check, f"id INT, ts INT, {columns}")
    for one in (event(1, 1, 3, 100), event(1, 9, b=5, unset=["a"])):
        apply(table, quarantine, one)
    got = apply(table, quarantine, late, event(2, 5, 1, 2))
    assert got.quarantined == {reason: 1}
    assert live(table) == [(1, 9, 3, 5), (2, 5, 1, 2)]
    (kept,) = quarantine.toDF().collect()
    assert json.loads(kept.row)["id"] == 1
    assert "(id=1, ts=9)" in caplog.text


NAMES = [
    ("reason", "place", "filler", "why"),
    ("source", "gone", "waits", "breaks"),
    ("row", "clause", "number", "digest"),
    ("nth", "keys", "judged_k0", "event_number"),
    ("position", "raw", "k0", "w0"),
]


@pytest.mark.parametrize("names", quickly([(names,) for names in NAMES], NAMES[::3]), ids=map("-".join, NAMES))
def test_S47_columns_of_a_table_may_have_any_names(names, spark, tmp_path, quarantine):
    key, time, a, b = names
    table = new_table(spark, tmp_path, f"{key} INT, {time} INT, {a} INT, {b} INT", primaryKey=key, watermarkKey=time)
    table.alter().addCheck("c", f"{a} < {b}").execute()
    rejected = Counter()
    for events in (
        [event(1, 1, 3, 100), event(2, 1, "x", 2), event(7, 1, 1, 2)],
        [event(1, 9, b=5, unset=["a"]), event(3, 5, 1, 2), event(3, 5, 1, 3), event(8, 2, 4, 5, was=7)],
        [event(1, 5, 50, 500)],
        [event(9, 3, "y", 5, was=8)],
    ):
        source = frame(spark, EVENTS, *events).toDF(key, time, a, b, "unset", "was", "dead")
        source = source.withColumn("unset", F.expr(f"transform(unset, u -> '{a}')"))
        merge = table.applyChanges(
            source, unchanged="unset", movedFrom="was", applyAsDeletes="dead", exceptColumns=["unset", "was", "dead"]
        )
        rejected.update(merge.quarantine(quarantine).execute().quarantined)
    assert rejected == {f"type:{a}": 2, "ambiguous": 2, "mended:check:c": 1}
    assert live(table) == [(1, 9, 3, 5), (8, 2, 4, 5)]
    assert sorted(json.loads(row.row)[key] for row in quarantine.toDF().collect()) == [1, 2, 3, 3, 9]


def test_S47_U4_rows_of_other_merges_that_would_mend_so_are_rejected_too(spark, tmp_path, quarantine):
    table = table_of(spark, tmp_path, "a < b")
    for one in (event(1, 1, 3, 100), event(1, 9, b=5, unset=["a"]), event(3, 1, 3, 100), event(3, 9, b=5, unset=["a"])):
        apply(table, quarantine, one)
    late = frame(spark, SCHEMA, (1, 5, 50, 500), (1, 4, 60, 600), (1, 3, 4, 600), (2, 5, 1, 2), (3, 5, 2, 3))
    got = table.upsert(late).quarantine(quarantine).execute()
    assert (got.quarantined, got.rowsMended) == ({"mended:check:c": 2}, 2)
    assert live(table) == [(1, 9, 4, 5), (2, 5, 1, 2), (3, 9, 2, 5)]


# Random events --------------------------------------------------------------------------------------------------------

LANE_EVENTS = "lane INT, " + EVENTS.replace("dead BOOLEAN", "c INT, op STRING, lane_was INT")
CHECKS = {"small": ("a < 8", ("a",)), "order": ("a <= b + 5", ("a", "b"))}


def lane_of(rnd, history, cuts):
    """Events of one lane in batches, some of them broken."""
    events = []
    for one in stream(rnd, keys=3, each=rnd.randint(1, 4), deletes=0.15, nulls=0.2, moves=0.25, returns=history):
        value = rnd.choice(["x", "9"]) if rnd.random() < 0.12 else str(rnd.randint(0, 8))
        c = None if rnd.random() < 0.1 else rnd.randint(0, 3)
        found = {**one, "a": value, "b": rnd.choice([None, 0, 1, 2, 3]), "c": c}
        if rnd.random() < 0.04:
            found["id"] = None
        events.append(found)
    parts = batches(rnd, events, 4, repeated=0.1)
    for part in parts:
        if part and rnd.random() < 0.3:  # another event at the place of one
            part.append({**rnd.choice(part), "b": 4})
    return [[*part, *cut] for part, cut in zip(parts, cuts, strict=True)]


def modelled(lane, definition, stale):
    """The interpreter's table, and how many events of each batch are rejected, by their reasons."""
    holds = {
        "small": lambda row: None if row["a"] is None else row["a"] < 8,
        "order": lambda row: None if None in (row["a"], row["b"]) else row["a"] <= row["b"] + 5,
    }
    table = ModelTable(definition, checks=holds, checkColumns={name: columns for name, (_, columns) in CHECKS.items()})
    reasons = [Counter() for _ in lane]
    for part, counts in zip(lane, reasons, strict=True):
        if part:
            result = table.applyChanges(
                part,
                applyAsDeletes=lambda e: e["op"] == "D",
                applyAsTruncates=lambda e: e["op"] == "T",
                unchanged=lambda e: e["unset"],
                movedFrom=lambda e: e["was"],
                sourceColumns=["id", "ts", "a", "b", "c"],
                quarantine=True,
                **({"onStale": "error"} if stale else {}),
            )
            counts.update(reason for _, reason in result.quarantined)
    return table, reasons


def run_lanes(spark, path, number, count, history, stale=False, truncates=0):
    """Lanes side by side in a table, each of them against the interpreter."""
    rnd = random.Random(number)
    cut = [[] for _ in range(4)]
    for _ in range(truncates):
        at = rnd.randrange(1, 60)
        cut[rnd.randrange(4)].append({**dict.fromkeys(("id", "a", "b", "c", "unset", "was")), "ts": at, "op": "T"})
    schema = "id INT, ts INT, a INT, b INT, c INT NOT NULL DEFAULT 0"
    options = {"watermarkKey": "ts", "history": history}
    one = new_table(spark, path / "one", schema, **options)
    table = new_table(spark, path / "all", f"lane INT, {schema}", primaryKey=["lane", "id"], **options)
    for name, (condition, _) in CHECKS.items():
        table.alter().addCheck(name, condition).execute()
    quarantine = TrinityTable.createQuarantine(spark, f"{path}/quarantine")
    lanes = {}
    while len(lanes) < count:
        lane = lane_of(rnd, history, cut)
        try:
            lanes[len(lanes)] = (lane, *modelled(lane, one.definition, stale))
        except TrinityMergeError:
            continue
    for step in range(4):
        rows = [
            (
                n,
                e["id"],
                e["ts"],
                e["a"],
                e["b"],
                e["unset"],
                e["was"],
                e["c"],
                e["op"],
                None if e["was"] is None else n,
            )
            for n, (lane, *_) in lanes.items()
            for e in lane[step]
            if e["op"] != "T"
        ]
        rows += [(None, None, e["ts"], None, None, None, None, None, "T", None) for e in cut[step]]
        source = frame(
            spark,
            "lane INT, id INT, ts INT, a STRING, b INT, unset ARRAY<STRING>, was INT, c INT, op STRING, lane_was INT",
            *rows,
        )
        merge = table.applyChanges(
            source,
            unchanged="unset",
            movedFrom=["lane_was", "was"],
            applyAsDeletes="op = 'D'",
            applyAsTruncates="op = 'T'" if truncates else None,
            exceptColumns=["unset", "was", "op", "lane_was"],
        )
        result = (merge.onStale("error") if stale else merge).quarantine(quarantine).execute()
        wanted = sum((reasons[step] for *_, reasons in lanes.values()), Counter())
        assert Counter(result.quarantined) == wanted, f"seed {number}, batch {step} ('wanted' is the interpreter)"
    expected = [{"lane": n, **row} for n, (_, model, _) in lanes.items() for row in model.live()]
    text = renderDifference(expected, [row.asDict() for row in table.toDF().collect()], ["lane", "id"])
    if text:
        bad = int(text.split("lane=")[1].split(",")[0]) if "lane=" in text else 0
        text += f"\n{lanes[bad][0]}"
    assert not text, f"seed {number} ('expected' is the interpreter): {text}"


@pytest.mark.parametrize(
    ("number", "history", "stale", "truncates"),
    quickly(
        [(n, n % 2 == 1, n % 5 == 4, 2 * (n % 3 == 2)) for n in range(12)], [(1, True, False, 0), (2, False, False, 2)]
    ),
)
def test_S47_U1_U7_T1_rejected_events_have_no_effect_at_all(number, history, stale, truncates, spark, tmp_path):
    run_lanes(spark, tmp_path, number, 25, history, stale, truncates)


def test_S47_a_column_may_be_called_source_row(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", watermarkKey="ts")
    table.alter().addColumn("source_row", "STRING").execute()
    table.upsert(spark.sql("SELECT 1 AS id, 1 AS ts, 'a' AS v, 'r1' AS source_row")).execute()
    quarantine = TrinityTable.createQuarantine(spark, f"{tmp_path}/quarantine")
    table.applyChanges(spark.sql("SELECT 1 AS id, 2 AS ts, 'b' AS v")).quarantine(quarantine).execute()
    assertRows(table.toDF().select("v", "source_row"), [("b", "r1")])


def test_S12_S47_events_that_differ_in_the_order_of_a_maps_entries_are_ambiguous(spark, tmp_path, quarantine):
    table = new_table(spark, tmp_path, "id INT, ts INT, m MAP<STRING, INT>, b INT", watermarkKey="ts")
    entries = ("map('x', 1, 'y', 2)", "map('y', 2, 'x', 1)")
    rows = [f"SELECT 1 AS id, 5 AS ts, {m} AS m, 1 AS b, CAST(NULL AS ARRAY<STRING>) AS unset" for m in entries]
    events = spark.sql(" UNION ALL ".join([*rows, "SELECT 2, 5, map('x', 1), NULL, array('b')"]))
    merge = table.applyChanges(events, unchanged="unset", exceptColumns=["unset"])
    assert merge.quarantine(quarantine).execute().quarantined == {"ambiguous": 2}
    assert [row["id"] for row in table.toDF().collect()] == [2]


def test_S47_U7_a_change_of_the_key_that_leaves_a_required_column_never_set_is_rejected(spark, tmp_path, quarantine):
    table = table_of(spark, tmp_path, check="b IS NOT NULL")
    got = apply(table, quarantine, event(2, 30, 7, unset=["b"], was=1), event(3, 30, 7, 8))
    assert got.quarantined == {"check:c": 1}
    assert live(table) == [(3, 30, 7, 8)]
