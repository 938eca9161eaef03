"""S13: pending rows are sent to the tasks that scan a table, up to some; beyond, all is shuffled, and nobody sees a difference."""

from __future__ import annotations

from zlib import crc32

import pytest
from helpers import assertRows
from tables import fill, frame, live_rows, new_table

from trinitymerge import reader, reader as reader_module
from trinitymerge.history import versions
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.maintenance import archives
from trinitymerge.reader import ReadPlan
from trinitymerge.schema.properties import MINOR_COMPACTION_AFTER_BATCHES
from trinitymerge.spark.system_columns import BATCH
from trinitymerge.stores.column_mapping import version_of_batch

BASE = [(i, 10, "a", False) for i in range(40)]
LATER = [
    [(1, 30, "b", False), (2, 30, None, True), (90, 10, None, True)],
    [(1, 20, "late", False), (2, 20, "late", False), (3, 5, "late", False), (91, 10, "new", False)],
    [(4, 10, "tie", False), (91, 10, None, True), (2, 40, "back", False)],
]
"""Changes, deletes, a row that comes back, deletes of what never was, late rows, and ties, which the later commit wins."""


class Settings:
    """As much of a session as is asked for its memory."""

    def __init__(self, settings):
        self.conf = self
        self.settings = settings

    def get(self, name, default):
        return self.settings.get(name, default)


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, 1_000_000),
        ({"spark.driver.memory": "512m"}, 1_000_000),
        ({"spark.master": "local[2]", "spark.driver.memory": "4g"}, 2_000_000),
        ({"spark.master": "local[2]", "spark.driver.memory": "2560"}, 1_250_000),
        ({"spark.master": "local[2]", "spark.driver.memory": "6 GB"}, 3_000_000),
        ({"spark.master": "local[2]", "spark.driver.memory": "64g"}, 4_000_000),
        ({"spark.master": "local[2]", "spark.driver.memory": "much"}, 1_000_000),
        ({"spark.master": "yarn", "spark.driver.memory": "8g"}, 1_000_000),
        ({"spark.master": "local-cluster[2,1,1024]", "spark.driver.memory": "8g"}, 1_000_000),
        ({"spark.master": "yarn", "spark.driver.memory": "8g", "spark.executor.memory": "4096m"}, 2_000_000),
    ],
)
def test_S13_as_many_rows_are_sent_as_the_smaller_memory_holds(settings, most):
    session = Settings(settings)
    assert reader_module.fits_broadcast(session, most)
    assert not reader_module.fits_broadcast(session, most + 1)
    assert reader_module.fits_broadcast(session, max(most // 2, 1_000_000), times=2)
    assert not reader_module.fits_broadcast(session, max(most // 2, 1_000_000) + 1, times=2)


def test_S13_this_session_tells_its_memory(spark, monkeypatch):
    """Two gigabytes and one machine, on Spark Connect, too."""
    monkeypatch.setattr(reader_module, "MIN_BROADCAST_ROWS", 0)
    assert reader_module.fits_broadcast(spark, 1_000_000)
    assert not reader_module.fits_broadcast(spark, 1_000_001)


@pytest.mark.parametrize("number", [2, 48, 49, 300])
def test_S6_a_row_has_the_version_of_its_batch_however_many_there_are(spark, number):
    ids = {f"{crc32(str(version).encode()):032x}"[::-1]: version for version in range(number)}
    batches = [
        Batch(id=id, rows=version % 7, tombstones=0, files=1, bytes=1, version=version) for id, version in ids.items()
    ]
    rows = frame(spark, f"{BATCH} STRING, version BIGINT", *ids.items(), ("no batch", None))
    assertRows(rows.filter(f"NOT {version_of_batch(batches)} <=> version"), [])


def shuffled(monkeypatch):
    for module in (reader, versions, archives):
        monkeypatch.setattr(module, "fits_broadcast", lambda spark, rows, times=1: False)


def test_S13_what_is_too_much_to_be_sent_is_shuffled(spark, tmp_path, monkeypatch):
    table = fill(new_table(spark, tmp_path, **{"properties": {MINOR_COMPACTION_AFTER_BATCHES: "none"}}), spark, BASE)
    table.compact()
    fill(table, spark, *LATER)
    batches = Batches.of(table._snapshot())
    assert ReadPlan.of(batches, spark) is not None
    sent = live_rows(table)
    shuffled(monkeypatch)
    assert ReadPlan.of(batches, spark) is None
    assertRows(table.toDF(), sent)
    table.compact()
    assertRows(table.toDF(), sent)


@pytest.mark.slow
def test_H2_versions_of_a_table_with_too_much_to_be_sent(spark, tmp_path, monkeypatch):
    """Read and compacted either way, the versions are the same."""
    found = []
    for way in ("sent", "shuffled"):
        if way == "shuffled":
            shuffled(monkeypatch)
        table = fill(new_table(spark, tmp_path / way, history=True), spark, BASE)
        table.compact()
        fill(table, spark, *LATER[:2])
        table.compact()
        fill(table, spark, LATER[2])
        found.append(sorted(map(tuple, table.versions().collect()), key=repr))
        table.compact()
        assert sorted(map(tuple, table.versions().collect()), key=repr) == found[-1], way
    assert found[0] == found[1]
    assert len(found[0]) > len(BASE) + 3
