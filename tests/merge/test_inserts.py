"""S12a, S25: inserts of rows that nothing but the user's order tells apart."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tables import EVENTS, fill, frame, live_rows, new_table
from test_costs import jobs_of
from test_errors import refused

from trinitymerge import AmbiguousMergeError, InvalidMergeError, NullKeyError, TrinityTable
from trinitymerge.testing import ModelTable

LOADED = "id INT, ts INT, v STRING, seq INT"


def test_S12a_orderBy_takes_the_first_of_rows_that_nothing_else_tells_apart(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, [(9, 1, "live", False)])
    rows = [(1, 10, "a", 1), (1, 10, "b", 2), (1, 9, "older", 3), (2, 10, "c", 1), (9, 5, "left out", 1)]
    merge = table.insert(frame(spark, LOADED, *rows), deduplicate=True, orderBy=F.desc("seq"))
    result = merge.execute()
    assert (result.rowsInserted, result.rowsAppended, result.rowsSource) == (2, 3, 4)
    assert result.columnsIgnored == ()
    assert live_rows(table) == [(1, 10, "b", False), (2, 10, "c", False), (9, 1, "live", False)]


def test_S12a_a_source_without_ambiguity_is_inserted_as_without_orderBy(spark, tmp_path):
    source = frame(spark, LOADED, (1, 10, "a", 1), (1, 11, "b", 1), (2, 1, "c", 5)).drop("seq")
    tables = [new_table(spark, tmp_path) for _ in range(2)]
    plain = tables[0].insert(source, deduplicate=True).execute()
    ordered = tables[1].insert(source, deduplicate=True, orderBy=["v", F.col("ts")]).execute()
    assert live_rows(tables[0]) == live_rows(tables[1])
    assert (plain.rowsInserted, plain.rowsAppended, plain.rowsSource) == (
        ordered.rowsInserted,
        ordered.rowsAppended,
        ordered.rowsSource,
    )


def test_S12a_ties_are_refused_and_say_so(spark, tmp_path):
    table = new_table(spark, tmp_path)
    source = frame(spark, LOADED, (1, 10, "a", 1), (1, 10, "b", 1))
    with pytest.raises(AmbiguousMergeError, match="orderBy ranks these rows equally"):
        table.insert(source, deduplicate=True, orderBy="seq").execute()
    with pytest.raises(AmbiguousMergeError, match=r"insert\(source, deduplicate=True, orderBy=\.\.\.\)"):
        table.insert(source, deduplicate=True).execute()
    assert table.version == 0
    same = frame(spark, LOADED, (1, 10, "a", 1), (1, 10, "a", 1))
    assert table.insert(same, deduplicate=True, orderBy="seq").execute().rowsInserted == 1


def test_S12a_composite_keys_and_keys_and_watermarks_as_they_are_stored(spark, tmp_path):
    keys = {"primaryKey": ["a", "b"], "watermarkKey": ["ts", "n"]}
    table = new_table(spark, tmp_path, "a INT, b STRING, ts INT, n INT, v STRING", **keys)
    schema = "A STRING, b STRING, ts STRING, n INT, v STRING"
    rows = [("1", "x", "7", 1, "p"), ("1", "x", "07", 1, "q"), ("1", "x", "7", None, "r"), ("1", "y", "7", None, "s")]
    source = frame(spark, schema, *rows, ("1", "y", "7", None, "t")).alias("s")
    assert table.insert(source, deduplicate=True, orderBy=F.col("s.v").desc()).execute().rowsAppended == 3
    assert live_rows(table) == [(1, "x", 7, 1, "q"), (1, "y", 7, None, "t")]


def test_S12a_without_a_watermark_there_is_one_row_per_key(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING", watermarkKey=None, tombstoneKey=None)
    source = frame(spark, "id INT, v STRING, ts INT", (1, "a", 1), (1, "b", 2), (2, "c", None), (2, "d", 0))
    assert table.insert(source, deduplicate=True, orderBy=[F.desc_nulls_last("ts")]).execute().rowsAppended == 2
    assert live_rows(table) == [(1, "b"), (2, "d")]


def test_S12a_a_tombstone_is_a_row_like_others(spark, tmp_path):
    table = new_table(spark, tmp_path)
    rows = [(1, 5, None, True, 1), (1, 5, "a", False, 2), (2, 5, "b", False, 1), (2, 5, None, True, 2)]
    source = frame(spark, f"{EVENTS}, seq INT", *rows)
    table.insert(source, deduplicate=True, orderBy="seq").execute()
    assert live_rows(table) == [(2, 5, "b", False)]


def test_S12a_what_is_refused(spark, tmp_path):
    table = new_table(spark, tmp_path)
    source = frame(spark, LOADED, (None, 1, "a", 1), (None, 1, "b", 2))
    with pytest.raises(NullKeyError):
        table.insert(source, deduplicate=True, orderBy="seq").execute()
    for arguments, match in (
        ({"orderBy": "seq"}, "deduplicate=True"),
        ({"deduplicate": True, "orderBy": 3}, "takes a column name"),
        ({"deduplicate": True, "orderBy": []}, "takes a column name"),
        ({"deduplicate": True, "orderBy": "nothing"}, "orderBy: .*nothing"),
    ):
        with pytest.raises(InvalidMergeError, match=match):
            table.insert(source, **arguments)
    with pytest.raises(InvalidMergeError, match="id"):  # the merge's own words
        table.insert(source.drop("id"), deduplicate=True, orderBy="seq").build()


def test_S12a_explain_says_so(spark, tmp_path, capsys):
    source = frame(spark, LOADED, (1, 10, "a", 1))
    text = new_table(spark, tmp_path).insert(source, deduplicate=True, orderBy=F.desc("seq")).explain()
    assert "Source rows left out: of those with equal id, ts all but the first by seq DESC" in text


ROWS = [
    (1, 10, "a", False, 1),
    (1, 10, "b", False, 2),
    (1, 11, "c", True, 1),
    (2, 5, "d", False, 3),
    (2, 5, "d", False, 3),
]


def test_S12a_the_interpreter_says_the_same(spark, tmp_path):
    table = new_table(spark, tmp_path)
    source = frame(spark, f"{EVENTS}, seq INT", *ROWS)
    model = ModelTable(table.definition)
    rows = [row.asDict() for row in source.collect()]
    told = model.insert(rows, deduplicate=True, orderBy=lambda row: -row["seq"])
    result = table.insert(source, deduplicate=True, orderBy=F.desc("seq")).execute()
    assert live_rows(table) == [tuple(row.values()) for row in model.live()] == [(2, 5, "d", False)]
    for count in ("rowsInserted", "rowsAppended", "rowsSource"):
        assert getattr(result, count) == getattr(told, count)
    with pytest.raises(AmbiguousMergeError):
        ModelTable(table.definition).insert(rows, deduplicate=True, orderBy=lambda row: 0)


@pytest.mark.generated
def test_S12a_costs_no_job(spark, tmp_path):
    path = str(tmp_path / "load")
    frame(spark, f"{EVENTS}, seq INT", *ROWS).write.parquet(path)
    counted = []
    for order in ({}, {"orderBy": "seq"}):
        table = fill(new_table(spark, tmp_path), spark, [(9, 1, "x", False)])
        source = spark.read.parquet(path).filter("seq < 3 AND v <> 'b'" if not order else "seq < 3")
        with jobs_of(spark) as jobs:
            table.insert(source, deduplicate=True, **order).execute()
        counted.append(jobs.count)
    assert counted[1] <= counted[0] + 1


def test_S12a_an_order_by_chance_is_refused_and_text_is_a_name(spark, tmp_path):
    table = new_table(spark, tmp_path)
    source = frame(spark, "id INT, ts INT, v STRING, line INT", (1, 1, "a", 1), (1, 1, "b", 2))
    with refused(InvalidMergeError, "orderBy is not deterministic"):
        table.insert(source, deduplicate=True, orderBy=F.rand())
    with refused(InvalidMergeError, "line DESC", "F.desc(name)"):
        table.insert(source, deduplicate=True, orderBy="line DESC")


def test_S12a_S47_rows_without_a_key_or_place_of_the_table_are_no_duplicates(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", watermarkKey="ts", tombstoneKey=None)
    rejected = TrinityTable.createQuarantine(spark, f"{tmp_path}/rejected")
    rows = [
        ("x", "1", "a"),
        ("y", "1", "b"),
        ("01", "1", "c"),
        (None, "1", "d"),
        (None, "1", "e"),
        ("5", "p", "f"),
        ("5", "q", "g"),
    ]
    schema = "id STRING, ts STRING, v STRING"
    source = frame(spark, schema, *rows, ("3", "1", "first"), ("3", "1", "second"))
    result = table.insert(source, deduplicate=True, orderBy="v").quarantine(rejected).execute()
    assert result.quarantined == {"null-key": 2, "type:id": 3, "type:ts": 2}
    assert live_rows(table) == [(3, 1, "first")]
