"""The passes of a merge one by one: ten literal rows each, as a truth table with the row that goes in and what comes out.

A header names the columns, those that go in before the bar: the table's in small letters, others by their name in
``system_columns.py``, with their number at the end. ``A`` and ``B`` are the joined sides.
"""

from __future__ import annotations

import hashlib
import re

import attrs
import pytest
from helpers import assertRows
from pyspark.sql import functions
from tables import fill, frame, new_table

from trinitymerge.log.actions import PurgeKeys
from trinitymerge.log.batches import Batches
from trinitymerge.merge.compile import join
from trinitymerge.merge.compile.fire import FIRE
from trinitymerge.merge.compile.join import FullJoin, MaterializedSource, keyed
from trinitymerge.merge.compile.outbox_rows import outbox_rows_of, with_outbox_columns
from trinitymerge.merge.compile.pipeline import (
    END_AT_TRUNCATES,
    SKIP_PURGED,
    SKIP_TRUNCATED,
    SKIP_UNCHANGED,
    LeftOut,
    Truncates,
)
from trinitymerge.merge.compile.probe import probe
from trinitymerge.merge.compile.resolve_effects import (
    ASSIGN_WATERMARKS,
    COMPUTE_EFFECTS,
    FIND_CONFLICTING_MOVES,
    FIND_KEY_COLLISIONS,
    RESOLVE_KEYS,
    SUPPRESS_INSERTS,
)
from trinitymerge.merge.compile.shape import EVALUATE, EXPLODE, PROJECT, STRIP_TOMBSTONES
from trinitymerge.merge.compile.steps import run
from trinitymerge.merge.compile.strategies import APPEND_ONLY, KEY_LOOKUP, Merge
from trinitymerge.spark import system_columns as C

SOURCE = "id INT, n STRING, at INT, v STRING, op STRING, deleted BOOLEAN"
TYPES = {
    **{"id": "INT", "ts": "INT", "seq": "INT", "v": "STRING", "deleted": "BOOLEAN"},
    **{"A": "STRUCT<id: INT, ts: INT, v: STRING, deleted: BOOLEAN>", "B": f"STRUCT<{SOURCE}>"},
}
OF_A_KEY = ("the key's", "the watermark's")

# The rows that `changes` writes, by their numbers.
MOVE, LEFT, BESIDE_MOVE, KEEP_MOVE, KEEP_LEFT, DELETE, UPDATE, BESIDE_UPDATE, INSERT, RECORDED = range(10)
T, F = True, False


def changes(table, source):
    """Moves with an insert beside them, moves that keep the watermark, deletes, updates with an insert, inserts."""
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'M'")
        .updateExpr({"id": "B.n", "ts": "B.at", "v": "B.v", "deleted": "B.deleted"})
        .insertExpr({"id": "A.id", "ts": "B.at", "v": "'again'"})
        .whenMatched("B.op = 'K'")
        .updateExpr({"id": "B.n"})
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched()
        .updateExpr({"v": "B.v", "ts": "B.at", "deleted": "B.deleted"}, onlyIfChanged=True)
        .insertExpr({"id": "B.n", "ts": "B.at"})
        .whenNotMatched("B.op <> 'D'")
        .insertExpr({"id": "B.id", "ts": "B.at", "v": "B.v", "deleted": "B.deleted"})
    )


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    return new_table(spark, tmp_path_factory.mktemp("passes"))


def program(table, spark, make=changes, on_stale="skip", source=SOURCE, path=KEY_LOOKUP):
    plan = make(table, frame(spark, source)).build()
    merge = Merge(plan.analysis, plan.choice, plan.spec.store, on_stale)
    return path.program(merge, tombstones_possible=True)[1]


def column(word):
    """A column's name and type."""
    if word in TYPES:
        return word, TYPES[word]
    name, numbers = re.fullmatch(r"([A-Z_]+?)(\d*(?:_\d+)?)", word).groups()
    found = getattr(C, name)
    kind = "INT" if found.type in OF_A_KEY else "STRING" if found.type == "the value's" else found.type
    return (found(*map(int, numbers.split("_"))) if numbers else found), kind


def halves(header):
    """The columns that go in, and those that come out."""
    return tuple([column(word) for word in half.split()] for half in header.split("|"))


def rows_of(spark, columns, rows):
    return frame(spark, ", ".join(f"`{name}` {kind}" for name, kind in columns), *rows)


def check(spark, step, subject, header, table):
    """Run a step over the rows left of the bar. What comes out is right of it; other columns are as before, or gone."""
    first, last = halves(header)
    names = [name for name, _ in first]
    rows = rows_of(spark, first, [row[: len(first)] for row in table])
    found, present = run(step if isinstance(step, tuple) else (step,), rows, subject, names)
    assert set(present) <= set(found.columns)
    assert {name for name, _ in last} <= set(found.columns) <= {name for name, _ in (*first, *last)}
    expected = [dict(zip([*names, *(name for name, _ in last)], row, strict=True)) for row in table]
    assertRows(found, [{name: row[name] for name in found.columns} for row in expected])


# Reading --------------------------------------------------------------------------------------------------------------


def of_key(table, source):
    return table.alias("A").merge(source.alias("B"), "A.id = B.id").whenMatched().updateExpr({"v": "B.v"})


def test_S13_S18_T1_keyed_puts_each_source_row_beside_the_latest_row_of_its_key(spark, tmp_path):
    older = [(1, 10, "a", F), (2, 10, "b", F), (3, 30, "c", F), (4, None, "d", F), (5, 10, "e", F)]
    newer = [(2, 20, None, T), (3, 20, "late", F), (4, None, "again", F), (6, 9, None, T)]
    table = fill(new_table(spark, tmp_path), spark, older, newer)
    rows = [
        # the key of the source, its value; the row beside it: id, ts, v; live, watermark, key; watermark beside a truncate at 15
        (1, "x", 1, 10, "a", T, 10, 1, 15),
        (1, "y", 1, 10, "a", T, 10, 1, 15),  # two source rows of a key
        (2, "x", None, None, None, F, 20, 2, 20),  # a tombstone: only its key and watermark are there
        (3, "x", 3, 30, "c", T, 30, 3, 30),  # the fresher row came first
        (4, "x", 4, None, "again", T, None, 4, 15),  # equal watermarks: the later commit
        (6, "x", None, None, None, F, 9, 6, 15),
        (7, "x", None, None, None, None, None, None, 15),  # never written
        (None, "x", None, None, None, None, None, None, 15),  # S20: a null key
        (None, "y", None, None, None, None, None, None, 15),
    ]
    plan = of_key(table, frame(spark, "id INT, v STRING", *[row[:2] for row in rows])).build()
    evaluated = MaterializedSource.of(plan.analysis.source, plan.choice.equalities, table.definition)
    batches = Batches.of(table._store.snapshot())
    for truncated_at, watermark in ((None, 6), ((15,), 8)):
        beside = attrs.evolve(batches, truncated_at=truncated_at)
        found = keyed(plan.analysis, plan.choice.key_match, evaluated, table._store, beside)
        shown = ["B.id", "B.v", "A.id", "A.ts", "A.v", C.LIVE, C.BEFORE(0), C.KEY_COPY(0)]
        expected = [(*row[:6], row[watermark], row[7]) for row in rows]
        assertRows(found.selectExpr(*shown).toDF(*"abcdefgh"), expected)


def test_S17_S18_S19_the_full_join_shows_the_rows_that_some_clause_may_fire_on(spark, tmp_path, monkeypatch):
    stored = [(1, 1, "a", F), (2, 1, "b", F), (3, 1, None, F), (4, 1, "x", F), (5, 1, "b", F), (6, 1, None, T)]
    table = fill(new_table(spark, tmp_path), spark, stored)
    source = frame(spark, "id INT, v STRING", (11, "a"), (12, "b"), (13, "b"), (14, None), (15, "y"), (16, "y"))
    rows = [
        (1, 11),
        *((2, 12), (2, 13), (5, 12), (5, 13)),  # every pair
        *((None, 14), (None, 15), (None, 16)),  # S20: null is equal to nothing
        *((3, None), (4, None)),  # of the target alone; the tombstone never shows
    ]
    merge = table.alias("A").merge(source.alias("B"), "A.v = B.v").whenMatched().delete()
    kinds = {
        "inner": (merge, [row for row in rows if None not in row]),
        "right outer": (merge.whenNotMatched().insertExpr({"id": "B.id"}), [row for row in rows if row[1]]),
        "left outer": (merge.whenNotMatchedBySource().delete(), [row for row in rows if row[0]]),
        "full outer": (merge.whenNotMatched().insertExpr({"id": "B.id"}).whenNotMatchedBySource().delete(), rows),
    }
    batches = Batches.of(table._store.snapshot())
    for kind, (builder, expected) in {**kinds, "full outer, not broadcast": kinds["full outer"]}.items():
        monkeypatch.setattr(join, "BROADCAST_ROWS", 5 if "not" in kind else 6)
        plan = builder.build()
        evaluated = MaterializedSource.of(plan.analysis.source, plan.choice.equalities, table.definition)
        found = FullJoin(plan.analysis, plan.choice.equalities, evaluated, table._store, batches).rows(records=False)
        shown = found.selectExpr("A.id", "B.id", C.LIVE, C.IN_SOURCE).toDF(*"abcd")
        assertRows(shown, [(*row, T if row[0] else None, T if row[1] else None) for row in expected])


# Firing and shaping ---------------------------------------------------------------------------------------------------


def events(table, source):
    """Deletes, upserts, and rows to ignore: sound with every strategy."""
    row = {"id": "B.id", "ts": "B.at", "v": "B.v", "deleted": "B.deleted"}
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched("B.op <> '-'")
        .updateExpr(row)
        .whenNotMatched("B.op NOT IN ('D', '-')")
        .insertExpr(row)
        .whenNotMatched("B.op IS NULL AND B.v = 'late'")
        .insertExpr(row)
    )


def test_S17_S18_S20_fire_marks_each_row_with_the_first_clause_that_applies(table, spark):
    delete, update, insert, late, recorded = range(1, 6)
    # The codes of the same merge without a look at its target: recorded deletes, upserts.
    alone, ahead, undecided = 1, 2, -1
    rows = [
        # B.id, B.op, B.v; LIVE; the code beside the target, 0 if no clause fires; the code without it
        (1, "D", "x", T, delete, alone),
        (1, "D", "x", F, recorded, alone),  # beside a tombstone
        (1, "D", "x", None, recorded, alone),  # beside no row
        (None, "D", "x", None, 0, 0),  # a null key records nothing
        (1, "U", "x", T, update, ahead),
        (1, "U", "x", F, insert, ahead),
        (1, "U", "x", None, insert, ahead),
        (None, "U", "x", None, insert, ahead),  # to be refused
        (1, "-", "x", T, 0, 0),
        (1, "-", "x", None, 0, 0),
        (1, None, "x", T, 0, 0),  # null is not true
        (1, None, "late", None, late, undecided),  # ignored if the key is live
        (1, None, "late", T, 0, undecided),
    ]
    beside, without = (
        program(table, spark, events, source=f"{SOURCE}, ts INT", path=p) for p in (KEY_LOOKUP, APPEND_ONLY)
    )
    sides = [((id, "1", 1, v, op, F), live) for id, op, v, live, *_ in rows]
    columns = [*halves("B LIVE IN_SOURCE | FIRES")[0], ("n", "INT")]
    given = rows_of(spark, columns, [(*side, T, n) for n, side in enumerate(sides)])
    codes = [dict(run((FIRE,), given, p, columns)[0].select("n", C.FIRED).collect()) for p in (beside, without)]
    assert codes[0] == {n: row[4] for n, row in enumerate(rows) if row[4]}
    assert codes[1] == {n: row[5] for n, row in enumerate(rows)}


def checked(table, source):
    """Values that fail on the rows of other clauses."""
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'U'")
        .updateExpr({"ts": "CAST(100 DIV (CAST(B.v AS INT) - 7) AS STRING)"})
        .whenMatched()
        .updateExpr({"v": functions.expr("assert_true(B.v = 'c') IS NULL").cast("string")})
        .whenNotMatched()
        .insertExpr({"id": "B.id", "ts": "B.at"})
    )


def test_S29_S32_evaluate_computes_values_only_on_the_rows_of_their_clause(table, spark):
    rows = [
        # FIRED, the source's value | the value of `ts` of the first update, that of `v` of the second
        (1, "8", "100", None),
        (1, "2", "-20", None),
        (1, None, None, None),
        (2, "c", None, "true"),
        (2, "c", None, "true"),
        (3, "7", None, None),
        (3, "z", None, None),
        (3, None, None, None),
    ]
    table_of_rows = [(n, fired, (n, "1", 1, v, "-", F), *values) for n, (fired, v, *values) in enumerate(rows)]
    check(spark, EVALUATE, program(table, spark, checked), "id FIRED B | RAW0_1 RAW1_2", table_of_rows)


def test_S21_explode_makes_one_row_for_each_row_to_write(table, spark):
    slots = {
        1: [MOVE, LEFT, BESIDE_MOVE],
        2: [KEEP_MOVE, KEEP_LEFT],
        3: [DELETE],
        4: [UPDATE, BESIDE_UPDATE],
        5: [INSERT],
        6: [RECORDED],
    }
    codes = [1, 1, 2, 3, 3, 4, 4, 5, 5, 6]
    given = frame(spark, f"n INT, {C.FIRED} INT", *enumerate(codes))
    found = run((EXPLODE,), given, program(table, spark), [C.FIRED])[0].collect()
    assert sorted((r.n, r[C.SLOT]) for r in found) == [(n, s) for n, code in enumerate(codes) for s in slots[code]]
    assert len({(r.n, r[C.FIRING]) for r in found}) == len({r[C.FIRING] for r in found}) == len(codes)

    rows = [(0, None), (1, 0), (2, 1), (2, 1), (-1, -1)]  # nothing, a delete, an upsert, what depends on the target
    blind = program(table, spark, events, source=f"{SOURCE}, ts INT", path=APPEND_ONLY)
    check(spark, EXPLODE, blind, "FIRED | SLOT", rows)


def test_S9_S22_S23_S24_S29_project_gives_each_row_its_values(table, spark):
    of_slot = {  # its code, clause, and action; the clause whose match it counts
        MOVE: (1, 1, "update", 1),
        LEFT: (1, 1, "delete", None),
        BESIDE_MOVE: (1, 1, "insert", None),
        KEEP_MOVE: (2, 2, "update", 2),
        KEEP_LEFT: (2, 2, "delete", None),
        DELETE: (3, 3, "delete", 3),
        UPDATE: (4, 4, "update", 4),
        BESIDE_UPDATE: (4, 4, "insert", None),
        INSERT: (5, 5, "insert", 5),
        RECORDED: (6, 3, "delete", None),
    }
    cases = [
        # slot, stored v; n, at, v, deleted of the source | id, ts, v, deleted; new key, is it dead there; misfit, late, unchanged
        (MOVE, "old", "7", 5, "new", F, 7, 5, "new", F, 7, F, None, F, F),
        (MOVE, "old", None, 5, "new", T, None, 5, "new", T, None, T, None, F, F),
        (MOVE, "old", "x", 5, "new", F, None, 5, "new", F, None, F, "id\tx", F, F),
        (LEFT, "old", "7", 5, "new", F, 1, 5, None, T, 7, F, None, F, F),
        (LEFT, "old", "x", 5, "new", T, 1, 5, None, T, None, T, None, F, F),
        (BESIDE_MOVE, "old", "7", 5, "new", F, 1, 5, "again", None, None, F, None, F, F),
        (KEEP_MOVE, "old", "7", 5, "new", T, 7, None, "old", F, 7, F, None, F, F),
        (KEEP_LEFT, "old", "7", 5, "new", T, 1, None, None, T, 7, F, None, F, F),
        (DELETE, "old", "7", 5, "new", F, 1, None, None, T, None, F, None, F, F),
        (UPDATE, "old", "7", 5, "new", F, 1, 5, "new", F, None, F, None, F, F),
        (UPDATE, "old", "7", 5, "old", F, 1, 5, "old", F, None, F, None, F, T),
        (UPDATE, "old", "7", 5, "old", None, 1, 5, "old", None, None, F, None, F, F),
        (UPDATE, None, "7", 5, None, F, 1, 5, None, F, None, F, None, F, T),  # null equals null
        (UPDATE, None, "7", 5, "new", F, 1, 5, "new", F, None, F, None, F, F),
        (BESIDE_UPDATE, "old", "7", 5, "new", F, 7, 5, None, None, None, F, None, F, F),
        (BESIDE_UPDATE, "old", "7", 3, "new", F, 7, 3, None, None, None, F, None, F, F),  # as fresh as the pair
        (BESIDE_UPDATE, "old", "7", 2, "new", F, 7, 2, None, None, None, F, None, T, F),
        (INSERT, None, "7", 5, "new", None, 9, 5, "new", None, None, F, None, F, F),
        (RECORDED, None, "7", 5, "new", F, 9, None, None, T, None, F, None, F, F),
    ]
    known = "CLAUSE ACTION COUNTS_FOR_CLAUSE OLD_KEY0"
    header = (
        f"FIRED SLOT FIRING LIVE BEFORE0 A B | {known} "
        "id ts v deleted NEW_KEY0 BECOMES_TOMBSTONE MISFIT IS_STALE_CHANGE UNCHANGED"
    )
    rows = []
    for n, (slot, was, number, at, v, deleted, *values) in enumerate(cases):
        code, *told = of_slot[slot]
        pair = (None, None, None) if slot in (INSERT, RECORDED) else (T, 3, (1, 3, was, F))
        source = (9 if pair[2] is None else 1, number, at, v, "-", deleted)
        rows.append((code, slot, n, *pair, source, *told, None if pair[2] is None else 1, *values))
    check(spark, (EVALUATE, PROJECT), program(table, spark), header, rows)


def test_S9_strip_tombstones_leaves_key_watermark_and_tombstone(spark, tmp_path):
    schema = (
        "id INT, ts INT, v STRING, q INT NOT NULL, s STRUCT<a: INT NOT NULL> NOT NULL, w ARRAY<INT>, deleted STRING"
    )
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", tombstoneKey="deleted", tombstoneStringValue="D")
    upsert = program(table, spark, lambda table, source: table.upsert(source), source=schema)
    names = ["id", "ts", "v", "q", "s", "w", "deleted"]
    rows = [
        # the row, and what is left of v, q, s, w
        ((1, 1, "a", 5, (7,), [1], "D"), (None, 0, (0,), None)),
        ((2, 1, None, None, None, None, "D"), (None, 0, (0,), None)),
        ((3, None, "a", 5, (7,), [], "D"), (None, 0, (0,), None)),
        ((None, 1, "a", 5, (7,), None, "D"), (None, 0, (0,), None)),
        ((4, 1, "a", 5, (7,), [1], "d"), ("a", 5, (7,), [1])),
        ((5, 1, "a", 5, (7,), [1], ""), ("a", 5, (7,), [1])),
        ((6, 1, "a", 5, (7,), [1], None), ("a", 5, (7,), [1])),
        ((7, None, None, 0, (0,), None, None), (None, 0, (0,), None)),
        ((8, 1, None, None, None, None, "I"), (None, None, None, None)),  # S34 refuses it later
    ]
    given = frame(spark, schema.replace(" NOT NULL", ""), *[row for row, _ in rows])
    found = run((STRIP_TOMBSTONES,), given, upsert, names)[0]
    assertRows(found.select(*names), [(*row[:2], *left, row[-1]) for row, left in rows])


# Looking up -----------------------------------------------------------------------------------------------------------


def test_S13_S24_S26_T1_probe_finds_what_the_written_keys_hold(table, spark):
    stored = [(1, 5, "a", F), (2, 6, None, T), (3, None, "c", F), (4, 30, "d", F)]
    rows = [
        # slot, id, new key | the key to look up; the key found, is it live, its watermark; the watermark after a truncate at 15
        (MOVE, 1, 1, 1, 1, T, 5, 15),
        (MOVE, 2, 2, 2, 2, F, 6, 15),
        (MOVE, None, None, None, None, None, None, 15),
        (LEFT, 9, 1, 1, 1, T, 5, 15),  # the key that its row moves to
        (KEEP_LEFT, 9, 4, 4, 4, T, 30, 30),
        (BESIDE_MOVE, 3, None, 3, 3, T, None, 15),
        (BESIDE_MOVE, 8, None, 8, None, None, None, 15),
        (BESIDE_UPDATE, 4, None, 4, 4, T, 30, 30),
        (DELETE, 1, None, None, None, None, None, 15),  # the join has shown these
        (UPDATE, 2, None, None, None, None, None, 15),
        (INSERT, 3, None, None, None, None, None, 15),
        (RECORDED, 4, None, None, None, None, None, 15),
    ]
    subject, asked = program(table, spark), []

    def lookup(keys):
        asked.extend(row[0] for row in keys.collect())
        return frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", *stored)

    first, last = halves("SLOT id NEW_KEY0 | KEY_TO_FIND0 LOOKUP_KEY0 FOUND_LIVE FOUND_WATERMARK0")
    given = rows_of(spark, first, [row[:3] for row in rows])
    for truncated_at, watermark in ((None, 6), ((15,), 7)):
        asked.clear()
        found = probe(given, subject, lookup, Batches(table.definition, (), truncated_at=truncated_at))
        assertRows(found.select(*[name for name, _ in (*first, *last)]), [(*row[:6], row[watermark]) for row in rows])
        assert sorted(asked, key=repr) == sorted([row[3] for row in rows], key=repr)


# Settling -------------------------------------------------------------------------------------------------------------


def test_S24_S26_resolve_keys_shows_what_the_written_key_holds(table, spark):
    header = "SLOT OLD_KEY0 NEW_KEY0 LIVE BEFORE0 FOUND_LIVE FOUND_WATERMARK0 | CHANGED KEY_LIVE KEY_WATERMARK0"
    rows = [
        (MOVE, 1, 2, T, 5, T, 7, T, T, 7),  # the fresher of the row that moves and the row at its new key
        (MOVE, 1, 2, T, 5, F, 3, T, F, 5),
        (MOVE, 1, 2, T, 5, T, 5, T, T, 5),
        (MOVE, 1, 2, T, 5, None, None, T, F, 5),
        (MOVE, 1, 2, T, None, F, 3, T, F, 3),
        (MOVE, 1, None, T, 5, None, None, T, F, 5),
        (MOVE, 1, 1, T, 5, T, 5, F, T, 5),  # the key stays
        (LEFT, 1, 2, T, 5, T, 7, T, T, 7),
        (BESIDE_MOVE, None, None, T, 5, F, 3, F, F, 3),  # an insert replaces the row at its key alone
        (BESIDE_MOVE, None, None, T, 5, None, None, F, F, None),
        (UPDATE, None, None, T, 5, None, None, F, T, 5),  # from the join
        (INSERT, None, None, F, 6, None, None, F, F, 6),
        (RECORDED, None, None, None, None, None, None, F, F, None),
    ]
    check(spark, RESOLVE_KEYS, program(table, spark), header, rows)


def two_watermarks(table, source):
    """Each clause assigns what it can; the source has `ts` and no `seq`."""
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.v = 'D'")
        .delete()
        .whenMatched()
        .updateExpr({"v": "B.v"})
        .whenNotMatched("B.v = 'I'")
        .insertExpr({"id": "B.id", "ts": "B.ts", "seq": "B.n"})
    )


def test_S3_S10_S11_assign_watermarks_fills_what_no_clause_assigns_and_finds_stale_rows(spark, tmp_path):
    schema = "id INT, ts INT, seq INT NOT NULL, v STRING"
    table = new_table(spark, tmp_path, schema, watermarkKey=["ts", "seq"])
    delete, update, insert, recorded = range(4)
    header = "SLOT ts seq BEFORE0 BEFORE1 | ts seq IS_STALE"
    rows = [  # the last two columns: the watermark that the row has instead with "force"
        (update, 6, None, 5, 9, 6, 9, F, 6, 9),
        (update, 5, None, 5, 9, 5, 9, F, 5, 9),  # equal
        (update, 4, None, 5, 9, 4, 9, T, 5, 9),
        (update, None, None, 5, 9, None, 9, T, 5, 9),
        (update, None, None, None, 9, None, 9, F, None, 9),
        (delete, 4, None, 5, 9, 4, 9, T, 5, 9),
        (insert, 5, 8, 5, 9, 5, 8, T, 5, 9),  # over a tombstone; the second column decides
        (insert, 5, 9, 5, 9, 5, 9, F, 5, 9),
        (insert, None, 1, None, None, None, 1, F, None, 1),  # no row at the key
        (recorded, 4, None, 5, 9, 4, 9, F, 4, 9),  # S18: never stale
        (recorded, 4, None, None, None, 4, 0, F, 4, 0),  # S18: zero where null is not allowed
    ]
    source = "id INT, ts INT, n INT, v STRING"
    skip, force = (program(table, spark, two_watermarks, how, source) for how in ("skip", "force"))
    check(spark, ASSIGN_WATERMARKS, skip, header, [row[:8] for row in rows])
    check(spark, ASSIGN_WATERMARKS, force, header, [(*row[:5], *row[8:], F) for row in rows])


def moves(table, source):
    moved = {"id": "B.n", "seq": "B.at"}
    return table.alias("A").merge(source.alias("B"), "A.id = B.id").whenMatched().updateExpr(moved)


def test_S24_assign_watermarks_dates_both_rows_of_a_move(table, spark, tmp_path):
    header = "SLOT ts CHANGED BEFORE0 KEY_WATERMARK0 | ts IS_STALE"
    rows = [  # the last column: the watermark with "force"
        (MOVE, 8, T, 5, 7, 8, F, 8),
        (MOVE, 7, T, 5, 7, 7, F, 7),  # equal
        (MOVE, 6, T, 5, 7, 6, T, 7),  # older than the row at the new key
        (LEFT, 6, T, 5, 7, 6, T, 6),  # stale with its row
        (LEFT, 4, T, 5, 7, 4, T, 7),
        (KEEP_MOVE, None, T, 5, 7, 7, F, 7),
        (KEEP_LEFT, None, T, 5, 7, 5, F, 5),  # from the row before the move alone
        (KEEP_LEFT, None, T, None, 7, None, F, None),
        (BESIDE_MOVE, 4, F, 5, 9, 4, T, 9),
        (BESIDE_MOVE, 4, F, 5, None, 4, F, 4),
        (DELETE, None, F, 5, 5, 5, F, 5),
        (UPDATE, None, F, 5, 5, None, T, 5),
        (RECORDED, None, F, 6, 6, 6, F, 6),
        (RECORDED, None, F, None, None, None, F, None),
    ]
    skip, force = (program(table, spark, on_stale=how, source=SOURCE) for how in ("skip", "force"))
    check(spark, ASSIGN_WATERMARKS, skip, header, [row[:7] for row in rows])
    check(spark, ASSIGN_WATERMARKS, force, header, [(*row[:5], row[7], F) for row in rows])

    schema = "id INT, ts INT, seq INT, v STRING"
    composite = new_table(spark, tmp_path, schema, watermarkKey=["ts", "seq"])
    header = "SLOT ts seq CHANGED BEFORE0 BEFORE1 KEY_WATERMARK0 KEY_WATERMARK1 | ts seq IS_STALE"
    rows = [  # only `seq` is assigned
        (MOVE, None, 9, T, 5, 9, 7, 1, 7, 9, F, 7, 9),
        (LEFT, None, 9, T, 5, 9, 7, 1, 5, 9, F, 5, 9),
        (MOVE, None, 4, T, 5, 9, 7, 1, 7, 4, T, 7, 1),  # stale, because its tombstone is
        (LEFT, None, 4, T, 5, 9, 7, 1, 5, 4, T, 7, 1),
    ]
    skip, force = (program(composite, spark, moves, on_stale=how) for how in ("skip", "force"))
    check(spark, ASSIGN_WATERMARKS, skip, header, [row[:11] for row in rows])
    check(spark, ASSIGN_WATERMARKS, force, header, [(*row[:8], *row[11:], F) for row in rows])


def test_S21a_suppress_inserts_leaves_out_those_beside_stale_changes(table, spark):
    header = "SLOT FIRING IS_STALE IS_STALE_CHANGE | IS_SUPPRESSED"
    rows = [
        (MOVE, 1, T, F, F),
        (LEFT, 1, T, F, F),
        (BESIDE_MOVE, 1, F, F, T),  # beside a stale move
        (MOVE, 2, F, F, F),
        (BESIDE_MOVE, 2, T, F, F),  # only the insert is stale
        (UPDATE, 3, T, F, F),
        (BESIDE_UPDATE, 3, F, T, T),  # beside a stale update
        (UPDATE, 4, F, F, F),
        (BESIDE_UPDATE, 4, T, F, F),
        (DELETE, 5, T, F, F),
        (INSERT, 6, T, None, F),
    ]
    check(spark, SUPPRESS_INSERTS, program(table, spark), header, rows)
    forced = program(table, spark, on_stale="force")
    check(spark, SUPPRESS_INSERTS, forced, header, [(*row[:4], F) for row in rows])


def test_S24_find_conflicting_moves_compares_the_changes_of_each_old_key(table, spark):
    header = "SLOT OLD_KEY0 id ts v deleted CHANGED IS_STALE | IS_CONFLICTING_MOVE IS_REPEATED"
    rows = [
        (MOVE, 1, 10, 5, "a", F, T, F, F, F),  # one move
        (LEFT, 1, 1, 5, None, T, T, F, F, F),
        (INSERT, None, 1, 5, "i", F, F, F, F, F),
        (MOVE, 2, 20, 5, "a", F, T, F, T, F),  # two moves to different keys
        (KEEP_MOVE, 2, 21, 5, "a", F, T, F, T, T),
        (MOVE, 3, 30, 5, "a", F, T, F, F, F),  # the same move twice
        (MOVE, 3, 30, 5, "a", F, T, F, F, T),
        (MOVE, 4, 40, 5, "a", F, T, F, T, F),  # a move and an update
        (UPDATE, 4, 4, 9, "b", F, F, F, T, F),
        (MOVE, 5, 50, 5, "a", F, T, F, F, F),  # the update is stale
        (UPDATE, 5, 5, 1, "b", F, F, T, F, F),
        (UPDATE, 6, 6, 5, "a", F, F, F, F, F),  # no move
        (UPDATE, 6, 6, 5, "b", F, F, F, F, F),
        (KEEP_MOVE, 7, 70, 5, "a", F, T, F, T, F),  # a move and a delete
        (DELETE, 7, 7, 5, None, T, F, F, T, F),
    ]
    check(spark, FIND_CONFLICTING_MOVES, program(table, spark), header, rows)


def test_S25_find_key_collisions_asks_whether_the_merge_frees_the_key(table, spark):
    flags = "CHANGED KEY_LIVE BECOMES_TOMBSTONE IS_STALE IS_SUPPRESSED"
    header = f"id SLOT deleted {flags} | ARRIVES FREED_BY_DELETE FREED_BY_MOVE KEY_TAKEN"
    rows = [
        (1, BESIDE_UPDATE, F, F, T, F, F, F, T, F, F, T),  # at a live key, which stays
        (2, BESIDE_UPDATE, F, F, T, F, F, F, T, T, F, T),
        (2, DELETE, T, F, T, F, F, F, F, T, F, T),
        (3, BESIDE_UPDATE, F, F, T, F, F, F, T, F, F, T),
        (3, DELETE, T, F, T, F, T, F, F, F, F, T),  # a stale delete frees no key
        (4, MOVE, F, T, T, F, F, F, T, F, T, T),  # a move to the key that another leaves
        (4, LEFT, T, T, F, F, F, F, F, F, T, T),
        (5, LEFT, T, T, F, T, F, F, F, T, F, F),  # the row that moves becomes a tombstone
        (6, BESIDE_UPDATE, F, F, T, F, T, F, T, T, F, F),  # a stale insert does not take the key
        (6, DELETE, T, F, T, F, F, F, F, T, F, F),
        (7, BESIDE_UPDATE, F, F, T, F, F, T, F, F, F, F),  # suppressed
        (8, MOVE, F, F, T, F, F, F, F, F, F, F),  # the key stays
        (9, MOVE, F, T, T, F, T, F, F, F, F, F),  # a stale move
        (10, BESIDE_UPDATE, F, F, F, F, F, F, F, F, F, F),  # a free key
        (11, MOVE, T, F, T, F, F, F, F, T, F, T),  # an update that deletes
        (11, BESIDE_UPDATE, F, F, T, F, F, F, T, T, F, T),
        (12, INSERT, F, F, F, F, F, F, F, F, F, F),
    ]
    check(spark, FIND_KEY_COLLISIONS, program(table, spark), header, rows)


def test_S30a_compute_effects_gives_the_first_effect_that_holds(table, spark):
    flags = (
        "CHANGED IS_STALE IS_SUPPRESSED IS_CONFLICTING_MOVE IS_REPEATED BECOMES_TOMBSTONE "
        "ARRIVES FREED_BY_DELETE FREED_BY_MOVE KEY_TAKEN UNCHANGED"
    )
    effects = [
        # slot (after None: with a null key), is it a tombstone, flags that are true | effect, is it written
        (UPDATE, F, "", "update", T),
        (UPDATE, F, "UNCHANGED", "update", T),
        (UPDATE, T, "", "delete", T),
        (UPDATE, T, "KEY_TAKEN", "delete", F),  # S25: the arriving row is written alone
        (UPDATE, F, "IS_STALE UNCHANGED", "stale", T),
        (UPDATE, F, "IS_STALE IS_CONFLICTING_MOVE", "conflicting_move", T),
        (MOVE, F, "", "update", T),
        (MOVE, F, "CHANGED", "move", T),
        (MOVE, T, "CHANGED", "none", T),
        (MOVE, F, "CHANGED IS_REPEATED", "none", T),
        (MOVE, F, "CHANGED IS_STALE", "stale move", F),
        (MOVE, F, "CHANGED ARRIVES", "duplicate", T),
        (MOVE, F, "CHANGED ARRIVES FREED_BY_MOVE KEY_TAKEN", "move", T),
        (MOVE, F, "CHANGED ARRIVES FREED_BY_DELETE KEY_TAKEN", "move+delete", T),
        (None, MOVE, F, "CHANGED IS_STALE", "stale move", T),  # S34: kept for the refusal to name its null key
        (LEFT, T, "", "none", F),
        (LEFT, T, "CHANGED", "none", T),
        (LEFT, T, "CHANGED BECOMES_TOMBSTONE", "delete", T),
        (LEFT, T, "CHANGED KEY_TAKEN", "none", F),
        (LEFT, T, "CHANGED IS_STALE", "none", F),
        (DELETE, T, "", "delete", T),
        (DELETE, T, "KEY_TAKEN", "delete", F),
        (DELETE, T, "IS_STALE", "stale", T),
        (BESIDE_UPDATE, F, "", "insert", T),
        (BESIDE_UPDATE, F, "IS_STALE", "stale", T),
        (BESIDE_UPDATE, F, "IS_SUPPRESSED IS_STALE", "suppressed", F),
        (None, BESIDE_UPDATE, F, "IS_SUPPRESSED", "suppressed", T),
        (BESIDE_UPDATE, F, "ARRIVES KEY_TAKEN", "duplicate", T),
        (BESIDE_UPDATE, F, "ARRIVES FREED_BY_DELETE KEY_TAKEN", "update", T),
        (BESIDE_UPDATE, F, "ARRIVES FREED_BY_MOVE KEY_TAKEN", "insert", T),
        (INSERT, T, "", "none", T),
        (RECORDED, T, "", "none", T),
    ]
    columns = "id ts v deleted SLOT CLAUSE COUNTS_FOR_CLAUSE ACTION MISFIT"
    header = f"{columns} {flags} | EFFECT KEEP UNCHANGED"
    rows = []
    for n, (*null, slot, dead, true, effect, keep) in enumerate(effects):
        are = [flag in true.split() for flag in flags.split()]
        key = None if null else 1
        rows.append((key, 5, "a", dead, slot, n, 1, "act", None, *are, effect, keep, true == "UNCHANGED"))
    check(spark, COMPUTE_EFFECTS, program(table, spark), header, rows)

    delete, upsert, undecided = 0, 1, -1
    rows = [  # of a merge that does not read its target, but whose source shows what its keys hold
        (1, 5, F, upsert, T, 4, F, "update", T),
        (1, 4, F, upsert, T, 5, F, "stale", T),
        (1, 4, F, upsert, T, 5, T, "none", T),  # U4: a stored row, mended
        (1, 5, F, upsert, F, 4, F, "insert", T),
        (1, 5, F, upsert, None, None, F, "insert", T),
        (1, 4, F, upsert, F, 5, F, "stale", T),
        (1, 5, T, upsert, T, 4, F, "delete", T),
        (1, 5, T, upsert, F, 5, F, "none", T),
        (1, 4, T, delete, T, 5, F, "stale", T),
        (1, 4, T, delete, F, 5, F, "none", T),  # S18: recorded
        (1, None, None, undecided, None, None, F, "insert", F),
        (1, None, None, None, None, None, F, "insert", None),
    ]
    blind = program(table, spark, events, source=f"{SOURCE}, ts INT", path=APPEND_ONLY)
    header = "id ts deleted SLOT LIVE BEFORE0 MENDED | EFFECT KEEP"
    check(spark, COMPUTE_EFFECTS, attrs.evolve(blind, stored_column="held", has_registers=True), header, rows)
    unknown = [(*row[:7], None, row[8]) for row in rows]
    check(spark, COMPUTE_EFFECTS, blind, header, unknown)


# Filtering ------------------------------------------------------------------------------------------------------------


def test_T1_skip_truncated_leaves_out_rows_older_than_the_truncate(table, spark):
    rows = [
        # watermark, effect, is it written | is it written, is it truncated; is it written where stale rows refuse the merge
        (6, "update", T, T, F, T),
        (5, "update", T, T, F, T),  # the truncate's own watermark
        (4, "update", T, F, T, F),
        (4, "insert", T, F, T, F),
        (4, None, T, F, T, F),
        (4, "stale", T, F, T, T),
        (4, "stale move", T, F, T, T),
        (None, "insert", T, F, T, F),
        (None, "stale", T, F, T, T),
        (6, "stale", T, T, F, T),
        (4, "suppressed", F, F, F, F),
        (6, "suppressed", F, F, F, F),
    ]
    header = "ts EFFECT KEEP | KEEP TRUNCATED"
    left_out = LeftOut(table.definition, None, truncated_at=(5,))
    check(spark, SKIP_TRUNCATED, left_out, header, [row[:5] for row in rows])
    refusing = [(*row[:3], row[5], row[2] and not row[5]) for row in rows]
    check(spark, SKIP_TRUNCATED, attrs.evolve(left_out, refuses_stale=True), header, refusing)
    with_history = attrs.evolve(left_out, definition=attrs.evolve(table.definition, history=True))
    check(spark, SKIP_TRUNCATED, with_history, "ts EFFECT KEEP | KEEP", [(*row[:3], row[2]) for row in rows])


def test_S22b_skip_unchanged_writes_an_update_that_changes_nothing_only_beside_a_change(table, spark):
    rows = [
        # id, effect, is it written, does it change nothing | effect, is it written
        (1, "update", T, T, "unchanged", F),
        (2, "update", T, F, "update", T),
        (3, "update", T, T, "update", T),  # another row changes the key
        (3, "update", T, F, "update", T),
        (4, "update", T, T, "unchanged", F),  # the other row changes nothing either
        (4, "update", T, T, "unchanged", F),
        (5, "update", T, T, "unchanged", F),  # the other row is not written
        (5, "suppressed", F, F, "suppressed", F),
        (6, "update", T, T, "update", T),
        (6, "stale", T, F, "stale", T),
        (7, "insert", T, F, "insert", T),
        (8, "update", F, T, "update", F),  # T1: older than a truncate
        (None, "update", T, T, "unchanged", F),
    ]
    header = "id EFFECT KEEP UNCHANGED | EFFECT KEEP"
    check(spark, SKIP_UNCHANGED, LeftOut(table.definition, None, unchanged=True), header, rows)
    check(spark, SKIP_UNCHANGED, LeftOut(table.definition, None), header, [(*r[:4], *r[1:3]) for r in rows])


def test_S39a_skip_purged_leaves_out_rows_of_purged_keys(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", primaryKey=["id", "v"], watermarkKey="ts")
    keys = [("1", "a"), ("2", "b/c"), ("-3", "")]
    texts = ["/".join(["5a17", *(part.encode().hex().upper() for part in key)]) for key in keys]
    purged = PurgeKeys("5a17", [hashlib.sha256(text.encode()).hexdigest() for text in texts])
    rows = [
        # id, v, is it written | is it written, is it purged
        (1, "a", T, F, T),
        (1, "a", T, F, T),
        (1, "a", F, F, F),
        (2, "b/c", T, F, T),
        (-3, "", T, F, T),
        (1, "A", T, T, None),
        (1, "b/c", T, T, None),
        (2, "a", T, T, None),
        (2, "a", F, F, F),
        (3, "", T, T, None),
        (1, None, T, T, None),
        (None, "a", T, T, None),
    ]
    check(spark, SKIP_PURGED, LeftOut(table.definition, purged), "id v KEEP | KEEP PURGED", rows)
    check(spark, SKIP_PURGED, LeftOut(table.definition, None), "id v KEEP | KEEP", [(*r[:3], r[2]) for r in rows])


def test_T1_H3_end_at_truncates_ends_late_rows_at_the_next_truncate(table, spark):
    truncates = [(5,), (8,)]
    rows = [
        # id, watermark, deleted, effect, is it written | the watermark of the tombstone that ends it
        (1, 4, F, "insert", T, 5),
        (1, 7, F, "update", T, 8),  # of the same key, at the next truncate
        (2, 5, F, None, T, 8),  # at a truncate: not older than it
        (3, 8, F, "insert", T, None),
        (4, 9, F, "insert", T, None),
        (5, None, F, "stale", T, 5),  # the smallest watermark
        (6, 4, T, "delete", T, None),  # a tombstone ends no row
        (7, 4, F, "suppressed", F, None),
        (8, 4, F, "insert", T, None),  # a stored row of the key is at the truncate
        (8, 6, F, "insert", T, 8),
        (9, 4, F, "insert", T, None),  # the merge writes a row there
        (9, 5, F, "insert", T, 8),
        (10, 4, F, "insert", T, 5),  # the row at the truncate is not written
        (10, 5, F, "suppressed", F, None),
        (11, 4, F, "insert", T, 5),  # a stored row is at another truncate
    ]
    held = frame(spark, f"{C.KEY_TO_FIND(0)} INT, {C.HELD} ARRAY<STRUCT<w0: INT>>", (8, [(5,)]), (11, [(8,)]))
    first = "id ts v deleted EFFECT KEEP CLAUSE COUNTS_FOR_CLAUSE ACTION MISFIT"
    given = [(id, ts, "a", dead, effect, keep, 1, 1, "act", None) for id, ts, dead, effect, keep, _ in rows]
    ends = [
        (row[0], row[-1], None, T, None if row[3] is None else "none", T, None, None, "end at a truncate", None)
        for row in rows
        if row[-1]
    ]
    columns, _ = halves(f"{first} | ENDING")
    names = [name for name, _ in columns]
    subject = Truncates(table.definition, tuple(truncates), lambda: held)
    found, present = run((END_AT_TRUNCATES,), rows_of(spark, columns, given), subject, names)
    assert set(present) == set(found.columns) == {*names, C.ENDING}
    assertRows(found.select(*names, C.ENDING), [*((*row, 0) for row in given), *((*row, 1) for row in ends)])
    assertRows(run((END_AT_TRUNCATES,), found, attrs.evolve(subject, truncates=()), names)[0], found)


def test_S27_rows_for_another_table_come_from_rows_that_replace_others(table, spark, tmp_path):
    past = new_table(spark, tmp_path, "id INT, since SMALLINT, was STRING, why STRING")

    def archiving(table, source):
        archived = {"id": "id", "since": "A.ts", "was": "v", "why": "concat(B.v, '!')"}
        merge = table.alias("A").merge(source.alias("B"), "A.id = B.id")
        kept = merge.whenMatched("B.op = 'D'").delete().insertHistoryExpr(archived, past)
        return kept.whenMatched().updateExpr({"v": "B.v"}).whenNotMatched().insertExpr({"id": "B.id", "ts": "B.at"})

    plan = archiving(table, frame(spark, SOURCE)).build().analysis.outbox_plan
    old = (5, "old", "x")
    rows = [
        # clause, effect, id of the written row; id, ts, v of the row before, v of the source | id, since, was, why; misfit
        (1, "delete", 1, 1, *old, 1, 5, "old", "x!", None),
        (1, "delete", 2, 2, None, None, None, 2, None, None, None, None),
        (1, "none", 3, 3, *old, 3, 5, "old", "x!", None),
        (1, "move", 4, 40, *old, 40, 5, "old", "x!", None),  # the key before the move
        (1, "update", 5, 5, 40000, "old", "x", 5, None, "old", "x!", "since\t40000"),
        (1, "stale", 6, 6, *old),
        (1, "stale move", 6, 6, *old),
        (1, "duplicate", 6, 6, *old),
        (1, "unchanged", 6, 6, *old),
        (1, "insert", 6, 6, *old),
        (1, "delete", 6),  # it replaces no row
        (2, "update", 6, 6, *old),  # another clause
        (3, "insert", 6),
    ]
    given = []
    for clause, effect, id, *before in rows:
        sides = ((*before[:3], F), (before[0], None, None, before[3], "D", None)) if before else None
        given.append((id, clause, effect, sides))
    schema = f"id INT, {C.CLAUSE} INT, {C.EFFECT} STRING, {C.JOINED_ROWS} STRUCT<t: {TYPES['A']}, s1: {TYPES['B']}>"
    valued = with_outbox_columns(frame(spark, schema, *given), plan)
    assert valued.columns == ["id", C.CLAUSE, C.EFFECT, C.OUTBOX_VALUE(0)]
    assertRows(valued.drop(C.OUTBOX_VALUE(0)), [row[:3] for row in given])
    found = outbox_rows_of(valued, plan.rows)
    assert found.columns == ["id", "since", "was", "why", C.CLAUSE, C.ORIGIN_KEY, C.MISFIT]
    assertRows(found, [(*row[7:11], row[0], (row[3],), row[11]) for row in rows if len(row) > 7])
