"""Tables with history on Spark: the scenarios of ``histories.py``, and what archives keep (H1-H12).

Scenarios that only commit rows share one table for each definition, under keys of their own; the others have a table each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import attrs
import pytest
from helpers import quickly
from histories import SCENARIOS
from history_steps import Changes, Commit, Committed, DeleteWhere, Refused, Scenario, Snapshot, UpdateWhere
from pyspark.sql import DataFrame, Row, SparkSession
from tables import new_table

from trinitymerge import TrinityTable
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.merge.model.clauses import Clause
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.testing.model.expressions import Expr

APART = 1000
"""Between the keys of two scenarios that share a table."""


def make(spark: SparkSession, directory: Any, scenario: Scenario, **properties: str) -> TrinityTable:
    own = scenario.definition
    return new_table(
        spark,
        directory,
        own.schema,
        watermarkKey=own.watermarkKey,
        tombstoneKey=own.tombstoneKey,
        history=own.history,
        properties={f"trinitymerge.{name}": value for name, value in properties.items()},
    )


# Steps ----------------------------------------------------------------------------------------------------------------


def sql(value: Any) -> Any:
    """Expressions of scenarios as Spark takes them."""
    if isinstance(value, Expr):
        return value.sql
    if isinstance(value, (list, tuple)):
        return type(value)(map(sql, value))
    return value


def frame(spark: SparkSession, step: Any) -> DataFrame:
    return spark.createDataFrame(list(step.source.rows), physical_schema(step.source.fields)).alias("B")


def take(table: TrinityTable, spark: SparkSession, scenario: Scenario, step: Any) -> None:
    """Runs one step."""
    table = table.alias("A")
    if isinstance(step, Commit):
        rows = [tuple(row[n] for n in scenario.definition.names) for row in scenario.rows_of(step)]
        table.upsert(spark.createDataFrame(rows, physical_schema(scenario.definition.fields))).execute()
    elif isinstance(step, UpdateWhere):
        with_options(
            table.updateWhere(sql(step.condition), {k: sql(v) for k, v in step.values.items()}), step
        ).execute()
    elif isinstance(step, DeleteWhere):
        with_options(table.deleteWhere(sql(step.condition)), step).execute()
    elif isinstance(step, Changes):
        options = {name: sql(value) for name, value in step.options.items()}
        table.applyChanges(frame(spark, step), **options).execute()
    elif isinstance(step, Snapshot):
        table.snapshot(frame(spark, step), step.at, step.missing).execute()
    else:
        chain = with_options(table.merge(frame(spark, step)), step)
        chain._evolve(clauses=tuple(map(in_sql, step.clauses))).execute()


def in_sql(clause: Clause) -> Clause:
    actions = []
    for action in clause.actions:
        if action.assignments:
            items = tuple((name, sql(value)) for name, value in action.values.items)
            action = attrs.evolve(action, values=attrs.evolve(action.values, items=items))
        actions.append(action)
    return attrs.evolve(clause, condition=sql(clause.condition), actions=tuple(actions))


def with_options(chain: Any, step: Any) -> Any:
    for name, value in step.options.items():
        arguments = value if isinstance(value, tuple) else (value,)
        chain = getattr(chain, name)(*arguments)
    return chain


class Told:
    """What a table tells, asked once each."""

    def __init__(self, table: TrinityTable) -> None:
        self.table = table
        self.known: dict[str, list[Row]] = {}
        history = table.history().select("version", "timestamp").collect()
        self.times = {row["version"]: row["timestamp"] for row in history}

    def rows(self, call: str, *arguments: Any, **options: Any) -> list[Row]:
        asked = repr((call, arguments, options))
        if asked not in self.known:
            self.known[asked] = getattr(self.table, call)(*arguments, **options).collect()
        return self.known[asked]

    def check(self, scenario: Scenario, apart: int = 0) -> None:
        """Compares with what the scenario says; its keys are further by ``apart``, and those of others further still."""

        def told(rows: Sequence[Row], columns: Sequence[str]) -> list[tuple[Any, ...]]:
            own = (row for row in rows if apart <= row["id"] < apart + APART)
            return sorted(((row["id"] - apart, *(row[c] for c in columns[1:])) for row in own), key=repr)

        if not scenario.definition.history:
            assert told(self.rows("toDF"), scenario.columns) == sorted(scenario.versions, key=repr)
            return
        names = {"validFrom": "validFrom", "validTo": "validTo", "current": "isCurrent"}
        interval = [scenario.options.get(argument, name) for argument, name in names.items()]
        found = told(self.rows("versions", **scenario.options), [*scenario.columns, *interval])
        assert found == sorted(scenario.expected(self.times.get), key=repr), scenario.name
        for moment, rows in scenario.asOf:
            held = told(self.rows("asOf", moment), scenario.columns)
            assert held == sorted(rows, key=repr), f"{scenario.name}, as of {moment}"


# Scenarios ------------------------------------------------------------------------------------------------------------

ONLY_ROWS = [s for s in SCENARIOS if all(isinstance(step, Commit) for step in s.steps)]
BY_TABLE = {
    name: [s for s in ONLY_ROWS if s.definition.watermarkKey == key]
    for name, key in (("one watermark", ("ts",)), ("two watermarks", ("day", "seq")), ("no watermark", ()))
}


def together(scenarios: Sequence[Scenario]) -> list[list[dict[str, Any]]]:
    """The n-th commits of some scenarios as one, for each n, keys apart."""
    steps = zip_longest(*(s.steps for s in scenarios))
    return [
        [
            {**row, "id": row["id"] + APART * i}
            for i, (scenario, step) in enumerate(zip(scenarios, commits, strict=True), start=1)
            if step is not None
            for row in scenario.rows_of(step)
        ]
        for commits in steps
    ]


@pytest.mark.slow
@pytest.mark.parametrize("folding", quickly(["none", "1"], {"1"}))
@pytest.mark.parametrize("which", BY_TABLE)
def test_H2_H6_versions_of_rows_before_and_after_maintenance(spark, tmp_path, which, folding):
    for definition in {repr(s.definition): s.definition for s in BY_TABLE[which]}.values():
        scenarios = [s for s in BY_TABLE[which] if s.definition == definition]
        table = make(spark, tmp_path, scenarios[0], minorCompactionAfterBatches=folding)
        for rows in together(scenarios):
            table.upsert(spark.createDataFrame(rows, physical_schema(definition.fields))).execute()
        times = [c.operation for c in table._store.history()][::-1]
        merges = [v for v, operation in enumerate(times) if operation == "UPSERT"]
        shifted = [renumbered(s, merges) for s in scenarios]
        for compact in (False, True):
            if compact:
                table.compact()
            told = Told(table)
            for i, scenario in enumerate(shifted, start=1):
                told.check(scenario, APART * i)


def renumbered(scenario: Scenario, merges: Sequence[int]) -> Scenario:
    """With the versions that its commits have in a table where folds are commits, too."""
    versions = [
        tuple(Committed(merges[x.version - 1]) if isinstance(x, Committed) else x for x in row)
        for row in scenario.versions
    ]
    return attrs.evolve(scenario, versions=versions)


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s not in ONLY_ROWS], ids=lambda scenario: scenario.name)
@pytest.mark.program
def test_H9_H11_versions_of_what_is_fed(spark, tmp_path, scenario):
    table = make(spark, tmp_path, scenario)
    for step in scenario.steps:
        if isinstance(step, Refused):
            before = table.version
            with pytest.raises(step.error):
                take(table, spark, scenario, step.step)
            assert table.version == before
        else:
            take(table, spark, scenario, step)
    Told(table).check(scenario)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"validFrom": "V"}, InvalidDefinitionError, "two columns 'V'"),
        ({"validTo": "ts"}, InvalidDefinitionError, "two columns 'ts'"),
        ({"current": "id"}, InvalidDefinitionError, "two columns 'id'"),
        ({"validTo": "isCurrent"}, InvalidDefinitionError, "two columns 'isCurrent'"),
        ({"track": ["w"]}, ValueError, "'w' is not a column"),
        ({"exceptColumns": ["w"]}, ValueError, "'w' is not a column"),
        ({"track": ["v"], "exceptColumns": ["id"]}, ValueError, "either"),
        ({"track": ["v", "ts"]}, ValueError, "'ts' is a watermark column"),
    ],
)
def test_H5_arguments_that_do_not_go_with_the_table_are_refused(spark, tmp_path, options, error, match):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", watermarkKey="ts", history=True)
    with pytest.raises(error, match=match):
        table.versions(**options)


def test_H5_a_null_moment_is_refused(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", watermarkKey="ts", history=True)
    with pytest.raises(ValueError, match="got None"):
        table.asOf(None)


def test_H5_S29_a_moment_is_padded_for_a_char_watermark(spark, tmp_path):
    table = new_table(
        spark, tmp_path, "id INT, ts CHAR(3), v STRING", watermarkKey="ts", tombstoneKey=None, history=True
    )
    for rows in ([(1, "x"), (2, "y")], [(1, "x")]):  # the second extract of the moment corrects the first
        table.snapshot(spark.createDataFrame(rows, "id INT, v STRING"), at="a").execute()
    assert [row["id"] for row in table.asOf("a").collect()] == [1]
