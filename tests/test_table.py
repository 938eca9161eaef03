"""The front door: creating, opening, time travel, history, and CarbonData's companions."""

from __future__ import annotations

import datetime as dt
import itertools
import json

import pytest
from helpers import assertRows
from tables import copy_of, fill, frame, live_rows, merge_into, new_table

from trinitymerge import (
    DuplicateKeyError,
    InvalidDefinitionError,
    MergeResult,
    ReadOnlyTableError,
    TableExistsError,
    TableNotFoundError,
    TrinityTable,
)


@pytest.fixture(scope="module")
def people(spark, tmp_path_factory):
    """Three rows, by one commit."""
    table = new_table(spark, tmp_path_factory.mktemp("people"), "id INT, name STRING, age INT")
    return fill(table, spark, [(1, "Ann", 30), (2, "Bob", 40), (3, "Cid", None)])


# Creating and opening -------------------------------------------------------------------------------------------------


def test_create_makes_version_0_of_an_empty_table(spark, tmp_path):
    table = TrinityTable.create(spark, str(tmp_path / "new" / "t"), "id INT NOT NULL, v STRING", primaryKey="id")
    assert table.version == 0
    assert table.toDF().columns == ["id", "v"]
    assert [row.operation for row in table.history().collect()] == ["CREATE"]


def test_create_takes_a_StructType_and_keeps_its_comments(spark, tmp_path):
    schema = frame(spark, "id INT, v DECIMAL(5,1) COMMENT 'money'", (1, None)).schema
    table = TrinityTable.create(spark, str(tmp_path / "t"), schema, primaryKey="id")
    assert table.toDF().schema.simpleString() == "struct<id:int,v:decimal(5,1)>"
    assert table.definition.schema["v"].metadata == {"comment": "money"}


def test_create_takes_an_empty_directory_and_relative_paths(spark, work_dir):
    (work_dir / "empty").mkdir()
    table = TrinityTable.create(spark, "empty", "id INT", primaryKey="id")
    merge_into(table, spark, [(1,)])
    assert (work_dir / "empty" / "_trinity_log").is_dir()
    assert TrinityTable.forPath(spark, str(work_dir / "empty")).toDF().count() == 1


def test_a_path_that_is_written_as_a_name_is_refused_and_an_existing_table_opens(spark, work_dir):
    def opened(path, call=TrinityTable.create):
        return call(spark, path, "id INT", primaryKey="id")

    for path in ("./shop.orders", "orders.parquet", "1.2"):
        assert opened(path).version == 0
    assert opened("shop.orders", TrinityTable.createIfNotExists).version == 0, "the one of ./shop.orders"
    table = TrinityTable.forPath(spark, "shop.orders")
    for path in ("shop.customers", "lake.shop.orders", "lake.`my shop`.orders"):
        calls = [
            lambda path: opened(path),
            lambda path: opened(path, TrinityTable.createIfNotExists),
            lambda path: table.clone(path),
            lambda path: TrinityTable.convert(spark, table.toDF(), path, primaryKey="id"),
        ]
        for call in calls:
            with pytest.raises(InvalidDefinitionError, match=r"write '\./.*give TrinityTable\.create using='iceberg'"):
                call(path)
    assert sorted(p.name for p in work_dir.iterdir()) == ["1.2", "orders.parquet", "shop.orders"]
    with pytest.raises(TableNotFoundError, match=r"A table of a catalog opens with TrinityTable\.forName"):
        TrinityTable.forPath(spark, "shop.customers")


def test_paths_are_taken_literally(spark, tmp_path):
    for name in ("with space", "100%20", "sales[2024]*", "ümläut", "a=b"):
        table = TrinityTable.create(spark, str(tmp_path / name), "id INT", primaryKey="id")
        merge_into(fill(table, spark, [(1,)]), spark, [(2,)])
        assert (tmp_path / name / "data").is_dir()
        assert TrinityTable.forPath(spark, str(tmp_path / name)).toDF().count() == 2


def test_createIfNotExists_creates_then_opens(spark, tmp_path):
    def table():
        return TrinityTable.createIfNotExists(
            spark, str(tmp_path / "t"), "id INT, ts INT", primaryKey="ID", watermarkKey=["ts"], properties={"a": "b"}
        )

    fill(table(), spark, [(1, 1)])
    assert table().version == 1
    with pytest.raises(TableExistsError, match="watermarkKey is"):
        TrinityTable.createIfNotExists(spark, str(tmp_path / "t"), "id INT, ts INT", primaryKey="id")


def test_isTrinityTable(spark, people, tmp_path):
    assert TrinityTable.isTrinityTable(spark, people.path)
    assert not TrinityTable.isTrinityTable(spark, str(tmp_path))
    assert not TrinityTable.isTrinityTable(spark, str(tmp_path / "nothing"))


def test_opened_table_follows_its_table(spark, people):
    one = copy_of(people, spark)
    two = TrinityTable.forPath(spark, one.path)
    one.deleteWhere("id = 1").execute()
    assert (two.version, two.toDF().count()) == (2, 2)
    two.deleteWhere("id = 2").execute()
    assert (one.version, one.toDF().count()) == (3, 1)


def test_alias_is_another_name_for_the_same_table(people):
    assert people.alias("A").version == people.version
    assert people.alias("A").toDF().columns == people.toDF().columns
    assert str(people) == repr(people) == f"TrinityTable({people.path}; version 1; primary key id)"


# Time travel ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def travelled(spark, people):
    """Version 1 has three rows, version 2 four, version 3 two."""
    table = copy_of(people, spark)
    table.insert(frame(spark, "id INT, name STRING, age INT", (4, "Dan", 50))).execute()
    table.deleteWhere("id < 3").execute()
    return table


def test_S40_versionAsOf(spark, travelled):
    counts = [TrinityTable.forPath(spark, travelled.path, versionAsOf=v).toDF().count() for v in range(4)]
    assert counts == [0, 3, 4, 2]


def test_S40_timestampAsOf_takes_text_and_datetimes(spark, travelled):
    stamps = {row.version: row.timestamp for row in travelled.history().collect()}
    for moment in (stamps[2], stamps[2].isoformat(), stamps[2] + dt.timedelta(microseconds=500)):
        past = TrinityTable.forPath(spark, travelled.path, timestampAsOf=moment)
        assert (past.version, past.toDF().count()) == (2, 4)
    before = TrinityTable.forPath(spark, travelled.path, timestampAsOf=stamps[2] - dt.timedelta(milliseconds=1))
    assert before.version == 1
    zoned = stamps[2].replace(tzinfo=dt.timezone.utc).astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert TrinityTable.forPath(spark, travelled.path, timestampAsOf=zoned).version == 2
    assert TrinityTable.forPath(spark, travelled.path, timestampAsOf="2999-01-01").version == 3


def test_S40_past_versions_are_read_only_and_stay_where_they_are(spark, travelled):
    past = TrinityTable.forPath(spark, travelled.path, versionAsOf=1)
    with pytest.raises(ReadOnlyTableError, match="opened at version 1"):
        past.deleteWhere("true")
    assert "; version 1, read only;" in str(past)
    assert [row.version for row in past.history().collect()] == [1, 0]


# History --------------------------------------------------------------------------------------------------------------


def test_history_has_one_row_per_commit_newest_first(travelled):
    rows = travelled.history().collect()
    assert [(row.version, row.operation) for row in rows] == [
        (3, "DELETE"),
        (2, "INSERT"),
        (1, "UPSERT"),
        (0, "CREATE"),
    ]
    deleted = rows[0]
    assert json.loads(deleted.parameters) == {"call": 'deleteWhere("id < ?")'}
    assert (deleted.metrics["rowsDeleted"], deleted.metrics["rowsAppended"]) == ("2", "2")
    assert (deleted.batchesAdded, deleted.batchesRemoved, deleted.rowsAdded) == (1, 0, 2)
    assert deleted.bytesAdded > 0
    assert deleted.durationMs >= 0
    assert all(a.timestamp > b.timestamp for a, b in itertools.pairwise(rows))
    assert all(row.user == rows[0].user for row in rows)


# Companions -----------------------------------------------------------------------------------------------------------


def test_upsert_replaces_and_inserts(spark, people):
    table = copy_of(people, spark)
    result = table.upsert(frame(spark, "id INT, name STRING, age INT", (1, "Anna", 31), (4, "Dan", 50))).execute()
    assert result.rowsAppended == 2
    assert live_rows(table) == [(1, "Anna", 31), (2, "Bob", 40), (3, "Cid", None), (4, "Dan", 50)]


def test_update_leaves_other_source_rows_out(spark, people):
    table = copy_of(people, spark)
    result = table.update(frame(spark, "id INT, name STRING, age INT", (1, "Anna", 31), (4, "Dan", 50))).execute()
    assert (result.rowsUpdated, result.rowsInserted) == (1, 0)
    assert live_rows(table)[0] == (1, "Anna", 31)
    assert table.toDF().count() == 3


def test_delete_needs_only_the_key(spark, people):
    table = copy_of(people, spark)
    table.delete(frame(spark, "ID INT, other STRING", (1, "x"), (9, "y"))).execute()
    assert [row[0] for row in live_rows(table)] == [2, 3]


def test_insert_refuses_keys_that_are_live(spark, people):
    table = copy_of(people, spark)
    rows = frame(spark, "id INT, name STRING, age INT", (1, "again", 1), (4, "Dan", 50))
    with pytest.raises(DuplicateKeyError, match="id=1"):
        table.insert(rows).execute()
    assert table.insert(rows.filter("id = 4")).execute().rowsInserted == 1


def test_insert_deduplicate_leaves_live_keys_out(spark, people):
    table = copy_of(people, spark)
    rows = frame(spark, "id INT, name STRING, age INT", (1, "again", 1), (4, "Dan", 50), (4, "Dan", 50))
    result = table.insert(rows, deduplicate=True).execute()
    assert (result.rowsInserted, result.rowsAppended) == (1, 2)
    assert live_rows(table)[0] == (1, "Ann", 30)
    assert table.toDF().count() == 4


def test_updateWhere(spark, people):
    table = copy_of(people, spark)
    result = table.updateWhere("age >= 40 OR name = 'Ann'", {"age": "age + 1", "name": "upper(name)"}).execute()
    assert (result.rowsUpdated, result.rowsSource) == (2, None)
    assert live_rows(table) == [(1, "ANN", 31), (2, "BOB", 41), (3, "Cid", None)]
    assert table.updateWhere(None, {"age": 0}).execute().rowsUpdated == 3


def test_deleteWhere(spark, people):
    table = copy_of(people, spark)
    assert table.deleteWhere("age > 35").execute().rowsDeleted == 1
    assert [row[0] for row in live_rows(table)] == [1, 3]  # null is not true
    assert table.deleteWhere("age > 1000").execute().skipped == "no clause applied to any row"
    assert table.deleteWhere("true").execute().rowsDeleted == 2
    assert live_rows(table) == []


def test_where_companions_use_the_tables_alias(spark, people):
    table = copy_of(people, spark)
    table.alias("p").deleteWhere("p.id = 1").execute()
    table.deleteWhere("target.id = 2").execute()
    assert [row[0] for row in live_rows(table)] == [3]


def test_another_table_as_source(spark, people, tmp_path):
    table = new_table(spark, tmp_path, "id INT, name STRING, age INT")
    assert table.upsert(people).execute().rowsAppended == 3
    table.alias("T").merge(people.alias("P"), "T.id = P.id").whenMatched("P.age = 30").delete().execute()
    assert [row[0] for row in live_rows(table)] == [2, 3]


# Plans and results ----------------------------------------------------------------------------------------------------


def test_preview_shows_what_would_be_written_and_writes_nothing(spark, people):
    source = frame(spark, "id INT, name STRING, op STRING", (1, "x", "U"), (2, "y", "D"), (5, "z", "I"))
    plan = (
        people.merge(source)
        .whenMatched("op = 'D'")
        .delete()
        .whenMatched("target.age = 30")
        .updateExpr({"name": "source.name"})
        .whenNotMatched()
        .insertExpr({"id": "source.id"})
        .build()
    )
    preview = plan.preview()
    assert preview.columns == ["id", "name", "age", "_tm_deleted", "_tm_action", "_tm_clause"]
    assertRows(
        preview,
        [
            (1, "x", 30, False, "update", 2),
            (2, None, None, True, "delete", 1),
            (5, None, None, False, "insert", 3),
        ],
    )
    assert people.version == 1
    assert people.toDF().count() == 3


def test_plan_can_be_built_before_other_commits_and_executed_after(spark, people):
    table = copy_of(people, spark)
    plan = table.updateWhere("age = 30", {"age": "age + 1"}).build()
    table.updateWhere("id = 2", {"age": 30}).execute()
    assert plan.execute().rowsUpdated == 2


def test_result_prints_in_a_terminal_and_in_a_notebook(spark, people):
    table = copy_of(people, spark)
    result = table.update(frame(spark, "id INT, name STRING, age INT", (1, "<b>", 1), (9, "x", 1))).execute()
    assert isinstance(result, MergeResult)
    assert str(result).startswith(
        "version 2: 0 inserted, 1 updated, 0 deleted, 0 stale (1 row appended from 2 source rows; "
    )
    assert "keyed lookup" in str(result)
    html = result._repr_html_()
    assert "<th style='text-align:left'>rowsUpdated</th><td>1</td>" in html
    blind = table.upsert(frame(spark, "id INT, name STRING, age INT", (1, "x", 1))).execute()
    assert (blind.rowsInserted, blind.perClause) == (None, (None, None))
    assert "unknown" in blind._repr_html_()
    assert set(blind.seconds) >= {"write", "commit"}
