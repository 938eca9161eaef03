"""What tables need beside merges: steady work with all that it brings (P9), and compaction (P10)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession

from benchmarks import data
from benchmarks.contestants import EVERYTHING, Compacting, PeerTable, link_copy
from benchmarks.report import seconds
from benchmarks.results import AtMost, Comparison, Faster, Result, Series
from benchmarks.sections.chains import CDC_SQL, cdc
from benchmarks.sections.shared import OURS, answer_of, measure, with_batches
from benchmarks.session import has_delta
from benchmarks.steady import Steady
from benchmarks.workbench import Workbench
from trinitymerge import TrinityTable


def p9(bench: Workbench) -> Result:
    """Merging again and again, with reads between and whatever maintenance that takes."""
    size = bench.size
    ours, *peers = contestants = _steady(bench)
    race = bench.race()
    race.run(contestants, 1, size.steady // size.steady_read)
    race.compare({c.name: answer_of(c.table.rows()) for c in contestants})
    icebergs = [peer for peer in peers if peer.name.startswith("Iceberg")]
    best = min(icebergs, key=lambda peer: peer.total)
    return Result(
        "P9",
        f"{size.steady} merges of {size.changes:,} changes into {size.rows:,} rows, a full read after every "
        f"{size.steady_read}",
        size.name,
        series=[series for contestant in contestants for series in _parts(contestant)],
        comparisons=[
            Comparison(
                f"{size.steady} merges and {len(ours.reads)} reads, maintenance included",
                ours.name,
                best.name,
                Faster(5),
            ),
            Comparison(
                "a full read",
                f"{ours.name}: a full read",
                f"{_fastest_reader(icebergs).name}: a full read",
                AtMost(1.6),
            ),
        ],
        notes=[
            *map(_sums, contestants),
            "The total is that of all merges, reads and rewrites; held against ours is the Iceberg with the smallest. The "
            "merges are those of P1, each of another file.",
            "Ours has default properties and is never asked for maintenance: what merges do of it counts as theirs.",
            "Iceberg's rewrites are `rewrite_data_files` of small files and of all that have deletes, with the size of the files "
            "as loaded for a target, so that reads stay parallel; then `rewrite_position_delete_files`. They come before the "
            "read, which gains from them.",
            "Delta Lake, where it is among the peers, has deletion vectors; its rewrites are `OPTIMIZE`. There, both peers "
            "are rewritten often, which was best for Iceberg on PySpark 3.5.",
            f"Contestants take turns after every {size.steady_read} merges. What is read is compared each time, and all rows "
            "at the end.",
        ],
        answers_compared=race.answers_compared,
    )


def _fastest_reader(peers: Sequence[Steady]) -> Steady:
    return min(peers, key=lambda peer: sum(peer.reads))


def _steady(bench: Workbench) -> list[Steady]:
    """Ours, then the peers: without maintenance and with more or less of it, or two peers with frequent maintenance only."""
    size = bench.size
    files = [bench.changes(size.rows, batch) for batch in range(size.steady)]
    stretches = [files[at : at + size.steady_read] for at in range(0, size.steady, size.steady_read)]
    ours = OurSteadyTable(bench.spark, bench.ours(size.rows), bench.path("ours/steady"))
    contestants = [Steady(OURS, ours, stretches)]
    peers = {"Iceberg": bench.iceberg, "Delta Lake": bench.delta}
    often, rarely = size.steady_rewrites
    for (peer, load), every in product(peers.items(), (often,) if has_delta() else (None, often, rarely)):
        table = load(size.rows, f"_steady_{every or 0}")
        if table is not None:
            how = "never rewritten" if every is None else f"rewritten after every {every} merges"
            contestants.append(Steady(f"{peer}, {how}", PeerSteadyTable(table), stretches, table.rewrite, every))
    return contestants


def _parts(contestant: Steady) -> list[Series]:
    """The total, and what it is made of."""
    parts = {"a merge": contestant.merges, "a rewrite": contestant.upkeeps, "a full read": contestant.reads}
    named = [Series(f"{contestant.name}: {part}", times) for part, times in parts.items() if times]
    return [Series(contestant.name, [contestant.total]), *named]


def _sums(contestant: Steady) -> str:
    rewrites = f"rewrites {seconds(sum(contestant.upkeeps))}, " if contestant.upkeeps else ""
    return (
        f"{contestant.name}: {seconds(contestant.total)} in all; merges {seconds(sum(contestant.merges))}, {rewrites}reads "
        f"{seconds(sum(contestant.reads))}; the slowest merge {seconds(max(contestant.merges))}."
    )


@attrs.define(eq=False)
class OurSteadyTable:
    """Ours, opened once; what it needs besides merges, merges do."""

    spark: SparkSession
    pristine: Path
    scratch: Path
    _table: TrinityTable | None = None

    def reset(self) -> None:
        """A fresh copy, opened."""
        link_copy(self.pristine, self.scratch)
        self._table = TrinityTable.forPath(self.spark, str(self.scratch))

    def merge(self, changes: Path) -> None:
        """Merges a file of changes."""
        cdc(self._table, data.read(self.spark, data.CHANGES, changes)).execute()

    def rows(self) -> DataFrame:
        """The live rows."""
        return self._table.toDF()


@attrs.define(eq=False)
class PeerSteadyTable:
    """A peer's, with the same clauses."""

    table: PeerTable

    def reset(self) -> None:
        """Back to the first snapshot."""
        self.table.reset()

    def merge(self, changes: Path) -> None:
        """Merges a file of changes."""
        self.table.merge(changes, CDC_SQL)

    def rows(self) -> DataFrame:
        """The live rows."""
        return self.table.rows()


_PENDING = 5


def p10(bench: Workbench) -> Result:
    """Compacting a large table of which only the newest rows have changed."""
    size, rows = bench.size, bench.size.flat[-1]
    pristine, scratch = bench.path("ours/newest"), bench.path("ours/scratch-newest")
    files = [bench.newest_changes(rows, batch) for batch in range(_PENDING)]
    with_batches(bench, bench.compacted(rows), files, pristine)
    selective, everything = f"{OURS}, compact()", f"{OURS}, compact(full=True)"
    notes = [
        "Timed: the call. Every repetition starts from a copy of a table that was compacted before the changes.",
        f"Keys are numbers that grow: {_PENDING} merges of {size.changes:,} changes update and delete rows among the newest 1 %, "
        "and insert rows after them.",
    ]
    if not EVERYTHING:
        notes.append(
            "compact(full=True) is not available yet: compact() rewrites everything, and is held against itself."
        )
    contestants = [
        Compacting(selective, bench.spark, pristine, scratch, {}),
        Compacting(everything, bench.spark, pristine, scratch, EVERYTHING),
    ]
    result = Result(
        "P10",
        f"compacting {rows:,} rows of growing keys after changes to the newest 1 %",
        size.name,
        comparisons=[
            Comparison(
                f"compact() after changes to the newest 1 % of {rows:,} rows", selective, everything, Faster(10)
            ),
        ],
        notes=notes,
    )
    return measure(bench, result, contestants, 1, size.slow_repetitions)
