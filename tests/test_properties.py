"""What must hold of every merge: generated ones, many side by side in one table.

The engine agrees with the interpreter on every sound path; refused merges change nothing; neither do replays, compactions,
and the order in which watermarked events come. A failure shows the smallest lane that still differs. The same number
always gives the same merges.
"""

from __future__ import annotations

from functools import lru_cache

import pytest
from helpers import quickly
from lanes import (
    Together,
    Verdicts,
    beside,
    difference,
    lanes_of,
    led_by_lane,
    prepared,
    program,
    refusal_difference,
    rows_of,
    traces_of,
    write_table,
)
from smallest import as_text, smallest
from streams import (
    apply_events,
    delivered,
    event_frame,
    event_table,
    events_of,
    one_of_each_key_first,
    survivors,
    watermarked_rows,
)
from tables import set_default

from trinitymerge import errors
from trinitymerge.maintenance import segments
from trinitymerge.merge.compile import join
from trinitymerge.merge.compile.strategies import FULL_SCAN, KEY_LOOKUP
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES
from trinitymerge.testing import ModelTable, assertRows

# What generated merges cover, they cover in generated code.
pytestmark = pytest.mark.generated

LANES, LANES_OF_A_LONG_BLOCK = 60, 120
QUICK = range(12)
REFUSED = [13, 18]
"""Programs with refusals of every kind; these take longest, so the others are left to the long profile."""
LONG = range(1000, 1020)
MERGES_OF_A_LONG_BLOCK = 260
STREAMS = 40


@pytest.fixture(autouse=True)
def sent_or_shuffled(request, monkeypatch):
    """Programs of odd numbers are run as if their sources were too large to be sent to where the target is read (S13)."""
    number = getattr(request.node, "callspec", None) and request.node.callspec.params.get("number", 0)
    if number and number % 2:
        monkeypatch.setattr(join, "BROADCAST_ROWS", 0)


@lru_cache(maxsize=16)
def verdicts(number, lanes=LANES):
    return Verdicts.of(lanes_of(program(number), lanes, number))


def check_merged(merged, name, spark, directory, compacted=(), folded=(), marked=()):
    """Fails if the engine disagrees about one of the lanes."""

    def differs(cases):
        again = Verdicts.of(cases).merged
        return difference(spark, directory, again, compacted, folded, marked) if again else ""

    cases = [case for case, _ in merged]
    if cases and differs(cases):
        case, text = smallest(cases, differs)
        pytest.fail(f"program {name}, {text}\n{as_text(case)}")


def check_refused(refused, name, spark, directory):
    """Fails if the engine does not refuse the first lane of each kind, for the same reason, without a trace."""
    for kind in {type(error) for _, error in refused}:
        alone = next(pair for pair in refused if type(pair[1]) is kind)
        text = refusal_difference(spark, directory, [alone])
        assert not text, f"program {name}, {text}\n{as_text(alone[0])}"


# Engine and interpreter -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", quickly(QUICK, {0, 3, 6, 9}))
@pytest.mark.program
def test_S31_engine_agrees_with_the_interpreter_and_preview_on_every_sound_path(number, spark, tmp_path):
    check_merged(verdicts(number).merged, number, spark, tmp_path)


@pytest.mark.parametrize("number", REFUSED)
def test_S34_refused_merges_leave_no_trace_in_rows_log_or_files(number, spark, tmp_path):
    check_refused(verdicts(number).refused, number, spark, tmp_path)


def test_merges_are_refused_for_every_reason_the_data_can_give():
    found = {type(error) for number in REFUSED for _, error in verdicts(number).refused}
    assert found == {
        errors.NullKeyError,
        errors.SchemaMismatchError,
        errors.DuplicateKeyError,
        errors.AmbiguousMergeError,
        errors.StaleRowsError,
    }


@pytest.mark.long
@pytest.mark.parametrize("block", LONG)
def test_engine_agrees_with_the_interpreter_in_many_more_merges(block, spark, tmp_path):
    merges, number = 0, 1000 * block
    while merges < MERGES_OF_A_LONG_BLOCK:
        found = verdicts(number, LANES_OF_A_LONG_BLOCK)
        compacted, folded = (1,) if number % 3 == 2 else (), (2,) if number % 2 else (3,)
        check_merged(found.merged, number, spark, tmp_path, compacted, folded, (1, 2, 3) if number % 5 < 2 else ())
        if number == 1000 * block:
            check_refused(found.refused, number, spark, tmp_path)
        merges, number = merges + len(found.merged), number + 1


# Compaction, replays --------------------------------------------------------------------------------------------------


@pytest.fixture
def in_segments(monkeypatch):
    """Bases consist of segments of a few rows, and of these only what has changed a lot is written anew."""
    set_default(monkeypatch, TARGET_SEGMENT_BYTES, "2000")
    monkeypatch.setattr(segments, "_PAYS", 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 6])
def test_S38_compaction_at_any_point_changes_nothing_for_readers_and_merges(number, spark, tmp_path):
    compacted = {2: {1}, 6: {1, 3}}[number]
    check_merged(verdicts(number).merged, f"{number} compacted", spark, tmp_path, compacted)


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 6])
def test_S38b_compaction_of_a_part_changes_nothing_for_readers_and_merges(number, spark, tmp_path, in_segments):
    compacted = {3: {1, 2}, 6: {1, 2, 3}}[number]
    check_merged(verdicts(number).merged, f"{number} compacted in segments", spark, tmp_path, compacted)


FOLDED = {1: {2, 3}, 2: {3}, 4: {2}, 6: {3}}


@pytest.mark.slow
@pytest.mark.parametrize("number", FOLDED)
def test_S38a_folding_at_any_point_changes_nothing_for_readers_and_merges(number, spark, tmp_path):
    folded = FOLDED[number]
    check_merged(verdicts(number).merged, f"{number} folded", spark, tmp_path, folded=folded)


MARKED = {0: {1, 2, 3}, 1: {2}, 3: {2, 3}, 5: {1, 3}, 7: {2}}


@pytest.mark.parametrize("number", quickly(MARKED, {0, 5}))
def test_D1_deletion_vectors_at_any_point_change_nothing_for_readers_and_merges(number, spark, tmp_path):
    check_merged(verdicts(number).merged, f"{number} marked", spark, tmp_path, marked=MARKED[number])


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 6])
def test_D3_deletion_vectors_before_and_after_minor_compactions_change_nothing(number, spark, tmp_path):
    check_merged(
        verdicts(number).merged, f"{number} marked and folded", spark, tmp_path, folded={2, 3}, marked={1, 2, 3}
    )


@pytest.mark.parametrize("number", [0, 3])
def test_S36_a_replayed_transaction_changes_nothing(number, spark, tmp_path):
    together = Together(tuple(case for case, _ in verdicts(number).merged))
    _, table, source = prepared(spark, tmp_path, together)
    merge = together.builder(table, source).withTransaction("pipeline", 7)
    assert not merge.execute().skipped
    before = traces_of(table)
    assert merge.execute().skipped
    assert merge.withTransaction("pipeline", 6).execute().skipped
    assert traces_of(table) == before


@pytest.mark.slow
def test_S18_replayed_batches_of_events_change_nothing(spark, tmp_path):
    events = events_of(STREAMS, 100)
    table, batches = event_table(spark, tmp_path), delivered(events, 3, 100)
    for batch in batches:
        apply_events(table, event_frame(spark, batch)).execute()
    for batch in batches:
        result = apply_events(table, event_frame(spark, batch))._with_strategy(KEY_LOOKUP).execute()
        assert (result.rowsInserted, result.rowsDeleted) == (0, 0)
    assertRows(table, survivors(events))


# Order and batching ---------------------------------------------------------------------------------------------------

DELIVERIES = {
    "at once": {"batches": 1, "path": None, "compact": False},
    "in any order, some twice": {"batches": 3, "path": KEY_LOOKUP, "compact": False},
    "compacted after every batch": {"batches": 3, "path": None, "compact": True},
    "by full scan": {"batches": 2, "path": FULL_SCAN, "compact": False},
}


@pytest.mark.parametrize("how", DELIVERIES)
def test_S13_S18_events_give_the_same_table_in_any_order_and_batching(how, spark, tmp_path):
    number, delivery = list(DELIVERIES).index(how), DELIVERIES[how]
    events, table = events_of(STREAMS, 200), event_table(spark, tmp_path)
    for batch in delivered(events, delivery["batches"], number, repeated=0.3):
        apply_events(table, event_frame(spark, batch))._with(strategy=delivery["path"]).execute()
        if delivery["compact"]:
            table.compact()
    assertRows(table, survivors(events))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_S13_rows_with_watermarks_read_the_same_in_any_order_and_batching(number, spark, tmp_path):
    definition, lanes = watermarked_rows(LANES, number)
    expected = beside(_alone(definition, rows) for rows in lanes)
    rows, own = beside(lanes), led_by_lane(definition)
    tables = {
        "in one batch": write_table(spark, tmp_path, own, [rows]),
        "in any order, some twice": write_table(spark, tmp_path, own, delivered(rows, 3, number, repeated=0.3)),
        "compacted between": write_table(spark, tmp_path, own, delivered(rows, 3, -number, repeated=0.3), 0, {2}),
        "folded between": write_table(
            spark, tmp_path, own, delivered(rows, 4, -number, repeated=0.3), 0, folded={2, 4}
        ),
        "over a base": write_table(spark, tmp_path, own, one_of_each_key_first(definition, rows), 2 * len(rows)),
    }
    for how, table in tables.items():
        try:
            assertRows(rows_of(table.toDF()), expected, own.primaryKey)
        except AssertionError as error:
            pytest.fail(f"{how}, {definition}: {error}")


def _alone(definition, rows):
    model = ModelTable(definition)
    model.commit(rows)
    return model.live()
