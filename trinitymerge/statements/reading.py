"""From the text of a statement to frozen data.

Owns: which statement it is. What a statement does not say in so many words is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable

from trinitymerge.errors import InvalidMergeError
from trinitymerge.statements.altering import alter_at, comment_at, describe_at
from trinitymerge.statements.changing import delete_at, insert_at, update_at
from trinitymerge.statements.cursor import Cursor
from trinitymerge.statements.forms import Select, Statement
from trinitymerge.statements.glot import misread
from trinitymerge.statements.merging import merge_at
from trinitymerge.statements.queries import query_in, skip_ctes
from trinitymerge.statements.refused import KNOWN, refuse_several, refuse_statement

_SIMPLE: dict[str, Callable[[Cursor], Statement]] = {
    "UPDATE": update_at,
    "DELETE": delete_at,
    "ALTER": alter_at,
    "COMMENT": comment_at,
    "DESCRIBE": describe_at,
    "DESC": describe_at,
}


def statement_of(text: str) -> Statement:
    """What a text says.

    Raises:
        SqlError: it is no statement that can be done here, or more than one; with its line and column.
        InvalidMergeError: this is no text.
        MissingPackageError: SQLGlot is not installed.

    Example:
        >>> statement_of("DELETE FROM orders AS o WHERE o.amount < 0 -- never").condition
        'o.amount < 0'
    """
    if not isinstance(text, str):
        raise InvalidMergeError(f"A statement is text, got {type(text).__name__}.")
    return _statement(Cursor.of(text))


def misread_at(text: str) -> int | None:
    """Where an expression of a statement goes wrong, as far as SQLGlot can tell."""
    cursor = Cursor.of(text)
    _statement(cursor)
    for start, end in cursor.expressions:
        wrong = misread(text[start:end])
        if wrong is not None:
            return start + wrong
    return None


def _statement(cursor: Cursor) -> Statement:
    if cursor.done:
        raise cursor.error(f"There is no statement. {KNOWN}")
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
