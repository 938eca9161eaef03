"""What must hold of tables with history, whatever happens to them: generated tables, many lanes side by side in each (H1-H7).

Rows come early and late, are corrected, taken back, and without a watermark; in between the table is folded, compacted as a whole
and in parts, restored, and keys are purged. After each phase the engine tells what the interpreter tells. The same number always
gives the same life.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from pathlib import Path
from typing import Any

import attrs
import pytest
from helpers import quickly
from hypothesis import strategies as st
from lanes import LANE, batch_as_written, beside, created, draw, led_by_lane, rows_of
from pyspark.sql import DataFrame, SparkSession
from tables import as_they_are, set_default

from trinitymerge import TrinityTable
from trinitymerge.log.actions import AddBatch
from trinitymerge.log.batches import Batches
from trinitymerge.maintenance import segments
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.properties import TARGET_SEGMENT_BYTES
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.spark.system_columns import BATCH
from trinitymerge.testing import ModelTable, renderDifference
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.history import latest_rows, net_changes
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.strategies import VALUES, table_batches, table_definitions

LANES, BATCHES = 30, 9
QUICK, LONG = range(4), range(100, 160)


@pytest.fixture(autouse=True)
def in_segments(monkeypatch):
    """Bases consist of segments of a few rows, and of these only what has changed a lot is written anew."""
    set_default(monkeypatch, TARGET_SEGMENT_BYTES, "2500")
    monkeypatch.setattr(segments, "_PAYS", 0.3)


# Generating -----------------------------------------------------------------------------------------------------------


def life_of(number: int) -> tuple[TableDefinition, list[list[Row]]]:
    """A table with history, led by the lane, and what is committed to it; every third one has no watermark, a few are ORC."""
    wanted = number % 3
    shapes = table_definitions().filter(lambda d: len(d.watermarkKey) == wanted)
    definition = draw(shapes, 2, number)[-1]
    own = attrs.evolve(definition, history=True, fileFormat="orc" if number % 4 == 3 else "parquet")
    lanes = draw(st.tuples(*[table_batches(own)] * 3), LANES, number)
    of_lanes = [[batch for part in parts for batch in part][:BATCHES] for parts in lanes]
    count = max(map(len, of_lanes))
    return led_by_lane(own), [beside(b[n] if n < len(b) else () for b in of_lanes) for n in range(count)]


# Both sides -----------------------------------------------------------------------------------------------------------


class Life:
    """A table of the engine, and the interpreter's at each of its versions."""

    def __init__(self, spark: SparkSession, directory: Path, number: int) -> None:
        self.spark, self.chance = spark, random.Random(number)
        self.definition, self.batches = life_of(number)
        self.rules = RowRules(self.definition)
        path = str(directory / f"table-{uuid.uuid4().hex[:8]}")
        self.table = TrinityTable(created(spark, path, self.definition))
        self.ids = self._written(path)
        self.known = {0: ModelTable(self.definition)}
        self.purged: set[Any] = set()
        self.first = 0
        self.done: list[str] = []

    def _written(self, path: str) -> list[str]:
        """All batches as files, written by one job; they are committed one by one."""
        ids = [uuid.uuid4().hex for _ in self.batches]
        columns = [field.name for field in self.definition.stored_fields]
        rows = [(*(row[c] for c in columns), i) for i, rows in zip(ids, self.batches, strict=True) for row in rows]
        schema = physical_schema([*self.definition.stored_fields, Field(BATCH, "string")])
        frame = as_they_are(self.spark, rows, schema).coalesce(1)
        kind = self.definition.fileFormat
        frame.write.partitionBy(BATCH).mode("append").format(kind).save(f"{path}/data")
        return ids

    # What happens -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelTable:
        return self.known[self.table.version]

    def _note(
        self, rows: tuple[Row, ...] = (), instead: list[tuple[Row, ...]] | None = None, at: int | None = None
    ) -> None:
        """What the interpreter has at the table's new version, or at an earlier one after which no row was appended."""
        newest, before = self.table.version, self.known[max(self.known)]
        version = newest if at is None else at
        past = list(before.batches if instead is None else instead)
        past += [()] * (version - 1 - len(past))
        times = {c.version: _time(c.timestamp_ms) for c in self.table._store.history()}
        for between in range(before.version + 1, version):  # compacted besides
            self.known[between] = attrs.evolve(before, batches=past[:between], times=times)
        for later in range(version, newest + 1):  # with deletion vectors
            self.known[later] = attrs.evolve(before, batches=[*past, rows, *[()] * (later - version)], times=times)

    def commit(self) -> None:
        id, rows = self.ids.pop(0), self.batches.pop(0)
        store, before = self.table._store, self.table._store.snapshot()
        files = store.data_files(id)
        batch = batch_as_written(self.definition, id, rows, not before.batches)
        batch = attrs.evolve(batch, files=len(files), bytes=sum(file.size_bytes for file in files))
        store.commit(before.next_commit("MERGE", [*map(AddBatch, (batch,) if rows else ())]), before)
        self._note(tuple(rows))

    def fold(self) -> None:
        """Some consecutive batches, as merges fold them."""
        snapshot = self.table._store.snapshot()
        now = Batches.of(snapshot)
        some = now.pending if len(now.base) > 1 else now.batches
        if len(some) > 1:
            first = self.chance.randrange(len(some) - 1)
            last = self.chance.randrange(first + 2, len(some) + 1)
            assert minor_compact(self.table._store, snapshot, some[first:last]) is not None
            self._note()

    def compact(self, full: bool = False) -> None:
        if not self.table.compact(full=full).skipped:
            self._note()

    def compact_all(self) -> None:
        self.compact(full=True)

    def merge(self) -> None:
        """What the writer itself appends, blindly."""
        if not self.batches:
            return
        self.ids.pop(0)
        rows = [row for row in self.batches.pop(0) if self.rules.key(row) not in self.purged]
        names = self.definition.names
        if not rows or any(_breaks_not_null(self.definition, row) for row in rows):
            return
        dead = [row for row in rows if self.rules.is_tombstone(row)]
        if self.definition.tombstoneKey is None and dead:
            return
        schema = physical_schema(self.definition.fields)
        frame = as_they_are(self.spark, [tuple(row[n] for n in names) for row in rows], schema)
        self._note(tuple(rows), at=self.table.upsert(frame).execute().version)

    def purge(self) -> None:
        """The keys of two lanes, of which some rows may still come."""
        keys = {self.rules.key(row) for b in self.model.batches for row in b if row[LANE] in (3, 7)}
        fields = [self.definition.field(k) for k in self.definition.primaryKey]
        frame = as_they_are(self.spark, sorted(keys, key=repr), physical_schema(fields))
        if not keys or not self.table.purge(frame).keys:
            return
        self.purged |= keys
        self.ids, self.batches = [], []  # what is written already, a purge has rewritten or deleted
        left = [tuple(row for row in b if self.rules.key(row) not in keys) for b in self.known[max(self.known)].batches]
        self._note(instead=left)
        self.first = self.table.version

    def restore(self) -> None:
        """To any version whose files are there."""
        version = self.chance.randrange(self.first, self.table.version + 1)
        if version > self.first and not self.table.restore(version).skipped:
            self._note(instead=list(self.known[version].batches))

    # What is told -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything that can be asked of it, against the interpreter."""
        own, model, chance = self.definition, self.model, self.chance
        tracked = chance.sample([n for n in own.names if n not in own.watermarkKey], 2)
        options = [{}, {"emptyIntervals": True}, {"track": tracked}, {"exceptColumns": tracked, "emptyIntervals": True}]
        for chosen in options[:1] + chance.sample(options[1:], 1):
            self._same(f"versions({chosen})", model.versions(**chosen), self.table.versions(**chosen), "validFrom")
        stored = {self.rules.key(row) for batch in model.batches for row in batch}
        some = chance.choice(sorted(stored, key=repr)) if stored else None
        if some is not None:
            expected = [row for row in model.versions() if self.rules.key(row) == some]
            keys = as_they_are(self.spark, [some], physical_schema([own.field(k) for k in own.primaryKey]))
            self._same(f"versions(keys={some})", expected, self.table.versions(keys=keys), "validFrom")
        moment = chance.choice(self._moments())
        self._same(f"asOf({moment!r})", model.asOf(moment), self.table.asOf(moment))
        self._same("toDF()", model.live(), self.table.toDF())

    def check_changes(self) -> None:
        start = self.chance.randrange(self.first, self.table.version + 1)
        before, after = (latest_rows(self.definition, self.known[v].batches) for v in (start, self.table.version))
        hidden = ("_commit_version", "_commit_timestamp", "_watermark")
        expected = [_without(row, *hidden) for row in net_changes(self.definition, before, after)]
        found = self.table.changes(start).drop(*hidden)
        self._same(f"changes({start})", expected, found, "_change_type")

    def _moments(self) -> list[Any]:
        if not self.definition.watermarkKey:
            times = [self.model.time(v) for v in range(1, self.table.version + 1)]
            return [*times, *(t - dt.timedelta(milliseconds=1) for t in times)]
        return [*VALUES[str(self.definition.field(self.definition.watermarkKey[0]).type)]]

    def _same(self, call: str, expected: list[Row], found: DataFrame, *beside: str) -> None:
        told = renderDifference(expected, rows_of(found), (*self.definition.primaryKey, *beside))
        if told:
            kinds = [
                (b.archive or ("base" if b.base else "delta"), b.version, b.rows)
                for b in self.table._snapshot().batches
            ]
            pytest.fail(f"{self.definition}\n{self.done}\n{kinds}\n{call}: {told}")


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _breaks_not_null(own: TableDefinition, row: Row) -> bool:
    return any(not f.nullable and row[f.name] is None for f in own.fields)


# Lives ----------------------------------------------------------------------------------------------------------------


PHASES = (
    ("commit", "commit", "fold", "commit", "commit", "fold"),
    ("merge", "compact", "commit", "commit"),
    ("commit", "fold", "commit", "compact"),
    ("commit", "merge", "fold", "compact_all"),
    ("commit", "commit", "restore", "commit", "compact"),
    ("purge", "compact"),
)
"""What happens, in about this order: each phase is shuffled."""


def check_life(life: Life) -> None:
    for phase in PHASES:
        for step in life.chance.sample(phase, len(phase)):
            if step == "commit" and not life.batches:
                continue
            getattr(life, step)()
            life.done.append(f"{step} -> {life.table.version}")
        life.check()
    life.check_changes()


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly(QUICK, {0}))
def test_H2_H6_versions_are_the_interpreters_whatever_happens_to_the_table(number, spark, tmp_path):
    check_life(Life(spark, tmp_path, number))


@pytest.mark.long
@pytest.mark.parametrize("number", LONG)
def test_H2_H6_versions_are_the_interpreters_in_many_more_lives(number, spark, tmp_path):
    check_life(Life(spark, tmp_path, number))
