"""S21a: beside a late update or delete, the inserts of its clause are not written either."""

from __future__ import annotations

import pytest
from helpers import assertRows
from tables import copy_of, fill, frame, new_table, on_every_path, sound_paths

from trinitymerge import DuplicateKeyError, NullKeyError, SchemaMismatchError, StaleRowsError

DIMENSION = "customer STRING, since INT, city STRING, until INT, changed INT"
MOVED_HOUSE = "customer STRING, city STRING, since INT, changed INT"
VALUES = "id INT, ts INT, v STRING"


@pytest.fixture(scope="module")
def dimension(spark, tmp_path_factory):
    """A dimension of type 2: one row per customer and time, the current one without an end."""
    directory = tmp_path_factory.mktemp("dimension")
    table = new_table(spark, directory, DIMENSION, primaryKey=["customer", "since"], watermarkKey="changed")
    return fill(table, spark, [("ann", 10, "Rome", None, 10), ("bob", 10, "Oslo", None, 10)])


def moved_house(table, *changes):
    """Closes the current row of each customer and begins a new one, in one clause."""
    source = frame(table.toDF().sparkSession, MOVED_HOUSE, *changes)
    return (
        table.alias("A")
        .merge(source.alias("B"), "A.customer = B.customer AND A.until IS NULL")
        .whenMatched("A.city <> B.city")
        .updateExpr({"until": "B.since", "changed": "B.changed"})
        .insertExpr({"customer": "B.customer", "since": "B.since", "city": "B.city", "changed": "B.changed"})
    )


def test_S21a_a_late_change_leaves_a_type_2_dimension_with_one_current_row_for_each_customer(spark, dimension):
    late, due = ("ann", "Bari", 5, 5), ("bob", "Kiel", 20, 20)
    for run in on_every_path(dimension, lambda table: moved_house(table, late, due), spark):
        current = [row for row in run.rows if row[3] is None]
        assert current == [("ann", 10, "Rome", None, 10), ("bob", 20, "Kiel", None, 20)]
        assert ("bob", 10, "Oslo", 20, 20) in run.rows
        counts = run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsStale, run.result.rowsAppended
        assert counts == (1, 1, 2, 3)
        assert run.result.perClause == (2,)


def test_S21a_preview_shows_what_is_written(spark, dimension):
    merge = moved_house(dimension, ("ann", "Bari", 5, 5), ("bob", "Kiel", 20, 20))
    shown = [("ann", 10, 5, "update"), ("bob", 10, 20, "update"), ("bob", 20, 20, "insert")]
    for path in sound_paths(merge):
        rows = merge._with_strategy(path).build().preview()
        assertRows(rows.select("customer", "since", "changed", "_tm_action"), shown)


def test_S21a_error_names_the_late_rows_and_force_writes_all(spark, dimension):
    for path in sound_paths(moved_house(dimension, ("ann", "Bari", 5, 5))):
        merge = moved_house(dimension, ("ann", "Bari", 5, 5))._with_strategy(path)
        found = (
            r"has 1 row older .* since=10: 5 is older than 10\. The inserts beside them \(1 row\) would not be written"
        )
        with pytest.raises(StaleRowsError, match=found) as error:
            merge.onStale("error").execute()
        assert error.value.keys == [("ann", 10)]
    for run in on_every_path(dimension, lambda t: moved_house(t, ("ann", "Bari", 5, 5)).onStale("force"), spark):
        assert run.rows[:2] == [("ann", 10, "Rome", 5, 10), ("ann", 5, "Bari", None, 5)]
        assert run.result.rowsStale == 0


def test_S21a_a_stale_insert_leaves_the_change_standing(spark, dimension):
    def merge(table):
        source = frame(spark, MOVED_HOUSE, ("ann", "Bari", 20, 20))
        return (
            table.alias("A")
            .merge(source.alias("B"), "A.customer = B.customer")
            .whenMatched()
            .delete()
            .insertExpr({"customer": "'bob'", "since": "10", "city": "B.city", "changed": "B.changed - 15"})
        )

    runs = on_every_path(fill_late(dimension, spark), merge, spark)
    for run in runs:
        assert run.rows == []
        assert (run.result.rowsDeleted, run.result.rowsStale, run.result.rowsAppended) == (1, 1, 2)


def fill_late(dimension, spark):
    """The dimension without its row of bob."""
    copy = copy_of(dimension, spark)
    copy.delete(frame(spark, "customer STRING, since INT, changed INT", ("bob", 10, 11))).execute()
    return copy


@pytest.fixture(scope="module")
def values(spark, tmp_path_factory):
    """Keys 1 to 3 at watermark 10."""
    table = new_table(spark, tmp_path_factory.mktemp("values"), VALUES, watermarkKey="ts")
    return fill(table, spark, [(1, 10, "a"), (2, 10, "b"), (3, 10, "c")])


def test_S21a_inserts_that_are_not_written_take_no_key_and_contradict_nobody(spark, values):
    def merge(table, *rows):
        insert = {"id": "2", "v": "source.v"}
        return table.merge(frame(spark, VALUES, *rows)).whenMatched().updateExpr({"v": "source.v"}).insertExpr(insert)

    for run in on_every_path(values, lambda table: merge(table, (1, 5, "x"), (3, 5, "y")), spark):
        assert run.rows == [(1, 10, "a"), (2, 10, "b"), (3, 10, "c")]
        assert (run.result.rowsStale, run.result.rowsAppended) == (4, 2)
    with pytest.raises(DuplicateKeyError):
        merge(values, (1, 15, "x")).execute()


def test_S21a_S24_beside_a_late_move_nothing_is_written_and_another_frees_its_key(spark, values):
    source = frame(spark, VALUES, (1, 5, "x"), (2, 20, "y"), (3, 20, "z"))

    def merge(table):
        insert = {"id": "source.id", "v": "source.v"}
        return (
            table.merge(source)
            .whenMatched("source.id < 3")
            .updateExpr({"id": "source.id + 10"})
            .insertExpr(insert)
            .insertExpr({"id": "source.id + 20", "v": "source.v"})
            .whenMatched()
            .updateExpr({"id": "source.id"})  # stays where it is
            .insertExpr({"id": "33", "v": "source.v"})
        )

    for run in on_every_path(values, merge, spark):
        left = {(1, 10, "a"), (2, 20, "y"), (12, 20, "b"), (22, 20, "y"), (3, 20, "c"), (33, 20, "z")}
        assert set(run.rows) == left
        assert (run.result.rowsInserted, run.result.rowsUpdated, run.result.rowsDeleted) == (3, 2, 0)
        assert (run.result.rowsStale, run.result.rowsAppended) == (3, 5)


def test_S21a_rows_that_exist_only_on_the_target_are_judged_too(spark, values):
    def merge(table):
        clause = table.merge(frame(spark, VALUES, (9, 1, "x"))).whenNotMatchedAndExistsOnlyOnTarget()
        return clause.updateExpr({"ts": "target.id * 9"}).insertExpr({"id": "target.id + 10", "v": "'new'"})

    for run in on_every_path(values, merge, spark):
        assert {row for row in run.rows if row[0] < 10} == {(1, 10, "a"), (2, 18, "b"), (3, 27, "c")}
        assert {row[0] for row in run.rows if row[0] > 10} == {12, 13}


def test_S21a_S34_what_is_not_written_is_judged_all_the_same(spark, values):
    """Its clause's watermark may be what does not fit: nobody could tell that the row is rightly left out."""
    source = frame(spark, "id INT, ts STRING, v STRING", (1, "5", None))
    update = values.merge(source).whenMatched().updateExpr({"v": "source.v"})
    with pytest.raises(NullKeyError, match=r"'id' of 1 row .* \(id=None"):
        update.insertExpr({"id": "CAST(source.v AS INT)", "v": "'x'"}).execute()
    with pytest.raises(SchemaMismatchError, match=r"'id' is int, and values of 1 row .* e\.g\. 'much'"):
        update.insertExpr({"id": "concat('much', coalesce(source.v, ''))", "v": "'x'"}).execute()
    late = frame(spark, "id INT, ts STRING, v STRING", (1, "late", "x"))
    with pytest.raises(SchemaMismatchError, match=r"'ts' is int, .* e\.g\. 'late'"):
        values.merge(late).whenMatched().delete().insertExpr({"id": "7"}).execute()


def test_S21a_nothing_is_late_where_nobody_assigns_the_watermark_of_the_change(spark, values):
    def merge(table):
        update = table.merge(frame(spark, "id INT, v STRING", (1, "x"))).whenMatched().updateExpr({"v": "source.v"})
        return update.insertExpr({"id": "11", "v": "source.v", "ts": "1"})

    for run in on_every_path(values, merge, spark):
        assert (1, 10, "x") in run.rows
        assert (11, 1, "x") in run.rows


@pytest.mark.parametrize("transaction", [False, True])
def test_S34_a_value_that_does_not_fit_is_an_error_also_where_it_leaves_nothing_to_write(spark, tmp_path, transaction):
    table = fill(new_table(spark, tmp_path), spark, [(1, 100, "a", False)])
    late = frame(spark, "id INT, ts STRING, v STRING", (1, "abc", "x"))
    move = table.alias("A").merge(late.alias("B"), "A.id = B.id").whenMatched()
    move = move.updateExpr({"id": "A.id + 10", "ts": "B.ts"}).insertExpr({"id": "A.id", "ts": "B.ts"})
    with pytest.raises(SchemaMismatchError, match=r"'ts' is int, and values of .* do not fit, e\.g\. 'abc'"):
        (move.withTransaction("feed", 1) if transaction else move).execute()
    assert table.version == 1
