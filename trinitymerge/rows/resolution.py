"""The order of the rows of a key, and the rule that picks the one that readers see (S3, S6, S13, S15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from pyspark.sql import DataFrame

from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.session import select_exprs
from trinitymerge.spark.sql_text import Sql


@attrs.frozen
class Order:
    """The values that decide between the rows of a key, the most significant first: the largest wins, and null is the smallest.

    Attributes:
        watermark: the declared watermark, column by column (S3).
        commit: the commit version or the commit time (S6), and what decides within a commit; empty if unknown.
        ties: the contents of rows of other writers (S15), see :func:`~trinitymerge.rows.tie_breaking.weights`.
    """

    watermark: tuple[Sql, ...]
    commit: tuple[Sql, ...] = ()
    ties: tuple[Sql, ...] = ()

    @classmethod
    def of(cls, definition: TableDefinition, commit: Iterable[Sql] = (), ties: Iterable[Sql] = ()) -> Order:
        """Return the order of stored rows."""
        return cls(tuple(map(E.quote, definition.watermarkKey)), tuple(commit), tuple(ties))

    @property
    def values(self) -> tuple[Sql, ...]:
        return (*self.watermark, *self.commit, *self.ties)

    def freshest_first(self) -> list[Sql]:
        """Return ``ORDER BY`` items; the first row wins.

        Example:
            >>> Order((E.quote("ts"),), (Sql("version"),)).freshest_first()
            ['`ts` DESC NULLS LAST', 'version DESC']
        """
        return self._sorted(Sql("DESC"), Sql("NULLS LAST"))

    def oldest_first(self) -> list[Sql]:
        """Return ``ORDER BY`` items; the last row wins."""
        return self._sorted(Sql("ASC"), Sql("NULLS FIRST"))

    def _sorted(self, way: Sql, nulls: Sql) -> list[Sql]:
        """Without ``nulls``, Spark sorts them in the same place; other engines do not, but there all rows have versions."""
        return [
            *(Sql(f"{value} {way} {nulls}") for value in self.watermark),
            *(Sql(f"{value} {way}") for value in self.commit),
            *(Sql(f"{value} {way} {nulls}") for value in self.ties),
        ]

    def packed(self, names: Sequence[str] = ()) -> Sql:
        """Return a struct of the values, which Spark compares in this order: that of the freshest row is the largest."""
        named = [f"{value} AS {name}" for value, name in zip(self.values, names, strict=True)] if names else self.values
        return Sql(f"struct({', '.join(named)})")


def is_older(left: Sequence[Sql], right: Sequence[Sql]) -> Sql:
    """Return SQL: the row with the values ``left`` loses to one with ``right``. Never null; false if all are equal.

    The values are those of an :class:`Order`, or the first of them: by watermarks alone, rows of one watermark are equal.

    Example:
        >>> is_older([Sql("a")], [Sql("b")])
        'coalesce(a < b, a IS NULL AND b IS NOT NULL)'
    """
    if not left:
        return E.FALSE
    (a, *more_left), (b, *more_right) = left, right
    smaller = Sql(f"coalesce({a} < {b}, {a} IS NULL AND {b} IS NOT NULL)")
    return Sql(f"({smaller} OR ({E.same(a, b)} AND {is_older(more_left, more_right)}))") if more_left else smaller


# The winner -----------------------------------------------------------------------------------------------------------


def rank(keys: Iterable[Sql], freshest_first: Sequence[Sql]) -> Sql:
    """Return a window function: the place of a row among the rows of its key. The winner has 1."""
    return E.over(Sql("row_number()"), keys, freshest_first or [E.number(1)])


def winners(rows: DataFrame, definition: TableDefinition, order: Order, *without: Sql) -> DataFrame:
    """Return the latest row of each key, tombstones included (S13), without some columns.

    It costs a shuffle, if the rows of keys are not together.
    """
    ranked = select_exprs(
        rows, ["*", f"{rank(map(E.quote, definition.primaryKey), order.freshest_first())} AS {C.RANK}"]
    )
    return ranked.filter(f"{C.RANK} = 1").drop(C.RANK, *without)


def winner(row: Sql, packed: Sql) -> Sql:
    """Return an aggregate over the rows of a key: that of :func:`winners`, by :meth:`Order.packed`."""
    return Sql(f"max_by({row}, {packed})")


def oldest(packed: Sql) -> Sql:
    """Return an aggregate over rows of a key: :meth:`Order.packed` of the row that loses to all others."""
    return Sql(f"min({packed})")
