"""Versions in the interpreter: the scenarios of ``histories.py``, and laws that hold for any rows (H1-H5)."""

from __future__ import annotations

import pytest
from histories import SCENARIOS
from history_steps import NO_WATERMARK, ONE, TWO, Changes, Commit, DeleteWhere, Merge, Refused, UpdateWhere
from hypothesis import given, strategies as st

from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import ModelTable
from trinitymerge.testing.model.values import order_key
from trinitymerge.testing.strategies import table_batches, table_definitions


def run(scenario):
    """The table after the steps of a scenario."""
    table = ModelTable(scenario.definition)
    for step in scenario.steps:
        if isinstance(step, Commit):
            table.commit(scenario.rows_of(step))
        elif isinstance(step, Refused):
            refuse(table, step)
        else:
            take(table, step)
    return table


def take(table, step):
    if isinstance(step, UpdateWhere):
        return table.updateWhere(step.condition, step.values, targetAlias="A", **step.options)
    if isinstance(step, DeleteWhere):
        return table.deleteWhere(step.condition, targetAlias="A", **step.options)
    source, columns = step.source.mappings, [field.name for field in step.source.fields]
    if isinstance(step, Merge):
        return table.merge(source, step.clauses, sourceColumns=columns, targetAlias="A", **step.options)
    if isinstance(step, Changes):
        return table.applyChanges(source, sourceColumns=columns, **step.options)
    return table.snapshot(source, step.at, step.missing, sourceColumns=columns)


def refuse(table, refused):
    before = table.copy()
    with pytest.raises(refused.error):
        take(table, refused.step)
    assert table == before


def shown(scenario, table):
    """The versions as scenarios write them."""
    names = {"validFrom": "validFrom", "validTo": "validTo", "current": "isCurrent"}
    interval = [scenario.options.get(argument, name) for argument, name in names.items()]
    rows = table.versions(**scenario.options)
    return [tuple(row[name] for name in (*scenario.columns, *interval)) for row in rows]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_versions_of(scenario):
    table = run(scenario)
    if not scenario.definition.history:
        assert [tuple(row[name] for name in scenario.columns) for row in table.live()] == list(scenario.versions)
        return
    assert shown(scenario, table) == scenario.expected(table.time)
    for moment, rows in scenario.asOf:
        assert [tuple(row[name] for name in scenario.columns) for row in table.asOf(moment)] == list(rows)


def test_every_scenario_has_a_name_of_its_own():
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)


# What versions look like ----------------------------------------------------------------------------------------------


def test_H5_versions_show_the_users_columns_and_the_interval():
    table = ModelTable(ONE)
    table.commit([{"id": 1, "ts": 10, "v": "a"}])
    assert [*table.versions()[0]] == ["id", "ts", "v", "deleted", "validFrom", "validTo", "isCurrent"]
    assert [*table.versions(validFrom="TS")[0]] == ["id", "v", "deleted", "TS", "validTo", "isCurrent"]


def test_H5_hidden_tombstones_do_not_show():
    fields = [Field("id", "integer"), Field("ts", "integer")]
    table = ModelTable(TableDefinition.of(fields, "id", "ts", history=True))
    table.commit([{"id": 1, "ts": 10}, {"id": 1, "ts": 20, "_tm_deleted": True}])
    assert table.versions() == [{"id": 1, "ts": 10, "validFrom": 10, "validTo": 20, "isCurrent": False}]


def test_H8_tables_without_history_are_refused():
    table = ModelTable(TableDefinition.of([Field("id", "integer")], "id"))
    for call in (table.versions, lambda: table.asOf(1)):
        with pytest.raises(InvalidDefinitionError):
            call()


def test_the_time_of_a_version_may_be_given():
    table = ModelTable(NO_WATERMARK)
    table.commit([{"id": 1}])
    table.times[1] = table.commitTime
    assert table.versions()[0]["validFrom"] == table.commitTime
    assert table.copy().time(1) == table.commitTime


# Laws -----------------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw):
    """A table of any shape with history, and some commits."""
    definition = draw(table_definitions())
    table = ModelTable(TableDefinition.from_json({**definition.to_json(), "history": True}))
    for batch in draw(table_batches(definition)):
        table.commit(batch)
    return table


@given(histories())
def test_H4_current_versions_are_the_live_rows(table):
    for options in ({}, {"emptyIntervals": True}):
        current = [row for row in table.versions(**options) if row["isCurrent"]]
        assert [{name: row[name] for name in table.definition.names} for row in current] == table.live()


@given(histories())
def test_H5_asOf_is_what_versions_say(table):
    versions = table.versions()
    moments = {repr(row[end]): row[end] for row in versions for end in ("validFrom", "validTo")}.values()
    for moment in (moment for moment in moments if moment is not None):
        at = order_key(moment)
        valid = [
            {name: row[name] for name in table.definition.names}
            for row in versions
            if order_key(row["validFrom"]) <= at and (row["isCurrent"] or at < order_key(row["validTo"]))
        ]
        assert table.asOf(moment) == valid
        keys = [tuple(row[name] for name in table.definition.primaryKey) for row in valid]
        assert len(set(keys)) == len(keys)


@given(histories(), st.data())
def test_H5_tracking_changes_no_tracked_column_at_any_moment(table, data):
    names = [name for name in table.definition.names if name not in table.definition.watermarkKey]
    track = data.draw(st.lists(st.sampled_from(names), unique=True))
    merged, versions = table.versions(track=track), table.versions()
    assert len(merged) <= len(versions)
    kept = [*table.definition.primaryKey, *track]
    for row in versions:
        covering = [
            m
            for m in merged
            if all(order_key(m[name]) == order_key(row[name]) for name in kept)
            and order_key(m["validFrom"]) <= order_key(row["validFrom"])
            and (m["isCurrent"] or (not row["isCurrent"] and order_key(row["validTo"]) <= order_key(m["validTo"])))
        ]
        assert len(covering) == 1


ROWS = st.tuples(
    st.integers(1, 2),
    st.integers(0, 3) | st.none(),
    st.integers(0, 2) | st.none(),
    st.sampled_from("ab"),
    st.booleans(),
)


@given(st.lists(ROWS, max_size=10, unique_by=lambda row: row[:3]), st.data())
def test_H4_any_order_and_batching_of_the_same_rows_gives_the_same_versions(rows, data):
    def table(*batches):
        model = ModelTable(TWO)
        for batch in batches:
            model.commit([dict(zip(TWO.names, row, strict=True)) for row in batch])
        return model

    order = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    for options in ({}, {"emptyIntervals": True}, {"track": ["v"]}):
        assert table(order[:cut], order[cut:]).versions(**options) == table(rows).versions(**options)
