"""What happened to tables with history, and the versions that must come of it, as data.

The interpreter runs these scenarios, and so can any engine: nothing here runs anything. Rows are tuples in the order of the
table's columns; what is left out at the end is null, and a tombstone column that is left out says "alive". What is fed, rather
than committed as it is, stands in ``fed_histories.py``; what scenarios are made of in ``history_steps.py``.
"""

from __future__ import annotations

from fed_histories import FED
from history_steps import DEAD, NO_WATERMARK, NOW, ONE, PAST, PEOPLE, TWO, Commit, Committed, Scenario

C = Committed

DELETES = [
    Scenario(
        "a version that nothing follows is open",
        ONE,
        [Commit.of((1, 10, "a"))],
        [(1, "a", 10, None, NOW)],
        asOf=((9, ()), (10, ((1, "a"),)), (99, ((1, "a"),))),
    ),
    Scenario(
        "each version ends where the next one begins",
        ONE,
        [Commit.of((2, 15, "x"), (1, 10, "a")), Commit.of((1, 20, "b")), Commit.of((1, 30, "c"))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, 30, PAST), (1, "c", 30, None, NOW), (2, "x", 15, None, NOW)],
        asOf=((12, ((1, "a"),)), (20, ((1, "b"), (2, "x"))), (29, ((1, "b"), (2, "x"))), (30, ((1, "c"), (2, "x")))),
    ),
    Scenario(
        "versions of one batch",
        ONE,
        [Commit.of((1, 30, "c"), (1, 10, "a"), (1, 20, "b"))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, 30, PAST), (1, "c", 30, None, NOW)],
    ),
    Scenario(
        "equal rows at different watermarks are versions of their own",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, "a"))],
        [(1, "a", 10, 20, PAST), (1, "a", 20, None, NOW)],
    ),
    Scenario(
        "a delete ends the version before it and shows no row of its own",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, None, DEAD))],
        [(1, "a", 10, 20, PAST)],
        asOf=((19, ((1, "a"),)), (20, ())),
    ),
    Scenario(
        "a second delete changes nothing",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, None, DEAD)), Commit.of((1, 30, None, DEAD))],
        [(1, "a", 10, 20, PAST)],
    ),
    Scenario("a delete of a key that never was", ONE, [Commit.of((1, 20, None, DEAD))], []),
    Scenario(
        "a key that comes back begins anew",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, None, DEAD)), Commit.of((1, 30, "b"))],
        [(1, "a", 10, 20, PAST), (1, "b", 30, None, NOW)],
        asOf=((25, ()), (30, ((1, "b"),))),
    ),
    Scenario(
        "a key that comes back as it was is two versions, tracked or not",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, None, DEAD)), Commit.of((1, 30, "a"))],
        [(1, "a", 10, 20, PAST), (1, "a", 30, None, NOW)],
        options={"track": ["v"]},
    ),
]

COMMITS = [
    Scenario(
        "without a watermark every commit that wrote the key makes a version",
        NO_WATERMARK,
        [Commit.of((1, "a"), (2, "x")), Commit.of((1, "b")), Commit.of((3, "y")), Commit.of((1, "b"))],
        [
            (1, "a", C(1), C(2), PAST),
            (1, "b", C(2), C(4), PAST),
            (1, "b", C(4), None, NOW),
            (2, "x", C(1), None, NOW),
            (3, "y", C(3), None, NOW),
        ],
    ),
    Scenario(
        "deletes and keys that come back, without a watermark",
        NO_WATERMARK,
        [Commit.of((1, "a")), Commit.of((1, None, DEAD)), Commit.of((2, "x")), Commit.of((1, "b"))],
        [(1, "a", C(1), C(2), PAST), (1, "b", C(4), None, NOW), (2, "x", C(3), None, NOW)],
    ),
]

LATE = [
    Scenario(
        "a late version falls between two others and splits the interval",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 30, "c")), Commit.of((1, 20, "b"))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, 30, PAST), (1, "c", 30, None, NOW)],
    ),
    Scenario(
        "a version that is older than all others",
        ONE,
        [Commit.of((1, 30, "c")), Commit.of((1, 10, "a"))],
        [(1, "a", 10, 30, PAST), (1, "c", 30, None, NOW)],
        asOf=((9, ()), (29, ((1, "a"),))),
    ),
    Scenario(
        "a late tombstone makes a gap",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 30, "c")), Commit.of((1, 20, None, DEAD))],
        [(1, "a", 10, 20, PAST), (1, "c", 30, None, NOW)],
        asOf=((20, ()),),
    ),
    Scenario(
        "a tombstone before all versions is no version",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 5, None, DEAD))],
        [(1, "a", 10, None, NOW)],
    ),
    Scenario(
        "a late version before a delete ends with it",
        ONE,
        [Commit.of((1, 20, None, DEAD)), Commit.of((1, 10, "a"))],
        [(1, "a", 10, 20, PAST)],
    ),
    Scenario(
        "a late version within a gap",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, None, DEAD)), Commit.of((1, 40, "d")), Commit.of((1, 30, "c"))],
        [(1, "a", 10, 20, PAST), (1, "c", 30, 40, PAST), (1, "d", 40, None, NOW)],
    ),
]

CORRECTIONS = [
    Scenario(
        "of equal watermarks the last committed is the version",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, "b")), Commit.of((1, 20, "B"))],
        [(1, "a", 10, 20, PAST), (1, "B", 20, None, NOW)],
    ),
    Scenario(
        "a correction of a version that is past",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, "b")), Commit.of((1, 10, "A"))],
        [(1, "A", 10, 20, PAST), (1, "b", 20, None, NOW)],
    ),
    Scenario(
        "a correction by a delete takes the version back and ends the one before",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, "b")), Commit.of((1, 20, None, DEAD))],
        [(1, "a", 10, 20, PAST)],
    ),
    Scenario(
        "a correction by a delete of a version that is past",
        ONE,
        [Commit.of((1, 10, "a"), (1, 20, "b"), (1, 30, "c")), Commit.of((1, 20, None, DEAD))],
        [(1, "a", 10, 20, PAST), (1, "c", 30, None, NOW)],
    ),
    Scenario(
        "a correction by a delete of the first version",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, "b")), Commit.of((1, 10, None, DEAD))],
        [(1, "b", 20, None, NOW)],
    ),
    Scenario(
        "a correction by a delete of the only version",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 10, None, DEAD))],
        [],
    ),
    Scenario(
        "a row at a delete's watermark corrects the delete",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 20, None, DEAD)), Commit.of((1, 20, "b"))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, None, NOW)],
    ),
    Scenario(
        "a correction of a correction",
        ONE,
        [Commit.of((1, 10, "a")), Commit.of((1, 10, None, DEAD)), Commit.of((1, 10, "A"))],
        [(1, "A", 10, None, NOW)],
    ),
]

NULLS = [
    Scenario(
        "null is the smallest watermark: valid from the beginning",
        ONE,
        [Commit.of((1, 10, "b")), Commit.of((1, None, "a"))],
        [(1, "a", None, 10, PAST), (1, "b", 10, None, NOW)],
        asOf=((-(2**31), ((1, "a"),)), (10, ((1, "b"),))),
    ),
    Scenario(
        "a null watermark alone",
        ONE,
        [Commit.of((1, None, "a"))],
        [(1, "a", None, None, NOW)],
        asOf=((0, ((1, "a"),)),),
    ),
    Scenario(
        "null watermarks are equal",
        ONE,
        [Commit.of((1, None, "a")), Commit.of((1, None, "A"))],
        [(1, "A", None, None, NOW)],
    ),
    Scenario(
        "a tombstone from the beginning",
        ONE,
        [Commit.of((1, None, None, DEAD)), Commit.of((1, 10, "a"))],
        [(1, "a", 10, None, NOW)],
    ),
]

COMPOSITE = [
    Scenario(
        "the first column of a composite watermark is the time, the rest orders what begins at the same instant",
        TWO,
        [Commit.of((1, 2, 1, "c")), Commit.of((1, 1, 2, "b"), (1, 1, 1, "a"))],
        [(1, "b", 1, 2, PAST), (1, "c", 2, None, NOW)],
        asOf=((1, ((1, "b"),)), (2, ((1, "c"),))),
    ),
    Scenario(
        "empty intervals",
        TWO,
        [Commit.of((1, 2, 1, "c")), Commit.of((1, 1, 2, "b"), (1, 1, 1, "a"))],
        [(1, "a", 1, 1, PAST), (1, "b", 1, 2, PAST), (1, "c", 2, None, NOW)],
        options={"emptyIntervals": True},
    ),
    Scenario(
        "a late version with a smaller rest is an empty interval",
        TWO,
        [Commit.of((1, 1, 2, "b")), Commit.of((1, 1, 1, "a"))],
        [(1, "b", 1, None, NOW)],
    ),
    Scenario(
        "deleted and back at the same instant",
        TWO,
        [Commit.of((1, 1, 1, "a")), Commit.of((1, 2, 1, None, DEAD)), Commit.of((1, 2, 2, "b"))],
        [(1, "a", 1, 2, PAST), (1, "b", 2, None, NOW)],
    ),
    Scenario(
        "written and deleted at the same instant",
        TWO,
        [Commit.of((1, 1, 1, "a")), Commit.of((1, 1, 2, None, DEAD))],
        [],
    ),
    Scenario(
        "written and deleted at the same instant, empty intervals shown",
        TWO,
        [Commit.of((1, 1, 1, "a")), Commit.of((1, 1, 2, None, DEAD))],
        [(1, "a", 1, 1, PAST)],
        options={"emptyIntervals": True},
    ),
    Scenario(
        "nulls in a composite watermark",
        TWO,
        [Commit.of((1, None, 7, "b")), Commit.of((1, None, None, "a")), Commit.of((1, 1, None, "c"))],
        [(1, "b", None, 1, PAST), (1, "c", 1, None, NOW)],
        asOf=((0, ((1, "b"),)), (1, ((1, "c"),))),
    ),
    Scenario(
        "an empty interval that begins and ends with null is not current",
        TWO,
        [Commit.of((1, None, 7, "b"), (1, None, None, "a"))],
        [(1, "a", None, None, PAST), (1, "b", None, -1, NOW)],
        options={"emptyIntervals": True, "openEnd": -1},
    ),
]

MOVED_TWICE = Commit.of((1, 10, "Rome", "1"), (1, 20, "Rome", "2"), (1, 30, "Oslo", "2"), (1, 40, "Rome", "2"))

TRACKED = [
    Scenario(
        "versions that agree in the tracked columns are one, with the other columns as the last has them",
        PEOPLE,
        [MOVED_TWICE],
        [
            (1, 20, "Rome", "2", 10, 30, PAST),
            (1, 30, "Oslo", "2", 30, 40, PAST),
            (1, 40, "Rome", "2", 40, None, NOW),
        ],
        columns=("id", "ts", "city", "phone"),
        options={"track": "city"},
    ),
    Scenario(
        "tracked in all columns but one",
        PEOPLE,
        [MOVED_TWICE],
        [(1, 10, "Rome", "1", 10, 20, PAST), (1, 40, "Rome", "2", 20, None, NOW)],
        columns=("id", "ts", "city", "phone"),
        options={"exceptColumns": ["city"]},
    ),
    Scenario(
        "tracked in all columns",
        PEOPLE,
        [Commit.of((1, 10, "Rome", "1"), (1, 20, "Rome", "1"), (1, 30, "Rome", "2"))],
        [(1, "Rome", "1", 10, 30, PAST), (1, "Rome", "2", 30, None, NOW)],
        columns=("id", "city", "phone"),
        options={"track": "*"},
    ),
    Scenario(
        "in no column",
        PEOPLE,
        [MOVED_TWICE],
        [(1, "Rome", "2", 10, None, NOW)],
        columns=("id", "city", "phone"),
        options={"track": []},
    ),
    Scenario(
        "nulls are equal, and nothing else is equal to null",
        PEOPLE,
        [Commit.of((1, 10, None, "1"), (1, 20, None, "2"), (1, 30, "Rome", "2"), (1, 40, None, "2"))],
        [(1, None, 10, 30, PAST), (1, "Rome", 30, 40, PAST), (1, None, 40, None, NOW)],
        columns=("id", "city"),
        options={"track": ["CITY"]},
    ),
    Scenario(
        "keys are never merged with each other",
        PEOPLE,
        [Commit.of((1, 10, "Rome"), (2, 20, "Rome"))],
        [(1, "Rome", 10, None, NOW), (2, "Rome", 20, None, NOW)],
        columns=("id", "city"),
        options={"track": ["city"]},
    ),
    Scenario(
        "never across a gap",
        PEOPLE,
        [Commit.of((1, 10, "Rome"), (1, 20, "Rome"), (1, 30, None, None, DEAD), (1, 40, "Rome"), (1, 50, "Rome"))],
        [(1, "Rome", 10, 30, PAST), (1, "Rome", 40, None, NOW)],
        columns=("id", "city"),
        options={"track": ["city"]},
    ),
    Scenario(
        "the watermark is shown once where validFrom is its name",
        PEOPLE,
        [MOVED_TWICE],
        [(1, "Rome", 10, 30, PAST), (1, "Oslo", 30, 40, PAST), (1, "Rome", 40, None, NOW)],
        columns=("id", "city"),
        options={"track": ["city"], "validFrom": "ts"},
    ),
    Scenario(
        "empty intervals are left out before versions are merged",
        TWO,
        [Commit.of((1, 1, 1, "a"), (1, 2, 1, "b"), (1, 2, 2, "a"))],
        [(1, "a", 1, None, NOW)],
        options={"track": ["v"]},
    ),
    Scenario(
        "and so is a gap that is empty",
        TWO,
        [Commit.of((1, 1, 1, "a"), (1, 2, 1, None, DEAD), (1, 2, 2, "a"))],
        [(1, "a", 1, None, NOW)],
        options={"track": ["v"]},
    ),
    Scenario(
        "empty intervals that are shown are versions like others",
        TWO,
        [Commit.of((1, 1, 1, "a"), (1, 1, 2, "a"), (1, 2, 1, "b"), (1, 2, 2, "a"))],
        [(1, "a", 1, 2, PAST), (1, "b", 2, 2, PAST), (1, "a", 2, None, NOW)],
        options={"track": ["v"], "emptyIntervals": True},
    ),
]

OPEN_ENDS = [
    Scenario(
        "a value in place of null where a version is open",
        ONE,
        [Commit.of((1, 10, "a"), (1, 20, "b"), (2, 10, "x"), (2, 20, None, DEAD))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, 9999, NOW), (2, "x", 10, 20, PAST)],
        options={"openEnd": 9999},
    ),
    Scenario(
        "other names for the interval",
        ONE,
        [Commit.of((1, 10, "a"))],
        [(1, "a", 10, None, NOW)],
        options={"validFrom": "since", "validTo": "until", "current": "is_current"},
    ),
]

SCENARIOS: tuple[Scenario, ...] = (
    *DELETES,
    *COMMITS,
    *LATE,
    *CORRECTIONS,
    *NULLS,
    *COMPOSITE,
    *TRACKED,
    *OPEN_ENDS,
    *FED,
)
