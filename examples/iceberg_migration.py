"""A nightly `MERGE INTO` of Iceberg's becomes a merge of this library's, on the same table.

A table of orders in a catalog of Iceberg's gets a night's changes each night: most orders stay, some change, some go, some are
new. The first nights are Iceberg's own `MERGE INTO`. Then the table is given its keys, once, and the following nights are merges
that append. Both print their time. In the end the table is compared with what plain Spark makes of all the changes together.

The changes of one night arrive late and are merged last: with `MERGE INTO` they would overwrite what is newer.

It needs PySpark 3.5 and Iceberg's runtime for it: `make demo-iceberg`, or `pip install '.[iceberg]'` and

    python examples/iceberg_migration.py --orders 1000000 --nights 6
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from trinitymerge import TrinityTable

NAME = "lake.sales.orders"
LATE = 2
"""The night, counted from the last, whose changes arrive after all others."""


def changes_of(spark: SparkSession, night: int, orders: int) -> DataFrame:
    """One night's changes: one order in a hundred, some of them deleted, and as many new ones as a tenth of that.

    Args:
        spark: the session.
        night: from 1.
        orders: how many the table began with.

    Returns:
        Columns ``id``, ``amount``, ``updated`` (the night) and ``deleted``.
    """
    changed = max(10, orders // 100)
    old = f"pmod(hash(id, {night}), {orders})"
    return spark.sql(
        f"""
        SELECT id, CAST(max(amount) AS DECIMAL(10,2)) AS amount, {night} AS updated, bool_and(deleted) AS deleted
        FROM (
            SELECT CAST({old} AS BIGINT) AS id, pmod(hash(id, {night}, 'a'), 100000) / 100 AS amount, id % 20 = 0 AS deleted
            FROM range({changed})
            UNION ALL
            SELECT {orders} + {night} * {changed} + id, pmod(hash(id), 100000) / 100, false FROM range({changed} DIV 10)
        ) GROUP BY id
        """
    )


def merge_into(spark: SparkSession, changes: DataFrame) -> None:
    """The job as it was."""
    changes.createOrReplaceTempView("changes")
    spark.sql(
        f"""
        MERGE INTO {NAME} t USING changes s ON t.id = s.id
        WHEN MATCHED AND s.deleted THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.amount = s.amount, t.updated = s.updated
        WHEN NOT MATCHED AND NOT s.deleted THEN INSERT (id, amount, updated) VALUES (s.id, s.amount, s.updated)
        """
    )


def merge(orders: TrinityTable, changes: DataFrame) -> None:
    """The job as it is now."""
    (
        orders.alias("t")
        .merge(changes.alias("s"), "t.id = s.id")
        .whenMatched("s.deleted")
        .delete()
        .whenMatched()
        .updateExpr({"amount": "s.amount", "updated": "s.updated"})
        .whenNotMatched("NOT s.deleted")
        .insertExpr({"id": "s.id", "amount": "s.amount", "updated": "s.updated"})
        .execute()
    )


def timed(what: str, job: object, *arguments: object) -> float:
    """Runs a job and says how long it took."""
    start = time.perf_counter()
    job(*arguments)  # type: ignore[operator]
    seconds = time.perf_counter() - start
    print(f"  {what:<44} {seconds:6.2f} s")
    return seconds


def expected(spark: SparkSession, nights: int, orders: int) -> DataFrame:
    """What lives after all nights, in whatever order they came: the newest change of each order, unless it is a delete."""
    changes = changes_of(spark, 1, orders)
    for night in range(2, nights + 1):
        changes = changes.unionByName(changes_of(spark, night, orders))
    first = spark.sql(
        f"SELECT id, CAST(id % 1000 AS DECIMAL(10,2)) AS amount, 0 AS updated, false AS deleted FROM range({orders})"
    )
    newest = (
        changes.unionByName(first)
        .selectExpr("id", "struct(updated, amount, deleted) AS v")
        .groupBy("id")
        .agg({"v": "max"})
    )
    return newest.selectExpr(
        "id", "`max(v)`.amount AS amount", "`max(v)`.updated AS updated", "`max(v)`.deleted AS deleted"
    ).filter("NOT deleted")


def run(spark: SparkSession, orders: int, nights: int) -> bool:
    """Runs all nights.

    Args:
        spark: a session with a catalog ``lake`` of Iceberg's.
        orders: how many the table begins with.
        nights: how many there are; half of them by `MERGE INTO`.

    Returns:
        True if the table is as it must be.
    """
    spark.sql(f"CREATE OR REPLACE TABLE {NAME} (id BIGINT, amount DECIMAL(10,2), updated INT) USING iceberg")
    spark.sql(f"INSERT INTO {NAME} SELECT id, id % 1000, 0 FROM range({orders})")
    before = range(1, nights // 2 + 1)
    print(f"{orders:,} orders. Iceberg's MERGE INTO rewrites the files that hold a changed row:")
    for night in before:
        timed(
            f"night {night}: {changes_of(spark, night, orders).count():,} changes",
            merge_into,
            spark,
            changes_of(spark, night, orders),
        )
    timed("counting the live orders", lambda: spark.table(NAME).count())

    print("\nThe table gets its keys. Nothing is rewritten:")
    opened: list[TrinityTable] = []
    timed("TrinityTable.forName(...)", lambda: opened.append(TrinityTable.forName(spark, NAME, "id", "updated")))
    table = opened[0]

    print("\nMerges append:")
    after = list(range(nights // 2 + 1, nights + 1))
    late = after[-LATE]
    for night in [*(n for n in after if n != late), late]:
        changes = changes_of(spark, night, orders)
        told = " (late)" if night == late else ""
        timed(f"night {night}: {changes.count():,} changes{told}", merge, table, changes)
    timed("counting the live orders", lambda: table.toDF().count())
    timed("compact()", table.compact)
    timed("counting the live orders", lambda: table.toDF().count())

    print("\nCompared with plain Spark over all changes:")
    wanted, found = expected(spark, nights, orders), table.toDF()
    columns = ["id", "amount", "updated"]
    lost = wanted.select(columns).exceptAll(found.select(columns)).count()
    more = found.select(columns).exceptAll(wanted.select(columns)).count()
    print(f"  {found.count():,} orders live; {lost} of the expected are missing, {more} are there that should not be")
    return not lost and not more


def session(warehouse: str) -> SparkSession:
    """A session with a catalog of Iceberg's in a folder."""
    spec = find_spec("snowpark_connect_deps_iceberg")
    if spec is None or spec.origin is None:
        sys.exit(
            "Iceberg's runtime is not installed. Run make demo-iceberg, or pip install '.[iceberg]' into an environment of its own."
        )
    (jar,) = (Path(spec.origin).parent / "jars").glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    builder = SparkSession.builder.master("local[2]").appName("iceberg_migration")
    for name, value in {
        "spark.driver.extraClassPath": str(jar),
        "spark.driver.memory": "2g",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--orders", type=int, default=1_000_000, help="how many the table begins with (1000000)")
    parser.add_argument("--nights", type=int, default=6, help="half of them by MERGE INTO; at least 6 (6)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        spark = session(folder)
        try:
            return 0 if run(spark, given.orders, max(6, given.nights)) else 1
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
