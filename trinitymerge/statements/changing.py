"""``UPDATE``, ``DELETE FROM`` and ``INSERT INTO``, read.

Owns: their grammar, which is Spark's.
"""

from __future__ import annotations

from trinitymerge.statements.cursor import Cursor, at_comma, at_words, either
from trinitymerge.statements.forms import Column, Ctes, DeleteFrom, InsertInto, UpdateTable
from trinitymerge.statements.merging import alias_at, assignments_at
from trinitymerge.statements.queries import inner_tables, query_in, reference_at
from trinitymerge.statements.refused import ENDS, refuse_rest, refuse_statement


def _at_from(cursor: Cursor) -> bool:
    """FROM, but not that of IS DISTINCT FROM."""
    return cursor.word() == "FROM" and cursor.word(-1) != "DISTINCT"


_NO_ALIAS = ("FROM", "JOIN", *ENDS)
_at_end = at_words(ENDS)
_value_ends = either(at_comma, _at_end, at_words(["WHERE"]), _at_from)


def update_at(cursor: Cursor) -> UpdateTable:
    """Reads an update.

    Raises:
        SqlError: it cannot be read, or asks for what no update can do.
    """
    cursor.expect("UPDATE")
    target = reference_at(cursor)
    alias = alias_at(cursor, "SET", *_NO_ALIAS)
    if not cursor.sees("SET"):
        refuse_rest(cursor, "UPDATE before SET")
    cursor.expect("SET")
    if cursor.sees("*"):
        raise cursor.error("There is no source to take all columns from. Name them: SET column = value.")
    values = assignments_at(cursor, _value_ends)
    condition = cursor.expression("The condition", _at_end) if cursor.accept("WHERE") else None
    refuse_rest(cursor, "UPDATE")
    return UpdateTable(target, alias, values, condition, inner_tables(cursor))


def delete_at(cursor: Cursor) -> DeleteFrom:
    """Reads a delete.

    Raises:
        SqlError: it cannot be read, or asks for what no delete can do.
    """
    cursor.expect("DELETE")
    cursor.expect("FROM")
    target = reference_at(cursor)
    alias = alias_at(cursor, "WHERE", "USING", *_NO_ALIAS)
    condition = cursor.expression("The condition", _at_end) if cursor.accept("WHERE") else None
    refuse_rest(cursor, "DELETE")
    return DeleteFrom(target, alias, condition, inner_tables(cursor))


def insert_at(cursor: Cursor, ctes: Ctes) -> InsertInto:
    """Reads an insert.

    Args:
        cursor: at INSERT.
        ctes: the common table expressions before it.

    Raises:
        SqlError: it cannot be read, or asks for what no insert can do.
    """
    if cursor.sees("INSERT OVERWRITE"):
        refuse_statement(cursor)
    cursor.expect("INSERT")
    cursor.expect("INTO")
    cursor.accept("TABLE")
    target = reference_at(cursor)
    by_name = cursor.accept("BY NAME")
    columns = None
    if cursor.symbol() == "(" and not cursor.begins_query():
        named = cursor.listed("The columns", lambda: cursor.name("The name of a column"))
        columns = [Column(token.value, token.start) for token in named]
    if cursor.sees("REPLACE"):
        raise cursor.error("Rows are not replaced by an INSERT. DELETE them first, or write a MERGE.")
    if not cursor.begins_query():
        refuse_rest(cursor, "INSERT INTO")
        raise cursor.error("What is to be inserted is missing: VALUES (...), or a query.")
    _refuse_in_rows(cursor)
    return InsertInto(target, query_in(cursor.text, [(ctes.start, ctes.end), cursor.rest]), columns, by_name)


def _refuse_in_rows(cursor: Cursor) -> None:
    """Refuses what would be a bare word to Spark, or a clause that it does not know."""
    rows, ahead = cursor.word() == "VALUES", 0
    while cursor.token(ahead).kind != "end":
        if cursor.word(ahead) == "ON" and cursor.word(ahead + 1) in ("CONFLICT", "DUPLICATE"):
            cursor.at += ahead
            raise cursor.error("What happens to keys that exist is said by a MERGE, or by table.upsert(source).")
        if rows and cursor.word(ahead) == "DEFAULT" and cursor.symbol(ahead + 1) in (")", ","):
            cursor.at += ahead
            raise cursor.error(
                "DEFAULT is no value here. Leave the column out of INSERT INTO t (column, ...): it gets what the table says."
            )
        ahead += 1
