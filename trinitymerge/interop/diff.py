"""The difference of two DataFrames by key, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import DataType, IntegerType, StringType, StructType

from trinitymerge.errors import SchemaMismatchError, missing
from trinitymerge.rows.equality import comparable
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

ONLY_A, ONLY_B, DIFFERS, REPEATED = "only in A", "only in B", "differs", "key is not unique"
_CELL = "struct<column:string,a:string,b:string>"


def difference(a: DataFrame, b: DataFrame, on: Sequence[str]) -> DataFrame:
    """Return the rows in which two DataFrames differ, by key (``on``). One shuffle; nulls are equal to nulls.

    Columns that only one side has are not compared; names are compared as the session does. Types may differ as far as Spark can
    compare them. Text is compared in the type of the other side; text that is not of that type differs.

    Returns:
        ``difference`` (``only in A``, ``only in B``, ``differs`` or ``key is not unique``), the key, and ``cells``: an array of
        the differing cells with ``column``, ``a`` and ``b`` as text; of a row on one side all cells.

    Example:
        >>> a = spark.sql("VALUES (1, 'x'), (2, 'y') AS t(id, v)")
        >>> b = spark.sql("VALUES (1, 'x'), (2, 'z'), (3, NULL) AS t(id, v)")
        >>> for row in difference(a, b, ["id"]).orderBy("id").collect():
        ...     print(row.difference, row.id, [(c.column, c.a, c.b) for c in row.cells])
        differs 2 [('v', 'y', 'z')]
        only in B 3 [('v', None, None)]
    """
    exact = E.is_case_sensitive(a.sparkSession)
    b = b.toDF(*[E.find_name(n, a.columns, exact) or n for n in b.columns])
    on = [E.find_name(n, a.columns, exact) or n for n in on]
    for side, rows in (("A", a), ("B", b)):
        lacking = [name for name in on if name not in rows.columns]
        if lacking:
            raise SchemaMismatchError(missing(lacking, side, rows.columns), columns=tuple(lacking))
    compared = [name for name in a.columns if name in b.columns and name not in on]
    both = _side(a, on, compared, "a", b).unionByName(_side(b, on, compared, "b", a))
    keys = [f"key_{i}" for i in range(len(on))]
    found = both.groupBy(*keys).agg(
        F.count("a").alias("rows_a"),
        F.count("b").alias("rows_b"),
        F.first("a", ignorenulls=True).alias("a"),
        F.first("b", ignorenulls=True).alias("b"),
    )
    cells = [(_same(a.schema[n].dataType, b.schema[n].dataType, i), _cell(n, i)) for i, n in enumerate(compared)]
    differing = F.filter(F.array(F.lit(None).cast(_CELL), *[F.when(~same, cell) for same, cell in cells]), F.isnotnull)
    whole = F.filter(F.array(F.lit(None).cast(_CELL), *[cell for _, cell in cells]), F.isnotnull)
    several = (F.col("rows_a") > 1) | (F.col("rows_b") > 1)
    kind = (
        F.when(several, REPEATED)
        .when(F.col("rows_b") == 0, ONLY_A)
        .when(F.col("rows_a") == 0, ONLY_B)
        .when(F.size("cells") > 0, DIFFERS)
    )
    is_one_sided = (F.col("rows_a") == 0) | (F.col("rows_b") == 0)
    shown = found.withColumn("cells", F.when(is_one_sided, whole).otherwise(differing))
    named = [F.col(key).alias(name) for key, name in zip(keys, on, strict=True)]
    return shown.where(kind.isNotNull()).select(kind.alias("difference"), *named, "cells")


def _side(rows: DataFrame, on: Sequence[str], compared: Sequence[str], name: str, other: DataFrame) -> DataFrame:
    """Return keys and the values of one side as a struct, beside a null struct for the other side."""
    own = F.struct(F.lit(1).alias("_"), *[F.col(E.quote(n)).alias(f"c{i}") for i, n in enumerate(compared)])
    theirs = StructType().add("_", IntegerType(), nullable=False)
    for i, column in enumerate(compared):
        theirs = theirs.add(f"c{i}", other.schema[column].dataType)
    others = F.lit(None).cast(theirs)
    key = [F.col(E.quote(n)).alias(f"key_{i}") for i, n in enumerate(on)]
    return rows.select(*key, own.alias(name), others.alias("b" if name == "a" else "a"))


def _same(kind_a: DataType, kind_b: DataType, position: int) -> Column:
    """Return True if a cell is equal on both sides, as :func:`~trinitymerge.rows.equality.comparable` says."""
    left, right = (F.expr(comparable(Sql(f"{s}.c{position}"), kind)) for s, kind in (("a", kind_a), ("b", kind_b)))
    if isinstance(kind_a, StringType) != isinstance(
        kind_b, StringType
    ):  # a cast of Spark's would fail, or make it null
        texts, others = (
            (("a", left), (right, kind_b)) if isinstance(kind_a, StringType) else (("b", right), (left, kind_a))
        )
        read = F.expr(comparable(Sql(f"try_cast({texts[0]}.c{position} AS {E.sql_type(others[1])})"), others[1]))
        return read.eqNullSafe(others[0]) & (texts[1].isNull() == others[0].isNull())
    return left.eqNullSafe(right)


def _cell(name: str, position: int) -> Column:
    texts = [F.col(side).getField(f"c{position}").cast("string").alias(side) for side in ("a", "b")]
    return F.struct(F.lit(name).alias("column"), *texts)
