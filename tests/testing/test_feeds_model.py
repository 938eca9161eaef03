"""Feeds in the interpreter: laws that hold for any events and extracts, and dimensions with intervals (H1, H9-H12)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import attrs
import pytest
from history_steps import ONE, ORDINARY, PEOPLE
from hypothesis import given, strategies as st

from trinitymerge.errors import DuplicateKeyError, InvalidMergeError, NullKeyError, SchemaMismatchError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import ModelTable
from trinitymerge.testing.model.history import read_intervals
from trinitymerge.testing.strategies import batchings, event_streams

FIELDS = [Field("key", "integer"), Field("ts", "integer"), Field("value", "string")]
HISTORY = TableDefinition.of(FIELDS, "key", "ts", history=True)
TYPE_1 = attrs.evolve(HISTORY, history=False)


def is_delete(row):
    return row["op"] == "D"


def is_truncate(row):
    return row["op"] == "T"


def changed(definition, *batches, **options):
    """A table after some batches of events."""
    table = ModelTable(definition)
    for batch in batches:
        table.applyChanges(batch, applyAsDeletes=is_delete, **options)
    return table


def dated(events):
    return tuple(event for event in events if event["ts"] is not None)


# Events ---------------------------------------------------------------------------------------------------------------


@given(event_streams().map(dated), st.data())
def test_H9_any_order_and_batching_of_the_same_events_gives_the_same_versions(events, data):
    one, other = data.draw(batchings(events)), data.draw(batchings(events))
    assert changed(HISTORY, *one).versions() == changed(HISTORY, *other).versions()
    assert changed(TYPE_1, *one).live() == changed(TYPE_1, *other).live()


@given(event_streams().map(dated), st.data())
def test_H9_versions_are_the_events_that_are_no_deletes(events, data):
    versions = changed(HISTORY, *data.draw(batchings(events))).versions()
    told = {(event["key"], event["ts"], event["value"]) for event in events if event["op"] != "D"}
    assert {(row["key"], row["validFrom"], row["value"]) for row in versions} == told
    ends = {(event["key"], event["ts"]) for event in events}
    assert {(row["key"], row["validTo"]) for row in versions if not row["isCurrent"]} <= ends


@given(event_streams().map(dated), st.booleans(), st.data())
def test_H1_current_rows_are_those_of_a_table_without_history(events, nulls, data):
    batches = data.draw(batchings(events))
    both = [changed(definition, *batches, ignoreNullUpdates=nulls) for definition in (HISTORY, TYPE_1)]
    assert both[0].live() == both[1].live()


@given(event_streams(min_size=1).map(dated), st.data())
def test_H9_a_batch_with_truncates_is_as_its_events_one_by_one(events, data):
    ops = st.sampled_from(["T", "keep", "keep", "keep"])
    drawn = [event if (op := data.draw(ops)) == "keep" else {**event, "op": op} for event in events]
    truncates = {event["ts"] for event in drawn if event["op"] == "T"}
    batch = [event for event in drawn if event["op"] == "T" or event["ts"] not in truncates]
    one_by_one = [[event] for event in sorted(batch, key=lambda event: event["ts"])]
    together, apart = (changed(TYPE_1, *b, applyAsTruncates=is_truncate) for b in ([batch], one_by_one))
    assert together.live() == apart.live()


@given(event_streams(min_size=1).map(dated), st.data())
def test_T1_any_order_and_batching_of_events_and_truncates_gives_the_same_rows(events, data):
    truncates = data.draw(st.sets(st.sampled_from(sorted({1, *(event["ts"] for event in events)})), max_size=3))
    kept = [event for event in events if event["ts"] not in truncates]
    stream = (*kept, *({"key": None, "ts": ts, "value": None, "op": "T"} for ts in truncates))
    orders = (data.draw(batchings(stream)), [sorted(stream, key=lambda event: event["ts"])])
    past = [changed(HISTORY, *batches, applyAsTruncates=is_truncate) for batches in orders]
    assert past[0].versions() == past[1].versions()
    one, other = (changed(TYPE_1, *batches, applyAsTruncates=is_truncate) for batches in orders)
    assert one.live() == other.live() == past[0].live()
    last = max(truncates, default=None)
    assert all(last is None or row["ts"] > last for row in one.live())


@given(event_streams(min_size=1).map(dated), st.data())
def test_T1_U1_one_batch_with_truncates_is_filled_as_its_events_one_by_one(events, data):
    truncates = data.draw(st.sets(st.sampled_from(sorted({1, *(event["ts"] for event in events)})), max_size=2))
    kept = [event for event in events if event["ts"] not in truncates]
    stream = (*kept, *({"key": None, "ts": ts, "value": None, "op": "T"} for ts in truncates))
    one_by_one = [[event] for event in sorted(stream, key=lambda event: event["ts"])]
    options = {"ignoreNullUpdates": True, "applyAsTruncates": is_truncate}
    together, apart = (changed(HISTORY, *batches, **options) for batches in ([stream], one_by_one))
    assert together.versions() == apart.versions()


@given(event_streams().map(dated))
def test_U1_one_batch_is_filled_as_its_events_one_by_one(events):
    one_by_one = [[event] for event in sorted(events, key=lambda event: event["ts"])]
    together, apart = (changed(HISTORY, *b, ignoreNullUpdates=True) for b in ([events], one_by_one))
    assert together.versions() == apart.versions()


def event(id=1, ts=1, v="a", op="I"):
    return {"id": id, "ts": ts, "v": v, "op": op}


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (event(), {"columns": ["w"]}),
        (event(), {"ignoreNullUpdates": ["w"]}),
        (event(), {"sequenceBy": ["ts", "id"]}),
        (event(), {"sequenceBy": "when"}),
        (event(), {"applyAsDeletes": "op = 'D'"}),
        ({"id": 1, "v": "a"}, {}),
        ({"id": 1, "ts": 1}, {}),
        ({"ts": 1, "v": "a"}, {}),
    ],
)
def test_H9_events_that_do_not_go_with_the_table_are_refused(source, options):
    with pytest.raises(InvalidMergeError):
        ModelTable(ONE).applyChanges([source], **options)


def test_H9_columns_that_are_not_nullable_cannot_be_left_out():
    fields = [Field("id", "integer"), Field("ts", "integer"), Field("v", "string", nullable=False)]
    table = ModelTable(TableDefinition.of(fields, "id", "ts", history=True))
    with pytest.raises(InvalidMergeError):
        table.applyChanges([event()], exceptColumns="v")
    table.applyChanges([event(ts=2, v=None, op="D")], applyAsDeletes=is_delete)
    assert table.version == 1


def test_H9_columns_that_only_the_source_has_are_ignored_and_may_be_excepted():
    table = ModelTable(ONE)
    assert table.applyChanges([event()], exceptColumns="op").rowsInserted == 1
    assert table.live() == [{"id": 1, "ts": 1, "v": "a", "deleted": False}]


def test_H9_predicates_that_are_null_are_not_true():
    table = ModelTable(ONE)
    table.applyChanges([event(op=None)], applyAsDeletes=lambda row: None)
    assert len(table.live()) == 1


def test_H9_a_row_that_is_a_tombstone_is_a_delete():
    table = ModelTable(ONE)
    table.applyChanges([{**event(), "deleted": False}, {**event(ts=2), "deleted": True}])
    assert [row["validTo"] for row in table.versions()] == [2]


def test_H9_a_sequence_is_stored_as_its_column_says():
    table = ModelTable(ONE)
    table.applyChanges([event(ts="7")], sequenceBy=lambda row: row["ts"])
    assert table.versions()[0]["validFrom"] == 7
    with pytest.raises(SchemaMismatchError):
        table.applyChanges([event(ts="soon")])


def test_H9_a_delete_without_a_key_writes_nothing():
    table = ModelTable(ONE)
    assert table.applyChanges([event(id=None, op="D")], applyAsDeletes=is_delete).rowsAppended == 0
    with pytest.raises(NullKeyError):
        table.applyChanges([event(id=None, op="D", ts=None)], applyAsDeletes=is_delete)


def test_H9_without_a_watermark_a_truncate_deletes_all():
    table = ModelTable(TableDefinition.of([Field("id", "integer"), Field("v", "string")], "id"))
    table.applyChanges([{"id": 1, "v": "a", "op": "I"}])
    table.applyChanges([{"id": 2, "v": "b", "op": "I"}, {"id": 0, "v": None, "op": "T"}], applyAsTruncates=is_truncate)
    assert table.live() == []
    table.applyChanges([{"id": 2, "v": "c", "op": "I"}], applyAsTruncates=is_truncate)
    assert table.live() == [{"id": 2, "v": "c"}]


def test_H9_of_two_conditions_the_one_for_truncates_is_asked_first():
    table = changed(TYPE_1, [{"key": 1, "ts": 1, "value": "a", "op": "I"}])
    table.applyChanges([{"key": 7, "ts": 2, "value": None, "op": "T"}], applyAsDeletes=True, applyAsTruncates=True)
    assert table.live() == []
    assert table.latest(7) is None


def test_H9_an_empty_source_commits_nothing():
    table = ModelTable(ONE)
    assert table.applyChanges([]).skipped == "the source is empty"
    assert table.version == 0


def test_H9_a_delete_may_lack_what_a_tombstone_does_not_hold():
    table = ModelTable(PEOPLE)
    table.applyChanges([{"id": 1, "ts": 5, "op": "D"}], applyAsDeletes=is_delete, exceptColumns=["city", "phone"])
    assert table.latest(1)["deleted"] is True


# Extracts -------------------------------------------------------------------------------------------------------------

ROWS = st.dictionaries(st.integers(1, 3), st.sampled_from(["a", "b", None]), min_size=1)
TAKEN = st.dictionaries(st.integers(0, 9), ROWS, max_size=5)


def extracted(definition, taken):
    table = ModelTable(definition)
    for at, rows in taken:
        table.snapshot([{"key": key, "value": value} for key, value in rows.items()], at)
    return table


@given(TAKEN, st.data())
def test_H11_any_order_of_the_same_snapshots_gives_what_each_of_them_says(taken, data):
    table = extracted(HISTORY, data.draw(st.permutations([*taken.items()])))
    for moment in range(-1, 11):
        before = [at for at in taken if at <= moment]
        held = taken[max(before)] if before else {}
        assert {row["key"]: row["value"] for row in table.asOf(moment)} == held
    assert sorted(table.snapshots.values()) == sorted(taken)


@given(TAKEN, st.data())
def test_H11_any_order_of_the_same_snapshots_gives_the_same_versions_equal_rows_as_one(taken, data):
    in_order = extracted(HISTORY, sorted(taken.items()))
    table = extracted(HISTORY, data.draw(st.permutations([*taken.items()])))
    options = {"track": "value", "validFrom": "ts"}
    assert table.versions(**options) == in_order.versions(**options) == in_order.versions(validFrom="ts")


@given(st.lists(st.tuples(st.integers(0, 4), ROWS), max_size=6))
def test_H11_a_moment_that_is_taken_again_is_corrected(taken):
    table, last = extracted(HISTORY, taken), dict(taken)
    options = {"track": "value", "validFrom": "ts"}
    assert table.versions(**options) == extracted(HISTORY, last.items()).versions(**options)


@given(TAKEN)
def test_H11_without_history_snapshots_in_order_leave_the_last_one(taken):
    table = extracted(TYPE_1, sorted(taken.items()))
    assert {row["key"]: row["value"] for row in table.live()} == (taken[max(taken)] if taken else {})


def test_H11_a_snapshot_that_changes_nothing_is_kept_once():
    table = ModelTable(ONE)
    for at in (10, 20, 20, 10):
        table.snapshot([{"id": 1, "v": "a"}], at)
    assert (table.version, table.snapshots, table.batches[1]) == (2, {1: 10, 2: 20}, ())
    assert table.at(1).snapshots == {1: 10}


def test_H11_the_sources_own_watermark_does_not_count_and_other_columns_are_ignored():
    table = ModelTable(ONE)
    table.snapshot([{"id": 1, "v": "a", "ts": 99, "w": 1}], 10)
    table.snapshot([{"id": 1, "v": "a", "ts": 100, "w": 2}], 20)
    assert [row["ts"] for row in table.versions()] == [10]


def test_H11_tombstones_of_a_snapshot_are_keys_that_have_gone():
    for missing in ("delete", "keep"):
        table = ModelTable(ONE)
        table.snapshot([{"id": 1, "v": "a"}], 10)
        table.snapshot([{"id": 1, "v": "a", "deleted": True}, {"id": 2, "v": None, "deleted": True}], 20, missing)
        assert [(row["id"], row["validTo"]) for row in table.versions()] == [(1, 20)]
        assert len(table.batches[1]) == 1


@pytest.mark.parametrize(
    ("row", "at"),
    [({"id": 1, "v": "a"}, None), ({"id": 1}, 10), ({"v": "a"}, 10)],
)
def test_H11_an_extract_that_does_not_go_with_the_table_is_refused(row, at):
    with pytest.raises(InvalidMergeError):
        ModelTable(ONE).snapshot([row], at)


def test_H11_a_transaction_that_is_committed_takes_no_snapshot():
    for definition in (ONE, ORDINARY):
        table = ModelTable(definition)
        for at in (10, 20):
            table.snapshot([{"id": 1, "v": "a"}], at, transaction=("load", 1))
        assert (table.version, table.snapshots) == (1, {1: 10})
        table.snapshot([{"id": 1, "v": "a"}], 30, transaction=("load", 2))
        assert (table.version, table.snapshots) == (2, {1: 10, 2: 30})


# Dimensions with intervals --------------------------------------------------------------------------------------------

DIMENSION = [Field(*column.split(":")) for column in ("id:integer", "city:string", "since:integer", "until:integer")]
NAMES = {"validFrom": "since", "validTo": "until"}


def interval(id, city, since, until):
    return {"id": id, "city": city, "since": since, "until": until}


def of_intervals(*rows, **options):
    return ModelTable.fromIntervals(DIMENSION, [interval(*row) for row in rows], "id", "since", "until", **options)


def intervals_of(table, **options):
    return [(r["id"], r["city"], r["since"], r["until"]) for r in table.versions(**NAMES, **options)]


def test_H12_versions_of_the_result_are_the_original():
    rows = [(1, "Rome", None, 10), (1, "Oslo", 10, 20), (1, "Oslo", 30, None), (2, "Bari", 5, 7), (3, None, 5, None)]
    table = of_intervals(*reversed(rows))
    assert intervals_of(table) == rows
    assert [row["id"] for row in table.live()] == [1, 3]
    assert table.definition.watermarkKey == ("since",)
    assert (table.definition.names, table.definition.history) == (("id", "city", "since"), True)
    assert table.version == 1


def test_H12_an_open_end_may_have_a_value():
    rows = [(1, "Rome", 0, 10), (1, "Oslo", 10, 9999)]
    table = of_intervals(*rows, openEnd=9999)
    assert intervals_of(table, openEnd=9999) == rows
    assert intervals_of(of_intervals((1, "Oslo", 10, None), openEnd=9999)) == [(1, "Oslo", 10, None)]


def test_H12_inclusive_ends_become_exclusive():
    table = of_intervals((1, "Rome", 0, 9), (1, "Oslo", 10, 19), (2, "Bari", 5, 5), endInclusive=True)
    assert intervals_of(table) == [(1, "Rome", 0, 10), (1, "Oslo", 10, 20), (2, "Bari", 5, 6)]


@pytest.mark.parametrize(
    ("type", "last", "end"),
    [
        ("date", dt.date(2024, 2, 29), dt.date(2024, 3, 1)),
        ("timestamp", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
        ("decimal(5,2)", Decimal("1.50"), Decimal("1.51")),
        ("byte", 7, 8),
    ],
)
def test_H12_what_comes_next_depends_on_the_type(type, last, end):
    fields = [Field("id", "integer"), Field("since", type), Field("until", type)]
    row = {"id": 1, "since": last, "until": last}
    table = ModelTable.fromIntervals(fields, [row], "id", "since", "until", endInclusive=True)
    assert [(r["since"], r["until"]) for r in table.versions(**NAMES)] == [(last, end)]


@pytest.mark.parametrize(
    ("kind", "end"), [("byte", 127), ("decimal(5,2)", Decimal("999.99")), ("decimal(38,10)", Decimal(1))]
)
def test_H12_an_inclusive_end_without_a_next_value_is_refused(kind, end):
    fields = [Field("id", "integer"), Field("since", kind), Field("until", kind)]
    with pytest.raises(InvalidMergeError):
        ModelTable.fromIntervals(
            fields, [{"id": 1, "since": None, "until": end}], "id", "since", "until", endInclusive=True
        )


@pytest.mark.parametrize(
    ("type", "begin", "end"),
    [
        ("date", dt.date(2020, 1, 1), dt.datetime(2020, 2, 1, 10)),
        ("integer", 1, 2.5),
        ("decimal(3,1)", Decimal("1.0"), Decimal("2.55")),
    ],
)
def test_H12_an_end_that_the_type_of_the_begin_would_cut_is_refused(type, begin, end):
    fields = [Field("id", "integer"), Field("since", type), Field("until", type)]
    with pytest.raises(InvalidMergeError):
        ModelTable.fromIntervals(fields, [{"id": 1, "since": begin, "until": end}], "id", "since", "until")


def test_H12_text_has_nothing_next():
    fields = [Field("id", "integer"), Field("since", "string"), Field("until", "string")]
    row = {"id": 1, "since": "a", "until": "b"}
    with pytest.raises(InvalidMergeError):
        ModelTable.fromIntervals(fields, [row], "id", "since", "until", endInclusive=True)
    assert ModelTable.fromIntervals(fields, [row], "id", "since", "until").version == 1


def test_H12_empty_intervals_are_left_out_and_counted():
    rows = [
        interval(1, "Rome", 0, 10),
        interval(1, "Bari", 10, 10),
        interval(1, "Oslo", 10, None),
        interval(2, "x", 3, 3),
    ]
    _, stored, empty = read_intervals(DIMENSION, rows, "id", "since", "until")
    assert (len(stored), empty) == (2, 2)
    assert of_intervals((2, "x", 3, 3)).version == 0


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "Rome", 0, 10), (1, "Oslo", 9, None)],
        [(1, "Rome", 0, None), (1, "Oslo", 9, None)],
        [(1, "Rome", 0, 10), (1, "Oslo", 0, 10)],
        [(1, "Rome", 0, 20), (1, "Bari", 5, 10), (1, "Oslo", 20, None)],
        [(1, "Rome", None, 10), (1, "Oslo", None, None)],
    ],
)
def test_H12_overlaps_are_refused_with_their_keys(rows):
    with pytest.raises(DuplicateKeyError) as error:
        of_intervals((7, "x", 0, 10), (7, "y", 10, None), *rows)
    assert error.value.keys == [(1,)]


def test_H12_other_rows_that_are_refused():
    with pytest.raises(InvalidMergeError):
        of_intervals((1, "Rome", 10, 9))
    with pytest.raises(NullKeyError):
        of_intervals((None, "Rome", 10, 11))


@given(event_streams().map(dated))
def test_H12_a_table_comes_back_from_its_versions(events):
    table = changed(HISTORY, events)
    names = {"validFrom": "ts", "validTo": "until"}
    versions = [{k: v for k, v in row.items() if k != "isCurrent"} for row in table.versions(**names)]
    again = ModelTable.fromIntervals([*FIELDS, Field("until", "integer")], versions, "key", "ts", "until")
    assert again.versions(**names) == table.versions(**names)
