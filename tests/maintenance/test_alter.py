"""S43: columns are added, renamed, dropped and become wider, and no file is written anew."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs
import pytest
from helpers import assertRows
from tables import copy_of, fill, frame, live_rows, merge_into, new_table

from trinitymerge import (
    ConcurrentCommitError,
    InvalidDefinitionError,
    InvalidMergeError,
    TableExistsError,
    TrinityMergeError,
    TrinityTable,
)
from trinitymerge.fs import faults
from trinitymerge.maintenance.alter import TableAlteration
from trinitymerge.maintenance.minor_compaction import minor_compact
from trinitymerge.merge.model.clauses import All, Delete, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.testing import ModelTable

FORMATS = ["parquet", "orc"]
FIRST = [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", False)]


def altered(table: TrinityTable, change: Callable[[TableAlteration], TableAlteration]) -> tuple[str, ...]:
    return change(table.alter()).execute().changes


def columns(table: TrinityTable) -> list[str]:
    return [f"{f.name} {f.text}" for f in table.definition.fields]


# One by one -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_an_added_column_is_null_in_rows_that_were_there(spark, tmp_path, fileFormat):
    table = fill(new_table(spark, tmp_path, fileFormat=fileFormat), spark, FIRST)
    assert altered(table, lambda a: a.addColumn("n", "INT", comment="how many")) == ("column n int is added",)
    assert table.toDF().columns == ["id", "ts", "v", "deleted", "n"]
    merge_into(table, spark, [(2, 20, "B", False, 7), (4, 20, "D", False, None)])
    rows = [(1, 10, "a", False, None), (2, 20, "B", False, 7), (3, 10, "c", False, None), (4, 20, "D", False, None)]
    assertRows(table.toDF(), rows)
    table.updateWhere("id = 1", {"n": "5"}).execute()
    table.compact(full=True)
    assertRows(table.toDF(), [(1, 10, "a", False, 5), *rows[1:]])
    assert table.definition.field("n").comment == "how many"
    assertRows(TrinityTable.forPath(spark, table.path, versionAsOf=1).toDF(), FIRST)


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_a_renamed_column_keeps_its_values_and_keys_stay_keys(spark, tmp_path, fileFormat):
    table = fill(new_table(spark, tmp_path, fileFormat=fileFormat), spark, FIRST)
    change = altered(
        table,
        lambda a: (
            a.renameColumn("ID", "order id")
            .renameColumn("ts", "at")
            .renameColumn("deleted", "gone")
            .renameColumn("v", "ts")
        ),
    )
    assert len(change) == 4
    assert (table.definition.primaryKey, table.definition.tombstoneKey) == (("order id",), "gone")
    source = frame(spark, "`order id` INT, at INT, ts STRING, gone BOOLEAN", (1, 5, "late", False), (2, 20, None, True))
    assert table.upsert(source).execute().strategy == "blind append"
    assert table.toDF().columns == ["order id", "at", "ts", "gone"]
    assertRows(table.toDF(), [(1, 10, "a", False), (3, 10, "c", False)])
    table.merge(source.filter("at = 20").alias("s"), "target.`order id` = s.`order id` - 1").whenMatched().updateExpr(
        {"ts": "concat(target.ts, '!')", "at": "s.at"}
    ).execute()
    assertRows(table.toDF(), [(1, 20, "a!", False), (3, 10, "c", False)])
    table.compact(full=True)
    assertRows(table.toDF(), [(1, 20, "a!", False), (3, 10, "c", False)])


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_names_may_be_exchanged_in_one_alteration(spark, tmp_path, fileFormat):
    """Keys among them: what is known of the range of one must not be taken for that of the other."""
    table = new_table(spark, tmp_path, "a INT, b INT, v INT", primaryKey=["a", "b"], fileFormat=fileFormat)
    fill(table, spark, [(1, 1000, 1), (2, 2000, 2)])
    altered(table, lambda x: x.renameColumn("a", "t").renameColumn("b", "a").renameColumn("t", "b"))
    assertRows(table.toDF().select("a", "b", "v"), [(1000, 1, 1), (2000, 2, 2)])
    source = frame(spark, "a INT, b INT, n INT", (1000, 1, 5), (7, 2, 5))
    table.merge(source).whenMatched().updateExpr({"v": "target.v + source.n"}).execute()
    assertRows(table.toDF().select("a", "b", "v"), [(1000, 1, 6), (2000, 2, 2)])


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_a_column_that_is_dropped_and_added_again_starts_empty(spark, tmp_path, fileFormat):
    table = fill(new_table(spark, tmp_path, fileFormat=fileFormat), spark, FIRST)
    before = table.version
    assert altered(table, lambda a: a.dropColumn("v")) == ("column v is dropped",)
    assertRows(table.toDF(), [(1, 10, False), (2, 10, False), (3, 10, False)])
    altered(table, lambda a: a.addColumn("V", "DATE"))
    assertRows(table.toDF(), [(1, 10, False, None), (2, 10, False, None), (3, 10, False, None)])
    merge_into(table, spark, [(2, 20, False, dt.date(2024, 1, 1))])
    table.compact(full=True)
    assertRows(table.toDF(), [(1, 10, False, None), (2, 20, False, dt.date(2024, 1, 1)), (3, 10, False, None)])
    assertRows(TrinityTable.forPath(spark, table.path, versionAsOf=before).toDF(), FIRST)
    table.restore(before)
    assertRows(table.toDF(), FIRST)
    assertRows(merge_into(table, spark, [(9, 30, "z", False)]) and table.toDF(), [*FIRST, (9, 30, "z", False)])


WIDER = [
    ("TINYINT", "SMALLINT", -128, 32767),
    ("TINYINT", "BIGINT", 127, 1 << 62),
    ("SMALLINT", "INT", -32768, 1 << 30),
    ("INT", "BIGINT", -(1 << 31), (1 << 63) - 1),
    ("INT", "DOUBLE", (1 << 31) - 1, 0.5),
    ("SMALLINT", "FLOAT", 32767, 0.5),
    ("BIGINT", "DECIMAL(20,0)", (1 << 63) - 1, Decimal(10) ** 19),
    ("FLOAT", "DOUBLE", 1.5, 1e300),
    ("DECIMAL(5,2)", "DECIMAL(9,4)", Decimal("-999.99"), Decimal("12345.6789")),
    ("DECIMAL(5,2)", "DECIMAL(30,2)", Decimal("999.99"), Decimal("9" * 28)),
    ("DATE", "TIMESTAMP_NTZ", dt.date(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("VARCHAR(3)", "VARCHAR(5)", "abc", "abcde"),
    ("VARCHAR(3)", "STRING", "abc", "x" * 50),
    ("ARRAY<INT>", "ARRAY<BIGINT>", [1, None], [1 << 40]),
    ("MAP<STRING,FLOAT>", "MAP<STRING,DOUBLE>", {"a": 1.5}, {"a": 1e300}),
    ("STRUCT<a:INT>", "STRUCT<a:BIGINT,b:STRING>", (1,), (1 << 40, "b")),
    ("ARRAY<STRUCT<a:INT>>", "ARRAY<STRUCT<a:INT,b:STRING>>", [(1,)], [(2, "b")]),
]


def _as_wide(value: Any, kind: str) -> Any:
    """What an old value is under the new type."""
    if kind == "TIMESTAMP_NTZ":
        return dt.datetime.combine(value, dt.time())
    if kind == "STRUCT<a:BIGINT,b:STRING>":
        return (1, None)
    if kind == "ARRAY<STRUCT<a:INT,b:STRING>>":
        return [(1, None)]
    if kind in ("DOUBLE", "FLOAT"):
        return float(value)
    return Decimal(value) if kind.startswith("DECIMAL") else value


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_a_wider_type_keeps_the_values_that_were_there(spark, tmp_path, fileFormat):
    """Rows of both types side by side, unresolved, folded over, compacted; and in the past the type is the old one."""
    narrow = ", ".join(f"c{i} {old}" for i, (old, *_) in enumerate(WIDER))
    wide = ", ".join(f"c{i} {new}" for i, (_, new, *_) in enumerate(WIDER))
    read_as = wide.replace("VARCHAR(5)", "STRING")
    table = new_table(spark, tmp_path, f"id INT, ts INT, {narrow}", watermarkKey="ts", fileFormat=fileFormat)
    olds, news = [row[2] for row in WIDER], [row[3] for row in WIDER]
    nulls = [None] * len(WIDER)
    merge_into(table, spark, [(1, 1, *olds), (2, 1, *nulls), (3, 1, *olds)])
    for i, (_, new, *_) in enumerate(WIDER):
        altered(table, lambda a, name=f"c{i}", kind=new: a.widenColumn(name, kind))
    assert columns(table)[2:] == [
        f"c{i} {new.lower()}".replace("string", "string") for i, (_, new, *_) in enumerate(WIDER)
    ]
    old = [_as_wide(value, new) for value, (_, new, *_) in zip(olds, WIDER, strict=True)]
    schema = f"id INT, ts INT, {read_as}"
    expected = spark.createDataFrame([(1, 1, *old), (2, 1, *nulls), (3, 1, *old)], schema)
    assertRows(table.toDF(), expected)
    merge_into(table, spark, [(3, 2, *news), (4, 2, *nulls)])
    after = spark.createDataFrame([(1, 1, *old), (2, 1, *nulls), (3, 2, *news), (4, 2, *nulls)], schema)
    assertRows(table.toDF(), after)
    past = TrinityTable.forPath(spark, table.path, versionAsOf=1)
    assert columns(past)[2:] == [f"c{i} {old.lower()}" for i, (old, *_) in enumerate(WIDER)]
    assert past.toDF().count() == 3
    purged = copy_of(table, spark)
    purged.purge([4])
    assertRows(purged.toDF(), after.filter("id <> 4"))
    table.compact(full=True)
    assertRows(table.toDF(), after)


def test_S43_keys_and_watermarks_of_whole_numbers_become_wider(spark, tmp_path):
    """Ranges of keys, markers of purged ones and the order of watermarks hold across the change."""
    table = fill(new_table(spark, tmp_path), spark, FIRST)
    table.purge([3])
    altered(table, lambda a: a.widenColumn("id", "BIGINT").widenColumn("ts", "BIGINT"))
    big = 1 << 40
    source = frame(
        spark,
        "id BIGINT, ts BIGINT, v STRING, deleted BOOLEAN",
        (1, big, "A", False),
        (2, 5, "late", False),
        (3, big, "x", False),
    )
    result = table.upsert(source).execute()
    assert result.rowsPurged == 1
    assertRows(table.toDF(), [(1, big, "A", False), (2, 10, "b", False)])
    table.merge(source, "target.id = source.id").whenMatched("target.ts > 10").updateExpr({"v": "'seen'"}).execute()
    table.compact(full=True)
    assertRows(table.toDF(), [(1, big, "seen", False), (2, 10, "b", False)])


@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_a_struct_is_null_where_it_was_and_only_there(spark, tmp_path, fileFormat):
    """Also if nothing but a field is asked for that older files do not have."""
    table = new_table(spark, tmp_path, "id INT, s STRUCT<a:INT>", fileFormat=fileFormat)
    merge_into(table, spark, [(1, (1,)), (2, None), (3, (None,))])
    altered(table, lambda a: a.widenColumn("s", "STRUCT<a:INT,b:STRING>"))
    merge_into(table, spark, [(4, (4, "b")), (5, None)])
    assertRows(table.toDF(), [(1, (1, None)), (2, None), (3, (None, None)), (4, (4, "b")), (5, None)])
    assertRows(table.toDF().filter("s IS NOT NULL").select("id", "s.b"), [(1, None), (3, None), (4, "b")])
    assertRows(table.toDF().filter("s IS NULL").select("id"), [2, 5])
    table.updateWhere("s IS NOT NULL", {"s.b": "'new'"}).execute()
    assertRows(table.toDF(), [(1, (1, "new")), (2, None), (3, (None, "new")), (4, (4, "new")), (5, None)])


def test_S43_what_a_restore_has_left_behind_is_read_and_purged_all_the_same(spark, tmp_path):
    """Files with wider columns than the table has now: changes are told from them, and no key hides in them."""
    table = fill(
        new_table(spark, tmp_path, "id INT, ts INT, v INT", watermarkKey="ts"), spark, [(1, 10, 1), (2, 10, 2)]
    )
    table.alter().widenColumn("id", "BIGINT").widenColumn("v", "BIGINT").execute()
    merge_into(table, spark, [(3, 20, 1 << 40), (2, 20, 5)])
    wide = table.version
    table.restore(1)
    assert columns(table) == ["id int", "ts int", "v int"]
    assertRows(table.toDF(), [(1, 10, 1), (2, 10, 2)])
    told = table.changes(wide).select("id", "v", "_change_type")
    assertRows(told, [(3, 1 << 40, "delete"), (2, 5, "update_preimage"), (2, 2, "update_postimage")])
    table.alter().widenColumn("v", "DOUBLE").execute()
    merge_into(table, spark, [(2, 30, 0.5)])
    assertRows(table.toDF(), [(1, 10, 1.0), (2, 30, 0.5)])
    assert (
        table.definition.field("v").stored_as
        not in TrinityTable.forPath(spark, table.path, versionAsOf=wide).definition.field("v").stored_as
    )
    assert table.purge([3]).filesDeleted > 0
    with pytest.raises(TrinityMergeError):
        TrinityTable.forPath(spark, table.path, versionAsOf=wide).toDF().collect()


# Refused ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.addColumn("V", "INT"), "already has a column 'v'"),
        (lambda a: a.addColumn("n", "INT NOT NULL"), "cannot be NOT NULL"),
        (lambda a: a.addColumn("_tm_n", "INT"), "reserved"),
        (lambda a: a.addColumn("n", "INT, m INT"), "more than one type"),
        (lambda a: a.addColumn("n", "INTERVAL"), "(?i)calendar interval"),
        (lambda a: a.addColumn("n", "NOSUCH"), "cannot be parsed"),
        (lambda a: a.addColumn("", "INT"), "needs a name"),
        (lambda a: a.renameColumn("w", "x"), "no column 'w'"),
        (lambda a: a.renameColumn("v", "TS"), "already has a column 'ts'"),
        (lambda a: a.renameColumn("v", "_tm_v"), "reserved"),
        (lambda a: a.dropColumn("id"), "part of the primary key"),
        (lambda a: a.dropColumn("ts"), "part of the watermark"),
        (lambda a: a.dropColumn("deleted"), "the tombstone key"),
        (lambda a: a.widenColumn("v", "INT"), "not wider"),
        (lambda a: a.widenColumn("id", "SMALLINT"), "not wider"),
        (lambda a: a.widenColumn("id", "DECIMAL(20,0)"), "only whole numbers"),
        (lambda a: a.setNullable("id"), "never null"),
    ],
)
def test_S43_what_cannot_be_is_refused_and_changes_nothing(spark, tmp_path, change, words):
    table = new_table(spark, tmp_path)
    with pytest.raises(InvalidDefinitionError, match=words):
        change(table.alter().addColumn("fine", "INT")).execute()
    assert table.version == 0


def test_S43_an_older_library_is_kept_off_where_it_would_misread(spark, tmp_path):
    table = new_table(spark, tmp_path)
    altered(table, lambda a: a.addColumn("n", "INT"))
    altered(table, lambda a: a.renameColumn("n", "m"))


# Jobs written before ----------------------------------------------------------------------------------------------------


def test_S22_a_job_that_was_written_before_a_column_came_goes_on_working(spark, tmp_path):
    table = fill(new_table(spark, tmp_path), spark, FIRST)
    job = frame(spark, "id INT, ts INT, v STRING, deleted BOOLEAN", (1, 20, "A", False), (4, 20, "D", False))
    altered(table, lambda a: a.addColumn("n", "INT"))
    table.updateWhere("id = 1", {"n": "7"}).execute()
    table.upsert(job).execute()
    rows = [(1, 20, "A", False, 7), (2, 10, "b", False, None), (3, 10, "c", False, None), (4, 20, "D", False, None)]
    assertRows(table.toDF(), rows)
    table.insert(job.withColumn("id", job.id + 10)).execute()
    assert table.toDF().filter("id > 10 AND n IS NULL").count() == 2
    with pytest.raises(InvalidMergeError, match="Column 'v' is missing in the source; it has "):
        table.upsert(job.drop("v")).build()


def test_S7_createIfNotExists_takes_a_table_that_has_more(spark, tmp_path):
    path = str(tmp_path / "t")

    def made(schema: str = "id INT, v INT, s STRUCT<a:INT>", **more: Any) -> TrinityTable:
        return TrinityTable.createIfNotExists(spark, path, schema, primaryKey="id", **more)

    table = made(comment="first")
    table.alter().addColumn("n", "INT").widenColumn("v", "BIGINT").widenColumn("s", "STRUCT<a:INT,b:INT>").execute()
    assert made(comment="second").definition.comment == "first"
    assert made("id INT, v BIGINT, n INT", properties={"owner": "me"}).version == 1
    for schema, words in (
        ("id INT, w INT", "lacks column 'w'"),
        ("id INT, n BIGINT", "'n' is int, not bigint"),
        ("id BIGINT", "'id' is int"),
    ):
        with pytest.raises(TableExistsError, match=words):
            made(schema)
    with pytest.raises(TableExistsError, match="history"):
        made(history=True)


# Beside merges ----------------------------------------------------------------------------------------------------------


def at_the_commit(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any]) -> None:
    """Does something right before the next merge commits."""

    def hook(name: str) -> None:
        if name == "validate.done":
            monkeypatch.setattr(faults, "fault", lambda name: None)
            do()

    monkeypatch.setattr(faults, "fault", hook)


@pytest.mark.parametrize("during", [False, True], ids=["before it runs", "while it runs"])
def test_S35_a_merge_is_planned_again_if_it_means_the_same(spark, tmp_path, monkeypatch, during):
    table = fill(new_table(spark, tmp_path), spark, FIRST)
    source = frame(
        spark, "id INT, ts INT, v STRING, deleted BOOLEAN, n INT", (1, 20, "A", False, 5), (4, 20, "D", False, 6)
    )
    plan = table.upsert(source).build()

    def alter() -> None:
        table.alter().addColumn("n", "INT").addColumn("m", "INT").setComment("new").execute()

    if during:
        at_the_commit(monkeypatch, alter)
    else:
        alter()
    result = plan.execute()
    assert result.columnsIgnored == ()
    assertRows(
        table.toDF(),
        [
            (1, 20, "A", False, 5, None),
            (2, 10, "b", False, None, None),
            (3, 10, "c", False, None, None),
            (4, 20, "D", False, 6, None),
        ],
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.renameColumn("v", "w"), "column v has become w"),
        (lambda a: a.dropColumn("v"), "column v has been dropped"),
        (lambda a: a.dropColumn("v").addColumn("v", "STRING"), "column v has been dropped"),
    ],
)
def test_S35_a_merge_that_would_mean_something_else_is_refused(spark, tmp_path, monkeypatch, change, words):
    table = fill(
        new_table(spark, tmp_path, "id INT, ts INT, v STRING, w2 INT", watermarkKey="ts"), spark, [(1, 10, "a", 1)]
    )
    source = frame(spark, "id INT, ts INT, v STRING, w2 INT", (1, 20, "A", 1))
    all_of_it = table.upsert(source).build()
    mentions = table.merge(source).whenMatched("target.v = 'a'").updateExpr({"w2": "5", "ts": "source.ts"}).build()
    other = table.merge(source).whenMatched().updateExpr({"w2": "target.w2 + 5", "ts": "source.ts"}).build()
    at_the_commit(monkeypatch, lambda: altered(table, change))
    with pytest.raises(ConcurrentCommitError, match=words):
        all_of_it.execute()
    with pytest.raises(ConcurrentCommitError, match=words):
        mentions.execute()
    assert other.execute().rowsUpdated == 1
    assertRows(table.toDF().select("id", "ts", "w2"), [(1, 20, 6)])


# History ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fileFormat", FORMATS)
def test_S43_versions_have_the_columns_of_today(spark, tmp_path, fileFormat):
    """Archives that were written before are read as everything else: by the names their files have."""
    table = new_table(
        spark,
        tmp_path,
        "id INT, ts INT, city STRING, n INT, x INT",
        watermarkKey="ts",
        history=True,
        fileFormat=fileFormat,
    )
    for ts in (1, 2, 3):
        merge_into(table, spark, [(1, ts, f"city {ts}", ts, ts), (2, ts, "b", ts, ts)])
    table.compact(full=True)
    before = table.version
    table.alter().renameColumn("city", "town").widenColumn("n", "BIGINT").dropColumn("x").addColumn(
        "x", "STRING"
    ).renameColumn("ts", "since").execute()
    merge_into(table, spark, [(1, 4, "city 4", 1 << 40, "x")])
    of_one = [(ts, f"city {ts}", ts, None, ts + 1) for ts in (1, 2, 3)] + [(4, "city 4", 1 << 40, "x", None)]
    shown = table.versions().filter("id = 1").select("since", "town", "n", "x", "validTo")
    assertRows(shown, of_one)
    table.compact(full=True)
    assertRows(table.versions().filter("id = 1").select("since", "town", "n", "x", "validTo"), of_one)
    assertRows(table.asOf(2).select("id", "town", "n"), [(1, "city 2", 2), (2, "b", 2)])
    assertRows(
        table.changes(before).select("id", "town", "n", "_change_type"),
        [(1, "city 3", 3, "update_preimage"), (1, "city 4", 1 << 40, "update_postimage")],
    )
    assert table.why(1).filter("town = 'city 1'").count() == 1
    with pytest.raises(InvalidDefinitionError, match="with history"):
        altered(table, lambda a: a.widenColumn("since", "BIGINT"))


def test_S22_U1_events_that_know_nothing_of_a_column_leave_it_as_it_was_before_them(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, ts INT, v STRING", watermarkKey="ts", history=True)
    old, new = "id INT, ts INT, v STRING", "id INT, ts INT, v STRING, n INT"
    table.applyChanges(frame(spark, old, (1, 10, "a"), (1, 30, "c"))).execute()
    altered(table, lambda a: a.addColumn("n", "INT"))
    table.applyChanges(frame(spark, new, (1, 20, "b", 5), (1, 40, "d", 9))).execute()
    table.applyChanges(frame(spark, old, (1, 25, "late"), (1, 50, "e"))).execute()
    versions = [(10, "a", None), (20, "b", 5), (25, "late", 5), (30, "c", None), (40, "d", 9), (50, "e", 9)]
    assertRows(table.versions().select("ts", "v", "n"), versions)
    table.applyChanges(frame(spark, new, (1, 60, "f", None)), exceptColumns="n").execute()
    assertRows(table.toDF().select("ts", "n"), [(60, None)])


# Any life ---------------------------------------------------------------------------------------------------------------


@attrs.define
class Life:
    """A table beside its model, altered and merged into at random."""

    table: TrinityTable
    model: ModelTable
    spark: Any
    chance: random.Random
    past: dict[int, tuple[list[str], list[tuple[Any, ...]]]] = attrs.field(factory=dict)
    told: list[str] = attrs.field(factory=list)
    names: int = 0

    def live(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in self.model.live()), key=repr)

    def merge(self) -> None:
        own = self.table.definition
        keys = self.chance.sample(range(8), 3)
        rows = [tuple(self.value(f, key) for f in own.fields) for key in keys]
        lacks = [f.name for f in own.fields if f.added and self.chance.random() < 0.3]
        named = [{n: v for n, v in zip(own.names, row, strict=True) if n not in lacks} for row in rows]
        source = self.spark.createDataFrame(rows, ", ".join(f"`{f.name}` {f.text}" for f in own.fields)).drop(*lacks)
        upsert = [WhenMatched(None, [Update(All())]), WhenNotMatched(None, [Insert(All())])]
        delete = [WhenMatched(None, [Delete()])]
        if self.chance.random() < 0.25:
            self.table.delete(source).execute()
            self.model.merge(named, delete)
        else:
            self.table.upsert(source).execute()
            self.model.merge(named, upsert)

    def value(self, field: Field, key: int) -> Any:
        own = self.table.definition
        if field.name in own.primaryKey:
            return key
        if field.name in own.watermarkKey:
            return self.chance.randrange(12)
        return (
            None
            if self.chance.random() < 0.2
            else f"t{self.chance.randrange(9)}"
            if field.is_string
            else self.chance.randrange(99)
        )

    def alter(self) -> None:
        own, alter = self.table.definition, self.table.alter()
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            alter = self.change(own, alter)
        try:
            alter.execute()
        except InvalidDefinitionError:
            return
        self.model.alter(self.table.definition)

    def change(self, own: TableDefinition, alter: TableAlteration) -> TableAlteration:
        plain = [f.name for f in own.fields if f.name not in (*own.primaryKey, *own.watermarkKey)]
        number = [f.name for f in own.fields if f.type in ("integer", "short")]
        kind = self.chance.choice(("add", "rename", "drop", "widen"))
        new = f"n{self.chance.randrange(6)}"
        if kind == "add":
            return alter.addColumn(new, self.chance.choice(("STRING", "INT", "SMALLINT")))
        if kind == "rename":
            return alter.renameColumn(self.chance.choice(own.names), new)
        if kind == "drop" and plain:
            return alter.dropColumn(self.chance.choice(plain))
        return alter.widenColumn(self.chance.choice(number), "BIGINT") if number else alter

    def step(self) -> None:
        acts: dict[str, Callable[[], Any]] = {
            "merge": self.merge,
            "alter": self.alter,
            "compact": lambda: self.table.compact(full=self.chance.random() < 0.5),
            "fold": self.fold,
        }
        name = self.chance.choices(list(acts), (6, 5, 1, 1))[0]
        acts[name]()
        found = live_rows(self.table)
        self.told.append(f"{name} -> version {self.table.version}: {columns(self.table)}")
        assert found == self.live(), "\n".join(["rows differ after", *self.told, f"{found}", f"{self.live()}"])
        self.past[self.table.version] = (columns(self.table), found)

    def fold(self) -> None:
        snapshot = self.table._store.snapshot()
        pending = [b for b in snapshot.batches if not b.base][-3:]
        if len(pending) > 1:
            minor_compact(self.table._store, snapshot, tuple(pending))

    def check_past(self) -> None:
        for version, (names, rows) in self.past.items():
            then = TrinityTable.forPath(self.spark, self.table.path, versionAsOf=version)
            assert (columns(then), live_rows(then)) == (names, rows), f"version {version} of\n" + "\n".join(self.told)


@pytest.mark.slow
@pytest.mark.parametrize("fileFormat", FORMATS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 14))])
def test_S43_whatever_is_altered_rows_are_as_if_they_had_been_written_so(spark, tmp_path, seed, fileFormat):
    schema = "id INT, ts INT, a STRING, b INT"
    table = new_table(spark, tmp_path, schema, watermarkKey="ts", fileFormat=fileFormat)
    life = Life(table, ModelTable(table.definition), spark, random.Random(f"{seed} {fileFormat}"))
    for _ in range(16):
        life.step()
    life.check_past()


@pytest.mark.parametrize("comment", ["half \ud83d", 42])
def test_S33_a_comment_that_the_log_cannot_keep_is_refused(spark, tmp_path, comment):
    table = new_table(spark, tmp_path)
    with pytest.raises(InvalidDefinitionError, match=r"cannot keep a value of this ALTER.*Nothing was written"):
        table.alter().setComment(comment).execute()
    assert TrinityTable.forPath(spark, table.path).version == 0
