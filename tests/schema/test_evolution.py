"""S44: a table that follows its source: what is added, what becomes wider, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import assertRows
from tables import fill, frame, merge_into, new_table, on_every_path

from trinitymerge import InvalidMergeError, MergeBuilder, SchemaMismatchError, TrinityTable
from trinitymerge.errors import TrinityMergeError

PAGE = Path(__file__).parents[2] / "docs" / "schema-changes.md"
TABLE = "id INT, ts INT, v STRING, n INT, s STRUCT<a:INT,b:INT>"
ROW = (1, 10, "v", 5, (1, 2))
SOURCES: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "a column more": (f"{TABLE}, x STRING", (1, 20, "w", 6, (3, 4), "x"), (2, 20, "w", 6, (3, 4), "x")),
    "a column less": (TABLE.replace("v STRING, ", ""), (1, 20, 6, (3, 4)), (2, 20, 6, (3, 4))),
    "a wider type": (TABLE.replace("n INT", "n BIGINT"), (1, 20, "w", 1 << 40, (3, 4)), (2, 20, "w", 1 << 40, (3, 4))),
    "a narrower type": (TABLE.replace("n INT", "n SMALLINT"), (1, 20, "w", 6, (3, 4)), (2, 20, "w", 6, (3, 4))),
    "a field more in a struct": (
        TABLE.replace("b:INT", "b:INT,c:STRING"),
        (1, 20, "w", 6, (3, 4, "c")),
        (2, 20, "w", 6, (3, 4, "c")),
    ),
    "a field less in a struct": (TABLE.replace("a:INT,", ""), (1, 20, "w", 6, (4,)), (2, 20, "w", 6, (4,))),
    "another type, such as an array for a number": (
        TABLE.replace("n INT", "n ARRAY<INT>"),
        (1, 20, "w", [6], (3, 4)),
        (2, 20, "w", [6], (3, 4)),
    ),
}


def cells() -> list[tuple[str, bool, bool, str]]:
    """What the page says: the source, whether the row exists, whether the table follows the source, and the answer."""
    rows = [
        [c.strip() for c in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    start = next(i for i, row in enumerate(rows) if row[0] == "the source has")
    found = [row for row in rows[start + 1 :] if len(row) == 5 and not re.fullmatch("-+", row[0])]
    ways = [(True, False), (False, False), (True, True), (False, True)]
    return [(row[0], *way, answer) for row in found for way, answer in zip(ways, row[1:], strict=True)]


def test_the_page_is_about_all_of_them():
    assert {case for case, *_ in cells()} == set(SOURCES)


def expected(case: str, exists: bool, answer: str) -> tuple[Any, ...]:
    """The row that the merge leaves."""
    _schema, *rows = SOURCES[case]
    row = rows[0] if exists else rows[1]
    if case == "a column less":
        return (*row[:2], "v" if answer == "keeps its value" else None, *row[2:])
    if case == "a field less in a struct":
        return (*row[:4], (1 if answer == "keeps its value" else None, *row[4]))
    return row[:-1] if answer == "left out" else row


@pytest.mark.parametrize("fileFormat", ["parquet", pytest.param("orc", marks=pytest.mark.long)])
@pytest.mark.parametrize(("case", "exists", "follows", "answer"), cells())
def test_S44_each_cell_of_the_page(spark, tmp_path, case, exists, follows, answer, fileFormat):
    table = new_table(spark, tmp_path, TABLE, watermarkKey="ts", fileFormat=fileFormat)
    merge_into(table, spark, [ROW])
    schema, *rows = SOURCES[case]
    source, before = frame(spark, schema, rows[0] if exists else rows[1]), table.definition

    def merge() -> Any:
        chain: MergeBuilder = table.merge(source).whenMatched().updateAll().whenNotMatched().insertAll()
        return (chain.withSchemaEvolution() if follows else chain).execute()

    if answer in ("refused", "checked"):
        with pytest.raises((InvalidMergeError, SchemaMismatchError)) as caught:
            merge()
        assert ("1099511627776" in str(caught.value)) == (answer == "checked")
        assert (table.version, table.definition) == (1, before)
        return
    result = merge()
    assert (result.columnsIgnored, bool(result.columnsAdded)) == (
        ("x",) if answer == "left out" else (),
        answer in ("added", "wider"),
    )
    key = 1 if exists else 2
    row = tuple(table.toDF().filter(f"id = {key}").first() or ())
    assert row == expected(case, exists, answer)
    assert table.toDF().count() == (1 if exists else 2)
    assert tuple(TrinityTable.forPath(spark, table.path, versionAsOf=1).toDF().first() or ()) == ROW


def test_S44_fields_come_into_structs_wherever_they_are(spark, tmp_path):
    """In arrays, in values of maps, in structs of structs; what older rows lack is null."""
    old = "id INT, l ARRAY<STRUCT<a:INT>>, m MAP<STRING,STRUCT<a:INT>>, s STRUCT<t:STRUCT<a:INT>>"
    new = old.replace("a:INT", "a:BIGINT,b:STRING")
    table = new_table(spark, tmp_path, old)
    merge_into(table, spark, [(1, [(1,), None], {"k": (1,)}, ((1,),)), (2, None, None, None), (3, [], {}, (None,))])
    source = frame(spark, new, (2, [(2, "b")], {"k": (2, "b")}, ((2, "b"),)))
    result = table.upsert(source).withSchemaEvolution().execute()
    assert len(result.columnsAdded) == 3
    rows = [
        (1, [(1, None), None], {"k": (1, None)}, ((1, None),)),
        (2, [(2, "b")], {"k": (2, "b")}, ((2, "b"),)),
        (3, [], {}, (None,)),
    ]
    assertRows(table.toDF(), rows)
    # A job of before goes on working: fields of structs keep their values, those in arrays and maps are null.
    table.upsert(frame(spark, old, (2, [(5,)], {"k": (5,)}, ((5,),)))).execute()
    rows[1] = (2, [(5, None)], {"k": (5, None)}, ((5, "b"),))
    assertRows(table.toDF(), rows)
    table.compact(full=True)
    assertRows(table.toDF(), rows)


def test_S44_on_every_path_it_is_as_if_the_columns_had_been_there(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False), (2, 10, "b", False)])
    source = frame(
        spark,
        "id INT, ts INT, v STRING, deleted BOOLEAN, n INT",
        (1, 20, "A", False, 5),
        (3, 20, "C", False, 6),
        (2, 5, "late", False, 7),
    )
    runs = on_every_path(table, lambda t: t.upsert(source).withSchemaEvolution(), spark)
    assert len(runs) == 3
    for run in runs:
        assert run.rows == [(1, 20, "A", False, 5), (2, 10, "b", False, None), (3, 20, "C", False, 6)]
        assert next(c.operation for c in run.table._store.history()) == "UPSERT"


def test_S44_what_is_mentioned_is_not_added_and_what_is_assigned_is(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    source = frame(
        spark,
        "id INT, ts INT, v STRING, deleted BOOLEAN, op STRING, note STRING, skip INT",
        (1, 20, "A", False, "U", "hello", 1),
        (3, 20, "C", False, "D", "x", 1),
    )
    result = (
        table.merge(source)
        .whenMatched("source.op = 'U'")
        .updateExpr({"v": "source.v", "note": "upper(source.note)", "ts": "source.ts"})
        .whenNotMatched("source.op <> 'D'")
        .insertAll(exceptColumns=["skip"])
        .withSchemaEvolution()
        .execute()
    )
    assert result.columnsAdded == ("column note string is added",)
    assertRows(table.toDF(), [(1, 20, "A", False, "HELLO")])


def test_S44_a_merge_that_is_refused_or_does_nothing_alters_nothing(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    schema = "id INT, ts INT, v STRING, deleted BOOLEAN, n INT"
    null_key = table.upsert(frame(spark, schema, (None, 20, "A", False, 5))).withSchemaEvolution()
    with pytest.raises(TrinityMergeError, match="null"):
        null_key.execute()
    assert (
        table.upsert(frame(spark, schema, (1, 20, "A", False, 5)).filter("id = 9"))
        .withSchemaEvolution()
        .execute()
        .skipped
    )
    replay = table.upsert(frame(spark, schema, (1, 20, "A", False, 5)).filter("id = 9")).withSchemaEvolution()
    assert replay.withTransaction("feed", 1).execute().version == 2  # the marker alone
    assert [f.name for f in table.definition.fields] == ["id", "ts", "v", "deleted"]
    assert [f.name for f in TrinityTable.forPath(spark, table.path).definition.fields] == ["id", "ts", "v", "deleted"]
    assertRows(table.toDF(), [(1, 10, "a", False)])


def test_S44_two_writers_that_bring_the_same_column_add_it_once(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    schema = "id INT, ts INT, v STRING, deleted BOOLEAN, n INT"
    first = table.upsert(frame(spark, schema, (2, 20, "B", False, 5))).withSchemaEvolution().build()
    second = table.upsert(frame(spark, schema, (3, 20, "C", False, 6))).withSchemaEvolution().build()
    assert first.columnsAdded == second.columnsAdded
    assert (first.execute().columnsAdded, second.execute().columnsAdded) == (("column n int is added",), ())
    assertRows(table.toDF(), [(1, 10, "a", False, None), (2, 20, "B", False, 5), (3, 20, "C", False, 6)])


def test_S44_all_that_does_not_fit_is_said_at_once(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, amount INT, day DATE, channel STRING", primaryKey="id")
    source = frame(spark, "id INT, amount ARRAY<INT>, day MAP<INT,INT>, chanel STRING", (1, [1], {1: 1}, "x"))
    with pytest.raises(SchemaMismatchError) as caught:
        table.upsert(source).build()
    assert caught.value.columns == ["amount", "day", "channel"]
    text = str(caught.value)
    assert "array<int>" in text
    assert re.search(r"channel +string +is missing. Did you mean 'chanel'", text), text


def test_S44_merges_without_a_source_are_refused(spark, tmp_path):
    table = new_table(spark, tmp_path)
    with pytest.raises(InvalidMergeError, match="addColumn"):
        table.deleteWhere("id = 1").withSchemaEvolution().build()


def test_S44_explain_and_preview_know_of_it(spark, tmp_path, capsys):
    table = fill(new_table(spark, tmp_path), spark, [(1, 10, "a", False)])
    plan = (
        table.upsert(frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN, n INT", (1, 20, "A", False, 5)))
        .withSchemaEvolution()
        .build()
    )
    assert "The table first: column n int is added" in plan.explain()
    assert plan.preview().select("id", "n").collect() == [(1, 5)]
    assert table.version == 1


@pytest.mark.parametrize(("column", "condition"), [("source", None), ("channel", "target.v <> 'channel'")])
def test_S44_S22a_an_alias_or_a_text_does_not_mention_a_column(spark, tmp_path, column, condition):
    table = new_table(spark, tmp_path, "id INT, v STRING", tombstoneKey=None)
    table.upsert(frame(spark, "id INT, v STRING", (1, "a"))).execute()
    merge = table.merge(frame(spark, f"id INT, v STRING, {column} STRING", (1, "b", "web")), "target.id = source.id")
    merge.withSchemaEvolution().whenMatched(condition).updateAll().execute()
    assertRows(table.toDF(), [(1, "b", "web")])


@pytest.mark.parametrize("key", ["A.extra", "`extra`"])
def test_S44_S22_a_map_names_a_new_column_as_any_other(spark, tmp_path, key):
    table = new_table(spark, tmp_path, "id INT", tombstoneKey=None)
    table.upsert(frame(spark, "id INT", 1)).execute()
    merge = table.alias("A").merge(frame(spark, "id INT, extra STRING", (1, "web")).alias("B"), "A.id = B.id")
    merge.withSchemaEvolution().whenMatched().updateExpr({key: "B.extra"}).execute()
    assertRows(table.toDF(), [(1, "web")])


def test_S44_what_one_clause_leaves_out_is_widened_for_another(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, n INT", tombstoneKey=None)
    merge = table.merge(frame(spark, "id INT, n BIGINT", (2, 3_000_000_000))).withSchemaEvolution()
    merge.whenMatched().updateAll(exceptColumns=["n"]).whenNotMatched().insertAll().execute()
    assertRows(table.toDF(), [(2, 3_000_000_000)])


def test_S30_S43_columns_are_found_by_lower_case_alone(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, `straße` STRING, strasse STRING", tombstoneKey=None)
    table.upsert(frame(spark, "id INT, `straße` STRING, strasse STRING", (1, "keep", "drop"))).execute()
    table.alter().dropColumn("strasse").execute()
    assertRows(table.toDF(), [(1, "keep")])


@pytest.mark.parametrize("wider", ["VARCHAR(5)", "STRING"])
def test_S43_who_creates_a_table_if_there_is_none_accepts_longer_text(spark, tmp_path, wider):
    def made():
        return TrinityTable.createIfNotExists(spark, f"{tmp_path}/t", "id INT, v VARCHAR(3)", primaryKey="id")

    made().alter().widenColumn("v", wider).execute()
    assert made().version == 1
