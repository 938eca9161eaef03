"""A small source never makes the target move, and batches that cannot hold a sought key are not opened (S13, S14, S18, S31)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from helpers import executed_plan
from tables import batch_directories, copy_of, directory_of, live_rows, new_table

from trinitymerge import DuplicateKeyError, TrinityTable, reader
from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.merge.compile import join
from trinitymerge.merge.compile.strategies import FULL_SCAN
from trinitymerge.rows.key_ranges import KeyRange, meeting
from trinitymerge.spark.session import is_connect
from trinitymerge.stores.managed import DirectoryStore

pytestmark = pytest.mark.generated

VERSIONS = "id INT, start DATE, stop DATE, v STRING"
OPEN = "DATE'9999-01-01'"


@pytest.fixture
def dimension(spark, tmp_path):
    """A type 2 dimension keyed by id and start, with a closed version of each odd id, in two batches."""
    table = new_table(spark, tmp_path, VERSIONS, primaryKey=["id", "start"])
    table.upsert(_versions(spark, 40, 10, OPEN, "a")).execute()
    closed = _versions(spark, 40, 10, "DATE'2024-01-20'", "a").unionAll(_versions(spark, 40, 20, OPEN, "b"))
    table.upsert(closed.filter("id % 2 = 1")).execute()
    return table


def _versions(spark, ids, day, stop, value):
    row = ("CAST(id AS INT) AS id", f"DATE'2024-01-{day}' AS start", f"{stop} AS stop", f"'{value}' AS v")
    return spark.range(ids).selectExpr(*row)


def day_of_changes(spark, day):
    """Changes of some ids, one without an id, and one of an id that is new."""
    ids = spark.range(30, 45, 1, 3).selectExpr("CASE WHEN id <> 35 THEN CAST(id AS INT) END AS id")
    return ids.selectExpr("id", f"DATE'2024-01-{day}' AS day", "CASE WHEN id % 5 = 0 THEN 'a' ELSE 'c' END AS v")


def close_and_open(table, source):
    """The chain of CarbonData's guide: the condition says less than the key, and rows go under keys it has not looked at."""
    new = {"id": "B.id", "start": "B.day", "stop": OPEN, "v": "B.v"}
    merge = table.alias("A").merge(source.alias("B"), f"A.id = B.id AND A.stop = {OPEN}")
    changed = merge.whenMatched("A.v <> B.v").updateExpr({"stop": "B.day"}).insertExpr(new)
    return changed.whenNotMatched("B.id IS NOT NULL").insertExpr(new)


def close_only(table, source):
    merge = table.alias("A").merge(source.alias("B"), f"A.id = B.id AND A.stop = {OPEN}")
    return merge.whenMatched("A.v <> B.v").updateExpr({"stop": "B.day"})


def close_and_retire(table, source):
    """Looks at every row of the target, and keeps no source row without a pair."""
    return close_only(table, source).whenNotMatchedAndExistsOnlyOnTarget(f"A.stop = {OPEN}").updateExpr({"v": "'old'"})


def synchronise(table, source):
    """Looks at every row of both sides."""
    merge = close_and_open(table, source)
    return merge.whenNotMatchedAndExistsOnlyOnTarget(f"A.stop = {OPEN} AND A.id < 10").delete()


def by_value(table, source):
    """No key column is equal, nor is any equality there."""
    new = {"id": "B.id + 1000", "start": "B.day", "stop": OPEN, "v": "B.v"}
    merge = table.alias("A").merge(
        source.alias("B"), f"A.id + 2 > B.id AND A.id < B.id AND A.stop = {OPEN} AND B.id % 3 = 0"
    )
    return merge.whenMatched().updateExpr({"v": "concat(A.v, B.v)"}).whenNotMatched("B.id IS NOT NULL").insertExpr(new)


MERGES = [close_and_open, close_only, close_and_retire, synchronise, by_value]


@pytest.mark.parametrize("make", MERGES)
def test_S13_small_and_large_sources_are_merged_alike(make, dimension, spark, monkeypatch):
    outcomes = {}
    for kind, rows in (("sent", 500_000), ("shuffled", 0)):
        monkeypatch.setattr(join, "BROADCAST_ROWS", rows)
        table = copy_of(dimension, spark)
        first, second = (make(table, day_of_changes(spark, day)).execute() for day in (25, 26))
        counts = [(r.rowsInserted, r.rowsUpdated, r.rowsDeleted, r.rowsSource, r.perClause) for r in (first, second)]
        outcomes[kind] = (counts, live_rows(table))
    assert outcomes["sent"] == outcomes["shuffled"]
    assert sum(map(sum, (c[:3] for c in outcomes["sent"][0]))) > 0, "the merge does something"


@pytest.mark.parametrize("make", MERGES)
def test_S31_a_small_source_goes_to_where_the_target_lies(make, dimension, spark):
    """The target's rows are not shuffled to meet the source; a base and few deltas need no window either."""
    plan = make(dimension, day_of_changes(spark, 25)).build()
    snapshot = dimension._store.snapshot()
    assert plan.chosen is FULL_SCAN
    merge = sides_of(plan, snapshot)
    shown = executed_plan(merge)
    scans = len(re.findall(r"FileScan", shown))
    assert scans, shown
    target = [line for line in shown.splitlines() if "SortMergeJoin" in line and "_tm_paired" not in line]
    assert not target, f"the target is sorted:\n{shown}"


def sides_of(plan, snapshot):
    """The joined sides of a full scan."""
    from trinitymerge.merge.compile.strategies import Merge
    from trinitymerge.stores.base import Batches

    merge = Merge(plan.analysis, plan.choice, plan.spec.store, "skip")
    evaluated = merge.evaluated()
    records = bool(plan.choice.recorded_deletes)
    pairing = join.FullJoin(plan.analysis, plan.choice.equalities, evaluated, plan.spec.store, Batches.of(snapshot))
    return pairing.rows(records)


# Batches that cannot hold a key ---------------------------------------------------------------------------------------


@pytest.fixture
def scanned(monkeypatch):
    """The numbers of batches that were scanned, in the order of the scans."""
    found, scan = [], DirectoryStore._scan

    def watched(self, batches, *args, **kwargs):
        found.append(len(batches.batches))
        return scan(self, batches, *args, **kwargs)

    monkeypatch.setattr(DirectoryStore, "_scan", watched)
    return found


def test_S31_keys_beyond_all_that_is_known_are_not_looked_up(dimension, spark, scanned):
    for day, looked_into in ((25, []), (15, [1]), (5, [])):
        table = copy_of(dimension, spark)
        scanned.clear()
        assert close_and_open(table, day_of_changes(spark, day)).execute().rowsInserted
        assert scanned[1:] == looked_into, f"versions start on the 10th, and on the 10th and 20th: not on the {day}th"


def test_S31_S32_keys_that_are_computed_are_looked_up_when_they_are_known(dimension, spark, scanned):
    """The time may be another one by then: only columns of the source are what they were."""
    source = day_of_changes(spark, 25)
    merge = dimension.alias("A").merge(source.alias("B"), f"A.id = B.id AND A.stop = {OPEN}")
    new = {"id": "B.id", "start": "date_add(B.day, 0)", "stop": OPEN, "v": "B.v"}
    assert merge.whenMatched().updateExpr({"stop": "B.day"}).insertExpr(new).execute().rowsInserted
    assert len(scanned) == 2


def test_S25_of_two_rows_a_clause_inserts_each_is_looked_up(dimension, spark):
    """One of them comes to a key beyond all others, the other to one that is live."""
    source = spark.sql("SELECT 31 AS id, DATE'2024-01-25' AS day, DATE'2024-01-10' AS first")
    merge = dimension.alias("A").merge(source.alias("B"), f"A.id = B.id AND A.stop = {OPEN}")
    later, earlier = ({"id": "B.id", "start": start, "stop": "B.day", "v": "'c'"} for start in ("B.day", "B.first"))
    with pytest.raises(DuplicateKeyError):
        merge.whenMatched().updateExpr({"stop": "B.day"}).insertExpr(later).insertExpr(earlier).execute()


def test_S18_lookups_skip_batches_whose_keys_end_before(spark, tmp_path, scanned):
    table = new_table(spark, tmp_path, "id INT, n INT", primaryKey="id")
    for first in (0, 100, 200):
        table.upsert(spark.range(first, first + 100).selectExpr("INT(id) AS id", "1 AS n")).execute()
    scanned.clear()

    def added(*ids):
        source = spark.createDataFrame([(i,) for i in ids], "id INT")
        result = table.merge(source).whenMatched().updateExpr({"n": "target.n + 1"}).execute()
        return result.rowsUpdated, scanned.pop(0)

    assert added(99, 3) == (2, 1)
    assert added(99, 100) == (2, 3), "the first two, and the batch of the merge before"
    assert added(300, 1000) == (0, 0)
    assert added(None) == (0, 0)
    table.compact()
    scanned.clear()
    assert added(-1) == (0, 0), "compaction keeps the range of what it writes"


def test_S40_what_is_lost_or_damaged_limits_nothing(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, n INT", primaryKey="id")
    table.upsert(spark.range(10).selectExpr("INT(id) AS id", "1 AS n")).execute()
    (batch,) = batch_directories(table)
    kept = directory_of(table) / "data" / batch / "_key_range.json"
    content = kept.read_bytes()
    for damage in (content[:20], b"", content.replace(b'"id":9', b'"id":1'), b"\xff" * 30, None):
        kept.write_bytes(damage) if damage is not None else kept.unlink()
        opened = TrinityTable.forPath(spark, table.path)
        merge = opened.merge(spark.sql("SELECT 9 AS id")).whenMatched().updateExpr({"n": "target.n + 1"})
        assert merge.execute().rowsUpdated == 1


def test_S40_the_range_of_another_batch_limits_nothing(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, n INT", primaryKey="id")
    for first in (0, 100):
        table.upsert(spark.range(first, first + 10).selectExpr("INT(id) AS id", "1 AS n")).execute()
    clone = table.clone(f"{table.path}-clone")
    for one in (table, clone):
        batches = one._snapshot().batches
        low, high = (batches[i] for i in sorted(range(2), key=lambda i: one._store.ranges_of(batches)[i].low["id"]))
        assert one._store.ranges_of([high])[0].low == {"id": 100}
        kept = [Path(one._store.batch_path(b.id).removeprefix("file:")) / "_key_range.json" for b in (low, high)]
        kept[0].write_bytes(kept[1].read_bytes())
        opened = TrinityTable.forPath(spark, one.path)
        assert opened.update(spark.sql("SELECT 5 AS id, 2 AS n")).execute().rowsUpdated == 1
        with pytest.raises(DuplicateKeyError):
            opened.insert(spark.sql("SELECT 6 AS id, 2 AS n")).execute()


def test_S39_a_purge_forgets_the_range_with_the_rows(spark, tmp_path):
    table = new_table(spark, tmp_path, "id STRING, n INT", primaryKey="id")
    table.upsert(spark.sql("SELECT 'alice.of.wonderland' AS id, 1 AS n UNION SELECT 'bob', 2")).execute()
    assert b"alice" in _everything(table)
    table.purge(spark.sql("SELECT 'alice.of.wonderland' AS id"))
    table.vacuum(retentionHours=0)
    assert b"alice" not in _everything(table)
    (keys,) = table._store.ranges_of(table._snapshot().batches)
    assert keys.low == keys.high == {"id": "bob"}


def _everything(table):
    return b"".join(f.read_bytes() for f in directory_of(table).rglob("*") if f.is_file())


# Ranges ---------------------------------------------------------------------------------------------------------------


def _definition(kind):
    from trinitymerge.schema.definition import TableDefinition
    from trinitymerge.schema.field import Field

    return TableDefinition.of([Field("k", kind), Field("n", "integer")], "k")


@pytest.mark.parametrize(
    ("kind", "below", "above"),
    [
        ("integer", [-5, 3], [4, 4]),
        ("string", ["a", "b" * 40], ["b" * 31 + "d", "z"]),
        ("string", ["a", "b" * 31 + "\ud7ff" + "x"], ["b" * 31 + "\ue001", "z"]),
        ("string", ["a", "\U0010ffff" * 3], ["\U0010ffff" * 4, "\U0010ffff" * 5]),
        ("decimal(10,2)", ["-3.10", "9.90"], ["10.00", "11.00"]),
        ("date", [0, 10], [11, 12]),
    ],
)
def test_S31_ranges_are_apart_if_one_ends_before_the_other_begins(kind, below, above):
    definition = _definition(kind)
    low, high = (_range(definition, *ends) for ends in (below, above))
    touching, unknown, empty = (
        _range(definition, below[0], above[0]),
        _range(definition, None, None, known=False),
        _range(definition, None, None),
    )
    assert meeting(definition, [low, high, touching, unknown, None, empty], [high]) == [
        False,
        True,
        True,
        True,
        True,
        False,
    ]
    assert meeting(definition, [low, high, empty], [low, empty]) == [True, False, False]
    assert meeting(definition, [low, empty], [high, None]) == [True, True], "one of the others may have any key"
    assert meeting(definition, [low, None], []) == [False, False]
    assert KeyRange.from_json(low.to_json()) == low


@pytest.mark.parametrize(
    "text", ["a" * 31 + "\ufffc" + "x", "b" * 40, "\U0010ffff" * 40, "a" + "\ud7ff" * 40, "é" * 33]
)
def test_S31_a_cut_bound_still_holds(text):
    definition = _definition("string")
    found = _range(definition, text, text)
    if found.high:
        assert found.low["k"] <= text <= found.high["k"]
        assert len(found.high["k"]) <= 32


def test_S31_text_that_JSON_cannot_hold_limits_nothing():
    definition = _definition("string")
    assert not _range(definition, "a", "b\N{REPLACEMENT CHARACTER}").high


def _range(definition, low, high, known=True):
    return KeyRange.of({"min_of_key_0": low, "max_of_key_0": high} if known else {}, definition)


def test_S31_part_of_a_key_finds_what_a_merge_may_pair(dimension, spark):
    """Equality on one of two key columns leaves out other rows before they are resolved; the watermark decides after (S14)."""
    verdict = close_and_open(dimension, day_of_changes(spark, 25)).build().choice
    assert set(verdict.equalities.keys) == {"id"}
    assert verdict.key_match is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            close_and_open,
            ["the rows that equal a source row in id, in one scan; batches", "the keys that rows come to"],
        ),
        (close_only, ["the rows that equal a source row in id, in one scan; batches and files outside of the range"]),
        (close_and_retire, ["every live row, in one scan"]),
        (synchronise, ["every live row, in two scans, the second for source rows without a pair"]),
        (by_value, ["every live row, in one scan"]),
    ],
)
def test_S31_explain_says_how_the_target_is_read(make, words, dimension, spark, capsys):
    text = make(dimension, day_of_changes(spark, 25)).build().explain(evaluate=True)
    assert ("  skips " in text) == ("rows that equal a source row" in words[0])
    (line,) = (line for line in text.splitlines() if line.startswith("  reads "))
    assert all(w in line for w in words), line
    assert ("the keys that rows come to" in line) == (
        "the keys that rows come to" in words or make in (synchronise, by_value)
    )


OUTSIDE = "outside of the range of these keys are skipped"


@pytest.mark.parametrize(
    ("key", "condition", "most", "words", "scans"),
    [
        ("INT(1000) AS id", None, 64, f"batches and files {OUTSIDE}", 0),
        ("BIGINT(1000) AS id", None, 64, f"batches and files {OUTSIDE}", 0),
        ("-2147483648L AS id", None, 64, f"batches and files {OUTSIDE}", 0),
        ("'1000' AS id", None, 64, f"batches and files {OUTSIDE}", 0),
        (
            "'1000' AS id",
            "target.id = source.id",
            64,
            "no batch is skipped: id is string in the source and int in the table",
            2,
        ),
        ("INT(1000) AS id", None, 1, f"files {OUTSIDE}, no batch is: there are more than 1", 2),
    ],
)
def test_S31_explain_says_which_batches_a_lookup_is_spared(
    key, condition, most, words, scans, spark, tmp_path, scanned, monkeypatch, capsys
):
    monkeypatch.setattr(reader, "MAX_PRUNED_BATCHES", most)
    table = new_table(spark, tmp_path, "id INT, n INT", primaryKey="id")
    for n in range(2):
        table.upsert(spark.range(10).selectExpr("INT(id) AS id", f"{n} AS n")).execute()
    merge = table.merge(spark.sql(f"SELECT {key}"), condition).whenMatched().updateExpr({"n": "target.n + 1"})
    size = sum(b.bytes for b in table._snapshot().batches)
    lines = merge.explain().splitlines()
    start = lines.index("Strategy: keyed lookup")
    assert lines[start + 1 : start + 3] == [
        f"  target: 2 batches, {size / 1000:.1f} KB",
        f"  reads the rows under the source's keys, in one scan; {words}",
    ]
    source, skipped = merge.explain(evaluate=True).splitlines()[-2:]
    assert source == "  source: 1 row, evaluated for this; keys are sent to every task"
    left_out, read = (
        ("2 batches", "0 batches, 0 bytes") if not scans else ("0 batches", f"2 batches, {size / 1000:.1f} KB")
    )
    assert skipped.startswith(f"  skips {left_out}, ")
    assert f"; reads {read}, and" in skipped
    scanned.clear()
    merge.execute()
    assert scanned[0] == scans


def test_S31_explain_of_keys_without_ranges_and_of_a_plan_that_has_grown_old(spark, tmp_path, capsys):
    table = new_table(spark, tmp_path, "k BINARY, n INT", primaryKey="k")
    source = spark.sql("SELECT X'00' AS k, 1 AS n")
    plan = table.merge(source).whenMatched("target.n > 0").updateExpr({"n": "2"}).build()
    table.upsert(source).execute()
    text = plan.explain()
    assert "  target: 0 batches, 0 bytes\n" in text, "as it was when the plan was made"
    assert "; no batch is skipped: no range is kept of keys of these types\n" in text


@pytest.mark.parametrize("whole", [True, False], ids=["by key", "by all of the table"])
def test_S32_what_is_sought_is_what_is_compared_even_if_time_has_moved_on(whole, spark, tmp_path, monkeypatch):
    """The time is read with the source: a later job of the same merge must not look for the row of another moment."""
    table = new_table(spark, tmp_path, "id INT, at TIMESTAMP, v STRING", primaryKey=["id", "at"])
    now = "date_trunc('second', current_timestamp())"
    seconds = f"{now} + make_dt_interval(0, 0, 0, CAST(id AS INT))"
    table.upsert(spark.range(300).selectExpr("1 AS id", f"{seconds} AS at", "'a' AS v")).execute()
    materialize = join.materialize

    def and_waits(*args, **kwargs):
        once = materialize(*args, **kwargs)
        time.sleep(2.1)
        return once

    monkeypatch.setattr(join, "materialize", and_waits)
    merge = table.alias("A").merge(spark.sql("SELECT 1 AS id").alias("B"), f"A.id = B.id AND A.at = {now}")
    changed = (
        merge.whenMatched()
        .updateExpr({"v": "concat(A.v, 'b')"})
        .whenNotMatched()
        .insertExpr({"id": "B.id", "at": now, "v": "'new'"})
    )
    if not whole:
        changed = changed.whenNotMatchedAndExistsOnlyOnTarget("A.v = 'none'").delete()
    result = changed.execute()
    assert (result.rowsUpdated, result.rowsInserted) == (1, 0)


# What comes of a lookup -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sought", "rows", "size", "expected"),
    [
        (20_000, 5_000_000, 120 << 20, True),
        (20_000, 0, 0, True),
        (20_000, 1_000, 1 << 30, False),  # a megabyte each
        (200_000, 1_000, 22 * 1_000, False),
        (600_000, 1_000_000, 1_000_000, False),  # eight bytes each in the source
    ],
)
def test_it_is_written_in_one_task_where_source_and_rows_found_are_small(spark, sought, rows, size, expected):
    once = join.Materialized(spark.range(sought).toDF("id"), sought)
    plain = {"tombstones": 0, "files": 1, "unique_keys": True, "base": True, "version": 1}
    batches = Batches(None, (Batch(id="b", rows=rows, bytes=size, **plain),))
    assert join.fit_one_task(join.MaterializedSource(None, once), batches) == (expected and not is_connect(spark))
