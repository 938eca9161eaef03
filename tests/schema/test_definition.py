"""What makes a table: keys, types and their rules (S1-S5, S7). Plain data; only the last tests start Spark."""

from __future__ import annotations

import json

import pytest
from tables import directory_of, new_table

from trinitymerge import Field, InvalidDefinitionError, TableDefinition, TrinityTable
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import HIDDEN_TOMBSTONE, TombstoneForm
from trinitymerge.spark.ddl import column_of, fields_of

FIELDS = [
    Field("Id", "long"),
    Field("ts", "timestamp"),
    Field("seq", "integer"),
    Field("deleted", "boolean"),
    Field("status", "string"),
    Field("tags", {"type": "array", "elementType": "string", "containsNull": True}),
    Field("price", "double"),
]

ATOMIC = ["boolean", "byte", "short", "integer", "long", "decimal(10,2)", "string", "char(3)", "varchar(3)", "binary"]
ATOMIC += ["date", "timestamp", "timestamp_ntz", "interval day to second", "interval year to month", "time(6)"]
FLOATS = ["float", "double"]
NESTED = [
    {"type": "array", "elementType": "integer", "containsNull": True},
    {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
    {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]},
    "variant",
    "interval",
]


def define(*args, fields=FIELDS, **kwargs):
    return TableDefinition.of(fields, *args, **kwargs)


def test_a_definition_prints_as_a_table_of_columns():
    fields = [
        Field("id", "long", metadata={"comment": "of the\n shop"}),
        Field("ts", "timestamp"),
        Field("state", "string"),
        Field("n", "integer", nullable=False, default="1 + 1"),
    ]
    definition = TableDefinition.of(
        fields,
        "id",
        "ts",
        "state",
        "gone",
        "orc",
        {"owner": "me"},
        "orders",
        True,
        checks=[Check("some", "n > 0", ["n"])],
    )
    assert str(definition).splitlines() == [
        "  column  type       nullable  key          default  comment",
        "  id      bigint     no        primary key           of the shop",
        "  ts      timestamp  yes       watermark",
        "  state   string     yes       tombstone",
        "  n       int        no                     1 + 1",
        "",
        "primary key: id",
        "watermark: ts",
        "tombstone: state",
        "comment: orders",
        "tombstone value: gone",
        "history: every version of a row is kept",
        "check some: n > 0",
        "files: orc",
        "owner: me",
    ]


# Keys (S1, S2, S3) ----------------------------------------------------------------------------------------------------


def test_S1_one_name_or_several_spelled_as_the_columns_are():
    definition = define("ID", watermarkKey=["TS", "seq"], tombstoneKey="Deleted")
    assert definition.primaryKey == ("Id",)
    assert definition.watermarkKey == ("ts", "seq")
    assert definition.tombstoneKey == "deleted"
    assert define(("Id", "status")).primaryKey == ("Id", "status")


def test_S1_a_primary_key_is_needed():
    for nothing in ((), [], ""):
        with pytest.raises(InvalidDefinitionError, match=r"needs a primary key|Column '' is missing"):
            define(nothing)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"primaryKey": "idd"},
            r"primaryKey: Column 'idd' is missing in the schema; it has 'Id', 'ts', .* Did you mean 'Id'\?",
        ),
        ({"primaryKey": "Id", "watermarkKey": ["ts", "when"]}, "watermarkKey: Column 'when' is missing"),
        ({"primaryKey": "Id", "tombstoneKey": "gone"}, "tombstoneKey: Column 'gone' is missing"),
    ],
)
def test_S1_keys_must_be_columns(keys, message):
    with pytest.raises(InvalidDefinitionError, match=message) as error:
        define(**keys)
    assert error.value.column in ("idd", "when", "gone")


@pytest.mark.parametrize(
    "keys",
    [
        {"primaryKey": "Id", "watermarkKey": "Id"},
        {"primaryKey": "Id", "tombstoneKey": "Id"},
        {"primaryKey": "Id", "watermarkKey": "ts", "tombstoneKey": "ts"},
    ],
)
def test_S1_a_column_has_one_role(keys):
    with pytest.raises(InvalidDefinitionError, match="two roles"):
        define(**keys)


def test_S1_a_column_is_named_once():
    with pytest.raises(InvalidDefinitionError, match="primaryKey names Id twice"):
        define(["Id", "ID"])
    with pytest.raises(InvalidDefinitionError, match="watermarkKey names ts twice"):
        define("Id", watermarkKey=["ts", "ts"])


def test_S1_at_most_one_tombstone_key():
    with pytest.raises(InvalidDefinitionError, match="tombstoneKey"):
        define("Id", tombstoneKey=["deleted", "status"])


@pytest.mark.parametrize("kind", ATOMIC)
def test_S2_S3_atomic_columns_can_be_primary_keys_and_watermarks(kind):
    fields = [Field("k", kind), Field("other", "integer")]
    assert define("k", fields=fields).primaryKey == ("k",)
    assert define("other", watermarkKey="k", fields=fields).watermarkKey == ("k",)


@pytest.mark.parametrize("kind", [*FLOATS, *NESTED], ids=str)
def test_S2_columns_without_exact_equality_are_no_primary_keys(kind):
    with pytest.raises(InvalidDefinitionError, match=r"Column 'k' .* cannot be part of the primary key") as error:
        define("k", fields=[Field("k", kind)])
    assert error.value.column == "k"


def test_S2_collated_strings_are_no_primary_keys():
    field = Field("k", "string", metadata={"__COLLATIONS": {"k": "spark.UTF8_LCASE"}})
    with pytest.raises(InvalidDefinitionError, match="collated strings"):
        define("k", fields=[field])


def test_S2_primary_key_columns_are_never_null():
    assert not define("Id").field("Id").nullable
    assert define("Id").field("ts").nullable


@pytest.mark.parametrize("kind", FLOATS)
def test_S3_floats_can_be_watermarks(kind):
    fields = [Field("k", "integer"), Field("w", kind)]
    assert define("k", watermarkKey="w", fields=fields).watermarkKey == ("w",)


@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_S3_nested_columns_are_no_watermarks(kind):
    with pytest.raises(InvalidDefinitionError, match=r"Column 'w' .* cannot be a watermark"):
        define("k", watermarkKey="w", fields=[Field("k", "integer"), Field("w", kind)])


# Tombstones (S4, S5) --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "form"),
    [
        ("boolean", None, TombstoneForm.BOOLEAN),
        ("string", "gone", TombstoneForm.STRING_VALUE),
        ("char(9)", "gone", TombstoneForm.STRING_VALUE),
        ("varchar(9)", "", TombstoneForm.STRING_VALUE),
        ("string", None, TombstoneForm.NOT_NULL),
        ("timestamp", None, TombstoneForm.NOT_NULL),
        ("double", None, TombstoneForm.NOT_NULL),
    ],
)
def test_S4_three_forms_of_tombstones(kind, value, form):
    fields = [Field("k", "integer"), Field("dead", kind)]
    definition = define("k", tombstoneKey="dead", tombstoneStringValue=value, fields=fields)
    assert definition.tombstone_form is form
    assert definition.tombstone_column == "dead"


@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_S4_nested_columns_are_no_tombstones(kind):
    with pytest.raises(InvalidDefinitionError, match="its type must be atomic"):
        define("k", tombstoneKey="dead", fields=[Field("k", "integer"), Field("dead", kind)])


def test_S4_string_value_is_for_string_columns():
    with pytest.raises(InvalidDefinitionError, match="only for string tombstone keys, and 'deleted' is boolean"):
        define("Id", tombstoneKey="deleted", tombstoneStringValue="gone")
    with pytest.raises(InvalidDefinitionError, match="needs a tombstoneKey"):
        define("Id", tombstoneStringValue="gone")


def test_S4_string_value_must_fit_the_column():
    fields = [Field("k", "integer"), Field("dead", "varchar(3)")]
    with pytest.raises(InvalidDefinitionError, match=r"'gone' does not fit into column 'dead', .* varchar\(3\)"):
        define("k", tombstoneKey="dead", tombstoneStringValue="gone", fields=fields)


def test_S4_column_that_is_never_null_cannot_mean_deleted_when_it_is_not_null():
    fields = [Field("k", "integer"), Field("dead", "integer", nullable=False)]
    with pytest.raises(InvalidDefinitionError, match="every row would be deleted"):
        define("k", tombstoneKey="dead", fields=fields)


def test_S5_table_without_a_tombstone_key_has_a_hidden_one():
    definition = define("Id")
    assert definition.tombstone_column == HIDDEN_TOMBSTONE == "_tm_deleted"
    assert definition.tombstone_form is TombstoneForm.BOOLEAN
    assert [f.name for f in definition.stored_fields] == [*definition.names, "_tm_deleted"]
    assert define("Id", tombstoneKey="deleted").stored_fields == define("Id", tombstoneKey="deleted").fields


@pytest.mark.parametrize("name", ["_tm_x", "_TM_deleted"])
def test_S5_hidden_names_are_reserved(name):
    with pytest.raises(InvalidDefinitionError, match="reserved for system columns"):
        define("k", fields=[Field("k", "integer"), Field(name, "integer")])


# Columns and settings -------------------------------------------------------------------------------------------------


def test_columns_must_differ_without_case():
    with pytest.raises(InvalidDefinitionError, match="'ID' occurs twice"):
        define("id", fields=[Field("id", "integer"), Field("ID", "integer")])


def test_columns_are_needed():
    with pytest.raises(InvalidDefinitionError, match="schema is empty"):
        define("id", fields=[])


def test_file_formats():
    assert define("Id", fileFormat="ORC").fileFormat == "orc"
    with pytest.raises(InvalidDefinitionError, match="fileFormat 'csv' is not supported; use 'parquet' or 'orc'"):
        define("Id", fileFormat="csv")


def test_types_read_as_a_user_writes_them():
    fields = [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]
    struct = {"type": "struct", "fields": fields}
    array = {"type": "array", "elementType": struct, "containsNull": True}
    kind = {"type": "map", "keyType": "integer", "valueType": array, "valueContainsNull": True}
    assert Field("f", kind).text == "map<int,array<struct<x:bigint>>>"


# Data (S7) ------------------------------------------------------------------------------------------------------------

FULL = {"watermarkKey": ["ts", "seq"], "tombstoneKey": "status", "tombstoneStringValue": "gone", "fileFormat": "orc"}


def test_S7_definition_survives_json():
    fields = [*FIELDS, Field("note", "varchar(5)", nullable=False, metadata={"comment": "a note"})]
    definition = define("Id", **FULL, properties={"owner": "me"}, comment="text", fields=fields)
    again = TableDefinition.from_json(json.loads(json.dumps(definition.to_json())))
    assert again == definition
    assert hash(again.primaryKey) == hash(definition.primaryKey)


def test_S7_definition_is_validated_again_when_it_is_read():
    data = {**define("Id", **FULL).to_json(), "primaryKey": ["price"]}
    with pytest.raises(InvalidDefinitionError, match="'price'"):
        TableDefinition.from_json(data)


def test_S7_definitions_differ_when_anything_does():
    definition = define("Id", **FULL)
    assert definition == define("Id", **FULL)
    for change in ({"watermarkKey": ["seq", "ts"]}, {"tombstoneStringValue": "x"}, {"properties": {"a": "b"}}):
        assert define("Id", **{**FULL, **change}) != definition


def test_S7_table_is_opened_by_nothing_but_its_path(spark, tmp_path):
    schema = "id INT, code CHAR(3) NOT NULL, n DECIMAL(5,1), dead STRING COMMENT 'why'"
    keys = {"primaryKey": ["id", "code"], "watermarkKey": "n", "tombstoneKey": "dead", "tombstoneStringValue": "x"}
    created = new_table(spark, tmp_path, schema, **keys, fileFormat="orc", properties={"a": 1}, comment="all of it")
    opened = TrinityTable.forPath(spark, created.path)
    assert opened.definition == created.definition
    assert opened.definition.properties == {"a": "1"}
    assert opened.definition.comment == "all of it"
    assert [f.text for f in opened.definition.fields] == ["int", "char(3)", "decimal(5,1)", "string"]
    assert opened.definition.schema.simpleString() == "struct<id:int,code:char(3),n:decimal(5,1),dead:string>"
    assert opened.toDF().schema.simpleString() == "struct<id:int,code:string,n:decimal(5,1),dead:string>"


def test_S7_refused_definition_leaves_no_table(spark, tmp_path):
    with pytest.raises(InvalidDefinitionError):
        TrinityTable.create(spark, str(tmp_path / "t"), "id DOUBLE", primaryKey="id")
    assert not (tmp_path / "t").exists()
    assert not TrinityTable.isTrinityTable(spark, str(tmp_path / "t"))


def test_S5_hidden_columns_never_show(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v INT")
    assert table.toDF().columns == ["id", "v"]
    assert directory_of(table).exists()


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("a INT GENERATED ALWAYS AS (b + 1), b INT", "computed column.*Assign the value in the merge"),
        ("a BIGINT generated  by default as identity (START WITH 5)", "identity column.*uuid"),
        ("a BIGINT NOT NULL IDENTITY(1, 1), b INT", "identity column"),
        ("a DECIMAL(9) AUTO_INCREMENT", "identity column"),
    ],
)
def test_what_tables_do_not_compute_is_refused_with_what_to_do(spark, schema, words):
    with pytest.raises(InvalidDefinitionError, match=words):
        fields_of(schema)
    name, _, kind = schema.partition(" ")
    with pytest.raises(InvalidDefinitionError, match=words):
        column_of(name, kind)


def test_words_of_computed_columns_may_be_names_and_comments(spark):
    schema = (
        "identity INT, generated INT, s STRUCT<identity: INT>, `a generated always as` INT, c INT COMMENT 'an identity'"
    )
    assert [f.name for f in fields_of(schema)] == ["identity", "generated", "s", "a generated always as", "c"]
