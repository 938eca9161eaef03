"""What the sections share: the session, the generated files, and the loaded tables, each made once when first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import data
from benchmarks.contestants import IcebergMerging, IcebergTable, MergeOf, OursMerging
from benchmarks.race import Race
from benchmarks.session import ICEBERG_CATALOG, settle
from benchmarks.sizes import Size
from trinitymerge import TrinityTable

Batches = Callable[[int], Sequence[Path]]


class Workbench:
    """One run's data and tables, below a directory of its own.

    Attributes:
        spark: the session.
        size: of the run.
    """

    def __init__(self, spark: SparkSession, size: Size, work: Path, say: Callable[[str], None]) -> None:
        """With a directory that is empty, and where to tell what happens."""
        self.spark = spark
        self.size = size
        self._work = work
        self._say = say
        self.events = cache(self._events)
        self.orders = cache(self._orders)
        self.changes = cache(self._changes)
        self.order_changes = cache(self._order_changes)
        self.ours = cache(self._ours)
        self.iceberg = cache(self._iceberg)

    def path(self, name: str) -> Path:
        """A place below the run's directory, whose parent exists."""
        path = self._work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def race(self) -> Race:
        """A race in this session."""
        return Race(lambda: settle(self.spark), self._say)

    def say(self, text: str) -> None:
        """Tells what happens."""
        self._say(text)

    # Data -----------------------------------------------------------------------------------------------------------

    def _events(self, rows: int) -> Path:
        self.say(f"    making {rows:,} rows")
        return data.write_events(self.spark, rows, self.path(f"data/events-{rows}"))

    def _changes(self, rows: int, batch: int) -> Path:
        path = self.path(f"data/changes-{rows}-{batch}")
        return data.write_changes(self.spark, rows, self.size.changes, batch, path)

    def _orders(self) -> Path:
        self.say(f"    making {self.size.orders:,} orders")
        return data.write_orders(self.spark, self.size.orders, self.path("data/orders"))

    def _order_changes(self, day: int) -> Path:
        path = self.path(f"data/order-changes-{day}")
        return data.write_order_changes(self.spark, self.size.orders_a_day, day, path)

    def one_batch(self, rows: int, repetitions: int) -> Batches:
        """Another batch of changes for each repetition, made now."""
        paths = [self.changes(rows, i) for i in range(repetitions)]
        return lambda repetition: [paths[repetition]]

    # Tables ---------------------------------------------------------------------------------------------------------

    def _ours(self, rows: int) -> Path:
        base = self.events(rows)
        self.say(f"    loading {rows:,} rows into trinitymerge")
        path = self.path(f"ours/events-{rows}")
        columns, watermark = data.ddl(data.EVENTS), "ts"
        table = TrinityTable.create(self.spark, str(path), columns, primaryKey="id", watermarkKey=watermark)
        table.upsert(data.read(self.spark, data.EVENTS, base)).execute()
        return path

    def _iceberg(self, rows: int) -> IcebergTable:
        base = self.events(rows)
        self.say(f"    loading {rows:,} rows into Iceberg")
        table = IcebergTable(self.spark, f"{ICEBERG_CATALOG}.bench.events_{rows}", data.EVENTS)
        table.load(base)
        return table

    def ours_merging(self, name: str, rows: int, merge: MergeOf, batches: Batches) -> OursMerging:
        """Ours, on a loaded table of that many rows."""
        return OursMerging(name, self.spark, self.ours(rows), self.path(f"ours/scratch-{rows}"), merge, batches)

    def iceberg_merging(self, name: str, rows: int, clauses: str, batches: Batches) -> IcebergMerging:
        """Iceberg, on a loaded table of that many rows."""
        return IcebergMerging(name, self.iceberg(rows), clauses, batches)
