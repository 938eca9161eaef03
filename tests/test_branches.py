"""S43, S41, S39b: a table that is restored and altered again has columns of several branches of history in its files.

A driver makes any history of merges, alterations, restores and maintenance, beside an oracle of plain Python that keeps the rows of
every version. A column, or a field of a struct, is an object there: two of the same name are two.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import attrs
import pytest
from helpers import assertRows
from pyspark.sql import types as T
from tables import frame, merge_into, new_table

from trinitymerge import TrinityTable, UnsupportedStorageError
from trinitymerge.maintenance.minor_compaction import minor_compact

# The oracle -------------------------------------------------------------------------------------------------------------

WIDER = {
    "smallint": ("int", "bigint", "float", "double", "decimal(20,0)"),
    "int": ("bigint", "double", "decimal(12,2)"),
    "bigint": ("decimal(20,0)", "decimal(24,3)"),
    "float": ("double",),
    "decimal(12,2)": ("decimal(24,3)",),
    "decimal(20,0)": ("decimal(24,3)",),
    "date": ("timestamp_ntz",),
    "varchar(3)": ("string",),
}
BIG = (1 << 53) + 1
"""No double."""


@attrs.frozen(eq=False)
class Col:
    """A column, or a field of a struct: wherever it is altered, it keeps its identity."""

    name: str
    kind: Any
    """A type's name; or a struct, as a tuple of fields; or an array, as a list of one type."""
    uid: object = attrs.field(factory=object)

    @property
    def ddl(self) -> str:
        return f"`{self.name}` {ddl_of(self.kind)}"


def ddl_of(kind: Any) -> str:
    if isinstance(kind, list):
        return f"ARRAY<{ddl_of(kind[0])}>"
    if isinstance(kind, tuple):
        return f"STRUCT<{', '.join(f'`{c.name}`: {ddl_of(c.kind)}' for c in kind)}>"
    return str(kind)


@attrs.frozen(eq=False)
class Row:
    """A stored row. Values are by the identity of their column; ``batch`` is where it is."""

    batch: str
    key: int
    ts: int
    order: int
    values: dict[Any, Any] | None
    """None for a tombstone."""


@attrs.frozen(eq=False)
class State:
    """One version: its columns, and the latest row of each key."""

    columns: tuple[Col, ...]
    latest: dict[int, Row]
    operation: str = ""


def shown(value: Any, kind: Any, type_: T.DataType) -> Any:
    """A value as a DataFrame of a type shows it; of structs the fields that the column has."""
    if value is None:
        return None
    if isinstance(kind, tuple):
        return tuple(shown(value.get(c.uid), c.kind, f.dataType) for c, f in zip(kind, type_.fields, strict=True))
    if isinstance(kind, list):
        return tuple(shown(v, kind[0], type_.elementType) for v in value)
    if isinstance(type_, (T.DoubleType, T.FloatType)):
        return float(value)
    if isinstance(type_, T.DecimalType):
        return Decimal(value).quantize(Decimal(1).scaleb(-type_.scale))
    if isinstance(type_, T.TimestampNTZType) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value


def plain(value: Any) -> Any:
    """What Spark gives, so that it can be compared and counted."""
    if isinstance(value, (T.Row, tuple, list)):
        return tuple(map(plain, value))
    return value


def is_number(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith(("small", "int", "big", "float", "double", "decimal"))


# The driver -------------------------------------------------------------------------------------------------------------


@attrs.define
class History:
    """A table beside its oracle."""

    spark: Any
    table: TrinityTable
    chance: random.Random
    columns: tuple[Col, ...]
    latest: dict[int, Row] = attrs.field(factory=dict)
    states: dict[int, State] = attrs.field(factory=dict)
    stored: list[Row] = attrs.field(factory=list)
    """Every row that was ever written."""
    purged: set[int] = attrs.field(factory=set)
    told: list[str] = attrs.field(factory=list)
    clock: int = 100
    fresh: int = 0

    @property
    def keys(self) -> tuple[Col, Col]:
        """Primary key and watermark: the first two columns."""
        return self.columns[0], self.columns[1]

    def say(self) -> str:
        return "\n".join(self.told)

    def remember(self, operation: str) -> None:
        version = self.table.version
        if version not in self.states:
            self.states[version] = State(self.columns, dict(self.latest), operation)

    # Steps ------------------------------------------------------------------------------------------------------------

    def value(self, kind: Any) -> Any:
        if self.chance.random() < 0.15:
            return None
        if isinstance(kind, list):
            return [self.value(kind[0]) for _ in range(self.chance.randrange(3))]
        if isinstance(kind, tuple):
            return {c.uid: self.value(c.kind) for c in kind}
        small = self.chance.randrange(5)
        if kind in ("bigint", "decimal(20,0)", "decimal(24,3)"):
            small = self.chance.choice((small, small, BIG - 1, BIG, BIG + 1))
        if kind in ("double",):
            return self.chance.choice((float(small), small + 0.5, float(BIG)))
        if kind == "float":
            return float(small)
        if str(kind).startswith("decimal"):
            return Decimal(small)
        if kind == "date":
            return dt.date(2024, 1, 1 + small)
        if kind == "timestamp_ntz":
            return dt.datetime(2024, 1, 1 + small, self.chance.choice((0, 12)))
        return f"t{small}" if kind in ("varchar(3)", "string") else small

    def merge(self) -> None:
        keys = self.chance.sample(range(8), self.chance.choice((1, 2, 3)))
        rows = []
        self.clock += 1
        for key in keys:
            ts = self.clock if self.chance.random() < 0.7 else self.chance.randrange(100, self.clock + 1)
            values = {c.uid: self.value(c.kind) for c in self.columns[2:]}
            rows.append((key, ts, values))
        schema = ", ".join(c.ddl for c in self.columns).replace("varchar(3)", "string")
        types = T._parse_datatype_string(schema)
        data = [
            (
                k,
                ts,
                *(shown(v[c.uid], c.kind, f.dataType) for c, f in zip(self.columns[2:], types.fields[2:], strict=True)),
            )
            for k, ts, v in rows
        ]
        self.table.upsert(self.spark.createDataFrame(data, types)).execute()
        self.landed(rows)

    def delete(self) -> None:
        live = [k for k, row in self.latest.items() if row.values is not None]
        if not live:
            return
        key = self.chance.choice(live)
        self.clock += 1
        k = self.keys[0].name
        self.table.deleteWhere(f"`{k}` = {key}").at(self.clock).execute()
        self.landed([(key, self.clock, None)])

    def touch(self) -> None:
        """Writes rows again, which are read from whatever form they are in."""
        self.clock += 1
        k, ts = (c.name for c in self.keys)
        self.table.updateWhere(f"`{k}` < 4", {f"`{ts}`": str(self.clock)}).execute()
        live = [row for key, row in self.latest.items() if key < 4 and row.values is not None]
        self.landed([(row.key, self.clock, self.seen(row)) for row in live])

    def seen(self, row: Row) -> dict[Any, Any]:
        """A row's values, in the columns of today."""
        assert row.values is not None
        return {c.uid: cut(row.values.get(c.uid), c.kind) for c in self.columns[2:]}

    def landed(self, rows: Iterable[tuple[int, int, Any]]) -> None:
        commit = next(c for c in self.table._store.history() if c.changes_data)
        for key, ts, values in rows:
            if key in self.purged:
                continue
            row = Row(commit.added[0].id, key, ts, commit.version, values)
            self.stored.append(row)
            held = self.latest.get(key)
            if held is None or (ts, row.order) > (held.ts, held.order):
                self.latest[key] = row
        self.states.setdefault(commit.version, State(self.columns, dict(self.latest), "merge"))
        self.moved()  # a fold may have come after it

    def alter(self) -> None:
        alter = self.table.alter()
        for _ in range(self.chance.choice((1, 1, 2))):
            alter = self.change(alter)
        alter.execute()

    def change(self, alter: Any) -> Any:
        kind = self.chance.choice(("add", "rename", "drop", "widen", "widen", "widen", "nest", "nest"))
        own = list(self.columns)
        at = self.chance.randrange(len(own))
        if kind == "add" and len(own) < 8:
            free = [n for n in ("v", "w", "x", "s") if n not in [c.name.casefold() for c in own]]
            if not free:
                return alter
            new = Col(self.chance.choice(free), self.chance.choice(("int", "smallint", (Col("a", "int"),))))
            self.columns = (*own, new)
            return alter.addColumn(new.name, ddl_of(new.kind))
        if kind == "rename":
            self.fresh += 1
            new = attrs.evolve(own[at], name=self.chance.choice((f"r{self.fresh}", own[at].name.upper())))
            self.columns = tuple(new if c is own[at] else c for c in own)
            return alter.renameColumn(own[at].name, new.name)
        if kind == "drop" and at > 1 and len(own) > 3:
            self.columns = tuple(c for c in own if c is not own[at])
            return alter.dropColumn(own[at].name)
        if kind == "widen" and at < 2:
            if own[at].kind != "int" or self.chance.random() < 0.7:
                return alter
            return self.retyped(alter, own[at], "bigint")
        if kind in ("widen", "nest"):
            some = [c for c in own[2:] if isinstance(c.kind, (list, tuple)) == (kind == "nest")]
            if some:
                col = self.chance.choice(some)
                return self.retyped(alter, col, self.wider(col.kind))
        return alter

    def retyped(self, alter: Any, col: Col, kind: Any) -> Any:
        if kind == col.kind:
            return alter
        self.columns = tuple(attrs.evolve(c, kind=kind) if c is col else c for c in self.columns)
        return alter.widenColumn(col.name, ddl_of(kind))

    def wider(self, kind: Any) -> Any:
        if isinstance(kind, list):
            return [self.wider(kind[0])]
        if isinstance(kind, tuple):
            at, n = self.chance.randrange(len(kind)), self.chance.random()
            names = [c.name.casefold() for c in kind]
            free = [name for name in ("b", "c", "B", "b_2") if name.casefold() not in names]
            if n < 0.6 and free:
                new = self.chance.choice(
                    ("int", "smallint", "varchar(9)".replace("varchar(9)", "string"), (Col("a", "int"),))
                )
                return (*kind, Col(self.chance.choice(free), new))
            return tuple(attrs.evolve(c, kind=self.wider(c.kind)) if i == at else c for i, c in enumerate(kind))
        return self.chance.choice(WIDER.get(kind, (kind,)))

    def restore(self) -> None:
        readable = [v for v in self.states if self.is_there(v)]
        version = self.chance.choice(readable)
        self.told[-1] += f" to {version}"
        self.table.restore(version)
        self.columns, self.latest = self.states[version].columns, dict(self.states[version].latest)

    def is_there(self, version: int) -> bool:
        snapshot = self.table._store.snapshot_at(version)
        return not self.table._store.missing(snapshot.batches)

    def rewriting(self, do: Callable[[], Any]) -> Callable[[], None]:
        """What batches are replaced by has the columns of today, and no others."""

        def run() -> None:
            do()
            self.moved()

        return run

    def moved(self) -> None:
        batches = self.table._snapshot().batches
        here = {b.id for b in batches}
        gone = [row for row in self.latest.values() if row.batch not in here]
        new = here - {row.batch for row in self.latest.values()}
        for row in gone:
            values = None if row.values is None else self.seen(row)
            self.latest[row.key] = attrs.evolve(
                row, values=values, batch=min(new) if len(new) == 1 else self.place(row, new)
            )

    def place(self, row: Row, among: set[str]) -> str:
        definition = self.table.definition
        for batch in among:
            rows = self.table._store.scan_directories(definition, definition.fields, [batch])
            if rows.filter(f"`{self.keys[0].name}` = {row.key}").count():
                return batch
        return ""

    def fold(self) -> None:
        snapshot = self.table._store.snapshot()
        pending = [b for b in snapshot.batches if not b.base][-self.chance.choice((2, 3)) :]
        if len(pending) > 1:
            minor_compact(self.table._store, snapshot, tuple(pending))

    def purge(self) -> None:
        keys = self.chance.sample(range(8), 1)
        self.told[-1] += f" {keys}"
        self.table.purge(keys)
        self.forget(set(keys))

    def forget(self, keys: set[int]) -> None:
        self.purged |= keys
        self.stored = [row for row in self.stored if row.key not in keys]
        self.latest = {k: row for k, row in self.latest.items() if k not in keys}
        self.moved()

    def purge_where(self) -> None:
        """Finds what is stored, whatever version and form it is in; not what is nowhere."""
        paths = [(c,) for c in self.columns[2:] if is_number(c.kind)]
        paths += [(c, f) for c in self.columns[2:] if isinstance(c.kind, tuple) for f in c.kind if is_number(f.kind)]
        if not paths:
            return
        path = self.chance.choice(paths)
        found = [(row, value) for row in self.stored if (value := of_row(row, path)) is not None]
        number = self.chance.choice([3, BIG, *(value for _, value in found)])
        name = ".".join(f"`{c.name}`" for c in path)
        self.told[-1] += f" {name} = {number}"
        literal = str(int(number)) if number == int(number) else repr(float(number))
        every = {row.key for row, value in found if equals(value, number)}
        here = set(self.table._store.directories())
        readable = [s for v, s in self.states.items() if self.is_there(v)]
        sure = {r.key for r in self.stored if r.batch in here and equals(of_row(r, path), number)}
        sure |= {r.key for s in readable for r in s.latest.values() if equals(of_row(r, path), number)}
        before = set(range(8)) - self.purged
        result = self.table.purgeWhere(f"{name} = {literal}")
        gone = self.really_purged(before)
        assert sure <= gone <= every, f"{sorted(sure)} <= {sorted(gone)} <= {sorted(every)} in\n{self.say()}"
        assert result.keys == len(gone), self.say()
        self.forget(gone)

    def really_purged(self, keys: set[int]) -> set[int]:
        """Keys that a merge leaves out."""
        from trinitymerge.rows.purged_keys import hash_of_key

        purged = self.table._snapshot().purged
        if purged is None:
            return set()
        k = self.keys[0].name
        rows = self.spark.createDataFrame([(key,) for key in sorted(keys)], f"`{k}` {self.keys[0].kind}")
        hashes = rows.selectExpr(f"`{k}` AS k", f"{hash_of_key(self.table.definition, purged.salt)} AS h").collect()
        return {r[0] for r in hashes if r[1] in set(purged.hashes)}

    def step(self, name: str | None = None) -> None:
        acts: dict[str, tuple[int, Callable[[], Any]]] = {
            "merge": (7, self.merge),
            "delete": (1, self.delete),
            "touch": (1, self.touch),
            "alter": (7, self.alter),
            "restore": (5, self.restore),
            "compact": (1, self.rewriting(lambda: self.table.compact(full=self.chance.random() < 0.5))),
            "fold": (1, self.rewriting(self.fold)),
            "purge": (0.3, self.purge),
            "purgeWhere": (0.7, self.purge_where),
            "vacuum": (0.4, lambda: self.table.vacuum(retentionHours=0)),
        }
        name = name or self.chance.choices(list(acts), [weight for weight, _ in acts.values()])[0]
        self.told.append(name)
        try:
            acts[name][1]()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{self.say()}\n{type(error).__name__}: {error}") from error
        self.told[-1] += f" -> version {self.table.version}: {', '.join(c.ddl for c in self.columns)}"
        self.remember(name if name != "merge" else "fold")

    # Checks -----------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for version in self.states:
            if self.is_there(version):
                self.check_rows(version)
        readable = [v for v in self.states if self.is_there(v)]
        for _ in range(5):
            first, last = sorted(self.chance.choices(readable, k=2))
            self.check_changes(first, last, net=True)
        first, last = sorted(self.chance.choices(readable, k=2))
        if all(self.is_there(v) for v in self.states if first <= v <= last):
            self.check_changes(first, last, net=False)

    def check_rows(self, version: int) -> None:
        state = self.states[version]
        rows = TrinityTable.forPath(self.spark, self.table.path, versionAsOf=version).toDF()
        assert rows.columns == [c.name for c in state.columns], f"version {version} of\n{self.say()}"
        wanted = [as_row(row, state.columns, rows.schema) for row in state.latest.values() if row.values is not None]
        found = [plain(row) for row in rows.collect()]
        assert Counter(found) == Counter(wanted), f"version {version}: {found}, not {wanted}, of\n{self.say()}"

    def check_changes(self, first: int, last: int, net: bool) -> None:
        where = f"changes({first}, {last}, net={net}) of\n{self.say()}"
        try:
            rows = self.table.changes(first, last, net=net).drop("_commit_version", "_commit_timestamp", "_watermark")
            found = [plain(row) for row in rows.collect()]
        except Exception as error:
            raise AssertionError(f"{where}\n{type(error).__name__}: {error}") from error
        columns, wanted = self.states[last].columns, list[Any]()
        steps = [first, last] if net else [first, *(v for v in self.states if first < v <= last)]
        for a, b in pairwise(steps):
            before, after = self.states[a], self.states[b]
            if not net and after.operation in ("compact", "fold", "alter", "vacuum"):
                continue
            wanted += net_changes(before.latest, after.latest, columns, rows.schema)
        assert Counter(found) == Counter(wanted), (
            f"{sorted(map(repr, found))}\n{sorted(map(repr, wanted))}\n{rows.schema.simpleString()}\n{where}"
        )
        before = {c.uid: ddl_of(c.kind) for c in self.states[first].columns}
        for c, f in zip(columns, rows.schema.fields, strict=False):
            if net and before.get(c.uid) == ddl_of(c.kind):
                wanted_type = T._parse_datatype_string(ddl_of(c.kind).replace("varchar(3)", "string"))
                assert f.dataType.simpleString() == wanted_type.simpleString(), where


def cut(value: Any, kind: Any) -> Any:
    """A value with the fields that a type has: what a file is that is written with it."""
    if value is None or isinstance(kind, str):
        return value
    if isinstance(kind, list):
        return [cut(v, kind[0]) for v in value]
    return {c.uid: cut(value.get(c.uid), c.kind) for c in kind}


def of_row(row: Row, path: tuple[Col, ...]) -> Any:
    value: Any = row.values
    for col in path:
        value = None if value is None else value.get(col.uid)
    return value


def equals(value: Any, number: Any) -> bool:
    """As Spark compares: a double with what the number is as a double."""
    if value is None:
        return False
    return bool(value == float(number)) if isinstance(value, float) else bool(value == number)


def as_row(row: Row, columns: tuple[Col, ...], schema: T.StructType) -> tuple[Any, ...]:
    assert row.values is not None
    values = {columns[0].uid: row.key, columns[1].uid: row.ts, **row.values}
    fields = zip(columns, schema.fields, strict=False)
    return tuple(shown(values.get(c.uid), c.kind, f.dataType) for c, f in fields)


def net_changes(
    before: dict[int, Row], after: dict[int, Row], columns: tuple[Col, ...], schema: T.StructType
) -> list[Any]:
    found: list[Any] = []
    for key in {*before, *after}:
        old, new = before.get(key), after.get(key)
        was = None if old is None or old.values is None else as_row(old, columns, schema)
        now = None if new is None or new.values is None else as_row(new, columns, schema)
        if was is not None and now is not None and was != now:
            found += [(*was, "update_preimage"), (*now, "update_postimage")]
        elif was is None and now is not None:
            found.append((*now, "insert"))
        elif was is not None and now is None:
            found.append((*was, "delete"))
    return found


def history_of(spark: Any, directory: Any, seed: str, steps: int) -> History:
    chance = random.Random(seed)
    kinds = ("int", "smallint", "varchar(3)", "date", (Col("a", "int"),), [(Col("a", "smallint"),)])
    columns = [Col("id", "int"), Col("ts", "int"), Col("v", chance.choice(("int", "smallint")))]
    columns += [Col("s", (Col("a", "int"),)), *(Col(f"c{i}", k) for i, k in enumerate(chance.sample(kinds, 2)))]
    fileFormat = "orc" if seed.startswith("orc") else "parquet"
    properties = {"trinitymerge.minorCompactionAfterBatches": chance.choice(("none", "3"))}
    table = new_table(
        spark,
        directory,
        ", ".join(c.ddl for c in columns),
        watermarkKey="ts",
        fileFormat=fileFormat,
        properties=properties,
    )
    history = History(spark, table, chance, tuple(columns))
    history.told.append(f"{seed}: {', '.join(c.ddl for c in columns)} {properties}")
    history.remember("create")
    for _ in range(steps):
        history.step("merge" if history.table.version < 2 else None)
    return history


FORMATS = ["parquet", "orc"]


@pytest.mark.slow
@pytest.mark.parametrize("fileFormat", FORMATS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))])
def test_S43_whatever_is_restored_each_file_is_read_by_what_wrote_it(spark, tmp_path, seed, fileFormat):
    history_of(spark, tmp_path, f"{fileFormat} {seed}", 18).check()


# One by one -------------------------------------------------------------------------------------------------------------


def two_branches(
    spark, directory, first: str, second: str, fileFormat: str, values=(9, BIG), **more: Any
) -> TrinityTable:
    """A column that became wider twice, from the same version on: keys 1 and 2 hold the values on the first branch only."""
    table = new_table(spark, directory, "id INT, ts INT, v INT", watermarkKey="ts", fileFormat=fileFormat, **more)
    merge_into(table, spark, [(3, 10, 3)])
    table.alter().widenColumn("v", first).execute()
    merge_into(table, spark, [(1, 20, values[0])])
    merge_into(table, spark, [(2, 20, values[1])])
    table.restore(1)
    table.alter().widenColumn("v", second).execute()
    return table


@pytest.mark.parametrize("fileFormat", FORMATS)
@pytest.mark.parametrize("second", ["BIGINT", "DOUBLE"])
def test_S39b_a_value_is_found_in_files_of_another_branch(spark, tmp_path, second, fileFormat):
    table = two_branches(spark, tmp_path, "BIGINT", second, fileFormat)
    rows = frame(spark, "id INT, ts INT, v INT, _tm_deleted BOOLEAN", (7, 1, 9, False))
    left = table._store.stage(rows.withColumn("v", rows.v.cast(second)), table.definition)
    none = f"v = {BIG - 1} OR v IS NULL"
    assert table.purgeWhere(none).keys == 0, (
        "a value is neither compared as a double nor null where it has another form"
    )
    assert table.purgeWhere(f"v = {BIG}").keys == 1
    assert table.purgeWhere("v = 9").keys == 2
    assert left.id not in table._store.directories()


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S41_values_of_another_branch_are_shown(spark, tmp_path, fileFormat):
    table = two_branches(spark, tmp_path, "BIGINT", "DECIMAL(12,2)", fileFormat, values=(9, 8))
    merge_into(table, spark, [(1, 30, Decimal(9)), (2, 30, Decimal("0.5"))])
    told = table.changes(4).select("id", "v", "_change_type")
    assert told.schema["v"].dataType.simpleString() == "decimal(21,2)", "the type that holds all values of both"
    shown = [(2, Decimal(8), "update_preimage"), (2, Decimal("0.5"), "update_postimage")]
    assertRows(told.filter("id = 2"), shown)
    assertRows(table.changes(4).select("id", "ts", "v").filter("id = 1"), [(1, 20, Decimal(9)), (1, 30, Decimal(9))])
    table.restore(4)
    assertRows(table.toDF(), [(1, 20, 9), (2, 20, 8), (3, 10, 3)])
    told = table.changes(7).select("id", "v", "_change_type")
    assertRows(told.filter("id = 2"), [(2, Decimal("0.5"), "update_preimage"), (2, Decimal(8), "update_postimage")])


@pytest.mark.parametrize("fileFormat", FORMATS)
@pytest.mark.parametrize("second", ["BIGINT", "DOUBLE", None])
def test_S41_equal_rows_of_two_branches_are_no_changes(spark, tmp_path, second, fileFormat):
    table = new_table(spark, tmp_path, "id INT, v INT", fileFormat=fileFormat)
    merge_into(table, spark, [(1, 9), (2, 2)])
    table.alter().widenColumn("v", "BIGINT").execute()
    merge_into(table, spark, [(1, 10), (2, 2)])
    table.restore(1)
    if second:
        table.alter().widenColumn("v", second).execute()
    kind = float if second == "DOUBLE" else int
    merge_into(table, spark, [(1, kind(11)), (2, kind(2))])
    told = table.changes(3).select("id", "v", "_change_type")
    assertRows(told, [(1, kind(10), "update_preimage"), (1, kind(11), "update_postimage")])


STRUCT, ARRAY = "STRUCT<a:INT{}>", "ARRAY<STRUCT<a:INT{}>>"


@pytest.mark.parametrize("fileFormat", FORMATS)
@pytest.mark.parametrize("second", ["INT", "STRING", "STRUCT<c:INT>"])
def test_S43_a_field_that_is_added_again_after_a_restore_starts_empty(spark, tmp_path, second, fileFormat):
    """It was there on another branch of history, whose files have values under its name."""
    columns = {"s": STRUCT, "l": ARRAY}
    schema = ", ".join(f"{name} {kind.format('')}" for name, kind in columns.items())
    table = new_table(spark, tmp_path, f"id INT, {schema}", fileFormat=fileFormat)

    def grow(field: str) -> None:
        alter = table.alter()
        for name, kind in columns.items():
            alter = alter.widenColumn(name, kind.format(field))
        alter.execute()

    def row(key: int, *values: Any) -> tuple[Any, ...]:
        return key, values, [values]

    grow(",b:INT")
    merge_into(table, spark, [row(1, 1, 5), row(2, 2, 6)])
    table.restore(0)
    grow(f",b:{second}")
    new = {"INT": 7, "STRING": "x", "STRUCT<c:INT>": (4,)}[second]
    merge_into(table, spark, [row(1, 1, None), row(2, 2, new)])
    assertRows(table.toDF(), [row(1, 1, None), row(2, 2, new)])
    told = table.changes(2).select("id", "s", "l", "_change_type")
    assertRows(told, [(*row(2, 2, None), "update_preimage"), (*row(2, 2, new), "update_postimage")])
    table.compact(full=True)
    grow(f",b:{second},c:INT")
    columns = {name: kind.replace("a:INT", "a:BIGINT") for name, kind in columns.items()}
    grow(f",b:{second},c:INT")
    assertRows(table.toDF(), [row(1, 1, None, None), row(2, 2, new, None)])
    with pytest.raises(UnsupportedStorageError, match=r"'s' .* added again"):
        table.sqlFor("spark")
    table.restore(2)
    merge_into(table, spark, [row(2, 2, 8)])
    assertRows(table.toDF(), [row(1, 1, 5), row(2, 2, 8)])


def test_S43_a_field_of_a_column_that_was_dropped_and_brought_back_starts_empty(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, s STRUCT<a:INT>")
    table.alter().widenColumn("s", "STRUCT<a:INT,b:INT>").execute()
    merge_into(table, spark, [(1, (1, 5))])
    table.alter().dropColumn("s").addColumn("x", "INT").execute()
    table.restore(0)
    table.alter().widenColumn("s", "STRUCT<a:INT,B:STRING>").execute()
    merge_into(table, spark, [(1, (1, "new"))])
    assertRows(
        table.changes(2).select("s", "_change_type"), [((1, None), "update_preimage"), ((1, "new"), "update_postimage")]
    )


def test_S40a_a_clone_knows_the_forms_of_what_it_has(spark, tmp_path):
    table = two_branches(spark, tmp_path, "BIGINT", "DOUBLE", "parquet")
    clone = TrinityTable.forPath(spark, table.path, versionAsOf=4).clone(str(tmp_path / "clone"))
    assertRows(clone.toDF(), [(1, 20, 9), (2, 20, BIG), (3, 10, 3)])
    clone.alter().widenColumn("v", "DECIMAL(20,0)").execute()
    assertRows(clone.toDF(), [(1, 20, Decimal(9)), (2, 20, Decimal(BIG)), (3, 10, Decimal(3))])
    assert clone.purgeWhere(f"v = {BIG}").keys == 1
    assert clone.changes(0, clone.version).count() == 2
