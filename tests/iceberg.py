"""The lane on Iceberg: the tables that tests make are Iceberg's, in a catalog of files (`pytest --iceberg`).

It needs the packages of the extra `iceberg`: PySpark 3.5, and Iceberg's runtime for it. Tests that look into what only managed
tables have are not in it, and those that ask for what a table of Iceberg's has no means for are skipped.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import DataFrame, SparkSession

from trinitymerge import TrinityTable
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.log.actions import AddBatch, Batch
from trinitymerge.log.model import Commit, Snapshot, now_ms
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.stores.iceberg import IcebergStore
from trinitymerge.stores.iceberg_versions import HIDDEN, columns_of

LANE = {
    "test_merge.py": 6,
    "test_properties.py": 6,
    "test_late_changes.py": 8,
    "test_inserts.py": 8,
    "test_partial_updates.py": 8,
    "test_changes.py": 8,
    "test_strategies.py": 12,
    "test_reader.py": 8,
}
"""Files about what rows come to, and the share of their tests that runs: one in so many, chosen by name."""

DATABASE = "lake.db"


def jar() -> Path:
    """Iceberg's runtime for Spark."""
    spec = find_spec("snowpark_connect_deps_iceberg")
    if spec is None or spec.origin is None:
        pytest.exit("--iceberg needs the packages of the extra 'iceberg': make test-iceberg", 4)
    (found,) = (Path(spec.origin).parent / "jars").glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    return found


def settings(warehouse: str) -> dict[str, str]:
    """Those of a session with a catalog of Iceberg's."""
    return {
        "spark.driver.extraClassPath": str(jar()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.sql.ansi.enabled": "true",
    }


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the lane's tests."""
    chosen = [item for item in items if _is_chosen(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _is_chosen(item: pytest.Item) -> bool:
    if item.get_closest_marker("iceberg") is not None:
        return True
    share = LANE.get(item.path.name)
    is_managed = item.get_closest_marker("managed") is not None
    return share is not None and not is_managed and crc32(item.name.encode()) % share == 0


def new_name() -> str:
    """A name that no table has."""
    return f"{DATABASE}.t{uuid.uuid4().hex[:12]}"


def copy_of(table: TrinityTable, spark: SparkSession) -> TrinityTable:
    """The same table once more: its newest version, under another name."""
    store = table._store
    assert isinstance(store, IcebergStore)
    now = store.snapshot()
    rows = store.table.read(int(now.checksum))
    return TrinityTable(_made(spark, now, rows))


def write(
    spark: SparkSession, definition: TableDefinition, batches: Sequence[tuple[Batch, Sequence[Mapping[str, Any]]]]
) -> Any:
    """A store with these commits, written by one job; its history knows only the last of them."""
    columns = [f.name for f in definition.stored_fields]
    rows = [(*(row[c] for c in columns), n) for n, (_, some) in enumerate(batches, 1) for row in some]
    frame = spark.createDataFrame(rows, physical_schema([*definition.stored_fields, HIDDEN[0]]), verifySchema=False)
    store = IcebergStore(spark, new_name())
    try:
        now = store.create(definition, None)
    except InvalidDefinitionError as error:
        pytest.skip(f"Iceberg cannot keep it: {error}"[:150])
    for batch, _ in batches:
        now = now.apply(now.next_commit("TEST", [AddBatch(batch)]))
    return _made(spark, now, frame.coalesce(1), store)


def _made(spark: SparkSession, now: Snapshot, rows: DataFrame, store: IcebergStore | None = None) -> IcebergStore:
    if store is None:
        store = IcebergStore(spark, new_name())
        store.create(now.definition, None)
    since = int(store.snapshot().checksum)
    branch = store.stage_on_branch(since).branch
    fields = [Field.from_json(f) for f in store.columns.jsonValue()["fields"]]
    store.table.append(branch, columns_of(rows, fields), {})
    commit = Commit(version=now.version, timestamp_ms=max(now.timestamp_ms, now_ms()), operation="TEST")
    store.publish_branch(branch, commit, now, since, is_first=True)
    return IcebergStore(spark, store.path)
