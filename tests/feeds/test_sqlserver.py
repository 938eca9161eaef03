"""F1-F4: rows of SQL Server's change data capture become the rows that the source has."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from feed_tables import rows_of, table_of
from helpers import quickly

from trinitymerge import InvalidMergeError, RejectedRowsError
from trinitymerge.feeds.formats.sqlserver import sqlserver

SYSTEM = "`__$start_lsn` BINARY, `__$end_lsn` BINARY, `__$seqval` BINARY, `__$operation` INT, `__$update_mask` BINARY"
DELETE, INSERT, BEFORE, UPDATE, MERGE = 1, 2, 3, 4, 5


def lsn(number: int) -> bytearray:
    """A BINARY(10), as JDBC returns it."""
    return bytearray(number.to_bytes(10, "big"))


def change(commit: int | None, seqval: int | None, operation: int | None, *row: Any) -> tuple[Any, ...]:
    place = [None if n is None else lsn(n) for n in (commit, seqval)]
    return (place[0], None, place[1], operation, lsn(255), *row)


def frame_of(spark, columns: str, rows: Iterable[tuple[Any, ...]]):
    return spark.createDataFrame([*rows], f"{SYSTEM}, {columns}")


def apply(table, frame, /, **options: Any):
    return table.applyChanges(sqlserver(frame, **options)).execute()


def test_F1_rows_of_a_change_table_become_the_sources_rows(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, title STRING")
    rows = [
        change(16, 1, INSERT, 5, "a"),
        change(16, 2, INSERT, 6, "x"),
        change(17, 1, BEFORE, 5, "a"),
        change(17, 1, UPDATE, 5, "b"),
        change(18, 1, DELETE, 6, "x"),
    ]
    counts = apply(table, frame_of(spark, "id INT, title STRING", reversed(rows))).feed
    assert rows_of(table) == [(5, "b")]
    assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (5, 3, 1, {"before update": 1})


def test_F2_the_delete_of_a_changed_key_comes_before_its_insert(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    rows = [change(16, 1, INSERT, 1, "old"), change(17, 3, INSERT, 1, "new"), change(17, 3, DELETE, 1, "old")]
    apply(table, frame_of(spark, "id INT, v STRING", rows))
    assert rows_of(table) == [(1, "new")]


def test_F2_the_command_orders_before_the_seqval(spark, tmp_path):
    """SQL Server may write the insert of a changed unique column before the delete (KB3030352)."""
    columns = "id INT, v STRING, `__$command_id` INT"
    table = table_of(spark, tmp_path, "id INT, v STRING")
    rows = [
        change(16, 1, INSERT, 1, "a", 1),
        change(16, 2, INSERT, 1, "b", 2),
        change(16, 3, DELETE, 1, "a", 2),
        change(16, 9, INSERT, 2, "first", 11),
        change(16, 8, UPDATE, 2, "second", 12),
        change(16, 7, INSERT, 4, "deleted later", 21),
        change(16, 6, UPDATE, 4, "deleted later", 22),
        change(16, 5, DELETE, 4, "deleted later", 23),
        change(15, 7, INSERT, 3, "without a command", None),
    ]
    frame = frame_of(spark, columns, rows)
    assert frame.columns[-1] == "__$command_id"
    apply(table, frame)
    assert rows_of(table) == [(1, "b"), (2, "second"), (3, "without a command")]


def test_F1_net_changes_need_no_seqval(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    columns = "`__$start_lsn` BINARY, `__$operation` INT, `__$update_mask` BINARY, id INT, v STRING"
    for rows in ([(lsn(3), MERGE, None, 1, "b"), (lsn(2), DELETE, None, 2, "x")], [(lsn(1), MERGE, None, 1, "a")]):
        apply(table, spark.createDataFrame(rows, columns))
    assert rows_of(table) == [(1, "b")]


def test_F1_a_copy_of_the_table_is_older_than_all_changes(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    apply(table, frame_of(spark, "id INT, v STRING", [change(1, 1, UPDATE, 1, "b"), change(1, 2, DELETE, 3, "x")]))
    copied = spark.createDataFrame([(1, "a"), (2, "c"), (3, "x")], "id INT, v STRING")
    apply(table, copied, load=True)
    assert rows_of(table) == [(1, "b"), (2, "c")]


def test_F3_each_row_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    rows = [
        (change(1, 1, INSERT, "1", "insert"), None),
        (change(1, 2, UPDATE, "1", "update"), None),
        (change(1, 3, MERGE, "1", "merge"), None),
        (change(1, 4, DELETE, "2", "delete"), None),
        (change(1, 5, BEFORE, "1", "before"), None),
        (change(1, 6, None, "1", "no operation"), "no-op"),
        (change(1, 7, 9, "1", "nine"), "unknown-op"),
        (change(1, 8, 0, "1", "zero"), "unknown-op"),
        (change(None, 8, INSERT, "1", "no lsn"), "no-position"),
        (change(1, None, INSERT, "1", "no seqval"), "no-position"),
        (change(1, 9, INSERT, None, "no key"), "null-key"),
        (change(1, 9, DELETE, None, "no key to delete"), "null-key"),
        (change(1, 10, INSERT, "x", "a text"), "type:id"),
    ]
    short = (bytearray(b"\x01"), *change(1, 1, INSERT, "1", "short lsn")[1:])
    rows.append((short, "no-position"))
    feed = sqlserver(frame_of(spark, "id STRING, v STRING", [row for row, _ in rows]))
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    found = feed.rejected(table).selectExpr("get_json_object(raw, '$.v') AS v", "reason").collect()
    assert dict(map(tuple, found)) == {row[-1]: reason for row, reason in rows if reason}
    good = frame_of(spark, "id STRING, v STRING", [row for row, reason in rows if not reason])
    counts = apply(table, good).feed
    assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (5, 3, 1, {"before update": 1})


def generated(seed: int, has_commands: bool) -> tuple[list[tuple[Any, ...]], dict[int, str | None]]:
    """Rows of a change table, and the source's rows after them. With commands, no order can be had from seqval."""
    r = random.Random(seed)
    rows, found = list[tuple[Any, ...]](), dict[int, str | None]()
    commit = command = 0
    for n in range(30):
        if n == 0 or r.random() < 0.15:
            commit, command = commit + r.randint(1, 300), 0
        command += 1
        key, other, value, what = r.randint(1, 5), r.randint(1, 5), r.choice([None, "", f"v{n}"]), r.random()
        if key not in found:
            done = [(INSERT, key, value)]
        elif what < 0.3:
            done = [(DELETE, key, found[key])]
        elif what < 0.6 and other not in {*found} - {key}:
            done = [(DELETE, key, found[key]), (INSERT, other, value)]
        else:
            done = [(BEFORE, key, found[key]), (UPDATE, key, value)]
        for operation, k, v in done:
            place = r.randint(1, 10**9) if has_commands else command
            rows.append(change(commit, place, operation, k, v, *([command] if has_commands else [])))
            if operation == DELETE:
                del found[k]
            elif operation != BEFORE:
                found[k] = v
    return rows, found


@pytest.mark.parametrize("seed", quickly(range(10), {0, 5}))
def test_F1_changes_in_any_order_and_batches_end_as_the_source(spark, tmp_path, seed):
    has_commands = seed % 2 == 0
    rows, found = generated(seed, has_commands)
    columns = "id INT, v STRING" + (", `__$command_id` INT" if has_commands else "")
    random.Random(seed).shuffle(rows)
    table = table_of(spark, tmp_path, "id INT, v STRING")
    for i in range(3):
        apply(table, frame_of(spark, columns, rows[i::3]))
    assert rows_of(table) == sorted(found.items())


EDGES = {
    "DECIMAL(38,10)": [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0E-10")],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "TIMESTAMP_NTZ": [datetime(1969, 12, 31, 23, 59, 59, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "STRING": ["", 'it\'s "quoted" \\ \x00 \n ü', "{}"],
    "BINARY": [bytearray(), bytearray(b"\x00\xff")],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DOUBLE": [-1.7976931348623157e308, 5e-324, 0.1],
    "BOOLEAN": [True, False],
}


def test_F3_values_at_the_edges_of_their_types_are_exact(spark, tmp_path):
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(EDGES))
    rows = [tuple(v[i] if i < len(v) else None for v in EDGES.values()) for i in range(4)]
    numbered = [(n, *row) for n, row in enumerate(rows)]
    changes = [change(1, n, INSERT, *row) for n, row in enumerate(numbered)]
    frame = frame_of(spark, f"id INT, {columns}", changes)
    table = table_of(spark, tmp_path, sqlserver(frame).schema().replace(", `_seq` STRING", ""))
    apply(table, frame)
    assert rows_of(table) == numbered


def test_F2_positions_may_be_hexadecimal_text(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    columns = "`__$start_lsn` STRING, `__$seqval` STRING, `__$operation` STRING, id INT, v STRING"
    rows = [("0x0000002700000A000005", "0x0000002700000A00000F", "4", 1, "b")]
    rows += [("0000002700000a000005", "0000002700000a00000e", "2", 1, "a")]
    feed = sqlserver(spark.createDataFrame(rows, columns), table="dbo.notes")
    (found,) = feed.tables().collect()
    assert tuple(found) == (
        "dbo.notes",
        2,
        "0001/0000002700000a000005/0000002700000a00000e/2",
        "0001/0000002700000a000005/0000002700000a00000f/4",
    )
    table.applyChanges(feed).execute()
    assert rows_of(table) == [(1, "b")]


def test_F2_the_time_of_the_commit_is_a_column(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    columns = "id INT, v STRING, done TIMESTAMP"
    frame = frame_of(spark, columns, [change(1, 1, INSERT, 1, "a", datetime(2024, 5, 1, 10))])
    result = apply(table, frame, time="done")
    assert str(result.feed.newest).startswith("2024-05-01 10:00:00")
    assert result.columnsIgnored in ((), None, [])


def test_F1_options_are_applied(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    apply(table, frame_of(spark, "Nr INT, V STRING", [change(1, 1, INSERT, 1, "new")]), epoch=2, rename={"nr": "id"})
    apply(table, frame_of(spark, "id INT, v STRING", [change(9, 9, UPDATE, 1, "old")]))
    assert rows_of(table) == [(1, "new")]


def test_F1_options_and_columns_are_checked(spark, tmp_path):
    frame = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(InvalidMergeError, match=r"'__\$start_lsn', '__\$operation' are missing .* say load=True"):
        sqlserver(frame).tables()
    with pytest.raises(InvalidMergeError, match="Column 'at' is missing"):
        sqlserver(frame, load=True, time="at").tables()
    with pytest.raises(InvalidMergeError, match="load takes True or False, got 'yes'"):
        sqlserver(frame, load="yes")
    with pytest.raises(InvalidMergeError, match="epoch takes a number"):
        sqlserver(frame, epoch=-1)
