"""Single merges: by key (P1-P4), of a few keys (P8), and with many clauses (P11)."""

from __future__ import annotations

import attrs

from benchmarks.contestants import DELTA, ICEBERG, OursMerging, PlainAppend, SqlMerging
from benchmarks.results import AtMost, Chart, Comparison, Faster, Result
from benchmarks.sections.chains import ACCUMULATE_SQL, CDC_SQL, accumulate, cdc, many_clauses
from benchmarks.sections.shared import OURS, TIMED, answer_of, measure, point
from benchmarks.single_machine import DeltaRsMerging, DuckDBMerging
from benchmarks.workbench import Workbench


def p1(bench: Workbench) -> Result:
    """CDC by key against Iceberg, and against two engines outside of Spark."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.repetitions)
    few = size.warm_ups + size.slow_repetitions + 1
    duck = DuckDBMerging(
        "DuckDB MERGE INTO",
        bench.spark,
        bench.path("duckdb/pristine.db"),
        bench.path("duckdb/scratch.db"),
        batches,
        few,
    )
    delta = DeltaRsMerging(
        "delta-rs merge", bench.spark, bench.path("delta/pristine"), bench.path("delta/scratch"), batches, few
    )
    for peer in (duck, delta):
        peer.load(bench.events(size.rows))
    contestants = [
        bench.ours_merging(OURS, size.rows, cdc, batches),
        bench.iceberg_merging(ICEBERG, size.rows, CDC_SQL, batches),
        *bench.delta_merging(DELTA, size.rows, CDC_SQL, batches),
        duck,
        delta,
    ]
    result = Result(
        "P1",
        f"CDC upsert and delete by key, {size.changes:,} changes into {size.rows:,} rows",
        size.name,
        comparisons=[
            Comparison(f"CDC, {size.changes:,} changes into {size.rows:,} rows", OURS, ICEBERG, Faster(10)),
        ],
        notes=[
            TIMED,
            "Of 100 changes 79 update, 10 insert, 10 delete, and 1 deletes what does not exist; their keys are spread over "
            "the whole table.",
            "DuckDB and delta-rs run in this process, outside of Spark, and have no bar: DuckDB changes its file in place, "
            "delta-rs rewrites files.",
        ],
    )
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


def p2(bench: Workbench) -> Result:
    """The same batch into small and large tables."""
    size = bench.size
    ours = [f"{OURS}, {rows:,} rows" for rows in size.flat]
    peers = [f"{ICEBERG}, {rows:,} rows" for rows in size.flat]
    contestants = [
        bench.ours_merging(name, rows, cdc, bench.one_batch(rows, size.warm_ups + size.cheap_repetitions))
        for name, rows in zip(ours, size.flat, strict=True)
    ]
    result = Result(
        "P2",
        f"{size.changes:,} changes into tables of {', '.join(f'{rows:,}' for rows in size.flat)} rows",
        size.name,
        comparisons=[Comparison("time flat from the smallest table to the largest", ours[-1], ours[0], AtMost(1.1))],
        notes=[
            TIMED,
            "Iceberg is measured afterwards, with fewer repetitions, for the chart; it has no bar here.",
            "Ours and Iceberg's rows are compared at every size, after the last batch that both have merged.",
        ],
    )
    for contestant in contestants:
        contestant.compared = False  # tables of different sizes have different rows
    result = measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)
    for name, rows in zip(peers, size.flat, strict=True):
        batches = bench.one_batch(rows, 1 + size.slow_repetitions)
        peer = bench.iceberg_merging(name, rows, CDC_SQL, batches)
        result = _with_iceberg(bench, result, peer, bench.ours_merging(OURS, rows, cdc, batches))
    named = {s.name: s for s in result.series}
    lines = {
        line: tuple(point(rows, named[name]) for rows, name in zip(size.flat, names, strict=True))
        for line, names in ((OURS, ours), (ICEBERG, peers))
    }
    chart = Chart(f"Merging {size.changes:,} changes", "rows in the table", "seconds", lines)
    return attrs.evolve(result, chart=chart)


def _with_iceberg(bench: Workbench, result: Result, peer: SqlMerging, ours: OursMerging) -> Result:
    """Adds Iceberg's times, and compares its rows with ours after the last batch it has merged."""
    last = bench.size.slow_repetitions
    peer.compared = False
    result = measure(bench, result, [peer], 1, last)
    ours.prepare(last)
    ours.run(last)
    race = bench.race()
    race.compare({ours.name: ours.answer(), peer.name: answer_of(peer.table.rows())})
    return attrs.evolve(result, answers_compared=result.answers_compared + race.answers_compared)


def p3(bench: Workbench) -> Result:
    """What the semantics of P1 cost on top of appending."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.cheap_repetitions)
    plain = "Spark appends the same file"
    ours = bench.ours_merging(OURS, size.rows, cdc, batches)
    ours.compared = False
    scratch = bench.path("plain/scratch")
    contestants = [ours, PlainAppend(plain, bench.spark, bench.events(size.rows), scratch, batches)]
    result = Result(
        "P3",
        "the merge of P1 against appending its source as plain Parquet, without any semantics",
        size.name,
        comparisons=[
            Comparison("the merge of P1 against a plain append", OURS, plain, AtMost(1.6)),
        ],
        notes=[
            TIMED,
            "There is no answer to compare: what was appended is not merged. P1 compares that of the merge.",
        ],
    )
    return measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)


def p4(bench: Workbench) -> Result:
    """A merge that must read the target."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.repetitions)
    contestants = [
        bench.ours_merging(OURS, size.rows, accumulate, batches),
        bench.iceberg_merging(ICEBERG, size.rows, ACCUMULATE_SQL, batches),
        *bench.delta_merging(DELTA, size.rows, ACCUMULATE_SQL, batches),
    ]
    result = Result(
        "P4",
        "a merge whose clause reads the target: amounts are added to those the table has",
        size.name,
        comparisons=[
            Comparison(f"amounts added up, {size.changes:,} changes into {size.rows:,} rows", OURS, ICEBERG, Faster(3)),
        ],
        notes=[TIMED],
    )
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)


def p8(bench: Workbench) -> Result:
    """A few keys, changed by a merge that reads the target, in a small and in a large table."""
    size = bench.size
    small, large = size.flat[0], size.flat[-1]
    name = {rows: f"{OURS}, {rows:,} rows" for rows in (small, large)}
    batches = {rows: bench.a_few_changes(rows, size.warm_ups + size.cheap_repetitions) for rows in (small, large)}
    tables = {rows: bench.compacted(rows) for rows in (small, large)}
    contestants = [bench.merging_into(tables[rows], name[rows], accumulate, batches[rows]) for rows in (small, large)]
    peer = bench.iceberg_merging(f"{ICEBERG}, {large:,} rows", large, ACCUMULATE_SQL, batches[large])
    result = Result(
        "P8",
        f"amounts added to {size.few_changes:,} rows of compacted tables of {small:,} and {large:,} rows",
        size.name,
        comparisons=[
            Comparison(
                f"{size.few_changes:,} keys, {large:,} rows against {small:,}", name[large], name[small], AtMost(1.5)
            ),
            Comparison(f"{size.few_changes:,} keys, {large:,} rows", name[large], peer.name, Faster(8)),
        ],
        notes=[
            TIMED,
            "The changed keys are random, one of each stretch of the table, and all of them exist; the clause needs the amount "
            "that the table has.",
            "Our tables are compacted before, so that each file holds a range of keys; Iceberg's has the files it was loaded "
            "with, which do as well.",
            "Iceberg is measured afterwards, with fewer repetitions. Rows are compared after the last batch that both have "
            "merged.",
        ],
    )
    for contestant in contestants:
        contestant.compared = False  # tables of different sizes have different rows
    result = measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)
    return _with_iceberg(bench, result, peer, bench.merging_into(tables[large], OURS, accumulate, batches[large]))


_FEW, _MANY = 3, 60


def p11(bench: Workbench) -> Result:
    """A merge with many clauses."""
    size = bench.size
    batches = bench.one_batch(size.rows, size.warm_ups + size.repetitions)
    few, many = (f"{OURS}, {clauses} clauses" for clauses in (_FEW, _MANY))
    contestants = [
        bench.ours_merging(few, size.rows, many_clauses(_FEW), batches),
        bench.ours_merging(many, size.rows, many_clauses(_MANY), batches),
    ]
    result = Result(
        "P11",
        f"a merge that reads the target, with {_MANY} clauses instead of {_FEW}, {size.changes:,} changes into "
        f"{size.rows:,} rows",
        size.name,
        comparisons=[Comparison(f"{_MANY} clauses against {_FEW}", many, few, AtMost(12))],
        notes=[TIMED, "Timed too: building the merge from its clauses. Both come to the same rows."],
    )
    return measure(bench, result, contestants, size.warm_ups, size.repetitions)
