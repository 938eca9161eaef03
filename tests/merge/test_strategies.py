"""Which path a merge takes and why, and that every sound path leaves the same table (S31).

Choosing a path asks Spark's analyzer only; the tests of S31 run merges.
"""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tables import EVENTS, copy_of, fill, frame, live_rows, new_table, on_every_path, sound_paths

from trinitymerge import DuplicateKeyError, InvalidMergeError, SchemaMismatchError
from trinitymerge.merge.compile.strategies import APPEND_ONLY, FULL_SCAN, KEY_LOOKUP


@pytest.fixture(scope="module")
def events(spark, tmp_path_factory):
    """Live, updated, deleted and revived keys in three batches, watermarks out of order, ties and nulls among them."""
    table = new_table(spark, tmp_path_factory.mktemp("events"))
    return fill(
        table,
        spark,
        [(1, 10, "a", False), (2, 10, "b", False), (3, 10, "c", True), (4, None, "d", False), (5, 10, "e", False)],
        [(2, 5, "late", False), (3, 20, "back", False), (4, None, "d2", None), (5, 10, "e", True), (6, 7, "f", False)],
        [(1, 12, "a", True), (7, None, "g", True), (6, 8, "f2", False)],
    )


@pytest.fixture(scope="module")
def source(spark):
    """Every kind of change, for live, deleted and unknown keys."""
    rows = [(k, ts, f"s{k}", op) for k in range(1, 10) for ts, op in ((11, "U"),)]
    rows[1], rows[4], rows[6] = (2, 30, "gone", "D"), (5, 9, "late", "D"), (7, None, "null", "U")
    return frame(spark, "id INT, ts INT, v STRING, op STRING", *rows, (11, 1, "absent", "D"), (12, 1, "other", "X"))


# Which path -----------------------------------------------------------------------------------------------------------


def plan(merge):
    """The path, and why not the cheaper ones."""
    built = merge.build()
    return built.strategy, built.choice.unsound


def test_upsert_and_delete_append_blindly(events, source):
    assert plan(events.upsert(source)) == ("blind append", {})
    assert plan(events.delete(source)) == ("blind append", {})


def test_cdc_chain_appends_blindly(events, source):
    merge = (
        events.merge(source)
        .whenMatched("op = 'D'")
        .delete()
        .whenMatched()
        .updateAll()
        .whenNotMatched("op <> 'D'")
        .insertAll()
    )
    assert plan(merge) == ("blind append", {})


def test_update_and_insert_with_the_same_maps_append_blindly(events, source):
    values = {"id": "source.id", "v": "upper(source.v)", "deleted": "false", "ts": "source.ts"}
    merge = events.merge(source).whenMatched().updateExpr(values).whenNotMatched().insertExpr(values)
    assert plan(merge)[0] == "blind append"


def test_update_and_insert_with_different_maps_look_up_keys(events, source):
    values = {"id": "source.id", "v": "source.v", "deleted": "false"}
    merge = (
        events.merge(source)
        .whenMatched()
        .updateExpr(values)
        .whenNotMatched()
        .insertExpr({**values, "v": "upper(source.v)"})
    )
    path, why_not = plan(merge)
    assert path == "keyed lookup"
    assert "depends on whether its key exists" in why_not[APPEND_ONLY]


def test_update_alone_looks_up_keys(events, source):
    assert plan(events.update(source))[0] == "keyed lookup"


def test_insert_of_new_keys_alone_looks_up_keys(events, source):
    assert plan(events.insert(source, deduplicate=True))[0] == "keyed lookup"


def test_condition_that_reads_the_target_looks_up_keys(events, source):
    merge = events.merge(source).whenMatched("target.v = 'a'").delete()
    path, why_not = plan(merge)
    assert (path, why_not) == (
        "keyed lookup",
        {APPEND_ONLY: "the condition of clause 1 reads the target"},
    )


def test_value_that_reads_the_target_looks_up_keys(events, source):
    path, why_not = plan(events.merge(source).whenMatched().updateExpr({"v": "target.v"}))
    assert path == "keyed lookup"
    assert why_not[APPEND_ONLY] == "clause 1 writes values of the target row"


def test_value_that_reads_the_target_beside_a_delete_is_the_reason_that_is_told(events, source):
    values = {"id": "source.id + 10", "v": "target.v", "deleted": "false", "ts": "source.ts"}
    _, why_not = plan(events.merge(source).whenMatched().delete().insertExpr(values))
    assert why_not[APPEND_ONLY] == "clause 1 writes values of the target row"


def test_a_column_called_like_the_targets_alias_is_not_taken_for_it(spark, events):
    changes = spark.sql("SELECT 2 AS id, 'x' AS v, 50 AS ts, false AS deleted, 'text' AS a").alias("B")
    merge = events.alias("A").merge(changes, "A.id = B.id").whenMatched().updateAll().whenNotMatched().insertAll()
    assert plan(merge)[0] == "blind append"
    reading = events.alias("A").merge(changes, "A.id = B.id").whenMatched("A.v <> B.v").updateAll()
    assert plan(reading)[0] == "keyed lookup"
    assert [(r["id"], r["v"]) for r in reading.preview().collect()] == [(2, "x")]


def test_a_struct_called_like_the_targets_alias_may_be_meant(spark, events):
    changes = spark.sql("SELECT 2 AS id, 50 AS ts, false AS deleted, named_struct('id', 5, 'v', 'x') AS A").alias("B")
    merge = events.alias("A").merge(changes, "B.id = A.id").whenMatched().updateExpr({"v": "A.v", "ts": "B.ts"})
    assert plan(merge)[0] == "full scan"
    assert [(r["id"], r["v"], r["ts"]) for r in merge.preview().collect()] == [(2, "b", 50)]


def test_watermark_that_nobody_assigns_looks_up_keys(events, source):
    assert plan(events.upsert(source.drop("ts")))[0] == "keyed lookup"
    assert plan(events.delete(source.drop("ts")))[0] == "keyed lookup"


def test_table_without_a_watermark_needs_none_from_the_source(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, v STRING")
    assert plan(table.delete(frame(spark, "id INT", 1)))[0] == "blind append"


def test_settings_that_count_or_compare_look_up_keys(events, source):
    assert 'onStale("error") compares' in plan(events.upsert(source).onStale("error"))[1][APPEND_ONLY]
    assert 'onStale("force") compares' in plan(events.upsert(source).onStale("force"))[1][APPEND_ONLY]
    assert "maxDeleteFraction counts" in plan(events.upsert(source).maxDeleteFraction(0.5))[1][APPEND_ONLY]
    assert plan(events.upsert(source).onStale("skip"))[0] == "blind append"


def test_onStale_means_nothing_without_a_watermark(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT")
    assert plan(table.upsert(frame(spark, "id INT", 1)).onStale("error"))[0] == "blind append"


def test_target_only_clause_takes_the_full_scan(events, source):
    merge = events.merge(source).whenMatched().updateAll().whenNotMatchedBySource().delete()
    path, why_not = plan(merge)
    assert path == "full scan"
    assert why_not[KEY_LOOKUP] == "clause 2 looks for rows that exist only on the target"


def test_merge_without_a_source_takes_the_full_scan(events):
    path, why_not = plan(events.deleteWhere("id = 1"))
    assert path == "full scan"
    assert why_not[KEY_LOOKUP] == "without a source every live row of the target is looked at"


@pytest.mark.parametrize(
    "condition",
    [
        "A.v = B.v",
        "A.id = B.id OR A.v = B.v",
        "A.id >= B.id",
        "A.id = B.id + A.ts",
        "NOT A.id = B.id",
        "abs(A.id) = B.id",
        "A.id = A.id AND B.id = B.id",
        "A.ts = B.id",
        "CASE WHEN A.id = B.id THEN true END",
        "true",
    ],
)
def test_condition_that_is_not_key_equality_takes_the_full_scan(events, source, condition):
    merge = events.alias("A").merge(source.alias("B"), condition).whenMatched().delete()
    path, why_not = plan(merge)
    assert path == "full scan"
    assert "not known to imply equality on the whole primary key" in why_not[KEY_LOOKUP]


@pytest.mark.parametrize(
    "condition",
    [
        "A.id = B.id",
        "B.id = A.id",
        "  ( A.ID=b.`Id` ) ",
        "A.id == B.id",
        "`A`.`id` = B.id",
        "A.id = abs(B.id)",
        "A.id = B.ts",
        "A.id = coalesce(B.id, B.ts)",
        "A.id = CAST(B.v AS INT)",
        "(A.id) = (B.id)",
        "((A.id)=((B.id)))",
        "(B.id) == A.id",
        "A.id =\n  B.id -- the key",
        "/* the key */ A.id /* = */ = B.id",
        "A.id <=> B.id",
    ],
)
def test_key_equality_is_recognised_however_it_is_written(events, source, condition):
    merge = events.alias("A").merge(source.alias("B"), condition).whenMatched("B.op = 'D'").delete()
    assert plan(merge) == ("blind append", {})


def test_key_equality_is_recognised_in_Columns(events, source):
    a, b = events.alias("A"), source.alias("B")
    for condition in (
        F.col("A.id") == F.col("B.id"),
        F.expr("B.id") == F.col("A.id"),
        (F.col("A.id") == F.col("B.id")) & (F.col("B.ts") > 3) & F.col("A.v").isNotNull(),
    ):
        assert sound_paths(a.merge(b, condition).whenMatched().delete())[-2:] == [KEY_LOOKUP, FULL_SCAN]


def test_text_literals_in_Columns_are_not_read_as_names(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id STRING"), spark, [("x",), ("B.id",)]).alias("A")
    source = frame(spark, "id STRING", "x").alias("B")
    table.merge(source, F.col("A.id") == F.lit("B.id")).whenMatched().delete().execute()
    assert live_rows(table) == [("x",)]


def test_S20_parentheses_around_parts_of_a_composite_key_are_read_through(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, l STRING, v INT", primaryKey=["k", "l"]).alias("A")
    source = frame(spark, "k INT, l STRING, v INT", (1, "a", 2)).alias("B")
    for condition in ("((A.k) = (B.k)) AND (((A.l = B.l)))", "(A.k <=> B.k AND (B.l) = (A.l))"):
        assert (
            plan(table.merge(source, condition).whenMatched().updateAll().whenNotMatched().insertAll())[0]
            == APPEND_ONLY.name
        )


def test_S20_a_null_in_the_source_pairs_with_no_key_by_null_safe_equality_either(spark, events):
    source = frame(spark, "id INT, ts INT, v STRING", (None, 99, "null"), (2, 99, "two")).alias("B")

    def merge(table):
        return table.alias("A").merge(source, "A.id <=> B.id").whenMatched().updateExpr({"v": "concat(A.v, B.v)"})

    runs = on_every_path(events, merge, spark)
    assert len(runs) == 2
    assert runs[0].result.rowsUpdated == 1


def test_S20_equality_that_binds_otherwise_than_its_text_reads_is_not_key_equality(spark, tmp_path):
    table = new_table(spark, tmp_path, "flag BOOLEAN, v INT", primaryKey="flag").alias("A")
    source = frame(spark, "flag BOOLEAN, other BOOLEAN", (False, True)).alias("B")
    merge = table.merge(source, "A.flag = B.flag OR B.other").whenMatched().delete()
    assert plan(merge)[0] == "full scan"


def test_conjunction_with_key_equality_looks_up_keys(events, source):
    a, b = events.alias("A"), source.alias("B")
    for condition in (
        "A.id = B.id AND B.op <> 'X'",
        "A.v <> B.v AND A.id = B.id AND A.ts < 100",
        "(A.id = B.id) AND (A.v = 'a' OR A.v = 'AND')",
        "A.id = B.id AND B.ts BETWEEN 1 AND 9",
        "A.id = B.id AND A.id = B.id",
    ):
        path, why_not = plan(a.merge(b, condition).whenMatched().updateAll().whenNotMatched().insertAll())
        assert path == "keyed lookup"
        assert "more than equality on the primary key" in why_not[APPEND_ONLY]


def test_conjunction_and_a_clause_where_nothing_matched_look_up_keys(events, source):
    merge = events.alias("A").merge(source.alias("B"), "A.id = B.id AND A.v = 'a'")
    assert plan(merge.whenNotMatched("v IS NULL").insertExpr({"id": "id + 100"}))[0] == "keyed lookup"


def test_composite_key_needs_all_of_it(spark, tmp_path):
    table = new_table(spark, tmp_path, "k INT, l STRING, v INT", primaryKey=["k", "l"]).alias("A")
    source = frame(spark, "l STRING, x INT, v INT", ("a", 1, 2)).alias("B")
    for condition, path in {
        "A.k = B.x AND A.l = B.l": "blind append",
        "B.l = A.l AND B.x = A.k": "blind append",
        "A.l = B.l": "full scan",
        "A.k = B.x AND A.l = B.l AND B.v > 1": "keyed lookup",
        "A.k = B.x OR A.l = B.l": "full scan",
    }.items():
        assert plan(table.merge(source, condition).whenMatched().delete())[0] == path, condition


@pytest.mark.parametrize(
    ("key", "other", "keyed"),
    [
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", True),
        ("INT", "SMALLINT", True),
        ("INT", "DECIMAL(12,0)", True),
        ("DECIMAL(12,2)", "INT", True),
        ("STRING", "STRING", True),
        ("VARCHAR(9)", "STRING", True),
        ("TIMESTAMP", "DATE", True),
        # 1.5 equals no key of the target, but would be stored as one
        ("INT", "DECIMAL(12,2)", False),
        ("INT", "DOUBLE", False),
        ("DATE", "TIMESTAMP", False),
        # Spark compares as double or as int: several keys of the target would be equal
        ("BIGINT", "DOUBLE", False),
        ("STRING", "INT", False),
        ("STRING", "DATE", False),
        ("CHAR(9)", "STRING", False),
    ],
)
def test_casts_between_key_types(spark, tmp_path, key, other, keyed):
    table = new_table(spark, tmp_path, f"id {key}, v INT")
    source = spark.sql(f"SELECT CAST(NULL AS {other.replace('CHAR(9)', 'STRING')}) AS id, 1 AS v")
    found = plan(table.merge(source, "target.id = source.id").whenMatched("target.v = 1").delete())[0]
    assert found == ("keyed lookup" if keyed else "full scan")
    assert plan(table.merge(source).whenMatched("target.v = 1").delete())[0] == "keyed lookup"  # S17a


def test_S25_a_literal_is_not_the_source_column_that_is_called_so(spark, events):
    source = spark.sql("SELECT 77 AS `2`, 50 AS ts, 'x' AS v").alias("B")
    merge = copy_of(events, spark).alias("A").merge(source, "A.id = B.`2`").whenNotMatched()
    with pytest.raises(DuplicateKeyError):  # 2 is live, and not the key that was looked for
        merge.insertExpr({"id": "2", "ts": "B.ts", "v": "B.v"}).execute()


def test_S25_a_column_that_a_join_hides_is_not_the_one_that_it_shows(spark, events):
    """After USING, `id` is that of either side, and `l.id` is null on rows of the right side alone."""
    left, right = (
        spark.sql(f"SELECT {id} AS id, 50 AS ts, 'x' AS v").alias(alias) for id, alias in ((77, "l"), (2, "r"))
    )
    source = left.join(right.select("id"), "id", "full_outer")
    merge = copy_of(events, spark).alias("A").merge(source, "A.id = l.id").whenMatched().updateAll()
    with pytest.raises(DuplicateKeyError):  # 2 is live
        merge.whenNotMatched().insertAll().execute()


def test_source_column_called_like_the_targets_alias(spark, events):
    source = frame(spark, "A STRUCT<id: INT, v: STRING>, id INT, ts INT", ((1, "x"), 2, 30), ((9, "y"), 1, 30)).alias(
        "B"
    )
    for run in on_every_path(
        events,
        lambda table: (
            table.alias("A")
            .merge(source, "A.id = B.A.id")
            .whenMatched("A.v = 'a'")
            .updateExpr({"v": "concat(A.v, B.A.v)"})
        ),
        spark,
    ):
        assert run.row(1) is None  # deleted at 12


def test_path_that_is_not_sound_cannot_be_forced(events, source):
    with pytest.raises(
        InvalidMergeError, match="cannot run as blind append: the condition of clause 1 reads the target"
    ):
        events.merge(source).whenMatched("target.v = 'a'").delete()._with_strategy(APPEND_ONLY).build()


# explain() ------------------------------------------------------------------------------------------------------------


def test_explain_says_in_order_what_happens_and_why_not_cheaper(events, source, capsys):
    text = (
        events.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched("A.v <> B.v")
        .updateExpr({"v": "B.v"})
        .insertExpr({"id": "B.id + 100"})
        .whenNotMatched("B.op <> 'D'")
        .insertAll(exceptColumns=["v"])
        .build()
        .explain()
    )
    assert capsys.readouterr().out == ""
    print(text)
    assert capsys.readouterr().out == f"{text}\n" == f"{text!r}\n"
    name, batches = events.path.rsplit("/", 1)[1], events._snapshot().batches
    assert text.splitlines() == [
        f"Merge into 'A' ({name}), one append batch",
        "  1. whenMatched(\"B.op = 'D'\"): delete the target row",
        '  2. whenMatched("A.v <> B.v"): update v; insert id',
        "  3. whenNotMatched(\"B.op <> 'D'\"): insert all columns but v from the source",
        "     pairs for which no condition is true: nothing",
        "     source rows without a pair for which no condition is true: nothing",
        "Strategy: keyed lookup",
        f"  target: 3 batches, {sum(b.bytes for b in batches) / 1000:.1f} KB",
        "  reads the rows under the source's keys, in one scan; batches and files outside of the range of these keys are skipped; "
        "then what is under the keys that rows come to, where a batch may hold them",
        "  not blind append: the condition of clause 2 reads the target",
    ]


def test_explain_says_where_blind_append_depends_on_the_rows(events, source, capsys):
    text = changes(events, source).build().explain()
    assert "Strategy: blind append where no row depends on whether its key exists" in text


BOUND = {
    "clause 2 writes values of the target row": lambda merge: (
        merge.whenMatched("op = 'D'").delete().whenMatched().updateExpr({"v": "source.v"})  # keeps the tombstone column
    ),
    "clause 1 writes values of the target row": lambda merge: (
        merge.whenMatched("op = 'U'").updateExpr({"v": "target.v || source.v"}).whenMatched("op = 'D'").delete()
    ),
    "clause 2 changes only keys that exist": lambda merge: (
        merge.whenMatched("op = 'D'").delete().whenMatched("op = 'U'").updateAll()
    ),
    "clause 1 deletes keys that exist, and clause 3 inserts the others": lambda merge: (
        merge.whenMatched("op = 'D'").delete().whenMatched().updateAll().whenNotMatched().insertAll()
    ),
    "clause 2 inserts only keys that do not exist": lambda merge: (
        merge.whenMatched("op = 'D'").delete().whenNotMatched("op = 'U'").insertAll()
    ),
}


@pytest.mark.parametrize(("why", "clauses"), BOUND.items(), ids=BOUND)
def test_what_a_clause_is_there_for_is_not_tried_blindly_first(spark, events, why, clauses):
    """A batch that is written to be thrown away costs a job, and blind appends know no counts."""
    rows = frame(spark, "id INT, ts INT, v STRING, op STRING", (2, 30, "", "D"), (6, 30, "new", "U"))
    merge = clauses(copy_of(events, spark).merge(rows))
    assert f"not blind append: {why}" in merge.build().explain()
    result = merge.execute()
    assert (result.strategy, result.rowsDeleted) == ("keyed lookup", 1)


# Undecided rows -------------------------------------------------------------------------------------------------------


def changes(table, source):
    """A row without an ``op`` changes its key where it exists, and nothing else: only the target tells."""
    merge = table.merge(source).whenMatched("op = 'D'").delete().whenMatched().updateAll()
    return merge.whenNotMatched("op <> 'D'").insertAll()


def test_merge_that_may_need_the_target_appends_blindly_when_its_rows_do_not(spark, events):
    def merge(table, *rows):
        return changes(table, frame(spark, "id INT, ts INT, v STRING, op STRING", *rows))

    deletes = [(2, 30, "", "D"), (99, 30, "", "D"), (5, 30, "", "U")]
    blind, keyed = copy_of(events, spark), copy_of(events, spark)
    assert merge(blind, *deletes).execute().strategy == "blind append"
    assert merge(keyed, *deletes)._with_strategy(KEY_LOOKUP).execute().strategy == "keyed lookup"
    assert live_rows(blind) == live_rows(keyed)
    result = merge(blind, *deletes, (6, 30, "needs the target", None), (98, 30, "and this", None)).execute()
    assert result.strategy == "keyed lookup"
    assert (6, 30, "needs the target", False) in live_rows(blind)
    assert 98 not in {row[0] for row in live_rows(blind)}


# The same table on every path (S31) -----------------------------------------------------------------------------------


def upsert(table, source):
    return table.upsert(source)


def delete(table, source):
    return table.delete(source)


def change_data(table, source):
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("B.op = 'D'")
        .delete()
        .whenMatched("B.op = 'U'")
        .updateAll()
        .whenMatched("B.op = 'X'")
        .delete()
        .whenNotMatched("B.op = 'U'")
        .insertAll()
    )


def update_by_target(table, source):
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id")
        .whenMatched("A.v < B.v OR B.op = 'D'")
        .updateExpr({"v": "concat(A.v, B.v)", "deleted": "B.op = 'D'"})
        .whenNotMatched("B.id % 2 = 1")
        .insertExpr({"id": "B.id", "v": "B.v", "deleted": "false"})
    )


def conjunction(table, source):
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.id = B.id AND A.v <> 'f2' AND B.op = 'U'")
        .whenMatched("B.ts > 10")
        .delete()
        .whenMatched()
        .updateExpr({"v": "B.v"})
        .whenNotMatched()
        .insertExpr({"id": "B.id + 50", "v": "B.v", "ts": "B.ts"})
    )


def move(table, source):
    return table.merge(source).whenMatched("op = 'U'").updateExpr({"id": "source.id + 20"}).whenMatched().delete()


def insert_beside(table, source):
    return (
        table.merge(source)
        .whenMatched()
        .updateExpr({"v": "'closed'"})
        .insertExpr({"id": "source.id + 40", "v": "source.v"})
        .whenNotMatched("op <> 'D'")
        .insertAll()
    )


def force(table, source):
    return upsert(table, source).onStale("force")


def without_watermark(table, source):
    return table.upsert(source.drop("ts"))


MERGES = [upsert, delete, change_data, update_by_target, conjunction, move, insert_beside, force, without_watermark]


@pytest.mark.parametrize("merge", MERGES, ids=lambda merge: merge.__name__)
def test_S31_every_sound_path_leaves_the_same_table_also_after_late_events(spark, events, source, merge):
    runs = on_every_path(events, lambda table: merge(table, source), spark, uncertain=True)
    assert len(runs) >= 2
    late = [(k, ts, f"late {k}", False) for k, ts in zip([*range(1, 13), 21, 45, 58], [10, 11, 12] * 5, strict=True)]
    after = []
    for run in runs:
        fill(run.table, spark, late)
        after.append(live_rows(run.table))
    assert all(rows == after[0] for rows in after)


def test_S31_without_a_watermark_key(spark, tmp_path, source):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(k, f"t{k}") for k in range(1, 8)])
    table.delete(frame(spark, "id INT", 3, 4)).execute()
    runs = on_every_path(table, lambda t: change_data(t, source.filter("id <> 6")), spark, uncertain=True)
    assert len(runs) == 3


def test_S31_composite_keys_of_other_names_and_types(spark, tmp_path):
    table = new_table(spark, tmp_path, "k BIGINT, l STRING, v INT", primaryKey=["k", "l"])
    fill(table, spark, [(1, "a", 1), (1, "b", 1), (2, "a", 1)])
    source = frame(spark, "x INT, y STRING, v STRING", (1, "a", "5"), (2, "a", "6"), (2, "b", "7"))
    runs = on_every_path(
        table,
        lambda t: (
            t.alias("A")
            .merge(source.alias("B"), "B.y = A.l AND A.k = B.x")
            .whenMatched("B.v = '6'")
            .delete()
            .whenMatched()
            .updateExpr({"v": "B.v", "k": "B.x", "l": "B.y"})
            .whenNotMatched()
            .insertExpr({"v": "B.v", "k": "B.x", "l": "B.y"})
        ),
        spark,
        uncertain=True,
    )
    assert [run.path for run in runs] == [APPEND_ONLY, KEY_LOOKUP, FULL_SCAN]
    assert runs[0].rows == [(1, "a", 5), (1, "b", 1), (2, "b", 7)]


def test_S31_lossy_casts_of_the_key_pair_by_sparks_equality(spark, tmp_path):
    """For a condition of the user, '1' and '01' are both equal to the number 1: both rows are updated."""
    table = fill(new_table(spark, tmp_path, "id STRING, v INT"), spark, [("1", 0), ("01", 0), ("2", 0)])
    (run,) = on_every_path(
        table,
        lambda t: (
            t.merge(frame(spark, "id INT, v INT", (1, 9)), "target.id = source.id")
            .whenMatched()
            .updateExpr({"v": "source.v"})
        ),
        spark,
    )
    assert run.rows == [("01", 9), ("1", 9), ("2", 0)]


def test_S31_key_with_a_fraction_is_no_key_of_the_target(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v STRING"), spark, [(1, "a"), (2, "b")])
    source = spark.sql("SELECT CAST(1.5 AS DECIMAL(12, 2)) AS id, 'x' AS v")
    (run,) = on_every_path(
        table,
        lambda t: t.merge(source, "target.id = source.id").whenMatched().delete().whenNotMatched("1 = 0").insertAll(),
        spark,
    )
    assert run.rows == [(1, "a"), (2, "b")]
    with pytest.raises(SchemaMismatchError, match="A key must be the same after a cast to int and back"):
        table.upsert(source).execute()


def test_S31_key_wider_in_the_source_matches_only_what_the_target_can_hold(spark, tmp_path):
    table = fill(new_table(spark, tmp_path, "id INT, v INT"), spark, [(1, 0), (2, 0)])
    source = frame(spark, "id BIGINT, v INT", (1, 9), (2**40, 9))
    merge = "target.id = source.id"
    for run in on_every_path(
        table, lambda t: t.merge(source, merge).whenMatched().updateExpr({"v": "source.v"}), spark
    ):
        assert run.rows == [(1, 9), (2, 0)]


def test_S31_schema_of_the_events_is_the_tables(events):
    assert events.toDF().schema.simpleString() == "struct<id:int,ts:int,v:string,deleted:boolean>"
    assert EVENTS.startswith("id INT")
