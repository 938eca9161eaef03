"""A customer dimension that keeps its history (slowly changing, type 2), with one merge per extract.

Every extract lists customers as they are on a day. A customer who moved gets two changes in one clause: the
current row is closed and a new one inserted, `whenMatched(...).updateExpr({...}).insertExpr({...})`. The
table is printed after every merge, and compared with the history it must have.

Run it with `python examples/customers_scd2.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from trinitymerge import TrinityTable

EXTRACTS = {
    date(2024, 1, 1): [(1, "Ada", "London"), (2, "Blaise", "Paris"), (3, "Carl", "Brunswick")],
    # Ada and Carl move, Blaise is as he was, David is new.
    date(2024, 6, 1): [
        (1, "Ada", "Bath"),
        (2, "Blaise", "Paris"),
        (3, "Carl", "Göttingen"),
        (4, "David", "Königsberg"),
    ],
    # Ada moves back, David is as he was.
    date(2025, 3, 1): [(1, "Ada", "London"), (4, "David", "Königsberg")],
}

HISTORY = [
    (1, "Ada", "London", date(2024, 1, 1), date(2024, 6, 1), False),
    (1, "Ada", "Bath", date(2024, 6, 1), date(2025, 3, 1), False),
    (1, "Ada", "London", date(2025, 3, 1), None, True),
    (2, "Blaise", "Paris", date(2024, 1, 1), None, True),
    (3, "Carl", "Brunswick", date(2024, 1, 1), date(2024, 6, 1), False),
    (3, "Carl", "Göttingen", date(2024, 6, 1), None, True),
    (4, "David", "Königsberg", date(2024, 6, 1), None, True),
]

NEW_ROW = {
    "customer_id": "B.customer_id",
    "name": "B.name",
    "city": "B.city",
    "valid_from": "B.seen_on",
    "valid_to": None,
    "current": True,
}


def create_table(spark: SparkSession, path: str) -> TrinityTable:
    """An empty dimension: one row per customer and period."""
    return TrinityTable.create(
        spark,
        path,
        schema="customer_id INT, name STRING, city STRING, valid_from DATE, valid_to DATE, current BOOLEAN",
        primaryKey=["customer_id", "valid_from"],
    )


def merge_extract(customers: TrinityTable, extract: DataFrame):
    """The merge of one extract: not run yet."""
    return (
        customers.alias("A")
        .merge(extract.alias("B"), "A.customer_id = B.customer_id AND A.current = true")
        .whenMatched("A.name <> B.name OR A.city <> B.city")
        .updateExpr({"valid_to": "B.seen_on", "current": False})
        .insertExpr(NEW_ROW)
        .whenNotMatched()
        .insertExpr(NEW_ROW)
    )


def run(spark: SparkSession, path: str | None = None) -> bool:
    """Merges the extracts one after the other.

    Args:
        spark: any session.
        path: where the table goes, a new directory; by default a temporary one, removed at the end.

    Returns:
        Whether the table holds the history it must have.
    """
    with tempfile.TemporaryDirectory(prefix="customers_scd2-") as temporary:
        customers = create_table(spark, path or str(Path(temporary) / "customers"))
        for day, rows in EXTRACTS.items():
            extract = spark.createDataFrame(
                [(*row, day) for row in rows], "customer_id INT, name STRING, city STRING, seen_on DATE"
            )
            print(f"\nThe extract of {day}:")
            extract.show()
            print(merge_extract(customers, extract).execute())
            print("\nThe table after it:")
            history(customers).show()
        actual = [tuple(row) for row in history(customers).collect()]
    for row in sorted(set(actual) ^ set(HISTORY), key=str):
        print(f"NOT AS EXPECTED: {'missing' if row in HISTORY else 'wrong'} row {row}", flush=True)
    return actual == HISTORY


def history(customers: TrinityTable) -> DataFrame:
    """The table in the order of its history."""
    return customers.toDF().orderBy("customer_id", "valid_from")


def main() -> int:
    """The command line; returns the exit code."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about laptops' host names
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("customers_scd2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        correct = run(spark)
    finally:
        spark.stop()
    print("The history is as it must be." if correct else "The history is WRONG.", flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
