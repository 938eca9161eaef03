"""What a new user reads: of a source of the wrong kind, of aliases and words that do not exist, of shorthands, of counts."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F
from tables import EVENTS, fill, frame, new_table
from test_errors import refused

from trinitymerge import (
    AmbiguousMergeError,
    DuplicateKeyError,
    InvalidMergeError,
    MergeResult,
    NullKeyError,
    SchemaMismatchError,
    TrinityMergeError,
    TrinityTable,
)


@pytest.fixture
def events(spark, tmp_path):
    """A table of EVENTS with one row."""
    return fill(new_table(spark, tmp_path), spark, [(1, 5, "a", False)])


@pytest.fixture
def source(spark):
    return frame(spark, EVENTS, (1, 6, "b", False))


# Sources of the wrong kind --------------------------------------------------------------------------------------------


def of_package(module, name, **methods):
    """An object of a class that lives in a module of another package."""
    return type(name, (), {"__module__": module, **methods})()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (of_package("pandas.core.frame", "DataFrame"), ["got pandas.DataFrame.", "spark.createDataFrame(df)"]),
        (
            of_package("polars.dataframe.frame", "DataFrame"),
            ["got polars.DataFrame.", "createDataFrame(df.to_pandas())"],
        ),
        (
            of_package("polars.lazyframe.frame", "LazyFrame"),
            ["got polars.LazyFrame.", "createDataFrame(df.collect().to_pandas())"],
        ),
        (of_package("pyarrow.lib", "Table"), ["got pyarrow.Table.", "createDataFrame(df.to_pandas())"]),
        (of_package("pyspark.pandas.frame", "DataFrame", to_spark=len), ["got pyspark.DataFrame.", "df.to_spark()"]),
        ("orders", ["got str.", "spark.table(name)"]),
        ([(1, 2)], ["got list.", "spark.createDataFrame(rows, schema)"]),
        ({"id": 1}, ["got dict."]),
    ],
)
def test_source_of_another_kind_is_named_with_its_package_and_how_to_convert_it(events, source, words):
    for call in (events.merge, events.upsert, events.delete, events.insert):
        with refused(InvalidMergeError, "must be a DataFrame or a TrinityTable", *words):
            call(source)


def test_keys_to_purge_in_a_frame_of_another_library_are_not_its_column_names(events):
    frame = of_package("pandas.core.frame", "DataFrame", __iter__=lambda self: iter(["id"]))
    with refused(SchemaMismatchError, "purge takes a DataFrame or a list of keys, got pandas.DataFrame.", "Convert it"):
        events.purge(frame)


@pytest.mark.classic("the table is a classic session's, the source is not")
def test_DataFrame_of_the_other_kind_of_session_is_named_as_such(events):
    remote = of_package("pyspark.sql.connect.dataframe", "DataFrame", sparkSession=None, sameSemantics=None)
    with refused(InvalidMergeError, "DataFrame of Spark Connect", "opened in a classic Spark session", "forPath"):
        events.merge(remote)


# Names that do not exist ----------------------------------------------------------------------------------------------


def test_alias_that_does_not_exist_says_which_ones_do(events, source):
    with refused(
        InvalidMergeError, "no alias 'A': the target's is 'target', and the source has none", "table.alias('A')"
    ):
        events.merge(source, "A.id = target.id").whenMatched().delete().build()
    with refused(
        InvalidMergeError, "The condition of clause 1", "no alias 'C': the target's is 'A', and the source's is 'B'"
    ):
        events.alias("A").merge(source.alias("B"), "A.id = B.id").whenMatched("C.v = 'x'").delete().build()
    with refused(InvalidMergeError, "updateExpr, column 'v'", "no alias 'C'", "the source's is 'B'"):
        events.merge(source.alias("B"), "target.id = B.id").whenMatched().updateExpr({"v": "C.v"}).build()
    with refused(InvalidMergeError, "no alias 'A': the target's is 'target'; table.alias('A') gives it another"):
        events.deleteWhere("A.v = 'a'").build()


def test_column_that_does_not_exist_under_an_alias_that_does_is_no_question_of_aliases(events, source):
    with refused(InvalidMergeError, "'B.vv'") as error:
        events.alias("A").merge(source.alias("B"), "A.id = B.id").whenMatched("B.vv = 'x'").delete().build()
    assert "no alias" not in str(error.value)


@pytest.mark.parametrize("word", ["new", "New York", "out-of-stock"])
def test_bare_word_as_a_value_suggests_the_text(events, source, word):
    with refused(InvalidMergeError, "column 'v'", f"the text {word} has quotes: '{word}'"):
        events.merge(source).whenMatched().updateExpr({"v": word}).build()
    events.merge(source).whenMatched().updateExpr({"v": f"'{word}'"}).build()


def test_bare_word_in_a_condition_or_qualified_is_no_forgotten_text(events, source):
    for values, condition in (({"v": "source.new"}, None), ({"v": "'x'"}, "new > 1")):
        with pytest.raises(InvalidMergeError) as error:
            events.merge(source).whenMatched(condition).updateExpr(values).build()
        assert "has quotes" not in str(error.value)


# Shorthands speak of themselves ---------------------------------------------------------------------------------------


@pytest.fixture
def no_clauses():
    """Checks that an error says nothing of clauses that nobody wrote."""

    def check(error):
        for word in ("clause", "whenMatched", "whenNotMatched", "Expr"):
            assert word not in str(error.value), str(error.value)

    return check


def test_deleteWhere_without_a_condition_is_refused(events):
    with refused(InvalidMergeError, "deleteWhere takes a condition, got None", 'deleteWhere("true")'):
        events.deleteWhere(None)
    assert events.toDF().count() == 1
    assert events.deleteWhere("true").execute().rowsDeleted == 1


def test_where_shorthands_speak_of_themselves(events, no_clauses):
    wrong = {
        'updateWhere("vv = 1")': lambda: events.updateWhere("vv = 1", {"v": "'x'"}).build(),
        'The condition of deleteWhere("v")': lambda: events.deleteWhere("v").build(),
        "The condition of deleteWhere(": lambda: events.deleteWhere(F.col("vv") == 1).build(),
        "updateWhere takes a map": lambda: events.updateWhere("true", {}),
        "updateWhere, column 'v': a value": lambda: events.updateWhere("true", {"v": [1]}),
        "updateWhere takes a condition as SQL text or a Column, got bool (True)": lambda: events.updateWhere(True, {}),
        "deleteWhere takes a condition as SQL text or a Column, got int (3)": lambda: events.deleteWhere(3),
        'updateWhere("true"): the table has no column': lambda: events.updateWhere("true", {"vv": "1"}).build(),
        "updateWhere(\"true\"), column 'v'": lambda: events.updateWhere("true", {"v": "vv"}).build(),
        "updateWhere(\"true\") assigns 'v' twice": lambda: events.updateWhere("true", {"v": "1", "V": "1"}).build(),
    }
    for words, call in wrong.items():
        with refused(InvalidMergeError, words) as error:
            call()
        no_clauses(error)
    with refused(SchemaMismatchError, "updateWhere(): column 'ts' is int") as error:
        events.updateWhere(None, {"ts": "array(1)"}).build()
    no_clauses(error)


def test_shorthands_with_a_source_speak_of_themselves(spark, events, source):
    with refused(
        InvalidMergeError,
        "upsert() takes every column from the source. Column 'v' is missing in the source; it has ",
        "use merge() with",
    ):
        events.upsert(source.drop("v")).build()
    for call in ("upsert", "update", "delete"):
        with refused(InvalidMergeError, f"{call}() pairs rows by the primary key", "pass a condition to merge()"):
            getattr(events, call)(source.withColumnRenamed("id", "key")).build()
    with refused(DuplicateKeyError, "1 row would be written", "from insert().") as error:
        events.insert(source).execute()
    assert "clause" not in str(error.value)
    with refused(NullKeyError, "1 row to be written", "from upsert():"):
        events.upsert(frame(spark, EVENTS, (None, 6, "b", False))).execute()


def test_explain_says_what_a_shorthand_stands_for(events, source):
    text = events.upsert(source).build().explain()
    assert "  1. whenMatched(): update all columns from the source\n  2. whenNotMatched(): insert all" in text


LACKING = {
    "upsert() takes every column from the source. Column 'v' is missing in the source; it has 'id', 'ts', 'w', 'deleted'.": (
        lambda t, s: t.upsert(s.withColumnRenamed("v", "w")).build()
    ),
    "insert() takes every column from the source. Columns 'id', 'v' are missing in the source; it has 'ts', 'deleted'.": (
        lambda t, s: t.insert(s.drop("id", "v")).build()
    ),
    "Columns 'id', 'v' are missing in the source; it has 'ts', 'deleted'.": (
        lambda t, s: t.snapshot(s.drop("id", "v"), at=1).build()
    ),
    "update() pairs rows by the primary key. Column 'id' is missing in the source; it has 'ts', 'v', 'deleted'.": (
        lambda t, s: t.update(s.drop("id")).build()
    ),
    "applyChanges() takes every column from the source. Column 'v' is missing in the source; it has 'id', 'ts'.": (
        lambda t, s: t.applyChanges(s.drop("v", "deleted"), applyAsDeletes="id < 0").build()
    ),
    "applyChanges(): Column 'ts' is missing in the source; it has 'id', 'v', 'deleted'. Add it, or name another by sequenceBy=.": (
        lambda t, s: t.applyChanges(s.drop("ts")).build()
    ),
    "applyChanges(): Column 'w' is missing in the source; it has 'id', 'ts', 'v', 'deleted'.": (
        lambda t, s: t.applyChanges(s, exceptColumns=["w"]).build()
    ),
    "fromIntervals(): Column 'since' is missing in the source; it has 'id', 'ts', 'v', 'deleted'.": (
        lambda t, s: TrinityTable.fromIntervals(
            s.sparkSession, f"{t.path}2", s, primaryKey="id", validFrom="since", validTo="v"
        )
    ),
    "primaryKey: Column 'idd' is missing in the schema; it has 'id', 'v'. Did you mean 'id'?": (
        lambda t, s: TrinityTable.create(s.sparkSession, f"{t.path}2", "id INT, v INT", primaryKey="idd")
    ),
    "watermarkKey: Column 'at' is missing in the schema; it has 'id', 'ts', 'v', 'deleted'.": (
        lambda t, s: TrinityTable.convert(s.sparkSession, s, f"{t.path}2", primaryKey="id", watermarkKey="at")
    ),
    "has another definition: it lacks column 'more'; it has 'id', 'ts', 'v', 'deleted'. ": (
        lambda t, s: TrinityTable.createIfNotExists(
            s.sparkSession, t.path, f"{EVENTS}, more INT", "id", "ts", "deleted"
        )
    ),
    "has another definition: its column 'v' is string, not int. ": (
        lambda t, s: TrinityTable.createIfNotExists(
            s.sparkSession, t.path, "id INT, ts INT, v INT, deleted BOOLEAN", "id", "ts", "deleted"
        )
    ),
    "purge: Column 'id' is missing in the DataFrame of keys; it has 'ts'.": lambda t, s: t.purge(s.select("ts")),
    "purge: Column 'id' is missing in a key; it has 'ts'.": lambda t, s: t.purge([{"ts": 1}]),
}


@pytest.mark.parametrize(("words", "call"), LACKING.items(), ids=LACKING)
def test_a_column_that_is_missing_is_named_with_those_that_are_there(events, source, words, call):
    with refused(TrinityMergeError, words):
        call(events, source)


@pytest.mark.parametrize("given", [(5, "6"), ((5, "6"),), ([5, "6"],)], ids=["values", "tuple", "list"])
def test_H2a_at_takes_a_composite_watermark_as_values_or_as_a_tuple(spark, tmp_path, given):
    table = new_table(spark, tmp_path, "id INT, a INT, b INT", watermarkKey=["a", "b"], history=True)
    table.insert(spark.sql("SELECT 1 AS id, 1 AS a, 1 AS b")).execute()
    assert table.deleteWhere("id = 1").at(*given).execute().rowsDeleted == 1
    assert [tuple(r) for r in table.versions().select("a", "validTo").collect()] == [(1, 5)]
    for wrong, words in (
        ((), "got ()"),
        (((),), "got ()"),
        (((1, [2]),), "a tuple of them"),
        ((1,), "was given 1 value"),
    ):
        with refused(InvalidMergeError, words):
            table.deleteWhere("id = 1").at(*wrong).build()


# What is shown --------------------------------------------------------------------------------------------------------


def test_a_table_shows_path_version_and_keys_in_one_line(spark, events, tmp_path):
    assert (
        str(events)
        == repr(events)
        == f"TrinityTable({events.path}; version 1; primary key id; watermark ts; tombstone deleted)"
    )
    past = TrinityTable.forPath(spark, events.path, versionAsOf=0)
    assert (
        repr(past)
        == f"TrinityTable({past.path}; version 0, read only; primary key id; watermark ts; tombstone deleted)"
    )
    plain = new_table(spark, tmp_path, "a INT, b INT", primaryKey=["a", "b"])
    assert repr(plain) == f"TrinityTable({plain.path}; version 0; primary key a, b)"
    (tmp_path / plain.path.rsplit("/", 1)[1]).rename(tmp_path / "elsewhere")
    assert repr(plain) == f"TrinityTable({plain.path}: TableNotFoundError)"


def test_a_builder_shows_its_clauses_and_that_nothing_has_happened(events, source):
    merge = events.alias("A").merge(source.alias("B"), "A.id = B.id")
    assert repr(merge).endswith("\n  no clause yet")
    assert repr(merge.whenMatched("B.v = 'x'")).endswith(
        "\n  1. whenMatched(\"B.v = 'x'\") has no action: add updateExpr({...}), updateAll(), delete() or insertExpr({...})"
    )
    merge = merge.whenMatched("B.v = 'x'").updateExpr({"v": "B.v", "ts": "7"}).insertExpr({"id": "B.id + 1"})
    merge = merge.whenMatched(F.col("B.ts") > 5).delete().whenNotMatched().insertAll(exceptColumns=["v"])
    head, *lines = repr(merge).splitlines()
    assert head == (
        f"Merge of a source into {events.path} that has not been executed: call execute(), or build() to look closer"
    )
    assert lines[0] == "  1. whenMatched(\"B.v = 'x'\").updateExpr(v, ts).insertExpr(id)"
    assert lines[1].endswith(").delete()")
    assert lines[2] == "  3. whenNotMatched().insertAll(exceptColumns: v)"
    head, line = repr(events.deleteWhere("ts < 5")).splitlines()
    assert head.startswith(f"Merge into {events.path} that has not been executed")
    assert line == '  1. deleteWhere("ts < 5")'
    head, *lines = repr(events.upsert(source)).splitlines()
    assert lines == ["  1. upsert()"], "one call, though of two clauses"
    assert repr(events.upsert(source).whenNotMatchedBySource().delete()).endswith(
        "  1. upsert()\n  3. whenNotMatchedAndExistsOnlyOnTarget().delete()"
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("whenMatchedUpdateAll", "whenMatched(condition).updateAll()"),
        ("whenMatchedDelete", "whenMatched(condition).delete()"),
        ("whenNotMatchedInsertAll", "whenNotMatched(condition).insertAll()"),
        ("whenNotMatchedBySourceUpdate", "whenNotMatchedBySource(condition).updateExpr(map)"),
    ],
)
def test_names_of_delta_lake_lead_to_the_clause(events, source, name, known):
    merge = events.merge(source)
    assert not hasattr(merge, name)
    with pytest.raises(AttributeError, match=re.escape(f"has no attribute '{name}': a clause is {known}")):
        getattr(merge, name)


def test_S12_rows_of_moments_that_Python_does_not_have_are_named(spark, tmp_path):
    table = TrinityTable.create(spark, f"{tmp_path}/t", "at TIMESTAMP, v STRING", primaryKey="at")
    rows = spark.sql("SELECT timestamp_seconds(400000000000L) AS at, v FROM VALUES ('a'), ('b') AS t(v)")
    with pytest.raises(AmbiguousMergeError, match="14645"):
        table.upsert(rows).execute()


def test_counts_are_counted():
    one = MergeResult(version=1, rowsInserted=1, rowsAppended=1, rowsSource=1, rowsPurged=1, strategy="full scan")
    assert "(1 row appended from 1 source row; full scan)" in str(one)
    assert "\n  1 row of purged keys left out" in str(one)
    many = MergeResult(version=1, rowsAppended=1200, rowsSource=2, strategy="full scan")
    assert "(1,200 rows appended from 2 source rows;" in str(many)


# Keys of tables that keep their history -------------------------------------------------------------------------------


def test_a_flag_in_the_key_of_a_history_table_is_refused_with_advice(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, current BOOLEAN, v STRING, since INT", primaryKey=["id", "current"])

    def load(v, since):
        new = {"id": "B.id", "current": "true", "v": "B.v", "since": "B.since"}
        return (
            table.alias("A")
            .merge(frame(spark, "id INT, v STRING, since INT", (1, v, since)).alias("B"), "A.id = B.id AND A.current")
            .whenMatched("NOT (A.v <=> B.v)")
            .updateExpr({"A.current": "false"})
            .insertExpr(new)
            .whenNotMatched()
            .insertExpr(new)
            .execute()
        )

    load("a", 1)
    load("b", 2)
    with refused(
        DuplicateKeyError, "id=1, current=False", "changes 'current', a part of the primary key", "(valid_from)"
    ):
        load("c", 3)
    with refused(DuplicateKeyError, "Update such rows instead"):
        table.insert(frame(spark, "id INT, current BOOLEAN, v STRING, since INT", (1, True, "x", 1))).execute()
