"""What a merge costs with many clauses and columns: what it hands to Spark, and what Spark makes of it, grow as they do."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial

import py4j.clientserver
import py4j.java_gateway
import pytest
from helpers import quickly
from pyspark.sql import functions as F
from tables import copy_of, new_table, on_every_path

from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP
from trinitymerge.stores.managed import DirectoryStore

# Wide merges become long methods, which have limits of their own.
pytestmark = pytest.mark.generated

COLUMNS = 8
SCHEMA = "id INT, ts INT, v STRING, {} deleted BOOLEAN"


class Stopped(Exception):  # noqa: N818 - what a test looks for has been seen
    """Raised instead of writing a batch."""


class Talk:
    """What Python says to the JVM, but for what its garbage collector does."""

    calls = 0
    characters = 0


@contextmanager
def talk_of(monkeypatch):
    talk = Talk()
    with monkeypatch.context() as patched:
        for kind in {py4j.java_gateway.GatewayClient, py4j.clientserver.JavaClient}:
            if "send_command" in vars(kind):
                patched.setattr(kind, "send_command", _counting(vars(kind)["send_command"], talk))
        yield talk


def _counting(original, talk):
    def send_command(self, command, *args, **kwargs):
        if not command.startswith("m\nd"):
            talk.calls += 1
            talk.characters += len(command)
        return original(self, command, *args, **kwargs)

    return send_command


def _schema(columns):
    return SCHEMA.format("".join(f"c{i} INT, " for i in range(columns)))


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Tables by their number of columns; each holds the keys 0 to 59."""
    made = {}

    def table(columns=COLUMNS):
        if columns not in made:
            made[columns] = new_table(
                spark, tmp_path_factory.mktemp("scaling"), _schema(columns), watermarkKey="ts", tombstoneKey="deleted"
            )
            made[columns].upsert(_rows(spark, 0, 60, 10, columns)).execute()
        return made[columns]

    return table


def _rows(spark, first, end, ts, columns, values="INT"):
    extra = [f"CAST(id % 7 + {i} AS {values}) AS c{i}" for i in range(columns)]
    row = ["CAST(id AS INT) AS id", f"{ts} AS ts", "'x' AS v", *extra, "false AS deleted"]
    return spark.range(first, end).selectExpr(*row, "CAST(id % 11 AS INT) AS op")


def _merge(table, source):
    return table.alias("A").merge(source.alias("B"), "A.id = B.id")


# Merges with n clauses -------------------------------------------------------------------------------------------------


def reading(merge, n):
    for i in range(n // 2):
        merge = merge.whenMatched(f"B.op = {i}").updateExpr(
            {"v": f"concat(A.v, '{i}')", "c0": "A.c0 + B.c0", "ts": "B.ts"}
        )
    for i in range(n - n // 2):
        merge = merge.whenNotMatched(f"B.op = {i}").insertExpr({"id": "B.id", "ts": "B.ts", "v": f"concat(B.v, '{i}')"})
    return merge


def by_Columns(merge, n):
    for i in range(n // 2):
        changed = {"v": F.concat("A.v", F.lit(str(i))), "ts": F.col("B.ts")}
        merge = merge.whenMatched(F.col("B.op") == i).updateExpr(changed)
    for i in range(n - n // 2):
        made = {"id": F.col("B.id"), "ts": F.col("B.ts"), "v": F.concat("B.v", F.lit(str(i)))}
        merge = merge.whenNotMatched(F.col("B.op") == i).insertExpr(made)
    return merge


def blind(merge, n):
    """Delete, or update and insert alike: no two clauses of a kind write the same row."""
    for i in range(n // 3):
        merge = merge.whenMatched(f"B.op = {i}").delete()
    for kind in ("update", "insert"):
        for i in range(n // 3):
            row = {"id": "B.id", "v": f"concat(B.v, '{i}')", "ts": "B.ts", "deleted": "false"}
            row |= {f"c{j}": f"B.c{j} + {i}" for j in range(COLUMNS)}
            condition = f"B.op = {n // 3 + i}"
            if kind == "update":
                merge = merge.whenMatched(condition).updateExpr({k: v for k, v in row.items() if k != "id"})
            else:
                merge = merge.whenNotMatched(condition).insertExpr(row)
    return merge


def alike(merge, n):
    """Every clause writes the same row, and looks at different columns."""
    for i in range(n // 2):
        merge = merge.whenMatched(f"B.c{i % COLUMNS} = {i}").updateAll()
    for i in range(n - n // 2):
        merge = merge.whenNotMatched(f"B.c{i % COLUMNS} = {i + 1}").insertAll()
    return merge


def moving(merge, n):
    for i in range(n - 1):
        moved = {"id": f"A.id + {1000 * (i + 1)}", "v": f"concat(A.v, '{i}')", "ts": "B.ts"}
        merge = merge.whenMatched(f"B.op = {i}").updateExpr(moved)
    return merge.whenNotMatched().insertExpr({"id": "B.id", "ts": "B.ts", "v": "B.v"})


def history(merge, n):
    for i in range(n - 1):
        changed = {"v": f"concat(A.v, '{i}')", "ts": "B.ts"}
        merge = merge.whenMatched(f"B.op = {i}").updateExpr(changed)
        merge = merge.insertExpr({"id": f"A.id + {1000 * (i + 1)}", "v": "B.v", "ts": "B.ts"})
    return merge.whenNotMatched().insertExpr({"id": "B.id", "ts": "B.ts", "v": "B.v"})


def checked(merge, n):
    for i in range(n // 2):
        merge = merge.whenMatched(f"B.op = {i}").updateExpr({"c0": f"concat(B.v, '{i}')", "c1": "A.v", "ts": "B.ts"})
    for i in range(n - n // 2):
        made = {"id": "B.id", "c0": f"concat(B.v, '{i}')", "c1": "B.v", "ts": "B.ts"}
        merge = merge.whenNotMatched(f"B.op = {i}").insertExpr(made)
    return merge


MERGES = {
    "keyed lookup": (reading, KEY_LOOKUP),
    "full scan": (reading, FULL_SCAN),
    "Columns": (by_Columns, None),
    "blind append": (blind, APPEND_ONLY),
    "alike": (alike, KEY_LOOKUP),
    "moves": (moving, None),
    "inserts under other keys": (history, None),
    "checked values": (checked, None),
}


@contextmanager
def _all_of_the_plan(spark):
    name = "spark.sql.debug.maxToStringFields"
    before = spark.conf.get(name)
    spark.conf.set(name, "100000")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _sizes(spark, monkeypatch, builder, path=None):
    """Of a merge that is compiled and stopped before it writes: the optimized plan's text, and what was said to the JVM."""
    found = []

    def stage(store, rows, definition):
        found.extend([talk.calls, talk.characters, len(rows._jdf.queryExecution().optimizedPlan().toString())])
        raise Stopped

    merge = builder if path is None else builder._with_strategy(path)
    with monkeypatch.context() as patched, talk_of(monkeypatch) as talk, _all_of_the_plan(spark):
        patched.setattr(DirectoryStore, "stage", stage)
        with pytest.raises(Stopped):
            merge.execute()
    calls, characters, text = found
    return {"calls": calls, "characters": characters, "plan": text}


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
@pytest.mark.parametrize("kind", MERGES)
def test_what_a_merge_becomes_grows_as_its_clauses_do(spark, tables, monkeypatch, kind):
    add, path = MERGES[kind]
    source = _rows(spark, 30, 90, 20, COLUMNS)
    small, middle, large = (_sizes(spark, monkeypatch, add(_merge(tables(), source), n), path) for n in (3, 12, 48))
    for what in small:  # 36 clauses more against 9 more
        grown, growth = large[what] - middle[what], max(middle[what] - small[what], small[what] // 4)
        assert grown < 6 * growth, f"{what}: {small[what]}, {middle[what]}, {large[what]} for 3, 12, 48 clauses"


def _pruning_seconds(spark):
    rules = spark._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor
    found = re.search(r"\.PruneFilters +\d+ / (\d+)", rules.dumpTimeSpent())
    return int(found.group(1)) / 1e9


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
@pytest.mark.parametrize("kind", ["keyed lookup", "alike"])
def test_time_to_optimize_does_not_double_with_every_clause(spark, tables, monkeypatch, kind):
    add, path = MERGES[kind]
    rules = spark._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor
    source, seconds = _rows(spark, 30, 90, 20, COLUMNS), []
    for n in (3, 3, 13):  # what is loaded for the first is not counted
        rules.resetMetrics()
        _sizes(spark, monkeypatch, add(_merge(tables(), source), n), path)
        seconds.append(_pruning_seconds(spark))
    assert seconds[-1] < max(10 * seconds[1], 1.0)


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
@pytest.mark.parametrize(("inserts", "path", "most"), [("B.op <> 1", "blind append", 80), (None, "keyed lookup", 240)])
def test_small_merge_takes_few_calls_to_the_jvm(spark, tables, monkeypatch, inserts, path, most):
    def merge():
        builder = _merge(copy_of(tables(), spark), _rows(spark, 30, 90, 20, COLUMNS)).whenMatched("B.op = 1").delete()
        return builder.whenMatched().updateAll().whenNotMatched(inserts).insertAll()

    merge().execute()  # the first merge of a process asks for what later ones know
    later = merge()
    with talk_of(monkeypatch) as talk:
        result = later.execute()
    assert result.strategy == path
    assert talk.calls <= most, f"{talk.calls} calls"


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
def test_a_read_takes_few_calls_to_the_jvm_however_many_batches_are_pending(spark, tables, monkeypatch):
    calls = []
    table = copy_of(tables(), spark)
    for merges in (1, 3):
        for _ in range(merges):
            _merge(table, _rows(spark, 30, 90, 20, COLUMNS)).whenMatched().updateAll().execute()
        with talk_of(monkeypatch) as talk:
            table.toDF()
        calls.append(talk.calls)
    assert max(calls) < 50, f"{calls} calls"


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
def test_few_events_take_few_calls_to_the_jvm_whatever_their_columns(spark, tables, monkeypatch):
    calls = []
    for columns in (COLUMNS, 40):
        events = _rows(spark, 30, 90, 20, columns).drop("op", "deleted")
        merge = copy_of(tables(columns), spark).applyChanges(events)
        with talk_of(monkeypatch) as talk:
            result = merge.execute()
        assert result.strategy == APPEND_ONLY.name
        calls.append(talk.calls)
    assert calls[1] - calls[0] < 10, f"{calls} for {COLUMNS} and 40 columns"
    assert calls[0] < 120, f"{calls[0]} calls"


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
def test_calls_to_the_jvm_for_building_do_not_grow_with_columns(spark, tables, monkeypatch):
    calls = []
    for columns in (10, 40):
        values = {f"c{i}": f"A.c{i} + B.c{i}" for i in range(columns)} | {"ts": "B.ts"}
        builder = _merge(tables(columns), _rows(spark, 30, 90, 20, columns)).whenMatched().updateExpr(values)
        builder.build()
        with talk_of(monkeypatch) as talk:
            builder.build()
        calls.append(talk.calls)
    assert calls[1] == calls[0], f"{calls} for 10 and 40 columns"


@pytest.mark.classic("counts calls to Spark's JVM, or asks its optimizer")
def test_columns_that_the_sources_filter_names_cost_no_more_for_being_many(spark, tables, monkeypatch):
    rules = spark._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor
    columns = 18
    source = _rows(spark, 30, 90, 20, columns).filter(" OR ".join(f"c{i} > {i}" for i in range(columns)))
    rules.resetMetrics()
    _sizes(spark, monkeypatch, _merge(tables(columns), source).whenMatched().updateAll().whenNotMatched().insertAll())
    assert _pruning_seconds(spark) < 5  # each column renamed would double it


def test_S31_clauses_are_paired_by_the_row_they_write_whatever_their_number(spark, tables):
    def merge(other, table):
        builder = _merge(table, _rows(spark, 30, 90, 20, COLUMNS))
        for i in range(11):
            builder = builder.whenMatched(f"B.op = {i}").updateExpr({**_row(i % 4), "v": f"concat(B.v,'{i % 4}')"})
        for i in reversed(range(11)):  # written alike but for blanks, and from 8 on by another's row
            k = (i + (i >= other)) % 4
            insert = {"id": "B.id", **_row(k), "v": f"concat(B.v, '{k}')"}
            builder = builder.whenNotMatched(f"B.op = {i}").insertExpr(insert)
        return builder

    def _row(k):
        return {"ts": "B.ts", "deleted": "false", **{f"c{j}": f"B.c{j} + {k}" for j in range(COLUMNS)}}

    for other, path in ((11, "blind append"), (8, "keyed lookup")):
        runs = on_every_path(tables(), partial(merge, other), spark, uncertain=True)
        assert [run.path for run in runs] == [APPEND_ONLY, KEY_LOOKUP, FULL_SCAN]
        assert runs[0].result.strategy == path
        assert {row[2] for row in runs[0].rows if row[0] >= 30} == {f"x{i}" for i in range(4)}


@pytest.mark.parametrize("planned", quickly(["10", "01", "11", "00"], {"10", "01"}))
def test_S31_many_clauses_do_the_same_however_spark_plans_them(spark, tables, planned):
    names = ("spark.sql.adaptive.enabled", "spark.sql.optimizer.collapseProjectAlwaysInline")
    settings = {name: "true" if on == "1" else "false" for name, on in zip(names, planned, strict=True)}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        table = copy_of(tables(), spark)
        result = reading(_merge(table, _rows(spark, 30, 90, 20, COLUMNS)), 22).execute()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert (result.rowsUpdated, result.rowsInserted) == (30, 30)
    assert sum(result.perClause) == 60
