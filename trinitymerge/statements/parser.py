"""From SQL text to statements: MERGE, INSERT, UPDATE, DELETE and queries."""

from __future__ import annotations

from collections.abc import Callable

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    Update,
    WhenMatched,
    WhenNotMatched,
    WhenOnlyOnTarget,
    check_clauses,
)
from trinitymerge.statements.lexer import Cursor, StopPredicate, at_comma, at_words, either, parse_error_offset
from trinitymerge.statements.queries import inner_tables, query_in, reference_at, skip_ctes, source_in
from trinitymerge.statements.tree import Column, Ctes, DeleteFrom, InsertInto, MergeInto, Select, Statement, UpdateTable

STATEMENTS = {
    "INSERT OVERWRITE": "it would drop rows that the statement does not name. Use DELETE FROM t WHERE ..., a MERGE with WHEN NOT "
    "MATCHED BY SOURCE THEN DELETE, or table.snapshot(...).",
    "TRUNCATE": 'use DELETE FROM t, or table.deleteWhere("true"): tombstones keep late rows from coming back.',
    "REPLACE": "a MERGE inserts new rows and updates the others; TrinityTable.create makes a table.",
    "UPSERT": "use MERGE INTO, or table.upsert(source).",
    "CREATE": "a table needs keys, which SQL cannot declare. Use TrinityTable.create(spark, path, schema, primaryKey=...).",
    "DROP": "a table is a directory. Remove it, and its entry in tables.",
    "OPTIMIZE": "use table.compact().",
    "VACUUM": "use table.vacuum().",
    "RESTORE": "use table.restore(version).",
    "EXPLAIN": "use build().explain() of the chain for a merge, and .explain() of the returned DataFrame for a query.",
    "ALTER": "use table.alter() with addColumn, renameColumn, dropColumn, widenColumn, setColumnComment, setNotNull, "
    "setNullable, setDefault, dropDefault, addCheck, dropCheck, setProperty, unsetProperty or setComment, and execute().",
    "COMMENT": "use table.alter().setComment(...).execute(), or setColumnComment(column, ...).",
    "DESCRIBE": "use print(table.definition) for the columns, table.detail() and table.history().",
    "COPY": "read the files with spark.read, and use INSERT INTO or MERGE.",
    "BEGIN": "each statement is one atomic commit, and transactions of several are not supported.",
    "CALL": "use the methods of TrinityTable: compact, vacuum, restore, purge.",
}
STATEMENTS["DESC"] = STATEMENTS["DESCRIBE"]

KNOWN = (
    "MERGE INTO, UPDATE, DELETE FROM, INSERT INTO, SELECT, WITH and VALUES are supported; use spark.sql for statements without a "
    "TrinityTable."
)

_REST = {
    "RETURNING": "see its result, or table.changes(fromVersion).",
    "OUTPUT": "see its result, or table.changes(fromVersion).",
    "LIMIT": "which rows it keeps is not deterministic. Use WHERE.",
    "ORDER": "the rows of a table have no order. Select rows with WHERE.",
    "FROM": "it sees one table. Write a MERGE with the other as its source.",
    "JOIN": "it sees one table. Write a MERGE with the other as its source.",
    "USING": "it reads one table. Write a MERGE with the other as its source: WHEN MATCHED THEN DELETE.",
    "WHERE": "put it into the clause's condition: WHEN MATCHED AND ... THEN.",
    "PARTITION": "tables have no partitions; files are sorted by key, or by clusterBy.",
}

ENDS = ("RETURNING", "OUTPUT", "LIMIT", "ORDER")
"""Words that end an expression, so that errors name them."""


def refuse_several(cursor: Cursor) -> None:
    """Raise if the text has several statements: if a later one failed, the earlier ones would be committed."""
    for number, token in enumerate(cursor.tokens):
        if token.kind == "symbol" and token.value == ";":
            cursor.at = min(number + 1, len(cursor.tokens) - 1)
            raise cursor.error("This is a second statement, and each call runs one.")


def refuse_statement(cursor: Cursor) -> None:
    words = [cursor.word(), cursor.word(1)]
    known = next((w for w in (" ".join(words), words[0]) if w in STATEMENTS), None)
    if known is None:
        raise cursor.error(f"This is not a supported statement. {KNOWN}")
    raise cursor.error(f"{known} is not supported: {STATEMENTS[known]}")


def reject_trailing(cursor: Cursor, statement: str) -> None:
    if cursor.done:
        return
    reason = _REST.get(cursor.word())
    if reason is not None:
        raise cursor.error(f"{statement} takes no {cursor.word()}: {reason}")
    raise cursor.error(f"{statement} is complete before this.")


def _at_from(cursor: Cursor) -> bool:
    """Return True before FROM, except that of IS DISTINCT FROM."""
    return cursor.word() == "FROM" and cursor.word(-1) != "DISTINCT"


_NO_ALIAS = ("FROM", "JOIN", *ENDS)
_at_end = at_words(ENDS)
_update_value_ends = either(at_comma, _at_end, at_words(["WHERE"]), _at_from)


def update_at(cursor: Cursor) -> UpdateTable:
    cursor.expect("UPDATE")
    target = reference_at(cursor)
    alias = alias_at(cursor, "SET", *_NO_ALIAS)
    if not cursor.sees("SET"):
        reject_trailing(cursor, "UPDATE before SET")
    cursor.expect("SET")
    if cursor.sees("*"):
        raise cursor.error("UPDATE has no source for *. Name the columns: SET column = value.")
    values = assignments_at(cursor, _update_value_ends)
    condition = cursor.expression("The condition", _at_end) if cursor.accept("WHERE") else None
    reject_trailing(cursor, "UPDATE")
    return UpdateTable(target, alias, values, condition, inner_tables(cursor))


def delete_at(cursor: Cursor) -> DeleteFrom:
    cursor.expect("DELETE")
    cursor.expect("FROM")
    target = reference_at(cursor)
    alias = alias_at(cursor, "WHERE", "USING", *_NO_ALIAS)
    condition = cursor.expression("The condition", _at_end) if cursor.accept("WHERE") else None
    reject_trailing(cursor, "DELETE")
    return DeleteFrom(target, alias, condition, inner_tables(cursor))


def insert_at(cursor: Cursor, ctes: Ctes) -> InsertInto:
    if cursor.sees("INSERT OVERWRITE"):
        refuse_statement(cursor)
    cursor.expect("INSERT")
    cursor.expect("INTO")
    cursor.accept("TABLE")
    target = reference_at(cursor)
    by_name = cursor.accept("BY NAME")
    columns = None
    if cursor.symbol() == "(" and not cursor.begins_query():
        named = cursor.enclosed(lambda c: c.name("The name of a column"))
        columns = [Column(token.value, token.start) for token in named]
    if cursor.sees("REPLACE"):
        raise cursor.error("INSERT cannot replace rows. DELETE them first, or write a MERGE.")
    if not cursor.begins_query():
        reject_trailing(cursor, "INSERT INTO")
        raise cursor.error("VALUES (...) or a query is missing here.")
    _refuse_in_rows(cursor)
    return InsertInto(target, query_in(cursor.text, [(ctes.start, ctes.end), cursor.rest]), columns, by_name)


def _refuse_in_rows(cursor: Cursor) -> None:
    """Raise for ON CONFLICT and DEFAULT, which Spark would read as names."""
    rows, ahead = cursor.word() == "VALUES", 0
    while cursor.token(ahead).kind != "end":
        if cursor.word(ahead) == "ON" and cursor.word(ahead + 1) in ("CONFLICT", "DUPLICATE"):
            cursor.at += ahead
            raise cursor.error("INSERT has no conflict clause. Use MERGE, or table.upsert(source).")
        if rows and cursor.word(ahead) == "DEFAULT" and cursor.symbol(ahead + 1) in (")", ","):
            cursor.at += ahead
            raise cursor.error(
                "DEFAULT is not supported as a value. Omit the column in INSERT INTO t (column, ...) to get its default."
            )
        ahead += 1


_MORE = ("RETURNING", "OUTPUT", "WHERE")
"""Words that end a value, so that errors name them."""


def merge_at(cursor: Cursor, ctes: Ctes) -> MergeInto:
    words = cursor.token().start
    cursor.expect("MERGE")
    evolves = cursor.accept("WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    target = reference_at(cursor)
    alias = alias_at(cursor, "USING")
    cursor.expect("USING", "A merge needs a source: MERGE INTO t USING s ON t.id = s.id WHEN ...")
    relation = _relation(cursor)
    after = cursor.at
    source = source_in(cursor, ctes, words, relation)
    cursor.at = after
    cursor.expect("ON", "It pairs the rows of source and target.")
    condition = cursor.expression("The condition", _at_when)
    clauses, places = list[Clause](), list[int]()
    while cursor.sees("WHEN"):
        first = cursor.at
        clause = _clause(cursor)
        places.append(cursor.tokens[first].start)
        clauses.append(clause)
    reject_trailing(cursor, "MERGE")
    if not clauses:
        raise cursor.error("WHEN is expected here: WHEN MATCHED THEN ..., WHEN NOT MATCHED THEN ...")
    _check(cursor, tuple(clauses), places)
    inner = inner_tables(cursor, ctes.names)
    return MergeInto(target, alias, source, condition, tuple(clauses), evolves, inner, tuple(places))


def alias_at(cursor: Cursor, *following: str) -> str | None:
    """Read an alias, with or without AS; None if one of these words comes next."""
    if cursor.accept("AS") or (cursor.token().kind in ("word", "name") and cursor.word() not in following):
        return cursor.name("An alias").value
    return None


def assignments_at(cursor: Cursor, ends: StopPredicate) -> Assignments:
    def assignment(cursor: Cursor) -> tuple[str, str]:
        column = _column_text(cursor)
        cursor.expect("=", "An assignment is column = value.")
        return column, cursor.expression("A value", ends)

    return Assignments(cursor.separated(assignment))


def _column_text(cursor: Cursor) -> str:
    first = cursor.at
    cursor.dotted("The name of a column")
    return cursor.since(first)


def _relation(cursor: Cursor) -> tuple[int, int]:
    """Skip the source up to ON, and return its offsets."""
    start = cursor.token().start
    while not cursor.done and cursor.word() != "ON":
        if cursor.symbol() == "(":
            cursor.skip_parentheses()
        elif cursor.word() == "JOIN" and cursor.after_operand():
            raise cursor.error("USING takes one relation. Put the join into a query: USING (SELECT ...) AS s.")
        else:
            cursor.take()
    end = cursor.token(-1).end
    if end <= start:
        raise cursor.error("The source is missing here: a table, a path, a query in parentheses, or VALUES.")
    return start, end


# Clauses --------------------------------------------------------------------------------------------------------------


def _is_when(cursor: Cursor) -> bool:
    return cursor.sees("WHEN MATCHED") or cursor.sees("WHEN NOT MATCHED")


_at_when = either(_is_when, at_words(["WHEN"]))


def _clause(cursor: Cursor) -> Clause:
    """Read a clause; errors name it by its text."""
    first = cursor.at
    if not _is_when(cursor):
        cursor.take()
        raise cursor.error("MATCHED or NOT MATCHED is expected here.")
    if cursor.accept("WHEN MATCHED"):
        condition, call = _condition(cursor, first)
        return WhenMatched(condition, [_on_pair(cursor)], call)
    cursor.accept("WHEN NOT MATCHED")
    if cursor.accept("BY SOURCE"):
        condition, call = _condition(cursor, first)
        return WhenOnlyOnTarget(condition, [_on_target(cursor)], call)
    cursor.accept("BY TARGET")
    condition, call = _condition(cursor, first)
    return WhenNotMatched(condition, [_on_source(cursor)], call)


def _condition(cursor: Cursor, first: int) -> tuple[str | None, str]:
    """Read the condition of a clause up to THEN; return it and the text of the clause."""
    found = None
    if cursor.accept("AND"):
        found = cursor.expression("The clause's condition", lambda c: c.word() == "THEN")
    call = " ".join(cursor.since(first).split())
    cursor.expect("THEN")
    if cursor.sees("DO NOTHING"):
        raise cursor.error(
            "Rows without a matching clause are unchanged. Omit this clause, or exclude its rows in the other conditions."
        )
    return found, call


def _on_pair(cursor: Cursor) -> Update | Delete:
    if cursor.sees("INSERT"):
        raise cursor.error(
            "WHEN MATCHED cannot insert. The chain can insert in addition to an update: "
            "whenMatched().updateExpr({...}).insertExpr({...})."
        )
    if cursor.accept("DELETE"):
        return Delete()
    cursor.expect("UPDATE SET", "Rows that match take UPDATE SET or DELETE.")
    return Update(_all(cursor) or assignments_at(cursor, _value_ends))


def _on_target(cursor: Cursor) -> Update | Delete:
    if cursor.sees("INSERT"):
        raise cursor.error(
            "WHEN NOT MATCHED BY SOURCE cannot insert. The chain can: whenNotMatchedBySource().insertExpr({...})."
        )
    if cursor.sees("UPDATE SET *"):
        raise cursor.error("These rows have no source row for *. Name the columns: UPDATE SET column = value.")
    return _on_pair(cursor)


def _on_source(cursor: Cursor) -> Insert:
    if cursor.word() in ("UPDATE", "DELETE"):
        raise cursor.error(
            "WHEN NOT MATCHED has no target row to update or delete. Use INSERT, or WHEN NOT MATCHED BY SOURCE for rows that only "
            "the target has."
        )
    cursor.expect("INSERT", "Rows without a match take INSERT.")
    every = _all(cursor)
    if every is not None:
        return Insert(every)
    if cursor.word() in ("VALUES", "ROW", "DEFAULT"):
        raise cursor.error(
            "Name the columns: INSERT (column, ...) VALUES (value, ...), or INSERT * for those of the source."
        )
    columns = cursor.enclosed(_column_text, "INSERT takes *, or (column, ...) VALUES (value, ...).")
    cursor.expect("VALUES")
    place = cursor.token()
    values = cursor.enclosed(lambda c: c.expression("A value", at_comma))
    if len(columns) != len(values):
        raise cursor.error_at(place, f"There are {len(columns)} columns and {len(values)} values.")
    return Insert(Assignments(zip(columns, values, strict=True)))


def _all(cursor: Cursor) -> All | None:
    """``* [EXCEPT (column, ...)]``; None if something else comes next."""
    if not cursor.accept("*"):
        return None
    if not cursor.accept("EXCEPT"):
        return All()
    return All(t.value for t in cursor.enclosed(lambda c: c.name("A column"), "EXCEPT takes (column, ...)."))


_value_ends = either(at_comma, _at_when, at_words(_MORE))


def _check(cursor: Cursor, clauses: tuple[Clause, ...], places: list[int]) -> None:
    """Raise for clauses that are invalid for any table, at their position (S28)."""
    try:
        check_clauses(clauses)
    except InvalidMergeError as error:
        position = error.facts["clause"]
        token = next(t for t in cursor.tokens if t.start == places[position - 1])
        raise cursor.error_at(token, str(error)) from None


_SIMPLE: dict[str, Callable[[Cursor], Statement]] = {"UPDATE": update_at, "DELETE": delete_at}


def statement_of(text: str) -> Statement:
    """Parse a statement.

    Example:
        >>> statement_of("DELETE FROM orders AS o WHERE o.amount < 0 -- never").condition
        'o.amount < 0'
    """
    if not isinstance(text, str):
        raise InvalidMergeError(f"A statement is text, got {type(text).__name__}.")
    return _statement(Cursor.of(text))


def misread_at(text: str) -> int | None:
    """Return the offset of a syntax error in an expression of a statement; None if SQLGlot finds none."""
    cursor = Cursor.of(text)
    _statement(cursor)
    for start, end in cursor.expressions:
        wrong = parse_error_offset(text[start:end])
        if wrong is not None:
            return start + wrong
    return None


def _statement(cursor: Cursor) -> Statement:
    if cursor.done:
        raise cursor.error(f"The text is empty. {KNOWN}")
    refuse_several(cursor)
    read = _SIMPLE.get(cursor.word())
    if read is not None:
        return read(cursor)
    start = cursor.token().start
    ctes = skip_ctes(cursor)
    if cursor.sees("MERGE"):
        return merge_at(cursor, ctes)
    if cursor.sees("INSERT"):
        return insert_at(cursor, ctes)
    if not cursor.begins_query():
        if ctes.end and cursor.word() in _SIMPLE:
            raise cursor.error(
                "WITH goes with MERGE INTO, INSERT INTO and queries. Put it into the query that uses it: (WITH ... SELECT ...)."
            )
        refuse_statement(cursor)
    return Select(query_in(cursor.text, [(start, cursor.rest[1])]))
