"""The smallest lane that still differs: what a failed property shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from trinitymerge.testing import KeyEquality, MergeCase


def smallest(cases: Sequence[MergeCase], differs: Callable[[list[MergeCase]], str]) -> tuple[MergeCase, str]:
    """One lane with as few rows and clauses as still differ, and what differs.

    Args:
        cases: lanes of one program that differ together.
        differs: says what differs for some lanes, or nothing.
    """
    lanes = list(cases)
    while len(lanes) > 1:
        half = lanes[: len(lanes) // 2]
        lanes = half if differs(half) else lanes[len(lanes) // 2 :]
    case, text = lanes[0], differs(lanes)
    if not text:
        return case, "the lanes differ only together"
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            now = differs([smaller])
            if now:
                case, text, found = smaller, now, True
                break
    return case, text


def _smaller(case: MergeCase) -> Iterator[MergeCase]:
    for n in range(len(case.clauses)):
        if len(case.clauses) > 1:
            yield attrs.evolve(case, clauses=_without(case.clauses, n))
    for n in range(len(case.source_rows)):
        yield attrs.evolve(case, source_rows=_without(case.source_rows, n))
    for b in range(len(case.batches)):
        yield attrs.evolve(case, batches=_without(case.batches, b))
    for b, batch in enumerate(case.batches):
        for n in range(len(batch)):
            yield attrs.evolve(case, batches=(*case.batches[:b], _without(batch, n), *case.batches[b + 1 :]))


def _without(items: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    return items[:n] + items[n + 1 :]


def as_text(case: MergeCase) -> str:
    """A case as a reader of a failed test wants to see it."""
    own = case.definition
    lines = [
        f"columns: {', '.join(f'{f.name} {f.text}' + ('' if f.nullable else ' not null') for f in own.fields)}",
        f"keys: {own.primaryKey}, {own.watermarkKey}, {own.tombstoneKey} {own.tombstoneStringValue or ''}",
        *[f"batch {n}: {row}" for n, batch in enumerate(case.batches, 1) for row in batch],
        f"source: {', '.join(f'{f.name} {f.text}' for f in case.source_schema)}",
        *[f"  {row}" for row in case.source_rows],
        f"on {case.condition.sql}{' (key equality)' if isinstance(case.condition, KeyEquality) else ''}, {case.on_stale}",
        *[f"  {clause}" for clause in case.engine_clauses],
    ]
    return "\n".join(lines)
