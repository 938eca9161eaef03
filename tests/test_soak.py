"""S33, S35, S38, S39 under load: the soak of `make soak`, for a minute."""

from __future__ import annotations

import random

import pytest
import soak


def test_the_model_follows_the_rules():
    model = soak.Model(dict.fromkeys(range(soak.ACCOUNTS + 1), (0, 0)))
    key = soak.ACCOUNTS + 1
    for kind, ts, n in (("set", 10, 1), ("delete", 20, 0), ("set", 15, 2), ("insert", 15, 3), ("insert", 20, 4)):
        model.apply({"kind": kind, "key": key, "ts": ts, "n": n})
    assert model.live()[-1] == (key, 20, 4, False), "late rows lose to a tombstone, equal ones revive the key"
    for _ in range(100):
        model.apply(soak.decide(random.Random(7)))
    soak.check([row[:3] for row in model.live()])


def test_growing_memory_is_noticed():
    flat = [{"python": 100.0, "heap": 50.0 + i % 3} for i in range(9)]
    rising = [{"python": 100.0, "heap": 50.0 + 40 * i} for i in range(9)]
    assert soak.growth([{"memory": flat}], ("python", "heap")) == []
    assert soak.growth([{"memory": flat}, {"memory": rising}], ("heap",)) == [
        "MEMORY GROWS: writer 2, heap: 170 -> 290 MB"
    ]


@pytest.mark.long
def test_s35_four_writers_two_readers_compaction_and_vacuum(spark, tmp_path):
    report = soak.soak(spark, tmp_path, 60, share=spark)
    print(*report.lines(), sep="\n")
    assert report.compactions > 0
    assert report.reads > 0
    assert all(writer["merges"] > 0 for writer in report.writers)
    assert report.growth == []
