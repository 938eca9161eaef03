"""Partial change events, and what is left of them by one pass in order: an oracle of a few lines (U1)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

COLUMNS = ("a", "b", "c")
"""The columns of an event beside its key ``id``, its sequence ``ts``, ``op`` (U, D or T) and ``unset``, a list of names."""

Event = Mapping[str, Any]


def event(
    id: int | None, ts: int, a: Any = None, b: Any = None, c: Any = None, op: str = "U", unset: Any = None
) -> Event:
    """One event. A truncate has no key."""
    return {"id": id, "ts": ts, "a": a, "b": b, "c": c, "op": op, "unset": unset}


def versions(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Return ``(id, ts, a, b, c, end)`` of each row version, by one pass over the events in their order."""
    found: dict[int, list[list[Any]]] = {}
    known: dict[int, dict[str, Any]] = {}
    ordered = sorted(events, key=lambda e: e["ts"])
    for one in ordered:
        for key in [one["id"]] if one["op"] != "T" else [*found]:
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
    rnd: random.Random, keys: int, each: int, deletes: float, truncates: int = 0, nulls: float = 0.25
) -> list[Event]:
    """Return events with different sequences, in order."""
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
        op = "D" if rnd.random() < deletes else "U"
        found.append(event(owners.pop(), ts, *values, op=op, unset=[name.lower() for name in unset or ()] or unset))
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
