"""Many small merges side by side in one table, so that a handful of Spark jobs compares them all with the interpreter.

A *program* is what some merges share: definition, source columns, condition, clauses and policy. A *lane* is one state of
the table and one source for it. The lanes of a program stand in one table, whose primary key is led by the column
``lane``, and are merged by one merge, which pairs rows of the same lane only. So they are as independent as if each had a
table of its own, but for refusals: a row that is refused refuses the whole merge. Lanes that the interpreter refuses are
therefore kept apart.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any

import attrs
import iceberg
import tables
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tables import batch_directories, copy_of, directory_of

from trinitymerge import MergeBuilder, TrinityTable
from trinitymerge.errors import TrinityMergeError
from trinitymerge.log.actions import AddBatch, Batch
from trinitymerge.log.batches import Batches
from trinitymerge.log.files import LOG_DIRECTORY
from trinitymerge.maintenance.deletion_vectors import make_deletion_vectors
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.merge.compile.strategies import STRATEGIES, MergeStrategy
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    InsertHistory,
    Update,
    WhenMatched,
    WhenOnlyOnTarget,
)
from trinitymerge.schema.definition import TableDefinition, TombstoneForm
from trinitymerge.schema.field import Field
from trinitymerge.spark.expressions import physical_schema, quote
from trinitymerge.spark.system_columns import BATCH, CLAUSE
from trinitymerge.testing import KeyEquality, MergeCase, ModelResult, renderDifference
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import order_key, tombstone_value
from trinitymerge.testing.strategies import VALUES, merge_cases, source_tables, table_batches

LANE = "lane"

# Generating -----------------------------------------------------------------------------------------------------------


_AT_ONCE = 4


def draw(strategy: st.SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """Examples of a strategy, the same ones for the same number.

    Hypothesis begins with the smallest example and varies those it has found. So it is asked for a few at a time.
    """
    found: list[Any] = []
    for n in range(10 * count):
        if len(found) < count:
            found += _draw(strategy, 1000 * number + n)[1:]
    return found[:count]


def _draw(strategy: st.SearchStrategy[Any], number: int) -> list[Any]:
    found: list[Any] = []

    @seed(number)
    @settings(max_examples=_AT_ONCE, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


def program(number: int) -> MergeCase:
    """A generated merge; its table and source are one lane of many.

    Every fourth one may change primary keys (S24), every fourth inserts beside changes that may be late (S21a).
    """
    kinds = {1: merge_cases().filter(_moves), 3: merge_cases().filter(_inserts_beside_changes)}
    return draw(kinds.get(number % 4, merge_cases()), 3, number)[-1]


def _moves(case: MergeCase) -> bool:
    updates = [
        a for c in case.clauses for a in c.actions if isinstance(a, Update) and isinstance(a.values, Assignments)
    ]
    return any(name in case.definition.primaryKey for update in updates for name, _ in update.values.items)


def _inserts_beside_changes(case: MergeCase) -> bool:
    """Is there a clause that inserts beside an update or delete whose watermark the source assigns."""
    of_source = {field.name for field in case.source_schema}
    late = case.on_stale == "skip" and of_source.intersection(case.definition.watermarkKey)
    return bool(late) and any(
        isinstance(c, WhenMatched) and isinstance(c.actions[0], (Update, Delete)) and len(c.actions) > 1
        for c in case.clauses
    )


def lanes_of(program: MergeCase, count: int, number: int) -> list[MergeCase]:
    """The program with many states of the table and sources; a third of the programs begin with a resolved batch."""
    sources = source_tables(program.definition, program.source_schema)
    states = draw(st.tuples(table_batches(program.definition), sources), count, number)
    cases = [attrs.evolve(program, batches=batches, source_rows=rows) for batches, rows in states]
    return [with_base(case, rising=number % 6 == 0) for case in cases] if number % 3 == 0 else cases


def with_base(case: MergeCase, rising: bool) -> MergeCase:
    """The case with one row per key in its first batch; older than all others where ``rising``."""
    if not case.batches:
        return case
    rules, by_key = RowRules(case.definition), {}
    for row in case.batches[0]:
        oldest = {n: _oldest(case.definition.field(n)) for n in case.definition.watermarkKey} if rising else {}
        by_key[rules.key(row)] = {**row, **oldest}
    return attrs.evolve(case, batches=(tuple(by_key.values()), *case.batches[1:]))


def _oldest(field: Field) -> Any:
    return None if field.nullable else min(VALUES[str(field.type)], key=order_key)


# What the interpreter says --------------------------------------------------------------------------------------------


@attrs.frozen
class Verdicts:
    """The lanes that the interpreter merges with their results, and those it refuses with the errors."""

    merged: tuple[tuple[MergeCase, ModelResult], ...]
    refused: tuple[tuple[MergeCase, TrinityMergeError], ...]

    @classmethod
    def of(cls, cases: Iterable[MergeCase]) -> Verdicts:
        merged, refused = [], []
        for case in cases:
            if not case.source_rows and any(isinstance(c, WhenOnlyOnTarget) for c in case.clauses):
                continue  # alone it does nothing (S37); among others its target rows are without a pair
            try:
                merged.append((case, case.run()))
            except TrinityMergeError as error:
                refused.append((case, error))
        return cls(tuple(merged), tuple(refused))


# Side by side ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Together:
    """Lanes of one program as one merge of the engine."""

    cases: tuple[MergeCase, ...]

    @property
    def program(self) -> MergeCase:
        return self.cases[0]

    @property
    def definition(self) -> TableDefinition:
        """The program's, led by the lane."""
        return led_by_lane(self.program.definition)

    @property
    def batches(self) -> list[list[Row]]:
        """The commits of all lanes, one beside the other."""
        count = max(len(case.batches) for case in self.cases)
        return [beside(case.batches[n] if n < len(case.batches) else () for case in self.cases) for n in range(count)]

    @property
    def source_schema(self) -> StructType:
        fields = [attrs.evolve(_LANE_FIELD, nullable=True), *self.program.source_schema]
        return physical_schema(fields)

    @property
    def source_rows(self) -> list[Row]:
        return beside(case.source_rows for case in self.cases)

    @property
    def condition(self) -> str | None:
        """As text, or, for every other program whose condition is key equality, left out."""
        condition = self.program.condition
        if isinstance(condition, KeyEquality):
            return None if len(self.program.clauses) % 2 else f"A.{LANE} = B.{LANE} AND {condition.sql}"
        return f"A.{LANE} = B.{LANE} AND ({condition.sql})"

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return tuple(_in_lane(clause) for clause in self.program.engine_clauses)

    def builder(self, table: TrinityTable, source: DataFrame) -> MergeBuilder:
        """The merge into a table of these lanes."""
        merge = table.alias("A").merge(source.alias("B"), self.condition)
        return merge._evolve(clauses=self.clauses).onStale(self.program.on_stale)


_LANE_FIELD = Field(LANE, "integer", nullable=False)


def led_by_lane(own: TableDefinition) -> TableDefinition:
    """The definition with the lane as the first column of the primary key."""
    return attrs.evolve(own, fields=(_LANE_FIELD, *own.fields), primaryKey=(LANE, *own.primaryKey))


def beside(rows_of_lanes: Iterable[Iterable[Row]]) -> list[Row]:
    """The rows of all lanes, each with the number of its lane."""
    return [{LANE: lane, **row} for lane, rows in enumerate(rows_of_lanes) for row in rows]


def _in_lane(clause: Clause) -> Clause:
    """The clause with every inserted row in the lane it comes from."""
    lane = f"{'A' if isinstance(clause, WhenOnlyOnTarget) else 'B'}.{LANE}"
    actions: list[Any] = list(clause.actions)
    for n, action in enumerate(actions):
        if isinstance(action, Insert) and not isinstance(action.values, All):
            actions[n] = Insert(Assignments([(LANE, lane), *action.values.items]))
        if isinstance(action, InsertHistory):
            actions[n] = attrs.evolve(action, values=Assignments([(LANE, "lane"), *action.values.items]))
    return attrs.evolve(clause, actions=actions)


# Tables from batches --------------------------------------------------------------------------------------------------


def require_marked(table: TrinityTable) -> None:
    """Make deletion vectors, if there is anything to compare."""
    now = table._store.snapshot()
    if any(b.rows for b in Batches.of(now).deltas):
        assert make_deletion_vectors(table._store, now) is not None


def write_table(
    spark: SparkSession,
    directory: FilePath,
    definition: TableDefinition,
    batches: Sequence[Sequence[Row]],
    fillers: int = 0,
    compacted: Collection[int] = (),
    folded: Collection[int] = (),
    marked: Collection[int] = (),
) -> TrinityTable:
    """A table with these commits, written by one Spark job.

    Args:
        spark: the session.
        directory: where to put it.
        definition: its own; the first column of the primary key is an integer.
        batches: of stored rows, oldest first.
        fillers: how many tombstones of keys below zero the first batch gets, so that the others are small beside it.
        compacted: compact the table after these batches, counted from 1.
        folded: fold the two newest batches after these.
        marked: make deletion vectors after these.
    """
    batches = [list(rows) for rows in batches]
    if fillers and batches and batches[0]:
        dead = {definition.tombstone_column: tombstone_value(definition, dt.datetime(2000, 1, 1))}
        batches[0] += [{**batches[0][0], **dead, definition.primaryKey[0]: -1 - n} for n in range(fillers)]
    if tables.MAKES_ICEBERG:
        return _iceberg_table(spark, definition, batches, compacted)
    path = str(directory / f"table-{uuid.uuid4().hex[:8]}")
    table = TrinityTable(created(spark, path, definition))
    ids = [uuid.uuid4().hex for _ in batches]
    columns = [field.name for field in definition.stored_fields]
    rows = [(*(row[c] for c in columns), id) for id, batch in zip(ids, batches, strict=True) for row in batch]
    if rows:
        schema = physical_schema([*definition.stored_fields, Field(BATCH, "string")])
        frame = tables.as_they_are(spark, rows, schema)
        frame.coalesce(1).write.partitionBy(BATCH).mode("append").parquet(f"{path}/data")
    for n, (id, batch) in enumerate(zip(ids, batches, strict=True), 1):
        base = table._store.snapshot()
        files = table._store.data_files(id)
        written = attrs.evolve(
            batch_as_written(definition, id, batch, not base.batches),
            files=len(files),
            bytes=sum(file.size_bytes for file in files),
        )
        table._store.commit(base.next_commit("TEST", [AddBatch(written)]), base)
        if n in compacted:
            table.compact()
        if n in folded:
            now = table._store.snapshot()
            minor_compact(table._store, now, now.batches[-2:])
        if n in marked:
            require_marked(table)
    return table


def _iceberg_table(
    spark: SparkSession, definition: TableDefinition, batches: Sequence[Sequence[Row]], compacted: Collection[int]
) -> TrinityTable:
    """The same of Iceberg's, which is never folded; it is compacted at the end if it is at all."""
    written = [
        (attrs.evolve(batch_as_written(definition, uuid.uuid4().hex, rows, n == 0), files=1, bytes=1), rows)
        for n, rows in enumerate(batches)
    ]
    table = TrinityTable(iceberg.write(spark, definition, written))
    if compacted:
        table.compact()
    return table


def created(spark: SparkSession, path: str, definition: TableDefinition) -> Any:
    from trinitymerge.stores.managed import DirectoryStore

    store = DirectoryStore(spark, path)
    store.create(definition, None)
    return store


def batch_as_written(definition: TableDefinition, id: str, rows: Sequence[Row], first: bool) -> Batch:
    """What the writer would have noted about the rows of a batch."""
    rules = RowRules(definition)
    watermarks = [tuple(row[n] for n in definition.watermarkKey) for row in rows]
    ordered = sorted(watermarks, key=lambda w: tuple(map(order_key, w)))
    known = bool(rows) and not any(isinstance(v, (float, dt.timedelta)) for w in watermarks for v in w)
    unique = len({rules.key(row) for row in rows}) == len(rows)
    return Batch(
        id=id,
        rows=len(rows),
        tombstones=sum(map(rules.is_tombstone, rows)),
        files=0,
        bytes=0,
        watermark_min=tuple(map(_encoded, ordered[0])) if known and definition.watermarkKey else None,
        watermark_max=tuple(map(_encoded, ordered[-1])) if known and definition.watermarkKey else None,
        unique_keys=unique,
        base=unique and first,
    )


_EPOCH = dt.datetime(1970, 1, 1)


def _encoded(value: Any) -> Any:
    """A watermark value in the form that the writer notes."""
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, Decimal):
        return str(value)
    return int(value) if isinstance(value, bool) else value


# Comparing ------------------------------------------------------------------------------------------------------------

COUNTS = ("rowsInserted", "rowsUpdated", "rowsDeleted", "rowsStale", "rowsAppended", "rowsSource", "rowsUnchanged")


def difference(
    spark: SparkSession,
    directory: FilePath,
    verdicts: Sequence[tuple[MergeCase, ModelResult]],
    compacted: Collection[int] = (),
    folded: Collection[int] = (),
    marked: Collection[int] = (),
) -> str:
    """Merges lanes on every sound path and says where one differs from the interpreter; empty if none does (S31).

    Args:
        spark: the session.
        directory: for the tables.
        verdicts: lanes and what the interpreter makes of them.
        compacted: compact the table after these batches of its past (S38).
        folded: fold the newest ones after these (S38a).
        marked: make deletion vectors after these (D1).
    """
    together = Together(tuple(case for case, _ in verdicts))
    definition, table, source = prepared(spark, directory, together, compacted, folded, marked)
    if compacted or folded or marked:
        before = beside(case.table().live() for case in together.cases)
        text = renderDifference(before, rows_of(table.toDF()), definition.primaryKey)
        if text:
            when = (
                f"compacted after batches {compacted}, folded after {folded}, marked after {marked}, before the merge"
            )
            return f"{when} ('expected' is the interpreter): {text}"
    paths = together.builder(table, source).build().choice
    for path in [p for p in STRATEGIES if p not in paths.unsound]:
        text = _difference_on(path, together, copy_of(table, spark), source, [result for _, result in verdicts])
        if text:
            return f"as {path.name}, {text}"
    return ""


def _difference_on(
    path: MergeStrategy, together: Together, table: TrinityTable, source: DataFrame, wanted: Sequence[ModelResult]
) -> str:
    """The live rows, the counts, and the rows appended, against the interpreter's and against preview()."""
    definition, plan = together.definition, together.builder(table, source)._with_strategy(path).build()
    preview = _appended(definition, plan.preview())
    before, result = table.version, plan.execute()
    text = renderDifference(beside(r.rows for r in wanted), rows_of(table.toDF()), definition.primaryKey)
    if text:
        return f"the live rows ('expected' is the interpreter): {text}"
    text = _different_counts(result, wanted)
    if text:
        return text
    written = _appended(definition, _newest_batch(table)) if table.version > before else []
    text = renderDifference(preview, written, definition.primaryKey)
    if text:
        return f"the rows appended ('expected' is preview()): {text}"
    modelled = _plain(definition, beside(r.appended for r in wanted))
    text = renderDifference(modelled, [_without_clause(row) for row in written], definition.primaryKey)
    return f"the rows appended ('expected' is the interpreter): {text}" if text else ""


def prepared(
    spark: SparkSession,
    directory: FilePath,
    together: Together,
    compacted: Collection[int] = (),
    folded: Collection[int] = (),
    marked: Collection[int] = (),
) -> tuple[TableDefinition, TrinityTable, DataFrame]:
    """The definition, table and source of lanes; the table is compacted or folded after some batches of its past."""
    definition, batches = together.definition, together.batches
    fillers = 4 * (sum(map(len, batches)) + len(together.source_rows)) if _is_unique(definition, batches) else 0
    table = write_table(spark, directory, definition, batches, fillers, compacted, folded, marked)
    rows = [tuple(row[f.name] for f in together.source_schema.fields) for row in together.source_rows]
    return definition, table, tables.as_they_are(spark, rows, together.source_schema)


def _is_unique(definition: TableDefinition, batches: list[list[Row]]) -> bool:
    keys = [RowRules(definition).key(row) for row in batches[0]] if batches else []
    return len(set(keys)) == len(keys)


def rows_of(frame: DataFrame) -> list[Row]:
    """The rows of a frame as the interpreter has them."""
    return [
        {name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.asDict().items()}
        for row in frame.collect()
    ]


def _newest_batch(table: TrinityTable) -> DataFrame:
    batches = Batches.of(table._store.snapshot()).of_all_rows()
    return table._store.scan(attrs.evolve(batches, batches=batches.batches[-1:]), [Field(CLAUSE, "integer")])


def _appended(definition: TableDefinition, frame: DataFrame) -> list[Row]:
    """Stored rows, and the clause each of them comes from."""
    names = [*(field.name for field in definition.stored_fields), CLAUSE]
    return _plain(definition, rows_of(frame.selectExpr(*map(quote, names))))


def _without_clause(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != CLAUSE}


def _plain(definition: TableDefinition, rows: list[Row]) -> list[Row]:
    """Stored rows without the time of the commit: a tombstone column that only says "not null" says just that."""
    if definition.tombstone_form is not TombstoneForm.NOT_NULL:
        return rows
    name = definition.tombstone_column
    return [{**row, name: row[name] is not None} for row in rows]


def _different_counts(result: Any, wanted: Sequence[ModelResult]) -> str:
    for name in COUNTS:
        found, expected = getattr(result, name), sum(getattr(r, name) for r in wanted)
        if found is not None and found != expected:
            return f"{name} is {found}, and {expected} in the interpreter"
    clauses = tuple(sum(r.perClause[n] for r in wanted) for n in range(len(wanted[0].perClause)))
    for found, expected in zip(result.perClause, clauses, strict=True):
        if found is not None and found != expected:
            return f"perClause is {result.perClause}, and {clauses} in the interpreter"
    return ""


def refusal_difference(
    spark: SparkSession, directory: FilePath, refused: Sequence[tuple[MergeCase, TrinityMergeError]]
) -> str:
    """Merges lanes that must be refused and says what was done instead; empty if it was the right refusal (S34)."""
    together = Together(tuple(case for case, _ in refused))
    expected = min((type(error) for _, error in refused), key=_ORDER.index)
    definition, table, source = prepared(spark, directory, together)
    before = traces_of(table), rows_of(table.toDF())
    plan = together.builder(table, source).build()
    for path in [p for p in STRATEGIES if p not in plan.choice.unsound]:
        try:
            result = together.builder(table, source)._with_strategy(path).execute()
            return f"as {path.name}: {result}, and the interpreter says {expected.__name__}: {refused[0][1]}"
        except TrinityMergeError as error:
            if type(error) is not expected:
                return f"as {path.name}, refused with {error!r}, and the interpreter says {expected.__name__}"
        after = traces_of(table), rows_of(table.toDF())
        if after[0] != before[0] or renderDifference(before[1], after[1], definition.primaryKey):
            return f"as {path.name}, the refused merge changed something: {before} became {after}"
    return ""


def traces_of(table: TrinityTable) -> tuple[dict[str, bytes], set[str]]:
    """All that a table has on disk: its log entries as they are, and its batch directories."""
    log = directory_of(table) / LOG_DIRECTORY
    return {entry.name: entry.read_bytes() for entry in log.glob("*.json")}, batch_directories(table)


def _order() -> list[type[TrinityMergeError]]:
    from trinitymerge import errors as e

    return [
        e.NullKeyError,
        e.SchemaMismatchError,
        e.ConstraintError,
        e.DuplicateKeyError,
        e.AmbiguousMergeError,
        e.StaleRowsError,
    ]


_ORDER = _order()
