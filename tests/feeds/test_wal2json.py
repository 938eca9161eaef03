"""F1-F4: wal2json's messages become the rows that the database has. `tests/data/feeds/wal2json` has captured streams."""

from __future__ import annotations

import gzip
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from feed_tables import TABLES, of_database, rows_of, table_of
from helpers import assertRows

from trinitymerge import InvalidMergeError, RejectedRowsError, feeds

DATA = Path(__file__).parent.parent / "data" / "feeds" / "wal2json"
NAN = {"price": "NaN", "ratio": "NaN"}


def lines(version: int) -> list[str]:
    with gzip.open(DATA / f"v{version}.jsonl.gz", "rt") as file:
        return file.read().splitlines()


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


def columns_of(name: str) -> tuple[str, list[str]]:
    columns, key = TABLES[name]
    return columns.replace("at_time BIGINT", "at_time STRING"), key


def assert_ends_as_the_database(
    spark, directory: Path, name: str, batches: list[list[str]], history: bool = False, **options: Any
) -> list[Any]:
    table = table_of(spark, directory, *columns_of(name), history=history)
    results = []
    for batch in batches:
        feed = feeds.wal2json(values(spark, *batch), table=f"public.{name}", **options)
        results.append(table.applyChanges(feed).execute())
    assertRows(table.toDF().drop("_seq"), of_database(DATA / "final" / f"{name}.csv", table, NAN))
    return results


@pytest.mark.parametrize("name", TABLES)
def test_F1_a_captured_stream_of_changes_ends_as_the_database(spark, tmp_path, name):
    (result,) = assert_ends_as_the_database(spark, tmp_path, name, [lines(2)])
    counts = result.feed
    assert (
        counts.read
        == len(lines(2))
        == counts.upserts + counts.deletes + counts.truncates + sum(counts.skipped.values())
    )


@pytest.mark.parametrize("name", ["accounts", "branches", "notes", "notes_full"])
def test_F1_a_captured_stream_of_transactions_ends_as_the_database(spark, tmp_path, name):
    assert_ends_as_the_database(spark, tmp_path, name, [lines(1)], version=1)


@pytest.mark.parametrize("name", ["notes", "basket"])
def test_F1_transactions_in_any_order_and_batches_end_as_the_database(spark, tmp_path, name):
    transactions = dict[str, list[str]]()
    for line in lines(2):
        message = json.loads(line)
        if message["action"] in "BC" or message.get("table") == name:
            transactions.setdefault(message["xid"], []).append(line)
    groups = [t for t in transactions.values() if len(t) > 2]
    shuffled = random.Random(name).sample(groups, len(groups))
    for group in shuffled:
        random.Random(len(group)).shuffle(group)
    third = len(shuffled) // 3
    parts = [shuffled[:third], shuffled[third : 2 * third], shuffled[2 * third :]]
    batches = [[m for group in part for m in group] for part in parts]
    # Without history, a key that comes back before its change arrives has lost its past (U7).
    assert_ends_as_the_database(spark, tmp_path, name, batches, history=name == "notes")


def change(action: str, **more: Any) -> str:
    return json.dumps({"action": action, "xid": 1, "lsn": "0/5", "schema": "public", "table": "t", **more})


def columns(**row: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": "text", "value": value} for name, value in row.items()]


BEGIN = json.dumps({"action": "B", "xid": 1, "lsn": "0/9", "timestamp": "2024-05-01 10:00:00.5+00"})


def test_F3_each_message_is_an_event_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    messages = {
        BEGIN: "transaction",
        change("I", columns=columns(id=1, v="a")): "upsert",
        change("M", content="x"): "message",
        change("D", identity=columns(id=2)): "delete",
        None: "empty",
        change("I", columns=columns(id=1))[:50]: "unparsable",
        change("X"): "unknown-op",
        "{}": "no-op",
        change("D"): "no-key",
        change("U"): "no-row",
        change("I", columns=columns(id=1), xid=2): "no-commit",
        change("I", columns=columns(id=1), lsn="5"): "no-position",
        change("I", columns=columns(id=None)): "null-key",
    }
    events = {"upsert", "delete", "message", "transaction", "empty"}
    feed = feeds.wal2json(values(spark, *messages))
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    sequence = re.compile(r'"_seq":"0001/0{15}9/0{15}5",')
    rejected = {sequence.sub("", r["raw"]): r["reason"] for r in feed.rejected(table).collect()}
    assert rejected == {m: kind for m, kind in messages.items() if kind not in events}
    good = feeds.wal2json(values(spark, *[m for m, kind in messages.items() if kind in events]))
    counts = table.applyChanges(good).execute().feed
    assert (counts.read, counts.upserts, counts.deletes, counts.newest) == (5, 1, 1, None)


def test_F2_without_the_begin_of_transactions_the_order_is_that_of_changes(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING")
    messages = [change("I", columns=columns(id=1, v="b"), lsn="0/6"), change("I", columns=columns(id=1, v="a"))]
    table.applyChanges(feeds.wal2json(values(spark, *messages), commit="lsn")).execute()
    assert rows_of(table) == [(1, "b")]


def test_F2_a_number_of_a_transaction_that_comes_again_is_another_transaction(spark):
    later = [change("I", columns=columns(id=2), lsn="1/5"), json.dumps({"action": "B", "xid": 1, "lsn": "1/9"})]
    feed = feeds.wal2json(values(spark, BEGIN, change("I", columns=columns(id=1)), *later))
    found = [r[0] for r in feed.decoded().where("op IS NOT NULL").select("seq").orderBy("seq").collect()]
    assert found == [f"0001/{9:016x}/{5:016x}", "0001/0000000100000009/0000000100000005"]


BIG = "-99999999999999999999999999999999999.125"


def test_F3_decimal_numbers_keep_their_digits(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v DECIMAL(38, 3)")
    exact = change("I", columns=columns(id=1, v="number")).replace('"number"', BIG)
    table.applyChanges(feeds.wal2json(values(spark, BEGIN, exact))).execute()
    assert rows_of(table) == [(1, Decimal(BIG))]


def transaction(lsn: str, number: str, **change_: Any) -> str:
    """A message of version 1 with one change, whose text `number` becomes a number as it is."""
    message = json.dumps({"nextlsn": lsn, "change": [{"schema": "s", "table": "t", **change_}]})
    return message.replace('"number"', number)


def insert(kind: str, *more: str) -> dict[str, Any]:
    names, types = ["id", "v", *(f"w{i}" for i in range(len(more)))], ["integer", kind, *["text"] * len(more)]
    return {"kind": "insert", "columnnames": names, "columntypes": types, "columnvalues": [1, "number", *more]}


NUMBERS = [
    *("-99999999.1230", "0.12345678901234567890", "-999999999999999999.12345678901234567891", "1.5", "-1e-20"),
    *("12345678901234567890", '"99999999999999999.125"'),
]


@pytest.mark.parametrize("kind", ["numeric(38,20)", "numeric"])
def test_F3_numbers_of_version_1_keep_their_digits(spark, tmp_path, kind):
    """Each number is in a column for it; whole ones have no scale."""
    scales = [20 if set(number) & {*".e"} else 0 for number in NUMBERS]
    table = table_of(spark, tmp_path, ", ".join(["id INT", *(f"v{i} DECIMAL(38, {s})" for i, s in enumerate(scales))]))
    columns = {"columnnames": ["id", *(f"v{i}" for i in range(len(NUMBERS)))]}
    change_ = {"kind": "insert", **columns, "columntypes": ["integer", *[kind] * len(NUMBERS)]}
    message = transaction("0/5", f"1, {', '.join(NUMBERS)}", **change_, columnvalues=["number"])
    table.applyChanges(feeds.wal2json(values(spark, message), version=1)).execute()
    assert rows_of(table) == [(1, *(Decimal(number.strip('"')) for number in NUMBERS))]


def test_F3_texts_of_version_1_that_look_like_numbers_stay(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v STRING, w0 STRING, w1 STRING, w2 STRING")
    # Long ones: a pattern that repeats alternatives would need a stack that ends Java's process.
    texts = ['[1.50, "x\\", 2.5e3, "', "\\", ",1.10," * 10_000 + '"\\' * 40_000]
    message = transaction("0/5", "12345678.10", **insert("numeric(10,2)", *texts))
    table.applyChanges(feeds.wal2json(values(spark, message), version=1)).execute()
    assert rows_of(table) == [(1, "12345678.10", *texts)]


def test_F1_a_transaction_of_many_changes_is_read(spark, tmp_path):
    """Copies of the whole message beside each change would fill the memory."""
    table = table_of(spark, tmp_path, "id INT, v STRING")
    names = {"columnnames": ["id", "v"], "columntypes": ["integer", "text"]}
    changes = [{"kind": "insert", "table": "t", "columnvalues": [i, "x" * 100], **names} for i in range(20_000)]
    message = json.dumps({"nextlsn": "0/5", "change": changes})
    result = table.applyChanges(feeds.wal2json(values(spark, message), version=1)).execute()
    assert (result.feed.upserts, table.toDF().count()) == (20_000, 20_000)


def test_F3_a_delete_of_version_1_has_the_exact_key(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT, v DECIMAL(38, 2)", "v")
    key = "12345678901234567890.12"
    keys = {"keynames": ["v"], "keytypes": ["numeric(38,2)"], "keyvalues": ["number"]}
    for message in (
        transaction("0/5", key, **insert("numeric(38,2)")),
        transaction("0/6", key, kind="delete", oldkeys=keys),
    ):
        table.applyChanges(feeds.wal2json(values(spark, message), version=1)).execute()
    assert rows_of(table) == []


def test_F3_a_change_without_the_number_of_its_transaction_is_rejected(spark, tmp_path):
    table = table_of(spark, tmp_path, "id INT")
    messages = [json.dumps({"action": "B", "lsn": "0/9"}), change("I", columns=columns(id=1), xid=None)]
    feed = feeds.wal2json(values(spark, *messages))
    assert [r["reason"] for r in feed.rejected(table).collect()] == ["no-commit"]


def test_F1_numbers_that_no_decimal_holds_are_text(spark):
    kinds = {"a": "numeric(38,2)", "b": "numeric(39,2)", "c": "numeric(3,5)", "d": "numeric(5,-2)", "e": "numeric"}
    of = [{"name": name, "type": kind, "value": None} for name, kind in kinds.items()]
    found = feeds.wal2json(values(spark, BEGIN, change("I", columns=of))).schema()
    assert set(found.split(", ")) == {"`a` DECIMAL(38,2)", *(f"`{n}` STRING" for n in ("b", "c", "d", "e", "_seq"))}


def test_F1_messages_have_the_columns_of_a_table(spark):
    kinds = feeds.wal2json(values(spark, *lines(2)), table="public.notes").schema()
    assert (
        "`body` STRING, `tags` ARRAY<STRING>, `price` DECIMAL(12,4), `ratio` DOUBLE, `seen` TIMESTAMP_LTZ, `day` DATE"
        in kinds
    )
    assert kinds.endswith("`changed` TIMESTAMP_NTZ, `_seq` STRING")


def test_F1_options_are_checked(spark):
    with pytest.raises(InvalidMergeError, match="version takes 1 or 2, got 3"):
        feeds.wal2json(values(spark, BEGIN), version=3)
    with pytest.raises(InvalidMergeError, match="sequence takes 'log', got 'arrival'"):
        feeds.wal2json(values(spark, BEGIN), version=1, sequence="arrival")
