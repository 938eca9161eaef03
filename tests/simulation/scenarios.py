"""Who takes part in what is explored.

Owns: the scenarios, each with bounds that let it be explored whole in seconds, and larger ones for ``make simulate``.
"""

from __future__ import annotations

from simulation import programs
from simulation.disk import LOCAL, NETWORK, OBJECTS, SERVERS
from simulation.programs import Acting, Add, Patch, Replace, Upsert
from simulation.states import Scenario
from simulation.table import Row


def rows(*keys: int, at: int, value: int = 1) -> Upsert:
    return Upsert(tuple(Row(k, at, value) for k in keys))


def deletes(*keys: int, at: int) -> Upsert:
    return Upsert(tuple(Row(k, at, 0, True) for k in keys))


def patch(key: int, at: int) -> Patch:
    return Patch(frozenset([key]), at)


def table(*first: Upsert | Patch, **properties: object) -> tuple[Acting, ...]:
    """A table, and what was merged before anything is explored."""
    made = programs.create("cc", **{"minorCompactionAfterBatches": "none", **properties})
    return (made, *(programs.merge(f"s{n}", upsert) for n, upsert in enumerate(first)))


A, B, C, D = "aa", "bb", "dd", "ee"

SMALL = (
    Scenario("two make the same table, and one of them dies", (), (programs.create(A), programs.create(B)), kills=1),
    Scenario(
        "two merges that look up the same key, and a reader",
        table(rows(1, 2, at=1)),
        (programs.merge(A, Add(frozenset([1]), at=5)), programs.merge(B, Add(frozenset([1]), at=6)), programs.read(C)),
    ),
    Scenario(
        "two replays of one transaction",
        table(rows(1, 2, at=1)),
        (
            programs.merge(A, rows(1, at=5, value=2), transaction=("app", 1)),
            programs.merge(B, rows(1, at=5, value=2), transaction=("app", 1)),
        ),
        kills=1,
    ),
    Scenario(
        "a merge that reads everything beside a blind one and a fold",
        table(rows(1, 2, at=1), rows(2, at=2)),
        (programs.merge(A, Replace(1, at=9)), programs.merge(B, rows(3, at=3)), programs.fold(C)),
    ),
    Scenario(
        "a fold, a compaction and a late row beside a new one",
        table(rows(1, 2, at=1), rows(2, 3, at=2), deletes(1, at=3)),
        (programs.fold(A), programs.compact(B), programs.merge(C, rows(1, 4, at=2, value=7))),
    ),
    Scenario(
        "a compaction that forgets a tombstone, and a row older than that",
        table(rows(1, 2, at=1), deletes(1, at=5), tombstoneRetentionHours=0),
        (programs.compact(A), programs.merge(B, rows(1, at=3, value=7)), programs.read(C, times=1)),
        hours=1,
    ),
    Scenario(
        "a power cut while two merge",
        table(rows(1, at=1)),
        (programs.merge(A, rows(1, at=5, value=2)), programs.merge(B, rows(2, at=5))),
        cuts=1,
    ),
    Scenario(
        "a vacuum beside a merge, and a reader",
        (*table(rows(1, at=1), rows(2, at=2)), programs.fold("ff", base_too=True)),
        (programs.vacuum(A, 2.0), programs.merge(B, rows(1, at=5, value=2)), programs.read(C, times=1)),
        hours=3,
    ),
    Scenario(
        "a vacuum while an hour passes",
        (*table(rows(1, at=1), rows(2, at=2)), programs.fold("ff", base_too=True)),
        (programs.vacuum(A, 2.0), programs.merge(B, rows(1, at=5, value=2))),
        hours=3,
        ticks=1,
    ),
    Scenario(
        "a vacuum beside one who reads a past version within its retention",
        table(rows(1, at=1), rows(2, at=2)),
        (programs.vacuum(A, 2.0), programs.read_past(B, 2)),
        later=(programs.fold("ff", base_too=True),),
        hours=4,
    ),
    Scenario(
        "clocks that differ: a compaction five hours behind, a vacuum, and who reads a past version",
        table(rows(1, at=1), rows(2, at=2)),
        (programs.compact(A), programs.vacuum(B, 2.0), programs.read_past(C, 2)),
        hours=4,
        clocks=(-5, 0, 0),
    ),
    Scenario(
        "clocks that differ: a merge five hours behind beside a vacuum",
        (*table(rows(1, at=1), rows(2, at=2)), programs.fold("ff", base_too=True)),
        (programs.merge(A, rows(1, at=5, value=2)), programs.vacuum(B, 2.0)),
        hours=4,
        clocks=(-5, 0),
    ),
    Scenario(
        "a restore beside a merge and a compaction",
        table(rows(1, at=1), rows(1, 2, at=2)),
        (programs.restore(A, 1), programs.merge(B, Add(frozenset([1]), at=9)), programs.compact(C)),
    ),
    Scenario(
        "a purge beside a merge of the purged key",
        table(rows(1, 2, at=1)),
        (programs.erase(A, 1), programs.merge(B, rows(1, at=5, value=2))),
    ),
    Scenario(
        "a purge beside a restore of a version that has the key",
        table(rows(1, 2, at=1), rows(2, at=2)),
        (programs.erase(A, 1), programs.restore(B, 1)),
    ),
    Scenario(
        "a vacuum that keeps nothing beside a merge",
        table(rows(1, at=1), rows(2, at=2)),
        (programs.vacuum(A, 0.0), programs.merge(B, rows(1, at=5, value=2))),
        hours=1,
    ),
    Scenario(
        "a vacuum that keeps nothing beside a compaction",
        table(rows(1, at=1), rows(2, at=2)),
        (programs.vacuum(A, 0.0), programs.compact(B)),
        hours=1,
    ),
    Scenario(
        "a restore beside a vacuum of what it brings back",
        table(rows(1, at=1), rows(2, at=2)),
        (programs.restore(A, 2), programs.vacuum(B, 0.5)),
        later=(programs.compact("ff"),),
        hours=4,
    ),
    Scenario(
        "an alteration beside two merges",
        table(rows(1, at=1)),
        (programs.alter(A), programs.merge(B, Add(frozenset([1]), at=5)), programs.merge(C, rows(2, at=5))),
    ),
    Scenario(
        "a merge that two others overtake",
        table(rows(1, at=1)),
        (
            programs.merge(A, Add(frozenset([1]), at=5)),
            programs.merge(B, rows(2, at=5)),
            programs.merge(C, rows(1, at=4, value=7)),
        ),
    ),
    Scenario(
        "a power cut while some segments are compacted",
        table(rows(1, 2, 3, 4, 5, 6, at=1), rows(2, at=2), targetSegmentBytes=40),
        (programs.compact(A), programs.merge(B, rows(1, at=4))),
        cuts=1,
    ),
    Scenario("a power cut during a purge", table(rows(1, 2, 3, at=1)), (programs.erase(A, 1),), cuts=1),
    Scenario(
        "a compaction of some segments beside a merge and a fold",
        (
            *table(rows(1, 2, 3, 4, 5, 6, at=1), rows(2, at=2), targetSegmentBytes=40),
            programs.compact("ff", full=True),
            programs.merge("s8", rows(6, 7, at=3)),
            programs.merge("s9", rows(6, at=4)),
        ),
        (programs.compact(A), programs.fold(B), programs.merge(C, rows(1, 6, at=3, value=7))),
    ),
    Scenario(
        "lost answers on an object store",
        table(rows(1, at=1)),
        (programs.merge(A, Add(frozenset([1]), at=5)), programs.merge(B, Add(frozenset([1]), at=6))),
        profile=OBJECTS,
        faults=1,
    ),
    Scenario(
        "lost answers on a network mount",
        table(rows(1, at=1), checkpointInterval=2),
        (programs.merge(A, Add(frozenset([1]), at=5)), programs.merge(B, Add(frozenset([1]), at=6))),
        profile=NETWORK,
        faults=1,
    ),
    Scenario(
        "lost answers on HDFS, and a death",
        table(rows(1, at=1), checkpointInterval=2),
        (programs.merge(A, Add(frozenset([1]), at=5)), programs.merge(B, rows(1, at=6), transaction=("app", 1))),
        profile=SERVERS,
        faults=1,
        kills=1,
    ),
    Scenario(
        "a row that leaves its value unset beside a late one that sets it, and a fold",
        table(rows(1, 2, at=1), rows(2, at=2)),
        (programs.merge(A, patch(1, at=9)), programs.merge(B, rows(1, at=5, value=7)), programs.fold(C)),
        kills=1,
    ),
    Scenario(
        "two late rows that set the same value, and a compaction",
        table(rows(1, at=1), patch(1, at=9)),
        (
            programs.merge(A, rows(1, at=5, value=7)),
            programs.merge(B, rows(1, at=6, value=8)),
            programs.compact(C),
        ),
    ),
    Scenario(
        "a compaction that makes a partial row whole, and a row older than that",
        table(rows(1, 2, at=1), patch(1, at=9), tombstoneRetentionHours=0),
        (programs.compact(A), programs.merge(B, rows(1, at=5, value=7)), programs.read(C, times=1)),
        hours=1,
    ),
    Scenario(
        "a restore beside a late row that sets what a partial row leaves unset",
        table(rows(1, at=1), patch(1, at=9), rows(1, 2, at=10)),
        (programs.restore(A, 2), programs.merge(B, rows(1, at=5, value=7))),
    ),
    Scenario(
        "deletion vectors beside a fold and a late row",
        table(rows(1, 2, at=1), rows(2, 3, at=2)),
        (programs.compare(A), programs.fold(B), programs.merge(C, rows(1, at=0))),
    ),
    Scenario(
        "deletion vectors beside a compaction of some segments",
        (
            *table(rows(1, 2, 3, 4, 5, 6, at=1), rows(2, at=2), targetSegmentBytes=40),
            programs.compact("ff", full=True),
            programs.merge("s8", rows(6, 7, at=3)),
            programs.compare("gg"),
            programs.merge("s9", rows(6, at=4)),
        ),
        (programs.compare(A), programs.compact(B)),
    ),
    Scenario(
        "deletion vectors beside a purge",
        (*table(rows(1, 2, at=1), rows(1, at=2)), programs.compare("ff"), programs.merge("s8", rows(2, at=3))),
        (programs.compare(A), programs.erase(B, 1)),
    ),
    Scenario(
        "deletion vectors beside a restore of a version before the rows that replaced others",
        (
            *table(rows(1, 2, at=1), rows(1, at=2)),
            programs.compare("ff"),
            programs.merge("s8", rows(2, at=3)),
            programs.fold("gg"),
        ),
        (programs.compare(A), programs.restore(B, 1), programs.read(C, times=1)),
    ),
    Scenario(
        "deletion vectors beside a restore of a version that has others",
        (*table(rows(1, 2, at=1), rows(1, at=2)), programs.compare("ff"), programs.merge("s8", rows(2, at=3))),
        (programs.compare(A), programs.restore(B, 3), programs.read(C, times=1)),
    ),
    Scenario(
        "deletion vectors beside a vacuum of earlier ones",
        (
            *table(rows(1, 2, at=1), rows(1, at=2)),
            programs.compare("ff"),
            programs.merge("s8", rows(2, at=3)),
            programs.compare("gg"),
        ),
        (programs.vacuum(A, 0.5), programs.read(B, times=1), programs.fold(C)),
        hours=3,
    ),
    Scenario(
        "deletion vectors beside an alteration, and a power cut",
        table(rows(1, 2, at=1), rows(1, at=2), checkpointInterval=2),
        (programs.compare(A), programs.alter(B)),
        cuts=1,
    ),
    Scenario(
        "history: a fold and a compaction beside a merge",
        table(rows(1, 2, at=1), rows(1, at=2), rows(1, 2, at=3), history=True),
        (programs.fold(A), programs.compact(B, full=True), programs.merge(C, rows(1, at=2, value=7))),
    ),
)

_MANY = (
    programs.merge("aa", Add(frozenset([1, 2]), at=50), times=2),
    programs.merge("bb", rows(1, 3, at=40, value=5), times=2),
    programs.merge("dd", deletes(2, at=45)),
    programs.merge("ee", Replace(1, at=60)),
)

_TABLES = (
    (
        "folds and compactions",
        table(
            rows(1, 2, 3, at=1), rows(2, at=2), deletes(3, at=3), minorCompactionAfterBatches=2, checkpointInterval=3
        ),
        (*_MANY, programs.fold("ff"), programs.compact("gg"), programs.read("hh", times=3)),
    ),
    (
        "a restore, a purge, a vacuum and an alteration",
        table(rows(1, 2, at=1), rows(1, at=2), minorCompactionAfterBatches=2, checkpointInterval=2),
        (
            *_MANY[:3],
            programs.restore("ff", 1),
            programs.alter("gg"),
            programs.erase("hh", 3),
            programs.vacuum("ii", 0.0),
        ),
    ),
    (
        "history",
        table(rows(1, 2, at=1), rows(1, at=2), rows(2, at=2), history=True, checkpointInterval=2),
        (*_MANY[:3], programs.fold("ff"), programs.compact("gg", full=True), programs.read("hh", times=2)),
    ),
    (
        "segments",
        table(rows(1, 2, 3, 4, 5, 6, at=1), rows(2, at=2), targetSegmentBytes=40, minorCompactionAfterBatches=3),
        (
            *_MANY[:3],
            programs.compact("ff"),
            programs.compact("gg", full=True),
            programs.fold("hh"),
            programs.read("ii"),
        ),
    ),
)

LARGE = tuple(
    Scenario(f"{name}, on {profile.name}", before, acting, profile, kills=2, cuts=cuts, faults=faults)
    for profile, cuts, faults in ((LOCAL, 1, 0), (NETWORK, 0, 3), (OBJECTS, 0, 3))
    for name, before, acting in _TABLES
)
