"""From SQL text to statements: MERGE, INSERT, UPDATE, DELETE, ALTER TABLE, DESCRIBE and others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

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
from trinitymerge.statements.tree import (
    AlterCall,
    AlterTable,
    Column,
    Ctes,
    DeleteFrom,
    Describe,
    InsertInto,
    MergeInto,
    Select,
    Statement,
    UpdateTable,
)

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
    "DESCRIBE": "DESCRIBE [TABLE] [EXTENDED] t, DESCRIBE DETAIL t and DESCRIBE HISTORY t are supported.",
    "COMMENT": "use COMMENT ON TABLE t IS '...', or ALTER TABLE t ALTER COLUMN c COMMENT '...' for a column.",
    "COPY": "read the files with spark.read, and use INSERT INTO or MERGE.",
    "BEGIN": "each statement is one atomic commit, and transactions of several are not supported.",
    "CALL": "use the methods of TrinityTable: compact, vacuum, restore, purge.",
}
STATEMENTS["DESC"] = STATEMENTS["DESCRIBE"]

KNOWN = (
    "MERGE INTO, UPDATE, DELETE FROM, INSERT INTO, ALTER TABLE, COMMENT ON TABLE, DESCRIBE, SELECT, WITH and VALUES are "
    "supported; use spark.sql for statements without a TrinityTable."
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
    "PARTITION": "tables have no partitions, and files are sorted by primary key.",
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
    """Raise an error about the first words of a statement."""
    words = [cursor.word(), cursor.word(1)]
    known = next((w for w in (" ".join(words), words[0]) if w in STATEMENTS), None)
    if known is None:
        raise cursor.error(f"This is not a supported statement. {KNOWN}")
    raise cursor.error(f"{known} is not supported: {STATEMENTS[known]}")


def reject_trailing(cursor: Cursor, statement: str) -> None:
    """Raise if a complete statement has further text."""
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
    """Read an UPDATE."""
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
    """Read a DELETE."""
    cursor.expect("DELETE")
    cursor.expect("FROM")
    target = reference_at(cursor)
    alias = alias_at(cursor, "WHERE", "USING", *_NO_ALIAS)
    condition = cursor.expression("The condition", _at_end) if cursor.accept("WHERE") else None
    reject_trailing(cursor, "DELETE")
    return DeleteFrom(target, alias, condition, inner_tables(cursor))


def insert_at(cursor: Cursor, ctes: Ctes) -> InsertInto:
    """Read an INSERT.

    Args:
        cursor: at INSERT.
        ctes: the common table expressions before it.
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


_OTHERS = {
    "RENAME TO": "a table is a path: move its directory.",
    "SET LOCATION": "a table is a path: move its directory, and open it there.",
    "SET SERDE": "the file format is fixed when the table is created.",
    "SET FILEFORMAT": "the file format is fixed when the table is created.",
    "ADD PARTITION": "tables have no partitions.",
    "DROP PARTITION": "tables have no partitions.",
    "RECOVER PARTITIONS": "tables have no partitions.",
    "REPLACE COLUMNS": "it would drop columns that the statement does not name. Use DROP COLUMN and ADD COLUMN.",
    "CLUSTER BY": "files are sorted by primary key.",
}
_NO_TABLES = ("QUERY", "FUNCTION", "DATABASE", "SCHEMA", "CATALOG", "PROCEDURE")
_BEHIND_TYPES = ("NOT", "COMMENT", "DEFAULT", "GENERATED", "FIRST", "AFTER", "COLLATE")


def alter_at(cursor: Cursor) -> AlterTable:
    """Read an ALTER TABLE."""
    if not cursor.accept("ALTER TABLE"):
        refuse_statement(cursor)
    target = reference_at(cursor)
    for words, reason in _OTHERS.items():
        if cursor.sees(words):
            raise cursor.error(f"ALTER TABLE ... {words} is not supported: {reason}")
    for words, read in _KINDS.items():
        if cursor.accept(words):
            changes = read(cursor)
            reject_trailing(cursor, "ALTER TABLE")
            return AlterTable(target, tuple(changes))
    raise cursor.error(f"Expected one of {', '.join(_KINDS)}.")


def comment_at(cursor: Cursor) -> AlterTable:
    """Read a COMMENT ON TABLE."""
    if not cursor.accept("COMMENT ON TABLE"):
        refuse_statement(cursor)
    target = reference_at(cursor)
    cursor.expect("IS")
    place = cursor.token().start
    comment = None if cursor.accept("NULL") else cursor.string("The comment, or NULL,")
    reject_trailing(cursor, "COMMENT ON TABLE")
    return AlterTable(target, (AlterCall("setComment", (comment,), at=place),))


def describe_at(cursor: Cursor) -> Describe:
    """Read a DESCRIBE."""
    statement, what = cursor.take().value.upper(), ""
    if cursor.word() in _NO_TABLES and _is_named_next(cursor):
        cursor.at -= 1
        refuse_statement(cursor)
    if cursor.word() in ("HISTORY", "DETAIL") and _is_named_next(cursor):
        what = cursor.take().value.upper()
    else:
        _ = _is_named_next(cursor) and cursor.accept("TABLE")
        if cursor.word() in ("EXTENDED", "FORMATTED") and _is_named_next(cursor):
            cursor.take()
            what = "EXTENDED"
    target = reference_at(cursor)
    if cursor.sees("LIMIT"):
        raise cursor.error(f"{statement} takes no LIMIT. It returns a DataFrame: use .orderBy('version').limit(n).")
    if cursor.word() or cursor.token().kind == "name":
        raise cursor.error(f"{statement} takes a table only. Filter its result: .filter(\"col_name = '...'\").")
    reject_trailing(cursor, statement)
    return Describe(target, what)


def _is_named_next(cursor: Cursor) -> bool:
    """Return True if a name follows the next word."""
    return cursor.token(1).kind in ("word", "name")


# Columns --------------------------------------------------------------------------------------------------------------


def _added(cursor: Cursor) -> list[AlterCall]:
    return _several(cursor, _added_one)


def _added_one(cursor: Cursor) -> list[AlterCall]:
    place, name = cursor.token().start, _column(cursor)
    kind, comment, later = _type(cursor), None, list[AlterCall]()
    while cursor.word():
        if cursor.accept("COMMENT"):
            comment = cursor.string("The comment")
        elif cursor.sees("DEFAULT"):
            later.append(_default(cursor, name))
        elif cursor.sees("NOT NULL"):
            raise cursor.error("Existing rows have a null in a new column. Omit NOT NULL.")
        elif cursor.sees("GENERATED"):
            raise cursor.error("Generated columns are not supported. Compute the column in queries, or in the source.")
        else:
            _refuse_position(cursor)
            break
    return [AlterCall("addColumn", (name, kind), {} if comment is None else {"comment": comment}, place), *later]


def _renamed(cursor: Cursor) -> list[AlterCall]:
    place, name = cursor.token().start, _column(cursor)
    cursor.expect("TO")
    return [AlterCall("renameColumn", (name, _column(cursor)), at=place)]


def _dropped(cursor: Cursor) -> list[AlterCall]:
    if cursor.sees("IF EXISTS"):
        raise cursor.error("IF EXISTS is not supported. Name existing columns; see table.definition.")
    return _several(cursor, lambda c: [AlterCall("dropColumn", at=c.token().start, arguments=(_column(c),))])


def _changed(cursor: Cursor) -> list[AlterCall]:
    return list(chain.from_iterable(cursor.separated(_changed_one)))


def _changed_one(cursor: Cursor) -> list[AlterCall]:
    place, first = cursor.token().start, cursor.at
    inside = ".".join(part.value for part in cursor.dotted("The name of a column"))
    if cursor.accept("DROP NOT NULL"):
        return [AlterCall("setNullable", (inside,), at=place)]
    if cursor.accept("SET NOT NULL"):
        return [AlterCall("setNotNull", (inside,), at=place)]
    cursor.at = first
    name = _column(cursor)
    if cursor.accept("TYPE"):
        return [AlterCall("widenColumn", (name, _type(cursor)), at=place)]
    if cursor.accept("COMMENT"):
        return [AlterCall("setColumnComment", (name, cursor.string("The comment")), at=place)]
    if cursor.accept("DROP DEFAULT"):
        return [AlterCall("dropDefault", (name,), at=place)]
    if cursor.sees("SET DEFAULT"):
        cursor.accept("SET")
        return [_default(cursor, name)]
    _refuse_position(cursor)
    raise cursor.error("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT or DROP DEFAULT is expected here.")


def _default(cursor: Cursor, name: str) -> AlterCall:
    cursor.expect("DEFAULT")
    place = cursor.token().start
    ends = either(at_comma, lambda c: c.word() in ("COMMENT", "FIRST", "AFTER") and c.after_operand())
    return AlterCall("setDefault", (name, cursor.expression("The default", ends)), at=place)


def _constraint(cursor: Cursor) -> list[AlterCall]:
    place, name = cursor.token().start, cursor.name("The name of the constraint").value
    cursor.expect("CHECK", "A constraint is CHECK (condition).")
    cursor.expect("(")
    condition = cursor.expression("The condition", lambda c: False)
    cursor.expect(")")
    if cursor.sees("NOT ENFORCED"):
        raise cursor.error("Every constraint is enforced. Omit NOT ENFORCED, or the constraint.")
    cursor.accept("ENFORCED")
    return [AlterCall("addCheck", (name, condition), at=place)]


def _nameless(cursor: Cursor) -> list[AlterCall]:
    raise cursor.error_at(cursor.token(-1), "A constraint needs a name: ADD CONSTRAINT name CHECK (condition).")


def _no_constraint(cursor: Cursor) -> list[AlterCall]:
    if cursor.sees("IF EXISTS"):
        raise cursor.error("IF EXISTS is not supported. Name existing constraints; see table.definition.checks.")
    return [AlterCall("dropCheck", (cursor.name("The name of the constraint").value,), at=cursor.token(-1).start)]


def _several(cursor: Cursor, read: Callable[[Cursor], list[AlterCall]]) -> list[AlterCall]:
    """Read one or more, in parentheses or not."""
    return list(chain.from_iterable((cursor.enclosed if cursor.symbol() == "(" else cursor.separated)(read)))


def _column(cursor: Cursor) -> str:
    """Read the name of a column, without backticks."""
    first = cursor.at
    parts = cursor.dotted("The name of a column")
    if len(parts) > 1:
        cursor.at = first
        raise cursor.error(
            "Single fields of structs cannot be altered, except by NOT NULL. Add or widen fields with ALTER COLUMN ... TYPE "
            "STRUCT<...>. Put a column name that has a dot in backticks."
        )
    return parts[0].value


def _type(cursor: Cursor) -> str:
    """Read a type as it is written."""
    first, depth = cursor.at, 0
    while not cursor.done:
        symbol = cursor.symbol()
        ends = symbol in (",", ")") or cursor.word() in _BEHIND_TYPES
        if depth == 0 and cursor.at > first and ends:
            break
        depth += symbol.count("<") + symbol.count("(") - symbol.count(">") - symbol.count(")")
        cursor.take()
    if cursor.at == first or cursor.tokens[first].kind not in ("word", "name"):
        cursor.at = first
        raise cursor.error("A type is expected here.")
    return cursor.since(first)


def _refuse_position(cursor: Cursor) -> None:
    if cursor.word() in ("FIRST", "AFTER"):
        raise cursor.error(
            "New columns are last, and the order of columns is fixed. Select them in the order you want."
        )


# Properties -----------------------------------------------------------------------------------------------------------


def _set(cursor: Cursor) -> list[AlterCall]:
    return cursor.enclosed(_set_one)


def _set_one(cursor: Cursor) -> AlterCall:
    place, name = cursor.token().start, _property(cursor)
    cursor.accept("=")
    if cursor.token().kind not in ("string", "number", "word"):
        raise cursor.error("The value of a property is expected here, in quotes.")
    value = cursor.string("A value") if cursor.token().kind == "string" else cursor.take().value
    is_comment = name.lower() == "comment"
    return (
        AlterCall("setComment", (value,), at=place) if is_comment else AlterCall("setProperty", (name, value), at=place)
    )


def _unset(cursor: Cursor) -> list[AlterCall]:
    cursor.accept("IF EXISTS")
    return cursor.enclosed(_unset_one)


def _unset_one(cursor: Cursor) -> AlterCall:
    place, name = cursor.token().start, _property(cursor)
    is_comment = name.lower() == "comment"
    return AlterCall("setComment", (None,), at=place) if is_comment else AlterCall("unsetProperty", (name,), at=place)


def _property(cursor: Cursor) -> str:
    if cursor.token().kind == "string":
        return cursor.string("The name of a property")
    return ".".join(part.value for part in cursor.dotted("The name of a property"))


_KINDS: dict[str, Callable[[Cursor], list[AlterCall]]] = {
    "ADD COLUMNS": _added,
    "ADD COLUMN": _added,
    "ADD CONSTRAINT": _constraint,
    "ADD CHECK": _nameless,
    "RENAME COLUMN": _renamed,
    "DROP COLUMNS": _dropped,
    "DROP COLUMN": _dropped,
    "DROP CONSTRAINT": _no_constraint,
    "ALTER COLUMN": _changed,
    "CHANGE COLUMN": _changed,
    "SET TBLPROPERTIES": _set,
    "UNSET TBLPROPERTIES": _unset,
}


_MORE = ("RETURNING", "OUTPUT", "WHERE")
"""Words that end a value, so that errors name them."""


def merge_at(cursor: Cursor, ctes: Ctes) -> MergeInto:
    """Read a MERGE.

    Args:
        cursor: at MERGE.
        ctes: the common table expressions before it.
    """
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
    """Read ``column = value, ...``."""

    def assignment(cursor: Cursor) -> tuple[str, str]:
        column = _column_text(cursor)
        cursor.expect("=", "An assignment is column = value.")
        return column, cursor.expression("A value", ends)

    return Assignments(cursor.separated(assignment))


def _column_text(cursor: Cursor) -> str:
    """Read the name of a column as it is written."""
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


_SIMPLE: dict[str, Callable[[Cursor], Statement]] = {
    "UPDATE": update_at,
    "DELETE": delete_at,
    "ALTER": alter_at,
    "COMMENT": comment_at,
    "DESCRIBE": describe_at,
    "DESC": describe_at,
}


def statement_of(text: str) -> Statement:
    """Parse a statement.

    Raises:
        SqlError: the text is not one supported statement; with line and column.
        InvalidMergeError: the argument is not a str.
        MissingPackageError: SQLGlot is not installed.

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
