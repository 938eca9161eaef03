"""F1-F4: the changes of other tables, as their readers return them."""

from __future__ import annotations

import random

import pytest
from feed_tables import rows_of, table_of
from helpers import assertRows
from tables import frame, new_table

from trinitymerge import InvalidMergeError, RejectedRowsError, feeds

DELTA = "id INT, v STRING, _change_type STRING, _commit_version BIGINT, _commit_timestamp TIMESTAMP"
ICEBERG = "id INT, v STRING, _change_type STRING, _change_ordinal INT, _commit_snapshot_id BIGINT"


@pytest.mark.parametrize("seed", range(4))
def test_F1_changes_of_a_table_make_its_copy_in_any_order(spark, tmp_path, seed):
    source = new_table(spark, tmp_path)
    rng = random.Random(seed)
    for version in range(1, 6):
        rows = [(id, version, f"v{version}", rng.random() < 0.3) for id in rng.sample(range(6), 3)]
        source.upsert(frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", *rows)).execute()
    copy = table_of(spark, tmp_path, "id INT, ts INT, v STRING")
    parts = [(0, 2), (2, 3), (3, 5)]
    for begin, end in rng.sample(parts, 3):
        feed = feeds.changes(source.changes(begin, end))
        copy.applyChanges(feed, exceptColumns=["deleted"]).execute()
    assertRows(copy.toDF().drop("_seq"), source.toDF().select("id", "ts", "v").collect())


def test_F1_a_change_data_feed_of_delta(spark, tmp_path):
    rows = [
        *[(1, "a", "insert", 1, None), (2, "a", "insert", 1, None), (3, "a", "insert", 1, None)],
        *[(1, "a", "update_preimage", 2, None), (1, "b", "update_postimage", 2, None), (2, "a", "delete", 3, None)],
        *[(3, "a", "delete", 4, None), (3, "again", "insert", 4, None)],
    ]
    for n, some in enumerate((rows, rows[::-1])):
        table = table_of(spark, tmp_path / str(n), "id INT, v STRING")
        counts = table.applyChanges(feeds.delta_cdf(frame(spark, DELTA, *some))).execute().feed
        assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (8, 5, 2, {"before image": 1})
        assert rows_of(table) == [(1, "b"), (3, "again")]


def test_F1_a_changelog_of_iceberg(spark, tmp_path):
    rows = [
        (1, "a", "INSERT", 0, 7),
        (1, "a", "UPDATE_BEFORE", 1, 8),
        (1, "b", "UPDATE_AFTER", 1, 8),
        (2, "x", "DELETE", 2, 9),
    ]
    table = table_of(spark, tmp_path, "id INT, v STRING")
    table.applyChanges(feeds.iceberg_changes(frame(spark, ICEBERG, *rows[2:]))).execute()
    table.applyChanges(feeds.iceberg_changes(frame(spark, ICEBERG, *rows[:2]))).execute()
    assert rows_of(table) == [(1, "b")]


@pytest.mark.parametrize("history", [False, True])
def test_F1_an_image_without_the_row_after_it_is_a_delete(history, spark, tmp_path):
    rows = [
        *[(n, "in", "insert", 1, None) for n in (1, 2, 3)],
        *[(1, "in", "update_preimage", 2, None), (1, "out", "update_postimage", 2, None)],
        *[(2, "in", "update_preimage", 2, None), (2, "in again", "update_postimage", 2, None)],
        *[
            (3, "in", "update_preimage", 3, None),
            (4, "in", "update_postimage", 3, None),
        ],  # the update has changed the key
    ]
    for n, parts in enumerate(([rows], [rows[:4], rows[4:]], [rows[::-1]])):
        table = new_table(
            spark, tmp_path / str(n), "id INT, v STRING, _seq STRING", watermarkKey="_seq", history=history
        )
        for part in parts:
            table.applyChanges(feeds.delta_cdf(frame(spark, DELTA, *part).where("v LIKE 'in%'"))).execute()
        assert rows_of(table) == [(2, "in again"), (4, "in")]


def test_F3_a_change_of_an_unknown_type_or_without_version_is_rejected(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    rows = [
        (1, "a", "insert", None, None),
        (2, "a", "replace", 1, None),
        (3, "a", None, 1, None),
        (None, "a", "insert", 1, None),
    ]
    feed = feeds.delta_cdf(frame(spark, DELTA, *rows))
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    assert sorted(r["reason"] for r in feed.rejected(table).collect()) == [
        "no-op",
        "no-position",
        "null-key",
        "unknown-op",
    ]


def test_F3_typed_values_stay_as_they_are(spark, tmp_path):
    text = (
        "SELECT 1 AS id, CAST('-12345678901234567890.123456789' AS DECIMAL(38, 9)) AS d, "
        "timestamp'1969-12-31 23:59:59.999999' AS t, timestamp_ntz'9999-12-31 00:00:00.000001' AS l, X'00FF' AS b, "
        "array(named_struct('x', date'1582-10-04', 'y', 1.10BD)) AS a, map('k', timestamp'2020-01-01 00:00:00.5') AS m, "
        "'it''s' AS s, CAST('-Infinity' AS DOUBLE) AS f, true AS bo, "
        "named_struct('a b', timestamp'2020-01-01 00:00:00', 'c', 1) AS n, "
        "'insert' AS _change_type, 1L AS _commit_version, 7 AS _watermark"
    )
    source = spark.sql(text)
    feed = feeds.changes(source)
    from trinitymerge import TrinityTable

    table = TrinityTable.create(spark, f"{tmp_path}/t", feed.schema(), primaryKey="id", watermarkKey="_seq")
    table.applyChanges(feed).execute()
    assertRows(table.toDF().drop("_seq"), source.drop("_change_type", "_commit_version", "_watermark").collect())


def test_F3_typed_text_may_have_the_code_point_that_marks_JSON(spark, tmp_path):
    columns = "id INT, v STRING, a ARRAY<STRING>"
    rows = [(1, "\ufdd05", ["x"], "insert", 1, None), (2, "x", ["\ufdd05"], "insert", 1, None)]
    source = frame(spark, DELTA.replace("id INT, v STRING", columns), *rows)
    feed, table = feeds.delta_cdf(source), table_of(spark, tmp_path, columns)
    assert [tuple(row)[:3] for row in feed.changes(table).select("id", "v", "a").collect()] == [(1, "\ufdd05", ["x"])]
    assert [row["reason"] for row in feed.rejected(table).collect()] == ["type:a"]


def test_F3_long_binary_values_are_read(spark, tmp_path):
    value = bytes(range(256)) * 4
    source = spark.createDataFrame(
        [(1, value, [value], "insert", 1)],
        "id INT, b BINARY, a ARRAY<BINARY>, _change_type STRING, _commit_version INT",
    )
    table = table_of(spark, tmp_path, "id INT, b BINARY, a ARRAY<BINARY>")
    table.applyChanges(feeds.changes(source)).execute()
    assert rows_of(table) == [(1, bytearray(value), [bytearray(value)])]


def test_F1_a_frame_without_changes_is_refused(spark):
    with pytest.raises(InvalidMergeError, match=r"feeds.changes\(\) needs .*'_change_type'"):
        feeds.changes(spark.range(1))


@pytest.mark.parametrize("format", ["delta_cdf", "iceberg_changes"])
def test_F1_columns_of_a_table_may_have_any_names(format, spark, tmp_path):
    names = ["kind_of_change", "place", "texts", "told", "committed", "value", "position", "row", "op", "moment"]
    listed = ", ".join(f"{name} STRING" for name in names)
    table = new_table(spark, tmp_path, f"id INT, {listed}, _seq STRING", watermarkKey="_seq")
    rows = frame(spark, f"id INT, {listed}", (1, *names))
    shown = {
        "delta_cdf": ["'insert' AS _change_type", "5L AS _commit_version", "current_timestamp() AS _commit_timestamp"],
        "iceberg_changes": ["'INSERT' AS _change_type", "5 AS _change_ordinal", "7L AS _commit_snapshot_id"],
    }[format]
    table.applyChanges(getattr(feeds, format)(rows.selectExpr("*", *shown))).execute()
    assert [tuple(row) for row in table.toDF().drop("_seq").collect()] == [(1, *names)]
