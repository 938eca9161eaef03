"""Where in a statement something is, as errors say it.

Owns: lines and columns, and the wording of an error that names them. Knows nothing of tokens or of grammar.
"""

from __future__ import annotations

from trinitymerge.errors import SqlError


def place(text: str, offset: int) -> tuple[int, int]:
    r"""The line and the column of an offset, both counted from 1.

    Example:
        >>> place("MERGE INTO t\nUSING s", 13)
        (2, 1)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def sql_error(text: str, offset: int, message: str, near: str = "") -> SqlError:
    """An error about a place in a statement.

    Args:
        text: the statement.
        offset: of what is wrong.
        message: what is wrong with it, and what to do.
        near: what stands there, if that helps.

    Example:
        >>> print(sql_error("DELETE orders", 7, "FROM is missing.", "orders"))
        Line 1, column 8, at 'orders': FROM is missing.
    """
    line, column = place(text, offset)
    shown = near if len(near) <= 40 else f"{near[:37]}..."
    at = f", at '{shown}'" if shown else ", at the end" if not text[offset:].strip() else ""
    return SqlError(f"Line {line}, column {column}{at}: {message}", line=line, column=column, near=near)
