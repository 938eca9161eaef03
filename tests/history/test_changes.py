"""S41: what happened between two versions of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pyspark
import pytest
from helpers import executed_plan, for_each, quickly
from lanes import Together, Verdicts, beside, lanes_of, prepared, program, rows_of, write_table
from pyspark.sql import DataFrame, Row
from tables import fill, frame, new_table
from test_maintenance import age

from trinitymerge import InvalidDefinitionError, TableNotFoundError, TrinityTable
from trinitymerge.history import changes as module
from trinitymerge.log.actions import AddBatch
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import TOMBSTONE_RETENTION_HOURS
from trinitymerge.testing import ModelTable, renderDifference
from trinitymerge.testing.model.history import net_changes
from trinitymerge.testing.model.rows import RowRules

EVENTS_ROW = ("id", "ts", "v", "_change_type", "_commit_version", "_watermark")


def shown(changes: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of changes, in an order of their own."""
    return sorted((tuple(row) for row in changes.select(*(columns or EVENTS_ROW)).collect()), key=repr)


def four_versions(spark, tmp_path, **options: Any) -> TrinityTable:
    """Inserted at 1, changed at 2 with a row that comes late, deleted and inserted at 3; at 4 a row comes back."""
    return fill(
        new_table(spark, tmp_path, **options),
        spark,
        [(1, 10, "a", False), (2, 10, "a", False), (3, 10, "a", False)],
        [(1, 20, "b", False), (2, 5, "late", False)],
        [(3, 20, None, True), (4, 10, "n", False)],
        [(3, 30, "back", False)],
    )


# Net changes ----------------------------------------------------------------------------------------------------------

AFTER_1_UP_TO_3 = [
    (1, 10, "a", "update_preimage", 2, 20),
    (1, 20, "b", "update_postimage", 2, 20),
    (3, 10, "a", "delete", 3, 20),
    (4, 10, "n", "insert", 3, 10),
]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_S41_net_changes_are_what_two_states_differ_in(spark, tmp_path, form):
    table = four_versions(spark, tmp_path, fileFormat=form)
    assert shown(table.changes(1, 3)) == AFTER_1_UP_TO_3
    assert shown(table.changes(2, 4)) == [
        (3, 10, "a", "update_preimage", 4, 30),
        (3, 30, "back", "update_postimage", 4, 30),
        (4, 10, "n", "insert", 3, 10),
    ]
    assert shown(table.changes(0, 1), "id", "_change_type") == [(1, "insert"), (2, "insert"), (3, "insert")]
    assert shown(table.changes(4)) == shown(table.changes(2, 2)) == []
    assert table.changes(1).columns == [*table.toDF().columns, "_change_type", *module.OUTPUT_COLUMNS[1:]]


def test_S41_without_net_each_version_is_compared_with_the_one_before(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    assert shown(table.changes(1, net=False)) == sorted(
        [*AFTER_1_UP_TO_3, (3, 30, "back", "insert", 4, 30)], key=repr
    ), "what is gone at 3 and back at 4 is two changes"
    assert shown(table.changes(4, net=False)) == []


def test_S41_the_commits_time_is_the_logs(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    times = {r["version"]: r["timestamp"] for r in table.history().collect()}
    for row in table.changes(1).collect():
        assert row["_commit_timestamp"] == times[row["_commit_version"]]


def test_S41_rows_that_are_written_again_as_they_were_are_no_changes(spark, tmp_path):
    schema = "id INT, n STRUCT<a: INT, m: MAP<STRING, ARRAY<INT>>>, l ARRAY<STRUCT<x: DOUBLE>>, v STRING"
    table = new_table(spark, tmp_path, schema)
    row = (
        "(1, named_struct('a', 1, 'm', {}), array(named_struct('x', double('NaN')), null), null), (2, null, null, 'a')"
    )
    values, again = (row.format(m) for m in ("map('p', array(1), 'q', null)", "map('q', null, 'p', array(1))"))
    for text in (values, again):
        table.upsert(spark.sql(f"SELECT * FROM VALUES {text} AS t(id, n, l, v)")).execute()
    assert table.version == 2
    assert shown(table.changes(1), "id") == []
    nulls = "CAST(named_struct('a', null, 'm', null) AS STRUCT<a: INT, m: MAP<STRING, ARRAY<INT>>>)"
    table.updateWhere("id = 2", {"n": nulls}).execute()
    table.updateWhere("id = 1", {"n.m": "map('p', array(1), 'q', array(2))"}).execute()
    assert shown(table.changes(2), "id", "_change_type") == [
        (n, f"update_{image}") for n in (1, 2) for image in ("postimage", "preimage")
    ], "a struct of nulls is no null"


@pytest.mark.generated  # Spark reads no variants without
def test_S41_variants_are_the_same_if_they_read_the_same(spark, tmp_path):
    if pyspark.__version__.startswith("3."):
        pytest.skip("Spark 3.5 has no variants")
    table = new_table(spark, tmp_path, "id INT, v VARIANT, m MAP<INT, VARIANT>")
    texts = ('{"a": 1, "b": [2]}', '{"b": [2], "a": 1}', '{"b": ["2"], "a": 1}')
    for text in texts:
        source = spark.sql(f"SELECT 1 AS id, parse_json('{text}') AS v, map(1, parse_json('{text}'), 2, null) AS m")
        table.upsert(source).execute()
    assert shown(table.changes(1, 2), "id") == []
    assert shown(table.changes(2), "id", "_change_type") == [(1, "update_postimage"), (1, "update_preimage")]


def test_S41_watermarks_are_a_column_or_a_struct_and_null_where_none_is_declared(spark, tmp_path):
    one, two, none = (
        new_table(spark, tmp_path, "id INT, a INT, b STRING", watermarkKey=keys) for keys in ("b", ["b", "a"], None)
    )
    for table in (one, two, none):
        fill(table, spark, [(1, 2, "x")])
        table.delete(frame(spark, "id INT, a INT, b STRING", (1, None, "y"))).execute()
    found = {
        name: table.changes(1).select("_watermark") for name, table in (("one", one), ("two", two), ("none", none))
    }
    assert {name: df.collect()[0][0] for name, df in found.items()} == {
        "one": "y",
        "two": Row(b="y", a=None),
        "none": None,
    }
    assert [df.schema[0].dataType.simpleString() for df in found.values()] == [
        "string",
        "struct<b:string,a:int>",
        "bigint",
    ]


# Compaction, folding, restore, purge ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["compacted", pytest.param("folded", marks=pytest.mark.managed("Iceberg's tables are not folded"))]
)
def test_S41_compactions_and_folds_do_not_show_and_hide_no_more_than_which_commit_it_was(spark, tmp_path, how):
    table = fill(four_versions(spark, tmp_path), spark, [(5, 1, "x", False)])
    if how == "compacted":
        table.compact()
    else:
        minor_compact(table._store, table._snapshot(), table._snapshot().batches[1:])
    assert shown(table.changes(5)) == []
    fill(table, spark, [(6, 1, "y", False)])
    assert shown(table.changes(5), "id", "_commit_version") == [(6, 7)]
    assert shown(table.changes(3), "id", "_change_type", "_commit_version") == [
        (3, "insert", 5),
        (5, "insert", 5),
        (6, "insert", 7),
    ], "of what was rewritten together the newest commit is told"
    assert shown(table.changes(1, 4)) == [
        (1, 10, "a", "update_preimage", 2, 20),
        (1, 20, "b", "update_postimage", 2, 20),
        (3, 10, "a", "update_preimage", 4, 30),
        (3, 30, "back", "update_postimage", 4, 30),
        (4, 10, "n", "insert", 3, 10),
    ]
    assert shown(table.changes(3, net=False), "id", "_commit_version") == [(3, 4), (5, 5), (6, 7)]


def test_S41_of_a_delete_whose_tombstone_is_gone_no_commit_is_known_unless_there_was_one_only(spark, tmp_path):
    table = new_table(spark, tmp_path, properties={TOMBSTONE_RETENTION_HOURS: "0"})
    fill(table, spark, [(1, 10, "a", False), (2, 10, "a", False)], [(1, 20, None, True)])
    table.compact()
    assert shown(table.changes(1)) == [(1, 10, "a", "delete", 2, None)]
    fill(table, spark, [(2, 20, "b", False)])
    assert shown(table.changes(1)) == [
        (1, 10, "a", "delete", None, None),
        (2, 10, "a", "update_preimage", 4, 20),
        (2, 20, "b", "update_postimage", 4, 20),
    ]
    assert shown(table.changes(1, net=False))[0] == (1, 10, "a", "delete", 2, 20), "it was there then"


def test_S41_a_restore_shows_what_it_changed(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    table.compact()
    table.restore(1)
    assert shown(table.changes(5)) == [
        (1, 10, "a", "update_postimage", 6, 10),
        (1, 20, "b", "update_preimage", 6, 10),
        (3, 10, "a", "update_postimage", 6, 10),
        (3, 30, "back", "update_preimage", 6, 10),
        (4, 10, "n", "delete", 6, None),
    ]
    assert shown(table.changes(1)) == []
    fill(table, spark, [(4, 11, "new", False)])
    assert shown(table.changes(3), "id", "_change_type", "_commit_version") == [
        (1, "update_postimage", 6),
        (1, "update_preimage", 6),
        (3, "insert", 6),
        (4, "update_postimage", 7),
        (4, "update_preimage", 7),
    ], "what is older than both versions counts as the restore's"
    assert shown(table.changes(5, net=False), "id", "_commit_version")[-1] == (4, 7)


def test_S41_keys_that_only_a_restore_has_changed_are_compared_beside_what_was_appended(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    table.restore(1)
    fill(table, spark, [(9, 1, "x", False)])
    assert shown(table.changes(4), "id", "_change_type", "_commit_version") == [
        (1, "update_postimage", 5),
        (1, "update_preimage", 5),
        (3, "update_postimage", 5),
        (3, "update_preimage", 5),
        (4, "delete", None),
        (9, "insert", 6),
    ]


def test_S41_a_purge_takes_the_files_of_the_version_before_it(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    table.purge([1])
    with pytest.raises(TableNotFoundError, match=r"Version 4 of .* can no longer be read: vacuum\(\) or purge\(\)"):
        table.changes(4)
    assert shown(table.changes(5)) == []
    fill(table, spark, [(2, 20, "z", False)])
    assert shown(table.changes(5), "id", "_commit_version") == [(2, 6), (2, 6)]


def test_S41_a_purge_shows_the_rows_it_took_while_the_files_before_it_are_there(spark, tmp_path, monkeypatch):
    table = four_versions(spark, tmp_path)
    monkeypatch.setattr(type(table._store), "remove", lambda *_: None)
    monkeypatch.setattr("trinitymerge.maintenance.purge._verify", lambda _: 0)
    table.purge([1])
    assert shown(table.changes(4)) == [(1, 20, "b", "delete", 5, None)]


def test_S41_versions_that_were_vacuumed_are_named(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    opened = TrinityTable.forPath(spark, table.path, versionAsOf=4)
    table.compact()
    fill(table, spark, [(1, 40, "c", False)])
    age(tmp_path, 1000)
    table.vacuum(retentionHours=0)
    with pytest.raises(TableNotFoundError, match=r"Version 3 of .* vacuum\(\).* the versions from 5 on can"):
        table.changes(3)
    with pytest.raises(TableNotFoundError, match=r"Version 3 of .* vacuum\(\)"):
        table.changes(3, net=False)
    with pytest.raises(TableNotFoundError, match=r"Version 4 of .* vacuum\(\)"):
        opened.changes(0)
    assert shown(table.changes(5), "id", "_commit_version") == [(1, 6), (1, 6)]


def test_S41_where_appended_files_are_gone_both_versions_are_compared_by_what_is_left(spark, tmp_path):
    table = four_versions(spark, tmp_path)
    expected = shown(table.changes(3, 4), "id", "v", "_change_type")
    appended = table._snapshot().batches[3]
    minor_compact(table._store, table._snapshot(), table._snapshot().batches[2:])
    table._store.remove(table._store.batch_path(appended.id))
    assert shown(table.changes(3), "id", "v", "_change_type") == expected


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "error", "message"),
    [
        ((3, 1), ValueError, "fromVersion 3 comes after toVersion 1"),
        ((-1,), ValueError, "version numbers from 0 up, got fromVersion=-1"),
        ((True,), ValueError, "got fromVersion=True"),
        ((0, "2"), ValueError, "got toVersion='2'"),
        ((0, 9), ValueError, "toVersion 9 comes after version 4"),
        ((7,), ValueError, "fromVersion 7 comes after toVersion 4"),
    ],
)
def test_S41_versions_that_cannot_be_compared_are_refused(spark, tmp_path, versions, error, message):
    with pytest.raises(error, match=message):
        four_versions(spark, tmp_path).changes(*versions)


def test_S41_a_past_version_knows_no_later_one(spark, tmp_path):
    past = TrinityTable.forPath(spark, four_versions(spark, tmp_path).path, versionAsOf=3)
    assert shown(past.changes(1)) == AFTER_1_UP_TO_3
    with pytest.raises(ValueError, match="toVersion 4 comes after version 3"):
        past.changes(1, 4)


def test_S41_too_many_steps_are_refused_and_the_error_says_how_many_can_be_had(spark, tmp_path, monkeypatch):
    table = four_versions(spark, tmp_path)
    monkeypatch.setattr(module, "MOST_STEPS", 2)
    with pytest.raises(ValueError, match=r"versions 2 to 4 .* 3 changed rows.* at most 2 .*toVersion=3.*net=True"):
        table.changes(1, net=False)
    assert len(shown(table.changes(1, 3, net=False))) == 4
    assert len(shown(table.changes(1))) == 5


def test_S41_a_column_that_is_called_as_one_that_is_added_is_refused(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, `_Change_type` STRING"), spark, [(1, "a")])
    with pytest.raises(InvalidDefinitionError, match=r"'_Change_type'.*it adds _change_type"):
        table.changes(0)


# Cost -----------------------------------------------------------------------------------------------------------------


def test_S41_each_batch_is_scanned_once_and_only_touched_keys_are_shuffled(spark, tmp_path):
    table = new_table(spark, tmp_path)
    fill(table, spark, [(n, 10, "a", False) for n in range(200)], [(1, 20, "b", False)], [(150, 20, "b", False)])
    table.compact()
    fill(table, spark, [(7, 20, "c", False)])
    plan = executed_plan(table.changes(2))
    assert plan.count("Exchange hashpartitioning") == 1
    assert plan.count("BroadcastHashJoin") == plan.count("LeftSemi") > 0
    assert plan.count("FileScan") <= 3 + plan.count("LeftSemi"), "each kind of batch, and the keys that are sent there"


def test_S41_batches_that_cannot_hold_a_changed_key_are_not_opened(spark, tmp_path):
    table = new_table(spark, tmp_path)
    fill(table, spark, [(1, 10, "a", False)], [(2, 10, "a", False)], [(2, 20, "b", False)])
    first, second, third = (b.id for b in table._snapshot().batches)
    read = " ".join(table.changes(2).inputFiles())
    assert [id in read for id in (first, second, third)] == [False, True, True]


def test_S41_a_batch_is_read_if_it_may_hold_a_key_of_any_of_the_appended_ones(spark, tmp_path):
    table = new_table(spark, tmp_path)
    fill(table, spark, [(1, 10, "a", False), (2, 10, "a", False)], [(1, 20, "b", False)], [(900, 10, "n", False)])
    assert shown(table.changes(1), "id", "_change_type") == [
        (1, "update_postimage"),
        (1, "update_preimage"),
        (900, "insert"),
    ]


def test_S41_nothing_runs_before_the_rows_are_asked_for(spark, tmp_path):
    from test_costs import jobs_of

    table = four_versions(spark, tmp_path)
    with jobs_of(spark) as jobs:
        table.changes(1).schema  # noqa: B018
        table.changes(1, net=False).schema  # noqa: B018
    assert jobs.count == 0


# Generated merges, against the interpreter ----------------------------------------------------------------------------


@attrs.frozen(eq=False)
class State:
    """The interpreter's table at a version of the engine's, and the engine's version of each of its commits."""

    model: ModelTable
    versions: tuple[int, ...]

    def then(self, batch: Iterable[Mapping[str, Any]], version: int) -> State:
        model = self.model.copy()
        model.commit(batch)
        return State(model, (*self.versions, version))

    def changes_to(self, after: State) -> list[dict[str, Any]]:
        found = net_changes(self.model.definition, self.model.state(), after.model.state())
        return [{**r, "_commit_version": v and after.versions[v - 1]} for r in found for v in [r["_commit_version"]]]


def states_of(table: TrinityTable, batches: Iterable[list[dict[str, Any]]]) -> list[State]:
    """The interpreter's table at each version: appended as the batches say, restored as the log says."""
    found, waiting = [State(ModelTable(table.definition), ())], iter(batches)
    for commit in table._store.commits(1, table.version):
        if not commit.changes_data:
            found.append(found[-1])
        elif commit.operation == "RESTORE":
            found.append(found[commit.parameters["version"]])
        else:
            found.append(found[-1].then(next(waiting), commit.version))
    assert next(waiting, None) is None
    return found


def chain(spark, directory, number: int) -> tuple[TrinityTable, list[State]]:
    """A generated table with a generated merge, folded and compacted on the way, and restored."""
    verdicts = Verdicts.of(lanes_of(program(number), 25, number)).merged
    together = Together(tuple(case for case, _ in verdicts))
    _, table, source = prepared(spark, directory, together, folded={3} if number % 2 else ())
    batches, before = list(together.batches), table.version
    if together.builder(table, source).execute().version > before:
        batches.append(beside(result.appended for _, result in verdicts))
    table.compact()
    table.restore(2)
    if number % 3:
        batches.append(together.batches[0][::2])
        merge_into_directly(table, batches[-1])
    minor_compact(table._store, table._snapshot(), table._snapshot().batches[-2:])
    return table, states_of(table, batches)


def merge_into_directly(table: TrinityTable, rows: list[dict[str, Any]]) -> None:
    """Appends stored rows as they are."""
    other = write_table(table._store.spark, directory := table_home(table), table.definition, [rows])
    (batch,) = other._store.snapshot().batches
    (directory / other.path.rpartition("/")[2] / "data" / f"_tm_batch={batch.id}").rename(
        directory / table.path.rpartition("/")[2] / "data" / f"_tm_batch={batch.id}"
    )
    base = table._snapshot()
    table._store.commit(base.next_commit("TEST", [AddBatch(attrs.evolve(batch, version=None, base=False))]), base)


def table_home(table: TrinityTable) -> Any:
    from tables import directory_of

    return directory_of(table).parent


def plain(changes: DataFrame) -> list[dict[str, Any]]:
    """Changes as the interpreter has them; the time of a commit it does not know."""
    rows = ({n: v for n, v in row.items() if n != "_commit_timestamp"} for row in rows_of(changes))
    return [{n: v.asDict() if isinstance(v, Row) else v for n, v in row.items()} for row in rows]


def without(rows: Iterable[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if n not in names} for row in rows]


def applied(definition: TableDefinition, rows: Iterable[Mapping[str, Any]], changes: Iterable[Mapping[str, Any]]):
    """The rows with the changes made to them; fails where a change does not fit."""
    key, changes = RowRules(definition).key, list(changes)
    found = {key(row): {n: row[n] for n in definition.names} for row in rows}
    images = [(c["_change_type"], {n: c[n] for n in definition.names}) for c in changes]
    for kind, row in images:
        if kind in ("update_preimage", "delete"):
            assert not renderDifference([found.pop(key(row))], [row]), "what is replaced is what was there"
    for kind, row in images:
        if kind in ("update_postimage", "insert"):
            assert key(row) not in found
            found[key(row)] = row
    return list(found.values())


def pairs(last: int, number: int) -> set[tuple[int, int]]:
    """Some pairs of versions, near and far."""
    return {(number % 3, last), (last - 3, last), (1, last - 1 - number % 3)}


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly(range(9), [0, 1, 5]))
def test_S41_engine_agrees_with_the_interpreter_over_chains_of_merges(number, spark, tmp_path, monkeypatch):
    if number % 2:
        monkeypatch.setattr(module, "BROADCAST_ROWS", 0)
    table, states = chain(spark, tmp_path, number)
    own, key = table.definition, (*table.definition.primaryKey, "_change_type")
    rewritten = {c.version for c in table._store.commits(1, table.version) if c.removed}
    for first, last in sorted(pairs(table.version, number)):
        found, expected = plain(table.changes(first, last)), states[first].changes_to(states[last])
        unknown = ("_commit_version",) if rewritten.intersection(range(1, last + 1)) else ()
        text = renderDifference(without(expected, *unknown), without(found, *unknown), key)
        assert not text, f"program {number}, {own}, versions {first} to {last} ('expected' is the interpreter): {text}"
        assert all(r["_commit_version"] is None or first < r["_commit_version"] <= last for r in found)
        rows = applied(own, states[first].model.live(), found)
        assert not renderDifference(states[last].model.live(), rows, own.primaryKey)


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly([2, 5], [2]))
def test_S41_without_net_the_engine_agrees_with_the_interpreter_step_by_step(number, spark, tmp_path):
    table, states = chain(spark, tmp_path, number)
    found, key = plain(table.changes(0, net=False)), (*table.definition.primaryKey, "_change_type", "_commit_version")
    steps = [
        {**row, "_commit_version": version}
        for version in range(1, table.version + 1)
        for row in states[version - 1].changes_to(states[version])
    ]
    assert not renderDifference(steps, found, key)


@pytest.mark.slow
@for_each("number", range(20))
def test_S41_in_the_interpreter_changes_lead_from_one_state_to_the_other(number):
    for case in lanes_of(program(number), 10, number):
        model = case.table()
        for first in range(model.version + 1):
            for net in (True, False):
                rows, steps = model.at(first).live(), [(first, model.version)] if net else []
                steps = steps or [(n, n + 1) for n in range(first, model.version)]
                changes = [model.changes(*step) for step in steps]
                for some in changes:
                    rows = applied(model.definition, rows, some)
                assert not renderDifference(model.live(), rows, model.definition.primaryKey)
                assert model.changes(first, net=net) == [row for some in changes for row in some]


def test_S41_the_interpreter_shows_an_example():
    fields = [Field("id", "long"), Field("a", "long"), Field("b", "long"), Field("deleted", "boolean")]
    model = ModelTable(TableDefinition.of(fields, "id", ["a", "b"], "deleted"))
    model.commit([{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}])
    model.commit([{"id": 1, "a": 1, "b": 2, "deleted": True}, {"id": 2, "a": 1, "b": 0}])
    assert model.changes(1) == [
        {
            "id": 1,
            "a": 1,
            "b": 1,
            "deleted": False,
            "_change_type": "delete",
            "_commit_version": 2,
            "_watermark": {"a": 1, "b": 2},
        }
    ]
