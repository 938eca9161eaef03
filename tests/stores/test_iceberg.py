"""Tables of Iceberg's (S16): the contract, what they can do and what not, races, and what other programs commit to them."""

from __future__ import annotations

import threading

import pytest
from contract import CHECKS, checks_of, definition
from iceberg import new_name
from tables import EVENTS, fill, frame, live_rows, new_table

import trinitymerge
from trinitymerge import InvalidDefinitionError, NullKeyError, TrinityTable, UnsupportedStorageError
from trinitymerge.errors import ConcurrentCommitError, TableExistsError, TableNotFoundError
from trinitymerge.fs import faults
from trinitymerge.log.commit import RetryPolicy
from trinitymerge.stores.base import CatalogStore, ManagedStore
from trinitymerge.stores.iceberg import IcebergStore
from trinitymerge.stores.iceberg_client import IcebergTable
from trinitymerge.stores.iceberg_versions import KEPT

pytestmark = pytest.mark.iceberg

KEYS = {"primaryKey": "id", "watermarkKey": "ts", "tombstoneKey": "deleted"}


@pytest.fixture
def events(spark, tmp_path):
    """Three live rows and a tombstone."""
    return fill(
        new_table(spark, tmp_path),
        spark,
        [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False), (4, 10, "d", False)],
        [(4, 20, None, True)],
    )


@pytest.fixture
def plain(spark):
    """A table of somebody else's: id, ts and v, three rows in two files."""
    name = new_name()
    spark.sql(f"CREATE TABLE {name} (id INT, ts INT, v STRING) USING iceberg")
    spark.sql(f"INSERT INTO {name} VALUES (1, 10, 'a'), (2, 10, 'b')")
    spark.sql(f"INSERT INTO {name} VALUES (3, 10, 'c')")
    return name


def by_others(spark, name, *rows):
    """Rows that another program appends; the hidden columns are null."""
    table = spark.table(name)
    shown = [c for c in table.columns if not c.startswith("_tm_")]
    values = frame(spark, ", ".join(f"{c} {table.schema[c].dataType.simpleString()}" for c in shown), *rows)
    nulls = [f"CAST(NULL AS {table.schema[c].dataType.simpleString()}) AS {c}" for c in table.columns if c not in shown]
    values.selectExpr("*", *nulls).writeTo(name).append()


def upsert(table, spark, *rows):
    return table.upsert(frame(spark, EVENTS, *rows)).execute()


# The contract ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("check", CHECKS, ids=[c.__name__.removeprefix("check_") for c in CHECKS])
def test_S33_the_store_keeps_its_part_of_the_contract(check, file_format, spark):
    store = IcebergStore(spark, new_name())
    store.create(definition(file_format), None)
    if check in checks_of(store):
        check(store)


def test_S16_what_the_store_can_do_is_what_it_has_methods_for(spark):
    store = IcebergStore(spark, new_name())
    assert [isinstance(store, kind) for kind in (CatalogStore, ManagedStore)] == [True, False]


# What it can do: the capability table of docs/iceberg.md ------------------------------------------------------------------


def test_S16_a_chain_of_clauses_is_one_snapshot_of_icebergs(events, spark):
    before = spark.table(f"{events.path}.snapshots").count()
    source = frame(spark, "id INT, ts INT, v STRING", (1, 30, "new"), (5, 30, "e")).alias("B")
    result = (
        events.alias("A")
        .merge(source, "A.id = B.id")
        .whenMatched()
        .updateExpr({"v": "concat(A.v, B.v)", "ts": "B.ts"})
        .whenNotMatched()
        .insertExpr({"id": "B.id", "ts": "B.ts", "v": "B.v"})
        .whenNotMatchedAndExistsOnlyOnTarget("A.id = 3")
        .delete()
        .execute()
    )
    assert (result.rowsUpdated, result.rowsInserted, result.rowsDeleted) == (1, 1, 1)
    assert live_rows(events) == [(1, 30, "anew", False), (2, 10, "b", False), (5, 30, "e", None)]
    assert spark.table(f"{events.path}.snapshots").count() == before + 2  # the rows, and what is said of them
    assert spark.table(f"{events.path}.refs").count() == 2  # main, and the tag


def test_S11_a_late_row_and_a_late_delete_change_nothing(events, spark):
    upsert(events, spark, (1, 5, "late", False), (4, 15, "late", False))
    assert live_rows(events) == [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)]


def test_S38_compaction_changes_nothing_that_readers_see_and_keeps_tombstones(events, spark):
    before, result = live_rows(events), events.compact()
    assert (result.batches, result.rows, result.rowsRemoved, result.tombstones) == (2, 4, 1, 1)
    assert live_rows(events) == before
    assert spark.table(events.path).count() == 4
    upsert(events, spark, (4, 15, "late", False))
    assert live_rows(events) == before
    assert events.compact().rows == 4
    assert events.compact().skipped == "there is one base and nothing else"


def test_S38_tombstones_go_when_they_are_old_and_the_horizon_stays(spark, tmp_path):
    table = new_table(spark, tmp_path, properties={"trinitymerge.tombstoneRetentionHours": "0"})
    fill(table, spark, [(1, 10, "a", False), (2, 10, "b", False)], [(1, 20, None, True)])
    assert table.compact().tombstonesForgotten == 1
    assert upsert(table, spark, (1, 15, "late", False)).rowsBelowHorizon == 1
    again = TrinityTable.forName(spark, table.path)
    assert upsert(again, spark, (3, 15, "late", False)).rowsBelowHorizon == 1


def test_S38_a_table_that_is_empty_after_compaction(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT", primaryKey="id")
    table.upsert(frame(spark, "id INT", 1)).execute()
    table.delete(frame(spark, "id INT", 1)).execute()
    assert table.compact().rows == 0
    assert (live_rows(table), spark.table(table.path).count()) == ([], 0)
    table.upsert(frame(spark, "id INT", 2)).execute()
    assert live_rows(table) == [(2,)]


def test_S38_compaction_by_itself(spark, tmp_path):
    table = new_table(spark, tmp_path, properties={"trinitymerge.compactAfterBatches": "2"})
    results = [upsert(table, spark, (1, n, "v", False)) for n in range(4)]
    assert results[-1].hint == "compacted into version 5"
    assert live_rows(table) == [(1, 3, "v", False)]


def test_S36_a_transaction_is_merged_once_whatever_expires(events, spark):
    def merged(version):
        source = frame(spark, EVENTS, (9, version, "t", False))
        return events.upsert(source).withTransaction("job", version).execute().skipped

    assert (merged(1), merged(2)) == ("", "")
    by_others(spark, events.path, (50, 1, "x", False))
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{events.path.removeprefix('lake.')}', "
        "older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert "was committed before" in merged(2)
    assert (9, 2, "t", False) in live_rows(events)


def test_S40_past_versions_are_icebergs_snapshots(events, spark):
    versions = [live_rows(TrinityTable.forName(spark, events.path, versionAsOf=v)) for v in range(3)]
    assert [len(rows) for rows in versions] == [0, 4, 3]
    assert live_rows(TrinityTable.forName(spark, events.path, timestampAsOf="2100-01-01")) == versions[2]
    assert [r["operation"] for r in events.history().collect()] == ["UPSERT", "UPSERT", "CREATE"]
    with pytest.raises(TableNotFoundError, match="has no version 7; it has versions 0 to 2"):
        TrinityTable.forName(spark, events.path, versionAsOf=7)
    events.compact()
    assert [live_rows(TrinityTable.forName(spark, events.path, versionAsOf=v)) for v in range(3)] == versions


def test_S40_versions_that_iceberg_has_expired_are_named(events, spark):
    events.compact()
    table = events.path.removeprefix("lake.")
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert live_rows(events) == [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)]
    with pytest.raises(TableNotFoundError, match=r"no version 1; it has versions 3 to 3.*expire_snapshots"):
        TrinityTable.forName(spark, events.path, versionAsOf=1)
    assert upsert(events, spark, (1, 30, "z", False)).version == 4


def test_S40_a_rollback_of_icebergs_is_one(events, spark):
    first = next(r["snapshot_id"] for r in spark.table(f"{events.path}.refs").collect() if r["name"] == "main")
    upsert(events, spark, (1, 30, "z", False))
    assert events.version == 3
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{events.path.removeprefix('lake.')}', {first})")
    assert (events.version, live_rows(events)[0]) == (2, (1, 10, "a", False))
    assert upsert(events, spark, (2, 30, "y", False)).version == 3
    assert live_rows(events)[:2] == [(1, 10, "a", False), (2, 30, "y", False)]


def test_S41_changes_between_versions(events, spark):
    upsert(events, spark, (1, 30, "z", False), (5, 30, "e", False))
    shown = events.changes(2).select("id", "v", "_change_type").collect()
    assert sorted(map(tuple, shown)) == [
        (1, "a", "update_preimage"),
        (1, "z", "update_postimage"),
        (5, "e", "insert"),
    ]


def test_S41_changes_over_what_others_append(events, spark):
    """Rows of others do not say when they came: each version has those that had come by then, and ties fall as for readers."""
    by_others(spark, events.path, (1, 20, "x", False), (7, 1, "y", False), (7, 1, "x", False))
    by_others(spark, events.path, (1, 20, "z", False), (8, 1, "e", False))
    upsert(events, spark, (8, 2, "ours", False))
    states = [live_rows(TrinityTable.forName(spark, events.path, versionAsOf=v)) for v in range(2, 6)]
    assert states[1][-1] == (7, 1, "y", False)
    for first in range(4):
        for last in range(first, 4):
            gone, came = set(states[first]) - set(states[last]), set(states[last]) - set(states[first])
            shown = [tuple(r) for r in events.changes(2 + first, 2 + last).drop("_watermark").collect()]
            assert {r[:4] for r in shown if r[4] in ("delete", "update_preimage")} == gone
            assert {r[:4] for r in shown if r[4] in ("insert", "update_postimage")} == came


def test_S40_S41_a_version_that_others_overwrote_has_nothing_of_later_appends(events, spark):
    spark.sql(f"UPDATE {events.path} SET v = 'u' WHERE id = 1")
    before, version = live_rows(events), events.version
    by_others(spark, events.path, (9, 1, "later", False))
    assert live_rows(TrinityTable.forName(spark, events.path, versionAsOf=version)) == before
    told = events.changes(version, version + 1).select("id", "_change_type").collect()
    assert [tuple(row) for row in told] == [(9, "insert")]


def test_S16_names_that_need_backquotes_are_found_by_other_sessions(spark, tmp_path):
    name = f"lake.db.`{new_name().rpartition('.')[2]} odd`"
    table = TrinityTable.create(spark, name, "id INT, v STRING", "id", using="iceberg")
    assert table.path == name
    table.foreachBatch(lambda t, batch: t.upsert(batch), "s")(frame(spark, "id INT, v STRING", (1, "a")), 0)
    orders = TrinityTable.create(spark, str(tmp_path / "t"), "id INT, v STRING", "id")
    orders.upsert(frame(spark, "id INT, v STRING", (7, "old"))).execute()
    merge = orders.alias("A").merge(frame(spark, "id INT, v STRING", (7, "new")).alias("B"), "A.id = B.id")
    merge.whenMatched().updateExpr({"v": "B.v"}).insertHistoryExpr({"id": "A.id", "v": "A.v"}, table).execute()
    assert live_rows(table) == [(1, "a"), (7, "old")]


@pytest.mark.parametrize("key", ["url", "token_id"])
def test_S16_keys_that_Spark_hides_as_secrets_are_asked_for(spark, key):
    name = new_name()
    told = f"TBLPROPERTIES ('trinitymerge.primaryKey' = '{key}')"
    spark.sql(f"CREATE TABLE {name} ({key} INT, v STRING) USING iceberg {told}")
    with pytest.raises(InvalidDefinitionError, match=r"hides the property trinitymerge\.primaryKey of .*Name the keys"):
        TrinityTable.forName(spark, name)
    assert TrinityTable.forName(spark, name, primaryKey=key).definition.primaryKey == (key,)


def test_H8_H11_feeds(events, spark):
    events.applyChanges(frame(spark, EVENTS, (1, 40, "cdc", False))).execute()
    assert (1, 40, "cdc", False) in live_rows(events)
    target = TrinityTable.create(spark, new_name(), "id INT, ts INT, v STRING", "id", "ts", using="iceberg")
    changes = events.changesSince(target, "app")
    assert changes.rows.count() == 3
    target.snapshot(frame(spark, "id INT, v STRING", (1, "a"), (2, "b")), at=10).execute()
    target.snapshot(frame(spark, "id INT, v STRING", (2, "B"), (3, "c")), at=20).execute()
    assert live_rows(target) == [(2, 20, "B"), (3, 20, "c")]


def test_S36a_a_stream_merges_each_micro_batch_once(spark, tmp_path):
    table = TrinityTable.create(spark, new_name(), "id INT, v STRING", "id", using="iceberg")
    for n in range(3):
        frame(spark, "id INT, v STRING", (n, "a"), (9, f"{n}")).write.mode("append").parquet(str(tmp_path / "in"))
    for _ in range(2):
        rows = spark.readStream.schema("id INT, v STRING").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        merge = table.foreachBatch(lambda t, batch: t.upsert(batch.dropDuplicates(["id"])), "stream")
        started = rows.writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "c"))
        started.trigger(availableNow=True).start().awaitTermination()
    assert sorted(r[0] for r in live_rows(table)) == [0, 1, 2, 9]
    assert len(table.history().collect()) > 2


def test_S27_history_inserts_into_a_table_of_icebergs(spark, tmp_path):
    table = TrinityTable.create(spark, str(tmp_path / "t"), "id INT, v STRING", "id")
    past = TrinityTable.create(spark, new_name(), "id INT, v STRING", ["id", "v"], using="iceberg")
    table.upsert(frame(spark, "id INT, v STRING", (1, "a"))).execute()
    source = frame(spark, "id INT, v STRING", (1, "b")).alias("B")
    merge = table.alias("A").merge(source, "A.id = B.id").whenMatched().updateExpr({"v": "B.v"})
    merge.insertHistoryExpr({"id": "A.id", "v": "A.v"}, past).execute()
    assert (live_rows(table), live_rows(past)) == ([(1, "b")], [(1, "a")])


def test_S48_statements_over_a_table_of_icebergs(events, spark):
    tables = {"orders": events, "changed": frame(spark, EVENTS, (1, 50, "sql", False))}
    merge = "MERGE INTO orders o USING changed c ON o.id = c.id WHEN MATCHED THEN UPDATE SET v = c.v, ts = c.ts"
    trinitymerge.sql(spark, merge, tables=tables)
    assert live_rows(events)[0] == (1, 50, "sql", False)
    rows = trinitymerge.sql(spark, "SELECT v FROM orders VERSION AS OF 2 WHERE id = 1", tables=tables)
    assert [r["v"] for r in rows.collect()] == ["a"]


def test_S14_filters_on_keys_reach_icebergs_files_and_partitions(spark, capsys):
    name = new_name()
    spark.sql(f"CREATE TABLE {name} (id INT, day DATE, v INT) USING iceberg PARTITIONED BY (day)")
    spark.sql(
        f"INSERT INTO {name} SELECT CAST(id AS INT), date_add(DATE '2024-01-01', CAST(id AS INT)), 0 FROM range(5)"
    )
    table = TrinityTable.forName(spark, name, ["day", "id"])
    table.upsert(spark.sql("SELECT 2 AS id, DATE '2024-01-03' AS day, 1 AS v")).execute()
    found = table.toDF().filter("day = DATE '2024-01-03'")
    assert [r["v"] for r in found.collect()] == [1]
    found.explain()
    plan = capsys.readouterr().out
    assert plan.count("BatchScan") >= 1
    assert "day = " in plan.partition("filters=")[2]


CANNOT = {
    "vacuum()": lambda t, spark: t.vacuum(),
    "restore()": lambda t, spark: t.restore(0),
    "purge()": lambda t, spark: t.purge([1]),
    "purgeWhere()": lambda t, spark: t.purgeWhere("id = 1"),
    "clone()": lambda t, spark: t.clone("/nowhere"),
    "health()": lambda t, spark: t.health(),
    "why()": lambda t, spark: t.why(1),
    "sqlFor()": lambda t, spark: t.sqlFor("duckdb"),
    "export()": lambda t, spark: t.export("/nowhere"),
}


@pytest.mark.parametrize("call", CANNOT)
def test_S16_what_the_format_cannot_give_is_refused_by_name(call, events, spark):
    with pytest.raises(
        UnsupportedStorageError, match=r"is not possible for 'lake\.db\..*does not manage the table's files"
    ) as refused:
        CANNOT[call](events, spark)
    assert refused.value.call == call
    assert events.version == 2


def test_S16_alterations_are_the_catalogs(events, spark):
    with pytest.raises(UnsupportedStorageError, match="does not manage the table's files"):
        events.alter().addColumn("w", "INT").execute()
    spark.sql(f"ALTER TABLE {events.path} ADD COLUMN w INT")
    spark.sql(f"ALTER TABLE {events.path} RENAME COLUMN v TO value")
    assert events.toDF().columns == ["id", "ts", "value", "deleted", "w"]
    assert live_rows(events)[0] == (1, 10, "a", False, None)
    events.upsert(spark.sql("SELECT 1 AS id, 30 AS ts, 'w' AS value, false AS deleted, 7 AS w")).execute()
    assert live_rows(events)[0] == (1, 30, "w", False, 7)
    assert len(live_rows(TrinityTable.forName(spark, events.path, versionAsOf=1))) == 4


def test_H1_history_is_refused(spark):
    name = new_name()
    with pytest.raises(UnsupportedStorageError, match="cannot have history"):
        TrinityTable.create(spark, name, "id INT", "id", history=True, using="iceberg")
    assert not spark.catalog.tableExists(name)


# Creating and adopting ----------------------------------------------------------------------------------------------------


def test_S7_a_table_is_created_once_and_says_what_it_is(spark):
    name = new_name()
    arguments = {"schema": "id INT COMMENT 'the \"key\"', `odd.name` STRING", "primaryKey": "id", "using": "iceberg"}
    table = TrinityTable.create(
        spark, name, comment="it's \\ odd", properties={"write.target-file-size-bytes": "1000000"}, **arguments
    )
    assert spark.table(name).columns[:2] == ["id", "odd.name"]
    told = {r["key"]: r["value"] for r in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert (told["trinitymerge.primaryKey"], told["write.target-file-size-bytes"]) == ("id", "1000000")
    assert TrinityTable.createIfNotExists(spark, name, **arguments).version == 0
    with pytest.raises(TableExistsError, match="forName"):
        TrinityTable.create(spark, name, **arguments)
    with pytest.raises(TableExistsError, match="primaryKey"):
        TrinityTable.createIfNotExists(spark, name, "id INT, `odd.name` STRING", "odd.name", using="iceberg")
    assert table.definition.field("id").comment == 'the "key"'


def test_S7a_a_type_that_iceberg_does_not_have_is_refused(spark):
    with pytest.raises(InvalidDefinitionError, match="cannot be created"):
        TrinityTable.create(spark, new_name(), "id INT, i INTERVAL DAY TO SECOND", "id", using="iceberg")


def test_S16_a_table_that_exists_keeps_its_rows_and_gets_keys_once(plain, spark):
    with pytest.raises(TableNotFoundError, match=r"is not registered yet\. Name its keys once"):
        TrinityTable.forName(spark, plain)
    table = TrinityTable.forName(spark, plain, "id", "ts")
    assert (table.version, live_rows(table)) == (0, [(1, 10, "a"), (2, 10, "b"), (3, 10, "c")])
    again = TrinityTable.forName(spark, plain)
    assert again.definition == table.definition
    assert TrinityTable.forName(spark, plain, "ID", ["ts"]).version == 0
    with pytest.raises(TableExistsError, match=r"other keys: its watermarkKey is \('ts',\), not \(\)"):
        TrinityTable.forName(spark, plain, "id")
    again.upsert(frame(spark, "id INT, ts INT, v STRING", (2, 20, "B"), (4, 20, "D"))).execute()
    again.delete(frame(spark, "id INT, ts INT", (3, 20))).execute()
    assert live_rows(again) == [(1, 10, "a"), (2, 20, "B"), (4, 20, "D")]


def test_S16_keys_may_stand_in_the_tables_properties(plain, spark):
    spark.sql(
        f"ALTER TABLE {plain} SET TBLPROPERTIES ('trinitymerge.primaryKey' = 'id', 'trinitymerge.watermarkKey' = 'ts, v')"
    )
    table = TrinityTable.forName(spark, plain)
    assert (table.definition.primaryKey, table.definition.watermarkKey) == (("id",), ("ts", "v"))


def test_S2_a_table_with_a_null_key_is_left_as_it_is(plain, spark):
    spark.sql(f"INSERT INTO {plain} VALUES (NULL, 1, 'n')")
    with pytest.raises(
        NullKeyError, match=r"1 row of the table's 4 have a null in the primary key \(id\), such as \(None, 1, 'n'\)"
    ):
        TrinityTable.forName(spark, plain, "id", "ts")
    assert spark.table(plain).columns == ["id", "ts", "v"]


def test_S15_several_versions_of_a_key_are_resolved(plain, spark):
    spark.sql(f"INSERT INTO {plain} VALUES (1, 10, 'z'), (1, 9, 'zz'), (2, 11, 'b2')")
    table = TrinityTable.forName(spark, plain, "id", "ts")
    assert live_rows(table) == [(1, 10, "z"), (2, 11, "b2"), (3, 10, "c")]


def test_S2_rows_of_others_without_a_key_are_no_rows(plain, spark):
    table = TrinityTable.forName(spark, plain, "id", "ts")
    by_others(spark, plain, (None, 99, "no key"), (4, 1, "d"))
    assert live_rows(table) == [(1, 10, "a"), (2, 10, "b"), (3, 10, "c"), (4, 1, "d")]


# What others commit -------------------------------------------------------------------------------------------------------


def test_S15_rows_that_others_append_are_read_and_lose_ties_to_merges(events, spark):
    by_others(
        spark, events.path, (1, 10, "theirs", False), (2, 11, "theirs", False), (7, 1, "x", False), (7, 1, "y", False)
    )
    assert events.version == 3
    assert live_rows(events) == [(1, 10, "a", False), (2, 11, "theirs", False), (3, 10, "c", False), (7, 1, "y", False)]
    by_others(spark, events.path, (7, 1, None, True))
    assert 7 not in {r[0] for r in live_rows(events)}  # a tombstone wins
    assert [r["operation"] for r in events.history().collect()][:2] == ["APPEND", "APPEND"]
    rows = live_rows(events)
    events.compact()
    assert live_rows(events) == rows
    assert {r[0] for r in spark.table(events.path).select("_tm_sequence").collect()} == {5}


def test_S16_what_others_delete_update_and_rewrite_is_a_version(events, spark):
    table = events.path.removeprefix("lake.")
    spark.sql(f"DELETE FROM {events.path} WHERE id = 2")
    assert live_rows(events) == [(1, 10, "a", False), (3, 10, "c", False)]
    spark.sql(f"UPDATE {events.path} SET v = 'upd' WHERE id = 3")
    assert live_rows(events) == [(1, 10, "a", False), (3, 10, "upd", False)]
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    upsert(events, spark, (1, 30, "z", False), (4, 15, "late", False))
    assert live_rows(events) == [(1, 30, "z", False), (3, 10, "upd", False)]
    assert events.compact().rows == 3
    assert live_rows(events) == [(1, 30, "z", False), (3, 10, "upd", False)]
    assert [r["operation"] for r in events.history().collect()] == [
        *("COMPACT", "UPSERT", "REWRITE", "OVERWRITE", "OVERWRITE", "UPSERT", "UPSERT", "CREATE")
    ]


def test_S16_whole_files_that_others_delete(events, spark):
    spark.sql(f"DELETE FROM {events.path} WHERE _tm_sequence = 2")  # the tombstone's file
    assert (4, 10, "d", False) in live_rows(events)
    assert next(r["operation"] for r in events.history().collect()) == "DELETE"
    upsert(events, spark, (4, 30, "z", False))
    assert (4, 30, "z", False) in live_rows(events)


# Races ----------------------------------------------------------------------------------------------------------------


def test_S35_merges_at_once_lose_nothing(events, spark):
    """Six writers, each with keys of its own and one that they share: every merge is a version, every row is there."""
    failures = []

    def write(n):
        try:
            table = TrinityTable.forName(spark, events.path)
            for round in range(2):
                upsert(table, spark, (100 + n, round, "own", False), (99, 10 * n + round, f"{n}", False))
        except Exception as error:  # noqa: BLE001 - told by the assertion
            failures.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert events.version == 2 + 8
    rows = live_rows(events)
    assert [r for r in rows if r[0] >= 99] == [*((100 + n, 1, "own", False) for n in range(4)), (99, 31, "3", False)]
    sequences = [r[0] for r in spark.table(events.path).select("_tm_sequence").distinct().collect()]
    assert sorted(sequences) == list(range(1, 11))


def test_S16_the_first_commit_is_made_by_one(spark):
    """Of several who give keys to a table at once, one does, whether it has rows or not."""
    name, failures = new_name(), []
    spark.sql(f"CREATE TABLE {name} (id INT, ts INT) USING iceberg")

    def adopt():
        try:
            TrinityTable.forName(spark, name, "id", "ts")
        except Exception as error:  # noqa: BLE001 - told by the assertion
            failures.append(error)

    threads = [threading.Thread(target=adopt) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(f).__name__ for f in failures if not isinstance(f, ConcurrentCommitError)] == []
    table = TrinityTable.forName(spark, name)
    assert (table.version, [r["operation"] for r in table.history().collect()]) == (0, ["ADOPT"])


def test_s35_a_change_that_loses_every_race_can_be_run_again(spark, monkeypatch):
    """Iceberg tries a change of columns, properties or branches once; its error is not one that users can catch."""
    name = new_name()
    spark.sql(f"CREATE TABLE {name} (id INT, ts INT) USING iceberg")

    class Py4JJavaError(Exception):
        """What PySpark passes on."""

    def lose(self, statement):
        if not statement.startswith("ALTER"):
            return run(self, statement)
        tries.append(statement)
        raise Py4JJavaError("org.apache.iceberg.exceptions.CommitFailedException: Version 2 already exists")

    tries, run = [], IcebergTable.sql
    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "sql", lose)
        with pytest.raises(ConcurrentCommitError, match=rf"So many writers change {name}.*run it again"):
            TrinityTable.forName(spark, name, "id", "ts")
    assert len(tries) > 4
    TrinityTable.forName(spark, name, "id", "ts")


POINTS = {"iceberg.staged": [], "iceberg.told": []}


@pytest.mark.parametrize("point", POINTS)
def test_S35_others_may_be_faster_at_any_moment(point, events, spark, at_point):
    """A merge that reads the target meets one that lands after it has read: it is evaluated again."""
    at_point(point, lambda: upsert(TrinityTable.forName(spark, events.path), spark, (1, 20, "faster", False)))
    events.alias("A").updateWhere("A.id = 1", {"v": "concat(A.v, '!')"}).execute()
    assert (1, 20, "faster!", False) in live_rows(events)
    assert events.version == 4


@pytest.mark.parametrize("point", POINTS)
def test_S35_an_append_of_others_meanwhile_is_seen(point, events, spark, at_point):
    at_point(point, lambda: by_others(spark, events.path, (1, 20, "faster", False)))
    events.alias("A").updateWhere("A.id = 1", {"v": "concat(A.v, '!')"}).execute()
    assert (1, 20, "faster!", False) in live_rows(events)


@pytest.mark.parametrize("point", POINTS)
def test_S35_a_blind_merge_that_is_overtaken_goes_on_top(point, events, spark, at_point, monkeypatch):
    """Nothing of it depends on the table: its rows are written on top of what has landed, and its source is not asked again."""
    monkeypatch.setattr(RetryPolicy, "backoff", lambda *args: pytest.fail("it was evaluated again"))
    at_point(point, lambda: upsert(TrinityTable.forName(spark, events.path), spark, (1, 20, "faster", False)))
    assert upsert(events, spark, (1, 30, "z", False)).version == 4
    assert (1, 30, "z", False) in live_rows(events)
    assert {r["name"] for r in spark.table(f"{events.path}.refs").collect()} == {"main", KEPT}


def test_S40_what_is_still_there_is_read_from_the_newest_snapshot(events, spark):
    """A past version is read from its own snapshot only as far as the newest has not the same rows: the other may expire."""
    shown = [live_rows(TrinityTable.forName(spark, events.path, versionAsOf=v)) for v in (1, 2)]
    rows = events.toDF()
    events._store.snapshot_at(1)
    assert events._store._where == dict.fromkeys(events._store._where, int(events._store.snapshot().checksum))
    assert (len(shown[0]), shown[1]) == (4, sorted(map(tuple, rows.collect()), key=repr))


def test_S38_a_compaction_gives_way_and_is_computed_again(events, spark, at_point):
    at_point("iceberg.told", lambda: by_others(spark, events.path, (1, 20, "faster", False)))
    assert events.compact().rows == 4
    assert (1, 20, "faster", False) in live_rows(events)


@pytest.mark.parametrize("point", [*POINTS, "iceberg.committed"])
def test_S33_a_writer_that_dies_leaves_all_or_nothing(point, events, spark, monkeypatch):
    class Killed(BaseException):
        pass

    def die(name):
        if name == point:
            raise Killed

    before = live_rows(events)
    monkeypatch.setattr(faults, "fault", die)
    with pytest.raises(Killed):
        upsert(events, spark, (1, 30, "z", False), (6, 30, "f", False))
    monkeypatch.undo()
    events = TrinityTable.forName(spark, events.path)
    landed = point == "iceberg.committed"
    assert (live_rows(events) == before, events.version) == (not landed, 3 if landed else 2)
    assert upsert(events, spark, (1, 30, "z", False), (6, 30, "f", False)).version == events.version
    assert (6, 30, "f", False) in live_rows(events)


def test_S33_a_vacuumed_branch_is_told(events, spark, at_point):
    def drop():
        for row in spark.table(f"{events.path}.refs").collect():
            if row["name"] not in ("main", KEPT):
                spark.sql(f"ALTER TABLE {events.path} DROP BRANCH {row['name']}")

    at_point("iceberg.staged", drop)
    upsert(events, spark, (1, 30, "z", False))  # evaluated again
    assert (1, 30, "z", False) in live_rows(events)


def test_S34_a_refused_merge_leaves_no_branch(events, spark):
    with pytest.raises(NullKeyError):
        upsert(events, spark, (None, 30, "z", False))
    assert {r["name"] for r in spark.table(f"{events.path}.refs").collect()} == {"main", KEPT}


def test_S27_history_inserts_are_refused(events, spark, tmp_path):
    other = TrinityTable.create(spark, str(tmp_path / "other"), "id INT, v STRING", primaryKey="id")
    with pytest.raises(
        UnsupportedStorageError,
        match=r"insertHistoryExpr into .* is not possible for .* does not manage the table's files",
    ):
        (
            events.alias("A")
            .merge(frame(spark, EVENTS, (1, 50, "z", False)).alias("B"), "A.id = B.id")
            .whenMatched()
            .updateExpr({"v": "B.v", "ts": "B.ts"})
            .insertHistoryExpr({"id": "A.id", "v": "A.v"}, other)
            .build()
        )
    assert events.version == 2


@pytest.mark.parametrize(
    "options", [{"unchanged": "array('v')"}, {"ignoreNullUpdates": True}, {"columnsToUpdate": "array()"}]
)
def test_U6_events_that_leave_columns_unset_are_refused(options, events, spark):
    event = spark.sql("SELECT 1 AS id, 30 AS ts, 'x' AS v")
    with pytest.raises(UnsupportedStorageError, match=r"leave columns unchanged"):
        events.applyChanges(event, **options).execute()
    assert live_rows(events)[0] == (1, 10, "a", False)


def test_U7_whole_rows_change_their_key(events, spark):
    event = spark.sql("SELECT 9 AS id, 40 AS ts, 'moved' AS v, 1 AS was")
    events.applyChanges(event, movedFrom="was", exceptColumns="was").execute()
    found = {row[0]: row[2] for row in live_rows(events)}
    assert found[9] == "moved"
    assert 1 not in found
