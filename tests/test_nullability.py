"""S45: NOT NULL inside of structs, arrays and maps."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType
from tables import fill, frame, live_rows, new_table, sound_paths
from test_errors import refused

from trinitymerge import ConstraintError, InvalidDefinitionError, SchemaMismatchError, TrinityTable, sql
from trinitymerge.log.batches import Batches
from trinitymerge.merge.model.clauses import All, Insert, Update, WhenMatched, WhenNotMatched
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import never_null
from trinitymerge.spark.expressions import physical_schema
from trinitymerge.spark.predicates import holds_null
from trinitymerge.testing import ModelTable
from trinitymerge.testing.model.values import zero

ADDRESS = "id INT, ts INT, address STRUCT<city: STRING NOT NULL, geo: STRUCT<lat: INT NOT NULL, lon: INT>>, n INT"


@pytest.fixture
def people(spark, tmp_path) -> TrinityTable:
    table = new_table(spark, tmp_path, ADDRESS, watermarkKey="ts")
    return fill(table, spark, [(1, 10, ("Rome", (1, None)), 1), (2, 10, None, 2), (3, 10, ("Oslo", None), 3)])


def rows_of(table: TrinityTable, spark: Any, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(rows), physical_schema(table.definition.fields))


def test_S45_a_null_inside_of_a_struct_is_refused_on_every_path_and_names_its_place(people, spark):
    bad = rows_of(people, spark, (1, 20, (None, None), 1), (2, 20, ("Bari", (2, 2)), 2), (9, 20, ("Nice", None), 9))
    before = live_rows(people)
    words = (
        "Column 'address.city' must not be null, but is in 1 row of the merge: (id=1, address=",
        "Nothing was written.",
        "alter().setNullable('address.city')",
    )
    for path in sound_paths(people.upsert(bad)):
        with refused(SchemaMismatchError, *words) as caught:
            people.upsert(bad)._with_strategy(path).execute()
        assert caught.value.column == "address.city"
    deep = rows_of(people, spark, (1, 20, ("Rome", (None, 5)), 1))
    with refused(SchemaMismatchError, "'address.geo.lat' must not be null"):
        people.upsert(deep).execute()
    assert live_rows(people) == before


def test_S45_so_it_is_on_every_way_of_writing(people, spark):
    before, version, t = live_rows(people), people.version, people
    bad = rows_of(t, spark, (9, 20, (None, (1, 1)), 9))
    nowhere = {"address": "named_struct('city', CAST(NULL AS STRING), 'geo', target.address.geo)"}
    new = {"id": "source.id", "ts": "99", "address": "source.address"}
    for merge in (
        t.insert(bad),
        t.merge(bad).whenNotMatched().insertAll(),
        t.merge(bad).whenMatched("false").delete().whenNotMatched().insertExpr(new),
        t.applyChanges(bad),
        t.applyChanges(bad, ignoreNullUpdates=True),
        t.snapshot(bad.drop("ts"), 20),
        t.merge(bad).withSchemaEvolution().whenNotMatched().insertAll(),
        t.updateWhere("id = 1", {"address.city": "NULL", "ts": "50"}),
        t.updateWhere("id = 2", {"address.geo.lon": "1", "ts": "50"}),  # of a null struct, the other fields are null
        t.merge(bad.withColumn("id", bad.id - 8)).whenMatched().updateExpr({"address.city": "source.address.city"}),
        t.merge(bad).whenNotMatchedAndExistsOnlyOnTarget("target.id = 3").updateExpr(nowhere),
    ):
        with refused(SchemaMismatchError, "Column 'address.city' must not be null"):
            merge.execute()
    assert (live_rows(t), t.version) == (before, version)


def test_S45_S32a_statements_are_judged_by_what_is_inside(people, spark):
    with refused(SchemaMismatchError, "Column 'address.city' must not be null"):
        sql(spark, "UPDATE t SET address.city = NULL, ts = 60 WHERE id = 1", {"t": people})
    with refused(SchemaMismatchError, "Column 'address.city' must not be null"):
        sql(spark, "INSERT INTO t VALUES (7, 1, named_struct('city', NULL, 'geo', NULL), 1)", {"t": people})
    people.alter().setNullable("address.city").execute()
    sql(spark, "UPDATE t SET address.city = NULL, ts = 60 WHERE id = 1", {"t": people})
    with refused(ConstraintError, "NOT NULL of column 'address.city'", "id=1"):
        people.alter().setNotNull("address.city").execute()


def test_S45_a_null_struct_holds_nothing_and_tombstones_are_not_judged(people, spark):
    people.upsert(rows_of(people, spark, (1, 20, None, None), (4, 20, ("Bonn", (5, None)), 4))).execute()
    people.delete(frame(spark, "id INT, ts INT", (3, 30))).execute()
    assert [row[0] for row in live_rows(people)] == [1, 2, 4]
    people.compact(full=True)
    assert [row[2] for row in live_rows(people)] == [None, None, ("Bonn", (5, None))]


def test_S9_S45_a_tombstone_holds_zero_values_inside_of_what_is_not_null(spark, tmp_path):
    schema = "id INT, s STRUCT<a: INT NOT NULL, b: STRUCT<c: STRING NOT NULL> NOT NULL> NOT NULL"
    table = fill(new_table(spark, tmp_path, schema), spark, [(1, (1, ("x",)))])
    table.delete(frame(spark, "id INT", 1, 2)).execute()
    stored = (
        table._store.scan(Batches.of(table._snapshot()).of_all_rows()).filter("_tm_deleted").select("id", "s").collect()
    )
    assert sorted(map(tuple, stored)) == [(1, (0, ("",))), (2, (0, ("",)))]
    assert zero(table.definition.field("s")) == {"a": 0, "b": {"c": ""}}


# Altering ---------------------------------------------------------------------------------------------------------------


def test_S45_nulls_inside_are_allowed_and_forbidden_later(people, spark):
    alter = people.alter().setNullable("address.city").execute()
    assert alter.changes == ("column address.city may be null",)
    people.upsert(rows_of(people, spark, (1, 20, (None, None), 1))).execute()
    with refused(ConstraintError, "1 row of", "NOT NULL of column 'address.city'", "id=1"):
        people.alter().setNotNull("address.city").execute()
    people.deleteWhere("id = 1").execute()
    assert people.alter().setNotNull("address.city").execute().changes == ("column address.city must not be null",)


def test_S45_forbidding_looks_at_live_rows_only_and_a_missing_place_is_named(people):
    with refused(ConstraintError, "NOT NULL of column 'address.geo'", "id=3"):
        people.alter().setNotNull("address.geo").execute()
    with refused(InvalidDefinitionError, "no column 'address.town'"):
        people.alter().setNullable("address.town").execute()


def test_S43_S45_widening_keeps_not_null_and_what_is_added_inside_may_be_null(people, spark):
    wide = "STRUCT<city: STRING, geo: STRUCT<lat: BIGINT, lon: INT>, zip: STRUCT<a: INT NOT NULL>>"
    with refused(InvalidDefinitionError, "'address.zip' cannot be NOT NULL"):
        people.alter().widenColumn("address", wide.replace("NULL>>", "NULL> NOT NULL>")).execute()
    with refused(InvalidDefinitionError, "'address.geo.lon' cannot be NOT NULL"):
        people.alter().widenColumn("address", wide.replace("lon: INT", "lon: INT NOT NULL")).execute()
    people.alter().widenColumn("address", wide).execute()
    assert [".".join(p) for p in never_null(people.definition.field("address").type)] == ["city", "geo.lat", "zip.a"]
    people.updateWhere("id = 1", {"n": "9"}).execute()
    with refused(SchemaMismatchError, "'address.zip.a' must not be null"):
        people.updateWhere("id = 1", {"address.zip": "named_struct('a', CAST(NULL AS INT))"}).execute()


def test_S46_a_default_holds_no_null_where_none_is_allowed(spark, tmp_path):
    schema = "id INT, s STRUCT<x: INT NOT NULL, y: INT> DEFAULT named_struct('x', {}, 'y', CAST(NULL AS INT))"
    with refused(InvalidDefinitionError, "has a null where none is allowed"):
        new_table(spark, tmp_path, schema.format("CAST(NULL AS INT)"))
    table = new_table(spark, tmp_path, schema.format("1"))
    table.insert(frame(spark, "id INT", 1)).execute()
    assert live_rows(table) == [(1, (1, None))]


def test_S43_a_table_that_is_stricter_inside_is_another_one(people, spark):
    def again(schema: str) -> Any:
        keys = {"primaryKey": "id", "watermarkKey": "ts"}
        return TrinityTable.createIfNotExists(spark, people.path, schema, **keys)

    assert again(ADDRESS).version == people.version
    with pytest.raises(Exception, match=r"address\.city must not be null"):
        again(ADDRESS.replace("city: STRING NOT NULL", "city: STRING"))


# What nobody has declared -----------------------------------------------------------------------------------------------


def test_S7b_S44_what_Spark_finds_of_a_dataframe_is_no_declaration(spark, tmp_path):
    rows = spark.sql("SELECT 1 AS id, array(1) AS tags, struct('x' AS a) AS s, map('k', 1) AS m, 5 AS n")
    table = TrinityTable.convert(spark, rows, str(tmp_path / "converted"), primaryKey="id")
    assert [(f.name, f.nullable, never_null(f.type)) for f in table.definition.fields] == [
        ("id", False, ()),
        *((name, True, ()) for name in ("tags", "s", "m", "n")),
    ]
    table.upsert(
        frame(spark, "id INT, tags ARRAY<INT>, s STRUCT<a: STRING>, m MAP<STRING, INT>, n INT", NULLS)
    ).execute()
    assert live_rows(table)[1:] == [NULLS]
    more = spark.sql("SELECT 1 AS id, array(struct(1 AS x)) AS more")
    table.merge(more).withSchemaEvolution().whenMatched().updateAll().execute()
    assert never_null(table.definition.field("more").type) == ()


NULLS = (2, [None], (None,), {"k": None}, None)


# Arrays and maps, by chance ---------------------------------------------------------------------------------------------


def item(**kinds: tuple[Any, bool]) -> StructType:
    return StructType([StructField(name, kind, nullable) for name, (kind, nullable) in kinds.items()])


def random_kind(chance: random.Random, depth: int) -> Any:
    """A type, nested at random, with places that must not be null."""
    which = chance.choice(["int", "text"] if depth == 0 else ["struct", "struct", "array", "map", "int"])
    allows = [chance.random() < 0.5 for _ in range(3)]
    if which == "struct":
        kinds = {name: (random_kind(chance, depth - 1), ok) for name, ok in zip("abc", allows, strict=True)}
        return item(**dict(list(kinds.items())[: chance.randint(1, 3)]))
    if which == "array":
        return ArrayType(random_kind(chance, depth - 1), allows[0])
    if which == "map":
        key = chance.choice([StringType(), item(k=(StringType(), allows[1]))])
        return MapType(key, random_kind(chance, depth - 1), allows[0])
    return IntegerType() if which == "int" else StringType()


def random_value(chance: random.Random, kind: Any, nulls: float) -> Any:
    """A value as Python holds it, which may have nulls anywhere."""
    if chance.random() < nulls:
        return None
    if isinstance(kind, StructType):
        return {f.name: random_value(chance, f.dataType, nulls) for f in kind.fields}
    if isinstance(kind, ArrayType):
        return [random_value(chance, kind.elementType, nulls) for _ in range(chance.randint(0, 3))]
    if isinstance(kind, MapType):
        if isinstance(kind.keyType, StructType):
            keys = [(chance.choice(["x", None]) if chance.random() < 2 * nulls else "x",)]
        else:
            keys = ["x", "y"][: chance.randint(0, 2)]
        return {key: random_value(chance, kind.valueType, nulls) for key in keys}
    return chance.randint(0, 9) if isinstance(kind, IntegerType) else chance.choice(["", "t"])


def wrong(kind: Any, nullable: bool, value: Any) -> bool:
    """The oracle: a value holds a null where none is allowed."""
    if value is None:
        return not nullable
    if isinstance(kind, StructType):
        held = value if isinstance(value, dict) else dict(zip(kind.names, value, strict=True))
        return any(wrong(f.dataType, f.nullable, held[f.name]) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return any(wrong(kind.elementType, kind.containsNull, v) for v in value)
    if isinstance(kind, MapType):
        return any(
            wrong(kind.keyType, False, k) or wrong(kind.valueType, kind.valueContainsNull, v) for k, v in value.items()
        )
    return False


@pytest.mark.generated
@pytest.mark.parametrize("seed", range(3))
def test_S45_any_nested_type_is_judged_as_an_oracle_judges_it(seed, spark, tmp_path):
    chance = random.Random(seed)
    kinds = [random_kind(chance, 3) for _ in range(40)]
    names = [f"c{i}" for i in range(len(kinds))]
    schema = StructType(
        [StructField("id", LongType()), *(StructField(n, k, True) for n, k in zip(names, kinds, strict=True))]
    )
    table = new_table(spark, tmp_path, schema)
    strict = [i for i, f in enumerate(table.definition.fields[1:]) if never_null(f.type)]
    assert len(strict) > 15
    rows = [(n, *(random_value(chance, k, 0.15) for k in kinds)) for n in range(40)]
    loaded = rows_of(table, spark, *rows)
    judged = loaded.selectExpr("id", *[f"{holds_null(f)} AS {f.name}" for f in table.definition.fields[1:]]).collect()
    found = {row[0]: tuple(row)[1:] for row in judged}
    expected = {row[0]: tuple(wrong(k, True, v) for k, v in zip(kinds, row[1:], strict=True)) for row in rows}
    assert found == expected
    assert any(map(any, expected.values()))
    good = [row for row in rows if not any(expected[row[0]])][:1]
    bad = [row for row in rows if any(expected[row[0]])]
    empty = [(100, *(None for _ in kinds))]
    table.upsert(rows_of(table, spark, *good, *empty)).execute()
    with refused(SchemaMismatchError, "must not be null", "Nothing was written"):
        table.upsert(rows_of(table, spark, bad[0])).execute()
    assert table.toDF().count() == len(good) + 1


def test_S45_the_interpreter_judges_what_is_inside():
    kind = item(city=(StringType(), False), tags=(ArrayType(IntegerType(), False), True)).jsonValue()
    prices = MapType(StringType(), IntegerType(), False).jsonValue()
    fields = [Field("id", "long"), Field("address", kind), Field("prices", prices)]
    table = ModelTable(TableDefinition.of(fields, primaryKey="id"))
    upsert = [WhenMatched(None, [Update(All())]), WhenNotMatched(None, [Insert(All())])]
    good = {"id": 1, "address": {"city": "Rome", "tags": [1]}, "prices": {"a": 1}}
    table.merge([good], upsert)
    for place, bad in {
        "address.city": {**good, "address": {"city": None, "tags": None}},
        "address.tags.element": {**good, "address": {"city": "x", "tags": [1, None]}},
        "prices.value": {**good, "prices": {"a": None}},
    }.items():
        with pytest.raises(SchemaMismatchError, match=f"'{place}'"):
            table.merge([bad], upsert)
    table.merge([{"id": 1, "address": None, "prices": None}], upsert)
    assert table.live() == [{"id": 1, "address": None, "prices": None}]
