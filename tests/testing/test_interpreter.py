"""The reference interpreter against hand-written examples, one per rule, and against its own laws."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trinitymerge.errors import (
    AmbiguousMergeError,
    DuplicateKeyError,
    InvalidMergeError,
    NullKeyError,
    SchemaMismatchError,
    StaleRowsError,
    TooManyDeletesError,
    TrinityMergeError,
)
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Delete,
    Insert,
    InsertHistory,
    OtherTable,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import (
    Expr,
    KeyEquality,
    ModelMerge,
    ModelTable,
    assertClauseOrderIrrelevant,
    assertMerge,
    assertRows,
    clauseOrderDependence,
)
from trinitymerge.testing.model import expressions
from trinitymerge.testing.model.values import order_key, store
from trinitymerge.testing.strategies import batchings, event_streams, merge_cases


def table(*rows, watermark="ts", tombstone="deleted", value="integer", **options):
    """A table (id, ts, v, deleted) with one batch per argument; a batch is a row or a list of rows."""
    fields = [Field("id", "integer"), Field("ts", "integer"), Field("v", value), Field("deleted", "boolean")]
    definition = TableDefinition.of(fields, "id", watermark, tombstone, **options)
    model = ModelTable(definition)
    for batch in rows:
        model.commit([row(*r) for r in (batch if isinstance(batch, list) else [batch])])
    return model


def row(id, ts=None, v=None, deleted=False):
    return {"id": id, "ts": ts, "v": v, "deleted": deleted}


def src(id, ts=None, v=None, op=None):
    return {"id": id, "ts": ts, "v": v, "op": op}


def seen(model):
    return [(r["id"], r["ts"], r["v"]) for r in model.live()]


def counts(result):
    return (result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale)


def matched(*actions, when=None):
    return WhenMatched(when, actions)


def not_matched(action, when=None):
    return WhenNotMatched(when, [action])


def only_on_target(*actions, when=None):
    return WhenOnlyOnTarget(when, actions)


def update(**values):
    return Update(Assignments(values))


def insert(**values):
    return Insert(Assignments(values))


def of_source(name):
    return lambda t, s: s[name]


IS_DELETE = Expr("B.op <=> 'D'", lambda t, s: s["op"] == "D", reads_target=False)
NOT_DELETE = Expr("B.op IS DISTINCT FROM 'D'", lambda t, s: s["op"] != "D", reads_target=False)
UPSERT = [matched(Update(All())), not_matched(Insert(All()))]
CDC = [matched(Delete(), when=IS_DELETE), matched(Update(All())), not_matched(Insert(All()), when=NOT_DELETE)]
INSERT_AS_IS = insert(id=of_source("id"), ts=of_source("ts"), v=of_source("v"))


def always(t, s):
    return True


# Tables and reading -----------------------------------------------------------------------------------------


def test_S3_watermarks_compare_column_by_column_and_null_is_smallest():
    fields = [Field(name, "integer") for name in ("id", "day", "seq")]
    model = ModelTable(TableDefinition.of(fields, "id", ["day", "seq"]))
    model.commit([{"id": 1, "day": 2, "seq": 1}])
    model.commit([{"id": 1, "day": 1, "seq": 9}])
    model.commit([{"id": 1, "day": 2, "seq": None}])
    model.commit([{"id": 1, "day": None, "seq": 10}])
    assert model.live() == [{"id": 1, "day": 2, "seq": 1}]


def test_S3_values_are_ordered_as_in_Spark():
    values = [None, float("-inf"), -0.0, 1.5, float("inf"), float("nan")]
    assert sorted({*values}, key=order_key) == pytest.approx(values, nan_ok=True)
    assert order_key(-0.0) == order_key(0.0)
    assert order_key(float("nan")) == order_key(float("nan"))
    assert sorted(["\U0001f600", "\uffff", "a", "Z"], key=order_key) == ["Z", "a", "\uffff", "\U0001f600"]


@pytest.mark.parametrize(
    ("type", "string_value", "dead", "alive"),
    [
        ("boolean", None, [True], [False, None]),
        ("string", "gone", ["gone"], ["", "Gone", None]),
        ("string", None, ["", "x"], [None]),
        ("long", None, [0, 1], [None]),
        ("timestamp", None, [dt.datetime(1970, 1, 1)], [None]),
    ],
)
def test_S4_three_forms_of_tombstones(type, string_value, dead, alive):
    fields = [Field("id", "integer"), Field("gone", type)]
    definition = TableDefinition.of(fields, "id", None, "gone", string_value)
    for value in dead + alive:
        model = ModelTable(definition)
        model.commit([{"id": 1, "gone": value}])
        assert bool(model.live()) == (value in alive)


def test_S5_hidden_tombstones_do_not_show():
    model = ModelTable(TableDefinition.of([Field("id", "integer")], "id"))
    model.commit([{"id": 1}])
    model.merge([{"id": 1}], [matched(Delete())])
    assert model.live() == []
    assert model.latest(1) == {"id": 1, "_tm_deleted": True}
    model.merge([{"id": 1}], UPSERT)
    assert model.live() == [{"id": 1}]


def test_S6_later_commits_decide_between_equal_watermarks():
    assert seen(table((1, 5, 10), (1, 5, 20), (1, 4, 30))) == [(1, 5, 20)]


def test_S13_the_published_example_of_watermarks_and_tombstones():
    model = table([(1, 100), (1, 200)], (2, 100), (2, 200, None, True))
    assert seen(model) == [(1, 200, None)]


@pytest.mark.parametrize("order", list(itertools.permutations([(1, 3, 30), (1, 1, 10), (1, 2, 20, True)])))
def test_S13_resolution_ignores_the_order_of_batches(order):
    assert seen(table(*order)) == [(1, 3, 30)]


def test_S15_foreign_ties_are_decided_by_tombstone_then_by_larger_columns():
    assert seen(table([(1, 5, 10), (1, 5, 30), (1, 5, 20)])) == [(1, 5, 30)]
    assert seen(table([(1, 5, 10, True), (1, 5, 30)])) == []


# Deletes and watermarks of written rows ---------------------------------------------------------------------


def test_S9_a_tombstone_holds_key_watermark_and_tombstone_only_however_it_comes_about():
    model = table((1, 1, 10), (2, 1, 20), (3, 1, 30))
    result = model.merge(
        [src(1, 2, 11, "D"), src(2, 2, 21, "U"), src(3, 2, 31, "M"), src(4, 2, 41, "I")],
        [
            matched(Delete(), when=lambda _, s: s["op"] == "D"),
            matched(update(v=of_source("v"), deleted=True), when=lambda _, s: s["op"] == "U"),
            matched(update(id=7)),
            not_matched(insert(id=of_source("id"), v=of_source("v"), deleted=True)),
        ],
    )
    dead = [r for r in result.appended if r["deleted"]]
    assert dead == [row(1, 2, None, True), row(2, 2, None, True), row(3, 2, None, True), row(4, 2, None, True)]
    assert counts(result) == (0, 1, 2, 0)


def test_S9_S34_values_that_a_tombstone_does_not_hold_are_not_judged():
    fields = [Field("id", "integer"), Field("v", "byte", nullable=False), Field("gone", "string")]
    model = ModelTable(TableDefinition.of(fields, "id", None, "gone", "D"))
    upsert = [matched(Update(All())), not_matched(Insert(All()))]
    model.merge([{"id": 1, "v": None, "gone": "D"}, {"id": 2, "v": 1000, "gone": "D"}], upsert)
    assert [model.latest(1), model.latest(2)] == [{"id": n, "v": 0, "gone": "D"} for n in (1, 2)]
    for wrong in ({"id": 3, "v": None, "gone": None}, {"id": 3, "v": 1000, "gone": "E"}):
        with pytest.raises(SchemaMismatchError):
            model.merge([wrong], upsert)
    with pytest.raises(NullKeyError):
        model.merge([{"id": None, "v": 1, "gone": "D"}], upsert)


def test_S9_S12_tombstones_of_one_key_never_disagree():
    upsert = [matched(Update(All())), not_matched(Insert(All()))]
    source = [{**src(1, 5, 1), "deleted": True}, {**src(1, 5, 2), "deleted": True}]
    assert table((1, 1, 10)).merge(source, upsert).appended == (row(1, 5, None, True),) * 2


@pytest.mark.parametrize(
    ("type", "string_value", "written"),
    [
        ("boolean", None, True),
        ("string", "gone", "gone"),
        ("string", None, "true"),
        ("varchar(2)", None, "tr"),
        ("short", None, 1),
        ("decimal(4,2)", None, Decimal("1.00")),
        ("decimal(2,2)", None, Decimal("0.00")),
        ("date", None, dt.date(2000, 1, 1)),
        ("timestamp", None, dt.datetime(2000, 1, 1)),
        ("binary", None, b""),
    ],
)
def test_S9_what_a_tombstone_column_holds(type, string_value, written):
    fields = [Field("id", "integer"), Field("gone", type)]
    model = ModelTable(TableDefinition.of(fields, "id", None, "gone", string_value))
    model.commit([{"id": 1}])
    model.merge([{"id": 1}], [matched(Delete())])
    assert model.latest(1) == {"id": 1, "gone": written}
    assert model.live() == []


def test_S9_an_absent_delete_fills_not_nullable_columns_with_zero():
    fields = [Field("id", "integer"), Field("v", "string", nullable=False), Field("w", "long")]
    model = ModelTable(TableDefinition.of(fields, "id"))
    result = model.merge([{"id": 1}], [matched(Delete())])
    assert result.appended == ({"id": 1, "v": "", "w": None, "_tm_deleted": True},)


def test_S10_1_the_map_decides_the_watermark():
    model = table((1, 1, 10))
    model.merge([src(1, 5, 20)], [matched(update(ts=7))])
    assert seen(model) == [(1, 7, 10)]


def test_S10_2_otherwise_the_source_decides_even_with_null():
    model = table((1, None, 10))
    model.merge([src(1, 5)], [matched(update(v=11))])
    assert seen(model) == [(1, 5, 11)]
    assert counts(model.merge([src(1, None)], [matched(update(v=12))])) == (0, 0, 0, 1)


def test_S10_2_holds_for_inserts_under_matched_clauses_and_for_excepted_columns():
    model = table((1, 1, 10))
    model.merge([src(1, 5)], [matched(insert(id=2))])
    assert seen(model) == [(1, 1, 10), (2, 5, None)]
    model.merge([src(1, 6, 20)], [matched(Update(All(["ts"])))])
    assert seen(model) == [(1, 6, 20), (2, 5, None)]


def test_S10_3_otherwise_the_watermark_of_what_is_replaced():
    model = table((1, 5, 10), (2, 7, 10, True))
    model.merge([{"id": 1, "v": 11}, {"id": 2, "v": 21}], UPSERT)
    assert seen(model) == [(1, 5, 11), (2, 7, 21)]


def test_S10_4_otherwise_null():
    model = table()
    model.merge([{"id": 1, "v": 11}], UPSERT)
    assert seen(model) == [(1, None, 11)]


def test_S10_target_only_clauses_have_no_source_watermark():
    model = table((1, 5, 10))
    model.merge([src(2, 9)], [only_on_target(update(v=11))])
    assert seen(model) == [(1, 5, 11)]


# Stale rows -------------------------------------------------------------------------------------------------


def test_S11_skip_appends_stale_rows_and_counts_them_apart():
    model = table((1, 5, 10), (2, 5, 10), (3, 5, None, True))
    result = model.merge([src(1, 4, 11), src(2, 4, op="D"), src(3, 4, 31)], CDC)
    assert seen(model) == [(1, 5, 10), (2, 5, 10)]
    assert counts(result) == (0, 0, 0, 3)
    assert result.rowsAppended == 3


def test_S11_error_refuses_them():
    model = table((1, 5, 10))
    with pytest.raises(StaleRowsError):
        model.merge([src(1, 4, 11), src(2, 4, 11)], CDC, onStale="error")
    assert seen(model) == [(1, 5, 10)]


def test_S11_force_gives_them_the_watermark_of_what_they_replace():
    model = table((1, 5, 10), (2, 5, 10), (3, 5, None, True))
    result = model.merge([src(1, 4, 11), src(2, 4, op="D"), src(3, 4, 31)], CDC, onStale="force")
    assert seen(model) == [(1, 5, 11), (3, 5, 31)]
    assert counts(result) == (1, 1, 1, 0)


def test_S11_absent_deletes_are_never_stale():
    model = table((1, 5, None, True))
    result = model.merge([src(1, 4, op="D")], CDC, onStale="error")
    assert (counts(result), result.rowsAppended) == ((0, 0, 0, 0), 1)


def test_S11_equal_watermarks_are_not_stale():
    model = table((1, 5, 10))
    assert counts(model.merge([src(1, 5, 11)], CDC, onStale="error")) == (0, 1, 0, 0)


# Ambiguity --------------------------------------------------------------------------------------------------


def test_S12_the_freshest_row_of_a_batch_wins():
    model = table((1, 1, 10))
    result = model.merge([src(1, 2, 20), src(1, 4, op="D"), src(1, 3, 30), src(2, 2, 5), src(2, 1, 4)], CDC)
    assert seen(model) == [(2, 2, 5)]
    assert counts(result) == (1, 0, 1, 0)
    assert (result.rowsAppended, result.rowsSource, result.perClause) == (5, 5, (1, 2, 2))


def test_S12_different_rows_with_one_key_and_watermark_are_refused():
    model = table((1, 1, 10))
    for second in (src(1, 2, 21), src(1, 2, op="D")):
        with pytest.raises(AmbiguousMergeError):
            model.merge([src(1, 2, 20), second], CDC)
    with pytest.raises(AmbiguousMergeError):
        model.merge([src(1, None, 20), src(1, None, 21)], CDC)
    assert seen(model) == [(1, 1, 10)]


def test_S12_equal_rows_and_tombstones_are_not_ambiguous():
    model = table((1, 1, 10))
    model.merge([src(1, 2, 20), src(1, 2, 20), src(2, 2, 1, "D"), src(2, 2, 2, "D")], CDC)
    assert seen(model) == [(1, 2, 20)]


def test_S12_stale_rows_can_be_ambiguous_too():
    with pytest.raises(AmbiguousMergeError):
        table((1, 5, 10)).merge([src(1, 2, 20), src(1, 2, 21)], CDC)


def test_S12_without_a_watermark_key_it_is_the_cardinality_rule():
    model = table((1, 1, 10), watermark=None)
    with pytest.raises(AmbiguousMergeError):
        model.merge([src(1, 2, 20), src(1, 3, 30)], CDC)


# Clauses ----------------------------------------------------------------------------------------------------


def test_S17_the_first_true_clause_applies():
    model = table((1, 1, 10), (2, 1, 20), (3, 1, 30))
    clauses = [
        matched(update(v=100), when=lambda t, s: t["v"] >= 20),
        matched(Delete(), when=lambda t, s: t["v"] >= 30),
    ]
    result = model.merge([src(1, 2), src(2, 2), src(3, 2)], clauses)
    assert seen(model) == [(1, 1, 10), (2, 2, 100), (3, 2, 100)]
    assert result.perClause == (2, 0)


def test_S18_source_rows_without_a_pair_are_inserted():
    model = table((1, 1, 10))
    clauses = [
        not_matched(insert(id=of_source("id"), v=1), when=lambda t, s: s["v"] == 1),
        not_matched(insert(id=of_source("id"), v=2)),
    ]
    model.merge([src(1, 2, 1), src(2, 2, 1), src(3, 2, None)], clauses)
    assert seen(model) == [(1, 1, 10), (2, 2, 1), (3, 2, 2)]


def test_S18_a_delete_of_an_absent_key_is_recorded_so_that_events_may_come_late():
    model = table()
    result = model.merge([src(1, 7, op="D")], CDC)
    assert (counts(result), result.rowsAppended, result.perClause) == ((0, 0, 0, 0), 1, (0, 0, 0))
    assert counts(model.merge([src(1, 5, 50)], CDC)) == (0, 0, 0, 1)
    assert seen(model) == []


def test_S18_an_insert_and_its_delete_in_one_batch():
    model = table()
    result = model.merge([src(1, 7, op="D"), src(1, 5, 50)], CDC)
    assert seen(model) == []
    assert (counts(result), result.rowsAppended) == ((0, 0, 0, 0), 2)


def test_S18_absent_deletes_need_exact_key_equality():
    on_key = lambda t, s: t["id"] == s["id"]  # noqa: E731
    assert table().merge([src(1, 7, op="D")], CDC, on_key).rowsAppended == 0


@pytest.mark.parametrize(
    ("first", "appended"),
    [
        (matched(Delete(), when=IS_DELETE), 1),
        (matched(Delete(), when=lambda _, s: s["op"] == "D"), 1),
        (matched(Delete(), when=lambda t, s: s["op"] == "D"), 0),
        (matched(Delete(), when=None), 1),
        (matched(Delete(), insert(id=9), when=IS_DELETE), 0),
        (matched(update(v=1), when=IS_DELETE), 0),
        (matched(update(v=1), when=NOT_DELETE), 1),
        (matched(update(v=1), when=lambda t, s: t["v"] == 3), 0),
    ],
)
def test_S18_which_clause_decides_about_an_absent_delete(first, appended):
    clauses = [first] if first.condition is None else [first, matched(Delete())]
    assert table().merge([src(1, 7, op="D")], clauses).rowsAppended == appended


def test_S19_rows_only_on_target():
    model = table((1, 1, 10), (2, 1, 20), (3, 1, 30))
    clauses = [only_on_target(Delete(), when=lambda t, s: t["v"] > 20), only_on_target(update(v=0))]
    assert counts(model.merge([src(1, 2)], clauses)) == (0, 1, 1, 0)
    assert seen(model) == [(1, 1, 10), (2, 1, 0)]


def test_S20_null_is_not_true():
    model = table((1, 1, 10))
    result = model.merge([src(1, 2, 20), src(None, 2, 20)], [matched(Delete(), when=lambda t, s: None)])
    assert (seen(model), result.perClause) == ([(1, 1, 10)], (0,))
    model.merge([src(1, 2, 20)], [only_on_target(Delete())], lambda t, s: None)
    assert seen(model) == []


@pytest.mark.parametrize(
    "clauses",
    [
        [],
        [matched()],
        [matched(Delete(), update(v=1))],
        [not_matched(Delete())],
        [not_matched(update(v=1))],
        [WhenNotMatched(None, [INSERT_AS_IS, INSERT_AS_IS])],
        [matched(Delete()), matched(update(v=1))],
        [matched(update(x=1))],
        [matched(update(v="B.v"))],
        [not_matched(insert(v=1))],
        [not_matched(Insert(All(["id"])))],
        [only_on_target(Update(All()))],
    ],
)
def test_S21_S22_S23_S28_merges_that_no_data_could_make_right(clauses):
    with pytest.raises(InvalidMergeError):
        table((1, 1, 10)).merge([src(1, 2)], clauses)


def test_S22_updates_keep_what_they_do_not_mention():
    model = table((1, 1, 10))
    model.merge([src(1, 2, 20)], [matched(Update(Assignments({"TARGET.V": lambda t, s: t["v"] + s["v"]})))])
    assert seen(model) == [(1, 2, 30)]


def test_S22_update_all_needs_every_column_but_watermark_and_tombstone():
    model = table((1, 1, 10))
    model.merge([{"ID": 1, "V": 11}], [matched(Update(All()))])
    assert seen(model) == [(1, 1, 11)]
    with pytest.raises(InvalidMergeError):
        model.merge([{"id": 1}], [matched(Update(All()))])
    model.merge([{"id": 1}], [matched(Update(All(["v"])))])
    assert seen(model) == [(1, 1, 11)]


def test_S22_tombstone_columns_in_update_all_and_in_maps():
    model = table((1, 1, 10))
    model.merge([{**src(1, 2, 11), "deleted": True}], [matched(Update(All()))])
    assert seen(model) == []
    model = table((1, 1, 10))
    result = model.merge([src(1, 2)], [matched(update(deleted=True))])
    assert (seen(model), counts(result)) == ([], (0, 0, 1, 0))


def test_S23_inserts_leave_unmentioned_columns_null():
    model = table()
    result = model.merge([src(1, 2, 11)], [not_matched(insert(id=of_source("id")))])
    assert result.appended == ({"id": 1, "ts": 2, "v": None, "deleted": None},)
    result = model.merge([src(2, 2, 11)], [not_matched(Insert(All(["v"])))])
    assert result.appended == ({"id": 2, "ts": 2, "v": None, "deleted": False},)


def test_S23_a_watermark_that_is_not_nullable_may_come_from_the_source():
    fields = [Field("id", "integer"), Field("ts", "integer", nullable=False)]
    model = ModelTable(TableDefinition.of(fields, "id", "ts"))
    model.merge([{"id": 1, "ts": 3}], [not_matched(insert(id=of_source("id")))])
    assert model.live() == [{"id": 1, "ts": 3}]
    with pytest.raises(InvalidMergeError):
        model.merge([{"id": 2}], [not_matched(insert(id=of_source("id")))])


def test_the_CarbonData_guide_scd_type_2_shape():
    fields = [
        Field("id", "integer"),
        Field("since", "integer"),
        Field("v", "string"),
        Field("until", "integer"),
    ]
    model = ModelTable(TableDefinition.of(fields, ["id", "since"]))
    model.commit([{"id": 1, "since": 1, "v": "a"}, {"id": 2, "since": 1, "v": "b"}])
    new = {"id": of_source("id"), "since": of_source("at"), "v": of_source("v")}
    clauses = [
        matched(
            Update(Assignments({"until": of_source("at")})),
            Insert(Assignments(new)),
            when=lambda t, s: t["v"] != s["v"],
        ),
        not_matched(Insert(Assignments(new))),
        only_on_target(Delete(), when=lambda t, s: t["until"] is None),
    ]
    source = [{"id": 1, "at": 5, "v": "x"}, {"id": 3, "at": 5, "v": "y"}]
    result = model.merge(source, clauses, lambda t, s: t["id"] == s["id"] and t["until"] is None)
    assert [tuple(r.values()) for r in model.live()] == [(1, 1, "a", 5), (1, 5, "x", None), (3, 5, "y", None)]
    assert counts(result) == (2, 1, 1, 0)
    assert result.perClause == (1, 1, 1)


# A change and the inserts beside it (S21a) ------------------------------------------------------------------

CLOSED = insert(id=Expr("B.id + 100", lambda t, s: s["id"] + 100), v=Expr("A.v", lambda t, s: t["v"]))


def test_S21a_inserts_beside_a_stale_change_are_not_written():
    for change in (update(v=of_source("v")), Delete()):
        model = table((1, 10, 1))
        result = model.merge([src(1, 5, 2)], [matched(change, CLOSED, CLOSED)])
        assert (result.rowsAppended, counts(result), seen(model)) == (1, (0, 0, 0, 3), [(1, 10, 1)])


def test_S21a_a_stale_insert_leaves_the_change_standing():
    model = table((1, 10, 1), (101, 90, 9, True))
    result = model.merge([src(1, 20, 2)], [matched(update(v=of_source("v")), CLOSED)])
    assert (result.rowsAppended, counts(result), seen(model)) == (2, (0, 1, 0, 1), [(1, 20, 2)])


def test_S21a_each_pair_is_judged_on_its_own():
    model = table((1, 10, 1), (2, 10, 2))
    result = model.merge([src(1, 5, 7), src(2, 20, 7)], [matched(update(v=of_source("v")), CLOSED)])
    assert seen(model) == [(1, 10, 1), (2, 20, 7), (102, 20, 2)]
    assert counts(result) == (1, 1, 0, 2)


def test_S21a_force_writes_all_and_error_names_the_late_rows():
    clauses = [matched(update(v=of_source("v")), CLOSED)]
    model = table((1, 10, 1))
    with pytest.raises(StaleRowsError) as error:
        model.merge([src(1, 5, 2)], clauses, onStale="error")
    assert error.value.keys == [(1,)]
    result = model.merge([src(1, 5, 2)], clauses, onStale="force")
    assert (seen(model), counts(result)) == ([(1, 10, 2), (101, 5, 1)], (1, 1, 0, 0))


def test_S21a_inserts_that_are_not_written_take_no_key_and_contradict_nobody():
    at_two = insert(id=2, v=of_source("v"))
    model = table((1, 10, 1), (2, 10, 2), (3, 10, 3))
    result = model.merge([src(1, 5, 7), src(3, 5, 8)], [matched(update(v=of_source("v")), at_two)])
    assert (counts(result), seen(model)) == ((0, 0, 0, 4), [(1, 10, 1), (2, 10, 2), (3, 10, 3)])
    with pytest.raises(DuplicateKeyError):
        model.merge([src(1, 15, 7)], [matched(update(v=of_source("v")), at_two)])


def test_S21a_S24_beside_a_stale_move_nothing_is_written_and_beside_another_the_insert_takes_the_old_key():
    moving = [matched(update(id=9), insert(id=of_source("id"), v=of_source("v")))]
    model = table((1, 10, 1))
    result = model.merge([src(1, 5, 2)], moving)
    assert (result.rowsAppended, counts(result), seen(model)) == (0, (0, 0, 0, 2), [(1, 10, 1)])
    result = model.merge([src(1, 20, 2)], moving)
    assert (seen(model), counts(result)) == ([(1, 20, 2), (9, 20, 1)], (1, 1, 0, 0))


def test_S21a_protects_nothing_where_nobody_assigns_the_watermark_of_the_change():
    model = table((1, 10, 1))
    model.merge([{"id": 1, "v": 2}], [matched(update(v=of_source("v")), CLOSED)])
    assert seen(model) == [(1, 10, 2), (101, None, 1)]


# Moves and taken keys ---------------------------------------------------------------------------------------

BY_VALUE = lambda t, s: t["v"] == s["v"]  # noqa: E731
MOVE = matched(update(id=of_source("id")))


def test_S24_a_move_writes_a_tombstone_and_a_row():
    model = table((1, 1, 10))
    result = model.merge([src(2, 2, 10)], [MOVE], BY_VALUE)
    assert result.appended == (row(2, 2, 10), row(1, 2, None, True))
    assert (seen(model), counts(result)) == ([(2, 2, 10)], (0, 1, 0, 0))


def test_S24_a_swap_writes_no_tombstones():
    model = table((1, 1, 10), (2, 1, 20))
    result = model.merge([src(2, 2, 10), src(1, 2, 20)], [MOVE], BY_VALUE)
    assert (seen(model), counts(result)) == ([(1, 2, 20), (2, 2, 10)], (0, 2, 0, 0))
    assert result.rowsAppended == 2


def test_S24_assigning_the_same_key_is_an_ordinary_update():
    model = table((1, 1, 10))
    assert model.merge([src(1, 2, 10)], [MOVE], BY_VALUE).appended == (row(1, 2, 10),)


def test_S24_moves_are_all_or_nothing():
    for old in (table((1, 5, 10)), table((1, 1, 10), (2, 5, None, True))):
        before = seen(old)
        result = old.merge([src(2, 3, 10)], [MOVE], BY_VALUE)
        assert (seen(old), counts(result), result.rowsAppended) == (before, (0, 0, 0, 1), 0)
        with pytest.raises(StaleRowsError):
            old.merge([src(2, 3, 10)], [MOVE], BY_VALUE, onStale="error")
        result = old.merge([src(2, 3, 10)], [MOVE], BY_VALUE, onStale="force")
        assert (seen(old), counts(result)) == ([(2, 5, 10)], (0, 1, 0, 0))


def test_S24_a_move_inherits_the_larger_watermark_as_a_whole():
    for old in (table((1, 5, 10)), table((1, 1, 10), (2, 5, None, True))):
        old.merge([{"id": 2, "v": 10}], [MOVE], BY_VALUE)
        assert seen(old) == [(2, 5, 10)]


def test_S24_a_move_whose_old_row_would_stay_alive_is_stale():
    fields = [Field(name, "integer") for name in ("id", "day", "seq")]
    model = ModelTable(TableDefinition.of(fields, "id", ["day", "seq"]))
    model.commit([{"id": 1, "day": 1, "seq": 5}])
    model.commit([{"id": 2, "day": 2, "seq": 0, "_tm_deleted": True}])
    clauses = [matched(update(id=2))]
    result = model.merge([{"seq": 3}], clauses, always)
    assert (model.live(), result.rowsStale) == ([{"id": 1, "day": 1, "seq": 5}], 1)
    model.merge([{"seq": 3}], clauses, always, onStale="force")
    assert model.live() == [{"id": 2, "day": 2, "seq": 0}]


def test_S24_a_row_that_moves_is_changed_by_nothing_else():
    two_moves, move_and_update = [src(2, 2, 10), src(3, 3, 10)], [src(2, 2, 10), src(1, 3, 10)]
    for source in (two_moves, move_and_update):
        model = table((1, 1, 10))
        with pytest.raises(AmbiguousMergeError):
            model.merge(source, [MOVE], BY_VALUE)
    model = table((1, 4, 10))
    result = model.merge([src(2, 5, 10), src(2, 5, 10), src(3, 3, 10)], [MOVE], BY_VALUE)
    assert (seen(model), counts(result)) == ([(2, 5, 10)], (0, 1, 0, 1))


def test_S25_keys_that_are_live_and_stay_so_are_refused():
    model = table((1, 1, 10), (2, 1, 20))
    for clauses in ([MOVE], [matched(insert(id=of_source("id"), v=1))]):
        with pytest.raises(DuplicateKeyError) as error:
            model.merge([src(2, 2, 10)], clauses, BY_VALUE)
        assert error.value.keys == [(2,)]
    with pytest.raises(DuplicateKeyError):
        model.merge([src(2, 0, 99)], [not_matched(INSERT_AS_IS)], BY_VALUE)
    assert seen(model) == [(1, 1, 10), (2, 1, 20)]


def test_S25_a_delete_or_a_move_frees_a_key():
    model = table((1, 1, 10), (2, 1, 20))
    clauses = [matched(Delete(), when=IS_DELETE), MOVE]
    result = model.merge([src(2, 2, 10), src(2, 9, 20, "D")], clauses, BY_VALUE)
    assert seen(model) == [(2, 2, 10)]
    assert (counts(result), result.rowsAppended) == ((0, 1, 1, 0), 2)

    model = table((1, 1, 10), (2, 1, 20))
    clauses = [matched(Delete(), when=IS_DELETE), MOVE, not_matched(INSERT_AS_IS)]
    result = model.merge([src(1, 2, 10, "D"), src(3, 2, 20), src(1, 3, 30), src(2, 3, 40)], clauses, BY_VALUE)
    assert seen(model) == [(1, 3, 30), (2, 3, 40), (3, 2, 20)]
    assert counts(result) == (1, 2, 0, 0)  # 1 is replaced, 2 moves to 3, a new 2 comes


def test_S25_a_stale_delete_frees_nothing():
    model = table((1, 1, 10), (2, 5, 20))
    with pytest.raises(DuplicateKeyError):
        model.merge([src(2, 6, 10), src(2, 2, 20, "D")], [matched(Delete(), when=IS_DELETE), MOVE], BY_VALUE)


def test_S25_a_stale_arrival_leaves_the_key_deleted():
    model = table((1, 5, 10))
    clauses = [matched(Delete(), when=IS_DELETE), not_matched(INSERT_AS_IS)]
    result = model.merge([src(1, 6, 10, "D"), src(1, 4, 30)], clauses, BY_VALUE)
    assert (seen(model), counts(result), result.rowsAppended) == ([], (0, 0, 1, 1), 2)


def test_S25_a_stale_move_arrives_nowhere():
    model = table((1, 5, 10), (2, 1, 20))
    result = model.merge([src(2, 4, 10)], [MOVE], BY_VALUE)
    assert (seen(model), counts(result)) == ([(1, 5, 10), (2, 1, 20)], (0, 0, 0, 1))


def test_S25_an_update_to_a_tombstone_frees_its_key():
    model = table((1, 1, 10))
    clauses = [matched(update(deleted=True)), not_matched(INSERT_AS_IS)]
    result = model.merge([src(1, 2, 10), src(1, 2, 30)], clauses, BY_VALUE)
    assert (seen(model), counts(result), result.rowsAppended) == ([(1, 2, 30)], (0, 1, 0, 0), 1)


def test_S26_an_insert_over_a_tombstone_revives_the_key():
    model = table((1, 5, 10, True))
    assert counts(model.merge([src(1, 6, 11)], CDC)) == (1, 0, 0, 0)
    assert seen(model) == [(1, 6, 11)]


# Values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "value", "stored"),
    [
        ("byte", 127, 127),
        ("short", " 12 ", 12),
        ("integer", Decimal("-1.9"), -1),
        ("long", 2.9, 2),
        ("double", 3, 3.0),
        ("float", 0.1, 0.10000000149011612),
        ("decimal(4,2)", "1.005", Decimal("1.01")),
        ("decimal(4,2)", -1.005, Decimal("-1.01")),
        ("string", True, "true"),
        ("string", dt.datetime(2020, 1, 2, 3, 4, 5, 600), "2020-01-02 03:04:05.0006"),
        ("varchar(2)", "ab  ", "ab"),
        ("char(3)", "a", "a  "),
        ("boolean", " Yes", True),
        ("date", "2020-1-2", dt.date(2020, 1, 2)),
        ("date", dt.datetime(2020, 1, 2, 3), dt.date(2020, 1, 2)),
        ("timestamp", dt.date(2020, 1, 2), dt.datetime(2020, 1, 2)),
        ("timestamp_ntz", "2020-01-02 03:04:05.5", dt.datetime(2020, 1, 2, 3, 4, 5, 500000)),
    ],
)
def test_S29_values_are_stored_as_Spark_stores_them(type, value, stored):
    result = store(Field("c", type), value)
    assert (result, result.__class__) == (stored, stored.__class__)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("byte", 128),
        ("long", 2**63),
        ("integer", "1.5"),
        ("integer", ""),
        ("integer", True),
        ("integer", dt.date(2020, 1, 1)),
        ("decimal(3,2)", 10),
        ("decimal(3,2)", "x"),
        ("double", "x"),
        ("varchar(2)", "abc"),
        ("boolean", "maybe"),
        ("boolean", 1),
        ("date", "2020-13-01"),
        ("date", 1),
        ("timestamp", "noon"),
        ("binary", 1),
    ],
)
def test_S29_what_does_not_fit_is_refused(type, value):
    model = ModelTable(TableDefinition.of([Field("id", "integer"), Field("c", type)], "id"))
    with pytest.raises(SchemaMismatchError, match="'c'"):
        model.merge([{"id": 1, "c": value}], UPSERT)
    assert model.version == 0


def test_S31_key_equality_by_other_names():
    model = table((1, 1, 10), watermark=None)
    condition = KeyEquality.of(model.definition, "A", "B", {"id": "key"})
    model.merge([{"key": 1}, {"key": 2}], [matched(Delete())], condition)
    assert (seen(model), model.latest(2)["deleted"]) == ([], True)


# Counting and refusing --------------------------------------------------------------------------------------


def test_S30a_moved_tombstones_are_deletes():
    model = table((1, 1, 10), (2, 1, 20))
    clauses = [matched(update(id=of_source("id"), deleted=True))]
    assert counts(model.merge([src(3, 2, 10)], clauses, BY_VALUE)) == (0, 0, 1, 0)
    assert seen(model) == [(2, 1, 20)]


def test_S30a_two_rows_that_become_one():
    model = table((1, 1, 10), (2, 1, 10))
    result = model.merge([src(3, 2, 10)], [MOVE], BY_VALUE)
    assert (seen(model), counts(result)) == ([(3, 2, 10)], (0, 1, 1, 0))


def test_S34_null_keys_come_first():
    model = table((1, 1, 10))
    with pytest.raises(NullKeyError):
        model.merge([src(1, 2, "x"), src(None, 2, 5)], UPSERT)
    with pytest.raises(NullKeyError):
        model.merge([src(1, 2)], [matched(update(id=None))])
    assert model.version == 1


def test_S34_null_in_a_column_that_is_not_nullable():
    fields = [Field("id", "integer"), Field("v", "integer", nullable=False)]
    model = ModelTable(TableDefinition.of(fields, "id"))
    with pytest.raises(SchemaMismatchError):
        model.merge([{"id": 1, "v": None}], UPSERT)


def test_S34_the_order_of_refusals():
    model = table((1, 1, 10), (2, 1, 20))
    taken, ambiguous = src(2, 2, 10), [src(7, 2, 7), src(7, 2, 8)]
    clauses = [matched(update(id=of_source("id"), v=5)), not_matched(INSERT_AS_IS)]
    with pytest.raises(DuplicateKeyError):
        model.merge([taken, *ambiguous], clauses, BY_VALUE)
    with pytest.raises(SchemaMismatchError):
        model.merge([taken, *ambiguous, src(8, 2, 2**40)], clauses, BY_VALUE)


def test_S36_transactions_happen_once():
    model = table()
    assert not model.merge([src(1, 1, 10)], CDC, transaction=("job", 3)).skipped
    for version in (2, 3):
        again = model.merge([src(2, 1, 10)], CDC, transaction=("job", version))
        assert (bool(again.skipped), again.rowsAppended, again.version) == (True, 0, 1)
    assert not model.merge([src(2, 1, 10)], CDC, transaction=("job", 4)).skipped
    assert not model.merge([src(3, 1, 10)], CDC, transaction=("other", 1)).skipped
    assert [r[0] for r in seen(model)] == [1, 2, 3]


def test_S37_an_empty_source_does_nothing_but_record_its_transaction():
    model = table((1, 1, 10))
    result = model.merge([], [only_on_target(Delete())])
    assert (seen(model), result.version, counts(result)) == ([(1, 1, 10)], 1, (0, 0, 0, 0))
    assert result.skipped == "the source is empty"
    model.merge([], CDC, transaction=("job", 1))
    assert model.merge([src(1, 2, 11)], CDC, transaction=("job", 1)).skipped


def test_S37_a_merge_that_writes_nothing_commits_nothing():
    model = table((1, 1, 10))
    result = model.merge([src(1, 2)], [matched(Delete(), when=lambda t, s: False)])
    assert (result.version, model.version, result.rowsSource) == (1, 1, 1)


def test_S37_max_delete_fraction():
    model = table((1, 1, 10), (2, 1, 20), (3, 1, 30), (4, 1, 40))
    source = [src(1, 2, op="D"), src(2, 2, op="D"), src(9, 2, op="D")]
    with pytest.raises(TooManyDeletesError):
        model.merge(source, CDC, maxDeleteFraction=0.49)
    assert model.version == 4
    assert counts(model.merge(source, CDC, maxDeleteFraction=0.5)) == (0, 0, 2, 0)


def test_S37_max_delete_fraction_is_exact():
    model = table(*[(i, 1, 0) for i in range(100)])
    with pytest.raises(TooManyDeletesError):
        model.merge([src(i, 2, op="D") for i in range(30)], CDC, maxDeleteFraction=0.29)
    assert counts(model.merge([src(i, 2, op="D") for i in range(29)], CDC, maxDeleteFraction=0.29)) == (0, 0, 29, 0)


def test_updates_and_deletes_without_a_source():
    model = table((1, 5, 10), (2, 5, 20), (3, 5, 30))
    assert counts(model.updateWhere(lambda t, s: t["v"] > 20, {"v": 0})) == (0, 1, 0, 0)
    assert counts(model.deleteWhere(lambda t, s: t["v"] > 10)) == (0, 0, 1, 0)
    assert seen(model) == [(1, 5, 10), (3, 5, 0)]


# Laws -------------------------------------------------------------------------------------------------------


def cdc_table():
    fields = [Field("key", "integer"), Field("ts", "integer"), Field("value", "string")]
    return ModelTable(TableDefinition.of(fields, "key", "ts"))


@given(st.data())
def test_watermarked_events_give_the_same_rows_in_any_order_and_batching(data):
    events = data.draw(event_streams())
    tables = [cdc_table(), cdc_table()]
    for model in tables:
        for batch in data.draw(batchings(events)):
            model.merge(batch, CDC)
    by_key = {event["key"]: event for event in sorted(events, key=lambda e: order_key(e["ts"]))}
    survivors = [event for _, event in sorted(by_key.items()) if event["op"] != "D"]
    expected = [{name: event[name] for name in ("key", "ts", "value")} for event in survivors]
    assert [model.live() for model in tables] == [expected, expected]


@given(st.data())
def test_replaying_a_batch_of_events_changes_nothing(data):
    events = data.draw(event_streams())
    batches = data.draw(batchings(events))
    model = cdc_table()
    for batch in batches:
        model.merge(batch, CDC)
    before = model.live()
    for batch in batches:
        result = model.merge(batch, CDC)
        assert (result.rowsInserted, result.rowsDeleted) == (0, 0)
        assert model.live() == before


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(merge_cases())
def test_counts_agree_with_what_readers_see_and_refused_merges_change_nothing(case):
    model = case.table()
    before, batches = model.live(), list(model.batches)
    try:
        result = case.run(model)
    except InvalidMergeError:
        raise
    except TrinityMergeError:
        assert (model.live(), model.batches) == (before, batches)
        return
    assert result.rows == tuple(model.live())
    assert result.rowsInserted - result.rowsDeleted == len(model.live()) - len(before)
    assert min(counts(result)) >= 0
    assert result.rowsAppended == len(result.appended) == sum(map(len, model.batches[len(batches) :]))
    assert result.version == model.version == len(batches) + bool(result.appended)
    unchanged = [row for row in model.live() if row in before]
    assert result.rowsUpdated >= len(model.live()) - len(unchanged) - result.rowsInserted


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(merge_cases())
def test_every_generated_case_has_a_text_for_Spark(case):
    assert isinstance(case.condition.sql, str)
    for clause in case.engine_clauses:
        texts = [clause.condition]
        for action in clause.actions:
            if not isinstance(action, Delete) and isinstance(action.values, Assignments):
                texts += [value for _, value in action.values.items]
        assert not any(callable(text) or isinstance(text, Expr) for text in texts)


# Assertions for pipelines -----------------------------------------------------------------------------------


def test_assertMerge_shows_differing_rows_side_by_side():
    model = table((1, 1, 10), (2, 1, 20))
    with pytest.raises(AssertionError) as error:
        assertMerge(model, lambda t: t.merge([src(1, 2, 11)], UPSERT[:1]), [row(1, 2, 12), row(3, 1, 20)])
    text = [re.split(r"\s{2,}", line.strip()) for line in str(error.value).splitlines()]
    assert text[0] == ["3 of 3 rows differ:"]
    assert text[2] == [
        "{id: 1, ts: 2, v: 12, deleted: False}",
        "{id: 1, ts: 2, v: 11, deleted: False}",
        "v",
    ]
    assert text[3][1:] == ["-", "missing"]
    assert text[4][::2] == ["-", "unexpected"]


def test_assertMerge_accepts_equal_rows_and_expected_refusals():
    model = table((1, 1, 10))
    assertMerge(model, lambda t: t.merge([src(1, 2, 11)], UPSERT), [row(1, 2, 11)])
    assertMerge(model, lambda t: t.merge([src(None, 2, 11)], UPSERT), NullKeyError)
    with pytest.raises(AssertionError, match="Expected NullKeyError"):
        assertMerge(model, lambda t: t.merge([src(1, 2, 11)], UPSERT), NullKeyError)


def test_assertRows_compares_as_Spark_stores():
    nan, one = float("nan"), Decimal("1.0")
    assertRows([{"a": nan, "b": one}], [{"b": Decimal("1.00"), "a": nan}])
    assertRows([{"a": 1}, {"a": 2}, {"a": 1}], [{"a": 2}, {"a": 1}, {"a": 1}])
    for other in ([{"a": True}], [{"a": 1}, {"a": 1}], [{"a": None}], [{}], [{"b": 1}]):
        with pytest.raises(AssertionError):
            assertRows([{"a": 1}], other)


def test_the_order_of_clauses_can_matter_for_some_rows():
    model = table((1, 1, 10), (2, 1, 30))
    clauses = (
        matched(update(v=0), when=lambda t, s: t["v"] > 20),
        matched(Delete(), when=IS_DELETE),
        not_matched(Insert(All())),
    )
    source = [src(1, 2, op="D"), src(2, 2, op="D"), src(3, 2, 5)]
    (found,) = clauseOrderDependence(ModelMerge(model, source, clauses))
    assert found.clause == "clause 2, whenMatched(\"B.op <=> 'D'\")"
    assert [r["id"] for r in found.given if r not in found.reordered] == [2]
    with pytest.raises(AssertionError, match=r"id: 2.*missing"):
        assertClauseOrderIrrelevant(ModelMerge(model, source, clauses))
    assertClauseOrderIrrelevant(ModelMerge(model, [source[0], source[2]], clauses))


def test_the_order_of_clauses_can_matter_for_refusals():
    model = table((1, 1, 10), (2, 1, 30))
    clauses = (
        matched(Delete(), when=IS_DELETE),
        matched(insert(id=2), when=lambda t, s: t["v"] == 10),
    )
    (found,) = clauseOrderDependence(ModelMerge(model, [src(1, 2, op="D")], clauses))
    assert isinstance(found.reordered, DuplicateKeyError)
    assert "DuplicateKeyError" in found.report


# S27 ------------------------------------------------------------------------------------------------------------------


def past_table(watermark=None):
    fields = [Field("id", "integer"), Field("ts", "integer"), Field("was", "integer"), Field("why", "string")]
    return ModelTable(TableDefinition.of(fields, ["id", "ts"], watermark))


def keep(model, **values):
    maps = {"id": lambda t, s: t["id"], "ts": lambda t, s: t["ts"], "was": lambda t, s: t["v"]}
    return InsertHistory(Assignments(maps | values), OtherTable(model=model))


def newer(*ids, ts=20):
    return [row(id, ts, 7) for id in ids]


def test_S27_a_row_for_each_target_row_that_is_replaced():
    model, past = table([(1, 10, 1), (2, 30, 2), (3, 10, 3)]), past_table()
    clauses = [
        WhenMatched(lambda t, s: t["id"] == 3, [Delete(), keep(past, why=lambda t, s: "deleted")]),
        WhenMatched(None, [Update(All()), keep(past, why=lambda t, s: f"now {s['v']}")]),
        WhenNotMatched(None, [Insert(All())]),
    ]
    result = model.merge(newer(1, 2, 3, 4), clauses)
    assert (result.rowsHistory, result.rowsStale) == (2, 1), "what comes late replaces nothing"
    assert [tuple(r.values()) for r in past.live()] == [(1, 10, 1, "now 7"), (3, 10, 3, "deleted")]


def test_S27_S18_a_delete_that_is_recorded_replaces_nothing():
    model, past = table((1, 10, 1)), past_table()
    result = model.merge(newer(9), [WhenMatched(None, [Delete(), keep(past)])])
    assert (result.rowsAppended, result.rowsHistory, past.version) == (1, 0, 0)


def test_S27_both_tables_or_neither():
    model, past = table([(1, 10, 1), (2, 10, 2)]), past_table()
    same = keep(past, id=lambda t, s: 1, ts=lambda t, s: 1)
    for refused, error in ((same, AmbiguousMergeError), (keep(past, id=lambda t, s: None), NullKeyError)):
        with pytest.raises(error):
            model.merge(newer(1, 2), [WhenMatched(None, [Update(All()), refused])])
        assert (model.version, past.version) == (1, 0)


def test_S17a_keys_are_compared_as_the_table_stores_them():
    model = table((1, 10, 1), (2, 10, 2))
    update = [WhenMatched(None, [Update(All(("deleted",)))])]
    model.merge([src("1", 20, 5), src(2.0, 20, 6)], update)
    assert seen(model) == [(1, 20, 5), (2, 20, 6)]
    with pytest.raises(SchemaMismatchError):
        model.merge([src("01", 30, 7)], update)
    result = model.merge([src("01", 30, 7), src(2, 30, 8), src(1.5, 30, 9)], update, quarantine=True)
    assert [reason for _, reason in result.quarantined] == ["type:id", "type:id"]
    assert seen(model) == [(1, 20, 5), (2, 30, 8)]


def test_S30_columns_of_the_absent_side_are_null_in_conditions():
    model = table((1, 10, 1))
    absent = expressions.is_null(expressions.target("id"))
    model.merge([src(1, 20, 5), src(2, 20, 6)], [WhenNotMatched(absent, [Insert(All(("deleted",)))])])
    assert seen(model) == [(1, 10, 1), (2, 20, 6)]
    with pytest.raises(InvalidMergeError):
        model.merge(
            [src(3)],
            [WhenNotMatched(expressions.eq(expressions.target("id"), expressions.literal(1)), [Insert(All())])],
        )
