"""U1, U3, U4, U7, T1: streams that Debezium and wal2json captured end as the database's rows, in any order and any batches.

`tests/data/feeds` has the streams, and the rows of the database at their end. Messages become events here, in plain Python. The
sequence of an event is one text: "epoch/part/part", each part a number of 16 hexadecimal digits.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers import assertRows, quickly
from pyspark.sql.types import StructType
from tables import as_they_are, new_table

from trinitymerge import MergeResult, TrinityTable

DATA = Path(__file__).parent.parent / "data" / "feeds"
UNAVAILABLE = "__debezium_unavailable_value"

NOTES = (["id", "lang"], ["state", "title", "price", "ratio", "day", "doc", "uid", "flag"])
TABLES = {
    "notes": NOTES,
    "notes_full": NOTES,
    "accounts": (["aid"], ["bid", "abalance", "filler"]),
    "basket": (["bid", "line"], ["sku", "pieces"]),
    "tellers": (["tid"], ["bid", "tbalance"]),
    "branches": (["bid"], ["bbalance", "filler"]),
}
"""The keys and columns. Notes have a `body`, too. Five of their columns are left out: each format writes them in another way."""

Key = tuple[int, str]
"""A number and a text. All tables have such a key here, so that several fit into one."""

Values = dict[str, Any]
"""The values of `body` and `rest`. Rest has the other columns as JSON: a merge takes longer for each column."""


class Event(NamedTuple):
    """An event of a table. Its `op` is upsert, delete or truncate. A truncate has no key; `was` is the old key of a row."""

    op: str
    seq: str
    key: Key | None
    values: Values
    unchanged: list[str]
    was: Key | None = None


Events = dict[str, list[Event]]
"""Events by table, in the order of the stream."""


# Messages become events -----------------------------------------------------------------------------------------------


def messages(path: str) -> Iterator[Any]:
    """The lines of a file. Numbers are left as text."""
    with gzip.open(DATA / path, "rt") as lines:
        yield from (json.loads(line, parse_float=str, parse_int=str) for line in lines)


def sequence(*parts: int) -> str:
    return "/".join(["0001", *(f"{part:016x}" for part in parts)])


def key_of(table: str, row: Mapping[str, str]) -> Key:
    number, *text = (row[name] for name in TABLES[table][0])
    return int(number), "".join(text)


FORMS: dict[str, Callable[[Any], str]] = {
    "ratio": lambda number: str(float(number)),
    "flag": lambda flag: {True: "t", False: "f"}.get(flag, flag),
}
"""One form for values that formats and the database write in several."""


def values_of(table: str, row: Mapping[str, Any]) -> Values:
    """The values that a row says. A body repeats 32 letters: these and its length suffice, and a failure is readable."""
    rest = {n: None if row[n] is None else FORMS.get(n, str)(row[n]) for n in TABLES[table][1]}
    body = row.get("body")
    said = {"body": None if body is None else f"{body[:32]} ({len(body)})"} if "body" in row else {}
    return {"rest": json.dumps(rest), **said}


DECODED: dict[str, Callable[[str], str]] = {
    "price": lambda text: str(Decimal(int.from_bytes(base64.b64decode(text), "big", signed=True)).scaleb(-4)),
    "day": lambda days: str(date(1970, 1, 1) + timedelta(int(days))),
}
"""How Debezium writes a numeric(12,4) and a date."""


@cache
def debezium(incremental: bool) -> Events:
    """The events of Debezium, with or without the rows of the incremental snapshot. `before` is not read.

    A changed key is a delete and a create of equal sequence: one event, with both keys. Other messages are left out. They have no
    value (Kafka's tombstones) or no operation (heartbeats, transactions).
    """
    events: Events = {table: [] for table in TABLES}
    for message in messages("debezium/postgresql.jsonl.gz"):
        value = message["value"] or {}
        op, after, source = value.get("op"), value.get("after"), value.get("source", {})
        table, snapshot = source.get("table"), source.get("snapshot")
        if not op or table not in TABLES or (snapshot == "incremental" and not incremental):
            continue
        is_first = snapshot not in ("false", "incremental")  # the initial snapshot comes before all
        seq = sequence(*(0 if is_first else int(part or 0) for part in json.loads(source["sequence"])))
        if op == "t":
            event = Event("truncate", seq, None, {}, [])
        elif op == "d":
            event = Event("delete", seq, key_of(table, message["key"]), {}, [])
        else:
            unchanged = [name for name, v in after.items() if v == UNAVAILABLE]
            said = {name: v for name, v in after.items() if name not in unchanged}
            said |= {name: decode(said[name]) for name, decode in DECODED.items() if said.get(name) is not None}
            event = Event("upsert", seq, key_of(table, message["key"]), values_of(table, said), unchanged)
            last = events[table][-1:] if op == "c" else []
            if last and (last[0].op, last[0].seq) == ("delete", seq):
                event = event._replace(was=events[table].pop().key)
        events[table].append(event)
    return events


def lsn(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@cache
def wal2json(with_identity: bool) -> Events:
    """The events of wal2json. An update that changes the key has the old one in its identity.

    An update may lack the body, which is unchanged then. With REPLICA IDENTITY FULL, it can be taken from the identity.
    """
    events: Events = {table: [] for table in TABLES}
    commit = 0
    for message in messages("wal2json/v2.jsonl.gz"):
        action, table = message["action"], message.get("table")
        if action == "B":
            commit = lsn(message["lsn"])
        if action not in "IUDT" or table not in TABLES:
            continue
        seq = sequence(commit, lsn(message["lsn"]))
        before, after = ({c["name"]: c["value"] for c in message.get(part, [])} for part in ("identity", "columns"))
        if action == "T":
            events[table].append(Event("truncate", seq, None, {}, []))
        was = key_of(table, before) if before else None
        if before and not after:
            events[table].append(Event("delete", seq, was, {}, []))
        if after:
            said = values_of(table, {**before, **after} if with_identity else after)
            unchanged = ["body"] if table.startswith("notes") and "body" not in said else []
            key = key_of(table, after)
            events[table].append(Event("upsert", seq, key, said, unchanged, None if was == key else was))
    return events


STREAMS: dict[str, Callable[[], Events]] = {
    "debezium": lambda: debezium(incremental=True),
    "debezium without incremental": lambda: debezium(incremental=False),
    "wal2json": lambda: wal2json(with_identity=False),
    "wal2json with identity": lambda: wal2json(with_identity=True),
}

Captured = tuple[str, str]
"""A stream and a table."""

PARTIAL: list[Captured] = [
    ("debezium", "notes"),
    ("debezium without incremental", "notes"),
    ("wal2json", "notes"),
    ("wal2json", "notes_full"),
]
WHOLE: list[Captured] = [
    ("debezium", "notes_full"),
    ("debezium", "accounts"),
    ("debezium", "branches"),
    ("debezium", "tellers"),
    ("wal2json with identity", "notes_full"),
    ("wal2json", "accounts"),
    ("wal2json", "branches"),
]
TRUNCATED: list[Captured] = [("debezium", "basket"), ("wal2json", "basket"), ("wal2json", "tellers")]


def events_of(captured: Captured) -> list[Event]:
    stream, table = captured
    return STREAMS[stream]()[table]


# What is expected -----------------------------------------------------------------------------------------------------

BODIES_OF_OLD_KEYS: dict[Captured, set[int]] = {
    ("debezium without incremental", "notes"): {605, 606, 1017, 1030},
    ("wal2json", "notes"): {605, 606, 1007, 1010, 1017, 1026, 1030},
    ("wal2json", "notes_full"): {604, 1012, 1016},
}
"""Notes whose key an update changed that leaves the body unchanged. No event says it under the new key."""


def of_database(captured: Captured) -> dict[Key, Values]:
    r"""The database's rows at the end. `\N` is null.

    A NaN is null, too, where the stream says so: wal2json always, Debezium for `price`, which is numeric and not a double.
    """
    stream, table = captured
    form = stream.split()[0]
    nulls = {"price": "NaN", "ratio": "NaN" if form == "wal2json" else ""}
    with (DATA / form / "final" / f"{table}.csv").open(newline="") as lines:
        rows = [{n: None if v in (r"\N", nulls.get(n)) else v for n, v in row.items()} for row in csv.DictReader(lines)]
    return {key_of(table, row): values_of(table, row) for row in rows}


KEYS_THAT_CAME_BACK: dict[Captured, set[int]] = {
    ("debezium without incremental", "notes"): {1030},
    ("wal2json", "notes"): {1010, 1030},
}
"""Those of them whose old key has later rows. If one arrives before the key's change, a table without history has no body (U7)."""


Version = tuple[Key, Values, str, str | None]
"""Key, values, from, to."""


def replayed(events: Iterable[Event]) -> list[Version]:
    """All versions of one pass in order, in plain Python.

    An unchanged column has the value of the row before, of the old key if it has changed. It is null if there is no row.
    """
    live: dict[Key, tuple[Values, str]] = {}
    versions: list[Version] = []
    for event in sorted(events, key=lambda e: e.seq):
        ended = {*live} if event.key is None else {event.key, event.was} & {*live}
        versions.extend((key, *live[key], event.seq) for key in ended)
        old = event.was or event.key
        before = live[old][0] if old in live else {}
        live = {key: row for key, row in live.items() if key not in ended}
        if event.op == "upsert":
            live[event.key] = (event.values | {name: before.get(name) for name in event.unchanged}, event.seq)
    return versions + [(key, *row, None) for key, row in live.items()]


# Applying -------------------------------------------------------------------------------------------------------------

Batches = list[list[Event]]
KEY = ["lane", "number", "part"]
COLUMNS = "lane STRING, number BIGINT, part STRING, body STRING, rest STRING, seq STRING"


class Lane(NamedTuple):
    """One shuffle of a table's events."""

    captured: Captured
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{', '.join(self.captured)}, {self.seed}"

    def row(self, key: Key | None, values: Values) -> tuple[Any, ...]:
        return *((self.name, *key) if key else (None, None, None)), values.get("body"), values.get("rest")


def in_order(lane: Lane) -> list[Event]:
    return sorted(events_of(lane.captured), key=lambda e: e.seq)


def shuffled(lane: Lane) -> list[Event]:
    return random.Random(lane.name).sample(events_of(lane.captured), len(events_of(lane.captured)))


def cut(lane: Lane, most: int) -> Batches:
    """A shuffle, in at least two batches."""
    events, rnd = shuffled(lane), random.Random(lane.name)
    cuts = sorted(rnd.sample(range(1, len(events)), min(rnd.randint(2, most), len(events)) - 1))
    return [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def shuffles(captured: Iterable[Captured], number: int, most: int) -> dict[Lane, Batches]:
    """Some shuffles of each."""
    return {lane: cut(lane, most) for lane in (Lane(one, seed) for one in captured for seed in range(number))}


def applied(
    spark, directory: Path, lanes: Mapping[Lane, Batches], history: bool
) -> tuple[TrinityTable, list[MergeResult]]:
    """A table that got the first batch of each lane in one merge, then the second of each, and so on.

    Each lane has other keys, as if it had a table to itself. But a truncate is of all lanes.
    """
    keys = {"primaryKey": KEY, "watermarkKey": "seq", "tombstoneKey": None, "history": history}
    table = new_table(spark, directory, COLUMNS, **keys)
    results = []
    for batches in zip_longest(*lanes.values(), fillvalue=[]):
        events = [(lane, event) for lane, batch in zip(lanes, batches, strict=True) for event in batch]
        old_keys = [lane.row(e.was, {})[:3] for lane, e in events]
        rows = [
            (*lane.row(e.key, e.values), e.seq, e.op, [*e.unchanged] or None, *old)
            for (lane, e), old in zip(events, old_keys, strict=True)
        ]
        old_key = [f"was_{name}" for name in KEY]
        kinds = f"{COLUMNS}, op STRING, unchanged ARRAY<STRING>, was_lane STRING, was_number BIGINT, was_part STRING"
        source = as_they_are(spark, rows, StructType.fromDDL(kinds))
        merge = table.applyChanges(
            source,
            applyAsDeletes="op = 'delete'",
            applyAsTruncates="op = 'truncate'" if any(e.op == "truncate" for _, e in events) else None,
            unchanged="unchanged" if any(e.unchanged for _, e in events) else None,
            movedFrom=old_key if any(e.was for _, e in events) else None,
            exceptColumns=["op", "unchanged", *old_key],
        )
        results.append(merge.execute())
    return table, results


def assert_ends_as_the_database(
    spark, directory: Path, lanes: Mapping[Lane, Batches], history: bool
) -> list[MergeResult]:
    """With history, all versions are those of one batch in order, and these are the replay's."""
    table, results = applied(spark, directory, lanes, history)
    ends = {lane.captured: of_database(lane.captured) for lane in lanes}
    found = table.toDF().select(*KEY, "body", "rest")
    if history:
        assertRows(found, [lane.row(*item) for lane in lanes for item in ends[lane.captured].items()])
    else:
        unknown = {tuple(row) for row in found.where("body IS NULL").select(*KEY).collect()}
        assertRows(found, [row_without(unknown, lane, *item) for lane in lanes for item in ends[lane.captured].items()])
    if history:
        ordered = {Lane(captured): [in_order(Lane(captured))] for captured in ends}
        assert_versions(applied(spark, directory, ordered, history)[0], ordered)
        assert_versions(table, lanes)
    return results


def row_without(unknown: set[tuple[Any, ...]], lane: Lane, key: Key, values: Values) -> tuple[Any, ...]:
    """The row, without its body if that is unknown and may be."""
    may_be = (lane.name, *key) in unknown and key[0] in KEYS_THAT_CAME_BACK.get(lane.captured, ())
    return lane.row(key, values | {"body": None} if may_be else values)


def assert_versions(table: TrinityTable, lanes: Iterable[Lane]) -> None:
    versions = {lane: replayed(events_of(lane.captured)) for lane in lanes}
    found = table.versions().select(*KEY, "body", "rest", "validFrom", "validTo")
    assertRows(found, [(*lane.row(k, values), *span) for lane, some in versions.items() for k, values, *span in some])


# Tests ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("captured", [*PARTIAL, *WHOLE, *TRUNCATED], ids=", ".join)
def test_U1_U7_one_pass_in_order_ends_as_the_database(captured):
    found = {key: values for key, values, _, to in replayed(events_of(captured)) if to is None}
    assert found == of_database(captured)


def test_U7_without_old_keys_bodies_are_lost():
    for captured, lost in BODIES_OF_OLD_KEYS.items():
        events = [
            e for one in events_of(captured) for e in ([Event("delete", one.seq, one.was, {}, [])] if one.was else [])
        ]
        events += [one._replace(was=None) for one in events_of(captured)]
        found = {key: values for key, values, _, to in replayed(events) if to is None}
        wanted = of_database(captured)
        assert {key[0] for key in wanted if found[key] != wanted[key]} == lost


LONG = [(False, 20, 6), (True, 20, 6)]
QUICK = [(False, 5, 3), (True, 5, 4)]


@pytest.mark.parametrize(("history", "number", "most"), quickly([*QUICK, *LONG], QUICK))
def test_U1_unchanged_columns_in_any_order_and_batches_end_as_the_database(spark, tmp_path, history, number, most):
    results = assert_ends_as_the_database(spark, tmp_path, shuffles(PARTIAL, number, most), history)
    assert len(results) == most
    assert any(result.rowsMended for result in results)


@pytest.mark.long
@pytest.mark.parametrize(("captured", "seed"), list(product(PARTIAL, range(5))), ids=str)
def test_U1_a_shuffle_alone_ends_as_the_database(spark, tmp_path, captured, seed):
    """Its small batches may have no partial event."""
    lane = Lane(captured, seed)
    assert_ends_as_the_database(spark, tmp_path, {lane: cut(lane, 6)}, history=seed % 2 == 0)


@pytest.mark.parametrize("history", quickly([False, True], [True]))
def test_U4_whole_rows_that_come_last_mend_the_others(spark, tmp_path, history):
    lanes = {
        lane: [[e for e in shuffled(lane) if e.unchanged], [e for e in shuffled(lane) if not e.unchanged]]
        for lane in map(Lane, PARTIAL)
    }
    first, last = assert_ends_as_the_database(spark, tmp_path, lanes, history)
    assert (first.columnsUnknown, first.strategy) == (sum(len(some) for some, _ in lanes.values()), "keyed lookup")
    assert (last.rowsMended > 0, last.strategy) == (True, "keyed lookup")


@pytest.mark.parametrize(("history", "number", "most"), quickly([QUICK[1], *LONG], QUICK))
def test_U3_whole_rows_in_any_order_and_batches_end_as_the_database_without_lookups(
    spark, tmp_path, history, number, most
):
    results = assert_ends_as_the_database(spark, tmp_path, shuffles(WHOLE, number, most), history)
    assert [result.strategy for result in results] == ["blind append"] * most


@pytest.mark.parametrize(
    ("captured", "seed"), quickly(product(TRUNCATED, range(20)), list(zip(TRUNCATED, [0, 1, 2], strict=True))), ids=str
)
def test_T1_truncated_tables_in_any_order_and_batches_end_as_the_database(spark, tmp_path, captured, seed):
    lane = Lane(captured, seed)
    assert_ends_as_the_database(spark, tmp_path, {lane: cut(lane, 6)}, history=seed % 2 == 0)
