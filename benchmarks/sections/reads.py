"""Reading after merges: a few batches (P5), local ones (P5h), a fifth of all rows (P5d), and many small ones (P7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from benchmarks import data
from benchmarks.contestants import ICEBERG, Reading, link_copy
from benchmarks.race import Contestant
from benchmarks.results import AtMost, Chart, Comparison, Points, Result
from benchmarks.sections.chains import CDC_SQL, accumulate, cdc
from benchmarks.sections.shared import OURS, answer_of, measure, point, with_batches
from benchmarks.workbench import Properties, Workbench
from trinitymerge import TrinityTable
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.schema.properties import check_properties

_PENDING = 5

_FOLDED = 17
"""The merges after which a minor compaction runs by default."""

_SHARE = 5
"""Of so many rows one is replaced (P5d)."""

UNFOLDED: Properties = (("trinitymerge.minorCompactionAfterBatches", "none"),)
"""Turns off that merges fold small batches into one (P7)."""


def p5(bench: Workbench) -> Result:
    """Reading a table with pending batches, and the same table compacted."""
    size, spark = bench.size, bench.spark
    batches = [bench.changes(size.rows, batch) for batch in range(_PENDING)]
    merged, compacted = bench.path("ours/merged"), bench.path("ours/compacted")
    table = with_batches(bench, bench.ours(size.rows), batches, merged)
    iceberg = bench.iceberg(size.rows)
    iceberg.reset()
    for batch in batches:
        iceberg.merge(batch, CDC_SQL)
    delta = bench.delta(size.rows)
    if delta is not None:
        delta.reset()
        for batch in batches:
            delta.merge(batch, CDC_SQL)
    base = largest_batch(bench.ours(size.rows))
    alone, pending, after = "Spark scans the base alone", f"{OURS}, {_PENDING} pending batches", f"{OURS}, compacted"
    looked_up, minor = f"{OURS}, {_PENDING} merges that read the target", f"{OURS}, after a minor compaction"
    adding = with_batches(bench, bench.ours(size.rows), batches, bench.path("ours/added"), accumulate)
    folded = with_batches(
        bench, bench.ours(size.rows), [bench.changes(size.rows, b) for b in range(_FOLDED)], bench.path("ours/minor")
    )
    link_copy(merged, compacted)
    compact = TrinityTable.forPath(spark, str(compacted))
    compact.compact()
    contestants = [
        Reading(alone, lambda: data.read(spark, data.EVENTS, base), compared=False),
        Reading(pending, table.toDF),
        Reading(looked_up, adding.toDF, compared=False),
        Reading(minor, folded.toDF, compared=False),
        Reading(f"Iceberg, after {_PENDING} merges", iceberg.rows),
        *([] if delta is None else [Reading(f"Delta Lake, after {_PENDING} merges", delta.rows)]),
        Reading(after, compact.toDF),
    ]
    result = Result(
        "P5",
        f"a full aggregate over all columns of {size.rows:,} rows, after {_PENDING} batches of {size.changes:,} changes",
        size.name,
        comparisons=[
            Comparison(f"read after {_PENDING} batches", pending, alone, AtMost(1.5)),
            Comparison(f"read after {_PENDING} merges that read the target", looked_up, alone, AtMost(1.25)),
            Comparison("read after a minor compaction", minor, alone, AtMost(1.25)),
            Comparison("read after compact()", after, alone, AtMost(1.05)),
        ],
        notes=[
            "The base alone is the Parquet files of our table's first batch, without what was merged since.",
            "Compaction itself is not timed.",
            f"A minor compaction comes after {_FOLDED} merges, and makes deletion vectors.",
        ],
    )
    bench.race().compare({OURS: data.checksum(table.toDF(), data.EVENTS), ICEBERG: answer_of(iceberg.rows())})
    result = attrs.evolve(result, answers_compared=1)
    return measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)


def p5d(bench: Workbench) -> Result:
    """Reading a table of which a fifth has been replaced, with default properties."""
    size, spark = bench.size, bench.spark
    merges = size.rows // _SHARE // size.changes
    files = [bench.changes(size.rows, batch) for batch in range(merges)]
    bench.say(f"    merging {merges} batches")
    table = with_batches(bench, bench.ours(size.rows), files, bench.path("ours/fifth"))
    stored, ours = "Spark scans all stored rows", f"{OURS}, a fifth replaced"
    here = [Path(path.removeprefix("file:")) for path in stored_batches(table)]
    contestants = [
        Reading(stored, lambda: data.read(spark, data.EVENTS, *here), compared=False),
        Reading(ours, table.toDF, compared=False),
    ]
    health = table.health()
    result = Result(
        "P5d",
        f"a full aggregate over all columns of {size.rows:,} rows, after {merges} merges of {size.changes:,} changes",
        size.name,
        comparisons=[Comparison("read with a fifth of the rows replaced", ours, stored, AtMost(1.35))],
        notes=[
            "No maintenance was asked for: minor compactions and deletion vectors are those of the merges.",
            f"Deletion vectors mark {health.markedRows:,} rows; {health.comparedRows:,} are compared.",
        ],
    )
    return measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)


def p5h(bench: Workbench) -> Result:
    """Reading a table whose changes are mostly among its newest rows."""
    size, base = bench.size, bench.compacted(bench.size.rows)
    makers = {"in the newest 1 %": bench.newest_changes, "four of five in the newest 20 %": bench.skewed_changes}
    bars = dict(zip(makers, (AtMost(1.1), AtMost(1.35)), strict=True))
    names = {kind: f"{OURS}, {_PENDING} merges, {kind}" for kind in makers}
    tables = {
        kind: with_batches(bench, base, [make(size.rows, b) for b in range(_PENDING)], bench.path(f"ours/local-{n}"))
        for n, (kind, make) in enumerate(makers.items())
    }
    alone = "Spark scans the base alone"
    segments = [Path(p.removeprefix("file:")) for p in stored_batches(TrinityTable.forPath(bench.spark, str(base)))]
    contestants = [
        Reading(alone, lambda: data.read(bench.spark, data.EVENTS, *segments), compared=False),
        *(Reading(names[kind], table.toDF, compared=False) for kind, table in tables.items()),
    ]
    result = Result(
        "P5h",
        f"a full aggregate over all columns of {size.rows:,} rows, after {_PENDING} batches of {size.changes:,} changes",
        size.name,
        comparisons=[Comparison(f"read, changes {kind}", names[kind], alone, bars[kind]) for kind in makers],
        notes=["The table is compacted before the merges: its base is the segments that Spark scans alone."],
    )
    return measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)


def stored_batches(table: TrinityTable) -> list[str]:
    """The directories of the batches that live rows are read from."""
    return [table._store.batch_path(b.id) for b in table._store.snapshot().live_batches]


def largest_batch(table: Path) -> Path:
    """The directory of a table's largest batch: its base."""
    return max((table / "data").iterdir(), key=lambda batch: sum(file.stat().st_size for file in batch.iterdir()))


def p7(bench: Workbench) -> Result:
    """Opening and reading a table after many small merges."""
    size = bench.size
    marks = sorted({0, 1, 5, *(size.pending * quarter // 4 for quarter in (1, 2, 3, 4))})
    folded, single = f"{OURS}, after {size.pending} small merges", f"{OURS}, one batch of the same rows"
    kinds = {folded: _growing(bench, "default", marks)}
    notes = [
        "Timed: opening the table by its path, and a full aggregate over all columns.",
        f"Default properties leave {_pending(bench, kinds[folded][size.pending])} batches pending after all merges.",
    ]
    if _is_property(UNFOLDED):
        name = f"{folded}, folding turned off"
        kinds[name] = _growing(bench, "unfolded", marks, UNFOLDED)
        notes.append(f"Without a bar: the same table with {_told(UNFOLDED)}, which keeps each merge's batch.")
    contestants: list[Contestant] = [_opening(bench, name, tables[size.pending]) for name, tables in kinds.items()]
    contestants.append(_opening(bench, single, _one_large_batch(bench, bench.path("ours/one-batch"))))
    result = Result(
        "P7",
        f"open and read {size.pending_base:,} rows after {size.pending} merges of {size.pending_rows:,} changes",
        size.name,
        comparisons=[
            Comparison(f"open and read, after {size.pending} small merges", folded, single, AtMost(1.2)),
        ],
        notes=notes,
    )
    result = measure(bench, result, contestants, size.warm_ups, size.cheap_repetitions)
    lines = {name.replace(f", after {size.pending} small merges", ""): _line(bench, t) for name, t in kinds.items()}
    chart = Chart(f"Opening and reading {size.pending_base:,} rows", "small merges", "seconds", lines)
    return attrs.evolve(result, chart=chart)


def _opening(bench: Workbench, name: str, path: Path, compared: bool = True) -> Reading:
    return Reading(name, lambda: TrinityTable.forPath(bench.spark, str(path)).toDF(), compared=compared)


def _line(bench: Workbench, tables: Mapping[int, Path]) -> Points:
    """How long reading takes at each mark."""
    steps = [_opening(bench, f"{OURS}, {mark} merges", path, compared=False) for mark, path in tables.items()]
    series = bench.race().run(steps, 1, bench.size.repetitions)
    return tuple(point(mark, s) for mark, s in zip(tables, series, strict=True))


def _growing(bench: Workbench, name: str, marks: Sequence[int], properties: Properties = ()) -> dict[int, Path]:
    """Copies of one table that grows by small merges, as it is after as many as the marks say.

    The merges go through one table object, and what they do to the table besides is done when they return: a copy is what
    whoever stopped there would read.
    """
    size = bench.size
    growing = bench.path(f"ours/{name}")
    link_copy(bench.ours(size.pending_base, properties), growing)
    table = TrinityTable.forPath(bench.spark, str(growing))
    bench.say(f"    merging {size.pending} batches, {name} properties")
    tables = {}
    for batch in range(size.pending + 1):
        if batch in marks:
            tables[batch] = bench.path(f"ours/{name}-{batch}")
            link_copy(growing, tables[batch])
        if batch < size.pending:
            cdc(table, data.read(bench.spark, data.CHANGES, bench.small_changes(batch))).execute()
    return tables


def _one_large_batch(bench: Workbench, to: Path) -> Path:
    """The same table with the same changes in one batch."""
    files = [bench.small_changes(batch) for batch in range(bench.size.pending)]
    link_copy(bench.ours(bench.size.pending_base), to)
    table = TrinityTable.forPath(bench.spark, str(to))
    cdc(table, data.read(bench.spark, data.CHANGES, *files)).execute()
    return to


def _pending(bench: Workbench, path: Path) -> int:
    return TrinityTable.forPath(bench.spark, str(path)).health().pendingBatches


def _is_property(properties: Properties) -> bool:
    """Does this version of the library know them."""
    try:
        check_properties(dict(properties))
    except InvalidDefinitionError:
        return False
    return True


def _told(properties: Properties) -> str:
    return ", ".join(f"`{name}` = `{text}`" for name, text in properties)
