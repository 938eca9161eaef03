"""Iceberg's SQL procedures and metadata tables, as functions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping

import attrs
from pyspark.sql import DataFrame, SparkSession

from trinitymerge.errors import ConcurrentCommitError, UnsupportedStorageError
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import is_spark_error
from trinitymerge.stores.catalog import CatalogTable, literal

MAIN = "main"

_TRIES = 8
_FOR_EVER = 36_500  # days: a tag that says nothing would be subject to the table's history.expire.max-ref-age-ms
_MODE = "distribution-mode"
_WAP = ("spark.wap.id", "spark.wap.branch")
_UNSEEN = ("Cannot use branch (does not exist)", "Ref does not exist")


@attrs.frozen
class IcebergSnapshot:
    """One Iceberg snapshot, in the chain that leads to a table's newest.

    Attributes:
        at_ms: when it was committed, milliseconds since the epoch.
        operation: ``append``, ``replace``, ``overwrite`` or ``delete``, as Iceberg's specification has them.
    """

    id: int
    parent: int | None
    at_ms: int
    operation: str
    summary: Mapping[str, str]

    def count(self, name: str, unknown: int = 0) -> int:
        """Return a number of its summary, or a default: engines need not write them."""
        return int(self.summary.get(name, unknown))


def is_lost_race(error: BaseException) -> bool:
    """Return True for Iceberg's error that another writer changed the table first and nothing was written."""
    return is_spark_error(error) and "CommitFailedException" in str(error)


class IcebergTable(CatalogTable):
    def __init__(self, spark: SparkSession, name: str) -> None:
        super().__init__(spark, name)
        self._mode: str | None = None
        dotted = [p for p in self.parts if "." in p]
        if dotted:
            raise UnsupportedStorageError(
                f"{self.name} has a dot within a part of its name ({', '.join(dotted)}). Iceberg catalogs do not refresh "
                "the cached snapshots of such a table, so it cannot be merged into. Rename it.",
                path=self.name,
            )

    def require_direct(self, *settings: str) -> None:
        """Raise if a setting diverts reads or writes to a branch: Iceberg does so silently, and merged rows would be on none."""
        for name in settings or _WAP:
            value = self.spark.conf.get(name, None)
            if value and self.properties().get("write.wap.enabled", "").lower() == "true":
                raise UnsupportedStorageError(
                    f"{'.'.join(self.parts)} has the property write.wap.enabled, and the session the setting {name}={value}: "
                    "Iceberg would keep the rows aside, and a merge has to commit them. Nothing was written. "
                    f"spark.conf.unset('{name}') before it.",
                    path=self.name,
                )

    def heads(self) -> dict[str, int]:
        """Return the newest snapshot of each branch, and what tags name."""
        rows = self.spark.table(f"{self.name}.refs").select("name", "snapshot_id").collect()
        return {r["name"]: r["snapshot_id"] for r in rows}

    def links(self, where: str = "true", without: Iterable[str] = ()) -> list[IcebergSnapshot]:
        """Return the snapshots that have not expired, for which SQL is true, without some large entries of their summaries."""
        left_out = ", ".join(map(E.text_literal, without))
        summary = f"map_filter(summary, (k, v) -> k NOT IN ({left_out}))" if left_out else "summary"
        rows = self.spark.table(f"{self.name}.snapshots").filter(where)
        found = rows.selectExpr(
            "snapshot_id", "parent_id", "unix_millis(committed_at) AS at", "operation", f"{summary} AS s"
        )
        return [
            IcebergSnapshot(r["snapshot_id"], r["parent_id"], r["at"], r["operation"], r["s"] or {})
            for r in found.collect()
        ]

    def read(self, link: int) -> DataFrame:
        """Return the rows of a snapshot, with the columns that the table has now."""
        return self.spark.read.option("snapshot-id", str(link)).table(self.name)

    def branch(self, name: str, at: int | None) -> None:
        """Create a branch at a snapshot; without one, at an empty snapshot."""
        where = "" if at is None else f" AS OF VERSION {at}"
        self.with_retries(f"ALTER TABLE {self.name} CREATE BRANCH {E.quote(name)}{where} RETAIN 7 DAYS")

    def drop(self, name: str) -> None:
        self.with_retries(f"ALTER TABLE {self.name} DROP BRANCH IF EXISTS {E.quote(name)}")

    def tag(self, name: str, at: int) -> None:
        """Give a snapshot a name, by which it is kept."""
        self.with_retries(
            f"ALTER TABLE {self.name} CREATE OR REPLACE TAG {E.quote(name)} AS OF VERSION {at} RETAIN {_FOR_EVER} DAYS"
        )

    def append(self, branch: str, rows: DataFrame, told: Mapping[str, str]) -> None:
        """Append rows, with all columns of the table in any order, to a branch, as one snapshot with entries of its summary."""
        writer = rows.writeTo(self._on(branch)).option(_MODE, self._distribution())
        for key, value in told.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        self._write(writer.append)

    def _distribution(self) -> str:
        """Return Iceberg's distribution among tasks, except for ranges: to find those, Spark evaluates and counts rows twice."""
        if self._mode is None:
            told = self.spark.conf.get(f"spark.sql.iceberg.{_MODE}", None) or self.properties().get(
                f"write.{_MODE}", ""
            )
            self._mode = "none" if told.lower() == "none" else "hash"
        return self._mode

    def delete(self, branch: str, where: str) -> None:
        """Delete rows from a branch; whole files where it can."""
        self._write(lambda: self.sql(f"DELETE FROM {self._on(branch)} WHERE {where}"))

    def fast_forward(self, branch: str, since: int | None) -> bool:
        """Make a branch that began with ``since`` the table's newest; return False, and change nothing, if others were faster."""
        catalog, *rest = self.parts
        table = literal(".".join(E.quote(p) for p in rest))
        call = f"CALL {E.quote(catalog)}.system.fast_forward({table}, {literal(MAIN)}, {literal(branch)})"
        for again in range(_TRIES * 4):
            try:
                self._once_seen(lambda: self.sql(call).collect())
            except Exception as error:
                if "Cannot fast-forward" in str(error):
                    return False
                if not is_lost_race(error):
                    raise
                time.sleep(0.01 * again)  # a change of anything, such as another writer's branch
                self.refresh()
                if self.heads().get(MAIN) != since:
                    return False
            else:
                return True
        return False

    def _write(self, change: Callable[[], object]) -> None:
        try:
            self._once_seen(change)
        except Exception as error:
            if is_lost_race(error):
                raise self.crowded() from error
            raise

    def _once_seen(self, change: Callable[[], object]) -> None:
        """Change a branch, and retry if the catalog's cache, which threads share, is older than the branch."""
        for again in range(_TRIES):
            try:
                change()
                return
            except Exception as error:
                if again == _TRIES - 1 or not any(text in str(error) for text in _UNSEEN):
                    raise
                self.refresh()

    def _on(self, branch: str) -> str:
        return f"{self.name}.{E.quote(f'branch_{branch}')}"

    def with_retries(self, statement: str) -> None:
        """Run a statement that changes names or properties, again if it loses a race: Iceberg tries those once."""
        for again in range(_TRIES):
            try:
                self.sql(statement)
                return
            except Exception as error:
                if not is_lost_race(error):
                    raise
                time.sleep(random.uniform(0, 0.04 * (again + 1)))
        raise self.crowded()

    def crowded(self) -> ConcurrentCommitError:
        """Return the error of a change that has lost every race."""
        path = ".".join(self.parts)
        return ConcurrentCommitError(
            f"So many writers change {path} at once that this one was never first. Nothing was committed; run it again, or "
            "raise Iceberg's table property commit.retry.num-retries.",
            path=path,
        )
