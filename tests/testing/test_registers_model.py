"""U1-U6 in the interpreter: any order and any batches of partial events are one pass in order."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from helpers import quickly
from partial_events import COLUMNS, SIX, batches, event, every_batching, live, stream, versions

from trinitymerge.errors import InvalidMergeError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import ModelTable

FIELDS = [Field("id", "integer"), Field("ts", "integer"), *(Field(name, "string") for name in COLUMNS)]
HISTORY = TableDefinition.of(FIELDS, "id", "ts", history=True)
TYPE_1 = TableDefinition.of(FIELDS, "id", "ts")


def changed(definition, *parts, **options):
    """A table after some batches of events."""
    table = ModelTable(definition)
    options = {"unchanged": lambda e: e["unset"], "exceptColumns": ["op", "unset", "was"], **options}
    options = {"movedFrom": lambda e: e["was"], **options}
    for part in parts:
        table.applyChanges(
            part, applyAsDeletes=lambda e: e["op"] == "D", applyAsTruncates=lambda e: e["op"] == "T", **options
        )
    return table


def rows(table):
    return [(r["id"], r["ts"], *(r[name] for name in COLUMNS)) for r in table.live()]


def versions_of(table):
    return [(r["id"], r["validFrom"], *(r[name] for name in COLUMNS), r["validTo"]) for r in table.versions()]


WITHOUT_A_DELETE = [*SIX[:3], *SIX[4:]]
WITH_MOVES = [
    event(1, 10, "a1", "b1", "c1"),
    event(1, 20, "a2", unset=["b", "c"]),
    event(2, 30, None, "b3", unset=["c"], was=1),
    event(1, 40, "a4", unset=["b", "c"], was=2),
    event(2, 50, "a5", unset=["b", "c"]),
    event(1, 60, c="c6", unset=["a", "b"]),
]
WITH_A_TRUNCATE = [*SIX[:3], event(None, 35, op="T"), *SIX[4:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "events",
    quickly([(SIX,), (WITHOUT_A_DELETE,), (WITH_A_TRUNCATE,), (WITH_MOVES,)], [WITHOUT_A_DELETE, WITH_MOVES[:-1]]),
    ids=["six", "five", "truncate", "moves"],
)
def test_U1_every_order_and_every_batching_gives_the_same_rows(events):
    for order in permutations(events):
        for parts in every_batching(order):
            assert rows(changed(TYPE_1, *parts)) == live(events), parts
        assert versions_of(changed(HISTORY, *([one] for one in order))) == versions(events), order


@pytest.mark.parametrize("definition", [TYPE_1, HISTORY], ids=["type 1", "type 2"])
@pytest.mark.parametrize("block", quickly([(range(n, n + 40),) for n in range(0, 1000, 40)], [range(40)]), ids=str)
def test_U1_any_order_and_batching_is_one_pass_in_order(block, definition):
    for seed in block:
        check_any_order(random.Random(seed), definition)


def check_any_order(rnd, definition):
    moves = rnd.choice([0, 0.3])
    events = stream(rnd, keys=3, each=rnd.randint(1, 12), deletes=0.2, truncates=rnd.choice([0, 0, 1, 2]), moves=moves)
    table = changed(definition, *batches(rnd, events, 4, repeated=0.15))
    assert rows(table) == live(events)
    if definition.history:
        assert versions_of(table) == versions(events)


def test_U1_a_null_that_an_event_sets_is_not_an_unset_column():
    table = changed(TYPE_1, [event(1, 1, "a", "b", "c")], [event(1, 2, unset=["b"])])
    assert rows(table) == [(1, 2, None, "b", None)]


def test_U4_late_rows_that_change_nothing_mend_nothing():
    parts = [[event(1, 5, "a", "b", "c")], [event(1, 9, "x", unset=["b", "c"])]]
    for late in (event(1, 5, "a", "b", "c"), event(1, 4, "z", "z", "z"), event(1, 7, "z", unset=["b", "c"])):
        table = changed(TYPE_1, *parts)
        result = table.applyChanges([late], unchanged=lambda e: e["unset"], exceptColumns=["op", "unset", "was"])
        assert (result.rowsMended, rows(table)) == (0, [(1, 9, "x", "b", "c")])


def test_U4_rows_of_other_merges_mend_too():
    table = changed(TYPE_1, [event(1, 9, "x", unset=["b", "c"])])
    table.insert([{"id": 1, "ts": 5, "a": "a", "b": "b", "c": "c"}], deduplicate=True)
    assert rows(table) == [(1, 9, "x", None, None)], "the key is live: no row is written"
    table._upsert([{"id": 1, "ts": 5, "a": "a", "b": "b", "c": "c"}])
    assert rows(table) == [(1, 9, "x", "b", "c")]


@pytest.mark.parametrize(
    "options",
    [
        {"unchanged": ["nope"]},
        {"unchanged": ["id"]},
        {"columnsToUpdate": ["ts"]},
        {"unchanged": ["a"], "columnsToUpdate": ["a"]},
        {"unchanged": ["a"], "ignoreNullUpdates": True},
    ],
    ids=str,
)
def test_U2_U6_other_names_and_two_ways_at_once_are_refused(options):
    with pytest.raises(InvalidMergeError):
        changed(TYPE_1, [event(1, 1)], **options)


def test_U6_columns_to_update_is_the_complement():
    one = changed(TYPE_1, [event(1, 1, "a", "b", "c")], [event(1, 2, "x")], unchanged=None, columnsToUpdate=["a"])
    other = changed(TYPE_1, [event(1, 1, "a", "b", "c", unset=["b", "c"])], [event(1, 2, "x", unset=["b", "c"])])
    assert rows(one) == rows(other) == [(1, 2, "x", None, None)]


def test_U6_fields_of_structs_have_registers_when_nulls_are_ignored():
    kind = {
        "type": "struct",
        "fields": [{"name": n, "type": "integer", "nullable": True, "metadata": {}} for n in "xy"],
    }
    definition = TableDefinition.of([Field("id", "integer"), Field("ts", "integer"), Field("s", kind)], "id", "ts")
    events = [
        {"id": 1, "ts": 1, "s": {"x": 1, "y": 1}},
        {"id": 1, "ts": 2, "s": {"x": None, "y": 2}},
        {"id": 1, "ts": 3, "s": None},
        {"id": 1, "ts": 4, "s": {"x": 4, "y": None}},
    ]
    for order in permutations(events):
        table = ModelTable(definition)
        for one in order:
            table.applyChanges([one], ignoreNullUpdates=True)
        assert [row["s"] for row in table.live()] == [{"x": 4, "y": 2}]
