"""Plain tables of Spark's own catalog (S16): the contract, what they can do and what not, races, and what others do to them."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from pathlib import Path

import pytest
from contract import CHECKS, checks_of, definition
from tables import EVENTS, fill, frame, live_rows

from trinitymerge import InvalidDefinitionError, NullKeyError, TrinityTable, UnsupportedStorageError
from trinitymerge.errors import (
    AmbiguousMergeError,
    ConcurrentCommitError,
    CorruptTableError,
    FilesVacuumedError,
    TableExistsError,
    TableNotFoundError,
)
from trinitymerge.fs import faults
from trinitymerge.stores.base import CompactableStore, ManagedStore, VersionedStore
from trinitymerge.stores.catalog_files import DIRECTORY, KEPT_MS, PlainBackend, unsupported_reason

KEYS = {"primaryKey": "id", "watermarkKey": "ts", "tombstoneKey": "deleted"}
FORMATS = ["parquet", "orc"]


@pytest.fixture
def name(spark):
    """A name that no table has; what gets it is dropped."""
    name = f"spark_catalog.default.t{uuid.uuid4().hex[:12]}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def events(spark, name):
    """Three live rows and a tombstone, in two batches."""
    table = TrinityTable.create(spark, name, EVENTS, using="parquet", **KEYS)
    return fill(
        table,
        spark,
        [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False), (4, 10, "d", False)],
        [(4, 20, None, True)],
    )


@pytest.fixture
def plain(spark, name):
    """A table of somebody else's: id, ts and v, three rows in two files."""
    spark.sql(f"CREATE TABLE {name} (id INT, ts INT, v STRING) USING parquet")
    spark.sql(f"INSERT INTO {name} VALUES (1, 10, 'a'), (2, 10, 'b')")
    spark.sql(f"INSERT INTO {name} VALUES (3, 10, 'c')")
    return name


def by_others(spark, name, *values):
    """Rows that another program appends, naming its columns."""
    shown = [c for c in spark.table(name).columns if not c.startswith("_tm_")]
    spark.sql(f"INSERT INTO {name} ({', '.join(shown)}) VALUES {', '.join(map(str, values))}")


def upsert(table, spark, *rows):
    return table.upsert(frame(spark, EVENTS, *rows)).execute()


def directory(table):
    return Path(table._backend._facts.path.removeprefix("file:"))


def stored(table, spark):
    """All rows that a plain SELECT shows."""
    spark.sql(f"REFRESH TABLE {table.path}")
    return spark.table(table.path).count()


def staged(table):
    found = directory(table) / DIRECTORY
    return sorted(os.listdir(found)) if found.exists() else []


LIVE = [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)]


# The contract ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("check", CHECKS, ids=[c.__name__.removeprefix("check_") for c in CHECKS])
def test_S33_the_store_keeps_its_part_of_the_contract(check, file_format, spark, name):
    store = PlainBackend(spark, name, file_format)
    store.create(definition(file_format), None)
    if check in checks_of(store):
        check(store)


def test_S16_what_the_store_can_do_is_what_it_has_methods_for(spark, name):
    store = PlainBackend(spark, name)
    assert [isinstance(store, k) for k in (VersionedStore, CompactableStore, ManagedStore)] == [True, False, False]


# What it can do: the capability table of docs/iceberg.md ------------------------------------------------------------------


def test_S16_a_chain_of_clauses_is_one_version(events, spark):
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
    assert (result.version, result.rowsUpdated, result.rowsInserted, result.rowsDeleted) == (3, 1, 1, 1)
    assert live_rows(events) == [(1, 30, "anew", False), (2, 10, "b", False), (5, 30, "e", None)]
    assert (stored(events, spark), staged(events)) == (8, [])


def test_S11_a_late_row_and_a_late_delete_change_nothing(events, spark):
    upsert(events, spark, (1, 5, "late", False), (4, 15, "late", False))
    assert live_rows(events) == LIVE


def test_S6_without_a_watermark_the_later_commit_wins(spark, name):
    table = TrinityTable.create(spark, name, "id INT, v STRING", "id", using="orc")
    for value in ("a", "b", "c"):
        table.upsert(frame(spark, "id INT, v STRING", (1, value))).execute()
    assert live_rows(table) == [(1, "c")]
    table.deleteWhere("id = 1").execute()
    assert live_rows(TrinityTable.forName(spark, name)) == []


def test_S36_a_transaction_is_merged_once(events, spark):
    def merged(version):
        source = frame(spark, EVENTS, (9, version, "t", False))
        return events.upsert(source).withTransaction("job", version).execute().skipped

    assert (merged(1), merged(2)) == ("", "")
    assert "was committed before" in merged(2)


@pytest.mark.slow
def test_S40_past_versions(events, spark):
    versions = [live_rows(TrinityTable.forName(spark, events.path, versionAsOf=v)) for v in range(3)]
    assert [len(rows) for rows in versions] == [0, 4, 3]
    assert live_rows(TrinityTable.forName(spark, events.path, timestampAsOf="2100-01-01")) == versions[2]
    assert [r["operation"] for r in events.history().collect()] == ["UPSERT", "UPSERT", "CREATE"]
    with pytest.raises(TableNotFoundError, match="has no version 7; it has versions 0 to 2"):
        TrinityTable.forName(spark, events.path, versionAsOf=7)


def test_S41_changes_between_versions(events, spark):
    upsert(events, spark, (1, 30, "z", False), (5, 30, "e", False))
    shown = events.changes(2).select("id", "v", "_change_type").collect()
    assert sorted(map(tuple, shown)) == [
        (1, "a", "update_preimage"),
        (1, "z", "update_postimage"),
        (5, "e", "insert"),
    ]


def test_H9_feeds(events, spark):
    events.applyChanges(frame(spark, EVENTS, (1, 40, "cdc", False))).execute()
    events.snapshot(frame(spark, "id INT, v STRING, deleted BOOLEAN", (1, "x", False)), 50, missing="delete").execute()
    assert live_rows(events) == [(1, 50, "x", False)]


def test_S36a_micro_batches_are_merged_once(events, spark):
    results = []
    write = events.foreachBatch(lambda table, batch: table.upsert(batch), "feed", results.append)
    for number in (0, 0, 1):
        write(frame(spark, EVENTS, (7, number, "s", False)), number)
    assert [(r.version, bool(r.skipped)) for r in results] == [(3, False), (3, True), (4, False)]


@pytest.mark.parametrize(
    "call",
    [
        lambda spark: TrinityTable.create(spark, "lake.db.t", "id INT", "id", using="iceberg"),
        lambda spark: TrinityTable.forName(spark, "lake.db.t", "id"),
    ],
    ids=["create", "forName"],
)
def test_S16_a_catalog_that_the_session_does_not_have_is_named(call, spark):
    with pytest.raises(TableNotFoundError, match=r"There is no table lake\.db\.t: the session has no catalog 'lake'"):
        call(spark)


CANNOT = {
    "compact()": lambda t, spark: t.compact(),
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
def test_S16_what_a_plain_table_cannot_give_is_refused_by_name(call, events, spark):
    with pytest.raises(
        UnsupportedStorageError, match=r"is not possible for spark_catalog\..*keeps no record of its files.*toDF\(\)"
    ) as refused:
        CANNOT[call](events, spark)
    assert refused.value.call == call
    assert events.version == 2


def test_S16_alterations_are_the_catalogs(events, spark):
    with pytest.raises(UnsupportedStorageError, match="keeps no record of its files"):
        events.alter().addColumn("w", "INT").execute()
    spark.sql(f"ALTER TABLE {events.path} ADD COLUMNS (w INT)")
    assert events.toDF().columns == ["id", "ts", "v", "deleted", "w"]
    assert live_rows(events)[0] == (1, 10, "a", False, None)
    events.upsert(spark.sql("SELECT 1 AS id, 30 AS ts, 'w' AS v, false AS deleted, 7 AS w")).execute()
    assert live_rows(events)[0] == (1, 30, "w", False, 7)
    assert len(live_rows(TrinityTable.forName(spark, events.path, versionAsOf=1))) == 4


def test_H1_history_is_refused(spark, name):
    with pytest.raises(UnsupportedStorageError, match="cannot have history"):
        TrinityTable.create(spark, name, "id INT", "id", history=True, using="parquet")
    assert not spark.catalog.tableExists(name)


def test_S27_history_inserts_are_refused(events, spark, tmp_path):
    other = TrinityTable.create(spark, str(tmp_path / "other"), "id INT, v STRING", "id")
    source = frame(spark, EVENTS, (1, 30, "z", False)).alias("B")
    merge = (
        events.alias("A")
        .merge(source, "A.id = B.id")
        .whenMatched()
        .updateAll()
        .insertHistoryExpr({"id": "A.id", "v": "A.v"}, other)
    )
    with pytest.raises(
        UnsupportedStorageError, match=r"insertHistoryExpr into .* is not possible for .* cannot keep the rows"
    ):
        merge.build()
    assert (events.version, stored(events, spark), staged(events)) == (2, 5, [])


# Partitions, formats, settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", FORMATS)
def test_S16_a_partitioned_table(spark, name, file_format):
    spark.sql(
        f"CREATE TABLE {name} (id INT, ts INT, day DATE, shop STRING) USING {file_format} PARTITIONED BY (day, shop)"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 1, DATE'2024-01-01', 'a b/c%=')")
    table = TrinityTable.forName(spark, name, "id", "ts")
    rows = "(1, 2, DATE'2024-01-01', 'a b/c%='), (2, 2, DATE'2024-01-02', 'it''s'), (3, 2, NULL, 'x')"
    table.upsert(spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, ts, day, shop)")).execute()
    table.delete(spark.sql("SELECT 2 AS id, 3 AS ts")).execute()
    shown = sorted(tuple(map(str, r)) for r in table.toDF().select("id", "ts", "day", "shop").collect())
    assert shown == [("1", "2", "2024-01-01", "a b/c%="), ("3", "2", "None", "x")]
    assert spark.table(name).filter("shop = 'a b/c%='").count() == 2
    assert spark.sql(f"SHOW PARTITIONS {name}").count() == 4  # the tombstone has none, and one of its own


def test_S16_a_partition_that_is_elsewhere_is_refused(spark, name, tmp_path):
    spark.sql(f"CREATE TABLE {name} (id INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION (p = 1) LOCATION '{tmp_path}/elsewhere'")
    table = TrinityTable.forName(spark, name, "id")
    with pytest.raises(UnsupportedStorageError, match=r"The partition p=1 of .*elsewhere"):
        table.upsert(frame(spark, "id INT, p INT", (1, 1))).execute()
    table.upsert(frame(spark, "id INT, p INT", (1, 2))).execute()
    assert live_rows(table) == [(1, 2)]


def test_S16_a_partitioned_table_whose_partitions_no_catalog_has(spark, name):
    with_setting = "spark.sql.hive.manageFilesourcePartitions"
    before = spark.conf.get(with_setting)
    spark.conf.set(with_setting, "false")
    try:
        spark.sql(f"CREATE TABLE {name} (id INT, p INT) USING parquet PARTITIONED BY (p)")
    finally:
        spark.conf.set(with_setting, before)
    table = TrinityTable.forName(spark, name, "id")
    table.upsert(frame(spark, "id INT, p INT", (1, 1), (2, 2))).execute()
    table.upsert(frame(spark, "id INT, p INT", (1, 2))).execute()
    assert live_rows(table) == [(1, 2), (2, 2)]


def test_S14_filters_on_keys_and_partitions_of_keys_reach_the_files(spark, name, capsys):
    spark.sql(f"CREATE TABLE {name} (id INT, v STRING, p INT) USING parquet PARTITIONED BY (p)")
    table = TrinityTable.forName(spark, name, ["id", "p"])
    table.upsert(frame(spark, "id INT, v STRING, p INT", (1, "a", 1), (2, "b", 2))).execute()
    table.toDF().filter("id = 1 AND p = 1").explain()
    plan = capsys.readouterr().out
    assert re.search(r"PartitionFilters: \[[^\]]*p#\d+ = 1", plan)
    assert re.search(r"PushedFilters: \[.*IsNotNull\(id\)", plan)


SETTINGS = {
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.storeAssignmentPolicy": "STRICT",
    "spark.sql.sources.default": "csv",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_S7_the_sessions_settings_change_nothing(setting, spark, name):
    spark.sql(f"CREATE TABLE {name} (id INT, at TIMESTAMP, n DECIMAL(9,2), p STRING) USING parquet PARTITIONED BY (p)")
    table = TrinityTable.forName(spark, name, "id")
    rows = "(1, TIMESTAMP'1500-01-01 00:00:00.123456', 1.25BD, '01'), (2, NULL, 2.50BD, '1')"
    before = spark.conf.get(setting, None)
    spark.conf.set(setting, SETTINGS[setting])
    try:
        for _ in range(2):
            table.upsert(
                spark.sql(f"SELECT id, at, CAST(n AS DECIMAL(9,2)) AS n, p FROM VALUES {rows} AS t(id, at, n, p)")
            ).execute()
        found = sorted(
            tuple(r) for r in table.toDF().selectExpr("id", "CAST(at AS STRING)", "CAST(n AS STRING)", "p").collect()
        )
    finally:
        spark.conf.unset(setting) if before is None else spark.conf.set(setting, before)
    assert found == [(1, "1500-01-01 00:00:00.123456", "1.25", "01"), (2, None, "2.50", "1")]


# Creating and adopting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", FORMATS)
def test_S7_a_table_is_created_once_and_says_what_it_is(spark, name, file_format):
    arguments = {"schema": "id INT COMMENT 'the key', v STRING", "primaryKey": "id", "using": file_format}
    table = TrinityTable.create(spark, name, comment="it's odd", properties={"owner.team": "x"}, **arguments)
    told = {r["key"]: r["value"] for r in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert (told["trinitymerge.primaryKey"], told["owner.team"]) == ("id", "x")
    assert (table.definition.fileFormat, table.definition.field("id").comment) == (file_format, "the key")
    assert TrinityTable.createIfNotExists(spark, name, **arguments).version == 0
    with pytest.raises(TableExistsError, match="forName"):
        TrinityTable.create(spark, name, **arguments)
    with pytest.raises(TableExistsError, match="primaryKey"):
        TrinityTable.createIfNotExists(spark, name, "id INT, v STRING", "v", using=file_format)


def test_S7_two_formats_are_refused(spark, name):
    with pytest.raises(InvalidDefinitionError, match="are two formats"):
        TrinityTable.create(spark, name, "id INT", "id", fileFormat="orc", using="parquet")


def test_S16_a_table_that_exists_keeps_its_rows_and_gets_keys_once(plain, spark):
    with pytest.raises(TableNotFoundError, match="the first time, name its keys"):
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
    with pytest.raises(NullKeyError, match=r"1 row of the table's 4 have a null in the primary key \(id\)"):
        TrinityTable.forName(spark, plain, "id", "ts")
    assert spark.table(plain).columns == ["id", "ts", "v"]


REFUSED = {
    "CREATE VIEW {name} AS SELECT 1 AS id": "it is a view",
    "CREATE TABLE {name} (id INT) USING csv": "of the format 'csv' in the catalog spark_catalog",
    "CREATE TABLE {name} (id INT, v INT) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS": "it is bucketed by",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_S16_other_tables_are_refused(statement, spark, name):
    spark.sql(statement.format(name=name))
    try:
        with pytest.raises(UnsupportedStorageError, match=f"cannot be merged into: .*{REFUSED[statement]}"):
            TrinityTable.forName(spark, name, "id")
    finally:
        spark.sql(f"DROP {'VIEW' if 'VIEW' in statement else 'TABLE'} {name}")


def test_S16_a_table_of_hives_serde_is_refused():
    told = {"Type": "MANAGED", "Provider": "hive"}  # a catalog in memory has none
    assert "it is a table of Hive's serde" in unsupported_reason(("spark_catalog", "default", "t"), told)


def test_S16_what_is_no_table_of_the_catalog_is_refused(spark):
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW passing AS SELECT 1 AS id")
    for name in ("passing", "spark_catalog.default.nothing"):
        with pytest.raises(TableNotFoundError, match="There is no table"):
            TrinityTable.forName(spark, name, "id")
    with pytest.raises(ValueError, match="no name of a table"):
        TrinityTable.forName(spark, "a..b")


# Others ---------------------------------------------------------------------------------------------------------------


def test_S15_rows_of_others_are_older_than_merges_and_ties_are_decided_by_columns(plain, spark):
    table = TrinityTable.forName(spark, plain, "id", "ts")
    table.upsert(frame(spark, "id INT, ts INT, v STRING", (1, 20, "m"))).execute()
    by_others(spark, plain, (1, 20, "z"), (2, 10, "a"), (3, 10, "d"), (4, 1, "new"), (3, 9, "zz"))
    assert live_rows(table) == [(1, 20, "m"), (2, 10, "b"), (3, 10, "d"), (4, 1, "new")]
    by_others(spark, plain, (1, 21, "y"))
    assert live_rows(table)[0] == (1, 21, "y")
    assert table.version == 1


def test_S16_rows_of_others_are_merged_with_and_those_without_a_key_are_none(events, spark):
    spark.sql(
        f"INSERT INTO {events.path} (id, ts, v, deleted) VALUES (7, 5, 'o', false), (NULL, 5, 'o', false), (2, 30, NULL, true)"
    )
    assert live_rows(events) == [(1, 10, "a", False), (3, 10, "c", False), (7, 5, "o", False)]
    result = events.updateWhere("id = 7", {"v": "concat(v, '!')"}).execute()
    assert result.rowsUpdated == 1
    assert (7, 5, "o!", False) in live_rows(events)


def test_S16_reads_of_past_versions_show_what_others_append(events, spark):
    spark.sql(f"INSERT INTO {events.path} (id, ts, v, deleted) VALUES (7, 5, 'o', false)")
    assert live_rows(TrinityTable.forName(spark, events.path, versionAsOf=0)) == [(7, 5, "o", False)]


def test_S16_a_partition_that_others_overwrite_is_as_they_left_it(spark, name):
    spark.sql(f"CREATE TABLE {name} (id INT, v STRING, p INT) USING parquet PARTITIONED BY (p)")
    table = TrinityTable.forName(spark, name, "id")
    table.upsert(frame(spark, "id INT, v STRING, p INT", (1, "a", 1), (2, "b", 2))).execute()
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (p = 1) (id, v) VALUES (9, 'o')")
    assert live_rows(table) == [(2, "b", 2), (9, "o", 1)]
    assert table.upsert(frame(spark, "id INT, v STRING, p INT", (2, "B", 2))).execute().version == 2
    with pytest.raises(TableNotFoundError, match="can no longer be read"):
        TrinityTable.forName(spark, name, versionAsOf=1)


def test_S16_a_table_that_others_overwrite_whole_begins_anew(plain, spark):
    table = TrinityTable.forName(spark, plain, "id", "ts")
    table.upsert(frame(spark, "id INT, ts INT, v STRING", (1, 20, "m"))).execute()
    spark.sql(f"INSERT OVERWRITE {plain} (id, ts, v) VALUES (8, 1, 'o')")
    with pytest.raises(TableNotFoundError, match="somebody has overwritten the whole table"):
        table.toDF()
    again = TrinityTable.forName(spark, plain)
    assert (again.version, live_rows(again)) == (0, [(8, 1, "o")])


def test_S16_rows_of_merges_whose_log_is_gone_are_not_taken_for_others(plain, spark):
    table = TrinityTable.forName(spark, plain, "id", "ts")
    table.upsert(frame(spark, "id INT, ts INT, v STRING", (1, 20, "m"))).execute()
    rows = spark.createDataFrame(spark.table(plain).collect(), spark.table(plain).schema)
    rows.write.insertInto(plain, overwrite=True)
    with pytest.raises(CorruptTableError, match=r"has 1 row that merges have written, as _tm_batch says"):
        TrinityTable.forName(spark, plain)


# Races and deaths -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_S35_two_writers_at_once_lose_nothing(spark, name):
    table = TrinityTable.create(spark, name, "id INT, n INT", "id", using="parquet")
    table.upsert(frame(spark, "id INT, n INT", (1, 0))).execute()
    errors = []

    def count_up():
        try:
            mine = TrinityTable.forName(spark, name)
            for _ in range(3):
                mine.updateWhere("id = 1", {"n": "n + 1"}).execute()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=count_up) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (live_rows(table), table.version, stored(table, spark), staged(table)) == ([(1, 6)], 7, 7, [])


def test_S16_two_who_adopt_at_once_have_one_table(plain, spark):
    tables, errors = [], []

    def adopt():
        try:
            tables.append(TrinityTable.forName(spark, plain, "id", "ts"))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=adopt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [t.version for t in tables] == [0, 0]


class Died(BaseException):
    """Stands for a process that is killed: nothing is tidied up after it."""


@pytest.mark.parametrize(
    ("point", "lands", "seen"), [("catalog.staged", 2, 5), ("catalog.moved", 2, 6), ("catalog.committed", 3, 6)]
)
def test_S33_a_writer_that_dies_has_merged_all_or_nothing(point, lands, seen, events, spark, monkeypatch):
    store = type(events._backend)

    def die(name):
        if name == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(faults, "fault", die)
        patched.setattr(store, "discard", lambda self, staged: None)
        with pytest.raises(Died):
            upsert(events, spark, (1, 30, "z", False))
    fresh = TrinityTable.forName(spark, events.path)
    expected = [(1, 30, "z", False), *LIVE[1:]] if lands == 3 else LIVE
    assert (fresh.version, live_rows(fresh), stored(fresh, spark)) == (lands, expected, seen)
    left = staged(fresh)
    assert len(left) == 1
    upsert(fresh, spark, (2, 30, "y", False))
    assert staged(fresh) == left  # it may be at work still
    old = time.time() - KEPT_MS / 1000 - 60
    os.utime(directory(fresh) / DIRECTORY / left[0], (old, old))
    upsert(fresh, spark, (3, 30, "x", False))
    assert (staged(fresh), stored(fresh, spark)) == ([], 7 if lands == 2 else 8)
    assert [r[1] for r in live_rows(fresh)] == [30 if lands == 3 else 10, 30, 30]


def test_S34_a_refused_merge_leaves_no_rows(events, spark):
    with pytest.raises(AmbiguousMergeError):
        upsert(events, spark, (1, 30, "x", False), (1, 30, "y", False))
    assert (events.version, stored(events, spark), staged(events)) == (2, 5, [])


@pytest.mark.slow
def test_S35_a_merge_that_others_have_overtaken_leaves_no_rows(events, spark, at_point):
    def overtake():
        upsert(TrinityTable.forName(spark, events.path), spark, (1, 40, "theirs", False))

    at_point("catalog.moved", overtake)
    events.updateWhere("id = 1", {"v": "'mine'", "ts": "ts + 1"}).execute()
    assert live_rows(events)[0] == (1, 41, "mine", False)
    assert (events.version, stored(events, spark), staged(events)) == (4, 7, [])


def test_S16_a_table_that_is_overwritten_while_a_merge_runs_is_not_merged_into(events, spark, at_point):
    def overwrite():
        spark.sql(f"INSERT OVERWRITE {events.path} (id, ts, v, deleted) VALUES (8, 1, 'o', false)")

    at_point("catalog.staged", overwrite)
    with pytest.raises((TableNotFoundError, FilesVacuumedError, ConcurrentCommitError)):
        upsert(events, spark, (1, 30, "x", False))
    assert live_rows(TrinityTable.forName(spark, events.path)) == [(8, 1, "o", False)]
