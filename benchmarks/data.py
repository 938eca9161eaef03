"""The rows: made by Spark from their number alone, so that every run merges the same data.

Owns: the schemas, the generated Parquet files that all contestants read, and the checksum their answers are compared
by. Generated once per run, below the run's directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as F

from benchmarks.race import Answer

Columns = Mapping[str, str]

EVENTS: Columns = {
    "id": "BIGINT",
    "customer": "BIGINT",
    "amount": "DECIMAL(12,2)",
    "status": "STRING",
    "note": "STRING",
    "ts": "TIMESTAMP",
}
"""The table that is merged into."""

CHANGES: Columns = {**EVENTS, "op": "STRING"}
"""A batch of changes: whole rows and what happened to them."""

POSITIONED: Columns = {**EVENTS, "_seq": "STRING"}
"""Whole rows, with their positions in the source's log."""

MESSAGES: Columns = {"value": "STRING"}
"""Messages of Debezium."""

ORDERS: Columns = {
    "order_id": "STRING",
    "customer_id": "STRING",
    "start_date": "DATE",
    "end_date": "DATE",
    "state": "INT",
}
"""CarbonData's history table (its SCDType2Benchmark); the current version of an order ends in the year 9999."""

ORDER_CHANGES: Columns = {"order_id": "STRING", "customer_id": "STRING", "update_date": "DATE", "state": "INT"}

_ROWS_PER_FILE = 1_250_000


def ddl(columns: Columns) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def read(spark: SparkSession, columns: Columns, *paths: Path) -> DataFrame:
    """Parquet files as a DataFrame; with the schema given no job is needed to infer one."""
    return spark.read.schema(ddl(columns)).parquet(*map(str, paths))


def checksum(rows: DataFrame, columns: Columns) -> Answer:
    """Rows and a sum of their hashes: equal for equal rows in any order, whoever stored them."""
    typed = rows.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in columns.items()])
    hashed = f"CAST(xxhash64({', '.join(columns)}) AS DECIMAL(20,0))"
    (found,) = typed.selectExpr("count(*)", f"sum({hashed})").collect()
    return tuple(found)


def full_read(rows: DataFrame, columns: Columns) -> Answer:
    """The read that is timed: one cheap aggregate over every column, so that the scan is most of it."""
    (found,) = rows.selectExpr("count(*)", *[_aggregate(name, kind) for name, kind in columns.items()]).collect()
    return tuple(found)


def _aggregate(name: str, kind: str) -> str:
    return f"sum(length({name}))" if kind == "STRING" else f"max({name})"


# Events and their changes ---------------------------------------------------------------------------------------------


def write_events(spark: SparkSession, rows: int, path: Path) -> Path:
    """The rows of a table before any change."""
    files = max(2, rows // _ROWS_PER_FILE)
    made = spark.range(0, rows, 1, files).selectExpr(
        "id",
        "id % 100003 AS customer",
        "CAST(id % 1000000 / 100 AS DECIMAL(12,2)) AS amount",
        "element_at(array('open', 'paid', 'sent', 'done'), CAST(id % 4 AS INT) + 1) AS status",
        "concat('note ', id) AS note",
        "TIMESTAMP'2024-01-01' + make_interval(0, 0, 0, 0, 0, 0, id % 86400) AS ts",
    )
    made.write.parquet(str(path))
    return path


def write_changes(spark: SparkSession, rows: int, changes: int, batch: int, path: Path, since: int = 0) -> Path:
    """One batch of changes, fresher than every batch before it, in random order in one file.

    Of 100 changes 10 insert, 10 delete, 1 deletes what does not exist and 79 update; the keys are spread over the whole
    table, so that no file of it is spared, or over its newest rows.

    Args:
        spark: the session.
        rows: of the table.
        changes: of the batch; the table has at least as many rows.
        batch: from 0; later batches are fresher.
        path: where it goes.
        since: the smallest key that changes.
    """
    reach = rows - since
    kind = "CASE WHEN n % 10 = 0 THEN 'I' WHEN n % 10 = 2 OR n % 100 = 1 THEN 'D' ELSE 'U' END"
    key = (
        f"CASE WHEN n % 10 = 0 THEN {rows} + {batch} * {changes} + n "
        f"WHEN n % 100 = 1 THEN {rows} + 1000000000 + n "
        f"ELSE {since} + (n * {reach // changes} + {batch} * 7919) % {reach} END"
    )
    keyed = spark.range(changes).withColumnRenamed("id", "n").selectExpr(f"{key} AS id", f"{kind} AS op", "n")
    return _write_batch(keyed, batch, path)


def write_skewed_changes(spark: SparkSession, rows: int, changes: int, batch: int, path: Path) -> Path:
    """One batch of updates, fresher than every batch before it: four of five are in the newest fifth of the keys."""
    cold = rows - rows // 5
    hot = f"{cold} + (n * {rows // 5 // changes} + {batch} * 7919) % {rows // 5}"
    key = f"CASE WHEN n % 5 = 0 THEN (n * {cold // changes} + {batch} * 7919) % {cold} ELSE {hot} END"
    keyed = spark.range(changes).withColumnRenamed("id", "n").selectExpr(f"{key} AS id", "'U' AS op", "n")
    return _write_batch(keyed, batch, path)


def write_few_changes(spark: SparkSession, rows: int, changes: int, batch: int, path: Path) -> Path:
    """One batch of updates of a few keys, fresher than every batch before it: one random key of each stretch of the table."""
    stretch = rows // changes
    key = f"id * {stretch} + pmod(xxhash64(id, {batch}), {stretch})"
    return _write_batch(spark.range(changes).selectExpr(f"{key} AS id", "'U' AS op", "id AS n"), batch, path)


def _write_batch(keyed: DataFrame, batch: int, path: Path) -> Path:
    """Whole rows for the keys and operations of numbered changes (`id`, `op`, `n`), in random order in one file."""
    made = keyed.selectExpr(
        "id",
        "n % 100003 AS customer",
        f"CAST(n % 10000 / 100 + {batch} AS DECIMAL(12,2)) AS amount",
        "'changed' AS status",
        f"concat('batch {batch} change ', n) AS note",
        f"TIMESTAMP'2024-02-01' + make_interval(0, 0, 0, {batch}, 0, 0, n % 3600) AS ts",
        "op",
    )
    made.orderBy(F.xxhash64("id")).coalesce(1).write.parquet(str(path))
    return path


def write_messages(spark: SparkSession, rows: int, changes: int, batch: int, path: Path, kind: str) -> Path:
    """One batch of updates as messages of Debezium, fresher than every batch before it.

    Args:
        spark: the session.
        rows: of the table.
        changes: of the batch.
        batch: from 0; later batches are fresher.
        path: where it goes.
        kind: `messages`, `left_out` where a fifth of them leave the note out, or `parsed` for the same as rows.
    """
    lsn = f"{batch + 1} * 1000000 + id"
    made = spark.range(changes).selectExpr(
        f"(id * {rows // changes} + {batch} * 7919) % {rows} AS id",
        "id % 100003 AS customer",
        "CAST(id % 10000 / 100 AS DECIMAL(12,2)) AS amount",
        "'changed' AS status",
        f"concat('batch {batch} change ', id, ' ', repeat('x', 200)) AS note",
        f"TIMESTAMP'2024-02-01' + make_interval(0, 0, 0, {batch}, 0, 0, id % 3600) AS ts",
        f"{lsn} AS lsn",
    )
    if kind == "parsed":
        zeros = "lpad(hex(lsn), 16, '0')"
        columns = list(EVENTS)
        made.selectExpr(*columns, f"concat('0001/', {zeros}, '/', {zeros}) AS _seq").coalesce(1).write.parquet(
            str(path)
        )
        return path
    left_out = (
        "CASE WHEN lsn % 5 = 0 THEN '__debezium_unavailable_value' ELSE note END" if kind == "left_out" else "note"
    )
    row = f"id, customer, CAST(amount AS STRING) AS amount, status, {left_out} AS note, unix_micros(ts) AS ts"
    source = "concat('[\"', lsn, '\",\"', lsn, '\"]') AS sequence, 'public' AS schema, 'events' AS table, 'false' AS snapshot"
    value = (
        f"to_json(named_struct('op', 'u', 'before', NULL, 'after', struct({row}), 'source', struct({source}))) AS value"
    )
    made.selectExpr(value).coalesce(1).write.parquet(str(path))
    return path


def write_updates(spark: SparkSession, rows: int, stride: int, batch: int, path: Path) -> Path:
    """One small batch of updates, every `stride`-th key of the table; no two batches change the same key."""
    made = spark.range(batch * rows, (batch + 1) * rows, 1, 1).selectExpr(
        f"id * {stride} AS id",
        "id % 100003 AS customer",
        "CAST(id % 10000 / 100 AS DECIMAL(12,2)) AS amount",
        "'changed' AS status",
        f"'small batch {batch}' AS note",
        f"TIMESTAMP'2024-02-01' + make_interval(0, 0, 0, 0, 0, {batch}, 0) AS ts",
        "'U' AS op",
    )
    made.write.parquet(str(path))
    return path


# CarbonData's orders --------------------------------------------------------------------------------------------------


def write_orders(spark: SparkSession, orders: int, path: Path) -> Path:
    """The history table on its first day: one open version per order."""
    made = spark.range(1, orders + 1, 1, max(2, orders // _ROWS_PER_FILE)).selectExpr(
        "concat('order', id) AS order_id",
        "concat('customer', id) AS customer_id",
        "DATE'2018-05-01' AS start_date",
        "DATE'9999-01-01' AS end_date",
        "1 AS state",
    )
    made.write.parquet(str(path))
    return path


def write_order_changes(spark: SparkSession, orders_a_day: int, day: int, path: Path) -> Path:
    """One day's changes: the same orders change every day, as in CarbonData's benchmark, and as many are new.

    Args:
        spark: the session.
        orders_a_day: orders that change, and new orders.
        day: from 1.
        path: where it goes.
    """
    changed = spark.range(1, orders_a_day + 1).selectExpr(
        "concat('order', id) AS order_id", "concat('customer', id) AS customer_id", f"{day + 1} AS state"
    )
    new = spark.range(1, orders_a_day + 1).selectExpr(
        f"concat('newOrder', {day}, '-', id) AS order_id", "concat('customer', id) AS customer_id", "1 AS state"
    )
    made = changed.unionByName(new).selectExpr(
        "order_id", "customer_id", f"date_add(DATE'2018-05-01', {day}) AS update_date", "state"
    )
    made.coalesce(1).write.parquet(str(path))
    return path
