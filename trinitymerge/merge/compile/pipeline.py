"""The steps of every merge, in order: from fired clauses to rows that say what they mean (S10-S12, S17-S26).

Owns: that order. What is left out afterwards (purged keys, updates that change nothing) is so in ``MergePlan.rows_on``.
Reads nothing itself, but for the probe in its middle, which is handed a function that looks keys up; writes
nothing, decides no path. The rows it begins with are the joined sides (``sides.py``), or the source alone.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from trinitymerge.columns import IN_SOURCE, LIVE
from trinitymerge.merge.compile import steps
from trinitymerge.merge.compile.firing import FIRE
from trinitymerge.merge.compile.probing import columns_of_probe, probe_text
from trinitymerge.merge.compile.program import Program, before_watermarks
from trinitymerge.merge.compile.settling import ARRIVE, CONCLUDE, DATE, MEET, TEAR, WITHHOLD
from trinitymerge.merge.compile.shaping import BARE, EVALUATE, SHAPE, SPREAD
from trinitymerge.merge.compile.steps import Step

WRITING: tuple[Step, ...] = (EVALUATE, SPREAD, SHAPE, BARE)
"""From fired clauses to rows with the stored columns."""

SETTLING: tuple[Step, ...] = (MEET, DATE, WITHHOLD, TEAR, ARRIVE, CONCLUDE)
"""From there, and from what the probe has found where a program has a use for one, to what each row means."""


def on_entry(program: Program) -> tuple[str, ...]:
    """The library's columns that the joined sides have."""
    return (IN_SOURCE, LIVE, *before_watermarks(program.definition)) if program.knows_target else (IN_SOURCE,)


def fire(rows: DataFrame, program: Program) -> DataFrame:
    """The rows on which clauses fire."""
    return steps.run((FIRE,), rows, program, on_entry(program))[0]


def settled(fired: DataFrame, program: Program, ask: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """The rows that a program writes.

    Args:
        fired: what :func:`fire` gives.
        program: the merge.
        ask: adds what the written keys hold; asked only where the join does not tell.
    """
    rows, present = steps.run(WRITING, fired, program, (*on_entry(program), *FIRE.adds(program)))
    if program.unknown:
        rows, present = ask(rows), (*present, *columns_of_probe(program))
    return steps.run(SETTLING, rows, program, present, fused=True)[0]


def as_text(source: str, program: Program) -> str:
    """The whole as SQL, to be read and not to be run elsewhere: see :meth:`trinitymerge.merge.run.plan.MergePlan.sql`."""
    query, present = steps.text((FIRE, *WRITING), source, program, on_entry(program))
    if program.unknown:
        query, present = probe_text(query, program), (*present, *columns_of_probe(program))
    return steps.text(SETTLING, query, program, present)[0]
