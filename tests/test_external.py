"""External tables (S16): rows that others write, read by S13-S15, and nothing else promised of them."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace

import pyspark
import pytest
from helpers import assertRows
from hypothesis import given, settings, strategies as st
from pyspark.sql.types import IntegerType, StructType
from tables import EVENTS, fill, frame, live_rows, new_table
from test_errors import refused

from trinitymerge import (
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    ReadOnlyTableError,
    SqlError,
    TableNotFoundError,
    TrinityMergeError,
    TrinityTable,
    UnsupportedStorageError,
    external,
    sql,
)
from trinitymerge.external import REQUIRES_LOG, WRITE_METHODS, ExternalTable
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.testing import ModelTable, assertRows as assert_rows_of_pipeline
from trinitymerge.testing.strategies import stored_rows, table_definitions

KEYS = {"primaryKey": "id", "watermarkKey": "ts", "tombstoneKey": "deleted"}
VERSIONS = [(1, 10, "a", False), (1, 20, "b", None), (2, 10, "c", False), (2, 20, "was here", True), (3, 5, "d", False)]
LIVE = [(1, 20, "b", None), (3, 5, "d", False)]


@pytest.fixture
def rows(spark):
    return frame(spark, EVENTS, *VERSIONS)


@pytest.fixture
def events(rows):
    return TrinityTable.external(rows, **KEYS)


@pytest.fixture
def view(spark):
    """The name of a view that is gone after the test."""
    name = "external_events"
    yield name
    spark.catalog.dropTempView(name)


# Reading --------------------------------------------------------------------------------------------------------------


def test_S16_a_frame_of_row_versions_is_read_by_the_rules_of_tables(events):
    assertRows(events.toDF(), LIVE)
    definition = events.definition
    assert (definition.primaryKey, definition.watermarkKey, definition.tombstoneKey) == (("id",), ("ts",), "deleted")
    assert definition.names == ("id", "ts", "v", "deleted")
    assert repr(events) == "ExternalTable(a DataFrame; primary key id; watermark ts; tombstone deleted)"
    assert str(events) == repr(events)


def test_S16_a_name_is_looked_up_at_each_call(spark, rows, view):
    rows.limit(0).createOrReplaceTempView(view)
    table = TrinityTable.external(view, **KEYS)
    assertRows(table.toDF(), [])
    rows.createOrReplaceTempView(view)
    assertRows(table.toDF(), LIVE)
    assert repr(table) == f"ExternalTable({view}; primary key id; watermark ts; tombstone deleted)"
    rows.withColumnRenamed("v", "value").createOrReplaceTempView(view)
    assert table.definition.names == tuple(table.toDF().columns) == ("id", "ts", "value", "deleted")
    rows.drop("ts").createOrReplaceTempView(view)
    with refused(
        InvalidDefinitionError,
        f"ExternalTable({view}): watermarkKey: Column 'ts' is missing",
        "it has 'id', 'v', 'deleted'.",
    ):
        table.toDF()
    spark.catalog.dropTempView(view)
    with refused(TableNotFoundError, f"no table or view '{view}' in the session's catalog", "Check the name"):
        table.toDF()
    assert repr(table) == f"ExternalTable({view}: TableNotFoundError)"


def test_S16_a_table_of_the_catalog_shows_rows_that_came_since(spark, rows):
    spark.sql("CREATE TABLE external_stored (id INT, ts INT, v STRING, deleted BOOLEAN) USING parquet")
    try:
        table = TrinityTable.external("external_stored", spark=spark, **KEYS)
        rows.write.insertInto("external_stored")
        assertRows(table.toDF(), LIVE)
        frame(spark, EVENTS, (3, 6, "later", False)).write.insertInto("external_stored")
        assertRows(table.toDF().filter("id = 3"), [(3, 6, "later", False)])
    finally:
        spark.sql("DROP TABLE external_stored")


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("dots", ["k.1", "K`"])
def test_S16_keys_are_found_without_case_whatever_they_are_called(spark, case, dots):
    rows = frame(spark, "k INT, W INT", (1, 1), (1, 2)).withColumnRenamed("k", dots)
    table = TrinityTable.external(rows, dots.upper() if case else dots, "w")
    assertRows(table.toDF(), [(1, 2)])
    assert (table.definition.primaryKey, table.definition.watermarkKey) == ((dots,), ("W",))


@settings(max_examples=12)
@given(data=st.data())
def test_S15_ties_are_decided_as_the_interpreter_decides_them_whatever_the_order(spark, data):
    """Of one batch there is no commit to decide: rows that tie are those of a table that others wrote."""
    definition = data.draw(table_definitions().filter(lambda d: d.tombstoneKey))
    rows = data.draw(st.lists(stored_rows(definition), min_size=4, max_size=12))
    shuffled = data.draw(st.permutations(rows))
    model = ModelTable(definition)
    model.commit(rows)
    schema = physical_schema(definition.fields)
    found = spark.createDataFrame([tuple(row[n] for n in definition.names) for row in shuffled], schema).coalesce(1)
    table = TrinityTable.external(
        found,
        definition.primaryKey,
        definition.watermarkKey,
        definition.tombstoneKey,
        definition.tombstoneStringValue,
    )
    assert_rows_of_pipeline(table, model.live())


UNEQUAL = {
    "equal numbers": ["-0.0D", "0.0D"],
    "equal numbers inside": ["named_struct('x', array(-0.0D))", "named_struct('x', array(0.0D))"],
    "maps": ["map('a', 1)", "map('a', 2)", "CAST(null AS MAP<STRING, INT>)"],
    "times in maps": [f"map(1, timestamp'2024-01-01 00:00:00.00000{n}')" for n in (1, 2)],
    "local times in maps": [f"map(1, timestamp_ntz'2024-01-01 00:00:00.00000{n}')" for n in (1, 2)],
    "variants": ["parse_json('1')", "parse_json('{\"a\": 1}')", "parse_json('null')"],
    "text without case": ["'a' COLLATE UTF8_LCASE", "'A' COLLATE UTF8_LCASE"],
}


@pytest.mark.generated  # Spark reads no variants without
@pytest.mark.parametrize("what", UNEQUAL)
def test_S15_rows_that_spark_cannot_tell_apart_or_put_in_order_are_decided_all_the_same(spark, what):
    if what in ("variants", "text without case") and pyspark.__version__ < "4":
        pytest.skip("Spark 3.5 has none")
    parts = [spark.sql(f"SELECT 1 AS k, {value} AS v") for value in UNEQUAL[what]]
    told = set()
    for order in itertools.permutations(parts):
        together = order[0]
        for part in order[1:]:
            together = together.unionAll(part)
        kept = TrinityTable.external(together.coalesce(1), "k").toDF()
        told |= {repr(row) for row in kept.selectExpr("to_json(struct(v))", "CAST(v AS STRING)").collect()}
    assert len(told) == 1


def test_S15_the_zone_of_the_session_does_not_decide(spark):
    moments = ["2024-03-01 00:30:00Z", "2024-02-29 23:45:00Z"]  # in Auckland a day later, one in daylight saving time
    parts = [spark.sql(f"SELECT 1 AS k, map(1, timestamp'{m}') AS m, {n} AS n") for n, m in enumerate(moments)]
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in ("UTC", "America/New_York", "Pacific/Auckland"):
            spark.conf.set("spark.sql.session.timeZone", other)
            assert TrinityTable.external(parts[0].unionAll(parts[1]), "k").toDF().first().n == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_S3_null_watermarks_are_the_smallest(spark):
    rows = frame(spark, EVENTS, (1, None, "a", False), (1, -5, "b", False), (2, None, "c", False))
    assertRows(TrinityTable.external(rows, **KEYS).toDF().select("v"), ["b", "c"])


def test_S14_filters_never_bring_old_versions_back(events):
    assertRows(events.toDF().filter("v IN ('a', 'c')"), [])


# Null keys ------------------------------------------------------------------------------------------------------------


def test_S2_a_null_in_the_key_is_an_error_when_rows_are_read_that_says_what_to_do(spark):
    rows = frame(spark, "a INT, `b.` STRING, v INT", (1, "x", 1), (2, None, 2), (3, None, 3))
    table = TrinityTable.external(rows, ["a", "b."])
    for read in (lambda: table.toDF().collect(), lambda: table.toDF().count()):
        with pytest.raises(
            Exception, match=r"null in 'b\.', which is part of the primary key.*df\.filter\(\"`b\.` IS NOT NULL"
        ):
            read()
    kept = TrinityTable.external(rows.filter("`b.` IS NOT NULL"), ["a", "b."])
    assertRows(kept.toDF(), [(1, "x", 1)])


def test_S2_a_null_in_the_key_refuses_the_merge_and_the_conversion(spark, tmp_path):
    bad = TrinityTable.external(frame(spark, EVENTS, (1, 1, "a", False), (None, 1, "b", False)), **KEYS)
    table = fill(new_table(spark, tmp_path), spark, [(1, 0, "before", False)])
    with refused(InvalidMergeError, "A row has a null in 'id', which is part of the primary key"):
        table.upsert(bad).execute()
    assert live_rows(table) == [(1, 0, "before", False)]
    with refused((InvalidMergeError, NullKeyError), "A row has a null in 'id'", "Nothing was written."):
        TrinityTable.convert(spark, bad, str(tmp_path / "converted"))
    assert not (tmp_path / "converted").exists()


# As a source ----------------------------------------------------------------------------------------------------------


def test_S16_it_is_the_source_of_merges_under_an_alias_or_not(spark, tmp_path, events):
    table = fill(new_table(spark, tmp_path), spark, [(1, 0, "before", False), (2, 0, "there", False)])
    result = table.upsert(events).execute()
    assert (result.rowsSource, result.rowsAppended) == (2, 2)
    assert live_rows(table) == [(1, 20, "b", None), (2, 0, "there", False), (3, 5, "d", False)]
    merge = table.alias("A").merge(events.alias("B"), "A.id = B.id").whenMatched("B.ts > 10")
    merge.updateExpr({"v": "concat(A.v, B.v)"}).whenNotMatchedBySource().delete().execute()
    assert live_rows(table) == [(1, 20, "bb", None), (3, 5, "d", False)]
    table.merge(events, "target.id = source.id").whenMatched("source.id = 1").delete().execute()
    assert live_rows(table) == [(3, 5, "d", False)]
    with refused(InvalidMergeError, "An alias must be a name, got 3"):
        events.alias(3)


def test_S16_it_can_be_read_in_statements_and_not_changed(spark, tmp_path, events):
    pytest.importorskip("sqlglot")
    table = new_table(spark, tmp_path)
    names = {"stored": table, "events": events}
    assertRows(sql(spark, "SELECT id, v FROM events WHERE ts > 5", names), [(1, "b")])
    merging = "MERGE INTO stored USING events ON stored.id = events.id WHEN NOT MATCHED THEN INSERT *"
    sql(spark, merging, names)
    assert live_rows(table) == LIVE
    for text in ("DELETE FROM events WHERE id = 1", "INSERT INTO events SELECT * FROM events"):
        with refused(SqlError, "'events' is an external table, which is read-only"):
            sql(spark, text, names)
    with refused(SqlError, "'events' is an external table, which has no versions"):
        sql(spark, "SELECT * FROM events VERSION AS OF 1", names)


@pytest.mark.parametrize("call", ["applyChanges", "snapshot"])
def test_calls_that_take_no_tables_say_how_to_give_its_rows(spark, tmp_path, events, call):
    table = new_table(spark, tmp_path)
    take = {"applyChanges": table.applyChanges, "snapshot": partial(table.snapshot, at=7)}[call]
    for source, name in ((events, "ExternalTable"), (table, "TrinityTable")):
        with refused(InvalidMergeError, f"got trinitymerge.{name}. Give its live rows: table.toDF()."):
            take(source)
    take(events.toDF())


def test_pipelines_are_tested_with_it(events):
    assert_rows_of_pipeline(events, [dict(zip(("id", "ts", "v", "deleted"), row, strict=True)) for row in LIVE])


# A managed table of it ------------------------------------------------------------------------------------------------


def test_S7b_S16_it_becomes_a_managed_table_that_late_rows_bring_nothing_back_to(spark, tmp_path, events):
    table = TrinityTable.convert(spark, events, str(tmp_path / "table"), comment="of the outbox")
    assert (table.version, table.definition.comment) == (1, "of the outbox")
    assert table.definition.primaryKey == ("id",)
    assert table.definition.tombstoneKey == "deleted"
    assert live_rows(table) == LIVE
    fill(table, spark, [(2, 15, "late", False), (1, 15, "late", False)])
    assert live_rows(table) == LIVE, "the tombstone has come along"


def test_S7b_an_external_table_brings_its_keys(spark, tmp_path, events):
    path = str(tmp_path / "table")
    for keys in ({"primaryKey": "id"}, {"watermarkKey": "ts"}, {"tombstoneStringValue": "D"}):
        with refused(InvalidDefinitionError, "has its keys already (primary key id; watermark ts;", "Leave primaryKey"):
            TrinityTable.convert(spark, events, path, **keys)
    with refused(InvalidDefinitionError, "needs a primary key"):
        TrinityTable.convert(spark, events.toDF(), path)


# What is refused ------------------------------------------------------------------------------------------------------

MADE = {
    "convert",
    "create",
    "createIfNotExists",
    "createQuarantine",
    "external",
    "forName",
    "forPath",
    "fromIntervals",
    "isTrinityTable",
}


def test_S16_every_call_of_a_table_is_there_or_refused():
    public = {name for name in dir(TrinityTable) if not name.startswith("_")}
    own = {name for name in dir(ExternalTable) if not name.startswith("_")} - {"of"}
    assert own == {"alias", "definition", "toDF"}
    assert public - own - MADE == WRITE_METHODS | REQUIRES_LOG
    assert not WRITE_METHODS & REQUIRES_LOG


@pytest.mark.parametrize("call", sorted(WRITE_METHODS))
def test_S16_what_writes_is_refused(events, call):
    with refused(
        ReadOnlyTableError,
        f"{call}() is not possible for ExternalTable(a DataFrame): an external table can only be read",
        "TrinityTable.convert(spark, table, path)",
    ) as error:
        getattr(events, call)("anything", at="all")
    assert error.value.call == call


@pytest.mark.parametrize("call", sorted(REQUIRES_LOG - set(external._PROPERTIES)))
def test_S16_what_needs_commits_or_files_is_refused(events, call):
    with refused(UnsupportedStorageError, f"{call}() is not possible for", "keeps no commits and no files", "convert("):
        getattr(events, call)()


@pytest.mark.parametrize("name", external._PROPERTIES)
def test_S16_attributes_that_it_lacks_say_why(events, name):
    assert not hasattr(events, name)
    with refused(UnsupportedStorageError, f"{name} is not possible for", "keeps no commits and no files"):
        getattr(events, name)
    with pytest.raises(AttributeError, match="'ExternalTable' object has no attribute 'nonsense'"):
        _ = events.nonsense
    assert not WRITE_METHODS & set(dir(events))


def test_S27_rows_cannot_be_remembered_in_it(spark, tmp_path, events):
    table = fill(new_table(spark, tmp_path), spark, [(1, 0, "before", False)])
    with refused(InvalidMergeError, "inserts into a TrinityTable only, got trinitymerge.ExternalTable"):
        table.merge(events).whenMatched().delete().insertHistoryExpr({"id": "target.id"}, events)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"primaryKey": "order"},
            ["primaryKey: Column 'order' is missing in the schema; it has 'id', 'ts', 'v', 'deleted'."],
        ),
        ({"primaryKey": []}, ["needs a primary key"]),
        ({"watermarkKey": ["ts", "seq"]}, ["watermarkKey: Column 'seq' is missing"]),
        ({"tombstoneKey": "op"}, ["tombstoneKey: Column 'op' is missing"]),
        ({"tombstoneStringValue": "D"}, ["only for string tombstone keys, and 'deleted' is boolean"]),
        ({"tombstoneKey": None, "tombstoneStringValue": "D"}, ["needs a tombstoneKey"]),
        ({"watermarkKey": "id"}, ["'id' has two roles"]),
    ],
)
def test_S1_S4_keys_that_cannot_work_are_refused_when_it_is_opened(rows, keys, words):
    with refused(InvalidDefinitionError, "ExternalTable(a DataFrame): ", *words):
        TrinityTable.external(rows, **{**KEYS, **keys})


def test_S2_S4_types_that_cannot_be_keys_are_refused(spark):
    rows = spark.sql("SELECT 1.5D AS f, map(1, 2) AS m, 1 AS k, array(1) AS a")
    for keys, words in (
        ({"primaryKey": "f"}, "'f' (double) cannot be part of the primary key"),
        ({"primaryKey": "k", "watermarkKey": "m"}, "'m' (map<int,int>) cannot be a watermark"),
        ({"primaryKey": "k", "tombstoneKey": "a"}, "'a' (array<int>) cannot be the tombstone key"),
    ):
        with refused(InvalidDefinitionError, words):
            TrinityTable.external(rows, **keys)
    never_null = spark.createDataFrame([(1, 2)], StructType().add("k", IntegerType()).add("d", IntegerType(), False))
    with refused(InvalidDefinitionError, "'d' (int) means 'deleted' whenever it is not null"):
        TrinityTable.external(never_null, "k", tombstoneKey="d")


def test_S5_columns_that_cannot_be_told_apart_or_are_the_librarys_are_refused(spark):
    for columns, words in (
        ("1 AS id, 2 AS _TM_deleted", "'_TM_deleted' starts with '_tm_', which is reserved"),
        ("1 AS id, 2 AS v, 3 AS V", "'V' occurs twice (names are compared without case)"),
        ("1 AS id, 2 AS v, 3 AS v", "'v' occurs twice"),
    ):
        with refused(InvalidDefinitionError, words, "rename"):
            TrinityTable.external(spark.sql(f"SELECT {columns}"), "id")


@pytest.mark.parametrize("name", ["no_such_table", "no_such_schema.t", "not a name", "/data/orders", ""])
def test_S16_a_name_that_the_catalog_does_not_know_is_refused(spark, name):
    with refused(TableNotFoundError, f"no table or view '{name}' in the session's catalog", "spark.read.parquet(path)"):
        TrinityTable.external(name, "id", spark=spark)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, ["got NoneType."]),
        ([(1, 2)], ["got list.", "spark.createDataFrame(rows, schema)"]),
        (
            type("DataFrame", (), {"__module__": "pandas.core.frame"})(),
            ["got pandas.DataFrame.", "createDataFrame(df)"],
        ),
    ],
)
def test_S16_what_is_neither_a_frame_nor_a_name_is_refused(source, words):
    with refused(InvalidDefinitionError, "made of a DataFrame, or of the name of a table or view", *words):
        TrinityTable.external(source, "id")


def test_S16_a_frame_of_another_session_than_the_one_given_is_refused(spark, rows):
    assertRows(TrinityTable.external(rows, spark=spark, **KEYS).toDF(), LIVE)
    other = SimpleNamespace(session_id="another")
    with refused(InvalidDefinitionError, "belongs to another session than spark=", "Leave spark= out"):
        TrinityTable.external(rows, spark=other, **KEYS)


@pytest.mark.classic("reads in one session what another one knows; a Connect server keeps its sessions apart")
def test_S16_names_are_those_of_the_session_that_is_given(spark, rows, view):
    other = spark.newSession()
    rows.createOrReplaceTempView(view)
    assertRows(TrinityTable.external(view, spark=spark, **KEYS).toDF(), LIVE)
    with refused(TableNotFoundError, f"'{view}'"):
        TrinityTable.external(view, spark=other, **KEYS)


def test_S16_streams_are_refused(spark, view):
    stream = spark.readStream.format("rate").load()
    with refused(InvalidDefinitionError, "ExternalTable(a DataFrame) cannot be read: it is a stream", "foreachBatch"):
        TrinityTable.external(stream, "value", "timestamp")
    stream.createOrReplaceTempView(view)
    with refused(InvalidDefinitionError, f"ExternalTable({view}) cannot be read: it is a stream"):
        TrinityTable.external(view, "value", "timestamp", spark=spark)


def test_every_refusal_is_an_error_of_this_library(events):
    for name in WRITE_METHODS | REQUIRES_LOG:
        with pytest.raises(TrinityMergeError):
            getattr(events, name)()


def test_S16_an_external_table_cannot_remember_how_far_it_has_come(spark, tmp_path, events):
    table = TrinityTable.create(spark, str(tmp_path / "t"), "id INT", "id")
    with refused(InvalidMergeError, "takes the table that the changes are merged into, got trinitymerge.ExternalTable"):
        table.changesSince(events, "app")
