"""What the sections share: the session, the generated files, and the loaded tables, each made once when first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import data
from benchmarks.contestants import (
    DELTA,
    ICEBERG,
    DeltaTable,
    IcebergTable,
    MergeOf,
    OursMerging,
    PeerTable,
    SqlMerge,
    SqlMerging,
    compact_all,
)
from benchmarks.race import Race
from benchmarks.session import ICEBERG_CATALOG, has_delta, settle
from benchmarks.sizes import Size
from trinitymerge import TrinityTable

Batches = Callable[[int], Sequence[Path]]

Properties = tuple[tuple[str, str], ...]
"""Of a table of ours, as pairs; none are the defaults."""


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
        self.newest_changes = cache(self._newest_changes)
        self.skewed_changes = cache(self._skewed_changes)
        self.few_changes = cache(self._few_changes)
        self.small_changes = cache(self._small_changes)
        self.order_changes = cache(self._order_changes)
        self._loaded = cache(self._load)
        self.compacted = cache(self._compacted)
        self.iceberg = cache(self._iceberg)
        self.peers_of_orders = cache(self._peers_of_orders)
        self.delta = cache(self._delta)

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

    def _newest_changes(self, rows: int, batch: int) -> Path:
        path = self.path(f"data/newest-changes-{rows}-{batch}")
        return data.write_changes(self.spark, rows, self.size.changes, batch, path, since=rows - rows // 100)

    def _skewed_changes(self, rows: int, batch: int) -> Path:
        path = self.path(f"data/skewed-changes-{rows}-{batch}")
        return data.write_skewed_changes(self.spark, rows, self.size.changes, batch, path)

    def _few_changes(self, rows: int, batch: int) -> Path:
        path = self.path(f"data/few-changes-{rows}-{batch}")
        return data.write_few_changes(self.spark, rows, self.size.few_changes, batch, path)

    def _small_changes(self, batch: int) -> Path:
        size = self.size
        stride = size.pending_base // (size.pending * size.pending_rows)
        path = self.path(f"data/small-changes-{batch}")
        return data.write_updates(self.spark, size.pending_rows, stride, batch, path)

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

    def a_few_changes(self, rows: int, repetitions: int) -> Batches:
        """Another few changed keys for each repetition, made now."""
        paths = [self.few_changes(rows, i) for i in range(repetitions)]
        return lambda repetition: [paths[repetition]]

    # Tables ---------------------------------------------------------------------------------------------------------

    def ours(self, rows: int, properties: Properties = ()) -> Path:
        """A table of ours with that many events; nobody changes it, all work on copies."""
        return self._loaded(rows, properties)

    def _load(self, rows: int, properties: Properties) -> Path:
        base = self.events(rows)
        self.say(f"    loading {rows:,} rows into trinitymerge")
        path = self.path("-".join(["ours/events", str(rows), *(f"{name}={text}" for name, text in properties)]))
        self._create(path, properties).upsert(data.read(self.spark, data.EVENTS, base)).execute()
        return path

    def _compacted(self, rows: int) -> Path:
        base = self.events(rows)
        self.say(f"    loading {rows:,} rows into trinitymerge in two parts, and compacting them")
        path = self.path(f"ours/compacted-{rows}")
        table = self._create(path)
        # What is loaded at once is a base already, which compact() leaves as it is: files with any keys, not ranges of them.
        for part in (f"id < {rows // 2}", f"id >= {rows // 2}"):
            table.upsert(data.read(self.spark, data.EVENTS, base).filter(part)).execute()
        compact_all(table)
        return path

    def _create(self, path: Path, properties: Properties = ()) -> TrinityTable:
        columns = data.ddl(data.EVENTS)
        return TrinityTable.create(
            self.spark, str(path), columns, primaryKey="id", watermarkKey="ts", properties=dict(properties)
        )

    def _iceberg(self, rows: int, copy: str = "") -> IcebergTable:
        base = self.events(rows)
        self.say(f"    loading {rows:,} rows into Iceberg")
        table = IcebergTable(self.spark, f"{ICEBERG_CATALOG}.bench.events_{rows}{copy}", data.EVENTS)
        table.load(base)
        return table

    def _delta(self, rows: int, copy: str = "") -> DeltaTable | None:
        if not has_delta():
            return None
        base = self.events(rows)
        self.say(f"    loading {rows:,} rows into Delta Lake")
        table = DeltaTable(self.spark, self.path(f"delta-lake/events-{rows}{copy}"), data.EVENTS)
        table.load(base)
        return table

    def _peers_of_orders(self) -> dict[str, PeerTable]:
        """The peers' tables of orders: Iceberg's, and Delta Lake's where it is among them."""
        tables: dict[str, PeerTable] = {
            ICEBERG: IcebergTable(self.spark, f"{ICEBERG_CATALOG}.bench.orders", data.ORDERS)
        }
        if has_delta():
            tables[DELTA] = DeltaTable(self.spark, self.path("delta-lake/orders"), data.ORDERS)
        for name, table in tables.items():
            self.say(f"    loading {self.size.orders:,} orders for {name}")
            table.load(self.orders())
        return tables

    def ours_merging(self, name: str, rows: int, merge: MergeOf, batches: Batches) -> OursMerging:
        """Ours, on a loaded table of that many rows."""
        return self.merging_into(self.ours(rows), name, merge, batches)

    def merging_into(self, pristine: Path, name: str, merge: MergeOf, batches: Batches) -> OursMerging:
        """Ours, on copies of a table."""
        return OursMerging(name, self.spark, pristine, self.path(f"ours/scratch-{pristine.name}"), merge, batches)

    def iceberg_merging(self, name: str, rows: int, merge: SqlMerge, batches: Batches) -> SqlMerging:
        """Iceberg, on a loaded table of that many rows."""
        return SqlMerging(name, self.iceberg(rows), merge, batches)

    def delta_merging(self, name: str, rows: int, merge: SqlMerge, batches: Batches) -> list[SqlMerging]:
        """Delta Lake, on a loaded table of that many rows, if it is among the peers."""
        table = self.delta(rows)
        return [] if table is None else [SqlMerging(name, table, merge, batches)]
