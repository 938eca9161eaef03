"""F1-F4: the events of MongoDB's change streams become the documents that the collection has."""

from __future__ import annotations

import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from feed_tables import rows_of, table_of
from helpers import quickly

from trinitymerge import InvalidMergeError, RejectedRowsError
from trinitymerge.feeds.formats.mongo import mongo


def values(spark, *messages: str | None):
    return spark.createDataFrame([(m,) for m in messages], "value STRING")


def time(t: Any, i: Any = 1) -> dict[str, Any]:
    return {"$timestamp": {"t": t, "i": i}}


def oid(number: int) -> dict[str, str]:
    return {"$oid": f"{number:024x}"}


def change(operation: str | None, key: Any, t: Any = 1, i: Any = 1, **more: Any) -> str:
    """An event. Its key is a number, for an ObjectId, or the document's key."""
    place = {"clusterTime": time(t, i)} if t is not None else {}
    keys = {"documentKey": {"_id": oid(key)} if isinstance(key, int) else key} if key is not None else {}
    named = {"operationType": operation} if operation is not None else {}
    return json.dumps(
        {"_id": {"_data": "82AB"}, **named, **place, "ns": {"db": "shop", "coll": "notes"}, **keys, **more}
    )


def document(key: int, **fields: Any) -> dict[str, Any]:
    return {"fullDocument": {"_id": oid(key), **fields}}


def update(key: Any, t: int, set_: Any, removed: Any = (), i: int = 1, **more: Any) -> str:
    said = {"updatedFields": set_, "removedFields": [*removed], "truncatedArrays": []}
    return change("update", key, t, i, updateDescription=said, **more)


def apply(table, frame, /, **options: Any):
    return table.applyChanges(mongo(frame, **options)).execute()


def hexes(*keys: int) -> list[str]:
    return [oid(key)["$oid"] for key in keys]


def test_F1_events_become_the_collections_documents(spark, tmp_path):
    table = table_of(spark, tmp_path, "_id STRING, title STRING, body STRING, pages INT", "_id")
    events = [
        change("insert", 1, 1700000000, 1, **document(1, title="a", body="long", pages={"$numberInt": "3"})),
        change("insert", 2, 1700000000, 2, **document(2, title="x")),
        update(1, 1700000000, {"title": "b"}, ["body"], 3),
        change("delete", 2, 1700000001),
        change("insert", 3, 1700000001, 2, **document(3, title="c", body="c")),
        change("replace", 3, 1700000001, 3, **document(3, title="d")),
    ]
    counts = apply(table, values(spark, *reversed(events)), table="shop.notes").feed
    (one, three) = hexes(1, 3)
    assert rows_of(table) == [(one, "b", None, 3), (three, "d", None, None)]
    assert (counts.read, counts.upserts, counts.deletes) == (6, 5, 1)
    assert str(counts.newest) == "2023-11-14 22:13:21"
    (found,) = mongo(values(spark, *events)).tables().collect()
    ends = [f"0001/{t:016x}/{i:016x}/{0:016x}" for t, i in ((1700000000, 1), (1700000001, 3))]
    assert tuple(found) == ("shop.notes", 6, *ends)


def test_F1_an_update_with_the_document_has_all_fields(spark, tmp_path):
    table = table_of(spark, tmp_path, "_id STRING, a STRING, b STRING", "_id")
    apply(table, values(spark, change("insert", 1, 1, **document(1, a="old", b="old"))))
    apply(table, values(spark, update(1, 2, {"a.b": 1}, **document(1, a="new"))))
    assert rows_of(table) == [(*hexes(1), "new", None)]


def test_F1_a_document_may_be_one_column(spark, tmp_path):
    table = table_of(spark, tmp_path, "_id STRING, document STRING, note STRUCT<n: INT, at: TIMESTAMP>", "_id")
    whole = document(1, n={"$numberLong": "9007199254740993"}, at={"$date": "1969-01-01T00:00:00Z"}, s='{"$oid":"x"}')
    events = [change("insert", 1, 1, **document(1, n=1)), change("replace", 1, 2, **whole)]
    apply(table, values(spark, *events), document="document")
    ((key, text, note),) = rows_of(table)
    assert (key, note) == (*hexes(1), None)
    expected = {"_id": key, "n": 9007199254740993, "at": "1969-01-01T00:00:00Z", "s": '{"$oid":"x"}'}
    assert json.loads(text) == expected
    apply(table, values(spark, change("replace", 1, 3, **document(1, n=2, at={"$date": -1}))), document="note")
    assert rows_of(table)[0][2] == (2, datetime(1969, 12, 31, 23, 59, 59, 999000))
    feed = mongo(values(spark, update(1, 4, {"n": 2}), change("insert", 1, 5, fullDocument=5)), document="document")
    assert sorted(r["reason"] for r in feed.rejected(table).collect()) == ["nested-update", "no-row"]
    apply(table, values(spark, change("delete", 1, 6)), document="document")
    assert rows_of(table) == []


def test_F2_events_of_a_transaction_are_in_the_order_of_their_tokens(spark, tmp_path):
    table = table_of(spark, tmp_path, "_id STRING, v INT", "_id")

    def within(key: int, v: int, token: str | None) -> dict[str, Any]:
        event = json.loads(change("replace", key, 5, **document(key, v=v)))
        return event | {"txnNumber": {"$numberLong": "7"}, "_id": {"_data": token} if token else {}}

    events = [within(1, 1, "82AA0129"), within(1, 3, "82aa03"), within(1, 2, "82AA02FF")]
    apply(table, values(spark, *[json.dumps(e) for e in events]))
    arrived = [(json.dumps(within(2, v, None)), v) for v in (2, 3, 1)]
    apply(table, spark.createDataFrame(arrived, "value STRING, offset BIGINT"))
    assert rows_of(table) == [(key, 3) for key in hexes(1, 2)]
    lost = mongo(values(spark, arrived[0][0]))
    assert [r["reason"] for r in lost.rejected(table).collect()] == ["no-position"]


def test_F2_copied_documents_are_older_than_all_changes(spark, tmp_path):
    table = table_of(spark, tmp_path, "_id STRING, v STRING", "_id")
    apply(table, values(spark, change("delete", 1, 1), change("replace", 2, 1, **document(2, v="b"))))
    copied = [
        json.loads(change("insert", key, None, **document(key, v="a")))
        | {"_id": {"_id": oid(key), "copyingData": True}}
        for key in (1, 2, 3)
    ]
    apply(table, values(spark, *map(json.dumps, copied)))
    two, three = hexes(2, 3)
    assert rows_of(table) == [(two, "b"), (three, "a")]


def test_F3_each_event_is_applied_skipped_or_rejected_with_a_reason(spark, tmp_path):
    table = table_of(spark, tmp_path, "_id STRING, v STRING, n INT", "_id")
    truncated = {"updatedFields": {}, "removedFields": [], "truncatedArrays": [{"field": "v", "newSize": 1}]}
    messages = {
        change("insert", 1, 1, **document(1, v="a")): "upsert",
        update(1, 2, {}, ["v"]): "upsert",
        change("delete", 2, 2): "delete",
        change("createIndexes", None): "schema change",
        None: "tombstone",
        "": "tombstone",
        change("insert", 1, 1, **document(1, v="a"))[:80]: "unparsable",
        "[]": "unparsable",
        "5": "unparsable",
        change("delete", [1]): "unparsable",
        change("insert", 1, fullDocument=[1]): "unparsable",
        "{}": "no-op",
        change(None, 1): "no-op",
        json.dumps({"a": 1}): "no-op",
        change("drop", None): "unknown-op",
        change("rename", None, to={"db": "shop", "coll": "old"}): "unknown-op",
        change("invalidate", None): "unknown-op",
        change("dropDatabase", None): "unknown-op",
        change("insert", 1): "no-row",
        change("update", 1, fullDocument=None): "no-row",
        change("delete", None): "no-key",
        update(None, 3, {"v": "a"}): "no-key",
        update(1, 3, {"v.w": "a"}): "nested-update",
        update(1, 3, {}, ["v.w"]): "nested-update",
        change("update", 1, updateDescription=truncated): "nested-update",
        change("delete", 1, None): "no-position",
        change("delete", 1, "soon"): "no-position",
        change("delete", 1, -1): "no-position",
        change("delete", 1, 10**18): "no-position",
        change("delete", 1, 1, None): "no-position",
        change("insert", None, fullDocument={"_id": None}): "null-key",
        change("delete", {"_id": None}): "null-key",
        change("delete", {"v": "a"}): "null-key",
        change("insert", 1, **document(1, n="x")): "type:n",
        update(1, 3, {"n": {"$numberLong": "3000000000"}}): "type:n",
    }
    good = {"upsert", "delete", "schema change", "tombstone"}
    feed = mongo(values(spark, *messages))
    with pytest.raises(RejectedRowsError):
        table.applyChanges(feed).execute()
    rejected = {r["raw"]: r["reason"] for r in feed.rejected(table).collect()}
    assert rejected == {m: kind for m, kind in messages.items() if kind not in good}
    counts = apply(table, values(spark, *[m for m, kind in messages.items() if kind in good])).feed
    skipped = {"schema change": 1, "tombstone": 2}
    assert (counts.read, counts.upserts, counts.deletes, counts.skipped) == (6, 2, 1, skipped)


COLUMNS = (
    "_id STRING, i INT, l BIGINT, x DOUBLE, d DECIMAL(34,4), t TIMESTAMP, day DATE, b BINARY, s STRING, "
    "o STRUCT<ref: STRING, n: BIGINT>, a ARRAY<DECIMAL(10,1)>"
)
TEXT = 'it\'s "quoted" {"$oid":"1"} \\ \x00 \n ü'
DECIMAL = "-999999999999999999999999999999.1234"
EXPECTED = (
    *(
        "key",
        -(2**31),
        2**63 - 1,
        -0.1,
        Decimal(DECIMAL),
        datetime(1969, 12, 31, 23, 59, 59, 999000),
        date(9999, 12, 31),
    ),
    *(bytearray(b"\x00\xff"), TEXT, ("00000000000000000000000a", 2), [Decimal("1.5"), None]),
)
DAY = {"$date": "9999-12-31T00:00:00Z"}
FORMS = {
    "canonical": {
        "i": {"$numberInt": str(-(2**31))},
        "l": {"$numberLong": str(2**63 - 1)},
        "x": {"$numberDouble": "-0.1"},
        "d": {"$numberDecimal": DECIMAL},
        "t": {"$date": {"$numberLong": "-1"}},
        "day": DAY,
        "b": {"$binary": {"base64": "AP8=", "subType": "00"}},
        "o": {"ref": oid(10), "n": {"$numberLong": "2"}},
        "a": [{"$numberDecimal": "1.5"}, None],
    },
    "relaxed": {
        "i": -(2**31),
        "l": 2**63 - 1,
        "x": -0.1,
        "d": {"$numberDecimal": DECIMAL},
        "t": {"$date": "1969-12-31T23:59:59.999Z"},
        "day": DAY,
        "b": {"$binary": {"base64": "AP8=", "subType": "00"}},
        "o": {"ref": oid(10), "n": 2},
        "a": [{"$numberDecimal": "1.5"}, None],
    },
    "of the Kafka connector": {
        "i": -(2**31),
        "l": {"$numberLong": str(2**63 - 1)},
        "x": -0.1,
        "d": {"$numberDecimal": DECIMAL},
        "t": {"$date": -1},
        "day": DAY,
        "b": {"$binary": "AP8=", "$type": "00"},
        "o": {"ref": oid(10), "n": {"$numberLong": "2"}},
        "a": [{"$numberDecimal": "1.5"}, None],
    },
}


@pytest.mark.parametrize("indent", [None, 2])
def test_F3_values_of_extended_json_are_exact(spark, tmp_path, indent):
    table = table_of(spark, tmp_path, COLUMNS, "_id")
    events = []
    for n, (name, fields) in enumerate(FORMS.items()):
        event = json.loads(change("insert", {"_id": name}, n, fullDocument={"_id": name, **fields, "s": TEXT}))
        events.append(json.dumps(event, indent=indent))
    empty = {"_id": "empty", "s": "", "x": {"$numberDouble": "-Infinity"}, "a": [], "d": None}
    apply(table, values(spark, *events, change("insert", {"_id": "empty"}, fullDocument=empty)))
    nothing = ("empty", None, None, float("-inf"), None, None, None, None, "", None, [])
    assert rows_of(table) == sorted([*((name, *EXPECTED[1:]) for name in FORMS), nothing])


def generated(seed: int) -> tuple[list[str], dict[str, tuple[str | None, str | None]]]:
    """Events, and the collection's documents after them."""
    r, found, events = random.Random(seed), dict[int, dict[str, Any]](), list[str]()
    for n in range(30):
        key, t = r.randint(1, 5), 1700000000 + n // 3
        at, what, new = {"t": t, "i": n % 3}, r.random(), {r.choice("ab"): r.choice([None, "", f"v{n}"])}
        if key not in found:
            found[key] = new
            events.append(change("insert", key, **at, **document(key, **new)))
        elif what < 0.25:
            del found[key]
            events.append(change("delete", key, **at))
        elif what < 0.4:
            found[key] = new
            events.append(change("replace", key, **at, **document(key, **new)))
        else:
            gone = [name for name in found[key] if name not in new and r.random() < 0.4]
            found[key] = {k: v for k, v in (found[key] | new).items() if k not in gone}
            full = document(key, **found[key]) if what > 0.8 else {}
            events.append(update(key, t, new, gone, n % 3, **full))
    return events, {hexes(key)[0]: (row.get("a"), row.get("b")) for key, row in found.items()}


@pytest.mark.parametrize("seed", quickly(range(6), {0, 3}))
def test_F1_events_in_any_order_and_batches_end_as_the_collection(spark, tmp_path, seed):
    events, found = generated(seed)
    random.Random(seed).shuffle(events)
    table = table_of(spark, tmp_path, "_id STRING, a STRING, b STRING", "_id")
    for i in range(3):
        apply(table, values(spark, *events[i::3]))
    assert rows_of(table) == sorted((key, *row) for key, row in found.items())


def test_F1_options_are_applied(spark, tmp_path):
    table = table_of(spark, tmp_path, "id STRING, v STRING, at TIMESTAMP", "id")
    new = change("insert", {"_id": "a"}, fullDocument={"_id": "a", "v": "new", "at": "2024-05-01 10:00:00"})
    apply(table, values(spark, new), epoch=2, rename={"_id": "id"}, zone="Europe/Rome")
    apply(table, values(spark, update({"_id": "a"}, 9, {"v": "old"})), rename={"_id": "id"})
    assert rows_of(table) == [("a", "new", datetime(2024, 5, 1, 8))]
    rows = [(change("insert", 1, None, **document(1, v=str(n))), n) for n in (1, 3, 2)]
    arrived = spark.createDataFrame(rows, "value STRING, offset BIGINT")
    apply(table, arrived, rename={"_id": "id"}, sequence="arrival")
    assert rows_of(table)[0] == (*hexes(1), "3", None)


def test_F1_options_are_checked(spark):
    frame = values(spark, "{}")
    for name in ("_id", "", 5):
        with pytest.raises(InvalidMergeError, match="document takes the name of a column other than '_id'"):
            mongo(frame, document=name)
    with pytest.raises(InvalidMergeError, match="sequence takes"):
        mongo(frame, sequence="clusterTime")
    with pytest.raises(InvalidMergeError, match="needs a column 'value'"):
        mongo(frame.withColumnRenamed("value", "text")).tables()
