"""`trinitymerge.sql`: run a statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import attrs
from pyspark.sql import DataFrame, SparkSession

from trinitymerge._arguments import described
from trinitymerge.errors import SqlError, did_you_mean
from trinitymerge.external import ExternalTable
from trinitymerge.maintenance.alter import AlterResult
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.model.clauses import Clause
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.spark.expressions import find_name, is_case_sensitive
from trinitymerge.statements.error_locations import locate_errors
from trinitymerge.statements.parser import statement_of
from trinitymerge.statements.queries import RewrittenText
from trinitymerge.statements.tables import Names
from trinitymerge.statements.tree import (
    AlterTable,
    Column,
    DeleteFrom,
    Describe,
    InsertInto,
    MergeInto,
    Select,
    UpdateTable,
    sql_error,
)
from trinitymerge.table import TrinityTable

Changing: TypeAlias = MergeInto | UpdateTable | DeleteFrom | InsertInto


def sql(
    spark: SparkSession,
    text: str,
    tables: Mapping[str, TrinityTable | ExternalTable | str | DataFrame] | None = None,
) -> DataFrame | MergeResult | AlterResult:
    """Runs one SQL statement on tables, in Spark's grammar.

    ``MERGE INTO``, ``UPDATE``, ``DELETE FROM`` and ``INSERT INTO`` are merges, with the clauses that the chain would have and
    expressions as they are written; ``ALTER TABLE`` and ``COMMENT ON TABLE`` are ``table.alter()``; ``DESCRIBE HISTORY`` is
    ``table.history()``, ``DESCRIBE DETAIL`` is ``table.detail()``, and ``DESCRIBE`` shows the columns. Queries, and the sources of
    merges and inserts, may name tables, at the newest version or at another (``orders VERSION AS OF 3``, ``TIMESTAMP AS OF
    '...'``), beside whatever Spark knows by name. What each statement can do, and what is refused, stands in docs/sql.md.

    Needs the package SQLGlot: ``pip install 'trinitymerge[sql]'``.

    Args:
        spark: the session.
        text: one statement; a semicolon at its end does no harm.
        tables: by name the tables (or their paths) that it may mention, and external tables and DataFrames that it may read. They
            go before Spark's own tables and views. A table can also be named by its path: ``trinity.`/tables/orders` ``.

    Returns:
        A ``MergeResult`` of what changes rows, an ``AlterResult`` of what changes a table, and a lazy DataFrame, pinned to the
        versions the tables had at this call, of what asks.

    Raises:
        SqlError: the statement cannot be read, names what does not exist, or asks for what cannot be done; says why, and has
            ``line`` and ``column``.
        InvalidMergeError, SchemaMismatchError: as the chain; with ``line`` and ``column`` too.
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
    if isinstance(statement, Describe):
        return _described(names.target(statement.target), statement.what)
    if isinstance(statement, AlterTable):
        return _altered(names, statement)
    with names.views(getattr(statement, "inner", ())) as edited:
        found = statement_of(edited.result) if edited.edits else statement
        with locate_errors(edited, getattr(found, "places", ()), statement.target.start):
            plan = merge_of(names, cast(Changing, found)).build()
        return plan.execute()


def _described(table: TrinityTable, what: str) -> DataFrame:
    if what == "HISTORY":
        return table.history()
    if what == "DETAIL":
        return table.detail()
    return described(table._backend.spark, table._backend.path, table._snapshot(), what == "EXTENDED")


# Merges ---------------------------------------------------------------------------------------------------------------


def merge_of(names: Names, statement: Changing) -> MergeBuilder:
    """The merge that a statement is; nothing runs.

    Raises:
        SqlError: it names what does not exist.
    """
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
    merge = _with_clauses(table.merge(source, statement.condition), statement.clauses)
    return merge.withSchemaEvolution() if statement.evolves else merge


def _with_clauses(merge: MergeBuilder, clauses: tuple[Clause, ...]) -> MergeBuilder:
    return merge._evolve(clauses=clauses)


def _called(name: str, merge: MergeBuilder) -> MergeBuilder:
    """The merge of a shorthand, whose errors speak of the statement."""
    return _with_clauses(merge, tuple(attrs.evolve(c, call=name) for c in merge._spec.clauses))


def _insert(names: Names, statement: InsertInto) -> MergeBuilder:
    """Rows by position, or by name; columns of the table that are not mentioned are left out, as far as S23 allows."""
    table, rows = names.target(statement.target), names.rows(statement.source)
    definition = table.definition
    given = tuple(Column(n, statement.target.start) for n in rows.columns) if statement.by_name else statement.columns
    wanted = definition.names if given is None else _columns(names, given, definition.names)
    if len(rows.columns) != len(wanted):
        raise names.error(
            statement.target,
            f"There are {len(rows.columns)} columns to insert, and {len(wanted)} to insert them into ({', '.join(wanted)}). "
            "Name those that are meant: INSERT INTO t (column, ...), or INSERT INTO t BY NAME SELECT ...",
        )
    rows = rows.toDF(*wanted)
    optional = {*definition.watermarkKey, definition.tombstoneKey, *wanted}
    missing = [name for name in definition.names if name not in optional]
    if not missing:
        return table.insert(rows)
    return table.merge(rows, "1 = 0").whenNotMatched().insertAll(exceptColumns=missing)


def _columns(names: Names, given: Iterable[Column], known: tuple[str, ...]) -> list[str]:
    """The columns that are meant, as the table spells them."""
    found: list[str] = []
    for column in given:
        name = find_name(column.name, known, is_case_sensitive(names.spark))
        if name is None:
            hint = did_you_mean(column.name, known)
            raise sql_error(names.text, column.at, f"The table has no column '{column.name}'.{hint}", column.name)
        if name in found:
            raise sql_error(names.text, column.at, f"Column '{column.name}' is named twice.", column.name)
        found.append(name)
    return found


# Alterations ----------------------------------------------------------------------------------------------------------


def _altered(names: Names, statement: AlterTable) -> AlterResult:
    altered = names.target(statement.target).alter()
    for change in statement.calls:
        call = getattr(altered, change.call, None)
        if call is None:
            raise _not_there(names, change.call, change.at)
        with locate_errors(RewrittenText(names.text, ()), start=change.at):
            altered = call(*change.arguments, **change.keywords)
    with locate_errors(RewrittenText(names.text, ()), start=statement.calls[0].at):
        return altered.execute()


def _not_there(names: Names, call: str, at: int) -> SqlError:
    return sql_error(
        names.text,
        at,
        f"Tables cannot be altered so in this version: there is no alter().{call}(). Create a new table, and fill it from this "
        "one.",
    )
