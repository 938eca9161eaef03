"""What is fed to tables with history: merges, events and extracts, and the versions that must come of it. See ``histories.py``."""

from __future__ import annotations

from typing import Any

from history_steps import (
    NO_WATERMARK,
    NOW,
    ONE,
    ORDINARY,
    PAST,
    PEOPLE,
    TWO,
    Changes,
    Commit,
    Committed,
    DeleteWhere,
    Merge,
    Refused,
    Scenario,
    Snapshot,
    Source,
    UpdateWhere,
    Values,
)

from trinitymerge.errors import AmbiguousMergeError, InvalidMergeError, NullKeyError
from trinitymerge.merge.model.clauses import All, Assignments, Delete, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.testing.model.expressions import Expr, eq, literal, target

C = Committed

UPSERT = (WhenMatched(None, [Update(All())]), WhenNotMatched(None, [Insert(All())]))
DELETE = (WhenMatched(None, [Delete()]),)
KEY_1 = eq(target("id"), literal(1))
TO_B = {"v": literal("b")}
FORCE = {"onStale": "force"}

MERGES = [
    Scenario(
        "updates and deletes of a table without a watermark need no dates",
        NO_WATERMARK,
        [
            Merge(Source.of("id:integer v:string deleted:boolean", (1, "a", False), (2, "x", False)), UPSERT),
            UpdateWhere(KEY_1, TO_B),
            DeleteWhere(KEY_1),
            Merge(Source.of("id:integer v:string deleted:boolean", (1, "c", False)), UPSERT),
        ],
        [(1, "a", C(1), C(2), PAST), (1, "b", C(2), C(3), PAST), (1, "c", C(4), None, NOW), (2, "x", C(1), None, NOW)],
    ),
    Scenario(
        "an update that nobody dates is refused: it would erase a version",
        ONE,
        [
            Commit.of((1, 10, "a")),
            Refused(UpdateWhere(KEY_1, TO_B), InvalidMergeError),
            Refused(
                Merge(Source.of("id:integer", (1,)), (WhenMatched(None, [Update(Assignments(TO_B))]),)),
                InvalidMergeError,
            ),
        ],
        [(1, "a", 10, None, NOW)],
    ),
    Scenario(
        "a delete that nobody dates is refused",
        ONE,
        [
            Commit.of((1, 10, "a")),
            Refused(DeleteWhere(KEY_1), InvalidMergeError),
            Refused(Merge(Source.of("id:integer", (1,)), DELETE), InvalidMergeError),
        ],
        [(1, "a", 10, None, NOW)],
    ),
    Scenario(
        "a merge whose source has a part of the watermark only is refused",
        TWO,
        [
            Commit.of((1, 1, 1, "a")),
            Refused(Merge(Source.of("id:integer day:integer", (1, 2)), DELETE), InvalidMergeError),
        ],
        [(1, "a", 1, None, NOW)],
    ),
    Scenario(
        "at dates an update",
        ONE,
        [Commit.of((1, 10, "a")), UpdateWhere(KEY_1, TO_B, {"at": 20})],
        [(1, "a", 10, 20, PAST), (1, "b", 20, None, NOW)],
    ),
    Scenario(
        "at dates a delete",
        ONE,
        [Commit.of((1, 10, "a"), (2, 10, "x")), DeleteWhere(KEY_1, {"at": 20})],
        [(1, "a", 10, 20, PAST), (2, "x", 10, None, NOW)],
    ),
    Scenario(
        "at dates a delete of a key that is not there",
        ONE,
        [Merge(Source.of("id:integer", (1,)), DELETE, {"at": 20}), Commit.of((1, 10, "a"))],
        [(1, "a", 10, 20, PAST)],
    ),
    Scenario(
        "what the map or the source dates, at does not",
        ONE,
        [
            Commit.of((1, 10, "a"), (2, 10, "x")),
            UpdateWhere(KEY_1, {**TO_B, "ts": literal(15)}, {"at": 20}),
            Merge(Source.of("id:integer ts:integer", (2, 16)), DELETE, {"at": 20}),
        ],
        [(1, "a", 10, 15, PAST), (1, "b", 15, None, NOW), (2, "x", 10, 16, PAST)],
    ),
    Scenario(
        "at of a composite watermark",
        TWO,
        [Commit.of((1, 1, 1, "a")), UpdateWhere(KEY_1, TO_B, {"at": (2, 7)})],
        [(1, 1, 1, "a", 1, 2, PAST), (1, 2, 7, "b", 2, None, NOW)],
        columns=("id", "day", "seq", "v"),
    ),
    Scenario(
        "an update at a time that is past is a late version",
        ONE,
        [Commit.of((1, 10, "a")), UpdateWhere(KEY_1, TO_B, {"at": 5})],
        [(1, "b", 5, 10, PAST), (1, "a", 10, None, NOW)],
    ),
    Scenario(
        "force makes an update a correction",
        ONE,
        [Commit.of((1, 10, "x"), (1, 20, "a")), UpdateWhere(KEY_1, TO_B, FORCE)],
        [(1, "x", 10, 20, PAST), (1, "b", 20, None, NOW)],
    ),
    Scenario(
        "force makes a delete take the version back",
        ONE,
        [Commit.of((1, 10, "x"), (1, 20, "a")), DeleteWhere(KEY_1, FORCE)],
        [(1, "x", 10, 20, PAST)],
    ),
    Scenario(
        "history does not follow a moved key: the old one ends, the new one begins",
        ONE,
        [Commit.of((1, 10, "a")), UpdateWhere(KEY_1, {"id": literal(2)}, {"at": 20})],
        [(1, "a", 10, 20, PAST), (2, "a", 20, None, NOW)],
    ),
    Scenario(
        "a key that moves there and back",
        ONE,
        [
            Commit.of((1, 10, "a")),
            UpdateWhere(KEY_1, {"id": literal(2)}, {"at": 20}),
            UpdateWhere(eq(target("id"), literal(2)), {"id": literal(1)}, {"at": 30}),
        ],
        [(1, "a", 10, 20, PAST), (1, "a", 30, None, NOW), (2, "a", 20, 30, PAST)],
    ),
    Scenario(
        "a move without a watermark",
        NO_WATERMARK,
        [Commit.of((1, "a")), UpdateWhere(KEY_1, {"id": literal(2)})],
        [(1, "a", C(1), C(2), PAST), (2, "a", C(2), None, NOW)],
    ),
]

EVENT = "id:integer ts:integer v:string op:string"
IS_DELETE = Expr("op = 'D'", lambda _, row: row["op"] == "D")
IS_TRUNCATE = Expr("op = 'T'", lambda _, row: row["op"] == "T")


def _changes(*rows: Values, columns: str = EVENT, **options: Any) -> Changes:
    return Changes(Source(columns, rows), {"applyAsDeletes": IS_DELETE, **options})


def _truncating(*rows: Values) -> Changes:
    return _changes(*rows, applyAsTruncates=IS_TRUNCATE)


INSERTED, UPDATED, DELETED, BACK = (1, 10, "a", "I"), (1, 20, "b", "U"), (1, 30, None, "D"), (1, 40, "d", "I")
LIFE = [(1, "a", 10, 20, PAST), (1, "b", 20, 30, PAST), (1, "d", 40, None, NOW)]

CHANGES = [
    Scenario("changes in order", ONE, [_changes(row) for row in (INSERTED, UPDATED, DELETED, BACK)], LIFE),
    Scenario("changes in one batch", ONE, [_changes(BACK, DELETED, UPDATED, INSERTED)], LIFE),
    Scenario("changes in reverse", ONE, [_changes(row) for row in (BACK, DELETED, UPDATED, INSERTED)], LIFE),
    Scenario("a late delete", ONE, [_changes(INSERTED, UPDATED, BACK), _changes(DELETED)], LIFE),
    Scenario("a delete that comes first", ONE, [_changes(DELETED), _changes(UPDATED, INSERTED), _changes(BACK)], LIFE),
    Scenario(
        "changes that come twice",
        ONE,
        [_changes(BACK, DELETED, INSERTED, UPDATED, BACK), _changes(UPDATED, DELETED)],
        LIFE,
    ),
    Scenario(
        "an event at a sequence that is taken is a correction",
        ONE,
        [_changes(INSERTED, UPDATED), _changes((1, 20, "B", "U")), _changes((1, 10, None, "D"))],
        [(1, "B", 20, None, NOW)],
    ),
    Scenario(
        "different events at one sequence in a batch contradict each other",
        ONE,
        [_changes(INSERTED), Refused(_changes(UPDATED, (1, 20, None, "D")), AmbiguousMergeError)],
        [(1, "a", 10, None, NOW)],
    ),
    Scenario(
        "an event without a sequence or a row without a key is refused",
        ONE,
        [Refused(_changes((1, None, None, "D")), NullKeyError), Refused(_changes((None, 10, "a", "I")), NullKeyError)],
        [],
    ),
    Scenario(
        "a sequence of another name",
        ONE,
        [
            _changes(
                (1, 10, "a", "I"), (1, 20, None, "D"), columns="id:integer n:integer v:string op:string", sequenceBy="n"
            )
        ],
        [(1, 10, "a", 10, 20, PAST)],
        columns=("id", "ts", "v"),
    ),
    Scenario(
        "a sequence of two columns",
        TWO,
        [
            _changes(
                (1, 1, 1, "a", "I"),
                (1, 1, 2, "b", "U"),
                (1, 2, 1, None, "D"),
                columns="id:integer d:integer n:integer v:string op:string",
                sequenceBy=["d", "n"],
            )
        ],
        [(1, "b", 1, 2, PAST)],
    ),
    Scenario(
        "the sequence is refused where the table declares none, or another number of columns",
        NO_WATERMARK,
        [Refused(_changes(INSERTED, sequenceBy="ts"), InvalidMergeError)],
        [],
    ),
    Scenario(
        "changes of a table without a watermark are in the order of commits",
        NO_WATERMARK,
        [_changes(INSERTED), _changes(UPDATED), _changes(DELETED), _changes(BACK)],
        [(1, "a", C(1), C(2), PAST), (1, "b", C(2), C(3), PAST), (1, "d", C(4), None, NOW)],
    ),
    Scenario(
        "columns that are left out are null",
        ONE,
        [_changes(INSERTED), _changes((1, 20, "b", "U"), exceptColumns=["v"])],
        [(1, "a", 10, 20, PAST), (1, None, 20, None, NOW)],
    ),
    Scenario(
        "columns that are listed, the key and the sequence besides",
        PEOPLE,
        [
            Changes(
                Source.of("id:integer ts:integer city:string", (1, 10, "Rome")),
                {"columns": ["city"]},
            )
        ],
        [(1, "Rome", None, 10, None, NOW)],
        columns=("id", "city", "phone"),
    ),
    Scenario(
        "a truncate ends what holds at its place",
        ONE,
        [_changes((1, 10, "a", "I"), (1, 30, "c", "U"), (2, 15, "b", "I")), _truncating((0, 20, None, "T"))],
        [(1, "a", 10, 20, PAST), (1, "c", 30, None, NOW), (2, "b", 15, 20, PAST)],
    ),
    Scenario(
        "a truncate ends what comes after it, and is from before it",
        ONE,
        [_truncating((0, 20, None, "T"), (0, 40, None, "T")), _changes((1, 10, "a", "I"), (2, 30, "b", "I"))],
        [(1, "a", 10, 20, PAST), (2, "b", 30, 40, PAST)],
    ),
    Scenario(
        "a late row ends at the truncate, and leaves the row that is there",
        ONE,
        [
            _truncating((0, 20, None, "T")),
            _changes((1, 20, "b", "I")),
            _changes((1, 10, "a", "I"), (2, 10, "c", "I"), (2, 20, "d", "I")),
        ],
        [(1, "a", 10, 20, PAST), (1, "b", 20, None, NOW), (2, "c", 10, 20, PAST), (2, "d", 20, None, NOW)],
    ),
    Scenario(
        "truncates come in any order",
        ONE,
        [
            _truncating((0, 40, None, "T")),
            _changes((1, 10, "a", "I"), (1, 45, "d", "I")),
            _truncating((0, 20, None, "T"), (1, 30, "c", "I")),
        ],
        [(1, "a", 10, 20, PAST), (1, "c", 30, 40, PAST), (1, "d", 45, None, NOW)],
    ),
]


def _snapshot(at: Any, *rows: Values, missing: str = "delete") -> Snapshot:
    return Snapshot(Source("id:integer v:string", rows), at, missing)


TYPE_1 = [
    Scenario(
        "changes of an ordinary table",
        ORDINARY,
        [_changes(BACK, INSERTED, (2, 5, "x", "I")), _changes(DELETED)],
        [(1, "d"), (2, "x")],
    ),
    Scenario(
        "a truncate deletes live keys that are not fresher",
        ORDINARY,
        [_changes((1, 10, "a", "I"), (2, 20, "b", "I"), (3, 30, "c", "I")), _truncating((None, 20, None, "T"))],
        [(3, "c")],
    ),
    Scenario(
        "a truncate deletes what its batch has of earlier events",
        ORDINARY,
        [_truncating((1, 10, "a", "I"), (2, 20, "b", "I"), (3, 30, "c", "I"), (None, 20, None, "T"))],
        [(3, "c")],
    ),
    Scenario(
        "a key that a truncate deleted stays so for earlier events",
        ORDINARY,
        [_changes((1, 10, "a", "I")), _truncating((0, 20, None, "T")), _changes((1, 15, "b", "U"))],
        [],
    ),
    Scenario(
        "a truncate is remembered",
        ORDINARY,
        [_truncating((0, 20, None, "T")), _changes((1, 15, "b", "U"), (2, 21, "c", "I"))],
        [(2, "c")],
    ),
    Scenario(
        "late snapshots are refused without history",
        ORDINARY,
        [
            _snapshot(20, (1, "a")),
            Refused(_snapshot(10, (1, "b")), InvalidMergeError),
        ],
        [(1, "a")],
    ),
    Scenario(
        "snapshots of an ordinary table",
        ORDINARY,
        [
            _snapshot(10, (1, "a"), (2, "x")),
            _snapshot(20, (1, "b"), (3, "y")),
        ],
        [(1, "b"), (3, "y")],
    ),
]

PART = "id:integer ts:integer city:string phone:string op:string"


def _partly(*rows: Values, nulls: Any = True) -> Changes:
    return _changes(*rows, columns=PART, ignoreNullUpdates=nulls)


IGNORED_NULLS = [
    Scenario(
        "nulls are filled from the version before, in the order of the sequence",
        PEOPLE,
        [_partly((1, 10, "Rome", "1", "I")), _partly((1, 30, None, "3", "U"), (1, 20, "Oslo", None, "U"))],
        [(1, "Rome", "1", 10, 20, PAST), (1, "Oslo", "1", 20, 30, PAST), (1, "Oslo", "3", 30, None, NOW)],
        columns=("id", "city", "phone"),
    ),
    Scenario(
        "never across a tombstone",
        PEOPLE,
        [
            _partly((1, 10, "Rome", "1", "I")),
            _partly((1, 20, None, None, "D"), (1, 30, None, "3", "I")),
            _partly((1, 15, None, "2", "U")),
        ],
        [(1, "Rome", "1", 10, 15, PAST), (1, "Rome", "2", 15, 20, PAST), (1, None, "3", 30, None, NOW)],
        columns=("id", "city", "phone"),
    ),
    Scenario(
        "a late event mends the later versions that leave its columns unset",
        PEOPLE,
        [_partly((1, 10, "Rome", "1", "I")), _partly((1, 30, None, "3", "U")), _partly((1, 20, "Oslo", None, "U"))],
        [(1, "Rome", "1", 10, 20, PAST), (1, "Oslo", "1", 20, 30, PAST), (1, "Oslo", "3", 30, None, NOW)],
        columns=("id", "city", "phone"),
    ),
    Scenario(
        "a correction fills from what it corrects",
        PEOPLE,
        [_partly((1, 10, "Rome", "1", "I"), (1, 20, "Oslo", "2", "U")), _partly((1, 20, None, "3", "U"))],
        [(1, "Rome", "1", 10, 20, PAST), (1, "Oslo", "3", 20, None, NOW)],
        columns=("id", "city", "phone"),
    ),
    Scenario(
        "in the columns that are named",
        PEOPLE,
        [_partly((1, 10, "Rome", "1", "I")), _partly((1, 20, None, None, "U"), nulls=["city"])],
        [(1, "Rome", "1", 10, 20, PAST), (1, "Rome", None, 20, None, NOW)],
        columns=("id", "city", "phone"),
    ),
]


SNAPSHOTS = [
    Scenario(
        "equal rows are not written, and keys that have gone are deleted",
        ONE,
        [
            _snapshot(10, (1, "a"), (2, "x")),
            _snapshot(20, (1, "a"), (3, "y")),
            _snapshot(30, (1, "b"), (2, "x"), (3, "y")),
        ],
        [
            (1, "a", 10, 30, PAST),
            (1, "b", 30, None, NOW),
            (2, "x", 10, 20, PAST),
            (2, "x", 30, None, NOW),
            (3, "y", 20, None, NOW),
        ],
    ),
    Scenario(
        "keys that have gone are kept",
        ONE,
        [_snapshot(10, (1, "a"), (2, "x")), _snapshot(20, (1, "b"), missing="keep")],
        [(1, "a", 10, 20, PAST), (1, "b", 20, None, NOW), (2, "x", 10, None, NOW)],
    ),
    Scenario("nulls are equal", ONE, [_snapshot(10, (1, None)), _snapshot(20, (1, None))], [(1, None, 10, None, NOW)]),
    Scenario(
        "an empty extract is none",
        ONE,
        [_snapshot(10, (1, "a")), _snapshot(20), _snapshot(15, (1, "b"))],
        [(1, "a", 10, 15, PAST), (1, "b", 15, None, NOW)],
    ),
    Scenario(
        "a late snapshot holds until the next one",
        ONE,
        [_snapshot(10, (1, "a"), (2, "x")), _snapshot(30, (1, "a"), (2, "x")), _snapshot(20, (1, "b"), (3, "y"))],
        [
            (1, "a", 10, 20, PAST),
            (1, "b", 20, 30, PAST),
            (1, "a", 30, None, NOW),
            (2, "x", 10, 20, PAST),
            (2, "x", 30, None, NOW),
            (3, "y", 20, 30, PAST),
        ],
    ),
    Scenario(
        "a late snapshot before all others",
        ONE,
        [_snapshot(20, (1, "b")), _snapshot(10, (1, "a"), (2, "x"))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, None, NOW), (2, "x", 10, 20, PAST)],
    ),
    Scenario(
        "a late snapshot that is like the next one",
        ONE,
        [_snapshot(10, (1, "a")), _snapshot(30, (1, "c")), _snapshot(20, (1, "c"))],
        [(1, "a", 10, 20, PAST), (1, "c", 20, 30, PAST), (1, "c", 30, None, NOW)],
    ),
    Scenario(
        "and with equal rows as one",
        ONE,
        [_snapshot(10, (1, "a")), _snapshot(30, (1, "c")), _snapshot(20, (1, "c"))],
        [(1, "a", 10, 20, PAST), (1, "c", 20, None, NOW)],
        options={"track": ["v"]},
    ),
    Scenario(
        "what another writer stored since is left alone",
        ONE,
        [_snapshot(10, (1, "a")), _snapshot(40, (1, "c")), Commit.of((1, 30, "e")), _snapshot(20, (1, "b"))],
        [(1, "a", 10, 20, PAST), (1, "b", 20, 30, PAST), (1, "e", 30, 40, PAST), (1, "c", 40, None, NOW)],
    ),
    Scenario(
        "a snapshot of a moment that is taken corrects it",
        ONE,
        [
            _snapshot(10, (1, "a"), (2, "x")),
            _snapshot(20, (1, "b"), (2, "x")),
            _snapshot(30, (1, "b"), (2, "x")),
            _snapshot(20, (1, "B"), (3, "y")),
        ],
        [
            (1, "a", 10, 20, PAST),
            (1, "B", 20, 30, PAST),
            (1, "b", 30, None, NOW),
            (2, "x", 10, 20, PAST),
            (2, "x", 30, None, NOW),
            (3, "y", 20, 30, PAST),
        ],
    ),
    Scenario(
        "a key twice is an error, unless the rows are the same",
        ONE,
        [Refused(_snapshot(10, (1, "a"), (1, "b")), AmbiguousMergeError), _snapshot(10, (1, "a"), (1, "a"))],
        [(1, "a", 10, None, NOW)],
    ),
    Scenario("a null key is an error", ONE, [Refused(_snapshot(10, (None, "a")), NullKeyError)], []),
    Scenario("a snapshot needs one watermark", TWO, [Refused(_snapshot(10, (1, "a")), InvalidMergeError)], []),
    Scenario("a snapshot needs a watermark", NO_WATERMARK, [Refused(_snapshot(10, (1, "a")), InvalidMergeError)], []),
]

FED: tuple[Scenario, ...] = (*MERGES, *CHANGES, *TYPE_1, *IGNORED_NULLS, *SNAPSHOTS)
