"""Tables read without the library: by the queries of `sqlFor` in DuckDB, Polars and Spark, and as files that `export` writes.

What other engines find must be what `toDF()` shows. Trino cannot be run here: its text is run by DuckDB, over a view that stands
for the table of Hive's, and read by SQLGlot. Generated tables are those of the property tests, without columns that are refused.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import shutil
from decimal import Decimal
from pathlib import Path as FilePath

import attrs
import pandas
import pytest
import sqlglot
from helpers import quickly
from hypothesis import strategies as st
from lanes import beside, draw, led_by_lane, write_table
from pyspark.errors import AnalysisException
from tables import batch_directories, directory_of, fill, frame, merge_into, new_table, set_default
from test_costs import jobs_of
from test_errors import refused

from trinitymerge import TrinityTable
from trinitymerge.errors import (
    CorruptTableError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedStorageError,
)
from trinitymerge.fs.base import escape_glob
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.interop import export
from trinitymerge.interop.dialects import ENGINES, DuckDB, Polars, Spark, Trino
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES
from trinitymerge.spark.conf import session_conf
from trinitymerge.spark.expressions import quote
from trinitymerge.stores import file_format as file_format_module
from trinitymerge.testing import ModelTable, renderDifference
from trinitymerge.testing.strategies import table_batches, table_definitions

duckdb = pytest.importorskip("duckdb", minversion="2.0")  # both need Python 3.11
polars = pytest.importorskip("polars", minversion="2.0")

FILES = "hive.sales.orders_files"
ALL = tuple(ENGINES)


# Running queries ------------------------------------------------------------------------------------------------------


def plain(value):
    """A value as every engine has it: times in UTC without a zone, and one NaN."""
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if hasattr(value, "toPython"):  # a variant
        return plain(value.toPython())
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def with_duckdb(text, table=None):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    if table is not None:
        declare(connection, table)
    found = connection.execute(text)
    return [d[0] for d in found.description], found.fetchall()


def declare(connection, table):
    """What stands for Hive's table: the columns the files may have, and the partition that each row is in."""
    connection.execute("ATTACH ':memory:' AS hive; CREATE SCHEMA hive.sales")
    stored = table.definition.stored_fields
    known = [(n, t) for f in stored for n, t in [(f.stored_as, f.type), *((e.name, e.type) for e in f.previous)]]
    nulls = ", ".join(f"CAST(NULL AS {DuckDB().type_of(t)}) AS {DuckDB().quoted(n)}" for n, t in known)
    every = f"SELECT {nulls}, CAST(NULL AS VARCHAR) AS _tm_batch WHERE false"
    for directory in sorted(directory_of(table).glob("data/_tm_batch=*")):
        files = ", ".join(DuckDB().text(DuckDB().place(str(f))) for f in directory.glob("*.parquet"))
        if files:
            read = f"read_parquet([{files}], hive_partitioning = false)"
            every += (
                f" UNION ALL BY NAME SELECT *, '{directory.name.removeprefix('_tm_batch=')}' AS _tm_batch FROM {read}"
            )
    connection.execute(f"CREATE VIEW hive.sales.orders_files AS {every}")


def with_polars(text):
    found = polars.sql(text).collect()
    return found.columns, found.rows()


def with_spark(spark, text, table):
    found = spark.sql(text)
    assert {f.name: f.dataType for f in found.schema} == {f.name: f.dataType for f in table.toDF().schema}
    return found.columns, [tuple(row) for row in found.collect()]


def run(spark, table, dialect):
    """The rows that an engine finds, with the names of their columns."""
    text = table.sqlFor(dialect, files=FILES if dialect == "trino" else None)
    if dialect == "trino":
        (statement,) = sqlglot.parse(text, read="trino")
        if " ARRAY(" in text or " ROW(" in text:  # the one thing that DuckDB writes otherwise
            text = statement.sql(dialect="duckdb")
    names, rows = {
        "duckdb": lambda: with_duckdb(text),
        "trino": lambda: with_duckdb(text, table),
        "polars": lambda: with_polars(text),
        "spark": lambda: with_spark(spark, text, table),
    }[dialect]()
    return names, sorted((tuple(map(plain, row)) for row in rows), key=repr)


def expected(table):
    return list(table.definition.names), sorted((tuple(map(plain, row)) for row in table.toDF().collect()), key=repr)


def check(spark, table, *dialects):
    """Fails unless all engines find what the table shows; returns that."""
    wanted = expected(table)
    for dialect in dialects or ALL:
        assert run(spark, table, dialect) == wanted, (
            f"{dialect}: {table.sqlFor(dialect, FILES if dialect == 'trino' else None)}"
        )
    return wanted[1]


@pytest.fixture
def events(spark, tmp_path):
    """Five rows in two batches, of which two live: 1 has been replaced, 3 deleted."""
    rows = [[(1, 1, "a", False), (2, 5, "b", False), (3, 1, "c", None)], [(1, 2, "A", None), (3, 2, None, True)]]
    return fill(new_table(spark, tmp_path), spark, *rows)


# Generated tables -----------------------------------------------------------------------------------------------------


def readable(definition):
    return not any(str(f.type).startswith("interval") for f in definition.fields)


LANES = 12


@st.composite
def pasts(draw):
    """A definition, and what a number of tables of it were written with."""
    definition = draw(table_definitions().filter(readable))
    return definition, [draw(table_batches(definition)) for _ in range(LANES)]


def generated(spark, directory, number):
    """A table of many lanes, some compacted and folded; and its rows by the interpreter."""
    definition, lanes = draw(pasts(), 2, number)[-1]
    depth = max(map(len, lanes))
    batches = [beside(lane[n] if n < len(lane) else () for lane in lanes) for n in range(depth)]
    compacted, folded = [((), ()), ((1,), ()), ((), (2, 3)), ((2,), (4,))][number % 4]
    own = led_by_lane(definition)
    with session_conf(
        spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    ):  # as the library writes them
        table = write_table(
            spark, directory, own, batches, 0, compacted if depth > 1 else (), folded if depth > 1 else ()
        )
    models = [ModelTable(definition) for _ in lanes]
    for model, lane in zip(models, lanes, strict=True):
        for rows in lane:
            model.commit(rows)
    return table, beside(model.live() for model in models)


def check_generated(spark, directory, number, *dialects):
    table, wanted = generated(spark, directory, number)
    own = [{n: plain(v) for n, v in row.items()} for row in wanted]
    for dialect in dialects:
        names, rows = run(spark, table, dialect)
        found = renderDifference(own, [dict(zip(names, row, strict=True)) for row in rows], table.definition.primaryKey)
        assert not found, (
            f"{dialect}, {table.definition} ('expected' is the interpreter): {found}\n{table.sqlFor('duckdb')}"
        )


@pytest.mark.parametrize("number", quickly(range(25), range(10)))
@pytest.mark.program
def test_S13_generated_tables_are_the_same_in_every_engine(number, spark, tmp_path):
    check_generated(spark, tmp_path, number, *(ALL if number % 5 == 0 else ("duckdb", "polars", "trino")))


@pytest.mark.long
@pytest.mark.parametrize("number", range(100, 500))
def test_S13_many_more_generated_tables_are_the_same_in_every_engine(number, spark, tmp_path):
    check_generated(spark, tmp_path, number, *ALL)


# Which rows live ------------------------------------------------------------------------------------------------------


def test_S13_five_stored_rows_of_which_two_live(spark, events):
    files = DuckDB().text(f"{directory_of(events)}/data/*/*.parquet")
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({files})").fetchall() == [(5,)]
    assert check(spark, events) == [(1, 2, "A", None), (2, 5, "b", False)]


def test_S3_S6_late_rows_lose_ties_go_to_the_later_commit_and_null_is_the_smallest(spark, tmp_path):
    table = new_table(spark, tmp_path)
    first = [(1, 5, "a", False), (2, 5, "b", False), (3, None, "c", False), (4, 1, "d", False), (5, None, None, True)]
    late = [(1, 4, "late", False), (2, 5, "tie", False), (3, 1, "known", False), (4, None, "unknown", False)]
    fill(table, spark, first, late, [(5, None, "revived", False)])
    assert [row[2] for row in check(spark, table)] == ["a", "tie", "known", "d", "revived"]


def test_S3_columns_of_a_watermark_count_one_after_the_other(spark, tmp_path):
    schema = "a INT, b STRING, day DATE, n DOUBLE, v STRING"
    table = new_table(spark, tmp_path, schema, primaryKey=["b", "a"], watermarkKey=["day", "n"])
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]
    nan, inf = float("nan"), float("inf")
    merge_into(
        table, spark, [(1, "x", days[1], 1.0, "newer"), (1, "y", days[0], 0.0, "zero"), (2, "x", None, nan, "NaN")]
    )
    merge_into(
        table,
        spark,
        [(1, "x", days[0], 9.0, "older"), (1, "y", days[0], -0.0, "other zero"), (2, "x", None, inf, "inf")],
    )
    assert sorted(row[4] for row in check(spark, table)) == ["NaN", "newer", "other zero"]


def test_S40_a_past_version_is_what_it_was(spark, events):
    merge_into(events, spark, [(2, 6, "new", False)])
    found = [check(spark, TrinityTable.forPath(spark, events.path, versionAsOf=v)) for v in range(4)]
    assert [len(rows) for rows in found] == [0, 3, 2, 2]
    assert found[3] == [(1, 2, "A", None), (2, 6, "new", False)]


@pytest.mark.parametrize(
    ("type", "value", "dead"),
    [
        ("BOOLEAN", None, True),
        ("STRING", "D'--", "D'--"),
        ("CHAR(4)", "D", "D"),
        ("STRING", None, "any"),
        ("BIGINT", None, 0),
        ("TIMESTAMP", None, dt.datetime(2020, 1, 1)),
    ],
)
def test_S4_tombstones_of_every_kind_and_null_ones(spark, tmp_path, type, value, dead):
    of = {} if value is None else {"tombstoneStringValue": value}
    table = new_table(spark, tmp_path, f"id INT, gone {type}", tombstoneKey="gone", **of)
    merge_into(table, spark, [(1, None), (2, None), (3, dead)])
    merge_into(table, spark, [(2, dead), (4, None)])
    assert [row[0] for row in check(spark, table)] == [1, 4]


def test_S5_hidden_columns_do_not_show(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING")
    fill(table, spark, [(1, "a"), (2, "b")], [(1, "A")])
    table.delete(frame(spark, "id INT", 2)).execute()
    assert check(spark, table) == [(1, "A")]


# Batches of every kind ------------------------------------------------------------------------------------------------


def test_a_single_batch_with_unique_keys_takes_no_window(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 1, "a", False), (2, 1, None, True)])
    assert not any("OVER" in table.sqlFor(d, FILES if d == "trino" else None) for d in ALL)
    assert check(spark, table) == [(1, 1, "a", False)]


def test_a_batch_with_a_key_twice_takes_one(spark, tmp_path):
    table = new_table(spark, tmp_path)
    merge_into(table, spark, [(1, 1, "a", False), (1, 2, "b", False), (2, 1, "c", False), (2, 2, None, True)])
    assert check(spark, table) == [(1, 2, "b", False)]


def test_S38_S38a_folds_and_compactions_with_batches_on_top(spark, events):
    merge_into(events, spark, [(4, 1, "d", False)])
    now = events._store.snapshot()
    minor_compact(events._store, now, now.batches[1:])
    merge_into(events, spark, [(3, 1, "late", False), (4, 1, "tie", False)])
    assert [row[2] for row in check(spark, events)] == ["A", "b", "tie"]
    events.compact()
    assert len(check(spark, events)) == 3
    merge_into(events, spark, [(3, 1, "late", False), (1, 9, None, True), (5, 1, "e", False)])
    assert [row[0] for row in check(spark, events)] == [2, 4, 5]


def test_S38b_segments(spark, tmp_path, monkeypatch):
    set_default(monkeypatch, TARGET_SEGMENT_BYTES, "2000")
    table = fill(new_table(spark, tmp_path), spark, [(1, 0, "older", False)])
    table.upsert(spark.range(400).selectExpr("int(id) id", "1 ts", "uuid() v", "false deleted")).execute()
    table.compact()
    assert len(table._snapshot().live_batches) > 2
    assert "OVER" not in table.sqlFor("duckdb")
    check(spark, table)
    merge_into(table, spark, [(7, 2, "new", False), (9, 2, None, True), (11, 0, "late", False)])
    assert len(check(spark, table)) == 399


def test_S38b_segments_that_are_alike_are_one_scan(spark, tmp_path):
    table = new_table(
        spark, tmp_path / "{a} [b]", "id INT, v STRING", properties={"trinitymerge.targetSegmentBytes": "2000"}
    )
    fill(table, spark, [(1, "older")])
    table.upsert(spark.range(400).selectExpr("int(id) id", "uuid() v")).execute()
    table.compact()
    assert len(table._snapshot().live_batches) > 2
    assert not any("UNION" in table.sqlFor(d, FILES if d == "trino" else None) for d in ALL)
    assert len(check(spark, table)) == 400
    table.alter().addColumn("w", "INT").execute()
    assert len(check(spark, table)) == 400


def test_S7_columns_called_as_parts_of_the_query_are(spark, tmp_path):
    names = ["files", "stored", "latest", "lacking", "nothing", "one", "item0"]
    table = new_table(spark, tmp_path, ", ".join(f"{n} INT" for n in names), primaryKey="files", watermarkKey="latest")
    merge_into(table, spark, [tuple(range(7))])
    table.alter().dropColumn("lacking").dropColumn("nothing").execute()
    table.alter().addColumn("lacking", "INT").addColumn("nothing", "INT").execute()
    merge_into(table, spark, [(0, 1, 3, 5, 6, 7, 8), (1, *[None] * 6)])
    assert check(spark, table) == [(0, 1, 3, 5, 6, 7, 8), (1, *[None] * 6)]


def test_H6_archives_of_a_table_with_history_are_not_read(spark, tmp_path):
    table = new_table(spark, tmp_path, history=True)
    fill(table, spark, [(1, 1, "a", False), (2, 1, "b", False)], [(1, 2, "A", False)])
    table.compact()
    merge_into(table, spark, [(2, 2, None, True)])
    archives = [b.id for b in table._snapshot().batches if b.archive]
    assert archives
    assert not any(a in table.sqlFor(d) for a in archives for d in ("duckdb", "polars", "spark"))
    assert check(spark, table) == [(1, 2, "A", False)]


def test_batches_without_rows_are_not_read(spark, events):
    rows = frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN")
    events.upsert(rows).withTransaction("feed", 1).execute()
    events.delete(frame(spark, "id INT, ts INT", (1, 9), (2, 9))).execute()
    assert check(spark, events) == []
    events.purge([1, 2, 3])
    assert check(spark, events) == []


EVERY_TYPE = {
    "BOOLEAN": ("true", "BOOLEAN", "Boolean"),
    "TINYINT": ("-128Y", "TINYINT", "Int8"),
    "SMALLINT": ("-2S", "SMALLINT", "Int16"),
    "INT": ("3", "INTEGER", "Int32"),
    "BIGINT": ("9223372036854775807L", "BIGINT", "Int64"),
    "FLOAT": ("float(1.1)", "FLOAT", "Float32"),
    "DOUBLE": ("double('-Infinity')", "DOUBLE", "Float64"),
    "DECIMAL(38,18)": (
        "12345678901234567890.123456789012345678BD",
        "DECIMAL(38,18)",
        "Decimal(precision=38, scale=18)",
    ),
    "STRING": ("'it''s é😀'", "VARCHAR", "String"),
    "CHAR(3)": ("'a'", "VARCHAR", "String"),
    "VARCHAR(3)": ("'a '", "VARCHAR", "String"),
    "BINARY": ("X'00FF27'", "BLOB", "Binary"),
    "DATE": ("DATE '1500-02-28'", "DATE", "Date"),
    "TIMESTAMP": (
        "TIMESTAMP '2024-03-31 02:30:00.000001 Europe/Paris'",
        "TIMESTAMP WITH TIME ZONE",
        "Datetime(time_unit='us', time_zone='UTC')",
    ),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ '1400-01-01 00:00:00.000001'",
        "TIMESTAMP",
        "Datetime(time_unit='us', time_zone=None)",
    ),
    "ARRAY<INT>": ("array(1, null)", "INTEGER[]", "List(Int32)"),
    "MAP<STRING, DOUBLE>": ("map('k', 1.5D, 'n', null)", "MAP(VARCHAR, DOUBLE)", "Map(String, Float64)"),
    "STRUCT<a: INT, `b c`: ARRAY<TIMESTAMP>>": (
        "named_struct('a', 1, 'b c', array(TIMESTAMP '2024-01-01 00:00:00 UTC'))",
        'STRUCT(a INTEGER, "b c" TIMESTAMP WITH TIME ZONE[])',
        "Struct({'a': Int32, 'b c': List(Datetime(time_unit='us', time_zone='UTC'))})",
    ),
}
"""Spark's types that come out right everywhere: a value, and what DuckDB and Polars call the type."""
ONLY_SPARK = [
    "INTERVAL DAY TO SECOND",
    "INTERVAL YEAR TO MONTH",
    "ARRAY<INTERVAL DAY TO SECOND>",
    "VARIANT",
    "STRUCT<a: VARIANT>",
    "GEOMETRY(4326)",
    "GEOGRAPHY(4326)",
]


def require_types(spark, *types):
    """Skips a test on a Spark that is older than a type."""
    since = [("4.1" if "GEO" in type else "4" if "VARIANT" in type else "3.5") for type in types]
    if spark.version < max(since):
        pytest.skip(f"Spark {spark.version} has no {' or no '.join(types)}")


@pytest.fixture(scope="module")
def every_type(spark, tmp_path_factory):
    """A table with a column of every type, c0, c1 and so on: values, nulls, and two batches, so that types must agree."""
    schema = ", ".join(["id INT", *(f"c{n} {type}" for n, type in enumerate(EVERY_TYPE))])
    table = new_table(spark, tmp_path_factory.mktemp("types"), schema)
    values = ", ".join(f"{value} AS c{n}" for n, (value, _, _) in enumerate(EVERY_TYPE.values()))
    nulls = ", ".join(f"NULL AS c{n}" for n in range(len(EVERY_TYPE)))
    for id, columns in ((1, values), (2, nulls)):
        table.upsert(spark.sql(f"SELECT {id} AS id, {columns}")).execute()
    return table


def test_S7_every_type_that_comes_out_right_does(spark, every_type):
    assert len(check(spark, every_type)) == 2


def types_in_duckdb(table):
    return list(map(str, duckdb.sql(table.sqlFor("duckdb")).types))


def types_in_polars(table):
    return list(map(str, polars.sql(table.sqlFor("polars")).collect_schema().dtypes()))


def test_S7_types_are_called_as_the_page_says(every_type):
    assert types_in_duckdb(every_type)[1:] == [known for _, known, _ in EVERY_TYPE.values()]
    assert types_in_polars(every_type)[1:] == [known for _, _, known in EVERY_TYPE.values()]
    page = (FilePath(__file__).parents[2] / "docs" / "reading-from-elsewhere.md").read_text("utf-8")
    for spark_type, (_, in_duckdb, in_polars) in EVERY_TYPE.items():
        if "<" not in spark_type:
            for long, short in (("(38,18)", "(p,s)"), ("precision=38, scale=18", "p, s"), ("(3)", "(n)")):
                spark_type, in_duckdb, in_polars = (t.replace(long, short) for t in (spark_type, in_duckdb, in_polars))
            in_polars = in_polars.replace("time_unit=", "").replace("time_zone=", "").replace(", None", "")
            assert f"| `{spark_type}` | `{in_duckdb}` | `{in_polars}` |" in page
    assert all(
        f"`{t}`" in page for t in ("ARRAY", "MAP", "STRUCT", *(t.split("(")[0] for t in ONLY_SPARK if "<" not in t))
    )


def test_an_empty_table_gives_no_rows_with_the_same_columns_and_types(spark, every_type):
    empty = TrinityTable.forPath(spark, every_type.path, versionAsOf=0)
    assert check(spark, empty) == []
    assert types_in_duckdb(empty) == types_in_duckdb(every_type)
    assert types_in_polars(empty) == types_in_polars(every_type)
    found = [spark.sql(table.sqlFor("spark")).schema for table in (empty, every_type)]
    assert found[0] == found[1]
    assert found[0].simpleString() == empty.toDF().schema.simpleString()  # toDF() also says which columns are CHAR


@pytest.mark.parametrize("type", ONLY_SPARK)
def test_S7_what_does_not_come_out_right_is_refused_with_a_remedy(spark, tmp_path, type):
    require_types(spark, type)
    table = new_table(spark, tmp_path, f"id INT, `odd one` {type}")
    for dialect in ("duckdb", "polars", "trino"):
        with refused(UnsupportedStorageError, "Column 'odd one'", ENGINES[dialect].title, "export()") as caught:
            table.sqlFor(dialect, files=FILES if dialect == "trino" else None)
        assert caught.value.column == "odd one"
    assert spark.sql(table.sqlFor("spark")).schema == table.toDF().schema


def test_S7_Spark_reads_what_only_Spark_knows(spark, tmp_path):
    require_types(spark, "VARIANT")
    of = "id INT, d INTERVAL DAY TO SECOND, m INTERVAL YEAR TO MONTH, v VARIANT"
    table = new_table(spark, tmp_path, of)
    values = (
        "INTERVAL '1 02:03:04.000005' DAY TO SECOND d, INTERVAL '-1-2' YEAR TO MONTH m, parse_json('{\"a\": [1]}') v"
    )
    for id in (1, 2):
        table.upsert(spark.sql(f"SELECT {id} id, {values}")).execute()
    found = spark.sql(f"SELECT id, d, CAST(m AS STRING) m, v FROM ({table.sqlFor('spark')})").collect()
    wanted = table.toDF().selectExpr("id", "d", "CAST(m AS STRING) m", "v").collect()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_S7_Spark_reads_shapes(spark, tmp_path):
    require_types(spark, "GEOMETRY")
    table = new_table(spark, tmp_path, "id INT, g GEOMETRY(4326)")
    point = "X'0101000000000000000000F03F0000000000000040'"
    table.upsert(spark.sql(f"SELECT 1 id, ST_GeomFromWKB({point}, 4326) g")).execute()
    table.alter().addColumn("more", "GEOGRAPHY(4326)").execute()
    table.upsert(spark.sql(f"SELECT 2 id, NULL g, ST_GeogFromWKB({point}) more")).execute()
    shown = ["id", "hex(ST_AsBinary(g)) g", "hex(ST_AsBinary(more)) more"]
    found = spark.sql(table.sqlFor("spark")).selectExpr(*shown).collect()
    assert sorted(found) == sorted(table.toDF().selectExpr(*shown).collect())
    assert len(found) == 2


def test_S16_orc_files_are_read_by_Spark_and_refused_by_others(spark, tmp_path):
    table = new_table(
        spark, tmp_path, "id INT, t TIMESTAMP, n TIMESTAMP_NTZ, c CHAR(3), m MAP<STRING, INT>", fileFormat="orc"
    )
    merge_into(table, spark, [(1, dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1), "a", {"k": 1})])
    merge_into(table, spark, [(1, dt.datetime(2024, 1, 2), None, "b", None)])
    table.alter().addColumn("more", "ARRAY<INT>").execute()
    check(spark, table, "spark")
    assert "orders_files" in table.sqlFor("trino", files=FILES)
    for dialect in ("duckdb", "polars"):
        with refused(UnsupportedStorageError, "ORC", ENGINES[dialect].title, "export()"):
            table.sqlFor(dialect)


# Columns that change --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_S43_renamed_added_dropped_and_wider_columns(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, a STRING, b STRING, n TINYINT, f FLOAT", watermarkKey="ts")
    merge_into(table, spark, [(1, 1, "a1", "b1", 1, 1.1), (2, 1, "a2", "b2", 2, 2.5), (3, 1, "a3", "b3", 3, None)])
    table.alter().renameColumn("a", "x").renameColumn("b", "a").renameColumn("x", "b").execute()  # swapped
    check(spark, table)
    table.alter().widenColumn("n", "DECIMAL(10,2)").widenColumn("id", "BIGINT").widenColumn("f", "DOUBLE").execute()
    table.alter().addColumn("more", "MAP<STRING, INT>").addColumn("when", "TIMESTAMP").execute()
    past = check(spark, table)
    assert [row[4:] for row in past] == [
        (Decimal(n), f, None, None) for n, f in ((1, 1.100000023841858), (2, 2.5), (3, None))
    ]
    merge_into(
        table,
        spark,
        [(2, 2, "B", "A", Decimal("2.50"), 0.1, {"k": 1}, dt.datetime(2024, 1, 1)), (2**40, 1, *[None] * 6)],
    )
    assert len(check(spark, table)) == 4
    table.alter().dropColumn("more").execute()
    table.alter().addColumn("more", "INT").renameColumn("ts", "when_ts").execute()
    assert check(spark, table)[1][-1] is None
    table.alter().widenColumn("more", "BIGINT").execute()
    merge_into(table, spark, [(3, 5, "B", "A", None, None, None, 2**40)])
    check(spark, table)
    now = table._store.snapshot()
    minor_compact(table._store, now, now.batches[1:])
    check(spark, table)
    table.purge([1])
    table.compact()
    merge_into(table, spark, [(2, 9, "B", "A", None, None, None, 7)])
    assert len(check(spark, table)) == 3


def test_S43_a_name_that_files_lack_is_no_other_column(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a")])
    table.alter().addColumn("w", "STRING").execute()
    table.alter().renameColumn("w", "x").renameColumn("v", "w").execute()
    merge_into(table, spark, [(2, "b", "X")])
    assert check(spark, table) == [(1, "a", None), (2, "b", "X")]


def test_S43_a_restored_version_has_the_columns_it_had(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v INT"), spark, [(1, 1)])
    table.alter().widenColumn("v", "BIGINT").renameColumn("v", "w").execute()
    merge_into(table, spark, [(2, 2**40)])
    table.restore(1)
    merge_into(table, spark, [(3, 3)])
    table.alter().widenColumn("v", "DOUBLE").execute()
    merge_into(table, spark, [(4, 0.5)])
    assert check(spark, table) == [(1, 1.0), (3, 3.0), (4, 0.5)]
    table.restore(3)
    assert check(spark, table) == [(1, 1), (2, 2**40)]


def test_S44_fields_that_older_files_lack_within_a_column(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>")
    source = spark.sql("SELECT 1 id, named_struct('a', 1) s, array(named_struct('a', 1)) l")
    table.upsert(source).execute()
    wider = "named_struct('b', 'x', 'a', 5000000000)"
    table.upsert(spark.sql(f"SELECT 2 id, {wider} s, array({wider}, null) l")).withSchemaEvolution().execute()
    rows = check(spark, table, "duckdb", "polars")
    assert [row[1] for row in rows] == [{"a": 1, "b": None}, {"a": 5_000_000_000, "b": "x"}]
    with refused(UnsupportedStorageError, "Column 's'", "fields", "export()"):
        table.sqlFor("spark")


def test_S44_fields_that_all_files_lack(spark, tmp_path):
    table = new_table(
        spark, tmp_path, "id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>"
    )
    s = "named_struct('a', 1)"
    table.upsert(
        spark.sql(f"SELECT 1 id, {s} s, array({s}, NULL) l, map('k', {s}) m UNION ALL SELECT 2, NULL, NULL, NULL")
    ).execute()
    more = "STRUCT<a: INT, b: STRING>"
    table.alter().widenColumn("s", more).widenColumn("l", f"ARRAY<{more}>").widenColumn(
        "m", f"MAP<STRING, {more}>"
    ).execute()
    lacking = {"a": 1, "b": None}
    assert check(spark, table, "duckdb", "polars") == [
        (1, lacking, [lacking, None], {"k": lacking}),
        (2, None, None, None),
    ]
    with refused(UnsupportedStorageError, "Column 's'", "Spark alone", "export()"):
        table.sqlFor("spark")


def test_S43_nested_types_become_wider(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, m MAP<STRING, INT>, s STRUCT<a: INT, `b'\" c`: ARRAY<INT>>")
    row = "map('k', 1) m, named_struct('a', 1, 'b\\'\" c', array(1, null)) s"
    table.upsert(spark.sql(f"SELECT 1 id, {row}")).execute()
    table.alter().widenColumn("m", "MAP<STRING, BIGINT>").widenColumn(
        "s", "STRUCT<a: BIGINT, `b'\" c`: ARRAY<BIGINT>>"
    ).execute()
    table.upsert(spark.sql(f"SELECT 2 id, {row}")).execute()
    assert len(check(spark, table)) == 2


# Odd names and paths --------------------------------------------------------------------------------------------------

ODD = [
    "it's",
    'q"q"',
    "b`t",
    "a.b",
    "a b",
    "x; --",
    "/* c */",
    "é😀",
    "[1]",
    "%20",
    "a\\b",
    "l\ne",
    "select",
    "*a",
    "^a",
    "$1",
    "{}",
]


def test_S7_odd_names_stay_within_their_quotes(spark, tmp_path):
    fields = ", ".join(f"{quote(name)} INT" for name in ODD)
    table = new_table(spark, tmp_path, fields, primaryKey=ODD[:2], watermarkKey=ODD[2:4], tombstoneKey=ODD[5])
    row = [None if name == ODD[5] else n for n, name in enumerate(ODD)]
    merge_into(table, spark, [tuple(row), (9, *row[1:])])
    merge_into(table, spark, [(*row[:2], 99, *row[3:]), (9, 1, 99, 3, 4, 1, *[None] * (len(ODD) - 6))])
    table.alter().addColumn("ad'd`e\"d", "INT").renameColumn("a b", 'c`"d').execute()
    assert check(spark, table) == [(0, 1, 99, *row[3:], None)]


@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_S7_names_that_Polars_takes_for_patterns_are_refused_there(spark, tmp_path, name):
    table = new_table(spark, tmp_path, f"id INT, {quote(name)} INT")
    merge_into(table, spark, [(1, 2)])
    with refused(UnsupportedStorageError, f"Column '{name}'", "pattern", "export()"):
        table.sqlFor("polars")
    check(spark, table, "duckdb", "spark")


PATHS = [
    "it's",
    'q"q',
    "b`t",
    "br[1]",
    "st*r",
    "q?m",
    "{a,b}",
    "%20",
    "id=7",
    "_tm_batch=x",
    "a b; --",
    "é😀",
    "${x}",
    "b\\s",
]


@pytest.fixture(scope="module")
def to_copy(spark, tmp_path_factory):
    rows = [[(1, 1, "a", False), (2, 1, "b", False)], [(1, 2, "A", False), (2, 2, None, True)]]
    return fill(new_table(spark, tmp_path_factory.mktemp("odd")), spark, *rows)


@pytest.mark.parametrize("name", PATHS)
def test_S33_odd_paths_stay_within_their_quotes_and_are_no_patterns(spark, to_copy, tmp_path, name):
    for other in {name, "br1", "star", "qxm", "a"}:
        shutil.copytree(directory_of(to_copy), tmp_path / other / "orders")
        for file in (tmp_path / other).glob("orders/data/*/*.parquet" if other != name else "none"):
            file.write_text("what a pattern would find")
    table = TrinityTable.forPath(spark, str(tmp_path / name / "orders"))
    assert check(spark, table) == [(1, 2, "A", False)]


def test_S33_a_path_that_DuckDB_cannot_be_told_of_is_refused(spark, to_copy, tmp_path):
    shutil.copytree(directory_of(to_copy), tmp_path / "b\\[1]")
    table = TrinityTable.forPath(spark, str(tmp_path / "b\\[1]"))
    with refused(UnsupportedStorageError, "DuckDB", "pattern", "export()"):
        table.sqlFor("duckdb")
    check(spark, table, "polars", "spark")


def test_S33_paths_in_object_stores_are_written_as_each_engine_does():
    assert DuckDB().place("s3a://bucket/a*b") == Polars().place("s3a://bucket/a*b") == "s3://bucket/a[*]b"
    assert DuckDB().place("abfss://c@account.example/x") == "abfss://c@account.example/x"
    assert Spark().place("s3a://bucket/a*b") == r"s3a://bucket/a\*b"
    for engine in (DuckDB(), Polars()):
        with refused(UnsupportedStorageError, engine.title, "hdfs", "export()"):
            engine.place("hdfs://host/x")


# What is asked of it --------------------------------------------------------------------------------------------------


def test_an_unknown_dialect_is_named_with_those_there_are(events):
    with pytest.raises(ValueError, match=r"no dialect 'duckbd'\. Did you mean 'duckdb'"):
        events.sqlFor("duckbd")


@pytest.mark.parametrize("files", [None, "", "a.b.c.d", "a..b", ".a", 'x" UNION', "a b", 'a."b', 7])
def test_Trino_takes_the_name_of_a_table(events, files):
    with pytest.raises(ValueError, match=r"sqlFor\('trino', files='hive.default.orders_files'\)"):
        events.sqlFor("trino", files=files)


def test_names_of_tables_in_Trino_are_quoted():
    assert Trino.over("Hive.x.a-b").files == '"Hive"."x"."a-b"'
    assert Trino.over('"a.b"."c""d"').files == '"a.b"."c""d"'


def test_files_are_for_Trino_alone(events):
    with pytest.raises(ValueError, match="for Trino only"):
        events.sqlFor("duckdb", files=FILES)


def test_Trino_asks_for_partitions_by_their_names(spark, events):
    text = events.sqlFor("trino", files=FILES)
    assert all(b.id in text for b in events._snapshot().live_batches)
    tables = {t.sql() for t in sqlglot.parse_one(text, read="trino").find_all(sqlglot.exp.Table)}
    assert tables == {'"hive"."sales"."orders_files" AS files'}


def test_no_job_runs_to_make_the_text(spark, events):
    with jobs_of(spark) as jobs:
        for dialect in ALL:
            events.sqlFor(dialect, files=FILES if dialect == "trino" else None)
    assert jobs.count == 0


def test_S39_after_a_vacuum_the_text_of_before_is_an_error_and_a_new_one_is_right(spark, events):
    texts = {d: events.sqlFor(d) for d in ("duckdb", "polars", "spark")}
    events.compact()
    events.vacuum(retentionHours=0)
    with pytest.raises(duckdb.IOException, match="No files found"):
        with_duckdb(texts["duckdb"])
    with pytest.raises((polars.exceptions.PolarsError, FileNotFoundError)):
        with_polars(texts["polars"])
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        spark.sql(texts["spark"])
    assert len(check(spark, events)) == 2
    with refused(TableNotFoundError, "can no longer be read"):
        TrinityTable.forPath(spark, events.path, versionAsOf=2).sqlFor("duckdb")


def test_a_file_that_is_gone_is_named(events):
    batch = sorted(batch_directories(events))[0]
    next((directory_of(events) / "data" / batch).glob("*.parquet")).unlink()
    with refused(CorruptTableError, batch):
        events.sqlFor("duckdb")


# Export ---------------------------------------------------------------------------------------------------------------


def test_S13_an_export_is_the_live_rows_in_plain_files(spark, events, tmp_path):
    result = events.export(str(tmp_path / "it's [1]" / "plain"))
    directory = tmp_path / "it's [1]" / "plain"
    names = sorted(os.listdir(directory))
    assert all(name.endswith(".parquet") for name in names)
    assert os.listdir(directory.parent) == ["plain"]
    size = sum((directory / name).stat().st_size for name in names)
    assert result == attrs.evolve(result, path=f"file:{directory}", version=2, rows=2, files=len(names), bytes=size)
    assert str(result).startswith("version 2: 2 rows in ")
    rows = [(1, 2, "A", None), (2, 5, "b", False)]
    assert (
        sorted(
            duckdb.sql(f"FROM read_parquet({DuckDB().text(DuckDB().place(str(directory)))} || '/*.parquet')").fetchall()
        )
        == rows
    )
    assert sorted(polars.read_parquet([directory / name for name in names], glob=False).rows()) == rows
    assert sorted(map(tuple, spark.read.parquet(escape_glob(str(directory))).collect())) == rows


def test_an_exported_directory_is_read_as_a_whole(spark, events, tmp_path):
    events.export(str(tmp_path / "plain"))
    assert len(polars.read_parquet(tmp_path / "plain")) == len(pandas.read_parquet(tmp_path / "plain")) == 2


def test_S40_a_past_version_is_exported_and_an_empty_one(spark, events, tmp_path):
    for version, rows in ((1, 3), (0, 0)):
        result = TrinityTable.forPath(spark, events.path, versionAsOf=version).export(str(tmp_path / f"v{version}"))
        assert (result.version, result.rows) == (version, rows)
        found = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/v{version}/*.parquet')")
        assert (found.columns, len(found.fetchall())) == (["id", "ts", "v", "deleted"], rows)


def test_S7_what_only_Spark_knows_is_exported_as_something_plain(spark, tmp_path):
    require_types(spark, "VARIANT")
    of = "id INT, d INTERVAL DAY TO SECOND, h INTERVAL HOUR, y INTERVAL YEAR TO MONTH, v VARIANT, "
    nested = "n STRUCT<`a'b`: ARRAY<INTERVAL MINUTE TO SECOND>, m: MAP<INTERVAL MONTH, STRUCT<x: VARIANT, i: INT>>>"
    table = new_table(spark, tmp_path, of + nested)
    values = (
        "INTERVAL '-1 02:59:04.000005' DAY TO SECOND d, INTERVAL '5' HOUR h, INTERVAL '-1-2' YEAR TO MONTH y, "
        "parse_json('{\"a\": [1, null]}') v, named_struct('a\\'b', array(INTERVAL '3:04.5' MINUTE TO SECOND, null), 'm', "
        "map(INTERVAL '3' MONTH, named_struct('x', parse_json('7'), 'i', 1))) n"
    )
    table.upsert(spark.sql(f"SELECT 1 id, {values} UNION ALL SELECT 2, NULL, NULL, NULL, NULL, NULL")).execute()
    table.export(str(tmp_path / "plain"))
    micros = -(((24 + 2) * 60 + 59) * 60 + 4) * 10**6 - 5
    nested = {"a'b": [184_500_000, None], "m": {3: {"x": "7", "i": 1}}}
    assert sorted(duckdb.sql(f"FROM '{tmp_path}/plain/*.parquet'").fetchall(), key=repr) == [
        (1, micros, 5 * 3600 * 10**6, -14, '{"a":[1,null]}', nested),
        (2, None, None, None, None, None),
    ]


def test_an_export_keeps_every_other_type(spark, every_type, tmp_path):
    every_type.export(str(tmp_path / "plain"))
    found = duckdb.sql(f"FROM '{tmp_path}/plain/*.parquet'")
    assert list(map(str, found.types)) == types_in_duckdb(every_type)
    assert sorted((tuple(map(plain, r)) for r in found.fetchall()), key=repr) == expected(every_type)[1]


@pytest.mark.parametrize("there", ["file", "directory", "table"])
def test_what_is_at_the_path_stays(spark, events, tmp_path, there):
    path = directory_of(events) if there == "table" else tmp_path / "taken"
    if there == "file":
        path.write_text("mine")
    elif there == "directory":
        path.mkdir()
    with refused(TableExistsError, str(path), "exists"):
        events.export(str(path))
    assert [n for n in os.listdir(path.parent) if n.startswith(".")] == []


def test_what_comes_to_the_path_meanwhile_stays(spark, events, tmp_path, monkeypatch):
    def write_meanwhile(rows, file_format, path):
        file_format_module.write(rows, file_format, path)
        (tmp_path / "plain").mkdir()

    monkeypatch.setattr(export, "write", write_meanwhile)
    with refused(TableExistsError, "plain"):
        events.export(str(tmp_path / "plain"))
    assert os.listdir(tmp_path / "plain") == [n for n in os.listdir(tmp_path) if n.startswith(".")] == []


@pytest.mark.parametrize("moved_into", [False, True])
def test_what_comes_in_the_last_moment_stays_too(spark, events, tmp_path, monkeypatch, moved_into):
    def move(self, path, target):
        target = FilePath(target.removeprefix("file:"))
        (target / "theirs").mkdir(parents=True)
        source = FilePath(path.removeprefix("file:"))
        source.rename(target / source.name if moved_into else target)  # as Hadoop does, or a local disk

    monkeypatch.setattr(LocalFileSystem, "move", move)
    with refused(TableExistsError, "plain"):
        events.export(str(tmp_path / "plain"))
    assert os.listdir(tmp_path / "plain") == ["theirs"]
    assert not any(n.startswith(".") for n in os.listdir(tmp_path))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_S33_nothing_is_left_of_an_export_that_fails(spark, events, tmp_path, monkeypatch, error):
    def fail(self, path, target):
        raise error

    before = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(LocalFileSystem, "move", fail)
    with pytest.raises(type(error)):
        events.export(str(tmp_path / "plain"))
    assert sorted(os.listdir(tmp_path)) == before


def test_S33_where_no_directory_can_be_renamed_files_are_moved(spark, events, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_RENAMING", ())
    result = events.export(str(tmp_path / "plain"))
    assert (result.rows, len(os.listdir(tmp_path / "plain"))) == (2, result.files)
    assert len(polars.read_parquet(tmp_path / "plain")) == 2
    before, moves = sorted(os.listdir(tmp_path)), []

    def fail_at_the_second(self, path, target):
        moves.append(path)
        if len(moves) == 2:
            raise OSError(5, "Input/output error")
        os.rename(path.removeprefix("file:"), target.removeprefix("file:"))

    monkeypatch.setattr(LocalFileSystem, "move", fail_at_the_second)
    fill(events, spark, [(n, 9, "more", False) for n in range(9)])
    with pytest.raises(StorageError, match="Nothing was written"):
        events.export(str(tmp_path / "again"))
    assert len(moves) == 2
    assert sorted(os.listdir(tmp_path)) == before


def test_S39_files_that_go_while_they_are_exported_are_an_error_that_says_so(spark, events, tmp_path, monkeypatch):
    def write_after_a_vacuum(rows, file_format, path):
        shutil.rmtree(directory_of(events) / "data")
        file_format_module.write(rows, file_format, path)

    before = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(export, "write", write_after_a_vacuum)
    with refused(StorageError, "could not be written", "Nothing was written"):
        events.export(str(tmp_path / "plain"))
    assert sorted(os.listdir(tmp_path)) == before
