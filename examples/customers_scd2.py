"""A customer dimension that keeps its history (slowly changing, type 2), with one merge per extract.

Every extract lists all customers there are on a day, each with the date of their last change. Four things are easy to get
wrong, and each happens here:

- **The key.** A row is one customer in one period, so the key is the customer and the *start* of the period. With a flag,
  `(customer_id, current)`, the second closed row of a customer would have the key of the first: the third extract is refused
  then, which is shown at the end.
- **What has changed.** Carl's city is not known at first, and not again later. `A.city <> B.city` is null then, and null
  is not true: the change would be lost without a sign. `NOT (A.city <=> B.city)` is true.
- **Late rows.** The third extract has a stale copy of Blaise, from before his current row. It must not close that row
  before it began.
- **Disappeared rows.** Emmy is not in the second extract. Her row is closed by the clause for rows that exist only on the
  target. This is right only where every extract is complete.

The table is printed after every merge, and compared with the history it must have.

Run it with `python examples/customers_scd2.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from trinitymerge import DuplicateKeyError, TrinityTable

EXTRACTS = {
    date(2024, 1, 1): [
        (1, "Ada", "London", date(2023, 9, 1)),
        (2, "Blaise", "Paris", date(2023, 10, 1)),
        (3, "Carl", None, date(2023, 11, 1)),
        (5, "Emmy", "Erlangen", date(2023, 12, 1)),
    ],
    # Ada moves, Carl's city becomes known, David is new, Emmy is gone.
    date(2024, 6, 1): [
        (1, "Ada", "Bath", date(2024, 5, 20)),
        (2, "Blaise", "Paris", date(2023, 10, 1)),
        (3, "Carl", "Göttingen", date(2024, 5, 2)),
        (4, "David", "Königsberg", date(2024, 4, 11)),
    ],
    # Ada moves back, Blaise's row is a stale copy, nobody knows where Carl has gone.
    date(2025, 3, 1): [
        (1, "Ada", "London", date(2025, 2, 14)),
        (2, "Blaise", "Lyon", date(2023, 2, 1)),
        (3, "Carl", None, date(2025, 1, 31)),
        (4, "David", "Königsberg", date(2024, 4, 11)),
    ],
}

HISTORY = [
    (1, "Ada", "London", date(2023, 9, 1), date(2024, 5, 20), False),
    (1, "Ada", "Bath", date(2024, 5, 20), date(2025, 2, 14), False),
    (1, "Ada", "London", date(2025, 2, 14), None, True),
    (2, "Blaise", "Paris", date(2023, 10, 1), None, True),
    (3, "Carl", None, date(2023, 11, 1), date(2024, 5, 2), False),
    (3, "Carl", "Göttingen", date(2024, 5, 2), date(2025, 1, 31), False),
    (3, "Carl", None, date(2025, 1, 31), None, True),
    (4, "David", "Königsberg", date(2024, 4, 11), None, True),
    (5, "Emmy", "Erlangen", date(2023, 12, 1), date(2024, 6, 1), False),
]

KEY = ("customer_id", "valid_from")

NEW_ROW = {
    "customer_id": "B.customer_id",
    "name": "B.name",
    "city": "B.city",
    "valid_from": "B.changed_on",
    "valid_to": None,
    "current": True,
}

HAS_CHANGED = "NOT (A.name <=> B.name AND A.city <=> B.city)"
IS_NEWS = "B.changed_on > A.valid_from"


def create_table(spark: SparkSession, path: str, key: tuple[str, ...] = KEY) -> TrinityTable:
    """An empty dimension: one row per customer and period."""
    return TrinityTable.create(
        spark,
        path,
        schema="customer_id INT, name STRING, city STRING, valid_from DATE, valid_to DATE, current BOOLEAN",
        primaryKey=key,
    )


def merge_extract(customers: TrinityTable, extract: DataFrame, day: date):
    """The merge of one extract: not run yet."""
    return (
        customers.alias("A")
        .merge(extract.alias("B"), "A.customer_id = B.customer_id AND A.current")
        .whenMatched(f"{IS_NEWS} AND {HAS_CHANGED}")
        .updateExpr({"valid_to": "B.changed_on", "current": False})
        .insertExpr(NEW_ROW)
        .whenNotMatched()
        .insertExpr(NEW_ROW)
        .whenNotMatchedAndExistsOnlyOnTarget("A.current")
        .updateExpr({"valid_to": day, "current": False})
    )


def extract_of(spark: SparkSession, day: date) -> DataFrame:
    """The customers as they are on a day."""
    return spark.createDataFrame(EXTRACTS[day], "customer_id INT, name STRING, city STRING, changed_on DATE")


def run(spark: SparkSession, path: str | None = None) -> bool:
    """Merges the extracts one after the other.

    Args:
        spark: any session.
        path: where the table goes, a new directory; by default a temporary one, removed at the end.

    Returns:
        Whether the table holds the history it must have, and a table with a flag in its key is refused.
    """
    with tempfile.TemporaryDirectory(prefix="customers_scd2-") as temporary:
        customers = create_table(spark, path or str(Path(temporary) / "customers"))
        for day in EXTRACTS:
            extract = extract_of(spark, day)
            print(f"\nThe extract of {day}:")
            extract.show()
            print(merge_extract(customers, extract, day).execute())
            print("\nThe table after it:")
            history(customers).show()
        actual = [tuple(row) for row in history(customers).collect()]
        refused = refuses_a_flag_as_key(spark, str(Path(temporary) / "flag"))
    for row in sorted(set(actual) ^ set(HISTORY), key=str):
        print(f"NOT AS EXPECTED: {'missing' if row in HISTORY else 'wrong'} row {row}", flush=True)
    return actual == HISTORY and refused


def refuses_a_flag_as_key(spark: SparkSession, path: str) -> bool:
    """The same extracts into a table keyed by a flag: two of them go well."""
    customers = create_table(spark, path, ("customer_id", "current"))
    *first, last = EXTRACTS
    for day in first:
        merge_extract(customers, extract_of(spark, day), day).execute()
    try:
        merge_extract(customers, extract_of(spark, last), last).execute()
    except DuplicateKeyError as error:
        print(f"With the key (customer_id, current) the extract of {last} is refused:\n{error}\n")
        return True
    return False


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
