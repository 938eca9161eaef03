"""`trinitymerge.sql`: run a statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias, cast

import attrs
from pyspark.sql import DataFrame, SparkSession

from trinitymerge.errors import did_you_mean
from trinitymerge.external import ExternalTable
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.spark import expressions as E
from trinitymerge.statements.error_locations import locate_errors
from trinitymerge.statements.parser import statement_of
from trinitymerge.statements.tables import Names
from trinitymerge.statements.tree import Column, DeleteFrom, InsertInto, MergeInto, Select, UpdateTable, sql_error
from trinitymerge.table import TrinityTable

Changing: TypeAlias = MergeInto | UpdateTable | DeleteFrom | InsertInto


def sql(
    spark: SparkSession, text: str, tables: Mapping[str, TrinityTable | ExternalTable | str | DataFrame] | None = None
) -> DataFrame | MergeResult:
    """Run one SQL statement on tables, in Spark's grammar.

    ``MERGE INTO``, ``UPDATE``, ``DELETE FROM`` and ``INSERT INTO`` are merges with the clauses of the chain. Queries, and the
    sources of merges and inserts, may name tables at the newest or another version (``orders VERSION AS OF 3``, ``TIMESTAMP AS OF
    '...'``), and Spark's own tables and views. See docs/sql.md for each statement and its limits.

    Needs the package SQLGlot: ``pip install 'trinitymerge[sql]'``.

    Args:
        spark: the session.
        text: one statement, with or without a semicolon at its end.
        tables: by name, tables or their paths, and external tables and DataFrames, which are read-only. They hide Spark's own
            tables and views of the same name. A path can also be a name: ``trinity.`/tables/orders` ``.

    Returns:
        A ``MergeResult`` if the statement changes rows, otherwise a lazy DataFrame at the tables' versions at this call.

    Raises:
        SqlError: the statement is invalid or not supported, or a name does not exist; with ``line`` and ``column``.
        InvalidMergeError, SchemaMismatchError: the merge is invalid, as in the chain; with ``line`` and ``column``.
        MissingPackageError: SQLGlot is not installed.

    Example:
        >>> from trinitymerge import sql
        >>> print(sql(spark, '''
        ...     MERGE INTO orders AS t
        ...     USING (VALUES ('1', 7.5, timestamp'2024-01-02'), ('9', 1.0, timestamp'2024-01-02')) AS s(order_id, amount, ts)
        ...     ON t.order_id = s.order_id
        ...     WHEN MATCHED AND s.amount > t.amount THEN UPDATE SET amount = s.amount
        ...     WHEN NOT MATCHED THEN INSERT *
        ... ''', tables={"orders": orders}).rowsInserted)
        1
        >>> sql(spark, "SELECT order_id, amount FROM orders ORDER BY amount LIMIT 1", {"orders": orders_path}).collect()
        [Row(order_id='9', amount=Decimal('1.00'))]
    """
    statement = statement_of(text)
    names = Names.of(spark, text, {} if tables is None else tables)
    if isinstance(statement, Select):
        return names.rows(statement.query)
    with _planned(names, statement) as plan:
        return plan.execute()


def explain(
    spark: SparkSession, text: str, tables: Mapping[str, TrinityTable | ExternalTable | str | DataFrame] | None = None
) -> str:
    """Return how a statement that changes rows would run: its strategy and why, as ``MergePlan.explain()``. Changes nothing."""
    statement, names = statement_of(text), Names.of(spark, text, {} if tables is None else tables)
    if isinstance(statement, Select):
        what = "MERGE INTO, UPDATE, DELETE FROM and INSERT INTO"
        raise sql_error(text, 0, f"There is a plan only for statements that change rows: {what}.")
    with _planned(names, statement) as plan:
        return plan.explain()


@contextmanager
def _planned(names: Names, statement: Changing) -> Iterator[MergePlan]:
    """Yield the plan of a statement that changes rows, beside the temporary views that its subqueries read."""
    with names.views(getattr(statement, "inner", ())) as edited:
        found = statement_of(edited.result) if edited.edits else statement
        with locate_errors(edited, getattr(found, "places", ()), statement.target.start):
            plan = merge_of(names, cast(Changing, found)).build()
        yield plan


def merge_of(names: Names, statement: Changing) -> MergeBuilder:
    """Return the merge of a statement; runs no job."""
    if isinstance(statement, MergeInto):
        return _merge(names, statement)
    if isinstance(statement, InsertInto):
        return _called("INSERT INTO", _insert(names, statement))
    table = names.target(statement.target, statement.alias)
    if isinstance(statement, UpdateTable):
        return _called("UPDATE", table.updateWhere(statement.condition, statement.values.items))
    return _called("DELETE FROM", table.deleteWhere("true" if statement.condition is None else statement.condition))


def _merge(names: Names, statement: MergeInto) -> MergeBuilder:
    table = names.target(statement.target, statement.alias)
    source = names.rows(statement.source)
    if statement.source.alias is not None:
        source = source.alias(statement.source.alias)
    merge = table.merge(source, statement.condition)._evolve(clauses=statement.clauses)
    return merge.withSchemaEvolution() if statement.evolves else merge


def _called(name: str, merge: MergeBuilder) -> MergeBuilder:
    """Return the merge of a shorthand, whose errors name the statement."""
    return merge._evolve(clauses=tuple(attrs.evolve(c, call=name) for c in merge._spec.clauses))


def _insert(names: Names, statement: InsertInto) -> MergeBuilder:
    """Return an insert by position or by name; further columns have their default, or are null (S23)."""
    table, rows = names.target(statement.target), names.rows(statement.source)
    definition = table.definition
    given = tuple(Column(n, statement.target.start) for n in rows.columns) if statement.by_name else statement.columns
    wanted = definition.names if given is None else _columns(names, given, definition.names)
    if len(rows.columns) != len(wanted):
        raise names.error(
            statement.target,
            f"The query has {len(rows.columns)} columns to insert, and {len(wanted)} are expected ({', '.join(wanted)}). "
            "Name the columns: INSERT INTO t (column, ...), or INSERT INTO t BY NAME SELECT ...",
        )
    rows = rows.toDF(*wanted)
    optional = {*definition.watermarkKey, definition.tombstoneKey, *wanted}
    missing = [name for name in definition.names if name not in optional]
    if not missing:
        return table.insert(rows)
    return table.merge(rows, "1 = 0").whenNotMatched().insertAll(exceptColumns=missing)


def _columns(names: Names, given: Iterable[Column], known: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for column in given:
        name = E.find_name(column.name, known, E.is_case_sensitive(names.spark))
        if name is None:
            hint = did_you_mean(column.name, known)
            raise sql_error(names.text, column.at, f"The table has no column '{column.name}'.{hint}", column.name)
        if name in found:
            raise sql_error(names.text, column.at, f"Column '{column.name}' is named twice.", column.name)
        found.append(name)
    return found
