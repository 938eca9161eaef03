"""SQL statements, run (S32a): each does what the chain does, sees the tables it names, and leaves nothing in the session."""

from __future__ import annotations

import pytest
from helpers import assertRows
from tables import EVENTS, copy_of, fill, frame, new_table
from test_errors import refused

from trinitymerge import (
    ConstraintError,
    DuplicateKeyError,
    InvalidMergeError,
    ReadOnlyTableError,
    SchemaMismatchError,
    SqlError,
    TrinityTable,
    sql,
)
from trinitymerge.statements.api import merge_of
from trinitymerge.statements.parser import statement_of
from trinitymerge.statements.tables import Names

pytest.importorskip("sqlglot")

ROWS = [(1, 5, "a", False), (2, 5, "b", False), (3, 5, "c", False)]
UPDATES = [(1, 6, "x", False), (3, 6, "y", True), (9, 6, "z", False)]


@pytest.fixture
def events(spark, tmp_path):
    """A table of EVENTS with three rows."""
    return fill(new_table(spark, tmp_path), spark, ROWS)


@pytest.fixture
def updates(spark):
    """A Spark view of that name."""
    df = frame(spark, EVENTS, *UPDATES)
    df.createOrReplaceTempView("updates")
    yield df
    spark.catalog.dropTempView("updates")


def builder(spark, text, tables):
    """The merge that a statement is."""
    return merge_of(Names.of(spark, text, tables), statement_of(text))


def shown(spark):
    """The session's tables and views."""
    return {row["tableName"] for row in spark.sql("SHOW TABLES").collect()}


# The same as the chain ------------------------------------------------------------------------------------------------

MERGE = """
MERGE INTO events AS A USING updates AS B ON A.id = B.id
WHEN MATCHED AND B.deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET v = concat(A.v, B.v)
WHEN NOT MATCHED AND B.v <> 'D' THEN INSERT * EXCEPT (deleted)
WHEN NOT MATCHED BY SOURCE AND A.id = 2 THEN UPDATE SET v = 'gone', ts = A.ts + 1
"""


def chain(table, source):
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.deleted")
        .delete()
        .whenMatched()
        .updateExpr({"v": "concat(A.v, B.v)"})
        .whenNotMatched("B.v <> 'D'")
        .insertAll(exceptColumns=["deleted"])
        .whenNotMatchedBySource("A.id = 2")
        .updateExpr({"v": "'gone'", "ts": "A.ts + 1"})
    )


def test_S32a_a_merge_has_the_clauses_of_the_chain_and_does_what_it_does(spark, events, updates):
    other = copy_of(events, spark)
    assert builder(spark, MERGE, {"events": events})._spec.clauses == chain(events, updates)._spec.clauses
    assert sql(spark, MERGE, {"events": events}) == chain(other, updates).execute()
    assertRows(events.toDF(), other.toDF())
    assertRows(events.toDF().select("id", "v"), [(1, "ax"), (2, "gone"), (9, "z")])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("UPDATE events SET v = 'n' WHERE id > 1", lambda t: t.updateWhere("id > 1", {"v": "'n'"})),
        (
            "UPDATE events AS e SET e.v = upper(e.v), ts = ts + 1",
            lambda t: t.alias("e").updateWhere(None, {"e.v": "upper(e.v)", "ts": "ts + 1"}),
        ),
        ("DELETE FROM events WHERE events.id = 2", lambda t: t.alias("events").deleteWhere("events.id = 2")),
        ("DELETE FROM events", lambda t: t.deleteWhere("true")),
    ],
)
def test_S32a_updates_and_deletes_are_shorthands_of_the_chain(spark, events, text, same):
    other = copy_of(events, spark)
    assert builder(spark, text, {"events": events})._spec.clauses == same(other)._spec.clauses
    assert sql(spark, text, {"events": events.path}) == same(other).execute()
    assertRows(events.toDF(), other.toDF())


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("INSERT INTO events VALUES (7, 1, 'n', false), (8, 2, 'o', null)", [(7, 1, "n", False), (8, 2, "o", None)]),
        ("INSERT INTO events (v, id) SELECT upper(v), id + 10 FROM updates WHERE id = 9", [(19, None, "Z", False)]),
        ("INSERT INTO events (TS, Id) VALUES (4, 7)", [(7, 4, None, False)]),
        ("INSERT INTO events BY NAME SELECT 'n' AS v, 7 AS id, 4 AS ts", [(7, 4, "n", False)]),
        ("INSERT INTO events BY NAME SELECT 4 AS TS, 7 AS id", [(7, 4, None, False)]),
        ("WITH n AS (SELECT 7 AS id) INSERT INTO events SELECT id, 4, 'n', false FROM n", [(7, 4, "n", False)]),
        ("INSERT INTO events TABLE late", [(6, 6, "l", False)]),
    ],
)
def test_S32a_inserts_go_by_position_by_a_list_or_by_name(spark, events, updates, text, stored):
    late = frame(spark, EVENTS, (6, 6, "l", False))
    result = sql(spark, text, {"events": events, "late": late})
    assert result.rowsAppended == len(stored)
    assertRows(events.toDF(), [*ROWS, *stored])


def test_S25_an_insert_replaces_no_row(spark, events):
    assert builder(spark, "INSERT INTO e TABLE e", {"e": events})._spec.clauses == events.insert(events)._spec.clauses
    with refused(DuplicateKeyError, "1"):
        sql(spark, "INSERT INTO e VALUES (1, 9, 'n', false)", {"e": events})


def test_inserts_that_do_not_fit_are_refused_where_they_stand(spark, events):
    tables = {"events": events}
    with refused(SqlError, "Line 1, column 13", "2 columns to insert, and 4", "id, ts, v, deleted"):
        sql(spark, "INSERT INTO events VALUES (1, 2)", tables)
    with refused(SqlError, "Line 2, column 2", "no column 'deletd'", "Did you mean 'deleted'"):
        sql(spark, "INSERT INTO events (id,\n deletd) VALUES (1, 2)", tables)
    with refused(SqlError, "Line 1, column 13", "no column 'w'"):
        sql(spark, "INSERT INTO events BY NAME SELECT 7 AS id, 'n' AS w", tables)
    with refused(SqlError, "'ID' is named twice"):
        sql(spark, "INSERT INTO events (id, ID) VALUES (1, 2)", tables)


# Sources --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "ctes"),
    [
        ("updates s", ""),
        ("stored s", ""),
        ("given AS s", ""),
        ("trinity.`{path}` AS s", ""),
        ("(SELECT * FROM stored WHERE id = 9 UNION ALL SELECT * FROM updates WHERE id < 9) s", ""),
        ("c AS s", "WITH c AS (SELECT * FROM updates)"),
        ("VALUES (1, 6, 'x', false), (3, 6, 'y', true), (9, 6, 'z', false) AS s(id, ts, v, deleted)", ""),
        ("(VALUES (1, 6, 'x', false), (3, 6, 'y', true), (9, 6, 'z', false)) AS s(id, ts, v, deleted)", ""),
    ],
)
def test_S32a_sources_of_every_kind(spark, tmp_path, events, updates, source, ctes):
    stored = fill(new_table(spark, tmp_path, watermarkKey=None, tombstoneKey=None), spark, UPDATES)
    text = f"""{ctes} MERGE INTO events USING {source.format(path=stored.path)} ON events.id = s.id
        WHEN MATCHED AND s.deleted THEN DELETE WHEN NOT MATCHED THEN INSERT *"""
    merge = builder(spark, text, {"events": events, "stored": stored, "given": updates})
    assertRows(merge._spec.source.select("s.id", "s.ts", "s.v", "s.deleted"), UPDATES)
    merge.build()


def test_S32a_without_aliases_both_sides_go_by_their_names_and_paths_as_in_the_chain(spark, events, updates):
    text = "MERGE INTO shop.events USING updates ON events.id = updates.id WHEN MATCHED THEN UPDATE SET v = updates.v"
    assert sql(spark, text, {"shop.events": events}).rowsUpdated == 2
    text = f"""MERGE INTO trinity.`{events.path}` USING trinity.`{events.path}` ON target.id = source.id
        WHEN MATCHED AND source.id = 1 THEN DELETE"""
    assert sql(spark, text).rowsAppended == 1
    assertRows(events.toDF().select("id", "v"), [(2, "b"), (3, "y")])


def test_S45_S46_statements_heed_the_rules_of_a_table(spark, events):
    events.alter().addColumn("n", "INT").setDefault("n", "5").addCheck("few", "n < 10").execute()
    events.alter().setDefault("n", "7").execute()
    sql(spark, "INSERT INTO e (id, ts, v) VALUES (8, 6, 'x')", {"e": events})
    sql(spark, "UPDATE e SET n = DEFAULT WHERE id < 8", {"e": events})
    assert {row.n for row in events.toDF().collect()} == {7}
    with refused(ConstraintError, "constraint 'few'"):
        sql(spark, "UPDATE e SET n = n + 3", {"e": events})


def test_S44_schema_evolution_makes_room_for_what_the_source_brings(spark, events):
    text = """MERGE WITH SCHEMA EVOLUTION INTO e USING VALUES (1, 6, 'x', 'web'), (9, 6, 'z', 'shop') AS s(id, ts, v, channel)
        ON e.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    assert sql(spark, text, {"e": events}).columnsAdded == ("column channel string is added",)
    rows = [(1, "x", "web"), (2, "b", None), (3, "c", None), (9, "z", "shop")]
    assertRows(sql(spark, "SELECT id, v, channel FROM e", {"e": events}), rows)


# Queries in conditions and values -------------------------------------------------------------------------------------


def test_S32a_queries_in_conditions_over_Sparks_own_tables_are_the_chains(spark, events, updates):
    text = "DELETE FROM e WHERE id IN (SELECT id FROM updates WHERE deleted)"
    same = events.alias("e").deleteWhere("id IN (SELECT id FROM updates WHERE deleted)")
    assert builder(spark, text, {"e": events})._spec.clauses == same._spec.clauses
    assert sql(spark, text, {"e": events}).rowsDeleted == 1
    assertRows(events.toDF().select("id"), [1, 2])


def test_S32a_queries_in_conditions_and_values_see_the_tables_of_the_statement(spark, events, updates):
    before = shown(spark)
    tables = {"e": events, "given": updates}
    version = events.version
    sql(
        spark, "UPDATE e SET v = (SELECT max(g.v) FROM given AS g WHERE g.id = e.id) WHERE EXISTS (TABLE given)", tables
    )
    assertRows(events.toDF().select("id", "v"), [(1, "x"), (2, None), (3, "y")])
    sql(
        spark,
        f"""MERGE INTO e AS t USING (SELECT * FROM given WHERE id < 9) AS s ON t.id = s.id
        WHEN MATCHED AND t.id = (SELECT min(e.id) FROM e) THEN
            UPDATE SET v = concat((SELECT max(v) FROM e VERSION AS OF {version} AS o WHERE o.id = t.id), s.v)
        WHEN NOT MATCHED BY SOURCE AND t.id NOT IN (SELECT given.id FROM given) THEN DELETE""",
        tables,
    )
    assertRows(events.toDF().select("id", "v"), [(1, "ax"), (3, "y")])
    assert shown(spark) == before
    with pytest.raises(InvalidMergeError) as error:
        sql(spark, "DELETE FROM e WHERE id IN (SELECT id FROM given) AND\n vv = 1", tables)
    assert (error.value.line, error.value.column) == (2, 2)
    assert shown(spark) == before


# Queries --------------------------------------------------------------------------------------------------------------


def test_S32a_queries_see_the_newest_version_and_what_they_give_stays_there(spark, events):
    text = (
        "SELECT e.id, upper(events.v) FROM e JOIN shop.events USING (id) WHERE events.v > '{' OR e.v >= 'b' ORDER BY id"
    )
    tables = {"e": events, "shop.events": events.path}
    before = sql(spark, text, tables)
    events.deleteWhere("id = 2").execute()
    assertRows(before, [(2, "B"), (3, "C")])
    assertRows(sql(spark, text, tables), [(3, "C")])


def test_S32a_queries_see_past_versions(spark, events):
    version = events.version
    sql(spark, "DELETE FROM e WHERE id = 2", {"e": events})
    at = spark.sql("SELECT current_timestamp() + INTERVAL 1 DAY AS t").collect()[0]["t"]
    for table in (events, events.path):
        text = (
            f"SELECT a.id, b.id FROM e VERSION AS OF {version} a LEFT JOIN e TIMESTAMP AS OF '{at}' AS b ON a.id = b.id"
        )
        assertRows(sql(spark, text, {"e": table}), [(1, 1), (2, None), (3, 3)])
    assertRows(sql(spark, f"SELECT e.id FROM trinity.`{events.path}` VERSION AS OF {version} e"), [1, 2, 3])
    past = TrinityTable.forPath(spark, events.path, versionAsOf=version)
    assertRows(sql(spark, "SELECT id FROM e", {"e": past}), [1, 2, 3])


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("TABLE ids", [1, 2, 3]),
        ("FROM ids SELECT id WHERE id = 1", [1]),
        ("(SELECT id FROM ids) EXCEPT TABLE other", [1, 2]),
        ("SELECT ids.id FROM ids TABLESAMPLE (100 PERCENT)", [1, 2, 3]),
        ("SELECT ids.id FROM ids WHERE EXISTS (SELECT 1 FROM other WHERE other.id = ids.id)", [3]),
        ("WITH ids AS (SELECT id + 1 AS id FROM ids) SELECT id FROM ids", [2, 3, 4]),
        ("WITH other AS (SELECT * FROM ids) SELECT * FROM (WITH ids AS (SELECT 7 AS id) SELECT * FROM ids) t", [7]),
        ("SELECT /*+ BROADCAST(ids) */ id FROM ids JOIN other USING (id)", [3]),
        ("SELECT length('{t0} {}') + id FROM Ids WHERE id = 1", [8]),
        ("SELECT max(i.id) OVER () FROM ids AS i", [3, 3, 3]),
        ("VALUES (1), (2)", [1, 2]),
        ("SELECT explode(array(id, 10)) FROM ids WHERE id IN (SELECT max(id) FROM ids)", [3, 10]),
    ],
)
def test_queries_of_every_shape(spark, tmp_path, text, ids):
    table = new_table(spark, tmp_path, "id INT")
    table.upsert(frame(spark, "id INT", 1, 2, 3)).execute()
    other = frame(spark, "id INT", 3, 4)
    assertRows(sql(spark, text, {"ids": table, "other": other}), ids)


def test_nothing_is_left_in_the_catalog_and_one_table_is_read_once(spark, events, monkeypatch):
    before = shown(spark)
    read = []
    to_df = TrinityTable.toDF
    monkeypatch.setattr(TrinityTable, "toDF", lambda self: read.append(self.path) or to_df(self))
    text = f"SELECT count(*) FROM e JOIN E AS f JOIN trinity.`{events.path}` g"
    assertRows(sql(spark, text, {"e": events}), [27])
    with pytest.raises(SqlError):
        sql(spark, "SELECT nothing FROM e", {"e": events})
    assert read == [events.path] * 2
    assert shown(spark) == before


@pytest.mark.classic("reads in one session what another one knows; a Connect server keeps its sessions apart")
def test_tables_of_another_session_are_read_in_this_one(spark, events):
    other = spark.newSession()
    assertRows(sql(other, "SELECT id FROM e", {"e": events}), [1, 2, 3])
    with refused(SqlError, "another session", "df.sparkSession"):
        sql(other, "SELECT id FROM e", {"e": events.toDF()})


def test_details_of_a_table_are_one_row(spark, tmp_path):
    table = new_table(
        spark, tmp_path, "id INT, b INT, ts INT", primaryKey=["id", "b"], watermarkKey="ts", comment="things"
    )
    table.alter().addCheck("some", "b > 0").setProperty("owner", "me").execute()
    table.insert(spark.sql("SELECT 1 AS id, 2 AS b, 3 AS ts")).execute()
    (row,) = table.detail().collect()
    batches = table._snapshot().batches
    assert row.asDict() == {
        "format": "parquet",
        "location": table.path,
        "description": "things",
        "version": 2,
        "lastModified": table.history().first()["timestamp"],
        "primaryKey": ["id", "b"],
        "watermarkKey": ["ts"],
        "tombstoneKey": None,
        "clusterBy": [],
        "history": False,
        "checks": {"some": "b > 0"},
        "properties": {"owner": "me"},
        "numBatches": 1,
        "numFiles": batches[0].files,
        "storedRows": 1,
        "sizeInBytes": batches[0].bytes,
    }
    assert TrinityTable.forPath(spark, table.path, versionAsOf=0).detail().first()["checks"] == {}


# Errors ---------------------------------------------------------------------------------------------------------------


def test_tables_that_do_not_exist_are_refused_where_they_are_named(spark, events):
    tables = {"events": events, "frame": events.toDF()}
    with refused(SqlError, "Line 1, column 8, at 'event'", "Did you mean 'events'?", "trinity.`/tables/event`"):
        sql(spark, "UPDATE event SET v = 'n'", tables)
    with refused(SqlError, "Line 2, column 14", "no table or view 'event'", "Did you mean 'events'?"):
        sql(spark, "SELECT id FROM\n events JOIN event USING (id)", tables)
    with refused(SqlError, "'frame' is a DataFrame, which is read-only"):
        sql(spark, "DELETE FROM frame", tables)
    with refused(SqlError, "'frame' is a DataFrame, which has no versions"):
        sql(spark, "SELECT * FROM frame VERSION AS OF 1", tables)
    with refused(SqlError, "Line 1, column 15", "version"):
        sql(spark, "SELECT * FROM events VERSION AS OF 99", tables)
    with refused(SqlError, "Line 1, column 15", "'noon'"):
        sql(spark, "SELECT * FROM events TIMESTAMP AS OF 'noon'", tables)
    with refused(ReadOnlyTableError):
        sql(spark, "DELETE FROM e", {"e": TrinityTable.forPath(spark, events.path, versionAsOf=1)})


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (["events"], "got list"),
        ({"events": 3}, "got int for 'events'"),
        ({3: "path"}, "got 3"),
    ],
)
def test_tables_are_names_of_tables(spark, tables, words):
    with refused(InvalidMergeError, words):
        sql(spark, "SELECT 1", tables)


ON = "MERGE INTO e USING u ON e.id = u.id\n"


@pytest.mark.parametrize(
    ("text", "kind", "place", "words"),
    [
        (ON + "WHEN MATCHED AND u.vv = 1 THEN DELETE", InvalidMergeError, (2, 18), "WHEN MATCHED AND"),
        ("MERGE INTO e USING u ON e.id =\n x.id WHEN MATCHED THEN DELETE", InvalidMergeError, (2, 2), "alias 'x'"),
        (ON + "WHEN MATCHED THEN UPDATE SET w = 1", InvalidMergeError, (2, 30), "'w'"),
        (
            ON + "WHEN MATCHED THEN UPDATE SET v = 'a'\nWHEN NOT MATCHED THEN INSERT (v) VALUES ('b')",
            InvalidMergeError,
            (3, 1),
            "WHEN NOT MATCHED",
        ),
        ("UPDATE e SET v = 'n',\n ts = array(1)", SchemaMismatchError, (2, 2), "UPDATE: column 'ts'"),
        ("DELETE FROM e WHERE v =\n = 3", InvalidMergeError, (2, 2), "Syntax error"),
        (ON + "WHEN MATCHED AND e.v = 'a' b THEN DELETE", InvalidMergeError, (2, 28), "Syntax error"),
        ("SELECT id,\n vv FROM e", SqlError, (2, 2), "vv"),
        ("SELECT id FROM e WHERE v + array(1) = 2", SqlError, None, "The query"),
    ],
)
def test_what_is_found_when_a_merge_is_built_has_a_place_too(spark, events, updates, text, kind, place, words):
    with pytest.raises(kind) as error:
        sql(spark, text, {"e": events, "u": updates})
    if place is not None:
        assert (error.value.line, error.value.column) == place, str(error.value)
    assert str(error.value).startswith(f"Line {error.value.line}, column {error.value.column}")
    assert words in str(error.value)


def test_a_place_comes_from_the_facts_of_the_error(spark, events, updates):
    with pytest.raises(InvalidMergeError) as error:
        sql(
            spark,
            ON + "WHEN MATCHED AND e.v = 'w' THEN DELETE\nWHEN MATCHED THEN UPDATE SET w = 1",
            {"e": events, "u": updates},
        )
    assert (error.value.facts["clause"], error.value.facts["column"]) == (2, "w")
    assert (error.value.line, error.value.column) == (3, 30)


# Advice ---------------------------------------------------------------------------------------------------------------

PART = "(SELECT 1 AS id, 'a' AS v) AS s"
WHOLE = "(SELECT 1 AS id, 'a' AS v, 1 AS n, 2 AS ts) AS s"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (f"MERGE INTO t USING {PART} ON t.id = s.id WHEN MATCHED THEN UPDATE SET *", r"UPDATE SET \* EXCEPT \(n\)"),
        (f"MERGE INTO t USING {PART} ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", r"INSERT \* EXCEPT \(n\)"),
        (
            f"MERGE INTO t USING {WHOLE} ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
            r"does not assign n .*INSERT \(column, \.\.\.\) VALUES",
        ),
        ("INSERT INTO t (id, v) VALUES (1, 'a')", r"INSERT \(column, \.\.\.\) VALUES"),
        (
            f"MERGE INTO t USING {WHOLE} ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = x.v",
            "AS x gives a side another",
        ),
        ("UPDATE t SET v = x.v", "AS x gives it another"),
        (
            f"MERGE INTO t USING {WHOLE} ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = new",
            "the text new has quotes: 'new'",
        ),
        ("UPDATE h SET v = 'x'", "Assign the watermark in the statement"),
        (
            f"MERGE INTO t AS s USING {WHOLE} ON s.id = s.id WHEN MATCHED THEN DELETE",
            "give one of them another alias",
        ),
    ],
)
def test_errors_of_statements_advise_what_a_statement_can_do(spark, tmp_path, text, advice):
    t = new_table(spark, tmp_path, "id INT, v STRING, n INT NOT NULL, ts INT", watermarkKey="ts")
    h = new_table(spark, tmp_path, "id INT, v STRING, ts INT", watermarkKey="ts", history=True)
    with pytest.raises(InvalidMergeError, match=advice) as error:
        sql(spark, text, {"t": t, "h": h})
    assert error.value.line == 1
    for call in ("exceptColumns", "alias(", "map", "table.merge()"):
        assert call not in str(error.value)


@pytest.mark.parametrize(
    ("where", "left"), [("(SELECT id FROM a) UNION ALL SELECT id FROM b", [3]), ("FROM b SELECT id", [1, 3])]
)
def test_S32a_queries_in_parentheses_and_from_first_see_the_tables_of_the_statement(spark, tmp_path, where, left):
    table = new_table(spark, tmp_path, "id INT, v BINARY", tombstoneKey=None)
    table.upsert(spark.sql("SELECT id, X'01' AS v FROM VALUES (1), (2), (3) AS x(id)")).execute()
    tables = {"e": table, "a": frame(spark, "id INT", 1), "b": frame(spark, "id INT", 2)}
    frame(spark, "id INT", 3).createOrReplaceTempView("b")  # hidden by the statement's table
    try:
        sql(spark, f"DELETE FROM e WHERE id IN ({where})", tables)
    finally:
        spark.catalog.dropTempView("b")
    assert sorted(row["id"] for row in table.toDF().collect()) == left
    if len(left) == 2:
        assert sql(spark, "UPDATE `e{y}` SET v = X'00' WHERE id = 1", {"e{y}": table}).rowsUpdated == 1
        assert sql(spark, "SELECT * FROM `e{y}` WHERE v = X'00'", {"e{y}": table}).count() == 1
