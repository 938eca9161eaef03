"""Partial change events, and what is left of them by one pass in order: an oracle of a few lines (U1)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from tables import frame

COLUMNS = ("a", "b", "c")
"""The columns of an event beside its key ``id``, its sequence ``ts``, ``op`` (U, D or T), ``unset``, a list of names, and ``was``,
the old key of a row whose key has changed."""

Event = Mapping[str, Any]


def event(
    id: int | None,
    ts: int,
    a: Any = None,
    b: Any = None,
    c: Any = None,
    op: str = "U",
    unset: Any = None,
    was: int | None = None,
) -> Event:
    """One event. A truncate has no key."""
    return {"id": id, "ts": ts, "a": a, "b": b, "c": c, "op": op, "unset": unset, "was": was}


SIX = [
    event(1, 10, "a1", "b1", "c1"),
    event(1, 20, "a2", op="U", unset=["b", "c"]),
    event(1, 30, None, "b3", unset=["c"]),
    event(1, 40, op="D"),
    event(1, 50, "a5", unset=["b", "c"]),
    event(1, 60, c="c6", unset=["a", "b"]),
]
"""Events of one key, in order."""


def versions(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Return ``(id, ts, a, b, c, end)`` of each row version, by one pass over the events in their order."""
    found: dict[int, list[list[Any]]] = {}
    known: dict[int, dict[str, Any]] = {}
    ordered = sorted(events, key=lambda e: e["ts"])
    for one in ordered:
        for key in [one["id"]] if one["op"] != "T" else [*found]:
            if one["was"] not in (None, key):
                known[key] = known.pop(one["was"], dict.fromkeys(COLUMNS))
                old = found.get(one["was"], [])
                if old and old[-1][-1] is None:
                    old[-1][-1] = one["ts"]
            rows, values = found.setdefault(key, []), known.setdefault(key, dict.fromkeys(COLUMNS))
            if rows and rows[-1][-1] is None:
                if rows[-1][1] == one["ts"]:  # the same event again
                    rows.pop()
                else:
                    rows[-1][-1] = one["ts"]
            if one["op"] == "U":
                values.update({name: one[name] for name in COLUMNS if name not in (one["unset"] or ())})
                rows.append([key, one["ts"], *(values[name] for name in COLUMNS), None])
            else:
                known[key] = dict.fromkeys(COLUMNS)
    return sorted((tuple(row) for rows in found.values() for row in rows), key=lambda row: row[:2])


def live(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Return ``(id, ts, a, b, c)`` of each live row."""
    return [row[:-1] for row in versions(events) if row[-1] is None]


def stream(
    rnd: random.Random,
    keys: int,
    each: int,
    deletes: float,
    truncates: int = 0,
    nulls: float = 0.25,
    moves: float = 0.0,
    returns: bool = True,
) -> list[Event]:
    """Return events with different sequences, in order.

    Args:
        rnd: what chooses.
        keys: how many, at the beginning.
        each: how many events each of them has.
        deletes: the share of deletes.
        truncates: how many.
        nulls: the share of nulls among the values.
        moves: the share of rows whose key changes.
        returns: they take keys that there have been, and events may come back to the keys that they leave.
    """
    ids = [*range(keys)]
    moments = rnd.sample(range(1, 10 * keys * each), keys * each + truncates)
    cut = {*rnd.sample(moments, truncates)}
    owners = [key for key in range(keys) for _ in range(each)]
    rnd.shuffle(owners)
    found = []
    for ts in sorted(moments):
        if ts in cut:
            found.append(event(None, ts, op="T"))
            continue
        values = [None if rnd.random() < nulls else f"{name}{ts}" for name in COLUMNS]
        unset = rnd.choice([None, [], ["a"], ["b"], ["a", "b"], ["A", "b", "c"]])
        op, owner = "D" if rnd.random() < deletes else "U", owners.pop()
        key, was = ids[owner], None
        if op == "U" and rnd.random() < moves:
            was, key = key, rnd.randrange(keys) if returns else keys + len(found)
            ids[owner] = ids[owner] if returns else key
        unset = [name.lower() for name in unset or ()] or unset
        found.append(event(key, ts, *values, op=op, unset=unset, was=was))
    return found


def batches(rnd: random.Random, events: Sequence[Event], count: int, repeated: float = 0.0) -> list[list[Event]]:
    """Return the events in any order, some of them twice, cut into batches."""
    again = [one for one in events if one["op"] != "T" and rnd.random() < repeated]
    order = rnd.sample([*events, *again], len(events) + len(again))
    cuts = sorted(rnd.choices(range(len(order) + 1), k=count - 1))
    return [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]


def every_batching(events: Sequence[Event]) -> Iterator[list[Sequence[Event]]]:
    """All ways to cut a sequence of events into batches."""
    for count in range(len(events)):
        for cuts in combinations(range(1, len(events)), count):
            yield [events[start:end] for start, end in zip((0, *cuts), (*cuts, len(events)), strict=True)]


# On tables ------------------------------------------------------------------------------------------------------------

SCHEMA = "id INT, ts INT, a STRING, b STRING, c STRING"
EVENTS = f"{SCHEMA}, op STRING, unset ARRAY<STRING>, was INT"


def feed(table, *events, **options):
    """The merge of events: not run yet."""
    rows = frame(table._store.spark, EVENTS, *[tuple(one.values()) for one in events])
    options = {"unchanged": "unset", "applyAsDeletes": "op = 'D'", "exceptColumns": ["op", "unset", "was"], **options}
    if any(one["was"] is not None for one in events):
        options = {"movedFrom": "was", **options}
    return table.applyChanges(rows, **options)


def apply(table, *events, **options):
    """The result of a merge of events."""
    return feed(table, *events, **options).execute()


def rows(table):
    """``(id, ts, a, b, c)`` of each live row."""
    return sorted(tuple(row) for row in table.toDF().select("id", "ts", *COLUMNS).collect())


def told(table):
    """``(id, ts, a, b, c, end)`` of each row version."""
    shown = table.versions().select("id", "validFrom", *COLUMNS, "validTo")
    return sorted((tuple(row) for row in shown.collect()), key=lambda row: row[:2])
