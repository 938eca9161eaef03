from decimal import Decimal

import pytest
from helpers import assertRows, executed_plan


def test_assertRows_ignores_order_but_not_multiplicity(spark):
    df = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b'), (2, 'b') AS t(id, v)")
    assertRows(df, [(2, "b"), (1, "a"), {"v": "b", "id": 2}])
    with pytest.raises(AssertionError, match="2 expected, 3 found"):
        assertRows(df, [(1, "a"), (2, "b")])


def test_assertRows_shows_differing_rows_side_by_side_and_no_others(spark):
    df = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS t(id, v)")
    with pytest.raises(AssertionError) as error:
        assertRows(df, [(1, "a"), (2, "B"), (4, "d")])
    assert str(error.value).splitlines() == [
        "rows differ in (id, v); 3 expected, 3 found; those that differ:",
        "  expected  actual",
        "  (2, 'B')  (2, 'b')",
        "  -         (3, 'c')",
        "  (4, 'd')  -",
    ]


def test_assertRows_tells_types_apart_but_not_trailing_zeros(spark):
    assertRows(spark.sql("SELECT 1.50BD AS d, float('nan') AS f"), [(Decimal("1.5"), float("nan"))])
    with pytest.raises(AssertionError, match=r"\(1\) +\(True\)"):
        assertRows(spark.sql("SELECT true AS b"), [(1,)])


def plan_of(spark):
    return executed_plan(spark.range(3).filter("id > 1"))


def test_Spark_interprets_what_it_can_unless_asked_to_generate_code(spark, request):
    assert ("*(1)" in plan_of(spark)) == request.config.getoption("--generated")


@pytest.mark.generated
def test_Spark_generates_code_for_tests_that_are_marked_so(spark):
    assert "*(1)" in plan_of(spark)
    assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
