"""The worked examples of AUTO CDC FROM SNAPSHOT's documentation, with the tables it shows; see `test_autocdc.py`."""

from __future__ import annotations

from itertools import permutations

import pytest
from helpers import assertRows, quickly
from tables import frame, new_table

from trinitymerge import TrinityMergeError

PLACES = "userId INT, city STRING, taken INT"
SNAPSHOTS = {
    0: [(1, "Oaxaca"), (2, "Monterrey"), (3, "Tijuana")],
    1: [(2, "Carmel"), (3, "Los Angeles"), (4, "Death Valley"), (6, "Kings Canyon")],
}
SNAPSHOT_TYPE_2 = [
    (1, "Oaxaca", 0, 1),
    (2, "Monterrey", 0, 1),
    (2, "Carmel", 1, None),
    (3, "Tijuana", 0, 1),
    (3, "Los Angeles", 1, None),
    (4, "Death Valley", 1, None),
    (6, "Kings Canyon", 1, None),
]
PLACE_INTERVALS = ["userId", "city", "validFrom", "validTo"]


def places(spark, directory, history):
    return new_table(spark, directory, PLACES, primaryKey="userId", watermarkKey="taken", history=history)


def take(table, moment, rows, **how):
    """Takes a full extract."""
    table.snapshot(frame(table._store.spark, "userId INT, city STRING", *rows), at=moment, **how).execute()


def test_h11_snapshots_in_order_type_1(spark, tmp_path):
    table = places(spark, tmp_path, history=False)
    for moment, rows in SNAPSHOTS.items():
        take(table, moment, rows)
        assertRows(table.toDF().select("userId", "city"), rows)


def test_S37_an_extract_that_lacks_more_than_half_of_the_rows_is_reported(spark, tmp_path, caplog):
    table = places(spark, tmp_path, history=False)
    all_rows = [(n, "Bonn") for n in range(10)]
    take(table, 1, all_rows)
    take(table, 2, all_rows[:5])  # a half
    assert "lacks" not in caplog.text
    take(table, 3, all_rows[:2], missing="keep")
    assert "lacks" not in caplog.text
    take(table, 4, all_rows[:2])
    assert "lacks" not in caplog.text, "3 of 5, and 10 at most: five are stored that are dead"
    table.compact()
    take(table, 5, [])
    take(table, 6, [(9, "Rome")])
    assert (
        "the extract lacks 2 live rows, of 2 at most: they are deleted. If it is not complete, restore(5) brings"
        in caplog.text
    )
    assert table.toDF().count() == 1


def test_h11_snapshots_in_order_type_2(spark, tmp_path):
    table = places(spark, tmp_path, history=True)
    take(table, 0, SNAPSHOTS[0])
    assertRows(table.versions().select(PLACE_INTERVALS), [(*row, 0, None) for row in SNAPSHOTS[0]])
    take(table, 1, SNAPSHOTS[1])
    assertRows(table.versions().select(PLACE_INTERVALS), SNAPSHOT_TYPE_2)


def test_h11_a_late_snapshot_is_not_skipped(spark, tmp_path):
    """AUTO CDC leaves one out that comes after a newer one."""
    table = places(spark, tmp_path, history=True)
    take(table, 1, SNAPSHOTS[1])
    take(table, 0, SNAPSHOTS[0])
    assertRows(table.versions().select(PLACE_INTERVALS), SNAPSHOT_TYPE_2)


THREE = {1: [(1, "a"), (2, "a")], 3: [(1, "b"), (3, "a")], 4: [(1, "a"), (2, "a"), (3, "a")]}
OF_THREE = [(1, "a", 1, 3), (1, "b", 3, 4), (1, "a", 4, None), (2, "a", 1, 3), (2, "a", 4, None), (3, "a", 3, None)]
ARRIVALS = list(permutations(THREE))


@pytest.mark.parametrize("arrival", quickly([(a,) for a in ARRIVALS], [((1, 4, 3),), ((4, 3, 1),)]), ids=str)
def test_h11_any_order_of_snapshots_gives_the_same_versions(spark, tmp_path, arrival):
    table = places(spark, tmp_path, history=True)
    for moment in arrival:
        take(table, moment, THREE[moment])
    assertRows(table.versions(track=["city"]).select(PLACE_INTERVALS), OF_THREE)
    assertRows(table.toDF().select("userId", "city"), THREE[4])


def test_h11_equal_rows_are_not_written_again(spark, tmp_path):
    table = places(spark, tmp_path, history=True)
    take(table, 0, SNAPSHOTS[0])
    take(table, 1, SNAPSHOTS[0])
    assertRows(table.versions().select(PLACE_INTERVALS), [(*row, 0, None) for row in SNAPSHOTS[0]])


def test_h11_what_a_partial_extract_lacks_can_be_kept(spark, tmp_path):
    table = places(spark, tmp_path, history=True)
    take(table, 0, SNAPSHOTS[0])
    take(table, 1, SNAPSHOTS[1], missing="keep")
    kept = [(1, "Oaxaca", 0, None) if row[0] == 1 else row for row in SNAPSHOT_TYPE_2]
    assertRows(table.versions().select(PLACE_INTERVALS), kept)


def test_h11_without_history_late_snapshots_are_refused(spark, tmp_path):
    table = places(spark, tmp_path, history=False)
    take(table, 1, SNAPSHOTS[1])
    with pytest.raises(TrinityMergeError, match="history"):
        take(table, 0, SNAPSHOTS[0])
    assertRows(table.toDF().select("userId", "city"), SNAPSHOTS[1])
