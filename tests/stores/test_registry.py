"""Which store keeps a table (S16): managed ones by path, catalog tables by their format, and others are refused."""

from __future__ import annotations

import uuid

import pytest
from helpers import assertRows

from trinitymerge import TableNotFoundError, TrinityTable, UnsupportedStorageError

REMEDY = r"not into plain tables\. TrinityTable\.convert\(\.\.\.\) makes .*; TrinityTable\.external\(\.\.\.\) reads it\. Nothing"


@pytest.fixture
def name(spark):
    """A name that no table has; what gets it is dropped."""
    name = f"spark_catalog.default.t{uuid.uuid4().hex[:12]}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("using", ["parquet", "orc", "csv"])
def test_S16_a_plain_table_is_refused_and_can_be_read_and_converted(spark, name, tmp_path, using):
    spark.sql(f"CREATE TABLE {name} (Provider INT, Type STRING) USING {using}")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    with pytest.raises(
        UnsupportedStorageError, match=rf"'{name}' is a table of the format '{using}'.*{REMEDY}"
    ) as error:
        TrinityTable.forName(spark, name, "Provider")
    assert (error.value.path, error.value.format) == (name, using)
    assertRows(spark.table(name), [(1, "a")])
    assertRows(TrinityTable.external(name, "Provider", spark=spark).toDF(), [(1, "a")])
    assertRows(TrinityTable.convert(spark, spark.table(name), str(tmp_path / "t"), "Provider").toDF(), [(1, "a")])


@pytest.mark.parametrize("make", [TrinityTable.create, TrinityTable.createIfNotExists])
@pytest.mark.parametrize("using", ["parquet", "ORC", "delta"])
def test_S16_a_plain_table_is_not_created(spark, name, make, using):
    with pytest.raises(UnsupportedStorageError, match=rf"There is no store for the format '{using}'.*{REMEDY}"):
        make(spark, name, "id INT", "id", using=using)
    assert not spark.catalog.tableExists(name)


def test_S16_a_view_is_refused(spark, name):
    view = f"{name}_view"
    spark.sql(f"CREATE TABLE {name} (id INT) USING parquet")
    spark.sql(f"CREATE VIEW {view} AS SELECT * FROM {name}")
    try:
        with pytest.raises(UnsupportedStorageError, match=rf"of the format 'view'.*{REMEDY}"):
            TrinityTable.forName(spark, view, "id")
    finally:
        spark.sql(f"DROP VIEW {view}")


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


def test_S16_a_name_that_no_table_has(spark, name):
    with pytest.raises(TableNotFoundError, match=f"There is no table '{name}'. Check the name"):
        TrinityTable.forName(spark, name)
    with pytest.raises(ValueError, match="is not a table name"):
        TrinityTable.forName(spark, "a..b")
