"""An application's outbox in a database, read over JDBC as an external table, and merged into a managed one.

A shop keeps its orders in a database, and beside them an *outbox*: a table to which every change of an order is appended as
an event, in the transaction that makes the change. Nothing of this library runs there. Still the outbox holds all that is
needed to know which orders there are: a key, a number that says which event is the freshest, and a letter that says when an
order is gone. `TrinityTable.external` reads it by these rules. Three things happen here:

- **Reading.** The live rows of the outbox are the orders of the shop, although some events are there twice, as outboxes are
  delivered at least once. They are compared with the shop's own table, which the database is asked for.
- **Moving.** `TrinityTable.convert` makes a managed table of it: the freshest event of each order, deleted ones included.
- **Keeping up.** The shop goes on, and the external table, which is merged into the managed one, shows it: the database is
  asked whenever rows are read.

The database is Derby, which comes with PySpark and runs inside of it, in memory: nothing has to be installed. For another one
put its JDBC driver on Spark's class path (`spark.jars.packages`) and change `URL` and `DRIVER`.

Run it with `python examples/external_jdbc.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from trinitymerge import TrinityTable

DRIVER = "org.apache.derby.jdbc.EmbeddedDriver"
URL = "jdbc:derby:memory:shop-{};create=true"

Order = tuple[int, str, int]
Event = tuple[int, int, str, str, int]

MORNING: list[Event] = [
    (1, 101, "I", "ordered", 2000),
    (2, 102, "I", "ordered", 3550),
    (3, 101, "U", "paid", 2000),
    (4, 103, "I", "ordered", 1200),
    (5, 102, "D", "cancelled", 3550),
    (3, 101, "U", "paid", 2000),  # delivered twice
]
EVENING: list[Event] = [
    (6, 101, "U", "shipped", 2000),
    (7, 103, "D", "cancelled", 1200),
    (8, 104, "I", "ordered", 9990),
    (9, 105, "I", "ordered", 100),
    (10, 105, "U", "paid", 150),
]


class Shop:
    """The application: its orders, and the outbox beside them, in a database of its own."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.url = URL.format(uuid.uuid4().hex)
        self.orders: dict[int, Order] = {}

    def happens(self, events: list[Event]) -> None:
        """Some changes of orders: the orders are changed, and the events appended."""
        for _, order, op, status, cents in events:
            self.orders.pop(order, None)
            if op != "D":
                self.orders[order] = (order, status, cents)
        self._write("outbox", events, "event_id BIGINT, order_id INT, op STRING, status STRING, cents INT", "append")
        self._write("orders", list(self.orders.values()), "order_id INT, status STRING, cents INT", "overwrite")

    def table(self, name: str) -> DataFrame:
        """A table of the database as it is whenever it is read."""
        return self.spark.read.jdbc(self.url, name, properties={"driver": DRIVER})

    def _write(self, name: str, rows: list, schema: str, mode: str) -> None:
        frame = self.spark.createDataFrame(rows, schema).coalesce(1)
        texts = [f"{n} VARCHAR(20)" for n in ("op", "status") if n in frame.columns]  # Derby compares no CLOBs
        frame.write.option("createTableColumnTypes", ", ".join(texts)).jdbc(self.url, name, mode, {"driver": DRIVER})


def run(spark: SparkSession, path: str | None = None) -> bool:
    """A day of the shop.

    Args:
        spark: a classic session.
        path: where the managed table goes, a new directory; by default a temporary one, removed at the end.

    Returns:
        Whether both tables showed the shop's orders, each time.
    """
    shop = Shop(spark)
    shop.happens(MORNING)
    outbox = TrinityTable.external(
        shop.table("outbox"),
        primaryKey="order_id",
        watermarkKey="event_id",
        tombstoneKey="op",
        tombstoneStringValue="D",
    )
    print(f"\n{outbox}, whose rows are these events:")
    shop.table("outbox").orderBy("event_id").show()
    print("Its live rows:")
    outbox.toDF().orderBy("order_id").show()
    correct = agrees(outbox.toDF(), shop, "the external table in the morning")

    with tempfile.TemporaryDirectory(prefix="external_jdbc-") as temporary:
        managed = TrinityTable.convert(spark, outbox, path or str(Path(temporary) / "orders"))
        correct &= agrees(managed.toDF(), shop, "the managed table in the morning")

        shop.happens(EVENING)
        print(f"\n{len(EVENING)} more events. The external table shows them, and is merged into the managed one:")
        correct &= agrees(outbox.toDF(), shop, "the external table in the evening")
        print(merge(managed, outbox))
        correct &= agrees(managed.toDF(), shop, "the managed table in the evening")
        managed.toDF().orderBy("order_id").show()
    return correct


def merge(managed: TrinityTable, outbox):
    """Brings the managed table up to date. The outbox is complete, so what is missing from its live rows is gone."""
    return (
        managed.alias("A")
        .merge(outbox.alias("B"), "A.order_id = B.order_id")
        .whenMatched("B.event_id > A.event_id")
        .updateAll()
        .whenNotMatched()
        .insertAll()
        .whenNotMatchedBySource()
        .delete()
        .execute()
    )


def agrees(rows: DataFrame, shop: Shop, what: str) -> bool:
    """Whether rows are the orders that the shop's database says there are; prints those that are not."""
    found = {tuple(row) for row in rows.select("order_id", "status", "cents").collect()}
    right = {tuple(row) for row in shop.table("orders").collect()}
    for row in sorted(found ^ right, key=str):
        print(f"NOT AS EXPECTED: {what}: {'missing' if row in right else 'wrong'} row {row}", flush=True)
    return found == right


def main() -> int:
    """The command line; returns the exit code."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about laptops' host names
    with tempfile.TemporaryDirectory(prefix="external_jdbc-derby-") as home:  # for Derby's log
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("external_jdbc")
            .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
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
    print("The tables show the orders of the shop." if correct else "The tables are WRONG.", flush=True)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
