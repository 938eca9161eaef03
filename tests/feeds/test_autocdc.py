"""The worked examples of AUTO CDC's documentation, through this library's calls, with the tables that documentation shows.

What it calls `__START_AT` and `__END_AT` is `validFrom` and `validTo` here. Its targets leave the sequence out; here it is the
watermark, a column of the table, and left out when rows are compared.
"""

from __future__ import annotations

from itertools import permutations

import pytest
from helpers import assertRows, quickly
from tables import frame, new_table

from trinitymerge import AmbiguousMergeError, InvalidMergeError, TrinityMergeError, TrinityTable

USERS = "userId INT, name STRING, city STRING, sequenceNum INT"
FEED = "userId INT, name STRING, city STRING, operation STRING, sequenceNum INT"

INITIAL = [(124, "Raul", "Oaxaca", "INSERT", 1), (123, "Isabel", "Monterrey", "INSERT", 1)]
NEW_USERS = [(125, "Mercedes", "Tijuana", "INSERT", 2), (126, "Lily", "Cancun", "INSERT", 2)]
LATEST = [(123, None, None, "DELETE", 6), (125, "Mercedes", "Guadalajara", "UPDATE", 6)]
OUT_OF_ORDER = [(125, "Mercedes", "Mexicali", "UPDATE", 5), (123, "Isabel", "Chihuahua", "UPDATE", 5)]
TRUNCATE = [(None, None, None, "TRUNCATE", 3)]
EVENTS = [*INITIAL, *NEW_USERS, *LATEST, *OUT_OF_ORDER]
BATCHES = [INITIAL, NEW_USERS, LATEST, OUT_OF_ORDER]

TYPE_1 = [(124, "Raul", "Oaxaca"), (125, "Mercedes", "Guadalajara"), (126, "Lily", "Cancun")]

TYPE_2 = [
    (123, "Isabel", "Monterrey", 1, 5),
    (123, "Isabel", "Chihuahua", 5, 6),
    (124, "Raul", "Oaxaca", 1, None),
    (125, "Mercedes", "Tijuana", 2, 5),
    (125, "Mercedes", "Mexicali", 5, 6),
    (125, "Mercedes", "Guadalajara", 6, None),
    (126, "Lily", "Cancun", 2, None),
]

EXCEPT_CITY = [
    (123, "Isabel", "Chihuahua", 1, 6),
    (124, "Raul", "Oaxaca", 1, None),
    (125, "Mercedes", "Guadalajara", 2, None),
    (126, "Lily", "Cancun", 2, None),
]

INTERVALS = ["userId", "name", "city", "validFrom", "validTo"]


def users(spark, directory, history=False):
    """An empty table of users: type 2 with history, type 1 without."""
    return new_table(spark, directory, USERS, primaryKey="userId", watermarkKey="sequenceNum", history=history)


def applied(table, events):
    """The flow of the documentation: not run yet."""
    source = events if not isinstance(events, list) else frame(table._store.spark, FEED, *events)
    return table.applyChanges(
        source, sequenceBy="sequenceNum", applyAsDeletes="operation = 'DELETE'", exceptColumns=["operation"]
    )


def truncating(table, events):
    """The same, which heeds truncates, too: not run yet."""
    return table.applyChanges(
        frame(table._store.spark, FEED, *events),
        sequenceBy="sequenceNum",
        applyAsDeletes="operation = 'DELETE'",
        applyAsTruncates="operation = 'TRUNCATE'",
        exceptColumns=["operation"],
    )


def current(table):
    return table.toDF().select("userId", "name", "city")


# Type 1 -----------------------------------------------------------------------------------------------------------


def test_h9_type_1_keeps_the_latest_state_of_each_user(spark, tmp_path):
    table = users(spark, tmp_path)
    applied(table, EVENTS).execute()
    assertRows(current(table), TYPE_1)


ORDERS = list(permutations(range(4)))


@pytest.mark.parametrize("order", quickly([(order,) for order in ORDERS], [(ORDERS[-1],)]), ids=str)
@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
def test_h9_the_order_in_which_batches_come_changes_nothing(spark, tmp_path, order, history):
    table = users(spark, tmp_path, history)
    for number in order:
        applied(table, BATCHES[number]).execute()
    assertRows(current(table), TYPE_1)
    if history:
        assertRows(table.versions().select(INTERVALS), TYPE_2)


def test_h9_without_a_sequence_the_watermark_is_it(spark, tmp_path):
    table = users(spark, tmp_path)
    source = frame(spark, FEED, *EVENTS)
    table.applyChanges(source, applyAsDeletes="operation = 'DELETE'", exceptColumns=["operation"]).execute()
    assertRows(current(table), TYPE_1)


def test_h9_the_sequence_may_have_another_name(spark, tmp_path):
    table = users(spark, tmp_path)
    source = frame(spark, FEED, *EVENTS).withColumnRenamed("sequenceNum", "lsn")
    table.applyChanges(
        source, sequenceBy="lsn", applyAsDeletes="operation = 'DELETE'", exceptColumns=["operation", "lsn"]
    ).execute()
    assertRows(current(table), TYPE_1)
    assertRows(table.toDF().select("userId", "sequenceNum"), [(124, 1), (125, 6), (126, 2)])


def test_h9_without_a_condition_for_deletes_every_event_is_an_upsert(spark, tmp_path):
    table = users(spark, tmp_path)
    table.applyChanges(frame(spark, FEED, *EVENTS), sequenceBy="sequenceNum", exceptColumns=["operation"]).execute()
    assertRows(current(table), [(123, None, None), *TYPE_1])


def test_h9_columns_names_those_that_are_taken(spark, tmp_path):
    table = users(spark, tmp_path)
    table.applyChanges(
        frame(spark, FEED, *EVENTS), applyAsDeletes="operation = 'DELETE'", columns=["userId", "name", "sequenceNum"]
    ).execute()
    assertRows(current(table), [(userId, name, None) for userId, name, _ in TYPE_1])


# Truncates --------------------------------------------------------------------------------------------------------


def test_h9_a_truncate_deletes_what_is_not_fresher(spark, tmp_path):
    table = users(spark, tmp_path)
    truncating(table, [*EVENTS, *TRUNCATE]).execute()
    assertRows(current(table), [(125, "Mercedes", "Guadalajara")])


def test_h9_a_truncate_in_a_batch_of_its_own_does_the_same(spark, tmp_path):
    table = users(spark, tmp_path)
    truncating(table, EVENTS).execute()
    truncating(table, TRUNCATE).execute()
    assertRows(current(table), [(125, "Mercedes", "Guadalajara")])


def test_T1_a_truncate_is_remembered(spark, tmp_path):
    table = users(spark, tmp_path)
    truncating(table, TRUNCATE).execute()
    truncating(table, EVENTS).execute()
    assertRows(current(table), [(125, "Mercedes", "Guadalajara")])


def test_T1_with_history_a_truncate_ends_versions(spark, tmp_path):
    table = users(spark, tmp_path, history=True)
    truncating(table, TRUNCATE).execute()
    truncating(table, EVENTS).execute()
    assertRows(current(table), [(125, "Mercedes", "Guadalajara")])
    assert max(r[0] for r in table.versions().where("NOT isCurrent").select("validTo").collect()) <= 6


# Type 2 -----------------------------------------------------------------------------------------------------------


def test_h9_type_2_keeps_every_version_with_its_interval(spark, tmp_path):
    table = users(spark, tmp_path, history=True)
    applied(table, EVENTS).execute()
    versions = table.versions()
    assertRows(versions.select(INTERVALS), TYPE_2)
    assertRows(versions.filter("isCurrent").select("userId", "name", "city"), TYPE_1)
    assertRows(current(table), TYPE_1)


@pytest.mark.parametrize("how", [{"exceptColumns": ["city"]}, {"track": ["name"]}], ids=["except", "only"])
def test_h9_columns_that_are_not_tracked_are_shown_as_a_version_has_them_last(spark, tmp_path, how):
    table = users(spark, tmp_path, history=True)
    applied(table, EVENTS).execute()
    assertRows(table.versions(**how).select(INTERVALS), EXCEPT_CITY)


def test_h9_an_event_that_changes_nothing_begins_a_version_unless_all_columns_are_tracked(spark, tmp_path):
    """AUTO CDC tracks all columns where none are named: there, the two events are one version."""
    table = users(spark, tmp_path, history=True)
    applied(table, [(126, "Lily", "Cancun", "INSERT", 2), (126, "Lily", "Cancun", "UPDATE", 4)]).execute()
    assertRows(table.versions().select(INTERVALS), [(126, "Lily", "Cancun", 2, 4), (126, "Lily", "Cancun", 4, None)])
    assertRows(table.versions(track=["name", "city"]).select(INTERVALS), [(126, "Lily", "Cancun", 2, None)])


def test_h5_the_state_at_a_moment_is_that_of_the_intervals(spark, tmp_path):
    table = users(spark, tmp_path, history=True)
    applied(table, EVENTS).execute()
    for moment in range(8):
        held = [row[:3] for row in TYPE_2 if row[3] <= moment and (row[4] is None or moment < row[4])]
        assertRows(table.asOf(moment).select("userId", "name", "city"), held)


def test_h5_what_was_known_then_of_a_moment(spark, tmp_path):
    """AUTO CDC calls it bitemporal."""
    table = users(spark, tmp_path, history=True)
    for batch in BATCHES:
        applied(table, batch).execute()
    assertRows(
        table.asOf(5).select("userId", "city"),
        [(123, "Chihuahua"), (124, "Oaxaca"), (125, "Mexicali"), (126, "Cancun")],
    )
    then = TrinityTable.forPath(spark, table.path, versionAsOf=3).asOf(5)
    assertRows(then.select("userId", "city"), [(123, "Monterrey"), (124, "Oaxaca"), (125, "Tijuana"), (126, "Cancun")])


def test_s36_micro_batches_of_a_stream_are_applied_once(spark, tmp_path):
    table, results = users(spark, tmp_path, history=True), []
    write = table.foreachBatch(applied, "users-feed", results.append)
    for number, batch in [(0, INITIAL), (1, NEW_USERS), (2, LATEST), (2, LATEST), (3, OUT_OF_ORDER)]:
        write(frame(spark, FEED, *batch), number)
    assertRows(table.versions().select(INTERVALS), TYPE_2)
    assert [bool(result.skipped) for result in results] == [False, False, False, True, False]


@pytest.mark.slow
def test_h6_compaction_keeps_every_version(spark, tmp_path):
    table = users(spark, tmp_path, history=True)
    for batch in (INITIAL, NEW_USERS, LATEST):
        applied(table, batch).execute()
    table.compact()
    applied(table, OUT_OF_ORDER).execute()
    assertRows(table.versions().select(INTERVALS), TYPE_2)
    table.compact()
    assertRows(table.versions().select(INTERVALS), TYPE_2)
    assertRows(table.versions(exceptColumns=["city"]).select(INTERVALS), EXCEPT_CITY)


def test_h12_the_documented_table_can_be_taken_over(spark, tmp_path):
    intervals = frame(spark, "userId INT, name STRING, city STRING, __START_AT INT, __END_AT INT", *TYPE_2)
    table = TrinityTable.fromIntervals(
        spark, str(tmp_path / "users"), intervals, primaryKey="userId", validFrom="__START_AT", validTo="__END_AT"
    )
    assertRows(table.versions().select(INTERVALS), TYPE_2)
    assertRows(current(table), TYPE_1)


# What AUTO CDC leaves open ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
def test_s12_two_events_with_one_sequence_are_refused_if_they_differ(spark, tmp_path, history):
    table = users(spark, tmp_path, history)
    with pytest.raises(AmbiguousMergeError, match="userId"):
        applied(table, [*EVENTS, (126, "Lily", "Merida", "UPDATE", 2)]).execute()
    assert table.version == 0


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
def test_s12_events_that_come_twice_change_nothing(spark, tmp_path, history):
    table = users(spark, tmp_path, history)
    applied(table, [*EVENTS, *EVENTS]).execute()
    applied(table, EVENTS).execute()
    assertRows(current(table), TYPE_1)
    if history:
        assertRows(table.versions().select(INTERVALS), TYPE_2)


def test_s6_of_two_batches_with_one_sequence_the_later_holds(spark, tmp_path):
    table = users(spark, tmp_path, history=True)
    applied(table, EVENTS).execute()
    applied(table, [(126, "Lily", "Merida", "UPDATE", 2)]).execute()
    corrected = [(126, "Lily", "Merida", 2, None) if row[0] == 126 else row for row in TYPE_2]
    assertRows(table.versions().select(INTERVALS), corrected)


def test_s38_a_compacted_table_remembers_deletes(spark, tmp_path):
    table = users(spark, tmp_path)
    for batch in (INITIAL, LATEST):
        applied(table, batch).execute()
    table.compact()
    applied(table, OUT_OF_ORDER).execute()  # Isabel's is older than her end
    assertRows(current(table), [row for row in TYPE_1 if row[0] != 126])


def test_h9_a_null_sequence_is_refused(spark, tmp_path):
    table = users(spark, tmp_path)
    with pytest.raises(TrinityMergeError, match="sequence"):
        applied(table, [*INITIAL, (126, "Lily", "Cancun", "INSERT", None)]).execute()
    assert table.version == 0


def test_h9_a_sequence_needs_a_table_that_declares_a_watermark(spark, tmp_path):
    table = new_table(spark, tmp_path, "userId INT, name STRING, city STRING", primaryKey="userId")
    with pytest.raises(InvalidMergeError, match="watermark"):
        applied(table, EVENTS).execute()


# Nulls that are ignored -------------------------------------------------------------------------------------------

PARTIAL = [
    (124, "Raul", "Oaxaca", "INSERT", 1),
    (124, None, "Puebla", "UPDATE", 2),
    (124, "Raul Ruiz", None, "UPDATE", 3),
]


@pytest.mark.parametrize("history", [False, True], ids=["type 1", "type 2"])
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "three"])
def test_h10_nulls_that_are_ignored_keep_the_value(spark, tmp_path, history, together):
    table = users(spark, tmp_path, history)
    for batch in [PARTIAL] if together else [[event] for event in PARTIAL]:
        source = frame(spark, FEED, *batch)
        table.applyChanges(source, exceptColumns=["operation"], ignoreNullUpdates=True).execute()
    assertRows(current(table), [(124, "Raul Ruiz", "Puebla")])
    if history:
        versions = [(124, "Raul", "Oaxaca", 1, 2), (124, "Raul", "Puebla", 2, 3), (124, "Raul Ruiz", "Puebla", 3, None)]
        assertRows(table.versions().select(INTERVALS), versions)


def test_h10_of_named_columns_only_these_keep_the_value(spark, tmp_path):
    table = users(spark, tmp_path)
    source = frame(spark, FEED, *PARTIAL)
    table.applyChanges(source, exceptColumns=["operation"], ignoreNullUpdates=["city"]).execute()
    applied(table, [(124, None, "Merida", "UPDATE", 4)]).execute()
    assertRows(current(table), [(124, None, "Merida")])
