"""How much of everything: the quick size checks that the harness works, the full size is what the bars are about."""

from __future__ import annotations

import attrs


@attrs.frozen
class Size:
    """Rows and repetitions of a run.

    Attributes:
        name: `quick` or `full`.
        rows: of the table that most sections merge into.
        flat: table sizes that a merge's time must not depend on (P2).
        changes: rows of one batch of changes.
        orders: rows of the history table (P6).
        orders_a_day: updates a day, and as many inserts (P6).
        days: days of one repetition (P6).
        pending_base: rows below the pending batches (P7).
        pending: pending batches (P7).
        pending_rows: rows of each (P7).
        few_changes: changed keys that are few (P8).
        steady: merges into the table that is merged into again and again (P9).
        steady_read: a full read comes after every so many of them (P9).
        steady_rewrites: Iceberg's rewrites come after every so many of them: often, or rarely (P9).
        micro_batches: of a stream (P12).
        micro_batch_rows: rows of each (P12).
        feed_rows: rows of the table that a feed's messages are merged into (P15).
        feed_messages: messages of a micro-batch (P15).
        warm_ups: repetitions that are thrown away.
        repetitions: of merges and reads against a peer.
        cheap_repetitions: of what takes a second or two.
        slow_repetitions: of what takes many.
        driver_memory: of the JVM that all Spark contestants share.
    """

    name: str
    rows: int
    flat: tuple[int, ...]
    changes: int
    orders: int
    orders_a_day: int
    pending_base: int
    pending: int
    pending_rows: int
    few_changes: int
    steady: int
    steady_read: int
    steady_rewrites: tuple[int, int]
    micro_batches: int
    micro_batch_rows: int
    feed_rows: int
    feed_messages: int
    warm_ups: int
    repetitions: int
    cheap_repetitions: int
    slow_repetitions: int
    driver_memory: str
    days: int = 3


QUICK = Size(
    name="quick",
    rows=250_000,
    flat=(50_000, 250_000, 1_000_000),
    changes=1_000,
    orders=500_000,
    orders_a_day=500,
    pending_base=50_000,
    pending=40,
    pending_rows=50,
    few_changes=100,
    steady=20,
    steady_read=5,
    steady_rewrites=(5, 10),
    micro_batches=20,
    micro_batch_rows=10,
    feed_rows=50_000,
    feed_messages=200,
    warm_ups=2,
    repetitions=3,
    cheap_repetitions=5,
    slow_repetitions=1,
    driver_memory="2g",
)

FULL = Size(
    name="full",
    rows=5_000_000,
    flat=(1_000_000, 5_000_000, 20_000_000),
    changes=20_000,
    orders=10_000_000,
    orders_a_day=10_000,
    pending_base=1_000_000,
    pending=200,
    pending_rows=1_000,
    few_changes=100,
    steady=100,
    steady_read=10,
    steady_rewrites=(10, 50),
    micro_batches=1_000,
    micro_batch_rows=10,
    feed_rows=1_000_000,
    feed_messages=1_000,
    warm_ups=3,
    repetitions=7,
    cheap_repetitions=15,
    slow_repetitions=4,
    driver_memory="8g",
)

SIZES = {size.name: size for size in (QUICK, FULL)}
