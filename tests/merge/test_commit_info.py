"""S30b, S36b: counts on demand, and what the log says of a merge: never a value; and how results show in notebooks."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pyspark.sql import functions as F
from tables import directory_of, fill, frame, live_rows, new_table

from trinitymerge import InvalidMergeError, MergeResult, TrinityTable, sql
from trinitymerge.merge.execute.commit_info import redact_literals

ROWS = "id INT, ts INT, v STRING, deleted BOOLEAN"


@pytest.fixture
def table(spark, tmp_path):
    return fill(new_table(spark, tmp_path), spark, [(1, 10, "ann", False), (2, 10, "bob", False)])


def noted(table: TrinityTable) -> dict[str, Any]:
    return json.loads(table.history().first()["parameters"])


# Counts ---------------------------------------------------------------------------------------------------------------


def test_S30b_all_counts_are_known_on_demand(table, spark):
    source = frame(spark, ROWS, (1, 20, "x", False), (2, 5, "late", False), (3, 20, "y", False), (4, 1, None, True))
    merge = table.upsert(source)
    assert merge.build().strategy == "blind append"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.print", lambda *text: None)
        assert "not blind append: withCounts() asks for all counts" in merge.withCounts().build().explain()
    result = merge.withCounts().execute()
    assert (result.rowsInserted, result.rowsUpdated, result.rowsDeleted, result.rowsStale) == (1, 1, 0, 1)
    assert (result.strategy, result.perClause) == ("keyed lookup", (2, 2))
    again = merge.execute()
    assert (again.rowsInserted, again.rowsStale, again.strategy) == (None, None, "blind append")


def test_S30b_feeds_count_too_and_a_merge_that_reads_anyway_is_as_it_was(table, spark):
    events = frame(spark, ROWS, (1, 20, "x", False), (9, 20, "y", False))
    result = table.applyChanges(events).withCounts().execute()
    assert (result.rowsInserted, result.rowsUpdated) == (1, 1)
    counted, plain = (table.updateWhere("id = 1", {"v": "'z'"}), table.updateWhere("id = 1", {"v": "'z'"}).withCounts())
    assert counted.build().strategy == plain.build().strategy


# The log --------------------------------------------------------------------------------------------------------------


def test_S36b_history_says_what_was_asked_and_where_it_came_from(table, spark):
    source = frame(spark, ROWS, (1, 20, "x", False)).withColumn("op", F.lit("U"))
    merge = table.alias("A").merge(source.alias("B"), "A.id = B.id AND A.v <> 'secret'")
    merge = (
        merge.whenMatched("B.op = 'secret' OR A.ts > 5")
        .updateAll()
        .whenNotMatched(F.col("B.v") != "secret")
        .insertAll()
    )
    merge.withComment("ticket <17>").execute()
    assert noted(table) == {
        "clauses": ['clause 1, whenMatched("B.op = ? OR A.ts > ?")', "clause 2, whenNotMatched(a Column)"],
        "condition": '"A.id = B.id AND A.v <> ?"',
        "sourceColumns": ["id", "ts", "v", "deleted", "op"],
        "comment": "ticket <17>",
    }
    table.deleteWhere("v = 'secret' OR id = 1").execute()
    assert noted(table) == {"call": 'deleteWhere("v = ? OR id = ?")'}
    table.upsert(source.drop("op")).execute()
    assert "condition" not in noted(table)
    table.applyChanges(source.drop("op")).withComment("a feed").execute()
    assert noted(table) == {"call": "applyChanges()", "comment": "a feed"}
    for file in (directory_of(table) / "_trinity_log").iterdir():
        assert b"secret" not in file.read_bytes()


def test_S36b_the_operation_is_the_call(table, spark):
    source = frame(spark, ROWS, (1, 20, "x", False))
    calls = [
        (table.upsert(source, columns=["v"]), "UPSERT", "upsert(columns: v)"),
        (table.insert(frame(spark, ROWS, (7, 20, "x", False))), "INSERT", "insert()"),
        (table.update(source), "UPDATE", "update()"),
        (table.updateWhere("v = 'secret' OR id = 2", {"v": "'secret'"}), "UPDATE", 'updateWhere("v = ? OR id = ?")'),
        (table.updateWhere(None, {"v": "'secret'"}), "UPDATE", "updateWhere()"),
        (table.delete(source), "DELETE", "delete()"),
        (table.deleteWhere(F.col("v") == "nobody").withTransaction("a", 1), "DELETE", "deleteWhere(a Column)"),
        (table.applyChanges(source.withColumn("ts", F.lit(30))), "APPLY CHANGES", "applyChanges()"),
        (table.snapshot(source.drop("ts", "deleted"), at=40), "SNAPSHOT", "snapshot(at=40)"),
        (table.upsert(source).whenNotMatchedBySource("target.v = 'secret'").delete(), "MERGE", None),
    ]
    for merge, operation, call in calls:
        merge.execute()
        assert (table.history().first()["operation"], noted(table).get("call")) == (operation, call)
    for file in (directory_of(table) / "_trinity_log").iterdir():
        assert b"secret" not in file.read_bytes()


def test_a_purge_counts_in_the_history(table, spark):
    fill(table, spark, [(1, 20, "again", False)])
    result = table.purge([1])
    row = table.history().first()
    assert (row["operation"], json.loads(row["parameters"])) == ("PURGE", {"keys": 1})
    assert row["metrics"] == {"rowsRemoved": "2", "filesRewritten": "2"}
    assert (result.rowsRemoved, result.filesRewritten) == (2, 2)


@pytest.mark.parametrize("text", [None, "", 17])
def test_a_comment_is_text(table, text):
    with pytest.raises(InvalidMergeError, match="withComment takes text"):
        table.deleteWhere("true").withComment(text)


SHOWN = {
    "A.id = B.id": "A.id = B.id",
    "a1 = 1 AND b = 2.5E-3 OR c = 7L": "a1 = ? AND b = ?-? OR c = ?",
    "name IN ('Ann', \"Bob\") AND `it's 5` > x": "name IN (?, ?) AND `it's 5` > x",
    "d = DATE'2024-01-01' AND b = X'0A'": "d = DATE? AND b = X?",
    "a = 1 -- of Ann\n AND b /* Ann's */ = 2": "a = ? \n AND b  = ?",
    "it = 'Ann''s' AND true": "it = ?? AND true",
    r"a = r'\' OR name = 'Ann'": "?",
}


@pytest.mark.parametrize("text", SHOWN)
def test_S36b_literals_are_left_out(text):
    assert redact_literals(text) == f'"{SHOWN[text]}"'


# What may surround a value: none of it is a value itself.
_AROUND = st.lists(
    st.sampled_from(["a", "`b c`", "(", ")", " = ", " AND ", "upper(", ", ", " -- x\n", " /* y */ "]), max_size=6
)
_VALUES = st.sampled_from(
    ["'{}'", '"{}"', "x'{}'", "'it''s {}'", "concat('{}', \"'\")", "`n` = '{}'", "'`{}'", '"--{}"', "'/*{}'"]
)


@given(st.lists(st.tuples(_AROUND, _VALUES), min_size=1, max_size=4), _AROUND)
def test_S36b_no_quoted_value_survives(parts, end):
    text = "".join("".join([*around, " ", value.format("Ann")]) for around, value in parts) + "".join(end)
    assert "Ann" not in redact_literals(text)


# Notebooks ------------------------------------------------------------------------------------------------------------


class Cells(HTMLParser):
    """The cells of tables, and which tags there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() != "<title>":
            self.cells[-1] += data


def shown(value: Any) -> list[str]:
    found = Cells(value._repr_html_())
    assert found.tags <= {"table", "tr", "th", "td", "br", *("svg", "title", "g", "rect")}
    return found.cells


def test_results_are_shown_as_tables_and_nothing_in_them_is_taken_for_html(spark, tmp_path):
    table = TrinityTable.create(
        spark,
        str(tmp_path / "t"),
        "`<b>id` INT, `v&` STRING, ts INT",
        "<b>id",
        "ts",
        comment="<script>",
        properties={"<i>": "1"},
    )
    cells = shown(table.definition)
    assert cells[:6] == ["column", "type", "nullable", "key", "default", "comment"]
    assert cells[6:12] == ["<b>id", "int", "no", "primary key", "", ""]
    assert {"<script>", "<i>", "v&", "watermark", "parquet"} <= set(cells)
    source = spark.sql("SELECT 1 AS `<b>id`, 'x' AS `v&`, 5 AS ts, '<u>' AS `<u>more`")
    plan = table.merge(source).whenMatched("source.ts < 7").updateAll().whenNotMatched().insertAll().build()
    cells = shown(plan)
    assert cells[0::2] == ["merge", "clauses", "source", "strategy"]
    assert any('whenMatched("source.ts < 7"): update all columns' in cell for cell in cells)
    assert any("<u>more" in cell for cell in cells)
    result = plan.execute()
    assert dict(zip(*[iter(shown(result))] * 2, strict=True)) | {"version": "1", "columnsIgnored": "<u>more"} == dict(
        zip(*[iter(shown(result))] * 2, strict=True)
    )
    assert dict(zip(*[iter(shown(table.health()))] * 2, strict=True))["live rows"] == "1"
    assert "unknown" in shown(MergeResult(version=1, rowsInserted=None))


def test_a_table_is_as_it_was_after_it_was_shown(table):
    before = (table.version, live_rows(table))
    shown(table.upsert(table.toDF()).build())
    assert (table.version, live_rows(table)) == before


def test_S36b_statements_leave_no_values_in_the_log_and_are_called_as_calls_are(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, name STRING", tombstoneKey=None)
    table.upsert(frame(spark, "id INT, name STRING", (1, "Ann"), (2, "Bob"), (3, "Cy"))).execute()
    names = {"t": table, "s": frame(spark, "id INT", 1)}
    sql(spark, "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND t.name = 'Ann' THEN DELETE", names)
    sql(spark, "DELETE FROM t WHERE name = 'Cy'", names)
    sql(spark, "UPDATE t SET name = 'Ann' WHERE id = 2", names)
    found = [(c.operation, json.dumps(c.parameters)) for c in table._store.history()]
    assert [operation for operation, _ in found] == ["UPDATE", "DELETE", "MERGE", "UPSERT", "CREATE"]
    assert not [text for _, text in found if "Ann" in text or "Cy" in text]
