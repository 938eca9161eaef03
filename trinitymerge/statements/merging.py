"""``MERGE INTO``, read.

Owns: the grammar of merges, which is Spark's with ``* EXCEPT (...)``, and which clause of the chain each WHEN is.
"""

from __future__ import annotations

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.clauses import (
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
from trinitymerge.statements.cursor import Cursor, Ends, at_comma, at_words, either
from trinitymerge.statements.forms import Ctes, MergeInto
from trinitymerge.statements.queries import inner_tables, reference_at, source_in
from trinitymerge.statements.refused import refuse_rest

_MORE = ("RETURNING", "OUTPUT", "WHERE")
"""What other systems allow at the end of a merge or of its clauses."""


def merge_at(cursor: Cursor, ctes: Ctes) -> MergeInto:
    """Reads a merge.

    Args:
        cursor: at MERGE.
        ctes: the common table expressions before it.

    Raises:
        SqlError: it cannot be read, or asks for what no merge can do.
    """
    words = cursor.token().start
    cursor.expect("MERGE")
    evolves = cursor.accept("WITH SCHEMA EVOLUTION")
    cursor.expect("INTO")
    target = reference_at(cursor)
    alias = alias_at(cursor, "USING")
    cursor.expect("USING", "A merge takes its rows from a source: MERGE INTO t USING s ON t.id = s.id WHEN ...")
    relation = _relation(cursor)
    after = cursor.at
    source = source_in(cursor, ctes, words, relation)
    cursor.at = after
    cursor.expect("ON", "It says which rows of source and target belong together.")
    condition = cursor.expression("The condition", _at_when)
    clauses, places = list[Clause](), list[int]()
    while cursor.sees("WHEN"):
        first = cursor.at
        clause = _clause(cursor)
        places.append(cursor.tokens[first].start)
        clauses.append(clause)
    refuse_rest(cursor, "MERGE")
    if not clauses:
        raise cursor.error("WHEN is expected here: WHEN MATCHED THEN ..., WHEN NOT MATCHED THEN ...")
    _check(cursor, tuple(clauses), places)
    inner = inner_tables(cursor, ctes.names)
    return MergeInto(target, alias, source, condition, tuple(clauses), evolves, inner, tuple(places))


def alias_at(cursor: Cursor, *following: str) -> str | None:
    """An alias, with AS or without, unless one of these words comes next."""
    if cursor.accept("AS") or (cursor.token().kind in ("word", "name") and cursor.word() not in following):
        return cursor.name("An alias").value
    return None


def assignments_at(cursor: Cursor, ends: Ends) -> Assignments:
    """``column = value, ...``."""
    found = []
    while True:
        first = cursor.at
        cursor.dotted("The name of a column")
        column = cursor.since(first)
        cursor.expect("=", "An assignment is column = value.")
        found.append((column, cursor.expression("A value", ends)))
        if not cursor.accept(","):
            return Assignments(found)


def _relation(cursor: Cursor) -> tuple[int, int]:
    """Where the source is: up to ON."""
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
    """A clause, which errors call as it is written."""
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
    """The condition of a clause, and all of it up to THEN."""
    found = None
    if cursor.accept("AND"):
        found = cursor.expression("The clause's condition", lambda c: c.word() == "THEN")
    call = " ".join(cursor.since(first).split())
    cursor.expect("THEN")
    if cursor.sees("DO NOTHING"):
        raise cursor.error(
            "Rows that no clause is for stay as they are: leave it out, or say so in the conditions of others."
        )
    return found, call


def _on_pair(cursor: Cursor) -> Update | Delete:
    if cursor.sees("INSERT"):
        raise cursor.error(
            "A clause for rows that match cannot insert. The chain can insert besides an update: "
            "whenMatched().updateExpr({...}).insertExpr({...})."
        )
    if cursor.accept("DELETE"):
        return Delete()
    cursor.expect("UPDATE SET", "Rows that match take UPDATE SET or DELETE.")
    return Update(_all(cursor) or assignments_at(cursor, _value_ends))


def _on_target(cursor: Cursor) -> Update | Delete:
    if cursor.sees("INSERT"):
        raise cursor.error(
            "A clause for rows that the source lacks cannot insert. The chain can: whenNotMatchedBySource().insertExpr({...})."
        )
    if cursor.sees("UPDATE SET *"):
        raise cursor.error(
            "These rows have no source row to take all columns from. Name them: UPDATE SET column = value."
        )
    return _on_pair(cursor)


def _on_source(cursor: Cursor) -> Insert:
    if cursor.word() in ("UPDATE", "DELETE"):
        raise cursor.error(
            "There is no target row to update or delete where nothing matches. INSERT, or write WHEN NOT MATCHED BY SOURCE "
            "for the rows that only the target has."
        )
    cursor.expect("INSERT", "Rows without a match take INSERT.")
    every = _all(cursor)
    if every is not None:
        return Insert(every)
    if cursor.word() in ("VALUES", "ROW", "DEFAULT"):
        raise cursor.error(
            "Name the columns: INSERT (column, ...) VALUES (value, ...), or INSERT * for those of the source."
        )
    columns = _texts(cursor)
    cursor.expect("VALUES")
    place = cursor.token()
    values = _values(cursor)
    if len(columns) != len(values):
        raise cursor.error_at(place, f"There are {len(columns)} columns and {len(values)} values.")
    return Insert(Assignments(zip(columns, values, strict=True)))


def _all(cursor: Cursor) -> All | None:
    """``* [EXCEPT (column, ...)]``; None if something else stands here."""
    if not cursor.accept("*"):
        return None
    if not cursor.accept("EXCEPT"):
        return All()
    return All(token.value for token in cursor.listed("The columns that are left out", lambda: cursor.name("A column")))


def _texts(cursor: Cursor) -> list[str]:
    """Names of columns in parentheses, as they are written."""
    cursor.expect("(", "INSERT takes *, or (column, ...) VALUES (value, ...).")
    found = []
    while True:
        first = cursor.at
        cursor.dotted("The name of a column")
        found.append(cursor.since(first))
        if not cursor.accept(","):
            cursor.expect(")")
            return found


def _values(cursor: Cursor) -> list[str]:
    cursor.expect("(")
    found = [cursor.expression("A value", at_comma)]
    while cursor.accept(","):
        found.append(cursor.expression("A value", at_comma))
    cursor.expect(")")
    return found


_value_ends = either(at_comma, _at_when, at_words(_MORE))


def _check(cursor: Cursor, clauses: tuple[Clause, ...], places: list[int]) -> None:
    """Clauses that no table could accept, refused at their place (S28)."""
    try:
        check_clauses(clauses)
    except InvalidMergeError as error:
        position = getattr(error, "clause", 1)
        token = next(t for t in cursor.tokens if t.start == places[position - 1])
        raise cursor.error_at(token, str(error)) from None
