"""The world's airports as a dimension that keeps its history (type 2), from full extracts that come out of order, and checked.

The data is real: six releases of the `airportsdata` package, each with all airports there were (some 28,000). A release is a
full extract, so airports that are missing in it have gone. The table is fed with one call per release,
`table.snapshot(rows, at=moment)`, and never told when a version ends: that is when the next one begins, or when the airport has
gone.

Releases are named by their day, and the job takes them in the order of their names. One name is wrong: `20250204` was published a
year later, on 4 February 2026, after all others. So when it has been taken, the next two come *late*. They belong before it, and
split intervals that are in the table already. Nothing has to be done about that but to say the truth with `at`.

At the end the table's versions are compared, row by row, with an answer that plain Spark computes from all releases at once. If
they differ, the differing rows are shown and the exit code is 1.

The releases are fetched by pip (1 MB each) and kept in `build/airportsdata`.

Run it with `make demo-history`, or `python examples/airports_history.py [--releases N] [--path DIR]`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from trinitymerge import TrinityTable


def utc(text: str) -> datetime:
    """A moment, from the time that the package index gives for a release."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


PUBLISHED = {
    "20240401": utc("2024-04-01 11:27:36"),
    "20240728": utc("2024-07-28 02:49:43"),
    "20241001": utc("2024-10-01 01:00:50"),
    "20250204": utc("2026-02-04 06:02:42"),
    "20250224": utc("2025-02-24 09:11:29"),
    "20250909": utc("2025-09-09 01:07:29"),
}
"""The releases, in the order of their names, and when each was really published."""

CACHE = Path(__file__).parent.parent / "build" / "airportsdata"

CSV_SCHEMA = """
    icao STRING, iata STRING, name STRING, city STRING, subd STRING, country STRING, elevation DOUBLE, lat DOUBLE, lon DOUBLE,
    tz STRING, lid STRING
"""

COLUMNS = ["icao", "iata", "name", "city", "subd", "country", "elevation", "lat", "lon", "tz", "lid"]
INTERVAL = ["validFrom", "validTo", "isCurrent"]
SHOWN = ["icao", "iata", "name", "city", "subd", *INTERVAL]

TRACKED = COLUMNS[1:]
"""What makes a version. Otherwise each row that was written is one, and a late extract may say what the next has said already."""

UNTRACKED = ["lat", "lon"]
"""One release cut the digits of nearly all coordinates, which is no history of airports."""


@attrs.frozen(eq=False)
class Extract:
    """All airports there were at a moment."""

    name: str
    taken_at: datetime
    rows: DataFrame


# The data ---------------------------------------------------------------------------------------------------


def load(spark: SparkSession, releases: Sequence[str], cache: Path = CACHE) -> list[Extract]:
    """The extracts of some releases, in the same order; what is not in the cache is fetched."""
    return [Extract(release, PUBLISHED[release], airports(spark, unpacked(release, cache))) for release in releases]


def airports(spark: SparkSession, csv: Path) -> DataFrame:
    """The airports of one release."""
    return spark.read.csv(csv.resolve().as_uri(), schema=CSV_SCHEMA, header=True, escape='"', mode="FAILFAST")


def unpacked(release: str, cache: Path) -> Path:
    """The release's list of airports, below the cache."""
    csv = cache / release / "airportsdata" / "airports.csv"
    if not csv.exists():
        with zipfile.ZipFile(wheel_of(release, cache)) as wheel:
            wheel.extract("airportsdata/airports.csv", cache / release)
    return csv


def wheel_of(release: str, cache: Path) -> Path:
    """The release's wheel in the cache, where pip puts it."""
    found = list(cache.glob(f"airportsdata-{release}-*.whl"))
    if not found:
        download(f"airportsdata=={release}", cache)
        found = list(cache.glob(f"airportsdata-{release}-*.whl"))
    return found[0]


def download(requirement: str, cache: Path) -> None:
    """Lets pip fetch a wheel, or ends the program and says what can be done."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "-d", str(cache)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, requirement], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        sys.exit(
            f"The demo's data is missing: pip could not fetch {requirement}. It said:\n  {said[-1]}\n"
            "The package index must be within reach once; then the demo runs without it. Or fetch the data elsewhere, with\n"
            f"  python -m pip download --no-deps --only-binary=:all: {requirement}\n"
            f"and put the file into {cache}. It is one file per release: {', '.join(PUBLISHED)}."
        )


# The pipeline: this is the part that a user of the library writes -------------------------------------------


def create_table(spark: SparkSession, path: str) -> TrinityTable:
    """An empty dimension of airports, which keeps every version."""
    return TrinityTable.create(
        spark,
        path,
        schema=f"{CSV_SCHEMA}, taken_at TIMESTAMP",
        primaryKey="icao",
        watermarkKey="taken_at",
        history=True,
        comment="Airports by their ICAO code",
    )


def take(table: TrinityTable, extract: Extract):
    """Takes one full extract: not run yet."""
    return table.snapshot(extract.rows, at=extract.taken_at)


# The right answer, without the library ----------------------------------------------------------------------


def expected_versions(extracts: Sequence[Extract], untracked: Sequence[str] = ()) -> DataFrame:
    """The versions that the extracts tell of, from all of them at once.

    Args:
        extracts: in any order.
        untracked: columns whose changes begin no version; they are shown as the version has them last.

    Returns:
        One row per version: a run of extracts, each the next after the one before, in which an airport is the same.
    """
    moments = sorted(extract.taken_at for extract in extracts)
    frames = [extract.rows.withColumn("n", F.lit(moments.index(extract.taken_at))) for extract in extracts]
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    earlier = Window.partitionBy("icao").orderBy("n")
    tracked = F.struct(*[name for name in COLUMNS if name not in untracked])
    goes_on = (F.lag("n").over(earlier) == F.col("n") - 1) & F.lag(tracked).over(earlier).eqNullSafe(tracked)
    runs = (
        rows.withColumn("begins", F.when(goes_on, 0).otherwise(1))
        .withColumn("run", F.sum("begins").over(earlier))
        .groupBy("icao", "run")
        .agg(F.min("n").alias("first"), F.max(F.struct("n", *COLUMNS)).alias("last"))
    )
    moment = F.array(*map(F.lit, moments))
    return runs.select(
        *[F.col(f"last.{name}") for name in COLUMNS],
        F.get(moment, F.col("first")).alias("validFrom"),
        F.get(moment, F.col("last.n") + 1).alias("validTo"),
        (F.col("last.n") == len(moments) - 1).alias("isCurrent"),
    )


def agrees(actual: DataFrame, expected: DataFrame) -> bool:
    """Compares two tables of versions as multisets of rows and shows the first rows in which they differ."""
    actual, expected = (frame.select(*COLUMNS, *INTERVAL) for frame in (actual, expected))
    missing, wrong = expected.exceptAll(actual), actual.exceptAll(expected)
    differing = missing.withColumn("side", F.lit("expected")).unionByName(
        wrong.withColumn("side", F.lit("in the table"))
    )
    differing = differing.select("side", *COLUMNS, *INTERVAL).orderBy("icao", "validFrom", "side").cache()
    count = differing.count()
    if count:
        print(f"\n\nNOT AS EXPECTED: {count} differing rows, of which the first 20 are:", flush=True)
        differing.show(20, truncate=False)
    differing.unpersist()
    return count == 0


# The demo ---------------------------------------------------------------------------------------------------


@contextmanager
def step(name: str) -> Iterator[None]:
    """Says what is being done, and how long it took."""
    print(f"{name} ...", end=" ", flush=True)
    started = time.perf_counter()
    yield
    print(f"{time.perf_counter() - started:.1f} s", flush=True)


def run(spark: SparkSession, extracts: Sequence[Extract], path: str | None = None) -> bool:
    """Feeds a table with extracts, in the order given, and checks its versions.

    Args:
        spark: any session.
        extracts: each of another moment.
        path: where the table goes, a new directory; by default a temporary one, removed at the end.

    Returns:
        Whether the versions are those that the extracts tell of.
    """
    with tempfile.TemporaryDirectory(prefix="airports_history-") as temporary:
        table = create_table(spark, path or str(Path(temporary) / "airports"))
        written = feed(table, extracts)
        tell(table, extracts, written)
        expected = [expected_versions(extracts).cache(), expected_versions(extracts, UNTRACKED).cache()]
        with step("Checking all versions against plain Spark"):
            correct = is_right(table, expected)
        with step("Compacting the table"):
            compacted = table.compact()
        print(f"  {compacted}")
        with step("Reading all versions of the compacted table"):
            table.versions().count()
        with step("Checking all versions again"):
            correct = is_right(table, expected) and correct
        for frame in expected:
            frame.unpersist()
    return correct


def feed(table: TrinityTable, extracts: Sequence[Extract]) -> int:
    """Takes the extracts one after the other, and says how many rows that wrote."""
    newest, written = None, 0
    for extract in extracts:
        late = newest is not None and extract.taken_at < newest
        newest = extract.taken_at if newest is None else max(newest, extract.taken_at)
        with step(f"Taking release {extract.name}, published {extract.taken_at:%Y-%m-%d}{', LATE' if late else ''}"):
            result = take(table, extract).execute()
        print(f"  {result}", flush=True)
        written += result.rowsAppended
    return written


def tell(table: TrinityTable, extracts: Sequence[Extract], written: int) -> None:
    """Shows what the table knows: numbers of versions, one airport through time, and the airports at one moment."""
    with step("\nReading all versions"):
        table.versions().count()
    tracked = table.versions(exceptColumns=UNTRACKED).cache()
    print(f"  rows in the extracts           {sum(extract.rows.count() for extract in extracts):>9,}")
    print(f"  rows written                   {written:>9,}")
    print(f"  versions                       {table.versions(track=TRACKED).count():>9,}")
    print(f"  versions but for coordinates   {tracked.count():>9,}")
    print(f"  current airports               {table.toDF().count():>9,}")
    most = tracked.groupBy("icao").count().orderBy(F.desc("count"), "icao").first()
    if most is not None:
        print(f"\nThe airport with the most versions, {most.icao}:", flush=True)
        tracked.filter(F.col("icao") == most.icao).orderBy("validFrom").select(SHOWN).show(truncate=False)
        middle = sorted(extract.taken_at for extract in extracts)[len(extracts) // 2]
        print(f"and as it was on {middle:%Y-%m-%d}:", flush=True)
        table.asOf(middle).filter(F.col("icao") == most.icao).select(COLUMNS).show(truncate=False)
    tracked.unpersist()


def is_right(table: TrinityTable, expected: Sequence[DataFrame]) -> bool:
    """Compares the versions, and those but for coordinates, with the right answers."""
    versions = [table.versions(track=TRACKED), table.versions(exceptColumns=UNTRACKED)]
    return all(agrees(actual, right) for actual, right in zip(versions, expected, strict=True))


def session() -> SparkSession:
    """A small local session: two cores, two gigabytes."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about laptops' host names
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("airports_history")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Releases of a list of airports as a dimension that keeps its history."
    )
    parser.add_argument(
        "--releases",
        type=int,
        default=len(PUBLISHED),
        choices=range(2, len(PUBLISHED) + 1),
        metavar=f"2..{len(PUBLISHED)}",
        help="how many releases to take, the last ones (default: all)",
    )
    parser.add_argument("--path", help="where to keep the table (default: a temporary directory, removed at the end)")
    arguments = parser.parse_args(argv)
    if arguments.path and Path(arguments.path).exists():
        parser.error(f"--path {arguments.path} exists already; name a directory that does not")
    releases = list(PUBLISHED)[-arguments.releases :]
    with step("Unpacking the releases"):
        for release in releases:  # before Spark starts, in case one is missing
            unpacked(release, CACHE)
    spark = session()
    try:
        correct = run(spark, load(spark, releases), arguments.path)
    finally:
        spark.stop()
    print("\nThe versions are exactly what the releases say." if correct else "\nThe versions are WRONG.", flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
