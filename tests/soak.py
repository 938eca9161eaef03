"""A soak: four writers and two readers on one table, each a process of its own, with compaction and vacuum beside them.

`make soak` (or `python -m soak` here) runs it for five minutes, `ARGS="--seconds 600"` for ten, which is the most.
Writers note what they committed, as which version. In the end the notes are replayed, in the order of versions, into a
dictionary; the table must hold the same rows. Readers check each state they see: no key twice, and accounts that only
transfers touch sum up to nothing. The only error anybody may meet is a merge that gave way too often (S35). The memory of
the writers, Python's and the JVM's after a collection, must stay flat.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from processes import finish, kill, session, start
from pyspark.sql import SparkSession

from trinitymerge import ConcurrentCommitError, TrinityTable
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES

SCHEMA = "id INT, ts BIGINT, n INT, deleted BOOLEAN"
ACCOUNTS = 10
"""Keys below are accounts: transfers move amounts between them; the next key is a counter; the others come and go."""
OTHERS = 60
WRITERS, READERS = 4, 2
LONGEST_SECONDS = 600
SAMPLES = 9
FLAT = 1.25
"""Memory may be so much larger in the last third of the run than in the second; the first is for warming up."""
SLACK_MB = 48
"""What Spark's own caches come and go by between collections."""


Note = dict[str, Any]

# Writers --------------------------------------------------------------------------------------------------------------


def write(spark: SparkSession, table: TrinityTable, me: int, seconds: float, notes: str) -> None:
    """Merges at random until the time is over, notes each commit, and prints what happened."""
    chance, end, gave_way, done, slowest = random.Random(me), time.monotonic() + seconds, 0, 0, (0.0, "")
    samples = [time.monotonic() + seconds * (i + 0.5) / SAMPLES for i in range(SAMPLES)]
    memory = []
    with open(notes, "w") as file:
        while time.monotonic() < end:
            note, begun = decide(chance), time.monotonic()
            try:
                result = builder(spark, table, note).execute()
            except ConcurrentCommitError:
                gave_way += 1
                continue
            done, slowest = done + 1, max(slowest, (time.monotonic() - begun, note["kind"]))
            if not result.skipped:
                print(json.dumps({**note, "version": result.version}), file=file, flush=True)
            if samples and time.monotonic() > samples[0]:
                samples.pop(0)
                memory.append(memory_mb(spark))
    print(json.dumps({"merges": done, "gaveWay": gave_way, "slowest": slowest, "memory": memory}))


def decide(chance: random.Random) -> Note:
    """What to do next."""
    kind = chance.choices(["transfer", "set", "delete", "insert", "count"], [6, 5, 3, 3, 1])[0]
    key, ts, n = ACCOUNTS + 1 + chance.randrange(OTHERS), chance.randrange(10**6), chance.randrange(1000)
    giver, taker = chance.sample(range(ACCOUNTS), 2)
    return {"kind": kind, "key": key, "ts": ts, "n": n, "giver": giver, "taker": taker}


def builder(spark: SparkSession, table: TrinityTable, note: Note) -> Any:
    """The merge of a note: keyed lookups, blind appends of late and early rows, a full scan."""
    if note["kind"] == "count":
        return table.updateWhere(f"id = {ACCOUNTS}", {"n": "n + 1"})
    if note["kind"] == "transfer":
        values = f"({note['giver']}, -{note['n']}), ({note['taker']}, {note['n']})"
        source = spark.sql(f"SELECT * FROM VALUES {values} AS t(id, x)")
        return table.merge(source).whenMatched("target.n IS NOT NULL").updateExpr({"n": "target.n + source.x"})
    row = spark.sql(f"SELECT {note['key']} AS id, {note['ts']}L AS ts, {note['n']} AS n, false AS deleted")
    if note["kind"] == "insert":
        return table.insert(row, deduplicate=True)
    return table.upsert(row) if note["kind"] == "set" else table.delete(row.select("id", "ts"))


def memory_mb(spark: SparkSession) -> dict[str, float]:
    """What this process holds, and what its JVM still needs after a collection."""
    runtime: Any = spark._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"python": pages * 4096 / 1e6, "heap": (runtime.totalMemory() - runtime.freeMemory()) / 1e6}


# Beside them ----------------------------------------------------------------------------------------------------------


def read(spark: SparkSession, table: TrinityTable, seconds: float) -> None:
    """Reads until the time is over: the newest version, the same DataFrame again, and a past version."""
    end, reads, last = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        version, frame = table.version, table.toDF()
        rows = sorted(map(tuple, frame.collect()))
        check(rows)
        assert version >= last, f"version {version} after {last}"
        last, reads = version, reads + 1
        if reads % 5 == 0:
            assert sorted(map(tuple, frame.collect())) == rows, "a DataFrame changed after it was made"
            check(sorted(map(tuple, TrinityTable.forPath(spark, table.path, versionAsOf=version).toDF().collect())))
    print(json.dumps({"reads": reads}))


def check(rows: list[tuple[Any, ...]]) -> None:
    """What holds at every version."""
    keys = [row[0] for row in rows]
    assert len(keys) == len(set(keys)), "a key lives twice"
    assert keys[: ACCOUNTS + 1] == list(range(ACCOUNTS + 1)), "an account is gone"
    assert sum(row[2] for row in rows if row[0] < ACCOUNTS) == 0, "half a transfer"


def maintain(spark: SparkSession, table: TrinityTable, seconds: float, retention_seconds: float) -> None:
    """Compacts and vacuums until the time is over."""
    end, compactions, vacuumed = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        compactions += not table.compact().skipped
        vacuumed += len(table.vacuum(retentionHours=retention_seconds / 3600))
        time.sleep(1)
    print(json.dumps({"compactions": compactions, "vacuumed": vacuumed}))


# The model ------------------------------------------------------------------------------------------------------------


@attrs.define
class Model:
    """The freshest row of each key: its watermark, and ``n``, or None if it is deleted."""

    rows: dict[int, tuple[int, int | None]] = attrs.field(factory=dict)

    def put(self, key: int, ts: int, n: int | None) -> None:
        """S13: the larger watermark wins, and between equals the later commit."""
        if key not in self.rows or ts >= self.rows[key][0]:
            self.rows[key] = (ts, n)

    def apply(self, note: Note) -> None:
        """Does what a note says."""
        kind, key, ts, n = note["kind"], note["key"], note["ts"], note["n"]
        if kind == "transfer":
            self.add(note["giver"], -n)
            self.add(note["taker"], n)
        elif kind == "count":
            self.add(ACCOUNTS, 1)
        elif kind != "insert" or self.rows.get(key, (0, None))[1] is None:
            self.put(key, ts, None if kind == "delete" else n)

    def add(self, key: int, amount: int) -> None:
        """An update that keeps its row's watermark (S10)."""
        ts, n = self.rows[key]
        self.rows[key] = (ts, (n or 0) + amount)

    def live(self) -> list[tuple[int, int, int, bool]]:
        """The rows readers see."""
        return sorted((key, ts, n, False) for key, (ts, n) in self.rows.items() if n is not None)


# The run --------------------------------------------------------------------------------------------------------------


@attrs.define
class Report:
    """What the processes said."""

    seconds: float
    version: int
    live: int
    writers: list[dict[str, Any]]
    reads: int
    compactions: int
    vacuumed: int
    growth: list[str] = attrs.field(factory=list)

    def lines(self) -> Iterator[str]:
        """As people read it."""
        merges, gave_way = (sum(w[name] for w in self.writers) for name in ("merges", "gaveWay"))
        slowest, kind = max(w["slowest"] for w in self.writers)
        yield f"{self.seconds:.0f} s: {merges} merges by {len(self.writers)} writers, the slowest ({kind}) took {slowest:.1f} s"
        yield f"{gave_way} gave way; {self.reads} reads by {READERS} readers; {self.compactions} compactions"
        yield f"{self.vacuumed} files and directories vacuumed; version {self.version}"
        yield f"final state equals the model's: {self.live} live rows"
        yield "memory in MB        " + "".join(f"{f'{100 * (i + 0.5) / SAMPLES:.0f} %':>7}" for i in range(SAMPLES))
        for i, writer in enumerate(self.writers, 1):
            for kind in ("python", "heap"):
                yield f"writer {i}, {kind:9}  " + "".join(f"{m[kind]:7.0f}" for m in writer["memory"])
        yield from self.growth or ["memory is flat"]


def growth(writers: list[dict[str, Any]], kinds: tuple[str, ...]) -> list[str]:
    """Whose memory has grown between the second and the last third of the run."""
    found = []
    for i, writer in enumerate(writers, 1):
        for kind in kinds:
            values = [m[kind] for m in writer["memory"]]
            third = len(values) // 3
            if third:
                middle, last = min(values[third : 2 * third]), min(values[-third:])
                if last > FLAT * middle + SLACK_MB:
                    found.append(f"MEMORY GROWS: writer {i}, {kind}: {middle:.0f} -> {last:.0f} MB")
    return found


def soak(spark: SparkSession, directory: Path, seconds: float, share: SparkSession | None) -> Report:
    """Runs everything, and compares the table with the model.

    Args:
        spark: to look at the result.
        directory: an empty one.
        seconds: how long the processes work once they have started.
        share: whose JVM they use; None gives each one of its own.

    Raises:
        AssertionError: a process has met an error, a reader has seen what must not be, or the rows differ.
    """
    table = TrinityTable.create(
        spark,
        str(directory / "table"),
        SCHEMA,
        primaryKey="id",
        watermarkKey="ts",
        tombstoneKey="deleted",
        properties={TARGET_SEGMENT_BYTES: "2500"},
    )
    first = spark.range(ACCOUNTS + 1).selectExpr("CAST(id AS INT) AS id", "0L AS ts", "0 AS n", "false AS deleted")
    table.upsert(first).execute()
    notes = [directory / f"notes-{i}" for i in range(WRITERS)]
    retention_seconds = max(90, seconds / 3)
    wanted = [f"write(spark, table, {i}, {seconds}, {str(notes[i])!r})" for i in range(WRITERS)]
    wanted += [f"read(spark, table, {seconds})"] * READERS
    wanted += [f"maintain(spark, table, {seconds}, {retention_seconds})"]
    running = [start(table.path, f"from soak import maintain, read, write\n{call}", share) for call in wanted]
    try:
        said = [json.loads(finish(process, seconds + 300).splitlines()[-1]) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                kill(process)
    writers, readers, maintainer = said[:WRITERS], said[WRITERS:-1], said[-1]
    model = Model(dict.fromkeys(range(ACCOUNTS + 1), (0, 0)))
    for note in sorted((json.loads(x) for file in notes for x in file.read_text().splitlines()), key=_version):
        model.apply(note)
    rows = sorted(map(tuple, table.toDF().collect()))
    assert rows == model.live(), f"the table differs from the model: {sorted({*rows} ^ {*model.live()})}"
    return Report(
        seconds,
        table.version,
        len(rows),
        writers,
        sum(r["reads"] for r in readers),
        growth=growth(writers, ("python", "heap") if share is None else ("python",)),
        **maintainer,
    )


def _version(note: Note) -> int:
    return int(note["version"])


def main() -> None:
    """Runs the soak and prints the figures; fails if anything is not as it must be."""
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300, help=f"how long (at most {LONGEST_SECONDS})")
    parser.add_argument("--shared", action="store_true", help="one JVM for all processes instead of one for each")
    wish = parser.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory() as directory:
        seconds = min(wish.seconds, LONGEST_SECONDS)
        report = soak(spark, Path(directory), seconds, spark if wish.shared else None)
    print(*report.lines(), sep="\n")
    sys.exit(bool(report.growth))


if __name__ == "__main__":
    main()
