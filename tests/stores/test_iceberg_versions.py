"""What other people's settings, alterations and housekeeping do to tables of Iceberg's (S16)."""

from __future__ import annotations

import pytest
from iceberg import new_name
from tables import EVENTS, fill, frame, live_rows, new_table

from trinitymerge import TrinityTable, UnsupportedStorageError
from trinitymerge.errors import ConcurrentCommitError, CorruptTableError, TableNotFoundError
from trinitymerge.fs import faults
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.stores.iceberg import IcebergStore
from trinitymerge.stores.iceberg_client import IcebergSnapshot
from trinitymerge.stores.iceberg_versions import KEPT, commit_of_others

pytestmark = pytest.mark.iceberg

EXPIRE = "CALL lake.system.expire_snapshots(table => '{}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
HIDDEN = "CAST(NULL AS BIGINT) _tm_sequence, CAST(NULL AS INT) _tm_clause, CAST(NULL AS STRING) _tm_effect"


@pytest.fixture
def events(spark, tmp_path):
    """Two live rows and a tombstone, in two batches."""
    return fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "b", False)], [(4, 20, None, True)])


def by_others(spark, name, *rows):
    source = frame(spark, EVENTS, *rows)
    source.selectExpr("*", *HIDDEN.split(", "), "CAST(NULL AS BIGINT) _tm_since").writeTo(name).append()


def upsert(table, spark, *rows):
    return table.upsert(frame(spark, EVENTS, *rows)).execute()


def branches(spark, table):
    return {r["name"] for r in spark.table(f"{table.path}.refs").collect()}


@pytest.fixture(params=["spark.wap.id", "spark.wap.branch"])
def diverted(request, spark):
    """A session whose writes Iceberg keeps aside, in tables that allow it."""
    spark.conf.set(request.param, "audit")
    yield request.param
    spark.conf.unset(request.param)


def test_S33_a_merge_whose_rows_iceberg_would_keep_aside_is_refused(diverted, spark, tmp_path):
    """Write-audit-publish: it used to be reported as committed, and its rows were on no branch."""
    events = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    upsert(events, spark, (2, 10, "b", False))  # the table has not asked for it
    spark.sql(f"ALTER TABLE {events.path} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    with pytest.raises(UnsupportedStorageError, match=rf"the setting {diverted}=audit.*Nothing was written.*unset"):
        upsert(events, spark, (1, 20, "z", False))
    spark.conf.unset(diverted)
    assert live_rows(events) == [(1, 10, "a", False), (2, 10, "b", False)]
    assert branches(spark, events) == {"main", KEPT}
    upsert(events, spark, (1, 20, "z", False))
    assert live_rows(events)[0] == (1, 20, "z", False)


def test_S36_markers_survive_when_snapshots_between_others_expire(events, spark):
    """Of three appends the one in the middle is not known any more, so no chain leads to what this library has said last."""

    def merged(version):
        source = frame(spark, EVENTS, (9, version, "t", False))
        return events.upsert(source).withTransaction("job", version).execute().skipped

    assert merged(2) == ""
    version = events.version
    for id in (50, 51, 52):
        by_others(spark, events.path, (id, 1, "x", False))
    spark.sql(EXPIRE.format(events.path.removeprefix("lake.")))
    events = TrinityTable.forName(spark, events.path)
    assert "was committed before" in merged(2)
    assert {r[0] for r in live_rows(events)} == {1, 2, 9, 50, 51, 52}
    assert events.version > version
    assert [r["operation"] for r in events.history().collect()] == []
    assert upsert(events, spark, (50, 2, "y", False)).version == events.version
    assert (50, 2, "y", False) in live_rows(events)
    assert [r["operation"] for r in events.history().collect()] == ["UPSERT"]


def test_S40_versions_of_others_that_cannot_be_told_any_more_are_not_listed(events, spark):
    for id in (50, 51):
        by_others(spark, events.path, (id, 1, "x", False))
    upsert(events, spark, (1, 30, "z", False))
    first, last = events.version - 1, events.version
    spark.sql(EXPIRE.format(events.path.removeprefix("lake.")).replace("last => 1", "last => 3"))
    events = TrinityTable.forName(spark, events.path)
    assert [r["version"] for r in events.history().collect()] == [last]
    with pytest.raises(TableNotFoundError, match=f"has no version {first}; it has versions {last} to {last}"):
        TrinityTable.forName(spark, events.path, versionAsOf=first)


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_S16_rows_of_engines_that_do_not_count_them_are_rows(operation, events):
    now = events._store.snapshot()
    commit = commit_of_others(IcebergSnapshot(7, 6, 0, operation, {}), now)
    assert [b.foreign and b.rows > 0 for b in commit.added] == [True]


@pytest.mark.parametrize(
    "options", ["", "PARTITIONED BY (bucket(2, id))", "TBLPROPERTIES ('write.distribution-mode' = 'range')"]
)
def test_S16_rows_of_a_sorted_table_are_counted_once(options, spark):
    """Iceberg would have Spark sample them for ranges, which evaluates them twice."""
    name = new_name()
    spark.sql(f"CREATE TABLE {name} (id INT, v STRING) USING iceberg {options}")
    spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY v DESC, id")
    table = TrinityTable.forName(spark, name, primaryKey="id")
    source = frame(spark, "id INT, v STRING", *((n, str(n % 3)) for n in range(20)))
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id").whenNotMatched().insertAll()
    assert merge.execute().rowsInserted == 20
    table.delete(source.filter("id = 1").select("id")).execute()
    result = table.compact()
    assert (result.rows, result.rowsRemoved, table.toDF().count()) == (19, 2, 19)


def test_S16_the_tag_does_not_expire(events, spark):
    spark.sql(f"ALTER TABLE {events.path} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    upsert(events, spark, (1, 30, "z", False))
    by_others(spark, events.path, (50, 1, "x", False))
    spark.sql(EXPIRE.format(events.path.removeprefix("lake.")))
    assert branches(spark, events) == {"main", KEPT}


def test_S35_a_rollback_right_before_the_commit_is_not_undone(events, spark, at_point):
    """The table's newest snapshot is one before that of the merge, so Iceberg would move it forward all the same."""
    (first,) = [r["snapshot_id"] for r in spark.table(f"{events.path}.refs").collect() if r["name"] == "main"]
    upsert(events, spark, (1, 30, "rolled back", False))
    call = f"CALL lake.system.rollback_to_snapshot('{events.path.removeprefix('lake.')}', {first})"
    at_point("iceberg.told", lambda: spark.sql(call))
    upsert(events, spark, (2, 30, "y", False))  # evaluated again
    assert live_rows(events) == [(1, 10, "a", False), (2, 30, "y", False)]
    assert branches(spark, events) == {"main", KEPT}


def test_S16_a_table_that_could_not_be_adopted_has_no_branch_left(spark, at_point):
    name = new_name()
    spark.sql(f"CREATE TABLE {name} (id INT, v STRING) USING iceberg")
    row = "SELECT 1 id, 'a' v, NULL _tm_sequence, NULL _tm_clause, NULL _tm_effect, NULL _tm_since, NULL _tm_deleted"
    at_point("iceberg.told", lambda: spark.sql(f"INSERT INTO {name} BY NAME {row}"))
    store = IcebergStore(spark, name)
    with pytest.raises(ConcurrentCommitError, match="Others have committed"):
        store.adopt(TableDefinition.of(store.fields(), "id"), None)
    assert {r["name"] for r in spark.table(f"{name}.refs").collect()} == {"main"}
    assert live_rows(TrinityTable.forName(spark, name, primaryKey="id")) == [(1, "a")]


def test_S33_a_commit_that_fails_leaves_no_branch(events, spark, monkeypatch):
    """As when a column is dropped that the commit is about to write."""

    def fail(name):
        if name == "iceberg.told":
            raise ValueError("told")

    monkeypatch.setattr(faults, "fault", fail)
    for call in (events.upsert(frame(spark, EVENTS, (1, 30, "z", False))).execute, events.compact):
        with pytest.raises(ValueError, match="told"):
            call()
    assert branches(spark, events) == {"main", KEPT}
    assert live_rows(events) == [(1, 10, "a", False), (2, 10, "b", False)]


@pytest.mark.parametrize(
    "change", ["RENAME COLUMN _tm_sequence TO s", "DROP COLUMN _tm_sequence", "DROP COLUMN _tm_deleted"]
)
def test_S16_a_hidden_column_that_is_gone_is_told(change, spark, tmp_path):
    """Without the tombstones' column deleted rows would come back."""
    table = new_table(spark, tmp_path, "id INT, v STRING")
    source = frame(spark, "id INT, v STRING", (1, "a"), (2, "b"))
    table.upsert(source).execute()
    table.delete(source.filter("id = 1").select("id")).execute()
    spark.sql(f"ALTER TABLE {table.path} {change}")
    for call in (table.toDF, table.compact, table.upsert(source).execute):
        with pytest.raises(CorruptTableError, match=r"has no column _tm_\w+ any more.*VERSION AS OF \d+"):
            call()
    assert branches(spark, table) == {"main", KEPT}


@pytest.mark.parametrize("escaped", ["true", "false"])
def test_S7_quotes_and_backslashes_in_names_and_comments(escaped, spark):
    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    try:
        name = f"{new_name()}-it's"
        name = ".".join(f"`{part}`" for part in name.split("."))
        table = TrinityTable.create(
            spark,
            name,
            "id INT, `it's` STRING COMMENT 'x'",
            primaryKey="id",
            using="iceberg",
            comment='it\'s a \\ "quote"',
        )
        table.upsert(frame(spark, "id INT, `it's` STRING", (1, "it's"))).execute()
        table.compact()
        assert live_rows(table) == [(1, "it's")]
        told = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").filter("col_name = 'Comment'").collect()
        assert told[0]["data_type"] == 'it\'s a \\ "quote"'
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def test_S7_dots_within_names_are_refused(spark):
    """Iceberg's cached list of branches is not forgotten there: what has just been committed would not be found."""
    with pytest.raises(UnsupportedStorageError, match=r"dot within a part of its name \(a\.b\).*Rename it"):
        TrinityTable.create(spark, "lake.db.`a.b`", "id INT", primaryKey="id", using="iceberg")
